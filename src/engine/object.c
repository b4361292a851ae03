/* Counted objects, scopes, the memory of a thread.  What closing a scope computes is in evaluate.c.
 */
#include "engine/object.h"

#include "engine/tensor.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

_Thread_local wb__thread *wb__thread_now;
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void close_all(wb__thread *t)
{
    while (t->scope) wb_scope_close(t->scope);
    wb__free(t->pending);
    t->pending = NULL;
    t->n_pending = t->pending_room = 0;
}

static void thread_end(void *memory)
{
    wb__thread *t = memory;
    wb__thread_now = t; /* the key's destructor runs after thread-local variables may be reset */
    close_all(t);
    wb__engine_thread_end();
    wb__thread_now = NULL;
    free(t);
}

static void make_key(void) { pthread_key_create(&thread_key, thread_end); }

/* A thread's memory is the only block that is not the allocator's: it must exist before the first
 * error. */
wb__thread *wb__thread_start(void)
{
    static wb__thread
        spare; /* if even this fails: shared, and everything that needs memory fails anyway */
    pthread_once(&thread_once, make_key);
    wb__thread *t = calloc(1, sizeof *t);
    if (!t) return &spare;
    const char *eager = getenv("WEBER_EAGER");
    t->eager = eager && *eager && strcmp(eager, "0") != 0;
    wb__thread_now = t;
    pthread_setspecific(thread_key, t);
    return t;
}

/* ---- objects --------------------------------------------------------------------------------- */

void *wb__object_new_owned(const wb__class *class, size_t bytes)
{
    wb__object *o = wb__alloc_zero(1, bytes);
    if (!o) return NULL;
    o->class = class;
    atomic_init(&o->counts, 1);
    return o;
}

void *wb__object_new(const wb__class *class, size_t bytes)
{
    return wb__scope_give(wb__object_new_owned(class, bytes));
}

/* Whoever has the only reference is alone: nobody else can add one. */
static inline uint64_t drop(wb__object *o, uint64_t counts)
{
    uint64_t left = 0;
    if (atomic_load_explicit(&o->counts, memory_order_acquire) == counts)
        atomic_store_explicit(&o->counts, 0, memory_order_relaxed);
    else
        left = atomic_fetch_sub_explicit(&o->counts, counts, memory_order_acq_rel) - counts;
    if (!left) o->class->destroy(o);
    return left;
}

void wb__unref(void *object)
{
    if (object) drop(object, 1);
}

uint64_t wb__unref_consumer(void *object) { return drop(object, WB__CONSUMER); }

void *wb_retain(void *object) { return wb__ref(object); }
void wb_release(void *object) { wb__unref(object); }

/* ---- scopes ---------------------------------------------------------------------------------- */

static wb_scope *open_in(wb__thread *t)
{
    wb_scope *s = wb__pool_get(sizeof *s);
    if (!s) return NULL;
    *s = (wb_scope){.outer = t->scope};
    return t->scope = s;
}

static wb_scope *current(wb__thread *t)
{
    return wb__likely(t->scope != NULL) ? t->scope : open_in(t);
}

wb_scope *wb_scope_open(void)
{
    wb__thread *t = wb__this_thread();
    if (!current(t)) return NULL;
    return open_in(t);
}

static bool note(wb_scope *s, void *object)
{
    if (wb__unlikely(s->n == s->room)) {
        int room = s->room ? 2 * s->room : 256;
        void **more = wb__realloc(s->objects, (size_t)room * sizeof *more);
        if (!more) return false;
        s->objects = more;
        s->room = room;
    }
    s->objects[s->n++] = object;
    return true;
}

void *wb__scope_give(void *object)
{
    if (!object) return NULL;
    wb_scope *s = wb_is_none(object) ? NULL : current(wb__this_thread());
    if (s && note(s, object)) return object;
    wb__unref(object);
    return wb_is_none(object) ? object : NULL;          /* WB_NONE belongs to no scope */
}

/* Newest first: what is given back early is nearly always young. */
static void **find(wb_scope *s, const void *object)
{
    for (int i = s->n - 1; i >= 0; i--)
        if (s->objects[i] == object) return &s->objects[i];
    return NULL;
}

/* Is it the scope of the function that wb_compile records now? */
static bool recorded_in(const wb_scope *s)
{
    const wb__recording *r = wb__this_thread()->recording;
    return wb__unlikely(r && r->scope == s);
}

void *wb_object_keep(void *object)
{
    if (!object || wb_is_none(object)) return object;
    wb_scope *s = wb__this_thread()->scope;
    if (!s || !s->outer) return object; /* in the root scope it lives as long as can be */
    void **place = find(s, object);
    if (!place) { /* another's: the enclosing scope takes a reference of its own */
        if (find(s->outer, object)) return object;
        if (note(s->outer, object)) return wb__ref(object);
        return NULL;
    }
    if (recorded_in(s) && wb__unrecordable("keep", WB__ACTS)) return NULL;
    if (!note(s->outer, object)) return NULL;
    *place = NULL;
    return object;
}

void wb_object_free(void *object)
{
    if (!object || wb_is_none(object)) return;
    for (wb_scope *s = wb__this_thread()->scope; s; s = s->outer) {
        void **place = find(s, object);
        if (!place) continue;
        if (place == &s->objects[s->n - 1]) s->n--;
        else *place = NULL;
        wb__unref(object);
        return;
    }
}

/* Is an unevaluated tensor held by anything but this scope and the tensors made of it? */
static bool outlives(const wb_tensor *x)
{
    if (x->storage || x->op == WB__OP_variable || (x->flags & (WB__GONE | WB__PENDING)))
        return false;
    return wb__refs(x) > 1 + wb__consumers(x);
}

/* A tensor that was returned twice stands in the list twice: one reference is enough, at its first
 * place. */
static void drop_repeats(wb_scope *s)
{
    uint32_t mark = wb__next_mark();
    for (int i = 0; i < s->n; i++) {
        wb_tensor *x = s->objects[i];
        if (!wb__is(x, &wb__tensor_class) || x->storage || x->op == WB__OP_variable) continue;
        if (x->mark == mark) {
            s->objects[i] = NULL;
            wb__unref(x);
        }
        else x->mark = mark;
    }
}

/* Drops the references to all that is not a tensor.  Trees go before the tensors that they hold, which
 * may be newer than the tree. */
static void drop_holders(wb_scope *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        void *object = s->objects[i];
        if (!object || wb__is(object, &wb__tensor_class)) continue;
        s->objects[i] = NULL;
        wb__unref(object);
    }
}

/* Drops the scope's references, newest first, so that results die before what they are made of.  A
 * tensor that lives on stays in the list without a reference of ours; it is the survivor that
 * closing must compute. */
static int drop_references(wb_scope *s)
{
    int survivors = 0;
    drop_holders(s);
    drop_repeats(s);
    for (int i = s->n - 1; i >= 0; i--) {
        wb_tensor *x = s->objects[i];
        s->objects[i] = NULL;
        if (!x) continue;
        if (wb__is(x, &wb__tensor_class) && outlives(x))
            s->objects[s->n - 1 - survivors++] = x;     /* the end of the list is already free */
        else
            wb__unref(x);
    }
    return survivors;
}

int wb_scope_close(wb_scope *scope)
{
    if (!scope) return wb__fail(WB_ERROR_ARGUMENT, "scope_close: no scope");
    wb__thread *t = wb__this_thread();
    int status = 0;
    wb_scope *open = t->scope;
    while (open && open != scope && !recorded_in(open)) open = open->outer;
    if (open && recorded_in(open) && wb__unrecordable("scope_close", WB__ACTS))
        return wb_error_code();
    if (!open) return wb__fail(WB_ERROR_ARGUMENT, "scope_close: not an open scope of this thread");
    while (t->scope != scope) {
        int inner = wb_scope_close(t->scope);
        if (inner && !status) status = inner;
    }
    int n = drop_references(scope);
    wb_tensor **survivors = n ? (wb_tensor **)scope->objects + (scope->n - n) : NULL;
    int outcome = t->recording ? wb__recording_close(t->recording, n, survivors)
                               : wb__evaluate_survivors(n, survivors);
    if (outcome && !status) status = outcome;
    for (int i = n - 1; i >= 0; i--) {
        if (survivors[i]->storage)
            wb__tensor_detach(survivors[i]); /* a graph never outgrows its scope */
        wb__unref(survivors[i]);
    }
    t->scope = scope->outer;
    wb__free(scope->objects);
    wb__pool_put(scope, sizeof *scope);
    return status;
}

void (*wb__at_shutdown)(void);

void wb_shutdown(void)
{
    wb__thread *t = wb__thread_now;
    if (t) close_all(t);
    wb__engine_shutdown();
    if (wb__at_shutdown) wb__at_shutdown();
    wb__cpu.backend->trim(&wb__cpu);
    wb__pool_trim();
}
