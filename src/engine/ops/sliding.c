/* Windows that slide over the last two axes. */
#include "engine/ops/sliding.h"

#include "base/options.h"
#include "engine/ops/op.h"

bool wb__sliding_valid(const char *what, const int64_t *k, const int64_t *stride,
                       const int64_t *pad, const int64_t *dilation)
{
    for (int i = 0; i < 2; i++) {
        int64_t most = WB__MAX(WB__MAX(k[i], stride[i]), WB__MAX(pad[2 * i], pad[2 * i + 1]));
        if (dilation) most = WB__MAX(most, dilation[i]);
        if (most > INT32_MAX) {             /* the products below then cannot overflow */
            wb__fail(WB_ERROR_ARGUMENT, "%s: %lld as a size of window, stride, dilation or padding",
                     what, (long long)most);
            return false;
        }
        if (k[i] < 1 || stride[i] < 1 || pad[2 * i] < 0 || pad[2 * i + 1] < 0 ||
            (dilation && dilation[i] < 1)) {
            wb__fail(WB_ERROR_ARGUMENT,
                     "%s: window %lldx%lld, stride %lldx%lld, padding %lld,%lld,%lld,%lld: "
                     "window, stride and dilation are at least 1, padding at least 0",
                     what, (long long)k[0], (long long)k[1], (long long)stride[0],
                     (long long)stride[1], (long long)pad[0], (long long)pad[1], (long long)pad[2],
                     (long long)pad[3]);
            return false;
        }
    }
    return true;
}

bool wb__sliding_size(const char *what, const wb_tensor *x, const int64_t *k,
                      const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                      int64_t *size)
{
    if (!wb__sliding_valid(what, k, stride, pad, dilation)) return false;
    for (int i = 0; i < 2; i++) {
        const int64_t padded = x->dims[2 + i] + pad[2 * i] + pad[2 * i + 1];
        const int64_t reach = (k[i] - 1) * (dilation ? dilation[i] : 1) + 1;
        size[i] = (padded - reach) / stride[i] + 1;
        if (padded >= reach) continue;
        wb__fail(WB_ERROR_SHAPE,
                 "%s: a window of %lldx%lld does not fit into %s with padding %lld,%lld,%lld,%lld",
                 what, (long long)k[0], (long long)k[1], wb_describe(x), (long long)pad[0],
                 (long long)pad[1], (long long)pad[2], (long long)pad[3]);
        return false;
    }
    return true;
}

bool wb__sliding_axes(const char *what, const wb__given *given, const char *option, int position,
                      int64_t *list, int axes, int64_t by_default)
{
    if (!wb__ints_read(what, given, option, position, list, axes)) return false;
    if (list[0] > 1 && list[0] != axes)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %d numbers; it has one, or one for each of "
                        "%d axes", what, option, (int)list[0], axes),
               false;
    for (int i = 1; i <= axes; i++)
        if (list[0] < i) list[i] = list[0] ? list[1] : by_default;
    list[0] = axes;
    return true;
}

bool wb__sliding_pair(const char *what, const wb__given *given, const char *option, int position,
                      int64_t *list, int64_t first, int64_t second)
{
    if (!wb__ints_read(what, given, option, position, list, 2)) return false;
    if (list[0] < 1) list[1] = first;
    if (list[0] < 2) list[2] = list[0] ? list[1] : second;
    list[0] = 2;
    return true;
}

bool wb__sliding_pad(const char *what, const wb__given *given, int64_t *list, int axes)
{
    if (!wb__ints_read(what, given, "pad", -1, list, 2 * axes)) return false;
    const int64_t n = list[0];
    int64_t sides[6];
    if (n > 1 && n != axes && n != 2 * axes)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .pad has %d numbers; it has one for all sides, one "
                        "for each of %d axes, or two, start and end, for each", what, (int)n, axes),
               false;
    for (int i = 0; i < 2 * axes; i++)
        sides[i] = !n ? 0 : n == 2 * axes ? list[1 + i] : list[n == 1 ? 1 : 1 + i / 2];
    memcpy(list + 1, sides, 2 * (size_t)axes * sizeof *sides);
    list[0] = 2 * axes;
    return true;
}
