/* Routines beside the compute queue. */
#ifndef WB__GPU_ASIDE_H
#define WB__GPU_ASIDE_H

#include "backend/gpu/runtime/runtime.h"

/* wb__gpu_aside_make sets *made; on failure the caller drops *made, if it is not NULL.  With the
 * device's lock held, wb__gpu_aside_fork starts the routine of a kernel on its own queue, and
 * wb__gpu_aside_join makes the compute queue wait for its end.  A kernel has one launch at a time:
 * from aside_begins until aside_finish, or until aside_ends if the launch failed. */
int wb__gpu_aside_make(wb__gpu_device *d, struct wb__gpu_aside **made);
void wb__gpu_aside_drop(wb__gpu_device *d, struct wb__gpu_aside *a);
int wb__gpu_aside_fork(wb__gpu_device *d, const wb__gpu_kernel *k, const wb__gpu_addresses *at);
int wb__gpu_aside_join(wb__gpu_device *d, const wb__gpu_kernel *k);
void wb__gpu_aside_begins(const wb__gpu_kernel *k, void *const *buffers);
void wb__gpu_aside_ends(const wb__gpu_kernel *k);
int wb__gpu_aside_finish(wb__gpu_device *d, const wb__gpu_kernel *k);

#endif
