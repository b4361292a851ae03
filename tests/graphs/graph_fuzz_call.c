/* Calls the library's function for each instruction. */
#include "graph_fuzz.h"

#include <stdlib.h>
#include <string.h>

#define NAME(name) #name,
const char *const unary_names[] = {FUZZ_UNARY(NAME)}, *const binary_names[] = {FUZZ_BINARY(NAME)},
    *const compare_names[] = {FUZZ_COMPARE(NAME)}, *const reduce_names[] = {FUZZ_REDUCE(NAME)},
    *const loss_names[] = {FUZZ_LOSS(NAME)}, *const op_names[] = {FUZZ_OPS(NAME)};
#undef NAME


typedef wb_tensor *(*one)(wb_tensor *);
typedef wb_tensor *(*both)(wb_tensor *, wb_tensor *);
typedef wb_tensor *(*folds)(wb_tensor *, const wb_reduce_options *);
#define ROW(name) wb_##name,
static const one unary[] = {FUZZ_UNARY(ROW)};
static const both binary[] = {FUZZ_BINARY(ROW)}, compare[] = {FUZZ_COMPARE(ROW)};
#undef ROW
#define ROW(name) wb_##name##_with,
static const folds reductions[] = {FUZZ_REDUCE(ROW)};
#undef ROW

static wb_tensor *loss(const instruction *s, wb_tensor *x, wb_tensor *y)
{
    switch (s->row) {
    case L_mse: return wb_mse(x, y);
    case L_mae: return wb_mae(x, y);
    case L_huber: return wb_huber(x, y, s->number);
    case L_crossentropy: return wb_crossentropy(x, y);
    case L_logitcrossentropy: return wb_logitcrossentropy(x, y);
    case L_binarycrossentropy: return wb_binarycrossentropy(x, y);
    default: return wb_logitbinarycrossentropy(x, y);
    }
}

static void store(wb_dtype t, void *to, int64_t k, element e)
{
    switch (t) {
    case WB_F32: ((float *)to)[k] = (float)e.v; break;
    case WB_F64: ((double *)to)[k] = e.v; break;
    case WB_I8: ((int8_t *)to)[k] = (int8_t)e.i; break;
    case WB_I32: ((int32_t *)to)[k] = (int32_t)e.i; break;
    case WB_I64: ((int64_t *)to)[k] = e.i; break;
    default: ((uint8_t *)to)[k] = (uint8_t)e.i; break;
    }
}

/* Leaves in f16 and bf16 are converted from f32; their data are exact in these dtypes. */
wb_tensor *leaf_tensor(const instruction *s)
{
    wb_dtype t = s->dtype == WB_F16 || s->dtype == WB_BF16 ? WB_F32 : s->dtype;
    int64_t size = 1;
    for (int i = 0; i < s->n; i++) size *= s->p[i];
    void *data = calloc((size_t)size + 1, 8);
    if (!data) abort();
    for (int64_t k = 0; k < size; k++) store(t, data, k, s->data[k]);
    wb_tensor *x = wb_from(data, t, s->n, s->p);
    free(data);
    if (t != s->dtype) x = wb_astype(x, s->dtype);
    if (s->op == OP_VARIABLE) return wb_variable(x);
    if (wb_eval_array(1, &x)) return NULL;
    return x;
}

static wb_tensor *norm_layer(const instruction *s, wb_tensor **t)
{
    wb_tensor *x = t[s->in[0]], *scale = t[s->in[1]];
    wb_layer *l;
    if (s->op == OP_BATCHNORM) {
        l = wb_BatchNorm(wb_dim(x, 1), .dtype = wb_dtype_of(x));
    } else {
        wb_LayerNorm_options o = WB_OPTIONS_OF(wb_LayerNorm_options, .dtype = wb_dtype_of(x));
        wb_ints_set(o.shape, wb_ndim(scale), wb_dims(scale));
        l = wb_LayerNorm_with(&o);
    }
    if (!l || wb_set(l, "scale", scale) || wb_set(l, "bias", t[s->in[2]])) return NULL;
    return wb_call(wb_trainmode(l), x);
}

static wb_tensor *windows(const instruction *s, wb_tensor **t)
{
    const int64_t *p = s->p;
    if (s->op == OP_CONV)
        return wb_conv(t[s->in[0]], t[s->in[1]], s->n_in > 2 ? t[s->in[2]] : WB_NONE,
                       .stride = {p[0], p[1]}, .pad = {p[2], p[3], p[4], p[5]},
                       .dilation = {p[6], p[7]}, .groups = p[8]);
    const wb_pool_options o = WB_OPTIONS_OF(wb_pool_options, .window = WB_INTS(p[0], p[1]),
                                            .stride = WB_INTS(p[2], p[3]),
                                            .pad = WB_INTS(p[4], p[5], p[6], p[7]));
    return s->op == OP_MAXPOOL ? wb_maxpool_with(t[s->in[0]], &o)
                               : wb_meanpool_with(t[s->in[0]], &o);
}

static wb_tensor *reduce(const instruction *s, wb_tensor *x)
{
    wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options, .keep = s->flag);
    wb_ints_set(o.axes, s->n, s->p);
    return reductions[s->row](x, &o);
}

static wb_tensor *joined(const instruction *s, wb_tensor **t)
{
    wb_tensor *part[MOST_OPERANDS];
    for (int i = 0; i < s->n_in; i++) part[i] = t[s->in[i]];
    return s->op == OP_CONCAT ? wb_concat_array((int)s->p[0], s->n_in, part)
                              : wb_stack_array((int)s->p[0], s->n_in, part);
}

static wb_tensor *moved(const instruction *s, wb_tensor *x)
{
    switch (s->op) {
    case OP_RESHAPE: return wb_reshape_array(x, s->n, s->p);
    case OP_PERMUTE: return wb_permute_array(x, s->n, s->p);
    case OP_EXPAND: return wb_expand_array(x, s->n, s->p);
    case OP_TRANSPOSE: return wb_transpose(x);
    case OP_FLATTEN: return wb_flatten(x);
    case OP_UNSQUEEZE: return wb_unsqueeze(x, (int)s->p[0]);
    case OP_SQUEEZE: return wb_squeeze(x, (int)s->p[0]);
    case OP_SLICE: return wb_slice(x, (int)s->p[0], s->p[1], s->p[2]);
    case OP_FLIP: return wb_flip(x, (int)s->p[0]);
    default: return wb_pad(x, (int)s->p[0], s->p[1], s->p[2]);
    }
}

static wb_tensor *source(const instruction *s)
{
    switch (s->op) {
    case OP_FULL: return wb_full_array(s->number, s->dtype, s->n, s->p);
    case OP_ARANGE: return wb_arange(s->p[0], s->dtype);
    case OP_EYE: return wb_eye(s->p[0], s->dtype);
    case OP_CAUSAL: return wb_causal_mask(s->p[0], s->p[1]);
    case OP_RAND: return wb_rand_array(s->dtype, s->n, s->p);
    default: return wb_randn_array(s->dtype, s->n, s->p);
    }
}

/* Calls the function of instruction i with operands in t, which has the leaves and variables. */
wb_tensor *call_step(const program *p, int i, wb_tensor **t)
{
    const instruction *s = &p->step[i];
    wb_tensor *x = s->n_in ? t[s->in[0]] : NULL, *y = s->n_in > 1 ? t[s->in[1]] : NULL, *n;
    switch (s->op) {
    case OP_LEAF: case OP_VARIABLE: return t[i];
    case OP_UNARY: return unary[s->row](x);
    case OP_NOT: return wb_not(x);
    case OP_ISFINITE: return wb_isfinite(x);
    case OP_BINARY: return binary[s->row](x, y);
    case OP_COMPARE: return compare[s->row](x, y);
    case OP_BINARY_NUMBER: case OP_COMPARE_NUMBER:
        n = wb_scalar(s->number);
        return (s->op == OP_COMPARE_NUMBER ? compare : binary)[s->row](s->flag ? n : x,
                                                                       s->flag ? x : n);
    case OP_WHERE: return wb_where(x, y, t[s->in[2]]);
    case OP_CAST: return wb_astype(x, s->dtype);
    case OP_STOP: return wb_stop_gradient(x);
    case OP_REDUCE: return reduce(s, x);
    case OP_ARGMAX: return wb_argmax(x, (int)s->p[0]);
    case OP_ONECOLD: return wb_onecold(x);
    case OP_CUMSUM:
        return wb_cumsum(x, (int)s->p[0], .exclusive = s->p[1] != 0, .reverse = s->p[2] != 0);
    case OP_CONCAT: case OP_STACK: return joined(s, t);
    case OP_TAKE: return wb_take(x, y);
    case OP_ONEHOT: return wb_onehotbatch(x, s->p[0]);
    case OP_MATMUL: return wb_matmul(x, y);
    case OP_LINEAR: return wb_linear(x, y, s->n_in > 2 ? t[s->in[2]] : WB_NONE);
    case OP_CONV: case OP_MAXPOOL: case OP_MEANPOOL: return windows(s, t);
    case OP_SOFTMAX: return wb_softmax(x);
    case OP_LOGSOFTMAX: return wb_logsoftmax(x);
    case OP_SOFTMAX_OVER: return wb_softmax_over(x, (int)s->p[0]);
    case OP_LOGSOFTMAX_OVER: return wb_logsoftmax_over(x, (int)s->p[0]);
    case OP_NORMALISE: return wb_normalize(x, (int)s->p[0], s->number);
    case OP_ATTENTION: return wb_attention(x, y, t[s->in[2]], s->n_in > 3 ? t[s->in[3]] : WB_NONE);
    case OP_DROPOUT: return wb_dropout(x, s->number);
    case OP_LOSS: return loss(s, x, y);
    case OP_LAYERNORM: case OP_BATCHNORM: return norm_layer(s, t);
    case OP_GRADIENT: return wb_gradient(x, y);
    case OP_JACOBIAN: return wb_jacobian(x, y);
    case OP_ASSIGN: return wb_assign(x, y) ? NULL : x;
    case OP_FULL:
    case OP_ARANGE:
    case OP_EYE:
    case OP_CAUSAL:
    case OP_RAND:
    case OP_RANDN: return source(s);
    default: return moved(s, x);
    }
}
