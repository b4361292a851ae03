/* Locks that fork knows.
 *
 * After fork the child has only the thread that called fork.  A lock that another thread held at
 * that moment would stay locked in it for ever, and what the lock guards may be half changed.  So
 * fork waits until it has all locks of the library, and gives them back in the parent and in the
 * child.  Each lock of the library is therefore a wb__mutex, and each function that runs once is a
 * wb__once; `./run lint` refuses those of the system.
 *
 * The locks have no order.  Fork tries them all; if one is taken, it gives back those that it got,
 * sleeps, and tries again, so that two locks are never waited for at a time.  Meanwhile threads of
 * the program that hold no lock wait before they take one (once for a fork, and for a second at
 * most, so that nobody waits for ever for a thread that waits here).  A lock that is not free for
 * ten seconds, such as that of a compiled function whose callback waits for the thread that forks,
 * is not waited for any longer.
 * Locks of the thread that forks stay its own, in the parent and in the child.
 *
 * Exempt are src/cli, programs whose threads are the library's, and the module of ranks in src/dist
 * that is linked without mutex.c: a library by which such ranks talk does not support fork. */
#ifndef WB__MUTEX_H
#define WB__MUTEX_H

#include "base/base.h"
#include "base/os.h"

typedef struct wb__mutex {
    wb__os_mutex mutex;
    _Atomic(const void *) owner;        /* wb__mutex_me() of the thread that holds it, or NULL */
    atomic_bool listed;                 /* fork knows the lock, since its first use */
    bool at_fork;                       /* the thread that forks has taken the lock */
    struct wb__mutex *next, **link;  /* next lock of all, and the pointer to this one */
} wb__mutex;
#define WB__MUTEX_INIT {WB__OS_MUTEX_INIT, NULL, false, false, NULL, NULL}

/* Number of locks that this thread holds.  A thread of the library counts one more. */
extern _Thread_local WB__FAST_TLS int wb__mutexes_held;
extern _Atomic int wb__forking;         /* threads that are about to fork */
extern _Atomic int wb__fork_tries;      /* milliseconds that fork waits for locks; for tests */
void wb__mutex_enter(wb__mutex *m);     /* lists the lock; waits while the process forks */

static inline const void *wb__mutex_me(void) { return &wb__mutexes_held; }

/* Whether the calling thread holds the lock. */
static inline bool wb__mutex_is_mine(wb__mutex *m)
{
    return atomic_load_explicit(&m->owner, memory_order_relaxed) == wb__mutex_me();
}

/* Enters this thread as the owner of m, whose lock of the system it has; the second function ends
 * this. */
static inline void wb__mutex_taken(wb__mutex *m)
{
    wb__mutexes_held++;
    atomic_store_explicit(&m->owner, wb__mutex_me(), memory_order_relaxed);
}

static inline void wb__mutex_given(wb__mutex *m)
{
    atomic_store_explicit(&m->owner, NULL, memory_order_relaxed);
    wb__mutexes_held--;
}

static inline void wb__mutex_lock(wb__mutex *m)
{
    if (wb__unlikely(!atomic_load_explicit(&m->listed, memory_order_acquire)
                     || atomic_load_explicit(&wb__forking, memory_order_relaxed)))
        wb__mutex_enter(m);
    wb__os_mutex_lock(&m->mutex);
    wb__mutex_taken(m);
}

static inline void wb__mutex_unlock(wb__mutex *m)
{
    wb__mutex_given(m);
    wb__os_mutex_unlock(&m->mutex);
}

/* Makes a lock in memory that is freed later; the owner calls wb__mutex_destroy before.  Returns 0,
 * or 1 if the system has no more locks. */
int wb__mutex_init(wb__mutex *m);
void wb__mutex_destroy(wb__mutex *m);

/* Waits for a condition variable with the lock held.  wb__mutex_wait_for returns false after so
 * many seconds. */
void wb__mutex_wait(wb__os_cond *changed, wb__mutex *m);
bool wb__mutex_wait_for(wb__os_cond *changed, wb__mutex *m, double seconds);

/* Makes this thread, which the library has started, not wait while the process forks, since threads
 * that hold locks may wait for this one.  Called once. */
static inline void wb__mutex_helps(void) { wb__mutexes_held++; }

/* A function that is called at fork: a static variable, {f}.  It is added once, however often it is
 * passed. */
typedef struct wb__fork_handler {
    void (*f)(void);
    struct wb__fork_handler *next;
    bool added;
} wb__fork_handler;
/* Adds a function that a forked child calls, with all locks free: it forgets the threads that the
 * child does not have. */
void wb__at_fork(wb__fork_handler *in_child);
/* Adds a function that the thread that forks calls before the fork, with all locks taken that have
 * `at_fork` set; the function takes no lock. */
void wb__before_fork(wb__fork_handler *h);

/* A function that runs once in a process.  While another thread runs it, the call waits. */
typedef struct { wb__mutex lock; atomic_bool done; } wb__once;
#define WB__ONCE_INIT {WB__MUTEX_INIT, false}
void wb__once_now(wb__once *once, void (*f)(void));

static inline void wb__once_run(wb__once *once, void (*f)(void))
{
    if (wb__unlikely(!atomic_load_explicit(&once->done, memory_order_acquire)))
        wb__once_now(once, f);
}

#endif
