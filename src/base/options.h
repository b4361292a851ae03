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

/* A number whose 0 means the default, and what it stands for: WB_ZERO is 0. */
static inline double wb__real(double value, double by_default)
{
    return value == 0 ? by_default : value == WB_ZERO ? 0 : value;
}

#endif
