/* wb_train. */

#include "backend/collective.h"
#include "base/options.h"
#include "base/os.h"
#include "dist/dist.h"
#include "engine/evaluate.h"
#include "optim/optim.h"
#include "base/numbers/philox.h"
#include "data/loader.h"
#include "train/checkpoint.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>

/* ---- training -------------------------------------------------------------------------------- */

/* A run of wb_train. */
typedef struct {
    wb_loss loss;
    wb_layer *model;
    wb_loader *data;
    wb_opt_state *state;
    wb_train_options o;         /* options */
    wb_progress *bar;
    bool stop;                  /* .each or .stop ends the training */
    bool compares_stop;         /* the ranks train one model, and at least one has .each */
    bool has_metric;            /* at least one of the ranks has .metric */
    wb_tensor *latest;          /* mean loss of the last `latest_of` observations, which is not yet
                                   in `sum`, or NULL */
    int64_t latest_of;
    int64_t waiting;            /* observations of this rank in batches that no update has used */
    wb_tensor *before;          /* the last update's loss, whose guard may not be read yet */
    wb_batch before_batch;      /* the batch of that update; x, y are NULL if the guard was read */
    wb_tensor *logged;          /* the loss of update `logged_step`, not yet in .logger; or NULL */
    int64_t logged_step;
    double sum;                 /* sum of the losses of `observations` earlier observations */
    int64_t observations;
} train_state;

static bool train_saves(const train_state *t) { return t->o.checkpoint || t->o.folder; }
/* Whether each epoch has a metric. */
static bool train_has_metric(const train_state *t)
{
    return train_saves(t) || t->o.stop || t->o.reduce || t->o.metrics || t->has_metric;
}
/* Whether the mean loss of an epoch is needed. */
static bool train_needs_mean(const train_state *t)
{
    return t->o.losses || (train_has_metric(t) && !t->o.metric);
}

/* Whether all ranks train one model.  Rank 0 shows the progress, and reads and writes files. */
static bool train_is_distributed(const train_state *t)
{
    return t->state->rule->bucket && wb__world();
}
static bool train_is_first(const train_state *t)
{
    return !train_is_distributed(t) || !wb__world()->rank;
}

/* Adds t->latest, the loss of the batches before, to the sum.  Then sets t->latest to `loss`, the
 * mean of n observations, which may be NULL. */
static void train_add_loss(train_state *t, wb_tensor *loss, int64_t n)
{
    wb_tensor *before = t->latest;
    const int64_t before_of = t->latest_of;
    t->latest = loss ? wb__ref(loss) : NULL;
    t->latest_of = n;
    if (!before) return;
    t->sum += wb_item(before) * (double)before_of;
    t->observations += before_of;
    wb__unref(before);
}

/* Writes the loss that waits, t->logged, to .logger.  Then makes `loss`, of the latest update, the
 * one that waits until the next call, since it is not computed yet; NULL: none waits. */
static int train_log_loss(train_state *t, wb_tensor *loss)
{
    wb_tensor *before = t->logged;
    const int64_t step = t->logged_step;
    t->logged = wb__ref(loss);
    t->logged_step = t->state->counts->updates;
    if (!before) return 0;
    const int status = wb_log_scalar(t->o.logger, "loss", wb_item(before), step);
    wb__unref(before);
    return status;
}

/* Adds `own`, the loss of a batch of n observations, to the epoch's loss.  Ranks that train one
 * model add instead `mean`, over the ranks and the accumulated batches, when an update has computed
 * it; then n and `own` may be 0 and NULL. */
static void train_add_batch(train_state *t, wb_tensor *own, wb_tensor *mean, int64_t n)
{
    if (!train_needs_mean(t)) return;
    if (!train_is_distributed(t)) {
        if (own) train_add_loss(t, own, n);
        return;
    }
    t->waiting += n;
    if (!mean) return;
    train_add_loss(t, mean, t->waiting);
    t->waiting = 0;
}

/* Evaluates the last update, which had a batch of n observations.  *loss, the loss of this batch or
 * NULL, becomes the mean over the ranks and the accumulated batches, if the update has a mean.
 * Sets *before to whether the update failed because the update before it was not finite. */
static int train_finish_update(train_state *t, wb_tensor **loss, int64_t n, bool *before)
{
    /* now->guard is the tensor that wb_update requires to be finite, or NULL. */
    const wb__thread *now = wb__this_thread();
    wb_opt_state *s = t->state;
    wb_tensor *both[2] = {s->mean_loss ? s->mean_loss : *loss, *loss};
    int status = now->guard || !both[0] || !wb__pending_count()
                     ? 0 : wb__guard_pending(both[0], "the loss");
    if (!status) status = wb__evaluate(*loss ? 2 : 1, both, now->guard ? NULL : both[0]);
    *before = status && wb__guard_was_late();
    const bool later = train_needs_mean(t) || t->bar || t->o.logger;
    const bool reads = t->o.each || (later && now->late.guard != both[0]);
    if (!status && reads) status = wb__guard_confirm();
    if (status) return status;
    const bool updated = s->mean_loss || !s->loss_sum;
    train_add_batch(t, *loss, updated ? both[0] : NULL, n);
    *loss = both[0];
    return t->o.logger && updated && train_is_first(t) ? train_log_loss(t, both[0]) : 0;
}

/* Records the assignments that move .average towards the model, after an update. */
static int train_move_average(const train_state *t)
{
    const wb_average_options o = WB__OPTIONS(wb_average_options, .decay = t->o.decay);
    return t->o.average ? wb_average_with(t->o.average, t->model, &o) : 0;
}

/* Keeps the loss of this update, and its batch if the guard, the tensor that must be finite, is
 * read later.  NULL: forgets both. */
static void train_keep_last(train_state *t, wb_tensor *loss, const wb_batch *batch)
{
    const bool late = loss && wb__this_thread()->late.guard;
    wb__unref(t->before);
    wb__unref(t->before_batch.x);
    wb__unref(t->before_batch.y);
    t->before = wb__ref(loss);
    t->before_batch = (wb_batch){.x = late ? wb__ref(batch->x) : NULL,
                                 .y = late ? wb__ref(batch->y) : NULL,
                                 .index = loss ? batch->index : 0};
}

/* Waits for the guard (see train_keep_last) of the last training step; if it is not finite, the
 * error names the batch. */
static int train_wait_for_guard(train_state *t)
{
    const int status = wb__guard_confirm();
    return status == WB_ERROR_NUMBER && t->before
               ? wb__not_finite(t->model, t->state, t->before, &t->before_batch) : status;
}

/* Applies the accumulated gradients, without a further batch. */
static int train_apply_rest(train_state *t)
{
    wb_tensor *loss = NULL;
    bool before;
    if (!t->state->counts->accumulated) return 0;
    int status = wb__update_now(t->state, t->model, NULL);
    if (!status) status = train_move_average(t);
    if (!status) status = train_finish_update(t, &loss, 0, &before);
    return status ? status : train_wait_for_guard(t);
}

/* Drops the accumulated batches.  After a failure the ranks may have different numbers of them,
 * with which the training could not go on. */
static void train_drop_rest(const train_state *t)
{
    wb__error_kept kept;
    if (!train_is_distributed(t)) return;
    wb__error_keep(&kept);
    if (!wb__sums_drop(t->state)) wb__error_restore(&kept);
}

/* Makes one training step.  The loss must be finite, and also the norm of the gradients if a rule
 * computes this norm.  Otherwise the step fails, and the model and the state keep their values. */
static int train_step(train_state *t, int epoch, wb_batch batch)
{
    wb_tree *grads;
    wb_tensor *loss = wb__withgradient(t->loss, t->model, batch, &grads, t->o.ctx, t->state);
    if (!loss && wb_error_code() == WB_ERROR_DEVICE) return wb__on_two_devices(t->model, &batch);
    if (!loss)
        return wb_error_code() ? (int)wb_error_code()
                               : wb__fail(WB_ERROR_ARGUMENT, "train: the loss is NULL");
    /* With WEBER_EAGER wb_update assigns at once, so the loss is checked before wb_update.  The
     * running statistics of BatchNorm layers have already changed. */
    if (wb__this_thread()->eager && !isfinite(wb_item(loss)))
        return wb__not_finite(t->model, t->state, loss, &batch);
    wb_tensor *own = loss;
    bool before;
    const bool last = batch.index + 1 == wb_loader_length(t->data);
    int status = (last ? wb__update_now : wb_update)(t->state, t->model, grads);
    if (status) return status;
    const bool adds = t->state->loss_sum && !t->state->mean_loss;
    if (!adds && (status = train_move_average(t))) return status;
    status = train_finish_update(t, &loss, batch.n, &before);
    if (before && t->before)
        return wb__not_finite(t->model, t->state, t->before, &t->before_batch);
    /* The other ranks will wait in the update that applies the sums.  This rank takes part with its
     * loss, so that the update fails on all ranks. */
    if (status == WB_ERROR_NUMBER && adds && train_is_distributed(t) &&
        !wb__update_now(t->state, t->model, grads))
        train_finish_update(t, &loss, 0, &before);
    if (status == WB_ERROR_NUMBER) return wb__not_finite(t->model, t->state, own, &batch);
    if (status) return status;
    train_keep_last(t, own, &batch);
    if (t->bar) wb_progress_step(t->bar, "loss", loss);
    return wb__call_each(&t->o, epoch, batch.index + 1, loss, &t->stop);
}

/* Stops the training, or if *ended this epoch, on all ranks if .each has stopped it on one. */
static int train_compare_stop(train_state *t, bool *ended)
{
    const int64_t mine[] = {t->stop, *ended};
    int64_t least[2] = {0}, most[2] = {0};
    if (!t->compares_stop) return 0;
    const int status = wb__extremes(2, mine, least, most);
    t->stop |= most[0] != 0;
    if (!*ended && most[1]) wb_loader_stop(t->data);
    *ended |= most[1] != 0;
    wb__collective_report("train");
    return status;
}

static int train_run_epoch(train_state *t, int epoch)
{
    int status = 0;
    uint64_t at[WB__LOADER_WORDS];
    wb__loader_state(t->data, at);
    bool any = at[WB__LOADER_POSITION] > 0;                   /* whether the epoch has a batch */
    wb_batch batch;
    if (t->o.progress && train_is_first(t)) {
        t->bar = wb_progress_begin(t->data, "epoch %d", epoch);
        if (!t->bar) return wb_error_code();
    }
    while (!status && !t->stop && wb_loader_next(t->data, &batch)) {
        const int64_t running = wb_loader_epoch(t->data);
        any = true;
        status = train_step(t, epoch, batch);
        bool ended = wb_loader_epoch(t->data) != running;   /* .each stopped the loader */
        if (!status) status = train_compare_stop(t, &ended);
        if (ended) break;
    }
    if (!status) status = train_wait_for_guard(t);
    if (!status) status = train_apply_rest(t);
    if (status) train_drop_rest(t);
    wb__error_kept kept;
    wb__error_keep(&kept);
    const int logged = train_log_loss(t, NULL);       /* also the loss before the one that failed */
    if (status) wb__error_restore(&kept);
    else status = logged;
    if (status || t->stop) wb_loader_stop(t->data);
    else status = wb_loader_status(t->data);
    if (!status && !any && !t->stop)
        status = wb__fail(WB_ERROR_ARGUMENT, "train: the loader's stream gave no batch in epoch %d",
                          epoch);
    if (t->bar) {
        wb_progress_end(t->bar);
        wb_free(t->bar);
        t->bar = NULL;
    }
    if (!status && train_is_distributed(t)) status = wb__compare_ranks(t->model, "after an epoch");
    return status;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Whether the options that are objects are of their kinds. */
static bool train_objects_fit(const wb_train_options *o)
{
    return (!o->average || wb__is_model("train: .average", o->average)) &&
           (!o->schedule || wb__expect("train: .schedule", o->schedule, &wb__schedule_class)) &&
           (!o->logger || wb__expect("train: .logger", o->logger, &wb__logger_class));
}

/* Reads the options of averages, schedules and watched numbers. */
static int train_check_watching(train_state *t)
{
    wb_train_options *o = &t->o;
    if (!(o->factor >= 0 && o->factor <= 1))
        return wb__fail(WB_ERROR_ARGUMENT, "train: .factor is %g; it is from 0 to 1", o->factor);
    for (int i = 0; i < 2; i++) {
        wb_watch *w = i ? o->reduce : o->stop;
        if (!w) continue;
        if (w->wait < 1)
            return wb__fail(WB_ERROR_ARGUMENT, "train: .%s->wait is %d; it is a number of epochs, "
                            "at least 1", i ? "reduce" : "stop", w->wait);
        w->higher = o->higher;
    }
    const int status = o->reduce ? wb__rule_follows("train", t->state->rule, ".reduce") : 0;
    if (status) return status;
    bool follows = o->schedule != NULL;
    for (int i = 0; i < t->state->n; i++) follows |= t->state->slots[i].schedule != NULL;
    if (o->reduce && follows)
        return wb__fail(WB_ERROR_ARGUMENT, "train: .reduce and a schedule: one of both sets eta");
    return o->schedule ? wb_set_schedule(t->state, "", o->schedule) : 0;
}

static wb_checkpoint train_checkpoint_here(const train_state *t)
{
    return (wb_checkpoint){.model = t->model, .state = t->state, .loader = t->data,
                           .name = t->o.name, .average = t->o.average, .stop = t->o.stop,
                           .reduce = t->o.reduce,
                           .epoch = wb_loader_epoch(t->data)};
}

/* Returns the mean loss of the epoch's observations. */
static double train_epoch_loss(train_state *t)
{
    train_add_loss(t, NULL, 0);
    return t->sum / (double)t->observations;
}

/* Returns `status`, or an error code if another rank has an error.  The metric of a rank may fail:
 * then all ranks fail, since the others would wait for it. */
static int train_agree_on_status(int status)
{
    int64_t least = 0, most = 0, mine = status;
    const int failed = wb__extremes(1, &mine, &least, &most);
    if (status || failed || !most) return status ? status : failed;
    return wb__fail((int)most, "train: .metric failed on another rank, whose message has the"
                    " reason");
}

/* Sets *metric to the metric of the epoch. */
static int train_measure(train_state *t, int epoch, double *metric)
{
    if (!t->o.metric) return *metric = train_epoch_loss(t), 0;
    wb_scope *s = wb_scope_open();
    if (!s) return wb_error_code();
    const unsigned failures = wb__failures();
    wb__call_metric(&t->o, t->model, epoch, metric);
    int status = failures != wb__failures() ? (int)wb_error_code() : 0;
    if (status)
        wb__fail(status, "train: .metric failed in epoch %d: %s", epoch, wb_error());
    wb__error_kept kept;
    wb__error_keep(&kept);
    const int closed = wb_scope_close(s);
    if (status) wb__error_restore(&kept);
    return wb__divided_agree(t->state, "train", status ? status : closed);
}

static int train_save(const train_state *t, double metric)
{
    wb_checkpoint c = train_checkpoint_here(t);
    c.metric = metric;
    c.has_metric = true;
    if (!train_is_first(t) && !wb__is_divided(t->state)) return 0;
    if (t->o.checkpoint) return wb_save_checkpoint(t->o.checkpoint, &c);
    return wb_keep_checkpoint(t->o.folder, &c, t->o.keep_last, .best = t->o.keep_best,
                              .higher = t->o.higher);
}

/* Multiplies all learning rates by .factor. */
static void train_reduce_eta(const train_state *t)
{
    wb_opt_state *s = t->state;
    for (int i = -1; i < s->n; i++)
        for (int p = 0; p < s->rule->n; p++) {
            const wb__rule_part *part = &s->rule->parts[p];
            wb_Rule_options *o = i < 0 ? &s->rule->parts[p].o
                                       : s->slots[i].own ? &s->slots[i].own[p] : NULL;
            if (o && wb__part_follows(part)) o->eta *= t->o.factor;
        }
}

/* Ends the epoch: computes its metric, and applies .stop, .reduce and the checkpoint options. */
static int train_end_epoch(train_state *t, int epoch)
{
    double metric = 0;
    if (!train_has_metric(t)) return 0;
    int status = train_measure(t, epoch, &metric);
    if (train_is_distributed(t) && t->has_metric) status = train_agree_on_status(status);
    if (!status && train_is_distributed(t) && (t->o.stop || t->o.reduce))
        status = wb__from_rank(&metric, WB_F64, 1, 0);
    if (status) return status;
    if (t->o.metrics) t->o.metrics[epoch - 1] = metric;
    if (t->o.logger && t->o.metric && train_is_first(t)) {
        status = wb_log_scalar(t->o.logger, "metric", metric, t->state->counts->updates);
        if (status) return status;
    }
    const bool ends = t->o.stop && wb_early_stopping(t->o.stop, metric);
    if (t->o.reduce && wb_early_stopping(t->o.reduce, metric)) {
        t->o.reduce->count = 0;
        train_reduce_eta(t);
    }
    if (!status && train_saves(t)) status = train_save(t, metric);
    t->stop |= ends;
    return status;
}

/* Reports checkpoints of an earlier training in the folder, since they count among the kept ones
 * although this training begins anew. */
static int train_report_earlier(const train_state *t)
{
    const wb_checkpoint c = train_checkpoint_here(t);
    int64_t epoch = -1;
    if (!t->o.folder || t->o.resume || c.epoch || !train_is_first(t) ||
        !wb__os_is_there(t->o.folder))
        return 0;
    const int status = wb__checkpoint_newest(t->o.folder, &c, &epoch);
    if (epoch >= 0)
        wb__log(WB_LOG_WARN, "train: %s has checkpoints \"%s\" of an earlier training, to epoch "
                "%lld, and they count for the newest and the best: .resume = true continues that "
                "training; for a new one remove them, or choose another .folder or .name",
                t->o.folder, c.name ? c.name : "checkpoint", (long long)epoch);
    return status;
}

/* Loads the checkpoint, if there is one, and sets *done to the number of epochs by which the
 * checkpoint is ahead of the loader. */
static int train_load(const train_state *t, int64_t *done)
{
    wb_checkpoint c = train_checkpoint_here(t);
    const int64_t begun = c.epoch;
    const char *folder = t->o.folder;
    bool found = true;
    int status = 0;
    if (wb__os_is_there(folder ? folder : t->o.checkpoint) || wb__os_error() != WB__OS_ABSENT)
        status = folder ? wb__checkpoint_resume(folder, &c, &found)
                        : wb_load_checkpoint(t->o.checkpoint, &c);
    *done = WB__MIN(WB__MAX(c.epoch - begun, 0), INT32_MAX);
    return status;
}

/* Sends the counts of rank 0's watched number to the other ranks. */
static int train_send_watch(wb_watch *w)
{
    if (!w) return 0;
    double words[] = {w->count, w->begun, w->score};
    const int status = wb__from_rank(words, WB_F64, WB__COUNT(words), 0);
    w->count = (int)words[0];
    w->begun = words[1] != 0;
    w->score = words[2];
    return status;
}

/* Sends the objects of rank 0 to the other ranks: model, state, average, watched numbers, and, if
 * rank 0 has loaded a checkpoint, the position of the loader, which is the beginning of an
 * epoch. */
static int train_send_objects(const train_state *t, bool loaded)
{
    uint64_t at[WB__LOADER_WORDS];
    wb__loader_state(t->data, at);
    int64_t words[] = {(int64_t)at[0], (int64_t)at[1]};
    int status = wb__from_rank(words, WB_I64, WB__COUNT(words), 0);
    if (!status && loaded) status = wb__sums_drop(t->state);        /* loading does so on rank 0 */
    if (!status) status = wb_distributed_synchronize_with(t->model, NULL);
    if (!status) status = wb_distributed_synchronize_with(t->state, NULL);
    if (!status && t->o.average)
        status = wb_distributed_synchronize_with(t->o.average, NULL);
    if (!status) status = train_send_watch(t->o.stop);
    if (!status) status = train_send_watch(t->o.reduce);
    if (status || train_is_first(t) || !loaded) return status;
    at[0] = (uint64_t)words[0];
    at[1] = (uint64_t)words[1];
    return wb__loader_restore(t->data, at);
}

/* Resumes from the checkpoint, if .resume is set and there is one.  Sets *done to the number of
 * epochs by which the checkpoint is ahead of the loader; they count as epochs of this training.
 * Afterwards all ranks have the objects of rank 0. */
static int train_resume(train_state *t, int *done)
{
    int64_t ahead = 0, status = 0;
    const bool divided = wb__is_divided(t->state);
    if (t->o.resume && train_is_first(t)) {
        t->state->gives = divided;
        status = train_load(t, &ahead);
        t->state->gives = false;
        if (divided) status = wb__divided_end((int)status);
    } else if (t->o.resume && divided) status = wb__divided_take(t->state, "train");
    if (train_is_distributed(t)) {
        int64_t words[] = {status, ahead};
        const int failed = wb__from_rank(words, WB_I64, WB__COUNT(words), 0);
        if (failed) return failed;
        if (words[0] && !train_is_first(t))
            return wb__fail((int)words[0], "train: rank 0 cannot resume from the checkpoint");
        ahead = words[1];
        status = wb__divided_agree(t->state, "train", (int)status);
        for (int i = 0; divided && i < t->state->n && !status; i++)
            status = wb__from_rank(&t->state->counts->slot[i].steps, WB_I64, 1, 0);
        if (divided && !status) status = wb__from_rank(&t->state->counts->updates, WB_I64, 1, 0);
        if (!status) status = train_send_objects(t, ahead > 0);
    }
    *done = (int)ahead;
    /* the checkpoint was written by a training that .stop had ended */
    if (!status && ahead && t->o.stop) t->stop = t->o.stop->count >= t->o.stop->wait;
    return (int)status;
}

/* Sets the random numbers of an epoch, such as those of dropout.  They follow from those of rank 0
 * and differ between the ranks: a checkpoint of rank 0 restores those of all. */
static int train_set_random(const train_state *t)
{
    wb__rng_state rng = wb__rng_get_state();
    int64_t words[] = {(int64_t)rng.key, (int64_t)rng.counter};
    if (!train_is_distributed(t)) return 0;
    const int status = wb__from_rank(words, WB_I64, WB__COUNT(words), 0);
    if (status || train_is_first(t)) return status;
    const uint64_t other = (uint64_t)wb__world()->rank * 0x9E3779B97F4A7C15u;
    wb__rng_set_state((wb__rng_state){(uint64_t)words[0] ^ other, (uint64_t)words[1]});
    return 0;
}

/* Compares what must be equal on all ranks: the number of batches, since each batch is a collective
 * operation, and whether the state is divided.  Sets t->compares_stop and t->has_metric. */
static int train_compare_options(train_state *t)
{
    static const char *const names[] = {"batches of the loader", ".epochs",
                                        "parts of the state (.shard)",
                                        ".average (1), .stop (2), .reduce (4) and .metrics (8)"};
    const wb_train_options *o = &t->o;
    const int64_t mine[] = {wb_loader_length(t->data), o->epochs, t->state->parts,
                            (o->average != NULL) + 2 * (o->stop != NULL) +
                                4 * (o->reduce != NULL) + 8 * (o->metrics != NULL),
                            o->each != NULL, o->metric != NULL};
    int64_t least[6] = {0}, most[6] = {0};
    t->has_metric = mine[5] != 0;
    if (!train_is_distributed(t)) return 0;
    const int status = wb__extremes(6, mine, least, most);
    if (status) return status;
    t->compares_stop = most[4] != 0;
    t->has_metric = most[5] != 0;
    for (int i = 0; i < 4; i++)
        if (least[i] != most[i])
            return wb__fail(WB_ERROR_ARGUMENT, "train: %s: %lld on rank %d, and %lld to %lld on all"
                            " ranks: give all the same; wb_distributed_dataset makes datasets of"
                            " one length", names[i], (long long)mine[i], wb__world()->rank,
                            (long long)least[i], (long long)most[i]);
    return 0;
}

int wb_train_with(wb_loss loss, void *model, wb_loader *data, wb_opt_state *state,
                  const wb_train_options *given)
{
    WB__PUBLIC(wb_train_with, wb_error_code());
    if (!wb__is_model("train", model) || !wb__expect("train", data, &wb__loader_class) ||
        !wb__expect("train", state, &wb__opt_state_class))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!loss) return wb__fail(WB_ERROR_ARGUMENT, "train: no loss function");
    train_state t = {.loss = loss, .model = model, .data = data, .state = state};
    if (!wb__read_options("train", wb_train_options, &t.o, given, NULL))
        return wb_error_code();
    if (t.o.epochs < 0) return wb__fail(WB_ERROR_ARGUMENT, "train: %d epochs", t.o.epochs);
    if (!wb_loader_length(data))
        return wb__fail(WB_ERROR_ARGUMENT, "train: the loader has no batches: the dataset is "
                        "empty, or shorter than a batch with .drop_last");
    for (int i = 0; i < t.o.epochs; i++) {
        if (t.o.losses) t.o.losses[i] = NAN;
        if (t.o.metrics) t.o.metrics[i] = NAN;
    }
    int done = 0;
    wb__claimed claimed = {0};
    wb__ref(state);                     /* the loss function may free it */
    int status = train_objects_fit(&t.o) ? wb__check_saving(&t.o) : (int)wb_error_code();
    if (!status) status = wb__claim_model(model, &claimed);
    if (!status) status = train_check_watching(&t);
    state->keeps_loss = train_is_distributed(&t) || state->loss_sum;
    if (!status) status = wb__end_pending_exchange();
    if (!status) status = train_compare_options(&t);
    if (!status) status = wb__divided_agree(state, "train", 0);
    if (!status) status = train_report_earlier(&t);
    if (!status) status = train_resume(&t, &done);
    if (!status && done && done >= t.o.epochs && train_is_first(&t))
        wb__log(WB_LOG_INFO, "train: %s has %d epochs, and .epochs is %d: nothing is left to train",
                t.o.folder ? t.o.folder : t.o.checkpoint, done, t.o.epochs);
    for (int epoch = done + 1; !status && !t.stop && epoch <= t.o.epochs; epoch++) {
        t.sum = 0;
        t.observations = 0;
        status = train_set_random(&t);
        if (!status) status = train_run_epoch(&t, epoch);
        if (!status && t.o.losses) t.o.losses[epoch - 1] = train_epoch_loss(&t);
        if (!status && !t.stop) status = train_end_epoch(&t, epoch);
    }
    if (t.latest) wb__unref(t.latest);
    wb__unref(t.logged);
    train_keep_last(&t, NULL, NULL);
    state->keeps_loss = false;
    wb__unref(state->mean_loss);
    state->mean_loss = NULL;
    wb__unref(state);
    wb__unclaim_model(&claimed);
    return status;
}
