/* wb_to and wb_device_of of layers and trees.  A tensor that occurs several times is copied once
 * and stays shared.  If no tensor of a tree has to be moved or converted, wb_to returns the tree
 * itself. */
#include "tree/tree.h"

#include "base/options.h"

typedef struct {
    const wb_device *device;
    wb_dtype dtype;
} moving;

/* Returns the dtype that x gets by the move; 0 or WB_DTYPE_KEEP as in wb_to_options. */
static wb_dtype tree_move_dtype_of(const wb_tensor *x, const moving *m)
{
    return x->op == WB__OP_variable && x->flags & WB__WIDE ? WB_DTYPE_KEEP : m->dtype;
}

static bool tree_move_is_there(const wb_tensor *x, const moving *m)
{
    const wb_dtype t = tree_move_dtype_of(x, m);
    if (x->device != m->device) return false;
    return !wb__dtype_float((wb_dtype)x->dtype) || !t || t == WB_DTYPE_KEEP ||
           t == (wb_dtype)x->dtype;
}

static int tree_move_must_move(const wb__leaf *leaf,
                               void *ctx) { return !tree_move_is_there(leaf->x, ctx); }

static wb_tensor *tree_move_leaf(wb_tensor *x, const char *path, void *ctx)
{
    const moving *m = ctx;
    if (x->op != WB__OP_variable || tree_move_is_there(x, m))
        return wb__tensor_to(x, m->device, tree_move_dtype_of(x, m));
    wb_dtype t = x->device == m->device && !m->dtype
                     ? (wb_dtype)x->dtype
                     : wb__dtype_on(m->device, (wb_dtype)x->dtype, tree_move_dtype_of(x, m));
    if (!t) return NULL;
    if (x->flags & WB__TYPED && t != (wb_dtype)x->dtype)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "to: \"%s\" cannot become %s: the operations of "
                             "a model of ONNX have the dtypes of its file", path, wb_dtype_name(t));
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_tensor *value = wb__converted(x, t, m->device);
    wb_tensor *v = value ? wb__variable_on(value, m->device) : NULL;
    if (v) {
        v->flags |= wb__kept_flags(x);
        v->name = x->name;
        v = wb_object_keep(v);
    }
    return wb_scope_close(s) ? NULL : v;
}

void *wb__branch_to(void *object, const wb_device *d, wb_dtype dtype)
{
    moving m = {d, dtype};
    int status = wb__walk("to", object, NULL, WB__DISTINCT, tree_move_must_move, &m);
    if (!status) return object;
    WB__FIRST(wb_object_to, NULL);
    return wb__fmap(object, tree_move_leaf, &m);
}

/* ---- wb_device_of ---------------------------------------------------------------------------- */

typedef struct {
    const wb_device *device;
    char *path;                         /* path of the first leaf that has a device */

} common_device;
static int tree_move_compare_device(const wb__leaf *leaf, void *ctx)
{
    common_device *p = ctx;
    const wb_device *d = leaf->x->device;
    if (!d || d == p->device) return 0;
    if (!p->device) {
        p->device = d;
        return (p->path = wb__strdup(leaf->path)) ? 0 : WB_ERROR_MEMORY;
    }
    return wb__fail(WB_ERROR_DEVICE, "Objects are on different devices: \"%s\" is on %s:%d and "
                    "\"%s\" on %s:%d; wb_to moves all of it to one", p->path,
                    p->device->backend->tag, p->device->ordinal, leaf->path, d->backend->tag,
                    d->ordinal);
}

const wb_device *wb__branch_device(void *object)
{
    common_device p = {0};
    int status = wb__walk("device_of", object, NULL, WB__DISTINCT, tree_move_compare_device, &p);
    wb__free(p.path);
    if (status) return NULL;
    return p.device ? p.device : &wb__cpu;
}

/* ---- functions of every kind of object ------------------------------------------------------- */

static void *tree_move(const char *what, void *x, const wb_device *d, const wb_to_options *given)
{
    wb_to_options o;
    if (!d) {
        if (wb_error_code()) return NULL;
        return wb__fail_null(WB_ERROR_ARGUMENT, "to: no device");
    }
    if (!wb__read_options("to", wb_to_options, &o, given, NULL)) return NULL;
    if (!wb__alive(what, x) || !wb__is_device(what, d)) return NULL;
    const wb__class *class = ((const wb__object *)x)->class;
    if (!class->to)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: a %s has no device and cannot be moved", what,
                             class->name);
    if (o.dtype && o.dtype != WB_DTYPE_KEEP && !wb__dtype_float(o.dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "to: .dtype is %s; it must be floating, or "
                             "WB_DTYPE_KEEP", wb_dtype_name(o.dtype));
    return class->to(x, d, o.dtype);
}

void *wb_object_to(void *x, const wb_device *d, const wb_to_options *given)
{
    WB__EDGE;
    if (WB__NULL(x) || wb_is_none(x)) return x;
    return tree_move("to", x, d, given);
}

void *wb_object_cpu(void *x)
{
    WB__EDGE;
    if (!x || wb_is_none(x)) return x;
    return tree_move("cpu", x, &wb__cpu, NULL);
}

const wb_device *wb_object_device(void *x)
{
    if (WB__NULL(x) || !wb__alive("device_of", x)) return NULL;
    if (wb_is_none(x)) return &wb__cpu;
    const wb__class *class = ((const wb__object *)x)->class;
    if (class->device_of) return class->device_of(x);
    return wb__fail_null(WB_ERROR_ARGUMENT, "device_of: a %s has no device", class->name);
}

wb_batch wb_batch_to(wb_batch b, const wb_device *d, const wb_to_options *o)
{
    WB__EDGE;
    b.x = wb_object_to(b.x, d, o);
    b.y = b.x ? wb_object_to(b.y, d, o) : NULL;
    for (int i = 0; i < WB_BATCH_MORE && b.more[i] && b.y; i++)
        if (!(b.more[i] = wb_object_to(b.more[i], d, o))) b.y = NULL;
    if (!b.y) b.x = NULL;
    return b;
}

wb_batch wb_batch_cpu(wb_batch b)
{
    WB__EDGE;
    return wb_batch_to(b, &wb__cpu, NULL);
}
