/* Weber for C++17: functions and templates with the names that are macros in C.  weber.h includes
 * this header.  Options are structs; a field that is not set has the default that WB_IS names.
 * C++20 also accepts {.pad = {1, 0}}.  The argument wb_relu in this example sets .activation:
 *
 *     wb_Conv_options padded;
 *     padded.pad = {1, 0};
 *     wb_layer *m = wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu, padded), wb_Flatten(),
 *                            wb_Dense(4704, 10), wb_softmax);
 *
 * The comments of the functions are in the other chapters.  A loop over batches:
 *
 *     for (wb_batch b; wb_loader_next(loader, &b);) { ... } */
#ifndef WEBER_CXX_H
#define WEBER_CXX_H

#include "weber/distributed.h"
#include "weber/files.h"

#include <type_traits>

/* Calls f(n, array) with the n arguments in an array of int64_t. */
template <class F, class... I> inline auto wb_with_dims_(F f, I... dims)
{
    static_assert((std::is_integral<I>::value && ...), "dimensions and indices are integers");
    const int64_t d[] = {int64_t(dims)..., 0};
    return f(int(sizeof...(dims)), d);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/** wb_zeros(2, 5) has shape [2,5] and dtype f32; so have wb_ones, wb_full, wb_rand and wb_randn. */
template <class... I> inline wb_tensor *wb_zeros(I... dims)
{
    return wb_with_dims_([](int n, const int64_t *d) { return wb_full_array(0, WB_F32, n, d); },
                         dims...);
}
template <class... I> inline wb_tensor *wb_ones(I... dims)
{
    return wb_with_dims_([](int n, const int64_t *d) { return wb_full_array(1, WB_F32, n, d); },
                         dims...);
}
template <class... I> inline wb_tensor *wb_full(double value, I... dims)
{
    return wb_with_dims_(
        [=](int n, const int64_t *d) { return wb_full_array(value, WB_F32, n, d); }, dims...);
}
template <class... I> inline wb_tensor *wb_rand(I... dims)
{
    return wb_with_dims_([](int n, const int64_t *d) { return wb_rand_array(WB_F32, n, d); },
                         dims...);
}
template <class... I> inline wb_tensor *wb_randn(I... dims)
{
    return wb_with_dims_([](int n, const int64_t *d) { return wb_randn_array(WB_F32, n, d); },
                         dims...);
}
template <class... I> inline double wb_at(wb_tensor *x, I... index)
{
    return wb_with_dims_([=](int n, const int64_t *i) { return wb_at_array(x, n, i); }, index...);
}
template <class... T> inline int wb_eval(T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_eval_array(int(sizeof...(tensors)), all);
}

inline wb_tensor *wb_gradient(wb_tensor *loss, wb_tensor *wrt)
{
    return wb_gradient_tensor(loss, wrt);
}
inline wb_tree *wb_gradient(wb_tensor *loss, wb_layer *wrt)
{
    return wb_gradient_layer(loss, wrt);
}
inline wb_tree *wb_gradient(wb_tensor *loss, wb_tree *wrt) { return wb_gradient_tree(loss, wrt); }

inline void *wb_branch_(wb_tensor *x) { return x; }
inline void *wb_branch_(wb_layer *x) { return x; }
inline void *wb_branch_(wb_tree *x) { return x; }
template <class... T> inline wb_tree *wb_tuple(T *...objects)
{
    void *const all[] = {wb_branch_(objects)...};
    return wb_tuple_array(int(sizeof...(objects)), all);
}

/** wb_keep, wb_free and wb_show take an object of the library of any kind.  The compiler accepts
 * pointers of other types too; such a call is undefined. */
template <class T> inline T *wb_keep(T *object) { return static_cast<T *>(wb_object_keep(object)); }
template <class T> inline void wb_free(T *object) { wb_object_free(object); }
template <class T> inline void wb_show(T *object) { wb_object_show(object); }

/* ---- operations ------------------------------------------------------------------------------ */

/** Sets an option that is a list, if the length is known only at run time.  A list of known length
 * is assigned: o.axes = {0, -1}. */
inline void wb_ints_set(wb_ints &list, int n, const int64_t *values)
{
    wb_ints_set(list.list, n, values);
}

/* Overloads for operands that are numbers: wb_mul(x, 0.5), wb_sub(1, x).  They are templates, so
 * that 0 is a number and not a null pointer. */
template <class N, class R> using wb_if_number_ =
    typename std::enable_if<std::is_arithmetic<N>::value, R>::type;
template <class N, class R> using wb_if_integer_ =
    typename std::enable_if<std::is_integral<N>::value, R>::type;
template <class N> inline wb_if_number_<N, wb_tensor *> wb_number_(N x)
{
    if constexpr (std::is_floating_point<N>::value) return wb_scalar(double(x));
    else if constexpr (std::is_signed<N>::value) return wb_scalar_int(int64_t(x));
    else return wb_scalar_int(x > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(x));
}
#define WB_NUMBERS_(name)                                                                       \
    template <class N> inline wb_if_number_<N, wb_tensor *> name(wb_tensor *x, N y)             \
    {                                                                                           \
        return name(x, wb_number_(y));                                                          \
    }                                                                                           \
    template <class N> inline wb_if_number_<N, wb_tensor *> name(N x, wb_tensor *y)             \
    {                                                                                           \
        return name(wb_number_(x), y);                                                          \
    }
WB_NUMBERS_(wb_add)
WB_NUMBERS_(wb_sub)
WB_NUMBERS_(wb_mul)
WB_NUMBERS_(wb_div)
WB_NUMBERS_(wb_pow)
WB_NUMBERS_(wb_maximum)
WB_NUMBERS_(wb_minimum)
WB_NUMBERS_(wb_eq)
WB_NUMBERS_(wb_ne)
WB_NUMBERS_(wb_lt)
WB_NUMBERS_(wb_le)
WB_NUMBERS_(wb_gt)
WB_NUMBERS_(wb_ge)
#undef WB_NUMBERS_
template <class N> inline wb_if_number_<N, wb_tensor *> wb_where(wb_tensor *c, wb_tensor *x, N y)
{
    return wb_where(c, x, wb_number_(y));
}
template <class N> inline wb_if_number_<N, wb_tensor *> wb_where(wb_tensor *c, N x, wb_tensor *y)
{
    return wb_where(c, wb_number_(x), y);
}
template <class N, class M>
inline wb_if_number_<N, wb_if_number_<M, wb_tensor *>> wb_where(wb_tensor *c, N x, M y)
{
    return wb_where(c, wb_number_(x), wb_number_(y));
}

/* A list of axes, made of an argument such as {0, -1}.  An argument {.axes = {0, -1}} makes
 * wb_reduce_options instead. */
struct wb_axes_ {
    wb_ints list;
    template <class I, class... J, class = wb_if_integer_<I, void>>
    wb_axes_(I first, J... more) : list{int64_t(first), int64_t(more)...}
    {
    }
};
/* The forms of a reduction: wb_sum(x), wb_sum(x, 1), wb_sum(x, {0, -1}), wb_sum(x, options). */
#define WB_REDUCTION_(name)                                                 \
    inline wb_tensor *name(wb_tensor *x, wb_reduce_options o)               \
    {                                                                       \
        return name##_with(x, &o);                                \
    }                                                                       \
    inline wb_tensor *name(wb_tensor *x)                                    \
    {                                                                       \
        return name##_with(x, nullptr);                                     \
    }                                                                       \
    inline wb_tensor *name(wb_tensor *x, wb_axes_ axes)                     \
    {                                                                       \
        wb_reduce_options o;                                                \
        o.axes = axes.list;                                                 \
        return name##_with(x, &o);                                          \
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
    return wb_cumsum_with(x, axis, &o);
}

template <class... I> inline wb_tensor *wb_reshape(wb_tensor *x, I... dims)
{
    return wb_with_dims_([=](int n, const int64_t *d) { return wb_reshape_array(x, n, d); },
                         dims...);
}
template <class... I> inline wb_tensor *wb_permute(wb_tensor *x, I... order)
{
    return wb_with_dims_([=](int n, const int64_t *o) { return wb_permute_array(x, n, o); },
                         order...);
}
template <class... I> inline wb_tensor *wb_expand(wb_tensor *x, I... dims)
{
    return wb_with_dims_([=](int n, const int64_t *d) { return wb_expand_array(x, n, d); },
                         dims...);
}
template <class... T> inline wb_tensor *wb_concat(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_concat_array(int(sizeof...(tensors)), all, axis);
}
template <class... T> inline wb_tensor *wb_stack(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_stack_array(int(sizeof...(tensors)), all, axis);
}

inline wb_tensor *wb_pad(wb_tensor *x, int axis, int64_t before, int64_t after, wb_pad_options o)
{
    return wb_pad_with(x, axis, before, after, &o);
}

inline wb_tensor *wb_conv(wb_tensor *x, wb_tensor *w, wb_tensor *b, wb_conv_options o = {})
{
    return wb_conv_with(x, w, b, &o);
}
inline wb_tensor *wb_conv_transpose(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                    wb_conv_options o = {})
{
    return wb_conv_transpose_with(x, w, b, &o);
}
inline wb_tensor *wb_maxpool(wb_tensor *x, wb_pool_options o)
{
    return wb_maxpool_with(x, &o);
}
inline wb_tensor *wb_meanpool(wb_tensor *x, wb_pool_options o)
{
    return wb_meanpool_with(x, &o);
}

inline wb_tensor *wb_unfold(wb_tensor *x, wb_unfold_options o) { return wb_unfold_with(x, &o); }
inline wb_tensor *wb_fold(wb_tensor *x, wb_unfold_options o) { return wb_fold_with(x, &o); }
inline wb_tensor *wb_lpnormpool(wb_tensor *x, double p, wb_pool_options o)
{
    return wb_lpnormpool_with(x, p, &o);
}
inline wb_tensor *wb_upsample(wb_tensor *x, wb_upsample_options o)
{
    return wb_upsample_with(x, &o);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/** wb_call(layer, q, k, v): calls a layer with two inputs or more.  wb_call(layer, x) with one
 * input is the function in nn.h. */
template <class... T>
inline wb_tensor *wb_call(wb_layer *layer, wb_tensor *x, wb_tensor *y, T *...more)
{
    wb_tensor *const all[] = {x, y, more...};
    return wb_call_array(layer, 2 + int(sizeof...(more)), all);
}

#include "weber/layers_cxx.h"

/* wb_Chain and wb_Parallel take layers and functions of one tensor, as in C. */
inline wb_layer *wb_as_layer_(wb_layer *layer) { return layer; }
inline wb_layer *wb_as_layer_(wb_function f) { return wb_layer_from_function(f); }
/** wb_Chain of layers and functions.  C++ does not fix the order in which arguments are evaluated.
 * So the initial values of layers that are created in the arguments depend on the compiler. */
template <class... L> inline wb_layer *wb_Chain(L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_Chain_array(int(sizeof...(layers)), all);
}
template <class... L> inline wb_layer *wb_Parallel(wb_connection connection, L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_Parallel_array(connection, int(sizeof...(layers)), all);
}
template <class... L> inline wb_layer *wb_Maxout(L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_Maxout_array(int(sizeof...(layers)), all);
}
inline wb_layer *wb_SkipConnection(wb_function f, wb_connection connection)
{
    return wb_SkipConnection(wb_as_layer_(f), connection);
}
inline wb_layer *wb_named(const char *name, wb_function f)
{
    return wb_named(name, wb_as_layer_(f));
}

#define WB_LOSS_(name)                                                                  \
    inline wb_tensor *name(wb_tensor *yhat, wb_tensor *y, wb_loss_options o)            \
    {                                                                                   \
        return name##_with(yhat, y, &o);                                                \
    }
WB_LOSS_(wb_mse)
WB_LOSS_(wb_mae)
WB_LOSS_(wb_msle)
WB_LOSS_(wb_binarycrossentropy)
WB_LOSS_(wb_logitbinarycrossentropy)
WB_LOSS_(wb_poisson_loss)
WB_LOSS_(wb_hinge_loss)
WB_LOSS_(wb_squared_hinge_loss)
WB_LOSS_(wb_binary_focal_loss)
WB_LOSS_(wb_siamese_contrastive_loss)
WB_LOSS_(wb_dice_coeff_loss)
WB_LOSS_(wb_tversky_loss)
WB_LOSS_(wb_crossentropy)
WB_LOSS_(wb_logitcrossentropy)
WB_LOSS_(wb_kldivergence)
WB_LOSS_(wb_focal_loss)
#undef WB_LOSS_
inline wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, wb_huber_options o = {})
{
    return wb_huber_with(yhat, y, &o);
}
inline wb_tensor *wb_label_smoothing(wb_tensor *y, double alpha,
                                     wb_label_smoothing_options o = {})
{
    return wb_label_smoothing_with(y, alpha, &o);
}

inline wb_layer *wb_fmap(wb_leaf_function f, wb_layer *x, void *ctx)
{
    return wb_fmap_layer(f, x, ctx);
}
inline wb_tree *wb_fmap(wb_leaf_function f, wb_tree *x, void *ctx)
{
    return wb_fmap_tree(f, x, ctx);
}

#define wb_struct(T, p) wb_struct_typed(&T##_wb_type, static_cast<const T *>(p))
#define wb_struct_get(T, tree, p) wb_struct_get_typed(&T##_wb_type, (tree), static_cast<T *>(p))

/* ---- data ------------------------------------------------------------------------------------ */

inline wb_dataset *wb_load_csv(const char *path, wb_load_csv_options o = {})
{
    return wb_load_csv_with(path, &o);
}
inline wb_loader *wb_dataloader(wb_dataset *d, wb_dataloader_options o = {})
{
    return wb_dataloader_with(d, &o);
}
template <class I> inline wb_if_integer_<I, wb_loader *>
wb_dataloader(wb_dataset *d, I batchsize, wb_dataloader_options o = {})
{
    o.batchsize = int64_t(batchsize);
    return wb_dataloader_with(d, &o);
}
template <class I> inline wb_if_integer_<I, wb_loader *>
wb_dataloader(wb_dataset *d, I batchsize, bool shuffle, wb_dataloader_options o = {})
{
    o.shuffle = shuffle;
    return wb_dataloader(d, batchsize, o);
}

/* ---- training -------------------------------------------------------------------------------- */

#define WB_RULE_(name, number)                                                                  \
    inline wb_rule *name(wb_Rule_options o = {}) { return name##_with(&o); }                    \
    template <class N>                                                                          \
    inline wb_if_number_<N, wb_rule *> name(N number, wb_Rule_options o = {})                   \
    {                                                                                           \
        o.number = double(number);                                                              \
        return name##_with(&o);                                                                 \
    }
WB_RULE_(wb_Descent, eta)
WB_RULE_(wb_Momentum, eta)
WB_RULE_(wb_Adam, eta)
WB_RULE_(wb_AdamW, eta)
WB_RULE_(wb_Nesterov, eta)
WB_RULE_(wb_RMSProp, eta)
WB_RULE_(wb_Rprop, eta)
WB_RULE_(wb_Lion, eta)
WB_RULE_(wb_OAdam, eta)
WB_RULE_(wb_AdaBelief, eta)
WB_RULE_(wb_RAdam, eta)
WB_RULE_(wb_AdaMax, eta)
WB_RULE_(wb_NAdam, eta)
WB_RULE_(wb_AMSGrad, eta)
WB_RULE_(wb_AdaGrad, eta)
WB_RULE_(wb_AdaDelta, rho)
WB_RULE_(wb_SignDecay, lambda)
WB_RULE_(wb_WeightDecay, lambda)
WB_RULE_(wb_ClipGrad, delta)
WB_RULE_(wb_ClipNorm, omega)
#undef WB_RULE_

template <class... R> inline wb_rule *wb_OptimiserChain(R *...rules)
{
    wb_rule *const all[] = {rules...};
    return wb_OptimiserChain_array(int(sizeof...(rules)), all);
}
inline wb_opt_state *wb_setup(wb_rule *rule, void *model, wb_setup_options o = {})
{
    return wb_setup_with(rule, model, &o);
}
inline int wb_adjust(wb_opt_state *state, wb_Rule_options o) { return wb_adjust_with(state, &o); }
template <class N>
inline wb_if_number_<N, int> wb_adjust(wb_opt_state *state, N eta, wb_Rule_options o = {})
{
    o.eta = double(eta);
    return wb_adjust_with(state, &o);
}
inline wb_tensor *wb_withgradient(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads)
{
    return wb_withgradient(loss, model, batch, grads, nullptr);
}
inline int wb_train(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state,
                    wb_train_options o = {})
{
    return wb_train_with(loss, model, data, state, &o);
}
template <class I> inline wb_if_integer_<I, int>
wb_train(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state, I epochs,
         wb_train_options o = {})
{
    o.epochs = int(epochs);
    return wb_train_with(loss, model, data, state, &o);
}

/* ---- files ----------------------------------------------------------------------------------- */

inline int wb_save(const char *path, void *model, wb_save_options o = {})
{
    return wb_save_with(path, model, &o);
}
inline wb_layer *wb_load(const char *path, wb_load_options o = {})
{
    return wb_load_with(path, &o);
}
inline int wb_load_state(const char *path, void *model, wb_load_state_options o = {})
{
    return wb_load_state_with(path, model, &o);
}
inline int wb_checkpoint_keep(const char *folder, const wb_checkpoint *c,
                              wb_checkpoint_keep_options o = {})
{
    return wb_checkpoint_keep_with(folder, c, &o);
}

/* ---- devices --------------------------------------------------------------------------------- */

inline bool wb_functional(const char *backend) { return wb_functional(backend, nullptr); }
inline const wb_device *wb_get_device(bool verbose = false)
{
    wb_get_device_options o = {};
    o.verbose = verbose;
    return wb_get_device_with(&o);
}
inline const wb_device *wb_gpu_device(bool force = false)
{
    wb_gpu_device_options o = {};
    o.force = force;
    return wb_gpu_device_with(&o);
}

inline wb_to_options wb_to_dtype_(wb_dtype dtype)
{
    wb_to_options o = {};
    o.dtype = dtype;
    return o;
}
/** wb_to, wb_gpu and wb_cpu return the type of their argument, and take the option .dtype last:
 * model = wb_to(model, device);  x = wb_gpu(x, WB_KEEP);  batch = wb_cpu(batch). */
template <class T>
inline T *wb_to(T *x, const wb_device *d, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    const wb_to_options o = wb_to_dtype_(dtype);
    return static_cast<T *>(wb_object_to(x, d, &o));
}
template <class T> inline T *wb_gpu(T *x, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    const wb_to_options o = wb_to_dtype_(dtype);
    return static_cast<T *>(wb_object_gpu(x, &o));
}
template <class T> inline T *wb_cpu(T *x) { return static_cast<T *>(wb_object_cpu(x)); }
inline wb_batch wb_to(wb_batch b, const wb_device *d, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    const wb_to_options o = wb_to_dtype_(dtype);
    return wb_batch_to(b, d, &o);
}
inline wb_batch wb_gpu(wb_batch b, wb_dtype dtype = WB_DTYPE_DEFAULT)
{
    const wb_to_options o = wb_to_dtype_(dtype);
    return wb_batch_gpu(b, &o);
}
inline wb_batch wb_cpu(wb_batch b) { return wb_batch_cpu(b); }
template <class T> inline const wb_device *wb_device_of(T *x) { return wb_object_device(x); }

/* ---- distributed training -------------------------------------------------------------------- */

inline int wb_distributed_initialise(const wb_distributed_backend *backend,
                                     wb_distributed_options o = {})
{
    return wb_distributed_initialise_with(backend, &o);
}
inline int wb_distributed_synchronise(void *object, wb_distributed_synchronise_options o = {})
{
    return wb_distributed_synchronise_with(object, &o);
}
inline wb_rule *wb_DistributedOptimiser(wb_rule *rule, wb_DistributedOptimiser_options o = {})
{
    return wb_DistributedOptimiser_with(rule, &o);
}

#endif
