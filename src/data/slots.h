/* Buffers for batches, lent to tensors and taken back: in the steady state nothing is allocated. */
#ifndef WB__SLOTS_H
#define WB__SLOTS_H

#include "base/base.h"

#include <pthread.h>

typedef struct wb__slots wb__slots;     /* a stock of buffers of one size */
typedef struct wb__slot {
    wb__slots *stock;
    void *data[2];                      /* x, y; aligned to 64 bytes */
    int holders;                        /* tensors that still stand on it */
    struct wb__slot *next;
} wb__slot;

/* At most `keep` unused buffers are kept. */
wb__slots *wb__slots_new(size_t x_bytes, size_t y_bytes, int keep);

/* Makes what is missing of the `keep` buffers, so that it does not depend on who was the faster how
 * many there are.  0, or an error code. */
int wb__slots_fill(wb__slots *s);

/* The loader's end: unused buffers go now, lent ones when they come back, the stock with the last
 * of them. */
void wb__slots_close(wb__slots *s);

wb__slot *wb__slot_take(wb__slots *s);
void wb__slot_give(wb__slot *slot);                 /* back, from any thread; takes NULL */
void wb__slot_release(void *data, void *slot); /* of wb_borrow: the last holder gives it back */

/* One lock for all loaders: it is taken a few times a batch, and one lock is what fork can be made
 * safe with (a child finds it free, and what it guards whole).  Waits on conditions take the
 * mutex. */
extern pthread_mutex_t wb__data_mutex;
void wb__data_lock(void);
void wb__data_unlock(void);

#endif
