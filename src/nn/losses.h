/* What the files of the losses share. */
#ifndef WB__NN_LOSSES_H
#define WB__NN_LOSSES_H

#include "nn/layer.h"

/* Whether `agg` is one of the values of wb_agg; if not, sets the error of the loss `what`. */
bool wb__read_agg(const char *what, wb_agg agg);
/* Whether the option `name` that has the tensor *at is right: not given, WB_NONE, or a tensor. Sets
 * *at to NULL if there is no tensor. */
bool wb__read_tensor_option(const char *what, const char *name, const wb__given *given,
                            wb_tensor **at);
/* Returns x, its sum or its mean. */
wb_tensor *wb__aggregated(wb_agg agg, wb_tensor *x);

#endif
