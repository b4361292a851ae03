/* Tensors that own a block of memory or a mapping, for readers of files. */
#ifndef WB__BORROW_H
#define WB__BORROW_H

#include "base/map.h"

static inline void wb__free_block(void *block, void *context)
{
    (void)context;
    wb__free(block);
}

/* For a tensor whose values are in a mapping. */
static inline void wb__free_mapping(void *data, void *mapping)
{
    (void)data;
    wb__unmap(mapping);
}

/* A tensor that owns the block, which comes from wb__alloc or wb__alloc_aligned. The block is freed
 * on failure too; NULL returns NULL. */
static inline wb_tensor *wb__borrow_block(void *block, wb_dtype dtype, int ndim,
                                          const int64_t *dims)
{
    wb_tensor *x = block ? wb_borrow(block, dtype, ndim, dims, wb__free_block, NULL) : NULL;
    if (!x) wb__free(block);
    return x;
}

#endif
