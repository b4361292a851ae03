/* Streams, events, scheduling.  See vgpu.h.
 *
 * Commands stay in their stream until a call waits.  Then commands are run, one after another, of
 * any stream whose next command is ready, until the one that the call waits for is done. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUstream streams;                /* the newest first */
static int64_t n_recorded;              /* commands that are queued */
static int n_streams;

/* ---- work ------------------------------------------------------------------------------------ */

vgpu_work *vgpu_work_new(CUcontext c, const char *name, CUresult (*run)(vgpu_work *w),
                         const void *payload, size_t bytes)
{
    vgpu_work *w = vgpu_zeroed(sizeof *w + bytes);
    w->references = 1;
    w->name = name;
    w->context = c;
    w->run = run;
    w->bytes = bytes;
    if (payload) memcpy(w->payload, payload, bytes);
    return w;
}

vgpu_work *vgpu_work_keep(vgpu_work *w)
{
    if (w) w->references++;
    return w;
}

void vgpu_work_drop(vgpu_work *w)
{
    if (!w || --w->references) return;
    if (w->drop) w->drop(w);
    free(w);
}

bool vgpu_work_run(vgpu_work *w)
{
    CUcontext c = w->context;
    CUresult result = CUDA_SUCCESS;
    if (c->fault) return true;          /* after a fault nothing runs */
    if (!vgpu_guarded(w->run, w, &result))
        vgpu_fault(c, CUDA_ERROR_ILLEGAL_ADDRESS, "%s: device %d has nothing at %p", w->name,
                   c->device, vgpu_fault_address);
    else if ((int)result == VGPU_AGAIN)
        return false;
    else if (result && !c->fault)
        c->fault = result;              /* the function has counted the wrong use */
    return true;
}

vgpu_ticket *vgpu_ticket_keep(vgpu_ticket *t)
{
    if (t) t->references++;
    return t;
}

void vgpu_ticket_drop(vgpu_ticket *t)
{
    if (t && !--t->references) free(t);
}

/* ---- scheduling ------------------------------------------------------------------------------ */

int vgpu_pick(int n)
{
    static uint64_t state;
    static int turn;
    const char *how = vgpu_env("VGPU_SCHEDULE", "round");
    if (!strcmp(how, "latest")) return 0;
    if (strncmp(how, "random", 6)) return turn = (turn + 1) % n;
    if (!state) state = strtoull(how[6] ? how + 7 : "1", NULL, 10) * 2 + 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static bool is_ready(const struct CUstream_st *s)
{
    return s->first && (!s->first->wait || s->first->wait->done);
}

static void unlink_stream(CUstream s)
{
    CUstream *p = &streams;
    while (*p && *p != s) p = &(*p)->next;
    if (*p) {
        *p = s->next;
        n_streams--;
    }
}

/* False: the command is not complete. */
static bool run_first(CUstream s)
{
    vgpu_command *c = s->first;
    if (c->work && !vgpu_work_run(c->work)) return false;
    if (!(s->first = c->next)) s->last = &s->first;
    s->n--;
    n_recorded--;
    if (c->mark) c->mark->done = true;
    vgpu_work_drop(c->work);
    vgpu_ticket_drop(c->wait);
    vgpu_ticket_drop(c->mark);
    free(c);
    if (s->ended && !s->first) unlink_stream(s);
    return true;
}

/* Runs one command.  With the schedule `lazy` it is a command of `target`, or of a stream that
 * `target` waits for.  If all commands that are ready wait for other ranks, other threads get the
 * lock for a while. */
static void run_one(CUstream target)
{
    CUstream ready[256];
    int n = 0;
    if (target && !strcmp(vgpu_env("VGPU_SCHEDULE", ""), "lazy")) {
        int depth = 0;
        while (target->first && !is_ready(target) && depth++ <= n_streams)
            target = target->first->wait->stream;
        if (is_ready(target)) ready[n++] = target;
    } else {
        for (CUstream s = streams; s && n < 256; s = s->next)
            if (is_ready(s)) ready[n++] = s;
    }
    if (!n) {
        fprintf(stderr, "vgpu: streams wait for each other\n");
        abort();
    }
    const int first = vgpu_pick(n);
    for (int i = 0; i < n; i++)
        if (run_first(ready[(first + i) % n])) return;
    vgpu_nap();
}

void vgpu_go_on(void)
{
    static int64_t seen;
    vgpu_hold();
    const bool idle = seen == vgpu_entered();
    seen = vgpu_entered();
    for (int i = 0; idle && i < 100 && n_recorded; i++) run_one(NULL);
    vgpu_let_go();
}

static void run_stream(CUstream s)
{
    while (s->first) run_one(s);
}

CUresult vgpu_wait_stream(CUstream s)
{
    CUcontext c = s->object.context;
    run_stream(s);
    vgpu_trim_pools(c->device);
    return c->fault;
}

CUresult vgpu_wait_context(CUcontext c)
{
    for (CUstream s = streams, next; s; s = next) {
        next = s->next;
        if (s->object.context == c && s->first) {
            run_stream(s);
            next = streams;             /* from the start: run_stream may have removed s->next */
        }
    }
    vgpu_trim_pools(c->device);
    return c->fault;
}

void vgpu_wait_all(void)
{
    for (int d = 0; d < VGPU_MOST_DEVICES; d++)
        if (vgpu_contexts[d].retained) vgpu_wait_context(&vgpu_contexts[d]);
}

int64_t vgpu_recorded(void) { return n_recorded; }
CUstream vgpu_streams(void) { return streams; }

static void append(CUstream s, vgpu_command c)
{
    vgpu_command *new = vgpu_zeroed(sizeof *new);
    *new = c;
    *s->last = new;
    s->last = &new->next;
    s->n++;
    n_recorded++;
    const int64_t most = vgpu_env_number("VGPU_QUEUE", 512);
    while (s->n > most) run_one(s);
}

CUresult vgpu_put(CUstream s, vgpu_work *w)
{
    s->works++;
    if (s->capture) return vgpu_capture_put(s, w);
    append(s, (vgpu_command){.work = w});
    return CUDA_SUCCESS;
}

void vgpu_put_wait(CUstream s, vgpu_ticket *t)
{
    if (!t || t->done) return;
    append(s, (vgpu_command){.wait = vgpu_ticket_keep(t)});
}

vgpu_ticket *vgpu_put_mark(CUstream s)
{
    vgpu_ticket *t = vgpu_zeroed(sizeof *t);
    t->references = 2;
    t->stream = s;
    append(s, (vgpu_command){.mark = t});
    return t;
}

/* ---- streams --------------------------------------------------------------------------------- */

CUresult vgpu_stream(CUstream s, bool same)
{
    /* 1 and 2 are CU_STREAM_LEGACY and CU_STREAM_PER_THREAD */
    const bool created = (uintptr_t)s > 2 && vgpu_is(s, VGPU_STREAM);
    return created && (!same || s->object.context == vgpu_current()) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_HANDLE;
}

API(cuStreamCreate, (CUstream *made, unsigned flags), (made, flags))
{
    CONTEXT(c);
    if (!made || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    CUstream s = vgpu_new(VGPU_STREAM, sizeof *s, c);
    s->last = &s->first;
    s->next = streams;
    streams = s;
    n_streams++;
    *made = s;
    return CUDA_SUCCESS;
}

static void end_stream(CUstream s)
{
    vgpu_capture_leave(s);
    s->ended = true;
    vgpu_end(s);
    if (!s->first) unlink_stream(s);
}

API(cuStreamDestroy_v2, (CUstream s), (s))
{
    CONTEXT(c);
    if (!vgpu_is(s, VGPU_STREAM)) return CUDA_ERROR_INVALID_HANDLE;
    end_stream(s);
    return CUDA_SUCCESS;
}

static void end_any_stream(void *s) { end_stream(s); }
void vgpu_end_streams(CUcontext c) { vgpu_each(c, VGPU_STREAM, end_any_stream); }

API(cuStreamSynchronize, (CUstream s), (s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    TRY(vgpu_not_captured(s));
    SAFE_ONLY;
    return vgpu_wait_stream(s);
}

API(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags), (s, e, flags))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    if (e->capture) return vgpu_capture_wait(s, e);
    TRY(vgpu_not_captured(s));
    vgpu_put_wait(s, e->ticket);
    if (e->operation > s->operation) s->operation = e->operation;
    return CUDA_SUCCESS;
}

/* ---- events ---------------------------------------------------------------------------------- */

API(cuEventCreate, (CUevent *made, unsigned flags), (made, flags))
{
    CONTEXT(c);
    if (!made || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    *made = vgpu_new(VGPU_EVENT, sizeof **made, c);
    (*made)->timed = !(flags & 2);
    return CUDA_SUCCESS;
}

API(cuEventDestroy_v2, (CUevent e), (e))
{
    CONTEXT(c);
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    vgpu_ticket_drop(e->ticket);
    e->ticket = NULL;
    free(e->tips.node);
    e->tips = (vgpu_nodes){0};
    vgpu_end(e);
    return CUDA_SUCCESS;
}

API(cuEventRecord, (CUevent e, CUstream s), (e, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!vgpu_is(e, VGPU_EVENT) || e->object.context != s->object.context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) return vgpu_capture_record(e, s);
    vgpu_ticket_drop(e->ticket);
    e->ticket = vgpu_put_mark(s);
    e->operation = s->operation;
    e->clock = s->clock;
    e->capture = 0;
    return CUDA_SUCCESS;
}

API(cuEventSynchronize, (CUevent e), (e))
{
    CONTEXT(c);
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    SAFE_ONLY;
    if (e->capture) return CUDA_ERROR_INVALID_VALUE;
    while (e->ticket && !e->ticket->done) run_one(e->ticket->stream);
    return e->object.context->fault;
}

API(cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end),
    (milliseconds, begin, end))
{
    CONTEXT(c);
    if (!vgpu_is(begin, VGPU_EVENT) || !vgpu_is(end, VGPU_EVENT) || !begin->timed || !end->timed ||
        !begin->ticket || !end->ticket)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!begin->ticket->done || !end->ticket->done)
        return (CUresult)600;     /* CUDA_ERROR_NOT_READY */
    *milliseconds = (float)((end->clock - begin->clock) / 1000);
    return CUDA_SUCCESS;
}

/* ---- for the doubles of libraries ------------------------------------------------------------ */

void vgpu_spend(struct CUstream_st *stream, double microseconds) { stream->clock += microseconds; }

typedef struct {
    vgpu_task *task;
    void (*drop)(void *payload);
    _Alignas(16) unsigned char payload[];
} task;

static CUresult run_task(vgpu_work *w)
{
    task *t = (task *)w->payload;
    return vgpu_dry() ? CUDA_SUCCESS : (CUresult)t->task(t->payload);
}

static void drop_task(vgpu_work *w)
{
    task *t = (task *)w->payload;
    if (t->drop) t->drop(t->payload);
}

static CUresult enqueue(CUcontext c, CUstream s, vgpu_work *w)
{
    CUresult result = !c ? CUDA_ERROR_INVALID_CONTEXT : c->fault;
    if (!result) result = vgpu_stream(s, false);
    if (!result && s->object.context != c) result = CUDA_ERROR_INVALID_HANDLE;
    if (!result) return vgpu_put(s, w);
    vgpu_work_drop(w);
    return result;
}

static int64_t operations;              /* of NCCL */

bool vgpu_goes_on_beside(CUstream s) { return s->operation < operations; }

int vgpu_enqueue_in(CUcontext c, CUstream stream, const char *name, vgpu_task *f,
                    void (*drop)(void *payload), const void *payload, size_t bytes)
{
    static vgpu_counter counter = {"vgpu_enqueue", 0, NULL};
    vgpu_enter(&counter);
    vgpu_work *w = vgpu_work_new(c, name, run_task, NULL, sizeof(task) + bytes);
    task *t = (task *)w->payload;
    t->task = f;
    t->drop = drop;
    memcpy(t->payload, payload, bytes);
    w->drop = drop_task;
    const CUresult result = enqueue(c, stream, w);
    if (!result && !strcmp(name, "nccl")) stream->operation = ++operations;
    return (int)vgpu_leave(&counter, result);
}

int vgpu_enqueue(CUstream stream, const char *name, vgpu_task *f, const void *payload, size_t bytes)
{
    return vgpu_enqueue_in(vgpu_current(), stream, name, f, NULL, payload, bytes);
}

bool vgpu_captured(CUstream stream, int64_t *works)
{
    vgpu_hold();
    const bool exists = !vgpu_stream(stream, false), captured = exists && stream->capture;
    *works = exists ? stream->works : 0;
    vgpu_let_go();
    return captured;
}
