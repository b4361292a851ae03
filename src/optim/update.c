/* wb_update builds the graphs of all new values, then records the assignments of these values.  If
 * anything fails, wb_update drops the recorded assignments. */
#include "backend/collective.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

/* The data of one slot during an update. */
typedef struct {
    wb_tensor *x;                       /* the model's variable; NULL: not visited yet */
    wb_tensor *wide;                    /* value before the step, in the dtype of the moments */
    /* g: the sum of the gradients of x, later the result of the rule.  last: the gradient that was
     * last added to g. */
    wb_tensor *g, *last;
    /* number of elements of gradients that are not finite; NULL without loss scaling */
    wb_tensor *bad;
    wb_tensor **next;                   /* new moments */
    wb_tensor *value;                   /* new value of x */
} update_work;

/* A wb_update while it builds its graphs. */
typedef struct {
    const char *what;                   /* the name of the function, for messages */
    wb_opt_state *state;
    bool last;                          /* batches may be missing: the sums are applied anyway */
    bool adds;                          /* the update only adds its gradients to the sums */
    update_work *works;                 /* the block that also has the next three arrays */
    wb_tensor **next;                   /* memory for works[i].next of all works */
    wb_tensor ***g;                     /* the address of works[i].g, or of works[i].value */
    wb_tensor **sums;   /* new values of the sums of the slots and of the losses (wb__sums_add) */
    int leaf;  /* index of the model's leaf that update_visit_leaf visits */
    wb__scaling_step scaling;           /* ok is NULL without loss scaling */
    wb_tensor *norm;                    /* finite if the norm of all gradients is, or NULL */
    wb_tensor *loss;                    /* mean over the ranks and the accumulated batches; NULL:
                                           use the loss of the gradients */
    int64_t batches;                    /* number of batches of each rank in the means */
    wb_tensor *before;                  /* the last operation of the ranks, or NULL */
} update;

/* ---- gradients ------------------------------------------------------------------------------- */

static int update_fail_other_model(const update *u, const wb__leaf *leaf)
{
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the state was made for another model: \"%s\", %s, is "
                    "not where it was", u->what, leaf->path, wb_describe(leaf->x));
}

#define PLACE(x) (x)->device->backend->tag, (x)->device->ordinal

static int update_check_moments(const update *u, const wb__leaf *leaf, const wb__slot *slot)
{
    for (int k = 0; k <= u->state->n_moments; k++) {
        const wb_tensor *x = k < u->state->n_moments ? slot->moments[k] : slot->sum;
        if (x && x->device != leaf->x->device)
            return wb__fail(WB_ERROR_DEVICE, "%s: the state of \"%s\" is on %s:%d, the parameter "
                            "on %s:%d: move the state, as in state = wb_to(state, "
                            "wb_device_of(model))", u->what, leaf->path, PLACE(x), PLACE(leaf->x));
    }
    return 0;
}

static bool is_distributed(const wb_opt_state *s) { return s->rule->bucket && wb__world(); }
/* Whether the rule gets means of the gradients, over ranks or accumulated batches. */
static bool update_needs_means(const wb_opt_state *s) { return s->loss_sum || is_distributed(s); }

static int update_add_gradient(const update *u, const wb__leaf *leaf, wb__slot *slot,
                               update_work *w)
{
    wb_tensor *g = leaf->other;
    if (!g || wb_is_none(g) || g == w->last) return 0;
    if (wb__setting_read(u->state, &slot->frozen)) {    /* the gradient need not be computed */
        if (wb__is(g, &wb__tensor_class)) wb__unconsumed_remove(g);
        return 0;
    }
    if (!wb__is(g, &wb__tensor_class) || !wb__same_dims(g, leaf->x) ||
        !wb__dtype_float((wb_dtype)g->dtype))
        return wb__fail(WB_ERROR_SHAPE, "%s: the gradient of \"%s\", %s, is %s", u->what,
                        leaf->path, wb_describe(leaf->x),
                        wb__is(g, &wb__tensor_class) ? wb_describe(g) : "not a tensor");
    w->last = g;
    if (g->device && g->device != leaf->x->device)
        return wb__fail(WB_ERROR_DEVICE, "%s: the gradient of \"%s\" is on %s:%d, the parameter on "
                        "%s:%d: move the gradients, as in grads = wb_to(grads, "
                        "wb_device_of(model))", u->what, leaf->path, PLACE(g), PLACE(leaf->x));
    const bool scaled = u->state->scaling[WB__SCALE] != NULL && !update_needs_means(u->state);
    if (scaled && !(w->bad = wb__scaling_count(w->bad, g))) return WB_ERROR_MEMORY;
    const wb_dtype dtype = wb__moment_dtype(slot->dtype);
    if (!scaled || w->g) g = wb__as(g, dtype);      /* wb__scaling_undo converts the others */
    w->g = w->g ? wb_add(wb__as(w->g, dtype), g) : g;   /* tied: several paths have gradients */
    return w->g ? 0 : WB_ERROR_MEMORY;
}

static int update_visit_leaf(const wb__leaf *leaf, void *ctx)
{
    update *u = ctx;
    wb_opt_state *s = u->state;
    if (u->leaf >= s->n_paths) return update_fail_other_model(u, leaf);
    int i = s->paths[u->leaf++].slot;
    wb__slot *slot = &s->slots[i];
    update_work *w = &u->works[i];
    const wb_tensor *x = leaf->x;
    if (x->op != WB__OP_variable || x->ndim != slot->ndim || (wb_dtype)x->dtype != slot->dtype ||
        memcmp(x->dims, slot->dims, (size_t)x->ndim * sizeof *x->dims) || (w->x && w->x != x) ||
        (!w->x && strcmp(slot->path, leaf->path)))
        return update_fail_other_model(u, leaf);
    w->x = leaf->x;
    int status = update_check_moments(u, leaf, slot);
    return status ? status : update_add_gradient(u, leaf, slot, w);
}

/* What replays of an update do to the step count of a slot.  STEPPED and STEPPED_ALIKE increment
 * the count; STEPPED_ALIKE means that while the update was recorded, the previous slot with an
 * increment had the same count. */
typedef enum { NOT_STEPPED, STEPPED, STEPPED_ALIKE } stepping;
/* The context of the functions that replays of a recorded wb_update call. */
typedef struct {
    wb_opt_state *state;
    int64_t agreed;
    uint32_t changes;
    uint8_t stepped[];
} update_counting;

/* Adds 1 to a count; `write` is the update's pending write (wb__journal).  0 or an error code. */
static int update_add_one(wb__opt_counts *counts, int64_t *count, wb_tensor *write)
{
    const int status = wb__journal(write, counts, count, sizeof *count);
    if (!status) ++*count;
    return status;
}

static int update_renew_steps(void *context)
{
    const update_counting *c = context;
    wb__opt_counts *counts = c->state->counts;
    wb__thread *const t = wb__this_thread();
    int status = update_add_one(counts, &counts->updates, t->late.guard);
    for (int i = 0; i < c->state->n && !status; i++)
        if (c->stepped[i] != NOT_STEPPED)
            status = update_add_one(counts, &counts->slot[i].steps, t->late.guard);
    return status;
}

/* Whether the recording can be replayed.  A STEPPED_ALIKE slot uses the numbers of the previous
 * stepped slot, so the step counts of the two slots must be equal.  If the ranks have exchanged
 * something else since, they must compare again what they exchange.  If a schedule fails, recording
 * the update again gives its error. */
static wb__fit update_steps_fit(const void *context)
{
    const update_counting *c = context;
    int64_t before = 0;
    if (c->agreed != c->state->agreed || c->changes != c->state->changes ||
        !wb__schedules_fit(c->state)) return WB__FITS_NEVER;
    for (int i = 0; i < c->state->n; i++) {
        if (c->stepped[i] == NOT_STEPPED) continue;
        const int64_t steps = c->state->counts->slot[i].steps;
        if (c->stepped[i] == STEPPED_ALIKE && steps != before) return WB__FITS_NEVER;
        before = steps;
    }
    return WB__FITS;
}

/* Returns the square of the norm of all parameters' gradients together; its fields are NULL if the
 * computation failed or there is no gradient. */
static wb__squares update_squared_norm(const update *u)
{
    wb__squares sum = {NULL, NULL};
    for (int i = 0; i < u->state->n; i++) {
        wb_tensor *g = u->works[i].g;
        if (g && !wb__squares_add(&sum, g)) return (wb__squares){NULL, NULL};
    }
    return sum;
}

/* Returns min(omega / |g|, 1), where |g| is the norm of the gradients.  Sets u->norm. */
static wb_tensor *update_norm_factor(update *u, int p, int slot)
{
    wb_tensor *omega;
    wb__squares sum = update_squared_norm(u);
    if (sum.plain && u->state->parts > 1) {
        sum.plain = wb__ranks_sum(sum.plain, &u->before);
        sum.shrunk = wb__ranks_sum(sum.shrunk, &u->before);
    }
    if (!(u->norm = wb__norm_finite(sum)) ||
        wb__literals(u->state, p, slot, (wb_dtype)u->norm->dtype, NULL, &omega))
        return NULL;
    return wb_minimum(wb_mul(wb__norm_of(sum, true), omega), wb_scalar(1));
}

/* Whether the next updates of two slots use the same numbers. */
static bool update_steps_alike(const wb_opt_state *s, int p, int a, int b)
{
    return wb__next_step(s, a) == wb__next_step(s, b) && wb__slots_alike(s, p, a, b);
}

static int update_apply_part(update *u, int p, int first_moment)
{
    const wb__rule_kind *kind = u->state->rule->parts[p].kind;
    wb_tensor *number[WB__MAX_NUMBERS] = {NULL};
    wb_dtype dtype = WB_DTYPE_DEFAULT;
    int before = -1;
    for (int i = 0; i < u->state->n; i++) {
        update_work *w = &u->works[i];
        wb__slot *slot = &u->state->slots[i];
        if (!w->g) continue;
        if (before < 0 || (!kind->all_together && (dtype != (wb_dtype)w->g->dtype ||
                                                   !update_steps_alike(u->state, p, before, i)))) {
            dtype = (wb_dtype)w->g->dtype;
            if (kind->all_together
                    ? !(number[0] = update_norm_factor(u, p, i))
                    : wb__literals(u->state, p, i, dtype, u->scaling.t, number))
                return wb__error_or(WB_ERROR_MEMORY);
        }
        before = i;
        wb__rule_step s = {.kind = kind, .x = w->wide, .g = w->g};
        wb_tensor *own[WB__MAX_NUMBERS] = {NULL};
        for (int k = 0; k < WB__MAX_NUMBERS && number[k]; k++)
            if (!(own[k] = number[k]->ndim ? wb__scaling_number(number[k], i) : number[k]))
                return WB_ERROR_MEMORY;
        for (int k = 0; k < kind->moments; k++) s.moment[k] = slot->moments[first_moment + k];
        if (!kind->apply(&s, own)) return wb__error_or(WB_ERROR_MEMORY);
        w->g = s.g;
        for (int k = 0; k < kind->moments; k++) w->next[first_moment + k] = s.next[k];
    }
    return 0;
}

static bool update_has_gradient(const update *u)
{
    bool any = false;
    for (int i = 0; i < u->state->n; i++) any |= u->works[i].g != NULL;
    return any;
}

static int update_check_scaled(const update *u)
{
    if (!u->state->scaling[WB__SCALE] || u->state->scaled || !update_has_gradient(u)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the loss was not scaled: in mixed f16, take the "
                    "gradient of wb_scale_loss(state, loss)", u->what);
}

/* Divides all gradients and the mean loss by the loss scale, if there is loss scaling. */
static int update_unscale(update *u)
{
    wb_opt_state *s = u->state;
    if (!s->scaling[WB__SCALE] || !update_has_gradient(u)) return 0;
    wb_tensor **bad = wb__alloc((size_t)s->n * sizeof *bad);
    if (!bad) return WB_ERROR_MEMORY;
    for (int i = 0; i < s->n; i++) bad[i] = u->works[i].bad;
    wb_tensor *total = wb__scaling_total(s, bad);
    if (total && s->parts > 1) total = wb__ranks_sum(total, &u->before);
    bool good = total && wb__scaling_begin(s, bad, total, &u->scaling);
    wb__free(bad);
    for (int i = 0; good && i < s->n; i++) {
        update_work *w = &u->works[i];
        if (w->g) good = (w->g = wb__scaling_undo(&u->scaling, w->g)) != NULL;
    }
    if (good && u->loss) good = (u->loss = wb_mul(u->loss, u->scaling.inverse)) != NULL;
    return good ? 0 : WB_ERROR_MEMORY;
}

/* Sets w->value to the new value of a parameter.  If the update may be skipped (f16), new values
 * are wb_where(ok, new value, old value). */
static int update_set_value(const update *u, update_work *w, const wb__slot *slot)
{
    const wb_opt_state *s = u->state;
    wb_tensor *value = wb_sub(w->wide, w->g);
    if (s->mixed) w->next[s->n_moments - 1] = value;
    for (int k = 0; u->scaling.ok && k < s->n_moments; k++)
        w->next[k] = wb_where(u->scaling.ok, w->next[k],
                              s->mixed && k == s->n_moments - 1 ? w->wide : slot->moments[k]);
    if (s->mixed) value = w->next[s->n_moments - 1];
    w->value = wb__as(value, (wb_dtype)w->x->dtype);
    return w->value ? 0 : WB_ERROR_MEMORY;
}

/* Returns the loss of the gradients' tree. */
static wb_tensor *update_loss_of(const wb_tree *grads)
{
    wb_tensor *loss = wb__is(grads, &wb__tree_class) ? grads->loss : NULL;
    return loss && !(loss->flags & WB__GONE) ? loss : NULL;
}

/* Adds the gradients and the loss to the sums, if the rule accumulates; unless u->adds, replaces
 * them by the sums.  Sets u->batches. */
static int update_accumulate(update *u, const wb_tree *grads)
{
    wb_opt_state *s = u->state;
    u->batches = 1;
    if (update_needs_means(s)) u->loss = update_loss_of(grads);
    if (!s->loss_sum) return 0;
    u->adds = !u->last && !wb__sums_apply_next(s);
    u->batches = s->counts->accumulated + (grads != NULL);
    const int status = wb__sums_add(s, !u->adds, u->g, &u->loss, u->sums);
    bool norm = u->adds && !status && !s->scaling[WB__SCALE] && update_has_gradient(u);
    for (int p = 0; p < s->rule->n && norm && !u->norm; p++)
        if (s->rule->parts[p].kind->all_together)
            norm = (u->norm = wb__norm_finite(update_squared_norm(u))) != NULL;
    return status;
}

/* Divides *x by n.  False: failed. */
static bool update_divide_by(wb_tensor **x, int64_t n)
{
    return !*x || n == 1 || (*x = wb_mul(*x, wb_scalar(1.0 / (double)n)));
}

/* Replaces the gradients and the loss by their means over the batches and the ranks. */
static int update_average(update *u)
{
    wb_opt_state *s = u->state;
    int status = 0;
    if (!update_needs_means(s)) return 0;
    if (is_distributed(s))
        status = wb__ranks_mean(s, u->batches, u->g, &u->loss, &u->before);
    else if (!update_divide_by(&u->loss, u->batches)) status = WB_ERROR_MEMORY;
    for (int i = 0; i < s->n && !status; i++) {
        update_work *w = &u->works[i];
        if (!is_distributed(s) && !update_divide_by(&w->g, u->batches)) status = WB_ERROR_MEMORY;
        if (w->g && s->scaling[WB__SCALE] && !(w->bad = wb__scaling_count(NULL, w->g)))
            status = WB_ERROR_MEMORY;
    }
    return status;
}

/* Sets `value` and `next` in the work of each slot that has a gradient. */
static int update_compute(update *u, void *model, wb_tree *grads)
{
    wb_opt_state *s = u->state;
    int status = wb__ranks_check(u->what, s);
    if (!status) status = wb__walk(u->what, model, grads, WB__TRAINABLE, update_visit_leaf, u);
    if (!status && u->leaf != s->n_paths)
        status = wb__fail(WB_ERROR_ARGUMENT, "%s: the state was made for another model, which had "
                          "\"%s\"", u->what, s->paths[u->leaf].path);
    if (!status) status = update_check_scaled(u);
    if (!status) status = update_accumulate(u, grads);
    if (status || u->adds) return status ? wb__error_or(status) : 0;
    status = update_average(u);
    for (int i = 0; !status && i < s->n; i++) {
        update_work *w = &u->works[i];
        if (!w->g) continue;
        w->next = u->next + i * s->n_moments;
        wb_tensor *x = wb__own_part(s, &s->slots[i], w->x);
        if (x) w->wide = s->mixed ? wb__mixed_value(x, s->slots[i].moments[s->n_moments - 1])
                                  : wb__as(x, (wb_dtype)w->g->dtype);
        if (!w->wide) status = WB_ERROR_MEMORY;
    }
    if (!status) status = update_unscale(u);
    for (int p = 0, moment = 0; !status && p < s->rule->n;
         moment += s->rule->parts[p++].kind->moments)
        status = update_apply_part(u, p, moment);
    for (int i = 0; !status && i < s->n; i++)
        if (u->works[i].g) status = update_set_value(u, &u->works[i], &s->slots[i]);
    for (int i = 0; i < s->n && s->parts > 1; i++) u->g[i] = &u->works[i].value;
    if (!status && s->parts > 1) status = wb__ranks_gather(s, u->g, &u->before);
    return status ? wb__error_or(status) : 0;
}

static bool update_accepts(const update *u, const wb_opt_state *s, const void *model,
                           const wb_tree *grads)
{
    return wb__expect(u->what, s, &wb__opt_state_class) &&
           (model || !wb__null(u->what, "model")) &&
           (grads ? wb__is_model(u->what, grads) : u->last || !wb__null(u->what, "grads"));
}

static int update_init(update *u, wb_opt_state *s, void *model, wb_tree *grads)
{
    u->state = s;
    u->works = wb__alloc_zero((size_t)s->n + 1, sizeof *u->works + sizeof *u->g +
                              ((size_t)s->n_moments + 1) * sizeof *u->next);
    if (!u->works) return WB_ERROR_MEMORY;
    u->g = (wb_tensor ***)(u->works + s->n);
    u->sums = (wb_tensor **)(u->g + s->n);
    u->next = u->sums + s->n + 1;
    for (int i = 0; i < s->n; i++) u->g[i] = &u->works[i].g;
    const int status = wb__ranks_begin(s, &u->before);
    return status ? status : update_compute(u, model, grads);
}

/* Records the assignments to all variables of the state. */
static int update_record_state(update *u)
{
    const wb_opt_state *s = u->state;
    int status = 0;
    for (int i = 0; !status && i < s->n; i++)
        if (u->sums[i]) status = wb_assign(s->slots[i].sum, u->sums[i]);
    if (!status && s->loss_sum) status = wb_assign(s->loss_sum, u->sums[s->n]);
    for (int i = 0; !status && u->scaling.ok && i < WB__SCALING; i++)
        status = wb_assign(u->state->scaling[i], u->scaling.next[i]);
    for (int i = 0; !status && i < u->state->n; i++)
        for (int k = 0; !status && u->works[i].value && k < u->state->n_moments; k++)
            status = wb_assign(u->state->slots[i].moments[k], u->works[i].next[k]);
    return status;
}

typedef struct { wb_tensor **x; int n, capacity; } update_leaves;

static int update_add_leaf(const wb__leaf *leaf, void *ctx)
{
    update_leaves *l = ctx;
    if (!wb__reserve(&l->x, &l->capacity, l->n + 1, sizeof *l->x)) return WB_ERROR_MEMORY;
    l->x[l->n++] = leaf->x;
    return 0;
}

/* Adds 1 to the step count of each updated slot.  While wb_compile records a function,
 * update_count_steps instead registers update_renew_steps, which adds the 1 after each replay. */
static int update_count_steps(update *u)
{
    wb_opt_state *s = u->state;
    wb__opt_counts *counts = s->counts;
    if (!wb__this_thread()->recording) {
        wb_tensor *write = NULL;
        int done = 0;
        for (int i = 0; i < s->n && !done; i++)
            if (u->works[i].value) {
                write = u->works[i].x->current;
                done = update_add_one(counts, &counts->slot[i].steps, write);
            }
        return done ? done : update_add_one(counts, &counts->updates, write);
    }
    size_t bytes = sizeof(update_counting) + (size_t)s->n;
    update_counting *c = wb__alloc_zero(1, bytes);
    if (!c) return WB_ERROR_MEMORY;
    c->state = s;
    c->agreed = s->agreed;
    c->changes = s->changes;
    for (int i = 0, before = -1; i < s->n; i++) {
        if (!u->works[i].value) continue;
        const bool alike = before >= 0 && counts->slot[i].steps == counts->slot[before].steps;
        c->stepped[i] = alike ? STEPPED_ALIKE : STEPPED;
        before = i;
    }
    int status = wb__on_replay(&(wb__replay){.after = update_renew_steps, .fits = update_steps_fit,
                                             .context = c, .bytes = bytes, .holds = s});
    wb__free(c);
    return status;
}

static void update_end(update *u) { wb__free(u->works); }

/* Evaluates the assignments of the previous wb_update that are still pending, in the root scope.
 * Returns 0 or an error code. */
static int update_end_step_before(wb_opt_state *s, void *grads)
{
    wb__thread *t = wb__this_thread();
    if (!wb__in_root(t) || t->recording) return 0;
    if (!grads || !wb__journal_waits(t, s->counts)) return 0;
    update_leaves g = {0};
    int status = wb__walk("update", grads, NULL, WB__NAMELESS, update_add_leaf, &g);
    if (!status) status = wb__end_step(t, g.n, g.x);
    wb__free(g.x);
    return status;
}

/* Returns the tensor that must be finite for the update to be made: wb__norm_finite if a rule
 * computes the norm of the gradients, else the loss.  Returns NULL if nothing is checked here.  For
 * f16 the check is on the device (mixed.c). */
static wb_tensor *update_guard_of(const update *u, const wb_tree *grads, const char **what)
{
    const wb_opt_state *s = u->state;
    if (!update_has_gradient(u) || s->unguarded || s->scaling[WB__SCALE]) return NULL;
    *what = u->norm ? "the norm of the gradients"
          : !u->loss ? "the loss"
          : is_distributed(s) ? "the mean loss of the ranks"
                              : "the mean loss of the accumulated batches";
    return u->norm ? u->norm : u->loss ? u->loss : update_loss_of(grads);
}

/* Counts the update, its steps and the accumulated batches. */
static int update_count(update *u)
{
    int status = 0;
    if (u->state->loss_sum) status = wb__sums_count(u->state, !u->adds, u->sums);
    return status || u->adds ? status : update_count_steps(u);
}

static int update_record(wb_opt_state *state, void *model, wb_tree *grads, bool last)
{
    update u = {.what = "update", .last = last};
    if (!update_accepts(&u, state, model, grads)) return wb__error_or(WB_ERROR_ARGUMENT);
    int status = update_end_step_before(state, grads);
    if (status) return status;
    const wb__frame f = wb__frame_begin();
    wb__this_thread()->busy++;
    status = update_init(&u, state, model, grads);
    const int pending = wb__pending_count();
    const char *what = NULL;
    wb_tensor *guard = status ? NULL : update_guard_of(&u, grads, &what);
    if (guard) status = wb__guard_pending(guard, what);
    /* A rank whose update fails gives the others a loss that is not finite, and takes part in no
     * further update.  The others must know before they begin one. */
    if (is_distributed(state)) wb__this_thread()->guard_at_once = true;
    if (!status) status = update_record_state(&u);
    for (int i = 0; !status && i < state->n; i++)
        if (u.works[i].value) status = wb_assign(u.works[i].x, u.works[i].value);
    if (!status) status = update_count(&u);
    if (status) wb__forget_pending(pending);
    else wb__ranks_pending(u.before);
    if (!status && state->keeps_loss) {
        wb__unref(state->mean_loss);
        state->mean_loss = u.loss ? wb__ref(u.loss) : NULL;
    }
    update_end(&u);
    wb__this_thread()->busy--;
    wb__frame_end(f, NULL);
    return status;
}

int wb_update(wb_opt_state *state, void *model, wb_tree *grads)
{
    WB__EDGE;
    return update_record(state, model, grads, false);
}

int wb__update_now(wb_opt_state *state, void *model, wb_tree *grads)
{
    return update_record(state, model, grads, true);
}

/* ---- wb_update_new --------------------------------------------------------------------------- */

static wb_tensor *update_replacement(wb_tensor *x, const char *path, void *ctx)
{
    const update *u = ctx;
    (void)path;
    for (int i = 0; i < u->state->n; i++)
        if (u->works[i].x == x && u->works[i].value)
            return wb__variable_replacing(u->works[i].value, x);
    return x->op == WB__OP_variable ? wb__variable_replacing(wb_variable(x), x) : x;
}

/* Evaluates all new values of parameters and moments together.  wb_update_new calls this function
 * before creating the new model, so that a failure changes nothing. */
static int update_evaluate(const update *u, wb_tree *grads)
{
    const char *what = NULL;
    wb_tensor *guard = update_guard_of(u, grads, &what);
    const wb_opt_state *s = u->state;
    wb_tensor **all =
        wb__alloc(((size_t)s->n * (size_t)(s->n_moments + 2) + WB__SCALING + 1) * sizeof *all);
    if (!all) return WB_ERROR_MEMORY;
    int n = 0;
    for (int i = 0; u->scaling.ok && i < WB__SCALING; i++) all[n++] = u->scaling.next[i];
    if (s->loss_sum) all[n++] = u->sums[s->n];
    for (int i = 0; i < s->n; i++) {
        if (u->sums[i]) all[n++] = u->sums[i];
        if (!u->works[i].value) continue;
        all[n++] = u->works[i].value;
        for (int k = 0; k < s->n_moments; k++) all[n++] = u->works[i].next[k];
    }
    int status = wb__evaluate(n, all, guard);
    if (!status && guard && !isfinite(wb_item(guard)))      /* under WEBER_EAGER */
        status = WB_ERROR_NUMBER;
    if (status == WB_ERROR_NUMBER && guard) wb__fail_guard(guard, what);
    wb__free(all);
    return status;
}

wb_layer *wb_update_new(wb_opt_state *state, wb_layer *model, wb_tree *grads)
{
    WB__PUBLIC(wb_update_new, NULL);
    update u = {.what = "update_new"};
    wb_layer *made = NULL;
    if (!update_accepts(&u, state, model, grads) || !wb__is_model("update_new", model)) return NULL;
    if (!update_init(&u, state, model, grads) && !update_evaluate(&u, grads))
        made = wb__fmap(model, update_replacement, &u);
    const int pending = wb__pending_count();
    if (made && (update_record_state(&u) || update_count(&u))) {
        wb__forget_pending(pending);
        made = NULL;
    }
    update_end(&u);
    return made;
}
