/* The queues: what is known of their progress, and copies between host and devices. */
#include "backend/opencl/opencl.h"

#include <string.h>

enum { MOST_WAITING = 16 };

/* ---- progress --------------------------------------------------------------------------------
 *
 * Now and then a command is given an event (a mark), and the queue is flushed: at first after each
 * command, so that an idle device starts at once, then after 2, 4, ... 16 of them.  The queue runs
 * in order, so a mark that is reached tells of all commands before it.
 *
 * What was enqueued takes place.  So a flush that fails is no failure of the command before it: the
 * next command tries again, and whoever waits for the queue is told what is wrong with it. */

bool wb__cl_wants_event(const wb__cl_device *d) { return d->waiting + 1 >= d->most_waiting; }

static void drop_oldest(wb__cl_device *d)
{
    cl.ReleaseEvent(d->mark[0].event);
    memmove(d->mark, d->mark + 1, (size_t)--d->n_marks * sizeof *d->mark);
}

void wb__cl_drop_marks(wb__cl_device *d)
{
    while (d->n_marks) drop_oldest(d);
}

void wb__cl_enqueued(wb__cl_device *d, cl_event event)
{
    d->issued++;
    d->waiting++;
    if (event) {
        if (d->n_marks == WB__CL_MARKS) drop_oldest(d);
        d->mark[d->n_marks].event = event;
        d->mark[d->n_marks++].count = d->issued;
    }
    if (d->waiting < d->most_waiting || cl.Flush(d->compute)) return;
    d->waiting = 0;
    d->most_waiting = WB__MIN(2 * d->most_waiting, MOST_WAITING);
}

/* With the lock: all commands up to this one are done. */
static void done_up_to(wb__cl_device *d, uint64_t count)
{
    d->completed = WB__MAX(d->completed, count);
    while (d->n_marks && d->mark[0].count <= d->completed) {
        cl_int status = CL_COMPLETE;
        if (!cl.GetEventInfo(d->mark[0].event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                             &status, NULL) && status < 0)
            d->failed = status;
        drop_oldest(d);
    }
}

/* With the lock: looks at the marks. */
static void look(wb__cl_device *d)
{
    while (d->n_marks) {
        cl_int status = 1;
        if (cl.GetEventInfo(d->mark[0].event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                            &status, NULL) || status > CL_COMPLETE)
            return;
        done_up_to(d, d->mark[0].count);
    }
}

/* The number of the last command, to be told to ended() when a later one that blocks has ended. */
static uint64_t begin(wb__cl_device *d)
{
    pthread_mutex_lock(&d->lock);
    const uint64_t count = d->issued;
    pthread_mutex_unlock(&d->lock);
    return count;
}

/* 0, or the error of a command before it that nobody had waited for. */
static int ended(wb__cl_device *d, uint64_t count)
{
    pthread_mutex_lock(&d->lock);
    done_up_to(d, count);
    const cl_int failed = d->failed;
    d->failed = 0;
    if (d->issued == count) d->waiting = 0, d->most_waiting = 1;
    pthread_mutex_unlock(&d->lock);
    return failed ? wb__cl_fail(d, "clEnqueueNDRangeKernel", failed,
                                "a command that was enqueued earlier failed") : 0;
}

int wb__cl_wait(const wb_device *base)
{
    wb__cl_device *d = base->state;
    if (!d->open) return 0;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    const uint64_t count = begin(d);
    const cl_int code = cl.Finish(d->compute);
    return code ? wb__cl_fail(d, "clFinish", code, "waiting for all that was launched")
                : ended(d, count);
}

/* ---- staging --------------------------------------------------------------------------------- */

void wb__cl_free_staging(wb__cl_device *d, wb__cl_staging *s)
{
    for (int i = 0; i < 2; i++)
        if (s->busy[i]) cl.ReleaseEvent(s->busy[i]);
    if (s->at) cl.EnqueueUnmapMemObject(d->compute, s->mem, s->at, 0, NULL, NULL);
    if (s->at) cl.Finish(d->compute);
    if (s->mem) cl.ReleaseMemObject(s->mem);
    s->busy[0] = s->busy[1] = NULL;
    s->mem = NULL;
    s->at = NULL;
}

static int make_staging(wb__cl_device *d, wb__cl_staging *s)
{
    cl_int code = 0;
    if (s->at) return 0;
    s->mem = cl.CreateBuffer(d->platform->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                             2 * WB__CL_HALF, NULL, &code);
    if (code) {
        s->mem = NULL;
        return wb__cl_fail(d, "clCreateBuffer", code, "%d bytes of pinned memory", 2 * WB__CL_HALF);
    }
    s->at = cl.EnqueueMapBuffer(d->transfer, s->mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                2 * WB__CL_HALF, 0, NULL, NULL, &code);
    if (!code) return 0;
    s->at = NULL;
    wb__cl_free_staging(d, s);
    return wb__cl_fail(d, "clEnqueueMapBuffer", code, "%d bytes of pinned memory",
                       2 * WB__CL_HALF);
}

/* Waits until a half's transfer has ended. */
static int wait_half(wb__cl_device *d, wb__cl_staging *s, int half)
{
    if (!s->busy[half]) return 0;
    const cl_int code = cl.WaitForEvents(1, &s->busy[half]);
    if (code) return wb__cl_fail(d, "clWaitForEvents", code, "a transfer");
    cl.ReleaseEvent(s->busy[half]);
    s->busy[half] = NULL;
    return 0;
}

static int wait_both(wb__cl_device *d, wb__cl_staging *s)
{
    const int a = wait_half(d, s, 0), b = wait_half(d, s, 1);
    return a ? a : b;
}

/* Through the compute queue the last pieces may still travel when this returns: what is enqueued
 * later comes after them. */
static int upload_staged(wb__cl_device *d, wb__cl_memory *m, size_t at, const unsigned char *from,
                         size_t bytes, cl_command_queue queue)
{
    wb__cl_staging *s = &d->up;
    cl_int code = 0;
    int status = make_staging(d, s);
    for (size_t done = 0; done < bytes && !status;) {
        const size_t n = WB__MIN(bytes - done, (size_t)WB__CL_HALF);
        const int half = s->next;
        status = wait_half(d, s, half);
        if (status) break;
        unsigned char *piece = s->at + (size_t)half * WB__CL_HALF;
        memcpy(piece, from + done, n);
        pthread_mutex_lock(&d->lock);
        code = cl.EnqueueWriteBuffer(queue, m->mem, CL_FALSE, at + done, n, piece, 0, NULL,
                                     &s->busy[half]);
        if (code) s->busy[half] = NULL;
        if (!code && queue == d->compute) {
            wb__cl_enqueued(d, NULL);
            m->used = d->issued;
        }
        pthread_mutex_unlock(&d->lock);
        if (!code) code = cl.Flush(queue);
        if (code) status = wb__cl_fail(d, "clEnqueueWriteBuffer", code, "%zu bytes", n);
        s->next = !half;
        done += n;
    }
    if (queue == d->transfer || status) {
        const int last = wait_both(d, s);
        if (!status) status = last;
    }
    return status;
}

/* Piece i + 1 travels while piece i is copied out. */
static int download_staged(wb__cl_device *d, unsigned char *to, const wb__cl_memory *m, size_t at,
                           size_t bytes)
{
    wb__cl_staging *s = &d->down;
    const size_t pieces = (bytes + WB__CL_HALF - 1) / WB__CL_HALF;
    int status = make_staging(d, s);
    if (!status) status = wait_both(d, s);
    for (size_t i = 0; i <= pieces && !status; i++) {
        if (i < pieces) {
            const size_t begins = i * WB__CL_HALF, n = WB__MIN(bytes - begins, (size_t)WB__CL_HALF);
            cl_event *busy = &s->busy[i & 1];
            cl_int code = cl.EnqueueReadBuffer(d->compute, m->mem, CL_FALSE, at + begins, n,
                                               s->at + (i & 1) * WB__CL_HALF, 0, NULL, busy);
            if (code) *busy = NULL;
            else code = cl.Flush(d->compute);
            if (code) {
                status = wb__cl_fail(d, "clEnqueueReadBuffer", code, "%zu bytes", n);
                break;
            }
        }
        if (!i) continue;
        const size_t last = i - 1, begins = last * WB__CL_HALF;
        status = wait_half(d, s, last & 1);
        if (!status)
            memcpy(to + begins, s->at + (last & 1) * WB__CL_HALF,
                   WB__MIN(bytes - begins, (size_t)WB__CL_HALF));
    }
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int check_place(wb__cl_device *d, const wb__cl_memory *m, size_t at, size_t bytes)
{
    if (wb__likely(at <= m->bytes && bytes <= m->bytes - at)) return 0;
    return wb__fail(WB_ERROR_INTERNAL, "opencl:%d: %zu bytes at %zu of a block of %zu",
                    d->base.ordinal, bytes, at, m->bytes);
}

int wb__cl_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes)
{
    wb__cl_device *d = base->state;
    wb__cl_memory *m = to;
    if (!bytes) return 0;
    if (check_place(d, m, at, bytes)) return WB_ERROR_INTERNAL;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->lock);
    if (m->used > d->completed) look(d);
    const cl_command_queue queue = m->used > d->completed ? d->compute : d->transfer;
    const uint64_t count = d->issued;
    pthread_mutex_unlock(&d->lock);
    if (d->staged) {
        pthread_mutex_lock(&d->up.lock);
        const int status = upload_staged(d, m, at, from, bytes, queue);
        pthread_mutex_unlock(&d->up.lock);
        return status;
    }
    const cl_int code =
        cl.EnqueueWriteBuffer(queue, m->mem, CL_TRUE, at, bytes, from, 0, NULL, NULL);
    if (code) return wb__cl_fail(d, "clEnqueueWriteBuffer", code, "%zu bytes", bytes);
    return queue == d->compute ? ended(d, count) : 0;
}

int wb__cl_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes)
{
    wb__cl_device *d = base->state;
    const wb__cl_memory *m = from;
    if (!bytes) return 0;
    if (check_place(d, m, at, bytes)) return WB_ERROR_INTERNAL;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    const uint64_t count = begin(d);
    if (d->staged) {
        pthread_mutex_lock(&d->down.lock);
        const int status = download_staged(d, to, m, at, bytes);
        pthread_mutex_unlock(&d->down.lock);
        return status ? status : ended(d, count);
    }
    const cl_int code =
        cl.EnqueueReadBuffer(d->compute, m->mem, CL_TRUE, at, bytes, to, 0, NULL, NULL);
    if (code) return wb__cl_fail(d, "clEnqueueReadBuffer", code, "%zu bytes", bytes);
    return ended(d, count);
}

/* From another device: after all that is enqueued there, and waited for, so that what is enqueued
 * there next may overwrite it. */
static int copy_across(wb__cl_device *d, wb__cl_memory *to, size_t to_at, wb__cl_device *source,
                       const wb__cl_memory *from, size_t from_at, size_t bytes)
{
    cl_event ready = NULL, copied = NULL;
    cl_int code = cl.EnqueueMarkerWithWaitList(source->compute, 0, NULL, &ready);
    if (code) return wb__cl_fail(source, "clEnqueueMarkerWithWaitList", code, "before a copy");
    code = cl.Flush(source->compute);
    int status = code ? wb__cl_fail(source, "clFlush", code, "before a copy") : 0;
    if (!status) {
        pthread_mutex_lock(&d->lock);
        code = cl.EnqueueCopyBuffer(d->compute, from->mem, to->mem, from_at, to_at, bytes, 1,
                                    &ready, &copied);
        if (!code) wb__cl_enqueued(d, NULL);
        to->used = d->issued;
        pthread_mutex_unlock(&d->lock);
        if (code)
            status = wb__cl_fail(d, "clEnqueueCopyBuffer", code, "%zu bytes from opencl:%d", bytes,
                                 source->base.ordinal);
    }
    if (copied) {
        code = cl.WaitForEvents(1, &copied);
        if (code && !status)
            status = wb__cl_fail(d, "clWaitForEvents", code, "%zu bytes from opencl:%d", bytes,
                                 source->base.ordinal);
        cl.ReleaseEvent(copied);
    }
    cl.ReleaseEvent(ready);
    return status;
}

int wb__cl_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes)
{
    wb__cl_device *d = base->state, *source = from_device->state;
    wb__cl_memory *target = to;
    if (d->platform != source->platform) return WB_ERROR_UNSUPPORTED;
    if (!bytes) return 0;
    if (check_place(d, target, to_at, bytes) || check_place(source, from, from_at, bytes))
        return WB_ERROR_INTERNAL;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    if (d != source) return copy_across(d, target, to_at, source, from, from_at, bytes);
    wb__cl_memory *m = (wb__cl_memory *)from;
    cl_event event = NULL;
    pthread_mutex_lock(&d->lock);
    const cl_int code = cl.EnqueueCopyBuffer(d->compute, m->mem, target->mem, from_at, to_at,
                                             bytes, 0, NULL, wb__cl_wants_event(d) ? &event : NULL);
    if (!code) {
        wb__cl_enqueued(d, event);
        m->used = target->used = d->issued;
    }
    pthread_mutex_unlock(&d->lock);
    return code ? wb__cl_fail(d, "clEnqueueCopyBuffer", code, "%zu bytes", bytes) : 0;
}
