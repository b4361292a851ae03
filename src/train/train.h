/* The gradients of wb_train (withgradient.c). */
#ifndef WB__TRAIN_H
#define WB__TRAIN_H

#include "base/base.h"

/* Like wb_withgradient. If `state` is not NULL, the gradients are those of wb_scale_loss(state,
 * loss), frozen parameters get no gradients, and a loss that depends on none of the others is an
 * error: the training would change nothing. */
wb_tensor *wb__withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads, void *ctx,
                            wb_opt_state *state);

#endif
