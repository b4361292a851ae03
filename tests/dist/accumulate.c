/* Accumulation of gradients on all ranks of MPI. The test is started with several numbers of ranks,
 * as ranks.c is. The allreduces of gradients are counted. */
#include "test.h"

#include "backend/collective.h"
#include "optim/optim.h"
#include "rank_cases.h"

#include <unistd.h>

enum { K = 4, BATCH = 8, IN = 6 };

/* ---- counting -------------------------------------------------------------------------------- */

static wb__communicator counted;
static const wb__communicator *real;
static int64_t operations, elements;    /* allreduces of f32 */

static int perform(const wb__collective *c)
{
    if (c->kind == WB__COLLECT_ALLREDUCE && c->dtype == WB_F32) {
        operations++;
        elements += c->n;
    }
    return real->perform(c);
}

/* ---- models ---------------------------------------------------------------------------------- */

static wb_layer *net(uint64_t seed)
{
    wb_seed(seed);
    return wb_Chain(wb_Dense(IN, 20, wb_tanh), wb_Dense(20, 20, wb_tanh), wb_Dense(20, 2));
}

static wb_dataset *data(int n)
{
    wb_seed(2);
    return wb_dataset_of(wb_randn(n, IN), wb_randn(n, 2));
}

enum { ADAM, CLIPPED, DESCENT, RULES };         /* the first two hide a constant factor */

static wb_rule *rule_of(int kind)
{
    if (kind == DESCENT) return wb_Descent(0.1);
    if (kind == ADAM) return wb_Adam(0.01);
    return wb_OptimizerChain(wb_ClipNorm(.omega = 0.1), wb_Momentum(0.05));
}

static wb_opt_state *state_of(wb_layer *m, int kind, int64_t bucket)
{
    return wb_setup(wb_DistributedOptimizer(rule_of(kind), .accumulate = K, .bucket = bucket), m);
}

/* Numbers of the model, and the loss. */
static const int64_t n_numbers = IN * 20 + 20 + 20 * 20 + 20 + 20 * 2 + 2 + 1;

static double apart(wb_layer *a, wb_layer *b)
{
    double most = 0;
    for (int i = 0; i < 3; i++) {
        char path[40];
        snprintf(path, sizeof path, "layers.%d.weight", i);
        most = fmax(most, wb_item(wb_max(wb_abs(wb_sub(wb_get(a, path), wb_get(b, path))))));
    }
    return most;
}

/* ---- training -------------------------------------------------------------------------------- */

static double latest;

/* Each k-th batch and the last communicate once, and no other. */
static int count(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    const int64_t each = *(const int64_t *)ctx, steps = (each + K - 1) / K;
    assert_int_equal(operations, (epoch - 1) * steps + (batch == each ? steps : batch / K));
    assert_int_equal(elements, operations * n_numbers);
    latest = wb_item(l);
    return 0;
}

/* k batches of each rank are one batch of one process, and the epoch ends with 2 of 4 batches. */
TEST_IN_SCOPE(batches_of_all_ranks)
{
    for (int kind = 0; kind < RULES; kind++) {
        int64_t each = 10;
        const int n = (int)each * BATCH * size;
        wb_layer *alone = net(1), *shared = net(rank ? 50 : 1);
        wb_opt_state *a = wb_setup(rule_of(kind), alone), *b = state_of(shared, kind, 25000000);
        wb_loader *all = wb_dataloader(data(n), K * BATCH * size, true, .seed = 4);
        wb_loader *mine = wb_dataloader(wb_distributed_dataset(data(n)), BATCH, true, .seed = 4);
        WORKS(wb_distributed_synchronize(shared));
        WORKS(wb_train(mse_loss, alone, all, a, .epochs = 3));
        operations = elements = 0;
        WORKS(wb_train(mse_loss, shared, mine, b, .epochs = 3, .each = count, .ctx = &each));
        assert_int_equal(operations, 9);
        assert_int_equal(b->counts->slot[0].steps, 9);
        if (!(apart(alone, shared) < 1e-6))
            fail_msg("rank %d, rule %d: %g apart", rank, kind, apart(alone, shared));
        expect_alike(shared);
        assert_true(wb_item(wb_distributed_broadcast(wb_scalar(latest), 0)) == (float)latest);
    }
}

static wb_layer *train_on(const char *path, int epochs)
{
    wb_layer *m = net(3);
    wb_loader *l = wb_dataloader(wb_distributed_dataset(data(10 * BATCH * size)), BATCH, true,
                                 .seed = 3);
    WORKS(wb_train(mse_loss, m, l, state_of(m, ADAM, 1000), .epochs = epochs, .checkpoint = path,
                   .resume = path != NULL));
    return m;
}

TEST_IN_SCOPE(a_training_that_goes_on)
{
    const char *path = test_file("accumulate");
    wb_layer *once = train_on(NULL, 4);
    train_on(path, 2);
    assert_true(apart(once, train_on(path, 4)) == 0);
    unlink(path);
}

/* ---- compiled steps -------------------------------------------------------------------------- */

typedef struct { trained trained; int calls; } recorded;

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    recorded *r = ctx;
    r->calls++;
    return train_step(in, out, &r->trained);
}

TEST_IN_SCOPE(compiled_steps)
{
    recorded r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = (recorded){.trained.model = net(5)};
        r[i].trained.state = state_of(r[i].trained.model, CLIPPED, 1000);
    }
    wb_compiled *c = wb_compile(step, &r[0]);
    for (int i = 0; i < 3 * K; i++) {
        wb_seed((uint64_t)(100 * i + rank));
        wb_tensor *in[] = {wb_randn(16, IN), wb_randn(16, 2)}, *a, *b;
        operations = elements = 0;
        WORKS(wb_call_compiled(c, 2, in, 1, &a));
        assert_int_equal(operations, i % K == K - 1 ? 3 : 0);         /* three buckets */
        assert_int_equal(elements, i % K == K - 1 ? n_numbers : 0);
        assert_int_equal(step(in, &b, &r[1]), 1);
        WORKS(wb_eval(b));
        assert_int_equal(operations, i % K == K - 1 ? 6 : 0);
        assert_true(wb_item(a) == wb_item(b));
        assert_true(apart(r[0].trained.model, r[1].trained.model) == 0);
    }
    assert_int_equal(r[0].calls, 2);
    expect_alike(r[0].trained.model);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static wb_tensor *bad_loss(wb_layer *m, wb_batch b, void *ctx)
{
    const bool bad = rank == size - 1 && b.index == *(int *)ctx;
    return bad ? wb_mul(mse_loss(m, b, NULL), wb_scalar(NAN)) : mse_loss(m, b, NULL);
}

/* Whichever batch of one rank is bad, all ranks end with an error and the same model. */
TEST(a_loss_that_is_not_finite)
{
    for (int bad = 4; bad < 8; bad++) IN_SCOPE {
        wb_layer *a = net(7), *b = net(7);
        wb_opt_state *t = state_of(a, ADAM, 25000000), *u = state_of(b, ADAM, 25000000);
        wb_dataset *all = data(8 * BATCH * size), *d = wb_distributed_dataset(all);
        wb_clear_error();
        assert_int_equal(wb_train(bad_loss, a, wb_dataloader(d, BATCH), t, .ctx = &bad),
                         WB_ERROR_NUMBER);
        if (rank == size - 1) FAILED(WB_ERROR_NUMBER, "loss", "NaN");
        else FAILED(WB_ERROR_NUMBER, "batch 8", "another rank");
        assert_int_equal(t->counts->slot[0].steps, 1);
        d = wb_distributed_dataset(wb_subset(all, 0, 4 * BATCH * size));
        WORKS(wb_train(mse_loss, b, wb_dataloader(d, BATCH), u));
        assert_true(apart(a, b) == 0);
        WORKS(wb_train(mse_loss, a, wb_dataloader(d, BATCH), t));   /* it can go on */
        WORKS(wb_train(mse_loss, b, wb_dataloader(d, BATCH), u));
        assert_true(apart(a, b) == 0);
        expect_alike(a);
    }
}

/* Synchronising in the middle is an error on all ranks, also if only one is there. */
TEST_IN_SCOPE(a_state_in_the_middle)
{
    for (int only = 0; only < 2; only++) {
        wb_layer *m = net(7);
        wb_opt_state *s = state_of(m, ADAM, 25000000);
        wb_tree *grads;
        const wb_batch b = {.x = wb_ones(4, IN), .y = wb_ones(4, 2), .n = 4};
        MADE(wb_withgradient(mse_loss, m, b, &grads));
        if (!only || !rank) WORKS(wb_update(s, m, grads));
        wb_clear_error();
        assert_int_equal(wb_distributed_synchronize(s), WB_ERROR_ARGUMENT);
        if (!only || !rank)
            FAILED(WB_ERROR_ARGUMENT, "distributed_synchronize", "1 of 4", "wb_update for 3 more");
        else FAILED(WB_ERROR_ARGUMENT, "distributed_synchronize", "another rank", "wb_update");
    }
}

int main(int argc, char **argv)
{
    if (!ranks_begin(connect_ranks(60))) return 1;
    real = wb__world();
    counted = *real;
    counted.perform = perform;
    wb__world_set(&counted, NULL, 0);
    return run_all_cases();
}
