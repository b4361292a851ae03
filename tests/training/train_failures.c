/* Wrong trainings: the messages of wb_train, which name the cause and the place. */
#include "reference.h"

#include <math.h>
#include <unistd.h>

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return (void)ctx, wb_mse(wb_call(m, b.x), b.y);
}

/* ---- .metric --------------------------------------------------------------------------------- */

typedef struct { int calls, fails_in; } measured;

static double metric(wb_layer *m, int epoch, void *ctx)
{
    measured *c = ctx;
    c->calls++;
    if (epoch == c->fails_in) return wb_item(wb_call(m, wb_ones(2, 7)));
    return 10 - epoch;
}

static wb_tensor *loss_of_metric(wb_layer *m, wb_batch b, void *ctx)
{
    return loss(m, b, ctx);
}

static wb_loader *data(void)
{
    wb_seed(8);
    return wb_dataloader(wb_dataset_of(wb_randn(12, 3), wb_randn(12, 1)), 4);
}

static wb_tensor *loss_of_nothing(wb_layer *m, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(m, wb_slice(b.x, 0, 0, 0)), wb_slice(b.y, 0, 0, 0));
}

static int nothing_left(wb_batch *b, void *ctx)
{
    (void)ctx;
    b->x = wb_slice(b->x, 0, 0, 0);
    b->y = wb_slice(b->y, 0, 0, 0);
    return wb_error_code();
}

/* The mean of no rows is NaN, and the message names it among the causes. */
TEST_IN_SCOPE(a_loss_of_no_rows_ends_the_training)
{
    wb_layer *m = wb_Dense(3, 1);
    FAILS(wb_train(loss_of_nothing, m, data(), wb_setup(wb_Descent(0.01), m)), WB_ERROR_NUMBER,
          "loss is NaN on batch 1", "0 rows", "mask");
    wb_loader *empty = wb_dataloader(wb_dataset_of(wb_randn(8, 3), wb_randn(8, 1)), 4,
                                     .collate = nothing_left);
    FAILS(wb_train(loss, m, empty, wb_setup(wb_Descent(0.01), m)), WB_ERROR_NUMBER,
          "batch.x is [0,3] f32", "0 rows");
}

static wb_tensor *loss_that_frees(wb_layer *m, wb_batch batch, void *ctx)
{
    wb_free(*(wb_opt_state **)ctx);
    return loss(m, batch, NULL);
}

TEST_IN_SCOPE(a_loss_may_free_the_state)
{
    wb_layer *m = wb_Dense(3, 1);
    wb_opt_state *state = wb_setup(wb_Descent(0.01), m);
    WORKS(wb_train(loss_that_frees, m, data(), state, .epochs = 1, .ctx = &state));
}

TEST_IN_SCOPE(a_metric_alone_is_called)
{
    wb_layer *m = wb_Dense(3, 1);
    measured c = {0};
    WORKS(wb_train(loss_of_metric, m, data(), wb_setup(wb_Descent(0.01), m), .epochs = 3,
                   .metric = metric, .ctx = &c));
    assert_int_equal(c.calls, 3);
}

TEST_IN_SCOPE(a_metric_that_fails_ends_the_training)
{
    for (int way = 0; way < 3; way++) {
        wb_layer *m = wb_Dense(3, 1);
        measured c = {.fails_in = 2};
        wb_watch stop = {.wait = 5};
        double scores[4];
        FAILS(wb_train(loss_of_metric, m, data(), wb_setup(wb_Descent(0.01), m), .epochs = 4,
                       .metric = metric, .ctx = &c, .stop = way == 1 ? &stop : NULL,
                       .metrics = way == 2 ? scores : NULL),
              WB_ERROR_SHAPE, "train: .metric failed in epoch 2", "Dense", "[2,7] f32");
        assert_int_equal(c.calls, 2);
        assert_true(way != 2 || (scores[0] == 9 && isnan(scores[1])));
    }
}

/* An error that the metric has dealt with is none of the training. */
static double careful(wb_layer *m, int epoch, void *ctx)
{
    (void)epoch, (void)ctx;
    if (!wb_call(m, wb_ones(2, 7))) wb_clear_error();
    return 1;
}

TEST_IN_SCOPE(a_metric_may_clear_its_error)
{
    wb_layer *m = wb_Dense(3, 1);
    wb_relu(NULL);                                      /* an error from before */
    WORKS(wb_train(loss, m, data(), wb_setup(wb_Descent(0.01), m), .metric = careful));
}

/* ---- losses that are not finite -------------------------------------------------------------- */

static int train_once(wb_layer *m, wb_tensor *x, wb_tensor *y)
{
    return wb_train(loss, m, wb_dataloader(wb_dataset_of(x, y), .batchsize = 600),
                    wb_setup(wb_Descent(0.01), m));
}

static wb_tensor *with(float value, int64_t at, int64_t rows, int64_t columns)
{
    float *v = calloc((size_t)(rows * columns), sizeof *v);
    v[at] = value;
    wb_tensor *x = wb_from(v, WB_F32, 2, (int64_t[]){rows, columns});
    free(v);
    return x;
}

TEST_IN_SCOPE(what_is_not_finite_is_named)
{
    wb_layer *m = wb_Dense(3, 1);
    FAILS(train_once(m, with(NAN, 3 * 400 + 1, 600, 3), wb_ones(600, 1)), WB_ERROR_NUMBER,
          "loss is NaN on batch 1", "batch.x has NaN at [400,1]");
    FAILS(train_once(m, wb_astype(with(INFINITY, 3 * 171, 600, 3), WB_F16), wb_ones(600, 1)),
          WB_ERROR_NUMBER, "batch.x has Inf at [171,0]");
    FAILS(train_once(m, wb_ones(600, 3), with(-INFINITY, 512, 600, 1)), WB_ERROR_NUMBER,
          "loss is Inf on batch 1", "batch.y has -Inf at [512,0]");
    assert_true(wb_isfinite(wb_get(m, "weight")) && !strstr(wb_error(), "class"));
    wb_layer *chain = wb_Chain(wb_Dense(3, 4), wb_Dense(4, 1));
    WORKS(wb_set(chain, "layers.1.weight", with(NAN, 2, 1, 4)));
    FAILS(train_once(chain, wb_ones(4, 3), wb_ones(4, 1)), WB_ERROR_NUMBER,
          "the parameter \"layers.1.weight\" had NaN at [0,2] before this step");
    FAILS(train_once(m, with(1e30f, 0, 4, 3), wb_ones(4, 1)), WB_ERROR_NUMBER, "loss is Inf",
          "the batch and the parameters are finite", "learning rate (eta)");
    assert_null(strstr(wb_error(), "class numbers"));
}

static wb_tensor *nan_loss(wb_layer *m, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_mul(wb_logitcrossentropy(wb_call(m, b.x), b.y), NAN);
}

TEST_IN_SCOPE(class_numbers_are_named_if_there_are_some)
{
    wb_layer *m = wb_Dense(3, 2);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_ones(4, 3), wb_randint(0, 2, 4)), 4);
    FAILS(wb_train(nan_loss, m, l, wb_setup(wb_Descent(0.01), m)), WB_ERROR_NUMBER,
          "loss is NaN on batch 1", "class numbers", "WEBER_DEBUG=check");
}

/* ---- objects of other kinds ------------------------------------------------------------------ */

TEST_IN_SCOPE(options_of_other_kinds)
{
    wb_layer *m = wb_Dense(3, 1);
    wb_rule *rule = wb_Adam();
    wb_opt_state *s = wb_setup(rule, m);
    wb_loader *l = data();
    FAILS(wb_train(loss, m, l, s, .average = rule), WB_ERROR_ARGUMENT, "train: .average",
          "a rule is not a layer or tree", "W0402");
    FAILS(wb_train(loss, m, l, s, .schedule = (wb_schedule *)(void *)rule), WB_ERROR_ARGUMENT,
          "train: .schedule", "a rule is not a schedule");
    FAILS(wb_train(loss, m, l, s, .logger = (wb_logger *)(void *)s), WB_ERROR_ARGUMENT,
          "train: .logger", "a state is not a logger");
    wb_checkpoint c = {.model = m, .state = (wb_opt_state *)(void *)rule};
    FAILS(wb_save_checkpoint("none.safetensors", &c), WB_ERROR_ARGUMENT, "checkpoint: .state",
          "a rule is not a state");
    assert_int_equal(access("none.safetensors", F_OK), -1);
}

TEST_IN_SCOPE(a_path_in_place_of_a_model)
{
    static _Alignas(16) char path[32] = "model.safetensors";
    wb_layer *m = wb_Dense(3, 1);
    FAILS(wb_save(path, (void *)path), WB_ERROR_ARGUMENT, "save: a pointer to no object is not",
          "a layer or tree", "W0402");
    FAILS(wb_save((const char *)m, (void *)path), WB_ERROR_ARGUMENT,
          "save: the first argument is a layer, not a path", "wb_save(path, model", "W0402");
    FAILS(wb_load_state((const char *)m, (void *)path), WB_ERROR_ARGUMENT,
          "load_state: the first argument is a layer", "W0402");
    assert_int_equal(access(path, F_OK), -1);
}
