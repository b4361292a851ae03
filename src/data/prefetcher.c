/* The threads that prepare batches, the workers.  wb__data_lock guards the fields that they share
 * with the loader's thread, such as:
 *
 *   head .. last-1    batches that wb__prefetcher_next has not returned yet
 *   slot              of batch i: slot[i % capacity], for the first `ahead` of these batches.  A
 *                     worker takes the empty slot of the first batch, and fills it.
 *   turn              the next batch that is read from a stream; the workers read in turn
 *
 * The first epoch starts the threads.  Between epochs they sleep.  A child process of fork has no
 * such threads and starts its own.  At exit of the process all threads are asked to end and are
 * joined for up to a second, so that they do not read objects that are being destroyed. */
#include "data/prefetcher.h"

#include "base/modes.h"
#include "base/mutex.h"
#include "base/numbers/philox.h"
#include "data/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    enum { EMPTY, BUSY, READY } state;  /* BUSY: a thread is preparing the batch */
    wb__prefetched fetched;
} slot;

/* A thread that prepares batches. */
typedef struct {
    wb__prefetcher *of;                 /* the prefetcher that it belongs to */
    bool started, alive;                /* started: the thread must be joined */
    wb__os_thread thread;
    int64_t *index;                     /* observation indices of one batch */
} prefetcher_worker;

struct wb__prefetcher {
    const wb_dataset *dataset, *root;
    wb_collate collate;
    void *ctx;
    wb__target target;
    bool on_host;                       /* the dataset is on the CPU; buffers hold its batches */
    bool finished_tensors;              /* prefetched batches are evaluated tensors, not buffers */
    bool drop_last;                     /* drops the last batch of a stream if it is not full */
    int64_t batchsize;
    wb__buffer_pool *pool;
    wb__stream *stream;                 /* NULL: the dataset is no stream */
    const uint32_t *order;              /* the epoch's observations; NULL: as in the dataset */
    uint64_t key;                       /* key of the random numbers of this epoch's batches */
    int64_t head, last, turn;           /* numbers of batches: see the head of this file */
    int ahead, capacity;                /* batches that are prepared in advance; slots */
    slot *slot;
    char message[1024];                 /* error of the first failed batch, which ends the epoch */
    wb__thrown thrown;                  /* the C++ exception that made this batch fail */
    int64_t failed;                     /* number of this batch; INT64_MAX: none */
    bool quit;                          /* the threads shall end */
    int n_workers, alive;               /* alive: threads that have not ended */
    prefetcher_worker *workers;         /* [n_workers + 1]; the last one is the loader's thread */
    long process;                       /* the process that started the threads */
    int rank;                           /* wb__thread_rank of the threads */
    wb__modes modes;                    /* floating-point modes in which batches are computed */
    wb__os_cond work, news;             /* workers wait for `work`; all threads wait for `news` of
                                           batches and of `turn` */
    wb__prefetcher *next_alive;
};

static wb__prefetcher *prefetchers_alive;   /* linked list of the prefetchers with a thread */
static _Thread_local bool is_prefetcher;
/* The prefetcher whose batch this thread is preparing, or NULL. */
static _Thread_local const wb__prefetcher *prefetcher_preparing;
static bool prefetcher_exiting;

static slot *prefetcher_slot_of(const wb__prefetcher *f, int64_t index)
{
    return &f->slot[index % f->capacity];
}

/* Sets `index` to the indices of the observations of a batch. */
static void prefetcher_fill_index(const wb__prefetcher *f, int64_t batch, int64_t n, int64_t *index)
{
    const int64_t first = batch * f->batchsize;
    for (int64_t i = 0; i < n; i++) index[i] = f->order ? (int64_t)f->order[first + i] : first + i;
}

/* Makes the tensors of a batch in the current scope, on the memory of its buffer, which the
 * function removes from *fetched, also on failure.  The buffer returns to its pool when the last of
 * the tensors is freed. */
static int prefetcher_wrap(const wb_dataset *root, wb__prefetched *fetched, wb_batch *batch)
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

static wb_tensor *prefetcher_send(const wb__target *t, wb_tensor *x)
{
    wb_dtype from = wb_dtype_of(x), to = wb__target_dtype(t, from);
    return wb__tensor_to(x, t->device, to == from ? WB_DTYPE_KEEP : to);
}

/* Sets *batch: makes its tensors, applies maps and the collate function, and moves the tensors to
 * the target device, if there is one.  Evaluates the results and replaces variables by copies. */
static int make_tensors(wb__prefetcher *f, int64_t *index, wb__prefetched *fetched, wb_batch *batch)
{
    int status = f->on_host ? prefetcher_wrap(f->root, fetched, batch)
                            : wb__dataset_gather(f->dataset, fetched->n, index, batch);
    batch->index = fetched->index;
    prefetcher_fill_index(f, fetched->index, fetched->n, index); /* `index` has those of the root */
    if (!status) status = wb__dataset_apply(f->dataset, fetched->n, index, batch);
    if (!status && f->collate) status = wb__collate_call(f->collate, f->ctx, batch, "collate");
    for (int k = wb__batch_fields(batch) - 1; !status && f->target.device && k >= 0; k--) {
        wb_tensor **x = wb__batch_at(batch, k);
        if (!(*x = prefetcher_send(&f->target, *x))) status = wb_error_code();
    }
    return status ? status : wb__batch_evaluate(batch);
}

/* Sets *fetched to references to the tensors of make_tensors, which runs in a new scope.  During
 * the call the dataset's device is the default device, for tensors that maps and the collate
 * function create. */
static int prefetcher_finish_tensors(wb__prefetcher *f, int64_t *index, wb__prefetched *fetched)
{
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    wb_batch batch;
    const wb_device *was = wb__use_device(f->root->device);
    int status = make_tensors(f, index, fetched, &batch);
    wb__use_device(was);
    if (!status) {
        for (int k = wb__batch_fields(&batch) - 1; k >= 0; k--) wb__ref(*wb__batch_at(&batch, k));
        fetched->batch = batch;
        fetched->n = batch.n;
    }
    int closed = wb_scope_close(s);
    return status ? status : closed;
}

/* Reads a batch of a stream, after waiting for its turn.  Sets fetched->n, to 0 if the stream has
 * ended before this batch.  Returns 0 or an error code. */
static int prefetcher_read_stream(wb__prefetcher *f, wb__prefetched *fetched)
{
    wb__data_lock();
    while (f->turn != fetched->index && fetched->index < f->last)
        wb__mutex_wait(&f->news, &wb__data_mutex);
    const bool ended = fetched->index >= f->last;
    wb__data_unlock();
    if (ended) return 0;
    int64_t n;
    const int status = wb__stream_read(f->stream, f->batchsize, fetched->buffer->data, &n);
    if (status) return status;
    fetched->n = n < f->batchsize && f->drop_last ? 0 : n;
    wb__data_lock();
    if (n < f->batchsize) f->last = WB__MIN(f->last, fetched->index + (fetched->n > 0));
    f->turn++;
    wb__os_cond_wake(&f->news);
    wb__data_unlock();
    return 0;
}

static int prefetcher_fetch(wb__prefetcher *f, int64_t *index, wb__prefetched *fetched,
                            bool parallel)
{
    int status = 0;
    if (f->on_host && !(fetched->buffer = wb__buffer_take(f->pool))) return WB_ERROR_MEMORY;
    if (f->stream) {
        status = prefetcher_read_stream(f, fetched);
        if (status || !fetched->n) return status;
    } else {
        fetched->n = WB__MIN(f->batchsize, f->dataset->n - fetched->index * f->batchsize);
        prefetcher_fill_index(f, fetched->index, fetched->n, index);
        if (fetched->buffer)
            status = wb__dataset_fill(f->dataset, fetched->n, index, fetched->buffer->data,
                                      parallel);
    }
    return status || !f->finished_tensors ? status : prefetcher_finish_tensors(f, index, fetched);
}

static void prefetcher_drop_thrown(wb__prefetcher *f)
{
    if (f->thrown.what) f->thrown.drop(f->thrown.what);
    f->thrown = (wb__thrown){0};
}

/* Prepares batch `number` and stores it in its slot, with the floating-point modes of the thread
 * that began the epoch, and with random numbers that depend only on the epoch and the batch.
 * `index` is memory for the indices of a batch. */
static void prefetcher_prepare(wb__prefetcher *f, int64_t *index, int64_t number, bool parallel)
{
    wb__prefetched fetched = {.index = number};
    const wb__prefetcher *outer = prefetcher_preparing;
    const wb__modes modes = wb__modes_now();
    const wb__rng_state was = wb__rng_exchange((wb__rng_state){f->key, (uint64_t)number << 32});
    prefetcher_preparing = f;
    wb__modes_take(f->modes);
    const int status = prefetcher_fetch(f, index, &fetched, parallel);
    wb__modes_take(modes);
    prefetcher_preparing = outer;
    wb__rng_exchange(was);
    if (status || !fetched.n) wb__prefetched_drop(&fetched);
    wb__data_lock();
    if (status && number < f->failed) {
        f->failed = number;
        snprintf(f->message, sizeof f->message, "batch %lld: %s", (long long)number, wb_error());
        prefetcher_drop_thrown(f);
        f->thrown = wb__thrown_take();
    }
    if (status) wb__thrown_drop();          /* of a batch behind the first failed one */
    if (status) {
        f->last = WB__MIN(f->last, number + 1);
        fetched = (wb__prefetched){.index = number, .code = status, .message = f->message};
    }
    *prefetcher_slot_of(f, number) = (slot){READY, fetched};
    wb__os_cond_wake(&f->news);
    wb__data_unlock();
}

bool wb__prefetcher_prepares(const wb__prefetcher *f) { return prefetcher_preparing == f; }

void wb__prefetched_drop(wb__prefetched *fetched)
{
    wb__buffer_give(fetched->buffer);
    for (int k = 0; k < WB__FIELDS; k++) wb__unref(*wb__batch_at(&fetched->batch, k));
    fetched->buffer = NULL;
    fetched->batch = (wb_batch){0};
}

int wb__prefetched_open(wb__prefetcher *f, wb__prefetched *fetched, wb_batch *batch)
{
    if (fetched->code) {
        wb__thrown_give(f->thrown);
        f->thrown = (wb__thrown){0};
        return wb__fail(fetched->code, "%s", fetched->message);
    }
    if (fetched->buffer) return prefetcher_wrap(f->root, fetched, batch);
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

/* Returns the number of the next batch that no thread is preparing; -1 if there is none. */
static int64_t prefetcher_find_work(const wb__prefetcher *f)
{
    const int64_t end = WB__MIN(f->last, f->head + f->ahead);
    for (int64_t i = f->head; i < end; i++)
        if (prefetcher_slot_of(f, i)->state == EMPTY) return i;
    return -1;
}

/* Runs a worker: prepares batches until f->quit. */
static void *prefetcher_run(void *given)
{
    const prefetcher_worker *w = given;
    wb__prefetcher *f = w->of;
    is_prefetcher = true;
    wb__mutex_helps();
    wb__data_lock();
    wb__thread_rank = f->rank;
    while (!f->quit) {
        const int64_t number = prefetcher_find_work(f);
        if (number < 0) {
            wb__mutex_wait(&f->work, &wb__data_mutex);
            continue;
        }
        prefetcher_slot_of(f, number)->state = BUSY;
        wb__data_unlock();
        prefetcher_prepare(f, w->index, number, false);
        wb__data_lock();
    }
    f->alive--;
    wb__os_cond_wake(&f->news);
    wb__data_unlock();
    return NULL;
}

/* Joins the threads that have been started.  The caller does not hold the lock. */
static void prefetcher_join_all(wb__prefetcher *f)
{
    for (int i = 0; i < f->n_workers; i++) {
        if (f->workers[i].started) wb__os_thread_join(f->workers[i].thread);
        f->workers[i].started = false;
    }
}

/* Whether this process has the threads.  A child process of fork does not: the conditions still
 * count the parent's threads as waiters, for which a broadcast in the child would wait. */
static bool has_threads(const wb__prefetcher *f) { return f->process == wb__os_process(); }

static void prefetcher_at_exit(void)
{
    if (is_prefetcher) return;      /* a function of the program called exit on this thread */
    const double until = wb__now() + 1;
    wb__data_lock();
    prefetcher_exiting = true;
    for (wb__prefetcher *f = prefetchers_alive; f; f = f->next_alive) {
        if (!has_threads(f)) continue;
        f->quit = true;
        wb__os_cond_wake(&f->work);
    }
    for (wb__prefetcher *f = prefetchers_alive; f; f = f->next_alive) {
        if (!has_threads(f)) continue;
        while (f->alive)
            if (!wb__mutex_wait_for(&f->news, &wb__data_mutex, until - wb__now())) break;
        if (f->alive) continue;
        /* While the lock is released, `prefetcher_exiting` keeps the list from growing. */
        wb__data_unlock();
        prefetcher_join_all(f);
        wb__data_lock();
    }
    wb__data_unlock();
}

static void prefetcher_remove_from_list(wb__prefetcher *f)
{
    for (wb__prefetcher **at = &prefetchers_alive; *at; at = &(*at)->next_alive)
        if (*at == f) {
            *at = f->next_alive;
            return;
        }
}

/* Ends the threads of all loaders that the program still holds, for wb_shutdown.  The next batch of
 * a loader starts new threads. */
static void prefetcher_end_threads(void)
{
    if (is_prefetcher) return;
    wb__data_lock();
    for (wb__prefetcher *f; (f = prefetchers_alive);) {
        prefetcher_remove_from_list(f);
        if (f->process != wb__os_process()) continue;
        f->quit = true;
        wb__os_cond_wake(&f->work);
        wb__data_unlock();
        prefetcher_join_all(f);
        wb__data_lock();
        f->quit = false;
    }
    wb__data_unlock();
}

/* Removes the threads of the parent, in a child process of fork.  The batches that they were
 * preparing are prepared again here, but not those of a stream, from which they may have read. */
static void prefetcher_forget_threads(wb__prefetcher *f)
{
    wb__os_cond_init(&f->work);
    wb__os_cond_init(&f->news);
    for (int i = 0; i < f->n_workers; i++) f->workers[i].started = false;
    f->alive = 0;
    for (int64_t i = f->head; i < f->head + f->capacity; i++) {
        if (prefetcher_slot_of(f, i)->state != BUSY) continue;
        *prefetcher_slot_of(f, i) = (slot){.state = EMPTY};
        if (!f->stream || i >= f->last) continue;       /* i is behind the batch that fails below */
        f->last = i + 1;
        f->failed = i;
        snprintf(f->message, sizeof f->message, "batch %lld: the parent process was reading this "
                 "stream at the time of fork; begin a new epoch", (long long)i);
        *prefetcher_slot_of(f, i) = (slot){READY, {.index = i, .code = WB_ERROR_UNSUPPORTED,
                                                   .message = f->message}};
    }
}

/* Starts the threads unless this process has started them.  The caller holds the lock.  If no
 * thread can be started, the loader's thread prepares the batches. */
static void prefetcher_start_threads(wb__prefetcher *f)
{
    static bool registered;
    if (f->process != wb__os_process()) {
        if (f->process) prefetcher_forget_threads(f);
        f->process = wb__os_process();
    }
    if (prefetcher_exiting || f->quit) return;
    wb__before_shutdown = prefetcher_end_threads;
    f->rank = f->alive ? f->rank : wb__thread_rank;
    for (int i = 0; i < f->n_workers; i++) {
        prefetcher_worker *w = &f->workers[i];
        if (w->started) continue;
        if (!registered) registered = atexit(prefetcher_at_exit) == 0;
        w->started = wb__os_thread_start(&w->thread, prefetcher_run, w, true);
        if (!w->started) break;
        f->alive++;
        prefetcher_remove_from_list(f);
        f->next_alive = prefetchers_alive;
        prefetchers_alive = f;
    }
}

/* ---- an epoch -------------------------------------------------------------------------------- */

static bool prefetcher_make_workers(wb__prefetcher *f, int n)
{
    f->workers = wb__alloc_zero((size_t)n + 1, sizeof *f->workers);
    if (!f->workers) return false;
    f->n_workers = n;
    for (int i = 0; i <= n; i++) {
        f->workers[i].of = f;
        f->workers[i].index = wb__alloc_zero((size_t)f->batchsize, sizeof *f->workers[i].index);
        if (!f->workers[i].index) return false;
    }
    return true;
}

wb__prefetcher *wb__prefetcher_new(const wb_dataset *d, const wb_dataloader_options *o,
                                   int64_t batchsize, int ahead, const wb__target *target)
{
    wb__prefetcher *f = wb__alloc_zero(1, sizeof *f);
    if (!f) return NULL;
    wb__os_cond_init(&f->work);
    wb__os_cond_init(&f->news);
    f->dataset = d;
    f->root = wb__dataset_root(d);
    f->collate = o->collate;
    f->ctx = o->collate_ctx;
    f->target = *target;
    f->on_host = wb__dataset_on_host(d);
    f->finished_tensors = o->collate || target->device || !f->on_host || wb__dataset_mapped(d);
    f->drop_last = o->drop_last;
    f->batchsize = batchsize;
    f->ahead = ahead;
    f->capacity = WB__MAX(ahead, 1);
    size_t bytes[WB__FIELDS];
    for (int k = 0; k < f->root->n_fields; k++)
        bytes[k] = (size_t)(batchsize * f->root->field[k].bytes);
    const bool streams = f->root->kind == WB__DATA_STREAM;
    f->slot = wb__alloc_zero((size_t)f->capacity, sizeof *f->slot);
    f->pool = wb__buffer_pool_new(f->root->n_fields, bytes, ahead + 1);
    if (streams) f->stream = wb__stream_new(f->root, o->buffer);
    if (prefetcher_make_workers(f, WB__MIN(o->workers, ahead)) && f->slot && f->pool &&
        (f->stream || !streams))
        return f;
    wb__prefetcher_free(f);
    return NULL;
}

void wb__prefetcher_free(wb__prefetcher *f)
{
    if (!f) return;
    wb__data_lock();
    const bool ours = !f->process || has_threads(f);
    f->quit = true;
    f->last = f->head;
    if (ours) {
        wb__os_cond_wake(&f->work);
        wb__os_cond_wake(&f->news);
    }
    prefetcher_remove_from_list(f);
    wb__data_unlock();
    if (ours) prefetcher_join_all(f);
    for (int i = 0; f->slot && i < f->capacity; i++) wb__prefetched_drop(&f->slot[i].fetched);
    if (f->stream) wb__stream_release(f->stream);
    wb__stream_free(f->stream);
    /* In a child process of fork the condition variables are neither signalled nor destroyed:
     * both might wait for the parent's thread. */
    if (ours) {
        wb__os_cond_destroy(&f->work);
        wb__os_cond_destroy(&f->news);
    }
    wb__buffer_pool_close(f->pool);
    for (int i = 0; f->workers && i <= f->n_workers; i++) wb__free(f->workers[i].index);
    wb__free(f->workers);
    wb__free(f->slot);
    prefetcher_drop_thrown(f);
    wb__free(f);
}

/* Returns the key of the random numbers of an epoch, which differs from the keys of wb__shuffle and
 * wb_seed. */
static uint64_t prefetcher_key_of(const wb__epoch *e)
{
    uint32_t words[4];
    wb__philox_block(e->seed ^ 0x6d6170706f627321u, (uint64_t)e->number | (uint64_t)e->rank << 40,
                     words);
    return (uint64_t)words[1] << 32 | words[0];
}

int wb__prefetcher_start(wb__prefetcher *f, const wb__epoch *e)
{
    int status = f->on_host ? wb__buffer_pool_fill(f->pool) : 0;
    if (!status && f->stream)
        status = wb__stream_begin(f->stream, prefetcher_key_of(e), e->number,
                                  e->first * f->batchsize);
    if (status) return status;
    wb__data_lock();
    f->order = e->order;
    f->key = prefetcher_key_of(e);
    f->modes = wb__modes_now();
    f->head = f->turn = e->first;
    f->last = e->last;
    f->failed = INT64_MAX;
    prefetcher_drop_thrown(f);
    prefetcher_start_threads(f);
    wb__os_cond_wake(&f->work);
    wb__data_unlock();
    return 0;
}

static bool prefetcher_is_busy(const wb__prefetcher *f)
{
    for (int i = 0; i < f->capacity; i++)
        if (f->slot[i].state == BUSY) return true;
    return false;
}

void wb__prefetcher_stop(wb__prefetcher *f)
{
    wb__data_lock();
    prefetcher_start_threads(f);
    f->last = f->head;
    wb__os_cond_wake(&f->news);           /* wakes workers that wait for their turn */
    while (prefetcher_is_busy(f) && f->alive) wb__mutex_wait(&f->news, &wb__data_mutex);
    for (int i = 0; i < f->capacity; i++) {
        wb__prefetched fetched = f->slot[i].fetched;
        f->slot[i] = (slot){.state = EMPTY};
        wb__data_unlock();                      /* wb__prefetched_drop takes the lock */
        wb__prefetched_drop(&fetched);
        wb__data_lock();
    }
    wb__data_unlock();
    if (f->stream) wb__stream_release(f->stream);
}

wb__prefetched wb__prefetcher_next(wb__prefetcher *f)
{
    wb__prefetched fetched = {.ended = true};
    wb__data_lock();
    prefetcher_start_threads(f);
    while (f->head < f->last) {
        slot *s = prefetcher_slot_of(f, f->head);
        if (s->state == READY) {
            fetched = s->fetched;
            *s = (slot){.state = EMPTY};
            f->head++;
            wb__os_cond_wake(&f->work);
            break;
        }
        if (f->alive && (s->state == BUSY || !f->quit)) {
            wb__mutex_wait(&f->news, &wb__data_mutex);
            continue;
        }
        s->state = BUSY;
        wb__data_unlock();
        prefetcher_prepare(f, f->workers[f->n_workers].index, f->head, true);
        wb__data_lock();
    }
    wb__data_unlock();
    return fetched;
}
