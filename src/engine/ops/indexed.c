/* Elements by index along an axis, and rows combined by index.  All operations use wb_take and the
 * scatter operations, which take whole rows: an index along an axis becomes an index into the
 * elements of the flattened tensor, or into its rows behind the axis. */
#include "base/options.h"
#include "engine/ops/op.h"

#include <string.h>

static bool is_index_tensor(const char *what, const wb_tensor *index)
{
    if (!wb__operand(what, index)) return false;
    if (!wb__dtype_float((wb_dtype)index->dtype) && index->dtype != WB_BOOL) return true;
    return !wb__fail(WB_ERROR_DTYPE, "%s: the index is %s, not of integers", what,
                     wb_describe(index));
}

/* Returns the dtype of indices into n elements. */
static wb_dtype index_dtype_for(int64_t n) { return n - 1 > INT32_MAX ? WB_I64 : WB_I32; }

/* Returns index · step + base in the dtype t, or -1 where the index is not in 0 .. n-1. */
static wb_tensor *offset_index(wb_tensor *index, int64_t n, int64_t step, wb_tensor *base,
                               wb_dtype t)
{
    index = wb__as(index, index->dtype == WB_I64 ? WB_I64 : WB_I32);
    if (!index || !base) return NULL;
    const wb_dtype of = (wb_dtype)index->dtype;
    if (of == WB_I32 && n > INT32_MAX) n = INT32_MAX;
    wb_tensor *inside = wb_and(wb_ge(index, wb__literal(0, of)),
                               wb_lt(index, wb__literal((double)n, of)));
    wb_tensor *at = wb_mul(wb__as(index, t), wb__literal((double)step, t));
    return wb_where(inside, wb_add(at, base), wb__literal(-1, t));
}

static wb_tensor *take_axis(wb_tensor *x, wb_tensor *index, int axis)
{
    const int a = wb__axis("take", x, axis);
    if (a < 0 || !is_index_tensor("take", index)) return NULL;
    if (!a) return wb__take_rows(x, index);
    const int ndim = x->ndim + index->ndim - 1;
    int64_t dims[WB_MAX_DIMS], outer = 1, inner = 1;
    if (ndim > WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE, "take: axis %d of %s by %s", axis, wb_describe(x),
                             wb_describe(index));
    for (int i = 0; i < a; i++) outer *= dims[i] = x->dims[i];
    for (int i = 0; i < index->ndim; i++) dims[a + i] = index->dims[i];
    for (int i = a + 1; i < x->ndim; i++) inner *= dims[index->ndim + i - 1] = x->dims[i];
    const int64_t n = x->dims[a];
    if (wb__unlikely(wb__checks) && !wb__indices_below("take", index, n)) return NULL;
    const wb_dtype t = index_dtype_for(outer * n);
    wb_tensor *base = wb_mul(wb_reshape_array(wb_arange(outer, t), 2, (int64_t[]){outer, 1}),
                             wb__literal((double)n, t));
    wb_tensor *at = offset_index(wb_reshape_array(index, 1, &index->size), n, 1, base, t);
    x = wb_reshape_array(x, 2, (int64_t[]){outer * n, inner});
    wb_tensor *y = at && x ? wb__take_rows(x, at) : NULL;
    return y ? wb_reshape_array(y, ndim, dims) : NULL;
}

wb_tensor *wb_take_with(wb_tensor *x, wb_tensor *index, const wb_take_options *given)
{
    wb_take_options o;
    if (!wb__read_options("take", wb_take_options, &o, given, NULL)) return NULL;
    if (!o.axis) return wb__take_rows(x, index);
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, take_axis(x, index, o.axis));
}

/* Returns, for each element of a result of shape `dims`, its index in x flattened.  `index` has as
 * many axes as x; its numbers count along `axis`; each other axis has x's size or 1. */
static wb_tensor *flat_index(const wb_tensor *x, wb_tensor *index, int axis, const int64_t *dims)
{
    const wb_dtype t = index_dtype_for(x->size);
    wb_tensor *base = wb__literal(0, t);
    int64_t step[WB_MAX_DIMS + 1];
    step[x->ndim] = 1;
    for (int i = x->ndim - 1; i >= 0; i--)
        step[i] = step[i + 1] * x->dims[i];
    for (int i = 0; i < x->ndim && base; i++) {
        int64_t along[WB_MAX_DIMS];
        if (i == axis || x->dims[i] == 1) continue;
        for (int j = 0; j < x->ndim; j++) along[j] = j == i ? dims[i] : 1;
        base = wb_add(base, wb_mul(wb_reshape_array(wb_arange(dims[i], t), x->ndim, along),
                                   wb__literal((double)step[i + 1], t)));
    }
    wb_tensor *at = offset_index(index, x->dims[axis], step[axis + 1], base, t);
    return at ? wb_expand_array(at, x->ndim, dims) : NULL;
}

static wb_tensor *indexed_take_along(wb_tensor *x, wb_tensor *index, int axis)
{
    const int a = wb__axis("take_along", x, axis);
    if (a < 0 || !is_index_tensor("take_along", index) || !wb__one_device("take_along", x, index))
        return NULL;
    int64_t dims[WB_MAX_DIMS];
    bool fits = index->ndim == x->ndim;
    for (int i = 0; i < x->ndim && fits; i++) {
        fits = i == a || index->dims[i] == x->dims[i] || index->dims[i] == 1 || x->dims[i] == 1;
        dims[i] = i == a || x->dims[i] == 1 ? index->dims[i] : x->dims[i];
    }
    if (!fits)
        return wb__fail_null(WB_ERROR_SHAPE, "take_along: %s by %s: they have the same axes, and "
                             "sizes that broadcast along all but axis %d", wb_describe(x),
                             wb_describe(index), axis);
    if (wb__unlikely(wb__checks) && !wb__indices_below("take_along", index, x->dims[a]))
        return NULL;
    wb_tensor *at = flat_index(x, index, a, dims), *flat = wb_reshape_array(x, 1, &x->size);
    return at && flat ? wb_take(flat, at) : NULL;
}

wb_tensor *wb_take_along(wb_tensor *x, wb_tensor *index, int axis)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, indexed_take_along(x, index, axis));
}

static const char *const indexed_names[] = {"WB_SCATTER_ADD", "WB_SCATTER_MUL", "WB_SCATTER_MAX",
                                            "WB_SCATTER_MIN", "WB_SCATTER_MEAN", "WB_SCATTER_SET"};

/* Returns x [n, ...] with `rows` in the places that index names; the last of equal indices wins. */
static wb_tensor *indexed_set_rows(wb_tensor *x, wb_tensor *index, wb_tensor *rows)
{
    if (!x || !index || !rows) return NULL;
    return wb__node(WB__OP_scatter_set, (wb_dtype)x->dtype, x->ndim, x->dims, 3,
                    (wb_tensor *[]){index, rows, x}, 0, NULL);
}

/* Returns the rows, combined by index, as [n, ...]. */
static wb_tensor *combine_rows(wb__op op, wb_tensor *index, wb_tensor *rows, int64_t n)
{
    if (!index || !rows) return NULL;
    int64_t dims[WB_MAX_DIMS] = {n};
    const int ndim = 1 + rows->ndim - index->ndim;
    for (int i = 1; i < ndim; i++) dims[i] = rows->dims[index->ndim + i - 1];
    return wb__node(op, (wb_dtype)rows->dtype, ndim, dims, 2, (wb_tensor *[]){index, rows}, 0,
                    NULL);
}

static bool read_scatter_options(const char *what, const wb_tensor *x,
                                 const wb_scatter_options *given, wb_scatter_options *o)
{
    if (!wb__read_options(what, wb_scatter_options, o, given, NULL)) return false;
    if ((unsigned)o->reduce >= WB__COUNT(indexed_names))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .reduce is %d; it is one of WB_SCATTER_ADD to "
                         "WB_SCATTER_SET", what, (int)o->reduce);
    if (x->dtype == WB_BOOL && o->reduce != WB_SCATTER_SET)
        return !wb__fail(WB_ERROR_DTYPE, "%s: %s does not take %s", what, indexed_names[o->reduce],
                         wb_describe(x));
    if (o->reduce != WB_SCATTER_MEAN || wb__dtype_float((wb_dtype)x->dtype)) return true;
    return !wb__fail(WB_ERROR_DTYPE, "%s: %s needs a floating tensor, got %s", what,
                     indexed_names[o->reduce], wb_describe(x));
}

/* Combines rows with x [n, ...]: index [m], rows [m, ...]; x and rows have one dtype. */
static wb_tensor *scatter_into(wb_tensor *x, wb_tensor *index, wb_tensor *rows,
                               const wb_scatter_options *o)
{
    static const wb__op ops[] = {WB__OP_scatter_add, WB__OP_scatter_mul, WB__OP_scatter_max,
                                 WB__OP_scatter_min, WB__OP_scatter_add};
    if (!x || !index || !rows) return NULL;
    if (o->reduce == WB_SCATTER_SET) return indexed_set_rows(x, index, rows);
    const wb_dtype dtype = (wb_dtype)x->dtype;
    const bool mean = o->reduce == WB_SCATTER_MEAN;
    x = wb__wide(x);
    rows = wb__wide(rows);
    if (!x || !rows) return NULL;
    const int64_t n = x->dims[0];
    wb_tensor *all = combine_rows(ops[o->reduce], index, rows, n);
    if (o->reduce == WB_SCATTER_ADD && !o->exclude_self)
        return wb__as(wb_add(x, all), dtype);
    int64_t one[WB_MAX_DIMS] = {n};         /* number of rows that each row of x gets */
    for (int i = 1; i < x->ndim; i++) one[i] = 1;
    wb_tensor *count = combine_rows(WB__OP_scatter_add, index,
                                    wb_full_array(1, WB_I32, 1, index->dims), n);
    count = count ? wb_reshape_array(count, x->ndim, one) : NULL;
    wb_tensor *any = count ? wb_ne(count, wb__literal(0, WB_I32)) : NULL;
    wb_tensor *number = mean ? wb__as(count, (wb_dtype)x->dtype) : NULL;
    if (mean && !o->exclude_self)
        return wb__as(wb_div(wb_add(x, all),
                             wb_add(number, wb__literal(1, (wb_dtype)x->dtype))), dtype);
    if (mean) all = wb_div(all, wb_maximum(number, wb__literal(1, (wb_dtype)x->dtype)));
    else if (o->exclude_self) {}
    else if (o->reduce == WB_SCATTER_MUL) all = wb_mul(x, all);
    else if (o->reduce == WB_SCATTER_MAX) all = wb_maximum(x, all);
    else all = wb_minimum(x, all);
    return wb__as(wb_where(any, all, x), dtype);
}

/* Whether x and the rows have one dtype and device. */
static bool have_rows_type_of(const char *what, const wb_tensor *x, const wb_tensor *rows)
{
    if (!wb__operand(what, rows) || !wb__one_device(what, x, rows)) return false;
    if (x->dtype == rows->dtype) return true;
    return !wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(x),
                     wb_describe(rows));
}

static wb_tensor *scatter_rows(wb_tensor *x, wb_tensor *index, wb_tensor *rows,
                               const wb_scatter_options *options)
{
    wb_scatter_options o;
    if (!wb__operand("scatter", x) || !is_index_tensor("scatter", index) ||
        !have_rows_type_of("scatter", x, rows) || !wb__one_device("scatter", x, index) ||
        !read_scatter_options("scatter", x, options, &o))
        return NULL;
    bool fits = x->ndim && rows->ndim == index->ndim + x->ndim - 1;
    for (int i = 0; i < index->ndim && fits; i++) fits = rows->dims[i] == index->dims[i];
    for (int i = 1; i < x->ndim && fits; i++)
        fits = rows->dims[index->ndim + i - 1] == x->dims[i];
    if (!fits)
        return wb__fail_null(WB_ERROR_SHAPE, "scatter: rows %s by index %s do not fit %s",
                             wb_describe(rows), wb_describe(index), wb_describe(x));
    if (wb__unlikely(wb__checks) && !wb__indices_below("scatter", index, x->dims[0])) return NULL;
    int64_t dims[WB_MAX_DIMS] = {index->size};
    for (int i = 1; i < x->ndim; i++) dims[i] = x->dims[i];
    return scatter_into(x, wb_reshape_array(index, 1, &index->size),
                        wb_reshape_array(rows, x->ndim, dims), &o);
}

wb_tensor *wb_scatter_with(wb_tensor *x, wb_tensor *index, wb_tensor *rows,
                           const wb_scatter_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, scatter_rows(x, index, rows, o));
}

static wb_tensor *scatter_along(wb_tensor *x, wb_tensor *index, wb_tensor *values, int axis,
                                const wb_scatter_options *options)
{
    const char *what = "scatter_along";
    wb_scatter_options o;
    const int a = wb__axis(what, x, axis);
    if (a < 0 || !is_index_tensor(what, index) || !have_rows_type_of(what, x, values) ||
        !wb__one_device(what, x, index) || !read_scatter_options(what, x, options, &o))
        return NULL;
    int64_t dims[WB_MAX_DIMS];
    bool fits = index->ndim == x->ndim && values->ndim == x->ndim;
    for (int i = 0; i < x->ndim && fits; i++) {
        dims[i] = i == a ? values->dims[i] : x->dims[i];
        fits = values->dims[i] == dims[i] &&
               (index->dims[i] == dims[i] || (i != a && index->dims[i] == 1));
    }
    if (!fits)
        return wb__fail_null(WB_ERROR_SHAPE, "scatter_along: values %s by index %s do not fit %s "
                             "along axis %d", wb_describe(values), wb_describe(index),
                             wb_describe(x), axis);
    if (wb__unlikely(wb__checks) && !wb__indices_below(what, index, x->dims[a])) return NULL;
    wb_tensor *at = flat_index(x, index, a, dims);
    wb_tensor *y = scatter_into(wb_reshape_array(x, 1, &x->size),
                                at ? wb_reshape_array(at, 1, &at->size) : NULL,
                                wb_reshape_array(values, 1, &values->size), &o);
    return y ? wb_reshape_array(y, x->ndim, x->dims) : NULL;
}

wb_tensor *wb_scatter_along_with(wb_tensor *x, wb_tensor *index, wb_tensor *values, int axis,
                                 const wb_scatter_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, scatter_along(x, index, values, axis, o));
}

static wb_tensor *zero_of_dtype(const wb_tensor *x) { return wb__literal(0, (wb_dtype)x->dtype); }

/* Sets the gradient of a row to g times the product of the other rows with the same index.  If one
 * of the rows is 0, the other rows have the gradient 0; if several are 0, all have. */
GRADIENT(scatter_mul)
{
    if (!wanted[1]) return;
    wb_tensor *index = node->in[0], *rows = node->in[1];
    const int64_t n = node->dims[0];
    wb_tensor *none = wb_eq(rows, zero_of_dtype(rows));
    wb_tensor *nonzero = wb_where(none, wb__literal(1, (wb_dtype)rows->dtype), rows);
    wb_tensor *product = combine_rows(WB__OP_scatter_mul, index, nonzero, n);
    wb_tensor *zeros = combine_rows(WB__OP_scatter_add, index, wb_astype(none, WB_I32), n);
    if (!product || !zeros) return;
    wb_tensor *others = wb_sub(wb_take(zeros, index), wb_astype(none, WB_I32));
    out[1] = wb_where(wb_eq(others, wb__literal(0, WB_I32)),
                      wb_mul(wb_take(g, index), wb_div(wb_take(product, index), nonzero)),
                      zero_of_dtype(g));
}

/* Rows that equal the extreme share its gradient equally. */
GRADIENT(scatter_extreme)
{
    if (!wanted[1]) return;
    wb_tensor *index = node->in[0], *rows = node->in[1];
    wb_tensor *here = wb_eq(rows, wb_take(node, index));
    wb_tensor *count = combine_rows(WB__OP_scatter_add, index,
                                    wb__as(here, (wb_dtype)rows->dtype), node->dims[0]);
    if (count)
        out[1] = wb_where(here, wb_div(wb_take(g, index), wb_take(count, index)), zero_of_dtype(g));
}

/* The last row with an index has the gradient of its place, and x that of all other places. */
GRADIENT(scatter_set)
{
    wb_tensor *index = node->in[0], *rows = node->in[1];
    if (wanted[1]) {
        const wb_dtype t = index_dtype_for(index->size);
        wb_tensor *place = wb_arange(index->size, t);
        wb_tensor *last = indexed_set_rows(wb_full_array(0, t, 1, node->dims), index, place);
        if (!last) return;
        int64_t dims[WB_MAX_DIMS] = {index->size};
        for (int i = 1; i < rows->ndim; i++) dims[i] = 1;
        wb_tensor *kept = wb_reshape_array(wb_eq(wb_take(last, index), place), rows->ndim, dims);
        out[1] = wb_where(kept, wb_take(g, index), zero_of_dtype(g));
    }
    if (wanted[2])
        out[2] = indexed_set_rows(g, index,
                                  wb_full_array(0, (wb_dtype)g->dtype, rows->ndim, rows->dims));
}
