/* Every call of Metal that can fail fails once: see faults_by_call.h. */
#include "tests/runtime/faults_by_call.h"

#include "tests/doubles/metal_double.h"

static int64_t failed(char text[200]) { return calls_failed(text); }

static const calls_that_fail calls = {&wb__mtl_backend, FAIL, failed, nothing_left};

static void with_staging(const char *staging, bool all, bool fresh)
{
    setenv("WEBER_METAL_STAGING", staging, 1);
    fail_each(&calls, all, fresh, 25);
}

TEST(once_from_text) { with_staging("0", false, true); }

TEST(once_from_archives) { with_staging("0", false, false); }

TEST(once_staged) { with_staging("1", false, false); }

TEST(from_there_on)
{
    with_staging("0", true, false);
    with_staging("1", true, false);
    test_disk_empty();
    assert_int_equal(tell_left(), 0);
}

int main(void)
{
    open_double();
    return run_all_cases();
}
