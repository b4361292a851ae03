/* Step 6: a small GPT that learns to write a text file, character by character.
 *
 *   06_char_gpt FILE [--steps N] [--batch N] [--context N] [--width N] [--layers N] [--heads N]
 *               [--write N] [--seed N] [--bf16 1]
 *
 * Defaults: four blocks of four heads, width 128, context 128. Layer norm comes before attention
 * and before the perceptron (Radford et al. 2019); the last product shares its weight with the
 * embedding. AdamW with a learning rate that rises and then falls. The last tenth of the text is
 * held out. --bf16 1 trains in mixed precision: the parameters are bf16, with f32 masters in the
 * optimiser's state.
 *
 * Tested with: {source}/06_char_gpt.c --steps 12 --batch 4 --context 32 --width 32 --write 40
 * Prints:
 *   ... characters, ... different; ... parameters
 *   step 0: held out loss ...
 *   step 12: held out loss ...
 *   ---
 *   ... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weber.h>

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

/* ---- the text -------------------------------------------------------------------------------- */

typedef struct {
    int64_t n;
    int classes;
    unsigned char *letters;         /* [n], the class of each character */
    unsigned char names[256];       /* class to character */
    int64_t context, start;         /* of this dataset's part of the text */
} text;

static bool read_text(const char *path, text *t)
{
    FILE *f = fopen(path, "rb");
    if (!f) return fprintf(stderr, "%s: cannot be read\n", path), false;
    fseek(f, 0, SEEK_END);
    t->n = ftell(f);
    rewind(f);
    t->letters = malloc(t->n > 0 ? (size_t)t->n : 1);
    bool good = t->letters && t->n > 0 && fread(t->letters, 1, (size_t)t->n, f) == (size_t)t->n;
    fclose(f);
    if (!good) return fprintf(stderr, "%s: cannot be read, or is empty\n", path), false;

    bool used[256] = {false};
    int class[256];
    for (int64_t i = 0; i < t->n; i++) used[t->letters[i]] = true;
    for (int c = 0; c < 256; c++)
        if (used[c]) {
            class[c] = t->classes;
            t->names[t->classes++] = (unsigned char)c;
        }
    for (int64_t i = 0; i < t->n; i++) t->letters[i] = (unsigned char)class[t->letters[i]];
    return true;
}

/* Observation i: x = the characters from i on, y = the same one further, which the model
 * predicts. */
static int window(int64_t i, void *x, void *y, void *ctx)
{
    const text *t = ctx;
    int32_t *now = x, *next = y;
    for (int64_t k = 0; k < t->context; k++) {
        now[k] = t->letters[t->start + i + k];
        next[k] = t->letters[t->start + i + k + 1];
    }
    return 0;
}

static wb_dataset *windows(const text *t, int64_t n)
{
    wb_dataset_source source = {
        .size = sizeof source, .n = n - t->context,
        .x_dtype = WB_I32, .y_dtype = WB_I32, .x_ndim = 1, .y_ndim = 1,
        .x_dims = {t->context}, .y_dims = {t->context}, .get = window, .ctx = (void *)t,
    };
    return wb_dataset_from(&source);
}

/* ---- the model ------------------------------------------------------------------------------- */

static wb_tensor *small_normal(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_mul(wb_randn_array(dtype, ndim, dims), wb_scalar(0.02));
}

/* The positions of x [N, T]: 0, 1, ..., T-1, or those behind the characters in the cache. */
static wb_tensor *positions(wb_tensor *x) { return x ? wb_positions(wb_dim(x, -1)) : NULL; }

static wb_layer *block(int64_t width, int64_t heads)
{
    wb_layer *attention = wb_MultiHeadAttention(width, heads, .causal = true, .bias = true,
                                                .init = small_normal);
    wb_layer *attend = wb_Chain(wb_LayerNorm({width}), attention);
    wb_layer *perceptron = wb_Chain(wb_LayerNorm({width}),
                               wb_Dense(width, 4 * width, wb_gelu, .init = small_normal),
                               wb_Dense(4 * width, width, .init = small_normal));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(perceptron, wb_add));
}

/* x [N, T], classes of characters -> [N, T, classes]. */
static wb_layer *gpt(int64_t classes, int64_t context, int64_t width, int64_t heads, int n_blocks)
{
    enum { MOST = 28 };
    wb_layer *layers[MOST + 3];
    int n = 0;
    wb_layer *characters = wb_Embedding(classes, width, .init = small_normal);
    wb_layer *places = wb_Chain(wb_function_layer("positions", positions),
                                wb_Embedding(context, width, .init = small_normal));
    layers[n++] = wb_named("embed", wb_Parallel(wb_add, characters, places));
    for (int i = 0; i < n_blocks && i < MOST; i++) {
        char name[16];
        snprintf(name, sizeof name, "block%d", i);
        layers[n++] = wb_named(name, block(width, heads));
    }
    layers[n++] = wb_named("norm", wb_LayerNorm({width}));
    layers[n++] = wb_named("head", wb_Dense(width, classes, .bias = false));
    wb_layer *model = wb_Chain_array(n, layers);
    if (model && wb_tie(model, "layers.head.weight", "layers.embed.layers.0.weight")) return NULL;
    return model;
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    int64_t classes = *(const int64_t *)ctx;
    wb_tensor *scores = wb_reshape(wb_call(model, batch.x), -1, classes);
    return wb_logitcrossentropy(scores, wb_onehotbatch(wb_reshape(batch.y, -1), classes));
}

static double mean_loss(wb_layer *model, wb_dataset *data, int64_t classes)
{
    double total = 0;
    int n = 0;
    wb_loader *loader = wb_dataloader(data, .batchsize = 8, .shuffle = true, .seed = 1);
    WB_EACH_BATCH(batch, loader) {
        total += wb_item(loss(model, batch, &classes));
        if (++n == 20) break;
    }
    return n ? total / n : NAN;
}

/* ---- writing --------------------------------------------------------------------------------- */

static double random_unit(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Draws a character by its probability, at a temperature of 0.8. */
static int choose(const float *scores, int classes)
{
    double p[256], sum = 0, most = scores[0];
    for (int c = 1; c < classes; c++) most = fmax(most, scores[c]);
    for (int c = 0; c < classes; c++) sum += p[c] = exp(((double)scores[c] - most) / 0.8);
    double at = random_unit() * sum;
    for (int c = 0; c < classes; c++)
        if ((at -= p[c]) <= 0) return c;
    return classes - 1;
}

typedef struct { wb_layer *model; wb_tree *cache; } writer;

/* The scores of the character behind x [1, T], which comes behind those in the cache. */
static int scores_behind(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    writer *w = ctx;
    wb_tensor *y = wb_call_cached(w->model, w->cache, inputs[0]);
    if (!y) return -1;
    outputs[0] = wb_astype(wb_slice(y, 1, wb_dim(y, 1) - 1, wb_dim(y, 1)), WB_F32);
    return outputs[0] ? 1 : -1;
}

/* The cache holds the keys and values of the characters so far, so that a character costs one step
 * of the model, and wb_compile records that step once. A full cache begins again with the second
 * half of its characters. */
static bool write_on(wb_layer *model, const text *t, int length)
{
    const int64_t room = t->context, half = (room + 1) / 2;
    writer w = {model, wb_attention_cache(model, 1, room)};
    wb_compiled *step = w.cache ? wb_compile(scores_behind, &w) : NULL;
    int32_t *line = calloc((size_t)room + 1, sizeof *line);
    int64_t known = 1, cached = 0;
    bool good = step && line;
    for (int c = 0; good && c < t->classes; c++)
        if (t->names[c] == '\n') line[0] = c;
    for (int i = 0; good && i < length; i++) {
        wb_scope *scope = wb_scope_open();
        if (known > room) {
            memmove(line, line + known - half, (size_t)half * sizeof *line);
            known = half;
            cached = 0;
            good = !wb_assign(wb_get(w.cache, "position"),
                              wb_full_array(0, WB_I32, 1, (int64_t[]){1}));
        }
        wb_tensor *y, *x = wb_from(line + cached, WB_I32, 2, (int64_t[]){1, known - cached});
        const float *scores =
            good && !wb_call_compiled(step, 1, &x, 1, &y) ? wb_data(y) : NULL;
        good = scores;
        const int next = good ? choose(scores, t->classes) : 0;
        if (wb_scope_close(scope)) good = false;
        if (!good) break;
        putchar(t->names[next]);
        fflush(stdout);
        cached = known;
        line[known++] = next;
    }
    if (good) putchar('\n');
    free(line);
    wb_object_free(step);
    return good;
}

/* ---- main ------------------------------------------------------------------------------------ */

typedef struct { int64_t steps, batch, context, width, layers, heads, write, seed, bf16; } settings;

static bool read_settings(int argc, char **argv, settings *s)
{
    const struct { const char *name; int64_t *value; } known[] = {
        {"--steps", &s->steps}, {"--batch", &s->batch}, {"--context", &s->context},
        {"--width", &s->width}, {"--layers", &s->layers}, {"--heads", &s->heads},
        {"--write", &s->write}, {"--seed", &s->seed}, {"--bf16", &s->bf16},
    };
    enum { N = sizeof known / sizeof *known };
    if (argc < 2 || argc % 2) return false;
    for (int i = 2; i < argc; i += 2) {
        int k = 0;
        while (k < N && strcmp(argv[i], known[k].name)) k++;
        if (k == N || (*known[k].value = atoll(argv[i + 1])) < 0) return false;
    }
    return true;
}

static double learning_rate(int64_t step, int64_t steps)
{
    const double peak = 2e-3, rise = fmin(100, 0.1 * (double)steps);
    if ((double)step < rise) return peak * ((double)step + 1) / (rise + 1);
    double done = ((double)step - rise) / fmax(1, (double)steps - rise);
    return peak * (0.05 + 0.95 * 0.5 * (1 + cos(3.14159265 * done)));
}

int main(int argc, char **argv)
{
    settings s = {2000, 8, 128, 128, 4, 4, 500, 1, 0};
    text t = {0};
    if (!read_settings(argc, argv, &s)) {
        fprintf(stderr, "06_char_gpt FILE [--steps N] [--batch N] [--context N] [--width N]\n"
                        "            [--layers N] [--heads N] [--write N] [--seed N] [--bf16 1]\n");
        return 2;
    }
    if (!read_text(argv[1], &t)) return 1;
    wb_seed((uint64_t)s.seed);
    t.context = s.context;
    text tail = t;
    tail.start = t.n * 9 / 10;
    wb_dataset *train = windows(&t, tail.start), *held_out = windows(&tail, t.n - tail.start - 1);
    int64_t classes = t.classes;
    wb_layer *model = gpt(classes, s.context, s.width, s.heads, (int)s.layers);
    wb_opt_state *state = wb_setup(wb_AdamW(.beta = {0.9, 0.99}), model,
                                   .mixed = s.bf16 ? WB_BF16 : WB_DTYPE_DEFAULT);
    wb_loader *loader =
        wb_dataloader(train, .batchsize = s.batch, .shuffle = true, .drop_last = true);
    if (!held_out || !loader || !state) return complain();
    printf("%lld characters, %d different; %lld parameters\n",
           (long long)t.n, t.classes, (long long)wb_parameter_count(model));
    printf("step 0: held out loss %.3f\n", mean_loss(model, held_out, classes));

    wb_progress *bar = wb_progress_of(s.steps, "learning");
    for (int64_t step = 0; step < s.steps;) {
        WB_EACH_BATCH(batch, loader) {
            wb_adjust(state, .eta = learning_rate(step, s.steps));
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients, &classes);
            if (wb_update(state, model, gradients)) return complain();
            wb_progress_step(bar, "loss", l);
            if (++step == s.steps) break;
        }
        if (wb_loader_status(loader)) return complain();
    }
    wb_progress_end(bar);
    printf("step %lld: held out loss %.3f\n---\n", (long long)s.steps,
           mean_loss(model, held_out, classes));
    if (!write_on(model, &t, (int)s.write)) return complain();
    free(t.letters);
    return wb_error_code() ? complain() : 0;
}
