/* Computes views: a chain of reshapes, permutations, expansions and slices becomes an offset and
 * strides over the memory of the base. */
#include "engine/plan/stages.h"

#include <string.h>

void wb__contiguous(const wb__value *v, wb__view *out)
{
    int64_t stride = 1;
    *out = (wb__view){.dtype = (wb_dtype)v->dtype, .buffer = -1, .ndim = v->ndim};
    memcpy(out->dims, v->dims, sizeof v->dims);
    for (int i = v->ndim - 1; i >= 0; i--) {
        const int axis = wb__layout_axis((wb__layout)v->layout, i);
        out->strides[axis] = stride;
        stride *= WB__MAX(v->dims[axis], 1);
    }
}

/* Sets *out to a view of the elements of `in` with the dimensions `to`.  Old dimensions that are
 * contiguous to each other form runs, and runs are split into the new dimensions.  False: a new
 * dimension does not divide what is left of its run. */
static bool view_reshape(int ndim, const int64_t *to, const wb__view *in, wb__view *out)
{
    int64_t dims[WB_MAX_DIMS], strides[WB_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < in->ndim; i++) {            /* finds the runs */
        if (in->dims[i] == 1) continue;
        if (n && strides[n - 1] == in->strides[i] * in->dims[i]) {
            dims[n - 1] *= in->dims[i];
            strides[n - 1] = in->strides[i];
        } else {
            dims[n] = in->dims[i];
            strides[n++] = in->strides[i];
        }
    }
    int run = n - 1;
    int64_t left = run >= 0 ? dims[run] : 1, stride = run >= 0 ? strides[run] : 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int64_t d = to[i];
        out->dims[i] = d;
        out->strides[i] = 0;
        if (d == 1) continue;
        if (left == 1 && run > 0) {
            left = dims[--run];
            stride = strides[run];
        }
        if (left % d) return false;
        out->strides[i] = stride;
        stride *= d;
        left /= d;
    }
    return true;
}

bool wb__view_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                      const wb__view *in, wb__view *out)
{
    bool empty = false;
    *out = *in;
    out->ndim = ndim;
    for (int i = 0; i < ndim; i++) empty |= !(out->dims[i] = dims[i]);
    if (empty) {                                    /* no elements: any strides are right */
        memset(out->strides, 0, sizeof out->strides);
        return true;
    }
    switch (op) {
    case WB__OP_reshape: return view_reshape(ndim, dims, in, out);
    case WB__OP_permute:
        for (int i = 0; i < ndim; i++) out->strides[i] = in->strides[attr[i]];
        return true;
    case WB__OP_expand:
        for (int i = 0, lead = ndim - in->ndim; i < ndim; i++)
            out->strides[i] = i < lead || in->dims[i - lead] != dims[i] ? 0 : in->strides[i - lead];
        return true;
    default:                                        /* slice */
        for (int i = 0; i < ndim; i++) {
            out->offset += in->strides[i] * attr[i];
            out->strides[i] = in->strides[i] * attr[ndim + i];
        }
        return true;
    }
}

/* Sets *out to the view of x, given the view `in` of its operand.  *padded: whether the view is
 * padded, with the window *w; at the call, both describe the operand's view. */
static bool view_one(const wb__values *s, int x, const wb__view *in, wb__view *out, bool *padded,
                     wb__window *w)
{
    const wb__value *v = wb__value_at(s, x);
    const int64_t *attr = s->ir.attrs + v->attr;
    if (v->op == WB__OP_concat) {
        *out = *in;
        wb__window_pad(v, attr, *padded, out, w);
        return *padded = true;
    }
    return *padded ? wb__window_through((wb__op)v->op, v->ndim, v->dims, attr, in, out, w)
                   : wb__view_through((wb__op)v->op, v->ndim, v->dims, attr, in, out);
}

/* Turns *out, the view of x's base, into the view of x, one view operation at a time.  Does not
 * recurse, since a long chain could overflow the stack.  False: out of memory, or strides cannot
 * express the view. */
static bool view_of_chain(const wb__values *s, int x, wb__view *out)
{
    int few[32], *chain = few, n = 0;
    for (int at = x; wb__is_view(s, at); at = wb__input(s, wb__value_at(s, at), 0)) n++;
    if (n > (int)WB__COUNT(few) && !(chain = wb__alloc((size_t)n * sizeof *chain))) return false;
    for (int i = 0, at = x; i < n; i++, at = wb__input(s, wb__value_at(s, at), 0)) chain[i] = at;
    bool good = true, padded = false;
    wb__window w;
    for (int i = n - 1; good && i >= 0; i--) {
        const wb__view in = *out;
        good = view_one(s, chain[i], &in, out, &padded, &w);
    }
    if (chain != few) wb__free(chain);
    return good;
}

bool wb__view_of(const wb__values *s, int x, const wb__view *base, wb__view *out)
{
    const wb__view *own = &s->view[s->base[x]];
    bool same = true;
    for (int i = 0; i < base->ndim; i++)
        same &= base->dims[i] == 1 || base->strides[i] == own->strides[i];
    *out = *base;
    if (!same) return view_of_chain(s, x, out);
    *out = s->view[x];
    out->buffer = base->buffer;
    out->granule = base->granule;
    out->offset += base->offset - own->offset;
    return true;
}

void wb__source_view(const wb__values *s, int x, wb__view *out)
{
    const wb__value *v = wb__value_at(s, x);
    wb__contiguous(v, out);
    if (v->op != WB__OP_iota) return;
    memset(out->strides, 0, sizeof out->strides);
    out->strides[s->ir.attrs[v->attr]] = 1;
}

/* Adds the window of x.  False: out of memory. */
static bool view_add_window(wb__values *s, int x, const wb__window *w)
{
    if (!wb__reserve(&s->windows, &s->windows_capacity, s->n_windows + 1, sizeof *w)) return false;
    s->windows[s->n_windows] = *w;
    s->window[x] = s->n_windows++;
    return true;
}

/* Marks the last pad below x, a view that a window cannot express, as needed in memory. */
static void mark_pad_needed(wb__values *s, int x)
{
    while (wb__value_at(s, x)->op != WB__OP_concat) x = wb__input(s, wb__value_at(s, x), 0);
    s->needed[x] = true;
}

bool wb__find_views(const wb__attempt *a, wb__values *s, bool *again)
{
    *again = false;
    s->n_windows = 0;
    for (int x = 0; x < s->ir.n; x++) {
        const wb__value *v = wb__value_at(s, x);
        const bool is_view = wb__is_view_op((wb__op)v->op) || wb__may_be_padded_view(a, s, x);
        const int in = is_view ? wb__input(s, v, 0) : -1;
        bool padded = in >= 0 && s->window[in] >= 0;
        wb__window w;
        if (padded) w = s->windows[s->window[in]];
        s->base[x] = in < 0 ? x : s->base[in];
        s->window[x] = -1;
        if (in >= 0 && view_one(s, x, &s->view[in], &s->view[x], &padded, &w)) {
            if (padded && !view_add_window(s, x, &w)) return false;
            continue;
        }
        if (padded) {
            mark_pad_needed(s, in);
            *again = true;
        }
        /* x is no view, or strides cannot express it: x is its own base */
        s->base[x] = x;
        if (wb__is_free_source(s, x)) wb__source_view(s, x, &s->view[x]);
        else wb__contiguous(v, &s->view[x]);
    }
    return true;
}

wb__view wb__matrix_view(wb__view v, bool transposed, const wb__value *product)
{
    const int last = v.ndim - 1, lead = product->ndim - v.ndim;
    if (transposed) {
        int64_t t = v.dims[last]; v.dims[last] = v.dims[last - 1]; v.dims[last - 1] = t;
        t = v.strides[last]; v.strides[last] = v.strides[last - 1]; v.strides[last - 1] = t;
    }
    wb__view out = v;
    out.ndim = product->ndim;
    for (int i = 0; i < product->ndim; i++) {
        bool batch = i < product->ndim - 2;
        out.dims[i] = batch ? product->dims[i] : v.dims[i - lead];
        out.strides[i] = batch && (i < lead || v.dims[i - lead] == 1) ? 0 : v.strides[i - lead];
    }
    return out;
}
