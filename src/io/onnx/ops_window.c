/* Conv and ConvTranspose of ONNX, and the windows that other operators share with them.
 *
 * Both are Weber's wb_conv and wb_conv_transpose: cross-correlations, with weights in the same
 * layouts.  ONNX lists the padding as all starts, then all ends; Weber has start and end of each
 * axis side by side. */
#include "io/onnx/ops_common.h"
#include "io/onnx/ops_window.h"

#include <string.h>

wb_tensor *wb__onnx_doubles(const wb_tensor *x, double *values, wb_dtype dtype, int ndim,
                            const int64_t *dims)
{
    const wb_device *was = wb__use_device(wb__device_of(x));
    wb_tensor *y = wb__from_doubles(values, dtype, ndim, dims);
    wb__use_device(was);
    return y;
}

wb_tensor *wb__onnx_along(const wb_tensor *x, double *values, wb_dtype dtype, int axis, int64_t n)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == axis ? n : 1;
    return wb__onnx_doubles(x, values, dtype, x->ndim, dims);
}

enum { ONNX_WINDOW_MOST = 1 << 30 };    /* the greatest number, so that sums of products fit in 64
                                           bits */

/* Sets `out` to a list of n numbers from `least` to ONNX_WINDOW_MOST; without the attribute all are
 * `otherwise`. */
static bool onnx_window_read_list(const wb__onnx_call *c, const char *name, int n, int64_t least,
                                  int64_t otherwise, int64_t *out)
{
    const int64_t *list;
    const int count = wb__onnx_ints(c, name, &list);
    if (count > 0 && count != n)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "%s has %d numbers; it has %d here", name, count,
                               n);
    for (int i = 0; i < n; i++) {
        out[i] = count > 0 ? list[i] : otherwise;
        if (out[i] < least || out[i] > ONNX_WINDOW_MOST)
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%s has %lld; numbers from %lld to "
                                   "2^30 are done", name, (long long)out[i], (long long)least);
    }
    return true;
}

typedef enum { NOTSET, VALID, SAME_UPPER, SAME_LOWER } onnx_window_padding_mode;

/* Sets *mode to auto_pad, and before and after of each axis to pads. */
static bool onnx_window_read_pads(const wb__onnx_call *c, wb__onnx_windows *s,
                                  onnx_window_padding_mode *mode)
{
    int64_t pads[6], sum = 0;
    *mode = (onnx_window_padding_mode)wb__onnx_word_index(c, "auto_pad");
    if (!onnx_window_read_list(c, "pads", 2 * s->axes, 0, 0, pads)) return false;
    for (int a = 0; a < s->axes; a++) {
        s->before[a] = pads[a];
        s->after[a] = pads[s->axes + a];
        sum += pads[a] + pads[s->axes + a];
    }
    if (*mode == NOTSET || !sum) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "it has pads and auto_pad %s; one of them may "
                           "be given", wb__onnx_text(c, "auto_pad"));
}

/* Sets the fields of *s that do not depend on the padding. */
static bool onnx_window_read_sizes(const wb__onnx_call *c, const wb_tensor *x,
                                   const int64_t *kernel, wb__onnx_windows *s)
{
    const int axes = x->ndim - 2;
    *s = (wb__onnx_windows){.axes = axes};
    if (axes < 1 || axes > 3)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s; [N,C,L], [N,C,H,W] and "
                               "[N,C,D,H,W] are done", wb_describe(x));
    const bool given = wb__onnx_attribute(c, "kernel_shape");
    if (!given && !kernel) return wb__onnx_refuse(c, WB_ERROR_FORMAT, "it has no kernel_shape");
    if (given && !onnx_window_read_list(c, "kernel_shape", axes, 1, 1, s->kernel)) return false;
    if (!onnx_window_read_list(c, "strides", axes, 1, 1, s->stride) ||
        !onnx_window_read_list(c, "dilations", axes, 1, 1, s->dilation))
        return false;
    for (int i = 0; i < axes; i++) {
        if (given && kernel && s->kernel[i] != kernel[i])
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "kernel_shape has %lld where the weight has "
                                   "%lld", (long long)s->kernel[i], (long long)kernel[i]);
        if (kernel) s->kernel[i] = kernel[i];
        s->in[i] = x->dims[2 + i];
        if (s->kernel[i] < 1 || s->kernel[i] > ONNX_WINDOW_MOST || s->in[i] > ONNX_WINDOW_MOST)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "along axis %d of %s its kernel has %lld "
                                   "elements", 2 + i, wb_describe(x), (long long)s->kernel[i]);
        s->reach[i] = (s->kernel[i] - 1) * s->dilation[i] + 1;
    }
    return true;
}

/* Sets *before and *after to the two parts of `total` elements of padding.  With an odd number the
 * greater half is at the end for SAME_UPPER, else at the start. */
static void onnx_window_divide(int64_t total, onnx_window_padding_mode mode, int64_t *before,
                               int64_t *after)
{
    *before = mode == SAME_UPPER ? total / 2 : total - total / 2;
    *after = total - *before;
}

bool wb__onnx_windows_read(const wb__onnx_call *c, const wb_tensor *x, const int64_t *kernel,
                           wb__onnx_windows *s)
{
    onnx_window_padding_mode mode;
    if (!onnx_window_read_sizes(c, x, kernel, s) || !onnx_window_read_pads(c, s, &mode))
        return false;
    const bool ceil_mode = wb__onnx_int(c, "ceil_mode");
    for (int i = 0; i < s->axes; i++) {
        const int64_t n = s->in[i], stride = s->stride[i], reach = s->reach[i];
        if (mode == SAME_UPPER || mode == SAME_LOWER) {
            const int64_t out = (n + stride - 1) / stride;
            onnx_window_divide(WB__MAX((out - 1) * stride + reach - n, 0), mode, &s->before[i],
                               &s->after[i]);
        }
        const int64_t over = n + s->before[i] + s->after[i] - reach;
        if (n < 1 || over < 0)
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "a window of %lld elements does not fit into "
                                   "axis %d of %s with padding %lld,%lld", (long long)reach, 2 + i,
                                   wb_describe(x), (long long)s->before[i], (long long)s->after[i]);
        s->out[i] = (over + (ceil_mode ? stride - 1 : 0)) / stride + 1;
        /* a window that begins behind x and its first padding does not count */
        if (ceil_mode && (s->out[i] - 1) * stride >= n + s->before[i]) s->out[i]--;
        s->end[i] = WB__MAX(s->after[i], (s->out[i] - 1) * stride + reach - n - s->before[i]);
    }
    return true;
}

/* ---- Conv ------------------------------------------------------------------------------------ */

static wb_conv_options onnx_window_options_of(const wb__onnx_call *c, const wb__onnx_windows *s,
                                              const int64_t *after, const int64_t *outpad)
{
    wb_conv_options o = WB__OPTIONS(wb_conv_options);
    int64_t pad[6];
    for (int i = 0; i < s->axes; i++) pad[2 * i] = s->before[i], pad[2 * i + 1] = after[i];
    o.groups = wb__onnx_int(c, "group");
    wb_ints_set(o.stride, s->axes, s->stride);
    wb_ints_set(o.dilation, s->axes, s->dilation);
    wb_ints_set(o.pad, 2 * s->axes, pad);
    if (outpad) wb_ints_set(o.outpad, s->axes, outpad);
    return o;
}

static bool onnx_window_kernel_fits(const wb__onnx_call *c, const wb_tensor *x, const wb_tensor *w)
{
    if (w->ndim == x->ndim) return true;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the weight of %s is %s", wb_describe(x),
                           wb_describe(w));
}

wb_tensor *wb__onnx_conv_of(const wb__onnx_call *c, wb_tensor *x, wb_tensor *w, wb_tensor *b)
{
    wb__onnx_windows s;
    if (!x || !w || !onnx_window_kernel_fits(c, x, w) ||
        !wb__onnx_windows_read(c, x, w->dims + 2, &s))
        return NULL;
    const wb_conv_options o = onnx_window_options_of(c, &s, s.after, NULL);
    return wb_conv_with(x, w, b, &o);
}

bool wb__onnx_conv(wb__onnx_call *c)
{
    wb_tensor *b = wb__onnx_in(c, 2);
    return wb__onnx_give(c, wb__onnx_conv_of(c, c->in[0], c->in[1], b ? b : WB_NONE));
}

/* ---- ConvTranspose --------------------------------------------------------------------------- */

/* Sets before, after and out of a transposed convolution.  Without padding the result has
 * (in - 1) stride + reach elements.  `before` and `after` of these are dropped; where `after` is
 * negative, there are elements behind them, to which no element of x contributes. */
static bool onnx_window_read_transposed(const wb__onnx_call *c, wb__onnx_windows *s)
{
    onnx_window_padding_mode mode;
    int64_t outpad[3], shape[3];
    const int64_t *list;
    const bool has_shape = wb__onnx_ints(c, "output_shape", &list) > 0;
    if (!onnx_window_read_pads(c, s, &mode) ||
        !onnx_window_read_list(c, "output_padding", s->axes, 0, 0, outpad) ||
        !onnx_window_read_list(c, "output_shape", s->axes, has_shape, 0, shape))
        return false;
    for (int i = 0; i < s->axes; i++) {
        const int64_t full = (s->in[i] - 1) * s->stride[i] + s->reach[i];
        if (has_shape || mode == SAME_UPPER || mode == SAME_LOWER) {
            s->out[i] = has_shape ? shape[i] : s->in[i] * s->stride[i];
            onnx_window_divide(WB__MAX(full + outpad[i] - s->out[i], 0), mode, &s->before[i],
                               &s->after[i]);
        } else {
            s->out[i] = full + outpad[i] - s->before[i] - s->after[i];
        }
        s->after[i] = full - s->before[i] - s->out[i];
        if (s->in[i] >= 1 && s->out[i] >= 1) continue;
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "along axis %d its result has %lld elements",
                               2 + i, (long long)s->out[i]);
    }
    return true;
}

/* Returns y with `more` zeros behind each axis of space, plus the bias. */
static wb_tensor *onnx_window_extend(wb_tensor *y, const wb__onnx_windows *s, const int64_t *more,
                                     wb_tensor *b)
{
    for (int i = 0; i < s->axes && y; i++) y = wb_pad(y, 2 + i, 0, more[i]);
    if (!y || b == WB_NONE) return y;
    for (int i = 0; i < s->axes && b; i++) b = wb_unsqueeze(b, -1);
    return wb_add(y, b);
}

bool wb__onnx_conv_transpose(wb__onnx_call *c)
{
    wb__onnx_windows s;
    wb_tensor *x = c->in[0], *w = c->in[1], *b = wb__onnx_in(c, 2);
    if (!b) b = WB_NONE;
    if (!onnx_window_kernel_fits(c, x, w) || !onnx_window_read_sizes(c, x, w->dims + 2, &s) ||
        !onnx_window_read_transposed(c, &s))
        return false;
    int64_t after[3], more[3];
    bool few = true;                    /* wb_conv_transpose adds fewer elements than the stride */
    for (int i = 0; i < s.axes; i++) {
        after[i] = WB__MAX(s.after[i], 0);
        more[i] = WB__MAX(-s.after[i], 0);
        few &= more[i] < s.stride[i];
    }
    const wb_conv_options o = onnx_window_options_of(c, &s, after, few ? more : NULL);
    wb_tensor *y = wb_conv_transpose_with(x, w, few ? b : WB_NONE, &o);
    return wb__onnx_give(c, few ? y : onnx_window_extend(y, &s, more, b));
}
