/* Metrics, with values of scikit-learn 1.7, and the functions about NaN, with values of PyTorch
 * 2.15. */
#include "reference.h"

#include "nn/layer.h"

static const int32_t of_y[10] = {0, 1, 2, 2, 1, 0, 2, 1, 0, 2},
                     of_yhat[10] = {0, 2, 2, 1, 1, 0, 2, 1, 1, 2};
static const float of_scores[30] = {
    0.7f, 0.2f, 0.1f, 0.1f, 0.3f, 0.6f, 0.2f, 0.2f, 0.6f, 0.1f, 0.5f, 0.4f, 0.3f, 0.4f, 0.3f,
    0.6f, 0.3f, 0.1f, 0.2f, 0.1f, 0.7f, 0.1f, 0.8f, 0.1f, 0.3f, 0.5f, 0.2f, 0.25f, 0.25f, 0.5f};
static const float of_bits[8] = {1, 0, 1, 1, 0, 0, 1, 0},
                   of_p[8] = {0.9f, 0.4f, 0.35f, 0.8f, 0.4f, 0.1f, 0.4f, 0.7f};

static wb_tensor *numbers(int64_t n, const int32_t *v) { return wb_from(v, WB_I32, 1, &n); }
static wb_tensor *reals(int64_t n, const float *v) { return wb_from(v, WB_F32, 1, &n); }
static wb_tensor *scores(void) { return wb_from(of_scores, WB_F32, 2, (int64_t[]){10, 3}); }

static void near(wb_tensor *x, double want)
{
    if (!x) fail_msg("%s", wb_error());
    const double got = wb_item(x);
    if (!(fabs(got - want) <= 1e-6)) fail_msg("%.9g, not %.9g: %s", got, want, wb_error());
}

static void same(wb_tensor *x, int n, const double *want)
{
    if (!x) fail_msg("%s", wb_error());
    assert_int_equal(wb_size(x), n);
    x = wb_reshape(x, -1);
    for (int i = 0; i < n; i++) {
        const double got = wb_at(x, i);
        if (isnan(want[i]) ? !isnan(got) : !(fabs(got - want[i]) <= 1e-6))
            fail_msg("element %d is %.9g, not %.9g", i, got, want[i]);
    }
}

/* A score that is NaN is of no class: the table leaves its element out, the others are NaN. */
TEST_IN_SCOPE(scores_that_are_nan)
{
    const float at[9] = {0, 1, 0, NAN, NAN, NAN, 0, NAN, 1};
    const int32_t of[3] = {1, 0, 2};
    const bool some[3] = {true, false, false};
    wb_tensor *x = wb_from(at, WB_F32, 2, (int64_t[]){3, 3}), *y = numbers(3, of);
    wb_tensor *mask = wb_from(some, WB_BOOL, 1, (int64_t[]){3});
    same(wb_confusion(x, y), 9, (double[]){0, 0, 0, 0, 1, 0, 0, 0, 0});
    same(wb_f1(x, y), 1, (double[]){NAN});
    same(wb_iou(x, y), 1, (double[]){NAN});
    same(wb_f1(x, y, .agg = WB_AGG_UNREDUCED), 3, (double[]){NAN, NAN, NAN});
    near(wb_f1(x, y, .mask = mask), 1);
    near(wb_iou(x, y, .mask = mask), 1);
}

TEST_IN_SCOPE(confusion)
{
    wb_tensor *y = numbers(10, of_y), *yhat = numbers(10, of_yhat), *table;
    table = wb_confusion(yhat, y, .classes = 4);
    assert_int_equal(wb_dtype_of(table), WB_I32);
    same(table, 16, (double[]){2, 1, 0, 0, 0, 2, 1, 0, 0, 1, 3, 0, 0, 0, 0, 0});
    same(wb_confusion(scores(), y), 9, (double[]){2, 1, 0, 0, 2, 1, 0, 1, 3});
    same((wb_confusion)(scores(), y), 9, (double[]){2, 1, 0, 0, 2, 1, 0, 1, 3});
    same(wb_confusion(wb_transpose(scores()), y, .dims = 0), 9,
         (double[]){2, 1, 0, 0, 2, 1, 0, 1, 3});
    same(wb_confusion(yhat, y, .classes = 3, .ignore_index = 2), 9,
         (double[]){2, 1, 0, 0, 2, 1, 0, 0, 0});
    wb_tensor *kept = wb_lt(wb_arange(10, WB_I32), wb_scalar_int(4));
    same(wb_confusion(yhat, y, .classes = 3, .mask = kept), 9,
         (double[]){1, 0, 0, 0, 0, 1, 0, 1, 1});
    /* Classes out of range do not count, wherever they are. */
    const int32_t wild[10] = {0, 1, -1, 3, 1, 0, 2, 1, 0, 2};
    same(wb_confusion(numbers(10, wild), wb_astype(y, WB_I64), .classes = 3), 9,
         (double[]){3, 0, 0, 0, 3, 0, 0, 0, 2});
    same(wb_confusion(y, numbers(10, wild), .classes = 3), 9,
         (double[]){3, 0, 0, 0, 3, 0, 0, 0, 2});
    wb_tensor *b = reals(8, of_bits), *p = wb_gt(reals(8, of_p), 0.5);
    same(wb_confusion(p, b), 4, (double[]){3, 1, 2, 2});
    same(wb_confusion(p, wb_gt(b, 0)), 4, (double[]){3, 1, 2, 2});
    same(wb_confusion(p, wb_astype(b, WB_U8)), 4, (double[]){3, 1, 2, 2});
    same(wb_confusion(wb_zeros(0, 2), numbers(0, of_y)), 4, (double[]){0, 0, 0, 0});
}

TEST_IN_SCOPE(f1_and_iou)
{
    wb_tensor *y = numbers(10, of_y), *yhat = numbers(10, of_yhat);
    near(wb_f1(yhat, y, .classes = 3), 0.7071428571428572);
    near(wb_f1(yhat, y, .classes = 4), 0.7071428571428572);     /* nobody has class 3 */
    same(wb_f1(yhat, y, .classes = 4, .agg = WB_AGG_UNREDUCED), 4,
         (double[]){0.8, 0.5714285714285714, 0.75, NAN});
    near((wb_f1)(scores(), y), 0.7071428571428572);
    near(wb_iou(yhat, y, .classes = 3), 0.5555555555555555);
    same(wb_iou(yhat, y, .classes = 3, .agg = WB_AGG_UNREDUCED), 3,
         (double[]){0.6666666666666666, 0.4, 0.6});
    wb_tensor *image = wb_reshape(wb_transpose(scores()), 1, 3, 2, 5);
    near(wb_iou(image, wb_reshape(y, 1, 2, 5), .dims = 1), 0.5555555555555555);
    near((wb_iou)(scores(), y), 0.5555555555555555);
    wb_tensor *b = reals(8, of_bits), *p = wb_gt(reals(8, of_p), 0.5);
    near(wb_f1(p, b), 0.5714285714285714);
    near(wb_iou(p, b), 0.4);
    same(wb_f1(p, b, .agg = WB_AGG_UNREDUCED), 2, (double[]){6.0 / 9, 4.0 / 7});
    wb_tensor *kept = wb_ne(numbers(8, (int32_t[]){1, 1, 1, 0, 1, 1, 0, 1}), 0);
    near(wb_f1(p, b, .mask = kept), 0.5);
    assert_true(isnan(wb_item(wb_f1(wb_zeros(0, 3), numbers(0, of_y)))));
    near(wb_f1(wb_ne(numbers(2, of_y), 5), wb_zeros(2)), 0);    /* nothing is right */
}

TEST_IN_SCOPE(roc_auc)
{
    wb_tensor *b = reals(8, of_bits), *p = reals(8, of_p), *y = numbers(10, of_y);
    near(wb_roc_auc(p, b), 0.6875);
    near(wb_roc_auc(wb_reshape(p, 2, 2, 2), wb_reshape(wb_gt(b, 0), 2, 2, 2)), 0.6875);
    near((wb_roc_auc)(wb_mul(p, -1), b), 1 - 0.6875);
    near(wb_roc_auc(scores(), y), 0.8859126984126985);
    near(wb_roc_auc(wb_transpose(scores()), y, .dims = 0), 0.8859126984126985);
    wb_tensor *kept = wb_ne(numbers(8, (int32_t[]){1, 1, 1, 0, 1, 1, 0, 1}), 0);
    near(wb_roc_auc(p, b, .mask = kept), 0.625);
    near(wb_roc_auc(wb_where(kept, p, NAN), b, .mask = kept), 0.625);
    assert_true(isnan(wb_item(wb_roc_auc(wb_where(kept, p, NAN), b))));
    assert_true(isnan(wb_item(wb_roc_auc(p, wb_ones(8)))));
    assert_true(isnan(wb_item(wb_roc_auc(wb_zeros(0), wb_zeros(0)))));
    assert_true(isnan(wb_item(wb_roc_auc(wb_zeros(1), wb_zeros(1)))));
    near(wb_roc_auc(wb_zeros(8), b), 0.5);                      /* all are equal */
    /* Few of many: the counts are exact. */
    wb_tensor *many = wb_arange(100001, WB_F32), *rare = wb_eq(many, 70000);
    near(wb_roc_auc(many, rare), 0.7);
}

static double held_out(wb_layer *model, int epoch, void *ctx)
{
    wb_tensor *p = wb_sigmoid(wb_call(model, ctx));
    wb_tensor *y = wb_gt(wb_sum(ctx, 1, .keep = true), 0);
    const double f1 = wb_item(wb_f1(wb_gt(p, 0.5), y)), auc = wb_item(wb_roc_auc(p, y));
    assert_true(epoch > 0 && f1 >= 0 && f1 <= 1 && auc >= 0 && auc <= 1);
    return auc;
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_logitbinarycrossentropy(wb_call(m, b.x), b.y);
}

TEST_IN_SCOPE(metric_of_a_training)
{
    double seen[3];
    wb_seed(1);
    wb_tensor *x = wb_randn(64, 2);
    wb_tensor *y = wb_astype(wb_gt(wb_sum(x, 1, .keep = true), 0), WB_F32);
    wb_layer *m = wb_Dense(2, 1);
    WORKS(wb_train(loss, m, wb_dataloader(wb_dataset_of(x, y), 16), wb_setup(wb_Descent(0.5), m),
                   .epochs = 3, .ctx = x, .metric = held_out, .metrics = seen));
    assert_true(seen[2] > 0.95);
}

TEST_IN_SCOPE(wrong_metrics)
{
    wb_tensor *y = numbers(10, of_y), *p = reals(8, of_p);
    REFUSED(wb_f1(y, y), WB_ERROR_ARGUMENT, "f1", ".classes");
    REFUSED(wb_f1(p, p), WB_ERROR_SHAPE, "f1", "[8] f32", "wb_gt(scores, 0.5)");
    REFUSED(wb_iou(scores(), p), WB_ERROR_SHAPE, "iou", "[8] f32", "[10,3] f32");
    REFUSED(wb_iou(scores(), wb_astype(y, WB_F32)), WB_ERROR_DTYPE, "[10] f32");
    REFUSED(wb_f1(scores(), y, .classes = 4), WB_ERROR_ARGUMENT, ".classes", "4", "3");
    REFUSED(wb_f1(scores(), y, .agg = WB_AGG_SUM), WB_ERROR_ARGUMENT, ".agg");
    REFUSED(wb_confusion(scores(), y, .agg = WB_AGG_SUM), WB_ERROR_ARGUMENT, "confusion", ".agg");
    REFUSED(wb_f1(scores(), y, .dims = 2), WB_ERROR_SHAPE, "axis 2");
    REFUSED(wb_f1(scores(), y, .mask = wb_gt(p, 0)), WB_ERROR_SHAPE, ".mask", "[8] bool", "[10]");
    REFUSED(wb_roc_auc(y, y), WB_ERROR_DTYPE, "roc_auc", "[10] i32");
    REFUSED(wb_roc_auc(p, y), WB_ERROR_SHAPE, "roc_auc", "[10] i32");
    REFUSED(wb_confusion(NULL, y), WB_ERROR_ARGUMENT, "yhat", "NULL");
    wb_clear_error();
}

/* ---- NaN ------------------------------------------------------------------------------------- */

TEST_IN_SCOPE(sums_without_nan)
{
    const float v[6] = {1, NAN, 3, NAN, NAN, -4};
    wb_tensor *z = wb_from(v, WB_F32, 2, (int64_t[]){2, 3}), *mean;
    near(wb_nansum(z), 0);
    same(wb_nansum(z, 0), 3, (double[]){1, 0, -1});
    same(wb_nanmean(z, 1), 2, (double[]){2, -4});
    same(wb_nanmean(z, .axes = {-1}, .keep = true), 2, (double[]){2, -4});
    same(wb_nanmean(z, 0), 3, (double[]){1, NAN, -0.5});
    near(mean = wb_nanmean(z), 0);
    same(wb_gradient(mean, z), 6, (double[]){1.0 / 3, 0, 1.0 / 3, 0, 0, 1.0 / 3});
    same(wb_gradient(wb_sum(wb_square(wb_nansum(z, 1))), z), 6, (double[]){8, 0, 8, 0, 0, -8});
    same(wb_isnan(z), 6, (double[]){0, 1, 0, 1, 1, 0});
    near(wb_nansum(wb_full(NAN, 3)), 0);
    near(wb_nansum(wb_zeros(0)), 0);
    assert_true(isnan(wb_item(wb_nanmean(wb_zeros(0)))));
    wb_tensor *large = wb_astype(wb_full(60000, 4), WB_F16);    /* the sum is above 65504 */
    near(wb_sub(wb_astype(wb_nanmean(large), WB_F32), 60000), 0);
    REFUSED(wb_nanmean(wb_arange(3, WB_I32)), WB_ERROR_DTYPE, "nanmean", "[3] i32");
    REFUSED(wb_nansum(z, 2), WB_ERROR_SHAPE, "nansum", "axis 2");
    REFUSED(wb_isnan(wb_arange(3, WB_I32)), WB_ERROR_DTYPE, "isnan", "[3] i32");
    wb_clear_error();
}

TEST_IN_SCOPE(numbers_for_nan)
{
    static const struct { wb_dtype dtype; double most; } rows[] = {
        {WB_F32, 3.4028234663852886e38}, {WB_F64, 1.7976931348623157e308}, {WB_F16, 65504},
        {WB_BF16, 3.3895313892515355e38}};
    const float v[4] = {NAN, INFINITY, -INFINITY, 2.5f};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        if (!has_dtype(rows[i].dtype)) continue;
        wb_tensor *x = wb_astype(reals(4, v), rows[i].dtype), *y = wb_nan_to_num(x);
        MADE(y);
        assert_int_equal(wb_dtype_of(y), rows[i].dtype);
        assert_true(wb_at(y, 0) == 0 && wb_at(y, 1) == rows[i].most &&
                    wb_at(y, 2) == -rows[i].most && wb_at(y, 3) == 2.5);
        same(wb_nan_to_num(x, 1, .posinf = 100, .neginf = -7), 4, (double[]){1, 100, -7, 2.5});
        same(wb_nan_to_num(x, 1, 0, 0), 4, (double[]){1, 0, 0, 2.5});
        same(wb_gradient(wb_sum(wb_nan_to_num(x, .posinf = 1, .neginf = 1)), x), 4,
             (double[]){0, 0, 0, 1});
    }
    REFUSED(wb_nan_to_num(wb_arange(3, WB_I32)), WB_ERROR_DTYPE, "nan_to_num", "[3] i32");
    wb_clear_error();
}
