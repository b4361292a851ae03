/* Prepares the batches of one epoch in order, ahead of their use, on its own thread: fetches them,
 * applies maps and the collate function, and moves them to the target device. */
#ifndef WB__PREFETCHER_H
#define WB__PREFETCHER_H

#include "data/dataset.h"

#include "data/buffers.h"
/* A prefetched batch: a filled buffer; or evaluated tensors (of a mapped dataset, a collate
 * function or another device; with a reference each); or an error, whose message the prefetcher
 * owns. */
typedef struct {
    int64_t n, index;
    wb__batch_buffer *buffer;
    wb_tensor *x, *y;
    int code;
    const char *message;
} wb__prefetched;

/* The target of batches. If `device` is NULL they stay on the dataset's device. Floating fields are
 * converted to `dtype`; with WB_DTYPE_DEFAULT they keep their dtype, except that `narrow` converts
 * f64 to f32. */
typedef struct { const wb_device *device; wb_dtype dtype; bool narrow; } wb__target;
static inline wb_dtype wb__target_dtype(const wb__target *t, wb_dtype from)
{
    if (!wb__dtype_float(from)) return from;
    return t->dtype ? t->dtype : t->narrow && from == WB_F64 ? WB_F32 : from;
}

typedef struct wb__prefetcher wb__prefetcher;

/* Prefetches batches of `batchsize` observations of `d`, at most `ahead` of them; 0: all batches
 * are prepared on the caller's thread. The caller keeps the dataset alive. */
wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, int64_t batchsize, int ahead,
                                   wb_collate collate, void *ctx, const wb__target *target);
/* Joins the thread; NULL is allowed. */
void wb__prefetcher_free(wb__prefetcher *f);

/* Starts with batches first .. last-1. Batch i has the observations order[i*batchsize], ..., or
 * i*batchsize, ... if order is NULL. The prefetcher must be stopped or new. 0, or an error code. */
int wb__prefetcher_start(wb__prefetcher *f, const uint32_t *order, int64_t first, int64_t last);

/* Drops all prefetched batches and waits until the thread is idle. */
void wb__prefetcher_stop(wb__prefetcher *f);

/* Whether this thread is preparing a batch of f: then the caller is a function of the program, such
 * as a map or a collate function. */
bool wb__prefetcher_prepares(const wb__prefetcher *f);

/* Returns the next batch, and waits for it or prepares it if it is not ready. The caller checks
 * that there is one. */
wb__prefetched wb__prefetcher_next(wb__prefetcher *f);
void wb__prefetched_drop(wb__prefetched *fetched);

/* Creates the batch's tensors in the current scope; afterwards *fetched may only be dropped.
 * Returns 0 or an error code, also if preparing the batch had failed. */
int wb__prefetched_open(const wb__prefetcher *f, wb__prefetched *fetched, wb_batch *batch);

#endif
