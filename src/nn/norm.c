/* BatchNorm and LayerNorm. */
#include "nn/layer.h"

#include <math.h>

/* ---- BatchNorm ------------------------------------------------------------------------------- */

#define BATCH_OPTIONS(X)                                                                        \
    X(wb_BatchNorm_options, channels, INT, 1) X(wb_BatchNorm_options, activation, FUNCTION, 1)  \
    X(wb_BatchNorm_options, no_affine, BOOL, 1) X(wb_BatchNorm_options, no_track_stats, BOOL, 1) \
    X(wb_BatchNorm_options, eps, REAL, 1) X(wb_BatchNorm_options, momentum, REAL, 1)            \
    X(wb_BatchNorm_options, dtype, DTYPE, 1)
static const wb__option batch_table[] = {BATCH_OPTIONS(WB__OPTION_ROW)};

enum { SCALE, BIAS, MEAN, VAR };        /* indices of children; a LayerNorm has the first two */

static bool put_affine(wb_layer *l, bool has, wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb__layer_put_parameter(l, SCALE, "scale", has, wb_init_ones, dtype, ndim, dims) &&
           wb__layer_put_parameter(l, BIAS, "bias", has, wb_init_zeros, dtype, ndim, dims);
}

/* Reshapes v [C] to [1, C, 1, ...], which broadcasts over x. */
static wb_tensor *along_channels(wb_tensor *v, const wb_tensor *x)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == 1 ? x->dims[1] : 1;
    return v ? wb_reshape_array(v, x->ndim, dims) : NULL;
}

static wb_tensor *affine(wb_tensor *x, wb_tensor *scale, wb_tensor *bias)
{
    if (!x || wb_is_none(scale)) return x;
    return wb_add(wb_mul(x, along_channels(scale, x)), along_channels(bias, x));
}

/* Assigns (1 - momentum)·running + momentum·factor·value to `running`. For the variance, `factor`
 * is Bessel's correction. */
static int move(wb_tensor *running, wb_tensor *value, double momentum, double factor)
{
    const wb_dtype dtype = (wb_dtype)running->dtype;
    wb_tensor *moved = wb_add(wb_mul(wb__as(running, (wb_dtype)value->dtype),
                                     wb__number_of(1 - momentum)),
                              wb_mul(value, wb__number_of(momentum * factor)));
    moved = wb__as(moved, dtype);
    return moved ? wb_assign(running, moved) : (int)wb_error_code();
}

static wb_tensor *batch_train(wb_layer *l, wb_tensor *x, unsigned axes)
{
    const wb_BatchNorm_options *o = l->options;
    int64_t each = x->dims[1] ? x->size / x->dims[1] : 0;
    if (each < 2)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "BatchNorm: training needs more than one value for each channel, got "
                             "%s",
                             wb_describe(x));
    wb_tensor *y = wb__normalise(x, axes, wb__real(o->eps, 1e-5));
    y = affine(y, wb__layer_child(l, SCALE), wb__layer_child(l, BIAS));
    if (!y || o->no_track_stats) return y;
    double momentum = wb__real(o->momentum, 0.1);
    wb_tensor *still = wb__wide(wb_stop_gradient(x)), *mean = wb__mean(still, axes, true);
    wb_tensor *var = wb__mean(wb_square(wb_sub(still, mean)), axes, false);
    mean = wb_reshape_array(mean, 1, &x->dims[1]);
    if (!mean || !var) return NULL;
    if (move(wb__layer_child(l, MEAN), mean, momentum, 1) ||
        move(wb__layer_child(l, VAR), var, momentum, (double)each / (double)(each - 1)))
        return NULL;
    return y;
}

/* Normalises x with the running statistics. The result is x·factor + shift, where factor and shift
 * have one element per channel, [C]. */
static wb_tensor *batch_test(wb_layer *l, wb_tensor *x)
{
    const wb_BatchNorm_options *o = l->options;
    const wb_dtype dtype = (wb_dtype)x->dtype, t = wb__computed_in(dtype);
    wb_tensor *scale = wb__layer_child(l, SCALE), *bias = wb__layer_child(l, BIAS);
    wb_tensor *factor = wb_rsqrt(
        wb_add(wb__as(wb__layer_child(l, VAR), t), wb__number_of(wb__real(o->eps, 1e-5))));
    if (!wb_is_none(scale)) factor = wb_mul(wb__as(scale, t), factor);
    wb_tensor *shift = wb_mul(wb__as(wb__layer_child(l, MEAN), t), factor);
    shift = wb_is_none(bias) ? wb_neg(shift) : wb_sub(wb__as(bias, t), shift);
    x = wb__as(x, t);
    return wb__as(wb_add(wb_mul(x, along_channels(factor, x)), along_channels(shift, x)), dtype);
}

/* Whether x is f16 or bf16 and the layer has no scale and bias. Then x keeps its dtype and is not
 * converted to the dtype of the running statistics. */
static bool only_statistics(const wb_BatchNorm_options *o, const wb_tensor *x)
{
    return o->no_affine && wb__computed_in((wb_dtype)x->dtype) != (wb_dtype)x->dtype;
}

static wb_tensor *batch_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_BatchNorm_options *o = l->options;
    wb_tensor *x = inputs[0], *parameter = wb__layer_child(l, o->no_affine ? MEAN : SCALE);
    if (!wb__one_input(l, n)) return NULL;
    if (x->ndim < 2 || x->dims[1] != o->channels)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "BatchNorm: expects %lld channels in dimension 1, got %s",
                             (long long)o->channels, wb_describe(x));
    if (!wb_is_none(parameter) && !only_statistics(o, x)) x = wb__layer_input(l, x, parameter);
    if (!x) return NULL;
    unsigned axes = ((1u << x->ndim) - 1) & ~2u;
    bool automatic, train = wb__train_mode(l, &automatic);
    wb_tensor *y = train ? batch_train(l, x, axes)
                   : o->no_track_stats ? affine(wb__normalise(x, axes, wb__real(o->eps, 1e-5)),
                                                wb__layer_child(l, SCALE), wb__layer_child(l, BIAS))
                                       : batch_test(l, x);
    if (automatic && !o->no_track_stats) y = wb__mark_automatic(y, "BatchNorm");
    return wb__activate(o->activation, y);
}

static void batch_print(const wb_layer *l, wb__text *t)
{
    const wb_BatchNorm_options *o = l->options;
    wb__text_add(t, "BatchNorm(%lld", (long long)o->channels);
    wb__print_activation(o->activation, t);
    if (o->no_affine) wb__text_add(t, ", affine=false");
    if (l->mode != WB__MODE_AUTO)
        wb__text_add(t, ", active=%s", l->mode == WB__MODE_TRAIN ? "true" : "false");
    wb__text_add(t, ")");
}

static const wb__torch_child torch_rows[] = {
    {"scale", "weight", NULL, 0},
    {"mean", "running_mean", NULL, 0},
    {"var", "running_var", NULL, 0}};
static const wb__torch_kind torch_batch = {WB__TORCH_CHILDREN(torch_rows), .counts_batches = true};

WB__PLAIN_LAYER(batchnorm, "BatchNorm", wb_BatchNorm_options, batch_table, wb_BatchNorm_with,
                .call = batch_call, .print = batch_print, .torch = &torch_batch);

wb_layer *wb_BatchNorm_with(const wb_BatchNorm_options *given)
{
    wb_BatchNorm_options o;
    wb__given g;
    if (!wb__read_options("BatchNorm", &o, sizeof o, given, "eps momentum", &g)) return NULL;
    o.eps = wb__real_option(&g, "eps", -1, o.eps);
    o.momentum = wb__real_option(&g, "momentum", -1, o.momentum);
    if (o.channels < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "BatchNorm: channels are positive, got %lld",
                             (long long)o.channels);
    if (!(wb__real(o.eps, 1e-5) >= 0) || isinf(o.eps))
        return wb__fail_null(WB_ERROR_ARGUMENT, "BatchNorm: eps is %g; it cannot be negative",
                             o.eps);
    if (!(wb__real(o.momentum, 0.1) >= 0 && o.momentum <= 1))
        return wb__fail_null(WB_ERROR_ARGUMENT, "BatchNorm: momentum is %g; it must be in [0, 1]",
                             o.momentum);
    if (!wb__layer_dtype("BatchNorm", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__batchnorm_type, &o, 4);
    if (!put_affine(l, !o.no_affine, o.dtype, 1, &o.channels)) return NULL;
    bool none = o.no_track_stats;
    wb_tensor *mean =
        none ? WB_NONE : wb__statistic("BatchNorm", "mean", wb_init_zeros, o.dtype, o.channels);
    if (!wb__layer_put(l, MEAN, "mean", mean)) return NULL;
    wb_tensor *var =
        none ? WB_NONE : wb__statistic("BatchNorm", "var", wb_init_ones, o.dtype, o.channels);
    return wb__layer_put(l, VAR, "var", var) ? l : NULL;
}

/* ---- LayerNorm ------------------------------------------------------------------------------- */

#define LAYER_OPTIONS(X)                                                                        \
    X(wb_LayerNorm_options, shape, INTS, 4) X(wb_LayerNorm_options, activation, FUNCTION, 1)     \
    X(wb_LayerNorm_options, no_affine, BOOL, 1) X(wb_LayerNorm_options, eps, REAL, 1)           \
    X(wb_LayerNorm_options, dtype, DTYPE, 1)
static const wb__option layer_table[] = {LAYER_OPTIONS(WB__OPTION_ROW)};

static void print_shape(const wb_LayerNorm_options *o, wb__text *t)
{
    for (int i = 0; i < o->shape[0]; i++)
        wb__text_add(t, i ? ", %lld" : "%lld", (long long)o->shape[1 + i]);
}

static wb_tensor *layer_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_LayerNorm_options *o = l->options;
    wb_tensor *x = inputs[0];
    const int axes = (int)o->shape[0];
    if (!wb__one_input(l, n) || !wb__floating("LayerNorm", x)) return NULL;
    bool fits = x->ndim >= axes;
    for (int i = 0; fits && i < axes; i++) fits = x->dims[x->ndim - axes + i] == o->shape[1 + i];
    if (!fits) {
        wb__text t = {0};
        print_shape(o, &t);
        wb__fail(WB_ERROR_SHAPE, "LayerNorm: expects the last sizes to be %s, got %s",
                 t.text ? t.text : "", wb_describe(x));
        wb__free(wb__text_take(&t));
        return NULL;
    }
    wb_tensor *scale = wb__layer_child(l, 0);
    if (!wb_is_none(scale)) x = wb__layer_input(l, x, scale);
    const unsigned last = ((1u << axes) - 1) << (x->ndim - axes);
    wb_tensor *y = wb__normalise(x, last, wb__real(o->eps, 1e-5));
    if (!wb_is_none(scale)) y = wb_add(wb_mul(y, scale), wb__layer_child(l, 1));
    return wb__activate(o->activation, y);
}

static void layer_print(const wb_layer *l, wb__text *t)
{
    const wb_LayerNorm_options *o = l->options;
    wb__text_add(t, "LayerNorm(");
    print_shape(o, t);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->no_affine ? ", affine=false)" : ")");
}

static const wb__torch_kind torch_layer = {.children = torch_rows, .n_children = 1};

WB__PLAIN_LAYER(layernorm, "LayerNorm", wb_LayerNorm_options, layer_table, wb_LayerNorm_with,
                .call = layer_call, .print = layer_print, .torch = &torch_layer);

wb_layer *wb_LayerNorm_with(const wb_LayerNorm_options *given)
{
    wb_LayerNorm_options o;
    wb__given g;
    if (!wb__read_options("LayerNorm", &o, sizeof o, given, "eps", &g)) return NULL;
    o.eps = wb__real_option(&g, "eps", -1, o.eps);
    wb__sizes_take(o.shape, &o.sizes_);
    if (!wb__ints_read("LayerNorm", &g, "shape", 0, o.shape, 4)) return NULL;
    const int n = (int)o.shape[0];
    for (int i = 0; i < n || i < 1; i++)
        if (o.shape[1 + i] < 1)
            return wb__fail_null(WB_ERROR_ARGUMENT, "LayerNorm: sizes are positive, got %lld",
                                 (long long)o.shape[1 + i]);
    if (!(wb__real(o.eps, 1e-5) >= 0) || isinf(o.eps))
        return wb__fail_null(WB_ERROR_ARGUMENT, "LayerNorm: eps is %g; it cannot be negative",
                             o.eps);
    if (!wb__layer_dtype("LayerNorm", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__layernorm_type, &o, 2);
    return put_affine(l, !o.no_affine, o.dtype, n, o.shape + 1) ? l : NULL;
}
