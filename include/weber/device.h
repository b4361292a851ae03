/* Weber, chapter 8: devices - finding them, choosing one, moving things between them.
 *
 * A backend (CUDA, AMDGPU, Metal, OpenCL, CPU) is a family of devices.  The CPU is always there.  A program loads the
 * others by name, with wb_using; they open the libraries of their vendors at run time, and are never needed: a
 * program written with wb_gpu and wb_get_device runs on a machine without any GPU as it stands.
 *
 *   wb_using("CUDA");
 *   const wb_device *dev = wb_get_device(.verbose = true);
 *   model = wb_to(model, dev);
 *
 * Devices are the library's own; they last until the program ends and are never freed.  There is no "current" device:
 * an operation runs where its tensors are. */
#ifndef WEBER_DEVICE_H
#define WEBER_DEVICE_H

#include "weber/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- backends --------------------------------------------------------------------------------- */

/* Names in order of preference, ended by NULL: "CUDA", "AMDGPU", "Metal", "OpenCL", "CPU"; and the same without the
 * CPU.  What there could be, not what works. */
WB_API const char *const *wb_supported_devices(void);
WB_API const char *const *wb_supported_gpu_backends(void);

/* Loads a backend, whose driver is opened at the first question for its devices.  Once loaded it stays.
 * WEBER_BACKENDS=OpenCL,CUDA in the environment does the same at the first use of any function of this chapter.
 * 0, or an error code where this library was built without the backend; harmless to ignore.
 * A backend that is loaded may still be without a device: wb_functional. */
WB_API int wb_using(const char *backend);
WB_API bool wb_loaded(const char *backend);

/* Loaded, a device there, and its libraries usable; never fails.  With a second argument, one part of it, as in
 * wb_functional("AMDGPU", "MIOpen"): an unknown part of a backend that is functional is false, with the error set. */
WB_API bool wb_functional(const char *backend, const char *part);
#ifndef __cplusplus
#define wb_functional(...) WB_FUNCTIONAL_(__VA_ARGS__, NULL, )
#define WB_FUNCTIONAL_(backend, part, ...) wb_functional((backend), (part))
#endif

/* Why a backend is not functional, and how to get what is missing; "" if it is.  Valid until this thread's next call. */
WB_API const char *wb_why_not(const char *backend);

/* ---- devices ---------------------------------------------------------------------------------- */

/* The devices of a backend; none if it is not loaded or not functional.  The list lasts until wb_shutdown.
 * wb_show_devices prints "CUDA: 2 devices:" and a line "0. NVIDIA H200" each to standard output. */
typedef struct { int n; const wb_device *const *device; } wb_device_list;
WB_API wb_device_list wb_devices(const char *backend);
WB_API void wb_show_devices(const char *backend);

/* The device to use: the backend of the preference where it is set and works, else the first of wb_supported_devices
 * that is loaded and works, which at last is the CPU.  Never fails.  .verbose says what was chosen and why. */
typedef struct {
    size_t size;
    WB_BY_PLACE
    bool verbose;
    WB_NO_MORE
} wb_get_device_options;
WB_API const wb_device *wb_get_device_with(const wb_get_device_options *o);

/* That very one, by backend and number from 0.  Errors: no such backend, not loaded, not functional, not so many. */
WB_API const wb_device *wb_device_at(const char *backend, int ordinal);

/* As Lux has them: the GPU that would be chosen, remembered until wb_reset_gpu_device; the CPU where there is none or
 * the CPU is preferred, or, with .force, NULL and an error that says why for each backend.  wb_cpu_device: the CPU. */
typedef struct {
    size_t size;
    WB_BY_PLACE
    bool force;
    WB_NO_MORE
} wb_gpu_device_options;
WB_API const wb_device *wb_gpu_device_with(const wb_gpu_device_options *o);
WB_API const wb_device *wb_cpu_device(void);
WB_API void wb_reset_gpu_device(void);
#ifndef __cplusplus
#define wb_get_device(...) wb_get_device_with(WB_GET_(wb_get_device_options, __VA_ARGS__))
#define wb_gpu_device(...) wb_gpu_device_with(WB_GET_(wb_gpu_device_options, __VA_ARGS__))
#endif

WB_API int wb_device_ordinal(const wb_device *d);               /* 0 */
WB_API const char *wb_device_name(const wb_device *d);          /* "NVIDIA H200" */
WB_API const char *wb_device_backend(const wb_device *d);       /* "CUDA" */
WB_API const char *wb_device_describe(const wb_device *d);      /* "CUDADevice(0): NVIDIA H200"; for this thread's next 8 calls */
WB_API bool wb_device_is_gpu(const wb_device *d);               /* any but the CPU's */

/* Bytes: of the device; free for anybody; held by this process's tensors and plans, now and at most; and kept for reuse
 * on top of these (wb_device_trim gives that back).  -1 where the device does not tell.  0, or an error code. */
typedef struct { int64_t total, free, used, peak, cached; } wb_device_memory;
WB_API int wb_device_memory_of(const wb_device *d, wb_device_memory *m);
WB_API void wb_device_trim(const wb_device *d);

/* Waits until everything asked of the device is done.  0, or the error of what failed meanwhile. */
WB_API int wb_synchronize(const wb_device *d);

/* Where this thread's new tensors (wb_from, wb_rand, layers, wb_load) are made: the CPU until set.  NULL sets the CPU.
 * What is borrowed or read as data (wb_borrow, wb_load_npy, wb_load_idx, wb_load_csv) is on the CPU. */
WB_API void wb_set_default_device(const wb_device *d);
WB_API const wb_device *wb_default_device(void);

/* ---- how exact -------------------------------------------------------------------------------- */

/* How products, convolutions and attention of f32 may be made, by PyTorch's names; for the whole process, f32 throughout
 * until set (or WEBER_MATMUL_PRECISION says so).  It is what may be done, not what must:
 *              CUDA                                                     CPU, OpenCL
 *   "highest"  f32 throughout                                           f32 throughout
 *   "high"     operands rounded to TF32 (10 bits), sums in f32          the same
 *   "medium"   operands rounded to bf16 (7 bits) where that is faster   the same
 * Other dtypes are not concerned: f16 and bf16 are summed in f32, f64 in f64.
 * What is evaluated after the call is made so; a function recorded by wb_compile keeps what was set when it was recorded.
 * Errors: none of the three names. */
WB_API int wb_set_matmul_precision(const char *precision);
WB_API const char *wb_matmul_precision(void);

/* true: the same bits at every run on the same machine, at some cost in speed; for the whole process, false until set (or
 * WEBER_DETERMINISTIC=1 says so).  On CUDA, only algorithms without atomics are used, and none is chosen by timing; the CPU
 * (for a given number of threads) and OpenCL give the same bits always.
 * What is evaluated after the call is made so; a function recorded by wb_compile keeps what was set when it was recorded. */
WB_API void wb_set_deterministic(bool on);
WB_API bool wb_deterministic(void);

/* ---- the preference --------------------------------------------------------------------------- */

/* LocalPreferences.toml, read once a process: [Flux] gpu_backend = "CUDA"; where that is absent, the same key of
 * [MLDataDevices] or [LuxDeviceUtils].  It is looked for from the working directory upwards; the first folder with a
 * JuliaLocalPreferences.toml (which wins), a LocalPreferences.toml or a Project.toml ends the search.
 *
 * A file that cannot be read, or is not TOML, is told once, and counts as none.
 *
 * wb_gpu_backend: the preference in force in this process; NULL if none is set.
 * wb_set_gpu_backend: writes that of [Flux], keeping all else in the file; takes effect at the next start.  NULL removes
 * it.  Nothing is written where the file says so already, in whichever of the three tables.  Where none of these files was
 * found, LocalPreferences.toml is made: beside Project.toml, else in the working directory.  Errors: not the name of a
 * backend; the file cannot be read or written, or is not TOML. */
WB_API const char *wb_gpu_backend(void);
WB_API int wb_set_gpu_backend(const char *backend);

/* ---- moving ----------------------------------------------------------------------------------- */

/* A copy of x on a device, made anew; x itself where it is there already.  x is a tensor, layer, tree or tuple,
 * optimiser state, dataset, loader or batch:
 *   - a layer or tree is rebuilt around moved tensors; ties stay ties; functions, numbers and opaque parts are as they were
 *   - a dataset is moved whole (that of a function is computed first), and batches are then gathered on the device
 *   - a loader keeps all its options and uploads each batch ahead of its use
 * f64 becomes f32 on the way to a GPU (and stays f32 on the way back); f16, bf16, integers and bools stay.
 * .dtype = WB_KEEP keeps f64 too: an error where the device has none.  .dtype = WB_F16 (or any floating one) makes
 * everything floating that, wherever it is.
 * A tensor's move is differentiable, and what a variable by itself becomes is no variable (those in a layer or tree
 * stay such): W = wb_variable(wb_to(W, d)).  Errors: out of the device's memory; a tuple of loaders; inside wb_compile.
 *
 * wb_gpu: to wb_gpu_device(); where there is no GPU its argument comes back, without an error.  wb_cpu: to the CPU. */
typedef struct {
    size_t size;
    WB_BY_PLACE
    wb_dtype dtype;
    WB_NO_MORE
} wb_to_options;
WB_API void *wb_object_to(void *x, const wb_device *d, const wb_to_options *o);
WB_API void *wb_object_gpu(void *x, const wb_to_options *o);
WB_API void *wb_object_cpu(void *x);
WB_API wb_batch wb_batch_to(wb_batch b, const wb_device *d, const wb_to_options *o);   /* x NULL: failed */
WB_API wb_batch wb_batch_gpu(wb_batch b, const wb_to_options *o);
WB_API wb_batch wb_batch_cpu(wb_batch b);

/* Where x is.  What holds no tensor counts as on the CPU; a loader is where its batches will be.
 * NULL: its parts are on several devices; the error names two that disagree. */
WB_API const wb_device *wb_object_device(void *x);

/* wb_to(x, device), wb_gpu(x), wb_cpu(x), with options behind as in wb_gpu(x, .dtype = WB_KEEP), give back what they
 * were given: wb_tensor_to, wb_layer_gpu, ... behind them are the plain forms. */
#define WB_MOVABLES(X) X(tensor) X(layer) X(tree) X(opt_state) X(dataset) X(loader)
#define WB_MOVES_(T)                                                                                      \
    static inline wb_##T *wb_##T##_to(wb_##T *x, const wb_device *d, const wb_to_options *o)              \
    { return (wb_##T *)wb_object_to(x, d, o); }                                                           \
    static inline wb_##T *wb_##T##_gpu(wb_##T *x, const wb_to_options *o)                                 \
    { return (wb_##T *)wb_object_gpu(x, o); }                                                             \
    static inline wb_##T *wb_##T##_cpu(wb_##T *x) { return (wb_##T *)wb_object_cpu(x); }
WB_MOVABLES(WB_MOVES_)
#ifndef __cplusplus
#define wb_to(...) WB_TO_(__VA_ARGS__, )
#define WB_TO_(x, d, ...) WB_ONCE_(WB_MOVE_TO_, x, (d), WB_GET_(wb_to_options, __VA_ARGS__))
#define wb_gpu(...) WB_GPU_(__VA_ARGS__, )
#define WB_GPU_(x, ...) WB_ONCE_(WB_MOVE_GPU_, x, WB_GET_(wb_to_options, __VA_ARGS__))
#define wb_cpu(x) WB_ONCE_(WB_MOVE_CPU_, x, )
#define wb_device_of(x) WB_ONCE_(WB_DEVICE_OF_, x, )
#define WB_MOVE_TO_(x, ...) WB_MOVE_(x, to, wb_this_moves_an_object_or_a_batch_to)(x, __VA_ARGS__)
#define WB_MOVE_GPU_(x, ...) WB_MOVE_(x, gpu, wb_this_moves_an_object_or_a_batch_gpu)(x, __VA_ARGS__)
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

/* Reading one element of a GPU's tensor with wb_at works, slowly: it is said once.  false makes it an error. */
WB_API void wb_allow_scalar(bool allow);

#ifdef __cplusplus
}
#endif
#endif
