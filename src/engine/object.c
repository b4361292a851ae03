/* Reference-counted objects and the state of a thread.  Scopes are in scope.c. */
#include "engine/object.h"

#include "base/environment.h"
#include "base/mutex.h"
#include "base/parallel.h"
#include "engine/tensor.h"

#include <stdlib.h>
#include <string.h>

_Thread_local wb__thread *wb__thread_now;
static wb__os_key object_thread_key;
static wb__once object_thread_once = WB__ONCE_INIT;

static void close_all_scopes(wb__thread *t)
{
    while (t->scope) wb_scope_close(t->scope);
    wb__free(t->pending);
    t->pending = NULL;
    t->n_pending = t->pending_capacity = 0;
    wb__scope_spare_free(t);
}

static void object_thread_end(void *memory)
{
    wb__thread *t = memory;
    wb__thread_now = t; /* thread-local variables may be reset before the key's destructor runs */
    close_all_scopes(t);
    wb__engine.thread_end();
    wb__thread_now = NULL;
    free(t);
}

/* Sets what happens at the end of a thread and in a child of fork. */
static void object_set_up_threads(void)
{
    wb__os_key_make(&object_thread_key, object_thread_end);
    static wb__fork_handler child = {.f = wb__claims_in_child};
    wb__at_fork(&child);
    wb__backend_calls = wb__call_program;
}

wb__thread *wb__thread_start(void)
{
    /* the state of all threads for which calloc failed */
    static wb__thread spare = {.number = -1};
    wb__once_run(&object_thread_once, object_set_up_threads);
    wb__thread *t = calloc(1, sizeof *t);
    if (!t) return &spare;
    t->number = wb__os_thread_number();
    t->eager = wb__environment_switch("WEBER_EAGER", false);
    if (wb__debug("check")) wb__checks = true;
    wb__thread_now = t;
    wb__os_key_set(object_thread_key, t);
    wb__environment_check();
    wb__claims_thread();
    return t;
}

void *wb__object_new_owned(const wb__class *class, size_t bytes)
{
    wb__object *o = wb__pool_get(bytes);
    if (!o) return NULL;
    memset(o, 0, bytes);
    o->class = class;
    atomic_init(&o->counts, 1);
    return o;
}

void *wb__object_new(const wb__class *class, size_t bytes)
{
    return wb__scope_give(wb__object_new_owned(class, bytes));
}

void wb__object_end(void *object, size_t bytes)
{
    if (wb__unlikely(wb__checks)) {
        wb__quarantine(object, bytes);
        return;
    }
    ((wb__object *)object)->class = &wb__freed_class;
    wb__pool_put(object, bytes);
}

void wb__unref(void *object)
{
    if (object) wb__drop(object, 1);
}

void *wb_retain(void *object)
{
    if (!wb__alive("retain", object)) return NULL;
    wb__hold(object);
    return wb__ref(object);
}

void wb_release(void *object)
{
    if (object && wb__alive("release", object)) wb__unref(object);
}

void (*wb__before_shutdown)(void), (*wb__at_shutdown)(void);

void wb_shutdown(void)
{
    WB__FIRST(wb_shutdown, );
    wb__thread *t = wb__thread_now;
    if (t && t->called) {
        wb__fail(WB_ERROR_ARGUMENT, "shutdown: called in a function that the library calls: call "
                 "it when that has returned");
        return;
    }
    if (t) close_all_scopes(t);
    if (wb__before_shutdown) wb__before_shutdown();
    wb__engine.shutdown();
    if (wb__at_shutdown) wb__at_shutdown();
    wb__parallel_stop();
    wb__cpu.backend->trim(&wb__cpu);
    wb__quarantine_empty();
    wb__pool_trim();
}
