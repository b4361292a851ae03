/* The gradients of wb_train (withgradient.c). */
#ifndef WB__TRAIN_H
#define WB__TRAIN_H

#include "base/base.h"

/* Like wb_withgradient. If `state` is not NULL, the gradients are those of wb_scale_loss(state,
 * loss), frozen parameters get no gradients, and a loss that depends on none of the others is an
 * error: the training would change nothing. */
wb_tensor *wb__withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads, void *ctx,
                            wb_opt_state *state);

/* The loss of this batch, or the norm of its gradients, was not finite.  Sets the error, with the
 * cause: an element of the batch or of a parameter, if one is not finite.  Returns its code. */
int wb__not_finite(void *model, const wb_opt_state *state, wb_tensor *loss, const wb_batch *batch);
/* Returns the code of the current error, WB_ERROR_DEVICE.  If the model and the batch are on
 * different devices, adds both devices, and the call that moves the loader, to the message. */
int wb__on_two_devices(void *model, const wb_batch *batch);

#endif
