/* Transformers over tokens (Vaswani et al. 2017), with the norms behind the sums as in BERT (Devlin
 * et al. 2019), or before the layers as in GPT-2 (Radford et al. 2019): the blocks, the model, and
 * the reduction of a text's tokens to one vector. */
#include "nn/transformer.h"

#include "nn/attention.h"

#include <string.h>

extern const wb__layer_type wb__transformer_type, wb__transformer_block_type, wb__token_pool_type,
    wb__embedding_type;

/* Returns the inner layer of this name; NULL: there is none. */
static wb_layer *transformer_inner(const wb_layer *l, const char *name)
{
    wb__child *layers;
    const int n = wb__container_layers(l, &layers);
    for (int i = 0; i < n; i++)
        if (!strcmp(layers[i].name, name)) return layers[i].object;
    return NULL;
}

static wb_tensor *transformer_call_inner(const wb_layer *l, const char *name, int n,
                                         wb_tensor *const *inputs)
{
    const unsigned failures = wb__failures();
    wb_tensor *y = wb_call_array(transformer_inner(l, name), n, inputs);
    if (!y && failures != wb__failures()) wb__failed_in("layers", name);
    return y;
}

/* Returns the output of the inner layer of this name for x; x if there is none. */
static wb_tensor *transformer_apply_inner(const wb_layer *l, const char *name, wb_tensor *x)
{
    return x && transformer_inner(l, name) ? transformer_call_inner(l, name, 1, &x) : x;
}

static bool transformer_is_block(const char *name) { return wb__begins(name, "block"); }

static bool transformer_has_word(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word)) list++;
    return *list;
}

/* Whether the layers have all names of `needed`, and otherwise only names of `others` or, with
 * `blocks`, names of blocks.  If not, sets the error. */
static bool transformer_names_fit(const char *what, const wb_tree *list, const char *const *needed,
                                  const char *const *others, bool blocks)
{
    for (int i = 0; i < list->node.n; i++) {
        const char *name = list->node.children[i].name;
        if (!transformer_has_word(needed, name) && !transformer_has_word(others, name) &&
            !(blocks && transformer_is_block(name)))
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: no layer of it is named \"%.100s\"", what,
                             name);
    }
    for (; *needed; needed++) {
        int i = 0;
        while (i < list->node.n && strcmp(list->node.children[i].name, *needed)) i++;
        if (i == list->node.n)
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: its layer \"%s\" is missing", what, *needed);
    }
    return true;
}

static wb_layer *transformer_assembled(const wb__layer_type *type, const void *options,
                                       wb_tree *list)
{
    wb_layer *l = wb__layer_new(type, options, 1);
    return l && wb__layer_put(l, 0, "layers", list) ? l : NULL;
}

static void transformer_print(const wb_layer *l, wb__text *t)
{
    wb__child *layers;
    const int n = wb__container_layers(l, &layers);
    wb__text_add(t, "%s(", l->type->name);
    for (int i = 0; i < n; i++) {
        wb__text_add(t, i ? ", %s = " : "%s = ", layers[i].name);
        wb__print_layer(layers[i].object, t);
    }
    wb__text_add(t, ")");
}

typedef struct { size_t size; bool norm_first; } block_options;
#define BLOCK_OPTIONS(X) X(block_options, norm_first, BOOL, 1)
static const wb__option transformer_block_table[] = {BLOCK_OPTIONS(WB__OPTION_ROW)};

static const char *const block_needed[] = {"attention", "norm1", "dense1", "dense2", "norm2", NULL},
                  *const block_others[] = {"dropout1", "dropout2", NULL};

/* Returns the block's output.  The inputs are x [N, T, features], and bool [N, 1, 1, keys]: the
 * keys that queries may use. */
static wb_tensor *transformer_block_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const bool first = ((const block_options *)l->options)->norm_first;
    wb_tensor *x = inputs[0], *y = first ? transformer_apply_inner(l, "norm1", x) : x;
    if (n > 2)
        return wb__fail_null(WB_ERROR_ARGUMENT, "TransformerBlock: takes x, and a mask or none, "
                             "got %d inputs", n);
    wb_tensor *in[4] = {y, y, y, inputs[n - 1]};
    y = y ? transformer_call_inner(l, "attention", n == 2 ? 4 : 1, in) : NULL;
    x = wb_add(x, transformer_apply_inner(l, "dropout1", y));
    if (!first) x = transformer_apply_inner(l, "norm1", x);
    y = first ? transformer_apply_inner(l, "norm2", x) : x;
    y = transformer_apply_inner(l, "dense2", transformer_apply_inner(l, "dense1", y));
    x = wb_add(x, transformer_apply_inner(l, "dropout2", y));
    return first ? x : transformer_apply_inner(l, "norm2", x);
}

static wb_layer *block_assemble(const void *options, int n, const char *const *names,
                                wb_layer *const *layers)
{
    const wb__layer_type *type = &wb__transformer_block_type;
    wb_tree *list = wb__layer_list(type->name, n, names, layers);
    return list && transformer_names_fit(type->name, list, block_needed, block_others, false)
               ? transformer_assembled(type, options, list) : NULL;
}

const wb__layer_type wb__transformer_block_type = {
    .name = "TransformerBlock", WB__LAYER_OPTIONS(block_options, transformer_block_table),
    .call = transformer_block_call, .print = transformer_print, .assemble = block_assemble};

wb_layer *wb__transformer_block(bool norm_first, int n, wb_layer *const *layers)
{
    return block_assemble(&(block_options){sizeof(block_options), norm_first}, n, NULL, layers);
}

typedef struct { size_t size; int64_t kind; bool normalise; } pool_options;
#define POOL_OPTIONS(X) X(pool_options, kind, INT, 1) X(pool_options, normalise, BOOL, 1)
static const wb__option transformer_pool_table[] = {POOL_OPTIONS(WB__OPTION_ROW)};

static const char *const transformer_pool_names[] = {[WB__TOKENS_FIRST] = "first",
                                                     [WB__TOKENS_MEAN] = "mean",
                                                     [WB__TOKENS_MAX] = "max",
                                                     [WB__TOKENS_ROOT] = "root"};

/* Returns a mask of the program as bool: true where an element is not 0. */
static wb_tensor *transformer_as_bool(wb_tensor *mask)
{
    return mask->dtype == WB_BOOL ? mask : wb_ne(mask, wb_scalar_int(0));
}

/* Returns x [N, T, features] reduced to [N, features] over the tokens where `seen`, bool [N, T, 1],
 * is true; NULL: over all. */
static wb_tensor *transformer_reduced(wb__token_pool_kind kind, wb_tensor *x, wb_tensor *seen)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    if (kind == WB__TOKENS_FIRST) return wb_squeeze(wb_slice(x, 1, 0, 1), 1);
    if (kind == WB__TOKENS_MAX)
        return wb_max(seen ? wb_where(seen, x, wb__literal(wb__masked(t), t)) : x, .axes = {1});
    wb_tensor *sum = wb_sum(seen ? wb_where(seen, x, wb__literal(0, t)) : x, .axes = {1});
    wb_tensor *count = seen ? wb_sum(wb_astype(seen, t), .axes = {1})
                            : wb__literal((double)x->dims[1], t);
    count = wb_maximum(count, wb__literal(1e-9, t));
    return wb_div(sum, kind == WB__TOKENS_ROOT ? wb_sqrt(count) : count);
}

static wb_tensor *transformer_pool_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    const pool_options *o = l->options;
    wb_tensor *x = inputs[0], *mask = n == 2 ? inputs[1] : NULL, *seen = NULL;
    if (n > 2 || x->ndim != 3 || !x->dims[1] || !wb__dtype_float((wb_dtype)x->dtype) ||
        (mask && (mask->ndim != 2 || memcmp(mask->dims, x->dims, 2 * sizeof *x->dims))))
        return wb__fail_null(WB_ERROR_SHAPE, "TokenPool: takes floating [N,T,features], and a mask "
                             "[N,T] or none, got %d inputs: %s%s%s", n, wb_describe(x),
                             mask ? " and " : "", mask ? wb_describe(mask) : "");
    if (mask && !(seen = wb_unsqueeze(transformer_as_bool(mask), -1))) return NULL;
    wb_tensor *y = transformer_reduced((wb__token_pool_kind)o->kind, wb__wide(x), seen);
    if (y && o->normalise)
        y = wb_div(y, wb_maximum(wb_sqrt(wb_sum(wb_mul(y, y), .axes = {-1}, .keep = true)),
                                 wb__literal(1e-12, (wb_dtype)y->dtype)));
    return y ? wb__as(y, (wb_dtype)x->dtype) : NULL;
}

static void transformer_pool_print(const wb_layer *l, wb__text *t)
{
    const pool_options *o = l->options;
    wb__text_add(t, "TokenPool(%s%s)", transformer_pool_names[o->kind],
                 o->normalise ? ", normalise=true" : "");
}

static wb_layer *transformer_pool_of(const void *options)
{
    const pool_options *o = options;
    if (o->kind >= 0 && o->kind < WB__TOKENS_KINDS)
        return wb__layer_new(&wb__token_pool_type, o, 0);
    return wb__fail_null(WB_ERROR_ARGUMENT, "TokenPool: no reduction has the number %lld",
                         (long long)o->kind);
}

const wb__layer_type wb__token_pool_type = {
    .name = "TokenPool", WB__LAYER_OPTIONS(pool_options, transformer_pool_table),
    .make = transformer_pool_of, .call = transformer_pool_call, .print = transformer_pool_print};

wb_layer *wb__token_pool(wb__token_pool_kind kind, bool normalise)
{
    return transformer_pool_of(&(pool_options){sizeof(pool_options), kind, normalise});
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *const model_needed[] = {"tokens", "positions", NULL},
                  *const model_others[] = {"types", "embed_norm", "dropout", "norm", "pooling",
                                           "pooler", "head", NULL};

/* Returns the number of rows of an Embedding, also of a quantised or adapted one; INT64_MAX for
 * another layer. */
static int64_t transformer_rows_of(const wb_layer *table)
{
    while (wb__is_lora(table) || wb__is_quantised(table)) table = wb__layer_child(table, 0);
    return table->type == &wb__embedding_type
               ? ((const wb_Embedding_options *)table->options)->n : INT64_MAX;
}

/* Whether the ids are [N, T] and rows of the Embedding of this name. */
static bool ids_fit(const wb_layer *l, const char *name, wb_tensor *ids, const wb_tensor *like)
{
    const wb_layer *table = transformer_inner(l, name);
    if (!table)
        return !wb__fail(WB_ERROR_ARGUMENT, "Transformer: has no token types, and takes ids and a "
                         "mask");
    if (ids->ndim != 2 || !wb__same_dims(ids, like))
        return !wb__fail(WB_ERROR_SHAPE, "Transformer: expects %s [N,T], got %s for ids %s", name,
                         wb_describe(ids), wb_describe(like));
    const int64_t rows = transformer_rows_of(table);
    if (wb__dtype_float((wb_dtype)ids->dtype) || rows == INT64_MAX) return true;
    return wb__known_below(name, ids, rows);
}

int64_t wb__transformer_positions(const wb_layer *l)
{
    return l->type == &wb__transformer_type ? transformer_rows_of(transformer_inner(l, "positions"))
                                            : INT64_MAX;
}

/* Whether the model has at least n positions.  With a cache, wb__cache_fits checks that. */
static bool positions_fit(const wb_layer *l, int64_t n)
{
    const int64_t rows = wb__transformer_positions(l);
    if (n <= rows) return true;
    return !wb__fail(WB_ERROR_SHAPE, "Transformer: got %lld positions; the model has %lld",
                     (long long)n, (long long)rows);
}

static bool transformer_inputs_fit(const wb_layer *l, int n, wb_tensor *const *inputs, int64_t keys)
{
    if (n > 3)
        return !wb__fail(WB_ERROR_ARGUMENT, "Transformer: takes ids, a mask and token types, got "
                         "%d inputs", n);
    if (!ids_fit(l, "tokens", inputs[0], inputs[0]) || !positions_fit(l, inputs[0]->dims[1]))
        return false;
    const wb_tensor *mask = n > 1 ? inputs[1] : NULL;
    if (mask && (mask->ndim != 2 || mask->dims[0] != inputs[0]->dims[0] || mask->dims[1] != keys ||
                 wb__dtype_float((wb_dtype)mask->dtype)))
        return !wb__fail(WB_ERROR_SHAPE, "Transformer: the mask is %s; expects [%lld,%lld], bool "
                         "or integer: 1 for a token, 0 for padding", wb_describe(mask),
                         (long long)inputs[0]->dims[0], (long long)keys);
    return n < 3 || ids_fit(l, "types", inputs[2], inputs[0]);
}

/* Returns the embedded tokens, [N, T, features].  If `types` is NULL, all have type 0. */
static wb_tensor *transformer_embedded(const wb_layer *l, wb_tensor *ids, wb_tensor *types)
{
    wb_tensor *x = transformer_call_inner(l, "tokens", 1, &ids);
    if (transformer_inner(l, "types")) {
        if (!types) types = wb_full_array(0, WB_I32, 1, (int64_t[]){1});
        x = wb_add(x, transformer_apply_inner(l, "types", types));
    }
    x = wb_add(x, transformer_apply_inner(l, "positions", wb_positions(ids->dims[1])));
    return transformer_apply_inner(l, "dropout", transformer_apply_inner(l, "embed_norm", x));
}

static wb_tensor *transformer_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb__child *layers;
    const int n_layers = wb__container_layers(l, &layers);
    if (inputs[0]->ndim != 2)
        return wb__fail_null(WB_ERROR_SHAPE, "Transformer: expects ids [N,T], got %s",
                             wb_describe(inputs[0]));
    const int64_t keys = wb__cache_used() ? wb__cache_length() : inputs[0]->dims[1];
    if (!transformer_inputs_fit(l, n, inputs, keys)) return NULL;
    wb_tensor *in[2] = {transformer_embedded(l, inputs[0], n == 3 ? inputs[2] : NULL), NULL};
    if (n > 1) {
        const int64_t dims[4] = {inputs[1]->dims[0], 1, 1, keys};
        in[1] = wb_reshape_array(transformer_as_bool(inputs[1]), 4, dims);
        if (!in[1]) return NULL;
    }
    for (int i = 0; in[0] && i < n_layers; i++)
        if (transformer_is_block(layers[i].name))
            in[0] = transformer_call_inner(l, layers[i].name, n > 1 ? 2 : 1, in);
    wb_tensor *x = transformer_apply_inner(l, "norm", in[0]);
    if (x && transformer_inner(l, "pooling"))
        x = transformer_call_inner(l, "pooling", n > 1 ? 2 : 1,
                                   (wb_tensor *[]){x, n > 1 ? inputs[1] : NULL});
    return transformer_apply_inner(l, "head", transformer_apply_inner(l, "pooler", x));
}

static wb_layer *transformer_assemble(const void *options, int n, const char *const *names,
                                      wb_layer *const *layers)
{
    const wb__layer_type *type = &wb__transformer_type;
    wb_tree *list = wb__layer_list(type->name, n, names, layers);
    return list && transformer_names_fit(type->name, list, model_needed, model_others, true)
               ? transformer_assembled(type, options, list) : NULL;
}

const wb__layer_type wb__transformer_type = {
    .name = "Transformer", .call = transformer_call, .print = transformer_print,
    .assemble = transformer_assemble};

wb_layer *wb__transformer(int n, wb_layer *const *layers)
{
    return transformer_assemble(NULL, n, NULL, layers);
}
