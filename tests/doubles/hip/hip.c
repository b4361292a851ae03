/* A test double of AMD's HIP runtime.  See hip.h.  Codes are CUDA's: the ones used here have the
 * same numbers in HIP. */
#include "hip.h"

#include <pthread.h>
#include <string.h>

enum { MOST = 16 };

/* ---- devices --------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext context[MOST];         /* of each device: retained at its first use, never freed */
static _Thread_local int current;
static _Thread_local CUcontext pushed;  /* the context that this thread has pushed */

/* Makes the context of this thread's current device current for the engine. */
static int begin(void)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    if (!context[current]) code = (int)cuDevicePrimaryCtxRetain(&context[current], current);
    if (code) context[current] = NULL;
    pthread_mutex_unlock(&lock);
    if (code || pushed == context[current]) return code;
    if (pushed) {
        CUcontext old;
        cuCtxPopCurrent_v2(&old);
        pushed = NULL;
    }
    code = (int)cuCtxPushCurrent_v2(context[current]);
    if (!code) pushed = context[current];
    return code;
}
#define HIP(name, parameters, ...)                                                                 \
    VGPU_API int name parameters                                                                   \
    {                                                                                              \
        const int code_ = begin();                                                                 \
        return code_ ? code_ : (int)(__VA_ARGS__);                                                 \
    }

static _Atomic int shown_devices;

static int count(int *n)
{
    static const char *const names[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    const int code = (int)cuDeviceGetCount(n);
    for (int i = 0; i < 2 && !code; i++) {
        const char *visible = getenv(names[i]);
        if (!visible) continue;
        int shown = 0;          /* an invalid device number hides its device and all later ones */
        for (const char *p = visible; *p;) {
            char *end;
            const long id = strtol(p, &end, 10);
            if (end == p || id != shown || id >= *n) break;
            shown++;
            p = *end == ',' ? end + 1 : end;
        }
        *n = shown;
    }
    if (!code) shown_devices = *n;
    return code ? code : *n ? 0 : CUDA_ERROR_NO_DEVICE;
}

VGPU_API int hipInit(unsigned flags)
{
    int n, code = (int)cuInit(flags);
    vgpu_contexts_stay();
    if (code) return code;
    return count(&n);
}

VGPU_API int hipRuntimeGetVersion(int *version)
{
    if (vgpu_fails("hipRuntimeGetVersion")) return CUDA_ERROR_OUT_OF_MEMORY;
    *version = VGPU_ROCM * 10000000 + 200000 + 21153;
    return 0;
}

VGPU_API int hipGetDeviceCount(int *n) { return count(n); }

/* These two never fail for a device that exists: releasing functions call them too. */
VGPU_API int hipGetDevice(int *device)
{
    *device = current;
    return 0;
}

VGPU_API int hipSetDevice(int device)
{
    if (device < 0 || device >= shown_devices) return CUDA_ERROR_INVALID_DEVICE;
    current = device;
    return 0;
}

static int get_properties(char *to, int device, const size_t at[8], size_t bytes)
{
    int n, code = count(&n), items, local, processors;
    const int wave = strncmp(vgpu_gfx(), "gfx1", 4) ? 64 : 32, integrated = 0;
    size_t left, total;
    if (code) return code;
    if (device < 0 || device >= n) return CUDA_ERROR_INVALID_DEVICE;
    const int before = current;
    current = device;
    if (!(code = begin())) code = (int)cuMemGetInfo_v2(&left, &total);
    current = before;
    if (code) return code;
    if ((code = (int)cuDeviceGetAttribute(&items, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                          device)) ||
        (code = (int)cuDeviceGetAttribute(&local, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
                                          device)) ||
        (code = (int)cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                          device)))
        return code;
    const size_t shared = (size_t)local;
    memset(to, 0, bytes);
    snprintf(to + at[0], 256, "vgpu of AMD %d", device);
    memcpy(to + at[1], &total, sizeof total);
    memcpy(to + at[2], &shared, sizeof shared);
    memcpy(to + at[3], &wave, sizeof wave);
    memcpy(to + at[4], &items, sizeof items);
    memcpy(to + at[5], &processors, sizeof processors);
    memcpy(to + at[6], &integrated, sizeof integrated);
    snprintf(to + at[7], 256, "%s", vgpu_gfx());
    return 0;
}

/* The layouts: offsets of name, totalGlobalMem, sharedMemPerBlock, warpSize, maxThreadsPerBlock,
 * multiProcessorCount, integrated, gcnArchName; the size.  Those of ROCm 5 are offsetof in
 * hip_runtime_api.h 5.2.3, those of ROCm 6 in the declaration of hipDeviceProp_tR0600. */
VGPU_API int hipGetDeviceProperties(void *to, int device)
{
    return get_properties(to, device, (size_t[]){0, 256, 264, 276, 280, 336, 652, 396}, 792);
}

#if VGPU_ROCM >= 6
VGPU_API int hipGetDevicePropertiesR0600(void *to, int device)
{
    return get_properties(to, device, (size_t[]){0, 288, 296, 308, 320, 388, 396, 1160}, 1472);
}
#endif

VGPU_API int hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    extern CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice);
    return (int)cuDeviceCanAccessPeer(can, device, peer);
}

VGPU_API int hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    const int own = current;
    current = peer;
    int code = begin();                 /* retains the context of the peer */
    current = own;
    if (!code) code = begin();
    return code ? code : (int)cuCtxEnablePeerAccess(context[peer], flags);
}

/* ---- memory and copies ----------------------------------------------------------------------- */

static CUdeviceptr address(const void *at) { return (CUdeviceptr)(uintptr_t)at; }

static int allocate(void **made, size_t bytes)
{
    CUdeviceptr at = 0;
    const int code = (int)cuMemAlloc_v2(&at, bytes);
    *made = (void *)(uintptr_t)at;
    return code;
}

HIP(hipMemGetInfo, (size_t *left, size_t *total), cuMemGetInfo_v2(left, total))
HIP(hipMalloc, (void **made, size_t bytes), allocate(made, bytes))
HIP(hipFree, (void *at), cuMemFree_v2(address(at)))
HIP(hipHostMalloc, (void **made, size_t bytes, unsigned flags), cuMemHostAlloc(made, bytes, flags))
HIP(hipHostFree, (void *at), cuMemFreeHost(at))
HIP(hipMemcpyHtoDAsync, (void *to, void *from, size_t bytes, CUstream s),
    cuMemcpyHtoDAsync_v2(address(to), from, bytes, s))
HIP(hipMemcpyDtoHAsync, (void *to, void *from, size_t bytes, CUstream s),
    cuMemcpyDtoHAsync_v2(to, address(from), bytes, s))
HIP(hipMemcpyDtoDAsync, (void *to, void *from, size_t bytes, CUstream s),
    cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, s))
HIP(hipMemcpyPeerAsync,
    (void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream s),
    cuMemcpyPeerAsync(address(to), context[to_device], address(from), context[from_device], bytes,
                      s))

/* ---- streams and events ---------------------------------------------------------------------- */

HIP(hipStreamCreateWithFlags, (CUstream *made, unsigned flags), cuStreamCreate(made, flags))
HIP(hipStreamDestroy, (CUstream s), cuStreamDestroy_v2(s))
HIP(hipStreamSynchronize, (CUstream s), cuStreamSynchronize(s))
HIP(hipStreamWaitEvent, (CUstream s, CUevent e, unsigned flags), cuStreamWaitEvent(s, e, flags))
HIP(hipEventCreateWithFlags, (CUevent *made, unsigned flags), cuEventCreate(made, flags))
HIP(hipEventDestroy, (CUevent e), cuEventDestroy_v2(e))
HIP(hipEventRecord, (CUevent e, CUstream s), cuEventRecord(e, s))
HIP(hipEventSynchronize, (CUevent e), cuEventSynchronize(e))
HIP(hipEventElapsedTime, (float *ms, CUevent first, CUevent last),
    cuEventElapsedTime(ms, first, last))

/* ---- modules, launches, graphs --------------------------------------------------------------- */

extern CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what, CUfunction f);

/* The grid is counted in work-items, fewer than 2^32 in each dimension. */
static int launch(CUfunction f, const unsigned groups[3], const unsigned items[3], unsigned shared,
                  CUstream s, void **arguments, void **extra)
{
    for (int i = 0; i < 3; i++)
        if ((uint64_t)groups[i] * items[i] > UINT32_MAX) {
            vgpu_wrong("hipModuleLaunchKernel: %u groups of %u items", groups[i], items[i]);
            return CUDA_ERROR_INVALID_VALUE;
        }
    return (int)cuLaunchKernel(f, groups[0], groups[1], groups[2], items[0], items[1], items[2],
                               shared, s, arguments, extra);
}

HIP(hipModuleLoadData, (CUmodule *made, const void *image), cuModuleLoadData(made, image))
HIP(hipModuleUnload, (CUmodule m), cuModuleUnload(m))
HIP(hipModuleGetFunction, (CUfunction *f, CUmodule m, const char *name),
    cuModuleGetFunction(f, m, name))
HIP(hipFuncGetAttribute, (int *value, int what, CUfunction f),
    cuFuncGetAttribute(value, (CUfunction_attribute)what, f))
HIP(hipModuleLaunchKernel,
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared, CUstream s, void **arguments, void **extra),
    launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, s, arguments, extra))
HIP(hipStreamBeginCapture, (CUstream s, int mode),
    cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)mode))
HIP(hipStreamEndCapture, (CUstream s, CUgraph *made), cuStreamEndCapture(s, made))
HIP(hipGraphInstantiate, (CUgraphExec *made, CUgraph g, void **node, char *log, size_t bytes),
    (void)node, (void)log, (void)bytes, cuGraphInstantiateWithFlags(made, g, 0))
HIP(hipGraphLaunch, (CUgraphExec g, CUstream s), cuGraphLaunch(g, s))
HIP(hipGraphExecDestroy, (CUgraphExec g), cuGraphExecDestroy(g))
HIP(hipDeviceSynchronize, (void), cuCtxSynchronize())
HIP(hipGraphDestroy, (CUgraph g), cuGraphDestroy(g))

/* ---- errors ---------------------------------------------------------------------------------- */

VGPU_API const char *hipGetErrorName(int code)
{
    static const struct { int code; const char *name; } names[] = {
        {0, "hipSuccess"}, {1, "hipErrorInvalidValue"}, {2, "hipErrorOutOfMemory"},
        {3, "hipErrorNotInitialized"}, {100, "hipErrorNoDevice"}, {101, "hipErrorInvalidDevice"},
        {200, "hipErrorInvalidImage"}, {209, "hipErrorNoBinaryForGpu"}, {500, "hipErrorNotFound"},
        {700, "hipErrorIllegalAddress"}, {719, "hipErrorLaunchFailure"}, {999, "hipErrorUnknown"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    return "hipErrorUnknown";
}

VGPU_API const char *hipGetErrorString(int code) { return hipGetErrorName(code); }
