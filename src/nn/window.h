/* Functions that read, check and print the options of convolutions and pools, which have windows
 * over two axes. */
#ifndef WB__WINDOW_H
#define WB__WINDOW_H

#include "engine/ops/sliding.h"
#include "nn/layer.h"

/* Reads an option for two axes. Sets list[0] = 2, and list[1] and list[2] to the two numbers. The
 * default of both numbers is by_default, and a by_default of 0 means that the option must be given.
 * False, with the error set, if a number is not positive or if there are more than two numbers. */
bool wb__pair(const char *what, const wb__given *given, const char *option, int position,
              int64_t *list, int64_t by_default);
/* Reads the option `pad`. Sets list[0] = 4, and list[1] to list[4] to top, bottom, left and right.
 * False, with the error set, if a number is negative or if the option has 3 or more than 4
 * numbers. */
bool wb__pad(const char *what, const wb__given *given, int64_t *list);
/* Writes the padding {top, bottom, left, right} of a Conv, a ConvTranspose or a pool to `out`. With
 * .same the padding is computed from the other options. */
void wb__padding(const wb__layer_type *type, const void *options, int64_t *out);

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t);
void wb__print_pad(const int64_t *pad, wb__text *t);

#endif
