/* The AMDGPU backend by itself, on two devices of the test double: what stream_runtime.h tests,
 * moves of data and the current device. */
#define COMPILE "hiprtcCompileProgram"
#define NO_KERNEL "hipModuleGetFunction", "hipErrorNotFound", "500", "nothing"
#include "tests/runtime/stream_runtime.h"

TEST(devices) { two_devices("AMDGPU", "amdgpu"); }

TEST(data_moves)
{
    transfers();
    copies();
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
        use_both();
        assert_int_equal(get(&now), 0);
        assert_int_equal(now, mine);
    }
    assert_int_equal(set(0), 0);
}

TEST(nothing_is_left) { end_empty(); }

static int begin(void **state) { return begin_two(&wb__amd_backend); }

int main(void) { return run_cases(begin, NULL); }
