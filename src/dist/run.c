/* wb_distributed_run: the ranks of this process, each in a thread of its own. */
#include "dist/dist.h"

#include "base/mutex.h"
#include "base/numbers/philox.h"
#include "engine/object.h"
#include "weber/distributed.h"

#include <stdio.h>

static struct {
    wb__mutex lock;                     /* guards the fields below */
    bool running;
    int status;             /* result of the function of the rank that failed first; 0: none has */
    int failed, code;                   /* number of that rank; code of its error */
    char message[2048];
    wb__thrown thrown;                  /* exception of C++ that the rank's function has thrown */
} dist_run_state = {.lock = WB__MUTEX_INIT};

typedef struct {
    const wb_distributed_backend *backend;
    int (*rank)(void *ctx);             /* the function of each rank, and its argument */
    void *ctx;
    wb__rng_state rng;                  /* the random generator of wb_distributed_run's caller */
    bool seeded;                        /* wb_seed has been called, so the ranks begin with `rng` */
} dist_run;

typedef struct { const dist_run *run; int index; wb__os_thread thread; } rank_thread;

bool wb__ranks_running(void)
{
    wb__mutex_lock(&dist_run_state.lock);
    const bool running = dist_run_state.running;
    wb__mutex_unlock(&dist_run_state.lock);
    return running;
}

void wb__ranks_forget(void)
{
    wb__mutex_lock(&dist_run_state.lock);
    dist_run_state.status = 0;
    wb__mutex_unlock(&dist_run_state.lock);
}

/* Keeps the error of the first rank that failed, and makes the operations of the other ranks, which
 * would wait for that rank, fail too. */
static void report_failed_rank(const dist_run *r, int rank, int status, int code,
                               const char *message)
{
    wb__mutex_lock(&dist_run_state.lock);
    const bool first = !dist_run_state.status;
    if (first) {
        dist_run_state.status = status;
        dist_run_state.failed = rank;
        dist_run_state.code = code;
        snprintf(dist_run_state.message, sizeof dist_run_state.message, "rank %d of %d: %s", rank,
                 wb_distributed_size(), message);
        dist_run_state.thrown = wb__thrown_take();
    }
    wb__mutex_unlock(&dist_run_state.lock);
    if (first) r->backend->give_up(dist_run_state.message);
}

WB__PROGRAM_CALL(rank_call, rank_run, int, const dist_run *r;, c->r->rank(c->r->ctx))

static void *run_rank_thread(void *given)
{
    const rank_thread *t = given;
    const dist_run *r = t->run;
    wb__thread_rank = t->index + 1;
    wb__mutex_helps();                  /* another rank may wait for this one */
    if (r->seeded) wb__rng_set_state(r->rng);
    int status = wb__comparing_agree();
    if (!status) {
        wb_clear_error();
        rank_call c = {r, 0};
        status = wb__call_program(rank_run, &c) ? c.result : (int)wb_error_code();
        if (!status) status = wb__end_pending_exchange();
    }
    if (status) {
        char text[64];
        snprintf(text, sizeof text, "its function has returned %d", status);
        report_failed_rank(r, wb_distributed_rank(), status, wb__error_or(WB_ERROR_ARGUMENT),
                           *wb_error() ? wb_error() : text);
        wb__thrown_drop();              /* exception of a rank that failed later */
    }
    return NULL;
}

static int mark_running(void)
{
    int status = 0;
    wb__mutex_lock(&dist_run_state.lock);
    if (dist_run_state.running)
        status = wb__fail(WB_ERROR_ARGUMENT, "distributed_run: the ranks are running: a rank cannot"
                          " run them again");
    else if (dist_run_state.status)
        status = wb__fail(WB_ERROR_ARGUMENT, "distributed_run: rank %d has failed, and the ranks"
                          " are not connected any more: start the program again",
                          dist_run_state.failed);
    else dist_run_state.running = true;
    wb__mutex_unlock(&dist_run_state.lock);
    return status;
}

/* Runs the n ranks, and returns when all have ended. */
static void run_all_ranks(const dist_run *r, int n)
{
    rank_thread all[WB__RANKS_HERE];
    int begun = 0;
    for (; begun < n; begun++) {
        all[begun] = (rank_thread){.run = r, .index = begun};
        if (!wb__os_thread_start(&all[begun].thread, run_rank_thread, &all[begun], false)) break;
    }
    if (begun < n)
        report_failed_rank(r, wb_distributed_rank() + begun, WB_ERROR_MEMORY, WB_ERROR_MEMORY,
                           "its thread cannot be created");
    for (int i = 0; i < begun; i++) wb__os_thread_join(all[i].thread);
}

int wb_distributed_run(int (*rank)(void *ctx), void *ctx)
{
    WB__EDGE;
    dist_run r = {.backend = wb__ranks_backend(), .rank = rank, .ctx = ctx,
                  .seeded = wb__rng_seedings() > 0};
    if (!rank) return wb__fail(WB_ERROR_ARGUMENT, "distributed_run: no function");
    const int n = wb__ranks_here();
    if (!n) {
        rank_call c = {&r, 0};
        return wb__call_program(rank_run, &c) ? c.result : (int)wb_error_code();
    }
    const int status = mark_running();
    if (status) return status;
    if (r.seeded) r.rng = wb__rng_get_state();
    run_all_ranks(&r, n);
    wb__mutex_lock(&dist_run_state.lock);
    dist_run_state.running = false;
    const int first = dist_run_state.status;
    if (first) wb__fail(dist_run_state.code, "%s", dist_run_state.message);
    wb__thrown_give(dist_run_state.thrown);
    dist_run_state.thrown = (wb__thrown){0};
    wb__mutex_unlock(&dist_run_state.lock);
    return first;
}
