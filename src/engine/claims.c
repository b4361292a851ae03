/* Which thread trains a variable.  A thread claims a variable while it has a pending write to the
 * variable, or trains the model that the variable belongs to (wb_train); the claim waits until no
 * other thread evaluates with the variable.  Meanwhile a call or an evaluation of another thread
 * that uses the variable fails.
 *
 *   writer    the number of the thread that has claimed the variable, or 0
 *   readers   number of evaluations, and of operations being made, of threads that have no claim
 *   forks     wb__forks when `writer` and `readers` were last right
 *
 * A reader counts itself and then looks at the writer; a writer enters itself and then looks at the
 * readers.  Both are sequentially consistent, so that one of two sees the other.
 *
 * A child of fork has one thread of its parent.  The first use of a variable in the child forgets
 * the claims and the readers of the parent's other threads (settle_counts). */
#include "base/mutex.h"
#include "engine/request.h"

double wb__claim_waits = 20;            /* seconds for which a claim waits for readers */

/* ---- fork ------------------------------------------------------------------------------------ */

_Atomic uint16_t wb__forks;
static _Atomic long claim_survivor;     /* the number of the thread that called fork, or 0 */
static wb__mutex claim_settling = WB__MUTEX_INIT;

/* Ends the claim of a thread that a fork has lost.  Its unfinished writes are not made: v has the
 * version in its memory.  References of the lost thread stay, as do all objects that it had. */
static void forget_writer(wb_tensor *v)
{
    if (v->current != v->live) v->current = wb__ref(v->live);
    if (v->storage != v->live->storage) v->storage = wb__storage_ref(v->live->storage);
    v->claims = 0;
    v->claims_write = 0;
    atomic_store(&v->writer, 0);
}

/* Forgets the writer and the readers of v that a fork has lost. */
static void settle_counts(wb_tensor *v)
{
    wb__mutex_lock(&claim_settling);
    const uint16_t now = atomic_load(&wb__forks);
    if (atomic_load(&v->forks) != now) {
        const long w = atomic_load(&v->writer);
        if (w && w != atomic_load(&claim_survivor)) forget_writer(v);
        atomic_store(&v->readers, 0);
        atomic_store(&v->forks, now);
    }
    wb__mutex_unlock(&claim_settling);
}

static inline void settle_if_forked(wb_tensor *v)
{
    if (wb__unlikely(atomic_load_explicit(&v->forks, memory_order_acquire) != wb__fork_number()))
        settle_counts(v);
}

/* ---- one thread ------------------------------------------------------------------------------ */

/* Locked instructions cost a small optimiser step several per cent.  While one thread alone has
 * used the library it counts only wb__alone, without locked instructions.  The second thread,
 * before its first use, sets wb__several, has the system make that visible (so that either the
 * first thread sees wb__several, or the second sees what the first has written), and waits until
 * the first thread has ended what it had begun; for a second at most, since a function of the
 * program in there may wait for the second thread. */
atomic_bool wb__several;
atomic_int wb__alone;
static _Atomic long claim_first;        /* number of the thread that used the library first */

void wb__claims_in_child(void)
{
    const long me = wb__thread_now ? wb__thread_now->number : 0;
    atomic_store(&claim_survivor, me);
    if (me != atomic_load(&claim_first)) atomic_store(&wb__alone, 0);
    atomic_fetch_add(&wb__forks, 1);
}

void wb__claims_thread(void)
{
    static atomic_bool any;
    if (!atomic_exchange(&any, true)) {
        atomic_store(&claim_first, wb__this_thread()->number);
        if (!wb__os_barrier(true)) atomic_store(&wb__several, true);
        return;
    }
    if (atomic_exchange(&wb__several, true)) return;
    wb__os_barrier(false);
    const double begun = wb__now();
    while (atomic_load(&wb__alone) && wb__now() - begun < 1) wb__os_yield();
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Sets the error that another thread has claimed v, and returns its code. */
static int fail_claimed(const wb_tensor *v, long writer, const char *what)
{
    return wb__fail(WB_ERROR_ARGUMENT, "%s: thread %ld trains or assigns %s%s%s, and this is thread"
                    " %ld: wait until that is done, or use a copy of the model (wb_clone)", what,
                    writer, v->name ? v->name : "", v->name ? " " : "", wb_describe(v),
                    wb__this_thread()->number);
}

bool wb__overwritten_by_another(const char *what, const wb_tensor *x)
{
    const long me = wb__this_thread()->number, writer = atomic_load(&x->writer);
    if (!writer || writer == me) return false;
    wb__fail(WB_ERROR_VERSION, "%s: thread %ld has written %s since this thread, %ld, used it for "
             "%s: wait until that thread is done, or use a copy of the model (wb_clone)", what,
             writer, x->name ? x->name : "a parameter", me, wb_describe(x));
    return true;
}

wb__reading wb__read_begin(wb_tensor *v, const char *what)
{
    settle_if_forked(v);
    if (atomic_load_explicit(&v->writer, memory_order_relaxed) == wb__this_thread()->number)
        return WB__READS_OWN;
    atomic_fetch_add(&v->readers, 1);
    const long w = atomic_load(&v->writer);
    if (wb__likely(!w)) return WB__READS_COUNTED;
    atomic_fetch_sub(&v->readers, 1);
    fail_claimed(v, w, what);
    return WB__READS_NOT;
}

void wb__read_end(wb_tensor *v, int forks)
{
    if (wb__likely(forks == wb__fork_number()))
        atomic_fetch_sub_explicit(&v->readers, 1, memory_order_release);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* Whether another thread reads v, or may do so in the call that it has begun alone. */
static bool is_read_elsewhere(const wb_tensor *v)
{
    return atomic_load(&v->readers) ||
           (atomic_load(&wb__alone) && atomic_load(&claim_first) != wb__this_thread()->number);
}

/* Waits until no other thread reads v: at first by letting other threads run, then by sleeping. */
static bool wait_for_readers(const wb_tensor *v)
{
    enum { TURNS = 100, SHORT = 50 * 1000, LONG = 1000 * 1000 };      /* nanoseconds */
    const double begun = wb__now();
    int64_t pause = SHORT;
    for (int i = 0; is_read_elsewhere(v); i++) {
        if (wb__now() - begun > wb__claim_waits) return false;
        if (i < TURNS) {
            wb__os_yield();
            continue;
        }
        wb__os_sleep(pause);
        pause = WB__MIN(2 * pause, LONG);
    }
    return true;
}

bool wb__is_claimed(const wb_tensor *v)
{
    return atomic_load_explicit(&v->writer, memory_order_relaxed) == wb__this_thread()->number;
}

wb_tensor *wb__to_evaluate(const char *what, wb_tensor *x)
{
    if (x->op != WB__OP_variable) return x;
    if (wb__is_claimed(x)) return x->current;
    settle_if_forked(x);
    const long w = atomic_load_explicit(&x->writer, memory_order_relaxed);
    if (w) fail_claimed(x, w, what);
    return w ? NULL : x;
}

/* Claims a variable whose counts are settled (settle_counts). */
static inline int claim_variable(wb_tensor *v, const char *what)
{
    const long me = wb__this_thread()->number;
    long writer = atomic_load_explicit(&v->writer, memory_order_relaxed);
    if (writer == me) return v->claims++, 0;
    if (wb__is_alone()) {
        atomic_store_explicit(&v->writer, me, memory_order_relaxed);
        v->claims = 1;
        if (wb__is_alone()) return 0;
        atomic_store(&v->writer, 0);            /* another thread has just begun */
    }
    writer = 0;
    if (!atomic_compare_exchange_strong(&v->writer, &writer, me))
        return fail_claimed(v, writer, what);
    if (wb__unlikely(is_read_elsewhere(v)) && !wait_for_readers(v)) {
        atomic_store(&v->writer, 0);
        return wb__fail(WB_ERROR_ARGUMENT, "%s: another thread has evaluated with %s%s%s for %g s: "
                        "wait for that thread, or train a copy of the model (wb_clone)", what,
                        v->name ? v->name : "", v->name ? " " : "", wb_describe(v),
                        wb__claim_waits);
    }
    v->claims = 1;
    return 0;
}

int wb__claim(wb_tensor *v, const char *what)
{
    settle_if_forked(v);
    return claim_variable(v, what);
}

void wb__unclaim(wb_tensor *v)
{
    if (!--v->claims) atomic_store_explicit(&v->writer, 0, memory_order_release);
}

int wb__claim_write(wb_tensor *v)
{
    settle_if_forked(v);        /* forgets the claim of a thread that a fork has lost */
    if (wb__is_claimed(v) && v->claims_write) return 0;
    const int status = claim_variable(v, "assign");
    if (!status) v->claims_write = 1;
    return status;
}

void wb__unclaim_write(wb_tensor *v)
{
    if (!v->claims_write) return;
    v->claims_write = 0;
    wb__unclaim(v);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

int wb__leaves_begin(wb__request *r)
{
    r->n_reads = 0;
    r->forks = wb__fork_number();
    r->alone = wb__alone_begin();
    for (int i = 0; !r->alone && i < r->n_leaves; i++) {
        const wb_tensor *x = r->leaves[i].tensor;
        if (wb__is_gone(x)) return wb__gone(x);         /* another thread has overwritten it */
        wb_tensor *v = wb__variable_of(x);
        if (!v) continue;
        const wb__reading reads = wb__read_begin(v, "evaluation");
        if (!reads) return wb_error_code();
        if (reads == WB__READS_OWN) continue;
        if (!wb__reserve(&r->reads, &r->reads_capacity, r->n_reads + 1, sizeof *r->reads)) {
            wb__read_end(v, r->forks);
            return WB_ERROR_MEMORY;
        }
        r->reads[r->n_reads++] = v;
        if (wb__is_gone(x)) return wb__gone(x);
    }
    return 0;
}

void wb__leaves_end(wb__request *r)
{
    if (r->alone) wb__alone_end();
    r->alone = false;
    for (int i = 0; i < r->n_reads; i++) wb__read_end(r->reads[i], r->forks);
    r->n_reads = 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

int wb__gone(const wb_tensor *x)
{
    if (wb__overwritten_by_another("evaluation", x)) return WB_ERROR_VERSION;
    if (x->flags & WB__CUT)
        return wb__fail(WB_ERROR_VERSION,
                        "%s was asked for, which was made from a value of %s that has been "
                        "overwritten since: read it before the update, or open a scope for each "
                        "step",
                        wb_describe(x), x->name ? x->name : "a parameter");
    return wb__fail(WB_ERROR_VERSION,
                    "a value of %s, %s, was asked for that has been overwritten since: evaluate it "
                    "together with the update (wb_eval(loss, it)), or read it before",
                    x->name ? x->name : "a parameter", wb_describe(x));
}

wb_tensor *wb__bind_begin(const char *what, wb_tensor *x, wb__value_read *r)
{
    wb_tensor *v = x->op == WB__OP_variable ? x : wb__is_gone(x) ? NULL : wb__variable_of(x);
    *r = (wb__value_read){.forks = wb__fork_number()};
    if (!v) return x;
    const wb__reading reads = wb__read_begin(v, what);
    if (!reads) return NULL;
    if (reads == WB__READS_COUNTED) r->counted = v;
    return wb__bind(x);
}

void wb__value_end(const wb__value_read *r)
{
    if (r->counted) wb__read_end(r->counted, r->forks);
}

wb_tensor *wb__version(const char *what, wb_tensor *x)
{
    wb__value_read r;
    if (x->op != WB__OP_variable || wb__is_claimed(x)) return wb__bind(x);
    wb_tensor *version = wb__bind_begin(what, x, &r);
    if (version) version = wb__scope_give(wb__ref(version));
    wb__value_end(&r);
    return version;
}
