/* Weber: neural networks for C and C++ programs.
 *
 * Include this header and link with -lweber.  Its chapters, in the order to read them:
 *
 *   1  weber/base.h     dtypes, options, errors, scopes, the log, memory, threads
 *   2  weber/tensor.h   tensors: creating and reading them, evaluation, gradients, trees
 *   3  weber/ops.h      operations on tensors; weber/indexing.h has those on parts of tensors,
 *                       weber/vision.h those on images,
 *                       weber/signal.h those on sound, weber/linalg.h linear algebra
 *   4  weber/nn.h       models; it includes weber/layers.h, weber/recurrent.h and weber/losses.h;
 *                       weber/structs.h has structs of the program as layers and trees,
 *                       weber/models.h tools, weber/adapt.h i8 weights and low-rank adapters
 *   5  weber/data.h     datasets and loaders; weber/observations.h has views, folds and samples,
 *                       weber/images.h PNG and JPEG files, weber/text.h tokenizers
 *   6  weber/train.h    optimiser rules, training, progress bars, plots; it includes
 *                       weber/schedules.h, schedules of the learning rate, and weber/logger.h,
 *                       logs of numbers for TensorBoard
 *   7  weber/files.h    models, tensors and checkpoints in files; memory of other libraries;
 *                       weber/pretrained.h has models from the folder of a model hub
 *   8  weber/device.h   devices: finding and choosing them, moving objects between them
 *   9  weber/distributed.h   training by several processes
 *      weber/cxx.h      the same functions for C++17; it includes weber/cxx_layers.h
 *
 * Names
 *   wb_matmul(...)               a function.  The verb is before the object, wb_load_image; a
 *                                function of an object of the library has the type in front,
 *                                wb_loader_next(loader).  The axis of an operation follows its
 *                                tensors, except before a list: wb_concat(axis, a, b)
 *   wb_Dense(...), wb_Adam(...)  makes a layer or an optimiser rule, wb_ScheduleExp(...) a
 *                                schedule.  Only a layer may have the name of a function, in
 *                                capitals: wb_Conv is wb_conv with parameters
 *   f(..., .option = value)      a macro: options are named, and an option that is not given has
 *                                its default; an option given as 0 is 0.  The macro calls the
 *                                function f_with(..., const f_options *), which takes NULL for
 *                                "all defaults".  Functions of one family share a struct of
 *                                options: wb_reduce_options, wb_pool_options, wb_loss_options,
 *                                wb_Pool_options, wb_Recurrent_options, wb_Rule_options
 *   f(a, b, c)                   a macro that takes a list calls the function f_array(n, array),
 *                                with the other arguments in the same order
 *   WB_F32, WB_LAYER(...)        a constant; a macro that defines something, as WB_LAYER a layer
 *   wb_keep, wb_show, wb_to      take an object of any kind; wb_object_keep, ... are the functions
 *   WB_NONE                      no tensor: no bias, no mask, no gradient
 *
 * Objects and errors
 *   - An object that a function returns belongs to the current scope (base.h), unless the
 *     comment of the function names another owner.
 *   - A NULL object means failure, and nothing else; wb_error() has the message.  A function
 *     that receives NULL returns NULL and keeps the first message, so a chain of calls needs one
 *     check, at its end.  A function that returns int returns 0 or an error code, unless
 *     the comment of the function names another result.
 *   - Shapes are row-major, batch first: [N, features], [N, C, H, W], [N, T, features].  Messages
 *     write a tensor as [32,784] f32.
 *   - Evaluation is lazy: an operation checks its operands, adds itself to a graph and returns.
 *     Values are computed when the program reads them, all together.  The kernels of such an
 *     evaluation are a plan, which is reused for later graphs of the same structure.
 *
 * Threads
 *   - Threads may use different objects at the same time.  Several threads may call one model while
 *     no thread trains it.  A call of a model that another thread trains (wb_train), or to which it
 *     has assignments that are not evaluated yet, is an error.  Training and assignments wait until
 *     no other thread evaluates with the model; after 20 seconds they fail.  A thread needs a stack
 *     of at least 128 kB.
 *   - Models nest at most 64 chains deep. */
#ifndef WEBER_H
#define WEBER_H

#include "weber/base.h"
#include "weber/tensor.h"
#include "weber/ops.h"
#include "weber/nn.h"
#include "weber/structs.h"
#include "weber/models.h"
#include "weber/adapt.h"
#include "weber/data.h"
#include "weber/observations.h"
#include "weber/images.h"
#include "weber/text.h"
#include "weber/train.h"
#include "weber/files.h"
#include "weber/pretrained.h"
#include "weber/device.h"
#include "weber/distributed.h"
#ifdef __cplusplus
#include "weber/cxx.h"
#endif

#endif
