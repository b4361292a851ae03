/* Weber, chapter 4: layers, losses, initialisers, model trees. */
#ifndef WEBER_NN_H
#define WEBER_NN_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of one tensor; any of them is a layer in a chain, and an activation. */
typedef wb_tensor *(*wb_function)(wb_tensor *x);

/* Calls a layer: y = layer(x). */
WB_API wb_tensor *wb_call(wb_layer *layer, wb_tensor *x);
/* With several inputs: Parallel (one each), MultiHeadAttention (q, k, v), cells (x, state...). */
WB_API wb_tensor *wb_call_many(wb_layer *layer, int n, wb_tensor *const *inputs);

/* ---- initialisers ----------------------------------------------------------------------------- */

/* Fill a shape whose first two dimensions are [out, in] (further ones are a kernel's and multiply both fans).
 *   glorot_uniform  U(±sqrt(6/(fan_in+fan_out)))        glorot_normal   sigma sqrt(2/(fan_in+fan_out))
 *   kaiming_uniform U(±sqrt(2) sqrt(3/fan_in))          kaiming_normal  sigma sqrt(2)/sqrt(fan_in)
 *   normal          N(0, 1)    uniform  U[0, 1)         (Glorot & Bengio 2010; He et al. 2015) */
typedef wb_tensor *(*wb_initialiser)(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_glorot_uniform(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_glorot_normal(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_kaiming_uniform(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_kaiming_normal(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_init_zeros(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_init_ones(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_init_normal(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_init_uniform(wb_dtype dtype, int ndim, const int64_t *dims);

/* ---- layers ----------------------------------------------------------------------------------- */

/* y = activation(x·weightᵀ + bias).  weight [out, in], bias [out].  x [..., in] */
typedef struct {
    size_t size;
    bool no_bias;
    wb_initialiser init;            /* wb_glorot_uniform */
    wb_dtype dtype;                 /* f32 */
    WB_BY_PLACE
    int64_t in, out;
    wb_function activation;         /* none */
    WB_NO_MORE
} wb_dense_options;
WB_API wb_layer *wb_dense_with(const wb_dense_options *o);

/* Sizes are in braces: wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2}).  A number without braces
 * does not compile if something follows it, since wb_MaxPool(3, 2) could mean two things;
 * wb_MaxPool(2) alone is {2, 2}, and GCC's -Wmissing-braces (in -Wall) warns of it. */

/* y = activation(x ⋆ weight + bias), cross-correlation.  weight [out, in/groups, kh, kw], bias [out].
 * x [N, in, H, W].  .pad {p} means p on every side, {ph, pw} on both sides, else {top, bottom, left, right};
 * .same pads so that stride 1 keeps the size, with the odd cell of an even kernel below and to the right.  .flip: as Flux's Conv.
 * A side without padding beside one with: WB_NO_PAD, as in .pad = {1, WB_NO_PAD} for rows alone. */
enum { WB_NO_PAD = -1 };
typedef struct {
    size_t size;
    int64_t stride[2], pad[4], dilation[2], groups;
    int64_t outpad[2];              /* ConvTranspose's */
    bool same, flip, no_bias;
    wb_initialiser init;
    wb_dtype dtype;
    WB_BY_PLACE
    int64_t in, out;
    int64_t kernel[2];              /* {k} means {k, k} */
    const int64_t *sizes_;          /* or here, by the macros: kernel, window or shape as a list in braces */
    wb_function activation;
    WB_NO_MORE
} wb_conv_options;
WB_API wb_layer *wb_conv_layer_with(const wb_conv_options *o);      /* Conv; and CrossCor, without .flip */

/* y = activation(wb_conv_transpose(x, weight) + bias).  weight [in, out/groups, kh, kw], bias [out].
 * .outpad {h, w} as there; .same pads so that sizes become stride times larger, where the kernel
 * reaches as far as the stride.  .flip: as Flux's ConvTranspose. */
WB_API wb_layer *wb_conv_transpose_layer_with(const wb_conv_options *o);

/* As wb_conv_options; .stride is the window unless given.  Padding of a window's size or more is an
 * error when the layer is called, since a window could then be in the padding alone. */
typedef struct {
    size_t size;
    int64_t stride[2], pad[4];
    WB_BY_PLACE
    int64_t window[2];
    const int64_t *sizes_;
    WB_NO_MORE
} wb_pool_options;
WB_API wb_layer *wb_maxpool_layer_with(const wb_pool_options *o);
WB_API wb_layer *wb_meanpool_layer_with(const wb_pool_options *o);
WB_API wb_layer *wb_GlobalMaxPool(void);                            /* [N, C, H, W] -> [N, C, 1, 1] */
WB_API wb_layer *wb_GlobalMeanPool(void);
WB_API wb_layer *wb_Flatten(void);

/* Train mode only: see wb_dropout. */
typedef struct wb_dropout_options {
    size_t size;
    wb_axes axes; WB_HAS(axes)      /* one draw for each slice of the others */
    WB_BY_PLACE
    double p; WB_HAS(p)
    WB_NO_MORE
} wb_dropout_options;
WB_API wb_layer *wb_dropout_layer_with(const wb_dropout_options *o);

/* Over all axes but the second: (x - mean)/sqrt(var + eps) * scale + bias, then the activation.
 * Train mode takes the batch's biased variance and moves the running statistics (unbiased variance):
 * running = (1 - momentum) running + momentum new.  Test mode takes the running ones.  (Ioffe & Szegedy 2015)
 * scale, bias, mean, var [channels].  Errors: train mode with one value a channel. */
typedef struct wb_batchnorm_options {
    size_t size;
    bool no_affine; WB_HAS(no_affine)
    bool no_track_stats; WB_HAS(no_track_stats)
    WB_NUMBER(eps)                  /* 1e-5 */
    WB_NUMBER(momentum)             /* 0.1 */
    wb_dtype dtype; WB_HAS(dtype)
    WB_BY_PLACE
    int64_t channels; WB_HAS(channels)
    wb_function activation; WB_HAS(activation)
    WB_NO_MORE
} wb_batchnorm_options;
WB_API wb_layer *wb_batchnorm_with(const wb_batchnorm_options *o);

/* wb_normalise over the last axes, whose sizes are `shape`, then * scale + bias.  (Ba, Kiros & Hinton 2016) */
typedef struct wb_layernorm_options {
    size_t size;
    bool no_affine; WB_HAS(no_affine)
    WB_NUMBER(eps)                  /* 1e-5 */
    wb_dtype dtype; WB_HAS(dtype)
    WB_BY_PLACE
    int64_t shape[8]; WB_HAS(shape)                     /* {10}, or {H, W}: at most 4 */
    const int64_t *sizes_; WB_HAS(sizes_)
    wb_function activation; WB_HAS(activation)
    WB_NO_MORE
} wb_layernorm_options;
WB_API wb_layer *wb_layernorm_with(const wb_layernorm_options *o);

/* Row i of weight [n, dim] for each integer i in x: [...] -> [..., dim]. */
typedef struct {
    size_t size;
    wb_initialiser init;            /* wb_init_normal */
    wb_dtype dtype;
    WB_BY_PLACE
    int64_t n, dim;
    WB_NO_MORE
} wb_embedding_options;
WB_API wb_layer *wb_embedding_with(const wb_embedding_options *o);

/* Vaswani et al. 2017.  Projections q_proj, k_proj, v_proj, out_proj (Dense, no bias unless .bias).
 * wb_call(layer, x): self-attention, x [N, T, dim]; wb_call_many(layer, 3, {q, k, v}) otherwise. */
typedef struct {
    size_t size;
    bool causal, bias;
    double dropout;                 /* of the attention weights, in train mode; 0 */
    wb_initialiser init;
    wb_dtype dtype;
    WB_BY_PLACE
    int64_t dim, heads;             /* 8 heads */
    WB_NO_MORE
} wb_attention_options;
WB_API wb_layer *wb_attention_layer_with(const wb_attention_options *o);

/* Recurrent layers over [N, T, in] -> [N, T, out] (or the last step alone, [N, out], with .last), from a zero state.
 *   RNN   h' = activation(Wi x + Wh h + b), tanh
 *   LSTM  i, f, g, o = rows of Wi x + Wh h + b;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
 *   GRU   r, z, n = rows of Wi x + b and Wh h;  n = tanh(Wi_n x + b_n + r (Wh_n h));  h' = (1-z) n + z h
 * weight_input [gates out, in], weight_hidden [gates out, out], bias [gates out].
 * GRU with .hidden_bias: Wh h + bias_hidden wherever Wh h stands, as in PyTorch; the others have no use for it. */
typedef struct {
    size_t size;
    bool no_bias, last;
    wb_initialiser init;            /* wb_glorot_uniform */
    wb_dtype dtype;
    bool hidden_bias;               /* GRU only: parameter bias_hidden [3 out] */
    bool initial_state;             /* parameters initial_hidden [out] (LSTM: and initial_cell) in place of the zero */
    WB_BY_PLACE
    int64_t in, out;
    wb_function activation;         /* RNN only */
    WB_NO_MORE
} wb_recurrent_options;
WB_API wb_layer *wb_rnn_with(const wb_recurrent_options *o);
WB_API wb_layer *wb_lstm_with(const wb_recurrent_options *o);
WB_API wb_layer *wb_gru_with(const wb_recurrent_options *o);
/* Their cells: one step, by wb_call_many(cell, 1 + states, {x, h[, c]}), h first.  A state left out is zero.
 * y is the new h; wb_cell_step gives all new states. */
WB_API wb_layer *wb_rnn_cell_with(const wb_recurrent_options *o);
WB_API wb_layer *wb_lstm_cell_with(const wb_recurrent_options *o);
WB_API wb_layer *wb_gru_cell_with(const wb_recurrent_options *o);
WB_API int wb_cell_step(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor **states);    /* states in and out; 0 or an error */

/* Left to right.  A chain holds its layers under "layers.0", "layers.1", ... or by name; so does
 * Parallel.  SkipConnection holds its layer under "layers": the first of a chain in it is
 * "layers.layers.0".  Errors of wb_call begin with such a path:
 * "layers.3.layers.0: Dense: expects 4 features, got [2,5] f32". */
WB_API wb_layer *wb_chain_of(int n, wb_layer *const *layers);
WB_API wb_layer *wb_named(const char *name, wb_layer *layer);       /* wb_Chain(wb_named("encoder", a), wb_named("head", b)) */
WB_API wb_layer *wb_SkipConnection_of(wb_layer *layer, wb_tensor *(*connection)(wb_tensor *y, wb_tensor *x));
/* All layers on one input (or one each on as many), joined by `connection` from left to right. */
WB_API wb_layer *wb_parallel_of(wb_tensor *(*connection)(wb_tensor *y, wb_tensor *x), int n, wb_layer *const *layers);

/* A function as a layer.  Weber's own are known by name in print and files; give the program's own a name
 * before a model that has it is saved or loaded (wb_name_function), or at once: wb_function_layer("double", f).
 * wb_layer_from_function(NULL) fails. */
WB_API wb_layer *wb_layer_from_function(wb_function f);
WB_API wb_layer *wb_function_layer(const char *name, wb_function f);
WB_API int wb_name_function(const char *name, wb_function f);
WB_API int wb_name_connection(const char *name, wb_tensor *(*f)(wb_tensor *, wb_tensor *));

#ifndef __cplusplus
#define WB_OPTIONS_(f, T, ...) f(WB_GET_(T, __VA_ARGS__))
#define wb_Dense(...) WB_OPTIONS_(wb_dense_with, wb_dense_options, __VA_ARGS__)
#define WB_SIZED_(f, T, ...) WB_PASTE_(WB_SIZED_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, T, __VA_ARGS__)
#define WB_SIZED_one(f, T, sizes) f(WB_GET_(T, sizes))
#define WB_SIZED_more(f, T, ...) f(WB_GET_(T, .sizes_ = (int64_t[2])__VA_ARGS__))       /* (int64_t[2]){3, 3}, ... */
#define WB_CONVOLVE_(f, in, out, ...) \
    WB_PASTE_(WB_CONVOLVE_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, in, out, __VA_ARGS__)
#define WB_CONVOLVE_one(f, in, out, sizes) f(WB_GET_(wb_conv_options, in, out, sizes))
#define WB_CONVOLVE_more(f, in, out, ...) \
    f(WB_GET_(wb_conv_options, in, out, .sizes_ = (int64_t[2])__VA_ARGS__))
#define wb_Conv(...) WB_CONVOLVE_(wb_conv_layer_with, __VA_ARGS__)
#define wb_CrossCor(...) WB_CONVOLVE_(wb_conv_layer_with, __VA_ARGS__)
#define wb_ConvTranspose(...) WB_CONVOLVE_(wb_conv_transpose_layer_with, __VA_ARGS__)
#define wb_MaxPool(...) WB_SIZED_(wb_maxpool_layer_with, wb_pool_options, __VA_ARGS__)
#define wb_MeanPool(...) WB_SIZED_(wb_meanpool_layer_with, wb_pool_options, __VA_ARGS__)
#define wb_Dropout(...) WB_OPTIONS_(wb_dropout_layer_with, wb_dropout_options, WB_GIVE_(__VA_ARGS__))
#define wb_BatchNorm(...) WB_OPTIONS_(wb_batchnorm_with, wb_batchnorm_options, WB_GIVE_(__VA_ARGS__))
#define wb_LayerNorm(...) WB_PASTE_(WB_LAYER_NORM_, WB_ONE_OR_MORE_(__VA_ARGS__))(__VA_ARGS__)
#define WB_LAYER_NORM_one(...) wb_layernorm_with(WB_GET_(wb_layernorm_options, WB_GIVE_(__VA_ARGS__)))
#define WB_LAYER_NORM_more(...) \
    wb_layernorm_with(WB_GET_(wb_layernorm_options, .sizes_ = (int64_t[8])WB_GIVE_(__VA_ARGS__)))
#define wb_Embedding(...) WB_OPTIONS_(wb_embedding_with, wb_embedding_options, __VA_ARGS__)
#define wb_MultiHeadAttention(...) WB_OPTIONS_(wb_attention_layer_with, wb_attention_options, __VA_ARGS__)
#define wb_RNN(...) WB_OPTIONS_(wb_rnn_with, wb_recurrent_options, __VA_ARGS__)
#define wb_LSTM(...) WB_OPTIONS_(wb_lstm_with, wb_recurrent_options, __VA_ARGS__)
#define wb_GRU(...) WB_OPTIONS_(wb_gru_with, wb_recurrent_options, __VA_ARGS__)
#define wb_RNNCell(...) WB_OPTIONS_(wb_rnn_cell_with, wb_recurrent_options, __VA_ARGS__)
#define wb_LSTMCell(...) WB_OPTIONS_(wb_lstm_cell_with, wb_recurrent_options, __VA_ARGS__)
#define wb_GRUCell(...) WB_OPTIONS_(wb_gru_cell_with, wb_recurrent_options, __VA_ARGS__)

/* Layers and plain functions mix: wb_Chain(wb_Dense(10, 5, wb_sigmoid), wb_Dense(5, 2), wb_softmax); at most 32. */
static inline wb_layer *wb_as_layer_(wb_layer *layer) { return layer; }
#define WB_LAYER_(x) _Generic((x), wb_layer *: wb_as_layer_, wb_function: wb_layer_from_function)(x),
#define WB_LAYERS_(...) (wb_layer *[]){WB_EACH_(WB_LAYER_, __VA_ARGS__)}
#define wb_Chain(...) wb_chain_of(WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_Parallel(connection, ...) wb_parallel_of((connection), WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_SkipConnection(layer, connection) wb_SkipConnection_of(*WB_LAYERS_(layer), (connection))
#endif

/* Train or test mode of a layer and all in it; by default ("auto") train inside wb_withgradient, test elsewhere.
 * They return their argument. */
WB_API wb_layer *wb_trainmode(wb_layer *layer);
WB_API wb_layer *wb_testmode(wb_layer *layer);
WB_API wb_layer *wb_automode(wb_layer *layer);

/* ---- losses ----------------------------------------------------------------------------------- */

/* A mean over everything (over the batch for the cross-entropies), 0-dimensional; yhat and y of one shape and dtype.
 * What is f16 or bf16 is computed with in f32, and then so is the loss; f32 targets beside it are fine. */
WB_API wb_tensor *wb_mse(wb_tensor *yhat, wb_tensor *y);                    /* mean (yhat-y)^2 */
WB_API wb_tensor *wb_mae(wb_tensor *yhat, wb_tensor *y);                    /* mean |yhat-y| */
WB_API wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, double delta);    /* e < d ? e^2/2 : d (e - d/2); delta 0 means 1 */
WB_API wb_tensor *wb_crossentropy(wb_tensor *yhat, wb_tensor *y);           /* mean over rows of -sum y log(yhat + eps) */
WB_API wb_tensor *wb_logitcrossentropy(wb_tensor *logits, wb_tensor *y);    /* mean over rows of -sum y logsoftmax(logits) */
WB_API wb_tensor *wb_binarycrossentropy(wb_tensor *yhat, wb_tensor *y);     /* mean -y log(yhat+eps) - (1-y) log(1-yhat+eps) */
WB_API wb_tensor *wb_logitbinarycrossentropy(wb_tensor *logits, wb_tensor *y);  /* mean (1-y) logits - logsigmoid(logits) */

/* ---- model trees ------------------------------------------------------------------------------ */

/* f on every tensor of a layer or tree, the structure rebuilt; what is shared is mapped once and stays shared. */
typedef wb_tensor *(*wb_leaf_function)(wb_tensor *x, const char *path, void *ctx);
WB_API wb_layer *wb_fmap_layer(wb_leaf_function f, wb_layer *x, void *ctx);
WB_API wb_tree *wb_fmap_tree(wb_leaf_function f, wb_tree *x, void *ctx);
#ifndef __cplusplus
#define wb_fmap(f, x, ctx) _Generic((x), wb_layer *: wb_fmap_layer, wb_tree *: wb_fmap_tree)((f), (x), (ctx))
#endif

/* Calls f for each distinct parameter (trainable tensors; or all tensors, running statistics too) in order of
 * definition; a nonzero return stops and is returned. */
WB_API int wb_each_parameter(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx), void *ctx);
WB_API int wb_each_tensor(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx), void *ctx);
WB_API int64_t wb_parameter_count(void *object);        /* elements of the distinct trainable tensors */

/* Replaces the tensor at a path by a variable made of x (of the same shape and dtype); a tie is made by
 * wb_tie: both paths hold one parameter from then on.  0, or an error code. */
WB_API int wb_set(wb_layer *layer, const char *path, wb_tensor *x);
WB_API int wb_tie(wb_layer *layer, const char *path, const char *same_as);

/* A struct of the program's own as a tree (Flux's @functor):
 *   typedef struct { wb_layer *actor, *critic; double gamma; } actor_critic;
 *   WB_FUNCTOR(actor_critic, actor, critic)             fields that are objects; the rest is copied as it is
 *   wb_tree *t = wb_struct(actor_critic, &ac);           ... wb_gradient(l, t), wb_setup(rule, t), wb_fmap(...)
 *   actor_critic moved;
 *   wb_struct_get(actor_critic, t, &moved);              0, or an error code
 * wb_opaque(p) is a leaf that every verb leaves alone.  A tree may be cast to wb_layer * for wb_trainmode and its like,
 * wb_set, wb_tie and the model of a wb_checkpoint; it cannot be called. */
typedef struct { const char *name; size_t offset; } wb_field;
typedef struct { const char *name; size_t size; int n_fields; const wb_field *fields; } wb_struct_type;
WB_API wb_tree *wb_struct_of(const wb_struct_type *type, const void *value);
WB_API int wb_struct_copy(const wb_struct_type *type, wb_tree *tree, void *value);
WB_API wb_tree *wb_opaque(void *p);
WB_API void *wb_opaque_get(wb_tree *tree);
#ifndef __cplusplus
#define WB_FIELD_(T, f) {#f, offsetof(T, f)},
#define WB_FUNCTOR(T, ...)                                                                            \
    static const wb_field T##_wb_fields[] = {WB_EACH_WITH_(WB_FIELD_, T, __VA_ARGS__)};               \
    static const wb_struct_type T##_wb_type = {#T, sizeof(T), WB_NARGS_(__VA_ARGS__), T##_wb_fields};
#define wb_struct(T, p) wb_struct_of(&T##_wb_type, (p))
#define wb_struct_get(T, tree, p) wb_struct_copy(&T##_wb_type, (tree), (p))
#endif

#ifdef __cplusplus
}
#endif
#endif
