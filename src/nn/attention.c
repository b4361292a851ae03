/* MultiHeadAttention (Vaswani et al. 2017): input projections, attention in each head, output
 * projection.  Groups of heads may share keys and values (Ainslie et al. 2023), and queries and
 * keys may be rotated by their positions (Su et al. 2021).  cache.c keeps keys and values between
 * calls. */
#include "nn/attention.h"

#include <math.h>

#define MHA_OPTIONS(X)                                                                          \
    X(wb_MultiHeadAttention_options, dim, INT, 1)                                               \
    X(wb_MultiHeadAttention_options, heads, INT, 1)                                             \
    X(wb_MultiHeadAttention_options, causal, BOOL, 1)                                           \
    X(wb_MultiHeadAttention_options, bias, BOOL, 1)                                             \
    X(wb_MultiHeadAttention_options, dropout, REAL, 1)                                          \
    X(wb_MultiHeadAttention_options, init, INITIALISER, 1)                                      \
    X(wb_MultiHeadAttention_options, dtype, DTYPE, 1)                                           \
    X(wb_MultiHeadAttention_options, kv_heads, INT, 1)                                          \
    X(wb_MultiHeadAttention_options, k_in, INT, 1)                                              \
    X(wb_MultiHeadAttention_options, v_in, INT, 1)                                              \
    X(wb_MultiHeadAttention_options, qk_dim, INT, 1)                                            \
    X(wb_MultiHeadAttention_options, v_dim, INT, 1)                                             \
    X(wb_MultiHeadAttention_options, out, INT, 1)                                               \
    X(wb_MultiHeadAttention_options, weights, BOOL, 1)                                          \
    X(wb_MultiHeadAttention_options, rotary, REAL, 1)
static const wb__option mha_table[] = {MHA_OPTIONS(WB__OPTION_ROW)};

typedef wb_MultiHeadAttention_options mha_options;

/* ---- heads ----------------------------------------------------------------------------------- */

/* Splits y [N, T, features] into heads: [N, heads, T, d]. */
static wb_tensor *mha_split_heads(wb_tensor *y, int64_t heads)
{
    if (!y) return NULL;
    y = wb_reshape_array(y, 4, (int64_t[]){y->dims[0], y->dims[1], heads, y->dims[2] / heads});
    return y ? wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

/* Sets the fields of x to the projections of the inputs; NULL: failed.  Projections of the same
 * input are computed as one product where that is faster. */
static void mha_project(const wb_layer *l, wb_tensor *const *in, wb__attended *x)
{
    const mha_options *o = l->options;
    wb_layer *layer[3];
    for (int i = 0; i < 3; i++) layer[i] = wb__layer_child(l, i);
    wb_tensor *y[3], *all = NULL;
    const bool joined = in[0] == in[1] && in[0] == in[2] &&
                        wb__dense_together(3, layer, in[0], &all);
    if (joined && !all) return;
    const int64_t d = o->qk_dim / o->heads, shared_keys = d * o->kv_heads;
    for (int i = 0; i < 3; i++)
        y[i] = !joined ? wb_call(layer[i], in[i])
                       : wb_slice(all, -1, i ? o->qk_dim + (i - 1) * shared_keys : 0,
                                  i == 2 ? all->dims[2] : o->qk_dim + i * shared_keys);
    x->q = mha_split_heads(y[0], o->heads);
    x->k = mha_split_heads(y[1], o->kv_heads);
    x->v = mha_split_heads(y[2], o->kv_heads);
}

/* Returns the keys or values of each head, [N, heads, T, d]: each of x [N, kv_heads, T, d] serves a
 * group of heads. */
static wb_tensor *mha_for_all_heads(const mha_options *o, wb_tensor *x)
{
    return !x || o->kv_heads == o->heads ? x : wb_repeat(x, 1, o->heads / o->kv_heads);
}

static wb_tensor *mha_sum_of(wb_tensor *x)
{
    return x ? wb_sum(x, .axes = {-1}, .keep = true) : NULL;
}

/* Returns q, and sets *scale to the factor that the products of q and k still need: 1 / sqrt(d).
 * In f16, where unscaled products could overflow, q already has a part of the factor. */
static wb_tensor *mha_scaled_query(wb_tensor *q, double *scale)
{
    if (!q) return NULL;
    *scale = 1 / sqrt((double)q->dims[q->ndim - 1]);
    const double power = wb__power_within(scale, (wb_dtype)q->dtype);
    return power == 1 ? q : wb_mul(q, wb__literal(power, (wb_dtype)q->dtype));
}

/* Returns the weights, [..., Tq, Tk], of the products `scores` times `scale`.  A query whose keys
 * are all masked has weights 0.  NULL: failed, also if `scores` is NULL. */
static wb_tensor *mha_softmax_of(wb_tensor *scores, double scale, wb_tensor *bias, wb_tensor *mask)
{
    if (!scores) return NULL;
    const wb_dtype t = (wb_dtype)scores->dtype;
    scores = wb_mul(scores, wb__literal(scale, t));
    if (!wb_is_none(bias)) scores = wb_add(scores, wb_astype(bias, t));
    if (!wb_is_none(mask)) scores = wb_where(mask, scores, wb__literal(wb__masked(t), t));
    wb_tensor *weights = wb_softmax(scores);
    return wb_is_none(mask) ? weights : wb_where(mask, weights, wb__literal(0, t));
}

/* Returns the weights of the keys, [N, heads, Tq, Tk], from separate operations of the graph. */
static wb_tensor *mha_weights_of(const wb__attended *x, double dropout)
{
    double scale = 1;
    wb_tensor *q = mha_scaled_query(x->q, &scale), *scores = wb__matmul(q, x->k, false, true);
    if (!wb_is_none(x->here)) scores = wb_where(x->here, mha_sum_of(wb_mul(q, x->k_now)), scores);
    wb_tensor *weights = mha_softmax_of(scores, scale, x->bias, x->mask);
    return dropout > 0 ? wb_dropout(weights, dropout) : weights;
}

static wb_tensor *attention_scores(wb_tensor *q, wb_tensor *k, wb_tensor *mask)
{
    if (!wb__floating("attention_scores", q) || !wb__floating("attention_scores", k) ||
        WB__NULL(mask))
        return NULL;
    if (q->ndim < 2 || k->ndim < 2 || q->dims[q->ndim - 1] != k->dims[k->ndim - 1])
        return wb__fail_null(WB_ERROR_SHAPE, "attention_scores: q %s and k %s do not go together",
                             wb_describe(q), wb_describe(k));
    const bool none = wb_is_none(mask);
    if (!none && !wb__operand("attention_scores", mask)) return NULL;
    const bool keep = !none && mask->dtype == WB_BOOL;
    if (!none && !keep && !wb__floating("attention_scores", mask)) return NULL;
    double scale;
    wb_tensor *scores = wb__matmul(mha_scaled_query(q, &scale), k, false, true);
    wb_tensor *all = scores && !none ? wb_expand_array(mask, scores->ndim, scores->dims) : scores;
    if (scores && !all)
        return wb__fail_null(WB_ERROR_SHAPE, "attention_scores: the mask %s does not broadcast to "
                             "the scores, %s", wb_describe(mask), wb_describe(scores));
    return mha_softmax_of(scores, scale, keep ? WB_NONE : mask, keep ? mask : WB_NONE);
}

wb_tensor *wb_attention_scores(wb_tensor *q, wb_tensor *k, wb_tensor *mask)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, attention_scores(q, k, mask));
}

/* Returns the sums of the values, each times its weight. */
static wb_tensor *mha_weighted_values(const wb__attended *x, wb_tensor *weights)
{
    if (!weights || wb_is_none(x->here)) return weights ? wb_matmul(weights, x->v) : NULL;
    wb_tensor *zero = wb__literal(0, (wb_dtype)weights->dtype);
    wb_tensor *now = mha_sum_of(wb_where(x->here, weights, zero));
    return wb_add(wb_matmul(wb_where(x->here, zero, weights), x->v), wb_mul(now, x->v_now));
}

/* ---- checks and masks ------------------------------------------------------------------------ */

static bool mha_sizes_fit(const mha_options *o, wb_tensor *const *in)
{
    const int64_t features[3] = {o->dim, o->k_in, o->v_in};
    for (int i = 0; i < 3; i++)
        if (in[i]->ndim != 3 || in[i]->dims[2] != features[i])
            return !wb__fail(WB_ERROR_SHAPE, "MultiHeadAttention: expects [N,T,%lld], got %s",
                             (long long)features[i], wb_describe(in[i]));
    if (in[1]->dims[0] == in[0]->dims[0] && in[2]->dims[0] == in[0]->dims[0] &&
        in[1]->dims[1] == in[2]->dims[1])
        return true;
    return !wb__fail(WB_ERROR_SHAPE, "MultiHeadAttention: q %s, k %s and v %s do not go together",
                     wb_describe(in[0]), wb_describe(in[1]), wb_describe(in[2]));
}

/* Whether the program's mask or bias, if not NULL, broadcasts to [N, heads, Tq, Tk]. */
static bool mask_fits(const wb_tensor *mask, const wb_tensor *q, const wb_tensor *k, int64_t heads)
{
    if (!mask) return true;
    const int64_t dims[4] = {q->dims[0], heads, q->dims[2], k->dims[2]};
    bool fits = mask->ndim <= 4;
    for (int i = 0; fits && i < mask->ndim; i++) {
        const int64_t n = mask->dims[i];
        fits = n == 1 || n == dims[4 - mask->ndim + i];
    }
    if (fits && (mask->dtype == WB_BOOL || wb__dtype_float((wb_dtype)mask->dtype))) return true;
    return !wb__fail(WB_ERROR_SHAPE, "MultiHeadAttention: the mask is %s; it is bool (true: keep) "
                     "or floating (added to the scores), and broadcasts to [%lld,%lld,%lld,%lld]",
                     wb_describe(mask), (long long)dims[0], (long long)dims[1], (long long)dims[2],
                     (long long)dims[3]);
}

/* Rotates q and k by their positions, appends k and v to the cache if there is one, and sets the
 * masks of x.  `given` is the program's mask, or NULL. */
static bool mha_position_and_mask(const wb_layer *l, wb__attended *x, bool self, wb_tensor *given)
{
    const mha_options *o = l->options;
    x->mask = x->bias = x->here = WB_NONE;
    if (o->rotary > 0) {
        const int64_t tq = x->q->dims[2], tk = x->k->dims[2];
        x->q = wb_rotary(x->q, wb_positions(tq), .base = o->rotary);
        x->k = wb_rotary(x->k, self ? wb_positions(tk) : wb_arange(tk, WB_I32), .base = o->rotary);
        if (!x->q || !x->k) return false;
    }
    if (self && wb__cache_used()) {
        if (!wb__cache_append(l, o->causal, x)) return false;
    } else if (o->causal) {
        x->mask = wb_causal_mask(x->q->dims[2], x->k->dims[2]);
    }
    x->k = mha_for_all_heads(o, x->k);
    x->v = mha_for_all_heads(o, x->v);
    if (!wb_is_none(x->here)) {
        x->k_now = mha_for_all_heads(o, x->k_now);
        x->v_now = mha_for_all_heads(o, x->v_now);
    }
    if (!x->k || !x->v || !mask_fits(given, x->q, x->k, o->heads)) return false;
    if (given && given->dtype != WB_BOOL) x->bias = given;
    else if (given) x->mask = wb_is_none(x->mask) ? given : wb_and(x->mask, given);
    return x->mask != NULL;
}

static int mha_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    const mha_options *o = l->options;
    if (n != 1 && n != 3 && n != 4)
        return wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: takes x, or q, k and v, or q, k, v "
                        "and a mask; got %d inputs", n), -1;
    wb_tensor *in[3] = {inputs[0], inputs[n > 1 ? 1 : 0], inputs[n > 1 ? 2 : 0]};
    if (!mha_sizes_fit(o, in)) return -1;
    const bool self = in[1] == in[0];
    wb__attended x = {0};
    mha_project(l, in, &x);
    wb_tensor *given = n == 4 ? inputs[3] : NULL;
    if (!x.q || !x.k || !x.v || !mha_position_and_mask(l, &x, self, given)) return -1;
    bool automatic, drops = wb__train_mode(l, &automatic) && o->dropout > 0;
    wb_tensor *y, *weights = NULL;
    const bool one = !wb_is_none(x.here), masked = n == 4;  /* one: a single query with a cache;
                                                               masked: the program gave a mask */
    if (drops || o->weights || !wb_is_none(x.bias) || one) {
        weights = mha_weights_of(&x, drops ? o->dropout : 0);
        y = mha_weighted_values(&x, weights);
        if (one && !drops && !o->weights && !masked)
            y = wb__attention_cached(y, x.operands, 1 / sqrt((double)x.q->dims[3]));
    } else {
        y = wb_attention(x.q, x.k, x.v, x.mask);
    }
    if (automatic && o->dropout > 0) y = wb__mark_automatic(y, "MultiHeadAttention");
    y = y ? wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
    y = y ? wb_reshape_array(y, 3, (int64_t[]){in[0]->dims[0], in[0]->dims[1], o->v_dim}) : NULL;
    outputs[0] = y ? wb_call(wb__layer_child(l, 3), y) : NULL;
    if (o->weights) outputs[1] = weights;
    return outputs[0] ? 1 + o->weights : -1;
}

static void mha_print(const wb_layer *l, wb__text *t)
{
    const mha_options *o = l->options;
    wb__text_add(t, "MultiHeadAttention(");
    if (o->k_in != o->dim || o->v_in != o->dim || o->qk_dim != o->dim || o->v_dim != o->dim ||
        o->out != o->dim)
        wb__text_add(t, "(%lld, %lld, %lld) => (%lld, %lld) => %lld", (long long)o->dim,
                     (long long)o->k_in, (long long)o->v_in, (long long)o->qk_dim,
                     (long long)o->v_dim, (long long)o->out);
    else wb__text_add(t, "%lld", (long long)o->dim);
    wb__text_add(t, "; nheads=%lld", (long long)o->heads);
    if (o->kv_heads != o->heads) wb__text_add(t, ", kv_heads=%lld", (long long)o->kv_heads);
    if (o->causal) wb__text_add(t, ", causal=true");
    if (o->bias) wb__text_add(t, ", bias=true");
    if (o->dropout > 0) wb__text_add(t, ", dropout=%g", o->dropout);
    if (o->rotary > 0) wb__text_add(t, ", rotary=%g", o->rotary);
    if (o->weights) wb__text_add(t, ", weights=true");
    wb__text_add(t, ")");
}

static const wb__torch_kind mha_torch = {.joined = true};

WB__PLAIN_LAYER(attention, "MultiHeadAttention", wb_MultiHeadAttention_options, mha_table,
                wb_MultiHeadAttention_with, .call_many = mha_call, .print = mha_print,
                .torch = &mha_torch);

/* Sets the sizes that the program left out, and checks all sizes. */
static bool mha_read_sizes(mha_options *o)
{
    int64_t *const sizes[] = {&o->k_in, &o->v_in, &o->qk_dim, &o->v_dim, &o->out};
    bool positive = o->kv_heads >= 0;
    for (int i = 0; i < 5; i++) {
        if (!*sizes[i]) *sizes[i] = o->dim;
        positive = positive && *sizes[i] > 0;
    }
    if (!o->kv_heads) o->kv_heads = o->heads;
    if (o->dim < 1 || o->heads < 1)
        return !wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: %lld heads do not divide %lld",
                         (long long)o->heads, (long long)o->dim);
    if (!positive)
        return !wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: one of .kv_heads, .k_in, .v_in, "
                         ".qk_dim, .v_dim and .out is negative");
    if (o->qk_dim % o->heads || o->v_dim % o->heads)
        return !wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: %lld heads do not divide %lld",
                         (long long)o->heads,
                         (long long)(o->qk_dim % o->heads ? o->qk_dim : o->v_dim));
    if (o->heads % o->kv_heads)
        return !wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: .kv_heads is %lld; it divides the "
                         "%lld heads", (long long)o->kv_heads, (long long)o->heads);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return !wb__fail(WB_ERROR_ARGUMENT,
                         "MultiHeadAttention: dropout is %g; it must be in [0, 1)", o->dropout);
    if (!(o->rotary >= 0) || (o->rotary > 0 && o->qk_dim / o->heads % 2))
        return !wb__fail(WB_ERROR_ARGUMENT, "MultiHeadAttention: .rotary is %g for heads of %lld "
                         "features; it is the base, such as 10000, and needs an even number",
                         o->rotary, (long long)(o->qk_dim / o->heads));
    return true;
}

wb_layer *wb_MultiHeadAttention_with(const wb_MultiHeadAttention_options *given)
{
    WB__EDGE;
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    wb_MultiHeadAttention_options o;
    if (!wb__read_options("MultiHeadAttention", wb_MultiHeadAttention_options, &o, given, NULL))
        return NULL;
    if (!mha_read_sizes(&o) || !wb__layer_dtype("MultiHeadAttention", &o.dtype)) return NULL;
    const int64_t in[4] = {o.dim, o.k_in, o.v_in, o.v_dim},
                  out[4] = {o.qk_dim, o.qk_dim / o.heads * o.kv_heads,
                            o.v_dim / o.heads * o.kv_heads, o.out};
    wb_layer *l = wb__layer_new(&wb__attention_type, &o, 4);
    for (int i = 0; l && i < 4; i++) {
        wb_layer *dense = wb_Dense(in[i], out[i], .bias = o.bias, .init = o.init,
                                   .dtype = o.dtype);
        if (!wb__layer_put(l, i, names[i], dense)) return NULL;
    }
    return l;
}
