/* Generates tokens with a GPT and a cache of keys and values, one at a time, always the most likely
 * one:
 *
 *   generate_bench WEIGHTS.safetensors [--model small|gpt2] [--tokens N] [--batch N] [--repeats N]
 *                  [--dtype f32|bf16|int8] [--threads N] [--hub 1]
 *
 * small is a GPT of characters; gpt2 has the sizes of GPT-2 124M and a tied head.  With --hub 1,
 * WEIGHTS is a folder of a model hub, with the sizes of --model.  Prints a line of
 * JSON: the seconds of each repeat, the memory's bandwidth before each (the reading of a buffer
 * larger than the caches, with as many threads), and the tokens of the last one.  generate.py
 * writes the weights, runs this program and compares it with PyTorch and llama.cpp. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { MOST_BLOCKS = 12, MOST_THREADS = 256, BUFFER = 1 << 29 };

typedef struct {
    const char *name;
    int64_t classes, length, width, heads;
    int blocks;
    bool tied;                      /* the head is the table of the tokens */
} sizes;

static const sizes all_sizes[] = {
    {"small", 65, 256, 128, 4, 4, false},
    {"gpt2", 50257, 1024, 768, 12, 12, true},
};

static wb_tensor *positions(wb_tensor *x) { return x ? wb_positions(wb_dim(x, -1)) : NULL; }

static wb_layer *block(const sizes *s)
{
    const int64_t width = s->width;
    wb_layer *attention = wb_MultiHeadAttention(width, s->heads, .causal = true, .bias = true);
    wb_layer *attend = wb_Chain(wb_LayerNorm({width}), attention);
    wb_layer *perceptron = wb_Chain(wb_LayerNorm({width}), wb_Dense(width, 4 * width, wb_gelu),
                                    wb_Dense(4 * width, width));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(perceptron, wb_add));
}

static wb_layer *gpt(const sizes *s)
{
    char head[32];
    wb_layer *places = wb_Chain(wb_function_layer("positions", positions),
                                wb_Embedding(s->length, s->width));
    wb_layer *layers[MOST_BLOCKS + 3] = {
        wb_Parallel(wb_add, wb_Embedding(s->classes, s->width), places)};
    for (int i = 0; i < s->blocks; i++) layers[i + 1] = block(s);
    layers[s->blocks + 1] = wb_LayerNorm({s->width});
    layers[s->blocks + 2] = wb_Dense(s->width, s->classes, .bias = false);
    wb_layer *model = wb_Chain_array(s->blocks + 3, layers);
    snprintf(head, sizeof head, "layers.%d.weight", s->blocks + 2);
    if (!model || (s->tied && wb_tie(model, head, "layers.0.layers.0.weight"))) return NULL;
    return model;
}

typedef struct { wb_layer *model; wb_tree *cache; } writer;

static int next(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    writer *w = ctx;
    wb_tensor *y = wb_call_cached(w->model, w->cache, inputs[0]);
    outputs[0] = y ? wb_astype(wb_argmax(y, -1), WB_I32) : NULL;
    return outputs[0] ? 1 : -1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A part of the buffer, and the sum of its words, so that the compiler keeps the reading. */
typedef struct { const uint64_t *words; size_t n; uint64_t sum; } part;

static void *add_words(void *of)
{
    part *p = of;
    uint64_t s[8] = {0};
    for (size_t i = 0; i < p->n; i += 8)
        for (size_t k = 0; k < 8; k++) s[k] += p->words[i + k];
    for (int k = 0; k < 8; k++) p->sum += s[k];
    return NULL;
}

/* Bytes per second of the fastest of three readings of the buffer; 0 on failure. */
static double bandwidth(const uint64_t *buffer, int threads)
{
    pthread_t ids[MOST_THREADS];
    part parts[MOST_THREADS];
    const size_t n = BUFFER / sizeof *buffer / (size_t)threads / 8 * 8;
    double best = 0;
    for (int r = 0; r < 3; r++) {
        int begun = 0;
        const double start = now();
        for (; begun < threads; begun++) {
            parts[begun] = (part){buffer + (size_t)begun * n, n, 0};
            if (pthread_create(&ids[begun], NULL, add_words, &parts[begun])) break;
        }
        for (int i = 0; i < begun; i++) pthread_join(ids[i], NULL);
        const double rate = (double)(n * sizeof *buffer) * threads / (now() - start);
        if (begun < threads) return 0;
        if (rate > best) best = rate;
    }
    return best;
}

/* Fills line [tokens + 1, batch] behind its first row. False on failure. */
static bool generate(wb_compiled *step, wb_tree *cache, int32_t *line, int64_t tokens,
                     int64_t batch)
{
    if (wb_assign(wb_get(cache, "position"), wb_full_array(0, WB_I32, 1, (int64_t[]){1})))
        return false;
    for (int64_t i = 0; i < tokens; i++, line += batch) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *x = wb_from(line, WB_I32, 2, (int64_t[]){batch, 1}), *y;
        if (wb_call_compiled(step, 1, &x, 1, &y) ||
            wb_copy_out(y, line + batch, (size_t)batch * sizeof *line) || wb_scope_close(scope))
            return false;
    }
    return true;
}

typedef struct {
    const sizes *sizes;
    int64_t tokens, batch, repeats;
    int threads;
    bool hub;
    const char *dtype;
} wishes;

static bool read_wishes(int argc, char **argv, wishes *w)
{
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        if (!strcmp(key, "--tokens")) w->tokens = atoll(value);
        else if (!strcmp(key, "--batch")) w->batch = atoll(value);
        else if (!strcmp(key, "--repeats")) w->repeats = atoll(value);
        else if (!strcmp(key, "--threads")) w->threads = atoi(value);
        else if (!strcmp(key, "--dtype")) w->dtype = value;
        else if (!strcmp(key, "--hub")) w->hub = atoi(value);
        else if (!strcmp(key, "--model")) w->sizes = &all_sizes[!strcmp(value, "gpt2")];
        else return false;
    }
    return argc >= 2 && w->tokens >= 1 && w->tokens <= w->sizes->length && w->batch >= 1 &&
           (!strcmp(w->dtype, "f32") || !strcmp(w->dtype, "bf16") || !strcmp(w->dtype, "int8")) &&
           w->repeats >= 1 && w->threads >= 1 && w->threads <= MOST_THREADS;
}

static int failed(void) { return fprintf(stderr, "generate_bench: %s\n", wb_error()), 1; }

static void print_numbers(const char *key, const double *values, int64_t n, int digits)
{
    printf("\"%s\": [", key);
    for (int64_t i = 0; i < n; i++) printf("%s%.*f", i ? ", " : "", digits, values[i]);
    printf("], ");
}

int main(int argc, char **argv)
{
    wishes w = {&all_sizes[0], 64, 1, 5, 1, false, "f32"};
    if (!read_wishes(argc, argv, &w))
        return fprintf(stderr, "generate_bench WEIGHTS [--model small|gpt2] [--tokens N] "
                               "[--batch N] [--repeats N] [--dtype f32|bf16|int8] "
                               "[--threads N] [--hub 1]\n"), 2;
    const int64_t all = (w.tokens + 1) * w.batch;
    int32_t *line = calloc((size_t)all, sizeof *line);
    double *figures = calloc(2 * (size_t)w.repeats, sizeof *figures), *rates = figures + w.repeats;
    uint64_t *buffer = malloc(BUFFER);
    if (!line || !figures || !buffer) return fprintf(stderr, "generate_bench: no memory\n"), 1;
    memset(buffer, 1, BUFFER);
    wb_set_threads(w.threads);
    writer own = {w.hub ? wb_load_pretrained(argv[1]) : gpt(w.sizes), NULL};
    if (!own.model || (!w.hub && wb_load_state(argv[1], own.model))) return failed();
    if (!strcmp(w.dtype, "bf16"))
        own.model = wb_to(own.model, wb_device_at("CPU", 0), .dtype = WB_BF16);
    if (!strcmp(w.dtype, "int8")) own.model = wb_quantize(own.model);
    if (!own.model) return failed();
    if (!(own.cache = wb_attention_cache(own.model, w.batch, w.sizes->length))) return failed();
    wb_compiled *step = wb_compile(next, &own);
    for (int64_t i = 0; i < w.batch; i++) line[i] = (int32_t)(i % w.sizes->classes);
    for (int64_t i = 0; i < w.repeats; i++) {
        rates[i] = bandwidth(buffer, w.threads);
        const double start = now();
        if (!generate(step, own.cache, line, w.tokens, w.batch)) return failed();
        figures[i] = now() - start;
    }
    printf("{");
    print_numbers("seconds", figures, w.repeats, 6);
    print_numbers("bytes_per_second", rates, w.repeats, 0);
    printf("\"tokens\": [");
    for (int64_t i = 0; i < all; i++) printf("%s%d", i ? ", " : "", (int)line[i]);
    printf("]}\n");
    free(line);
    free(figures);
    free(buffer);
    return 0;
}
