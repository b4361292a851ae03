/* Tools for models: clones, flat parameters, visits of layers, activations, output shapes. */
#include "nn/layer.h"

#include <string.h>

/* Returns a new variable with the value of x, or x itself if it is no variable. */
static wb_tensor *tools_copied(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return x->op == WB__OP_variable ? wb_variable(x) : x;
}

void *wb_object_clone(void *x)
{
    WB__PUBLIC(wb_object_clone, NULL);
    if (!wb__is_model("clone", x)) return NULL;
    return wb__fmap(x, tools_copied, NULL);
}

/* ---- flat parameters ------------------------------------------------------------------------- */

typedef struct { wb__pointer_map index; wb_tensor **x; int n, capacity; } tools_parameters;

static int tools_add_parameter(const wb__leaf *leaf, void *ctx)
{
    tools_parameters *p = ctx;
    if (!wb__reserve(&p->x, &p->capacity, p->n + 1, sizeof *p->x) ||
        !wb__pointer_map_put(&p->index, leaf->x, p->n))
        return WB_ERROR_MEMORY;
    p->x[p->n++] = leaf->x;
    return 0;
}

/* Frees the lists of *p. */
static void tools_drop(tools_parameters *p)
{
    wb__pointer_map_free(&p->index);
    wb__free(p->x);
}

/* Sets *p to the trainable tensors of the model.  False with the error set. */
static bool tools_collect(const char *what, void *model, tools_parameters *p)
{
    *p = (tools_parameters){0};
    if (!wb__is_model(what, model)) return false;
    if (wb__walk(what, model, NULL, WB__TRAINABLE | WB__DISTINCT, tools_add_parameter, p))
        return false;
    if (p->n) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: the model has no trainable tensor", what);
    return false;
}

wb_tensor *wb_destructure(void *model)
{
    tools_parameters p;
    wb_tensor *flat = NULL;
    if (tools_collect("destructure", model, &p)) {
        const wb__frame f = wb__frame_begin();
        wb_tensor **parts = wb__alloc((size_t)p.n * sizeof *parts);
        int i = 0;
        for (; parts && i < p.n; i++)
            if (!(parts[i] = wb__as(wb_reshape(p.x[i], -1), (wb_dtype)p.x[0]->dtype))) break;
        if (i == p.n) flat = wb_concat_array(0, p.n, parts);
        wb__free(parts);
        flat = wb__frame_end(f, flat);
    }
    tools_drop(&p);
    return flat;
}

typedef struct { const tools_parameters *p; const int64_t *at; wb_tensor *flat; } placing;

/* Returns the elements of the flat tensor that belong to x, in the shape of x. */
static wb_tensor *tools_part_of(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    const placing *to = ctx;
    const int i = wb__pointer_map_get(&to->p->index, x);
    if (i < 0) return x;
    wb_tensor *part = wb_slice(to->flat, 0, to->at[i], to->at[i + 1]);
    part = part ? wb_reshape_array(part, x->ndim, x->dims) : NULL;
    return part ? wb__as(part, (wb_dtype)x->dtype) : NULL;
}

void *wb_object_restructure(void *model, wb_tensor *flat)
{
    WB__EDGE;
    tools_parameters p;
    void *made = NULL;
    if (wb__operand("restructure", flat) && tools_collect("restructure", model, &p)) {
        int64_t *at = wb__alloc_zero((size_t)p.n + 1, sizeof *at);
        for (int i = 0; at && i < p.n; i++) at[i + 1] = at[i] + p.x[i]->size;
        if (at && (flat->ndim != 1 || flat->size != at[p.n]))
            wb__fail(WB_ERROR_SHAPE, "restructure: the vector is %s, and the model has %lld "
                     "parameters", wb_describe(flat), (long long)at[p.n]);
        else if (at)
            made = wb__fmap_plain(model, tools_part_of, &(placing){&p, at, flat});
        wb__free(at);
        tools_drop(&p);
    }
    return made;
}

typedef struct {
    int (*f)(wb_layer *layer, const char *path, void *ctx);
    void *ctx;
    wb__pointer_map seen;
    wb__text path;
} layer_walk;

WB__PROGRAM_CALL(visit_call, visit_run, int,
                 const layer_walk *w; wb_layer *layer;,
                 c->w->f(c->layer, c->w->path.text ? c->w->path.text : "", c->w->ctx))

/* Calls the program's function for a layer. */
static int tools_call_visit(layer_walk *w, wb_layer *layer)
{
    visit_call c = {w, layer, 0};
    wb__path(&w->path);
    return wb__call_program(visit_run, &c) ? c.result : (int)wb_error_code();
}

/* Calls the program's function for each layer in `object`, at any depth, once. */
static int tools_visit(layer_walk *w, void *object)
{
    if (!wb__is_branch(object)) return 0;
    wb__branch *node = object;
    if (wb__pointer_map_get(&w->seen, object) >= 0) return 0;
    if (!wb__pointer_map_put(&w->seen, object, 0)) return WB_ERROR_MEMORY;
    wb__branch_used(node);
    int status = node->kind->layer ? tools_call_visit(w, object) : 0;
    const size_t length = w->path.length;
    for (int i = 0; !status && i < node->n; i++) {
        if (!wb__path_push(&w->path, node->children[i].name)) status = WB_ERROR_MEMORY;
        if (!status) status = tools_visit(w, node->children[i].object);
        wb__path_cut(&w->path, length);
    }
    return status;
}

int wb_each_layer(void *object, int (*f)(wb_layer *layer, const char *path, void *ctx), void *ctx)
{
    WB__EDGE;
    if (!wb__is_model("each_layer", object)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!f) return wb__fail(WB_ERROR_ARGUMENT, "each_layer: no function");
    layer_walk w = {.f = f, .ctx = ctx};
    const int status = tools_visit(&w, object);
    wb__pointer_map_free(&w.seen);
    wb__free(w.path.text);
    return status;
}

/* Whether x is a layer.  Otherwise sets the error. */
static bool tools_is_layer(const char *what, const wb_layer *x)
{
    return wb__expect(what, x, &wb__layer_class);
}

int wb_layer_count(wb_layer *layer)
{
    wb__child *layers;
    if (!tools_is_layer("layer_count", layer)) return -1;
    return wb__container_layers(wb__layer_unnamed(layer, NULL), &layers);
}

int wb_activations(wb_layer *chain, wb_tensor *x, int n, wb_tensor **outputs)
{
    WB__EDGE;
    wb__child *layers;
    for (int i = 0; outputs && i < n; i++) outputs[i] = NULL;
    if (!tools_is_layer("activations", chain)) return wb__error_or(WB_ERROR_ARGUMENT);
    chain = wb__layer_unnamed(chain, NULL);
    if (strcmp(chain->type->name, "Chain"))
        return wb__fail(WB_ERROR_ARGUMENT, "activations: %s is not a Chain", chain->type->name);
    const int n_layers = wb__container_layers(chain, &layers);
    if (n != n_layers || !outputs)
        return wb__fail(WB_ERROR_ARGUMENT, "activations: room for %d outputs of %d layers",
                        outputs ? n : 0, n_layers);
    for (int i = 0; i < n; i++) {
        const unsigned failures = wb__failures();
        if ((outputs[i] = wb_call_array(layers[i].object, 1, i ? &outputs[i - 1] : &x))) continue;
        if (failures != wb__failures()) wb__failed_in("layers", layers[i].name);
        for (int k = 0; k < i; k++) outputs[k] = NULL;
        return wb__error_or(WB_ERROR_ARGUMENT);
    }
    return 0;
}

int wb_output_size(wb_layer *layer, wb_dtype dtype, int ndim, const int64_t *dims, int64_t *out)
{
    WB__EDGE;
    if (!tools_is_layer("output_size", layer)) return -1;
    if (!out) return wb__fail(WB_ERROR_ARGUMENT, "output_size: no place for the sizes"), -1;
    wb_scope *s = wb_scope_open();
    if (!s) return -1;
    const wb__rng_state rng = wb__rng_get_state();
    const int first = wb__pending_count();
    const wb_device *was = wb__use_device(wb_device_of(layer));
    wb_tensor *x = wb_full_array(0, dtype, ndim, dims);
    wb_tensor *y = x ? wb_call_array(layer, 1, &x) : NULL;
    const int n = y ? y->ndim : -1;
    if (y) memcpy(out, y->dims, (size_t)n * sizeof *out);
    wb__use_device(was);
    wb__forget_pending(first);
    wb__rng_exchange(rng);
    return wb_scope_close(s) ? -1 : n;
}
