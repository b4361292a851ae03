/* Every call of OpenCL's driver fails once, from listing the devices to giving all back: there is
 * an error or the right result, never a crash; nothing is left behind; and the next try works. */
#include "test.h"

#define TEST_OPENCL
#include "opencl_double.h"
#include "text_faults.h"

static void run(bool all, bool fresh, const char *staging, int least)
{
    setenv("WEBER_OPENCL_STAGING", staging, 1);
    fail_each(all, fresh, least);
}

TEST(test_once_from_text)
{
    run(false, true, "0", 100);
}

TEST(test_once_from_binaries)
{
    run(false, false, "0", 100);
}

TEST(test_once_staged)
{
    run(false, false, "1", 100);
}

TEST(test_from_there_on)
{
    run(true, false, "0", 100);
    run(true, false, "1", 100);
}

static int begin(void **state)
{
    setenv("POCL_DEVICES", "pthread pthread", 1);
    setenv("WEBER_OPENCL_BINARIES", "1", 1);
    wb_set_log(listen, NULL);
    b = &TEST_BACKEND;
    return 0;
}

static int end(void **state)
{
    test_disk_empty();
    return 0;
}

int main(void)
{
    open_double();
    return run_cases(begin, end);
}
