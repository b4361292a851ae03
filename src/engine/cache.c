/* The plan cache, the arenas (memory for the intermediates of a run), and the running of plans. */
#include "backend/collective.h"
#include "base/mutex.h"
#include "engine/plan_shapes.h"
#include "engine/profile.h"
#include "engine/request.h"

#include <string.h>

static wb__mutex plan_cache_lock = WB__MUTEX_INIT;
static wb__plan **plan_cache_plans;
static int n_plans, plans_capacity, plan_cache_limit = 64;
static uint64_t clock_now;
static wb_engine_stats plan_cache_stats;
static _Atomic int64_t arena_bytes;     /* bytes of all arenas, idle or in use; atomic, since it
                                           changes without the lock */

/* ---- the cache of plans ---------------------------------------------------------------------- */

void wb_set_plan_cache(int n)
{
    wb__mutex_lock(&plan_cache_lock);
    plan_cache_limit = WB__MAX(n, 1);
    wb__mutex_unlock(&plan_cache_lock);
}

wb_engine_stats wb_stats(void)
{
    wb__mutex_lock(&plan_cache_lock);
    wb_engine_stats s = plan_cache_stats;
    wb__mutex_unlock(&plan_cache_lock);
    s.arena_bytes = arena_bytes;
    s.prepared_bytes = wb__forms_bytes();
    return s;
}

static bool plan_fits_request(const wb__plan *p, const wb__request *r)
{
    return p->n_words == r->n_words &&
           !memcmp(p->words, r->words, (size_t)r->n_words * sizeof *r->words);
}

/* Returns the plan of a request, with a reference for the caller; NULL: there is none.  A loop asks
 * for the plan that it asked for last, so the hash is computed only if that plan does not fit. */
static wb__plan *plan_cache_lookup(const wb__request *r, uint64_t *hash)
{
    static int latest;                  /* the index of a plan; a wrong one only costs time */
    if (latest >= n_plans || !plan_fits_request(plan_cache_plans[latest], r)) {
        *hash = wb__request_hash(r);
        latest = n_plans - 1;
        while (latest >= 0 && (plan_cache_plans[latest]->hash != *hash ||
                               !plan_fits_request(plan_cache_plans[latest], r)))
            latest--;
        if (latest < 0) return latest = 0, NULL;
    }
    wb__plan *p = plan_cache_plans[latest];
    p->uses++;
    p->last_used = ++clock_now;
    plan_cache_stats.plan_hits++;
    return p;
}

/* Removes the least recently used plans from the cache until `most` are left.  A plan that is still
 * in use is freed when its last user calls wb__plan_done.  The caller holds the lock; this function
 * gives it up while a plan is freed, whose device may wait for a rank that waits for the lock. */
static void evict_plans(int most)
{
    while (n_plans > most) {
        int oldest = 0;
        for (int i = 1; i < n_plans; i++)
            if (plan_cache_plans[i]->last_used < plan_cache_plans[oldest]->last_used) oldest = i;
        wb__plan *p = plan_cache_plans[oldest];
        plan_cache_plans[oldest] = plan_cache_plans[--n_plans];
        if (--p->uses) continue;
        wb__mutex_unlock(&plan_cache_lock);
        wb__plan_free(p);
        wb__mutex_lock(&plan_cache_lock);
    }
}

static bool add_plan(wb__plan *p)
{
    evict_plans(plan_cache_limit * WB__MAX(wb__ranks_here(), 1) - 1); /* each rank has its own
                                                                       * plans */
    if (!wb__reserve(&plan_cache_plans, &plans_capacity, n_plans + 1, sizeof *plan_cache_plans))
        return false;
    p->uses = 2;                                    /* references of the cache and of the caller */
    p->last_used = ++clock_now;
    plan_cache_plans[n_plans++] = p;
    return true;
}

wb__plan *wb__plan_find(const wb__request *r)
{
    uint64_t hash = 0;
    wb__mutex_lock(&plan_cache_lock);
    wb__plan *p = plan_cache_lookup(r, &hash);
    wb__mutex_unlock(&plan_cache_lock);
    if (p) return p;
    p = wb__plan_make(r, hash); /* two threads may build the same plan; both plans are valid */
    if (!p) return NULL;
    wb__plan_shapes_count(r);
    wb__mutex_lock(&plan_cache_lock);
    plan_cache_stats.plans_built++;
    bool kept = add_plan(p);
    wb__mutex_unlock(&plan_cache_lock);
    if (kept) return p;
    wb__plan_free(p);
    return NULL;
}

void wb__plan_done(wb__plan *p)
{
    wb__mutex_lock(&plan_cache_lock);
    bool last = --p->uses == 0;
    wb__mutex_unlock(&plan_cache_lock);
    if (last) wb__plan_free(p);
}

/* Removes from the cache a plan that cannot run.  The plan is freed when its last user calls
 * wb__plan_done. */
static void remove_plan(wb__plan *p)
{
    wb__mutex_lock(&plan_cache_lock);
    for (int i = 0; i < n_plans; i++) {
        if (plan_cache_plans[i] != p) continue;
        plan_cache_plans[i] = plan_cache_plans[--n_plans];
        p->uses--;
        break;
    }
    wb__mutex_unlock(&plan_cache_lock);
}

/* ---- arenas: memory for intermediates; each run takes one and gives it back ------------------ */

enum { ARENAS = 16 };
static struct { const wb_device *device; void *memory; int64_t bytes; } plan_cache_idle[ARENAS];

/* Frees one idle arena of a device (NULL: of any device).  False: there is none. */
static bool free_idle_arena(const wb_device *d)
{
    wb__mutex_lock(&plan_cache_lock);
    int i = 0;
    while (i < ARENAS && (!plan_cache_idle[i].memory || (d && plan_cache_idle[i].device != d))) i++;
    const wb_device *on = i < ARENAS ? plan_cache_idle[i].device : NULL;
    void *memory = i < ARENAS ? plan_cache_idle[i].memory : NULL;
    int64_t bytes = i < ARENAS ? plan_cache_idle[i].bytes : 0;
    if (memory) plan_cache_idle[i].memory = NULL;
    wb__mutex_unlock(&plan_cache_lock);
    if (!memory) return false;
    on->backend->release(on, memory, (size_t)bytes);
    arena_bytes -= bytes;
    return true;
}

void *wb__device_allocate(const wb_device *d, size_t bytes)
{
    void *memory = d->backend->allocate(d, bytes);
    while (wb__unlikely(!memory) && free_idle_arena(d)) {
        wb_clear_error();
        memory = d->backend->allocate(d, bytes);
    }
    return memory;
}

/* A plan that needs at most LITTLE bytes, such as one that gathers the batches of a loader, takes
 * no larger arena, and leaves the other arenas to a concurrent training step. */
enum { LITTLE = 4096 };

/* Returns an idle arena of at least `bytes` bytes, or a new one; sets *got to its size. */
static void *arena_borrow(const wb_device *d, int64_t bytes, int64_t *got)
{
    void *memory = NULL;
    wb__mutex_lock(&plan_cache_lock);
    int best = -1;
    for (int i = 0; i < ARENAS; i++) {
        if (!plan_cache_idle[i].memory || plan_cache_idle[i].device != d) continue;
        if (bytes <= LITTLE && plan_cache_idle[i].bytes > LITTLE) continue;
        if (best < 0 ||
            (plan_cache_idle[i].bytes >= bytes &&
             (plan_cache_idle[best].bytes < bytes ||
              plan_cache_idle[i].bytes < plan_cache_idle[best].bytes)) ||
            (plan_cache_idle[best].bytes < bytes &&
             plan_cache_idle[i].bytes > plan_cache_idle[best].bytes))
            best = i;
    }
    if (best >= 0) {
        memory = plan_cache_idle[best].memory;
        *got = plan_cache_idle[best].bytes;
        plan_cache_idle[best].memory = NULL;
    }
    wb__mutex_unlock(&plan_cache_lock);
    if (memory && *got >= bytes) return memory;
    if (memory) {                                   /* too small for this plan */
        d->backend->release(d, memory, (size_t)*got);
        arena_bytes -= *got;
    }
    *got = WB__MAX(bytes, 64);
    memory = wb__device_allocate(d, (size_t)*got);
    if (memory) arena_bytes += *got;
    return memory;
}

/* Makes an arena idle, or frees it if ARENAS others are idle. */
static void arena_give_back(const wb_device *d, void *memory, int64_t bytes)
{
    if (!memory) return;
    wb__mutex_lock(&plan_cache_lock);
    for (int i = 0; i < ARENAS && memory; i++) {
        if (plan_cache_idle[i].memory) continue;
        plan_cache_idle[i].device = d;
        plan_cache_idle[i].memory = memory;
        plan_cache_idle[i].bytes = bytes;
        memory = NULL;
    }
    wb__mutex_unlock(&plan_cache_lock);
    if (!memory) return;
    d->backend->release(d, memory, (size_t)bytes);
    arena_bytes -= bytes;
}

/* ---- memory that a plan needs ---------------------------------------------------------------- */

static int64_t idle_arena_bytes(const wb_device *d)
{
    int64_t bytes = 0;
    wb__mutex_lock(&plan_cache_lock);
    for (int i = 0; i < ARENAS; i++)
        if (plan_cache_idle[i].memory && plan_cache_idle[i].device == d)
            bytes += plan_cache_idle[i].bytes;
    wb__mutex_unlock(&plan_cache_lock);
    return bytes;
}

int wb__plan_check_memory(const wb__plan *p)
{
    const wb_device *d = p->device;
    wb_device_memory m;
    if (p->runs || !d->backend->scarce_memory) return 0;
    const int status = d->backend->memory(d, &m);
    if (status || m.free < 0) return status;
    const int64_t have = m.free + WB__MAX(m.cached, 0) + idle_arena_bytes(d);
    if (p->arena_bytes + p->workspace_bytes + p->result_bytes <= have) return 0;
    return wb__fail(WB_ERROR_MEMORY, "%s:%d: out of memory: %.1f MiB to be had, %.1f in use",
                    d->backend->tag, d->ordinal, (double)have / 1048576,
                    (double)(m.used - idle_arena_bytes(d)) / 1048576);
}

void wb__plan_report_memory(const wb__plan *p)
{
    if (!p->device->backend->scarce_memory) return;
    wb__fail(WB_ERROR_MEMORY,
             "%s\nthis evaluation needs %.1f MiB: intermediates %.1f, results %.1f, besides "
             "parameters and inputs of %.1f (wb_estimate_memory returns this before)",
             wb_error(), (double)(p->arena_bytes + p->workspace_bytes + p->result_bytes) / 1048576,
             (double)(p->arena_bytes + p->workspace_bytes) / 1048576,
             (double)p->result_bytes / 1048576, (double)p->input_bytes / 1048576);
}

/* ---- running plans --------------------------------------------------------------------------- */

/* Adds a warning to the error.  The last kernels of a plan write variables in place.  If one of
 * these kernels fails, some variables may already be written, and cancelling the writes does not
 * restore their old values. */
static void report_written(int code)
{
    wb__fail(code, "%s\nthe variables that this evaluation writes may be partly written: restore "
             "them, as from a checkpoint", wb_error());
}

/* Whether a phase of the plan runs as one command (a graph of the device).  It does from the second
 * run on, if the device has graphs, the phase has more than two launches, and the plan has no
 * COLLECTIVE that the host takes part in.  Graphs do not report which kernel failed, so
 * WEBER_DEBUG=sync does not use them. */
static bool pays_as_graph(const wb__plan *p, wb__phase_kind kind)
{
    const int final = p->n_final_launches;
    const int n = kind == WB__PHASE_WHOLE ? p->n_launches
                : kind == WB__PHASE_WRITES ? final : p->n_launches - final;
    return p->device->backend->graph && p->runs > 1 && n > 2 && !p->by_host &&
           !wb__debug("sync") && !wb__profiling;
}

/* Returns the graph of a phase, and builds it when first needed.  NULL: the kernels are launched
 * one by one.  A graph that could not be built is not tried again. */
static wb__graph *plan_cache_graph_of(wb__plan *p, wb__phase_kind kind, int n_numbers)
{
    wb__plan_phase *phase = &p->phase[kind];
    if (!pays_as_graph(p, kind)) return NULL;
    wb__mutex_lock(&p->building);
    if (!phase->tried) {
        const int first = kind == WB__PHASE_WRITES ? p->n_compute : 0;
        const int end = kind == WB__PHASE_COMPUTE ? p->n_compute : p->n_steps;
        phase->tried = true;
        phase->sequence = (wb__sequence){
            .n_kernels = end - first, .kernels = (const wb__kernel *const *)p->kernels + first,
            .n_buffers = p->arena + 1, .buffers = p->buffers,
            .workspace_at = (size_t)p->arena_bytes, .n_numbers = n_numbers,
            .waits = p->waits ? p->waits + first : NULL, .first = first,
            .after = p->after ? p->after + first : NULL, .branch_at = (size_t)p->branch_at,
            .split = kind != WB__PHASE_WHOLE};
        if (p->device->backend->graph(p->device, &phase->sequence, &phase->graph)) {
            phase->graph = NULL;
            if (wb__debug("plan"))
                wb__log(WB_LOG_DEBUG, "plan: no graph of its %d kernels: %s",
                        phase->sequence.n_kernels,
                        wb_error_code() ? wb_error() : "the device cannot");
            wb_clear_error();
        }
    }
    wb__graph *graph = phase->graph;
    wb__mutex_unlock(&p->building);
    return graph;
}

/* Returns the status of a run in which a step failed.  `written`: an earlier step may have written
 * a variable.  `final`: the step itself writes variables.  If a library declined the step before
 * any write, removes the plan from the cache and returns WB__PLAN_AGAIN. */
static int status_of_failed_run(wb__plan *p, int status, bool final, bool written)
{
    if (status == WB_ERROR_UNSUPPORTED && !written) {
        remove_plan(p);
        return WB__PLAN_AGAIN;
    }
    if (status == WB_ERROR_UNSUPPORTED) status = WB_ERROR_DEVICE;
    if (final) report_written(status);
    return status;
}

/* Completes the COLLECTIVEs among the steps *complete to last - 1, and sets *complete to `last`.
 * Returns the error of the first that failed. */
static int complete_collectives(const wb__plan *p, int *complete, int last)
{
    int status = 0;
    for (; *complete < last; ++*complete) {
        if (!p->waits[*complete].begins) continue;
        const int ended = p->device->backend->finish(p->device, p->kernels[*complete]);
        if (!status) status = ended;
    }
    return status;
}

/* Runs a phase, as a graph or kernel by kernel, and completes its COLLECTIVEs.  A graph that fails
 * does not report how many kernels ran, so all variables of its phase may have been written, unless
 * a library declined a step: libraries do none of the last steps, which write variables. */
static int run_phase(wb__plan *p, wb__phase_kind kind, void **buffers, const size_t *offsets,
                     const wb__number *numbers, int n_numbers)
{
    const wb__backend *backend = p->device->backend;
    const int first = kind == WB__PHASE_WRITES ? p->n_compute : 0;
    const int end = kind == WB__PHASE_COMPUTE ? p->n_compute : p->n_steps;
    wb__graph *graph = plan_cache_graph_of(p, kind, n_numbers);
    if (graph) {
        const int status = backend->graph_run(p->device, graph, buffers, offsets, numbers);
        const bool writes = end > p->n_compute;
        const bool early = status == WB_ERROR_UNSUPPORTED && !p->library_writes;
        return status ? status_of_failed_run(p, status, writes, writes && !early) : 0;
    }
    int complete = first, status = 0, i = first;
    while (i < end && !status) {
        if (p->waits) status = complete_collectives(p, &complete, p->waits[i].waits_for + 1);
        if (status) {
            status = status_of_failed_run(p, status, i > p->n_compute, i > p->n_compute);
            break;
        }
        status = wb__unlikely(wb__profiling)
                     ? wb__profile_launch(p, i, buffers, offsets, numbers)
                     : backend->launch(p->device, p->kernels[i], buffers, offsets,
                                       buffers[p->arena], (size_t)p->arena_bytes, numbers);
        if (status) status = status_of_failed_run(p, status, i >= p->n_compute, i > p->n_compute);
        else i++;
    }
    const int last = p->waits ? complete_collectives(p, &complete, i) : 0;
    return status ? status : last;
}

int wb__plan_run(wb__plan *p, void **buffers, const size_t *offsets, const wb__number *numbers,
                 int n_numbers, const wb__guard *guard)
{
    wb__number few[64], *all = few;
    int64_t got = 0, need = p->arena_bytes + p->workspace_bytes;
    int status = 0;
    const int n = n_numbers + p->n_constants;
    if (n > (int)WB__COUNT(few)) {
        all = wb__alloc((size_t)n * sizeof *all);
        if (!all) return WB_ERROR_MEMORY;
    }
    if (n_numbers) memcpy(all, numbers, (size_t)n_numbers * sizeof *all);
    if (p->n_constants) memcpy(all + n_numbers, p->constants, (size_t)p->n_constants * sizeof *all);
    void *arena = arena_borrow(p->device, need, &got);
    if (!arena) status = wb__error_or(WB_ERROR_MEMORY);
    buffers[p->arena] = arena;
    if (p->runs < 2) p->runs++;
    const bool gated = guard && guard->device;
    if (p->waits) wb__collective_report("before a plan");
    const wb__phase_kind first = gated ? WB__PHASE_COMPUTE : WB__PHASE_WHOLE;
    if (!status) status = run_phase(p, first, buffers, offsets, all, n);
    if (!status && gated) status = wb__guard_check(guard);
    if (!status && gated) status = run_phase(p, WB__PHASE_WRITES, buffers, offsets, all, n);
    if (p->waits) wb__collective_report("a plan");
    arena_give_back(p->device, arena, got);
    if (all != few) wb__free(all);
    wb__mutex_lock(&plan_cache_lock);
    plan_cache_stats.steps++;
    wb__mutex_unlock(&plan_cache_lock);
    return status;
}

void wb__cache_clear(void)
{
    wb__mutex_lock(&plan_cache_lock);
    evict_plans(0);
    wb__free(plan_cache_plans);
    plan_cache_plans = NULL;
    plans_capacity = 0;
    wb__mutex_unlock(&plan_cache_lock);
    wb__plan_shapes_clear();
    while (free_idle_arena(NULL)) {}
}
