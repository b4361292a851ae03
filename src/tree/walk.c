/* Functions that visit the leaves of one tree, or the leaves of two trees with the same names side
 * by side. */
#include "tree/tree.h"

#include <string.h>

/* The arguments and the state of a wb__walk. */
typedef struct {
    const char *what;           /* the name of the function, for messages */
    unsigned which;             /* WB__TRAINABLE, WB__DISTINCT, ... */
    wb__leaf_visit f;
    void *ctx;
    wb__text path;
    wb__pointer_map seen;
} walk_state;

static bool walk_is_trainable(const wb_tensor *x, bool in_layer)
{
    return wb__dtype_float((wb_dtype)x->dtype) && !(x->flags & WB__FROZEN) &&
           (!in_layer || x->op == WB__OP_variable);
}

static int walk_visit(walk_state *w, wb_tensor *x, void *other, bool in_layer)
{
    if (wb_is_none(x)) return 0;
    wb__leaf leaf = {x, other, wb__path(&w->path), walk_is_trainable(x, in_layer)};
    if ((w->which & WB__TRAINABLE) && !leaf.trainable) return 0;
    if (w->which & WB__DISTINCT) {
        void **seen = wb__pointer_map_at(&w->seen, x);
        if (!seen) return WB_ERROR_MEMORY;
        if (*seen) return 0;
        *seen = x;
    }
    return w->f(&leaf, w->ctx);
}

/* Sets *out to the child of `other` that has the name of child i of `node`.  If `other` is NULL or
 * WB_NONE, sets *out to `other`.  Returns 0 or an error code. */
static int walk_other_child(const walk_state *w, const wb__branch *node, int i, void *other,
                            void **out)
{
    *out = other;
    if (!other || wb_is_none(other)) return 0;
    const char *name = node->children[i].name;
    const wb__branch *o = other;
    if (!wb__is_branch(other))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: the trees differ: \"%s\" is a %s in the second",
                        w->what, wb__path(&w->path), wb__kind(o));
    if (i < o->n && (o->children[i].name == name || !strcmp(o->children[i].name, name))) {
        *out = o->children[i].object;
        return 0;
    }
    for (int j = 0; j < o->n; j++) {
        if (strcmp(o->children[j].name, name)) continue;
        *out = o->children[j].object;
        return 0;
    }
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the trees differ: the second has no \"%s%s%s\"",
                    w->what, wb__path(&w->path), w->path.length ? "." : "", name);
}

/* Visits the leaves of `object`, at any depth.  Returns 0 or the first nonzero result. */
static int walk_descend(walk_state *w, void *object, void *other, bool in_layer)
{
    if (!wb__is_branch(object)) return walk_visit(w, object, other, in_layer);
    wb__branch *node = object;
    wb__branch_used(node);
    const size_t length = w->path.length;
    const bool named = !(w->which & WB__NAMELESS);
    bool layer = in_layer || node->kind->layer; /* a tree inside a layer counts as the layer */
    for (int i = 0; i < node->n; i++) {
        void *matched;
        int status = walk_other_child(w, node, i, other, &matched);
        if (!status && named && !wb__path_push(&w->path, node->children[i].name))
            status = WB_ERROR_MEMORY;
        if (!status) status = walk_descend(w, node->children[i].object, matched, layer);
        if (named) wb__path_cut(&w->path, length);
        if (status) return status;
    }
    return 0;
}

int wb__walk(const char *what, void *object, void *other, unsigned which, wb__leaf_visit f,
             void *ctx)
{
    if (!wb__is(object, &wb__tensor_class) && !wb__is_branch(object))
        return wb__not_a(what, object, "tensor, layer or tree"), wb_error_code();
    walk_state w = {.what = what, .which = which, .f = f, .ctx = ctx};
    int status = walk_descend(&w, object, other, false);
    wb__free(w.path.text);
    wb__pointer_map_free(&w.seen);
    return status;
}

typedef struct { int (*f)(wb_tensor *x, const char *path, void *ctx); void *ctx; } public_visit;

WB__PROGRAM_CALL(tensor_call, tensor_run, int,
                 const public_visit *p; const wb__leaf *leaf;,
                 c->p->f(c->leaf->x, c->leaf->path, c->p->ctx))

static int walk_call_public(const wb__leaf *leaf, void *ctx)
{
    tensor_call c = {ctx, leaf, 0};
    return wb__call_program(tensor_run, &c) ? c.result : (int)wb_error_code();
}

static int walk_each(const char *what, void *object, unsigned which, public_visit p)
{
    if (!object) return wb__null(what, "object"), WB_ERROR_ARGUMENT;
    if (!p.f) return wb__fail(WB_ERROR_ARGUMENT, "%s: no function", what);
    return wb__walk(what, object, NULL, which, walk_call_public, &p);
}

int wb_each_parameter(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx), void *ctx)
{
    WB__EDGE;
    return walk_each("each_parameter", object, WB__TRAINABLE | WB__DISTINCT, (public_visit){f,
                                                                                            ctx});
}

int wb_each_tensor(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx), void *ctx)
{
    WB__EDGE;
    return walk_each("each_tensor", object, WB__DISTINCT, (public_visit){f, ctx});
}

static int walk_add_size(const wb__leaf *leaf, void *ctx)
{
    *(int64_t *)ctx += leaf->x->size;
    return 0;
}

int64_t wb_parameter_count(void *object)
{
    int64_t count = 0;
    if (WB__NULL(object) ||
        wb__walk("parameter_count", object, NULL, WB__TRAINABLE | WB__DISTINCT | WB__NAMELESS,
                 walk_add_size, &count))
        return -1;
    return count;
}

/* ---- wb__tree_map ---------------------------------------------------------------------------- */

typedef struct { wb__leaf_result f; void *ctx; } tree_map;

static void *walk_map_object(void *object, const tree_map *m, bool in_layer)
{
    if (wb__is(object, &wb__tensor_class)) {
        wb_tensor *x = object;
        if (wb_is_none(x)) return x;
        return m->f(&(wb__leaf){x, NULL, "", walk_is_trainable(x, in_layer)}, m->ctx);
    }
    wb__branch *node = object;
    if (wb__is(object, &wb__tree_class) && ((wb_tree *)object)->is_opaque) return WB_NONE;
    wb_tree *t = wb__tree_new(0);
    if (!t) return NULL;
    const wb__branch_kind *kind = t->node.kind;
    t->node.owns_names = false;
    bool ok = wb__branch_init_like(&t->node, node), layer = in_layer || node->kind->layer;
    t->node.kind = kind;
    for (int i = 0; ok && i < node->n; i++) {
        void *child = walk_map_object(node->children[i].object, m, layer);
        ok = child != NULL;
        if (ok) wb__branch_put(&t->node, i, node->children[i].name, child);
    }
    if (ok) return t;
    wb_object_free(t);
    return NULL;
}

wb_tree *wb__tree_map(void *object, wb__leaf_result f, void *ctx)
{
    if (!wb__is_branch(object))
        return wb__fail_null(WB_ERROR_ARGUMENT, "a %s is not a tree", wb__kind(object));
    if (wb__is(object, &wb__tree_class) && ((wb_tree *)object)->is_opaque) return wb__tree_new(0);
    return walk_map_object(object, &(tree_map){f, ctx}, false);
}
