/* Locks that fork knows; see mutex.h. */
#include "base/mutex.h"

_Thread_local WB__FAST_TLS int wb__mutexes_held;
_Atomic int wb__forking;
_Atomic int wb__fork_tries = 10 * 1000;
static _Atomic unsigned forks;          /* number of times that a thread began to wait for locks */
static _Thread_local WB__FAST_TLS unsigned waited_for;  /* the latest that this thread waited for */

enum {
    SHORT = 50 * 1000,                  /* nanoseconds between the first tries of fork */
    LONG = 1000 * 1000,                 /* and between the later ones */
    WAITS = 1000                        /* a second */
};

/* What follows is guarded by list_lock, which is held during fork and otherwise briefly. */
static wb__os_mutex list_lock = WB__OS_MUTEX_INIT;
static wb__mutex *all;
static wb__fork_handler *before, *children;
static bool registered;

/* ---- fork ------------------------------------------------------------------------------------ */

/* Gives back the locks that fork has taken, up to `end`. */
static void give_back(const wb__mutex *end)
{
    for (wb__mutex *m = all; m != end; m = m->next) {
        if (m->at_fork) wb__os_mutex_unlock(&m->mutex);
        m->at_fork = false;
    }
}

/* Takes the list and all locks, except those that this thread holds already.  If one is taken,
 * keeps none and returns false; at the last try it leaves such a lock out. */
static bool take_all(bool last)
{
    wb__os_mutex_lock(&list_lock);
    for (wb__mutex *m = all; m; m = m->next) {
        if (wb__mutex_is_mine(m)) continue;
        m->at_fork = wb__os_mutex_try(&m->mutex);
        if (m->at_fork || last) continue;
        give_back(m);
        wb__os_mutex_unlock(&list_lock);
        return false;
    }
    return true;
}

static void call_all(const wb__fork_handler *h)
{
    for (; h; h = h->next) h->f();
}

static void before_fork(void)
{
    atomic_fetch_add(&forks, 1);
    atomic_fetch_add(&wb__forking, 1);
    const int most = atomic_load(&wb__fork_tries);
    for (int i = 0; !take_all(i == most); i++) wb__os_sleep(i < 20 ? SHORT : LONG);
    call_all(before);
}

static void in_parent(void)
{
    give_back(NULL);
    wb__os_mutex_unlock(&list_lock);
    atomic_fetch_sub(&wb__forking, 1);
}

static void in_child(void)
{
    for (wb__mutex *m = all; m; m = m->next) {
        if (m->at_fork || wb__mutex_is_mine(m)) continue;
        wb__os_mutex_init(&m->mutex);   /* its owner does not exist here */
        atomic_store(&m->owner, NULL);
    }
    give_back(NULL);
    wb__os_mutex_unlock(&list_lock);
    atomic_store(&wb__forking, 0);
    call_all(children);
}

/* With the list's lock held. */
static void register_handlers(void)
{
    if (!registered) registered = wb__os_at_fork(before_fork, in_parent, in_child);
}

/* Adds a handler behind the others. */
static void add(wb__fork_handler **to, wb__fork_handler *h)
{
    wb__os_mutex_lock(&list_lock);
    register_handlers();
    if (!h->added) {
        while (*to) to = &(*to)->next;
        *to = h;
        h->added = true;
    }
    wb__os_mutex_unlock(&list_lock);
}

void wb__at_fork(wb__fork_handler *in_child) { add(&children, in_child); }
void wb__before_fork(wb__fork_handler *h) { add(&before, h); }

/* ---- locks ----------------------------------------------------------------------------------- */

static void list(wb__mutex *m)
{
    wb__os_mutex_lock(&list_lock);
    register_handlers();
    if (!atomic_load(&m->listed)) {
        m->link = &all;
        m->next = all;
        if (all) all->link = &m->next;
        all = m;
        atomic_store_explicit(&m->listed, true, memory_order_release);
    }
    wb__os_mutex_unlock(&list_lock);
}

void wb__mutex_enter(wb__mutex *m)
{
    if (!atomic_load(&m->listed)) {
        wb__os_stay_loaded();       /* handlers, threads and keys call this library's code */
        list(m);
    }
    if (wb__mutexes_held || !atomic_load(&wb__forking)) return;
    const unsigned fork = atomic_load(&forks);
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
        wb__os_mutex_lock(&list_lock);
        *m->link = m->next;
        if (m->next) m->next->link = m->link;
        wb__os_mutex_unlock(&list_lock);
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
