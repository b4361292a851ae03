/* Step 14: text by a pretrained GPT-2.
 *
 *   14_text FOLDER [PROMPT] [--tokens N] [--temperature X] [--top-k N] [--top-p X] [--seed N]
 *
 * FOLDER is one of a model hub with a model of the architecture of GPT-2: config.json,
 * model.safetensors, and tokenizer.json or vocab.json and merges.txt. The program writes the
 * prompt's continuation as it is made, and then the tokens per second.
 *
 * Each token is drawn: the scores are divided by the temperature (0: the greatest is taken), and
 * of the --top-k greatest (0: of all) those are left that together have the probability --top-p.
 * The keys and values of earlier tokens are in a cache, whose position is data, so that one plan,
 * recorded by wb_compile, serves all positions: those of the prompt too.
 *
 * Tested with: {source}/../tests/data/pretrained/gpt2 The --tokens 12 --temperature 0
 * Prints:
 *   The-(xtxt(-((((--
 *   12 tokens, ... tokens per second */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

typedef struct {
    const char *folder, *prompt;
    double tokens, temperature, top_k, top_p, seed;
} settings;

typedef struct { wb_layer *model; wb_tree *cache; } writer;

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- choosing a token ------------------------------------------------------------------------ */

typedef struct { float score; int32_t id; } candidate;

static int greater_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Writes the k greatest of n scores to `best`, which has room for n, the greatest first. */
static void find_best(const float *scores, int64_t n, int64_t k, candidate *best)
{
    enum { FEW = 256 };
    int64_t found = 0;
    if (k > FEW) {
        for (int64_t i = 0; i < n; i++) best[i] = (candidate){scores[i], (int32_t)i};
        qsort(best, (size_t)n, sizeof *best, greater_first);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (found == k && !(scores[i] > best[k - 1].score)) continue;
        int64_t at = found < k ? found++ : k - 1;
        for (; at > 0 && scores[i] > best[at - 1].score; at--) best[at] = best[at - 1];
        best[at] = (candidate){scores[i], (int32_t)i};
    }
}

/* A number of [0, 1). (Steele et al. 2014) */
static double random_unit(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static int32_t choose(const settings *s, const float *scores, int64_t n, candidate *best,
                      uint64_t *state)
{
    int64_t k = s->temperature <= 0 ? 1 : s->top_k >= 1 && s->top_k < (double)n ? (int64_t)s->top_k
                                                                               : n;
    double all = 0, left = 0;
    find_best(scores, n, k, best);
    if (k == 1) return best[0].id;
    const double t = s->temperature, most = (double)best[0].score;
    for (int64_t i = 0; i < k; i++) all += exp(((double)best[i].score - most) / t);
    for (int64_t i = 0; i < k; i++) {
        left += exp(((double)best[i].score - most) / t);
        if (left >= s->top_p * all) k = i + 1;
    }
    double at = random_unit(state) * left;
    for (int64_t i = 0; i < k; i++)
        if ((at -= exp(((double)best[i].score - most) / t)) < 0) return best[i].id;
    return best[k - 1].id;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The scores [1, 1, vocabulary] behind one token [1, 1], which comes behind those in the cache. */
static int scores_behind(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    const writer *w = ctx;
    outputs[0] = wb_astype(wb_call_cached(w->model, w->cache, inputs[0]), WB_F32);
    return outputs[0] ? 1 : -1;
}

/* Copies the scores behind the token. False on failure. */
static bool read_token(wb_compiled *step, int32_t id, float *scores, int64_t n)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *y, *x = wb_from(&id, WB_I32, 2, (int64_t[]){1, 1});
    const bool good = !wb_call_compiled(step, 1, &x, 1, &y) &&
                      !wb_copy_out(y, scores, (size_t)n * sizeof *scores);
    return !wb_scope_close(scope) && good;
}

/* Writes the continuation; returns the number of tokens, -1 on failure. */
static int64_t write_on(const settings *s, wb_compiled *step, const wb_tokenizer *words,
                        const int32_t *prompt, int64_t n_prompt, int64_t room, int64_t classes)
{
    float *scores = malloc((size_t)classes * sizeof *scores);
    candidate *best = malloc((size_t)classes * sizeof *best);
    wb_decoder *decoder = wb_decoder_begin(words);
    const int64_t end = wb_token_id(words, "<|endoftext|>");
    uint64_t state = (uint64_t)s->seed;
    int64_t n = 0;
    bool good = scores && best && decoder;
    for (int64_t i = 0; good && i < n_prompt; i++) {
        good = read_token(step, prompt[i], scores, classes);
        const char *text = good ? wb_decoder_next(decoder, prompt[i]) : NULL;
        if (text) fputs(text, stdout);
        else good = false;
    }
    while (good && n < (int64_t)s->tokens && n_prompt + n < room) {
        const int32_t id = choose(s, scores, classes, best, &state);
        if (id == end) break;
        const char *text = wb_decoder_next(decoder, id);
        good = text != NULL;
        if (text) fputs(text, stdout);
        fflush(stdout);
        n++;
        if (good && n < (int64_t)s->tokens) good = read_token(step, id, scores, classes);
    }
    if (good) puts(wb_decoder_end(decoder));
    free(scores);
    free(best);
    return good ? n : -1;
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool read_settings(int argc, char **argv, settings *s)
{
    const struct { const char *name; double *value; } known[] = {
        {"--tokens", &s->tokens}, {"--temperature", &s->temperature}, {"--top-k", &s->top_k},
        {"--top-p", &s->top_p}, {"--seed", &s->seed},
    };
    enum { N = sizeof known / sizeof *known };
    for (int i = 1; i < argc; i++) {
        int k = 0;
        while (k < N && strcmp(argv[i], known[k].name)) k++;
        if (k < N && i + 1 < argc) *known[k].value = atof(argv[++i]);
        else if (k < N || !strncmp(argv[i], "--", 2)) return false;
        else if (!s->folder) s->folder = argv[i];
        else s->prompt = argv[i];
    }
    return s->folder && s->tokens >= 1 && s->temperature >= 0 && s->top_k >= 0 && s->top_p > 0 &&
           s->top_p <= 1 && s->seed >= 0;
}

int main(int argc, char **argv)
{
    settings s = {NULL, "The", 100, 0.8, 50, 0.95, 1};
    if (!read_settings(argc, argv, &s)) {
        fprintf(stderr, "14_text FOLDER [PROMPT] [--tokens N] [--temperature X] [--top-k N]\n"
                        "        [--top-p X, above 0 and at most 1] [--seed N]\n");
        return 2;
    }
    const wb_tokenizer *words = wb_load_tokenizer(s.folder);
    writer w = {wb_load_pretrained(s.folder), NULL};
    wb_tensor *prompt = wb_encode(words, s.prompt);
    if (!w.model || !prompt) return complain();
    const int64_t n_prompt = wb_size(prompt);
    const int64_t classes = wb_dim(wb_get(w.model, "layers.tokens.weight"), 0);
    int64_t room = wb_dim(wb_get(w.model, "layers.positions.weight"), 0);
    if (n_prompt < 1 || n_prompt >= room)
        return fprintf(stderr, "the prompt has %lld tokens; 1 to %lld are possible\n",
                       (long long)n_prompt, (long long)room - 1), 1;
    if ((double)room > (double)n_prompt + s.tokens) room = n_prompt + (int64_t)s.tokens;

    w.cache = wb_attention_cache(w.model, 1, room);
    wb_compiled *step = wb_compile(scores_behind, &w);
    const int32_t *ids = wb_data(prompt);
    if (!w.cache || !step || !ids) return complain();
    const double start = now();
    const int64_t n = write_on(&s, step, words, ids, n_prompt, room, classes);
    if (n < 0) return complain();
    printf("%lld tokens, %.1f tokens per second\n", (long long)n,
           (double)(n_prompt + n - 1) / (now() - start));
    wb_object_free(step);
    return 0;
}
