/* Calls of functions of the program, and the edges of the library, at which an exception of such a
 * function is thrown again. */
#include "engine/object.h"

static bool program_is_open(const wb__thread *t, const wb_scope *scope)
{
    const wb_scope *s = t->scope;
    while (s && s != scope) s = s->outer;
    return s == scope;
}

/* Closes the scopes inside `scope` that a function of the program has left open. */
static void close_scopes(const wb__thread *t, const wb_scope *scope)
{
    wb__error_kept error;
    wb__error_keep(&error);
    if (program_is_open(t, scope))
        while (t->scope && t->scope != scope && t->scope->outer) wb_scope_close(t->scope);
    wb__error_restore(&error);
}

bool wb__call_program(void (*run)(void *arg), void *arg)
{
    wb__thread *t = wb__this_thread();
    const wb_scope *scope = t->scope;
    const int inside = t->inside, training = t->training;
    t->inside = 0;
    t->called++;
    const bool returned = wb__call_caught(run, arg);
    t->called--;
    t->inside = inside;
    if (wb__likely(returned)) return true;
    t->training = training;
    close_scopes(t, scope);
    return false;
}

wb__thread *wb__edge_enter(void)
{
    wb__thread *t = wb__this_thread();
    if (wb__unlikely(!t->inside && wb__has_thrown())) wb__throw_again();
    t->inside++;
    return t;
}

void wb__edge_leave(wb__thread **edge)
{
    if (!--(*edge)->inside && wb__unlikely(wb__has_thrown())) wb__throw_again();
}
