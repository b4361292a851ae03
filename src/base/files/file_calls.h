/* The function that makes system calls for files fail in tests. */
#ifndef WB__FILE_CALLS_H
#define WB__FILE_CALLS_H

#include <stdbool.h>

bool wb__io_must_fail(void);        /* true: the caller acts as if its call had failed */

#endif
