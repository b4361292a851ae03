/* The batches of one epoch in order, prepared ahead on a thread of their own: fetched, changed by
 * maps and the collate function, and sent to where they are wanted. */
#ifndef WB__FEEDER_H
#define WB__FEEDER_H

#include "data/dataset.h"
#include "data/slots.h"

/* A prepared batch: a filled buffer, or finished tensors (of a mapped dataset, a collate function or
 * another device; a reference each), or a failure whose message is wb__prefetcher's. */
typedef struct {
    int64_t n, index;
    wb__slot *slot;
    wb_tensor *x, *y;
    int code;
    const char *message;
} wb__feed;

/* Where batches are wanted; device NULL: they stay where they were made.  Floating parts become
 * `dtype`; where that is WB_DTYPE_DEFAULT they stay as they are, but for f64, which `narrow` makes
 * f32. */
typedef struct { const wb_device *device; wb_dtype dtype; bool narrow; } wb__target;
static inline wb_dtype wb__target_dtype(const wb__target *t, wb_dtype from)
{
    if (!wb__dtype_float(from)) return from;
    return t->dtype ? t->dtype : t->narrow && from == WB_F64 ? WB_F32 : from;
}

typedef struct wb__prefetcher wb__prefetcher;

/* Batches of `batchsize` observations of `d` in the order given at wb__prefetcher_start, at most
 * `ahead` (0: none, all on the caller's thread).  The dataset is the caller's to keep alive. */
wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, int64_t batchsize, int ahead, wb_collate collate,
                           void *ctx, const wb__target *target);
void wb__prefetcher_free(wb__prefetcher *f);            /* joins the thread; takes NULL */

/* Batches first .. last-1; batch i holds observations order[i*batchsize], ..., or i*batchsize, ...
 * where order is NULL.  Nothing may be under way.  0, or an error code. */
int wb__prefetcher_start(wb__prefetcher *f, const uint32_t *order, int64_t first, int64_t last);

/* Forgets what is prepared and waits until nothing is under way. */
void wb__prefetcher_stop(wb__prefetcher *f);

/* Is this thread preparing one of its batches, in a map or the collate function? */
bool wb__prefetcher_prepares(const wb__prefetcher *f);

/* The next batch: one that exists must be asked for. */
wb__feed wb__prefetcher_next(wb__prefetcher *f);
void wb__feed_drop(wb__feed *feed);

/* Its tensors, in the current scope of the calling thread.  0, or its failure.  The feed is used
 * up. */
int wb__feed_open(const wb__prefetcher *f, wb__feed *feed, wb_batch *batch);

#endif
