/* Dense: y = activation(x·weightᵀ + bias). */
#include "nn/layer.h"

#define OPTIONS(X)                                                                              \
    X(wb_Dense_options, in, INT, 1) X(wb_Dense_options, out, INT, 1)                            \
    X(wb_Dense_options, activation, FUNCTION, 1) X(wb_Dense_options, no_bias, BOOL, 1)          \
    X(wb_Dense_options, init, INITIALISER, 1) X(wb_Dense_options, dtype, DTYPE, 1)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

static wb_tensor *call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_Dense_options *o = l->options;
    wb_tensor *x = inputs[0], *weight = wb__layer_child(l, 0);
    if (!wb__one_input(l, n)) return NULL;
    if (wb_dim(x, -1) != o->in)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "Dense: expects %lld features in the last dimension, got %s",
                             (long long)o->in, wb_describe(x));
    x = wb__layer_input(l, x, weight);
    return wb__activate(o->activation, wb_linear(x, weight, wb__layer_child(l, 1)));
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Dense_options *o = l->options;
    wb__text_add(t, "Dense(%lld => %lld", (long long)o->in, (long long)o->out);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->no_bias ? "; bias=false)" : ")");
}

WB__PLAIN_LAYER(dense, "Dense", wb_Dense_options, option_table, wb_Dense_with,
                .call = call, .print = print);

wb_layer *wb_Dense_with(const wb_Dense_options *given)
{
    wb_Dense_options o;
    if (!wb__read_options("Dense", &o, sizeof o, given, "", NULL)) return NULL;
    if (o.in < 1 || o.out < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Dense: sizes are positive, got %lld => %lld",
                             (long long)o.in, (long long)o.out);
    if (!wb__layer_dtype("Dense", &o.dtype)) return NULL;
    wb_initialiser init = o.init ? o.init : wb_glorot_uniform;
    wb_layer *l = wb__layer_new(&wb__dense_type, &o, 2);
    const int64_t dims[2] = {o.out, o.in};
    return wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 2, dims) &&
                   wb__layer_put_parameter(l, 1, "bias", !o.no_bias, wb_init_zeros, o.dtype, 1,
                                           &o.out)
               ? l : NULL;
}
