/* A loader's place in its epochs, for checkpoints.  What loaders do is in weber/data.h. */
#ifndef WB__LOADER_H
#define WB__LOADER_H

#include "base/base.h"

/* Seed, epochs ended, batches handed out of the present one, batch size.  Restoring ends the epoch
 * under way; the next batch is the one that would have come next. */
void wb__loader_state(const wb_loader *l, uint64_t state[4]);
int wb__loader_restore(wb_loader *l, const uint64_t state[4]);

#endif
