/* wb_summary: a table of a model's layers, with shapes, parameters, operations and times.  The
 * layer is called three times under an observer, which wb__call_layer informs of each call of a
 * layer that has a row: the second call evaluates each output, the third measures that. */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const wb_layer *layer;
    char shape[64];
    double flops, seconds;
} summary_call;

typedef struct {
    wb__observer observer;
    bool timed;                         /* outputs are evaluated and measured */
    int pending;                        /* number of this thread's pending writes before the call */
    double flops;                       /* operations of the whole call */
    int n, capacity;
    summary_call *calls;
    int status;
} summary;

_Thread_local wb__observer *wb__layer_observer;

static double summary_flops_of(const wb_tensor *x)
{
    const double size = (double)x->size;
    const wb_tensor *a = x->n_in ? x->in[0] : x, *b = x->n_in > 1 ? x->in[1] : x;
    const int last = a->ndim - 1;
    switch (x->op) {
    case WB__OP_matmul: return 2 * size * (double)a->dims[x->attr[0] ? last - 1 : last];
    case WB__OP_linear_int8: return 2 * size * (double)a->dims[last];
    case WB__OP_conv: return 2 * size * (double)b->size / (double)WB__MAX(b->dims[0], 1);
    case WB__OP_conv_grad_input:
        return 2 * (double)a->size * (double)b->size / (double)WB__MAX(b->dims[0], 1);
    case WB__OP_attention: return 4 * (double)a->size * (double)b->dims[b->ndim - 2];
    default: break;
    }
    switch (wb__ops[x->op].class) {
    case WB__MOVE: case WB__SOURCE: case WB__STATE: return 0;
    case WB__REDUCE: return (double)a->size;
    default: return size;
    }
}

/* Returns the operations of x and of its operands, at any depth, that are not yet in `seen`. */
static double sum_flops(wb_tensor *x, wb__pointer_map *seen)
{
    if (wb__pointer_map_get(seen, x) >= 0 || x->storage || x->op == WB__OP_variable) return 0;
    if (!wb__pointer_map_put(seen, x, 0)) return 0;
    double sum = summary_flops_of(x);
    for (uint32_t i = 0; i < x->n_in; i++) sum += sum_flops(x->in[i], seen);
    return sum;
}

/* ---- observing ------------------------------------------------------------------------------- */

/* Whether the table has a row for the layer.  Containers and structs with layers have rows for
 * their layers instead; other layers, such as attention, have one row. */
bool wb__has_row(const wb_layer *l)
{
    if (!wb__own_struct(l->type)) return l->type->make || l->type->one_row;
    for (int i = 0; i < l->node.n; i++)
        if (wb__is_branch(wb__layer_child(l, i))) return false;
    return true;
}

static void summary_add_call(wb__observer *observer, const wb_layer *l, int n,
                             wb_tensor *const *inputs, int n_out, wb_tensor **outputs)
{
    summary *o = (summary *)observer;
    if (o->status) return;
    summary_call c = {.layer = l};
    size_t used = 0;
    wb__pointer_map seen = {0};
    for (int i = 0; i < n; i++) wb__pointer_map_put(&seen, wb__bind(inputs[i]), 0);
    for (int i = 0; i < n_out; i++) {
        wb_tensor *y = wb__to_evaluate("summary", outputs[i]);
        if (!y) o->status = (int)wb_error_code();
        else c.flops += sum_flops(y, &seen);
        if (used < sizeof c.shape)
            used += (size_t)snprintf(c.shape + used, sizeof c.shape - used, "%s%s", i ? " " : "",
                                     wb_describe(outputs[i]));
    }
    wb__pointer_map_free(&seen);
    if (o->timed) {
        wb__forget_pending(o->pending);     /* running statistics stay as they are */
        const double start = wb__now();
        o->status = wb_eval_array(n_out, outputs);
        c.seconds = wb__now() - start;
    }
    if (!wb__reserve(&o->calls, &o->capacity, o->n + 1, sizeof *o->calls))
        o->status = WB_ERROR_MEMORY;
    else o->calls[o->n++] = c;
}

/* Calls the layer and records its calls in o->calls.  Returns 0 or an error code. */
static int summary_observe(summary *o, wb_layer *layer, int n, wb_tensor *const *inputs)
{
    wb_tensor *outputs[WB__OUTPUTS];
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    const wb__rng_state rng = wb__rng_get_state();
    o->pending = wb__pending_count();
    o->n = 0;
    o->observer.called = summary_add_call;
    wb__layer_observer = &o->observer;
    const int n_out = wb__call_layer(layer, n, inputs, outputs);
    wb__layer_observer = NULL;
    wb__pointer_map seen = {0};
    for (int i = 0; i < n && n_out > 0; i++)
        wb__pointer_map_put(&seen, wb__bind(inputs[i]), 0);
    for (int i = 0; i < n_out && !o->timed; i++) o->flops += sum_flops(wb__bind(outputs[i]), &seen);
    wb__pointer_map_free(&seen);
    wb__forget_pending(o->pending);
    wb__rng_exchange(rng);
    int status = n_out < 0 ? wb__error_or(WB_ERROR_ARGUMENT) : o->status;
    const int closed = wb_scope_close(s);
    return status ? status : closed;
}

typedef struct { const wb_layer *layer; char *path; } summary_finding;

static int summary_find_path(wb_layer *layer, const char *path, void *ctx)
{
    summary_finding *f = ctx;
    if (layer != f->layer) return 0;
    f->path = wb__strdup(path);
    return 1;
}

static void summary_add_row(wb__text *t, wb_layer *model, const summary_call *c, double flops,
                            bool repeated)
{
    summary_finding f = {.layer = c->layer};
    wb__text line = {0};
    wb_each_layer(model, summary_find_path, &f);
    wb__print_layer(c->layer, &line);
    char *name = wb__text_take(&line);
    const int64_t n = repeated ? 0 : wb_parameter_count((void *)(uintptr_t)c->layer);
    wb__text_add(t, "%-28s %-34s %-20s ", f.path ? f.path : "", name ? name : "", c->shape);
    wb__text_add(t, "%12lld %12.3f %9.3f\n", (long long)WB__MAX(n, 0), flops / 1e6,
                 1e3 * c->seconds);
    wb__free(name);
    wb__free(f.path);
}

static char *summary_table(wb_layer *model, const summary *sizes, const summary *times)
{
    wb__text t = {0};
    double seconds = 0;
    wb__text_add(&t, "%-28s %-34s %-20s %12s %12s %9s\n", "path", "layer", "output", "parameters",
                 "MFLOP", "ms");
    for (int i = 0; i < times->n && i < sizes->n; i++) {
        bool repeated = false;
        for (int k = 0; k < i; k++) repeated |= times->calls[k].layer == times->calls[i].layer;
        summary_add_row(&t, model, &times->calls[i], sizes->calls[i].flops, repeated);
        seconds += times->calls[i].seconds;
    }
    wb__text_add(&t, "%-28s %-34s %-20s %12lld %12.3f %9.3f", "all", "", "",
                 (long long)wb_parameter_count(model), sizes->flops / 1e6, 1e3 * seconds);
    return wb__text_take(&t);
}

char *wb_summary_format(wb_layer *layer, int n, wb_tensor *const *inputs)
{
    WB__PUBLIC(wb_summary_format, NULL);
    summary sizes = {.timed = false}, times = {.timed = true};
    if (!wb__expect("summary", layer, &wb__layer_class)) return NULL;
    int status = inputs && n > 0 ? wb_eval_array(n, inputs) : 0;
    if (!status) status = summary_observe(&sizes, layer, n, inputs);
    if (!status) status = summary_observe(&times, layer, n, inputs);
    if (!status) status = summary_observe(&times, layer, n, inputs);
    char *text = status ? NULL : summary_table(layer, &sizes, &times);
    wb__free(sizes.calls);
    wb__free(times.calls);
    return text;
}

void wb_summary_array(wb_layer *layer, int n, wb_tensor *const *inputs)
{
    WB__PUBLIC(wb_summary_array, );
    char *text = wb_summary_format(layer, n, inputs);
    if (text) printf("%s\n", text);
    wb_free_text(text);
}
