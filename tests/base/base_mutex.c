/* Locks that fork knows, functions that run once: base/mutex.c. */
#include "test.h"

#include "base/mutex.h"

#include <sys/wait.h>
#include <unistd.h>

static wb__mutex first = WB__MUTEX_INIT, second = WB__MUTEX_INIT, made;
static atomic_int children;
static atomic_bool held, end;

static void count_child(void) { atomic_fetch_add(&children, 1); }

/* Whether a child can take the locks, and has called the handler once. */
static bool child_takes(wb__mutex *const *locks, int n)
{
    const int before = atomic_load(&children);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        bool right = atomic_load(&children) == before + 1;
        for (int i = 0; i < n; i++) {
            wb__mutex_lock(locks[i]);
            right = right && wb__mutex_is_mine(locks[i]);
            wb__mutex_unlock(locks[i]);
        }
        _exit(!right);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Takes two locks, or one if `other` is set, and holds them for most of the time. */
static void *take_and_give(void *other)
{
    while (!atomic_load(&end)) {
        wb__mutex_lock(other ? &second : &first);
        if (!other) wb__mutex_lock(&made);
        atomic_store(&held, true);
        for (volatile int i = 0; i < 20000; i++) {}
        if (!other) wb__mutex_unlock(&made);
        wb__mutex_unlock(other ? &second : &first);
    }
    return NULL;
}

TEST(children_can_take_what_other_threads_hold)
{
    wb__mutex *const locks[] = {&first, &second, &made};
    pthread_t thread[2];
    static wb__fork_handler handler = {.f = count_child};
    wb__at_fork(&handler);
    wb__at_fork(&handler);              /* the same handler is called once */
    assert_int_equal(wb__mutex_init(&made), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, i ? &held : NULL), 0);
    while (!atomic_load(&held)) {}
    bool right = true;
    for (int i = 0; i < 100 && right; i++) right = child_takes(locks, 3);
    atomic_store(&end, true);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    wb__mutex_destroy(&made);
    memset(&made, 0xff, sizeof made);   /* as freed memory, which others write */
    assert_true(right);
    assert_true(child_takes(locks, 2)); /* the destroyed lock is not in the list any more */
}

static atomic_int calls;
static void count_call(void) { atomic_fetch_add(&calls, 1); }

/* Each of many handlers is called, in the parent before fork and in the child after it. */
TEST(many_handlers)
{
    enum { MANY = 40 };
    static wb__fork_handler child[MANY], before[MANY];
    for (int i = 0; i < MANY; i++) {
        child[i].f = before[i].f = count_call;
        wb__at_fork(&child[i]);
        wb__before_fork(&before[i]);
    }
    const pid_t pid = fork();
    if (!pid) _exit(atomic_load(&calls) != 2 * MANY);
    int status = 1;
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&calls), MANY);
}

static atomic_bool never, forked;
static atomic_int taken;

static void *hold(void *lock)
{
    wb__mutex_lock(lock);
    atomic_store(&held, true);
    while (!atomic_load(lock == &first ? &never : &forked)) {}
    wb__mutex_unlock(lock);
    return NULL;
}

/* Fork ends although a lock is never free.  The child has it free, and in the parent it stays
 * taken. */
TEST(a_lock_that_is_never_free)
{
    wb__mutex *const locks[] = {&first, &second};
    pthread_t thread;
    const int tries = atomic_exchange(&wb__fork_tries, 30);
    atomic_store(&held, false);
    assert_int_equal(pthread_create(&thread, NULL, hold, &first), 0);
    while (!atomic_load(&held)) {}
    const bool right = child_takes(locks, 2), is_taken = pthread_mutex_trylock(&first.mutex) != 0;
    atomic_store(&never, true);
    pthread_join(thread, NULL);
    atomic_store(&wb__fork_tries, tries);
    assert_true(right && is_taken);
}

/* Takes a free lock often while another thread forks; then the lock becomes free for which fork
 * waits. */
static void *take_often(void *unused)
{
    while (!atomic_load(&wb__forking)) {}
    for (; atomic_load(&taken) < 50; atomic_fetch_add(&taken, 1)) {
        wb__mutex_lock(&first);
        wb__mutex_unlock(&first);
    }
    atomic_store(&forked, true);
    return unused;
}

/* A thread that takes locks waits once for a fork, not at each lock: fork would give up before the
 * last one. */
TEST(threads_wait_once_for_a_fork)
{
    pthread_t thread[2];
    atomic_store(&held, false);
    assert_int_equal(pthread_create(&thread[0], NULL, hold, &second), 0);
    while (!atomic_load(&held)) {}
    assert_int_equal(pthread_create(&thread[1], NULL, take_often, NULL), 0);
    const pid_t child = fork();
    if (!child) _exit(atomic_load(&taken) < 50);
    int status = 1;
    const bool ended = waitpid(child, &status, 0) == child;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_true(ended);
    assert_int_equal(status, 0);
}

/* The thread that forks holds a lock, and goes on to hold it in both processes. */
TEST(a_lock_of_the_thread_that_forks)
{
    wb__mutex_lock(&first);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const bool right = wb__mutex_is_mine(&first) && wb__mutexes_held == 1;
        wb__mutex_unlock(&first);
        wb__mutex_lock(&first);
        wb__mutex_lock(&second);
        _exit(!right);
    }
    int status = 1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_true(wb__mutex_is_mine(&first));
    wb__mutex_unlock(&first);
    assert_false(wb__mutex_is_mine(&first));
    assert_int_equal(wb__mutexes_held, 0);
}

static wb__once slow = WB__ONCE_INIT;
static atomic_int runs;
static atomic_bool begun, let;

static void run_slowly(void)
{
    atomic_store(&begun, true);
    while (!atomic_load(&let)) {}
    for (volatile int i = 0; i < 2000000; i++) {}
    atomic_fetch_add(&runs, 1);
}

static void *run_once(void *unused)
{
    wb__once_run(&slow, run_slowly);
    return unused;
}

/* Fork waits until another thread has run such a function; the child does not run it again. */
TEST(functions_that_run_once)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_once, NULL), 0);
    while (!atomic_load(&begun)) {}
    atomic_store(&let, true);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const bool waited = atomic_load(&runs) == 1;
        wb__once_run(&slow, run_slowly);
        _exit(!waited || atomic_load(&runs) != 1);
    }
    int status = 1;
    assert_true(waitpid(child, &status, 0) == child);
    pthread_join(thread, NULL);
    wb__once_run(&slow, run_slowly);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&runs), 1);
}
