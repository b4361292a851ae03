/* Libraries of other projects, which are opened when they are needed. */
#ifndef WB__LIBRARY_H
#define WB__LIBRARY_H

#include <stdbool.h>

enum { WB__LIBRARY_REASON = 256 };

/* Opens the file that the environment's `variable` names, else the first of `files` that has all
 * functions of `names` and passes `check`, which is NULL or returns NULL, or else the reason why
 * not.  Both lists end with NULL.  Writes the addresses to `table`, in the order of the names.  The
 * library stays open.  Returns false if there is none; `reason` gets the first file's reason. */
bool wb__library_open(const char *variable, const char *const *files, const char *const *names,
                      const char *(*check)(void *library), void *table,
                      char reason[WB__LIBRARY_REASON]);

#endif
