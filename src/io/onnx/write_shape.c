/* Writes operations that move elements, and tensors without operands, in operators of ONNX. */
#include "io/onnx/writer.h"

#include <math.h>
#include <string.h>

/* Writes a reshape.  A single size that depends on the batch is -1; several are computed. */
const char *wb__export_reshaped(wb__exporter *w, const char *x, int n, const wb__export_size *dims)
{
    int64_t list[WB_MAX_DIMS];
    int varying = 0;
    bool empty = false;
    for (int i = 0; i < n; i++) {
        varying += dims[i].k != 0;
        list[i] = dims[i].k ? -1 : dims[i].c;
        empty |= wb__export_is(dims[i], 0);
    }
    const bool plain = varying == 0 || (varying == 1 && !empty);
    const char *in[2] = {x, plain ? wb__export_list(w, n, list) : wb__export_sizes(w, n, dims)};
    wb__export_begin(w, "Reshape", 2, in);
    if (empty || !plain) wb__export_put_int(w, "allowzero", 1);
    return wb__export_end(w);
}

const char *wb__export_filled(wb__exporter *w, const char *x, int n, const wb__export_size *dims)
{
    return n ? WB__PUT(w, "Expand", x, wb__export_sizes(w, n, dims)) : x;
}

const char *wb__export_permuted(wb__exporter *w, const char *x, int n, const int64_t *order)
{
    wb__export_begin(w, "Transpose", 1, &x);
    wb__export_put_ints(w, "perm", n, order);
    return wb__export_end(w);
}

/* Writes an expansion.  Along axes where x already has the size, Expand may get 1. */
static const char *onnx_put_expand(wb__exporter *w, int step, int of)
{
    const wb__export_step *s = &w->steps[step], *x = &w->steps[of];
    const int n = s->x[0]->ndim, lead = n - x->x[0]->ndim;
    wb__export_size to[WB_MAX_DIMS];
    for (int i = 0; i < n; i++) {
        to[i] = s->dims[i];
        if (i >= lead && wb__export_same(x->dims[i - lead], to[i])) to[i] = (wb__export_size){0, 1};
    }
    return WB__PUT(w, "Expand", wb__export_value(w, of), wb__export_sizes(w, n, to));
}

static const char *onnx_put_permute(wb__exporter *w, int step, int of)
{
    const int n = wb__export_x(w, step)->ndim;
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < n; i++) order[i] = wb__export_fixed_attr(w, step, i);
    return wb__export_permuted(w, wb__export_value(w, of), n, order);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* Returns a bound of a slice along an axis of size n, as a fixed number if it is one from the start
 * or from the end.  `most` means a bound behind all elements. */
static wb__export_size onnx_put_bound(wb__export_size at, wb__export_size n, int64_t most)
{
    const wb__export_size left = {n.k - at.k, n.c - at.c};
    if (!at.k || left.k) return at;
    return (wb__export_size){0, left.c > 0 ? -left.c : most};
}

static const char *onnx_put_slice(wb__exporter *w, int step, int of)
{
    const wb__export_step *s = &w->steps[step], *x = &w->steps[of];
    const int ndim = s->x[0]->ndim;
    wb__export_size start[WB_MAX_DIMS], end[WB_MAX_DIMS];
    int64_t axes[WB_MAX_DIMS], steps[WB_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < ndim; i++) {
        const wb__export_size from = wb__export_attr(w, step, i);
        const wb__export_size size = s->dims[i], all = x->dims[i];
        const int64_t by = wb__export_fixed_attr(w, step, ndim + i);
        const wb__export_size behind = {from.k + size.k * by, from.c + size.c * by};
        if (wb__export_is(from, 0) && by == 1 && wb__export_same(size, all)) continue;
        axes[n] = i;
        steps[n] = by;
        start[n] = onnx_put_bound(from, all, INT64_MAX);
        end[n] = onnx_put_bound(behind, all, INT64_MAX);
        if (by < 0 && !behind.k && behind.c < 0) end[n] = (wb__export_size){0, INT64_MIN};
        if (wb__export_is(size, 0)) start[n] = end[n] = (wb__export_size){0, 0};
        n++;
    }
    const char *value = wb__export_value(w, of);
    if (!n) return value;
    const char *in[5] = {value, wb__export_sizes(w, n, start), wb__export_sizes(w, n, end),
                         wb__export_list(w, n, axes), wb__export_list(w, n, steps)};
    return wb__export_put(w, "Slice", 5, in);
}

/* ---- concat ---------------------------------------------------------------------------------- */

/* Returns where part k begins along axis i. */
static wb__export_size onnx_put_start_of(wb__exporter *w, int step, int k, int i)
{
    return wb__export_attr(w, step, k * wb__export_x(w, step)->ndim + i);
}

/* Writes part k with zeros around it. */
static const char *onnx_put_padded(wb__exporter *w, int step, int k)
{
    const wb__export_step *s = &w->steps[step];
    const int part = s->in[k], ndim = s->x[0]->ndim;
    wb__export_size pads[2 * WB_MAX_DIMS];
    bool any = false;
    for (int i = 0; i < ndim; i++) {
        const wb__export_size at = onnx_put_start_of(w, step, k, i), n = w->steps[part].dims[i];
        pads[i] = at;
        pads[ndim + i] = (wb__export_size){s->dims[i].k - at.k - n.k, s->dims[i].c - at.c - n.c};
        any |= !wb__export_is(pads[i], 0) || !wb__export_is(pads[ndim + i], 0);
    }
    const char *x = wb__export_value(w, part);
    return any ? WB__PUT(w, "Pad", x, wb__export_sizes(w, 2 * ndim, pads)) : x;
}

/* Returns the axis along which the parts follow one another, if they fill the others; else -1. */
static int onnx_put_joined_axis(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    for (int a = 0; a < s->x[0]->ndim; a++) {
        bool fits = true;
        for (int k = 0; k < s->n_in; k++)
            for (int i = 0; i < s->x[0]->ndim; i++)
                fits &= i == a || (wb__export_is(onnx_put_start_of(w, step, k, i), 0) &&
                                   wb__export_same(w->steps[s->in[k]].dims[i], s->dims[i]));
        if (fits) return a;
    }
    return -1;
}

/* Writes zeros between two parts, which have the size n along axis a. */
static const char *onnx_put_zeros_between(wb__exporter *w, int step, int a, wb__export_size n)
{
    const wb__export_step *s = &w->steps[step];
    wb__export_size dims[WB_MAX_DIMS];
    memcpy(dims, s->dims, sizeof dims);
    dims[a] = n;
    const char *zero = wb__export_number(w, wb__export_dtype_of(w, step), 0);
    return wb__export_filled(w, zero, s->x[0]->ndim, dims);
}

/* A part that has elements, and its range along axis a. */
typedef struct { int step; wb__export_size start, end; } onnx_put_segment;

static int64_t onnx_put_at_batch(wb__export_size n, int64_t batch) { return n.k * batch + n.c; }

/* Whether p is before q in all recordings.  Parts do not overlap, and each has elements in at least
 * one recording. */
static bool onnx_put_is_before(const wb__exporter *w, const onnx_put_segment *p,
                               const onnx_put_segment *q)
{
    bool before = true;
    for (int r = 0; r < w->records; r++)
        before &= onnx_put_at_batch(p->end, w->batch[r]) <=
                  onnx_put_at_batch(q->start, w->batch[r]);
    return before;
}

/* Sets `list` to the parts in their order along axis a.  Returns their number, or -1 after a
 * failure: the order depends on the size of the batch. */
static int onnx_put_segments_of(wb__exporter *w, int step, int a, onnx_put_segment *list)
{
    int n = 0;
    for (int k = 0; k < w->steps[step].n_in; k++) {
        const int part = w->steps[step].in[k];
        const wb__export_size start = onnx_put_start_of(w, step, k, a),
                              size = w->steps[part].dims[a];
        const onnx_put_segment s = {part, start, {start.k + size.k, start.c + size.c}};
        int at = n;
        if (wb__export_is(size, 0)) continue;
        for (; at && onnx_put_is_before(w, &s, &list[at - 1]); at--) list[at] = list[at - 1];
        list[at] = s;
        n++;
    }
    for (int i = 1; i < n; i++)
        if (!onnx_put_is_before(w, &list[i - 1], &list[i]))
            return wb__export_cannot(w, "has parts in another order with another size of the "
                                     "batch: .fixed = true writes the sizes of the example"), -1;
    return n;
}

/* Adds zeros from one place to another along axis a to the list, unless the places are equal. */
static void onnx_put_add_zeros(wb__exporter *w, int step, int a, wb__export_size from,
                               wb__export_size to, const char **in, int *n)
{
    if (!wb__export_same(from, to))
        in[(*n)++] = onnx_put_zeros_between(w, step, a,
                                            (wb__export_size){to.k - from.k, to.c - from.c});
}

/* Writes the parts in their order along axis a, with zeros between them. */
static const char *onnx_put_joined(wb__exporter *w, int step, int a)
{
    const size_t most = (size_t)w->steps[step].n_in;
    onnx_put_segment *list = wb__alloc(most * sizeof *list);
    const char **in = wb__alloc((2 * most + 1) * sizeof *in), *y = "";
    const int parts = list && in ? onnx_put_segments_of(w, step, a, list)
                                 : (wb__export_failed(w, WB_ERROR_MEMORY), -1);
    wb__export_size at = {0, 0};
    int n = 0;
    for (int i = 0; i < parts; i++) {
        onnx_put_add_zeros(w, step, a, at, list[i].start, in, &n);
        in[n++] = wb__export_value(w, list[i].step);
        at = list[i].end;
    }
    if (parts >= 0) {
        onnx_put_add_zeros(w, step, a, at, w->steps[step].dims[a], in, &n);
        if (!n) in[n++] = onnx_put_zeros_between(w, step, a, at);
        wb__export_begin(w, "Concat", n, in);
        wb__export_put_int(w, "axis", a);
        y = wb__export_end(w);
    }
    wb__free(list);
    wb__free(in);
    return y;
}

/* Writes a concat.  Its parts follow one another along an axis; or it is one part among zeros; or
 * it is the sum of several that do not overlap, each among zeros. */
static const char *onnx_put_concat(wb__exporter *w, int step)
{
    const int n = w->steps[step].n_in, axis = n > 1 ? onnx_put_joined_axis(w, step) : -1;
    const wb_dtype t = wb__export_dtype_of(w, step);
    if (axis >= 0) return onnx_put_joined(w, step, axis);
    const char *y = onnx_put_padded(w, step, 0);
    for (int k = 1; k < n; k++)
        y = WB__PUT(w, t == WB_BOOL ? "Or" : "Add", y, onnx_put_padded(w, step, k));
    return y;
}

/* ---- tensors without operands ---------------------------------------------------------------- */

/* Writes a number that depends on the size of the batch: k · batch + c, or 1 / (k · batch + c). */
static const char *onnx_put_varying_number(wb__exporter *w, int step, wb_dtype t)
{
    double v[WB__ONNX_RECORDS] = {0};
    for (int inverse = 0; inverse < 2; inverse++) {
        for (int r = 0; r < w->records; r++) {
            const double x = w->steps[step].x[r]->number[0].f;
            v[r] = inverse ? 1 / x : x;
        }
        const double first = (double)w->batch[0], last = (double)w->batch[2];
        const double k = (v[2] - v[0]) / (last - first), c = v[0] - k * first;
        if (!(fabs(k * (double)w->batch[1] + c - v[1]) <= 1e-9 * fabs(v[1]))) continue;
        const char *y = wb__export_size_number(w, (wb__export_size){1, 0});
        y = wb__export_cast(w, y, WB_I64, WB_F64);
        y = WB__PUT(w, "Mul", y, wb__export_number(w, WB_F64, k));
        y = WB__PUT(w, "Add", y, wb__export_number(w, WB_F64, c));
        if (inverse) y = WB__PUT(w, "Reciprocal", y);
        return wb__export_cast(w, y, WB_F64, t);
    }
    return wb__export_cannot(w, "is a number that depends on the size of the batch, and is no k "
                             "batch + c nor its inverse: .fixed = true writes the sizes of the "
                             "example");
}

const char *wb__export_literal_number(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    const wb_dtype t = wb__export_dtype_of(w, step);
    bool same = true;
    for (int r = 1; r < w->records; r++) same &= s->x[r]->number[0].u == s->x[0]->number[0].u;
    if (!same) return onnx_put_varying_number(w, step, t);
    double value = s->x[0]->number[0].f;
    char rounded[8];
    wb__convert(rounded, (wb_dtype)s->x[0]->dtype, &value, WB_F64, 1);
    wb__convert(&value, WB_F64, rounded, (wb_dtype)s->x[0]->dtype, 1);
    return wb__export_number(w, t, value);
}

const char *wb__export_literal(wb__exporter *w, int step)
{
    const char *x = wb__export_literal_number(w, step);
    return wb__export_filled(w, x, wb__export_x(w, step)->ndim, wb__export_dims(w, step));
}

const char *wb__export_iota(wb__exporter *w, int step)
{
    const int axis = (int)wb__export_fixed_attr(w, step, 0), n = wb__export_x(w, step)->ndim;
    const wb__export_size *dims = wb__export_dims(w, step);
    const wb_dtype t = wb__export_dtype_of(w, step);
    const char *x = wb__export_cast(w, wb__export_range(w, dims[axis]), WB_I64, t);
    wb__export_size line[WB_MAX_DIMS];
    bool more = false;
    for (int i = 0; i < n; i++) {
        line[i] = i == axis ? dims[i] : (wb__export_size){0, 1};
        more |= i != axis && !wb__export_is(dims[i], 1);
    }
    if (n > 1) x = wb__export_reshaped(w, x, n, line);
    return more ? wb__export_filled(w, x, n, dims) : x;
}

const char *wb__export_write_move(wb__exporter *w, int step)
{
    const wb_tensor *x = wb__export_x(w, step);
    const int of = w->steps[step].in[0];
    switch (x->op) {
    case WB__OP_reshape:
        return wb__export_reshaped(w, wb__export_value(w, of), x->ndim, wb__export_dims(w, step));
    case WB__OP_permute: return onnx_put_permute(w, step, of);
    case WB__OP_expand: return onnx_put_expand(w, step, of);
    case WB__OP_slice: return onnx_put_slice(w, step, of);
    case WB__OP_concat: return onnx_put_concat(w, step);
    default: return NULL;
    }
}
