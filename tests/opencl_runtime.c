/* The OpenCL backend by itself, on two devices of PoCL's: the order of commands, kernels and what
 * is wrong with them, programs that are kept, threads, fork. */
#include "test.h"

#define TEST_OPENCL
#include "text_runtime.h"

/* ---- the order of commands ------------------------------------------------------------------- */

static void test_order(void **state)
{
    order();
}

/* Once more with transfers through pinned memory, as on a device with memory of its own. */
static void test_staged_order(void **state)
{
    check(restart("WEBER_OPENCL_STAGING", "1"));
    order();
    check(restart("WEBER_OPENCL_STAGING", NULL));
}

/* Memory that no command uses is written while a kernel runs: it need not end before. */
static void test_upload_beside_kernels(void **state)
{
    const wb_device *d = dev[0];
    float x[64], y[64];
    fill(x, 64, 1);
    wb__kernel *slow = prepared(d, STEP_SLOW, 64);
    void *from = take(d, sizeof x), *to = take(d, sizeof x), *other = take(d, sizeof x);
    check(b->upload(d, from, 0, x, sizeof x));
    launch(d, slow, from, to, NULL, 0, 0);
    check(b->wait(d));                          /* it is compiled */
    const double begins = wb__now();
    for (int i = 0; i < 4; i++) launch(d, slow, from, to, NULL, 0, 0);
    check(b->upload(d, other, 0, x, sizeof x));
    const double uploaded = wb__now() - begins;
    check(b->wait(d));
    const double waited = wb__now() - begins;
    if (uploaded > waited / 2) fail_msg("%g s of %g s", uploaded, waited);
    check(b->download(d, y, other, 0, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    b->destroy(d, slow);
    b->release(d, from, sizeof x);
    b->release(d, to, sizeof x);
    b->release(d, other, sizeof x);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void test_kernels_that_cannot_be(void **state)
{
    static const struct { test_step step; const char *part; } wrong[] = {
        {STEP_WRONG, "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11): "},
        {STEP_WRONG, "error:"},                         /* the compiler's words */
        {STEP_WIDE, "kernel scale wants 16777216 items"},
        {STEP_NAMELESS, "clCreateKernel: CL_INVALID_KERNEL_NAME (-46): kernel nothing"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        const wb__step step = test_step_of(wrong[i].step, N);
        wb__kernel *k = (wb__kernel *)&step;
        const int status = b->prepare(dev[0], &step, &k);
        assert_null(k);
        expect_error(status, WB_ERROR_DEVICE, wrong[i].part);
    }
}

/* Compiled once a device and text; the next process finds the binary; one that the driver refuses
 * is compiled again. */
static void test_programs_are_kept(void **state)
{
    keep_programs("WEBER_OPENCL_BINARIES", "1", NULL);
    b->destroy(dev[0], prepared(dev[0], STEP_SCALE, N));        /* PoCL keeps its own */
    assert_int_equal(test_kept, 0);
}

int main(void)
{
    setenv("POCL_DEVICES", "pthread pthread", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_staged_order),
        cmocka_unit_test(test_upload_beside_kernels),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_kernels_that_cannot_be),
        cmocka_unit_test(test_programs_are_kept),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_nothing_left),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
