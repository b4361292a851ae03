/* Plans as one command: a sequence of kernels is recorded once, as a graph of the driver, and
 * launched as a whole at every run.
 *
 * Routines beside the compute queue (aside.c) are not recorded.  Their libraries demand that an
 * operation of the ranks is recorded on all ranks or on none, and launched from graphs of the same
 * recording; but each rank decides by its own addresses when it records.  So a sequence is cut into
 * segments at these routines and where one must be complete; each other segment is a graph.
 *
 * A graph contains the addresses of its buffers.  Variables rarely move; inputs and results of a
 * loop come from the cache and alternate between few addresses, as a loader's batches do.  So a
 * graph has up to sixteen instances, each for one set of addresses.  If the addresses keep
 * changing, one more instance uses its own memory instead: inputs are copied there before it runs,
 * results from there afterwards, and nothing needs to be recorded again.
 *
 * Some runs are launched kernel by kernel.  Variables are not copied; if variables alternate
 * between more sets of addresses than there are instances, as with many models of one shape,
 * recording again would cost more.  If the kernels access only scattered parts of a buffer that has
 * moved, copying the buffer would cost more.
 *
 * Kernels that do not depend on each other are in two branches of the graph (`after` of
 * wb__sequence), recorded on two queues that wait for events of each other.
 *
 * Recording uses a queue on which nothing runs, so that it does not interfere with other work.  If
 * a plan cannot be recorded, its kernels are launched one by one, as without a graph. */
#include "backend/gpu/runtime/aside.h"

#include <string.h>

enum {
    INSTANCES = 16,
    COPYING = INSTANCES,        /* the instance with its own memory */
    FREELY = 2 * INSTANCES,     /* number of first recordings that a graph may always make */
    SELDOM = 8                  /* runs that each later recording needs before it, on average */
};

/* Kernels first to last - 1 of the sequence, or one routine beside the compute queue. */
typedef struct { int first, last; bool aside; } gpu_graph_segment;

/* A recording of the sequence for one set of addresses. */
typedef struct {
    bool recorded;
    void **exec;                /* the graph of each segment; NULL: none */
    uint64_t *address;       /* address of every buffer */
    wb__gpu_memory *block;       /* the block of the tables; NULL: there are none */
    uint64_t last;              /* the graph's clock at its last run */
} instance;

struct wb__graph {
    const wb__sequence *s;
    int arena;                  /* buffer index of the arena; -1: none */
    /* per buffer: whether the kernels use it; the addresses of other buffers are ignored */
    bool *used;
    bool broken;                /* the sequence cannot be recorded */
    bool branches;              /* the sequence is recorded with branches */
    int n_segments;
    gpu_graph_segment *segments;
    void **execs;               /* memory for `exec` of all instances */
    wb__gpu_tables tables;      /* tables of kernel arguments (table.c) */
    wb__mutex lock;             /* guards the fields below; acquired before the device's lock */
    uint64_t clock, runs, created;  /* runs by graphs; all runs; instances ever recorded */
    uint64_t *addresses;     /* memory for `now`, and for `address` of all instances */
    uint64_t *now;           /* the addresses in this run */
    instance one[INSTANCES + 1];    /* the last one has memory of its own (COPYING) */
    /* for each buffer, the memory that replaces it in the copying instance; NULL: none */
    wb__gpu_memory **own;
};

/* ---- creating and freeing -------------------------------------------------------------------- */

/* Allocates the blocks of tables of all instances at once, so that memory does not grow later. */
static int make_blocks(wb__gpu_device *d, wb__graph *g)
{
    for (int i = 0; i <= INSTANCES && g->tables.bytes; i++)
        if (!(g->one[i].block = wb__gpu_allocate(&d->base, g->tables.bytes)))
            return wb_error_code();
    return 0;
}

static int list_used(wb__graph *g)
{
    g->used = wb__alloc_zero((size_t)g->s->n_buffers + 1, sizeof *g->used);
    if (!g->used) return WB_ERROR_MEMORY;
    for (int i = 0; i < g->s->n_kernels; i++) {
        const wb__gpu_kernel *k = (const wb__gpu_kernel *)g->s->kernels[i];
        for (int j = 0; j < k->n_used; j++) g->used[k->used[j]] = true;
    }
    if (g->arena >= 0) g->used[g->arena] = true;    /* its memory has the workspace */
    return 0;
}

/* Returns the number of kernels that must be complete before kernel i. */
static int gpu_graph_awaited(const wb__sequence *s, int i)
{
    return s->waits ? s->waits[i].waits_for + 1 - s->first : 0;
}

static int list_segments(wb__graph *g)
{
    const wb__sequence *s = g->s;
    g->segments = wb__alloc(((size_t)s->n_kernels + 1) * sizeof *g->segments);
    if (!g->segments) return WB_ERROR_MEMORY;
    for (int i = 0, complete = 0, n = 0; i < s->n_kernels; i++) {
        const bool aside = ((const wb__gpu_kernel *)s->kernels[i])->aside != NULL;
        bool cut = !n || aside || g->segments[n - 1].aside;
        for (; complete < gpu_graph_awaited(s, i); complete++) cut |= s->waits[complete].begins;
        if (cut) g->segments[n++] = (gpu_graph_segment){.first = i, .aside = aside};
        g->segments[n - 1].last = i + 1;
        g->n_segments = n;
    }
    const size_t n = (size_t)g->n_segments;
    g->execs = wb__alloc_zero((INSTANCES + 1) * n + 1, sizeof *g->execs);
    for (size_t i = 0; g->execs && i <= INSTANCES; i++) g->one[i].exec = g->execs + i * n;
    return g->execs ? 0 : WB_ERROR_MEMORY;
}

/* Opens the queue and events that a recording with two branches needs.  false: this fails, and the
 * graphs then have one branch. */
static bool open_branch(wb__gpu_device *d, const wb__sequence *s)
{
    if (!s->after || s->waits || !d->driver->open_queue) return false;
    wb__mutex_lock(&d->lock);
    int code = d->driver->open_queue(d, WB__GPU_BRANCH);
    for (int i = 0; i < 2 * WB__GPU_MARKS && !code; i++) {
        void **event = &d->branch_events[i];
        if (!*event) code = d->driver->new_event(event);
    }
    wb__mutex_unlock(&d->lock);
    if (!code) return true;
    wb__gpu_fail(d->driver, d, code, "a branch of graphs");
    if (wb__debug("plan"))
        wb__log(WB_LOG_DEBUG, "plan: a graph of %d kernels is one chain: %s", s->n_kernels,
                wb_error());
    wb_clear_error();
    return false;
}

static int gpu_graph_new(wb__gpu_device *d, const wb__sequence *s, wb__graph **graph)
{
    const size_t n = (size_t)s->n_buffers + 1;
    wb__graph *g = wb__alloc_zero(1, sizeof *g);
    if (!g) return WB_ERROR_MEMORY;
    wb__mutex_init(&g->lock);
    *graph = g;
    g->s = s;
    g->arena = -1;
    for (int i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].kind == WB__BUFFER_ARENA) g->arena = i;
    g->addresses = wb__alloc_zero((INSTANCES + 2) * n, sizeof *g->addresses);
    if (!g->addresses) return WB_ERROR_MEMORY;
    for (size_t i = 0; i <= INSTANCES; i++) g->one[i].address = g->addresses + i * n;
    g->now = g->one[COPYING].address + n;
    g->own = wb__alloc_zero(n, sizeof *g->own);
    int status = g->own ? list_used(g) : WB_ERROR_MEMORY;
    if (!status) status = list_segments(g);
    if (!status) g->branches = open_branch(d, s);
    if (!status) status = wb__gpu_tables_make(d, s, &g->tables);
    return status ? status : make_blocks(d, g);
}

bool wb__gpu_runs_branches(const wb_device *base)
{
    const wb__gpu_device *d = base->state;
    return d->graphs && d->driver->open_queue && !wb__gpu_is_off("WEBER_GPU_BRANCHES");
}

int wb__gpu_record_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph)
{
    wb__gpu_device *d = base->state;
    wb__graph *g = NULL;
    *graph = NULL;
    if (!d->graphs || d->debug_sync) return WB_ERROR_UNSUPPORTED;
    if (wb__gpu_enter(d)) return wb_error_code();
    const int status = gpu_graph_new(d, s, &g);
    wb__gpu_leave(d);
    if (g) d->holders++;
    if (status) wb__gpu_graph_free(base, g);
    else *graph = g;
    return status;
}

static void gpu_graph_drop_instance(wb__gpu_device *d, const wb__graph *g, instance *in)
{
    for (int i = 0; i < g->n_segments && in->exec; i++) {
        if (in->exec[i]) d->driver->drop_graph(in->exec[i]);
        in->exec[i] = NULL;
    }
    in->recorded = false;
}

void wb__gpu_graph_free(const wb_device *base, wb__graph *g)
{
    wb__gpu_device *d = base->state;
    if (!g || wb__gpu_is_child(d)) return;
    const bool entered = wb__gpu_enter_to_release(d);
    d->holders--;
    for (int i = 0; i <= INSTANCES; i++) {
        gpu_graph_drop_instance(d, g, &g->one[i]);
        wb__gpu_release(base, g->one[i].block, g->tables.bytes);
    }
    for (int i = 0; i < g->s->n_buffers && g->own; i++)
        wb__gpu_release(base, g->own[i], g->s->buffers[i].bytes);
    wb__gpu_tables_free(d, &g->tables);
    wb__free(g->addresses);
    wb__free(g->segments);
    wb__free(g->execs);
    wb__free(g->own);
    wb__free(g->used);
    wb__mutex_destroy(&g->lock);
    wb__free(g);
    if (entered) wb__gpu_leave(d);
}

/* ---- recording ------------------------------------------------------------------------------- */

/* Whether launch `index` of kernel k is a row of the table. */
static bool gpu_graph_is_row(const wb__gpu_table *t, const wb__gpu_kernel *k, int index)
{
    for (int r = 0; t->kernel == k && r < t->n; r++)
        if (t->row_launch[r] == index) return true;
    return false;
}

/* Records one launch of a kernel.  The launch that is a table's first row records the whole table;
 * a launch that is another row records nothing. */
static int gpu_graph_record_launch(wb__gpu_device *d, const wb__graph *g, wb__gpu_kernel *k,
                                   int index, uint64_t block, wb__gpu_queue q,
                                   const wb__gpu_addresses *at)
{
    for (int i = 0; i < g->tables.n; i++) {
        const wb__gpu_table *t = &g->tables.table[i];
        if (!gpu_graph_is_row(t, k, index)) continue;
        return t->row_launch[0] == index ? wb__gpu_table_launch(d, t, block, q) : 0;
    }
    return wb__gpu_enqueue(d, k, &k->launches[index], q, at);
}

static int gpu_graph_fail(wb__gpu_device *d, const wb__graph *g, int code)
{
    return wb__gpu_fail(d->driver, d, code, "a plan of %d kernels", g->s->n_kernels);
}

/* Returns the queue on which kernel i is recorded. */
static wb__gpu_queue gpu_graph_queue_of(const wb__graph *g, int i)
{
    return g->branches && g->s->kernels[i]->in_branch ? WB__GPU_BRANCH : WB__GPU_RECORDING;
}

/* Returns the place of the event after kernel i.  A later kernel of the branch may share the event:
 * a wait for kernel i is then longer than necessary. */
static void **event_after(wb__gpu_device *d, const wb__graph *g, int i)
{
    const int first = gpu_graph_queue_of(g, i) == WB__GPU_BRANCH ? WB__GPU_MARKS : 0;
    return &d->branch_events[first + i % WB__GPU_MARKS];
}

/* Records kernel i, after a wait for the kernel of the other branch that must be complete. */
static int gpu_graph_record_kernel(wb__gpu_device *d, const wb__graph *g, int i, uint64_t block,
                                   const wb__gpu_addresses *common)
{
    wb__gpu_kernel *k = (wb__gpu_kernel *)g->s->kernels[i];
    const wb__gpu_queue q = gpu_graph_queue_of(g, i);
    const int after = g->branches ? g->s->after[i] - g->s->first : -1;
    wb__gpu_addresses at = *common;
    int code = 0, status = 0;
    if (k->base.in_branch) at.workspace_at += at.branch_at;
    if (after >= 0) code = d->driver->wait_event(d, q, *event_after(d, g, after));
    if (!code && k->routine) status = wb__gpu_launch_routine(d, k, q, &at);
    for (int l = 0; l < k->n && !code && !status; l++)
        status = gpu_graph_record_launch(d, g, k, l, block, q, &at);
    if (!code && !status && g->branches) code = d->driver->record(d, q, event_after(d, g, i));
    return code ? gpu_graph_fail(d, g, code) : status;
}

/* Makes the queue `to` wait for all that is recorded on the queue `from`.  Returns a code. */
static int link_queues(wb__gpu_device *d, wb__gpu_queue from, wb__gpu_queue to)
{
    void **event = &d->branch_events[0];
    const int code = d->driver->record(d, from, event);
    return code ? code : d->driver->wait_event(d, to, *event);
}

/* With the device's lock held: records the kernels of a segment.  block: address of the tables.
 * The other branch begins where the segment does, and joins at its end, also after a failure, so
 * that the recording ends. */
static int gpu_graph_record_segment(wb__gpu_device *d, const wb__graph *g,
                                    const gpu_graph_segment *p, uint64_t block,
                                    const wb__gpu_addresses *at, void **recorded)
{
    int code = d->driver->record_begin(d);
    if (code) return gpu_graph_fail(d, g, code);
    int status = 0;
    d->recording = true;
    if (g->branches) code = link_queues(d, WB__GPU_RECORDING, WB__GPU_BRANCH);
    for (int i = p->first; i < p->last && !code && !status; i++)
        status = gpu_graph_record_kernel(d, g, i, block, at);
    if (g->branches && !code) code = link_queues(d, WB__GPU_BRANCH, WB__GPU_RECORDING);
    if (code && !status) status = gpu_graph_fail(d, g, code);
    d->recording = false;
    code = d->driver->record_end(d, recorded);
    if (code) *recorded = NULL;
    return status || !code ? status : gpu_graph_fail(d, g, code);
}

/* Makes the graph of a segment. */
static int make_exec(wb__gpu_device *d, const wb__graph *g, const gpu_graph_segment *p,
                     uint64_t block, const wb__gpu_addresses *at, void **exec)
{
    void *recorded = NULL;
    if (p->aside) return 0;
    wb__mutex_lock(&d->lock);
    int status = gpu_graph_record_segment(d, g, p, block, at, &recorded);
    wb__mutex_unlock(&d->lock);
    if (!status) {
        const int code = d->driver->instantiate(recorded, exec);
        if (code) *exec = NULL;
        if (code) status = gpu_graph_fail(d, g, code);
    }
    if (recorded) d->driver->drop_recorded(recorded);
    return status;
}

/* Uploads the tables, with the addresses of `at`, into the instance's block. */
static int gpu_graph_fill_block(wb__gpu_device *d, wb__graph *g, instance *in,
                                const wb__gpu_addresses *at)
{
    if (!g->tables.bytes) return 0;
    unsigned char *rows = wb__alloc_zero(g->tables.bytes, 1);
    if (!rows) return WB_ERROR_MEMORY;
    wb__gpu_tables_fill(&g->tables, at, rows);
    const int status = wb__gpu_upload(&d->base, in->block, 0, rows, g->tables.bytes);
    wb__free(rows);
    return status;
}

/* Records the instance `in` for the addresses in g->now, and drops its old graph. */
static int make_instance(wb__gpu_device *d, wb__graph *g, instance *in, wb__gpu_addresses at)
{
    at.workspace = g->arena < 0 ? 0 : g->now[g->arena];
    gpu_graph_drop_instance(d, g, in);
    g->created++;
    int status = gpu_graph_fill_block(d, g, in, &at);
    for (int i = 0; i < g->n_segments && !status; i++)
        status = make_exec(d, g, &g->segments[i], in->block ? in->block->at : 0, &at, &in->exec[i]);
    in->recorded = !status;
    memcpy(in->address, g->now, (size_t)g->s->n_buffers * sizeof *g->now);
    return status;
}

/* ---- choosing an instance -------------------------------------------------------------------- */

/* Whether the instance was recorded with the addresses of this run. */
static bool gpu_graph_fits(const wb__graph *g, const instance *in)
{
    return in->recorded && !memcmp(in->address, g->now, (size_t)g->s->n_buffers * sizeof *g->now);
}

/* Whether a variable has moved since this instance was recorded. */
static bool is_stale(const wb__graph *g, const instance *in)
{
    for (int i = 0; i < g->s->n_buffers; i++)
        if (g->s->buffers[i].kind == WB__BUFFER_VARIABLE && in->address[i] != g->now[i])
            return true;
    return false;
}

/* Returns the least recently used instance.  If of_all is false, considers only instances that are
 * not recorded or are stale.  NULL: there is none. */
static instance *least_recently_used(wb__graph *g, bool of_all)
{
    instance *best = NULL;
    for (int i = 0; i < INSTANCES; i++) {
        instance *in = &g->one[i];
        if (!of_all && in->recorded && !is_stale(g, in)) continue;
        if (!best || in->last < best->last) best = in;
    }
    return best;
}

/* Whether some instance was recorded with an address of buffer i other than g->now[i]. */
static bool has_moved(const wb__graph *g, int i)
{
    bool moves = false;
    for (int k = 0; k <= INSTANCES; k++)
        moves |= g->one[k].recorded && g->one[k].address[i] != g->now[i];
    return moves;
}

/* Whether a buffer marked `scattered` has moved; copying such a buffer costs too much. */
static bool moves_scattered(const wb__graph *g)
{
    for (int i = 0; i < g->s->n_buffers; i++)
        if (g->s->buffers[i].scattered && has_moved(g, i)) return true;
    return false;
}

/* Replaces, in g->now, the addresses of buffers that have moved by addresses of the graph's own
 * memory, which is allocated when it is first needed.  If g->s->split, only addresses of inputs are
 * replaced, else all but those of variables.  false: out of memory. */
static bool use_own_memory(wb__gpu_device *d, wb__graph *g)
{
    for (int i = 0; i < g->s->n_buffers; i++) {
        const wb__buffer *b = &g->s->buffers[i];
        const bool moves = has_moved(g, i);
        const bool stays = b->kind == WB__BUFFER_VARIABLE ||
                           (g->s->split && b->kind != WB__BUFFER_INPUT);
        if (stays || (!moves && !g->own[i])) continue;
        if (!g->own[i] && !(g->own[i] = wb__gpu_allocate(&d->base, b->bytes))) {
            wb_clear_error();
            return false;
        }
        g->now[i] = g->own[i]->at;
    }
    return true;
}

/* Returns the address of buffer i in this run; 0: it has no memory, or no kernel uses it. */
static uint64_t gpu_graph_address_of(const wb__graph *g, const wb__gpu_addresses *at, int i)
{
    const wb__gpu_memory *m = g->used[i] ? at->buffers[i] : NULL;
    return m ? m->at + (at->offsets ? at->offsets[i] : 0) : 0;
}

/* Sets g->now to the addresses of the buffers in this run. */
static void gpu_graph_set_addresses(wb__graph *g, const wb__gpu_addresses *at)
{
    for (int i = 0; i < g->s->n_buffers; i++) g->now[i] = gpu_graph_address_of(g, at, i);
}

/* Whether the graph may record once more: FREELY times, then once in SELDOM runs. */
static bool gpu_graph_may_record(const wb__graph *g)
{
    return g->created < FREELY || g->created * SELDOM < g->runs;
}

/* Chooses the instance for this run, and records it if necessary.  *in NULL: there is no instance,
 * and the kernels are launched one by one.  Returns 0, or an error. */
static int gpu_graph_choose_instance(wb__gpu_device *d, wb__graph *g, const wb__gpu_addresses *at,
                                     instance **in)
{
    gpu_graph_set_addresses(g, at);
    for (int i = 0; i < INSTANCES; i++) {
        *in = &g->one[i];
        if (gpu_graph_fits(g, *in)) return 0;
    }
    *in = least_recently_used(g, false);
    if (!*in && moves_scattered(g)) return 0;
    if (!*in && use_own_memory(d, g)) {
        *in = &g->one[COPYING];
        if (gpu_graph_fits(g, *in)) return 0;
    } else if (!*in) {
        gpu_graph_set_addresses(g, at);
        *in = least_recently_used(g, true);
    }
    if (gpu_graph_may_record(g)) return make_instance(d, g, *in, *at);
    *in = NULL;
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* With the device's lock held: copies inputs to the graph's own memory, or results from there. */
static int gpu_graph_copy_own(wb__gpu_device *d, const wb__graph *g, const wb__gpu_addresses *at,
                              wb__buffer_kind kind)
{
    for (int i = 0; i < g->s->n_buffers; i++) {
        const wb__buffer *b = &g->s->buffers[i];
        const uint64_t buffer_address = gpu_graph_address_of(g, at, i);
        if (b->kind != kind || !g->own[i] || !buffer_address || !b->bytes) continue;
        const uint64_t own_address = g->own[i]->at;
        const bool in = kind == WB__BUFFER_INPUT;
        const int code = d->driver->copy(d, in ? own_address : buffer_address, 0, d,
                                         in ? buffer_address : own_address, 0, b->bytes, NULL);
        if (code) return wb__gpu_fail(d->driver, d, code, "%zu bytes of a plan", b->bytes);
    }
    return 0;
}

/* With the device's lock held: makes the compute queue wait for those of the kernels *complete to
 * last - 1 that are routines beside it; *complete becomes `last`. */
static int gpu_graph_join_routines(wb__gpu_device *d, const wb__sequence *s, int *complete,
                                   int last)
{
    int status = 0;
    for (; *complete < last; ++*complete) {
        if (!s->waits || !s->waits[*complete].begins) continue;
        const int code = wb__gpu_aside_join(d, (const wb__gpu_kernel *)s->kernels[*complete]);
        if (!status) status = code;
    }
    return status;
}

static int launch_segments(wb__gpu_device *d, const wb__graph *g, const instance *in,
                           wb__gpu_addresses at)
{
    int status = 0, complete = 0, begun = 0;
    at.workspace = g->arena < 0 ? 0 : g->now[g->arena];
    for (int i = 0; i < g->n_segments && !status; i++) {
        const gpu_graph_segment *p = &g->segments[i];
        status = gpu_graph_join_routines(d, g->s, &complete, gpu_graph_awaited(g->s, p->first));
        if (status) break;
        if (p->aside) {
            status = wb__gpu_launch_routine(d, (const wb__gpu_kernel *)g->s->kernels[p->first],
                                            WB__GPU_COMPUTE, &at);
        } else {
            const int code = d->driver->run(d, in->exec[i]);
            if (code) status = gpu_graph_fail(d, g, code);
        }
        if (!status) begun = p->last;
    }
    const int last = gpu_graph_join_routines(d, g->s, &complete, begun);
    return status ? status : last;
}

/* With the device's lock held: launches the graphs and routines of an instance. */
static int gpu_graph_launch_instance(wb__gpu_device *d, wb__graph *g, instance *in,
                                     const wb__gpu_addresses *at)
{
    const bool copying = in == &g->one[COPYING];
    int status = in->block ? wb__gpu_command_uses(d, in->block) : 0;
    for (int i = 0; i < g->s->n_buffers && !status; i++) {
        if (g->used[i] && at->buffers[i]) status = wb__gpu_command_uses(d, at->buffers[i]);
        if (!status && copying && g->own[i]) status = wb__gpu_command_uses(d, g->own[i]);
    }
    if (!status && copying) status = gpu_graph_copy_own(d, g, at, WB__BUFFER_INPUT);
    if (!status && in->block)
        status = wb__gpu_tables_write(d, &g->tables, in->block->at, at->numbers);
    if (!status) status = launch_segments(d, g, in, *at);
    if (status) return status;
    if (copying) status = gpu_graph_copy_own(d, g, at, WB__BUFFER_RESULT);
    wb__gpu_count_command(d, NULL);
    if (!wb__gpu_mark_now(d)) wb_clear_error();  /* on failure, uploads wait for a later mark */
    in->last = ++g->clock;
    return status;
}

/* Finishes the kernels *complete to last - 1, and sets *complete to `last`. */
static int gpu_graph_finish_kernels(const wb_device *base, const wb__sequence *s, int *complete,
                                    int last)
{
    int status = 0;
    for (; *complete < last; ++*complete) {
        if (!s->waits || !s->waits[*complete].begins) continue;
        const int code = wb__gpu_finish(base, s->kernels[*complete]);
        if (!status) status = code;
    }
    return status;
}

static int gpu_graph_launch_kernels(const wb_device *base, const wb__graph *g,
                                    const wb__gpu_addresses *at)
{
    void *workspace = g->arena < 0 ? NULL : at->buffers[g->arena];
    int status = 0, complete = 0, i = 0;
    while (i < g->s->n_kernels && !status) {
        status = gpu_graph_finish_kernels(base, g->s, &complete, gpu_graph_awaited(g->s, i));
        if (status) break;
        status = wb__gpu_launch_kernel(base, g->s->kernels[i], at->buffers, at->offsets, workspace,
                                       at->workspace_at, at->numbers);
        if (!status) i++;
    }
    const int last = gpu_graph_finish_kernels(base, g->s, &complete, i);
    return status ? status : last;
}

int wb__gpu_graph_run(const wb_device *base, wb__graph *g, void *const *buffers,
                     const size_t *offsets, const wb__number *numbers)
{
    wb__gpu_device *d = base->state;
    const wb__gpu_addresses at = {.address = g->now, .buffers = buffers, .offsets = offsets,
                                  .workspace_at = g->s->workspace_at,
                                  .branch_at = g->s->branch_at, .numbers = numbers};
    int status = wb__gpu_enter(d);
    if (status) return status;
    wb__mutex_lock(&g->lock);
    instance *in = NULL;
    g->runs++;
    if (!g->broken && gpu_graph_choose_instance(d, g, &at, &in)) {
        wb__log(WB_LOG_WARN, "%s:%d: a plan of %d kernels runs without a graph: %s",
                d->driver->backend->tag, base->ordinal, g->s->n_kernels, wb_error());
        wb_clear_error();
        g->broken = true;
    } else if (in) {
        wb__mutex_lock(&d->lock);
        status = gpu_graph_launch_instance(d, g, in, &at);
        wb__mutex_unlock(&d->lock);
    }
    const bool each = g->broken || !in;
    wb__mutex_unlock(&g->lock);
    wb__gpu_leave(d);
    return each ? gpu_graph_launch_kernels(base, g, &at) : status;
}
