/* Lists of integers in options. */
#include "base/options.h"

void wb_ints_set(int64_t *list, int n, const int64_t *values)
{
    memset(list, 0, sizeof(wb_ints));
    list[0] = WB_INTS_ + n;
    for (int i = 0; i < n && i < WB_MAX_DIMS; i++) list[1 + i] = values[i];
}

bool wb__ints_read(const char *what, const char *option, wb_ints list, bool given, int most)
{
    enum { CAPACITY = sizeof(wb_ints) / sizeof *list };
    const bool complete = list[0] >= WB_INTS_ && list[0] < WB_INTS_ + (int64_t)INT32_MAX;
    const int first = complete ? 1 : 0;
    int64_t from[CAPACITY + 1] = {0}, n = complete ? list[0] - WB_INTS_ : 0;
    int marks = 0;
    memcpy(from, list + first, (size_t)(CAPACITY - first) * sizeof *list);
    if (complete && list[1] == WB_GIVEN_) memmove(from, from + 1, CAPACITY * sizeof *from);
    while (2 * marks + 1 < CAPACITY && from[2 * marks + 1] == WB_GIVEN_) marks++;
    if (!complete) n = marks + given;   /* {1, 0} by position is left as 1, WB_GIVEN_, 0,
                                           WB_GIVEN_ */
    const int step = marks ? 2 : 1;
    memset(list, 0, sizeof(wb_ints));
    list[0] = n;
    for (int i = 0; i < n && i < most; i++) list[1 + i] = from[step * i];
    for (int i = complete ? CAPACITY : WB__MAX(step * (int)n - step + 1, 0); i < CAPACITY; i++)
        if (from[i] && from[i] != WB_GIVEN_)
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: .%s is not a list: initialise it with WB_INTS(...)", what, option),
                   false;
    if (n <= most) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %lld numbers; at most %d", what, option,
                    (long long)n, most),
           false;
}
