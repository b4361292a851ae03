/* A device whose memory the host cannot address, for tests on machines without a GPU.  It runs the
 * CPU's kernels, has no f64, and its handles are not addresses: a handle used as a pointer crashes.
 * Every copy is counted, and the n-th call can be made to fail. */
#ifndef FAR_DEVICE_H
#define FAR_DEVICE_H

#include "backend/backend.h"

const wb_device *far_device(void);

typedef struct { int64_t uploads, up_bytes, downloads, down_bytes, copies, launches; } far_counts;
far_counts far_count(void);             /* since far_forget */
void far_forget(void);
int64_t far_held(void);                 /* bytes allocated and not released */
void far_fail_at(int64_t n);            /* the n-th call from now on fails, once; 0: none */
void far_views(int most);               /* refuses fused kernels of more views; 0: no limit */
void far_limit(int64_t bytes);          /* the memory that it reports; 0: unknown */
void far_watch(void (*seen)(const wb__step *step));     /* called with each prepared step */

/* The devices to test on: three CPU devices, the far device and, if it works, OpenCL's first; at
 * most MOST_PLACES.  The first is the default device. */
enum { MOST_PLACES = 8 };
int every_device(const wb_device *out[MOST_PLACES]);

/* Runs all tests with every device.  It is a failure if the far device holds memory at the end. */
int run_everywhere(const wb_device *places[MOST_PLACES], int *n_places);

/* True if the device computes the same bits as the CPU (OpenCL devices do not). */
bool same_bits(const wb_device *d);

#endif
