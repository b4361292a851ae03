/* Buckets of gradients on all ranks of MPI: gradients are computed in their bucket, and a bucket is
 * reduced in its own memory if nothing else reads it. */
#include "test.h"

#include "backend/collective.h"
#include "optim/optim.h"
#include "rank_cases.h"

enum { N = 4096 };                      /* numbers of a vector; its bytes are a multiple of 64 */

static wb_tensor *reduced(wb_tensor *x)
{
    return wb__collect(wb__world(), WB__COLLECT_ALLREDUCE, WB__RANKS_SUM, x, NULL);
}

/* Element i of the vector of rank r.  Sums of squares over 16 ranks, and their products with a
 * square, are integers of f32. */
static double element(int r, int64_t i) { return r + 1 + (double)(i % 5); }

static wb_tensor *of_rank(int64_t rows)
{
    static float values[N];
    for (int64_t i = 0; i < N; i++) values[i] = (float)element(rank, i);
    wb_tensor *v = wb_from(values, WB_F32, 2, (int64_t[]){rows, N / rows});
    WORKS(wb_eval(v));
    return v;
}

static double square_of(int r, int64_t i) { return element(r, i) * element(r, i); }

/* The sum over the ranks of f(r, i). */
static double sum(double (*f)(int r, int64_t i), int64_t i)
{
    double all = 0;
    for (int r = 0; r < size; r++) all += f(r, i);
    return all;
}

static void expect(int64_t i, double is, double exact)
{
    if (is != exact) fail_msg("rank %d: element %lld: %g, not %g", rank, (long long)i, is, exact);
}

/* The bytes of intermediate values when y is computed. */
static int64_t arena_of(wb_tensor *y)
{
    wb_memory m;
    WORKS(wb_estimate_memory(1, &y, &m));
    return m.arena;
}

TEST_IN_SCOPE(allreduces_in_place)
{
    const int64_t bytes = N * sizeof(float);
    wb_tensor *v = wb_reshape(of_rank(1), N);
    wb_tensor *y = wb_neg(reduced(wb_square(v)));
    assert_int_equal(arena_of(y), bytes);
    const float *values = wb_data(y);
    MADE(values);
    for (int64_t i = 0; i < N; i++) expect(i, values[i], -sum(square_of, i));
    /* Through reshapes, and with parts. */
    wb_tensor *half = wb_slice(v, 0, 0, N / 2), *parts[2];
    for (int i = 0; i < 2; i++) parts[i] = wb_reshape(wb_square(wb_reshape(half, 2, -1)), N / 2);
    wb_tensor *rows = wb_reshape(half, 4, -1);
    parts[1] = wb_reshape(wb_add(wb_exp(wb_mul(rows, wb_scalar(0))), rows), N / 2);
    wb_tensor *all = reduced(wb_concat_array(0, 2, parts));
    y = wb_neg(all);
    assert_int_equal(arena_of(y), bytes);
    values = wb_data(y);
    MADE(values);
    for (int64_t i = 0; i < N / 2; i++) {
        expect(i, values[i], -sum(square_of, i));
        expect(N / 2 + i, values[N / 2 + i], -size - sum(element, i));
    }
}

/* What something else reads after the allreduce keeps its value: the operand, a part of it, and a
 * part behind a reshape. */
TEST_IN_SCOPE(allreduces_of_values_with_other_readers)
{
    for (int kind = 0; kind < 3; kind++) {
        wb_tensor *v = of_rank(2);
        wb_tensor *x = wb_square(v), *flat = wb_reshape(x, N);
        wb_tensor *read = kind == 0 ? flat : kind == 1 ? x : wb_permute(x, 1, 0);
        wb_tensor *parts[] = {flat, wb_reshape(wb_sqrt(v), N)};
        wb_tensor *y = reduced(kind == 0 ? flat : wb_concat_array(0, 2, parts));
        if (kind) y = wb_slice(y, 0, 0, N);
        /* The product reads the operand and the result: its kernel runs after the allreduce. */
        wb_tensor *z = wb_mul(wb_reshape(y, N), wb_reshape(read, N));
        const float *values = wb_data(z);
        MADE(values);
        for (int64_t i = 0; i < N; i++) {
            const int64_t at = kind == 2 ? i % 2 * (N / 2) + i / 2 : i;
            expect(i, values[i], sum(square_of, i) * square_of(rank, at));
        }
    }
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
        wb_opt_state *s = wb_setup(i ? wb_DistributedOptimizer(rule) : rule, m);
        wb_tensor *x = wb_randn(4, 1, 8, 8), *y = wb_randn(4, 3);
        WORKS(wb_eval(x, y));
        wb_scope *scope = wb_scope_open();
        const wb_batch b = {.x = x, .y = y, .n = 4};
        wb_tree *grads;
        MADE(wb_withgradient(mse_loss, m, b, &grads));
        WORKS(wb_update(s, m, grads));
        WORKS(wb_estimate_memory(0, NULL, &need[i]));
        WORKS(wb_scope_close(scope));
    }
    if (need[1].kernels > need[0].kernels + 3)
        fail_msg("%d kernels, alone %d", (int)need[1].kernels, (int)need[0].kernels);
}

int main(int argc, char **argv)
{
    if (!ranks_begin(connect_ranks(60))) return 1;
    return run_all_cases();
}
