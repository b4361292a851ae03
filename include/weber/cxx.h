/* Weber for C++17: functions and templates with the names that are macros in C.  weber.h includes
 * this header.  Options are structs; a field that is not set has the default of its row.
 * C++20 also accepts {.pad = {1, 0}}.  The argument wb_relu in this example sets .activation:
 *
 *     wb_Conv_options padded;
 *     padded.pad = {1, 0};
 *     wb_layer *m = wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu, padded), wb_Flatten(),
 *                            wb_Dense(4704, 10), wb_softmax);
 *
 * The comments of the functions are in the other chapters.  A loop over batches:
 *
 *     for (wb_batch b; wb_loader_next(loader, &b);) { ... }
 *
 * Exceptions may leave functions of the program that the library calls: losses, layers, .each and
 * .metric, schedules, functions of datasets and all others.  The library catches the exception,
 * closes the scopes that the function has opened, ends what it does as after any failure, and
 * throws the exception again from the call of the program: wb_train, wb_call, wb_loader_next, ...
 * The thread is then in the mode that it had before, and the program can go on.  An exception in a
 * thread of a loader, or of wb_distributed_run, reaches the thread that waits for it.  Functions
 * that only free or close (wb_free, wb_scope_close, wb_loader_stop, ...) throw nothing: an
 * exception that is caught in them comes from the next call.  A C++ program that contains weber.c
 * and whose functions throw compiles weber.c with -fexceptions. */
#ifndef WEBER_CXX_H
#define WEBER_CXX_H

#include "weber/adapt.h"
#include "weber/cxx_observations.h"
#include "weber/cxx_ops.h"
#include "weber/distributed.h"
#include "weber/images.h"
#include "weber/pretrained.h"
#include "weber/text.h"

#ifdef __cpp_exceptions
#include <cstdio>
#include <exception>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif
#endif

/* ---- exceptions ------------------------------------------------------------------------------ */

#ifdef __cpp_exceptions
inline void *wb_thrown_(char *text, size_t bytes, const char *what)
{
    std::snprintf(text, bytes, "%s", what);
    return new std::exception_ptr(std::current_exception());
}
inline void *wb_call_caught_(void (*f)(void *), void *arg, char *text, size_t bytes)
{
    try {
        f(arg);
        return nullptr;
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind &) {          // the thread is being ended
        throw;
#endif
    } catch (const std::exception &e) {
        return wb_thrown_(text, bytes, e.what());
    } catch (...) {
        return wb_thrown_(text, bytes, "no std::exception");
    }
}
inline void wb_drop_thrown_(void *thrown) { delete static_cast<std::exception_ptr *>(thrown); }
inline void wb_throw_again_(void *thrown)
{
    const std::exception_ptr e = *static_cast<std::exception_ptr *>(thrown);
    wb_drop_thrown_(thrown);
    std::rethrow_exception(e);
}
struct wb_catches_ : wb_catcher_ {
    wb_catches_() : wb_catcher_{wb_call_caught_, wb_throw_again_, wb_drop_thrown_, nullptr}
    {
        wb_catch_(this, true);
    }
    ~wb_catches_() { wb_catch_(this, false); }
    wb_catches_(const wb_catches_ &) = delete;
};
static const wb_catches_ wb_catches_here_;
#endif

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
template <class... I> inline wb_tensor *wb_randint(int64_t low, int64_t high, I... dims)
{
    return wb_with_dims_(
        [=](int n, const int64_t *d) { return wb_randint_array(low, high, WB_I32, n, d); },
        dims...);
}
template <class... I>
inline wb_tensor *wb_truncated_normal(double mean, double std, double low, double high, I... dims)
{
    return wb_with_dims_(
        [=](int n, const int64_t *d) {
            return wb_truncated_normal_array(mean, std, low, high, WB_F32, n, d);
        },
        dims...);
}
/* The number of the type T in WB_C_TYPES_; -1 for a type that is not there. */
template <class T> constexpr int wb_c_type_ = -1;
#define WB_C_TYPE_(name, type, dtypes) \
    template <> inline constexpr int wb_c_type_<type> = WB_C_##name##_;
WB_C_TYPES_(WB_C_TYPE_)
#undef WB_C_TYPE_
template <class T> using wb_element_ = std::remove_cv_t<std::remove_all_extents_t<T>>;
template <class T> constexpr bool wb_data_fit_(wb_dtype dtype)
{
    return wb_c_type_<wb_element_<T>> >> dtype & 1;
}
/* If a dtype does not fit, clang refuses the call, as gcc does if it optimises; else it fails. */
#if defined(__clang__)
#define WB_FITS_ __attribute__((diagnose_if(!wb_data_fit_<T>(dtype),                            \
                     "the data have another type than the dtype", "error")))
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgcc-compat"
#else
#define WB_FITS_
#endif
#if defined(__OPTIMIZE__) && !defined(__clang__)
__attribute__((error("the data have another type than the dtype"))) void wb_data_do_not_fit_();
#define WB_MUST_FIT_() \
    if (__builtin_constant_p(dtype) && !wb_data_fit_<T>(dtype)) wb_data_do_not_fit_()
#else
#define WB_MUST_FIT_() (void)0
#endif
/** wb_from and wb_borrow look at the type of the data, as in C. */
template <class T>
inline wb_tensor *wb_from(const T *data, wb_dtype dtype, int ndim, const int64_t *dims) WB_FITS_
{
    WB_MUST_FIT_();
    return wb_from_typed_(data, dtype, ndim, dims, wb_c_type_<wb_element_<T>>);
}
template <class T>
inline wb_tensor *wb_borrow(T *data, wb_dtype dtype, int ndim, const int64_t *dims,
                            void (*release)(void *, void *), void *context) WB_FITS_
{
    WB_MUST_FIT_();
    return wb_borrow_typed_(data, dtype, ndim, dims, release, context, wb_c_type_<wb_element_<T>>);
}
#undef WB_FITS_
#undef WB_MUST_FIT_
#ifdef __clang__
#pragma clang diagnostic pop
#endif
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

template <class... T>
inline wb_tensor *wb_custom_gradient(wb_tensor *y, wb_gradient_function f, void *ctx, T *...x)
{
    wb_tensor *const all[] = {x...};
    return wb_custom_gradient_array(y, f, ctx, int(sizeof...(x)), all);
}

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


/* ---- layers ---------------------------------------------------------------------------------- */

/** wb_call(layer, q, k, v): calls a layer with two inputs or more.  wb_call(layer, x) with one
 * input is the function in nn.h. */
template <class... T>
inline wb_tensor *wb_call(wb_layer *layer, wb_tensor *x, wb_tensor *y, T *...more)
{
    wb_tensor *const all[] = {x, y, more...};
    return wb_call_array(layer, 2 + int(sizeof...(more)), all);
}

#include "weber/cxx_layers.h"

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
template <class... L> inline wb_layer *wb_PairwiseFusion(wb_connection connection, L... layers)
{
    wb_layer *const all[] = {wb_as_layer_(layers)...};
    return wb_PairwiseFusion_array(connection, int(sizeof...(layers)), all);
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
inline wb_tensor *wb_quantile_loss(wb_tensor *yhat, wb_tensor *y, wb_quantile_loss_options o = {})
{
    return wb_quantile_loss_with(yhat, y, &o);
}
inline wb_tensor *wb_quantile_loss(wb_tensor *yhat, wb_tensor *y, double quantile,
                                   wb_quantile_loss_options o)
{
    o.quantile = quantile;
    return wb_quantile_loss_with(yhat, y, &o);
}
inline wb_tensor *wb_confusion(wb_tensor *yhat, wb_tensor *y, wb_metric_options o)
{
    return wb_confusion_with(yhat, y, &o);
}
inline wb_tensor *wb_f1(wb_tensor *yhat, wb_tensor *y, wb_metric_options o)
{
    return wb_f1_with(yhat, y, &o);
}
inline wb_tensor *wb_iou(wb_tensor *yhat, wb_tensor *y, wb_metric_options o)
{
    return wb_iou_with(yhat, y, &o);
}
inline wb_tensor *wb_roc_auc(wb_tensor *yhat, wb_tensor *y, wb_roc_auc_options o)
{
    return wb_roc_auc_with(yhat, y, &o);
}
inline wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, wb_huber_options o = {})
{
    return wb_huber_with(yhat, y, &o);
}
inline wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, double delta, wb_huber_options o)
{
    o.delta = delta;
    return wb_huber_with(yhat, y, &o);
}
inline wb_tensor *wb_ctc_loss(wb_tensor *yhat, wb_tensor *y, wb_ctc_loss_options o)
{
    return wb_ctc_loss_with(yhat, y, &o);
}
inline wb_tensor *wb_label_smoothing(wb_tensor *y, double alpha,
                                     wb_label_smoothing_options o = {})
{
    return wb_label_smoothing_with(y, alpha, &o);
}

template <class T> inline T *wb_clone(T *x) { return static_cast<T *>(wb_object_clone(x)); }
template <class T> inline T *wb_remove_weight_norms(T *model)
{
    return static_cast<T *>(wb_object_remove_weight_norms(model));
}
template <class T> inline T *wb_quantize(T *model, wb_quantize_options o = {})
{
    return static_cast<T *>(wb_object_quantize(model, &o));
}
template <class T>
inline T *wb_add_lora(T *model, const char *layers = nullptr, wb_add_lora_options o = {})
{
    if (layers) o.layers = layers;
    return static_cast<T *>(wb_object_add_lora(model, &o));
}
template <class T> inline T *wb_merge_lora(T *model)
{
    return static_cast<T *>(wb_object_merge_lora(model));
}
template <class T> inline T *wb_load_lora(const char *path, T *model)
{
    return static_cast<T *>(wb_object_load_lora(path, model));
}
inline wb_layer *wb_LoRA(wb_layer *layer, wb_LoRA_options o = {})
{
    return wb_LoRA_with(layer, &o);
}
template <class T> inline T *wb_restructure(T *model, wb_tensor *flat)
{
    return static_cast<T *>(wb_object_restructure(model, flat));
}
template <class... T> inline void wb_summary(wb_layer *layer, T *...inputs)
{
    wb_tensor *const all[] = {inputs...};
    wb_summary_array(layer, int(sizeof...(inputs)), all);
}
inline wb_layer *wb_fmap(wb_leaf_function f, wb_layer *x, void *ctx)
{
    return wb_fmap_layer(f, x, ctx);
}
inline wb_tree *wb_fmap(wb_leaf_function f, wb_tree *x, void *ctx)
{
    return wb_fmap_tree(f, x, ctx);
}

/* ---- data ------------------------------------------------------------------------------------ */

inline wb_dataset *wb_load_csv(const char *path, wb_load_csv_options o = {})
{
    return wb_load_csv_with(path, &o);
}
inline wb_tensor *wb_load_image(const char *path, wb_load_image_options o = {})
{
    return wb_load_image_with(path, &o);
}
inline wb_dataset *wb_load_images(const char *folder, wb_load_images_options o = {})
{
    return wb_load_images_with(folder, &o);
}
inline wb_tensor *wb_encode(const wb_tokenizer *t, const char *text, wb_encode_options o = {})
{
    return wb_encode_with(t, text, &o);
}
inline wb_encoded wb_encode_batch(const wb_tokenizer *t, int64_t n, const char *const *texts,
                                  wb_encode_batch_options o = {})
{
    return wb_encode_batch_with(t, n, texts, &o);
}
inline char *wb_decode(const wb_tokenizer *t, wb_tensor *ids, wb_decode_options o = {})
{
    return wb_decode_with(t, ids, &o);
}
inline wb_decoder *wb_decoder_begin(const wb_tokenizer *t, wb_decode_options o = {})
{
    return wb_decoder_begin_with(t, &o);
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

/* ---- files ----------------------------------------------------------------------------------- */

inline int wb_save(const char *path, void *model, wb_save_options o = {})
{
    return wb_save_with(path, model, &o);
}
inline wb_layer *wb_load(const char *path, wb_load_options o = {})
{
    return wb_load_with(path, &o);
}
inline wb_layer *wb_load_pretrained(const char *folder, wb_load_pretrained_options o = {})
{
    return wb_load_pretrained_with(folder, &o);
}
inline int wb_load_state(const char *path, void *model, wb_load_state_options o = {})
{
    return wb_load_state_with(path, model, &o);
}
inline int wb_keep_checkpoint(const char *folder, const wb_checkpoint *c,
                              wb_keep_checkpoint_options o = {})
{
    return wb_keep_checkpoint_with(folder, c, &o);
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
 * model = wb_to(model, device);  x = wb_gpu(x, WB_DTYPE_KEEP);  batch = wb_cpu(batch). */
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

inline int wb_distributed_initialize(const wb_distributed_backend *backend,
                                     wb_distributed_initialize_options o = {})
{
    return wb_distributed_initialize_with(backend, &o);
}
inline int wb_distributed_synchronize(void *object, wb_distributed_synchronize_options o = {})
{
    return wb_distributed_synchronize_with(object, &o);
}
inline wb_rule *wb_DistributedOptimizer(wb_rule *rule, wb_DistributedOptimizer_options o = {})
{
    return wb_DistributedOptimizer_with(rule, &o);
}

#include "weber/cxx_train.h"

#endif
