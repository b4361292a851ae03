/* wb_to of an optimiser state makes moments with the same values on another device and keeps the
 * step counts.  The dtypes follow from the dtypes that wb_to gives the parameters, so that the
 * state fits a model that was moved with the same options. */
#include "optim/optim.h"

#include <string.h>

/* Returns the dtype that wb_to gives the slot's parameter; 0, with the error set, if device d lacks
 * this dtype.  `there` is whether the slot is already on d. */
static wb_dtype optim_move_dtype(const wb__slot *slot, bool there, const wb_device *d,
                                 wb_dtype requested)
{
    return there && !requested ? slot->dtype : wb__dtype_on(d, slot->dtype, requested);
}

static bool optim_move_is_there(const wb_opt_state *s, const wb__slot *slot, const wb_device *d)
{
    const wb_tensor *x = wb__slot_variable(s, slot);
    return x ? x->device == d : d == &wb__cpu;
}

/* Returns a new variable on d with the value of m, as `dtype`; the caller owns a reference. */
static wb_tensor *move_moment(wb_tensor *m, const wb_device *d, wb_dtype dtype)
{
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_tensor *value = wb__converted(m, dtype, d);
    wb_tensor *v = value ? wb__ref(wb__variable_on(value, d)) : NULL;
    if (v) v->name = m->name;
    if (!wb_scope_close(s)) return v;
    wb__unref(v);
    return NULL;
}

/* Sets *to to a copy of the slot on d, whose parameter has `dtype` there.  False: failed. */
static bool move_slot(const wb_opt_state *s, const wb__slot *from, wb__slot *to, const wb_device *d,
                      wb_dtype dtype)
{
    *to = (wb__slot){.path = to->path, .ndim = from->ndim, .dtype = dtype,
                     .frozen = from->frozen};
    memcpy(to->dims, from->dims, sizeof to->dims);
    to->moments = wb__alloc_zero((size_t)s->n_moments + 1, sizeof *to->moments);
    if (!to->moments) return false;
    for (int k = 0; k < s->n_moments; k++)
        if (!(to->moments[k] = move_moment(from->moments[k], d, wb__moment_dtype(dtype))))
            return false;
    to->schedule = wb__ref(from->schedule);
    if (from->own) {
        const size_t bytes = (size_t)s->rule->n * sizeof *to->own;
        if (!(to->own = wb__alloc(bytes))) return false;
        memcpy(to->own, from->own, bytes);
    }
    return !from->sum || (to->sum = move_moment(from->sum, d, wb__moment_dtype(dtype)));
}

/* Sets the fields of *to that are no slots to those of *from.  False: out of memory. */
static bool copy_rule_and_counts(wb_opt_state *to, const wb_opt_state *from)
{
    wb_rule *rule = wb__rule_copy(from->rule);
    to->rule = wb__ref(rule);
    if (rule) wb_object_free(rule);
    to->mixed = from->mixed;
    to->scaled = from->scaled;
    to->unguarded = from->unguarded;
    to->parts = from->parts;
    to->part = from->part;
    to->n_moments = from->n_moments;
    to->counts = wb__opt_counts_new(from->n, from->counts);
    to->slots = wb__alloc_zero((size_t)from->n, sizeof *to->slots);
    to->paths = wb__alloc_zero((size_t)from->n_paths, sizeof *to->paths);
    if (!rule || !to->counts || !to->slots || !to->paths) return false;
    for (; to->n_paths < from->n_paths; to->n_paths++) {
        const wb__parameter_path *at = &from->paths[to->n_paths];
        char *path = wb__strdup(at->path);
        if (!path) return false;
        to->paths[to->n_paths] = (wb__parameter_path){path, at->slot};
        wb__slot *slot = &to->slots[at->slot];
        if (!slot->path) slot->path = path;
    }
    return true;
}

/* Returns 1 if a slot must be moved or converted, 0 if none must, and -1 with the error set if the
 * device lacks a dtype. */
static int optim_move_is_needed(const wb_opt_state *s, const wb_device *d, wb_dtype requested)
{
    int go = 0;
    for (int i = 0; i < s->n; i++) {
        const wb__slot *slot = &s->slots[i];
        const bool there = optim_move_is_there(s, slot, d);
        const wb_dtype t = optim_move_dtype(slot, there, d, requested);
        if (!t) return -1;
        if (t != slot->dtype || (wb__slot_variable(s, slot) && !there)) go = 1;
    }
    return go;
}

void *wb__opt_to(void *state, const wb_device *d, wb_dtype requested)
{
    wb_opt_state *s = state;
    const int go = optim_move_is_needed(s, d, requested);
    if (go <= 0) return go ? NULL : s;
    WB__FIRST(wb_object_to, NULL);
    int status = wb__evaluate_pending();
    if (!status) status = wb__guard_confirm();
    wb_opt_state *made = status ? NULL : wb__object_new(&wb__opt_state_class, sizeof *made);
    if (!made) return NULL;
    bool good = copy_rule_and_counts(made, s);
    for (int i = 0; good && i < s->n; i++) {
        const wb__slot *slot = &s->slots[i];
        made->n = i + 1;
        good = move_slot(s, slot, &made->slots[i], d,
                         optim_move_dtype(slot, optim_move_is_there(s, slot, d), d, requested));
    }
    for (int i = 0; good && i < WB__SCALING && s->scaling[i]; i++)
        good = (made->scaling[i] = move_moment(s->scaling[i], d, WB_F32)) != NULL;
    if (good && s->loss_sum)
        good = (made->loss_sum = move_moment(s->loss_sum, d,
                                             wb__moment_dtype(made->slots[0].dtype))) != NULL;
    if (good) return made;
    wb_object_free(made);
    return NULL;
}

const wb_device *wb__opt_device(void *state)
{
    const wb_opt_state *s = state;
    const wb__slot *first = s->n && wb__slot_variable(s, &s->slots[0]) ? &s->slots[0] : NULL;
    for (int i = 1; i < s->n && first; i++) {
        const wb__slot *slot = &s->slots[i];
        const wb_device *a = wb__slot_variable(s, first)->device;
        const wb_device *b = wb__slot_variable(s, slot)->device;
        if (a != b)
            return wb__fail_null(WB_ERROR_DEVICE, "Objects are on different devices: the state of "
                                 "\"%s\" is on %s:%d and that of \"%s\" on %s:%d; wb_to moves all "
                                 "of it to one", first->path, a->backend->tag, a->ordinal,
                                 slot->path, b->backend->tag, b->ordinal);
    }
    return first ? wb__slot_variable(s, first)->device : &wb__cpu;
}
