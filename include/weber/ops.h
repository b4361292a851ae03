/* Weber, chapter 3: operations on tensors.
 *
 * Operands must have equal dtypes.  A literal (wb_scalar) takes the other's dtype, and is an error
 * where an integer dtype does not hold its value.  Shapes broadcast as in NumPy: aligned at the
 * last dimension, 1 stretches.  Every operation below has a gradient to each floating operand,
 * unless its comment says otherwise.  Integers stay in their dtype and wrap around, in sums too:
 * convert with wb_astype first where that matters.
 * Errors of all: shapes or dtypes that do not fit.  Owner of all results: the current scope. */
#ifndef WEBER_OPS_H
#define WEBER_OPS_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise, one operand: floating unless said ------------------------------------------- */

WB_API wb_tensor *wb_neg(wb_tensor *x);             /* -x, any dtype but bool */
WB_API wb_tensor *wb_abs(wb_tensor *x);             /* |x|, any; gradient sign(x), 0 at 0 */
WB_API wb_tensor *wb_sign(wb_tensor *x);            /* -1, 0 or 1; gradient 0 */
WB_API wb_tensor *wb_square(wb_tensor *x);          /* x*x, any */
WB_API wb_tensor *wb_sqrt(wb_tensor *x);
WB_API wb_tensor *wb_rsqrt(wb_tensor *x);           /* 1/sqrt(x) */
WB_API wb_tensor *wb_reciprocal(wb_tensor *x);      /* 1/x */
WB_API wb_tensor *wb_exp(wb_tensor *x);
WB_API wb_tensor *wb_log(wb_tensor *x);
WB_API wb_tensor *wb_log1p(wb_tensor *x);           /* log(1+x), exact near 0 */
WB_API wb_tensor *wb_sin(wb_tensor *x);
WB_API wb_tensor *wb_cos(wb_tensor *x);
WB_API wb_tensor *wb_erf(wb_tensor *x);
WB_API wb_tensor *wb_floor(wb_tensor *x);           /* gradient 0 */
WB_API wb_tensor *wb_isfinite(wb_tensor *x);        /* bool; no gradient */
WB_API wb_tensor *wb_not(wb_tensor *x);             /* bool; no gradient */

/* Activations.  NaN stays NaN in all of them, and in those that only files name (trelu, ...).
 * swish, gelu, gelu_erf, mish, hardswish and logcosh (of files) are NaN at -Inf, and softsign (of
 * files) at both infinities, as their formulas are; all others have their limits there.  At NaN the
 * gradient of a function in pieces (relu, leakyrelu, elu, selu, hardswish) is that of its lowest. */
WB_API wb_tensor *wb_identity(wb_tensor *x);        /* x itself */
WB_API wb_tensor *wb_relu(wb_tensor *x);            /* max(x, 0); gradient 0 at 0 */
WB_API wb_tensor *wb_leakyrelu(wb_tensor *x);       /* x > 0 ? x : 0.01 x */
WB_API wb_tensor *wb_elu(wb_tensor *x);             /* x > 0 ? x : exp(x) - 1 */
WB_API wb_tensor *wb_selu(wb_tensor *x);            /* 1.0507 (x > 0 ? x : 1.6733 (exp(x) - 1)) (Klambauer et al. 2017) */
WB_API wb_tensor *wb_sigmoid(wb_tensor *x);         /* 1 / (1 + exp(-x)) */
WB_API wb_tensor *wb_logsigmoid(wb_tensor *x);      /* log(sigmoid(x)) = -softplus(-x) */
WB_API wb_tensor *wb_tanh(wb_tensor *x);
WB_API wb_tensor *wb_softplus(wb_tensor *x);        /* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)) */
WB_API wb_tensor *wb_swish(wb_tensor *x);           /* x sigmoid(x) */
WB_API wb_tensor *wb_gelu(wb_tensor *x);            /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Flux's gelu */
WB_API wb_tensor *wb_gelu_erf(wb_tensor *x);        /* x/2 (1 + erf(x/sqrt(2))), the exact one */
WB_API wb_tensor *wb_mish(wb_tensor *x);            /* x tanh(softplus(x)) (Misra 2019) */
WB_API wb_tensor *wb_hardswish(wb_tensor *x);       /* x min(max(x + 3, 0), 6) / 6 (Howard et al. 2019) */

/* ---- elementwise, two operands ---------------------------------------------------------------- */

WB_API wb_tensor *wb_add(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_sub(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_mul(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_div(wb_tensor *x, wb_tensor *y);       /* integers: truncated; by 0 is 0 */
WB_API wb_tensor *wb_pow(wb_tensor *x, wb_tensor *y);       /* floating */
WB_API wb_tensor *wb_maximum(wb_tensor *x, wb_tensor *y);   /* NaN wins; of equals the gradient goes to x */
WB_API wb_tensor *wb_minimum(wb_tensor *x, wb_tensor *y);

/* Comparisons and logic: bool, no gradient. */
WB_API wb_tensor *wb_eq(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_ne(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_lt(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_le(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_gt(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_ge(wb_tensor *x, wb_tensor *y);
WB_API wb_tensor *wb_and(wb_tensor *x, wb_tensor *y);       /* bool operands */
WB_API wb_tensor *wb_or(wb_tensor *x, wb_tensor *y);

WB_API wb_tensor *wb_where(wb_tensor *condition, wb_tensor *x, wb_tensor *y);   /* condition ? x : y; bool first */
WB_API wb_tensor *wb_astype(wb_tensor *x, wb_dtype dtype);  /* floats to integers truncate and saturate, NaN is 0 */

/* ---- reductions ------------------------------------------------------------------------------- */

/* Which axes: .axes = WB_AXES(0, -1), .axes = {0, -1}, or by place, wb_sum(x, 1); none means all.
 * .keep leaves them with size 1.  GCC's -Wmissing-braces (in -Wall) warns of all but WB_AXES, which
 * is an expression of type wb_axes; in C++ wb_axes_of makes one.  Over no elements (an axis of size
 * 0) a sum is 0, a mean and a variance are NaN, and the others are errors. */
typedef struct { int n, axis[2 * WB_MAX_DIMS]; } wb_axes;
typedef struct {
    size_t size;
    bool keep; WB_HAS(keep)
    WB_BY_PLACE
    wb_axes axes; WB_HAS(axes)
    WB_NO_MORE
} wb_reduce_options;
#define WB_AXES_ 0x41580000         /* in n: what follows is a list of axes */
#define WB_AXES(...) \
    ((wb_axes){WB_AXES_ + (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}})

WB_API wb_tensor *wb_sum_with(wb_tensor *x, const wb_reduce_options *o);    /* f16, bf16: summed in f32 */
WB_API wb_tensor *wb_mean_with(wb_tensor *x, const wb_reduce_options *o);   /* floating */
WB_API wb_tensor *wb_max_with(wb_tensor *x, const wb_reduce_options *o);    /* NaN wins; the gradient is shared by equals */
WB_API wb_tensor *wb_min_with(wb_tensor *x, const wb_reduce_options *o);
WB_API wb_tensor *wb_variance_with(wb_tensor *x, const wb_reduce_options *o);   /* mean of squares about the mean (biased) */
WB_API wb_tensor *wb_logsumexp_with(wb_tensor *x, const wb_reduce_options *o);
#ifndef __cplusplus
#define wb_sum(...) WB_REDUCE_(wb_sum_with, __VA_ARGS__)
#define wb_mean(...) WB_REDUCE_(wb_mean_with, __VA_ARGS__)
#define wb_max(...) WB_REDUCE_(wb_max_with, __VA_ARGS__)
#define wb_min(...) WB_REDUCE_(wb_min_with, __VA_ARGS__)
#define wb_variance(...) WB_REDUCE_(wb_variance_with, __VA_ARGS__)
#define wb_logsumexp(...) WB_REDUCE_(wb_logsumexp_with, __VA_ARGS__)
#define WB_REDUCE_(f, ...) WB_PASTE_(WB_REDUCE_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, __VA_ARGS__)
#define WB_REDUCE_one(f, x) f((x), NULL)
#define WB_REDUCE_more(f, x, ...) \
    f((x), WB_GET_(wb_reduce_options, WB_GIVE_(__VA_ARGS__)))
#endif

/* The 0-based place of the largest element along an axis, i32, the axis dropped; the first of equals,
 * NaN wins.  No gradient.  Errors: an axis of no elements, or of more than 2^31, whose places i32 cannot hold. */
WB_API wb_tensor *wb_argmax(wb_tensor *x, int axis);

/* Running sums along an axis, in x's dtype: y[i] = x[0] + ... + x[i].  .exclusive leaves x[i] out,
 * so that y[0] is 0; .reverse sums from the end, y[i] = x[i] + ... + x[n-1].  Any dtype but bool;
 * sums are made as wb_sum's are: f16 and bf16 in f32, integers wrapping around.  The CPU adds in order, and
 * loses nothing to rounding; GPUs also add elements in between, whose sums round and may overflow. */
typedef struct {
    size_t size;
    bool exclusive, reverse;
    WB_BY_PLACE
    WB_NO_MORE
} wb_cumsum_options;
WB_API wb_tensor *wb_cumsum_with(wb_tensor *x, int axis, const wb_cumsum_options *o);
#ifndef __cplusplus
#define wb_cumsum(...) WB_CUMSUM_(__VA_ARGS__, )
#define WB_CUMSUM_(x, axis, ...) \
    wb_cumsum_with((x), (axis), WB_GET_(wb_cumsum_options, __VA_ARGS__))
#endif

/* ---- shape ------------------------------------------------------------------------------------ */

WB_API wb_tensor *wb_reshape_to(wb_tensor *x, int ndim, const int64_t *dims);     /* one dimension may be -1 */
WB_API wb_tensor *wb_permute_to(wb_tensor *x, int ndim, const int64_t *order);    /* y's axis i is x's order[i] */
WB_API wb_tensor *wb_expand_to(wb_tensor *x, int ndim, const int64_t *dims);      /* broadcast */
WB_API wb_tensor *wb_transpose(wb_tensor *x);                       /* the last two axes swapped */
WB_API wb_tensor *wb_flatten(wb_tensor *x);                         /* [N, ...] to [N, features] */
WB_API wb_tensor *wb_unsqueeze(wb_tensor *x, int axis);
WB_API wb_tensor *wb_squeeze(wb_tensor *x, int axis);
/* Elements start .. stop-1 of an axis; a negative number counts from the end.  The gradient is
 * that of the result, with zeros around it.
 * A slice of an evaluated tensor is read where it is, without a copy, and `start` is a run-time
 * argument of plans: a window that moves by any step over a tensor (batches of a dataset, parts
 * of a text) has one plan, also with reshape, permute, flip and further slices in between.  The
 * length, `stop - start`, is part of the plan.  `start` is so too, and each start makes a plan, for
 * a slice of what is not evaluated (wb_eval evaluates it), of a variable that the same evaluation
 * assigns to, and for the gradient with respect to x. */
WB_API wb_tensor *wb_slice(wb_tensor *x, int axis, int64_t start, int64_t stop);
WB_API wb_tensor *wb_flip(wb_tensor *x, int axis);
WB_API wb_tensor *wb_pad(wb_tensor *x, int axis, int64_t before, int64_t after);  /* with zeros */
WB_API wb_tensor *wb_concat_of(int n, wb_tensor *const *x, int axis);
WB_API wb_tensor *wb_stack_of(int n, wb_tensor *const *x, int axis);              /* a new axis */
#ifndef __cplusplus
#define wb_reshape(x, ...) wb_reshape_to((x), WB_DIMS_(__VA_ARGS__))
#define wb_permute(x, ...) wb_permute_to((x), WB_DIMS_(__VA_ARGS__))
#define wb_expand(x, ...) wb_expand_to((x), WB_DIMS_(__VA_ARGS__))
#define WB_TENSORS_(...) (int)(sizeof((wb_tensor *[]){__VA_ARGS__}) / sizeof(wb_tensor *)), (wb_tensor *[]){__VA_ARGS__}
#define wb_concat(axis, ...) wb_concat_of(WB_TENSORS_(__VA_ARGS__), (axis))
#define wb_stack(axis, ...) wb_stack_of(WB_TENSORS_(__VA_ARGS__), (axis))
#endif

/* y[i..., :] = x[index[i...], :]: rows by number.  x [n, ...]   index integer, any shape
 * An index outside [0, n) gives zeros and no gradient. */
WB_API wb_tensor *wb_take(wb_tensor *x, wb_tensor *index);

/* [..., classes] of 0 and 1 (f32) from integer labels 0 .. classes-1; others give 0s. */
WB_API wb_tensor *wb_onehotbatch(wb_tensor *labels, int64_t classes);
WB_API wb_tensor *wb_onecold(wb_tensor *scores);                    /* argmax over the last axis */

/* ---- products --------------------------------------------------------------------------------- */

/* y = x·w over the last two axes; those before broadcast.  [..., m, k] · [..., k, n] -> [..., m, n];
 * a 1-dimensional operand is a vector: [k]·[k,n] -> [n], [m,k]·[k] -> [m].  Floating; summed in f32 (f64 in f64). */
WB_API wb_tensor *wb_matmul(wb_tensor *x, wb_tensor *w);

/* y = x·wᵀ + b.   x [..., in]   w [out, in]   b [out], or WB_NONE   y [..., out] */
WB_API wb_tensor *wb_linear(wb_tensor *x, wb_tensor *w, wb_tensor *b);

/* Cross-correlation over the last two axes.
 *   x [N, C, H, W]   w [K, C/groups, kh, kw]   b [K], or WB_NONE   y [N, K, H', W']
 *   H' = (H + pad_lo + pad_hi - (kh-1) dilation - 1) / stride + 1, rounded down
 * .pad is {top, bottom, left, right}; .stride and .dilation are {h, w}, 0 meaning 1 (and {s} meaning {s, s}). */
typedef struct {
    size_t size;
    int64_t stride[2], pad[4], dilation[2], groups;
    int64_t outpad[2];              /* wb_conv_transpose's */
    WB_BY_PLACE
    WB_NO_MORE
} wb_conv_settings;
WB_API wb_tensor *wb_conv_with(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_settings *s);

/* The adjoint of wb_conv: y is the gradient of wb_conv's operand where x is that of its result, plus b.
 *   x [N, C, H, W]   w [C, K/groups, kh, kw]   b [K], or WB_NONE   y [N, K, H', W']
 *   H' = (H - 1) stride - pad_lo - pad_hi + (kh-1) dilation + 1 + outpad
 * .outpad {h, w}, less than the stride, adds rows below and columns to the right: wb_conv makes the same
 * size of several, and this chooses among them. */
WB_API wb_tensor *wb_conv_transpose_with(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                         const wb_conv_settings *s);

/* Pooling over the last two axes: x [N, C, H, W] -> [N, C, H', W'].  .stride {0, 0} means the window's size.
 * Padding is never a maximum, and smaller than the window; a mean divides by the whole window.  NaN wins a maximum;
 * the gradient of a maximum goes to its first place. */
typedef struct {
    size_t size;
    int64_t window[2], stride[2], pad[4];
    WB_BY_PLACE
    WB_NO_MORE
} wb_pool_settings;
WB_API wb_tensor *wb_maxpool_with(wb_tensor *x, const wb_pool_settings *s);
WB_API wb_tensor *wb_meanpool_with(wb_tensor *x, const wb_pool_settings *s);
#ifndef __cplusplus
#define wb_conv(...) WB_CONV_(__VA_ARGS__, )
#define WB_CONV_(x, w, b, ...) wb_conv_with((x), (w), (b), WB_GET_(wb_conv_settings, __VA_ARGS__))
#define wb_conv_transpose(...) WB_CONV_TRANSPOSE_(__VA_ARGS__, )
#define WB_CONV_TRANSPOSE_(x, w, b, ...) \
    wb_conv_transpose_with((x), (w), (b), WB_GET_(wb_conv_settings, __VA_ARGS__))
#define wb_maxpool(x, ...) wb_maxpool_with((x), WB_GET_(wb_pool_settings, __VA_ARGS__))
#define wb_meanpool(x, ...) wb_meanpool_with((x), WB_GET_(wb_pool_settings, __VA_ARGS__))
#endif

/* ---- rows, attention, chance ------------------------------------------------------------------ */

WB_API wb_tensor *wb_softmax(wb_tensor *x);                     /* over the last axis: exp(x - max) / sum; +Inf entries share */
WB_API wb_tensor *wb_logsoftmax(wb_tensor *x);                  /* x - max - log sum exp(x - max) */
WB_API wb_tensor *wb_softmax_over(wb_tensor *x, int axis);
WB_API wb_tensor *wb_logsoftmax_over(wb_tensor *x, int axis);

/* (x - mean) / sqrt(variance + eps) over the last `n_axes` axes, biased variance; eps 0 means 1e-5. */
WB_API wb_tensor *wb_normalise(wb_tensor *x, int n_axes, double eps);

/* y = softmax(q·kᵀ / sqrt(d) where mask) · v, over the last two axes.
 *   q [..., Tq, d]   k [..., Tk, d]   v [..., Tk, e]   mask bool, broadcast to [..., Tq, Tk] (true: keep), or WB_NONE
 * A row with nothing kept gives zeros.
 * Gradient, with p = softmax(s) and g that of y:  dv = pᵀ·g;  with ds = p (g·vᵀ - sum(p g·vᵀ)),
 * dq = ds·k / sqrt(d) and dk = dsᵀ·q / sqrt(d).
 * Without a mask, or with wb_causal_mask(T, T), four dimensions of which nothing is broadcast may be one kernel
 * a pass, which holds no [Tq, Tk] in memory (Dao et al. 2022): where the device's backend has one. */
WB_API wb_tensor *wb_attention(wb_tensor *q, wb_tensor *k, wb_tensor *v, wb_tensor *mask);
WB_API wb_tensor *wb_causal_mask(int64_t queries, int64_t keys);    /* bool [queries, keys]: key <= query */

/* Each element kept with probability 1-p and scaled by 1/(1-p).  The mask depends on wb_seed alone, not
 * on device, threads, or when it is evaluated.  p outside [0, 1]: an error; p = 1 gives zeros. */
WB_API wb_tensor *wb_dropout(wb_tensor *x, double p);

#ifdef __cplusplus
}
#endif
#endif
