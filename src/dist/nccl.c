/* Ranks connected by NCCL (backend/cuda/ranks.h).  The launcher gives each its place, and the
 * rendezvous gives all the unique id of rank 0. */
#include "dist/dist.h"

#include "backend/cuda/ranks.h"
#include "dist/place.h"
#include "dist/rendezvous.h"
#include "weber/distributed.h"

#include <stdlib.h>

#ifdef WB_HAVE_CUDA
static int start(const wb__dist_services *services, wb__communicator *c)
{
    wb__place p = {.size = 1, .local_size = 1};
    char id[WB__CU_RANKS_ID] = {0};
    int status = wb__is_launched() ? wb__launch_place(&p) : 0;
    if (status) return status;
    *c = (wb__communicator){.name = "NCCL", .rank = p.rank, .size = p.size,
                            .local_rank = p.local_rank, .local_size = p.local_size};
    if (!wb__cu_ranks_library()) return wb_error_code();
    if (!p.rank) status = wb__cu_ranks_id(id);
    const wb__rendezvous_options o = {.address = getenv("WEBER_RENDEZVOUS"), .rank = p.rank,
                                      .size = p.size, .timeout = services->timeout};
    if (!status && p.size > 1) status = wb__rendezvous(&o, id, sizeof id);
    return status ? status : wb__cu_ranks_start(id, services->timeout, c);
}

static int stop(void) { return wb__cu_ranks_stop(); }
static void abort_all(void) { wb__cu_ranks_abort(); }
static const char *library(void) { return wb__cu_ranks_library(); }
#else
static const char *library(void)
{
    return wb__fail_null(WB_ERROR_UNSUPPORTED, "NCCL: this Weber was built without CUDA: build it"
                         " with -DWEBER_CUDA=ON, or use WB_MPI");
}
static int start(const wb__dist_services *services, wb__communicator *c)
{
    (void)services, (void)c, library();
    return wb_error_code();
}
static int stop(void) { return 0; }
static void abort_all(void) {}
#endif

const wb_distributed_backend *wb_distributed_nccl(void)
{
    static const wb_distributed_backend backend = {
        .version = WB__DIST_VERSION, .name = "NCCL", .start = start, .stop = stop,
        .abort = abort_all, .library = library};
    return &backend;
}
