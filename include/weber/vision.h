/* Weber, chapter 3: operations on images and other signals in space.  ops.h includes this header.
 *
 * x is [N, C, L], [N, C, H, W] or [N, C, D, H, W]: axes 2 and up are the axes of space.  Dtypes,
 * gradients, errors and owners are those of ops.h. */
#ifndef WEBER_VISION_H
#define WEBER_VISION_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Channels become elements of space, [N, C r², H, W] -> [N, C, r H, r W]; with d axes of space r^d
 * channels become one.  Any dtype.
 *   y[n, c, i r + p, j r + q] = x[n, (c r + p) r + q, i, j]
 * Error: the channels are no multiple of r^d.  (Shi et al. 2016) */
WB_API wb_tensor *wb_pixel_shuffle(wb_tensor *x, int64_t r);

#ifdef __cplusplus
}
#endif
#endif
