/* The cache of keys and values (cache.c), as MultiHeadAttention uses it. */
#ifndef WB__ATTENTION_H
#define WB__ATTENTION_H

#include "nn/layer.h"

/* The operands of attention in heads: q [N, heads, Tq, d], k and v [N, heads, Tk, d].  `mask`
 * (bool) and `bias` (floating, added to the scores) are WB_NONE if there is none.  If `here`, bool
 * [Tk], is not WB_NONE, it is true at one key, for which k and v have old numbers: k_now and v_now,
 * [N, heads, 1, d], replace them.  So k and v need not be computed before attention reads them.
 * `operands` are then those of wb__attention_cached, which has no separate k and v for each
 * head. */
typedef struct {
    wb_tensor *q, *k, *v, *mask, *bias, *here, *k_now, *v_now;
    wb_tensor *operands[6];
} wb__attended;

/* Whether wb_call_cached is running on this thread. */
bool wb__cache_used(void);
/* The number of positions that the cache of wb_call_cached has room for; 0 if none is running. */
int64_t wb__cache_length(void);
/* Whether a table of positions with `rows` rows is as long as the cache; x has the positions that
 * are looked up.  If not, sets the error.  True without a cache, and if x was not made by
 * wb_positions. */
bool wb__cache_fits(const wb_tensor *x, int64_t rows);
/* Appends the keys and values of x to the cache of wb_call_cached, and replaces them by all keys
 * and values of the cache.  Sets x->mask to true where a query may use a key.  False: error set. */
bool wb__cache_append(const wb_layer *l, bool causal, wb__attended *x);

#endif
