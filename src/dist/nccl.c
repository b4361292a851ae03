/* Ranks connected by NCCL (backend/cuda/ranks.h).  The launcher gives each its place, and the
 * rendezvous gives all the unique id of rank 0.  With .through another backend, that of MPI, gives
 * places and id, and performs all operations on the host's memory. */
#include "dist/dist.h"

#include "backend/cuda/ranks.h"
#include "dist/place.h"
#include "dist/rendezvous.h"
#include "weber/distributed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WB_HAVE_CUDA
static const wb_distributed_backend *through;   /* NULL: NCCL performs all operations */
static wb__communicator host;                   /* that of `through` */

static int from_rank(int root, void *bytes, int64_t n)
{
    return host.perform(&(wb__collective){.communicator = &host, .kind = WB__COLLECT_BROADCAST,
                                          .dtype = WB_U8, .root = root, .n = n, .to = bytes});
}

/* Returns 0 if `status`, the status of this rank, is 0 on all ranks.  Otherwise fails; ranks whose
 * status is 0 get the message of a rank that has failed. */
static int agree(int status)
{
    char reason[600] = "";
    int32_t mine = status ? host.rank + 1 : 0, failed = 0;
    snprintf(reason, sizeof reason, "%s", status ? wb_error() : "");
    int code = host.perform(&(wb__collective){
        .communicator = &host, .kind = WB__COLLECT_ALLREDUCE, .op = WB__RANKS_MAX, .dtype = WB_I32,
        .n = 1, .from = &mine, .to = &failed});
    if (!code && failed) code = from_rank(failed - 1, reason, sizeof reason);
    if (status || code || !failed) return status ? status : code;
    return wb__fail(WB_ERROR_DEVICE, "NCCL: rank %d of %d cannot be connected, since rank %d fails:"
                    " %s", host.rank, host.size, failed - 1, reason);
}

static int start_through(const wb__dist_services *services, wb__communicator *c)
{
    char id[WB__CU_RANKS_ID] = {0};
    host = (wb__communicator){0};
    int status = services->through->start(services, &host);
    if (status) return status;
    *c = (wb__communicator){.name = "NCCL", .rank = host.rank, .size = host.size,
                            .local_rank = host.local_rank, .local_size = host.local_size};
    through = services->through;
    if (!wb__cu_ranks_library()) status = wb_error_code();
    if (!status) status = wb__cu_ranks_device(c, &c->device);
    if (!status && !c->rank) status = wb__cu_ranks_id(id);
    status = agree(status);
    if (!status) status = from_rank(0, id, sizeof id);
    if (!status) status = wb__cu_ranks_start(id, services->timeout, 1, c);
    c->perform = host.perform;
    if (!status) return 0;
    char message[1024];
    snprintf(message, sizeof message, "%s", wb_error());
    through->stop();
    through = NULL;
    return wb__fail(status, "%s", message);
}

/* What rank 0 gives the other processes at the rendezvous. */
typedef struct {
    int status;                         /* 0, or the error code of rank 0, with its message */
    int devices;                        /* ranks of a process that are threads; 0: it is one rank */
    char id[WB__CU_RANKS_ID], message[1000];
} invitation;

/* The process of rank 0 makes the id, and the others get it, or the reason why there is none. */
static int invite(const wb__place *p, double timeout, invitation *i)
{
    const wb__rendezvous_options o = {.address = getenv("WEBER_RENDEZVOUS"), .rank = p->rank,
                                      .size = p->size, .timeout = timeout};
    const int devices = i->devices;
    if (!p->rank)
        i->status = wb__cu_ranks_library() ? wb__cu_ranks_id(i->id) : (int)wb_error_code();
    if (i->status) snprintf(i->message, sizeof i->message, "%s", wb_error());
    const int status = p->size > 1 ? wb__rendezvous(&o, i, sizeof *i) : 0;
    if (i->status)
        return wb__fail(i->status, "%s%.*s", p->rank ? "rank 0 cannot connect the ranks: " : "",
                        (int)sizeof i->message, i->message);
    if (!status && i->devices != devices)
        return wb__fail(WB_ERROR_ARGUMENT, "NCCL: .devices is %d in this process and %d in that of"
                        " rank 0: give all processes the same", devices, i->devices);
    return status;
}

/* Connects the ranks of this process: the process itself, or `devices` threads. */
static int connect_ranks(double timeout, int devices, wb__communicator *c)
{
    const int n = devices ? devices : 1;
    wb__place p = {.size = 1, .local_size = 1};
    invitation i = {.devices = devices};
    int status = wb__is_launched() ? wb__launch_place(&p) : 0;
    if (status) return status;
    for (int k = 0; k < n; k++)
        c[k] = (wb__communicator){.name = "NCCL", .rank = p.rank * n + k, .size = p.size * n,
                                  .local_rank = p.local_rank * n + k,
                                  .local_size = p.local_size * n};
    if (p.rank && !wb__cu_ranks_library()) return wb_error_code();
    status = invite(&p, timeout, &i);
    return status ? status : wb__cu_ranks_start(i.id, timeout, n, c);
}

static int start(const wb__dist_services *services, wb__communicator *c)
{
    return services->through ? start_through(services, c)
                             : connect_ranks(services->timeout, 0, c);
}

static int start_threads(const wb__dist_services *services, wb__communicator *c, int *n)
{
    const int there = wb__cu_ranks_devices();
    if (!there) return wb_error_code();
    *n = services->devices < 0 ? WB__MIN(there, WB__RANKS_HERE) : services->devices;
    if (*n > there)
        return wb__fail(WB_ERROR_DEVICE, "NCCL: .devices is %d, and this process has %d CUDA"
                        " device%s", *n, there, there > 1 ? "s" : "");
    return connect_ranks(services->timeout, *n, c);
}

static void give_up(const char *why) { wb__cu_ranks_give_up(why); }

static int stop(void)
{
    const int status = wb__cu_ranks_stop(), stopped = through ? through->stop() : 0;
    through = NULL;
    return status ? status : stopped;
}

static void abort_all(void)
{
    if (through) through->abort();
    wb__cu_ranks_abort();
}

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
static int start_threads(const wb__dist_services *services, wb__communicator *c, int *n)
{
    (void)n;
    return start(services, c);
}
static int stop(void) { return 0; }
static void give_up(const char *why) { (void)why; }
static void abort_all(void) {}
#endif

const wb_distributed_backend *wb_distributed_nccl(void)
{
    static const wb_distributed_backend backend = {
        .version = WB__DIST_VERSION, .name = "NCCL", .start = start,
        .start_threads = start_threads, .give_up = give_up, .stop = stop, .abort = abort_all,
        .library = library, .goes_through = true};
    return &backend;
}
