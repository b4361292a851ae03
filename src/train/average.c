/* Copies and averages of parameters, and watched numbers. */
#include "base/mutex.h"
#include "base/options.h"
#include "base/system.h"
#include "engine/tensor.h"
#include "tree/tree.h"

#include <math.h>
#include <stdatomic.h>

/* ---- targets --------------------------------------------------------------------------------- */

/* The models that have been made, copied or averaged as targets: the latest of these, by their
 * addresses.  A new model at the address of a freed one counts as known. */
enum { TARGETS = 64 };
static wb__mutex targets_lock = WB__MUTEX_INIT;
static const void *targets[TARGETS];
static unsigned n_targets;

/* Notes a target.  Returns whether it was known. */
static bool note_target(const void *model)
{
    bool known = false;
    wb__mutex_lock(&targets_lock);
    for (int i = 0; i < TARGETS && !known; i++) known = targets[i] == model;
    if (!known) targets[n_targets++ % TARGETS] = model;
    wb__mutex_unlock(&targets_lock);
    return known;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct { int n; wb__pointer_map from; } copying;    /* the source of each variable */

/* Checks a leaf of the source. */
static int has_place(const wb__leaf *leaf, void *ctx)
{
    (void)ctx;
    if (!leaf->other || !wb_is_none(leaf->other)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "copy: \"%s\" is %s, and the model to copy to has none",
                    leaf->path, wb_describe(leaf->x));
}

static int copy_leaf(const wb__leaf *leaf, void *ctx)
{
    copying *c = ctx;
    wb_tensor *to = leaf->x, *x = leaf->other;
    const bool is_tensor = wb__is(x, &wb__tensor_class) && x != WB_NONE;
    if (to == x) return c->n++, 0;
    if (!is_tensor || !wb__same_dims(x, to))
        return wb__fail(WB_ERROR_SHAPE, "copy: \"%s\" is %s, and %s in the model to copy from",
                        leaf->path, wb_describe(to), is_tensor ? wb_describe(x) : "no tensor");
    if (to->op != WB__OP_variable) {
        if (x->op != WB__OP_variable) return 0;             /* constants stay */
        return wb__fail(WB_ERROR_ARGUMENT, "copy: \"%s\" is a constant, and a variable in the "
                        "model to copy from: make one of it with wb_variable", leaf->path);
    }
    void **source = wb__pointer_map_at(&c->from, to);
    if (!source) return WB_ERROR_MEMORY;
    if (*source == x) return 0;
    if (*source)
        return wb__fail(WB_ERROR_ARGUMENT, "copy: \"%s\" is a parameter with several places, which "
                        "has several values in the model to copy from", leaf->path);
    *source = x;
    c->n++;
    const wb_device *d = wb__device_of(to);
    wb_tensor *value = wb__converted(x, (wb_dtype)to->dtype, d);
    if (value && value->device && value->device != d) value = wb__tensor_to(value, d, WB_KEEP);
    value = value ? wb__unchanged(value) : NULL;
    return value ? wb_assign(to, value) : wb__error_or(WB_ERROR_MEMORY);
}

int wb_copy(void *to, void *from)
{
    WB__EDGE;
    copying c = {0};
    if (!wb__is_model("copy", to) || !wb__is_model("copy", from))
        return wb__error_or(WB_ERROR_ARGUMENT);
    const wb__frame f = wb__frame_begin();
    const int pending = wb__pending_count();
    int status = wb__walk("copy (from, to)", from, to, 0, has_place, NULL);
    if (!status) status = wb__walk("copy (to, from)", to, from, 0, copy_leaf, &c);
    if (status) wb__forget_pending(pending);
    wb__pointer_map_free(&c.from);
    wb__frame_end(f, NULL);
    if (!status && !c.n)
        return wb__fail(WB_ERROR_ARGUMENT, "copy: the model has no variable, only constants: make "
                        "its parameters with wb_variable");
    if (!status) note_target(to);
    return status;
}

/* ---- averages -------------------------------------------------------------------------------- */

/* A small step of an average is below the spacing of f16 and bf16, so that a parameter of a .mixed
 * model becomes f32.  It then is no parameter that an optimiser narrowed. */
static wb_tensor *copy(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    if (x->op != WB__OP_variable) return x;
    const uint16_t flags = wb__kept_flags(x);
    wb_tensor *value = flags & WB__MIXED ? wb__as(x, WB_F32) : x;
    wb_tensor *v = value ? wb_variable(value) : NULL;
    if (v) v->flags |= flags & (uint16_t)~WB__MIXED;
    return v;
}

void *wb_object_average_of(void *model)
{
    WB__EDGE;
    if (!wb__is_model("average_of", model)) return NULL;
    if (wb__unrecordable("average_of", WB__ACTS)) return NULL;
    void *average = wb__fmap_plain(model, copy, NULL);
    if (average) note_target(average);
    return average;
}

typedef struct { wb_tensor *apart, *size; } distance;

static int add_distance(const wb__leaf *leaf, void *ctx)
{
    distance *d = ctx;
    wb_tensor *to = leaf->x, *x = leaf->other;
    if (!wb__is(x, &wb__tensor_class) || !wb__same_dims(x, to)) return WB_ERROR_SHAPE;
    to = wb__as(to, WB_F32), x = wb__as(x, WB_F32);
    wb_tensor *apart = wb_sum(wb_square(wb_sub(to, x)));
    wb_tensor *size = wb_add(wb_sum(wb_square(to)), wb_sum(wb_square(x)));
    d->apart = d->apart ? wb_add(d->apart, apart) : apart;
    d->size = d->size ? wb_add(d->size, size) : size;
    return d->apart && d->size ? 0 : WB_ERROR_MEMORY;
}

/* Whether the parameters have nothing in common: |a - x|² of unrelated numbers is |a|² + |x|², and
 * that of an average of the model is far less. */
static bool are_unrelated(void *average, void *model)
{
    distance d = {0};
    wb__error_kept before;
    wb__error_keep(&before);
    const wb__frame f = wb__frame_begin();
    const bool known = !wb__walk("average", average, model, WB__TRAINABLE | WB__DISTINCT,
                                 add_distance, &d) && d.apart;
    wb_tensor *ratio = known ? wb_div(d.apart, d.size) : NULL;
    const bool apart = ratio && wb_item(ratio) > 0.5;
    wb__frame_end(f, NULL);
    wb__error_restore(&before);
    return apart;
}

/* Warns once in the process of an average that is meant as a copy.  Only the first few targets are
 * looked at, since this evaluates. */
static void warn_no_copy(void *average, void *model)
{
    enum { LOOKS = 16 };
    static atomic_bool warned;
    static atomic_int looks;
    if (note_target(average) || warned || wb__this_thread()->recording ||
        atomic_fetch_add(&looks, 1) >= LOOKS || !are_unrelated(average, model) ||
        atomic_exchange(&warned, true))
        return;
    wb__log(WB_LOG_WARN,
            "average: the two models have unrelated parameters, and the decay is 0.999, its "
            "default: the first moves by a thousandth towards the second.\n"
            "wb_copy(to, from) copies the parameters; wb_average_of(model) begins an average.");
}

typedef struct { double decay; int n, shared; } averaging;  /* numbers of variables */

static int average_leaf(const wb__leaf *leaf, void *ctx)
{
    averaging *a = ctx;
    wb_tensor *to = leaf->x, *x = leaf->other;
    const bool varies = wb__is(x, &wb__tensor_class) && x->op == WB__OP_variable;
    if (to != x && varies && to->op != WB__OP_variable)
        return wb__fail(WB_ERROR_ARGUMENT, "average: \"%s\" is a constant, and in the model a "
                        "variable: make the average with wb_average_of", leaf->path);
    a->shared += to == x && varies;
    if (to == x || to->op != WB__OP_variable) return 0;     /* a constant is shared */
    if (!wb__is(x, &wb__tensor_class) || !wb__same_dims(x, to))
        return wb__fail(WB_ERROR_SHAPE, "average: \"%s\" is %s, and in the model %s: make the "
                        "average of this model, with wb_average_of", leaf->path, wb_describe(to),
                        wb__is(x, &wb__tensor_class) ? "has another shape" : "no tensor");
    const wb_dtype dtype = (wb_dtype)to->dtype;
    wb_tensor *value = wb__unchanged(wb__as(x, dtype));
    a->n++;
    if (leaf->trainable && wb__dtype_float(dtype)) {
        const wb_dtype wide = dtype == WB_F64 ? WB_F64 : WB_F32;
        wb_tensor *keep = wb_full_array(a->decay, wide, 0, NULL);
        wb_tensor *add = wb_full_array(1 - a->decay, wide, 0, NULL);
        value = wb_add(wb_mul(wb__as(to, wide), keep), wb_mul(wb__as(x, wide), add));
        value = value ? wb__as(value, dtype) : NULL;
    }
    return value ? wb_assign(to, value) : wb__error_or(WB_ERROR_MEMORY);
}

int wb_average_with(void *average, void *model, const wb_average_options *given)
{
    WB__EDGE;
    wb_average_options o;
    wb__given g;
    if (!wb__is_model("average", average) || !wb__is_model("average", model))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__read_options("average", &o, sizeof o, given, "decay", &g)) return wb_error_code();
    const double decay = wb__is_given(&g, "decay", 0) ? o.decay : 0.999;
    averaging a = {.decay = o.count > 0 ? (double)o.count / ((double)o.count + 1) : decay};
    if (o.count < 0)
        return wb__fail(WB_ERROR_ARGUMENT, "average: .count is %lld; it is a number of models",
                        (long long)o.count);
    if (!(a.decay >= 0 && a.decay <= 1))
        return wb__fail(WB_ERROR_ARGUMENT, "average: .decay is %g; it is from 0 to 1", a.decay);
    const bool by_default = g.all ? o.decay == 0.999 : !wb__is_given(&g, "decay", 0);
    if (!o.count && by_default) warn_no_copy(average, model);
    else note_target(average);
    const int pending = wb__pending_count();
    const int status = wb__walk("average", average, model, WB__DISTINCT, average_leaf, &a);
    if (status) wb__forget_pending(pending);
    if (status || a.n) return status;
    return wb__fail(WB_ERROR_ARGUMENT, a.shared
                    ? "average: the two models share all variables: make the average with "
                      "wb_average_of"
                    : "average: the model has no variable, only constants: make its parameters "
                      "with wb_variable");
}

/* ---- watched numbers ------------------------------------------------------------------------- */

bool wb_patience(wb_watch *w, bool bad)
{
    if (WB__NULL(w)) return false;
    w->count = bad ? w->count + 1 : 0;
    return w->count >= w->wait;
}

bool wb_early_stopping(wb_watch *w, double score)
{
    if (WB__NULL(w)) return false;
    const double gain = !w->begun ? INFINITY : w->higher ? score - w->score : w->score - score;
    const bool bad = isnan(score) || (w->begun && !(gain >= w->min_dist));
    if (!isnan(score) && gain > 0) {
        w->score = score;
        w->begun = true;
    }
    return wb_patience(w, bad);
}

bool wb_plateau(wb_watch *w, double score)
{
    if (WB__NULL(w)) return false;
    const double before = w->score;
    const bool begun = w->begun;
    w->begun = true;
    w->score = score;
    return wb_patience(w, begun && fabs(before - score) < w->min_dist);
}

bool wb_throttle(double *last, double seconds)
{
    if (WB__NULL(last)) return false;
    const double now = wb__now();
    if (*last != 0 && now - *last < seconds) return false;
    *last = now;
    return true;
}
