/* Structs of options: their first field is the size that the caller's compiler gave them. */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

#define WB__ZERO (-1.0e-300)        /* 0, where 0 means that a number is not given */

/* The given struct in `to`, which knows `capacity` bytes: what the caller's version lacks is zero. */
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

/* The number of a field with WB_HAS behind it, for wb__real: 0 where it is not given, WB__ZERO where it is given as 0. */
static inline double wb__given(double value, bool given)
{
    return value == WB_DEFAULT ? 0 : given && value == 0 ? WB__ZERO : value;
}

/* Reads a list of integers that the macros, WB_INTS, C++ or nobody filled: list[0] becomes the length,
 * at most `most`, and the numbers follow.  `given`: whether the option was given.  A list that was
 * read is not read again.  The macros leave {1, 0} as {1, WB_GIVEN_, 0}.  False, with the error set,
 * where a list is too long, or filled in another way. */
bool wb__ints_read(const char *what, const char *option, wb_ints list, bool given, int most);
/* The list that a layer's macro passes by pointer, in its place. */
static inline void wb__ints_take(wb_ints list, bool *given, const int64_t **passed)
{
    if (!*passed) return;
    memcpy(list, *passed, sizeof(wb_ints));
    *given = true;
    *passed = NULL;
}

/* A number whose 0 means the default, and what it stands for: WB__ZERO is 0. */
static inline double wb__real(double value, double by_default)
{
    return value == 0 ? by_default : value == WB__ZERO ? 0 : value;
}

#endif
