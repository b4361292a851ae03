/* Computing something in the middle of a graph that is being built. */
#ifndef WB__APART_H
#define WB__APART_H

#include "engine/tensor.h"

/* What the thread had before wb__apart_begin */
typedef struct {
    wb_tensor *guard, **pending;
    int n_pending, pending_capacity;
    struct wb__recording *recording;
    uint32_t recorded;
    const wb_device *device;
} wb__apart;

/* Between these calls the thread computes on d, outside of a recording and without the pending
 * writes and their guard, which stay as they are; no automatic evaluation starts. */
void wb__apart_begin(wb__apart *a, const wb_device *d);
void wb__apart_end(const wb__apart *a);

#endif
