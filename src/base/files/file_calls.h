/* What file.c and write.c share: the point where a test makes a call of the system fail. */
#ifndef WB__FILE_CALLS_H
#define WB__FILE_CALLS_H

#include <stdbool.h>

bool wb__io_must_fail(void);        /* then errno is EIO, and the call is not made */

#endif
