/* Pools, and the options of windows that convolutions share with them. */
#include "nn/window.h"

#include <string.h>

bool wb__pair(const char *what, const char *option, int64_t *pair, int64_t by_default)
{
    if (!pair[1]) pair[1] = pair[0];
    if (!pair[0]) pair[0] = pair[1] = by_default;
    if (pair[0] > 0 && pair[1] > 0) return true;
    wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is {%lld, %lld}; sizes are positive", what, option,
             (long long)pair[0], (long long)pair[1]);
    return false;
}

bool wb__pad(const char *what, int64_t *pad)
{
    for (int i = 0; i < 4; i++)
        if (pad[i] < WB_NO_PAD)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .pad has %lld; it must not be negative", what,
                            (long long)pad[i]),
                   false;
    int given = pad[2] || pad[3] ? 4 : pad[1] ? 2 : pad[0] ? 1 : 0;
    if (given == 0) return true;
    if (given < 4) {
        int64_t h = pad[0], w = given == 1 ? h : pad[1];
        pad[0] = pad[1] = h;
        pad[2] = pad[3] = w;
    }
    for (int i = 0; i < 4; i++)
        if (!pad[i]) pad[i] = WB_NO_PAD;
    return true;
}

void wb__pad_in_force(const int64_t *pad, int64_t *out)
{
    for (int i = 0; i < 4; i++) out[i] = WB__MAX(pad[i], 0);
}

void wb__print_pair(const char *label, const int64_t *pair, int64_t unless, wb__text *t)
{
    if (pair[0] == unless && pair[1] == unless) return;
    if (pair[0] == pair[1]) wb__text_add(t, "%s%lld", label, (long long)pair[0]);
    else wb__text_add(t, "%s(%lld, %lld)", label, (long long)pair[0], (long long)pair[1]);
}

void wb__print_pad(const int64_t *pad, wb__text *t)
{
    int64_t p[4];
    wb__pad_in_force(pad, p);
    if (p[0] == p[1] && p[2] == p[3]) wb__print_pair(", pad=", (int64_t[]){p[0], p[2]}, 0, t);
    else
        wb__text_add(t, ", pad=(%lld, %lld, %lld, %lld)", (long long)p[0], (long long)p[1],
                     (long long)p[2], (long long)p[3]);
}

/* ---- MaxPool, MeanPool ----------------------------------------------------------------------- */

#define OPTIONS(X) \
    X(wb_pool_options, window, INT, 2) \
    X(wb_pool_options, stride, INT, 2) X(wb_pool_options, pad, INT, 4)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

typedef wb_tensor *(*pool)(wb_tensor *, const wb_pool_settings *);

static wb_tensor *call_pool(wb_layer *l, int n, wb_tensor *x, pool f)
{
    const wb_pool_options *o = l->options;
    if (!wb__one_input(l, n)) return NULL;
    if (x->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: expects [N,C,H,W], got %s", l->type->name,
                             wb_describe(x));
    wb_pool_settings s = {.size = sizeof s, .window = {o->window[0], o->window[1]},
                          .stride = {o->stride[0], o->stride[1]}};
    wb__pad_in_force(o->pad, s.pad);
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
    const wb_pool_options *o = l->options;
    wb__text_add(t, "%s((%lld, %lld)", l->type->name, (long long)o->window[0],
                 (long long)o->window[1]);
    wb__print_pad(o->pad, t);
    if (memcmp(o->stride, o->window, sizeof o->stride))
        wb__print_pair(", stride=", o->stride, 0, t);
    wb__text_add(t, ")");
}


WB__PLAIN_LAYER(maxpool, "MaxPool", wb_pool_options, option_table, wb_maxpool_layer_with,
                .call = call_max, .print = print);
WB__PLAIN_LAYER(meanpool, "MeanPool", wb_pool_options, option_table, wb_meanpool_layer_with,
                .call = call_mean, .print = print);

static wb_layer *pool_layer(const wb__layer_type *type, const wb_pool_options *given)
{
    wb_pool_options o;
    wb__read_options(&o, sizeof o, given);
    wb__take_sizes(o.window, &o.sizes_, 2);
    if (!wb__pair(type->name, "window", o.window, 0)) return NULL;
    if (!o.stride[0]) memcpy(o.stride, o.window, sizeof o.stride);
    if (!wb__pair(type->name, "stride", o.stride, 0) || !wb__pad(type->name, o.pad)) return NULL;
    return wb__layer_new(type, &o, 0);
}

wb_layer *wb_maxpool_layer_with(const wb_pool_options *o)
{
    return pool_layer(&wb__maxpool_type, o);
}
wb_layer *wb_meanpool_layer_with(const wb_pool_options *o)
{
    return pool_layer(&wb__meanpool_type, o);
}

/* ---- over everything, and flat --------------------------------------------------------------- */

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
    unsigned axes = wb__one_input(l, n) ? spatial(l, x[0]) : 0;
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
