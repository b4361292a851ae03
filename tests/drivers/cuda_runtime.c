/* The CUDA backend by itself, on two devices of the test double: what stream_runtime.h tests, and
 * contexts and lost devices. */
#define COMPILE "nvrtcCompileProgram"
#define NO_KERNEL "cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "500", "nothing"
#include "tests/runtime/stream_runtime.h"

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
        use_both();
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

TEST(nothing_is_left) { end_empty(); }

static int begin(void **state) { return begin_two(&wb__cu_backend); }

int main(void) { return run_cases(begin, NULL); }
