/* Mixed precision: f16 or bf16 parameters with f32 master copies in the state, and for f16 the loss
 * scale.  The scale, its counters and the decision whether an update is skipped are values on the
 * device.  An update does not read them on the host. */
#include "optim/optim.h"

const char *const wb__scaling_names[WB__SCALING] = {
    [WB__SCALE] = "scale", [WB__SINCE_CHANGE] = "good", [WB__STEPS_MADE] = "made"};

/* Loss scales are powers of two, so that scaling and unscaling are exact. */
#define FIRST_SCALE 65536.0
#define LARGEST_SCALE 16777216.0
#define SMALLEST_SCALE (1 / LARGEST_SCALE)
enum { GOOD_BEFORE_GROWTH = 2000 };

/* ---- parameters and masters ------------------------------------------------------------------ */

wb_tensor *wb__mixed_master(const wb_opt_state *s, const wb__slot *slot, wb_tensor *parameter)
{
    wb_scope *scope = wb_scope_open();
    if (!scope) return NULL;
    wb_tensor *part = wb__own_part(s, slot, parameter);
    wb_tensor *wide = part ? wb__as(part, WB_F32) : NULL;
    wb_tensor *v = wide ? wb__ref(wb__variable_on(wide, parameter->device)) : NULL;
    if (v) {
        v->flags &= (uint16_t)~WB__MIXED;
        v->name = "master";
    }
    if (!wb_scope_close(scope)) return v;
    wb__unref(v);
    return NULL;
}

wb_tensor *wb__mixed_value(wb_tensor *x, wb_tensor *master)
{
    wb_tensor *rounded = wb__as(master, (wb_dtype)x->dtype);
    return wb_where(wb_eq(rounded, x), master, wb__as(x, WB_F32));
}

typedef struct {
    wb_dtype dtype;
    int n, n_narrow;                    /* number of elements of x; of narrow */
    wb_tensor **x;                      /* parameters */
    wb_tensor **narrow;                 /* x[0 .. n_narrow) converted to `dtype` */
} narrowing;

/* Adds a parameter to w->x.  Parameters that must be converted are the first ones in w->x. */
static int mixed_collect(const wb__leaf *leaf, void *ctx)
{
    narrowing *w = ctx;
    wb_tensor *x = leaf->x;
    w->x[w->n++] = x;
    if ((wb_dtype)x->dtype == w->dtype) return 0;
    wb_tensor *narrow = wb_astype(x, w->dtype);
    if (!narrow) return WB_ERROR_MEMORY;
    w->x[w->n - 1] = w->x[w->n_narrow];
    w->x[w->n_narrow] = x;
    w->narrow[w->n_narrow++] = narrow;
    return 0;
}

static int mixed_narrow_all(narrowing *w, void *model)
{
    int status = wb__walk("setup", model, NULL, WB__TRAINABLE | WB__DISTINCT, mixed_collect, w);
    if (!status && w->n_narrow) status = wb_eval_array(w->n_narrow, w->narrow);
    for (int i = 0; !status && i < w->n_narrow; i++)
        if (!(w->narrow[i] = wb__as_constant(w->narrow[i]))) status = WB_ERROR_MEMORY;
    if (status) return wb__error_or(status);
    for (int i = 0; i < w->n_narrow; i++) wb__retype(w->x[i], w->narrow[i]);
    for (int i = 0; i < w->n; i++) w->x[i]->flags |= WB__MIXED;
    return 0;
}

int wb__mixed_narrow(const wb_opt_state *s, void *model)
{
    narrowing w = {.dtype = s->mixed};
    wb_scope *scope = wb_scope_open();
    if (!scope) return WB_ERROR_MEMORY;
    w.x = wb__alloc((size_t)s->n * sizeof *w.x);
    w.narrow = wb__alloc((size_t)s->n * sizeof *w.narrow);
    int status = w.x && w.narrow ? mixed_narrow_all(&w, model) : WB_ERROR_MEMORY;
    const wb_device *device = !status && w.n_narrow ? w.x[0]->device : NULL;
    wb__free(w.x);
    wb__free(w.narrow);
    int closed = wb_scope_close(scope);
    if (device) wb_device_trim(device);     /* a step of training needs no blocks of these sizes */
    return status ? status : closed;
}

/* ---- the scale ------------------------------------------------------------------------------- */

int wb__scaling_new(wb_opt_state *s, const wb_device *d)
{
    const int64_t slots = s->n;
    const wb_device *was = wb__use_device(d);
    int status = 0;
    for (int i = 0; i < WB__SCALING && !status; i++) {
        wb_tensor *first = wb_full_array(i == WB__SCALE ? FIRST_SCALE : 0, WB_F32,
                                         i == WB__STEPS_MADE, &slots);
        wb_tensor *v = wb_variable(first);
        s->scaling[i] = wb__ref(v);
        if (!v) status = wb__error_or(WB_ERROR_MEMORY);
        else v->name = wb__scaling_names[i];
        if (first) wb_object_free(first);
        if (v) wb_object_free(v);
    }
    wb__use_device(was);
    return status;
}

wb_tensor *wb_scale_loss(wb_opt_state *s, wb_tensor *loss)
{
    WB__EDGE;
    if (!wb__expect("scale_loss", s, &wb__opt_state_class) || WB__NULL(loss)) return NULL;
    if (!wb__floating("scale_loss", loss)) return NULL;
    if (loss->size != 1)
        return wb__fail_null(WB_ERROR_SHAPE, "scale_loss: %s is not one number", wb_describe(loss));
    if (!s->scaling[WB__SCALE]) return loss;
    wb_tensor *scaled = wb_mul(wb__as(loss, WB_F32), s->scaling[WB__SCALE]);
    if (scaled) s->scaled = true;
    return scaled;
}

wb_tensor *wb__scaling_count(wb_tensor *sum, wb_tensor *g)
{
    wb_tensor *bad = wb_where(wb_isfinite(g), wb_scalar(0), wb_scalar(1));
    bad = bad ? wb__reduce(WB__OP_sum, bad, (1u << bad->ndim) - 1, false) : NULL;
    return sum && bad ? wb_add(sum, bad) : bad;
}

/* Returns a tensor [slots] with 1 for slots that have a gradient and 0 for the others, or the
 * scalar 1 if all slots have a gradient. */
static wb_tensor *mixed_slots_updated(const wb_opt_state *s, wb_tensor *const *bad)
{
    const int64_t n = s->n;
    bool all = true;
    for (int i = 0; i < s->n; i++) all &= bad[i] != NULL;
    if (all) return wb_scalar(1);
    float *ones = wb__alloc((size_t)n * sizeof *ones);
    if (!ones) return NULL;
    for (int i = 0; i < s->n; i++) ones[i] = bad[i] != NULL;
    const wb_device *was = wb__use_device(s->scaling[WB__STEPS_MADE]->device);
    wb_tensor *x = wb_from(ones, WB_F32, 1, &n);
    wb__use_device(was);
    wb__free(ones);
    return x;
}

wb_tensor *wb__scaling_total(const wb_opt_state *s, wb_tensor *const *bad)
{
    wb_tensor *sum = NULL;
    /* The sum is bad[0] + (bad[1] + (bad[2] + ...)).  With this nesting, evaluation computes all
     * counts before the first addition. */
    for (int i = s->n - 1; i >= 0; i--)
        if (bad[i] && !(sum = sum ? wb_add(bad[i], sum) : bad[i])) return NULL;
    return sum;
}

bool wb__scaling_begin(const wb_opt_state *s, wb_tensor *const *bad, wb_tensor *total,
                       wb__scaling_step *step)
{
    wb_tensor *scale = s->scaling[WB__SCALE], *made = s->scaling[WB__STEPS_MADE];
    wb_tensor *ok = wb_eq(total, wb_scalar(0));
    wb_tensor *more = wb_add(s->scaling[WB__SINCE_CHANGE], wb_scalar(1));
    wb_tensor *full = wb_ge(more, wb_scalar(GOOD_BEFORE_GROWTH));
    wb_tensor *larger = wb_minimum(wb_mul(scale, wb_scalar(2)), wb_scalar(LARGEST_SCALE));
    wb_tensor *smaller = wb_maximum(wb_mul(scale, wb_scalar(0.5)), wb_scalar(SMALLEST_SCALE));
    wb_tensor *part = mixed_slots_updated(s, bad);
    *step = (wb__scaling_step){
        .ok = ok,
        .inverse = wb_reciprocal(scale),
        .t = wb_add(made, wb_scalar(1)),
        .next[WB__SCALE] = wb_where(ok, wb_where(full, larger, scale), smaller),
        .next[WB__SINCE_CHANGE] = wb_where(ok, wb_where(full, wb_scalar(0), more), wb_scalar(0)),
        .next[WB__STEPS_MADE] = wb_where(ok, wb_add(made, part), made)};
    bool good = ok && step->inverse && step->t;
    for (int i = 0; i < WB__SCALING; i++) good &= step->next[i] != NULL;
    return good;
}

/* Returns g / scale as f32; zeros if step->ok is false. */
wb_tensor *wb__scaling_undo(const wb__scaling_step *step, wb_tensor *g)
{
    return wb_mul(wb__as(wb_where(step->ok, g, wb_scalar(0)), WB_F32), step->inverse);
}

wb_tensor *wb__scaling_number(wb_tensor *numbers, int slot)
{
    wb_tensor *one = wb_slice(numbers, 0, slot, slot + 1);
    return one ? wb_reshape_array(one, 0, NULL) : NULL;
}
