/* Weber, chapter 4: tools for models: copies, flat parameters, shapes, summaries, profiles. */
#ifndef WEBER_MODELS_H
#define WEBER_MODELS_H

#include "weber/structs.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A copy of a layer or tree, in the current scope, that shares nothing that changes with it: every
 * variable is copied.  Ties, modes and options are kept.  wb_clone(x) is the typed form.  Errors:
 * another object; a call in a function that wb_compile records. */
WB_API void *wb_object_clone(void *x);

/** All trainable tensors of a layer or tree (wb_each_parameter) as one vector, in their order, in
 * the dtype of the first.  It is made of operations, so its gradient reaches the parameters.
 * Errors: no trainable tensor; tensors on two devices. */
WB_API wb_tensor *wb_destructure(void *model);
/** A layer or tree like `model` whose trainable tensors are parts of `flat`, a vector like that of
 * wb_destructure(model): wb_restructure(model, flat) is the typed form.  These parts are not
 * variables: gradients pass through them to `flat`, so that flat may be a parameter, or the result
 * of another network.  Other tensors are shared.  Error: another size than that of
 * wb_destructure. */
WB_API void *wb_object_restructure(void *model, wb_tensor *flat);

/** A layer or tree like `model` in which each WeightNorm is replaced by its layer, with the weight
 * as a parameter: wb_remove_weight_norms(model) is the typed form.  Other tensors are shared with
 * `model`, which stays as it is; ties of g and v become ties of the weight.  An optimiser state of
 * `model` does not fit the result, which belongs to the current scope. */
WB_API void *wb_object_remove_weight_norms(void *model);

/** Calls f for `object`, if it is a layer, and for each layer inside a layer or tree, depth first,
 * once for each layer.  `path` is the layer's path, "" for `object`, valid during the call.  If f
 * returns a value other than 0, the function stops and returns it; otherwise it returns 0 or an
 * error code. */
WB_API int wb_each_layer(void *object, int (*f)(wb_layer *layer, const char *path, void *ctx),
                         void *ctx);

/** The number of inner layers of a Chain, Parallel, PairwiseFusion, Maxout or Transformer
 * (wb_load_pretrained) and its blocks; 1 for SkipConnection, Recurrence, WeightNorm, and a LoRA or
 * Quantized (weber/adapt.h); 0 for all other layers, also those of WB_LAYER.  Each inner layer is
 * one, whatever is inside it: wb_add_lora and wb_quantize change no count of a Chain.  -1: not a
 * layer. */
WB_API int wb_layer_count(wb_layer *layer);
/** Calls a Chain and sets outputs[i] to the output of layer i: the activations of Flux.  Returns 0
 * or an error code, and then the outputs are NULL.  Errors: not a Chain; n is not its number of
 * layers; a layer gives several tensors. */
WB_API int wb_activations(wb_layer *chain, wb_tensor *x, int n, wb_tensor **outputs);

/** Sets `out` to the shape of the layer's output for an input of this dtype and shape, and returns
 * its number of dimensions; -1 on failure.  Nothing is computed, no random number is drawn and no
 * running statistic changes.  `out` has room for WB_MAX_DIMS sizes. */
WB_API int wb_output_size(wb_layer *layer, wb_dtype dtype, int ndim, const int64_t *dims,
                          int64_t *out);

/** A table with a row for each layer but containers, in the order of the calls: its path,
 * its name, the shape of its output, its parameters, the floating-point operations of its call
 * (products and convolutions count a multiplication and an addition; others about one an element),
 * and the milliseconds in which its outputs are computed, without a backward pass.  The last row
 * has the totals; a layer that is called twice has two rows, and its parameters count once.  The
 * layer is called three times; running statistics and random numbers are as before.  The caller
 * frees the text with wb_free_text.  NULL: a call failed. */
WB_API char *wb_summary_format(wb_layer *layer, int n, wb_tensor *const *inputs);
/** Prints wb_summary_format to standard output: wb_summary(model, x).  On failure it prints
 * nothing, and wb_error has the reason. */
WB_API void wb_summary_array(wb_layer *layer, int n, wb_tensor *const *inputs);

/** Begins to measure every kernel of the evaluations of the process.  While it lasts, kernels run
 * one after the other and the host waits for each, so that programs are slower; the plans are made
 * again.  Returns 0 or an error code.  Error: it has begun already. */
WB_API int wb_profile_begin(void);
/** Ends the measurement, and returns a table of the kernels with their calls, milliseconds and
 * shares of the time, the most expensive first; the caller frees it with wb_free_text.  `trace`, if
 * not NULL, is a file that gets all calls in the JSON format of Chrome's tracing (chrome://tracing,
 * Perfetto).  NULL: the measurement has not begun, or the file cannot be written. */
WB_API char *wb_profile_end(const char *trace);

#ifdef __cplusplus
}
#else
#define wb_summary(layer, ...) wb_summary_array((layer), WB_TENSORS_(__VA_ARGS__))
#define wb_clone(x) WB_ONCE_(WB_CLONE_, x, )
#define WB_CLONE_(x, _) (__typeof__(x))wb_object_clone(WB_MODEL_(x))
#define wb_remove_weight_norms(model) WB_ONCE_(WB_REMOVE_WEIGHT_NORMS_, model, )
#define WB_REMOVE_WEIGHT_NORMS_(x, _) (__typeof__(x))wb_object_remove_weight_norms(WB_MODEL_(x))
#define wb_restructure(model, flat) WB_ONCE_(WB_RESTRUCTURE_, model, (flat))
#define WB_RESTRUCTURE_(x, flat) (__typeof__(x))wb_object_restructure(WB_MODEL_(x), flat)
#define WB_MODEL_(x)                                                                        \
    _Generic(x, wb_layer *: wb_any_, wb_tree *: wb_any_, default: wb_this_takes_a_layer_or_tree)(x)
void *wb_this_takes_a_layer_or_tree(wb_layer_or_tree_expected);
#endif

#endif
