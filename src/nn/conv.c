/* Conv is the cross-correlation over the axes of space, or with .flip the true convolution.
 * ConvTranspose is the adjoint of Conv. */
#include "nn/window.h"

#include <string.h>

#define CONV_LAYER_OPTIONS(X)                                                                   \
    X(wb_Conv_options, in, INT, 1) X(wb_Conv_options, out, INT, 1)                              \
    X(wb_Conv_options, kernel, INTS, 0) X(wb_Conv_options, activation, FUNCTION, 1)             \
    X(wb_Conv_options, stride, INTS, 0) X(wb_Conv_options, pad, INTS, 0)                        \
    X(wb_Conv_options, dilation, INTS, 0) X(wb_Conv_options, groups, INT, 1)                    \
    X(wb_Conv_options, same, BOOL, 1) X(wb_Conv_options, flip, BOOL, 1)                         \
    X(wb_Conv_options, bias, BOOL, 1) X(wb_Conv_options, init, INITIALISER, 1)                  \
    X(wb_Conv_options, dtype, DTYPE, 1)
static const wb__option conv_layer_table[] = {
    CONV_LAYER_OPTIONS(WB__OPTION_ROW) WB__OPTION_ROW(wb_Conv_options, pad_mode, INT, 1)};
static const wb__option transpose_table[] = {
    CONV_LAYER_OPTIONS(WB__OPTION_ROW) WB__OPTION_ROW(wb_Conv_options, outpad, INTS, 0)};
extern const wb__layer_type wb__conv_type, wb__conv_transpose_type, wb__conv1d_type,
    wb__conv_transpose1d_type;

static bool conv_layer_transposes(const wb__layer_type *type)
{
    return type == &wb__conv_transpose_type || type == &wb__conv_transpose1d_type;
}

/* Sets `pad`.  With .same the total padding of an axis is the extent of the dilated kernel minus
 * 1.  For a ConvTranspose the total is the extent minus the stride, but at least 0.  If the total
 * is odd, the end of the axis gets one more row or column of padding than the start. */
int wb__padding(const wb__layer_type *type, const void *options, int64_t *pad)
{
    const int64_t *list = wb__layer_option(type, options, "pad");
    memcpy(pad, list + 1, (size_t)list[0] * sizeof *pad);
    const bool transpose = conv_layer_transposes(type);
    const bool conv = transpose || type == &wb__conv_type || type == &wb__conv1d_type;
    const wb_Conv_options *o = conv ? options : NULL;
    for (int a = 0; o && o->same && a < o->kernel[0]; a++) {
        const int64_t reach = (o->kernel[1 + a] - 1) * o->dilation[1 + a];
        const int64_t total = transpose ? WB__MAX(reach + 1 - o->stride[1 + a], 0) : reach;
        pad[2 * a] = total / 2;
        pad[2 * a + 1] = total - total / 2;
    }
    return (int)list[0] / 2;
}

typedef wb_tensor *operation(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *s);

/* Returns the output of a Conv by the operation f, before the activation. */
static wb_tensor *conv_layer_call_with(wb_layer *l, int n, wb_tensor *const *inputs, operation *f)
{
    const wb_Conv_options *o = l->options;
    wb_tensor *x = inputs[0], *weight = wb__layer_child(l, 0);
    const int axes = (int)o->kernel[0];
    if (!wb__one_input(l, n) || !wb__window_fits(l->type->name, x, o->kernel, o->in)) return NULL;
    int64_t pad[6];
    wb__padding(l->type, o, pad);
    wb_conv_options s = WB__OPTIONS(wb_conv_options, .groups = o->groups);
    x = wb__layer_input(l, x, weight);
    if (o->pad_mode != WB_PAD_CONSTANT) {
        const wb_pad_options mode = WB__OPTIONS(wb_pad_options, .mode = (wb_pad_mode)o->pad_mode);
        for (int a = 0; x && a < axes; a++)
            x = wb_pad_with(x, 2 + a, pad[2 * a], pad[2 * a + 1], &mode);
        memset(pad, 0, sizeof pad);
    }
    wb_ints_set(s.stride, axes, o->stride + 1);
    wb_ints_set(s.dilation, axes, o->dilation + 1);
    wb_ints_set(s.outpad, axes, o->outpad + 1);
    wb_ints_set(s.pad, 2 * axes, pad);
    for (int a = 0; o->flip && weight && a < axes; a++) weight = wb_flip(weight, 2 + a);
    return wb__activate(o->activation, f(x, weight, wb__layer_child(l, 1), &s));
}

static wb_tensor *conv_layer_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    return conv_layer_call_with(l, n, inputs, wb_conv_with);
}

static wb_tensor *conv_layer_call_transpose(wb_layer *l, int n, wb_tensor *const *inputs)
{
    return conv_layer_call_with(l, n, inputs, wb_conv_transpose_with);
}

static const char *const pad_modes[] = {
    [WB_PAD_CONSTANT] = "zeros", [WB_PAD_REFLECT] = "reflect", [WB_PAD_REPLICATE] = "replicate",
    [WB_PAD_SYMMETRIC] = "symmetric", [WB_PAD_CIRCULAR] = "circular"};

static void conv_layer_print(const wb_layer *l, wb__text *t)
{
    const wb_Conv_options *o = l->options;
    wb__text_add(t, "%s(", l->type->name);
    wb__print_window(o->kernel, t);
    wb__text_add(t, ", %lld => %lld", (long long)o->in, (long long)o->out);
    wb__print_activation(o->activation, t);
    if (o->same) wb__text_add(t, ", pad=same");
    else wb__print_pad(o->pad, t);
    if (o->pad_mode) wb__text_add(t, ", pad_mode=%s", pad_modes[o->pad_mode]);
    wb__print_axes(", stride=", o->stride, 1, t);
    wb__print_axes(", dilation=", o->dilation, 1, t);
    wb__print_axes(", outpad=", o->outpad, 0, t);
    if (o->groups != 1) wb__text_add(t, ", groups=%lld", (long long)o->groups);
    if (o->flip) wb__text_add(t, ", flip=true");
    wb__text_add(t, o->bias ? ")" : ", bias=false)");
}

#define CONV_LAYER_CONV(id, Name, table, caller)                                                \
    WB__PLAIN_LAYER(id, #Name, wb_Conv_options, table, wb_##Name##_with,                        \
                    .call = caller, .print = conv_layer_print);
CONV_LAYER_CONV(conv, Conv, conv_layer_table, conv_layer_call)
CONV_LAYER_CONV(conv1d, Conv1d, conv_layer_table, conv_layer_call)
CONV_LAYER_CONV(conv_transpose, ConvTranspose, transpose_table, conv_layer_call_transpose)
CONV_LAYER_CONV(conv_transpose1d, ConvTranspose1d, transpose_table, conv_layer_call_transpose)

static bool conv_layer_check(const char *what, wb_Conv_options *o, const wb__given *g, bool one)
{
    const int axes = wb__window_axes(what, g, "kernel", 2, o->kernel, one);
    if (!axes || !wb__axes(what, g, "stride", o->stride, axes, 1) ||
        !wb__axes(what, g, "dilation", o->dilation, axes, 1) ||
        !wb__sliding_axes(what, g, "outpad", -1, o->outpad, axes, 0) ||
        !wb__pad(what, g, o->pad, axes))
        return false;
    bool padded = false;
    for (int i = 1; i <= o->pad[0]; i++) padded = padded || o->pad[i];
    if (o->same && padded)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .same and .pad exclude each other", what), false;
    if (o->pad_mode < 0 || o->pad_mode >= (int64_t)WB__COUNT(pad_modes))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .pad_mode is %lld; it is WB_PAD_CONSTANT, "
                        "WB_PAD_REFLECT, ...", what, (long long)o->pad_mode), false;
    if (o->in < 1 || o->out < 1)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld => %lld", what,
                        (long long)o->in, (long long)o->out), false;
    if (o->groups < 1 || o->in % o->groups || o->out % o->groups)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %lld groups do not divide %lld => %lld", what,
                        (long long)o->groups, (long long)o->in, (long long)o->out), false;
    return wb__layer_dtype(what, &o->dtype);
}

/* Returns a new layer whose weight is [first, second / groups, kernel...]. */
static wb_layer *conv_layer_of(const wb__layer_type *type, const wb_Conv_options *o, int64_t first,
                               int64_t second)
{
    wb_initializer init = o->init ? o->init : wb_glorot_uniform;
    int64_t dims[5] = {first, second / o->groups};
    const int axes = (int)o->kernel[0];
    memcpy(dims + 2, o->kernel + 1, (size_t)axes * sizeof *dims);
    wb_layer *l = wb__layer_new(type, o, 2);
    return wb__layer_put_parameter(l, 0, "weight", true, init, o->dtype, 2 + axes, dims) &&
                   wb__layer_put_parameter(l, 1, "bias", o->bias, wb_init_zeros, o->dtype, 1,
                                           &o->out)
               ? l : NULL;
}

static bool conv_layer_read_options(const char *what, wb_Conv_options *o,
                                    const wb_Conv_options *given, bool depthwise, bool one)
{
    wb__given g;
    if (!wb__read_options(what, wb_Conv_options, o, given, &g)) return false;
    wb__sizes_take(o->kernel, &o->sizes_);
    if (depthwise && o->groups != 1)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: each channel is a group: .groups is not an option",
                        what), false;
    if (depthwise) o->groups = o->in;
    return conv_layer_check(what, o, &g, one);
}

static wb_layer *conv_layer_new(const wb__layer_type *type, const wb_Conv_options *given,
                                bool depthwise)
{
    wb_Conv_options o;
    const char *what = depthwise ? "DepthwiseConv" : type->name;
    if (!conv_layer_read_options(what, &o, given, depthwise, type == &wb__conv1d_type)) return NULL;
    for (int a = 1; a <= o.outpad[0]; a++)
        if (o.outpad[a])
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: only ConvTranspose has .outpad", what);
    return conv_layer_of(type, &o, o.out, o.in);
}

wb_layer *wb_Conv_with(const wb_Conv_options *o)
{
    WB__EDGE;
    return conv_layer_new(&wb__conv_type, o, false);
}
wb_layer *wb_Conv1d_with(const wb_Conv_options *o)
{
    WB__EDGE;
    return conv_layer_new(&wb__conv1d_type, o, false);
}
wb_layer *wb_DepthwiseConv_with(const wb_Conv_options *o)
{
    WB__EDGE;
    return conv_layer_new(&wb__conv_type, o, true);
}

static wb_layer *conv_layer_new_transpose(const wb__layer_type *type, const wb_Conv_options *given)
{
    wb_Conv_options o;
    const char *what = type->name;
    if (!conv_layer_read_options(what, &o, given, false, type == &wb__conv_transpose1d_type))
        return NULL;
    if (o.pad_mode)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: only Conv has .pad_mode", what);
    for (int a = 1; a <= o.outpad[0]; a++)
        if (o.outpad[a] < 0 || o.outpad[a] >= o.stride[a])
            return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .outpad has %lld; it is at least 0 and "
                                 "less than the stride", what, (long long)o.outpad[a]);
    return conv_layer_of(type, &o, o.in, o.out);
}

wb_layer *wb_ConvTranspose_with(const wb_Conv_options *o)
{
    WB__EDGE;
    return conv_layer_new_transpose(&wb__conv_transpose_type, o);
}
wb_layer *wb_ConvTranspose1d_with(const wb_Conv_options *o)
{
    WB__EDGE;
    return conv_layer_new_transpose(&wb__conv_transpose1d_type, o);
}
