/* The CUDA backend by itself, on the test double of the driver: what it says where there is no
 * driver, which devices there are, their memory, and copies. */
#include "test.h"

#define TEST_CUDA
#include "text_memory.h"

#include "cuda_double.h"

/* ---- where there is no driver ---------------------------------------------------------------- */

static void test_nothing_there(void **state)
{
    static const char library[] = "WEBER_CUDA_LIBRARY", visible[] = "CUDA_VISIBLE_DEVICES";
    assert_int_equal(child(library, "/none/libcuda.so", "/none/libcuda.so was not found"), 0);
    assert_int_equal(child(library, "/none/libcuda.so", "install the NVIDIA driver"), 0);
    assert_int_equal(child(library, "libm.so.6", "has no cuInit"), 0);
    assert_int_equal(child(visible, "-1", "CUDA_VISIBLE_DEVICES"), 0);
    assert_int_equal(child("VGPU_DEVICES", "0", "sees no GPU"), 0);
}

/* A driver, and no library that is NVRTC. */
static bool is_there(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library;
}

/* A file that is no NVRTC is passed by; an error only where there is no other. */
static void test_no_compiler(void **state)
{
    char folder[] = "/tmp/weber-no-nvrtc-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libnvrtc.so.13", folder);
    assert_int_equal(symlink(getenv("WEBER_CUDA_LIBRARY"), file), 0);
    const bool another = is_there("libnvrtc.so.13") || is_there("libnvrtc.so.12") ||
                         is_there("libnvrtc.so") || is_there("/usr/local/cuda/lib64/libnvrtc.so");
    if (another) assert_int_not_equal(child("WEBER_CUDA_PATH", folder, "NVRTC has no nvrtc"), 0);
    else assert_int_equal(child("WEBER_CUDA_PATH", folder, "NVRTC has no nvrtc"), 0);
    assert_int_equal(unlink(file) | rmdir(folder), 0);
}

/* The driver reads the variable when it starts: in a process of its own. */
static void test_visible_devices(void **state)
{
    int status = -1;
    const pid_t process = fork();
    if (!process) {
        setenv("CUDA_VISIBLE_DEVICES", "1", 1);
        b = &TEST_BACKEND;
        const bool right = !b->start() && b->count() == 1 && b->device(0)->ordinal == 0 &&
                           b->allocate(b->device(0), 100);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_devices(void **state)
{
    assert_string_equal(b->name, "CUDA");
    assert_string_equal(b->tag, "cuda");
    assert_true(b->is_gpu && !b->host_visible);
    assert_int_equal(b->start(), 0);            /* once more: nothing */
    assert_int_equal(b->count(), 2);
    assert_null(b->device(2));
    assert_null(b->device(-1));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(dev[i]->backend, b);
        assert_int_equal(dev[i]->ordinal, i);
        assert_true(*dev[i]->name);
        for (int t = 0; t < WB_DTYPE_COUNT; t++) assert_true(b->has_dtype(dev[i], (wb_dtype)t));
        assert_int_equal(b->wait(dev[i]), 0);   /* though nothing was asked of it yet */
        assert_true(memory_of(dev[i]).total > 0);
    }
    assert_int_equal(books().contexts, 0);      /* to look is not to open */
    assert_int_equal(b->part("NVRTC"), 1);
    assert_int_equal(b->part("no such part"), -1);
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
    assert_true(m.total > 0 && m.free > 0 && m.free <= m.total - m.used);
    assert_int_equal(memory_of(dev[1]).used, 0);
    b->release(d, two, 1000);
    b->release(d, one, 1000);
    assert_int_equal(memory_of(d).used, 0);
    assert_int_equal(memory_of(d).cached, m.used);
    assert_ptr_equal(take(d, 1001), one);       /* of the same class; the last released */
    void *third = take(d, 100000);
    assert_ptr_not_equal(third, two);
    assert_ptr_equal(take(d, 999), two);
    assert_int_equal(memory_of(d).cached, 0);
    b->release(d, one, 1001);
    b->release(d, two, 999);
    b->release(d, third, 100000);
    b->release(d, NULL, 5);
    const int64_t blocks = books().blocks;
    b->trim(d);
    assert_int_equal(books().blocks, blocks - 3);
    assert_int_equal(memory_of(d).cached, 0);
    assert_int_equal(memory_of(d).used, 0);
    assert_true(memory_of(d).peak >= 100000);
}

static void test_more_than_there_is(void **state)
{
    const int64_t total = memory_of(dev[0]).total;
    expect_none(b->allocate(dev[0], (size_t)total + 1), "cuda:0: out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX / 2), "out of memory");
    expect_none(b->allocate(dev[0], SIZE_MAX), "out of memory");
    b->release(dev[0], take(dev[0], 1000), 1000);
    assert_int_equal(memory_of(dev[0]).used, 0);
}

/* The driver says that it has no more, while other sizes are cached: they go back. */
static void test_full_device(void **state)
{
    const size_t half = (size_t)memory_of(dev[0]).total / 2, eighth = half / 4;
    for (int turn = 0; turn < 2; turn++) {
        void *a = take(dev[0], half);
        b->release(dev[0], a, half);
        void *c[5];
        for (int i = 0; i < 5; i++) c[i] = take(dev[0], eighth);
        for (int i = 0; i < 5; i++) b->release(dev[0], c[i], eighth);
    }
    b->trim(dev[0]);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Once more where no device reaches the other's memory, and on devices without pools. */
static void test_poor_devices(void **state)
{
    check(restart("VGPU_PEERS", "0"));
    test_copies(state);
    check(restart("VGPU_PEERS", NULL));
    check(restart("VGPU_POOLS", "0"));
    test_copies(state);
    test_cache(state);
    transfers();
    check(restart("VGPU_POOLS", NULL));
}

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    const struct CMUnitTest without[] = {
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_no_compiler),
        cmocka_unit_test(test_visible_devices),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_more_than_there_is),
        cmocka_unit_test(test_full_device),
        cmocka_unit_test(test_transfers),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_poor_devices),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_books),
    };
    const int failed = cmocka_run_group_tests_name("without a driver", without, NULL, NULL);
    return failed + cmocka_run_group_tests_name("on two devices", tests, begin, NULL);
}
