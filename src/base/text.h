/* Text that grows.  After a failure nothing more is added, and wb__text_take returns NULL. */
#ifndef WB__TEXT_H
#define WB__TEXT_H

#include "base/base.h"

typedef struct { char *text; size_t length, capacity; bool failed; } wb__text;
void wb__text_add(wb__text *t, const char *format, ...) WB__PRINTF(2, 3);
void wb__text_list(wb__text *t, const char *format, va_list list) WB__PRINTF(2, 0);
void wb__text_raw(wb__text *t, const char *bytes, size_t n);
void wb__text_spaces(wb__text *t, int n);
void wb__text_count(wb__text *t, int64_t n);                    /* "1_234" */
void wb__text_bytes(wb__text *t, int64_t bytes);                /* "17 bytes", "3.004 KiB" */
/* Adds untrusted text in a form that is safe to print on a terminal.  Control characters become
 * escapes such as \n, \t and \x1b.  Bytes that are not UTF-8 become escapes such as \xff. */
void wb__text_foreign(wb__text *t, const char *text);
/* Adds untrusted text as wb__text_foreign does, but line ends and tabs stay. */
void wb__text_foreign_lines(wb__text *t, const char *text);
/* Returns the bytes of the control character at `at`, 1 or 2; 0: none, or a line end or tab. */
int wb__control_character(const char *at);
/* Writes "a, b or c" for "a b=c", as far as it fits. */
void wb__list_words(char *to, size_t bytes, const char *words);
int wb__characters(const char *text);                           /* number of characters of UTF-8 */
char *wb__text_take(wb__text *t);           /* returns the text, which the caller frees, and starts
                                               a new one */

/* Returns the number of bytes of the UTF-8 character at `at`, of which at most `most` may be read;
 * 0: not UTF-8. */
int wb__utf8(const char *at, size_t most);
bool wb__is_utf8(const char *text);
int wb__utf8_put(uint32_t c, char *to);         /* writes a Unicode character, returns its bytes */

#endif
