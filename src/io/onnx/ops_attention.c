/* Attention and RotaryEmbedding of ONNX.
 *
 * f16 and bf16 are computed in f32.
 * Attention is wb_attention if its mask is of bools and its scores are no result; else its steps.
 * Masks of bools (attn_mask, is_causal, windows, nonpad_kv_seqlen) are combined to one, `allowed`.
 * A query whose keys are all masked gives zeros. */
#include "io/onnx/ops_common.h"

#include <math.h>

/* An attention.  With H and G heads of queries and of keys: q [N, H, Tq, d], k [N, G, Tk, d], v [N,
 * G, Tk, e]. */
typedef struct {
    wb_tensor *q, *k, *v;
    wb_tensor *allowed, *bias;          /* masks of bools and of numbers; NULL: none */
    int64_t queries, keys, past;        /* past: keys before the queries */
    double scale, softcap;
    bool packed;                        /* inputs and result are [N, T, H d] */
} onnx_attn_inputs;

/* Returns x [N, T, heads d] as [N, heads, T, d]; x itself if it has four axes. */
static wb_tensor *onnx_attn_split_heads(const wb__onnx_call *c, wb_tensor *x, const char *name)
{
    const int64_t heads = wb__onnx_int(c, name);
    if (x->ndim == 4) return x;
    if (heads < 1 || x->dims[2] % heads) {
        wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s is %lld, of %s", name, (long long)heads,
                        wb_describe(x));
        return NULL;
    }
    const int64_t dims[4] = {x->dims[0], x->dims[1], heads, x->dims[2] / heads};
    wb_tensor *y = wb_reshape_array(x, 4, dims);
    return y ? wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

/* Returns x behind the tokens of a cache, input i, if there is one. */
static wb_tensor *onnx_attn_append_to_cache(const wb__onnx_call *c, int i, wb_tensor *x)
{
    wb_tensor *past = wb__onnx_in(c, i);
    return past && x ? wb_concat(2, past, x) : x;
}

static bool onnx_attn_read_inputs(wb__onnx_call *c, onnx_attn_inputs *a)
{
    const wb_tensor *q = c->in[0];
    *a = (onnx_attn_inputs){.packed = q->ndim == 3, .softcap = wb__onnx_real(c, "softcap")};
    for (int i = 0; i < 3; i++)
        if (!wb__onnx_floating(c, i) || c->in[i]->ndim != q->ndim || (q->ndim != 3 && q->ndim != 4))
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s", i, wb_describe(c->in[i]));
    if (!wb__onnx_in(c, 4) != !wb__onnx_in(c, 5))
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "past_key and past_value belong together");
    if (wb__onnx_in(c, 4) && wb__onnx_in(c, 6))
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "nonpad_kv_seqlen with past_key");
    a->q = onnx_attn_split_heads(c, c->in[0], "q_num_heads");
    a->k = onnx_attn_append_to_cache(c, 4, onnx_attn_split_heads(c, c->in[1], "kv_num_heads"));
    a->v = onnx_attn_append_to_cache(c, 5, onnx_attn_split_heads(c, c->in[2], "kv_num_heads"));
    if (!a->q || !a->k || !a->v) return false;
    if (wb__onnx_wants(c, 1)) c->out[1] = a->k;
    if (wb__onnx_wants(c, 2)) c->out[2] = a->v;
    a->q = wb__wide(a->q), a->k = wb__wide(a->k), a->v = wb__wide(a->v);
    if (!a->q || !a->k || !a->v) return false;
    a->queries = a->q->dims[2];
    a->keys = a->k->dims[2];
    a->past = wb__onnx_in(c, 4) ? wb_dim(c->in[4], 2) : 0;
    a->scale = wb__onnx_attribute(c, "scale") ? wb__onnx_real(c, "scale")
                                              : 1 / sqrt((double)a->q->dims[3]);
    const int64_t heads = a->q->dims[1], of_keys = a->k->dims[1];
    if (of_keys < 1 || heads % of_keys || a->v->dims[1] != of_keys || a->v->dims[2] != a->keys ||
        !(a->scale > 0))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "queries %s, keys %s, values %s, scale %g",
                               wb_describe(a->q), wb_describe(a->k), wb_describe(a->v), a->scale);
    if (heads != of_keys) {
        a->k = wb_repeat(a->k, 1, heads / of_keys);
        a->v = wb_repeat(a->v, 1, heads / of_keys);
    }
    return a->k && a->v;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static bool onnx_attn_add_mask(onnx_attn_inputs *a, wb_tensor *mask)
{
    a->allowed = a->allowed ? wb_and(a->allowed, mask) : mask;
    return a->allowed;
}

/* Returns the numbers of sequences, i64 [N], as [N, 1, 1, 1]. */
static wb_tensor *onnx_attn_lengths(const wb__onnx_call *c)
{
    wb_tensor *x = wb__as(c->in[6], WB_I64);
    return x ? wb_reshape_array(x, 4, (int64_t[]){x->size, 1, 1, 1}) : NULL;
}

/* Returns how many positions each key is behind its query, [Tq, Tk] or [N, 1, Tq, Tk]: negative for
 * keys after it. */
static wb_tensor *onnx_attn_distances(const wb__onnx_call *c, const onnx_attn_inputs *a)
{
    wb_tensor *query = wb_unsqueeze(wb_arange(a->queries, WB_I64), 1);
    if (wb__onnx_in(c, 6))
        query = wb_add(query,
                       wb_sub(onnx_attn_lengths(c), wb__literal((double)a->queries, WB_I64)));
    else if (a->past)
        query = wb_add(query, wb__literal((double)a->past, WB_I64));
    return wb_sub(query, wb_arange(a->keys, WB_I64));
}

static bool onnx_attn_read_places(const wb__onnx_call *c, onnx_attn_inputs *a)
{
    const int64_t left = wb__onnx_int(c, "left_window_size");
    const int64_t right = wb__onnx_int(c, "right_window_size");
    const bool causal = wb__onnx_int(c, "is_causal");
    wb_tensor *zero = wb__literal(0, WB_I64);
    if (left < -1 || right < -1 || left > INT32_MAX || right > INT32_MAX)
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "windows of %lld and %lld", (long long)left,
                               (long long)right);
    if (causal && !a->past && !wb__onnx_in(c, 6)) {
        if (!onnx_attn_add_mask(a, wb_causal_mask(a->queries, a->keys))) return false;
    } else if (causal && !onnx_attn_add_mask(a, wb_ge(onnx_attn_distances(c, a), zero))) {
        return false;
    }
    if (left >= 0 &&
        !onnx_attn_add_mask(a, wb_le(onnx_attn_distances(c, a), wb__literal((double)left, WB_I64))))
        return false;
    if (right >= 0 &&
        !onnx_attn_add_mask(a,
                            wb_ge(onnx_attn_distances(c, a), wb__literal(-(double)right, WB_I64))))
        return false;
    return !wb__onnx_in(c, 6) ||
           onnx_attn_add_mask(a, wb_lt(wb_arange(a->keys, WB_I64), onnx_attn_lengths(c)));
}

/* Adds the mask of the node to `allowed` or `bias`.  The mask may have fewer keys: the others are
 * masked. */
static bool onnx_attn_read_mask(const wb__onnx_call *c, onnx_attn_inputs *a)
{
    wb_tensor *mask = wb__onnx_in(c, 3);
    if (!mask) return true;
    const bool is_bool = mask->dtype == WB_BOOL;
    const int64_t more = mask->ndim ? a->keys - mask->dims[mask->ndim - 1] : 0;
    if (mask->ndim < 1 || mask->ndim > 4 || more < 0)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its mask is %s, for %lld keys",
                               wb_describe(mask), (long long)a->keys);
    const wb_pad_options o = WB__OPTIONS(wb_pad_options, .value = is_bool ? 0 : -INFINITY);
    if (more) mask = wb_pad_with(mask, mask->ndim - 1, 0, more, &o);
    if (!mask) return false;
    if (is_bool) return onnx_attn_add_mask(a, mask);
    a->bias = wb__as(mask, (wb_dtype)a->q->dtype);
    return a->bias;
}

/* Returns x with -inf where a key is masked. */
static wb_tensor *onnx_attn_mask_scores(const onnx_attn_inputs *a, wb_tensor *x)
{
    if (a->bias) x = wb_add(x, a->bias);
    return a->allowed ? wb_where(a->allowed, x, wb__number_of(-INFINITY)) : x;
}

/* Returns the weights of keys for scores with masks: 0 for a query without keys. */
static wb_tensor *onnx_attn_weights(const wb__onnx_call *c, const onnx_attn_inputs *a,
                                    wb_tensor *scores)
{
    const wb_dtype t = (wb_dtype)a->q->dtype;
    const wb__onnx_type type = (wb__onnx_type)wb__onnx_int(c, "softmax_precision");
    const wb_dtype given = type ? wb__onnx_dtype(type) : t;
    const wb_dtype precision = wb__computed_in(given);
    if (!given || !wb__dtype_float(given)) {
        wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "softmax_precision is %s",
                        wb__onnx_type_name(type));
        return NULL;
    }
    wb_tensor *y = wb__as(scores, precision), *zero = wb__literal(0, precision);
    y = y ? wb_softmax(y) : NULL;
    if (y && (a->bias || a->allowed)) {
        wb_tensor *mask = onnx_attn_mask_scores(a, wb__literal(0, t));
        mask = mask ? wb__reduce(WB__OP_max, mask, 1u << (mask->ndim - 1), true) : NULL;
        y = wb_where(wb_eq(mask, wb__number_of(-INFINITY)), zero, y);
    }
    return wb__as(y, t);
}

/* Returns the result of separate steps, and computes output 3 if the node has it: the scores, or
 * the weights. */
static wb_tensor *onnx_attn_by_steps(wb__onnx_call *c, const onnx_attn_inputs *a)
{
    const int64_t mode = wb__onnx_int(c, "qk_matmul_output_mode");
    wb_tensor *root = wb__literal(sqrt(a->scale), (wb_dtype)a->q->dtype), *stage[4];
    if (mode < 0 || mode > 3) {
        wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "qk_matmul_output_mode is %lld", (long long)mode);
        return NULL;
    }
    stage[0] = wb__matmul(wb_mul(a->q, root), wb_mul(a->k, root), false, true);
    stage[1] = stage[0];
    if (a->softcap > 0)
        stage[1] = wb_mul(wb_tanh(wb_div(stage[0], wb__number_of(a->softcap))),
                          wb__number_of(a->softcap));
    stage[2] = onnx_attn_mask_scores(a, stage[1]);
    stage[3] = stage[2] ? onnx_attn_weights(c, a, stage[2]) : NULL;
    if (!stage[3]) return NULL;
    if (wb__onnx_wants(c, 3) && !(c->out[3] = wb__as(stage[mode], (wb_dtype)c->in[0]->dtype)))
        return NULL;
    return wb_matmul(wb__as(stage[3], (wb_dtype)a->v->dtype), a->v);
}

bool wb__onnx_attention(wb__onnx_call *c)
{
    onnx_attn_inputs a;
    if (!onnx_attn_read_inputs(c, &a) || !onnx_attn_read_mask(c, &a) ||
        !onnx_attn_read_places(c, &a))
        return false;
    const wb_dtype t = (wb_dtype)a.q->dtype;
    const bool is_plain = !a.bias && a.softcap == 0 && !wb__onnx_wants(c, 3) &&
                          t == (wb_dtype)a.v->dtype &&
                          (!wb__onnx_attribute(c, "softmax_precision") || t == WB_F32);
    wb_tensor *y, *q = a.q;
    if (is_plain) {
        const double factor = a.scale * sqrt((double)q->dims[3]);
        if (fabs(factor - 1) > 1e-6) q = wb_mul(q, wb__literal(factor, t));
        y = wb_attention(q, a.k, a.v, a.allowed ? a.allowed : WB_NONE);
    } else {
        y = onnx_attn_by_steps(c, &a);
    }
    if (a.packed && y) {
        const int64_t dims[3] = {y->dims[0], y->dims[2], y->dims[1] * y->dims[3]};
        y = wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3});
        y = y ? wb_reshape_array(y, 3, dims) : NULL;
    }
    return wb__onnx_give(c, wb__as(y, (wb_dtype)c->in[0]->dtype));
}

/* ---- RotaryEmbedding ------------------------------------------------------------------------- */

/* Returns the table of input i, [N, T, n], with an axis of size 1 for the heads; with position_ids,
 * the rows of [.., n] that they name. */
static wb_tensor *onnx_attn_angles(const wb__onnx_call *c, int i, const wb_tensor *x, int axis,
                                   int64_t n)
{
    wb_tensor *y = c->in[i], *places = wb__onnx_in(c, 3);
    const int steps = axis == 1 ? 2 : 1;
    if (places && y->ndim == 2) y = wb_take(y, places);
    if (y && (y->ndim != 3 || y->dims[0] != x->dims[0] || y->dims[1] != x->dims[steps] ||
              y->dims[2] != n)) {
        wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s, for %s", i, wb_describe(c->in[i]),
                        wb_describe(x));
        return NULL;
    }
    return y ? wb_unsqueeze(y, axis) : NULL;
}

/* Returns x [..., 2 n] with its halves, or if `pairs` its neighbours, rotated. */
static wb_tensor *onnx_attn_rotate(wb_tensor *x, wb_tensor *cosine, wb_tensor *sine, bool pairs)
{
    const int64_t n = x->dims[x->ndim - 1];
    wb_tensor *a = pairs ? wb_slice(x, -1, 0, n, 2) : wb_slice(x, -1, 0, n / 2);
    wb_tensor *b = pairs ? wb_slice(x, -1, 1, n, 2) : wb_slice(x, -1, n / 2, n);
    wb_tensor *first = wb_sub(wb_mul(cosine, a), wb_mul(sine, b));
    wb_tensor *second = wb_add(wb_mul(sine, a), wb_mul(cosine, b));
    if (!first || !second) return NULL;
    if (!pairs) return wb_concat(-1, first, second);
    wb_tensor *both = wb_stack(-1, first, second);
    return both ? wb_reshape_array(both, x->ndim, x->dims) : NULL;
}

/* Computes RotaryEmbedding; x is [N, heads, T, d], or [N, T, heads d] with num_heads. */
bool wb__onnx_rotary_embedding(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    wb_tensor *x = c->in[0], *y = x;
    const int64_t heads = wb__onnx_int(c, "num_heads");
    const int axis = x->ndim == 4 ? 1 : 2;
    if (x->ndim == 3 && heads >= 1 && x->dims[2] % heads == 0)
        y = wb_reshape_array(x, 4, (int64_t[]){x->dims[0], x->dims[1], heads, x->dims[2] / heads});
    if (!y || y->ndim != 4)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s, with num_heads %lld",
                               wb_describe(x), (long long)heads);
    int64_t n = wb__onnx_int(c, "rotary_embedding_dim");
    const int64_t all = y->dims[3];
    if (!n) n = all;
    if (n < 2 || n % 2 || n > all)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "rotary_embedding_dim is %lld, of %lld features",
                               (long long)n, (long long)all);
    wb_tensor *cosine = onnx_attn_angles(c, 1, y, axis, n / 2),
              *sine = onnx_attn_angles(c, 2, y, axis, n / 2);
    wb_tensor *part = n < all ? wb_slice(y, 3, 0, n) : y;
    if (!cosine || !sine || !part) return false;
    part = onnx_attn_rotate(part, cosine, sine, wb__onnx_int(c, "interleaved"));
    if (part && n < all) part = wb_concat(3, part, wb_slice(y, 3, n, all));
    return wb__onnx_give(c, part ? wb_reshape_array(part, x->ndim, x->dims) : NULL);
}
