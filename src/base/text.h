/* Text that grows; after a failure nothing more is added and wb__text_take gives NULL. */
#ifndef WB__TEXT_H
#define WB__TEXT_H

#include "base/base.h"

typedef struct { char *text; size_t length, room; bool failed; } wb__text;
void wb__text_add(wb__text *t, const char *format, ...) WB__PRINTF(2, 3);
void wb__text_list(wb__text *t, const char *format, va_list list) WB__PRINTF(2, 0);
void wb__text_raw(wb__text *t, const char *bytes, size_t n);
void wb__text_spaces(wb__text *t, int n);
char *wb__text_take(wb__text *t);           /* allocated; the text is empty again */

#endif
