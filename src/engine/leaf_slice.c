/* Slices of known tensors that a plan reads in place.  The start of such a slice is not part of the
 * plan.  In the plan, the slice has a buffer of its own, and each run binds this buffer to the
 * slice's position in the tensor.  So slices that differ only in their starts share a plan.
 *
 * A slice may be the last of a chain of views of a known tensor, the base.  The plan has the same
 * chain, but its slices have other starts (leaf_slice_kept_start), which depend only on shapes and
 * steps.  With these starts, the lowest element that the chain reads is at the beginning of the
 * buffer. */
#include "engine/plan/stages.h"

#include <string.h>

static void row_major_view(const wb_tensor *x, wb__view *out)
{
    int64_t stride = 1;
    *out = (wb__view){.dtype = (wb_dtype)x->dtype, .ndim = x->ndim};
    for (int i = x->ndim - 1; i >= 0; i--) {
        out->dims[i] = x->dims[i];
        out->strides[i] = stride;
        stride *= WB__MAX(x->dims[i], 1);
    }
}

/* Returns the start that a slice has in the plan along one axis.  The slice takes d of the n
 * elements of the axis, `step` apart; `stride` is the stride of the axis.  With this start, the
 * lowest address that the slice reads is the lowest address of the axis. */
static int64_t leaf_slice_kept_start(int64_t stride, int64_t n, int64_t d, int64_t step)
{
    const int64_t span = (d - 1) * step;
    if (stride >= 0) return step > 0 ? 0 : -span;
    return step > 0 ? n - 1 - span : n - 1;
}

/* Sets attr to the attributes of the slice x, but with the starts of leaf_slice_kept_start.  Adds
 * to w->at the distance, in elements, from these starts to the starts of x.  *moves collects, by a
 * bitwise or, the strides along which x leaves out elements.  The distance is a sum of multiples of
 * these strides, so the lowest set bit of *moves divides it. */
static void keep_slice(wb__leaf_slice *w, const wb_tensor *x, const wb__view *in, int64_t *attr,
                       int64_t *moves)
{
    memcpy(attr, x->attr, 2 * (size_t)x->ndim * sizeof *attr);
    for (int i = 0; i < x->ndim; i++) {
        attr[i] = x->size ? leaf_slice_kept_start(in->strides[i], in->dims[i], x->dims[i],
                                                  attr[x->ndim + i])
                          : 0;
        if (x->size) w->at += (x->attr[i] - attr[i]) * in->strides[i];
        if (x->dims[i] < in->dims[i]) *moves |= in->strides[i] ? in->strides[i] : WB__ALIGNED;
    }
}

bool wb__leaf_slice_of(wb_tensor *x, wb__leaf_slice *w)
{
    const int64_t size = (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    wb__view now, next;
    int64_t moves = 0, reach = 1;
    w->n = 0;
    w->at = 0;
    for (w->base = x; !wb__known(w->base); w->base = w->base->in[0]) {
        if (!wb__is_view_op((wb__op)w->base->op) || w->n == WB__MOST_LINKS) return false;
        w->link[w->n++].x = w->base;
    }
    if (wb__overwritten(w->base)) return false;
    row_major_view(w->base, &now);
    for (int i = w->n - 1; i >= 0; i--) {
        const wb_tensor *y = w->link[i].x;
        const int64_t *attr = y->attr;
        if (y->op == WB__OP_slice) {
            keep_slice(w, y, &now, w->link[i].attr, &moves);
            attr = w->link[i].attr;
        }
        if (!wb__view_through((wb__op)y->op, y->ndim, y->dims, attr, &now, &next)) return false;
        now = next;
    }
    for (int i = 0; i < now.ndim; i++)
        reach += (now.dims[i] - 1) * (now.strides[i] < 0 ? -now.strides[i] : now.strides[i]);
    w->at *= size;
    w->bytes = x->size ? reach * size : 0;
    w->granule = (int)WB__MIN((moves & -moves) * size, WB__ALIGNED);
    return moves != 0;
}
