/* The batches of one epoch in order, prepared ahead on a thread of their own. */
#ifndef WB__FEEDER_H
#define WB__FEEDER_H

#include "data/dataset.h"
#include "data/slots.h"

/* A prepared batch: a filled buffer, or finished tensors (of a mapped dataset or a collate
 * function; a reference each), or a failure whose message is wb__feeder's. */
typedef struct {
    int64_t n, index;
    wb__slot *slot;
    wb_tensor *x, *y;
    int code;
    const char *message;
} wb__feed;

typedef struct wb__feeder wb__feeder;

/* Batches of `batchsize` observations of `d` in the order given at wb__feeder_start, at most
 * `ahead` (0: none, all on the caller's thread).  The dataset is the caller's to keep alive. */
wb__feeder *wb__feeder_new(const wb_dataset *d, int64_t batchsize, int ahead, wb_collate collate,
                           void *ctx);
void wb__feeder_free(wb__feeder *f);            /* joins the thread; takes NULL */

/* Batches first .. last-1; batch i holds observations order[i*batchsize], ..., or i*batchsize, ...
 * where order is NULL.  Nothing may be under way. */
void wb__feeder_start(wb__feeder *f, const uint32_t *order, int64_t first, int64_t last);

/* Forgets what is prepared and waits until nothing is under way. */
void wb__feeder_stop(wb__feeder *f);

/* The next batch: one that exists must be asked for. */
wb__feed wb__feeder_next(wb__feeder *f);
void wb__feed_drop(wb__feed *feed);

/* Its tensors, in the current scope of the calling thread.  0, or its failure.  The feed is used
 * up. */
int wb__feed_open(const wb__feeder *f, wb__feed *feed, wb_batch *batch);

#endif
