/* Weber, chapter 8: devices: finding and choosing them, moving objects between them.
 *
 * A backend (CUDA, AMDGPU, Metal, OpenCL, CPU) is a family of devices.  The CPU is always there.  A
 * program starts another backend with wb_using; the backend opens its vendor's libraries at run
 * time.  A program that uses wb_gpu or wb_get_device runs unchanged on a machine without a GPU:
 *
 *     wb_using("CUDA");
 *     const wb_device *device = wb_get_device(.verbose = true);
 *     model = wb_to(model, device);
 *
 * There is no current device: an operation runs on the device of its operands. */
#ifndef WEBER_DEVICE_H
#define WEBER_DEVICE_H

#include "weber/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- backends -------------------------------------------------------------------------------- */

/** The names of all backends that the library knows, built in or not, in order of preference, ended
 * by NULL: "CUDA", "AMDGPU", "Metal", "OpenCL", "CPU".  Owned by the library. */
WB_API const char *const *wb_supported_devices(void);
/** The names of wb_supported_devices without "CPU", ended by NULL. */
WB_API const char *const *wb_supported_gpu_backends(void);

/** Starts a backend, for the life of the process.  The backend's driver is opened when the program
 * first asks for the backend's devices.  The environment variable WEBER_BACKENDS=OpenCL,CUDA does
 * the same.  Returns 0 or an error code.  Errors: no such backend; the library was built without
 * it.  A started backend may have no device: see wb_functional. */
WB_API int wb_using(const char *backend);
/** Whether a backend was started; the CPU always is.  false with the error set: no such backend. */
WB_API bool wb_loaded(const char *backend);

/** Whether a backend was started, has a device, and has the libraries that it needs.  `part` names
 * a further library that it must have: wb_functional("CUDA", "cuDNN"); NULL: none.  In C and C++
 * `part` may be left out.  false with the error set: no such backend or part. */
WB_API bool wb_functional(const char *backend, const char *part);
#ifndef __cplusplus
#define wb_functional(...) \
    WB_PASTE_(WB_FUNCTIONAL_, WB_ONE_OR_MORE_(__VA_ARGS__))(__VA_ARGS__)
#define WB_FUNCTIONAL_1(backend) wb_functional((backend), NULL)
#define WB_FUNCTIONAL_2(...) wb_functional(__VA_ARGS__)
#endif

/** Why a backend is not functional, and how to install what is missing; "" if it is functional.
 * The text belongs to the library, and is valid until this thread's next call of this function. */
WB_API const char *wb_why_not(const char *backend);

/* ---- devices --------------------------------------------------------------------------------- */

/** A list of n devices; the library owns the array, which is valid until wb_shutdown. */
typedef struct { int n; const wb_device *const *device; } wb_device_list;
/** The devices of a backend.  The list is empty if the backend was not started or is not
 * functional, or, with the error set, if there is no such backend. */
WB_API wb_device_list wb_devices(const char *backend);
/** Prints the devices of a backend to standard output: "CUDA: 2 devices:", "0.  NVIDIA H200", ...;
 * or "CUDA: 0 devices". */
WB_API void wb_show_devices(const char *backend);

/** Options of wb_get_device. */
#define wb_get_device_options_(OPT, ARG)                                                           \
    ARG(bool, verbose, false)               /* logs the choice and its reason */
WB_OPTIONS(wb_get_device_options);
/** The device to use: the first device of the backend that wb_gpu_backend names, if that backend
 * was started and is functional.  Otherwise it is the first device of the first backend in
 * wb_supported_devices that was started and is functional.  It never fails, because the last of
 * these backends is the CPU. */
WB_API const wb_device *wb_get_device_with(const wb_get_device_options *o);

/** A device by its index in a backend, from 0.  NULL, with the error set: no such backend; the
 * backend was not started or is not functional; the backend has no device of this index. */
WB_API const wb_device *wb_device_at(const char *backend, int ordinal);

/** Options of wb_gpu_device. */
#define wb_gpu_device_options_(OPT, ARG)                                                           \
    ARG(bool, force, false)                 /* without a GPU: NULL and an error, not the CPU */
WB_OPTIONS(wb_gpu_device_options);
/** The GPU that wb_get_device would choose.  The choice is remembered until wb_reset_gpu_device or
 * wb_shutdown.  If there is no GPU, or the preference is the CPU, the result is the CPU.  With
 * .force it is then NULL, and the error names the reason for each backend. */
WB_API const wb_device *wb_gpu_device_with(const wb_gpu_device_options *o);
/** The CPU. */
WB_API const wb_device *wb_cpu_device(void);
/** Forgets the device that wb_gpu_device chose. */
WB_API void wb_reset_gpu_device(void);
#ifndef __cplusplus
#define wb_get_device(...) \
    WB_CALL_WITH_(wb_get_device_with(WB_GET_(wb_get_device_options, __VA_ARGS__)))
#define wb_gpu_device(...) \
    WB_CALL_WITH_(wb_gpu_device_with(WB_GET_(wb_gpu_device_options, __VA_ARGS__)))
#endif

/** The index of a device in its backend, from 0; -1 for NULL. */
WB_API int wb_device_ordinal(const wb_device *d);
/** The vendor's name of a device, such as "NVIDIA H200"; "CPU" for the CPU, "" for NULL.  Owned by
 * the library. */
WB_API const char *wb_device_name(const wb_device *d);
/** The backend of a device, such as "CUDA"; "" for NULL.  Owned by the library. */
WB_API const char *wb_device_backend(const wb_device *d);
/** A text for messages: "CUDADevice(0): NVIDIA H200", "CPUDevice()"; "" for NULL.  It belongs to
 * the library, and is valid until this thread has called this function 8 more times. */
WB_API const char *wb_device_describe(const wb_device *d);
/** Whether a device is not the CPU; false for NULL. */
WB_API bool wb_device_is_gpu(const wb_device *d);

/** Memory of a device, in bytes.  -1: the device does not report it. */
typedef struct {
    int64_t total;                  /* size of the memory */
    int64_t free;                   /* available to any process */
    int64_t used;                   /* by tensors and plans of this process */
    int64_t peak;                   /* the highest value of `used` so far */
    int64_t cached;                 /* freed, and kept for reuse (wb_device_trim) */
    int64_t reserved_[11];          /* 0: for numbers of later versions */
} wb_device_memory;
/** Fills in *m with the memory of a device now; for the CPU, with the memory of the host.  Returns
 * 0 or an error code, and then all fields are -1. */
WB_API int wb_device_memory_of(const wb_device *d, wb_device_memory *m);
/** Gives cached memory of a device back to its driver (on the CPU, to the allocator). */
WB_API void wb_device_trim(const wb_device *d);

/** Waits until the device has finished all work that evaluations gave it.  Returns 0, or the error
 * of work that failed, or WB_ERROR_NUMBER if the last update of this thread was not made because
 * its loss was not finite (wb_setup). */
WB_API int wb_synchronize(const wb_device *d);

/** Sets the device on which this thread creates tensors (wb_from, wb_rand, layers, wb_load).
 * Before the first call, and after a call with NULL, it is the CPU.  wb_borrow, wb_load_npy,
 * wb_load_idx, wb_load_idx_tensor and wb_load_csv always use the CPU. */
WB_API void wb_set_default_device(const wb_device *d);
/** The device on which this thread creates tensors. */
WB_API const wb_device *wb_default_device(void);

/* ---- precision and determinism --------------------------------------------------------------- */

/** Sets how products, convolutions and attention of f32 may be computed, with PyTorch's names:
 *   "highest"  f32 throughout
 *   "high"     on CUDA operands may be rounded to TF32 (10 mantissa bits), with sums in f32
 *   "medium"   on CUDA operands may be rounded to bf16 (7 mantissa bits) where that is faster, and
 *              those of matrix products on processors with AVX512-BF16; sums are in f32
 * For products of f32 numbers drawn from a normal distribution, the error relative to the result
 * (root mean squares, k = 64 to 16384) is at most 6e-7 on the CPU, and 2.4e-3 if operands are
 * rounded.  The setting applies to the whole process, to evaluations and recordings after the call.
 * Before the first call it is the environment variable WEBER_MATMUL_PRECISION, else "highest".
 * Other dtypes are not affected: f16 and bf16 are summed in f32, f64 in f64.
 *
 * With each setting the CPU may compute f32 convolutions by Winograd's algorithm, unless the
 * environment variable WEBER_WINOGRAD is 0 (docs/site/guide/performance.md).
 *
 * Returns 0 or an error code.  Error: any other text. */
WB_API int wb_set_matmul_precision(const char *precision);
/** The precision of wb_set_matmul_precision: "highest", "high" or "medium". */
WB_API const char *wb_matmul_precision(void);

/** Sets whether every run on this machine gives the same bits, at some cost in speed: on CUDA
 * and AMDGPU no algorithm and no tile of a product is chosen by timing; on CUDA no algorithm
 * with atomics is used; on AMDGPU MIOpen uses only its deterministic algorithms; on Metal our
 * own kernels replace Apple's libraries.  The CPU, for a given number of threads, and OpenCL
 * always give the same bits.  The setting applies to the whole process, to evaluations and
 * recordings after the call.  Before the first call it is true if the environment variable
 * WEBER_DETERMINISTIC is set and not 0. */
WB_API void wb_set_deterministic(bool on);
/** The setting of wb_set_deterministic. */
WB_API bool wb_deterministic(void);

/* ---- the preference -------------------------------------------------------------------------- */

/** The preferred backend, which LocalPreferences.toml names: [Flux] gpu_backend = "CUDA", else the
 * same key of [MLDataDevices] or [LuxDeviceUtils].  The file is read once.  NULL: there is no such
 * key, or it names no backend.  The library owns the text.
 *
 * The file is searched for from the working directory upwards; the first folder with a
 * JuliaLocalPreferences.toml (which is preferred), LocalPreferences.toml or Project.toml ends the
 * search.  A file that cannot be read, or is not TOML, is reported once and ignored. */
WB_API const char *wb_gpu_backend(void);
/** Writes `backend` to the file of wb_gpu_backend, as gpu_backend of [Flux], for the next start of
 * the program; the rest of the file stays.  NULL removes the key.  Nothing is written if `backend`
 * is the preference already.  If there is no file, the call creates LocalPreferences.toml beside
 * Project.toml, else in the working directory.  Returns 0 or an error code.  Errors: no such
 * backend; the file cannot be read or written, or is not TOML. */
WB_API int wb_set_gpu_backend(const char *backend);

/* ---- moving ---------------------------------------------------------------------------------- */

/** Options of wb_to and wb_gpu. */
#define wb_to_options_(OPT, ARG)                                                                   \
    /* dtype of floating tensors; WB_DTYPE_KEEP: no change; default: f64 becomes f32 on a GPU */   \
    ARG(wb_dtype, dtype, WB_DTYPE_DEFAULT)
WB_OPTIONS(wb_to_options);
/** A copy of x on a device: wb_to(x, device); x itself if it is on that device already and .dtype
 * changes nothing, or if it is WB_NONE.  x is evaluated and copied in the call.  x is a tensor,
 * layer, tree, optimiser state, dataset, loader or batch.
 *   - a layer or tree is rebuilt with moved tensors; tied tensors stay tied; functions, numbers and
 *     trees of wb_opaque are shared
 *   - a dataset is moved as a whole; all observations of a wb_dataset_from are computed first
 *   - a loader keeps its options and uploads each batch ahead of its use
 *
 * On the way to a GPU f64 becomes f32, and stays f32 on the way back; other dtypes do not change.
 * .dtype = WB_DTYPE_KEEP keeps f64; .dtype = WB_F16, or another floating dtype, converts all
 * floating tensors to it.
 *
 * Gradients pass through the move of a tensor.  The copy of a variable is not a variable, except in
 * a layer or tree; wb_variable makes it one: W = wb_variable(wb_to(W, device)).  Errors: `d` is
 * NULL; out of memory; WB_DTYPE_KEEP and a device without f64; .dtype is not floating; another kind
 * of object; the call is in a function that wb_compile records. */
WB_API void *wb_object_to(void *x, const wb_device *d, const wb_to_options *o);
/** wb_to(x, wb_gpu_device()), which the macro wb_gpu(x) calls.  Without a GPU the result is x
 * itself, without an error, and a message is logged once. */
WB_API void *wb_object_gpu(void *x, const wb_to_options *o);
/** wb_to(x, wb_cpu_device()), which the macro wb_cpu(x) calls. */
WB_API void *wb_object_cpu(void *x);
/** wb_object_to for all tensors of a batch; n and index do not change.  On failure x of the result
 * is NULL. */
WB_API wb_batch wb_batch_to(wb_batch b, const wb_device *d, const wb_to_options *o);
/** wb_object_gpu for all tensors of a batch.  On failure x of the result is NULL. */
WB_API wb_batch wb_batch_gpu(wb_batch b, const wb_to_options *o);
/** wb_object_cpu for x and y of a batch.  On failure x of the result is NULL. */
WB_API wb_batch wb_batch_cpu(wb_batch b);

/** The device of x, which the macro wb_device_of(x) calls.  x is an object that wb_to takes, but
 * not a batch.  An object without tensors is on the CPU; a loader is on the device of its batches.
 * NULL: x has tensors on several devices (the error names two of them), or is another kind of
 * object. */
WB_API const wb_device *wb_object_device(void *x);

/* wb_to, wb_gpu and wb_cpu return the type of their argument; wb_tensor_to, wb_layer_gpu, ... are
 * the functions that they call. */
#define WB_MOVABLES(X) X(tensor) X(layer) X(tree) X(opt_state) X(dataset) X(loader)
#define WB_MOVES_(T)                                                                        \
    static inline wb_##T *wb_##T##_to(wb_##T *x, const wb_device *d, const wb_to_options *o)\
    { return (wb_##T *)wb_object_to(x, d, o); }                                             \
    static inline wb_##T *wb_##T##_gpu(wb_##T *x, const wb_to_options *o)                   \
    { return (wb_##T *)wb_object_gpu(x, o); }                                               \
    static inline wb_##T *wb_##T##_cpu(wb_##T *x) { return (wb_##T *)wb_object_cpu(x); }
WB_MOVABLES(WB_MOVES_)
#ifndef __cplusplus
#define wb_to(...) WB_TO_(__VA_ARGS__, )
#define WB_TO_(x, d, ...) \
    WB_CALL_WITH_(WB_ONCE_(WB_MOVE_TO_, x, (d), WB_GET_(wb_to_options, __VA_ARGS__)))
#define wb_gpu(...) WB_GPU_(__VA_ARGS__, )
#define WB_GPU_(x, ...) \
    WB_CALL_WITH_(WB_ONCE_(WB_MOVE_GPU_, x, WB_GET_(wb_to_options, __VA_ARGS__)))
#define wb_cpu(x) WB_ONCE_(WB_MOVE_CPU_, x, )
#define wb_device_of(x) WB_ONCE_(WB_DEVICE_OF_, x, )
#define WB_MOVE_TO_(x, ...) WB_MOVE_(x, to, wb_this_moves_an_object_or_a_batch_to)(x, __VA_ARGS__)
#define WB_MOVE_GPU_(x, ...) \
    WB_MOVE_(x, gpu, wb_this_moves_an_object_or_a_batch_gpu)(x, __VA_ARGS__)
#define WB_MOVE_CPU_(x, _) WB_MOVE_(x, cpu, wb_this_moves_an_object_or_a_batch)(x)
#define WB_DEVICE_OF_(x, _) wb_object_device(WB_OBJECT_(x))
#define WB_MOVE_(x, verb, wrong) _Generic(x, wb_tensor *: wb_tensor_##verb,                     \
        wb_layer *: wb_layer_##verb, wb_tree *: wb_tree_##verb,                                 \
        wb_opt_state *: wb_opt_state_##verb, wb_dataset *: wb_dataset_##verb,                   \
        wb_loader *: wb_loader_##verb, wb_batch: wb_batch_##verb, default: wrong)
typedef struct { int none; } wb_object_or_batch_expected;
void *wb_this_moves_an_object_or_a_batch(wb_object_or_batch_expected);
void *wb_this_moves_an_object_or_a_batch_gpu(wb_object_or_batch_expected, const wb_to_options *);
void *wb_this_moves_an_object_or_a_batch_to(wb_object_or_batch_expected, const wb_device *,
                                            const wb_to_options *);
#endif

/** Sets, for the process, whether wb_at may read one element of a tensor on a GPU, which is slow.
 * With false such a wb_at fails.  Before the first call it is allowed, with one warning. */
WB_API void wb_allow_scalar(bool allow);

#ifdef __cplusplus
}
#endif
#endif
