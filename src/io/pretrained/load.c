/* wb_load_pretrained: makes the model that a folder describes, and loads its values. */
#include "io/pretrained/pretrained.h"

#include "io/model/transpose.h"

#include <stdio.h>
#include <string.h>

/* ---- the model ------------------------------------------------------------------------------- */

/* The layers of a container that is being made; `failed` if one of them could not be made. */
typedef struct { wb_layer **layers; int n; bool failed; } layer_list;

static void pretrained_add(layer_list *list, const char *name, wb_layer *layer)
{
    wb_layer *named = layer && !list->failed ? (wb_named)(name, layer) : NULL;
    if (named) list->layers[list->n++] = named;
    else list->failed = true;
}

static wb_layer *pretrained_table(int64_t n, int64_t width, wb_dtype dtype)
{
    return wb_Embedding(n, width, .init = wb__init_empty, .dtype = dtype);
}

static wb_layer *pretrained_dense(int64_t in, int64_t out, wb_function activation, bool bias,
                                  wb_dtype dtype)
{
    return wb_Dense(in, out, activation, .bias = bias, .init = wb__init_empty, .dtype = dtype);
}

static wb_layer *pretrained_norm(const wb__hub_config *c, wb_dtype dtype)
{
    return wb_LayerNorm({c->sizes[WB__HUB_WIDTH]}, .eps = c->eps, .dtype = dtype);
}

static wb_layer *pretrained_block(const wb__hub_config *c, wb_dtype dtype)
{
    wb_layer *layers[7];
    layer_list list = {.layers = layers};
    const int64_t width = c->sizes[WB__HUB_WIDTH], inner = c->sizes[WB__HUB_INNER];
    wb_layer *attention = wb_MultiHeadAttention(
        width, c->heads, .causal = c->family->causal, .bias = true, .init = wb__init_empty,
        .dropout = c->attention_dropout, .dtype = dtype);
    pretrained_add(&list, "attention", attention);
    if (c->dropout > 0 && c->family->drops_attention)
        pretrained_add(&list, "dropout1", wb_Dropout(c->dropout));
    pretrained_add(&list, "norm1", pretrained_norm(c, dtype));
    pretrained_add(&list, "dense1", pretrained_dense(width, inner, c->activation, true, dtype));
    pretrained_add(&list, "dense2", pretrained_dense(inner, width, NULL, true, dtype));
    if (c->dropout > 0) pretrained_add(&list, "dropout2", wb_Dropout(c->dropout));
    pretrained_add(&list, "norm2", pretrained_norm(c, dtype));
    return list.failed ? NULL : wb__transformer_block(c->family->norm_first, list.n, list.layers);
}

static void pretrained_add_layers(layer_list *list, const wb__hub_config *c, wb_dtype dtype)
{
    const int64_t width = c->sizes[WB__HUB_WIDTH], vocabulary = c->sizes[WB__HUB_VOCABULARY];
    pretrained_add(list, "tokens", pretrained_table(vocabulary, width, dtype));
    pretrained_add(list, "positions", pretrained_table(c->sizes[WB__HUB_POSITIONS], width, dtype));
    if (c->sizes[WB__HUB_TYPES])
        pretrained_add(list, "types", pretrained_table(c->sizes[WB__HUB_TYPES], width, dtype));
    if (!c->family->norm_first) pretrained_add(list, "embed_norm", pretrained_norm(c, dtype));
    if (c->embed_dropout > 0) pretrained_add(list, "dropout", wb_Dropout(c->embed_dropout));
    for (int64_t i = 0; i < c->blocks && !list->failed; i++) {
        char name[32];
        snprintf(name, sizeof name, "block%lld", (long long)i);
        pretrained_add(list, name, pretrained_block(c, dtype));
    }
    if (c->family->norm_first) pretrained_add(list, "norm", pretrained_norm(c, dtype));
    if (c->pooling < WB__TOKENS_KINDS)
        pretrained_add(list, "pooling", wb__token_pool(c->pooling, c->normalise));
    if (c->pooler)
        pretrained_add(list, "pooler", pretrained_dense(width, width, wb_tanh, true, dtype));
    if (c->head)
        pretrained_add(list, "head", pretrained_dense(width, vocabulary, NULL, false, dtype));
}

/* Returns the model, with parameters whose values are not set.  NULL with the error set. */
static wb_layer *pretrained_make(const wb__hub_config *c, wb_dtype dtype)
{
    enum { OTHERS = 9 };                /* the most layers that are no blocks */
    layer_list list = {wb__alloc((size_t)(c->blocks + OTHERS) * sizeof *list.layers), 0, false};
    if (!list.layers) return NULL;
    pretrained_add_layers(&list, c, dtype);
    wb_layer *model = list.failed ? NULL : wb__transformer(list.n, list.layers);
    wb__free(list.layers);
    if (model && c->head && !c->untied &&
        wb_tie(model, "layers.head.weight", "layers.tokens.weight"))
        return NULL;
    return model;
}

/* Sets the parameter to the values of the file.  Returns 0 or an error code. */
static int pretrained_set_values(wb_layer *model, const wb__hub_parameter *p)
{
    const wb__child *child = wb__child_at("load_pretrained", model, p->path, NULL);
    if (!child) return wb_error_code();
    wb_tensor *x = child->object;
    const size_t each = wb__dtype_size((wb_dtype)x->dtype), bytes = (size_t)x->size * each;
    const int64_t part = p->dims[p->ndim - 1] / p->parts;       /* of the last axis */
    const char *from = (const char *)p->entry->data + (size_t)(p->part * part) * each;
    if (!p->turned) return wb__overwrite(x, from, bytes);
    void *turned = wb__alloc_aligned(bytes);
    if (!turned) return WB_ERROR_MEMORY;
    wb__transpose(turned, from, each, p->dims[0], part, p->dims[1]);
    const int status = wb__overwrite(x, turned, bytes);
    wb__free(turned);
    return status;
}

/* Sets the head and the pooling of c for the requested output.  Returns 0 or an error code. */
static int pretrained_set_output(const char *folder, int64_t output, wb__hub_config *c)
{
    c->pooler = output == WB_PRETRAINED_POOLED;
    if (output != WB_PRETRAINED_TOKENS) c->head = false;
    if (!c->pooler) return 0;
    const wb__hub_row *row = c->family->rows;
    while (row->file && strcmp(row->layer, "pooler")) row++;
    c->pooling = WB__TOKENS_FIRST;
    return row->file ? 0
                     : wb__fail(WB_ERROR_UNSUPPORTED, "%s: a model of model_type \"%s\" has no "
                                "pooler", folder, c->family->type);
}

static wb_layer *pretrained_load(const char *folder, const wb__hub_config *c)
{
    wb__hub_weights w = {0};
    wb__hub_parameters all = {0};
    wb_dtype dtype;
    wb_layer *model = NULL;
    int status = wb__hub_weights_read(folder, &w);
    if (!status) status = wb__hub_match(folder, c, &w, &all, &dtype);
    if (!status) model = pretrained_make(c, dtype);
    for (int i = 0; model && i < all.n; i++)
        if (pretrained_set_values(model, &all.rows[i])) model = NULL;
    wb__hub_parameters_free(&all);
    wb__hub_weights_free(&w);
    return model;
}

wb_layer *wb_load_pretrained_with(const char *folder, const wb_load_pretrained_options *given)
{
    WB__FIRST(wb_load_pretrained_with, NULL);
    wb_load_pretrained_options o;
    wb__hub_config c = {.pooling = WB__TOKENS_KINDS};
    char *base = NULL;
    if (!wb__read_options("load_pretrained", wb_load_pretrained_options, &o, given, NULL))
        return NULL;
    if (!folder) return wb__fail_null(WB_ERROR_ARGUMENT, "load_pretrained: no folder");
    if (o.output < 0 || o.output > WB_PRETRAINED_SENTENCES)
        return wb__fail_null(WB_ERROR_ARGUMENT, "load_pretrained: .output is %lld; it is "
                             "WB_PRETRAINED_TOKENS, _POOLED or _SENTENCES", (long long)o.output);
    const wb__frame f = wb__frame_begin();
    int status = o.output == WB_PRETRAINED_SENTENCES ? wb__hub_sentences_read(folder, &base, &c)
                                                     : wb__hub_config_read(folder, &c);
    if (!status) status = pretrained_set_output(folder, o.output, &c);
    wb_layer *model = status ? NULL : pretrained_load(base ? base : folder, &c);
    wb__free(base);
    return wb__frame_end(f, model);
}
