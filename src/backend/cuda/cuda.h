/* The CUDA driver of the GPU runtime, from the inside.
 *
 *   cu.h         what is used of the driver and of NVRTC, declared
 *   driver.c     opening the driver and NVRTC at run time; errors
 *   device.c     finding devices, opening and closing them
 *   program.c    texts compiled by NVRTC
 *   cuda.c       memory, transfers, events, launches, graphs; the backend's table and the driver's
 *   lt_api.h lt.h lt*.c       matrix products by cuBLASLt
 *   dnn_api.h dnn.h dnn*.c    convolutions and attention by cuDNN's graphs
 *
 * Nothing of NVIDIA's is needed to build it: declarations are ours (a test compares them with the
 * toolkit's headers where these are), and libraries are opened when they are first wanted.
 *
 * Variables of the environment:
 *   WEBER_CUDA_LIBRARY    the driver's file, in place of libcuda.so.1
 *   WEBER_CUDA_PATH       a folder in which NVRTC, cuBLASLt and cuDNN are looked for first
 *   WEBER_MEMORY_LIMIT    bytes that a device may hold: 100M, 1.5GiB, 50%
 *   WEBER_CUDA_GRAPHS     0: plans are never made into graphs
 *   WEBER_CUDA_CUBLASLT, WEBER_CUDA_CUDNN    0: not used */
#ifndef WB__CUDA_H
#define WB__CUDA_H

#include "backend/cuda/cu.h"
#include "backend/gpu/runtime/runtime.h"

typedef struct {
    wb__gpu_device gpu;
    CUdevice id;
    int arch;                   /* 10 * major + minor of its compute capability: 90 */
    CUcontext context;          /* the primary one */
    CUstream stream[WB__GPU_QUEUES];
    CUmemoryPool pool;          /* NULL: the device has none */
    uint64_t reached;           /* devices from which it copies directly, as bits */
    int compiler;               /* which NVRTC, */
    bool portable;              /* and whether for the driver to translate (PTX) */
    CUstream dnn_stream;        /* of cuDNN's handle */
} wb__cu_device;

static inline wb__cu_device *wb__cu_of(wb__gpu_device *d) { return (wb__cu_device *)d; }

extern const wb__gpu_driver wb__cu_driver;
extern const wb__gpu_hook wb__cu_lt, wb__cu_dnn;

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__cu_functions wb__cu;
#define cu wb__cu
/* A call of the driver, noted for messages: its code. */
#define CALL(name, ...) (wb__gpu_call = "cu" #name, (int)cu.name(__VA_ARGS__))

extern const wb__gpu_search wb__cu_search;
extern int wb__cu_driver_version;                           /* 1000 * major + 10 * minor */
extern bool wb__cu_has_graphs, wb__cu_has_pools;            /* this driver knows them */

int wb__cu_load(void);
int wb__cu_init(void);          /* starts the driver; 0, or an error with what can be done */
const char *wb__cu_error_name(int code);
int wb__cu_error_kind(int code);
void wb__cu_error_text(wb__gpu_device *d, int code, char *text, size_t room);

/* One of the NVRTCs that are there; they are opened as they are wanted, first the one that suits
 * the driver best. */
typedef struct {
    wb__nvrtc_functions f;
    int version;                /* 1000 * major + 10 * minor */
} wb__cu_compiler;
/* NULL: there are no so many; for the first, with an error that says how to get it. */
const wb__cu_compiler *wb__cu_compiler_at(int i);

/* ---- device.c, program.c: as in wb__gpu_driver ----------------------------------------------- */

int wb__cu_find(wb__gpu_device **list, int *n);
int wb__cu_open(wb__gpu_device *base);
void wb__cu_close(wb__gpu_device *base);

bool wb__cu_options(wb__gpu_device *base, int flags, char *text, size_t room);
int wb__cu_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes);
int wb__cu_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                      void **program);
void wb__cu_unload(wb__gpu_device *base, void *program);
int wb__cu_function(wb__gpu_device *base, void *program, const char *entry, void **function,
                    size_t *most_items);

/* ---- lt.c, dnn.c ----------------------------------------------------------------------------- */

/* Whether the library can be used: opens it, once; false with the error set. */
bool wb__cu_lt_works(void);
int wb__cu_lt_major(void);      /* the CUDA that cuBLASLt is of, 13; 0: it cannot be used */
bool wb__cu_dnn_works(void);

#endif
