/* A COLLECTIVE that the communicator performs.  If it takes addresses of the device's memory
 * (`direct`), its operation waits for all that was launched before.  Otherwise the operation is on
 * the host's memory: the launch downloads the operand, and the finish uploads the result.  This
 * memory is pinned if the driver can copy to and from pinned memory. */
#include "backend/collective.h"
#include "backend/gpu/runtime/collective.h"

struct wb__gpu_collective {
    wb__mutex lock;                     /* held from a launch to its finish */
    wb__view x, y;
    size_t from_bytes, to_bytes;
    bool direct;                        /* the operation is on the device's memory */
    bool pinned;                        /* `from` and `to` are pinned */
    void *ready;                    /* if `direct`: the event after which the operation may begin */
    wb__gpu_staging from, to;           /* the host's memory; an ALLREDUCE has only `from` */
    wb__gpu_staging *result;
    wb__collective operation;
    uint64_t begun;                     /* number of the operation */
    void *y_memory;                     /* the result's memory, and its offset in bytes */
    size_t y_at;
};

static size_t gpu_collective_offset_of(const wb__view *v, const size_t *offsets)
{
    return (offsets ? offsets[v->buffer] : 0) + (size_t)v->offset * wb__dtype_size(v->dtype);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static int make_host_memory(wb__gpu_device *d, wb__gpu_staging *s, bool pinned, size_t bytes)
{
    if (!pinned) return (s->at = wb__alloc_aligned(bytes + 1)) ? 0 : WB_ERROR_MEMORY;
    int code = d->driver->new_event(&s->event[0]);
    if (!code && (code = d->driver->pin(d, s, bytes + 1))) s->at = NULL;
    return code ? wb__gpu_fail(d->driver, d, code, "%zu bytes of pinned memory", bytes) : 0;
}

static void free_host_memory(wb__gpu_device *d, wb__gpu_staging *s, bool pinned)
{
    if (!pinned) {
        wb__free(s->at);
        return;
    }
    if (s->busy[0]) d->driver->sync_event(s->event[0]);
    if (s->event[0]) d->driver->drop_event(s->event[0]);
    wb__gpu_free_staging(d, s);
}

static int gpu_collective_prepare(wb__gpu_device *d, wb__gpu_collective *a, const wb__step *s)
{
    a->x = s->views[0];
    a->y = s->views[1];
    a->operation = wb__collective_of(s, &a->from_bytes, &a->to_bytes);
    a->direct = !d->driver->objects && wb__collective_takes_addresses_of(s->communicator, &d->base);
    a->pinned = !d->driver->objects && d->staged;
    a->result = s->collective == WB__COLLECT_ALLREDUCE ? &a->from : &a->to;
    if (a->direct) {
        const int code = d->driver->new_event(&a->ready);
        a->operation.device = &d->base;
        a->operation.ready = a->ready;
        return code ? wb__gpu_fail(d->driver, d, code, "%s", d->name) : 0;
    }
    int status = make_host_memory(d, &a->from, a->pinned, a->from_bytes);
    if (!status && a->result == &a->to)
        status = make_host_memory(d, &a->to, a->pinned, a->to_bytes);
    a->operation.from = a->from.at;
    a->operation.to = a->result->at;
    return status;
}

int wb__gpu_collective_prepare(wb__gpu_device *d, const wb__step *s, wb__gpu_collective **made)
{
    wb__gpu_collective *a = wb__alloc_zero(1, sizeof *a);
    *made = NULL;
    if (!a) return WB_ERROR_MEMORY;
    wb__mutex_init(&a->lock);
    const int status = gpu_collective_prepare(d, a, s);
    if (status) wb__gpu_collective_destroy(d, a);
    else *made = a;
    return status;
}

void wb__gpu_collective_destroy(wb__gpu_device *d, wb__gpu_collective *a)
{
    if (!a) return;
    wb__mutex_destroy(&a->lock);
    if (a->ready) d->driver->drop_event(a->ready);
    free_host_memory(d, &a->from, a->pinned);
    free_host_memory(d, &a->to, a->pinned);
    wb__free(a);
}

const char *wb__gpu_collective_impl(const wb__gpu_collective *a)
{
    return a->direct ? "on the device's memory" : "through the host";
}

/* ---- on the device's memory ------------------------------------------------------------------ */

int wb__gpu_perform_collective(const wb_device *base, const wb__collective *c)
{
    wb__gpu_device *d = base->state;
    int status = wb__gpu_enter(d);
    if (status) return status;
    const int code = c->ready ? d->driver->sync_event(c->ready) : 0;
    status = code ? wb__gpu_fail(d->driver, d, code, "an operation of the ranks")
                  : c->communicator->perform(c);
    wb__gpu_leave(d);
    return status;
}

/* With the lock held: records `ready` after all commands so far and the uploads of x and y. */
static int record_ready(wb__gpu_device *d, wb__gpu_collective *a, wb__gpu_memory *x,
                        wb__gpu_memory *y)
{
    int status = wb__gpu_command_uses(d, x);
    if (!status) status = wb__gpu_command_uses(d, y);
    if (status) return status;
    const int code = d->driver->record(d, WB__GPU_COMPUTE, &a->ready);
    x->used = y->used = d->issued;
    return code ? wb__gpu_fail(d->driver, d, code, "before an operation of the ranks") : 0;
}

static int launch_direct(wb__gpu_device *d, wb__gpu_collective *a, void *const *buffers,
                         const size_t *offsets)
{
    wb__gpu_memory *x = buffers[a->x.buffer], *y = buffers[a->y.buffer];
    int status = wb__gpu_enter(d);
    if (status) return status;
    wb__mutex_lock(&d->lock);
    status = record_ready(d, a, x, y);
    wb__mutex_unlock(&d->lock);
    wb__gpu_leave(d);
    a->operation.from = (void *)(uintptr_t)(x->at + gpu_collective_offset_of(&a->x, offsets));
    a->operation.to = (void *)(uintptr_t)(y->at + gpu_collective_offset_of(&a->y, offsets));
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

static int launch_staged(const wb_device *base, wb__gpu_collective *a, void *const *buffers,
                         const size_t *offsets)
{
    const size_t at = gpu_collective_offset_of(&a->x, offsets);
    void *x = buffers[a->x.buffer];
    a->y_memory = buffers[a->y.buffer];
    a->y_at = gpu_collective_offset_of(&a->y, offsets);
    return a->pinned ? wb__gpu_download_pinned(base, &a->from, x, at, a->from_bytes)
                     : wb__gpu_download(base, a->from.at, x, at, a->from_bytes);
}

int wb__gpu_collective_launch(const wb_device *base, wb__gpu_collective *a, void *const *buffers,
                              const size_t *offsets)
{
    wb__mutex_lock(&a->lock);
    const int status = a->direct ? launch_direct(base->state, a, buffers, offsets)
                                 : launch_staged(base, a, buffers, offsets);
    if (status) wb__mutex_unlock(&a->lock);
    else a->begun = wb__collective_begin(&a->operation);
    return status;
}

int wb__gpu_collective_finish(const wb_device *base, wb__gpu_collective *a)
{
    int status = wb__collective_end(a->begun);
    if (!status && a->pinned && !a->direct)
        status = wb__gpu_upload_pinned(base, a->y_memory, a->y_at, a->result, a->to_bytes);
    else if (!status && !a->direct)
        status = wb__gpu_upload(base, a->y_memory, a->y_at, a->result->at, a->to_bytes);
    wb__mutex_unlock(&a->lock);
    return status;
}
