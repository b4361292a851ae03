/* The queue of collective operations, and the thread that performs them. */
#include "backend/collective.h"

#include <pthread.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;               /* guards the fields below */
    pthread_cond_t changed;
    wb__collective *waiting;            /* operations `performed` + 1 to `begun`, in order */
    int n, capacity;
    uint64_t begun, performed;
    int sleeping;                       /* threads that wait for `changed` */
    bool overlap, running, stop;        /* running: there is a thread */
    pthread_t thread;
    int status;                         /* error code of the first operation that failed, or 0 */
    char message[1024];
    wb__collective_totals totals;       /* since the last report */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const wb__communicator *_Atomic world;
const wb__communicator *wb__world(void) { return world; }
void wb__world_set(const wb__communicator *c) { world = c; }

void wb__collective_overlap(bool overlap)
{
    pthread_mutex_lock(&queue.lock);
    queue.overlap = overlap;
    pthread_mutex_unlock(&queue.lock);
}

static int64_t elements_of(const wb__view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->ndim; i++) n *= v->dims[i];
    return n;
}

wb__collective wb__collective_of(const wb__step *s, size_t *from, size_t *to)
{
    const wb__view *x = &s->views[0], *y = &s->views[1];
    const int64_t in = elements_of(x), out = elements_of(y);
    const size_t bytes = wb__dtype_size(x->dtype);
    *from = (size_t)in * bytes;
    *to = (size_t)out * bytes;
    return (wb__collective){.communicator = s->communicator,
                            .kind = (wb__collective_kind)s->collective,
                            .op = (wb__ranks_op)s->variant, .dtype = x->dtype,
                            .n = s->collective == WB__COLLECT_REDUCE_SCATTER ? out : in};
}

bool wb__collective_takes(const wb__communicator *c, const wb_device *d)
{
    return d->backend->collect && c->takes && c->takes(d);
}

/* Of the operand or the result, whichever has more. */
static int64_t bytes_of(const wb__collective *c)
{
    const bool parts = c->kind == WB__COLLECT_REDUCE_SCATTER || c->kind == WB__COLLECT_ALLGATHER;
    return c->n * (int64_t)wb__dtype_size(c->dtype) * (parts ? c->communicator->size : 1);
}

/* With the lock held.  Small operations are faster if nothing is called for nobody. */
static void wake(void)
{
    if (queue.sleeping) pthread_cond_broadcast(&queue.changed);
}

static void sleep_until_change(void)
{
    queue.sleeping++;
    pthread_cond_wait(&queue.changed, &queue.lock);
    queue.sleeping--;
}

/* With the lock held, which it gives up while the operation runs. */
static void perform(const wb__collective *c)
{
    int status = queue.status;
    if (!status) {
        const double start = wb__now();
        pthread_mutex_unlock(&queue.lock);
        status = c->device ? c->device->backend->collect(c->device, c)
                           : c->communicator->perform(c);
        pthread_mutex_lock(&queue.lock);
        queue.totals.performing += wb__now() - start;
        queue.totals.operations++;
        queue.totals.on_devices += c->device != NULL;
        queue.totals.bytes += bytes_of(c);
        if (status) {
            queue.status = status;
            snprintf(queue.message, sizeof queue.message, "%s", wb_error());
        }
    }
    queue.performed++;
    wake();
}

static void *perform_all(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (queue.n || !queue.stop) {
        if (!queue.n) {
            sleep_until_change();
            continue;
        }
        const wb__collective c = queue.waiting[0];
        queue.n--;
        for (int i = 0; i < queue.n; i++) queue.waiting[i] = queue.waiting[i + 1];
        perform(&c);
    }
    queue.running = false;
    wake();
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

/* With the lock held.  Adds an operation for the thread, which is started if there is none.
 * False: the caller must perform the operation. */
static bool enqueue(const wb__collective *c)
{
    if (!queue.overlap && !queue.n) return false;
    if (!wb__reserve(&queue.waiting, &queue.capacity, queue.n + 1, sizeof *c)) return false;
    if (!queue.running) {
        queue.stop = false;
        if (pthread_create(&queue.thread, NULL, perform_all, NULL)) return false;
        queue.running = true;
    }
    queue.waiting[queue.n++] = *c;
    wake();
    return true;
}

/* With the lock held: waits until all operations up to `number` are complete. */
static void wait_for(uint64_t number)
{
    if (queue.performed >= number) return;
    const double start = wb__now();
    while (queue.performed < number) sleep_until_change();
    queue.totals.waited += wb__now() - start;
}

uint64_t wb__collective_begin(const wb__collective *c)
{
    pthread_mutex_lock(&queue.lock);
    const uint64_t number = ++queue.begun;
    if (!enqueue(c)) {
        wait_for(number - 1);
        const double start = wb__now();
        perform(c);
        queue.totals.waited += wb__now() - start;
    }
    pthread_mutex_unlock(&queue.lock);
    return number;
}

int wb__collective_end(uint64_t number)
{
    pthread_mutex_lock(&queue.lock);
    wait_for(number);
    const int status = queue.status;
    if (status) wb__fail(status, "%s", queue.message);
    pthread_mutex_unlock(&queue.lock);
    return status;
}

void wb__collective_report(const char *what)
{
    if (!wb__debug("dist")) return;
    pthread_mutex_lock(&queue.lock);
    const wb__collective_totals t = queue.totals;
    queue.totals = (wb__collective_totals){0};
    pthread_mutex_unlock(&queue.lock);
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
    pthread_mutex_lock(&queue.lock);
    const bool busy = queue.performed < queue.begun;
    pthread_mutex_unlock(&queue.lock);
    return busy;
}

void wb__collective_stop(void)
{
    pthread_mutex_lock(&queue.lock);
    const bool joins = queue.running;
    const pthread_t thread = queue.thread;
    queue.stop = true;
    wake();
    pthread_mutex_unlock(&queue.lock);
    if (joins) pthread_join(thread, NULL);
    pthread_mutex_lock(&queue.lock);
    wb__free(queue.waiting);
    queue.waiting = NULL;
    queue.capacity = 0;
    queue.status = 0;
    pthread_mutex_unlock(&queue.lock);
}
