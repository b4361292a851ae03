/* The benchmark's models, built from public layers, and the table of its workloads. */
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small models ---------------------------------------------------------------------------- */

static wb_layer *small_mlp(void) { return wb_Chain(wb_Dense(2, 3, wb_tanh), wb_Dense(3, 2)); }
static wb_layer *mlp(void) { return wb_Chain(wb_Dense(784, 256, wb_relu), wb_Dense(256, 10)); }

static wb_layer *lenet(void)
{
    return wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2, 2}),
                    wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
                    wb_Dense(256, 120, wb_relu), wb_Dense(120, 84, wb_relu), wb_Dense(84, 10));
}

static wb_layer *vgg(void)
{
    return wb_Chain(wb_Conv(3, 32, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(32, 32, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Conv(32, 64, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(64, 64, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Conv(64, 128, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(128, 128, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Flatten(), wb_Dense(2048, 256, wb_relu), wb_Dense(256, 10));
}

/* One bias; PyTorch has two, which are only ever added. */
static wb_layer *lstm(void) { return wb_Chain(wb_LSTM(64, 128, .last = true), wb_Dense(128, 10)); }

/* ---- residual networks ----------------------------------------------------------------------- */

/* Every other pixel, and zeros for the additional channels: the shortcut without parameters. */
static wb_tensor *halve(wb_tensor *x)
{
    if (!x) return NULL;
    int64_t n = wb_dim(x, 0), c = wb_dim(x, 1), h = wb_dim(x, 2) / 2, w = wb_dim(x, 3) / 2;
    wb_tensor *y = wb_slice(wb_slice(wb_reshape(x, n, c, h, 2, w, 2), 3, 0, 1), 5, 0, 1);
    return wb_pad(wb_reshape(y, n, c, h, w), 1, c / 2, c / 2);
}

static wb_layer *residual(int64_t in, int64_t out, int64_t stride)
{
    wb_layer *way =
        wb_Chain(wb_Conv(in, out, {3, 3}, .stride = {stride, stride}, .pad = {1}, .bias = false),
                 wb_BatchNorm(out, wb_relu), wb_Conv(out, out, {3, 3}, .pad = {1}, .bias = false),
                 wb_BatchNorm(out));
    wb_layer *shortcut =
        stride == 1 ? wb_layer_from_function(wb_identity) : wb_function_layer("halve", halve);
    return wb_Chain(wb_Parallel(wb_add, way, shortcut), wb_relu);
}

static wb_layer *resnet20(void)
{
    wb_layer *layers[16];
    int n = 0;
    layers[n++] = wb_Conv(3, 16, {3, 3}, .pad = {1}, .bias = false);
    layers[n++] = wb_BatchNorm(16, wb_relu);
    for (int64_t stage = 0, in = 16; stage < 3; stage++)
        for (int block = 0; block < 3; block++) {
            int64_t out = 16 << stage;
            layers[n++] = residual(in, out, in == out ? 1 : 2);
            in = out;
        }
    layers[n++] = wb_GlobalMeanPool();
    layers[n++] = wb_Flatten();
    layers[n++] = wb_Dense(64, 10);
    return wb_Chain_array(n, layers);
}

/* 1x1 down to `width` channels, 3x3, 1x1 up to 4 * width channels; if the shapes differ, a 1x1
 * shortcut. */
static wb_layer *bottleneck(int64_t in, int64_t width, int64_t stride)
{
    int64_t out = 4 * width;
    wb_layer *way = wb_Chain(
        wb_Conv(in, width, {1, 1}, .bias = false), wb_BatchNorm(width, wb_relu),
        wb_Conv(width, width, {3, 3}, .stride = {stride, stride}, .pad = {1}, .bias = false),
        wb_BatchNorm(width, wb_relu), wb_Conv(width, out, {1, 1}, .bias = false),
        wb_BatchNorm(out));
    wb_layer *shortcut =
        in == out ? wb_layer_from_function(wb_identity)
                  : wb_Chain(wb_Conv(in, out, {1, 1}, .stride = {stride, stride}, .bias = false),
                             wb_BatchNorm(out));
    return wb_Chain(wb_Parallel(wb_add, way, shortcut), wb_relu);
}

static wb_layer *resnet50(void)
{
    static const int blocks[4] = {3, 4, 6, 3};
    wb_layer *layers[22];
    int n = 0;
    layers[n++] = wb_Conv(3, 64, {7, 7}, .stride = {2, 2}, .pad = {3}, .bias = false);
    layers[n++] = wb_BatchNorm(64, wb_relu);
    layers[n++] = wb_MaxPool({3, 3}, .stride = {2, 2}, .pad = {1});
    int64_t in = 64;
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < blocks[stage]; block++) {
            int64_t width = 64 << stage;
            layers[n++] = bottleneck(in, width, stage && !block ? 2 : 1);
            in = 4 * width;
        }
    layers[n++] = wb_GlobalMeanPool();
    layers[n++] = wb_Flatten();
    layers[n++] = wb_Dense(2048, 1000);
    return wb_Chain_array(n, layers);
}

/* ---- transformers ---------------------------------------------------------------------------- */

static wb_tensor *small_normal(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_mul(wb_randn_array(dtype, ndim, dims), wb_scalar(0.02));
}
static wb_tensor *positions(wb_tensor *x) { return x ? wb_arange(wb_dim(x, -1), WB_I32) : NULL; }

static wb_layer *transformer_block(int64_t width, int64_t heads)
{
    wb_layer *attend =
        wb_Chain(wb_LayerNorm({width}),
                 wb_MultiHeadAttention(width, heads, .causal = true, .bias = true));
    wb_layer *think = wb_Chain(wb_LayerNorm({width}), wb_Dense(width, 4 * width, wb_gelu),
                               wb_Dense(4 * width, width));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(think, wb_add));
}

/* `words`: rows of the embedding table; `length`: of the longest sequence. */
static wb_layer *transformer(int blocks, int64_t heads, int64_t width, int64_t length,
                             int64_t words)
{
    wb_layer *layers[16];
    char head[32];
    int n = 0;
    wb_layer *places = wb_Chain(wb_function_layer("positions", positions),
                                wb_Embedding(length, width, .init = small_normal));
    layers[n++] = wb_Parallel(wb_add, wb_Embedding(words, width, .init = small_normal), places);
    for (int i = 0; i < blocks; i++) layers[n++] = transformer_block(width, heads);
    layers[n++] = wb_LayerNorm({width});
    snprintf(head, sizeof head, "layers.%d.weight", n);
    layers[n++] = wb_Dense(width, words, .bias = false);
    wb_layer *model = wb_Chain_array(n, layers);
    return model && wb_tie(model, head, "layers.0.layers.0.weight") ? NULL : model;
}

static wb_layer *gpt(void) { return transformer(4, 4, 128, 128, 65); }
static wb_layer *gpt2(void) { return transformer(12, 12, 768, 1024, 50304); }

/* ---- the table ------------------------------------------------------------------------------- */

static wb_rule *adam_fast(void) { return wb_Adam(.eta = 1e-2); }
static wb_rule *adam(void) { return wb_Adam(.eta = 1e-3); }
static wb_rule *adamw(void) { return wb_AdamW(.eta = 3e-4, .lambda = 0.01); }
static wb_rule *momentum(void) { return wb_Momentum(.eta = 0.01, .rho = 0.9); }

static const workload workloads[] = {
    {"W1", small_mlp, adam_fast, 2, {64, 2}, 2, 2, false, 8},
    {"W2", mlp, adam, 2, {64, 784}, 10, 10, false, 8},
    {"W3", lenet, adam, 4, {64, 1, 28, 28}, 10, 10, false, 8},
    {"W4a", vgg, momentum, 4, {32, 3, 32, 32}, 10, 10, false, 8},
    {"W4b", resnet20, momentum, 4, {32, 3, 32, 32}, 10, 10, false, 8},
    {"W5", gpt, adamw, 2, {8, 128}, 65, 65, true, 8},
    {"W6", lstm, adam, 3, {32, 50, 64}, 10, 10, false, 8},
    {"W7a", mlp, NULL, 2, {1, 784}, 10, 10, false, 8},
    {"W7b", lenet, NULL, 4, {1, 1, 28, 28}, 10, 10, false, 8},
    {"G1", gpt2, adamw, 2, {16, 1024}, 50257, 50304, true, 8},
    {"G2", resnet50, momentum, 4, {128, 3, 224, 224}, 1000, 1000, false, 2},
};

const workload *workload_named(const char *name)
{
    for (size_t k = 0; k < sizeof workloads / sizeof *workloads; k++)
        if (!strcmp(name, workloads[k].name)) return &workloads[k];
    return NULL;
}

/* ---- batches --------------------------------------------------------------------------------- */

static wb_tensor *classes_of(int64_t n, int64_t classes)
{
    static uint64_t state = 1;
    int32_t *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; y && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        y[i] = (int32_t)((state >> 33) % (uint64_t)classes);
    }
    wb_tensor *t = y ? wb_from(y, WB_I32, 1, &n) : NULL;
    free(y);
    return t;
}

/* 1 if exactly one of the two coordinates is positive, else 0. */
static wb_tensor *exclusive_or(wb_tensor *points)
{
    int64_t n = wb_dim(points, 0);
    const float *x = wb_data(points);
    int32_t *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; x && y && i < n; i++) y[i] = (x[2 * i] > 0) != (x[2 * i + 1] > 0);
    wb_tensor *t = x && y ? wb_from(y, WB_I32, 1, &n) : NULL;
    free(y);
    return t;
}

wb_batch workload_batch(const workload *w)
{
    wb_batch b = {.n = w->dims[0]};
    if (w->tokens) {
        int64_t n = w->dims[0] * w->dims[1];
        b.x = wb_reshape_array(classes_of(n, w->classes), w->ndim, w->dims);
        b.y = classes_of(n, w->classes);
    } else {
        b.x = wb_randn_array(WB_F32, w->ndim, w->dims);
        b.y = classes_of(w->dims[0], w->classes);
        if (w->dims[1] == 2) b.y = exclusive_or(b.x);
    }
    if (!b.x || !b.y || wb_eval(b.x, b.y)) b.x = NULL;
    return b;
}

wb_tensor *workload_loss(wb_layer *model, wb_batch batch, void *ctx)
{
    const workload *w = ctx;
    wb_tensor *scores = wb_call(model, batch.x);
    if (w->tokens) scores = wb_reshape(scores, -1, w->scores);
    wb_tensor *wanted = wb_onehotbatch(batch.y, w->scores);
    if (wb_dtype_of(scores) == WB_F64) wanted = wb_astype(wanted, WB_F64);
    return wb_logitcrossentropy(scores, wanted);
}
