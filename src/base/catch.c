/* Exceptions of C++.  Functions of the program are called through wb__call_caught.  If a C++
 * program has given the library a catcher (cxx.h), an exception that the function throws is caught
 * there and kept for this thread, as an error is, until a call of the program ends
 * (wb__edge_leave). */
#include "base/base.h"
#include "base/mutex.h"

#include <stdatomic.h>

static wb__mutex catch_lock = WB__MUTEX_INIT;
static _Atomic(wb_catcher_ *) catchers;           /* a list: one of each file of the program */
static _Thread_local wb__thrown catch_kept;

void wb_catch_(wb_catcher_ *catcher, bool adds)
{
    if (WB__NULL(catcher)) return;
    wb__mutex_lock(&catch_lock);
    wb_catcher_ *head = atomic_load(&catchers), **at = &head;
    while (*at && *at != catcher) at = &(*at)->next;
    if (*at) *at = catcher->next;
    if (adds) {
        catcher->next = head;
        head = catcher;
    }
    atomic_store(&catchers, head);
    wb__mutex_unlock(&catch_lock);
}

bool wb__has_thrown(void) { return catch_kept.what; }

wb__thrown wb__thrown_take(void)
{
    const wb__thrown taken = catch_kept;
    catch_kept = (wb__thrown){0};
    return taken;
}

void wb__thrown_drop(void)
{
    if (catch_kept.what) catch_kept.drop(catch_kept.what);
    catch_kept = (wb__thrown){0};
}

void wb__thrown_give(wb__thrown thrown)
{
    if (!thrown.what) return;
    wb__thrown_drop();
    catch_kept = thrown;
}

void wb__throw_again(void)
{
    const wb__thrown thrown = wb__thrown_take();
    if (thrown.what) thrown.again(thrown.what);
}

bool (*wb__backend_calls)(void (*run)(void *arg), void *arg) = wb__call_caught;

bool wb__call_caught(void (*run)(void *arg), void *arg)
{
    const wb_catcher_ *c = atomic_load_explicit(&catchers, memory_order_acquire);
    char text[256];
    if (!c) return run(arg), true;
    void *what = c->call(run, arg, text, sizeof text);
    if (!what) return true;
    wb__thrown_give((wb__thrown){what, c->again, c->drop});
    wb__fail(WB_ERROR_ARGUMENT, "a function of the program has thrown an exception: %s", text);
    return false;
}
