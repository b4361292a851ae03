/* Operators that add elements around a tensor, or add the elements of windows up: Pad,
 * CenterCropPad, Col2Im. */
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <string.h>

/* ---- Pad ------------------------------------------------------------------------------------- */

typedef enum { CONSTANT, REFLECT, ONNX_PAD_EDGE, WRAP } onnx_pad_mode;

/* What Pad adds: the number of elements along each axis (a negative number removes some), and their
 * values.  `value` is that of the mode constant; NULL: 0. */
typedef struct {
    int64_t before[WB_MAX_DIMS], after[WB_MAX_DIMS];
    onnx_pad_mode mode;
    wb_tensor *value;                   /* a tensor without axes */
} onnx_pad_padding;

/* Sets the numbers of elements that Pad adds, two for each axis. */
static bool onnx_pad_read(wb__onnx_call *c, onnx_pad_padding *p)
{
    const wb_tensor *x = c->in[0];
    const int64_t *pads;
    int axes[WB_MAX_DIMS];
    const int m = wb__onnx_list(c, "pads", 1, &pads);
    int n = m == -2 ? -2 : wb__onnx_axes(c, 3, x->ndim, axes);
    if (n == -2) return false;
    if (n == -1)
        for (n = 0; n < x->ndim; n++) axes[n] = n;
    if (m != 2 * n)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%d pads for %d axes of %s", WB__MAX(m, 0), n,
                               wb_describe(x));
    memset(p->before, 0, sizeof p->before);
    memset(p->after, 0, sizeof p->after);
    for (int i = 0; i < n; i++) {
        const int64_t before = pads[i], after = pads[n + i], most = WB__MAX_DIM;
        if (before < -most || before > most || after < -most || after > most)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "pads %lld and %lld of axis %d",
                                   (long long)before, (long long)after, axes[i]);
        p->before[axes[i]] = before;
        p->after[axes[i]] = after;
        if (x->dims[axes[i]] + WB__MIN(before, 0) + WB__MIN(after, 0) < 0)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "pads %lld and %lld remove more than axis %d "
                                   "of %s has", (long long)before, (long long)after, axes[i],
                                   wb_describe(x));
    }
    return true;
}

/* Sets the value of the mode constant. */
static bool onnx_pad_read_value(wb__onnx_call *c, onnx_pad_padding *p)
{
    if (wb__onnx_attribute(c, "value"))
        p->value = wb__literal(wb__onnx_real(c, "value"), (wb_dtype)c->in[0]->dtype);
    else if (wb__onnx_in(c, 2))
        p->value = wb__onnx_number(c, 2);
    else
        return true;
    if (!p->value) return false;
    if (p->value->op == WB__OP_literal && p->value->number[0].f == 0) p->value = NULL;
    return true;
}

/* Returns n copies of the value, in the shape of x but for the size along the axis. */
static wb_tensor *onnx_pad_margin(const wb_tensor *x, int axis, int64_t n, wb_tensor *value)
{
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = n;
    return wb_expand_array(value, x->ndim, dims);
}

static wb_tensor *onnx_pad_with_margins(wb_tensor *x, int axis, int64_t before, int64_t after,
                                        wb_tensor *value)
{
    wb_tensor *part[3];
    int n = 0;
    if (before) part[n++] = onnx_pad_margin(x, axis, before, value);
    part[n++] = x;
    if (after) part[n++] = onnx_pad_margin(x, axis, after, value);
    return wb_concat_array(axis, n, part);
}

/* Returns x with its elements mirrored at both ends, again and again if there are fewer than are
 * added. */
static wb_tensor *onnx_pad_mirrored(wb_tensor *x, int axis, int64_t before, int64_t after)
{
    const bool single = x->dims[axis] == 1;
    const wb_pad_options o = WB__OPTIONS(wb_pad_options,
                                         .mode = single ? WB_PAD_REPLICATE : WB_PAD_REFLECT);
    while (x && (before || after)) {
        const int64_t most = single ? INT64_MAX : x->dims[axis] - 1;
        const int64_t b = WB__MIN(before, most), a = WB__MIN(after, most);
        x = wb_pad_with(x, axis, b, a, &o);
        before -= b;
        after -= a;
    }
    return x;
}

/* Returns x periodically continued along the axis: a slice of copies of x side by side. */
static wb_tensor *onnx_pad_wrapped(wb_tensor *x, int axis, int64_t before, int64_t after)
{
    const wb_pad_options o = WB__OPTIONS(wb_pad_options, .mode = WB_PAD_CIRCULAR);
    const int64_t n = x->dims[axis], from = (n - before % n) % n, size = before + n + after;
    if (before <= n && after <= n) return wb_pad_with(x, axis, before, after, &o);
    int64_t counts[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) counts[i] = i == axis ? (from + size - 1) / n + 1 : 1;
    wb_tensor *y = wb_tile_array(x, x->ndim, counts);
    return y ? wb_slice(y, axis, from, from + size) : NULL;
}

static wb_tensor *onnx_pad_padded(const wb__onnx_call *c, const onnx_pad_padding *p, wb_tensor *x,
                                  int axis)
{
    const int64_t before = WB__MAX(p->before[axis], 0), after = WB__MAX(p->after[axis], 0);
    wb_pad_options o = WB__OPTIONS(wb_pad_options);
    if (!before && !after) return x;
    if (p->value) return onnx_pad_with_margins(x, axis, before, after, p->value);
    if (!x->dims[axis]) {
        wb__onnx_refuse(c, WB_ERROR_SHAPE, "axis %d of %s has no elements to repeat", axis,
                        wb_describe(x));
        return NULL;
    }
    if (p->mode == REFLECT) return onnx_pad_mirrored(x, axis, before, after);
    if (p->mode == WRAP) return onnx_pad_wrapped(x, axis, before, after);
    o.mode = WB_PAD_REPLICATE;
    return wb_pad_with(x, axis, before, after, &o);
}

bool wb__onnx_pad(wb__onnx_call *c)
{
    onnx_pad_padding p = {.mode = (onnx_pad_mode)wb__onnx_word_index(c, "mode")};
    if (!onnx_pad_read(c, &p)) return false;
    const bool constant = p.mode == CONSTANT;
    if (constant && !onnx_pad_read_value(c, &p)) return false;
    const bool zeros = constant && !p.value;
    wb_tensor *x = c->in[0];
    int64_t start[WB_MAX_DIMS], dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        start[i] = zeros ? p.before[i] : WB__MIN(p.before[i], 0);
        dims[i] = x->dims[i] + start[i] + (zeros ? p.after[i] : WB__MIN(p.after[i], 0));
    }
    const int ndim = x->ndim;
    x = wb__onnx_place(x, start, dims);
    for (int i = 0; i < ndim && x && !zeros; i++) x = onnx_pad_padded(c, &p, x, i);
    return wb__onnx_give(c, x);
}

/* ---- CenterCropPad --------------------------------------------------------------------------- */

/* Computes CenterCropPad.  Half of what is cut off or added, rounded down, is in front. */
bool wb__onnx_center_crop_pad(wb__onnx_call *c)
{
    const int64_t *shape;
    int axes[WB_MAX_DIMS];
    int64_t start[WB_MAX_DIMS] = {0}, dims[WB_MAX_DIMS];
    wb_tensor *x = c->in[0];
    const int m = wb__onnx_input_ints(c, 1, &shape);
    int n = m < 0 ? -2 : wb__onnx_axes(c, 2, x->ndim, axes);
    if (n == -2) return false;
    if (n == -1)
        for (n = 0; n < x->ndim; n++) axes[n] = n;
    if (m != n)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%d sizes for %d axes of %s", m, n,
                               wb_describe(x));
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < n; i++) {
        if (shape[i] < 0 || shape[i] > WB__MAX_DIM)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the size %lld of axis %d; it is 0 to %lld",
                                   (long long)shape[i], axes[i], (long long)WB__MAX_DIM);
        dims[axes[i]] = shape[i];
        start[axes[i]] = (shape[i] - x->dims[axes[i]]) / 2;
    }
    return wb__onnx_give(c, wb__onnx_place(x, start, dims));
}

/* ---- Col2Im ---------------------------------------------------------------------------------- */

enum { ONNX_PAD_SPACE = WB_MAX_DIMS - 2 };

/* The windows of Col2Im, whose elements are added up.  Axes of space: 0 to n - 1. */
typedef struct {
    int n;
    const int64_t *image, *block;
    int64_t stride[ONNX_PAD_SPACE], dilation[ONNX_PAD_SPACE], before[ONNX_PAD_SPACE];
    int64_t places[ONNX_PAD_SPACE];     /* number of places of windows along each axis */
    int64_t size[ONNX_PAD_SPACE];       /* size of the image with its padding */
    int64_t windows, elements, total;   /* the products of places, of block and of size */
} windows;

/* Sets to[] to the numbers of an attribute, or to `otherwise`. */
static bool per_axis(wb__onnx_call *c, const char *name, int n, int64_t otherwise, int64_t *to)
{
    const int64_t *list;
    const int m = wb__onnx_ints(c, name, &list);
    if (m >= 0 && m != n)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%d %s; it has %d", m, name, n);
    for (int i = 0; i < n; i++) {
        to[i] = m >= 0 ? list[i] : otherwise;
        if (to[i] < otherwise || to[i] > INT32_MAX)
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%lld in %s", (long long)to[i], name);
    }
    return true;
}

static bool onnx_pad_read_windows(wb__onnx_call *c, windows *w)
{
    const int64_t *image, *block;
    int64_t pads[2 * ONNX_PAD_SPACE];
    *w = (windows){.windows = 1, .elements = 1, .total = 1};
    w->n = wb__onnx_input_ints(c, 1, &image);
    const int m = w->n < 0 ? -2 : wb__onnx_input_ints(c, 2, &block);
    if (m < 0) return false;
    if (w->n != m || m < 1 || m > ONNX_PAD_SPACE)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "an image of %d axes, and blocks of %d",
                               w->n, m);
    w->image = image;
    w->block = block;
    if (!per_axis(c, "strides", m, 1, w->stride) || !per_axis(c, "dilations", m, 1, w->dilation) ||
        !per_axis(c, "pads", 2 * m, 0, pads))
        return false;
    for (int i = 0; i < m; i++) {
        if (image[i] < 1 || image[i] > INT32_MAX || block[i] < 1 || block[i] > INT32_MAX)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "an image of size %lld, blocks of size %lld",
                                   (long long)image[i], (long long)block[i]);
        w->before[i] = pads[i];
        w->size[i] = image[i] + pads[i] + pads[m + i];
        const int64_t first = w->dilation[i] * (block[i] - 1) + 1;
        w->places[i] = w->size[i] < first ? 0 : (w->size[i] - first) / w->stride[i] + 1;
        if (__builtin_mul_overflow(w->windows, w->places[i], &w->windows) ||
            __builtin_mul_overflow(w->elements, block[i], &w->elements) ||
            __builtin_mul_overflow(w->total, w->size[i], &w->total))
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its image and blocks are too large");
    }
    return true;
}

/* Returns, for each element of a block and each window, its place in the padded image. */
static wb_tensor *onnx_pad_window_places(const wb_tensor *x, const windows *w)
{
    const int64_t n = w->elements * w->windows;
    int64_t *at = wb__alloc((size_t)n * sizeof *at + 1);
    for (int64_t k = 0; at && k < n; k++) {
        int64_t window = k % w->windows, element = k / w->windows, step = 1;
        at[k] = 0;
        for (int i = w->n - 1; i >= 0; i--) {
            at[k] += step * (window % w->places[i] * w->stride[i] +
                             element % w->block[i] * w->dilation[i]);
            window /= w->places[i];
            element /= w->block[i];
            step *= w->size[i];
        }
    }
    wb_tensor *y = at ? wb__onnx_from(x, at, WB_I64, 1, &n) : NULL;
    wb__free(at);
    return y;
}

bool wb__onnx_col2im(wb__onnx_call *c)
{
    windows w;
    if (!onnx_pad_read_windows(c, &w)) return false;
    wb_tensor *x = c->in[0];
    if (x->ndim != 3 || x->dims[1] % w.elements || x->dims[2] != w.windows)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s is not of %lld windows of %lld elements",
                               wb_describe(x), (long long)w.windows, (long long)w.elements);
    const int64_t channels = x->dims[1] / w.elements, planes = x->dims[0] * channels;
    const int64_t flat[2] = {planes, w.elements * w.windows};
    int64_t dims[WB_MAX_DIMS] = {x->dims[0], channels}, start[WB_MAX_DIMS] = {0};
    int64_t padded_dims[WB_MAX_DIMS] = {x->dims[0], channels};
    for (int i = 0; i < w.n; i++) {
        dims[2 + i] = w.image[i];
        padded_dims[2 + i] = w.size[i];
        start[2 + i] = -w.before[i];
    }
    wb_tensor *at = onnx_pad_window_places(x, &w), *rows = wb_reshape_array(x, 2, flat);
    wb_tensor *zeros = wb_full_array(0, (wb_dtype)x->dtype, 2, (int64_t[]){w.total, planes});
    if (!at || !rows || !zeros) return false;
    wb_tensor *y = wb_scatter(zeros, at, wb_transpose(rows), .reduce = WB_SCATTER_ADD);
    y = y ? wb_reshape_array(wb_transpose(y), 2 + w.n, padded_dims) : NULL;
    return wb__onnx_give(c, wb__onnx_place(y, start, dims));
}
