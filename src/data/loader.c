/* Loaders iterate over epochs, order the observations and open a scope for each batch.
 * prefetcher.c prepares the batches. */
#include "data/loader.h"

#include "base/options.h"
#include "base/numbers/philox.h"
#include "data/dataset.h"
#include "data/prefetcher.h"

#include <stdio.h>

struct wb_loader {
    wb__object object;
    wb_dataset *dataset;                /* reference */
    wb_dataloader_options options;
    wb__target target;                  /* set by wb_to */
    int64_t batches;
    wb__prefetcher *prefetcher;
    /* the indices of this epoch's observations; NULL: not shuffled.  If a share is shuffled, the
     * block has the length of `whole`, and begins with the share's observations there. */
    uint32_t *order;
    const wb_dataset *share;            /* the shuffled share, with only maps above it, or NULL */
    wb_dataset *whole;                  /* the dataset below the share, with the maps (reference) */
    bool running;                       /* an epoch has begun and has not ended */
    /* epoch: number of completed epochs.  position: number of batches of the current epoch that
     * wb_loader_next has returned. */
    int64_t epoch, position;
    int status, late;  /* code of the epoch's error; error for the next wb_loader_next */
    wb_scope *scope;                    /* scope of the current batch; NULL: none is open */
    wb__thread *owner;                  /* the thread that opened the scope */
    wb__object mark;                    /* object of `scope`, destroyed when `scope` closes */
};

/* Clears l->scope and releases the scope's reference to the loader, when the scope of a batch
 * closes, because l->mark is an object of that scope.  The program may close the scope itself, or
 * close an outer scope after `break`. */
static void loader_scope_closed(void *object)
{
    wb_loader *l = (wb_loader *)((char *)object - offsetof(wb_loader, mark));
    l->scope = NULL;
    wb__unref(l);
}

static const wb__class mark_class = {.name = "batch", .destroy = loader_scope_closed};

static void loader_destroy(void *object)
{
    wb_loader *l = object;
    wb__prefetcher_free(l->prefetcher);
    wb__unref(l->dataset);
    wb__unref(l->whole);
    wb__free(l->order);
    wb__object_end(l, sizeof *l);
}

static const wb_device *loader_device(void *object)
{
    const wb_loader *l = object;
    return l->target.device ? l->target.device : wb__dataset_root(l->dataset)->device;
}

static char *loader_format(void *object)
{
    const wb_loader *l = object;
    const wb_device *d = loader_device(object);
    char place[64] = "", number[32] = "";
    if (d != &wb__cpu) snprintf(place, sizeof place, ", on %s:%d", d->backend->tag, d->ordinal);
    if (wb__is_stream(l->dataset)) snprintf(number, sizeof number, "stream in");
    else snprintf(number, sizeof number, "%lld", (long long)l->batches);
    return wb__printf("DataLoader(%s batches of %lld%s%s)", number,
                      (long long)l->options.batchsize, l->options.shuffle ? ", shuffled" : "",
                      place);
}

static void *loader_to(void *object, const wb_device *d, wb_dtype dtype);
const wb__class wb__loader_class = {.name = "loader", .destroy = loader_destroy,
                                    .format = loader_format, .to = loader_to,
                                    .device_of = loader_device};

static bool is_loader(const wb_loader *l, const char *what)
{
    return wb__expect(what, l, &wb__loader_class);
}

/* Returns an error code if a map or collate function advances or stops the loader that calls it,
 * because the loader would wait for itself; else 0. */
static int check_outside(const wb_loader *l, const char *what)
{
    if (!wb__prefetcher_prepares(l->prefetcher)) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: called by a map or .collate function of this loader, "
                    "which is preparing one of its batches", what);
}

/* Returns the greatest number of observations that a batch can have. */
static int64_t loader_batch_limit(const wb_dataloader_options *o, const wb_dataset *d)
{
    return wb__is_stream(d) ? o->batchsize : WB__MIN(o->batchsize, WB__MAX(d->n, 1));
}

static int loader_check(const wb_dataloader_options *o, const wb_dataset *d)
{
    if (o->batchsize < 1)
        return wb__fail(WB_ERROR_ARGUMENT, "dataloader: the batchsize is %lld",
                        (long long)o->batchsize);
    if (o->ahead < 0 || o->ahead > 1024)
        return wb__fail(WB_ERROR_ARGUMENT, "dataloader: %d batches ahead", o->ahead);
    if (o->shuffle && d->n > UINT32_MAX)
        return wb__fail(WB_ERROR_UNSUPPORTED,
                        "dataloader: %lld observations are too many to shuffle", (long long)d->n);
    if (o->workers < 1 || o->workers > 64 || (o->workers > 1 && !o->ahead))
        return wb__fail(WB_ERROR_ARGUMENT,
                        "dataloader: .workers is %d, with %d batches ahead; there are 1 to 64 "
                        "workers, and more than 1 only with batches ahead", o->workers, o->ahead);
    const wb_dataset *root = wb__dataset_root(d);
    const bool streams = wb__is_stream(d);
    if (o->buffer < 0 || o->buffer > UINT32_MAX || (o->buffer > 0) != (streams && o->shuffle))
        return wb__fail(WB_ERROR_ARGUMENT,
                        "dataloader: .buffer is %lld: a stream is shuffled with a .buffer of so "
                        "many observations, and other datasets need none", (long long)o->buffer);
    int64_t most = loader_batch_limit(o, d);
    for (int xy = 0; xy < root->n_fields; xy++) {
        const wb__field *f = &root->field[xy];
        if (!f->present || f->bytes / (int64_t)wb__dtype_size(f->dtype) <= UINT32_MAX / most)
            continue;
        return wb__fail(WB_ERROR_SHAPE, "dataloader: a batch of %lld would have 2^32 elements or "
                        "more", (long long)most);
    }
    return 0;
}

static uint64_t loader_draw_seed(void)
{
    uint64_t key, counter, seed;
    wb__rng_take(1, &key, &counter);
    seed = wb__philox_at(key, counter, 0) | (uint64_t)wb__philox_at(key, counter, 1) << 32;
    return seed ? seed : 1;
}

/* Returns the share below the maps of d; NULL: there is none. */
static const wb_dataset *loader_share_of(const wb_dataset *d)
{
    while (d->kind == WB__DATA_MAP) d = d->below;
    return d->kind == WB__DATA_SHARE ? d : NULL;
}

/* Returns the dataset below the share, with copies of the maps that d has above the share. */
static wb_dataset *loader_without_share(wb_dataset *d)
{
    if (d->kind == WB__DATA_SHARE) return d->below;
    wb_dataset *below = loader_without_share(d->below);
    if (!below) return NULL;
    return (d->maps_single ? wb_mapobs_each : wb_mapobs)(below, d->map, d->ctx);
}

static wb_loader *loader_new(wb_dataset *d, const wb_dataloader_options *o,
                             const wb__target *target)
{
    const wb_dataset *share = o->shuffle ? loader_share_of(d) : NULL;
    wb_dataset *from = share ? loader_without_share(d) : d;
    if (!from) return NULL;
    wb_loader *l = wb__object_new(&wb__loader_class, sizeof *l);
    if (!l) return NULL;
    l->dataset = wb__ref(d);
    l->options = *o;
    l->target = *target;
    l->batches = wb__is_stream(d)
                     ? INT64_MAX
                     : d->n / o->batchsize + (!o->drop_last && d->n % o->batchsize != 0);
    l->mark.class = &mark_class;
    const int most_ahead = o->ahead ? WB__MAX(o->ahead, o->workers) : 0;
    int ahead = (int)WB__MIN(most_ahead, WB__MAX(l->batches, 1));
    l->share = share;
    l->whole = share ? wb__ref(from) : NULL;
    l->prefetcher = wb__prefetcher_new(from, o, loader_batch_limit(o, d), ahead, target);
    const bool ordered = o->shuffle && !wb__is_stream(d);
    if (l->prefetcher && ordered)
        l->order = wb__alloc((size_t)WB__MAX(d->n, from->n) * sizeof *l->order);
    if (l->prefetcher && (!ordered || l->order)) return l;
    wb_object_free(l);
    return NULL;
}

/* Reports that the loader has no batch, each time, or that its only batch is smaller than
 * .batchsize, once in the process. */
static void loader_warn_batchsize(const wb_loader *l, int64_t n, int64_t batchsize)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!l->batches)
        wb__log(WB_LOG_WARN,
                "dataloader: %lld observations are fewer than the batchsize %lld; with drop_last "
                "there is no batch: take a smaller batchsize, or leave .drop_last out",
                (long long)n, (long long)batchsize);
    else if (!atomic_flag_test_and_set(&warned))
        wb__log(WB_LOG_WARN,
                "dataloader: the batchsize %lld is above the number of observations: there is one "
                "batch, of %lld", (long long)batchsize, (long long)n);
}

wb_loader *wb_dataloader_with(wb_dataset *d, const wb_dataloader_options *given)
{
    if (!wb__is_any_dataset(d, "dataloader")) return NULL;
    wb_dataloader_options o;
    if (!wb__read_options("dataloader", wb_dataloader_options, &o, given, NULL))
        return NULL;
    if (o.batchsize == -1 && !wb__is_stream(d)) o.batchsize = WB__MAX(d->n, 1);
    if (loader_check(&o, d)) return NULL;
    if (o.seed == UINT64_MAX && (o.shuffle || o.collate || wb__dataset_mapped(d)))
        o.seed = loader_share_of(d) ? loader_share_of(d)->seed : loader_draw_seed();
    wb_loader *l = loader_new(d, &o, &(wb__target){0});
    if (l && d->n && d->n < o.batchsize) loader_warn_batchsize(l, d->n, o.batchsize);
    return l;
}

/* Returns the target of the loader that wb_to(l, d) makes.  `requested` is 0, WB_DTYPE_KEEP or a
 * dtype.  A dtype replaces the dtype of l's target; the two others keep it.  With 0 a move to a GPU
 * also sets `narrow`, so that f64 becomes f32. */
static wb__target loader_target_on(const wb_loader *l, const wb_device *d, wb_dtype requested)
{
    wb__target t = l->target;
    const bool there = loader_device((void *)(uintptr_t)l) == d;
    t.device = d;
    if (requested && requested != WB_DTYPE_KEEP) t.dtype = requested;
    else if (!requested && !there && d->backend->narrows_f64) t.narrow = true;
    return t;
}

/* Returns 1 if batches of target t have other dtypes than the batches of l, 0 if not, and -1 with
 * the error set if the device lacks a dtype.  If l has a map or a collate function, which may
 * return any dtype, compares only the two targets. */
static int loader_target_differs(const wb_loader *l, const wb__target *t)
{
    const wb_dataset *root = wb__dataset_root(l->dataset);
    if (l->options.collate || wb__dataset_mapped(l->dataset))
        return t->dtype != l->target.dtype || t->narrow != l->target.narrow;
    int other = 0;
    for (int xy = 0; xy < root->n_fields; xy++) {
        const wb__field *f = &root->field[xy];
        if (!f->present) continue;
        const wb_dtype to = wb__target_dtype(t, f->dtype);
        if (!wb__dtype_on(t->device, to, WB_DTYPE_KEEP)) return -1;
        if (to != wb__target_dtype(&l->target, f->dtype)) other = 1;
    }
    return other;
}

/* Returns the loader that wb_to of a loader gives: the loader itself if its batches stay the same,
 * else a new loader at the same position of the same epoch; the old loader is unchanged. */
static void *loader_to(void *object, const wb_device *d, wb_dtype requested)
{
    wb_loader *l = object;
    const wb__target t = loader_target_on(l, d, requested);
    const int other = loader_target_differs(l, &t);
    if (other < 0) return NULL;
    if (!other && loader_device(l) == d) return l;
    wb_loader *made = loader_new(l->dataset, &l->options, &t);
    if (!made) return NULL;
    made->epoch = l->epoch;
    made->position = l->position;
    return made;
}

/* Closes the scope of the current batch, if one is open, which evaluates pending assignments. */
static int loader_close_batch(wb_loader *l)
{
    if (!l->scope) return 0;
    if (l->owner != wb__this_thread())
        return wb__fail(WB_ERROR_ARGUMENT, "loader: another thread still has its last batch open");
    return wb_scope_close(l->scope);
}

/* Changes `order`, a permutation of all observations, to the observations of the share. */
static void loader_keep_share(uint32_t *order, const wb_dataset *share)
{
    if (!share->n) return;
    const int64_t last = share->n - 1;      /* only the last index may have wrapped around to 0 */
    const uint32_t at_last = order[wb__share_at(share, last)];
    for (int64_t i = 0; i < last; i++) order[i] = order[wb__share_at(share, i)];
    order[last] = at_last;
}

/* Starts an epoch: shuffles, and lets the prefetcher prepare.  Returns 0 or an error code. */
static int loader_begin(wb_loader *l)
{
    const wb_dataset *shuffled = l->share ? l->share->below : l->dataset;
    if (l->order) wb__shuffle(l->order, shuffled->n, l->options.seed, (uint64_t)l->epoch);
    if (l->order && l->share) loader_keep_share(l->order, l->share);
    l->status = 0;
    l->running = true;
    const wb_dataset *share = loader_share_of(l->dataset);
    return wb__prefetcher_start(
        l->prefetcher, &(wb__epoch){.order = l->order, .first = l->position, .last = l->batches,
                                    .seed = l->options.seed, .number = l->epoch,
                                    .rank = share ? share->rank : 0});
}

/* Ends the epoch with this status.  Returns false, which wb_loader_next then returns. */
static bool loader_end(wb_loader *l, int status)
{
    l->status = status;
    if (!l->running) return false;
    wb__prefetcher_stop(l->prefetcher);
    l->running = false;
    l->position = 0;
    l->epoch++;
    return false;
}

/* Opens a scope with the next batch and returns 0.  At the end of a stream sets *ended.  On failure
 * leaves no scope open and returns an error code. */
static int loader_open_batch(wb_loader *l, wb_batch *batch, bool *ended)
{
    wb__prefetched fetched = wb__prefetcher_next(l->prefetcher);
    *ended = fetched.ended;
    if (*ended) return 0;
    wb_scope *s = fetched.code ? NULL : wb_scope_open();
    int status = fetched.code || s ? 0 : (int)wb_error_code();
    if (!status) status = wb__prefetched_open(l->prefetcher, &fetched, batch);
    if (!status) {
        atomic_store_explicit(&l->mark.counts, 1, memory_order_relaxed);
        wb__ref(l);
        l->scope = s;
        l->owner = wb__this_thread();
        if (wb__scope_give(&l->mark)) return 0;
        status = wb_error_code();
    }
    wb__prefetched_drop(&fetched);
    *batch = (wb_batch){0};
    if (s) wb_scope_close(s);
    return status;
}

/* Closes the current batch and opens the next one.  False: the epoch has ended, or failed. */
static bool loader_advance(wb_loader *l, wb_batch *batch)
{
    bool ended = false;
    int status = loader_close_batch(l);
    if (!status && l->late) {
        status = l->late;
        l->late = 0;
    }
    if (!status && !l->running) status = loader_begin(l);
    if (status) return loader_end(l, status);
    if (l->position >= l->batches) return loader_end(l, 0);
    status = loader_open_batch(l, batch, &ended);
    if (status || ended) return loader_end(l, status);
    l->position++;
    return true;
}

/* Closes the scope of the current batch and opens that of the next.  The old scope may hold the
 * last reference to the loader: that of wb__ref keeps the loader alive during the call. */
bool wb_loader_next(wb_loader *l, wb_batch *batch)
{
    WB__EDGE;
    if (batch) *batch = (wb_batch){0};
    WB__FIRST(wb_loader_next, false);
    if (!is_loader(l, "loader_next") || WB__NULL(batch) || check_outside(l, "loader_next"))
        return false;
    wb__ref(l);
    bool more = loader_advance(l, batch);
    wb__unref(l);
    return more;
}

/* Ends the epoch.  `report_later`: the next wb_loader_next reports a failure, too. */
static int loader_stop(wb_loader *l, bool report_later)
{
    wb__ref(l);
    int status = loader_close_batch(l);
    if (l->running) loader_end(l, status);
    if (report_later && status) l->late = status;
    wb__unref(l);
    return status;
}

int wb_loader_stop(wb_loader *l)
{
    WB__FIRST(wb_loader_stop, wb_error_code());
    if (!is_loader(l, "loader_stop")) return WB_ERROR_ARGUMENT;
    int status = check_outside(l, "loader_stop");
    return status ? status : loader_stop(l, false);
}

wb_batch wb_loader_begin(wb_loader *l)
{
    WB__PUBLIC(wb_loader_begin, (wb_batch){0});
    if (is_loader(l, "loader_begin") && !check_outside(l, "loader_begin")) loader_stop(l, true);
    return (wb_batch){0};
}

int64_t wb_loader_length(const wb_loader *l)
{
    return is_loader(l, "loader_length") && !wb__is_stream(l->dataset) ? l->batches : -1;
}
int64_t wb_loader_epoch(const wb_loader *l) { return is_loader(l, "loader_epoch") ? l->epoch : -1; }
int wb_loader_status(const wb_loader *l)
{
    return is_loader(l, "loader_status") ? l->status : WB_ERROR_ARGUMENT;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

void wb__loader_state(const wb_loader *l, uint64_t state[WB__LOADER_WORDS])
{
    state[WB__LOADER_SEED] = l->options.seed;
    state[WB__LOADER_EPOCH] = (uint64_t)l->epoch;
    state[WB__LOADER_POSITION] = (uint64_t)l->position;
    state[WB__LOADER_BATCHSIZE] = (uint64_t)l->options.batchsize;
    state[WB__LOADER_SHUFFLE] = l->options.shuffle;
    state[WB__LOADER_BUFFER] = (uint64_t)l->options.buffer;
    state[WB__LOADER_LENGTH] = wb__is_stream(l->dataset) ? UINT64_MAX : (uint64_t)l->dataset->n;
}

int wb__loader_restore(wb_loader *l, const uint64_t state[WB__LOADER_WORDS])
{
    static const char *const names[] = {"batchsize", "shuffle", "buffer"};
    const uint64_t position = state[WB__LOADER_POSITION];
    uint64_t own[WB__LOADER_WORDS];
    wb__loader_state(l, own);
    const uint64_t length = state[WB__LOADER_LENGTH];
    if (position && length != own[WB__LOADER_LENGTH] && length != UINT64_MAX)
        return wb__fail(WB_ERROR_ARGUMENT, "loader: the position is after batch %llu of an epoch of"
                        " %llu observations, and this loader's dataset has %lld: give it the same "
                        "observations, or begin the epoch anew", (unsigned long long)position,
                        (unsigned long long)length, (long long)l->dataset->n);
    for (int i = WB__LOADER_BATCHSIZE; position && i <= WB__LOADER_BUFFER; i++)
        if (state[i] != own[i] && state[i] != UINT64_MAX)
            return wb__fail(WB_ERROR_ARGUMENT, "loader: the position is after batch %llu of an "
                            "epoch with .%s = %llu, and this loader has .%s = %llu: make it so",
                            (unsigned long long)position, names[i - WB__LOADER_BATCHSIZE],
                            (unsigned long long)state[i], names[i - WB__LOADER_BATCHSIZE],
                            (unsigned long long)own[i]);
    if (state[WB__LOADER_EPOCH] > INT64_MAX || position > (uint64_t)l->batches)
        return wb__fail(WB_ERROR_ARGUMENT, "loader: the position is after batch %llu, and there are"
                        " %lld batches", (unsigned long long)position, (long long)l->batches);
    const int status = wb_loader_stop(l);
    if (status) return status;
    l->options.seed = state[WB__LOADER_SEED];
    l->epoch = (int64_t)state[WB__LOADER_EPOCH];
    l->position = (int64_t)position;
    return 0;
}
