/* Windows that slide over the last two axes, as those of convolutions and pools. */
#ifndef WB__SLIDING_H
#define WB__SLIDING_H

#include "engine/ops/op.h"

/* False, with the error set, where one of these is too small, or too large for sums of products of
 * two to fit.  `dilation` NULL: 1. */
bool wb__sliding_valid(const char *what, const int64_t *window, const int64_t *stride,
                       const int64_t *pad, const int64_t *dilation);
/* The number of positions along both axes; false, with the error set, where there are none. */
bool wb__sliding_size(const char *what, const wb_tensor *x, const int64_t *window,
                      const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                      int64_t *size);
/* {0, 0} becomes the default, {s} {s, s}. */
void wb__sliding_pair(int64_t *v, int64_t first, int64_t second);

#endif
