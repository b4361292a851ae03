/* Test doubles of NVIDIA's driver and libraries: test parts only, which nobody installs.
 *
 * They are shared objects with the names and functions of the real ones, which run the kernels'
 * text on the processor.  They are as strict as the real ones where these are, and stricter where
 * that shows mistakes, and have only the functions that Weber and their own tests call:
 *
 *   driver.h     what is declared of the driver
 *   inside.h     what the files share
 *   books.c      handles, calls and wrong uses, counted
 *   device.c     devices, contexts, the threads' current ones
 *   memory.c     memory, in a range of addresses of each device that nothing else uses; pools
 *   copy.c       copies
 *   stream.c     streams, events, and who runs next
 *   graph.c      streams that are recorded, graphs
 *   module.c     modules, kernels, launches
 *   engine.c     runs a kernel: one group after another, a fiber for each item that meets a barrier
 *   nvrtc.c      libnvrtc: text to code, by a C++ compiler behind shim.h
 *   cublaslt.c   libcublasLt: products by plain loops
 *   cudnn.c cudnn_run.c  libcudnn: its graphs, by plain loops
 *
 * Commands are recorded, and run when somebody waits: a stream that was not told to wait for
 * another one is likely to run before it, so that a missing event gives wrong numbers.
 *
 * Variables of the environment:
 *   VGPU_DEVICES=n         how many devices there are (2)
 *   VGPU_MEMORY=bytes      what each has (4 GiB)
 *   VGPU_ARCH=90           their compute capability
 *   VGPU_SCHEDULE          which stream runs next: round (each in turn), latest (the one that was
 *                          made last), lazy (only what is waited for), random:SEED
 *   VGPU_ORDER=backward    groups, and items in them, from the last to the first
 *   VGPU_QUEUE=n           commands that a stream holds before it runs some (512)
 *   VGPU_PEERS=0           no device reaches another one's memory
 *   VGPU_POOLS=0           no memory pools
 *   VGPU_VERBOSE=1         wrong uses are printed as they happen
 *   VGPU_STRICT=1          a process with wrong uses ends with code 99
 *   VGPU_FAIL=n, n+        the n-th call from cuInit on fails; and all behind it
 *   VGPU_CXX               the compiler of kernels
 *   VGPU_CACHE             a folder where their objects are kept
 *   VGPU_REAL_NVRTC        the real library's file: some texts must be compiled by it, too
 *   CUDA_VISIBLE_DEVICES   as the driver reads it: numbers, ending at the first that is none */
#ifndef VGPU_H
#define VGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VGPU_API __attribute__((visibility("default")))

/* What is there at the moment, and what was done wrong since the last vgpu_forget. */
typedef struct {
    int64_t contexts;               /* primary contexts that somebody retains */
    int64_t streams, events, modules, pools, graphs, execs;
    int64_t blocks, bytes;          /* of devices' memory: allocated, not yet given back */
    int64_t host_blocks, host_bytes;
    int64_t commands;               /* recorded, not yet run */
    int64_t wrong;                  /* calls that broke a rule, and kernels that did */
    char first_wrong[256];
} vgpu_books;

VGPU_API void vgpu_read_books(vgpu_books *books);
/* How often a function of the driver was called since then; of all together: NULL. */
VGPU_API int64_t vgpu_calls(const char *name);
/* Counts and wrong uses from zero. */
VGPU_API void vgpu_forget(void);

/* Whether this call of the driver or of NVRTC is to fail, as VGPU_FAIL asks.  What gives something
 * back never fails (it would leak), nor what only reports.  A capture that fails to end has
 * ended. */
VGPU_API bool vgpu_fails(const char *name);
/* How many calls failed so since it was last asked, and in `text` the first of them. */
VGPU_API int64_t vgpu_failed(char text[200]);

/* ---- for the doubles of libraries ------------------------------------------------------------ */

struct CUstream_st;

/* Something that a library does in the order of a stream, as its kernels would: it may touch the
 * device's memory, and only that.  The payload is copied.  A CUresult. */
typedef int vgpu_task(void *payload);
VGPU_API int vgpu_enqueue(struct CUstream_st *stream, const char *name, vgpu_task *task,
                          const void *payload, size_t bytes);
/* Bytes from `at` to the end of its block that the current context's device reaches; 0: none. */
VGPU_API size_t vgpu_span(uint64_t at);
/* A use that a library's double found wrong. */
VGPU_API void vgpu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
