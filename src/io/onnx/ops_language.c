/* Operators of language models that ONNX has since opset 24: writes to a cache, convolutions and
 * attention with a state, SwiGLU. */
#include "io/onnx/ops_common.h"

#include <math.h>
#include <string.h>

/* ---- TensorScatter --------------------------------------------------------------------------- */

/* Returns the places along the axis at which the rows of a sequence are written, [N, rows]. */
static wb_tensor *written_places(wb__onnx_call *c, int64_t batch, int64_t rows, int64_t length,
                                 bool circular)
{
    wb_tensor *first = wb__onnx_in(c, 2), *at = wb_arange(rows, WB_I64);
    if (!first) first = wb_expand_array(wb__literal(0, WB_I64), 1, &batch);
    at = wb_add(wb_unsqueeze(wb__as(first, WB_I64), 1), at);
    wb_tensor *n = wb__literal((double)length, WB_I64);
    return circular ? wb_sub(at, wb_mul(wb_div(at, n), n)) : at;
}

/* Computes TensorScatter: past_cache with the rows of `update` along an axis, from the place of
 * each sequence on. */
bool wb__onnx_tensor_scatter(wb__onnx_call *c)
{
    wb_tensor *cache = c->in[0], *update = c->in[1], *first = wb__onnx_in(c, 2);
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), cache->ndim);
    if (axis < 0) return false;
    bool fits = axis > 0 && update->ndim == cache->ndim && cache->size &&
                (!first || (first->ndim == 1 && first->dims[0] == cache->dims[0]));
    for (int i = 0; i < cache->ndim && fits; i++)
        fits = i == axis ? update->dims[i] <= cache->dims[i] : update->dims[i] == cache->dims[i];
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its cache is %s, and the update along axis %d "
                               "%s", wb_describe(cache), axis, wb_describe(update));
    const int64_t batch = cache->dims[0], rows = update->dims[axis];
    wb_tensor *at = written_places(c, batch, rows, cache->dims[axis],
                                   wb__onnx_word_index(c, "mode"));
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < cache->ndim; i++) dims[i] = i == 0 ? batch : i == axis ? rows : 1;
    at = at ? wb_reshape_array(at, cache->ndim, dims) : NULL;
    const wb_scatter_options o = WB__OPTIONS(wb_scatter_options, .reduce = WB_SCATTER_SET);
    return wb__onnx_give(c, at ? wb_scatter_along_with(cache, at, update, axis, &o) : NULL);
}

/* ---- CausalConvWithState --------------------------------------------------------------------- */

/* Computes a convolution of each channel over time, x [N, C, L], that sees no later elements: in
 * front of x are the last k - 1 elements of the call before, or zeros. */
bool wb__onnx_causal_conv_with_state(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    wb_tensor *x = c->in[0], *w = c->in[1], *b = wb__onnx_in(c, 2), *state = wb__onnx_in(c, 3);
    if (x->ndim != 3 || w->ndim != 3 || w->dims[0] != x->dims[1] || w->dims[1] != 1 ||
        w->dims[2] < 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "x is %s, the weight %s", wb_describe(x),
                               wb_describe(w));
    const int64_t k = w->dims[2];
    x = state ? wb_concat(2, state, x) : wb_pad(x, 2, k - 1, 0);
    wb_conv_options o = WB__OPTIONS(wb_conv_options, .groups = w->dims[0]);
    wb_tensor *y = wb_conv_with(x, w, b ? b : WB_NONE, &o);
    if (y && wb__onnx_word_index(c, "activation"))
        y = wb__as(wb_swish(wb__wide(y)), (wb_dtype)y->dtype);
    if (y && wb__onnx_wants(c, 1)) {
        c->out[1] = wb_slice(x, 2, x->dims[2] - (k - 1), x->dims[2]);
        if (!c->out[1]) return false;
    }
    return wb__onnx_give(c, y);
}

/* ---- LinearAttention ------------------------------------------------------------------------- */

/* A LinearAttention.  With H heads of queries and G of keys, in f32: q [N, H, T, d], k [N, G, T,
 * d], v [N, G, T, e], decay [N, G, T, 1 or d], beta [N, 1 or G, T, 1]; the state is [N, G, d,
 * e]. */
typedef struct {
    wb_tensor *q, *k, *v, *decay, *beta, *state;
    int64_t steps, repeats;             /* time steps; heads of queries for each of keys */
    double scale;
} onnx_language_linear;

/* Returns x [N, T, heads n] as [N, heads, T, n] in the dtype of the computation. */
static wb_tensor *heads_of(wb_tensor *x, int64_t heads)
{
    const int64_t dims[4] = {x->dims[0], x->dims[1], heads, x->dims[2] / heads};
    x = wb_reshape_array(wb__wide(x), 4, dims);
    return x ? wb_permute_array(x, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

/* Sets *decays and *corrects to whether the update rule has a decay and a beta. */
static bool onnx_language_read_rule(const wb__onnx_call *c, bool *decays, bool *corrects)
{
    const int rule = wb__onnx_word_index(c, "update_rule");
    *decays = rule < 2;
    *corrects = rule != 1 && rule != 3;
    if (*decays == !!wb__onnx_in(c, 4) && *corrects == !!wb__onnx_in(c, 5)) return true;
    return wb__onnx_refuse(c, WB_ERROR_FORMAT, "update_rule \"%s%s\" %s decay and %s beta",
                           *decays ? "gated" : *corrects ? "delta" : "linear",
                           *decays && *corrects ? "_delta" : "", *decays ? "has" : "has no",
                           *corrects ? "has" : "has no");
}

static bool onnx_language_read_linear(const wb__onnx_call *c, onnx_language_linear *a)
{
    const int64_t heads = wb__onnx_int(c, "q_num_heads");
    const int64_t of_keys = wb__onnx_int(c, "kv_num_heads");
    const wb_tensor *q = c->in[0];
    bool decays, corrects, fits = heads >= 1 && of_keys >= 1 && heads % of_keys == 0;
    if (!onnx_language_read_rule(c, &decays, &corrects)) return false;
    for (int i = 0; i < 6 && fits; i++) {
        const wb_tensor *x = wb__onnx_in(c, i);
        if (i == 3 || !x) continue;
        fits = wb__dtype_float((wb_dtype)x->dtype) && x->ndim == 3 && x->dims[0] == q->dims[0] &&
               x->dims[1] == q->dims[1] && x->dims[1] >= 1 &&
               (x->dims[2] % (i ? of_keys : heads) == 0 || (i == 5 && x->dims[2] == 1));
    }
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "queries %s and keys %s with %lld and %lld heads",
                               wb_describe(q), wb_describe(c->in[1]), (long long)heads,
                               (long long)of_keys);
    const int64_t beta = corrects ? WB__MIN(c->in[5]->dims[2], of_keys) : 0;
    *a = (onnx_language_linear){heads_of(c->in[0], heads), heads_of(c->in[1], of_keys),
                                heads_of(c->in[2], of_keys), decays ? heads_of(c->in[4],
                                                                               of_keys) : NULL,
                                corrects ? heads_of(c->in[5], beta) : NULL, wb__onnx_in(c, 3),
                                q->dims[1], heads / of_keys, wb__onnx_real(c, "scale")};
    if (!a->q || !a->k || !a->v || (decays && !a->decay) || (corrects && !a->beta)) return false;
    if (a->scale == 0) a->scale = 1 / sqrt((double)a->q->dims[3]);
    const int64_t dims[4] = {q->dims[0], of_keys, a->k->dims[3], a->v->dims[3]};
    a->state = a->state ? wb__wide(a->state)
                        : wb_expand_array(wb__literal(0, (wb_dtype)a->q->dtype), 4, dims);
    return a->state;
}

/* Returns step t of x [N, heads, T, n], as [N, heads, 1, n]. */
static wb_tensor *onnx_language_at_step(wb_tensor *x, int64_t t) { return wb_slice(x, 2, t,
                                                                                   t + 1); }

/* Returns q S times the scale, [N, H, 1, e], after a step, S = exp(decay) S + kᵀ v.  With beta, v
 * is beta (v - k S) first. */
static wb_tensor *linear_step(onnx_language_linear *a, int64_t t)
{
    wb_tensor *k = onnx_language_at_step(a->k, t), *v = onnx_language_at_step(a->v, t),
              *s = a->state;
    if (a->decay) s = wb_mul(s, wb_exp(wb_transpose(onnx_language_at_step(a->decay, t))));
    if (a->beta) v = wb_mul(onnx_language_at_step(a->beta, t), wb_sub(v, wb_matmul(k, s)));
    a->state = s = wb_add(s, wb_mul(wb_transpose(k), v));
    if (a->repeats > 1) s = wb_repeat(s, 1, a->repeats);
    return wb_mul(wb_matmul(onnx_language_at_step(a->q, t), s), wb__number_of(a->scale));
}

/* Computes LinearAttention.  chunk_size has no effect on the result. */
bool wb__onnx_linear_attention(wb__onnx_call *c)
{
    onnx_language_linear a = {.steps = 0};
    if (!onnx_language_read_linear(c, &a)) return false;
    const wb_tensor *q = c->in[0], *past = wb__onnx_in(c, 3);
    wb_tensor **rows = wb__alloc((size_t)a.steps * sizeof *rows), *y = NULL;
    bool ok = rows != NULL;
    for (int64_t t = 0; ok && t < a.steps; t++) ok = (rows[t] = linear_step(&a, t)) != NULL;
    if (ok) y = wb_concat_array(2, (int)a.steps, rows);
    wb__free(rows);
    if (!y) return false;
    const int64_t dims[3] = {q->dims[0], a.steps, y->dims[1] * y->dims[3]};
    y = wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3});
    y = y ? wb_reshape_array(y, 3, dims) : NULL;
    if (wb__onnx_wants(c, 1) &&
        !(c->out[1] = wb__as(a.state, (wb_dtype)(past ? past : q)->dtype)))
        return false;
    return wb__onnx_give(c, wb__as(y, (wb_dtype)q->dtype));
}

/* ---- SwiGLU ---------------------------------------------------------------------------------- */

/* Computes SwiGLU: a sigmoid(alpha a) b. */
bool wb__onnx_swiglu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0) || !wb__onnx_alike(c, 1)) return false;
    wb_tensor *a = c->in[0], *b = c->in[1], *wide = wb__wide(a);
    if (!wb__same_dims(a, b))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its inputs are %s and %s", wb_describe(a),
                               wb_describe(b));
    wb_tensor *gate = wb_sigmoid(wb_mul(wide, wb__number_of(wb__onnx_real(c, "alpha"))));
    wb_tensor *y = wb_mul(wb_mul(wide, gate), wb__wide(b));
    return wb__onnx_give(c, wb__as(y, (wb_dtype)a->dtype));
}
