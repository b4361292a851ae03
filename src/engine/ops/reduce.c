/* Reductions over axes, and operations composed of them. */
#include "base/options.h"
#include "engine/ops/op.h"

#include <math.h>
#include <string.h>

static unsigned reduce_all_axes(const wb_tensor *x) { return (1u << x->ndim) - 1; }

wb_tensor *wb__reduce(wb__op op, wb_tensor *x, unsigned mask, bool keep)
{
    if (!x) return NULL;
    int64_t dims[WB_MAX_DIMS], folded = 1, attr = mask;
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (mask >> i & 1) folded *= x->dims[i];
        if (!(mask >> i & 1)) dims[ndim++] = x->dims[i];
        else if (keep) dims[ndim++] = 1;
    }
    if (op != WB__OP_sum && folded == 0)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: nothing to choose from: %s", wb__ops[op].name,
                             wb_describe(x));
    return wb__node(op, op == WB__OP_argmax ? WB_I32 : (wb_dtype)x->dtype, ndim, dims, 1, &x, 1,
                    &attr);
}

static bool reduce_read_axes(const char *what, const wb_tensor *x, const wb_reduce_options *options,
                             wb_reduce_options *o, unsigned *mask, bool corrects)
{
    wb__given g;
    if (!wb__read_options(what, wb_reduce_options, o, options, &g)) return false;
    const int64_t by_place[] = {o->a1_, o->a2_, o->a3_, o->a4_, o->a5_, o->a6_, o->a7_, o->a8_};
    int n = 0;
    while (n < WB_MAX_DIMS && by_place[n] != INT64_MIN) n++;
    if (o->correction != 0 && !corrects)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: does not use .correction; wb_variance and wb_std "
                         "do", what);
    if (!(o->correction >= 0))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .correction is %g; it must not be negative", what,
                         o->correction);
    if (n && o->axes[0] != WB_MARK_)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: axes by position and .axes: give one of both",
                        what),
               false;
    if (n && g.text && strchr(g.text, '{'))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: a list of axes needs its name: .axes = {...}",
                        what),
               false;
    if (n) wb_ints_set(o->axes, n, by_place);
    if (!wb__ints_read(what, &g, "axes", -1, o->axes, WB_MAX_DIMS)) return false;
    *mask = o->axes[0] ? 0 : reduce_all_axes(x);
    for (int i = 0; i < o->axes[0]; i++) {
        int axis = wb__axis(what, x, o->axes[1 + i]);
        if (axis < 0) return false;
        if (*mask >> axis & 1) {
            wb__fail(WB_ERROR_ARGUMENT, "%s: axis %d is named twice", what, (int)o->axes[1 + i]);
            return false;
        }
        *mask |= 1u << axis;
    }
    return true;
}

bool wb__read_axes(const char *what, const wb_tensor *x, const wb_reduce_options *options,
                   wb_reduce_options *o, unsigned *mask)
{
    return reduce_read_axes(what, x, options, o, mask, false);
}

static wb_tensor *reduce_by_options(wb__op op, wb_tensor *x, const wb_reduce_options *options)
{
    const char *what = wb__ops[op].name;
    wb_reduce_options o;
    unsigned mask;
    if (!wb__operand(what, x)) return NULL;
    if (x->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "%s: does not take %s", what, wb_describe(x));
    if (!wb__read_axes(what, x, options, &o, &mask)) return NULL;
    return wb__reduce(op, x, mask, o.keep);
}

wb_tensor *wb_sum_with(wb_tensor *x, const wb_reduce_options *o)
{
    return reduce_by_options(WB__OP_sum, x, o);
}
wb_tensor *wb_max_with(wb_tensor *x, const wb_reduce_options *o)
{
    return reduce_by_options(WB__OP_max, x, o);
}
wb_tensor *wb_min_with(wb_tensor *x, const wb_reduce_options *o)
{
    return reduce_by_options(WB__OP_min, x, o);
}

wb_tensor *wb__as(wb_tensor *x, wb_dtype dtype)
{
    return x && (wb_dtype)x->dtype != dtype ? wb_astype(x, dtype) : x;
}
wb_tensor *wb__wide(wb_tensor *x)
{
    return x ? wb__as(x, wb__computed_in((wb_dtype)x->dtype)) : NULL;
}

double wb__reduced(const wb_tensor *x, unsigned mask)
{
    double n = 1;
    for (int i = 0; i < x->ndim; i++)
        if (mask >> i & 1) n *= (double)x->dims[i];
    return n;
}

wb_tensor *wb__mean(wb_tensor *x, unsigned mask, bool keep)
{
    if (!x) return NULL;
    const double n = wb__reduced(x, mask);
    wb_dtype dtype = (wb_dtype)x->dtype;
    x = wb__wide(x);
    if (!x) return NULL;
    return wb__as(wb_mul(wb__reduce(WB__OP_sum, x, mask, keep),
                         wb__literal(1 / n, (wb_dtype)x->dtype)),
              dtype);
}

wb_tensor *wb_mean_with(wb_tensor *x, const wb_reduce_options *options)
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__floating("mean", x) || !wb__read_axes("mean", x, options, &o, &mask)) return NULL;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, wb__mean(x, mask, o.keep));
}

/* Returns the sum or the mean over the elements of x that are not NaN.  The other elements have the
 * gradient 0, by `where`. */
static wb_tensor *reduce_without_nan(const char *what, wb_tensor *x,
                                     const wb_reduce_options *options, bool mean)
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__floating(what, x) || !wb__read_axes(what, x, options, &o, &mask)) return NULL;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    wb_tensor *is_nan = wb_isnan(x), *zero = wb_scalar(0);
    x = wb__wide(wb_where(is_nan, zero, x));
    wb_tensor *sum = wb__reduce(WB__OP_sum, x, mask, o.keep);
    if (!sum || !mean) return sum ? wb__as(sum, dtype) : NULL;
    wb_tensor *counts = wb_astype(wb_not(is_nan), (wb_dtype)x->dtype);
    return wb__as(wb_div(sum, wb__reduce(WB__OP_sum, counts, mask, o.keep)), dtype);
}

wb_tensor *wb_nansum_with(wb_tensor *x, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, reduce_without_nan("nansum", x, o, false));
}

wb_tensor *wb_nanmean_with(wb_tensor *x, const wb_reduce_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, reduce_without_nan("nanmean", x, o, true));
}

/* Returns the variance of x, which has the dtype in which sums are computed. */
static wb_tensor *reduce_variance(wb_tensor *x, unsigned mask, const wb_reduce_options *o)
{
    wb_tensor *square = wb_square(wb_sub(x, wb__mean(x, mask, true)));
    if (o->correction == 0) return wb__mean(square, mask, o->keep);
    const double n = WB__MAX(wb__reduced(x, mask) - o->correction, 0);
    return wb_mul(wb__reduce(WB__OP_sum, square, mask, o->keep),
                  wb__literal(1 / n, (wb_dtype)x->dtype));
}

static wb_tensor *variance_by_options(const char *what, wb_tensor *x,
                                      const wb_reduce_options *options,
                                      wb_tensor *(*f)(wb_tensor *))
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__floating(what, x) || !reduce_read_axes(what, x, options, &o, &mask, true)) return NULL;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    x = wb__wide(x);
    return wb__as(f(x ? reduce_variance(x, mask, &o) : NULL), dtype);
}

wb_tensor *wb_variance_with(wb_tensor *x, const wb_reduce_options *options)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, variance_by_options("variance", x, options, wb_identity));
}

wb_tensor *wb_std_with(wb_tensor *x, const wb_reduce_options *options)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, variance_by_options("std", x, options, wb__root_of));
}

/* Returns the softmax of x over the axes of the mask together. */
static wb_tensor *softmax_over_all(wb_tensor *x, unsigned mask)
{
    int64_t order[WB_MAX_DIMS], back[WB_MAX_DIMS], dims[WB_MAX_DIMS], rows[2] = {1, 1};
    int n = 0;
    for (int reduced = 0; reduced < 2; reduced++)
        for (int i = 0; i < x->ndim; i++) {
            if ((mask >> i & 1) != (unsigned)reduced) continue;
            dims[n] = x->dims[i];
            rows[reduced] *= x->dims[i];
            back[i] = n;
            order[n++] = i;
        }
    wb_tensor *y = wb_reshape_array(wb_permute_array(x, n, order), 2, rows);
    return wb_permute_array(wb_reshape_array(wb_softmax(y), n, dims), n, back);
}

/* The gradient of logsumexp is softmax(x), in which several elements of +Inf share 1; of a row of
 * -Inf it is 0. */
static int logsumexp_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x,
                              wb_tensor **dx, void *ctx)
{
    (void)n;
    wb_tensor *none = wb_eq(y, wb__literal(-INFINITY, (wb_dtype)y->dtype));
    g = wb_where(none, wb__literal(0, (wb_dtype)g->dtype), g);
    dx[0] = wb_mul(softmax_over_all(x[0], (unsigned)(uintptr_t)ctx), g);
    return dx[0] ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

/* The `end` of a custom gradient of the library whose context owns nothing. */
static void end_nothing(void *ctx) { (void)ctx; }

/* Returns top + log(sum(exp(x - top))), where top is the maximum.  For elements that equal top, x -
 * top is taken as 0, also if both are infinite. */
static wb_tensor *reduce_logsumexp(wb_tensor *x, const wb_reduce_options *options)
{
    wb_reduce_options o;
    unsigned mask;
    if (!wb__floating("logsumexp", x) || !wb__read_axes("logsumexp", x, options, &o, &mask))
        return NULL;
    wb_dtype dtype = (wb_dtype)x->dtype;
    x = wb__wide(x);
    wb_tensor *top = wb__reduce(WB__OP_max, x, mask, true);
    if (!top) return NULL;
    wb_tensor *one = wb__literal(1, (wb_dtype)x->dtype);
    wb_tensor *e = wb_where(wb_eq(x, top), one, wb_exp(wb_sub(x, top)));
    wb_tensor *y = e ? wb_add(top, wb_log(wb__reduce(WB__OP_sum, e, mask, true))) : NULL;
    if (y)
        y = wb__custom_gradient(y, logsumexp_gradient, (void *)(uintptr_t)mask, end_nothing, 1, &x);
    y = wb__as(y, dtype);
    if (!y || o.keep) return y;
    int64_t dims[WB_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!(mask >> i & 1)) dims[ndim++] = x->dims[i];
    return wb_reshape_array(y, ndim, dims);
}

wb_tensor *wb_logsumexp_with(wb_tensor *x, const wb_reduce_options *options)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, reduce_logsumexp(x, options));
}

static int axis_of_argmax(const char *what, const wb_tensor *x, int axis)
{
    if (!wb__operand(what, x)) return -1;
    if (x->dtype == WB_BOOL) {
        wb__fail(WB_ERROR_DTYPE, "%s: does not take %s", what, wb_describe(x));
        return -1;
    }
    const int a = wb__axis(what, x, axis);
    if (a < 0 || x->dims[a] - 1 <= INT32_MAX) return a;
    wb__fail(WB_ERROR_SHAPE, "%s: axis %d of %s has places that i32 cannot hold", what, axis,
             wb_describe(x));
    return -1;
}

wb_tensor *wb_argmax(wb_tensor *x, int axis)
{
    const int a = axis_of_argmax("argmax", x, axis);
    return a < 0 ? NULL : wb__reduce(WB__OP_argmax, x, 1u << a, false);
}

/* Returns the argmax of -x or, for integers, of -1 - x (u8: 255 - x), which reverses the order. */
wb_tensor *wb_argmin(wb_tensor *x, int axis)
{
    const int a = axis_of_argmax("argmin", x, axis);
    if (a < 0) return NULL;
    if (!x->dims[a])
        return wb__fail_null(WB_ERROR_SHAPE, "argmin: nothing to choose from: %s", wb_describe(x));
    const wb__frame f = wb__frame_begin();
    const wb_dtype t = (wb_dtype)x->dtype;
    x = wb__dtype_float(t) ? wb_neg(x) : wb_sub(wb__literal(t == WB_U8 ? 255 : -1, t), x);
    return wb__frame_end(f, wb__reduce(WB__OP_argmax, x, 1u << a, false));
}

wb_tensor *wb_onecold(wb_tensor *scores)
{
    return wb__operand("onecold", scores) ? wb_argmax(scores, -1) : NULL;
}

/* Returns g summed to the shape `dims`, which broadcasts to the shape of g. */
wb_tensor *wb__sum_to(wb_tensor *g, int ndim, const int64_t *dims)
{
    if (!g) return NULL;
    unsigned mask = 0;
    int lead = g->ndim - ndim;
    for (int i = 0; i < g->ndim; i++)
        if (i < lead || (dims[i - lead] == 1 && g->dims[i] != 1)) mask |= 1u << i;
    if (mask) g = wb__reduce(WB__OP_sum, g, mask, mask >> lead != 0);
    return g && g->ndim != ndim ? wb_reshape_array(g, ndim, dims) : g;
}

/* Returns g in the shape of the node's operand, but with size 1 along the reduced axes. */
static wb_tensor *expand_reduced(wb_tensor *node, wb_tensor *g)
{
    const wb_tensor *x = node->in[0];
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = node->attr[0] >> i & 1 ? 1 : x->dims[i];
    return wb_reshape_array(g, x->ndim, dims);
}

GRADIENT(sum)
{
    const wb_tensor *x = node->in[0];
    /* if only leading axes were reduced, g broadcasts to x's shape as it is */
    const bool leading = !(node->attr[0] & (node->attr[0] + 1));
    out[0] = wb_expand_array(leading ? g : expand_reduced(node, g), x->ndim, x->dims);
}

/* The gradient is shared equally by all elements that equal the maximum or minimum. */
GRADIENT(extreme)
{
    wb_tensor *x = node->in[0];
    wb_tensor *here = wb_eq(x, expand_reduced(node, node));
    wb_tensor *count =
        wb__reduce(WB__OP_sum, wb_astype(here, (wb_dtype)x->dtype), (unsigned)node->attr[0], true);
    out[0] = wb_where(here, wb_div(expand_reduced(node, g), count),
                      wb__literal(0, (wb_dtype)g->dtype));
}
