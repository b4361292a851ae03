/* Adaptive pools: the number of windows is given, their sizes follow from x. */
#include "nn/space.h"

#define ADAPTIVE_OPTIONS(X)                                                                     \
    X(wb_AdaptivePool_options, out, INTS, 0) X(wb_AdaptivePool_options, fixed, BOOL, 1)
static const wb__option adaptive_table[] = {ADAPTIVE_OPTIONS(WB__OPTION_ROW)};
extern const wb__layer_type wb__adaptivemaxpool_type;

/* Sets *start and *stop to the window of element i along an axis of n elements that become m.  With
 * .fixed all windows have one size, as in Flux; else they cover all elements, as in PyTorch. */
static void adaptive_window(int64_t n, int64_t m, bool fixed, int64_t i, int64_t *start,
                            int64_t *stop)
{
    const int64_t stride = n / m;
    *start = fixed ? i * stride : i * n / m;
    *stop = fixed ? *start + n - (m - 1) * stride : ((i + 1) * n + m - 1) / m;
}

/* Returns the greatest element of each of the m windows along one axis. */
static wb_tensor *adaptive_maximum(wb_tensor *x, int axis, int64_t m, bool fixed)
{
    const int64_t n = x->dims[axis];
    wb_tensor **parts = wb__alloc((size_t)m * sizeof *parts);
    bool ok = parts != NULL;
    for (int64_t i = 0; ok && i < m; i++) {
        int64_t start, stop;
        adaptive_window(n, m, fixed, i, &start, &stop);
        parts[i] = wb_slice(x, axis, start, stop);
        ok = parts[i] && (parts[i] = wb__reduce(WB__OP_max, parts[i], 1u << axis, true));
    }
    wb_tensor *y = ok ? wb_concat_array(axis, (int)m, parts) : NULL;
    wb__free(parts);
    return y;
}

/* Returns the mean of each of the m windows along one axis: a product with weights [m, n], which
 * are 1 / (stop - start) where the column is in the row's window, else 0. */
static wb_tensor *adaptive_mean(wb_tensor *x, int axis, int64_t m, bool fixed)
{
    const int64_t n = x->dims[axis], stride = n / m;
    const wb_dtype t = WB_I64, wide = wb__computed_in((wb_dtype)x->dtype);
    wb_tensor *i = wb_unsqueeze(wb_arange(m, t), -1), *j = wb_arange(n, t), *start, *stop;
    if (fixed) {
        start = wb_mul(i, wb_scalar_int(stride));
        stop = wb_add(start, wb_scalar_int(n - (m - 1) * stride));
    } else {
        wb_tensor *scaled = wb_mul(i, wb_scalar_int(n));
        start = wb_div(scaled, wb_scalar_int(m));
        stop = wb_div(wb_add(scaled, wb_scalar_int(n + m - 1)), wb_scalar_int(m));
    }
    wb_tensor *inside = wb_and(wb_ge(j, start), wb_lt(j, stop));
    wb_tensor *each = wb_reciprocal(wb_astype(wb_sub(stop, start), wide));
    return wb__along_axis(x, axis, wb_where(inside, each, wb_scalar(0)));
}

static wb_tensor *adaptive_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_AdaptivePool_options *o = l->options;
    const char *what = l->type->name;
    wb_tensor *x = inputs[0];
    int64_t out[3];
    if (!wb__one_input(l, n) || !wb__floating(what, x) || !wb__has_space(what, x) ||
        !wb__for_each_axis(what, "out", x, o->out, out))
        return NULL;
    for (int a = 2; o->fixed && a < x->ndim; a++)
        if (out[a - 2] > x->dims[a])
            return wb__fail_null(WB_ERROR_SHAPE, "%s: %lld windows of one size are more than axis "
                                 "%d of %s has elements", what, (long long)out[a - 2], a,
                                 wb_describe(x));
    const bool max = l->type == &wb__adaptivemaxpool_type;
    for (int a = 2; x && a < inputs[0]->ndim; a++)
        if (out[a - 2] != x->dims[a])
            x = (max ? adaptive_maximum : adaptive_mean)(x, a, out[a - 2], o->fixed);
    return x;
}

static void adaptive_print(const wb_layer *l, wb__text *t)
{
    const wb_AdaptivePool_options *o = l->options;
    wb__text_add(t, "%s(", l->type->name);
    wb__print_sizes(o->out, t);
    wb__text_add(t, o->fixed ? ", fixed=true)" : ")");
}

WB__PLAIN_LAYER(adaptivemaxpool, "AdaptiveMaxPool", wb_AdaptivePool_options, adaptive_table,
                wb_AdaptiveMaxPool_with, .call = adaptive_call, .print = adaptive_print);
WB__PLAIN_LAYER(adaptivemeanpool, "AdaptiveMeanPool", wb_AdaptivePool_options, adaptive_table,
                wb_AdaptiveMeanPool_with, .call = adaptive_call, .print = adaptive_print);

static wb_layer *adaptive_layer(const wb__layer_type *type, const wb_AdaptivePool_options *given)
{
    wb_AdaptivePool_options o;
    wb__given g;
    if (!wb__read_options(type->name, wb_AdaptivePool_options, &o, given, &g)) return NULL;
    wb__sizes_take(o.out, &o.sizes_);
    if (!wb__ints_read(type->name, &g, "out", 0, o.out, 3)) return NULL;
    for (int i = 0; i < o.out[0] || i < 1; i++)
        if (o.out[1 + i] < 1 || o.out[1 + i] > INT16_MAX)
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .out has %lld; sizes are 1 to 32767",
                                 type->name, (long long)o.out[1 + i]);
    return wb__layer_new(type, &o, 0);
}

wb_layer *wb_AdaptiveMaxPool_with(const wb_AdaptivePool_options *o)
{
    WB__EDGE;
    return adaptive_layer(&wb__adaptivemaxpool_type, o);
}
wb_layer *wb_AdaptiveMeanPool_with(const wb_AdaptivePool_options *o)
{
    WB__EDGE;
    return adaptive_layer(&wb__adaptivemeanpool_type, o);
}
