/* Weber, chapter 4: layers and their options.  nn.h includes this header. */
#ifndef WEBER_LAYERS_H
#define WEBER_LAYERS_H

#include "weber/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options that several layers have: .dtype is the dtype of the parameters (floating), .init creates
 * the weight, .activation is applied to the result (NULL: none).  Biases start as zeros, scales as
 * ones.  Sizes are positive; else NULL is returned.  A container holds references to its layers.
 *
 * A layer with parameters converts an input of another dtype to the dtype of its parameters.  If
 * that input is floating, the layer warns, once in a process.  Embedding takes integers only.
 *
 * Sizes of windows and kernels are in braces: wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2}).  In
 * layers of two and three axes {k} means {k, k}.  In C these sizes are given by position only.  A
 * call without braces, such as wb_MaxPool(3, 2), does not compile. */

/** Options of wb_Dense. */
#define wb_Dense_options_(OPT, ARG)                                                                \
    OPT(bool, bias, true)                                                                          \
    OPT(wb_initializer, init, wb_glorot_uniform)                                                   \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, in, WB_REQUIRED(0)) ARG(int64_t, out, WB_REQUIRED(0))                             \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_Dense_options);
/** y = activation(x·weightᵀ + bias): wb_Dense(in, out, activation).
 *   x [..., in]   y [..., out]   weight [out, in]   bias [out]
 * Error: the last axis of x has another size than `in`. */
WB_API wb_layer *wb_Dense_with(const wb_Dense_options *o);

/** Options of wb_Conv, wb_Conv1d, wb_CrossCor, wb_DepthwiseConv, wb_ConvTranspose and
 * wb_ConvTranspose1d.  A list has one number for all axes of space, or one for each. */
#define wb_Conv_options_(OPT, ARG)                                                                 \
    OPT(wb_ints, stride, WB_INTS(1))                                                               \
    /* also {top, bottom, left, right}: two for each axis */                                       \
    OPT(wb_ints, pad, WB_INTS(0))                                                                  \
    OPT(int64_t, pad_mode, WB_PAD_CONSTANT) /* a wb_pad_mode: the elements of the padding */       \
    OPT(wb_ints, dilation, WB_INTS(1))                                                             \
    OPT(int64_t, groups, 1)                 /* divides `in` and `out` */                           \
    OPT(wb_ints, outpad, WB_INTS(0))        /* of wb_ConvTranspose only */                         \
    OPT(bool, same, false)                  /* computes .pad: see wb_Conv, wb_ConvTranspose */     \
    OPT(bool, flip, false)                  /* the kernel is flipped along all axes, as in Flux */ \
    OPT(bool, bias, true)                                                                          \
    OPT(wb_initializer, init, wb_glorot_uniform)                                                   \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, in, WB_REQUIRED(0)) ARG(int64_t, out, WB_REQUIRED(0))                             \
    ARG(wb_ints, kernel, WB_REQUIRED(WB_EMPTY)) /* {k}, {h, w} or {d, h, w} */                     \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass the kernel here */                  \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_Conv_options);
/** y = activation(wb_conv(x, weight, bias)): wb_Conv(in, out, {kh, kw}, activation).
 *   x [N, in, H, W]   y [N, out, H', W']   weight [out, in/groups, kh, kw]   bias [out]
 * A kernel {kd, kh, kw} makes a layer for x [N, in, D, H, W]; {k} means {k, k}.  H' is that of
 * wb_conv.  .same pads so that a stride of 1 keeps the size.  If an axis needs odd padding, the
 * extra row is below and the extra column to the right.  .pad_mode pads with elements of x, as
 * wb_pad does, by the numbers of .pad or .same.  wb_CrossCor is another name of this layer.
 * Errors: both .same and .pad are given; .outpad is given; .groups does not divide `in` and
 * `out`. */
WB_API wb_layer *wb_Conv_with(const wb_Conv_options *o);
/** wb_Conv for x [N, in, L]: wb_Conv1d(in, out, {k}, activation), weight [out, in/groups, k]. */
WB_API wb_layer *wb_Conv1d_with(const wb_Conv_options *o);

/** A convolution of each channel by itself, wb_Conv with .groups = in: wb_DepthwiseConv(in, out,
 * {kh, kw}, activation).  weight [out, 1, kh, kw].  Errors: `out` is no multiple of `in`; .groups
 * is given. */
WB_API wb_layer *wb_DepthwiseConv_with(const wb_Conv_options *o);

/** y = activation(wb_conv_transpose(x, weight, bias)): wb_ConvTranspose(in, out, {kh, kw}).
 *   x [N, in, H, W]   y [N, out, H', W']   weight [in, out/groups, kh, kw]   bias [out]
 * A kernel {kd, kh, kw} makes a layer for x [N, in, D, H, W].  H' is that of wb_conv_transpose.
 * .same pads so that H' = H stride, if the kernel is at least as large as the stride.  Errors: both
 * .same and .pad are given; .outpad is not below the stride; .groups does not divide `in` and
 * `out`; .pad_mode is given. */
WB_API wb_layer *wb_ConvTranspose_with(const wb_Conv_options *o);
/** wb_ConvTranspose for x [N, in, L]: wb_ConvTranspose1d(in, out, {k}). */
WB_API wb_layer *wb_ConvTranspose1d_with(const wb_Conv_options *o);

/** Options of wb_MaxPool, wb_MeanPool, wb_MaxPool1d and wb_MeanPool1d.  A list has one number for
 * all axes of space, or one for each. */
#define wb_Pool_options_(OPT, ARG)                                                                 \
    OPT(wb_ints, stride, WB_EMPTY)          /* default: the window */                              \
    /* also {top, bottom, left, right}: two for each axis */                                       \
    OPT(wb_ints, pad, WB_INTS(0))                                                                  \
    ARG(wb_ints, window, WB_REQUIRED(WB_EMPTY)) /* {k}, {h, w} or {d, h, w} */                     \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass the window here */
WB_OPTIONS(wb_Pool_options);
/** wb_maxpool as a layer: wb_MaxPool({2}), wb_MaxPool({3, 3}, .stride = {2}).  A window {d, h, w}
 * makes a layer for x [N, C, D, H, W]; {k} means {k, k}. */
WB_API wb_layer *wb_MaxPool_with(const wb_Pool_options *o);
/** wb_meanpool as a layer, with the options of wb_MaxPool. */
WB_API wb_layer *wb_MeanPool_with(const wb_Pool_options *o);
/** wb_MaxPool for x [N, C, L]: wb_MaxPool1d({k}). */
WB_API wb_layer *wb_MaxPool1d_with(const wb_Pool_options *o);
/** wb_MeanPool for x [N, C, L]: wb_MeanPool1d({k}). */
WB_API wb_layer *wb_MeanPool1d_with(const wb_Pool_options *o);
/** Options of wb_AdaptiveMaxPool and wb_AdaptiveMeanPool. */
#define wb_AdaptivePool_options_(OPT, ARG)                                                         \
    OPT(bool, fixed, false)                 /* windows of one size, as in Flux */                  \
    ARG(wb_ints, out, WB_REQUIRED(WB_EMPTY)) /* {n}, or the new size of each axis of space */      \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass `out` here */
WB_OPTIONS(wb_AdaptivePool_options);
/** The greatest element of each of m windows along each axis of space: wb_AdaptiveMaxPool({1, 1}),
 * [N, C, L], [N, C, H, W] or [N, C, D, H, W], floating.  Window i of an axis of n elements has the
 * elements floor(i n / m) to ceil((i + 1) n / m) - 1, as in PyTorch.  With .fixed it has the
 * n - (m - 1) s elements from i s on, with s = floor(n / m), as in Flux.  The gradient is that of
 * wb_max along each axis.  Errors: another number of axes; an axis of size 0; with .fixed, m is
 * above n. */
WB_API wb_layer *wb_AdaptiveMaxPool_with(const wb_AdaptivePool_options *o);
/** The means of the windows of wb_AdaptiveMaxPool: wb_AdaptiveMeanPool({7, 7}).  An element that is
 * NaN or infinite makes all results along its axes NaN. */
WB_API wb_layer *wb_AdaptiveMeanPool_with(const wb_AdaptivePool_options *o);
/** The greatest element of each channel, [N, C, H, W] -> [N, C, 1, 1], with the gradient of
 * wb_max. */
WB_API wb_layer *wb_GlobalMaxPool(void);
/** The mean of each channel of a floating x, [N, C, H, W] -> [N, C, 1, 1]. */
WB_API wb_layer *wb_GlobalMeanPool(void);
/** wb_flatten as a layer, [N, ...] -> [N, features]. */
WB_API wb_layer *wb_Flatten(void);

/** Options of wb_Dropout. */
#define wb_Dropout_options_(OPT, ARG)                                                              \
    /* Elements with the same indices along these axes are dropped together: {0, 1} drops whole
     * channels of [N, C, H, W].  By default each element is drawn independently. */               \
    OPT(wb_ints, axes, WB_EMPTY)                                                                   \
    ARG(double, p, WB_REQUIRED(WB_DEFAULT)) /* the probability of 0, in [0, 1] */
WB_OPTIONS(wb_Dropout_options);
/** wb_dropout(x, p) in train mode (wb_trainmode), x itself in test mode.  Error: p is outside
 * [0, 1]. */
WB_API wb_layer *wb_Dropout_with(const wb_Dropout_options *o);

/** Options of wb_AlphaDropout. */
#define wb_AlphaDropout_options_(OPT, ARG)                                                         \
    ARG(double, p, WB_REQUIRED(WB_DEFAULT)) /* the probability of a drop, in [0, 1] */
WB_OPTIONS(wb_AlphaDropout_options);
/** Dropout behind wb_selu, which keeps mean 0 and variance 1: wb_AlphaDropout(p).  (Klambauer et
 * al. 2017)
 *   y = a (x or, with probability p, A) + b   A = -1.7580993408473766
 *   a = 1 / sqrt((1 - p) (1 + p A²))   b = -a p A
 * In test mode, and with p = 0, the result is x itself; p = 1 gives zeros.  x is floating.  Error:
 * p is outside [0, 1]. */
WB_API wb_layer *wb_AlphaDropout_with(const wb_AlphaDropout_options *o);

/** Options of wb_BatchNorm. */
#define wb_BatchNorm_options_(OPT, ARG)                                                            \
    OPT(bool, affine, true)                 /* the layer has scale and bias */                     \
    OPT(bool, track_stats, true)            /* the layer has mean and var; see wb_BatchNorm */     \
    OPT(double, eps, 1e-5)                                                                         \
    OPT(double, momentum, 0.1)                                                                     \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, channels, WB_REQUIRED(0))                                                         \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_BatchNorm_options);
/** y = activation((x - mean) / sqrt(var + eps) · scale + bias), with one mean and variance for each
 * index of axis 1: wb_BatchNorm(channels, activation).  (Ioffe & Szegedy 2015)
 *   x [N, channels, ...]   y as x   scale, bias, mean, var [channels]
 * Train mode normalises with the batch's mean and biased variance, and updates the running
 * statistics: running = (1 - momentum) running + momentum new, where the new variance is the
 * unbiased one.  Test mode normalises with the running statistics; without .track_stats it
 * normalises as in train mode.  GPUs sum (x - k)², with the channel's first value k, together with
 * x: the variance loses log2(1 + (mean - k)² / variance) bits, one or two for nearly all data.
 * Errors: train mode with one value for each channel; momentum outside [0, 1]; eps negative. */
WB_API wb_layer *wb_BatchNorm_with(const wb_BatchNorm_options *o);

/** Options of wb_InstanceNorm. */
#define wb_InstanceNorm_options_(OPT, ARG)                                                         \
    OPT(bool, affine, false)                /* the layer has scale and bias */                     \
    OPT(bool, track_stats, false)           /* the layer has mean and var */                       \
    OPT(double, eps, 1e-5)                                                                         \
    OPT(double, momentum, 0.1)                                                                     \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, channels, WB_REQUIRED(0))                                                         \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_InstanceNorm_options);
/** y = activation((x - mean) / sqrt(var + eps) · scale + bias), with one mean and biased variance
 * for each channel of each sample: wb_InstanceNorm(channels, activation).  (Ulyanov et al. 2016)
 *   x [N, channels, ...]   y as x   scale, bias, mean, var [channels]
 * With .track_stats, train mode updates the running statistics as wb_BatchNorm does, with the means
 * over the samples of their means and unbiased variances, and test mode normalises with the running
 * statistics.  Errors: one value for each channel of a sample; those of wb_BatchNorm. */
WB_API wb_layer *wb_InstanceNorm_with(const wb_InstanceNorm_options *o);

/** Options of wb_GroupNorm. */
#define wb_GroupNorm_options_(OPT, ARG)                                                            \
    OPT(bool, affine, true)                 /* has scale and bias */                               \
    OPT(double, eps, 1e-5)                                                                         \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, channels, WB_REQUIRED(0)) ARG(int64_t, groups, WB_REQUIRED(0))                    \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_GroupNorm_options);
/** y = activation((x - mean) / sqrt(var + eps) · scale + bias), with one mean and biased variance
 * for each group of channels of each sample: wb_GroupNorm(channels, groups).  (Wu & He 2018)
 *   x [N, channels, ...]   y as x   scale, bias [channels]
 * Errors: `groups` does not divide `channels`; eps is negative. */
WB_API wb_layer *wb_GroupNorm_with(const wb_GroupNorm_options *o);

/** Options of wb_LayerNorm. */
#define wb_LayerNorm_options_(OPT, ARG)                                                            \
    OPT(bool, affine, true)                 /* has scale and bias */                               \
    OPT(double, eps, 1e-5)                                                                         \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    OPT(bool, bias, true)                   /* with .affine: the layer has a bias */               \
    ARG(wb_ints, shape, WB_REQUIRED(WB_EMPTY)) /* {features} or {H, W}, at most 4 sizes */         \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass the shape here */                   \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_LayerNorm_options);
/** y = activation(wb_normalize(x, n, eps) · scale + bias) over the last n axes, whose sizes are the
 * n numbers of `shape`: wb_LayerNorm({features}).  scale, bias [shape].  Errors: the last sizes of
 * x are not `shape`; eps is negative.  (Ba, Kiros & Hinton 2016) */
WB_API wb_layer *wb_LayerNorm_with(const wb_LayerNorm_options *o);

/** Options of wb_RMSNorm. */
#define wb_RMSNorm_options_(OPT, ARG)                                                              \
    OPT(bool, affine, true)                 /* the layer has a scale */                            \
    OPT(double, eps, WB_DEFAULT)            /* default: the machine epsilon of x's dtype */        \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(wb_ints, shape, WB_REQUIRED(WB_EMPTY)) /* {features} or {H, W}, at most 4 sizes */         \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass the shape here */                   \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_RMSNorm_options);
/** y = activation(x / sqrt(mean(x²) + eps) · scale), with the mean over the last axes, whose sizes
 * are `shape`: wb_RMSNorm({features}).  scale [shape].  The mean of f16 and bf16 is computed in
 * f32.  The default of eps is that of PyTorch: 2^-23 for f32, 2^-52 for f64, 2^-10 for f16, 2^-7
 * for bf16.
 * Errors: the last sizes of x are not `shape`; eps is negative.  (Zhang & Sennrich 2019) */
WB_API wb_layer *wb_RMSNorm_with(const wb_RMSNorm_options *o);

/** Options of wb_Scale. */
#define wb_Scale_options_(OPT, ARG)                                                                \
    OPT(bool, bias, true)                                                                          \
    OPT(wb_initializer, init, wb_init_ones)                                                        \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(wb_ints, shape, WB_REQUIRED(WB_EMPTY)) /* {features} or {H, W}, at most 4 sizes */         \
    ARG(const int64_t *, sizes_, NULL)      /* the macros pass the shape here */                   \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_Scale_options);
/** y = activation(scale x + bias), elementwise: wb_Scale({features}, activation).
 *   x broadcasts with [shape]   scale, bias [shape], aligned at the last axis of x */
WB_API wb_layer *wb_Scale_with(const wb_Scale_options *o);

/** Options of wb_Bilinear. */
#define wb_Bilinear_options_(OPT, ARG)                                                             \
    OPT(bool, bias, true)                                                                          \
    OPT(wb_initializer, init, wb_glorot_uniform)                                                   \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, in1, WB_REQUIRED(0)) ARG(int64_t, in2, WB_REQUIRED(0))                            \
    ARG(int64_t, out, WB_REQUIRED(0))                                                              \
    ARG(wb_function, activation, NULL)
WB_OPTIONS(wb_Bilinear_options);
/** z_k = activation(sum over i, j of weight[k,i,j] x_i y_j + bias_k): wb_Bilinear(in1, in2, out),
 * called with wb_call(layer, x, y); wb_call(layer, x) uses x as y too.
 *   x [..., in1]   y [..., in2]   z [..., out]   weight [out, in1, in2]   bias [out]
 * Errors: other last sizes; other sizes of x and y that differ. */
WB_API wb_layer *wb_Bilinear_with(const wb_Bilinear_options *o);

/** Options of wb_PixelShuffle. */
#define wb_PixelShuffle_options_(OPT, ARG)                                                         \
    ARG(int64_t, r, WB_REQUIRED(0))         /* the factor by which each size grows */
WB_OPTIONS(wb_PixelShuffle_options);
/** wb_pixel_shuffle as a layer: wb_PixelShuffle(r). */
WB_API wb_layer *wb_PixelShuffle_with(const wb_PixelShuffle_options *o);

/** Options of wb_Upsample.  One of .scale and .sizes is given. */
#define wb_Upsample_options_(OPT, ARG)                                                             \
    OPT(wb_ints, scale, WB_EMPTY)           /* {s}, or a factor for each axis of space */          \
    OPT(wb_ints, sizes, WB_EMPTY)           /* {n}, or the new size of each axis of space */       \
    OPT(int64_t, mode, WB_UPSAMPLE_NEAREST)                                                        \
    OPT(bool, align_corners, true)          /* see wb_upsample */
WB_OPTIONS(wb_Upsample_options);
/** wb_upsample as a layer: wb_Upsample(.scale = {2}, .mode = WB_UPSAMPLE_LINEAR). */
WB_API wb_layer *wb_Upsample_with(const wb_Upsample_options *o);

/** The elementwise maximum of the results of all layers, called with one input:
 * wb_Maxout(wb_Dense(4, 3), wb_Dense(4, 3)).  Among equal elements the first layer's gets the
 * gradient.  Parameters are named "layers.0.weight".  Errors: no layers; results that do not
 * broadcast.  (Goodfellow et al. 2013) */
WB_API wb_layer *wb_Maxout_array(int n, wb_layer *const *layers);

/** Options of wb_Embedding. */
#define wb_Embedding_options_(OPT, ARG)                                                            \
    OPT(int64_t, padding_index, INT64_MIN)  /* a negative one counts from n; default: none */      \
    OPT(wb_initializer, init, wb_init_normal)                                                      \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, n, WB_REQUIRED(0)) ARG(int64_t, dim, WB_REQUIRED(0))
WB_OPTIONS(wb_Embedding_options);
/** Rows of `weight` by index, wb_take(weight, x): wb_Embedding(n, dim).
 *   x [...] integer   y [..., dim]   weight [n, dim]
 * The initial weight is standard normal.  An index outside 0 .. n-1 gives zeros.  The row
 * .padding_index is initially zero and has no gradient.  Error: .padding_index is outside
 * -n .. n-1. */
WB_API wb_layer *wb_Embedding_with(const wb_Embedding_options *o);

/** How wb_EmbeddingBag reduces the rows of a bag. */
enum { WB_BAG_MEAN, WB_BAG_SUM, WB_BAG_MAX };
/** Options of wb_EmbeddingBag. */
#define wb_EmbeddingBag_options_(OPT, ARG)                                                         \
    OPT(int64_t, mode, WB_BAG_MEAN)         /* WB_BAG_MEAN, WB_BAG_SUM or WB_BAG_MAX */            \
    OPT(wb_initializer, init, wb_init_normal)                                                      \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    ARG(int64_t, n, WB_REQUIRED(0)) ARG(int64_t, dim, WB_REQUIRED(0))
WB_OPTIONS(wb_EmbeddingBag_options);
/** The mean, sum or maximum of the rows of each bag of indices: wb_EmbeddingBag(n, dim).
 *   wb_call(layer, x)            x [bags, k] integer   y [bags, dim]   weight [n, dim]
 *   wb_call(layer, x, offsets)   x [k], offsets [bags] integer
 * With offsets, bag b has the indices x[offsets[b]] to x[offsets[b+1] - 1]; the last bag ends with
 * x.  A bag without indices gives zeros.  An index outside 0 .. n-1 counts as a row of zeros.  If
 * several rows have the maximum, each has an equal share of the gradient.  Errors: x [bags, 0];
 * offsets that do not begin with 0, decrease, or exceed k, if they are evaluated in memory that the
 * host can read, or with WEBER_DEBUG=check.  Elsewhere the bags are then undefined. */
WB_API wb_layer *wb_EmbeddingBag_with(const wb_EmbeddingBag_options *o);

/** Options of wb_WeightNorm. */
#define wb_WeightNorm_options_(OPT, ARG)                                                           \
    /* axis of the weight that keeps its size in g; a negative one counts from the last axis */    \
    OPT(int64_t, dim, 0)                                                                           \
    OPT(bool, whole, false)                 /* one norm of the whole weight: PyTorch's dim=None */ \
    ARG(const char *, name, "weight")       /* the name of the tensor in the layer */
WB_OPTIONS(wb_WeightNorm_options);
/** A layer whose weight is computed from a direction v and lengths g, which are trained in its
 * place: wb_WeightNorm(wb_Dense(4, 8)), wb_WeightNorm(wb_GRUCell(4, 8), "weight_hidden").
 *   weight = g v / ||v||     ||v|| over all axes but .dim; g [1, ..., size of axis .dim, ..., 1],
 *                            with .whole []
 * The inner layer's weight becomes v, "layer.weight" among the parameters, and g, "g", is made as
 * its norms, so that the call first gives what the inner layer gave.  The norm of f16 and bf16 is
 * computed in f32.  Where v is all zeros, the weight is zeros and v has the gradient g dL/dweight
 * (PyTorch: NaN).  Gradients reach g and v.  Any layer or cell of the library with a tensor of this
 * name can be inside, a struct of WB_LAYER too, and another WeightNorm for another tensor; a
 * WeightNorm of a cell goes to wb_cell_step and wb_Recurrence.  In PyTorch's files the tensors are
 * parametrizations.weight.original0 (g) and .original1 (v); Flux's BSON files cannot have them.
 * wb_remove_weight_norms takes it away.  (Salimans & Kingma 2016)  Errors: the layer has no such
 * floating tensor, or it has a WeightNorm; .dim out of range; .dim and .whole. */
WB_API wb_layer *wb_WeightNorm_with(wb_layer *layer, const wb_WeightNorm_options *o);

/** Options of wb_MultiHeadAttention.  k_in, v_in, qk_dim, v_dim and out: 0 means `dim`. */
#define wb_MultiHeadAttention_options_(OPT, ARG)                                                   \
    OPT(bool, causal, false)                /* a query attends to no key at a later position */    \
    OPT(bool, bias, false)                  /* the projections have biases, as PyTorch's have */   \
    OPT(double, dropout, 0)                 /* of attention weights, in train mode; below 1 */     \
    OPT(wb_initializer, init, wb_glorot_uniform)                                                   \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    OPT(int64_t, kv_heads, 0)               /* heads of k and v; 0: heads */                       \
    /* features of k and v (PyTorch's kdim and vdim) */                                            \
    OPT(int64_t, k_in, 0) OPT(int64_t, v_in, 0)                                                    \
    OPT(int64_t, qk_dim, 0)                 /* features of all heads of q */                       \
    OPT(int64_t, v_dim, 0)                  /* features of all heads before out_proj */            \
    OPT(int64_t, out, 0)                    /* features of y */                                    \
    OPT(bool, weights, false)               /* the call also returns the attention weights */      \
    /* base of wb_rotary for q and k, such as 10000; 0: no rotation */                             \
    OPT(double, rotary, 0)                                                                         \
    ARG(int64_t, dim, WB_REQUIRED(0))       /* features of q */                                    \
    ARG(int64_t, heads, 8)
WB_OPTIONS(wb_MultiHeadAttention_options);
/** Attention with several heads: wb_MultiHeadAttention(dim, heads).  (Vaswani et al. 2017)
 *   wb_call(layer, x)   wb_call(layer, q, k, v)   wb_call(layer, q, k, v, mask)
 *   q [N, Tq, dim]   k [N, Tk, k_in]   v [N, Tk, v_in]   y [N, Tq, out]
 * The first is self-attention, q = k = v = x.  The mask is bool (true: keep), or floating and added
 * to the scores; it broadcasts to [N, heads, Tq, Tk], has no gradient if it is bool, and holds
 * beside .causal.  A query whose keys are all masked, by a bool mask, counts as zeros before
 * out_proj.
 *
 * The projections q_proj, k_proj, v_proj and out_proj are Dense layers; each head computes
 * wb_attention of qk_dim / heads features.  With .kv_heads, each head of k and v serves
 * heads / kv_heads heads of q (grouped-query attention; 1: multi-query), and k_proj has
 * kv_heads · (qk_dim / heads) features, v_proj kv_heads · (v_dim / heads).  With .weights the layer
 * gives two tensors (wb_call_outputs): y and the weights [N, heads, Tq, Tk], after dropout.
 * .rotary counts positions as wb_positions.
 *
 * Errors: `heads` does not divide qk_dim and v_dim; .kv_heads does not divide `heads`; .rotary with
 * an odd number of features; inputs of other shapes. */
WB_API wb_layer *wb_MultiHeadAttention_with(const wb_MultiHeadAttention_options *o);

/** A cache of keys and values for generation, for wb_call_cached(model, cache, x).  It has room for
 * `length` positions in `batch` sequences, in each causal MultiHeadAttention of the model, with the
 * dtype and on the device of their weights.  It is a tree of variables that are not trained:
 * "keys" and "values", with one tensor [batch, kv_heads, length, d] for each layer, and "position",
 * i32 [1], the number of positions in the cache.  It belongs to the current scope.
 *
 * To begin a new text, assign 0 to the position:
 *     wb_assign(wb_get(cache, "position"), wb_full_array(0, WB_I32, 1, (int64_t[]){1}));
 * Another number goes back to this position.  Old keys need not be cleared, unless they are NaN or
 * infinite.  Errors: sizes below 1; no causal attention in the model; a length above the number of
 * positions of a model of wb_load_pretrained. */
WB_API wb_tree *wb_attention_cache(wb_layer *model, int64_t batch, int64_t length);
/** wb_call of a model on the next T positions: wb_call_cached(model, cache, x), x [batch, T, ...].
 * In self-attention the T queries see the cached keys and their own, up to the query's position.
 * The new keys and values are written into the cache, and the position grows by T, in the
 * evaluation of y (as by wb_assign).  The result is that of the whole text at these T positions.
 * Self-attention is that with k = q.  Attention with k of its own is not cached.  A mask broadcasts
 * to [batch, heads, T, length].
 *
 * The position is data: one plan serves all positions, and so does one recording in a function of
 * wb_compile, in which the cache is a part of `ctx`.  T = 1 has one plan, each other T another.
 * Keys and values at positions from `length` on are not stored, and later queries do not see them;
 * with WEBER_DEBUG=check and T > 1 that is an error.
 *
 * Errors: the cache is of another model or batch; T is above its length; its length is above the
 * rows of an Embedding that looks up wb_positions; self-attention without .causal. */
WB_API wb_tensor *wb_call_cached_array(wb_layer *model, wb_tree *cache, int n,
                                       wb_tensor *const *inputs);
/** 0, 1, ..., n-1 as i32 [n], the positions of n time steps.  Inside a call of wb_call_cached they
 * begin at the cache's position, so that a model with learned positions works with a cache, too:
 * wb_call(table, wb_positions(wb_dim(x, 1))). */
WB_API wb_tensor *wb_positions(int64_t n);
#ifndef __cplusplus
#define wb_call_cached(model, cache, ...) \
    wb_call_cached_array((model), (cache), WB_TENSORS_(__VA_ARGS__))
#endif

#ifndef __cplusplus
#define WB_OPTIONS_(f, T, ...) WB_CALL_WITH_(f(WB_GET_(T, __VA_ARGS__)))
/* The options begin with a list of sizes in braces, which the preprocessor splits at its commas:
 * {3, 3} is two arguments.  After the cast the compiler reads one list: (wb_ints){3, 3}.  Compilers
 * print the line of the cast, with its comment, where a program has left out the braces. */
#define WB_SIZED_(f, T, ...) WB_PASTE_(WB_SIZED_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, T, __VA_ARGS__)
#define WB_SIZED_1(f, T, ...) WB_OPTIONS_(f, T, __VA_ARGS__)
#define WB_SIZED_2(f, T, ...) \
    WB_CALL_WITH_(f(WB_GET_WITH_(T, WB_TEXT_(__VA_ARGS__),    \
                                 .sizes_ = (wb_ints)__VA_ARGS__))) /* sizes are in braces: {3, 3} */
#define WB_CONVOLVE_(f, in, out, ...) \
    WB_PASTE_(WB_CONVOLVE_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, in, out, __VA_ARGS__)
#define WB_CONVOLVE_1(f, ...) WB_OPTIONS_(f, wb_Conv_options, __VA_ARGS__)
#define WB_CONVOLVE_2(f, in, out, ...)                                              \
    WB_CALL_WITH_(f(WB_GET_WITH_(wb_Conv_options, WB_TEXT_(in, out, __VA_ARGS__), in, out,    \
                                 .sizes_ = (wb_ints)__VA_ARGS__))) /* sizes are in braces: {3, 3} */
#define wb_Dense(...) WB_OPTIONS_(wb_Dense_with, wb_Dense_options, __VA_ARGS__)
#define wb_Conv(...) WB_CONVOLVE_(wb_Conv_with, __VA_ARGS__)
#define wb_Conv1d(...) WB_CONVOLVE_(wb_Conv1d_with, __VA_ARGS__)
#define wb_ConvTranspose1d(...) WB_CONVOLVE_(wb_ConvTranspose1d_with, __VA_ARGS__)
#define wb_MaxPool1d(...) WB_SIZED_(wb_MaxPool1d_with, wb_Pool_options, __VA_ARGS__)
#define wb_MeanPool1d(...) WB_SIZED_(wb_MeanPool1d_with, wb_Pool_options, __VA_ARGS__)
#define wb_CrossCor(...) WB_CONVOLVE_(wb_Conv_with, __VA_ARGS__)
#define wb_DepthwiseConv(...) WB_CONVOLVE_(wb_DepthwiseConv_with, __VA_ARGS__)
#define wb_ConvTranspose(...) WB_CONVOLVE_(wb_ConvTranspose_with, __VA_ARGS__)
#define wb_MaxPool(...) WB_SIZED_(wb_MaxPool_with, wb_Pool_options, __VA_ARGS__)
#define wb_MeanPool(...) WB_SIZED_(wb_MeanPool_with, wb_Pool_options, __VA_ARGS__)
#define wb_AdaptiveMaxPool(...) \
    WB_SIZED_(wb_AdaptiveMaxPool_with, wb_AdaptivePool_options, __VA_ARGS__)
#define wb_AdaptiveMeanPool(...) \
    WB_SIZED_(wb_AdaptiveMeanPool_with, wb_AdaptivePool_options, __VA_ARGS__)
#define wb_Dropout(...) WB_OPTIONS_(wb_Dropout_with, wb_Dropout_options, __VA_ARGS__)
#define wb_AlphaDropout(...) \
    WB_OPTIONS_(wb_AlphaDropout_with, wb_AlphaDropout_options, __VA_ARGS__)
#define wb_BatchNorm(...) WB_OPTIONS_(wb_BatchNorm_with, wb_BatchNorm_options, __VA_ARGS__)
#define wb_InstanceNorm(...) \
    WB_OPTIONS_(wb_InstanceNorm_with, wb_InstanceNorm_options, __VA_ARGS__)
#define wb_GroupNorm(...) WB_OPTIONS_(wb_GroupNorm_with, wb_GroupNorm_options, __VA_ARGS__)
#define wb_LayerNorm(...) WB_SIZED_(wb_LayerNorm_with, wb_LayerNorm_options, __VA_ARGS__)
#define wb_RMSNorm(...) WB_SIZED_(wb_RMSNorm_with, wb_RMSNorm_options, __VA_ARGS__)
#define wb_Scale(...) WB_SIZED_(wb_Scale_with, wb_Scale_options, __VA_ARGS__)
#define wb_Bilinear(...) WB_OPTIONS_(wb_Bilinear_with, wb_Bilinear_options, __VA_ARGS__)
#define wb_PixelShuffle(...) \
    WB_OPTIONS_(wb_PixelShuffle_with, wb_PixelShuffle_options, __VA_ARGS__)
#define wb_Upsample(...) WB_OPTIONS_(wb_Upsample_with, wb_Upsample_options, __VA_ARGS__)
#define wb_Maxout(...) wb_Maxout_array(WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_EmbeddingBag(...) \
    WB_OPTIONS_(wb_EmbeddingBag_with, wb_EmbeddingBag_options, __VA_ARGS__)
#define wb_WeightNorm(...) WB_WEIGHT_NORM_(__VA_ARGS__, )
#define WB_WEIGHT_NORM_(layer, ...) \
    WB_CALL_WITH_(wb_WeightNorm_with((layer), WB_GET_(wb_WeightNorm_options, __VA_ARGS__)))
#define wb_Embedding(...) WB_OPTIONS_(wb_Embedding_with, wb_Embedding_options, __VA_ARGS__)
#define wb_MultiHeadAttention(...) \
    WB_OPTIONS_(wb_MultiHeadAttention_with, wb_MultiHeadAttention_options, __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#include "weber/recurrent.h"

#endif
