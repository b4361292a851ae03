/* Padded views.  A tensor placed in zeros (a concat of one part that does not cover it) is a view
 * of the part with a window, where kernels take windows: kernels that read the concat compare the
 * index with the window, and nothing is stored.  Views of such a view are padded too: the gradient
 * of a strided slice is a pad of a dimension of size 1 that a reshape joins with the dimension
 * before.  Where a window cannot express a view, such as a flip, the pad is stored after all. */
#include "engine/plan/stages.h"

#include <string.h>

/* Makes the window cover all of dimension d. */
static void window_make_whole(wb__window *w, int d, int64_t dim)
{
    w->begin[d] = 0;
    w->step[d] = 1;
    w->size[d] = dim;
}

bool wb__may_be_padded_view(const wb__attempt *a, const wb__values *s, int x)
{
    const wb__value *v = wb__value_at(s, x);
    if (!a->device->backend->padded_views || v->op != WB__OP_concat || v->n_in != 1 || s->needed[x])
        return false;
    int in = wb__input(s, v, 0);
    if (!wb__value_at(s, in)->size) return false;
    while (wb__is_view_op((wb__op)wb__value_at(s, in)->op) ||
           (wb__value_at(s, in)->op == WB__OP_concat && wb__value_at(s, in)->n_in == 1))
        in = wb__input(s, wb__value_at(s, in), 0);
    return wb__ops[wb__value_at(s, in)->op].class != WB__SOURCE;    /* the part has memory */
}

void wb__window_pad(const wb__value *v, const int64_t *start, bool is_padded, wb__view *view,
                    wb__window *w)
{
    for (int i = 0; i < v->ndim; i++) {
        if (!is_padded) window_make_whole(w, i, view->dims[i]);
        w->begin[i] += start[i];
        view->dims[i] = v->dims[i];
    }
}

/* Applies a slice to a padded view.  False: the result needs two windows along a dimension. */
static bool window_slice(const wb__view *in, int ndim, const int64_t *attr, wb__view *out,
                         wb__window *w)
{
    for (int i = 0; i < ndim; i++) {
        const int64_t step = attr[ndim + i];
        if (wb__window_is_whole(w, i, in->dims[i])) {
            out->offset += in->strides[i] * attr[i];
            out->strides[i] = in->strides[i] * step;
            window_make_whole(w, i, out->dims[i]);
            continue;
        }
        if (step != 1 && out->dims[i] != 1) return false;
        w->begin[i] -= attr[i];
        out->offset += out->strides[i] * wb__window_clip(w, i, out->dims[i]);
        if (!w->size[i]) return false;
    }
    return true;
}

/* A dimension of a view that is reshaped, or several that are contiguous to each other. */
typedef struct { int64_t dim, stride, begin, step, size; } window_run;

static bool window_is_whole(const window_run *r)
{
    return !r->begin && r->step == 1 && r->size == r->dim;
}

/* Splits `dim` off the run, which must be whole, as the innermost dimension of its rest. */
static bool split_off_run(window_run *r, int64_t dim)
{
    if (!window_is_whole(r) || r->dim % dim) return false;
    r->stride *= dim;
    r->size = r->dim /= dim;
    return true;
}

/* Splits the dimension `dim` off the runs, of which *n are left.  A run with a window becomes a
 * dimension of its own, or the inner part of one: only its index `begin` has elements. */
static bool split_dim(window_run *runs, int *n, int64_t dim, window_run *out)
{
    window_run *last = &runs[*n - 1];
    *out = *last;
    if (window_is_whole(last)) {
        if (!split_off_run(last, dim)) return false;
        *out = (window_run){.dim = dim, .stride = out->stride, .step = 1, .size = dim};
        *n -= last->dim == 1;
        return true;
    }
    --*n;
    if (last->dim == dim) return true;
    if (last->size != 1 || dim % last->dim || !*n) return false;
    window_run *outer = last - 1;
    const int64_t inner = last->dim, left = dim / inner;
    *out = (window_run){dim, outer->stride, outer->begin * inner + last->begin, outer->step * inner,
                        WB__MIN(outer->size, left)};
    if (outer->dim == left) outer->dim = 1;
    else if (!split_off_run(outer, left)) return false;
    *n -= outer->dim == 1;
    return true;
}

/* Sets out's strides, and w, for a reshape of a padded view.  False: they cannot express it. */
static bool window_reshape(const wb__view *in, wb__view *out, wb__window *w)
{
    window_run runs[WB_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < in->ndim; i++) {
        const window_run r = {in->dims[i], in->strides[i], w->begin[i], w->step[i], w->size[i]};
        if (r.dim == 1) continue;
        window_run *before = n ? &runs[n - 1] : NULL;
        if (before && window_is_whole(before) && window_is_whole(&r) &&
            before->stride == r.stride * r.dim) {
            before->stride = r.stride;
            before->size = before->dim *= r.dim;
        } else {
            runs[n++] = r;
        }
    }
    for (int i = out->ndim - 1; i >= 0; i--) {
        window_run r = {.dim = 1, .step = 1, .size = 1};
        if (out->dims[i] != 1 && (!n || !split_dim(runs, &n, out->dims[i], &r))) return false;
        out->strides[i] = r.stride;
        w->begin[i] = r.begin;
        w->step[i] = r.step;
        w->size[i] = r.size;
    }
    return true;
}

bool wb__window_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                        const wb__view *in, wb__view *out, wb__window *w)
{
    const wb__window from = *w;
    const int lead = ndim - in->ndim;
    bool empty = false;
    *out = *in;
    out->ndim = ndim;
    for (int i = 0; i < ndim; i++) empty |= !(out->dims[i] = dims[i]);
    if (empty) return false;
    switch (op) {
    case WB__OP_permute:
        for (int i = 0; i < ndim; i++) {
            out->strides[i] = in->strides[attr[i]];
            w->begin[i] = from.begin[attr[i]];
            w->step[i] = from.step[attr[i]];
            w->size[i] = from.size[attr[i]];
        }
        return true;
    case WB__OP_expand:
        for (int i = ndim - 1; i >= 0; i--) {
            const bool same = i >= lead && in->dims[i - lead] == dims[i];
            out->strides[i] = same ? in->strides[i - lead] : 0;
            window_make_whole(w, i, dims[i]);
            if (!same) continue;
            w->begin[i] = from.begin[i - lead];
            w->step[i] = from.step[i - lead];
            w->size[i] = from.size[i - lead];
        }
        return true;
    case WB__OP_slice: return window_slice(in, ndim, attr, out, w);
    default: return window_reshape(in, out, w);
    }
}
