/* Streams that are recorded: what is put into them becomes a graph.  A test part: see vgpu.h. */
#include "inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static vgpu_capture *captures;
static int64_t n_begun;

static unsigned long this_thread(void) { return (unsigned long)pthread_self(); }

bool vgpu_capture_lives(int64_t number)
{
    for (const vgpu_capture *c = captures; c; c = c->next)
        if (c->number == number) return true;
    return false;
}

static void set_tail(CUstream s, CUgraphNode const *nodes, int n)
{
    CUgraphNode *tail = vgpu_zeroed((size_t)n * sizeof *tail);
    if (n) memcpy(tail, nodes, (size_t)n * sizeof *tail);
    free(s->tail);
    s->tail = tail;
    s->n_tail = n;
}

static CUresult join(CUstream s, vgpu_capture *c)
{
    if (s->capture == c) return CUDA_SUCCESS;
    if (s->capture) {
        s->capture->invalid = c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    s->capture = c;
    c->streams++;
    set_tail(s, NULL, 0);
    return CUDA_SUCCESS;
}

void vgpu_capture_leave(CUstream s)
{
    if (!s->capture) return;
    s->capture->streams--;
    s->capture->invalid = true;         /* where it was not ended */
    s->capture = NULL;
    set_tail(s, NULL, 0);
}

static CUresult state_of(const vgpu_capture *c)
{
    return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult vgpu_capture_put(CUstream s, vgpu_work *w)
{
    const CUresult invalid = state_of(s->capture);
    if (invalid) {
        vgpu_work_drop(w);
        return invalid;
    }
    CUgraphNode n = vgpu_graph_add(s->capture->graph, w, s->tail, s->n_tail);
    set_tail(s, &n, 1);
    return CUDA_SUCCESS;
}

CUresult vgpu_capture_event(CUevent e, CUstream s)
{
    TRY(state_of(s->capture));
    free(e->tail);
    e->tail = vgpu_zeroed((size_t)s->n_tail * sizeof *e->tail);
    memcpy(e->tail, s->tail, (size_t)s->n_tail * sizeof *e->tail);
    e->n_tail = s->n_tail;
    e->capture = s->capture;
    e->capture_number = s->capture->number;
    return CUDA_SUCCESS;
}

/* A stream that waits for an event of a capture is captured too, from there on. */
CUresult vgpu_capture_wait(CUstream s, CUevent e)
{
    if (!e->capture) {                  /* something outside, which a graph cannot wait for */
        TRY(state_of(s->capture));
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!vgpu_capture_lives(e->capture_number)) return CUDA_ERROR_CAPTURED_EVENT;
    TRY(state_of(e->capture));
    TRY(join(s, e->capture));
    CUgraphNode *all = vgpu_zeroed((size_t)(s->n_tail + e->n_tail + 1) * sizeof *all);
    int n = 0;
    for (int i = 0; i < s->n_tail; i++) all[n++] = s->tail[i];
    for (int i = 0; i < e->n_tail; i++) {
        bool there = false;
        for (int j = 0; j < n; j++) there |= all[j] == e->tail[i];
        if (!there) all[n++] = e->tail[i];
    }
    set_tail(s, all, n);
    free(all);
    return CUDA_SUCCESS;
}

CUresult vgpu_not_captured(CUstream s)
{
    if (!s->capture) return CUDA_SUCCESS;
    TRY(state_of(s->capture));
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult vgpu_unsafe(void)
{
    for (vgpu_capture *c = captures; c; c = c->next) {
        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && c->thread != this_thread()) continue;
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* ---- the driver's functions ------------------------------------------------------------------ */

API(cuStreamBeginCapture_v2, (CUstream handle, CUstreamCaptureMode mode), (handle, mode))
{
    CUstream s;
    CONTEXT(context);
    TRY(vgpu_stream(handle, false, &s));
    if (s == context->null) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_not_captured(s));
    vgpu_capture *c = vgpu_zeroed(sizeof *c);
    *c = (vgpu_capture){.graph = vgpu_graph_new(), .origin = s, .mode = mode,
                        .thread = this_thread(), .number = ++n_begun, .next = captures};
    captures = c;
    return join(s, c);
}

static vgpu_capture *leaving;
static bool unjoined;
static CUgraphNode *final_nodes;
static int n_final;

/* All that a stream recorded must come before the end of the one that capture began in. */
static bool comes_before(CUgraphNode n, CUgraphNode later)
{
    if (n == later) return true;
    for (int i = 0; i < later->n_before; i++)
        if (comes_before(n, later->before[i])) return true;
    return false;
}

static void leave(void *object)
{
    CUstream s = object;
    if (s->capture != leaving) return;
    for (int i = 0; i < s->n_tail && s != leaving->origin; i++) {
        bool joined = false;
        for (int j = 0; j < n_final; j++) joined |= comes_before(s->tail[i], final_nodes[j]);
        unjoined |= !joined;
    }
    if (s == leaving->origin) return;
    s->capture = NULL;
    set_tail(s, NULL, 0);
}

static CUresult end_capture(CUstream handle, CUgraph *graph)
{
    CUstream s;
    CONTEXT(context);
    TRY(vgpu_stream(handle, false, &s));
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    vgpu_capture *c = s->capture;
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    if (c->origin != s) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    leaving = c;
    unjoined = false;
    final_nodes = s->tail;
    n_final = s->n_tail;
    for (int d = 0; d < VGPU_MOST_DEVICES; d++) vgpu_each(&vgpu_contexts[d], VGPU_STREAM, leave);
    s->capture = NULL;
    set_tail(s, NULL, 0);
    vgpu_capture **p = &captures;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    const CUresult result = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
    if (result) vgpu_graph_end(c->graph);
    else *graph = c->graph;
    free(c);
    return result;
}

/* Where it is made to fail, the capture has ended all the same. */
VGPU_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    static vgpu_counter counter = {"cuStreamEndCapture", 0, NULL};
    vgpu_enter(&counter);
    CUresult result = end_capture(handle, graph);
    if (vgpu_fails("cuStreamEndCapture")) {
        if (!result && *graph) vgpu_graph_end(*graph);
        if (graph) *graph = NULL;
        result = (CUresult)VGPU_FAILURE;
    }
    return vgpu_leave(&counter, result);
}

static CUstreamCaptureStatus status_of(CUstream s)
{
    return !s->capture ? CU_STREAM_CAPTURE_STATUS_NONE
           : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

API(cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus *status), (handle, status))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(s);
    return CUDA_SUCCESS;
}

API(cuStreamGetCaptureInfo_v2, (CUstream handle, CUstreamCaptureStatus *status,
                                uint64_t *number, CUgraph *graph,
                                const CUgraphNode **tail, size_t *n_tail),
    (handle, status, number, graph, tail, n_tail))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(s);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (number) *number = (uint64_t)s->capture->number;
    if (graph) *graph = s->capture->graph;
    if (tail) *tail = s->tail;
    if (n_tail) *n_tail = (size_t)s->n_tail;
    return CUDA_SUCCESS;
}
