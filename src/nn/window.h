/* Functions that read, check and print the options of convolutions and pools, which have windows
 * over 1 to 3 axes. */
#ifndef WB__WINDOW_H
#define WB__WINDOW_H

#include "engine/ops/sliding.h"
#include "nn/layer.h"

/* Reads an option for 1 to 3 axes, with one number for each or one for all.  Sets list[0] to the
 * number of axes, and the numbers behind it.  The default is by_default; 0 means that the option
 * must be given.  False, with the error set, if a number is not positive or the list has another
 * length. */
bool wb__axes(const char *what, const wb__given *given, const char *option, int64_t *list, int axes,
              int64_t by_default);
/* Reads a kernel or window that is argument number `position`.  With `one` it has one number, for
 * one axis.  Otherwise {k} means {k, k}, and other lists have a number for each of 2 or 3 axes.
 * Returns the number of axes; 0, with the error set, if there are none or a number is not
 * positive. */
int wb__window_axes(const char *what, const wb__given *given, const char *option, int position,
                    int64_t *list, bool one);
/* Reads the option `pad`.  Sets list[0] to 2 axes, followed by the start and the end of each axis.
 * False, with the error set, if a number is negative or the list has another length. */
bool wb__pad(const char *what, const wb__given *given, int64_t *list, int axes);
/* Writes the padding of a Conv, a ConvTranspose or a pool, the start and the end of each axis, to
 * `out`.  With .same the padding follows from the other options.  Returns the number of axes. */
int wb__padding(const wb__layer_type *type, const void *options, int64_t *out);
/* Whether x has the axes [N, C, ...] with as many axes of space as the list has numbers, and
 * `channels` channels, unless that is -1.  If not, sets the error. */
bool wb__window_fits(const char *what, const wb_tensor *x, const int64_t *list, int64_t channels);

/* Prints "(2, 3)". */
void wb__print_window(const int64_t *list, wb__text *t);
/* Prints the label and the numbers, equal ones once; nothing if all numbers are `unless`. */
void wb__print_axes(const char *label, const int64_t *list, int64_t unless, wb__text *t);
/* Prints the padding; `pad` is a list with the start and the end of each axis. */
void wb__print_pad(const int64_t *pad, wb__text *t);

#endif
