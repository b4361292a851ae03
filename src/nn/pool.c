/* Pooling layers, and the functions of window.h. */
#include "nn/window.h"

#include <string.h>

static bool positive(const char *what, const char *option, const int64_t *list)
{
    if (list[1] > 0 && list[2] > 0) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is {%lld, %lld}; sizes are positive", what, option,
             (long long)list[1], (long long)list[2]);
    return false;
}

bool wb__pair(const char *what, const wb__given *given, const char *option, int position,
              int64_t *list, int64_t by_default)
{
    return wb__sliding_pair(what, given, option, position, list, by_default, by_default) &&
           positive(what, option, list);
}

bool wb__pad(const char *what, const wb__given *given, int64_t *list)
{
    if (!wb__sliding_pad(what, given, list)) return false;
    for (int i = 0; i < 4; i++)
        if (list[1 + i] < 0)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .pad has %lld; it must not be negative", what,
                            (long long)list[1 + i]),
                   false;
    return true;
}

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t)
{
    if (pair[0] == unless && pair[1] == unless) return;
    if (pair[0] == pair[1]) wb__text_add(t, "%s%lld", label, (long long)pair[0]);
    else wb__text_add(t, "%s(%lld, %lld)", label, (long long)pair[0], (long long)pair[1]);
}

void wb__print_pad(const int64_t *p, wb__text *t)
{
    if (p[0] == p[1] && p[2] == p[3]) wb__print_pair(", pad=", (int64_t[]){p[0], p[2]}, 0, t);
    else
        wb__text_add(t, ", pad=(%lld, %lld, %lld, %lld)", (long long)p[0], (long long)p[1],
                     (long long)p[2], (long long)p[3]);
}

/* ---- MaxPool, MeanPool ----------------------------------------------------------------------- */

#define OPTIONS(X) \
    X(wb_Pool_options, window, INTS, 2) \
    X(wb_Pool_options, stride, INTS, 2) X(wb_Pool_options, pad, INTS, 4)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

typedef wb_tensor *(*pool)(wb_tensor *, const wb_pool_options *);

static wb_tensor *call_pool(wb_layer *l, int n, wb_tensor *x, pool f)
{
    const wb_Pool_options *o = l->options;
    if (!wb__one_input(l, n)) return NULL;
    if (x->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: expects [N,C,H,W], got %s", l->type->name,
                             wb_describe(x));
    wb_pool_options s = {.size = sizeof s};
    wb_ints_set(s.window, 2, o->window + 1);
    wb_ints_set(s.stride, 2, o->stride + 1);
    wb_ints_set(s.pad, 4, o->pad + 1);
    return f(x, &s);
}

static wb_tensor *call_max(wb_layer *l, int n, wb_tensor *const *x)
{
    return call_pool(l, n, x[0], wb_maxpool_with);
}
static wb_tensor *call_mean(wb_layer *l, int n, wb_tensor *const *x)
{
    return call_pool(l, n, x[0], wb_meanpool_with);
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Pool_options *o = l->options;
    wb__text_add(t, "%s((%lld, %lld)", l->type->name, (long long)o->window[1],
                 (long long)o->window[2]);
    wb__print_pad(o->pad + 1, t);
    if (memcmp(o->stride + 1, o->window + 1, 2 * sizeof *o->stride))
        wb__print_pair(", stride=", o->stride + 1, 0, t);
    wb__text_add(t, ")");
}


WB__PLAIN_LAYER(maxpool, "MaxPool", wb_Pool_options, option_table, wb_MaxPool_with,
                .call = call_max, .print = print);
WB__PLAIN_LAYER(meanpool, "MeanPool", wb_Pool_options, option_table, wb_MeanPool_with,
                .call = call_mean, .print = print);

static wb_layer *pool_layer(const wb__layer_type *type, const wb_Pool_options *given)
{
    wb_Pool_options o;
    wb__given g;
    if (!wb__read_options(type->name, &o, sizeof o, given, "", &g)) return NULL;
    wb__sizes_take(o.window, &o.sizes_);
    if (!wb__pair(type->name, &g, "window", 0, o.window, 0) ||
        !wb__sliding_pair(type->name, &g, "stride", -1, o.stride, o.window[1], o.window[2]) ||
        !positive(type->name, "stride", o.stride) || !wb__pad(type->name, &g, o.pad))
        return NULL;
    return wb__layer_new(type, &o, 0);
}

wb_layer *wb_MaxPool_with(const wb_Pool_options *o)
{
    return pool_layer(&wb__maxpool_type, o);
}
wb_layer *wb_MeanPool_with(const wb_Pool_options *o)
{
    return pool_layer(&wb__meanpool_type, o);
}

/* ---- global pools and Flatten ---------------------------------------------------------------- */

static unsigned spatial(const wb_layer *l, const wb_tensor *x)
{
    if (x->ndim >= 3) return ((1u << x->ndim) - 1) & ~3u;
    wb__fail(WB_ERROR_SHAPE, "%s: expects [N,C,H,W], got %s", l->type->name, wb_describe(x));
    return 0;
}

static wb_tensor *call_globalmaxpool(wb_layer *l, int n, wb_tensor *const *x)
{
    unsigned axes = wb__one_input(l, n) ? spatial(l, x[0]) : 0;
    return axes ? wb__reduce(WB__OP_max, x[0], axes, true) : NULL;
}

static wb_tensor *call_globalmeanpool(wb_layer *l, int n, wb_tensor *const *x)
{
    if (!wb__one_input(l, n) || !wb__floating(l->type->name, x[0])) return NULL;
    const unsigned axes = spatial(l, x[0]);
    return axes ? wb__mean(x[0], axes, true) : NULL;
}

static wb_tensor *call_flatten(wb_layer *l, int n, wb_tensor *const *x)
{
    return wb__one_input(l, n) ? wb_flatten(x[0]) : NULL;
}

#define PLAIN(id, Name)                                                                         \
    static wb_layer *make_##id(const void *options) { (void)options; return wb_##Name(); }      \
    const wb__layer_type wb__##id##_type = {                                                    \
        .name = #Name, .call = call_##id, .make = make_##id};                                   \
    wb_layer *wb_##Name(void) { return wb__layer_new(&wb__##id##_type, NULL, 0); }
PLAIN(globalmaxpool, GlobalMaxPool)
PLAIN(globalmeanpool, GlobalMeanPool)
PLAIN(flatten, Flatten)
