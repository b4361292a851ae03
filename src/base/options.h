/* Structs of options: their first field is the struct's size in the caller's header. */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

#define WB__ZERO (-1.0e-300)        /* the number 0, in fields in which 0 means "not given" */

/* Copies the caller's struct to `to`, which has `capacity` bytes.  Fields that the caller's version
 * does not have become zero. */
static inline void wb__read_options(void *to, size_t capacity, const void *given)
{
    size_t size = 0;
    memset(to, 0, capacity);
    if (given) {
        memcpy(&size, given, sizeof size);
        memcpy(to, given, WB__MIN(size, capacity));
    }
    memcpy(to, &capacity, sizeof capacity);
}

/* The value of a WB_NUMBER field for wb__real: 0 if it is not given, WB__ZERO if it is given as
 * 0. */

static inline double wb__given(double value, bool given)
{
    return value == WB_DEFAULT ? 0 : given && value == 0 ? WB__ZERO : value;
}

/* Reads a list of integers that the macros, WB_INTS or C++ filled, or that is empty: list[0]
 * becomes the length, at most `most`, and the numbers follow.  `given`: the option was given.  A
 * list must be read only once.  The macros store {1, 0} as {1, WB_GIVEN_, 0}.  False, with the
 * error set, if a list is too long or was filled in another way. */
bool wb__ints_read(const char *what, const char *option, wb_ints list, bool given, int most);
/* Copies the list that a layer's macro passed by pointer into the field. */
static inline void wb__ints_take(wb_ints list, bool *given, const int64_t **passed)
{
    if (!*passed) return;
    memcpy(list, *passed, sizeof(wb_ints));
    *given = true;
    *passed = NULL;
}

/* The value of a number for which 0 means the default and WB__ZERO means 0. */
static inline double wb__real(double value, double by_default)
{
    return value == 0 ? by_default : value == WB__ZERO ? 0 : value;
}

#endif
