/* Functions that layers of signals in space share.  The axes of space are the axes 2 and up of x,
 * [N, C, L], [N, C, H, W] or [N, C, D, H, W]. */
#ifndef WB__SPACE_H
#define WB__SPACE_H

#include "nn/layer.h"

#include <string.h>

/* Whether x has 1 to 3 axes of space with elements.  Else sets the error. */
bool wb__has_space(const char *what, const wb_tensor *x);
/* Sets out[i] to the list's number for axis i of space.  A list of one number is for all axes.
 * False, with the error set, if the list has another length than 1 or the number of axes. */
bool wb__for_each_axis(const char *what, const char *option, const wb_tensor *x,
                       const int64_t *list, int64_t *out);
/* Returns x with the elements along one axis replaced by their weighted sums; the weights are
 * [out, in]. */
wb_tensor *wb__along_axis(wb_tensor *x, int axis, wb_tensor *weights);
/* Prints one number, or several in parentheses. */
void wb__print_sizes(const int64_t *list, wb__text *t);

#endif
