/* Keeps what is known of a graph of ONNX before its inputs have values: constants by device, and
 * the events of calls, whose numbers and tensors later calls with the same sizes use.  frame.h
 * explains both. */
#include "io/onnx/frame.h"

#include <string.h>

bool wb__onnx_state_init(wb__onnx_state *s)
{
    if (!wb__mutex_init(&s->lock)) return true;
    wb__fail(WB_ERROR_MEMORY, NULL);
    return false;
}

/* Returns the map of the constants on d, at first empty; NULL: there are too many devices. */
static wb__pointer_map *onnx_known_constants(wb__onnx_state *s, const wb_device *d)
{
    for (int i = 0; i < WB__ONNX_DEVICES; i++) {
        if (!s->constants[i].device) s->constants[i].device = d;
        if (s->constants[i].device == d) return &s->constants[i].tensors;
    }
    return NULL;
}

wb_tensor *wb__onnx_cached(wb__onnx_state *s, const wb_device *d, const void *key)
{
    wb__mutex_lock(&s->lock);
    const wb__pointer_map *map = onnx_known_constants(s, d);
    wb_tensor *x = NULL;
    const wb__hashed *known = map ? wb__hash_get(map, (uintptr_t)key) : NULL;
    if (known) x = known->pointer;
    wb__mutex_unlock(&s->lock);
    return x;
}

wb_tensor *wb__onnx_cache(wb__onnx_state *s, const wb_device *d, const void *key, wb_tensor *x)
{
    if (!x) return NULL;
    wb__mutex_lock(&s->lock);
    wb__pointer_map *map = onnx_known_constants(s, d);
    void **at = map ? wb__pointer_map_at(map, key) : NULL;
    if (at && !*at) *at = wb__ref(x);
    wb_tensor *kept = at ? *at : map ? NULL : x;
    wb__mutex_unlock(&s->lock);
    return kept;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void onnx_known_drop_events(wb__onnx_trace *t, int first)
{
    for (int i = first; i < t->n; i++) {
        wb__free(t->events[i].numbers);
        wb__unref(t->events[i].x);
    }
    t->n = WB__MIN(t->n, first);
}

static void onnx_known_free_trace(wb__onnx_trace *t)
{
    if (!t) return;
    onnx_known_drop_events(t, 0);
    wb__free(t->events);
    wb__free(t->key);
    wb__free(t);
}

void wb__onnx_state_clear(wb__onnx_state *s)
{
    for (int i = 0; i < WB__ONNX_TRACES; i++) onnx_known_free_trace(s->traces[i]);
    for (int i = 0; i < WB__ONNX_DEVICES; i++) {
        wb__pointer_map *map = &s->constants[i].tensors;
        for (int k = 0; k < map->capacity; k++)
            if (map->slots[k].key) wb__unref(map->slots[k].pointer);
        wb__pointer_map_free(map);
    }
    wb__mutex_destroy(&s->lock);
}

static wb__onnx_trace *onnx_known_new_trace(const wb_device *d, int n, wb_tensor *const *inputs)
{
    wb__onnx_trace *t = wb__alloc_zero(1, sizeof *t);
    if (!t) return NULL;
    *t = (wb__onnx_trace){.device = d};
    t->key = wb__alloc(((size_t)n + 1) * (WB_MAX_DIMS + 1) * sizeof *t->key);
    if (!t->key) return onnx_known_free_trace(t), NULL;
    for (int i = 0; i < n; i++) {
        t->key[t->n_key++] = inputs[i]->ndim;
        for (int a = 0; a < inputs[i]->ndim; a++) t->key[t->n_key++] = inputs[i]->dims[a];
    }
    return t;
}

static bool onnx_known_same_key(const wb__onnx_trace *a, const wb__onnx_trace *b)
{
    return a->device == b->device && a->n_key == b->n_key &&
           !memcmp(a->key, b->key, (size_t)a->n_key * sizeof *a->key);
}

wb__onnx_trace *wb__trace_take(wb__onnx_state *s, const wb_device *d, int n,
                                    wb_tensor *const *inputs)
{
    wb__onnx_trace *made = onnx_known_new_trace(d, n, inputs), *found = NULL;
    if (!made) return NULL;
    wb__mutex_lock(&s->lock);
    for (int i = 0; i < WB__ONNX_TRACES && !found; i++) {
        if (!s->traces[i] || !onnx_known_same_key(s->traces[i], made)) continue;
        found = s->traces[i];
        s->traces[i] = NULL;
    }
    wb__mutex_unlock(&s->lock);
    if (!found) return made;
    onnx_known_free_trace(made);
    found->at = 0;
    return found;
}

void wb__trace_give(wb__onnx_state *s, wb__onnx_trace *t)
{
    wb__mutex_lock(&s->lock);
    int to = -1;
    for (int i = 0; i < WB__ONNX_TRACES; i++)
        if (s->traces[i] && onnx_known_same_key(s->traces[i], t)) to = i;
        else if (!s->traces[i] && to < 0) to = i;
    if (to < 0) {
        to = s->next_trace;
        s->next_trace = (to + 1) % WB__ONNX_TRACES;
    }
    wb__onnx_trace *old = s->traces[to];
    s->traces[to] = t;
    wb__mutex_unlock(&s->lock);
    onnx_known_free_trace(old);
}

const wb__onnx_event *wb__trace_next(wb__onnx_trace *t, wb__onnx_event_kind kind,
                                    const wb__onnx_value *value)
{
    if (t->at < t->n && t->events[t->at].kind == kind && t->events[t->at].value == value)
        return &t->events[t->at++];
    onnx_known_drop_events(t, t->at);
    return NULL;
}

const wb__onnx_event *wb__trace_add(wb__onnx_trace *t, wb__onnx_event e)
{
    if (!wb__reserve(&t->events, &t->capacity, t->n + 1, sizeof *t->events)) {
        wb__free(e.numbers);
        return NULL;
    }
    wb__ref(e.x);
    t->events[t->n++] = e;
    t->at = t->n;
    return &t->events[t->n - 1];
}

void wb__trace_forget(wb__onnx_trace *t) { onnx_known_drop_events(t, --t->at); }

/* ---- values that do not vary ----------------------------------------------------------------- */

/* Evaluates x outside of the plan of the call.  False with the error set. */
static bool onnx_known_evaluate(wb_tensor *x)
{
    if (x->storage) return true;
    if (wb__evaluate(1, &x, NULL)) return false;
    return x->storage || !wb__fail(WB_ERROR_INTERNAL, "onnx: %s has no value", wb_describe(x));
}

wb_tensor *wb__onnx_evaluated_on(wb_tensor *x, const wb_device *d)
{
    wb__apart a;
    wb_tensor *y = NULL;
    wb__apart_begin(&a, &wb__cpu);
    if (onnx_known_evaluate(x))
        y = x->storage->device == d ? wb__as_constant(x) : wb__copied(x, d);
    wb__apart_end(&a);
    return y;
}

const void *wb__onnx_host(wb_tensor *x)
{
    wb__apart a;
    const char *values = NULL;
    wb__apart_begin(&a, &wb__cpu);
    if (onnx_known_evaluate(x)) values = wb__storage_read(x->storage);
    wb__apart_end(&a);
    return values ? values + x->offset : NULL;
}
