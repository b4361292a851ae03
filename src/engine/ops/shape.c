/* Operations that change the shape or the order of elements.  Most cost nothing, since a plan
 * expresses them by strides. */
#include "engine/ops/op.h"

#include <stdio.h>
#include <string.h>

static void print_numbers(char *text, size_t capacity, int n, const int64_t *v)
{
    size_t at = (size_t)snprintf(text, capacity, "[");
    for (int i = 0; i < n && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, i ? ",%lld" : "%lld", (long long)v[i]);
    if (at < capacity) snprintf(text + at, capacity - at, "]");
}

static wb_tensor *fail_reshape(const wb_tensor *x, int ndim, const int64_t *wanted, bool counted)
{
    char text[128];
    print_numbers(text, sizeof text, ndim, wanted);
    if (!counted)
        return wb__fail_null(WB_ERROR_SHAPE, "reshape: %s to %s", wb_describe(x), text);
    return wb__fail_null(WB_ERROR_SHAPE, "reshape: %s has %lld elements: not as many as %s",
                         wb_describe(x), (long long)x->size, text);
}

wb_tensor *wb_reshape_array(wb_tensor *x, int ndim, const int64_t *wanted)
{
    if (!wb__operand("reshape", x)) return NULL;
    int64_t dims[WB_MAX_DIMS], known = 1;
    int free_axis = -1;
    if (ndim < 0 || ndim > WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE, "reshape: %d dimensions; a tensor has at most %d",
                             ndim, WB_MAX_DIMS);
    if (ndim && !wanted)
        return wb__fail_null(WB_ERROR_ARGUMENT, "reshape: no sizes for %d dimensions", ndim);
    for (int i = 0; i < ndim; i++) {
        dims[i] = wanted[i];
        if (wanted[i] == -1 && free_axis < 0) free_axis = i;
        else if (wanted[i] < 0 || (wanted[i] && known > INT64_MAX / wanted[i]))
            return fail_reshape(x, ndim, wanted, false);
        else known *= wanted[i];
    }
    if (free_axis >= 0) dims[free_axis] = known ? x->size / known : 0;
    if (free_axis >= 0) known *= dims[free_axis];
    if (known != x->size) return fail_reshape(x, ndim, wanted, true);
    if (ndim == x->ndim && !memcmp(dims, x->dims, (size_t)ndim * sizeof *dims))
        return wb__unchanged(x);
    if ((!x->size || x->size > WB__MAX_DIM) && !wb__check_dims("reshape", ndim, dims, &known))
        return NULL;
    return wb__node(WB__OP_reshape, (wb_dtype)x->dtype, ndim, dims, 1, &x, 0, NULL);
}

wb_tensor *wb_flatten(wb_tensor *x)
{
    if (!wb__operand("flatten", x)) return NULL;
    if (!x->ndim) return wb__fail_null(WB_ERROR_SHAPE, "flatten: of a scalar");
    int64_t rest = 1;
    for (int i = 1; i < x->ndim; i++) rest *= x->dims[i];
    return wb_reshape_array(x, 2, (int64_t[]){x->dims[0], rest});
}

wb_tensor *wb_unsqueeze(wb_tensor *x, int axis)
{
    if (!wb__operand("unsqueeze", x)) return NULL;
    int a = axis < 0 ? axis + x->ndim + 1 : axis;
    if (x->ndim == WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "unsqueeze: %s has %d dimensions already, the most there may be",
                             wb_describe(x), WB_MAX_DIMS);
    if (a < 0 || a > x->ndim)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "unsqueeze: a new axis of %s is one of %d to %d, not %d",
                             wb_describe(x), -x->ndim - 1, x->ndim, axis);
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i <= x->ndim; i++) dims[i] = i < a ? x->dims[i] : i == a ? 1 : x->dims[i - 1];
    return wb_reshape_array(x, x->ndim + 1, dims);
}

wb_tensor *wb_squeeze(wb_tensor *x, int axis)
{
    int a = wb__axis("squeeze", x, axis);
    if (a < 0) return NULL;
    if (x->dims[a] != 1)
        return wb__fail_null(WB_ERROR_SHAPE, "squeeze: axis %d of %s is not 1", axis,
                             wb_describe(x));
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim - 1; i++) dims[i] = x->dims[i < a ? i : i + 1];
    return wb_reshape_array(x, x->ndim - 1, dims);
}

wb_tensor *wb_permute_array(wb_tensor *x, int ndim, const int64_t *order)
{
    if (!wb__operand("permute", x)) return NULL;
    if (ndim && !order)
        return wb__fail_null(WB_ERROR_ARGUMENT, "permute: no order of %d axes", ndim);
    int64_t dims[WB_MAX_DIMS];
    unsigned seen = 0;
    bool moved = false;
    char text[128];
    for (int i = 0; i < ndim && ndim == x->ndim; i++) {
        if (order[i] < 0 || order[i] >= ndim) break;
        seen |= 1u << order[i];
        dims[i] = x->dims[order[i]];
        moved |= order[i] != i;
    }
    if (ndim != x->ndim || seen != (1u << ndim) - 1) {
        print_numbers(text, sizeof text, WB__MIN(WB__MAX(ndim, 0), 16), order);
        return wb__fail_null(WB_ERROR_SHAPE, "permute: %s is no order of the axes of %s", text,
                             wb_describe(x));
    }
    return moved ? wb__node(WB__OP_permute, (wb_dtype)x->dtype, ndim, dims, 1, &x, ndim, order)
                 : wb__unchanged(x);
}

wb_tensor *wb_transpose(wb_tensor *x)
{
    if (!wb__operand("transpose", x)) return NULL;
    if (x->ndim < 2)
        return wb__fail_null(WB_ERROR_SHAPE, "transpose: %s has fewer than two axes",
                             wb_describe(x));
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) order[i] = i;
    order[x->ndim - 1] = x->ndim - 2;
    order[x->ndim - 2] = x->ndim - 1;
    return wb_permute_array(x, x->ndim, order);
}

wb_tensor *wb_expand_array(wb_tensor *x, int ndim, const int64_t *dims)
{
    if (!wb__operand("expand", x)) return NULL;
    int64_t size;
    char text[128];
    if (!wb__check_dims("expand", ndim, dims, &size)) return NULL;
    bool fits = ndim >= x->ndim;
    for (int i = 1; fits && i <= x->ndim; i++)
        fits = x->dims[x->ndim - i] == dims[ndim - i] || x->dims[x->ndim - i] == 1;
    if (!fits) {
        print_numbers(text, sizeof text, ndim, dims);
        return wb__fail_null(WB_ERROR_SHAPE, "expand: %s does not broadcast to %s", wb_describe(x),
                             text);
    }
    if (ndim == x->ndim && !memcmp(dims, x->dims, (size_t)ndim * sizeof *dims))
        return wb__unchanged(x);
    return wb__node(WB__OP_expand, (wb_dtype)x->dtype, ndim, dims, 1, &x, 0, NULL);
}

wb_tensor *wb__slice_at(wb_tensor *x, const int64_t *start, const int64_t *dims,
                        const int64_t *step)
{
    if (!x) return NULL;
    int64_t attr[2 * WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        attr[i] = start[i];
        attr[x->ndim + i] = step ? step[i] : 1;
    }
    return wb__node(WB__OP_slice, (wb_dtype)x->dtype, x->ndim, dims, 1, &x, 2 * x->ndim, attr);
}

wb_tensor *wb_flip(wb_tensor *x, int axis)
{
    int a = wb__axis("flip", x, axis);
    if (a < 0) return NULL;
    int64_t starts[WB_MAX_DIMS] = {0}, step[WB_MAX_DIMS];
    for (int i = 0; i < WB_MAX_DIMS; i++) step[i] = i == a ? -1 : 1;
    starts[a] = WB__MAX(x->dims[a] - 1, 0);
    return wb__slice_at(x, starts, x->dims, step);
}

GRADIENT(reshape) { out[0] = wb_reshape_array(g, node->in[0]->ndim, node->in[0]->dims); }
GRADIENT(expand) { out[0] = wb__sum_to(g, node->in[0]->ndim, node->in[0]->dims); }

GRADIENT(permute)
{
    int64_t back[WB_MAX_DIMS];
    for (int i = 0; i < node->ndim; i++) back[node->attr[i]] = i;
    out[0] = wb_permute_array(g, node->ndim, back);
}

/* Returns g with step - 1 zeros between its elements along an axis: step (n - 1) + 1 of them. */
static wb_tensor *insert_zeros(wb_tensor *g, int axis, int64_t step)
{
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, g->dims, sizeof dims);
    const int64_t n = dims[axis];
    dims[axis] = n * step;
    wb_tensor *y = wb__around(g, axis);
    if (!y) return NULL;
    y = wb_pad(wb_reshape_array(y, 4, (int64_t[]){y->dims[0], n, 1, y->dims[2]}), 2, 0, step - 1);
    if (!y || !(y = wb_reshape_array(y, g->ndim, dims))) return NULL;
    return wb_slice(y, axis, 0, (n - 1) * step + 1);
}

/* The gradient is g, reversed along axes with a negative step and spread out by the step, at the
 * slice's place in a tensor of zeros. */
GRADIENT(slice)
{
    int64_t last[WB_MAX_DIMS] = {0}, starts[WB_MAX_DIMS], back[WB_MAX_DIMS];
    const int64_t *step = node->attr + node->ndim;
    bool reversed = false;
    for (int i = 0; i < node->ndim; i++) {
        const bool down = step[i] < 0;
        const int64_t n = WB__MAX(node->dims[i] - 1, 0);
        starts[i] = down ? node->attr[i] + n * step[i] : node->attr[i];
        last[i] = down ? n : 0;
        back[i] = down ? -1 : 1;
        reversed |= down;
    }
    if (reversed) g = wb__slice_at(g, last, node->dims, back);
    for (int i = 0; i < node->ndim && g; i++)
        if (node->dims[i] > 1 && (step[i] > 1 || step[i] < -1))
            g = insert_zeros(g, i, step[i] < 0 ? -step[i] : step[i]);
    out[0] = g ? WB_NONE : NULL;
    if (g) wb__contribute_slice(w, node, 0, g, starts);
}
