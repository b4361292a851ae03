/* Which GPUs multiply 16-bit fragments by OpenCL (matrix_lanes in device.c), on PoCL, which
 * doubles/opencl.c presents as a GPU of Intel; and messages of drivers. */
#include "tests/runtime/by_hand.h"

#include "backend/gpu/runtime/runtime.h"
#include "tests/doubles/opencl_double.h"

/* ---- messages -------------------------------------------------------------------------------- */

static int open_device(void)
{
    const wb__backend *cl = &wb__cl_backend;
    return cl->start() || !cl->allocate(cl->device(0), 4);
}

/* The double has a message without the caller's context, when a device is opened. */
TEST(message_without_context) { assert_int_equal(in_child(open_device), 0); }

/* ---- matrix units ---------------------------------------------------------------------------- */

#define SUBGROUPS " cl_intel_subgroups"
#define SIZE " cl_intel_required_subgroup_size"
#define MATRIX " cl_intel_subgroup_matrix_multiply_accumulate"

/* The items of a wave that multiplies fragments, with OPENCL_INTEL=`intel`; NULL: unset. */
static int lanes_of(const char *intel)
{
    b = &wb__cl_backend;
    if (intel) setenv("OPENCL_INTEL", intel, 1);
    else unsetenv("OPENCL_INTEL");
    if (b->start()) fail_msg("%s", wb_error());
    const wb__gpu_device *d = b->device(0)->state;
    const int lanes = d->target.fragments_bf16;
    assert_int_equal(d->target.fragments_f16, lanes);
    assert_int_equal(d->target.in_turn, !intel);
    b->stop();
    return lanes;
}

TEST(devices_with_matrix_units)
{
    assert_int_equal(lanes_of(NULL), 0);
    assert_int_equal(lanes_of("16" SUBGROUPS SIZE MATRIX), 16);
    assert_int_equal(lanes_of("8" MATRIX SIZE " cl_khr_fp16" SUBGROUPS " "), 8);
    assert_int_equal(lanes_of("32" SUBGROUPS SIZE MATRIX), 0);
    assert_int_equal(lanes_of("16" SIZE MATRIX), 0);
    assert_int_equal(lanes_of("16" SUBGROUPS MATRIX), 0);
    assert_int_equal(lanes_of("16" SUBGROUPS SIZE), 0);
    assert_int_equal(lanes_of("16" SUBGROUPS SIZE MATRIX "_tf32"), 0);
    assert_int_equal(lanes_of("16" SUBGROUPS "_short" SIZE MATRIX), 0);
    setenv("WEBER_OPENCL_FRAGMENTS", "0", 1);
    assert_int_equal(lanes_of("16" SUBGROUPS SIZE MATRIX), 0);
    unsetenv("WEBER_OPENCL_FRAGMENTS");
}

static int begin(void **unused)
{
    open_double();
    return 0;
}

int main(void) { return run_cases(begin, NULL); }
