/* Who trains a variable.  A thread claims a variable while it has a pending write to it, or trains
 * the model that it belongs to (wb_train); the claim waits until no other thread evaluates with the
 * variable.  Meanwhile a call or an evaluation of another thread that uses the variable fails.
 *
 *   writer    the thread that has claimed it, or NULL
 *   readers   evaluations, and operations being made, of threads that have not claimed it
 *
 * A reader counts itself and then looks at the writer; a writer enters itself and then looks at the
 * readers.  Both are sequentially consistent, so that one of two sees the other. */
#include "engine/request.h"

#include <sched.h>

enum { LONGEST = 20 };          /* seconds for which a claim waits for readers */

static int taken(const wb_tensor *v, const char *what)
{
    const wb__thread *other = atomic_load(&v->writer), *t = wb__this_thread();
    return wb__fail(WB_ERROR_ARGUMENT, "%s: thread %ld trains or assigns %s%s%s, and this is thread"
                    " %ld: wait until that is done, or use a copy of the model (wb_clone)", what,
                    other ? other->number : 0, v->name ? v->name : "", v->name ? " " : "",
                    wb_describe(v), t->number);
}

bool wb__readable(const wb_tensor *v, const char *what)
{
    const wb__thread *w = atomic_load_explicit(&v->writer, memory_order_acquire);
    return wb__likely(!w || w == wb__this_thread()) || (taken(v, what), false);
}

wb__reading wb__read_begin(wb_tensor *v, const char *what)
{
    const wb__thread *t = wb__this_thread();
    if (atomic_load_explicit(&v->writer, memory_order_relaxed) == t) return WB__READS_OWN;
    atomic_fetch_add(&v->readers, 1);
    const wb__thread *w = atomic_load(&v->writer);
    if (wb__likely(!w)) return WB__READS_COUNTED;
    atomic_fetch_sub(&v->readers, 1);
    taken(v, what);
    return WB__READS_NOT;
}

void wb__read_end(wb_tensor *v) { atomic_fetch_sub_explicit(&v->readers, 1, memory_order_release); }

int wb__read_input(wb_tensor *x, wb__reading *reads)
{
    *reads = WB__READS_OWN;
    if (x && x->op == WB__OP_variable) *reads = wb__read_begin(x, "call_compiled");
    return *reads ? 0 : (int)wb_error_code();
}

/* Waits until no other thread reads v. */
static bool wait_for_readers(const wb_tensor *v)
{
    const double begun = wb__now();
    while (atomic_load(&v->readers)) {
        if (wb__now() - begun > LONGEST) return false;
        sched_yield();
    }
    return true;
}

int wb__claim(wb_tensor *v, const char *what)
{
    wb__thread *t = wb__this_thread(), *none = NULL;
    if (atomic_load_explicit(&v->writer, memory_order_relaxed) == t) return v->claims++, 0;
    if (!atomic_compare_exchange_strong(&v->writer, &none, t)) return taken(v, what);
    if (wb__unlikely(atomic_load(&v->readers)) && !wait_for_readers(v)) {
        atomic_store(&v->writer, NULL);
        return wb__fail(WB_ERROR_ARGUMENT, "%s: another thread has evaluated with %s for %d s",
                        what, wb_describe(v), LONGEST);
    }
    v->claims = 1;
    return 0;
}

void wb__unclaim(wb_tensor *v)
{
    if (!--v->claims) atomic_store_explicit(&v->writer, NULL, memory_order_release);
}

int wb__claim_write(wb_tensor *v)
{
    const int status = v->claims_write ? 0 : wb__claim(v, "assign");
    if (!status) v->claims_write = true;
    return status;
}

void wb__unclaim_write(wb_tensor *v)
{
    if (!v->claims_write) return;
    v->claims_write = false;
    wb__unclaim(v);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

int wb__leaves_begin(wb__request *r)
{
    r->n_reads = 0;
    for (int i = 0; i < r->n_leaves; i++) {
        const wb_tensor *x = r->leaves[i].tensor;
        if (x->flags & WB__GONE) return wb__gone(x);    /* another thread has overwritten it */
        wb_tensor *v = wb__variable_of(x);
        if (!v) continue;
        const wb__reading reads = wb__read_begin(v, "evaluation");
        if (!reads) return wb_error_code();
        if (reads == WB__READS_OWN) continue;
        if (!wb__reserve(&r->reads, &r->reads_capacity, r->n_reads + 1, sizeof *r->reads)) {
            wb__read_end(v);
            return WB_ERROR_MEMORY;
        }
        r->reads[r->n_reads++] = v;
        if (x->flags & WB__GONE) return wb__gone(x);
    }
    return 0;
}

void wb__leaves_end(wb__request *r)
{
    for (int i = 0; i < r->n_reads; i++) wb__read_end(r->reads[i]);
    r->n_reads = 0;
}
