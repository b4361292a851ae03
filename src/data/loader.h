/* The position of a loader in its epochs, for checkpoints. weber/data.h documents loaders. */
#ifndef WB__LOADER_H
#define WB__LOADER_H

#include "base/base.h"

/* state: seed, completed epochs, batches returned in the current epoch, batch size. Restoring ends
 * the current epoch; the next batch is the batch that would have followed. */
void wb__loader_state(const wb_loader *l, uint64_t state[4]);
int wb__loader_restore(wb_loader *l, const uint64_t state[4]);

#endif
