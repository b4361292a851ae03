/* The OpenCL backend by itself, on two devices of PoCL: the order of commands, kernels and their
 * errors, the cache of programs, threads, fork. */
#include "tests/runtime/by_hand.h"

#include "backend/backend.h"
#include "backend/opencl/opencl.h"

/* ---- the order of commands ------------------------------------------------------------------- */

TEST(commands_wait)
{
    order();
}

/* The same with transfers through pinned memory, as on a device with its own memory. */
TEST(staged_order)
{
    WORKS(restart("WEBER_OPENCL_STAGING", "1"));
    order();
    WORKS(restart("WEBER_OPENCL_STAGING", NULL));
}

/* An upload into memory that no command uses does not wait for a running kernel. */
TEST(upload_beside_kernels)
{
    const wb_device *d = dev[0];
    float x[64], y[64];
    fill(x, 64, 1);
    wb__kernel *slow = prepared(d, STEP_SLOW, 64);
    void *from = take(d, sizeof x), *to = take(d, sizeof x), *other = take(d, sizeof x);
    WORKS(b->upload(d, from, 0, x, sizeof x));
    launch(d, slow, from, to, NULL, 0, 0);
    WORKS(b->wait(d));                          /* the kernel is compiled now */
    const double begins = wb__now();
    for (int i = 0; i < 4; i++) launch(d, slow, from, to, NULL, 0, 0);
    WORKS(b->upload(d, other, 0, x, sizeof x));
    const double uploaded = wb__now() - begins;
    WORKS(b->wait(d));
    const double waited = wb__now() - begins;
    if (uploaded > waited / 2) fail_msg("%g s of %g s", uploaded, waited);
    WORKS(b->download(d, y, other, 0, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    b->destroy(d, slow);
    b->release(d, from, sizeof x);
    b->release(d, to, sizeof x);
    b->release(d, other, sizeof x);
}

/* ---- kernels --------------------------------------------------------------------------------- */

TEST(arguments_of_launches) { launches(); }

TEST(kernels_with_double) { f64_kernels(); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, "clBuildProgram", "CL_BUILD_PROGRAM_FAILURE", "-11");
    CANNOT_BE(STEP_WRONG, "error");            /* from the compiler's message */
    CANNOT_BE(STEP_WIDE, "scale", "16777216");
    CANNOT_BE(STEP_NAMELESS, "clCreateKernel", "CL_INVALID_KERNEL_NAME", "-46", "nothing");
}

static cl_int (*built)(cl_program, cl_uint, const cl_device_id *, const char *, cl_build_notify,
                       void *);
static int refused;

static cl_int refuses(cl_program p, cl_uint n, const cl_device_id *devices, const char *options,
                      cl_build_notify notify, void *context)
{
    if (!strstr(options, "WB_DECLARE")) return built(p, n, devices, options, notify, context);
    refused++;
    return CL_BUILD_PROGRAM_FAILURE;
}

/* If PoCL refuses the prelude's declarations, a device's kernels are compiled with PoCL's own. */
TEST(declarations_are_refused)
{
    WORKS(restart("WEBER_OPENCL_STAGING", NULL));
    built = wb__cl.BuildProgram;
    wb__cl.BuildProgram = refuses;
    f64_kernels();
    launches();
    wb__cl.BuildProgram = built;
    WORKS(restart("WEBER_OPENCL_STAGING", NULL));
    assert_in_range(refused, 1, 2);             /* once on each device */
}

/* A text is compiled once per device; the next process finds the binary; a text whose binary the
 * driver rejects is compiled again. */
TEST(programs_are_kept)
{
    keep_programs("WEBER_OPENCL_BINARIES", "1", NULL);
    b->destroy(dev[0], prepared(dev[0], STEP_SCALE, N));        /* not in Weber's cache */
    assert_int_equal(test_kept, 0);
}

TEST(nothing_is_left) { test_end(); }

static int begin(void **state)
{
    setenv("POCL_DEVICES", "pthread pthread", 1);
    return test_begin(&wb__cl_backend);
}

int main(void) { return run_cases(begin, NULL); }
