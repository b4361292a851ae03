/* The sorted order along an axis, and operations that use it. */
#include "base/options.h"
#include "engine/ops/op.h"

enum { SORT_AXIS, DESCENDING, SORT_ATTRS };     /* order of the attributes, as in ops.def */

/* Returns the axis of a sort, or -1 with the error set. */
static int axis_of_sort(const char *what, const wb_tensor *x, int axis)
{
    const int a = wb__axis(what, x, axis);
    if (a < 0) return -1;
    if (x->dtype == WB_BOOL)
        wb__fail(WB_ERROR_DTYPE, "%s: does not take %s: make integers of it with wb_astype", what,
                 wb_describe(x));
    else if (x->dims[a] - 1 > INT32_MAX)
        wb__fail(WB_ERROR_SHAPE, "%s: axis %d of %s has places that i32 cannot hold", what, axis,
                 wb_describe(x));
    else return a;
    return -1;
}

static wb_tensor *sort_order_of(wb_tensor *x, int axis, bool descending)
{
    const int64_t attr[SORT_ATTRS] = {[SORT_AXIS] = axis, [DESCENDING] = descending};
    return wb__node(WB__OP_argsort, WB_I32, x->ndim, x->dims, 1, &x, SORT_ATTRS, attr);
}

static wb_tensor *sort_axis(const char *what, wb_tensor *x, int axis,
                            const wb_sort_options *options, bool order)
{
    wb_sort_options o;
    const int a = axis_of_sort(what, x, axis);
    if (a < 0 || !wb__read_options(what, wb_sort_options, &o, options, NULL)) return NULL;
    wb_tensor *y = sort_order_of(x, a, o.descending);
    return order || !y ? y : wb_take_along(x, y, a);
}

wb_tensor *wb_argsort_with(wb_tensor *x, int axis, const wb_sort_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, sort_axis("argsort", x, axis, o, true));
}

wb_tensor *wb_sort_with(wb_tensor *x, int axis, const wb_sort_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, sort_axis("sort", x, axis, o, false));
}

static wb_tensor *sort_topk(wb_tensor *x, int64_t k, int axis, wb_tensor **index,
                            const wb_topk_options *options)
{
    wb_topk_options o;
    const int a = axis_of_sort("topk", x, axis);
    if (a < 0 || !wb__read_options("topk", wb_topk_options, &o, options, NULL)) return NULL;
    if (k < 0 || k > x->dims[a])
        return wb__fail_null(WB_ERROR_ARGUMENT, "topk: k is %lld; it must be in 0 to the size of "
                             "axis %d of %s", (long long)k, axis, wb_describe(x));
    wb_tensor *order = sort_order_of(x, a, !o.smallest);
    if (!order || !(order = wb_slice(order, a, 0, k))) return NULL;
    *index = order;
    return wb_take_along(x, order, a);
}

wb_tensor *wb_topk_with(wb_tensor *x, int64_t k, int axis, wb_tensor **index,
                        const wb_topk_options *o)
{
    const wb__frame f = wb__frame_begin();
    wb_tensor *order = NULL, *y = sort_topk(x, k, axis, &order, o);
    if (!y) order = NULL;
    if (index) *index = order;
    wb__frame_end_many(f, y ? index ? 2 : 1 : 0, (void *[]){y, order});
    return y;
}

/* Whether a is before b in the order or, with `equal`, not behind b; NaN is the greatest. */
static wb_tensor *sort_before(wb_tensor *a, wb_tensor *b, bool equal)
{
    wb_tensor *numbers = equal ? wb_le(a, b) : wb_lt(a, b), *nan = wb_ne(b, b);
    if (!numbers || !wb__dtype_float((wb_dtype)a->dtype)) return numbers;
    return wb_or(numbers, equal ? nan : wb_and(nan, wb_eq(a, a)));
}

static wb_tensor *sort_searchsorted(wb_tensor *sorted, wb_tensor *x,
                                    const wb_searchsorted_options *options)
{
    wb_searchsorted_options o;
    if (!wb__operand("searchsorted", sorted) || !wb__operand("searchsorted", x) ||
        !wb__read_options("searchsorted", wb_searchsorted_options, &o, options, NULL))
        return NULL;
    const int n = sorted->ndim;
    bool fit = n == 1 || (n > 1 && n == x->ndim);
    for (int i = 0; fit && i < n - 1; i++) fit = sorted->dims[i] == x->dims[i];
    if (!fit || sorted->dims[n - 1] > INT32_MAX || x->ndim == WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE, "searchsorted: the sorted numbers are %s, and x is %s",
                             wb_describe(sorted), wb_describe(x));
    if (sorted->dtype != x->dtype || x->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "searchsorted: the sorted numbers are %s, and x is %s",
                             wb_describe(sorted), wb_describe(x));
    wb_tensor *a = n > 1 ? wb_unsqueeze(sorted, -2) : sorted, *b = wb_unsqueeze(x, -1);
    wb_tensor *less = a && b ? sort_before(a, b, o.right) : NULL;
    return less ? wb_sum(wb_astype(less, WB_I32), -1) : NULL;
}

wb_tensor *wb_searchsorted_with(wb_tensor *sorted, wb_tensor *x, const wb_searchsorted_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, sort_searchsorted(sorted, x, o));
}

FILL(SORT)
{
    const int64_t *attr = wb__attrs_of(m, v);
    wb__add_any(m, wb__operand_of(m, v, 0));
    wb__add_any(m, p->result);
    wb__plan_step *d = wb__last_step(m);
    d->step.variant = attr[DESCENDING] != 0;
    for (int i = 0; i < d->n_operands; i++)
        wb__bring_in_front(&d->operand[i].view, (int)attr[SORT_AXIS], false);
}
