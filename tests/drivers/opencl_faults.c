/* OpenCL's driver as doubles/opencl.c has it: its blocking writes end late, and every call fails
 * once (faults_by_call.h). */
#include "tests/runtime/faults_by_call.h"

#include "tests/doubles/opencl_double.h"

/* ---- writes that end late -------------------------------------------------------------------- */

TEST(begins)
{
    setenv("WEBER_OPENCL_STAGING", "0", 1);
    assert_int_equal(test_begin(&wb__cl_backend), 0);
}

/* The data of an upload are there for the kernel that follows it on another queue. */
TEST(kernels_see_uploads)
{
    const wb_device *d = dev[0];
    float x[N], y[N];
    wb__kernel *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES);
    for (int turn = 0; turn < 20; turn++) {
        fill(x, N, (float)turn);
        WORKS(b->upload(d, from, 0, x, BYTES));
        launch(d, scale, from, to, NULL, 0, 2);
        WORKS(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * x[i]);
    }
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
}

/* An upload on the queue of the kernels ends before the next upload, which is on another queue: the
 * kernel between them writes to `other` first. */
TEST(uploads_keep_their_order)
{
    const wb_device *d = dev[0];
    float x[N], y[N];
    wb__kernel *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES), *other = take(d, BYTES);
    fill(x, N, 1);
    for (int turn = 0; turn < 20; turn++) {
        WORKS(b->upload(d, from, 0, x, BYTES));
        launch(d, scale, from, to, NULL, 0, 2);
        WORKS(b->upload(d, from, 0, x, BYTES));         /* behind the first kernel */
        launch(d, scale, from, other, NULL, 0, 3);
        WORKS(b->upload(d, from, 0, x, BYTES));         /* behind the second */
        WORKS(b->upload(d, other, 0, x, BYTES));
        WORKS(b->download(d, y, other, 0, BYTES));
        assert_memory_equal(x, y, BYTES);
        WORKS(b->wait(d));
    }
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, other, BYTES);
}

TEST(all_orders)
{
    transfers();
    copies();
    order();
    launches();
}

TEST(ends)
{
    test_end();
    if (!nothing_left()) fail_msg("objects are left");
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static int64_t failed(char text[200]) { return calls_failed(text); }

static const calls_that_fail calls = {&wb__cl_backend, FAIL, failed, nothing_left};

static void with_staging(const char *staging, bool all, bool fresh)
{
    setenv("WEBER_OPENCL_STAGING", staging, 1);
    fail_each(&calls, all, fresh, 100);
}

TEST(once_from_text) { with_staging("0", false, true); }

TEST(once_from_binaries) { with_staging("0", false, false); }

TEST(once_staged) { with_staging("1", false, false); }

TEST(from_there_on)
{
    with_staging("0", true, false);
    with_staging("1", true, false);
    test_disk_empty();
}

int main(void)
{
    open_double();
    setenv("POCL_DEVICES", "pthread pthread", 1);
    setenv("WEBER_OPENCL_BINARIES", "1", 1);
    return run_all_cases();
}
