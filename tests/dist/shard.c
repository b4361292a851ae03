/* States that are divided over the ranks, wb_DistributedOptimiser(rule, .shard = true), on several
 * numbers of ranks.  Each rank runs all cases; the output is that of rank 0. */
#include "test.h"

#include <weber.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WB_TEST_NCCL
#define RANKS WB_NCCL
#else
#define RANKS WB_MPI
#endif

static int rank, size;

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *loss_of(wb_layer *model, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(model, b.x), b.y);
}

enum { DESCENT, MOMENTUM, ADAM, ADAMW, CLIPPED, TWICE, RULES };

static wb_rule *rule_of(int kind)
{
    switch (kind) {
    case DESCENT: return wb_Descent(0.05);
    case MOMENTUM: return wb_Momentum(0.01);
    case ADAM: return wb_Adam(0.01);
    case ADAMW: return wb_AdamW(0.01, .lambda = 0.1);
    case CLIPPED: return wb_OptimiserChain(wb_ClipNorm(.omega = 0.05), wb_Momentum(0.05));
    default:
        return wb_OptimiserChain(wb_ClipNorm(.omega = 0.5), wb_WeightDecay(.lambda = 0.01),
                                 wb_Adam(0.01), wb_ClipNorm(.omega = 0.02));
    }
}

/* Parameters of 320, 40, 1320, 33, 33 and 1 elements: not all can be divided equally, and one has
 * fewer elements than there are ranks. */
static wb_layer *model_of(uint64_t seed)
{
    wb_seed(seed);
    return wb_Chain(wb_Dense(8, 40, wb_relu), wb_Dense(40, 33, wb_tanh), wb_Dense(33, 1));
}

static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                    "layers.1.bias", "layers.2.weight", "layers.2.bias"};
enum { PATHS = sizeof paths / sizeof *paths };

static wb_opt_state *state_of(int kind, wb_layer *m, bool shard, wb_dtype mixed)
{
    wb_opt_state *s = wb_setup(wb_DistributedOptimiser(rule_of(kind), .bucket = 3000,
                                                       .shard = shard), m, .mixed = mixed);
    if (!s) fail_msg("%s", wb_error());
    return s;
}

/* Updates the model for batch k of this rank.  Returns the loss of the rank. */
static double update(wb_layer *m, wb_opt_state *s, int k)
{
    wb_seed((uint64_t)(1000 * k + rank));
    const wb_batch b = {wb_randn(16, 8), wb_randn(16, 1), 16, k};
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(loss_of, m, b, &grads);
    if (!loss || wb_update(s, m, grads)) fail_msg("rank %d: %s", rank, wb_error());
    return wb_item(loss);
}

/* The largest difference between the parameters of two models, as a part of the largest one. */
static double apart(wb_layer *a, wb_layer *b)
{
    double most = 0;
    for (int i = 0; i < PATHS; i++) {
        wb_tensor *x = wb_astype(wb_get(a, paths[i]), WB_F32);
        wb_tensor *y = wb_astype(wb_get(b, paths[i]), WB_F32);
        const double d = wb_item(wb_max(wb_abs(wb_sub(x, y))));
        const double by = wb_item(wb_max(wb_abs(x)));
        most = fmax(most, d / fmax(by, 1e-3));
    }
    return most;
}

/* All ranks have the same bits. */
static void expect_alike(wb_layer *m)
{
    for (int p = 0; p < PATHS; p++) {
        wb_tensor *flat = wb_reshape(wb_astype(wb_get(m, paths[p]), WB_F32), 1, -1);
        wb_tensor *all = wb_distributed_allgather(flat);
        const float *x = wb_data(all);
        const int64_t n = wb_dim(all, 1);
        for (int64_t i = 0; i < n * size; i++) assert_true(x[i] == x[i % n]);
    }
}

static void train_alike(int kind, wb_dtype mixed, double tolerance)
{
    wb_scope *s = wb_scope_open();
    wb_layer *a = model_of(1), *b = model_of(1);
    wb_opt_state *whole = state_of(kind, a, false, mixed);
    wb_opt_state *divided = state_of(kind, b, true, mixed);
    for (int k = 0; k < 10; k++) {
        const double x = update(a, whole, k), y = update(b, divided, k);
        if (!(fabs(x - y) <= tolerance * fmax(fabs(x), 1)))
            fail_msg("rank %d of %d, rule %d, step %d: loss %.9g, not %.9g", rank, size, kind, k,
                     y, x);
    }
    const double most = apart(a, b);
    if (!(most <= tolerance))
        fail_msg("rank %d of %d, rule %d: parameters %g apart", rank, size, kind, most);
    expect_alike(b);
    WORKS(wb_scope_close(s));
}

TEST(training_as_with_a_whole_state)
{
    for (int kind = 0; kind < RULES; kind++) train_alike(kind, WB_DTYPE_DEFAULT, 2e-6);
}

int main(int argc, char **argv)
{
    if (wb_distributed_initialise(RANKS, .timeout = 60)) {
        fprintf(stderr, "%s\n", wb_error());
        return 1;
    }
    rank = wb_distributed_rank();
    size = wb_distributed_size();
    if (rank && !freopen("/dev/null", "w", stdout)) return 1;
    return run_all_cases();
}
