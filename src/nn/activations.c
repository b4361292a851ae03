/* Activations that are composed of several operations. Activations that are a single operation are
 * in ops.def. */
#include "nn/layer.h"

static wb_tensor *clamp(wb_tensor *x, double from, double to)
{
    return wb_minimum(wb_maximum(x, wb_scalar(from)), wb_scalar(to));
}

/* An activation of a floating x. */
#define ACTIVATION(name, value)                                                                 \
    wb_tensor *wb_##name(wb_tensor *x)                                                          \
    {                                                                                           \
        return WB__NULL(x) || !wb__floating(#name, x) ? NULL : (value);                         \
    }
ACTIVATION(relu6, clamp(x, 0, 6))
ACTIVATION(hardtanh, clamp(x, -1, 1))
ACTIVATION(hardsigmoid, wb_div(clamp(wb_add(x, wb_scalar(3)), 0, 6), wb_scalar(6)))
ACTIVATION(softsign, wb_div(x, wb_add(wb_abs(x), wb_scalar(1))))
ACTIVATION(softshrink, wb_sub(x, clamp(x, -0.5, 0.5)))
ACTIVATION(tanhshrink, wb_sub(x, wb_tanh(x)))
ACTIVATION(trelu, wb_where(wb_le(x, wb_scalar(1)), wb_scalar(0), x))
ACTIVATION(lisht, wb_mul(x, wb_tanh(x)))
/* log(cosh(x)) in a form in which exp does not overflow. */
ACTIVATION(logcosh, wb_sub(wb_add(x, wb_softplus(wb_mul(x, wb_scalar(-2)))),
                           wb_scalar(0.69314718055994531)))
