/* The CUDA backend by itself, on the test double of the driver: its errors where there is no
 * driver, its devices, their memory, and copies. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/cuda_double.h"

#include <unistd.h>

/* ---- where there is no driver ---------------------------------------------------------------- */

TEST(nothing_there)
{
    static const char library[] = "WEBER_CUDA_LIBRARY", visible[] = "CUDA_VISIBLE_DEVICES";
    static const char none[] = WB_TEST_NOWHERE "/libcuda.so";
    assert_int_equal(CHILD(&wb__cu_backend, library, none, none), 0);
    assert_int_equal(CHILD(&wb__cu_backend, library, none, none,
                           "NVIDIA driver"), 0);
    assert_int_equal(CHILD(&wb__cu_backend, library, "libm.so.6", "libm.so.6", "cuInit"), 0);
    assert_int_equal(CHILD(&wb__cu_backend, visible, "-1", "CUDA_VISIBLE_DEVICES"), 0);
    assert_int_equal(CHILD(&wb__cu_backend, "VGPU_DEVICES", "0", "GPU"), 0);
}

/* True if this library can be opened. */
static bool is_there(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library;
}

/* A file with NVRTC's name that is another library is skipped; if no other is found, this is an
 * error. */
TEST(no_compiler)
{
    char folder[] = "/tmp/weber-no-nvrtc-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libnvrtc.so.13", folder);
    assert_int_equal(symlink(getenv("WEBER_CUDA_LIBRARY"), file), 0);
    const bool another = is_there("libnvrtc.so.13") || is_there("libnvrtc.so.12") ||
                         is_there("libnvrtc.so") || is_there("/usr/local/cuda/lib64/libnvrtc.so");
    if (another)
        assert_int_not_equal(CHILD(&wb__cu_backend, "WEBER_CUDA_PATH", folder, "NVRTC"), 0);
    else assert_int_equal(CHILD(&wb__cu_backend, "WEBER_CUDA_PATH", folder, "NVRTC"), 0);
    assert_int_equal(unlink(file) | rmdir(folder), 0);
}

/* Runs in a child process, since the driver reads the variable when it starts. */
static int see_one(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    b = &wb__cu_backend;
    return b->start() || b->count() != 1 || b->device(0)->ordinal != 0 ||
           !b->allocate(b->device(0), 100);
}

TEST(visible_devices) { assert_int_equal(in_child(see_one), 0); }

/* ---- devices --------------------------------------------------------------------------------- */

/* The tests before run in children, which have no device once the driver has started here. */
TEST(begins) { assert_int_equal(test_begin(&wb__cu_backend), 0); }

TEST(devices)
{
    two_devices("CUDA", "cuda");
    for (int i = 0; i < 2; i++) assert_true(memory_of(dev[i]).total > 0);
    assert_int_equal(books().contexts, 0);      /* listing a device does not open it */
    assert_int_equal(b->part("NVRTC"), 1);
    assert_int_equal(b->part("no such part"), -1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The driver's free memory, and blocks that are returned to it. */
static void blocks_go_back(void)
{
    const wb_device *d = dev[0];
    b->trim(d);
    const int64_t before = books().blocks;
    void *memory = take(d, 1000);
    const wb_device_memory m = memory_of(d);
    assert_true(m.total > 0 && m.free > 0 && m.free <= m.total - m.used);
    assert_int_equal(books().blocks, before + 1);
    b->release(d, memory, 1000);
    assert_int_equal(books().blocks, before + 1);
    b->trim(d);
    assert_int_equal(books().blocks, before);
}

TEST(blocks)
{
    blocks_go_back();
    EXPECT_NONE(b->allocate(dev[0], (size_t)memory_of(dev[0]).total + 1), "cuda:0");
}

TEST(full_device) { cached_sizes_go_back(); }

/* ---- copies ---------------------------------------------------------------------------------- */

TEST(copies_of_the_host) { transfers(); }

TEST(copies_between_devices) { copies(); }

/* The same where no device can access the other's memory, and on devices without memory pools. */
TEST(poor_devices)
{
    WORKS(restart("VGPU_PEERS", "0"));
    copies();
    WORKS(restart("VGPU_PEERS", NULL));
    WORKS(restart("VGPU_POOLS", "0"));
    copies();
    transfers();
    blocks_go_back();
    WORKS(restart("VGPU_POOLS", NULL));
}

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(tell_left(), 0);
}

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return run_all_cases();
}
