/* Compiled kernels kept on disk, between runs of programs, by a key of any text: in WEBER_CACHE_DIR,
 * else XDG_CACHE_HOME/weber, else ~/.cache/weber; WEBER_CACHE_DIR="" keeps none. */
#ifndef WB__KERNEL_CACHE_H
#define WB__KERNEL_CACHE_H

#include "base/base.h"

/* get: an allocated block, or NULL without an error where there is none; put: written beside and
 * renamed; failing is no error. */
void *wb__kernel_cache_get(const char *kind, const char *key, size_t key_bytes, size_t *bytes);
void wb__kernel_cache_put(const char *kind, const char *key, size_t key_bytes, const void *data,
                          size_t bytes);

/* For tests: how large the folder may grow, in place of 256 MiB. */
void wb__kernel_cache_limit(int64_t bytes);

#endif
