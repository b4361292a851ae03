/* wb_fmap rebuilds a structure with new tensors.  wb_set replaces one tensor.  wb_tie makes two
 * paths share one tensor. */
#include "tree/tree.h"

#include <string.h>

/* The arguments and the state of a wb__fmap. */
typedef struct {
    wb_leaf_function f;                     /* the program's function for a tensor */
    void *ctx;
    bool plain;                             /* results for variables need not be variables */
    void *(*replace)(void *branch, const char *path, void *ctx);    /* for branches, or NULL */
    wb__pointer_map seen;                   /* the result of each object */
    wb__text path;
} mapping;

wb_tensor *wb__variable_replacing(wb_tensor *x, const wb_tensor *of)
{
    wb_tensor *v = x && x->op != WB__OP_variable ? wb_variable(x) : x;
    if (v && of && v != of) v->flags |= wb__kept_flags(of);
    return v;
}

static void *fmap_map(mapping *m, void *object, bool in_layer);

/* Returns a new branch with the results for the children of `node`.  NULL: failed. */
static void *fmap_map_node(mapping *m, wb__branch *node, bool in_layer)
{
    wb__branch_used(node);
    wb__branch *made = node->kind->like(node);
    const size_t length = m->path.length;
    bool layer = in_layer || node->kind->layer, ok = made != NULL;
    for (int i = 0; ok && i < node->n; i++) {
        ok = wb__path_push(&m->path, node->children[i].name);
        void *child = ok ? fmap_map(m, node->children[i].object, layer) : NULL;
        wb__path_cut(&m->path, length);
        ok = child != NULL;
        if (ok) wb__branch_put(made, i, made->children[i].name, child);
    }
    if (ok) return made;
    if (made) wb_object_free(made);
    return NULL;
}

WB__PROGRAM_CALL(leaf_call, leaf_run, wb_tensor *,
                 wb_leaf_function f; wb_tensor *x; const char *path; void *ctx;,
                 c->f(c->x, c->path, c->ctx))

/* Returns the result of the program's function for x.  NULL: failed. */
static wb_tensor *fmap_map_tensor(mapping *m, wb_tensor *x, bool in_layer)
{
    leaf_call c = {m->f, x, wb__path(&m->path), m->ctx, NULL};
    wb_tensor *y = wb__call_program(leaf_run, &c) ? c.result : NULL;
    if (y == x || (!y && wb_error_code())) return y;
    if (!y || wb_is_none(y) || !wb__is(y, &wb__tensor_class))
        return wb__fail_null(WB_ERROR_ARGUMENT, "fmap: the function gave no tensor for \"%s\"",
                             wb__path(&m->path));
    return in_layer && !m->plain && x->op == WB__OP_variable ? wb__variable_replacing(y, x) : y;
}

/* Returns the result for an object of any kind, of the first visit if there was one. */
static void *fmap_map(mapping *m, void *object, bool in_layer)
{
    if (wb_is_none(object)) return object;
    if (wb__is(object, &wb__tree_class) && ((wb_tree *)object)->is_opaque) return object;
    void **seen = wb__pointer_map_at(&m->seen, object);
    if (!seen) return NULL;
    if (*seen) return *seen;
    const bool branch = wb__is_branch(object);
    void *from = branch && m->replace ? m->replace(object, wb__path(&m->path), m->ctx) : object;
    if (!from) return NULL;
    void *made = branch ? fmap_map_node(m, from, in_layer)
                        : (void *)fmap_map_tensor(m, object, in_layer);
    if (!made) return NULL;
    seen = wb__pointer_map_at(&m->seen, object);       /* the map may have grown */
    if (!seen) return NULL;
    return *seen = made;
}

/* Returns the result for `object`, and frees the memory of m. */
static void *fmap_map_all(mapping m, void *object)
{
    void *made = fmap_map(&m, object, false);
    wb__free(m.path.text);
    wb__pointer_map_free(&m.seen);
    return made;
}

void *wb__fmap(void *object, wb_leaf_function f, void *ctx)
{
    return fmap_map_all((mapping){.f = f, .ctx = ctx}, object);
}

void *wb__fmap_plain(void *object, wb_leaf_function f, void *ctx)
{
    return fmap_map_all((mapping){.f = f, .ctx = ctx, .plain = true}, object);
}

static wb_tensor *fmap_keep_tensor(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return x;
}

void *wb__fmap_replacing(void *object,
                         void *(*replace)(void *branch, const char *path, void *ctx), void *ctx)
{
    return fmap_map_all((mapping){.f = fmap_keep_tensor, .ctx = ctx, .replace = replace}, object);
}

static void *fmap_map_public(wb_leaf_function f, void *object, void *ctx)
{
    if (!object) return wb__null("fmap", "x"), NULL;
    if (!wb__is_model("fmap", object)) return NULL;
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "fmap: no function");
    return wb__fmap(object, f, ctx);
}

wb_layer *wb_fmap_layer(wb_leaf_function f, wb_layer *x, void *ctx)
{
    WB__EDGE;
    return fmap_map_public(f, x, ctx);
}
wb_tree *wb_fmap_tree(wb_leaf_function f, wb_tree *x, void *ctx)
{
    WB__EDGE;
    return fmap_map_public(f, x, ctx);
}

/* ---- wb_set and wb_tie ----------------------------------------------------------------------- */

static wb__child *fmap_tensor_at(const char *what, wb_layer *layer, const char *path,
                               wb__branch **of)
{
    if (!wb__is_model(what, layer)) return NULL;
    if (!path || !*path) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no path", what);
    wb__child *child = wb__child_at(what, layer, path, of);
    if (!child) return NULL;
    if (wb__is(child->object, &wb__tensor_class) && !wb_is_none(child->object)) return child;
    return wb__fail_null(WB_ERROR_ARGUMENT, "%s: \"%s\" is %s%s, not a tensor", what, path,
                         wb_is_none(child->object) ? "" : "a ",
                         wb_is_none(child->object) ? "none" : wb__kind(child->object));
}

static bool fmap_alike(const char *what, const char *path, const wb_tensor *old, const wb_tensor *x)
{
    const wb_device *from = wb__device_of(x), *to = wb__device_of(old);
    if (wb__same_dims(old, x) && old->dtype == x->dtype && from == to) return true;
    if (from != to) {
        wb__fail(WB_ERROR_DEVICE, "%s: \"%s\" is %s, got %s of another device: move it first, as "
                 "in wb_to(x, device)", what, path, wb_describe(old), wb_describe(x));
        return false;
    }
    wb__fail(old->dtype == x->dtype ? WB_ERROR_SHAPE : WB_ERROR_DTYPE, "%s: \"%s\" is %s, got %s",
             what, path, wb_describe(old), wb_describe(x));
    return false;
}

wb__mutex wb__replacing = WB__MUTEX_INIT;

/* Sets child->object to x.  Claims the old tensor first, which another thread may train.  Returns 0
 * or an error code. */
static int fmap_replace(const char *what, wb__branch *of, wb__child *child, wb_tensor *x)
{
    wb_tensor *old = child->object, *v = old->op == WB__OP_variable ? old : NULL;
    const int status = v ? wb__claim(v, what) : 0;
    if (status) return status;
    if (old != x) wb__setting_count(&of->replaced);
    child->object = wb__ref(x);
    if (v) wb__unclaim(v);
    wb__unref(old);
    return 0;
}

int wb_set(wb_layer *layer, const char *path, wb_tensor *x)
{
    WB__PUBLIC(wb_set, wb_error_code());
    if (WB__NULL(x)) return wb__error_or(WB_ERROR_ARGUMENT);
    wb__branch *of;
    wb__mutex_lock(&wb__replacing);
    wb__child *child = fmap_tensor_at("set", layer, path, &of);
    const bool good = child && wb__operand("set", x) && fmap_alike("set", path, child->object, x);
    wb__mutex_unlock(&wb__replacing);
    wb_tensor *v = good ? wb_variable(x) : NULL;        /* may call the program */
    if (!v) return (int)wb_error_code();
    wb__mutex_lock(&wb__replacing);
    v->flags |= wb__kept_flags(child->object);
    const int status = fmap_replace("set", of, child, v);
    wb__mutex_unlock(&wb__replacing);
    return status;
}

int wb_tie(wb_layer *layer, const char *path, const char *same_as)
{
    WB__FIRST(wb_tie, wb_error_code());
    wb__branch *of;
    wb__mutex_lock(&wb__replacing);
    wb__child *child = fmap_tensor_at("tie", layer, path, &of),
              *to = child ? fmap_tensor_at("tie", layer, same_as, NULL) : NULL;
    const bool good = to && fmap_alike("tie", path, child->object, to->object);
    const int status = good ? fmap_replace("tie", of, child, to->object) : (int)wb_error_code();
    wb__mutex_unlock(&wb__replacing);
    return status;
}
