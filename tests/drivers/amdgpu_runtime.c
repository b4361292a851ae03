/* The AMDGPU backend by itself, on two devices of the test double: the order of commands, kernels
 * and their errors, the cache of programs, the current device. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"

#include "tests/doubles/cuda_double.h"

/* ---- commands and kernels -------------------------------------------------------------------- */

/* In whichever order the double runs the streams, commands wait for their events. */
TEST(commands_wait)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1"};
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("VGPU_SCHEDULE", schedules[i]));
        order();
    }
    WORKS(restart("VGPU_SCHEDULE", NULL));
}

TEST(devices) { two_devices("AMDGPU", "amdgpu"); }

TEST(data_moves)
{
    transfers();
    copies();
}

TEST(arguments_of_launches) { launches(); }

TEST(kernels_with_double) { f64_kernels(); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, "hiprtcCompileProgram");
    CANNOT_BE(STEP_WRONG, "error");            /* from the compiler's message */
    CANNOT_BE(STEP_WIDE, "scale", "16777216");
    CANNOT_BE(STEP_NAMELESS, "hipModuleGetFunction", "hipErrorNotFound", "500", "nothing");
    forget_calls();                             /* the double counts the missing name as an error */
}

TEST(programs_are_kept)
{
    keep_programs("VGPU_DEVICES", "2", "2");
    forget_calls();                             /* the double counts the damaged image */
}

/* ---- the current device ---------------------------------------------------------------------- */

/* The caller's current device stays current through every call. */
TEST(current_device)
{
    void *library = dlopen(WB_TEST_HIP_DOUBLE "/libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    int (*get)(int *), (*set)(int), now = -1;
    *(void **)&get = dlsym(library, "hipGetDevice");
    *(void **)&set = dlsym(library, "hipSetDevice");
    for (int mine = 0; mine < 2; mine++) {
        assert_int_equal(set(mine), 0);
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
        assert_int_equal(get(&now), 0);
        assert_int_equal(now, mine);
    }
    assert_int_equal(set(0), 0);
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
    return test_begin(&wb__amd_backend);
}

int main(void) { return run_cases(begin, NULL); }
