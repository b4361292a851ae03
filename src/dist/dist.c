/* Connecting the ranks, and disconnecting them when the process ends. */
#include "dist/dist.h"

#include "base/environment.h"
#include "base/mutex.h"
#include "base/options.h"
#include "base/parallel.h"
#include "base/os.h"
#include "device/device.h"
#include "engine/request.h"
#include "engine/tensor.h"
#include "weber/distributed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wb__mutex dist_lock = WB__MUTEX_INIT; /* guards the fields below */
static const wb_distributed_backend *dist_backend;          /* NULL: the ranks are not connected */
static wb__communicator dist_communicator;                  /* the communicator of the process */
static wb__communicator dist_ranks[WB__RANKS_HERE];     /* one for each rank that is a thread */
static int dist_n_ranks;
static long dist_process;                       /* number of the process that connected the ranks */
static wb__dist_services dist_services;

/* ---- the end of the process ------------------------------------------------------------------ */

/* Ends the other ranks, which would wait for this process, if the process ends and has failed.
 * During an operation the process does not end by itself: the backend ends it, since another rank
 * has ended.  A child of fork is no rank, and its end does not concern the others. */
static void end_ranks_at_exit(bool failed)
{
    if (!wb__world() || dist_process != wb__os_process() || wb__collective_busy()) return;
    if (!failed) {
        wb_distributed_finalize();
        return;
    }
    fprintf(stderr, "weber: %s: rank %d of %d ends with an error, and ends all ranks%s%s\n",
            wb__world()->name, wb__world()->rank, wb__world()->size, *wb_error() ? ": " : "",
            wb_error());
    dist_backend->abort();
}

#ifdef __GLIBC__
static void dist_on_end(int status, void *unused)
{
    (void)unused;
    end_ranks_at_exit(status != 0);
}
static bool register_end(void) { return !on_exit(dist_on_end, NULL); }
#else
static void dist_on_end(void) { end_ranks_at_exit(wb_error_code() != 0); }
static bool register_end(void) { return !atexit(dist_on_end); }
#endif

/* ---- connecting ------------------------------------------------------------------------------ */

/* Whether an operation may run in a thread of its own beside the threads that compute. */
static bool has_spare_processors(void)
{
    return wb__environment_switch("WEBER_DISTRIBUTED_OVERLAP",
                      (wb__threads() + 1) * dist_communicator.local_size <= wb__os_processors());
}

/* The functions below are called with the lock held. */

static void forget_ranks(void)
{
    wb__collective_stop();
    wb__world_set(NULL, NULL, 0);
    wb__ranks_forget();
    wb__log_without_info(false);
    /* frees graphs that contain operations of the ranks */
    if (dist_communicator.device || dist_n_ranks) wb__cache_clear();
    dist_backend = NULL;
    dist_n_ranks = 0;
}

/* Fails: `perform` of the process's communicator if the ranks are threads, which its caller is
 * not. */
static int refuse_operation(const wb__collective *c)
{
    (void)c;
    return wb__fail(WB_ERROR_ARGUMENT, "distributed: this thread is no rank: with .devices the"
                    " ranks are the threads of wb_distributed_run, and functions in which all take"
                    " part are called there");
}

/* Connects the ranks that are threads of this process. */
static int dist_start_threads(const wb_distributed_backend *b)
{
    if (!b->start_threads)
        return wb__fail(WB_ERROR_UNSUPPORTED, "distributed_initialize: .devices: with %s a process"
                        " is one rank: leave it out, and start a process for each", b->name);
    memset(dist_ranks, 0, sizeof dist_ranks);
    const int status = b->start_threads(&dist_services, dist_ranks, &dist_n_ranks);
    if (status) dist_n_ranks = 0;
    dist_communicator = dist_ranks[0];
    dist_communicator.device = NULL;
    dist_communicator.context = NULL;
    dist_communicator.perform = refuse_operation;
    return status;
}

static int dist_check_version(const wb_distributed_backend *b)
{
    if (!b || b->version == WB__DIST_VERSION) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: libweber is version %s, and the"
                    " library of %s was built with %d.%d.%d: install both from one build",
                    wb_version(), b->name, b->version / 10000, b->version / 100 % 100,
                    b->version % 100);
}

static int check_option_through(const wb_distributed_backend *b,
                                const wb_distributed_initialize_options *o)
{
    const wb_distributed_backend *through = o->through;
    if (through && o->devices)
        return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: .devices and .through exclude"
                        " each other: leave one out");
    if (!through || (b->goes_through && !through->goes_through)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: %s cannot connect the ranks through"
                    " %s: leave out .through", b->name, through->name);
}

static int dist_connect_ranks(const wb_distributed_backend *b,
                              const wb_distributed_initialize_options *o)
{
    static bool registered;
    int status = dist_check_version(b);
    if (!status) status = dist_check_version(o->through);
    if (!status) status = check_option_through(b, o);
    if (status) return status;
    if (dist_backend)
        return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: the ranks are connected"
                        " already, by %s", dist_communicator.name);
    dist_communicator = (wb__communicator){0};
    dist_services = (wb__dist_services){.timeout = o->timeout, .devices = o->devices,
                                        .through = o->through, .fail = wb__fail,
                                        .preference = wb__preference_bool};
    status = o->devices ? dist_start_threads(b) : b->start(&dist_services, &dist_communicator);
    if (status) return status;
    dist_backend = b;
    dist_process = wb__os_process();
    if (!registered) registered = register_end();
    wb__collective_set_overlap(has_spare_processors());
    wb__world_set(&dist_communicator, dist_ranks, dist_n_ranks);
    wb__log_without_info(dist_communicator.rank > 0);
    wb_reset_gpu_device();              /* the GPU depends on the rank */
    const int agreed = dist_n_ranks ? 0 : wb__comparing_agree();
    if (agreed) forget_ranks();         /* without `stop`, which would fail too */
    return agreed;
}

int wb_distributed_initialize_with(const wb_distributed_backend *b,
                                   const wb_distributed_initialize_options *given)
{
    wb_distributed_initialize_options o;
    if (WB__NULL(b)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__read_options("distributed_initialize", wb_distributed_initialize_options, &o, given,
                          NULL))
        return wb_error_code();
    if (!(o.timeout > 0) || !isfinite(o.timeout))
        return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: .timeout is %g; it is a number"
                        " of seconds above 0", o.timeout);
    if (o.devices < -1 || o.devices > WB__RANKS_HERE)
        return wb__fail(WB_ERROR_ARGUMENT, "distributed_initialize: .devices is %d: it is the"
                        " number of ranks of this process, at most %d, or -1 for one on each"
                        " device", o.devices, WB__RANKS_HERE);
    wb__mutex_lock(&dist_lock);
    const int status = dist_connect_ranks(b, &o);
    wb__mutex_unlock(&dist_lock);
    return status;
}

int wb_distributed_finalize(void)
{
    WB__FIRST(wb_distributed_finalize, wb_error_code());
    if (wb__ranks_running())
        return wb__fail(WB_ERROR_ARGUMENT, "distributed_finalize: wb_distributed_run has not"
                        " returned");
    int status = wb__end_pending_exchange();
    wb__mutex_lock(&dist_lock);
    if (dist_backend) {
        const wb_distributed_backend *b = dist_backend;
        forget_ranks();
        const int stopped = b->stop();
        if (!status) status = stopped;
    }
    wb__mutex_unlock(&dist_lock);
    return status;
}

const wb_distributed_backend *wb__ranks_backend(void)
{
    wb__mutex_lock(&dist_lock);
    const wb_distributed_backend *b = dist_backend;
    wb__mutex_unlock(&dist_lock);
    return b;
}

bool wb_distributed_initialized(void) { return wb__world(); }

int wb_distributed_rank(void)
{
    const wb__communicator *c = wb__world();
    return c ? c->rank : 0;
}

int wb_distributed_size(void)
{
    const wb__communicator *c = wb__world();
    return c ? c->size : 1;
}

int wb_distributed_local_rank(void)
{
    const wb__communicator *c = wb__world();
    return c ? c->local_rank : 0;
}

int wb_distributed_barrier(void)
{
    WB__FIRST(wb_distributed_barrier, wb_error_code());
    const wb__collective c = {.communicator = wb__world(), .kind = WB__COLLECT_BARRIER};
    const int status = wb__end_pending_exchange();
    if (status || !c.communicator) return status;
    return wb__collective_end(wb__collective_begin(&c));
}
