/* The Metal backend: memory, command buffers, transfers, events and launches, and the tables of the
 * driver and the backend.
 *
 * Commands are encoded into a queue's command buffer, which is committed when the runtime flushes
 * the queue, records an event or waits.  Metal itself orders the commands of a queue, since it
 * tracks which buffers they use.  A command buffer keeps the memory and the pipelines that it uses
 * alive.
 *
 * If the GPU shares the host's memory, the host reads and writes blocks directly, after it has
 * waited for the commands that use them.  Otherwise blocks are private to the GPU, and transfers go
 * through blocks in shared memory. */
#include "backend/metal/metal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wb__mtl_queue *metal_queue_of(wb__gpu_device *d, wb__gpu_queue q)
{
    return &wb__mtl_of(d)->queue[q];
}

/* ---- command buffers ------------------------------------------------------------------------- */

/* Returns the error of a completed command buffer, or 0. */
static int metal_result_of(id buffer)
{
    if (mtl_status(buffer) != MTLCommandBufferStatusError) return 0;
    const id error = mtl_error(buffer);
    const int code = error ? (int)mtl_code(error) : 0;
    wb__gpu_call = "commit";
    return wb__mtl_failed(code > 0 && code < WB__MTL_NO_OBJECT ? code
                                                              : MTLCommandBufferErrorInternal,
                          error);
}

/* Forgets the oldest running command buffer, which is completed. */
static void metal_retire_oldest(wb__mtl_queue *q)
{
    const int code = metal_result_of(q->running[0]);
    if (code && !q->failed) {
        q->failed = code;
        wb__mtl_error_text(NULL, code, q->reason, sizeof q->reason);
    }
    mtl_release(q->running[0]);
    q->n_running--;
    memmove(q->running, q->running + 1, (size_t)q->n_running * sizeof *q->running);
}

static void end_encoder(wb__mtl_queue *q)
{
    if (!q->encoder) return;
    mtl_endEncoding(q->encoder);
    mtl_release(q->encoder);
    q->encoder = NULL;
}

/* Begins a command buffer if none is open.  From here on, functions with a wb__mtl_queue are called
 * with its lock held. */
static int begin_buffer(wb__mtl_queue *q)
{
    if (q->buffer) return 0;
    const id buffer = MAKE(commandBuffer, q->queue);
    if (!buffer) return wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
    q->buffer = mtl_retain(buffer);
    return 0;
}

/* Begins an encoder for kernels or for copies, unless one is open. */
static int begin_encoder(wb__mtl_queue *q, bool copies)
{
    if (q->encoder && q->encodes_copies == copies) return 0;
    const int code = begin_buffer(q);
    if (code) return code;
    end_encoder(q);
    const id encoder = copies ? MAKE(blitCommandEncoder, q->buffer)
                              : MAKE(computeCommandEncoder, q->buffer);
    if (!encoder) return wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
    q->encoder = mtl_retain(encoder);
    q->encodes_copies = copies;
    return 0;
}

/* Forgets the running command buffers that are completed. */
static void retire_completed(wb__mtl_queue *q)
{
    while (q->n_running && mtl_status(q->running[0]) >= MTLCommandBufferStatusCompleted)
        metal_retire_oldest(q);
}

/* Moves the queue's command buffer, which has been committed, to the list of running ones. */
static void metal_add_running(wb__mtl_queue *q)
{
    if (q->n_running == WB__MTL_MAX_RUNNING) {
        mtl_waitUntilCompleted(q->running[0]);
        metal_retire_oldest(q);
    }
    q->running[q->n_running++] = q->buffer;
    q->buffer = NULL;
    retire_completed(q);
}

static void metal_commit(wb__mtl_queue *q)
{
    if (!q->buffer) return;
    end_encoder(q);
    mtl_commit(q->buffer);
    metal_add_running(q);
}

/* Returns the first error of a completed command buffer of any queue, or 0.  The results of that
 * command buffer are missing, so the device counts as lost: each wait returns the error. */
static int metal_first_failure(wb__mtl_device *d)
{
    int failed = 0;
    for (size_t i = 0; i < WB__COUNT(d->queue) && d->queue[i].queue; i++) {
        wb__mtl_queue *q = &d->queue[i];
        wb__mutex_lock(&q->lock);
        retire_completed(q);
        if (q->failed && !failed) {
            failed = wb__mtl_failed_because(q->failed, q->reason);
        }
        wb__mutex_unlock(&q->lock);
    }
    wb__gpu_call = "commit";
    return failed;
}

static int metal_flush(wb__gpu_device *d)
{
    wb__mtl_queue *q = metal_queue_of(d, WB__GPU_COMPUTE);
    wb__mutex_lock(&q->lock);
    metal_commit(q);
    wb__mutex_unlock(&q->lock);
    return 0;
}

/* Waits for all commands of a queue, to which other threads may add commands meanwhile. */
static int metal_sync_queue(wb__gpu_device *d, wb__gpu_queue which)
{
    wb__mtl_queue *q = metal_queue_of(d, which);
    if (!q->queue) return 0;
    wb__mutex_lock(&q->lock);
    metal_commit(q);
    const id last = q->n_running ? mtl_retain(q->running[q->n_running - 1]) : NULL;
    wb__mutex_unlock(&q->lock);
    if (last) mtl_waitUntilCompleted(last);
    if (last) mtl_release(last);
    return metal_first_failure(wb__mtl_of(d));
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An event: the point of a queue that is reached when the command buffer is completed.  Other
 * queues wait until the event of this queue has the value. */
typedef struct {
    wb__mtl_device *device;
    wb__mtl_queue *queue;
    id buffer;                          /* the command buffer whose completion is the point */
    uint64_t value;                     /* value of the queue's event at the point */
} metal_point;

static void metal_drop_event(void *event)
{
    metal_point *p = event;
    mtl_release(p->buffer);
    wb__free(p);
}

/* Allocates *p if `event` is not NULL.  Returns a code.  It is called before the commands that
 * signal_event follows are encoded, so that a failure leaves no command behind. */
static int new_point(void *const *event, metal_point **p)
{
    *p = event ? wb__alloc_zero(1, sizeof **p) : NULL;
    return !event || *p ? 0 : wb__mtl_failed(WB__MTL_NO_MEMORY, NULL);
}

/* With the lock of a device's queue held, which has an open command buffer: replaces *event by p,
 * an event after all commands so far.  Does nothing if p is NULL. */
static void signal_event(wb__mtl_device *d, wb__mtl_queue *q, metal_point *p, void **event)
{
    if (!p) return;
    end_encoder(q);
    *p = (metal_point){d, q, mtl_retain(q->buffer), ++q->value};
    if (q->event) mtl_encodeSignalEvent(q->buffer, q->event, p->value);
    if (*event) metal_drop_event(*event);
    *event = p;
}

static int metal_record(wb__gpu_device *d, wb__gpu_queue which, void **event)
{
    wb__mtl_queue *q = metal_queue_of(d, which);
    metal_point *p = NULL;
    wb__mutex_lock(&q->lock);
    int code = begin_buffer(q);
    if (!code) code = new_point(event, &p);
    if (!code) {
        signal_event(wb__mtl_of(d), q, p, event);
        metal_commit(q);                /* other queues may wait for the event from now on */
    }
    wb__mutex_unlock(&q->lock);
    return code;
}

/* Commits the event's command buffer if it is still open, so that waiting for it ends. */
static void commit_event(const metal_point *p)
{
    wb__mutex_lock(&p->queue->lock);
    if (p->queue->buffer == p->buffer) metal_commit(p->queue);
    wb__mutex_unlock(&p->queue->lock);
}

static int metal_wait_event(wb__gpu_device *d, wb__gpu_queue which, void *event)
{
    wb__mtl_queue *q = metal_queue_of(d, which);
    const metal_point *p = event;
    if (p->queue == q) return 0;
    commit_event(p);
    wb__mutex_lock(&q->lock);
    const int code = begin_buffer(q);
    if (!code) {
        end_encoder(q);
        mtl_encodeWaitForEvent(q->buffer, p->queue->event, p->value);
    }
    wb__mutex_unlock(&q->lock);
    return code;
}

static int metal_sync_event(void *event)
{
    const metal_point *p = event;
    commit_event(p);
    mtl_waitUntilCompleted(p->buffer);
    return metal_first_failure(p->device);
}

/* Whether an event is reached.  An error shows only in the functions that wait for the event. */
static bool metal_done(void *event, int *ended)
{
    (void)ended;
    return mtl_status(((const metal_point *)event)->buffer) >= MTLCommandBufferStatusCompleted;
}

/* ---- commands that a library encodes --------------------------------------------------------- */

int wb__mtl_encode_begin(wb__gpu_device *d, wb__gpu_queue which, void **event, wb__mtl_encoding *e)
{
    wb__mtl_queue *q = metal_queue_of(d, which);
    metal_point *p = NULL;
    int code = new_point(event, &p);
    if (code) return code;
    wb__mutex_lock(&q->lock);
    code = begin_buffer(q);
    if (code) {
        wb__mutex_unlock(&q->lock);
        wb__free(p);
        return code;
    }
    end_encoder(q);
    *e = (wb__mtl_encoding){.queue = q, .buffer = q->buffer, .point = p, .event = event};
    return 0;
}

void wb__mtl_encode_end(wb__gpu_device *d, const wb__mtl_encoding *e, id now, bool encoded)
{
    wb__mtl_queue *q = e->queue;
    if (now != q->buffer) {
        mtl_retain(now);
        metal_add_running(q);
        q->buffer = now;
    }
    if (encoded) signal_event(wb__mtl_of(d), q, e->point, e->event);
    else wb__free(e->point);
    wb__mutex_unlock(&q->lock);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int new_buffer(wb__gpu_device *d, size_t bytes, NSUInteger mode, id *buffer)
{
    *buffer = MAKE(newBuffer, wb__mtl_of(d)->device, bytes, mode);
    return *buffer ? 0 : wb__mtl_failed(WB__MTL_NO_MEMORY, NULL);
}

static int metal_allocate(wb__gpu_device *d, size_t bytes, uint64_t *at)
{
    id buffer = NULL;
    const int code = new_buffer(d, bytes, d->staged ? MTLResourceStorageModePrivate
                                                    : MTLResourceStorageModeShared, &buffer);
    *at = (uint64_t)(uintptr_t)buffer;
    return code;
}

static void metal_release(wb__gpu_device *d, uint64_t at)
{
    (void)d;
    mtl_release(wb__mtl_object(at));
}

static int memory_left(wb__gpu_device *d, size_t *bytes)
{
    const int64_t used = (int64_t)mtl_currentAllocatedSize(wb__mtl_of(d)->device);
    *bytes = (size_t)WB__MAX(d->total - used, (int64_t)0);
    return 0;
}

static int metal_pin(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes)
{
    id buffer = NULL;
    const int code = new_buffer(d, bytes, MTLResourceStorageModeShared, &buffer);
    s->object = buffer;
    s->at = buffer ? mtl_contents(buffer) : NULL;
    return code;
}

static void metal_unpin(wb__gpu_device *d, wb__gpu_staging *s)
{
    (void)d;
    mtl_release(s->object);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Metal copies multiples of 4 bytes.  This kernel copies any bytes, one per item. */
static const char metal_copy_text[] =
    "#include <metal_stdlib>\n"
    "struct place { ulong from, to, bytes; };\n"
    "kernel void copy_bytes(device const uchar *from [[buffer(0)]],\n"
    "                       device uchar *to [[buffer(1)]],\n"
    "                       constant place &at [[buffer(2)]],\n"
    "                       uint3 group [[threadgroup_position_in_grid]],\n"
    "                       uint3 item [[thread_position_in_threadgroup]])\n"
    "{\n"
    "    const ulong i = (ulong)group.x * 256 + item.x;\n"
    "    if (i < at.bytes) to[at.to + i] = from[at.from + i];\n"
    "}\n";

static int encode_kernel_copy(wb__mtl_device *d, wb__mtl_queue *q, id to, size_t to_at, id from,
                              size_t from_at, size_t bytes)
{
    const uint64_t place[] = {from_at, to_at, bytes};
    wb__mutex_lock(&d->copying);
    int code = d->copy_pipeline ? 0 : wb__mtl_pipeline_of(d, metal_copy_text, &d->copy_pipeline);
    wb__mutex_unlock(&d->copying);
    if (!code) code = begin_encoder(q, false);
    if (code) return code;
    mtl_setPipeline(q->encoder, d->copy_pipeline);
    mtl_setBuffer(q->encoder, from, 0, 0);
    mtl_setBuffer(q->encoder, to, 0, 1);
    mtl_setBytes(q->encoder, place, sizeof place, 2);
    mtl_dispatch(q->encoder, (MTLSize){(bytes + 255) / 256, 1, 1}, (MTLSize){256, 1, 1});
    return 0;
}

/* Enqueues a copy.  event: as for `copy` of the driver. */
static int metal_copy_bytes(wb__mtl_device *d, wb__gpu_queue which, id to, size_t to_at, id from,
                            size_t from_at, size_t bytes, void **event)
{
    wb__mtl_queue *q = &d->queue[which];
    metal_point *p = NULL;
    int code = new_point(event, &p);
    if (code) return code;
    wb__mutex_lock(&q->lock);
    if ((to_at | from_at | bytes) % 4) {
        code = encode_kernel_copy(d, q, to, to_at, from, from_at, bytes);
    } else if (!(code = begin_encoder(q, true))) {
        mtl_copyFromBuffer(q->encoder, from, from_at, to, to_at, bytes);
    }
    if (!code) signal_event(d, q, p, event);
    else wb__free(p);
    wb__mutex_unlock(&q->lock);
    return code;
}

static bool metal_reaches(const wb__gpu_device *d, const wb__gpu_device *from) { return d == from; }

static int metal_copy(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source,
                      uint64_t from, size_t from_at, size_t bytes, void **event)
{
    (void)source;
    return metal_copy_bytes(wb__mtl_of(d), WB__GPU_COMPUTE, wb__mtl_object(to), to_at,
                            wb__mtl_object(from), from_at, bytes, event);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void *metal_contents(uint64_t at) { return mtl_contents(wb__mtl_object(at)); }

static int metal_up(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
                    size_t bytes, bool wait)
{
    const wb__gpu_staging *s = &d->to;
    if (!wait)                          /* `from` is in the staging buffer */
        return metal_copy_bytes(wb__mtl_of(d), q, wb__mtl_object(to), at, s->object,
                                (size_t)((const unsigned char *)from - s->at), bytes, NULL);
    const int code = q == WB__GPU_COMPUTE ? metal_sync_queue(d, q) : 0;
    if (!code) memcpy((char *)metal_contents(to) + at, from, bytes);
    return code;
}

static int metal_down(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                      size_t bytes, bool wait)
{
    const wb__gpu_staging *s = &d->from;
    if (!wait)
        return metal_copy_bytes(wb__mtl_of(d), q, s->object, (size_t)((unsigned char *)to - s->at),
                                wb__mtl_object(from), at, bytes, NULL);
    const int code = metal_sync_queue(d, q);
    if (!code) memcpy(to, (char *)metal_contents(from) + at, bytes);
    return code;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* A kernel's pipeline, and the arguments of its next launch: `n` buffers and, last, a struct. */
typedef struct {
    id pipeline, buffer[MTL_MAX_BUFFERS];
    int n;                              /* number of buffers */
    size_t bytes;
    void *values;                       /* the struct, of `bytes` bytes */
} metal_kernel;

static void metal_drop_function(void *object)
{
    metal_kernel *k = object;
    mtl_release(k->pipeline);
    wb__free(k->values);
    wb__free(k);
}

static int metal_function(wb__gpu_device *d, void *program, const char *entry, size_t local,
                          void **object, size_t *max_items)
{
    metal_kernel *k = wb__alloc_zero(1, sizeof *k);
    (void)d, (void)local;               /* 0: wb__gpu_target.launch_bytes */
    if (!k) return wb__mtl_failed(WB__MTL_NO_MEMORY, NULL);
    const int code = wb__mtl_pipeline(program, entry, &k->pipeline);
    if (code) {
        wb__free(k);
        return code;
    }
    *object = k;
    *max_items = mtl_maxTotalThreads(k->pipeline);
    return 0;
}

static int metal_bind(void *object, int index, bool memory, size_t bytes, const void *value)
{
    metal_kernel *k = object;
    if (memory) {
        k->buffer[index] = wb__mtl_object(*(const uint64_t *)value);
        return 0;
    }
    if (!k->values) k->values = wb__alloc(bytes + 1);
    if (!k->values) return wb__mtl_failed(WB__MTL_NO_MEMORY, NULL);
    memcpy(k->values, value, bytes);
    k->bytes = bytes;
    k->n = index;
    return 0;
}

static MTLSize metal_size_of(const uint32_t n[3]) { return (MTLSize){n[0], n[1], n[2]}; }

static int metal_launch(wb__gpu_device *d, wb__gpu_queue which, void *object,
                        const uint32_t groups[3], const uint32_t items[3], size_t local,
                        void **arguments, void **event)
{
    wb__mtl_queue *q = metal_queue_of(d, which);
    const metal_kernel *k = object;
    metal_point *p = NULL;
    (void)local, (void)arguments;
    int code = new_point(event, &p);
    if (code) return code;
    wb__mutex_lock(&q->lock);
    code = begin_encoder(q, false);
    if (!code) {
        mtl_setPipeline(q->encoder, k->pipeline);
        for (int i = 0; i < k->n; i++) mtl_setBuffer(q->encoder, k->buffer[i], 0, (NSUInteger)i);
        mtl_setBytes(q->encoder, k->values, k->bytes, (NSUInteger)k->n);
        mtl_dispatch(q->encoder, metal_size_of(groups), metal_size_of(items));
        signal_event(wb__mtl_of(d), q, p, event);
    } else {
        wb__free(p);
    }
    wb__mutex_unlock(&q->lock);
    return code;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const wb__gpu_hook *const metal_libraries[] = {&wb__mtl_mps, &wb__mtl_mpsgraph, NULL};
static wb__gpu_state metal_state = {.starting = WB__MUTEX_INIT};

const wb__gpu_driver wb__mtl_driver = {
    .backend = &wb__mtl_backend, .state = &metal_state, .dlpack = 8, .objects = true,
    .oldest_first = true, .choosing = "WEBER_METAL_DEVICES",
    .load = wb__mtl_load, .find = wb__mtl_find, .forget = wb__mtl_forget, .open = wb__mtl_open,
    .close = wb__mtl_close, .enter = wb__mtl_enter, .leave = wb__mtl_leave,
    .error_name = wb__mtl_error_name, .error_kind = wb__mtl_error_kind,
    .error_text = wb__mtl_error_text,
    .allocate = metal_allocate, .release = metal_release, .memory_left = memory_left,
    .pin = metal_pin, .unpin = metal_unpin, .up = metal_up, .down = metal_down,
    .contents = metal_contents, .reaches = metal_reaches, .copy = metal_copy,
    .drop_event = metal_drop_event, .record = metal_record, .wait_event = metal_wait_event,
    .sync_event = metal_sync_event, .done = metal_done, .flush = metal_flush,
    .sync = metal_sync_queue, .options = wb__mtl_options, .compile = wb__mtl_compile,
    .load_image = wb__mtl_load_image, .unload = wb__mtl_unload, .function = metal_function,
    .drop_function = metal_drop_function, .bind = metal_bind, .launch = metal_launch,
    .libraries = metal_libraries,
};

/* Returns the state of a component, as `part` of wb__backend. */
static int metal_part_state(const char *name)
{
    if (!strcmp(name, "MPS")) return wb__mtl_mps_works();
    return strcmp(name, "MPSGraph") ? -1 : wb__mtl_mpsgraph_works();
}

WB__GPU_WRAPPERS(wb__mtl_driver)

const wb__backend wb__mtl_backend = {
    .name = "Metal", .tag = "metal", .part = metal_part_state, .supports = wb__gpu_supports_step,
    WB__GPU_FUNCTIONS,
};
