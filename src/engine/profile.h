/* Times of kernels, between wb_profile_begin and wb__profile_take. */
#ifndef WB__PROFILE_H
#define WB__PROFILE_H

#include "engine/plan.h"

/* A launch of a kernel: its description (owned by the profile), the device, its start since the
 * beginning of the profile and its duration, in seconds, and the number of the thread. */
typedef struct {
    char *name;
    const wb_device *device;
    double start, duration;
    int thread;
} wb__launch_time;
typedef struct { int n, capacity; wb__launch_time *launches; } wb__profile;

extern _Atomic bool wb__profiling;
/* Launches step i of a plan, waits for it and notes its time.  Returns 0 or an error code. */
int wb__profile_launch(const wb__plan *p, int i, void **buffers, const size_t *offsets,
                       const wb__number *numbers);
/* Ends the profile and moves its launches to *out.  False, with the error set: none has begun. */
bool wb__profile_take(wb__profile *out);
void wb__profile_free(wb__profile *p);

#endif
