/* Every call of OpenCL's driver fails once, from listing the devices to giving all back: there is
 * an error or the right result, never a crash; nothing is left behind; and the next try works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_OPENCL
#include "opencl_double.h"
#include "text_faults.h"

static void run(bool all, bool fresh, const char *staging, int least)
{
    setenv("WEBER_OPENCL_STAGING", staging, 1);
    fail_each(all, fresh, least);
}

static void test_once_from_text(void **state)
{
    (void)state;
    run(false, true, "0", 100);
}

static void test_once_from_binaries(void **state)
{
    (void)state;
    run(false, false, "0", 100);
}

static void test_once_staged(void **state)
{
    (void)state;
    run(false, false, "1", 100);
}

static void test_from_there_on(void **state)
{
    (void)state;
    run(true, false, "0", 100);
    run(true, false, "1", 100);
}

static int begin(void **state)
{
    (void)state;
    setenv("POCL_DEVICES", "pthread pthread", 1);
    setenv("WEBER_OPENCL_BINARIES", "1", 1);
    wb_set_log(listen, NULL);
    b = &TEST_BACKEND;
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_disk_empty();
    return 0;
}

int main(void)
{
    open_double();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_from_text),
        cmocka_unit_test(test_once_from_binaries),
        cmocka_unit_test(test_once_staged),
        cmocka_unit_test(test_from_there_on),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
