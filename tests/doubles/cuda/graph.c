/* Stream capture and graphs.  See vgpu.h.
 *
 * A capture covers one stream, and events cannot be used in it, so that a graph is a list of
 * commands in their order. */
#include "inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The commands of an executable graph; never changed. */
typedef struct {
    int references, n;
    vgpu_work *work[];
} plan;

struct CUgraph_st {
    vgpu_object object;
    int n, capacity;
    vgpu_work **work;
};

struct CUgraphExec_st {
    vgpu_object object;
    plan *plan;
    vgpu_ticket *running;               /* the end of its last launch, which the next waits for */
};

struct vgpu_capture {
    CUgraph graph;
    CUstreamCaptureMode mode;
    unsigned long thread;
    bool invalid;
    struct vgpu_capture *next;
};

static struct vgpu_capture *captures;

static unsigned long this_thread(void) { return (unsigned long)pthread_self(); }

static void end_graph(CUgraph g)
{
    for (int i = 0; i < g->n; i++) vgpu_work_drop(g->work[i]);
    free(g->work);
    g->work = NULL;
    g->n = 0;
    vgpu_end(g);
}

/* ---- stream capture -------------------------------------------------------------------------- */

static CUresult state_of(const struct vgpu_capture *c)
{
    return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult vgpu_capture_put(CUstream s, vgpu_work *w)
{
    CUgraph g = s->capture->graph;
    const CUresult invalid = state_of(s->capture);
    if (invalid) {
        vgpu_work_drop(w);
        return invalid;
    }
    if (g->n == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 16;
        g->work = realloc(g->work, (size_t)g->capacity * sizeof *g->work);
        if (!g->work) abort();
    }
    g->work[g->n++] = w;
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
    for (struct vgpu_capture *c = captures; c; c = c->next) {
        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && c->thread != this_thread()) continue;
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

API(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode), (s, mode))
{
    CONTEXT(context);
    TRY(vgpu_stream(s, false));
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_not_captured(s));
    struct vgpu_capture *c = vgpu_zeroed(sizeof *c);
    *c = (struct vgpu_capture){.graph = vgpu_new(VGPU_GRAPH, sizeof *c->graph, NULL), .mode = mode,
                               .thread = this_thread(), .next = captures};
    captures = s->capture = c;
    return CUDA_SUCCESS;
}

/* Ends the stream's capture and returns its graph. */
static CUgraph leave(CUstream s)
{
    struct vgpu_capture *c = s->capture, **p = &captures;
    const CUgraph g = c->graph;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    free(c);
    s->capture = NULL;
    return g;
}

void vgpu_capture_leave(CUstream s)
{
    if (s->capture) end_graph(leave(s));
}

static CUresult end_capture(CUstream s, CUgraph *graph)
{
    CONTEXT(context);
    TRY(vgpu_stream(s, false));
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    const struct vgpu_capture *c = s->capture;
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    const CUresult result = state_of(c);
    const CUgraph g = leave(s);
    if (result) end_graph(g);
    else *graph = g;
    return result;
}

/* If VGPU_FAIL makes it fail, the capture has ended all the same. */
VGPU_API CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    static vgpu_counter counter = {"cuStreamEndCapture", 0, NULL};
    vgpu_enter(&counter);
    CUresult result = end_capture(s, graph);
    if (vgpu_fails("cuStreamEndCapture")) {
        if (!result && *graph) end_graph(*graph);
        if (graph) *graph = NULL;
        result = (CUresult)VGPU_FAILURE;
    }
    return vgpu_leave(&counter, result);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

API(cuGraphDestroy, (CUgraph g), (g))
{
    if (!vgpu_is(g, VGPU_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
    end_graph(g);
    return CUDA_SUCCESS;
}

API(cuGraphInstantiateWithFlags, (CUgraphExec *made, CUgraph g, unsigned long long flags),
    (made, g, flags))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!made || flags || !vgpu_is(g, VGPU_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
    plan *p = vgpu_zeroed(sizeof *p + (size_t)g->n * sizeof p->work[0]);
    p->references = 1;
    p->n = g->n;
    for (int i = 0; i < g->n; i++) p->work[i] = vgpu_work_keep(g->work[i]);
    CUgraphExec e = vgpu_new(VGPU_EXEC, sizeof *e, NULL);
    e->plan = p;
    *made = e;
    return CUDA_SUCCESS;
}

static void drop_plan(plan *p)
{
    if (--p->references) return;
    for (int i = 0; i < p->n; i++) vgpu_work_drop(p->work[i]);
    free(p);
}

API(cuGraphExecDestroy, (CUgraphExec e), (e))
{
    if (!vgpu_is(e, VGPU_EXEC)) return CUDA_ERROR_INVALID_VALUE;
    drop_plan(e->plan);
    e->plan = NULL;
    vgpu_ticket_drop(e->running);
    e->running = NULL;
    vgpu_end(e);
    return CUDA_SUCCESS;
}

/* A launch: the works before `next` are complete. */
typedef struct { plan *plan; int next; } run;

static CUresult run_plan(vgpu_work *w)
{
    run *r = (run *)w->payload;
    for (; r->next < r->plan->n; r->next++)
        if (!vgpu_work_run(r->plan->work[r->next])) return (CUresult)VGPU_AGAIN;
    return CUDA_SUCCESS;
}

static void drop_run(vgpu_work *w) { drop_plan(((run *)w->payload)->plan); }

API(cuGraphLaunch, (CUgraphExec e, CUstream s), (e, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!vgpu_is(e, VGPU_EXEC)) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_not_captured(s));
    e->plan->references++;
    const run launched = {e->plan, 0};
    vgpu_work *w = vgpu_work_new(s->object.context, "graph", run_plan, &launched, sizeof launched);
    w->drop = drop_run;
    if (e->running && e->running->stream != s) vgpu_put_wait(s, e->running);
    TRY(vgpu_put(s, w));
    vgpu_ticket_drop(e->running);
    e->running = vgpu_put_mark(s);
    return CUDA_SUCCESS;
}
