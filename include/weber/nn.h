/* Weber, chapter 4: layers, initialisers, models.  losses.h has the losses. */
#ifndef WEBER_NN_H
#define WEBER_NN_H

#include "weber/indexing.h"
#include "weber/losses.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A function of one tensor: an activation, or a layer of a chain.  It returns NULL on failure. */
typedef wb_tensor *(*wb_function)(wb_tensor *x);
/** A function of two tensors that joins the results of layers, such as wb_add.  It returns NULL on
 * failure. */
typedef wb_tensor *(*wb_connection)(wb_tensor *x, wb_tensor *y);

/** Calls a layer with n inputs.  Most layers take one input.  Parallel takes one input, or one for
 * each of its layers; MultiHeadAttention takes x, or q, k and v; a recurrent cell takes x and
 * optionally its states.  An input that is WB_NONE is an error.  Other errors are those of the
 * layer; the message begins with the layer's path in the model: "layers.3.layers.0: Dense: expects
 * 4 features, got [2,5] f32". */
WB_API wb_tensor *wb_call_array(wb_layer *layer, int n, wb_tensor *const *inputs);
/** Calls a layer with n inputs, as wb_call_array does, and sets the n_outputs elements of `outputs`
 * to its results.  A Parallel or PairwiseFusion whose results stay separate, and a layer of
 * WB_LAYER (structs.h), may give several tensors.  Returns 0 or an error code, and then the outputs
 * are NULL. Error: the layer gives another number of tensors. */
WB_API int wb_call_outputs(wb_layer *layer, int n, wb_tensor *const *inputs, int n_outputs,
                           wb_tensor **outputs);
/** y = layer(x): wb_call_array with one input.  Error: the layer gives several tensors. */
WB_API wb_tensor *wb_call(wb_layer *layer, wb_tensor *x);
#ifndef __cplusplus
/** wb_call(layer, x) or wb_call(layer, q, k, v). */
#define wb_call(layer, ...) \
    wb_call_array((layer), WB_TENSORS_(__VA_ARGS__))
#endif

/* ---- initialisers ---------------------------------------------------------------------------- */

/** Creates the initial value of a parameter.  For the shape [out, in, kernel...], fan_in = in · s
 * and fan_out = out · s, where s is the number of elements of the kernel.  In any shape the first
 * two sizes count as out and in, also in ConvTranspose's [in, out/groups, kh, kw] and Embedding's
 * [n, dim].  A vector [n] has fan_in 1 and fan_out n.  The result has the dtype `dtype` and the
 * shape `dims`, and belongs to the current scope.  If it is NULL, the layer is not made. */
typedef wb_tensor *(*wb_initialiser)(wb_dtype dtype, int ndim, const int64_t *dims);
/** Uniform on [-a, a] with a = sqrt(6 / (fan_in + fan_out)), from the seed of wb_seed; `dtype` is
 * floating.  (Glorot & Bengio 2010) */
WB_API wb_tensor *wb_glorot_uniform(wb_dtype dtype, int ndim, const int64_t *dims);
/** Normal with standard deviation sqrt(2 / (fan_in + fan_out)), from the seed of wb_seed; `dtype`
 * is floating.  (Glorot & Bengio 2010) */
WB_API wb_tensor *wb_glorot_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** Uniform on [-a, a] with a = sqrt(6 / fan_in), from the seed of wb_seed; `dtype` is floating.
 * (He et al. 2015) */
WB_API wb_tensor *wb_kaiming_uniform(wb_dtype dtype, int ndim, const int64_t *dims);
/** Normal with standard deviation sqrt(2 / fan_in), from the seed of wb_seed; `dtype` is floating.
 * (He et al. 2015) */
WB_API wb_tensor *wb_kaiming_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** Zeros, of any dtype. */
WB_API wb_tensor *wb_init_zeros(wb_dtype dtype, int ndim, const int64_t *dims);
/** Ones, of any dtype. */
WB_API wb_tensor *wb_init_ones(wb_dtype dtype, int ndim, const int64_t *dims);
/** Standard normal: wb_randn_array. */
WB_API wb_tensor *wb_init_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** Uniform on [0, 1): wb_rand_array. */
WB_API wb_tensor *wb_init_uniform(wb_dtype dtype, int ndim, const int64_t *dims);

/* ---- layers ---------------------------------------------------------------------------------- */

/* Options that several layers have: .dtype is the dtype of the parameters (floating), .init creates
 * the weight, .activation is applied to the result (NULL: none).  Biases start as zeros, scales as
 * ones.  Sizes are positive; else NULL is returned.  A container holds references to its layers.
 *
 * A layer with parameters converts an input of another dtype to the dtype of its parameters.  If
 * that input is floating, the layer warns, once in a process.  Embedding takes integers only.
 *
 * Sizes of windows and kernels are in braces: wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2}).  {k}
 * means {k, k}.  In C these sizes are given by position only.  A call without braces, such as
 * wb_MaxPool(3, 2), does not compile. */

/** Options of wb_Dense. */
typedef struct wb_Dense_options {
    WB_OPTIONS_HEAD(wb_Dense_options)
    bool no_bias WB_IS(false);
    wb_initialiser init WB_IS(wb_glorot_uniform);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    int64_t in WB_REQUIRED, out WB_REQUIRED;
    wb_function activation WB_IS(NULL);
    WB_NO_MORE
} wb_Dense_options;
/** y = activation(x·weightᵀ + bias): wb_Dense(in, out, activation).
 *   x [..., in]   y [..., out]   weight [out, in]   bias [out]
 * Error: the last axis of x has another size than `in`. */
WB_API wb_layer *wb_Dense_with(const wb_Dense_options *o);

/** Options of wb_Conv, wb_CrossCor and wb_ConvTranspose. */
typedef struct wb_Conv_options {
    WB_OPTIONS_HEAD(wb_Conv_options)
    wb_ints stride WB_IS({1});              /* {s} or {h, w} */
    wb_ints pad WB_IS({0});                 /* {p}, {h, w} or {top, bottom, left, right} */
    wb_ints dilation WB_IS({1});            /* {d} or {h, w} */
    int64_t groups WB_IS(1);                /* divides `in` and `out` */
    wb_ints outpad WB_IS({0});              /* {p} or {h, w}; of wb_ConvTranspose only */
    bool same WB_IS(false);                 /* computes .pad: see wb_Conv, wb_ConvTranspose */
    bool flip WB_IS(false);                 /* the kernel is flipped along both axes, as in Flux */
    bool no_bias WB_IS(false);
    wb_initialiser init WB_IS(wb_glorot_uniform);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    int64_t in WB_REQUIRED, out WB_REQUIRED;
    wb_ints kernel WB_REQUIRED;             /* {k} or {h, w} */
    const int64_t *sizes_ WB_IS(NULL);      /* the macros pass the kernel here */
    wb_function activation WB_IS(NULL);
    WB_NO_MORE
} wb_Conv_options;
/** y = activation(wb_conv(x, weight, bias)): wb_Conv(in, out, {kh, kw}, activation).
 *   x [N, in, H, W]   y [N, out, H', W']   weight [out, in/groups, kh, kw]   bias [out]
 * H' is that of wb_conv.  .same pads so that a stride of 1 keeps the size.  If an axis needs odd
 * padding, the extra row is below and the extra column to the right.  wb_CrossCor is another name
 * of this layer.  Errors: both .same and .pad are given; .outpad is given; .groups does not divide
 * `in` and `out`. */
WB_API wb_layer *wb_Conv_with(const wb_Conv_options *o);

/** y = activation(wb_conv_transpose(x, weight, bias)): wb_ConvTranspose(in, out, {kh, kw}).
 *   x [N, in, H, W]   y [N, out, H', W']   weight [in, out/groups, kh, kw]   bias [out]
 * H' is that of wb_conv_transpose.  .same pads so that H' = H stride, if the kernel is at least as
 * large as the stride.  Errors: both .same and .pad are given; .outpad is not below the stride;
 * .groups does not divide `in` and `out`. */
WB_API wb_layer *wb_ConvTranspose_with(const wb_Conv_options *o);

/** Options of wb_MaxPool and wb_MeanPool. */
typedef struct wb_Pool_options {
    WB_OPTIONS_HEAD(wb_Pool_options)
    wb_ints stride WB_IS({});               /* {s} or {h, w}; default: the window */
    wb_ints pad WB_IS({0});                 /* {p}, {h, w} or {top, bottom, left, right} */
    WB_BY_PLACE
    wb_ints window WB_REQUIRED;             /* {k} or {h, w} */
    const int64_t *sizes_ WB_IS(NULL);      /* the macros pass the window here */
    WB_NO_MORE
} wb_Pool_options;
/** wb_maxpool as a layer: wb_MaxPool({2}), wb_MaxPool({3, 3}, .stride = {2}). */
WB_API wb_layer *wb_MaxPool_with(const wb_Pool_options *o);
/** wb_meanpool as a layer, with the options of wb_MaxPool. */
WB_API wb_layer *wb_MeanPool_with(const wb_Pool_options *o);
/** The greatest element of each channel, [N, C, H, W] -> [N, C, 1, 1], with the gradient of
 * wb_max. */
WB_API wb_layer *wb_GlobalMaxPool(void);
/** The mean of each channel of a floating x, [N, C, H, W] -> [N, C, 1, 1]. */
WB_API wb_layer *wb_GlobalMeanPool(void);
/** wb_flatten as a layer, [N, ...] -> [N, features]. */
WB_API wb_layer *wb_Flatten(void);

/** Options of wb_Dropout. */
typedef struct wb_Dropout_options {
    WB_OPTIONS_HEAD(wb_Dropout_options)
    /* Elements with the same indices along these axes are dropped together: {0, 1} drops whole
     * channels of [N, C, H, W].  By default each element is drawn independently. */
    wb_ints axes WB_IS({});
    WB_BY_PLACE
    double p WB_REQUIRED;                   /* the probability of 0, in [0, 1] */
    WB_NO_MORE
} wb_Dropout_options;
/** wb_dropout(x, p) in train mode (wb_trainmode), x itself in test mode.  Error: p is outside
 * [0, 1]. */
WB_API wb_layer *wb_Dropout_with(const wb_Dropout_options *o);

/** Options of wb_BatchNorm. */
typedef struct wb_BatchNorm_options {
    WB_OPTIONS_HEAD(wb_BatchNorm_options)
    bool no_affine WB_IS(false);            /* without scale and bias */
    bool no_track_stats WB_IS(false);       /* without mean and var; see wb_BatchNorm */
    double eps WB_IS(1e-5);
    double momentum WB_IS(0.1);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    int64_t channels WB_REQUIRED;
    wb_function activation WB_IS(NULL);
    WB_NO_MORE
} wb_BatchNorm_options;
/** y = activation((x - mean) / sqrt(var + eps) · scale + bias), with one mean and variance for each
 * index of axis 1: wb_BatchNorm(channels, activation).  (Ioffe & Szegedy 2015)
 *   x [N, channels, ...]   y as x   scale, bias, mean, var [channels]
 * Train mode normalises with the batch's mean and biased variance, and updates the running
 * statistics: running = (1 - momentum) running + momentum new, where the new variance is the
 * unbiased one.  Test mode normalises with the running statistics; with .no_track_stats it
 * normalises as in train mode.  Errors: train mode with one value for each channel; momentum
 * outside [0, 1]; eps negative. */
WB_API wb_layer *wb_BatchNorm_with(const wb_BatchNorm_options *o);

/** Options of wb_LayerNorm. */
typedef struct wb_LayerNorm_options {
    WB_OPTIONS_HEAD(wb_LayerNorm_options)
    bool no_affine WB_IS(false);            /* without scale and bias */
    double eps WB_IS(1e-5);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    wb_ints shape WB_REQUIRED;              /* {features} or {H, W}, at most 4 sizes */
    const int64_t *sizes_ WB_IS(NULL);      /* the macros pass the shape here */
    wb_function activation WB_IS(NULL);
    WB_NO_MORE
} wb_LayerNorm_options;
/** y = activation(wb_normalise(x, n, eps) · scale + bias) over the last n axes, whose sizes are the
 * n numbers of `shape`: wb_LayerNorm({features}).  scale, bias [shape].  Errors: the last sizes of
 * x are not `shape`; eps is negative.  (Ba, Kiros & Hinton 2016) */
WB_API wb_layer *wb_LayerNorm_with(const wb_LayerNorm_options *o);

/** Options of wb_Embedding. */
typedef struct wb_Embedding_options {
    WB_OPTIONS_HEAD(wb_Embedding_options)
    wb_initialiser init WB_IS(wb_init_normal);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    int64_t n WB_REQUIRED, dim WB_REQUIRED;
    WB_NO_MORE
} wb_Embedding_options;
/** Rows of `weight` by index, wb_take(weight, x): wb_Embedding(n, dim).
 *   x [...] integer   y [..., dim]   weight [n, dim]
 * The initial weight is standard normal.  An index outside 0 .. n-1 gives zeros. */
WB_API wb_layer *wb_Embedding_with(const wb_Embedding_options *o);

/** Options of wb_MultiHeadAttention. */
typedef struct wb_MultiHeadAttention_options {
    WB_OPTIONS_HEAD(wb_MultiHeadAttention_options)
    bool causal WB_IS(false);               /* a query sees no later key */
    bool bias WB_IS(false);                 /* the projections have biases, as PyTorch's have */
    double dropout WB_IS(0);                /* of attention weights, in train mode; below 1 */
    wb_initialiser init WB_IS(wb_glorot_uniform);
    wb_dtype dtype WB_IS(WB_F32);
    WB_BY_PLACE
    int64_t dim WB_REQUIRED;
    int64_t heads WB_IS(8);
    WB_NO_MORE
} wb_MultiHeadAttention_options;
/** Attention with several heads: wb_MultiHeadAttention(dim, heads).  (Vaswani et al. 2017)
 * wb_call(layer, x) is self-attention, the same as wb_call(layer, x, x, x).  In wb_call(layer, q,
 * k, v), q is [N, Tq, dim], k and v are [N, Tk, dim], and the result is [N, Tq, dim].  The
 * projections q_proj, k_proj, v_proj and out_proj are Dense layers; each head computes wb_attention
 * of dim / heads features.  Error: `heads` does not divide `dim`. */
WB_API wb_layer *wb_MultiHeadAttention_with(const wb_MultiHeadAttention_options *o);

/** Options of recurrent layers and cells. */
typedef struct wb_Recurrent_options {
    WB_OPTIONS_HEAD(wb_Recurrent_options)
    bool no_bias WB_IS(false);
    bool last WB_IS(false);                 /* only the last step's output; not for cells */
    wb_initialiser init WB_IS(wb_glorot_uniform);
    wb_dtype dtype WB_IS(WB_F32);
    bool hidden_bias WB_IS(false);          /* for a GRU with a bias: adds bias_hidden [3 out] */
    bool initial_state WB_IS(false);        /* adds initial_hidden, in an LSTM also initial_cell */
    WB_BY_PLACE
    int64_t in WB_REQUIRED, out WB_REQUIRED;
    wb_function activation WB_IS(NULL);     /* for an RNN only; NULL: wb_tanh */
    WB_NO_MORE
} wb_Recurrent_options;
/** h' = activation(weight_input·x + weight_hidden·h + bias): wb_RNN(in, out, activation).
 *   x [N, T, in]   y [N, T, out]: the states h' of all steps; with .last [N, out], the last one
 *   weight_input [gates out, in]   weight_hidden [gates out, out]   bias [gates out]
 * An RNN has 1 gate, an LSTM 4, a GRU 3.  In the formula x and h are the vectors of one step.
 * The first state is 0 or, with .initial_state, a parameter [out].  Error: a call with T = 0. */
WB_API wb_layer *wb_RNN_with(const wb_Recurrent_options *o);
/** An LSTM: wb_LSTM(in, out).  The sum in the first line is split into four vectors.
 *   [i, f, g, o] = weight_input·x + weight_hidden·h + bias
 *   c' = sigmoid(f) c + sigmoid(i) tanh(g)   h' = sigmoid(o) tanh(c')
 * Shapes as wb_RNN.  Error: .activation is given. */
WB_API wb_layer *wb_LSTM_with(const wb_Recurrent_options *o);
/** A GRU: wb_GRU(in, out).  Both sums in the first line are split into three vectors.
 *   [ar, az, an] = weight_input·x + bias   [br, bz, bn] = weight_hidden·h + bias_hidden
 *   r = sigmoid(ar + br)   z = sigmoid(az + bz)   n = tanh(an + r bn)   h' = (1 - z) n + z h
 * Without .hidden_bias, bias_hidden is 0; PyTorch's GRU has that bias.  Shapes as wb_RNN.  Error:
 * .activation is given. */
WB_API wb_layer *wb_GRU_with(const wb_Recurrent_options *o);
/** One step of an RNN: wb_call(cell, x, h) with x [N, in], h [N, out] returns the new h.  Without
 * h, wb_call(cell, x), the state is 0 or, with .initial_state, the parameter initial_hidden. */
WB_API wb_layer *wb_RNNCell_with(const wb_Recurrent_options *o);
/** One step of an LSTM: wb_call(cell, x, h, c) returns the new h only; wb_cell_step returns the new
 * h and c.  A state that is not given is 0 or, with .initial_state, the parameter initial_hidden
 * (h) or initial_cell (c). */
WB_API wb_layer *wb_LSTMCell_with(const wb_Recurrent_options *o);
/** One step of a GRU: wb_call(cell, x, h) returns the new h.  Without h, the state is 0 or, with
 * .initial_state, the parameter initial_hidden. */
WB_API wb_layer *wb_GRUCell_with(const wb_Recurrent_options *o);
/** One step of a cell: replaces the tensors in `states` by the new states, which belong to the
 * current scope.  n_states is 2 (h and c) for an LSTM, else 1 (h).  A state that is WB_NONE or NULL
 * counts as not given (see wb_RNNCell).  Returns 0 or an error code, and then `states` is
 * unchanged. */
WB_API int wb_cell_step(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor **states);

/** Layers one after the other: wb_Chain(wb_Dense(10, 5, wb_relu), wb_Dense(5, 2), wb_softmax).  If
 * a layer gives several tensors, they are the inputs of the next layer.  The macro takes layers
 * and functions, at most 32.  Parameters are named "layers.0.weight", or with the names of
 * wb_named.  Errors: no layers; two layers with the same name. */
WB_API wb_layer *wb_Chain_array(int n, wb_layer *const *layers);
/** Gives a layer a name in the Chain or Parallel that it is put into: wb_Chain(wb_named("encoder",
 * a), b).  Elsewhere the name is ignored.  The name is copied.  Errors: an empty name; a name with
 * a dot. */
WB_API wb_layer *wb_named(const char *name, wb_layer *layer);
/** y = connection(layer(x), x), for one input.  Parameters are named "layers.weight", or
 * "layers.layers.0.weight" if the layer is a Chain. */
WB_API wb_layer *wb_SkipConnection(wb_layer *layer, wb_connection connection);
/** y = connection(connection(layer_0(x), layer_1(x)), ...): wb_Parallel(connection, a, b).  One
 * input goes to every layer.  Of several inputs, input i goes to layer i; if there is only one
 * layer, it is called once with each input.  Parameters are named "layers.0.weight".  Errors: no
 * layers; a call with another number of inputs. */
WB_API wb_layer *wb_Parallel_array(wb_connection connection, int n, wb_layer *const *layers);
/** The connection of a Parallel whose results stay separate, so that wb_call_outputs returns one
 * for each layer, at most 16: wb_Parallel(wb_separate, a, b).  Flux calls it `tuple`.  A call of
 * this function is an error. */
WB_API wb_tensor *wb_separate(wb_tensor *x, wb_tensor *y);
/** y_0 = layer_0(x_0), y_i = layer_i(connection(y_{i-1}, x_i)): wb_PairwiseFusion(connection, a,
 * b). Its results are y_0, y_1, ... (wb_call_outputs), at most 16.  One input counts as every x_i.
 * Parameters are named "layers.0.weight".  Errors: no layers; a call with another number of
 * inputs. */
WB_API wb_layer *wb_PairwiseFusion_array(wb_connection connection, int n, wb_layer *const *layers);

/** A function as a layer without parameters.  Functions of the library have names in print and in
 * files; a function of the program gets its name with wb_name_function. */
WB_API wb_layer *wb_layer_from_function(wb_function f);
/** A function of the program as a layer, with a name: calls wb_name_function and
 * wb_layer_from_function.  NULL: one of them failed. */
WB_API wb_layer *wb_function_layer(const char *name, wb_function f);
/** Gives a function of the program its name in print and in files, for the whole process.  A model
 * that contains the function can be saved and loaded after that.  The name, 1 to 63 characters, is
 * copied.  Returns 0 or an error code.  Errors: another function has the name; more than 256
 * names. */
WB_API int wb_name_function(const char *name, wb_function f);
/** Gives a connection of the program its name, as wb_name_function does for a function. */
WB_API int wb_name_connection(const char *name, wb_connection f);

#ifndef __cplusplus
#define WB_OPTIONS_(f, T, ...) f(WB_GET_(T, __VA_ARGS__))
/* The options begin with a list of sizes in braces, which the preprocessor splits at its commas:
 * {3, 3} is two arguments.  After the cast the compiler reads one list: (wb_ints){3, 3}. */
#define WB_SIZED_(f, T, ...) WB_PASTE_(WB_SIZED_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, T, __VA_ARGS__)
#define WB_SIZED_1(f, T, ...) WB_OPTIONS_(f, T, __VA_ARGS__)
#define WB_SIZED_2(f, T, ...) \
    f(WB_GET_WITH_(T, WB_TEXT_(__VA_ARGS__), .sizes_ = (wb_ints)__VA_ARGS__))
#define WB_CONVOLVE_(f, in, out, ...) \
    WB_PASTE_(WB_CONVOLVE_, WB_ONE_OR_MORE_(__VA_ARGS__))(f, in, out, __VA_ARGS__)
#define WB_CONVOLVE_1(f, ...) WB_OPTIONS_(f, wb_Conv_options, __VA_ARGS__)
#define WB_CONVOLVE_2(f, in, out, ...)                                              \
    f(WB_GET_WITH_(wb_Conv_options, WB_TEXT_(in, out, __VA_ARGS__), in, out,        \
                   .sizes_ = (wb_ints)__VA_ARGS__))
#define wb_Dense(...) WB_OPTIONS_(wb_Dense_with, wb_Dense_options, __VA_ARGS__)
#define wb_Conv(...) WB_CONVOLVE_(wb_Conv_with, __VA_ARGS__)
#define wb_CrossCor(...) WB_CONVOLVE_(wb_Conv_with, __VA_ARGS__)
#define wb_ConvTranspose(...) WB_CONVOLVE_(wb_ConvTranspose_with, __VA_ARGS__)
#define wb_MaxPool(...) WB_SIZED_(wb_MaxPool_with, wb_Pool_options, __VA_ARGS__)
#define wb_MeanPool(...) WB_SIZED_(wb_MeanPool_with, wb_Pool_options, __VA_ARGS__)
#define wb_Dropout(...) WB_OPTIONS_(wb_Dropout_with, wb_Dropout_options, __VA_ARGS__)
#define wb_BatchNorm(...) WB_OPTIONS_(wb_BatchNorm_with, wb_BatchNorm_options, __VA_ARGS__)
#define wb_LayerNorm(...) WB_SIZED_(wb_LayerNorm_with, wb_LayerNorm_options, __VA_ARGS__)
#define wb_Embedding(...) WB_OPTIONS_(wb_Embedding_with, wb_Embedding_options, __VA_ARGS__)
#define wb_MultiHeadAttention(...) \
    WB_OPTIONS_(wb_MultiHeadAttention_with, wb_MultiHeadAttention_options, __VA_ARGS__)
#define wb_RNN(...) WB_OPTIONS_(wb_RNN_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_LSTM(...) WB_OPTIONS_(wb_LSTM_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRU(...) WB_OPTIONS_(wb_GRU_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_RNNCell(...) WB_OPTIONS_(wb_RNNCell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_LSTMCell(...) WB_OPTIONS_(wb_LSTMCell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRUCell(...) WB_OPTIONS_(wb_GRUCell_with, wb_Recurrent_options, __VA_ARGS__)

#define WB_LAYER_(x) WB_ONCE_(WB_LAYER_OF_, x, )
#define WB_LAYER_OF_(x, _)                                                                  \
    _Generic(x, wb_layer *: wb_as_layer_, void *: wb_as_layer_,                             \
        wb_function: wb_layer_from_function,                                                \
        default: wb_this_takes_layers_and_functions_of_one_tensor)(x)
typedef struct { int none; } wb_layer_or_function_expected;
wb_layer *wb_this_takes_layers_and_functions_of_one_tensor(wb_layer_or_function_expected);
static inline wb_layer *wb_as_layer_(wb_layer *layer) { return layer; }
#define WB_LAYER_ROW_(x) WB_LAYER_(x),
#define WB_LAYERS_(...) (wb_layer *[]){WB_EACH_(WB_LAYER_ROW_, __VA_ARGS__)}
#define wb_Chain(...) wb_Chain_array(WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_Parallel(connection, ...) \
    wb_Parallel_array((connection), WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_PairwiseFusion(connection, ...) \
    wb_PairwiseFusion_array((connection), WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_SkipConnection(layer, connection) wb_SkipConnection(WB_LAYER_(layer), (connection))
#define wb_named(name, layer) wb_named((name), WB_LAYER_(layer))
#endif

/** Sets train mode for a layer and all layers in it, and returns the layer.  The mode matters for
 * Dropout, BatchNorm and the dropout of MultiHeadAttention.  A new layer is in automatic mode:
 * train mode inside wb_withgradient and wb_train, test mode elsewhere. */
WB_API wb_layer *wb_trainmode(wb_layer *layer);
/** Sets test mode for a layer and all layers in it, and returns the layer. */
WB_API wb_layer *wb_testmode(wb_layer *layer);
/** Sets automatic mode (wb_trainmode) for a layer and all layers in it, and returns the layer. */
WB_API wb_layer *wb_automode(wb_layer *layer);

/* ---- models ---------------------------------------------------------------------------------- */

/** Returns the tensor that takes the place of x; x itself is allowed.  `path` is the path of x in
 * the model, valid during the call; `ctx` is the argument of wb_fmap.  NULL: the mapping fails. */
typedef wb_tensor *(*wb_leaf_function)(wb_tensor *x, const char *path, void *ctx);
/** A new layer of the same structure, with f(t) in place of each tensor t.  A tensor that occurs
 * several times in the layer is mapped once; WB_NONE is not passed to f.  If t is a variable and
 * f(t) is not, the new layer has a new variable with the value of f(t).  NULL: f failed. */
WB_API wb_layer *wb_fmap_layer(wb_leaf_function f, wb_layer *x, void *ctx);
/** wb_fmap_layer for a tree.  A tensor t directly in the tree, not in a layer, is replaced by f(t)
 * itself, even if t is a variable and f(t) is not. */
WB_API wb_tree *wb_fmap_tree(wb_leaf_function f, wb_tree *x, void *ctx);
#ifndef __cplusplus
/** wb_fmap_layer or wb_fmap_tree, by the type of x. */
#define wb_fmap(f, x, ctx) WB_ONCE_(WB_FMAP_, x, (f), (ctx))
#define WB_FMAP_(x, f, ctx)                                                                 \
    _Generic(x, wb_layer *: wb_fmap_layer, wb_tree *: wb_fmap_tree,                         \
        default: wb_fmap_takes_a_layer_or_tree)(f, x, ctx)
typedef struct { int none; } wb_layer_or_tree_expected;
wb_tree *wb_fmap_takes_a_layer_or_tree(wb_leaf_function, wb_layer_or_tree_expected, void *);
#endif

/** Calls f for each trainable tensor of a layer or tree, once for each tensor, depth first.
 * Trainable tensors are floating and not running statistics; in a layer they are variables.  Frozen
 * parameters (wb_freeze) are included.  If f returns a value other than 0, the function stops and
 * returns that value.  Otherwise it returns 0, or an error code if `object` is no layer or tree.
 * `path` is valid during the call of f. */
WB_API int wb_each_parameter(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx),
                             void *ctx);
/** wb_each_parameter for all tensors, also those that are not trainable, such as running
 * statistics. */
WB_API int wb_each_tensor(void *object, int (*f)(wb_tensor *x, const char *path, void *ctx),
                          void *ctx);
/** The number of elements of all trainable tensors (wb_each_parameter) of a layer or tree.  A tied
 * tensor counts once.  -1 on failure. */
WB_API int64_t wb_parameter_count(void *object);

/** Replaces the tensor at a path by a new variable with a copy of x.  x has the shape, dtype and
 * device of the old tensor.  Other paths that share the old tensor keep it, so the path is no
 * longer tied to them; an optimiser state that was made before does not fit a model whose ties
 * changed.  Returns 0 or an error code.  Errors: no such path, WB_NONE at the path, another shape,
 * dtype or device. */
WB_API int wb_set(wb_layer *layer, const char *path, wb_tensor *x);
/** Replaces the tensor at `path` by the tensor at the path `same_as`, so that both paths share one
 * parameter.  Returns 0 or an error code.  Errors: no such path, WB_NONE at one of the paths,
 * different shapes, dtypes or devices. */
WB_API int wb_tie(wb_layer *layer, const char *path, const char *same_as);

#ifdef __cplusplus
}
#endif
#endif
