/* The pool of threads behind wb__parallel, and the number of threads.
 *
 * With WB_HAVE_OPENMP the pool is OpenMP's, because oneDNN uses OpenMP, and two pools would compete
 * for the processors.  Otherwise it is a small pool of the library's own.  The callers of
 * wb__parallel decide what to run in parallel, and from which size on. */
#include "base/parallel.h"

#include "base/base.h"
#include "base/system.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef WB_HAVE_OPENMP
#include <omp.h>
#endif

enum { MOST_THREADS = 256 };

/* ---- number of threads ----------------------------------------------------------------------- */

static int from_environment(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text) return 0;
    char *end;
    long n = strtol(text, &end, 10);
    /* Text after the number is ignored: OMP_NUM_THREADS may be a list, of which the first entry is
     * used. */
    if (end == text || n < 1) return 0;
    return n > MOST_THREADS ? MOST_THREADS : (int)n;
}

static int count_cores(void)
{
    const int n = wb__system_processors();
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

static atomic_int threads_now;          /* 0: not determined yet */
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Registers the handler for fork, before the first parallel region of any thread. */
static void prepare(void);

int wb__threads(void)
{
    int n = atomic_load_explicit(&threads_now, memory_order_relaxed);
    if (wb__likely(n)) return n;
    n = from_environment("WEBER_NUM_THREADS");
    if (!n) n = from_environment("OMP_NUM_THREADS");
    if (!n) n = count_cores();
    pthread_once(&once, prepare);
    int expected = 0;
    return atomic_compare_exchange_strong(&threads_now, &expected, n) ? n : expected;
}

int wb__set_threads(int n)
{
    n = n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
    atomic_store(&threads_now, n);
    return n;
}

static _Thread_local bool inside;       /* this thread is running a body */

static void serially(int64_t from, int64_t to, void (*body)(void *ctx, int64_t i), void *ctx)
{
    for (int64_t i = from; i < to; i++) body(ctx, i);
}

#ifdef WB_HAVE_OPENMP

/* After fork the child has none of OpenMP's threads, and libgomp would wait for them forever.  So
 * the child runs everything serially. */
static atomic_bool forked;
static void in_child(void)
{
    atomic_store(&forked, true);
    atomic_store(&threads_now, 1);
    omp_set_num_threads(1);
}

static void prepare(void) { pthread_atfork(NULL, NULL, in_child); }

void wb__parallel(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    int threads = n > 1 && !inside ? wb__threads() : 1;
    if (threads > n) threads = (int)n;
    if (threads <= 1 || omp_in_parallel() || atomic_load_explicit(&forked, memory_order_relaxed)) {
        serially(0, n, body, ctx);
        return;
    }
    pthread_once(&once, prepare);
    const int rank = wb__thread_rank;
#pragma omp parallel num_threads(threads)
    {
        wb__thread_rank = rank;
        int t = omp_get_thread_num(), of = omp_get_num_threads();
        inside = true;
        serially(n * t / of, n * (t + 1) / of, body, ctx);
        inside = false;
    }
}

#else

/* The library's own pool.  `state` holds everything that a worker must read at once:
 *
 *     epoch (48 bits) | workers inside (15 bits) | open (1 bit)
 *
 * The caller fills in the job and opens it.  A worker enters by adding one to "inside" while the
 * state is open, takes shares of the indices until none is left, and leaves.  The caller takes
 * part, then closes the job and waits until no worker is inside.  A worker that wakes up too late
 * does not enter, and the caller does not wait for it. */
enum { SPINS = 4000, CLOSED = 0, OPEN = 1, ONE_INSIDE = 2, INSIDE = 0xfffe, EPOCH = 1 << 16 };

static struct {
    pthread_mutex_t owner;              /* held by the caller whose job is running */
    pthread_mutex_t sleep_lock;         /* guards `asleep` and `wake` */
    pthread_cond_t wake;
    int workers;                        /* number of workers started; only the owner reads it */
    atomic_int asleep;
    _Alignas(64) atomic_uint_fast64_t state;
    void (*body)(void *ctx, int64_t i);
    void *ctx;
    int64_t n, share;
    int most;                           /* workers that this job needs */
    int rank;                           /* wb__thread_rank of the workers */
    _Alignas(64) atomic_int_fast64_t next;
} pool = { .owner = PTHREAD_MUTEX_INITIALIZER, .sleep_lock = PTHREAD_MUTEX_INITIALIZER,
           .wake = PTHREAD_COND_INITIALIZER };

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_shares(void)
{
    inside = true;
    wb__thread_rank = pool.rank;
    for (;;) {
        int64_t from = atomic_fetch_add(&pool.next, pool.share);
        if (from >= pool.n) break;
        serially(from, WB__MIN(from + pool.share, pool.n), pool.body, pool.ctx);
    }
    inside = false;
}

static bool is_news(uint64_t state, uint64_t seen)
{
    return (state & OPEN) && state / EPOCH != seen;
}

static void *work(void *unused)
{
    (void)unused;
    uint64_t seen = 0;
    for (;;) {
        uint64_t s;
        int spins = 0;
        while (!is_news(s = atomic_load(&pool.state), seen) && spins < SPINS) relax(), spins++;
        if (!is_news(s, seen)) {
            pthread_mutex_lock(&pool.sleep_lock);
            atomic_fetch_add(&pool.asleep, 1);
            while (!is_news(s = atomic_load(&pool.state), seen))
                pthread_cond_wait(&pool.wake, &pool.sleep_lock);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.sleep_lock);
        }
        while (is_news(s, seen)) {
            if (!atomic_compare_exchange_weak(&pool.state, &s, s + ONE_INSIDE)) continue;
            seen = s / EPOCH;
            if ((int)((s & INSIDE) / ONE_INSIDE) < pool.most) take_shares();
            atomic_fetch_sub(&pool.state, ONE_INSIDE);
        }
    }
    return NULL;
}

/* After fork the child has only the thread that called fork.  It starts workers of its own when it
 * needs them. */
static void in_child(void)
{
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.sleep_lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pool.workers = 0;
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.state, 0);
}

static void prepare(void) { pthread_atfork(NULL, NULL, in_child); }

static void start_workers(int wanted)
{
    pthread_once(&once, prepare);
    pthread_attr_t attributes;
    if (pool.workers >= wanted || pthread_attr_init(&attributes)) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (pthread_t id; pool.workers < wanted; pool.workers++)
        if (pthread_create(&id, &attributes, work, NULL)) break;    /* the caller does the rest */
    pthread_attr_destroy(&attributes);
}

void wb__parallel(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx)
{
    int threads = n > 1 && !inside ? wb__threads() : 1;
    if (threads > n) threads = (int)n;
    if (threads <= 1 || pthread_mutex_trylock(&pool.owner)) {   /* another caller uses the pool */
        serially(0, n, body, ctx);
        return;
    }
    start_workers(threads - 1);
    pool.body = body;
    pool.ctx = ctx;
    pool.n = n;
    pool.share = WB__MAX(n / (4 * (int64_t)threads), 1);
    pool.most = threads - 1;
    pool.rank = wb__thread_rank;
    atomic_store(&pool.next, 0);
    uint64_t epoch = atomic_load(&pool.state) / EPOCH + 1;
    atomic_store(&pool.state, epoch * EPOCH | OPEN);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.sleep_lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep_lock);
    }
    take_shares();
    atomic_fetch_sub(&pool.state, OPEN);
    for (int spins = 0; atomic_load(&pool.state) & INSIDE; spins++) {
        if (spins < SPINS) relax();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.owner);
}

#endif

int wb_threads(void) { return wb__threads(); }
int wb_set_threads(int n) { return wb__set_threads(n); }
