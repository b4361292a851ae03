/* Evaluation.  For each device, one plan computes the requested tensors, the pending writes, and
 * every unconsumed result (an unevaluated tensor without consumers) that depends on a version about
 * to be overwritten. */
#include "engine/evaluate.h"

#include "engine/journal.h"
#include "engine/request.h"

#include <string.h>

enum { MOST_DEVICES = 64 };

/* A thread's arrays, kept between evaluations. */
typedef struct {
    wb__request request;
    wb__order side;                     /* for walks over unconsumed results and pending writes,
                                           beside that of the request */
    uint8_t *reads;                     /* what find_reads found for each tensor of `side` */
    int reads_capacity;
    wb_tensor **roots;                  /* tensors that the evaluation computes */
    int roots_capacity;
    void **buffers;                     /* memory of each buffer of the plan */
    size_t *offsets;
    int buffers_capacity, offsets_capacity;
} eval_work;
static _Thread_local eval_work eval;

/* ---- writes to variables --------------------------------------------------------------------- */

static void set_current(wb_tensor *v, wb_tensor *version)
{
    wb_tensor *old = v->current;
    v->current = wb__ref(version);
    wb__unref(old);
}

wb_tensor *wb__assign(wb_tensor *v, wb_tensor *value)
{
    wb__thread *t = wb__this_thread();
    if (!value) return NULL;
    if (!wb__reserve(&t->pending, &t->pending_capacity, t->n_pending + 1, sizeof *t->pending))
        return NULL;
    if (wb__claim_write(v)) return NULL;
    wb_tensor *a = wb__node_with(WB__OP_assign, (wb_dtype)v->dtype, v->ndim, v->dims, 1, &value, 0,
                                 NULL, 0, NULL);
    if (!a) {
        if (!(v->current->flags & WB__PENDING)) wb__unclaim_write(v);
        return NULL;
    }
    a->device = v->device;
    wb__unconsumed_remove(a);
    a->flags |= WB__PENDING;
    a->variable = v;
    a->live = v->current->flags & WB__PENDING ? v->current : NULL;
    a->name = v->name;
    t->pending[t->n_pending++] = wb__ref(a);
    set_current(v, a);
    return a;
}

/* Marks `old`, the version that was in v's memory, as gone.  Drops the caller's reference to
 * `old`. */
static void mark_version_gone(wb_tensor *old, const wb_tensor *v)
{
    wb__storage *s = old->storage;
    old->name = v->name;
    atomic_store_explicit(&old->writer, wb__this_thread()->number, memory_order_relaxed);
    wb__set_gone(old);
    wb__storage_unref(s);
    wb__unref(old);
}

/* Ends the pending write a after a plan made it.  If `last`, a becomes the version in the
 * variable's memory, and the version that was there is gone.  Else a itself is gone, since a later
 * assign to the variable replaced it. */
static void publish_write(wb_tensor *a, bool last)
{
    wb_tensor *v = a->variable;
    a->flags &= (uint16_t)~WB__PENDING;
    if (!v || !last) {
        a->flags |= WB__GONE;
    } else {
        wb_tensor *old = v->live;
        wb__storage *s = v->storage;
        wb__storage_written(s);
        wb__set_storage(a, wb__storage_ref(s), 0);
        v->live = wb__ref(a);
        if (old) mark_version_gone(old, v);
    }
    wb__tensor_detach(a);               /* may free v, or have the program assign to it again */
    v = last ? a->variable : NULL;
    if (v && !(v->current->flags & WB__PENDING)) wb__unclaim_write(v);
}

/* Returns the version of the variable that the pending write a replaces. */
static wb_tensor *version_before(const wb_tensor *a)
{
    return a->live ? a->live : a->variable->live;
}

/* Cancels the pending writes from index `first` on.  The variables get back the versions that they
 * had before these writes. */
static void cancel_writes(wb__thread *t, int first)
{
    for (int i = t->n_pending - 1; i >= first; i--) {
        wb_tensor *a = t->pending[i], *v = a->variable;
        /* already written, before another device failed */
        if (!(a->flags & WB__PENDING)) continue;
        if (v && v->current == a) {
            set_current(v, version_before(a));
            if (!(v->current->flags & WB__PENDING)) wb__unclaim_write(v);
        }
        a->flags = (uint16_t)((a->flags & ~WB__PENDING) | WB__GONE | WB__CANCELLED);
        wb__tensor_detach(a);
    }
}

/* Removes the pending writes from index `first` on from the list, without effect on variables. */
static void clear_pending(wb__thread *t, int first)
{
    int n = t->n_pending;
    t->n_pending = first;
    wb__journal_settle(t);
    for (int i = first; i < n; i++) wb__unref(t->pending[i]);
    if (first) return;
    wb__unref(t->guard);                /* the guard was only for these writes */
    t->guard = NULL;
    t->guard_at_once = false;
    wb__unref(t->exchanged);
    t->exchanged = NULL;
}

int wb__pending_count(void) { return wb__this_thread()->n_pending; }

void wb__forget_pending(int first)
{
    wb__thread *t = wb__this_thread();
    if (first > t->n_pending) return;           /* the writes are evaluated already */
    cancel_writes(t, first);
    clear_pending(t, first);
}

/* Replaces the version in v's memory by a new constant on the same memory, and returns the old
 * version with its reference.  NULL: out of memory. */
static wb_tensor *replace_live(wb_tensor *v)
{
    wb_tensor *old = v->live, *x = wb__constant_on(v->storage, 0, v);
    if (!x) return NULL;
    x->variable = v;
    v->live = wb__ref(x);
    if (v->current == old || !(v->current->flags & WB__PENDING)) set_current(v, x);
    wb_object_free(x);
    return old;
}

int wb__keep_version(wb_tensor *v)
{
    wb__storage *s = v->storage;
    const unsigned own = v->current == v->live ? 2 : 1;
    if (wb__refs(v->live) == own) return 0;
    if (!(v->storage = wb__storage_new(v->device, s->bytes))) {
        v->storage = s;
        return WB_ERROR_MEMORY;
    }
    int status = wb__copy_bytes(v->device, v->storage->data, 0, s->device, s->data, 0, s->bytes);
    wb_tensor *old = status ? NULL : replace_live(v);
    if (!old) {
        wb__storage_unref(v->storage);
        v->storage = s;
        return status ? status : WB_ERROR_MEMORY;
    }
    wb__storage_unref(s);               /* the old version has its own reference */
    old->flags |= WB__KEPT;
    old->name = v->name;
    wb__ref(v);
    wb__unref(old);
    return 0;
}

/* Gives the variable a new version after a replay wrote its memory (evaluate.h).  If only the
 * variable refers to its version, nothing can read the old value, and the version stays. */
int wb__new_version(wb_tensor *v)
{
    wb__storage_written(v->storage);
    if (v->current == v->live && wb__refs(v->live) == 2) return 0;
    wb_tensor *old = replace_live(v);
    if (!old) return WB_ERROR_MEMORY;
    mark_version_gone(old, v);
    return 0;
}

/* ---- unconsumed results ---------------------------------------------------------------------- */

/* What the value of an unevaluated tensor depends on.  READS: a version that is about to be
 * overwritten; EVAL_LOST: a version that is gone; VERSIONS: any version of a variable. */
enum { READS = 1, EVAL_LOST = 2, VERSIONS = 4 };

/* Sets *answer to the set of READS, EVAL_LOST and VERSIONS of an unevaluated tensor.  Returns 0 or
 * an error code. */
static int find_reads(wb_tensor *unconsumed, unsigned *answer)
{
    int before = eval.side.n;
    if (!wb__order_add_unevaluated(&eval.side, unconsumed)) return WB_ERROR_MEMORY;
    if (!wb__reserve(&eval.reads, &eval.reads_capacity, eval.side.n, sizeof *eval.reads))
        return WB_ERROR_MEMORY;
    for (int i = before; i < eval.side.n; i++) {
        const wb_tensor *x = eval.side.node[i];
        unsigned reads = wb__is_gone(x)                         ? EVAL_LOST
                         : wb__is_leaf(x) && wb__overwritten(x) ? READS
                                                                : 0;
        if (x->variable) reads |= VERSIONS;
        for (uint32_t j = 0; !wb__is_leaf(x) && j < x->n_in; j++)
            reads |= eval.reads[wb__order_index(&eval.side, x->in[j], wb__is_leaf)];
        if (wb__flags_of(x) & WB__PENDING)
            /* after the writes, only the last assign to a variable is readable */
            reads = (reads & EVAL_LOST) | VERSIONS |
                    (x->variable && x->variable->current == x ? 0 : READS);
        eval.reads[i] = (uint8_t)reads;
    }
    *answer = eval.reads[wb__order_index(&eval.side, unconsumed, wb__is_leaf)];
    return 0;
}

static int eval_add_root(wb_tensor *x, int *n_roots)
{
    if (!wb__reserve(&eval.roots, &eval.roots_capacity, *n_roots + 1, sizeof *eval.roots))
        return WB_ERROR_MEMORY;
    eval.roots[(*n_roots)++] = x;
    return 0;
}

/* Adds to mine.roots each unconsumed result that depends on a version about to be overwritten.
 * Removes from the ring each result that depends on a version already gone, or on no version. */
static int add_unconsumed(wb__thread *t, int n_requested, int *n_roots)
{
    wb_tensor *unconsumed = t->unconsumed, *const last = unconsumed->prev_unconsumed;
    int status = 0;
    for (bool more = true; more && !status;) {
        wb_tensor *next = unconsumed->next_unconsumed;
        unsigned reads = unconsumed->flags & WB__GONE ? EVAL_LOST : 0;
        bool requested = false;
        for (int i = 0; i < n_requested && i < 8; i++) requested |= eval.roots[i] == unconsumed;
        if (!requested && !reads) status = find_reads(unconsumed, &reads);
        if (!status && reads == (READS | VERSIONS)) status = eval_add_root(unconsumed, n_roots);
        more = unconsumed != last;
        if (reads & EVAL_LOST || (!requested && !status && !(reads & VERSIONS)))
            wb__unconsumed_remove(unconsumed);
        unconsumed = next;
    }
    return status;
}

/* Lists in mine.roots the requested tensors and, if variables are written, the unconsumed results
 * that could not be evaluated afterwards.  Returns 0 or an error code. */
static int eval_list_roots(wb__thread *t, int n, wb_tensor *const *tensors, int *n_roots)
{
    *n_roots = 0;
    for (int i = 0; i < n; i++) {
        wb_tensor *root = wb__to_evaluate("evaluation", tensors[i]);
        if (!root) return WB_ERROR_ARGUMENT;
        if (eval_add_root(root, n_roots)) return WB_ERROR_MEMORY;
    }
    if (!t->n_pending || !t->unconsumed) return 0;
    wb__order_begin(&eval.side);
    return add_unconsumed(t, n, n_roots);
}

/* Whether a pending write reads a version that is gone, so that no pending write can be evaluated.
 * Also true if memory runs out. */
static bool pending_is_lost(const wb__thread *t)
{
    wb__order_begin(&eval.side);
    for (int i = 0; i < t->n_pending; i++) {
        unsigned reads = 0;
        if (find_reads(t->pending[i], &reads) || reads & EVAL_LOST) return true;
    }
    return false;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Sets the buffers of a run: memory of leaves, variables, results and the arena. */
static int eval_bind_buffers(wb__request *r, const wb__plan *p)
{
    const int n = wb__plan_buffers(p);
    if (!wb__reserve(&eval.buffers, &eval.buffers_capacity, n, sizeof *eval.buffers) ||
        !wb__reserve(&eval.offsets, &eval.offsets_capacity, n, sizeof *eval.offsets))
        return WB_ERROR_MEMORY;
    for (int i = 0; i < r->n_writes; i++) {
        wb_tensor *v = r->targets[i] >= 0 ? r->writes[i]->variable : NULL;
        const int status = v ? wb__own_memory(v) : 0;
        if (status) return status;
    }
    for (int i = 0; i < r->n_leaves; i++)
        eval.buffers[i] = wb__memory_of(r->leaves[i].tensor, r->leaves[i].at, &eval.offsets[i]);
    memset(eval.offsets + r->n_leaves, 0, (size_t)(n - r->n_leaves) * sizeof *eval.offsets);
    const uint64_t run = p->n_forms ? wb__form_run() : 0;
    for (int i = 0; i < p->n_forms; i++)
        eval.buffers[p->arena + 1 + i] = wb__form_of(p, i, r->leaves[p->forms[i].leaf].tensor, run);
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= r->n_leaves)
            eval.buffers[r->targets[i]] = r->writes[i]->variable->storage->data;
    return 0;
}

/* Finds or builds the plan of the request and runs it once.  Returns 0, an error code or
 * WB__PLAN_AGAIN. */
static int run_plan(wb__request *r, wb_tensor *guard)
{
    wb__plan *p = wb__plan_find(r);
    if (!p) return wb__error_or(WB_ERROR_MEMORY);
    int status = wb__plan_check_memory(p), made = 0;
    if (!status) status = eval_bind_buffers(r, p);
    int first = r->n_leaves + r->n_targets;
    wb__storage *few[16], **stores = few;
    if (r->n_results > (int)WB__COUNT(few) &&
        !(stores = wb__alloc((size_t)r->n_results * sizeof *stores)))
        status = WB_ERROR_MEMORY;
    for (; !status && made < r->n_results; made++) {
        const wb_tensor *x = r->results[made];
        stores[made] =
            wb__storage_new(p->device, (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype));
        if (!stores[made]) {
            status = wb__error_or(WB_ERROR_MEMORY);     /* the device may be lost */
            break;
        }
        eval.buffers[first + made] = stores[made]->data;
    }
    wb__guard g = wb__guard_of(r->guard ? NULL : guard);
    for (int i = 0; guard && !r->guard && !status && i < r->n_results; i++)
        if (r->results[i] == guard)
            g = (wb__guard){p->device, stores[i]->data, 0, (wb_dtype)guard->dtype};
    if (!status)
        status = wb__plan_run(p, eval.buffers, eval.offsets, r->numbers, r->n_numbers, &g);
    if (!status && r->guard) status = wb__guard_confirm_before();
    if (status == WB_ERROR_MEMORY) wb__plan_report_memory(p);
    wb__plan_done(p);
    bool shown =
        /* A loss that is not finite can still be read. */
        !status || status == WB_ERROR_NUMBER;
    for (int i = 0; i < made; i++) {
        if (shown) wb__set_storage(r->results[i], stores[i], 0);
        else wb__storage_unref(stores[i]);
    }
    if (!status)
        for (int i = 0; i < r->n_writes; i++) publish_write(r->writes[i], r->targets[i] >= 0);
    if (stores != few) wb__free(stores);
    return status;
}

/* Runs the request.  Each time a library declines a step, another plan is built, in which another
 * implementation computes that step. */
static int run_request(wb__request *r, wb_tensor *guard)
{
    int status = run_plan(r, guard);
    while (status == WB__PLAN_AGAIN) {
        wb_clear_error();
        status = run_plan(r, guard);
    }
    return status;
}

static int run_on_device(const wb_device *d, int n_roots, wb_tensor *guard)
{
    int status = wb__request_fill(&eval.request, d, n_roots, eval.roots, true);
    if (status || !(eval.request.n_results || eval.request.n_writes)) return status;
    status = wb__leaves_begin(&eval.request);
    if (!status) status = run_request(&eval.request, guard);
    wb__leaves_end(&eval.request);
    return status;
}

static bool eval_add_device(const wb_device **list, int *n, const wb_device *d)
{
    for (int i = 0; i < *n; i++)
        if (list[i] == d) return true;
    if (*n == MOST_DEVICES) return false;
    list[(*n)++] = d;
    return true;
}

/* Runs one plan on each device.  The guard's device comes first, since the writes on all devices
 * depend on the guard. */
static int run_on_all_devices(wb__thread *t, int n_roots, wb_tensor *guard)
{
    const wb_device *list[MOST_DEVICES];
    int n = 0, status = 0;
    bool fits = true;
    if (guard) fits = eval_add_device(list, &n, wb__device_of(guard));
    for (int i = 0; i < n_roots; i++)
        fits &= eval_add_device(list, &n, wb__device_of(eval.roots[i]));
    for (int i = 0; i < t->n_pending; i++) fits &= eval_add_device(list, &n, t->pending[i]->device);
    if (!fits)
        return wb__fail(WB_ERROR_UNSUPPORTED, "one evaluation on more than %d devices",
                        MOST_DEVICES);
    for (int i = 0; i < n && !status; i++) {
        status = run_on_device(list[i], n_roots, i ? NULL : guard);
        if (!status && !i && guard && n > 1) {
            wb__guard g = wb__guard_of(guard);
            status = wb__guard_check(&g);
        }
    }
    return status;
}

/* Does what run_on_all_devices does.  If that succeeds, sets an error again that was set before:
 * the run may have replaced it by one that it recovered from. */
static __attribute__((noinline)) int run_keeping_error(wb__thread *t, int n_roots, wb_tensor *guard)
{
    wb__error_kept kept;
    wb__error_keep(&kept);
    const int status = run_on_all_devices(t, n_roots, guard);
    if (!status) wb__error_restore(&kept);
    return status;
}

/* Returns the one device of the roots and the pending writes.  NULL: there are several. */
static const wb_device *only_device(const wb__thread *t, int n_roots)
{
    const wb_device *d = wb__device_of(t->pending[0]);
    for (int i = 0; i < n_roots && d; i++)
        if (wb__device_of(eval.roots[i]) != d) d = NULL;
    for (int i = 1; i < t->n_pending && d; i++)
        if (t->pending[i]->device != d) d = NULL;
    return d;
}

/* Decides, before an evaluation with writes, whether the device itself looks at the guard.  If not,
 * waits for the guard of the optimiser step before, unless the evaluation is only `estimated`. */
static int is_guard_late(const wb__thread *t, int n_roots, wb_tensor *guard, bool estimated)
{
    wb__request *r = &eval.request;
    const bool reads = guard && wb__device_of(guard)->backend->begin_read;
    const wb_device *d = reads ? only_device(t, n_roots) : NULL;
    if (!wb__guard_may_be_late(guard, d)) return estimated ? 0 : wb__guard_confirm();
    const int status = wb__guard_before(d, guard, estimated, &r->before);
    if (!status) r->guard = guard;
    return status;
}

static int eval_tensors(int n, wb_tensor *const *tensors, wb_tensor *guard)
{
    wb__thread *t = wb__this_thread();
    int n_roots = 0, status;
    bool pending = t->n_pending > 0;
    t->made = 0;
    t->failed_late = false;
    eval.request.guard = NULL;
    if (wb__unrecordable("evaluation", WB__READS)) return wb_error_code();
    status = eval_list_roots(t, n, tensors, &n_roots);
    if (status == WB_ERROR_ARGUMENT) return status;     /* the pending writes stay */
    const bool guarded = !guard && pending && t->guard;
    if (guarded) guard = t->guard;
    if (!status && guard && !guard->storage) status = eval_add_root(guard, &n_roots);
    if (!status && pending) status = is_guard_late(t, n_roots, guarded ? guard : NULL, false);
    if (!status)
        status = wb__unlikely(wb_error_code()) ? run_keeping_error(t, n_roots, guard)
                                               : run_on_all_devices(t, n_roots, guard);
    if (!pending) return status;
    if (guarded && status == WB_ERROR_NUMBER && !t->failed_late)
        wb__fail_guard(guard, t->guarded_by);
    if (status == WB_ERROR_VERSION && eval.request.refused && !pending_is_lost(t)) return status;
    if (status) cancel_writes(t, 0);
    if (!status && eval.request.guard) {
        wb__guard_take_writes(t);
        wb__guard_begin_late(guard, t->guarded_by);
    }
    clear_pending(t, 0);
    if (!status) wb__cut_stale(t);
    return status;
}

int wb__evaluate(int n, wb_tensor *const *tensors, wb_tensor *guard)
{
    const int status = wb__evaluate_sliced(n, tensors);
    if (!status && guard && !(guard = wb__version("evaluation", guard))) return WB_ERROR_ARGUMENT;
    return status ? status : eval_tensors(n, tensors, guard);
}

int wb__evaluate_pending(void) { return wb__evaluate(0, NULL, NULL); }

static int evaluate_survivors(int n, wb_tensor *const *tensors)
{
    wb__thread *t = wb__this_thread();
    if (!n && !t->n_pending) return 0;
    return eval_tensors(n, tensors, NULL);
}

/* Removes the writes after the first n_writes from the pending writes, sets their variables back to
 * the versions before them, evaluates, and adds the removed writes again. */
int wb__evaluate_first(wb__thread *t, int n_writes, int n, wb_tensor *const *tensors)
{
    const int n_later = t->n_pending - n_writes;
    wb_tensor **later = n_later ? wb__alloc((size_t)n_later * sizeof *later) : NULL;
    if (n_later && !later) return WB_ERROR_MEMORY;
    for (int i = n_later - 1; i >= 0; i--) {
        wb_tensor *a = later[i] = t->pending[n_writes + i], *v = a->variable;
        if (!v) continue;
        if (v->current == a) wb__claim(v, "assign");    /* the evaluation ends one claim */
        set_current(v, version_before(a));
    }
    t->n_pending = n_writes;
    t->guard_at_once = true;            /* the array t->pending stays */
    int status = eval_tensors(n, tensors, NULL);
    /* The evaluation may leave pending writes: it failed early, or a release callback of the
     * program assigned to a variable.  The later writes come after these. */
    if (n_later) memmove(t->pending + t->n_pending, later, (size_t)n_later * sizeof *later);
    for (int i = 0; i < n_later; i++) {
        wb_tensor *v = later[i]->variable;
        if (!v) continue;
        later[i]->live = v->current->flags & WB__PENDING ? v->current : NULL;
        wb__claim_write(v);
        set_current(v, later[i]);
    }
    for (int i = 0; i < n_later; i++)
        if (later[i]->variable && later[i]->variable->current == later[i])
            wb__unclaim(later[i]->variable);
    t->n_pending += n_later;
    wb__free(later);
    return status;
}

int wb_estimate_memory(int n, wb_tensor *const *tensors, wb_memory *out)
{
    wb__thread *t = wb__this_thread();
    int n_roots = 0;
    if (!out || n < 0 || (n && !tensors))
        return wb__fail(WB_ERROR_ARGUMENT, "estimate_memory: %d tensors, %s to write to", n,
                        out ? "a place" : "no place");
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n; i++)
        if (!wb__operand("estimate_memory", tensors[i]))
            return wb__error_or(WB_ERROR_ARGUMENT);
    eval.request.guard = NULL;
    int status = eval_list_roots(t, n, tensors, &n_roots);
    wb_tensor *guard = t->n_pending ? t->guard : NULL;
    if (!status && guard && !guard->storage) status = eval_add_root(guard, &n_roots);
    if (!status && guard) status = is_guard_late(t, n_roots, guard, true);
    const wb_device *d = n ? wb__device_of(eval.roots[0]) : wb_default_device();
    if (!status) status = wb__request_fill(&eval.request, d, n_roots, eval.roots, true);
    if (status) return status;
    status = wb__leaves_begin(&eval.request);
    wb__plan *p = status ? NULL : wb__plan_find(&eval.request);
    wb__leaves_end(&eval.request);
    if (!p) return wb__error_or(WB_ERROR_MEMORY);
    out->arena = p->arena_bytes + p->workspace_bytes;
    out->outputs = p->result_bytes;
    out->inputs = p->input_bytes;
    out->peak = out->arena + out->outputs + out->inputs;
    out->kernels = p->n_steps;
    wb__plan_done(p);
    return 0;
}

static void eval_thread_end(void)
{
    wb__guard_forget();
    wb__gradient_end();
    wb__request_free(&eval.request);
    wb__order_free(&eval.side);
    wb__free(eval.reads);
    wb__free(eval.roots);
    wb__free(eval.buffers);
    wb__free(eval.offsets);
    memset(&eval, 0, sizeof eval);
}

static void eval_shutdown(void)
{
    eval_thread_end();
    wb__cache_clear();
    wb__pool_trim();
}

const wb__evaluation wb__engine = {
    .evaluate = wb__evaluate,
    .evaluate_keeping = wb__evaluate_keeping,
    .evaluate_survivors = evaluate_survivors,
    .evaluate_overgrown = wb__evaluate_overgrown,
    .forget_pending = wb__forget_pending,
    .guard_confirm = wb__guard_confirm,
    .allocate = wb__device_allocate,
    .thread_end = eval_thread_end,
    .shutdown = eval_shutdown,
};
