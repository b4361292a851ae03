/* Streams, events, and who runs next.  A test part: see vgpu.h.
 *
 * What is put into a stream stays there until somebody waits.  Then commands are run, one after
 * another, from any stream whose next one need not wait, until what is waited for is done. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static CUstream streams;                /* the latest first */
static int64_t n_made, n_recorded;
static int n_streams;

/* ---- work ------------------------------------------------------------------------------------ */

vgpu_work *vgpu_work_new(CUcontext c, CUgraphNodeType type, const char *name,
                         CUresult (*run)(vgpu_work *w), const void *payload, size_t bytes)
{
    vgpu_work *w = vgpu_zeroed(sizeof *w + bytes);
    w->references = 1;
    w->type = type;
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

void vgpu_work_run(vgpu_work *w)
{
    CUcontext c = w->context;
    CUresult result = CUDA_SUCCESS;
    if (c->fault) return;               /* nothing runs any more */
    if (!vgpu_guarded(w->run, w, &result))
        vgpu_fault(c, CUDA_ERROR_ILLEGAL_ADDRESS, "%s: device %d has nothing at %p", w->name,
                   c->device, vgpu_fault_address);
    else if (result && !c->fault)
        c->fault = result;              /* which it has told of */
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

/* ---- who runs next --------------------------------------------------------------------------- */

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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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

static void run_first(CUstream s)
{
    vgpu_command *c = s->first;
    if (!(s->first = c->next)) s->last = &s->first;
    s->n--;
    n_recorded--;
    if (c->work) vgpu_work_run(c->work);
    if (c->mark) {
        c->mark->done = true;
        c->mark->time = now();
    }
    vgpu_work_drop(c->work);
    vgpu_ticket_drop(c->wait);
    vgpu_ticket_drop(c->mark);
    free(c);
    if (s->ended && !s->first) unlink_stream(s);
}

/* Runs one command; of the stream that is wanted, or that it waits for, where the schedule is lazy. */
static bool run_one(CUstream wanted)
{
    if (wanted && !strcmp(vgpu_env("VGPU_SCHEDULE", ""), "lazy")) {
        int depth = 0;
        while (wanted->first && !is_ready(wanted) && depth++ <= n_streams)
            wanted = wanted->first->wait->stream;
        if (!is_ready(wanted)) return false;
        run_first(wanted);
        return true;
    }
    CUstream ready[256];
    int n = 0;
    for (CUstream s = streams; s && n < 256; s = s->next)
        if (is_ready(s)) ready[n++] = s;
    if (n) run_first(ready[vgpu_pick(n)]);
    return n > 0;
}

static void stuck(void)
{
    fprintf(stderr, "vgpu: streams wait for each other\n");
    abort();
}

static void run_stream(CUstream s)
{
    while (s->first)
        if (!run_one(s)) stuck();
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
            next = streams;             /* streams that ended are no longer in the list */
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

static void append(CUstream s, vgpu_command c)
{
    vgpu_command *new = vgpu_zeroed(sizeof *new);
    *new = c;
    *s->last = new;
    s->last = &new->next;
    s->n++;
    n_recorded++;
    const int64_t most = vgpu_env_number("VGPU_QUEUE", 512);
    while (s->n > most)
        if (!run_one(s)) stuck();
}

/* The legacy stream comes after all that is in blocking streams, and before what comes after it
 * there: it is done at once. */
static CUresult put_null(CUstream s, vgpu_command c)
{
    for (CUstream o = streams, next; o; o = next) {
        next = o->next;
        if (o->object.context == s->object.context && !(o->flags & CU_STREAM_NON_BLOCKING)) {
            if (o->capture) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            run_stream(o);
        }
    }
    if (!s->number) {
        s->number = ++n_made;
        s->next = streams;
        streams = s;
        n_streams++;
    }
    append(s, c);
    run_stream(s);
    return CUDA_SUCCESS;
}

CUresult vgpu_put(CUstream s, vgpu_work *w)
{
    if (s->capture) return vgpu_capture_put(s, w);
    if (s == s->object.context->null) return put_null(s, (vgpu_command){.work = w});
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
    if (s == s->object.context->null) put_null(s, (vgpu_command){.mark = t});
    else append(s, (vgpu_command){.mark = t});
    return t;
}

/* ---- streams --------------------------------------------------------------------------------- */

CUresult vgpu_stream(CUstream handle, bool same, CUstream *s)
{
    CUcontext c = vgpu_current();
    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        if (!c) return CUDA_ERROR_INVALID_CONTEXT;
        *s = c->null;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD || !vgpu_is(handle, VGPU_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    if (same && handle->object.context != c) return CUDA_ERROR_INVALID_HANDLE;
    *s = handle;
    return CUDA_SUCCESS;
}

static CUresult make_stream(CUstream *made, unsigned flags)
{
    CONTEXT(c);
    if (!made || flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    CUstream s = vgpu_new(VGPU_STREAM, sizeof *s, c);
    s->flags = flags;
    s->number = ++n_made;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    n_streams++;
    *made = s;
    return CUDA_SUCCESS;
}

API(cuStreamCreate, (CUstream *made, unsigned flags), (made, flags))
{
    return make_stream(made, flags);
}
API(cuStreamCreateWithPriority, (CUstream *made, unsigned flags, int priority),
    (made, flags, priority))
{
    (void)priority;
    return make_stream(made, flags);
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
    if (!vgpu_is(s, VGPU_STREAM) || s == c->null) return CUDA_ERROR_INVALID_HANDLE;
    end_stream(s);
    return CUDA_SUCCESS;
}

static void end_any_stream(void *s) { end_stream(s); }
void vgpu_end_streams(CUcontext c) { vgpu_each(c, VGPU_STREAM, end_any_stream); }

API(cuStreamGetCtx, (CUstream handle, CUcontext *context), (handle, context))
{
    CUstream s;
    TRY(vgpu_stream(handle, false, &s));
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = s->object.context;
    return CUDA_SUCCESS;
}

API(cuStreamSynchronize, (CUstream handle), (handle))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    TRY(vgpu_not_captured(s));
    SAFE_ONLY;
    return vgpu_wait_stream(s);
}

API(cuStreamQuery, (CUstream handle), (handle))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    TRY(vgpu_not_captured(s));
    SAFE_ONLY;
    if (s->first) run_one(s);
    if (s->object.context->fault) return s->object.context->fault;
    return s->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API(cuStreamWaitEvent, (CUstream handle, CUevent e, unsigned flags), (handle, e, flags))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture || e->capture) return vgpu_capture_wait(s, e);
    vgpu_put_wait(s, e->ticket);
    return CUDA_SUCCESS;
}

/* ---- events ---------------------------------------------------------------------------------- */

API(cuEventCreate, (CUevent *made, unsigned flags), (made, flags))
{
    CONTEXT(c);
    if (!made || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    *made = vgpu_new(VGPU_EVENT, sizeof **made, c);
    (*made)->flags = flags;
    return CUDA_SUCCESS;
}

API(cuEventDestroy_v2, (CUevent e), (e))
{
    CONTEXT(c);
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    vgpu_ticket_drop(e->ticket);
    e->ticket = NULL;
    free(e->tail);
    e->tail = NULL;
    vgpu_end(e);
    return CUDA_SUCCESS;
}

API(cuEventRecord, (CUevent e, CUstream handle), (e, handle))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!vgpu_is(e, VGPU_EVENT) || e->object.context != s->object.context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) return vgpu_capture_event(e, s);
    e->capture = NULL;
    vgpu_ticket_drop(e->ticket);
    e->ticket = vgpu_put_mark(s);
    return CUDA_SUCCESS;
}

/* What an event was recorded in a captured stream for is never done. */
static CUresult not_captured_event(CUevent e)
{
    if (!e->capture) return CUDA_SUCCESS;
    if (vgpu_capture_lives(e->capture_number)) e->capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

API(cuEventQuery, (CUevent e), (e))
{
    CONTEXT(c);
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    TRY(not_captured_event(e));
    SAFE_ONLY;
    if (e->ticket && !e->ticket->done) run_one(e->ticket->stream);
    if (e->object.context->fault) return e->object.context->fault;
    return e->ticket && !e->ticket->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API(cuEventSynchronize, (CUevent e), (e))
{
    CONTEXT(c);
    if (!vgpu_is(e, VGPU_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
    TRY(not_captured_event(e));
    SAFE_ONLY;
    while (e->ticket && !e->ticket->done)
        if (!run_one(e->ticket->stream)) stuck();
    return e->object.context->fault;
}

static CUresult elapsed(float *ms, CUevent first, CUevent second)
{
    CONTEXT(c);
    if (!vgpu_is(first, VGPU_EVENT) || !vgpu_is(second, VGPU_EVENT) || !first->ticket
        || !second->ticket || (first->flags | second->flags) & CU_EVENT_DISABLE_TIMING
        || first->object.context != second->object.context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ms) return CUDA_ERROR_INVALID_VALUE;
    if (!first->ticket->done || !second->ticket->done) return CUDA_ERROR_NOT_READY;
    *ms = (float)((second->ticket->time - first->ticket->time) * 1e3);
    return CUDA_SUCCESS;
}
API(cuEventElapsedTime, (float *ms, CUevent first, CUevent second), (ms, first, second))
{
    return elapsed(ms, first, second);
}
API(cuEventElapsedTime_v2, (float *ms, CUevent first, CUevent second), (ms, first, second))
{
    return elapsed(ms, first, second);
}

/* ---- for the doubles of libraries ------------------------------------------------------------- */

typedef struct {
    vgpu_task *task;
    _Alignas(16) unsigned char payload[];
} task;

static CUresult run_task(vgpu_work *w)
{
    task *t = (task *)w->payload;
    return (CUresult)t->task(t->payload);
}

static CUresult enqueue(CUstream handle, const char *name, vgpu_task *f, const void *payload,
                        size_t bytes)
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, true, &s));
    vgpu_work *w = vgpu_work_new(c, CU_GRAPH_NODE_TYPE_KERNEL, name, run_task, NULL,
                                 sizeof(task) + bytes);
    task *t = (task *)w->payload;
    t->task = f;
    memcpy(t->payload, payload, bytes);
    return vgpu_put(s, w);
}

int vgpu_enqueue(CUstream stream, const char *name, vgpu_task *f, const void *payload, size_t bytes)
{
    static vgpu_counter counter = {"vgpu_enqueue", 0, NULL};
    vgpu_enter(&counter);
    return (int)vgpu_leave(&counter, enqueue(stream, name, f, payload, bytes));
}
