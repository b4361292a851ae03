/* Options of windows over two axes, shared by convolutions and pools: defaults, checks,
 * printing. */
#ifndef WB__WINDOW_H
#define WB__WINDOW_H

#include "engine/ops/sliding.h"
#include "nn/layer.h"

/* Reads an option as wb__sliding_pair does, and checks that its numbers are positive. If
 * by_default is 0 the option must be given. */
bool wb__pair(const char *what, const wb__given *given, const char *option, int position,
              int64_t *list, int64_t by_default);
/* Reads a padding as wb__sliding_pad does, and checks that no number is negative. */
bool wb__pad(const char *what, const wb__given *given, int64_t *list);
/* Writes the padding {top, bottom, left, right} of a Conv, a ConvTranspose or a pool to `out`; with
 * .same it is computed. */
void wb__padding(const wb__layer_type *type, const void *options, int64_t *out);

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t);
void wb__print_pad(const int64_t *pad, wb__text *t);

#endif
