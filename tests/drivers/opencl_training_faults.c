/* Training on OpenCL while calls of the driver fail: see training_faults.h.
 *
 *   opencl_training_faults [--count N]   about N failing calls of each kind, evenly spread */

#include "test.h"

#include "tests/doubles/opencl_double.h"

#define BACKEND "OpenCL"
#define TAG "opencl"

#include "tests/gpu/training_faults.h"

static void test_calls_of_the_driver_fail(void **state)
{
    calls_fail(120 / fewer());
}

/* Transfers pass through pinned memory, as on a device with its own memory. */
static void test_calls_fail_where_transfers_are_staged(void **state)
{
    setenv("WEBER_OPENCL_STAGING", "1", 1);
    calls_fail(60 / fewer());
    unsetenv("WEBER_OPENCL_STAGING");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    open_double();
    setenv("POCL_DEVICES", "pthread", 1);
    setenv("WEBER_OPENCL_BINARIES", "1", 1);
    most_allocations = 100 / fewer();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_the_driver_fail),
        cmocka_unit_test(test_calls_fail_where_transfers_are_staged),
        cmocka_unit_test(test_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
