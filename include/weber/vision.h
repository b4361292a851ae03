/* Weber, chapter 3, third part: operations on images and other signals in space.  nn.h includes
 * this header.
 *
 * x is [N, C, L], [N, C, H, W] or [N, C, D, H, W]: axes 2 and up are the axes of space.  Dtypes,
 * gradients, errors and owners are those of ops.h. */
#ifndef WEBER_VISION_H
#define WEBER_VISION_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Channels become elements of space, [N, C r², H, W] -> [N, C, r H, r W]; with d axes of space r^d
 * channels become one.  Any dtype.
 *   y[n, c, i r + p, j r + q] = x[n, (c r + p) r + q, i, j]
 * Error: the channels are no multiple of r^d.  (Shi et al. 2016) */
WB_API wb_tensor *wb_pixel_shuffle(wb_tensor *x, int64_t r);

/** How wb_upsample computes new elements. */
typedef enum {
    WB_UPSAMPLE_NEAREST = 0,
    WB_UPSAMPLE_LINEAR          /* along each axis: linear, bilinear or trilinear, by the number of
                                   axes of space */
} wb_upsample_mode;
/** Options of wb_upsample.  One of .scale and .sizes is given. */
#define wb_upsample_options_(OPT, ARG)                                                             \
    OPT(wb_ints, scale, WB_EMPTY)           /* {s}, or a factor for each axis of space */          \
    OPT(wb_ints, sizes, WB_EMPTY)           /* {n}, or the new size of each axis of space */       \
    OPT(wb_upsample_mode, mode, WB_UPSAMPLE_NEAREST)                                               \
    OPT(bool, align_corners, true)          /* of WB_UPSAMPLE_LINEAR: see wb_upsample */
WB_OPTIONS(wb_upsample_options);
/** x with other sizes of the axes of space: wb_upsample(x, .scale = {2}), wb_upsample(x, .sizes =
 * {64, 64}, .mode = WB_UPSAMPLE_LINEAR).  For an axis with n elements that gets m, element i of the
 * result has the position p among the elements of x:
 *   WB_UPSAMPLE_NEAREST   floor(i n / m); the element at p.  Any dtype
 *   WB_UPSAMPLE_LINEAR    i (n - 1) / (m - 1): the corners of both are aligned, as in Flux and with
 *                         align_corners=True in PyTorch; the linear interpolation at p.  Floating
 *   without .align_corners   (i + 1/2) n / m - 1/2, but at least 0 and at most n - 1, which is the
 *                         default of PyTorch
 * f16 and bf16 are summed in f32.  An element that is NaN or infinite makes all elements along the
 * interpolated axes NaN.  Errors: both .scale and .sizes, or none; numbers below 1; another number
 * of axes; an axis of size 0; .align_corners = false with WB_UPSAMPLE_NEAREST. */
WB_API wb_tensor *wb_upsample_with(wb_tensor *x, const wb_upsample_options *o);
#ifndef __cplusplus
#define wb_upsample(x, ...) \
    WB_CALL_WITH_(wb_upsample_with((x), WB_GET_(wb_upsample_options, __VA_ARGS__)))
#endif

/** Options of wb_unfold and wb_fold.  A list has one number for both axes, or one for each. */
#define wb_unfold_options_(OPT, ARG)                                                               \
    OPT(wb_ints, window, WB_REQUIRED(WB_EMPTY))                                                    \
    OPT(wb_ints, stride, WB_INTS(1))                                                               \
    OPT(wb_ints, pad, WB_INTS(0))           /* also {top, bottom, left, right} */                  \
    OPT(wb_ints, dilation, WB_INTS(1))                                                             \
    OPT(wb_ints, sizes, WB_EMPTY)           /* of wb_fold: {H, W} of its result */
WB_OPTIONS(wb_unfold_options);
/** The windows of x as columns: wb_unfold(x, .window = {kh, kw}), [N, C, H, W] -> [N, C kh kw, L].
 * Floating.  Column l is the window at position l of the H' W' positions of wb_conv, row by row;
 * its element (c kh + p) kw + q is the element p, q of channel c.  The layout is PyTorch's.
 * Errors: those of wb_conv; .sizes is given. */
WB_API wb_tensor *wb_unfold_with(wb_tensor *x, const wb_unfold_options *o);
/** The sum of windows at their positions, the gradient of wb_unfold: wb_fold(x, .window = {kh, kw},
 * .sizes = {H, W}), [N, C kh kw, L] -> [N, C, H, W].  Error: x has another shape than wb_unfold of
 * [N, C, H, W]. */
WB_API wb_tensor *wb_fold_with(wb_tensor *x, const wb_unfold_options *o);
/** (sum of x^p over each window)^(1/p), with the options of wb_meanpool: wb_lpnormpool(x, 2.0,
 * .window = {2}).  x is floating and not negative, unless p is an even integer: a root of a
 * negative sum is NaN.  The gradient of a sum of 0 is infinite or NaN.  Errors: p is not
 * positive; those of wb_meanpool. */
WB_API wb_tensor *wb_lpnormpool_with(wb_tensor *x, double p, const wb_pool_options *o);
#ifndef __cplusplus
#define wb_unfold(x, ...) \
    WB_CALL_WITH_(wb_unfold_with((x), WB_GET_(wb_unfold_options, __VA_ARGS__)))
#define wb_fold(x, ...) WB_CALL_WITH_(wb_fold_with((x), WB_GET_(wb_unfold_options, __VA_ARGS__)))
#define wb_lpnormpool(x, p, ...) \
    WB_CALL_WITH_(wb_lpnormpool_with((x), (p), WB_GET_(wb_pool_options, __VA_ARGS__)))
#endif

/** Options of wb_grid_sample and wb_imrotate. */
#define wb_sample_options_(OPT, ARG)                                                               \
    /* takes the nearest element instead of interpolating four */                                  \
    OPT(bool, nearest, false)                                                                      \
    /* of wb_grid_sample: positions outside move to the border; else elements outside are 0 */     \
    OPT(bool, border, false)                                                                       \
    OPT(bool, align_corners, true)          /* of wb_grid_sample: see there */                     \
    /* of wb_imrotate: the indices of the point that stays in its place */                         \
    OPT(double, row, WB_DEFAULT)                                                                   \
    OPT(double, column, WB_DEFAULT)         /* default: H / 2 and W / 2, rounded down */
WB_OPTIONS(wb_sample_options);
/** x at positions between its elements.   x [N, C, H, W]   grid [N, H', W', 2]   y [N, C, H', W']
 * The last axis of grid has a position (p, q) along W and along H.  -1 and 1 are the centres of the
 * first and the last element, as in NNlib and with align_corners=True in PyTorch; with
 * .align_corners = false, PyTorch's default, they are the outer edges of these:
 *   column = (p + 1)(W - 1) / 2, or ((p + 1) W - 1) / 2;   row from q and H likewise
 * y is the bilinear interpolation of the four elements around (row, column), or the element at the
 * rounded position (halves to even).  Floating, one dtype; f16 and bf16 are computed in f32.
 * Gradients: of x, and, unless .nearest, of grid; where .border moves a position, grid has none.  A
 * position that is NaN gives NaN, with .nearest 0.  Errors: shapes or dtypes that do not fit; x
 * has no rows or no columns; .row or .column is given. */
WB_API wb_tensor *wb_grid_sample_with(wb_tensor *x, wb_tensor *grid, const wb_sample_options *o);
/** x, [N, C, H, W], floating, rotated by `angle` radians around a point (r, c), .row and .column:
 *   y[i, j] = x at the row sin(angle)(j - c) + cos(angle)(i - r) + r
 *             and the column cos(angle)(j - c) - sin(angle)(i - r) + c
 * The value there is interpolated as in wb_grid_sample.  It is 0 outside 0 .. H-1 or 0 .. W-1, with
 * .nearest outside after rounding.  (imrotate of NNlib, which also makes elements 0 whose position
 * is exactly on the last row or column)  Quarter turns are exact.  Errors: another shape; the
 * angle, .row or .column is not finite; .border or .align_corners is given. */
WB_API wb_tensor *wb_imrotate_with(wb_tensor *x, double angle, const wb_sample_options *o);
#ifndef __cplusplus
#define wb_grid_sample(...) WB_GRID_SAMPLE_(__VA_ARGS__, )
#define WB_GRID_SAMPLE_(x, grid, ...) \
    WB_CALL_WITH_(wb_grid_sample_with((x), (grid), WB_GET_(wb_sample_options, __VA_ARGS__)))
#define wb_imrotate(...) WB_IMROTATE_(__VA_ARGS__, )
#define WB_IMROTATE_(x, angle, ...) \
    WB_CALL_WITH_(wb_imrotate_with((x), (angle), WB_GET_(wb_sample_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
