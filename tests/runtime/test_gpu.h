/* A driver of the GPU runtime's, whose two devices are in memory: a GPU, and a processor behind it.
 * What is put on a queue stays there until somebody waits; then commands run, one after another, from
 * any queue whose next one need not wait.  So a missing event gives wrong numbers.  Kernels are C
 * functions that stand for the texts of by_hand.h.
 *
 * Variables of the environment, read when it starts:
 *   TEST_GPU_OBJECTS=1     as OpenCL's: memory is objects, arguments are bound, commands make events,
 *                          the queue is flushed, no graphs; otherwise as CUDA's: addresses, graphs,
 *                          memory that is there in the order of commands
 *   TEST_GPU_STAGED=0      transfers do not pass through pinned memory (only with objects)
 *   TEST_GPU_GRAPHS=0      commands cannot be recorded
 *   TEST_GPU_IMAGES=0      compiled images are not kept
 *   TEST_GPU_APART=1       no device copies from the other
 *   TEST_GPU_MEMORY=bytes  what each has (4 GiB)
 *   TEST_GPU_MOST=bytes    of one block (as the device)
 *   TEST_GPU_BUFFERS=n     that a kernel binds
 *   TEST_GPU_ARGS=bytes    of a kernel's arguments (4,096)
 *   TEST_GPU_NONE=text     there is no device, for this reason
 *   TEST_GPU_SCHEDULE      which queue runs next: round, latest, lazy (only what is waited for),
 *                          random:SEED
 *   TEST_GPU_FAIL=n, n+    the n-th call fails; and all behind it.  What gives back never fails
 *   TEST_GPU_CHOSEN        which devices there are, as a program chooses them */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "backend/backend.h"

extern const wb__backend test_gpu;

/* Calls of one of the driver's functions since gpu_forget; of all: NULL. */
int64_t gpu_calls(const char *name);
void gpu_forget(void);
/* How many calls failed since it was last asked, and in `text` the first of them. */
int64_t gpu_failed(char text[200]);
int64_t gpu_commands(void);             /* on the queues */
int64_t gpu_blocks(void);               /* of the devices' memory that were not given back */
int64_t gpu_graphs(void);
/* Runs a test with addresses, with objects, and with objects whose transfers are not staged; the
 * devices are those of by_hand.h. */
void gpu_each(void (*test)(void));
/* 0, or what is left and what was used wrongly, which is printed. */
int gpu_left(void);

#endif
