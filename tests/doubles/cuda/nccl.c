/* A double of NCCL 2 for ranks that are processes or threads of this machine.  See vgpu.h.  With
 * VGPU_ROCM it is one of RCCL.
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
#include "inside.h"

#include "backend/nccl/api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 16, PART = 1 << 16, MAGIC = 0x6e63636c };
typedef enum { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER } kind;
static const char *const kinds[] = {"AllReduce", "Reduce", "Broadcast", "AllGather",
                                    "ReduceScatter"};

typedef struct { uint32_t kind, type, op, root; uint64_t n; } description;

typedef struct {
    _Atomic int joined;
    int size, device;
    _Atomic uint64_t arrived;           /* how often the rank has reached a meeting */
    description description;
    unsigned char values[PART];
} slot;

struct ncclComm {
    int magic, file, rank, size;
    slot *slots;
    bool blocking;
    uint64_t meetings, turns;
    _Atomic unsigned state;             /* what CommGetAsyncError reports */
    _Atomic bool aborted;
    CUcontext context;
    char name[WB__NCCL_ID_BYTES];
    struct ncclComm *before;            /* the one that was destroyed before this one */
};
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

static bool injected(const char *name)
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
    if (injected("GetUniqueId")) return ncclSystemError;
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

/* Whether a rank that has joined has ended. */
static bool has_ended(const struct ncclComm *c, int rank)
{
    struct flock lock = lock_of(rank);
    return rank != c->rank && !fcntl(c->file, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* Whether all ranks have come; checks that they fit together. */
static void advance(struct ncclComm *c)
{
    int come = 0;
    for (int r = 0; r < c->size; r++) come += c->slots[r].joined;
    if (come < c->size || c->state != ncclInProgress) return;
    unlink(c->name);
    for (int r = 0; r < c->size; r++) {
        const slot *s = &c->slots[r];
        if (s->size != c->size) c->state = ncclInvalidUsage;
        if (r != c->rank && s->device == c->slots[c->rank].device) {
            snprintf(last_error, sizeof last_error, "Duplicate GPU detected : rank %d and rank %d"
                     " both on CUDA device %d", c->rank, r, s->device);
            c->state = ncclInvalidUsage;
        }
    }
    if (c->state == ncclInProgress) c->state = ncclSuccess;
}

static wb__nccl_enum join(struct ncclComm *c, const ncclUniqueId *id)
{
    const size_t bytes = MOST_RANKS * sizeof *c->slots;
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
    slot *mine = &c->slots[c->rank];
    if (mine->joined) return refuse(ncclInvalidUsage, "CommInitRank", "the rank is taken");
    mine->size = c->size;
    mine->device = number_of(c->context->device);
    mine->joined = 1;
    return ncclSuccess;
}

NCCL(wb__nccl_enum, CommInitRankConfig,
     (ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    static const char name[] = "CommInitRankConfig";
    CUcontext context = NULL;
    if (!comm) return refuse(ncclInvalidArgument, name, "NULL");
    *comm = NULL;
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return refuse(ncclInvalidArgument, name, "rank or size");
    if (config && (config->magic != WB__NCCL_MAGIC || config->size < sizeof *config ||
                   (config->blocking != WB__NCCL_UNDEFINED && config->blocking >> 1)))
        return refuse(ncclInvalidArgument, name, "the configuration is not initialised");
    if (injected(name)) return ncclSystemError;
    if (!find_context(&context))
        return refuse(ncclUnhandledCudaError, name, "no current context");
    struct ncclComm *c = vgpu_zeroed(sizeof *c);
    *c = (struct ncclComm){.magic = MAGIC, .file = -1, .rank = rank, .size = size,
                           .blocking = !config || config->blocking, .state = ncclInProgress,
                           .context = context};
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

/* A communicator is never freed, so that its use after the end is found. */
static void end(struct ncclComm *c)
{
    c->magic = 0;
    if (c->state == ncclInProgress) unlink(c->name);
    vgpu_held(-1);
    close(c->file);
    c->before = atomic_exchange(&destroyed, c);
}

NCCL(wb__nccl_enum, CommFinalize, (ncclComm_t c))
{
    if (!is_comm(c)) return refuse(ncclInvalidArgument, "CommFinalize", "not a communicator");
    if (injected("CommFinalize")) return ncclSystemError;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

NCCL(wb__nccl_enum, CommDestroy, (ncclComm_t c))
{
    if (!is_comm(c)) return refuse(ncclInvalidArgument, "CommDestroy", "not a communicator");
    end(c);
    return injected("CommDestroy") ? ncclInternalError : ncclSuccess;
}

/* May be called while an operation waits. */
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

/* ---- performing ------------------------------------------------------------------------------ */

typedef enum { WRITES, READS, ENDS } stage;

typedef struct {
    struct ncclComm *comm;
    description d;
    const unsigned char *from;
    unsigned char *to;
    stage stage;                        /* of the part that begins with element `at` */
    uint64_t at;
} operation;

static void arrive(struct ncclComm *c) { c->slots[c->rank].arrived = ++c->meetings; }

/* Whether all ranks have arrived. */
static bool met(struct ncclComm *c)
{
    bool all = true;
    const bool asks = ++c->turns % 100 == 0;
    for (int r = 0; r < c->size && all; r++) {
        all = c->slots[r].arrived >= c->meetings;
        if (!all && asks && has_ended(c, r)) c->state = ncclRemoteError;
    }
    return all;
}

static size_t bytes_of(unsigned type)
{
    return type == ncclInt8 || type == ncclUint8 ? 1
         : type == ncclInt32 || type == ncclFloat32 ? 4
         : type == ncclInt64 || type == ncclFloat64 ? 8 : 0;
}

#define FOLD(T)                                                                                    \
    do {                                                                                           \
        T a, b;                                                                                    \
        memcpy(&a, to, sizeof a);                                                                  \
        memcpy(&b, x, sizeof b);                                                                   \
        a = op == ncclSum ? (T)(a + b) : (op == ncclMax) == (b > a) ? b : a;                       \
        memcpy(to, &a, sizeof a);                                                                  \
    } while (0)

static void fold(unsigned type, unsigned op, unsigned char *to, const unsigned char *x)
{
    switch (type) {
    case ncclInt8: FOLD(int8_t); break;
    case ncclUint8: FOLD(uint8_t); break;
    case ncclInt32: FOLD(int32_t); break;
    case ncclInt64: FOLD(int64_t); break;
    case ncclFloat32: FOLD(float); break;
    default: FOLD(double); break;
    }
}

/* Takes the part of n elements from element `at` on out of the slots. */
static void take(const operation *o, uint64_t at, uint64_t n, size_t bytes)
{
    const struct ncclComm *c = o->comm;
    for (uint64_t i = 0; i < n; i++) {
        unsigned char y[8];
        memcpy(y, c->slots[0].values + i * bytes, bytes);
        if (o->d.kind == BROADCAST) memcpy(y, c->slots[o->d.root].values + i * bytes, bytes);
        for (int r = 0; r < c->size && o->d.kind == ALLGATHER; r++)
            memcpy(o->to + ((uint64_t)r * o->d.n + at + i) * bytes, c->slots[r].values + i * bytes,
                   bytes);
        if (o->d.kind == ALLGATHER) continue;
        for (int r = 1; r < c->size && o->d.kind != BROADCAST; r++)
            fold(o->d.type, o->d.op, y, c->slots[r].values + i * bytes);
        const uint64_t first = o->d.kind == REDUCE_SCATTER ? (uint64_t)c->rank * o->d.n : 0;
        const bool mine = o->d.kind == REDUCE ? c->rank == (int)o->d.root
                                              : at + i >= first && at + i - first < o->d.n;
        if (mine) memcpy(o->to + (at + i - first) * bytes, y, bytes);
    }
}

/* The ranks must perform the same operations in the same order; the real library hangs or gives
 * wrong values. */
static bool agree(const operation *o)
{
    for (int r = 0; r < o->comm->size; r++) {
        const description *d = &o->comm->slots[r].description;
        if (!memcmp(d, &o->d, sizeof *d)) continue;
        fprintf(stderr, "vgpu: nccl: rank %d performs %s of %llu elements, rank %d %s of %llu\n",
                o->comm->rank, kinds[o->d.kind], (unsigned long long)o->d.n, r, kinds[d->kind],
                (unsigned long long)d->n);
        vgpu_wrong("nccl: the ranks perform different operations");
        return false;
    }
    return true;
}

/* The operation ends, and is ready for its next launch, as a part of a graph. */
static int end_operation(operation *o)
{
    o->stage = WRITES;
    o->at = 0;
    return CUDA_SUCCESS;
}

static int give_up(operation *o, size_t bytes)
{
    const struct ncclComm *c = o->comm;
    const uint64_t n = o->d.kind == ALLGATHER ? o->d.n * (uint64_t)c->size : o->d.n;
    if (o->d.kind != REDUCE || c->rank == (int)o->d.root) memset(o->to, 0xff, n * bytes);
    return end_operation(o);
}

static int perform(void *payload)
{
    operation *o = payload;
    struct ncclComm *c = o->comm;
    const size_t bytes = bytes_of(o->d.type);
    const uint64_t n = o->d.kind == REDUCE_SCATTER ? o->d.n * (uint64_t)c->size : o->d.n;
    slot *mine = &c->slots[c->rank];
    while (o->at < n) {
        const uint64_t part = n - o->at < PART / bytes ? n - o->at : PART / bytes;
        if (c->aborted) return give_up(o, bytes);
        if (o->stage == WRITES && !o->at && injected("Running")) c->state = ncclSystemError;
        if (c->state) return VGPU_AGAIN;
        if (o->stage == WRITES) {
            mine->description = o->d;
            if (o->d.kind != BROADCAST || c->rank == (int)o->d.root)
                memcpy(mine->values, o->from + o->at * bytes, part * bytes);
            arrive(c);
            o->stage = READS;
        }
        if (!met(c)) return VGPU_AGAIN;
        if (o->stage == READS) {
            if (!agree(o)) return CUDA_ERROR_LAUNCH_FAILED;
            take(o, o->at, part, bytes);
            arrive(c);
            o->stage = ENDS;
            if (!met(c)) return VGPU_AGAIN;
        }
        o->stage = WRITES;
        o->at += part;
    }
    return end_operation(o);
}

/* Whether the current context can access so many bytes; no bytes need no address. */
static bool is_device(const void *at, uint64_t bytes)
{
    return !bytes || vgpu_span((uint64_t)(uintptr_t)at) >= bytes;
}

static wb__nccl_enum put(kind k, const void *from, void *to, size_t n, unsigned type, unsigned op,
                         int root, struct ncclComm *c, struct CUstream_st *stream)
{
    const char *name = kinds[k];
    if (!is_comm(c)) return refuse(ncclInvalidArgument, name, "not a communicator");
    if (c->state) return refuse(ncclInvalidUsage, name, "the communicator is not ready");
    if (groups) return refuse(ncclInvalidUsage, name, "the double has no operations in groups");
    const size_t bytes = bytes_of(type);
    if (!bytes) return refuse(ncclInvalidArgument, name, "the type");
    if (op != ncclSum && op != ncclMin && op != ncclMax)
        return refuse(ncclInvalidArgument, name, "the reduction");
    if (root < 0 || root >= c->size) return refuse(ncclInvalidArgument, name, "the root");
    CUcontext context = NULL;
    if (!find_context(&context) || context != c->context)
        return refuse(ncclInvalidUsage, name, "another device is current");
    const bool reads = k != BROADCAST || c->rank == root, writes = k != REDUCE || c->rank == root;
    const uint64_t most = (uint64_t)c->size;
    if ((reads && !is_device(from, n * bytes * (k == REDUCE_SCATTER ? most : 1))) ||
        (writes && !is_device(to, n * bytes * (k == ALLGATHER ? most : 1))))
        return refuse(ncclInvalidArgument, name, "an address that is not of the device");
    if (injected(name)) return ncclSystemError;
    operation o;
    memset(&o, 0, sizeof o);
    o.comm = c;
    o.d = (description){.kind = k, .type = type, .op = op, .root = (uint32_t)root, .n = n};
    o.from = from;
    o.to = to;
    const int error = vgpu_enqueue(stream, "nccl", perform, &o, sizeof o);
    if (error) return refuse(ncclUnhandledCudaError, name, "the stream");
    return c->blocking ? ncclSuccess : ncclInProgress;
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
