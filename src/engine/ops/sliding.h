/* Windows that slide over the last two axes, for convolutions and pools. */
#ifndef WB__SLIDING_H
#define WB__SLIDING_H

#include "base/options.h"
#include "engine/tensor.h"

/* Whether window, stride and dilation are at least 1, pad is at least 0, and none is above
 * INT32_MAX.  A NULL dilation means 1.  Else sets the error. */
bool wb__sliding_valid(const char *what, const int64_t *window, const int64_t *stride,
                       const int64_t *pad, const int64_t *dilation);
/* Sets size to the number of window positions along the last two axes of x, [N, C, H, W].  False,
 * with the error set, if no window fits, or if wb__sliding_valid refuses the numbers. */
bool wb__sliding_size(const char *what, const wb_tensor *x, const int64_t *window,
                      const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                      int64_t *size);
/* Reads an option for two axes.  Sets list[0] = 2, and list[1] and list[2] to the two numbers.  {s}
 * means {s, s}; an option that is not given is {first, second}.  False, with the error set, if the
 * option has more than two numbers.  `position`: place of the option in a call that gives options
 * by position; -1: by name only. */
bool wb__sliding_pair(const char *what, const wb__given *given, const char *option, int position,
                      int64_t *list, int64_t first, int64_t second);
/* Reads an option as wb__sliding_pair does, for 1 to 3 axes with one default.  Sets list[0] =
 * axes. */
bool wb__sliding_axes(const char *what, const wb__given *given, const char *option, int position,
                      int64_t *list, int axes, int64_t by_default);
/* Reads the option `pad` for 1 to 3 axes.  Sets list[0] to 2 axes, followed by the start and the
 * end of each axis.  {p} means p at all sides; with one number for each axis start and end are
 * equal.  False, with the error set, if the option has another length. */
bool wb__sliding_pad(const char *what, const wb__given *given, int64_t *list, int axes);

/* wb_conv, wb_conv_transpose, and wb_maxpool or wb_meanpool (`pool`), for x with 1 or 3 axes of
 * space, composed of the same operations with 2 axes. */
wb_tensor *wb__conv_in_space(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *o);
wb_tensor *wb__conv_transpose_in_space(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                       const wb_conv_options *o);
wb_tensor *wb__pool_in_space(const char *what,
                             wb_tensor *(*pool)(wb_tensor *, const wb_pool_options *),
                             wb_tensor *x, const wb_pool_options *o);
/* Whether x has 1 or 3 axes of space. */
static inline bool wb__in_space(const wb_tensor *x) { return x->ndim == 3 || x->ndim == 5; }

#endif
