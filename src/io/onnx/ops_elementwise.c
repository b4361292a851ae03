/* Operators of ONNX that compute each element by itself, and are more than one expression.
 * operators.c has the others, ops_bits.c those of integers that Weber has no operation for. */
#include "io/onnx/ops_common.h"

#include <math.h>

static wb_tensor *onnx_elementwise_number(double v) { return wb__number_of(v); }

/* ---- Clip ------------------------------------------------------------------------------------ */

bool wb__onnx_clip(wb__onnx_call *c)
{
    wb_tensor *low = NULL, *high = NULL, *y = wb__unchanged(c->in[0]);
    if (wb__onnx_attribute(c, "min")) low = onnx_elementwise_number(wb__onnx_real(c, "min"));
    if (wb__onnx_attribute(c, "max")) high = onnx_elementwise_number(wb__onnx_real(c, "max"));
    if (wb__onnx_in(c, 1) && !(low = wb__onnx_number(c, 1))) return false;
    if (wb__onnx_in(c, 2) && !(high = wb__onnx_number(c, 2))) return false;
    if (low) y = wb_maximum(y, low);
    if (high) y = wb_minimum(y, high);
    return wb__onnx_give(c, y);
}

/* ---- Pow ------------------------------------------------------------------------------------- */

/* Returns x to a power that few products compute, which is right for integers too.  NULL: there are
 * no such products, or out of memory. */
static wb_tensor *onnx_elementwise_power_by_products(wb_tensor *x, double power)
{
    if (power == 1) return wb__unchanged(x);
    if (power == 2) return wb_square(x);
    wb_tensor *wide = power == 3 ? wb__wide(x) : NULL;
    return wide ? wb__as(wb_mul(wb_square(wide), wide), (wb_dtype)x->dtype) : NULL;
}

/* Returns the dtype in which the power of a floating or integer x and a floating or integer y is
 * computed.  `small`: y holds integers that f32 has. */
static wb_dtype onnx_elementwise_power_dtype(wb_dtype x, wb_dtype y, bool small)
{
    const bool exact = !wb__dtype_float(y) && y != WB_I8 && y != WB_U8 && !small;
    if (x == WB_F64 || y == WB_F64 || !wb__dtype_float(x) || exact) return WB_F64;
    return x == y ? x : WB_F32;
}

bool wb__onnx_pow(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *y = c->in[1];
    const wb_dtype dtype = (wb_dtype)x->dtype, of_y = (wb_dtype)y->dtype;
    if (dtype == WB_BOOL || of_y == WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "a power of %s and %s", wb_describe(x),
                               wb_describe(y));
    double power = INFINITY;
    if (y->size == 1 && y->ndim <= x->ndim && wb__onnx_is_fixed(c, 1)) {
        if (!wb__onnx_input_real(c, 1, &power)) return false;
        wb_tensor *z = onnx_elementwise_power_by_products(x, power);
        if (z) return wb__onnx_give(c, z);
    }
    if (!wb__dtype_float(dtype) && !wb__dtype_float(of_y)) return wb__onnx_integer_power(c);
    const wb_dtype t = onnx_elementwise_power_dtype(dtype, of_y, fabs(power) <= 0x1p24);
    if (wb__dtype_float(of_y) && isfinite(power)) y = wb__literal(power, t);
    return wb__onnx_give(c, wb__as(wb_pow(wb__as(x, t), wb__as(y, t)), dtype));
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Computes Shrink.  Integers are computed in a floating dtype, and rounded towards 0. */
bool wb__onnx_shrink(wb__onnx_call *c)
{
    const double bias = wb__onnx_real(c, "bias"), lambda = wb__onnx_real(c, "lambd");
    const wb_dtype dtype = (wb_dtype)c->in[0]->dtype;
    const bool wide = dtype == WB_I32 || dtype == WB_I64;
    wb_tensor *x = c->in[0];
    if (!wb__dtype_float(dtype)) x = wb__as(x, wide ? WB_F64 : WB_F32);
    wb_tensor *above = wb_where(wb_gt(x, onnx_elementwise_number(lambda)),
                                wb_sub(x, onnx_elementwise_number(bias)),
                                onnx_elementwise_number(0));
    wb_tensor *y = wb_where(wb_lt(x, onnx_elementwise_number(-lambda)),
                            wb_add(x, onnx_elementwise_number(bias)), above);
    return wb__onnx_give(c, wb__as(y, dtype));
}

/* Computes PRelu, also of integers.  The slope broadcasts to x, which keeps its shape. */
bool wb__onnx_prelu(wb__onnx_call *c)
{
    if (!wb__onnx_alike(c, 1)) return false;
    wb_tensor *x = c->in[0], *slope = c->in[1];
    bool fits = slope->ndim <= x->ndim;
    for (int i = 1; fits && i <= slope->ndim; i++) {
        const int64_t n = slope->dims[slope->ndim - i];
        fits = n == 1 || n == x->dims[x->ndim - i];
    }
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the slope %s does not broadcast to %s",
                               wb_describe(slope), wb_describe(x));
    return wb__onnx_give(c, wb_where(wb_gt(x, onnx_elementwise_number(0)), x, wb_mul(x, slope)));
}
