/* Saves and restores the position of a loader in its epochs, for checkpoints.  weber/data.h
 * documents loaders. */
#ifndef WB__LOADER_H
#define WB__LOADER_H

#include "base/base.h"

/* The words of a loader's state.  Options of the loader matter only inside an epoch.  UINT64_MAX
 * means an option that a checkpoint of an older version does not have. */
enum {
    WB__LOADER_SEED, WB__LOADER_EPOCH,      /* number of completed epochs */
    WB__LOADER_POSITION,                    /* number of batches returned in the current epoch */
    WB__LOADER_BATCHSIZE, WB__LOADER_SHUFFLE, WB__LOADER_BUFFER,
    WB__LOADER_LENGTH,                      /* observations of the dataset; a stream: UINT64_MAX */
    WB__LOADER_WORDS
};

/* wb__loader_state writes `state`.  wb__loader_restore ends the current epoch; the next batch is
 * the batch that would have followed when `state` was written.  Returns 0 or an error code. */
void wb__loader_state(const wb_loader *l, uint64_t state[WB__LOADER_WORDS]);
int wb__loader_restore(wb_loader *l, const uint64_t state[WB__LOADER_WORDS]);

#endif
