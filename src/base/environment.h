/* Variables of the environment.  Only environment.c reads them, with two exceptions: the module of
 * ranks that is linked without the library (src/dist) reads the number that launchers give, and
 * cli/doctor.c prints the variables that are set. */
#ifndef WB__ENVIRONMENT_H
#define WB__ENVIRONMENT_H

#include "base/base.h"

enum { WB__MOST_THREADS = 256, WB__MAX_CPU_DEVICES = 16 };

/* The value of a variable, which the program must not change; NULL: it is not set. */
const char *wb__environment_text(const char *name);

/* Returns the value of a variable that names a file, a folder or an address, or is a secret.  NULL:
 * the variable is not set, or the program has rights that its caller, who chooses the value, lacks
 * (wb__os_has_more_rights); a variable of Weber is then reported, once in the process. */
const char *wb__environment_path(const char *name);

/* Returns the value of a variable that is 0 or 1, or a number; `by_default` if the variable is not
 * set, is empty or has a value that it does not take. */
bool wb__environment_switch(const char *name, bool by_default);
double wb__environment_number(const char *name, double by_default);

/* Whether the variable may have this value; "" counts as not set.  If not, writes a sentence
 * without its full stop to `why`: `WEBER_EAGER is "yes", which has no effect: it is 0 or 1`.
 * Variables of rows with TEXT take all values. */
bool wb__environment_takes(const char *name, const char *value, char *why, size_t bytes);

/* Returns the name of variable i, also of examples and scripts; NULL: i is past the last. */
const char *wb__environment_name(int i);

/* Warns once in the process of each variable that has a value that it does not take. */
void wb__environment_check(void);

#endif
