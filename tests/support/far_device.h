/* A device that the host cannot reach into, for tests on machines without one: the CPU's kernels
 * behind handles that are no addresses, without f64.  Whoever takes a handle for a pointer crashes;
 * every copy is counted, and the n-th call can be made to fail. */
#ifndef FAR_DEVICE_H
#define FAR_DEVICE_H

#include "backend/backend.h"

const wb_device *far_device(void);

typedef struct { int64_t uploads, up_bytes, downloads, down_bytes, copies, launches; } far_counts;
far_counts far_count(void);             /* since far_forget */
void far_forget(void);
int64_t far_held(void);                 /* bytes allocated and not released */
void far_fail_at(int64_t n);            /* the n-th call from now on fails, once; 0: none */
void far_views(int most);               /* fused kernels of more views are refused; 0: none */
void far_limit(int64_t bytes);          /* what it says to have in all; 0: it does not tell */
void far_watch(void (*seen)(const wb__step *step));     /* called with what is prepared; NULL: no more */

/* The devices to test on: three of the CPU, the far one and, where it works, OpenCL's; at most
 * MOST_PLACES.  The first is where everything begins. */
enum { MOST_PLACES = 8 };
int every_device(const wb_device *out[MOST_PLACES]);

/* Do the bits that this device computes agree with the CPU's?  (OpenCL's only nearly.) */
bool same_bits(const wb_device *d);

#endif
