/* Weights of observations and masks in all losses, and the loss of quantiles: values and gradients
 * of PyTorch 2.15 (mse_loss and l1_loss with weight; the other losses with
 * reduction="none", weighted by hand) and of scikit-learn's mean_pinball_loss; what is behind a
 * mask has no effect; losses of 0 rows. */
#include "reference.h"

#include "nn/layer.h"

enum { X, Q, R, P, Y, SIGNS, BITS, OPERANDS };
static const double operand[OPERANDS][6] = {
    [X] = {0.5, -1, 2, 1.5, 0.25, -0.75},           /* scores */
    [Q] = {0.5, 1, 2, 3, 0.25, 1.5},
    [R] = {1, 2, 0.5, 2, 0.75, 1},
    [P] = {0.7, 0.2, 0.1, 0.1, 0.3, 0.6},           /* probabilities */
    [Y] = {1, 0, 0, 0, 0.25, 0.75},
    [SIGNS] = {1, -1, 1, -1, 1, 1},
    [BITS] = {1, 0, 1, 0, 0, 1},
};

static wb_tensor *matrix(const double *v, int64_t rows, int64_t columns)
{
    float narrow[12];
    for (int i = 0; i < rows * columns; i++) narrow[i] = (float)v[i];
    return wb_from(narrow, WB_F32, 2, (int64_t[]){rows, columns});
}

static wb_tensor *of(int which) { return matrix(operand[which], 2, 3); }
static wb_tensor *vector(int64_t n, const float *v) { return wb_from(v, WB_F32, 1, &n); }
static wb_tensor *integers(int64_t n, const int32_t *v) { return wb_from(v, WB_I32, 1, &n); }
static wb_tensor *bools(int64_t n, const int32_t *v) { return wb_ne(integers(n, v), 0); }

#define CASE(name, ...)                                                                         \
    static wb_tensor *name(wb_tensor *x, wb_tensor *y, wb_agg a, wb_tensor *w, wb_tensor *m)    \
    {                                                                                           \
        return __VA_ARGS__;                                                                     \
    }
#define OPTIONS .agg = a, .sample_weight = w, .mask = m
CASE(mse, wb_mse(x, y, OPTIONS))
CASE(mae, wb_mae(x, y, OPTIONS))
CASE(msle, wb_msle(x, y, .eps = 0, OPTIONS))
CASE(huber, wb_huber(x, y, 0.7, OPTIONS))
CASE(quantile, wb_quantile_loss(x, y, 0.9, OPTIONS))
CASE(binary, wb_binarycrossentropy(x, y, .eps = 0, OPTIONS))
CASE(logitbinary, wb_logitbinarycrossentropy(x, y, OPTIONS))
CASE(poisson, wb_poisson_loss(x, y, OPTIONS))
CASE(hinge, wb_hinge_loss(x, y, OPTIONS))
CASE(squared_hinge, wb_squared_hinge_loss(x, y, OPTIONS))
CASE(binary_focal, wb_binary_focal_loss(x, y, .eps = 0, OPTIONS))
CASE(siamese, wb_siamese_contrastive_loss(x, y, OPTIONS))
CASE(crossentropy, wb_crossentropy(x, y, .eps = 0, OPTIONS))
CASE(logitcrossentropy, wb_logitcrossentropy(x, y, .label_smoothing = 0.1, OPTIONS))
CASE(kldivergence, wb_kldivergence(x, y, .eps = 0, OPTIONS))
CASE(focal, wb_focal_loss(x, y, .eps = 0, OPTIONS))
CASE(dice, wb_dice_coeff_loss(x, y, .sample_weight = w, .mask = m))
CASE(tversky, wb_tversky_loss(x, y, .sample_weight = w, .mask = m))

/* Losses of elements have values [2,3], those of rows [2], those of sets one. */
enum { ELEMENTS, ROWS, SETS };
static const struct {
    const char *name;
    wb_tensor *(*f)(wb_tensor *, wb_tensor *, wb_agg, wb_tensor *, wb_tensor *);
    int x, y, kind;
} losses[] = {
    {"mse", mse, Q, R, ELEMENTS}, {"mae", mae, Q, R, ELEMENTS}, {"msle", msle, Q, R, ELEMENTS},
    {"huber", huber, Q, R, ELEMENTS}, {"quantile_loss", quantile, Q, R, ELEMENTS},
    {"binarycrossentropy", binary, P, BITS, ELEMENTS},
    {"logitbinarycrossentropy", logitbinary, X, BITS, ELEMENTS},
    {"poisson_loss", poisson, Q, R, ELEMENTS}, {"hinge_loss", hinge, X, SIGNS, ELEMENTS},
    {"squared_hinge_loss", squared_hinge, X, SIGNS, ELEMENTS},
    {"binary_focal_loss", binary_focal, P, BITS, ELEMENTS},
    {"siamese_contrastive_loss", siamese, Q, BITS, ELEMENTS},
    {"crossentropy", crossentropy, P, Y, ROWS},
    {"logitcrossentropy", logitcrossentropy, X, Y, ROWS},
    {"kldivergence", kldivergence, P, Y, ROWS}, {"focal_loss", focal, P, Y, ROWS},
    {"dice_coeff_loss", dice, P, BITS, SETS}, {"tversky_loss", tversky, P, BITS, SETS},
};

static void near(double got, double want, const char *name)
{
    if (!(fabs(got - want) <= 2e-6 * fmax(1, fabs(want))))
        fail_msg("%s is %.9g, not %.9g: %s", name, got, want, wb_error());
}

static void all_near(wb_tensor *x, int n, const double *want, const char *name)
{
    if (!x) fail_msg("%s: %s", name, wb_error());
    assert_int_equal(wb_size(x), n);
    x = wb_reshape(x, -1);
    for (int i = 0; i < n; i++) near(wb_at(x, i), want[i], name);
}

/* sum(w l) / sum(w), sum(w l) and w l, from the values of the loss without weights. */
TEST_IN_SCOPE(weights_of_observations)
{
    static const double weights[2] = {3, 0.5};
    wb_tensor *w = vector(2, (float[]){3, 0.5f});
    for (size_t i = 0; i < WB__COUNT(losses); i++) {
        if (losses[i].kind == SETS) continue;
        wb_tensor *x = of(losses[i].x), *y = of(losses[i].y);
        wb_tensor *plain = losses[i].f(x, y, WB_AGG_UNREDUCED, WB_NONE, WB_NONE);
        wb_tensor *each = losses[i].f(x, y, WB_AGG_UNREDUCED, w, WB_NONE);
        MADE(plain && each);
        const int n = losses[i].kind == ELEMENTS ? 6 : 2;
        double sum = 0, all = 0, want[6];
        plain = wb_reshape(plain, -1);
        for (int k = 0; k < n; k++) {
            all += weights[k / (n / 2)];
            sum += want[k] = weights[k / (n / 2)] * wb_at(plain, k);
        }
        all_near(each, n, want, losses[i].name);
        near(wb_item(losses[i].f(x, y, WB_AGG_MEAN, w, WB_NONE)), sum / all, losses[i].name);
        near(wb_item(losses[i].f(x, y, WB_AGG_SUM, w, WB_NONE)), sum, losses[i].name);
    }
}

/* A mask leaves a row out as if it were not there, whatever the row has. */
TEST_IN_SCOPE(behind_a_mask)
{
    wb_tensor *kept = bools(2, (int32_t[]){0, 1});
    for (size_t i = 0; i < WB__COUNT(losses); i++) IN_SCOPE {
        double v[2][6];
        memcpy(v[0], operand[losses[i].x], sizeof v[0]);
        memcpy(v[1], operand[losses[i].y], sizeof v[1]);
        for (int k = 0; k < 3; k++) v[0][k] = k == 1 ? INFINITY : NAN, v[1][k] = NAN;
        wb_tensor *x = matrix(v[0], 2, 3), *y = matrix(v[1], 2, 3);
        wb_tensor *row = wb_slice(x, 0, 1, 2), *target = wb_slice(y, 0, 1, 2);
        wb_tensor *loss = losses[i].f(x, y, WB_AGG_MEAN, WB_NONE, kept);
        wb_tensor *want = losses[i].f(row, target, WB_AGG_MEAN, WB_NONE, WB_NONE);
        MADE(loss && want);
        near(wb_item(loss), wb_item(want), losses[i].name);
        for (int side = 0; side < 2; side++) {
            wb_tensor *g = wb_gradient(loss, side ? y : x);
            wb_tensor *h = wb_gradient(want, side ? target : row);
            MADE(g && h);
            for (int k = 0; k < 3; k++) {
                if (wb_at(g, 0, k) != 0)
                    fail_msg("%s: gradient %g behind the mask", losses[i].name, wb_at(g, 0, k));
                if (wb_at(h, 0, k) == wb_at(h, 0, k))   /* NaN at 0 log 0 without an eps */
                    near(wb_at(g, 1, k), wb_at(h, 0, k), losses[i].name);
            }
        }
        if (losses[i].kind != SETS) {
            wb_tensor *none = bools(2, (int32_t[]){0, 0});
            assert_true(isnan(wb_item(losses[i].f(x, y, WB_AGG_MEAN, WB_NONE, none))));
            assert_true(wb_item(losses[i].f(x, y, WB_AGG_SUM, WB_NONE, none)) == 0);
            wb_tensor *each = losses[i].f(x, y, WB_AGG_UNREDUCED, WB_NONE, kept);
            each = losses[i].kind == ELEMENTS ? wb_slice(each, 0, 0, 1) : wb_slice(each, 0, 0, 1);
            assert_true(wb_item(wb_sum(wb_abs(each))) == 0);
        }
    }
}

/* The numbers are PyTorch's. */
TEST_IN_SCOPE(of_elements)
{
    wb_tensor *x = of(X), *r = of(R), *w = vector(2, (float[]){3, 0.5f}), *loss;
    wb_tensor *m = wb_reshape(bools(6, (int32_t[]){1, 0, 1, 1, 1, 0}), 2, 3);
    loss = wb_mse(x, r, .sample_weight = w);
    near(wb_item(loss), 3.45535714286, "mse");
    all_near(wb_gradient(loss, x), 6,
             (double[]){-0.285714285714, -1.71428571429, 0.857142857143, -0.047619047619,
                        -0.047619047619, -0.166666666667}, "slope of mse");
    near(wb_item(wb_mae(x, r, .sample_weight = w)), 1.5595238095238095, "mae");
    near(wb_item(wb_huber(x, r, .sample_weight = w)), 11.625 / 10.5, "huber");
    loss = wb_huber(x, r, 0.7, .sample_weight = w, .mask = m);
    near(wb_item(loss), 0.416428571429, "huber");
    all_near(wb_gradient(loss, x), 6,
             (double[]){-0.214285714286, 0, 0.3, -0.0357142857143, -0.0357142857143, 0},
             "slope of huber");
    wb_tensor *bits = wb_astype(wb_gt(r, 0.9), WB_F32);
    loss = wb_logitbinarycrossentropy(x, bits, .mask = m);
    near(wb_item(loss), 0.907089423271, "logitbinarycrossentropy");
    all_near(wb_gradient(loss, x), 6,
             (double[]){-0.0943851671995, 0, 0.220199269494, -0.0456063809516, 0.140544125221, 0},
             "slope of logitbinarycrossentropy");
    /* Weights have gradients too: (l - mean) / sum(w). */
    wb_tensor *g = wb_gradient(wb_mse(x, r, .sample_weight = w), w);
    near(wb_at(g, 0), (11.5 / 3 - 3.45535714286) * 3 / 10.5, "slope of the weight");
    /* A half of the observations may have no axis in the weight: [2,1], or only one number. */
    near(wb_item(wb_mse(x, r, .sample_weight = wb_reshape(w, 2, 1))), 3.45535714286, "[2,1]");
    near(wb_item(wb_mse(x, r, .sample_weight = wb_full(7, 1, 1))), wb_item(wb_mse(x, r)), "[1,1]");
    wb_tensor *half = wb_astype(x, WB_F16);
    near(wb_item(wb_mse(half, wb_astype(r, WB_F16), .sample_weight = wb_astype(w, WB_F16))),
         3.45535714286, "f16");
}

static const double scores[12] = {0.5, -1, 2, 1.5, 0.25, -0.75, 0.1, 0.2, -0.3, -2, 1, 0.5};

TEST_IN_SCOPE(of_class_numbers)
{
    wb_tensor *s = matrix(scores, 4, 3), *y = integers(4, (int32_t[]){2, 0, 1, 2}), *loss;
    wb_tensor *w = vector(4, (float[]){1, 2, 0.5f, 4}), *of_class = vector(3, (float[]){0.5f, 2,
                                                                                     1.25f});
    loss = wb_logitcrossentropy(s, y, .sample_weight = w);
    near(wb_item(loss), 0.717527727016, "weights");
    all_near(wb_gradient(loss, s), 12,
             (double[]){0.0233720522853, 0.00521500976942, -0.0285870620548, -0.075082575693,
                        0.054889761066, 0.020192814627, 0.0240197743494, -0.040120710597,
                        0.0161009362476, 0.0160314067038, 0.321999411279, -0.338030817983},
             "slope");
    near(wb_item(wb_crossentropy(wb_softmax(s), y, .eps = 0, .sample_weight = w)), 0.717527727016,
         "probabilities");
    loss = wb_logitcrossentropy(s, y, .sample_weight = w, .weight = of_class);
    near(wb_item(loss), 0.797105926969, "both weights");
    all_near(wb_gradient(loss, s), 12,
             (double[]){0.0265591503242, 0.00592614746526, -0.0324852977895, -0.0341284434968,
                        0.0249498913937, 0.00917855210319, 0.0436723169989, -0.07294674654,
                        0.0292744295412, 0.0182175076179, 0.365908421908, -0.384125929526},
             "slope");
    /* The label behind the mask is no class. */
    double wild[12];
    memcpy(wild, scores, sizeof wild);
    wild[6] = wild[8] = NAN;
    s = matrix(wild, 4, 3);
    y = integers(4, (int32_t[]){2, 0, -100, 2});
    wb_tensor *m = bools(4, (int32_t[]){1, 1, 0, 1});
    loss = wb_logitcrossentropy(s, y, .mask = m, .weight = of_class);
    near(wb_item(loss), 0.574240517818, "mask");
    all_near(wb_gradient(loss, s), 12,
             (double[]){0.0730376633917, 0.0162969055295, -0.0893345689211, -0.0469266098082,
                        0.0343061006663, 0.0126205091419, 0, 0, 0, 0.0125245364873, 0.251562040062,
                        -0.264086576549}, "slope");
    near(wb_item(wb_logitcrossentropy(s, wb_astype(y, WB_I64), .mask = m, .weight = of_class,
                                      .ignore_index = 7)), 0.574240517818, "mask and ignored");
    wb_tensor *image = wb_reshape(wb_transpose(s), 1, 3, 2, 2);
    near(wb_item(wb_logitcrossentropy(image, wb_reshape(y, 1, 2, 2), .dims = 1, .weight = of_class,
                                      .mask = wb_reshape(m, 1, 2, 2))), 0.574240517818, "image");
}

static wb_tensor *masked_loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), b.y, .mask = ctx);
}

/* Where a training looks at the labels, it looks at those that count. */
TEST_IN_SCOPE(trained_with_a_mask)
{
    wb_layer *m = wb_Dense(2, 3);
    wb_tensor *kept = bools(4, (int32_t[]){1, 1, 0, 1});
    wb_batch b = wb_batch_of(wb_randn(4, 2), integers(4, (int32_t[]){2, 0, -100, 1}));
    wb_tree *g;
    MADE(wb_withgradient(masked_loss, m, b, &g, kept));
    kept = bools(4, (int32_t[]){1, 1, 1, 0});
    wb_tensor *loss = wb_withgradient(masked_loss, m, b, &g, kept);
    assert_true(!loss || isnan(wb_item(loss)));
    wb_clear_error();
}

TEST_IN_SCOPE(of_sequences)
{
    double v[18] = {0.5, -1, 2, 1.5, 0.25, -0.75, 0.1, 0.2, -0.3, -2, 1, 0.5, 0.3, 0.6, -0.9, 1,
                    -1, 0};
    float x[18];
    for (int i = 0; i < 18; i++) x[i] = (float)v[i];
    wb_tensor *yhat = wb_from(x, WB_F32, 3, (int64_t[]){2, 3, 3});
    wb_tensor *y = wb_from((int32_t[]){1, 2, 2, 1}, WB_I32, 2, (int64_t[]){2, 2});
    wb_tensor *n = integers(2, (int32_t[]){2, 1}), *w = vector(2, (float[]){3, 0.5f});
    all_near(wb_ctc_loss(yhat, y, .target_lengths = n, .agg = WB_AGG_UNREDUCED, .sample_weight = w),
             2,
             (double[]){3 * 3.95141653402, 0.5 * 1.99781488242}, "ctc");
    near(wb_item(wb_ctc_loss(yhat, y, .target_lengths = n, .sample_weight = w)),
         (3 * 3.95141653402 / 2 + 0.5 * 1.99781488242) / 3.5, "ctc");
    for (int i = 9; i < 18; i++) x[i] = NAN;
    yhat = wb_from(x, WB_F32, 3, (int64_t[]){2, 3, 3});
    y = wb_from((int32_t[]){1, 2, -5, 77}, WB_I32, 2, (int64_t[]){2, 2});
    n = integers(2, (int32_t[]){2, 99});
    wb_tensor *loss = wb_ctc_loss(yhat, y, .target_lengths = n, .mask = wb_gt(w, 1)), *g;
    near(wb_item(loss), 3.95141653402 / 2, "ctc");
    MADE(g = wb_gradient(loss, yhat));
    assert_true(wb_item(wb_sum(wb_abs(wb_slice(g, 0, 1, 2)))) == 0);
    assert_true(wb_item(wb_sum(wb_abs(g))) > 0.1);
    /* A path that is not there is infinite, but not behind a mask. */
    wb_tensor *ones = wb_full_array(1, WB_I32, 2, (int64_t[]){2, 2}), *zeros = wb_zeros(2, 2, 3);
    assert_true(isinf(wb_item(wb_ctc_loss(zeros, ones))));
    assert_true(wb_item(wb_ctc_loss(zeros, ones, .agg = WB_AGG_SUM, .mask = wb_gt(w, 9))) == 0);
}

TEST_IN_SCOPE(quantiles)
{
    wb_tensor *x = of(X), *r = of(R), *loss = wb_quantile_loss(x, r, 0.9);
    near(wb_item(loss), 0.9625, "0.9");
    all_near(wb_gradient(loss, x), 6,
             (double[]){-0.15, -0.15, 0.0166666666667, -0.15, -0.15, -0.15}, "slope");
    near(wb_item((wb_quantile_loss)(x, r, 0.9)), 0.9625, "a function value");
    near(wb_item(wb_quantile_loss(x, r, .quantile = 0.9, .sample_weight =
                                  wb_reshape(vector(6, (float[]){1, 2, 3, 4, 5, 6}), 2, 3))),
         0.9428571428571428, "weights");
    near(wb_item(wb_quantile_loss(x, r)), 0.5 * wb_item(wb_mae(x, r)), "the median");
    wb_tensor *q = vector(3, (float[]){0.1f, 0.5f, 0.9f}), *y = vector(2, (float[]){1, -0.5f});
    loss = wb_quantile_loss(x, y, .quantiles = q);
    near(wb_item(loss), 0.591666666667, "several");
    all_near(wb_quantile_loss(x, y, .quantiles = q, .agg = WB_AGG_UNREDUCED), 6,
             (double[]){0.05, 1, 0.1, 1.8, 0.375, 0.225}, "several");
    all_near(wb_gradient(loss, x), 6, (double[]){-0.0166666666667, -0.0833333333333,
                                                 0.0166666666667, 0.15, 0.0833333333333, -0.15},
             "slope");
    wb_tensor *m = bools(2, (int32_t[]){1, 0});
    near(wb_item(wb_quantile_loss(x, vector(2, (float[]){1, NAN}), .quantiles = q, .mask = m)),
         (0.05 + 1 + 0.1) / 3, "mask");
    REFUSED(wb_quantile_loss(x, r, 0), WB_ERROR_ARGUMENT, ".quantile", "0", "1");
    REFUSED(wb_quantile_loss(x, r, 1), WB_ERROR_ARGUMENT, ".quantile", "1");
    REFUSED(wb_quantile_loss(x, r, 0.1, .quantiles = q), WB_ERROR_ARGUMENT, ".quantiles");
    wb_tensor *wrong = wb_sub(wb_mul(q, 3), 0.5);
    assert_true(isnan(wb_item(wb_quantile_loss(x, y, .quantiles = wrong))));
    WORKS(wb_eval(wrong));
    REFUSED(wb_quantile_loss(x, y, .quantiles = wrong), WB_ERROR_ARGUMENT, ".quantiles has", "[");
    REFUSED(wb_quantile_loss(x, y), WB_ERROR_SHAPE, "[2,3] f32", "[2] f32");
    REFUSED(wb_quantile_loss(x, wb_zeros(3), .quantiles = q), WB_ERROR_SHAPE, "[3,1] f32");
    REFUSED(wb_quantile_loss(x, y, .quantiles = y), WB_ERROR_SHAPE, ".quantiles", "[2] f32");
}

/* The mean over no rows is NaN and the sum 0, in every loss. */
TEST_IN_SCOPE(no_rows)
{
    wb_tensor *none = wb_zeros(0, 3), *numbers = integers(0, (int32_t[]){0});
    for (size_t i = 0; i < WB__COUNT(losses); i++) {
        if (losses[i].kind == SETS) continue;
        wb_tensor *mean = losses[i].f(none, none, WB_AGG_MEAN, WB_NONE, WB_NONE);
        wb_tensor *sum = losses[i].f(none, none, WB_AGG_SUM, WB_NONE, WB_NONE);
        if (!mean || !sum) fail_msg("%s: %s", losses[i].name, wb_error());
        assert_true(isnan(wb_item(mean)) && wb_item(sum) == 0);
    }
    assert_true(isnan(wb_item(wb_logitcrossentropy(none, numbers))));
    assert_true(wb_item(wb_logitcrossentropy(none, numbers, .agg = WB_AGG_SUM)) == 0);
    assert_true(isnan(wb_item(wb_crossentropy(none, numbers, .ignore_index = 1))));
    assert_int_equal(wb_dim(wb_crossentropy(none, numbers, .agg = WB_AGG_UNREDUCED), 0), 0);
    REFUSED(wb_logitcrossentropy(wb_zeros(2, 0), wb_zeros(2, 0)), WB_ERROR_SHAPE, "no classes",
            "axis 1", "[2,0] f32");
    wb_tensor *y = wb_reshape(numbers, 0, 2);
    assert_true(isnan(wb_item(wb_ctc_loss(wb_zeros(0, 3, 4), y))));
}

/* Where the classes of an image may be in two axes, a call must name the axis. */
TEST_IN_SCOPE(square_images)
{
    wb_tensor *s = wb_randn(2, 4, 4, 4), *y = wb_randint(0, 4, 2, 4, 4);
    REFUSED(wb_logitcrossentropy(s, y), WB_ERROR_SHAPE, "[2,4,4] i32", "[2,4,4,4] f32", ".dims = 1",
            ".dims = 3");
    REFUSED(wb_crossentropy(wb_softmax(s), y), WB_ERROR_SHAPE, ".dims = 1");
    MADE(wb_logitcrossentropy(s, y, .dims = 1));
    MADE(wb_logitcrossentropy(s, y, .dims = -1));
    near(wb_item(wb_logitcrossentropy(s, y, .dims = 3)),
         wb_item(wb_logitcrossentropy(s, y, .dims = -1)), ".dims");
    MADE(wb_logitcrossentropy(wb_randn(2, 4, 4), wb_randint(0, 4, 2, 4)));      /* sequences */
    MADE(wb_logitcrossentropy(wb_randn(2, 3, 3, 4), wb_randint(0, 4, 2, 3, 3)));
}

TEST_IN_SCOPE(wrong_uses)
{
    wb_tensor *x = of(X), *r = of(R), *y = integers(2, (int32_t[]){2, 0});
    wb_tensor *three = vector(3, (float[]){1, 1, 1}), *two = vector(2, (float[]){1, 1});
    REFUSED(wb_mse(x, r, .sample_weight = three), WB_ERROR_SHAPE, "mse", ".sample_weight",
            "[3] f32", "[2,3]");
    REFUSED(wb_mse(x, r, .mask = two), WB_ERROR_DTYPE, ".mask", "[2] f32", "wb_ne(mask, 0)");
    REFUSED(wb_mse(x, r, .mask = wb_gt(three, 0)), WB_ERROR_SHAPE, ".mask", "[3] bool");
    REFUSED(wb_mse(x, r, .sample_weight = wb_astype(two, WB_I32)), WB_ERROR_DTYPE, "[2] i32");
    REFUSED(wb_mse(x, r, .sample_weight = NULL), WB_ERROR_ARGUMENT, "sample_weight", "NULL");
    REFUSED(wb_logitcrossentropy(x, y, .sample_weight = wb_ones(2, 3)), WB_ERROR_SHAPE, "[2,3] f32",
            "[2]");
    REFUSED(wb_ctc_loss(wb_zeros(2, 3, 3), wb_reshape(y, 2, 1), .mask = wb_gt(three, 0)),
            WB_ERROR_SHAPE, ".mask", "[3] bool", "[2]");
    REFUSED(wb_huber(x, r, .mask = NULL), WB_ERROR_ARGUMENT, "mask", "NULL");
    if (has_dtype(WB_F64))
        REFUSED(wb_mse(x, r, .sample_weight = wb_astype(two, WB_F64)), WB_ERROR_DTYPE, "[2] f64");
    wb_clear_error();
}
