/* Test doubles of NVIDIA's driver and libraries, for machines without a GPU; never installed.
 *
 * They are shared objects with the names and functions of the real libraries, and run the kernels'
 * text on the processor.  They check their arguments as strictly as the real libraries, and in some
 * cases more strictly, to find mistakes.  They have only the functions that Weber and the doubles'
 * own tests call:
 *
 *   driver.h     declarations of the driver's interface
 *   inside.h     declarations that the files of the driver's double share
 *   books.c      counts of handles, calls and wrong uses
 *   device.c     devices, contexts, the current context of each thread
 *   memory.c     memory, in an address range of each device that nothing else uses; pools
 *   copy.c       copies
 *   stream.c     streams, events, scheduling
 *   graph.c      stream capture, graphs
 *   module.c     modules, kernels, launches
 *   engine.c     executes a kernel: one group after another, a fiber for each item that waits at a
 *                barrier
 *   nvrtc.c      libnvrtc: compiles kernels with a C++ compiler and shim.h
 *   cublaslt.c   libcublasLt: products in plain loops
 *   cudnn.c cudnn_run.c  libcudnn: its graphs, in plain loops
 *   nccl.c nccl_run.c    libnccl, and librccl
 *
 * Commands are queued, and run when a call waits.  A stream without an event to wait for is likely
 * to run before another one, so that a missing event gives wrong results.
 *
 * Environment variables (and their defaults):
 *   VGPU_DEVICES=n         the number of devices (2)
 *   VGPU_MEMORY=bytes      the memory of each device (4 GiB)
 *   VGPU_ARCH=n            their compute capability (90)
 *   VGPU_SCHEDULE          the stream that runs next: round (each in turn), latest (the newest
 *                          stream), lazy (only commands that a call waits for), random:SEED;
 *                          for a graph see graph.c
 *   VGPU_ORDER=backward    runs groups, and items in them, from the last to the first
 *   VGPU_ORDER=shuffled    runs groups in another order at each launch
 *   VGPU_QUEUE=n           how many commands a stream queues before some are run (512)
 *   VGPU_PEERS=0           no device can access the memory of another one
 *   VGPU_POOLS=0           no memory pools
 *   VGPU_KERNEL_TIMES=a,b  a kernel takes a + b * (the number of its groups) microseconds, as
 *                          cuEventElapsedTime shows (0,0)
 *   VGPU_VERBOSE=1         prints wrong uses when they happen
 *   VGPU_STRICT=1          a process with wrong uses exits with status 99
 *   VGPU_DRY=1             kernels are not compiled, they and operations of the libraries do not
 *                          run, and copies from the device give zeros, so that plans of any size
 *                          take little time; at the end of the process a line on stderr has the
 *                          largest graph's number of nodes, the most memory that was in use, and
 *                          the nodes of the longest chain of that graph
 *   VGPU_FAIL=n, n+        the n-th call, counted from cuInit on, fails; n+: all later ones too
 *   VGPU_LIBRARY           the file of the driver's double, if WEBER_CUDA_LIBRARY does not name it
 *   VGPU_CXX               the compiler of kernels
 *   VGPU_CACHE             a folder for compiled kernels
 *   VGPU_REAL_NVRTC        the file of the real library, which must compile some of the texts too
 *   CUDA_VISIBLE_DEVICES   as in the driver: device numbers up to the first one that is invalid */
#ifndef VGPU_H
#define VGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VGPU_API __attribute__((visibility("default")))

/* The objects that exist now, and the wrong uses since the last vgpu_forget. */
typedef struct {
    int64_t contexts;               /* primary contexts that are retained */
    int64_t streams, events, modules, pools, graphs, execs;
    int64_t blocks, bytes;          /* device memory: allocated and not freed */
    int64_t host_blocks, host_bytes;
    int64_t commands;               /* queued, not yet run */
    int64_t nodes, chain;           /* of the last graph that was launched: all; in its longest
                                       chain */
    int64_t held;                   /* objects of libraries' doubles that were not destroyed */
    int64_t wrong;                  /* wrong uses: by calls and by kernels */
    char first_wrong[256];
} vgpu_books;

VGPU_API void vgpu_read_books(vgpu_books *books);
/* How often a function of the driver was called since vgpu_forget; NULL: all functions. */
VGPU_API int64_t vgpu_calls(const char *name);
/* The number of graphs that were launched while an operation of NCCL was on another stream, and
 * their stream had not waited for it. */
VGPU_API int64_t vgpu_beside(void);
/* Resets the counts of calls and of wrong uses. */
VGPU_API void vgpu_forget(void);

/* True if VGPU_FAIL makes this call of the driver or of NVRTC fail.  Functions that release an
 * object never fail (it would leak), nor do those that describe an error.  A call that ends a
 * capture and fails has ended the capture. */
VGPU_API bool vgpu_fails(const char *name);
/* How many calls VGPU_FAIL made fail since the last call of this function; text names the first. */
VGPU_API int64_t vgpu_failed(char text[200]);

/* Contexts are not counted any more: HIP keeps its own until the process ends. */
VGPU_API void vgpu_contexts_stay(void);

/* ---- for the doubles of libraries ------------------------------------------------------------ */

struct CUstream_st;
struct CUctx_st;

/* A task of a library's double, executed in stream order like a kernel.  It may access device
 * memory only.  The payload is copied.  Both functions return a CUresult; a task that waits for
 * other ranks returns VGPU_AGAIN, and is called again. */
enum { VGPU_AGAIN = -1 };
typedef int vgpu_task(void *payload);
VGPU_API int vgpu_enqueue(struct CUstream_st *stream, const char *name, vgpu_task *task,
                          const void *payload, size_t bytes);
/* The same in a context that need not be current.  `drop`, which may be NULL, is called with the
 * payload when neither the stream nor a graph has the task any more, and if this fails. */
VGPU_API int vgpu_enqueue_in(struct CUctx_st *context, struct CUstream_st *stream, const char *name,
                             vgpu_task *task, void (*drop)(void *payload), const void *payload,
                             size_t bytes);
/* The last task takes this long, as cuEventElapsedTime shows. */
VGPU_API void vgpu_spend(struct CUstream_st *stream, double microseconds);
/* Whether the stream takes part in a capture, and how many kernels, copies and graphs were ever put
 * on it. */
VGPU_API bool vgpu_captured(struct CUstream_st *stream, int64_t *works);
/* For a task: fills its workspace with NaN, and counts a wrong use if a task that runs at the same
 * time writes there. */
VGPU_API void vgpu_scratch(void *at, size_t bytes);
/* The bytes from `at` to the end of its block, if the current context can access it; else 0. */
VGPU_API size_t vgpu_span(uint64_t at);
/* A library's double has created (change 1) or destroyed (-1) an object. */
VGPU_API void vgpu_held(int change);
/* Counts a wrong use that a library's double has found. */
VGPU_API void vgpu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
