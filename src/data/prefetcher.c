/* The thread that prepares batches.  Everything shared stands under wb__data_lock:
 *
 *   next .. last-1    batches nobody took up yet
 *   busy              the thread is preparing one
 *   ready             a ring of at most `ahead` prepared ones, oldest at `head`
 *
 * The thread is started by the first epoch and sleeps between epochs.  A child of fork has none: it
 * finds that the process is another one and starts its own.  When the process exits, threads are
 * told to end and waited for a moment, so that none reads what is being destroyed. */
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
    bool on_host;                       /* batches begin in buffers, not on another device */
    bool finished_tensors;              /* they are made on the thread */
    int64_t batchsize;
    int64_t *index;                     /* numbers of one batch's observations */
    wb__slots *slots;
    const uint32_t *order;
    int64_t next, last;
    int ahead, head, count;
    wb__feed *ready;
    char message[1024];                 /* of the failed batch, which is the last of its epoch */
    bool started, alive, busy, quit;    /* started: to be joined */
    pid_t process;                      /* that the thread belongs to */
    pthread_t thread;
    pthread_cond_t work, news;
    wb__prefetcher *next_alive;
};

static wb__prefetcher *all_alive;           /* for exit */
static _Thread_local bool is_prefetcher;
static _Thread_local const wb__prefetcher *preparing;    /* a batch, on this thread */
static bool exiting;

/* ---- one batch ------------------------------------------------------------------------------- */

static void fill_index(wb__prefetcher *f, wb__feed *feed)
{
    int64_t first = feed->index * f->batchsize;
    feed->n = WB__MIN(f->batchsize, f->dataset->n - first);
    for (int64_t i = 0; i < feed->n; i++)
        f->index[i] = f->order ? (int64_t)f->order[first + i] : first + i;
}

/* Tensors around the buffer, in the current scope; the buffer belongs to them from here on,
 * whatever comes. */
static int wrap(const wb_dataset *root, wb__feed *feed, wb_batch *batch)
{
    wb__slot *slot = feed->slot;
    int made;
    feed->slot = NULL;
    slot->holders = 2;
    int status = wb__dataset_wrap(root, feed->n, slot->data, wb__slot_release, slot, batch, &made);
    batch->index = feed->index;
    for (; made < 2; made++) wb__slot_release(NULL, slot);
    return status;
}

static wb_tensor *sent(const wb__target *t, wb_tensor *x)
{
    wb_dtype from = wb_dtype_of(x), to = wb__target_dtype(t, from);
    return wb__tensor_to(x, t->device, to == from ? WB_KEEP : to);
}

/* A batch where it is wanted, in memory of its own: nobody writes there while somebody has it. */
static int make_tensors(wb__prefetcher *f, wb__feed *feed, wb_batch *batch)
{
    int status = f->on_host ? wrap(f->root, feed, batch)
                            : wb__dataset_gather(f->dataset, feed->n, f->index, batch);
    batch->index = feed->index;
    if (!status) status = wb__dataset_apply(f->dataset, batch);
    if (!status && f->collate) status = wb__collate_call(f->collate, f->ctx, batch, "collate");
    if (!status && f->target.device) {
        batch->x = sent(&f->target, batch->x);
        batch->y = batch->x ? sent(&f->target, batch->y) : NULL;
        if (!batch->y) status = wb_error_code();
    }
    return status ? status : wb__batch_evaluate(batch);
}

/* Functions of the program run where the data is: what they make of nothing is made there too. */
static int finish_tensors(wb__prefetcher *f, wb__feed *feed)
{
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    wb_batch batch;
    const wb_device *was = wb__use_device(f->root->device);
    int status = make_tensors(f, feed, &batch);
    wb__use_device(was);
    if (!status) {
        feed->x = wb__ref(batch.x);
        feed->y = wb__ref(batch.y);
        feed->n = batch.n;
    }
    int closed = wb_scope_close(s);
    return status ? status : closed;
}

static wb__feed prepare(wb__prefetcher *f, int64_t index, bool parallel)
{
    wb__feed feed = {.index = index, .slot = f->on_host ? wb__slot_take(f->slots) : NULL};
    fill_index(f, &feed);
    int status = f->on_host && !feed.slot ? WB_ERROR_MEMORY : 0;
    const wb__prefetcher *outer = preparing;
    preparing = f;
    if (feed.slot) status = wb__dataset_fill(f->dataset, feed.n, f->index, feed.slot->data, parallel);
    if (!status && f->finished_tensors) status = finish_tensors(f, &feed);
    preparing = outer;
    if (!status) return feed;
    wb__feed_drop(&feed);
    snprintf(f->message, sizeof f->message, "batch %lld: %s", (long long)index, wb_error());
    return (wb__feed){.index = index, .code = status, .message = f->message};
}

bool wb__prefetcher_prepares(const wb__prefetcher *f) { return preparing == f; }

void wb__feed_drop(wb__feed *feed)
{
    wb__slot_give(feed->slot);
    wb__unref(feed->x);
    wb__unref(feed->y);
    feed->slot = NULL;
    feed->x = feed->y = NULL;
}

int wb__feed_open(const wb__prefetcher *f, wb__feed *feed, wb_batch *batch)
{
    if (feed->code) return wb__fail(feed->code, "%s", feed->message);
    if (feed->slot) return wrap(f->root, feed, batch);
    *batch = (wb_batch){.n = feed->n, .index = feed->index};
    batch->x = wb__scope_give(feed->x);
    feed->x = NULL;
    if (!batch->x) return wb__feed_drop(feed), wb_error_code();
    batch->y = wb__scope_give(feed->y);
    feed->y = NULL;
    return batch->y ? 0 : (int)wb_error_code();
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool has_work(const wb__prefetcher *f) { return f->next < f->last && f->count < f->ahead; }

static void *run(void *given)
{
    wb__prefetcher *f = given;
    is_prefetcher = true;
    wb__data_lock();
    while (!f->quit) {
        if (!has_work(f)) {
            pthread_cond_wait(&f->work, &wb__data_mutex);
            continue;
        }
        int64_t index = f->next++;
        f->busy = true;
        wb__data_unlock();
        wb__feed feed = prepare(f, index, false);
        wb__data_lock();
        f->busy = false;
        f->ready[(f->head + f->count++) % f->ahead] = feed;
        if (feed.code) f->last = f->next;
        pthread_cond_broadcast(&f->news);
    }
    f->alive = false;
    pthread_cond_broadcast(&f->news);
    wb__data_unlock();
    return NULL;
}

static void at_exit(void)
{
    if (is_prefetcher) return; /* the program's function called exit on the thread itself */
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
        wb__data_unlock(); /* its last act takes the lock; nobody else changes the list by now */
        pthread_join(f->thread, NULL);
        wb__data_lock();
    }
    wb__data_unlock();
}

/* The thread keeps no signals from the program's own threads. */
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

/* Under the lock: a thread of this process is there, or it is not to be had and the caller does the
 * work. */
static void ensure_thread(wb__prefetcher *f)
{
    static bool registered;
    if (f->process !=
        getpid()) { /* the parent's thread did not come along; what it was doing is undone */
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
    f->started = start_thread(f);
    f->alive = f->started;
    if (!f->started) return;
    unlist(f);
    f->next_alive = all_alive;
    all_alive = f;
}

/* ---- an epoch -------------------------------------------------------------------------------- */

wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, int64_t batchsize, int ahead, wb_collate collate,
                           void *ctx, const wb__target *target)
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
    const wb__field *x = &f->root->field[0], *y = &f->root->field[1];
    f->index = wb__alloc_zero((size_t)batchsize, sizeof *f->index);
    f->ready = wb__alloc_zero((size_t)WB__MAX(ahead, 1), sizeof *f->ready);
    f->slots =
        wb__slots_new((size_t)(batchsize * x->bytes), (size_t)(batchsize * y->bytes), ahead + 1);
    if (f->index && f->ready && f->slots) return f;
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
    for (int i = 0; i < f->count; i++) wb__feed_drop(&f->ready[(f->head + i) % f->ahead]);
    if (ours) {                         /* else the parent's thread may seem to wait on them */
        pthread_cond_destroy(&f->work);
        pthread_cond_destroy(&f->news);
    }
    wb__slots_close(f->slots);
    wb__free(f->index);
    wb__free(f->ready);
    wb__free(f);
}

int wb__prefetcher_start(wb__prefetcher *f, const uint32_t *order, int64_t first, int64_t last)
{
    const int status = f->on_host ? wb__slots_fill(f->slots) : 0;
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

/* Under the lock.  False where none is ready. */
static bool pop(wb__prefetcher *f, wb__feed *feed)
{
    if (!f->count) return false;
    *feed = f->ready[f->head];
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
    for (wb__feed feed; pop(f, &feed);) {
        wb__data_unlock();              /* dropping takes the lock */
        wb__feed_drop(&feed);
        wb__data_lock();
    }
    wb__data_unlock();
}

wb__feed wb__prefetcher_next(wb__prefetcher *f)
{
    wb__feed feed;
    wb__data_lock();
    ensure_thread(f);
    while (!f->count && f->alive && !f->quit && (f->busy || f->next < f->last))
        pthread_cond_wait(&f->news, &wb__data_mutex);
    bool ready = pop(f, &feed);
    int64_t index = ready ? 0 : f->next++;
    if (ready) pthread_cond_broadcast(&f->work);
    wb__data_unlock();
    return ready ? feed : prepare(f, index, true);
}
