/* Training on Metal while calls of the framework fail, on its double, which must report no leak
 * after each attempt: see training_faults.h.
 *
 *   metal_training_faults [--count N]   about N failing calls of each kind, evenly spread */
#include "test.h"

#include "tests/doubles/metal_double.h"

#define BACKEND "Metal"
#define TAG "metal"
/* If the library has no memory when a plan is built, the plan uses other kernels. */
#define TOLERANCE 1e-5
#define LEAST_CALLS 100                 /* encoding a command cannot fail */

#include "tests/gpu/training_faults.h"

static void test_calls_of_the_framework_fail(void **state)
{
    calls_fail(40);
}

/* Memory is private to the GPU, and transfers are staged. */
static void test_calls_fail_where_transfers_are_staged(void **state)
{
    setenv("WEBER_METAL_STAGING", "1", 1);
    calls_fail(40);
    unsetenv("WEBER_METAL_STAGING");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    open_double();
    most_allocations = 60;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_the_framework_fail),
        cmocka_unit_test(test_calls_fail_where_transfers_are_staged),
        cmocka_unit_test(test_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
