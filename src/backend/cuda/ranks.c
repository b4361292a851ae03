/* Operations of ranks by NCCL.  A COLLECTIVE of a plan is a command of the device's compute queue.
 * An operation on the host's memory passes through the device's memory.  All commands of NCCL are
 * on one queue, in the order of the calls, which is the same on all ranks.
 *
 * NCCL waits for ever for a rank that has ended.  A thread watches the communicator, and the calls
 * in which the host waits for the device: after an error of the communicator, or if a wait takes
 * longer than the time-out, it ends the process. */
#include "backend/cuda/ranks.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/nccl_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const wb__nccl_functions *nccl;
static ncclComm_t comm;                 /* NULL: the ranks are not connected */
static wb__cu_device *device;
static const wb__communicator *self;
static double timeout;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    _Atomic bool running;
    bool stop;
    int waiting;                        /* threads that wait for the device */
    double since;                       /* when the last of them began or ended to wait */
    const char *what;                   /* the last operation that was begun */
    int64_t bytes;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
           .what = "connecting"};

/* ---- errors ---------------------------------------------------------------------------------- */

static int fail(const char *call, wb__nccl_enum result)
{
    return wb__fail(WB_ERROR_DEVICE, "NCCL: rank %d of %d: nccl%s: %s (%u): %s", self->rank,
                    self->size, call, nccl->GetErrorString(result), result,
                    nccl->GetLastError(NULL));
}

/* Waits until the communicator is ready again after a call with this result. */
static int settle(ncclComm_t c, const char *call, wb__nccl_enum result)
{
    const double until = wb__now() + timeout;
    while (result == ncclInProgress) {
        if (wb__now() > until)
            return wb__fail(WB_ERROR_DEVICE, "NCCL: rank %d of %d has waited %g s for the other"
                            " ranks in nccl%s: a rank has ended, or does not call the same"
                            " functions in the same order", self->rank, self->size, timeout, call);
        nanosleep(&(struct timespec){0, 100000}, NULL);
        const wb__nccl_enum asked = nccl->CommGetAsyncError(c, &result);
        if (asked) result = asked;
    }
    return result ? fail(call, result) : 0;
}

/* ---- the watch ------------------------------------------------------------------------------- */

void wb__cu_wait_begins(void)
{
    if (!watch.running) return;
    pthread_mutex_lock(&watch.lock);
    watch.waiting++;
    watch.since = wb__now();
    pthread_mutex_unlock(&watch.lock);
}

int wb__cu_wait_ends(int code)
{
    if (!watch.running) return code;
    pthread_mutex_lock(&watch.lock);
    if (watch.waiting) watch.waiting--;
    watch.since = wb__now();
    pthread_mutex_unlock(&watch.lock);
    return code;
}

/* CommAbort may wait itself: the signal then ends the process. */
void wb__cu_ranks_abort(void)
{
    alarm(3);
    if (comm) nccl->CommAbort(comm);
    _exit(1);
}

static void end_all(wb__nccl_enum error)
{
    fprintf(stderr, "weber: NCCL: rank %d of %d ", self->rank, self->size);
    if (error)
        fprintf(stderr, "fails in %s of %lld bytes: %s: %s", watch.what, (long long)watch.bytes,
                nccl->GetErrorString(error), nccl->GetLastError(NULL));
    else
        fprintf(stderr, "has waited %g s for its device, and the last operation of the ranks is %s"
                " of %lld bytes: a rank has ended, or does not call the same functions in the same"
                " order", timeout, watch.what, (long long)watch.bytes);
    fprintf(stderr, ". All ranks are ended.\n");
    fflush(stderr);
    wb__cu_ranks_abort();
}

static void *watch_ranks(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&watch.lock);
    while (!watch.stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&watch.changed, &watch.lock, &until);
        if (watch.stop) break;
        wb__nccl_enum error = ncclSuccess;
        if (nccl->CommGetAsyncError(comm, &error)) continue;
        if (error && error != ncclInProgress) end_all(error);
        if (watch.waiting && wb__now() - watch.since > timeout) end_all(ncclSuccess);
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

static void note(const char *what, size_t bytes)
{
    pthread_mutex_lock(&watch.lock);
    watch.what = what;
    watch.bytes = (int64_t)bytes;
    pthread_mutex_unlock(&watch.lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The type of a reduction; -1: NCCL is not used for it. */
static int type_of(wb_dtype t)
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

static wb__nccl_enum op_of(wb__ranks_op op)
{
    return op == WB__RANKS_SUM ? ncclSum : op == WB__RANKS_MIN ? ncclMin : ncclMax;
}

/* Puts an operation with device addresses on a stream.  Copies are copies of bytes. */
static int put(const wb__collective *c, CUstream stream)
{
    const size_t bytes = (size_t)c->n * wb__dtype_size(c->dtype);
    const wb__nccl_enum type = (wb__nccl_enum)type_of(c->dtype), op = op_of(c->op);
    const size_t n = (size_t)c->n;
    switch (c->kind) {
    case WB__COLLECT_ALLREDUCE:
        note("an allreduce", bytes);
        return settle(comm, "AllReduce",
                      nccl->AllReduce(c->from, c->to, n, type, op, comm, stream));
    case WB__COLLECT_REDUCE:
        note("a reduction", bytes);
        return settle(comm, "Reduce",
                      nccl->Reduce(c->from, c->to, n, type, op, c->root, comm, stream));
    case WB__COLLECT_REDUCE_SCATTER:
        note("a reduction to all", bytes);
        return settle(comm, "ReduceScatter",
                      nccl->ReduceScatter(c->from, c->to, n, type, op, comm, stream));
    case WB__COLLECT_ALLGATHER:
        note("an allgather", bytes);
        return settle(comm, "AllGather",
                      nccl->AllGather(c->from, c->to, bytes, ncclUint8, comm, stream));
    case WB__COLLECT_BARRIER:
        note("a barrier", 1);
        return settle(comm, "AllReduce",
                      nccl->AllReduce(c->to, c->to, 1, ncclUint8, ncclSum, comm, stream));
    case WB__COLLECT_BROADCAST: break;
    }
    note("a broadcast", bytes);
    return settle(comm, "Broadcast",
                  nccl->Broadcast(c->to, c->to, bytes, ncclUint8, c->root, comm, stream));
}

/* With the device entered: puts the operation on the compute queue. */
static int enqueue(const wb__collective *c, wb__gpu_memory *from, wb__gpu_memory *to)
{
    wb__gpu_device *d = &device->gpu;
    wb__collective on_device = *c;
    on_device.from = (const void *)(uintptr_t)from->at;
    on_device.to = (void *)(uintptr_t)to->at;
    pthread_mutex_lock(&d->lock);
    int status = wb__gpu_uses(d, from);
    if (!status) status = wb__gpu_uses(d, to);
    if (!status) status = put(&on_device, device->stream[WB__GPU_COMPUTE]);
    if (!status) wb__gpu_issued(d, NULL);
    from->used = to->used = d->issued;
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* An operation on the host's memory. */
static int perform(const wb__collective *c)
{
    const wb_device *base = &device->gpu.base;
    const size_t each = (size_t)c->n * wb__dtype_size(c->dtype), all = each * (size_t)self->size;
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
    if (!status && !(status = wb__gpu_enter(&device->gpu))) {
        status = enqueue(c, from, to);
        wb__gpu_leave(&device->gpu);
    }
    const bool gets = c->kind != WB__COLLECT_REDUCE || c->root == self->rank;
    if (!status && barrier) status = wb__gpu_wait(base);
    else if (!status && gets) status = wb__gpu_download(base, c->to, to, 0, out);
    if (from) wb__gpu_release(base, from, in + 1);
    if (to) wb__gpu_release(base, to, out + 1);
    return status;
}

/* ---- connecting ------------------------------------------------------------------------------ */

const char *wb__cu_ranks_library(void)
{
    static char text[40];
    int version = 0;
    if (!(nccl = wb__nccl())) return NULL;
    nccl->GetVersion(&version);
    snprintf(text, sizeof text, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return text;
}

int wb__cu_ranks_id(char id[WB__CU_RANKS_ID])
{
    _Static_assert(sizeof(ncclUniqueId) == WB__CU_RANKS_ID, "an id has so many bytes");
    const wb__communicator alone = {.size = 1};
    if (!(nccl = wb__nccl())) return wb_error_code();
    if (!self) self = &alone;
    const wb__nccl_enum result = nccl->GetUniqueId((ncclUniqueId *)(void *)id);
    const int status = result ? fail("GetUniqueId", result) : 0;
    if (self == &alone) self = NULL;
    return status;
}

/* The device of the rank.  If CUDA_VISIBLE_DEVICES is set, each rank may see another device as its
 * first. */
static int choose_device(const wb__communicator *c)
{
    char reason[400] = "";
    const int status = wb__cu_backend.start();
    if (status) snprintf(reason, sizeof reason, ": %s", wb_error());
    const int n = status ? 0 : wb__cu_backend.count();
    if (!n)
        return wb__fail(WB_ERROR_DEVICE, "NCCL: rank %d of %d has no CUDA device%s; use WB_MPI,"
                        " which needs none", c->rank, c->size, reason);
    if (c->local_size > n && !getenv("CUDA_VISIBLE_DEVICES"))
        return wb__fail(WB_ERROR_DEVICE, "NCCL: this machine has %d CUDA device%s for %d ranks, and"
                        " each rank needs one: start %d, or use WB_MPI", n, n > 1 ? "s" : "",
                        c->local_size, n);
    device = (wb__cu_device *)wb__cu_backend.device(c->local_rank % n)->state;
    return 0;
}

static int connect_ranks(const char *id, const wb__communicator *c)
{
    wb__nccl_config config = {.size = sizeof config, .magic = WB__NCCL_MAGIC,
                              .version = WB__NCCL_OLDEST, .blocking = 0,
                              .cgaClusterSize = WB__NCCL_UNDEFINED, .minCTAs = WB__NCCL_UNDEFINED,
                              .maxCTAs = WB__NCCL_UNDEFINED};
    ncclUniqueId unique;
    ncclComm_t made = NULL;
    memcpy(&unique, id, sizeof unique);
    int status = wb__gpu_enter(&device->gpu);
    if (status) return status;
    const wb__nccl_enum begun = nccl->CommInitRankConfig(&made, c->size, unique, c->rank, &config);
    status = settle(made, "CommInitRankConfig", begun);
    if (status && made) nccl->CommAbort(made);
    else comm = made;
    wb__gpu_leave(&device->gpu);
    return status;
}

int wb__cu_ranks_start(const char id[WB__CU_RANKS_ID], double seconds, wb__communicator *c)
{
    timeout = seconds;
    self = c;
    int status = choose_device(c);
    if (!status) status = connect_ranks(id, c);
    if (status) return status;
    device->gpu.holders++;
    c->device = &device->gpu.base;
    c->perform = perform;
    watch.stop = false;
    watch.waiting = 0;
    if (pthread_create(&watch.thread, NULL, watch_ranks, NULL)) {
        wb__cu_ranks_stop();
        return wb__fail(WB_ERROR_MEMORY, "NCCL: a thread cannot be created");
    }
    watch.running = true;
    return 0;
}

int wb__cu_ranks_stop(void)
{
    int status = watch.running ? perform(&(wb__collective){.kind = WB__COLLECT_BARRIER}) : 0;
    pthread_mutex_lock(&watch.lock);
    watch.stop = true;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.lock);
    if (watch.running) pthread_join(watch.thread, NULL);
    watch.running = false;
    ncclComm_t c = comm;
    comm = NULL;
    if (!wb__gpu_enter(&device->gpu)) {
        if (!status) status = settle(c, "CommFinalize", nccl->CommFinalize(c));
        if (status) nccl->CommAbort(c);
        else if (nccl->CommDestroy(c)) status = fail("CommDestroy", ncclSystemError);
        wb__gpu_leave(&device->gpu);
    }
    device->gpu.holders--;
    return status;
}

/* ---- the COLLECTIVE of a plan ---------------------------------------------------------------- */

typedef struct {
    wb__gpu_routine base;
    wb__collective operation;
    int from, to;                       /* buffers */
    size_t from_at, to_at;              /* bytes */
} routine;

static int prepare(wb__gpu_device *d, const wb__step *s, wb__gpu_routine **r, const char **reason)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    (void)reason;
    const bool copies = s->collective == WB__COLLECT_ALLGATHER;
    if (s->communicator->device != &d->base || (type_of(x->dtype) < 0 && !copies))
        return WB_ERROR_UNSUPPORTED;
    routine *made = wb__alloc_zero(1, sizeof *made);
    if (!made) return WB_ERROR_MEMORY;
    const size_t bytes = wb__dtype_size(x->dtype);
    size_t from, to;
    *made = (routine){.base = {.library = &wb__cu_ranks, .impl = "NCCL"},
                      .operation = wb__collective_of(s, &from, &to),
                      .from = x->buffer, .to = y->buffer,
                      .from_at = (size_t)x->offset * bytes, .to_at = (size_t)y->offset * bytes};
    *r = &made->base;
    return 0;
}

static int launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                  const wb__gpu_addresses *at)
{
    const routine *r = (const routine *)base;
    wb__collective c = r->operation;
    if (!comm)
        return wb__fail(WB_ERROR_ARGUMENT, "a plan: the ranks are not connected any more");
    c.from = (const void *)(uintptr_t)(at->address[r->from] + r->from_at);
    c.to = (void *)(uintptr_t)(at->address[r->to] + r->to_at);
    const int status = c.n ? put(&c, wb__cu_of(d)->stream[q]) : 0;
    if (!status && c.n && q == WB__GPU_COMPUTE) wb__gpu_issued(d, NULL);
    return status;
}

static void destroy(wb__gpu_device *d, wb__gpu_routine *r)
{
    (void)d;
    wb__free(r);
}

const wb__gpu_hook wb__cu_ranks = {
    .kinds = 1u << WB__STEP_COLLECTIVE, .prepare = prepare, .launch = launch, .destroy = destroy,
};
