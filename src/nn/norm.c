/* BatchNorm, InstanceNorm, GroupNorm, LayerNorm and RMSNorm. */
#include "nn/layer.h"

#include <math.h>

/* ---- BatchNorm ------------------------------------------------------------------------------- */

#define BATCH_OPTIONS(X)                                                                        \
    X(wb_BatchNorm_options, channels, INT, 1) X(wb_BatchNorm_options, activation, FUNCTION, 1)  \
    X(wb_BatchNorm_options, affine, BOOL, 1) X(wb_BatchNorm_options, track_stats, BOOL, 1)      \
    X(wb_BatchNorm_options, eps, REAL, 1) X(wb_BatchNorm_options, momentum, REAL, 1)            \
    X(wb_BatchNorm_options, dtype, DTYPE, 1)
static const wb__option batch_table[] = {BATCH_OPTIONS(WB__OPTION_ROW)};

/* Indices of children.  GroupNorm and LayerNorm have the first two, RMSNorm has NORM_SCALE. */
enum { NORM_SCALE, NORM_BIAS, NORM_MEAN, VAR };

static bool norm_put_affine(wb_layer *l, bool scale, bool bias, wb_dtype dtype, int ndim,
                            const int64_t *dims)
{
    return wb__layer_put_parameter(l, NORM_SCALE, "scale", scale, wb_init_ones, dtype, ndim,
                                   dims) &&
           wb__layer_put_parameter(l, NORM_BIAS, "bias", bias, wb_init_zeros, dtype, ndim, dims);
}

/* Reshapes v [C] to [1, C, 1, ...], which broadcasts over x. */
static wb_tensor *norm_along_channels(wb_tensor *v, const wb_tensor *x)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == 1 ? x->dims[1] : 1;
    return v ? wb_reshape_array(v, x->ndim, dims) : NULL;
}

static wb_tensor *norm_scaled(wb_tensor *x, wb_tensor *scale, wb_tensor *bias)
{
    if (!x || wb_is_none(scale)) return x;
    return wb_add(wb_mul(x, norm_along_channels(scale, x)), norm_along_channels(bias, x));
}

/* Moves `running` towards `value`: assigns (1 - momentum)·running + momentum·factor·value.  For the
 * variance, `factor` is Bessel's correction. */
static int norm_move_running(wb_tensor *running, wb_tensor *value, double momentum, double factor)
{
    const wb_dtype dtype = (wb_dtype)running->dtype;
    wb_tensor *moved = wb_add(wb_mul(wb__as(running, (wb_dtype)value->dtype),
                                     wb__number_of(1 - momentum)),
                              wb_mul(value, wb__number_of(momentum * factor)));
    moved = wb__as(moved, dtype);
    return moved ? wb_assign(running, moved) : (int)wb_error_code();
}

static bool norm_valid_eps(const char *what, double eps)
{
    if (eps >= 0 && !isinf(eps)) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: eps is %g; it cannot be negative", what, eps), false;
}

static bool norm_valid_channels(const char *what, int64_t channels)
{
    if (channels >= 1) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: channels are positive, got %lld", what,
                    (long long)channels), false;
}

static bool norm_valid_momentum(const char *what, double momentum)
{
    if (momentum >= 0 && momentum <= 1) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: momentum is %g; it must be in [0, 1]", what, momentum),
           false;
}

/* Whether axis 1 of x has `channels` elements. */
static bool norm_has_channels(const char *what, const wb_tensor *x, int64_t channels)
{
    if (x->ndim >= 2 && x->dims[1] == channels) return true;
    return wb__fail(WB_ERROR_SHAPE, "%s: expects %lld channels in dimension 1, got %s", what,
                    (long long)channels, wb_describe(x)), false;
}

static bool norm_put_statistics(wb_layer *l, bool has, wb_dtype dtype, int64_t channels)
{
    const char *what = l->type->name;
    wb_tensor *mean = has ? wb__statistic(what, "mean", wb_init_zeros, dtype, channels) : WB_NONE;
    if (!wb__layer_put(l, NORM_MEAN, "mean", mean)) return false;
    return wb__layer_put(l, VAR, "var",
                         has ? wb__statistic(what, "var", wb_init_ones, dtype, channels) : WB_NONE);
}

/* Returns x normalised with its own statistics, and moves the running statistics. */
static wb_tensor *batch_train(wb_layer *l, wb_tensor *x, unsigned axes)
{
    const wb_BatchNorm_options *o = l->options;
    int64_t each = x->dims[1] ? x->size / x->dims[1] : 0;
    if (each < 2)
        return wb__fail_null(WB_ERROR_SHAPE, "BatchNorm: training needs more than one value for "
                             "each channel, got %s", wb_describe(x));
    wb_tensor *y = wb__normalise(x, axes, o->eps);
    y = norm_scaled(y, wb__layer_child(l, NORM_SCALE), wb__layer_child(l, NORM_BIAS));
    if (!y || !o->track_stats) return y;
    double momentum = o->momentum;
    wb_tensor *still = wb__wide(wb_stop_gradient(x)), *mean = wb__mean(still, axes, true);
    wb_tensor *var = wb__mean(wb_square(wb_sub(still, mean)), axes, false);
    mean = wb_reshape_array(mean, 1, &x->dims[1]);
    if (!mean || !var) return NULL;
    if (norm_move_running(wb__layer_child(l, NORM_MEAN), mean, momentum, 1) ||
        norm_move_running(wb__layer_child(l, VAR), var, momentum,
                          (double)each / (double)(each - 1)))
        return NULL;
    return y;
}

/* Returns x normalised with the running statistics: x·factor + shift, where factor and shift have
 * one element per channel, [C]. */
static wb_tensor *norm_by_statistics(wb_layer *l, wb_tensor *x, double eps)
{
    const wb_dtype dtype = (wb_dtype)x->dtype, t = wb__computed_in(dtype);
    wb_tensor *scale = wb__layer_child(l, NORM_SCALE), *bias = wb__layer_child(l, NORM_BIAS);
    wb_tensor *factor = wb_rsqrt(wb_add(wb__as(wb__layer_child(l, VAR), t), wb__number_of(eps)));
    if (!wb_is_none(scale)) factor = wb_mul(wb__as(scale, t), factor);
    wb_tensor *shift = wb_mul(wb__as(wb__layer_child(l, NORM_MEAN), t), factor);
    shift = wb_is_none(bias) ? wb_neg(shift) : wb_sub(wb__as(bias, t), shift);
    x = wb__as(x, t);
    return wb__as(wb_add(wb_mul(x, norm_along_channels(factor, x)), norm_along_channels(shift, x)),
                  dtype);
}

/* Whether x is f16 or bf16 and the layer has no scale and bias.  Then x keeps its dtype and is not
 * converted to the dtype of the running statistics. */
static bool norm_has_only_statistics(const wb_BatchNorm_options *o, const wb_tensor *x)
{
    return !o->affine && wb__computed_in((wb_dtype)x->dtype) != (wb_dtype)x->dtype;
}

static wb_tensor *batch_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_BatchNorm_options *o = l->options;
    wb_tensor *x = inputs[0], *parameter = wb__layer_child(l, o->affine ? NORM_SCALE : NORM_MEAN);
    if (!wb__one_input(l, n)) return NULL;
    if (!norm_has_channels("BatchNorm", x, o->channels)) return NULL;
    if (!wb_is_none(parameter) && !norm_has_only_statistics(o, x))
        x = wb__layer_input(l, x, parameter);
    if (!x) return NULL;
    unsigned axes = ((1u << x->ndim) - 1) & ~2u;
    bool automatic, train = wb__train_mode(l, &automatic);
    wb_tensor *y = train ? batch_train(l, x, axes)
                   : o->track_stats
                       ? norm_by_statistics(l, x, o->eps)
                       : norm_scaled(wb__normalise(x, axes, o->eps), wb__layer_child(l, NORM_SCALE),
                                     wb__layer_child(l, NORM_BIAS));
    if (automatic && o->track_stats) y = wb__mark_automatic(y, "BatchNorm");
    return wb__activate(o->activation, y);
}

static void batch_print(const wb_layer *l, wb__text *t)
{
    const wb_BatchNorm_options *o = l->options;
    wb__text_add(t, "BatchNorm(%lld", (long long)o->channels);
    wb__print_activation(o->activation, t);
    if (!o->affine) wb__text_add(t, ", affine=false");
    if (l->mode != WB__MODE_AUTO)
        wb__text_add(t, ", active=%s", l->mode == WB__MODE_TRAIN ? "true" : "false");
    wb__text_add(t, ")");
}

static const wb__torch_child norm_torch_rows[] = {
    {"scale", "weight", NULL, 0},
    {"mean", "running_mean", NULL, 0},
    {"var", "running_var", NULL, 0}};
static const wb__torch_kind torch_batch = {WB__TORCH_CHILDREN(norm_torch_rows),
                                           .counts_batches = true};

WB__PLAIN_LAYER(batchnorm, "BatchNorm", wb_BatchNorm_options, batch_table, wb_BatchNorm_with,
                .call = batch_call, .print = batch_print, .torch = &torch_batch);

wb_layer *wb_BatchNorm_with(const wb_BatchNorm_options *given)
{
    WB__EDGE;
    wb_BatchNorm_options o;
    if (!wb__read_options("BatchNorm", wb_BatchNorm_options, &o, given, NULL)) return NULL;
    if (!norm_valid_channels("BatchNorm", o.channels) || !norm_valid_eps("BatchNorm", o.eps) ||
        !norm_valid_momentum("BatchNorm", o.momentum) || !wb__layer_dtype("BatchNorm", &o.dtype))
        return NULL;
    wb_layer *l = wb__layer_new(&wb__batchnorm_type, &o, 4);
    return norm_put_affine(l, o.affine, o.affine, o.dtype, 1, &o.channels) &&
                   norm_put_statistics(l, o.track_stats, o.dtype, o.channels)
               ? l : NULL;
}

/* ---- InstanceNorm ---------------------------------------------------------------------------- */

#define INSTANCE_OPTIONS(X)                                                                     \
    X(wb_InstanceNorm_options, channels, INT, 1)                                                \
    X(wb_InstanceNorm_options, activation, FUNCTION, 1)                                         \
    X(wb_InstanceNorm_options, affine, BOOL, 1) X(wb_InstanceNorm_options, track_stats, BOOL, 1)\
    X(wb_InstanceNorm_options, eps, REAL, 1) X(wb_InstanceNorm_options, momentum, REAL, 1)      \
    X(wb_InstanceNorm_options, dtype, DTYPE, 1)
static const wb__option instance_table[] = {INSTANCE_OPTIONS(WB__OPTION_ROW)};

/* Updates the running statistics with the means, over the samples, of the mean and the unbiased
 * variance of each channel of a sample.  `each` is the number of elements of such a channel. */
static bool norm_track(wb_layer *l, wb_tensor *x, unsigned axes, int64_t each)
{
    const wb_InstanceNorm_options *o = l->options;
    const double momentum = o->momentum;
    wb_tensor *still = wb__wide(wb_stop_gradient(x));
    wb_tensor *centred = wb_sub(still, wb__mean(still, axes, true));
    wb_tensor *mean = wb__mean(still, axes | 1u, false);
    wb_tensor *var = wb__mean(wb_square(centred), axes | 1u, false);
    return mean && var && !norm_move_running(wb__layer_child(l, NORM_MEAN), mean, momentum, 1) &&
           !norm_move_running(wb__layer_child(l, VAR), var, momentum,
                              (double)each / (double)(each - 1));
}

static wb_tensor *instance_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_InstanceNorm_options *o = l->options;
    wb_tensor *x = inputs[0], *parameter = wb__layer_child(l, o->affine ? NORM_SCALE : NORM_MEAN),
              *y;
    const double eps = o->eps;
    if (!wb__one_input(l, n) || !norm_has_channels("InstanceNorm", x, o->channels)) return NULL;
    if (!wb_is_none(parameter) && (o->affine || !wb__dtype_float((wb_dtype)x->dtype)))
        x = wb__layer_input(l, x, parameter);
    if (!x || !wb__floating("InstanceNorm", x)) return NULL;
    const unsigned axes = ((1u << x->ndim) - 1) & ~3u;
    int64_t each = 1;
    for (int i = 2; i < x->ndim; i++) each *= x->dims[i];
    bool automatic, train = wb__train_mode(l, &automatic);
    if (!train && o->track_stats) {
        y = norm_by_statistics(l, x, eps);
    } else if (each < 2) {
        return wb__fail_null(WB_ERROR_SHAPE, "InstanceNorm: needs more than one value for each "
                             "channel of a sample, got %s", wb_describe(x));
    } else {
        y = norm_scaled(wb__normalise(x, axes, eps), wb__layer_child(l, NORM_SCALE),
                        wb__layer_child(l, NORM_BIAS));
        if (o->track_stats && !norm_track(l, x, axes, each)) return NULL;
    }
    if (automatic && o->track_stats) y = wb__mark_automatic(y, "InstanceNorm");
    return wb__activate(o->activation, y);
}

static void instance_print(const wb_layer *l, wb__text *t)
{
    const wb_InstanceNorm_options *o = l->options;
    wb__text_add(t, "InstanceNorm(%lld", (long long)o->channels);
    wb__print_activation(o->activation, t);
    if (!o->affine) wb__text_add(t, ", affine=false");
    if (l->mode != WB__MODE_AUTO)
        wb__text_add(t, ", active=%s", l->mode == WB__MODE_TRAIN ? "true" : "false");
    wb__text_add(t, ")");
}

WB__PLAIN_LAYER(instancenorm, "InstanceNorm", wb_InstanceNorm_options, instance_table,
                wb_InstanceNorm_with, .call = instance_call, .print = instance_print,
                .torch = &torch_batch);

wb_layer *wb_InstanceNorm_with(const wb_InstanceNorm_options *given)
{
    WB__EDGE;
    const char *what = "InstanceNorm";
    wb_InstanceNorm_options o;
    if (!wb__read_options(what, wb_InstanceNorm_options, &o, given, NULL)) return NULL;
    if (!norm_valid_channels(what, o.channels) || !norm_valid_eps(what, o.eps) ||
        !norm_valid_momentum(what, o.momentum) || !wb__layer_dtype(what, &o.dtype))
        return NULL;
    wb_layer *l = wb__layer_new(&wb__instancenorm_type, &o, 4);
    return norm_put_affine(l, o.affine, o.affine, o.dtype, 1, &o.channels) &&
                   norm_put_statistics(l, o.track_stats, o.dtype, o.channels)
               ? l : NULL;
}

/* ---- GroupNorm ------------------------------------------------------------------------------- */

#define GROUP_OPTIONS(X)                                                                        \
    X(wb_GroupNorm_options, channels, INT, 1) X(wb_GroupNorm_options, groups, INT, 1)           \
    X(wb_GroupNorm_options, activation, FUNCTION, 1) X(wb_GroupNorm_options, affine, BOOL, 1)   \
    X(wb_GroupNorm_options, eps, REAL, 1) X(wb_GroupNorm_options, dtype, DTYPE, 1)
static const wb__option norm_group_table[] = {GROUP_OPTIONS(WB__OPTION_ROW)};

static wb_tensor *norm_group_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_GroupNorm_options *o = l->options;
    wb_tensor *x = inputs[0], *scale = wb__layer_child(l, NORM_SCALE);
    if (!wb__one_input(l, n) || !norm_has_channels("GroupNorm", x, o->channels)) return NULL;
    if (!wb_is_none(scale)) x = wb__layer_input(l, x, scale);
    if (!x || !wb__floating("GroupNorm", x)) return NULL;
    int64_t each = o->channels / o->groups;
    for (int i = 2; i < x->ndim; i++) each *= x->dims[i];
    wb_tensor *y = wb_reshape_array(x, 3, (int64_t[]){x->dims[0], o->groups, each});
    y = wb__normalise(y, 1u << 2, o->eps);
    if (!y) return NULL;
    y = norm_scaled(wb_reshape_array(y, x->ndim, x->dims), scale, wb__layer_child(l, NORM_BIAS));
    return wb__activate(o->activation, y);
}

static void norm_group_print(const wb_layer *l, wb__text *t)
{
    const wb_GroupNorm_options *o = l->options;
    wb__text_add(t, "GroupNorm(%lld, %lld", (long long)o->channels, (long long)o->groups);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->affine ? ")" : ", affine=false)");
}

static const wb__torch_kind torch_scaled = {.children = norm_torch_rows, .n_children = 1};

WB__PLAIN_LAYER(groupnorm, "GroupNorm", wb_GroupNorm_options, norm_group_table, wb_GroupNorm_with,
                .call = norm_group_call, .print = norm_group_print, .torch = &torch_scaled);

wb_layer *wb_GroupNorm_with(const wb_GroupNorm_options *given)
{
    WB__EDGE;
    wb_GroupNorm_options o;
    if (!wb__read_options("GroupNorm", wb_GroupNorm_options, &o, given, NULL)) return NULL;
    if (!norm_valid_channels("GroupNorm", o.channels)) return NULL;
    if (o.groups < 1 || o.channels % o.groups)
        return wb__fail_null(WB_ERROR_ARGUMENT, "GroupNorm: %lld groups do not divide %lld "
                             "channels", (long long)o.groups, (long long)o.channels);
    if (!norm_valid_eps("GroupNorm", o.eps) || !wb__layer_dtype("GroupNorm", &o.dtype))
        return NULL;
    wb_layer *l = wb__layer_new(&wb__groupnorm_type, &o, 2);
    return norm_put_affine(l, o.affine, o.affine, o.dtype, 1, &o.channels) ? l : NULL;
}

/* ---- LayerNorm ------------------------------------------------------------------------------- */

#define LAYER_OPTIONS(X)                                                                        \
    X(wb_LayerNorm_options, shape, INTS, 4) X(wb_LayerNorm_options, activation, FUNCTION, 1)    \
    X(wb_LayerNorm_options, affine, BOOL, 1) X(wb_LayerNorm_options, eps, REAL, 1)              \
    X(wb_LayerNorm_options, dtype, DTYPE, 1) X(wb_LayerNorm_options, bias, BOOL, 1)
static const wb__option norm_layer_table[] = {LAYER_OPTIONS(WB__OPTION_ROW)};

void wb__print_shape(const int64_t *shape, wb__text *t)
{
    for (int i = 0; i < shape[0]; i++)
        wb__text_add(t, i ? ", %lld" : "%lld", (long long)shape[1 + i]);
}

/* Whether the last sizes of x are `shape`. */
static bool norm_has_shape(const char *what, const wb_tensor *x, const int64_t *shape)
{
    const int axes = (int)shape[0];
    bool fits = x->ndim >= axes;
    for (int i = 0; fits && i < axes; i++) fits = x->dims[x->ndim - axes + i] == shape[1 + i];
    if (fits) return true;
    wb__text t = {0};
    wb__print_shape(shape, &t);
    wb__fail(WB_ERROR_SHAPE, "%s: expects the last sizes to be %s, got %s", what,
             t.text ? t.text : "", wb_describe(x));
    wb__free(wb__text_take(&t));
    return false;
}

bool wb__read_shape(const char *what, const wb__given *g, int64_t *shape, const int64_t **passed)
{
    wb__sizes_take(shape, passed);
    if (!wb__ints_read(what, g, "shape", 0, shape, 4)) return false;
    for (int i = 0; i < shape[0] || i < 1; i++)
        if (shape[1 + i] < 1)
            return wb__fail(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld", what,
                            (long long)shape[1 + i]), false;
    return true;
}

static wb_tensor *norm_layer_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_LayerNorm_options *o = l->options;
    wb_tensor *x = inputs[0];
    const int axes = (int)o->shape[0];
    if (!wb__one_input(l, n) || !wb__floating("LayerNorm", x) ||
        !norm_has_shape("LayerNorm", x, o->shape))
        return NULL;
    wb_tensor *scale = wb__layer_child(l, NORM_SCALE), *bias = wb__layer_child(l, NORM_BIAS);
    if (!wb_is_none(scale)) x = wb__layer_input(l, x, scale);
    const unsigned last = ((1u << axes) - 1) << (x->ndim - axes);
    wb_tensor *y = wb__normalise(x, last, o->eps);
    if (!wb_is_none(scale)) y = wb_mul(y, scale);
    if (!wb_is_none(bias)) y = wb_add(y, bias);
    return wb__activate(o->activation, y);
}

/* Prints the layer as Name(shape, activation, affine=false), or with bias=false in its place. */
static void print_shaped(const wb_layer *l, const int64_t *shape, wb_function activation,
                         bool affine, bool bias, wb__text *t)
{
    wb__text_add(t, "%s(", l->type->name);
    wb__print_shape(shape, t);
    wb__print_activation(activation, t);
    wb__text_add(t, !affine ? ", affine=false)" : bias ? ")" : ", bias=false)");
}

static void norm_layer_print(const wb_layer *l, wb__text *t)
{
    const wb_LayerNorm_options *o = l->options;
    print_shaped(l, o->shape, o->activation, o->affine, o->bias, t);
}

WB__PLAIN_LAYER(layernorm, "LayerNorm", wb_LayerNorm_options, norm_layer_table, wb_LayerNorm_with,
                .call = norm_layer_call, .print = norm_layer_print, .torch = &torch_scaled);

wb_layer *wb_LayerNorm_with(const wb_LayerNorm_options *given)
{
    WB__EDGE;
    wb_LayerNorm_options o;
    wb__given g;
    if (!wb__read_options("LayerNorm", wb_LayerNorm_options, &o, given, &g)) return NULL;
    if (!wb__read_shape("LayerNorm", &g, o.shape, &o.sizes_) ||
        !norm_valid_eps("LayerNorm", o.eps) || !wb__layer_dtype("LayerNorm", &o.dtype))
        return NULL;
    wb_layer *l = wb__layer_new(&wb__layernorm_type, &o, 2);
    return norm_put_affine(l, o.affine, o.affine && o.bias, o.dtype, (int)o.shape[0], o.shape + 1)
               ? l : NULL;
}

/* ---- RMSNorm --------------------------------------------------------------------------------- */

#define RMS_OPTIONS(X)                                                                          \
    X(wb_RMSNorm_options, shape, INTS, 4) X(wb_RMSNorm_options, activation, FUNCTION, 1)        \
    X(wb_RMSNorm_options, affine, BOOL, 1) X(wb_RMSNorm_options, eps, REAL, 1)                  \
    X(wb_RMSNorm_options, dtype, DTYPE, 1)
static const wb__option rms_table[] = {RMS_OPTIONS(WB__OPTION_ROW)};

/* Returns the distance from 1 to the next number of the dtype. */
static double rms_epsilon_of(wb_dtype dtype)
{
    return dtype == WB_F64 ? 0x1p-52 : dtype == WB_F16 ? 0x1p-10 : dtype == WB_BF16 ? 0x1p-7
                                                                                   : 0x1p-23;
}

static wb_tensor *rms_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_RMSNorm_options *o = l->options;
    wb_tensor *x = inputs[0], *scale = wb__layer_child(l, NORM_SCALE);
    const int axes = (int)o->shape[0];
    if (!wb__one_input(l, n) || !wb__floating("RMSNorm", x) ||
        !norm_has_shape("RMSNorm", x, o->shape))
        return NULL;
    if (!wb_is_none(scale)) x = wb__layer_input(l, x, scale);
    const wb_dtype dtype = (wb_dtype)x->dtype;
    const double eps = wb__or(o->eps, rms_epsilon_of(dtype));
    const unsigned last = ((1u << axes) - 1) << (x->ndim - axes);
    wb_tensor *wide = wb__wide(x);
    wb_tensor *power = wb_add(wb__mean(wb_square(wide), last, true), wb__number_of(eps));
    wb_tensor *y = wb__as(wb_mul(wide, wb_rsqrt(power)), dtype);
    return wb__activate(o->activation, wb_is_none(scale) ? y : wb_mul(y, scale));
}

static void rms_print(const wb_layer *l, wb__text *t)
{
    const wb_RMSNorm_options *o = l->options;
    print_shaped(l, o->shape, o->activation, o->affine, true, t);
}

WB__PLAIN_LAYER(rmsnorm, "RMSNorm", wb_RMSNorm_options, rms_table, wb_RMSNorm_with,
                .call = rms_call, .print = rms_print, .torch = &torch_scaled);

wb_layer *wb_RMSNorm_with(const wb_RMSNorm_options *given)
{
    WB__EDGE;
    wb_RMSNorm_options o;
    wb__given g;
    if (!wb__read_options("RMSNorm", wb_RMSNorm_options, &o, given, &g)) return NULL;
    if (!wb__read_shape("RMSNorm", &g, o.shape, &o.sizes_) ||
        !norm_valid_eps("RMSNorm", wb__or(o.eps, 0)) || !wb__layer_dtype("RMSNorm", &o.dtype))
        return NULL;
    wb_layer *l = wb__layer_new(&wb__rmsnorm_type, &o, 1);
    return wb__layer_put_parameter(l, NORM_SCALE, "scale", o.affine, wb_init_ones, o.dtype,
                                   (int)o.shape[0], o.shape + 1)
               ? l : NULL;
}
