/* The models that written.c saves as files of ONNX: all layers, networks that people write, and
 * operations as layers of the program.  written_models.def has the rows:
 *
 * MODEL(name, inputs, what, layer): `inputs` has the dtype and the sizes of each input, of which N
 * is the batch: "N,4", "h:N,4" (f16; b: bf16, d: f64), "i9:N,5" (i64 below 9; u9: u8), "m:N,3"
 * (bool).  OPERATION(name, inputs, result): the result as an expression of x. */
#ifndef WRITTEN_MODELS_H
#define WRITTEN_MODELS_H

#include "test.h"

#include "weber.h"

#include "own_cell.h"

/* ---- layers of the program ------------------------------------------------------------------- */

/* Two inputs, two outputs, a parameter and a tensor that is not trained */
typedef struct { wb_tensor *gain, *offset; wb_layer *inner; double slope; } blend;
static int call_blend(const blend *b, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return wb_fail(WB_ERROR_ARGUMENT, "blend: takes two inputs, got %d", n), -1;
    out[0] = wb_add(wb_mul(wb_call(b->inner, in[0]), b->gain), wb_mul(in[1], b->slope));
    out[1] = wb_sub(wb_mean(in[1], .axes = {1}), wb_sum(b->offset));
    return 2;
}
WB_LAYER(blend, call_blend, gain, offset, inner, slope)

/* A causal decoder of two blocks, whose last product uses the embedding's weight again */
typedef struct { wb_layer *words, *places, *blocks; } decoder;
static wb_tensor *call_decoder(const decoder *d, wb_tensor *ids)
{
    wb_tensor *x = wb_add(wb_call(d->words, ids), wb_call(d->places, wb_positions(wb_dim(ids, 1))));
    return wb_linear(wb_call(d->blocks, x), wb_get(d->words, "weight"), WB_NONE);
}
WB_LAYER(decoder, call_decoder, words, places, blocks)

/* U-Net: the parts going up get the results of those going down */
typedef struct { wb_layer *down, *middle, *up, *join, *out; } unet;
static wb_tensor *call_unet(const unet *u, wb_tensor *x)
{
    wb_tensor *a = wb_call(u->down, x);
    wb_tensor *b = wb_call(u->up, wb_call(u->middle, wb_maxpool(a, .window = {2})));
    return wb_call(u->out, wb_call(u->join, wb_concat(1, a, b)));
}
WB_LAYER(unet, call_unet, down, middle, up, join, out)

#define OPERATION(name, inputs, ...) \
    static wb_tensor *op_##name(wb_tensor *x) { return __VA_ARGS__; }
#include "written_models.def"

/* ---- parts of networks ----------------------------------------------------------------------- */

static inline wb_layer *conv_norm(int64_t in, int64_t out, int64_t stride, wb_function f)
{
    return wb_Chain(wb_Conv(in, out, {3, 3}, .stride = {stride}, .pad = {1}, .bias = false),
                    wb_BatchNorm(out, f));
}

static inline wb_layer *residual(int64_t in, int64_t out, int64_t stride)
{
    wb_layer *inner = wb_Chain(conv_norm(in, out, stride, wb_relu), conv_norm(out, out, 1, NULL));
    if (in == out) return wb_Chain(wb_SkipConnection(inner, wb_add), wb_relu);
    wb_layer *side = wb_Chain(wb_Conv(in, out, {1, 1}, .stride = {stride}), wb_BatchNorm(out));
    return wb_Chain(wb_Parallel(wb_add, inner, side), wb_relu);
}

static inline wb_layer *block(int64_t n, bool causal)
{
    wb_layer *attention = wb_MultiHeadAttention(n, 4, .causal = causal, .bias = true,
                                                .dropout = 0.1);
    wb_layer *wide = wb_Chain(wb_LayerNorm({n}), wb_Dense(n, 2 * n, wb_gelu), wb_Dense(2 * n, n),
                              wb_Dropout(0.1));
    return wb_Chain(wb_SkipConnection(wb_Chain(wb_LayerNorm({n}), attention), wb_add),
                    wb_SkipConnection(wide, wb_add));
}

static inline wb_layer *new_unet(void)
{
    return wb_layer_of(unet, .down = conv_norm(2, 6, 1, wb_relu),
                       .middle = conv_norm(6, 8, 1, wb_leakyrelu),
                       .up = wb_Chain(wb_ConvTranspose(8, 6, {2, 2}, .stride = {2}), wb_relu),
                       .join = wb_Chain(wb_Conv(12, 6, {3, 3}, .same = true), wb_InstanceNorm(6),
                                        wb_Upsample(.scale = {2}, .mode = WB_UPSAMPLE_LINEAR)),
                       .out = wb_Conv(6, 2, {1, 1}, wb_sigmoid));
}

static inline wb_layer *new_decoder(void)
{
    return wb_layer_of(decoder, .words = wb_Embedding(30, 16), .places = wb_Embedding(12, 16),
                       .blocks = wb_Chain(block(16, true), block(16, true), wb_LayerNorm({16})));
}

/* A Chain in the dtype */
static inline wb_layer *in_dtype(wb_layer *l, wb_dtype dtype)
{
    return wb_to(l, wb_cpu_device(), .dtype = dtype);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define MODEL(name, inputs, what, ...) \
    static wb_layer *make_##name(void) { return __VA_ARGS__; }
#define OPERATION(name, inputs, ...) \
    static wb_layer *make_##name(void) { return wb_Chain(op_##name); }
#include "written_models.def"

static const struct {
    const char *name, *inputs, *what;
    wb_layer *(*make)(void);
} written_models[] = {
#define MODEL(name, inputs, what, ...) {#name, inputs, what, make_##name},
#define OPERATION(name, inputs, ...) {#name, inputs, "operations", make_##name},
#include "written_models.def"
};

#endif
