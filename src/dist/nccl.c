/* Ranks connected by NCCL, or by RCCL (backend/nccl/ranks.h).  The launcher gives each rank its
 * place, and the rendezvous gives all ranks the unique id of rank 0.  With .through another
 * backend, that of MPI, MPI gives places and id, and performs operations on host memory. */
#include "dist/dist.h"

#include "base/environment.h"
#include "device/device.h"
#include "dist/place.h"
#include "dist/rendezvous.h"
#include "weber/distributed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined WB_HAVE_CUDA || defined WB_HAVE_AMDGPU
#include "backend/nccl/ranks.h"

static const wb__nccl_library *const dist_nccl_libraries[] = {
#ifdef WB_HAVE_CUDA
    &wb__cu_nccl,
#endif
#ifdef WB_HAVE_AMDGPU
    &wb__hip_rccl,
#endif
};
static const wb__nccl_library *dist_nccl_used;
static const wb_distributed_backend *dist_nccl_through; /* NULL: NCCL performs all operations */
static wb__communicator dist_nccl_host;         /* communicator of `through` */

static int broadcast_bytes(int root, void *bytes, int64_t n)
{
    return dist_nccl_host.perform(&(wb__collective){.communicator = &dist_nccl_host,
                                                    .kind = WB__COLLECT_BROADCAST, .dtype = WB_U8,
                                                    .root = root, .n = n, .to = bytes});
}

/* Chooses the library for the backend of the GPU in use, or for the first backend that has a
 * device.  0 or an error code. */
static int choose_library(void)
{
    const char *in_use = wb__gpu_backend_in_use();
    char reasons[1024] = "";
    for (int other = 0; other < 2; other++)
        for (size_t i = 0; i < WB__COUNT(dist_nccl_libraries); i++) {
            const bool named = in_use &&
                               !strcmp(in_use, dist_nccl_libraries[i]->driver->backend->name);
            if (named == other) continue;
            if (wb__nccl_ranks_devices(dist_nccl_used = dist_nccl_libraries[i])) return 0;
            const size_t length = strlen(reasons);
            snprintf(reasons + length, sizeof reasons - length, "%.400s; ", wb_error());
        }
    return wb__fail(WB_ERROR_DEVICE, "WB_NCCL: there is no GPU: %suse WB_MPI, which needs none",
                    reasons);
}

/* Fails if rank 0 uses another library than this rank. */
static int dist_nccl_check_library(const wb__communicator *c, const char *name)
{
    if (!strcmp(dist_nccl_used->name, name)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "WB_NCCL: rank %d of %d uses %s, and rank 0 uses %.7s: all"
                    " need GPUs of one vendor: wb_using or WEBER_BACKENDS chooses, or use WB_MPI",
                    c->rank, c->size, dist_nccl_used->name, name);
}

/* Returns 0 if `status`, the status of this rank, is 0 on all ranks.  Otherwise fails; ranks whose
 * status is 0 get the message of a rank that has failed. */
static int fail_on_all(int status)
{
    char reason[600] = "";
    int32_t mine = status ? dist_nccl_host.rank + 1 : 0, failed = 0;
    snprintf(reason, sizeof reason, "%s", status ? wb_error() : "");
    int code = dist_nccl_host.perform(&(wb__collective){
        .communicator = &dist_nccl_host, .kind = WB__COLLECT_ALLREDUCE, .op = WB__RANKS_MAX,
        .dtype = WB_I32, .n = 1, .from = &mine, .to = &failed});
    if (!code && failed) code = broadcast_bytes(failed - 1, reason, sizeof reason);
    if (status || code || !failed) return status ? status : code;
    return wb__fail(WB_ERROR_DEVICE, "%s: rank %d of %d cannot be connected, since rank %d fails:"
                    " %s", dist_nccl_used->name, dist_nccl_host.rank, dist_nccl_host.size,
                    failed - 1, reason);
}

static int start_through(const wb__dist_services *services, wb__communicator *c)
{
    char id[WB__NCCL_RANKS_ID] = {0}, name[8] = "";
    dist_nccl_host = (wb__communicator){0};
    int status = services->through->start(services, &dist_nccl_host);
    if (status) return status;
    status = choose_library();
    *c = (wb__communicator){.name = dist_nccl_used->name, .rank = dist_nccl_host.rank,
                            .size = dist_nccl_host.size, .local_rank = dist_nccl_host.local_rank,
                            .local_size = dist_nccl_host.local_size};
    dist_nccl_through = services->through;
    if (!status) snprintf(name, sizeof name, "%s", dist_nccl_used->name);
    const int code = broadcast_bytes(0, name, sizeof name);
    if (!status) status = code || !*name ? code : dist_nccl_check_library(c, name);
    if (!status && !wb__nccl_open(dist_nccl_used)) status = wb_error_code();
    if (!status) status = wb__nccl_ranks_device(dist_nccl_used, c, &c->device);
    if (!status && !c->rank) status = wb__nccl_ranks_id(dist_nccl_used, id);
    status = fail_on_all(status);
    if (!status) status = broadcast_bytes(0, id, sizeof id);
    if (!status) status = wb__nccl_ranks_start(dist_nccl_used, id, services->timeout, 1, c);
    c->perform = dist_nccl_host.perform;
    if (!status) return 0;
    char message[1024];
    snprintf(message, sizeof message, "%s", wb_error());
    dist_nccl_through->stop();
    dist_nccl_through = NULL;
    return wb__fail(status, "%s", message);
}

/* What rank 0 sends to the other processes at the rendezvous. */
typedef struct {
    int status;                         /* 0, or the error code of rank 0, with its message */
    int devices;                        /* ranks of a process that are threads; 0: it is one rank */
    char library[8], id[WB__NCCL_RANKS_ID], message[1000];
} invitation;

/* Makes the id in the process of rank 0, and gives it, or the reason why there is none, to the
 * other processes.  c: the communicator of the first rank of this process. */
static int share_invitation(const wb__place *p, const wb__communicator *c, double timeout,
                            invitation *i)
{
    const wb__rendezvous_options o = {.address = wb__environment_path("WEBER_RENDEZVOUS"),
                                      .rank = p->rank, .size = p->size, .timeout = timeout};
    const int devices = i->devices;
    snprintf(i->library, sizeof i->library, "%s", dist_nccl_used->name);
    if (!p->rank && !i->status) i->status = wb__nccl_ranks_id(dist_nccl_used, i->id);
    if (i->status) snprintf(i->message, sizeof i->message, "%s", wb_error());
    const int status = p->size > 1 ? wb__rendezvous(&o, i, sizeof *i) : 0;
    if (i->status)
        return wb__fail(i->status, "%s%.*s", p->rank ? "rank 0 cannot connect the ranks: " : "",
                        (int)sizeof i->message, i->message);
    if (!status && i->devices != devices)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .devices is %d in this process and %d in that of"
                        " rank 0: give all processes the same", dist_nccl_used->name, devices,
                        i->devices);
    return status ? status : dist_nccl_check_library(c, i->library);
}

/* Connects the ranks of this process: the process itself, or `devices` threads.  chosen: the
 * result of `choose`, which rank 0 gives to the others. */
static int dist_nccl_connect_ranks(int chosen, double timeout, int devices, wb__communicator *c)
{
    const int n = devices ? devices : 1;
    wb__place p = {.size = 1, .local_size = 1};
    invitation i = {.status = chosen, .devices = devices};
    int status = wb__is_launched() ? wb__launch_place(&p) : 0;
    if (status) return status;
    for (int k = 0; k < n; k++)
        c[k] = (wb__communicator){.name = dist_nccl_used->name, .rank = p.rank * n + k,
                                  .size = p.size * n, .local_rank = p.local_rank * n + k,
                                  .local_size = p.local_size * n};
    if (p.rank && (chosen || !wb__nccl_open(dist_nccl_used))) return wb_error_code();
    status = share_invitation(&p, c, timeout, &i);
    return status ? status : wb__nccl_ranks_start(dist_nccl_used, i.id, timeout, n, c);
}

static int dist_nccl_start(const wb__dist_services *services, wb__communicator *c)
{
    if (services->through) return start_through(services, c);
    return dist_nccl_connect_ranks(choose_library(), services->timeout, 0, c);
}

static int dist_nccl_start_threads(const wb__dist_services *services, wb__communicator *c, int *n)
{
    const int status = choose_library(),
              there = status ? 0 : wb__nccl_ranks_devices(dist_nccl_used);
    if (!there) return wb_error_code();
    *n = services->devices < 0 ? WB__MIN(there, WB__RANKS_HERE) : services->devices;
    if (*n > there)
        return wb__fail(WB_ERROR_DEVICE, "%s: .devices is %d, and this process has %d %s device%s",
                        dist_nccl_used->name, *n, there, dist_nccl_used->driver->backend->name,
                        there > 1 ? "s" : "");
    return dist_nccl_connect_ranks(0, services->timeout, *n, c);
}

static void dist_nccl_give_up(const char *why) { wb__nccl_ranks_give_up(why); }

static int dist_nccl_stop(void)
{
    const int status = wb__nccl_ranks_stop(),
              stopped = dist_nccl_through ? dist_nccl_through->stop() : 0;
    dist_nccl_through = NULL;
    return status ? status : stopped;
}

static void dist_nccl_abort_all(void)
{
    if (dist_nccl_through) dist_nccl_through->abort();
    wb__nccl_ranks_abort();
}

static const char *dist_nccl_library(int i)
{
    return i < (int)WB__COUNT(dist_nccl_libraries) ? wb__nccl_version(dist_nccl_libraries[i])
                                                   : NULL;
}
#else
static const char *dist_nccl_library(int i)
{
    return i ? NULL : wb__fail_null(WB_ERROR_UNSUPPORTED, "NCCL: this Weber was built without CUDA"
                                    " and AMDGPU: build it with -DWEBER_CUDA=ON or"
                                    " -DWEBER_AMDGPU=ON, or use WB_MPI");
}
static int dist_nccl_start(const wb__dist_services *services, wb__communicator *c)
{
    (void)services, (void)c, dist_nccl_library(0);
    return wb_error_code();
}
static int dist_nccl_start_threads(const wb__dist_services *services, wb__communicator *c, int *n)
{
    (void)n;
    return dist_nccl_start(services, c);
}
static int dist_nccl_stop(void) { return 0; }
static void dist_nccl_give_up(const char *why) { (void)why; }
static void dist_nccl_abort_all(void) {}
#endif

const wb_distributed_backend *wb_distributed_nccl(void)
{
    static const wb_distributed_backend backend = {
        .version = WB__DIST_VERSION, .name = "NCCL", .start = dist_nccl_start,
        .start_threads = dist_nccl_start_threads, .give_up = dist_nccl_give_up,
        .stop = dist_nccl_stop, .abort = dist_nccl_abort_all, .library = dist_nccl_library,
        .goes_through = true};
    return &backend;
}
