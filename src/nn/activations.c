/* Activations that are composed of several operations.  Activations that are a single operation are
 * in ops.def. */
#include "nn/layer.h"

static wb_tensor *activation_clamp(wb_tensor *x, double from, double to)
{
    return wb_minimum(wb_maximum(x, wb_scalar(from)), wb_scalar(to));
}

/* Defines the activation wb_<name>, which returns `value`, computed from a floating x. */
#define ACTIVATION_DEFINE(name, value)                                                          \
    wb_tensor *wb_##name(wb_tensor *x)                                                          \
    {                                                                                           \
        if (WB__NULL(x) || !wb__floating(#name, x)) return NULL;                                \
        const wb__frame f = wb__frame_begin();                                                  \
        return wb__frame_end(f, (value));                                                       \
    }
ACTIVATION_DEFINE(relu6, activation_clamp(x, 0, 6))
ACTIVATION_DEFINE(hardtanh, activation_clamp(x, -1, 1))
ACTIVATION_DEFINE(hardsigmoid,
                  wb_div(activation_clamp(wb_add(x, wb_scalar(3)), 0, 6), wb_scalar(6)))
ACTIVATION_DEFINE(softsign, wb_div(x, wb_add(wb_abs(x), wb_scalar(1))))
ACTIVATION_DEFINE(softshrink, wb_sub(x, activation_clamp(x, -0.5, 0.5)))
ACTIVATION_DEFINE(tanhshrink, wb_sub(x, wb_tanh(x)))
ACTIVATION_DEFINE(trelu, wb_where(wb_le(x, wb_scalar(1)), wb_scalar(0), x))
ACTIVATION_DEFINE(lisht, wb_mul(x, wb_tanh(x)))
/* Returns log(cosh(x)).  Beyond 1 that is |x| + softplus(-2 |x|) - log(2), in which nothing
 * overflows; below 1, where this is a difference of nearly equal numbers, -log(1 - tanh(x)^2) /
 * 2. */
static wb_tensor *logcosh(wb_tensor *x)
{
    wb_tensor *size = wb_abs(x), *below = wb_square(wb_tanh(activation_clamp(x, -1, 1)));
    wb_tensor *far = wb_add(size, wb_softplus(wb_mul(size, wb_scalar(-2))));
    return wb_where(wb_lt(size, wb_scalar(1)), wb_mul(wb_log1p(wb_neg(below)), wb_scalar(-0.5)),
                    wb_sub(far, wb_scalar(0.69314718055994531)));
}
ACTIVATION_DEFINE(logcosh, logcosh(x))

ACTIVATION_DEFINE(celu, wb_elu(x))

/* Defines an activation with a number.  `allowed` is a condition on the number; `limit` is the
 * condition in words. */
#define ACTIVATION_OF(name, number, allowed, limit, value)                                      \
    wb_tensor *wb_##name##_of(wb_tensor *x, double number)                                      \
    {                                                                                           \
        if (WB__NULL(x) || !wb__floating(#name, x)) return NULL;                                \
        if (!(allowed))                                                                         \
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %s is %g; it must be %s", #name,       \
                                 #number, number, limit);                                       \
        const wb__frame f = wb__frame_begin();                                                  \
        return wb__frame_end(f, (value));                                                       \
    }
#define POSITIVE(x) wb_gt(x, wb_scalar(0))
ACTIVATION_OF(leakyrelu, slope, slope == slope, "a number",
              wb_where(POSITIVE(x), x, wb_mul(x, wb_scalar(slope))))
ACTIVATION_OF(elu, alpha, alpha == alpha, "a number",
              wb_where(POSITIVE(x), x, wb_mul(wb_elu(x), wb_scalar(alpha))))
ACTIVATION_OF(celu, alpha, alpha > 0, "positive",
              wb_where(POSITIVE(x), x,
                       wb_mul(wb_elu(wb_mul(x, wb_scalar(1 / alpha))), wb_scalar(alpha))))
ACTIVATION_OF(softshrink, lambda, lambda >= 0, "0 or more",
              wb_sub(x, activation_clamp(x, -lambda, lambda)))
ACTIVATION_OF(trelu, theta, theta == theta, "a number",
              wb_where(wb_le(x, wb_scalar(theta)), wb_scalar(0), x))

wb_tensor *wb_prelu(wb_tensor *x, wb_tensor *slope)
{
    if (!wb__floating("prelu", x) || !wb__operand("prelu", slope)) return NULL;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, wb_where(POSITIVE(x), x, wb_mul(x, slope)));
}

static wb_tensor *activation_random_relu(wb_tensor *x, double low, double high)
{
    if (!wb__floating("rrelu", x)) return NULL;
    if (!(low <= high))
        return wb__fail_null(WB_ERROR_ARGUMENT, "rrelu: the slopes are from %g to %g", low, high);
    const wb_dtype t = x->dtype == WB_F64 ? WB_F64 : WB_F32;
    wb_tensor *u = wb__uniform_beside(x, t, x->ndim, x->dims);
    wb_tensor *slope = wb_add(wb_mul(u, wb_scalar(high - low)), wb_scalar(low));
    return wb_where(POSITIVE(x), x, wb_mul(x, wb__as(slope, (wb_dtype)x->dtype)));
}

wb_tensor *wb_rrelu_of(wb_tensor *x, double low, double high)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, activation_random_relu(x, low, high));
}

wb_tensor *wb_rrelu(wb_tensor *x) { return wb_rrelu_of(x, 1.0 / 8, 1.0 / 3); }

static wb_tensor *activation_glu(wb_tensor *x, int axis)
{
    if (!wb__floating("glu", x)) return NULL;
    const int a = wb__axis("glu", x, axis);
    if (a < 0) return NULL;
    const int64_t n = x->dims[a];
    if (n % 2)
        return wb__fail_null(WB_ERROR_SHAPE, "glu: axis %d of %s has an odd size; its halves are "
                             "the values and their gates", a, wb_describe(x));
    return wb_mul(wb_slice(x, a, 0, n / 2), wb_sigmoid(wb_slice(x, a, n / 2, n)));
}

wb_tensor *wb_glu_over(wb_tensor *x, int axis)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, activation_glu(x, axis));
}

wb_tensor *wb_glu(wb_tensor *x) { return wb_glu_over(x, -1); }
