/* The OpenCL backend by itself: what it says where there is no driver, which devices there are,
 * their memory, and copies. */
#include "test.h"

#define TEST_OPENCL
#include "text_memory.h"

/* ---- where there is no driver ---------------------------------------------------------------- */

/* Runs before any driver is opened, since a loader of drivers looks around once. */
static void test_nothing_there(void **state)
{
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "/none/libOpenCL.so", "was not found"), 0);
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "/none/libOpenCL.so", "pocl-opencl-icd"), 0);
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "libm.so.6", "has no clGetPlatformIDs"), 0);
    assert_int_equal(child("OCL_ICD_VENDORS", "/none", "no platform"), 0);
    assert_int_equal(child("POCL_DEVICES", "", "no device"), 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_devices(void **state)
{
    assert_string_equal(b->name, "OpenCL");
    assert_string_equal(b->tag, "opencl");
    assert_true(b->is_gpu && !b->host_visible);
    assert_int_equal(b->start(), 0);            /* once more: nothing */
    assert_int_equal(b->count(), 2);
    assert_null(b->device(2));
    assert_null(b->device(-1));
    for (int i = 0; i < 2; i++) {
        const char *name = dev[i]->name;
        assert_ptr_equal(dev[i]->backend, b);
        assert_int_equal(dev[i]->ordinal, i);
        assert_true(*name && *name != ' ' && name[strlen(name) - 1] != ' ');
        for (int t = 0; t < WB_DTYPE_COUNT; t++) assert_true(b->has_dtype(dev[i], (wb_dtype)t));
        assert_int_equal(b->wait(dev[i]), 0);   /* though nothing was asked of it yet */
    }
    assert_int_equal(b->part("no such part"), -1);
}

static void test_choice_of_devices(void **state)
{
    static const char variable[] = "WEBER_OPENCL_DEVICES";
    assert_int_equal(restart(variable, "1"), 0);
    assert_int_equal(b->count(), 1);
    assert_int_equal(dev[0]->ordinal, 0);
    b->release(dev[0], take(dev[0], 100), 100);
    assert_int_equal(restart(variable, "1,0,1"), 0);
    assert_int_equal(b->count(), 2);
    assert_int_equal(restart(variable, "CPU, 0"), 0);
    assert_int_equal(b->count(), 2);
    expect_error(restart(variable, "gpu"), WB_ERROR_DEVICE, "leaves no device of 2");
    expect_error(restart(variable, ""), WB_ERROR_DEVICE, "leaves no device of 2");
    expect_error(restart(variable, "0,2"), WB_ERROR_ARGUMENT, "device 2; there are 2");
    expect_error(restart(variable, "0,fpga"), WB_ERROR_ARGUMENT, "\"fpga\"");
    assert_int_equal(b->count(), 0);
    check(restart(variable, NULL));
    assert_int_equal(b->count(), 2);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_cache(void **state)
{
    check(restart("WEBER_MEMORY_LIMIT", NULL));
    const wb_device *d = dev[0];
    assert_int_equal(memory_of(d).used, 0);
    void *one = take(d, 1000), *two = take(d, 1000);
    assert_ptr_not_equal(one, two);
    const wb_device_memory m = memory_of(d);
    assert_true(m.used >= 2000 && m.used <= 2250 && m.peak == m.used && m.cached == 0);
    assert_true(m.total > 0 && m.free == m.total - m.used);
    assert_int_equal(memory_of(dev[1]).used, 0);
    b->release(d, one, 1000);
    b->release(d, two, 1000);
    assert_int_equal(memory_of(d).used, 0);
    assert_int_equal(memory_of(d).cached, m.used);
    assert_int_equal(memory_of(d).peak, m.peak);
    assert_ptr_equal(take(d, 1001), one);       /* of the same class; the first released */
    void *third = take(d, 100000);
    assert_ptr_not_equal(third, two);
    assert_ptr_equal(take(d, 999), two);
    assert_int_equal(memory_of(d).cached, 0);
    b->release(d, one, 1001);
    b->release(d, two, 999);
    b->release(d, third, 100000);
    b->release(d, NULL, 5);
    b->trim(d);
    assert_int_equal(memory_of(d).cached, 0);
    assert_int_equal(memory_of(d).used, 0);
    assert_true(memory_of(d).peak >= 100000);
}

static void test_more_than_there_is(void **state)
{
    const int64_t total = memory_of(dev[0]).total;
    expect_none(b->allocate(dev[0], (size_t)total + 1), "opencl:0: out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX / 2), "out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX), "out of memory");
    expect_none(b->allocate(dev[0], (size_t)total), "in one piece");
    b->release(dev[0], take(dev[0], 1000), 1000);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* Once more through pinned memory, as on a device with memory of its own. */
static void test_staged_transfers(void **state)
{
    check(restart("WEBER_OPENCL_STAGING", "1"));
    transfers();
    check(restart("WEBER_OPENCL_STAGING", NULL));
}

int main(void)
{
    setenv("POCL_DEVICES", "pthread pthread", 1);
    const struct CMUnitTest without[] = {
        cmocka_unit_test(test_nothing_there),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_choice_of_devices),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_more_than_there_is),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_staged_transfers),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_nothing_left),
    };
    const int failed = cmocka_run_group_tests_name("without a driver", without, NULL, NULL);
    return failed + cmocka_run_group_tests_name("on two devices", tests, begin, NULL);
}
