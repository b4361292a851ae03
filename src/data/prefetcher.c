/* The thread that prepares batches. wb__data_lock guards the fields that this thread shares with
 * the loader's thread, such as:
 *
 *   next .. last-1    batches that are not started yet
 *   busy              the thread is preparing a batch
 *   ready             a ring of at most `ahead` prefetched batches, the oldest at `head`
 *
 * The first epoch starts the thread. Between epochs the thread sleeps. A child process of fork has
 * no such thread and starts its own. At exit of the process all threads are asked to end and are
 * joined for up to a second, so that they do not read objects that are being destroyed. */
#include "data/prefetcher.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct wb__prefetcher {
    const wb_dataset *dataset, *root;
    wb_collate collate;
    void *ctx;
    wb__target target;
    bool on_host;                       /* the dataset is on the CPU; buffers hold its batches */
    bool finished_tensors;              /* prefetched batches are evaluated tensors, not buffers */
    int64_t batchsize;
    int64_t *index;                     /* observation indices of one batch */
    wb__buffer_pool *pool;
    const uint32_t *order;
    int64_t next, last;
    int ahead, head, count;
    wb__prefetched *ready;
    char message[1024];                 /* message of a failed batch; a failure ends the epoch */
    bool started, alive, busy, quit;    /* started: the thread must be joined */
    pid_t process;                      /* the process that started the thread */
    int rank;                           /* wb__thread_rank of the thread */
    pthread_t thread;
    pthread_cond_t work, news;
    wb__prefetcher *next_alive;
};

static wb__prefetcher *all_alive;           /* linked list of the prefetchers with a thread */
static _Thread_local bool is_prefetcher;
/* The prefetcher whose batch this thread is preparing, or NULL. */
static _Thread_local const wb__prefetcher *preparing;
static bool exiting;

/* ---- one batch ------------------------------------------------------------------------------- */

static void fill_index(wb__prefetcher *f, wb__prefetched *fetched)
{
    int64_t first = fetched->index * f->batchsize;
    fetched->n = WB__MIN(f->batchsize, f->dataset->n - first);
    for (int64_t i = 0; i < fetched->n; i++)
        f->index[i] = f->order ? (int64_t)f->order[first + i] : first + i;
}

/* Makes the tensors of a batch in the current scope, on the memory of its buffer. Takes the buffer
 * from *fetched, also on failure. The buffer returns to its pool when the last of these
 * tensors is freed. */
static int wrap(const wb_dataset *root, wb__prefetched *fetched, wb_batch *batch)
{
    wb__batch_buffer *buffer = fetched->buffer;
    int made;
    fetched->buffer = NULL;
    int fields = 0;
    for (int k = 0; k < root->n_fields; k++) fields += root->field[k].present;
    buffer->holders = fields;
    int status = wb__dataset_wrap(root, fetched->n, buffer->data, wb__buffer_release, buffer,
                                  batch, &made);
    batch->index = fetched->index;
    for (; made < fields; made++) wb__buffer_release(NULL, buffer);
    return status;
}

static wb_tensor *sent(const wb__target *t, wb_tensor *x)
{
    wb_dtype from = wb_dtype_of(x), to = wb__target_dtype(t, from);
    return wb__tensor_to(x, t->device, to == from ? WB_KEEP : to);
}

/* Makes the tensors of the batch, applies maps and the collate function, and moves the tensors to
 * the target device, if there is one. Evaluates the results and replaces variables by copies. */
static int make_tensors(wb__prefetcher *f, wb__prefetched *fetched, wb_batch *batch)
{
    int status = f->on_host ? wrap(f->root, fetched, batch)
                            : wb__dataset_gather(f->dataset, fetched->n, f->index, batch);
    batch->index = fetched->index;
    if (!status) status = wb__dataset_apply(f->dataset, batch);
    if (!status && f->collate) status = wb__collate_call(f->collate, f->ctx, batch, "collate");
    for (int k = wb__batch_fields(batch) - 1; !status && f->target.device && k >= 0; k--) {
        wb_tensor **x = wb__batch_at(batch, k);
        if (!(*x = sent(&f->target, *x))) status = wb_error_code();
    }
    return status ? status : wb__batch_evaluate(batch);
}

/* Calls make_tensors in a scope of its own and stores references to the tensors in *fetched. During
 * the call the dataset's device is the default device, for tensors that maps and the collate
 * function create. */
static int finish_tensors(wb__prefetcher *f, wb__prefetched *fetched)
{
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    wb_batch batch;
    const wb_device *was = wb__use_device(f->root->device);
    int status = make_tensors(f, fetched, &batch);
    wb__use_device(was);
    if (!status) {
        for (int k = wb__batch_fields(&batch) - 1; k >= 0; k--) wb__ref(*wb__batch_at(&batch, k));
        fetched->batch = batch;
        fetched->n = batch.n;
    }
    int closed = wb_scope_close(s);
    return status ? status : closed;
}

static wb__prefetched prepare(wb__prefetcher *f, int64_t index, bool parallel)
{
    wb__prefetched fetched = {
        .index = index, .buffer = f->on_host ? wb__buffer_take(f->pool) : NULL};
    fill_index(f, &fetched);
    int status = f->on_host && !fetched.buffer ? WB_ERROR_MEMORY : 0;
    const wb__prefetcher *outer = preparing;
    preparing = f;
    if (fetched.buffer)
        status = wb__dataset_fill(f->dataset, fetched.n, f->index, fetched.buffer->data, parallel);
    if (!status && f->finished_tensors) status = finish_tensors(f, &fetched);
    preparing = outer;
    if (!status) return fetched;
    wb__prefetched_drop(&fetched);
    snprintf(f->message, sizeof f->message, "batch %lld: %s", (long long)index, wb_error());
    return (wb__prefetched){.index = index, .code = status, .message = f->message};
}

bool wb__prefetcher_prepares(const wb__prefetcher *f) { return preparing == f; }

void wb__prefetched_drop(wb__prefetched *fetched)
{
    wb__buffer_give(fetched->buffer);
    for (int k = 0; k < WB__FIELDS; k++) wb__unref(*wb__batch_at(&fetched->batch, k));
    fetched->buffer = NULL;
    fetched->batch = (wb_batch){0};
}

int wb__prefetched_open(const wb__prefetcher *f, wb__prefetched *fetched, wb_batch *batch)
{
    if (fetched->code) return wb__fail(fetched->code, "%s", fetched->message);
    if (fetched->buffer) return wrap(f->root, fetched, batch);
    *batch = (wb_batch){.n = fetched->n, .index = fetched->index, .names = fetched->batch.names};
    for (int k = 0; k < WB__FIELDS; k++) {
        wb_tensor **from = wb__batch_at(&fetched->batch, k), *x = *from;
        *from = NULL;
        if (!x) continue;
        if ((*wb__batch_at(batch, k) = wb__scope_give(x))) continue;
        wb__prefetched_drop(fetched);
        return wb_error_code();
    }
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool has_work(const wb__prefetcher *f) { return f->next < f->last && f->count < f->ahead; }

static void *run(void *given)
{
    wb__prefetcher *f = given;
    is_prefetcher = true;
    wb__thread_rank = f->rank;
    wb__data_lock();
    while (!f->quit) {
        if (!has_work(f)) {
            pthread_cond_wait(&f->work, &wb__data_mutex);
            continue;
        }
        int64_t index = f->next++;
        f->busy = true;
        wb__data_unlock();
        wb__prefetched fetched = prepare(f, index, false);
        wb__data_lock();
        f->busy = false;
        f->ready[(f->head + f->count++) % f->ahead] = fetched;
        if (fetched.code) f->last = f->next;
        pthread_cond_broadcast(&f->news);
    }
    f->alive = false;
    pthread_cond_broadcast(&f->news);
    wb__data_unlock();
    return NULL;
}

static void at_exit(void)
{
    if (is_prefetcher) return;      /* a function of the program called exit on this thread */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    wb__data_lock();
    exiting = true;
    for (wb__prefetcher *f = all_alive; f; f = f->next_alive) {
        f->quit = true;
        pthread_cond_broadcast(&f->work);
    }
    for (wb__prefetcher *f = all_alive; f; f = f->next_alive) {
        if (!f->started || f->process != getpid()) continue;
        while (f->alive)
            if (pthread_cond_timedwait(&f->news, &wb__data_mutex, &until)) break;
        if (f->alive) continue;
        f->started = false;
        /* The lock is not held during pthread_join. `exiting` keeps the list from growing. */
        wb__data_unlock();
        pthread_join(f->thread, NULL);
        wb__data_lock();
    }
    wb__data_unlock();
}

/* Starts the thread with all signals blocked, so that only the program's threads get signals. */
static bool start_thread(wb__prefetcher *f)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&f->thread, NULL, run, f) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

static void unlist(wb__prefetcher *f)
{
    for (wb__prefetcher **at = &all_alive; *at; at = &(*at)->next_alive)
        if (*at == f) {
            *at = f->next_alive;
            return;
        }
}

/* Starts the thread unless this process has started one. The caller holds the lock. If the thread
 * cannot be started, the loader's thread prepares the batches. */
static void ensure_thread(wb__prefetcher *f)
{
    static bool registered;
    if (f->process != getpid()) {
        /* After fork this process has no thread. The batch that the parent's thread was preparing
         * is the next batch here. */
        if (f->process && f->started) {
            if (f->busy) f->next--;
            pthread_cond_init(&f->work, NULL);
            pthread_cond_init(&f->news, NULL);
            f->started = f->alive = f->busy = false;
        }
        f->process = getpid();
    }
    if (f->started || !f->ahead || exiting) return;
    if (!registered) registered = atexit(at_exit) == 0;
    f->alive = true;
    f->rank = wb__thread_rank;
    f->started = start_thread(f);
    f->alive = f->started;
    if (!f->started) return;
    unlist(f);
    f->next_alive = all_alive;
    all_alive = f;
}

/* ---- an epoch -------------------------------------------------------------------------------- */

wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, int64_t batchsize, int ahead,
                                   wb_collate collate, void *ctx, const wb__target *target)
{
    wb__prefetcher *f = wb__alloc_zero(1, sizeof *f);
    if (!f) return NULL;
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->news, NULL);
    f->dataset = d;
    f->root = wb__dataset_root(d);
    f->collate = collate;
    f->ctx = ctx;
    f->target = *target;
    f->on_host = wb__dataset_on_host(d);
    f->finished_tensors = collate || target->device || !f->on_host || wb__dataset_mapped(d);
    f->batchsize = batchsize;
    f->ahead = ahead;
    size_t bytes[WB__FIELDS];
    for (int k = 0; k < f->root->n_fields; k++)
        bytes[k] = (size_t)(batchsize * f->root->field[k].bytes);
    f->index = wb__alloc_zero((size_t)batchsize, sizeof *f->index);
    f->ready = wb__alloc_zero((size_t)WB__MAX(ahead, 1), sizeof *f->ready);
    f->pool = wb__buffer_pool_new(f->root->n_fields, bytes, ahead + 1);
    if (f->index && f->ready && f->pool) return f;
    wb__prefetcher_free(f);
    return NULL;
}

void wb__prefetcher_free(wb__prefetcher *f)
{
    if (!f) return;
    wb__data_lock();
    bool ours = f->process == 0 || f->process == getpid(), join = f->started && ours;
    f->quit = true;
    pthread_cond_broadcast(&f->work);
    unlist(f);
    wb__data_unlock();
    if (join) pthread_join(f->thread, NULL);
    for (int i = 0; i < f->count; i++) wb__prefetched_drop(&f->ready[(f->head + i) % f->ahead]);
    /* In a child process of fork the condition variables are not destroyed, because
     * pthread_cond_destroy might wait for the parent's thread. */
    if (ours) {
        pthread_cond_destroy(&f->work);
        pthread_cond_destroy(&f->news);
    }
    wb__buffer_pool_close(f->pool);
    wb__free(f->index);
    wb__free(f->ready);
    wb__free(f);
}

int wb__prefetcher_start(wb__prefetcher *f, const uint32_t *order, int64_t first, int64_t last)
{
    const int status = f->on_host ? wb__buffer_pool_fill(f->pool) : 0;
    if (status) return status;
    wb__data_lock();
    f->order = order;
    f->next = first;
    f->last = last;
    ensure_thread(f);
    pthread_cond_broadcast(&f->work);
    wb__data_unlock();
    return 0;
}

/* Takes the oldest prefetched batch. The caller holds the lock. False: no batch is ready. */
static bool pop(wb__prefetcher *f, wb__prefetched *fetched)
{
    if (!f->count) return false;
    *fetched = f->ready[f->head];
    f->head = (f->head + 1) % f->ahead;
    f->count--;
    return true;
}

void wb__prefetcher_stop(wb__prefetcher *f)
{
    wb__data_lock();
    ensure_thread(f);
    f->last = f->next;
    while (f->busy && f->alive) pthread_cond_wait(&f->news, &wb__data_mutex);
    for (wb__prefetched fetched; pop(f, &fetched);) {
        wb__data_unlock();              /* wb__prefetched_drop takes the lock */
        wb__prefetched_drop(&fetched);
        wb__data_lock();
    }
    wb__data_unlock();
}

wb__prefetched wb__prefetcher_next(wb__prefetcher *f)
{
    wb__prefetched fetched;
    wb__data_lock();
    ensure_thread(f);
    while (!f->count && f->alive && !f->quit && (f->busy || f->next < f->last))
        pthread_cond_wait(&f->news, &wb__data_mutex);
    bool ready = pop(f, &fetched);
    int64_t index = ready ? 0 : f->next++;
    if (ready) pthread_cond_broadcast(&f->work);
    wb__data_unlock();
    return ready ? fetched : prepare(f, index, true);
}
