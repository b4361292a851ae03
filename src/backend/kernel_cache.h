/* A disk cache of compiled kernels that outlives the process.  A kind and any bytes form the key.
 * The folder is WEBER_CACHE_DIR; else XDG_CACHE_HOME/weber/kernels, if that path is absolute; else
 * ~/.cache/weber/kernels.  WEBER_CACHE_DIR="" disables the cache. */
#ifndef WB__KERNEL_CACHE_H
#define WB__KERNEL_CACHE_H

#include "base/base.h"

/* get: returns an allocated block, which the caller frees; NULL, without an error: there is no
 * entry, or it cannot be read.  put: writes a temporary file and renames it; a failure is not
 * reported. */
void *wb__kernel_cache_get(const char *kind, const char *key, size_t key_bytes, size_t *bytes);
void wb__kernel_cache_put(const char *kind, const char *key, size_t key_bytes, const void *data,
                          size_t bytes);

/* For tests: sets the maximal size of the folder in bytes, which is 256 MiB by default. */
void wb__kernel_cache_limit(int64_t bytes);

#endif
