/* Calls a model without evaluating anything, with batches of different sizes, and compares the
 * graphs of these calls. */
#include "base/numbers/philox.h"
#include "io/onnx/writer.h"

#include <limits.h>
#include <string.h>

typedef struct { wb__observer base; wb__exporter *w; } listener;

/* Adds a call of a layer, with the tensors that the layer made, to the exporter's calls. */
static void onnx_record_add_call(wb__observer *o, const wb_layer *l, int n,
                                 wb_tensor *const *inputs, int n_out, wb_tensor **outputs)
{
    wb__exporter *w = ((listener *)o)->w;
    wb_tensor **list = wb__alloc((size_t)(n + n_out) * sizeof *list);
    if (!list || !wb__reserve(&w->calls, &w->calls_capacity, w->n_calls + 1, sizeof *w->calls)) {
        wb__free(list);
        w->status = WB_ERROR_MEMORY;
        return;
    }
    for (int i = 0; i < n + n_out; i++) {
        wb_tensor *x = wb__version("save", i < n ? inputs[i] : outputs[i - n]);
        if (!x) w->status = (int)wb_error_code();
        list[i] = x ? wb__ref(x) : NULL;
    }
    w->calls[w->n_calls++] = (wb__export_layer_call){(wb_layer *)(uintptr_t)l, n, n_out, list};
}

static int onnx_record_call_failed(wb__exporter *w, int r, int code, bool recorded)
{
    if (code == WB_ERROR_MEMORY) return code;
    char *reason = wb__strdup(wb_error());
    if (!reason) return WB_ERROR_MEMORY;
    if (recorded)
        wb__fail(WB_ERROR_UNSUPPORTED, "save: %s: the model reads a value or has an effect while "
                 "it is called, which a file of ONNX cannot have: %s", w->path, reason);
    else if (w->records > 1 && code != WB_ERROR_UNSUPPORTED)
        wb__fail(code, "save: %s: the call with a batch of %lld failed; .batch_axes says which "
                 "axes of the inputs are the batch, and .fixed = true writes the sizes of the "
                 "example: %s", w->path, (long long)w->batch[r], reason);
    else wb__fail(code, "save: %s: the call of the model failed: %s", w->path, reason);
    wb__free(reason);
    return (int)wb_error_code();
}

/* Returns an error code: a write to a variable, which a file cannot have. */
static int onnx_record_refuse_write(const wb__exporter *w, const wb_tensor *write)
{
    const char *path = "of its own";
    for (int i = 0; i < w->n_parameters; i++)
        if (w->parameters[i].x->variable == write->variable) path = w->parameters[i].path;
    return wb__fail(WB_ERROR_UNSUPPORTED, "it assigns to a variable, %s", path);
}

/* Calls the model while the thread records, so that nothing is evaluated or assigned. */
static int onnx_record_call(wb__exporter *w, wb_layer *model, int r, wb_tensor **outputs)
{
    wb_tensor *in[WB__OUTPUTS];
    wb__recording notes = {0};
    wb__thread *t = wb__this_thread();
    listener l = {{onnx_record_add_call}, w};
    wb__observer *observer = wb__layer_observer;
    const wb_device *device = t->device;
    const wb__rng_state rng = wb__rng_get_state();
    for (int i = 0; i < w->n_inputs; i++) in[i] = w->inputs[i].x[r];
    wb__recording_begin(&notes, t->scope);
    wb__layer_observer = r ? NULL : &l.base;
    const int n = wb__call_layer(model, w->n_inputs, in, outputs);
    wb__layer_observer = observer;
    int code = n < 0 ? wb__error_or(WB_ERROR_ARGUMENT) : 0;
    if (!code && wb__pending_count()) code = onnx_record_refuse_write(w, t->pending[0]);
    wb__forget_pending(0);
    wb__rng_set_state(rng);
    t->device = device;
    const int recorded = wb__recording_end(&notes);
    wb__recording_drop(&notes);
    if (code || recorded)
        return onnx_record_call_failed(w, r, code ? code : recorded, recorded != 0), -1;
    return n;
}

/* The tensors of a call; inputs come before their readers. */
typedef struct {
    int n, capacity, n_out;
    wb_tensor **node, *outputs[WB__OUTPUTS];
    wb__pointer_map index;
} graph;

static bool onnx_record_is_leaf(const wb_tensor *x)
{
    return wb__known(x) || x->flags & WB__GONE || !x->n_in;
}

/* Returns how many of the tensors x.in the value needs; gradients or plan steps need the others. */
static int onnx_record_inputs_of(const wb_tensor *x)
{
    if (onnx_record_is_leaf(x)) return 0;
    return x->op == WB__OP_custom || x->op == WB__OP_attention_cached ? 1 : (int)x->n_in;
}

typedef struct { wb_tensor *x; int next; } onnx_record_visit;
typedef struct { onnx_record_visit *list; int n, capacity; } visits;

enum { ONNX_RECORD_OPEN = INT_MAX };    /* in the map: the inputs of the tensor are being visited */

/* Starts the visit of x, unless x has been visited. */
static bool onnx_record_enter(graph *g, visits *v, wb_tensor *x)
{
    if (wb__pointer_map_get(&g->index, x) >= 0) return true;
    if (!wb__reserve(&v->list, &v->capacity, v->n + 1, sizeof *v->list)) return false;
    v->list[v->n++] = (onnx_record_visit){x, 0};
    return wb__pointer_map_put(&g->index, x, ONNX_RECORD_OPEN);
}

/* Ends the visit of the last tensor, which gets its place in g->node. */
static bool onnx_record_leave(graph *g, visits *v)
{
    wb_tensor *x = v->list[--v->n].x;
    if (!wb__reserve(&g->node, &g->capacity, g->n + 1, sizeof *g->node)) return false;
    g->node[g->n] = x;
    return wb__pointer_map_put(&g->index, x, g->n++);
}

/* Lists the tensors from which the outputs are computed, without recursion. */
static bool onnx_record_walk(graph *g)
{
    visits v = {0};
    bool ok = true;
    for (int i = 0; ok && i < g->n_out; i++) {
        g->outputs[i] = wb__version("save", g->outputs[i]);
        ok = g->outputs[i] && onnx_record_enter(g, &v, g->outputs[i]);
        while (ok && v.n) {
            onnx_record_visit *top = &v.list[v.n - 1];
            ok = top->next < onnx_record_inputs_of(top->x)
                     ? onnx_record_enter(g, &v, top->x->in[top->next++])
                     : onnx_record_leave(g, &v);
        }
    }
    wb__free(v.list);
    return ok;
}

static void onnx_record_graph_free(graph *g)
{
    wb__free(g->node);
    wb__pointer_map_free(&g->index);
}

/* Sets *size to the size with these values in the recordings; false: it is no k · batch + c. */
static bool onnx_record_find_size(const wb__exporter *w, const int64_t *v, wb__export_size *size)
{
    *size = (wb__export_size){0, v[0]};
    if (w->records == 1) return true;
    const uint64_t k = (uint64_t)v[1] - (uint64_t)v[0];     /* v may be the bits of a double */
    *size = (wb__export_size){(int64_t)k, (int64_t)((uint64_t)v[0] - k * (uint64_t)w->batch[0])};
    return (uint64_t)v[2] - (uint64_t)v[1] == k * (uint64_t)(w->batch[2] - w->batch[1]);
}

static int onnx_record_fail_differs(wb__exporter *w, const char *what)
{
    wb__export_cannot(w, "%s another with another size of the batch: .fixed = true writes the file "
                      "for the batch of the example alone", what);
    return w->status;
}

wb_tensor *wb__export_row(const wb__export_step *s)
{
    wb_tensor *row = s->x[0];
    for (int i = 0; row && i < s->x[0]->ndim; i++)
        if (s->dims[i].k) row = wb_slice(row, i, 0, 1);
    return row;
}

/* Whether a tensor that does not depend on the inputs is the same in all recordings.  The tensor
 * may have axes of the batch's size, along which all its elements are equal. */
static bool onnx_record_same_constant(const wb__exporter *w, const wb__export_step *s)
{
    wb_tensor *row = wb__export_row(s);
    bool same = row != NULL, differ = row != s->x[0];
    for (int r = 1; r < w->records; r++) differ |= s->x[r] != s->x[0];
    for (int r = 0; differ && same && r < w->records; r++) {
        wb_tensor *a = s->x[r], *b = wb_expand_array(row, a->ndim, a->dims);
        const void *p = b ? wb_data(a) : NULL, *q = p ? wb_data(b) : NULL;
        same = q && !memcmp(p, q, (size_t)a->size * wb__dtype_size((wb_dtype)a->dtype));
    }
    return same;
}

static int onnx_record_input_of(const wb__exporter *w, const wb__export_step *s, int r)
{
    for (int i = 0; i < w->n_inputs; i++)
        if (w->inputs[i].x[r] == s->x[r]) return i;
    return -1;
}

/* Compares the tensors that step i has in the recordings, and sets the step's inputs, parameter,
 * dimensions and whether it varies.  Returns 0 or an error code. */
static int onnx_record_compare(wb__exporter *w, int i, const graph *g)
{
    wb__export_step *s = &w->steps[i];
    const wb_tensor *a = s->x[0];
    s->input = onnx_record_input_of(w, s, 0);
    s->parameter = wb__pointer_map_get(&w->parameter_of, a);
    s->varies = s->input >= 0;
    for (int k = 0; k < s->n_in; k++) s->varies |= w->steps[s->in[k]].varies;
    for (int r = 1; r < w->records; r++) {
        const wb_tensor *b = s->x[r];
        if (a->op != b->op || a->dtype != b->dtype || a->ndim != b->ndim ||
            onnx_record_inputs_of(b) != s->n_in ||
            onnx_record_is_leaf(a) != onnx_record_is_leaf(b) || a->n_attr != b->n_attr ||
            s->input != onnx_record_input_of(w, s, r))
            return onnx_record_fail_differs(w, "is");
        for (int k = 0; k < s->n_in; k++)
            if (wb__pointer_map_get(&g[r].index, b->in[k]) != s->in[k])
                return onnx_record_fail_differs(w, "reads");
    }
    for (int d = 0; d < a->ndim; d++) {
        int64_t v[WB__ONNX_RECORDS] = {0};
        for (int r = 0; r < w->records; r++) v[r] = s->x[r]->dims[d];
        if (!onnx_record_find_size(w, v, &s->dims[d]))
            return wb__export_cannot(w, "gives %s, of which axis %d is not linear in the size of "
                                     "the batch: .fixed = true writes the sizes of the example",
                                     wb_describe((wb_tensor *)(uintptr_t)a), d),
                   w->status;
    }
    if (wb__known(a) && s->input < 0 && a->op != WB__OP_literal && a->op != WB__OP_iota &&
        !onnx_record_same_constant(w, s))
        return onnx_record_fail_differs(w, "has a constant of the program, which is");
    return 0;
}

wb__export_size wb__export_attr(wb__exporter *w, int step, int k)
{
    const wb__export_step *s = &w->steps[step];
    int64_t v[WB__ONNX_RECORDS] = {0};
    wb__export_size size;
    for (int r = 0; r < w->records; r++) v[r] = s->x[r]->attr[k];
    if (!onnx_record_find_size(w, v, &size)) onnx_record_fail_differs(w, "has numbers that are");
    return size;
}

int64_t wb__export_fixed_attr(wb__exporter *w, int step, int k)
{
    const wb__export_size size = wb__export_attr(w, step, k);
    if (size.k) onnx_record_fail_differs(w, "has numbers that are");
    return size.c;
}

/* Sets w->steps, one for each tensor of the graphs.  Returns 0 or an error code. */
static int onnx_record_make_steps(wb__exporter *w, const graph *g)
{
    for (int r = 1; r < w->records; r++)
        if (g[r].n != g[0].n || g[r].n_out != g[0].n_out)
            return wb__fail(WB_ERROR_UNSUPPORTED, "save: %s: the model is computed by %d "
                            "operations with a batch of %lld and by %d with one of %lld: .fixed = "
                            "true writes the sizes of the example", w->path, g[0].n,
                            (long long)w->batch[0], g[r].n, (long long)w->batch[r]);
    w->steps = wb__alloc_zero((size_t)g[0].n + 1, sizeof *w->steps);
    if (!w->steps) return WB_ERROR_MEMORY;
    w->n_steps = g[0].n;
    for (int i = 0; i < w->n_steps; i++) {
        wb__export_step *s = &w->steps[i];
        s->layer = "";
        for (int r = 0; r < w->records; r++) s->x[r] = g[r].node[i];
        s->n_in = onnx_record_inputs_of(s->x[0]);
        if (s->n_in && !(s->in = wb__alloc((size_t)s->n_in * sizeof *s->in)))
            return s->n_in = 0, WB_ERROR_MEMORY;
        for (int k = 0; k < s->n_in; k++) {
            s->in[k] = wb__pointer_map_get(&g[0].index, s->x[0]->in[k]);
            w->steps[s->in[k]].uses++;
        }
    }
    return 0;
}

enum { FOUND = -1 };
typedef struct { wb__exporter *w; const wb_layer *layer; const char *path; } onnx_record_finding;

static int onnx_record_find_path(wb_layer *layer, const char *path, void *ctx)
{
    onnx_record_finding *f = ctx;
    wb__exporter *w = f->w;
    if (layer != f->layer) return 0;
    char *copy = wb__strdup(path);
    if (!copy) return WB_ERROR_MEMORY;
    if (!wb__reserve(&w->names, &w->names_capacity, w->n_names + 1, sizeof *w->names))
        return wb__free(copy), WB_ERROR_MEMORY;
    f->path = w->names[w->n_names++] = copy;
    return FOUND;
}

/* Sets the layer of the steps between a call's inputs and outputs that have no layer yet. */
static void onnx_record_name_steps(wb__exporter *w, const graph *g, const wb__export_layer_call *c,
                                   const char *path, int *stack, int *seen, int mark)
{
    int n = 0;
    for (int i = 0; i < c->n_in; i++) {
        const int at = wb__pointer_map_get(&g->index, c->tensors[i]);
        if (at >= 0) seen[at] = mark;
    }
    for (int i = 0; i < c->n_out; i++) {
        const int at = wb__pointer_map_get(&g->index, c->tensors[c->n_in + i]);
        if (at >= 0 && seen[at] != mark) {
            seen[at] = mark;
            stack[n++] = at;
        }
    }
    while (n) {
        wb__export_step *s = &w->steps[stack[--n]];
        if (s->type) continue;
        s->layer = path;
        s->type = c->layer->type->name;
        for (int k = 0; k < s->n_in; k++)
            if (seen[s->in[k]] != mark) {
                seen[s->in[k]] = mark;
                stack[n++] = s->in[k];
            }
    }
}

/* Sets the layers of all steps.  Returns 0 or an error code. */
static int onnx_record_name_layers(wb__exporter *w, wb_layer *model, const graph *g)
{
    int *stack = wb__alloc((size_t)(w->n_steps + 1) * sizeof *stack);
    int *seen = wb__alloc_zero((size_t)w->n_steps + 1, sizeof *seen);
    int status = stack && seen ? 0 : WB_ERROR_MEMORY;
    for (int i = 0; !status && i < w->n_calls; i++) {
        onnx_record_finding f = {w, w->calls[i].layer, ""};
        if (f.layer != model) status = wb_each_layer(model, onnx_record_find_path, &f);
        status = status == FOUND ? 0 : status;
        if (!status) onnx_record_name_steps(w, g, &w->calls[i], f.path, stack, seen, i + 1);
    }
    wb__free(stack);
    wb__free(seen);
    return status;
}

static int onnx_record_set_outputs(wb__exporter *w, const graph *g)
{
    w->n_outputs = g->n_out;
    for (int i = 0; i < g->n_out; i++) {
        wb__export_port *p = &w->outputs[i];
        p->step = wb__pointer_map_get(&g->index, g->outputs[i]);
        const wb__export_step *s = &w->steps[p->step];
        p->dtype = (wb_dtype)s->x[0]->dtype;
        p->ndim = s->x[0]->ndim;
        memcpy(p->dims, s->dims, sizeof p->dims);
        w->steps[p->step].uses++;
    }
    return 0;
}

/* Whether x, a tensor of the call with a batch of 1, has the sizes, the starts of slices and parts,
 * and the number that the step has in the file for this batch.  If x is NULL, whether these sizes
 * and starts are not negative. */
static bool onnx_record_fits_single(wb__exporter *w, int step, const wb_tensor *x)
{
    const wb__export_step *s = &w->steps[step];
    const wb_tensor *a = s->x[0];
    const int starts = a->op == WB__OP_slice ? 1 : a->op == WB__OP_concat ? s->n_in : 0;
    bool fits = !x || x->ndim == a->ndim, same = true;
    for (int i = 0; fits && i < a->ndim * (1 + starts); i++) {
        const wb__export_size n = i < a->ndim ? s->dims[i] : wb__export_attr(w, step, i - a->ndim);
        const int64_t single = n.k + n.c;
        fits = !x ? single >= 0 : single == (i < a->ndim ? x->dims[i] : x->attr[i - a->ndim]);
    }
    for (int r = 1; r < w->records; r++) same &= s->x[r]->number[0].u == a->number[0].u;
    return fits && (!x || a->op != WB__OP_literal || !same || x->number[0].u == a->number[0].u);
}

/* Compares the call with a batch of 1.  If it has other operations, such as no expansion, compares
 * only the outputs.  Returns 0 or an error code. */
static int onnx_record_compare_single(wb__exporter *w, const graph *g)
{
    bool same = g->n == w->n_steps, fits = g->n_out == w->n_outputs;
    for (int i = 0; same && i < g->n; i++) same = g->node[i]->op == w->steps[i].x[0]->op;
    for (int i = 0; fits && i < w->n_steps; i++)
        fits = onnx_record_fits_single(w, w->at = i, same ? g->node[i] : NULL);
    for (int i = 0; fits && i < w->n_outputs; i++)
        fits = onnx_record_fits_single(w, w->at = w->outputs[i].step, g->outputs[i]);
    if (!fits)
        wb__export_cannot(w, "is with a batch of 1 not what it is with other sizes of the batch: "
                          ".fixed = true writes the file for the batch of the example alone");
    return w->status;
}

/* Calls the model with a batch of 1, which may fail.  Returns 0 or an error code. */
static int onnx_record_single(wb__exporter *w, wb_layer *model)
{
    graph g = {0};
    if (w->records == 1) return 0;
    int status = 0;
    g.n_out = onnx_record_call(w, model, WB__ONNX_RECORDS, g.outputs);
    if (g.n_out < 0 && wb_error_code() == WB_ERROR_MEMORY) status = WB_ERROR_MEMORY;
    else if (g.n_out < 0) wb_clear_error();
    else status = onnx_record_walk(&g) ? onnx_record_compare_single(w, &g) : WB_ERROR_MEMORY;
    w->at = -1;
    onnx_record_graph_free(&g);
    return status;
}

int wb__export_record(wb__exporter *w, wb_layer *model)
{
    graph g[WB__ONNX_RECORDS] = {0};
    int status = 0;
    for (int r = 0; !status && r < w->records; r++) {
        g[r].n_out = onnx_record_call(w, model, r, g[r].outputs);
        if (g[r].n_out < 0) status = (int)wb_error_code();
        else if (!onnx_record_walk(&g[r])) status = WB_ERROR_MEMORY;
    }
    if (!status) status = w->status;
    if (!status) status = onnx_record_make_steps(w, g);
    if (!status) status = onnx_record_name_layers(w, model, &g[0]);
    for (int i = 0; !status && i < w->n_steps; i++) {
        w->at = i;
        status = onnx_record_compare(w, i, g);
    }
    w->at = -1;
    if (!status) status = onnx_record_set_outputs(w, &g[0]);
    if (!status) status = onnx_record_single(w, model);
    for (int r = 0; r < WB__ONNX_RECORDS; r++) onnx_record_graph_free(&g[r]);
    return status;
}
