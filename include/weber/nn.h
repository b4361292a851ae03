/* Weber, chapter 4: calls of layers, initialisers, containers, models.  layers.h has the layers,
 * losses.h the losses. */
#ifndef WEBER_NN_H
#define WEBER_NN_H

#include "weber/indexing.h"
#include "weber/linalg.h"
#include "weber/losses.h"
#include "weber/signal.h"
#include "weber/vision.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A function of one tensor: an activation, or a layer of a chain.  It returns NULL on failure. */
typedef wb_tensor *(*wb_function)(wb_tensor *x);
/** A function of two tensors that joins the results of layers, such as wb_add.  It returns NULL on
 * failure. */
typedef wb_tensor *(*wb_connection)(wb_tensor *x, wb_tensor *y);

/** Calls a layer with n inputs.  A layer takes one input unless its comment names more: Parallel
 * and PairwiseFusion take one for each of their layers, MultiHeadAttention q, k, v and a mask,
 * recurrent layers and Recurrence x and states, Bilinear x and y, EmbeddingBag x and offsets.  An
 * input that is WB_NONE is an error.  Other errors are those of the layer; the message begins with
 * the layer's path in the model: "layers.3.layers.0: Dense: expects 4 features, got [2,5] f32". */
WB_API wb_tensor *wb_call_array(wb_layer *layer, int n, wb_tensor *const *inputs);
/** Calls a layer with n inputs, as wb_call_array does, and sets the n_outputs elements of `outputs`
 * to its results.  A layer gives one tensor unless its comment names more: Parallel with
 * wb_separate, PairwiseFusion, MultiHeadAttention with .weights, recurrent layers and Recurrence
 * with .return_state, layers of WB_LAYER (structs.h).  Returns 0 or an error code, and then the
 * outputs are NULL.  Error: the layer gives another number of tensors. */
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
typedef wb_tensor *(*wb_initializer)(wb_dtype dtype, int ndim, const int64_t *dims);
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
/** wb_truncated_normal_array(0, 1, -2, 2, ...): standard normal, limited to [-2, 2]. */
WB_API wb_tensor *wb_init_truncated_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** Normal with standard deviation sqrt(1 / fan_in), cut off at the values -2 and 2 as in Flux, from
 * the seed of wb_seed; `dtype` is floating.  (LeCun et al. 1998) */
WB_API wb_tensor *wb_lecun_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** The identity: of [out, in] the matrix with 1 on its diagonal, of a kernel [out, in, k...] a 1 at
 * index (k - 1) / 2, rounded down, of each of its axes, where the indices of out and in are equal;
 * else zeros, also for a vector.  `dtype` is floating. */
WB_API wb_tensor *wb_identity_init(wb_dtype dtype, int ndim, const int64_t *dims);
/** Orthonormal rows of the matrix [out, in k...], or columns if that has more rows, at random, from
 * the seed of wb_seed: the factor q of a matrix of normal numbers, where r has a positive diagonal.
 * The numbers are computed in f64; `dtype` is floating.  (Saxe et al. 2014)  Errors: one
 * dimension; inside wb_compile. */
WB_API wb_tensor *wb_orthogonal(wb_dtype dtype, int ndim, const int64_t *dims);
/** The initializer `of` with a gain a, as Flux's: wb_glorot_uniform is uniform on [-r, r] with r =
 * a sqrt(6 / (fan_in + fan_out)), wb_glorot_normal has the standard deviation a sqrt(2 / (fan_in +
 * fan_out)), wb_kaiming_uniform r = a sqrt(3 / fan_in), wb_kaiming_normal a / sqrt(fan_in),
 * wb_lecun_normal a sqrt(1 / fan_in), cut off at the same values; wb_identity_init and
 * wb_orthogonal are multiplied by a.  The gain of the functions above is sqrt(2) for the two
 * Kaiming functions, else 1.  Errors: another initializer; the gain is not finite. */
WB_API wb_tensor *wb_init_gain(wb_initializer of, double gain, wb_dtype dtype, int ndim,
                               const int64_t *dims);
/** Defines, at file scope, a static function `name` that is the initializer `of` with a gain:
 *     WB_INITIALIZER(wide, wb_orthogonal, 1.41)
 *     wb_layer *l = wb_Dense(4, 8, .init = wide); */
#define WB_INITIALIZER(name, of, gain)                                                      \
    static wb_tensor *name(wb_dtype dtype, int ndim, const int64_t *dims)                   \
    {                                                                                       \
        return wb_init_gain((of), (gain), dtype, ndim, dims);                               \
    }
/** Normal numbers with the standard deviation std (0.01 in Flux and PyTorch) in a matrix [out, in],
 * of which ceil(sparsity out) in each column are 0, at random places, from the seed of wb_seed.
 * `dtype` is floating.  It is called by an initialiser of the program.  (Martens 2010)  Errors:
 * another number of dimensions; sparsity is not from 0 to 1. */
WB_API wb_tensor *wb_sparse_init(double sparsity, double std, wb_dtype dtype, int ndim,
                                 const int64_t *dims);
/** Zeros of any dtype. */
WB_API wb_tensor *wb_init_zeros(wb_dtype dtype, int ndim, const int64_t *dims);
/** Ones, of any dtype. */
WB_API wb_tensor *wb_init_ones(wb_dtype dtype, int ndim, const int64_t *dims);
/** Standard normal: wb_randn_array. */
WB_API wb_tensor *wb_init_normal(wb_dtype dtype, int ndim, const int64_t *dims);
/** Uniform on [0, 1): wb_rand_array. */
WB_API wb_tensor *wb_init_uniform(wb_dtype dtype, int ndim, const int64_t *dims);

/* ---- containers and functions ---------------------------------------------------------------- */

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
 * b).  Its results are y_0, y_1, ... (wb_call_outputs), at most 16.  One input counts as every x_i.
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
static inline wb_layer *wb_as_layer_(wb_layer *layer) { return layer; }
#define wb_Chain(...) wb_Chain_array(WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_Parallel(connection, ...) \
    wb_Parallel_array((connection), WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_PairwiseFusion(connection, ...) \
    wb_PairwiseFusion_array((connection), WB_NARGS_(__VA_ARGS__), WB_LAYERS_(__VA_ARGS__))
#define wb_SkipConnection(layer, connection) wb_SkipConnection(WB_LAYER_(layer), (connection))
#define wb_named(...) WB_PASTE_(WB_NAMED_, WB_ONE_OR_MORE_(__VA_ARGS__))(__VA_ARGS__)
#define WB_NAMED_2(name, layer) wb_named(WB_NAME_(name), WB_LAYER_(layer))
#endif

/** Sets train mode for a layer and all layers in it, and returns the layer.  The mode matters for
 * Dropout, BatchNorm and the dropout of MultiHeadAttention.  A new layer is in automatic mode:
 * train mode inside wb_withgradient and wb_train, test mode elsewhere. */
WB_API wb_layer *wb_trainmode(wb_layer *layer);
/** Sets test mode for a layer and all layers in it, and returns the layer. */
WB_API wb_layer *wb_testmode(wb_layer *layer);
/** Sets automatic mode (wb_trainmode) for a layer and all layers in it, and returns the layer. */
WB_API wb_layer *wb_automode(wb_layer *layer);

/** Gradient checkpointing, which has nothing to do with files: with `on`, the values inside the
 * layer are computed again in the backward pass instead of being kept, which needs less memory and
 * more time; wb_estimate_memory returns the memory.  Of a Chain of k equal blocks, each of which
 * is set so, the values of one block and the k outputs are kept.  The results are those without
 * it: the second call has the same random numbers and changes no running statistics.  Returns the
 * layer.  It acts inside wb_withgradient and wb_train.  Copies of the layer (wb_to, wb_fmap) keep
 * the setting; files do not.  Error of a call: the layer gives several tensors. */
WB_API wb_layer *wb_checkpoint_layer(wb_layer *layer, bool on);

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
 * dtype or device, or another thread trains the model.  No other thread may call the model
 * meanwhile. */
WB_API int wb_set(wb_layer *layer, const char *path, wb_tensor *x);
/** Replaces the tensor at `path` by the tensor at the path `same_as`, so that both paths share one
 * parameter.  Returns 0 or an error code.  Errors: no such path, WB_NONE at one of the paths,
 * different shapes, dtypes or devices, or another thread trains the model.  No other thread may
 * call the model meanwhile. */
WB_API int wb_tie(wb_layer *layer, const char *path, const char *same_as);

#ifdef __cplusplus
}
#endif

#include "weber/layers.h"

#endif
