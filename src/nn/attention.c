/* MultiHeadAttention (Vaswani et al. 2017): input projections, attention in each head, output
 * projection. */
#include "nn/layer.h"

#include <math.h>

#define OPTIONS(X)                                                                              \
    X(wb_MultiHeadAttention_options, dim, INT, 1)                                               \
    X(wb_MultiHeadAttention_options, heads, INT, 1)                                             \
    X(wb_MultiHeadAttention_options, causal, BOOL, 1)                                           \
    X(wb_MultiHeadAttention_options, bias, BOOL, 1)                                             \
    X(wb_MultiHeadAttention_options, dropout, REAL, 1)                                          \
    X(wb_MultiHeadAttention_options, init, INITIALISER, 1)                                      \
    X(wb_MultiHeadAttention_options, dtype, DTYPE, 1)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

/* Computes one projection of x [N, T, dim], and splits it into heads: [N, heads, T, dim /
 * heads]. */
static wb_tensor *project(const wb_layer *l, int child, wb_tensor *x)
{
    const wb_MultiHeadAttention_options *o = l->options;
    wb_tensor *y = wb_call(wb__layer_child(l, child), x);
    if (!y) return NULL;
    y = wb_reshape_array(y, 4, (int64_t[]){x->dims[0], x->dims[1], o->heads, o->dim / o->heads});
    return y ? wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

/* Computes wb_attention with dropout of the attention weights. */
static wb_tensor *attend_dropping(const wb_layer *l, wb_tensor *q, wb_tensor *k, wb_tensor *v,
                                  wb_tensor *mask)
{
    const wb_MultiHeadAttention_options *o = l->options;
    wb_tensor *scores =
        wb_mul(wb__matmul(q, k, false, true), wb_scalar(1 / sqrt((double)(o->dim / o->heads))));
    if (!wb_is_none(mask)) scores = wb_where(mask, scores, wb_scalar(-INFINITY));
    return wb_matmul(wb_dropout(wb_softmax(scores), o->dropout), v);
}

static wb_tensor *call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_MultiHeadAttention_options *o = l->options;
    if (n != 1 && n != 3)
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "MultiHeadAttention: takes x, or q, k and v; got %d inputs", n);
    wb_tensor *in[3] = {inputs[0], inputs[n == 3 ? 1 : 0], inputs[n == 3 ? 2 : 0]};
    for (int i = 0; i < n; i++)
        if (in[i]->ndim != 3 || in[i]->dims[2] != o->dim)
            return wb__fail_null(WB_ERROR_SHAPE, "MultiHeadAttention: expects [N,T,%lld], got %s",
                                 (long long)o->dim, wb_describe(in[i]));
    if (in[1]->dims[0] != in[0]->dims[0] || in[2]->dims[0] != in[0]->dims[0] ||
        in[1]->dims[1] != in[2]->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE,
                             "MultiHeadAttention: q %s, k %s and v %s do not go together",
                             wb_describe(in[0]), wb_describe(in[1]), wb_describe(in[2]));
    wb_tensor *q = project(l, 0, in[0]), *k = project(l, 1, in[1]), *v = project(l, 2, in[2]);
    wb_tensor *mask = o->causal ? wb_causal_mask(in[0]->dims[1], in[1]->dims[1]) : WB_NONE;
    if (!q || !k || !v || !mask) return NULL;
    bool automatic, train = wb__train_mode(l, &automatic);
    wb_tensor *y =
        train && o->dropout > 0 ? attend_dropping(l, q, k, v, mask) : wb_attention(q, k, v, mask);
    if (automatic && o->dropout > 0) y = wb__mark_automatic(y, "MultiHeadAttention");
    y = y ? wb_permute_array(y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
    y = y ? wb_reshape_array(y, 3, (int64_t[]){in[0]->dims[0], in[0]->dims[1], o->dim}) : NULL;
    return wb_call(wb__layer_child(l, 3), y);
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_MultiHeadAttention_options *o = l->options;
    wb__text_add(t, "MultiHeadAttention(%lld; nheads=%lld", (long long)o->dim, (long long)o->heads);
    if (o->causal) wb__text_add(t, ", causal=true");
    if (o->bias) wb__text_add(t, ", bias=true");
    if (o->dropout > 0) wb__text_add(t, ", dropout=%g", o->dropout);
    wb__text_add(t, ")");
}

static const wb__torch_kind torch = {.joined = true};

WB__PLAIN_LAYER(attention, "MultiHeadAttention", wb_MultiHeadAttention_options, option_table,
                wb_MultiHeadAttention_with, .call = call, .print = print, .torch = &torch);

wb_layer *wb_MultiHeadAttention_with(const wb_MultiHeadAttention_options *given)
{
    static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    wb_MultiHeadAttention_options o;
    wb__given g;
    if (!wb__read_options("MultiHeadAttention", &o, sizeof o, given, "heads", &g)) return NULL;
    o.heads = wb__int_option(&g, "heads", 1, o.heads, 8);
    if (o.dim < 1 || o.heads < 1 || o.dim % o.heads)
        return wb__fail_null(WB_ERROR_ARGUMENT, "MultiHeadAttention: %lld heads do not divide %lld",
                             (long long)o.heads, (long long)o.dim);
    if (!(o.dropout >= 0 && o.dropout < 1))
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "MultiHeadAttention: dropout is %g; it must be in [0, 1)", o.dropout);
    if (!wb__layer_dtype("MultiHeadAttention", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__attention_type, &o, 4);
    for (int i = 0; l && i < 4; i++) {
        wb_layer *dense = wb_Dense_with(&(wb_Dense_options){.size = sizeof(wb_Dense_options),
                                                            .in = o.dim,
                                                            .out = o.dim,
                                                            .no_bias = !o.bias,
                                                            .init = o.init,
                                                            .dtype = o.dtype});
        if (!wb__layer_put(l, i, names[i], dense)) return NULL;
    }
    return l;
}
