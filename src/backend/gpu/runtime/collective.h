/* Operations of the ranks that the communicator performs, where no library of the device does. */
#ifndef WB__GPU_COLLECTIVE_H
#define WB__GPU_COLLECTIVE_H

#include "backend/gpu/runtime/runtime.h"

typedef struct wb__gpu_collective wb__gpu_collective;

int wb__gpu_collective_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_collective **made);
void wb__gpu_collective_destroy(wb__gpu_device *d, wb__gpu_collective *a);
const char *wb__gpu_collective_impl(const wb__gpu_collective *a);
/* Begin the operation of a kernel, and wait for its end; each launch is followed by one finish. */
int wb__gpu_collective_launch(const wb_device *base, wb__gpu_collective *a,
                              void *const *buffers, const size_t *offsets);
int wb__gpu_collective_finish(const wb_device *base, wb__gpu_collective *a);

#endif
