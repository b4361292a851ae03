/* A double of NCCL 2.27 for ranks that are processes or threads of this machine.  See vgpu.h.  With
 * VGPU_ROCM it is one of RCCL.  Its rules are those of NCCL's user guide, which comments call the
 * guide, and of NCCL's init.cc, enqueue.cc and argcheck.cc.
 *
 * The ranks share a file in /dev/shm, whose name is in the unique id.  Each rank has a slot in it:
 * the description of its operation, and a part of its values.  An operation is a command of its
 * stream: each rank writes a part of its values, waits for the others, reads the parts of all in
 * the order of the ranks, and waits again, until all parts are done.  While it waits, commands of
 * other streams run.  The file is removed when all ranks have opened it.
 *
 * A rank locks its byte of the file, so that the others notice its end.  The real library then
 * reports an error of the communicator, and the operation does not end until CommAbort, and its
 * result is undefined; so does this one, whose result is then NaN.
 *
 *   VGPU_NCCL_FAIL=NAME:n   the n-th call of ncclNAME returns ncclSystemError; CommDestroy:
 *                           ncclInternalError;
 *                           Running: the n-th operation never ends, and the communicator fails */
#include "nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x6e63636c };

/* Communicators that were destroyed are kept, so that their use is recognised. */
static struct ncclComm *_Atomic destroyed;

static _Thread_local char last_error[300];
static _Thread_local int groups;

#define NCCL(type, name, parameters) \
    VGPU_API type nccl##name parameters; \
    VGPU_API type nccl##name parameters

static wb__nccl_enum refuse(wb__nccl_enum result, const char *name, const char *why)
{
    snprintf(last_error, sizeof last_error, "nccl%s: %s", name, why);
    vgpu_wrong("nccl%s: %s", name, why);
    return result;
}

bool vgpu_nccl_injected(const char *name)
{
    static _Atomic int64_t calls;
    const char *given = vgpu_env("VGPU_NCCL_FAIL", ""), *colon = strchr(given, ':');
    if (!colon || strlen(name) != (size_t)(colon - given) ||
        strncmp(given, name, strlen(name)) || ++calls != atoll(colon + 1))
        return false;
    snprintf(last_error, sizeof last_error, "VGPU_NCCL_FAIL=%s", given);
    return true;
}

static void nap(void) { nanosleep(&(struct timespec){0, 100000}, NULL); }

/* The context of the current device.  HIP's double makes it current when HIP is used. */
static bool find_context(CUcontext *context)
{
#ifdef VGPU_ROCM
    extern int hipMemGetInfo(size_t *left, size_t *total);
    size_t left, total;
    if (hipMemGetInfo(&left, &total)) return false;
#endif
    return !cuCtxGetCurrent(context) && *context;
}

static bool is_comm(const struct ncclComm *c) { return c && c->magic == MAGIC; }

NCCL(wb__nccl_enum, GetVersion, (int *version))
{
    if (!version) return ncclInvalidArgument;
    *version = 22703;
    return ncclSuccess;
}

NCCL(const char *, GetErrorString, (wb__nccl_enum result))
{
    static const char *const texts[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage", "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return result < 8 ? texts[result] : "unknown result code";
}

NCCL(const char *, GetLastError, (ncclComm_t comm))
{
    (void)comm;
    return last_error;
}

NCCL(wb__nccl_enum, GetUniqueId, (ncclUniqueId *id))
{
    static _Atomic int n;
    if (!id) return refuse(ncclInvalidArgument, "GetUniqueId", "NULL");
    if (vgpu_nccl_injected("GetUniqueId")) return ncclSystemError;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/dev/shm/vgpu-nccl-%d-%d-%ld", (int)getpid(), n++,
             now.tv_nsec);
    return ncclSuccess;
}

/* ---- communicators --------------------------------------------------------------------------- */

/* The number of the device, without CUDA_VISIBLE_DEVICES, which renumbers them. */
static int number_of(int device)
{
    const char *list = vgpu_env("CUDA_VISIBLE_DEVICES", NULL);
    if (!list) return device;
    for (; device && strchr(list, ','); device--) list = strchr(list, ',') + 1;
    return atoi(list);
}

/* The locks are of the open file, not of the process. */
static struct flock lock_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

bool vgpu_nccl_has_ended(const struct ncclComm *c, int rank)
{
    struct flock lock = lock_of(rank);
    return rank != c->rank && !fcntl(c->file, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* Ends a progress, unless an operation has failed meanwhile. */
static void become(struct ncclComm *c, wb__nccl_enum state)
{
    unsigned expected = ncclInProgress;
    atomic_compare_exchange_strong(&c->state, &expected, state);
}

/* Connects the ranks if all have come; checks that they fit together. */
static void connect_all(struct ncclComm *c)
{
    int come = 0;
    wb__nccl_enum state = ncclSuccess;
    for (int r = 0; r < c->size; r++) come += c->slots[r].joined;
    if (come < c->size) return;
    unlink(c->name);
    c->connected = true;
    for (int r = 0; r < c->size; r++) {
        const vgpu_nccl_slot *s = &c->slots[r];
        if (s->size != c->size) state = ncclInvalidUsage;
        if (r != c->rank && s->device == c->slots[c->rank].device) {
            snprintf(last_error, sizeof last_error, "Duplicate GPU detected : rank %d and rank %d"
                     " both on CUDA device %d", c->rank, r, s->device);
            state = ncclInvalidUsage;
        }
    }
    become(c, state);
}

static wb__nccl_enum join(struct ncclComm *c, const ncclUniqueId *id)
{
    const size_t bytes = VGPU_NCCL_RANKS * sizeof *c->slots;
    struct flock lock = lock_of(c->rank);
    snprintf(c->name, sizeof c->name, "%s", id->internal);
    if (strncmp(c->name, "/dev/shm/vgpu-nccl-", 19))
        return refuse(ncclInvalidArgument, "CommInitRank", "not an id of ncclGetUniqueId");
    c->file = open(c->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (c->file < 0 || ftruncate(c->file, (off_t)bytes) || fcntl(c->file, F_OFD_SETLK, &lock))
        return refuse(ncclSystemError, "CommInitRank", "the file of the ranks, or the rank is"
                      " taken");
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->file, 0);
    if (at == MAP_FAILED) return ncclSystemError;
    c->slots = at;
    vgpu_nccl_slot *mine = &c->slots[c->rank];
    if (mine->joined) return refuse(ncclInvalidUsage, "CommInitRank", "the rank is taken");
    mine->size = c->size;
    mine->device = number_of(c->context->device);
    mine->joined = 1;
    return ncclSuccess;
}

/* Neither a stream nor a graph has the operation any more. */
static void drop(void *payload)
{
    const vgpu_nccl_operation *o = payload;
    if (o->d.captured) o->comm->captured--;
    else o->comm->queued--;
}

/* Puts the operation `next` on its stream. */
static wb__nccl_enum begin(struct ncclComm *c)
{
    vgpu_nccl_operation *o = &c->next;
    int64_t commands;
    c->pending = false;
    /* "Before the states change into ncclSuccess, users are not allowed to issue CUDA kernel to the
     * streams being used by NCCL" (ncclCommGetAsyncError). */
    if (vgpu_captured(c->next_stream, &commands) != o->d.captured || commands != c->next_after)
        return refuse(ncclInvalidUsage, c->next_name, "its stream was used before the operation was"
                      " on it, as CommGetAsyncError reports");
    if (o->d.captured) c->captured++;
    else c->queued++;
    if (vgpu_enqueue_in(c->context, c->next_stream, "nccl", vgpu_nccl_perform, drop, o, sizeof *o))
        return refuse(ncclUnhandledCudaError, c->next_name, "the stream");
    return ncclSuccess;
}

/* "Once all NCCL operations are complete", "synchronize with other ranks" (the guide, Finalizing a
 * communicator); "keep polling until all graphs referencing us die" (commDestroySync). */
static bool is_quiet(const struct ncclComm *c)
{
    bool quiet = !c->queued && !c->captured;
    for (int r = 0; r < c->size && quiet; r++)
        quiet = c->slots[r].finalised || vgpu_nccl_has_ended(c, r);
    return quiet;
}

/* Goes on with what is in progress. */
static void advance(struct ncclComm *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->state == ncclInProgress && !c->aborted) {
        if (!c->connected) connect_all(c);
        else if (c->pending) become(c, begin(c));
        else if (c->finalised && is_quiet(c)) become(c, ncclSuccess);
    }
    pthread_mutex_unlock(&c->lock);
}

/* The configuration of NCCL 2.27. */
typedef struct {
    ncclConfig_t of_2_17;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
} configuration;

static bool is_within(int value, int least, int most)
{
    return value == WB__NCCL_UNDEFINED || (value >= least && value <= most);
}

/* parseCommConfig of init.cc: takes as many bytes as `size`; fields that are newer than `version`
 * have their defaults.  minCTAs without maxCTAs is refused, since "undefined" is the least number.
 * A CGA has at most 8 blocks (the guide, ncclConfig_t). */
static wb__nccl_enum check_config(const ncclConfig_t *given, bool *blocking)
{
    const int undefined = WB__NCCL_UNDEFINED;
    configuration c = {{0, 0, 0, undefined, undefined, undefined, undefined, NULL}, undefined,
                       undefined, NULL, undefined, undefined, undefined, undefined};
    ncclConfig_t *const k = &c.of_2_17;
    memcpy(&c, given, given->size < sizeof c ? given->size : sizeof c);
    if (k->magic != WB__NCCL_MAGIC || (k->version >= WB__NCCL_OLDEST && k->size < sizeof *k))
        return refuse(ncclInvalidArgument, "CommInitRankConfig", "the configuration is not"
                      " initialised by NCCL_CONFIG_INITIALIZER");
    if (k->version < 21400) k->blocking = undefined;
    if (k->version < 21700) k->cgaClusterSize = k->minCTAs = k->maxCTAs = undefined;
    if (k->version < 22700)
        c.collnetEnable = c.CTAPolicy = c.shrinkShare = c.nvlsCTAs = undefined;
    *blocking = k->blocking != 0;
    if (is_within(k->blocking, 0, 1) && is_within(k->cgaClusterSize, 0, 8) &&
        is_within(k->minCTAs, 1, INT32_MAX) && is_within(k->maxCTAs, 1, INT32_MAX) &&
        k->minCTAs <= k->maxCTAs && is_within(c.splitShare, 0, 1) &&
        is_within(c.collnetEnable, 0, 1) && is_within(c.CTAPolicy, 0, 1) &&
        is_within(c.shrinkShare, 0, 1) && is_within(c.nvlsCTAs, 1, INT32_MAX))
        return ncclSuccess;
    return refuse(ncclInvalidArgument, "CommInitRankConfig", "a value of the configuration");
}

NCCL(wb__nccl_enum, CommInitRankConfig,
     (ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    static const char name[] = "CommInitRankConfig";
    CUcontext context = NULL;
    if (!comm) return refuse(ncclInvalidArgument, name, "NULL");
    *comm = NULL;
    if (size < 1 || size > VGPU_NCCL_RANKS || rank < 0 || rank >= size)
        return refuse(ncclInvalidArgument, name, "rank or size");
    bool blocking = true;
    const wb__nccl_enum wrong = config ? check_config(config, &blocking) : ncclSuccess;
    if (wrong) return wrong;
    if (vgpu_nccl_injected(name)) return ncclSystemError;
    if (!find_context(&context))
        return refuse(ncclUnhandledCudaError, name, "no current context");
    struct ncclComm *c = vgpu_zeroed(sizeof *c);
    *c = (struct ncclComm){.magic = MAGIC, .file = -1, .rank = rank, .size = size,
                           .blocking = blocking, .state = ncclInProgress, .context = context};
    pthread_mutex_init(&c->lock, NULL);
    const wb__nccl_enum result = join(c, &id);
    if (result) {
        if (c->file >= 0) close(c->file);
        free(c);
        return result;
    }
    vgpu_held(1);
    *comm = c;
    if (!c->blocking) return ncclInProgress;
    for (advance(c); c->state == ncclInProgress; advance(c)) nap();
    return c->state;
}

NCCL(wb__nccl_enum, CommInitRank, (ncclComm_t *comm, int size, ncclUniqueId id, int rank))
{
    return ncclCommInitRankConfig(comm, size, id, rank, NULL);
}

NCCL(wb__nccl_enum, CommGetAsyncError, (ncclComm_t c, wb__nccl_enum *result))
{
    if (!is_comm(c) || !result) return refuse(ncclInvalidArgument, "CommGetAsyncError", "NULL");
    advance(c);
    vgpu_go_on();
    *result = c->state;
    return ncclSuccess;
}

/* ncclCommEnsureReady: "Attempt to use communicator before the previous operation returned
 * ncclSuccess".  After an error other than ncclInvalidArgument "the application needs to call
 * ncclCommAbort" (the guide, Error handling). */
static wb__nccl_enum check_ready(const struct ncclComm *c, const char *name)
{
    if (c->fatal) return refuse(c->fatal, name, "only CommAbort is allowed after an error");
    if (c->state == ncclInProgress)
        return refuse(ncclInvalidArgument, name, "the call before is in progress");
    return c->state;
}

/* A communicator is never freed, so that its use after the end is found. */
static void end(struct ncclComm *c)
{
    c->magic = 0;
    if (!c->connected) unlink(c->name);
    vgpu_held(-1);
    close(c->file);
    c->before = atomic_exchange(&destroyed, c);
}

/* Waits until streams have performed all operations. */
static void flush(const struct ncclComm *c)
{
    for (; c->queued && (!c->state || c->state == ncclInProgress); nap()) vgpu_go_on();
}

NCCL(wb__nccl_enum, CommFinalize, (ncclComm_t c))
{
    static const char name[] = "CommFinalize";
    if (!is_comm(c)) return refuse(ncclInvalidArgument, name, "not a communicator");
    const wb__nccl_enum unready = check_ready(c, name);
    if (unready) return unready;
    if (c->finalised) return refuse(ncclInvalidArgument, name, "called a second time");
    if (c->blocking && c->captured)
        return refuse(ncclInvalidUsage, name, "waits for ever for a graph with its operations");
    if (vgpu_nccl_injected(name)) return c->fatal = ncclSystemError;
    pthread_mutex_lock(&c->lock);
    c->finalised = c->slots[c->rank].finalised = true;
    c->state = ncclInProgress;
    pthread_mutex_unlock(&c->lock);
    if (!c->blocking) return ncclInProgress;
    for (flush(c), advance(c); c->state == ncclInProgress; advance(c)) nap();
    return c->state;
}

/* "users should guarantee that the state of the communicator becomes ncclSuccess before calling
 * ncclCommDestroy", which "will call ncclCommFinalize internally" (the guide). */
NCCL(wb__nccl_enum, CommDestroy, (ncclComm_t c))
{
    static const char name[] = "CommDestroy";
    if (!is_comm(c)) return refuse(ncclInvalidArgument, name, "not a communicator");
    const wb__nccl_enum unready = check_ready(c, name);
    if (unready) return unready;
    if (c->captured)
        return refuse(ncclInvalidUsage, name, "waits for ever for a graph with its operations");
    flush(c);
    end(c);
    return vgpu_nccl_injected(name) ? ncclInternalError : ncclSuccess;
}

/* May be called at any time: while the ranks are connected, while an operation is in progress or
 * runs, and after an error (the guide, Fault Tolerance). */
NCCL(wb__nccl_enum, CommAbort, (ncclComm_t c))
{
    if (!is_comm(c)) return ncclInvalidArgument;
    c->aborted = true;
    end(c);
    return ncclSuccess;
}

NCCL(wb__nccl_enum, GroupStart, (void))
{
    groups++;
    return ncclSuccess;
}

NCCL(wb__nccl_enum, GroupEnd, (void))
{
    if (!groups) return refuse(ncclInvalidUsage, "GroupEnd", "no group has begun");
    groups--;
    return ncclSuccess;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Whether the current context can access so many bytes; no bytes need no address. */
static bool is_device(const void *at, uint64_t bytes)
{
    return !bytes || vgpu_span((uint64_t)(uintptr_t)at) >= bytes;
}

/* Operands may overlap only where the guide, In-place Operations, allows it. */
static bool overlap(const vgpu_nccl_operation *o, uint64_t in, uint64_t out)
{
    const uint64_t part = o->d.n * vgpu_nccl_bytes(o->d.type) * (uint64_t)o->comm->rank;
    if (o->from + in <= o->to || o->to + out <= o->from) return false;
    return o->d.kind == ALLGATHER ? o->from != o->to + part
         : o->d.kind == REDUCE_SCATTER ? o->to != o->from + part : o->from != o->to;
}

static wb__nccl_enum check(const vgpu_nccl_operation *o, const char *name)
{
    const struct ncclComm *c = o->comm;
    const vgpu_nccl_description *d = &o->d;
    const uint64_t bytes = vgpu_nccl_bytes(d->type), most = (uint64_t)c->size;
    if (!bytes) return refuse(ncclInvalidArgument, name, "the type");
    if (d->op != ncclSum && d->op != ncclMin && d->op != ncclMax)
        return refuse(ncclInvalidArgument, name, "the reduction");
    if (d->root >= most) return refuse(ncclInvalidArgument, name, "the root");
    CUcontext context = NULL;
    if (!find_context(&context) || context != c->context)
        return refuse(ncclInvalidUsage, name, "another device is current");
    const bool reads = d->kind != BROADCAST || c->rank == (int)d->root;
    const bool writes = d->kind != REDUCE || c->rank == (int)d->root;
    const uint64_t in = d->n * bytes * (d->kind == REDUCE_SCATTER ? most : 1);
    const uint64_t out = d->n * bytes * (d->kind == ALLGATHER ? most : 1);
    if (c->finalised)
        return refuse(ncclInvalidUsage, name, "after CommFinalize, which frees what it needs");
    if ((reads && !is_device(o->from, in)) || (writes && !is_device(o->to, out)))
        return refuse(ncclInvalidArgument, name, "an address that is not of the device");
    if (reads && writes && overlap(o, in, out))
        return refuse(ncclInvalidArgument, name, "operands that overlap");
    return vgpu_nccl_injected(name) ? ncclSystemError : ncclSuccess;
}

/* A communicator that does not block puts the operation on its stream when CommGetAsyncError is
 * called. */
static wb__nccl_enum take(vgpu_nccl_operation *o, const char *name, struct CUstream_st *stream)
{
    struct ncclComm *c = o->comm;
    unsigned ready = ncclSuccess;
    o->d.captured = vgpu_captured(stream, &c->next_after);
    c->next = *o;
    c->next_name = name;
    c->next_stream = stream;
    if (c->blocking) return begin(c);
    c->pending = true;
    atomic_compare_exchange_strong(&c->state, &ready, ncclInProgress);
    return ncclSuccess;
}

static wb__nccl_enum put(vgpu_nccl_kind k, const void *from, void *to, size_t n, unsigned type,
                         unsigned op, int root, struct ncclComm *c, struct CUstream_st *stream)
{
    const char *name = vgpu_nccl_names[k];
    if (!is_comm(c)) return refuse(ncclInvalidArgument, name, "not a communicator");
    if (groups) return refuse(ncclInvalidUsage, name, "the double has no operations in groups");
    vgpu_nccl_operation o = {.comm = c, .from = from, .to = to,
                             .d = {.kind = k, .type = type, .op = op, .root = (uint32_t)root,
                                   .n = n}};
    pthread_mutex_lock(&c->lock);
    wb__nccl_enum result = check_ready(c, name);
    if (!result) {
        result = check(&o, name);
        if (!result) result = take(&o, name, stream);
        if (result && result != ncclInvalidArgument) c->fatal = result;
    }
    pthread_mutex_unlock(&c->lock);
    return result || c->blocking ? result : ncclInProgress;
}

NCCL(wb__nccl_enum, AllReduce,
     (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op, ncclComm_t comm,
      struct CUstream_st *stream))
{
    return put(ALLREDUCE, from, to, n, type, op, 0, comm, stream);
}

NCCL(wb__nccl_enum, Reduce,
     (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op, int root,
      ncclComm_t comm, struct CUstream_st *stream))
{
    return put(REDUCE, from, to, n, type, op, root, comm, stream);
}

NCCL(wb__nccl_enum, Broadcast,
     (const void *from, void *to, size_t n, wb__nccl_enum type, int root, ncclComm_t comm,
      struct CUstream_st *stream))
{
    return put(BROADCAST, from, to, n, type, ncclSum, root, comm, stream);
}

NCCL(wb__nccl_enum, AllGather,
     (const void *from, void *to, size_t n, wb__nccl_enum type, ncclComm_t comm,
      struct CUstream_st *stream))
{
    return put(ALLGATHER, from, to, n, type, ncclSum, 0, comm, stream);
}

NCCL(wb__nccl_enum, ReduceScatter,
     (const void *from, void *to, size_t n, wb__nccl_enum type, wb__nccl_enum op, ncclComm_t comm,
      struct CUstream_st *stream))
{
    return put(REDUCE_SCATTER, from, to, n, type, op, 0, comm, stream);
}
