/* Scopes: lists of the objects that a program received.  Closing a scope drops its references to
 * them.  The evaluation at the end of a scope is in evaluate.c. */
#include "engine/tensor.h"

#include <stdatomic.h>
#include <string.h>

enum {
    MOST_SPARES = 8,        /* number of closed scopes that a thread keeps for reuse */
    MOST_SPARE_CAPACITY = 4096, /* largest list capacity of a scope that is kept */
    FEW_HOLES = 32,         /* a list with fewer holes is not compacted */
    MOST_ROUNDS = 64        /* limit of the rounds of scope_drop_all */
};

/* ---- opening scopes -------------------------------------------------------------------------- */

static wb_scope *scope_push(wb__thread *t)
{
    wb_scope *s = t->spare;
    if (wb__likely(s && !wb__alloc_is_watched())) {
        t->spare = s->outer;
        t->spares--;
        *s = (wb_scope){.objects = s->objects, .capacity = s->capacity};
    } else {
        s = wb__pool_get(sizeof *s);
        if (!s) return NULL;
        *s = (wb_scope){0};
    }
    s->outer = t->scope;
    s->number = ++t->scopes;
    if (s->outer) {
        s->outer_n = s->outer->n;
        s->outer->pinned++;
    }
    return t->scope = s;
}

static void scope_free_memory(wb_scope *s)
{
    wb__free(s->objects);
    wb__pool_put(s, sizeof *s);
}

/* Keeps a closed scope for reuse, or frees it if there are enough. */
static void scope_keep_spare(wb__thread *t, wb_scope *s)
{
    if (t->spares == MOST_SPARES || s->capacity > MOST_SPARE_CAPACITY || wb__alloc_is_watched()) {
        scope_free_memory(s);
        return;
    }
    s->outer = t->spare;
    t->spare = s;
    t->spares++;
}

void wb__scope_spare_free(wb__thread *t)
{
    while (t->spare) {
        wb_scope *s = t->spare;
        t->spare = s->outer;
        scope_free_memory(s);
    }
    t->spares = 0;
}

static wb_scope *scope_current(wb__thread *t)
{
    return wb__likely(t->scope != NULL) ? t->scope : scope_push(t);
}

wb_scope *wb_scope_open(void)
{
    wb__thread *t = wb__this_thread();
    if (!scope_current(t)) return NULL;
    return scope_push(t);
}

/* ---- the list of objects --------------------------------------------------------------------- */

static bool add_object(wb_scope *s, void *object)
{
    if (!wb__reserve(&s->objects, &s->capacity, s->n + 1, sizeof *s->objects)) return false;
    s->objects[s->n++] = object;
    return true;
}

void *wb__scope_give(void *object)
{
    if (!object) return NULL;
    wb_scope *s = wb_is_none(object) ? NULL : scope_current(wb__this_thread());
    if (s && add_object(s, object)) return object;
    wb__unref(object);
    return wb_is_none(object) ? object : NULL;          /* WB_NONE belongs to no scope */
}

/* Finds the object's entry in the list; NULL: it has none.  Searches from the newest on, since most
 * objects that are freed early are young. */
static void **scope_find(wb_scope *s, const void *object)
{
    for (int i = s->n - 1; i >= 0; i--)
        if (s->objects[i] == object) return &s->objects[i];
    return NULL;
}

bool wb__scope_has(const void *object)
{
    for (wb_scope *s = wb__this_thread()->scope; s; s = s->outer)
        if (scope_find(s, object)) return true;
    return false;
}

/* Removes the holes at the end of the list, and all holes if the list is at least half holes.  Does
 * nothing while the list is pinned. */
static void scope_compact(wb_scope *s)
{
    if (s->pinned) return;
    for (; s->n && !s->objects[s->n - 1]; s->n--) s->holes--;
    if (wb__likely(s->holes < FEW_HOLES || 2 * s->holes < s->n)) return;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < WB__PAST; k++)
            if (s->past_n[k] == i) s->past_n[k] = n;
        if (s->objects[i]) s->objects[n++] = s->objects[i];
    }
    for (int k = 0; k < WB__PAST; k++) s->past_n[k] = WB__MIN(s->past_n[k], n);
    s->n = n;
    s->holes = 0;
}

static void scope_remove_entry(wb_scope *s, void **entry)
{
    *entry = NULL;
    s->holes++;
    scope_compact(s);
}

/* Whether s is the scope of the function that wb_compile is recording. */
static bool recorded_in(const wb_scope *s)
{
    const wb__recording *r = wb__this_thread()->recording;
    return wb__unlikely(r && r->scope == s);
}

void *wb_object_keep(void *object)
{
    if (wb_is_none(object)) return object;
    if (!wb__alive("keep", object)) return NULL;
    wb__hold(object);
    wb_scope *s = wb__this_thread()->scope;
    if (!s || !s->outer) return object; /* the root scope is the last to be closed */
    void **entry = scope_find(s, object);
    if (!entry) { /* not in this scope's list: the outer scope gets a new reference */
        if (scope_find(s->outer, object)) return object;
        if (add_object(s->outer, object)) return wb__ref(object);
        return NULL;
    }
    if (recorded_in(s)) WB__FIRST(wb_object_keep, NULL);
    if (!add_object(s->outer, object)) return NULL;
    scope_remove_entry(s, entry);
    return object;
}

void wb_object_free(void *object)
{
    if (!object || wb_is_none(object) || !wb__alive("free", object)) return;
    for (wb_scope *s = wb__this_thread()->scope; s; s = s->outer) {
        void **entry = scope_find(s, object);
        if (!entry) continue;
        scope_remove_entry(s, entry);
        wb__unref(object);
        return;
    }
}

/* ---- frames ---------------------------------------------------------------------------------- */

wb__frame wb__frame_begin(void)
{
    wb__thread *t = wb__this_thread();
    wb_scope *s = scope_current(t);
    if (!s) return (wb__frame){0};
    s->pinned++;
    return (wb__frame){s, s->number, t->program_calls, s->n};
}

/* Whether the frame's scope is still the innermost one and no callback of the program ran since
 * wb__frame_begin.  If the scope is still open, unpins its list. */
static bool still_inside(const wb__thread *t, const wb__frame *f)
{
    wb_scope *s = t->scope;
    while (s && s != f->scope) s = s->outer;
    if (!s || s->number != f->number) return false;
    s->pinned--;
    return s == t->scope && t->program_calls == f->program_calls;
}

/* Whether the object is a tensor whose `mark` may be written.  Leaves may be shared by threads, so
 * their marks are not written (graph.h). */
static bool scope_markable(const void *object)
{
    return wb__is(object, &wb__tensor_class) && !wb__is_leaf(object) && !wb_is_none(object);
}

static bool scope_is_among(int n, void *const *list, uint32_t mark, const void *object)
{
    if (mark && scope_markable(object)) return ((const wb_tensor *)object)->mark == mark;
    for (int i = 0; i < n; i++)
        if (list[i] == object) return true;
    return false;
}

/* Moves the results that are in the list from index `first` on to the end of the list.  Returns the
 * index of the first of these results. */
static int scope_move_results(wb_scope *s, int first, int n, void *const *results)
{
    const uint32_t mark = n > 8 ? wb__next_mark() : 0;
    for (int i = 0; mark && i < n; i++)
        if (scope_markable(results[i])) ((wb_tensor *)results[i])->mark = mark;
    int kept = s->n;
    for (int i = s->n - 1; i >= first; i--) {
        void *o = s->objects[i];
        if (!o || !(n == 1 ? o == *results : scope_is_among(n, results, mark, o))) continue;
        s->objects[i] = s->objects[--kept];
        s->objects[kept] = o;
    }
    return kept;
}

void wb__frame_end_many(wb__frame f, int n, void *const *results)
{
    wb__thread *t = wb__this_thread();
    wb_scope *s = f.scope;
    if (!s || !still_inside(t, &f)) return;
    const int kept = scope_move_results(s, f.n, n, results), n_kept = s->n - kept;
    int i = kept - 1;
    for (; i >= f.n && t->program_calls == f.program_calls; i--) {
        void *o = s->objects[i];
        s->objects[i] = NULL;
        if (o) wb__drop(o, 1);
        else s->holes--;
    }
    if (wb__unlikely(i >= f.n)) { /* a release callback ran: the other objects stay until the scope
                                     closes */
        s->holes += kept - 1 - i;
        return;
    }
    if (n_kept) memmove(s->objects + f.n, s->objects + kept, (size_t)n_kept * sizeof *s->objects);
    s->n = f.n + n_kept;
}

void *wb__frame_end(wb__frame f, void *result)
{
    wb__frame_end_many(f, result != NULL, &result);
    return result;
}

/* ---- closing scopes -------------------------------------------------------------------------- */

/* The tensors that outlive the scope and must be evaluated or detached from their inputs; the list
 * holds a reference to each.  status: 0, or the first error code. */
typedef struct {
    wb_tensor **x;
    int n, capacity, status;
} survivors;

static bool scope_add_survivor(survivors *list, wb_tensor *x)
{
    if (!wb__reserve(&list->x, &list->capacity, list->n + 1, sizeof *list->x)) {
        list->status = WB_ERROR_MEMORY;
        return false;
    }
    list->x[list->n++] = x;
    return true;
}

/* Whether a tensor that outlives the scope must be evaluated or detached. */
static bool scope_unfinished(const wb_tensor *x)
{
    if (!wb__is(x, &wb__tensor_class) || wb_is_none(x) || x->op == WB__OP_variable) return false;
    const bool has_storage = wb__has_storage(x);        /* before the flags, see wb__set_gone */
    if (wb__flags_of(x) & (WB__GONE | WB__PENDING)) return false;
    return !has_storage || x->n_in;
}

/* Whether the tensor has other references than those of this scope, of its consumers, and of this
 * thread (for its guard). */
static bool scope_is_outlived(const wb_tensor *x)
{
    return wb__refs(x) > 1 + wb__consumers(x) + (wb__this_thread()->guard == x);
}

/* Keeps one entry in the list for each unevaluated tensor, and drops the references of its other
 * entries.  So the scope has one reference to such a tensor, as scope_is_outlived assumes. */
static void drop_repeats(int n, void **objects)
{
    uint32_t mark = wb__next_mark();
    for (int i = 0; i < n; i++) {
        wb_tensor *x = objects[i];
        if (!x || !scope_unfinished(x) || x->storage) continue;
        if (x->mark == mark) {
            objects[i] = NULL;
            wb__unref(x);
        }
        else x->mark = mark;
    }
}

/* Drops the references to objects that are not tensors.  References to tensors are dropped later,
 * so that scope_is_outlived does not count references that trees hold. */
static void drop_holders(int n, void **objects)
{
    for (int i = n - 1; i >= 0; i--) {
        void *object = objects[i];
        if (!object || wb__is(object, &wb__tensor_class)) continue;
        objects[i] = NULL;
        wb__unref(object);
    }
}

/* Drops the scope's references, newest first, so that results are freed before their inputs.
 * References to tensors that outlive the scope move to `list`. */
static void drop_references(int n, void **objects, survivors *list)
{
    drop_holders(n, objects);
    if (wb__this_thread()->recording) wb__recording_forget(wb__this_thread()->recording);
    drop_repeats(n, objects);
    for (int i = n - 1; i >= 0; i--) {
        wb_tensor *x = objects[i];
        if (!x || (scope_unfinished(x) && scope_is_outlived(x) && scope_add_survivor(list, x)))
            continue;
        wb__unref(x);
    }
}

/* Adds unfinished tensors that the outer scope received while this scope was open. */
static void scope_add_kept(const wb_scope *s, survivors *list)
{
    const wb_scope *outer = s->outer;
    for (int i = outer ? s->outer_n : 0; outer && i < outer->n; i++) {
        wb_tensor *x = outer->objects[i];
        if (x && scope_unfinished(x) && scope_add_survivor(list, x)) wb__ref(x);
    }
}

/* Evaluates the survivors, and detaches them from their inputs. */
static int scope_finish_survivors(survivors *list)
{
    const wb__thread *t = wb__this_thread();
    int status = list->status;
    if (status) wb__engine.forget_pending(0);          /* nothing is written after an error */
    else if (t->recording) status = wb__recording_close(t->recording, list->n, list->x);
    else status = wb__engine.evaluate_survivors(list->n, list->x);
    for (int i = list->n - 1; i >= 0; i--) {
        if (list->x[i]->storage) { /* an evaluated tensor loses its inputs */
            if (list->x[i]->n_in) wb__set_cut(list->x[i], 0);
            wb__tensor_detach(list->x[i]);
        }
        wb__unref(list->x[i]);
    }
    wb__free(list->x);
    return status;
}

/* Drops all references of the scope.  Meanwhile, release callbacks of wb_borrow may create objects,
 * which further rounds drop. */
static int scope_drop_all(wb_scope *s)
{
    int status = 0;
    for (int round = 0; (!round || s->n) && round < MOST_ROUNDS; round++) {
        survivors list = {0};
        void **objects = s->objects;
        const int n = s->n, capacity = s->capacity;
        s->objects = NULL;
        s->n = s->capacity = s->holes = 0;
        drop_references(n, objects, &list);
        if (!round) scope_add_kept(s, &list);
        int outcome = scope_finish_survivors(&list);
        if (outcome && !status) status = outcome;
        if (s->objects || !objects) {
            wb__free(objects);
            continue;
        }
        s->objects = objects;
        s->capacity = capacity;
    }
    return status;
}

int wb_scope_close(wb_scope *scope)
{
    if (!scope) return wb__fail(WB_ERROR_ARGUMENT, "scope_close: no scope");
    wb__thread *t = wb__this_thread();
    int status = 0;
    wb_scope *open = t->scope;
    while (open && open != scope && !recorded_in(open)) open = open->outer;
    if (open && recorded_in(open)) WB__FIRST(wb_scope_close, wb_error_code());
    if (!open) return wb__fail(WB_ERROR_ARGUMENT, "scope_close: not an open scope of this thread");
    while (t->scope != scope) {
        int inner = wb_scope_close(t->scope);
        if (inner && !status) status = inner;
    }
    const int64_t closing = t->closing;
    t->closing = scope->number;
    int outcome = scope_drop_all(scope);
    t->closing = closing;
    if (outcome && !status) status = outcome;
    t->scope = scope->outer;
    if (t->scope) {
        t->scope->pinned--;
        scope_compact(t->scope);
    }
    scope_keep_spare(t, scope);
    return status;
}
