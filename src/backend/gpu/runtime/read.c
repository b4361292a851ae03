/* Small downloads that later commands do not wait for.  They are on the queue of large downloads,
 * behind an event after the commands so far, and end in pinned memory.  Without staging, begin_read
 * only records the event, and end_read copies the number when the event is reached: by the number's
 * host address, or on the queue of uploads, for which later commands do not wait. */
#include "backend/gpu/runtime/runtime.h"

#include <string.h>

static int gpu_read_fail(wb__gpu_device *d, int code)
{
    return wb__gpu_fail(d->driver, d, code, "a number that is read late");
}

static unsigned char *gpu_read_pinned(const wb__gpu_device *d, const wb__gpu_read *r)
{
    return d->from.at + 2 * WB__GPU_HALF + 8 * (r - d->read);
}

/* With the lock held: enqueues the download of a read, or the event that it waits for. */
static int gpu_read_enqueue(wb__gpu_device *d, wb__gpu_read *r, const wb__gpu_memory *m, size_t at)
{
    if (!d->staged) {
        r->from = m->at;
        r->at = at;
        const int code = d->driver->record(d, WB__GPU_COMPUTE, &r->event);
        return code ? gpu_read_fail(d, code) : 0;
    }
    int status = wb__gpu_queue_after(d, WB__GPU_DOWN, d->issued, "before a number is read");
    if (status) return status;
    int code = d->driver->down(d, WB__GPU_DOWN, gpu_read_pinned(d, r), m->at, at, r->bytes, false);
    if (code) return gpu_read_fail(d, code);
    code = d->driver->record(d, WB__GPU_DOWN, &r->event);
    if (!code) return 0;
    status = gpu_read_fail(d, code);
    d->driver->sync(d, WB__GPU_DOWN);
    return status;
}

int wb__gpu_begin_read(const wb_device *base, const void *memory, size_t at, size_t bytes,
                       void **read)
{
    wb__gpu_device *d = base->state;
    const wb__gpu_memory *m = memory;
    *read = NULL;
    if (bytes > 8) return WB_ERROR_UNSUPPORTED;
    if (at > m->bytes || bytes > m->bytes - at)
        return wb__fail(WB_ERROR_INTERNAL, "%s:%d: %zu bytes at %zu of a block of %zu",
                        d->driver->backend->tag, d->base.ordinal, bytes, at, m->bytes);
    int status = wb__gpu_enter(d);
    if (status) return status;
    wb__mutex_lock(&d->from.lock);
    if (d->staged) status = wb__gpu_make_staging(d, &d->from);
    wb__mutex_unlock(&d->from.lock);
    wb__mutex_lock(&d->lock);
    int i = 0;
    while (i < WB__GPU_READS && d->read[i].busy) i++;
    wb__gpu_read *r = &d->read[i];
    if (!status && i == WB__GPU_READS) status = WB_ERROR_UNSUPPORTED;
    else if (!status) {
        r->bytes = bytes;
        r->count = d->issued;
        status = gpu_read_enqueue(d, r, m, at);
        r->busy = !status;
    }
    wb__mutex_unlock(&d->lock);
    wb__gpu_leave(d);
    if (!status) *read = r;
    return status;
}

/* Copies the number of a read whose event is reached.  Returns a code. */
static int gpu_read_copy_number(wb__gpu_device *d, const wb__gpu_read *r, void *to)
{
    if (d->staged) {
        memcpy(to, gpu_read_pinned(d, r), r->bytes);
        return 0;
    }
    const unsigned char *memory = d->driver->contents ? d->driver->contents(r->from) : NULL;
    if (!memory) return d->driver->down(d, WB__GPU_UP, to, r->from, r->at, r->bytes, true);
    memcpy(to, memory + r->at, r->bytes);
    return 0;
}

int wb__gpu_end_read(const wb_device *base, void *read, void *to)
{
    wb__gpu_device *d = base->state;
    wb__gpu_read *r = read;
    int status = wb__gpu_enter(d);
    if (status) return status;
    if (!r->busy) {                     /* the device was stopped after begin_read */
        wb__gpu_leave(d);
        return wb__fail(WB_ERROR_DEVICE, "%s:%d: it was stopped before a number was read",
                        d->driver->backend->tag, d->base.ordinal);
    }
    int code = d->driver->sync_event(r->event);
    if (!code && to) code = gpu_read_copy_number(d, r, to);
    if (code) {
        status = gpu_read_fail(d, code);
        if (d->staged) d->driver->sync(d, WB__GPU_DOWN);
    }
    if (!status) status = wb__gpu_commands_ended(d, r->count);
    wb__mutex_lock(&d->lock);
    r->busy = false;
    wb__mutex_unlock(&d->lock);
    wb__gpu_leave(d);
    return status;
}
