/* The OpenCL backend by itself: what it says where there is no driver, which devices there are,
 * their memory, and copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opencl_program.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- where there is no driver ---------------------------------------------------------------- */

/* In a process of its own, with this variable set: starting fails and says so; the status is 0. */
static int child(const char *name, const char *value, const char *part)
{
    const pid_t process = fork();
    if (!process) {
        setenv(name, value, 1);
        b = test_open_backend();
        const int status = b ? b->start() : 0;
        const bool right = status && strstr(wb_error(), part) && b->count() == 0;
        if (!right) fprintf(stderr, "%s=%s: %d, %s\n", name, value, status, wb_error());
        if (status) b->stop();                  /* harmless */
        _exit(right ? 0 : 1);
    }
    int status = -1;
    waitpid(process, &status, 0);
    return status;
}

/* Runs before any driver is opened, since a loader of drivers looks around once. */
static void test_nothing_there(void **state)
{
    (void)state;
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "/none/libOpenCL.so", "was not found"), 0);
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "/none/libOpenCL.so", "pocl-opencl-icd"), 0);
    assert_int_equal(child("WEBER_OPENCL_LIBRARY", "libm.so.6", "has no clGetPlatformIDs"), 0);
    assert_int_equal(child("OCL_ICD_VENDORS", "/none", "no platform"), 0);
    assert_int_equal(child("POCL_DEVICES", "", "no device"), 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_devices(void **state)
{
    (void)state;
    assert_string_equal(b->name, "OpenCL");
    assert_string_equal(b->tag, "opencl");
    assert_false(b->addressable);
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
    (void)state;
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
    (void)state;
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

static void test_no_bytes(void **state)
{
    (void)state;
    void *none = take(dev[0], 0);
    check(b->upload(dev[0], none, 0, NULL, 0));
    check(b->download(dev[0], NULL, none, 0, 0));
    check(b->copy(dev[0], none, 0, dev[0], none, 0, 0));
    b->release(dev[0], none, 0);
}

/* Every size around the borders of classes can be written from end to end. */
static void test_sizes(void **state)
{
    (void)state;
    unsigned char *x = malloc(80000), *y = malloc(80000);
    for (size_t i = 0; i < 80000; i++) x[i] = (unsigned char)(i * 31 >> 3);
    for (size_t power = 1; power <= 65536; power *= 2) {
        for (size_t part = 0; part < 3; part++) {
            const size_t size = power + part - 1 + (part == 2 ? power / 8 : 0);
            void *memory = take(dev[0], size);
            check(b->upload(dev[0], memory, 0, x, size));
            memset(y, 0, size);
            check(b->download(dev[0], y, memory, 0, size));
            assert_memory_equal(x, y, size);
            b->release(dev[0], memory, size);
        }
    }
    free(x);
    free(y);
}

static void test_limit(void **state)
{
    (void)state;
    void *held[32];
    int n = 0;
    check(restart("WEBER_MEMORY_LIMIT", "1M"));
    while (n < 32 && (held[n] = b->allocate(dev[0], 100000))) {
        n++;
        assert_true(memory_of(dev[0]).used + memory_of(dev[0]).cached <= 1 << 20);
    }
    assert_true(n == 9 || n == 10);             /* sizes are rounded up by an eighth at most */
    expect_error(wb_error_code(), WB_ERROR_MEMORY, "opencl:0: out of memory: 97.7 KiB wanted; "
                 "1.0 MiB allowed by WEBER_MEMORY_LIMIT, ");
    void *other = take(dev[1], 1000000);        /* the limit is each device's */
    b->release(dev[1], other, 1000000);
    b->release(dev[0], held[--n], 100000);      /* and the program goes on */
    assert_non_null(held[n] = b->allocate(dev[0], 100000));
    n++;
    while (n) b->release(dev[0], held[--n], 100000);
    assert_true(memory_of(dev[0]).cached >= 900000);
    void *large = take(dev[0], 1000000);        /* in other sizes: it is given back */
    assert_int_equal(memory_of(dev[0]).cached, 0);
    assert_true(memory_of(dev[0]).used <= 1 << 20);
    b->release(dev[0], large, 1000000);
    large = take(dev[0], 1 << 20);              /* all there is */
    expect_none(b->allocate(dev[0], 1), "1 bytes wanted");
    b->release(dev[0], large, 1 << 20);
    expect_none(b->allocate(dev[0], (1 << 20) + 1), "out of memory");
    check(restart("WEBER_MEMORY_LIMIT", "1.5KiB"));
    b->release(dev[0], take(dev[0], 1536), 1536);
    expect_none(b->allocate(dev[0], 1537), "1.5 KiB allowed");
    check(restart("WEBER_MEMORY_LIMIT", "2000"));
    expect_none(b->allocate(dev[0], 2001), "2.0 KiB allowed");
    check(restart("WEBER_MEMORY_LIMIT", "50%"));
    const wb_device_memory m = memory_of(dev[0]);
    assert_true(m.free == m.total / 2);
    check(restart("WEBER_MEMORY_LIMIT", "2GB"));
    assert_true(memory_of(dev[0]).free == 2000000000);
    static const char *const wrong[] = {"much", "-1", "5X", "1.5 GiB", "50%%", "M", "3Mb/s"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++)
        expect_error(restart("WEBER_MEMORY_LIMIT", wrong[i]), WB_ERROR_ARGUMENT, wrong[i]);
    check(restart("WEBER_MEMORY_LIMIT", NULL));
}

static void test_more_than_there_is(void **state)
{
    (void)state;
    const int64_t total = memory_of(dev[0]).total;
    expect_none(b->allocate(dev[0], (size_t)total + 1), "opencl:0: out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX / 2), "out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX), "out of memory");
    expect_none(b->allocate(dev[0], (size_t)total), "in one piece");
    b->release(dev[0], take(dev[0], 1000), 1000);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void transfers(void)
{
    enum { SIZE = 9 << 20 };                    /* three pieces of staging */
    unsigned char *x = malloc(SIZE), *y = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) x[i] = (unsigned char)(i * 2654435761u >> 13);
    void *memory = take(dev[0], SIZE);
    check(b->upload(dev[0], memory, 0, x, SIZE));
    check(b->download(dev[0], y, memory, 0, SIZE));
    assert_memory_equal(x, y, SIZE);
    static const struct { size_t at, n; } parts[] = {
        {0, 1}, {1, 1}, {3, 1000}, {SIZE - 1, 1}, {4093, 5000000}, {SIZE / 2, SIZE / 2}};
    for (size_t i = 0; i < WB__COUNT(parts); i++) {
        memset(y, 0xaa, SIZE);
        check(b->download(dev[0], y, memory, parts[i].at, parts[i].n));
        assert_memory_equal(x + parts[i].at, y, parts[i].n);
        assert_true(parts[i].n == SIZE || y[parts[i].n] == 0xaa);
        memset(y, (int)i, parts[i].n);
        memcpy(x + parts[i].at, y, parts[i].n);
        check(b->upload(dev[0], memory, parts[i].at, y, parts[i].n));
        check(b->download(dev[0], y, memory, 0, SIZE));
        assert_memory_equal(x, y, SIZE);
    }
    b->release(dev[0], memory, SIZE);
    memory = take(dev[0], 100);
    expect_error(b->upload(dev[0], memory, 5000, x, 1), WB_ERROR_INTERNAL, "1 bytes at 5000 of");
    expect_error(b->download(dev[0], y, memory, 0, 999), WB_ERROR_INTERNAL, "999 bytes at 0 of");
    b->release(dev[0], memory, 100);
    free(x);
    free(y);
}

static void test_transfers(void **state)
{
    (void)state;
    transfers();
}

static void test_copies(void **state)
{
    (void)state;
    float x[N], y[N];
    fill(x, N, 1);
    for (int source = 0; source < 2; source++) {
        for (int target = 0; target < 2; target++) {
            const wb_device *from_device = dev[source], *to_device = dev[target];
            void *from = take(from_device, BYTES), *to = take(to_device, BYTES);
            wb__kernel *k = prepared(from_device, STEP_SCALE, N);
            check(b->upload(from_device, from, 0, x, BYTES));
            launch(from_device, k, from, from, NULL, 0, 3);     /* the copy waits for it */
            memset(y, 0, BYTES);
            check(b->upload(to_device, to, 0, y, BYTES));
            check(b->copy(to_device, to, 40, from_device, from, 80, 400));
            launch(from_device, k, from, from, NULL, 0, 0);     /* and has ended before this */
            check(b->download(to_device, y, to, 0, BYTES));
            for (int i = 0; i < N; i++)
                assert_true(y[i] == (i >= 10 && i < 110 ? 3 * x[i + 10] : 0));
            check(b->download(from_device, y, from, 0, BYTES));
            for (int i = 0; i < N; i++) assert_true(y[i] == 0);
            b->destroy(from_device, k);
            b->release(from_device, from, BYTES);
            b->release(to_device, to, BYTES);
        }
    }
}

/* Once more through pinned memory, as on a device with memory of its own. */
static void test_staged_transfers(void **state)
{
    (void)state;
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
    };
    const int failed = cmocka_run_group_tests_name("without a driver", without, NULL, NULL);
    return failed + cmocka_run_group_tests_name("on two devices", tests, begin, end);
}
