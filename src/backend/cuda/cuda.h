/* Internal declarations of the CUDA backend, a wb__gpu_driver for the GPU runtime.
 *
 *   cu.h         declarations of the driver API and of NVRTC
 *   driver.c     opening the driver and NVRTC at run time; errors
 *   device.c     finding devices
 *   program.c    compilation by NVRTC
 *   cuda.c       opening and closing devices, memory, copies; the tables of backend and driver
 *   lt_api.h lt.h lt*.c       matrix products by cuBLASLt
 *   dnn_api.h dnn.h dnn*.c    convolutions and attention by graphs of cuDNN
 *   nccl.c       NCCL, which connects ranks
 *
 * The backend compiles without NVIDIA's headers: the declarations are ours (a test compares them
 * with the toolkit's headers, if these are installed), and libraries are opened at the first use.
 *
 * Environment variables:
 *
 *   WEBER_CUDA_LIBRARY    the driver's file, instead of libcuda.so.1
 *   WEBER_CUDA_PATH       a folder in which NVRTC, cuBLASLt, cuDNN and NCCL are searched
 *                         first
 *   WEBER_MEMORY_LIMIT    bytes that a device may use: 100M, 1.5GiB, 50%
 *   WEBER_GPU_TIMING      0: no algorithm of cuBLASLt, engine of cuDNN or tile of our own products
 *                         is timed; a number: those of steps that take longer than so many
 *                         microseconds are (50; runtime/timing.c)
 *   WEBER_CUDA_GRAPHS     0: plans are not recorded as graphs
 *   WEBER_GPU_BRANCHES    0: graphs have one branch
 *   WEBER_CUDA_CUBLASLT   0: cuBLASLt is not used
 *   WEBER_CUDA_CUDNN      0: cuDNN is not used
 *   WEBER_CUDA_NCCL       0: NCCL is not used */
#ifndef WB__CUDA_H
#define WB__CUDA_H

#include "backend/cuda/cu.h"
#include "backend/gpu/runtime/runtime.h"

typedef struct {
    wb__gpu_device gpu;
    CUdevice id;                /* the driver's number of the device */
    int arch;                   /* compute capability, 10 * major + minor, such as 90 */
    CUcontext context;          /* the device's primary context */
    CUstream stream[WB__GPU_QUEUES];
    CUmemoryPool pool;          /* NULL: the device has none */
    /* bit i is set once copies from device i to this device are prepared (enable_access) */
    uint64_t reached;
    int compiler;               /* index of the NVRTC in use, for wb__cu_compiler_at */
    bool portable;              /* NVRTC compiles to PTX, which the driver translates */
    CUstream dnn_stream;        /* the stream that was last set in cuDNN's handle */
} wb__cu_device;

static inline wb__cu_device *wb__cu_of(wb__gpu_device *d) { return (wb__cu_device *)d; }

extern const wb__gpu_driver wb__cu_driver;
extern const wb__gpu_hook wb__cu_lt, wb__cu_dnn;

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__cu_functions wb__cu;
#define cu wb__cu
/* Calls a function of the driver, records its name for messages, and returns the error code. */
#define CALL(name, ...) (wb__gpu_call = "cu" #name, (int)cu.name(__VA_ARGS__))

extern const wb__gpu_search wb__cu_search;
extern int wb__cu_driver_version;                           /* 1000 * major + 10 * minor */
/* whether the driver has the functions for graphs, and for memory pools; with WEBER_CUDA_GRAPHS=0
 * wb__cu_has_graphs is false */
extern bool wb__cu_has_graphs, wb__cu_has_pools;

int wb__cu_load(void);
int wb__cu_init(void);  /* starts the driver; returns 0, or an error whose message names the cure */
const char *wb__cu_error_name(int code);
int wb__cu_error_kind(int code);
void wb__cu_error_text(wb__gpu_device *d, int code, char *text, size_t capacity);

/* An NVRTC that was found and opened. */
typedef struct {
    wb__nvrtc_functions f;
    int version;                /* 1000 * major + 10 * minor */
} wb__cu_compiler;
/* Returns the i-th NVRTC that is found, and opens it at the first call for i.  NULL: there is none;
 * if i is 0, the error is set. */
const wb__cu_compiler *wb__cu_compiler_at(int i);

/* ---- device.c, program.c: functions of wb__gpu_driver ---------------------------------------- */

int wb__cu_find(wb__gpu_device **list, int *n);

bool wb__cu_options(wb__gpu_device *base, int flags, char *text, size_t capacity);
int wb__cu_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);

/* ---- lt.c, dnn.c ----------------------------------------------------------------------------- */

/* Return whether cuBLASLt (wb__cu_lt_works) or cuDNN (wb__cu_dnn_works) is usable.  If not, the
 * error is set.  The first call opens the library. */
bool wb__cu_lt_works(void);
/* the major version of CUDA that cuBLASLt belongs to, such as 13; 0: cuBLASLt is not usable */
int wb__cu_lt_major(void);
bool wb__cu_dnn_works(void);

#endif
