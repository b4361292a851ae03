/* The GPU runtime's commands, on a driver in host memory (test_gpu.h): their order, kernels and
 * their errors, the cache of programs, lost devices, threads, fork. */
#include "by_hand.h"
#include "test_gpu.h"

#include "backend/gpu/runtime/runtime.h"

#include <pthread.h>

/* ---- WEBER_DEBUG=sync ------------------------------------------------------------------------ */

/* In a process of its own, since a process reads WEBER_DEBUG once.  With `sync` the launch itself
 * fails, and its error describes the command; a graph could not do this, so none is made. */
static int sync_goes_wrong(void)
{
    setenv("WEBER_DEBUG", "sync", 1);
    b = &test_gpu;
    if (b->start()) return 1;
    const wb_device *d = b->device(0);
    const wb__step step = test_step_of(STEP_SLOW, 40000000);
    const wb__number one = {.f = 1};
    wb__kernel *k = NULL;
    void *buffers[] = {b->allocate(d, 64), b->allocate(d, 64)};
    if (!buffers[0] || !buffers[1] || b->prepare(d, &step, &k)) return 2;
    const wb__kernel *kernels[] = {k};
    const wb__buffer kinds[] = {{.kind = WB__BUFFER_INPUT, .bytes = 64},
                                {.kind = WB__BUFFER_RESULT, .bytes = 64}};
    const wb__sequence s = {.n_kernels = 1, .kernels = kernels, .n_buffers = 2, .buffers = kinds};
    wb__graph *graph = NULL;
    if (b->graph(d, &s, &graph) != WB_ERROR_UNSUPPORTED) return 3;
    if (!b->launch(d, k, buffers, NULL, NULL, 0, &one)) return 4;
    return HAS_FACTS(wb_error(), "memory:0", "sync", "LOST", "5", "copy", "[40000000] f32",
                     "(test)", "kernel slow", "625000 x 1 x 1", "64 x 1 x 1")
               ? 0
               : 5;
}

TEST(each_launch_is_waited_for) { assert_int_equal(in_child(sync_goes_wrong), 0); }

/* ---- the order of commands ------------------------------------------------------------------- */

/* The test before runs in a child, which has no device once the backend has started here. */
TEST(begins) { assert_int_equal(test_begin(&test_gpu), 0); }

/* Commands wait for the commands that they depend on, whichever queue runs first. */
static void any_order(void)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("TEST_GPU_SCHEDULE", schedules[i]));
        order();
    }
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

TEST(commands_wait_for_each_other) { gpu_each(any_order); }

/* Pinned memory of the caller that is uploaded, and then receives a download: the upload has read
 * it before. */
TEST(pinned_memory_in_turns)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:4"};
    float x[N], y[N];
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("TEST_GPU_SCHEDULE", schedules[i]));
        const wb_device *d = dev[0];
        wb__gpu_device *g = d->state;
        wb__gpu_staging s = {0};
        void *from = take(d, BYTES), *to = take(d, BYTES);
        WORKS(wb__gpu_enter(g));
        WORKS(g->driver->new_event(&s.event[0]));
        WORKS(g->driver->pin(g, &s, BYTES));
        wb__gpu_leave(g);
        fill(x, N, 5);
        WORKS(b->upload(d, from, 0, x, BYTES));
        fill((float *)(void *)s.at, N, 70);
        WORKS(wb__gpu_upload_pinned(d, to, 0, &s, BYTES));
        WORKS(wb__gpu_download_pinned(d, &s, from, 0, BYTES));
        assert_memory_equal(s.at, x, BYTES);
        fill(x, N, 70);
        WORKS(b->download(d, y, to, 0, BYTES));
        assert_memory_equal(y, x, BYTES);
        WORKS(wb__gpu_enter(g));
        g->driver->drop_event(s.event[0]);
        g->driver->unpin(g, &s);
        wb__gpu_leave(g);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
    }
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

/* A number is read as it is after the commands so far, and the host does not wait for the commands
 * that follow, which a lazy device then has not begun. */
static void small_reads(void)
{
    static const char *const schedules[] = {"lazy", "round", "latest", "random:1"};
    enum { LATER = 5 };
    float x[N], got = 0;
    fill(x, N, 3);
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        WORKS(restart("TEST_GPU_SCHEDULE", schedules[i]));
        const wb_device *d = dev[0];
        wb__kernel *scale = prepared(d, STEP_SCALE, N);
        void *from = take(d, BYTES), *to = take(d, BYTES), *later = take(d, BYTES), *read = NULL;
        WORKS(b->upload(d, from, 0, x, BYTES));
        launch(d, scale, from, to, NULL, 0, 2);
        WORKS(b->begin_read(d, to, 7 * sizeof got, sizeof got, &read));
        for (int k = 0; k < LATER; k++) launch(d, scale, to, later, NULL, 0, 2);
        WORKS(b->end_read(d, read, &got));
        assert_true(got == 2 * x[7]);
        if (!i) assert_true(gpu_commands() >= LATER);
        WORKS(b->wait(d));
        b->destroy(d, scale);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        b->release(d, later, BYTES);
    }
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

TEST(small_reads_wait_for_no_later_command) { gpu_each(small_reads); }

/* Batches are uploaded into two blocks in turn while kernels read earlier batches. */
TEST(uploads_in_turns)
{
    static const char *const schedules[] = {"latest", "lazy", "random:3"};
    enum { BATCHES = 40, SIZE = 30000 };        /* 120,000 bytes: not a small upload */
    static float x[SIZE], y[SIZE];
    for (size_t s = 0; s < WB__COUNT(schedules); s++) {
        WORKS(restart("TEST_GPU_SCHEDULE", schedules[s]));
        const wb_device *d = dev[0];
        wb__kernel *scale = prepared(d, STEP_SCALE, SIZE);
        void *batch[2], *to[BATCHES];
        for (int i = 0; i < 2; i++) batch[i] = take(d, sizeof x);
        for (int i = 0; i < BATCHES; i++) to[i] = take(d, sizeof x);
        for (int i = 0; i < BATCHES; i++) {
            fill(x, SIZE, (float)i);
            WORKS(b->upload(d, batch[i & 1], 0, x, sizeof x));
            launch(d, scale, batch[i & 1], to[i], NULL, 0, 2);
        }
        for (int i = 0; i < BATCHES; i++) {
            fill(x, SIZE, (float)i);
            WORKS(b->download(d, y, to[i], 0, sizeof y));
            for (int k = 0; k < SIZE; k++) assert_true(y[k] == 2 * x[k]);
            b->release(d, to[i], sizeof x);
        }
        for (int i = 0; i < 2; i++) b->release(d, batch[i], sizeof x);
        b->destroy(d, scale);
    }
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

/* Neither an upload nor a launch after it makes the host wait for earlier kernels. */
TEST(nothing_waits)
{
    const wb_device *d = dev[0];
    float x[N];
    fill(x, N, 1);
    WORKS(restart("TEST_GPU_SCHEDULE", "lazy"));
    wb__kernel *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES);
    WORKS(b->upload(d, from, 0, x, BYTES));
    WORKS(b->wait(d));
    launch(d, scale, from, to, NULL, 0, 2);
    const int64_t waiting = gpu_commands();
    assert_true(waiting > 0);
    for (int i = 0; i < 5; i++) {
        WORKS(b->upload(d, from, 0, x, BYTES));
        launch(d, scale, from, to, NULL, 0, 2);
    }
    assert_true(gpu_commands() > waiting);
    WORKS(b->wait(d));
    assert_int_equal(gpu_commands(), 0);
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
}

/* ---- kernels --------------------------------------------------------------------------------- */

TEST(arguments_of_launches) { gpu_each(launches); }

static void workspace(void)
{
    const wb_device *d = dev[1];
    float x[N], y[N], around[3 * N];
    fill(x, N, 0);
    memset(around, 0, sizeof around);
    void *from = take(d, BYTES), *to = take(d, BYTES), *arena = take(d, sizeof around);
    WORKS(b->upload(d, from, 0, x, BYTES));
    WORKS(b->upload(d, arena, 0, around, sizeof around));
    wb__kernel *k = prepared(d, STEP_TWICE, N);
    assert_int_equal(k->workspace, BYTES);
    for (int place = 0; place < 2; place++) {
        launch(d, k, from, to, arena, (size_t)(2 - place) * 1024, 3);
        WORKS(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * (x[i] + 1));
        WORKS(b->download(d, around, arena, 0, sizeof around));
        const int at = (2 - place) * 256;
        for (int i = 0; i < 3 * N; i++)
            assert_true(around[i] == (i >= at && i < at + N ? x[i - at] + 1
                                      : i >= at + N && i < 512 + N ? x[i - 512] + 1 : 0));
    }
    b->destroy(d, k);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, arena, sizeof around);
}

TEST(workspaces) { gpu_each(workspace); }

TEST(kernels_with_double) { gpu_each(f64_kernels); }

TEST(kernels_that_cannot_be)
{
    CANNOT_BE(STEP_WRONG, "memory", "compile", "error", "such_word");
    CANNOT_BE(STEP_WIDE, "memory:0", "scale", "16777216", "device 1", "1024");
    CANNOT_BE(STEP_NAMELESS, "memory:0", "function", "NO_SUCH_NAME", "3", "nothing");
}

static void kept_on_disk(void) { keep_programs("TEST_GPU_IMAGES", "1", NULL); }

TEST(programs_are_kept)
{
    gpu_each(kept_on_disk);
    WORKS(restart("TEST_GPU_IMAGES", "0"));
    b->destroy(dev[0], prepared(dev[0], STEP_SCALE, N));
    assert_int_equal(test_kept, 0);
    WORKS(restart("TEST_GPU_IMAGES", NULL));
}

/* ---- lost devices ---------------------------------------------------------------------------- */

/* A kernel that accesses memory out of bounds makes the device unusable: each later call fails with
 * the first cause; releases are harmless; the other device works; and so does this device after it
 * is opened anew. */
TEST(lost_device)
{
    const wb_device *d = dev[0];
    float x[N];
    fill(x, N, 1);
    void *from = take(d, BYTES), *to = take(d, BYTES), *small = take(d, 64);
    WORKS(b->upload(d, from, 0, x, BYTES));
    wb__kernel *far = prepared(d, STEP_SLOW, 40000000), *scale = prepared(d, STEP_SCALE, N);
    void *buffers[] = {from, small};
    const wb__number one = {.f = 1};
    int status = b->launch(d, far, buffers, NULL, NULL, 0, &one);
    if (!status) status = b->wait(d);
    EXPECT_ERROR(status, WB_ERROR_DEVICE, "LOST", "5");
    EXPECT_ERROR(b->wait(d), WB_ERROR_DEVICE, "memory:0", "lost");
    EXPECT_ERROR(b->upload(d, from, 0, x, BYTES), WB_ERROR_DEVICE, "LOST");
    EXPECT_ERROR(b->launch(d, scale, buffers, NULL, NULL, 0, &one), WB_ERROR_DEVICE, "memory:0",
                 "lost");
    assert_null(b->allocate(d, 100));
    EXPECT_ERROR(wb_error_code(), WB_ERROR_DEVICE, "memory:0", "lost");
    void *other = take(dev[1], BYTES);
    WORKS(b->upload(dev[1], other, 0, x, BYTES));
    WORKS(b->wait(dev[1]));
    b->release(dev[1], other, BYTES);
    b->destroy(d, far);
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, small, 64);
    b->trim(d);
    WORKS(restart("TEST_GPU_SCHEDULE", NULL));
    from = take(dev[0], BYTES);
    WORKS(b->upload(dev[0], from, 0, x, BYTES));
    WORKS(b->wait(dev[0]));
    b->release(dev[0], from, BYTES);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 60 };
static wb__kernel *shared[2];

/* Each thread has its own memory; the threads of a device share kernels. */
static void *work(void *argument)
{
    const int id = (int)(intptr_t)argument;
    const wb_device *d = dev[id & 1];
    float x[N], y[N];
    intptr_t wrong = 0;
    for (int turn = 0; turn < TURNS && !wrong; turn++) {
        const wb__number factor = {.f = id + turn};
        void *from = b->allocate(d, BYTES), *to = b->allocate(d, BYTES);
        void *buffers[] = {from, to};
        fill(x, N, (float)(id * 100 + turn));
        wrong |= !from || !to;
        if (!wrong) wrong |= b->upload(d, from, 0, x, BYTES);
        if (!wrong) wrong |= b->launch(d, shared[id & 1], buffers, NULL, NULL, 0, &factor);
        if (!wrong) wrong |= b->copy(d, from, 0, d, to, 0, BYTES);
        if (!wrong) wrong |= b->download(d, y, from, 0, BYTES);
        for (int i = 0; i < N && !wrong; i++) wrong |= y[i] != (float)(id + turn) * x[i];
        if (turn % 8 == 7) b->trim(d);
        if (turn % 8 == 3 && !wrong) {
            const wb__step step = test_step_of(turn % 16 == 3 ? STEP_TWICE : STEP_SCALE, N);
            wb__kernel *k = NULL;
            wrong |= b->prepare(d, &step, &k);
            b->destroy(d, k);
        }
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
    }
    if (wrong) print_error("thread %d: %s\n", id, wb_error());
    return (void *)wrong;
}

static void in_threads(void)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < 2; i++) shared[i] = prepared(dev[i], STEP_SCALE, N);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < 2; i++) b->destroy(dev[i], shared[i]);
}

TEST(threads) { gpu_each(in_threads); }

/* ---- fork ------------------------------------------------------------------------------------ */

static int refused(int status) { return !status || !HAS_FACTS(wb_error(), "forked"); }

static void *held;
static wb__kernel *kernel;

/* In a child process each call that needs the driver fails, and releases do nothing. */
static int child_goes_wrong(void)
{
    const wb_device *d = dev[0];
    float x[N] = {0};
    wb_device_memory m;
    wb__kernel *another = NULL;
    void *buffers[] = {held, held};
    const wb__step step = test_step_of(STEP_TWICE, N);
    const wb__number two = {.f = 2};
    int wrong = b->allocate(d, BYTES) || !HAS_FACTS(wb_error(), "forked");
    wrong |= refused(b->upload(d, held, 0, x, BYTES)) << 1;
    wrong |= refused(b->download(d, x, held, 0, BYTES)) << 2;
    wrong |= refused(b->copy(d, held, 0, d, held, 0, BYTES)) << 3;
    wrong |= refused(b->prepare(d, &step, &another)) << 4;
    wrong |= refused(b->launch(d, kernel, buffers, NULL, NULL, 0, &two)) << 5;
    wrong |= (refused(b->wait(d)) | refused(b->memory(d, &m)) | refused(b->start())) << 6;
    b->destroy(d, kernel);
    b->release(d, held, BYTES);
    b->trim(d);
    b->stop();
    return wrong;
}

static void forked(void)
{
    held = take(dev[0], BYTES);
    kernel = prepared(dev[0], STEP_SCALE, N);
    assert_int_equal(in_child(child_goes_wrong), 0);
    float x[N], y[N];                               /* the parent is not affected */
    fill(x, N, 3);
    WORKS(b->upload(dev[0], held, 0, x, BYTES));
    WORKS(b->download(dev[0], y, held, 0, BYTES));
    assert_memory_equal(x, y, BYTES);
    b->destroy(dev[0], kernel);
    b->release(dev[0], held, BYTES);
}

TEST(a_child_has_no_device) { gpu_each(forked); }

TEST(nothing_is_left)
{
    test_end();
    assert_int_equal(gpu_left(), 0);
}
