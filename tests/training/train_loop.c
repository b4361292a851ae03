/* wb_train and checkpoints: learning, the conditions that stop it, and that resumed training
 * equals uninterrupted training. */
#include "golden.h"

#include "base/numbers/philox.h"
#include "optim/optim.h"

#include <unistd.h>

enum { N = 40 };

static wb_dataset *data(void)
{
    static float x[N][3], y[N][1];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = (float)((i * (k + 3)) % 11) / 11 - 0.5f;
        y[i][0] = 2 * x[i][0] - x[i][1] + 0.5f;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){N, 3}),
                         wb_from(y, WB_F32, 2, (int64_t[]){N, 1}));
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static wb_layer *net(void)
{
    return wb_Chain(wb_Dense(3, 8, wb_tanh), wb_BatchNorm(8), wb_Dropout(0.2), wb_Dense(8, 1));
}

static int64_t steps_seen;
static int count(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    steps_seen++;
    assert_int_equal(batch, (steps_seen - 1) % 5 + 1);
    assert_int_equal(epoch, (steps_seen - 1) / 5 + 1);
    return ctx && steps_seen == 7;
}

TEST(training)
{
    wb_seed(4);
    wb_layer *m = wb_Chain(wb_Dense(3, 8, wb_tanh), wb_Dense(8, 1));
    wb_dataset *d = data();
    wb_loader *l = wb_dataloader(d, .batchsize = 8, .shuffle = true);
    wb_opt_state *s = wb_setup(wb_Adam(.eta = 0.02), m);
    wb_tensor *x = wb_dataset_x(d), *y = wb_dataset_y(d);
    double before = wb_item(wb_mse(wb_call(m, x), y));
    steps_seen = 0;
    if (wb_train(loss, m, l, s, .epochs = 40, .each = count)) fail_msg("%s", wb_error());
    assert_int_equal(steps_seen, 200);
    assert_int_equal(s->counts->slot[0].steps, 200);
    double after = wb_item(wb_mse(wb_call(m, x), y));
    if (!(after < 0.02 * before)) fail_msg("the loss went from %g to %g", before, after);
    assert_int_equal(wb__this_thread()->training, 0);
    steps_seen = 0;
    assert_int_equal(wb_train(loss, m, l, s, .epochs = 40, .each = count, .ctx = m), 0);
    assert_int_equal(steps_seen, 7);
    assert_int_equal(wb_train(loss, m, l, s, .epochs = 2, .progress = true), 0);
    assert_int_equal(s->counts->slot[0].steps, 217);
}

/* The loss of an epoch is the mean over its observations, not over its batches, also where several
 * batches make an update; .stop, .reduce and the best checkpoint look at that. */
TEST_IN_SCOPE(the_loss_of_an_epoch)
{
    const float x[5] = {1, 2, 3, 4, 10};
    for (int accumulates = 0; accumulates < 2; accumulates++)
        for (int size = 1; size <= 5; size++) {
            wb_layer *m = wb_Chain(wb_Dense(1, 1, .bias = false, .init = wb_init_ones));
            wb_rule *rule = wb_Descent(.eta = 1e-12);
            if (accumulates) rule = wb_OptimizerChain(wb_AccumGrad(2), rule);
            wb_opt_state *s = wb_setup(rule, m);
            wb_dataset *d = wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){5, 1}), wb_zeros(5, 1));
            wb_watch stop = {.wait = 3};
            double losses[2], metrics[2];
            WORKS(wb_train(loss, m, wb_dataloader(d, size), s, .epochs = 2, .losses = losses,
                           .metrics = metrics, .stop = &stop));
            for (int i = 0; i < 2; i++)                     /* (1 + 4 + 9 + 16 + 100) / 5 */
                if (fabs(losses[i] - 26) > 1e-4 || metrics[i] != losses[i])
                    fail_msg("batches of %d: %g and %g", size, losses[i], metrics[i]);
        }
}

static wb_tensor *bad_loss(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *l = loss(m, b, NULL);
    if (b.index == 2 && ctx) return wb_mul(l, wb_scalar(*(double *)ctx));
    return b.index == 2 ? wb_call(m, wb_zeros(2, 2)) : l;
}

static wb_tensor *copy(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_variable(x);
}

typedef struct { void *other; int n; } comparing;
static int same_bits(wb_tensor *x, const char *path, void *ctx)
{
    comparing *c = ctx;
    wb_tensor *y = wb_get(c->other, path);
    if (!y) fail_msg("%s", wb_error());
    if (memcmp(wb_data(x), wb_data(y), (size_t)wb_size(x) * wb_dtype_bytes(wb_dtype_of(x))))
        fail_msg("%s differs", path);
    return c->n++, 0;
}

static void assert_same(void *a, void *b)
{
    comparing c = {b, 0};
    /* Under WEBER_EAGER, running statistics are updated before the loss is checked: not
     * compared. */
    int (*each)(void *, int (*)(wb_tensor *, const char *, void *), void *) =
        wb__this_thread()->eager ? wb_each_parameter : wb_each_tensor;
    assert_int_equal(each(a, same_bits, &c), 0);
    assert_true(c.n > 0);
}

TEST(losses_that_are_not_finite)
{
    wb_layer *m = net(), *reference = NULL;
    wb_loader *l = wb_dataloader(data(), .batchsize = 8);
    double values[] = {NAN, INFINITY, -INFINITY};
    const char *names[] = {"NaN", "Inf", "-Inf"};
    for (int i = 0; i < 3; i++) {
        wb_seed(9);
        wb_layer *a = wb_fmap(copy, m, NULL), *b = wb_fmap(copy, m, NULL);
        wb_opt_state *s = wb_setup(wb_Adam(), a), *t = wb_setup(wb_Adam(), b);
        wb_seed(9);
        FAILS(wb_train(bad_loss, a, l, s, .ctx = &values[i]), WB_ERROR_NUMBER, "loss", names[i],
              "batch", "3");
        assert_int_equal(s->counts->slot[0].steps, 2);
        wb_seed(9);
        int64_t n = 0;
        WB_EACH_BATCH(batch, l) {                       /* trains on the two good batches only */
            if (n++ == 2) break;
            wb_tree *g;
            wb_withgradient(loss, b, batch, &g);
            assert_int_equal(wb_update(t, b, g), 0);
        }
        wb_loader_stop(l);
        assert_same(a, b);
        assert_memory_equal(wb_data(s->slots[0].moments[1]), wb_data(t->slots[0].moments[1]),
                            24 * sizeof(float));
        reference = a;
    }
    assert_non_null(reference);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    FAILS(wb_train(bad_loss, m, l, s), WB_ERROR_SHAPE, "layers.0", "Dense", "3", "features",
          "dimension", "[2,2] f32");
    assert_int_equal(wb__this_thread()->training, 0);
}

/* In batch 3 the loss does not depend on the parameters that are trained. */
static wb_tensor *loss_without(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *l = loss(m, b, NULL);
    if (b.index < 2) return l;
    return ctx ? wb_mse(wb_mul(b.x, wb_get(m, "layers.0.bias")), b.x) : wb_stop_gradient(l);
}

TEST(a_loss_without_parameters)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 3), wb_Dense(3, 1));
    wb_loader *l = wb_dataloader(data(), .batchsize = 8);
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 0.1), m);
    wb_tree *g;
    wb_batch third = {.x = wb_ones(1, 3), .y = wb_ones(1, 1), .index = 2};
    FAILS(wb_train(loss_without, m, l, s), WB_ERROR_ARGUMENT, "train", "batch 3",
          "does not depend on the model", "wb_stop_gradient");
    assert_int_equal(s->counts->slot[0].steps, 2);
    assert_int_equal(wb__this_thread()->training, 0);
    /* by hand it is no error: the gradients are WB_NONE, and the update changes nothing */
    if (!wb_withgradient(loss_without, m, third, &g)) fail_msg("%s", wb_error());
    assert_true(wb_is_none(wb_get(g, "layers.0.weight")));
    /* one parameter suffices, unless it is frozen */
    wb_loader_stop(l);
    if (wb_train(loss_without, m, l, s, .ctx = m)) fail_msg("%s", wb_error());
    assert_int_equal(wb_freeze(s, "layers.0"), 0);
    FAILS(wb_train(loss_without, m, l, s, .ctx = m), WB_ERROR_ARGUMENT, "batch 3");
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

typedef struct { wb_layer *model; wb_opt_state *state; wb_loader *loader; } run;

static run begin(uint64_t seed)
{
    wb_seed(seed);
    run r = {.model = net()};
    r.state = wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 1), wb_AdamW(.eta = 0.01)), r.model);
    r.loader = wb_dataloader(data(), .batchsize = 7, .shuffle = true, .seed = seed);
    return r;
}

/* Does the steps after step `from` to step `until`, over several epochs; saves after step
 * `save`. */
static void go(run *r, int from, int until, int save, const char *path)
{
    int n = from;
    while (n < until) {
        WB_EACH_BATCH(b, r->loader) {
            wb_tree *g;
            wb_tensor *l = wb_withgradient(loss, r->model, b, &g);
            if (!l || wb_update(r->state, r->model, g)) fail_msg("%s", wb_error());
            if (++n == save &&
                wb_save_checkpoint(path, &(wb_checkpoint){.model = r->model, .state = r->state,
                                                          .loader = r->loader, .epoch = 42}))
                fail_msg("%s", wb_error());
            if (n == until) break;
        }
        assert_int_equal(wb_loader_status(r->loader), 0);
    }
    wb__evaluate_pending();
}

static const char *file_name(void) { return test_file("checkpoint"); }

TEST(resuming_is_never_stopping)
{
    const char *path = file_name();
    /* Epochs have 6 batches: training stops within an epoch, at its end or after it. */
    for (int stop = 5; stop <= 13; stop++) {
        run a = begin(11);
        go(&a, 0, 15, stop, path);
        run b = begin(12);                              /* other values, another order */
        wb_adjust(b.state, .eta = 0.5);
        go(&b, 0, 3, -1, NULL);
        wb_checkpoint c = {.model = b.model, .state = b.state, .loader = b.loader};
        if (wb_load_checkpoint(path, &c)) fail_msg("%s", wb_error());
        assert_int_equal(c.epoch, 42);
        if (stop == 5) {
            wb_checkpoint plain = {.loader = wb_dataloader(data(), .batchsize = 7)};
            FAILS(wb_load_checkpoint(path, &plain), WB_ERROR_ARGUMENT, "loader", "batch 5",
                  "shuffle = 1", "shuffle = 0");
            wb_clear_error();
            if (wb_load_checkpoint(path, &c)) fail_msg("%s", wb_error());
        }
        go(&b, stop, 15, -1, NULL);
        assert_same(a.model, b.model);
        for (int i = 0; i < a.state->n; i++) {
            assert_int_equal(a.state->counts->slot[i].steps, b.state->counts->slot[i].steps);
            for (int k = 0; k < 2; k++) {
                const wb_tensor *m = a.state->slots[i].moments[k];
                assert_memory_equal(wb_data(a.state->slots[i].moments[k]),
                                    wb_data(b.state->slots[i].moments[k]),
                                    (size_t)m->size * sizeof(float));
            }
        }
    }
    unlink(path);
}

TEST(checkpoints_of_wb_train)
{
    const char *path = file_name();
    run a = begin(3), b = begin(4);
    assert_int_equal(wb_train(loss, a.model, a.loader, a.state, .epochs = 2, .checkpoint = path),
                     0);
    wb_checkpoint c = {.model = b.model, .state = b.state, .loader = b.loader};
    assert_int_equal(wb_load_checkpoint(path, &c), 0);
    assert_int_equal(c.epoch, 2);
    assert_int_equal(wb_train(loss, a.model, a.loader, a.state, .epochs = 2), 0);
    wb_load_checkpoint(path, &c);
    assert_int_equal(wb_train(loss, b.model, b.loader, b.state, .epochs = 2), 0);
    assert_same(a.model, b.model);
    unlink(path);
}

static void refuse_load(const char *path, wb_checkpoint *c, const char *const *facts)
{
    wb_clear_error();
    assert_int_equal(wb_load_checkpoint(path, c), WB_ERROR_FORMAT);
    if (!failed_with(WB_ERROR_FORMAT, facts) || !HAS_FACTS(wb_error(), path))
        fail_msg("the message is: %s", wb_error());
}

TEST(checkpoints_that_do_not_fit)
{
    const char *path = file_name();
    run a = begin(3);
    wb_checkpoint one = {.model = a.model, .state = a.state, .loader = a.loader, .epoch = 1};
    assert_int_equal(wb_save_checkpoint(path, &one), 0);
    wb_layer *wide =
        wb_Chain(wb_Dense(3, 9, wb_tanh), wb_BatchNorm(9), wb_Dropout(0.2), wb_Dense(9, 1));
    wb_layer *before = wb_fmap(copy, wide, NULL);
    wb__rng_state random = wb__rng_get_state();
    refuse_load(path, &(wb_checkpoint){.model = wide},
                FACTS("\"layers.0.weight\"", "[9,3] f32", "[8,3] f32"));
    refuse_load(path, &(wb_checkpoint){.state = wb_setup(wb_Adam(), a.model)},
                FACTS("rule", "state", "Adam"));
    wb_opt_state *other = wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 1), wb_AdamW()), wide);
    refuse_load(path, &(wb_checkpoint){.model = a.model, .state = other, .loader = a.loader},
                FACTS("moments", "\"layers.0.weight\""));
    assert_int_equal(wb_save(path, a.model), 0);
    refuse_load(path, &(wb_checkpoint){.model = a.model}, FACTS("checkpoint"));
    assert_int_equal(wb_save_checkpoint(path, &(wb_checkpoint){.model = a.model}), 0);
    refuse_load(path, &(wb_checkpoint){.model = a.model, .state = a.state}, FACTS("state"));
    refuse_load(path, &(wb_checkpoint){.model = a.model, .loader = a.loader}, FACTS("loader"));
    REFUSED(wb_load(path), WB_ERROR_FORMAT, path, "checkpoint", "model");
    assert_int_equal(wb_save_npy(path, wb_ones(2)), 0);
    refuse_load(path, &(wb_checkpoint){.model = a.model}, FACTS("NPY", "safetensors"));
    assert_same(wide, before);
    wb__rng_state now = wb__rng_get_state();
    assert_memory_equal(&random, &now, sizeof now);
    unlink(path);
}

/* ---- the loader is stopped in the middle of training ----------------------------------------- */

static wb_loader *stopped;
static int stop_after_two(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    int *calls = ctx;
    if (++*calls > 100) return 1;
    return batch == 2 && wb_loader_stop(stopped);
}

TEST(each_may_stop_the_loader)
{
    wb_layer *m = net();
    stopped = wb_dataloader(data(), .batchsize = 8);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    int calls = 0;
    assert_int_equal(wb_train(loss, m, stopped, s, .epochs = 3, .each = stop_after_two,
                              .ctx = &calls), 0);
    assert_int_equal(calls, 6);                         /* two batches in each of 3 epochs */
    assert_int_equal(wb_loader_epoch(stopped), 3);
    assert_int_equal(s->counts->slot[0].steps, 6);
}

/* On a device the host reads the loss of a batch when it has begun the next one. */
TEST(the_batch_of_a_late_loss_is_named)
{
    float values[12 * 3] = {0};
    values[6 * 3 + 1] = NAN;
    wb_layer *m = wb_Dense(3, 1);
    wb_dataset *d = wb_dataset_of(wb_from(values, WB_F32, 2, (int64_t[]){12, 3}), wb_ones(12, 1));
    FAILS(wb_train(loss, m, wb_dataloader(d, 4), wb_setup(wb_Descent(0.01), m), .epochs = 2),
          WB_ERROR_NUMBER, "loss is NaN on batch 2", "batch.x has NaN at [2,1]");
}

int main(void) { return run_cases(NULL, golden_close); }
