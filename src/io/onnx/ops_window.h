/* Windows that slide over the axes of space (ops_window.c), which convolutions, pools and quantised
 * convolutions of ONNX share. */
#ifndef WB__ONNX_OPS_WINDOW_H
#define WB__ONNX_OPS_WINDOW_H

#include "io/onnx/run.h"

/* Windows over x, [N, C, ...] with 1 to 3 axes of space.  Each list has a number for each of these
 * axes. */
typedef struct {
    int axes;
    int64_t in[3], kernel[3], stride[3], dilation[3];
    int64_t reach[3];                   /* elements from a window's first to its last, with both */
    int64_t before[3], after[3];        /* the padding of the file */
    int64_t end[3];                     /* number of elements behind x that windows reach: `after`,
                                           or more with ceil_mode */
    int64_t out[3];                     /* number of windows */
} wb__onnx_windows;

/* Sets *s from kernel_shape, strides, dilations, pads, auto_pad and ceil_mode.  `kernel` has the
 * sizes of the weight, or is NULL: kernel_shape must be there.  Returns false with the error
 * set. */
bool wb__onnx_windows_read(const wb__onnx_call *c, const wb_tensor *x, const int64_t *kernel,
                           wb__onnx_windows *s);

/* Returns Conv of x and w with the attributes of the node; b is [K] or WB_NONE.  NULL: error
 * set. */
wb_tensor *wb__onnx_conv_of(const wb__onnx_call *c, wb_tensor *x, wb_tensor *w, wb_tensor *b);

/* Returns a tensor with these values on the device of x.  Frees `values`.  NULL: `values` is NULL,
 * or the call failed. */
wb_tensor *wb__onnx_doubles(const wb_tensor *x, double *values, wb_dtype dtype, int ndim,
                            const int64_t *dims);
/* Returns such a tensor of n values along one axis of x, [1, ..., n, ..., 1]. */
wb_tensor *wb__onnx_along(const wb_tensor *x, double *values, wb_dtype dtype, int axis, int64_t n);

#endif
