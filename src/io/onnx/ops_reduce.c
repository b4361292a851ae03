/* Reductions over axes, the places of extremes, the greatest elements, cumulative sums. */
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <math.h>

static wb_tensor *onnx_reduce_refuse_dtype(const wb__onnx_call *c, const wb_tensor *x)
{
    wb__onnx_refuse(c, WB_ERROR_DTYPE, "the input is %s, which the operator does not take here",
                    wb_describe(x));
    return NULL;
}

/* Returns the options of the reductions of Weber that have no function with a mask. */
static wb_reduce_options onnx_reduce_options(const wb_tensor *x, unsigned mask, bool keep)
{
    wb_reduce_options o = WB__OPTIONS(wb_reduce_options, .keep = keep);
    int64_t axes[WB_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->ndim; i++)
        if (mask >> i & 1) axes[n++] = i;
    wb_ints_set(o.axes, n, axes);
    return o;
}

/* Returns the number of elements that become one. */
static int64_t onnx_reduce_count(const wb_tensor *x, unsigned mask)
{
    int64_t n = 1;
    for (int i = 0; i < x->ndim; i++)
        if (mask >> i & 1) n *= x->dims[i];
    return n;
}

/* Returns the result of a reduction of no elements, whose results all are `value`. */
static wb_tensor *onnx_reduce_of_nothing(const wb_tensor *x, unsigned mask, bool keep, double value)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!(mask >> i & 1) || keep) dims[ndim++] = mask >> i & 1 ? 1 : x->dims[i];
    return wb_full_array(value, (wb_dtype)x->dtype, ndim, dims);
}

static wb_tensor *onnx_reduce_sum_of(wb_tensor *x, unsigned mask, bool keep)
{
    return mask ? wb__reduce(WB__OP_sum, x, mask, keep) : x;
}

/* Returns the greatest or smallest elements.  Of no elements it is the number that every element
 * changes. */
static wb_tensor *onnx_reduce_extreme(wb_tensor *x, unsigned mask, bool keep, bool greatest)
{
    if (!x || !mask) return x;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    if (dtype == WB_BOOL)
        return wb__as(onnx_reduce_extreme(wb_astype(x, WB_U8), mask, keep, greatest), WB_BOOL);
    if (onnx_reduce_count(x, mask))
        return wb__reduce(greatest ? WB__OP_max : WB__OP_min, x, mask, keep);
    const int bits = (int)wb_dtype_bytes(dtype) * 8 - 1;
    double value = greatest ? -INFINITY : INFINITY;
    if (dtype == WB_U8) value = greatest ? 0 : 255;
    else if (!wb__dtype_float(dtype)) value = greatest ? -ldexp(1, bits) : ldexp(1, bits) - 1;
    return onnx_reduce_of_nothing(x, mask, keep, value);
}

/* Returns the mean, for integers rounded towards 0. */
static wb_tensor *onnx_reduce_mean_of(const wb__onnx_call *c, wb_tensor *x, unsigned mask,
                                      bool keep)
{
    const wb_dtype dtype = (wb_dtype)x->dtype;
    const int64_t n = onnx_reduce_count(x, mask);
    if (!mask) return x;
    if (wb__dtype_float(dtype)) return wb__mean(x, mask, keep);
    if (!n || !wb__holds(dtype, (double)n)) return onnx_reduce_refuse_dtype(c, x);
    return wb_div(onnx_reduce_sum_of(x, mask, keep), wb__literal((double)n, dtype));
}

/* Returns the square root of the sum of squares, for integers rounded towards 0. */
static wb_tensor *onnx_reduce_length_of(wb_tensor *x, unsigned mask, bool keep)
{
    const wb_dtype dtype = (wb_dtype)x->dtype;
    if (!mask) return wb_abs(x);
    if (wb__dtype_float(dtype)) {
        const wb_reduce_options o = onnx_reduce_options(x, mask, keep);
        return wb_norm_with(x, 2, &o);
    }
    wb_tensor *sum = onnx_reduce_sum_of(wb__as(wb_square(x), WB_I64), mask, keep);
    return wb__as(wb_sqrt(wb__as(sum, WB_F64)), dtype);
}

static wb_tensor *onnx_reduce_log_sum_exp(wb_tensor *x, unsigned mask, bool keep)
{
    if (!mask) return x;
    if (!onnx_reduce_count(x, mask)) return onnx_reduce_of_nothing(x, mask, keep, -INFINITY);
    const wb_reduce_options o = onnx_reduce_options(x, mask, keep);
    return wb_logsumexp_with(x, &o);
}

static wb_tensor *onnx_reduce_product_of(wb_tensor *x, unsigned mask, bool keep)
{
    const wb_reduce_options o = onnx_reduce_options(x, mask, keep);
    return mask ? wb_prod_with(x, &o) : x;
}

/* Returns x reduced by `kind` over the axes in `mask`.  Without axes (mask 0) each element is
 * reduced by itself.  f16 and bf16 are computed in f32. */
static wb_tensor *onnx_reduce_by_kind(const wb__onnx_call *c, wb__onnx_reduction kind, wb_tensor *x,
                                      unsigned mask, bool keep)
{
    const wb_dtype dtype = (wb_dtype)x->dtype;
    const bool greatest = kind == WB__ONNX_REDUCE_MAX;
    if (dtype == WB_BOOL && !greatest && kind != WB__ONNX_REDUCE_MIN)
        return onnx_reduce_refuse_dtype(c, x);
    switch (kind) {
    case WB__ONNX_REDUCE_SUM: return onnx_reduce_sum_of(x, mask, keep);
    case WB__ONNX_REDUCE_MEAN: return onnx_reduce_mean_of(c, x, mask, keep);
    case WB__ONNX_REDUCE_MAX:
    case WB__ONNX_REDUCE_MIN: return onnx_reduce_extreme(x, mask, keep, greatest);
    case WB__ONNX_REDUCE_PROD: return onnx_reduce_product_of(x, mask, keep);
    case WB__ONNX_REDUCE_L1: return onnx_reduce_sum_of(wb_abs(x), mask, keep);
    case WB__ONNX_REDUCE_L2: return onnx_reduce_length_of(x, mask, keep);
    case WB__ONNX_REDUCE_LOG_SUM:
        return wb__as(wb_log(onnx_reduce_sum_of(wb__wide(x), mask, keep)), dtype);
    case WB__ONNX_REDUCE_LOG_SUM_EXP: return onnx_reduce_log_sum_exp(x, mask, keep);
    case WB__ONNX_REDUCE_SUM_SQUARE: break;
    }
    return wb__as(onnx_reduce_sum_of(wb_square(wb__wide(x)), mask, keep), dtype);
}

wb_tensor *wb__onnx_reduced(const wb__onnx_call *c, wb__onnx_reduction kind)
{
    wb_tensor *x = c->in[0];
    int axes[WB_MAX_DIMS];
    const int n = wb__onnx_axes(c, 1, x->ndim, axes);
    if (n == -2) return NULL;
    unsigned mask = 0;
    for (int i = 0; i < n; i++) mask |= 1u << axes[i];
    if (n <= 0 && !wb__onnx_int(c, "noop_with_empty_axes"))
        mask = (1u << x->ndim) - 1;
    wb_tensor *y = onnx_reduce_by_kind(c, kind, x, mask, wb__onnx_int(c, "keepdims") != 0);
    return y == x ? wb__unchanged(x) : y;
}


/* ---- places ---------------------------------------------------------------------------------- */

/* Returns the places of the extremes.  Weber has the first of equal ones; the last one is the first
 * of the reversed axis. */
wb_tensor *wb__onnx_extreme_place(const wb__onnx_call *c, wb_tensor *(*place)(wb_tensor *, int))
{
    wb_tensor *x = c->in[0];
    const bool last = wb__onnx_int(c, "select_last_index") != 0;
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (axis < 0) return NULL;
    wb_tensor *y = wb__as(place(last ? wb_flip(x, axis) : x, axis), WB_I64);
    if (last) y = wb_sub(wb__literal((double)x->dims[axis] - 1, WB_I64), y);
    return wb__onnx_int(c, "keepdims") ? wb_unsqueeze(y, axis) : y;
}

/* Computes TopK; k is an attribute, or input 1.  Equal elements are in the order of their places;
 * an order that the operator leaves open (sorted = 0) is the sorted one. */
bool wb__onnx_top_k(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *place = NULL;
    int64_t k = wb__onnx_int(c, "k");
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (axis < 0 || !wb__onnx_input_int(c, 1, &k)) return false;
    if (k < 0 || k > x->dims[axis])
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "k is %lld; it is 0 to the size of axis %d of %s",
                               (long long)k, axis, wb_describe(x));
    const wb_topk_options o = WB__OPTIONS(wb_topk_options,
                                          .smallest = !wb__onnx_int(c, "largest"));
    wb_tensor *y = wb_topk_with(x, k, axis, &place, &o);
    if (wb__onnx_wants(c, 1) && !(c->out[1] = wb__as(place, WB_I64))) return false;
    return wb__onnx_give(c, y);
}

/* ---- along an axis --------------------------------------------------------------------------- */

/* Returns the axis of CumSum or CumProd, and sets *exclusive and *reverse to the options; -1 with
 * the error set. */
static int onnx_reduce_read_cumulative(wb__onnx_call *c, bool *exclusive, bool *reverse)
{
    int64_t given = 0;
    if (!wb__onnx_input_int(c, 1, &given)) return -1;
    *exclusive = wb__onnx_int(c, "exclusive") != 0;
    *reverse = wb__onnx_int(c, "reverse") != 0;
    return wb__onnx_axis(c, given, c->in[0]->ndim);
}

bool wb__onnx_cum_sum(wb__onnx_call *c)
{
    wb_cumsum_options o = WB__OPTIONS(wb_cumsum_options);
    const int axis = onnx_reduce_read_cumulative(c, &o.exclusive, &o.reverse);
    return axis >= 0 && wb__onnx_give(c, wb_cumsum_with(c->in[0], axis, &o));
}

/* Computes CumProd.  Without the last element, and with 1 before the first, the products are the
 * exclusive ones. */
bool wb__onnx_cum_prod(wb__onnx_call *c)
{
    bool exclusive, reverse;
    const int axis = onnx_reduce_read_cumulative(c, &exclusive, &reverse);
    if (axis < 0) return false;
    wb_tensor *x = c->in[0];
    const int64_t n = x->dims[axis];
    if (reverse) x = wb_flip(x, axis);
    if (exclusive && n) x = wb_pad(wb_slice(x, axis, 0, n - 1), axis, 1, 0, .value = 1);
    x = wb_cumprod(x, axis);
    return wb__onnx_give(c, reverse ? wb_flip(x, axis) : x);
}
