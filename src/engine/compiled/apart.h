/* Evaluates tensors while the program builds a graph, without a trace in that graph. */
#ifndef WB__APART_H
#define WB__APART_H

#include "engine/tensor.h"

/* The state of the thread before wb__apart_begin */
typedef struct {
    wb_tensor *guard, **pending;
    int n_pending, pending_capacity;
    struct wb__recording *recording;
    uint32_t recorded;
    const wb_device *device;
} wb__apart;

/* Sets the thread's state aside until wb__apart_end restores it.  In between, d is the thread's
 * device, the thread does not record, has no pending writes and no guard, and starts no automatic
 * evaluation. */
void wb__apart_begin(wb__apart *a, const wb_device *d);
void wb__apart_end(const wb__apart *a);

/* Returns 0 if a compiled function with n results can give n_out of them, else an error code. */
int wb__check_count(int n_out, int n);

/* Evaluates the tensors that the function with the results `out` used and did not create, but not
 * its assignments.  The tensors become constants of the recording.  (A tensor without a device is
 * computed from literals, and stays part of the graph.) */
int wb__evaluate_captured(wb__thread *t, int n, wb_tensor *const *out);

#endif
