/* Saves and restores the position of a loader in its epochs, for checkpoints. weber/data.h
 * documents loaders. */
#ifndef WB__LOADER_H
#define WB__LOADER_H

#include "base/base.h"

/* wb__loader_state writes the seed, the number of completed epochs, the number of batches returned
 * in the current epoch, and the batch size to `state`. wb__loader_restore ends the current epoch;
 * the next batch is the batch that would have followed when `state` was written. Returns 0 or an
 * error code. */
void wb__loader_state(const wb_loader *l, uint64_t state[4]);
int wb__loader_restore(wb_loader *l, const uint64_t state[4]);

#endif
