/* Every call of a driver with streams (gpu/runtime/stream_api.h) fails once: see faults_by_call.h.
 * Included by a program of each such backend, which defines DRIVER, the backend's table. */
#include "tests/runtime/faults_by_call.h"

#include "tests/doubles/cuda_double.h"

static int64_t failed(char text[200]) { return calls_failed(text); }

static const calls_that_fail calls = {&DRIVER, FAIL, failed, nothing_left};

TEST(once_from_text) { fail_each(&calls, false, true, 100); }

TEST(once_from_disk)
{
    without_graph = 0;
    fail_each(&calls, false, false, 100);
    assert_true(without_graph > 4);     /* plans whose kernels were launched one by one */
}

TEST(from_there_on)
{
    fail_each(&calls, true, false, 100);
    test_disk_empty();
    assert_int_equal(tell_left(), 0);
}

static int run_faults(void)
{
    open_double();
    return run_all_cases();
}
