/* The pages of docs/errors.md, which messages of errors name. */
#ifndef WB__MISTAKES_H
#define WB__MISTAKES_H

/* Returns the page of a failure of this status with this format, such as 201: a row of
 * mistakes.def, else the general page of the status. */
int wb__mistake(int status, const char *format);

#endif
