/* Copies and averages of parameters, and watched numbers. */
#include "base/options.h"
#include "base/os.h"
#include "engine/request.h"
#include "engine/evaluate.h"
#include "tree/tree.h"

#include <math.h>
#include <stdatomic.h>

/* Sets the flag of a model that is a target: made, copied or averaged into.  Returns whether the
 * flag was set before. */
static bool average_set_target(void *model)
{
    wb__branch *node = model;
    const bool known = node->is_target;
    if (!known) node->is_target = true;     /* written only once, for threads that only read */
    return known;
}

/* An assignment of a copy.  All assignments are made after all leaves were checked. */
typedef struct { wb_tensor *to, *value; } assignment;
typedef struct {
    int n, capacity, same;              /* n assignments; `same` leaves that both models have */
    assignment *all;
    wb__pointer_map from;               /* the source of each variable */
} average_copy_state;

/* Checks a leaf of the source. */
static int average_check_source(const wb__leaf *leaf, void *ctx)
{
    (void)ctx;
    if (!leaf->other || !wb_is_none(leaf->other)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "copy: \"%s\" is %s, and the model to copy to has none",
                    leaf->path, wb_describe(leaf->x));
}

/* Checks a leaf of the target, and adds its assignment. */
static int average_prepare_leaf(const wb__leaf *leaf, void *ctx)
{
    average_copy_state *c = ctx;
    wb_tensor *to = leaf->x, *x = leaf->other;
    const bool is_tensor = wb__is(x, &wb__tensor_class) && x != WB_NONE;
    if (to == x) return c->same++, 0;
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
    const wb_device *d = wb__device_of(to);
    wb_tensor *value = wb__converted(x, (wb_dtype)to->dtype, d);
    if (value && value->device && value->device != d)
        value = wb__tensor_to(value, d, WB_DTYPE_KEEP);
    value = value ? wb__unchanged(value) : NULL;
    if (!value) return wb__error_or(WB_ERROR_MEMORY);
    if (wb__bind(value)->flags & WB__GONE) return wb__gone(wb__bind(value));
    if (!wb__reserve(&c->all, &c->capacity, c->n + 1, sizeof *c->all)) return WB_ERROR_MEMORY;
    c->all[c->n++] = (assignment){to, value};
    return 0;
}

/* In the root scope, evaluates pending assignments of an earlier update to these variables. */
static int average_end_step_before(const average_copy_state *c)
{
    wb__thread *t = wb__this_thread();
    bool waits = false;
    for (int i = 0; i < c->n; i++)
        waits |= wb__is_claimed(c->all[i].to) && c->all[i].to->current->flags & WB__PENDING &&
                 !(c->all[i].to->flags & WB__FROZEN);
    if (!waits || !wb__in_root(t) || t->busy || t->recording) return 0;
    wb_tensor **values = wb__alloc((size_t)c->n * sizeof(wb_tensor *));
    if (!values) return WB_ERROR_MEMORY;
    for (int i = 0; i < c->n; i++) values[i] = c->all[i].value;
    const int status = wb__end_step(t, c->n, values);
    wb__free(values);
    return status;
}

/* Makes all assignments, or on failure none. */
static int average_assign_all(const average_copy_state *c)
{
    const wb__thread *t = wb__this_thread();
    int status = average_end_step_before(c);
    const int pending = wb__pending_count();
    for (int i = 0; i < c->n && !status; i++)
        if (!wb__assign(c->all[i].to, c->all[i].value)) status = wb__error_or(WB_ERROR_MEMORY);
    if (status) wb__forget_pending(pending);
    return status || !t->eager || t->recording ? status : wb__evaluate(0, NULL, NULL);
}

int wb_copy(void *to, void *from)
{
    WB__EDGE;
    average_copy_state c = {0};
    if (!wb__is_model("copy", to) || !wb__is_model("copy", from))
        return wb__error_or(WB_ERROR_ARGUMENT);
    const wb__frame f = wb__frame_begin();
    int status = wb__walk("copy (from, to)", from, to, 0, average_check_source, NULL);
    if (!status) status = wb__walk("copy (to, from)", to, from, 0, average_prepare_leaf, &c);
    if (!status) status = average_assign_all(&c);
    wb__pointer_map_free(&c.from);
    wb__free(c.all);
    wb__frame_end(f, NULL);
    if (!status && !c.n && !c.same)
        return wb__fail(WB_ERROR_ARGUMENT, "copy: the model has no variable, only constants: make "
                        "its parameters with wb_variable");
    if (!status) average_set_target(to);
    return status;
}

/* ---- averages -------------------------------------------------------------------------------- */

/* Returns a leaf of an average.  A step of an average is below the spacing of f16 and bf16, so a
 * parameter of a .mixed model becomes f32, and no longer counts as narrowed by an optimiser. */
static wb_tensor *average_copy(wb_tensor *x, const char *path, void *ctx)
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
    WB__PUBLIC(wb_object_average_of, NULL);
    if (!wb__is_model("average_of", model)) return NULL;
    void *average = wb__fmap_plain(model, average_copy, NULL);
    if (average) average_set_target(average);
    return average;
}

typedef struct { wb_tensor *apart, *size; } average_distance;

static int average_add_distance(const wb__leaf *leaf, void *ctx)
{
    average_distance *d = ctx;
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
 * that of an average of the model is far less.  The caller has evaluated the pending writes, since
 * their failure would be hidden here. */
static bool are_unrelated(void *average, void *model)
{
    average_distance d = {0};
    wb__error_kept before;
    wb__error_keep(&before);
    const wb__frame f = wb__frame_begin();
    const bool known = !wb__walk("average", average, model, WB__TRAINABLE | WB__DISTINCT,
                                 average_add_distance, &d) && d.apart;
    wb_tensor *ratio = known ? wb_div(d.apart, d.size) : NULL;
    const bool apart = ratio && wb__item(ratio) > 0.5;
    wb__frame_end(f, NULL);
    wb__error_restore(&before);
    return apart;
}

/* Warns once in the process about an average where a copy was meant.  Looks only at the first few
 * targets, each at its first average: this evaluates the pending writes, and old values stay
 * readable.  Returns 0, or the error of these writes. */
static int average_warn_no_copy(void *average, void *model)
{
    enum { LOOKS = 16 };
    static atomic_bool warned;
    static atomic_int looks;
    if (average_set_target(average) || warned || wb__this_thread()->recording ||
        atomic_fetch_add(&looks, 1) >= LOOKS)
        return 0;
    int status = wb__pending_count() ? wb__evaluate_keeping(0, NULL) : 0;
    if (!status) status = wb__guard_confirm();
    if (status || !are_unrelated(average, model) || atomic_exchange(&warned, true)) return status;
    wb__log(WB_LOG_WARN,
            "average: the two models have unrelated parameters, and the decay is 0.999, its "
            "default: the first moves by a thousandth towards the second.\n"
            "wb_copy(to, from) copies the parameters; wb_average_of(model) begins an average.");
    return 0;
}

typedef struct { double decay; int n, shared; } averaging;  /* n variables, `shared` of them tied */

/* Assigns to a leaf of an average the next average of it and of the model's leaf. */
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
    if (!wb__is_model("average", average) || !wb__is_model("average", model))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__read_options("average", wb_average_options, &o, given, NULL)) return wb_error_code();
    const double decay = wb__or(o.decay, 0.999);
    averaging a = {.decay = o.count > 0 ? (double)o.count / ((double)o.count + 1) : decay};
    if (o.count < 0)
        return wb__fail(WB_ERROR_ARGUMENT, "average: .count is %lld; it is a number of models",
                        (long long)o.count);
    if (!(a.decay >= 0 && a.decay <= 1))
        return wb__fail(WB_ERROR_ARGUMENT, "average: .decay is %g; it is from 0 to 1", a.decay);
    if (o.count || o.decay != WB_DEFAULT) average_set_target(average);
    else if (average_warn_no_copy(average, model)) return wb_error_code();
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
