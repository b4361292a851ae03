/* The pool of threads: base/parallel.c. */
#include "test.h"

#include "base/base.h"
#include "base/modes.h"
#include "base/parallel.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5000 };

typedef struct {
    atomic_int calls[MOST];
    atomic_int_fast64_t sum;
} counts;

static void count(void *ctx, int64_t i)
{
    counts *c = ctx;
    atomic_fetch_add(&c->calls[i], 1);
    atomic_fetch_add(&c->sum, i);
}

/* Each index below n has been computed once, and none above. */
static bool is_right(int64_t n)
{
    counts *c = calloc(1, sizeof *c);
    bool right = c != NULL;
    if (right) wb__parallel(n, count, c);
    for (int64_t i = 0; i < MOST && right; i++) right = atomic_load(&c->calls[i]) == (i < n);
    free(c);
    return right;
}

static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 31, 32, 33, 100, 257, 4099, MOST};
static const int numbers[] = {1, 2, 3, 8, 40};

TEST(each_index_once)
{
    for (size_t t = 0; t < WB__COUNT(numbers); t++) {
        wb__set_threads(numbers[t]);
        for (int repeat = 0; repeat < 200; repeat++)
            for (size_t s = 0; s < WB__COUNT(sizes); s++) assert_true(is_right(sizes[s]));
    }
}

static void nested(void *ctx, int64_t i)
{
    (void)i;
    if (!is_right(100)) atomic_fetch_add((atomic_int *)ctx, 1);
}

TEST(nested_calls)
{
    atomic_int wrong = 0;
    wb__set_threads(3);
    for (int i = 0; i < 100; i++) wb__parallel(7, nested, &wrong);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* More callers than the pool has jobs. */

static void *call_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++)
        for (size_t s = 0; s < WB__COUNT(sizes); s++)
            if (!is_right(sizes[s])) return "an index is missing";
    return NULL;
}

TEST(many_callers)
{
    pthread_t callers[12];
    wb__set_threads(4);
    for (size_t i = 0; i < WB__COUNT(callers); i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, NULL), 0);
    for (size_t i = 0; i < WB__COUNT(callers); i++) {
        void *wrong;
        pthread_join(callers[i], &wrong);
        assert_null(wrong);
    }
}

/* A body that stops where a worker runs it, as a thread does that gets no processor. */
typedef struct {
    pthread_t caller;
    atomic_bool stopped, go_on;
    atomic_int ended;
} stop;

static void stop_worker(void *ctx, int64_t i)
{
    (void)i;
    stop *s = ctx;
    if (!pthread_equal(pthread_self(), s->caller)) {
        atomic_store(&s->stopped, true);
        while (!atomic_load(&s->go_on)) usleep(100);
        usleep(5000);                   /* the caller sleeps by now */
    } else
        while (!atomic_load(&s->stopped)) usleep(100);
    atomic_fetch_add(&s->ended, 1);
}

static void *stop_the_worker(void *ctx)
{
    stop *s = ctx;
    s->caller = pthread_self();
    wb__parallel(2, stop_worker, s);
    return (void *)(intptr_t)atomic_load(&s->ended);
}

TEST(nobody_waits_for_a_worker_that_has_not_begun)
{
    for (int repeat = 0; repeat < 20; repeat++) {
        stop s = {.stopped = false};
        pthread_t other;
        wb__set_threads(2);
        assert_int_equal(pthread_create(&other, NULL, stop_the_worker, &s), 0);
        while (!atomic_load(&s.stopped)) usleep(100);
        /* Another thread's jobs end, although the only worker that they have may be the stopped
         * one. */
        for (size_t i = 0; i < WB__COUNT(sizes); i++) assert_true(is_right(sizes[i]));
        atomic_store(&s.go_on, true);
        void *ended;
        pthread_join(other, &ended);
        assert_int_equal((int)(intptr_t)ended, 2);      /* but its own caller waits for it */
    }
}

/* An error that a body leaves behind on a worker is not one of the next body there. */

static atomic_int job_now;
static void leave_an_error(void *ctx, int64_t i)
{
    static _Thread_local int job;       /* of the error that this thread has */
    if (wb_error_code() && job != atomic_load(&job_now)) atomic_fetch_add((atomic_int *)ctx, 1);
    job = atomic_load(&job_now);
    usleep(200);
    wb__fail(WB_ERROR_ARGUMENT, "left behind by body %d", (int)i);
}

TEST(errors_of_bodies_end_with_their_job)
{
    atomic_int seen = 0;
    wb__set_threads(2);
    for (int job = 0; job < 20; job++) {
        wb_clear_error();
        atomic_fetch_add(&job_now, 1);
        wb__parallel_waiting(2, leave_an_error, &seen);
        wb_clear_error();
    }
    assert_int_equal(atomic_load(&seen), 0);
}

/* In a crowded pool the workers are measured, and a caller may compute alone. */

typedef struct { pthread_t caller; atomic_int elsewhere, inner; } placed;

static void count_inner(void *ctx, int64_t i)
{
    (void)i;
    atomic_fetch_add(&((placed *)ctx)->inner, 1);
}

static void note_thread(void *ctx, int64_t i)
{
    placed *p = ctx;
    (void)i;
    if (!pthread_equal(pthread_self(), p->caller)) atomic_fetch_add(&p->elsewhere, 1);
    wb__parallel(3, count_inner, p);
}

TEST(a_crowded_pool)
{
    const int64_t minute = 60 * INT64_C(1000000000);
    placed p = {.caller = pthread_self()};
    wb__set_threads(3);
    wb__parallel_crowd(minute, minute);
    wb__parallel(500, note_thread, &p);
    assert_int_equal(atomic_load(&p.elsewhere), 0);     /* alone */
    assert_int_equal(atomic_load(&p.inner), 1500);
    for (size_t s = 0; s < WB__COUNT(sizes); s++) assert_true(is_right(sizes[s]));
    wb__parallel_crowd(minute, 0);                      /* measured */
    for (int round = 0; round < 200; round++)
        for (size_t s = 0; s < WB__COUNT(sizes); s++) assert_true(is_right(sizes[s]));
    wb__parallel_crowd(0, 0);
}

/* A child of fork has no workers, and starts its own. */

static bool child_is_right(void)
{
    const pid_t child = fork();
    if (!child) {
        bool right = true;
        for (size_t s = 0; s < WB__COUNT(sizes); s++) right = right && is_right(sizes[s]);
        _exit(!right);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
        && !WEXITSTATUS(status);
}

static void *call_until(void *end)
{
    while (!atomic_load((atomic_bool *)end)) is_right(100);
    return NULL;
}

TEST(children)
{
    wb__set_threads(3);
    for (int i = 0; i < 20; i++) {
        assert_true(is_right(100));
        assert_true(child_is_right());
    }
    atomic_bool end = false;
    pthread_t other;                    /* fork while another thread has a job */
    assert_int_equal(pthread_create(&other, NULL, call_until, &end), 0);
    bool right = true;
    for (int i = 0; i < 50; i++) right = right && child_is_right();
    atomic_store(&end, true);
    pthread_join(other, NULL);
    assert_true(right);
}

static void check_rank(void *ctx, int64_t i)
{
    (void)i;
    if (wb__thread_rank != 7) atomic_fetch_add((atomic_int *)ctx, 1);
}

TEST(workers_belong_to_the_rank_of_the_caller)
{
    atomic_int wrong = 0;
    wb__set_threads(4);
    wb__thread_rank = 7;
    for (int i = 0; i < 1000; i++) wb__parallel(100, check_rank, &wrong);
    wb__thread_rank = 0;
    assert_int_equal(atomic_load(&wrong), 0);
}

/* Workers compute in the floating-point modes of the caller, and keep the flags and masks of
 * exceptions that they have. */

typedef struct {
    wb__modes expected;
    atomic_int wrong, elsewhere;
    pthread_t caller;
    bool patient;                       /* the caller sleeps until a worker helps */
} modes_check;

static void check_modes(void *ctx, int64_t i)
{
    modes_check *c = ctx;
    (void)i;
    if (wb__modes_now() != c->expected) atomic_fetch_add(&c->wrong, 1);
    if (!pthread_equal(pthread_self(), c->caller)) atomic_fetch_add(&c->elsewhere, 1);
    else if (c->patient && !atomic_load(&c->elsewhere)) usleep(1000);
}

TEST(workers_have_the_modes_of_the_caller)
{
    static const int directions[] = {FE_UPWARD, FE_TOWARDZERO, FE_DOWNWARD, FE_TONEAREST};
    const wb__modes before = wb__modes_now();
    modes_check c = {.caller = pthread_self()};
    wb__set_threads(4);
    for (int round = 0; round < 2000 && (round < 100 || !atomic_load(&c.elsewhere)); round++) {
        c.patient = round >= 100;               /* other programs have had the processors so far */
        fesetround(directions[round % 4]);
#if defined(__x86_64__)
        if (round % 3 == 0) wb__modes_take(wb__modes_now() | 0x8040);
#elif defined(__aarch64__)
        if (round % 3 == 0) wb__modes_take(wb__modes_now() | 1 << 24);
#endif
        c.expected = wb__modes_now();
        wb__parallel(500, check_modes, &c);
        if (wb__modes_now() != c.expected) atomic_fetch_add(&c.wrong, 1);
        wb__modes_take(before);
    }
    fesetround(FE_TONEAREST);
    assert_int_equal(atomic_load(&c.wrong), 0);
    assert_true(atomic_load(&c.elsewhere) > 0);
}

/* wb__parallel_stop ends the workers; the next call starts others. */
TEST(workers_end_and_begin_again)
{
    wb__set_threads(3);
    for (int i = 0; i < 20; i++) {
        assert_true(is_right(100));
        wb__parallel_stop();
        wb__parallel_stop();
    }
    atomic_bool end = false;
    pthread_t other;                    /* while another thread has a job */
    assert_int_equal(pthread_create(&other, NULL, call_until, &end), 0);
    bool right = true;
    for (int i = 0; i < 50; i++) {
        wb__parallel_stop();
        right = right && is_right(100);
    }
    atomic_store(&end, true);
    pthread_join(other, NULL);
    assert_true(right);
}
