/* A prefetcher prepares the batches of an epoch ahead of their use, on threads of its own, and
 * returns them in order.  It fetches the observations, applies maps and the collate function, and
 * moves the batch to the target device. */
#ifndef WB__PREFETCHER_H
#define WB__PREFETCHER_H

#include "data/dataset.h"

#include "data/buffers.h"

/* A prefetched batch.  If `ended` is true, the epoch has ended without a batch.  If `code` is not
 * 0, preparing the batch has failed, and `message` is the error message, which the prefetcher owns.
 * Otherwise the batch is either a filled `buffer` or the evaluated tensors of `batch`, each with a
 * reference.  Tensors are used if the dataset has a map or is not on the CPU, or if the loader has
 * a collate function or a target device. */
typedef struct {
    int64_t n, index;                   /* number of observations; number of the batch */
    wb__batch_buffer *buffer;
    wb_batch batch;
    bool ended;
    int code;
    const char *message;
} wb__prefetched;

/* The device and the dtype to which batches are moved.  If `device` is NULL, batches stay on the
 * dataset's device.  `dtype` is the dtype of floating fields.  If `dtype` is WB_DTYPE_DEFAULT,
 * floating fields keep their dtype, but `narrow` converts f64 to f32. */
typedef struct { const wb_device *device; wb_dtype dtype; bool narrow; } wb__target;
static inline wb_dtype wb__target_dtype(const wb__target *t, wb_dtype from)
{
    if (!wb__dtype_float(from)) return from;
    return t->dtype ? t->dtype : t->narrow && from == WB_F64 ? WB_F32 : from;
}

typedef struct wb__prefetcher wb__prefetcher;

/* Makes a prefetcher for batches of `batchsize` observations of `d`.  o->workers threads prepare at
 * most `ahead` batches in advance.  If `ahead` is 0, the caller's thread prepares all batches.  The
 * caller keeps the dataset alive. */
wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, const wb_dataloader_options *o,
                                   int64_t batchsize, int ahead, const wb__target *target);
/* Joins the threads and frees the prefetcher.  f may be NULL. */
void wb__prefetcher_free(wb__prefetcher *f);

/* An epoch, whose batches first .. last-1 are prepared.  `order` has the indices of the
 * observations; batch i begins with observation order[i*batchsize].  If `order` is NULL, the
 * observations are in the order of the dataset.  Random numbers of maps depend on `seed`, on
 * `number`, which is the epoch's, on `rank`, of a share, and on the number of the batch. */
typedef struct {
    const uint32_t *order;
    int64_t first, last;
    uint64_t seed;
    int64_t number;
    int rank;
} wb__epoch;

/* Begins to prepare the batches of an epoch.  The prefetcher must be new or stopped.  Returns 0 or
 * an error code. */
int wb__prefetcher_start(wb__prefetcher *f, const wb__epoch *e);

/* Drops all prefetched batches and waits until the threads are idle. */
void wb__prefetcher_stop(wb__prefetcher *f);

/* Whether the calling thread is preparing a batch of f.  A caller gets true only if it runs inside
 * a map, a collate function or the function of a source. */
bool wb__prefetcher_prepares(const wb__prefetcher *f);

/* Returns the next batch.  Waits for the threads, or prepares the batch if no thread runs. */
wb__prefetched wb__prefetcher_next(wb__prefetcher *f);
void wb__prefetched_drop(wb__prefetched *fetched);

/* Creates the tensors of the batch in the current scope.  The only call allowed for *fetched
 * afterwards is wb__prefetched_drop.  Returns 0 or an error code.  If preparing the batch has
 * failed, returns the code of this failure. */
int wb__prefetched_open(wb__prefetcher *f, wb__prefetched *fetched, wb_batch *batch);

#endif
