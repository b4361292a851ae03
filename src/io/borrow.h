/* Functions for readers of files, which make tensors that own a block of memory or a mapped
 * file. */
#ifndef WB__BORROW_H
#define WB__BORROW_H

#include "base/map.h"

static inline void wb__free_block(void *block, void *context)
{
    (void)context;
    wb__free(block);
}

/* Releases the memory of a tensor whose values are in a mapped file. */
static inline void wb__free_mapping(void *data, void *mapping)
{
    (void)data;
    wb__unmap(mapping);
}

/* Returns a tensor that owns the block, which comes from wb__alloc or wb__alloc_aligned.  If no
 * tensor can be made, frees the block and returns NULL.  A NULL block gives NULL. */
static inline wb_tensor *wb__borrow_block(void *block, wb_dtype dtype, int ndim,
                                          const int64_t *dims)
{
    wb_tensor *x = block ? wb_borrow(block, dtype, ndim, dims, wb__free_block, NULL) : NULL;
    if (!x) wb__free(block);
    return x;
}

#endif
