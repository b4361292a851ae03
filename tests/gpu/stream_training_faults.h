/* Training while calls of a driver with streams (gpu/runtime/stream_api.h) fail, on the driver's
 * double, which must report no leak after each attempt: see training_faults.h.
 *
 *   PROGRAM [--count N]   about N failing calls of each kind, evenly spread
 *
 * Included by a program of each such backend, which defines BACKEND and TAG (training_faults.h);
 * GRAPHS, the variable that disables graphs; and COUNT, how many calls fail without --count. */
#include "test.h"

#include "tests/doubles/cuda_double.h"

/* If the library has no memory when a plan is built, the plan uses other kernels. */
#define TOLERANCE 1e-5

#include "tests/gpu/training_faults.h"

static void test_calls_of_the_driver_fail(void **state)
{
    calls_fail(COUNT);
}

/* Without graphs the kernels of every step are launched one by one. */
static void test_calls_fail_without_graphs(void **state)
{
    setenv(GRAPHS, "0", 1);
    calls_fail(40);
    unsetenv(GRAPHS);
}

static int run_training(int argc, char **argv)
{
    read_options(argc, argv);
    open_double();
    most_allocations = 60;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_the_driver_fail),
        cmocka_unit_test(test_calls_fail_without_graphs),
        cmocka_unit_test(test_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
