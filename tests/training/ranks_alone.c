/* Functions of ranks in a program that has not connected any: results are the operands, and wrong
 * arguments are errors all the same. */
#include "test.h"

#include <weber.h>

TEST_IN_SCOPE(results_are_the_operands)
{
    wb_tensor *x = wb_full(3, 4, 2);
    assert_false(wb_distributed_initialized());
    assert_int_equal(wb_distributed_size(), 1);
    assert_int_equal(wb_distributed_rank(), 0);
    assert_int_equal(wb_distributed_local_rank(), 0);
    for (int how = WB_RANKS_SUM; how <= WB_RANKS_MAX; how++) {
        assert_ptr_equal(wb_distributed_allreduce(x, how), x);
        assert_ptr_equal(wb_distributed_reduce(x, how, 0), x);
        assert_ptr_equal(wb_distributed_reduce_scatter(x, how), x);
    }
    assert_ptr_equal(wb_distributed_broadcast(x, 0), x);
    assert_ptr_equal(wb_distributed_allgather(x), x);
    WORKS(wb_distributed_barrier());
    WORKS(wb_distributed_finalize());
}

TEST_IN_SCOPE(tensors_that_cannot_be_reduced)
{
    wb_tensor *bools = wb_gt(wb_ones(2), wb_scalar(0)), *ints = wb_astype(wb_ones(2), WB_I32);
    REFUSED(wb_distributed_allreduce(bools, WB_RANKS_MAX), WB_ERROR_DTYPE, "distributed_allreduce",
            "bool");
    REFUSED(wb_distributed_reduce(bools, WB_RANKS_SUM, 0), WB_ERROR_DTYPE, "distributed_reduce",
            "bool");
    REFUSED(wb_distributed_reduce_scatter(bools, WB_RANKS_MIN), WB_ERROR_DTYPE,
            "distributed_reduce_scatter", "bool");
    REFUSED(wb_distributed_allreduce(ints, WB_RANKS_MEAN), WB_ERROR_DTYPE, "distributed_allreduce",
            "mean");
    REFUSED(wb_distributed_reduce(ints, WB_RANKS_MEAN, 0), WB_ERROR_DTYPE, "distributed_reduce",
            "mean");
    REFUSED(wb_distributed_reduce_scatter(ints, WB_RANKS_MEAN), WB_ERROR_DTYPE,
            "distributed_reduce_scatter", "mean");
    REFUSED(wb_distributed_reduce_scatter(wb_scalar(1), WB_RANKS_SUM), WB_ERROR_SHAPE,
            "distributed_reduce_scatter", "axis");
    REFUSED(wb_distributed_allgather(wb_scalar(1)), WB_ERROR_SHAPE, "distributed_allgather",
            "axis");
}

TEST_IN_SCOPE(wrong_arguments_of_reductions)
{
    wb_tensor *x = wb_ones(2);
    REFUSED(wb_distributed_allreduce(x, 9), WB_ERROR_ARGUMENT, "distributed_allreduce", "9");
    REFUSED(wb_distributed_reduce(x, 0, 0), WB_ERROR_ARGUMENT, "distributed_reduce", "0");
    REFUSED(wb_distributed_reduce_scatter(x, 5), WB_ERROR_ARGUMENT, "distributed_reduce_scatter",
            "5");
    REFUSED(wb_distributed_reduce(x, WB_RANKS_SUM, 1), WB_ERROR_ARGUMENT, "distributed_reduce",
            "rank", "1");
    REFUSED(wb_distributed_reduce(x, WB_RANKS_SUM, -1), WB_ERROR_ARGUMENT, "distributed_reduce",
            "-1");
    REFUSED(wb_distributed_broadcast(x, 1), WB_ERROR_ARGUMENT, "distributed_broadcast", "rank",
            "1");
}

TEST_IN_SCOPE(null)
{
    REFUSED(wb_distributed_allreduce(NULL, WB_RANKS_SUM), WB_ERROR_ARGUMENT,
            "distributed_allreduce");
    REFUSED(wb_distributed_reduce(NULL, WB_RANKS_SUM, 0), WB_ERROR_ARGUMENT, "distributed_reduce");
    REFUSED(wb_distributed_reduce_scatter(NULL, WB_RANKS_SUM), WB_ERROR_ARGUMENT,
            "distributed_reduce_scatter");
    REFUSED(wb_distributed_broadcast(NULL, 0), WB_ERROR_ARGUMENT, "distributed_broadcast");
    REFUSED(wb_distributed_allgather(NULL), WB_ERROR_ARGUMENT, "distributed_allgather");
    REFUSED(wb_distributed_dataset(NULL), WB_ERROR_ARGUMENT, "distributed_dataset");
    FAILS(wb_distributed_synchronize(NULL), WB_ERROR_ARGUMENT, "distributed_synchronize");
    FAILS(wb_distributed_initialize(NULL), WB_ERROR_ARGUMENT, "distributed_initialize");
    REFUSED(wb_DistributedOptimizer(NULL), WB_ERROR_ARGUMENT, "DistributedOptimizer");
}

TEST(options_of_connecting)
{
    static const double wrong[] = {0, -1, NAN, INFINITY};
    static const char *const shown[] = {"0", "-1", "nan", "inf"};
    for (int i = 0; i < 4; i++)
        FAILS(wb_distributed_initialize(WB_NCCL, .timeout = wrong[i]), WB_ERROR_ARGUMENT,
              "distributed_initialize", ".timeout", shown[i]);
    FAILS(wb_distributed_initialize(WB_NCCL, .through = WB_NCCL, .devices = 1), WB_ERROR_ARGUMENT,
          "distributed_initialize", ".devices and .through", "leave one out");
    FAILS(wb_distributed_initialize(WB_NCCL, .through = WB_NCCL), WB_ERROR_ARGUMENT,
          "distributed_initialize", "NCCL cannot", "leave out .through");
    assert_false(wb_distributed_initialized());
    wb_clear_error();
}

TEST_IN_SCOPE(options_of_the_rule)
{
    static const int64_t wrong[] = {0, -1};
    static const char *const shown[] = {"0", "-1"};
    for (int i = 0; i < 2; i++) {
        REFUSED(wb_DistributedOptimizer(wb_Adam(), .bucket = wrong[i]), WB_ERROR_ARGUMENT,
                "DistributedOptimizer", ".bucket", shown[i]);
        REFUSED(wb_DistributedOptimizer(wb_Adam(), .accumulate = wrong[i]), WB_ERROR_ARGUMENT,
                "DistributedOptimizer", ".accumulate", shown[i]);
    }
    MADE(wb_DistributedOptimizer(wb_Adam(), .bucket = 1, .accumulate = 1));
}
