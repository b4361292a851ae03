/* Devices: found once, in the driver's order, of those that CUDA_VISIBLE_DEVICES lets it see; opened
 * when first used.  Every call for a device makes its primary context current, which other users of
 * CUDA in this process share, and afterwards that which was current before. */
#include "backend/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* A program may keep a device's address for as long as it likes, so devices stand in fixed places:
 * found again after they were forgotten, each is where it was. */
static wb__cu_device places[WB__CU_MOST_DEVICES];
static int n_found;

int wb__cu_count(void) { return n_found; }

wb__cu_device *wb__cu_at(int ordinal)
{
    return ordinal >= 0 && ordinal < n_found ? &places[ordinal] : NULL;
}

/* ---- finding --------------------------------------------------------------------------------- */

#define ASK(what, value)                                                                           \
    (code = cu.DeviceGetAttribute(&(value), CU_DEVICE_ATTRIBUTE_##what, d->id))

static int describe(wb__cu_device *d)
{
    CUresult code;
    int major = 0, minor = 0, items = 0, local = 0, pools = 0;
    size_t total = 0;
    if ((code = cu.DeviceGetName(d->name, sizeof d->name, d->id)) ||
        (code = cu.DeviceTotalMem_v2(&total, d->id)) ||
        ASK(COMPUTE_CAPABILITY_MAJOR, major) || ASK(COMPUTE_CAPABILITY_MINOR, minor) ||
        ASK(MAX_THREADS_PER_BLOCK, items) || ASK(MAX_SHARED_MEMORY_PER_BLOCK, local) ||
        ASK(MULTIPROCESSOR_COUNT, d->processors) ||
        (wb__cu_has_pools && ASK(MEMORY_POOLS_SUPPORTED, pools)))
        return wb__cu_fail(NULL, "cuDeviceGetAttribute", code, "device %d", d->ordinal);
    d->arch = 10 * major + minor;
    d->has_pools = pools != 0;
    d->total = (int64_t)total;
    d->target = (wb__gpu_target){.f64 = true, .most_items = items, .local_bytes = (size_t)local,
                                 .most_args = 4096, .buffer_bytes = sizeof(CUdeviceptr)};
    d->debug_sync = wb__debug("sync");
    return wb__gpu_memory_limit("cuda", d->total, &d->cache.limit);
}

/* Makes the device's locks, or destroys them. */
static void set_locks(wb__cu_device *d, bool made)
{
    pthread_mutex_t *const locks[] = {&d->opening, &d->losing, &d->lock, &d->programs.lock,
                                      &d->to.lock, &d->from.lock};
    for (size_t i = 0; i < WB__COUNT(locks); i++)
        if (made) pthread_mutex_init(locks[i], NULL);
        else pthread_mutex_destroy(locks[i]);
}

static int find_one(wb__cu_device *d, int ordinal)
{
    memset(d, 0, sizeof *d);
    set_locks(d, true);
    d->ordinal = ordinal;
    d->programs.by = &wb__cu_compiling;
    d->programs.device = d;
    d->base = (wb_device){.backend = &wb__cu_backend, .ordinal = ordinal, .name = d->name,
                          .state = d};
    const CUresult code = cu.DeviceGet(&d->id, ordinal);
    if (code) return wb__cu_fail(NULL, "cuDeviceGet", code, "device %d", ordinal);
    const int status = describe(d);
    if (!status && wb__debug("load"))
        wb__log(WB_LOG_DEBUG, "load: cuda:%d: %s, compute capability %d.%d, %d processors, driver"
                " for CUDA %d.%d%s", ordinal, d->name, d->arch / 10, d->arch % 10, d->processors,
                wb__cu_driver_version / 1000, wb__cu_driver_version % 1000 / 10,
                d->has_pools ? "" : ", without memory pools");
    return status;
}

int wb__cu_find(void)
{
    int n = 0, status = 0;
    const CUresult code = cu.DeviceGetCount(&n);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (code) return wb__cu_fail(NULL, "cuDeviceGetCount", code, "how many there are");
    if (!n && visible)
        return wb__fail(WB_ERROR_DEVICE, "cuda: no device: CUDA_VISIBLE_DEVICES=\"%s\" hides all"
                        " there are", visible);
    if (!n)
        return wb__fail(WB_ERROR_DEVICE, "cuda: no device: the driver is there, but it sees no"
                        " GPU; see what `nvidia-smi` says");
    for (int i = 0; i < WB__MIN(n, (int)WB__CU_MOST_DEVICES) && !status; i++) {
        status = find_one(&places[i], i);
        if (status) set_locks(&places[i], false);
        else n_found++;
    }
    if (status) wb__cu_forget();
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int make_events(wb__cu_device *d)
{
    CUevent *const all[] = {&d->to.event[0], &d->to.event[1], &d->from.event[0], &d->from.event[1]};
    CUresult code = 0;
    for (size_t i = 0; i < WB__COUNT(all) && !code; i++)
        code = cu.EventCreate(all[i], CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < WB__CU_MARKS && !code; i++) {
        code = cu.EventCreate(&d->mark[i].event, CU_EVENT_DISABLE_TIMING);
        if (!code) code = cu.EventCreate(&d->upload[i].event, CU_EVENT_DISABLE_TIMING);
    }
    return code ? wb__cu_fail(d, "cuEventCreate", code, "%s", d->name) : 0;
}

static int make_streams(wb__cu_device *d)
{
    CUstream *const all[] = {&d->compute, &d->up, &d->down, &d->capturing};
    CUresult code = 0;
    for (size_t i = 0; i < WB__COUNT(all) && !code; i++)
        code = cu.StreamCreate(all[i], CU_STREAM_NON_BLOCKING);
    return code ? wb__cu_fail(d, "cuStreamCreate", code, "%s", d->name) : 0;
}

/* The pool gives nothing back to the system by itself, where it would be asked for again at once;
 * wb__cu_trim does. */
static int make_pool(wb__cu_device *d)
{
    const wb__cu_pool_props props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->id}};
    uint64_t all = UINT64_MAX;
    CUresult code = cu.MemPoolCreate(&d->pool, &props);
    if (code) return wb__cu_fail(d, "cuMemPoolCreate", code, "%s", d->name);
    code = cu.MemPoolSetAttribute(d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
    return code ? wb__cu_fail(d, "cuMemPoolSetAttribute", code, "its threshold") : 0;
}

/* Events and streams that were not made are NULL.  Where the device is lost, what the driver still
 * gives back is given back. */
static void give_back(wb__cu_device *d)
{
    CUevent *const events[] = {&d->to.event[0], &d->to.event[1], &d->from.event[0],
                               &d->from.event[1]};
    CUstream *const streams[] = {&d->compute, &d->up, &d->down, &d->capturing};
    for (size_t i = 0; i < WB__COUNT(events); i++) {
        if (*events[i]) cu.EventDestroy_v2(*events[i]);
        *events[i] = NULL;
    }
    for (int i = 0; i < WB__CU_MARKS; i++) {
        if (d->mark[i].event) cu.EventDestroy_v2(d->mark[i].event);
        if (d->upload[i].event) cu.EventDestroy_v2(d->upload[i].event);
        d->mark[i] = d->upload[i] = (wb__cu_mark){0};
    }
    for (size_t i = 0; i < WB__COUNT(streams); i++) {
        if (*streams[i]) cu.StreamDestroy_v2(*streams[i]);
        *streams[i] = NULL;
    }
    if (d->pool) cu.MemPoolDestroy(d->pool);
    d->pool = NULL;
}

static int push(wb__cu_device *d)
{
    const CUresult code = cu.CtxPushCurrent_v2(d->context);
    return wb__likely(!code) ? 0 : wb__cu_fail(d, "cuCtxPushCurrent", code, "%s", d->name);
}

static int open_device(wb__cu_device *d)
{
    const CUresult code = cu.DevicePrimaryCtxRetain(&d->context, d->id);
    if (code) return wb__cu_fail(d, "cuDevicePrimaryCtxRetain", code, "%s", d->name);
    int status = push(d);
    if (!status) {
        status = make_streams(d);
        if (!status) status = make_events(d);
        if (!status && d->has_pools) status = make_pool(d);
        if (status) give_back(d);
        wb__cu_leave();
    }
    if (status) cu.DevicePrimaryCtxRelease_v2(d->id);
    return status;
}

static int tell_lost(wb__cu_device *d)
{
    pthread_mutex_lock(&d->losing);
    char because[sizeof d->lost_because];
    memcpy(because, d->lost_because, sizeof because);
    pthread_mutex_unlock(&d->losing);
    return wb__fail(WB_ERROR_DEVICE, "cuda:%d: the device was lost to this process: %s; other"
                    " devices go on, this one needs the process restarted", d->ordinal, because);
}

int wb__cu_enter(wb__cu_device *d)
{
    if (wb__cu_check_fork()) return WB_ERROR_DEVICE;
    if (wb__unlikely(!d->open)) {
        int status = wb__cu_backend.start();    /* it may have been stopped since d was found */
        if (status) return status;
        pthread_mutex_lock(&d->opening);
        if (!d->open) status = open_device(d);
        if (!status) d->open = true;
        pthread_mutex_unlock(&d->opening);
        if (status) return status;
    }
    return wb__unlikely(d->lost) ? tell_lost(d) : push(d);
}

bool wb__cu_enter_to_release(wb__cu_device *d)
{
    return !wb__cu_is_child() && d->open && !cu.CtxPushCurrent_v2(d->context);
}

void wb__cu_leave(void)
{
    CUcontext mine = NULL;
    cu.CtxPopCurrent_v2(&mine);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void close_device(wb__cu_device *d)
{
    if (!d->open) return;
    const bool entered = wb__cu_enter_to_release(d);
    CUstream streams[] = {d->up, d->down, d->compute};
    for (size_t i = 0; i < WB__COUNT(streams); i++) cu.StreamSynchronize(streams[i]);
    wb__cu_lt_close(d);
    wb__cu_dnn_close(d);
    wb__cu_free_staging(&d->to);
    wb__cu_free_staging(&d->from);
    wb__gpu_programs_free(&d->programs);
    wb__cu_trim(&d->base);
    give_back(d);
    if (entered) wb__cu_leave();
    cu.DevicePrimaryCtxRelease_v2(d->id);
    d->context = NULL;
    d->open = false;
}

bool wb__cu_in_use(void)
{
    bool used = false;
    for (int i = 0; i < n_found; i++) used |= places[i].cache.used || places[i].kernels;
    return used;
}

void wb__cu_forget(void)
{
    for (int i = 0; i < n_found; i++) {
        close_device(&places[i]);
        set_locks(&places[i], false);
    }
    n_found = 0;
}
