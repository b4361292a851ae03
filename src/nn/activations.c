/* Activations that are composed of several operations. Model files store their names. Activations
 * that are a single operation are in ops.def. */
#include "nn/layer.h"

static wb_tensor *clamp(wb_tensor *x, double from, double to)
{
    return wb_minimum(wb_maximum(x, wb_scalar(from)), wb_scalar(to));
}

wb_tensor *wb__relu6(wb_tensor *x) { return clamp(x, 0, 6); }
wb_tensor *wb__hardtanh(wb_tensor *x) { return clamp(x, -1, 1); }
wb_tensor *wb__hardsigmoid(wb_tensor *x)
{
    return wb_div(clamp(wb_add(x, wb_scalar(3)), 0, 6), wb_scalar(6));
}
wb_tensor *wb__softsign(wb_tensor *x) { return wb_div(x, wb_add(wb_abs(x), wb_scalar(1))); }
wb_tensor *wb__tanhshrink(wb_tensor *x) { return wb_sub(x, wb_tanh(x)); }
wb_tensor *wb__softshrink(wb_tensor *x) { return wb_sub(x, clamp(x, -0.5, 0.5)); }
wb_tensor *wb__trelu(wb_tensor *x) { return wb_where(wb_le(x, wb_scalar(1)), wb_scalar(0), x); }
wb_tensor *wb__lisht(wb_tensor *x) { return wb_mul(x, wb_tanh(x)); }

/* log(cosh(x)) in a form in which exp does not overflow. */
wb_tensor *wb__logcosh(wb_tensor *x)
{
    return wb_sub(wb_add(x, wb_softplus(wb_mul(x, wb_scalar(-2)))), wb_scalar(0.69314718055994531));
}
