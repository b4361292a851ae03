/* Rotary positions (Su et al. 2021). */
#include "nn/layer.h"

#include <math.h>

/* Returns the angles [T, half] of the positions [T].  Angle i of a position is position base^(-i /
 * half). */
static wb_tensor *rotary_angles(wb_tensor *positions, int64_t half, double base, wb_dtype t)
{
    wb_tensor *rate = wb_exp(wb_mul(wb_arange(half, t), wb_scalar(-log(base) / (double)half)));
    wb_tensor *at = wb_reshape(wb_astype(positions, t), -1, 1);
    return rate && at ? wb_mul(at, rate) : NULL;
}

/* Returns one of the two parts of x, [..., T, D], that are rotated together, [..., T, D / 2]. */
static wb_tensor *rotary_half_of(wb_tensor *x, int i, bool pairs)
{
    const int64_t n = x->dims[x->ndim - 1];
    return pairs ? wb_slice(x, -1, i, n, 2) : wb_slice(x, -1, i * n / 2, (i + 1) * n / 2);
}

static wb_tensor *rotary(wb_tensor *x, wb_tensor *positions, const wb_rotary_options *options)
{
    wb_rotary_options o;
    if (!wb__read_options("rotary", wb_rotary_options, &o, options, NULL)) return NULL;
    if (!x && wb__null("rotary", "x")) return NULL;
    if (!wb__operand("rotary", x) || !wb__operand("rotary", positions)) return NULL;
    const double base = o.base;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    if (!wb__dtype_float(dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "rotary: x is floating, got %s", wb_describe(x));
    if (x->ndim < 2 || x->dims[x->ndim - 1] % 2 || positions->ndim != 1 ||
        positions->dims[0] != x->dims[x->ndim - 2])
        return wb__fail_null(WB_ERROR_SHAPE, "rotary: x %s and positions %s: want [...,T,D] with "
                             "an even D, and [T]", wb_describe(x), wb_describe(positions));
    if (!(base > 0)) return wb__fail_null(WB_ERROR_ARGUMENT, "rotary: the base is %g", base);
    wb_tensor *angle = rotary_angles(positions, x->dims[x->ndim - 1] / 2, base,
                                     dtype == WB_F64 ? WB_F64 : WB_F32);
    wb_tensor *c = wb_astype(wb_cos(angle), dtype), *s = wb_astype(wb_sin(angle), dtype);
    wb_tensor *a = rotary_half_of(x, 0, o.pairs), *b = rotary_half_of(x, 1, o.pairs);
    wb_tensor *y[2] = {wb_sub(wb_mul(a, c), wb_mul(b, s)), wb_add(wb_mul(b, c), wb_mul(a, s))};
    if (!y[0] || !y[1]) return NULL;
    if (!o.pairs) return wb_concat_array(-1, 2, y);
    wb_tensor *both = wb_stack_array(-1, 2, y);
    return both ? wb_reshape_array(both, x->ndim, x->dims) : NULL;
}

wb_tensor *wb_rotary_with(wb_tensor *x, wb_tensor *positions, const wb_rotary_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, rotary(x, positions, o));
}
