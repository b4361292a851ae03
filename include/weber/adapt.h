/* Weber, chapter 4: existing models made smaller and adapted: i8 weights for inference, and
 * low-rank adapters. */
#ifndef WEBER_ADAPT_H
#define WEBER_ADAPT_H

#include "weber/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- i8 weights ------------------------------------------------------------------------------ */

/** Rows of a weight as integers with a scale for each: w [n, ...] floating.
 *   scale[i] = max |w[i]| / 127, f32     q[i] = floor(w[i] / scale[i] + 1/2), i8
 * Sets *q [n, ...] and *scale [n], which belong to the current scope; |w - scale q| is at most half
 * of scale.  q is in -127 .. 127; a row of zeros has scale 0; the scale of a row with NaN, infinity
 * or an f64 beyond f32 is no number.  Returns 0 or an error code. */
WB_API int wb_quantize_rows(wb_tensor *w, wb_tensor **q, wb_tensor **scale);

/** y = x·(scale w)ᵀ + b, with the rows of x quantised too, so that integers are multiplied.  The
 * range from low[i] to high[i] of row i has 255 steps of s[i]; the integer z[i] means exactly 0:
 *   low[i] = min(0, x[i,k] of all k)     high[i] = max(0, x[i,k] of all k)
 *   s[i] = (high[i] - low[i]) / 255     z[i] = floor(1/2 - low[i] / s[i])
 *   q[i,k] = floor(x[i,k] / s[i] + z[i] + 1/2), in 0 .. 255
 *   y[i,j] = (sum over k of (q[i,k] - z[i]) w[j,k]) · s[i] · scale[j] + b[j]
 *   x [..., in] floating   w [out, in] i8   scale [out] f32   b [out] as x, or WB_NONE   y as x
 * The CPU sums integers exactly, by AVX512-VNNI, AVX-VNNI or AVX2 where the processor has them;
 * other devices compute the same in f32.  f16, bf16 and f64 are converted to f32 and back.  A row
 * with NaN or infinity gives a row of NaN; one whose s is below 2^-100 counts as zeros.  The
 * gradient of x is that of the product without rounding, so that layers in front can be trained; w
 * and scale have none.  Errors: other dtypes or shapes; in > 65536, since a sum may then exceed 32
 * bits. */
WB_API wb_tensor *wb_linear_int8(wb_tensor *x, wb_tensor *w, wb_tensor *scale, wb_tensor *b);

/** Options of wb_quantize. */
#define wb_quantize_options_(OPT, ARG)                                                             \
    OPT(int64_t, bits, 8)                   /* bits of a weight: 8 */                              \
    /* paths, as of wb_add_lora_options; NULL: all layers */                                       \
    OPT(const char *, layers, NULL)
WB_OPTIONS(wb_quantize_options);
/** A layer or tree like `model` for inference, in which each Dense and each Embedding, also the
 * projections of MultiHeadAttention, has i8 weights: wb_quantize(model), or
 * wb_quantize(model, .layers = "layers.0 *.q_proj").
 *   Dense        wb_linear_int8(x, weight, scale, bias), then the activation
 *   Embedding    scale[x] weight[x]
 * Such a layer is printed as "Quantized(Dense(784 => 256, relu))"; its tensors are "layer.weight"
 * and "scale", made by wb_quantize_rows, and "like", one number in the dtype of the layer's results
 * (a Dense converts its input to it); none is trained.  All other layers and tensors are shared
 * with `model`, which stays as it is: convolutions and recurrent layers keep their weights, and so
 * does a Dense or Embedding with rows of fewer than 64 elements, with which f32 is faster.  A
 * weight that layers share is quantised once.  It is saved and loaded as any model (safetensors),
 * moved, compiled, and may get adapters (wb_add_lora); wb_to with a .dtype keeps integers and
 * scales.  Errors: .bits is not 8; a path matches no layer, or none that it matches can be
 * quantised; a weight has NaN or infinity; a row is longer than 65536. */
WB_API void *wb_object_quantize(void *model, const wb_quantize_options *o);

/* ---- low-rank adapters ----------------------------------------------------------------------- */

/** Options of wb_LoRA. */
#define wb_LoRA_options_(OPT, ARG)                                                                 \
    OPT(int64_t, rank, 8)                                                                          \
    OPT(double, alpha, WB_DEFAULT)          /* the default is rank; 0: no change of weight */      \
    OPT(double, dropout, 0)                 /* of the adapter's input, in train mode; below 1 */   \
    OPT(wb_initializer, init, NULL)         /* of A; NULL: normal, of deviation 1/sqrt(columns) */
WB_OPTIONS(wb_LoRA_options);
/** A layer with a trained change of low rank to its weight, which itself is frozen:
 * wb_LoRA(layer, .rank = 8).  (Hu et al. 2021)
 *   weight + alpha/rank B·A     weight [rows, ...]   A [rank, columns]   B [rows, rank]
 *   Dense        activation(x·weightᵀ + bias + alpha/rank dropout(x)·Aᵀ·Bᵀ)
 *   Embedding    weight[x] + alpha/rank B[x]·A
 * `columns` are the elements of a row of the weight.  B begins as zeros, so that the call first
 * gives what `layer` gave.  A and B have the weight's dtype; the parameters are "a", "b", and those
 * of the layer behind "layer.".  The layer, or another with its parameters, is frozen by this call:
 * wb_setup makes no state for its parameters, and they have no gradient.  `layer` is a Dense,
 * Embedding, Conv, Conv1d, ConvTranspose or ConvTranspose1d, or a Dense or Embedding of
 * wb_quantize.  In PyTorch's files it has the names of this layer.  Errors: another layer (for
 * MultiHeadAttention wb_add_lora adapts the projections, for a WeightNorm see
 * wb_remove_weight_norms); .rank below 1 or above both sizes of the weight; .dropout of a
 * convolution or Embedding. */
WB_API wb_layer *wb_LoRA_with(wb_layer *layer, const wb_LoRA_options *o);

/** Options of wb_add_lora.  Layers are named by paths, separated by blanks.  A path such as
 * "encoder" means the layer and all inside it; in one with '*', this is any text: "*.q_proj
 * *.v_proj". */
#define wb_add_lora_options_(OPT, ARG)                                                             \
    OPT(int64_t, rank, 8)                                                                          \
    OPT(double, alpha, WB_DEFAULT) OPT(double, dropout, 0) /* as in wb_LoRA_options */             \
    OPT(wb_initializer, init, NULL)                                                                \
    OPT(const char *, train, NULL)          /* layers with parameters that are trained too */      \
    ARG(const char *, layers, NULL)         /* the layers that are adapted; NULL: all Dense */
WB_OPTIONS(wb_add_lora_options);
/** A layer or tree like `model` in which layers are replaced by wb_LoRA of them:
 * wb_add_lora(model, "*.q_proj *.v_proj", .rank = 8).  All tensors are shared with `model`.  All
 * its parameters are frozen, in `model` too, except those of the layers of .train, such as a new
 * head, which are not adapted.  Layers that wb_LoRA does not take are passed over.  wb_save writes
 * the whole model, but not which parameters beside adapters are frozen: wb_save_lora and
 * wb_load_lora keep that.  Errors: a path of .layers or .train matches no layer; as wb_LoRA. */
WB_API void *wb_object_add_lora(void *model, const wb_add_lora_options *o);
/** A layer or tree like `model` in which each LoRA is replaced by its layer with the sum as its
 * weight, a new parameter: wb_merge_lora(model).  It computes as before, without the cost of the
 * adapters.  Other tensors are shared.  What is frozen stays so.  Errors: a LoRA of a quantised
 * layer, whose weight cannot take the change. */
WB_API void *wb_object_merge_lora(void *model);

/** Saves the adapters of a model alone, and what else is trained in it (.train of wb_add_lora):
 * safetensors, whose notes have rank and alpha of each layer, and the ties of what is saved
 * (wb_tie).  Returns 0 or an error code.  Errors:
 * a model without adapters; a file that cannot be written, which then has its old contents. */
WB_API int wb_save_lora(const char *path, void *model);
/** A layer or tree like `model`, the base, with the adapters and values of a file of wb_save_lora:
 * wb_load_lora(path, model).  It shares tensors with `model` and freezes them as wb_add_lora does.
 * Adapters that shared tensors share them again; all adapters are trained.
 * Errors: no such file; `model` has no such layer or parameter, or one of another kind, size or
 * dtype.  Then no value of `model` has changed. */
WB_API void *wb_object_load_lora(const char *path, void *model);

#ifdef __cplusplus
}
#else
#define wb_quantize(...) WB_QUANTIZE_(__VA_ARGS__, )
#define WB_QUANTIZE_(model, ...) \
    WB_CALL_WITH_(WB_ONCE_(WB_ADAPT_, model, wb_object_quantize, \
                           WB_GET_(wb_quantize_options, __VA_ARGS__)))
#define wb_LoRA(...) WB_LORA_(__VA_ARGS__, )
#define WB_LORA_(layer, ...) \
    WB_CALL_WITH_(wb_LoRA_with((layer), WB_GET_(wb_LoRA_options, __VA_ARGS__)))
#define wb_add_lora(...) WB_ADD_LORA_(__VA_ARGS__, )
#define WB_ADD_LORA_(model, ...) \
    WB_CALL_WITH_(WB_ONCE_(WB_ADAPT_, model, wb_object_add_lora, \
                           WB_GET_(wb_add_lora_options, __VA_ARGS__)))
#define WB_ADAPT_(x, f, ...) (__typeof__(x))f(WB_MODEL_(x), __VA_ARGS__)
#define wb_merge_lora(model) WB_ONCE_(WB_MERGE_LORA_, model, )
#define WB_MERGE_LORA_(x, _) (__typeof__(x))wb_object_merge_lora(WB_MODEL_(x))
#define wb_load_lora(path, model) WB_ONCE_(WB_LOAD_LORA_, model, (path))
#define WB_LOAD_LORA_(x, path) (__typeof__(x))wb_object_load_lora(path, WB_MODEL_(x))
#endif

#endif
