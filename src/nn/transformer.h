/* Layers of the models that wb_load_pretrained makes.  weber/pretrained.h documents their calls and
 * the names of their layers. */
#ifndef WB__TRANSFORMER_H
#define WB__TRANSFORMER_H

#include "nn/layer.h"

/* Makes a Transformer of n layers of wb_named, in the order of the calls: tokens, positions, types,
 * embed_norm, dropout, block0, block1, ..., norm, pooling, pooler, head.  `tokens` and `positions`
 * are needed.  NULL with the error set. */
wb_layer *wb__transformer(int n, wb_layer *const *layers);
/* Returns the number of positions of a Transformer; INT64_MAX: l is another layer, or its table of
 * positions is no Embedding. */
int64_t wb__transformer_positions(const wb_layer *l);
/* Makes a TransformerBlock of n layers of wb_named: attention, norm1, dense1, dense2, norm2, and
 * dropout1 behind attention and dropout2 behind dense2, or none.  With `norm_first` the norms come
 * before attention and dense1, else behind the sums.  NULL with the error set. */
wb_layer *wb__transformer_block(bool norm_first, int n, wb_layer *const *layers);

/* How a TokenPool reduces [N, T, features] to [N, features], over the tokens of the mask. */
typedef enum {
    WB__TOKENS_FIRST,                     /* the first token */
    WB__TOKENS_MEAN,                      /* sum / max(count, 1e-9) */
    WB__TOKENS_MAX,
    WB__TOKENS_ROOT,                      /* sum / sqrt(max(count, 1e-9)) */
    WB__TOKENS_KINDS
} wb__token_pool_kind;
/* Makes a TokenPool.  With `normalise` the result is divided by max(its Euclidean norm, 1e-12). */
wb_layer *wb__token_pool(wb__token_pool_kind kind, bool normalise);

#endif
