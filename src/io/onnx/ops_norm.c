/* Normalisations of ONNX.  Statistics of f16 and bf16 are computed in f32. */
#include "engine/ops/op.h"
#include "io/onnx/ops_common.h"

/* Returns v [C] as [1, C, 1, ...], which broadcasts over x. */
static wb_tensor *onnx_norm_per_channel(wb_tensor *v, const wb_tensor *x)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == 1 ? x->dims[1] : 1;
    return v ? wb_reshape_array(v, x->ndim, dims) : NULL;
}

/* Whether input 0 is floating with at least `least` axes. */
static bool onnx_norm_is_input(const wb__onnx_call *c, int least)
{
    const wb_tensor *x = c->in[0];
    if (wb__dtype_float((wb_dtype)x->dtype) && x->ndim >= least) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its input is %s; a floating one with at least "
                           "%d axes is done", wb_describe(x), least);
}

/* Whether input i has one number for each channel of input 0. */
static bool onnx_norm_has_channels(const wb__onnx_call *c, int i)
{
    const wb_tensor *x = c->in[0], *v = c->in[i];
    if (v->ndim == 1 && v->dims[0] == x->dims[1]) return true;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s; %s has %lld channels", i,
                           wb_describe(v), wb_describe(x), (long long)x->dims[1]);
}

static double onnx_norm_epsilon(const wb__onnx_call *c) { return wb__onnx_real(c, "epsilon"); }

/* Whether the attribute stash_type is the type of the statistics: 1, f32, or a wider one. */
static bool onnx_norm_is_stashed_wide(const wb__onnx_call *c)
{
    const int64_t type = wb__onnx_int(c, "stash_type");
    if (type == WB__ONNX_FLOAT) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "stash_type is %s",
                           wb__onnx_type_name((wb__onnx_type)type));
}

/* ---- BatchNormalization ---------------------------------------------------------------------- */

/* Computes BatchNormalization with the running statistics: x·factor + shift, where both have a
 * number for each channel.  Before opset 7 is_test is needed; before opset 9 `spatial` may be 0,
 * for statistics of each element. */
bool wb__onnx_batch_normalization(wb__onnx_call *c)
{
    if (!onnx_norm_is_input(c, 2)) return false;
    if (!wb__onnx_int(c, "spatial"))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "spatial 0");
    bool trains = wb__onnx_int(c, "training_mode");
    trains |= c->node->opset < 7 && !wb__onnx_int(c, "is_test");
    for (int i = 1; i < c->node->n_out; i++) trains |= wb__onnx_wants(c, i);
    if (trains)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "training_mode: the model is exported for "
                               "training; export it in test mode");
    for (int i = 1; i < 5; i++)
        if (!onnx_norm_has_channels(c, i)) return false;
    wb_tensor *x = c->in[0], *v[5];
    const wb_dtype dtype = (wb_dtype)x->dtype, t = wb__computed_in(dtype);
    for (int i = 1; i < 5; i++) v[i] = wb__as(c->in[i], t);
    wb_tensor *factor = wb_rsqrt(wb_add(v[4], wb__number_of(onnx_norm_epsilon(c))));
    factor = wb_mul(v[1], factor);
    wb_tensor *shift = wb_sub(v[2], wb_mul(v[3], factor));
    wb_tensor *y = wb_mul(wb__as(x, t), onnx_norm_per_channel(factor, x));
    return wb__onnx_give(c, wb__as(wb_add(y, onnx_norm_per_channel(shift, x)), dtype));
}

/* ---- by the statistics of x ------------------------------------------------------------------ */

bool wb__onnx_instance_normalization(wb__onnx_call *c)
{
    if (!onnx_norm_is_input(c, 3) || !onnx_norm_has_channels(c, 1) || !onnx_norm_has_channels(c, 2))
        return false;
    wb_tensor *x = c->in[0];
    wb_tensor *y = wb__normalise(x, ((1u << x->ndim) - 1) & ~3u, onnx_norm_epsilon(c));
    y = wb_mul(y, onnx_norm_per_channel(c->in[1], x));
    return wb__onnx_give(c, wb_add(y, onnx_norm_per_channel(c->in[2], x)));
}

/* Sets *mask to the axes from the attribute on. */
static bool onnx_norm_read_last_axes(wb__onnx_call *c, unsigned *mask)
{
    const wb_tensor *x = c->in[0];
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    *mask = axis < 0 ? 0 : ((1u << x->ndim) - 1) & ~((1u << axis) - 1);
    return axis >= 0;
}

/* Gives the node y, to which scale and bias were broadcast, if y still has the shape of x. */
static bool onnx_norm_give_as(wb__onnx_call *c, const wb_tensor *x, wb_tensor *y)
{
    if (y && !wb__same_dims(x, y))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its scale or bias does not broadcast to %s",
                               wb_describe(x));
    return wb__onnx_give(c, y);
}

bool wb__onnx_layer_normalization(wb__onnx_call *c)
{
    unsigned mask;
    if (!onnx_norm_is_input(c, 1) || !onnx_norm_is_stashed_wide(c) ||
        !onnx_norm_read_last_axes(c, &mask))
        return false;
    wb_tensor *x = c->in[0], *bias = wb__onnx_in(c, 2);
    const double eps = onnx_norm_epsilon(c);
    if (wb__onnx_wants(c, 1) || wb__onnx_wants(c, 2)) {
        wb_tensor *wide = wb__wide(x), *mean = wb__mean(wide, mask, true);
        wb_tensor *variance = wb__mean(wb_square(wb_sub(wide, mean)), mask, true);
        wb_tensor *factor = wb_rsqrt(wb_add(variance, wb__number_of(eps)));
        if (wb__onnx_wants(c, 1) && !(c->out[1] = wb__as(mean, WB_F32))) return false;
        if (wb__onnx_wants(c, 2) && !(c->out[2] = wb__as(factor, WB_F32))) return false;
    }
    wb_tensor *y = wb_mul(wb__normalise(x, mask, eps), c->in[1]);
    return onnx_norm_give_as(c, x, bias ? wb_add(y, bias) : y);
}

bool wb__onnx_rms_normalization(wb__onnx_call *c)
{
    unsigned mask;
    if (!onnx_norm_is_input(c, 1) || !onnx_norm_is_stashed_wide(c) ||
        !onnx_norm_read_last_axes(c, &mask))
        return false;
    wb_tensor *x = c->in[0], *wide = wb__wide(x);
    wb_tensor *mean = wb__mean(wb_square(wide), mask, true);
    wb_tensor *y = wb_mul(wide, wb_rsqrt(wb_add(mean, wb__number_of(onnx_norm_epsilon(c)))));
    return onnx_norm_give_as(c, x, wb_mul(wb__as(y, (wb_dtype)x->dtype), c->in[1]));
}

/* Computes GroupNormalization.  Scale and bias have a number for each group before opset 21, and
 * for each channel since then. */
bool wb__onnx_group_normalization(wb__onnx_call *c)
{
    if (!onnx_norm_is_input(c, 2) || !onnx_norm_is_stashed_wide(c)) return false;
    wb_tensor *x = c->in[0], *scale = c->in[1], *bias = c->in[2];
    const int64_t groups = wb__onnx_int(c, "num_groups"), channels = x->dims[1];
    const bool by_channel = c->node->opset >= 21;
    if (groups < 1 || channels % groups || !x->size)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%lld groups of the channels of %s",
                               (long long)groups, wb_describe(x));
    for (int i = 1; i < 3; i++)
        if (c->in[i]->ndim != 1 || c->in[i]->dims[0] != (by_channel ? channels : groups))
            return wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s; opset %lld has a number for "
                                   "each of %lld %s", i, wb_describe(c->in[i]),
                                   (long long)c->node->opset,
                                   (long long)(by_channel ? channels : groups),
                                   by_channel ? "channels" : "groups");
    const int64_t three[3] = {x->dims[0], groups, x->size / (x->dims[0] * groups)};
    wb_tensor *y = wb__normalise(wb_reshape_array(x, 3, three), 1u << 2, onnx_norm_epsilon(c));
    if (by_channel) {
        y = y ? wb_reshape_array(y, x->ndim, x->dims) : NULL;
        y = wb_mul(y, onnx_norm_per_channel(scale, x));
        return wb__onnx_give(c, wb_add(y, onnx_norm_per_channel(bias, x)));
    }
    y = wb_add(wb_mul(y, wb_unsqueeze(scale, 1)), wb_unsqueeze(bias, 1));
    return wb__onnx_give(c, y ? wb_reshape_array(y, x->ndim, x->dims) : NULL);
}

/* Computes (x - mean) / (deviation + 1e-9). */
bool wb__onnx_mean_variance_normalization(wb__onnx_call *c)
{
    static const int64_t otherwise[] = {0, 2, 3};
    const int64_t *axes = otherwise;
    unsigned mask = 0;
    if (!onnx_norm_is_input(c, 1)) return false;
    wb_tensor *x = c->in[0];
    int n = wb__onnx_ints(c, "axes", &axes);
    if (n < 0) n = 3, axes = otherwise;
    for (int i = 0; i < n; i++) {
        const int axis = wb__onnx_axis(c, axes[i], x->ndim);
        if (axis < 0) return false;
        mask |= 1u << axis;
    }
    wb_tensor *wide = wb__wide(x), *centred = wb_sub(wide, wb__mean(wide, mask, true));
    wb_tensor *deviation = wb__root_of(wb__mean(wb_square(centred), mask, true));
    wb_tensor *y = wb_div(centred, wb_add(deviation, wb__number_of(1e-9)));
    return wb__onnx_give(c, wb__as(y, (wb_dtype)x->dtype));
}

wb_tensor *wb__onnx_over_norm(wb_tensor *x, int p, int axis)
{
    if (!x) return NULL;
    wb_tensor *norm = wb__reduce(WB__OP_sum, p == 1 ? wb_abs(x) : wb_square(x), 1u << axis, true);
    if (p == 2) norm = wb__root_of(norm);
    return wb_div(x, wb_where(wb_eq(norm, wb__number_of(0)), wb__number_of(1), norm));
}

bool wb__onnx_lp_normalization(wb__onnx_call *c)
{
    if (!onnx_norm_is_input(c, 1)) return false;
    wb_tensor *x = c->in[0], *wide = wb__wide(x);
    const int64_t p = wb__onnx_int(c, "p");
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    if (p != 1 && p != 2)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "p is %lld; it is 1 or 2", (long long)p);
    if (axis < 0) return false;
    return wb__onnx_give(c, wb__as(wb__onnx_over_norm(wide, (int)p, axis), (wb_dtype)x->dtype));
}

/* Computes LRN: x / (bias + alpha / size · sum)^beta, with the sum of the squares of `size`
 * channels around each.  The channels are pooled as the rows of pictures, by windows that end where
 * no channel is left. */
bool wb__onnx_lrn(wb__onnx_call *c)
{
    if (!onnx_norm_is_input(c, 3)) return false;
    wb_tensor *x = c->in[0], *wide = wb__wide(x);
    const double alpha = wb__onnx_real(c, "alpha"), beta = wb__onnx_real(c, "beta");
    const int64_t size = wb__onnx_int(c, "size"), channels = x->dims[1];
    if (size < 1 || size > INT32_MAX || !x->size)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "size is %lld, of %s", (long long)size,
                               wb_describe(x));
    const int64_t rows[4] = {x->dims[0], 1, channels, x->size / (x->dims[0] * channels)};
    const int64_t before = WB__MIN((size - 1) / 2, channels - 1);
    const int64_t after = WB__MIN(size - 1 - (size - 1) / 2, channels - 1);
    const int64_t window = before + 1 + after;
    wb_pool_options o = WB__OPTIONS(wb_pool_options);
    wb_ints_set(o.window, 2, (int64_t[]){window, 1});
    wb_ints_set(o.stride, 2, (int64_t[]){1, 1});
    wb_ints_set(o.pad, 4, (int64_t[]){before, after, 0, 0});
    wb_tensor *squares = wb_reshape_array(wb_square(wide), 4, rows);
    wb_tensor *mean = wb_meanpool_with(squares, &o);
    const double share = (double)window / (double)size;
    wb_tensor *sum = wb_add(wb_mul(mean, wb__number_of(alpha * share)),
                            wb__number_of(wb__onnx_real(c, "bias")));
    wb_tensor *factor = wb_pow(sum, wb__number_of(-beta));
    factor = factor ? wb_reshape_array(factor, x->ndim, x->dims) : NULL;
    return wb__onnx_give(c, wb__as(wb_mul(wide, factor), (wb_dtype)x->dtype));
}
