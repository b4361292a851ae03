/* The interface between the library and the libraries that connect ranks, such as libweber-mpi.
 * Both must be built from one source tree, which `version` makes sure of. */
#ifndef WB__DIST_H
#define WB__DIST_H

#include "backend/collective.h"

enum { WB__DIST_VERSION = WB_VERSION_MAJOR * 10000 + WB_VERSION_MINOR * 100 + WB_VERSION_PATCH };

/* What the library offers to the backend, whose functions cannot call internal functions. */
typedef struct {
    double timeout;                     /* seconds that an operation may wait for other ranks */
    /* The number of ranks of this process, which are threads; -1: one for each device.  0: the
     * process is one rank. */
    int devices;
    const wb_distributed_backend *through;      /* the option .through, or NULL */
    /* Sets the error of the calling thread, and returns `code`. */
    int (*fail)(int code, const char *format, ...) WB__PRINTF(2, 3);
    /* the function wb__preference_bool */
    int (*preference)(const char *key, bool *value);
} wb__dist_services;

struct wb_distributed_backend {
    int version;                        /* WB__DIST_VERSION */
    const char *name;                   /* in messages, such as "MPI" */
    /* Connects the ranks and fills in *c.  `services` stays valid until the process ends.  0 or an
     * error code. */
    int (*start)(const wb__dist_services *services, wb__communicator *c);
    /* Connects ranks that are threads of this process, and fills in c[0] to c[*n - 1].  NULL: the
     * backend has no such ranks.  0 or an error code. */
    int (*start_threads)(const wb__dist_services *services, wb__communicator *c, int *n);
    /* Makes the operations of other ranks fail within seconds, with an error that begins with
     * `why`, and `stop` wait for no rank.  Called when a rank of this process, a thread, has
     * failed. */
    void (*give_up)(const char *why);
    /* Disconnects the ranks; all ranks call it.  0 or an error code. */
    int (*stop)(void);
    /* Ends the processes of all ranks. */
    void (*abort)(void);
    /* Returns name and version of the i-th library that the backend may use, valid until the next
     * call.  NULL: the library is not usable; without an error: there is none.  May be called
     * before `start`. */
    const char *(*library)(int i);
    bool goes_through;                  /* the backend takes the option .through */
};

/* ---- inside the library ---------------------------------------------------------------------- */

/* The backend that connects the ranks; NULL: they are not connected. */
const wb_distributed_backend *wb__ranks_backend(void);
/* Whether wb_distributed_run is running the ranks. */
bool wb__ranks_running(void);
/* Forgets that a rank has failed. */
void wb__ranks_forget(void);

/* Evaluates the pending writes, if they need an operation of the ranks.  Losses stay readable.
 * Functions in which all ranks take part call it first: another rank may have evaluated its pending
 * writes already, for instance to print a loss.  0 or an error code. */
int wb__end_pending_exchange(void);

/* Replaces the n numbers on all ranks by those of the rank `root`.  0 or an error code. */
int wb__from_rank(void *values, wb_dtype dtype, int64_t n, int root);
/* Finds the least and the most over the ranks of each of n numbers.  0 or an error code. */
int wb__extremes(int n, const int64_t *mine, int64_t *least, int64_t *most);

/* ---- a divided state (divided.c) ------------------------------------------------------------- */

/* Whether each rank has only a part of the moments.  The state may be NULL. */
bool wb__is_divided(const wb_opt_state *s);
/* Returns `status`, or, if it is 0, the error code of another rank that has failed.  Collective, if
 * the state is divided; an error if the ranks are not connected any more, or if another rank calls
 * another function.  `what` is the function, for messages. */
int wb__divided_agree(const wb_opt_state *s, const char *what, int status);

/* To write a file, rank 0 calls wb__divided_read for each moment, and the other ranks call
 * wb__divided_serve once.  To read a file, rank 0 calls wb__divided_give for each moment, and the
 * others call wb__divided_take once.  Then rank 0 calls wb__divided_end with its status, with which
 * wb__divided_serve and _take of the other ranks return.  All return 0 or an error code. */

/* Calls f(bytes, number, ctx) for the parts of moment k of a slot, in order; f returns 0 or an
 * error code. */
typedef int wb__divided_reader(const void *part, int64_t bytes, void *ctx);
int wb__divided_read(const wb_opt_state *s, int slot, int k, wb__divided_reader *f, void *ctx);
int wb__divided_serve(const wb_opt_state *s, const char *what);
/* Sets the parts of moment k of a slot on all ranks.  `whole`: the values of the whole moment. */
int wb__divided_give(const wb_opt_state *s, int slot, int k, const void *whole);
int wb__divided_take(const wb_opt_state *s, const char *what);
int wb__divided_end(int status);
/* Sets part r of a moment if it is the part of this rank; else rank 0 sends it to all ranks. */
int wb__divided_set(const wb_opt_state *s, int slot, int k, int r, const void *whole);

/* Finds out whether a rank has WEBER_DEBUG=dist.  Collective.  0 or an error code. */
int wb__comparing_agree(void);
/* Compares, if a rank has WEBER_DEBUG=dist, the checksums of the variables of an object that
 * wb_distributed_synchronize shares, and logs the paths of variables that differ between ranks.
 * Collective.  0 or an error code. */
int wb__compare_ranks(void *object, const char *when);

#endif
