/* The queue of operations of each rank of this process, and the thread that performs them. */
#include "backend/collective.h"

#include "base/mutex.h"

#include <stdio.h>

typedef struct {
    wb__mutex lock;                     /* guards the fields below */
    wb__os_cond changed;
    wb__collective *waiting;            /* the operations numbered performed + 1 to begun */
    int n, capacity;
    uint64_t begun, performed;          /* how many operations have been begun, and performed */
    int sleeping;                       /* threads that wait for `changed` */
    bool overlap, running, stop;        /* the thread: is to be used, exists, must end */
    wb__os_thread thread;
    int status;                         /* error code of the first operation that failed, or 0 */
    char message[1024];
    wb__collective_totals totals;       /* since the last report */
    int rank;                           /* wb__thread_rank of the threads of this rank */
} collective_queue;

/* ---- the ranks of this process --------------------------------------------------------------- */

static const wb__communicator *_Atomic collective_world, *_Atomic collective_threads;
static _Atomic int n_threads;

const wb__communicator *wb__world(void)
{
    return wb__thread_rank ? &collective_threads[wb__thread_rank - 1] : collective_world;
}

void wb__world_set(const wb__communicator *process, const wb__communicator *ranks, int n)
{
    collective_threads = ranks;
    n_threads = n;
    collective_world = process;
}

int wb__ranks_here(void) { return n_threads; }

static collective_queue collective_queues[1 + WB__RANKS_HERE];
static wb__once collective_once = WB__ONCE_INIT;

/* A forked child does not have the queues' threads, nor the operations that they would perform. */
static void collective_in_child(void)
{
    for (int i = 0; i <= WB__RANKS_HERE; i++) {
        collective_queue *q = &collective_queues[i];
        wb__os_cond_init(&q->changed);
        q->sleeping = q->n = 0;
        q->running = q->stop = false;
        if (q->performed == q->begun || q->status) continue;
        q->status = WB_ERROR_UNSUPPORTED;
        snprintf(q->message, sizeof q->message, "the parent process had begun an operation of the"
                 " ranks at the time of fork; a child process is no rank");
        q->performed = q->begun;
    }
}

static void make_queues(void)
{
    static wb__fork_handler child = {.f = collective_in_child};
    wb__at_fork(&child);
    for (int i = 0; i <= WB__RANKS_HERE; i++) {
        wb__mutex_init(&collective_queues[i].lock);
        wb__os_cond_init(&collective_queues[i].changed);
        collective_queues[i].rank = i;
    }
}

/* The queue of the calling thread's rank. */
static collective_queue *own_queue(void)
{
    wb__once_run(&collective_once, make_queues);
    return &collective_queues[wb__thread_rank];
}

/* ---- operations ------------------------------------------------------------------------------ */

void wb__collective_set_overlap(bool overlap)
{
    wb__once_run(&collective_once, make_queues);
    for (int i = 0; i <= WB__RANKS_HERE; i++) {
        wb__mutex_lock(&collective_queues[i].lock);
        collective_queues[i].overlap = overlap;
        wb__mutex_unlock(&collective_queues[i].lock);
    }
}

static int64_t collective_elements_of(const wb__view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->ndim; i++) n *= v->dims[i];
    return n;
}

wb__collective wb__collective_of(const wb__step *s, size_t *from, size_t *to)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    const int64_t in = collective_elements_of(x), out = collective_elements_of(y);
    const size_t bytes = wb__dtype_size(x->dtype);
    *from = (size_t)in * bytes;
    *to = (size_t)out * bytes;
    return (wb__collective){.communicator = s->communicator,
                            .kind = (wb__collective_kind)s->collective,
                            .op = (wb__ranks_op)s->variant, .dtype = x->dtype,
                            .n = s->collective == WB__COLLECT_REDUCE_SCATTER ? out : in};
}

bool wb__collective_takes_addresses_of(const wb__communicator *c, const wb_device *d)
{
    return d->backend->collect && c->takes && c->takes(d);
}

/* Returns the bytes of the operand or of the result, whichever is larger. */
static int64_t collective_bytes_of(const wb__collective *c)
{
    const bool parts = c->kind == WB__COLLECT_REDUCE_SCATTER || c->kind == WB__COLLECT_ALLGATHER;
    return c->n * (int64_t)wb__dtype_size(c->dtype) * (parts ? c->communicator->size : 1);
}

/* With the lock held: wakes the threads that wait.  If none waits, sends no signal, which makes
 * small operations faster. */
static void collective_wake(collective_queue *q) { if (q->sleeping) wb__os_cond_wake(&q->changed); }

static void sleep_until_change(collective_queue *q)
{
    q->sleeping++;
    wb__mutex_wait(&q->changed, &q->lock);
    q->sleeping--;
}

/* With the lock held: performs an operation, and gives up the lock while the operation runs. */
static void collective_perform(collective_queue *q, const wb__collective *c)
{
    int status = q->status;
    if (!status) {
        const double start = wb__now();
        wb__mutex_unlock(&q->lock);
        status = c->device ? c->device->backend->collect(c->device, c)
                           : c->communicator->perform(c);
        wb__mutex_lock(&q->lock);
        q->totals.performing += wb__now() - start;
        q->totals.operations++;
        q->totals.on_devices += c->device != NULL;
        q->totals.bytes += collective_bytes_of(c);
        if (status) {
            q->status = status;
            snprintf(q->message, sizeof q->message, "%s", wb_error());
        }
    }
    q->performed++;
    collective_wake(q);
}

static void *collective_run_thread(void *given)
{
    collective_queue *q = given;
    wb__thread_rank = q->rank;
    wb__mutex_helps();
    wb__mutex_lock(&q->lock);
    while (q->n || !q->stop) {
        if (!q->n) {
            sleep_until_change(q);
            continue;
        }
        const wb__collective c = q->waiting[0];
        q->n--;
        for (int i = 0; i < q->n; i++) q->waiting[i] = q->waiting[i + 1];
        wb__modes_take(c.modes);
        collective_perform(q, &c);
    }
    q->running = false;
    collective_wake(q);
    wb__mutex_unlock(&q->lock);
    return NULL;
}

/* With the lock held: adds an operation to the queue of the thread, which is started if it does not
 * run.  False: the caller must perform the operation. */
static bool collective_enqueue(collective_queue *q, const wb__collective *c)
{
    if (!q->overlap && !q->n) return false;
    if (!wb__reserve(&q->waiting, &q->capacity, q->n + 1, sizeof *c)) return false;
    if (!q->running) {
        q->stop = false;
        if (!wb__os_thread_start(&q->thread, collective_run_thread, q, false)) return false;
        q->running = true;
    }
    q->waiting[q->n] = *c;
    q->waiting[q->n++].modes = wb__modes_now();
    collective_wake(q);
    return true;
}

/* With the lock held: waits until all operations up to `number` are complete. */
static void collective_wait_for(collective_queue *q, uint64_t number)
{
    if (q->performed >= number) return;
    const double start = wb__now();
    while (q->performed < number) sleep_until_change(q);
    q->totals.waited += wb__now() - start;
}

uint64_t wb__collective_begin(const wb__collective *c)
{
    collective_queue *q = own_queue();
    wb__mutex_lock(&q->lock);
    const uint64_t number = ++q->begun;
    if (!collective_enqueue(q, c)) {
        collective_wait_for(q, number - 1);
        const double start = wb__now();
        collective_perform(q, c);
        q->totals.waited += wb__now() - start;
    }
    wb__mutex_unlock(&q->lock);
    return number;
}

int wb__collective_end(uint64_t number)
{
    collective_queue *q = own_queue();
    wb__mutex_lock(&q->lock);
    collective_wait_for(q, number);
    const int status = q->status;
    if (status) wb__fail(status, "%s", q->message);
    wb__mutex_unlock(&q->lock);
    return status;
}

void wb__collective_report(const char *what)
{
    collective_queue *q = own_queue();
    if (!wb__debug("dist")) return;
    wb__mutex_lock(&q->lock);
    const wb__collective_totals t = q->totals;
    q->totals = (wb__collective_totals){0};
    wb__mutex_unlock(&q->lock);
    if (!t.operations) return;
    char where[64] = "";
    if (t.on_devices)
        snprintf(where, sizeof where, ", %lld on a device's memory", (long long)t.on_devices);
    const double hidden = t.performing > t.waited ? t.performing - t.waited : 0;
    wb__log(WB_LOG_DEBUG, "dist: rank %d: %s: %lld operation%s%s, %lld bytes, %.3f ms of which"
            " %.3f ms waited for: overlap %.0f %%", wb__world() ? wb__world()->rank : 0, what,
            (long long)t.operations, t.operations == 1 ? "" : "s", where, (long long)t.bytes,
            1e3 * t.performing, 1e3 * t.waited,
            t.performing > 0 ? 100 * hidden / t.performing : 0);
}

bool wb__collective_busy(void)
{
    collective_queue *q = own_queue();
    wb__mutex_lock(&q->lock);
    const bool busy = q->performed < q->begun;
    wb__mutex_unlock(&q->lock);
    return busy;
}

static void collective_stop(collective_queue *q)
{
    wb__mutex_lock(&q->lock);
    const bool joins = q->running;
    const wb__os_thread thread = q->thread;
    q->stop = true;
    collective_wake(q);
    wb__mutex_unlock(&q->lock);
    if (joins) wb__os_thread_join(thread);
    wb__mutex_lock(&q->lock);
    wb__free(q->waiting);
    q->waiting = NULL;
    q->capacity = 0;
    q->status = 0;
    wb__mutex_unlock(&q->lock);
}

void wb__collective_stop(void)
{
    wb__once_run(&collective_once, make_queues);
    for (int i = 0; i <= WB__RANKS_HERE; i++) collective_stop(&collective_queues[i]);
}
