/* Opening the files of vendors' libraries and finding their functions, at run time (files.c). */
#ifndef WB__GPU_FILES_H
#define WB__GPU_FILES_H

#include "base/base.h"

/* A function of a vendor library, and the byte offset of its pointer in a table.
 * wb__gpu_find_functions fills the table `to`, and returns the first name that the library lacks,
 * or NULL.  The pointers of missing functions are set to NULL. */
typedef struct { const char *name; size_t at; } wb__gpu_function;
const char *wb__gpu_find_functions(void *library, const wb__gpu_function *list, size_t n, void *to);

/* Opens a driver's library, which has the function `entry`.  *file receives the library's name: the
 * value of the environment variable `variable`, or else `usual`.  NULL: failed; the error message
 * ends with `advice`. */
void *wb__gpu_open_library(const char *tag, const char *variable, const char *usual,
                           const char *entry, const char *advice, const char **file);

/* A library's file name, and the major version of the vendor's toolkit that it belongs to, 0:
 * unknown.  A list of files ends with a NULL name. */
typedef struct { const char *name; int major; } wb__gpu_file;

/* Where to look for a vendor's libraries: first in the folder that is the value of the environment
 * variable `variable`, then in the system's library path, then in `folders`. */
typedef struct {
    const char *tag, *variable, *folders[2];    /* NULL: none */
    const int *version;  /* toolkit version of the driver, as 1000 * major + 10 * minor; or NULL */
} wb__gpu_search;

/* Opens the next file of the list that can be opened.  In each folder, files whose major version is
 * not newer than the driver's are tried first.  *from is the position in the search, 0 at the first
 * call.  NULL: no file is left; `reason` has a message of dlopen. */
void *wb__gpu_open_next(const wb__gpu_search *s, const wb__gpu_file *files, int *from, char *reason,
                        size_t capacity);

/* Opens the first file of the list that has all functions of a table, and fills the table.  `file`,
 * if it is not NULL, is an open library that is tried first.  Returns the library; NULL: none,
 * and `reason` names what is missing. */
void *wb__gpu_find_library(const wb__gpu_search *s, void *file, const wb__gpu_file *files,
                           const wb__gpu_function *list, size_t n, void *table, char *reason,
                           size_t capacity);
/* Whether the library of `function` and the driver use the same driver library: the function
 * `name`, which is `ours` in the driver's table, is the same for that library.  Otherwise streams
 * and addresses of the driver mean nothing to the library; then writes `reason`. */
bool wb__gpu_shares_driver(void *function, const char *name, void *ours, char *reason,
                           size_t capacity);
/* Whether an environment variable is 0, which disables what it is named after.  NULL: false. */
bool wb__gpu_is_off(const char *variable);

#endif
