/* Compiled kernels kept on disk, between runs of programs. */
#ifndef WB__KERNEL_CACHE_H
#define WB__KERNEL_CACHE_H

#include "base/base.h"

/* See host.h. */
void *wb__kernel_cache_get(const char *kind, const char *key, size_t key_bytes, size_t *bytes);
void wb__kernel_cache_put(const char *kind, const char *key, size_t key_bytes, const void *data,
                          size_t bytes);

/* For tests: how large the folder may grow, in place of 256 MiB. */
void wb__kernel_cache_limit(int64_t bytes);

#endif
