/* Weber: neural networks for C programs.
 *
 * This is the whole public face: include it, link with -lweber.  It is split into chapters only to
 * be readable; read them in this order:
 *
 *   weber/base.h     dtypes, errors, scopes, the log, memory, threads
 *   weber/tensor.h   tensors: making, reading, shapes, gradients, evaluation
 *   weber/ops.h      operations on tensors
 *   weber/nn.h       layers, losses, initialisers, model trees
 *   weber/data.h     datasets and loaders
 *   weber/train.h    optimiser rules, training, progress, pictures
 *   weber/files.h    files: models, tensors, checkpoints
 *   weber/device.h   devices: finding them, choosing one, moving things between them
 *
 * Conventions
 *   - Everything returned belongs to the current scope (base.h), unless its comment says otherwise.
 *   - NULL means failed, and only that; wb_error() says why.  A call that is handed NULL returns NULL
 *     and keeps the first message, so a chain of calls needs one check, at its end.
 *     "None" (no bias, no gradient) is the object WB_NONE.
 *   - Shapes are row-major, batch first: [N, features], [N, C, H, W], [N, T, features].
 *   - Options are named fields of a struct: wb_Dense(784, 256, wb_relu, .no_bias = true).  What is
 *     not given has its default; .eta = 0.0 is 0 (base.h).
 *   - Where elements tie (the largest of equals), the operation's comment says which of them gets
 *     the gradient.
 *   - A tensor is written [32,784] f32 in messages and comments.
 *   - Work is lazy: a call checks its arguments, records an operation and returns.  Values are computed
 *     when they are asked for, all together, as one plan.
 *   - Different threads may use different objects.  One model may serve inference from many threads
 *     while no thread trains it: wb_call beside a thread that updates the model is a data race.
 *     Models nest at most 64 chains deep.  A thread needs 128 kB of stack. */
#ifndef WEBER_H
#define WEBER_H

#include "weber/base.h"
#include "weber/tensor.h"
#include "weber/ops.h"
#include "weber/nn.h"
#include "weber/data.h"
#include "weber/train.h"
#include "weber/files.h"
#include "weber/device.h"
#ifdef __cplusplus
#include "weber/cxx.h"
#endif

#endif
