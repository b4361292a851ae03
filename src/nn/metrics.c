/* Metrics: the confusion table, F1, IoU and the area under the ROC curve, composed of
 * operations. */
#include "nn/losses.h"

#include "weber/indexing.h"

#include <math.h>

/* One call of a metric of classes. */
typedef struct {
    const char *what;           /* the name of the metric, for messages */
    wb_metric_options o;
    wb_tensor *yhat, *y;        /* classes, i32, of one shape */
    wb_tensor *kept;            /* which elements count, bool, broadcasts to the shape; NULL: all */
    wb_tensor *classless;       /* which elements have a score of NaN, bool; NULL: none can have */
    wb_tensor *wrong;           /* bool [1]: whether one that counts is classless; NULL: none is */
    int64_t classes;
    bool binary;                /* yhat was bool */
} metric_call;

/* Returns x as one axis. */
static wb_tensor *metrics_flat(wb_tensor *x)
{
    return x ? wb_reshape_array(x, 1, &x->size) : NULL;
}

static bool metrics_same_shape(const metric_call *m, const wb_tensor *yhat)
{
    if (wb__same_dims(yhat, m->y)) return true;
    return !wb__fail(WB_ERROR_SHAPE, "%s: shapes differ: %s · %s", m->what, wb_describe(m->yhat),
                     wb_describe(m->y));
}

/* Whether y has class numbers in the shape of the scores without the axis of the classes. */
static bool has_labels(const char *what, const wb_tensor *scores, const wb_tensor *y, int axis)
{
    bool fits = y->ndim == scores->ndim - 1;
    for (int i = 0; fits && i < y->ndim; i++) fits = y->dims[i] == scores->dims[i + (i >= axis)];
    if (fits && wb__is_integer(y)) return true;
    return !wb__fail(fits ? WB_ERROR_DTYPE : WB_ERROR_SHAPE,
                     "%s: y %s does not fit the scores %s: it has class numbers, in their shape "
                     "without the axis %d of the classes; of two classes give wb_gt(scores, 0.5)",
                     what, wb_describe(y), wb_describe(scores), axis);
}

/* Sets m->yhat to class numbers, and m->classes to the number of classes. */
static bool metrics_read_classes(metric_call *m)
{
    wb_tensor *x = m->yhat;
    m->binary = x->dtype == WB_BOOL;
    m->classes = m->o.classes;
    if (m->binary) {
        if (!metrics_same_shape(m, x)) return false;
        m->classes = 2;
        m->y = m->y->dtype == WB_BOOL || wb__is_integer(m->y) ? m->y : wb_ne(m->y, wb_scalar(0));
        if (m->y && wb__is_integer(m->y) && m->o.ignore_index == INT64_MIN)
            m->y = wb_ne(m->y, wb_scalar_int(0));
    } else if (wb__is_integer(x)) {
        if (!metrics_same_shape(m, x)) return false;
        if (!wb__is_integer(m->y))
            return !wb__fail(WB_ERROR_DTYPE, "%s: yhat has class numbers, and y is %s", m->what,
                             wb_describe(m->y));
        if (m->classes < 1)
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: yhat has class numbers: give their number, "
                             ".classes", m->what);
    } else {
        const int axis = x->ndim ? wb__axis(m->what, x, m->o.dims) : -1;
        if (!x->ndim)
            return !wb__fail(WB_ERROR_SHAPE, "%s: no classes in %s", m->what, wb_describe(x));
        if (axis < 0 || !has_labels(m->what, x, m->y, axis)) return false;
        if (m->classes && m->classes != x->dims[axis])
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: .classes is %lld, and the scores have %lld",
                             m->what, (long long)m->classes, (long long)x->dims[axis]);
        m->classes = x->dims[axis];
        m->yhat = wb_argmax(x, axis);
        if (wb__dtype_float((wb_dtype)x->dtype) && !(m->classless = wb_any(wb_isnan(x), axis)))
            return false;
    }
    return m->yhat && m->y;
}

/* Leaves out the elements without a class, and sets m->wrong to whether one of them would count. */
static bool metrics_leave_classless(metric_call *m)
{
    if (!m->classless) return true;
    m->wrong = wb_any(m->kept ? wb_and(m->classless, m->kept) : m->classless);
    return m->wrong && wb__also(&m->kept, wb_not(m->classless));
}

static bool metrics_read(metric_call *m, const wb_metric_options *given)
{
    wb__given g;
    wb__loss_weights w;
    const char *what = m->what;
    if (!m->yhat || !m->y) return !wb__null(what, m->yhat ? "y" : "yhat");
    if (!wb__operand(what, m->yhat) || !wb__operand(what, m->y) ||
        !wb__read_options(what, wb_metric_options, &m->o, given, &g) ||
        !wb__one_device(what, m->yhat, m->y))
        return false;
    const bool ignores = m->o.ignore_index != INT64_MIN;
    if (!metrics_read_classes(m) || !wb__read_loss_weights(&w, what, &g, NULL, m->o.mask, m->y, 0))
        return false;
    m->kept = w.mask;
    wb_tensor *y = wb__loss_masked(&w, m->y, -1, 0);
    if (ignores && y && !wb__also(&m->kept, wb_ne(y, wb_scalar_int(m->o.ignore_index))))
        return false;
    if (m->binary && y) y = y->dtype == WB_BOOL ? y : wb_ne(y, wb_scalar_int(0));
    if (!m->binary && y &&
        !wb__labels_below(what, y, m->classes, ignores ? &m->o.ignore_index : NULL))
        return false;
    const wb_dtype t = m->yhat->dtype == WB_I64 || (y && y->dtype == WB_I64) ? WB_I64 : WB_I32;
    m->yhat = wb__as(m->yhat, t);
    m->y = wb__as(y, t);
    return m->yhat && m->y && metrics_leave_classless(m) &&
           (m->binary || wb__also(&m->kept, wb_and(wb__in_range(m->yhat, m->classes),
                                                   wb__in_range(m->y, m->classes))));
}

/* Returns the table [classes, classes].  Elements that do not count are added to an extra row. */
static wb_tensor *metrics_table_of(metric_call *m)
{
    const int64_t c = m->classes, cells = c * c;
    if (c > 46340)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %lld classes; at most 46340", m->what,
                             (long long)c);
    wb_tensor *at = wb_add(wb_mul(m->y, wb_scalar_int(c)), m->yhat);
    if (m->kept) at = wb_where(m->kept, at, wb_scalar_int(cells));
    at = at ? metrics_flat(wb__as(at, WB_I32)) : NULL;
    wb_tensor *ones = at ? wb_full_array(1, WB_I32, 1, at->dims) : NULL;
    wb_tensor *counts = wb_scatter(wb_full_array(0, WB_I32, 1, (int64_t[]){cells + 1}), at, ones);
    counts = counts ? wb_slice(counts, 0, 0, cells) : NULL;
    return counts ? wb_reshape_array(counts, 2, (int64_t[]){c, c}) : NULL;
}

static wb_tensor *confusion(wb_tensor *yhat, wb_tensor *y, const wb_metric_options *given)
{
    metric_call m = {.what = "confusion", .yhat = yhat, .y = y};
    if (!metrics_read(&m, given)) return NULL;
    if (m.o.agg == WB_AGG_MEAN) return metrics_table_of(&m);
    return wb__fail_null(WB_ERROR_ARGUMENT, "confusion: does not use .agg");
}

/* Returns F1 or IoU of each class, or over all classes. */
static wb_tensor *metrics_overlap(const char *what, bool f1, wb_tensor *yhat, wb_tensor *y,
                                  const wb_metric_options *given)
{
    metric_call m = {.what = what, .yhat = yhat, .y = y};
    if (!metrics_read(&m, given)) return NULL;
    if (m.o.agg != WB_AGG_MEAN && m.o.agg != WB_AGG_UNREDUCED)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .agg is %d; it is WB_AGG_MEAN or "
                             "WB_AGG_UNREDUCED", what, (int)m.o.agg);
    wb_tensor *table = metrics_table_of(&m), *number = wb_arange(m.classes, WB_I32);
    wb_tensor *diagonal = wb_eq(wb_unsqueeze(number, 1), number);
    wb_tensor *both = wb_where(diagonal, table, wb_scalar_int(0));
    both = both ? wb__as(wb__reduce(WB__OP_sum, both, 1, false), WB_F32) : NULL;
    wb_tensor *all = table ? wb_add(wb__as(wb__reduce(WB__OP_sum, table, 1, false), WB_F32),
                                    wb__as(wb__reduce(WB__OP_sum, table, 2, false), WB_F32))
                           : NULL;
    wb_tensor *each = f1 ? wb_div(wb_mul(both, wb_scalar(2)), all)
                         : wb_div(both, wb_sub(all, both));
    if (m.wrong) each = wb_where(m.wrong, wb_scalar(NAN), each);
    if (!each || m.o.agg == WB_AGG_UNREDUCED) return each;
    return m.binary ? wb_reshape_array(wb_slice(each, 0, 1, 2), 0, NULL) : wb_nanmean(each);
}

/* ---- the area under the ROC curve ------------------------------------------------------------ */

static wb_tensor *metrics_sum_over(wb_tensor *x) { return x ? wb__reduce(WB__OP_sum, x, 1,
                                                                         false) : NULL; }

/* Returns the area for n scores [n] and the true elements, bool [n].  `kept` [n] may be NULL.
 * Elements of equal score are a group.  With p true and q false elements in a group, and b false
 * ones below it, the sum of p (2 b + q) over the groups is twice the number of pairs in the right
 * order.  Counts are i64. */
static wb_tensor *metrics_area(wb_tensor *scores, wb_tensor *truth, wb_tensor *kept)
{
    if (!scores || !truth) return NULL;
    const int64_t n = scores->dims[0];
    if (n < 2) return wb_full_array(NAN, WB_F32, 0, NULL);
    wb_tensor *no = wb_not(truth);
    if (kept) truth = wb_and(truth, kept), no = wb_and(no, kept);
    wb_tensor *order = wb_argsort(scores, 0);
    wb_tensor *sorted = wb_take(scores, order);
    wb_tensor *p = wb_take(wb_astype(truth, WB_I64), order),
              *q = wb_take(wb_astype(no, WB_I64), order);
    wb_tensor *begins = sorted ? wb_ne(wb_slice(sorted, 0, 1, n), wb_slice(sorted, 0, 0, n - 1))
                               : NULL;
    wb_tensor *group = begins ? wb_cumsum(wb_pad(wb_astype(begins, WB_I32), 0, 1, 0), 0) : NULL;
    wb_tensor *zeros = wb_full_array(0, WB_I64, 1, &n);
    wb_tensor *trues = wb_scatter(zeros, group, p), *falses = wb_scatter(zeros, group, q);
    wb_tensor *below = falses ? wb_sub(wb_mul(wb_cumsum(falses, 0), wb_scalar_int(2)), falses)
                              : NULL;
    wb_tensor *twice = metrics_sum_over(wb_mul(trues, below));
    wb_tensor *pairs = wb_mul(metrics_sum_over(p), metrics_sum_over(q));
    wb_tensor *result = wb_div(wb_astype(twice, WB_F32),
                               wb_mul(wb_astype(pairs, WB_F32), wb_scalar(2)));
    wb_tensor *wrong = wb_isnan(scores);
    if (kept) wrong = wb_and(wrong, kept);
    return wb_where(wb_any(wrong), wb_scalar(NAN), result);
}

/* Returns the mean of the areas of each class against the rest.  y has class numbers. */
static wb_tensor *metrics_mean_area(wb_tensor *yhat, int axis, wb_tensor *y, wb_tensor *kept)
{
    const int64_t classes = yhat->dims[axis];
    wb_tensor **all = wb__alloc((size_t)classes * sizeof(wb_tensor *)), *mean = NULL;
    int64_t c = 0;
    for (bool good = all != NULL; good && c < classes; c += good) {
        wb_tensor *score = metrics_flat(wb_slice(yhat, axis, c, c + 1));
        all[c] = metrics_area(score, wb_eq(y, wb_scalar_int(c)), kept);
        good = (all[c] = all[c] ? wb_unsqueeze(all[c], 0) : NULL) != NULL;
    }
    if (all && c == classes) mean = wb_nanmean(wb_concat_array(0, (int)classes, all));
    wb__free(all);
    return mean;
}

static wb_tensor *roc_auc(wb_tensor *yhat, wb_tensor *y, const wb_roc_auc_options *given)
{
    const char *what = "roc_auc";
    wb_roc_auc_options o;
    wb__loss_weights w;
    wb__given g;
    if (!yhat || !y) return wb__null(what, yhat ? "y" : "yhat"), NULL;
    if (!wb__floating(what, yhat) || !wb__operand(what, y) || !wb__one_device(what, yhat, y) ||
        !wb__read_options(what, wb_roc_auc_options, &o, given, &g))
        return NULL;
    const bool binary = wb__same_dims(yhat, y);
    const int axis = binary ? -1 : yhat->ndim ? wb__axis(what, yhat, o.dims) : 0;
    if (!binary && (axis < 0 || !has_labels(what, yhat, y, axis))) return NULL;
    if (!wb__read_loss_weights(&w, what, &g, NULL, o.mask, y, 0)) return NULL;
    wb_tensor *kept = w.mask ? metrics_flat(wb_expand_array(w.mask, y->ndim, y->dims)) : NULL;
    if (w.mask && !kept) return NULL;
    if (binary) {
        if (y->dtype != WB_BOOL) y = wb_ne(y, wb__is_integer(y) ? wb_scalar_int(0) : wb_scalar(0));
        return metrics_area(metrics_flat(yhat), metrics_flat(y), kept);
    }
    const int64_t classes = yhat->dims[axis];
    y = metrics_flat(wb__loss_masked(&w, y, -1, 0));
    if (!y || !wb__labels_below(what, y, classes, NULL)) return NULL;
    return classes ? metrics_mean_area(yhat, axis, y, kept) : wb_full_array(NAN, WB_F32, 0, NULL);
}

#define METRIC(name, options, call)                                                             \
    wb_tensor *wb_##name##_with(wb_tensor *yhat, wb_tensor *y, const options *o)                \
    {                                                                                           \
        const wb__frame f = wb__frame_begin();                                                  \
        return wb__frame_end(f, call);                                                          \
    }                                                                                           \
    wb_tensor *(wb_##name)(wb_tensor *yhat, wb_tensor *y)                                       \
    {                                                                                           \
        return wb_##name##_with(yhat, y, NULL);                                                 \
    }
METRIC(confusion, wb_metric_options, confusion(yhat, y, o))
METRIC(f1, wb_metric_options, metrics_overlap("f1", true, yhat, y, o))
METRIC(iou, wb_metric_options, metrics_overlap("iou", false, yhat, y, o))
METRIC(roc_auc, wb_roc_auc_options, roc_auc(yhat, y, o))
