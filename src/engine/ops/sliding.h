/* Windows that slide over the last two axes, as those of convolutions and pools. */
#ifndef WB__SLIDING_H
#define WB__SLIDING_H

#include "base/base.h"

/* False, with the error set, where one of these is too small, or too large for sums of products of
 * two to fit.  `dilation` NULL: 1. */
bool wb__sliding_valid(const char *what, const int64_t *window, const int64_t *stride,
                       const int64_t *pad, const int64_t *dilation);
/* The number of positions along both axes; false, with the error set, where there are none. */
bool wb__sliding_size(const char *what, const wb_tensor *x, const int64_t *window,
                      const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                      int64_t *size);
/* Reads an option for two axes: {s} is {s, s}, nothing given is {first, second}.  False, with the
 * error set, where there are more than two numbers. */
bool wb__sliding_pair(const char *what, const char *option, int64_t *list, bool given,
                      int64_t first, int64_t second);
/* Reads padding, top, bottom, left, right: {p} is all of them, {h, w} {h, h, w, w}. */
bool wb__sliding_pad(const char *what, int64_t *list, bool given);

#endif
