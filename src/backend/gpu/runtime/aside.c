/* Routines beside the compute queue: those of a library with `aside` run on a queue of their own
 * while later steps run.  The launch is a fork: the queue WB__GPU_ASIDE waits for an event of the
 * compute queue.  The finish is a join: the compute queue waits for an event behind the routine.
 * In a recording the same events make the routine a branch of the graph. */
#include "backend/gpu/runtime/aside.h"

typedef struct wb__gpu_aside {
    pthread_mutex_t lock;               /* held from a launch to its finish */
    /* before and after the routine: of launches, and of recordings */
    void *event[2][2];
    void *const *buffers;               /* of the launch that goes on */
} wb__gpu_aside;

int wb__gpu_aside_make(wb__gpu_device *d, wb__gpu_aside **made)
{
    wb__gpu_aside *a = wb__alloc_zero(1, sizeof *a);
    if (!a) return WB_ERROR_MEMORY;
    pthread_mutex_init(&a->lock, NULL);
    *made = a;
    int code = d->driver->open_aside(d);
    for (int i = 0; i < 4 && !code; i++) code = d->driver->new_event(&a->event[i / 2][i % 2]);
    return code ? wb__gpu_fail(d->driver, d, code, "a queue beside others") : 0;
}

void wb__gpu_aside_drop(wb__gpu_device *d, wb__gpu_aside *a)
{
    if (!a) return;
    for (int i = 0; i < 4; i++)
        if (a->event[i / 2][i % 2]) d->driver->drop_event(a->event[i / 2][i % 2]);
    pthread_mutex_destroy(&a->lock);
    wb__free(a);
}

static int fail(wb__gpu_device *d, const wb__gpu_kernel *k, int code)
{
    return wb__gpu_fail(d->driver, d, code, "%s (%s)", k->what, k->base.impl);
}

/* The queue `waiting` waits for all commands so far of the queue `other`. */
static int wait_for(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue waiting,
                    wb__gpu_queue other, void **event)
{
    int code = d->driver->record(d, other, event);
    if (!code) code = d->driver->wait_event(d, waiting, *event);
    return code ? fail(d, k, code) : 0;
}

int wb__gpu_fork(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q,
                 const wb__gpu_addresses *at)
{
    void **event = k->aside->event[q == WB__GPU_RECORDING];
    int status = wait_for(d, k, WB__GPU_ASIDE, q, &event[0]);
    if (!status) status = k->routine->library->launch(d, k->routine, WB__GPU_ASIDE, at);
    if (status) return status;
    const int code = d->driver->record(d, WB__GPU_ASIDE, &event[1]);
    return code ? fail(d, k, code) : 0;
}

int wb__gpu_join(wb__gpu_device *d, const wb__gpu_kernel *k, wb__gpu_queue q)
{
    const int code = d->driver->wait_event(d, q, k->aside->event[q == WB__GPU_RECORDING][1]);
    return code ? fail(d, k, code) : 0;
}

void wb__gpu_aside_begins(const wb__gpu_kernel *k, void *const *buffers)
{
    pthread_mutex_lock(&k->aside->lock);
    k->aside->buffers = buffers;
}

void wb__gpu_aside_ends(const wb__gpu_kernel *k) { pthread_mutex_unlock(&k->aside->lock); }

/* The join is the last use of the routine's memory. */
int wb__gpu_aside_finish(wb__gpu_device *d, const wb__gpu_kernel *k)
{
    int status = wb__gpu_enter(d);
    if (!status) {
        pthread_mutex_lock(&d->lock);
        status = wb__gpu_join(d, k, WB__GPU_COMPUTE);
        wb__gpu_issued(d, NULL);
        for (int i = 0; i < k->n_used; i++)
            ((wb__gpu_memory *)k->aside->buffers[k->used[i]])->used = d->issued;
        pthread_mutex_unlock(&d->lock);
        wb__gpu_leave(d);
    }
    wb__gpu_aside_ends(k);
    return status;
}
