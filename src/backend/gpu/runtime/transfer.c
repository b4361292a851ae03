/* The queues, the dependencies between them, and copies between host and devices.
 *
 * The compute queue executes kernels, copies from device memory to device memory, and small
 * downloads, in the order of the calls.  Uploads and large downloads have a queue each.  These two
 * queues run concurrently with the compute queue:
 *
 *   an upload waits for the last command that uses the memory;
 *   a large download waits for all earlier commands;
 *   a command waits for the last upload into memory that the command uses.
 *
 * "Command" means a command of the compute queue.  Commands and uploads are numbered.  Memory
 * records the last command and the last upload that used it (m->used, m->uploaded).  Some commands
 * (marks) and all uploads are followed by an event.  For an upload, the host waits only until a
 * part of the pinned memory is free.
 *
 * Without staging, the driver accesses the host's memory directly, and a transfer is complete when
 * the call returns.  An upload uses its own queue if no command can still use the memory; otherwise
 * it follows all commands on the compute queue, as every download does.
 *
 * If the driver has `flush`, some commands get an event and are followed by a flush of the queue:
 * at first each command, so that an idle device starts at once, then every 2nd, 4th, ... 16th
 * command.  A reached event means that all commands before it are completed.  Enqueued commands are
 * executed even if a flush fails.  So a failed flush is not reported: the next command flushes
 * again, and a function that waits for the queue gets the error. */
#include "backend/gpu/runtime/runtime.h"

#include <string.h>

enum { MAX_FLUSH_INTERVAL = 16 };

static int transfer_fail(wb__gpu_device *d, int code, const char *what)
{
    return wb__gpu_fail(d->driver, d, code, "%s", what);
}

static int transfer_fail_bytes(wb__gpu_device *d, int code, size_t bytes)
{
    return wb__gpu_fail(d->driver, d, code, "%zu bytes", bytes);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Returns the next entry of the ring of marks, whose old mark is overwritten. */
static wb__gpu_mark *next_mark(wb__gpu_device *d)
{
    wb__gpu_mark *mark = &d->mark[d->marks % WB__GPU_MARKS];
    mark->count = 0;
    if (d->marks >= WB__GPU_MARKS)
        d->marks_reached = WB__MAX(d->marks_reached, d->marks + 1 - WB__GPU_MARKS);
    return mark;
}

void **wb__gpu_next_event(wb__gpu_device *d)
{
    if (!d->driver->flush || d->waiting + 1 < d->flush_interval) return NULL;
    wb__gpu_mark *mark = next_mark(d);
    if (mark->event) d->driver->drop_event(mark->event);
    mark->event = NULL;
    return &mark->event;
}

void wb__gpu_count_command(wb__gpu_device *d, void **wanted)
{
    d->issued++;
    if (!d->driver->flush) return;
    d->waiting++;
    if (wanted && *wanted) d->mark[d->marks++ % WB__GPU_MARKS].count = d->issued;
    if (d->waiting < d->flush_interval || d->driver->flush(d)) return;
    d->waiting = 0;
    d->flush_interval = WB__MIN(2 * d->flush_interval, MAX_FLUSH_INTERVAL);
}

wb__gpu_mark *wb__gpu_mark_now(wb__gpu_device *d)
{
    wb__gpu_mark *mark = next_mark(d);
    const int code = d->driver->record(d, WB__GPU_COMPUTE, &mark->event);
    if (code) {
        transfer_fail(d, code, "behind what was launched");
        return NULL;
    }
    mark->count = d->issued;
    d->marks++;
    return mark;
}

/* With the lock held: records that all commands up to `count` are completed.  If one has failed,
 * d->failed receives its error code. */
static void set_completed(wb__gpu_device *d, uint64_t count)
{
    int ended = 0;
    d->completed = WB__MAX(d->completed, count);
    for (; d->marks_reached < d->marks; d->marks_reached++) {
        const wb__gpu_mark *mark = &d->mark[d->marks_reached % WB__GPU_MARKS];
        if (mark->count > d->completed) return;
        if (d->driver->done && d->driver->done(mark->event, &ended) && ended) d->failed = ended;
    }
}

/* With the lock held: checks which marks are reached. */
static void update_progress(wb__gpu_device *d)
{
    int ended = 0;
    while (d->driver->done && d->marks_reached < d->marks) {
        const wb__gpu_mark *mark = &d->mark[d->marks_reached % WB__GPU_MARKS];
        if (!d->driver->done(mark->event, &ended)) return;
        set_completed(d, mark->count);
    }
}

/* Returns the number of the last command so far.  A blocking transfer passes this number to
 * wb__gpu_commands_ended when it has ended. */
static uint64_t transfer_last_command(wb__gpu_device *d)
{
    wb__mutex_lock(&d->lock);
    const uint64_t count = d->issued;
    wb__mutex_unlock(&d->lock);
    return count;
}

int wb__gpu_commands_ended(wb__gpu_device *d, uint64_t count)
{
    wb__mutex_lock(&d->lock);
    set_completed(d, count);
    const int failed = d->failed;
    d->failed = 0;
    if (d->issued == count) d->waiting = 0, d->flush_interval = 1;
    wb__mutex_unlock(&d->lock);
    if (!failed) return 0;
    static const char what[] = "a command that was enqueued earlier failed";
    wb__gpu_mark_lost(d, failed, what);      /* the results of the failed command are missing */
    return transfer_fail(d, failed, what);
}

/* ---- dependencies between queues ------------------------------------------------------------- */

/* Makes the compute queue wait for the event of the last upload into m.  If this event is no longer
 * in the ring, the queue waits for the oldest event there, which comes after the upload. */
int wb__gpu_command_uses(wb__gpu_device *d, wb__gpu_memory *m)
{
    m->used = d->issued + 1;
    if (wb__likely(m->uploaded <= d->awaited)) return 0;
    uint64_t which = m->uploaded;
    if (which + WB__GPU_MARKS <= d->uploads) which = d->uploads - WB__GPU_MARKS + 1;
    const wb__gpu_mark *mark = &d->upload[which % WB__GPU_MARKS];
    const int code = d->driver->wait_event(d, WB__GPU_COMPUTE, mark->event);
    if (code) return transfer_fail(d, code, "for an upload");
    d->awaited = which;
    return 0;
}

int wb__gpu_queue_after(wb__gpu_device *d, wb__gpu_queue q, uint64_t count, const char *what)
{
    const wb__gpu_mark *behind = NULL;
    if (count <= d->completed) return 0;
    for (int i = 0; i < WB__GPU_MARKS; i++) {
        const wb__gpu_mark *mark = &d->mark[i];
        if (mark->count >= count && (!behind || mark->count < behind->count)) behind = mark;
    }
    if (!behind && !(behind = wb__gpu_mark_now(d))) return WB_ERROR_DEVICE;
    const int code = d->driver->wait_event(d, q, behind->event);
    return code ? transfer_fail(d, code, what) : 0;
}

/* With the lock held: makes the upload queue wait for the enqueued commands that use m. */
static int upload_after_uses(wb__gpu_device *d, const wb__gpu_memory *m)
{
    return wb__gpu_queue_after(d, WB__GPU_UP, m->used, "before an upload");
}

/* With the lock held: counts the commands just put on the upload queue as one upload into this
 * memory, and puts an event after them. */
static int transfer_count_upload(wb__gpu_device *d, wb__gpu_memory *m)
{
    wb__gpu_mark *mark = &d->upload[(d->uploads + 1) % WB__GPU_MARKS];
    const int code = d->driver->record(d, WB__GPU_UP, &mark->event);
    if (code) return transfer_fail(d, code, "behind an upload");
    mark->count = m->uploaded = ++d->uploads;
    return 0;
}

int wb__gpu_wait(const wb_device *base)
{
    wb__gpu_device *d = base->state;
    if (!d->open) return wb__gpu_check_fork(d->driver);
    int status = wb__gpu_enter(d);
    if (status) return status;
    const uint64_t count = transfer_last_command(d);
    int code = d->staged ? d->driver->sync(d, WB__GPU_UP) : 0;
    if (!code) code = d->driver->sync(d, WB__GPU_COMPUTE);
    status = code ? transfer_fail(d, code, "waiting for all that was launched")
                  : wb__gpu_commands_ended(d, count);
    wb__gpu_leave(d);
    return status;
}

/* ---- staging --------------------------------------------------------------------------------- */

void wb__gpu_free_staging(wb__gpu_device *d, wb__gpu_staging *s)
{
    if (s->at) d->driver->unpin(d, s);
    s->at = NULL;
    s->object = NULL;
    s->busy[0] = s->busy[1] = false;
}

int wb__gpu_make_staging(wb__gpu_device *d, wb__gpu_staging *s)
{
    const size_t bytes = 2 * WB__GPU_HALF + (s == &d->to ? WB__GPU_MARKS * WB__GPU_SMALL
                                                         : WB__GPU_READS * 8);
    if (s->at) return 0;
    const int code = d->driver->pin(d, s, bytes);
    if (!code) return 0;
    s->at = NULL;
    return wb__gpu_fail(d->driver, d, code, "%zu bytes of pinned memory", bytes);
}

/* Waits until the transfer of a half has ended. */
static int wait_half(wb__gpu_device *d, wb__gpu_staging *s, int half)
{
    if (!s->busy[half]) return 0;
    const int code = d->driver->sync_event(s->event[half]);
    if (code) return transfer_fail(d, code, "a transfer");
    s->busy[half] = false;
    return 0;
}

/* ---- uploads --------------------------------------------------------------------------------- */

/* With the lock held: uploads one chunk from pinned memory, followed by an event. */
static int transfer_upload_chunk(wb__gpu_device *d, wb__gpu_staging *s, int half,
                                 const wb__gpu_memory *m, size_t at, size_t bytes)
{
    int code = d->driver->up(d, WB__GPU_UP, m->at, at, s->at + (size_t)half * WB__GPU_HALF, bytes,
                             false);
    if (code) return transfer_fail_bytes(d, code, bytes);
    code = d->driver->record(d, WB__GPU_UP, &s->event[half]);
    if (code) return wb__gpu_fail(d->driver, d, code, "behind %zu bytes", bytes);
    s->busy[half] = true;
    return 0;
}

static int upload_large(wb__gpu_device *d, wb__gpu_memory *m, size_t at, const unsigned char *from,
                        size_t bytes)
{
    wb__gpu_staging *s = &d->to;
    int status = 0;
    for (size_t done = 0, n; done < bytes && !status; done += n) {
        const int half = s->next;
        n = WB__MIN(bytes - done, (size_t)WB__GPU_HALF);
        status = wait_half(d, s, half);
        if (status) break;
        memcpy(s->at + (size_t)half * WB__GPU_HALF, from + done, n);
        wb__mutex_lock(&d->lock);
        if (!done) status = upload_after_uses(d, m);
        if (!status) status = transfer_upload_chunk(d, s, half, m, at + done, n);
        if (!status && done + n == bytes) status = transfer_count_upload(d, m);
        wb__mutex_unlock(&d->lock);
        s->next = !half;
    }
    return status;
}

/* Uploads by a small pinned buffer: each entry of the ring d->upload has one, which is free when
 * the event of the entry is reached. */
static int upload_small(wb__gpu_device *d, wb__gpu_memory *m, size_t at, const void *from,
                        size_t bytes)
{
    const uint64_t slot = (d->uploads + 1) % WB__GPU_MARKS;
    unsigned char *piece = d->to.at + 2 * WB__GPU_HALF + slot * WB__GPU_SMALL;
    int code = d->upload[slot].count ? d->driver->sync_event(d->upload[slot].event) : 0;
    if (code) return transfer_fail(d, code, "an upload");
    memcpy(piece, from, bytes);
    wb__mutex_lock(&d->lock);
    int status = upload_after_uses(d, m);
    if (!status && (code = d->driver->up(d, WB__GPU_UP, m->at, at, piece, bytes, false)))
        status = transfer_fail_bytes(d, code, bytes);
    if (!status) status = transfer_count_upload(d, m);
    wb__mutex_unlock(&d->lock);
    return status;
}

static int upload_staged(wb__gpu_device *d, wb__gpu_memory *m, size_t at, const void *from,
                         size_t bytes)
{
    wb__mutex_lock(&d->to.lock);
    int status = wb__gpu_make_staging(d, &d->to);
    if (!status)
        status = bytes <= WB__GPU_SMALL ? upload_small(d, m, at, from, bytes)
                                        : upload_large(d, m, at, from, bytes);
    /* on failure, wait: no event follows the chunks that are already enqueued */
    if (status) d->driver->sync(d, WB__GPU_UP);
    wb__mutex_unlock(&d->to.lock);
    return status;
}

static int upload_direct(wb__gpu_device *d, const wb__gpu_memory *m, size_t at, const void *from,
                         size_t bytes)
{
    wb__mutex_lock(&d->lock);
    if (m->used > d->completed) update_progress(d);
    const wb__gpu_queue queue = m->used > d->completed ? WB__GPU_COMPUTE : WB__GPU_UP;
    const uint64_t count = d->issued;
    wb__mutex_unlock(&d->lock);
    const int code = d->driver->up(d, queue, m->at, at, from, bytes, true);
    if (code) return transfer_fail_bytes(d, code, bytes);
    return queue == WB__GPU_COMPUTE ? wb__gpu_commands_ended(d, count) : 0;
}

static int transfer_check_place(wb__gpu_device *d, const wb__gpu_memory *m, size_t at, size_t bytes)
{
    if (wb__likely(at <= m->bytes && bytes <= m->bytes - at)) return 0;
    return wb__fail(WB_ERROR_INTERNAL, "%s:%d: %zu bytes at %zu of a block of %zu",
                    d->driver->backend->tag, d->base.ordinal, bytes, at, m->bytes);
}

int wb__gpu_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes)
{
    wb__gpu_device *d = base->state;
    if (!bytes) return 0;
    if (transfer_check_place(d, to, at, bytes)) return WB_ERROR_INTERNAL;
    int status = wb__gpu_enter(d);
    if (status) return status;
    status = d->staged ? upload_staged(d, to, at, from, bytes)
                                 : upload_direct(d, to, at, from, bytes);
    wb__gpu_leave(d);
    return status;
}

/* ---- downloads ------------------------------------------------------------------------------- */

/* Chooses the queue of a download, and makes the download wait for all earlier launches.  A small
 * download is a command of the compute queue; a large one runs concurrently with later launches. */
static int download_queue(wb__gpu_device *d, wb__gpu_memory *m, size_t bytes, wb__gpu_queue *queue)
{
    *queue = bytes <= WB__GPU_SMALL ? WB__GPU_COMPUTE : WB__GPU_DOWN;
    wb__mutex_lock(&d->lock);
    int status = wb__gpu_command_uses(d, m);
    if (!status && *queue == WB__GPU_COMPUTE) {
        wb__gpu_count_command(d, NULL);
    } else if (!status) {
        const wb__gpu_mark *mark = wb__gpu_mark_now(d);
        const int code = mark ? d->driver->wait_event(d, WB__GPU_DOWN, mark->event) : 0;
        status = code ? transfer_fail(d, code, "before a download") : mark ? 0 : WB_ERROR_DEVICE;
    }
    wb__mutex_unlock(&d->lock);
    return status;
}

static int transfer_download_chunk(wb__gpu_device *d, wb__gpu_staging *s, int half,
                                   const wb__gpu_memory *m, size_t at, size_t bytes,
                                   wb__gpu_queue queue)
{
    int code = d->driver->down(d, queue, s->at + (size_t)half * WB__GPU_HALF, m->at, at, bytes,
                               false);
    if (code) return transfer_fail_bytes(d, code, bytes);
    code = d->driver->record(d, queue, &s->event[half]);
    if (!code) {
        s->busy[half] = true;
        return 0;
    }
    const int status = wb__gpu_fail(d->driver, d, code, "behind %zu bytes", bytes);
    d->driver->sync(d, queue);
    return status;
}

/* Downloads chunk by chunk: chunk i + 1 is transferred while the host copies chunk i. */
static int download_staged(wb__gpu_device *d, unsigned char *to, wb__gpu_memory *m, size_t at,
                           size_t bytes)
{
    wb__gpu_staging *s = &d->from;
    wb__gpu_queue queue = WB__GPU_COMPUTE;
    const size_t pieces = (bytes + WB__GPU_HALF - 1) / WB__GPU_HALF;
    int status = wb__gpu_make_staging(d, s);
    if (!status) status = wait_half(d, s, 0);
    if (!status) status = wait_half(d, s, 1);
    if (!status) status = download_queue(d, m, bytes, &queue);
    for (size_t i = 0; i <= pieces && !status; i++) {
        if (i < pieces) {
            const size_t begins = i * WB__GPU_HALF;
            status = transfer_download_chunk(d, s, i & 1, m, at + begins,
                                             WB__MIN(bytes - begins, (size_t)WB__GPU_HALF), queue);
            if (status) break;
        }
        if (!i) continue;
        const size_t last = i - 1, begins = last * WB__GPU_HALF;
        status = wait_half(d, s, last & 1);
        if (!status)
            memcpy(to + begins, s->at + (last & 1) * WB__GPU_HALF,
                   WB__MIN(bytes - begins, (size_t)WB__GPU_HALF));
    }
    return status;
}

int wb__gpu_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes)
{
    wb__gpu_device *d = base->state;
    wb__gpu_memory *m = (wb__gpu_memory *)from;
    int status = 0, code = 0;
    if (!bytes) return 0;
    if (transfer_check_place(d, m, at, bytes)) return WB_ERROR_INTERNAL;
    if ((status = wb__gpu_enter(d))) return status;
    const uint64_t count = transfer_last_command(d);
    if (d->staged) {
        wb__mutex_lock(&d->from.lock);
        status = download_staged(d, to, m, at, bytes);
        wb__mutex_unlock(&d->from.lock);
    } else if ((code = d->driver->down(d, WB__GPU_COMPUTE, to, m->at, at, bytes, true))) {
        status = transfer_fail_bytes(d, code, bytes);
    }
    if (!status) status = wb__gpu_commands_ended(d, count);
    wb__gpu_leave(d);
    return status;
}

/* ---- pinned memory of the caller ------------------------------------------------------------- */

int wb__gpu_upload_pinned(const wb_device *base, void *to, size_t at, wb__gpu_staging *s,
                          size_t bytes)
{
    wb__gpu_device *d = base->state;
    if (!bytes) return 0;
    if (transfer_check_place(d, to, at, bytes)) return WB_ERROR_INTERNAL;
    int status = wb__gpu_enter(d);
    if (status) return status;
    wb__mutex_lock(&d->lock);
    status = upload_after_uses(d, to);
    if (!status) status = transfer_upload_chunk(d, s, 0, to, at, bytes);
    if (!status) status = transfer_count_upload(d, to);
    wb__mutex_unlock(&d->lock);
    if (status) d->driver->sync(d, WB__GPU_UP);
    wb__gpu_leave(d);
    return status;
}

int wb__gpu_download_pinned(const wb_device *base, wb__gpu_staging *s, const void *from, size_t at,
                            size_t bytes)
{
    wb__gpu_device *d = base->state;
    wb__gpu_memory *m = (wb__gpu_memory *)from;
    wb__gpu_queue queue = WB__GPU_COMPUTE;
    if (!bytes) return 0;
    if (transfer_check_place(d, m, at, bytes)) return WB_ERROR_INTERNAL;
    int status = wb__gpu_enter(d);
    if (status) return status;
    const uint64_t count = transfer_last_command(d);
    status = wait_half(d, s, 0);
    if (!status) status = download_queue(d, m, bytes, &queue);
    const int code = status ? 0 : d->driver->down(d, queue, s->at, m->at, at, bytes, true);
    if (code) status = transfer_fail_bytes(d, code, bytes);
    if (!status) status = wb__gpu_commands_ended(d, count);
    wb__gpu_leave(d);
    return status;
}

int wb__gpu_map(const wb_device *base, const void *memory, const void **at)
{
    wb__gpu_device *d = base->state;
    const wb__gpu_memory *m = memory;
    if (!d->driver->contents || d->staged) return WB_ERROR_UNSUPPORTED;
    int status = wb__gpu_enter(d);
    if (status) return status;
    const uint64_t count = transfer_last_command(d);
    const int code = d->driver->sync(d, WB__GPU_COMPUTE);
    status = code ? transfer_fail(d, code, "before reading") : wb__gpu_commands_ended(d, count);
    *at = status ? NULL : d->driver->contents(m->at);
    wb__gpu_leave(d);
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int copy_within(wb__gpu_device *d, wb__gpu_memory *to, size_t to_at, wb__gpu_memory *from,
                       size_t from_at, size_t bytes)
{
    int status = wb__gpu_enter(d);
    if (status) return status;
    wb__mutex_lock(&d->lock);
    status = wb__gpu_command_uses(d, from);
    if (!status) status = wb__gpu_command_uses(d, to);
    if (!status) {
        void **event = wb__gpu_next_event(d);
        const int code = d->driver->copy(d, to->at, to_at, d, from->at, from_at, bytes, event);
        if (code) status = transfer_fail_bytes(d, code, bytes);
        else wb__gpu_count_command(d, event);
    }
    wb__mutex_unlock(&d->lock);
    wb__gpu_leave(d);
    return status;
}

/* With the lock held: creates an event after all commands of the compute queue so far.  The caller
 * drops *event if it is not NULL, also on failure. */
static int new_event_after_all(wb__gpu_device *d, void **event)
{
    int code = d->driver->new_event ? d->driver->new_event(event) : 0;
    if (!code) code = d->driver->record(d, WB__GPU_COMPUTE, event);
    return code ? transfer_fail(d, code, "behind what was launched") : 0;
}

static int wait_for_other_device(wb__gpu_device *d, const wb__gpu_device *other, void *event)
{
    const int code = d->driver->wait_event(d, WB__GPU_COMPUTE, event);
    return code ? wb__gpu_fail(d->driver, d, code, "for %s:%d", d->driver->backend->tag,
                               other->base.ordinal) : 0;
}

/* With the lock held: enqueues a copy, which waits for the event `ready`.  *copied receives an
 * event after the copy; the caller drops this event. */
static int enqueue_copy_after(wb__gpu_device *d, wb__gpu_memory *to, size_t to_at,
                              wb__gpu_device *source, const wb__gpu_memory *from, size_t from_at,
                              size_t bytes, void *const ready, void **copied)
{
    int status = wb__gpu_command_uses(d, to);
    if (!status) status = wait_for_other_device(d, source, ready);
    if (status) return status;
    const int code = d->driver->copy(d, to->at, to_at, source, from->at, from_at, bytes, NULL);
    if (code)
        return wb__gpu_fail(d->driver, d, code, "%zu bytes from %s:%d", bytes,
                            d->driver->backend->tag, source->base.ordinal);
    wb__gpu_count_command(d, NULL);
    return new_event_after_all(d, copied);
}

/* Copies from another device, the source, on d's compute queue.  The copy waits for the last use of
 * `from` on the source; later commands of the source wait for the copy, since they may overwrite
 * `from`. */
static int copy_across(wb__gpu_device *d, wb__gpu_memory *to, size_t to_at, wb__gpu_device *source,
                       wb__gpu_memory *from, size_t from_at, size_t bytes)
{
    void *ready = NULL, *copied = NULL;
    int status = wb__gpu_enter(source);
    if (status) return status;
    wb__mutex_lock(&source->lock);
    status = wb__gpu_command_uses(source, from);
    if (!status) status = new_event_after_all(source, &ready);
    wb__mutex_unlock(&source->lock);
    wb__gpu_leave(source);
    if (!status && !(status = wb__gpu_enter(d))) {
        wb__mutex_lock(&d->lock);
        status = enqueue_copy_after(d, to, to_at, source, from, from_at, bytes, ready, &copied);
        wb__mutex_unlock(&d->lock);
        wb__gpu_leave(d);
    }
    if (!status && !(status = wb__gpu_enter(source))) {
        wb__mutex_lock(&source->lock);
        status = wait_for_other_device(source, d, copied);
        wb__gpu_count_command(source, NULL);
        from->used = source->issued;
        wb__mutex_unlock(&source->lock);
        wb__gpu_leave(source);
    }
    if (ready && wb__gpu_enter_to_release(source)) {
        d->driver->drop_event(ready);
        wb__gpu_leave(source);
    }
    if (copied && wb__gpu_enter_to_release(d)) {
        d->driver->drop_event(copied);
        wb__gpu_leave(d);
    }
    return status;
}

int wb__gpu_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                 const void *from, size_t from_at, size_t bytes)
{
    wb__gpu_device *d = base->state, *source = from_device->state;
    wb__gpu_memory *m = (wb__gpu_memory *)from;
    if (d->driver->reaches && !d->driver->reaches(d, source)) return WB_ERROR_UNSUPPORTED;
    if (!bytes) return 0;
    if (transfer_check_place(d, to, to_at, bytes) ||
        transfer_check_place(source, m, from_at, bytes))
        return WB_ERROR_INTERNAL;
    return d == source ? copy_within(d, to, to_at, m, from_at, bytes)
                       : copy_across(d, to, to_at, source, m, from_at, bytes);
}
