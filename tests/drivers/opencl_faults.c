/* Every call of OpenCL's driver fails once: see faults_by_call.h. */
#include "tests/runtime/faults_by_call.h"

#include "tests/doubles/opencl_double.h"

static int64_t failed(char text[200]) { return calls_failed(text); }

static const calls_that_fail calls = {&wb__cl_backend, FAIL, failed, nothing_left};

static void with_staging(const char *staging, bool all, bool fresh)
{
    setenv("WEBER_OPENCL_STAGING", staging, 1);
    fail_each(&calls, all, fresh, 100);
}

TEST(once_from_text) { with_staging("0", false, true); }

TEST(once_from_binaries) { with_staging("0", false, false); }

TEST(once_staged) { with_staging("1", false, false); }

TEST(from_there_on)
{
    with_staging("0", true, false);
    with_staging("1", true, false);
    test_disk_empty();
}

int main(void)
{
    open_double();
    setenv("POCL_DEVICES", "pthread pthread", 1);
    setenv("WEBER_OPENCL_BINARIES", "1", 1);
    return run_all_cases();
}
