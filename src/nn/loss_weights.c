/* Weights and masks of the values of losses, and the loss of quantiles. */
#include "nn/losses.h"

#include <math.h>
#include <stdio.h>

/* Sets *at to the option x, reshaped so that it broadcasts to the values: its axes become the first
 * axes. */
static bool loss_weights_fit(const wb__loss_weights *w, const char *name, const wb_tensor *yhat,
                             wb_tensor **at)
{
    wb_tensor *x = *at;
    int64_t dims[WB_MAX_DIMS];
    char wanted[96] = "";
    bool fits = x->ndim <= w->ndim;
    for (int i = 0, n = 0; i < w->ndim; i++) {
        dims[i] = i < x->ndim ? x->dims[i] : 1;
        fits = fits && (dims[i] == 1 || dims[i] == w->dims[i]);
        n += snprintf(wanted + n, sizeof wanted - (size_t)n, "%s%lld", i ? "," : "",
                      (long long)w->dims[i]);
        n = WB__MIN(n, (int)sizeof wanted - 1);
    }
    if (!fits)
        return !wb__fail(WB_ERROR_SHAPE, "%s: .%s is %s, and the loss has values [%s]: its axes "
                         "are the first of these, each of the same size or 1", w->what, name,
                         wb_describe(x), wanted);
    if (!wb__one_device(w->what, yhat, x)) return false;
    return (*at = x->ndim == w->ndim ? x : wb_reshape_array(x, w->ndim, dims)) != NULL;
}

bool wb__read_loss_weights(wb__loss_weights *w, const char *what, const wb__given *given,
                           wb_tensor *sample_weight, wb_tensor *mask, const wb_tensor *yhat,
                           unsigned dropped)
{
    *w = (wb__loss_weights){.what = what};
    if (!wb__read_tensor_option(what, "sample_weight", given, &sample_weight) ||
        !wb__read_tensor_option(what, "mask", given, &mask))
        return false;
    if (!sample_weight && !mask) return true;
    for (int i = 0; i < yhat->ndim; i++)
        if (!(dropped >> i & 1)) w->dims[w->ndim++] = yhat->dims[i];
    const wb_dtype dtype = wb__computed_in((wb_dtype)yhat->dtype);
    if (mask) {
        if (mask->dtype != WB_BOOL)
            return !wb__fail(WB_ERROR_DTYPE, "%s: .mask is %s; it is bool: wb_ne(mask, 0)", what,
                             wb_describe(mask));
        if (!loss_weights_fit(w, "mask", yhat, &mask)) return false;
        w->mask = mask;
    }
    if (sample_weight) {
        if (!wb__floating(what, sample_weight)) return false;
        if (wb__computed_in((wb_dtype)sample_weight->dtype) != dtype)
            return !wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · .sample_weight %s", what,
                             wb_describe(yhat), wb_describe(sample_weight));
        if (!loss_weights_fit(w, "sample_weight", yhat, &sample_weight)) return false;
        w->weight = wb__wide(sample_weight);
        if (mask) w->weight = wb_where(mask, w->weight, wb_scalar(0));
    } else {
        w->weight = wb_astype(mask, dtype);
    }
    return w->weight != NULL;
}

wb_tensor *wb__loss_masked(const wb__loss_weights *w, wb_tensor *x, int classes, double v)
{
    if (!w->mask || !x) return x;
    wb_tensor *mask = classes < 0 ? w->mask : wb_unsqueeze(w->mask, classes);
    if (x->dtype == WB_BOOL) return wb_and(mask, x);
    const bool whole = !wb__dtype_float((wb_dtype)x->dtype);
    return wb_where(mask, x, whole ? wb_scalar_int((int64_t)v) : wb_scalar(v));
}

/* Returns the sum of all elements of x, which broadcasts to the shape of the values. */
static wb_tensor *loss_sum_over_values(const wb__loss_weights *w, wb_tensor *x)
{
    if (!x) return NULL;
    x = wb_expand_array(x, w->ndim, w->dims);
    return x ? wb__reduce(WB__OP_sum, x, (1u << x->ndim) - 1, false) : NULL;
}

wb_tensor *wb__weighted_by(const wb__loss_weights *w, wb_tensor *values, wb_tensor *counts)
{
    return wb_div(wb__aggregated(WB_AGG_SUM, values), loss_sum_over_values(w, counts));
}

wb_tensor *wb__weighted(const wb__loss_weights *w, wb_agg agg, wb_tensor *values)
{
    if (!w->weight) return wb__aggregated(agg, values);
    values = wb_mul(wb__loss_masked(w, values, -1, 0), w->weight);
    return agg == WB_AGG_MEAN ? wb__weighted_by(w, values, w->weight) : wb__aggregated(agg, values);
}

/* ---- the loss of quantiles ------------------------------------------------------------------- */

static int loss_find_no_quantile(const void *values, int64_t n, void *ctx)
{
    const wb_tensor *q = ctx;
    const size_t bytes = wb__dtype_size((wb_dtype)q->dtype);
    for (int64_t i = 0; i < n; i++) {
        double number;
        wb__convert(&number, WB_F64, (const char *)values + (size_t)i * bytes, (wb_dtype)q->dtype,
                    1);
        if (number > 0 && number < 1) continue;
        return wb__fail(WB_ERROR_ARGUMENT, "quantile_loss: .quantiles has %g at [%lld]; it must be "
                        "above 0 and below 1", number, (long long)i);
    }
    return 0;
}

/* Returns false, with the error set, if an element of q is no quantile and the host can read q
 * without an evaluation. */
static bool loss_check_quantiles(wb_tensor *q)
{
    const wb_tensor *x = wb__to_evaluate("quantile_loss", q);
    if (!x) return false;
    if (!x->storage || wb__this_thread()->recording ||
        (x->device && !x->device->backend->host_visible))
        return true;
    return !wb__read_in_parts(q, loss_find_no_quantile, q);
}

/* Returns the quantiles: a number, or a tensor for the last axis of yhat, to which y gets an axis.
 * Sets *less_one to the quantiles less 1. */
static wb_tensor *loss_read_quantiles(const wb_quantile_loss_options *o, const wb_tensor *yhat,
                                      wb_tensor **y, wb_tensor **less_one)
{
    const char *what = "quantile_loss";
    wb_tensor *q = o->quantiles;
    if (!q) {
        const double number = wb__or(o->quantile, 0.5);
        *less_one = wb_scalar(number - 1);
        if (number > 0 && number < 1) return wb_scalar(number);
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .quantile is %g; it must be above 0 and below "
                             "1", what, number);
    }
    if (o->quantile != WB_DEFAULT)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .quantile and .quantiles: give one of both",
                             what);
    if (!wb__floating(what, q)) return NULL;
    if (q->ndim != 1 || !yhat->ndim || q->dims[0] != yhat->dims[yhat->ndim - 1])
        return wb__fail_null(WB_ERROR_SHAPE, "%s: .quantiles is %s; it has a number for each "
                             "element of the last axis of yhat, %s", what, wb_describe(q),
                             wb_describe(yhat));
    if (!loss_check_quantiles(q)) return NULL;
    if ((*y)->ndim == yhat->ndim - 1 && !(*y = wb_unsqueeze(*y, -1))) return NULL;
    const wb_tensor *t = *y;
    bool fits = t->ndim == yhat->ndim;
    for (int i = 0; fits && i < yhat->ndim - 1; i++) fits = t->dims[i] == yhat->dims[i];
    if (!fits || (t->dims[t->ndim - 1] != 1 && t->dims[t->ndim - 1] != q->dims[0]))
        return wb__fail_null(WB_ERROR_SHAPE, "%s: y %s does not fit yhat %s: it has its shape "
                             "without the axis of the quantiles", what, wb_describe(t),
                             wb_describe(yhat));
    if (!wb__one_device(what, yhat, q)) return NULL;
    if (wb__computed_in((wb_dtype)q->dtype) == wb__computed_in((wb_dtype)yhat->dtype)) {
        q = wb__wide(q);                /* quantiles that were not checked make the loss NaN */
        q = wb_where(wb_and(wb_gt(q, wb_scalar(0)), wb_lt(q, wb_scalar(1))), q, wb_scalar(NAN));
        *less_one = q ? wb_sub(q, wb_scalar(1)) : NULL;
        return q;
    }
    return wb__fail_null(WB_ERROR_DTYPE, "%s: dtypes differ: %s · .quantiles %s", what,
                         wb_describe(yhat), wb_describe(q));
}

static wb_tensor *quantile_loss(wb_tensor *yhat, wb_tensor *y,
                                const wb_quantile_loss_options *given)
{
    const char *what = "quantile_loss";
    wb_quantile_loss_options o;
    wb__loss_weights w;
    wb__given g;
    if (!yhat || !y) return wb__null(what, yhat ? "y" : "yhat"), NULL;
    if (!wb__floating(what, yhat) || !wb__floating(what, y) ||
        !wb__read_options(what, wb_quantile_loss_options, &o, given, &g) ||
        !wb__read_agg(what, o.agg) || !wb__read_tensor_option(what, "quantiles", &g, &o.quantiles))
        return NULL;
    wb_tensor *less_one = NULL, *q = loss_read_quantiles(&o, yhat, &y, &less_one);
    if (!q || !y || (o.quantiles ? !wb__loss_dtypes(what, &yhat, &y)
                                 : !wb__loss_match(what, &yhat, &y)))
        return NULL;
    if (!wb__read_loss_weights(&w, what, &g, o.sample_weight, o.mask, yhat, 0)) return NULL;
    yhat = wb__loss_masked(&w, yhat, -1, 0.5);
    if (w.mask && !wb__same_dims(yhat, y)) y = wb_expand_array(y, yhat->ndim, yhat->dims);
    wb_tensor *e = wb_sub(wb__loss_masked(&w, y, -1, 0.5), yhat);
    return wb__weighted(&w, o.agg, wb_maximum(wb_mul(q, e), wb_mul(less_one, e)));
}

wb_tensor *wb_quantile_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_quantile_loss_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, quantile_loss(yhat, y, o));
}

wb_tensor *(wb_quantile_loss)(wb_tensor *yhat, wb_tensor *y, double quantile)
{
    const wb_quantile_loss_options o = WB__OPTIONS(wb_quantile_loss_options, .quantile = quantile);
    return wb_quantile_loss_with(yhat, y, &o);
}
