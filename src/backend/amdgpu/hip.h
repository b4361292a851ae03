/* Declarations of AMD's HIP runtime, hiprtc and code object manager (comgr), as far as this backend
 * uses them, so that it compiles without ROCm's headers.  Names and values are AMD's.
 * tests/drivers/amdgpu_headers.c compares those of HIP and hiprtc with the installed headers. */
#ifndef WB__HIP_H
#define WB__HIP_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int HIPenum;            /* as C passes enumerations */
typedef HIPenum hipError;
typedef HIPenum hiprtcResult;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct _hiprtcProgram *hiprtcProgram;

#define WB__HIP_CONSTANTS(X)                                                                       \
    X(hipStreamNonBlocking, 1) X(hipEventDisableTiming, 2) X(hipHostMallocPortable, 1)             \
    X(hipStreamCaptureModeThreadLocal, 1) X(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)           \
    X(hipErrorOutOfMemory, 2) X(hipErrorNoDevice, 100) X(hipErrorInvalidDevice, 101)               \
    X(hipErrorECCNotCorrectable, 214) X(hipErrorIllegalAddress, 700) X(hipErrorLaunchTimeOut, 702) \
    X(hipErrorPeerAccessAlreadyEnabled, 704) X(hipErrorContextIsDestroyed, 709)                    \
    X(hipErrorAssert, 710) X(hipErrorLaunchFailure, 719) X(HIPRTC_ERROR_OUT_OF_MEMORY, 1)

#ifndef WB__HIP_NO_CONSTANTS /* defined by the test that compares them with AMD's */
#define WB__HIP_CONSTANT(name, value) name = value,
enum { WB__HIP_CONSTANTS(WB__HIP_CONSTANT) };
#undef WB__HIP_CONSTANT
#endif

/* Offsets, in bytes, of fields of hipDeviceProp_t, which has two layouts: that of ROCm 5, filled by
 * hipGetDeviceProperties, and that of ROCm 6 and 7, filled by hipGetDevicePropertiesR0600.
 * X(field, offset in ROCm 5, offset in ROCm 6 and 7) */
#define WB__HIP_PROPERTIES(X)                                                                      \
    X(name, 0, 0) X(totalGlobalMem, 256, 288) X(sharedMemPerBlock, 264, 296)                       \
    X(warpSize, 276, 308) X(maxThreadsPerBlock, 280, 320) X(multiProcessorCount, 336, 388)         \
    X(gcnArchName, 396, 1160)
#define WB__HIP_OFFSET(name, five, six) uint16_t name;
typedef struct { WB__HIP_PROPERTIES(WB__HIP_OFFSET) } wb__hip_layout;
#undef WB__HIP_OFFSET
enum { WB__HIP_PROPERTIES_BYTES = 4096 };       /* more than either layout has */

/* X(field, name, parameters): each returns a code, 0 for success.  The fields have the names of
 * CUDA's driver API, which HIP follows (gpu/runtime/stream_api.h). */
#define WB__HIP_FUNCTIONS(X)                                                                       \
    X(Init, Init, (unsigned flags))                                                                \
    X(RuntimeGetVersion, RuntimeGetVersion, (int *version))                                        \
    X(DeviceSynchronize, DeviceSynchronize, (void))                                                \
    X(GetDeviceCount, GetDeviceCount, (int *n))                                                    \
    X(GetDevice, GetDevice, (int *device))                                                         \
    X(SetDevice, SetDevice, (int device))                                                          \
    X(DeviceCanAccessPeer, DeviceCanAccessPeer, (int *can, int device, int peer))                  \
    X(DeviceEnablePeerAccess, DeviceEnablePeerAccess, (int peer, unsigned flags))                  \
    X(MemGetInfo, MemGetInfo, (size_t *free, size_t *total))                                       \
    X(Malloc, Malloc, (void **made, size_t bytes))                                                 \
    X(Free, Free, (void *at))                                                                      \
    X(MemHostAlloc, HostMalloc, (void **made, size_t bytes, unsigned flags))                       \
    X(MemFreeHost, HostFree, (void *at))                                                           \
    X(MemcpyHtoDAsync, MemcpyHtoDAsync, (void *to, void *from, size_t bytes, hipStream_t stream))  \
    X(MemcpyDtoHAsync, MemcpyDtoHAsync, (void *to, void *from, size_t bytes, hipStream_t stream))  \
    X(MemcpyDtoDAsync, MemcpyDtoDAsync, (void *to, void *from, size_t bytes, hipStream_t stream))  \
    X(MemcpyPeerAsync, MemcpyPeerAsync,                                                            \
      (void *to, int to_device, const void *from, int from_device, size_t bytes,                   \
       hipStream_t stream))                                                                        \
    X(StreamCreate, StreamCreateWithFlags, (hipStream_t *made, unsigned flags))                    \
    X(StreamDestroy, StreamDestroy, (hipStream_t stream))                                          \
    X(StreamSynchronize, StreamSynchronize, (hipStream_t stream))                                  \
    X(StreamWaitEvent, StreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags))    \
    X(EventCreate, EventCreateWithFlags, (hipEvent_t *made, unsigned flags))                       \
    X(EventDestroy, EventDestroy, (hipEvent_t event))                                              \
    X(EventRecord, EventRecord, (hipEvent_t event, hipStream_t stream))                            \
    X(EventSynchronize, EventSynchronize, (hipEvent_t event))                                      \
    X(EventElapsedTime, EventElapsedTime, (float *ms, hipEvent_t begin, hipEvent_t end))           \
    X(ModuleLoadData, ModuleLoadData, (hipModule_t *made, const void *image))                      \
    X(ModuleUnload, ModuleUnload, (hipModule_t module))                                            \
    X(ModuleGetFunction, ModuleGetFunction,                                                        \
      (hipFunction_t *function, hipModule_t module, const char *name))                             \
    X(FuncGetAttribute, FuncGetAttribute, (int *value, HIPenum what, hipFunction_t function))      \
    X(LaunchKernel, ModuleLaunchKernel,                                                            \
      (hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
       unsigned bz, unsigned shared, hipStream_t stream, void **arguments, void **extra))

/* X(field, name, parameters) of the functions for graphs, which a runtime may lack. */
#define WB__HIP_GRAPH_FUNCTIONS(X)                                                                 \
    X(StreamBeginCapture, StreamBeginCapture, (hipStream_t stream, HIPenum mode))                  \
    X(StreamEndCapture, StreamEndCapture, (hipStream_t stream, hipGraph_t *made))                  \
    X(GraphInstantiate, GraphInstantiate,                                                          \
      (hipGraphExec_t *made, hipGraph_t graph, hipGraphNode_t *node, char *log, size_t log_bytes)) \
    X(GraphLaunch, GraphLaunch, (hipGraphExec_t graph, hipStream_t stream))                        \
    X(GraphExecDestroy, GraphExecDestroy, (hipGraphExec_t graph))                                  \
    X(GraphDestroy, GraphDestroy, (hipGraph_t graph))

/* X(name, parameters): each returns a code, 0 for success. */
#define WB__HIPRTC_FUNCTIONS(X)                                                                    \
    X(Version, (int *major, int *minor))                                                           \
    X(CreateProgram,                                                                               \
      (hiprtcProgram *made, const char *text, const char *name, int n, const char **headers,       \
       const char **names))                                                                        \
    X(DestroyProgram, (hiprtcProgram *program))                                                    \
    X(CompileProgram, (hiprtcProgram program, int n, const char **options))                        \
    X(GetCodeSize, (hiprtcProgram program, size_t *bytes))                                         \
    X(GetCode, (hiprtcProgram program, char *image))                                               \
    X(GetProgramLogSize, (hiprtcProgram program, size_t *bytes))                                   \
    X(GetProgramLog, (hiprtcProgram program, char *log))

/* The function tables: hip.MemHostAlloc is hipHostMalloc. */
#define WB__HIP_FIELD(field, name, parameters) hipError (*field) parameters;
#define WB__HIPRTC_FIELD(name, parameters) hiprtcResult (*name) parameters;
typedef struct {
    WB__HIP_FUNCTIONS(WB__HIP_FIELD)
    WB__HIP_GRAPH_FUNCTIONS(WB__HIP_FIELD)
    hipError (*GetDeviceProperties)(void *properties, int device);
    const char *(*GetErrorName)(hipError code);
    const char *(*GetErrorString)(hipError code);
} wb__hip_functions;
typedef struct {
    WB__HIPRTC_FUNCTIONS(WB__HIPRTC_FIELD)
    const char *(*GetErrorString)(hiprtcResult code);
} wb__hiprtc_functions;
#undef WB__HIP_FIELD
#undef WB__HIPRTC_FIELD

/* comgr's list of the instruction sets that the compiler knows: amdgcn-amd-amdhsa--gfx90a. */
typedef struct {
    int (*get_isa_count)(size_t *n);
    int (*get_isa_name)(size_t i, const char **name);
} wb__comgr_functions;

#endif
