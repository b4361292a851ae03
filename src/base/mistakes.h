/* The pages of docs/errors.md, which messages of errors name. */
#ifndef WB__MISTAKES_H
#define WB__MISTAKES_H

#include <stddef.h>

/* Returns the page of a failure of this status with this format, such as 201: a row of
 * mistakes.def, else the general page of the status. */
int wb__mistake(int status, const char *format);

/* Writes this thread's message to `to` without the name of its page: for texts that are not
 * errors. */
void wb__error_plain(char *to, size_t bytes);

#endif
