/* The OpenCL backend by itself, on two devices of PoCL's: what it says where there is none, memory,
 * the order of commands, copies, kernels, errors, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opencl_device.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const wb__backend *b;
static const wb_device *dev[2];
static int64_t memory_before;

enum { N = 1000, BYTES = N * sizeof(float) };

static void check(int status)
{
    if (status) print_error("%s\n", wb_error());
    assert_int_equal(status, 0);
}

static void expect_error(int status, int code, const char *part)
{
    assert_int_equal(status, code);
    assert_int_equal(wb_error_code(), code);
    if (!strstr(wb_error(), part)) fail_msg("\"%s\" does not tell \"%s\"", wb_error(), part);
    wb_clear_error();
}

static void expect_none(void *memory, const char *part)
{
    assert_null(memory);
    expect_error(wb_error_code(), WB_ERROR_MEMORY, part);
}

static void *take(const wb_device *d, size_t bytes)
{
    void *memory = b->allocate(d, bytes);
    if (!memory) print_error("%s\n", wb_error());
    assert_non_null(memory);
    return memory;
}

static wb_device_memory memory_of(const wb_device *d)
{
    wb_device_memory m;
    check(b->memory(d, &m));
    return m;
}

static wb__kernel *prepared(const wb_device *d, test_step which, int64_t n)
{
    wb__kernel *k = NULL;
    const wb__step step = test_step_of(which, n);
    check(b->prepare(d, &step, &k));
    assert_non_null(k);
    return k;
}

static void launch(const wb_device *d, const wb__kernel *k, void *from, void *to, void *workspace,
                   size_t workspace_at, double number)
{
    const wb__number numbers = {.f = number};
    void *buffers[] = {from, to};
    check(b->launch(d, k, buffers, workspace, workspace_at, &numbers));
}

static void fill(float *x, size_t n, float first)
{
    for (size_t i = 0; i < n; i++) x[i] = first + (float)(i % 1000);
}

/* Starts anew with a variable of the environment set, or without it. */
static int restart(const char *name, const char *value)
{
    b->stop();
    if (value) setenv(name, value, 1);
    else unsetenv(name);
    const int status = b->start();
    for (int i = 0; i < 2; i++) dev[i] = status ? NULL : b->device(i);
    return status;
}

/* ---- where there is no driver ---------------------------------------------------------------- */

/* In a process of its own, with these variables set: starting fails and says so; the status is 0. */
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

static int begin(void **state)
{
    (void)state;
    b = test_open_backend();
    memory_before = wb_memory_used();
    if (!b || b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) dev[i] = b->device(i);
    return b->count() == 2 ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    b->stop();
    b->stop();
    test_disk_empty();
    if (wb_memory_used() == memory_before) return 0;
    print_error("%lld bytes are still held\n", (long long)(wb_memory_used() - memory_before));
    return 1;
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

/* ---- the order of commands ------------------------------------------------------------------- */

/* A slow kernel is still running when its memory is written, released, handed out and written. */
static void order(void)
{
    const wb_device *d = dev[0];
    float x[N], y[N], z[N];
    fill(x, N, 1);
    fill(z, N, 5);
    wb__kernel *slow = prepared(d, STEP_SLOW, N), *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES), *third = take(d, BYTES);
    check(b->upload(d, from, 0, x, BYTES));
    for (int turn = 0; turn < 2; turn++) {      /* the first one compiles */
        launch(d, slow, from, to, NULL, 0, 0);
        launch(d, scale, to, third, NULL, 0, 2);
        check(b->upload(d, from, 0, z, BYTES)); /* read by the slow one first */
        b->release(d, to, BYTES);
        void *again = take(d, BYTES);           /* the same memory: the only one of its size */
        assert_ptr_equal(again, to);
        check(b->upload(d, again, 0, z, BYTES));
        check(b->download(d, y, again, 0, BYTES));
        assert_memory_equal(y, z, BYTES);
        check(b->download(d, y, third, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * (x[i] + 1));
        check(b->upload(d, from, 0, x, BYTES));
    }
    b->destroy(d, slow);                        /* a kernel that is on its way */
    slow = prepared(d, STEP_SLOW, N);
    launch(d, slow, from, to, NULL, 0, 0);
    b->destroy(d, slow);
    b->destroy(d, scale);
    check(b->wait(d));
    check(b->download(d, y, to, 0, BYTES));
    for (int i = 0; i < N; i++) assert_true(y[i] == x[i] + 1);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, third, BYTES);
    b->trim(d);
}

static void test_order(void **state)
{
    (void)state;
    order();
}

/* All of that once more with transfers through pinned memory, as on a device with its own. */
static void test_staging(void **state)
{
    (void)state;
    check(restart("WEBER_OPENCL_STAGING", "1"));
    order();
    transfers();
    check(restart("WEBER_OPENCL_STAGING", NULL));
}

/* Memory that no command uses is written while a kernel runs: it need not end before. */
static void test_upload_beside_kernels(void **state)
{
    (void)state;
    const wb_device *d = dev[0];
    float x[64], y[64];
    fill(x, 64, 1);
    wb__kernel *slow = prepared(d, STEP_SLOW, 64);
    void *from = take(d, sizeof x), *to = take(d, sizeof x), *other = take(d, sizeof x);
    check(b->upload(d, from, 0, x, sizeof x));
    launch(d, slow, from, to, NULL, 0, 0);
    check(b->wait(d));                          /* it is compiled */
    const double begins = wb__now();
    for (int i = 0; i < 4; i++) launch(d, slow, from, to, NULL, 0, 0);
    check(b->upload(d, other, 0, x, sizeof x));
    const double uploaded = wb__now() - begins;
    check(b->wait(d));
    const double waited = wb__now() - begins;
    if (uploaded > waited / 2) fail_msg("%g s of %g s", uploaded, waited);
    check(b->download(d, y, other, 0, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    b->destroy(d, slow);
    b->release(d, from, sizeof x);
    b->release(d, to, sizeof x);
    b->release(d, other, sizeof x);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void test_launches(void **state)
{
    (void)state;
    float x[N], y[N];
    fill(x, N, 0);
    for (int i = 0; i < 2; i++) {
        const wb_device *d = dev[i];
        void *from = take(d, BYTES), *to = take(d, BYTES), *other = take(d, BYTES);
        check(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N);
        assert_string_equal(k->impl, "test");
        assert_int_equal(k->workspace, 0);
        for (int turn = 1; turn < 100; turn++) {        /* numbers and buffers change or do not */
            launch(d, k, from, turn % 5 == 4 ? other : to, NULL, 0, turn / 2);
            if (turn % 10) continue;
            check(b->download(d, y, to, 0, BYTES));
            for (int n = 0; n < N; n++) assert_true(y[n] == (float)(turn / 2) * x[n]);
        }
        b->release(d, other, BYTES);
        b->trim(d);                     /* new memory may have the old one's place: it is set anew */
        other = take(d, BYTES);
        launch(d, k, from, other, NULL, 0, 7);
        check(b->download(d, y, other, 0, BYTES));
        for (int n = 0; n < N; n++) assert_true(y[n] == 7 * x[n]);
        b->destroy(d, k);
        b->destroy(d, NULL);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        b->release(d, other, BYTES);
    }
}

static void test_workspace(void **state)
{
    (void)state;
    const wb_device *d = dev[1];
    float x[N], y[N], around[3 * N];
    fill(x, N, 0);
    memset(around, 0, sizeof around);
    void *from = take(d, BYTES), *to = take(d, BYTES), *arena = take(d, sizeof around);
    check(b->upload(d, from, 0, x, BYTES));
    check(b->upload(d, arena, 0, around, sizeof around));
    wb__kernel *k = prepared(d, STEP_TWICE, N);
    assert_int_equal(k->workspace, BYTES);
    for (int place = 0; place < 2; place++) {
        launch(d, k, from, to, arena, (size_t)(2 - place) * 1024, 3);
        check(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * (x[i] + 1));
        check(b->download(d, around, arena, 0, sizeof around));
        const int at = (2 - place) * 256;
        for (int i = 0; i < 3 * N; i++)
            assert_true(around[i] == (i >= at && i < at + N ? x[i - at] + 1
                                      : i >= at + N && i < 512 + N ? x[i - 512] + 1 : 0));
    }
    b->destroy(d, k);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, arena, sizeof around);
}

/* Constants are float in f32 kernels and double in those of f64. */
static void test_f64(void **state)
{
    (void)state;
    const wb_device *d = dev[0];
    const float one = 1;
    float y = 0;
    void *from = take(d, 4), *to = take(d, 4);
    check(b->upload(d, from, 0, &one, 4));
    wb__kernel *k = prepared(d, STEP_F64, 1);
    launch(d, k, from, to, NULL, 0, 0);
    check(b->download(d, &y, to, 0, 4));
    assert_true(y == 0x1p-40f);
    b->destroy(d, k);
    b->release(d, from, 4);
    b->release(d, to, 4);
}

static void test_kernels_that_cannot_be(void **state)
{
    (void)state;
    static const struct { test_step step; const char *part; } wrong[] = {
        {STEP_WRONG, "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11): "},
        {STEP_WRONG, "error:"},                         /* the compiler's words */
        {STEP_WIDE, "kernel scale wants 16777216 items"},
        {STEP_NAMELESS, "clCreateKernel: CL_INVALID_KERNEL_NAME (-46): kernel nothing"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        const wb__step step = test_step_of(wrong[i].step, N);
        wb__kernel *k = (wb__kernel *)&step;
        const int status = b->prepare(dev[0], &step, &k);
        assert_null(k);
        expect_error(status, WB_ERROR_DEVICE, wrong[i].part);
    }
}

/* Compiled once a device and text; the next process finds the binary; one that the driver refuses
 * is compiled again. */
static void test_programs_are_kept(void **state)
{
    (void)state;
    float x[N], y[N];
    fill(x, N, 1);
    check(restart("WEBER_MEMORY_LIMIT", NULL));
    test_disk_empty();
    for (int turn = 0; turn < 3; turn++) {
        const int before = test_kept;
        test_hits = 0;
        test_spoiled = turn == 2;
        const wb_device *d = dev[0];
        void *from = take(d, BYTES), *to = take(d, BYTES);
        check(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N), *same = prepared(d, STEP_SCALE, 10);
        launch(d, k, from, to, NULL, 0, 3);
        check(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * x[i]);
        assert_int_equal(test_hits, turn > 0);
        assert_int_equal(test_kept - before, turn != 1);
        b->destroy(d, k);
        b->destroy(d, same);
        k = prepared(d, STEP_SCALE, 20);                /* still in memory */
        assert_int_equal(test_hits, turn > 0);
        b->destroy(d, k);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        check(restart("WEBER_MEMORY_LIMIT", NULL));
    }
    test_spoiled = false;
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 60 };
static wb__kernel *shared[2];

/* Each has memory of its own; kernels are shared by the threads of a device. */
static void *work(void *argument)
{
    const int id = (int)(intptr_t)argument;
    const wb_device *d = dev[id & 1];
    float x[N], y[N];
    intptr_t wrong = 0;
    for (int turn = 0; turn < TURNS && !wrong; turn++) {
        const wb__number factor = {.f = id + turn};
        void *from = b->allocate(d, BYTES), *to = b->allocate(d, BYTES);
        void *buffers[] = {from, to};
        fill(x, N, (float)(id * 100 + turn));
        wrong |= !from || !to;
        if (!wrong) wrong |= b->upload(d, from, 0, x, BYTES);
        if (!wrong) wrong |= b->launch(d, shared[id & 1], buffers, NULL, 0, &factor);
        if (!wrong) wrong |= b->copy(d, from, 0, d, to, 0, BYTES);
        if (!wrong) wrong |= b->download(d, y, from, 0, BYTES);
        for (int i = 0; i < N && !wrong; i++) wrong |= y[i] != (float)(id + turn) * x[i];
        if (turn % 8 == 7) b->trim(d);
        if (turn % 8 == 3 && !wrong) {
            const wb__step step = test_step_of(turn % 16 == 3 ? STEP_TWICE : STEP_SCALE, N);
            wb__kernel *k = NULL;
            wrong |= b->prepare(d, &step, &k);
            b->destroy(d, k);
        }
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
    }
    if (wrong) print_error("thread %d: %s\n", id, wb_error());
    return (void *)wrong;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (int i = 0; i < 2; i++) shared[i] = prepared(dev[i], STEP_SCALE, N);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < 2; i++) b->destroy(dev[i], shared[i]);
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
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_staging),
        cmocka_unit_test(test_upload_beside_kernels),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_kernels_that_cannot_be),
        cmocka_unit_test(test_programs_are_kept),
        cmocka_unit_test(test_threads),
    };
    const int failed = cmocka_run_group_tests_name("without a driver", without, NULL, NULL);
    return failed + cmocka_run_group_tests_name("on two devices", tests, begin, end);
}
