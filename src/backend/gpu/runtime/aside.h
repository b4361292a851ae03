/* Routines beside the compute queue. */
#ifndef WB__GPU_ASIDE_H
#define WB__GPU_ASIDE_H

#include "backend/gpu/runtime/runtime.h"

/* On failure the caller drops *made, if it is not NULL.  fork and join are called with the device's
 * lock held.  A kernel has one launch at a time: from aside_begins until aside_finish, or until
 * aside_ends if the launch failed. */
int wb__gpu_aside_make(wb__gpu_device *d, struct wb__gpu_aside **made);
void wb__gpu_aside_drop(wb__gpu_device *d, struct wb__gpu_aside *a);
int wb__gpu_aside_fork(wb__gpu_device *d, const wb__gpu_kernel *k, const wb__gpu_addresses *at);
int wb__gpu_aside_join(wb__gpu_device *d, const wb__gpu_kernel *k);
void wb__gpu_aside_begins(const wb__gpu_kernel *k, void *const *buffers);
void wb__gpu_aside_ends(const wb__gpu_kernel *k);
int wb__gpu_aside_finish(wb__gpu_device *d, const wb__gpu_kernel *k);

#endif
