/* Buckets of gradients on all ranks of MPI: gradients are computed in their bucket, and a bucket is
 * reduced in its own memory if nothing else reads it. */
#include "test.h"

#include "backend/collective.h"
#include "optim/optim.h"

enum { N = 4096 };                      /* numbers of a vector; its bytes are a multiple of 64 */
static int rank, size;

static wb_tensor *reduced(wb_tensor *x)
{
    return wb__collect(wb__world(), WB__COLLECT_ALLREDUCE, WB__RANKS_SUM, x, NULL);
}

static void expect(wb_tensor *x, double wanted)
{
    const float *values = wb_data(x);
    MADE(values);
    for (int64_t i = 0; i < wb_size(x); i++)
        if (fabs(values[i] - wanted) > 1e-3 * fabs(wanted))
            fail_msg("rank %d: %g, not %g", rank, (double)values[i], wanted);
}

/* The bytes of intermediate values when y is computed. */
static int64_t arena_of(wb_tensor *y)
{
    wb_memory m;
    WORKS(wb_memory_estimate(1, &y, &m));
    return m.arena;
}

/* The sum over the ranks r of (r + 1)². */
static double sum_of_squares(void) { return size * (size + 1) * (2 * size + 1) / 6.0; }

TEST_IN_SCOPE(allreduces_in_place)
{
    const int64_t bytes = N * sizeof(float);
    wb_tensor *v = wb_full(rank + 1, N);
    WORKS(wb_eval(v));
    wb_tensor *y = wb_neg(reduced(wb_square(v)));
    assert_int_equal(arena_of(y), bytes);
    expect(y, -sum_of_squares());
    /* Through reshapes, and with parts. */
    wb_tensor *half = wb_slice(v, 0, 0, N / 2), *parts[2];
    for (int i = 0; i < 2; i++) parts[i] = wb_reshape(wb_square(wb_reshape(half, 2, -1)), N / 2);
    parts[1] = wb_reshape(wb_exp(wb_mul(wb_reshape(half, 4, -1), wb_scalar(0))), N / 2);
    wb_tensor *all = reduced(wb_concat_array(2, parts, 0));
    y = wb_neg(all);
    assert_int_equal(arena_of(y), bytes);
    expect(wb_slice(y, 0, 0, N / 2), -sum_of_squares());
    expect(wb_slice(y, 0, N / 2, N), -size);
}

/* What something else reads after the allreduce keeps its value: the operand, a part of it, and a
 * part behind a reshape. */
TEST_IN_SCOPE(allreduces_of_values_with_other_readers)
{
    const double own = (rank + 1) * (rank + 1);
    for (int kind = 0; kind < 3; kind++) {
        wb_tensor *v = wb_full(rank + 1, 2, N / 2);
        WORKS(wb_eval(v));
        wb_tensor *x = wb_square(v), *flat = wb_reshape(x, N);
        wb_tensor *read = kind == 0 ? flat : kind == 1 ? x : wb_permute(x, 1, 0);
        wb_tensor *parts[] = {flat, wb_reshape(wb_sqrt(v), N)};
        wb_tensor *y = reduced(kind == 0 ? flat : wb_concat_array(2, parts, 0));
        if (kind) y = wb_slice(y, 0, 0, N);
        /* The product reads the operand and the result: its kernel runs after the allreduce. */
        wb_tensor *z = wb_mul(wb_reshape(y, N), wb_reshape(read, N));
        expect(z, sum_of_squares() * own);
    }
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

/* A step of training by ranks has three kernels more than one alone: the loss is copied, the bucket
 * is reduced, and the loss is divided by the number of ranks. */
TEST_IN_SCOPE(kernels_of_a_step)
{
    wb_memory need[2];
    if (size == 1) return;              /* a division by 1 is no operation */
    for (int i = 0; i < 2; i++) {
        wb_seed(1);
        wb_layer *m = wb_Chain(wb_Conv(1, 6, {3, 3}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
                               wb_Dense(54, 20, wb_tanh), wb_Dense(20, 3));
        wb_rule *rule = wb_Adam(0.01);
        wb_opt_state *s = wb_setup(i ? wb_DistributedOptimiser(rule) : rule, m);
        wb_tensor *x = wb_randn(4, 1, 8, 8), *y = wb_randn(4, 3);
        WORKS(wb_eval(x, y));
        wb_scope *scope = wb_scope_open();
        const wb_batch b = {x, y, 4, 0};
        wb_tree *grads;
        MADE(wb_withgradient(loss, m, b, &grads));
        WORKS(wb_update(s, m, grads));
        WORKS(wb_memory_estimate(0, NULL, &need[i]));
        WORKS(wb_scope_close(scope));
    }
    if (need[1].kernels > need[0].kernels + 3)
        fail_msg("%d kernels, alone %d", (int)need[1].kernels, (int)need[0].kernels);
}

int main(int argc, char **argv)
{
    if (wb_distributed_initialise(WB_MPI, .timeout = 60)) {
        fprintf(stderr, "%s\n", wb_error());
        return 1;
    }
    rank = wb_distributed_rank();
    size = wb_distributed_size();
    if (rank && !freopen("/dev/null", "w", stdout)) return 1;
    return run_all_cases();
}
