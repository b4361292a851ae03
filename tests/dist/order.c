/* Ranks that read results at different times, as to print a loss: updates are evaluated when they
 * are read, and all ranks must perform the same operations in the same order all the same.  Each
 * rank runs all cases; the output is that of rank 0.  A wrong order ends with the time-out, or with
 * an error of MPI. */
#include "optim/optim.h"
#include "process.h"
#include "rank_cases.h"

#include <unistd.h>

static wb_layer *model_of(uint64_t seed, int64_t width)
{
    wb_seed(seed);
    return wb_Chain(wb_Dense(4, width, wb_tanh), wb_Dense(width, 1));
}

static wb_opt_state *state_of(wb_layer *m, bool norm, bool shard)
{
    wb_rule *rule = norm ? wb_OptimizerChain(wb_ClipNorm(.omega = 0.1), wb_Adam(0.01))
                         : wb_Adam(0.01);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(rule, .bucket = 200, .shard = shard), m);
    if (!s) fail_msg("%s", wb_error());
    return s;
}

static wb_batch batch(int k)
{
    wb_seed((uint64_t)(100 * k + rank));
    return (wb_batch){.x = wb_randn(8, 4), .y = wb_randn(8, 1), .n = 8, .index = k};
}

/* Records the update of batch k.  Returns the loss. */
static wb_tensor *update(wb_layer *m, wb_opt_state *s, wb_batch b)
{
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(mse_loss, m, b, &grads);
    if (!loss || wb_update(s, m, grads)) fail_msg("rank %d: %s", rank, wb_error());
    return loss;
}

/* ---- an update, and another function of all ranks -------------------------------------------- */

enum { ALLREDUCE, MEAN_LOSS, REDUCE, BROADCAST, ALLGATHER, SCATTER, BARRIER, DATASET, TRAIN, ALL };

/* Element i of rank r. */
static double element(int r, int64_t i) { return 10 * (r + 1) + (double)i; }

/* y is what x, whose elements are those of this rank, becomes; a loss becomes the mean of all. */
static void expect_result(int what, wb_tensor *loss, wb_tensor *y)
{
    const int64_t n = 2 * (int64_t)size;
    if (what == MEAN_LOSS) {
        const double mean = wb_item(wb_mean(wb_distributed_allgather(wb_reshape(loss, 1))));
        assert_true(fabs(wb_item(y) - mean) <= 1e-6 * mean);
        return;
    }
    if (what == REDUCE && rank != size - 1) {
        assert_ptr_equal(y, WB_NONE);
        return;
    }
    assert_int_equal(wb_size(y), what == ALLGATHER ? n * size : what == SCATTER ? 2 : n);
    for (int64_t i = 0; i < wb_size(y); i++) {
        const int64_t at = what == SCATTER ? 2 * rank + i : i;
        double exact = 10 * size * (size + 1) / 2.0 + size * (double)at;       /* of a sum */
        if (what == BROADCAST) exact = element(size - 1, i);
        if (what == ALLGATHER) exact = element((int)(i / n), i % n);
        if (wb_at(y, i) != exact)
            fail_msg("rank %d, function %d, element %d: %g, not %g", rank, what, (int)i,
                     wb_at(y, i), exact);
    }
}

static void call(int what, wb_tensor *loss, wb_tensor *x, wb_dataset *d, wb_layer *m,
                 wb_opt_state *s)
{
    wb_tensor *y = NULL;
    switch (what) {
    case ALLREDUCE: y = wb_distributed_allreduce(x, WB_RANKS_SUM); break;
    case MEAN_LOSS: y = wb_distributed_allreduce(loss, WB_RANKS_MEAN); break;
    case REDUCE: y = wb_distributed_reduce(x, WB_RANKS_SUM, size - 1); break;
    case BROADCAST: y = wb_distributed_broadcast(x, size - 1); break;
    case ALLGATHER: y = wb_distributed_allgather(x); break;
    case SCATTER: y = wb_distributed_reduce_scatter(x, WB_RANKS_SUM); break;
    case BARRIER: WORKS(wb_distributed_barrier()); return;
    case DATASET:
        if (!wb_distributed_dataset(d)) fail_msg("%s", wb_error());
        return;
    default:
        if (wb_train(mse_loss, m, wb_dataloader(d, 4), s)) fail_msg("%s", wb_error());
        return;
    }
    if (!y) fail_msg("rank %d, function %d: %s", rank, what, wb_error());
    expect_result(what, loss, y);
}

static void call_after_updates(bool shard)
{
    wb_layer *m = model_of(1, 8);
    wb_opt_state *s = state_of(m, false, shard);
    wb_tensor *x = wb_add(wb_arange(2 * size, WB_F32), wb_scalar(element(rank, 0)));
    wb_dataset *d = wb_dataset_of(wb_randn(6, 4), wb_randn(6, 1));
    WORKS(wb_eval(x));
    for (int what = 0; what < ALL; what++) {
        wb_tensor *loss = update(m, s, batch(what));
        if (rank == what % size) assert_true(wb_item(loss) > 0);
        call(what, loss, x, d, m, s);
        if (what != TRAIN) assert_true(wb_item(loss) > 0);
    }
    expect_alike(m);
}

TEST_IN_SCOPE(one_rank_reads_the_loss_before_a_function_of_all) { call_after_updates(false); }
TEST_IN_SCOPE(the_same_with_a_divided_state) { call_after_updates(true); }

/* ---- two models, as of a GAN ----------------------------------------------------------------- */

static void train_two(bool first, bool second, bool norm, bool reads)
{
    wb_layer *m = model_of(2, 8), *n = model_of(3, 40);
    wb_opt_state *s = state_of(m, false, first), *t = state_of(n, norm, second);
    for (int k = 0; k < 6; k++) IN_SCOPE {
        const wb_batch b = batch(k);
        wb_tensor *x = k % 2 ? update(m, s, b) : update(n, t, b);
        if (reads && rank == 0) assert_true(wb_item(x) > 0);
        wb_tensor *y = k % 2 ? update(n, t, b) : update(m, s, b);
        if (reads && rank == size - 1) assert_true(wb_item(y) > 0);
    }
    expect_alike(m);
    expect_alike(n);
}

/* Each two of the four choices are made in all four ways. */
TEST_IN_SCOPE(one_rank_reads_between_the_updates_of_two_models)
{
    static const int chosen[] = {0, 7, 11, 13, 14};
    for (int k = 0; k < 5; k++)
        train_two(chosen[k] & 1, chosen[k] & 2, chosen[k] & 4, chosen[k] & 8);
}

/* The other device is left to the evaluation between the updates. */
TEST_IN_SCOPE(two_models_on_two_devices)
{
    wb_layer *m = model_of(4, 8), *n = wb_to(model_of(5, 8), wb_device_at("CPU", 1));
    wb_opt_state *s = state_of(m, false, true), *t = state_of(n, false, false);
    for (int k = 0; k < 4; k++) {
        wb_batch b = batch(k);
        wb_tensor *x = update(m, s, b);
        if (rank == 0) assert_true(wb_item(x) > 0);
        b.x = wb_to(b.x, wb_device_of(n));
        b.y = wb_to(b.y, wb_device_of(n));
        update(n, t, b);
    }
    expect_alike(m);
    expect_alike(n);
}

/* ---- what must be the same on all ranks ------------------------------------------------------ */

static int status_of(wb_layer *m, wb_opt_state *s, int k)
{
    wb_tree *grads;
    if (!wb_withgradient(mse_loss, m, batch(k), &grads)) fail_msg("%s", wb_error());
    return wb_update(s, m, grads);
}

TEST_IN_SCOPE(a_parameter_that_one_rank_has_frozen)
{
    wb_layer *m = model_of(7, 8);
    wb_opt_state *s = state_of(m, false, false);
    if (size == 1) return;
    if (rank == 1) WORKS(wb_freeze(s, "layers.1"));
    FAILS(status_of(m, s, 0), WB_ERROR_ARGUMENT, "freeze the same parameters on all ranks");
    if (rank != 1) WORKS(wb_freeze(s, "layers.1"));
    update(m, s, batch(1));
    WORKS(wb_thaw(s, "layers.1"));
    update(m, s, batch(2));
    expect_alike(m);
}

TEST_IN_SCOPE(other_buckets_on_one_rank)
{
    wb_layer *m = model_of(8, 8);
    const int64_t bytes = rank ? 200 : 201;
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Adam(), .bucket = bytes), m);
    if (size == 1) return;
    FAILS(status_of(m, s, 0), WB_ERROR_ARGUMENT, "other options of wb_DistributedOptimizer");
}

TEST_IN_SCOPE(more_batches_for_a_step_on_one_rank)
{
    wb_layer *m = model_of(12, 8);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Adam(), .accumulate = rank ? 1 : 2), m);
    if (size == 1) return;
    if (rank == 0) WORKS(status_of(m, s, 0));
    FAILS(status_of(m, s, 1), WB_ERROR_ARGUMENT, "other options of wb_DistributedOptimizer");
}

static int compiled_status(wb_compiled *f, int k)
{
    wb_tensor *loss;
    const wb_batch b = batch(k);
    return wb_call_compiled(f, 2, (wb_tensor *[]){b.x, b.y}, 1, &loss);
}

/* The step is compiled. */
TEST_IN_SCOPE(parameters_frozen_between_replays)
{
    trained t = {.model = model_of(9, 8)};
    t.state = state_of(t.model, false, false);
    wb_compiled *f = wb_compile(train_step, &t);
    for (int k = 0; k < 6; k++) {
        if (k == 2) WORKS(wb_freeze(t.state, "layers.1"));
        if (k == 4) WORKS(wb_thaw(t.state, "layers.1"));
        if (compiled_status(f, k)) fail_msg("rank %d: %s", rank, wb_error());
    }
    expect_alike(t.model);
}

/* ---- a training that one rank ends ----------------------------------------------------------- */

enum { STOP, END_EPOCH };
typedef struct { int how, batches; wb_loader *loader; } ending;

static int each(int epoch, int64_t n, wb_tensor *loss, void *ctx)
{
    ending *e = ctx;
    (void)loss;
    e->batches++;
    if (rank != size - 1 || epoch > 1 || n != 2) return 0;
    if (e->how == END_EPOCH) wb_loader_stop(e->loader);
    return e->how == STOP;
}

/* Returns the number of batches that rank 0 has trained. */
static int batches_until_end(int how, bool all_have_each)
{
    wb_layer *m = model_of(10, 8);
    wb_dataset *d = wb_dataset_of(wb_randn(12, 4), wb_randn(12, 1));
    ending e = {.how = how, .loader = wb_dataloader(d, 4)};
    const bool has = all_have_each || rank == size - 1;
    const int status = wb_train(mse_loss, m, e.loader, state_of(m, false, false), .epochs = 2,
                                .ctx = &e, .each = has ? each : NULL);
    if (status) fail_msg("rank %d: %s", rank, wb_error());
    expect_alike(m);
    wb_tensor *n = wb_distributed_broadcast(wb_scalar(e.batches), all_have_each ? 0 : size - 1);
    return (int)wb_item(n);
}

TEST_IN_SCOPE(each_of_one_rank_ends_the_training)
{
    assert_int_equal(batches_until_end(STOP, true), 2);
    assert_int_equal(batches_until_end(STOP, false), 2);
}

TEST_IN_SCOPE(each_of_one_rank_ends_an_epoch)
{
    assert_int_equal(batches_until_end(END_EPOCH, true), 2 + 3);
    assert_int_equal(batches_until_end(END_EPOCH, false), 2 + 3);
}

TEST_IN_SCOPE(other_numbers_of_epochs)
{
    wb_layer *m = model_of(11, 8);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(8, 4), wb_randn(8, 1)), 4);
    if (size == 1) return;
    FAILS(wb_train(mse_loss, m, l, state_of(m, false, false), .epochs = rank ? 2 : 1),
          WB_ERROR_ARGUMENT, ".epochs: ");
}

static double ten(wb_layer *model, int epoch, void *ctx) { return 10; }

/* Rank 0 alone has a log: losses and metrics of the one model, and no rank waits. */
TEST_IN_SCOPE(one_rank_has_a_log)
{
    const char *folder = process_folder();
    for (int shard = 0; shard < 2; shard++) {
        wb_layer *m = model_of(12, 8);
        wb_seed((uint64_t)rank);
        wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(8, 4), wb_randn(8, 1)), 4);
        wb_logger *log = rank ? NULL : wb_logger_open(folder);
        double losses[2];
        WORKS(wb_train(mse_loss, m, l, state_of(m, false, shard), .epochs = 2, .losses = losses,
                       .logger = log, .metric = ten));
        expect_alike(m);
        if (rank) continue;
        WORKS(wb_logger_close(log));
        char path[256], line[256];
        double value[6];
        snprintf(path, sizeof path, "%s/scalars.csv", folder);
        FILE *f = fopen(path, "r");
        assert_true(f && fgets(line, sizeof line, f));
        for (int i = 0; i < 6; i++) {
            const bool is_metric = i % 3 == 2;
            assert_non_null(fgets(line, sizeof line, f));
            assert_non_null(strstr(line, is_metric ? ",metric,10\n" : ",loss,"));
            value[i] = strtod(strrchr(line, ',') + 1, NULL);
        }
        assert_null(fgets(line, sizeof line, f));
        fclose(f);
        unlink(path);
        for (int i = 0; i < 2; i++)
            assert_true(fabs((value[3 * i] + value[3 * i + 1]) / 2 - losses[i]) < 1e-12);
    }
    process_remove(folder);
}

/* A training that .stop ended does not go on when it is resumed: all ranks have rank 0's count. */
TEST_IN_SCOPE(an_ended_training_is_resumed)
{
    const char *path = test_file("order");
    for (int i = 0; i < 2; i++) {
        wb_layer *m = model_of(11, 8);
        wb_loader *l = wb_dataloader(wb_dataset_of(wb_ones(8, 4), wb_ones(8, 1)), 4);
        wb_opt_state *s = state_of(m, false, false);
        wb_watch stop = {.wait = 1, .min_dist = 1e9};
        WORKS(wb_train(mse_loss, m, l, s, .epochs = 6, .checkpoint = path, .resume = true,
                       .stop = &stop));
        assert_int_equal(stop.count, 1);
        assert_int_equal(s->counts->updates, 4);
        expect_alike(m);
    }
    unlink(path);
}

int main(int argc, char **argv)
{
    setenv("WEBER_CPU_DEVICES", "2", 1);
    if (!ranks_begin(connect_ranks(60))) return 1;
    const int status = run_all_cases();
    wb_layer *m = model_of(6, 8);               /* the last update of a program */
    wb_tensor *loss = update(m, state_of(m, false, true), batch(0));
    return status || (rank == 0 && !(wb_item(loss) > 0));
}
