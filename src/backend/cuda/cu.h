/* Declarations of the CUDA driver and of NVRTC: the types, constants and functions that the CUDA
 * backend uses, so that it compiles without NVIDIA's headers.  The function table and its loader
 * are generated from one list of functions per library.
 *
 * Names are NVIDIA's, except CUenum and names that begin with wb__.  Functions of the driver are
 * found by dlsym under the name with the version suffix that NVIDIA's headers add.  Enumerations
 * are passed as CUenum.  tests/drivers/cuda_headers.c compares everything with the toolkit's
 * headers. */
#ifndef WB__CU_H
#define WB__CU_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int CUenum;
typedef CUenum CUresult;
typedef CUenum nvrtcResult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct _nvrtcProgram *nvrtcProgram;

#define WB__CU_CONSTANTS(X)                                                                        \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                          \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                   \
    X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1)                                                      \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                          \
    X(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9)                                       \
    X(CU_SHAREDMEM_CARVEOUT_MAX_SHARED, 100)                                                       \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                            \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                            \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) X(CU_STREAM_NON_BLOCKING, 1)                \
    X(CU_EVENT_DISABLE_TIMING, 2) X(CU_MEMHOSTALLOC_PORTABLE, 1)                                   \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1) X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                          \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)               \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)        \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2) X(CUDA_ERROR_STUB_LIBRARY, 34)                                  \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46) X(CUDA_ERROR_NO_DEVICE, 100)                              \
    X(CUDA_ERROR_INVALID_IMAGE, 200) X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                          \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214) X(CUDA_ERROR_INVALID_PTX, 218)                            \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)             \
    X(CUDA_ERROR_CONTAINED, 226) X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                   \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)         \
    X(CUDA_ERROR_ASSERT, 710) X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                              \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                   \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) X(CUDA_ERROR_INVALID_PC, 718)                         \
    X(CUDA_ERROR_LAUNCH_FAILED, 719) X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                     \
    X(CUDA_ERROR_UNKNOWN, 999) X(NVRTC_ERROR_OUT_OF_MEMORY, 1) X(NVRTC_ERROR_INVALID_OPTION, 5)

#ifndef WB__CU_NO_CONSTANTS  /* defined by a test that includes NVIDIA's headers */
#define WB__CU_CONSTANT(name, value) name = value,
enum { WB__CU_CONSTANTS(WB__CU_CONSTANT) };
#undef WB__CU_CONSTANT
#endif

typedef struct { CUenum type; int id; } wb__cu_location;
typedef struct { wb__cu_location location; CUenum flags; } wb__cu_access;
typedef struct {
    CUenum type, handles;
    wb__cu_location location;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} wb__cu_pool_props;

/* X(name, version suffix, parameters).  Each function returns an error code, 0 for success. */
#define WB__CU_FUNCTIONS(X)                                                                        \
    X(Init, , (unsigned flags))                                                                    \
    X(DriverGetVersion, , (int *version))                                                          \
    X(DeviceGetCount, , (int *n))                                                                  \
    X(DeviceGet, , (CUdevice *device, int ordinal))                                                \
    X(DeviceGetName, , (char *name, int capacity, CUdevice device))                                \
    X(DeviceGetAttribute, , (int *value, CUenum what, CUdevice device))                            \
    X(DeviceTotalMem, _v2, (size_t *bytes, CUdevice device))                                       \
    X(DeviceCanAccessPeer, , (int *can, CUdevice device, CUdevice peer))                           \
    X(DevicePrimaryCtxRetain, , (CUcontext *made, CUdevice device))                                \
    X(DevicePrimaryCtxRelease, _v2, (CUdevice device))                                             \
    X(CtxPushCurrent, _v2, (CUcontext context))                                                    \
    X(CtxPopCurrent, _v2, (CUcontext *context))                                                    \
    X(CtxEnablePeerAccess, , (CUcontext peer, unsigned flags))                                     \
    X(MemGetInfo, _v2, (size_t *free, size_t *total))                                              \
    X(MemAlloc, _v2, (CUdeviceptr *made, size_t bytes))                                            \
    X(MemFree, _v2, (CUdeviceptr at))                                                              \
    X(MemHostAlloc, , (void **made, size_t bytes, unsigned flags))                                 \
    X(MemFreeHost, , (void *at))                                                                   \
    X(MemcpyHtoDAsync, _v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))     \
    X(MemcpyDtoHAsync, _v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))           \
    X(MemcpyDtoDAsync, _v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))     \
    X(MemcpyPeerAsync, ,                                                                           \
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,             \
       size_t bytes, CUstream stream))                                                             \
    X(StreamCreate, , (CUstream *made, unsigned flags))                                            \
    X(StreamDestroy, _v2, (CUstream stream))                                                       \
    X(StreamSynchronize, , (CUstream stream))                                                      \
    X(StreamWaitEvent, , (CUstream stream, CUevent event, unsigned flags))                         \
    X(EventCreate, , (CUevent *made, unsigned flags))                                              \
    X(EventDestroy, _v2, (CUevent event))                                                          \
    X(EventRecord, , (CUevent event, CUstream stream))                                             \
    X(EventSynchronize, , (CUevent event))                                                         \
    X(EventElapsedTime, , (float *milliseconds, CUevent begin, CUevent end))                       \
    X(ModuleLoadData, , (CUmodule *made, const void *image))                                       \
    X(ModuleUnload, , (CUmodule module))                                                           \
    X(ModuleGetFunction, , (CUfunction *function, CUmodule module, const char *name))              \
    X(FuncGetAttribute, , (int *value, CUenum what, CUfunction function))                          \
    X(FuncSetAttribute, , (CUfunction function, CUenum what, int value))                           \
    X(LaunchKernel, ,                                                                              \
      (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,       \
       unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra))             \
    X(StreamBeginCapture, _v2, (CUstream stream, CUenum mode))                                     \
    X(StreamEndCapture, , (CUstream stream, CUgraph *made))                                        \
    X(GraphInstantiateWithFlags, , (CUgraphExec *made, CUgraph graph, unsigned long long flags))   \
    X(GraphLaunch, , (CUgraphExec graph, CUstream stream))                                         \
    X(GraphExecDestroy, , (CUgraphExec graph))                                                     \
    X(GraphDestroy, , (CUgraph graph))                                                             \
    X(MemPoolCreate, , (CUmemoryPool *made, const wb__cu_pool_props *props))                       \
    X(MemPoolDestroy, , (CUmemoryPool pool))                                                       \
    X(MemPoolSetAttribute, , (CUmemoryPool pool, CUenum what, void *value))                        \
    X(MemPoolSetAccess, , (CUmemoryPool pool, const wb__cu_access *access, size_t n))              \
    X(MemPoolTrimTo, , (CUmemoryPool pool, size_t bytes))                                          \
    X(MemAllocFromPoolAsync, ,                                                                     \
      (CUdeviceptr *made, size_t bytes, CUmemoryPool pool, CUstream stream))                       \
    X(MemFreeAsync, , (CUdeviceptr at, CUstream stream))                                           \
    X(GetErrorName, , (CUresult code, const char **name))                                          \
    X(GetErrorString, , (CUresult code, const char **text))

/* X(name, parameters) */
#define WB__NVRTC_FUNCTIONS(X)                                                                     \
    X(Version, (int *major, int *minor))                                                           \
    X(GetNumSupportedArchs, (int *n))                                                              \
    X(GetSupportedArchs, (int *archs))                                                             \
    X(CreateProgram,                                                                               \
      (nvrtcProgram *made, const char *text, const char *name, int n,                              \
       const char *const *headers, const char *const *names))                                      \
    X(DestroyProgram, (nvrtcProgram *program))                                                     \
    X(CompileProgram, (nvrtcProgram program, int n, const char *const *options))                   \
    X(GetPTXSize, (nvrtcProgram program, size_t *bytes))                                           \
    X(GetPTX, (nvrtcProgram program, char *text))                                                  \
    X(GetCUBINSize, (nvrtcProgram program, size_t *bytes))                                         \
    X(GetCUBIN, (nvrtcProgram program, char *image))                                               \
    X(GetProgramLogSize, (nvrtcProgram program, size_t *bytes))                                    \
    X(GetProgramLog, (nvrtcProgram program, char *log))

/* The function tables: cu.LaunchKernel is cuLaunchKernel. */
#define WB__CU_FIELD(name, version, parameters) CUresult (*name) parameters;
#define WB__NVRTC_FIELD(name, parameters) nvrtcResult (*name) parameters;
typedef struct { WB__CU_FUNCTIONS(WB__CU_FIELD) } wb__cu_functions;
typedef struct {
    WB__NVRTC_FUNCTIONS(WB__NVRTC_FIELD)
    const char *(*GetErrorString)(nvrtcResult code);
} wb__nvrtc_functions;
#undef WB__CU_FIELD
#undef WB__NVRTC_FIELD

#endif
