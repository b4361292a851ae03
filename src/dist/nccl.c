/* Ranks connected by NCCL (backend/cuda/ranks.h).  The launcher gives each its place, and the
 * rendezvous gives all the unique id of rank 0. */
#include "dist/dist.h"

#include "backend/cuda/ranks.h"
#include "dist/place.h"
#include "dist/rendezvous.h"
#include "weber/distributed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WB_HAVE_CUDA
/* What rank 0 gives the others at the rendezvous. */
typedef struct {
    int status;                         /* 0, or the error code of rank 0, with its message */
    char id[WB__CU_RANKS_ID], message[1000];
} invitation;

/* Rank 0 makes the id, and the others get it, or the reason why there is none. */
static int invite(const wb__place *p, double timeout, invitation *i)
{
    const wb__rendezvous_options o = {.address = getenv("WEBER_RENDEZVOUS"), .rank = p->rank,
                                      .size = p->size, .timeout = timeout};
    memset(i, 0, sizeof *i);
    if (!p->rank)
        i->status = wb__cu_ranks_library() ? wb__cu_ranks_id(i->id) : (int)wb_error_code();
    if (i->status) snprintf(i->message, sizeof i->message, "%s", wb_error());
    const int status = p->size > 1 ? wb__rendezvous(&o, i, sizeof *i) : 0;
    if (i->status)
        return wb__fail(i->status, "%s%.*s", p->rank ? "rank 0 cannot connect the ranks: " : "",
                        (int)sizeof i->message, i->message);
    return status;
}

static int start(const wb__dist_services *services, wb__communicator *c)
{
    wb__place p = {.size = 1, .local_size = 1};
    invitation i;
    int status = wb__is_launched() ? wb__launch_place(&p) : 0;
    if (status) return status;
    *c = (wb__communicator){.name = "NCCL", .rank = p.rank, .size = p.size,
                            .local_rank = p.local_rank, .local_size = p.local_size};
    if (p.rank && !wb__cu_ranks_library()) return wb_error_code();
    status = invite(&p, services->timeout, &i);
    return status ? status : wb__cu_ranks_start(i.id, services->timeout, c);
}

static int stop(void) { return wb__cu_ranks_stop(); }
static void abort_all(void) { wb__cu_ranks_abort(); }
static const char *library(void) { return wb__cu_ranks_library(); }
#else
static int start(const wb__dist_services *services, wb__communicator *c)
{
    (void)c;
    return services->fail(WB_ERROR_UNSUPPORTED, "NCCL: this Weber was built without CUDA: build it"
                          " with -DWEBER_CUDA=ON, or use WB_MPI");
}
static int stop(void) { return 0; }
static void abort_all(void) {}
static const char *library(void) { return NULL; }
#endif

const wb_distributed_backend *wb_distributed_nccl(void)
{
    static const wb_distributed_backend backend = {
        .version = WB__DIST_VERSION, .name = "NCCL", .start = start, .stop = stop,
        .abort = abort_all, .library = library};
    return &backend;
}
