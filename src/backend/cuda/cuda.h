/* The CUDA backend, from the inside.
 *
 *   cu.h         what is used of the driver and of NVRTC, declared
 *   driver.c     opening them at run time; their errors as ours; calls that fail when a test asks
 *   device.c     finding devices, opening and closing them, which of them is lost
 *   memory.c     memory with a cache and a limit, over the driver's stream-ordered pool
 *   transfer.c   uploads, downloads, copies within and between devices
 *   program.c    texts compiled by NVRTC, kept in memory and on disk
 *   kernel.c     steps prepared and launched
 *   graph.c      plans as one command
 *   table.c      in graphs: kernels whose arguments lie in the device's memory, many segments as one
 *   open.c       libraries of NVIDIA's
 *   lt_api.h lt.h lt*.c       matrix products by cuBLASLt
 *   dnn_api.h dnn.h dnn*.c    convolutions and attention by cuDNN's graphs
 *   cuda.c       the backend's table
 *   export.c     the one symbol of the shared object
 *
 * Nothing of NVIDIA's is needed to build it: declarations are ours (a test compares them with the
 * toolkit's headers where these are), and libraries are opened when they are first wanted.
 *
 * Variables of the environment:
 *   WEBER_CUDA_LIBRARY    the driver's file, in place of libcuda.so.1
 *   WEBER_CUDA_PATH       a folder in which NVRTC, cuBLASLt and cuDNN are looked for first
 *   WEBER_MEMORY_LIMIT    bytes that a device may hold: 100M, 1.5GiB, 50%
 *   WEBER_CUDA_GRAPHS     0: plans are never made into graphs
 *   WEBER_CUDA_CUBLASLT, WEBER_CUDA_CUDNN    0: not used
 *   WEBER_CUDA_FAIL       for tests: the n-th call of the driver fails; "n+": all from there on */
#ifndef WB__CUDA_H
#define WB__CUDA_H

#include "backend/host.h"
#include "backend/cuda/cu.h"

#include <pthread.h>

extern const wb__host *wb__cu_host;
extern const wb__backend wb__cu_backend;
#define host wb__cu_host

typedef struct wb__cu_device wb__cu_device;

/* The first of these files (a list that ends with NULL) that can be opened: in WEBER_CUDA_PATH, where
 * the system looks, where the toolkit is installed.  NULL: `why` holds what was said of the first. */
void *wb__cu_open_library(const char *const *names, char *why, size_t room);

/* ---- library routines: lt.c, dnn.c, dnn_attention.c -------------------------------------------
 *
 * A step that a library of NVIDIA's does.  It must be capturable: what it needs is made when it is
 * prepared, its memory is the workspace that it is lent. */

typedef struct wb__cu_routine wb__cu_routine;
struct wb__cu_routine {
    const char *impl;           /* for the printed plan: "cuBLASLt bias relu", "cuDNN" */
    size_t workspace;
    /* Enqueues on the stream, with the device's context current; buffers are addresses by number. */
    int (*launch)(wb__cu_device *d, wb__cu_routine *r, CUstream stream, const CUdeviceptr *buffers,
                  CUdeviceptr workspace);
    void (*destroy)(wb__cu_device *d, wb__cu_routine *r);
};

/* All of these, and a routine's own functions, are called with the device's context current and its
 * lock held.  0; WB_ERROR_UNSUPPORTED without a message: not by this library, and *why says in a few
 * words why not; another code: an error. */
int wb__cu_lt_prepare(wb__cu_device *d, const wb__step *step, wb__cu_routine **r, const char **why);
int wb__cu_dnn_prepare(wb__cu_device *d, const wb__step *step, wb__cu_routine **r, const char **why);
/* Whether it would take an epilogue, sums, attention: see `takes` of wb__backend. */
bool wb__cu_lt_takes(wb__cu_device *d, const wb__step *step);
bool wb__cu_dnn_takes(wb__cu_device *d, const wb__step *step);
bool wb__cu_dnn_prefers_nhwc(wb__cu_device *d, const wb__step *conv);
/* Whether the library can be used: opens it, once; false with the error set. */
bool wb__cu_lt_works(void);
bool wb__cu_dnn_works(void);
/* Handles that belong to a device: given back when it is closed, its context current. */
void wb__cu_lt_close(wb__cu_device *d);
void wb__cu_dnn_close(wb__cu_device *d);

#endif
