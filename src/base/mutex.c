/* Locks that fork knows; see mutex.h. */
#include "base/mutex.h"

_Thread_local WB__FAST_TLS int wb__mutexes_held;
_Atomic int wb__forking;
_Atomic int wb__fork_tries = 10 * 1000;
static _Atomic unsigned mutex_forks;    /* how often threads began to take all locks */
static _Thread_local WB__FAST_TLS unsigned waited_for;  /* mutex_forks at the last wait */

enum {
    MUTEX_SHORT = 50 * 1000,            /* nanoseconds between the first tries of fork */
    LONG = 1000 * 1000,                 /* nanoseconds between the later tries of fork */
    WAITS = 1000                        /* most waits of LONG of a thread for a fork: one second */
};

/* The variables below are guarded by mutex_list_lock, which is held briefly, and during fork. */
static wb__os_mutex mutex_list_lock = WB__OS_MUTEX_INIT;
static wb__mutex *mutex_all;
static wb__fork_handler *mutex_before, *mutex_children;
static bool mutex_registered;

/* ---- fork ------------------------------------------------------------------------------------ */

/* Gives back the locks that fork has taken, up to `end`. */
static void mutex_give_back(const wb__mutex *end)
{
    for (wb__mutex *m = mutex_all; m != end; m = m->next) {
        if (m->at_fork) wb__os_mutex_unlock(&m->mutex);
        m->at_fork = false;
    }
}

/* Locks the list and all locks, except those that this thread holds already.  If another thread
 * holds a lock, keeps none and returns false; at the last try, leaves such a lock out. */
static bool mutex_take_all(bool last)
{
    wb__os_mutex_lock(&mutex_list_lock);
    for (wb__mutex *m = mutex_all; m; m = m->next) {
        if (wb__mutex_is_mine(m)) continue;
        m->at_fork = wb__os_mutex_try(&m->mutex);
        if (m->at_fork || last) continue;
        mutex_give_back(m);
        wb__os_mutex_unlock(&mutex_list_lock);
        return false;
    }
    return true;
}

static void call_handlers(const wb__fork_handler *h)
{
    for (; h; h = h->next) h->f();
}

static void mutex_before_fork(void)
{
    atomic_fetch_add(&mutex_forks, 1);
    atomic_fetch_add(&wb__forking, 1);
    const int most = atomic_load(&wb__fork_tries);
    for (int i = 0; !mutex_take_all(i == most); i++) wb__os_sleep(i < 20 ? MUTEX_SHORT : LONG);
    call_handlers(mutex_before);
}

static void mutex_in_parent(void)
{
    mutex_give_back(NULL);
    wb__os_mutex_unlock(&mutex_list_lock);
    atomic_fetch_sub(&wb__forking, 1);
}

static void mutex_in_child(void)
{
    for (wb__mutex *m = mutex_all; m; m = m->next) {
        if (m->at_fork || wb__mutex_is_mine(m)) continue;
        wb__os_mutex_init(&m->mutex);   /* its owner does not exist in the child */
        atomic_store(&m->owner, NULL);
    }
    mutex_give_back(NULL);
    wb__os_mutex_unlock(&mutex_list_lock);
    atomic_store(&wb__forking, 0);
    call_handlers(mutex_children);
}

/* Has the functions above called at each fork.  The caller holds the lock of the list. */
static void register_handlers(void)
{
    if (!mutex_registered)
        mutex_registered = wb__os_at_fork(mutex_before_fork, mutex_in_parent, mutex_in_child);
}

/* Adds a handler behind the others of the list. */
static void add_handler(wb__fork_handler **to, wb__fork_handler *h)
{
    wb__os_mutex_lock(&mutex_list_lock);
    register_handlers();
    if (!h->added) {
        while (*to) to = &(*to)->next;
        *to = h;
        h->added = true;
    }
    wb__os_mutex_unlock(&mutex_list_lock);
}

void wb__at_fork(wb__fork_handler *in_child) { add_handler(&mutex_children, in_child); }
void wb__before_fork(wb__fork_handler *h) { add_handler(&mutex_before, h); }

/* ---- locks ----------------------------------------------------------------------------------- */

static void mutex_add_to_list(wb__mutex *m)
{
    wb__os_mutex_lock(&mutex_list_lock);
    register_handlers();
    if (!atomic_load(&m->listed)) {
        m->link = &mutex_all;
        m->next = mutex_all;
        if (mutex_all) mutex_all->link = &m->next;
        mutex_all = m;
        atomic_store_explicit(&m->listed, true, memory_order_release);
    }
    wb__os_mutex_unlock(&mutex_list_lock);
}

void wb__mutex_enter(wb__mutex *m)
{
    if (!atomic_load(&m->listed)) {
        wb__os_stay_loaded();       /* handlers, threads and keys call this library's code */
        mutex_add_to_list(m);
    }
    if (wb__mutexes_held || !atomic_load(&wb__forking)) return;
    const unsigned fork = atomic_load(&mutex_forks);
    for (int i = 0; waited_for != fork && atomic_load(&wb__forking) && i < WAITS; i++)
        wb__os_sleep(LONG);
    waited_for = fork;
}

int wb__mutex_init(wb__mutex *m)
{
    *m = (wb__mutex){.listed = false};
    return !wb__os_mutex_init(&m->mutex);
}

void wb__mutex_destroy(wb__mutex *m)
{
    if (atomic_load(&m->listed)) {
        wb__os_mutex_lock(&mutex_list_lock);
        *m->link = m->next;
        if (m->next) m->next->link = m->link;
        wb__os_mutex_unlock(&mutex_list_lock);
    }
    wb__os_mutex_destroy(&m->mutex);
}

void wb__mutex_wait(wb__os_cond *changed, wb__mutex *m)
{
    wb__mutex_given(m);
    wb__os_cond_wait(changed, &m->mutex);
    wb__mutex_taken(m);
}

bool wb__mutex_wait_for(wb__os_cond *changed, wb__mutex *m, double seconds)
{
    wb__mutex_given(m);
    const bool in_time = wb__os_cond_wait_for(changed, &m->mutex, seconds);
    wb__mutex_taken(m);
    return in_time;
}

void wb__once_now(wb__once *once, void (*f)(void))
{
    wb__mutex_lock(&once->lock);
    if (!atomic_load_explicit(&once->done, memory_order_relaxed)) {
        f();
        atomic_store_explicit(&once->done, true, memory_order_release);
    }
    wb__mutex_unlock(&once->lock);
}
