/* Structs of options: their first field is the size that the caller's compiler gave them. */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

/* The given struct in `to`, which knows `room` bytes: what the caller's version lacks is zero. */
static inline void wb__read_options(void *to, size_t room, const void *given)
{
    size_t size = 0;
    memset(to, 0, room);
    if (given) {
        memcpy(&size, given, sizeof size);
        memcpy(to, given, WB__MIN(size, room));
    }
    memcpy(to, &room, sizeof room);
}

/* The number of a field with WB_HAS behind it, for wb__real: 0 where it is not given, WB_ZERO where it is given as 0. */
static inline double wb__given(double value, bool given)
{
    return value == WB_DEFAULT ? 0 : given && value == 0 ? WB_ZERO : value;
}

/* Sizes in braces are elsewhere: n of them into `to`. */
static inline void wb__take_sizes(int64_t *to, const int64_t **sizes, int n)
{
    if (*sizes) memcpy(to, *sizes, (size_t)n * sizeof *to);
    *sizes = NULL;
}

/* A number whose 0 means the default, and what it stands for: WB_ZERO is 0. */
static inline double wb__real(double value, double by_default)
{
    return value == 0 ? by_default : value == WB_ZERO ? 0 : value;
}

#endif
