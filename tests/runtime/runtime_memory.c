/* The GPU runtime's memory, on a driver in host memory (test_gpu.h): starting and choosing devices,
 * the cache and its limits, copies between host and devices. */
#include "by_hand.h"
#include "test_gpu.h"

/* ---- devices --------------------------------------------------------------------------------- */

TEST(nothing_there)
{
    assert_int_equal(CHILD(&test_gpu, "TEST_GPU_NONE", "no device today", "no device today"), 0);
    assert_int_equal(CHILD(&test_gpu, "TEST_GPU_FAIL", "1", "memory", "load", "FAILS", "2"), 0);
    assert_int_equal(CHILD(&test_gpu, "TEST_GPU_FAIL", "2", "memory", "find", "FAILS", "2"), 0);
}

/* The test before runs in a child, which has no device once the backend has started here. */
TEST(begins) { assert_int_equal(test_begin(&test_gpu), 0); }

/* Listing devices does not open them; a processor is the last one. */
TEST(devices)
{
    gpu_forget();
    assert_int_equal(b->start(), 0);            /* a second start does nothing */
    assert_int_equal(b->count(), 2);
    assert_null(b->device(2));
    assert_null(b->device(-1));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(dev[i]->backend, b);
        assert_int_equal(dev[i]->ordinal, i);
        assert_string_equal(dev[i]->name, i ? "device 0 in memory" : "device 1 in memory");
        for (int t = 0; t < WB_DTYPE_COUNT; t++) assert_true(b->has_dtype(dev[i], (wb_dtype)t));
        assert_int_equal(b->wait(dev[i]), 0);   /* no command was launched yet */
        assert_int_equal(memory_of(dev[i]).total, (int64_t)4 << 30);
    }
    assert_int_equal(gpu_calls(NULL), 0);
}

TEST(choice_of_devices)
{
    static const char variable[] = "TEST_GPU_CHOSEN";
    assert_int_equal(restart(variable, "1"), 0);
    assert_int_equal(b->count(), 1);
    assert_int_equal(dev[0]->ordinal, 0);
    b->release(dev[0], take(dev[0], 100), 100);
    assert_int_equal(restart(variable, "1,0,1"), 0);
    assert_int_equal(b->count(), 2);
    assert_int_equal(restart(variable, "CPU, 0"), 0);
    assert_int_equal(b->count(), 2);
    EXPECT_ERROR(restart(variable, "accelerator"), WB_ERROR_DEVICE, "2");
    EXPECT_ERROR(restart(variable, ""), WB_ERROR_DEVICE, "2");
    EXPECT_ERROR(restart(variable, "0,2"), WB_ERROR_ARGUMENT, "2", "2");
    EXPECT_ERROR(restart(variable, "0,fpga"), WB_ERROR_ARGUMENT, "\"fpga\"");
    assert_int_equal(b->count(), 0);
    WORKS(restart(variable, NULL));
    assert_int_equal(b->count(), 2);
}

/* The runtime, not the driver, reports a kernel with too many buffers or bytes of arguments. */
TEST(limits_of_launches)
{
    static const struct { const char *name, *value; } limits[] = {{"TEST_GPU_BUFFERS", "1"},
                                                                  {"TEST_GPU_ARGS", "31"}};
    for (size_t i = 0; i < WB__COUNT(limits); i++) {
        const wb__step step = test_step_of(STEP_SCALE, N);
        wb__kernel *k = NULL;
        WORKS(restart(limits[i].name, limits[i].value));
        EXPECT_ERROR(b->prepare(dev[0], &step, &k), WB_ERROR_INTERNAL, "2", "buffers",
                     "32", "bytes");
        assert_null(k);
        WORKS(restart(limits[i].name, NULL));
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The cache returns the block that was released last; if memory is objects, the one released
 * first. */
static void cache(void)
{
    const wb_device *d = dev[0];
    const bool objects = getenv("TEST_GPU_OBJECTS") != NULL;
    assert_int_equal(memory_of(d).used, 0);
    void *one = take(d, 1000), *two = take(d, 1000);
    assert_ptr_not_equal(one, two);
    const wb_device_memory m = memory_of(d);
    assert_true(m.used >= 2000 && m.used <= 2250 && m.peak == m.used && m.cached == 0);
    assert_true(m.free == m.total - m.used);
    assert_int_equal(memory_of(dev[1]).used, 0);
    b->release(d, objects ? one : two, 1000);
    b->release(d, objects ? two : one, 1000);
    assert_int_equal(memory_of(d).used, 0);
    assert_int_equal(memory_of(d).cached, m.used);
    assert_int_equal(memory_of(d).peak, m.peak);
    assert_ptr_equal(take(d, 1001), one);       /* of the same size class */
    void *third = take(d, 100000);
    assert_ptr_not_equal(third, two);
    assert_ptr_equal(take(d, 999), two);
    assert_int_equal(memory_of(d).cached, 0);
    b->release(d, one, 1001);
    b->release(d, two, 999);
    b->release(d, third, 100000);
    b->release(d, NULL, 5);
    assert_int_equal(gpu_blocks(), 3);
    b->trim(d);
    WORKS(b->wait(d));
    assert_int_equal(gpu_blocks(), 0);
    assert_int_equal(memory_of(d).cached, 0);
    assert_int_equal(memory_of(d).used, 0);
    assert_true(memory_of(d).peak >= 100000);
}

TEST(memory_is_kept) { gpu_each(cache); }

TEST(no_bytes)
{
    void *none = take(dev[0], 0);
    WORKS(b->upload(dev[0], none, 0, NULL, 0));
    WORKS(b->download(dev[0], NULL, none, 0, 0));
    WORKS(b->copy(dev[0], none, 0, dev[0], none, 0, 0));
    b->release(dev[0], none, 0);
}

/* Blocks of every size near the borders of size classes can be written from end to end. */
static void sizes(void)
{
    unsigned char *x = malloc(80000), *y = malloc(80000);
    for (size_t i = 0; i < 80000; i++) x[i] = (unsigned char)(i * 31 >> 3);
    for (size_t power = 1; power <= 65536; power *= 2) {
        for (size_t part = 0; part < 3; part++) {
            const size_t size = power + part - 1 + (part == 2 ? power / 8 : 0);
            void *memory = take(dev[0], size);
            WORKS(b->upload(dev[0], memory, 0, x, size));
            memset(y, 0, size);
            WORKS(b->download(dev[0], y, memory, 0, size));
            assert_memory_equal(x, y, size);
            b->release(dev[0], memory, size);
        }
    }
    free(x);
    free(y);
}

TEST(every_size) { gpu_each(sizes); }

/* A large block has little more than the bytes that are requested.  It is used again for fewer, and
 * freed when its class needs more. */
TEST(large_blocks)
{
    const size_t size = ((size_t)1 << 30) + 1;
    void *memory = take(dev[0], size);
    assert_in_range(memory_of(dev[0]).used, size, size + (32 << 20));
    b->release(dev[0], memory, size);
    assert_ptr_equal(take(dev[0], size - 1 + (32 << 20)), memory);
    b->release(dev[0], memory, size - 1 + (32 << 20));
    void *larger = take(dev[0], size + (32 << 20));         /* of the same class */
    assert_int_equal(memory_of(dev[0]).cached, 0);
    b->release(dev[0], larger, size + (32 << 20));
    b->trim(dev[0]);
}

TEST(limit)
{
    void *held[32];
    int n = 0;
    WORKS(restart("WEBER_MEMORY_LIMIT", "1M"));
    while (n < 32 && (held[n] = b->allocate(dev[0], 100000))) {
        n++;
        assert_true(memory_of(dev[0]).used + memory_of(dev[0]).cached <= 1 << 20);
    }
    assert_true(n == 9 || n == 10);             /* sizes are rounded up by an eighth at most */
    EXPECT_ERROR(wb_error_code(), WB_ERROR_MEMORY, "memory:0", "97.7 KiB", "1.0 MiB",
                 "WEBER_MEMORY_LIMIT");
    void *other = take(dev[1], 1000000);        /* each device has the limit */
    b->release(dev[1], other, 1000000);
    b->release(dev[0], held[--n], 100000);      /* then an allocation succeeds again */
    assert_non_null(held[n] = b->allocate(dev[0], 100000));
    n++;
    while (n) b->release(dev[0], held[--n], 100000);
    assert_true(memory_of(dev[0]).cached >= 900000);
    void *large = take(dev[0], 1000000);        /* cached blocks of other sizes are freed */
    assert_int_equal(memory_of(dev[0]).cached, 0);
    assert_true(memory_of(dev[0]).used <= 1 << 20);
    b->release(dev[0], large, 1000000);
    large = take(dev[0], 1 << 20);              /* all that the limit allows */
    EXPECT_NONE(b->allocate(dev[0], 1), "1");
    b->release(dev[0], large, 1 << 20);
    EXPECT_NONE(b->allocate(dev[0], (1 << 20) + 1), "memory:0");
    WORKS(restart("WEBER_MEMORY_LIMIT", "1.5KiB"));
    b->release(dev[0], take(dev[0], 1536), 1536);
    EXPECT_NONE(b->allocate(dev[0], 1537), "1.5 KiB");
    WORKS(restart("WEBER_MEMORY_LIMIT", "2000"));
    EXPECT_NONE(b->allocate(dev[0], 2001), "2.0 KiB");
    WORKS(restart("WEBER_MEMORY_LIMIT", "50%"));
    const wb_device_memory m = memory_of(dev[0]);
    assert_true(m.free == m.total / 2);
    WORKS(restart("WEBER_MEMORY_LIMIT", "2GB"));
    assert_true(memory_of(dev[0]).free == 2000000000);
    static const char *const wrong[] = {"much", "-1", "5X", "1.5 GiB", "50%%", "M", "3Mb/s"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++)
        EXPECT_ERROR(restart("WEBER_MEMORY_LIMIT", wrong[i]), WB_ERROR_ARGUMENT, wrong[i]);
    WORKS(restart("WEBER_MEMORY_LIMIT", NULL));
}

TEST(more_than_there_is)
{
    const int64_t total = memory_of(dev[0]).total;
    EXPECT_NONE(b->allocate(dev[0], (size_t)total + 1), "memory:0");
    EXPECT_NONE(b->allocate(dev[0], SIZE_MAX / 2), "memory:0");
    EXPECT_NONE(b->allocate(dev[0], SIZE_MAX), "memory:0");
    b->release(dev[0], take(dev[0], 1000), 1000);
    assert_int_equal(memory_of(dev[0]).used, 0);
    WORKS(restart("TEST_GPU_MOST", "5000"));
    EXPECT_NONE(b->allocate(dev[0], 5001), "memory:0", "4.9 KiB");
    b->release(dev[0], take(dev[0], 4096), 4096);
    WORKS(restart("TEST_GPU_MOST", NULL));
}

TEST(full_device) { cached_sizes_go_back(); }

/* ---- copies ---------------------------------------------------------------------------------- */

TEST(copies_of_the_host) { gpu_each(transfers); }

TEST(copies_between_devices) { gpu_each(copies); }

/* Devices that cannot copy from each other: copy is unsupported, and the engine copies through the
 * host. */
static void apart(void)
{
    if (!getenv("TEST_GPU_OBJECTS")) return;
    void *from = take(dev[0], 100), *to = take(dev[1], 100);
    setenv("TEST_GPU_APART", "1", 1);
    assert_int_equal(b->copy(dev[1], to, 0, dev[0], from, 0, 100), WB_ERROR_UNSUPPORTED);
    assert_string_equal(wb_error(), "");
    unsetenv("TEST_GPU_APART");
    b->release(dev[0], from, 100);
    b->release(dev[1], to, 100);
}

TEST(devices_that_are_apart) { gpu_each(apart); }

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(gpu_left(), 0);
}
