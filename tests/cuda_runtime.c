/* The CUDA backend by itself, on two devices of the test double: the order of commands, kernels and
 * what is wrong with them, programs that are kept, contexts, lost devices, threads, fork. */
#include "test.h"

#define TEST_CUDA
#include "text_runtime.h"

#include "cuda_double.h"

/* ---- WEBER_DEBUG=sync ------------------------------------------------------------------------ */

/* A process reads WEBER_DEBUG once, so in one of its own: the launch itself fails, and the error says
 * of what; a graph, which would not, is not made. */
static int sync_goes_wrong(void)
{
    static const char *const parts[] = {
        "cuda:0: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): copy [40000000] f32", "(test)",
        "kernel slow, 625000 x 1 x 1 groups of 64 x 1 x 1 items"};
    setenv("WEBER_DEBUG", "sync", 1);
    unsetenv("VGPU_STRICT");                    /* the kernel is wrong, as it is meant to be */
    b = &TEST_BACKEND;
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
    for (size_t i = 0; i < WB__COUNT(parts); i++)
        if (!strstr(wb_error(), parts[i])) return 5;
    return 0;
}

static void test_sync(void **state)
{
    int status = -1;
    const pid_t process = fork();
    if (!process) {
        alarm(60);
        const int wrong = sync_goes_wrong();
        if (wrong) fprintf(stderr, "%d: %s\n", wrong, wb_error());
        _exit(wrong);
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
}

/* ---- the order of commands ------------------------------------------------------------------- */

/* Whichever stream the double runs first: what must wait, waits. */
static void test_order(void **state)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < WB__COUNT(schedules); i++) {
        check(restart("VGPU_SCHEDULE", schedules[i]));
        order();
    }
    check(restart("VGPU_SCHEDULE", NULL));
}

/* Batches are uploaded into memory that takes turns, while kernels read those before. */
static void test_uploads_in_turns(void **state)
{
    static const char *const schedules[] = {"latest", "lazy", "random:3"};
    enum { BATCHES = 40, SIZE = 30000 };        /* 120,000 bytes: not a small one */
    static float x[SIZE], y[SIZE];
    for (size_t s = 0; s < WB__COUNT(schedules); s++) {
        check(restart("VGPU_SCHEDULE", schedules[s]));
        const wb_device *d = dev[0];
        wb__kernel *scale = prepared(d, STEP_SCALE, SIZE);
        void *batch[2], *to[BATCHES];
        for (int i = 0; i < 2; i++) batch[i] = take(d, sizeof x);
        for (int i = 0; i < BATCHES; i++) to[i] = take(d, sizeof x);
        for (int i = 0; i < BATCHES; i++) {
            fill(x, SIZE, (float)i);
            check(b->upload(d, batch[i & 1], 0, x, sizeof x));
            launch(d, scale, batch[i & 1], to[i], NULL, 0, 2);
        }
        for (int i = 0; i < BATCHES; i++) {
            fill(x, SIZE, (float)i);
            check(b->download(d, y, to[i], 0, sizeof y));
            for (int k = 0; k < SIZE; k++) assert_true(y[k] == 2 * x[k]);
            b->release(d, to[i], sizeof x);
        }
        for (int i = 0; i < 2; i++) b->release(d, batch[i], sizeof x);
        b->destroy(d, scale);
    }
    check(restart("VGPU_SCHEDULE", NULL));
}

/* Neither an upload nor a launch behind it makes the host wait for kernels before it. */
static void test_nothing_waits(void **state)
{
    const wb_device *d = dev[0];
    float x[N];
    fill(x, N, 1);
    check(restart("VGPU_SCHEDULE", "lazy"));
    wb__kernel *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES);
    check(b->upload(d, from, 0, x, BYTES));
    check(b->wait(d));
    launch(d, scale, from, to, NULL, 0, 2);
    const int64_t waiting = books().commands;
    assert_true(waiting > 0);
    for (int i = 0; i < 5; i++) {
        check(b->upload(d, from, 0, x, BYTES));
        launch(d, scale, from, to, NULL, 0, 2);
    }
    assert_true(books().commands > waiting);
    check(b->wait(d));
    assert_int_equal(books().commands, 0);
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    check(restart("VGPU_SCHEDULE", NULL));
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void test_kernels_that_cannot_be(void **state)
{
    static const struct { test_step step; const char *part; } wrong[] = {
        {STEP_WRONG, "nvrtcCompileProgram: "},
        {STEP_WRONG, "error:"},                         /* the compiler's words */
        {STEP_WIDE, "kernel scale wants 16777216 items"},
        {STEP_NAMELESS, "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500): kernel nothing"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        const wb__step step = test_step_of(wrong[i].step, N);
        wb__kernel *k = (wb__kernel *)&step;
        const int status = b->prepare(dev[0], &step, &k);
        assert_null(k);
        expect_error(status, WB_ERROR_DEVICE, wrong[i].part);
    }
    forget_calls();                             /* a missing name is a wrong use to the double */
}

/* Compiled once a device and text; the next process finds the image; one that the driver refuses
 * is compiled again. */
static void test_programs_are_kept(void **state)
{
    keep_programs("VGPU_DEVICES", "2", "2");
    forget_calls();                             /* the damaged image was a wrong use */
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* The caller has a context of its own: it stays current through every call. */
static void test_contexts(void **state)
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
    for (int turn = 0; turn < 2; turn++) {      /* without one, and with the other device's */
        if (turn) assert_int_equal(retain(&mine, 1), 0);
        if (turn) assert_int_equal(push(mine), 0);
        float x[N], y[N];
        fill(x, N, 1);
        void *from = take(dev[0], BYTES), *to = take(dev[0], BYTES), *other = take(dev[1], BYTES);
        check(b->upload(dev[0], from, 0, x, BYTES));
        wb__kernel *k = prepared(dev[0], STEP_SCALE, N);
        launch(dev[0], k, from, to, NULL, 0, 2);
        check(b->copy(dev[1], other, 0, dev[0], to, 0, BYTES));
        check(b->download(dev[1], y, other, 0, BYTES));
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

/* A kernel that leaves its memory ends the device for this process: that is said, again and again,
 * with the first cause; releases are harmless; the other device works; and so does this one anew. */
static void test_lost_device(void **state)
{
    const wb_device *d = dev[0];
    float x[N];
    fill(x, N, 1);
    void *from = take(d, BYTES), *to = take(d, BYTES), *small = take(d, 64);
    check(b->upload(d, from, 0, x, BYTES));
    wb__kernel *far = prepared(d, STEP_SLOW, 40000000), *scale = prepared(d, STEP_SCALE, N);
    void *buffers[] = {from, small};
    const wb__number one = {.f = 1};
    int status = b->launch(d, far, buffers, NULL, NULL, 0, &one);
    if (!status) status = b->wait(d);
    expect_error(status, WB_ERROR_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    expect_error(b->wait(d), WB_ERROR_DEVICE, "cuda:0: the device was lost to this process: ");
    expect_error(b->upload(d, from, 0, x, BYTES), WB_ERROR_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
    expect_error(b->launch(d, scale, buffers, NULL, NULL, 0, &one), WB_ERROR_DEVICE, "restarted");
    assert_null(b->allocate(d, 100));
    expect_error(wb_error_code(), WB_ERROR_DEVICE, "was lost");
    void *other = take(dev[1], BYTES);
    check(b->upload(dev[1], other, 0, x, BYTES));
    check(b->wait(dev[1]));
    b->release(dev[1], other, BYTES);
    b->destroy(d, far);
    b->destroy(d, scale);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, small, 64);
    b->trim(d);
    check(restart("VGPU_DEVICES", "2"));
    forget_calls();                             /* the kernel was a wrong use, as it was meant */
    from = take(dev[0], BYTES);
    check(b->upload(dev[0], from, 0, x, BYTES));
    check(b->wait(dev[0]));
    b->release(dev[0], from, BYTES);
}

int main(void)
{
    open_double();
    setenv("VGPU_DEVICES", "2", 1);
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(test_sync),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_uploads_in_turns),
        cmocka_unit_test(test_nothing_waits),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_kernels_that_cannot_be),
        cmocka_unit_test(test_programs_are_kept),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_books),
    };
    const int failed = cmocka_run_group_tests_name("in a process of its own", alone, NULL, NULL);
    return failed + cmocka_run_group_tests_name("on two devices", tests, begin, NULL);
}
