/* Scale: y = activation(scale x + bias).  Bilinear: a product of two inputs with a weight of three
 * axes. */
#include "nn/layer.h"

#include <string.h>

#define SCALE_OPTIONS(X)                                                                        \
    X(wb_Scale_options, shape, INTS, 4) X(wb_Scale_options, activation, FUNCTION, 1)            \
    X(wb_Scale_options, bias, BOOL, 1) X(wb_Scale_options, init, INITIALISER, 1)                \
    X(wb_Scale_options, dtype, DTYPE, 1)
static const wb__option scale_table[] = {SCALE_OPTIONS(WB__OPTION_ROW)};

static wb_tensor *scale_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_Scale_options *o = l->options;
    wb_tensor *scale = wb__layer_child(l, 0), *bias = wb__layer_child(l, 1);
    if (!wb__one_input(l, n)) return NULL;
    wb_tensor *y = wb_mul(wb__layer_input(l, inputs[0], scale), scale);
    return wb__activate(o->activation, wb_is_none(bias) ? y : wb_add(y, bias));
}

static void scale_print(const wb_layer *l, wb__text *t)
{
    const wb_Scale_options *o = l->options;
    wb__text_add(t, "Scale(");
    wb__print_shape(o->shape, t);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->bias ? ")" : "; bias=false)");
}

WB__PLAIN_LAYER(scale, "Scale", wb_Scale_options, scale_table, wb_Scale_with,
                .call = scale_call, .print = scale_print);

wb_layer *wb_Scale_with(const wb_Scale_options *given)
{
    WB__EDGE;
    wb_Scale_options o;
    wb__given g;
    if (!wb__read_options("Scale", wb_Scale_options, &o, given, &g)) return NULL;
    if (!wb__read_shape("Scale", &g, o.shape, &o.sizes_) || !wb__layer_dtype("Scale", &o.dtype))
        return NULL;
    const int n = (int)o.shape[0];
    wb_initializer init = o.init ? o.init : wb_init_ones;
    wb_layer *l = wb__layer_new(&wb__scale_type, &o, 2);
    return wb__layer_put_parameter(l, 0, "scale", true, init, o.dtype, n, o.shape + 1) &&
                   wb__layer_put_parameter(l, 1, "bias", o.bias, wb_init_zeros, o.dtype, n,
                                           o.shape + 1)
               ? l : NULL;
}

/* ---- Bilinear -------------------------------------------------------------------------------- */

#define BILINEAR_OPTIONS(X)                                                                     \
    X(wb_Bilinear_options, in1, INT, 1) X(wb_Bilinear_options, in2, INT, 1)                     \
    X(wb_Bilinear_options, out, INT, 1) X(wb_Bilinear_options, activation, FUNCTION, 1)         \
    X(wb_Bilinear_options, bias, BOOL, 1) X(wb_Bilinear_options, init, INITIALISER, 1)          \
    X(wb_Bilinear_options, dtype, DTYPE, 1)
static const wb__option bilinear_table[] = {BILINEAR_OPTIONS(WB__OPTION_ROW)};

static bool scale_has_features(const char *which, const wb_tensor *x, int64_t features)
{
    if (x->ndim && wb_dim(x, -1) == features) return true;
    return wb__fail(WB_ERROR_SHAPE, "Bilinear: expects %lld features in the last dimension of the "
                    "%s input, got %s", (long long)features, which, wb_describe(x)), false;
}

/* Returns the products.  The first, with the second input, gives [..., out, in1].  The second, of
 * that and the first input, gives [..., out, 1]. */
static wb_tensor *bilinear_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_Bilinear_options *o = l->options;
    if (n > 2)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Bilinear: takes one or two inputs, got %d", n);
    wb_tensor *weight = wb__layer_child(l, 0), *bias = wb__layer_child(l, 1);
    wb_tensor *x = wb__layer_input(l, inputs[0], weight);
    wb_tensor *y = n == 1 ? x : wb__layer_input(l, inputs[1], weight);
    if (!x || !y || !scale_has_features("first", x, o->in1) ||
        !scale_has_features("second", y, o->in2))
        return NULL;
    if (x->ndim != y->ndim || x->ndim == WB_MAX_DIMS ||
        memcmp(x->dims, y->dims, (size_t)(x->ndim - 1) * sizeof *x->dims))
        return wb__fail_null(WB_ERROR_SHAPE, "Bilinear: the inputs differ in more than their last "
                             "sizes: %s, %s", wb_describe(x), wb_describe(y));
    int64_t dims[WB_MAX_DIMS] = {0};
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof *dims);
    const int last = x->ndim - 1;
    wb_tensor *rows = wb_linear(
        y, wb_reshape_array(weight, 2, (int64_t[]){o->out * o->in1, o->in2}), WB_NONE);
    dims[last] = o->out, dims[last + 1] = o->in1;
    rows = wb_reshape_array(rows, x->ndim + 1, dims);
    wb_tensor *z = wb_matmul(rows, wb_unsqueeze(x, -1));
    z = wb_reshape_array(z, x->ndim, dims);
    return wb__activate(o->activation, wb_is_none(bias) ? z : wb_add(z, bias));
}

static void bilinear_print(const wb_layer *l, wb__text *t)
{
    const wb_Bilinear_options *o = l->options;
    if (o->in1 == o->in2) wb__text_add(t, "Bilinear(%lld", (long long)o->in1);
    else wb__text_add(t, "Bilinear((%lld, %lld)", (long long)o->in1, (long long)o->in2);
    wb__text_add(t, " => %lld", (long long)o->out);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->bias ? ")" : "; bias=false)");
}

WB__PLAIN_LAYER(bilinear, "Bilinear", wb_Bilinear_options, bilinear_table, wb_Bilinear_with,
                .call = bilinear_call, .print = bilinear_print);

wb_layer *wb_Bilinear_with(const wb_Bilinear_options *given)
{
    WB__EDGE;
    wb_Bilinear_options o;
    if (!wb__read_options("Bilinear", wb_Bilinear_options, &o, given, NULL)) return NULL;
    if (o.in1 < 1 || o.in2 < 1 || o.out < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Bilinear: sizes are positive, got (%lld, %lld) => "
                             "%lld", (long long)o.in1, (long long)o.in2, (long long)o.out);
    if (!wb__layer_dtype("Bilinear", &o.dtype)) return NULL;
    wb_initializer init = o.init ? o.init : wb_glorot_uniform;
    const int64_t dims[3] = {o.out, o.in1, o.in2};
    wb_layer *l = wb__layer_new(&wb__bilinear_type, &o, 2);
    return wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 3, dims) &&
                   wb__layer_put_parameter(l, 1, "bias", o.bias, wb_init_zeros, o.dtype, 1,
                                           &o.out)
               ? l : NULL;
}
