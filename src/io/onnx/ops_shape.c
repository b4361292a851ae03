/* Operators that change the shape of a tensor, or select and join parts of it.  ops_pad.c has those
 * that add elements. */
#include "io/onnx/ops_common.h"
#include "weber/indexing.h"

#include <string.h>

/* Computes Reshape.  A size 0 is that of x along the same axis, unless allowzero is set; -1 is what
 * remains. */
bool wb__onnx_reshape(wb__onnx_call *c)
{
    const int64_t *given;
    int64_t dims[WB_MAX_DIMS];
    bool zero = false, rest = false;
    const bool allowed = wb__onnx_int(c, "allowzero") != 0;
    const int n = wb__onnx_input_ints(c, 1, &given);
    const wb_tensor *x = c->in[0];
    if (n < 0) return false;
    if (n > WB_MAX_DIMS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "a shape of %d dimensions; Weber has at "
                               "most %d", n, WB_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        dims[i] = given[i];
        rest |= given[i] == -1;
        zero |= given[i] == 0 && allowed;
        if (given[i] || allowed) continue;
        if (i >= x->ndim)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "dimension %d of the shape is 0, that of the "
                                   "input, which is %s", i, wb_describe(x));
        dims[i] = x->dims[i];
    }
    if (zero && rest)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the shape has 0 and -1, with allowzero");
    return wb__onnx_give(c, wb_reshape_array(c->in[0], n, dims));
}

/* Computes Transpose.  Without an order the axes are reversed. */
bool wb__onnx_transpose(wb__onnx_call *c)
{
    const int64_t *given;
    int64_t order[WB_MAX_DIMS];
    const int n = wb__onnx_ints(c, "perm", &given), ndim = c->in[0]->ndim;
    if (n > 0) return wb__onnx_give(c, wb_permute_array(c->in[0], n, given));
    for (int i = 0; i < ndim; i++) order[i] = ndim - 1 - i;
    return wb__onnx_give(c, wb_permute_array(c->in[0], ndim, order));
}

/* Computes Flatten: the axes before `axis` become one, and so do those from `axis` on. */
bool wb__onnx_flatten(wb__onnx_call *c)
{
    const wb_tensor *x = c->in[0];
    int64_t axis = wb__onnx_int(c, "axis"), dims[2] = {1, 1};
    if (axis != x->ndim && (axis = wb__onnx_axis(c, axis, x->ndim)) < 0) return false;
    for (int i = 0; i < x->ndim; i++) dims[i >= axis] *= x->dims[i];
    return wb__onnx_give(c, wb_reshape_array(c->in[0], 2, dims));
}

bool wb__onnx_squeeze(wb__onnx_call *c)
{
    int axes[WB_MAX_DIMS], ndim = 0;
    int64_t dims[WB_MAX_DIMS];
    const wb_tensor *x = c->in[0];
    const int n = wb__onnx_axes(c, 1, x->ndim, axes);
    if (n == -2) return false;
    unsigned dropped = 0;
    for (int i = 0; i < n; i++) {
        dropped |= 1u << axes[i];
        if (x->dims[axes[i]] != 1)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "axis %d of %s has not the size 1", axes[i],
                                   wb_describe(x));
    }
    for (int i = 0; i < x->ndim; i++)
        if (n > 0 || (n == 0 && c->node->opset >= 13) ? !(dropped >> i & 1) : x->dims[i] != 1)
            dims[ndim++] = x->dims[i];
    return wb__onnx_give(c, wb_reshape_array(c->in[0], ndim, dims));
}

/* Computes Unsqueeze.  The axes are those of the result. */
bool wb__onnx_unsqueeze(wb__onnx_call *c)
{
    const int64_t *given;
    int axes[WB_MAX_DIMS], from = 0;
    int64_t dims[WB_MAX_DIMS];
    const wb_tensor *x = c->in[0];
    const int n = wb__onnx_list(c, "axes", 1, &given);
    if (n < 0) return false;
    if (x->ndim + n > WB_MAX_DIMS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%d axes more for %s; Weber has at most %d",
                               n, wb_describe(x), WB_MAX_DIMS);
    if (wb__onnx_axes(c, 1, x->ndim + n, axes) == -2) return false;
    unsigned added = 0;
    for (int i = 0; i < n; i++) added |= 1u << axes[i];
    for (int i = 0; i < x->ndim + n; i++) dims[i] = added >> i & 1 ? 1 : x->dims[from++];
    return wb__onnx_give(c, wb_reshape_array(c->in[0], x->ndim + n, dims));
}

/* Computes Expand: x and the shape broadcast to each other. */
bool wb__onnx_expand_to(wb__onnx_call *c)
{
    const int64_t *shape;
    const int n = wb__onnx_input_ints(c, 1, &shape);
    const wb_tensor *x = c->in[0];
    const int ndim = WB__MAX(n, x->ndim);
    int64_t dims[WB_MAX_DIMS];
    if (n < 0) return false;
    if (n > WB_MAX_DIMS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "a shape of %d dimensions; Weber has at "
                               "most %d", n, WB_MAX_DIMS);
    for (int i = 1; i <= ndim; i++) {
        const int64_t of_x = i <= x->ndim ? x->dims[x->ndim - i] : 1;
        dims[ndim - i] = i <= n && shape[n - i] != 1 ? shape[n - i] : of_x;
    }
    return wb__onnx_give(c, wb_expand_array(c->in[0], ndim, dims));
}

bool wb__onnx_tile(wb__onnx_call *c)
{
    const int64_t *counts;
    const int n = wb__onnx_input_ints(c, 1, &counts);
    if (n < 0) return false;
    if (n != c->in[0]->ndim)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%d counts for the axes of %s", n,
                               wb_describe(c->in[0]));
    return wb__onnx_give(c, wb_tile_array(c->in[0], n, counts));
}

/* ---- parts ----------------------------------------------------------------------------------- */

bool wb__onnx_concat(wb__onnx_call *c)
{
    if (!wb__onnx_has(c, WB__MAX(c->n_in, 1))) return false;
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), c->in[0]->ndim);
    return axis >= 0 && wb__onnx_give(c, wb_concat_array(axis, c->n_in, c->in));
}

/* Computes Split.  Without sizes the parts are equal.  Since opset 18 the last one may be
 * smaller. */
bool wb__onnx_split(wb__onnx_call *c)
{
    const int64_t opset = c->node->opset, *sizes = NULL;
    wb_tensor *x = c->in[0];
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    const int n = axis < 0 ? -2 : wb__onnx_list(c, "split", 1, &sizes);
    const int64_t wanted = wb__onnx_int_or(c, "num_outputs", c->n_out);
    if (n == -2) return false;
    if ((n >= 0 && n != c->n_out) || wanted != c->n_out)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%lld parts and %d outputs",
                               (long long)(n >= 0 ? n : wanted), c->n_out);
    const int64_t size = x->dims[axis], parts = WB__MAX(c->n_out, 1);
    const int64_t each = size / parts + (size % parts != 0);
    if (n < 0 && (opset < 18 ? size % parts != 0 : each * (parts - 1) > size))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "axis %d of %s into %lld equal parts", axis,
                               wb_describe(x), (long long)parts);
    int64_t from = 0;
    for (int i = 0; i < c->n_out; i++) {
        const int64_t part = n >= 0 ? sizes[i] : WB__MIN(each, size - from);
        if (part < 0 || part > size - from)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "part %d has the size %lld, and %lld of axis "
                                   "%d are left", i, (long long)part, (long long)(size - from),
                                   axis);
        if (!(c->out[i] = wb_slice(x, axis, from, from + part))) return false;
        from += part;
    }
    return from == size || wb__onnx_refuse(c, WB_ERROR_SHAPE, "the parts have %lld of the %lld "
                                           "elements of axis %d", (long long)from, (long long)size,
                                           axis);
}

/* ---- Slice ----------------------------------------------------------------------------------- */

/* What a Slice reads: n starts, ends, axes (or NULL) and steps (or NULL). */
typedef struct { int n; const int64_t *start, *end, *axis, *step; } onnx_shape_slices;

/* Sets *to to a list of the node, of *n numbers unless *n is -1; NULL without it.  False with the
 * error set: it has another length. */
static bool onnx_shape_slice_list(wb__onnx_call *c, int i, const char *name, int *n,
                                  const int64_t **to)
{
    const int m = wb__onnx_list(c, name, i, to);
    if (m < 0) *to = NULL;
    if (m < 0) return m == -1;
    if (*n >= 0 && m != *n)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%d %s, and %d starts", m, name, *n);
    *n = m;
    return true;
}

static bool onnx_shape_read_slices(wb__onnx_call *c, onnx_shape_slices *s)
{
    *s = (onnx_shape_slices){.n = -1};
    return onnx_shape_slice_list(c, 1, "starts", &s->n, &s->start) &&
           onnx_shape_slice_list(c, 2, "ends", &s->n, &s->end) &&
           onnx_shape_slice_list(c, 3, "axes", &s->n, &s->axis) &&
           onnx_shape_slice_list(c, 4, "steps", &s->n, &s->step);
}

/* Returns a bound cut off at 0 and n, or, for a negative step, at -1 and n - 1. */
static int64_t onnx_shape_clamp_bound(int64_t at, int64_t n, bool down)
{
    if (at < 0) at += n;
    return WB__MAX(WB__MIN(at, down ? n - 1 : n), down ? -1 : 0);
}

/* Sets *from, *count and *step of an axis of n elements. */
static void onnx_shape_slice_axis(int64_t n, int64_t start, int64_t end, int64_t *from,
                                  int64_t *count, int64_t *step)
{
    const bool down = *step < 0;
    const int64_t first = onnx_shape_clamp_bound(start, n, down),
                  last = onnx_shape_clamp_bound(end, n, down);
    const int64_t length = down ? first - last : last - first;
    const int64_t size = WB__MAX(WB__MIN(down ? -WB__MAX(*step, -INT64_MAX) : *step, n), 1);
    *count = length > 0 ? (length - 1) / size + 1 : 0;
    *from = *count ? first : 0;
    *step = *count < 2 ? 1 : down ? -size : size;
}

bool wb__onnx_slice(wb__onnx_call *c)
{
    onnx_shape_slices s;
    int64_t from[WB_MAX_DIMS] = {0}, count[WB_MAX_DIMS], step[WB_MAX_DIMS];
    if (!onnx_shape_read_slices(c, &s)) return false;
    wb_tensor *x = c->in[0];
    unsigned seen = 0;
    bool cut = false;
    memcpy(count, x->dims, sizeof count);
    for (int i = 0; i < WB_MAX_DIMS; i++) step[i] = 1;
    for (int i = 0; i < s.n; i++) {
        const int axis = wb__onnx_axis(c, s.axis ? s.axis[i] : i, x->ndim);
        if (axis < 0) return false;
        if (seen >> axis & 1)
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "axis %d is named twice", axis);
        if (s.step && !s.step[i])
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "the step along axis %d is 0", axis);
        seen |= 1u << axis;
        if (s.step) step[axis] = s.step[i];
        onnx_shape_slice_axis(x->dims[axis], s.start[i], s.end[i], &from[axis], &count[axis],
                              &step[axis]);
        cut |= count[axis] != x->dims[axis] || step[axis] != 1;
    }
    return wb__onnx_give(c, cut ? wb__slice_at(x, from, count, step) : wb__unchanged(x));
}

/* Returns the attribute blocksize if it fits x [N, C, H, W]; 0 with the error set. */
static int64_t onnx_shape_block_size(wb__onnx_call *c, bool of_space)
{
    const int64_t b = wb__onnx_int(c, "blocksize");
    const wb_tensor *x = c->in[0];
    const bool sane = x->ndim == 4 && b > 0 && b <= INT16_MAX;
    if (sane && (of_space ? x->dims[2] % b == 0 && x->dims[3] % b == 0 : x->dims[1] % (b * b) == 0))
        return b;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "blocks of %lld do not divide %s", (long long)b,
                           wb_describe(x));
}

/* Returns x as a tensor of six axes, whose order is then changed, as a tensor of four axes. */
static wb_tensor *onnx_shape_rearrange(wb_tensor *x, const int64_t six[6], const int64_t order[6],
                                       const int64_t four[4])
{
    x = wb_reshape_array(x, 6, six);
    x = x ? wb_permute_array(x, 6, order) : NULL;
    return x ? wb_reshape_array(x, 4, four) : NULL;
}

bool wb__onnx_depth_to_space(wb__onnx_call *c)
{
    const bool channels_first = wb__onnx_word_index(c, "mode") == 1;
    const int64_t b = onnx_shape_block_size(c, false);
    if (!b) return false;
    const int64_t *d = c->in[0]->dims, n = d[1] / (b * b);
    const int64_t four[4] = {d[0], n, d[2] * b, d[3] * b};
    wb_tensor *y = channels_first
                       ? onnx_shape_rearrange(c->in[0], (int64_t[]){d[0], n, b, b, d[2], d[3]},
                                              (int64_t[]){0, 1, 4, 2, 5, 3}, four)
                       : onnx_shape_rearrange(c->in[0], (int64_t[]){d[0], b, b, n, d[2], d[3]},
                                              (int64_t[]){0, 3, 4, 1, 5, 2}, four);
    return wb__onnx_give(c, y);
}

bool wb__onnx_space_to_depth(wb__onnx_call *c)
{
    const bool channels_first = wb__onnx_word_index(c, "mode") == 1;
    const int64_t b = onnx_shape_block_size(c, true);
    if (!b) return false;
    const int64_t *d = c->in[0]->dims, h = d[2] / b, w = d[3] / b;
    const int64_t behind[6] = {0, 3, 5, 1, 2, 4}, before[6] = {0, 1, 3, 5, 2, 4};
    return wb__onnx_give(c, onnx_shape_rearrange(c->in[0], (int64_t[]){d[0], d[1], h, b, w, b},
                                                 channels_first ? before : behind,
                                                 (int64_t[]){d[0], d[1] * b * b, h, w}));
}

/* ---- triangles, sequences -------------------------------------------------------------------- */

bool wb__onnx_trilu(wb__onnx_call *c)
{
    int64_t k = 0;
    if (!wb__onnx_input_int(c, 1, &k)) return false;
    return wb__onnx_give(c, wb__onnx_int(c, "upper") ? wb_triu(c->in[0], k)
                                                        : wb_tril(c->in[0], k));
}

/* Computes ReverseSequence: the first elements along the axis of time, as many as the length of
 * each sequence, in reverse order.  They are gathered by their places. */
bool wb__onnx_reverse_sequence(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0], *lengths = wb__as(c->in[1], WB_I64);
    const int batch = wb__onnx_axis(c, wb__onnx_int(c, "batch_axis"), x->ndim);
    const int time = wb__onnx_axis(c, wb__onnx_int(c, "time_axis"), x->ndim);
    if (batch < 0 || time < 0 || !lengths) return false;
    if (batch == time || lengths->ndim != 1 || lengths->dims[0] != x->dims[batch])
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "lengths %s for %s, of which axis %d is the "
                               "batch, and axis %d the time", wb_describe(lengths), wb_describe(x),
                               batch, time);
    int64_t of_batch[WB_MAX_DIMS], of_time[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        of_batch[i] = i == batch ? x->dims[i] : 1;
        of_time[i] = i == time ? x->dims[i] : 1;
    }
    lengths = wb_reshape_array(lengths, x->ndim, of_batch);
    wb_tensor *at = wb_reshape_array(wb_arange(x->dims[time], WB_I64), x->ndim, of_time);
    wb_tensor *back = wb_sub(wb_sub(lengths, wb__literal(1, WB_I64)), at);
    at = wb_where(wb_lt(at, lengths), back, at);
    return wb__onnx_give(c, wb_take_along(x, at, time));
}
