/* Functions that read, check and print the options of convolutions and pools, which have windows
 * over two axes. */
#ifndef WB__WINDOW_H
#define WB__WINDOW_H

#include "engine/ops/sliding.h"
#include "nn/layer.h"

/* Reads an option into `list` as wb__sliding_pair does, with the default {by_default, by_default}.
 * False, with the error set, also if a number is not positive. If by_default is 0, the option must
 * be given. */
bool wb__pair(const char *what, const wb__given *given, const char *option, int position,
              int64_t *list, int64_t by_default);
/* Reads the padding into `list` as wb__sliding_pad does. False, with the error set, also if a
 * number is negative. */
bool wb__pad(const char *what, const wb__given *given, int64_t *list);
/* Writes the padding {top, bottom, left, right} of a Conv, a ConvTranspose or a pool to `out`. With
 * .same the padding is computed from the other options. */
void wb__padding(const wb__layer_type *type, const void *options, int64_t *out);

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t);
void wb__print_pad(const int64_t *pad, wb__text *t);

#endif
