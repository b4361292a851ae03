/* Weber for C++17: the names that are macros in C, as inline functions with default arguments.  Options are structs to
 * be filled in field by field:
 *
 *   wb_conv_options same = {}; same.same = true;
 *   wb_layer *m = wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu, same), wb_Flatten(), wb_Dense(4704, 10), wb_softmax);
 *
 * Included by weber.h.  What each of them does stands with its namesake in the other chapters; a batch loop is
 * `for (wb_batch b; wb_loader_next(loader, &b);)`. */
#ifndef WEBER_CXX_H
#define WEBER_CXX_H

#include "weber/device.h"
#include "weber/files.h"

/* Options that know their size. */
template <class O> inline const O *wb_sized_(O &o)
{
    o.size = sizeof o;
    return &o;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

/* wb_zeros(2, 5): [2,5] f32 */
template <class... I> inline wb_tensor *wb_zeros(I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_full_of(0, WB_F32, int(sizeof...(dims)), d);
}
template <class... I> inline wb_tensor *wb_ones(I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_full_of(1, WB_F32, int(sizeof...(dims)), d);
}
template <class... I> inline wb_tensor *wb_rand(I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_rand_of(WB_F32, int(sizeof...(dims)), d);
}
template <class... I> inline wb_tensor *wb_randn(I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_randn_of(WB_F32, int(sizeof...(dims)), d);
}
template <class... I> inline double wb_at(wb_tensor *x, I... index)
{
    const int64_t i[] = {int64_t(index)...};
    return wb_at_index(x, int(sizeof...(index)), i);
}
template <class... T> inline int wb_eval(T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_eval_all(int(sizeof...(tensors)), all);
}

inline wb_tensor *wb_gradient(wb_tensor *loss, wb_tensor *wrt) { return wb_gradient_tensor(loss, wrt); }
inline wb_tree *wb_gradient(wb_tensor *loss, wb_layer *wrt) { return wb_gradient_layer(loss, wrt); }
inline wb_tree *wb_gradient(wb_tensor *loss, wb_tree *wrt) { return wb_gradient_tree(loss, wrt); }

template <class... T> inline wb_tree *wb_tuple(T *...objects)
{
    void *const all[] = {objects...};
    return wb_tuple_of(int(sizeof...(objects)), all);
}

/* The generic verbs take every kind of object. */
template <class T> inline T *wb_keep(T *object) { return static_cast<T *>(wb_object_keep(object)); }
template <class T> inline void wb_free(T *object) { wb_object_free(object); }
template <class T> inline void wb_show(T *object) { wb_show_object(object); }

/* ---- operations ------------------------------------------------------------------------------- */

/* Axes for wb_reduce_options: o.axes = wb_axes_of(0, -1). */
template <class... I> inline wb_axes wb_axes_of(I... axes) { return wb_axes{int(sizeof...(axes)), {int(axes)...}}; }

#define WB_REDUCTION_(name)                                                     \
    inline wb_tensor *name(wb_tensor *x, wb_reduce_options o = {})              \
    {                                                                           \
        return name##_with(x, wb_sized_(o));                                    \
    }
WB_REDUCTION_(wb_sum)
WB_REDUCTION_(wb_mean)
WB_REDUCTION_(wb_max)
WB_REDUCTION_(wb_min)
WB_REDUCTION_(wb_variance)
WB_REDUCTION_(wb_logsumexp)
#undef WB_REDUCTION_
inline wb_tensor *wb_cumsum(wb_tensor *x, int axis, wb_cumsum_options o = {})
{
    o.size = sizeof o;
    return wb_cumsum_with(x, axis, &o);
}

template <class... I> inline wb_tensor *wb_reshape(wb_tensor *x, I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_reshape_to(x, int(sizeof...(dims)), d);
}
template <class... I> inline wb_tensor *wb_permute(wb_tensor *x, I... order)
{
    const int64_t o[] = {int64_t(order)...};
    return wb_permute_to(x, int(sizeof...(order)), o);
}
template <class... I> inline wb_tensor *wb_expand(wb_tensor *x, I... dims)
{
    const int64_t d[] = {int64_t(dims)...};
    return wb_expand_to(x, int(sizeof...(dims)), d);
}
template <class... T> inline wb_tensor *wb_concat(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_concat_of(int(sizeof...(tensors)), all, axis);
}
template <class... T> inline wb_tensor *wb_stack(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_stack_of(int(sizeof...(tensors)), all, axis);
}

inline wb_tensor *wb_conv(wb_tensor *x, wb_tensor *w, wb_tensor *b, wb_conv_settings s = {})
{
    return wb_conv_with(x, w, b, wb_sized_(s));
}
inline wb_tensor *wb_conv_transpose(wb_tensor *x, wb_tensor *w, wb_tensor *b, wb_conv_settings s = {})
{
    return wb_conv_transpose_with(x, w, b, wb_sized_(s));
}
inline wb_tensor *wb_maxpool(wb_tensor *x, wb_pool_settings s)
{
    return wb_maxpool_with(x, wb_sized_(s));
}
inline wb_tensor *wb_meanpool(wb_tensor *x, wb_pool_settings s)
{
    return wb_meanpool_with(x, wb_sized_(s));
}

/* ---- layers ----------------------------------------------------------------------------------- */

/* A pair of sizes, or one for both: {5, 5}, {5}. */
struct wb_pair { int64_t h = 0, w = 0; };

inline wb_layer *wb_Dense(int64_t in, int64_t out, wb_function activation = nullptr, wb_dense_options o = {})
{
    o.in = in;
    o.out = out;
    o.activation = activation;
    return wb_dense_with(wb_sized_(o));
}
inline wb_conv_options wb_convolution_(int64_t in, int64_t out, wb_pair kernel, wb_function activation,
                                       wb_conv_options o)
{
    o.in = in;
    o.out = out;
    o.kernel[0] = kernel.h;
    o.kernel[1] = kernel.w;
    o.activation = activation;
    return o;
}
inline wb_layer *wb_Conv(int64_t in, int64_t out, wb_pair kernel, wb_function activation = nullptr, wb_conv_options o = {})
{
    o = wb_convolution_(in, out, kernel, activation, o);
    return wb_conv_layer_with(wb_sized_(o));
}
inline wb_layer *wb_ConvTranspose(int64_t in, int64_t out, wb_pair kernel, wb_function activation = nullptr,
                                  wb_conv_options o = {})
{
    o = wb_convolution_(in, out, kernel, activation, o);
    return wb_conv_transpose_layer_with(wb_sized_(o));
}
inline wb_layer *wb_CrossCor(int64_t in, int64_t out, wb_pair kernel, wb_function activation = nullptr, wb_conv_options o = {})
{
    return wb_Conv(in, out, kernel, activation, o);
}
#define WB_POOL_(name, with)                                                            \
    inline wb_layer *name(wb_pair window, wb_pool_options o = {})                       \
    {                                                                                   \
        o.window[0] = window.h;                                                         \
        o.window[1] = window.w;                                                         \
        return with(wb_sized_(o));                                                      \
    }
WB_POOL_(wb_MaxPool, wb_maxpool_layer_with)
WB_POOL_(wb_MeanPool, wb_meanpool_layer_with)
#undef WB_POOL_
inline wb_layer *wb_Dropout(double p, wb_dropout_options o = {})
{
    o.p = p;
    return wb_dropout_layer_with(wb_sized_(o));
}
inline wb_layer *wb_BatchNorm(int64_t channels, wb_function activation = nullptr, wb_batchnorm_options o = {})
{
    o.channels = channels;
    o.activation = activation;
    return wb_batchnorm_with(wb_sized_(o));
}
inline wb_layer *wb_LayerNorm(wb_pair shape, wb_function activation = nullptr, wb_layernorm_options o = {})
{
    o.shape[0] = shape.h;
    o.shape[1] = shape.w;
    o.activation = activation;
    return wb_layernorm_with(wb_sized_(o));
}
inline wb_layer *wb_Embedding(int64_t n, int64_t dim, wb_initialiser init = nullptr)
{
    wb_embedding_options o = {};
    o.n = n;
    o.dim = dim;
    o.init = init;
    return wb_embedding_with(wb_sized_(o));
}
inline wb_layer *wb_MultiHeadAttention(int64_t dim, int64_t heads = 0, wb_attention_options o = {})
{
    o.dim = dim;
    o.heads = heads;
    return wb_attention_layer_with(wb_sized_(o));
}

#define WB_RECURRENT_(name, with)                                                       \
    inline wb_layer *name(int64_t in, int64_t out, wb_recurrent_options o = {})         \
    {                                                                                   \
        o.in = in;                                                                      \
        o.out = out;                                                                    \
        return with(wb_sized_(o));                                                      \
    }
WB_RECURRENT_(wb_RNN, wb_rnn_with)
WB_RECURRENT_(wb_LSTM, wb_lstm_with)
WB_RECURRENT_(wb_GRU, wb_gru_with)
WB_RECURRENT_(wb_RNNCell, wb_rnn_cell_with)
WB_RECURRENT_(wb_LSTMCell, wb_lstm_cell_with)
WB_RECURRENT_(wb_GRUCell, wb_gru_cell_with)
#undef WB_RECURRENT_

/* Layers and plain functions mix, as in C. */
inline wb_layer *wb_as_layer_(wb_layer *layer) { return layer; }
inline wb_layer *wb_as_layer_(wb_function f) { return wb_layer_from_function(f); }
template <class... L> inline wb_layer *wb_Chain(L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_chain_of(int(sizeof...(layers)), all);
}
template <class... L> inline wb_layer *wb_Parallel(wb_tensor *(*connection)(wb_tensor *, wb_tensor *), L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_parallel_of(connection, int(sizeof...(layers)), all);
}
template <class L> inline wb_layer *wb_SkipConnection(L layer, wb_tensor *(*connection)(wb_tensor *, wb_tensor *))
{
    return wb_SkipConnection_of(wb_as_layer_(layer), connection);
}

inline wb_layer *wb_fmap(wb_leaf_function f, wb_layer *x, void *ctx) { return wb_fmap_layer(f, x, ctx); }
inline wb_tree *wb_fmap(wb_leaf_function f, wb_tree *x, void *ctx) { return wb_fmap_tree(f, x, ctx); }

/* ---- data ------------------------------------------------------------------------------------- */

inline wb_dataset *wb_load_csv(const char *path, wb_csv_options o = {})
{
    return wb_load_csv_with(path, wb_sized_(o));
}
inline wb_loader *wb_dataloader(wb_dataset *d, int64_t batchsize = 0, bool shuffle = false, wb_loader_options o = {})
{
    o.batchsize = batchsize;
    o.shuffle = shuffle;
    return wb_dataloader_with(d, wb_sized_(o));
}

/* ---- training --------------------------------------------------------------------------------- */

#define WB_RULE_(name, with, number)                                                    \
    inline wb_rule *name(double number = WB_DEFAULT, wb_rule_options o = {})            \
    {                                                                                   \
        if (number != WB_DEFAULT) o.number = number;                                    \
        return with(wb_sized_(o));                                                      \
    }
WB_RULE_(wb_Descent, wb_descent_with, eta)
WB_RULE_(wb_Momentum, wb_momentum_with, eta)
WB_RULE_(wb_Adam, wb_adam_with, eta)
WB_RULE_(wb_AdamW, wb_adamw_with, eta)
WB_RULE_(wb_WeightDecay, wb_weightdecay_with, lambda)
WB_RULE_(wb_ClipGrad, wb_clipgrad_with, delta)
WB_RULE_(wb_ClipNorm, wb_clipnorm_with, omega)
#undef WB_RULE_

template <class... R> inline wb_rule *wb_OptimiserChain(R *...rules)
{
    wb_rule *const all[] = {rules...};
    return wb_rule_chain_of(int(sizeof...(rules)), all);
}
inline wb_opt_state *wb_setup(wb_rule *rule, void *model, wb_setup_options o = {})
{
    return wb_setup_with(rule, model, wb_sized_(o));
}
inline int wb_adjust(wb_opt_state *state, double eta, wb_rule_options o = {})
{
    o.eta = eta;
    return wb_adjust_with(state, wb_sized_(o));
}
inline wb_tensor *wb_withgradient(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads, void *ctx = nullptr)
{
    return wb_withgradient_ctx(loss, model, batch, grads, ctx);
}
inline int wb_train(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state, int epochs = 0,
                    wb_train_options o = {})
{
    o.epochs = epochs;
    return wb_train_with(loss, model, data, state, wb_sized_(o));
}
inline int wb_save(const char *path, void *model, wb_save_options o = {})
{
    return wb_save_with(path, model, wb_sized_(o));
}
inline wb_layer *wb_load(const char *path, wb_load_options o = {})
{
    return wb_load_with(path, wb_sized_(o));
}
inline int wb_load_state(const char *path, void *model, wb_load_state_options o = {})
{
    return wb_load_state_with(path, model, wb_sized_(o));
}

/* ---- devices ---------------------------------------------------------------------------------- */

inline bool wb_functional(const char *backend, const char *part = nullptr) { return wb_functional_part(backend, part); }
inline const wb_device *wb_get_device(bool verbose = false)
{
    wb_get_device_options o = {};
    o.verbose = verbose;
    return wb_get_device_with(wb_sized_(o));
}
inline const wb_device *wb_gpu_device(bool force = false)
{
    wb_gpu_device_options o = {};
    o.force = force;
    return wb_gpu_device_with(wb_sized_(o));
}
/* model = wb_to(model, device);  x = wb_gpu(x, WB_KEEP);  batch = wb_cpu(batch) */
template <class T> inline T *wb_to(T *x, const wb_device *d, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    wb_to_options o = {};
    o.dtype = dtype;
    return static_cast<T *>(wb_object_to(x, d, wb_sized_(o)));
}
template <class T> inline T *wb_gpu(T *x, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    wb_to_options o = {};
    o.dtype = dtype;
    return static_cast<T *>(wb_object_gpu(x, wb_sized_(o)));
}
template <class T> inline T *wb_cpu(T *x) { return static_cast<T *>(wb_object_cpu(x)); }
inline wb_batch wb_to(wb_batch b, const wb_device *d, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    wb_to_options o = {};
    o.dtype = dtype;
    return wb_batch_to(b, d, wb_sized_(o));
}
inline wb_batch wb_gpu(wb_batch b, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    wb_to_options o = {};
    o.dtype = dtype;
    return wb_batch_gpu(b, wb_sized_(o));
}
inline wb_batch wb_cpu(wb_batch b) { return wb_batch_cpu(b); }
template <class T> inline const wb_device *wb_device_of(T *x) { return wb_object_device(x); }

#endif
