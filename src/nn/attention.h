/* The cache of keys and values (cache.c), as MultiHeadAttention uses it. */
#ifndef WB__ATTENTION_H
#define WB__ATTENTION_H

#include "nn/layer.h"

/* Whether wb_call_cached is running on this thread. */
bool wb__cache_used(void);
/* Writes the new keys and values, [N, kv_heads, T, d], into the cache of wb_call_cached, and
 * replaces them by all `length` that the cache has. Sets *mask, bool [T, length], to the keys that
 * each new query sees. False with the error set. */
bool wb__cache_append(const wb_layer *l, bool causal, wb_tensor **k, wb_tensor **v,
                      wb_tensor **mask);

#endif
