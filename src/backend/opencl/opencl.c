/* The OpenCL backend: memory, transfers, events, launches, and the driver's and backend's
 * tables. */
#include "backend/opencl/opencl.h"

#include "base/environment.h"

#include <string.h>

static cl_command_queue opencl_queue_of(wb__gpu_device *d, wb__gpu_queue q)
{
    return wb__cl_of(d)->queue[q];
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocates a buffer.  Drivers allocate memory at its first use.  A migration, for which this
 * function waits, forces the allocation, so that errors occur here. */
static int opencl_allocate(wb__gpu_device *base, size_t bytes, uint64_t *at)
{
    wb__cl_device *d = wb__cl_of(base);
    cl_int code = 0;
    cl_mem object = MAKE(&code, CreateBuffer, d->platform->context, CL_MEM_READ_WRITE, bytes, NULL);
    if (code) return code;
    code = CALL(EnqueueMigrateMemObjects, d->queue[WB__GPU_UP], 1, &object,
                CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL);
    if (!code) code = CALL(Finish, d->queue[WB__GPU_UP]);
    if (code) cl.ReleaseMemObject(object);
    *at = code ? 0 : (uint64_t)(uintptr_t)object;
    return code;
}

/* The driver frees a buffer after the commands that use it have ended. */
static void opencl_release(wb__gpu_device *d, uint64_t at)
{
    (void)d;
    cl.ReleaseMemObject(wb__cl_object(at));
}

static void opencl_unpin(wb__gpu_device *base, wb__gpu_staging *s)
{
    cl_command_queue queue = opencl_queue_of(base, WB__GPU_UP);
    if (s->at) cl.EnqueueUnmapMemObject(queue, s->object, s->at, 0, NULL, NULL);
    if (s->at) cl.Finish(queue);
    cl.ReleaseMemObject(s->object);
}

static int opencl_pin(wb__gpu_device *base, wb__gpu_staging *s, size_t bytes)
{
    wb__cl_device *d = wb__cl_of(base);
    cl_int code = 0;
    s->object = MAKE(&code, CreateBuffer, d->platform->context,
                     CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL);
    if (code) return code;
    s->at = MAKE(&code, EnqueueMapBuffer, d->queue[WB__GPU_UP], s->object, CL_TRUE,
                 CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL);
    if (!code) return 0;
    s->at = NULL;
    opencl_unpin(base, s);
    return code;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Uploads.  In OpenCL 1 a blocking write returns when the host's memory may be used again, which
 * may be before the data are in the buffer: only the write's event shows when they are. */
static int opencl_up(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
                     size_t bytes, bool wait)
{
    cl_event written = NULL;
    int code = CALL(EnqueueWriteBuffer, opencl_queue_of(d, q), wb__cl_object(to), wait, at, bytes,
                    from, 0, NULL, wait ? &written : NULL);
    if (code || !wait) return code;
    code = CALL(WaitForEvents, 1, &written);
    cl.ReleaseEvent(written);
    return code;
}

/* Downloads.  When a blocking read returns, all commands before it on the queue have ended. */
static int opencl_down(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                       size_t bytes, bool wait)
{
    return CALL(EnqueueReadBuffer, opencl_queue_of(d, q), wb__cl_object(from), wait, at, bytes, to,
                0, NULL, NULL);
}

static bool opencl_reaches(const wb__gpu_device *d, const wb__gpu_device *source)
{
    return ((const wb__cl_device *)d)->platform == ((const wb__cl_device *)source)->platform;
}

static int opencl_copy(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source,
                       uint64_t from, size_t from_at, size_t bytes, void **event)
{
    (void)source;
    return CALL(EnqueueCopyBuffer, opencl_queue_of(d, WB__GPU_COMPUTE), wb__cl_object(from),
                wb__cl_object(to), from_at, to_at, bytes, 0, NULL, (cl_event *)event);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void opencl_drop_event(void *event) { cl.ReleaseEvent(event); }

/* Replaces *event by a new event in the queue, and flushes the queue: waiting requires a flush. */
static int opencl_record(wb__gpu_device *d, wb__gpu_queue q, void **event)
{
    cl_event object = NULL;
    int code = CALL(EnqueueMarkerWithWaitList, opencl_queue_of(d, q), 0, NULL, &object);
    if (code) return code;
    if (*event) cl.ReleaseEvent(*event);
    *event = object;
    return CALL(Flush, opencl_queue_of(d, q));
}

static int opencl_wait_event(wb__gpu_device *d, wb__gpu_queue q, void *event)
{
    const cl_event list[] = {event};
    return CALL(EnqueueMarkerWithWaitList, opencl_queue_of(d, q), 1, list, NULL);
}

static int opencl_sync_event(void *event)
{
    const cl_event list[] = {event};
    return CALL(WaitForEvents, 1, list);
}

static bool opencl_done(void *event, int *ended)
{
    cl_int status = 1;
    if (cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) ||
        status > CL_COMPLETE)
        return false;
    *ended = status;
    return true;
}

static int opencl_flush(wb__gpu_device *d) { return cl.Flush(opencl_queue_of(d, WB__GPU_COMPUTE)); }

static int opencl_sync_queue(wb__gpu_device *d, wb__gpu_queue q)
{
    return opencl_queue_of(d, q) ? CALL(Finish, opencl_queue_of(d, q)) : 0;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void opencl_unload(wb__gpu_device *d, void *program)
{
    (void)d;
    cl.ReleaseProgram(program);
}

/* Creates a kernel and sets *max_items to its maximal group size, which may be smaller than the
 * device's. */
static int opencl_function(wb__gpu_device *d, void *program, const char *entry, size_t local,
                           void **object, size_t *max_items)
{
    (void)local;
    cl_int code = 0;
    cl_kernel kernel = MAKE(&code, CreateKernel, program, entry);
    if (code) return code;
    *object = kernel;
    return CALL(GetKernelWorkGroupInfo, kernel, wb__cl_of(d)->id, CL_KERNEL_WORK_GROUP_SIZE,
                sizeof *max_items, max_items, NULL);
}

static void opencl_drop_function(void *object) { cl.ReleaseKernel(object); }

static int opencl_bind(void *object, int index, bool memory, size_t bytes, const void *value)
{
    (void)memory;
    return CALL(SetKernelArg, object, (cl_uint)index, bytes, value);
}

static int opencl_launch(wb__gpu_device *d, wb__gpu_queue q, void *object, const uint32_t groups[3],
                         const uint32_t items[3], size_t rest, void **arguments, void **event)
{
    size_t global[3], local[3];
    cl_uint dims = 1;
    (void)rest, (void)arguments;        /* both have been bound */
    for (cl_uint i = 0; i < 3; i++) {
        local[i] = items[i];
        global[i] = (size_t)groups[i] * items[i];
        if (global[i] > 1) dims = i + 1;
    }
    return CALL(EnqueueNDRangeKernel, opencl_queue_of(d, q), object, dims, NULL, global, local, 0,
                NULL, (cl_event *)event);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static wb__gpu_state opencl_state = {.starting = WB__MUTEX_INIT};

static const wb__gpu_hook *const opencl_libraries[] = {&wb__cl_blast, NULL};

const wb__gpu_driver wb__cl_driver = {
    .backend = &wb__cl_backend, .state = &opencl_state, .dlpack = 4, .objects = true,
    .oldest_first = true, .choosing = "WEBER_OPENCL_DEVICES", .libraries = opencl_libraries,
    .load = wb__cl_load, .find = wb__cl_find, .forget = wb__cl_forget, .open = wb__cl_open,
    .close = wb__cl_close,
    .error_name = wb__cl_error_name, .error_kind = wb__cl_error_kind,
    .error_text = wb__cl_error_text,
    .allocate = opencl_allocate, .release = opencl_release, .pin = opencl_pin,
    .unpin = opencl_unpin, .up = opencl_up, .down = opencl_down, .reaches = opencl_reaches,
    .copy = opencl_copy, .drop_event = opencl_drop_event, .record = opencl_record,
    .wait_event = opencl_wait_event, .sync_event = opencl_sync_event, .done = opencl_done,
    .flush = opencl_flush, .sync = opencl_sync_queue, .options = wb__cl_options,
    .compile = wb__cl_compile, .load_image = wb__cl_load_image, .unload = opencl_unload,
    .function = opencl_function, .drop_function = opencl_drop_function, .bind = opencl_bind,
    .launch = opencl_launch,
};

static int opencl_part_state(const char *name)
{
    return strcmp(name, "CLBlast") ? -1 : wb__cl_blast_works();
}

/* Accepts products in fused kernels, and attention, but not on CPUs.  If the step's environment
 * variable is 0, accepts none; if it is 1, accepts them on CPUs too. */
static bool opencl_supports(const wb_device *base, const wb__step *step)
{
    const wb__gpu_device *d = base->state;
    const char *const variable =
        step->kind == WB__STEP_FUSED ? "WEBER_OPENCL_PRODUCTS" : "WEBER_OPENCL_ATTENTION";
    wb__gpu_target target = d->target;
    if (wb__gpu_is_off(variable)) return false;
    if (wb__environment_switch(variable, false)) target.composes = false;
    return wb__gpu_supports(&target, step);
}

WB__GPU_WRAPPERS(wb__cl_driver)

const wb__backend wb__cl_backend = {
    .name = "OpenCL", .tag = "opencl", .part = opencl_part_state, .supports = opencl_supports,
    WB__GPU_FUNCTIONS,
};
