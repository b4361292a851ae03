/* Calls graphs of ONNX: the nodes in order, each by the function of its operator, on lazy tensors.
 * See frame.h. */
#include "base/text.h"
#include "io/onnx/frame.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The beginning of this thread's messages, which is not added to a message twice. */
static const char onnx_run_prefix[] = "onnx: ";

static void onnx_run_add_node(wb__text *t, const wb__onnx_run *r, const wb__onnx_node *n)
{
    wb__text_add(t, "%s%s: %s ", onnx_run_prefix, r->state->file, n->op);
    if (n->name && *n->name) wb__text_add(t, "'%.100s'", n->name);
    else wb__text_add(t, "(node %d)", n->index);
}

bool wb__onnx_refuse(const wb__onnx_call *c, wb_status code, const char *format, ...)
{
    va_list arguments;
    wb__text t = {0};
    onnx_run_add_node(&t, c->run, c->node);
    wb__text_add(&t, ": ");
    va_start(arguments, format);
    wb__text_list(&t, format, arguments);
    va_end(arguments);
    char *text = wb__text_take(&t);
    if (text) wb__fail(code, "%s", text);
    wb__free(text);
    return false;
}

/* Puts the text of the node before the message of an operation that failed.  Returns false. */
static bool onnx_run_fail_in(const wb__onnx_call *c)
{
    const int code = wb_error_code();
    if (code && wb__begins(wb_error(), onnx_run_prefix)) return false;
    if (code == WB_ERROR_MEMORY) return false;
    return code ? wb__onnx_refuse(c, (wb_status)code, "%s", wb_error())
                : wb__onnx_refuse(c, WB_ERROR_INTERNAL, "failed, and gave no reason");
}

const wb__onnx_attr *wb__onnx_attribute(const wb__onnx_call *c, const char *name)
{
    for (int i = 0; i < c->node->n_attrs; i++)
        if (!strcmp(c->node->attrs[i].name, name)) return &c->node->attrs[i];
    return NULL;
}

static const wb__onnx_attr_row *onnx_run_attr_row(const wb__onnx_call *c, const char *name)
{
    return wb__onnx_attr_row_of(c->node->operator, name, c->node->opset);
}

int64_t wb__onnx_int(const wb__onnx_call *c, const char *name)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    const wb__onnx_attr_row *row = a ? NULL : onnx_run_attr_row(c, name);
    return a ? a->i : row ? (int64_t)row->number : 0;
}

double wb__onnx_real(const wb__onnx_call *c, const char *name)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    const wb__onnx_attr_row *row = a ? NULL : onnx_run_attr_row(c, name);
    return a ? (double)a->f : row ? (double)(float)row->number : 0;
}

const char *wb__onnx_text(const wb__onnx_call *c, const char *name)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    return a ? a->s : "";
}

int wb__onnx_word_index(const wb__onnx_call *c, const char *name)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    return a ? wb__onnx_word_in(onnx_run_attr_row(c, name)->words, a->s) : 0;
}

double wb__onnx_number_of(const wb__onnx_call *c, const wb__onnx_attr_row *row)
{
    if (row->type == WB__ONNX_IS_STRING) return wb__onnx_word_index(c, row->name);
    return row->type == WB__ONNX_IS_INT ? (double)wb__onnx_int(c, row->name)
                                        : wb__onnx_real(c, row->name);
}

int wb__onnx_ints(const wb__onnx_call *c, const char *name, const int64_t **list)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    *list = a ? a->ints : NULL;
    return a ? a->n : -1;
}

int wb__onnx_axis(const wb__onnx_call *c, int64_t axis, int ndim)
{
    if (axis >= -ndim && axis < ndim) return (int)(axis < 0 ? axis + ndim : axis);
    wb__onnx_refuse(c, WB_ERROR_SHAPE, "axis %lld of a tensor with %d dimensions", (long long)axis,
                    ndim);
    return -1;
}

/* Returns value v of the innermost graph in this call, and sets *value to it in its own graph. */
static wb__onnx_call_value *onnx_run_call_value(const wb__onnx_run *r, int v,
                                                const wb__onnx_value **value)
{
    const wb__onnx_frame *f = r->frame;
    const wb__onnx_graph *owner = f->graph;
    v = wb__onnx_owner(&owner, v);
    while (f->graph != owner) f = f->outer;
    *value = &f->graph->values[v];
    return &f->values[v];
}

/* Returns a block that is freed when the call ends.  NULL with the error set. */
static void *onnx_run_alloc_block(wb__onnx_run *r, size_t bytes)
{
    if (!wb__reserve(&r->blocks, &r->blocks_capacity, r->n_blocks + 1, sizeof *r->blocks))
        return NULL;
    void *made = wb__alloc(bytes + 1);
    if (made) r->blocks[r->n_blocks++] = made;
    return made;
}

/* Returns the tensor of the file as a constant on d. */
static wb_tensor *onnx_run_constant_on(wb__onnx_state *s, const wb_device *d,
                                       const wb__onnx_tensor *t)
{
    wb_tensor *x = wb__onnx_cached(s, d, t);
    const wb_dtype dtype = wb__onnx_dtype(t->type);
    if (x) return x;
    if (!dtype)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "%s%s: the constant '%.100s' is %s, which Weber "
                             "lacks", onnx_run_prefix, s->file, t->name ? t->name : "",
                             wb__onnx_type_name(t->type));
    const wb_device *was = wb__use_device(d);
    x = wb__onnx_cache(s, d, t, wb_from(t->data, dtype, t->ndim, t->dims));
    wb__use_device(was);
    return x;
}

wb_tensor *wb__onnx_constant(const wb__onnx_call *c, const wb__onnx_tensor *t)
{
    return onnx_run_constant_on(c->run->state, wb_default_device(), t);
}

/* Returns the value as computed, on the CPU if it does not vary.  NULL with the error set. */
static wb_tensor *onnx_run_computed_value(wb__onnx_run *r, const wb__onnx_value *value,
                                          wb__onnx_call_value *s)
{
    if (s->x) return s->x;
    if (value->initializer)
        return s->x = onnx_run_constant_on(r->state, &wb__cpu, value->initializer);
    return wb__fail_null(WB_ERROR_UNSUPPORTED, "%s%s: '%.100s' is read, and Weber does not compute "
                         "this output of its node", onnx_run_prefix, r->state->file, value->name);
}

wb_tensor *wb__onnx_data(wb__onnx_run *r, const wb__onnx_value *value, wb_tensor *x,
                         wb__onnx_known known)
{
    if (known == WB__ONNX_VARIES || !x->device) return x;
    if (x->storage && x->device == r->device) return x;
    if (known == WB__ONNX_BY_FILE) {
        wb_tensor *kept = wb__onnx_cached(r->state, r->device, value);
        return kept ? kept : wb__onnx_cache(r->state, r->device, value,
                                           wb__onnx_evaluated_on(x, r->device));
    }
    const wb__onnx_event *e = wb__trace_next(r->trace, WB__ONNX_DATA, value);
    if (e) return e->x;
    wb_tensor *y = wb__onnx_evaluated_on(x, r->device);
    e = y ? wb__trace_add(r->trace,
                          (wb__onnx_event){.kind = WB__ONNX_DATA, .value = value, .x = y}) : NULL;
    return e ? e->x : NULL;
}

/* Returns the value as data for a node that varies. */
static wb_tensor *onnx_run_as_data(wb__onnx_run *r, const wb__onnx_value *value,
                                   wb__onnx_call_value *s)
{
    if (s->data) return s->data;
    if (!s->x && value->initializer)
        return s->data = onnx_run_constant_on(r->state, r->device, value->initializer);
    wb_tensor *x = onnx_run_computed_value(r, value, s);
    return s->data = x ? wb__onnx_data(r, value, x, s->known) : NULL;
}

/* Writes "its input 1, 'shape'," to `to`, n bytes, and returns it. */
static const char *onnx_run_input_text(const wb__onnx_call *c, int i, char *to, size_t n)
{
    const wb__onnx_graph *g = c->run->frame->graph;
    snprintf(to, n, "its input %d, '%.100s',", i, g->values[c->node->in[i]].name);
    return to;
}

/* Converts the elements of x to `dtype` and copies them to `to`.  False with the error set. */
static bool onnx_run_copy_numbers(const wb__onnx_call *c, const char *what, wb_tensor *x,
                                  wb__onnx_known known, void *to, wb_dtype dtype)
{
    const wb_dtype from = (wb_dtype)x->dtype;
    if (known != WB__ONNX_VARIES) {
        const void *values = wb__onnx_host(x);
        if (values) wb__convert(to, dtype, values, from, x->size);
        return values != NULL;
    }
    if (wb__this_thread()->recording)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%s depends on the values of the inputs, "
                               "and decides a shape or what is computed: wb_compile cannot record "
                               "that; call the model outside of the compiled function", what);
    void *values = wb__alloc((size_t)x->size * wb__dtype_size(from) + 1);
    const bool ok = values && !wb_eval_array(1, &x) &&
                    !wb_copy_out(x, values, (size_t)x->size * wb__dtype_size(from));
    if (ok) wb__convert(to, dtype, values, from, x->size);
    wb__free(values);
    return ok;
}

/* Sets *list to the elements of x as i64 or f64.  Returns their count, or -2 with the error set. */
static int onnx_run_read_numbers(const wb__onnx_call *c, const char *what,
                                 const wb__onnx_value *value, wb_tensor *x, wb__onnx_known known,
                                 wb_dtype dtype, const void **list)
{
    const wb__onnx_event_kind kind = dtype == WB_I64 ? WB__ONNX_INTS : WB__ONNX_REALS;
    if (dtype == WB_I64 && wb__dtype_float((wb_dtype)x->dtype))
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "%s is %s; it must be integers", what,
                               wb_describe(x)), -2;
    if (x->size > INT_MAX / 8)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s is %s, too many numbers", what,
                               wb_describe(x)), -2;
    const bool varies = known == WB__ONNX_VARIES;
    const wb__onnx_event *e = varies ? NULL : wb__trace_next(c->run->trace, kind, value);
    if (e && (*list = e->numbers)) return e->n;
    const size_t bytes = (size_t)x->size * 8;
    void *numbers = varies ? onnx_run_alloc_block(c->run, bytes) : wb__alloc(bytes + 1);
    if (!numbers) return -2;
    bool ok = onnx_run_copy_numbers(c, what, x, known, numbers, dtype);
    if (!ok && !varies) wb__free(numbers);
    if (ok && !varies)
        ok = wb__trace_add(c->run->trace, (wb__onnx_event){.kind = kind, .value = value,
                                                          .n = (int)x->size, .numbers = numbers});
    *list = numbers;
    return ok ? (int)x->size : (onnx_run_fail_in(c), -2);
}

int wb__onnx_numbers(const wb__onnx_call *c, const char *what, const wb__onnx_value *value,
                     wb_tensor *x, wb__onnx_known known, const int64_t **list)
{
    const void *numbers = NULL;
    const int n = onnx_run_read_numbers(c, what, value, x, known, WB_I64, &numbers);
    *list = numbers;
    return n;
}

static int onnx_run_read_input(const wb__onnx_call *c, int i, wb_dtype dtype, const void **list)
{
    const wb__onnx_value *value;
    *list = NULL;
    if (!wb__onnx_in(c, i)) return -1;
    wb__onnx_call_value *s = onnx_run_call_value(c->run, c->node->in[i], &value);
    wb_tensor *x = onnx_run_computed_value(c->run, value, s);
    char what[160];
    onnx_run_input_text(c, i, what, sizeof what);
    return x ? onnx_run_read_numbers(c, what, value, x, s->known, dtype, list) : -2;
}

int wb__onnx_input_ints(const wb__onnx_call *c, int i, const int64_t **list)
{
    const void *numbers;
    const int n = onnx_run_read_input(c, i, WB_I64, &numbers);
    *list = numbers;
    return n;
}

int wb__onnx_list(const wb__onnx_call *c, const char *name, int i, const int64_t **list)
{
    return wb__onnx_attribute(c, name) ? wb__onnx_ints(c, name, list)
                                       : wb__onnx_input_ints(c, i, list);
}

int wb__onnx_input_reals(const wb__onnx_call *c, int i, const double **list)
{
    const void *numbers;
    const int n = onnx_run_read_input(c, i, WB_F64, &numbers);
    *list = numbers;
    return n;
}

static bool onnx_run_read_number(const wb__onnx_call *c, int i, wb_dtype dtype, void *value)
{
    const void *list;
    const int n = onnx_run_read_input(c, i, dtype, &list);
    if (n == 1) memcpy(value, list, wb__dtype_size(dtype));
    if (n == 1 || n == -1) return true;
    return n < 0 ? false : wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input %d is %s; it must be one "
                                           "number", i, wb_describe(c->in[i]));
}

bool wb__onnx_input_int(const wb__onnx_call *c, int i, int64_t *value)
{
    return onnx_run_read_number(c, i, WB_I64, value);
}

bool wb__onnx_input_real(const wb__onnx_call *c, int i, double *value)
{
    return onnx_run_read_number(c, i, WB_F64, value);
}

bool wb__onnx_copy_values(const wb__onnx_call *c, int i, wb_tensor *x, void *to, wb_dtype dtype)
{
    char what[160];
    onnx_run_input_text(c, i, what, sizeof what);
    return onnx_run_copy_numbers(c, what, x, wb__onnx_known_of(c, i), to, dtype);
}

wb__onnx_known wb__onnx_known_of(const wb__onnx_call *c, int i)
{
    const wb__onnx_value *value;
    return wb__onnx_in(c, i) ? onnx_run_call_value(c->run, c->node->in[i], &value)->known
                             : WB__ONNX_BY_FILE;
}

/* Returns what the results of a node depend on, except for If and Loop. */
static wb__onnx_known onnx_run_known_result(const wb__onnx_run *r, const wb__onnx_node *n)
{
    wb__onnx_known known = WB__ONNX_BY_FILE;
    for (int i = 0; i < n->n_in; i++) {
        const wb__onnx_value *value;
        if (n->in[i] >= 0) known = WB__MIN(known, onnx_run_call_value(r, n->in[i], &value)->known);
    }
    if (n->operator->reads_sizes) return WB__MAX(known, WB__ONNX_BY_SIZES);
    return n->operator->is_random ? WB__ONNX_VARIES : known;
}

/* Adds the event that a Shape or Size reads these sizes to the trace.  False with the error set. */
static bool onnx_run_add_sizes(wb__onnx_run *r, const wb__onnx_node *n, const wb_tensor *x)
{
    const wb__onnx_value *value = &r->frame->graph->values[n->out[0]];
    const size_t bytes = (size_t)x->ndim * sizeof *x->dims;
    const wb__onnx_event *e = wb__trace_next(r->trace, WB__ONNX_SIZES, value);
    if (e && e->n == x->ndim && !memcmp(e->numbers, x->dims, bytes)) return true;
    if (e) wb__trace_forget(r->trace);
    int64_t *dims = wb__alloc(bytes + 1);
    if (!dims) return false;
    memcpy(dims, x->dims, bytes);
    return wb__trace_add(r->trace, (wb__onnx_event){.kind = WB__ONNX_SIZES, .value = value,
                                                   .n = x->ndim, .numbers = dims});
}

/* Sets the inputs of a call.  False with the error set. */
static bool onnx_run_set_inputs(wb__onnx_run *r, wb__onnx_call *c, wb__onnx_known known)
{
    const wb__onnx_node *n = c->node;
    const bool as_they_are = known != WB__ONNX_VARIES || n->operator->calls_graphs;
    for (int i = 0; i < n->n_in; i++) {
        const wb__onnx_value *value;
        c->in[i] = NULL;
        if (n->in[i] < 0) continue;
        wb__onnx_call_value *s = onnx_run_call_value(r, n->in[i], &value);
        c->in[i] = as_they_are ? onnx_run_computed_value(r, value, s)
                               : onnx_run_as_data(r, value, s);
        if (!c->in[i]) return false;
    }
    return true;
}

/* Calls the function of the node's operator; on the CPU if the results do not vary. */
static bool onnx_run_call_function(wb__onnx_call *c, wb__onnx_known known)
{
    wb__apart a;
    const bool apart = known != WB__ONNX_VARIES;
    if (apart) wb__apart_begin(&a, &wb__cpu);
    const bool ok = c->node->operator->function(c);
    if (apart) wb__apart_end(&a);
    return ok;
}

/* Sets the values of the graph to the results of a call.  Fails if a result that a node reads is
 * NULL, or has another type than the file declares. */
static bool onnx_run_set_outputs(const wb__onnx_call *c, wb__onnx_known known, bool control)
{
    wb__onnx_run *r = c->run;
    for (int i = 0; i < c->n_out; i++) {
        if (!wb__onnx_wants(c, i)) continue;
        const wb__onnx_value *v = &r->frame->graph->values[c->node->out[i]];
        if (c->out[i] && v->type && wb__onnx_dtype(v->type) != (wb_dtype)c->out[i]->dtype)
            return wb__onnx_refuse(c, WB_ERROR_DTYPE, "its output \"%.100s\" is %s, and the file "
                                   "declares it as %s", v->name, wb_describe(c->out[i]),
                                   wb__onnx_type_name(v->type));
        r->frame->values[c->node->out[i]] =
            (wb__onnx_call_value){c->out[i], NULL, control ? r->out_known[i] : known};
    }
    return true;
}

/* Calls a node with memory for its inputs and outputs in `list`.  False with the error set. */
static bool onnx_run_call_with_memory(wb__onnx_run *r, const wb__onnx_node *n, wb_tensor **list,
                                      wb__onnx_known *out_known)
{
    wb__onnx_call c = {n, n->n_in, n->n_out, list, list + n->n_in, r};
    const bool control = n->operator->calls_graphs;
    const wb__onnx_known known = control ? WB__ONNX_VARIES : onnx_run_known_result(r, n);
    wb__onnx_known *was = r->out_known;
    r->out_known = out_known;
    for (int i = 0; i < n->n_out; i++) {
        c.out[i] = NULL;
        out_known[i] = WB__ONNX_VARIES;
    }
    bool ok = onnx_run_set_inputs(r, &c, known);
    if (ok && n->operator->reads_sizes && known == WB__ONNX_BY_SIZES)
        ok = !wb__onnx_wants(&c, 0) || onnx_run_add_sizes(r, n, c.in[0]);
    if (ok) ok = onnx_run_call_function(&c, control ? WB__ONNX_VARIES : known);
    if (ok) ok = onnx_run_set_outputs(&c, known, control);
    r->out_known = was;
    return ok ? true : onnx_run_fail_in(&c);
}

static bool onnx_run_call_node(wb__onnx_run *r, const wb__onnx_node *n)
{
    enum { FEW = 24 };
    wb_tensor *few[FEW], **list = few;
    wb__onnx_known few_known[FEW], *known = few_known;
    const size_t count = (size_t)n->n_in + (size_t)n->n_out;
    if (count <= FEW) return onnx_run_call_with_memory(r, n, list, known);
    list = wb__alloc(count * sizeof *list);
    known = wb__alloc(count * sizeof *known);
    const bool ok = list && known && onnx_run_call_with_memory(r, n, list, known);
    wb__free(list);
    wb__free(known);
    return ok;
}

/* Makes the graph the innermost one (r->frame).  False with the error set. */
static bool onnx_run_open_frame(wb__onnx_run *r, wb__onnx_frame *f, const wb__onnx_graph *g)
{
    *f = (wb__onnx_frame){g, r->frame, wb__alloc_zero((size_t)g->n_values + 1, sizeof *f->values)};
    if (!f->values) return false;
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].initializer && g->values[v].parameter < 0)
            f->values[v].known = WB__ONNX_BY_FILE;
    r->frame = f;
    return true;
}

static void onnx_run_close_frame(wb__onnx_run *r, wb__onnx_frame *f)
{
    r->frame = f->outer;
    wb__free(f->values);
}

static bool onnx_run_call_nodes(wb__onnx_run *r, const wb__onnx_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!onnx_run_call_node(r, &g->nodes[i])) return false;
    return true;
}

bool wb__onnx_subgraph(wb__onnx_call *c, const wb__onnx_graph *g, int n, wb_tensor *const *in,
                       const wb__onnx_known *in_known, wb_tensor **out, wb__onnx_known *out_known)
{
    wb__onnx_run *r = c->run;
    wb__onnx_frame f;
    if (n != g->n_inputs)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "its graph '%.100s' has %d inputs, and is "
                               "called with %d", g->name, g->n_inputs, n);
    if (!onnx_run_open_frame(r, &f, g)) return false;
    for (int i = 0; i < n; i++)
        f.values[g->inputs[i]] = (wb__onnx_call_value){in[i], NULL, in_known[i]};
    bool ok = onnx_run_call_nodes(r, g);
    for (int i = 0; ok && i < g->n_outputs; i++) {
        const wb__onnx_value *value;
        wb__onnx_call_value *s = onnx_run_call_value(r, g->outputs[i], &value);
        out[i] = onnx_run_computed_value(r, value, s);
        out_known[i] = s->known;
        ok = out[i] != NULL;
    }
    onnx_run_close_frame(r, &f);
    return ok;
}

/* Returns an output of the graph; one that belongs to the model as a new tensor of the current
 * scope. */
static wb_tensor *onnx_run_output_of(wb__onnx_run *r, int v)
{
    const wb__onnx_value *value;
    wb__onnx_call_value *s = onnx_run_call_value(r, v, &value);
    wb_tensor *x = onnx_run_as_data(r, value, s);
    if (!x || s->known == WB__ONNX_VARIES) return x ? wb__unchanged(x) : NULL;
    return x->storage && x->device ? wb__as_constant(x) : x;
}

/* Returns the device of the first input or parameter that has one. */
static const wb_device *onnx_run_device_of(const wb__onnx_state *s, wb_tensor *const *parameters,
                                           wb_tensor *const *in)
{
    for (int i = 0; i < s->model->graph->n_inputs; i++)
        if (in[i]->device) return in[i]->device;
    return s->n_parameters ? wb__device_of(parameters[0]) : wb_default_device();
}

static bool onnx_run_call_graph(wb__onnx_run *r, wb_tensor *const *parameters, wb_tensor *const *in,
                                wb_tensor **out)
{
    const wb__onnx_graph *g = r->state->model->graph;
    wb__onnx_frame f;
    if (!onnx_run_open_frame(r, &f, g)) return false;
    for (int i = 0; i < g->n_inputs; i++) f.values[g->inputs[i]].x = in[i];
    for (int i = 0; i < r->state->n_parameters; i++)
        f.values[r->state->parameters[i]].x = parameters[i];
    bool ok = onnx_run_call_nodes(r, g);
    for (int i = 0; ok && i < g->n_outputs; i++)
        ok = (out[i] = onnx_run_output_of(r, g->outputs[i])) != NULL;
    onnx_run_close_frame(r, &f);
    return ok;
}

bool wb__onnx_run_graph(wb__onnx_state *s, wb_tensor *const *parameters, wb_tensor *const *in,
                        wb_tensor **out)
{
    wb__onnx_run r = {.state = s, .device = onnx_run_device_of(s, parameters, in)};
    r.trace = wb__trace_take(s, r.device, s->model->graph->n_inputs, in);
    if (!r.trace) return false;
    const wb_device *was = wb__use_device(r.device);
    const bool ok = onnx_run_call_graph(&r, parameters, in, out);
    wb__use_device(was);
    wb__trace_give(s, r.trace);
    for (int i = 0; i < r.n_blocks; i++) wb__free(r.blocks[i]);
    wb__free(r.blocks);
    return ok;
}
