/* The state of a rule: creation and printing.  Changes are in adjust.c, moving is in move.c. */
#include "backend/collective.h"
#include "optim/optim.h"

#include <string.h>

static void opt_state_destroy(void *object)
{
    wb_opt_state *s = object;
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; s->slots[i].moments && k < s->n_moments; k++)
            wb__unref(s->slots[i].moments[k]);
        wb__unref(s->slots[i].sum);
        wb__unref(s->slots[i].schedule);
        wb__free(s->slots[i].own);
        wb__free(s->slots[i].moments);
    }
    for (int i = 0; i < s->n_paths; i++) wb__free(s->paths[i].path);
    for (int i = 0; i < WB__SCALING; i++) wb__unref(s->scaling[i]);
    wb__unref(s->mean_loss);
    wb__unref(s->loss_sum);
    wb__unref(s->counts);
    wb__free(s->slots);
    wb__free(s->paths);
    wb__unref(s->rule);
    wb__object_end(s, sizeof *s);
}

static void counts_destroy(void *object)
{
    wb__opt_counts *c = object;
    wb__object_end(c, c->bytes);
}

wb__opt_counts *wb__opt_counts_new(int n, const wb__opt_counts *from)
{
    static const wb__class class = {.name = "counts", .destroy = counts_destroy};
    const size_t all = (size_t)n * sizeof from->slot[0], bytes = sizeof *from + all;
    wb__opt_counts *c = wb__object_new_owned(&class, bytes);
    if (!c) return NULL;
    c->bytes = bytes;
    if (!from) return c;
    c->updates = from->updates;
    c->accumulated = from->accumulated;
    memcpy(c->slot, from->slot, all);
    return c;
}

typedef struct {
    wb_opt_state *state;
    wb__pointer_map seen;
    int path_capacity, slot_capacity;
} opt_state_building;

wb_tensor *wb__new_filled(const wb_device *d, double value, wb_dtype dtype, int ndim,
                          const int64_t *dims, const char *name)
{
    wb_scope *scope = wb_scope_open();
    if (!scope) return NULL;
    const wb_device *was = wb__use_device(d);
    wb_tensor *v = wb__ref(wb_variable(wb_full_array(value, dtype, ndim, dims)));
    wb__use_device(was);
    if (v) v->name = name;
    if (!wb_scope_close(scope)) return v;
    wb__unref(v);
    return NULL;
}

static wb_tensor *new_moment(const wb_opt_state *s, const wb__slot *slot, int k, const wb_device *d)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim = 1;
    if (s->parts > 1) dims[0] = wb__part_length(s, slot);
    else wb__moment_shape(s, slot, k, &ndim, dims);
    return wb__new_filled(d, wb__rule_start(s->rule, k), wb__moment_dtype(slot->dtype), ndim, dims,
                          "moment");
}

static bool fill_slot(const wb_opt_state *s, wb__slot *slot, const wb__leaf *leaf,
                      const char *path)
{
    const wb_tensor *x = leaf->x;
    const int n = wb__rule_moments(s);
    slot->ndim = x->ndim;
    slot->dtype = s->mixed ? s->mixed : (wb_dtype)x->dtype;
    memcpy(slot->dims, x->dims, (size_t)x->ndim * sizeof *x->dims);
    slot->path = path;
    slot->moments = wb__alloc_zero((size_t)s->n_moments + 1, sizeof *slot->moments);
    if (!slot->moments) return false;
    for (int k = 0; k < n; k++)
        if (!(slot->moments[k] = new_moment(s, slot, k, x->device))) return false;
    if (s->rule->accumulate > 1 &&
        !(slot->sum = wb__new_filled(x->device, 0, wb__moment_dtype(slot->dtype), x->ndim, x->dims,
                                     "sum of gradients")))
        return false;
    return !s->mixed || (slot->moments[n] = wb__mixed_master(s, slot, leaf->x)) != NULL;
}

static int opt_state_add_leaf(const wb__leaf *leaf, void *ctx)
{
    opt_state_building *m = ctx;
    wb_opt_state *s = m->state;
    if (leaf->x->op != WB__OP_variable)
        return wb__fail(WB_ERROR_ARGUMENT, "setup: \"%s\" is %s, not a variable: make it one with "
                        "wb_variable", leaf->path, wb_describe(leaf->x));
    void **known = wb__pointer_map_at(&m->seen, leaf->x);
    if (!known || !wb__reserve(&s->paths, &m->path_capacity, s->n_paths + 1, sizeof *s->paths))
        return WB_ERROR_MEMORY;
    char *path = wb__strdup(leaf->path);
    if (!path) return WB_ERROR_MEMORY;
    wb__parameter_path *at = &s->paths[s->n_paths++];
    *at = (wb__parameter_path){.path = path};
    if (!*known) {
        if (!wb__reserve(&s->slots, &m->slot_capacity, s->n + 1, sizeof *s->slots))
            return WB_ERROR_MEMORY;
        s->slots[s->n++] = (wb__slot){0};
        if (!fill_slot(s, &s->slots[s->n - 1], leaf, path)) return WB_ERROR_MEMORY;
        *known = (void *)(intptr_t)s->n;
    }
    at->slot = (int)(intptr_t)*known - 1;
    return 0;
}

/* Checks that .mixed, if given, is bf16 or f16, and evaluates pending assignments before wb_setup
 * converts the parameters.  Returns 0 or an error code. */
static int opt_state_check_mixed(wb_dtype mixed)
{
    if (!mixed) return 0;
    if (!wb__is_half(mixed))
        return wb__fail(WB_ERROR_DTYPE, "setup: .mixed is %s; it must be bf16 or f16",
                        wb_dtype_name(mixed));
    return wb__evaluate_pending();
}

static int has_mixed(const wb__leaf *leaf, void *ctx)
{
    const wb_dtype t = *(const wb_dtype *)ctx;
    const wb_device *d = wb__device_of(leaf->x);
    if (leaf->x->flags & WB__TYPED)
        return wb__fail(WB_ERROR_UNSUPPORTED, "setup: .mixed: \"%s\" cannot become %s: the "
                        "operations of a model of ONNX have the dtypes of its file", leaf->path,
                        wb_dtype_name(t));
    if (d->backend->has_dtype(d, t)) return 0;
    return wb__fail(WB_ERROR_UNSUPPORTED, "setup: \"%s\" is on %s:%d, which has no %s", leaf->path,
                    d->backend->tag, d->ordinal, wb_dtype_name(t));
}

/* Starts mixed precision, as the last step of wb_setup: for f16 makes the loss scale, then converts
 * the parameters of the model.  Returns 0 or an error code. */
static int opt_state_start_mixed(wb_opt_state *s, void *model)
{
    int status = wb__walk("setup", model, NULL, WB__TRAINABLE, has_mixed, &s->mixed);
    if (!status && s->mixed == WB_F16) {
        const wb_device *d = wb__opt_device(s);
        status = d ? wb__scaling_new(s, d) : (int)wb_error_code();
    }
    return status ? status : wb__mixed_narrow(s, model);
}

wb_opt_state *wb_setup_with(wb_rule *rule, void *model, const wb_setup_options *given)
{
    WB__PUBLIC(wb_setup_with, NULL);
    wb_setup_options o;
    if (!wb__expect("setup", rule, &wb__rule_class) || WB__NULL(model)) return NULL;
    if (!wb__read_options("setup", wb_setup_options, &o, given, NULL)) return NULL;
    if (opt_state_check_mixed(o.mixed)) return NULL;
    if (!rule->n)
        return wb__fail_null(WB_ERROR_ARGUMENT, "setup: AccumGrad is no rule for parameters: chain "
                             "it, as in wb_OptimizerChain(wb_AccumGrad(%lld), wb_Adam())",
                             (long long)rule->accumulate);
    const wb__communicator *c = rule->shard ? wb__world() : NULL;
    const char *whole = wb__rule_whole(rule);
    if (c && c->size > 1 && whole)
        return wb__fail_null(WB_ERROR_UNSUPPORTED, "setup: %s needs whole parameters, so its state "
                             "cannot be divided over the ranks: leave out .shard", whole);
    wb_opt_state *s = wb__object_new(&wb__opt_state_class, sizeof *s);
    if (!s) return NULL;
    s->mixed = o.mixed;
    s->unguarded = o.unguarded;
    s->parts = c ? c->size : 1;
    s->part = c ? c->rank : 0;
    s->n_moments = s->mixed != 0;
    for (int i = 0; i < rule->n; i++) s->n_moments += rule->parts[i].kind->moments;
    opt_state_building m = {.state = s};
    wb_rule *own = wb__rule_copy(rule);
    s->rule = wb__ref(own);
    int status = own ? wb__walk("setup", model, NULL, WB__TRAINABLE, opt_state_add_leaf, &m)
                     : WB_ERROR_MEMORY;
    if (own) wb_object_free(own);
    if (!status && !s->n)
        status = wb__fail(WB_ERROR_ARGUMENT, "setup: the model has nothing to train");
    wb__pointer_map_free(&m.seen);
    if (!status && !(s->counts = wb__opt_counts_new(s->n, NULL))) status = WB_ERROR_MEMORY;
    if (!status && s->rule->accumulate > 1) status = wb__sums_new(s);
    if (!status && o.schedule) status = wb_set_schedule(s, "", o.schedule);
    if (!status && s->mixed) status = opt_state_start_mixed(s, model);
    if (!status) return s;
    wb_object_free(s);
    return NULL;
}

/* Adds to the text the slot's own numbers, which wb_adjust_at has set, and its schedule. */
static void opt_state_print_own(const wb_opt_state *s, const wb__slot *slot, wb__text *t)
{
    for (int p = 0; slot->own && p < s->rule->n; p++)
        for (int i = 0; i < WB__RULE_NUMBERS; i++) {
            const double own = *wb__rule_number(&slot->own[p], i);
            if (wb__part_has(&s->rule->parts[p], i) &&
                own != *wb__rule_number(&s->rule->parts[p].o, i))
                wb__text_add(t, ", %s=%g", wb__rule_fields[i].name, own);
        }
    if (!slot->schedule) return;
    wb__text_add(t, ", eta by ");
    wb__schedule_print(slot->schedule, t);
}

/* Returns text such as
 *   Adam(eta=0.001, beta=(0.9, 0.999), eps=1e-08)
 *     layers.0.weight  [256,1] f32, 2 moments, 51 steps
 *     layers.0.bias    [256] f32, 2 moments, 51 steps, frozen
 *     layers.1.weight  [1,256] f32, 2 moments, 51 steps, eta=1e-05
 * In mixed precision the line has the dtypes of the parameter and of its master:
 *     layers.0.bias    [256] bf16 of f32, 2 moments, 51 steps
 * In the middle of an accumulation the last line is
 *     3 of 4 batches accumulated */
static char *opt_state_format(void *object)
{
    wb_opt_state *s = object;
    wb__text t = {0};
    int width = 0, n = wb__rule_moments(s);
    const float *made = s->scaling[WB__STEPS_MADE] ? wb_data(s->scaling[WB__STEPS_MADE]) : NULL;
    wb__rule_print(s->rule, &t);
    for (int i = 0; i < s->n; i++) width = WB__MAX(width, (int)strlen(s->slots[i].path));
    for (int i = 0; i < s->n; i++) {
        const wb__slot *slot = &s->slots[i];
        wb_tensor shape = {.dtype = (uint8_t)slot->dtype, .ndim = (uint8_t)slot->ndim};
        memcpy(shape.dims, slot->dims, sizeof shape.dims);
        const int64_t steps = made ? (int64_t)made[i] : s->counts->slot[i].steps;
        wb__text_add(&t, "\n  %-*s  %s%s", width, slot->path, wb_describe(&shape),
                     s->mixed ? " of f32" : "");
        if (n) wb__text_add(&t, ", %d moment%s", n, n == 1 ? "" : "s");
        wb__text_add(&t, ", %lld step%s%s", (long long)steps, steps == 1 ? "" : "s",
                     slot->frozen ? ", frozen" : "");
        opt_state_print_own(s, slot, &t);
    }
    if (s->counts->accumulated)
        wb__text_add(&t, "\n  %lld of %lld batches accumulated",
                     (long long)s->counts->accumulated, (long long)s->rule->accumulate);
    return wb__text_take(&t);
}

const wb__class wb__opt_state_class = {.name = "state", .destroy = opt_state_destroy,
                                       .format = opt_state_format, .to = wb__opt_to,
                                       .device_of = wb__opt_device};
