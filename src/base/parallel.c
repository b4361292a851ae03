/* The pool of threads behind wb__parallel, and the number of threads.
 *
 * Other programs may keep the processors busy, and then a worker may get none for milliseconds.
 * So nobody waits for a worker that has not started: the workers and the caller take shares of the
 * indices until none is left, and the caller waits only for shares that a worker has begun.  A
 * waiting thread spins for a short time and then sleeps: a thread that spins uses up the time that
 * the system would give to it, or to the other threads of the program, later.
 *
 * The pool is *crowded* for some time after a thread has noticed that it or another did not run
 * when it could.  Then the threads sleep earlier, and each caller measures whether the workers are
 * of use to it.  If they are not, it computes alone for a while.
 *
 * The callers of wb__parallel decide what to run in parallel, and from which size on. */
#include "base/parallel.h"

#include "base/base.h"
#include "base/environment.h"
#include "base/modes.h"
#include "base/mutex.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- number of threads ----------------------------------------------------------------------- */

/* Returns the first entry of OMP_NUM_THREADS, which may be a list; 0: the entry is no number. */
static double threads_of_openmp(void)
{
    const char *text = wb__environment_text("OMP_NUM_THREADS");
    return text ? (double)WB__MAX(strtol(text, NULL, 10), 0) : 0;
}

static int threads_of_environment(void)
{
    const double n = wb__environment_number("WEBER_NUM_THREADS", 0);
    return (int)WB__MIN(n > 0 ? n : threads_of_openmp(), WB__MOST_THREADS);
}

static int count_cores(void)
{
    const int n = wb__os_processors();
    return n < 1 ? 1 : n > WB__MOST_THREADS ? WB__MOST_THREADS : n;
}

static atomic_int threads_now;          /* 0: not determined yet */

int wb__threads(void)
{
    int n = atomic_load_explicit(&threads_now, memory_order_relaxed);
    if (wb__likely(n)) return n;
    n = threads_of_environment();
    if (!n) n = count_cores();
    int expected = 0;
    return atomic_compare_exchange_strong(&threads_now, &expected, n) ? n : expected;
}

int wb__set_threads(int n)
{
    n = n < 1 ? 1 : n > WB__MOST_THREADS ? WB__MOST_THREADS : n;
    atomic_store(&threads_now, n);
    return n;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* A job has an owner, the thread that called wb__parallel.  `state` is
 *
 *     workers inside (31 bits) | open (1 bit)
 *
 * The owner fills in the job and opens it.  A worker enters by adding one to "inside" while the job
 * is open.  The owner takes part, then closes the job and waits until no worker is inside.
 *
 * The indices are cut into ranges.  Each thread begins with a range of its own, so that it gets the
 * same indices at each run if the threads are equally fast: they are in its cache. */
enum { JOBS = 8, RANGES = 32, SHARES = 4, PARALLEL_OPEN = 1, ONE_INSIDE = 2, PAUSES = 32 };

/* Times in nanoseconds. */
static const int64_t
    LONG_SPIN = 500 * 1000,             /* longer than the serial parts of most steps */
    SHORT_SPIN = 100 * 1000,        /* in a crowded pool: some times the time to wake a thread */
    PARALLEL_STALL = 100 * 1000,    /* longest wait, beyond its own work, for a worker that runs */
    CHECK_EVERY = 10 * 1000 * 1000,     /* between calls of getrusage, which take a microsecond */
    PARALLEL_CROWDED = 100 * 1000 * 1000, /* how long the pool is crowded: some time slices */
    PARALLEL_WINDOW = 8 * 1000 * 1000,  /* time of the jobs by which the workers are judged */
    PARALLEL_ALONE = 32 * 1000 * 1000;  /* four windows: the least time that a caller works alone */

typedef struct {
    _Alignas(64) atomic_int_fast64_t next;  /* next index that no thread has taken */
    int64_t end;
} parallel_range;

typedef struct {
    _Alignas(64) atomic_uint state;
    atomic_bool taken;                  /* the job has an owner */
    atomic_bool owner_sleeps;           /* the owner sleeps until no worker is inside */
    void (*body)(void *ctx, int64_t i);
    void *ctx;
    int64_t share;                      /* indices that a thread takes at once */
    int ranges;                         /* ranges in use */
    atomic_uint most;                   /* workers that may be inside */
    int rank;                           /* wb__thread_rank of the owner */
    wb__modes modes;                    /* floating-point modes of the owner */
    bool measured;                      /* the workers add up their processor time */
    atomic_int_fast64_t time;           /* processor time of the workers */
    wb__thrown thrown;                  /* an exception of C++ in a worker; pool.lock guards it */
    parallel_range range[RANGES];
} parallel_job;

static parallel_job parallel_jobs[JOBS];

static struct {
    wb__mutex lock;                     /* guards `workers`, `thread`, `wake` and `done` */
    wb__os_cond wake, done;             /* a job has been posted; the last worker has left a job */
    wb__os_thread thread[WB__MOST_THREADS]; /* threads of the workers */
    atomic_bool ending;                 /* the workers end */
    atomic_int workers;                 /* number of workers started */
    atomic_int asleep;                  /* number of workers that sleep */
    _Alignas(64) atomic_uint posted;    /* counts the jobs */
    _Alignas(64) atomic_int_fast64_t crowded_until;
} parallel_pool = { .lock = WB__MUTEX_INIT, .wake = WB__OS_COND_INIT,
                    .done = WB__OS_COND_INIT };

static _Thread_local bool parallel_inside; /* this thread is running a body */

/* The measurements of a caller while the pool was crowded: the time of its jobs by the clock, and
 * the processor time that all threads spent on them. */
typedef struct { int64_t wall, processors; } parallel_times;
static _Thread_local struct {
    parallel_times together, serial;
    double alone;               /* share of a processor that the caller gets if it computes alone */
    int64_t pause, alone_until;         /* how long the caller computes alone, and until when */
    int64_t judged_after;               /* the workers count as useful until then */
} parallel_caller = { .alone = 1 };

static int64_t parallel_now(void) { return wb__os_clock(WB__OS_STEADY); }
static int64_t processor_time(void) { return wb__os_clock(WB__OS_WORK); }

static bool is_crowded(int64_t t)
{
    return t < atomic_load_explicit(&parallel_pool.crowded_until, memory_order_relaxed);
}

static void mark_crowded(int64_t t)
{
    atomic_store_explicit(&parallel_pool.crowded_until, t + PARALLEL_CROWDED, memory_order_relaxed);
}

static inline void parallel_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Checks, from time to time, whether this thread has lost its processor to another thread. */
static void check_preempted(int64_t t)
{
    static _Thread_local int64_t next, seen;
    if (t < next) return;
    const int64_t count = wb__os_preemptions();
    if (next && count > seen + 1) mark_crowded(t);
    seen = count;
    next = t + CHECK_EVERY;
}

/* Waits a short time until *word is `value` or, if `differs`, is not.  False: that did not
 * happen. */
static bool spin_until(const atomic_uint *word, unsigned value, bool differs)
{
    for (int64_t begun = 0, t;;) {
        for (int i = 0; i < PAUSES; i++) {
            if ((atomic_load(word) != value) == differs) return true;
            parallel_relax();
        }
        t = parallel_now();
        if (!begun) begun = t;
        check_preempted(t);
        if (t - begun > (is_crowded(t) ? SHORT_SPIN : LONG_SPIN)) return false;
    }
}

static void run_range_here(int64_t from, int64_t to, void (*body)(void *ctx, int64_t i), void *ctx)
{
    for (int64_t i = from; i < to; i++) body(ctx, i);
}

/* Calls the body for all indices of a job that could have been divided. */
static void run_all_here(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    parallel_inside = true;
    run_range_here(0, n, body, ctx);
    parallel_inside = false;
}

static void run_shares(parallel_job *j, int first)
{
    parallel_inside = true;
    for (int k = 0; k < j->ranges; k++) {
        parallel_range *r = &j->range[(first + k) % j->ranges];
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            const int64_t from = atomic_fetch_add(&r->next, j->share);
            if (from < r->end)
                run_range_here(from, WB__MIN(from + j->share, r->end), j->body, j->ctx);
        }
    }
    parallel_inside = false;
}

/* Hands an exception that a function of the program has thrown to the thread that owns the job. */
static void hand_over_thrown(parallel_job *j)
{
    wb__mutex_lock(&parallel_pool.lock);
    if (!j->thrown.what) j->thrown = wb__thrown_take();
    wb__mutex_unlock(&parallel_pool.lock);
    wb__thrown_drop();
}

/* Takes part in a job if it is open and needs one more worker. */
static void join_job(parallel_job *j, int worker)
{
    unsigned s = atomic_load(&j->state);
    do
        if (!(s & PARALLEL_OPEN) || s / ONE_INSIDE >= atomic_load(&j->most)) return;
    while (!atomic_compare_exchange_weak(&j->state, &s, s + ONE_INSIDE));
    if (s / ONE_INSIDE < atomic_load_explicit(&j->most, memory_order_relaxed)) {
        wb_clear_error();               /* the error of a body that ran before */
        const int64_t begun = j->measured ? processor_time() : 0;
        wb__thread_rank = j->rank;
        wb__modes_take(j->modes);
        run_shares(j, worker);
        if (j->measured) atomic_fetch_add(&j->time, processor_time() - begun);
        if (wb__unlikely(wb__has_thrown())) hand_over_thrown(j);
    }
    /* another owner may have the job as soon as no worker is inside */
    if (atomic_fetch_sub(&j->state, ONE_INSIDE) == ONE_INSIDE && atomic_load(&j->owner_sleeps)) {
        wb__mutex_lock(&parallel_pool.lock);
        wb__os_cond_wake(&parallel_pool.done);
        wb__mutex_unlock(&parallel_pool.lock);
    }
}

static void *run_worker(void *number)
{
    const int worker = (int)(intptr_t)number;
    wb__mutex_helps();
    for (unsigned seen; !atomic_load(&parallel_pool.ending);) {
        seen = atomic_load(&parallel_pool.posted);
        for (int i = 0; i < JOBS; i++) join_job(&parallel_jobs[i], worker);
        if (worker < wb__threads() && spin_until(&parallel_pool.posted, seen, true)) continue;
        wb__mutex_lock(&parallel_pool.lock);
        atomic_fetch_add(&parallel_pool.asleep, 1);
        while (atomic_load(&parallel_pool.posted) == seen && !atomic_load(&parallel_pool.ending))
            wb__mutex_wait(&parallel_pool.wake, &parallel_pool.lock);
        atomic_fetch_sub(&parallel_pool.asleep, 1);
        wb__mutex_unlock(&parallel_pool.lock);
    }
    return NULL;
}

/* Resets the pool in a child of fork, which has only the thread that called fork, and starts
 * workers of its own when it needs them. */
static void parallel_in_child(void)
{
    wb__os_cond_init(&parallel_pool.wake);
    wb__os_cond_init(&parallel_pool.done);
    atomic_store(&parallel_pool.workers, 0);
    atomic_store(&parallel_pool.asleep, 0);
    atomic_store(&parallel_pool.ending, false);
    for (int i = 0; i < JOBS; i++) {
        atomic_store(&parallel_jobs[i].state, 0);
        atomic_store(&parallel_jobs[i].taken, false);
        atomic_store(&parallel_jobs[i].owner_sleeps, false);
    }
}

static void start_workers(int wanted)
{
    if (atomic_load_explicit(&parallel_pool.workers, memory_order_relaxed) >= wanted) return;
    static wb__fork_handler child = {.f = parallel_in_child};
    wb__at_fork(&child);
    wb__mutex_lock(&parallel_pool.lock);
    for (int n = atomic_load(&parallel_pool.workers);
         n < wanted && !atomic_load(&parallel_pool.ending);
         atomic_store(&parallel_pool.workers, ++n)) {
        if (!wb__os_thread_start(&parallel_pool.thread[n], run_worker, (void *)(intptr_t)(n + 1),
                                 false))
            break;                      /* the caller does the rest */
    }
    wb__mutex_unlock(&parallel_pool.lock);
}

/* Ends the workers.  A job that another thread posts meanwhile is computed by that thread, and by
 * workers that have not ended. */
void wb__parallel_stop(void)
{
    wb__mutex_lock(&parallel_pool.lock);
    const int n = parallel_inside || atomic_load(&parallel_pool.ending)
                      ? 0
                      : atomic_load(&parallel_pool.workers);
    if (n) atomic_store(&parallel_pool.ending, true);
    atomic_fetch_add(&parallel_pool.posted, 1);
    wb__os_cond_wake(&parallel_pool.wake);
    wb__mutex_unlock(&parallel_pool.lock);
    if (!n) return;
    for (int i = 0; i < n; i++) wb__os_thread_join(parallel_pool.thread[i]);
    wb__mutex_lock(&parallel_pool.lock);
    atomic_store(&parallel_pool.workers, 0);
    atomic_store(&parallel_pool.ending, false);
    wb__mutex_unlock(&parallel_pool.lock);
}

/* Fills in a job that has no owner, and opens it; NULL: all jobs have one. */
static parallel_job *post_job(int64_t n, int threads, bool measured,
                              void (*body)(void *ctx, int64_t i), void *ctx)
{
    parallel_job *j = parallel_jobs;
    while (atomic_load_explicit(&j->taken, memory_order_relaxed)
           || atomic_exchange(&j->taken, true))
        if (++j == parallel_jobs + JOBS) return NULL;
    j->body = body;
    j->ctx = ctx;
    j->share = WB__MAX(n / (SHARES * (int64_t)threads), 1);
    atomic_store(&j->most, (unsigned)threads - 1);
    j->rank = wb__thread_rank;
    j->modes = wb__modes_now();
    j->measured = measured;
    atomic_store_explicit(&j->time, 0, memory_order_relaxed);
    j->ranges = WB__MIN(threads, RANGES);
    for (int64_t r = 0; r < j->ranges; r++) {
        atomic_store_explicit(&j->range[r].next, n * r / j->ranges, memory_order_relaxed);
        j->range[r].end = n * (r + 1) / j->ranges;
    }
    atomic_store(&j->state, PARALLEL_OPEN);
    atomic_fetch_add(&parallel_pool.posted, 1);
    int asleep = atomic_load(&parallel_pool.asleep);
    if (asleep) {
        wb__mutex_lock(&parallel_pool.lock); /* so that a worker about to sleep is asleep by then */
        wb__mutex_unlock(&parallel_pool.lock);
        for (asleep = WB__MIN(asleep, threads - 1); asleep; asleep--)
            wb__os_cond_wake_one(&parallel_pool.wake);
    }
    return j;
}

/* Closes a job, and waits until no worker is inside. */
static void close_job(parallel_job *j)
{
    atomic_fetch_and(&j->state, ~(unsigned)PARALLEL_OPEN);
    if (!spin_until(&j->state, 0, false)) {
        atomic_store(&j->owner_sleeps, true);
        wb__mutex_lock(&parallel_pool.lock);
        while (atomic_load(&j->state)) wb__mutex_wait(&parallel_pool.done, &parallel_pool.lock);
        wb__mutex_unlock(&parallel_pool.lock);
        atomic_store(&j->owner_sleeps, false);
    }
}

/* Adds the times of a job; true: the times of a window are complete. */
static bool add_job_times(parallel_times *t, int64_t wall, int64_t processors)
{
    t->wall += wall;
    t->processors += processors;
    return t->wall > PARALLEL_WINDOW;
}

/* Judges the workers after each window of jobs in a crowded pool.  They have been of use if the
 * processors spent 1.2 times the time that the caller would have got alone.  If not, the caller
 * computes alone, each time for twice as long as before. */
static void judge_workers(int64_t wall, int64_t processors, int64_t t)
{
    parallel_times *w = &parallel_caller.together;
    if (!add_job_times(w, wall, processors)) return;
    const bool useful = (double)w->processors > 1.2 * parallel_caller.alone * (double)w->wall;
    parallel_caller.pause = useful ? 0 : WB__MIN(WB__MAX(2 * parallel_caller.pause, PARALLEL_ALONE),
                                                 8 * PARALLEL_ALONE);
    parallel_caller.alone_until = t + parallel_caller.pause;
    parallel_caller.judged_after = t + PARALLEL_ALONE;
    *w = (parallel_times){ 0 };
}

static void compute_alone(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx, int64_t begun)
{
    const int64_t processor = processor_time();
    run_all_here(n, body, ctx);
    parallel_times *t = &parallel_caller.serial;
    if (!add_job_times(t, parallel_now() - begun, processor_time() - processor)) return;
    const double share = (double)t->processors / (double)t->wall;
    parallel_caller.alone = WB__MAX(share, 0.95 * parallel_caller.alone + 0.05 * share);
    *t = (parallel_times){ 0 };
}

/* Calls the body for all indices, by all threads or alone.  blocks: the bodies may block, so they
 * need all threads, and their times are not measured. */
static void parallel_run(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx, bool blocks)
{
    const int threads = n > 1 && !parallel_inside ? (int)WB__MIN(wb__threads(), n) : 1;
    if (threads == 1) {
        run_range_here(0, n, body, ctx);
        return;
    }
    const int64_t begun = parallel_now();
    if (begun < parallel_caller.alone_until && !blocks) {
        compute_alone(n, body, ctx, begun);
        return;
    }
    start_workers(threads - 1);
    const bool measured = !blocks && is_crowded(begun) && begun >= parallel_caller.judged_after;
    parallel_job *j = post_job(n, threads, measured, body, ctx);
    if (!j) {
        run_all_here(n, body, ctx);
        return;
    }
    int64_t processor = measured ? processor_time() : 0;
    run_shares(j, 0);
    if (measured) processor = processor_time() - processor;
    const int64_t own = parallel_now() - begun;
    close_job(j);
    const int64_t end = parallel_now(), wall = end - begun;
    if (!blocks && wall - own > own + PARALLEL_STALL) mark_crowded(end);
    check_preempted(end);
    if (wb__unlikely(j->thrown.what)) wb__thrown_give(j->thrown);
    j->thrown = (wb__thrown){0};
    if (measured) judge_workers(wall, processor + atomic_load(&j->time), end);
    atomic_store(&j->taken, false);     /* another caller may have the job now */
}

void wb__parallel(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    parallel_run(n, body, ctx, false);
}

void wb__parallel_waiting(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    parallel_run(n, body, ctx, true);
}

void wb__parallel_crowd(int64_t crowded, int64_t alone)
{
    const int64_t t = parallel_now();
    atomic_store(&parallel_pool.crowded_until, t + crowded);
    parallel_caller.alone_until = t + alone;
}

int wb_threads(void) { return wb__threads(); }
int wb_set_threads(int n) { return wb__set_threads(n); }
