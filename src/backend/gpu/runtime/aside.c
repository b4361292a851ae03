/* Routines beside the compute queue: those of a library with `aside` run on a queue of their own
 * while later steps run.  The launch is a fork: the queue WB__GPU_ASIDE waits for an event of the
 * compute queue.  The finish is a join: the compute queue waits for an event behind the routine. */
#include "backend/gpu/runtime/aside.h"

typedef struct wb__gpu_aside {
    wb__mutex lock;                     /* held from a launch to its finish */
    void *before, *after;               /* events of the queues before and after the routine */
    void *const *buffers;               /* buffers of the launch that is not finished yet */
} wb__gpu_aside;

int wb__gpu_aside_make(wb__gpu_device *d, wb__gpu_aside **made)
{
    wb__gpu_aside *a = wb__alloc_zero(1, sizeof *a);
    if (!a) return WB_ERROR_MEMORY;
    wb__mutex_init(&a->lock);
    *made = a;
    int code = d->driver->open_queue(d, WB__GPU_ASIDE);
    if (!code) code = d->driver->new_event(&a->before);
    if (!code) code = d->driver->new_event(&a->after);
    return code ? wb__gpu_fail(d->driver, d, code, "a queue beside others") : 0;
}

void wb__gpu_aside_drop(wb__gpu_device *d, wb__gpu_aside *a)
{
    if (!a) return;
    if (a->before) d->driver->drop_event(a->before);
    if (a->after) d->driver->drop_event(a->after);
    wb__mutex_destroy(&a->lock);
    wb__free(a);
}

static int aside_fail(wb__gpu_device *d, const wb__gpu_kernel *k, int code)
{
    return wb__gpu_fail(d->driver, d, code, "%s (%s)", k->what, k->base.impl);
}

int wb__gpu_aside_fork(wb__gpu_device *d, const wb__gpu_kernel *k, const wb__gpu_addresses *at)
{
    int code = d->driver->record(d, WB__GPU_COMPUTE, &k->aside->before);
    if (!code) code = d->driver->wait_event(d, WB__GPU_ASIDE, k->aside->before);
    if (code) return aside_fail(d, k, code);
    const int status = k->routine->library->launch(d, k->routine, WB__GPU_ASIDE, at);
    if (status) return status;
    code = d->driver->record(d, WB__GPU_ASIDE, &k->aside->after);
    return code ? aside_fail(d, k, code) : 0;
}

int wb__gpu_aside_join(wb__gpu_device *d, const wb__gpu_kernel *k)
{
    const int code = d->driver->wait_event(d, WB__GPU_COMPUTE, k->aside->after);
    return code ? aside_fail(d, k, code) : 0;
}

void wb__gpu_aside_begins(const wb__gpu_kernel *k, void *const *buffers)
{
    wb__mutex_lock(&k->aside->lock);
    k->aside->buffers = buffers;
}

void wb__gpu_aside_ends(const wb__gpu_kernel *k) { wb__mutex_unlock(&k->aside->lock); }

/* Ends a launch: joins the queues, which is the last use of the routine's memory. */
int wb__gpu_aside_finish(wb__gpu_device *d, const wb__gpu_kernel *k)
{
    int status = wb__gpu_enter(d);
    if (!status) {
        wb__mutex_lock(&d->lock);
        status = wb__gpu_aside_join(d, k);
        wb__gpu_count_command(d, NULL);
        for (int i = 0; i < k->n_used; i++)
            ((wb__gpu_memory *)k->aside->buffers[k->used[i]])->used = d->issued;
        wb__mutex_unlock(&d->lock);
        wb__gpu_leave(d);
    }
    wb__gpu_aside_ends(k);
    return status;
}
