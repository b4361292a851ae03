/* The CUDA backend by itself, on two devices of the test double: the order of commands, kernels and
 * their errors, the cache of programs, contexts, lost devices, threads, fork. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/cuda_double.h"

/* ---- the order of commands ------------------------------------------------------------------- */

/* In whichever order the double runs the streams, commands wait for their events. */
TEST(commands_wait)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("VGPU_SCHEDULE", schedules[i]));
        order();
    }
    WORKS(restart("VGPU_SCHEDULE", NULL));
}

/* ---- kernels --------------------------------------------------------------------------------- */

TEST(arguments_of_launches) { launches(); }

TEST(kernels_with_double) { f64_kernels(); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, "nvrtcCompileProgram");
    CANNOT_BE(STEP_WRONG, "error");            /* from the compiler's message */
    CANNOT_BE(STEP_WIDE, "scale", "16777216");
    CANNOT_BE(STEP_NAMELESS, "cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "500", "nothing");
    forget_calls();                             /* the double counts the missing name as an error */
}

/* A text is compiled once per device; the next process finds the image; a text whose image the
 * driver rejects is compiled again. */
TEST(programs_are_kept)
{
    keep_programs("VGPU_DEVICES", "2", "2");
    forget_calls();                             /* the double counts the damaged image */
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* If the caller has a current context, it stays current through every call. */
TEST(contexts)
{
    void *library = dlopen(getenv("WEBER_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    int (*current)(void **), (*retain)(void **, int), (*push)(void *), (*pop)(void **),
        (*give_up)(int);
    *(void **)&current = dlsym(library, "cuCtxGetCurrent");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&pop = dlsym(library, "cuCtxPopCurrent_v2");
    *(void **)&give_up = dlsym(library, "cuDevicePrimaryCtxRelease_v2");
    assert_true(current && retain && push && pop && give_up);
    void *mine = NULL, *now = NULL;
    for (int turn = 0; turn < 2; turn++) {      /* no context; the other device's */
        if (turn) assert_int_equal(retain(&mine, 1), 0);
        if (turn) assert_int_equal(push(mine), 0);
        float x[N], y[N];
        fill(x, N, 1);
        void *from = take(dev[0], BYTES), *to = take(dev[0], BYTES), *other = take(dev[1], BYTES);
        WORKS(b->upload(dev[0], from, 0, x, BYTES));
        wb__kernel *k = prepared(dev[0], STEP_SCALE, N);
        launch(dev[0], k, from, to, NULL, 0, 2);
        WORKS(b->copy(dev[1], other, 0, dev[0], to, 0, BYTES));
        WORKS(b->download(dev[1], y, other, 0, BYTES));
        assert_true(y[5] == 2 * x[5]);
        memory_of(dev[0]);
        b->destroy(dev[0], k);
        b->release(dev[0], from, BYTES);
        b->release(dev[0], to, BYTES);
        b->release(dev[1], other, BYTES);
        b->trim(dev[0]);
        assert_int_equal(current(&now), 0);
        assert_ptr_equal(now, mine);
    }
    assert_int_equal(pop(&now), 0);
    assert_int_equal(give_up(1), 0);
}

/* ---- lost devices ---------------------------------------------------------------------------- */

/* A kernel that accesses memory out of bounds makes the device unusable until the backend starts
 * again. */
TEST(a_lost_device)
{
    const wb_device *d = dev[0];
    float x[N];
    fill(x, N, 1);
    void *small = take(d, 64);
    wb__kernel *far = prepared(d, STEP_SLOW, 40000000);
    void *buffers[] = {small, small};
    const wb__number one = {.f = 1};
    int status = b->launch(d, far, buffers, NULL, NULL, 0, &one);
    if (!status) status = b->wait(d);
    EXPECT_ERROR(status, WB_ERROR_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS", "700");
    EXPECT_ERROR(b->wait(d), WB_ERROR_DEVICE, "cuda:0", "lost");
    b->destroy(d, far);
    b->release(d, small, 64);
    b->trim(d);
    WORKS(restart("VGPU_DEVICES", "2"));
    forget_calls();                             /* the double counts the kernel's access */
    small = take(dev[0], BYTES);
    WORKS(b->upload(dev[0], small, 0, x, BYTES));
    WORKS(b->wait(dev[0]));
    b->release(dev[0], small, BYTES);
}

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(tell_left(), 0);
}

static int begin(void **state)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return test_begin(&wb__cu_backend);
}

int main(void) { return run_cases(begin, NULL); }
