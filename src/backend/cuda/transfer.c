/* The streams, what waits for what between them, and copies between host and devices.
 *
 * Kernels, copies within the device and small downloads are commands of the compute stream, which
 * runs in the order of the calls.  Uploads have a stream of their own and run beside it:
 *
 *   before an upload, its stream waits for the last command that uses the memory;
 *   before a command, the compute stream waits for the last upload into memory that it uses.
 *
 * Both know by numbers: memory remembers the last of each (m->used, m->uploaded), and an event
 * stands behind some commands (marks) and behind every upload.  The host waits for nothing but a
 * half of the pinned memory to be free. */
#include "backend/cuda/cuda.h"

#include <string.h>

/* ---- what waits for what --------------------------------------------------------------------- */

/* An upload that is older than all events of the ring was before one of them on the same stream. */
int wb__cu_uses(wb__cu_device *d, wb__cu_memory *m)
{
    m->used = d->issued + 1;
    if (wb__likely(m->uploaded <= d->awaited)) return 0;
    uint64_t which = m->uploaded;
    if (which + WB__CU_MARKS <= d->uploads) which = d->uploads - WB__CU_MARKS + 1;
    const wb__cu_mark *mark = &d->upload[which % WB__CU_MARKS];
    const CUresult code = cu.StreamWaitEvent(d->compute, mark->event, 0);
    if (code) return wb__cu_fail(d, "cuStreamWaitEvent", code, "for an upload");
    d->awaited = which;
    return 0;
}

wb__cu_mark *wb__cu_mark_now(wb__cu_device *d)
{
    wb__cu_mark *mark = &d->mark[d->marks % WB__CU_MARKS];
    const CUresult code = cu.EventRecord(mark->event, d->compute);
    if (code) {
        wb__cu_fail(d, "cuEventRecord", code, "behind what was launched");
        return NULL;
    }
    mark->count = d->issued;
    d->marks++;
    return mark;
}

/* With the lock: the upload stream waits until nothing that was put on the compute stream uses this
 * memory.  The oldest mark behind its last use is the first to be reached. */
static int upload_after_uses(wb__cu_device *d, const wb__cu_memory *m)
{
    const wb__cu_mark *behind = NULL;
    if (!m->used) return 0;
    for (int i = 0; i < WB__CU_MARKS; i++) {
        const wb__cu_mark *mark = &d->mark[i];
        if (mark->count >= m->used && (!behind || mark->count < behind->count)) behind = mark;
    }
    if (!behind && !(behind = wb__cu_mark_now(d))) return WB_ERROR_DEVICE;
    const CUresult code = cu.StreamWaitEvent(d->up, behind->event, 0);
    return code ? wb__cu_fail(d, "cuStreamWaitEvent", code, "before an upload") : 0;
}

/* With the lock: all that was put on the upload stream is one upload more, into this memory. */
static int uploaded(wb__cu_device *d, wb__cu_memory *m)
{
    wb__cu_mark *mark = &d->upload[(d->uploads + 1) % WB__CU_MARKS];
    const CUresult code = cu.EventRecord(mark->event, d->up);
    if (code) return wb__cu_fail(d, "cuEventRecord", code, "behind an upload");
    mark->count = m->uploaded = ++d->uploads;
    return 0;
}

int wb__cu_wait(const wb_device *base)
{
    wb__cu_device *d = base->state;
    if (!d->open) return wb__cu_check_fork();
    if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
    CUresult code = cu.StreamSynchronize(d->up);
    if (!code) code = cu.StreamSynchronize(d->compute);
    const int status =
        code ? wb__cu_fail(d, "cuStreamSynchronize", code, "waiting for all that was launched") : 0;
    wb__cu_leave();
    return status;
}

/* ---- staging --------------------------------------------------------------------------------- */

void wb__cu_free_staging(wb__cu_staging *s)
{
    if (s->at) cu.MemFreeHost(s->at);
    s->at = NULL;
    s->busy[0] = s->busy[1] = false;
}

static int make_staging(wb__cu_device *d, wb__cu_staging *s)
{
    void *at = NULL;
    if (s->at) return 0;
    const size_t bytes = 2 * WB__CU_HALF + (s == &d->to ? WB__CU_MARKS * WB__CU_SMALL : 0);
    const CUresult code = cu.MemHostAlloc(&at, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (code) return wb__cu_fail(d, "cuMemHostAlloc", code, "%zu bytes of pinned memory", bytes);
    s->at = at;
    return 0;
}

/* Waits until a half's transfer has ended. */
static int wait_half(wb__cu_device *d, wb__cu_staging *s, int half)
{
    if (!s->busy[half]) return 0;
    const CUresult code = cu.EventSynchronize(s->event[half]);
    if (code) return wb__cu_fail(d, "cuEventSynchronize", code, "a transfer");
    s->busy[half] = false;
    return 0;
}

/* ---- uploads --------------------------------------------------------------------------------- */

/* With the lock: one piece from pinned memory, and the event that tells when it has left it. */
static int put_piece(wb__cu_device *d, wb__cu_staging *s, int half, CUdeviceptr to, size_t bytes)
{
    CUresult code = cu.MemcpyHtoDAsync_v2(to, s->at + (size_t)half * WB__CU_HALF, bytes, d->up);
    if (code) return wb__cu_fail(d, "cuMemcpyHtoDAsync", code, "%zu bytes", bytes);
    code = cu.EventRecord(s->event[half], d->up);
    if (code) return wb__cu_fail(d, "cuEventRecord", code, "behind %zu bytes", bytes);
    s->busy[half] = true;
    return 0;
}

static int upload_staged(wb__cu_device *d, wb__cu_memory *m, size_t at, const unsigned char *from,
                         size_t bytes)
{
    wb__cu_staging *s = &d->to;
    int status = make_staging(d, s);
    bool begun = false;
    for (size_t done = 0; done < bytes && !status;) {
        const size_t n = WB__MIN(bytes - done, (size_t)WB__CU_HALF);
        const int half = s->next;
        status = wait_half(d, s, half);
        if (status) break;
        memcpy(s->at + (size_t)half * WB__CU_HALF, from + done, n);
        pthread_mutex_lock(&d->lock);
        if (!begun) status = upload_after_uses(d, m);
        if (!status) status = put_piece(d, s, half, m->at + at + done, n);
        begun = true;
        done += n;
        if (!status && done == bytes) status = uploaded(d, m);
        pthread_mutex_unlock(&d->lock);
        s->next = !half;
    }
    return status;
}

/* A small one has pinned memory of its own, which is free again when the event of the upload that had
 * it before is reached. */
static int upload_small(wb__cu_device *d, wb__cu_memory *m, size_t at, const void *from,
                        size_t bytes)
{
    const uint64_t slot = (d->uploads + 1) % WB__CU_MARKS;
    int status = make_staging(d, &d->to);
    if (status) return status;
    unsigned char *piece = d->to.at + 2 * WB__CU_HALF + slot * WB__CU_SMALL;
    CUresult code = d->upload[slot].count ? cu.EventSynchronize(d->upload[slot].event) : 0;
    if (code) return wb__cu_fail(d, "cuEventSynchronize", code, "an upload");
    memcpy(piece, from, bytes);
    pthread_mutex_lock(&d->lock);
    status = upload_after_uses(d, m);
    if (!status && (code = cu.MemcpyHtoDAsync_v2(m->at + at, piece, bytes, d->up)))
        status = wb__cu_fail(d, "cuMemcpyHtoDAsync", code, "%zu bytes", bytes);
    if (!status) status = uploaded(d, m);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static int check_place(wb__cu_device *d, const wb__cu_memory *m, size_t at, size_t bytes)
{
    if (wb__likely(at <= m->bytes && bytes <= m->bytes - at)) return 0;
    return wb__fail(WB_ERROR_INTERNAL, "cuda:%d: %zu bytes at %zu of a block of %zu", d->ordinal,
                    bytes, at, m->bytes);
}

int wb__cu_upload(const wb_device *base, void *to, size_t at, const void *from, size_t bytes)
{
    wb__cu_device *d = base->state;
    if (!bytes) return 0;
    if (check_place(d, to, at, bytes)) return WB_ERROR_INTERNAL;
    if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->to.lock);
    const int status = bytes <= WB__CU_SMALL ? upload_small(d, to, at, from, bytes)
                                             : upload_staged(d, to, at, from, bytes);
    if (status) cu.StreamSynchronize(d->up);    /* what is on its way is known to nobody */
    pthread_mutex_unlock(&d->to.lock);
    wb__cu_leave();
    return status;
}

/* ---- downloads ------------------------------------------------------------------------------- */

/* The stream on which the download goes, behind all that was launched: a small one in the compute
 * stream's own line, a large one beside what is launched after it. */
static int download_stream(wb__cu_device *d, wb__cu_memory *m, size_t bytes, CUstream *stream)
{
    *stream = bytes <= WB__CU_SMALL ? d->compute : d->down;
    pthread_mutex_lock(&d->lock);
    int status = wb__cu_uses(d, m);
    if (!status && *stream == d->compute) {
        wb__cu_issue(d);
    } else if (!status) {
        const wb__cu_mark *mark = wb__cu_mark_now(d);
        const CUresult code = mark ? cu.StreamWaitEvent(d->down, mark->event, 0) : 0;
        status = code ? wb__cu_fail(d, "cuStreamWaitEvent", code, "before a download")
               : mark ? 0 : WB_ERROR_DEVICE;
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

static int get_piece(wb__cu_device *d, wb__cu_staging *s, int half, CUdeviceptr from, size_t bytes,
                     CUstream stream)
{
    CUresult code = cu.MemcpyDtoHAsync_v2(s->at + (size_t)half * WB__CU_HALF, from, bytes, stream);
    if (code) return wb__cu_fail(d, "cuMemcpyDtoHAsync", code, "%zu bytes", bytes);
    code = cu.EventRecord(s->event[half], stream);
    if (!code) {
        s->busy[half] = true;
        return 0;
    }
    cu.StreamSynchronize(stream);
    return wb__cu_fail(d, "cuEventRecord", code, "behind %zu bytes", bytes);
}

/* Piece i + 1 travels while piece i is copied out. */
static int download(wb__cu_device *d, unsigned char *to, wb__cu_memory *m, size_t at, size_t bytes)
{
    wb__cu_staging *s = &d->from;
    CUstream stream = NULL;
    const size_t pieces = (bytes + WB__CU_HALF - 1) / WB__CU_HALF;
    int status = make_staging(d, s);
    if (!status) status = wait_half(d, s, 0);
    if (!status) status = wait_half(d, s, 1);
    if (!status) status = download_stream(d, m, bytes, &stream);
    for (size_t i = 0; i <= pieces && !status; i++) {
        if (i < pieces) {
            const size_t begins = i * WB__CU_HALF;
            status = get_piece(d, s, i & 1, m->at + at + begins,
                               WB__MIN(bytes - begins, (size_t)WB__CU_HALF), stream);
            if (status) break;
        }
        if (!i) continue;
        const size_t last = i - 1, begins = last * WB__CU_HALF;
        status = wait_half(d, s, last & 1);
        if (!status)
            memcpy(to + begins, s->at + (last & 1) * WB__CU_HALF,
                   WB__MIN(bytes - begins, (size_t)WB__CU_HALF));
    }
    return status;
}

int wb__cu_download(const wb_device *base, void *to, const void *from, size_t at, size_t bytes)
{
    wb__cu_device *d = base->state;
    if (!bytes) return 0;
    if (check_place(d, from, at, bytes)) return WB_ERROR_INTERNAL;
    if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->from.lock);
    const int status = download(d, to, (wb__cu_memory *)from, at, bytes);
    pthread_mutex_unlock(&d->from.lock);
    wb__cu_leave();
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int copy_within(wb__cu_device *d, wb__cu_memory *to, size_t to_at, wb__cu_memory *from,
                       size_t from_at, size_t bytes)
{
    if (wb__cu_enter(d)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->lock);
    int status = wb__cu_uses(d, from);
    if (!status) status = wb__cu_uses(d, to);
    if (!status) {
        const CUresult code =
            cu.MemcpyDtoDAsync_v2(to->at + to_at, from->at + from_at, bytes, d->compute);
        if (code) status = wb__cu_fail(d, "cuMemcpyDtoDAsync", code, "%zu bytes", bytes);
        else wb__cu_issue(d);
    }
    pthread_mutex_unlock(&d->lock);
    wb__cu_leave();
    return status;
}

/* Lets `d` reach the memory of `source` directly, where the hardware can; where it cannot, the driver
 * takes the copy through the host by itself.  With d's lock and context. */
static int reach(wb__cu_device *d, wb__cu_device *source)
{
    int can = 0;
    const uint64_t bit = (uint64_t)1 << source->ordinal;
    if (d->reached & bit) return 0;
    CUresult code = cu.DeviceCanAccessPeer(&can, d->id, source->id);
    if (code) return wb__cu_fail(d, "cuDeviceCanAccessPeer", code, "cuda:%d", source->ordinal);
    if (can) {
        const wb__cu_access access = {{CU_MEM_LOCATION_TYPE_DEVICE, d->id},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        code = cu.CtxEnablePeerAccess(source->context, 0);
        if (code && code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
            return wb__cu_fail(d, "cuCtxEnablePeerAccess", code, "cuda:%d", source->ordinal);
        code = source->pool ? cu.MemPoolSetAccess(source->pool, &access, 1) : 0;
        if (code) return wb__cu_fail(d, "cuMemPoolSetAccess", code, "cuda:%d", source->ordinal);
    }
    d->reached |= bit;
    return 0;
}

/* An event of the source's behind the last use of `from`; then, on d's compute stream, the copy. */
static int copy_across(wb__cu_device *d, wb__cu_memory *to, size_t to_at, wb__cu_device *source,
                       wb__cu_memory *from, size_t from_at, size_t bytes)
{
    const wb__cu_mark *ready = NULL, *copied = NULL;
    CUresult code = 0;
    if (wb__cu_enter(source)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&source->lock);
    int status = wb__cu_uses(source, from);
    if (!status && !(ready = wb__cu_mark_now(source))) status = WB_ERROR_DEVICE;
    pthread_mutex_unlock(&source->lock);
    wb__cu_leave();
    if (status || (status = wb__cu_enter(d))) return status;
    pthread_mutex_lock(&d->lock);
    status = reach(d, source);
    if (!status) status = wb__cu_uses(d, to);
    if (!status && (code = cu.StreamWaitEvent(d->compute, ready->event, 0)))
        status = wb__cu_fail(d, "cuStreamWaitEvent", code, "for cuda:%d", source->ordinal);
    if (!status && (code = cu.MemcpyPeerAsync(to->at + to_at, d->context, from->at + from_at,
                                              source->context, bytes, d->compute)))
        status = wb__cu_fail(d, "cuMemcpyPeerAsync", code, "%zu bytes from cuda:%d", bytes,
                             source->ordinal);
    if (!status) {
        wb__cu_issue(d);
        if (!(copied = wb__cu_mark_now(d))) status = WB_ERROR_DEVICE;
    }
    pthread_mutex_unlock(&d->lock);
    wb__cu_leave();
    if (status || (status = wb__cu_enter(source))) return status;
    pthread_mutex_lock(&source->lock);          /* what comes next there may overwrite it */
    code = cu.StreamWaitEvent(source->compute, copied->event, 0);
    if (code) status = wb__cu_fail(source, "cuStreamWaitEvent", code, "for cuda:%d", d->ordinal);
    wb__cu_issue(source);
    from->used = source->issued;
    pthread_mutex_unlock(&source->lock);
    wb__cu_leave();
    return status;
}

int wb__cu_copy(const wb_device *base, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes)
{
    wb__cu_device *d = base->state, *source = from_device->state;
    wb__cu_memory *m = (wb__cu_memory *)from;
    if (!bytes) return 0;
    if (check_place(d, to, to_at, bytes) || check_place(source, m, from_at, bytes))
        return WB_ERROR_INTERNAL;
    return d == source ? copy_within(d, to, to_at, m, from_at, bytes)
                       : copy_across(d, to, to_at, source, m, from_at, bytes);
}
