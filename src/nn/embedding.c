/* Embedding: rows of a matrix by index. */
#include "nn/layer.h"

#define OPTIONS(X)                                                                              \
    X(wb_Embedding_options, n, INT, 1) X(wb_Embedding_options, dim, INT, 1)                     \
    X(wb_Embedding_options, init, INITIALISER, 1) X(wb_Embedding_options, dtype, DTYPE, 1)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

static wb_tensor *call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_tensor *x = inputs[0];
    if (!wb__one_input(l, n)) return NULL;
    if (wb__dtype_float((wb_dtype)x->dtype) || x->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "Embedding: expects integers, got %s", wb_describe(x));
    return wb_take(wb__layer_child(l, 0), x);
}

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Embedding_options *o = l->options;
    wb__text_add(t, "Embedding(%lld => %lld)", (long long)o->n, (long long)o->dim);
}

WB__PLAIN_LAYER(embedding, "Embedding", wb_Embedding_options, option_table, wb_Embedding_with,
                .call = call, .print = print);

wb_layer *wb_Embedding_with(const wb_Embedding_options *given)
{
    wb_Embedding_options o;
    if (!wb__read_options("Embedding", &o, sizeof o, given, "", NULL)) return NULL;
    if (o.n < 1 || o.dim < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "Embedding: sizes are positive, got %lld => %lld",
                             (long long)o.n, (long long)o.dim);
    if (!wb__layer_dtype("Embedding", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__embedding_type, &o, 1);
    wb_initialiser init = o.init ? o.init : wb_init_normal;
    const int64_t dims[2] = {o.n, o.dim};
    return wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 2, dims) ? l : NULL;
}
