/* Gradient checkpointing (wb_checkpoint_layer).  The output of the layer gets a custom gradient,
 * which calls the layer again and returns the gradient of the second call.  The values inside the
 * first call are then needed by nothing but the output, and a plan frees their memory early.
 *
 * The second call has the inputs, the random numbers and the mode of the first.  Its updates of
 * running statistics are cancelled.  Its inputs depend on the gradient of the output, so that the
 * plan does not compute it before, and does not merge it with the first call. */
#include "engine/graph.h"
#include "nn/layer.h"

#include <string.h>

/* A call of the layer that its gradient repeats. */
typedef struct {
    wb_layer *layer;                    /* reference */
    int n;                              /* number of inputs; the parameters are behind them in x */
    wb__rng_state before;               /* the random numbers' state at the first call */
} again;

static void recompute_drop(void *ctx)
{
    again *a = ctx;
    wb__unref(a->layer);
    wb__free(a);
}

/* Returns a bool scalar that is true, and that a plan cannot compute before g. */
static wb_tensor *recompute_true_after(wb_tensor *g)
{
    wb_tensor *first = wb_reshape(g, -1);
    first = first ? wb_reshape_array(wb_slice(first, 0, 0, 1), 0, NULL) : NULL;
    wb_tensor *same = first ? wb_eq(first, first) : NULL;
    return same ? wb_or(same, wb_not(same)) : NULL;
}

/* Sets `inputs` to the first n elements of x, as tensors that a plan cannot compute before g. */
static bool recompute_delay(wb_tensor *g, int n, wb_tensor *const *x, wb_tensor **inputs)
{
    wb_tensor *after = g->size ? recompute_true_after(g) : NULL;
    if (g->size && !after) return false;
    for (int i = 0; i < n; i++) {
        inputs[i] = after ? wb_where(after, x[i], wb__literal(0, (wb_dtype)x[i]->dtype)) : x[i];
        if (!inputs[i]) return false;
    }
    return true;
}

/* Returns the layer's output for the delayed inputs. */
static wb_tensor *recompute_call_layer(again *a, wb_tensor *const *inputs)
{
    wb__thread *t = wb__this_thread();
    wb_tensor *outputs[WB__OUTPUTS];
    const wb__rng_state now = wb__rng_exchange(a->before);
    const int first = wb__pending_count();
    t->training++;
    wb__setting recomputed = a->layer->recomputed;
    a->layer->recomputed = 0;           /* the gradient of this call is the ordinary one */
    const int n_out = wb__call_layer(a->layer, a->n, inputs, outputs);
    a->layer->recomputed = recomputed;
    t->training--;
    wb__forget_pending(first);
    wb__rng_exchange(now);
    return n_out == 1 ? outputs[0] : NULL;
}

/* Whether the parameters behind the first n elements of x have the values of the first call.
 * Otherwise sets the error. */
static bool recompute_unchanged(const again *a, int n, wb_tensor *const *x)
{
    for (int i = a->n; i < n; i++) {
        const wb_tensor *v = x[i]->variable;
        if (!v || wb__bind((wb_tensor *)(uintptr_t)v) == x[i]) continue;
        wb__fail(WB_ERROR_VERSION, "checkpoint_layer: %s of a %s has been overwritten since the "
                 "layer was called: take the gradient before the update, or call the model again",
                 v->name ? v->name : "a parameter", a->layer->type->name);
        return false;
    }
    return true;
}

typedef struct { int n, capacity; wb_tensor **x; } tensor_list;

static bool recompute_push(tensor_list *l, wb_tensor *x)
{
    if (!wb__reserve(&l->x, &l->capacity, l->n + 1, sizeof *l->x)) return false;
    l->x[l->n++] = x;
    return true;
}

/* Whether x may have a gradient. */
static bool recompute_differentiable(const wb_tensor *x)
{
    return wb__dtype_float((wb_dtype)x->dtype) && x->op != WB__OP_stop &&
           (x->n_in || (x->variable && !(x->variable->flags & WB__FROZEN)));
}

/* Whether recompute_is_closed does not look behind x, because gradients do not pass it. */
static bool recompute_stops_at(const wb_tensor *x)
{
    return x->op == WB__OP_constant || x->op == WB__OP_assign || x->op == WB__OP_stop;
}

/* Whether the output of the second call depends on nothing that has a gradient but the n tensors
 * `wrt`.  Otherwise sets the error: the gradient with respect to another tensor would be lost.  The
 * order lists `wrt`, then the tensors of the first call, then those that the second call added. */
static bool recompute_is_closed(const again *a, wb_tensor *out, const wb_tensor *y, int n,
                                wb_tensor *const *wrt)
{
    wb__order o = {0};
    const wb_tensor *lost = NULL;
    bool ok = true;
    wb__order_begin(&o);
    for (int i = 0; i < n && ok; i++) ok = wb__order_add_end(&o, wrt[i], recompute_stops_at);
    const int first = o.n;
    for (int i = 0; i < n && ok; i++) ok = wb__order_add_end(&o, y->in[1 + i], recompute_stops_at);
    ok = ok && wb__order_add(&o, y->in[0], recompute_stops_at);
    const int second = o.n;
    ok = ok && wb__order_add(&o, out, recompute_stops_at);
    for (int i = second; ok && i < o.n; i++)
        for (uint32_t k = 0; k < o.node[i]->n_in && !recompute_stops_at(o.node[i]); k++) {
            const int at = wb__order_index(&o, o.node[i]->in[k], recompute_stops_at);
            if (at >= first && at < second && recompute_differentiable(o.node[at]))
                lost = o.node[at];
        }
    if (lost)
        wb__fail(WB_ERROR_UNSUPPORTED, "checkpoint_layer: a %s uses %s, which was made outside of "
                 "it: make it an input or a field of the layer", a->layer->type->name,
                 wb_describe(lost));
    wb__order_free(&o);
    return ok && !lost;
}

/* Sets each dx[i] that is NULL to the gradient with respect to x[i]; `wrt` has the delayed inputs
 * and the parameters.  Returns 0 or an error code. */
static int recompute_gradients(again *a, wb_tensor *g, const wb_tensor *y, int n, wb_tensor **wrt,
                               wb_tensor **grads, wb_tensor **dx)
{
    wb_tensor *out = recompute_call_layer(a, wrt);
    if (!out || !recompute_is_closed(a, out, y, n, wrt)) return wb__error_or(WB_ERROR_MEMORY);
    wb_tensor *loss = wb_sum_with(wb_mul(out, g), NULL);
    if (!loss) return wb__error_or(WB_ERROR_MEMORY);
    int wanted = 0;
    for (int i = 0; i < n; i++)
        if (!dx[i]) wrt[wanted++] = wrt[i];
    const int status = wb__gradients_within(loss, wanted, wrt, grads, g);
    for (int i = 0, k = 0; !status && i < n; i++)
        if (!dx[i]) dx[i] = grads[k++];
    return status;
}

static int recompute_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x,
                              wb_tensor **dx, void *ctx)
{
    again *a = ctx;
    wb_tensor **both = wb__alloc_zero(2 * (size_t)n, sizeof *both);
    if (!both) return WB_ERROR_MEMORY;
    memcpy(both, x, (size_t)n * sizeof *both);
    int status = recompute_unchanged(a, n, x) && recompute_delay(g, a->n, x, both)
                     ? recompute_gradients(a, g, y, n, both, both + n, dx)
                     : wb__error_or(WB_ERROR_MEMORY);
    wb__free(both);
    return status;
}

static int recompute_add_parameter(const wb__leaf *leaf, void *ctx)
{
    tensor_list *l = ctx;
    if (!wb__dtype_float((wb_dtype)leaf->x->dtype)) return 0;
    return recompute_push(l, leaf->x) ? 0 : WB_ERROR_MEMORY;
}

wb_tensor *wb__recomputed(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor *y,
                          wb__rng_state before)
{
    if (!wb__dtype_float((wb_dtype)y->dtype)) return y;
    tensor_list l = {0};
    again *a = NULL;
    wb_tensor *z = NULL;
    if (!wb__reserve(&l.x, &l.capacity, n, sizeof *l.x)) return NULL;
    memcpy(l.x, inputs, (size_t)n * sizeof *l.x);
    l.n = n;
    if (!wb__walk("checkpoint_layer", layer, NULL, WB__DISTINCT, recompute_add_parameter, &l))
        a = wb__alloc_zero(1, sizeof *a);
    if (a) {
        *a = (again){.layer = wb__ref(layer), .n = n, .before = before};
        z = wb__custom_gradient(y, recompute_gradient, a, recompute_drop, l.n, l.x);
        if (!z) recompute_drop(a);
    }
    wb__free(l.x);
    return z;
}

wb_layer *wb_checkpoint_layer(wb_layer *layer, bool on)
{
    if (!wb__expect("checkpoint_layer", layer, &wb__layer_class)) return NULL;
    wb_layer *inner = wb__layer_unnamed(layer, NULL);
    wb__setting_set(inner, &inner->recomputed, on);
    return layer;
}
