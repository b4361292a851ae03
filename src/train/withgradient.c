/* wb_withgradient, and the gradients of wb_train. */
#include "train/train.h"

#include "engine/tensor.h"
#include "optim/optim.h"

/* Returns the result l of the program's loss function if it is one floating number, else NULL with
 * the error set. */
static wb_tensor *checked_loss(const char *what, wb_tensor *l)
{
    if (!l && !wb_error_code())
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "%s: the loss function gave NULL, and nothing failed; wb_fail sets "
                             "the reason", what);
    if (!wb__operand(what, l)) return NULL;
    if (l->size == 1 && wb__dtype_float((wb_dtype)l->dtype)) return l;
    return wb__fail_null(WB_ERROR_SHAPE,
                         "%s: the loss function gave %s, not one floating number: take its mean "
                         "or sum",
                         what, wb_describe(l));
}

static bool is_frozen(void *ctx, int leaf)
{
    const wb_opt_state *s = ctx;
    return leaf < s->n_paths && s->slots[s->paths[leaf].slot].frozen;
}

wb_tensor *wb__withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads, void *ctx,
                            wb_opt_state *state)
{
    if (grads) *grads = NULL;
    if (!wb__is_model("withgradient", model)) return NULL;
    if (!loss) return wb__fail_null(WB_ERROR_ARGUMENT, "withgradient: no loss function");
    wb__thread *t = wb__this_thread();
    int first = wb__pending_count();
    t->training++;
    wb_tensor *l = loss(model, batch, ctx);
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

wb_tensor *(wb_withgradient)(wb_loss loss, void *model, wb_batch batch, wb_tree **grads,
                             void *ctx)
{
    return wb__withgradient(loss, model, batch, grads, ctx, NULL);
}
