/* A pool of buffers for batches. Tensors borrow a buffer and give it back, so that an epoch needs
 * no new memory for the elements of batches once the pool is full. */
#ifndef WB__BUFFERS_H
#define WB__BUFFERS_H

#include "base/base.h"

#include <pthread.h>

typedef struct wb__buffer_pool wb__buffer_pool;
/* The memory of one batch. */
typedef struct wb__batch_buffer {
    wb__buffer_pool *pool;
    void *data[2];                      /* x, y; aligned to 64 bytes */
    int holders;                        /* tensors that use it */
    struct wb__batch_buffer *next;      /* in the list of unused buffers */
} wb__batch_buffer;

/* Makes a pool that keeps at most `keep` unused buffers of these sizes. NULL with the error set. */
wb__buffer_pool *wb__buffer_pool_new(size_t x_bytes, size_t y_bytes, int keep);

/* Allocates buffers until there are `keep`, so that their number does not depend on the timing of
 * threads. 0, or an error code. */
int wb__buffer_pool_fill(wb__buffer_pool *s);

/* Closes the pool: frees unused buffers; lent buffers are freed when they come back, and the pool
 * with the last of them. */
void wb__buffer_pool_close(wb__buffer_pool *s);

/* Returns an unused buffer, or a new buffer; NULL with the error set if memory is short. */
wb__batch_buffer *wb__buffer_take(wb__buffer_pool *s);
/* Gives a buffer back to its pool, from any thread; NULL is allowed. */
void wb__buffer_give(wb__batch_buffer *buffer);
/* The release function for wb_borrow: the call for the last tensor that uses the buffer gives it
 * back. */
void wb__buffer_release(void *data, void *buffer);

/* The lock of all prefetchers and pools. It is taken only a few times for each batch. Since it is
 * one lock, it can be held during fork, so that a child finds it free and its data consistent. The
 * mutex itself is for pthread_cond_wait only. */
extern pthread_mutex_t wb__data_mutex;
void wb__data_lock(void);
void wb__data_unlock(void);

#endif
