/* Plans as one command: a sequence of kernels is recorded once, as a graph of the driver's, and
 * launched as a whole at every run.
 *
 * A graph holds the addresses of its buffers.  Variables seldom move; inputs and results of a loop
 * come from the cache and take turns among few addresses, as a loader's batches do.  So a graph has
 * up to sixteen instances, each for one set of addresses.  Where these keep changing, a further
 * instance has memory of its own in place of what changes: inputs are copied there before it runs,
 * results from there after it, and nothing is recorded any more.  Variables cannot be copied so:
 * where more sets of them take turns than there are instances, as in many models of one shape, the
 * runs without one are launched kernel by kernel, for to record costs more than that; so they are
 * where a window with wide gaps moves.
 *
 * Recording is done on a stream of its own, on which nothing runs, so that it is in nobody's way.
 * What cannot be recorded is launched kernel by kernel, as without a graph. */
#include "backend/gpu/runtime/runtime.h"

#include <string.h>

enum {
    INSTANCES = 16,
    COPYING = INSTANCES,        /* the one with memory of its own */
    FREELY = 2 * INSTANCES,     /* recordings that a graph may have at any time, */
    SELDOM = 8                  /* and beyond these one in so many runs */
};

typedef struct {
    void *exec;           /* NULL: none */
    uint64_t *address;       /* of every buffer */
    wb__gpu_memory *block;       /* of the tables; NULL where there are none */
    uint64_t last;              /* when it ran, by the graph's clock */
} instance;

struct wb__graph {
    const wb__sequence *s;
    int arena;                  /* which buffer; -1: none */
    bool *used;                 /* which buffers the kernels use: the others may be anywhere */
    bool broken;                /* it cannot be recorded */
    wb__gpu_tables tables;
    pthread_mutex_t lock;       /* of what follows; taken before the device's */
    uint64_t clock, runs, made; /* made: instances, ever */
    uint64_t *addresses;     /* memory of all lists of these */
    uint64_t *now;           /* where the buffers are in this run */
    instance one[INSTANCES + 1];
    wb__gpu_memory **own;       /* the copying one's, in place of these buffers; NULL: theirs */
};

/* ---- making and freeing ---------------------------------------------------------------------- */

/* All instances get theirs at once, so that a loop's memory does not grow with each that it
 * meets. */
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
    if (g->arena >= 0) g->used[g->arena] = true;    /* the workspace is behind it */
    return 0;
}

static int make(wb__gpu_device *d, const wb__sequence *s, wb__graph **graph)
{
    const size_t n = (size_t)s->n_buffers + 1;
    wb__graph *g = wb__alloc_zero(1, sizeof *g);
    if (!g) return WB_ERROR_MEMORY;
    pthread_mutex_init(&g->lock, NULL);
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
    if (!status) status = wb__gpu_tables_make(d, s, &g->tables);
    return status ? status : make_blocks(d, g);
}

int wb__gpu_graph(const wb_device *base, const wb__sequence *s, wb__graph **graph)
{
    wb__gpu_device *d = base->state;
    wb__graph *g = NULL;
    *graph = NULL;
    if (!d->graphs || d->debug_sync) return WB_ERROR_UNSUPPORTED;
    if (wb__gpu_enter(d)) return wb_error_code();
    const int status = make(d, s, &g);
    wb__gpu_leave(d);
    if (g) d->holders++;
    if (status) wb__gpu_graph_free(base, g);
    else *graph = g;
    return status;
}

void wb__gpu_graph_free(const wb_device *base, wb__graph *g)
{
    wb__gpu_device *d = base->state;
    if (!g || wb__gpu_is_child(d)) return;
    const bool entered = wb__gpu_enter_to_release(d);
    d->holders--;
    for (int i = 0; i <= INSTANCES; i++) {
        if (g->one[i].exec) d->driver->drop_graph(g->one[i].exec);
        wb__gpu_release(base, g->one[i].block, g->tables.bytes);
    }
    for (int i = 0; i < g->s->n_buffers && g->own; i++)
        wb__gpu_release(base, g->own[i], g->s->buffers[i].bytes);
    wb__gpu_tables_free(d, &g->tables);
    wb__free(g->addresses);
    wb__free(g->own);
    wb__free(g->used);
    pthread_mutex_destroy(&g->lock);
    wb__free(g);
    if (entered) wb__gpu_leave(d);
}

/* ---- recording ------------------------------------------------------------------------------- */

static bool is_row(const wb__gpu_table *t, const wb__gpu_kernel *k, int part)
{
    for (int r = 0; t->kernel == k && r < t->n; r++)
        if (t->part[r] == part) return true;
    return false;
}

/* One part: by value, or as the first row of a table, which brings the others. */
static int record_part(wb__gpu_device *d, const wb__graph *g, wb__gpu_kernel *k, int part,
                       uint64_t block, const wb__gpu_places *at)
{
    for (int i = 0; i < g->tables.n; i++) {
        const wb__gpu_table *t = &g->tables.table[i];
        if (!is_row(t, k, part)) continue;
        return t->part[0] == part ? wb__gpu_table_launch(d, t, block, WB__GPU_RECORDING) : 0;
    }
    return wb__gpu_launch_part(d, k, &k->parts[part], WB__GPU_RECORDING, at);
}

static int fail(wb__gpu_device *d, const wb__graph *g, int code)
{
    return wb__gpu_fail(d->driver, d, code, "a plan of %d kernels", g->s->n_kernels);
}

/* With the device's lock, since kernels have room for the arguments of one launch. */
static int record(wb__gpu_device *d, const wb__graph *g, uint64_t block, const wb__gpu_places *at,
                  void **recorded)
{
    int code = d->driver->record_begin(d);
    if (code) return fail(d, g, code);
    int status = 0;
    for (int i = 0; i < g->s->n_kernels && !status; i++) {
        wb__gpu_kernel *k = (wb__gpu_kernel *)g->s->kernels[i];
        if (k->routine) status = wb__gpu_launch_routine(d, k, WB__GPU_RECORDING, at);
        for (int p = 0; p < k->n && !status; p++) status = record_part(d, g, k, p, block, at);
    }
    code = d->driver->record_end(d, recorded);
    if (code) *recorded = NULL;
    return status || !code ? status : fail(d, g, code);
}

/* The rows for these places, into the block of the tables. */
static int fill_block(wb__gpu_device *d, wb__graph *g, instance *in, const wb__gpu_places *at)
{
    if (!g->tables.bytes) return 0;
    unsigned char *rows = wb__alloc_zero(g->tables.bytes, 1);
    if (!rows) return WB_ERROR_MEMORY;
    wb__gpu_tables_fill(&g->tables, at, rows);
    const int status = wb__gpu_upload(&d->base, in->block, 0, rows, g->tables.bytes);
    wb__free(rows);
    return status;
}

/* An instance for the addresses in g->now. */
static int make_instance(wb__gpu_device *d, wb__graph *g, instance *in, wb__gpu_places at)
{
    void *recorded = NULL;
    at.workspace = g->arena < 0 ? 0 : g->now[g->arena];
    if (in->exec) d->driver->drop_graph(in->exec);
    in->exec = NULL;
    g->made++;
    int status = fill_block(d, g, in, &at);
    if (status) return status;
    pthread_mutex_lock(&d->lock);
    status = record(d, g, in->block ? in->block->at : 0, &at, &recorded);
    pthread_mutex_unlock(&d->lock);
    if (!status) {
        const int code = d->driver->instantiate(recorded, &in->exec);
        if (code) in->exec = NULL;
        if (code) status = fail(d, g, code);
    }
    if (recorded) d->driver->drop_recorded(recorded);
    memcpy(in->address, g->now, (size_t)g->s->n_buffers * sizeof *g->now);
    return status;
}

/* ---- choosing an instance -------------------------------------------------------------------- */

static bool fits(const wb__graph *g, const instance *in)
{
    return in->exec && !memcmp(in->address, g->now, (size_t)g->s->n_buffers * sizeof *g->now);
}

/* A variable is not where it was when this one was recorded. */
static bool is_stale(const wb__graph *g, const instance *in)
{
    for (int i = 0; i < g->s->n_buffers; i++)
        if (g->s->buffers[i].kind == WB__BUFFER_VARIABLE && in->address[i] != g->now[i])
            return true;
    return false;
}

/* The longest unused of those that are free or stale, or of all; NULL: all are for other places. */
static instance *longest_unused(wb__graph *g, bool of_all)
{
    instance *best = NULL;
    for (int i = 0; i < INSTANCES; i++) {
        instance *in = &g->one[i];
        if (!of_all && in->exec && !is_stale(g, in)) continue;
        if (!best || in->last < best->last) best = in;
    }
    return best;
}

/* Was a buffer elsewhere in a run that an instance was made for? */
static bool was_elsewhere(const wb__graph *g, int i)
{
    bool moves = false;
    for (int k = 0; k <= INSTANCES; k++)
        moves |= g->one[k].exec && g->one[k].address[i] != g->now[i];
    return moves;
}

/* Does a buffer move that is not worth a copy? */
static bool moves_scattered(const wb__graph *g)
{
    for (int i = 0; i < g->s->n_buffers; i++)
        if (g->s->buffers[i].scattered && was_elsewhere(g, i)) return true;
    return false;
}

/* Puts our own memory in place of all that was seen to move and may be elsewhere; false: there is
 * none to be had. */
static bool take_own_memory(wb__gpu_device *d, wb__graph *g)
{
    for (int i = 0; i < g->s->n_buffers; i++) {
        const wb__buffer *b = &g->s->buffers[i];
        const bool moves = was_elsewhere(g, i);
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

/* Where a buffer is in this run; 0: nowhere, or it is not used. */
static uint64_t place_of(const wb__graph *g, const wb__gpu_places *at, int i)
{
    const wb__gpu_memory *m = g->used[i] ? at->buffers[i] : NULL;
    return m ? m->at + (at->places ? at->places[i] : 0) : 0;
}

static void locate(wb__graph *g, const wb__gpu_places *at)
{
    for (int i = 0; i < g->s->n_buffers; i++) g->now[i] = place_of(g, at, i);
}

static bool pays(const wb__graph *g) { return g->made < FREELY || g->made * SELDOM < g->runs; }

/* *in: the instance for this run; NULL: none, this time.  0, or an error. */
static int choose(wb__gpu_device *d, wb__graph *g, const wb__gpu_places *at, instance **in)
{
    locate(g, at);
    for (int i = 0; i < INSTANCES; i++) {
        *in = &g->one[i];
        if (fits(g, *in)) return 0;
    }
    *in = longest_unused(g, false);
    if (!*in && moves_scattered(g)) return 0;
    if (!*in && take_own_memory(d, g)) {
        *in = &g->one[COPYING];
        if (fits(g, *in)) return 0;
    } else if (!*in) {
        locate(g, at);
        *in = longest_unused(g, true);
    }
    if (pays(g)) return make_instance(d, g, *in, *at);
    *in = NULL;
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* With the device's lock: copies of inputs into our own memory, or of results out of it. */
static int copy_own(wb__gpu_device *d, const wb__graph *g, const wb__gpu_places *at,
                    wb__buffer_kind kind)
{
    for (int i = 0; i < g->s->n_buffers; i++) {
        const wb__buffer *b = &g->s->buffers[i];
        const uint64_t theirs = place_of(g, at, i);
        if (b->kind != kind || !g->own[i] || !theirs || !b->bytes) continue;
        const uint64_t ours = g->own[i]->at;
        const bool in = kind == WB__BUFFER_INPUT;
        const int code = d->driver->copy(d, in ? ours : theirs, 0, d, in ? theirs : ours, 0,
                                         b->bytes, NULL);
        if (code) return wb__gpu_fail(d->driver, d, code, "%zu bytes of a plan", b->bytes);
    }
    return 0;
}

/* With the device's lock. */
static int launch(wb__gpu_device *d, wb__graph *g, instance *in, const wb__gpu_places *at)
{
    const bool copying = in == &g->one[COPYING];
    int status = in->block ? wb__gpu_uses(d, in->block) : 0;
    for (int i = 0; i < g->s->n_buffers && !status; i++) {
        if (g->used[i] && at->buffers[i]) status = wb__gpu_uses(d, at->buffers[i]);
        if (!status && copying && g->own[i]) status = wb__gpu_uses(d, g->own[i]);
    }
    if (!status && copying) status = copy_own(d, g, at, WB__BUFFER_INPUT);
    if (!status && in->block)
        status = wb__gpu_tables_write(d, &g->tables, in->block->at, at->numbers);
    if (status) return status;
    const int code = d->driver->run(d, in->exec);
    if (code) return fail(d, g, code);
    if (copying) status = copy_own(d, g, at, WB__BUFFER_RESULT);
    wb__gpu_issued(d, NULL);
    if (!wb__gpu_mark_now(d)) wb_clear_error();       /* then uploads wait for more than this */
    in->last = ++g->clock;
    return status;
}

static int launch_each(const wb_device *base, const wb__graph *g, const wb__gpu_places *at)
{
    void *workspace = g->arena < 0 ? NULL : at->buffers[g->arena];
    int status = 0;
    for (int i = 0; i < g->s->n_kernels && !status; i++)
        status = wb__gpu_launch_kernel(base, g->s->kernels[i], at->buffers, at->places, workspace,
                                       at->workspace_at, at->numbers);
    return status;
}

int wb__gpu_graph_run(const wb_device *base, wb__graph *g, void *const *buffers,
                     const size_t *places, const wb__number *numbers)
{
    wb__gpu_device *d = base->state;
    const wb__gpu_places at = {.address = g->now, .buffers = buffers, .places = places,
                               .workspace_at = g->s->workspace_at, .numbers = numbers};
    int status = 0;
    if (wb__gpu_enter(d)) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&g->lock);
    instance *in = NULL;
    g->runs++;
    if (!g->broken && choose(d, g, &at, &in)) {
        wb__log(WB_LOG_WARN, "%s:%d: a plan of %d kernels runs without a graph: %s",
                d->driver->backend->tag, base->ordinal, g->s->n_kernels, wb_error());
        wb_clear_error();
        g->broken = true;
    } else if (in) {
        pthread_mutex_lock(&d->lock);
        status = launch(d, g, in, &at);
        pthread_mutex_unlock(&d->lock);
    }
    const bool each = g->broken || !in;
    pthread_mutex_unlock(&g->lock);
    wb__gpu_leave(d);
    return each ? launch_each(base, g, &at) : status;
}
