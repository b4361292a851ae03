/* wb_save of a model file of ONNX: options, example inputs, names, and the file. */
#include "io/onnx/write.h"

#include "base/files/file.h"
#include "io/onnx/writer.h"

#include <limits.h>
#include <string.h>

enum { IR_VERSION = 8 };

const char *wb__onnx_option(const wb_save_options *o, const wb__given *given)
{
    if (o->inputs[0] || wb__numbers_given(given, "inputs") >= 0) return "inputs";
    if (o->input_names[0]) return "input_names";
    if (o->output_names[0]) return "output_names";
    return o->fixed ? "fixed" : o->batch_axes[0] ? "batch_axes" : NULL;
}

/* Returns the length of a list that ends with NULL; -1 with the error set if `given` has more
 * elements: then one of the program's objects is NULL, as after a call that failed. */
static int onnx_write_length_of(const void *const *list, const wb__given *given, const char *name)
{
    int n = 0;
    while (n < WB_MAX_LIST && list[n]) n++;
    if (wb__numbers_given(given, name) <= n) return n;
    wb__null("save", name);
    return -1;
}

/* Sets axes[i] to the axis of the batch of each input by .batch_axes.  False with the error set. */
static bool onnx_write_read_axes(const char *path, int n, wb_tensor *const *x, const int64_t *list,
                                 bool fixed, int *axes)
{
    if (list[0] && list[0] != n)
        return !wb__fail(WB_ERROR_ARGUMENT, "save: %s: .batch_axes has %d numbers for %d inputs; "
                         "-1 is an input without a batch", path, (int)list[0], n);
    bool any = false;
    for (int i = 0; i < n; i++) {
        const int64_t axis = list[0] ? list[1 + i] : 0;
        if (list[0] && (axis < -1 || axis >= x[i]->ndim))
            return !wb__fail(WB_ERROR_ARGUMENT, "save: %s: the batch of input %d, %s, is axis %lld",
                             path, i, wb_describe(x[i]), (long long)axis);
        axes[i] = x[i]->ndim ? (int)axis : -1;
        /* without .batch_axes, axis 0 of all inputs with the first input's size */
        if (!list[0] && (axes[0] < 0 || (axes[i] >= 0 && x[i]->dims[0] != x[0]->dims[0])))
            axes[i] = -1;
        any |= axes[i] >= 0;
    }
    int64_t size = -1;
    for (int i = 0; i < n; i++) {
        if (axes[i] < 0) continue;
        if (size >= 0 && x[i]->dims[axes[i]] != size)
            return !wb__fail(WB_ERROR_SHAPE, "save: %s: the batch of input %d, %s, is %lld, that "
                             "of an input before it %lld", path, i, wb_describe(x[i]),
                             (long long)x[i]->dims[axes[i]], (long long)size);
        size = x[i]->dims[axes[i]];
    }
    if (any && size < 1 && !fixed)
        return !wb__fail(WB_ERROR_SHAPE, "save: %s: the batch of the example inputs is empty: "
                         ".fixed = true writes such a file", path);
    return true;
}

/* ---- example inputs -------------------------------------------------------------------------- */

/* Returns x, repeated or cut, with the size n along the axis, as an evaluated constant.  NULL with
 * the error set. */
static wb_tensor *onnx_write_resized(wb_tensor *x, int axis, int64_t n)
{
    if (axis >= 0 && x->dims[axis] < n) {
        int64_t counts[WB_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++)
            counts[i] = i == axis ? (n + x->dims[i] - 1) / x->dims[i] : 1;
        x = wb_tile_array(x, x->ndim, counts);
    }
    if (x && axis >= 0 && x->dims[axis] > n) x = wb_slice(x, axis, 0, n);
    return x && !wb_eval_array(1, &x) ? wb__constant_of("save", x) : NULL;
}

/* Returns a batch that is larger than the example's and has many divisors. */
static int64_t onnx_write_larger_batch(int64_t batch)
{
    enum { UNIT = 24 };
    return (2 * batch / UNIT + 1) * UNIT;
}

/* Sets the inputs of the writer for batches of different sizes: the smallest one that is not
 * special, larger ones with many divisors, so that no quotient or remainder is linear in these
 * three, and 1.  Returns 0 or an error code. */
static int onnx_write_set_inputs(wb__exporter *w, int n, wb_tensor *const *x, const int *axes,
                                 bool fixed)
{
    int64_t batch = 0;
    for (int i = 0; i < n; i++)
        if (axes[i] >= 0) batch = x[i]->dims[axes[i]];
    w->records = fixed || !batch ? 1 : WB__ONNX_RECORDS;
    for (int r = 0; r < w->records; r++)
        w->batch[r] = w->records == 1 ? batch : r == 2 ? onnx_write_larger_batch(batch) : 2 + r;
    w->batch[WB__ONNX_RECORDS] = 1;
    for (int i = 0; i < n; i++) {
        wb__export_port *p = &w->inputs[w->n_inputs++];
        p->batch_axis = w->records == 1 ? -1 : axes[i];
        p->dtype = (wb_dtype)x[i]->dtype;
        p->ndim = x[i]->ndim;
        for (int k = 0; k < p->ndim; k++)
            p->dims[k] = k == p->batch_axis ? (wb__export_size){1, 0}
                                            : (wb__export_size){0, x[i]->dims[k]};
        for (int r = 0; r <= WB__ONNX_RECORDS; r++)
            if ((r < w->records || w->records > 1) &&
                !(p->x[r] = onnx_write_resized(x[i], p->batch_axis, w->batch[r])))
                return (int)wb_error_code();
    }
    return 0;
}

static int onnx_write_add_parameter(const wb__leaf *leaf, void *ctx)
{
    wb__exporter *w = ctx;
    wb_tensor *x = wb_eval_array(1, &(wb_tensor *){leaf->x}) ? NULL : wb__version("save", leaf->x);
    if (!x) return (int)wb_error_code();
    if (!wb__reserve(&w->parameters, &w->parameters_capacity, w->n_parameters + 1,
                     sizeof *w->parameters) ||
        !wb__pointer_map_put(&w->parameter_of, x, w->n_parameters))
        return WB_ERROR_MEMORY;
    char *path = wb__strdup(leaf->path);
    if (!path) return WB_ERROR_MEMORY;
    w->parameters[w->n_parameters++] = (wb__export_initializer){path, x, NULL};
    return 0;
}

/* Returns the kind of object that has the name among the model's tensors and the first n inputs and
 * outputs, or NULL. */
static const char *onnx_write_owner_of(const wb__exporter *w, const char *name, int n_in, int n_out)
{
    for (int i = 0; i < w->n_parameters; i++)
        if (!strcmp(w->parameters[i].path, name)) return "a tensor of the model";
    for (int i = 0; i < n_in; i++)
        if (!strcmp(w->inputs[i].name, name)) return "another input";
    for (int i = 0; i < n_out; i++)
        if (!strcmp(w->outputs[i].name, name)) return "another output";
    return NULL;
}

/* Sets the name of a port: the program's name, or "input", "input1", "input2", ... */
static int onnx_write_name_port(wb__exporter *w, const char *const *names, int n_names, bool output,
                                int i)
{
    const char *kind = output ? "output" : "input";
    wb__export_port *p = output ? &w->outputs[i] : &w->inputs[i];
    if (n_names) p->name = wb__strdup(names[i]);
    else p->name = i ? wb__printf("%s%d", kind, i) : wb__strdup(kind);
    if (!p->name) return WB_ERROR_MEMORY;
    if (!*p->name || !wb__is_utf8(p->name) || *p->name == '/')
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: name %d of .%s_names is empty, begins with "
                        "/, or is not UTF-8", w->path, i, kind);
    const char *owner = onnx_write_owner_of(w, p->name, output ? w->n_inputs : i, output ? i : 0);
    return owner ? wb__fail(WB_ERROR_ARGUMENT, "save: %s: %s has the name \"%s\" of an %s: give "
                            "others with .%s_names", w->path, owner, p->name, kind, kind)
                 : 0;
}

static int onnx_write_name_ports(wb__exporter *w, const wb_save_options *o, const wb__given *given,
                                 bool outputs)
{
    const char *const *names = outputs ? o->output_names : o->input_names;
    const char *option = outputs ? "output_names" : "input_names";
    const int n = outputs ? w->n_outputs : w->n_inputs;
    const int n_names = onnx_write_length_of((const void *const *)names, given, option);
    int status = n_names < 0 ? (int)wb_error_code() : 0;
    if (n_names > 0 && n_names != n)
        status = wb__fail(WB_ERROR_ARGUMENT, "save: %s: .%s has %d names; the model has %d %s%s",
                          w->path, option, n_names, n, outputs ? "output" : "input",
                          n == 1 ? "" : "s");
    for (int i = 0; !status && i < n; i++)
        status = onnx_write_name_port(w, names, n_names, outputs, i);
    return status;
}

/* Sets the prefix of the names of values, with which no tensor of the model begins. */
static int onnx_write_set_prefix(wb__exporter *w)
{
    static const char slashes[] = "////////";
    for (int n = 1; n < (int)sizeof slashes; n++) {
        bool free = true;
        for (int i = 0; i < w->n_parameters; i++)
            free &= strspn(w->parameters[i].path, "/") != (size_t)n;
        w->prefix = slashes + sizeof slashes - 1 - n;
        if (free) return 0;
    }
    return wb__fail(WB_ERROR_ARGUMENT, "save: %s: names of tensors begin with 1 to 8 slashes",
                    w->path);
}

/* Writes all needed steps and the outputs.  Returns 0 or an error code. */
static int onnx_write_nodes(wb__exporter *w)
{
    wb__export_match(w);
    for (int i = 0; i < w->n_steps; i++)
        if (w->steps[i].needed && w->steps[i].n_in) wb__export_value(w, i);
    for (int i = 0; i < w->n_outputs && !w->status; i++) {
        const wb__export_port *p = &w->outputs[i];
        const char *x = wb__export_value(w, p->step);
        wb__export_call_it(w, p->name);
        if (p->dtype == WB_BF16) wb__export_cast(w, x, WB_F32, WB_BF16);
        else WB__PUT(w, "Identity", x);
    }
    if (!w->status && w->nodes.failed) w->status = WB_ERROR_MEMORY;
    return w->status;
}

static void onnx_write_put_port(wb__wire_out *o, uint32_t field, const wb__export_port *p)
{
    const size_t info = wb__wire_begin(o, field);
    wb__wire_put_text(o, INFO_NAME, p->name);
    const size_t type = wb__wire_begin(o, INFO_TYPE), tensor = wb__wire_begin(o, TYPE_TENSOR);
    wb__wire_put_int(o, TENSOR_TYPE_ELEMENT, wb__export_type_of(p->dtype));
    const size_t shape = wb__wire_begin(o, TENSOR_TYPE_SHAPE);
    for (int i = 0; i < p->ndim; i++) {
        const size_t dim = wb__wire_begin(o, SHAPE_DIM);
        if (!p->dims[i].k) wb__wire_put_int(o, DIM_VALUE, p->dims[i].c);
        else if (p->dims[i].k == 1 && !p->dims[i].c) wb__wire_put_text(o, DIM_NAME, "batch");
        wb__wire_end(o, dim);
    }
    wb__wire_end(o, shape);
    wb__wire_end(o, tensor);
    wb__wire_end(o, type);
    wb__wire_end(o, info);
}

/* Writes the fields before the values of an initializer; returns the bytes of the values. */
static int64_t onnx_write_put_head(wb__wire_out *o, const wb__export_initializer *p)
{
    const wb_tensor *x = p->x;
    const int64_t bytes = x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    wb__wire_out head = {0};
    for (int i = 0; i < x->ndim; i++) wb__wire_put_int(&head, TENSOR_DIMS, x->dims[i]);
    wb__wire_put_int(&head, TENSOR_TYPE, wb__export_type_of((wb_dtype)x->dtype));
    wb__wire_put_text(&head, TENSOR_NAME, p->path);
    wb__wire_put_length(&head, TENSOR_RAW, (uint64_t)bytes);
    wb__wire_put_length(o, GRAPH_INITIALIZER, head.n + (uint64_t)bytes);
    wb__wire_put_raw(o, head.data, head.n);
    o->failed |= head.failed;
    wb__wire_free(&head);
    return bytes;
}

typedef struct { wb__writer *file; size_t each; } onnx_write_putting;

static int onnx_write_put_values(const void *part, int64_t n, void *ctx)
{
    const onnx_write_putting *p = ctx;
    return wb__writer_put(p->file, part, n * (int64_t)p->each);
}

/* Writes the file: the bytes of o, in which the values of initializer i follow the first ends[i]
 * bytes.  Values come from their devices in parts. */
static int onnx_write_file(wb__exporter *w, const wb__wire_out *o, const size_t *ends)
{
    wb__writer *file = wb__writer_open(w->path);
    if (!file) return (int)wb_error_code();
    size_t at = 0;
    int status = 0;
    for (int i = 0; !status && i <= w->n_parameters; i++) {
        status = wb__writer_put(file, o->data + at, (int64_t)(ends[i] - at));
        at = ends[i];
        if (status || i == w->n_parameters || !w->parameters[i].name) continue;
        wb_tensor *x = w->parameters[i].x;
        onnx_write_putting p = {file, wb__dtype_size((wb_dtype)x->dtype)};
        status = wb__read_in_parts(x, onnx_write_put_values, &p);
    }
    if (status) return wb__writer_drop(file), status;
    return wb__writer_close(file);
}

/* Adds the graph's fields except the values of initializers, which belong behind the first ends[i]
 * bytes; adds the size of these values to *bytes. */
static void onnx_write_put_graph(wb__exporter *w, const char *name, wb__wire_out *o, size_t *ends,
                                 int64_t *bytes)
{
    wb__wire_put_text(o, GRAPH_NAME, name);
    for (int i = 0; i < w->n_inputs; i++) onnx_write_put_port(o, GRAPH_INPUT, &w->inputs[i]);
    for (int i = 0; i < w->n_outputs; i++) onnx_write_put_port(o, GRAPH_OUTPUT, &w->outputs[i]);
    wb__wire_put_raw(o, w->nodes.data, w->nodes.n);
    for (int i = 0; i < w->n_parameters; i++) {
        if (w->parameters[i].name) *bytes += onnx_write_put_head(o, &w->parameters[i]);
        ends[i] = o->n;
    }
    ends[w->n_parameters] = o->n;
}

static int onnx_write_model(wb__exporter *w, const char *name)
{
    wb__wire_out graph = {0}, all = {0};
    size_t *ends = wb__alloc((size_t)(w->n_parameters + 1) * sizeof *ends);
    int64_t bytes = 0;
    if (!ends) return WB_ERROR_MEMORY;
    onnx_write_put_graph(w, name, &graph, ends, &bytes);
    wb__wire_put_int(&all, MODEL_IR_VERSION, IR_VERSION);
    wb__wire_put_text(&all, MODEL_PRODUCER, "weber");
    wb__wire_put_text(&all, MODEL_PRODUCER_VERSION, wb_version());
    const size_t opset = wb__wire_begin(&all, MODEL_OPSET);
    wb__wire_put_text(&all, OPSET_DOMAIN, "");
    wb__wire_put_int(&all, OPSET_VERSION, WB__ONNX_WRITTEN);
    wb__wire_end(&all, opset);
    wb__wire_put_length(&all, MODEL_GRAPH, graph.n + (uint64_t)bytes);
    for (int i = 0; i <= w->n_parameters; i++) ends[i] += all.n;
    wb__wire_put_raw(&all, graph.data, graph.n);
    int status = all.failed || graph.failed ? WB_ERROR_MEMORY : 0;
    if (!status && (int64_t)all.n + bytes > INT32_MAX)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "save: %s: needs %lld bytes; a file of ONNX has "
                          "less than 2 GiB: save the model in parts, or its parameters in f16",
                          w->path, (long long)((int64_t)all.n + bytes));
    if (!status) status = onnx_write_file(w, &all, ends);
    wb__wire_free(&graph);
    wb__wire_free(&all);
    wb__free(ends);
    return status;
}

static void onnx_write_free(wb__exporter *w)
{
    for (int i = 0; i < w->n_inputs; i++) wb__free(w->inputs[i].name);
    for (int i = 0; i < w->n_outputs; i++) wb__free(w->outputs[i].name);
    for (int i = 0; i < w->n_steps; i++) wb__free(w->steps[i].in);
    for (int i = 0; i < w->n_parameters; i++) wb__free(w->parameters[i].path);
    for (int i = 0; i < w->n_names; i++) wb__free(w->names[i]);
    for (int i = 0; i < w->n_calls; i++) {
        const wb__export_layer_call *c = &w->calls[i];
        for (int k = 0; k < c->n_in + c->n_out; k++) wb__unref(c->tensors[k]);
        wb__free(c->tensors);
    }
    wb__pointer_map_free(&w->parameter_of);
    wb__wire_free(&w->nodes);
    wb__free(w->steps);
    wb__free(w->parameters);
    wb__free(w->names);
    wb__free(w->calls);
    wb__free(w->kept);
    wb__free(w);
}

static wb_tensor *onnx_write_keep_tensor(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return x;
}

static int onnx_write_save(wb__exporter *w, wb_layer *model, const wb_save_options *o,
                           const wb__given *given, int n, const int *axes)
{
    /* in test mode, without a change of the model's own mode */
    wb_layer *copy = wb__fmap_plain(model, onnx_write_keep_tensor, NULL);
    int status = copy ? wb__evaluate_pending() : (int)wb_error_code();
    if (!status) status = onnx_write_set_inputs(w, n, o->inputs, axes, o->fixed);
    if (!status)
        status = wb__walk("save", wb_testmode(copy), NULL, WB__DISTINCT, onnx_write_add_parameter,
                          w);
    if (!status) status = onnx_write_set_prefix(w);
    if (!status) status = onnx_write_name_ports(w, o, given, false);
    if (!status) status = wb__export_record(w, copy);
    if (!status) status = onnx_write_name_ports(w, o, given, true);
    if (!status) status = onnx_write_nodes(w);
    return status ? status : onnx_write_model(w, model->type->name);
}

int wb__onnx_save(const char *path, void *model, const wb_save_options *o,
                  const wb__given *given)
{
    wb_tensor *const *x = o->inputs;
    int axes[WB_MAX_LIST];
    if (!wb__is(model, &wb__layer_class))
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: a %s cannot be called; a file of ONNX has a "
                        "layer", path, wb__kind(model));
    if (o->names == WB_NAMES_TORCH)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: .names: a file of ONNX has Weber's names",
                        path);
    const int n = onnx_write_length_of((const void *const *)x, given, "inputs");
    if (n < 0) return (int)wb_error_code();
    if (!n)
        return wb__fail(WB_ERROR_ARGUMENT, "save: %s: a file of ONNX has the operations of one "
                        "call: give an example, as in wb_save(path, model, .inputs = {x})", path);
    for (int i = 0; i < n; i++)
        if (!wb__operand("save", x[i])) return (int)wb_error_code();
    if (!onnx_write_read_axes(path, n, x, o->batch_axes, o->fixed, axes))
        return (int)wb_error_code();
    wb_scope *scope = wb_scope_open();
    wb__exporter *w = scope ? wb__alloc_zero(1, sizeof *w) : NULL;
    if (!w) {
        if (scope) wb_scope_close(scope);
        return WB_ERROR_MEMORY;
    }
    w->path = path;
    w->at = -1;
    const int status = onnx_write_save(w, model, o, given, n, axes);
    onnx_write_free(w);
    const int closed = wb_scope_close(scope);
    return status ? status : closed;
}
