/* The gradients of wb_train (withgradient.c). */
#ifndef WB__TRAIN_H
#define WB__TRAIN_H

#include "base/base.h"

/* Like wb_withgradient.  If `state` is not NULL, the gradients are those of wb_scale_loss(state,
 * loss), frozen parameters get no gradients, and a loss that depends on no other parameter is an
 * error, since the training would change nothing. */
wb_tensor *wb__withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads, void *ctx,
                            wb_opt_state *state);

/* Calls .each, if there is one, and sets *stop to true if .each returns true.  Returns 0 or an
 * error code. */
int wb__call_each(const wb_train_options *o, int epoch, int64_t batch, wb_tensor *loss, bool *stop);
/* Sets *metric to what .metric returns; if that throws an exception, the error is set. */
void wb__call_metric(const wb_train_options *o, wb_layer *model, int epoch, double *metric);

/* The variables of a model that wb__claim_model has claimed for this thread (claims.c).
 * wb__unclaim_model releases them, also after an error of wb__claim_model. */
typedef struct { wb_tensor **v; int n, capacity; } wb__claimed;
int wb__claim_model(void *model, wb__claimed *c);
void wb__unclaim_model(wb__claimed *c);

/* Sets the error that the loss of this batch, or the norm of its gradients, is not finite, with the
 * cause: an element of the batch or of a parameter, if one is not finite.  Returns its code. */
int wb__not_finite(void *model, const wb_opt_state *state, wb_tensor *loss, const wb_batch *batch);
/* Returns the code of the current error, WB_ERROR_DEVICE.  If the model and the batch are on
 * different devices, adds both devices, and the call that moves the loader, to the message. */
int wb__on_two_devices(void *model, const wb_batch *batch);

#endif
