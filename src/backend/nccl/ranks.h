/* Ranks with a GPU each, connected by NCCL, or on AMD's GPUs by RCCL, whose functions have the same
 * names and parameters.
 *
 *   api.h        declarations of the functions
 *   library.c    opening the library, and choosing the device of a rank
 *   ranks.c      operations, and the watch for ranks that have ended
 *
 * The folder of a driver has a table wb__nccl_library.  A process's ranks use one of them. */
#ifndef WB__NCCL_RANKS_H
#define WB__NCCL_RANKS_H

#include "backend/collective.h"
#include "backend/gpu/runtime/runtime.h"
#include "backend/nccl/api.h"

typedef struct {
    const char *name;                   /* "NCCL" */
    const wb__gpu_driver *driver;       /* driver of the GPUs that the library connects */
    wb__gpu_vendor *vendor;             /* its table is a wb__nccl_functions */
    void *(*stream)(wb__gpu_device *d, wb__gpu_queue q);        /* the driver's stream */
    const char *const *visible;         /* variables that choose a process's devices; NULL */
} wb__nccl_library;

extern const wb__nccl_library wb__cu_nccl, wb__hip_rccl;

/* ---- library.c ------------------------------------------------------------------------------- */

enum {
    WB__NCCL_RANKS_ID = 128,            /* bytes of a unique id */
#define WB__NCCL_ONE(type, name, parameters) + 1
    WB__NCCL_COUNT = 0 WB__NCCL_FUNCTIONS(WB__NCCL_ONE)
#undef WB__NCCL_ONE
};

/* For the table `vendor` of a library: the names of all functions, and the part of the function
 * `suits` that is the same for all vendors.  file: the name of the library in messages; needed:
 * what to install. */
extern const wb__gpu_function wb__nccl_names[WB__NCCL_COUNT];
bool wb__nccl_suits(const wb__nccl_functions *f, const char *missing, const char *file,
                    const char *needed, char *reason, size_t capacity);

/* Returns the functions of a library, which is opened at the first call.  wb__nccl_version returns
 * its name and version, such as "NCCL 2.27.3", valid until the next call.  NULL: the library is not
 * usable, and the error names what is missing. */
const wb__nccl_functions *wb__nccl_open(const wb__nccl_library *l);
const char *wb__nccl_version(const wb__nccl_library *l);

/* Returns the number of devices; 0: none, and the error is set. */
int wb__nccl_ranks_devices(const wb__nccl_library *l);
/* Makes a unique id, which all ranks must give to wb__nccl_ranks_start.  Returns 0 or an error
 * code, as all functions below. */
int wb__nccl_ranks_id(const wb__nccl_library *l, char id[WB__NCCL_RANKS_ID]);
/* Finds the device of a rank, as wb__nccl_ranks_start does. */
int wb__nccl_ranks_device(const wb__nccl_library *l, const wb__communicator *c,
                          const wb_device **d);

/* ---- ranks.c --------------------------------------------------------------------------------- */

extern const wb__gpu_hook wb__nccl_ranks;       /* performs the COLLECTIVE of a plan */

/* Connects the n ranks of this process, c->rank of c->size and so on, each with the device of its
 * local rank, and sets c->device, c->perform and c->context.  timeout: seconds that a rank waits in
 * an operation; then the process ends, with a message that names the operation. */
int wb__nccl_ranks_start(const wb__nccl_library *l, const char id[WB__NCCL_RANKS_ID],
                         double timeout, int n, wb__communicator *c);
int wb__nccl_ranks_stop(void);
/* The number of connected ranks of this process. */
int wb__nccl_ranks_here(void);
/* Called when a rank of this process has failed, for the reason `why`.  Operations that still wait
 * for that rank a second later fail, the device that waits is lost, since its memory may have the
 * result of an unfinished operation, and wb__nccl_ranks_stop does not wait for other ranks. */
void wb__nccl_ranks_give_up(const char *why);
int wb__nccl_ranks_perform(const wb__collective *c);    /* c->perform */
/* Ends the process and the communicators of its ranks. */
void wb__nccl_ranks_abort(void);

/* Surround a call in which the host waits for a device.  wb__nccl_wait_ends returns the call's
 * code, or `lost`, the driver's code for a lost device, if the rank's operations have been
 * ended. */
void wb__nccl_wait_begins(void);
int wb__nccl_wait_ends(int code, int lost);

#endif
