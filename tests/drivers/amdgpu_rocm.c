/* What the AMDGPU backend finds of ROCm, and lost devices.  Each test runs in a process of its own,
 * since HIP keeps its state until the process ends. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/cuda_double.h"

/* ---- what is found of ROCm ------------------------------------------------------------------- */

#define STARTS(name, value, ...) CHILD(&wb__amd_backend, name, value, __VA_ARGS__)

/* No text is compiled for a device that the compiler does not know: AMD's compiler ends the process
 * then, and so does the double's. */
static int start_on_unknown(void)
{
    setenv("VGPU_GFX", "gfx1250", 1);
    const int status = wb__amd_backend.start();
    return status != WB_ERROR_DEVICE || !strstr(wb_error(), "gfx1250") ||
           !strstr(wb_error(), "newer ROCm");
}

TEST(unknown_architecture) { assert_int_equal(in_child(start_on_unknown), 0); }

/* ROCm 5: another layout of the properties, and hiprtc in the runtime itself. */
static int run_on_rocm_5(void)
{
    setenv("WEBER_ROCM_PATH", WB_TEST_HIP_DOUBLE "5", 1);
    if (test_begin(&wb__amd_backend)) return 1;
    launches();
    return !strstr(dev[0]->name, "vgpu of AMD 0");
}

TEST(rocm_5) { assert_int_equal(in_child(run_on_rocm_5), 0); }

TEST(hidden_or_absent)
{
    assert_int_equal(STARTS("HIP_VISIBLE_DEVICES", "", "hipErrorNoDevice", "HIP_VISIBLE_DEVICES",
                            "rocminfo", "render"), 0);
    assert_int_equal(STARTS("VGPU_DEVICES", "0", "hipErrorNoDevice", "rocminfo"), 0);
    assert_int_equal(STARTS("VGPU_GFX", "sm_90", "sm_90", "does not know"), 0);
}

/* The real runtime, where it is installed: there is no AMD GPU on a machine that runs the doubles,
 * or else the backend works. */
static int start_real(void)
{
    unsetenv("WEBER_ROCM_PATH");
    void *library = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
    const int status = wb__amd_backend.start();
    if (!status) return 0;
    if (status != WB_ERROR_DEVICE) return 1;
    if (library) return !strstr(wb_error(), "sees no GPU") || !strstr(wb_error(), "rocminfo");
    return !strstr(wb_error(), "was not found") || !strstr(wb_error(), "libamdhip64-5") ||
           !strstr(wb_error(), "rocm-hip");
}

TEST(the_real_runtime) { assert_int_equal(in_child(start_real), 0); }

/* ---- lost devices ---------------------------------------------------------------------------- */

/* A kernel that accesses memory out of bounds makes the device unusable until the process ends.
 * The real ROCm ends the process at once in most of these cases. */
static int lose_a_device(void)
{
    if (test_begin(&wb__amd_backend)) return 1;
    const wb_device *d = dev[0];
    void *small = take(d, 64);
    wb__kernel *far = prepared(d, STEP_SLOW, 40000000);
    void *buffers[] = {small, small};
    const wb__number one = {.f = 1};
    int status = b->launch(d, far, buffers, NULL, NULL, 0, &one);
    if (!status) status = b->wait(d);
    EXPECT_ERROR(status, WB_ERROR_DEVICE, "hipErrorIllegalAddress", "700");
    EXPECT_ERROR(b->wait(d), WB_ERROR_DEVICE, "amdgpu:0", "lost");
    b->destroy(d, far);
    b->release(d, small, 64);
    WORKS(b->wait(dev[1]));                     /* the other device still works */
    b->stop();
    forget_calls();                             /* the double counts the kernel's access */
    return 0;
}

TEST(a_lost_device) { assert_int_equal(in_child(lose_a_device), 0); }

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    return run_all_cases();
}
