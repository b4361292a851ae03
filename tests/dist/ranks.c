/* Collective operations and training on all ranks of MPI, of NCCL on its double, or of both.  The
 * test is started with several numbers of ranks.  Each rank runs all cases; the output is that of
 * rank 0, and a rank that fails ends all ranks.
 *
 * MPICH's ranks use a processor each while they wait, so operations of many ranks are slow.  Loops
 * over what does not depend on the number of ranks are shorter with more than three. */
#include "rank_cases.h"

#include <dlfcn.h>
#include <unistd.h>

static bool many(void) { return size > 3; }

/* ---- tensors --------------------------------------------------------------------------------- */

enum { N = 6, M = 5 };                  /* x is [N * ranks, M] */

static const wb_dtype dtypes[] = {WB_F32, WB_F64, WB_F16, WB_BF16, WB_I8, WB_U8, WB_I32, WB_I64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Element i of rank r, an integer that the dtype can hold: -5 to 5, of unsigned dtypes 0 to 200 in
 * minima and maxima, and 0 to 10 in sums, so that those of the ranks fit too. */
static double element(wb_dtype t, wb_ranks_reduction how, int r, int64_t i)
{
    const double x = (double)((i * 7 + r * 5) % 11);
    return t != WB_U8 ? x - 5 : how >= WB_RANKS_MIN ? 20 * x : x;
}

static wb_tensor *of_rank(int r, wb_dtype t, wb_ranks_reduction how)
{
    double x[N * 16 * M];
    const int64_t dims[] = {N * size, M};
    assert_true(size <= 16);
    for (int64_t i = 0; i < dims[0] * M; i++) x[i] = element(t, how, r, i);
    return wb_astype(wb_from(x, WB_F64, 2, dims), t);
}

static double reduced(wb_dtype t, wb_ranks_reduction how, int64_t i)
{
    double y = element(t, how, 0, i);
    for (int r = 1; r < size; r++) {
        const double x = element(t, how, r, i);
        y = how == WB_RANKS_MIN ? fmin(y, x) : how == WB_RANKS_MAX ? fmax(y, x) : y + x;
    }
    return how == WB_RANKS_MEAN ? y / size : y;
}

/* One unit in the last place of a number of a floating dtype. */
static double unit_of(wb_dtype t, double x)
{
    const int bits = t == WB_F64 ? 52 : t == WB_F32 ? 23 : t == WB_F16 ? 10 : 7;
    return x == 0 ? 0 : ldexp(1, ilogb(x) - bits);
}

/* y has exactly the values of the reduction from element `first` on, or nearly those of a mean. */
static void expect_reduced(wb_tensor *y, wb_dtype t, wb_ranks_reduction how, int64_t first,
                           int64_t rows)
{
    if (!y) fail_msg("rank %d: %s", rank, wb_error());
    assert_int_equal(wb_dtype_of(y), t);
    assert_int_equal(wb_dim(y, 0), rows);
    const double *values = wb_data(wb_astype(y, WB_F64));
    assert_non_null(values);
    for (int64_t i = 0; i < rows * M; i++) {
        const double exact = reduced(t, how, first + i);
        if (!(fabs(values[i] - exact) <= (how == WB_RANKS_MEAN ? unit_of(t, exact) : 0)))
            fail_msg("rank %d, %s, reduction %d, element %lld: %.17g, not %.17g", rank,
                     wb_dtype_name(t), (int)how, (long long)i, values[i], exact);
    }
}

static bool is_float(wb_dtype t)
{
    return t == WB_F32 || t == WB_F64 || t == WB_F16 || t == WB_BF16;
}

static void reduce_every_way(wb_dtype t, wb_ranks_reduction how)
{
    wb_tensor *x = of_rank(rank, t, how);
    const int root = size - 1;
    if (how == WB_RANKS_MEAN && !is_float(t)) {
        REFUSED(wb_distributed_allreduce(x, how), WB_ERROR_DTYPE, "distributed_allreduce", "mean");
        REFUSED(wb_distributed_reduce(x, how, root), WB_ERROR_DTYPE, "distributed_reduce", "mean");
        REFUSED(wb_distributed_reduce_scatter(x, how), WB_ERROR_DTYPE, "distributed_reduce_scatter",
                "mean");
        return;
    }
    expect_reduced(wb_distributed_allreduce(x, how), t, how, 0, N * size);
    expect_reduced(wb_distributed_reduce_scatter(x, how), t, how, (int64_t)rank * N * M, N);
    wb_tensor *y = wb_distributed_reduce(x, how, root);
    if (rank == root) expect_reduced(y, t, how, 0, N * size);
    else assert_ptr_equal(y, WB_NONE);
}

/* With many ranks each dtype is reduced in one way, and each way is taken by two dtypes. */
TEST_IN_SCOPE(reductions_of_every_dtype)
{
    for (int k = 0; k < DTYPES; k++)
        for (int how = WB_RANKS_SUM; how <= WB_RANKS_MAX; how++)
            if (!many() || how == WB_RANKS_SUM + (k + k / 4) % 4) reduce_every_way(dtypes[k], how);
}

/* Halves are reduced in f32 and rounded once: one of rank r is `big` in row r, r + size, ...  and 1
 * in the others.  At `big` the numbers of the dtype are 2 apart, so a sum in the dtype would lose
 * each 1.  (One sum of two ranks is rounded once in any case.) */
TEST_IN_SCOPE(halves_are_rounded_once)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const wb_dtype t = bf16 ? WB_BF16 : WB_F16;
        const double big = bf16 ? 256 : 2048, sum = 2 * nearbyint((big + size - 1) / 2);
        double values[2 * 16];
        const int64_t n = 2 * (int64_t)size;
        for (int64_t i = 0; i < n; i++) values[i] = i % size == rank ? big : 1;
        wb_tensor *x = wb_astype(wb_from(values, WB_F64, 1, &n), t);
        wb_tensor *all = wb_distributed_allreduce(x, WB_RANKS_SUM);
        wb_tensor *part = wb_distributed_reduce_scatter(x, WB_RANKS_SUM);
        wb_tensor *one = wb_distributed_reduce(x, WB_RANKS_SUM, 0);
        if (!all || !part || !one) fail_msg("rank %d: %s", rank, wb_error());
        for (int64_t i = 0; i < n; i++) assert_true(wb_at(all, i) == sum);
        for (int64_t i = 0; i < n && !rank; i++) assert_true(wb_at(one, i) == sum);
        for (int64_t i = 0; i < 2; i++) assert_true(wb_at(part, i) == sum);
    }
}

/* Rank r has r + k % 4 in row k, and the rank `bad` NaN in each third row. */
static void expect_extreme(double is, wb_ranks_reduction how, int64_t k)
{
    const double extreme = (how == WB_RANKS_MAX ? size - 1 : 0) + (double)(k % 4);
    if (k % 3 ? is != extreme : !isnan(is))
        fail_msg("rank %d, reduction %d, row %lld: %g", rank, (int)how, (long long)k, is);
}

static void reduce_with_nan(wb_dtype t, wb_ranks_reduction how, int64_t n, int bad)
{
    double values[40 * 16] = {0};
    const int64_t dims[] = {n, 1};
    const int other = size > 1 ? (bad + 1) % size : 0;
    for (int64_t k = 0; k < n; k++)
        values[k] = rank == bad && k % 3 == 0 ? NAN : rank + (double)(k % 4);
    wb_tensor *x = wb_astype(wb_from(values, WB_F64, 2, dims), t);
    wb_tensor *y = wb_distributed_allreduce(x, how);
    wb_tensor *z = wb_distributed_reduce(x, how, other);
    wb_tensor *part = wb_distributed_reduce_scatter(x, how);
    assert_true(y && z && part && wb_dtype_of(y) == t);
    for (int64_t k = 0; k < n; k++) expect_extreme(wb_at(y, k, 0), how, k);
    for (int64_t k = 0; k < n && rank == other; k++) expect_extreme(wb_at(z, k, 0), how, k);
    for (int64_t k = 0; k < n / size; k++)
        expect_extreme(wb_at(part, k, 0), how, rank * (n / size) + k);
}

/* An element that is NaN on one rank is NaN on all of them, wherever that rank is, and no other
 * element is. */
TEST_IN_SCOPE(extremes_with_nan)
{
    static const wb_dtype floats[] = {WB_F32, WB_F64, WB_F16, WB_BF16};
    for (int i = many() ? 2 : 0; i < 8; i += many() ? 3 : 1)
        for (int how = WB_RANKS_MIN; how <= WB_RANKS_MAX; how++)
            for (int64_t n = many() ? 40 * size : size; n <= 40 * size; n *= 40)
                reduce_with_nan(floats[i % 4], how, n, i / 4 ? size - 1 : 0);
}

/* With many ranks each dtype comes from one of them, and two dtypes are gathered. */
TEST_IN_SCOPE(copies_of_every_dtype)
{
    const int64_t n = (int64_t)N * size * M;
    for (int k = 0; k < DTYPES; k++) {
        const wb_dtype t = dtypes[k];
        wb_tensor *x = of_rank(rank, t, WB_RANKS_SUM);
        for (int root = 0; root < size; root++) {
            if (many() && root != k % size) continue;
            wb_tensor *y = wb_distributed_broadcast(x, root);
            assert_true(y && wb_dtype_of(y) == t);
            const double *values = wb_data(wb_astype(y, WB_F64));
            for (int64_t i = 0; i < n; i++)
                assert_true(values[i] == element(t, WB_RANKS_SUM, root, i));
        }
        if (many() && k % 4) continue;
        wb_tensor *y = wb_distributed_allgather(x);
        assert_true(y && wb_dtype_of(y) == t && wb_dim(y, 0) == (int64_t)N * size * size);
        const double *values = wb_data(wb_astype(y, WB_F64));
        for (int64_t i = 0; i < n * size; i++)
            assert_true(values[i] == element(t, WB_RANKS_SUM, (int)(i / n), i % n));
    }
}

TEST_IN_SCOPE(tensors_of_no_elements)
{
    const int64_t dims[] = {0, 3};
    wb_tensor *x = wb_from(NULL, WB_F32, 2, dims);
    assert_non_null(x);
    assert_int_equal(wb_size(wb_distributed_allreduce(x, WB_RANKS_SUM)), 0);
    assert_int_equal(wb_size(wb_distributed_broadcast(x, 0)), 0);
    assert_int_equal(wb_size(wb_distributed_allgather(x)), 0);
    assert_true(wb_item(wb_distributed_allreduce(wb_scalar(rank), WB_RANKS_MAX)) == size - 1);
}

TEST_IN_SCOPE(wrong_arguments)
{
    wb_tensor *x = wb_full(1, 2 * size + 1, 2);
    REFUSED(wb_distributed_broadcast(x, size), WB_ERROR_ARGUMENT, "distributed_broadcast",
            "rank");
    REFUSED(wb_distributed_broadcast(x, -1), WB_ERROR_ARGUMENT, "distributed_broadcast", "-1");
    REFUSED(wb_distributed_reduce(x, WB_RANKS_SUM, size), WB_ERROR_ARGUMENT, "distributed_reduce",
            "rank");
    if (size > 1)
        REFUSED(wb_distributed_reduce_scatter(x, WB_RANKS_SUM), WB_ERROR_SHAPE,
                "distributed_reduce_scatter", "equal");
    FAILS(connect_ranks(60), WB_ERROR_ARGUMENT, "distributed_initialize", "already");
#if !defined WB_TEST_NCCL || defined WB_TEST_THROUGH
    FAILS(wb_distributed_initialize(WB_MPI, .through = WB_MPI), WB_ERROR_ARGUMENT,
          "distributed_initialize", "MPI cannot", "leave out .through");
#endif
    wb_clear_error();
}

static int reduces(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = *(bool *)ctx ? wb_distributed_reduce(in[0], WB_RANKS_SUM, 0)
                          : wb_distributed_broadcast(in[0], 0);
    return out[0] ? 1 : -1;
}

/* Reductions to one rank, and broadcasts, cannot be recorded. */
TEST_IN_SCOPE(recordings_of_what_is_no_operation)
{
    wb_tensor *x = wb_full(1, 2), *y;
    for (int i = 0; i < 2; i++) {
        bool to_one = i > 0;
        FAILS(wb_call_compiled(wb_compile(reduces, &to_one), 1, &x, 1, &y), WB_ERROR_ARGUMENT,
              to_one ? "distributed_reduce:" : "distributed_broadcast:", "wb_call_compiled");
    }
    wb_clear_error();
}

/* The loss of each rank depends on the x of all ranks: d/dx sum over ranks of mean(x)² w. */
TEST_IN_SCOPE(gradient_of_an_allreduce)
{
    wb_tensor *x = wb_variable(wb_full(rank + 1.0, 3));
    wb_tensor *mean = wb_distributed_allreduce(x, WB_RANKS_MEAN);
    wb_tensor *loss = wb_sum(wb_mul(wb_square(mean), wb_scalar(rank + 1.0)));
    wb_tensor *g = wb_gradient(loss, x);
    if (!g) fail_msg("%s", wb_error());
    const double m = (size + 1) / 2.0, total = size * (size + 1) / 2.0;
    const float *values = wb_data(g);
    for (int i = 0; i < 3; i++) assert_true(fabs(values[i] - 2 * m * total / size) < 1e-5);
    wb_tensor *most = wb_distributed_allreduce(x, WB_RANKS_MAX);
    REFUSED(wb_gradient(wb_sum(most), x), WB_ERROR_UNSUPPORTED, "allreduce");
}

/* x of rank r is r + 1, and row i of what is gathered weighs (rank + 1) (i + 1); the gradient for x
 * is the sum of the weights of its row over the ranks.  The parts of a sum are gathered again, so
 * each rank's gradient for the whole x is that of the sum. */
TEST_IN_SCOPE(gradient_of_gathered_and_scattered)
{
    wb_tensor *x = wb_variable(wb_full(rank + 1.0, 1, 3));
    wb_tensor *weight = wb_mul(wb_arange(size, WB_F32), wb_scalar(rank + 1.0));
    weight = wb_add(wb_reshape(weight, size, 1), wb_scalar(rank + 1.0));
    wb_tensor *g = wb_gradient(wb_sum(wb_mul(wb_distributed_allgather(x), weight)), x);
    const float *values = g ? wb_data(g) : NULL;
    if (!values) fail_msg("%s", wb_error());
    const double total = size * (size + 1) / 2.0;
    for (int i = 0; i < 3; i++) assert_true(values[i] == (float)((rank + 1) * total));

    wb_tensor *whole = wb_variable(wb_full(1, size, 2));
    wb_tensor *part = wb_distributed_reduce_scatter(whole, WB_RANKS_MEAN);
    g = wb_gradient(wb_sum(wb_mul(part, wb_scalar(rank + 1.0))), whole);
    values = g ? wb_data(g) : NULL;
    if (!values) fail_msg("%s", wb_error());
    for (int i = 0; i < 2 * size; i++)
        assert_true(fabs(values[i] - (i / 2 + 1.0) / size) < 1e-6);
    wb_tensor *least = wb_distributed_reduce_scatter(whole, WB_RANKS_MIN);
    REFUSED(wb_gradient(wb_sum(least), whole), WB_ERROR_UNSUPPORTED, "reduce_scatter");
}

static int gather_and_scatter(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tensor *all = wb_distributed_allgather(in[0]);
    wb_tensor *twice = all ? wb_mul(all, wb_scalar(2)) : NULL;
    out[0] = twice ? wb_distributed_reduce_scatter(twice, WB_RANKS_SUM) : NULL;
    return out[0] ? 1 : -1;
}

/* A recorded function may contain both operations. */
TEST_IN_SCOPE(compiled_gathering_and_scattering)
{
    wb_compiled *c = wb_compile(gather_and_scatter, NULL);
    for (int i = 0; i < 4; i++) {
        wb_tensor *in[] = {wb_full(rank + i, 5, 3)}, *out;
        WORKS(wb_eval_array(1, in));
        WORKS(wb_call_compiled(c, 1, in, 1, &out));
        const float *values = wb_data(out);
        if (!values) fail_msg("%s", wb_error());
        for (int k = 0; k < 15; k++) assert_true(values[k] == (float)(2 * size * (rank + i)));
    }
}

/* ---- datasets -------------------------------------------------------------------------------- */

/* All shares together are the dataset, and each batch of all ranks is a batch of one process. */
TEST_IN_SCOPE(shares_of_a_dataset)
{
    const int lengths[] = {2, 7 * size + 1, 1, 5, 7 * size, 100};
    for (int k = 0; k < (many() ? 2 : 6); k++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            const int64_t n = lengths[k], each = (n + size - 1) / size;
            wb_dataset *all = wb_dataset_of(wb_arange(n, WB_F32), WB_NONE);
            wb_dataset *share = wb_distributed_dataset(all);
            assert_int_equal(wb_dataset_length(share), each);
            wb_loader *mine = wb_dataloader(share, 2, shuffle, .seed = 5);
            wb_loader *alone = wb_dataloader(all, 2 * size, shuffle, .seed = 5);
            for (int epoch = 0; epoch < 2; epoch++) {
                wb_batch a, b;
                while (wb_loader_next(mine, &a)) {
                    wb_tensor *together = wb_distributed_allgather(a.x);
                    const float *is = wb_data(together);
                    assert_true(is && wb_loader_next(alone, &b));
                    const float *wanted = wb_data(b.x);
                    for (int64_t i = 0; i < a.n * size; i++) {
                        const int64_t at = i % a.n * size + i / a.n;     /* in the batch of all */
                        if (at < b.n) assert_true(is[i] == wanted[at]);
                    }
                }
                WORKS(wb_loader_status(mine));
                assert_false(wb_loader_next(alone, &b));
            }
        }
}

TEST_IN_SCOPE(datasets_that_differ)
{
    if (size == 1) return;
    wb_dataset *d = wb_dataset_of(wb_zeros(10 + rank, 2), WB_NONE);
    REFUSED(wb_distributed_dataset(d), WB_ERROR_SHAPE, "distributed_dataset", "10");
}

/* Without a seed of the program, rank 0 draws one for the shuffles of all. */
TEST_IN_SCOPE(shares_without_a_seed)
{
    wb_seed(100 + (uint64_t)rank);
    wb_dataset *all = wb_dataset_of(wb_arange(6 * size, WB_F32), WB_NONE);
    wb_loader *l = wb_dataloader(wb_distributed_dataset(all), 6, true);
    wb_batch b;
    assert_true(wb_loader_next(l, &b));
    wb_tensor *sum = wb_distributed_allreduce(wb_onehotbatch(wb_astype(b.x, WB_I32), 6 * size),
                                              WB_RANKS_SUM);
    if (!sum) fail_msg("%s", wb_error());
    const float *times = wb_data(wb_sum(sum, .axes = {0}));
    for (int i = 0; i < 6 * size; i++) assert_true(times[i] == 1);
    WORKS(wb_loader_stop(l));
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_rule *rule_of(int kind)
{
    switch (kind) {
    case 0: return wb_Descent(0.05);
    case 1: return wb_Adam(0.01);
    case 2: return wb_OptimizerChain(wb_ClipNorm(.omega = 0.05), wb_Momentum(0.01));
    default: return NULL;
    }
}

static wb_layer *model_of(uint64_t seed)
{
    wb_seed(seed);
    return wb_Chain(wb_Dense(8, 40, wb_relu), wb_Dense(40, 33, wb_tanh), wb_Dense(33, 2));
}

/* Ranks that share batches of 24 · 7 observations train like one process with the whole batches. */
static void train_alike(int kind, wb_dtype mixed, double tolerance)
{
    enum { BATCH = 420 };
    wb_scope *s = wb_scope_open();
    wb_layer *alone = model_of(1), *shared = model_of(rank ? 50 + (uint64_t)rank : 1);
    WORKS(wb_distributed_synchronize(shared));
    wb_seed(9);
    wb_dataset *d = wb_dataset_of(wb_randn(2 * BATCH, 8), wb_randn(2 * BATCH, 2));
    wb_loader *all = wb_dataloader(d, BATCH, true, .seed = 4);
    wb_loader *mine = wb_dataloader(wb_distributed_dataset(d), BATCH / size, true, .seed = 4);
    wb_opt_state *a = wb_setup(rule_of(kind), alone, .mixed = mixed);
    wb_opt_state *b = wb_setup(wb_DistributedOptimizer(rule_of(kind), .bucket = 3000), shared,
                               .mixed = mixed);
    if (!a || !b) fail_msg("%s", wb_error());
    const int epochs = many() ? 2 : 8;
    WORKS(wb_train(mse_loss, alone, all, a, .epochs = epochs));
    WORKS(wb_train(mse_loss, shared, mine, b, .epochs = epochs));
    const char *const paths[] = {"layers.0.weight", "layers.1.bias", "layers.2.weight"};
    for (int i = 0; i < 3; i++) {
        wb_tensor *x = wb_astype(wb_get(alone, paths[i]), WB_F32);
        wb_tensor *y = wb_astype(wb_get(shared, paths[i]), WB_F32);
        const double apart = wb_item(wb_max(wb_abs(wb_sub(x, y))));
        if (!(apart <= tolerance))
            fail_msg("rank %d of %d, rule %d, %s: %g apart", rank, size, kind, paths[i], apart);
    }
    expect_alike(shared);
    WORKS(wb_scope_close(s));
}

TEST(training_as_one_process)
{
    if (420 % size) return;             /* the shares of a batch would differ */
    for (int kind = 0; kind < (many() ? 1 : 3); kind++) train_alike(kind, WB_DTYPE_DEFAULT, 2e-6);
    if (!many()) train_alike(1, WB_BF16, 0.02);
    train_alike(1, WB_F16, 0.02);
}

/* Any rank may be the one whose values all ranks get. */
TEST_IN_SCOPE(synchronising_with_a_root)
{
    const int root = size - 1;
    wb_tensor *x = wb_variable(wb_full(rank + 1.0, 3)), *y = wb_variable(wb_full(rank * 2.0, 2));
    WORKS(wb_distributed_synchronize(wb_tuple(x, y), .root = root));
    assert_true(wb_at(x, 2) == root + 1 && wb_at(y, 1) == 2 * root);
    assert_int_equal(wb_distributed_synchronize(x, .root = size), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "distributed_synchronize", "rank");
    assert_int_equal(wb_distributed_synchronize(wb_full(1, 2)), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "distributed_synchronize", "wb_variable");
    wb_clear_error();
}

/* Tensors of the same number and dtype, but other shapes. */
TEST_IN_SCOPE(synchronising_what_differs)
{
    if (size == 1) return;
    wb_tensor *x = wb_variable(rank ? wb_zeros(2, 3) : wb_zeros(3, 2));
    FAILS(wb_distributed_synchronize(x), WB_ERROR_SHAPE, "distributed_synchronize", "differ");
    wb_clear_error();
}

/* The loss of one rank is NaN: no rank updates its model. */
TEST_IN_SCOPE(a_loss_that_is_not_finite)
{
    wb_layer *m = model_of(3);
    WORKS(wb_distributed_synchronize(m));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Adam()), m);
    const wb_batch b = wb_batch_of(wb_full(rank == size - 1 ? NAN : 1, 4, 8), wb_zeros(4, 2));
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(mse_loss, m, b, &grads);
    wb_tensor *before = wb_mul(wb_get(m, "layers.0.weight"), wb_scalar(1));
    WORKS(wb_eval(before));
    WORKS(wb_update(s, m, grads));
    assert_int_equal(wb_eval(loss), WB_ERROR_NUMBER);
    wb_clear_error();
    assert_true(wb_item(wb_max(wb_abs(wb_sub(before, wb_get(m, "layers.0.weight"))))) == 0);
}

/* The number of graphs that ran on the double of CUDA, which that of HIP uses, and in *beside how
 * many of them ran beside an operation of NCCL; -1: the ranks compute on the CPU. */
static int64_t graphs_run(int64_t *beside)
{
#ifdef WB_TEST_NCCL
    int64_t (*calls)(const char *), (*branches)(void);
    if (!strcmp(wb_device_backend(wb_default_device()), "CPU")) return -1;
    const char *file = getenv("VGPU_LIBRARY") ? getenv("VGPU_LIBRARY")
                                               : getenv("WEBER_CUDA_LIBRARY");
    void *driver = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    void *first = driver ? dlsym(driver, "vgpu_calls") : NULL;
    void *second = driver ? dlsym(driver, "vgpu_beside") : NULL;
    assert_true(first && second);
    memcpy(&calls, &first, sizeof calls);
    memcpy(&branches, &second, sizeof branches);
    *beside = branches();
    return calls("cuGraphLaunch");
#else
    return -1;
#endif
}

/* A compiled step communicates at each replay; with NCCL graphs of the backward pass do not wait
 * for the allreduces before them. */
TEST_IN_SCOPE(a_compiled_step)
{
    trained r[2];
    for (int i = 0; i < 2; i++) {
        r[i].model = model_of(5);
        r[i].state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01), .bucket = 1000), r[i].model);
    }
    wb_compiled *c = wb_compile(train_step, &r[0]);
    int64_t before = 0, beside = 0;
    for (int i = 0; i < (many() ? 3 : 6); i++) {
        wb_seed((uint64_t)(100 * i + rank));
        wb_tensor *in[] = {wb_randn(16, 8), wb_randn(16, 2)}, *a, *b;
        WORKS(wb_eval_array(2, in));
        const int64_t graphs = graphs_run(&before);
        WORKS(wb_call_compiled(c, 2, in, 1, &a));
        WORKS(wb_eval(a));
        if (i > 1 && graphs >= 0) {
            assert_true(graphs_run(&beside) > graphs);
            assert_true(beside > before);
        }
        assert_int_equal(train_step(in, &b, &r[1]), 1);
        assert_true(wb_item(a) == wb_item(b));
    }
    wb_tensor *x = wb_get(r[0].model, "layers.0.weight");
    wb_tensor *y = wb_get(r[1].model, "layers.0.weight");
    assert_true(wb_item(wb_max(wb_abs(wb_sub(x, y)))) == 0);
    expect_alike(r[0].model);
}

/* ---- wb_train -------------------------------------------------------------------------------- */

static double seen[16];                 /* losses that .each has seen */
static int n_seen;

static int see(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    if (n_seen < 16) seen[n_seen++] = wb_item(loss);
    return 0;
}

/* .each sees the mean of the losses of all ranks. */
TEST_IN_SCOPE(losses_are_means)
{
    wb_layer *m = model_of(8);
    wb_seed(2);
    wb_dataset *d = wb_dataset_of(wb_randn(12 * size, 8), wb_randn(12 * size, 2));
    wb_loader *l = wb_dataloader(wb_distributed_dataset(d), 4);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Descent(0.1)), m);
    n_seen = 0;
    wb_loader *all = wb_dataloader(d, 4 * size);
    wb_batch b;
    assert_true(wb_loader_next(all, &b));
    const double wanted = wb_item(mse_loss(m, b, NULL));
    WORKS(wb_loader_stop(all));
    WORKS(wb_train(mse_loss, m, l, s, .each = see));
    assert_int_equal(n_seen, 3);
    assert_true(fabs(seen[0] - wanted) < 1e-6);
    for (int i = 0; i < 3; i++)
        assert_true(wb_item(wb_distributed_broadcast(wb_scalar(seen[i]), 0)) == (float)seen[i]);
}

/* Each rank drops other activations: after a training its random numbers are its own. */
TEST_IN_SCOPE(random_numbers_of_ranks)
{
    wb_seed(4);
    wb_layer *m = wb_Chain(wb_Dense(8, 2), wb_Dropout(0.5));
    wb_dataset *d = wb_dataset_of(wb_zeros(4, 8), wb_zeros(4, 2));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Descent(0.1)), m);
    WORKS(wb_train(mse_loss, m, wb_dataloader(d, 4), s));
    const float *x = wb_data(wb_distributed_allgather(wb_rand(1, 4)));
    for (int r = 1; r < size; r++) assert_true(memcmp(x, x + 4 * r, 4 * sizeof *x) != 0);
}

TEST_IN_SCOPE(loaders_of_different_lengths)
{
    if (size == 1) return;
    wb_layer *m = model_of(8);
    wb_dataset *d = wb_dataset_of(wb_zeros(4 + 4 * rank, 8), wb_zeros(4 + 4 * rank, 2));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Adam()), m);
    assert_int_equal(wb_train(mse_loss, m, wb_dataloader(d, 4), s), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "train", "batches", "wb_distributed_dataset");
    wb_clear_error();
}

/* Trains; `epochs` counts those of the checkpoint.  Returns the first weight and its average. */
static wb_tensor *train_on(const char *path, int epochs, uint64_t seed)
{
    wb_seed(seed);
    wb_layer *m = wb_Chain(wb_Dense(8, 40, wb_relu), wb_Dropout(0.3), wb_Dense(40, 2));
    wb_seed(6);
    const int n = many() ? 6 : 10;
    wb_dataset *d = wb_dataset_of(wb_randn(n * size, 8), wb_randn(n * size, 2));
    wb_loader *l = wb_dataloader(wb_distributed_dataset(d), 4, true, .seed = 3);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01)), m);
    WORKS(wb_adjust_at(s, "*.bias", .eps = rank ? 1 : 0.5));        /* rank 0 gives its own */
    wb_layer *average = wb_average_of(m);
    wb_watch stop = {.wait = 9};
    WORKS(wb_train(mse_loss, m, l, s, .epochs = epochs, .checkpoint = path, .resume = path != NULL,
                   .schedule = wb_ScheduleExp(0.01, 0.9), .average = average, .stop = &stop));
    expect_alike(m);
    expect_alike(average);
    return wb_concat(0, wb_get(m, "layers.0.weight"), wb_get(average, "layers.0.weight"));
}

/* Only rank 0 has files: it loads the checkpoint for all. */
TEST_IN_SCOPE(a_training_that_goes_on)
{
    const char *path = test_file("ranks");
    wb_seed(1);
    const int epochs = many() ? 2 : 4;
    wb_tensor *x = train_on(NULL, epochs, 7);
    wb_seed(1);
    train_on(path, epochs / 2, 7);
    wb_tensor *y = train_on(path, epochs, 99);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(x, y)))) == 0);
    assert_int_equal(access(path, F_OK), rank ? -1 : 0);
    unlink(path);
}

int main(int argc, char **argv)
{
    if (!ranks_begin(connect_ranks(60))) return 1;
#ifdef WB_TEST_NCCL                     /* on the device of this rank, or `ranks cpu` */
    if (argc < 2 && !use_own_gpu()) return 1;
#endif
    return run_all_cases();
}
