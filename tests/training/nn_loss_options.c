/* All losses and their options: values of PyTorch 2.15, or of the published formula in f64 where
 * PyTorch has no such loss (hinge, focal, siamese, dice, tversky); gradients against differences;
 * class numbers, weights, ignored classes; CTC; wrong uses. */
#include "reference.h"

#include "backend/backend.h"
#include "nn/layer.h"

#include "weber/data.h"
#include "weber/device.h"
#include "weber/train.h"

enum { X, H, Q, R, P, Y, SIGNS, BITS, OPERANDS };
static const double operand[OPERANDS][6] = {
    [X] = {0.5, -1, 2, 1.5, 0.25, -0.75},           /* scores */
    [H] = {0.5, -1.25, 2, 1.5, 0.25, -0.75},
    [Q] = {0.5, 1, 2, 3, 0.25, 1.5},
    [R] = {1, 2, 0.5, 2, 0.75, 1},
    [P] = {0.7, 0.2, 0.1, 0.1, 0.3, 0.6},           /* probabilities */
    [Y] = {1, 0, 0, 0, 0.25, 0.75},
    [SIGNS] = {1, -1, 1, -1, 1, 1},
    [BITS] = {1, 0, 1, 0, 0, 1},
};

static wb_tensor *matrix(const double *values, wb_dtype dtype)
{
    float narrow[6];
    if (dtype == WB_F64) return wb_from(values, WB_F64, 2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++) narrow[i] = (float)values[i];
    return wb_astype(wb_from(narrow, WB_F32, 2, (int64_t[]){2, 3}), dtype);
}

static wb_tensor *of(int which, wb_dtype dtype) { return matrix(operand[which], dtype); }

#define CASE(name, ...)                                                                         \
    static wb_tensor *name(wb_tensor *x, wb_tensor *y, wb_agg a) { return __VA_ARGS__; }
CASE(mse, wb_mse(x, y, .agg = a))
CASE(mae, wb_mae(x, y, .agg = a))
CASE(msle, wb_msle(x, y, .agg = a, .eps = 0))
CASE(huber, wb_huber(x, y, 0.7, .agg = a))
CASE(binary, wb_binarycrossentropy(x, y, .eps = 0, .agg = a))
CASE(logitbinary, wb_logitbinarycrossentropy(x, y, .agg = a))
CASE(poisson, wb_poisson_loss(x, y, .agg = a))
CASE(hinge, wb_hinge_loss(x, y, .agg = a))
CASE(squared_hinge, wb_squared_hinge_loss(x, y, .agg = a))
CASE(binary_focal, wb_binary_focal_loss(x, y, .agg = a, .eps = 0))
CASE(siamese, wb_siamese_contrastive_loss(x, y, .agg = a))
CASE(crossentropy, wb_crossentropy(x, y, .eps = 0, .agg = a))
CASE(logitcrossentropy, wb_logitcrossentropy(x, y, .agg = a))
CASE(smoothed, wb_logitcrossentropy(x, y, .agg = a, .label_smoothing = 0.1))
CASE(kldivergence, wb_kldivergence(x, y, .agg = a, .eps = 0))
CASE(focal, wb_focal_loss(x, y, .agg = a, .eps = 0))
CASE(dice, a == WB_AGG_MEAN ? wb_dice_coeff_loss(x, y) : wb_dice_coeff_loss(x, y, .smooth = 0.5))
CASE(tversky, a == WB_AGG_MEAN ? wb_tversky_loss(x, y) : wb_tversky_loss(x, y, .beta = 0.4))

/* The values of elements or rows, and operands; the mean is over n values. */
static const struct {
    const char *name;
    wb_tensor *(*f)(wb_tensor *, wb_tensor *, wb_agg);
    int x, y, n;
    double value[6];
} rows[] = {
    {"mse", mse, Q, R, 6, {0.25, 1, 2.25, 1, 0.25, 0.25}},
    {"mae", mae, Q, R, 6, {0.5, 1, 1.5, 1, 0.5, 0.5}},
    {"msle", msle, Q, R, 6, {0.480453013918, 0.480453013918, 1.92181205567, 0.164401953893,
                             1.20694896081, 0.164401953893}},
    {"huber", huber, Q, R, 6, {0.125, 0.455, 0.805, 0.455, 0.125, 0.125}},
    {"binarycrossentropy", binary, P, BITS, 6, {0.356674943939, 0.223143551314, 2.30258509299,
                                                0.105360515658, 0.356674943939, 0.510825623766}},
    {"logitbinarycrossentropy", logitbinary, X, BITS, 6,
     {0.47407698418, 0.313261687518, 0.126928011043, 1.70141327798, 0.825939419879,
      1.13687100611}},
    {"poisson_loss", poisson, Q, R, 6, {1.19314718056, 1, 1.65342640972, 0.802775422664,
                                        1.28972077084, 1.09453489189}},
    {"hinge_loss", hinge, H, SIGNS, 6, {0.5, 0, 0, 2.5, 0.75, 1.75}},
    {"squared_hinge_loss", squared_hinge, H, SIGNS, 6, {0.25, 0, 0, 6.25, 0.5625, 3.0625}},
    {"binary_focal_loss", binary_focal, P, BITS, 6,
     {0.0321007449545, 0.00892574205257, 1.86509392533, 0.00105360515658, 0.0321007449545,
      0.0817320998026}},
    {"siamese_contrastive_loss", siamese, Q, BITS, 6, {0.25, 1, 0, 9, 0.0625, 0}},
    {"crossentropy", crossentropy, P, Y, 2, {0.356674943939, 0.684112418906}},
    {"logitcrossentropy", logitcrossentropy, X, Y, 2, {1.74131129666, 2.33067260941}},
    {"label_smoothing", smoothed, X, Y, 2, {1.74131129666, 2.24733927607}},
    {"kldivergence", kldivergence, P, Y, 2, {0.356674943939, 0.121777274287}},
    {"focal_loss", focal, P, Y, 2, {0.0321007449545, 0.208785743382}},
    {"dice_coeff_loss", dice, P, BITS, 0, {0.24, 0.266666666667}},
    {"tversky_loss", tversky, P, BITS, 0, {0.272727272727, 0.333333333333}},
};

static const wb_dtype dtypes[] = {WB_F32, WB_F64, WB_F16, WB_BF16};
static const double accuracy[] = {[WB_F32] = 2e-6, [WB_F64] = 1e-11, [WB_F16] = 5e-3,
                                  [WB_BF16] = 3e-2};

static void near(double got, double want, double within, const char *name, int row)
{
    if (!(fabs(got - want) <= within * fmax(1, fabs(want))))
        fail_msg("%s[%d] is %.12g, not %.12g: %s", name, row, got, want, wb_error());
}

/* With fewer() = n only every n-th case is computed in other dtypes than f32. */
static bool is_computed(size_t dtype, size_t i)
{
    return has_dtype(dtypes[dtype]) && (!dtype || (i + dtype) % (size_t)fewer() == 0);
}

TEST_IN_SCOPE(values)
{
    for (size_t t = 0; t < WB__COUNT(dtypes); t++)
        for (size_t i = 0; i < WB__COUNT(rows); i++) IN_SCOPE {
            if (!is_computed(t, i)) continue;
            wb_tensor *x = of(rows[i].x, dtypes[t]), *y = of(rows[i].y, dtypes[t]);
            const double within = accuracy[dtypes[t]], *want = rows[i].value;
            wb_tensor *mean = rows[i].f(x, y, WB_AGG_MEAN), *sum = rows[i].f(x, y, WB_AGG_SUM),
                      *each = rows[i].f(x, y, WB_AGG_UNREDUCED);
            MADE(mean && sum && each);
            assert_int_equal(wb_dtype_of(each), dtypes[t] == WB_F64 ? WB_F64 : WB_F32);
            assert_int_equal(wb_ndim(mean) + wb_ndim(sum), 0);
            double total = 0;
            for (int k = 0; k < rows[i].n; k++) total += want[k];
            assert_int_equal(wb_ndim(each), rows[i].n == 6 ? 2 : rows[i].n == 2);
            if (!rows[i].n) {
                near(wb_item(mean), want[0], within, rows[i].name, 0);
                near(wb_item(each), want[1], within, rows[i].name, 1);
            } else {
                near(wb_item(mean), total / rows[i].n, within, rows[i].name, -1);
                near(wb_item(sum), total, within, rows[i].name, -2);
                each = wb_reshape(each, -1);
                for (int k = 0; k < rows[i].n; k++)
                    near(wb_at(each, k), want[k], within, rows[i].name, k);
            }
        }
}

/* With respect to yhat and y, in the widest dtype. */
TEST_IN_SCOPE(gradients)
{
    const wb_dtype t = widest_float();
    const double h = t == WB_F64 ? 1e-5 : 1e-2, within = t == WB_F64 ? 1e-7 : 5e-3;
    for (size_t i = 0; i < WB__COUNT(rows); i++)
        for (int side = 0; side < 2; side++) IN_SCOPE {
            wb_tensor *in[2] = {of(rows[i].x, t), of(rows[i].y, t)};
            /* At 0 the slopes of y log y and of the logarithm's factor are 0 by definition. */
            if (side) in[1] = wb_add(wb_mul(in[1], wb_scalar(0.75)), wb_scalar(0.125));
            wb_tensor *slope = wb_gradient(rows[i].f(in[0], in[1], WB_AGG_MEAN), in[side]);
            MADE(slope);
            for (int64_t k = 0; k < 6; k++) {
                double unit[6] = {0}, end[2];
                unit[k] = h;
                wb_tensor *step = matrix(unit, t);
                for (int sign = 0; sign < 2; sign++) {
                    wb_tensor *moved[2] = {in[0], in[1]};
                    moved[side] = sign ? wb_add(in[side], step) : wb_sub(in[side], step);
                    end[sign] = wb_item(rows[i].f(moved[0], moved[1], WB_AGG_MEAN));
                }
                near(wb_at(slope, k / 3, k % 3), (end[1] - end[0]) / (2 * h), within,
                     rows[i].name, (int)(10 * side + k));
            }
        }
}

TEST_IN_SCOPE(numbers)
{
    static const double log_eps[] = {[WB_F32] = 15.9423851529, [WB_F64] = 36.0436533891,
                                     [WB_F16] = 6.9314718056, [WB_BF16] = 4.8520302639};
    for (size_t t = 0; t < WB__COUNT(dtypes); t++) {
        if (!has_dtype(dtypes[t])) continue;
        wb_tensor *no = wb_astype(wb_zeros(1), dtypes[t]), *yes = wb_astype(wb_ones(1), dtypes[t]);
        near(wb_item(wb_crossentropy(no, yes)), log_eps[dtypes[t]], 1e-6, "eps", dtypes[t]);
        near(wb_item(wb_binarycrossentropy(no, yes)), log_eps[dtypes[t]], 1e-6, "eps", dtypes[t]);
        near(wb_item(wb_binary_focal_loss(yes, no, .gamma = 0)), log_eps[dtypes[t]], 1e-6, "eps",
             dtypes[t]);
        near(wb_item(wb_kldivergence(no, yes)), log_eps[dtypes[t]], 1e-6, "eps", dtypes[t]);
        near(wb_item(wb_msle(no, yes, .eps = 0.5)), 1.20694896081, 1e-6, "msle", dtypes[t]);
    }
    wb_tensor *p = of(P, WB_F32), *b = of(BITS, WB_F32), *q = of(Q, WB_F32), *y = of(Y, WB_F32);
    near(wb_item(wb_binary_focal_loss(p, b, .gamma = 3)), 0.288738054769, 1e-6, "gamma", 3);
    near(wb_item(wb_binary_focal_loss(p, b, .gamma = 0, .eps = 0)), 0.642544111935, 1e-6, "gamma",
         0);
    near(wb_item(wb_siamese_contrastive_loss(q, b, .margin = 2)), 2.09375, 1e-6, "margin", 2);
    near(wb_item(wb_huber(q, of(R, WB_F32))), 0.395833333333, 1e-6, "delta", 1);
    near(wb_item((wb_huber)(q, of(R, WB_F32), 0.7)), 0.348333333333, 1e-6, "delta", 7);
    near(wb_item(wb_crossentropy(wb_transpose(p), wb_transpose(y), .dims = 0)), 0.520393681422,
         1e-6, "dims", 0);
    near(wb_item(wb_focal_loss(wb_transpose(p), wb_transpose(y), .dims = -2)), 0.120443244168,
         1e-6, "dims", -2);
    /* 0 log 0 is 0, in the value and in the gradient. */
    wb_tensor *zeros = wb_zeros(1, 2), *loss = wb_poisson_loss(zeros, zeros);
    assert_true(wb_item(loss) == 0 && wb_at(wb_gradient(loss, zeros), 0, 1) == 0.5);
    wb_tensor *one = wb_from((float[]){1, 0}, WB_F32, 2, (int64_t[]){1, 2});
    loss = wb_kldivergence(one, one, .eps = 0);
    assert_true(wb_item(loss) == 0 && wb_at(wb_gradient(loss, one), 0, 1) == 0);
    wb_tensor *soft = wb_label_smoothing(one, 0.2), *half = wb_label_smoothing(p, 0.3, .dims = 0);
    near(wb_at(soft, 0, 0), 0.9, 1e-6, "label_smoothing", 0);
    near(wb_at(soft, 0, 1), 0.1, 1e-6, "label_smoothing", 1);
    near(wb_at(half, 0, 0), 0.64, 1e-6, "label_smoothing", 2);
    near(wb_at(wb_label_smoothing(b, 0.2, .binary = true), 0, 0), 0.9, 1e-6, "binary", 0);
}

/* ---- class numbers --------------------------------------------------------------------------- */

static const double scores[12] = {0.5, -1, 2, 1.5, 0.25, -0.75, 0.1, 0.2, -0.3, -2, 1, 0.5};
static const int32_t labels[4] = {2, 0, 1, 2};

static wb_tensor *logits(wb_dtype t)
{
    float narrow[12];
    if (t == WB_F64) return wb_from(scores, WB_F64, 3, (int64_t[]){2, 2, 3});
    for (int i = 0; i < 12; i++) narrow[i] = (float)scores[i];
    return wb_astype(wb_from(narrow, WB_F32, 3, (int64_t[]){2, 2, 3}), t);
}

/* bit 0: weights, bit 1: ignores class 2, bit 2: label smoothing */
static wb_tensor *of_classes(wb_tensor *x, wb_tensor *y, int bits, wb_agg agg)
{
    wb_tensor *w = bits & 1 ? wb_from((float[]){0.5, 2, 1.25}, WB_F32, 1, (int64_t[]){3}) : WB_NONE;
    if (bits & 1 && wb_dtype_of(x) == WB_F64) w = wb_astype(w, WB_F64);
    const int64_t ignore = bits & 2 ? 2 : -100;
    return wb_logitcrossentropy(x, y, .agg = agg, .weight = w, .ignore_index = ignore,
                                .label_smoothing = bits & 4 ? 0.1 : 0);
}

static const struct { int bits; double mean, row[4], slope[12]; } classes[] = {
    {0, 0.62435211599, {0.241311296657, 0.330672609407, 0.920827655553, 1.00459690234},
     {0.043822598035, 0.00977814331767, -0.0536007413527, -0.0703899147122, 0.0514591509994,
      0.0189307637128, 0.0900741538101, -0.150452664739, 0.0603785109286, 0.00751472189239,
      0.150937224037, -0.15845194593}},
    {1, 0.712875372912, {0.301639120821, 0.165336304704, 1.84165531111, 1.25574612793},
     {0.043822598035, 0.00977814331767, -0.0536007413527, -0.0281559658849, 0.0205836603998,
      0.00757230548513, 0.144118646096, -0.240724263582, 0.0966056174858, 0.00751472189239,
      0.150937224037, -0.15845194593}},
    {2, 0.62575013248, {0, 0.330672609407, 0.920827655553, 0},
     {0, 0, 0, -0.140779829424, 0.102918301999, 0.0378615274256, 0.18014830762, -0.300905329478,
      0.120757021857, 0, 0, 0}},
    {3, 0.802796646324, {0, 0.165336304704, 1.84165531111, 0},
     {0, 0, 0, -0.0563119317698, 0.0411673207995, 0.0151446109703, 0.288237292192,
      -0.481448527164, 0.193211234972, 0, 0, 0}},
    {4, 0.712685449323, {0.391311296657, 0.447339276074, 0.940827655553, 1.07126356901},
     {0.0354892647017, 0.00144480998434, -0.036934074686, -0.0537232480456, 0.0431258176661,
      0.0105974303795, 0.0817408204768, -0.133785998072, 0.0520451775953, -0.00081861144094,
      0.142603890704, -0.141785279263}},
    {7, 0.864925328273, {0, 0.367220083742, 1.79509323694, 0},
     {0, 0, 0, -0.0214253882019, 0.0206757522528, 0.000749635949129, 0.270761727069,
      -0.440060874062, 0.169299146994, 0, 0, 0}},
};

TEST_IN_SCOPE(class_numbers)
{
    static const wb_dtype integers[] = {WB_I64, WB_I32, WB_U8, WB_I8};
    for (size_t t = 0; t < WB__COUNT(dtypes); t++)
        for (size_t i = 0; i < WB__COUNT(classes); i++) {
            if (!is_computed(t, i)) continue;
            const double within = accuracy[dtypes[t]];
            wb_tensor *x = logits(dtypes[t]),
                      *y = wb_astype(wb_from(labels, WB_I32, 2, (int64_t[]){2, 2}), integers[t]);
            wb_tensor *mean = of_classes(x, y, classes[i].bits, WB_AGG_MEAN);
            wb_tensor *each = of_classes(x, y, classes[i].bits, WB_AGG_UNREDUCED);
            wb_tensor *sum = of_classes(x, y, classes[i].bits, WB_AGG_SUM);
            MADE(mean && each && sum);
            double total = 0;
            near(wb_item(mean), classes[i].mean, within, "mean", classes[i].bits);
            for (int k = 0; k < 4; k++) {
                near(wb_at(each, k / 2, k % 2), classes[i].row[k], within, "row", k);
                total += classes[i].row[k];
            }
            near(wb_item(sum), total, within, "sum", classes[i].bits);
            wb_tensor *slope = wb_reshape(wb_astype(wb_gradient(mean, x), WB_F32), -1);
            for (int k = 0; k < 12; k++)
                near(wb_at(slope, k), classes[i].slope[k], fmax(within, 1e-6), "slope", k);
        }
}

TEST_IN_SCOPE(class_numbers_and_rows)
{
    wb_tensor *x = logits(WB_F32), *y = wb_from(labels, WB_I32, 2, (int64_t[]){2, 2});
    wb_tensor *w = wb_from((float[]){0.5, 2, 1.25}, WB_F32, 1, (int64_t[]){3});
    wb_tensor *hot = wb_onehotbatch(y, 3);
    near(wb_item(wb_logitcrossentropy(x, hot)), 0.62435211599, 1e-6, "one-hot", 0);
    near(wb_item(wb_logitcrossentropy(x, hot, .weight = w)), 0.89109421614, 1e-6, "one-hot", 1);
    wb_tensor *middle = wb_permute(x, 0, 2, 1);
    near(wb_item(wb_logitcrossentropy(middle, y, .dims = 1, .weight = w)), 0.712875372912, 1e-6,
         "dims", 1);
    wb_tensor *p = wb_softmax(x);
    near(wb_item(wb_crossentropy(p, y, .eps = 0, .weight = w)), 0.712875372912, 1e-6, "p", 0);
    near(wb_item(wb_crossentropy(p, y, .ignore_index = 2)), 0.62575013248, 1e-5, "p", 1);
    /* One row, whose other classes have the probability 0. */
    wb_tensor *sure = wb_from((float[]){0, 1, 0}, WB_F32, 1, (int64_t[]){3});
    wb_tensor *loss;
    wb_tensor *one = wb_from((int32_t[]){1}, WB_I32, 0, NULL), *slope;
    MADE(loss = wb_crossentropy(sure, one, .eps = 0));
    MADE(slope = wb_gradient(loss, sure));
    assert_true(wb_item(loss) == 0 && wb_at(slope, 0) == 0 && wb_at(slope, 1) == -1);
    wb_tensor *masked = wb_from((float[]){0, -INFINITY, 0}, WB_F32, 1, (int64_t[]){3});
    one = wb_from((int32_t[]){0}, WB_I32, 0, NULL);
    near(wb_item(wb_logitcrossentropy(masked, one)), 0.69314718056, 1e-6, "masked", 0);
    /* All rows are ignored, as in PyTorch. */
    assert_true(isnan(wb_item(wb_logitcrossentropy(masked, one, .ignore_index = 0))));
}

static wb_tensor *trained(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *y = wb_call(m, b.x);
    return *(int *)ctx == 0   ? wb_logitcrossentropy(y, wb_reshape(b.y, -1))
           : *(int *)ctx == 1 ? wb_logitcrossentropy(y, b.y, .ignore_index = 9)
           : *(int *)ctx == 2 ? wb_logitcrossentropy(y, wb_add(b.y, wb_scalar_int(0)))
                              : wb_logitcrossentropy(y, wb_onehotbatch(b.y, 3));
}

static int train(int how, int32_t wrong)
{
    const int32_t classes_of[4] = {0, 2, 1, wrong};
    wb_layer *m = wb_Dense(2, 3);
    wb_dataset *d = wb_dataset_of(wb_randn(4, 2), wb_from(classes_of, WB_I32, 1, (int64_t[]){4}));
    wb_clear_error();
    return wb_train(trained, m, wb_dataloader(d, 4), wb_setup(wb_Descent(0.1), m), .ctx = &how);
}

TEST_IN_SCOPE(labels_out_of_range)
{
    const char *device = getenv("WEBER_TEST_DEVICE");
    const bool visible = !device || !*device || wb_device_at(device, 0)->backend->host_visible;
    wb_tensor *x = logits(WB_F32), *y = wb_from((int32_t[]){2, 3, 0, -1}, WB_I32, 2,
                                                (int64_t[]){2, 2});
    wb_tensor *each = wb_logitcrossentropy(x, y, .agg = WB_AGG_UNREDUCED);
    assert_true(isnan(wb_at(each, 0, 1)) && isnan(wb_at(each, 1, 1)));
    assert_true(isfinite(wb_at(each, 0, 0)) && isfinite(wb_at(each, 1, 0)));
    assert_true(isnan(wb_item(wb_crossentropy(wb_softmax(x), y))));
    for (int how = 0; how < 4; how++) WORKS(train(how, 2));
    WORKS(train(1, 9));
    for (int how = 0; how < 3; how++) {
        const int status = train(how, how == 1 ? -1 : 3);
        assert_int_equal(status, visible && how < 2 ? WB_ERROR_ARGUMENT : WB_ERROR_NUMBER);
        if (status == WB_ERROR_ARGUMENT)
            FAILED(WB_ERROR_ARGUMENT, "logitcrossentropy", how ? "-1" : "3", "[3]", "0", "2");
        else FAILED(WB_ERROR_NUMBER, "NaN", "WEBER_DEBUG");
    }
    if (visible) {
        FAILS(train(3, 3), WB_ERROR_ARGUMENT, "onehotbatch", "3", "[3]", "0", "2");
    }
}

/* ---- wrong uses ------------------------------------------------------------------------------ */

TEST_IN_SCOPE(wrong_uses)
{
    wb_tensor *x = wb_ones(2, 3), *y = wb_ones(2, 3), *w = wb_ones(2), *n = wb_zeros(0, 3);
    wb_tensor *i = wb_astype(wb_zeros(2), WB_I32);
    REFUSED(wb_mse(x, y, .gamma = 1), WB_ERROR_ARGUMENT, "mse", "gamma", "agg");
    REFUSED(wb_mae(x, y, .dims = 0), WB_ERROR_ARGUMENT, "mae", "dims");
    REFUSED(wb_hinge_loss(x, y, .eps = 0), WB_ERROR_ARGUMENT, "hinge_loss", "eps");
    REFUSED(wb_logitcrossentropy(x, y, .eps = 0), WB_ERROR_ARGUMENT, "logitcrossentropy", "eps");
    REFUSED(wb_focal_loss(x, y, .weight = w), WB_ERROR_ARGUMENT, "focal_loss", "weight");
    REFUSED(wb_kldivergence(x, y, .ignore_index = 0), WB_ERROR_ARGUMENT, "ignore_index");
    REFUSED(wb_dice_coeff_loss(x, y, .agg = WB_AGG_SUM), WB_ERROR_ARGUMENT, "agg", "smooth");
    REFUSED(wb_mse(x, y, .agg = (wb_agg)3), WB_ERROR_ARGUMENT, "mse", "agg", "3");
    REFUSED(wb_huber(x, y, .agg = (wb_agg)-1), WB_ERROR_ARGUMENT, "huber", "agg", "-1");
    REFUSED(wb_huber(x, y, -1), WB_ERROR_ARGUMENT, "huber", "delta", "-1");
    REFUSED((wb_huber)(x, y, 0), WB_ERROR_ARGUMENT, "huber", "delta", "0");
    REFUSED(wb_siamese_contrastive_loss(x, y, .margin = -1), WB_ERROR_ARGUMENT, "margin", "-1");
    REFUSED(wb_msle(x, y, .eps = -1), WB_ERROR_ARGUMENT, "msle", "eps", "-1");
    REFUSED(wb_binary_focal_loss(x, y, .gamma = NAN), WB_ERROR_ARGUMENT, "gamma", "nan");
    REFUSED(wb_tversky_loss(x, y, .beta = 1.5), WB_ERROR_ARGUMENT, "tversky_loss", "beta", "1.5");
    REFUSED(wb_crossentropy(x, y, .label_smoothing = 2), WB_ERROR_ARGUMENT, "label_smoothing");
    REFUSED(wb_crossentropy(x, y, .dims = 2), WB_ERROR_SHAPE, "crossentropy", "2", "[2,3] f32");
    REFUSED(wb_crossentropy(x, y, .weight = w), WB_ERROR_SHAPE, "weight", "[2] f32", "3");
    REFUSED(wb_crossentropy(x, y, .weight = i), WB_ERROR_DTYPE, "crossentropy", "[2] i32");
    REFUSED(wb_crossentropy(x, y, .weight = NULL), WB_ERROR_ARGUMENT, "crossentropy", "weight",
            "NULL");
    REFUSED(wb_crossentropy(x, y, .ignore_index = 0), WB_ERROR_DTYPE, "ignore_index", "[2,3] f32");
    REFUSED(wb_logitcrossentropy(x, wb_astype(y, WB_I32)), WB_ERROR_SHAPE, "logitcrossentropy",
            "[2,3] i32", "[2,3] f32");
    REFUSED(wb_kldivergence(x, i), WB_ERROR_SHAPE, "kldivergence", "[2] i32", "[2,3] f32");
    REFUSED(wb_logitcrossentropy(wb_ones(1, 0), i), WB_ERROR_SHAPE, "[1,0] f32");
    REFUSED(wb_tversky_loss(x, w), WB_ERROR_SHAPE, "tversky_loss", "[2,3] f32", "[2] f32");
    REFUSED(wb_poisson_loss(x, NULL), WB_ERROR_ARGUMENT, "poisson_loss", "y", "NULL");
    REFUSED(wb_label_smoothing(y, 0), WB_ERROR_ARGUMENT, "label_smoothing", "0");
    REFUSED(wb_label_smoothing(y, 1), WB_ERROR_ARGUMENT, "label_smoothing", "1");
    REFUSED(wb_label_smoothing(i, 0.1), WB_ERROR_DTYPE, "label_smoothing", "[2] i32");
    REFUSED(wb_label_smoothing(y, 0.1, .dims = 2), WB_ERROR_SHAPE, "label_smoothing", "2");
    wb_clear_error();
    assert_true(isnan(wb_item(wb_logitcrossentropy(n, n))));
    assert_true(isnan(wb_item(wb_mse(n, n))) && wb_item(wb_mse(n, n, .agg = WB_AGG_SUM)) == 0);
    assert_true(wb_item(wb_dice_coeff_loss(n, n)) == 0);
    assert_int_equal(wb_dim(wb_mae(n, n, .agg = WB_AGG_UNREDUCED), 1), 3);
}

/* ---- glu ------------------------------------------------------------------------------------- */

TEST_IN_SCOPE(glu)
{
    wb_tensor *x = wb_from((float[]){1, -2, 0.5, 3}, WB_F32, 2, (int64_t[]){1, 4});
    wb_tensor *y = wb_glu(x), *slope = wb_gradient(wb_sum(y), x);
    assert_true(wb_ndim(y) == 2 && wb_dim(y, 0) == 1 && wb_dim(y, 1) == 2);
    near(wb_at(y, 0, 0), 0.622459331202, 1e-6, "glu", 0);
    near(wb_at(y, 0, 1), -1.90514825364, 1e-6, "glu", 1);
    near(wb_at(slope, 0, 0), 0.622459331202, 1e-6, "slope", 0);
    near(wb_at(slope, 0, 3), -0.0903533194, 1e-6, "slope", 3);      /* -2 s (1 - s), s of 3 */
    near(wb_at(wb_glu_over(wb_transpose(x), 0), 1, 0), -1.90514825364, 1e-6, "glu_over", 1);
    near(wb_at(wb_call(wb_Chain(wb_glu), x), 0, 1), -1.90514825364, 1e-6, "layer", 1);
    for (size_t t = 2; t < WB__COUNT(dtypes); t++)
        if (has_dtype(dtypes[t]))
            near(wb_at(wb_glu(wb_astype(x, dtypes[t])), 0, 1), -1.90514825364, 1e-2, "half", 0);
    assert_int_equal(wb_dim(wb_glu(wb_zeros(3, 0)), 1), 0);
    REFUSED(wb_glu(wb_ones(2, 3)), WB_ERROR_SHAPE, "glu", "1", "[2,3] f32");
    REFUSED(wb_glu_over(x, 2), WB_ERROR_SHAPE, "glu", "2", "[1,4] f32");
    REFUSED(wb_glu(wb_arange(4, WB_I32)), WB_ERROR_DTYPE, "glu", "[4] i32");
}

/* ---- ctc ------------------------------------------------------------------------------------- */

/* Five sequences: two repeated labels, one label, none, and more than fit in their steps. */
static const int32_t speech[5][3] = {{1, 2, 3}, {2, 2, 1}, {3, -1, 9}, {7, 0, 0}, {1, 1, 1}},
                     /* the same with the last class as the blank */
                     speech_last[5][3] = {{0, 1, 2}, {1, 1, 0}, {2, 0, 0}, {0, 0, 0}, {0, 0, 0}},
                     whole_speech[5][3] = {{1, 2, 3}, {2, 2, 1}, {3, 1, 3}, {1, 1, 1}, {2, 3, 3}};
static const int32_t steps_of[5] = {6, 5, 4, 3, 4}, labels_of[5] = {3, 3, 1, 0, 3};

static wb_tensor *integers_of(const int32_t *values, int64_t n, int64_t wide, wb_dtype dtype)
{
    return wb_astype(wb_from(values, WB_I32, wide ? 2 : 1, (int64_t[]){n, wide}), dtype);
}

/* Scores [5, 6, 4]. */
static wb_tensor *sounds(wb_dtype dtype)
{
    float x[5][6][4];
    for (int n = 0; n < 5; n++)
        for (int t = 0; t < 6; t++)
            for (int c = 0; c < 4; c++)
                x[n][t][c] = (float)((7 * n + 5 * t + 3 * c * c + n * t * c) % 11) * 0.3F - 1.5F;
    return wb_astype(wb_from(x, WB_F32, 3, (int64_t[]){5, 6, 4}), dtype);
}

static wb_tensor *spoken(wb_tensor *x, bool last, wb_dtype dtype, wb_agg agg, bool zero)
{
    wb_tensor *y = integers_of(last ? speech_last[0] : speech[0], 5, 3, dtype);
    return wb_ctc_loss(x, y, .input_lengths = integers_of(steps_of, 5, 0, dtype),
                       .target_lengths = integers_of(labels_of, 5, 0, dtype),
                       .blank = last ? -1 : 0, .agg = agg, .zero_infinity = zero);
}

/* PyTorch's numbers; a sum over all paths gives the same. */
TEST_IN_SCOPE(ctc_values)
{
    static const double each[2][4] = {
        {4.27058108783, 5.93995994325, 2.74578805311, 3.63743890776},
        {3.63867337923, 3.36902780295, 3.03108293301, 4.23743890776}};
    static const double mean[2] = {1.95734812758, 1.92088444697}, sum[2] = {16.593767992,
                                                                           14.276223023};
    static const double whole[5] = {4.27058108783, 5.80713437603, 2.94629951547, 3.81533946718,
                                    4.65064068804};
    for (size_t t = 0; t < WB__COUNT(dtypes); t++)
        for (int last = 0; last < 2; last++) {
            if (!is_computed(t, (size_t)last)) continue;
            const double within = fmax(accuracy[dtypes[t]], 1e-6);
            const wb_dtype whole_numbers = t % 2 ? WB_I64 : WB_I32;
            wb_tensor *x = sounds(dtypes[t]);
            wb_tensor *got = spoken(x, last, whole_numbers, WB_AGG_UNREDUCED, false);
            MADE(got);
            assert_int_equal(wb_dtype_of(got), dtypes[t] == WB_F64 ? WB_F64 : WB_F32);
            for (int k = 0; k < 4; k++) near(wb_at(got, k), each[last][k], within, "ctc", k);
            assert_true(isinf(wb_at(got, 4)) && wb_at(got, 4) > 0);
            assert_true(isinf(wb_item(spoken(x, last, whole_numbers, WB_AGG_MEAN, false))));
            near(wb_item(spoken(x, last, whole_numbers, WB_AGG_MEAN, true)), mean[last], within,
                 "mean",
                 last);
            near(wb_item(spoken(x, last, whole_numbers, WB_AGG_SUM, true)), sum[last], within,
                 "sum",
                 last);
        }
    wb_tensor *x = sounds(WB_F32), *y = integers_of(whole_speech[0], 5, 3, WB_I32);
    wb_tensor *all = wb_ctc_loss(x, y, .agg = WB_AGG_UNREDUCED, .target_lengths = WB_NONE);
    MADE(all);
    for (int k = 0; k < 5; k++) near(wb_at(all, k), whole[k], 2e-6, "whole", k);
    near(wb_item((wb_ctc_loss)(x, y)), 1.4326663423, 2e-6, "whole", 5);
    near(wb_item(wb_ctc_loss(wb_logsoftmax(x), y)), 1.4326663423, 2e-6, "logarithms", 0);
    /* no labels at all; no steps at all */
    wb_tensor *none = wb_astype(wb_zeros(5, 0), WB_I32);
    near(wb_item(wb_ctc_loss(wb_slice(x, 1, 0, 3), none, .agg = WB_AGG_SUM)),
         wb_item(wb_neg(wb_sum(wb_slice(wb_logsoftmax(wb_slice(x, 1, 0, 3)), 2, 0, 1)))), 2e-6,
         "no labels", 0);
    assert_true(wb_item(wb_ctc_loss(wb_slice(x, 1, 0, 0), none, .agg = WB_AGG_SUM)) == 0);
    assert_true(isinf(wb_item(wb_ctc_loss(wb_slice(x, 1, 0, 0), y))));
}

/* Against differences, and for PyTorch's numbers of two steps. An impossible sequence has none, nor
 * has a class whose score is -Inf. */
TEST_IN_SCOPE(ctc_gradient)
{
    static const double want[4] = {-0.03011715611, 0.00472836883, -0.00321617722, 0.0286049645},
                        empty[4] = {-0.17961356449, 0.1233307479, 0.00614027638, 0.05014254021};
    const wb_dtype dtype = widest_float();
    const double h = dtype == WB_F64 ? 1e-5 : 1e-2, within = dtype == WB_F64 ? 1e-7 : 5e-3;
    wb_tensor *x = sounds(dtype), *slope;
    MADE(slope = wb_gradient(spoken(x, false, WB_I32, WB_AGG_MEAN, true), x));
    for (int c = 0; c < 4; c++) {
        near(wb_at(slope, 1, 2, c), want[c], 1e-6, "slope", c);
        near(wb_at(slope, 3, 1, c), empty[c], 1e-6, "slope of no labels", c);
        assert_true(wb_at(slope, 2, 4, c) == 0 && wb_at(slope, 4, 0, c) == 0);
    }
    for (int k = 0; k < 120; k += fewer() > 1 ? 37 : 7) {
        float unit[120] = {0};
        unit[k] = 1;
        wb_tensor *step = wb_from(unit, WB_F32, 3, (int64_t[]){5, 6, 4});
        step = wb_mul(wb_astype(step, dtype), wb_scalar(h));
        const double up = wb_item(spoken(wb_add(x, step), false, WB_I32, WB_AGG_MEAN, true)),
                     down = wb_item(spoken(wb_sub(x, step), false, WB_I32, WB_AGG_MEAN, true));
        near(wb_at(slope, k / 24, k / 4 % 6, k % 4), (up - down) / (2 * h), within, "difference",
             k);
    }
    slope = wb_gradient(spoken(x, false, WB_I32, WB_AGG_SUM, false), x);
    assert_true(wb_item(wb_all(wb_isfinite(slope))) != 0 && wb_at(slope, 4, 0, 1) == 0);
    wb_tensor *never = wb_from((float[]){0, -INFINITY, 0, 0}, WB_F32, 1, (int64_t[]){4});
    x = wb_add(sounds(WB_F32), never);
    wb_tensor *loss = spoken(x, false, WB_I32, WB_AGG_UNREDUCED, false);
    assert_true(isinf(wb_at(loss, 0)) && isfinite(wb_at(loss, 2)));
    assert_true(wb_item(wb_all(wb_isfinite(wb_gradient(wb_sum(loss), x)))) != 0);
}

static wb_tensor *of_one_step(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_ctc_loss(wb_reshape(wb_call(m, b.x), -1, 1, 4), wb_reshape(b.y, -1, 1));
}

/* A label out of range stops wb_train. */
TEST_IN_SCOPE(ctc_labels)
{
    const char *device = getenv("WEBER_TEST_DEVICE");
    const bool visible = !device || !*device || wb_device_at(device, 0)->backend->host_visible;
    for (int32_t last = 3; last < 5; last++) {
        wb_tensor *y = integers_of((int32_t[]){1, 2, 3, last}, 4, 0, WB_I32);
        wb_layer *m = wb_Dense(2, 4);
        const int status = wb_train(of_one_step, m,
                                    wb_dataloader(wb_dataset_of(wb_randn(4, 2), y), 4),
                                    wb_setup(wb_Descent(0.1), m));
        if (last == 3) WORKS(status);
        else if (!visible) FAILED(WB_ERROR_NUMBER, "NaN", "WEBER_DEBUG");
        else FAILED(WB_ERROR_ARGUMENT, "ctc_loss", "4", "[3]", "0", "3");
    }
}

TEST_IN_SCOPE(ctc_wrong_uses)
{
    wb_tensor *x = sounds(WB_F32), *y = integers_of(whole_speech[0], 5, 3, WB_I32);
    wb_tensor *n = integers_of(labels_of, 5, 0, WB_I32);
    REFUSED(wb_ctc_loss(x, n), WB_ERROR_SHAPE, "ctc_loss", "[5,6,4] f32", "[5] i32");
    REFUSED(wb_ctc_loss(x, wb_slice(y, 0, 0, 4)), WB_ERROR_SHAPE, "[4,3] i32");
    REFUSED(wb_ctc_loss(x, wb_astype(y, WB_F32)), WB_ERROR_DTYPE, "y", "[5,3] f32");
    REFUSED(wb_ctc_loss(wb_astype(x, WB_I32), y), WB_ERROR_DTYPE, "[5,6,4] i32");
    REFUSED(wb_ctc_loss(x, y, .blank = 4), WB_ERROR_ARGUMENT, ".blank", "4", "3");
    REFUSED(wb_ctc_loss(x, y, .blank = -2), WB_ERROR_ARGUMENT, ".blank", "-2");
    REFUSED(wb_ctc_loss(x, y, .input_lengths = y), WB_ERROR_SHAPE, ".input_lengths", "[5,3] i32",
            "5");
    REFUSED(wb_ctc_loss(x, y, .target_lengths = wb_ones(5)), WB_ERROR_DTYPE, ".target_lengths",
            "[5] f32");
    REFUSED(wb_ctc_loss(x, y, .target_lengths = NULL), WB_ERROR_ARGUMENT, "target_lengths", "NULL");
    REFUSED(wb_ctc_loss(x, y, .agg = (wb_agg)7), WB_ERROR_ARGUMENT, "agg", "7");
    REFUSED(wb_ctc_loss(x, NULL), WB_ERROR_ARGUMENT, "y", "NULL");
    wb_clear_error();
    /* Labels and lengths out of range, and the blank as a label, make their sequences NaN. */
    static const int32_t wrong[5][3] = {{1, 2, 3}, {2, 4, 1}, {3, 1, -1}, {1, 0, 1}, {2, 3, 3}};
    static const int32_t long_ones[5] = {6, 5, 4, -1, 7};
    wb_tensor *bad = integers_of(wrong[0], 5, 3, WB_I32);
    wb_tensor *loss = wb_ctc_loss(x, bad, .agg = WB_AGG_UNREDUCED);
    MADE(loss);
    for (int k = 0; k < 5; k++) assert_true(isfinite(wb_at(loss, k)) == (k == 0 || k == 4));
    assert_true(isnan(wb_item(wb_ctc_loss(x, bad))));
    loss = wb_ctc_loss(x, y, .agg = WB_AGG_UNREDUCED,
                       .input_lengths = integers_of(long_ones, 5, 0, WB_I32));
    MADE(loss);
    for (int k = 0; k < 5; k++) assert_true(isnan(wb_at(loss, k)) == (k > 2));
}
