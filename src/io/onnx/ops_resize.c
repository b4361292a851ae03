/* Resize and Upsample of ONNX, one axis after the other: the nearest element is taken by index;
 * linear and cubic interpolation, with and without antialias, are weighted sums of a few elements.
 *
 * Before opset 11 Resize has positions without offset ("asymmetric") and rounds them down. */
#include "io/onnx/ops_common.h"
#include "io/onnx/frame.h"
#include "io/onnx/ops_window.h"
#include "nn/space.h"

#include <math.h>
#include <string.h>

typedef enum {
    HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, CROP
} transformation;
typedef enum { ONNX_RESIZE_NEAREST, ONNX_RESIZE_LINEAR,
               ONNX_RESIZE_CUBIC } onnx_resize_interpolation;
typedef enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL } rounding;

typedef struct {
    transformation where;
    onnx_resize_interpolation mode;
    rounding round;
    bool antialias, exclude_outside, of_pytorch;
    double cubic_a, extrapolation;
    int n, axis[WB_MAX_DIMS];           /* the axes, of which the following have a number each */
    double scale[WB_MAX_DIMS], start[WB_MAX_DIMS], end[WB_MAX_DIMS];    /* start, end: of the roi */
    int64_t out[WB_MAX_DIMS];
} resize;

static bool onnx_resize_read_attributes(const wb__onnx_call *c, resize *r)
{
    r->mode = (onnx_resize_interpolation)wb__onnx_word_index(c, "mode");
    r->where = (transformation)wb__onnx_word_index(c, "coordinate_transformation_mode");
    r->round = (rounding)wb__onnx_word_index(c, "nearest_mode");
    r->of_pytorch = !strcmp(c->run->state->model->producer, "pytorch");
    r->antialias = wb__onnx_int(c, "antialias");
    r->exclude_outside = wb__onnx_int(c, "exclude_outside");
    r->cubic_a = wb__onnx_real(c, "cubic_coeff_a");
    r->extrapolation = wb__onnx_real(c, "extrapolation_value");
    if (r->mode == ONNX_RESIZE_NEAREST && (r->antialias || r->exclude_outside))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%s with mode nearest",
                               r->antialias ? "antialias" : "exclude_outside");
    return true;
}

static bool onnx_resize_read_axes(wb__onnx_call *c, const wb_tensor *x, resize *r)
{
    const int64_t *list;
    const int n = wb__onnx_ints(c, "axes", &list);
    unsigned seen = 0;
    r->n = n < 0 ? x->ndim : n;
    if (r->n > x->ndim)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%d axes of %s", n, wb_describe(x));
    for (int i = 0; i < r->n; i++) {
        const int axis = r->axis[i] = n < 0 ? i : wb__onnx_axis(c, list[i], x->ndim);
        if (axis < 0) return false;
        if (seen >> axis & 1) return wb__onnx_refuse(c, WB_ERROR_FORMAT, "axis %d twice", axis);
        seen |= 1u << axis;
        r->start[i] = 0;
        r->end[i] = 1;
    }
    return true;
}

static bool onnx_resize_count_fits(const wb__onnx_call *c, const char *what, int count, int n)
{
    if (count == n) return true;
    return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%s has %d numbers; it has %d here", what, count, n);
}

/* Sets the new sizes from scales, in f32, in which they are in the file: 0.7 of 10 is 7. */
static bool take_scales(const wb__onnx_call *c, const wb_tensor *x, int count, const double *scales,
                        resize *r)
{
    if (!onnx_resize_count_fits(c, "scales", count, r->n)) return false;
    for (int i = 0; i < r->n; i++) {
        const double wide = floor((float)scales[i] * (float)x->dims[r->axis[i]]);
        if (!(scales[i] > 0) || !(wide < INT32_MAX))
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "a scale is %g", scales[i]);
        r->scale[i] = scales[i];
        r->out[i] = (int64_t)wide;
    }
    return true;
}

/* Sets the new sizes, and the scales that follow.  Other policies than "stretch" have one scale for
 * all axes. */
static bool onnx_resize_set_by_sizes(const wb__onnx_call *c, const wb_tensor *x, int count,
                                     const int64_t *sizes, resize *r)
{
    const int policy = wb__onnx_word_index(c, "keep_aspect_ratio_policy");
    double common = 0;
    if (!onnx_resize_count_fits(c, "sizes", count, r->n)) return false;
    for (int i = 0; i < r->n; i++) {
        const int64_t in = x->dims[r->axis[i]];
        if (sizes[i] < 1 || sizes[i] > INT32_MAX || in < 1)
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "axis %d of %s cannot get the size "
                                   "%lld", r->axis[i], wb_describe(x), (long long)sizes[i]);
        r->out[i] = sizes[i];
        r->scale[i] = (double)sizes[i] / (double)in;
        if (!i || (policy == 1 ? r->scale[i] < common : r->scale[i] > common)) common = r->scale[i];
    }
    for (int i = 0; policy && i < r->n; i++) {
        r->scale[i] = common;
        r->out[i] = (int64_t)(common * (double)x->dims[r->axis[i]] + 0.5);
    }
    return true;
}

static bool onnx_resize_read_roi(wb__onnx_call *c, resize *r)
{
    const double *roi;
    if (r->where != CROP) return true;
    const int count = wb__onnx_input_reals(c, 1, &roi);
    if (count < -1 || !onnx_resize_count_fits(c, "roi", WB__MAX(count, 0), 2 * r->n)) return false;
    for (int i = 0; i < r->n; i++) r->start[i] = roi[i], r->end[i] = roi[r->n + i];
    return true;
}

/* Returns the position among the `in` elements of an axis that element i of the result has. */
static double onnx_resize_position(const resize *r, int k, int64_t in, int64_t i)
{
    const double at = (double)i, scale = r->scale[k], last = (double)(in - 1);
    const int64_t out = r->out[k];
    /* The standard's width of the result is not rounded; PyTorch, which writes the scales that its
     * program has, means the rounded one. */
    const double width = r->of_pytorch ? (double)out : scale * (double)in;
    switch (r->where) {
    case HALF_PIXEL_SYMMETRIC:
        return (double)in / 2 * (1 - (double)out / width) + (at + 0.5) / scale - 0.5;
    case PYTORCH_HALF_PIXEL: return out > 1 ? (at + 0.5) / scale - 0.5 : 0;
    case ALIGN_CORNERS: return out > 1 ? at * last / (width - 1) : 0;
    case ASYMMETRIC: return at / scale;
    case CROP:
        if (out == 1) return (r->start[k] + r->end[k]) * last / 2;
        return r->start[k] * last + at * (r->end[k] - r->start[k]) * last / (width - 1);
    default: return (at + 0.5) / scale - 0.5;
    }
}

/* Returns a position rounded to an element by nearest_mode. */
static double onnx_resize_rounded(const resize *r, double x)
{
    const double down = floor(x), part = x - down;
    switch (r->round) {
    case FLOOR: return down;
    case CEIL: return ceil(x);
    case PREFER_CEIL: return part < 0.5 ? down : down + 1;
    default: return part <= 0.5 ? down : down + 1;
    }
}

static double onnx_resize_within(double x, int64_t in) { return fmin(fmax(x, 0),
                                                                     (double)(in - 1)); }

/* Returns y with the extrapolation value where a position is outside of the axis. */
static wb_tensor *onnx_resize_extrapolated(wb_tensor *y, const resize *r, int k, int64_t in)
{
    const int64_t out = r->out[k];
    if (r->where != CROP || !y) return y;
    double *outside = wb__alloc((size_t)out * sizeof *outside);
    for (int64_t i = 0; outside && i < out; i++) {
        const double x = onnx_resize_position(r, k, in, i);
        outside[i] = x < 0 || x > (double)(in - 1);
    }
    wb_tensor *mask = wb__onnx_along(y, outside, WB_BOOL, r->axis[k], out);
    return wb_where(mask, wb__number_of(r->extrapolation), y);
}

/* ---- the nearest element --------------------------------------------------------------------- */

static wb_tensor *onnx_resize_nearest(wb__onnx_call *c, wb_tensor *x, const resize *r, int k)
{
    const int64_t in = x->dims[r->axis[k]], out = r->out[k], times = WB__MAX(out / in, 1);
    double *at = wb__alloc((size_t)out * sizeof *at);
    bool repeats = out == in * times;
    if (!at) return NULL;
    for (int64_t i = 0; i < out; i++) {
        const double p = onnx_resize_position(r, k, in, i);
        at[i] = onnx_resize_within(onnx_resize_rounded(r, p), in);
        repeats &= at[i] == (double)(i / times);
        if (c->node->opset >= 11 || r->scale[k] >= 1 || floor(p) == ceil(p)) continue;
        wb__free(at);
        wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "it shrinks axis %d by %g: how positions are "
                        "rounded, opsets before 11 do not say; export with opset 11", r->axis[k],
                        r->scale[k]);
        return NULL;
    }
    if (repeats) {
        wb__free(at);
        return wb_repeat(x, r->axis[k], times);
    }
    return wb_take(x, wb__onnx_doubles(x, at, WB_I32, 1, &out), r->axis[k]);
}

enum { FEW_TAPS = 8 };                  /* each is a node of the graph */

/* The weights by which an axis of `in` elements becomes one of `out`: element i is the sum over t
 * of weight[t] x[at[t]].  The lists are of one element at a time, since a file of 200 bytes may
 * name any number of elements. */
typedef struct {
    const resize *r;                    /* the node */
    int k;                              /* index of the axis in r->axis */
    int64_t in, out, taps;
    double narrow, *at, *weight;
} onnx_resize_weights;

/* Returns the weight of an element at a distance from the position. */
static double onnx_resize_filter(const resize *r, double distance)
{
    const double d = fabs(distance), a = r->cubic_a;
    if (r->mode == ONNX_RESIZE_LINEAR) return fmax(1 - d, 0);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* Sets *w, with memory for its lists.  With antialias a filter that shrinks the axis is wider, by 1
 * / scale. */
static bool onnx_resize_init_weights(onnx_resize_weights *w, const resize *r, int k, int64_t in)
{
    const double narrow = r->antialias ? fmin(r->scale[k], 1) : 1;
    const int64_t taps = 2 * (int64_t)ceil((r->mode == ONNX_RESIZE_LINEAR ? 1 : 2) / narrow);
    *w = (onnx_resize_weights){r, k, in, r->out[k], taps, narrow, NULL, NULL};
    w->at = wb__alloc((size_t)taps * sizeof *w->at);
    w->weight = wb__alloc((size_t)taps * sizeof *w->weight);
    return w->at && w->weight;
}

/* Divides the weights by their sum. */
static void onnx_resize_normalise(onnx_resize_weights *w)
{
    double sum = 0;
    for (int64_t t = 0; t < w->taps; t++) sum += w->weight[t];
    for (int64_t t = 0; sum != 0 && t < w->taps; t++) w->weight[t] /= sum;
}

/* Sets the lists to the places and weights for element i. */
static void onnx_resize_set_weights(onnx_resize_weights *w, int64_t i)
{
    const resize *r = w->r;
    const double x = onnx_resize_position(r, w->k, w->in, i),
                 first = floor(x) + 1 - (double)(w->taps / 2);
    for (int64_t t = 0; t < w->taps; t++) {
        w->at[t] = first + (double)t;
        w->weight[t] = onnx_resize_filter(r, (w->at[t] - x) * w->narrow);
    }
    if (r->antialias) onnx_resize_normalise(w);
    for (int64_t t = 0; t < w->taps; t++) {
        double *at = &w->at[t];
        if (r->exclude_outside && *at != onnx_resize_within(*at, w->in)) w->weight[t] = 0;
        *at = onnx_resize_within(*at, w->in);
    }
    if (r->exclude_outside) onnx_resize_normalise(w);
}

/* Whether the matrix of a product, [out, in], is small, or not much larger than what the product
 * reads or makes. */
static bool onnx_resize_fits_matrix(const wb_tensor *x, const onnx_resize_weights *w)
{
    enum { SMALL = 1 << 18, TIMES = 2 };
    const int64_t beside = x->size / w->in;
    return w->out <= SMALL / w->in || WB__MIN(w->in, w->out) <= TIMES * beside;
}

/* Returns x resized by a product with a matrix, [out, in], which is quick for short axes. */
static wb_tensor *onnx_resize_by_matrix(wb_tensor *x, int axis, onnx_resize_weights *w)
{
    const int64_t dims[2] = {w->out, w->in};
    double *m = wb__alloc_zero((size_t)(w->out * w->in), sizeof *m);
    for (int64_t i = 0; m && i < w->out; i++) {
        onnx_resize_set_weights(w, i);
        for (int64_t t = 0; t < w->taps; t++) m[i * w->in + (int64_t)w->at[t]] += w->weight[t];
    }
    return wb__along_axis(x, axis, wb__onnx_doubles(x, m, (wb_dtype)x->dtype, 2, dims));
}

/* Sets *at and *weight to the lists of taps (terms of the sums) `from` to before `end` of all
 * elements, tap by tap.  Both are NULL if memory is short. */
static void onnx_resize_list_taps(onnx_resize_weights *w, int64_t from, int64_t end, double **at,
                                  double **weight)
{
    const size_t n = (size_t)((end - from) * w->out);
    *at = wb__alloc(n * sizeof **at);
    *weight = *at ? wb__alloc(n * sizeof **weight) : NULL;
    if (!*weight) wb__free(*at), *at = NULL;
    for (int64_t i = 0; *at && i < w->out; i++) {
        onnx_resize_set_weights(w, i);
        for (int64_t t = from; t < end; t++) {
            (*at)[(t - from) * w->out + i] = w->at[t];
            (*weight)[(t - from) * w->out + i] = w->weight[t];
        }
    }
}

static wb_tensor *onnx_resize_by_index(wb_tensor *x, int axis, onnx_resize_weights *w)
{
    wb_tensor *y = NULL;
    for (int64_t t = 0; t < w->taps; t++) {
        double *at, *weight;
        onnx_resize_list_taps(w, t, t + 1, &at, &weight);
        wb_tensor *index = wb__onnx_doubles(x, at, WB_I32, 1, &w->out);
        wb_tensor *factor = wb__onnx_along(x, weight, (wb_dtype)x->dtype, axis, w->out);
        wb_tensor *part = wb_mul(wb_take(x, index, axis), factor);
        y = t ? wb_add(y, part) : part;
        if (!y) return NULL;
    }
    return y;
}

/* Returns x resized by one sum: all elements that have weights, [before, taps, out, behind], times
 * these. */
static wb_tensor *onnx_resize_by_sum(wb_tensor *x, int axis, onnx_resize_weights *w)
{
    const int64_t all = w->taps * w->out, factors[4] = {1, w->taps, w->out, 1};
    int64_t dims[WB_MAX_DIMS], four[4] = {1, w->taps, w->out, 1};
    double *at, *weight;
    for (int i = 0; i < x->ndim; i++) {
        dims[i] = i == axis ? w->out : x->dims[i];
        if (i != axis) four[i < axis ? 0 : 3] *= x->dims[i];
    }
    const int ndim = x->ndim;
    onnx_resize_list_taps(w, 0, w->taps, &at, &weight);
    wb_tensor *index = wb__onnx_doubles(x, at, WB_I32, 1, &all);
    wb_tensor *factor = wb__onnx_doubles(x, weight, (wb_dtype)x->dtype, 4, factors);
    x = wb_take(x, index, axis);
    x = x ? wb_mul(wb_reshape_array(x, 4, four), factor) : NULL;
    x = x ? wb__reduce(WB__OP_sum, x, 1u << 1, false) : NULL;
    return x ? wb_reshape_array(x, ndim, dims) : NULL;
}

static wb_tensor *onnx_resize_interpolated(wb_tensor *x, const resize *r, int k)
{
    onnx_resize_weights w;
    const int axis = r->axis[k];
    wb_tensor *y = NULL;
    if (onnx_resize_init_weights(&w, r, k, x->dims[axis])) {
        const bool is_short = w.in <= 64 * w.taps;
        y = is_short && onnx_resize_fits_matrix(x, &w) ? onnx_resize_by_matrix(x, axis, &w)
            : w.taps <= FEW_TAPS           ? onnx_resize_by_index(x, axis, &w)
                                           : onnx_resize_by_sum(x, axis, &w);
    }
    wb__free(w.at);
    wb__free(w.weight);
    return y;
}

/* ---- operators ------------------------------------------------------------------------------- */

/* Whether x has elements, and the result as many as a tensor may have; else sets the error. */
static bool onnx_resize_has_result(const wb__onnx_call *c, const resize *r)
{
    const wb_tensor *x = c->in[0];
    int64_t dims[WB_MAX_DIMS], size;
    memcpy(dims, x->dims, sizeof dims);
    for (int k = 0; k < r->n; k++) {
        const int axis = r->axis[k];
        if (x->dims[axis] < 1 || r->out[k] < 1)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "axis %d of %s gets %lld elements", axis,
                                   wb_describe(x), (long long)r->out[k]);
        dims[axis] = r->out[k];
    }
    return wb__check_dims("result", x->ndim, dims, &size);
}

/* Returns x resized along axis k of r. */
static wb_tensor *onnx_resize_along(wb__onnx_call *c, wb_tensor *x, const resize *r, int k)
{
    const int64_t in = x->dims[r->axis[k]];
    const bool whole = r->where != CROP || (r->start[k] == 0 && r->end[k] == 1);
    if (r->out[k] == in && r->scale[k] == 1 && whole) return x;
    x = r->mode == ONNX_RESIZE_NEAREST ? onnx_resize_nearest(c, x, r, k)
                                       : onnx_resize_interpolated(x, r, k);
    return onnx_resize_extrapolated(x, r, k, in);
}

/* Computes Resize.  Axes that shrink come first, so that nothing between is larger than x and the
 * result. */
static bool onnx_resize_all_axes(wb__onnx_call *c, const resize *r)
{
    wb_tensor *x = c->in[0];
    const wb_dtype t = (wb_dtype)x->dtype;
    if (!onnx_resize_has_result(c, r)) return false;
    if (r->mode != ONNX_RESIZE_NEAREST) {
        if (!wb__dtype_float(t))
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "mode %s of %s",
                                   r->mode == ONNX_RESIZE_LINEAR ? "linear" : "cubic",
                                   wb_describe(x));
        x = wb__wide(x);
    }
    for (int grows = 0; grows < 2; grows++)
        for (int k = 0; k < r->n && x; k++)
            if ((r->out[k] >= c->in[0]->dims[r->axis[k]]) == grows)
                x = onnx_resize_along(c, x, r, k);
    return wb__onnx_give(c, wb__as(x, t));
}

/* Computes Upsample, and Resize of opset 10: the scales are input 1. */
static bool onnx_resize_by_scales(wb__onnx_call *c)
{
    resize r = {.where = ASYMMETRIC, .round = FLOOR,
                .mode = (onnx_resize_interpolation)wb__onnx_word_index(c, "mode")};
    const double *scales;
    if (!onnx_resize_read_axes(c, c->in[0], &r)) return false;
    if (r.mode == ONNX_RESIZE_CUBIC)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "mode is \"cubic\"");
    const int count = wb__onnx_input_reals(c, 1, &scales);
    return count >= 0 && take_scales(c, c->in[0], count, scales, &r) && onnx_resize_all_axes(c, &r);
}

bool wb__onnx_upsample(wb__onnx_call *c) { return onnx_resize_by_scales(c); }

bool wb__onnx_resize(wb__onnx_call *c)
{
    resize r = {.n = 0};
    const double *scales = NULL;
    const int64_t *sizes = NULL;
    if (c->node->opset < 11) return onnx_resize_by_scales(c);
    if (!onnx_resize_read_attributes(c, &r) || !onnx_resize_read_axes(c, c->in[0], &r) ||
        !onnx_resize_read_roi(c, &r))
        return false;
    const int n_scales = wb__onnx_input_reals(c, 2, &scales);
    const int n_sizes = n_scales < -1 ? -2 : wb__onnx_input_ints(c, 3, &sizes);
    if (n_scales < -1 || n_sizes < -1) return false;
    /* opsets 11 and 12 have empty scales beside sizes */
    if ((n_scales > 0) == (n_sizes > 0))
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "it has %s; one of them is given",
                               n_sizes > 0 ? "scales and sizes" : "no scales and no sizes");
    return (n_scales > 0 ? take_scales(c, c->in[0], n_scales, scales, &r)
                         : onnx_resize_set_by_sizes(c, c->in[0], n_sizes, sizes, &r)) &&
           onnx_resize_all_axes(c, &r);
}
