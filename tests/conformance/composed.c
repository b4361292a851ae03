/* Reductions, running products and activations that are composed of other operations: numbers of
 * PyTorch 2.15, gradients against differences. */
#include "literal.h"

static const double counts[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const double signs[10] = {-1.5, 0.25, 2, -0.75, 0.5, 1.25, -2.5, -0.125, 0.625, 3};
static const double zeros[12] = {2, 0, 3, 1, 0, 1, 0, 2, 1, 2, 1, 3};

CASE(clamp, wb_clamp(x, -1, 1.5))
CASE(clamp_whole, wb_clamp(x, 3, 9))
CASE(clamp_rows, wb_clamp(x, wb_slice(x, 1, 0, 1), wb_slice(x, 1, 2, 3)))
CASE(lerp, wb_lerp(x, wb_flip(x, 1), 0.3))
CASE(lerp_by_itself, wb_lerp(x, wb_flip(x, 1), x))
CASE(lerp_columns, wb_lerp(wb_slice(x, 1, 0, 1), 2, wb_mul(wb_flip(x, 1), 0.5)))
CASE(lerp_numbers, wb_lerp(0.1, -0.7, x))
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
CASE(leakyrelu_of, wb_leakyrelu_of(x, 0.3))
CASE(elu_of, wb_elu_of(x, 1.7))
CASE(celu_of, wb_celu_of(x, 1.7))
CASE(softshrink_of, wb_softshrink_of(x, 0.7))
CASE(trelu_of, wb_trelu_of(x, 0.3))
CASE(prelu, wb_prelu(x, wb_slice(x, 1, 1, 2)))
CASE(gram, wb_einsum("ij,kj->ik", x, x))
CASE(implicit, wb_einsum("ij,kj", x, x))
CASE(transposed, wb_einsum("ab -> ba", x))
CASE(summed, wb_einsum("ab->b", x))
CASE(total, wb_einsum("ab,ab->", x, x))
CASE(outer, wb_einsum("a,b->ba", wb_reshape(wb_slice(x, 0, 0, 1), 5), wb_reshape(wb_slice(x, 1,
     0, 1), 2)))
CASE(batched, wb_einsum("bij,bjk->bik", wb_reshape(x, 3, 2, 2), wb_reshape(x, 3, 2, 2)))
CASE(diagonal, wb_einsum("ii->i", wb_slice(x, 1, 1, 4)))
CASE(trace, wb_einsum("ii", wb_slice(x, 1, 0, 3)))
CASE(three, wb_einsum("ij,j,ik->jk", x, wb_reshape(wb_slice(x, 0, 1, 2), 4), x))
CASE(thrice, wb_einsum("ij,ij,ij->j", x, x, x))
CASE(kept, wb_einsum("ij,ij->ij", x, x))
CASE(four_axes, wb_einsum("bqhd,bkhd->bhqk", wb_reshape(x, 1, 3, 2, 2), wb_reshape(x, 1, 3, 2, 2)))
CASE(scores_bias, wb_attention_scores(x, wb_flip(x, 1), wb_astype(wb_from((float[]){0.5f, -1},
     WB_F32, 1, (int64_t[]){2}), wb_dtype_of(x))))
CASE(scores_mask, wb_attention_scores(x, wb_flip(x, 1), wb_le(wb_from((float[]){0, 1, 2, 1},
     WB_F32, 2, (int64_t[]){2, 2}), 1)))
CASE(scores_none, wb_attention_scores(x, x, wb_gt(wb_zeros(2, 2), 0)))
CASE(pushed, wb_pushforward(wb_slice(wb_softmax(wb_mul(x, wb_sin(x))), 1, 1, 4), x,
     wb_astype(wb_div(wb_sub(wb_reshape(wb_arange(10, WB_F32), 2, 5), 4), 4), wb_dtype_of(x))))
CASE(pushed_nowhere, wb_pushforward(wb_ones(2), x, x))
CASE(lonely, wb_einsum("ij,kl->ik", x, x))

static const literal rows[] = {
    {"scores_bias", scores_bias, signs, {2, 5}, SMOOTH | FLOATS, {2, 2},
     VALUES(0.967285723591726, 0.0327142764082736, 0.197831875938948, 0.802168124061052)},
    {"scores_mask", scores_mask, signs, {2, 5}, SMOOTH | FLOATS, {2, 2},
     VALUES(0.868376791920729, 0.131623208079271, 0, 1)},
    {"scores_none", scores_none, signs, {2, 5}, FLOATS, {2, 2}, VALUES(0, 0, 0, 0)},
    {"pushed", pushed, signs, {2, 5}, SMOOTH | FLOATS, {2, 3},     /* jvp of PyTorch */
     VALUES(-0.0506201717276672, -0.154789980320071, -0.00243148062672762, 0.260285893556277,
            -0.0177808915257168, 0.131962702050819)},
    {"pushed_nowhere", pushed_nowhere, signs, {2, 5}, FLOATS, {2}, VALUES(0, 0)},
    {"clamp", clamp, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-1, 0.25, 1.5, -0.75, 0.5, 1.25, -1, -0.125, 0.625, 1.5)},
    {"clamp_whole", clamp_whole, counts, {3, 4}, FLOATS | INTEGERS, {3, 4},
     VALUES(3, 3, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9)},
    {"clamp_rows", clamp_rows, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-1.5, 0.25, 2, -0.75, 0.5, -0.125, -0.125, -0.125, -0.125, -0.125)},
    {"lerp", lerp, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.9, -0.05, 2, -0.45, -0.1, 1.775, -1.5625, -0.125, -0.3125, 2.475)},
    {"lerp_by_itself", lerp_by_itself, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-4.5, 0, 2, -1.5, -0.5, 3.4375, -10.3125, -0.125, -1.328125, -2.25)},
    {"lerp_columns", lerp_columns, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.625, -2.8125, 2, -1.0625, -4.125, 2.375, 1.484375, 1.203125, 0.3125, 1.71875)},
    {"lerp_numbers", lerp_numbers, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(1.3, -0.1, -1.5, 0.7, -0.3, -0.9, 2.1, 0.2, -0.4, -2.3)},
    {"argmin", argmin, signs, {2, 5}, FLOATS, {2},
     VALUES(0, 1)},
    {"argmin_rows", argmin_rows, zeros, {3, 4}, FLOATS | INTEGERS, {4},
     VALUES(1, 0, 1, 0)},
    {"norm1", norm1, signs, {2, 5}, SMOOTH | FLOATS, {2},
     VALUES(5, 7.5)},
    {"norm2", norm2, signs, {2, 5}, SMOOTH | FLOATS, {0},
     VALUES(4.933938589)},
    {"norm3", norm3, signs, {2, 5}, SMOOTH | FLOATS, {5},
     VALUES(1.74659200695, 2.50083305571, 2.00016274717, 0.873296003477, 3.00462250346)},
    {"norm_half", norm_half, signs, {2, 5}, SMOOTH | FLOATS, {2},
     VALUES(22.2037979992, 31.0844878372)},
    {"norm_inf", norm_inf, signs, {2, 5}, SMOOTH | FLOATS, {2, 1},
     VALUES(2, 3)},
    {"norm0", norm0, zeros, {3, 4}, FLOATS, {3},
     VALUES(3, 2, 4)},
    {"deviation", deviation, signs, {2, 5}, SMOOTH | FLOATS, {2},
     VALUES(1.18953772534, 1.80034718874)},
    {"corrected", corrected, signs, {2, 5}, SMOOTH | FLOATS, {2},
     VALUES(1.32994360783, 2.01284934856)},
    {"corrected_variance", corrected_variance, signs, {2, 5}, SMOOTH | FLOATS, {1, 5},
     VALUES(3.78125, 3.78125, 2.2578125, 0.9453125, 3.125)},
    {"prod", prod, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3},
     VALUES(0, 0, 6)},
    {"prod_rows", prod_rows, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {1, 4},
     VALUES(0, 0, 0, 6)},
    {"prod_all", prod_all, signs, {2, 5}, SMOOTH | FLOATS, {0},
     VALUES(0.205993652344)},
    {"prod_signs", prod_signs, signs, {2, 5}, SMOOTH | FLOATS, {2},
     VALUES(0.28125, 0.732421875)},
    {"cumprod", cumprod, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 6)},
    {"cumprod_rows", cumprod_rows, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-1.5, 0.25, 2, -0.75, 0.5, -1.875, -0.625, -0.25, -0.46875, 1.5)},
    {"cumprod_odd", cumprod_odd, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-1.5, -0.375, -0.75, 0.5625, 0.28125, 1.25, -3.125, 0.390625, 0.244140625,
      0.732421875)},
    {"any", any, zeros, {3, 4}, FLOATS | INTEGERS, {3},
     VALUES(1, 1, 1)},
    {"all", all, zeros, {3, 4}, FLOATS | INTEGERS, {4},
     VALUES(0, 0, 0, 1)},
    {"all_of_all", all_of_all, counts, {3, 4}, FLOATS | INTEGERS, {1, 1},
     VALUES(1)},
    {"leakyrelu_of", leakyrelu_of, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.45, 0.25, 2, -0.225, 0.5, 1.25, -0.75, -0.0375, 0.625, 3)},
    {"elu_of", elu_of, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-1.32067872775, 0.25, 2, -0.89697686034, 0.5, 1.25, -1.56045550234, -0.199755265606,
      0.625, 3)},
    {"celu_of", celu_of, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.996526231398, 0.25, 2, -0.606425399608, 0.5, 1.25, -1.30935653306, -0.120515008279,
      0.625, 3)},
    {"softshrink_of", softshrink_of, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.8, 0, 1.3, -0.05, 0, 0.55, -1.8, 0, 0, 2.3)},
    {"trelu_of", trelu_of, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(0, 0, 2, 0, 0.5, 1.25, 0, 0, 0.625, 3)},
    {"prelu", prelu, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(-0.375, 0.25, 2, -0.1875, 0.5, 1.25, 6.25, 0.3125, 0.625, 3)},
    {"gram", gram, signs, {2, 5}, SMOOTH | FLOATS, {2, 2},
     VALUES(7.125, -1.71875, -1.71875, 17.21875)},
    {"implicit", implicit, signs, {2, 5}, SMOOTH | FLOATS, {2, 2},
     VALUES(7.125, -1.71875, -1.71875, 17.21875)},
    {"transposed", transposed, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4, 3},
     VALUES(1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12)},
    {"summed", summed, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4},
     VALUES(15, 18, 21, 24)},
    {"total", total, signs, {2, 5}, SMOOTH | FLOATS, {0},
     VALUES(24.34375)},
    {"outer", outer, signs, {2, 5}, SMOOTH | FLOATS, {2, 5},
     VALUES(2.25, -0.375, -3, 1.125, -0.75, -1.875, 0.3125, 2.5, -0.9375, 0.625)},
    {"batched", batched, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 2, 2},
     VALUES(4, 0, 9, 1, 0, 2, 0, 4, 3, 8, 4, 11)},
    {"diagonal", diagonal, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3},
     VALUES(2, 7, 12)},
    {"trace", trace, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {0},
     VALUES(18)},
    {"three", three, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4, 4},
     VALUES(0, 0, 0, 0, 2, 5, 2, 8, 0, 0, 0, 0, 10, 16, 12, 28)},
    {"thrice", thrice, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4},
     VALUES(9, 9, 28, 36)},
    {"kept", kept, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(4, 0, 9, 1, 0, 1, 0, 4, 1, 4, 1, 9)},
    {"four_axes", four_axes, zeros, {3, 4}, SMOOTH | FLOATS | INTEGERS, {1, 2, 3, 3},
     VALUES(4, 0, 2, 0, 1, 2, 2, 2, 5, 10, 2, 6, 2, 4, 6, 6, 6, 10)},
    {"lonely", lonely, signs, {2, 5}, SMOOTH | FLOATS, {2, 2},
     VALUES(0.25, 1.125, 1.125, 5.0625)},
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

/* Both ends are exact, where steps from one end would be rounded. */
TEST_IN_SCOPE(ends)
{
    const double third = 1.0 / 3;
    double v[10];
    if (has_dtype(WB_F64)) {
        WORKS(wb_copy_out(wb_linspace(third, 0.7, 10, WB_F64), v, sizeof v));
        assert_true(v[0] == third && v[9] == 0.7);
    }
    IS(wb_linspace(-1, 2.3, 6, WB_F32), -1, -0.34, 0.32, 0.98, 1.64, 2.3);
    IS(wb_linspace(3, -0.1, 5, WB_F16), 3, 2.224609375, 1.4501953125, 0.6748046875,
       -0.0999755859375);
    IS(wb_linspace(7, 9, 1, WB_BF16), 7);
    IS(wb_linspace(5, 5, 3, WB_F32), 5, 5, 5);
    assert_int_equal(wb_size(wb_linspace(0, 1, 0, WB_F32)), 0);
    wb_tensor *far = FLOATS_OF(0.1f, 3e7f, -1e-3f), *y = FLOATS_OF(1e6f, -0.7f, 1e-9f);
    assert_memory_equal(wb_data(wb_lerp(far, y, 0)), wb_data(far), 12);
    assert_memory_equal(wb_data(wb_lerp(far, y, 1)), wb_data(y), 12);
}

/* Far out the second gradient of gelu is 0, also where powers of x are infinite. */
TEST_IN_SCOPE(second_gradient_of_gelu)
{
    const float at[6] = {-1e9f, -300, -1, 1, 300, 1e9f};
    wb_tensor *x = wb_from(at, WB_F32, 1, (int64_t[]){6});
    wb_tensor *g = wb_gradient(wb_sum(wb_gradient(wb_sum(wb_gelu(x)), x)), x);
    if (!g) fail_msg("%s", wb_error());
    const double u1 = 0.7978845608028654 * (1 + 3 * 0.044715);
    const double t = tanh(0.7978845608028654 * 1.044715);
    const double one = (1 - t * t) * (u1 + 3 * 0.044715 * 0.7978845608028654 - t * u1 * u1);
    const double want[6] = {0, 0, one, one, 0, 0};
    for (int i = 0; i < 6; i++)
        if (!(fabs(wb_at(g, i) - want[i]) < 1e-6))
            fail_msg("element %d is %g, not %g", i, wb_at(g, i), want[i]);
}

TEST_IN_SCOPE(errors)
{
    REFUSED(wb_linspace(0, 1, -1, WB_F32), WB_ERROR_SHAPE, "linspace", "-1");
    REFUSED(wb_linspace(0, 1, 3, WB_I32), WB_ERROR_DTYPE, "linspace", "i32", "wb_arange");
    REFUSED(wb_linspace(-1e308, 1e308, 3, WB_F64), WB_ERROR_ARGUMENT, "linspace", "1e+308");
    REFUSED(wb_linspace(0, NAN, 3, WB_F32), WB_ERROR_ARGUMENT, "linspace", "nan");
    REFUSED(wb_lerp(wb_arange(3, WB_I32), wb_arange(3, WB_I32), 0.5), WB_ERROR_DTYPE, "lerp",
            "i32");
    REFUSED(wb_lerp(1, 2, wb_arange(3, WB_I32)), WB_ERROR_DTYPE, "lerp", "i32");
    REFUSED(wb_lerp(wb_ones(2), wb_ones(3), 0.5), WB_ERROR_SHAPE, "[2] f32", "[3] f32");
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


/* ---- random numbers: as computed on the host from the uniform numbers of the same seed ------- */

static array uniform(int64_t n)
{
    return values_of(wb_rand_array(WB_F32, 1, &n));
}

TEST_IN_SCOPE(random_integers)
{
    enum { N = 1000 };
    wb_seed(11);
    const array high = uniform(N), low = uniform(N);
    wb_seed(11);
    const array ints = values_of(wb_randint_array(-3, 1000000, WB_I64, 2, (int64_t[]){2, N / 2}));
    wb_seed(11);
    const array order = values_of(wb_permutation(N));
    bool seen[N] = {0};
    int64_t last = -1;
    for (int i = 0; i < N; i++) {
        const int64_t w = (int64_t)(high.at[i] * 0x1p48) + (int64_t)(low.at[i] * 0x1p24);
        assert_true(ints.at[i] == (double)(w % 1000003 - 3));
        const int at = (int)order.at[i];
        assert_true(at >= 0 && at < N && !seen[at]);
        const int64_t key = (int64_t)(high.at[at] * 0x1p48) + (int64_t)(low.at[at] * 0x1p24);
        assert_true(key >= last);
        last = key;
        seen[at] = true;
    }
    int count[3] = {0};
    wb_tensor *few = wb_randint(5, 8, 30, 100);
    const array digits = values_of(few);
    for (int i = 0; i < 3000; i++) count[(int)digits.at[i] - 5]++;
    for (int i = 0; i < 3; i++) assert_in_range(count[i], 900, 1100);
    assert_int_equal(wb_dtype_of(few), WB_I32);
    assert_int_equal(wb_size(wb_permutation(0)), 0);
    REFUSED(wb_randint(3, 3, 2), WB_ERROR_ARGUMENT, "randint", "3");
    REFUSED(wb_randint_array(0, 300, WB_U8, 0, NULL), WB_ERROR_DTYPE, "u8", "299");
    REFUSED(wb_randint_array(INT64_MAX - 2, INT64_MAX, WB_I64, 0, NULL), WB_ERROR_ARGUMENT,
            "randint", "9223372036854775805", "2^53");
    REFUSED(wb_randint(0, 2, -1), WB_ERROR_SHAPE, "randint", "-1");
    REFUSED(wb_permutation(-1), WB_ERROR_ARGUMENT, "permutation", "-1");
}

/* The counts of 8 classes after n draws with these weights, of the sum 7, are within five standard
 * deviations of their expectations.  A class of weight 0 is never drawn. */
static void each_within_five_deviations(const int *count, const float *weights, int n)
{
    for (int c = 0; c < 8; c++) {
        const double p = weights[c] / 7, most = 5 * sqrt(n * p * (1 - p));
        if (!(fabs(count[c] - n * p) <= most) || (weights[c] == 0 && count[c]))
            fail_msg("class %d: %d of %d draws, not %g", c, count[c], n, n * p);
    }
}

TEST_IN_SCOPE(random_draws)
{
    enum { N = 2000 };
    wb_seed(5);
    const array u = uniform(N);
    wb_seed(5);
    const array coin = values_of(wb_bernoulli(wb_full(0.3, N)));
    wb_seed(5);
    wb_tensor *cut = wb_truncated_normal(1, 2, -3, 4, N);
    const array normal = values_of(cut);
    const double from = erf(-2 / sqrt(2)), to = erf(1.5 / sqrt(2));
    for (int i = 0; i < N; i++) {
        assert_true(coin.at[i] == (u.at[i] < 0.3f));
        assert_true(normal.at[i] >= -3 && normal.at[i] <= 4);
        const double got = erf((normal.at[i] - 1) / 2 / sqrt(2));
        assert_true(fabs(got - (from + (to - from) * u.at[i])) < 3e-6);
    }
    assert_int_equal(wb_dtype_of(wb_bernoulli(wb_astype(cut, WB_F16))), WB_F16);
    static const float weights[] = {0.1f, 0, 3, 1, 0, 2.5f, 0.4f, 0};
    wb_tensor *w = wb_expand(wb_from(weights, WB_F32, 1, (int64_t[]){8}), N, 8);
    wb_seed(5);
    const array times = uniform(8 * N), within = uniform(8 * N);
    wb_seed(5);
    wb_tensor *drawn = wb_multinomial(w, 3, false);
    assert_int_equal(wb_dtype_of(drawn), WB_I32);
    const array three = values_of(drawn);
    int count[8] = {0};
    for (int i = 0; i < N; i++) {
        double t[8];
        for (int c = 0; c < 8; c++) {
            const double u = times.at[8 * i + c] + (within.at[8 * i + c] + 0x1p-25) * 0x1p-24;
            t[c] = weights[c] > 0 ? -log1p(-u) / weights[c] : INFINITY;
        }
        for (int k = 0; k < 3; k++) {
            int least = 0;
            for (int c = 1; c < 8; c++) if (t[c] < t[least]) least = c;
            assert_true(t[(int)three.at[3 * i + k]] <= t[least] * (1 + 1e-5));
            t[(int)three.at[3 * i + k]] = INFINITY;
            assert_true(weights[(int)three.at[3 * i + k]] > 0);
        }
        count[(int)three.at[3 * i]]++;
    }
    each_within_five_deviations(count, weights, N);
    const array many = values_of(wb_multinomial(wb_from(weights, WB_F32, 1, (int64_t[]){8}), N,
                                                true));
    memset(count, 0, sizeof count);
    for (int i = 0; i < N; i++) count[(int)many.at[i]]++;
    each_within_five_deviations(count, weights, N);
    REFUSED(wb_multinomial(w, 9, false), WB_ERROR_ARGUMENT, "multinomial", "9", "8");
    REFUSED(wb_multinomial(wb_scalar(1), 1, true), WB_ERROR_SHAPE, "multinomial", "[] f32");
    REFUSED(wb_bernoulli(wb_arange(2, WB_I32)), WB_ERROR_DTYPE, "bernoulli", "[2] i32");
    REFUSED(wb_truncated_normal(0, 1, 9, 10, 2), WB_ERROR_ARGUMENT, "truncated_normal", "9", "10");
    REFUSED(wb_truncated_normal(0, -1, 0, 1, 2), WB_ERROR_ARGUMENT, "truncated_normal", "-1");
}

TEST_IN_SCOPE(wrong_activations_and_einsum)
{
    wb_tensor *x = wb_ones(2, 3), *k = wb_arange(3, WB_I32), *b = wb_gt(x, wb_scalar(0));
    REFUSED(wb_celu_of(x, 0), WB_ERROR_ARGUMENT, "celu", "alpha", "0");
    REFUSED(wb_softshrink_of(x, -1), WB_ERROR_ARGUMENT, "softshrink", "lambda", "-1");
    REFUSED(wb_leakyrelu_of(k, 0.1), WB_ERROR_DTYPE, "leakyrelu", "[3] i32");
    REFUSED(wb_leakyrelu_of(x, NAN), WB_ERROR_ARGUMENT, "leakyrelu", "slope");
    REFUSED(wb_rrelu_of(x, 1, 0), WB_ERROR_ARGUMENT, "rrelu", "1", "0");
    REFUSED(wb_prelu(x, wb_ones(2)), WB_ERROR_SHAPE, "[2,3] f32", "[2] f32");
    REFUSED(wb_einsum("ij,jk", x, x), WB_ERROR_SHAPE, "einsum", "'j'", "3", "2");
    REFUSED(wb_einsum("ijk", x), WB_ERROR_SHAPE, "einsum", "[2,3] f32");
    REFUSED(wb_einsum("i", x), WB_ERROR_SHAPE, "einsum", "[2,3] f32");
    REFUSED(wb_einsum("ij->ii", x), WB_ERROR_ARGUMENT, "'i'", "twice");
    REFUSED(wb_einsum("ij->k", x), WB_ERROR_ARGUMENT, "'k'", "operand");
    REFUSED(wb_einsum("ij,ij", x), WB_ERROR_ARGUMENT, "1", "operands");
    REFUSED(wb_einsum("ij", x, x), WB_ERROR_ARGUMENT, "2", "operands");
    REFUSED(wb_einsum("...j", x), WB_ERROR_ARGUMENT, "'.'", "...");
    REFUSED(wb_einsum("i2", x), WB_ERROR_ARGUMENT, "'2'");
    REFUSED(wb_einsum("ij-i", x), WB_ERROR_ARGUMENT, "->");
    REFUSED(wb_einsum("ij,ij", x, wb_astype(x, WB_F64)), WB_ERROR_DTYPE, "f64");
    REFUSED(wb_einsum("ij", b), WB_ERROR_DTYPE, "bool");
    REFUSED(wb_einsum("abcd,efgh", wb_ones(1, 1, 1, 1), wb_ones(1, 1, 1, 1, 1)), WB_ERROR_SHAPE,
            "[1,1,1,1,1] f32");
    assert_int_equal(wb_size(wb_einsum("ii->i", wb_zeros(0, 0))), 0);
    wb_tensor *s = wb_randn(500);
    wb_seed(3);
    wb_tensor *y = wb_rrelu(s);
    const array v = values_of(s), got = values_of(y);
    for (int i = 0; i < 500; i++) {
        const double slope = got.at[i] / v.at[i];
        assert_true(v.at[i] > 0 ? slope == 1 : slope > 0.1249 && slope < 0.3334);
    }
    wb_layer *m = wb_Chain(wb_Dense(3, 2, wb_celu), wb_rrelu);
    assert_int_equal(wb_eval(wb_call(m, x)), 0);
}

TEST_IN_SCOPE(like_another)
{
    const wb_dtype t = has_dtype(WB_F64) ? WB_F64 : WB_F16;
    wb_tensor *x = wb_full_array(7, t, 2, (int64_t[]){2, 3});
    wb_seed(5);
    const array drawn = values_of(wb_rand_array(t, 2, (int64_t[]){2, 3})),
                normal = values_of(wb_randn_array(t, 2, (int64_t[]){2, 3}));
    wb_seed(5);
    check(wb_rand_like(x), drawn, 0, 0, "rand_like");
    check(wb_randn_like(x), normal, 0, 0, "randn_like");
    wb_tensor *full = wb_full_like(wb_arange(4, WB_U8), 9.5);
    assert_string_equal(wb_describe(wb_cpu(full)), "[4] u8");
    for (int i = 0; i < 4; i++) assert_true(wb_at(full, i) == 9);
    REFUSED(wb_rand_like(full), WB_ERROR_DTYPE, "rand");
    REFUSED(wb_randn_like(full), WB_ERROR_DTYPE, "randn");
    REFUSED(wb_full_like(WB_NONE, 1), WB_ERROR_ARGUMENT, "full_like");
}

TEST_IN_SCOPE(wrong_scores)
{
    wb_tensor *q = wb_ones(2, 3);
    REFUSED(wb_attention_scores(q, wb_ones(2, 4), WB_NONE), WB_ERROR_SHAPE, "attention_scores",
            "[2,3] f32", "[2,4] f32");
    REFUSED(wb_attention_scores(q, wb_ones(3), WB_NONE), WB_ERROR_SHAPE, "[3] f32");
    REFUSED(wb_attention_scores(q, q, wb_arange(2, WB_I32)), WB_ERROR_DTYPE, "[2] i32");
    REFUSED(wb_attention_scores(q, q, wb_ones(3)), WB_ERROR_SHAPE, "[3] f32");
    REFUSED(wb_attention_scores(q, q, wb_ones(4, 1, 2)), WB_ERROR_SHAPE, "attention_scores",
            "mask", "[4,1,2] f32", "[2,2] f32");
    wb_tensor *one = wb_ones(1, 3), *keep = wb_gt(wb_ones(2, 2), 0);
    REFUSED(wb_attention_scores(one, q, keep), WB_ERROR_SHAPE, "[2,2] bool", "[1,2] f32");
}

TEST_IN_SCOPE(wrong_directions)
{
    wb_tensor *x = wb_ones(2, 3), *y = wb_exp(x);
    REFUSED(wb_pushforward(y, x, wb_ones(3)), WB_ERROR_SHAPE, "pushforward", "[3] f32",
            "[2,3] f32");
    REFUSED(wb_pushforward(y, x, wb_full_array(1, WB_F16, 2, wb_dims(x))), WB_ERROR_DTYPE,
            "pushforward", "f16");
    REFUSED(wb_pushforward(wb_arange(3, WB_I32), x, x), WB_ERROR_DTYPE, "pushforward", "[3] i32");
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
