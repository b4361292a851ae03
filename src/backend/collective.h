/* Collective operations, in which all ranks of a communicator take part.  A rank is one of the
 * processes that train a model together, or a thread of one (wb_distributed_run).  All ranks must
 * begin the same operations in the same order.
 *
 * The operations of a rank run one after the other: in the thread that begins them, or, if
 * wb__collective_set_overlap is set, in a thread of their own while the caller goes on. */
#ifndef WB__COLLECTIVE_H
#define WB__COLLECTIVE_H

#include "backend/backend.h"
#include "base/modes.h"

typedef enum { WB__RANKS_SUM, WB__RANKS_MIN, WB__RANKS_MAX } wb__ranks_op;

typedef enum {
    WB__COLLECT_ALLREDUCE,          /* to[n] = the reduction of from[n] over the ranks */
    WB__COLLECT_REDUCE,             /* an ALLREDUCE whose result only rank `root` gets */
    WB__COLLECT_REDUCE_SCATTER,     /* to[n] = part `rank` of the reduction of from[size * n] */
    WB__COLLECT_ALLGATHER,          /* to[size * n] = from[n] of each rank, in order */
    WB__COLLECT_BROADCAST,          /* to[n] of the rank `root` replaces to[n] of the others */
    WB__COLLECT_BARRIER             /* waits until all ranks have begun it */
} wb__collective_kind;

/* An operation on memory of the host or of a device.  In an ALLREDUCE, `from` may equal `to`. */
typedef struct wb__collective {
    const wb__communicator *communicator;
    wb__collective_kind kind;
    wb__ranks_op op;        /* the reduction, of the kinds that reduce */
    wb_dtype dtype;         /* dtype of the elements; a reduction has no f16, bf16 or bool */
    int root;                           /* rank that has the operand or gets the result */
    int64_t n;              /* number of elements of `to` or `from` (wb__collective_kind) */
    const void *from;                   /* operand */
    void *to;                           /* result */
    const wb_device *device;            /* has the memory of `from` and `to`; NULL: the host has */
    void *ready;            /* event of the device after which the memory may be used; NULL: now */
    wb__modes modes;        /* of the thread that began it; set by wb__collective_begin */
} wb__collective;

struct wb__communicator {
    const char *name;       /* name of the library that connects the ranks */
    int rank, size;         /* this rank's number from 0 on; number of ranks */
    int local_rank, local_size;         /* rank and size among the ranks of this machine */
    /* The device that performs a COLLECTIVE step itself, without the host; NULL: none does. */
    const wb_device *device;
    /* Whether `perform` takes addresses of this device's memory; NULL: of no device. */
    bool (*takes)(const wb_device *d);
    /* Performs an operation, and returns when it is complete on this rank.  0 or an error code. */
    int (*perform)(const wb__collective *c);
    void *context;          /* data for `perform` */
};

typedef struct {
    int64_t operations, on_devices, bytes;      /* on_devices: operations on devices' memory */
    double performing, waited;          /* seconds of operations; seconds that callers waited */
} wb__collective_totals;

enum { WB__RANKS_HERE = 64 };           /* ranks of a process that are threads */

/* Returns the communicator of all ranks for the calling thread's rank; NULL: not connected. */
const wb__communicator *wb__world(void);
/* Sets the communicator of threads that work for the process, and the communicators ranks[i] of the
 * n ranks that are threads, whose wb__thread_rank is i + 1. */
void wb__world_set(const wb__communicator *process, const wb__communicator *ranks, int n);
/* The number of ranks of this process that are threads; 0: it is one rank. */
int wb__ranks_here(void);

/* Whether operations run in a thread of their own.  Takes effect from the next operation on. */
void wb__collective_set_overlap(bool overlap);

/* Returns the operation of the step s, a COLLECTIVE, without addresses.  Sets *from and *to to the
 * number of bytes of the operand and of the result. */
wb__collective wb__collective_of(const wb__step *s, size_t *from, size_t *to);

/* Whether the operations of c take addresses of this device's memory. */
bool wb__collective_takes_addresses_of(const wb__communicator *c, const wb_device *d);

/* Begins an operation of the calling thread's rank, and returns the operation's number, counted
 * from 1 for each rank.  The memory must stay until wb__collective_end(number) returns. */
uint64_t wb__collective_begin(const wb__collective *c);
/* Waits until the operation `number`, and thus all operations before it, are complete.  Returns 0,
 * or the error code of the rank's first operation that failed, with the error set: after a failure
 * no later operation is performed. */
int wb__collective_end(uint64_t number);
/* With WEBER_DEBUG=dist, logs the cost of the operations since the last report: their bytes, their
 * time, and the time that the caller waited.  `what` names the caller. */
void wb__collective_report(const char *what);
/* Whether an operation of the calling thread's rank is not complete. */
bool wb__collective_busy(void);
/* Ends the threads of all ranks after their last operation, and forgets failures. */
void wb__collective_stop(void);

#endif
