/* Training on AMDGPU while calls of the driver fail, on the driver's double, which must report no
 * leak after each attempt: see training_faults.h.
 *
 *   amdgpu_training_faults [--count N]   about N failing calls of each kind, evenly spread */
#include "test.h"

#include "tests/doubles/cuda_double.h"

#define BACKEND "AMDGPU"
#define TAG "amdgpu"
/* If the library has no memory when a plan is built, the plan uses other kernels. */
#define TOLERANCE 1e-5

#include "tests/gpu/training_faults.h"

static void test_calls_of_the_driver_fail(void **state)
{
    calls_fail(40);
}

/* Without graphs the kernels of every step are launched one by one. */
static void test_calls_fail_without_graphs(void **state)
{
    setenv("WEBER_AMDGPU_GRAPHS", "0", 1);
    calls_fail(40);
    unsetenv("WEBER_AMDGPU_GRAPHS");
}

int main(int argc, char **argv)
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
