/* Writes reductions, rows by index, sums along an axis and sorting in operators of ONNX. */
#include "io/onnx/writer.h"

#include <math.h>
#include <string.h>

/* Returns the dtype in which rows are reduced and sorted: i32 for 8-bit integers. */
static wb_dtype onnx_put_widened(wb_dtype t) { return t == WB_I8 || t == WB_U8 ? WB_I32 : t; }

static const char *onnx_put_operand(wb__exporter *w, int step, wb_dtype *t)
{
    const int of = w->steps[step].in[0];
    const wb_dtype from = wb__export_dtype_of(w, of);
    *t = onnx_put_widened(from);
    return wb__export_cast(w, wb__export_value(w, of), from, *t);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static int onnx_put_axes_of(wb__exporter *w, int step, int64_t *axes)
{
    const unsigned mask = (unsigned)wb__export_fixed_attr(w, step, 0);
    int n = 0;
    for (int i = 0; i < WB_MAX_DIMS; i++)
        if (mask >> i & 1) axes[n++] = i;
    return n;
}

/* Writes a reduction.  In opset 17 ReduceSum has its axes as an input, others as an attribute. */
static const char *onnx_put_reduce(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    const wb__op op = (wb__op)s->x[0]->op;
    int64_t axes[WB_MAX_DIMS];
    wb_dtype t;
    const int n = onnx_put_axes_of(w, step, axes);
    const char *x = onnx_put_operand(w, step, &t);
    if (n) {
        const char *in[2] = {x, op == WB__OP_sum ? wb__export_list(w, n, axes) : NULL};
        wb__export_begin(w, op == WB__OP_sum ? "ReduceSum" : op == WB__OP_max ? "ReduceMax"
                                                                            : "ReduceMin",
                         op == WB__OP_sum ? 2 : 1, in);
        if (op != WB__OP_sum) wb__export_put_ints(w, "axes", n, axes);
        wb__export_put_int(w, "keepdims", s->x[0]->ndim == wb__export_x(w, s->in[0])->ndim);
        x = wb__export_end(w);
    }
    return wb__export_cast(w, x, t, wb__export_dtype_of(w, step));
}

static const char *onnx_put_argmax(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    int64_t axes[WB_MAX_DIMS];
    wb_dtype t;
    if (onnx_put_axes_of(w, step, axes) != 1)
        return wb__export_cannot(w, "chooses along several axes");
    const char *x = onnx_put_operand(w, step, &t);
    wb__export_begin(w, "ArgMax", 1, &x);
    wb__export_put_int(w, "axis", axes[0]);
    wb__export_put_int(w, "keepdims", s->x[0]->ndim == wb__export_x(w, s->in[0])->ndim);
    return wb__export_cast(w, wb__export_end(w), WB_I64, WB_I32);
}

static const char *onnx_put_cumsum(wb__exporter *w, int step)
{
    enum { AXIS, EXCLUSIVE, REVERSE };
    wb_dtype t;
    const char *x = onnx_put_operand(w, step, &t);
    const int64_t axis = wb__export_fixed_attr(w, step, AXIS);
    const char *in[2] = {x, wb__export_number(w, WB_I64, (double)axis)};
    wb__export_begin(w, "CumSum", 2, in);
    if (wb__export_fixed_attr(w, step, EXCLUSIVE)) wb__export_put_int(w, "exclusive", 1);
    if (wb__export_fixed_attr(w, step, REVERSE)) wb__export_put_int(w, "reverse", 1);
    return wb__export_cast(w, wb__export_end(w), t, wb__export_dtype_of(w, step));
}

/* Writes the indices of all elements in sorted order: the second result of a TopK of all elements.
 * Of equal elements the first comes first. */
static const char *onnx_put_argsort(wb__exporter *w, int step)
{
    enum { AXIS, DESCENDING };
    const int axis = (int)wb__export_fixed_attr(w, step, AXIS);
    wb_dtype t;
    const char *x = onnx_put_operand(w, step, &t);
    const char *in[2] = {x, wb__export_sizes(w, 1, &w->steps[step].dims[axis])};
    wb__export_second_result(w);
    wb__export_begin(w, "TopK", 2, in);
    wb__export_put_int(w, "axis", axis);
    wb__export_put_int(w, "largest", wb__export_fixed_attr(w, step, DESCENDING));
    return wb__export_cast(w, wb__export_end(w), WB_I64, WB_I32);
}

/* ---- indices --------------------------------------------------------------------------------- */

/* Whether the step, which depends on no input, has the same numbers in all recordings, and all are
 * in 0 .. n - 1. */
static bool onnx_put_numbers_below(const wb__exporter *w, const wb__export_step *s,
                                   wb__export_size n)
{
    wb_tensor *x = s->x[0];
    const wb_dtype t = (wb_dtype)x->dtype;
    const char *data = n.k ? NULL : wb_data(x);
    bool below = data != NULL;
    for (int64_t i = 0; below && i < x->size; i++) {
        int64_t v;
        wb__convert(&v, WB_I64, data + (size_t)i * wb__dtype_size(t), t, 1);
        below = v >= 0 && v < n.c;
    }
    for (int r = 1; below && r < w->records; r++) {
        const void *other = wb__same_dims(x, s->x[r]) ? wb_data(s->x[r]) : NULL;
        below = other && !memcmp(data, other, (size_t)x->size * wb__dtype_size(t));
    }
    return below;
}

static bool onnx_put_is_at_most(wb__export_size a, wb__export_size n)
{
    return wb__export_same(a, n) || (!a.k && !n.k && a.c <= n.c);
}

/* Whether the indices are in 0 .. n - 1 for all inputs of the model. */
static bool onnx_put_in_range(const wb__exporter *w, int i, wb__export_size n)
{
    for (int steps = 0; steps < 16; steps++) {
        const wb__export_step *s = &w->steps[i];
        const wb_tensor *x = s->x[0];
        if (s->input >= 0 || s->parameter >= 0) return false;
        if (x->op == WB__OP_iota || x->op == WB__OP_argsort)
            return onnx_put_is_at_most(s->dims[x->attr[0]], n);
        if (!s->varies) return onnx_put_numbers_below(w, s, n);
        if (x->op == WB__OP_argmax) {
            const wb__export_step *of = &w->steps[s->in[0]];
            for (int k = 0; k < of->x[0]->ndim; k++)
                if (x->attr[0] >> k & 1) return onnx_put_is_at_most(of->dims[k], n);
            return false;
        }
        if (x->op != WB__OP_cast && x->op != WB__OP_reshape && x->op != WB__OP_permute &&
            x->op != WB__OP_expand && x->op != WB__OP_slice && x->op != WB__OP_stop)
            return false;
        i = s->in[0];
    }
    return false;
}

/* Writes indices as i64.  If they may be out of range, sets *inside to a mask of those in range and
 * replaces the others by `otherwise`; else sets *inside to NULL. */
static const char *onnx_put_indices(wb__exporter *w, int index, wb__export_size n,
                                    const char *otherwise, const char **inside)
{
    const wb_dtype from = wb__export_dtype_of(w, index);
    const char *x = wb__export_cast(w, wb__export_value(w, index), from, WB_I64);
    *inside = NULL;
    if (onnx_put_in_range(w, index, n)) return x;
    const char *low = WB__PUT(w, "GreaterOrEqual", x, wb__export_number(w, WB_I64, 0));
    *inside = WB__PUT(w, "And", low, WB__PUT(w, "Less", x, wb__export_size_number(w, n)));
    return WB__PUT(w, "Where", *inside, x, otherwise);
}

/* Writes x, which has `ndim` axes, with `more` axes of size 1 behind them. */
static const char *onnx_put_with_axes(wb__exporter *w, const char *x, int ndim, int more)
{
    int64_t axes[WB_MAX_DIMS];
    for (int i = 0; i < more; i++) axes[i] = ndim + i;
    return more ? WB__PUT(w, "Unsqueeze", x, wb__export_list(w, more, axes)) : x;
}

/* Writes rows by index.  Rows of an index out of range are 0 in Weber; ONNX counts negative indices
 * from the end, and refuses others. */
static const char *onnx_put_take(wb__exporter *w, int step)
{
    const int x = w->steps[step].in[0], index = w->steps[step].in[1];
    const char *inside, *rows = wb__export_value(w, x);
    const char *zero = wb__export_number(w, WB_I64, 0);
    const char *at = onnx_put_indices(w, index, w->steps[x].dims[0], zero, &inside);
    const char *y = WB__PUT(w, "Gather", rows, at);
    if (!inside) return y;
    inside = onnx_put_with_axes(w, inside, wb__export_x(w, index)->ndim,
                                wb__export_x(w, x)->ndim - 1);
    const wb_dtype t = wb__export_dtype_of(w, step);
    return wb__export_where(w, inside, y, wb__export_number(w, t, 0), t);
}

/* ---- rows to places -------------------------------------------------------------------------- */

/* Writes a ScatterND of `rows` to [n + 1, ...] filled with `base`, and returns [n, ...]: the last
 * row receives the rows whose index is out of range. */
static const char *onnx_put_scattered(wb__exporter *w, int step, const char *at, const char *rows,
                                      const char *base, const char *reduction)
{
    const wb__export_step *s = &w->steps[step];
    const int index = s->in[0], ndim = s->x[0]->ndim;
    wb__export_size dims[WB_MAX_DIMS];
    memcpy(dims, s->dims, sizeof dims);
    dims[0].c++;
    const char *places = onnx_put_with_axes(w, at, wb__export_x(w, index)->ndim, 1);
    const char *in[3] = {wb__export_filled(w, base, ndim, dims), places, rows};
    wb__export_begin(w, "ScatterND", 3, in);
    wb__export_put_text(w, "reduction", reduction);
    const char *y = wb__export_end(w);
    const char *zero = wb__export_list(w, 1, (int64_t[]){0});
    return WB__PUT(w, "Slice", y, zero, wb__export_list(w, 1, (int64_t[]){-1}), zero);
}

/* Writes [n, rows]: whether row k has the index i. */
static const char *onnx_put_members(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    const int index = s->in[0];
    const wb_dtype t = wb__export_dtype_of(w, index);
    const char *x = wb__export_cast(w, wb__export_value(w, index), t, WB_I64);
    const char *places = onnx_put_with_axes(w, wb__export_range(w, s->dims[0]), 1, 1);
    x = WB__PUT(w, "Reshape", x, wb__export_list(w, 1, (int64_t[]){-1}));
    return WB__PUT(w, "Equal", places, x);
}

/* Writes the rows of the step, in the dtype t, as [rows, ...].  Sets *n to their number. */
static const char *onnx_put_flat_rows(wb__exporter *w, int step, wb_dtype t, wb__export_size *n)
{
    const wb__export_step *s = &w->steps[step];
    const wb__export_step *index = &w->steps[s->in[0]];
    *n = (wb__export_size){0, 1};
    for (int i = 0; i < index->x[0]->ndim; i++) {
        const wb__export_size d = index->dims[i];
        if (n->k && d.k) return wb__export_cannot(w, "has an index with two axes of the batch");
        *n = (wb__export_size){n->k * d.c + n->c * d.k, n->c * d.c};
    }
    wb__export_size dims[WB_MAX_DIMS];
    memcpy(dims, s->dims, sizeof dims);
    dims[0] = *n;
    const char *rows = wb__export_value(w, s->in[1]);
    rows = wb__export_cast(w, rows, wb__export_dtype_of(w, step), t);
    return wb__export_reshaped(w, rows, s->x[0]->ndim, dims);
}

/* Writes x [n, rows, ...] reduced over its rows by the operator. */
static const char *onnx_put_over_rows(wb__exporter *w, const char *op, const char *x)
{
    wb__export_begin(w, op, 1, &x);
    wb__export_put_ints(w, "axes", 1, (int64_t[]){1});
    wb__export_put_int(w, "keepdims", 0);
    return wb__export_end(w);
}

/* Writes the greatest or smallest of the rows of each index; opset 17 has no ScatterND for it. */
static const char *onnx_put_extreme(wb__exporter *w, int step, const char *op, double none)
{
    const int more = wb__export_x(w, step)->ndim - 1;
    const wb_dtype t = onnx_put_widened(wb__export_dtype_of(w, step));
    wb__export_size n;
    const char *member = onnx_put_members(w, step), *rows = onnx_put_flat_rows(w, step, t, &n);
    const char *any = onnx_put_over_rows(w, "ReduceMax",
                                         wb__export_cast(w, member, WB_BOOL, WB_I32));
    any = onnx_put_with_axes(w, wb__export_cast(w, any, WB_I32, WB_BOOL), 1, more);
    const char *all = WB__PUT(w, "Where", onnx_put_with_axes(w, member, 2, more), rows,
                              wb__export_number(w, t, none));
    const char *y = WB__PUT(w, "Where", any, onnx_put_over_rows(w, op, all),
                            wb__export_number(w, t, 0));
    return wb__export_cast(w, y, t, wb__export_dtype_of(w, step));
}

/* Writes x with a row replaced by the last row that has its index. */
static const char *onnx_put_replace_row(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    const wb_dtype t = wb__export_dtype_of(w, step);
    wb__export_size n;
    const char *member = onnx_put_members(w, step), *x = wb__export_value(w, s->in[2]);
    const char *rows = onnx_put_flat_rows(w, step, t, &n), *zero = wb__export_number(w, WB_I64, 0);
    const char *none = wb__export_number(w, WB_I64, -1);
    const char *last = WB__PUT(w, "Where", member, wb__export_range(w, n), none);
    last = onnx_put_over_rows(w, "ReduceMax", last);
    const char *any = WB__PUT(w, "GreaterOrEqual", last, zero);
    const char *taken = WB__PUT(w, "Gather", rows, WB__PUT(w, "Max", last, zero));
    return wb__export_where(w, onnx_put_with_axes(w, any, 1, s->x[0]->ndim - 1), taken, x, t);
}

/* Writes sums or products of the rows with each index; 0 where no row has the index. */
static const char *onnx_put_scatter(wb__exporter *w, int step, bool product)
{
    const wb__export_step *s = &w->steps[step];
    const wb_dtype from = wb__export_dtype_of(w, step), t = onnx_put_widened(from);
    const char *inside, *end = wb__export_size_number(w, s->dims[0]);
    const char *at = onnx_put_indices(w, s->in[0], s->dims[0], end, &inside);
    const char *rows = wb__export_cast(w, wb__export_value(w, s->in[1]), from, t);
    const char *zero = wb__export_number(w, t, 0), *one = wb__export_number(w, t, 1);
    const char *y = onnx_put_scattered(w, step, at, rows, product ? one : zero,
                                       product ? "mul" : "add");
    if (product) {                      /* keeps 0 where there is no row */
        const char *some = WB__PUT(w, "Expand", one, WB__PUT(w, "Shape", rows));
        const char *count = onnx_put_scattered(w, step, at, some, zero, "add");
        y = WB__PUT(w, "Where", WB__PUT(w, "Greater", count, zero), y, zero);
    }
    return wb__export_cast(w, y, t, from);
}

/* Returns the number that no number of the dtype is below. */
static double onnx_put_least_number(wb_dtype t)
{
    return wb__dtype_float(t) ? -INFINITY : t == WB_I64 ? (double)INT64_MIN : (double)INT32_MIN;
}

const char *wb__export_write_rows(wb__exporter *w, int step)
{
    const wb_dtype t = onnx_put_widened(wb__export_dtype_of(w, step));
    switch (wb__export_x(w, step)->op) {
    case WB__OP_sum: case WB__OP_max: case WB__OP_min: return onnx_put_reduce(w, step);
    case WB__OP_argmax: return onnx_put_argmax(w, step);
    case WB__OP_cumsum: return onnx_put_cumsum(w, step);
    case WB__OP_argsort: return onnx_put_argsort(w, step);
    case WB__OP_take: return onnx_put_take(w, step);
    case WB__OP_scatter_add: return onnx_put_scatter(w, step, false);
    case WB__OP_scatter_mul: return onnx_put_scatter(w, step, true);
    case WB__OP_scatter_max: return onnx_put_extreme(w, step, "ReduceMax",
                                                     onnx_put_least_number(t));
    case WB__OP_scatter_min: return onnx_put_extreme(w, step, "ReduceMin",
                                                     -onnx_put_least_number(t));
    case WB__OP_scatter_set: return onnx_put_replace_row(w, step);
    default: return NULL;
    }
}
