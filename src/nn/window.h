/* Options of windows over two axes, as convolutions and pools have them: filled in, checked,
 * printed. */
#ifndef WB__WINDOW_H
#define WB__WINDOW_H

#include "nn/layer.h"

/* {n} becomes {n, n}; {0, 0} the default, where there is one. */
bool wb__pair(const char *what, const char *option, int64_t *pair, int64_t by_default);
/* {p} becomes {p, p, p, p} and {ph, pw} {ph, ph, pw, pw}; explicit zeros stay WB_NO_PAD, so that
 * doing it twice is doing it once. */
bool wb__pad(const char *what, int64_t *pad);
void wb__pad_in_force(const int64_t *pad, int64_t *out);        /* WB_NO_PAD is 0 */
/* The padding of a layer that has one, also by .same. */
void wb__padding(const wb__layer_type *type, const void *options, int64_t *out);

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t);
void wb__print_pad(const int64_t *pad, wb__text *t);

#endif
