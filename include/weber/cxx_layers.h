/* Weber for C++17: the layers of layers.h.  cxx.h includes this header. */
#ifndef WEBER_CXX_LAYERS_H
#define WEBER_CXX_LAYERS_H

#include "weber/cxx.h"

inline wb_layer *wb_Dense(int64_t in, int64_t out, wb_function activation = nullptr,
                          wb_Dense_options o = {})
{
    o.in = in;
    o.out = out;
    if (activation) o.activation = activation;
    return wb_Dense_with(&o);
}

#define WB_CONVOLUTION_(name, with)                                                             \
    inline wb_layer *name(int64_t in, int64_t out, wb_ints kernel,                              \
                          wb_function activation = nullptr, wb_Conv_options o = {})             \
    {                                                                                           \
        o.in = in;                                                                              \
        o.out = out;                                                                            \
        o.kernel = kernel;                                                                      \
        if (activation) o.activation = activation;                                              \
        return with(&o);                                                              \
    }
WB_CONVOLUTION_(wb_Conv, wb_Conv_with)
WB_CONVOLUTION_(wb_Conv1d, wb_Conv1d_with)
WB_CONVOLUTION_(wb_ConvTranspose1d, wb_ConvTranspose1d_with)
WB_CONVOLUTION_(wb_CrossCor, wb_Conv_with)
WB_CONVOLUTION_(wb_DepthwiseConv, wb_DepthwiseConv_with)
WB_CONVOLUTION_(wb_ConvTranspose, wb_ConvTranspose_with)
#undef WB_CONVOLUTION_

inline wb_layer *wb_AdaptiveMaxPool(wb_ints out, wb_AdaptivePool_options o = {})
{
    o.out = out;
    return wb_AdaptiveMaxPool_with(&o);
}
inline wb_layer *wb_AdaptiveMeanPool(wb_ints out, wb_AdaptivePool_options o = {})
{
    o.out = out;
    return wb_AdaptiveMeanPool_with(&o);
}
#define WB_POOL_(name)                                                      \
    inline wb_layer *name(wb_ints window, wb_Pool_options o = {})           \
    {                                                                       \
        o.window = window;                                                  \
        return name##_with(&o);                                   \
    }
WB_POOL_(wb_MaxPool)
WB_POOL_(wb_MeanPool)
WB_POOL_(wb_MaxPool1d)
WB_POOL_(wb_MeanPool1d)
#undef WB_POOL_

inline wb_layer *wb_Dropout(double p, wb_Dropout_options o = {})
{
    o.p = p;
    return wb_Dropout_with(&o);
}
inline wb_layer *wb_BatchNorm(int64_t channels, wb_function activation = nullptr,
                              wb_BatchNorm_options o = {})
{
    o.channels = channels;
    if (activation) o.activation = activation;
    return wb_BatchNorm_with(&o);
}
inline wb_layer *wb_AlphaDropout(double p, wb_AlphaDropout_options o = {})
{
    o.p = p;
    return wb_AlphaDropout_with(&o);
}
inline wb_layer *wb_InstanceNorm(int64_t channels, wb_function activation = nullptr,
                                 wb_InstanceNorm_options o = {})
{
    o.channels = channels;
    if (activation) o.activation = activation;
    return wb_InstanceNorm_with(&o);
}
inline wb_layer *wb_GroupNorm(int64_t channels, int64_t groups, wb_function activation = nullptr,
                              wb_GroupNorm_options o = {})
{
    o.channels = channels;
    o.groups = groups;
    if (activation) o.activation = activation;
    return wb_GroupNorm_with(&o);
}
#define WB_SHAPED_(name)                                                                \
    inline wb_layer *name(wb_ints shape, wb_function activation = nullptr,              \
                          name##_options o = {})                                        \
    {                                                                                   \
        o.shape = shape;                                                                \
        if (activation) o.activation = activation;                                      \
        return name##_with(&o);                                                         \
    }
WB_SHAPED_(wb_LayerNorm)
WB_SHAPED_(wb_RMSNorm)
WB_SHAPED_(wb_Scale)
#undef WB_SHAPED_
inline wb_layer *wb_Bilinear(int64_t in1, int64_t in2, int64_t out,
                             wb_function activation = nullptr, wb_Bilinear_options o = {})
{
    o.in1 = in1;
    o.in2 = in2;
    o.out = out;
    if (activation) o.activation = activation;
    return wb_Bilinear_with(&o);
}
inline wb_layer *wb_PixelShuffle(int64_t r)
{
    wb_PixelShuffle_options o;
    o.r = r;
    return wb_PixelShuffle_with(&o);
}
inline wb_layer *wb_Upsample(wb_Upsample_options o) { return wb_Upsample_with(&o); }
inline wb_layer *wb_EmbeddingBag(int64_t n, int64_t dim, wb_EmbeddingBag_options o = {})
{
    o.n = n;
    o.dim = dim;
    return wb_EmbeddingBag_with(&o);
}
inline wb_layer *wb_WeightNorm(wb_layer *layer, const char *name = "weight",
                               wb_WeightNorm_options o = {})
{
    o.name = name;
    return wb_WeightNorm_with(layer, &o);
}
inline wb_layer *wb_WeightNorm(wb_layer *layer, wb_WeightNorm_options o)
{
    return wb_WeightNorm_with(layer, &o);
}
inline wb_layer *wb_Embedding(int64_t n, int64_t dim, wb_Embedding_options o = {})
{
    o.n = n;
    o.dim = dim;
    return wb_Embedding_with(&o);
}
inline wb_layer *wb_MultiHeadAttention(int64_t dim, wb_MultiHeadAttention_options o = {})
{
    o.dim = dim;
    return wb_MultiHeadAttention_with(&o);
}
template <class I>
inline wb_if_integer_<I, wb_layer *> wb_MultiHeadAttention(int64_t dim, I heads,
                                                           wb_MultiHeadAttention_options o = {})
{
    o.heads = int64_t(heads);
    return wb_MultiHeadAttention(dim, o);
}

template <class... T>
inline wb_tensor *wb_call_cached(wb_layer *model, wb_tree *cache, wb_tensor *x, T *...more)
{
    wb_tensor *const all[] = {x, more...};
    return wb_call_cached_array(model, cache, 1 + int(sizeof...(more)), all);
}

#define WB_RECURRENT_(name)                                                             \
    inline wb_layer *name(int64_t in, int64_t out, wb_Recurrent_options o = {})         \
    {                                                                                   \
        o.in = in;                                                                      \
        o.out = out;                                                                    \
        return name##_with(&o);                                               \
    }
WB_RECURRENT_(wb_RNN)
WB_RECURRENT_(wb_LSTM)
WB_RECURRENT_(wb_GRU)
WB_RECURRENT_(wb_RNNCell)
WB_RECURRENT_(wb_LSTMCell)
WB_RECURRENT_(wb_GRUCell)
WB_RECURRENT_(wb_GRUv3)
WB_RECURRENT_(wb_GRUv3Cell)
#undef WB_RECURRENT_
inline wb_layer *wb_Recurrence(wb_layer *cell, wb_Recurrence_options o = {})
{
    return wb_Recurrence_with(cell, &o);
}

#endif
