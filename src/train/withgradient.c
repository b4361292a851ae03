/* wb_withgradient, and the gradients of wb_train. */
#include "train/train.h"

#include "engine/evaluate.h"
#include "optim/optim.h"
#include "tree/tree.h"

/* Returns l, the result of the program's loss function, if it is a floating scalar, else NULL with
 * the error set. */
static wb_tensor *checked_loss(const char *what, wb_tensor *l)
{
    if (!l && !wb_error_code())
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: the loss function gave NULL, and nothing "
                             "failed; wb_fail sets the reason", what);
    if (!wb__operand(what, l)) return NULL;
    if (l->size == 1 && wb__dtype_float((wb_dtype)l->dtype)) return l;
    return wb__fail_null(WB_ERROR_SHAPE, "%s: the loss function gave %s, not one floating number: "
                         "take its mean or sum", what, wb_describe(l));
}

static bool is_frozen(void *ctx, int leaf)
{
    const wb_opt_state *s = ctx;
    return leaf < s->n_paths && s->slots[s->paths[leaf].slot].frozen;
}

WB__PROGRAM_CALL(train_loss_call, loss_run, wb_tensor *,
                 wb_loss f; wb_layer *model; wb_batch batch; void *ctx;,
                 c->f(c->model, c->batch, c->ctx))

wb_tensor *wb__withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads, void *ctx,
                            wb_opt_state *state)
{
    if (grads) *grads = NULL;
    if (!wb__is_model("withgradient", model)) return NULL;
    if (!loss) return wb__fail_null(WB_ERROR_ARGUMENT, "withgradient: no loss function");
    wb__thread *t = wb__this_thread();
    int first = wb__pending_count();
    t->training++;
    train_loss_call c = {.f = loss, .model = model, .batch = batch, .ctx = ctx};
    wb_tensor *l = wb__call_program(loss_run, &c) ? c.result : NULL;
    if (grads) l = checked_loss(state ? "train" : "withgradient", l);
    wb_tensor *of = state && l ? wb_scale_loss(state, l) : l;
    wb_tree *g = NULL;
    bool reaches = true;
    if (of && grads) g = wb__gradient_of_some(of, model, state ? is_frozen : NULL, state, &reaches);
    t->training--;
    if (g && state && !reaches) {
        g = NULL;
        wb__fail(WB_ERROR_ARGUMENT, "train: the loss of batch %lld does not depend on the model: no"
                 " gradient reaches a parameter that is not frozen; compute the loss from what the"
                 " model that it is given returns, without wb_stop_gradient, wb_argmax or wb_item"
                 " on the way, or wb_thaw what it depends on", (long long)batch.index + 1);
    }
    if (!l || (grads && !g)) {
        wb__forget_pending(first);              /* undoes updates of running statistics */
        return NULL;
    }
    if (grads) *grads = g;
    return l;
}

WB__PROGRAM_CALL(each_call, each_run, int,
                 const wb_train_options *o; int epoch; int64_t batch; wb_tensor *loss;,
                 c->o->each(c->epoch, c->batch, c->loss, c->o->ctx))

int wb__call_each(const wb_train_options *o, int epoch, int64_t batch, wb_tensor *loss, bool *stop)
{
    each_call c = {o, epoch, batch, loss, 0};
    if (!o->each) return 0;
    if (!wb__call_program(each_run, &c)) return wb_error_code();
    *stop |= c.result != 0;
    return 0;
}

WB__PROGRAM_CALL(train_metric_call, metric_run, double,
                 const wb_train_options *o; wb_layer *model; int epoch;,
                 c->o->metric(c->model, c->epoch, c->o->ctx))

void wb__call_metric(const wb_train_options *o, wb_layer *model, int epoch, double *metric)
{
    train_metric_call c = {o, model, epoch, 0};
    if (wb__call_program(metric_run, &c)) *metric = c.result;
}

/* ---- the claims of a training ---------------------------------------------------------------- */

static int withgradient_claim(const wb__leaf *leaf, void *ctx)
{
    wb__claimed *c = ctx;
    if (leaf->x->op != WB__OP_variable) return 0;
    if (!wb__reserve(&c->v, &c->capacity, c->n + 1, sizeof *c->v)) return WB_ERROR_MEMORY;
    const int status = wb__claim(leaf->x, "train");
    if (!status) c->v[c->n++] = wb__ref(leaf->x);
    return status;
}

int wb__claim_model(void *model, wb__claimed *c)
{
    wb__mutex_lock(&wb__replacing);
    const int status = wb__walk("train", model, NULL, WB__DISTINCT | WB__NAMELESS,
                                withgradient_claim, c);
    wb__mutex_unlock(&wb__replacing);
    return status;
}

void wb__unclaim_model(wb__claimed *c)
{
    while (c->n--) {
        wb__unclaim(c->v[c->n]);
        wb__unref(c->v[c->n]);
    }
    wb__free(c->v);
}

wb_tensor *(wb_withgradient)(wb_loss loss, void *model, wb_batch batch, wb_tree **grads,
                             void *ctx)
{
    WB__EDGE;
    return wb__withgradient(loss, model, batch, grads, ctx, NULL);
}
