/* The pools of ONNX.  Weber's wb_maxpool and wb_meanpool compute those without dilations; with
 * them, and for integers, the windows along one axis after the other are combined from strided
 * slices. */
#include "io/onnx/ops_window.h"

#include <math.h>

typedef wb_tensor *onnx_pool_combine(wb_tensor *x, wb_tensor *y);

/* Sets *s to the windows of a pool.  Padding is smaller than a window, so that each window has
 * elements of x. */
static bool onnx_pool_read(wb__onnx_call *c, wb__onnx_windows *s)
{
    if (!wb__onnx_windows_read(c, c->in[0], NULL, s)) return false;
    for (int i = 0; i < s->axes; i++)
        if (s->before[i] >= s->reach[i] || s->end[i] >= s->reach[i])
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "padding %lld,%lld is not smaller than "
                                   "a window of %lld elements", (long long)s->before[i],
                                   (long long)s->end[i], (long long)s->reach[i]);
    return true;
}

static bool onnx_pool_is_dilated(const wb__onnx_windows *s)
{
    for (int i = 0; i < s->axes; i++)
        if (s->dilation[i] > 1) return true;
    return false;
}

/* Returns the result of a pool of Weber, for windows without dilations. */
static wb_tensor *onnx_pool_plain(wb_tensor *(*pool)(wb_tensor *, const wb_pool_options *),
                                  wb_tensor *x, const wb__onnx_windows *s)
{
    wb_pool_options o = WB__OPTIONS(wb_pool_options);
    int64_t pad[6];
    for (int i = 0; i < s->axes; i++) pad[2 * i] = s->before[i], pad[2 * i + 1] = s->end[i];
    wb_ints_set(o.window, s->axes, s->kernel);
    wb_ints_set(o.stride, s->axes, s->stride);
    wb_ints_set(o.pad, 2 * s->axes, pad);
    return pool(x, &o);
}

/* Returns x with `value` around it, so that all windows fit. */
static wb_tensor *onnx_pool_padded(wb_tensor *x, const wb__onnx_windows *s, double value)
{
    const wb_pad_options o = WB__OPTIONS(wb_pad_options, .value = value);
    for (int i = 0; i < s->axes && x; i++) x = wb_pad_with(x, 2 + i, s->before[i], s->end[i], &o);
    return x;
}

/* Returns element p of each window along axis i of space; x is padded. */
static wb_tensor *onnx_pool_element(wb_tensor *x, const wb__onnx_windows *s, int i, int64_t p)
{
    const int64_t start = p * s->dilation[i];
    return wb_slice(x, 2 + i, start, start + (s->out[i] - 1) * s->stride[i] + 1, s->stride[i]);
}

enum { WINDOW_MOST = 1 << 12 };         /* elements of a window, each of which is a node */

/* Whether windows of `n` elements are few enough to be combined; else sets the error. */
static bool onnx_pool_is_few(const wb__onnx_call *c, double n)
{
    if (n <= WINDOW_MOST) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its windows have %g elements; with dilations, "
                           "of integers, or where the places are wanted, at most %d are done", n,
                           WINDOW_MOST);
}

/* Whether the padding that is made around x is not out of proportion; else sets the error. */
static bool onnx_pool_is_near(const wb__onnx_call *c, const wb__onnx_windows *s, int i)
{
    enum { FEW = 1 << 12, TIMES = 64 };
    if (s->before[i] + s->end[i] <= FEW + TIMES * (s->in[i] + s->out[i])) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "padding %lld,%lld around %lld elements, with "
                           "dilations or of integers", (long long)s->before[i],
                           (long long)s->end[i], (long long)s->in[i]);
}

/* Returns the elements of each window combined by f; `value` is that of the padding. */
static wb_tensor *onnx_pool_combined(const wb__onnx_call *c, wb_tensor *x,
                                     const wb__onnx_windows *s, onnx_pool_combine *f, double value)
{
    for (int i = 0; i < s->axes; i++)
        if (!onnx_pool_is_few(c, (double)s->kernel[i]) || !onnx_pool_is_near(c, s, i)) return NULL;
    x = onnx_pool_padded(x, s, value);
    for (int i = 0; i < s->axes && x; i++) {
        wb_tensor *y = onnx_pool_element(x, s, i, 0);
        for (int64_t p = 1; p < s->kernel[i] && y; p++) y = f(y, onnx_pool_element(x, s, i, p));
        x = y;
    }
    return x;
}

/* ---- MaxPool --------------------------------------------------------------------------------- */

static double onnx_pool_lowest(wb_dtype t)
{
    return wb__dtype_float(t) ? -INFINITY : t == WB_I8 ? INT8_MIN : 0;
}

/* Returns the positions of element p of each window along axis i of space, i64 [1, ..., out, ...]:
 * from -before to beyond the last element of x. */
static wb_tensor *onnx_pool_positions(const wb_tensor *x, const wb__onnx_windows *s, int i,
                                      int64_t p)
{
    int64_t dims[WB_MAX_DIMS];
    for (int k = 0; k < x->ndim; k++) dims[k] = k == 2 + i ? s->out[i] : 1;
    wb_tensor *at = wb_reshape_array(wb_arange(s->out[i], WB_I64), x->ndim, dims);
    at = wb_mul(at, wb__literal((double)s->stride[i], WB_I64));
    return wb_add(at, wb__literal((double)(p * s->dilation[i] - s->before[i]), WB_I64));
}

/* An element of each window, whose place in x is counted: it has the digit digit[i] along axis
 * i. */
typedef struct {
    int64_t digit[3], step[3];          /* step: from an element of x to the next along an axis */
    wb_tensor *inside;                  /* bool: whether it is in x; NULL: it is in all windows */
    int64_t offset;                     /* offset from the place of a window's first element */
    wb_tensor *value;
} window_element;

static bool onnx_pool_next(window_element *e, const wb__onnx_windows *s)
{
    for (int i = s->axes - 1; i >= 0; i--) {
        if (++e->digit[i] < s->kernel[i]) return true;
        e->digit[i] = 0;
    }
    return false;
}

/* Sets inside, offset and value of the element.  `wide` is the padded x. */
static bool onnx_pool_set_element(window_element *e, const wb_tensor *x, wb_tensor *wide,
                                  const wb__onnx_windows *s)
{
    e->inside = NULL;
    e->offset = 0;
    e->value = wide;
    for (int i = 0; i < s->axes && e->value; i++) {
        const int64_t p = e->digit[i], first = p * s->dilation[i] - s->before[i];
        e->value = onnx_pool_element(e->value, s, i, p);
        e->offset += p * s->dilation[i] * e->step[i];
        if (first >= 0 && first + (s->out[i] - 1) * s->stride[i] < s->in[i]) continue;
        wb_tensor *at = onnx_pool_positions(x, s, i, p);
        at = wb_and(wb_ge(at, wb__literal(0, WB_I64)),
                    wb_lt(at, wb__literal((double)s->in[i], WB_I64)));
        e->inside = e->inside ? wb_and(e->inside, at) : at;
        if (!e->inside) return false;
    }
    return e->value;
}

/* Returns the places in x of the first elements of windows, i64. */
static wb_tensor *onnx_pool_first_places(const wb_tensor *x, const wb__onnx_windows *s,
                                         const int64_t *step)
{
    int64_t dims[WB_MAX_DIMS], each = 1;
    for (int i = 0; i < s->axes; i++) each *= s->in[i];
    for (int i = 0; i < x->ndim; i++) dims[i] = i < 2 ? x->dims[i] : 1;
    wb_tensor *y = wb_reshape_array(wb_arange(x->dims[0] * x->dims[1], WB_I64), x->ndim, dims);
    y = wb_mul(y, wb__literal((double)each, WB_I64));
    for (int i = 0; i < s->axes; i++)
        y = wb_add(y,
                   wb_mul(onnx_pool_positions(x, s, i, 0), wb__literal((double)step[i], WB_I64)));
    return y;
}

/* Returns the place of the first greatest element of each window among the elements of x, i64.
 * With `columns` the axes of space are counted from the first one on, as in column-major arrays. */
static wb_tensor *onnx_pool_places(wb_tensor *x, const wb__onnx_windows *s, bool columns)
{
    window_element e = {{0}, {0}, NULL, 0, NULL};
    for (int i = 0; i < s->axes; i++) {
        e.step[i] = 1;
        for (int k = 0; k < s->axes; k++)
            if (columns ? k < i : k > i) e.step[i] *= s->in[k];
    }
    wb_tensor *wide = onnx_pool_padded(x, s, onnx_pool_lowest((wb_dtype)x->dtype)),
              *y = onnx_pool_first_places(x, s, e.step);
    wb_tensor *best = NULL, *offset = NULL, *found = NULL;      /* found: NULL: in all windows */
    do {
        if (!onnx_pool_set_element(&e, x, wide, s)) return NULL;
        wb_tensor *here = wb__literal((double)e.offset, WB_I64);
        if (!best) {
            best = e.value, offset = here, found = e.inside;
            continue;
        }
        wb_tensor *better = wb_gt(e.value, best);
        if (found) better = wb_or(better, wb_not(found));
        if (e.inside) better = wb_and(better, e.inside);
        best = wb_where(better, e.value, best);
        offset = wb_where(better, here, offset);
        found = !found || !e.inside ? NULL : wb_or(found, e.inside);
        if (!best || !offset) return NULL;
    } while (onnx_pool_next(&e, s));
    return wb_add(y, offset);
}

bool wb__onnx_max_pool(wb__onnx_call *c)
{
    wb__onnx_windows s;
    if (!onnx_pool_read(c, &s)) return false;
    wb_tensor *x = c->in[0];
    const wb_dtype t = (wb_dtype)x->dtype;
    if (!wb__dtype_float(t) && t != WB_I8 && t != WB_U8)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s", wb_describe(x));
    const bool is_plain = wb__dtype_float(t) && !onnx_pool_is_dilated(&s);
    wb_tensor *y = is_plain ? onnx_pool_plain(wb_maxpool_with, x, &s)
                            : onnx_pool_combined(c, x, &s, wb_maximum, onnx_pool_lowest(t));
    if (y && wb__onnx_wants(c, 1)) {
        double n = 1;
        for (int i = 0; i < s.axes; i++) n *= (double)s.kernel[i];
        for (int i = 0; i < s.axes; i++)
            if (!onnx_pool_is_near(c, &s, i)) return false;
        if (!onnx_pool_is_few(c, n)) return false;
        wb_tensor *at = onnx_pool_places(wb_stop_gradient(x), &s, wb__onnx_int(c, "storage_order"));
        if (!at) return false;
        c->out[1] = wb_expand_array(at, y->ndim, y->dims);
        if (!c->out[1]) return false;
    }
    return wb__onnx_give(c, y);
}

/* ---- MaxUnpool ------------------------------------------------------------------------------- */

/* Sets dims to the shape of the tensor whose pool x would be. */
static bool onnx_pool_read_unpooled(const wb__onnx_call *c, const wb_tensor *x, int64_t *dims)
{
    const int64_t *kernel, *stride, *pads;
    const int axes = x->ndim - 2, n_kernel = wb__onnx_ints(c, "kernel_shape", &kernel);
    const int n_stride = wb__onnx_ints(c, "strides", &stride);
    const int n_pads = wb__onnx_ints(c, "pads", &pads);
    bool fits = axes >= 1 && n_kernel == axes && (n_stride < 1 || n_stride == axes) &&
                (n_pads < 1 || n_pads == 2 * axes);
    for (int i = 0; i < x->ndim && fits; i++) {
        const int64_t k = i < 2 ? 1 : kernel[i - 2], s = i < 2 || n_stride < 1 ? 1 : stride[i - 2];
        const int64_t p = i < 2 || n_pads < 1 ? 0 : pads[i - 2] + pads[i - 2 + axes];
        fits = k >= 1 && k <= INT32_MAX && s >= 1 && s <= INT32_MAX && p >= 0 && p <= INT32_MAX &&
               x->dims[i] <= INT32_MAX / 2;
        dims[i] = fits ? (x->dims[i] - 1) * s - p + k : 0;
        fits &= dims[i] >= 1;
    }
    return fits || wb__onnx_refuse(c, WB_ERROR_SHAPE, "its kernel_shape, strides and pads do not "
                                   "fit to %s", wb_describe(x));
}

/* Computes MaxUnpool: the elements go to their places in the unpooled tensor.  output_shape adds
 * zeros behind it. */
bool wb__onnx_max_unpool(wb__onnx_call *c)
{
    int64_t dims[WB_MAX_DIMS], size;
    const int64_t *shape;
    wb_tensor *x = c->in[0], *at = c->in[1];
    if (!wb__same_dims(x, at))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s, with places %s", wb_describe(x),
                               wb_describe(at));
    if (!onnx_pool_read_unpooled(c, x, dims) || !wb__check_dims("MaxUnpool", x->ndim, dims, &size))
        return false;
    const wb_scatter_options o = WB__OPTIONS(wb_scatter_options, .reduce = WB_SCATTER_SET);
    wb_tensor *y = wb_expand_array(wb__literal(0, (wb_dtype)x->dtype), 1, &size);
    y = wb_scatter_with(y, wb_reshape_array(at, 1, &x->size), wb_reshape_array(x, 1, &x->size), &o);
    y = y ? wb_reshape_array(y, x->ndim, dims) : NULL;
    const int n = wb__onnx_input_ints(c, 2, &shape);
    if (n < -1) return false;
    if (n >= 0 && n != x->ndim)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "output_shape has %d numbers", n);
    for (int i = 0; i < n && y; i++) {
        if (shape[i] < dims[i])
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "output_shape has %lld along axis %d, "
                                   "which is below %lld", (long long)shape[i], i,
                                   (long long)dims[i]);
        y = wb_pad(y, i, 0, shape[i] - dims[i]);
    }
    return wb__onnx_give(c, y);
}

/* ---- AveragePool, LpPool --------------------------------------------------------------------- */

/* Returns the sums over windows divided by the number of elements of a window, where padding counts
 * as zeros; x has a dtype in which sums are computed. */
static wb_tensor *mean_of_all(const wb__onnx_call *c, wb_tensor *x, const wb__onnx_windows *s)
{
    double n = 1;
    if (!onnx_pool_is_dilated(s)) return onnx_pool_plain(wb_meanpool_with, x, s);
    for (int i = 0; i < s->axes; i++) n *= (double)s->kernel[i];
    return wb_mul(onnx_pool_combined(c, x, s, wb_add, 0), wb__number_of(1 / n));
}

/* Returns the number of elements at low to high - 1 in a window whose first element is at
 * `first`. */
static int64_t onnx_pool_count_within(const wb__onnx_windows *s, int i, int64_t first, int64_t low,
                                      int64_t high)
{
    const int64_t step = s->dilation[i], to_low = WB__MAX(low - first, 0);
    const int64_t from = (to_low + step - 1) / step;
    const int64_t end = high > first ? (high - first + step - 1) / step : 0;
    return WB__MAX(WB__MIN(end, s->kernel[i]) - from, 0);
}

/* Returns y divided by the fraction of the elements of each window that count, along axis i of
 * space: those of x, and with `padding` those of the padding of the file. */
static wb_tensor *onnx_pool_over_count(wb_tensor *y, const wb__onnx_windows *s, int i, bool padding)
{
    const int64_t low = padding ? -s->before[i] : 0;
    const int64_t high = s->in[i] + (padding ? s->after[i] : 0);
    double *factor = wb__alloc((size_t)s->out[i] * sizeof *factor);
    bool all = true;
    for (int64_t j = 0; factor && j < s->out[i]; j++) {
        const int64_t n = onnx_pool_count_within(s, i, j * s->stride[i] - s->before[i], low, high);
        all &= n == s->kernel[i];
        factor[j] = (double)s->kernel[i] / (double)n;
    }
    if (factor && all) {
        wb__free(factor);
        return y;
    }
    return wb_mul(y, wb__onnx_along(y, factor, (wb_dtype)y->dtype, 2 + i, s->out[i]));
}

bool wb__onnx_average_pool(wb__onnx_call *c)
{
    wb__onnx_windows s;
    if (!onnx_pool_read(c, &s)) return false;
    const bool padding = wb__onnx_int(c, "count_include_pad");
    wb_tensor *x = c->in[0];
    if (!wb__floating("AveragePool", x)) return false;
    wb_tensor *y = mean_of_all(c, wb__wide(x), &s);
    for (int i = 0; i < s.axes && y; i++) y = onnx_pool_over_count(y, &s, i, padding);
    return wb__onnx_give(c, wb__as(y, (wb_dtype)x->dtype));
}

/* Returns |x|^p; onnx_pool_root_of returns its inverse, for x that is not negative. */
static wb_tensor *onnx_pool_power_of(wb_tensor *x, int64_t p)
{
    if (p == 2) return wb_square(x);
    return p == 1 ? wb_abs(x) : wb_pow(wb_abs(x), wb__number_of((double)p));
}
static wb_tensor *onnx_pool_root_of(wb_tensor *x, int64_t p)
{
    if (p == 2) return wb_sqrt(x);
    return p == 1 ? x : wb_pow(x, wb__number_of(1 / (double)p));
}

static bool onnx_pool_read_p(const wb__onnx_call *c, int64_t *p)
{
    *p = wb__onnx_int(c, "p");
    if (*p >= 1 && *p <= INT32_MAX) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "p is %lld; it is at least 1", (long long)*p);
}

bool wb__onnx_lp_pool(wb__onnx_call *c)
{
    wb__onnx_windows s;
    int64_t p;
    double n = 1;
    if (!onnx_pool_read(c, &s) || !onnx_pool_read_p(c, &p)) return false;
    for (int i = 0; i < s.axes; i++) n *= (double)s.kernel[i];
    wb_tensor *x = c->in[0];
    if (!wb__floating("LpPool", x)) return false;
    wb_tensor *y = mean_of_all(c, onnx_pool_power_of(wb__wide(x), p), &s);
    y = y ? wb_mul(y, wb__number_of(n)) : NULL;
    return wb__onnx_give(c, wb__as(onnx_pool_root_of(y, p), (wb_dtype)x->dtype));
}

/* ---- pools over all of space ----------------------------------------------------------------- */

/* Returns x, and sets *mask to its axes of space; NULL with the error set. */
static wb_tensor *onnx_pool_axes_of_space(const wb__onnx_call *c, unsigned *mask)
{
    wb_tensor *x = c->in[0];
    *mask = ((1u << x->ndim) - 1) & ~3u;
    if (x->ndim >= 3 && x->size && wb__dtype_float((wb_dtype)x->dtype)) return x;
    wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s; floating [N,C,...] with elements is "
                    "done", wb_describe(x));
    return NULL;
}

bool wb__onnx_global_average_pool(wb__onnx_call *c)
{
    unsigned mask;
    wb_tensor *x = onnx_pool_axes_of_space(c, &mask);
    return wb__onnx_give(c, x ? wb__mean(x, mask, true) : NULL);
}

bool wb__onnx_global_max_pool(wb__onnx_call *c)
{
    unsigned mask;
    wb_tensor *x = onnx_pool_axes_of_space(c, &mask);
    return wb__onnx_give(c, x ? wb__reduce(WB__OP_max, x, mask, true) : NULL);
}

bool wb__onnx_global_lp_pool(wb__onnx_call *c)
{
    unsigned mask;
    int64_t p;
    wb_tensor *x = onnx_pool_axes_of_space(c, &mask);
    if (!x || !onnx_pool_read_p(c, &p)) return false;
    wb_tensor *y = wb__reduce(WB__OP_sum, onnx_pool_power_of(wb__wide(x), p), mask, true);
    return wb__onnx_give(c, wb__as(onnx_pool_root_of(y, p), (wb_dtype)x->dtype));
}
