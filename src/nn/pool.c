/* Pooling layers, and the functions of window.h. */
#include "nn/window.h"

#include <string.h>

static bool pool_layer_positive(const char *what, const char *option, const int64_t *list)
{
    for (int i = 1; i <= list[0]; i++) {
        if (list[i] > 0) continue;
        wb__text t = {0};
        for (int j = 1; j <= list[0]; j++)
            wb__text_add(&t, j > 1 ? ", %lld" : "%lld", (long long)list[j]);
        char *numbers = wb__text_take(&t);
        wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is {%s}; sizes are positive", what, option,
                 numbers ? numbers : "");
        wb__free(numbers);
        return false;
    }
    return true;
}

bool wb__axes(const char *what, const wb__given *given, const char *option, int64_t *list, int axes,
              int64_t by_default)
{
    return wb__sliding_axes(what, given, option, -1, list, axes, by_default) &&
           pool_layer_positive(what, option, list);
}

int wb__window_axes(const char *what, const wb__given *given, const char *option, int position,
                    int64_t *list, bool one)
{
    if (!wb__ints_read(what, given, option, position, list, one ? 1 : 3)) return 0;
    if (!list[0]) list[0] = 1;                      /* then its size is 0, an error below */
    if (!one && list[0] == 1) list[2] = list[1], list[0] = 2;
    return pool_layer_positive(what, option, list) ? (int)list[0] : 0;
}

bool wb__pad(const char *what, const wb__given *given, int64_t *list, int axes)
{
    if (!wb__sliding_pad(what, given, list, axes)) return false;
    for (int i = 1; i <= list[0]; i++)
        if (list[i] < 0)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .pad has %lld; it must not be negative", what,
                            (long long)list[i]), false;
    return true;
}

bool wb__window_fits(const char *what, const wb_tensor *x, const int64_t *list, int64_t channels)
{
    static const char *const axes[] = {"L", "H,W", "D,H,W"};
    if (x->ndim == list[0] + 2 && (channels < 0 || x->dims[1] == channels)) return true;
    if (channels < 0)
        return wb__fail(WB_ERROR_SHAPE, "%s: expects [N,C,%s], got %s", what, axes[list[0] - 1],
                        wb_describe(x)), false;
    return wb__fail(WB_ERROR_SHAPE, "%s: expects [N,%lld,%s], got %s", what, (long long)channels,
                    axes[list[0] - 1], wb_describe(x)), false;
}

void wb__print_window(const int64_t *list, wb__text *t)
{
    for (int i = 0; i < list[0]; i++)
        wb__text_add(t, i ? ", %lld" : "(%lld", (long long)list[1 + i]);
    wb__text_add(t, list[0] == 1 ? ",)" : ")");
}

static bool pool_layer_all_equal(const int64_t *list, int step)
{
    for (int i = 1 + step; i <= list[0]; i++)
        if (list[i] != list[i - step]) return false;
    return true;
}

void wb__print_axes(const char *label, const int64_t *list, int64_t unless, wb__text *t)
{
    const bool equal = pool_layer_all_equal(list, 1);
    if (!list[0] || (equal && list[1] == unless)) return;
    wb__text_add(t, "%s", label);
    if (equal) wb__text_add(t, "%lld", (long long)list[1]);
    else wb__print_window(list, t);
}

void wb__print_pad(const int64_t *pad, wb__text *t)
{
    int64_t one[4] = {pad[0] / 2};
    bool both = true;
    for (int i = 0; i < one[0]; i++) {
        one[1 + i] = pad[1 + 2 * i];
        both = both && pad[2 + 2 * i] == one[1 + i];
    }
    wb__print_axes(", pad=", both ? one : pad, 0, t);
}

/* ---- MaxPool, MeanPool ----------------------------------------------------------------------- */

#define POOL_LAYER_OPTIONS(X) \
    X(wb_Pool_options, window, INTS, 0)                                                         \
    X(wb_Pool_options, stride, INTS, 0) X(wb_Pool_options, pad, INTS, 0)
static const wb__option pool_layer_table[] = {POOL_LAYER_OPTIONS(WB__OPTION_ROW)};

typedef wb_tensor *(*pool_layer_pool)(wb_tensor *, const wb_pool_options *);

/* Returns the output of a pool layer by the function f. */
static wb_tensor *pool_layer_call_with(wb_layer *l, int n, wb_tensor *x, pool_layer_pool f)
{
    const wb_Pool_options *o = l->options;
    if (!wb__one_input(l, n) || !wb__window_fits(l->type->name, x, o->window, -1)) return NULL;
    wb_pool_options s = WB__OPTIONS(wb_pool_options);
    wb_ints_set(s.window, (int)o->window[0], o->window + 1);
    wb_ints_set(s.stride, (int)o->stride[0], o->stride + 1);
    wb_ints_set(s.pad, (int)o->pad[0], o->pad + 1);
    return f(x, &s);
}

static wb_tensor *pool_layer_call_max(wb_layer *l, int n, wb_tensor *const *x)
{
    return pool_layer_call_with(l, n, x[0], wb_maxpool_with);
}
static wb_tensor *pool_layer_call_mean(wb_layer *l, int n, wb_tensor *const *x)
{
    return pool_layer_call_with(l, n, x[0], wb_meanpool_with);
}

static void pool_layer_print(const wb_layer *l, wb__text *t)
{
    const wb_Pool_options *o = l->options;
    wb__text_add(t, "%s(", l->type->name);
    wb__print_window(o->window, t);
    wb__print_pad(o->pad, t);
    if (memcmp(o->stride, o->window, (size_t)(1 + o->window[0]) * sizeof *o->stride))
        wb__print_axes(", stride=", o->stride, 0, t);
    wb__text_add(t, ")");
}

#define POOL_LAYER_POOL(id, Name, caller)                                                       \
    WB__PLAIN_LAYER(id, #Name, wb_Pool_options, pool_layer_table, wb_##Name##_with,             \
                    .call = caller, .print = pool_layer_print);
POOL_LAYER_POOL(maxpool, MaxPool, pool_layer_call_max)
POOL_LAYER_POOL(meanpool, MeanPool, pool_layer_call_mean)
POOL_LAYER_POOL(maxpool1d, MaxPool1d, pool_layer_call_max)
POOL_LAYER_POOL(meanpool1d, MeanPool1d, pool_layer_call_mean)

static wb_layer *pool_layer_new(const wb__layer_type *type, const wb_Pool_options *given, bool one)
{
    wb_Pool_options o;
    wb__given g;
    if (!wb__read_options(type->name, wb_Pool_options, &o, given, &g)) return NULL;
    wb__sizes_take(o.window, &o.sizes_);
    const int axes = wb__window_axes(type->name, &g, "window", 0, o.window, one);
    if (!axes || !wb__sliding_axes(type->name, &g, "stride", -1, o.stride, axes, INT64_MIN) ||
        !wb__pad(type->name, &g, o.pad, axes))
        return NULL;
    for (int i = 1; i <= axes; i++)
        if (o.stride[i] == INT64_MIN) o.stride[i] = o.window[i];
    return pool_layer_positive(type->name, "stride", o.stride) ? wb__layer_new(type, &o, 0) : NULL;
}

#define MAKER(id, Name, one)                                                                    \
    wb_layer *wb_##Name##_with(const wb_Pool_options *o)                                        \
    {                                                                                           \
        return pool_layer_new(&wb__##id##_type, o, one);                                        \
    }
MAKER(maxpool, MaxPool, false)
MAKER(meanpool, MeanPool, false)
MAKER(maxpool1d, MaxPool1d, true)
MAKER(meanpool1d, MeanPool1d, true)

/* ---- global pools and Flatten ---------------------------------------------------------------- */

static unsigned pool_layer_axes_of_space(const wb_layer *l, const wb_tensor *x)
{
    if (x->ndim >= 3) return ((1u << x->ndim) - 1) & ~3u;
    wb__fail(WB_ERROR_SHAPE, "%s: expects [N,C,H,W], got %s", l->type->name, wb_describe(x));
    return 0;
}

static wb_tensor *call_globalmaxpool(wb_layer *l, int n, wb_tensor *const *x)
{
    unsigned axes = wb__one_input(l, n) ? pool_layer_axes_of_space(l, x[0]) : 0;
    return axes ? wb__reduce(WB__OP_max, x[0], axes, true) : NULL;
}

static wb_tensor *call_globalmeanpool(wb_layer *l, int n, wb_tensor *const *x)
{
    if (!wb__one_input(l, n) || !wb__floating(l->type->name, x[0])) return NULL;
    const unsigned axes = pool_layer_axes_of_space(l, x[0]);
    return axes ? wb__mean(x[0], axes, true) : NULL;
}

static wb_tensor *call_flatten(wb_layer *l, int n, wb_tensor *const *x)
{
    return wb__one_input(l, n) ? wb_flatten(x[0]) : NULL;
}

#define POOL_LAYER_PLAIN(id, Name)                                                              \
    static wb_layer *make_##id(const void *options) { (void)options; return wb_##Name(); }      \
    const wb__layer_type wb__##id##_type = {                                                    \
        .name = #Name, .call = call_##id, .make = make_##id};                                   \
    wb_layer *wb_##Name(void) { return wb__layer_new(&wb__##id##_type, NULL, 0); }
POOL_LAYER_PLAIN(globalmaxpool, GlobalMaxPool)
POOL_LAYER_PLAIN(globalmeanpool, GlobalMeanPool)
POOL_LAYER_PLAIN(flatten, Flatten)
