/* Operations that put parts of tensors in other places: strided slices, assignment to a slice as a
 * value, splits, rolled, repeated and tiled tensors, triangles. */
#include "base/options.h"
#include "engine/ops/op.h"

#include <string.h>

/* Sets *from and *to to the bounds of a slice, counted from the start of the axis.  Returns the
 * axis, or -1 with the error set. */
static int arrange_bounds(const char *what, const wb_tensor *x, int axis, int64_t start,
                          int64_t stop, int64_t *from, int64_t *to)
{
    const int a = wb__axis(what, x, axis);
    if (a < 0) return -1;
    const int64_t n = x->dims[a];
    *from = start < 0 ? start + n : start;
    *to = stop < 0 ? stop + n : stop;
    if (*from >= 0 && *to <= n && *from <= *to) return a;
    wb__fail(WB_ERROR_SHAPE, "%s: %lld to %lld of axis %d of %s", what, (long long)start,
             (long long)stop, axis, wb_describe(x));
    return -1;
}

wb_tensor *wb_slice_with(wb_tensor *x, int axis, int64_t start, int64_t stop,
                         const wb_slice_options *given)
{
    wb_slice_options o;
    int64_t from, to, dims[WB_MAX_DIMS], starts[WB_MAX_DIMS] = {0}, steps[WB_MAX_DIMS];
    const int a = arrange_bounds("slice", x, axis, start, stop, &from, &to);
    if (a < 0 || !wb__read_options("slice", wb_slice_options, &o, given, NULL)) return NULL;
    if (o.step < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "slice: the step is %lld; it is 1 or more; "
                             "wb_flip reverses an axis", (long long)o.step);
    for (int i = 0; i < x->ndim; i++) {
        dims[i] = i == a ? (to - from) / o.step + ((to - from) % o.step != 0) : x->dims[i];
        steps[i] = i == a ? o.step : 1;
    }
    if (dims[a] == x->dims[a]) return wb__unchanged(x);
    starts[a] = from;
    return wb__slice_at(x, starts, dims, o.step > 1 && dims[a] > 1 ? steps : NULL);
}

/* Returns `values` in the dtype of x and in the shape `dims`.  NULL: failed. */
static wb_tensor *fit_values(const wb_tensor *x, wb_tensor *values, const int64_t *dims)
{
    if (values->flags & WB__WEAK) {
        const double v = values->number[0].f;
        if (!wb__dtype_float((wb_dtype)x->dtype) && !wb__holds((wb_dtype)x->dtype, v))
            return wb__fail_null(WB_ERROR_DTYPE, "set_slice: %g does not fit into %s", v,
                                 wb_describe(x));
        values = wb__as(values, (wb_dtype)x->dtype);
    }
    if (values && values->dtype != x->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "set_slice: dtypes differ: %s · %s", wb_describe(x),
                             wb_describe(values));
    return values ? wb_expand_array(values, x->ndim, dims) : NULL;
}

/* Sets the slice [from, to) of x to values that are the same along the axis, by a mask.  Its bounds
 * are run-time arguments, so that one plan serves all places. */
static wb_tensor *set_by_mask(wb_tensor *x, int axis, int64_t from, int64_t to, wb_tensor *values)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == axis ? x->dims[i] : 1;
    wb_tensor *at = wb_reshape_array(wb_arange(x->dims[axis], WB_I64), x->ndim, dims);
    wb_tensor *inside = wb_and(wb_ge(at, wb__argument((double)from, WB_I64)),
                               wb_lt(at, wb__argument((double)to, WB_I64)));
    return wb_where(inside, values, x);
}

static wb_tensor *set_slice(wb_tensor *x, int axis, int64_t start, int64_t stop, wb_tensor *values)
{
    int64_t from, to, dims[WB_MAX_DIMS];
    const int a = arrange_bounds("set_slice", x, axis, start, stop, &from, &to);
    if (a < 0 || !wb__operand("set_slice", values) || !wb__one_device("set_slice", x, values))
        return NULL;
    memcpy(dims, x->dims, sizeof dims);
    dims[a] = to - from;
    const int behind = x->ndim - a;         /* number of axes from `a` on */
    const bool same = values->ndim < behind || values->dims[values->ndim - behind] == 1;
    if (same) dims[a] = 1;
    if (!(values = fit_values(x, values, dims))) return NULL;
    if (from == to) return wb__unchanged(x);
    if (same) return set_by_mask(x, a, from, to, values);
    wb_tensor *part[3];
    int n = 0;
    if (from) part[n++] = wb_slice(x, a, 0, from);
    part[n++] = values;
    if (to < x->dims[a]) part[n++] = wb_slice(x, a, to, x->dims[a]);
    for (int i = 0; i < n; i++)
        if (!part[i]) return NULL;
    return wb_concat_array(a, n, part);
}

wb_tensor *wb_set_slice(wb_tensor *x, int axis, int64_t start, int64_t stop, wb_tensor *values)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, set_slice(x, axis, start, stop, values));
}

int wb_split_with(wb_tensor *x, int axis, int n, wb_tensor **parts, const wb_split_options *given)
{
    wb_split_options o;
    wb__given g;
    if (n > 0 && parts) memset(parts, 0, (size_t)n * sizeof *parts);
    const int a = wb__axis("split", x, axis);
    if (a < 0 || !wb__read_options("split", wb_split_options, &o, given, &g) ||
        wb__is_given_null("split", &g, "sizes", o.sizes))
        return wb_error_code();
    if (n < 1 || !parts)
        return wb__fail(WB_ERROR_ARGUMENT,
                        n < 1 ? "split: %d parts" : "split: no array of %d parts", n);
    const int64_t size = x->dims[a];
    if (!o.sizes && size % n)
        return wb__fail(WB_ERROR_SHAPE, "split: axis %d of %s into %d equal parts; .sizes makes "
                        "parts of other sizes", axis, wb_describe(x), n);
    int64_t total = 0;
    for (int i = 0; o.sizes && i < n; total += o.sizes[i++])
        if (o.sizes[i] < 0 || o.sizes[i] > size - total)
            return wb__fail(WB_ERROR_SHAPE, "split: part %d has the size %lld; %lld of axis %d of "
                            "%s are left", i, (long long)o.sizes[i], (long long)(size - total),
                            axis, wb_describe(x));
    if (o.sizes && total != size)
        return wb__fail(WB_ERROR_SHAPE, "split: the sizes sum to %lld, but axis %d is that of %s",
                        (long long)total, axis, wb_describe(x));
    int64_t from = 0;
    for (int i = 0; i < n; i++) {
        const int64_t to = from + (o.sizes ? o.sizes[i] : size / n);
        parts[i] = wb_slice(x, a, from, to);
        if (!parts[i]) {
            memset(parts, 0, (size_t)n * sizeof *parts);
            return wb_error_code();
        }
        from = to;
    }
    return 0;
}

static wb_tensor *arrange_roll(wb_tensor *x, int axis, int64_t shift)
{
    const int a = wb__axis("roll", x, axis);
    if (a < 0) return NULL;
    const int64_t n = x->dims[a], first = n ? (n - (shift % n + n) % n) % n : 0;
    if (!first) return wb__unchanged(x);
    wb_tensor *part[2] = {wb_slice(x, a, first, n), wb_slice(x, a, 0, first)};
    return part[0] && part[1] ? wb_concat_array(a, 2, part) : NULL;
}

wb_tensor *wb_roll(wb_tensor *x, int axis, int64_t shift)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, arrange_roll(x, axis, shift));
}

/* Returns x with n copies of each element along the axis, or, if `whole`, of the whole axis. */
static wb_tensor *repeat_elements(const char *what, wb_tensor *x, int axis, int64_t n, bool whole)
{
    const int a = wb__axis(what, x, axis);
    if (a < 0) return NULL;
    if (n < 0)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %lld copies", what, (long long)n);
    if (n == 1) return wb__unchanged(x);
    int64_t dims[WB_MAX_DIMS], size, outer = 1, inner = 1;
    memcpy(dims, x->dims, sizeof dims);
    if (__builtin_mul_overflow(dims[a], n, &dims[a]) || n > UINT32_MAX)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %lld copies of %s are too many", what,
                             (long long)n, wb_describe(x));
    if (!wb__check_dims(what, x->ndim, dims, &size)) return NULL;
    for (int i = 0; i < x->ndim; i++)
        if (i < a || (i == a && !whole)) outer *= x->dims[i];
        else inner *= x->dims[i];
    wb_tensor *y = wb_reshape_array(x, 3, (int64_t[]){outer, 1, inner});
    y = y ? wb_expand_array(y, 3, (int64_t[]){outer, n, inner}) : NULL;
    return y ? wb_reshape_array(y, x->ndim, dims) : NULL;
}

wb_tensor *wb_repeat(wb_tensor *x, int axis, int64_t n)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, repeat_elements("repeat", x, axis, n, false));
}

static wb_tensor *arrange_tile(wb_tensor *x, int n, const int64_t *counts)
{
    if (!wb__operand("tile", x)) return NULL;
    if (n < 0 || n > WB_MAX_DIMS || (n && !counts))
        return wb__fail_null(WB_ERROR_ARGUMENT, "tile: counts for %d axes; 0 to %d are possible", n,
                             WB_MAX_DIMS);
    if (n > x->ndim) {                      /* x gets axes of size 1 in front */
        int64_t dims[WB_MAX_DIMS];
        for (int i = 0; i < n; i++) dims[i] = i < n - x->ndim ? 1 : x->dims[i - (n - x->ndim)];
        x = wb_reshape_array(x, n, dims);
    }
    wb_tensor *y = x;
    for (int i = 0; i < n && y; i++)
        y = repeat_elements("tile", y, x->ndim - n + i, counts[i], true);
    return y == x && y ? wb__unchanged(y) : y;
}

wb_tensor *wb_tile_array(wb_tensor *x, int n, const int64_t *counts)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, arrange_tile(x, n, counts));
}

static wb_tensor *arrange_triangle(const char *what, wb_tensor *x, int64_t diagonal, bool lower)
{
    if (!wb__operand(what, x)) return NULL;
    if (x->ndim < 2)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s has fewer than two axes", what,
                             wb_describe(x));
    const int64_t rows = x->dims[x->ndim - 2], columns = x->dims[x->ndim - 1];
    const double shift = (double)WB__MAX(WB__MIN(diagonal, columns), -rows);
    wb_tensor *row = wb_add(wb_reshape_array(wb_arange(rows, WB_I64), 2, (int64_t[]){rows, 1}),
                            wb__argument(shift, WB_I64));
    wb_tensor *column = wb_arange(columns, WB_I64);
    return wb_where(lower ? wb_le(column, row) : wb_ge(column, row), x,
                    wb__literal(0, (wb_dtype)x->dtype));
}

wb_tensor *wb_tril(wb_tensor *x, int64_t diagonal)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, arrange_triangle("tril", x, diagonal, true));
}

wb_tensor *wb_triu(wb_tensor *x, int64_t diagonal)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, arrange_triangle("triu", x, diagonal, false));
}
