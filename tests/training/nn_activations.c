/* Activations that are composed of other operations, against their formulas, in both floating
 * dtypes and with gradients. */
#include "test.h"

#include "nn/layer.h"

static double within(double x, double from, double to) { return fmax(from, fmin(x, to)); }

static double relu6(double x) { return within(x, 0, 6); }
static double hardtanh(double x) { return within(x, -1, 1); }
static double hardsigmoid(double x) { return within((x + 3) / 6, 0, 1); }
static double softsign(double x) { return x / (1 + fabs(x)); }
static double softshrink(double x) { return x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : 0; }
static double tanhshrink(double x) { return x - tanh(x); }
static double trelu(double x) { return x > 1 ? x : 0; }
static double lisht(double x) { return x * tanh(x); }
static double celu(double x) { return x > 0 ? x : expm1(x); }
static double logcosh(double x) { return fabs(x) + log1p(exp(-2 * fabs(x))) - log(2); }

#define ROW(name) {#name, name},
static const struct { const char *name; double (*f)(double); } all[] = {
    WB__COMPOSED_ACTIVATIONS(ROW)};

enum { N = 9 };
static const double at[N] = {-100, -7, -2.25, -0.75, 0.125, 0.75, 2.25, 7, 100};

TEST(values)
{
    for (size_t i = 0; i < WB__COUNT(all); i++) IN_SCOPE {
        wb_function f = wb__function_by_name(all[i].name);
        assert_non_null(f);
        assert_string_equal(wb__function_name(f), all[i].name);
        wb_tensor *x = wb_variable(wb_from(at, WB_F64, 1, (int64_t[]){N}));
        wb_tensor *y = f(x), *narrow = f(wb_astype(x, WB_F32)), *slope = wb_gradient(wb_sum(y), x);
        if (!y || !narrow || !slope) fail_msg("%s: %s", all[i].name, wb_error());
        for (int k = 0; k < N; k++) {
            const double want = all[i].f(at[k]), h = 1e-5,
                         rise = (all[i].f(at[k] + h) - all[i].f(at[k] - h)) / (2 * h);
            assert_true(fabs(wb_at(y, k) - want) <= 1e-12 * fmax(1, fabs(want)));
            assert_true(fabs(wb_at(narrow, k) - want) <= 1e-5 * fmax(1, fabs(want)));
            assert_true(fabs(wb_at(slope, k) - rise) < 1e-6);
        }
    }
}

/* The functions are public, have the documented slope at their corners, and refuse other dtypes. */
TEST(public_functions)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 4, wb_hardtanh), wb_Dense(4, 4, wb_logcosh), wb_lisht);
    assert_int_equal(wb_eval(wb_call(m, wb_ones(2, 3))), 0);
    wb_tensor *x = wb_variable(wb_from((const float[]){0, 6, -1, 1}, WB_F32, 1, (int64_t[]){4}));
    wb_tensor *six = wb_gradient(wb_sum(wb_relu6(x)), x),
              *one = wb_gradient(wb_sum(wb_hardtanh(x)), x);
    static const double of_six[] = {1, 1, 0, 1}, of_one[] = {1, 0, 1, 1};
    for (int i = 0; i < 4; i++) {
        assert_true(wb_at(six, i) == of_six[i]);
        assert_true(wb_at(one, i) == of_one[i]);
    }
    wb_clear_error();
    assert_null(wb_softsign(wb_astype(x, WB_I32)));
    assert_true(failed_with(WB_ERROR_DTYPE, FACTS("softsign", "floating", "i32")));
    wb_clear_error();
    assert_null(wb_trelu(NULL));
    assert_true(failed_with(WB_ERROR_ARGUMENT, FACTS("trelu", "x")));
    wb_clear_error();
}

/* log(cosh(x)) is x^2 / 2 where x is small, and its slope is tanh(x), with all their digits. */
TEST(small_numbers_of_logcosh)
{
    static const double x[] = {1e-12, -1e-9, 1e-7, -3e-5, 0.01, 0.5,
                               -0.999, 1, 1.001, -3, 40, -300};
    for (int dtype = WB_F32; dtype <= WB_F64; dtype++) IN_SCOPE {
        const int64_t n = WB__COUNT(x);
        wb_tensor *v = wb_variable(wb_astype(wb_from(x, WB_F64, 1, &n), (wb_dtype)dtype)), *g, *h;
        wb_tensor *y = wb_logcosh(v);
        MADE(g = wb_gradient(wb_sum(y), v));
        MADE(h = wb_gradient(wb_sum(g), v));
        const double tol = dtype == WB_F32 ? 1e-6 : 1e-13;
        for (int64_t i = 0; i < n; i++) {
            const double a = fabs(wb_at(v, i)), t = tanh(wb_at(v, i));
            const double want = a < 0.02 ? a * a / 2 - pow(a, 4) / 12 + pow(a, 6) / 45
                                         : a + log1p(exp(-2 * a)) - log(2);
            if (!(fabs(wb_at(y, i) - want) <= tol * want) ||
                !(fabs(wb_at(g, i) - t) <= tol * fabs(t)) ||
                !(fabs(wb_at(h, i) - (1 - t * t)) <= 10 * tol))
                fail_msg("%g: %.9g, %.9g, %.9g, not %.9g, %.9g", x[i], wb_at(y, i), wb_at(g, i),
                         wb_at(h, i), want, t);
        }
    }
}

/* NaN gives NaN; zeros and infinities give the limit.  The cases in `undefined` give NaN, since
 * their formulas have Inf - Inf, 0 Inf or Inf / Inf. */
TEST(special_values)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0};
    static const char *const undefined[] = {"softsign inf", "softsign -inf"};
    for (size_t i = 0; i < WB__COUNT(all); i++)
        for (int dtype = WB_F32; dtype <= WB_F64; dtype++) IN_SCOPE {
            wb_tensor *x = wb_astype(wb_from(special, WB_F64, 1, (int64_t[]){WB__COUNT(special)}),
                                     (wb_dtype)dtype);
            wb_tensor *y = wb__function_by_name(all[i].name)(x);
            for (size_t k = 0; k < WB__COUNT(special); k++) {
                const double got = wb_at(y, (int64_t)k), want = all[i].f(special[k]);
                char what[64];
                snprintf(what, sizeof what, "%s %g", all[i].name, special[k]);
                bool is_nan = isnan(special[k]);
                for (size_t j = 0; j < WB__COUNT(undefined); j++)
                    is_nan |= !strcmp(what, undefined[j]);
                if (is_nan ? !isnan(got) : fabs(got - want) > 1e-7 && got != want)
                    fail_msg("%s: %g", what, got);
            }
        }
}
