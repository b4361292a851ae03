/* Threads, locks and clocks (os.h): systems with POSIX.  The module of ranks, which does without
 * the library, is linked with this file too. */
#include "base/os.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

enum { SECOND = 1000 * 1000 * 1000 };

bool wb__os_thread_start(wb__os_thread *t, void *(*f)(void *), void *arg, bool quiet)
{
    sigset_t all, old;
    sigfillset(&all);
    if (quiet) pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool started = !pthread_create(t, NULL, f, arg);
    if (quiet) pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

void wb__os_thread_join(wb__os_thread t) { pthread_join(t, NULL); }

bool wb__os_key_make(wb__os_key *key, void (*end)(void *)) { return !pthread_key_create(key, end); }
bool wb__os_key_set(wb__os_key key, void *value) { return !pthread_setspecific(key, value); }

bool wb__os_cond_wait_for(wb__os_cond *c, wb__os_mutex *m, double seconds)
{
    const double most = 1e9, left = seconds > 0 ? seconds < most ? seconds : most : 0;
    const int64_t until = wb__os_clock(WB__OS_WALL) + (int64_t)(left * SECOND);
    const struct timespec t = {.tv_sec = (time_t)(until / SECOND),
                               .tv_nsec = (long)(until % SECOND)};
    return !pthread_cond_timedwait(c, m, &t);
}

bool wb__os_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    return !pthread_atfork(before, parent, child);
}

long wb__os_process(void) { return (long)getpid(); }
void wb__os_yield(void) { sched_yield(); }
void wb__os_end_after(int seconds) { alarm((unsigned)seconds); }

void wb__os_sleep(int64_t nanoseconds)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(nanoseconds / SECOND),
                                 .tv_nsec = (long)(nanoseconds % SECOND)}, NULL);
}

int64_t wb__os_clock(wb__os_clock_kind kind)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID};
    struct timespec t;
    clock_gettime(clocks[kind], &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

#ifdef __linux__

int64_t wb__os_preemptions(void)
{
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) ? 0 : used.ru_nivcsw;
}

bool wb__os_barrier(bool begins)
{
#ifdef SYS_membarrier
    enum { ALL = 1 << 3, ANNOUNCE = 1 << 4 };   /* MEMBARRIER_CMD_[REGISTER_]PRIVATE_EXPEDITED */
    return syscall(SYS_membarrier, begins ? ANNOUNCE : ALL, 0, 0) == 0;
#else
    (void)begins;
    return false;
#endif
}

long wb__os_thread_number(void) { return (long)syscall(SYS_gettid); }

#else

int64_t wb__os_preemptions(void) { return 0; }

bool wb__os_barrier(bool begins)
{
    (void)begins;
    return false;
}

long wb__os_thread_number(void)
{
    static atomic_long threads;
    return atomic_fetch_add(&threads, 1) + 1;
}

#endif
