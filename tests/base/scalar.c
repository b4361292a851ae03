/* Errors of the f32 functions of base/numbers/formulas.h in units in the last place, over all
 * exponents, and their special values.  The references are libm's functions in double. */
#include "test.h"

#include "base/numbers/dialect.h"

#include <float.h>

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double curve(double x) { return sqrt(8 / 3.14159265358979323846) * (x
                                                                           + 0.044715 * x * x * x);
                                                                           }
static double gelu(double x) { return x * sigmoid(curve(x)); }
static double gelu_slope(double x)
{
    double s = sigmoid(curve(x)), t = sigmoid(-curve(x)), z = x * x;
    if (isinf(x)) return x > 0;
    return s + (s * t == 0
                ? 0 : x * s * t * sqrt(8 / 3.14159265358979323846) * (1 + 3 * 0.044715 * z));
}

/* |got - expected| in units in the last place of the f32 number at `expected` */
static double ulps(float got, double expected)
{
    if (isnan(expected)) return isnan(got) ? 0 : 1e9;
    if (isinf((float)expected) || isinf(got)) {
        if ((float)expected == got) return 0;
        return isinf(got) && fabs(expected) > FLT_MAX * (1 - 1e-6) &&
               (expected > 0) == (got > 0) ? 0 : 1e9;
    }
    int e;
    frexp(expected, &e);
    return fabs(got - expected) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

typedef struct {
    const char *name;
    float (*f)(float);
    double (*reference)(double);
    double bound, from, to;
} function;

#define OF(name) static float f_##name(float x) { return name##_f32(x); }
OF(exp) OF(expm1) OF(log) OF(log1p) OF(tanh) OF(sigmoid) OF(erf)
OF(sin) OF(cos) OF(floor) OF(gelu) OF(gelu_slope)

static const function functions[] = {
    {"exp", f_exp, exp, 1.1, -INFINITY, INFINITY},
    {"expm1", f_expm1, expm1, 2, -INFINITY, INFINITY},
    {"log", f_log, log, 1, -INFINITY, INFINITY},
    {"log1p", f_log1p, log1p, 1.5, -INFINITY, INFINITY},
    {"tanh", f_tanh, tanh, 2.5, -INFINITY, INFINITY},
    {"sigmoid", f_sigmoid, sigmoid, 2.1, -INFINITY, INFINITY},
    {"erf", f_erf, erf, 1.5, -INFINITY, INFINITY},
    {"sin", f_sin, sin, 1, -WB__TRIG_BOUND, WB__TRIG_BOUND},
    {"cos", f_cos, cos, 1, -WB__TRIG_BOUND, WB__TRIG_BOUND},
    {"floor", f_floor, floor, 0, -INFINITY, INFINITY},
    {"gelu", f_gelu, gelu, 4, -1, 1e30},
    {"gelu_slope", f_gelu_slope, gelu_slope, 4, -0.5, 1e30},
};

TEST(all_exponents)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        const function *f = &functions[k];
        double worst = 0;
        float at = 0;
        uint32_t drawn = 1;
        for (uint64_t i = 0; i <= UINT32_MAX; i += 1499 + (drawn >> 22)) {
            drawn = drawn * 1664525u + 1013904223u;
            float x = wb__f32_of_bits((int32_t)(uint32_t)i);
            if (x < f->from || x > f->to) continue;
            double e = ulps(f->f(x), f->reference(x));
            if (e > worst) { worst = e; at = x; }
        }
        print_message("%-11s %.3f ulp, at %a = %.9g: %.9g\n", f->name, worst, at, at, f->f(at));
        if (worst > f->bound) fail_msg("%s: %g ulp at %a", f->name, worst, at);
    }
}

TEST(specials)
{
    assert_true(f_exp(INFINITY) == INFINITY && f_exp(-INFINITY) == 0 && isnan(f_exp(NAN))
                && f_exp(0) == 1);
    assert_true(f_log(0) == -INFINITY && f_log(-0.0f) == -INFINITY && isnan(f_log(-1))
                && isnan(f_log(NAN)));
    assert_true(f_log(INFINITY) == INFINITY && isnan(f_log(-INFINITY)) && f_log(1) == 0);
    assert_true(f_log1p(-1) == -INFINITY && isnan(f_log1p(-2)) && signbit(f_log1p(-0.0f))
                && isnan(f_log1p(NAN)));
    assert_true(f_expm1(-INFINITY) == -1 && f_expm1(INFINITY) == INFINITY
                && signbit(f_expm1(-0.0f)));
    assert_true(f_tanh(INFINITY) == 1 && f_tanh(-INFINITY) == -1 && isnan(f_tanh(NAN))
                && signbit(f_tanh(-0.0f)));
    assert_true(f_sigmoid(INFINITY) == 1 && f_sigmoid(-INFINITY) == 0 && isnan(f_sigmoid(NAN)));
    assert_true(f_erf(INFINITY) == 1 && f_erf(-INFINITY) == -1 && isnan(f_erf(NAN))
                && signbit(f_erf(-0.0f)));
    assert_true(isnan(f_sin(INFINITY)) && isnan(f_cos(NAN)) && signbit(f_sin(-0.0f))
                && f_cos(0) == 1);
    assert_true(signbit(f_floor(-0.0f)) && f_floor(-0.5f) == -1 && f_floor(-INFINITY) == -INFINITY);
    assert_true(isnan(f_floor(NAN)) && isnan(f_gelu(NAN)) && f_sigmoid(0) == 0.5f);
    assert_true(f_gelu_slope(INFINITY) == 1 && f_gelu_slope(-INFINITY) == 0
                && isnan(f_gelu_slope(NAN)));
    assert_true(quotient_i32(INT32_MIN, -1) == INT32_MIN && quotient_i32(7, 0) == 0);
    assert_true(quotient_i64(INT64_MIN, -1) == INT64_MIN && quotient_i64(7, 0) == 0);
    assert_true(quotient_i32(-7, 2) == -3 && abs_i32(INT32_MIN) == INT32_MIN);
}
