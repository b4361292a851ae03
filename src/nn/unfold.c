/* Windows as columns and back, and pools by a norm. */
#include "engine/ops/sliding.h"
#include "nn/space.h"

#include <math.h>

/* Returns kernels, each of which copies one element of a window: in [channels kh kw, 1, kh, kw],
 * row c kh kw + i has a 1 at element i, else 0. */
static wb_tensor *unfold_copying_kernels(const int64_t *window, int64_t channels, wb_dtype dtype)
{
    const int64_t each = window[0] * window[1];
    wb_tensor *one = wb_eq(wb_unsqueeze(wb_arange(each, WB_I32), -1), wb_arange(each, WB_I32));
    if (!one) return NULL;
    one = wb_expand_array(wb_astype(one, dtype), 3, (int64_t[]){channels, each, each});
    const int64_t dims[4] = {channels * each, 1, window[0], window[1]};
    return one ? wb_reshape_array(one, 4, dims) : NULL;
}

static bool unfold_read_options(const char *what, const wb_tensor *x,
                                const wb_unfold_options *given, wb_unfold_options *o)
{
    wb__given g;
    if (!wb__floating(what, x) || !wb__read_options(what, wb_unfold_options, o, given, &g) ||
        !wb__sliding_axes(what, &g, "window", -1, o->window, 2, 0) ||
        !wb__sliding_axes(what, &g, "stride", -1, o->stride, 2, 1) ||
        !wb__sliding_axes(what, &g, "dilation", -1, o->dilation, 2, 1) ||
        !wb__sliding_axes(what, &g, "sizes", -1, o->sizes, 2, 0) ||
        !wb__sliding_pad(what, &g, o->pad, 2))
        return false;
    return wb__sliding_valid(what, o->window + 1, o->stride + 1, o->pad + 1, o->dilation + 1);
}

static wb_conv_options unfold_convolution(const wb_unfold_options *o, int64_t groups)
{
    wb_conv_options s = WB__OPTIONS(wb_conv_options, .groups = groups);
    wb_ints_set(s.stride, 2, o->stride + 1);
    wb_ints_set(s.dilation, 2, o->dilation + 1);
    wb_ints_set(s.pad, 4, o->pad + 1);
    return s;
}

wb_tensor *wb_unfold_with(wb_tensor *x, const wb_unfold_options *given)
{
    wb_unfold_options o;
    if (!unfold_read_options("unfold", x, given, &o)) return NULL;
    if (x->ndim != 4 || !x->dims[1] || o.sizes[1] || o.sizes[2])
        return wb__fail_null(WB_ERROR_SHAPE, "unfold: expects [N,C,H,W] and no .sizes, got %s",
                             wb_describe(x));
    const wb__frame f = wb__frame_begin();
    const wb_conv_options s = unfold_convolution(&o, x->dims[1]);
    wb_tensor *k = unfold_copying_kernels(o.window + 1, x->dims[1], (wb_dtype)x->dtype);
    wb_tensor *y = k ? wb_conv_with(x, k, WB_NONE, &s) : NULL;
    if (y) y = wb_reshape_array(y, 3, (int64_t[]){y->dims[0], y->dims[1],
                                                  y->dims[2] * y->dims[3]});
    return wb__frame_end(f, y);
}

static wb_tensor *unfold_fold(wb_tensor *x, const wb_unfold_options *o, const int64_t *places)
{
    const int64_t channels = x->dims[1] / (o->window[1] * o->window[2]);
    wb_conv_options s = unfold_convolution(o, channels);
    int64_t outpad[2];
    for (int i = 0; i < 2; i++)
        outpad[i] = o->sizes[1 + i] + o->pad[1 + 2 * i] + o->pad[2 + 2 * i] -
                    (places[i] - 1) * o->stride[1 + i] -
                    (o->window[1 + i] - 1) * o->dilation[1 + i] - 1;
    wb_ints_set(s.outpad, 2, outpad);
    wb_tensor *k = unfold_copying_kernels(o->window + 1, channels, (wb_dtype)x->dtype);
    wb_tensor *y = wb_reshape_array(x, 4, (int64_t[]){x->dims[0], x->dims[1], places[0],
                                                      places[1]});
    return k && y ? wb_conv_transpose_with(y, k, WB_NONE, &s) : NULL;
}

wb_tensor *wb_fold_with(wb_tensor *x, const wb_unfold_options *given)
{
    wb_unfold_options o;
    int64_t places[2], size;
    if (!unfold_read_options("fold", x, given, &o) ||
        !wb__check_dims("fold", 2, o.sizes + 1, &size))
        return NULL;
    const int64_t each = o.window[1] * o.window[2];
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (o.window[1 + i] - 1) * o.dilation[1 + i] + 1;
        const int64_t over = o.sizes[1 + i] + o.pad[1 + 2 * i] + o.pad[2 + 2 * i] - reach;
        places[i] = o.sizes[1 + i] < 1 || over < 0 ? 0 : over / o.stride[1 + i] + 1;
    }
    if (x->ndim != 3 || !x->dims[1] || x->dims[1] % each || !places[0] || !places[1] ||
        x->dims[2] != places[0] * places[1])
        return wb__fail_null(WB_ERROR_SHAPE, "fold: .sizes {%lld, %lld} and these windows want [N, "
                             "C %lld, %lld], got %s", (long long)o.sizes[1], (long long)o.sizes[2],
                             (long long)each, (long long)(places[0] * places[1]), wb_describe(x));
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, unfold_fold(x, &o, places));
}

wb_tensor *wb_lpnormpool_with(wb_tensor *x, double p, const wb_pool_options *o)
{
    if (!wb__floating("lpnormpool", x)) return NULL;
    if (!(p > 0) || isinf(p))
        return wb__fail_null(WB_ERROR_ARGUMENT, "lpnormpool: p is %g; it is positive", p);
    const wb__frame f = wb__frame_begin();
    const wb_dtype dtype = (wb_dtype)x->dtype;
    x = wb__wide(x);                            /* x^p would overflow in f16 */
    wb_tensor *y = wb_meanpool_with(wb_pow(x, wb_scalar(p)), o);
    wb_pool_options read;
    wb__given g;
    if (y && !wb__read_options("lpnormpool", wb_pool_options, &read, o, &g)) y = NULL;
    if (y && !wb__sliding_axes("lpnormpool", &g, "window", -1, read.window, x->ndim - 2, 0))
        y = NULL;
    double n = 1;
    for (int i = 1; y && i <= read.window[0]; i++) n *= (double)read.window[i];
    y = y ? wb_pow(wb_mul(y, wb_scalar(n)), wb_scalar(1 / p)) : NULL;
    return wb__frame_end(f, y ? wb__as(y, dtype) : NULL);
}
