/* Ranks connected by NCCL, each with a CUDA device. */
#ifndef WB__CUDA_RANKS_H
#define WB__CUDA_RANKS_H

#include "backend/collective.h"

enum { WB__CU_RANKS_ID = 128 };         /* bytes of a unique id */

/* All return 0 or an error code.  wb__cu_ranks_id makes a unique id, which all ranks must give to
 * wb__cu_ranks_start.  That connects the n ranks of this process, c->rank of c->size and so on,
 * each with the device of its local rank, and sets c->device, c->perform and c->context.  timeout:
 * seconds that a rank waits in an operation; then the process ends, with a message that names the
 * operation. */
int wb__cu_ranks_id(char id[WB__CU_RANKS_ID]);
int wb__cu_ranks_start(const char id[WB__CU_RANKS_ID], double timeout, int n, wb__communicator *c);
int wb__cu_ranks_stop(void);
/* The number of CUDA devices; 0: none, and the error is set. */
int wb__cu_ranks_devices(void);
/* A rank of this process has failed, for the reason `why`.  What waits for it a second from now
 * fails, the device that waits is lost, since its memory may have the result of an unfinished
 * operation, and wb__cu_ranks_stop does not wait for other ranks. */
void wb__cu_ranks_give_up(const char *why);
int wb__cu_ranks_perform(const wb__collective *c);      /* c->perform */
/* Finds the device of a rank, as wb__cu_ranks_start does. */
int wb__cu_ranks_device(const wb__communicator *c, const wb_device **d);
/* Ends the process. */
void wb__cu_ranks_abort(void);
/* Such as "NCCL 2.27.3"; NULL: it is not usable, and the error names what is missing. */
const char *wb__cu_ranks_library(void);

/* Surrounds a call in which the host waits for a device; the end returns the code of the call. */
void wb__cu_wait_begins(void);
int wb__cu_wait_ends(int code);

#endif
