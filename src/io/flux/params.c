/* Lists of parameters as Flux.params returns them, which older programs saved.  Finds the
 * parameter of the model that each array belongs to. */
#include "io/flux/flux.h"
#include "io/flux/value.h"
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

/* A parameter of the model, in the order of Flux.params. */
typedef struct {
    char *path;
    bool transposed;            /* the array is (out, in) or (out, in1, in2) in Julia */
    bool state;                 /* an initial state, which Weber's layer lacks; path is NULL */
} expected;

typedef struct {
    expected *list;
    int n, capacity, n_states;
    wb__pointer_map seen;
    int status;
} flux_params_order;

static bool flux_params_add(flux_params_order *o, expected e)
{
    if (!wb__reserve(&o->list, &o->capacity, o->n + 1, sizeof *o->list))
        return o->status = WB_ERROR_MEMORY, false;
    o->list[o->n++] = e;
    o->n_states += e.state;
    return true;
}

static void flux_params_collect(flux_params_order *o, void *object, const char *path);

/* Returns the struct of Flux that has the arrays of a layer.  For a recurrent layer it is the
 * struct of the cell. */
static const wb__flux_struct *flux_params_row_of(const wb_layer *l)
{
    const wb__flux_struct *row = l ? wb__flux_struct_named(l->type->name) : NULL;
    bool steps = row && row->fields[0].kind == WB__FIELD_CELL;
    return steps ? wb__flux_struct_named(row->layer) : row;
}

static bool flux_params_is_transposed(const wb__flux_struct *row, const char *name)
{
    const wb__flux_field *f = row ? row->fields : NULL;
    for (int i = 0; row && i < row->n; i++)
        if (f[i].kind == WB__FIELD_MATRIX && !strcmp(f[i].weber, name)) return true;
    return false;
}

static void collect_child(flux_params_order *o, const wb__flux_struct *row, const wb__child *child,
                          const char *path)
{
    if (o->status || wb_is_none(child->object)) return;
    char *full = wb__printf("%s%s%s", path, *path ? "." : "", child->name);
    if (!full) {
        o->status = WB_ERROR_MEMORY;
        return;
    }
    if (wb__is_branch(child->object)) {
        flux_params_collect(o, child->object, full);
    } else {
        const wb_tensor *x = child->object;
        void **seen = wb__pointer_map_at(&o->seen, x);
        if (!seen) o->status = WB_ERROR_MEMORY;
        bool counts = seen && !*seen && x->op == WB__OP_variable && !(x->flags & WB__FROZEN);
        if (seen) *seen = full;
        bool transposed = flux_params_is_transposed(row, child->name);
        if (counts && flux_params_add(o, (expected){.path = full,
                                                    .transposed = transposed})) return;
    }
    wb__free(full);
}

/* Adds a layer's parameters to the list in Flux's order.  The bias of a norm comes before its
 * scale.  The initial states of a recurrent layer come last, even if Weber's layer has none. */
static void flux_params_collect(flux_params_order *o, void *object, const char *path)
{
    wb__branch *node = object;
    const wb_layer *l = wb__is(object, &wb__layer_class) ? object : NULL;
    const wb__flux_struct *row = flux_params_row_of(l);
    bool reversed = row && (!strcmp(row->type, "BatchNorm") || !strcmp(row->type, "GroupNorm") ||
                            !strcmp(row->type, "InstanceNorm"));
    for (int i = 0; i < node->n; i++)
        collect_child(o, row, &node->children[reversed && i < 2 ? 1 - i : i], path);
    if (!row || !strstr(row->type, "Cell")) return;
    const wb_Recurrent_options *r = l->options;
    int n = r->initial_state ? 0 : !strcmp(row->type, "LSTMCell") ? 2 : 1;
    for (int i = 0; i < n; i++) flux_params_add(o, (expected){.state = true});
}

static void flux_params_transpose(wb__entry *e)
{
    if (e->ndim != 2 && e->ndim != 3) return;
    int64_t first = e->dims[0];
    e->dims[0] = e->dims[e->ndim - 1];
    e->dims[e->ndim - 1] = first;
    e->transposed = !e->transposed;
}

static bool flux_params_is_zero(const wb__entry *e)
{
    for (int64_t i = 0; i < e->bytes; i++)
        if (((const char *)e->data)[i]) return false;
    return true;
}

/* Sets the names and shapes of the entries to those of the listed parameters, in the same order.
 * An entry for a state that Weber's layer lacks is dropped, and is an error if it is not zero. */
static int flux_params_name_all(wb__table *t, const char *path, flux_params_order *o,
                                bool with_states)
{
    int kept = 0, status = 0, at = 0;
    for (int i = 0; i < o->n; i++) {
        expected *p = &o->list[i];
        if (p->state && !with_states) continue;
        wb__entry *e = &t->entries[at++];
        if (p->state) {
            if (!status && !flux_params_is_zero(e))
                status = wb__fail(WB_ERROR_FORMAT, "%s: array %d is a learned initial state: make "
                                  "the recurrent layer with .initial_state", path, at - 1);
            wb__entry_drop(e);
            continue;
        }
        wb__free(e->name);
        e->name = p->path;
        p->path = NULL;
        if (!status && p->transposed) flux_params_transpose(e);
        if (e->ndim == 2 && e->dims[0] == 1 && strstr(e->name, "initial_")) {
            e->ndim = 1;
            e->dims[0] = e->dims[1];
        }
        wb__entry keep = *e;
        t->entries[kept++] = keep;
    }
    t->n = kept;
    t->nameless = false;
    wb__table_sort(t);
    return status;
}

int wb__flux_name_params(wb__table *t, const char *path, void *model)
{
    flux_params_order o = {0};
    if (!t->nameless) return 0;
    if (wb__is_branch(model)) flux_params_collect(&o, model, "");
    int status = o.status, plain = o.n - o.n_states;
    if (!status && t->n != plain && t->n != o.n)
        status = wb__fail(WB_ERROR_FORMAT, "%s: a list of %d arrays without names; the model has "
                          "%d parameters", path, t->n, plain);
    if (!status) status = flux_params_name_all(t, path, &o, t->n != plain);
    for (int i = 0; i < o.n; i++) wb__free(o.list[i].path);
    wb__free(o.list);
    wb__pointer_map_free(&o.seen);
    return status;
}
