/* Averages of parameters and watched numbers, by hand and in wb_train. */
#include "optim/optim.h"

#include "process.h"
#include "reference.h"

#include <unistd.h>

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return (void)ctx, wb_mse(wb_call(m, b.x), b.y);
}

static wb_layer *net(void) { return wb_Chain(wb_Dense(3, 4), wb_BatchNorm(4), wb_Dense(4, 1)); }

static wb_loader *data(void)
{
    wb_seed(8);
    return wb_dataloader(wb_dataset_of(wb_randn(12, 3), wb_randn(12, 1)), 4);
}

static double value(wb_layer *m, const char *path)
{
    return wb_at_array(wb_reshape(wb_get(m, path), -1), 1, (int64_t[]){1});
}

/* ---- averages -------------------------------------------------------------------------------- */

static void one_step(wb_layer *m, wb_opt_state *s, wb_batch b)
{
    wb_tree *g;
    MADE(wb_withgradient(loss, m, b, &g));
    WORKS(wb_update(s, m, g));
}

/* An exponential average, and the mean of all models, in every way that an update is evaluated. */
TEST_IN_SCOPE(averages)
{
    for (int way = 0; way < 2; way++) IN_SCOPE {
        wb_loader *l = data();
        wb_layer *m = net(), *a = wb_average_of(m), *mean = wb_average_of(m);
        wb_opt_state *s = wb_setup(wb_Descent(0.1), m);
        wb_batch batch;
        double want = value(m, "layers.0.weight"), sum = want;
        assert_true(value(a, "layers.0.weight") == want);
        int64_t built = 0;
        for (int i = 0; i < 6; i++) {
            wb_scope *step = wb_scope_open();
            if (!wb_loader_next(l, &batch)) assert_true(wb_loader_next(l, &batch));
            one_step(m, s, batch);
            WORKS(wb_average(a, m, 0.75));
            WORKS(wb_average(mean, m, .count = i + 1));
            if (way) WORKS(wb_scope_close(step));
            const double x = value(m, "layers.0.weight");
            want = 0.75 * want + 0.25 * x;
            sum += x;
            assert_true(fabs(value(a, "layers.0.weight") - want) < 1e-6);
            assert_true(fabs(value(mean, "layers.0.weight") - sum / (i + 2)) < 1e-6);
            assert_true(value(a, "layers.1.mean") == value(m, "layers.1.mean"));
            if (!way) WORKS(wb_scope_close(step));
            if (i == 1) built = wb_stats().plans_built;
        }
        assert_int_equal(wb_stats().plans_built, built);
        assert_true(fabs(want - value(m, "layers.0.weight")) > 1e-4);
        MADE(wb_call(a, wb_ones(2, 3)));
    }
}

TEST_IN_SCOPE(averages_of_halves)
{
    wb_layer *m = wb_Dense(3, 4), *h = wb_to(m, wb_device_of(m), .dtype = WB_BF16);
    wb_layer *a = wb_average_of(m);
    const double was = value(a, "weight");
    WORKS(wb_average(a, h, 0.5));
    assert_true(fabs(value(a, "weight") - 0.5 * (was + value(h, "weight"))) < 1e-6);
    a = wb_average_of(h);
    WORKS(wb_average(a, m, 0));
    assert_true(value(a, "weight") == value(h, "weight"));
}

/* The average of a .mixed model is in f32, where small steps are not lost. */
TEST_IN_SCOPE(averages_of_mixed_models)
{
    static const wb_dtype halves[] = {WB_BF16, WB_F16};
    const char *path = test_file("mixed.safetensors");
    for (int i = 0; i < 2; i++) {
        wb_layer *m = net();
        wb_opt_state *s = wb_setup(wb_Descent(0.1), m, .mixed = halves[i]);
        MADE(s);
        WORKS(wb_set(m, "layers.0.weight", wb_full_array(1, halves[i], 2, (int64_t[]){4, 3})));
        wb_layer *a = wb_average_of(m), *b = wb_average_of(m);
        assert_int_equal(wb_dtype_of(wb_get(a, "layers.0.weight")), WB_F32);
        assert_int_equal(wb_dtype_of(wb_get(m, "layers.0.weight")), halves[i]);
        WORKS(wb_assign(wb_get(m, "layers.0.weight"),
                        wb_full_array(2, halves[i], 2, (int64_t[]){4, 3})));
        for (int k = 0; k < 200; k++) {
            WORKS(wb_average(a, m, 0.999));
            WORKS(wb_eval(wb_get(a, "layers.0.weight")));
        }
        assert_true(fabs(value(a, "layers.0.weight") - (2 - pow(0.999, 200))) < 1e-4);
        wb_tensor *y = wb_call(a, wb_ones(2, 3));
        MADE(y);
        assert_true(wb_dtype_of(y) == WB_F32 && isfinite(wb_item(wb_sum(y))));
        WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = m, .average = a}));
        WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.model = m, .average = b}));
        assert_true(value(a, "layers.0.weight") == value(b, "layers.0.weight"));
        /* it is no .mixed model: its layers warn of inputs in another dtype, and it trains */
        assert_int_equal(wb__kept_flags(wb_get(a, "layers.0.weight")), 0);
        WORKS(wb_train(loss, m, data(), s, .average = a));
        WORKS(wb_train(loss, a, data(), wb_setup(wb_Descent(0.1), a)));
    }
    unlink(path);
}

/* A struct of two layers and a tensor of its own, in a tree: by hand, in wb_train, in a
 * checkpoint. */
typedef struct { wb_layer *first, *second; wb_tensor *shift; int64_t calls; } two_layers;
WB_FUNCTOR(two_layers, first, second, shift, calls)

static wb_tensor *loss_of_two(wb_layer *m, wb_batch b, void *ctx)
{
    two_layers t;
    (void)ctx;
    if (wb_struct_get(two_layers, (wb_tree *)m, &t)) return NULL;
    wb_tensor *y = wb_call(t.second, wb_call(t.first, b.x));
    return wb_mse(wb_add(y, t.shift), b.y);
}

TEST_IN_SCOPE(averages_of_trees)
{
    const two_layers parts = {wb_Dense(3, 4), wb_Dense(4, 1), wb_variable(wb_full(1, 1)), 7};
    wb_tree *m = wb_struct(two_layers, &parts), *a = wb_average_of(m), *b = wb_average_of(m);
    two_layers got;
    MADE(a);
    WORKS(wb_struct_get(two_layers, a, &got));
    assert_true(got.calls == 7 && got.shift != parts.shift && got.first != parts.first);
    WORKS(wb_assign(parts.shift, wb_full(3, 1)));
    WORKS(wb_average(a, m, 0.75));
    assert_true(wb_item(got.shift) == 1.5);
    wb_opt_state *s = wb_setup(wb_Descent(0.1), m);
    WORKS(wb_average(a, m, 0));
    wb_tensor *before = wb_add(wb_get(m, "first.weight"), 0);
    WORKS(wb_eval(before));
    WORKS(wb_train(loss_of_two, m, data(), s, .average = a, .decay = 1));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(a, "first.weight"), before)))) == 0);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(m, "first.weight"), before)))) > 0);
    const char *path = test_file("trees.safetensors");
    WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = m, .average = a}));
    WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.model = m, .average = b}));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_get(b, "first.weight"), before)))) == 0);
    unlink(path);
    wb_tree *pair = wb_tuple(parts.first, parts.second);
    REFUSED(!wb_average(pair, m, 0.5), WB_ERROR_ARGUMENT, "average");
    REFUSED(wb_object_average_of(parts.shift), WB_ERROR_ARGUMENT, "average_of", "tensor");
}

TEST_IN_SCOPE(refusals)
{
    wb_layer *m = wb_Dense(3, 4), *a = wb_average_of(m);
    REFUSED(!wb_average(a, m, 1.5), WB_ERROR_ARGUMENT, "average", "decay", "1.5");
    REFUSED(!wb_average(a, m, NAN), WB_ERROR_ARGUMENT, "decay", "nan");
    REFUSED(!wb_average(a, m, .count = -1), WB_ERROR_ARGUMENT, "count", "-1");
    REFUSED(!wb_average(m, m), WB_ERROR_ARGUMENT, "average", "share all", "wb_average_of");
    wb_tree *fixed = wb_tuple(wb_ones(2)), *free = wb_tuple(wb_variable(wb_ones(2)));
    REFUSED(!wb_average(fixed, wb_tuple(wb_ones(2))), WB_ERROR_ARGUMENT, "only constants",
            "wb_variable");
    REFUSED(!wb_average(fixed, free), WB_ERROR_ARGUMENT, "\"0\" is a constant", "wb_average_of");
    REFUSED(!wb_average(a, wb_Dense(3, 5)), WB_ERROR_SHAPE, "average", "weight");
    REFUSED(!wb_average(NULL, m), WB_ERROR_ARGUMENT, "average", "NULL");
    REFUSED(wb_object_average_of(NULL), WB_ERROR_ARGUMENT, "model", "NULL");
}

/* ---- watched numbers ------------------------------------------------------------------------- */

#define CHECK_WATCH(f, watch, n, scores, want)                                                   \
    do {                                                                                         \
        wb_watch w = watch;                                                                      \
        for (int i = 0; i < (n); i++)                                                            \
            if (f(&w, (scores)[i]) != (want)[i]) fail_msg("%s: call %d: %d", #f, i, !(want)[i]); \
    } while (0)

/* The answers are those of Flux 0.16: early_stopping(f, 2; min_dist), plateau and patience. */
TEST(watches)
{
    static const double falling[] = {3, 2, 2.5, 1.5, 1.5, 1.6, 1.7, 1};
    CHECK_WATCH(wb_early_stopping, ((wb_watch){.wait = 2}), 8, falling,
                ((const bool[]){0, 0, 0, 0, 0, 0, 1, 0}));
    CHECK_WATCH(wb_early_stopping, ((wb_watch){.wait = 2, .min_dist = 0.75}), 8, falling,
                ((const bool[]){0, 0, 0, 1, 1, 1, 1, 1}));
    CHECK_WATCH(wb_early_stopping, ((wb_watch){.wait = 1, .higher = true}), 8, falling,
                ((const bool[]){0, 1, 1, 1, 1, 1, 1, 1}));
    static const double nans[] = {NAN, NAN, 1, NAN, NAN};
    CHECK_WATCH(wb_early_stopping, ((wb_watch){.wait = 2}), 5, nans,
                ((const bool[]){0, 1, 0, 0, 1}));
    static const double flat[] = {1, 1, 1, 2, 2.05, 2.1, 3};
    CHECK_WATCH(wb_plateau, ((wb_watch){.wait = 2, .min_dist = 0.1}), 7, flat,
                ((const bool[]){0, 0, 1, 0, 0, 1, 0}));
    static const double bad[] = {1, 1, 0, 1, 1, 1};
    CHECK_WATCH(wb_patience, ((wb_watch){.wait = 2}), 6, bad,
                ((const bool[]){0, 1, 0, 0, 1, 1}));
    double last = 0;
    assert_true(wb_throttle(&last, 1000));
    assert_false(wb_throttle(&last, 1000));
    assert_true(wb_throttle(&last, 0));
    REFUSED(wb_patience(NULL, true), WB_ERROR_ARGUMENT, "patience", "w is NULL");
    REFUSED(wb_early_stopping(NULL, 1), WB_ERROR_ARGUMENT, "early_stopping", "w is NULL");
    REFUSED(wb_plateau(NULL, 1), WB_ERROR_ARGUMENT, "plateau", "w is NULL");
    REFUSED(wb_throttle(NULL, 1), WB_ERROR_ARGUMENT, "throttle", "last is NULL");
    wb_clear_error();
}

/* ---- wb_train -------------------------------------------------------------------------------- */

static const double *metrics;
static double metric(wb_layer *m, int epoch, void *ctx)
{
    return (void)m, (void)ctx, metrics[epoch - 1];
}

static double eta_of(wb_opt_state *s, const char *path)
{
    double eta = NAN;
    WORKS(wb_rule_number(s, path, "eta", &eta));
    return eta;
}

TEST_IN_SCOPE(stopping_and_reducing)
{
    static const double falling[] = {3, 2, 2.5, 2.5, 2.5, 1, 1.1, 1.1, 1.1, 1.1};
    metrics = falling;
    wb_loader *l = data();
    wb_layer *m = net();
    wb_opt_state *s = wb_setup(wb_Descent(0.5), m);
    WORKS(wb_adjust_at(s, "layers.2", .eta = 0.25));
    wb_watch stop = {.wait = 4}, reduce = {.wait = 2};
    WORKS(wb_train(loss, m, l, s, .epochs = 10, .metric = metric, .stop = &stop,
                   .reduce = &reduce, .factor = 0.5));
    assert_int_equal(s->counts->updates, 3 * 10);   /* the fourth bad epoch is the last one */
    assert_int_equal(stop.count, 4);
    assert_true(eta_of(s, "layers.0") == 0.0625 && eta_of(s, "layers.2") == 0.03125);
    static const double rising[] = {1, 2, 3, 2, 2, 2};
    metrics = rising;
    stop = (wb_watch){.wait = 2};
    WORKS(wb_train(loss, m, l, s, .epochs = 6, .metric = metric, .stop = &stop, .higher = true));
    assert_int_equal(s->counts->updates, 3 * 15);
    stop = (wb_watch){.wait = 1, .min_dist = 1e9};          /* of the mean loss */
    WORKS(wb_train(loss, m, l, s, .epochs = 6, .stop = &stop));
    assert_int_equal(s->counts->updates, 3 * 17);
    REFUSED(!wb_train(loss, m, l, s, .stop = &(wb_watch){0}), WB_ERROR_ARGUMENT, "train", "stop",
            "wait", "0");
    REFUSED(!wb_train(loss, m, l, s, .factor = 2), WB_ERROR_ARGUMENT, "train", "factor", "2");
    REFUSED(!wb_train(loss, m, l, s, .reduce = &reduce, .schedule = wb_ScheduleConstant(1)),
            WB_ERROR_ARGUMENT, "reduce", "schedule");
    s = wb_setup(wb_OptimizerChain(wb_SignDecay(), wb_Rprop()), m);
    REFUSED(!wb_train(loss, m, l, s, .reduce = &reduce), WB_ERROR_ARGUMENT, "train", "Rprop", "eta",
            ".reduce");
    assert_int_equal(s->counts->updates, 0);
}

/* A resumed training goes on with its count of scores that are NaN, and does not go on after the
 * epoch that ended it, until .wait is larger. */
TEST_IN_SCOPE(ended_trainings)
{
    static const double nans[] = {NAN, NAN, NAN, NAN, NAN, NAN};
    static const int want[][3] = {{1, 4, 1}, {6, 4, 4}, {6, 4, 4}, {6, 5, 5}};
    metrics = nans;
    const char *path = test_file("ended.safetensors");
    unlink(path);
    for (size_t i = 0; i < WB__COUNT(want); i++) {
        wb_layer *m = net();
        wb_opt_state *s = wb_setup(wb_Momentum(), m);
        wb_watch stop = {.wait = want[i][1]};
        WORKS(wb_train(loss, m, data(), s, .epochs = want[i][0], .metric = metric,
                       .checkpoint = path, .resume = true, .stop = &stop));
        assert_int_equal(s->counts->updates, 3 * want[i][2]);
        assert_int_equal(stop.count, want[i][2]);
        assert_false(stop.begun);
    }
    unlink(path);
}

static char logged[1000];
static void listen(wb_log_level level, const char *text, void *ctx)
{
    snprintf(logged, sizeof logged, "%s", text);
}

/* A training whose checkpoint has all its epochs does nothing and prints why. */
TEST_IN_SCOPE(a_training_that_is_over)
{
    const char *path = test_file("over.safetensors");
    unlink(path);
    wb_set_log(listen, NULL);
    for (int epochs = 3; epochs > 1; epochs--) {
        wb_layer *m = net();
        wb_opt_state *s = wb_setup(wb_Momentum(), m);
        assert_false(*logged);
        WORKS(wb_train(loss, m, data(), s, .epochs = epochs, .checkpoint = path, .resume = true));
        assert_int_equal(s->counts->updates, 3 * 3);
    }
    wb_set_log(NULL, NULL);
    assert_true(HAS_LINE(logged, path, "has 3 epochs", ".epochs is 2", "nothing is left"));
    unlink(path);
}

/* A new training into a folder with checkpoints of an earlier one reports them, but not a training
 * with the same loader, which continues their epochs. */
TEST_IN_SCOPE(earlier_checkpoints)
{
    const char *folder = process_folder();
    wb_layer *m = net();
    wb_opt_state *s = wb_setup(wb_Momentum(), m);
    wb_loader *l = data();
    logged[0] = 0;
    wb_set_log(listen, NULL);
    for (int i = 0; i < 2; i++) WORKS(wb_train(loss, m, l, s, .folder = folder));
    WORKS(wb_train(loss, m, data(), s, .epochs = 3, .folder = folder, .resume = true));
    WORKS(wb_train(loss, m, data(), s, .folder = folder, .name = "other"));
    assert_string_equal(logged, "");
    WORKS(wb_train(loss, m, data(), s, .folder = folder));
    wb_set_log(NULL, NULL);
    assert_true(HAS_LINE(logged, folder, "\"checkpoint\"", "epoch 3", ".resume = true", ".name"));
    process_remove(folder);
}

/* A training with an average and watched numbers that goes on from a checkpoint has the bits of one
 * that was not stopped. */
TEST_IN_SCOPE(resuming)
{
    static const double worse[] = {1, 2, 2, 2, 2, 2};
    double got[2][3];
    metrics = worse;
    const char *path = test_file("extras.safetensors");
    for (int way = 0; way < 2; way++) IN_SCOPE {
        unlink(path);
        wb_loader *l = data();
        wb_layer *m = net(), *a = wb_average_of(m);
        wb_opt_state *s = wb_setup(wb_Momentum(), m);
        wb_watch stop = {.wait = 4}, reduce = {.wait = 2};
        for (int part = !way; part < 2; part++) {
            if (part && way) {
                m = net();
                a = wb_average_of(m);
                s = wb_setup(wb_Momentum(), m);
                l = data();
                stop = (wb_watch){.wait = 4};
                reduce = (wb_watch){.wait = 2};
            }
            WORKS(wb_train(loss, m, l, s, .epochs = part ? 9 : 2, .metric = metric,
                           .checkpoint = path, .resume = part, .average = a, .decay = 0.5,
                           .stop = &stop, .reduce = &reduce));
        }
        assert_int_equal(s->counts->updates, 3 * 5);
        got[way][0] = value(m, "layers.0.weight");
        got[way][1] = value(a, "layers.0.weight");
        got[way][2] = eta_of(s, "");
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_true(got[0][0] != got[0][1] && fabs(got[0][2] - 0.0001) < 1e-12);
    wb_layer *m = net();
    WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = m}));
    FAILS(wb_load_checkpoint(path, &(wb_checkpoint){.stop = &(wb_watch){0}}), WB_ERROR_FORMAT,
          "stop");
    wb_clear_error();
    assert_true(wb_load_checkpoint(path, &(wb_checkpoint){.average = m}) != 0);
    FAILED(WB_ERROR_FORMAT, "average");
    unlink(path);
}

/* ---- histories ------------------------------------------------------------------------------- */

/* Sums over the observations of each epoch: batches of 5, 5 and 2. */
typedef struct { double sum[4]; int batches[4], observations[4], end_epoch, end_batch; } noted;

static int note_loss(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    noted *n = ctx;
    const int of = batch < 3 ? 5 : 2;
    n->sum[epoch - 1] += wb_item(l) * of;
    n->observations[epoch - 1] += of;
    n->batches[epoch - 1]++;
    return epoch == n->end_epoch && batch == n->end_batch;
}

static wb_tensor *bounded_loss(wb_layer *m, wb_batch b, void *ctx)
{
    if (((noted *)ctx)->batches[2] == 1) return wb_div(wb_sum(wb_call(m, b.x)), 0);
    return loss(m, b, ctx);
}

/* losses[0] to losses[n - 1] are the means of the noted losses, and the others up to `all` NaN. */
static void are_means(const double *losses, const noted *of, int n, int all)
{
    for (int i = 0; i < n; i++) assert_true(losses[i] == of->sum[i] / of->observations[i]);
    for (int i = n; i < all; i++) assert_true(isnan(losses[i]));
}

TEST_IN_SCOPE(histories)
{
    static const double scores[] = {4, 3, 5, 6};
    double losses[4], scored[4];
    metrics = scores;
    char path[64];
    snprintf(path, sizeof path, "/tmp/weber-history-%d.safetensors", (int)getpid());
    unlink(path);
    for (int way = 0; way < 6; way++) {
        wb_seed(9);
        wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(12, 3), wb_randn(12, 1)), 5);
        wb_layer *m = net();
        wb_opt_state *s = wb_setup(wb_Descent(0.1), m);
        noted n = {.end_epoch = way == 2 ? 2 : 0, .end_batch = 2};
        wb_watch stop = {.wait = 1};
        for (int i = 0; i < 4; i++) losses[i] = scored[i] = 7;
        if (way == 5)
            FAILS(wb_train(bounded_loss, m, l, s, .epochs = 4, .each = note_loss, .ctx = &n,
                           .losses = losses), WB_ERROR_NUMBER, "batch 2");
        else
            WORKS(wb_train(loss, m, l, s, .epochs = way == 3 ? 2 : 4, .each = note_loss, .ctx = &n,
                           .metric = way ? metric : NULL, .losses = losses, .metrics = scored,
                           .stop = way == 1 ? &stop : NULL,
                           .checkpoint = way == 3 || way == 4 ? path : NULL, .resume = way == 4));
        if (way == 0) {
            are_means(losses, &n, 4, 4);
            assert_memory_equal(losses, scored, sizeof losses);
            assert_true(n.batches[3] == 3 && losses[3] < losses[0]);
        } else if (way == 1) {          /* .stop, after the third epoch */
            are_means(losses, &n, 3, 4);
            assert_memory_equal(scored, scores, 3 * sizeof *scored);
            assert_true(isnan(scored[3]));
        } else if (way == 2) {          /* .each, in the second epoch */
            are_means(losses, &n, 2, 4);
            assert_true(n.batches[1] == 2 && scored[0] == 4 && isnan(scored[1]));
        } else if (way == 3) {
            are_means(losses, &n, 2, 2);
            assert_true(scored[1] == 3 && losses[2] == 7 && scored[2] == 7);
        } else if (way == 4) {          /* resumed behind the second epoch */
            assert_true(isnan(losses[1]) && isnan(scored[1]) && scored[2] == 5 && scored[3] == 6);
            for (int i = 2; i < 4; i++) assert_true(losses[i] == n.sum[i] / n.observations[i]);
        } else are_means(losses, &n, 2, 4);
    }
    unlink(path);
}
