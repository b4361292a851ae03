/* The functions of the CUDA backend, most of which are one call of the CUDA driver API, and the
 * tables of backend and driver.  Devices are opened at the first use.  Every call for a device
 * makes its primary context current and then restores the previous context.  Other users of CUDA in
 * this process share the primary context. */
#include "backend/cuda/cuda.h"
#include "backend/nccl/ranks.h"

#include <string.h>

#define API cu
#define API_STREAM CUstream
#define API_EVENT CUevent
#define API_MODULE CUmodule
#define API_FUNCTION CUfunction
#define API_GRAPH CUgraph
#define API_EXEC CUgraphExec
#define API_DEVICE wb__cu_device
#define API_AT(at) (at)
#define API_FROM(from) (from)
#define API_NON_BLOCKING CU_STREAM_NON_BLOCKING
#define API_NO_TIMING CU_EVENT_DISABLE_TIMING
#define API_PORTABLE CU_MEMHOSTALLOC_PORTABLE
#define API_THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define API_MOST_ITEMS CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
#define API_BEFORE_DROP() ((void)0)     /* CUDA itself waits for the graph */
#define API_PEER(d) ((d)->context)
#define API_ENABLE_PEER(d, source) cuda_enable_peer(d, source)
#define API_BEGIN(d) cuda_retain(d)
#define API_OPENED(d) ((d)->gpu.allocates_in_order ? cuda_make_pool(d) : 0)
#define API_CLOSING(d) cuda_drop_pool(d)
#define API_END(d) cuda_give_up(d)
#define API_ENTER cuda_enter
#define API_LEAVE cuda_leave
#define API_WAIT(call) (wb__nccl_wait_begins(), wb__nccl_wait_ends(call, CUDA_ERROR_LAUNCH_FAILED))
#define API_ALLOW_LOCAL(d, function) allow_local(d, function)
#define API_INSTANTIATE(made, graph) CALL(GraphInstantiateWithFlags, (made), (graph), 0)

static int cuda_enter(wb__gpu_device *d) { return CALL(CtxPushCurrent, wb__cu_of(d)->context); }
static void cuda_leave(void) { cu.CtxPopCurrent(&(CUcontext){NULL}); }

/* ---- opening --------------------------------------------------------------------------------- */

static int cuda_retain(wb__cu_device *d)
{
    const int code = CALL(DevicePrimaryCtxRetain, &d->context, d->id);
    if (code) d->context = NULL;
    return code;
}

static void cuda_give_up(wb__cu_device *d)
{
    cu.DevicePrimaryCtxRelease(d->id);
    d->context = NULL;
}

/* Makes the pool.  The largest release threshold keeps freed memory until cuda_trim. */
static int cuda_make_pool(wb__cu_device *d)
{
    const wb__cu_pool_props props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->id}};
    uint64_t all = UINT64_MAX;
    const int code = CALL(MemPoolCreate, &d->pool, &props);
    if (code) return code;
    return CALL(MemPoolSetAttribute, d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
}

static void cuda_drop_pool(wb__cu_device *d)
{
    if (d->pool) cu.MemPoolDestroy(d->pool);
    d->pool = NULL;
}

/* Lets launches of f use more than 48 KiB of local memory.  Kernels of one text share the function,
 * so each may have the most that a group can have.  The last attribute divides the processor's
 * memory so that it holds as many groups as possible. */
static int allow_local(const wb__gpu_device *d, CUfunction f)
{
    int own = 0, code = CALL(FuncGetAttribute, &own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
    if (!code)
        code = CALL(FuncSetAttribute, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    (int)d->target.launch_bytes - own);
    return code ? code
                : CALL(FuncSetAttribute, f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                       CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

/* Enables access to the memory of `source`; blocks of a pool need a permission of their own. */
static int cuda_enable_peer(const wb__cu_device *d, const wb__cu_device *source)
{
    const wb__cu_access access = {{CU_MEM_LOCATION_TYPE_DEVICE, d->id},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int code = CALL(CtxEnablePeerAccess, source->context, 0);
    if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) code = 0;
    if (!code && source->pool) code = CALL(MemPoolSetAccess, source->pool, &access, 1);
    return code;
}

#include "backend/gpu/runtime/stream_api.h"

/* ---- memory: blocks of the stream-ordered pool, if the device has one ------------------------ */

static int cuda_allocate(wb__gpu_device *base, size_t bytes, uint64_t *at)
{
    wb__cu_device *d = wb__cu_of(base);
    CUdeviceptr made = 0;
    const int code = d->pool ? CALL(MemAllocFromPoolAsync, &made, bytes, d->pool,
                                    d->stream[WB__GPU_COMPUTE])
                             : CALL(MemAlloc, &made, bytes);
    *at = made;
    return code;
}

static void cuda_release(wb__gpu_device *base, uint64_t at)
{
    wb__cu_device *d = wb__cu_of(base);
    if (d->pool) cu.MemFreeAsync(at, d->stream[WB__GPU_COMPUTE]);
    else cu.MemFree(at);
}

/* Returns free memory to the system.  First waits for the queue, because the pool frees only blocks
 * whose last command has ended. */
static void cuda_trim(wb__gpu_device *base)
{
    wb__cu_device *d = wb__cu_of(base);
    if (!d->pool) return;
    cu.StreamSynchronize(d->stream[WB__GPU_COMPUTE]);
    cu.MemPoolTrimTo(d->pool, 0);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static wb__gpu_state cuda_state = {.starting = WB__MUTEX_INIT};

static const wb__gpu_hook *const cuda_libraries[] = {&wb__cu_lt, &wb__cu_dnn, &wb__nccl_ranks,
                                                     NULL};

const wb__gpu_driver wb__cu_driver = {
    .backend = &wb__cu_backend, .state = &cuda_state, .dlpack = 2, .libraries = cuda_libraries,
    .load = wb__cu_load, .find = wb__cu_find, .error_name = wb__cu_error_name,
    .error_kind = wb__cu_error_kind, .error_text = wb__cu_error_text,
    .allocate = cuda_allocate, .release = cuda_release, .trim = cuda_trim,
    .options = wb__cu_options, .compile = wb__cu_compile, WB__GPU_STREAM_FUNCTIONS,
};

static int cuda_part_state(const char *name)
{
    if (!strcmp(name, "NVRTC")) return wb__cu_compiler_at(0) != NULL;
    if (!strcmp(name, "cuBLASLt")) return wb__cu_lt_works();
    if (!strcmp(name, "cuDNN")) return wb__cu_dnn_works();
    return strcmp(name, "NCCL") ? -1 : wb__nccl_open(&wb__cu_nccl) != NULL;
}

WB__GPU_WRAPPERS(wb__cu_driver)

const wb__backend wb__cu_backend = {
    .name = "CUDA", .tag = "cuda", .part = cuda_part_state, .supports = wb__gpu_supports_step,
    WB__GPU_FUNCTIONS,
    .branches = wb__gpu_runs_branches,
    .graph = wb__gpu_record_graph, .graph_free = wb__gpu_graph_free, .graph_run = wb__gpu_graph_run,
    .adopt = wb__gpu_adopt, .disown = wb__gpu_disown,
};
