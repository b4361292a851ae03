/* Losses against PyTorch, initialisers by their moments, modes, and conversion of inputs. */
#include "golden.h"

static wb_tensor *huber(wb_tensor *x, wb_tensor *y) { return wb_huber(x, y, 0.7); }

TEST(losses)
{
    static const struct { const char *name; wb_tensor *(*f)(wb_tensor *, wb_tensor *); } all[] = {
        {"mse", wb_mse}, {"mae", wb_mae}, {"huber", huber}, {"crossentropy", wb_crossentropy},
        {"logitcrossentropy", wb_logitcrossentropy}, {"binarycrossentropy", wb_binarycrossentropy},
        {"logitbinarycrossentropy", wb_logitbinarycrossentropy},
    };
    for (size_t i = 0; i < WB__COUNT(all); i++) IN_SCOPE {
        wb_tensor *x = golden_want(NAME("loss_%s.x", all[i].name)),
                  *y = golden_want(NAME("loss_%s.target", all[i].name));
        wb_tensor *loss = all[i].f(x, y);
        assert_golden(loss, NAME("loss_%s.y", all[i].name), 2e-6);
        assert_golden(wb_gradient(loss, x), NAME("loss_%s.grad", all[i].name), 2e-5);
    }
    REFUSED(wb_mse(wb_zeros(2, 3), wb_zeros(3, 2)), WB_ERROR_SHAPE, "mse", "[2,3] f32",
            "[3,2] f32");
    REFUSED(wb_mse(wb_zeros(2), wb_full_array(0, WB_F64, 1, (int64_t[]){2})), WB_ERROR_DTYPE, "mse",
            "[2] f32", "[2] f64");
}

/* ---- initialisers ---------------------------------------------------------------------------- */

TEST(initialisers)
{
    int64_t dims[4] = {40, 30, 3, 2};           /* fan in 30 * 6, fan out 40 * 6 */
    double in = 180, out = 240;
    const struct { wb_initializer f; double sigma, bound; } all[] = {
        {wb_glorot_uniform, sqrt(2 / (in + out)), sqrt(6 / (in + out))},
        {wb_glorot_normal, sqrt(2 / (in + out)), INFINITY},
        {wb_kaiming_uniform, sqrt(2 / in), sqrt(6 / in)},
        {wb_kaiming_normal, sqrt(2 / in), INFINITY},
        {wb_init_normal, 1, INFINITY},
    };
    wb_seed(3);
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        wb_tensor *x = all[i].f(WB_F32, 4, dims);
        double mean = wb_item(wb_mean(x)), sigma = sqrt(wb_item(wb_variance(x))),
               most = wb_item(wb_max(wb_abs(x)));
        assert_true(fabs(mean) < 4 * all[i].sigma / sqrt(7200));
        assert_true(fabs(sigma / all[i].sigma - 1) < 0.03);
        assert_true(most <= all[i].bound &&
                    (all[i].bound == INFINITY || most > 0.99 * all[i].bound));
    }
    wb_seed(7);
    wb_layer *a = wb_Dense(5, 4), *b = wb_Dense(5, 4);
    wb_seed(7);
    wb_layer *again = wb_Dense(5, 4);
    assert_memory_equal(wb_data(wb_get(a, "weight")), wb_data(wb_get(again, "weight")), 80);
    assert_memory_not_equal(wb_data(wb_get(a, "weight")), wb_data(wb_get(b, "weight")), 80);
    assert_true(wb_item(wb_max(wb_abs(wb_get(a, "bias")))) == 0);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static wb_tensor *dropped;
static wb_tensor *sum_loss(wb_layer *model, wb_batch batch, void *ctx)
{
    dropped = wb_call(model, batch.x);
    return wb_sum(dropped);
}

static double zeros_in(wb_tensor *x)
{
    return wb_item(wb_sum(wb_astype(wb_eq(x, wb_scalar(0)), WB_F32)));
}

TEST(modes)
{
    wb_seed(1);
    wb_layer *model = wb_Chain(wb_Dropout(0.4), wb_BatchNorm(50));
    wb_layer *dropout = wb_layer_at(model, "layers.0");
    wb_tensor *x = wb_ones(40, 50);
    assert_true(zeros_in(wb_call(dropout, x)) == 0);            /* automatic, no training */
    wb_trainmode(model);
    wb_tensor *y = wb_call(dropout, x);
    double share = zeros_in(y) / 2000;
    assert_true(fabs(share - 0.4) < 0.05);
    assert_true(fabs(wb_item(wb_max(y)) - 1 / 0.6) < 1e-6);
    wb_testmode(model);
    assert_true(zeros_in(wb_call(dropout, x)) == 0);
    assert_int_equal(dropout->mode, WB__MODE_TEST);
    wb_automode(model);

    wb_tree *grads;
    assert_non_null(wb_withgradient(sum_loss, wb_Chain(wb_Dropout(0.4), wb_Dense(50, 2)),
                                    ((wb_batch){.x = x}), &grads));
    assert_true(wb_ndim(wb_get(grads, "layers.1.weight")) == 2);
    assert_non_null(
        wb_withgradient(sum_loss, wb_Chain(wb_Dropout(0.4)), ((wb_batch){.x = x}), NULL));
    assert_true(fabs(zeros_in(dropped) / 2000 - 0.4) < 0.05);

    /* The gradient of a call outside training is refused; the error names the layer. */
    wb_layer *norm = wb_BatchNorm(50);
    REFUSED(wb_gradient(wb_sum(wb_call(norm, x)), norm), WB_ERROR_ARGUMENT, "BatchNorm");
    assert_non_null(wb_gradient(wb_sum(wb_call(wb_testmode(norm), x)), norm));
    REFUSED(wb_gradient(wb_sum(wb_call(dropout, x)), x), WB_ERROR_ARGUMENT, "Dropout");
}

TEST(dropout_of_slices)
{
    wb_layer *d = wb_trainmode(wb_Dropout(0.5, .axes = WB_INTS(0, 1)));
    wb_tensor *y = wb_call(d, wb_ones(8, 16, 3, 3));
    wb_tensor *low = wb_min(y, .axes = WB_INTS(2, 3)), *high = wb_max(y, .axes = WB_INTS(2, 3));
    wb_eval(low, high);
    assert_memory_equal(wb_data(low), wb_data(high), 8 * 16 * sizeof(float));
    double zeros = zeros_in(low);
    assert_true(zeros > 32 && zeros < 96);
}

/* Each call in train mode updates the running statistics once.  Calls in test mode and gradients do
 * not. */
TEST(statistics_move_once)
{
    wb_layer *norm = wb_BatchNorm(2, .momentum = 0.5);
    wb_tensor *x = wb_from((float[]){0, 10, 2, 30}, WB_F32, 2, (int64_t[]){2, 2});
    wb_call(norm, x);
    assert_true(wb_at(wb_get(norm, "mean"), 0) == 0);
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(sum_loss, norm, ((wb_batch){.x = x}), &grads);
    wb_eval(loss, wb_get(grads, "scale"));
    const float *mean = wb_data(wb_get(norm, "mean")), *var = wb_data(wb_get(norm, "var"));
    assert_true(fabsf(mean[0] - 0.5f) < 1e-6f && fabsf(mean[1] - 10) < 1e-5f);
    assert_true(fabsf(var[0] - 1.5f) < 1e-6f && fabsf(var[1] - 100.5f) < 1e-4f);
    assert_true(wb_is_none(wb_get(grads, "mean")));
}

/* ---- conversion ------------------------------------------------------------------------------ */

static int warnings;
static char warning[1000];
static void count_warnings(wb_log_level level, const char *text, void *ctx)
{
    if (level == WB_LOG_WARN) warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

TEST(inputs_are_converted)
{
    wb_set_log(count_warnings, NULL);
    wb_layer *dense = wb_Dense(2, 3);
    wb_tensor *x = wb_full_array(1, WB_I32, 2, (int64_t[]){1, 2});
    assert_int_equal(wb_dtype_of(wb_call(dense, x)), WB_F32);
    assert_int_equal(warnings, 0);
    x = wb_full_array(1, WB_F64, 2, (int64_t[]){1, 2});
    assert_int_equal(wb_dtype_of(wb_call(dense, x)), WB_F32);
    assert_int_equal(wb_dtype_of(wb_call(dense, x)), WB_F32);
    assert_int_equal(warnings, 1);
    assert_true(HAS_FACTS(warning, "f32", "f64", "Dense(2 => 3)"));
    wb_set_log(NULL, NULL);
}

int main(void) { return run_cases(golden_open, golden_close); }
