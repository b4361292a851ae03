/* Times the inference of a model: from an ONNX file, or the same written with Weber's layers and
 * random values.
 *
 *   onnx_bench MODEL INPUT.npy... [--threads N] [--seconds N] [--out Y.npy]
 *
 * MODEL is a file, "resnet18" or "encoder".  Prints a line of JSON: the median, and the tenth part,
 * of the microseconds of a call, which is recorded; and the milliseconds from the start of the
 * program to the end of the first call.  --out writes the first output.  exported.py makes the
 * files, runs this program, and compares it with ONNX Runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { MOST_INPUTS = 4, MOST_CALLS = 1 << 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- ResNet-18 (He et al. 2015), whose norms are parts of the convolutions ------------------- */

static wb_layer *conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, wb_function f)
{
    return wb_Conv(in, out, {kernel, kernel}, f, .stride = {stride, stride},
                   .pad = {kernel / 2, kernel / 2});
}

static wb_layer *residual(int64_t in, int64_t out, int64_t stride)
{
    wb_layer *inner = wb_Chain(conv(in, out, 3, stride, wb_relu), conv(out, out, 3, 1, NULL));
    wb_layer *sum = in == out ? wb_SkipConnection(inner, wb_add)
                              : wb_Parallel(wb_add, inner, conv(in, out, 1, stride, NULL));
    return wb_Chain(sum, wb_relu);
}

static wb_layer *resnet18(void)
{
    static const int64_t widths[] = {64, 64, 128, 256, 512};
    wb_layer *layers[12] = {conv(3, 64, 7, 2, wb_relu),
                            wb_MaxPool({3, 3}, .stride = {2, 2}, .pad = {1, 1})};
    for (int i = 0; i < 4; i++) {
        layers[2 + 2 * i] = residual(widths[i], widths[i + 1], i ? 2 : 1);
        layers[3 + 2 * i] = residual(widths[i + 1], widths[i + 1], 1);
    }
    layers[10] = wb_Chain(wb_GlobalMeanPool(), wb_Flatten());
    layers[11] = wb_Dense(512, 1000);
    return wb_Chain_array(12, layers);
}

/* ---- an encoder of the sizes of all-MiniLM-L6-v2 (Wang et al. 2020) -------------------------- */

enum { WORDS = 30522, PLACES = 512, WIDTH = 384, HEADS = 12, BLOCKS = 6 };

/* Each part takes and gives the states and the mask. */
typedef struct { wb_layer *attention, *norm, *perceptron, *last_norm; } block;
static int call_block(const block *b, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return -1;
    wb_tensor *x = in[0], *mask = out[1] = in[1];
    x = wb_call(b->norm, wb_add(x, wb_call(b->attention, x, x, x, mask)));
    out[0] = wb_call(b->last_norm, wb_add(x, wb_call(b->perceptron, x)));
    return 2;
}
WB_LAYER(block, call_block, attention, norm, perceptron, last_norm)

typedef struct { wb_layer *words, *places, *norm; } embed;
static int call_embed(const embed *e, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return -1;
    wb_tensor *places = wb_call(e->places, wb_positions(wb_dim(in[0], 1)));
    out[0] = wb_call(e->norm, wb_add(wb_call(e->words, in[0]), places));
    out[1] = wb_unsqueeze(wb_unsqueeze(wb_ne(in[1], wb_scalar_int(0)), 1), 1);
    return 2;
}
WB_LAYER(embed, call_embed, words, places, norm)

static wb_layer *new_block(void)
{
    wb_layer *perceptron = wb_Chain(wb_Dense(WIDTH, 4 * WIDTH, wb_gelu_erf),
                                    wb_Dense(4 * WIDTH, WIDTH));
    return wb_layer_of(block, .attention = wb_MultiHeadAttention(WIDTH, HEADS, .bias = true),
                       .norm = wb_LayerNorm({WIDTH}), .perceptron = perceptron,
                       .last_norm = wb_LayerNorm({WIDTH}));
}

static wb_layer *encoder(void)
{
    wb_layer *layers[BLOCKS + 1] = {
        wb_layer_of(embed, .words = wb_Embedding(WORDS, WIDTH),
                    .places = wb_Embedding(PLACES, WIDTH), .norm = wb_LayerNorm({WIDTH}))};
    for (int i = 0; i < BLOCKS; i++) layers[i + 1] = new_block();
    return wb_Chain_array(BLOCKS + 1, layers);
}

/* ---- timing ---------------------------------------------------------------------------------- */

typedef struct { wb_layer *model; int n_in, n_out; } caller;

static int call_model(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    const caller *c = ctx;
    return wb_call_outputs(c->model, c->n_in, inputs, c->n_out, outputs) ? -1 : 1;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

typedef struct {
    const char *model, *inputs[MOST_INPUTS], *out;
    int n, threads;
    double seconds;
} wishes;

static bool read_wishes(int argc, char **argv, wishes *w)
{
    for (int i = 1; i < argc; i++) {
        const bool option = !strncmp(argv[i], "--", 2);
        if (option && i + 1 == argc) return false;
        if (!strcmp(argv[i], "--threads")) w->threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds")) w->seconds = atof(argv[++i]);
        else if (!strcmp(argv[i], "--out")) w->out = argv[++i];
        else if (option || w->n == MOST_INPUTS) return false;
        else if (!w->model) w->model = argv[i];
        else w->inputs[w->n++] = argv[i];
    }
    return w->n > 0;
}

/* Calls until the time is over, and prints the row. */
static int measure(wb_compiled *c, int n, wb_tensor *const *in, const wishes *w, double first)
{
    static double times[MOST_CALLS];
    int calls = 0;
    for (const double end = now() + w->seconds; calls < MOST_CALLS && (calls < 5 || now() < end);) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *y;
        const double begin = now();
        if (wb_call_compiled(c, n, in, 1, &y) || wb_eval(y)) return complain();
        times[calls++] = now() - begin;
        if (wb_scope_close(scope)) return complain();
    }
    qsort(times, (size_t)calls, sizeof *times, ascending);
    printf("{\"us\": %.2f, \"us_p10\": %.2f, \"first_ms\": %.1f, \"calls\": %d}\n",
           1e6 * times[calls / 2], 1e6 * times[calls / 10], 1e3 * first, calls);
    return 0;
}

int main(int argc, char **argv)
{
    const double begin = now();
    wishes w = {.threads = 1, .seconds = 2};
    if (!read_wishes(argc, argv, &w))
        return fprintf(stderr, "usage: onnx_bench MODEL INPUT.npy... [--threads N] [--seconds N] "
                       "[--out Y.npy]\n"), 2;
    const bool own = !strcmp(w.model, "encoder");
    wb_set_threads(w.threads);
    caller c = {!strcmp(w.model, "resnet18") ? resnet18() : own ? encoder() : wb_load(w.model),
                w.n, own ? 2 : 1};
    if (!c.model) return complain();
    wb_tensor *in[MOST_INPUTS], *y;
    for (int i = 0; i < w.n; i++)
        if (!(in[i] = wb_load_npy(w.inputs[i]))) return complain();
    wb_testmode(c.model);
    wb_compiled *compiled = wb_compile(call_model, &c);
    if (wb_call_compiled(compiled, w.n, in, 1, &y) || wb_eval(y)) return complain();
    const double first = now() - begin;
    if (w.out && wb_save_npy(w.out, y)) return complain();
    return measure(compiled, w.n, in, &w, first);
}
