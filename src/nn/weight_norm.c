/* WeightNorm: a layer whose weight is g v / ||v||.  Its child "layer" is the inner layer, whose
 * tensor with the name .name is v; its child "g" has the lengths.  A call makes a copy of the inner
 * layer that shares all children but v, in whose place the copy has the weight.  A WeightNorm may
 * be inside another one; the innermost layer is called the base. */
#include "nn/layer.h"

#include <stdio.h>

typedef struct { size_t size; int64_t dim; bool whole; char name[64]; } norm_options;
#define WEIGHT_NORM_OPTIONS(X)                                                                  \
    X(norm_options, dim, INT, 1) X(norm_options, whole, BOOL, 1)                                \
    X(norm_options, name, TEXT, sizeof((norm_options *)0)->name)
static const wb__option weight_norm_table[] = {WEIGHT_NORM_OPTIONS(WB__OPTION_ROW)};
enum { WEIGHT_NORM_LAYER, G };

extern const wb__layer_type wb__weightnorm_type;

static bool weight_norm_is(const void *object)
{
    return wb__is(object, &wb__layer_class) &&
           ((const wb_layer *)object)->type == &wb__weightnorm_type;
}

static wb_layer *weight_norm_base_of(const wb_layer *l)
{
    while (weight_norm_is(l)) l = wb__layer_child(l, WEIGHT_NORM_LAYER);
    return (wb_layer *)(uintptr_t)l;
}

/* Returns the index of the base's child `name`, or -1. */
static int weight_norm_child_named(const wb_layer *base, const char *name)
{
    for (int i = 0; i < base->node.n; i++)
        if (!strcmp(base->node.children[i].name, name)) return i;
    return -1;
}

const char *wb__normed_child(const wb_layer *l, const wb_layer **base, int *i)
{
    const norm_options *o = l->options;
    if (!weight_norm_is(l)) return NULL;
    *base = weight_norm_base_of(l);
    *i = weight_norm_child_named(*base, o->name);
    return o->name;
}

bool wb__is_normed(const wb_layer *owner, const char *child)
{
    for (; owner && weight_norm_is(owner); owner = wb__layer_child(owner, WEIGHT_NORM_LAYER))
        if (!strcmp(((const norm_options *)owner->options)->name, child)) return true;
    return false;
}

/* ---- the weight ------------------------------------------------------------------------------ */

/* Returns the squares of the norms of v, in the dtype in which they are computed: a number, or one
 * for each index of the axis .dim. */
static wb_tensor *weight_norm_squares(const norm_options *o, wb_tensor *v)
{
    wb_tensor *x = wb__wide(v);
    const int axis = o->whole ? -1 : wb__axis("WeightNorm", v, o->dim);
    if (!x || (!o->whole && axis < 0)) return NULL;
    const unsigned all = (1u << v->ndim) - 1, mask = o->whole ? all : all & ~(1u << axis);
    return wb__reduce(WB__OP_sum, wb_mul(x, x), mask, !o->whole);
}

/* Returns the weight.  Where v is all zeros, the weight is too. */
static wb_tensor *weight_norm_weight_of(const norm_options *o, wb_tensor *v, wb_tensor *g)
{
    wb_tensor *sum = weight_norm_squares(o, v);
    wb_tensor *norm = sum ? wb_sqrt(wb_where(wb_eq(sum, wb_scalar(0)), wb_scalar(1), sum)) : NULL;
    wb_tensor *w = norm ? wb_mul(wb__wide(v), wb_div(wb__wide(g), norm)) : NULL;
    return w ? wb__as(w, (wb_dtype)v->dtype) : NULL;
}

/* A function that returns the weight of l, a WeightNorm.  `ctx` is the argument of copy_base. */
typedef wb_tensor *(*weight_function)(const wb_layer *l, wb_tensor *v, wb_tensor *g, void *ctx);

/* Returns a copy of the base of l that shares its children, except the tensors that l and the
 * WeightNorms inside it normalise: f makes these.  NULL with the error set. */
static wb_layer *copy_base(wb_layer *l, weight_function f, void *ctx)
{
    wb_layer *base = weight_norm_base_of(l);
    wb__branch_used(&base->node);
    wb_layer *made = (wb_layer *)base->node.kind->like(&base->node);
    for (int i = 0; made && i < base->node.n; i++)
        wb__branch_put(&made->node, i, made->node.children[i].name, base->node.children[i].object);
    for (; made && weight_norm_is(l); l = wb__layer_child(l, WEIGHT_NORM_LAYER)) {
        const int i = weight_norm_child_named(base, ((const norm_options *)l->options)->name);
        wb__branch_used(&l->node);
        wb_tensor *w = f(l, wb__layer_child(base, i), wb__layer_child(l, G), ctx);
        if (!w) return wb_object_free(made), NULL;
        wb__unref(made->node.children[i].object);
        made->node.children[i].object = NULL;
        wb__branch_put(&made->node, i, made->node.children[i].name, w);
    }
    return made;
}

static wb_tensor *weight_norm_compute(const wb_layer *l, wb_tensor *v, wb_tensor *g, void *ctx)
{
    (void)ctx;
    return weight_norm_weight_of(l->options, v, g);
}

wb_layer *wb__with_weights(wb_layer *l) { return weight_norm_is(l) ? copy_base(l,
                                                                               weight_norm_compute,
                                                                               NULL) : l; }

static int weight_norm_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb_layer *layer = wb__with_weights(l);
    const unsigned failures = wb__failures();
    const int n_out = layer ? wb__call_layer(layer, n, inputs, outputs) : -1;
    if (n_out < 0 && failures != wb__failures()) wb__failed_in("layer", "");
    return n_out;
}

static void weight_norm_print(const wb_layer *l, wb__text *t)
{
    const norm_options *o = l->options;
    wb__text_add(t, "WeightNorm(");
    wb__print_layer(wb__layer_child(l, WEIGHT_NORM_LAYER), t);
    wb__text_add(t, ", %s", o->name);
    if (o->whole) wb__text_add(t, "; whole=true");
    else if (o->dim) wb__text_add(t, "; dim=%lld", (long long)o->dim);
    wb__text_add(t, ")");
}

/* Whether the base of `layer` has a tensor that o normalises.  Otherwise sets the error. */
static bool weight_norm_check(const wb_layer *layer, const norm_options *o)
{
    const wb_layer *base = weight_norm_base_of(layer);
    const int i = weight_norm_child_named(base, o->name);
    const wb_tensor *v = i < 0 ? NULL : wb__layer_child(base, i);
    if (!v || wb_is_none(v) || !wb__is(v, &wb__tensor_class))
        return !wb__fail(WB_ERROR_ARGUMENT, "WeightNorm: %s has no tensor \"%s\"", base->type->name,
                         o->name);
    if (!wb__dtype_float((wb_dtype)v->dtype))
        return !wb__fail(WB_ERROR_DTYPE, "WeightNorm: \"%s\" of %s is %s; it is floating", o->name,
                         base->type->name, wb_describe(v));
    if (wb__is_normed(layer, o->name))
        return !wb__fail(WB_ERROR_ARGUMENT, "WeightNorm: \"%s\" of %s has a WeightNorm already",
                         o->name, base->type->name);
    return o->whole || wb__axis("WeightNorm", v, o->dim) >= 0;
}

/* Returns the layer, with the norms of v as g, or without values for g if `empty` is true. */
static wb_layer *weight_norm_around(const norm_options *o, wb_layer *layer, bool empty)
{
    if (!weight_norm_check(layer, o)) return NULL;
    const wb_layer *base = weight_norm_base_of(layer);
    wb_tensor *v = wb__layer_child(base, weight_norm_child_named(base, o->name));
    int64_t dims[WB_MAX_DIMS];
    const int ndim = o->whole ? 0 : v->ndim;
    for (int i = 0; i < ndim; i++)
        dims[i] = i == wb__axis("WeightNorm", v, o->dim) ? v->dims[i] : 1;
    wb_layer *l = wb__layer_new(&wb__weightnorm_type, o, 2);
    if (!l || !wb__layer_put(l, WEIGHT_NORM_LAYER, "layer", layer)) return NULL;
    if (empty)
        return wb__layer_put_parameter(l, G, "g", true, wb__init_empty, (wb_dtype)v->dtype, ndim,
                                       dims) ? l : NULL;
    wb_tensor *norms = weight_norm_squares(o, v), *g = norms ? wb_sqrt(norms) : NULL;
    g = g ? wb__variable_replacing(wb__as(g, (wb_dtype)v->dtype), v) : NULL;
    if (g) g->name = "g";
    return wb__layer_put(l, G, "g", g) ? l : NULL;
}

static wb_layer *weight_norm_assemble(const void *options, int n, const char *const *names,
                                      wb_layer *const *layers)
{
    (void)names;
    if (n == 1) return weight_norm_around(options, layers[0], true);
    return wb__fail_null(WB_ERROR_ARGUMENT, "WeightNorm: has one layer, got %d", n);
}

static const wb__torch_child weight_norm_torch_rows[] = {{"layer", "", NULL, 0}};
static const wb__torch_kind weight_norm_torch = {WB__TORCH_CHILDREN(weight_norm_torch_rows)};

const wb__layer_type wb__weightnorm_type = {
    .name = "WeightNorm", WB__LAYER_OPTIONS(norm_options, weight_norm_table),
    .call_many = weight_norm_call, .print = weight_norm_print, .assemble = weight_norm_assemble,
    .one_row = true, .torch = &weight_norm_torch};

wb_layer *wb_WeightNorm_with(wb_layer *layer, const wb_WeightNorm_options *given)
{
    WB__PUBLIC(wb_WeightNorm_with, NULL);
    wb_WeightNorm_options o;
    if (!wb__expect("WeightNorm", layer, &wb__layer_class)) return NULL;
    if (!wb__read_options("WeightNorm", wb_WeightNorm_options, &o, given, NULL)) return NULL;
    norm_options made = {.size = sizeof made, .dim = o.dim, .whole = o.whole};
    const int length = snprintf(made.name, sizeof made.name, "%s", o.name ? o.name : "weight");
    if (length >= (int)sizeof made.name)
        return wb__fail_null(WB_ERROR_ARGUMENT, "WeightNorm: the name \"%s\" is longer than %d",
                             o.name, (int)sizeof made.name - 1);
    if (o.whole && o.dim)
        return wb__fail_null(WB_ERROR_ARGUMENT, "WeightNorm: .whole and .dim = %lld exclude each "
                             "other", (long long)o.dim);
    return weight_norm_around(&made, wb__layer_unnamed(layer, NULL), false);
}

/* ---- removal --------------------------------------------------------------------------------- */

/* A weight w that replaces a WeightNorm l with direction v and lengths g. */
typedef struct { const wb_layer *l; const wb_tensor *v, *g; wb_tensor *w; } weight_norm_replaced;
typedef struct { weight_norm_replaced *done; int n, capacity; } removal;

/* Returns the weight of l as a variable.  WeightNorms that share g and v get one variable. */
static wb_tensor *weight_norm_variable(const wb_layer *l, wb_tensor *v, wb_tensor *g, void *ctx)
{
    removal *r = ctx;
    const norm_options *o = l->options;
    for (int i = 0; i < r->n; i++) {
        const norm_options *other = r->done[i].l->options;
        if (r->done[i].v == v && r->done[i].g == g && other->dim == o->dim &&
            other->whole == o->whole)
            return r->done[i].w;
    }
    wb_tensor *w = weight_norm_weight_of(o, v, g);
    w = w ? wb__variable_replacing(w, v) : NULL;
    if (!w || !wb__reserve(&r->done, &r->capacity, r->n + 1, sizeof *r->done)) return NULL;
    w->name = v->name;
    r->done[r->n++] = (weight_norm_replaced){l, v, g, w};
    return w;
}

static void *weight_norm_remove(void *branch, const char *path, void *ctx)
{
    (void)path;
    return weight_norm_is(branch) ? copy_base(branch, weight_norm_variable, ctx) : branch;
}

void *wb_object_remove_weight_norms(void *model)
{
    WB__PUBLIC(wb_object_remove_weight_norms, NULL);
    if (!wb__is_model("remove_weight_norms", model)) return NULL;
    removal r = {0};
    void *made = wb__fmap_replacing(model, weight_norm_remove, &r);
    wb__free(r.done);
    return made;
}
