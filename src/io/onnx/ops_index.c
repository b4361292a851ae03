/* Gathers and scatters elements by index.  A negative index counts from the end.  ONNX forbids an
 * index outside of the axis: if it is fixed, it is an error.  If it depends on the values of the
 * inputs, it gathers zeros and scatters nothing, as in Weber's own operations, and is an error with
 * WEBER_DEBUG=check. */
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <string.h>

/* Returns the dtype of places (indices) among n elements. */
static wb_dtype onnx_index_dtype_for(int64_t n) { return n > INT32_MAX ? WB_I64 : WB_I32; }

static wb_tensor *onnx_index_number(int64_t v, wb_dtype t) { return wb__literal((double)v, t); }

/* Whether input i is of integers; else sets the error. */
static bool onnx_index_has_index(const wb__onnx_call *c, int i)
{
    const wb_dtype t = (wb_dtype)c->in[i]->dtype;
    if (!wb__dtype_float(t) && t != WB_BOOL) return true;
    return wb__onnx_refuse(c, WB_ERROR_DTYPE, "the indices are %s; they must be integers",
                           wb_describe(c->in[i]));
}

/* Whether the indices, input 1, are in range if they are fixed: index i is one of n[i % k]
 * elements.  Else sets the error. */
static bool onnx_index_in_range(const wb__onnx_call *c, int k, const int64_t *n)
{
    const int64_t *list;
    if (!wb__onnx_is_fixed(c, 1)) return true;
    const int count = wb__onnx_input_ints(c, 1, &list);
    for (int i = 0; i < count; i++)
        if (list[i] < -n[i % k] || list[i] >= n[i % k])
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "index %lld along an axis of size %lld of %s",
                                   (long long)list[i], (long long)n[i % k], wb_describe(c->in[0]));
    return count >= 0;
}

/* Returns the index into n elements, counted from the start. */
static wb_tensor *onnx_index_from_start(wb_tensor *index, int64_t n)
{
    if (!index || index->dtype == WB_U8) return index;
    if (index->dtype != WB_I64) index = wb__as(index, onnx_index_dtype_for(n));
    if (!index) return NULL;
    const wb_dtype t = (wb_dtype)index->dtype;
    return wb_where(wb_lt(index, onnx_index_number(0, t)), wb_add(index, onnx_index_number(n, t)),
                    index);
}

/* Sets *at to index · step + *at in the dtype t, and *inside to whether the index is in 0 to n - 1
 * and *inside, if it is not NULL, holds. */
static void onnx_index_add_place(wb_tensor *index, int64_t n, int64_t step, wb_dtype t,
                                 wb_tensor **at, wb_tensor **inside)
{
    index = wb__as(onnx_index_from_start(index, n), WB_I64);
    wb_tensor *in = wb_and(wb_ge(index, onnx_index_number(0, WB_I64)),
                           wb_lt(index, onnx_index_number(n, WB_I64)));
    *inside = *inside ? wb_and(*inside, in) : in;
    *at = wb_add(wb_mul(wb__as(index, t), onnx_index_number(step, t)), *at);
}

/* ---- Gather ---------------------------------------------------------------------------------- */

/* Gives the node the element of one fixed index: a slice, which costs nothing. */
static bool onnx_index_gather_one(wb__onnx_call *c, int axis)
{
    int64_t at = 0, dims[2 * WB_MAX_DIMS];
    wb_tensor *x = c->in[0];
    const wb_tensor *index = c->in[1];
    int ndim = 0;
    if (!wb__onnx_input_int(c, 1, &at)) return false;
    if (at < 0) at += x->dims[axis];
    for (int i = 0; i < axis; i++) dims[ndim++] = x->dims[i];
    for (int i = 0; i < index->ndim; i++) dims[ndim++] = 1;
    for (int i = axis + 1; i < x->ndim; i++) dims[ndim++] = x->dims[i];
    wb_tensor *y = wb_slice(x, axis, at, at + 1);
    return wb__onnx_give(c, y ? wb_reshape_array(y, ndim, dims) : NULL);
}

bool wb__onnx_gather(wb__onnx_call *c)
{
    if (!onnx_index_has_index(c, 1)) return false;
    wb_tensor *x = c->in[0];
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (axis < 0 || !onnx_index_in_range(c, 1, &x->dims[axis])) return false;
    if (c->in[1]->size == 1 && wb__onnx_is_fixed(c, 1)) return onnx_index_gather_one(c, axis);
    return wb__onnx_give(c, wb_take(x, onnx_index_from_start(c->in[1], x->dims[axis]), axis));
}

/* Computes GatherElements.  Along the other axes the indices may have fewer elements than x, of
 * which the first are used. */
bool wb__onnx_gather_elements(wb__onnx_call *c)
{
    if (!onnx_index_has_index(c, 1)) return false;
    wb_tensor *x = c->in[0], *index = c->in[1];
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (axis < 0) return false;
    int64_t start[WB_MAX_DIMS] = {0}, dims[WB_MAX_DIMS];
    bool fits = index->ndim == x->ndim;
    for (int i = 0; fits && i < x->ndim; i++) {
        dims[i] = i == axis ? x->dims[i] : index->dims[i];
        fits = dims[i] <= x->dims[i];
    }
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "indices %s do not fit %s along axis %d",
                               wb_describe(index), wb_describe(x), axis);
    if (!onnx_index_in_range(c, 1, &x->dims[axis])) return false;
    wb_tensor *at = onnx_index_from_start(index, x->dims[axis]);
    return wb__onnx_give(c, wb_take_along(wb__onnx_place(x, start, dims), at, axis));
}

/* ---- several indices at once ----------------------------------------------------------------- */

/* How an index of GatherND or ScatterND names rows of x.  Its last axis has k numbers, for the axes
 * of x from `first` on; together they name a row of x, which is all that is behind these axes. */
typedef struct {
    int first, k;
    int64_t batches, rows, row, count;  /* products of the sizes of x before, along and behind these
                                           axes; number of the indices */
} onnx_index_rows;

/* Sets *r to the sizes of x and the index, of which the first `first` are the same. */
static bool onnx_index_read_rows(const wb__onnx_call *c, int first, onnx_index_rows *r)
{
    const wb_tensor *x = c->in[0], *index = c->in[1];
    const int64_t k = index->ndim ? index->dims[index->ndim - 1] : 0;
    bool fits = k > 0 && first >= 0 && first < index->ndim && first + k <= x->ndim;
    *r = (onnx_index_rows){.first = first, .k = (int)k, .batches = 1, .rows = 1, .row = 1,
                           .count = 1};
    for (int i = 0; fits && i < first; i++) fits = x->dims[i] == index->dims[i];
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "indices %s do not fit %s after %d axes of "
                               "batches", wb_describe(index), wb_describe(x), first);
    for (int i = 0; i < x->ndim; i++)
        *(i < first ? &r->batches : i < first + k ? &r->rows : &r->row) *= x->dims[i];
    for (int i = 0; i < index->ndim - 1; i++) r->count *= index->dims[i];
    return onnx_index_in_range(c, r->k, x->dims + first);
}

/* Returns the positions of the rows that the index names among the rows of x, [count]; -1 where x
 * has no such row. */
static wb_tensor *row_places(const wb__onnx_call *c, const onnx_index_rows *r)
{
    const wb_tensor *x = c->in[0];
    const wb_dtype t = onnx_index_dtype_for(r->batches * r->rows);
    const int64_t each = r->batches ? r->count / r->batches : 0;
    wb_tensor *index = wb_reshape_array(c->in[1], 2, (int64_t[]){r->count, r->k});
    wb_tensor *at = onnx_index_number(0, t), *inside = NULL;
    if (r->first) {
        at = wb_mul(wb_arange(r->batches, t), onnx_index_number(r->rows, t));
        at = wb_repeat(at, 0, each);
    }
    int64_t step = r->rows;
    for (int i = 0; i < r->k && index; i++) {
        const int64_t n = x->dims[r->first + i];
        step = n ? step / n : 0;
        wb_tensor *numbers = wb_reshape_array(wb_slice(index, 1, i, i + 1), 1, &r->count);
        onnx_index_add_place(numbers, n, step, t, &at, &inside);
    }
    return index ? wb_where(inside, at, onnx_index_number(-1, t)) : NULL;
}

/* Returns x as rows, [n, row], or [n] if each is one element without axes. */
static wb_tensor *onnx_index_as_rows(wb_tensor *x, const onnx_index_rows *r, int64_t n,
                                     bool single)
{
    return wb_reshape_array(x, single ? 1 : 2, (int64_t[]){n, r->row});
}

bool wb__onnx_gather_nd(wb__onnx_call *c)
{
    onnx_index_rows r;
    if (!onnx_index_has_index(c, 1)) return false;
    const int64_t first = wb__onnx_int(c, "batch_dims");
    if (!onnx_index_read_rows(c, (int)WB__MAX(WB__MIN(first, WB_MAX_DIMS), -1), &r)) return false;
    wb_tensor *x = c->in[0], *index = c->in[1];
    int64_t dims[2 * WB_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < index->ndim - 1; i++) dims[ndim++] = index->dims[i];
    for (int i = r.first + r.k; i < x->ndim; i++) dims[ndim++] = x->dims[i];
    wb_tensor *y = wb_take(onnx_index_as_rows(x, &r, r.batches * r.rows, false), row_places(c, &r));
    return wb__onnx_give(c, y ? wb_reshape_array(y, ndim, dims) : NULL);
}

/* ---- Scatter --------------------------------------------------------------------------------- */

/* Returns how elements with one index are combined. */
static wb_scatter_options onnx_index_reduction(const wb__onnx_call *c)
{
    static const wb_scatter_reduce modes[] = {WB_SCATTER_SET, WB_SCATTER_ADD, WB_SCATTER_MUL,
                                              WB_SCATTER_MAX, WB_SCATTER_MIN};
    return WB__OPTIONS(wb_scatter_options, .reduce = modes[wb__onnx_word_index(c, "reduction")]);
}

/* Returns, for each element of the index, its place in x flattened, where the index counts along
 * the axis, and the place of the element itself along the other axes; or -1. */
static wb_tensor *onnx_index_element_places(const wb_tensor *x, wb_tensor *index, int axis)
{
    const wb_dtype t = onnx_index_dtype_for(x->size);
    wb_tensor *at = onnx_index_number(0, t), *inside = NULL;
    int64_t step = 1, along[WB_MAX_DIMS], of_axis = 1;
    for (int i = x->ndim - 1; i >= 0; step *= x->dims[i--]) {
        if (i == axis) of_axis = step;
        if (i == axis) continue;
        for (int k = 0; k < x->ndim; k++) along[k] = k == i ? index->dims[i] : 1;
        wb_tensor *here = wb_reshape_array(wb_arange(index->dims[i], t), x->ndim, along);
        at = wb_add(at, wb_mul(here, onnx_index_number(step, t)));
    }
    onnx_index_add_place(index, x->dims[axis], of_axis, t, &at, &inside);
    return wb_where(inside, at, onnx_index_number(-1, t));
}

bool wb__onnx_scatter_elements(wb__onnx_call *c)
{
    const wb_scatter_options o = onnx_index_reduction(c);
    if (!onnx_index_has_index(c, 1) || !wb__onnx_alike(c, 2)) return false;
    wb_tensor *x = c->in[0], *index = c->in[1], *updates = c->in[2];
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (axis < 0) return false;
    bool fits = index->ndim == x->ndim && wb__same_dims(index, updates);
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || index->dims[i] <= x->dims[i];
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "indices %s and updates %s do not fit %s along "
                               "axis %d", wb_describe(index), wb_describe(updates), wb_describe(x),
                               axis);
    if (!onnx_index_in_range(c, 1, &x->dims[axis])) return false;
    if (!updates->size) return wb__onnx_give(c, wb__unchanged(x));
    wb_tensor *at = onnx_index_element_places(x, index, axis);
    at = at ? wb_reshape_array(at, 1, &at->size) : NULL;
    wb_tensor *y = wb_scatter_with(wb_reshape_array(x, 1, &x->size), at,
                                   wb_reshape_array(updates, 1, &updates->size), &o);
    return wb__onnx_give(c, y ? wb_reshape_array(y, x->ndim, x->dims) : NULL);
}

bool wb__onnx_scatter_nd(wb__onnx_call *c)
{
    const wb_scatter_options o = onnx_index_reduction(c);
    onnx_index_rows r;
    if (!onnx_index_has_index(c, 1) || !wb__onnx_alike(c, 2) || !onnx_index_read_rows(c, 0, &r))
        return false;
    wb_tensor *x = c->in[0], *updates = c->in[2];
    const wb_tensor *index = c->in[1];
    const int leading = index->ndim - 1;
    bool fits = updates->ndim == leading + x->ndim - r.k;
    for (int i = 0; fits && i < updates->ndim; i++)
        fits = updates->dims[i] == (i < leading ? index->dims[i] : x->dims[r.k + i - leading]);
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "updates %s by indices %s do not fit %s",
                               wb_describe(updates), wb_describe(index), wb_describe(x));
    if (!updates->size) return wb__onnx_give(c, wb__unchanged(x));
    const bool single = r.k == x->ndim;
    wb_tensor *y = wb_scatter_with(onnx_index_as_rows(x, &r, r.rows, single), row_places(c, &r),
                                   onnx_index_as_rows(updates, &r, r.count, single), &o);
    return wb__onnx_give(c, y ? wb_reshape_array(y, x->ndim, x->dims) : NULL);
}

/* ---- OneHot ---------------------------------------------------------------------------------- */

/* Computes OneHot.  The depth becomes a new axis of the indices, at each place of which they are
 * compared with it. */
bool wb__onnx_one_hot(wb__onnx_call *c)
{
    double real_depth = 0;
    int64_t depth, dims[WB_MAX_DIMS];
    if (!wb__onnx_input_real(c, 1, &real_depth)) return false;
    wb_tensor *index = c->in[0], *values = c->in[2];
    const int ndim = index->ndim + 1, axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), ndim);
    if (axis < 0) return false;
    if (!(real_depth >= 1) || real_depth > (double)WB__MAX_DIM || index->dtype == WB_BOOL ||
        ndim > WB_MAX_DIMS || values->ndim != 1 || values->dims[0] != 2)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "indices %s, a depth of %g and the values %s",
                               wb_describe(index), real_depth, wb_describe(values));
    depth = (int64_t)real_depth;
    for (int i = 0; i < ndim; i++) dims[i] = i == axis ? depth : 1;
    const wb_dtype of = (wb_dtype)index->dtype;
    const wb_dtype t = !wb__dtype_float(of) ? WB_I64 : of == WB_F64 ? WB_F64 : WB_F32;
    index = wb_unsqueeze(wb__as(index, t), axis);
    index = wb_where(wb_lt(index, onnx_index_number(0, t)),
                     wb_add(index, onnx_index_number(depth, t)), index);
    wb_tensor *here = wb_eq(wb_reshape_array(wb_arange(depth, t), ndim, dims), index);
    wb_tensor *off = wb_reshape_array(wb_slice(values, 0, 0, 1), 0, NULL);
    wb_tensor *on = wb_reshape_array(wb_slice(values, 0, 1, 2), 0, NULL);
    return wb__onnx_give(c, wb_where(here, on, off));
}
