/* Graphs, and what they are launched as.  A test part: see vgpu.h. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* What is launched: never changed once somebody launched it; an update makes another one. */
typedef struct {
    int references, n;
    struct {
        vgpu_work *work;
        CUgraphNode from;               /* the node that it was made of */
        int n_before, *before;          /* places of the nodes that it comes after */
    } nodes[];
} plan;

struct CUgraphExec_st {
    vgpu_object object;
    plan *plan;
    vgpu_ticket *running;               /* its last launch: the next one comes after it */
};

/* ---- graphs ---------------------------------------------------------------------------------- */

CUgraph vgpu_graph_new(void) { return vgpu_new(VGPU_GRAPH, sizeof(struct CUgraph_st), NULL); }

CUgraphNode vgpu_graph_add(CUgraph g, vgpu_work *w, CUgraphNode const *before, int n_before)
{
    CUgraphNode n = vgpu_new(VGPU_NODE, sizeof *n, NULL);
    n->graph = g;
    n->work = w;
    n->n_before = n_before;
    n->before = vgpu_zeroed((size_t)n_before * sizeof *n->before);
    if (n_before) memcpy(n->before, before, (size_t)n_before * sizeof *n->before);
    if (g->n == g->room) {
        g->room = g->room ? 2 * g->room : 16;
        g->nodes = realloc(g->nodes, (size_t)g->room * sizeof *g->nodes);
        if (!g->nodes) abort();
    }
    n->index = g->n;
    return g->nodes[g->n++] = n;
}

void vgpu_graph_end(CUgraph g)
{
    for (int i = 0; i < g->n; i++) {
        vgpu_work_drop(g->nodes[i]->work);
        free(g->nodes[i]->before);
        g->nodes[i]->work = NULL;
        g->nodes[i]->before = NULL;
        vgpu_end(g->nodes[i]);
    }
    free(g->nodes);
    g->nodes = NULL;
    g->n = 0;
    vgpu_end(g);
}

API(cuGraphCreate, (CUgraph *made, unsigned flags), (made, flags))
{
    if (!vgpu_started()) return CUDA_ERROR_NOT_INITIALIZED;
    if (!made || flags) return CUDA_ERROR_INVALID_VALUE;
    *made = vgpu_graph_new();
    return CUDA_SUCCESS;
}

API(cuGraphDestroy, (CUgraph g), (g))
{
    if (!vgpu_is(g, VGPU_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
    vgpu_graph_end(g);
    return CUDA_SUCCESS;
}

API(cuGraphGetNodes, (CUgraph g, CUgraphNode *nodes, size_t *n), (g, nodes, n))
{
    if (!vgpu_is(g, VGPU_GRAPH) || !n) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; nodes && i < *n; i++) nodes[i] = i < (size_t)g->n ? g->nodes[i] : NULL;
    if (!nodes || *n > (size_t)g->n) *n = (size_t)g->n;
    return CUDA_SUCCESS;
}

API(cuGraphNodeGetType, (CUgraphNode n, CUgraphNodeType *type), (n, type))
{
    if (!vgpu_is(n, VGPU_NODE) || !type) return CUDA_ERROR_INVALID_VALUE;
    *type = n->work ? n->work->type : CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
}

/* ---- what is launched ------------------------------------------------------------------------ */

static plan *plan_of(CUgraph g)
{
    plan *p = vgpu_zeroed(sizeof *p + (size_t)g->n * sizeof p->nodes[0]);
    p->references = 1;
    p->n = g->n;
    for (int i = 0; i < g->n; i++) {
        const CUgraphNode n = g->nodes[i];
        p->nodes[i].work = vgpu_work_keep(n->work);
        p->nodes[i].from = n;
        p->nodes[i].n_before = n->n_before;
        p->nodes[i].before = vgpu_zeroed((size_t)n->n_before * sizeof(int));
        for (int j = 0; j < n->n_before; j++) p->nodes[i].before[j] = n->before[j]->index;
    }
    return p;
}

static void drop_plan(plan *p)
{
    if (--p->references) return;
    for (int i = 0; i < p->n; i++) {
        vgpu_work_drop(p->nodes[i].work);
        free(p->nodes[i].before);
    }
    free(p);
}

static CUresult instantiate(CUgraphExec *made, CUgraph g)
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!made || !vgpu_is(g, VGPU_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec e = vgpu_new(VGPU_EXEC, sizeof *e, NULL);
    e->plan = plan_of(g);
    *made = e;
    return CUDA_SUCCESS;
}

API(cuGraphInstantiateWithFlags, (CUgraphExec *made, CUgraph g, unsigned long long flags),
    (made, g, flags))
{
    return flags ? CUDA_ERROR_INVALID_VALUE : instantiate(made, g);
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

API(cuGraphExecUpdate_v2, (CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info),
    (e, g, info))
{
    if (!vgpu_is(e, VGPU_EXEC) || !vgpu_is(g, VGPU_GRAPH) || !info) return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    plan *new = plan_of(g);
    bool same = new->n == e->plan->n;
    for (int i = 0; same && i < new->n; i++) {
        const vgpu_work *a = e->plan->nodes[i].work, *b = new->nodes[i].work;
        same = !a == !b && (!a || a->type == b->type)
               && e->plan->nodes[i].n_before == new->nodes[i].n_before
               && !memcmp(e->plan->nodes[i].before, new->nodes[i].before,
                          (size_t)new->nodes[i].n_before * sizeof(int));
    }
    if (!same) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        drop_plan(new);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    drop_plan(e->plan);
    e->plan = new;
    return CUDA_SUCCESS;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Nodes in any order that their dependencies allow. */
static CUresult run_plan(vgpu_work *w)
{
    const plan *p = *(plan **)w->payload;
    bool *done = vgpu_zeroed((size_t)p->n);
    int *ready = vgpu_zeroed((size_t)(p->n + 1) * sizeof *ready);
    for (int left = p->n, first = 0; left; left--) {
        int n = 0;
        while (done[first]) first++;
        for (int i = first; i < p->n && n < 4; i++) {
            bool may = !done[i];
            for (int j = 0; may && j < p->nodes[i].n_before; j++) may = done[p->nodes[i].before[j]];
            if (may) ready[n++] = i;
        }
        const int i = ready[n > 1 ? vgpu_pick(n) : 0];
        done[i] = true;
        if (p->nodes[i].work) vgpu_work_run(p->nodes[i].work);
    }
    free(done);
    free(ready);
    return CUDA_SUCCESS;
}

static void drop_run(vgpu_work *w) { drop_plan(*(plan **)w->payload); }

API(cuGraphLaunch, (CUgraphExec e, CUstream handle), (e, handle))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!vgpu_is(e, VGPU_EXEC)) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_not_captured(s));
    e->plan->references++;
    vgpu_work *w = vgpu_work_new(s->object.context, CU_GRAPH_NODE_TYPE_GRAPH, "graph", run_plan,
                                 &e->plan, sizeof e->plan);
    w->drop = drop_run;
    if (e->running && e->running->stream != s) vgpu_put_wait(s, e->running);
    TRY(vgpu_put(s, w));
    vgpu_ticket_drop(e->running);
    e->running = vgpu_put_mark(s);
    return CUDA_SUCCESS;
}

API(cuGraphUpload, (CUgraphExec e, CUstream handle), (e, handle))
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    return vgpu_is(e, VGPU_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec e, CUgraphNode n,
                                        const CUDA_KERNEL_NODE_PARAMS *p), (e, n, p))
{
    if (!vgpu_is(e, VGPU_EXEC) || !vgpu_is(n, VGPU_NODE) || !p) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < e->plan->n; i++) {
        if (e->plan->nodes[i].from != n) continue;
        const vgpu_work *old = e->plan->nodes[i].work;
        vgpu_work *w;
        if (!old || old->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
        TRY(vgpu_launch_work(old->context, p->func,
                             (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
                             (const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ},
                             p->sharedMemBytes, p->kernelParams, p->extra, &w));
        if (e->plan->references > 1) {  /* launches that are under way keep what they were */
            plan *copy = vgpu_zeroed(sizeof *copy + (size_t)e->plan->n * sizeof copy->nodes[0]);
            copy->references = 1;
            copy->n = e->plan->n;
            for (int j = 0; j < copy->n; j++) {
                copy->nodes[j] = e->plan->nodes[j];
                vgpu_work_keep(copy->nodes[j].work);
                const size_t bytes = (size_t)copy->nodes[j].n_before * sizeof(int);
                copy->nodes[j].before = vgpu_zeroed(bytes);
                memcpy(copy->nodes[j].before, e->plan->nodes[j].before, bytes);
            }
            drop_plan(e->plan);
            e->plan = copy;
        }
        vgpu_work_drop(e->plan->nodes[i].work);
        e->plan->nodes[i].work = w;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
