/* Devices, their primary contexts, and the stack of current contexts of each thread.  See
 * vgpu.h. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUctx_st vgpu_contexts[VGPU_MOST_DEVICES];
static bool started;
static int visible[VGPU_MOST_DEVICES], n_visible;

enum { DEEPEST = 64 };
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local int depth;

/* CUDA_VISIBLE_DEVICES: device numbers, up to the first one that is invalid or repeated. */
static void see_devices(void)
{
    long long all = vgpu_env_number("VGPU_DEVICES", 2);
    if (all > VGPU_MOST_DEVICES) all = VGPU_MOST_DEVICES;
    const char *s = getenv("CUDA_VISIBLE_DEVICES");
    n_visible = 0;
    for (int i = 0; !s && i < all; i++) visible[n_visible++] = i;
    while (s && n_visible < VGPU_MOST_DEVICES) {
        char *end;
        const long i = strtol(s, &end, 10);
        if (end == s || i < 0 || i >= all) break;
        bool again = false;
        for (int j = 0; j < n_visible; j++) again |= visible[j] == i;
        if (again) break;
        visible[n_visible++] = (int)i;
        while (*end == ' ') end++;
        if (*end != ',') break;
        s = end + 1;
    }
}

API(cuInit, (unsigned flags), (flags))
{
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!started) see_devices();
    if (!n_visible) return CUDA_ERROR_NO_DEVICE;
    started = true;
    return CUDA_SUCCESS;
}

int vgpu_devices(void) { return started ? n_visible : 0; }
bool vgpu_started(void) { return started; }

API(cuDriverGetVersion, (int *version), (version))
{
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = (int)vgpu_env_number("VGPU_DRIVER", 13000);
    return CUDA_SUCCESS;
}

/* The real NVRTC calls this for internal tables of the driver and works without them: this is not a
 * wrong use. */
VGPU_API CUresult cuGetExportTable(const void **table, const CUuuid *id);
VGPU_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_device(CUdevice d)
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    return d < 0 || d >= n_visible ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

API(cuDeviceGetCount, (int *n), (n))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (!n) return CUDA_ERROR_INVALID_VALUE;
    *n = n_visible;
    return CUDA_SUCCESS;
}

API(cuDeviceGet, (CUdevice *d, int ordinal), (d, ordinal))
{
    TRY(check_device(ordinal));
    *d = ordinal;
    return CUDA_SUCCESS;
}

API(cuDeviceGetName, (char *name, int length, CUdevice d), (name, length, d))
{
    TRY(check_device(d));
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "CUDA test double %d", visible[d]);
    return CUDA_SUCCESS;
}

API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice d), (bytes, d))
{
    TRY(check_device(d));
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = (size_t)vgpu_env_number("VGPU_MEMORY", 4ll << 30);
    return CUDA_SUCCESS;
}

/* Bytes of shared memory of a processor, by the compute capability. */
static int shared_of(int arch)
{
    switch (arch) {
    case 75: return 64 << 10;
    case 80: case 87: return 164 << 10;
    case 86: case 89: case 120: case 121: return 100 << 10;
    case 90: case 100: case 103: return 228 << 10;
    default: return 96 << 10;
    }
}

/* From 8.0 on the system has 1 KiB of each block. */
int vgpu_most_shared(void)
{
    const int arch = (int)vgpu_env_number("VGPU_ARCH", 90);
    return shared_of(arch) - (arch >= 80 ? 1 << 10 : 0);
}

API(cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice d), (value, which, d))
{
    TRY(check_device(d));
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    const int arch = (int)vgpu_env_number("VGPU_ARCH", 90);
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = vgpu_most_shared(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = shared_of(arch); break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = vgpu_dry() ? 132 : 1; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = arch / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = arch % 10; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = vgpu_env_number("VGPU_POOLS", 1) != 0;
        break;
    default:
        vgpu_wrong("cuDeviceGetAttribute: this double does not know attribute %d", (int)which);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static bool is_context(CUcontext c)
{
    return c >= vgpu_contexts && c < vgpu_contexts + VGPU_MOST_DEVICES;
}

CUcontext vgpu_current(void)
{
    CUcontext c = depth ? stack[depth - 1] : NULL;
    return c && c->retained ? c : NULL;
}

void vgpu_fault(CUcontext c, CUresult fault, const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    vgpu_wrong("%s", text);
    if (!c->fault) c->fault = fault;
}

static void end_context(CUcontext c)
{
    vgpu_wait_context(c);
    vgpu_end_streams(c);
    vgpu_each(c, VGPU_EVENT, vgpu_end);
    vgpu_each(c, VGPU_FUNCTION, vgpu_end);
    vgpu_each(c, VGPU_MODULE, vgpu_end);
    vgpu_free_context_memory(c);
    vgpu_each(c, VGPU_POOL, vgpu_end);
    c->fault = CUDA_SUCCESS;
    c->retained = 0;
    memset(c->peers, 0, sizeof c->peers);
}

API(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice d), (context, d))
{
    TRY(check_device(d));
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    CUcontext c = &vgpu_contexts[d];
    c->device = d;
    c->retained++;
    *context = c;
    return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxRelease_v2, (CUdevice d), (d))
{
    TRY(check_device(d));
    CUcontext c = &vgpu_contexts[d];
    if (!c->retained) return CUDA_ERROR_INVALID_CONTEXT;
    if (c->retained == 1) end_context(c);
    else c->retained--;
    return CUDA_SUCCESS;
}

API(cuCtxPushCurrent_v2, (CUcontext c), (c))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (!is_context(c) || !c->retained) return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == DEEPEST) return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = c;
    return CUDA_SUCCESS;
}

API(cuCtxPopCurrent_v2, (CUcontext *c), (c))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top = stack[--depth];
    if (c) *c = top;
    return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (CUcontext *c), (c))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    *c = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API(cuCtxSynchronize, (void), ())
{
    CONTEXT(c);
    SAFE_ONLY;
    return vgpu_wait_context(c);
}

/* ---- peer access ----------------------------------------------------------------------------- */

API(cuDeviceCanAccessPeer, (int *can, CUdevice d, CUdevice peer), (can, d, peer))
{
    TRY(check_device(d));
    TRY(check_device(peer));
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    *can = d != peer && vgpu_env_number("VGPU_PEERS", 1);
    return CUDA_SUCCESS;
}

API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
{
    CONTEXT(c);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!is_context(peer) || !peer->retained || peer == c) return CUDA_ERROR_INVALID_CONTEXT;
    if (!vgpu_env_number("VGPU_PEERS", 1)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (c->peers[peer->device]) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    c->peers[peer->device] = true;
    return CUDA_SUCCESS;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct { int code; const char *name, *text; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
#define ERROR(name, text) {CUDA_ERROR_##name, "CUDA_ERROR_" #name, text},
    ERROR(INVALID_VALUE, "invalid argument")
    ERROR(OUT_OF_MEMORY, "out of memory")
    ERROR(NOT_INITIALIZED, "initialization error")
    ERROR(NO_DEVICE, "no CUDA-capable device is detected")
    ERROR(INVALID_DEVICE, "invalid device ordinal")
    ERROR(INVALID_IMAGE, "device kernel image is invalid")
    ERROR(INVALID_CONTEXT, "invalid device context")
    ERROR(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")
    ERROR(UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")
    ERROR(NOT_FOUND, "named symbol not found")
    ERROR(INVALID_HANDLE, "invalid resource handle")
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered")
    ERROR(LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")
    ERROR(PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed")
    ERROR(LAUNCH_FAILED, "unspecified launch failure")
    ERROR(NOT_SUPPORTED, "operation not supported")
    ERROR(STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")
    ERROR(STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")
    ERROR(STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread")
    ERROR(UNKNOWN, "unknown error")
#undef ERROR
};

static CUresult describe(CUresult r, const char **text, bool name)
{
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)r) *text = name ? errors[i].name : errors[i].text;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGetErrorName, (CUresult r, const char **text), (r, text)) { return describe(r, text, true); }
API(cuGetErrorString, (CUresult r, const char **text), (r, text))
{
    return describe(r, text, false);
}
