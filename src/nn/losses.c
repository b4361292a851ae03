/* Losses.  Each loss is a function of a `loss`, which has the operands and the options that the
 * program gives.  Losses of f16 and bf16 are computed in f32 and returned as f32. */
#include "nn/losses.h"

#include <float.h>
#include <math.h>

/* One call of a loss function. */
typedef struct {
    const char *what;           /* the name of the loss, for messages */
    wb_tensor *yhat, *y;        /* wide: f16 and bf16 are converted to f32 */
    wb_loss_options o;          /* defaults filled in */
    int axis;                   /* the axis of the classes, 0 .. ndim - 1; only if there is one */
    /* Whether y has class numbers, i32 or i64.  Then `hot`, of the shape of yhat, is true at the
     * class of each label. */
    bool labels;
    wb_tensor *hot;
    wb__loss_weights w;                 /* .sample_weight and .mask */
} loss_state;

/* The default of eps is the machine epsilon of yhat's dtype. */
#define EPSILON (-1)
static const struct {
    const char *name;
    size_t offset;
    double by_default, least, most;
} loss_numbers[] = {
    {"eps", offsetof(wb_loss_options, eps), EPSILON, 0, DBL_MAX},
    {"label_smoothing", offsetof(wb_loss_options, label_smoothing), 0, 0, 1},
    {"gamma", offsetof(wb_loss_options, gamma), 2, 0, DBL_MAX},
    {"smooth", offsetof(wb_loss_options, smooth), 1, 0, DBL_MAX},
    {"beta", offsetof(wb_loss_options, beta), 0.7, 0, 1},
    {"margin", offsetof(wb_loss_options, margin), 1, 0, DBL_MAX},
};

/* Returns the machine epsilon of a dtype: the distance from 1 to the next number. */
static double loss_epsilon(wb_dtype dtype)
{
    switch (dtype) {
    case WB_F64: return 2.220446049250313e-16;
    case WB_F16: return 9.765625e-4;
    case WB_BF16: return 7.8125e-3;
    default: return 1.1920928955078125e-7;
    }
}

/* Whether the loss uses the option `name`.  `used` has the names of the options that it uses. */
static bool loss_uses(const char *what, const char *used, const char *name)
{
    const char *at = strstr(used, name);
    const size_t n = strlen(name);
    if (at && (at == used || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: does not use .%s; it uses: %s", what, name, used);
}

bool wb__read_agg(const char *what, wb_agg agg)
{
    if (agg == WB_AGG_MEAN || agg == WB_AGG_SUM || agg == WB_AGG_UNREDUCED) return true;
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: .agg is %d; it is WB_AGG_MEAN, WB_AGG_SUM or "
                     "WB_AGG_UNREDUCED", what, (int)agg);
}

bool wb__read_tensor_option(const char *what, const char *name, const wb__given *given,
                            wb_tensor **at)
{
    if (*at == WB_NONE) *at = NULL;
    else if (wb__is_given_null(what, given, name, *at)) return false;
    return !*at || wb__operand(what, *at);
}

/* Reads the options of a loss of yhat, which has the dtype `dtype`. */
static bool loss_read_options(const char *what, const char *used, wb_dtype dtype,
                              wb_loss_options *o, const wb_loss_options *given, wb__given *g)
{
    if (!wb__read_options(what, wb_loss_options, o, given, g) ||
        !wb__read_agg(what, o->agg) || (o->agg != WB_AGG_MEAN && !loss_uses(what, used, "agg")))
        return false;
    for (size_t i = 0; i < WB__COUNT(loss_numbers); i++) {
        const char *name = loss_numbers[i].name;
        double *at = (double *)((char *)o + loss_numbers[i].offset);
        const double by_default = loss_numbers[i].by_default == EPSILON
                                      ? loss_epsilon(dtype)
                                      : loss_numbers[i].by_default;
        const bool given_here = *at != WB_DEFAULT;
        *at = wb__or(*at, by_default);
        if (!given_here) continue;
        if (!loss_uses(what, used, name)) return false;
        if (!(*at >= loss_numbers[i].least && *at <= loss_numbers[i].most))
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is %g; it must be %s", what, name, *at,
                             loss_numbers[i].most == 1 ? "from 0 to 1" : "finite and not negative");
    }
    return wb__read_tensor_option(what, "weight", g, &o->weight) &&
           (o->dims == INT32_MIN || loss_uses(what, used, "dims")) &&
           (o->ignore_index == INT64_MIN || loss_uses(what, used, "ignore_index")) &&
           (!o->weight || loss_uses(what, used, "weight"));
}

bool wb__loss_match(const char *what, wb_tensor **yhat, wb_tensor **y)
{
    if (!wb__floating(what, *yhat) || !wb__operand(what, *y)) return false;
    if (!wb__same_dims(*yhat, *y))
        return !wb__fail(WB_ERROR_SHAPE, "%s: shapes differ: %s · %s", what, wb_describe(*yhat),
                         wb_describe(*y));
    return wb__loss_dtypes(what, yhat, y);
}

bool wb__loss_dtypes(const char *what, wb_tensor **yhat_at, wb_tensor **y_at)
{
    wb_tensor *yhat = *yhat_at, *y = *y_at;
    if (!wb__one_device(what, yhat, y)) return false;
    if (wb__computed_in((wb_dtype)yhat->dtype) == wb__computed_in((wb_dtype)y->dtype)) {
        *yhat_at = wb__wide(yhat);
        *y_at = wb__wide(y);
        return *yhat_at && *y_at;
    }
    return !wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(yhat),
                     wb_describe(y));
}

/* Sets l->axis to the axis of the classes. */
static bool find_classes(loss_state *l)
{
    if (!l->yhat->ndim)
        return !wb__fail(WB_ERROR_SHAPE, "%s: no classes in %s", l->what, wb_describe(l->yhat));
    l->axis = wb__axis(l->what, l->yhat, l->o.dims == INT32_MIN ? -1 : l->o.dims);
    if (l->axis >= 0 && !l->yhat->dims[l->axis])
        return !wb__fail(WB_ERROR_SHAPE, "%s: no classes in axis %d of %s", l->what, l->axis,
                         wb_describe(l->yhat));
    return l->axis >= 0;
}

/* Whether class numbers [N, H, W] fit scores [N, C, H, W] both with the classes in axis 1, where
 * images have them, and in the last axis. */
static bool loss_is_ambiguous(const wb_tensor *x, const wb_tensor *y)
{
    for (int i = 2; i < x->ndim; i++)
        if (x->dims[i] != x->dims[1]) return false;
    return x->ndim >= 4 && x->dims[1] > 1 && y->ndim == x->ndim - 1;
}

/* Checks class numbers, converts them to i32 or i64, and sets l->hot. */
static bool loss_read_labels(loss_state *l)
{
    wb_tensor *x = l->yhat, *y = l->y;
    const int64_t ignore = l->o.ignore_index, classes = x->dims[l->axis];
    int64_t dims[WB_MAX_DIMS] = {0};
    for (int i = 0, n = 0; i < x->ndim; i++)
        if (i != l->axis) dims[n++] = x->dims[i];
    if (y->ndim != x->ndim - 1 || memcmp(y->dims, dims, y->ndim * sizeof dims[0]))
        return !wb__fail(WB_ERROR_SHAPE, "%s: class numbers %s do not fit %s: they have its shape "
                         "without the axis %d of the classes; one-hot targets are floating",
                         l->what, wb_describe(y), wb_describe(x), l->axis);
    if (l->o.dims == INT32_MIN && loss_is_ambiguous(x, y))
        return !wb__fail(WB_ERROR_SHAPE, "%s: class numbers %s fit axis 1 of %s, where images have "
                         "their classes, and the last axis: name the axis of the classes, .dims = "
                         "1 or .dims = %d", l->what, wb_describe(y), wb_describe(x), x->ndim - 1);
    if (!wb__one_device(l->what, x, y)) return false;
    y = wb__loss_masked(&l->w, y, -1, 0);
    if (!y ||
        !wb__labels_below(l->what, y, classes, ignore == INT64_MIN ? NULL : &l->o.ignore_index))
        return false;
    const bool fits = y->dtype != WB_I64 && classes <= INT32_MAX &&
                      (ignore == INT64_MIN || (ignore >= INT32_MIN && ignore <= INT32_MAX));
    const wb_dtype number = fits ? WB_I32 : WB_I64;
    for (int i = 0; i < x->ndim - l->axis; i++) dims[i] = i ? 1 : classes;
    l->y = wb__as(y, number);
    l->yhat = wb__loss_masked(&l->w, wb__wide(x), l->axis, 0.5);
    l->hot = wb_eq(wb_unsqueeze(l->y, l->axis),
                   wb_reshape_array(wb_arange(classes, number), x->ndim - l->axis, dims));
    l->labels = true;
    return l->hot && l->yhat;
}

/* Checks the option .weight, the weights of the classes, and gives it a shape that broadcasts to
 * that of yhat. */
static bool loss_read_weight(loss_state *l)
{
    wb_tensor *w = l->o.weight;
    const wb_tensor *x = l->yhat;
    int64_t dims[WB_MAX_DIMS];
    if (!w) return true;
    if (!wb__floating(l->what, w)) return false;
    if (w->ndim != 1 || w->dims[0] != x->dims[l->axis])
        return !wb__fail(WB_ERROR_SHAPE, "%s: .weight is %s; it has a number for each of the %lld "
                         "classes", l->what, wb_describe(w), (long long)x->dims[l->axis]);
    if (!wb__one_device(l->what, x, w)) return false;
    if (wb__computed_in((wb_dtype)w->dtype) != (wb_dtype)x->dtype)
        return !wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · .weight %s", l->what,
                         wb_describe(x), wb_describe(w));
    for (int i = 0; i < x->ndim - l->axis; i++) dims[i] = i ? 1 : w->dims[0];
    l->o.weight = wb_reshape_array(wb__wide(w), x->ndim - l->axis, dims);
    return l->o.weight != NULL;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static unsigned loss_all_axes(const wb_tensor *x) { return (1u << x->ndim) - 1; }
static wb_tensor *loss_sum_of_all(wb_tensor *x)
{
    return x ? wb__reduce(WB__OP_sum, x, loss_all_axes(x), false) : NULL;
}

wb_tensor *wb__aggregated(wb_agg agg, wb_tensor *x)
{
    if (!x || agg == WB_AGG_UNREDUCED) return x;
    return agg == WB_AGG_SUM ? loss_sum_of_all(x) : wb__mean(x, loss_all_axes(x), false);
}

static wb_tensor *loss_sum_over_classes(const loss_state *l, wb_tensor *x)
{
    return x ? wb__reduce(WB__OP_sum, x, 1u << l->axis, false) : NULL;
}

/* Returns the sum or the mean of the losses of elements, or these losses, by .agg. */
static wb_tensor *loss_of_elements(const loss_state *l, wb_tensor *values)
{
    return wb__weighted(&l->w, l->o.agg, values);
}

/* Returns the losses of rows: the sums of `terms`, which has the shape of yhat, over the classes,
 * times the sign, 1 or -1; or their sum or mean by .agg.  A mean is over all rows. */
static wb_tensor *loss_over_rows(const loss_state *l, wb_tensor *terms, double sign)
{
    if (!terms) return NULL;
    if (l->w.weight) {
        wb_tensor *rows = loss_sum_over_classes(l, terms);
        return loss_of_elements(l, sign < 0 ? wb_neg(rows) : rows);
    }
    if (l->o.agg == WB_AGG_MEAN) {
        double rows = 1;
        for (int i = 0; i < terms->ndim; i++) rows *= i == l->axis ? 1 : (double)terms->dims[i];
        return wb_mul(loss_sum_of_all(terms), wb_scalar(sign / rows));
    }
    wb_tensor *sum = l->o.agg == WB_AGG_SUM ? loss_sum_of_all(terms)
                                            : loss_sum_over_classes(l, terms);
    return sign < 0 ? wb_neg(sum) : sum;
}

static wb_tensor *one_minus(wb_tensor *x) { return wb_sub(wb_scalar(1), x); }

/* Returns log(x + eps), which the caller multiplies by `factor`.  If eps is 0, returns 0 where
 * `factor` is 0 or false, so that the product and its gradient are 0 and not NaN. */
static wb_tensor *loss_safe_log(wb_tensor *x, double eps, wb_tensor *factor)
{
    if (eps > 0) return wb_log(wb_add(x, wb_scalar(eps)));
    if (!factor) return wb_log(x);
    wb_tensor *counts = factor->dtype == WB_BOOL ? factor : wb_ne(factor, wb_scalar(0));
    return wb_log(wb_where(counts, x, wb_scalar(1)));
}

/* Returns x to the power of gamma.  A negative x counts as 0. */
static wb_tensor *loss_power(wb_tensor *x, double gamma)
{
    wb_tensor *base = wb_maximum(x, wb_scalar(0));
    return gamma == 2 ? wb_square(base) : wb_pow(base, wb_scalar(gamma));
}

/* Returns y smoothed over `parts` classes: y (1 - alpha) + alpha / parts. */
static wb_tensor *loss_smoothed(wb_tensor *y, double alpha, double parts)
{
    return wb_add(wb_mul(y, wb_scalar(1 - alpha)), wb_scalar(alpha / parts));
}

/* ---- losses of elements ---------------------------------------------------------------------- */

static wb_tensor *mse(loss_state *l)
{
    return loss_of_elements(l, wb_square(wb_sub(l->yhat, l->y)));
}

static wb_tensor *mae(loss_state *l)
{
    return loss_of_elements(l, wb_abs(wb_sub(l->yhat, l->y)));
}

static wb_tensor *msle(loss_state *l)
{
    wb_tensor *eps = wb_scalar(l->o.eps);
    wb_tensor *ratio = wb_div(wb_add(l->yhat, eps), wb_add(l->y, eps));
    return loss_of_elements(l, wb_square(wb_log(ratio)));
}

/* Returns the Huber loss.  For one element it is q (e - q/2), where e = |yhat - y| and q = min(e,
 * delta).  This is e²/2 for e up to delta, and delta (e - delta/2) beyond. */
static wb_tensor *huber(wb_tensor *yhat, wb_tensor *y, const wb_huber_options *given)
{
    wb_huber_options o;
    wb__loss_weights w;
    wb__given g;
    if (!yhat || !y) return wb__null("huber", yhat ? "y" : "yhat"), NULL;
    if (!wb__read_options("huber", wb_huber_options, &o, given, &g) ||
        !wb__read_agg("huber", o.agg) || !wb__loss_match("huber", &yhat, &y))
        return NULL;
    const double delta = o.delta;
    if (!(delta > 0))
        return wb__fail_null(WB_ERROR_ARGUMENT, "huber: delta is %g; it must be positive", delta);
    if (!wb__read_loss_weights(&w, "huber", &g, o.sample_weight, o.mask, yhat, 0)) return NULL;
    yhat = wb__loss_masked(&w, yhat, -1, 0.5);
    wb_tensor *e = wb_abs(wb_sub(yhat, wb__loss_masked(&w, y, -1, 0.5)));
    wb_tensor *q = wb_minimum(e, wb_scalar(delta));
    return wb__weighted(&w, o.agg, wb_mul(q, wb_sub(e, wb_mul(q, wb_scalar(0.5)))));
}

static wb_tensor *binarycrossentropy(loss_state *l)
{
    wb_tensor *not_y = one_minus(l->y);
    wb_tensor *yes = wb_mul(l->y, loss_safe_log(l->yhat, l->o.eps, l->y));
    wb_tensor *no = wb_mul(not_y, loss_safe_log(one_minus(l->yhat), l->o.eps, not_y));
    return loss_of_elements(l, wb_neg(wb_add(yes, no)));
}

static wb_tensor *logitbinarycrossentropy(loss_state *l)
{
    return loss_of_elements(l, wb_sub(wb_mul(one_minus(l->y), l->yhat), wb_logsigmoid(l->yhat)));
}

static wb_tensor *poisson_loss(loss_state *l)
{
    return loss_of_elements(l, wb_sub(l->yhat, wb_mul(l->y, loss_safe_log(l->yhat, 0, l->y))));
}

static wb_tensor *hinge(const loss_state *l)
{
    return wb_relu(one_minus(wb_mul(l->yhat, l->y)));
}

static wb_tensor *hinge_loss(loss_state *l) { return loss_of_elements(l, hinge(l)); }
static wb_tensor *squared_hinge_loss(loss_state *l)
{
    return loss_of_elements(l, wb_square(hinge(l)));
}

static wb_tensor *binary_focal_loss(loss_state *l)
{
    wb_tensor *p = wb_add(l->yhat, wb_scalar(l->o.eps));
    wb_tensor *right = wb_add(wb_mul(l->y, p), wb_mul(one_minus(l->y), one_minus(p)));
    right = wb_maximum(right, wb_scalar(l->o.eps));     /* it is -eps where yhat is 1 and y is 0 */
    return loss_of_elements(
        l, wb_neg(wb_mul(loss_power(one_minus(right), l->o.gamma), wb_log(right))));
}

static wb_tensor *siamese_contrastive_loss(loss_state *l)
{
    wb_tensor *near = wb_mul(one_minus(l->y), wb_square(l->yhat));
    wb_tensor *gap = wb_relu(wb_sub(wb_scalar(l->o.margin), l->yhat));
    return loss_of_elements(l, wb_add(near, wb_mul(l->y, wb_square(gap))));
}

/* ---- losses of sets -------------------------------------------------------------------------- */

/* Returns the sum of the terms, after the weights have multiplied them. */
static wb_tensor *loss_sum_of_terms(const loss_state *l, wb_tensor *terms)
{
    return loss_sum_of_all(l->w.weight ? wb_mul(terms, l->w.weight) : terms);
}

static wb_tensor *dice_coeff_loss(loss_state *l)
{
    wb_tensor *smooth = wb_scalar(l->o.smooth);
    wb_tensor *both = wb_mul(loss_sum_of_terms(l, wb_mul(l->y, l->yhat)), wb_scalar(2));
    wb_tensor *each = wb_add(loss_sum_of_terms(l, wb_square(l->y)),
                             loss_sum_of_terms(l, wb_square(l->yhat)));
    return one_minus(wb_div(wb_add(both, smooth), wb_add(each, smooth)));
}

/* Returns the Tversky loss, whose denominator is sum(both + beta (yhat - both) + (1 - beta) (y -
 * both)) + 1, where both = y yhat. */
static wb_tensor *tversky_loss(loss_state *l)
{
    wb_tensor *one = wb_scalar(1), *beta = wb_scalar(l->o.beta), *both = wb_mul(l->y, l->yhat);
    wb_tensor *wrong = wb_mul(beta, wb_sub(l->yhat, both)),
              *missed = wb_mul(wb_scalar(1 - l->o.beta), wb_sub(l->y, both));
    wb_tensor *all = loss_sum_of_terms(l, wb_add(both, wb_add(wrong, missed)));
    return one_minus(wb_div(wb_add(loss_sum_of_terms(l, both), one), wb_add(all, one)));
}

/* ---- losses of classes ----------------------------------------------------------------------- */

/* Returns the cross-entropy for class numbers: the loss of a row is NaN if its label is out of
 * range, and 0 if its label is ignored. */
static wb_tensor *loss_entropy_of_labels(const loss_state *l, wb_tensor *logp)
{
    const double alpha = l->o.label_smoothing, classes = (double)l->yhat->dims[l->axis];
    const bool ignores = l->o.ignore_index != INT64_MIN;
    wb_tensor *w = l->o.weight, *zero = wb_scalar(0);
    wb_tensor *terms = alpha == 0 ? logp : wb_mul(logp, wb_scalar(1 - alpha));
    terms = wb_where(l->hot, terms, zero);
    if (alpha != 0) terms = wb_add(terms, wb_mul(logp, wb_scalar(alpha / classes)));
    if (w) terms = wb_mul(terms, w);
    wb_tensor *valid = wb_and(wb_ge(l->y, wb_scalar_int(0)),
                              wb_lt(l->y, wb_scalar_int(l->yhat->dims[l->axis])));
    wb_tensor *rows = wb_where(valid, wb_neg(loss_sum_over_classes(l, terms)), wb_scalar(NAN));
    wb_tensor *counts = w ? loss_sum_over_classes(l, wb_where(l->hot, w, zero)) : NULL;
    if (ignores) {
        wb_tensor *kept = wb_ne(l->y, wb_scalar_int(l->o.ignore_index));
        rows = wb_where(kept, rows, zero);
        kept = wb_astype(kept, (wb_dtype)l->yhat->dtype);
        counts = w ? wb_mul(counts, kept) : kept;
    }
    if (l->o.agg != WB_AGG_MEAN || !counts) return loss_of_elements(l, rows);
    if (!l->w.weight) return wb_div(loss_sum_of_all(rows), loss_sum_of_all(counts));
    rows = wb_mul(wb__loss_masked(&l->w, rows, -1, 0), l->w.weight);
    return wb__weighted_by(&l->w, rows, wb_mul(counts, l->w.weight));
}

/* Returns the cross-entropy from logp, the logarithms of the probabilities. */
static wb_tensor *loss_entropy(const loss_state *l, wb_tensor *logp)
{
    if (l->labels) return logp ? loss_entropy_of_labels(l, logp) : NULL;
    if (l->o.ignore_index != INT64_MIN)
        return wb__fail_null(WB_ERROR_DTYPE, "%s: .ignore_index needs class numbers, and y is %s",
                             l->what, wb_describe(l->y));
    wb_tensor *terms = wb_mul(l->y, logp);
    return loss_over_rows(l, l->o.weight ? wb_mul(terms, l->o.weight) : terms, -1);
}

/* Finds the classes and their weights, for a cross-entropy. */
static bool loss_prepare_entropy(loss_state *l)
{
    if (!loss_read_weight(l)) return false;
    if (l->o.label_smoothing != 0 && !l->labels)
        l->y = loss_smoothed(l->y, l->o.label_smoothing, (double)l->yhat->dims[l->axis]);
    return l->y != NULL;
}

static wb_tensor *crossentropy(loss_state *l)
{
    if (!loss_prepare_entropy(l)) return NULL;
    wb_tensor *factor = !l->labels ? l->y : l->o.label_smoothing == 0 ? l->hot : NULL;
    return loss_entropy(l, loss_safe_log(l->yhat, l->o.eps, factor));
}

static wb_tensor *logitcrossentropy(loss_state *l)
{
    return loss_prepare_entropy(l) ? loss_entropy(l, wb_logsoftmax_over(l->yhat, l->axis)) : NULL;
}

static wb_tensor *kldivergence(loss_state *l)
{
    wb_tensor *of_y = wb_mul(l->y, loss_safe_log(l->y, 0, l->y)),
              *of_both = wb_mul(l->y, loss_safe_log(l->yhat, l->o.eps, l->y));
    return loss_over_rows(l, wb_sub(of_y, of_both), 1);
}

static wb_tensor *focal_loss(loss_state *l)
{
    wb_tensor *p = wb_add(l->yhat, wb_scalar(l->o.eps));
    wb_tensor *weight = wb_mul(l->y, loss_power(one_minus(p), l->o.gamma));
    return loss_over_rows(l, wb_mul(weight, loss_safe_log(l->yhat, l->o.eps, l->y)), -1);
}

static bool loss_read_weights(loss_state *l, const wb__given *g)
{
    return wb__read_loss_weights(&l->w, l->what, g, l->o.sample_weight, l->o.mask, l->yhat,
                                 l->axis < 0 ? 0 : 1u << l->axis);
}

/* Returns the result of the loss function f.  `used` has the names of the options of f. */
static wb_tensor *loss_call(const char *what, wb_tensor *(*f)(loss_state *), const char *used,
                            wb_tensor *yhat, wb_tensor *y, const wb_loss_options *given)
{
    loss_state l = {.what = what, .yhat = yhat, .y = y, .axis = -1};
    wb__given g;
    if (!yhat || !y) return wb__null(what, yhat ? "y" : "yhat"), NULL;
    if (!wb__floating(what, yhat) || !wb__operand(what, y) ||
        !loss_read_options(what, used, (wb_dtype)yhat->dtype, &l.o, given, &g))
        return NULL;
    const bool classes = strstr(used, "dims"), takes_labels = strstr(used, "ignore_index");
    if (takes_labels && wb__is_integer(y))
        return find_classes(&l) && loss_read_weights(&l, &g) && loss_read_labels(&l) ? f(&l) : NULL;
    if (takes_labels && y->ndim == yhat->ndim - 1)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: shapes differ: %s · %s; class numbers are "
                             "integers: wb_astype(y, WB_I32)", what, wb_describe(yhat),
                             wb_describe(y));
    if (!wb__loss_match(what, &l.yhat, &l.y) || (classes && !find_classes(&l)) ||
        !loss_read_weights(&l, &g))
        return NULL;
    l.yhat = wb__loss_masked(&l.w, l.yhat, l.axis, 0.5);
    l.y = wb__loss_masked(&l.w, l.y, l.axis, 0.5);
    return l.yhat && l.y ? f(&l) : NULL;
}

#define LOSS(name, used)                                                                        \
    wb_tensor *wb_##name##_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o)        \
    {                                                                                           \
        const wb__frame f = wb__frame_begin();                                                  \
        return wb__frame_end(f, loss_call(#name, name, used, yhat, y, o));                  \
    }                                                                                           \
    wb_tensor *(wb_##name)(wb_tensor *yhat, wb_tensor *y)                                       \
    {                                                                                           \
        return wb_##name##_with(yhat, y, NULL);                                                 \
    }
LOSS(mse, "agg")
LOSS(mae, "agg")
LOSS(msle, "agg eps")
LOSS(crossentropy, "agg dims eps label_smoothing weight ignore_index")
LOSS(logitcrossentropy, "agg dims label_smoothing weight ignore_index")
LOSS(binarycrossentropy, "agg eps")
LOSS(logitbinarycrossentropy, "agg")
LOSS(kldivergence, "agg dims eps")
LOSS(poisson_loss, "agg")
LOSS(hinge_loss, "agg")
LOSS(squared_hinge_loss, "agg")
LOSS(dice_coeff_loss, "smooth")
LOSS(tversky_loss, "beta")
LOSS(binary_focal_loss, "agg eps gamma")
LOSS(focal_loss, "agg dims eps gamma")
LOSS(siamese_contrastive_loss, "agg margin")

wb_tensor *wb_huber_with(wb_tensor *yhat, wb_tensor *y, const wb_huber_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, huber(yhat, y, o));
}

wb_tensor *(wb_huber)(wb_tensor *yhat, wb_tensor *y, double delta)
{
    const wb_huber_options o = WB__OPTIONS(wb_huber_options, .delta = delta);
    return wb_huber_with(yhat, y, &o);
}

static wb_tensor *label_smoothing(wb_tensor *y, double alpha,
                                  const wb_label_smoothing_options *given)
{
    wb_label_smoothing_options o;
    if (!wb__floating("label_smoothing", y) ||
        !wb__read_options("label_smoothing", wb_label_smoothing_options, &o, given, NULL))
        return NULL;
    if (!(alpha > 0 && alpha < 1))
        return wb__fail_null(WB_ERROR_ARGUMENT, "label_smoothing: alpha is %g; it must be above 0 "
                             "and below 1", alpha);
    if (o.binary) return loss_smoothed(y, alpha, 2);
    const int axis = wb__axis("label_smoothing", y, o.dims);
    return axis < 0 ? NULL : loss_smoothed(y, alpha, (double)y->dims[axis]);
}

wb_tensor *wb_label_smoothing_with(wb_tensor *y, double alpha, const wb_label_smoothing_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, label_smoothing(y, alpha, o));
}
