/* Variables of the environment that take certain values only. */
#ifndef WB__ENVIRONMENT_H
#define WB__ENVIRONMENT_H

#include "base/base.h"

/* Whether the variable may have this value; "" counts as not set.  If not, writes what it takes to
 * `allowed`: "0 or 1".  Variables that take any text, such as paths, and those whose reader reports
 * a wrong value itself, take all. */
bool wb__environment_takes(const char *name, const char *value, char *allowed, size_t bytes);

/* Warns once in the process of each variable that has a value that it does not take. */
void wb__environment_check(void);

#endif
