/* Graphs of the CUDA backend, on the test double: the calls of the driver. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"
#include "tests/doubles/cuda_double.h"

TEST(calls_of_a_step)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    run_right(&m, buffers, 1, 2);
    assert_int_equal(books().execs, 1);
    assert_int_equal(books().graphs, 0);
    forget_calls();
    enum { STEPS = 20 };
    for (int i = 0; i < STEPS; i++) run(&m, buffers, i);
    assert_int_equal(count_calls("cuGraphLaunch"), STEPS);
    assert_int_equal(count_calls("cuLaunchKernel"), STEPS);     /* writes the run-time numbers */
    assert_int_equal(count_calls("cuEventRecord"), STEPS);
    assert_int_equal(count_calls("cuStreamBeginCapture_v2"), 0);
    assert_int_equal(count_calls("cuMemAllocFromPoolAsync"), 0);
    assert_int_equal(count_calls(NULL), 5 * STEPS);             /* the context is set twice */
    run_right(&m, buffers, 5, 3);
    unmake(&m);
    release_all(dev[0], buffers);
    assert_int_equal(books().execs, 0);
}

/* The parts of a step are one launch, so a run launches the kernel that writes the numbers, this
 * one, and the two kernels of the other step. */
TEST(pieces_are_one_kernel)
{
    void *buffers[BUFFERS];
    model m;
    make(&m, dev[0]);
    take_all(m.d, buffers);
    forget_calls();
    run(&m, buffers, 1);
    assert_int_equal(count_calls("cuLaunchKernel"), 1 + 1 + 2);
    unmake(&m);
    release_all(dev[0], buffers);
}

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return test_begin(&wb__cu_backend);
}

int main(void) { return run_cases(begin, NULL); }
