/* Embedding: rows of a matrix by index.  EmbeddingBag: means, sums or maxima of such rows. */
#include "nn/attention.h"

#include <math.h>

#define EMBEDDING_OPTIONS(X)                                                                    \
    X(wb_Embedding_options, n, INT, 1) X(wb_Embedding_options, dim, INT, 1)                     \
    X(wb_Embedding_options, padding_index, INT, 1)                                              \
    X(wb_Embedding_options, init, INITIALISER, 1) X(wb_Embedding_options, dtype, DTYPE, 1)
static const wb__option embedding_table[] = {EMBEDDING_OPTIONS(WB__OPTION_ROW)};

/* Returns the index of the padding row; -1 if there is none.  A negative option counts from n. */
static int64_t embedding_padding_of(const wb_Embedding_options *o)
{
    return o->padding_index == INT64_MIN ? -1 : o->padding_index + o->n;
}

static bool embedding_integers(const wb_layer *l, const wb_tensor *x)
{
    if (!wb__dtype_float((wb_dtype)x->dtype) && x->dtype != WB_BOOL) return true;
    return wb__fail(WB_ERROR_DTYPE, "%s: expects integers, got %s", l->type->name, wb_describe(x)),
           false;
}

wb_tensor *wb__embedding_rows(wb_layer *l, wb_tensor *x)
{
    wb_layer *base = wb__is_quantised(l) ? wb__layer_child(l, 0) : l;
    const wb_tensor *table = wb__layer_child(base, 0);
    if (!embedding_integers(l, x) || !wb__cache_fits(x, table->dims[0])) return NULL;
    if (base == l) return wb_take(wb__layer_child(l, 0), x);
    wb__branch_used(&base->node);
    wb_tensor *scale = wb__layer_child(l, WB__QUANTISED_SCALE);
    wb_tensor *rows = wb_take(wb__layer_child(base, 0), x);
    wb_tensor *scales = rows ? wb_unsqueeze(wb_take(scale, x), -1) : NULL;
    const wb_tensor *like = wb__layer_child(l, WB__QUANTISED_LIKE);
    return scales ? wb__as(wb_mul(wb_astype(rows, WB_F32), scales), (wb_dtype)like->dtype) : NULL;
}

wb_tensor *wb__without_padding(const wb_layer *l, wb_tensor *x, wb_tensor *y)
{
    const int64_t index = embedding_padding_of(l->options);
    if (!y || index < 0) return y;
    wb_tensor *padding = wb_unsqueeze(wb_eq(x, wb_scalar_int(index)), -1);
    return wb_where(padding, wb_stop_gradient(y), y);
}

static wb_tensor *embedding_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    if (!wb__one_input(l, n)) return NULL;
    return wb__without_padding(l, inputs[0], wb__embedding_rows(l, inputs[0]));
}

static void embedding_print(const wb_layer *l, wb__text *t)
{
    const wb_Embedding_options *o = l->options;
    wb__text_add(t, "Embedding(%lld => %lld", (long long)o->n, (long long)o->dim);
    if (embedding_padding_of(o) >= 0)
        wb__text_add(t, "; padding_index=%lld", (long long)embedding_padding_of(o));
    wb__text_add(t, ")");
}

WB__PLAIN_LAYER(embedding, "Embedding", wb_Embedding_options, embedding_table, wb_Embedding_with,
                .call = embedding_call, .print = embedding_print);

static bool embedding_positive(const char *what, int64_t n, int64_t dim)
{
    if (n >= 1 && dim >= 1) return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld => %lld", what,
                    (long long)n, (long long)dim), false;
}

/* Sets row `index` of the initial weight to zeros. */
static bool clear_row(wb_layer *l, int64_t index)
{
    wb_tensor *weight = wb__layer_child(l, 0);
    wb_tensor *rows = wb_unsqueeze(wb_arange(weight->dims[0], WB_I32), -1);
    return !wb_assign(weight, wb_where(wb_eq(rows, wb_scalar_int(index)), wb_scalar(0), weight));
}

wb_layer *wb_Embedding_with(const wb_Embedding_options *given)
{
    WB__EDGE;
    wb_Embedding_options o;
    if (!wb__read_options("Embedding", wb_Embedding_options, &o, given, NULL)) return NULL;
    if (!embedding_positive("Embedding", o.n, o.dim)) return NULL;
    const int64_t index = o.padding_index;
    if (index != INT64_MIN && (index >= o.n || index < -o.n))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Embedding: .padding_index is %lld; it is in %lld "
                             ".. %lld", (long long)index, (long long)-o.n, (long long)o.n - 1);
    if (index >= 0) o.padding_index -= o.n;
    if (!wb__layer_dtype("Embedding", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__embedding_type, &o, 1);
    wb_initializer init = o.init ? o.init : wb_init_normal;
    const int64_t dims[2] = {o.n, o.dim};
    if (!wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 2, dims)) return NULL;
    if (index == INT64_MIN || init == wb__init_empty ||
        clear_row(l, embedding_padding_of(&o))) return l;
    wb_object_free(l);
    return NULL;
}

/* ---- EmbeddingBag ---------------------------------------------------------------------------- */

#define BAG_OPTIONS(X)                                                                          \
    X(wb_EmbeddingBag_options, n, INT, 1) X(wb_EmbeddingBag_options, dim, INT, 1)               \
    X(wb_EmbeddingBag_options, mode, INT, 1) X(wb_EmbeddingBag_options, init, INITIALISER, 1)   \
    X(wb_EmbeddingBag_options, dtype, DTYPE, 1)
static const wb__option bag_table[] = {BAG_OPTIONS(WB__OPTION_ROW)};

/* Returns a matrix with `n` rows: row r is the sum of the rows i of `values` with index[i] = r. */
static wb_tensor *embedding_sum_rows(wb_tensor *index, wb_tensor *values, int64_t n)
{
    if (!index || !values) return NULL;
    return wb__node(WB__OP_scatter_add, (wb_dtype)values->dtype, 2,
                    (int64_t[]){n, values->dims[1]}, 2, (wb_tensor *[]){index, values}, 0, NULL);
}

/* Returns the means, sums or maxima of `rows`, [indices, dim], over bags; a bag begins at each
 * index in `offsets`. */
static wb_tensor *embedding_reduce_bags(const wb_EmbeddingBag_options *o, wb_tensor *rows,
                                        wb_tensor *offsets)
{
    const int64_t n = rows->dims[0], bags = offsets->dims[0];
    const wb_dtype dtype = (wb_dtype)rows->dtype, wide = wb__computed_in(dtype);
    /* The bag of index i is the number of offsets that are at most i, minus 1. */
    const int64_t starts[2] = {bags, 1};
    wb_tensor *begun = embedding_sum_rows(offsets, wb_full_array(1, WB_F32, 2, starts), n);
    wb_tensor *bag = wb_reshape_array(
        wb_sub(wb_cumsum(wb_astype(begun, WB_I32), 0), wb_scalar_int(1)), 1, &n);
    if (o->mode == WB_BAG_MAX) {
        wb_tensor *member = wb_eq(wb_unsqueeze(wb_arange(bags, WB_I32), -1), bag);
        wb_tensor *own = wb_where(wb_unsqueeze(member, -1), rows, wb_scalar(-INFINITY));
        wb_tensor *any = wb__reduce(WB__OP_max, wb_astype(member, WB_I32), 2, true);
        wb_tensor *most = wb__reduce(WB__OP_max, own, 2, false);
        return wb_where(wb_gt(any, wb_scalar_int(0)), most, wb_scalar(0));
    }
    wb_tensor *sum = embedding_sum_rows(bag, wb__wide(rows), bags);
    if (o->mode == WB_BAG_SUM) return wb__as(sum, dtype);
    const int64_t each[2] = {n, 1};
    wb_tensor *count = embedding_sum_rows(bag, wb_full_array(1, WB_F32, 2, each), bags);
    return wb__as(wb_div(sum, wb__as(wb_maximum(count, wb_scalar(1)), wide)), dtype);
}

static wb_tensor *bag_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const wb_EmbeddingBag_options *o = l->options;
    wb_tensor *x = inputs[0], *offsets = n == 2 ? inputs[1] : NULL;
    if (n > 2)
        return wb__fail_null(WB_ERROR_ARGUMENT, "EmbeddingBag: takes indices, and offsets or none, "
                             "got %d inputs", n);
    if (!embedding_integers(l, x) || (offsets && !embedding_integers(l, offsets))) return NULL;
    if (offsets ? x->ndim != 1 || offsets->ndim != 1 : x->ndim != 2)
        return wb__fail_null(WB_ERROR_SHAPE, "EmbeddingBag: takes indices [bags, n], or [n] and "
                             "offsets [bags], got %s%s%s", wb_describe(x), offsets ? " and " : "",
                             offsets ? wb_describe(offsets) : "");
    if (offsets && !wb__offsets_ascend("EmbeddingBag offsets", offsets, x->dims[0] + 1))
        return NULL;
    wb_tensor *rows = wb_take(wb__layer_child(l, 0), x);
    if (!rows) return NULL;
    if (offsets && !x->dims[0]) {
        const int64_t dims[2] = {offsets->dims[0], o->dim};
        return wb_full_array(0, (wb_dtype)rows->dtype, 2, dims);
    }
    if (offsets) return embedding_reduce_bags(o, rows, offsets);
    if (!x->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "EmbeddingBag: bags without indices: %s",
                             wb_describe(x));
    return o->mode == WB_BAG_MEAN ? wb__mean(rows, 2, false)
                                  : wb__reduce(o->mode == WB_BAG_SUM ? WB__OP_sum : WB__OP_max,
                                               rows, 2, false);
}

static const char *const embedding_modes[] = {[WB_BAG_MEAN] = "mean", [WB_BAG_SUM] = "sum",
                                              [WB_BAG_MAX] = "max"};

static void bag_print(const wb_layer *l, wb__text *t)
{
    const wb_EmbeddingBag_options *o = l->options;
    wb__text_add(t, "EmbeddingBag(%lld => %lld", (long long)o->n, (long long)o->dim);
    if (o->mode != WB_BAG_MEAN) wb__text_add(t, ", %s", embedding_modes[o->mode]);
    wb__text_add(t, ")");
}

WB__PLAIN_LAYER(embeddingbag, "EmbeddingBag", wb_EmbeddingBag_options, bag_table,
                wb_EmbeddingBag_with, .call = bag_call, .print = bag_print);

wb_layer *wb_EmbeddingBag_with(const wb_EmbeddingBag_options *given)
{
    WB__EDGE;
    wb_EmbeddingBag_options o;
    if (!wb__read_options("EmbeddingBag", wb_EmbeddingBag_options, &o, given, NULL)) return NULL;
    if (!embedding_positive("EmbeddingBag", o.n, o.dim)) return NULL;
    if (o.mode < 0 || o.mode >= (int64_t)WB__COUNT(embedding_modes))
        return wb__fail_null(WB_ERROR_ARGUMENT, "EmbeddingBag: .mode is %lld; it is WB_BAG_MEAN, "
                             "WB_BAG_SUM or WB_BAG_MAX", (long long)o.mode);
    if (!wb__layer_dtype("EmbeddingBag", &o.dtype)) return NULL;
    wb_layer *l = wb__layer_new(&wb__embeddingbag_type, &o, 1);
    wb_initializer init = o.init ? o.init : wb_init_normal;
    const int64_t dims[2] = {o.n, o.dim};
    return wb__layer_put_parameter(l, 0, "weight", true, init, o.dtype, 2, dims) ? l : NULL;
}
