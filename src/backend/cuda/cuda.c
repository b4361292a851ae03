/* The functions of the CUDA backend, most of which are one call of the CUDA driver API, and the
 * tables of backend and driver. */
#include "backend/cuda/cuda.h"

#include <string.h>

static CUstream stream_of(wb__gpu_device *d, wb__gpu_queue q) { return wb__cu_of(d)->stream[q]; }

static int enter(wb__gpu_device *d) { return CALL(CtxPushCurrent, wb__cu_of(d)->context); }
static void leave(void) { cu.CtxPopCurrent(&(CUcontext){NULL}); }

/* ---- memory: blocks of the stream-ordered pool, if the device has one ------------------------ */

static int allocate(wb__gpu_device *base, size_t bytes, uint64_t *at)
{
    wb__cu_device *d = wb__cu_of(base);
    CUdeviceptr made = 0;
    const int code = d->pool ? CALL(MemAllocFromPoolAsync, &made, bytes, d->pool,
                                    d->stream[WB__GPU_COMPUTE])
                             : CALL(MemAlloc, &made, bytes);
    *at = made;
    return code;
}

static void release(wb__gpu_device *base, uint64_t at)
{
    wb__cu_device *d = wb__cu_of(base);
    if (d->pool) cu.MemFreeAsync(at, d->stream[WB__GPU_COMPUTE]);
    else cu.MemFree(at);
}

/* Returns free memory to the system.  First waits for the queue, because the pool frees only blocks
 * whose last command has ended. */
static void trim(wb__gpu_device *base)
{
    wb__cu_device *d = wb__cu_of(base);
    if (!d->pool) return;
    cu.StreamSynchronize(d->stream[WB__GPU_COMPUTE]);
    cu.MemPoolTrimTo(d->pool, 0);
}

static int memory_left(wb__gpu_device *d, size_t *bytes)
{
    size_t total = 0;
    (void)d;
    return CALL(MemGetInfo, bytes, &total);
}

static int pin(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes)
{
    void *at = NULL;
    (void)d;
    const int code = CALL(MemHostAlloc, &at, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (!code) s->at = at;
    return code;
}

static void unpin(wb__gpu_device *d, wb__gpu_staging *s)
{
    (void)d;
    cu.MemFreeHost(s->at);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static int up(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait)
{
    const int code = CALL(MemcpyHtoDAsync, to + at, from, bytes, stream_of(d, q));
    return code || !wait ? code : CALL(StreamSynchronize, stream_of(d, q));
}

static int down(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait)
{
    const int code = CALL(MemcpyDtoHAsync, to, from + at, bytes, stream_of(d, q));
    return code || !wait ? code : CALL(StreamSynchronize, stream_of(d, q));
}

/* Enables direct access from `d` to the memory of `source`, if the hardware supports it.  Without
 * direct access the driver copies through the host. */
static int reach(wb__cu_device *d, const wb__cu_device *source)
{
    int can = 0;
    const uint64_t bit = (uint64_t)1 << source->gpu.base.ordinal;
    if (d->reached & bit) return 0;
    int code = CALL(DeviceCanAccessPeer, &can, d->id, source->id);
    if (!code && can) {
        const wb__cu_access access = {{CU_MEM_LOCATION_TYPE_DEVICE, d->id},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        code = CALL(CtxEnablePeerAccess, source->context, 0);
        if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) code = 0;
        if (!code && source->pool) code = CALL(MemPoolSetAccess, source->pool, &access, 1);
    }
    if (!code) d->reached |= bit;
    return code;
}

static int copy(wb__gpu_device *base, uint64_t to, size_t to_at, wb__gpu_device *from_base,
                uint64_t from, size_t from_at, size_t bytes, void **event)
{
    wb__cu_device *d = wb__cu_of(base), *source = wb__cu_of(from_base);
    CUstream stream = d->stream[WB__GPU_COMPUTE];
    (void)event;
    if (d == source) return CALL(MemcpyDtoDAsync, to + to_at, from + from_at, bytes, stream);
    const int code = reach(d, source);
    return code ? code : CALL(MemcpyPeerAsync, to + to_at, d->context, from + from_at,
                              source->context, bytes, stream);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int new_event(void **event)
{
    CUevent made = NULL;
    const int code = CALL(EventCreate, &made, CU_EVENT_DISABLE_TIMING);
    if (!code) *event = made;
    return code;
}

static void drop_event(void *event) { cu.EventDestroy(event); }

static int record(wb__gpu_device *d, wb__gpu_queue q, void **event)
{
    return CALL(EventRecord, *event, stream_of(d, q));
}

static int wait_event(wb__gpu_device *d, wb__gpu_queue q, void *event)
{
    return CALL(StreamWaitEvent, stream_of(d, q), event, 0);
}

static int sync_event(void *event) { return CALL(EventSynchronize, event); }

static int sync_queue(wb__gpu_device *d, wb__gpu_queue q)
{
    return CALL(StreamSynchronize, stream_of(d, q));
}

/* ---- launches and graphs --------------------------------------------------------------------- */

static int launch(wb__gpu_device *d, wb__gpu_queue q, void *function, const uint32_t groups[3],
                  const uint32_t items[3], void **arguments, void **event)
{
    (void)event;
    return CALL(LaunchKernel, function, groups[0], groups[1], groups[2], items[0], items[1],
                items[2], 0, stream_of(d, q), arguments, NULL);
}

static int record_begin(wb__gpu_device *d)
{
    return CALL(StreamBeginCapture, stream_of(d, WB__GPU_RECORDING),
                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static int record_end(wb__gpu_device *d, void **recorded)
{
    CUgraph made = NULL;
    const int code = CALL(StreamEndCapture, stream_of(d, WB__GPU_RECORDING), &made);
    *recorded = made;
    return code;
}

static int instantiate(void *recorded, void **graph)
{
    CUgraphExec made = NULL;
    const int code = CALL(GraphInstantiateWithFlags, &made, recorded, 0);
    *graph = made;
    return code;
}

static int run(wb__gpu_device *d, void *graph)
{
    return CALL(GraphLaunch, graph, stream_of(d, WB__GPU_COMPUTE));
}

static void drop_recorded(void *recorded) { cu.GraphDestroy(recorded); }
static void drop_graph(void *graph) { cu.GraphExecDestroy(graph); }

/* ---- tables ---------------------------------------------------------------------------------- */

static wb__gpu_state state = {.starting = PTHREAD_MUTEX_INITIALIZER};

static const wb__gpu_hook *const libraries[] = {&wb__cu_lt, &wb__cu_dnn, NULL};

const wb__gpu_driver wb__cu_driver = {
    .backend = &wb__cu_backend, .state = &state, .dlpack = 2, .libraries = libraries,
    .load = wb__cu_load, .find = wb__cu_find, .open = wb__cu_open, .close = wb__cu_close,
    .enter = enter, .leave = leave,
    .error_name = wb__cu_error_name, .error_kind = wb__cu_error_kind,
    .error_text = wb__cu_error_text,
    .allocate = allocate, .release = release, .trim = trim, .memory_left = memory_left,
    .pin = pin, .unpin = unpin, .up = up, .down = down, .copy = copy,
    .new_event = new_event, .drop_event = drop_event, .record = record, .wait_event = wait_event,
    .sync_event = sync_event, .sync = sync_queue,
    .options = wb__cu_options, .compile = wb__cu_compile, .load_image = wb__cu_load_image,
    .unload = wb__cu_unload, .function = wb__cu_function, .launch = launch,
    .record_begin = record_begin, .record_end = record_end, .instantiate = instantiate, .run = run,
    .drop_recorded = drop_recorded, .drop_graph = drop_graph,
};

static int part(const char *name)
{
    if (!strcmp(name, "NVRTC")) return wb__cu_compiler_at(0) != NULL;
    if (!strcmp(name, "cuBLASLt")) return wb__cu_lt_works();
    if (!strcmp(name, "cuDNN")) return wb__cu_dnn_works();
    if (strcmp(name, "NCCL")) return -1;
    wb__fail(WB_ERROR_UNSUPPORTED, "cuda: this version of Weber does not use NCCL");
    return 0;
}

WB__GPU_WRAPPERS(wb__cu_driver)

const wb__backend wb__cu_backend = {
    .name = "CUDA", .tag = "cuda", .part = part, .supports = wb__gpu_supports_step,
    WB__GPU_FUNCTIONS,
    .graph = wb__gpu_graph, .graph_free = wb__gpu_graph_free, .graph_run = wb__gpu_graph_run,
    .adopt = wb__gpu_adopt, .disown = wb__gpu_disown,
};
