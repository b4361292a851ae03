/* Reductions and running products that are composed of other operations, so that their gradients
 * are those of these operations. */
#include "engine/ops/op.h"

#include <math.h>
#include <string.h>

wb_tensor *(wb_clamp)(wb_tensor *x, wb_tensor *low, wb_tensor *high)
{
    for (int i = 0; i < 3; i++)
        if (!wb__operand("clamp", (wb_tensor *[]){x, low, high}[i])) return NULL;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, (wb_minimum)((wb_maximum)(x, low), high));
}

/* Returns x, or, if x is a number, x in the dtype of `like`. */
static wb_tensor *number_as_dtype_of(wb_tensor *x, const wb_tensor *like)
{
    if (!(x->flags & WB__WEAK)) return x;
    return wb_add(x, wb_full_array(0, (wb_dtype)like->dtype, 0, NULL));
}

/* Returns x + t (y - x), computed from the nearer end, so that both ends are exact. */
wb_tensor *(wb_lerp)(wb_tensor *x, wb_tensor *y, wb_tensor *t)
{
    if (!wb__operand("lerp", x) || !wb__operand("lerp", y) || !wb__floating("lerp", t)) return NULL;
    const wb__frame f = wb__frame_begin();
    if (x->flags & y->flags & WB__WEAK) x = number_as_dtype_of(x, t);
    wb_tensor *way = wb_sub(y, x);
    if (!way || !wb__floating("lerp", way)) return wb__frame_end(f, NULL);
    t = number_as_dtype_of(t, way);
    if (!t) return wb__frame_end(f, NULL);
    wb_tensor *from_y = wb_sub(y, wb_mul(wb_sub(wb_scalar(1), t), way));
    return wb__frame_end(f, wb_where(wb_lt(wb_abs(t), wb_scalar(0.5)), wb_add(x, wb_mul(t, way)),
                                     from_y));
}

static wb_tensor *literal_like(const wb_tensor *like, double v)
{
    return like ? wb__literal(v, (wb_dtype)like->dtype) : NULL;
}

/* Returns x to the power p, with the value 0 and the gradient 0 where x is 0. */
static wb_tensor *power_with_zero(wb_tensor *x, double p)
{
    wb_tensor *zero = wb_eq(x, literal_like(x, 0)), *safe = wb_where(zero, literal_like(x, 1), x);
    return wb_where(zero, literal_like(x, 0),
                    p == 0.5 ? wb_sqrt(safe) : wb_pow(safe, literal_like(x, p)));
}

wb_tensor *wb__root_of(wb_tensor *x) { return x ? power_with_zero(x, 0.5) : NULL; }

static wb_tensor *powers_norm(wb_tensor *x, double p, const wb_reduce_options *options)
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__floating("norm", x) || !wb__read_axes("norm", x, options, &o, &mask)) return NULL;
    if (!(p >= 0))
        return wb__fail_null(WB_ERROR_ARGUMENT, "norm: p is %g; it must be 0 or more", p);
    const wb_dtype dtype = (wb_dtype)x->dtype;
    x = wb__wide(x);
    if (!x) return NULL;
    if (p == 0) x = wb__as(wb_ne(x, literal_like(x, 0)), (wb_dtype)x->dtype);
    else x = p == 2 ? wb_square(x) : wb_abs(x);
    if (p != 0 && p != 1 && p != 2 && !isinf(p)) x = x ? power_with_zero(x, p) : NULL;
    x = wb__reduce(isinf(p) ? WB__OP_max : WB__OP_sum, x, mask, o.keep);
    if (x && p != 0 && p != 1 && !isinf(p)) x = power_with_zero(x, 1 / p);
    return wb__as(x, dtype);
}

wb_tensor *wb_norm_with(wb_tensor *x, double p, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, powers_norm(x, p, o));
}

/* Tests all or any elements by counting those that are 0, or are not.  A count below 2^32 is 0
 * modulo 2^32 only if it is 0. */
static wb_tensor *test_by_count(const char *what, wb_tensor *x, const wb_reduce_options *options,
                                bool all)
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__operand(what, x) || !wb__read_axes(what, x, options, &o, &mask)) return NULL;
    x = wb__as(x, WB_BOOL);
    if (all && x) x = wb_not(x);
    const wb_dtype counts = x && x->size > UINT32_MAX ? WB_I64 : WB_I32;
    x = wb__reduce(WB__OP_sum, wb__as(x, counts), mask, o.keep);
    return x ? all ? wb_eq(x, literal_like(x, 0)) : wb_ne(x, literal_like(x, 0)) : NULL;
}

wb_tensor *wb_any_with(wb_tensor *x, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, test_by_count("any", x, o, false));
}

wb_tensor *wb_all_with(wb_tensor *x, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, test_by_count("all", x, o, true));
}

wb_tensor *wb__around(wb_tensor *x, int axis)
{
    if (!x) return NULL;
    int64_t dims[3] = {1, x->dims[axis], 1};
    for (int i = 0; i < x->ndim; i++)
        if (i != axis) dims[i < axis ? 0 : 2] *= x->dims[i];
    return wb_reshape_array(x, 3, dims);
}

wb_tensor *wb__around_back(wb_tensor *y, const wb_tensor *x, int axis)
{
    if (!y) return NULL;
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = y->dims[1];
    return wb_reshape_array(y, x->ndim, dims);
}

/* Multiplies the halves of the axis until one element is left. */
static wb_tensor *powers_product_along(wb_tensor *x, int axis)
{
    wb_tensor *y = wb__around(x, axis), *rest = NULL;
    int64_t n = x->dims[axis];
    if (!n) {
        int64_t dims[WB_MAX_DIMS];
        memcpy(dims, x->dims, sizeof dims);
        dims[axis] = 1;
        return wb_full_array(1, (wb_dtype)x->dtype, x->ndim, dims);
    }
    for (; n > 1 && y; n /= 2) {
        if (n % 2) {
            wb_tensor *last = wb_slice(y, 1, n - 1, n);
            rest = rest ? wb_mul(rest, last) : last;
        }
        y = wb_mul(wb_slice(y, 1, 0, n / 2), wb_slice(y, 1, n / 2, n / 2 * 2));
    }
    return wb__around_back(rest ? wb_mul(y, rest) : y, x, axis);
}

static bool is_of_numbers(const char *what, const wb_tensor *x)
{
    if (!wb__operand(what, x)) return false;
    if (x->dtype != WB_BOOL) return true;
    return !wb__fail(WB_ERROR_DTYPE, "%s: does not take %s: make integers of it with wb_astype",
                     what, wb_describe(x));
}

static wb_tensor *powers_prod(wb_tensor *x, const wb_reduce_options *options)
{
    wb_reduce_options o;
    unsigned mask;
    if (!is_of_numbers("prod", x) || !wb__read_axes("prod", x, options, &o, &mask)) return NULL;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    wb_tensor *y = wb__wide(x);
    for (int i = 0; i < x->ndim && y; i++)
        if (mask >> i & 1) y = powers_product_along(y, i);
    int64_t dims[WB_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!(mask >> i & 1) || o.keep) dims[ndim++] = mask >> i & 1 ? 1 : x->dims[i];
    y = wb__as(y, dtype);
    return y ? wb__with_device(wb_reshape_array(y, ndim, dims), x->device) : NULL;
}

wb_tensor *wb_prod_with(wb_tensor *x, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, powers_prod(x, o));
}

/* Returns the running products.  Each round multiplies by the element s places before, s = 1, 2, 4
 * ...; after the round an element is the product of the 2 s elements up to it. */
static wb_tensor *powers_cumprod(wb_tensor *x, int axis)
{
    if (!is_of_numbers("cumprod", x)) return NULL;
    const int a = wb__axis("cumprod", x, axis);
    if (a < 0) return NULL;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    wb_tensor *y = wb__wide(x);
    for (int64_t s = 1; s < x->dims[a] && y; s *= 2)
        y = wb_mul(y, wb_pad(wb_slice(y, a, 0, x->dims[a] - s), a, s, 0, .value = 1));
    return y == x ? wb__unchanged(x) : wb__as(y, dtype);
}

wb_tensor *wb_cumprod(wb_tensor *x, int axis)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, powers_cumprod(x, axis));
}
