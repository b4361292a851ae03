/* Reductions, running products and activations that are composed of other operations: numbers of
 * PyTorch 2.15, gradients against differences. */
#include "literal.h"

static const double counts[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const double signs[10] = {-1.5, 0.25, 2, -0.75, 0.5, 1.25, -2.5, -0.125, 0.625, 3};
static const double zeros[12] = {2, 0, 3, 1, 0, 1, 0, 2, 1, 2, 1, 3};

CASE(clamp, wb_clamp(x, -1, 1.5))
CASE(clamp_whole, wb_clamp(x, 3, 9))
CASE(clamp_rows, wb_clamp(x, wb_slice(x, 1, 0, 1), wb_slice(x, 1, 2, 3)))
CASE(argmin, wb_argmin(x, 1))
CASE(argmin_rows, wb_argmin(x, 0))
CASE(norm1, wb_norm(x, 1, 1))
CASE(norm2, wb_norm(x, 2))
CASE(norm3, wb_norm(x, 3, 0))
CASE(norm_half, wb_norm(x, 0.5, 1))
CASE(norm_inf, wb_norm(x, INFINITY, .axes = {-1}, .keep = true))
CASE(norm0, wb_norm(x, 0, 1))
CASE(deviation, wb_std(x, 1))
CASE(corrected, wb_std(x, .axes = {1}, .correction = 1))
CASE(corrected_variance, wb_variance(x, .correction = 1, .axes = {0}, .keep = true))
CASE(prod, wb_prod(x, 1))
CASE(prod_rows, wb_prod(x, .axes = {0}, .keep = true))
CASE(prod_all, wb_prod(x))
CASE(prod_signs, wb_prod(x, -1))
CASE(cumprod, wb_cumprod(x, 1))
CASE(cumprod_rows, wb_cumprod(x, 0))
CASE(cumprod_odd, wb_cumprod(x, -1))
CASE(any, wb_any(x, 1))
CASE(all, wb_all(x, 0))
CASE(all_of_all, wb_all(wb_gt(x, wb_scalar(0)), .keep = true))

static const literal rows[] = {
    {"clamp", clamp, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     {-1, 0.25, 1.5, -0.75, 0.5, 1.25, -1, -0.125, 0.625, 1.5}},
    {"clamp_whole", clamp_whole, counts, {3, 4}, FLOATS | INTEGERS, {3, 4},
     {3, 3, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}},
    {"clamp_rows", clamp_rows, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     {-1.5, 0.25, 2, -0.75, 0.5, -0.125, -0.125, -0.125, -0.125, -0.125}},
    {"argmin", argmin, signs, {2, 5}, FLOATS, {2},
     {0, 1}},
    {"argmin_rows", argmin_rows, zeros, {3, 4}, FLOATS | INTEGERS, {4},
     {1, 0, 1, 0}},
    {"norm1", norm1, signs, {2, 5}, SMOOTH | FLOATS, {2},
     {5, 7.5}},
    {"norm2", norm2, signs, {2, 5}, SMOOTH | FLOATS, {0},
     {4.933938589}},
    {"norm3", norm3, signs, {2, 5}, SMOOTH | FLOATS, {5},
     {1.74659200695, 2.50083305571, 2.00016274717, 0.873296003477, 3.00462250346}},
    {"norm_half", norm_half, signs, {2, 5}, SMOOTH | FLOATS, {2},
     {22.2037979992, 31.0844878372}},
    {"norm_inf", norm_inf, signs, {2, 5}, SMOOTH | FLOATS, {2, 1},
     {2, 3}},
    {"norm0", norm0, zeros, {3, 4}, FLOATS, {3},
     {3, 2, 4}},
    {"deviation", deviation, signs, {2, 5}, SMOOTH | FLOATS, {2},
     {1.18953772534, 1.80034718874}},
    {"corrected", corrected, signs, {2, 5}, SMOOTH | FLOATS, {2},
     {1.32994360783, 2.01284934856}},
    {"corrected_variance", corrected_variance, signs, {2, 5}, SMOOTH | FLOATS, {1, 5},
     {3.78125, 3.78125, 2.2578125, 0.9453125, 3.125}},
    {"prod", prod, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3},
     {0, 0, 6}},
    {"prod_rows", prod_rows, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {1, 4},
     {0, 0, 0, 6}},
    {"prod_all", prod_all, signs, {2, 5}, SMOOTH | FLOATS, {0},
     {0.205993652344}},
    {"prod_signs", prod_signs, signs, {2, 5}, SMOOTH | FLOATS, {2},
     {0.28125, 0.732421875}},
    {"cumprod", cumprod, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     {2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 6}},
    {"cumprod_rows", cumprod_rows, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     {-1.5, 0.25, 2, -0.75, 0.5, -1.875, -0.625, -0.25, -0.46875, 1.5}},
    {"cumprod_odd", cumprod_odd, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     {-1.5, -0.375, -0.75, 0.5625, 0.28125, 1.25, -3.125, 0.390625, 0.244140625, 0.732421875}},
    {"any", any, zeros, {3, 4}, FLOATS | INTEGERS, {3},
     {1, 1, 1}},
    {"all", all, zeros, {3, 4}, FLOATS | INTEGERS, {4},
     {0, 0, 0, 1}},
    {"all_of_all", all_of_all, counts, {3, 4}, FLOATS | INTEGERS, {1, 1},
     {1}},
};
enum { ROWS = sizeof rows / sizeof *rows };

TEST(values) { literal_values(rows, ROWS); }
TEST(gradients) { literal_gradients(rows, ROWS); }

static void is(wb_tensor *x, int n, const double *values)
{
    if (!x) fail_msg("%s", wb_error());
    const array got = values_of(x);
    assert_int_equal(got.size, n);
    for (int i = 0; i < n; i++)
        if (!(fabs(got.at[i] - values[i]) <= 2e-6 * fmax(1, fabs(values[i]))) &&
            !(isnan(got.at[i]) && isnan(values[i])) && got.at[i] != values[i])
            fail_msg("[%d] is %.9g, not %.9g", i, got.at[i], values[i]);
}
#define IS(x, ...) \
    is((x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static wb_tensor *floats(int n, const float *v)
{
    return wb_from(v, WB_F32, 1, (int64_t[]){n});
}
#define FLOATS_OF(...) \
    floats((int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

/* Corners: zeros, infinities, NaN, empty axes; the gradients are those of PyTorch. */
TEST_IN_SCOPE(corners)
{
    wb_tensor *zero = wb_zeros(3), *x = FLOATS_OF(2, 0, -3), *no = wb_zeros(0, 3);
    IS(wb_gradient(wb_norm(zero, 2), zero), 0, 0, 0);
    IS(wb_gradient(wb_norm(zero, 3), zero), 0, 0, 0);
    IS(wb_gradient(wb_std(zero), zero), 0, 0, 0);
    IS(wb_gradient(wb_norm(x, 1), x), 1, 0, -1);
    IS(wb_gradient(wb_norm(x, 0.5), x), 2.224744871, 0, -1.816496581);
    IS(wb_gradient(wb_sum(wb_clamp(x, 0, 2)), x), 1, 1, 0);
    IS(wb_clamp(FLOATS_OF(NAN, 3, -3), 2, 1), NAN, 1, 1);
    IS(wb_gradient(wb_prod(x), x), 0, -6, 0);
    IS(wb_prod(no, 0), 1, 1, 1);
    IS(wb_any(no, 0), 0, 0, 0);
    IS(wb_all(no, 0), 1, 1, 1);
    IS(wb_norm(no, 2, 0), 0, 0, 0);
    IS(wb_all(FLOATS_OF(NAN, 1)), 1);
    IS(wb_argmin(FLOATS_OF(3, NAN, -INFINITY, NAN), 0), 1);
    IS(wb_argmin(wb_from((int32_t[]){5, INT32_MIN, INT32_MAX}, WB_I32, 1, (int64_t[]){3}), 0), 1);
    IS(wb_argmin(wb_from((uint8_t[]){5, 255, 0, 0}, WB_U8, 1, (int64_t[]){4}), 0), 2);
    IS(wb_variance(FLOATS_OF(2), .correction = 1), NAN);
    IS(wb_variance(FLOATS_OF(2, 4), .correction = 2), INFINITY);
    assert_int_equal(wb_size(wb_cumprod(wb_zeros(2, 0), 1)), 0);
    IS(wb_norm(FLOATS_OF(1e-3f, 300), 2), 300.0000017);
    assert_true(wb_prod(wb_scalar(3)) && wb_item(wb_prod(wb_scalar(3))) == 3);
    /* f16 is computed in f32: the sum of squares exceeds the range of f16 */
    IS(wb_norm(wb_astype(FLOATS_OF(300, 400), WB_F16), 2), 500);
    wb_tensor *many = wb_full(1.0009765625, 1000);
    const double want = pow(1.0009765625, 1000);
    assert_true(fabs(wb_item(wb_prod(many)) - want) < 1e-5 * want);
    assert_true(fabs(wb_at(wb_cumprod(many, 0), 999) - want) < 1e-5 * want);
}

TEST_IN_SCOPE(errors)
{
    wb_tensor *x = wb_ones(2, 3), *k = wb_arange(3, WB_I32), *b = wb_gt(x, wb_scalar(0));
    REFUSED(wb_norm(x, -1), WB_ERROR_ARGUMENT, "norm", "-1");
    REFUSED(wb_norm(k, 2), WB_ERROR_DTYPE, "norm", "[3] i32");
    REFUSED(wb_norm(wb_zeros(0), INFINITY), WB_ERROR_SHAPE, "[0] f32");
    REFUSED(wb_norm(x, 2, 2), WB_ERROR_SHAPE, "norm", "2", "[2,3] f32");
    REFUSED(wb_std(k), WB_ERROR_DTYPE, "std", "[3] i32");
    REFUSED(wb_std(x, .correction = -1), WB_ERROR_ARGUMENT, "std", "correction", "-1");
    REFUSED(wb_sum(x, .correction = 1), WB_ERROR_ARGUMENT, "sum", "correction", "wb_std");
    REFUSED(wb_prod(b), WB_ERROR_DTYPE, "prod", "bool", "wb_astype");
    REFUSED(wb_cumprod(b, 0), WB_ERROR_DTYPE, "cumprod", "bool");
    REFUSED(wb_cumprod(x, 2), WB_ERROR_SHAPE, "cumprod", "2");
    REFUSED(wb_argmin(b, 0), WB_ERROR_DTYPE, "argmin", "bool");
    REFUSED(wb_argmin(wb_zeros(0, 2), 0), WB_ERROR_SHAPE, "argmin", "[0,2] f32");
    REFUSED(wb_any(x, 0, 0), WB_ERROR_ARGUMENT, "any", "0");
    REFUSED(wb_clamp(k, 0.5, 1), WB_ERROR_DTYPE, "maximum", "i32");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    return run_all_cases();
}
