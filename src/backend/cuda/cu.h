/* What this backend uses of the CUDA driver (11.4 and newer) and of NVRTC, declared here so that it
 * builds without any header of NVIDIA's: types, constants, and one list of functions a library, of
 * which the table of opened functions, its loader and its failing twin are made.
 *
 * The names are NVIDIA's, with the version in them that a header of theirs would put there: a driver
 * exports every version there ever was, so they are looked up by dlsym, and there is no need of
 * cuGetProcAddress, which knows fewer drivers.  Enumerations are CUenum, as C passes them.
 * tests/cuda_headers.c compares all of it with the toolkit's headers. */
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
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                            \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                            \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                             \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                   \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                  \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                 \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                            \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                              \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                       \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)                                                        \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                      \
    X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)                                                  \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                 \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                 \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                           \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                   \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                                                               \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                           \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                           \
    X(CUDA_ERROR_INVALID_PTX, 218)                                                                 \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                        \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                     \
    X(CUDA_ERROR_CONTAINED, 226)                                                                   \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                             \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                     \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                              \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                 \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                        \
    X(CUDA_ERROR_ASSERT, 710)                                                                      \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                        \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                         \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                          \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                       \
    X(CUDA_ERROR_INVALID_PC, 718)                                                                  \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                               \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                      \
    X(CUDA_ERROR_UNKNOWN, 999)                                                                     \
    X(NVRTC_ERROR_OUT_OF_MEMORY, 1) X(NVRTC_ERROR_INVALID_OPTION, 5)

#ifndef WB__CU_NO_CONSTANTS             /* the comparing test has them from the toolkit */
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

/* STATUS(name, parameters, arguments)         may fail
 * MAKE(name, parameters, arguments)           makes something, which it returns by address
 * RELEASE(name, parameters, arguments)        gives something back
 * ALWAYS(name, parameters, arguments)         only tells, or must not fail
 * END(name, parameters, arguments)            ends a capture and makes a graph, in *made
 * in this order, so that whoever wants all of one kind names it; the return type is a result. */
#define WB__CU_FUNCTIONS(STATUS, MAKE, RELEASE, ALWAYS, END)                                       \
    STATUS(Init, (unsigned flags), (flags))                                                        \
    STATUS(DriverGetVersion, (int *version), (version))                                            \
    STATUS(DeviceGetCount, (int *n), (n))                                                          \
    STATUS(DeviceGet, (CUdevice *device, int ordinal), (device, ordinal))                          \
    STATUS(DeviceGetName, (char *name, int room, CUdevice device), (name, room, device))           \
    STATUS(DeviceGetAttribute, (int *value, CUenum what, CUdevice device), (value, what, device))  \
    STATUS(DeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device))                   \
    STATUS(DeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer))   \
    MAKE(DevicePrimaryCtxRetain, (CUcontext *made, CUdevice device), (made, device))               \
    RELEASE(DevicePrimaryCtxRelease_v2, (CUdevice device), (device))                               \
    ALWAYS(CtxPushCurrent_v2, (CUcontext context), (context))                                      \
    ALWAYS(CtxPopCurrent_v2, (CUcontext *context), (context))                                      \
    STATUS(CtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))                   \
    STATUS(MemGetInfo_v2, (size_t *free, size_t *total), (free, total))                            \
    MAKE(MemAlloc_v2, (CUdeviceptr *made, size_t bytes), (made, bytes))                            \
    RELEASE(MemFree_v2, (CUdeviceptr at), (at))                                                    \
    MAKE(MemHostAlloc, (void **made, size_t bytes, unsigned flags), (made, bytes, flags))          \
    RELEASE(MemFreeHost, (void *at), (at))                                                         \
    STATUS(MemcpyHtoDAsync_v2,                                                                     \
           (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),                      \
           (to, from, bytes, stream))                                                              \
    STATUS(MemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),        \
           (to, from, bytes, stream))                                                              \
    STATUS(MemcpyDtoDAsync_v2,                                                                     \
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                      \
           (to, from, bytes, stream))                                                              \
    STATUS(MemcpyPeerAsync,                                                                        \
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,        \
            size_t bytes, CUstream stream),                                                        \
           (to, to_context, from, from_context, bytes, stream))                                    \
    MAKE(StreamCreate, (CUstream *made, unsigned flags), (made, flags))                            \
    RELEASE(StreamDestroy_v2, (CUstream stream), (stream))                                         \
    STATUS(StreamSynchronize, (CUstream stream), (stream))                                         \
    STATUS(StreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),                      \
           (stream, event, flags))                                                                 \
    MAKE(EventCreate, (CUevent *made, unsigned flags), (made, flags))                              \
    RELEASE(EventDestroy_v2, (CUevent event), (event))                                             \
    STATUS(EventRecord, (CUevent event, CUstream stream), (event, stream))                         \
    STATUS(EventSynchronize, (CUevent event), (event))                                             \
    MAKE(ModuleLoadData, (CUmodule *made, const void *image), (made, image))                       \
    RELEASE(ModuleUnload, (CUmodule module), (module))                                             \
    STATUS(ModuleGetFunction, (CUfunction *function, CUmodule module, const char *name),           \
           (function, module, name))                                                               \
    STATUS(FuncGetAttribute, (int *value, CUenum what, CUfunction function),                       \
           (value, what, function))                                                                \
    STATUS(LaunchKernel,                                                                           \
           (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,  \
            unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra),        \
           (function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra))                   \
    STATUS(StreamBeginCapture_v2, (CUstream stream, CUenum mode), (stream, mode))                  \
    END(StreamEndCapture, (CUstream stream, CUgraph *made), (stream, made))                        \
    MAKE(GraphInstantiateWithFlags, (CUgraphExec *made, CUgraph graph, unsigned long long flags),  \
         (made, graph, flags))                                                                     \
    STATUS(GraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream))                     \
    RELEASE(GraphExecDestroy, (CUgraphExec graph), (graph))                                        \
    RELEASE(GraphDestroy, (CUgraph graph), (graph))                                                \
    MAKE(MemPoolCreate, (CUmemoryPool *made, const wb__cu_pool_props *props), (made, props))       \
    RELEASE(MemPoolDestroy, (CUmemoryPool pool), (pool))                                           \
    STATUS(MemPoolSetAttribute, (CUmemoryPool pool, CUenum what, void *value),                     \
           (pool, what, value))                                                                    \
    STATUS(MemPoolSetAccess, (CUmemoryPool pool, const wb__cu_access *access, size_t n),           \
           (pool, access, n))                                                                      \
    STATUS(MemPoolTrimTo, (CUmemoryPool pool, size_t bytes), (pool, bytes))                        \
    MAKE(MemAllocFromPoolAsync,                                                                    \
         (CUdeviceptr *made, size_t bytes, CUmemoryPool pool, CUstream stream),                    \
         (made, bytes, pool, stream))                                                              \
    RELEASE(MemFreeAsync, (CUdeviceptr at, CUstream stream), (at, stream))                         \
    ALWAYS(GetErrorName, (CUresult code, const char **name), (code, name))                         \
    ALWAYS(GetErrorString, (CUresult code, const char **text), (code, text))

#define WB__NVRTC_FUNCTIONS(STATUS, MAKE, RELEASE, ALWAYS)                                         \
    STATUS(Version, (int *major, int *minor), (major, minor))                                      \
    STATUS(GetNumSupportedArchs, (int *n), (n))                                                    \
    STATUS(GetSupportedArchs, (int *archs), (archs))                                               \
    MAKE(CreateProgram,                                                                            \
         (nvrtcProgram *made, const char *text, const char *name, int n,                           \
          const char *const *headers, const char *const *names),                                   \
         (made, text, name, n, headers, names))                                                    \
    RELEASE(DestroyProgram, (nvrtcProgram *program), (program))                                    \
    STATUS(CompileProgram, (nvrtcProgram program, int n, const char *const *options),              \
           (program, n, options))                                                                  \
    STATUS(GetPTXSize, (nvrtcProgram program, size_t *bytes), (program, bytes))                    \
    STATUS(GetPTX, (nvrtcProgram program, char *text), (program, text))                            \
    STATUS(GetCUBINSize, (nvrtcProgram program, size_t *bytes), (program, bytes))                  \
    STATUS(GetCUBIN, (nvrtcProgram program, char *image), (program, image))                        \
    ALWAYS(GetProgramLogSize, (nvrtcProgram program, size_t *bytes), (program, bytes))             \
    ALWAYS(GetProgramLog, (nvrtcProgram program, char *log), (program, log))

/* The tables of opened functions: cu.LaunchKernel is cuLaunchKernel. */
#define WB__CU_FIELD(name, parameters, arguments) CUresult (*name) parameters;
typedef struct {
    WB__CU_FUNCTIONS(WB__CU_FIELD, WB__CU_FIELD, WB__CU_FIELD, WB__CU_FIELD, WB__CU_FIELD)
} wb__cu_functions;
typedef struct {
    WB__NVRTC_FUNCTIONS(WB__CU_FIELD, WB__CU_FIELD, WB__CU_FIELD, WB__CU_FIELD)
    const char *(*GetErrorString)(nvrtcResult code);
} wb__nvrtc_functions;
#undef WB__CU_FIELD

#endif
