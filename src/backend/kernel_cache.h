/* A disk cache of compiled kernels.  An entry is found by its kind, a string, and its key, any
 * bytes.  The folder is WEBER_CACHE_DIR; else XDG_CACHE_HOME/weber/kernels, if that path is
 * absolute; else ~/.cache/weber/kernels.  WEBER_CACHE_DIR="" disables the cache. */
#ifndef WB__KERNEL_CACHE_H
#define WB__KERNEL_CACHE_H

#include "base/base.h"

/* wb__kernel_cache_read returns the entry's data, which the caller frees; NULL, without an error:
 * none can be read.  wb__kernel_cache_write writes an entry, and reports no failure. */
void *wb__kernel_cache_read(const char *kind, const char *key, size_t key_bytes, size_t *bytes);
void wb__kernel_cache_write(const char *kind, const char *key, size_t key_bytes, const void *data,
                            size_t bytes);

/* For tests: sets the maximal size of the folder in bytes, which is 256 MiB by default. */
void wb__kernel_cache_set_limit(int64_t bytes);

#endif
