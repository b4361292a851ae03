/* Dense: y = activation(x·weightᵀ + bias). */
#include "nn/layer.h"

#include "weber/adapt.h"

extern const wb__layer_type wb__dense_type;

#define DENSE_OPTIONS(X)                                                                        \
    X(wb_Dense_options, in, INT, 1) X(wb_Dense_options, out, INT, 1)                            \
    X(wb_Dense_options, activation, FUNCTION, 1) X(wb_Dense_options, bias, BOOL, 1)             \
    X(wb_Dense_options, init, INITIALISER, 1) X(wb_Dense_options, dtype, DTYPE, 1)
static const wb__option dense_table[] = {DENSE_OPTIONS(WB__OPTION_ROW)};

wb_tensor *wb__dense_linear(wb_layer *l, wb_tensor *x, wb_function *f)
{
    wb_layer *dense = wb__is_quantised(l) ? wb__layer_child(l, 0) : l;
    const wb_Dense_options *o = dense->options;
    wb_tensor *weight = wb__layer_child(dense, 0), *bias = wb__layer_child(dense, 1);
    if (dense->type != &wb__dense_type)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s is no Dense", dense->type->name);
    if (wb_dim(x, -1) != o->in)
        return wb__fail_null(WB_ERROR_SHAPE, "Dense: expects %lld features in the last dimension, "
                             "got %s", (long long)o->in, wb_describe(x));
    *f = o->activation;
    if (dense == l) return wb_linear(wb__layer_input(l, x, weight), weight, bias);
    wb__branch_used(&dense->node);
    wb_tensor *scale = wb__layer_child(l, WB__QUANTISED_SCALE);
    const wb_tensor *like = wb__layer_child(l, WB__QUANTISED_LIKE);
    return wb_linear_int8(wb__layer_input(l, x, like), weight, scale, bias);
}

static wb_tensor *dense_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_function f = NULL;
    if (!wb__one_input(l, n)) return NULL;
    wb_tensor *y = wb__dense_linear(l, inputs[0], &f);
    return y ? wb__activate(f, y) : NULL;
}

/* Whether l computes only wb_linear, and has a bias exactly if `first` has one. */
static bool dense_is_linear(wb_layer *l, const wb_layer *first)
{
    if (l->type != &wb__dense_type || first->type != &wb__dense_type) return false;
    const wb_Dense_options *o = l->options, *p = first->options;
    const wb_tensor *weight = wb__layer_child(l, 0), *other = wb__layer_child(first, 0);
    return (!o->activation || o->activation == wb_identity) && o->in == p->in &&
           weight->dtype == other->dtype &&
           wb_is_none(wb__layer_child(l, 1)) == wb_is_none(wb__layer_child(first, 1)) &&
           !wb__setting_read(l, &l->recomputed);
}

bool wb__dense_together(int n, wb_layer *const *dense, wb_tensor *x, wb_tensor **y)
{
    enum { FEW_ROWS = 128, MOST = 4 };
    wb_tensor *weight[MOST], *bias[MOST];
    if (n > MOST || wb__layer_observer) return false;
    for (int i = 0; i < n; i++) {
        if (!dense_is_linear(dense[i], dense[0])) return false;
        weight[i] = wb__layer_child(dense[i], 0);
        bias[i] = wb__layer_child(dense[i], 1);
    }
    const wb_Dense_options *o = dense[0]->options;
    const wb__backend *backend = wb__device_of(weight[0])->backend;
    if (!backend->dear_launches || x->size / o->in < FEW_ROWS) return false;
    for (int i = 0; i < n; i++) wb__branch_used(&dense[i]->node);
    wb_tensor *w = wb_concat_array(0, n, weight);
    wb_tensor *b = wb_is_none(bias[0]) ? WB_NONE : wb_concat_array(0, n, bias);
    *y = w && b ? wb_linear(wb__layer_input(dense[0], x, weight[0]), w, b) : NULL;
    return true;
}

static void dense_print(const wb_layer *l, wb__text *t)
{
    const wb_Dense_options *o = l->options;
    wb__text_add(t, "Dense(%lld => %lld", (long long)o->in, (long long)o->out);
    wb__print_activation(o->activation, t);
    wb__text_add(t, o->bias ? ")" : "; bias=false)");
}

WB__PLAIN_LAYER(dense, "Dense", wb_Dense_options, dense_table, wb_Dense_with,
                .call = dense_call, .print = dense_print);

wb_layer *wb_Dense_with(const wb_Dense_options *given)
{
    WB__EDGE;
    wb_Dense_options o;
    if (!wb__read_options("Dense", wb_Dense_options, &o, given, NULL)) return NULL;
    if (o.in < 1 || o.out < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Dense: sizes are positive, got %lld => %lld",
                             (long long)o.in, (long long)o.out);
    if (!wb__layer_dtype("Dense", &o.dtype)) return NULL;
    wb_initializer init = o.init ? o.init : wb_glorot_uniform;
    wb_layer *l = wb__layer_new(&wb__dense_type, &o, 2);
    const int64_t dims[2] = {o.out, o.in};
    return wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 2, dims) &&
                   wb__layer_put_parameter(l, 1, "bias", o.bias, wb_init_zeros, o.dtype, 1,
                                           &o.out)
               ? l : NULL;
}
