/* A backend that is linked in (WEBER_STATIC_BACKENDS): this program has a registry of its own, built
 * so, and a test backend in the place of OpenCL's. */
#include "process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static process p;

static void printed(const char *out, const char *err)
{
    assert_string_equal(p.err, err);
    assert_string_equal(p.out, out);
    assert_int_equal(p.status, 0);
}

/* It is there, and still not used before it is asked for; no file is looked for. */
static void test_linked(void **state)
{
    (void)state;
    SCRIPT(&p, "/", ENVIRONMENT("WEBER_DEBUG=load"), "loaded:OpenCL", "get", "using:OpenCL",
           "loaded:OpenCL", "show:OpenCL", "get", "functional:OpenCL:cuDNN", "shutdown", "count:OpenCL");
    printed("no\nCPUDevice()\nok\nyes\nOpenCL: 2 devices:\n0. Test GPU 0\n1. Test GPU 1\n"
            "OpenCLDevice(0): Test GPU 0\nyes\n2\n",
            "[ Debug: load: CPU: 1 device\n[ Debug: load: OpenCL: linked in\n"
            "[ Debug: load: OpenCL: 2 devices\n[ Debug: load: OpenCL: 2 devices\n");
}

static void test_from_environment(void **state)
{
    (void)state;
    SCRIPT(&p, "/", ENVIRONMENT("WEBER_BACKENDS=OpenCL", "WEBER_BACKEND_PATH=/nowhere"), "get");
    printed("OpenCLDevice(0): Test GPU 0\n", "");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "script")) return device_script(argc - 2, argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linked),
        cmocka_unit_test(test_from_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
