/* A pool of buffers for batches.  Tensors borrow a buffer and give it back, so that an epoch needs
 * no new memory for the elements of batches once the pool is full. */
#ifndef WB__BUFFERS_H
#define WB__BUFFERS_H

#include "base/base.h"
#include "base/mutex.h"

typedef struct wb__buffer_pool wb__buffer_pool;
/* The memory of one batch. */
typedef struct wb__batch_buffer {
    wb__buffer_pool *pool;
    void **data;                        /* the memory of each field; aligned to 64 bytes */
    int holders;                        /* number of tensors that use the buffer */
    struct wb__batch_buffer *next;      /* the next unused buffer */
} wb__batch_buffer;

/* Makes an empty pool for buffers of n blocks, of bytes[0], ..., bytes[n - 1] bytes.  The pool
 * keeps at most `keep` unused buffers.  NULL with the error set. */
wb__buffer_pool *wb__buffer_pool_new(int n, const size_t *bytes, int keep);

/* Allocates buffers until the pool has `keep` buffers, lent buffers included.  Returns 0 or an
 * error code. */
int wb__buffer_pool_fill(wb__buffer_pool *s);

/* Closes the pool and frees the unused buffers.  A lent buffer is freed when it is given back.  The
 * pool is freed when no buffer is lent any more. */
void wb__buffer_pool_close(wb__buffer_pool *s);

/* Returns an unused buffer, or a new buffer; NULL with the error set if memory is short. */
wb__batch_buffer *wb__buffer_take(wb__buffer_pool *s);
/* Gives a buffer back to its pool.  Any thread may call this function.  `buffer` may be NULL. */
void wb__buffer_give(wb__batch_buffer *buffer);
/* Releases a tensor's hold of a buffer that was lent by wb_borrow.  The call for the last of the
 * tensors gives the buffer back to its pool. */
void wb__buffer_release(void *data, void *buffer);

/* wb__data_lock locks the one mutex of all prefetchers and pools.  Callers use the mutex itself
 * only to wait on condition variables. */
extern wb__mutex wb__data_mutex;
void wb__data_lock(void);
void wb__data_unlock(void);

#endif
