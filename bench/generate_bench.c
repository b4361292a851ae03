/* Generates characters with a small GPT and a cache of keys and values, one at a time, always the
 * most likely one:
 *
 *   generate_bench WEIGHTS.safetensors [--tokens N] [--batch N] [--repeats N]
 *
 * Prints a line of JSON: the seconds of each repeat, and the characters of the last one.
 * generate.py writes the weights, runs this program and compares it with PyTorch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { CLASSES = 65, LENGTH = 256, WIDTH = 128, HEADS = 4, BLOCKS = 4 };

static wb_tensor *positions(wb_tensor *x) { return x ? wb_positions(wb_dim(x, -1)) : NULL; }

static wb_layer *block(void)
{
    wb_layer *attention = wb_MultiHeadAttention(WIDTH, HEADS, .causal = true, .bias = true);
    wb_layer *attend = wb_Chain(wb_LayerNorm({WIDTH}), attention);
    wb_layer *perceptron = wb_Chain(wb_LayerNorm({WIDTH}), wb_Dense(WIDTH, 4 * WIDTH, wb_gelu),
                                    wb_Dense(4 * WIDTH, WIDTH));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(perceptron, wb_add));
}

static wb_layer *gpt(void)
{
    wb_layer *places = wb_Chain(wb_function_layer("positions", positions),
                                wb_Embedding(LENGTH, WIDTH));
    wb_layer *layers[BLOCKS + 3] = {wb_Parallel(wb_add, wb_Embedding(CLASSES, WIDTH), places)};
    for (int i = 0; i < BLOCKS; i++) layers[i + 1] = block();
    layers[BLOCKS + 1] = wb_LayerNorm({WIDTH});
    layers[BLOCKS + 2] = wb_Dense(WIDTH, CLASSES, .no_bias = true);
    return wb_Chain_array(BLOCKS + 3, layers);
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

int main(int argc, char **argv)
{
    int64_t tokens = LENGTH, batch = 1, repeats = 5;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--tokens")) tokens = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--batch")) batch = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--repeats")) repeats = atoll(argv[i + 1]);
    }
    if (argc < 2 || tokens < 1 || tokens > LENGTH || batch < 1 || repeats < 1)
        return fprintf(stderr, "generate_bench WEIGHTS [--tokens N] [--batch N] "
                               "[--repeats N]\n"), 2;
    int32_t *line = calloc((size_t)((tokens + 1) * batch), sizeof *line);
    writer w = {gpt(), NULL};
    if (!line || wb_load_state(argv[1], w.model) ||
        !(w.cache = wb_attention_cache(w.model, batch, LENGTH)))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    wb_compiled *step = wb_compile(next, &w);
    for (int64_t i = 0; i < batch; i++) line[i] = (int32_t)(i % CLASSES);
    printf("{\"seconds\": [");
    for (int64_t i = 0; i < repeats; i++) {
        const double start = now();
        if (!generate(step, w.cache, line, tokens, batch))
            return fprintf(stderr, "%s\n", wb_error()), 1;
        printf("%s%.6f", i ? ", " : "", now() - start);
    }
    printf("], \"characters\": [");
    for (int64_t i = 0; i < (tokens + 1) * batch; i++) printf("%s%d", i ? ", " : "", (int)line[i]);
    printf("]}\n");
    free(line);
    return 0;
}
