/* Stream capture and graphs.  See vgpu.h.
 *
 * A capture begins with one stream.  A stream that waits for an event of the capture takes part in
 * it, until the first stream has waited for its last command.  A graph is a list of commands, each
 * with those that it waits for.  A launch runs commands that are ready in any order: with the
 * schedule `latest` those of the first stream last, with `lazy` these first.  With others than
 * `lazy` a command that is ready may run in the middle of another one, so that commands which share
 * memory disturb each other. */
#include "inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    vgpu_work *work;
    vgpu_nodes waits;
    bool beside;                        /* not of the capture's first stream */
} node;

/* The commands of an executable graph; never changed. */
typedef struct {
    int references, n, chain;           /* chain: nodes of the longest chain */
    node node[];
} plan;

struct CUgraph_st {
    vgpu_object object;
    int n, capacity;
    node *node;
};

struct CUgraphExec_st {
    vgpu_object object;
    plan *plan;
    vgpu_ticket *running;               /* the end of its last launch, which the next waits for */
};

struct vgpu_capture {
    CUgraph graph;
    CUstream first;
    uint64_t number;
    CUstreamCaptureMode mode;
    unsigned long thread;
    int64_t failed;                     /* vgpu_all_failed() at its beginning */
    bool invalid;
    struct vgpu_capture *next;
};

static struct vgpu_capture *captures;

static unsigned long this_thread(void) { return (unsigned long)pthread_self(); }

static void drop_node(node *x)
{
    vgpu_work_drop(x->work);
    free(x->waits.node);
}

static void end_graph(CUgraph g)
{
    for (int i = 0; i < g->n; i++) drop_node(&g->node[i]);
    free(g->node);
    g->node = NULL;
    g->n = 0;
    vgpu_end(g);
}

/* ---- sets of nodes --------------------------------------------------------------------------- */

static void add_to(vgpu_nodes *s, int node)
{
    for (int i = 0; i < s->n; i++)
        if (s->node[i] == node) return;
    s->node = realloc(s->node, (size_t)(s->n + 1) * sizeof *s->node);
    if (!s->node) abort();
    s->node[s->n++] = node;
}

static void add_all(vgpu_nodes *s, const vgpu_nodes *others)
{
    for (int i = 0; i < others->n; i++) add_to(s, others->node[i]);
}

/* Marks these nodes, and all that come before them. */
static void mark_before(const struct CUgraph_st *g, const vgpu_nodes *s, bool *marked)
{
    for (int i = 0; i < s->n; i++) marked[s->node[i]] = true;
    for (int i = g->n - 1; i >= 0; i--)
        for (int k = 0; marked[i] && k < g->node[i].waits.n; k++)
            marked[g->node[i].waits.node[k]] = true;
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
        g->node = realloc(g->node, (size_t)g->capacity * sizeof *g->node);
        if (!g->node) abort();
    }
    g->node[g->n] = (node){.work = w, .beside = s != s->capture->first};
    add_all(&g->node[g->n].waits, &s->tips);
    s->tips.n = 0;
    add_to(&s->tips, g->n++);
    return CUDA_SUCCESS;
}

CUresult vgpu_capture_record(CUevent e, CUstream s)
{
    TRY(state_of(s->capture));
    vgpu_ticket_drop(e->ticket);
    e->ticket = NULL;
    e->capture = s->capture->number;
    e->tips.n = 0;
    add_all(&e->tips, &s->tips);
    return CUDA_SUCCESS;
}

CUresult vgpu_capture_wait(CUstream s, CUevent e)
{
    struct vgpu_capture *c = captures;
    while (c && c->number != e->capture) c = c->next;
    if (!c || (s->capture && s->capture != c)) return CUDA_ERROR_INVALID_VALUE;
    TRY(state_of(c));
    s->capture = c;
    add_all(&s->tips, &e->tips);
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
    static uint64_t number;
    *c = (struct vgpu_capture){.graph = vgpu_new(VGPU_GRAPH, sizeof *c->graph, NULL), .first = s,
                               .number = ++number, .mode = mode, .thread = this_thread(),
                               .failed = vgpu_all_failed(), .next = captures};
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
    for (CUstream t = vgpu_streams(); t; t = t->next) {
        if (t->capture != c) continue;
        t->capture = NULL;
        t->tips.n = 0;
    }
    free(c);
    return g;
}

void vgpu_capture_leave(CUstream s)
{
    struct vgpu_capture *c = s->capture;
    if (c && c->first == s) {
        end_graph(leave(s));
    } else if (c) {
        c->invalid = true;
        s->capture = NULL;
    }
    free(s->tips.node);
    s->tips = (vgpu_nodes){0};
}

/* Whether the first stream of a capture has waited for all commands of the others. */
static bool is_joined(const struct vgpu_capture *c)
{
    bool joined = true, *marked = vgpu_zeroed((size_t)c->graph->n * sizeof *marked);
    mark_before(c->graph, &c->first->tips, marked);
    for (CUstream t = vgpu_streams(); t; t = t->next)
        for (int i = 0; t->capture == c && i < t->tips.n; i++) joined &= marked[t->tips.node[i]];
    free(marked);
    return joined;
}

static CUresult end_capture(CUstream s, CUgraph *graph)
{
    CONTEXT(context);
    TRY(vgpu_stream(s, false));
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    const struct vgpu_capture *c = s->capture;
    if (!c || c->first != s) return CUDA_ERROR_INVALID_VALUE;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = state_of(c);
    if (!result && !is_joined(c)) {
        if (c->failed == vgpu_all_failed())
            vgpu_wrong("cuStreamEndCapture: a stream of the capture is not joined");
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
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

static int64_t beside;
int64_t vgpu_beside(void)
{
    vgpu_hold();
    const int64_t n = beside;
    vgpu_let_go();
    return n;
}

static int longest_chain(const plan *p)
{
    int longest = 0, *length = vgpu_zeroed(((size_t)p->n + 1) * sizeof *length);
    for (int i = 0; i < p->n; i++) {
        const vgpu_nodes *waits = &p->node[i].waits;
        for (int k = 0; k < waits->n; k++)
            if (length[waits->node[k]] > length[i]) length[i] = length[waits->node[k]];
        if (++length[i] > longest) longest = length[i];
    }
    free(length);
    return longest;
}

API(cuGraphInstantiateWithFlags, (CUgraphExec *made, CUgraph g, unsigned long long flags),
    (made, g, flags))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!made || flags || !vgpu_is(g, VGPU_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
    plan *p = vgpu_zeroed(sizeof *p + (size_t)g->n * sizeof p->node[0]);
    p->references = 1;
    p->n = g->n;
    for (int i = 0; i < g->n; i++) {
        p->node[i].work = vgpu_work_keep(g->node[i].work);
        p->node[i].beside = g->node[i].beside;
        add_all(&p->node[i].waits, &g->node[i].waits);
    }
    p->chain = longest_chain(p);
    CUgraphExec e = vgpu_new(VGPU_EXEC, sizeof *e, NULL);
    e->plan = p;
    *made = e;
    return CUDA_SUCCESS;
}

static void drop_plan(plan *p)
{
    if (--p->references) return;
    for (int i = 0; i < p->n; i++) drop_node(&p->node[i]);
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

/* A launch: n commands are done. */
typedef enum { WAITING, RUNNING, DONE } state;
typedef struct { plan *plan; int n; state *state; } run;

static bool is_ready(const run *r, int i)
{
    const vgpu_nodes *waits = &r->plan->node[i].waits;
    bool ready = r->state[i] == WAITING;
    for (int k = 0; k < waits->n && ready; k++) ready = r->state[waits->node[k]] == DONE;
    return ready;
}

/* The index, in `ready`, of the command to run next. */
static int choose(const run *r, const int *ready, int n)
{
    const char *how = vgpu_env("VGPU_SCHEDULE", "");
    const bool latest = !strcmp(how, "latest");
    if (n < 2) return 0;
    if (!latest && strcmp(how, "lazy")) return vgpu_pick(n);
    for (int i = 0; i < n; i++)
        if (r->plan->node[ready[i]].beside == latest) return i;
    return 0;
}

static run *running;                    /* the launch of which a command runs */

/* Runs a command that is ready.  False: there is none, or all of them wait for other ranks. */
static bool run_node(run *r)
{
    int n = 0, *ready = vgpu_zeroed((size_t)r->plan->n * sizeof *ready);
    bool ran = false;
    for (int i = 0; i < r->plan->n; i++)
        if (is_ready(r, i)) ready[n++] = i;
    const int first = choose(r, ready, n);
    for (int i = 0; i < n && !ran; i++) {
        const int chosen = ready[(first + i) % n];
        run *const before = running;
        running = r;
        r->state[chosen] = RUNNING;
        ran = vgpu_work_run(r->plan->node[chosen].work);
        r->state[chosen] = ran ? DONE : WAITING;
        running = before;
    }
    r->n += ran;
    free(ready);
    return ran;
}

void vgpu_meanwhile(void)
{
    static bool nested;
    const bool lazy = !strcmp(vgpu_env("VGPU_SCHEDULE", ""), "lazy");
    if (!running || nested || lazy || vgpu_pick(2)) return;
    nested = true;
    run_node(running);
    nested = false;
}

void vgpu_scratch(void *at, size_t bytes)
{
    bool kept = true;
    memset(at, 0xff, bytes);
    vgpu_meanwhile();
    for (size_t i = 0; i < bytes && kept; i++) kept = ((unsigned char *)at)[i] == 0xff;
    if (!kept) vgpu_wrong("two commands that may run at the same time have one workspace");
}

static CUresult run_plan(vgpu_work *w)
{
    run *r = (run *)w->payload;
    while (r->n < r->plan->n)
        if (!run_node(r)) return (CUresult)VGPU_AGAIN;
    return CUDA_SUCCESS;
}

static void drop_run(vgpu_work *w)
{
    drop_plan(((run *)w->payload)->plan);
    free(((run *)w->payload)->state);
}

API(cuGraphLaunch, (CUgraphExec e, CUstream s), (e, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!vgpu_is(e, VGPU_EXEC)) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_not_captured(s));
    e->plan->references++;
    vgpu_note_nodes(e->plan->n, e->plan->chain);
    const run launched = {e->plan, 0, vgpu_zeroed((size_t)e->plan->n * sizeof(state))};
    vgpu_work *w = vgpu_work_new(s->object.context, "graph", run_plan, &launched, sizeof launched);
    w->drop = drop_run;
    if (e->running && e->running->stream != s) vgpu_put_wait(s, e->running);
    beside += vgpu_goes_on_beside(s);
    TRY(vgpu_put(s, w));
    vgpu_ticket_drop(e->running);
    e->running = vgpu_put_mark(s);
    return CUDA_SUCCESS;
}
