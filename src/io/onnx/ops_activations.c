/* Activations.  One that Weber computes as a single operation is that operation where its numbers
 * are those of the operator, so that it is fused into the product or convolution before it. */
#include "io/onnx/ops_common.h"

#include <math.h>
#include <string.h>

static wb_tensor *number(double v) { return wb__number_of(v); }

#define ACTIVATION(name, value)                                                                    \
    bool wb__onnx_##name(wb__onnx_call *c)                                                         \
    {                                                                                              \
        if (!wb__onnx_floating(c, 0)) return false;                                                \
        wb_tensor *x = c->in[0];                                                                   \
        return wb__onnx_give(c, value);                                                            \
    }
ACTIVATION(sigmoid, wb_sigmoid(x))
ACTIVATION(tanh, wb_tanh(x))
ACTIVATION(softplus, wb_softplus(x))
ACTIVATION(softsign, wb_softsign(x))
ACTIVATION(hard_swish, wb_hardswish(x))
ACTIVATION(mish, wb_mish(x))

/* Also of integers. */
bool wb__onnx_relu(wb__onnx_call *c)
{
    if (!wb__onnx_has(c, 1)) return false;
    wb_tensor *x = c->in[0];
    return wb__onnx_give(c, wb__dtype_float((wb_dtype)x->dtype) ? wb_relu(x)
                                                                : wb_maximum(x, number(0)));
}

/* Whether a number of an operation in ops.def, rounded to f32, is that of the operator, which is
 * f32.  In f64 they differ. */
static bool is(const wb_tensor *x, double of_operator, double of_operation)
{
    return x->dtype != WB_F64 && of_operator == (double)(float)of_operation;
}

bool wb__onnx_leaky_relu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 0.01f);
    wb_tensor *x = c->in[0];
    return wb__onnx_give(c, is(x, alpha, 0.01) ? wb_leakyrelu(x) : wb_leakyrelu_of(x, alpha));
}

bool wb__onnx_elu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 1);
    return wb__onnx_give(c, alpha == 1 ? wb_elu(c->in[0]) : wb_elu_of(c->in[0], alpha));
}

bool wb__onnx_celu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 1);
    if (!(alpha > 0))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "alpha is %g; it must be positive", alpha);
    return wb__onnx_give(c, alpha == 1 ? wb_elu(c->in[0]) : wb_celu_of(c->in[0], alpha));
}

bool wb__onnx_selu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 1.67326319217681884765625);
    const double gamma = wb__onnx_real(c, "gamma", 1.05070102214813232421875);
    wb_tensor *x = c->in[0];
    if (is(x, alpha, 1.6732632423543772) && is(x, gamma, 1.0507009873554805))
        return wb__onnx_give(c, wb_selu(x));
    return wb__onnx_give(c, wb_mul(wb_elu_of(x, alpha), number(gamma)));
}

bool wb__onnx_hard_sigmoid(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 0.2f), beta = wb__onnx_real(c, "beta", 0.5);
    wb_tensor *y = wb_add(wb_mul(c->in[0], number(alpha)), number(beta));
    return wb__onnx_give(c, wb_maximum(wb_minimum(y, number(1)), number(0)));
}

bool wb__onnx_thresholded_relu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    wb_tensor *x = c->in[0];
    const double alpha = wb__onnx_real(c, "alpha", 1);
    return wb__onnx_give(c, wb_where(wb_gt(x, number(alpha)), x, number(0)));
}

/* Integers are computed in a floating dtype, and rounded towards 0. */
bool wb__onnx_shrink(wb__onnx_call *c)
{
    if (!wb__onnx_has(c, 1)) return false;
    const double bias = wb__onnx_real(c, "bias", 0), lambda = wb__onnx_real(c, "lambd", 0.5);
    const wb_dtype dtype = (wb_dtype)c->in[0]->dtype;
    const bool wide = dtype == WB_I32 || dtype == WB_I64;
    wb_tensor *x = c->in[0];
    if (!wb__dtype_float(dtype)) x = wb__as(x, wide ? WB_F64 : WB_F32);
    wb_tensor *above = wb_where(wb_gt(x, number(lambda)), wb_sub(x, number(bias)), number(0));
    wb_tensor *y = wb_where(wb_lt(x, number(-lambda)), wb_add(x, number(bias)), above);
    return wb__onnx_give(c, wb__as(y, dtype));
}

bool wb__onnx_gelu(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const int approximate = wb__onnx_word(c, "approximate", "none tanh");
    if (approximate < 0) return false;
    return wb__onnx_give(c, (approximate ? wb_gelu : wb_gelu_erf)(c->in[0]));
}

bool wb__onnx_swish(wb__onnx_call *c)
{
    if (!wb__onnx_floating(c, 0)) return false;
    const double alpha = wb__onnx_real(c, "alpha", 1);
    wb_tensor *x = c->in[0];
    return wb__onnx_give(c, alpha == 1 ? wb_swish(x)
                                       : wb_mul(x, wb_sigmoid(wb_mul(x, number(alpha)))));
}

/* The slope broadcasts to x, which keeps its shape.  Also of integers. */
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
    return wb__onnx_give(c, wb_where(wb_gt(x, number(0)), x, wb_mul(x, slope)));
}
