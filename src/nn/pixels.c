/* PixelShuffle: channels become pixels. */
#include "nn/layer.h"

wb_tensor *wb_pixel_shuffle(wb_tensor *x, int64_t r)
{
    if (!wb__operand("pixel_shuffle", x)) return NULL;
    const int axes = x->ndim - 2;
    int64_t apart[WB_MAX_DIMS], order[WB_MAX_DIMS], dims[WB_MAX_DIMS], factor = 1;
    if (r < 1) return wb__fail_null(WB_ERROR_ARGUMENT, "pixel_shuffle: r is %lld; it is positive",
                                    (long long)r);
    if (axes < 1 || axes > 3)
        return wb__fail_null(WB_ERROR_SHAPE, "pixel_shuffle: expects [N,C,...] with 1 to 3 axes of "
                             "space, got %s", wb_describe(x));
    for (int i = 0; i < axes && factor <= x->dims[1]; i++) factor *= WB__MIN(r, INT32_MAX);
    if (x->dims[1] % factor || !x->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "pixel_shuffle: the channels of %s are no multiple of "
                             "%lld to the power %d", wb_describe(x), (long long)r, axes);
    /* [N, C, r, ..., H, ...] -> [N, C, H, r, ...] */
    order[0] = 0, order[1] = 1;
    dims[0] = apart[0] = x->dims[0];
    dims[1] = apart[1] = x->dims[1] / factor;
    for (int i = 0; i < axes; i++) {
        apart[2 + i] = r;
        apart[2 + axes + i] = x->dims[2 + i];
        order[2 + 2 * i] = 2 + axes + i;
        order[3 + 2 * i] = 2 + i;
        dims[2 + i] = r * x->dims[2 + i];
    }
    const wb__frame f = wb__frame_begin();
    wb_tensor *y = wb_reshape_array(x, 2 + 2 * axes, apart);
    if (y) y = wb_permute_array(y, 2 + 2 * axes, order);
    return wb__frame_end(f, y ? wb_reshape_array(y, x->ndim, dims) : NULL);
}

#define PIXELS_OPTIONS(X) X(wb_PixelShuffle_options, r, INT, 1)
static const wb__option pixels_table[] = {PIXELS_OPTIONS(WB__OPTION_ROW)};

static wb_tensor *pixels_call(wb_layer *l, int n, wb_tensor *const *x)
{
    if (!wb__one_input(l, n)) return NULL;
    return wb_pixel_shuffle(x[0], ((const wb_PixelShuffle_options *)l->options)->r);
}

static void pixels_print(const wb_layer *l, wb__text *t)
{
    wb__text_add(t, "PixelShuffle(%lld)",
                 (long long)((const wb_PixelShuffle_options *)l->options)->r);
}

WB__PLAIN_LAYER(pixelshuffle, "PixelShuffle", wb_PixelShuffle_options, pixels_table,
                wb_PixelShuffle_with, .call = pixels_call, .print = pixels_print);

wb_layer *wb_PixelShuffle_with(const wb_PixelShuffle_options *given)
{
    WB__EDGE;
    wb_PixelShuffle_options o;
    if (!wb__read_options("PixelShuffle", wb_PixelShuffle_options, &o, given, NULL)) return NULL;
    if (o.r < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "PixelShuffle: r is %lld; it is positive",
                             (long long)o.r);
    return wb__layer_new(&wb__pixelshuffle_type, &o, 0);
}
