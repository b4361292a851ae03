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
    bool overlap, running, stop;        /* running: there is a thread */
    pthread_t thread;
    int status;                         /* error code of the first operation that failed, or 0 */
    char message[1024];
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

/* With the lock held, which it gives up while the operation runs. */
static void perform(const wb__collective *c)
{
    int status = queue.status;
    if (!status) {
        pthread_mutex_unlock(&queue.lock);
        status = c->communicator->perform(c);
        pthread_mutex_lock(&queue.lock);
        if (status) {
            queue.status = status;
            snprintf(queue.message, sizeof queue.message, "%s", wb_error());
        }
    }
    queue.performed++;
    pthread_cond_broadcast(&queue.changed);
}

static void *perform_all(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (queue.n || !queue.stop) {
        if (!queue.n) {
            pthread_cond_wait(&queue.changed, &queue.lock);
            continue;
        }
        const wb__collective c = queue.waiting[0];
        queue.n--;
        for (int i = 0; i < queue.n; i++) queue.waiting[i] = queue.waiting[i + 1];
        perform(&c);
    }
    queue.running = false;
    pthread_cond_broadcast(&queue.changed);
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
    pthread_cond_broadcast(&queue.changed);
    return true;
}

/* With the lock held: waits until all operations up to `number` are complete. */
static void wait_for(uint64_t number)
{
    while (queue.performed < number) pthread_cond_wait(&queue.changed, &queue.lock);
}

uint64_t wb__collective_begin(const wb__collective *c)
{
    pthread_mutex_lock(&queue.lock);
    const uint64_t number = ++queue.begun;
    if (!enqueue(c)) {
        wait_for(number - 1);
        perform(c);
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
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    if (joins) pthread_join(thread, NULL);
    pthread_mutex_lock(&queue.lock);
    wb__free(queue.waiting);
    queue.waiting = NULL;
    queue.capacity = 0;
    queue.status = 0;
    pthread_mutex_unlock(&queue.lock);
}
