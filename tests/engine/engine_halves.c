/* Numbers of f16 and bf16: a number is one number for everyone who asks which it is, in its own
 * kernel as in others; numbers of C are rounded once; intermediate results do not overflow where
 * the result fits. */
#include "reference.h"

#include "base/base.h"

#include <math.h>

static const wb_dtype halves[] = {WB_F16, WB_BF16};

static wb_tensor *half_of(const double *x, int64_t n, wb_dtype t)
{
    return wb_astype(wb_from(x, WB_F64, 1, &n), t);
}

/* ---- a number is one number ------------------------------------------------------------------ */

/* Products that are not numbers of the dtype, of which some overflow f16, some underflow, and some
 * are next to 0.5, 1 and 2. */
enum { N = 16 };
static const double left[N] = {300, 300, -300, 1e-4, 1e-6, 0.7, 0.33, 1.01, 3.1, -0.7, 255.5, 2049,
                               1.0009765625, 0.99951171875, 181, 65504};
static const double right[N] = {300, 218.3, 300, 1e-4, 1e-3, 0.715, 1.515, 0.99, 0.323, 0.715,
                                256.2, 1.0009765625, 0.9990234375, 1.00048828125, 362, 1.001};

static const float *in_f32(wb_tensor *x) { return wb_data(wb_astype(x, WB_F32)); }

static void see(wb_tensor *y, wb_tensor *const *seen, wb_dtype t)
{
    const float *number = in_f32(y);                    /* after y was stored */
    const uint8_t *finite = wb_data(seen[0]), *more = wb_data(seen[1]), *same = wb_data(seen[2]);
    const float *wide = wb_data(seen[3]), *kept = in_f32(seen[5]), *floored = in_f32(seen[6]);
    const int32_t *whole = wb_data(seen[4]);
    for (int i = 0; i < N; i++) {
        const float f = number[i];
        const float clear = isfinite(f) ? f : 0;
        if (finite[i] != isfinite(f) || more[i] != (f > 1) || !same[i] || wide[i] != f ||
            (isfinite(f) && whole[i] != (int32_t)f) || kept[i] != clear || floored[i] != floorf(f))
            fail_msg("%s, %g x %g is %.9g: finite %d, more than 1 %d, itself %d, f32 %.9g, i32 %d, "
                     "or 0 %.9g, floor %.9g", wb_dtype_name(t), left[i], right[i], (double)f,
                     finite[i], more[i], same[i], (double)wide[i], whole[i], (double)kept[i],
                     (double)floored[i]);
    }
}

TEST_IN_SCOPE(what_is_asked_of_a_number)
{
    for (size_t k = 0; k < WB__COUNT(halves); k++)
        for (int stored = 0; stored < 2; stored++) {
            wb_tensor *a = half_of(left, N, halves[k]), *b = half_of(right, N, halves[k]);
            wb_tensor *y = wb_mul(a, b), *c = half_of(left, N, halves[k]);
            wb_tensor *apart = wb_mul(c, half_of(right, N, halves[k]));
            WORKS(wb_eval(apart));                              /* the same product in memory */
            wb_tensor *seen[] = {wb_isfinite(y), wb_gt(y, 1), wb_eq(y, apart),
                                 wb_astype(y, WB_F32), wb_astype(y, WB_I32),
                                 wb_where(wb_isfinite(y), y, 0), wb_floor(y)};
            wb_tensor *all[8] = {seen[0], seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], y};
            WORKS(wb_eval_array(7 + stored, all));
            see(y, seen, halves[k]);
        }
}

/* wb_all, the greatest and its index, and the sign of a number that is stored as 0. */
TEST_IN_SCOPE(reductions_of_what_is_asked)
{
    wb_tensor *a = half_of(left, N, WB_F16), *b = half_of(right, N, WB_F16), *y = wb_mul(a, b);
    assert_true(wb_item(wb_all(wb_isfinite(y))) == 0);
    /* 0.99951 x 1.00049 and 1.00098 x 0.99902 are 1 and 1 in f16: the first is the greatest */
    wb_tensor *two = wb_slice(y, 0, 12, 14), *at = wb_argmax(two, 0);
    wb_tensor *first = wb_argmax(wb_neg(two), 0);
    WORKS(wb_eval(at, first));
    const double x0 = wb_at(two, 0), x1 = wb_at(two, 1);
    assert_true(wb_item(at) == (x1 > x0) && wb_item(first) == (x1 < x0));
    double tiny[2] = {1e-5, -1e-5};
    wb_tensor *t = half_of(tiny, 2, WB_F16), *square = wb_mul(wb_mul(t, t), t);
    wb_tensor *sign = wb_sign(square);
    WORKS(wb_eval(sign));
    assert_true(wb_at(sign, 0) == 0 && wb_at(sign, 1) == 0 && wb_at(square, 0) == 0);
    double base[1] = {-2}, power[2] = {1.0009765625, 1.998};      /* 2.0000 in f16 */
    wb_tensor *p = wb_mul(wb_slice(half_of(power, 2, WB_F16), 0, 0, 1),
                          wb_slice(half_of(power, 2, WB_F16), 0, 1, 2));
    wb_tensor *q = wb_pow(half_of(base, 1, WB_F16), p);
    WORKS(wb_eval(q));
    assert_true(wb_item(p) == 2 ? wb_item(q) == 4 : isnan(wb_item(q)));
}

/* A gradient that the update's own kernel computes is infinite as f16, and finite before that. */
TEST_IN_SCOPE(infinite_gradients_are_skipped)
{
    for (int k = 0; k < 3; k++) {
        wb_rule *rule = k == 0   ? wb_Descent(.eta = 1e-5)
                        : k == 1 ? wb_Adam(.eta = 1e-3)
                                 : wb_OptimizerChain(wb_ClipNorm(), wb_Descent(.eta = 1e-3));
        wb_tree *t = wb_tuple(wb_variable(wb_ones(2)));
        wb_opt_state *s = wb_setup(rule, t, .mixed = WB_F16);
        for (int i = 0; i < 12; i++) {
            wb_tensor *l = wb_sum(wb_mul(wb_get(t, "0"), 100.));
            WORKS(wb_update(s, t, wb_gradient(wb_scale_loss(s, l), t)));
            WORKS(wb_eval(l));
            const double p = wb_at(wb_get(t, "0"), 0);
            /* 65536 x 100 overflows, and so on down to 1024 x 100: seven updates are skipped */
            if (i < 7 ? p != 1 : !(p < 1 && p > 0.9)) fail_msg("rule %d, update %d: %g", k, i, p);
        }
    }
}

/* ---- numbers of C ---------------------------------------------------------------------------- */

TEST_IN_SCOPE(numbers_are_rounded_once)
{
    static const struct { wb_dtype t; double v, want; } of[] = {
        {WB_F16, 1 + 0x1p-11 + 0x1p-30, 1 + 0x1p-10}, {WB_F16, 65519.99999, 65504},
        {WB_F16, 1 + 0x1p-11 - 0x1p-40, 1}, {WB_F16, -65519.99999, -65504},
        {WB_F16, 65520, INFINITY}, {WB_BF16, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7}};
    for (size_t i = 0; i < WB__COUNT(of); i++) {
        const wb_dtype t = of[i].t;
        const double v = of[i].v, want = of[i].want;
        const int64_t one = 1;
        wb_tensor *zero = wb_full_array(0, t, 1, &one), *full = wb_full_array(v, t, 1, &one);
        wb_tensor *same[] = {full, wb_full_like(zero, v),
                             wb_where(wb_full_array(1, WB_BOOL, 1, &one), v, zero),
                             wb_pad(zero, 0, 1, 0, .value = v), wb_add(zero, v),
                             wb_maximum(wb_full_array(-INFINITY, t, 1, &one), v)};
        for (size_t k = 0; k < WB__COUNT(same); k++)
            if (wb_at(same[k], 0) != want)
                fail_msg("%s of %.12g, %zu: %.9g", wb_dtype_name(t), v, k, wb_at(same[k], 0));
        assert_true(wb_item(wb_all(wb_eq(full, v))) == 1);      /* v is what full has */
    }
}

TEST_IN_SCOPE(draws_are_below_1)
{
    for (size_t k = 0; k < WB__COUNT(halves); k++) {
        wb_seed(3);
        wb_tensor *x = wb_rand_array(halves[k], 1, (int64_t[]){1 << 18});
        wb_tensor *most = wb_max(x), *ones = wb_sum(wb_astype(wb_eq(x, 1), WB_I32));
        wb_tensor *logs = wb_min(wb_log(wb_sub(1, x)));
        WORKS(wb_eval(x, most, ones, logs));
        assert_true(wb_item(most) == (k ? 1 - 0x1p-8 : 1 - 0x1p-11));
        assert_true(wb_item(ones) == 0 && isfinite(wb_item(logs)));
        const double mean = wb_item(wb_mean(wb_astype(x, WB_F32)));
        assert_true(fabs(mean - 0.5) < 0.003 && wb_item(wb_min(x)) >= 0);
    }
}

/* ---- what fits does not overflow ------------------------------------------------------------- */

static wb_tensor *filled(double v, wb_dtype t, int64_t rows, int64_t columns)
{
    return wb_full_array(v, t, 4, (int64_t[]){1, 1, rows, columns});
}

/* Scores of 19208 and 18424 from products of 154000 and 147000. */
TEST_IN_SCOPE(attention_scales_first)
{
    static const wb_dtype all[] = {WB_F32, WB_BF16, WB_F16};
    static const int64_t widths[] = {64, 48};           /* 48: the scale is no power of 2 */
    for (size_t i = 0; i < WB__COUNT(all); i++)
        for (size_t w = 0; w < WB__COUNT(widths); w++) {
            const wb_dtype t = all[i];
            const int64_t d = widths[w];
            const int64_t of_v[4] = {1, 1, 2, 1};
            wb_tensor *q = filled(49, t, 1, d), *less = filled(47, t, 1, d);
            wb_tensor *k = wb_concat(2, q, less);
            wb_tensor *v = wb_astype(wb_from((float[]){1, 0}, WB_F32, 4, of_v), t);
            assert_true(fabs(wb_item(wb_attention(q, k, v, WB_NONE)) - 1) < 1e-3);
            wb_tensor *mask = wb_from((uint8_t[]){1, 1}, WB_BOOL, 2, (int64_t[]){1, 2});
            assert_true(fabs(wb_item(wb_attention(q, k, v, mask)) - 1) < 1e-3);
            assert_true(fabs(wb_at(wb_attention_scores(q, k, WB_NONE), 0, 0, 0, 0) - 1) < 1e-3);
            wb_layer *m = wb_MultiHeadAttention(d, 1, .init = wb_identity_init, .dtype = t,
                                                .weights = true);
            wb_tensor *o[2], *in[3] = {wb_reshape(q, 1, 1, d), wb_reshape(k, 1, 2, d),
                                       wb_reshape(k, 1, 2, d)};
            WORKS(wb_call_outputs(m, 3, in, 2, o));
            assert_true(fabs(wb_at(o[1], 0, 0, 0, 0) - 1) < 1e-3);
        }
}

/* The scaled f16 form has the gradients of f32. */
TEST_IN_SCOPE(attention_gradients_of_f16)
{
    const int64_t dims[4] = {1, 2, 5, 12};
    wb_seed(8);
    wb_tensor *in[3], *slope[2][3];
    for (int i = 0; i < 3; i++) in[i] = wb_randn_array(WB_F16, 4, dims);
    WORKS(wb_eval_array(3, in));
    for (int half = 0; half < 2; half++) {
        wb_tensor *x[3];
        for (int i = 0; i < 3; i++)
            x[i] = wb_variable(half ? in[i] : wb_astype(in[i], WB_F32));
        wb_tensor *y = wb_attention(x[0], x[1], x[2], wb_causal_mask(5, 5));
        wb_tensor *loss = wb_sum(wb_square(wb_astype(y, WB_F32)));
        for (int i = 0; i < 3; i++) MADE(slope[half][i] = wb_gradient(loss, x[i]));
    }
    for (int i = 0; i < 3; i++) {
        const float *a = wb_data(slope[0][i]), *b = wb_data(wb_astype(slope[1][i], WB_F32));
        for (int64_t j = 0; j < wb_size(slope[0][i]); j++)
            if (!(fabsf(a[j] - b[j]) < 0.02f + 0.01f * fabsf(a[j])))
                fail_msg("operand %d, %d: %g, not %g", i, (int)j, (double)b[j], (double)a[j]);
    }
}

TEST_IN_SCOPE(pooled_powers_fit)
{
    wb_tensor *x = wb_variable(filled(300, WB_F16, 2, 2)), *g;
    wb_tensor *y = wb_lpnormpool(x, 2.0, .window = {2});
    assert_true(wb_item(y) == 600 && wb_dtype_of(y) == WB_F16);
    MADE(g = wb_gradient(wb_sum(y), x));
    assert_true(fabs(wb_at(g, 0, 0, 0, 0) - 0.5) < 1e-3);
    wb_tensor *wave = wb_full_array(100, WB_F16, 1, (int64_t[]){16});
    wb_tensor *sizes = wb_spectrogram(wave, .n_fft = 8, .center = false, .power = 1.0);
    assert_true(wb_item(wb_max(sizes)) == 800);
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
