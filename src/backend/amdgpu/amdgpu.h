/* Internal declarations of the AMDGPU driver for the GPU runtime.
 *
 *   hip.h        declarations of HIP, hiprtc and comgr
 *   driver.c     opening HIP and its compiler at run time; errors
 *   amdgpu.c     devices, memory, copies, compilation; the tables
 *   blas.h blas.c      matrix products by rocBLAS
 *   miopen.h miopen.c  convolutions by MIOpen
 *   rccl.c       RCCL, which connects ranks
 *
 * Nothing from AMD is needed to compile the driver: the declarations are ours, and libraries are
 * opened at the first use.
 *
 * Environment variables:
 *
 *   WEBER_ROCM_PATH       a folder in which ROCm's libraries are searched first
 *   WEBER_MEMORY_LIMIT    bytes that a device may use: 100M, 1.5GiB, 50%
 *   WEBER_AMDGPU_GRAPHS   0: plans are not recorded as graphs
 *   WEBER_GPU_BRANCHES    0: graphs have one branch
 *   WEBER_GPU_TIMING      0: tiles of our own products are not timed (runtime/timing.c)
 *   WEBER_AMDGPU_ROCBLAS  0: rocBLAS is not used
 *   WEBER_AMDGPU_MIOPEN   0: MIOpen is not used
 *   WEBER_AMDGPU_RCCL     0: RCCL is not used
 *   HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES     read by AMD's runtime: the GPUs that it shows */
#ifndef WB__AMDGPU_H
#define WB__AMDGPU_H

#include "backend/amdgpu/hip.h"
#include "backend/gpu/runtime/runtime.h"

typedef struct {
    wb__gpu_device gpu;
    int id;                     /* HIP's device number */
    char arch[64];              /* the instruction set and its features: gfx90a:sramecc+:xnack- */
    hipStream_t stream[WB__GPU_QUEUES];
    uint64_t reached;       /* bit i set: this device can access the memory of device i */
    int blas_kernels;   /* whether rocBLAS has kernels for the device: 1; -1: no; 0: not known */
    hipStream_t miopen_stream;  /* the stream that was last set in MIOpen's handle */
    bool blas_warned;           /* the warning that rocBLAS has no kernels was logged */
} wb__hip_device;

static inline wb__hip_device *wb__hip_of(wb__gpu_device *d) { return (wb__hip_device *)d; }

extern const wb__gpu_driver wb__hip_driver;
extern const wb__gpu_hook wb__hip_blas, wb__hip_miopen;
/* Return whether MIOpen works, whether rocBLAS works on any device (false: the error is set), and
 * whether rocBLAS works on d, whose lock is held. */
bool wb__hip_miopen_works(void), wb__hip_blas_works(void);
bool wb__hip_blas_serves(wb__hip_device *d);

/* ---- driver.c -------------------------------------------------------------------------------- */

extern wb__hip_functions wb__hip;
#define hip wb__hip
/* Calls a function of HIP and records its name for messages; returns the code. */
#define CALL(name, ...) (wb__gpu_call = "hip" #name, (int)hip.name(__VA_ARGS__))

extern const wb__gpu_search wb__hip_search;
extern int wb__hip_version;             /* the runtime's version: 10000000 * major + ... */
extern bool wb__hip_has_graphs;     /* the runtime has graphs, and WEBER_AMDGPU_GRAPHS is not 0 */

int wb__hip_load(void);
/* Starts HIP and counts its devices.  Returns 0, or an error with the cure, also for no device. */
int wb__hip_init(int *n);
const char *wb__hip_error_name(int code);
int wb__hip_error_kind(int code);
void wb__hip_error_text(wb__gpu_device *d, int code, char *text, size_t capacity);
extern const wb__hip_layout *wb__hip_properties;        /* layout in the opened runtime */

/* The compiler, which is opened once.  NULL: the error is set, with instructions. */
typedef struct {
    wb__hiprtc_functions f;
    int major, minor;           /* hiprtc's version */
} wb__hip_compiler;
const wb__hip_compiler *wb__hip_compiler_get(void);
/* Checks that comgr's list has the device's instruction set.  It is called before anything is
 * compiled for the device: with an instruction set that it does not know, AMD's compiler ends the
 * process.  Returns 0, or an error. */
int wb__hip_check_arch(const wb__hip_device *d);

#endif
