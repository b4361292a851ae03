/* Devices, their primary contexts, and which context is each thread's current one.  A test part:
 * see vgpu.h. */
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

/* CUDA_VISIBLE_DEVICES: numbers of devices, up to the first that is none or comes again. */
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

/* The real NVRTC asks for tables of the driver's own, and does without; no wrong use. */
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

API(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice d), (uuid, d))
{
    TRY(check_device(d));
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    memset(uuid->bytes, 0x56, sizeof uuid->bytes);
    uuid->bytes[15] = (char)visible[d];
    return CUDA_SUCCESS;
}

API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice d), (bytes, d))
{
    TRY(check_device(d));
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = (size_t)vgpu_env_number("VGPU_MEMORY", 4ll << 30);
    return CUDA_SUCCESS;
}

API(cuDeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice d), (value, which, d))
{
    static const struct { int which, value; } table[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}, {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024}, {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX}, {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10}, {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000}, {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0}, {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0}, {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0}, {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2}, {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    };
    TRY(check_device(d));
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    const int arch = (int)vgpu_env_number("VGPU_ARCH", 90);
    *value = 0;
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = arch / 10; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = arch % 10; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = visible[d] + 1; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = vgpu_env_number("VGPU_POOLS", 1) != 0;
        return CUDA_SUCCESS;
    default: break;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].which != (int)which) continue;
        *value = table[i].value;
        return CUDA_SUCCESS;
    }
    vgpu_wrong("cuDeviceGetAttribute: this double does not know attribute %d", (int)which);
    return CUDA_ERROR_INVALID_VALUE;
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

static void end_pool(void *pool) { vgpu_end(pool); }
static void end_event(void *e) { vgpu_end(e); }

static void end_context(CUcontext c)
{
    vgpu_wait_context(c);
    vgpu_end_streams(c);
    vgpu_each(c, VGPU_EVENT, end_event);
    vgpu_each(c, VGPU_FUNCTION, vgpu_end);
    vgpu_each(c, VGPU_MODULE, vgpu_end);
    vgpu_free_context_memory(c);
    vgpu_each(c, VGPU_POOL, end_pool);
    c->pool = NULL;
    c->null = NULL;
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
    if (!c->retained++) {
        c->null = vgpu_new(VGPU_STREAM, sizeof *c->null, c);
        c->null->last = &c->null->first;
        c->pool = vgpu_new(VGPU_POOL, sizeof *c->pool, c);
        c->pool->device = d;
        c->pool->is_default = true;
    }
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

API(cuDevicePrimaryCtxReset_v2, (CUdevice d), (d))
{
    TRY(check_device(d));
    if (vgpu_contexts[d].retained) end_context(&vgpu_contexts[d]);
    return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice d, unsigned flags), (d, flags))
{
    TRY(check_device(d));
    vgpu_contexts[d].flags = flags;
    return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxGetState, (CUdevice d, unsigned *flags, int *active), (d, flags, active))
{
    TRY(check_device(d));
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = vgpu_contexts[d].flags;
    *active = vgpu_contexts[d].retained > 0;
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

API(cuCtxSetCurrent, (CUcontext c), (c))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (c && (!is_context(c) || !c->retained)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!c) depth -= depth > 0;
    else if (depth) stack[depth - 1] = c;
    else stack[depth++] = c;
    return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, (CUcontext *c), (c))
{
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    *c = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API(cuCtxGetDevice, (CUdevice *d), (d))
{
    CONTEXT(c);
    if (!d) return CUDA_ERROR_INVALID_VALUE;
    *d = c->device;
    return CUDA_SUCCESS;
}

API(cuCtxSynchronize, (void), ())
{
    CONTEXT(c);
    SAFE_ONLY;
    return vgpu_wait_context(c);
}

API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
    CONTEXT(c);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

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

API(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
{
    CONTEXT(c);
    if (!is_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!c->peers[peer->device]) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    c->peers[peer->device] = false;
    return CUDA_SUCCESS;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct { int code; const char *name, *text; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
#define ERROR(name, text) {CUDA_ERROR_##name, "CUDA_ERROR_" #name, text},
    ERROR(INVALID_VALUE, "invalid argument")
    ERROR(OUT_OF_MEMORY, "out of memory")
    ERROR(NOT_INITIALIZED, "initialization error")
    ERROR(DEINITIALIZED, "driver shutting down")
    ERROR(NO_DEVICE, "no CUDA-capable device is detected")
    ERROR(INVALID_DEVICE, "invalid device ordinal")
    ERROR(INVALID_IMAGE, "device kernel image is invalid")
    ERROR(INVALID_CONTEXT, "invalid device context")
    ERROR(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")
    ERROR(UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")
    ERROR(NOT_FOUND, "named symbol not found")
    ERROR(NOT_READY, "device not ready")
    ERROR(INVALID_HANDLE, "invalid resource handle")
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered")
    ERROR(LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")
    ERROR(PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")
    ERROR(PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed")
    ERROR(LAUNCH_FAILED, "unspecified launch failure")
    ERROR(NOT_SUPPORTED, "operation not supported")
    ERROR(STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")
    ERROR(STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")
    ERROR(STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences")
    ERROR(STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")
    ERROR(STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")
    ERROR(STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")
    ERROR(STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing one")
    ERROR(CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")
    ERROR(STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread")
    ERROR(GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed")
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
