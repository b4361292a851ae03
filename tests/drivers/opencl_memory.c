/* The OpenCL backend by itself: its errors where there is no driver, its devices, their memory,
 * and copies. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include <dlfcn.h>

/* ---- where there is no driver ---------------------------------------------------------------- */

/* Runs before any driver is opened, since the loader of drivers lists them once per process. */
TEST(nothing_there)
{
    assert_int_equal(CHILD(&wb__cl_backend, "WEBER_OPENCL_LIBRARY", WB_TEST_NOWHERE "/libOpenCL.so",
                           WB_TEST_NOWHERE "/libOpenCL.so"), 0);
    assert_int_equal(CHILD(&wb__cl_backend, "WEBER_OPENCL_LIBRARY", WB_TEST_NOWHERE "/libOpenCL.so",
                           "pocl-opencl-icd"), 0);
    assert_int_equal(CHILD(&wb__cl_backend, "WEBER_OPENCL_LIBRARY", "libm.so.6", "libm.so.6",
                           "clGetPlatformIDs"), 0);
    assert_int_equal(CHILD(&wb__cl_backend, "OCL_ICD_VENDORS", WB_TEST_NOWHERE, "platform"), 0);
    assert_int_equal(CHILD(&wb__cl_backend, "POCL_DEVICES", "", "device"), 0);
}

/* Starts the backend with the double in place of the loader, whose functions the process has too.
 * Returns 0 if the double's own calls do not reach the loader. */
static int start_in_place_of_loader(void)
{
    if (!dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL)) return 1;
    setenv("WEBER_OPENCL_LIBRARY", WB_TEST_OPENCL, 1);
    const int status = wb__cl_backend.start();
    void *double_ = dlopen(WB_TEST_OPENCL, RTLD_NOW | RTLD_NOLOAD), *(*finish)(void) = NULL;
    if (status || !double_) return 2;
    *(void **)&finish = dlsym(double_, "opencl_finish");
    return !finish ? 3 : finish() != dlsym(double_, "clFinish") ? 4 : 0;
}

TEST(library_in_place_of_loader)
{
    if (dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path")) {
        print_message("SKIP: sanitizers refuse RTLD_DEEPBIND\n");
        skip();
    }
    assert_int_equal(in_child(start_in_place_of_loader), 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

TEST(begins) { assert_int_equal(test_begin(&wb__cl_backend), 0); }

TEST(devices)
{
    two_devices("OpenCL", "opencl");
    assert_int_equal(b->part("no such part"), -1);
}

TEST(choice_of_devices)
{
    static const char variable[] = "WEBER_OPENCL_DEVICES";
    assert_int_equal(restart(variable, "CPU, 0"), 0);
    assert_int_equal(b->count(), 2);
    EXPECT_ERROR(restart(variable, "gpu"), WB_ERROR_DEVICE, "2");
    WORKS(restart(variable, NULL));
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(more_than_there_is)
{
    const int64_t total = memory_of(dev[0]).total;
    EXPECT_NONE(b->allocate(dev[0], (size_t)total + 1), "opencl:0");
    EXPECT_NONE(b->allocate(dev[0], (size_t)total), "opencl:0");
    b->release(dev[0], take(dev[0], 1000), 1000);
    const wb_device_memory m = memory_of(dev[0]);
    assert_true(m.used == 0 && m.total > 0 && m.free == m.total - m.cached);
    b->trim(dev[0]);
}

TEST(copies_of_the_host) { transfers(); }

/* The same with transfers through pinned memory, as on a device with its own memory. */
TEST(staged_transfers)
{
    WORKS(restart("WEBER_OPENCL_STAGING", "1"));
    transfers();
    WORKS(restart("WEBER_OPENCL_STAGING", NULL));
}

TEST(copies_between_devices) { copies(); }

TEST(nothing_is_left) { test_end(); }

int main(void)
{
    setenv("POCL_DEVICES", "pthread pthread", 1);
    return run_all_cases();
}
