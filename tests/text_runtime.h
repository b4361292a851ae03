/* Tests of commands and kernels that hold for every backend that compiles text. */
#ifndef WB_TEST_TEXT_RUNTIME_H
#define WB_TEST_TEXT_RUNTIME_H

#include "text_program.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* A slow kernel is still running when its memory is written, released, handed out and written. */
static void order(void)
{
    const wb_device *d = dev[0];
    float x[N], y[N], z[N];
    fill(x, N, 1);
    fill(z, N, 5);
    wb__kernel *slow = prepared(d, STEP_SLOW, N), *scale = prepared(d, STEP_SCALE, N);
    void *from = take(d, BYTES), *to = take(d, BYTES), *third = take(d, BYTES);
    check(b->upload(d, from, 0, x, BYTES));
    for (int turn = 0; turn < 2; turn++) {      /* the first one compiles */
        launch(d, slow, from, to, NULL, 0, 0);
        launch(d, scale, to, third, NULL, 0, 2);
        check(b->upload(d, from, 0, z, BYTES)); /* read by the slow one first */
        b->release(d, to, BYTES);
        void *again = take(d, BYTES);           /* the same memory: the only one of its size */
        assert_ptr_equal(again, to);
        check(b->upload(d, again, 0, z, BYTES));
        check(b->download(d, y, again, 0, BYTES));
        assert_memory_equal(y, z, BYTES);
        check(b->download(d, y, third, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * (x[i] + 1));
        check(b->upload(d, from, 0, x, BYTES));
    }
    b->destroy(d, slow);                        /* a kernel that is on its way */
    slow = prepared(d, STEP_SLOW, N);
    launch(d, slow, from, to, NULL, 0, 0);
    b->destroy(d, slow);
    b->destroy(d, scale);
    check(b->wait(d));
    check(b->download(d, y, to, 0, BYTES));
    for (int i = 0; i < N; i++) assert_true(y[i] == x[i] + 1);
    b->release(d, from, BYTES);
    b->release(d, to, BYTES);
    b->release(d, third, BYTES);
    b->trim(d);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void test_launches(void **state)
{
    (void)state;
    float x[N], y[N];
    fill(x, N, 0);
    for (int i = 0; i < 2; i++) {
        const wb_device *d = dev[i];
        void *from = take(d, BYTES), *to = take(d, BYTES), *other = take(d, BYTES);
        check(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N);
        assert_string_equal(k->impl, "test");
        assert_int_equal(k->workspace, 0);
        for (int turn = 1; turn < 100; turn++) {        /* numbers and buffers change or do not */
            launch(d, k, from, turn % 5 == 4 ? other : to, NULL, 0, turn / 2);
            if (turn % 10) continue;
            check(b->download(d, y, to, 0, BYTES));
            for (int n = 0; n < N; n++) assert_true(y[n] == (float)(turn / 2) * x[n]);
        }
        b->release(d, other, BYTES);
        b->trim(d);             /* new memory may have the old one's place: it is set anew */
        other = take(d, BYTES);
        launch(d, k, from, other, NULL, 0, 7);
        check(b->download(d, y, other, 0, BYTES));
        for (int n = 0; n < N; n++) assert_true(y[n] == 7 * x[n]);
        b->destroy(d, k);
        b->destroy(d, NULL);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        b->release(d, other, BYTES);
    }
}

static void test_workspace(void **state)
{
    (void)state;
    const wb_device *d = dev[1];
    float x[N], y[N], around[3 * N];
    fill(x, N, 0);
    memset(around, 0, sizeof around);
    void *from = take(d, BYTES), *to = take(d, BYTES), *arena = take(d, sizeof around);
    check(b->upload(d, from, 0, x, BYTES));
    check(b->upload(d, arena, 0, around, sizeof around));
    wb__kernel *k = prepared(d, STEP_TWICE, N);
    assert_int_equal(k->workspace, BYTES);
    for (int place = 0; place < 2; place++) {
        launch(d, k, from, to, arena, (size_t)(2 - place) * 1024, 3);
        check(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * (x[i] + 1));
        check(b->download(d, around, arena, 0, sizeof around));
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

/* Constants are float in f32 kernels and double in those of f64. */
static void test_f64(void **state)
{
    (void)state;
    const wb_device *d = dev[0];
    const float one = 1;
    float y = 0;
    void *from = take(d, 4), *to = take(d, 4);
    check(b->upload(d, from, 0, &one, 4));
    wb__kernel *k = prepared(d, STEP_F64, 1);
    launch(d, k, from, to, NULL, 0, 0);
    check(b->download(d, &y, to, 0, 4));
    assert_true(y == 0x1p-40f);
    b->destroy(d, k);
    b->release(d, from, 4);
    b->release(d, to, 4);
}

/* ---- threads, processes ---------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 60 };
static wb__kernel *shared[2];

/* Each has memory of its own; kernels are shared by the threads of a device. */
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

static void test_threads(void **state)
{
    (void)state;
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

/* ---- fork ------------------------------------------------------------------------------------ */

static int refused(int status) { return !status || !strstr(wb_error(), "forked"); }

/* In a child each call that would need the driver fails, and what only gives back does nothing. */
static int child_goes_wrong(void *held, wb__kernel *kernel)
{
    const wb_device *d = dev[0];
    float x[N] = {0};
    wb_device_memory m;
    wb__kernel *another = NULL;
    void *buffers[] = {held, held};
    const wb__step step = test_step_of(STEP_TWICE, N);
    const wb__number two = {.f = 2};
    int wrong = b->allocate(d, BYTES) || !strstr(wb_error(), "forked");
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

static void test_fork(void **state)
{
    (void)state;
    void *held = take(dev[0], BYTES);
    wb__kernel *kernel = prepared(dev[0], STEP_SCALE, N);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(30);
        _exit(child_goes_wrong(held, kernel));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    float x[N], y[N];                               /* and here all is as it was */
    fill(x, N, 3);
    check(b->upload(dev[0], held, 0, x, BYTES));
    check(b->download(dev[0], y, held, 0, BYTES));
    assert_memory_equal(x, y, BYTES);
    b->destroy(dev[0], kernel);
    b->release(dev[0], held, BYTES);
}

/* A program is compiled once, then read from disk; a damaged one is compiled again.  The backend starts
 * anew with this variable set, at last to `after`. */
static void keep_programs(const char *name, const char *value, const char *after)
{
    float x[N], y[N];
    fill(x, N, 1);
    check(restart(name, value));
    test_disk_empty();
    for (int turn = 0; turn < 3; turn++) {
        const int before = test_kept;
        test_hits = 0;
        test_spoiled = turn == 2;
        const wb_device *d = dev[0];
        void *from = take(d, BYTES), *to = take(d, BYTES);
        check(b->upload(d, from, 0, x, BYTES));
        wb__kernel *k = prepared(d, STEP_SCALE, N), *same = prepared(d, STEP_SCALE, 10);
        launch(d, k, from, to, NULL, 0, 3);
        check(b->download(d, y, to, 0, BYTES));
        for (int i = 0; i < N; i++) assert_true(y[i] == 3 * x[i]);
        assert_int_equal(test_hits, turn > 0);
        assert_int_equal(test_kept - before, turn != 1);
        b->destroy(d, k);
        b->destroy(d, same);
        k = prepared(d, STEP_SCALE, 20);                /* still in memory */
        assert_int_equal(test_hits, turn > 0);
        b->destroy(d, k);
        b->release(d, from, BYTES);
        b->release(d, to, BYTES);
        check(restart(name, turn < 2 ? value : after));
    }
    test_spoiled = false;
    test_disk_empty();
}

#endif
