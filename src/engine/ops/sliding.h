/* Windows that slide over the last two axes, for convolutions and pools. */
#ifndef WB__SLIDING_H
#define WB__SLIDING_H

#include "base/options.h"

/* Whether window, stride and dilation are at least 1, pad is at least 0, and none is above
 * INT32_MAX.  A NULL dilation means 1.  Else sets the error. */
bool wb__sliding_valid(const char *what, const int64_t *window, const int64_t *stride,
                       const int64_t *pad, const int64_t *dilation);
/* Sets size to the number of window positions along the last two axes of x, [N, C, H, W].  False,
 * with the error set, if there are none, or if wb__sliding_valid refuses the numbers. */
bool wb__sliding_size(const char *what, const wb_tensor *x, const int64_t *window,
                      const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                      int64_t *size);
/* Reads an option for two axes.  Sets list[0] = 2, and list[1] and list[2] to the two numbers.  {s}
 * means {s, s}; an option that is not given is {first, second}.  False, with the error set, if the
 * option has more than two numbers.  `position`: place of the option in a call that gives options
 * by position; -1: by name only. */
bool wb__sliding_pair(const char *what, const wb__given *given, const char *option, int position,
                      int64_t *list, int64_t first, int64_t second);
/* Reads the option `pad`.  Sets list[0] = 4, and list[1] to list[4] to top, bottom, left and right.
 * {p} means {p, p, p, p}; {h, w} means {h, h, w, w}.  False, with the error set, if it has 3 or
 * more than 4 numbers. */
bool wb__sliding_pad(const char *what, const wb__given *given, int64_t *list);

#endif
