/* The operations of NCCL's double.  See nccl.h. */
#include "nccl.h"

#include <stdio.h>
#include <string.h>

typedef vgpu_nccl_operation operation;
typedef vgpu_nccl_description description;
typedef vgpu_nccl_slot slot;
enum { PART = VGPU_NCCL_PART };

const char *const vgpu_nccl_names[] = {"AllReduce", "Reduce", "Broadcast", "AllGather",
                                       "ReduceScatter"};

static void arrive(struct ncclComm *c) { c->slots[c->rank].arrived = ++c->meetings; }

/* Whether all ranks have arrived. */
static bool met(struct ncclComm *c)
{
    bool all = true;
    const bool asks = ++c->turns % 100 == 0;
    for (int r = 0; r < c->size && all; r++) {
        all = c->slots[r].arrived >= c->meetings;
        if (!all && asks && vgpu_nccl_has_ended(c, r)) c->state = ncclRemoteError;
    }
    return all;
}

size_t vgpu_nccl_bytes(unsigned type)
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
 * wrong values.  "Whether an operation launch is graph-captured [...] must be uniform over all
 * ranks" (NCCL's guide, Using NCCL with CUDA Graphs). */
static bool agree(const operation *o)
{
    for (int r = 0; r < o->comm->size; r++) {
        const description *d = &o->comm->slots[r].description;
        if (!memcmp(d, &o->d, sizeof *d)) continue;
        fprintf(stderr, "vgpu: nccl: rank %d performs %s of %llu elements%s, rank %d %s of %llu"
                "%s\n", o->comm->rank, vgpu_nccl_names[o->d.kind], (unsigned long long)o->d.n,
                o->d.captured ? " in a graph" : "", r, vgpu_nccl_names[d->kind],
                (unsigned long long)d->n, d->captured ? " in a graph" : "");
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

int vgpu_nccl_perform(void *payload)
{
    operation *o = payload;
    struct ncclComm *c = o->comm;
    const size_t bytes = vgpu_nccl_bytes(o->d.type);
    const uint64_t n = o->d.kind == REDUCE_SCATTER ? o->d.n * (uint64_t)c->size : o->d.n;
    slot *mine = &c->slots[c->rank];
    while (o->at < n) {
        const uint64_t part = n - o->at < PART / bytes ? n - o->at : PART / bytes;
        if (c->aborted) return give_up(o, bytes);
        if (o->stage == WRITES && !o->at && vgpu_nccl_injected("Running"))
            c->state = ncclSystemError;
        if (c->state && c->state != ncclInProgress) return VGPU_AGAIN;
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
