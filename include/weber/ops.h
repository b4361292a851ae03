/* Weber, chapter 3: operations on tensors.
 *
 * Dtypes: both operands have the same dtype.  A number (0.5, wb_scalar) takes the dtype of the
 * other operand; an integer dtype that cannot hold its value is an error.  Integers wrap around,
 * also in sums; wb_astype to a wider dtype avoids that.
 *
 * Shapes: operands broadcast as in NumPy: axes are aligned at the last one, and an axis of size 1,
 * or a missing one, is repeated.  A negative axis counts from the end.
 *
 * Gradients: each operation has a gradient with respect to each floating operand, unless its
 * comment excludes it.
 *
 * Errors of all operations: shapes or dtypes that do not fit, operands on different devices.
 * Results belong to the current scope. */
#ifndef WEBER_OPS_H
#define WEBER_OPS_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise, one operand; x is floating unless another dtype is named ------------------- */

/* Results have x's shape and dtype.  Outside its domain a function gives NaN or an infinity, as in
 * C: wb_sqrt(-1), wb_log(0). */

/** -x.  Any dtype but bool. */
WB_API wb_tensor *wb_neg(wb_tensor *x);
/** |x|.  Any dtype but bool.  Gradient sign(x). */
WB_API wb_tensor *wb_abs(wb_tensor *x);
/** -1, 0 or 1, as x is negative, zero or positive; NaN for NaN.  Any dtype but bool.  Gradient
 * 0. */
WB_API wb_tensor *wb_sign(wb_tensor *x);
/** x².  Any dtype but bool. */
WB_API wb_tensor *wb_square(wb_tensor *x);
/** The square root. */
WB_API wb_tensor *wb_sqrt(wb_tensor *x);
/** 1/sqrt(x). */
WB_API wb_tensor *wb_rsqrt(wb_tensor *x);
/** 1/x. */
WB_API wb_tensor *wb_reciprocal(wb_tensor *x);
/** e to the power of x. */
WB_API wb_tensor *wb_exp(wb_tensor *x);
/** The natural logarithm. */
WB_API wb_tensor *wb_log(wb_tensor *x);
/** log(1 + x), accurate near 0. */
WB_API wb_tensor *wb_log1p(wb_tensor *x);
/** The sine; x in radians. */
WB_API wb_tensor *wb_sin(wb_tensor *x);
/** The cosine; x in radians. */
WB_API wb_tensor *wb_cos(wb_tensor *x);
/** The error function. */
WB_API wb_tensor *wb_erf(wb_tensor *x);
/** The largest integer that is not above x.  Gradient 0. */
WB_API wb_tensor *wb_floor(wb_tensor *x);
/** Whether x is neither infinite nor NaN.  Result bool; no gradient. */
WB_API wb_tensor *wb_isfinite(wb_tensor *x);
/** Whether x is NaN.  Result bool; no gradient. */
WB_API wb_tensor *wb_isnan(wb_tensor *x);
/** Logical not.  x bool; no gradient. */
WB_API wb_tensor *wb_not(wb_tensor *x);

/* Activations.  NaN gives NaN.  At -Inf swish, gelu, gelu_erf, mish and hardswish are NaN, because
 * their formulas multiply an infinity by 0; the other activations have their limits.  Where x is
 * NaN, the gradient of relu, leakyrelu, elu, selu and hardswish uses the formula for very negative
 * x. */

/** x itself, the same object, of any dtype. */
WB_API wb_tensor *wb_identity(wb_tensor *x);
/** max(x, 0).  Gradient 1 where x > 0, else 0. */
WB_API wb_tensor *wb_relu(wb_tensor *x);
/** x > 0 ? x : 0.01 x. */
WB_API wb_tensor *wb_leakyrelu(wb_tensor *x);
/** x > 0 ? x : exp(x) - 1. */
WB_API wb_tensor *wb_elu(wb_tensor *x);
/** 1.0507 (x > 0 ? x : 1.6733 (exp(x) - 1)).  (Klambauer et al. 2017) */
WB_API wb_tensor *wb_selu(wb_tensor *x);
/** 1 / (1 + exp(-x)). */
WB_API wb_tensor *wb_sigmoid(wb_tensor *x);
/** log(sigmoid(x)) = -softplus(-x). */
WB_API wb_tensor *wb_logsigmoid(wb_tensor *x);
/** The hyperbolic tangent. */
WB_API wb_tensor *wb_tanh(wb_tensor *x);
/** log(1 + exp(x)), computed as max(x, 0) + log1p(exp(-|x|)). */
WB_API wb_tensor *wb_softplus(wb_tensor *x);
/** x sigmoid(x), also called SiLU. */
WB_API wb_tensor *wb_swish(wb_tensor *x);
/** x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))), the gelu of Flux, "tanh" in PyTorch. */
WB_API wb_tensor *wb_gelu(wb_tensor *x);
/** x/2 (1 + erf(x/sqrt(2))), the default GELU of PyTorch. */
WB_API wb_tensor *wb_gelu_erf(wb_tensor *x);
/** x tanh(softplus(x)).  (Misra 2019) */
WB_API wb_tensor *wb_mish(wb_tensor *x);
/** x min(max(x + 3, 0), 6) / 6.  (Howard et al. 2019) */
WB_API wb_tensor *wb_hardswish(wb_tensor *x);
/** x > 0.5 or x < -0.5 ? x : 0.  NaN gives NaN, and 0 in an ONNX file, where it is Shrink. */
WB_API wb_tensor *wb_hardshrink(wb_tensor *x);
/** min(max(x, 0), 6).  Gradient 1 where 0 <= x <= 6, else 0. */
WB_API wb_tensor *wb_relu6(wb_tensor *x);
/** min(max(x, -1), 1).  Gradient 1 where -1 <= x <= 1, else 0. */
WB_API wb_tensor *wb_hardtanh(wb_tensor *x);
/** min(max(x + 3, 0), 6) / 6. */
WB_API wb_tensor *wb_hardsigmoid(wb_tensor *x);
/** x / (1 + |x|).  NaN at both infinities. */
WB_API wb_tensor *wb_softsign(wb_tensor *x);
/** x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : 0. */
WB_API wb_tensor *wb_softshrink(wb_tensor *x);
/** x - tanh(x). */
WB_API wb_tensor *wb_tanhshrink(wb_tensor *x);
/** x <= 1 ? 0 : x, also called thresholded ReLU. */
WB_API wb_tensor *wb_trelu(wb_tensor *x);
/** x tanh(x).  (Roy et al. 2019) */
WB_API wb_tensor *wb_lisht(wb_tensor *x);
/** log(cosh(x)). */
WB_API wb_tensor *wb_logcosh(wb_tensor *x);

/** wb_elu, the celu of NNlib and PyTorch with alpha = 1. */
WB_API wb_tensor *wb_celu(wb_tensor *x);
/** x > 0 ? x : a x, with a random slope a of [1/8, 1/3) for each element, in test mode too, as in
 * NNlib. */
WB_API wb_tensor *wb_rrelu(wb_tensor *x);

/* Activations with a number.  The function without _of has the default of NNlib.  Error: a number
 * that is NaN or outside the range in the comment. */

/** x > 0 ? x : slope x. */
WB_API wb_tensor *wb_leakyrelu_of(wb_tensor *x, double slope);
/** x > 0 ? x : alpha (exp(x) - 1). */
WB_API wb_tensor *wb_elu_of(wb_tensor *x, double alpha);
/** x > 0 ? x : alpha (exp(x / alpha) - 1).  alpha > 0. */
WB_API wb_tensor *wb_celu_of(wb_tensor *x, double alpha);
/** x > lambda ? x - lambda : x < -lambda ? x + lambda : 0.  lambda >= 0. */
WB_API wb_tensor *wb_softshrink_of(wb_tensor *x, double lambda);
/** x <= theta ? 0 : x. */
WB_API wb_tensor *wb_trelu_of(wb_tensor *x, double theta);
/** wb_rrelu with slopes of [low, high).  Error: low is above high. */
WB_API wb_tensor *wb_rrelu_of(wb_tensor *x, double low, double high);
/** x > 0 ? x : slope x, with a tensor of slopes that broadcasts to x, such as a parameter: [C,1,1]
 * has one slope for each channel of x [N,C,H,W]. */
WB_API wb_tensor *wb_prelu(wb_tensor *x, wb_tensor *slope);

/* ---- elementwise, two operands --------------------------------------------------------------- */

/* x and y have any dtype but bool, unless the comment of the function names dtypes; wb_eq, wb_ne
 * and wb_where take bool too.  In C and C++ x or y may also be a number, wb_add(x, 1), except in
 * wb_and and wb_or. */

/** x + y. */
WB_API wb_tensor *wb_add(wb_tensor *x, wb_tensor *y);
/** x - y. */
WB_API wb_tensor *wb_sub(wb_tensor *x, wb_tensor *y);
/** x y. */
WB_API wb_tensor *wb_mul(wb_tensor *x, wb_tensor *y);
/** x / y.  For integers the result is an integer, rounded towards 0, and 0 where y is 0. */
WB_API wb_tensor *wb_div(wb_tensor *x, wb_tensor *y);
/** x to the power of y.  Floating dtypes only.  The gradient with respect to x is 0 where y is 0;
 * the gradient with respect to y is 0 where x <= 0. */
WB_API wb_tensor *wb_pow(wb_tensor *x, wb_tensor *y);
/** The greater of x and y; NaN if one of them is NaN.  Where they are equal, x gets the
 * gradient. */
WB_API wb_tensor *wb_maximum(wb_tensor *x, wb_tensor *y);
/** The lesser of x and y; NaN if one of them is NaN.  Where they are equal, x gets the gradient. */
WB_API wb_tensor *wb_minimum(wb_tensor *x, wb_tensor *y);

/** min(max(x, low), high): x within two bounds, tensors or numbers.  A bound that x equals leaves
 * the gradient to x.  If low is above high, high.  NaN gives NaN. */
WB_API wb_tensor *wb_clamp(wb_tensor *x, wb_tensor *low, wb_tensor *high);
/** x + t (y - x), the number at t between x and y: x where t is 0, y where t is 1, exactly, if
 * y - x is finite; t may be outside of [0, 1].  Tensors or numbers, of floating dtypes, whose
 * shapes broadcast as those of wb_add: wb_lerp(old, new, 0.1), wb_lerp(real, fake, wb_rand(n, 1)).
 * All three get gradients.  Errors: integers; different dtypes; shapes that do not broadcast. */
WB_API wb_tensor *wb_lerp(wb_tensor *x, wb_tensor *y, wb_tensor *t);

/** x == y.  Comparisons have bool results and no gradient; with NaN only wb_ne is true. */
WB_API wb_tensor *wb_eq(wb_tensor *x, wb_tensor *y);
/** x != y. */
WB_API wb_tensor *wb_ne(wb_tensor *x, wb_tensor *y);
/** x < y. */
WB_API wb_tensor *wb_lt(wb_tensor *x, wb_tensor *y);
/** x <= y. */
WB_API wb_tensor *wb_le(wb_tensor *x, wb_tensor *y);
/** x > y. */
WB_API wb_tensor *wb_gt(wb_tensor *x, wb_tensor *y);
/** x >= y. */
WB_API wb_tensor *wb_ge(wb_tensor *x, wb_tensor *y);
/** Logical and.  x and y bool; no gradient. */
WB_API wb_tensor *wb_and(wb_tensor *x, wb_tensor *y);
/** Logical or.  x and y bool; no gradient. */
WB_API wb_tensor *wb_or(wb_tensor *x, wb_tensor *y);

/** condition ? x : y, for each element; the three operands broadcast.  `condition` is bool and has
 * no gradient; x and y have one dtype, which may be bool. */
WB_API wb_tensor *wb_where(wb_tensor *condition, wb_tensor *x, wb_tensor *y);

/** x in another dtype; all pairs are allowed.  Floats become integers by rounding towards 0; a
 * value outside the range of the integer dtype becomes the nearest value in the range, and NaN
 * becomes 0.  Integers wrap around in a narrower dtype.  A bool is true where x is not 0, also
 * where x is NaN.  A conversion between floating dtypes has a gradient, in x's dtype; other
 * conversions have none. */
WB_API wb_tensor *wb_astype(wb_tensor *x, wb_dtype dtype);

#ifndef __cplusplus
/* x itself if x is a tensor; wb_scalar or wb_scalar_int of x if x is a number. */
#define WB_OPERAND_(x) WB_ONCE_(WB_OPERAND_OF_, x, )
#define WB_OPERAND_OF_(x, _)                                                                \
    _Generic(x, wb_tensor *: wb_operand_, void *: wb_operand_,                              \
        long: wb_whole_, long long: wb_whole_, unsigned long: wb_natural_,                  \
        unsigned long long: wb_natural_,                                                    \
        default: wb_this_takes_a_tensor_or_a_number)(x)
static inline wb_tensor *wb_operand_(wb_tensor *x) { return x; }
static inline wb_tensor *wb_this_takes_a_tensor_or_a_number(double x) { return wb_scalar(x); }
static inline wb_tensor *wb_whole_(int64_t x) { return wb_scalar_int(x); }
static inline wb_tensor *wb_natural_(uint64_t x)
{
    return wb_scalar_int(x > INT64_MAX ? INT64_MAX : (int64_t)x);
}
#define wb_add(x, y) wb_add(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_sub(x, y) wb_sub(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_mul(x, y) wb_mul(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_div(x, y) wb_div(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_pow(x, y) wb_pow(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_maximum(x, y) wb_maximum(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_minimum(x, y) wb_minimum(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_eq(x, y) wb_eq(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_ne(x, y) wb_ne(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_lt(x, y) wb_lt(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_le(x, y) wb_le(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_gt(x, y) wb_gt(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_ge(x, y) wb_ge(WB_OPERAND_(x), WB_OPERAND_(y))
#define wb_clamp(x, low, high) wb_clamp((x), WB_OPERAND_(low), WB_OPERAND_(high))
#define wb_lerp(x, y, t) wb_lerp(WB_OPERAND_(x), WB_OPERAND_(y), WB_OPERAND_(t))
#define wb_where(condition, x, y) wb_where((condition), WB_OPERAND_(x), WB_OPERAND_(y))
#endif

/* ---- reductions ------------------------------------------------------------------------------ */

/** Options of reductions.  Reductions take any dtype but bool, unless the comment of the function
 * names dtypes.  Results have x's dtype.  Errors: no such axis; an axis that is given twice. */
#define wb_reduce_options_(OPT, ARG)                                                               \
    OPT(bool, keep, false)                  /* the reduced axes stay, with size 1 */               \
    /* default: all; a negative axis counts from the end */                                        \
    OPT(wb_ints, axes, WB_EMPTY)                                                                   \
    OPT(double, correction, 0)              /* of wb_variance and wb_std: subtracted from n */     \
    /* wb_sum(x, 0, -1): the axes by position */                                                   \
    ARG(int64_t, a1_, INT64_MIN) ARG(int64_t, a2_, INT64_MIN) ARG(int64_t, a3_, INT64_MIN)         \
    ARG(int64_t, a4_, INT64_MIN) ARG(int64_t, a5_, INT64_MIN) ARG(int64_t, a6_, INT64_MIN)         \
    ARG(int64_t, a7_, INT64_MIN) ARG(int64_t, a8_, INT64_MIN)
WB_OPTIONS(wb_reduce_options);

/** The sum over the given axes, by default all: wb_sum(x), wb_sum(x, 1), wb_sum(x, 0, -1),
 * wb_sum(x, .axes = {0, -1}, .keep = true).  f16 and bf16 are summed in f32; integers wrap around.
 * Over an axis of size 0: 0. */
WB_API wb_tensor *wb_sum_with(wb_tensor *x, const wb_reduce_options *o);
/** The mean over some axes.  Floating only.  Over an axis of size 0: NaN. */
WB_API wb_tensor *wb_mean_with(wb_tensor *x, const wb_reduce_options *o);
/** The sum over some axes of the elements that are not NaN.  Floating only.  Of none: 0.  The
 * gradient is 0 where x is NaN. */
WB_API wb_tensor *wb_nansum_with(wb_tensor *x, const wb_reduce_options *o);
/** The mean over some axes of the elements that are not NaN: wb_nanmean(x), wb_nanmean(x, 0).
 * Floating only.  Of none: NaN.  The gradient is 0 where x is NaN. */
WB_API wb_tensor *wb_nanmean_with(wb_tensor *x, const wb_reduce_options *o);
/** The greatest element along some axes; NaN if one of them is NaN.  If several elements are
 * the greatest, each has an equal share of the gradient.  Error: an axis of size 0. */
WB_API wb_tensor *wb_max_with(wb_tensor *x, const wb_reduce_options *o);
/** The least element along some axes; NaN if one of them is NaN.  If several elements are the
 * least, each has an equal share of the gradient.  Error: an axis of size 0. */
WB_API wb_tensor *wb_min_with(wb_tensor *x, const wb_reduce_options *o);
/** sum((x - mean)²) / (n - correction) over the n elements along some axes.  Floating only.  The
 * default of .correction is 0: the biased variance.  wb_variance(x, .correction = 1) is the default
 * of PyTorch's var and of Julia's.  NaN if n is 0, or n and the correction are 1; infinite if the
 * correction is n or more otherwise.  Error: the correction is negative. */
WB_API wb_tensor *wb_variance_with(wb_tensor *x, const wb_reduce_options *o);
/** The standard deviation over some axes, sqrt(wb_variance(x, ...)), with its .correction, whose
 * default is 0.  The gradient is 0 where the deviation is 0. */
WB_API wb_tensor *wb_std_with(wb_tensor *x, const wb_reduce_options *o);
/** The product over some axes.  f16 and bf16 are multiplied in f32; integers wrap around.  Over an
 * axis of size 0: 1.  The gradient is right also with zeros.  It costs a kernel for each doubling
 * of the axis. */
WB_API wb_tensor *wb_prod_with(wb_tensor *x, const wb_reduce_options *o);
/** The p-norm over some axes, sum(|x|^p)^(1/p): wb_norm(x, 2), wb_norm(x, 1, -1), wb_norm(x,
 * INFINITY, .axes = {0, -1}).  p = 0 counts the elements that are not 0; p = INFINITY gives the
 * greatest |x|.  Floating only.  Computed in f32 for f16 and bf16; |x|^p may overflow.  The
 * gradient of an element 0 is 0; that of p = INFINITY is shared as in wb_max.  Errors: p is
 * negative or NaN; an axis of size 0 with p = INFINITY. */
WB_API wb_tensor *wb_norm_with(wb_tensor *x, double p, const wb_reduce_options *o);
/** Whether an element along some axes is not 0 (NaN is not).  Any dtype.  Result bool; no gradient.
 * Over an axis of size 0: false. */
WB_API wb_tensor *wb_any_with(wb_tensor *x, const wb_reduce_options *o);
/** Whether all elements along some axes are not 0, as wb_any.  Over an axis of size 0: true. */
WB_API wb_tensor *wb_all_with(wb_tensor *x, const wb_reduce_options *o);
/** log(sum(exp(x))) over some axes, without overflow: -Inf of elements that are all -Inf, +Inf
 * beside a +Inf.  Floating only.  Gradient: softmax(x); where the result is -Inf, 0; several +Inf
 * share it.  Error: an axis of size 0. */
WB_API wb_tensor *wb_logsumexp_with(wb_tensor *x, const wb_reduce_options *o);
#ifndef __cplusplus
#define wb_sum(...) WB_REDUCE_(wb_sum_with, __VA_ARGS__, )
#define wb_mean(...) WB_REDUCE_(wb_mean_with, __VA_ARGS__, )
#define wb_nansum(...) WB_REDUCE_(wb_nansum_with, __VA_ARGS__, )
#define wb_nanmean(...) WB_REDUCE_(wb_nanmean_with, __VA_ARGS__, )
#define wb_max(...) WB_REDUCE_(wb_max_with, __VA_ARGS__, )
#define wb_min(...) WB_REDUCE_(wb_min_with, __VA_ARGS__, )
#define wb_variance(...) WB_REDUCE_(wb_variance_with, __VA_ARGS__, )
#define wb_logsumexp(...) WB_REDUCE_(wb_logsumexp_with, __VA_ARGS__, )
#define wb_std(...) WB_REDUCE_(wb_std_with, __VA_ARGS__, )
#define wb_prod(...) WB_REDUCE_(wb_prod_with, __VA_ARGS__, )
#define wb_any(...) WB_REDUCE_(wb_any_with, __VA_ARGS__, )
#define wb_all(...) WB_REDUCE_(wb_all_with, __VA_ARGS__, )
#define wb_norm(...) WB_NORM_(__VA_ARGS__, )
#define WB_NORM_(x, p, ...) \
    WB_CALL_WITH_(wb_norm_with((x), (p), WB_GET_(wb_reduce_options, __VA_ARGS__)))
#define WB_REDUCE_(f, x, ...) WB_CALL_WITH_(f((x), WB_GET_(wb_reduce_options, __VA_ARGS__)))
#endif

/** The index of the greatest element along an axis, from 0, i32; the axis is dropped.  x has any
 * dtype but bool.  Among equal elements the first counts; NaN counts as the greatest.  No gradient.
 * Errors: an axis of size 0, or of more than 2^31 elements. */
WB_API wb_tensor *wb_argmax(wb_tensor *x, int axis);
/** The index of the least element along an axis, as wb_argmax; NaN counts as the least. */
WB_API wb_tensor *wb_argmin(wb_tensor *x, int axis);

/** Options of wb_cumsum. */
#define wb_cumsum_options_(OPT, ARG)                                                               \
    OPT(bool, exclusive, false)             /* y[i] is the sum before x[i]; y[0] is 0 */           \
    OPT(bool, reverse, false)               /* sums from the end: y[i] = x[i] + ... + x[n-1] */
WB_OPTIONS(wb_cumsum_options);
/** Cumulative sums along an axis, y[i] = x[0] + ... + x[i], in x's dtype.  Any dtype but bool.
 * f16, bf16 and f32 are summed in f32, with compensated summation.  The CPU adds in order.  A GPU
 * may first add groups of elements; the sum of a group may overflow even if y does not. */
WB_API wb_tensor *wb_cumsum_with(wb_tensor *x, int axis, const wb_cumsum_options *o);
#ifndef __cplusplus
#define wb_cumsum(...) WB_CUMSUM_(__VA_ARGS__, )
#define WB_CUMSUM_(x, axis, ...) \
    WB_CALL_WITH_(wb_cumsum_with((x), (axis), WB_GET_(wb_cumsum_options, __VA_ARGS__)))
#endif

/** Cumulative products along an axis, y[i] = x[0] ... x[i], in x's dtype.  Any dtype but bool.  f16
 * and bf16 are multiplied in f32.  The gradient is right also with zeros.  It costs a kernel for
 * each doubling of the axis; products are grouped, so they may overflow where an order from left to
 * right would not. */
WB_API wb_tensor *wb_cumprod(wb_tensor *x, int axis);

/* ---- shape ----------------------------------------------------------------------------------- */

/* Any dtype.  Results are new tensors; operands do not change. */

/** The elements of x in another shape of the same size.  One dimension may be -1: the library
 * computes it.  wb_reshape(x, 2, -1).  Error: the shape has another size than x. */
WB_API wb_tensor *wb_reshape_array(wb_tensor *x, int ndim, const int64_t *dims);
/** x with its axes reordered: axis i of the result is axis order[i] of x.  wb_permute(x, 0, 2, 1).
 * `order` has each axis once.  Error: a negative axis. */
WB_API wb_tensor *wb_permute_array(wb_tensor *x, int ndim, const int64_t *order);
/** x broadcast to the shape `dims`, which may have more axes in front.  wb_expand(x, 32, 10).
 * Error: a dimension is negative. */
WB_API wb_tensor *wb_expand_array(wb_tensor *x, int ndim, const int64_t *dims);
/** x with its last two axes exchanged.  Error: x has fewer than two. */
WB_API wb_tensor *wb_transpose(wb_tensor *x);
/** x of shape [N, ...] reshaped to [N, features]; [N] becomes [N, 1].  Error: x has no axis. */
WB_API wb_tensor *wb_flatten(wb_tensor *x);
/** x with a new axis of size 1, which is axis `axis` of the result; -1 is the last axis of the
 * result. */
WB_API wb_tensor *wb_unsqueeze(wb_tensor *x, int axis);
/** x without an axis of size 1.  Error: the axis has another size. */
WB_API wb_tensor *wb_squeeze(wb_tensor *x, int axis);

/** Options of wb_slice. */
#define wb_slice_options_(OPT, ARG)                                                                \
    ARG(int64_t, step, 1)
WB_OPTIONS(wb_slice_options);
/** Elements start, start + step, ... before stop along an axis, x[start:stop:step] in Python:
 * wb_slice(x, 1, 0, 4), wb_slice(x, 1, 0, 4, 2).  A negative start or stop counts from the end.
 * Errors: start or stop is outside the axis (they are not clipped), start is above stop, or the
 * step is below 1.
 *
 * A slice of an evaluated tensor is read in place, and `start` is then a run-time argument of the
 * plan.  So a window that moves over a tensor (batches of a dataset, parts of a text) has one plan,
 * also with reshape, permute, flip and further slices between.  The length, stop - start, is part
 * of the plan.
 *
 * If x is not evaluated, its second slice that is read evaluates all of x, so that a loop over its
 * rows computes it once; not if x has more than 2^24 elements.  In these cases each value of
 * `start` needs a plan of its own: x is so large and not evaluated (wb_eval evaluates it), x is
 * computed anew in each step, or the gradient with respect to x is computed. */
WB_API wb_tensor *wb_slice_with(wb_tensor *x, int axis, int64_t start, int64_t stop,
                                const wb_slice_options *o);
/** x with the elements along an axis in reverse order. */
WB_API wb_tensor *wb_flip(wb_tensor *x, int axis);
/** The concatenation of n tensors along an axis: wb_concat(axis, a, b, c).  The tensors have the
 * same dtype, and the same sizes along the other axes.  Error: n is 0. */
WB_API wb_tensor *wb_concat_array(int axis, int n, wb_tensor *const *x);
/** n tensors of the same shape and dtype, joined along a new axis: wb_stack(axis, a, b, c).  The
 * new axis is axis `axis` of the result; -1 is the last axis of the result.  Error: n is 0. */
WB_API wb_tensor *wb_stack_array(int axis, int n, wb_tensor *const *x);
#ifndef __cplusplus
#define wb_reshape(x, ...) wb_reshape_array((x), WB_DIMS_(__VA_ARGS__))
#define wb_permute(x, ...) wb_permute_array((x), WB_DIMS_(__VA_ARGS__))
#define wb_expand(x, ...) wb_expand_array((x), WB_DIMS_(__VA_ARGS__))
#define wb_slice(...) WB_SLICE_(__VA_ARGS__, )
#define WB_SLICE_(x, axis, start, stop, ...) \
    WB_CALL_WITH_(wb_slice_with((x), (axis), (start), (stop), \
                                WB_GET_(wb_slice_options, __VA_ARGS__)))
#define wb_concat(axis, ...) wb_concat_array((axis), WB_TENSORS_(__VA_ARGS__))
#define wb_stack(axis, ...) wb_stack_array((axis), WB_TENSORS_(__VA_ARGS__))
#endif

/** One-hot rows: [..., classes] f32 with 1 at the class of each label, else 0.  `labels` is
 * integer.  No gradient.  Error: `classes` is below 1.
 *
 * A label outside 0 .. classes-1 gives a row of zeros.  It is an error with WEBER_DEBUG=check, and
 * in wb_train and wb_withgradient, if `labels` is in memory that the host can read, and is
 * evaluated, or is a wb_reshape of such a tensor. */
WB_API wb_tensor *wb_onehotbatch(wb_tensor *labels, int64_t classes);
/** The index of the class with the highest score: wb_argmax(scores, -1), i32, without the last
 * axis. */
WB_API wb_tensor *wb_onecold(wb_tensor *scores);

/* ---- products: floating dtypes; f64 is summed in f64, the others in f32 ---------------------- */

/** The matrix product over the last two axes, [..., m, k] · [..., k, n] -> [..., m, n]; the axes
 * before them broadcast.  An operand with one axis is a vector: [k]·[k,n] -> [n], [m,k]·[k] -> [m],
 * [k]·[k] -> [].  x and w have the same dtype.  Error: an operand without axes. */
WB_API wb_tensor *wb_matmul(wb_tensor *x, wb_tensor *w);

/** Sums of products by Einstein's convention: wb_einsum("bij,bjk->bik", x, y).  Each letter names
 * an axis; letters that are not in the result are summed over.  Without "->" the result has the
 * letters that occur once, in alphabetical order.  A letter that occurs twice in one operand takes
 * its diagonal.  Blanks are skipped; "..." is not supported.  Two operands are one batched matrix
 * product; more are contracted from left to right.  Operands have one dtype, not bool; integers
 * wrap around.  Error: a text that does not fit the operands, with the letter and the sizes. */
WB_API wb_tensor *wb_einsum_array(const char *text, int n, wb_tensor *const *operands);
#ifndef __cplusplus
#define wb_einsum(text, ...) wb_einsum_array((text), WB_TENSORS_(__VA_ARGS__))
#endif

/** y = x·wᵀ + b.   x [..., in]   w [out, in]   b [out] or WB_NONE   y [..., out].  All operands
 * have the same dtype. */
WB_API wb_tensor *wb_linear(wb_tensor *x, wb_tensor *w, wb_tensor *b);

/** Options of wb_conv and wb_conv_transpose.  A list has one number for all axes of space, or one
 * for each. */
#define wb_conv_options_(OPT, ARG)                                                                 \
    OPT(wb_ints, stride, WB_INTS(1))                                                               \
    /* also {top, bottom, left, right}: two for each axis */                                       \
    OPT(wb_ints, pad, WB_INTS(0))                                                                  \
    OPT(wb_ints, dilation, WB_INTS(1))                                                             \
    OPT(int64_t, groups, 1)                 /* number of groups of channels; divides C and K */    \
    OPT(wb_ints, outpad, WB_INTS(0))        /* of wb_conv_transpose: see there */
WB_OPTIONS(wb_conv_options);
/** Cross-correlation over the axes of space: wb_conv(x, w, b, .pad = {1}).
 *   x [N, C, H, W]   w [K, C/groups, kh, kw]   b [K] or WB_NONE   y [N, K, H', W']
 *   H' = (H + top + bottom - (kh - 1) dilation - 1) / stride + 1, rounded down
 *   y[n,k,i,j] = b[k] + sum over c, p, q of w[k,c,p,q] x[n, c, i stride + p dilation - top, ...]
 * W' and the last index of x are computed in the same way, from kw, left, right, j and q.  x is 0
 * outside its bounds.  The formula is for one group; with more, c runs over the input channels of
 * the group of output channel k.  With x [N, C, L], w [K, C/groups, k] and with x [N, C, D, H, W],
 * w [K, C/groups, kd, kh, kw] the formula has one or three axes.  Errors: the kernel is larger than
 * the padded x; .groups does not divide C and K; .outpad is given. */
WB_API wb_tensor *wb_conv_with(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *o);

/** Transposed convolution: the gradient of wb_conv with respect to its x, plus b.
 *   x [N, C, H, W]   w [C, K/groups, kh, kw]   b [K] or WB_NONE   y [N, K, H', W']
 *   H' = (H - 1) stride - top - bottom + (kh - 1) dilation + 1 + outpad
 * x and w may have one or three axes of space, as in wb_conv.  wb_conv has the same output size for
 * several input sizes; .outpad selects one of these.  .outpad adds rows below and columns to the
 * right, fewer than the stride.  Errors: H' or W' is below 1; .groups does not divide C. */
WB_API wb_tensor *wb_conv_transpose_with(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                         const wb_conv_options *o);

/** Options of wb_maxpool and wb_meanpool.  A list has one number for all axes of space, or one for
 * each. */
#define wb_pool_options_(OPT, ARG)                                                                 \
    OPT(wb_ints, window, WB_REQUIRED(WB_EMPTY))                                                    \
    OPT(wb_ints, stride, WB_EMPTY)          /* default: the window */                              \
    /* also {top, bottom, left, right}: two for each axis */                                       \
    OPT(wb_ints, pad, WB_INTS(0))
WB_OPTIONS(wb_pool_options);
/** The greatest element of each window, [N, C, H, W] -> [N, C, H', W']: wb_maxpool(x, .window =
 * {2}); also of [N, C, L] and [N, C, D, H, W].  H' is that of wb_conv, with the height of the
 * window as kh.  Padding is never the greatest; NaN counts as the greatest.  Among equal elements
 * the first gets the gradient.  Errors: padding that is not smaller than the window; a window that
 * is larger than the padded x. */
WB_API wb_tensor *wb_maxpool_with(wb_tensor *x, const wb_pool_options *o);
/** The mean of each window, with the shapes and errors of wb_maxpool; padding counts as zeros. */
WB_API wb_tensor *wb_meanpool_with(wb_tensor *x, const wb_pool_options *o);
#ifndef __cplusplus
#define wb_conv(...) WB_CONV_(wb_conv_with, __VA_ARGS__, )
#define wb_conv_transpose(...) WB_CONV_(wb_conv_transpose_with, __VA_ARGS__, )
#define WB_CONV_(f, x, w, b, ...) \
    WB_CALL_WITH_(f((x), (w), (b), WB_GET_(wb_conv_options, __VA_ARGS__)))
#define wb_maxpool(x, ...) \
    WB_CALL_WITH_(wb_maxpool_with((x), WB_GET_(wb_pool_options, __VA_ARGS__)))
#define wb_meanpool(x, ...) \
    WB_CALL_WITH_(wb_meanpool_with((x), WB_GET_(wb_pool_options, __VA_ARGS__)))
#endif

/* ---- softmax, attention, dropout: floating --------------------------------------------------- */

/** exp(x - max) / sum(exp(x - max)) over the last axis.  If a row has elements +Inf, these share
 * the sum 1 equally, and the others give 0.  If all elements of a row are -Inf, all share it
 * equally.  Error: x has no axis. */
WB_API wb_tensor *wb_softmax(wb_tensor *x);
/** log(softmax(x)) over the last axis, computed as x - max - log(sum(exp(x - max))).  Error: x has
 * no axis. */
WB_API wb_tensor *wb_logsoftmax(wb_tensor *x);
/** wb_softmax over any one axis. */
WB_API wb_tensor *wb_softmax_over(wb_tensor *x, int axis);
/** wb_logsoftmax over any one axis. */
WB_API wb_tensor *wb_logsoftmax_over(wb_tensor *x, int axis);

/** a sigmoid(b), where a is the first half of x along the last axis, and b the second: [..., 2 n]
 * -> [..., n].  Error: x has no axis, or the axis has an odd size.  (Dauphin et al.  2017) */
WB_API wb_tensor *wb_glu(wb_tensor *x);
/** wb_glu over any one axis. */
WB_API wb_tensor *wb_glu_over(wb_tensor *x, int axis);

/** (x - mean) / sqrt(variance + eps) over the last n_axes axes, with the biased variance.  Errors:
 * n_axes is below 1 or above the number of axes; eps is negative. */
WB_API wb_tensor *wb_normalize(wb_tensor *x, int n_axes, double eps);

/** softmax(q·kᵀ / sqrt(d))·v over the last two axes; where `mask` is false the weight is 0.
 *   q [..., Tq, d]   k [..., Tk, d]   v [..., Tk, e]   y [..., Tq, e]
 *   mask bool, broadcast to [..., Tq, Tk], or WB_NONE
 * The axes before the last two broadcast.  q, k and v have the same dtype; the mask has no
 * gradient.  A query whose keys are all masked gives zeros.  NaN in k has no effect where it is
 * masked; in v it has one, as in PyTorch, since the weight 0 times NaN is NaN: wb_where(kept, v, 0)
 * takes it out.  In f16 and bf16 the scores q·kᵀ / sqrt(d) have that dtype unless a backend's
 * kernel computes all: keys whose scores are nearly equal may exchange their weights, and scores of
 * f16 above 65504 are infinite.
 *
 * Gradient, with p the weights and g the gradient of y:
 *   dv = pᵀ·g   dq = ds·k / sqrt(d)   dk = dsᵀ·q / sqrt(d)   ds = p (g·vᵀ - sum(p (g·vᵀ)))
 * The dot is the matrix product, other products are elementwise; the sum is over the last axis.
 *
 * Some backends have a fused kernel, which stores no [Tq, Tk] matrix.  They use it without a mask
 * or with wb_causal_mask(T, T), if q, k and v have four axes and none is broadcast.  (Dao et al.
 * 2022) */
WB_API wb_tensor *wb_attention(wb_tensor *q, wb_tensor *k, wb_tensor *v, wb_tensor *mask);
/** The weights of wb_attention as a tensor, softmax(q·kᵀ / sqrt(d)): [..., Tq, d], [..., Tk, d] ->
 * [..., Tq, Tk].  `mask` broadcasts to that: bool, with weight 0 where it is false, or floating and
 * added to the scores, or WB_NONE.  A query whose keys are all masked, by a bool mask, has weights
 * 0.  wb_matmul(weights, v) is the attention with a bias, and with dropout that of
 * wb_dropout(weights, p).  f16 and bf16 are rounded after each operation.  Gradient: that of
 * wb_softmax.  Errors: q or k is not floating, or has less than two axes; different d; leading axes
 * that do not broadcast; a mask that is neither bool nor floating, or does not broadcast to
 * [..., Tq, Tk], also one with more axes. */
WB_API wb_tensor *wb_attention_scores(wb_tensor *q, wb_tensor *k, wb_tensor *mask);
/** The mask of causal attention, bool [queries, keys]: true where the index of the key is at most
 * the index of the query. */
WB_API wb_tensor *wb_causal_mask(int64_t queries, int64_t keys);

/** Options of wb_rotary. */
#define wb_rotary_options_(OPT, ARG)                                                               \
    OPT(double, base, 10000)                                                                       \
    OPT(bool, pairs, false)                 /* rotates x_2i with x_2i+1, as in the paper */
WB_OPTIONS(wb_rotary_options);
/** x with its features rotated by their positions: wb_rotary(x, positions, .base = 5e5).  (Su et
 * al. 2021)
 *   y_i = x_i cos(a) - x_j sin(a)   y_j = x_j cos(a) + x_i sin(a)   j = i + D/2
 *   a = position base^(-2i / D) for i < D/2
 *   x [..., T, D], floating   positions [T], integers or floating, below 1e6   y as x
 * With .pairs, x_2i and x_2i+1 are rotated by the angle of i.  Dot products of rotated vectors
 * depend on the differences of positions only.  Angles are f32, for an f64 x f64.  The positions
 * have no gradient if they are integers.  Errors: D is odd; the base is not positive; shapes that
 * do not fit. */
WB_API wb_tensor *wb_rotary_with(wb_tensor *x, wb_tensor *positions, const wb_rotary_options *o);
#ifndef __cplusplus
#define wb_rotary(x, ...) WB_ROTARY_(x, __VA_ARGS__, )
#define WB_ROTARY_(x, positions, ...) \
    WB_CALL_WITH_(wb_rotary_with((x), (positions), WB_GET_(wb_rotary_options, __VA_ARGS__)))
#endif

/** x with each element set to 0 with probability p, and the others divided by 1 - p.  wb_dropout
 * does this in train mode and in test mode; the layer wb_Dropout only in train mode.  The choice of
 * elements depends on wb_seed and on the calls since then that use random numbers, not on the
 * device, threads or time of evaluation.  p = 1 gives zeros.  Error: p outside [0, 1]. */
WB_API wb_tensor *wb_dropout(wb_tensor *x, double p);

/** 1 with the probability p, else 0, for each element of p, in p's dtype: wb_bernoulli(wb_full(0.3,
 * 2, 5)).  p floating.  No gradient.  Seed and devices as in wb_dropout. */
WB_API wb_tensor *wb_bernoulli(wb_tensor *p);
/** n indices along the last axis of `weights`, i32, each drawn with a probability in proportion to
 * its weight: [..., classes] -> [..., n].  Without `replacement` no index occurs twice in a row.
 * Weights of 0 or less are not drawn, unless too few others are left.  `weights` floating.  No
 * gradient.  It draws 2 classes numbers for a row, or 2 n classes with `replacement`.  Seed and
 * devices as in wb_dropout, except that two indices whose draws tie to the last bit may differ.
 * Errors: no axis; no classes; n is negative, or above the number of classes without `replacement`.
 * */
WB_API wb_tensor *wb_multinomial(wb_tensor *weights, int64_t n, bool replacement);

#ifdef __cplusplus
}
#endif
#endif
