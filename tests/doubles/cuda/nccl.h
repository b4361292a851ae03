/* Declarations that the two files of NCCL's double share: nccl.c has the communicators, and checks
 * what its caller does; nccl_run.c performs the operations. */
#ifndef VGPU_NCCL_H
#define VGPU_NCCL_H

#include "inside.h"

#include "backend/nccl/api.h"

#include <pthread.h>
#include <stdatomic.h>

enum { VGPU_NCCL_RANKS = 16, VGPU_NCCL_PART = 1 << 16 };
typedef enum { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER } vgpu_nccl_kind;

/* What must be the same on all ranks. */
typedef struct { uint32_t kind, type, op, root; uint64_t n, captured; } vgpu_nccl_description;

/* The part of the shared file that one rank writes and all read. */
typedef struct {
    _Atomic int joined;
    int size, device;
    _Atomic bool finalised;
    _Atomic uint64_t arrived;           /* how often the rank has reached a meeting */
    vgpu_nccl_description description;
    unsigned char values[VGPU_NCCL_PART];
} vgpu_nccl_slot;

typedef struct {
    struct ncclComm *comm;
    vgpu_nccl_description d;
    const unsigned char *from;
    unsigned char *to;
    enum { WRITES, READS, ENDS } stage; /* of the part that begins with element `at` */
    uint64_t at;
} vgpu_nccl_operation;

struct ncclComm {
    int magic, file, rank, size;
    vgpu_nccl_slot *slots;
    bool blocking, finalised;
    _Atomic bool connected;
    uint64_t meetings, turns;
    _Atomic unsigned state;             /* what CommGetAsyncError reports */
    wb__nccl_enum fatal;                /* after this error only CommAbort is allowed */
    _Atomic bool aborted;
    _Atomic int64_t queued, captured;   /* operations that streams, and that graphs, have */
    pthread_mutex_t lock;               /* guards the fields below, and changes of the phase */
    bool pending;                       /* `next` is not on its stream yet */
    vgpu_nccl_operation next;
    const char *next_name;
    struct CUstream_st *next_stream;
    int64_t next_after;                 /* commands of the stream before it */
    CUcontext context;
    char name[WB__NCCL_ID_BYTES];
    struct ncclComm *before;            /* the one that was destroyed before this one */
};

/* ---- nccl.c ---------------------------------------------------------------------------------- */

/* Whether VGPU_NCCL_FAIL selects this call. */
bool vgpu_nccl_injected(const char *name);
/* Whether another rank that has joined has ended. */
bool vgpu_nccl_has_ended(const struct ncclComm *c, int rank);

/* ---- nccl_run.c ------------------------------------------------------------------------------ */

extern const char *const vgpu_nccl_names[];     /* of the kinds, without nccl */
/* The bytes of a value; 0: the double does not have this type. */
size_t vgpu_nccl_bytes(unsigned type);
/* Performs a vgpu_nccl_operation, as a task of a stream. */
int vgpu_nccl_perform(void *operation);

#endif
