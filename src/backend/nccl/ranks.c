/* Operations of ranks by NCCL, or by RCCL, which has its interface.  A COLLECTIVE of a plan is a
 * command of a queue beside the compute queue.  An operation on the host's memory passes through
 * the device's memory, on the compute queue, which has waited for all COLLECTIVEs of earlier plans:
 * so the commands of NCCL of a rank run in the order of the calls, which is the same on all ranks.
 *
 * NCCL waits for ever for a rank that has ended.  A thread watches the communicator of each rank,
 * and the calls in which the host waits for its device: after an error of the communicator, or if a
 * wait takes longer than the time-out, it ends the process.  If a rank of this process, which is a
 * thread, has failed, it ends the operations of the other ranks instead. */
#include "backend/nccl/ranks.h"

#include "base/mutex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank of this process. */
typedef struct {
    wb__communicator *self;         /* its `context` is this struct while the rank is connected */
    wb__gpu_device *device;
    ncclComm_t comm;                    /* NULL: not connected */
    wb__mutex calling;                  /* held by calls of NCCL that begin an operation */
    _Atomic bool aborted;               /* `comm` is not used any more; set with `calling` held */
    wb__mutex lock;                     /* guards the fields below */
    wb__os_cond changed;
    wb__os_thread thread;               /* thread that watches the communicator */
    _Atomic bool running;
    bool stop;
    int waiting;                        /* threads that wait for the device */
    double since;       /* when the last of them began or ended its wait, in seconds of wb__now */
    const char *what;                   /* the last operation that was begun */
    int64_t bytes;                      /* its bytes */
    int status;                 /* status of starting or stopping the rank in a thread of its own */
    char message[1024];
} rank;

static const wb__nccl_library *nccl_used; /* connects the ranks */
static const wb__nccl_functions *nccl_functions; /* functions of nccl_used */
static rank nccl_ranks[WB__GPU_MAX_DEVICES];
static int nccl_n_ranks;                /* 0: the ranks are not connected */
static ncclUniqueId nccl_unique;
static double nccl_timeout;

enum { NCCL_GRACE = 1 };                /* seconds from a rank's failure to the others' end */
static struct {
    wb__mutex lock;
    _Atomic bool set;               /* a rank has failed; the other fields then stay as they are */
    double since;
    char why[1024];
} given_up = {.lock = WB__MUTEX_INIT};

/* The rank for which this thread performs an operation; NULL: the rank of wb__world. */
static _Thread_local rank *nccl_performing;

static rank *rank_of_thread(void)
{
    const wb__communicator *c = wb__world();
    return nccl_performing ? nccl_performing : c && c->device ? c->context : NULL;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int nccl_fail(const rank *r, const char *call, wb__nccl_enum result)
{
    return wb__fail(WB_ERROR_DEVICE, "%s: rank %d of %d: nccl%s: %s (%u): %s", nccl_used->name,
                    r->self->rank, r->self->size, call, nccl_functions->GetErrorString(result),
                    result, nccl_functions->GetLastError(NULL));
}

/* Whether an operation that waits since this time must end, since a rank has failed before it. */
static bool nccl_is_over(double waits_since)
{
    if (!given_up.set) return false;
    wb__mutex_lock(&given_up.lock);
    const bool over = given_up.set && wb__now() - WB__MAX(given_up.since, waits_since) > NCCL_GRACE;
    wb__mutex_unlock(&given_up.lock);
    return over;
}

/* Sets the error of the rank that has failed. */
static int fail_as_failed_rank(void)
{
    wb__mutex_lock(&given_up.lock);
    const int status = wb__fail(WB_ERROR_DEVICE, "%s: %s", nccl_used->name, given_up.why);
    wb__mutex_unlock(&given_up.lock);
    return status;
}

/* Waits until the communicator is ready again after a call with this result. */
static int nccl_wait_until_ready(const rank *r, ncclComm_t c, const char *call,
                                 wb__nccl_enum result)
{
    const double until = wb__now() + nccl_timeout;
    while (result == ncclInProgress) {
        if (r->aborted || nccl_is_over(0)) return fail_as_failed_rank();
        if (wb__now() > until)
            return wb__fail(WB_ERROR_DEVICE, "%s: rank %d of %d has waited %g s for the other"
                            " ranks in nccl%s: a rank has ended, or does not call the same"
                            " functions in the same order", nccl_used->name, r->self->rank,
                            r->self->size, nccl_timeout, call);
        wb__os_sleep(100000);
        const wb__nccl_enum asked = nccl_functions->CommGetAsyncError(c, &result);
        if (asked) result = asked;
    }
    return result ? nccl_fail(r, call, result) : 0;
}

/* ---- the watch ------------------------------------------------------------------------------- */

void wb__nccl_wait_begins(void)
{
    rank *r = rank_of_thread();
    if (!r || !r->running) return;
    wb__mutex_lock(&r->lock);
    r->waiting++;
    r->since = wb__now();
    wb__mutex_unlock(&r->lock);
}

int wb__nccl_wait_ends(int code, int lost)
{
    rank *r = rank_of_thread();
    if (!r || !r->running) return code;
    wb__mutex_lock(&r->lock);
    if (r->waiting) r->waiting--;
    r->since = wb__now();
    wb__mutex_unlock(&r->lock);
    return r->aborted ? lost : code;
}

/* Ends the process.  CommAbort may wait itself: then a signal ends the process. */
void wb__nccl_ranks_abort(void)
{
    wb__os_end_after(3);
    for (int i = 0; i < nccl_n_ranks; i++)
        if (nccl_ranks[i].comm && !nccl_ranks[i].aborted)
            nccl_functions->CommAbort(nccl_ranks[i].comm);
    _Exit(1);
}

/* Ends the process, after a message that names the operation and why it fails. */
static void nccl_end_all(const rank *r, wb__nccl_enum error)
{
    fprintf(stderr, "weber: %s: rank %d of %d ", nccl_used->name, r->self->rank, r->self->size);
    if (error)
        fprintf(stderr, "fails in %s of %lld bytes: %s: %s", r->what, (long long)r->bytes,
                nccl_functions->GetErrorString(error), nccl_functions->GetLastError(NULL));
    else {
        char seconds[32];
        wb__plain(seconds, sizeof seconds, "%g", nccl_timeout);
        fprintf(stderr, "has waited %s s for its device, and the last operation of the ranks is %s"
                " of %lld bytes: a rank has ended, or does not call the same functions in the same"
                " order", seconds, r->what, (long long)r->bytes);
    }
    fprintf(stderr, ". All ranks are ended.\n");
    fflush(stderr);
    wb__nccl_ranks_abort();
}

/* With r->lock held, which is given up meanwhile: aborts the communicator.  CommAbort may wait for
 * graphs of the driver which contain operations, and end when the plans are dropped.  Threads that
 * wait for the device go on then, with undefined values, so the device is lost first. */
static void abort_rank(rank *r)
{
    if (r->aborted) return;
    wb__mutex_lock(&given_up.lock);
    wb__gpu_mark_lost_because(r->device, given_up.why);
    wb__mutex_unlock(&given_up.lock);
    wb__mutex_unlock(&r->lock);
    wb__mutex_lock(&r->calling);    /* acquired before r->lock */
    r->aborted = true;
    wb__mutex_unlock(&r->calling);
    nccl_functions->CommAbort(r->comm);
    wb__mutex_lock(&r->lock);
}

/* A rank's thread: watches its communicator and its waits until the rank stops. */
static void *nccl_watch_rank(void *given)
{
    rank *r = given;
    wb__mutex_lock(&r->lock);
    while (!r->stop) {
        wb__mutex_wait_for(&r->changed, &r->lock, 0.05);
        if (r->stop) break;
        wb__nccl_enum error = ncclSuccess;
        if (given_up.set) {
            if (r->waiting && nccl_is_over(r->since)) abort_rank(r);
            continue;
        }
        if (nccl_functions->CommGetAsyncError(r->comm, &error)) continue;
        if (error && error != ncclInProgress) nccl_end_all(r, error);
        if (r->waiting && wb__now() - r->since > nccl_timeout) nccl_end_all(r, ncclSuccess);
    }
    wb__mutex_unlock(&r->lock);
    return NULL;
}

/* Records the operation that a rank begins, for messages. */
static void nccl_set_operation(rank *r, const char *what, size_t bytes)
{
    wb__mutex_lock(&r->lock);
    r->what = what;
    r->bytes = (int64_t)bytes;
    wb__mutex_unlock(&r->lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Returns the type of a reduction; -1: NCCL does not perform it. */
static int nccl_type_of(wb_dtype t)
{
    switch (t) {
    case WB_F32: return ncclFloat32;
    case WB_F64: return ncclFloat64;
    case WB_I8: return ncclInt8;
    case WB_U8: return ncclUint8;
    case WB_I32: return ncclInt32;
    case WB_I64: return ncclInt64;
    default: return -1;
    }
}

static wb__nccl_enum nccl_op_of(wb__ranks_op op)
{
    return op == WB__RANKS_SUM ? ncclSum : op == WB__RANKS_MIN ? ncclMin : ncclMax;
}

/* Calls NCCL for an operation with device addresses.  Operations that only copy are performed on
 * bytes.  *call becomes the name of the function. */
static wb__nccl_enum nccl_call_operation(rank *r, const wb__collective *c, void *stream,
                                         const char **call)
{
    const size_t bytes = (size_t)c->n * wb__dtype_size(c->dtype), n = (size_t)c->n;
    const wb__nccl_enum type = (wb__nccl_enum)nccl_type_of(c->dtype), op = nccl_op_of(c->op);
    switch (c->kind) {
    case WB__COLLECT_ALLREDUCE:
        nccl_set_operation(r, "an allreduce", bytes);
        *call = "AllReduce";
        return nccl_functions->AllReduce(c->from, c->to, n, type, op, r->comm, stream);
    case WB__COLLECT_REDUCE:
        nccl_set_operation(r, "a reduction", bytes);
        *call = "Reduce";
        return nccl_functions->Reduce(c->from, c->to, n, type, op, c->root, r->comm, stream);
    case WB__COLLECT_REDUCE_SCATTER:
        nccl_set_operation(r, "a reduce_scatter", bytes);
        *call = "ReduceScatter";
        return nccl_functions->ReduceScatter(c->from, c->to, n, type, op, r->comm, stream);
    case WB__COLLECT_ALLGATHER:
        nccl_set_operation(r, "an allgather", bytes);
        *call = "AllGather";
        return nccl_functions->AllGather(c->from, c->to, bytes, ncclUint8, r->comm, stream);
    case WB__COLLECT_BARRIER:
        nccl_set_operation(r, "a barrier", 1);
        *call = "AllReduce";
        return nccl_functions->AllReduce(c->to, c->to, 1, ncclUint8, ncclSum, r->comm, stream);
    case WB__COLLECT_BROADCAST: break;
    }
    nccl_set_operation(r, "a broadcast", bytes);
    *call = "Broadcast";
    return nccl_functions->Broadcast(c->to, c->to, bytes, ncclUint8, c->root, r->comm, stream);
}

/* Puts an operation on a stream. */
static int nccl_put_on_stream(rank *r, const wb__collective *c, void *stream)
{
    const char *call = "";
    wb__nccl_enum result = ncclSuccess;
    wb__mutex_lock(&r->calling);
    const bool aborted = r->aborted;
    if (!aborted) result = nccl_call_operation(r, c, stream, &call);
    wb__mutex_unlock(&r->calling);
    return aborted ? fail_as_failed_rank() : nccl_wait_until_ready(r, r->comm, call, result);
}

/* With the device entered: puts the operation on the compute queue. */
static int nccl_enqueue(rank *r, const wb__collective *c, wb__gpu_memory *from, wb__gpu_memory *to)
{
    wb__gpu_device *d = r->device;
    wb__collective on_device = *c;
    on_device.from = (const void *)(uintptr_t)from->at;
    on_device.to = (void *)(uintptr_t)to->at;
    wb__mutex_lock(&d->lock);
    int status = wb__gpu_command_uses(d, from);
    if (!status) status = wb__gpu_command_uses(d, to);
    if (!status) status = nccl_put_on_stream(r, &on_device, nccl_used->stream(d, WB__GPU_COMPUTE));
    if (!status) wb__gpu_count_command(d, NULL);
    from->used = to->used = d->issued;
    wb__mutex_unlock(&d->lock);
    return status;
}

/* Performs an operation on the host's memory. */
static int nccl_perform(rank *r, const wb__collective *c)
{
    const wb_device *base = &r->device->base;
    const size_t each = (size_t)c->n * wb__dtype_size(c->dtype);
    const size_t all = each * (size_t)r->self->size;
    const bool barrier = c->kind == WB__COLLECT_BARRIER;
    const bool copies = c->kind == WB__COLLECT_BROADCAST;
    const size_t in = barrier ? 0 : c->kind == WB__COLLECT_REDUCE_SCATTER ? all : each;
    const size_t out = barrier ? 0 : c->kind == WB__COLLECT_ALLGATHER ? all : each;
    if (!each && !barrier) return 0;
    wb__gpu_memory *from = wb__gpu_allocate(base, in + 1), *to = wb__gpu_allocate(base, out + 1);
    int status = from && to ? 0 : wb__error_or(WB_ERROR_MEMORY);
    if (!status && in && !copies) status = wb__gpu_upload(base, from, 0, c->from, in);
    if (!status && (copies || barrier))
        status = wb__gpu_upload(base, to, 0, barrier ? "" : c->to, barrier ? 1 : out);
    if (!status && !(status = wb__gpu_enter(r->device))) {
        status = nccl_enqueue(r, c, from, to);
        wb__gpu_leave(r->device);
    }
    const bool gets = c->kind != WB__COLLECT_REDUCE || c->root == r->self->rank;
    if (!status && barrier) status = wb__gpu_wait(base);
    else if (!status && gets) status = wb__gpu_download(base, c->to, to, 0, out);
    if (from) wb__gpu_release(base, from, in + 1);
    if (to) wb__gpu_release(base, to, out + 1);
    return status;
}

int wb__nccl_ranks_perform(const wb__collective *c)
{
    rank *const outer = nccl_performing;
    nccl_performing = c->communicator->context;
    const int status = nccl_perform(nccl_performing, c);
    nccl_performing = outer;
    return status;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int connect_rank(rank *r)
{
    wb__nccl_config config = {.size = sizeof config, .magic = WB__NCCL_MAGIC,
                              .version = WB__NCCL_OLDEST, .blocking = 0,
                              .cgaClusterSize = WB__NCCL_UNDEFINED, .minCTAs = WB__NCCL_UNDEFINED,
                              .maxCTAs = WB__NCCL_UNDEFINED};
    ncclComm_t made = NULL;
    int status = wb__gpu_enter(r->device);
    if (status) return status;
    const wb__nccl_enum begun = nccl_functions->CommInitRankConfig(
        &made, r->self->size, nccl_unique, r->self->rank, &config);
    status = nccl_wait_until_ready(r, made, "CommInitRankConfig", begun);
    if (status && made) nccl_functions->CommAbort(made);
    else r->comm = made;
    wb__gpu_leave(r->device);
    return status;
}

/* Ends the communicator of a rank. */
static int disconnect_rank(rank *r, int status)
{
    if (r->aborted) return status;
    if (wb__gpu_enter_to_release(r->device)) {
        if (!status && !given_up.set)
            status = nccl_wait_until_ready(r, r->comm, "CommFinalize",
                                           nccl_functions->CommFinalize(r->comm));
        const wb__nccl_enum result = status || given_up.set ? nccl_functions->CommAbort(r->comm)
                                                            : nccl_functions->CommDestroy(r->comm);
        if (!status && result) status = nccl_fail(r, "CommDestroy", result);
        wb__gpu_leave(r->device);
    }
    return status;
}

static int stop_rank(rank *r)
{
    int status = 0;
    if (r->running && !given_up.set)
        status = wb__nccl_ranks_perform(&(wb__collective){.communicator = r->self,
                                                          .kind = WB__COLLECT_BARRIER});
    wb__mutex_lock(&r->lock);
    r->stop = true;
    wb__os_cond_wake_one(&r->changed);
    wb__mutex_unlock(&r->lock);
    if (r->running) wb__os_thread_join(r->thread);
    r->running = false;
    status = disconnect_rank(r, status);
    r->comm = NULL;
    r->device->holders--;
    wb__os_cond_destroy(&r->changed);
    wb__mutex_destroy(&r->lock);
    wb__mutex_destroy(&r->calling);
    return status;
}

static int nccl_start_rank(rank *r)
{
    int status = wb__nccl_ranks_device(nccl_used, r->self, &r->self->device);
    if (status) return status;
    r->device = r->self->device->state;
    status = connect_rank(r);
    if (status) return status;
    r->device->holders++;
    r->self->perform = wb__nccl_ranks_perform;
    wb__mutex_init(&r->calling);
    wb__mutex_init(&r->lock);
    wb__os_cond_init(&r->changed);
    r->running = wb__os_thread_start(&r->thread, nccl_watch_rank, r, false);
    if (r->running) return 0;
    stop_rank(r);
    return wb__fail(WB_ERROR_MEMORY, "%s: a thread cannot be created", nccl_used->name);
}

/* ---- all ranks of the process ---------------------------------------------------------------- */

void wb__nccl_ranks_give_up(const char *why)
{
    wb__mutex_lock(&given_up.lock);
    if (!given_up.set) snprintf(given_up.why, sizeof given_up.why, "%s", why);
    if (!given_up.set) given_up.since = wb__now();
    given_up.set = true;
    wb__mutex_unlock(&given_up.lock);
}

typedef int rank_function(rank *r);
typedef struct { rank_function *f; rank *rank; wb__os_thread thread; } nccl_call;

static void *call_rank(void *given)
{
    const nccl_call *c = given;
    rank *r = c->rank;
    r->status = c->f(r);
    snprintf(r->message, sizeof r->message, "%s", r->status ? wb_error() : "");
    return NULL;
}

/* Calls f for each rank, in a thread of its own, since each call waits for the other ranks.
 * Returns 0, or the status of the first rank that failed, with its error set. */
static int each_rank(rank_function *f)
{
    nccl_call all[WB__RANKS_HERE];
    int begun = 0, status = 0;
    if (nccl_n_ranks == 1) return nccl_ranks->status = f(nccl_ranks);
    for (; begun < nccl_n_ranks; begun++) {
        all[begun] = (nccl_call){.f = f, .rank = &nccl_ranks[begun]};
        nccl_ranks[begun].status = WB_ERROR_MEMORY;
        if (!wb__os_thread_start(&all[begun].thread, call_rank, &all[begun], false)) break;
    }
    if (begun < nccl_n_ranks) {
        status = wb__fail(WB_ERROR_MEMORY, "%s: a thread cannot be created", nccl_used->name);
        wb__nccl_ranks_give_up(wb_error());
    }
    for (int i = 0; i < begun; i++) wb__os_thread_join(all[i].thread);
    for (int i = 0; i < begun && !status; i++)
        if ((status = nccl_ranks[i].status)) wb__fail(status, "%s", nccl_ranks[i].message);
    return status;
}

/* Starts a rank.  If it cannot be connected, the other ranks do not wait for it. */
static int start_or_give_up(rank *r)
{
    const int status = nccl_start_rank(r);
    if (status && nccl_n_ranks > 1) wb__nccl_ranks_give_up(wb_error());
    return status;
}

/* Stops a rank, unless its start failed. */
static int stop_started(rank *r) { return r->running ? stop_rank(r) : 0; }

int wb__nccl_ranks_start(const wb__nccl_library *library, const char id[WB__NCCL_RANKS_ID],
                         double seconds, int n, wb__communicator *c)
{
    nccl_used = library;
    nccl_functions = wb__nccl_open(library);
    if (!nccl_functions) return wb_error_code();
    nccl_timeout = seconds;
    nccl_n_ranks = n;
    given_up.set = false;
    memcpy(&nccl_unique, id, sizeof nccl_unique);
    for (int i = 0; i < n; i++) {
        nccl_ranks[i] = (rank){.self = &c[i], .what = "connecting"};
        c[i].context = &nccl_ranks[i];
    }
    const int status = each_rank(start_or_give_up);
    if (!status) return 0;
    wb__error_kept kept;
    wb__error_keep(&kept);
    each_rank(stop_started);
    wb__error_restore(&kept);
    nccl_n_ranks = 0;
    given_up.set = false;
    return status;
}

int wb__nccl_ranks_here(void) { return nccl_n_ranks; }

int wb__nccl_ranks_stop(void)
{
    const int status = each_rank(stop_rank);
    nccl_n_ranks = 0;
    given_up.set = false;
    return status;
}

/* ---- the COLLECTIVE of a plan ---------------------------------------------------------------- */

typedef struct {
    wb__gpu_routine base;
    wb__collective operation;
    int from, to;                       /* indices of the plan's buffers */
    size_t from_at, to_at;              /* byte offsets in these buffers */
} nccl_routine;

static int nccl_prepare(wb__gpu_device *d, const wb__step *s, wb__gpu_routine **r,
                        const char **reason)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    (void)reason;
    const bool copies = s->collective == WB__COLLECT_ALLGATHER;
    if (s->communicator->device != &d->base || (nccl_type_of(x->dtype) < 0 && !copies))
        return WB_ERROR_UNSUPPORTED;
    nccl_routine *made = wb__alloc_zero(1, sizeof *made);
    if (!made) return WB_ERROR_MEMORY;
    const size_t bytes = wb__dtype_size(x->dtype);
    size_t from, to;
    *made = (nccl_routine){.base = {.library = &wb__nccl_ranks, .impl = nccl_used->name},
                           .operation = wb__collective_of(s, &from, &to),
                           .from = x->buffer, .to = y->buffer,
                           .from_at = (size_t)x->offset * bytes,
                           .to_at = (size_t)y->offset * bytes};
    *r = &made->base;
    return 0;
}

static int nccl_launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                       const wb__gpu_addresses *at)
{
    const nccl_routine *r = (const nccl_routine *)base;
    wb__collective c = r->operation;
    rank *own = c.communicator->context;
    if (!own || !own->comm)
        return wb__fail(WB_ERROR_ARGUMENT, "a plan: the ranks are not connected any more");
    c.from = (const void *)(uintptr_t)(at->address[r->from] + r->from_at);
    c.to = (void *)(uintptr_t)(at->address[r->to] + r->to_at);
    return c.n ? nccl_put_on_stream(own, &c, nccl_used->stream(d, q)) : 0;
}

const wb__gpu_hook wb__nccl_ranks = {
    .kinds = 1u << WB__STEP_COLLECTIVE, .aside = true,
    .prepare = nccl_prepare, .launch = nccl_launch,
};
