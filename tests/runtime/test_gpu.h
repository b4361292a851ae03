/* A driver for the GPU runtime whose two devices exist only in host memory: a GPU, and after it a
 * processor.  Commands stay on their queues until a caller waits; then they run one at a time, from
 * any queue whose next command does not wait for an event.  So a missing event leads to wrong
 * numbers.  Each kernel text of by_hand.h has a C function here that computes the same.
 *
 * Variables of the environment, read when the driver starts:
 *   TEST_GPU_OBJECTS=1     like OpenCL: memory is objects, arguments are bound, commands make
 *                          events, the queue is flushed, no graphs; otherwise like CUDA: addresses,
 *                          graphs, memory that is allocated and freed in the order of commands
 *   TEST_GPU_STAGED=0      transfers do not pass through pinned memory (only with objects)
 *   TEST_GPU_GRAPHS=0      commands cannot be recorded
 *   TEST_GPU_IMAGES=0      compiled images are not kept
 *   TEST_GPU_APART=1       no device copies from the other device's memory
 *   TEST_GPU_MEMORY=bytes  the memory of each device (default: 4 GiB)
 *   TEST_GPU_MOST=bytes    the largest block (default: the device's memory)
 *   TEST_GPU_BUFFERS=n     the most buffers that a kernel binds
 *   TEST_GPU_ARGS=bytes    the most bytes of a kernel's arguments (default: 4,096)
 *   TEST_GPU_NONE=text     the driver has no device, for this reason
 *   TEST_GPU_SCHEDULE      the queue that runs next: round, latest, lazy (only the queue that a
 *                          caller waits for), random:SEED
 *   TEST_GPU_FAIL=n, n+    the n-th call fails (n); or it and all later ones (n+).  Calls that free
 *                          memory or destroy an object never fail
 *   TEST_GPU_CHOSEN        which devices the program sees, as CUDA_VISIBLE_DEVICES chooses them */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "backend/backend.h"

extern const wb__backend test_gpu;

/* The number of calls of one of the driver's functions since gpu_forget; NULL: of all functions. */
int64_t gpu_calls(const char *name);
void gpu_forget(void);
/* The number of calls that failed since the last query; `text`: the first of them. */
int64_t gpu_failed(char text[200]);
int64_t gpu_commands(void);             /* the number of queued commands */
int64_t gpu_blocks(void);               /* the number of blocks of device memory not freed */
int64_t gpu_graphs(void);
/* Runs a test with addresses, with objects, and with objects whose transfers are not staged; the
 * devices are those of by_hand.h. */
void gpu_each(void (*test)(void));
/* Returns the number of leaked objects and of wrong uses, which it prints. */
int gpu_left(void);

#endif
