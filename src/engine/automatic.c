/* Evaluations that the program did not ask for.  Without an open scope no call ends a step, and a
 * training loop would only build a graph.  So the second write to a variable evaluates the previous
 * step, and a graph that grows too large is evaluated.  wb__end_step and wb__evaluate_keeping
 * (tensor.h) describe which values stay readable. */
#include "engine/evaluate.h"
#include "engine/graph.h"
#include "engine/plan/stages.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_OF_STEPS = 2048 };  /* if the recent steps' graph has more tensors, wb__cut_stale calls
                                   evaluate_oldest */

/* Whether the program holds x: x has references beside those of its consumers. */
static bool is_held(const wb_tensor *x) { return wb__refs(x) > wb__consumers(x); }

/* ---- the end of a training step -------------------------------------------------------------- */

/* Whether x is a leaf of find_readable_later's walk: evaluated, gone, or a pending write. */
static bool is_walk_leaf(const wb_tensor *x) { return wb__is_leaf(x) || x->flags & WB__PENDING; }

/* Whether x is a version of a variable that a later pending write replaces. */
static bool is_replaced(const wb_tensor *x)
{
    if (x->flags & WB__PENDING) return x->variable && x->variable->current != x;
    return wb__overwritten(x);
}

/* Finds the unevaluated tensors that the program holds, that are among `values` or that `values`
 * depend on, and that could not be evaluated after the pending writes.  They become the first
 * *n_kept tensors of the order.  Returns 0 or an error code. */
static int find_readable_later(wb__order *o, int n, wb_tensor *const *values, int *n_kept)
{
    wb__order_begin(o);
    for (int i = 0; i < n; i++)
        if (!wb__order_add(o, values[i], is_walk_leaf)) return WB_ERROR_MEMORY;
    bool *reads = wb__alloc((size_t)o->n + 1);
    if (!reads) return WB_ERROR_MEMORY;
    for (int i = 0; i < o->n; i++) {
        const wb_tensor *x = o->node[i];
        reads[i] = is_walk_leaf(x) && is_replaced(x);
        for (uint32_t j = 0; !is_walk_leaf(x) && j < x->n_in; j++)
            reads[i] |= reads[wb__order_index(o, x->in[j], is_walk_leaf)];
    }
    for (int i = 0; i < o->n; i++) {
        wb_tensor *x = o->node[i];
        if (reads[i] && !is_walk_leaf(x) && is_held(x)) o->node[(*n_kept)++] = x;
    }
    wb__free(reads);
    return 0;
}

/* Returns the number of pending writes up to the last one to a variable that is not frozen.  The
 * writes after it come from layers, which write running statistics while a step is still being
 * built. */
static int count_program_writes(const wb__thread *t)
{
    int n = t->n_pending;
    while (n && t->pending[n - 1]->variable && t->pending[n - 1]->variable->flags & WB__FROZEN) n--;
    return n;
}

int wb__end_step(wb__thread *t, int n, wb_tensor *const *values)
{
    wb__order order = {0};
    int n_kept = 0, status = find_readable_later(&order, n, values, &n_kept);
    if (!status)
        status = wb__evaluate_first(t, count_program_writes(t), n_kept, order.node);
    wb__order_free(&order);
    return status;
}

/* ---- detaching stale tensors ----------------------------------------------------------------- */

static bool has_no_inputs(const wb_tensor *x) { return !x->n_in || x->flags & WB__PENDING; }

/* States of a tensor.  STALE: it depends on a version that is gone.  AUTOMATIC_LOST: it is STALE
 * and has no value. */
enum { STALE = 1, AUTOMATIC_LOST = 2 };

/* The state of a tensor; the name of the variable whose gone version it depends on; and the number
 * of the thread that has overwritten that version. */
typedef struct { uint8_t state; const char *name; long writer; } history;

/* Sets p[i] to the state of each tensor of the order. */
static void find_stale(const wb__order *o, history *p)
{
    for (int i = 0; i < o->n; i++) {
        const wb_tensor *x = o->node[i];
        p[i] = (history){0};
        if (has_no_inputs(x)) {
            if (wb__is_gone(x)) p[i] = (history){STALE | AUTOMATIC_LOST, x->name, x->writer};
            continue;
        }
        for (uint32_t j = 0; j < x->n_in; j++) {
            const history *in = &p[wb__order_index(o, x->in[j], has_no_inputs)];
            if (in->state & ~p[i].state) {
                p[i].name = in->name;
                p[i].writer = in->writer;
            }
            p[i].state |= in->state;
        }
        if (x->storage) p[i].state &= STALE;
    }
}

/* Drops the inputs of a stale tensor; one without a value is gone. */
static void detach_stale(wb_tensor *x, const history *p)
{
    wb__set_cut(x, p->writer);
    if (!x->name) x->name = p->name ? p->name : "a parameter";
    if (!x->storage) x->flags |= WB__GONE;
    wb__unconsumed_remove(x);
    wb__tensor_detach(x);
}

static bool has_history(const void *object)
{
    const wb_tensor *x = object;
    return wb__is(x, &wb__tensor_class) && !wb_is_none(x) && !has_no_inputs(x);
}

/* Evaluates the tensors of the oldest recent step that are unevaluated and have consumers, and
 * detaches them from their inputs.  Called when the graph of the recent steps is too large, as when
 * each step adds to a running average of data. */
static void evaluate_oldest(const wb_scope *s)
{
    wb_tensor **old = NULL;
    int n = 0, capacity = 0;
    bool good = true;
    for (int i = s->past_n[WB__PAST - 1]; good && i < s->past_n[WB__PAST - 2]; i++) {
        wb_tensor *x = s->objects[i];
        if (!x || !has_history(x) || x->storage || !wb__consumers(x)) continue;
        good = wb__reserve(&old, &capacity, n + 1, sizeof *old);
        if (good) old[n++] = wb__ref(x);
    }
    if (good && n) good = !wb__evaluate_keeping(n, old);
    for (int i = 0; i < n; i++) {
        if (good && old[i]->storage) {
            wb__set_cut(old[i], 0);
            wb__tensor_detach(old[i]);
        }
        wb__unref(old[i]);
    }
    wb__free(old);
}

/* Detaches stale tensors (evaluate.h).  Looks only at recent tensors, which the root scope
 * received after the WB__PAST-th latest call of this function. */
void wb__cut_stale(wb__thread *t)
{
    wb_scope *s = t->scope;
    while (s && s->outer) s = s->outer;
    if (!s || t->busy || t->recording) return;
    wb__order order = {0};
    history *p = NULL;
    bool good = true;
    wb__order_begin(&order);
    const int first = s->past_n[WB__PAST - 1], n = s->n;
    for (int i = first; good && i < n; i++)
        if (s->objects[i] && has_history(s->objects[i]))
            good = wb__order_add(&order, s->objects[i], has_no_inputs);
    if (good && order.n) good = (p = wb__alloc((size_t)order.n * sizeof *p)) != NULL;
    if (p) find_stale(&order, p);
    /* Detaching a tensor may free its inputs, which are in the order too.  So each tensor to detach
     * first gets a reference.  The other entries become NULL. */
    for (int i = 0; p && i < order.n; i++) {
        order.node[i] = p[i].state && is_held(order.node[i]) && has_history(order.node[i])
                            ? wb__ref(order.node[i]) : NULL;
    }
    for (int i = 0; p && i < order.n; i++) {
        wb_tensor *x = order.node[i];
        if (!x) continue;
        t->cutting = true;   /* the inputs of a detached tensor do not become unconsumed results */
        if (x->storage || p[i].state & AUTOMATIC_LOST) detach_stale(x, &p[i]);
        wb__unref(x);
        t->cutting = false;
    }
    if (good && order.n > MOST_OF_STEPS) {
        t->cutting = true;
        evaluate_oldest(s);
        t->cutting = false;
    }
    wb__free(p);
    wb__order_free(&order);
    memmove(s->past_n + 1, s->past_n, (WB__PAST - 1) * sizeof *s->past_n);
    s->past_n[0] = n;
    if (!good) wb_clear_error(); /* the next call considers recent tensors again */
}

/* ---- graphs that grow too large -------------------------------------------------------------- */

/* Sets *all to a new array of all unconsumed results that can still be evaluated, with a reference
 * to each.  The caller drops the references and frees the array.  Returns 0 or an error code. */
static int copy_unconsumed(const wb__thread *t, wb_tensor ***all, int *n)
{
    wb__order order = {0};
    wb_tensor *unconsumed = t->unconsumed;
    int status = 0;
    wb__order_begin(&order);
    do {
        if (!wb__order_add(&order, unconsumed, has_no_inputs)) status = WB_ERROR_MEMORY;
        unconsumed = unconsumed->next_unconsumed;
    } while (!status && unconsumed != t->unconsumed);
    history *p = status ? NULL : wb__alloc(((size_t)order.n + 1) * sizeof *p);
    *all = p ? wb__alloc(((size_t)order.n + 1) * sizeof **all) : NULL;
    if (*all) find_stale(&order, p);
    for (int i = 0; *all && i < order.n; i++)
        if (order.node[i]->flags & WB__IS_UNCONSUMED && !(p[i].state & AUTOMATIC_LOST))
            (*all)[(*n)++] = wb__ref(order.node[i]);
    if (!*all) status = WB_ERROR_MEMORY;
    wb__free(p);
    wb__order_free(&order);
    return status;
}

int wb__evaluate_keeping(int n, wb_tensor *const *tensors)
{
    wb__thread *t = wb__this_thread();
    int status = 0;
    t->busy++; /* wb__keep_version creates tensors: this must start no automatic evaluation */
    for (int i = 0; i < t->n_pending && !status; i++)
        if (t->pending[i]->variable) status = wb__keep_version(t->pending[i]->variable);
    if (!status) status = wb__evaluate(n, tensors, NULL);
    t->busy--;
    return status;
}

int wb__evaluate_overgrown(wb__thread *t)
{
    static _Atomic bool reported;
    if (t->busy || t->recording || !wb__in_root(t)) return 0;
    t->made = 0;
    if (!t->unconsumed && !t->n_pending) return 0;
    if (!atomic_exchange(&reported, true))
        wb__log(WB_LOG_WARN,
                "A graph of more than %d tensors was built outside any scope, and is evaluated.\n"
                "Open a scope for each step (wb_scope_open, wb_scope_close).",
                WB__MOST_UNEVALUATED);
    int n = 0;
    wb_tensor **all = NULL;
    int status = t->unconsumed ? copy_unconsumed(t, &all, &n) : 0;
    if (!status) status = wb__evaluate_keeping(n, all);
    for (int i = 0; i < n; i++) wb__unref(all[i]);
    wb__free(all);
    return status;
}

/* ---- slices of tensors that are not evaluated ------------------------------------------------ */

enum { AUTOMATIC_LARGE = 1 << 24 };     /* elements of a tensor that may be too large to evaluate */

/* Returns the unevaluated tensor of which the requested tensor x is a view with a slice.  NULL: x
 * is no such view, the tensor is AUTOMATIC_LARGE, or it is a write that a later one replaces. */
static wb_tensor *automatic_sliced(wb_tensor *x)
{
    bool slice = false;
    for (; !wb__is_leaf(x) && wb__is_view_op((wb__op)x->op); x = x->in[0])
        slice |= x->op == WB__OP_slice;
    if (!slice || wb__is_leaf(x) || !x->device) return NULL;
    const bool replaced = x->flags & WB__PENDING && !(x->variable && x->variable->current == x);
    return replaced || (x->size > AUTOMATIC_LARGE && !(x->flags & WB__PENDING)) ? NULL : x;
}

/* Evaluates each unevaluated tensor y of which the program reads a second slice.  The start of a
 * slice of y is part of a plan, so reading slices of y in a loop would compute y again for each
 * start, by a plan of its own; slices of an evaluated y share a plan.  A pending write y is
 * evaluated with its first slice, since each evaluation makes the pending writes. */
int wb__evaluate_sliced(int n, wb_tensor *const *tensors)
{
    wb_tensor *few[8], **all = few;
    bool any = false;
    for (int i = 0; i < n && !any; i++) {
        const wb_tensor *y = automatic_sliced(tensors[i]);
        any = y && y->flags & (WB__PENDING | WB__SLICED);
    }
    if (any && n > (int)WB__COUNT(few) && !(all = wb__alloc((size_t)n * sizeof *all)))
        return WB_ERROR_MEMORY;
    for (int i = 0; i < n; i++) {
        wb_tensor *y = automatic_sliced(tensors[i]);
        if (any) all[i] = y && y->flags & (WB__PENDING | WB__SLICED) ? y : tensors[i];
        else if (y) y->flags |= WB__SLICED;
    }
    const int status = any ? wb__evaluate(n, all, NULL) : 0;
    if (all != few) wb__free(all);
    return status;
}
