/* Every call of a driver in host memory fails once: see faults_by_call.h and test_gpu.h. */
#include "faults_by_call.h"
#include "test_gpu.h"

static bool nothing_left(void) { return !gpu_left(); }

static const calls_that_fail calls = {&test_gpu, "TEST_GPU_FAIL", gpu_failed, nothing_left};

/* With addresses and graphs, with objects, and with objects whose transfers are not staged. */
static void each_kind(bool all, bool fresh)
{
    for (int i = 0; i < 3; i++) {
        setenv("TEST_GPU_OBJECTS", i ? "1" : "0", 1);
        setenv("TEST_GPU_STAGED", i < 2 ? "1" : "0", 1);
        fail_each(&calls, all, fresh, 60);
    }
}

TEST(once_from_text) { each_kind(false, true); }

TEST(once_from_disk)
{
    without_graph = 0;
    each_kind(false, false);
    assert_true(without_graph > 4);     /* plans whose kernels were launched one by one */
}

TEST(from_there_on)
{
    each_kind(true, false);
    test_disk_empty();
}
