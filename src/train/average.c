/* Averages of parameters, and watched numbers. */
#include "base/options.h"
#include "base/system.h"
#include "engine/tensor.h"
#include "tree/tree.h"

#include <math.h>

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
    return wb__fmap_plain(model, copy, NULL);
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
    w->count = bad ? w->count + 1 : 0;
    return w->count >= w->wait;
}

bool wb_early_stopping(wb_watch *w, double score)
{
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
    const double before = w->score;
    const bool begun = w->begun;
    w->begun = true;
    w->score = score;
    return wb_patience(w, begun && fabs(before - score) < w->min_dist);
}

bool wb_throttle(double *last, double seconds)
{
    const double now = wb__now();
    if (*last != 0 && now - *last < seconds) return false;
    *last = now;
    return true;
}
