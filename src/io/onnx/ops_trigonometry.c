/* Trigonometric and hyperbolic functions, and their inverses, of which Weber has sin, cos and tanh.
 * The others are composed of these, in forms that are accurate to a few ulp at all x, whose
 * gradients are right everywhere, and in which nothing overflows before the result does.  f16 and
 * bf16 are computed in f32. */
#include "io/onnx/ops_common.h"

#include <math.h>

static const double HALF_PI = 1.5707963267948966, LN2 = 0.69314718055994531;

static wb_tensor *number(double v) { return wb__number_of(v); }

#define FUNCTION(name, value)                                                                      \
    bool wb__onnx_##name(wb__onnx_call *c)                                                         \
    {                                                                                              \
        if (!wb__onnx_floating(c, 0)) return false;                                                \
        wb_tensor *x = wb__wide(c->in[0]);                                                         \
        return wb__onnx_give(c, wb__as(value, (wb_dtype)c->in[0]->dtype));                         \
    }

/* 1 or -1, without a gradient: sign · x is |x|, whose gradient at 0 is that of x. */
static wb_tensor *sign_of(wb_tensor *x)
{
    if (!x) return NULL;
    const wb_dtype t = (wb_dtype)x->dtype;
    return wb_where(wb_lt(x, number(0)), wb__literal(-1, t), wb__literal(1, t));
}

static wb_tensor *cosh_of(wb_tensor *x)
{
    wb_tensor *up = wb_exp(wb_mul(x, number(0.5))), *down = wb_exp(wb_mul(x, number(-0.5)));
    return wb_add(wb_mul(wb_mul(up, number(0.5)), up), wb_mul(wb_mul(down, number(0.5)), down));
}

FUNCTION(tan, wb_div(wb_sin(x), wb_cos(x)))
FUNCTION(cosh, cosh_of(x))
FUNCTION(sinh, wb_mul(wb_tanh(x), cosh_of(x)))

/* ---- inverse trigonometric functions --------------------------------------------------------- */

/* The angle of 0 <= b <= 1.  A guess, to 0.004, is improved by the angle of d, the tangent of the
 * difference to the guess, of which three terms of the series are enough for f64. */
static wb_tensor *small_angle(wb_tensor *b)
{
    wb_tensor *guess = wb_stop_gradient(
        wb_mul(b, wb_sub(number(1.0584), wb_mul(b, number(0.273)))));
    wb_tensor *s = wb_sin(guess), *k = wb_cos(guess);
    wb_tensor *d = wb_div(wb_sub(wb_mul(b, k), s), wb_add(k, wb_mul(b, s)));
    wb_tensor *square = wb_square(d);
    wb_tensor *series = wb_sub(wb_mul(square, number(0.2)), number(1.0 / 3));
    return wb_add(guess, wb_add(d, wb_mul(wb_mul(d, square), series)));
}

/* The angle of a tangent x of any size: beyond 1 it is pi/2 minus that of 1/x. */
static wb_tensor *angle(wb_tensor *x)
{
    wb_tensor *sign = sign_of(x), *a = wb_mul(sign, x);
    wb_tensor *big = wb_gt(a, number(1));
    wb_tensor *inverse = wb_reciprocal(wb_where(big, a, number(1)));
    wb_tensor *y = small_angle(wb_where(big, inverse, a));
    return wb_mul(sign, wb_where(big, wb_sub(number(HALF_PI), y), y));
}

FUNCTION(atan, angle(x))
FUNCTION(asin, angle(wb_div(x, wb_sqrt(wb_mul(wb_sub(number(1), x), wb_add(number(1), x))))))
FUNCTION(acos, wb_mul(angle(wb_sqrt(wb_div(wb_sub(number(1), x), wb_add(number(1), x)))),
                      number(2)))

/* ---- inverse hyperbolic functions ------------------------------------------------------------ */

/* Beyond it 1 + x^2 is x^2, also in f64. */
#define LARGE 1e8

/* log(2 x) for x > LARGE, else f(x).  Each branch gets an x at which it and its gradient are
 * finite. */
static wb_tensor *or_log(wb_tensor *x, wb_tensor *(*f)(wb_tensor *))
{
    wb_tensor *large = wb_add(wb_log(wb_maximum(x, number(LARGE))), number(LN2));
    return wb_where(wb_gt(x, number(LARGE)), large, f(wb_minimum(x, number(LARGE))));
}

/* log(x + sqrt(1 + x^2)) for x >= 0, accurate near 0. */
static wb_tensor *asinh_of(wb_tensor *x)
{
    wb_tensor *square = wb_square(x), *root = wb_sqrt(wb_add(square, number(1)));
    return wb_log1p(wb_add(x, wb_div(square, wb_add(root, number(1)))));
}

/* log(x + sqrt(x^2 - 1)), accurate near 1; NaN below 1. */
static wb_tensor *acosh_of(wb_tensor *x)
{
    wb_tensor *more = wb_sub(x, number(1));
    wb_tensor *root = wb_mul(wb_sqrt(more), wb_sqrt(wb_add(more, number(2))));
    return wb_log1p(wb_add(more, root));
}

static wb_tensor *odd(wb_tensor *x, wb_tensor *(*f)(wb_tensor *))
{
    wb_tensor *sign = sign_of(x);
    return wb_mul(sign, or_log(wb_mul(sign, x), f));
}

FUNCTION(asinh, odd(x, asinh_of))
FUNCTION(acosh, or_log(x, acosh_of))
FUNCTION(atanh, wb_mul(wb_sub(wb_log1p(x), wb_log1p(wb_neg(x))), number(0.5)))
