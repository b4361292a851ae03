/* Operators of ONNX that compute each element by itself: arithmetic, comparisons, logic, choices.
 * Operands broadcast as in NumPy, which is Weber's rule too.  ops_bits.c has those of integers that
 * Weber has no operation for, ops_activations.c and ops_trigonometry.c the other functions. */
#include "io/onnx/ops_common.h"

#include <math.h>

static wb_tensor *number(double v) { return wb__number_of(v); }

/* ---- one operand ----------------------------------------------------------------------------- */

#define UNARY(name, value)                                                                         \
    bool wb__onnx_##name(wb__onnx_call *c)                                                         \
    {                                                                                              \
        if (!wb__onnx_has(c, 1)) return false;                                                     \
        wb_tensor *x = c->in[0];                                                                   \
        return wb__onnx_give(c, value);                                                            \
    }
UNARY(abs, wb_abs(x))
UNARY(neg, wb_neg(x))
UNARY(sign, wb_sign(x))
UNARY(sqrt, wb_sqrt(x))
UNARY(exp, wb_exp(x))
UNARY(log, wb_log(x))
UNARY(reciprocal, wb_reciprocal(x))
UNARY(floor, wb_floor(x))
UNARY(ceil, wb_neg(wb_floor(wb_neg(x))))
UNARY(erf, wb_erf(x))
UNARY(sin, wb_sin(x))
UNARY(cos, wb_cos(x))
UNARY(not, wb_not(x))

UNARY(round, wb__onnx_rounded(x))

bool wb__onnx_is_nan(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    return wb__onnx_give(c, wb_isnan(c->in[0]));
}

bool wb__onnx_is_inf(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const bool negative = wb__onnx_int(c, "detect_negative", 1) != 0;
    const bool positive = wb__onnx_int(c, "detect_positive", 1) != 0;
    wb_tensor *x = c->in[0];
    if (!negative && !positive)
        return wb__onnx_give(c, wb_expand_array(wb__literal(0, WB_BOOL), x->ndim, x->dims));
    if (negative && positive) x = wb_abs(x);
    return wb__onnx_give(c, wb_eq(x, number(positive ? INFINITY : -INFINITY)));
}

/* ---- two operands ---------------------------------------------------------------------------- */

#define BINARY(name, value)                                                                        \
    bool wb__onnx_##name(wb__onnx_call *c)                                                         \
    {                                                                                              \
        if (!wb__onnx_has(c, 2)) return false;                                                     \
        wb_tensor *x = c->in[0], *y = c->in[1];                                                    \
        return wb__onnx_give(c, value);                                                            \
    }
BINARY(add, wb_add(x, y))
BINARY(sub, wb_sub(x, y))
BINARY(mul, wb_mul(x, y))
BINARY(div, wb_div(x, y))
BINARY(equal, wb_eq(x, y))
BINARY(less, wb_lt(x, y))
BINARY(less_or_equal, wb_le(x, y))
BINARY(greater, wb_gt(x, y))
BINARY(greater_or_equal, wb_ge(x, y))
BINARY(and, wb_and(x, y))
BINARY(or, wb_or(x, y))

bool wb__onnx_xor(wb__onnx_call *c)
{
    if (!wb__onnx_alike(c, 1)) return false;
    if (c->in[0]->dtype != WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "the inputs are %s; they must be bool",
                               wb_describe(c->in[0]));
    return wb__onnx_give(c, wb_ne(c->in[0], c->in[1]));
}

bool wb__onnx_where(wb__onnx_call *c)
{
    if (!wb__onnx_has(c, 3)) return false;
    return wb__onnx_give(c, wb_where(c->in[0], c->in[1], c->in[2]));
}

/* ---- any number of operands ------------------------------------------------------------------ */

static wb_tensor *joined(wb__onnx_call *c, wb_tensor *(*join)(wb_tensor *, wb_tensor *))
{
    if (!wb__onnx_has(c, WB__MAX(c->n_in, 1))) return NULL;
    wb_tensor *y = wb__unchanged(c->in[0]);
    for (int i = 1; i < c->n_in && y; i++) y = join(y, c->in[i]);
    return y;
}

bool wb__onnx_max(wb__onnx_call *c) { return wb__onnx_give(c, joined(c, wb_maximum)); }
bool wb__onnx_min(wb__onnx_call *c) { return wb__onnx_give(c, joined(c, wb_minimum)); }
bool wb__onnx_sum(wb__onnx_call *c) { return wb__onnx_give(c, joined(c, wb_add)); }
bool wb__onnx_mean(wb__onnx_call *c)
{
    wb_tensor *y = joined(c, wb_add);
    return wb__onnx_give(c, y ? wb_div(y, number(c->n_in)) : NULL);
}

/* ---- Clip ------------------------------------------------------------------------------------ */

bool wb__onnx_clip(wb__onnx_call *c)
{
    const bool by_inputs = c->node->opset >= 11;
    if (!wb__onnx_has(c, 1)) return false;
    wb_tensor *low = NULL, *high = NULL, *y = wb__unchanged(c->in[0]);
    if (by_inputs) {
        if (wb__onnx_in(c, 1) && !(low = wb__onnx_number(c, 1))) return false;
        if (wb__onnx_in(c, 2) && !(high = wb__onnx_number(c, 2))) return false;
    } else {
        if (wb__onnx_attribute(c, "min")) low = number(wb__onnx_real(c, "min", 0));
        if (wb__onnx_attribute(c, "max")) high = number(wb__onnx_real(c, "max", 0));
    }
    if (low) y = wb_maximum(y, low);
    if (high) y = wb_minimum(y, high);
    return wb__onnx_give(c, y);
}

/* ---- Pow ------------------------------------------------------------------------------------- */

/* Returns x to a power that is computed by few products, which is right for integers too.  NULL:
 * there are none, or out of memory. */
static wb_tensor *products(wb_tensor *x, double power)
{
    if (power == 1) return wb__unchanged(x);
    if (power == 2) return wb_square(x);
    wb_tensor *wide = power == 3 ? wb__wide(x) : NULL;
    return wide ? wb__as(wb_mul(wb_square(wide), wide), (wb_dtype)x->dtype) : NULL;
}

/* The dtype in which the power of a floating or integer x and a floating or integer y is computed.
 * `small`: y holds integers that f32 has. */
static wb_dtype power_dtype(wb_dtype x, wb_dtype y, bool small)
{
    const bool exact = !wb__dtype_float(y) && y != WB_I8 && y != WB_U8 && !small;
    if (x == WB_F64 || y == WB_F64 || !wb__dtype_float(x) || exact) return WB_F64;
    return x == y ? x : WB_F32;
}

bool wb__onnx_pow(wb__onnx_call *c)
{
    if (!wb__onnx_has(c, 2)) return false;
    wb_tensor *x = c->in[0], *y = c->in[1];
    const wb_dtype dtype = (wb_dtype)x->dtype, of_y = (wb_dtype)y->dtype;
    if (dtype == WB_BOOL || of_y == WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "a power of %s and %s", wb_describe(x),
                               wb_describe(y));
    double power = INFINITY;
    if (y->size == 1 && y->ndim <= x->ndim && wb__onnx_is_fixed(c, 1)) {
        if (!wb__onnx_input_real(c, 1, &power)) return false;
        wb_tensor *z = products(x, power);
        if (z) return wb__onnx_give(c, z);
    }
    if (!wb__dtype_float(dtype) && !wb__dtype_float(of_y)) return wb__onnx_integer_power(c);
    const wb_dtype t = power_dtype(dtype, of_y, fabs(power) <= 0x1p24);
    if (wb__dtype_float(of_y) && isfinite(power)) y = wb__literal(power, t);
    return wb__onnx_give(c, wb__as(wb_pow(wb__as(x, t), wb__as(y, t)), dtype));
}
