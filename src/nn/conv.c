/* Conv is the cross-correlation over the last two axes, or with .flip the true convolution.
 * ConvTranspose is the adjoint of Conv. */
#include "nn/window.h"

#include <string.h>

#define OPTIONS(X)                                                                              \
    X(wb_Conv_options, in, INT, 1) X(wb_Conv_options, out, INT, 1)                              \
    X(wb_Conv_options, kernel, INTS, 2) X(wb_Conv_options, activation, FUNCTION, 1)              \
    X(wb_Conv_options, stride, INTS, 2) X(wb_Conv_options, pad, INTS, 4)                          \
    X(wb_Conv_options, dilation, INTS, 2) X(wb_Conv_options, groups, INT, 1)                     \
    X(wb_Conv_options, same, BOOL, 1) X(wb_Conv_options, flip, BOOL, 1)                         \
    X(wb_Conv_options, no_bias, BOOL, 1) X(wb_Conv_options, init, INITIALISER, 1)               \
    X(wb_Conv_options, dtype, DTYPE, 1)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};
static const wb__option transpose_table[] = {
    OPTIONS(WB__OPTION_ROW) WB__OPTION_ROW(wb_Conv_options, outpad, INTS, 2)};
extern const wb__layer_type wb__conv_type, wb__conv_transpose_type;

/* With .same the total padding of an axis is the extent of the dilated kernel minus 1. For a
 * ConvTranspose the total is the extent minus the stride, but at least 0. If the total is odd, the
 * end of the axis gets one more row or column of padding than the start. */
void wb__padding(const wb__layer_type *type, const void *options, int64_t *pad)
{
    const int64_t *list = wb__layer_option(type, options, "pad");
    memcpy(pad, list + 1, 4 * sizeof *pad);
    const bool transpose = type == &wb__conv_transpose_type;
    const wb_Conv_options *o = type == &wb__conv_type || transpose ? options : NULL;
    for (int a = 0; o && o->same && a < 2; a++) {
        const int64_t reach = (o->kernel[1 + a] - 1) * o->dilation[1 + a];
        const int64_t total = transpose ? WB__MAX(reach + 1 - o->stride[1 + a], 0) : reach;
        pad[2 * a] = total / 2;
        pad[2 * a + 1] = total - total / 2;
    }
}

typedef wb_tensor *operation(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *s);

static wb_tensor *call_with(wb_layer *l, int n, wb_tensor *const *inputs, operation *f)
{
    const wb_Conv_options *o = l->options;
    wb_tensor *x = inputs[0], *weight = wb__layer_child(l, 0);
    if (!wb__one_input(l, n)) return NULL;
    if (x->ndim != 4 || x->dims[1] != o->in)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: expects [N,%lld,H,W], got %s", l->type->name,
                             (long long)o->in, wb_describe(x));
    int64_t pad[4];
    wb__padding(l->type, o, pad);
    wb_conv_options s = {.size = sizeof s, .groups = o->groups};
    wb_ints_set(s.stride, 2, o->stride + 1);
    wb_ints_set(s.dilation, 2, o->dilation + 1);
    wb_ints_set(s.outpad, 2, o->outpad + 1);
    wb_ints_set(s.pad, 4, pad);
    x = wb__layer_input(l, x, weight);
    if (o->flip) weight = wb_flip(wb_flip(weight, 2), 3);
    return wb__activate(o->activation, f(x, weight, wb__layer_child(l, 1), &s));
}

static wb_tensor *call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    return call_with(l, n, inputs, wb_conv_with);
}

static wb_tensor *call_transpose(wb_layer *l, int n, wb_tensor *const *inputs)
{
    return call_with(l, n, inputs, wb_conv_transpose_with);
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Conv_options *o = l->options;
    wb__text_add(t, "%s((%lld, %lld), %lld => %lld", l->type->name, (long long)o->kernel[1],
                 (long long)o->kernel[2], (long long)o->in, (long long)o->out);
    wb__print_activation(o->activation, t);
    if (o->same) wb__text_add(t, ", pad=same");
    else wb__print_pad(o->pad + 1, t);
    wb__print_pair(", stride=", o->stride + 1, 1, t);
    wb__print_pair(", dilation=", o->dilation + 1, 1, t);
    if (o->outpad[1] || o->outpad[2])
        wb__text_add(t, ", outpad=(%lld, %lld)", (long long)o->outpad[1],
                     (long long)o->outpad[2]);
    if (o->groups != 1) wb__text_add(t, ", groups=%lld", (long long)o->groups);
    if (o->flip) wb__text_add(t, ", flip=true");
    wb__text_add(t, o->no_bias ? ", bias=false)" : ")");
}

WB__PLAIN_LAYER(conv, "Conv", wb_Conv_options, option_table, wb_Conv_with,
                .call = call, .print = print);

WB__PLAIN_LAYER(conv_transpose, "ConvTranspose", wb_Conv_options, transpose_table,
                wb_ConvTranspose_with, .call = call_transpose, .print = print);

static bool check(const char *what, wb_Conv_options *o, const wb__given *g)
{
    o->groups = wb__int_option(g, "groups", -1, o->groups, 1);
    if (!wb__pair(what, g, "kernel", 2, o->kernel, 0) ||
        !wb__pair(what, g, "stride", -1, o->stride, 1) ||
        !wb__pair(what, g, "dilation", -1, o->dilation, 1) ||
        !wb__sliding_pair(what, g, "outpad", -1, o->outpad, 0, 0) ||
        !wb__pad(what, g, o->pad))
        return false;
    const int64_t *pad = o->pad + 1;
    if (o->same && (pad[0] || pad[1] || pad[2] || pad[3]))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .same and .pad exclude each other",
                        what),
               false;
    if (o->in < 1 || o->out < 1)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld => %lld", what,
                        (long long)o->in, (long long)o->out),
               false;
    if (o->groups < 1 || o->in % o->groups || o->out % o->groups)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %lld groups do not divide %lld => %lld", what,
                        (long long)o->groups, (long long)o->in, (long long)o->out),
               false;
    return wb__layer_dtype(what, &o->dtype);
}

/* Makes a layer whose weight is [first, second / groups, kernel height, kernel width]. */
static wb_layer *layer_of(const wb__layer_type *type, const wb_Conv_options *o, int64_t first,
                          int64_t second)
{
    wb_initialiser init = o->init ? o->init : wb_glorot_uniform;
    int64_t dims[4] = {first, second / o->groups, o->kernel[1], o->kernel[2]};
    wb_layer *l = wb__layer_new(type, o, 2);
    return wb__layer_put_parameter(l, 0, "weight", true, init, o->dtype, 4, dims) &&
                   wb__layer_put_parameter(l, 1, "bias", !o->no_bias, wb_init_zeros, o->dtype, 1,
                                           &o->out)
               ? l : NULL;
}

static bool read_options(const char *what, wb_Conv_options *o, const wb_Conv_options *given,
                         bool depthwise)
{
    wb__given g;
    if (!wb__read_options(what, o, sizeof *o, given, "groups", &g)) return false;
    wb__sizes_take(o->kernel, &o->sizes_);
    if (depthwise && wb__int_option(&g, "groups", -1, o->groups, 1) != 1)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: each channel is a group: .groups is not an option",
                        what),
               false;
    if (depthwise) o->groups = o->in;
    return check(what, o, &g);
}

static wb_layer *conv_layer(const char *what, const wb_Conv_options *given, bool depthwise)
{
    wb_Conv_options o;
    if (!read_options(what, &o, given, depthwise)) return NULL;
    if (o.outpad[1] || o.outpad[2])
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: only ConvTranspose has .outpad", what);
    return layer_of(&wb__conv_type, &o, o.out, o.in);
}

wb_layer *wb_Conv_with(const wb_Conv_options *o) { return conv_layer("Conv", o, false); }
wb_layer *wb_DepthwiseConv_with(const wb_Conv_options *o)
{
    return conv_layer("DepthwiseConv", o, true);
}

wb_layer *wb_ConvTranspose_with(const wb_Conv_options *given)
{
    wb_Conv_options o;
    if (!read_options("ConvTranspose", &o, given, false)) return NULL;
    for (int a = 0; a < 2; a++)
        if (o.outpad[1 + a] < 0 || o.outpad[1 + a] >= o.stride[1 + a])
            return wb__fail_null(WB_ERROR_ARGUMENT, "ConvTranspose: .outpad is {%lld, %lld}; it is "
                                 "at least 0 and less than the stride", (long long)o.outpad[1],
                                 (long long)o.outpad[2]);
    return layer_of(&wb__conv_transpose_type, &o, o.in, o.out);
}
