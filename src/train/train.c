/* wb_withgradient and wb_train. */

#include "base/options.h"
#include "engine/tensor.h"
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>

/* For a state that scales (may be NULL) the gradients are those of the scaled loss. */
static wb_tensor *withgradient(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads,
                               void *ctx, wb_opt_state *state)
{
    if (grads) *grads = NULL;
    if (!model) return NULL;
    if (!loss) return wb__fail_null(WB_ERROR_ARGUMENT, "withgradient: no loss function");
    wb__thread *t = wb__this_thread();
    int first = wb__pending_count();
    t->training++;
    wb_tensor *l = loss(model, batch, ctx);
    wb_tensor *of = state ? wb_scale_loss(state, l) : l;
    wb_tree *g = of && grads ? wb_gradient_layer(of, model) : NULL;
    t->training--;
    if (!l || (grads && !g)) {
        wb__forget_pending(first);              /* running statistics stay where they were */
        return NULL;
    }
    if (grads) *grads = g;
    return l;
}

wb_tensor *wb_withgradient_ctx(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads,
                               void *ctx)
{
    return withgradient(loss, model, batch, grads, ctx, NULL);
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct {
    wb_loss loss;
    wb_layer *model;
    wb_loader *data;
    wb_opt_state *state;
    wb_train_options o;
    wb_progress *bar;
    bool stop;
} training;

static int not_finite(wb_tensor *loss, int64_t batch)
{
    wb_clear_error();
    double value = wb_item(loss);
    wb_clear_error();
    return wb__fail(WB_ERROR_NUMBER, "loss is %s on batch %lld, stopping training",
                    isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf", (long long)batch);
}

/* A model and a batch that are apart: what the operation said, and the cure. */
static int tell_places(const training *t, const wb_batch *batch)
{
    char said[1024];
    const int code = wb_error_code();
    snprintf(said, sizeof said, "%s", wb_error());
    const wb_device *model = wb_device_of(t->model), *data = wb_device_of(batch->x);
    if (!model || !data || model == data) return wb__fail(code, "%s", said);
    return wb__fail(code,
                    "%s\nthe model is on %s:%d, the loader's batches on %s:%d: move the loader, as "
                    "in data = wb_to(data, wb_device_of(model))",
                    said, model->backend->tag, model->ordinal, data->backend->tag, data->ordinal);
}

/* Writes wait for the loss: one that is not finite leaves the model and the state as they were. */
static int step(training *t, int epoch, wb_batch batch)
{
    wb_tree *grads;
    wb_tensor *loss = withgradient(t->loss, t->model, batch, &grads, t->o.ctx, t->state);
    if (!loss && wb_error_code() == WB_ERROR_DEVICE) return tell_places(t, &batch);
    if (!loss)
        return wb_error_code() ? (int)wb_error_code()
                               : wb__fail(WB_ERROR_ARGUMENT, "train: the loss is NULL");
    /* under WEBER_EAGER writes take place at once: they wait here, all but running statistics */
    if (wb__this_thread()->eager && !isfinite(wb_item(loss)))
        return not_finite(loss, batch.index + 1);
    int status = wb_update(t->state, t->model, grads);
    if (status) return status;
    status = wb__evaluate(1, &loss, loss);
    if (status) wb__opt_settle(t->state);
    if (status == WB_ERROR_NUMBER) return not_finite(loss, batch.index + 1);
    if (status) return status;
    if (t->bar) wb_progress_step(t->bar, "loss", loss);
    if (t->o.each && t->o.each(epoch, batch.index + 1, loss, t->o.ctx)) t->stop = true;
    return 0;
}

static int run_epoch(training *t, int epoch)
{
    int status = 0;
    wb_batch batch;
    if (t->o.progress) {
        t->bar = wb_progress_begin(t->data, "epoch %d", epoch);
        if (!t->bar) return wb_error_code();
    }
    while (!status && !t->stop && wb_loader_next(t->data, &batch)) status = step(t, epoch, batch);
    if (status || t->stop) wb_loader_stop(t->data);
    else status = wb_loader_status(t->data);
    if (t->bar) {
        wb_progress_end(t->bar);
        wb_free(t->bar);
        t->bar = NULL;
    }
    return status;
}

int wb_train_with(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state,
                  const wb_train_options *given)
{
    if (!model || !data || !state)
        return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT;
    if (!loss) return wb__fail(WB_ERROR_ARGUMENT, "train: no loss function");
    training t = {.loss = loss, .model = model, .data = data, .state = state};
    wb__read_options(&t.o, sizeof t.o, given);
    if (t.o.epochs < 0) return wb__fail(WB_ERROR_ARGUMENT, "train: %d epochs", t.o.epochs);
    if (!wb_loader_length(data))
        return wb__fail(WB_ERROR_ARGUMENT, "train: the loader has no batches: the dataset is empty, or shorter than a "
                        "batch with .drop_last");
    int status = 0, epochs = t.o.epochs ? t.o.epochs : 1;
    for (int epoch = 1; !status && !t.stop && epoch <= epochs; epoch++) {
        status = run_epoch(&t, epoch);
        if (status || t.stop || !t.o.checkpoint) continue;
        status = wb_checkpoint_save(t.o.checkpoint,
                                    &(wb_checkpoint){model, state, data, wb_loader_epoch(data)});
    }
    return status;
}
