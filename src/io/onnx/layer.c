/* The layer type "Onnx".  Its children are the parameters of the file, with their names, which may
 * have dots.  Its options have the model without the values of parameters, as a blob that copies of
 * the layer share, and with which files of Weber's own describe the layer. */
#include "io/onnx/layer.h"

#include "io/onnx/frame.h"
#include "io/onnx/parameters.h"
#include "weber/files.h"

#include <stdio.h>
#include <string.h>

/* The options of the layer. */
typedef struct {
    size_t size;
    char file[128];                     /* the name of the file, for messages */
    wb__blob *graph;                    /* the model; `made` is its wb__onnx_state */
} onnx_options;
#define ONNX_LAYER_OPTIONS(X) X(onnx_options, file, TEXT, 128) X(onnx_options, graph, BLOB, 1)
static const wb__option onnx_layer_table[] = {ONNX_LAYER_OPTIONS(WB__OPTION_ROW)};

extern const wb__layer_type wb__onnx_model_type;

static wb__onnx_state *onnx_layer_state_of(const wb_layer *l)
{
    return ((const onnx_options *)l->options)->graph->made;
}

static void onnx_layer_state_free(void *made)
{
    wb__onnx_state *s = made;
    wb__onnx_state_clear(s);
    wb__onnx_free(s->model);
    wb__free(s->parameters);
    wb__free(s->frozen);
    wb__free(s);
}

/* Marks the running statistics among the parameters. */
static void onnx_layer_find_frozen(wb__onnx_state *s, const wb__onnx_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const wb__onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->n_in && n->operator->statistics >> k; k++) {
            const wb__onnx_graph *of = g;
            const int v = n->operator->statistics >> k & 1 ? wb__onnx_owner(&of, n->in[k]) : -1;
            if (v >= 0 && !of->outer && of->values[v].parameter >= 0)
                s->frozen[of->values[v].parameter] = true;
        }
        for (int k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].g) onnx_layer_find_frozen(s, n->attrs[k].g);
    }
}

/* Sets the list of parameters by `parts`, the uses of the initializers.  0 or an error code. */
static int onnx_layer_list_parameters(wb__onnx_state *s, const wb__onnx_part *parts)
{
    const wb__onnx_model *m = s->model;
    wb__onnx_graph *g = m->graph;
    const size_t n = (size_t)m->n_tensors + 1;
    s->parameters = wb__alloc(n * sizeof *s->parameters);
    s->frozen = wb__alloc_zero(n, sizeof *s->frozen);
    int *value = wb__alloc_zero(n, sizeof *value);
    int status = s->parameters && s->frozen && value ? 0 : WB_ERROR_MEMORY;
    for (int v = 0; !status && v < g->n_values; v++)
        if (g->values[v].initializer) value[g->values[v].initializer - m->tensors] = v;
    for (int i = 0; !status && i < m->n_tensors; i++) {
        const wb__onnx_tensor *t = &m->tensors[i];
        if (parts[i] == WB__ONNX_CONSTANT && t->size && !t->data)
            status = wb__fail(WB_ERROR_FORMAT, "the initializer \"%.200s\" has no values", t->name);
        if (status || parts[i] != WB__ONNX_PARAMETER) continue;
        g->values[value[i]].parameter = s->n_parameters;
        s->parameters[s->n_parameters++] = value[i];
    }
    wb__free(value);
    if (!status) onnx_layer_find_frozen(s, g);
    return status;
}

/* Returns 0 if the graph can be a layer, else an error code. */
static int onnx_layer_check_graph(const wb__onnx_model *m)
{
    const wb__onnx_graph *g = m->graph;
    if (g->n_outputs > WB__OUTPUTS)
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: has %d outputs; a layer has %d at most", m->path,
                        g->n_outputs, WB__OUTPUTS);
    for (int i = 0; i < g->n_inputs; i++) {
        const wb__onnx_value *v = &g->values[g->inputs[i]];
        if (v->type != WB__ONNX_UNDEFINED && !wb__onnx_dtype(v->type))
            return wb__fail(WB_ERROR_UNSUPPORTED, "%s: the input \"%.200s\" is %s, which Weber "
                            "lacks", m->path, v->name, wb__onnx_type_name(v->type));
    }
    for (int i = 0; i < g->n_outputs; i++) {
        const wb__onnx_value *v = &g->values[g->outputs[i]];
        if (v->type != WB__ONNX_UNDEFINED && !wb__onnx_dtype(v->type))
            return wb__fail(WB_ERROR_UNSUPPORTED, "%s: the output \"%.200s\" is %s, which Weber "
                            "lacks; onnx.utils.extract_model writes a file without it", m->path,
                            v->name, wb__onnx_type_name(v->type));
    }
    return 0;
}

/* Checks the model, and sets *parts to the use of each initializer.  Returns 0 or an error code. */
static int onnx_layer_find_parts(const wb__onnx_model *m, wb__onnx_part **parts)
{
    *parts = wb__alloc_zero((size_t)m->n_tensors + 1, sizeof **parts);
    if (!*parts) return WB_ERROR_MEMORY;
    int status = wb__onnx_find_operators(m);
    if (!status) status = onnx_layer_check_graph(m);
    return status ? status : wb__onnx_find_parameters(m, *parts);
}

/* Sets graph->made to the state of a graph, unless it has one.  Returns 0 or an error code. */
static int onnx_layer_make_state(wb__blob *graph, const char *file)
{
    wb__onnx_part *parts = NULL;
    if (graph->made) return 0;
    wb__onnx_state *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return WB_ERROR_MEMORY;
    if (!wb__onnx_state_init(s)) return wb__free(s), WB_ERROR_MEMORY;
    snprintf(s->file, sizeof s->file, "%s", file);
    int status = wb__onnx_read(NULL, graph->bytes, graph->n, &s->model);
    if (!status) status = onnx_layer_find_parts(s->model, &parts);
    if (!status) status = onnx_layer_list_parameters(s, parts);
    wb__free(parts);
    if (status) return onnx_layer_state_free(s), status;
    graph->drop = onnx_layer_state_free;
    graph->made = s;
    return 0;
}

/* Returns the layer, with parameters whose values are not set.  NULL with the error set. */
static wb_layer *onnx_layer_make(const void *options)
{
    const onnx_options *o = options;
    if (!o->graph) return wb__fail_null(WB_ERROR_FORMAT, "Onnx: has no graph");
    if (onnx_layer_make_state(o->graph, o->file)) return NULL;
    const wb__onnx_state *s = o->graph->made;
    wb_layer *l = wb__layer_new(&wb__onnx_model_type, o, s->n_parameters);
    if (l) l->node.owns_names = true;
    for (int i = 0; l && i < s->n_parameters; i++) {
        const wb__onnx_value *v = &s->model->graph->values[s->parameters[i]];
        wb_tensor *x = wb__parameter("Onnx", v->name, wb__init_empty, wb__onnx_dtype(v->type),
                                     v->ndim, v->dims);
        if (x) x->name = NULL;          /* since a tensor may outlive the names of its model */
        if (x) x->flags |= WB__TYPED | (s->frozen[i] ? WB__FROZEN : 0);
        if (x && wb__branch_put_copy(&l->node, i, v->name, x)) continue;
        wb_object_free(l);
        return NULL;
    }
    return l;
}

/* Sets the values of the parameters to those of the file.  Returns 0 or an error code. */
static int onnx_layer_set_values(wb_layer *l, const wb__onnx_model *m, const wb__onnx_part *parts)
{
    for (int i = 0, k = 0; i < m->n_tensors; i++) {
        if (parts[i] != WB__ONNX_PARAMETER) continue;
        const wb__onnx_tensor *t = &m->tensors[i];
        const size_t bytes = (size_t)t->size * wb__dtype_size(wb__onnx_dtype(t->type));
        const int status = wb__overwrite(wb__layer_child(l, k++), t->data, bytes);
        if (status) return status;
    }
    return 0;
}

/* Sets the name of the file without its folder, if that is a text that options can have. */
static void onnx_layer_set_file(onnx_options *o, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(o->file, sizeof o->file, "%s", slash ? slash + 1 : path);
    if (!wb__is_utf8(o->file)) snprintf(o->file, sizeof o->file, "model.onnx");
}

/* Returns the layer of a model, whose bytes are `data`.  `make` reads the bytes that are kept; it
 * finds the same parameters in the same order, since values do not decide what a parameter is. */
static wb_layer *onnx_layer_of(wb__onnx_model *m, const wb__onnx_part *parts, const void *data,
                               size_t bytes)
{
    wb__wire_out kept;
    onnx_options o = {.size = sizeof o};
    onnx_layer_set_file(&o, m->path);
    const bool ok = !wb__onnx_put_without_parameters(m, parts, data, bytes, &kept);
    if (ok && kept.n > INT32_MAX)
        wb__fail(WB_ERROR_UNSUPPORTED, "%s: has %zu bytes of constants, which are not trained; a "
                 "layer keeps less than 2 GiB", m->path, kept.n);
    else if (ok)
        o.graph = wb__blob_new(kept.n);
    if (o.graph && kept.n) memcpy(o.graph->bytes, kept.data, kept.n);
    wb__wire_free(&kept);
    wb_layer *l = o.graph ? onnx_layer_make(&o) : NULL;
    wb__blob_unref(o.graph);
    if (!l || !onnx_layer_set_values(l, m, parts)) return l;
    wb_object_free(l);
    return NULL;
}

wb_layer *wb__onnx_load(const wb__mapping *file, const wb_load_options *o)
{
    wb__onnx_model *m;
    wb__onnx_part *parts = NULL;
    if (o->key || o->substitute)
        return wb__fail_null(WB_ERROR_ARGUMENT, "load: %s: only BSON has .%s", file->path,
                             o->key ? "key" : "substitute");
    if (wb__onnx_read(file->path, file->data, (size_t)file->bytes, &m)) return NULL;
    wb_layer *l = onnx_layer_find_parts(m, &parts)
                      ? NULL : onnx_layer_of(m, parts, file->data, (size_t)file->bytes);
    wb__free(parts);
    wb__onnx_free(m);
    return l;
}

/* Adds an input or output as the file declares it: "x [batch,3,224,224] f32". */
static void onnx_layer_add_port(wb__text *t, const wb__onnx_value *v)
{
    wb__text_foreign(t, v->name);
    if (v->ndim >= 0) wb__text_add(t, " [");
    for (int i = 0; i < v->ndim; i++) {
        if (i) wb__text_add(t, ",");
        if (v->dims[i] >= 0) wb__text_add(t, "%lld", (long long)v->dims[i]);
        else if (v->dim_names[i]) wb__text_foreign(t, v->dim_names[i]);
        else wb__text_add(t, "?");
    }
    if (v->ndim >= 0) wb__text_add(t, "]");
    const wb_dtype dtype = wb__onnx_dtype(v->type);
    if (v->type) wb__text_add(t, " %s", dtype ? wb_dtype_name(dtype) : wb__onnx_type_name(v->type));
}

static void onnx_layer_add_ports(wb__text *t, const wb__onnx_graph *g, int n, const int *values)
{
    for (int i = 0; i < n; i++) {
        if (i) wb__text_add(t, ", ");
        onnx_layer_add_port(t, &g->values[values[i]]);
    }
    if (!n) wb__text_add(t, "nothing");
}

/* Sets the error with a reason and the inputs that the file declares, and returns false. */
static bool onnx_layer_refuse_inputs(const wb__onnx_state *s, int code, const char *format, ...)
    WB__PRINTF(3, 4);
static bool onnx_layer_refuse_inputs(const wb__onnx_state *s, int code, const char *format, ...)
{
    const wb__onnx_graph *g = s->model->graph;
    wb__text t = {0};
    va_list arguments;
    va_start(arguments, format);
    wb__text_list(&t, format, arguments);
    va_end(arguments);
    wb__text_add(&t, "; the inputs are ");
    onnx_layer_add_ports(&t, g, g->n_inputs, g->inputs);
    char *text = wb__text_take(&t);
    if (text) wb__fail(code, "onnx: %s: %s", s->file, text);
    wb__free(text);
    return false;
}

/* A size with a name in the file, and the index of the input that determined it. */
typedef struct { const char *name; int64_t size; int input; } named_size;
typedef struct { int n, capacity; named_size *list; } named_sizes;

/* Whether a size is that of other axes with the same name.  If not, sets the error. */
static bool onnx_layer_check_named(const wb__onnx_state *s, named_sizes *all, const char *name,
                                   int64_t size, int input)
{
    int i = 0;
    while (i < all->n && strcmp(all->list[i].name, name)) i++;
    if (i < all->n && all->list[i].size != size) {
        const wb__onnx_graph *g = s->model->graph;
        return onnx_layer_refuse_inputs(s, WB_ERROR_SHAPE,
                                        "%.100s is %lld in input %.100s and %lld in "
                                        "input %.100s",
                                        name, (long long)all->list[i].size,
                                        g->values[g->inputs[all->list[i].input]].name,
                                        (long long)size, g->values[g->inputs[input]].name);
    }
    if (i < all->n) return true;
    if (!wb__reserve(&all->list, &all->capacity, all->n + 1, sizeof *all->list)) return false;
    all->list[all->n++] = (named_size){name, size, input};
    return true;
}

static bool onnx_layer_check_input(const wb__onnx_state *s, named_sizes *all, int i,
                                   const wb_tensor *x)
{
    const wb__onnx_value *v = &s->model->graph->values[s->model->graph->inputs[i]];
    const wb_dtype dtype = wb__onnx_dtype(v->type);
    if (v->type && dtype != (wb_dtype)x->dtype)
        return onnx_layer_refuse_inputs(s, WB_ERROR_DTYPE,
                                        "input %.100s is %s, got %s: inputs are not "
                                        "converted (wb_astype converts)",
                                        v->name, wb_dtype_name(dtype), wb_describe(x));
    if (v->ndim >= 0 && v->ndim != x->ndim)
        return onnx_layer_refuse_inputs(s, WB_ERROR_SHAPE, "input %.100s has %d dimensions, got %s",
                                        v->name, v->ndim, wb_describe(x));
    for (int a = 0; a < v->ndim; a++) {
        if (v->dims[a] >= 0 && v->dims[a] != x->dims[a])
            return onnx_layer_refuse_inputs(s, WB_ERROR_SHAPE,
                                            "size %d of input %.100s is %lld, got %s", a, v->name,
                                            (long long)v->dims[a], wb_describe(x));
        if (v->dims[a] < 0 && v->dim_names[a] &&
            !onnx_layer_check_named(s, all, v->dim_names[a], x->dims[a], i))
            return false;
    }
    return true;
}

static bool onnx_layer_check_inputs(const wb__onnx_state *s, int n, wb_tensor *const *inputs)
{
    named_sizes all = {0};
    if (n != s->model->graph->n_inputs)
        return onnx_layer_refuse_inputs(s, WB_ERROR_ARGUMENT, "takes %d input%s, got %d",
                                        s->model->graph->n_inputs,
                                        s->model->graph->n_inputs == 1 ? "" : "s", n);
    bool ok = true;
    for (int i = 0; ok && i < n; i++) ok = onnx_layer_check_input(s, &all, i, inputs[i]);
    wb__free(all.list);
    return ok;
}

static int onnx_layer_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb__onnx_state *s = onnx_layer_state_of(l);
    if (!onnx_layer_check_inputs(s, n, inputs)) return -1;
    wb_tensor **parameters = wb__alloc(((size_t)l->node.n + 1) * sizeof *parameters);
    if (!parameters) return -1;
    for (int i = 0; i < l->node.n; i++) parameters[i] = wb__layer_child(l, i);
    const bool ok = wb__onnx_run_graph(s, parameters, inputs, outputs);
    wb__free(parameters);
    return ok ? s->model->graph->n_outputs : -1;
}

/* Whether the file has an initializer of this name and value that no node reads: its value was not
 * kept, so any value is accepted. */
static bool has_constant(const wb_layer *l, const char *name, wb_dtype dtype, size_t bytes,
                         const void *value)
{
    const wb__onnx_model *m = onnx_layer_state_of(l)->model;
    const wb__onnx_tensor *t = m->tensors, *const end = t + m->n_tensors;
    while (t < end && strcmp(t->name, name)) t++;
    if (t == end) return false;
    if (!t->data) return true;
    return wb__onnx_dtype(t->type) == dtype &&
           (size_t)t->size * wb__dtype_size(dtype) == bytes && !memcmp(t->data, value, bytes);
}

/* Prints "Onnx(resnet18.onnx: x [batch,3,224,224] f32 => y [batch,1000] f32)". */
static void onnx_layer_print(const wb_layer *l, wb__text *t)
{
    const wb__onnx_graph *g = onnx_layer_state_of(l)->model->graph;
    wb__text_add(t, "Onnx(");
    wb__text_foreign(t, onnx_layer_state_of(l)->file);
    wb__text_add(t, ": ");
    onnx_layer_add_ports(t, g, g->n_inputs, g->inputs);
    wb__text_add(t, " => ");
    onnx_layer_add_ports(t, g, g->n_outputs, g->outputs);
    wb__text_add(t, ")");
}

const wb__layer_type wb__onnx_model_type = {
    .name = "Onnx", WB__LAYER_OPTIONS(onnx_options, onnx_layer_table), .call_many = onnx_layer_call,
    .print = onnx_layer_print, .make = onnx_layer_make, .without_inputs = true,
    .has_constant = has_constant};
