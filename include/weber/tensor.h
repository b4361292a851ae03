/* Weber, chapter 2: tensors - making them, reading them, gradients, evaluation. */
#ifndef WEBER_TENSOR_H
#define WEBER_TENSOR_H

#include "weber/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making tensors --------------------------------------------------------------------------- */

/* A copy of `data`: prod(dims) elements of `dtype`, row-major.
 * Errors: more than WB_MAX_DIMS dimensions, a negative one, 2^32 elements or more. */
WB_API wb_tensor *wb_from(const void *data, wb_dtype dtype, int ndim, const int64_t *dims);

/* The same without the copy: `release(data, context)` is called once, when no tensor needs it any
 * more (it may be NULL).  The program must not write to `data` until then.  On failure release is not called.
 * The tensor is on the CPU: on the default device where that is one of the CPU's, else on the first. */
WB_API wb_tensor *wb_borrow(void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                            void (*release)(void *data, void *context), void *context);

/* A 0-dimensional literal.  Its dtype follows the tensor that it meets (f32 alone); its value is a run-time
 * argument of plans: changing it from step to step makes no new plan.  In a function of wb_compile it keeps the
 * value that it had when the function was recorded; as an input of wb_call_compiled it may change. */
WB_API wb_tensor *wb_scalar(double value);

/* A parameter: a tensor that may be assigned to, holding a copy of x.  Layers are made of these. */
WB_API wb_tensor *wb_variable(wb_tensor *x);

/* x <- value, for a variable of the same shape and dtype.  Recorded; takes place at the next evaluation or
 * when the scope closes.  What was built from x before the call sees the old value, what is built after it
 * the new one.  Outside any scope a second write to x makes the first one (base.h, scopes).
 * 0, or an error code.  A value that reads what was overwritten fails here or at the next evaluation
 * (WB_ERROR_VERSION), which takes back all pending writes: every variable is what it was. */
WB_API int wb_assign(wb_tensor *x, wb_tensor *value);

/* By shape and dtype (0 dims: a scalar).  Uniform in [0, 1); standard normal; draws come from wb_seed.  Values and counts
 * that i8 or u8 does not hold wrap around. */
WB_API wb_tensor *wb_full_of(double value, wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_rand_of(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_randn_of(wb_dtype dtype, int ndim, const int64_t *dims);
WB_API wb_tensor *wb_arange(int64_t n, wb_dtype dtype);             /* 0, 1, ..., n-1 */
WB_API wb_tensor *wb_eye(int64_t n, wb_dtype dtype);                /* [n,n], ones on the diagonal */

#ifndef __cplusplus
#define WB_DIMS_(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define wb_zeros(...) wb_full_of(0, WB_F32, WB_DIMS_(__VA_ARGS__))   /* wb_zeros(2, 5): [2,5] f32 */
#define wb_ones(...) wb_full_of(1, WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_rand(...) wb_rand_of(WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_randn(...) wb_randn_of(WB_F32, WB_DIMS_(__VA_ARGS__))
#endif

/* ---- what a tensor is ------------------------------------------------------------------------- */

WB_API int wb_ndim(const wb_tensor *x);                  /* -1 for NULL, WB_NONE */
WB_API const int64_t *wb_dims(const wb_tensor *x);
WB_API int64_t wb_dim(const wb_tensor *x, int axis);     /* a negative axis counts from the end; -1 if none */
WB_API int64_t wb_size(const wb_tensor *x);              /* elements */
WB_API wb_dtype wb_dtype_of(const wb_tensor *x);
WB_API bool wb_is_none(const void *object);              /* is it WB_NONE? */
/* "[32,784] f32"; with its device behind where that is not the CPU.  Valid for this thread's next 8 calls. */
WB_API const char *wb_describe(const wb_tensor *x);

/* ---- reading (evaluates) ---------------------------------------------------------------------- */

/* The values, row-major, read-only, until x's scope closes or x is assigned to.  NULL on failure. */
WB_API const void *wb_data(wb_tensor *x);

/* The value of a tensor of one element; NaN, with the error set, on failure. */
WB_API double wb_item(wb_tensor *x);

/* Copies the values out.  Errors: `bytes` is not exactly what x holds. */
WB_API int wb_copy_out(wb_tensor *x, void *buffer, size_t bytes);

/* One element, by n indices; NaN, with the error set, on failure. */
WB_API double wb_at_index(wb_tensor *x, int n, const int64_t *index);
#ifndef __cplusplus
#define wb_at(x, ...) wb_at_index((x), WB_DIMS_(__VA_ARGS__))        /* wb_at(x, 3, 7) */
#endif

/* ---- evaluation ------------------------------------------------------------------------------- */

/* Computes these tensors, all pending writes, and every result nobody consumed yet that reads a parameter
 * about to be overwritten - together, as one plan.  0, or an error code. */
WB_API int wb_eval_all(int n, wb_tensor *const *tensors);
#ifndef __cplusplus
#define wb_eval(...) wb_eval_all((int)(sizeof((wb_tensor *[]){__VA_ARGS__}) / sizeof(wb_tensor *)), \
                                 (wb_tensor *[]){__VA_ARGS__})
#endif

/* What computing these would need, before anything runs: bytes of the arena that holds intermediates, of
 * results, of parameters and other inputs, and their sum, the peak. */
typedef struct { int64_t arena, outputs, inputs, peak, kernels; } wb_memory;
WB_API int wb_memory_estimate(int n, wb_tensor *const *tensors, wb_memory *out);

/* Plans are cached by structure, 64 unless set.  Counts since the start: */
typedef struct { int64_t plans_built, plan_hits, arena_bytes, steps; } wb_engine_stats;
WB_API void wb_set_plan_cache(int plans);
WB_API wb_engine_stats wb_stats(void);

/* A function recorded once and replayed with new inputs: no graph is built from the second call on.
 * Inputs must keep their shapes and dtypes (a new signature is recorded anew); variables are read and
 * assigned in place; random draws, learning rates and step numbers advance.  Results belong to the scope.
 * Threads may share one: their calls take turns.
 *   f(inputs, outputs, ctx) fills at most 8 outputs and returns their number, or a negative number on failure;
 *   behind the inputs that were given its array holds NULL, 16 times.
 *
 *   wb_compiled *step = wb_compile(f, ctx);
 *   wb_call_compiled(step, 2, (wb_tensor *[]){x, y}, 1, &loss);
 *
 * f is recorded anew when something that it used was changed since: by wb_freeze, wb_thaw, wb_set,
 * wb_tie, wb_trainmode, wb_testmode, wb_automode, wb_setup (.mixed), wb_checkpoint_load,
 * wb_set_threads, wb_set_default_device, or by a call from inside wb_withgradient after one from
 * outside. What wb_adjust and wb_load_state change, and what is assigned to a variable, is read at
 * each call. 16 recordings are kept: two modes that take turns are recorded once each. f may call
 * other compiled functions.
 *
 * What is C is read while f is recorded, and its later changes are not seen: the number in
 * wb_scalar(rate), the array in wb_from(table, ...), a file, a branch on a C variable, a pointer in
 * ctx, a field of the program's own struct (WB_FUNCTOR). What changes from call to call is an input: an
 * array as a tensor, a number as a tensor of no dimension. wb_scalar(rate) and wb_full_of(rate,
 * WB_F32, 0, NULL) as inputs take no memory. Another value of wb_full_of is never a new recording;
 * one of wb_scalar is, if another set of integer dtypes holds it: 0.5 (none), 3 (all) and 300 (i32
 * and i64) are three signatures.
 *
 * A tensor that f uses and did not make is a variable, which is read at each call, or a constant
 * with the value that it has when f is recorded.
 *
 * Errors of wb_call_compiled (nothing is kept of the recording):
 *   - f reads a value (wb_item, wb_at, wb_data, wb_copy_out, wb_eval, wb_show, wb_save, wb_to,
 *     wb_to_dlpack, ...) or calls what acts at once (wb_variable, wb_set, wb_tie, wb_adjust,
 *     wb_setup, wb_update_new, wb_train, wb_load, wb_load_state, wb_seed, wb_loader_next, wb_keep
 *     into the caller's scope, ...), whatever f returns: WB_ERROR_ARGUMENT, and the message names
 *     the call and what to do instead
 *   - a tensor that f makes outlives it (wb_retain); f works on several devices; f returns a
 *     negative number; f gave fewer results than n_out
 *   - a constant that f uses has been overwritten: WB_ERROR_VERSION
 *   - those of wb_eval: out of memory, a device that failed. */
typedef int (*wb_recordable)(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx);
WB_API wb_compiled *wb_compile(wb_recordable f, void *ctx);
WB_API int wb_call_compiled(wb_compiled *c, int n_in, wb_tensor *const *inputs, int n_out, wb_tensor **outputs);

/* ---- gradients -------------------------------------------------------------------------------- */

/* d(loss)/d(wrt) by a walk over the graph, adding ordinary operations: gradients of gradients work.
 *   loss: one element, floating.   wrt: a tensor, layer or tree.
 * The result mirrors wrt: a tensor for a tensor, else a tree with the same names.  What loss does not
 * depend on, what is not floating or not trainable, and opaque parts have WB_NONE in a tree; a tensor has zeros.
 * Errors: the loss was made from a value of a parameter that an update has overwritten; the walk meets a
 * BatchNorm or Dropout called outside wb_withgradient and not in train mode. */
WB_API wb_tensor *wb_gradient_tensor(wb_tensor *loss, wb_tensor *wrt);
WB_API wb_tree *wb_gradient_layer(wb_tensor *loss, wb_layer *wrt);
WB_API wb_tree *wb_gradient_tree(wb_tensor *loss, wb_tree *wrt);
#ifndef __cplusplus
#define wb_gradient(loss, wrt) _Generic((wrt),          \
        wb_tensor *: wb_gradient_tensor,                \
        wb_layer *: wb_gradient_layer,                  \
        wb_tree *: wb_gradient_tree)((loss), (wrt))
#endif

/* J[i,j] = dy_i/dx_j, [size(y), size(x)];  H[i,j] = d2(loss)/dx_i dx_j, [size(x), size(x)]. */
WB_API wb_tensor *wb_jacobian(wb_tensor *y, wb_tensor *x);
WB_API wb_tensor *wb_hessian(wb_tensor *loss, wb_tensor *x);

/* x as it is, but a constant to gradients. */
WB_API wb_tensor *wb_stop_gradient(wb_tensor *x);

/* ---- trees ------------------------------------------------------------------------------------ */

/* A tuple of objects (tensors, layers, trees); its children are named "0", "1", ... */
WB_API wb_tree *wb_tuple_of(int n, void *const *objects);
#ifndef __cplusplus
#define wb_tuple(...) wb_tuple_of((int)(sizeof((void *[]){__VA_ARGS__}) / sizeof(void *)), (void *[]){__VA_ARGS__})
#endif
/* The same with names: {"actor", "critic"}. */
WB_API wb_tree *wb_named_tuple(int n, const char *const *names, void *const *objects);

/* By path, as in "layers.1.weight"; "" is the object itself.  `object` is a layer or a tree. */
WB_API wb_tensor *wb_get(void *object, const char *path);         /* a tensor, or WB_NONE */
WB_API wb_tree *wb_child(void *object, const char *path);         /* a part, as a tree */
WB_API wb_layer *wb_layer_at(void *object, const char *path);     /* a part that is a layer */

/* ---- generic verbs ---------------------------------------------------------------------------- */

WB_API void wb_show_object(void *object);           /* prints to standard output */
WB_API char *wb_format_object(void *object);        /* the same text; free with wb_free_text */
WB_API void wb_free_text(char *text);

#ifndef __cplusplus
#define WB_OBJECT_(x) _Generic((x), wb_tensor *: (x), wb_layer *: (x), wb_tree *: (x), wb_rule *: (x),  \
        wb_opt_state *: (x), wb_dataset *: (x), wb_loader *: (x), wb_progress *: (x), wb_compiled *: (x))
#define wb_keep(x) _Generic((x),                                                                        \
        wb_tensor *: (wb_tensor *)wb_object_keep(x), wb_layer *: (wb_layer *)wb_object_keep(x),          \
        wb_tree *: (wb_tree *)wb_object_keep(x), wb_rule *: (wb_rule *)wb_object_keep(x),                \
        wb_opt_state *: (wb_opt_state *)wb_object_keep(x), wb_dataset *: (wb_dataset *)wb_object_keep(x), \
        wb_loader *: (wb_loader *)wb_object_keep(x), wb_progress *: (wb_progress *)wb_object_keep(x),     \
        wb_compiled *: (wb_compiled *)wb_object_keep(x))
#define wb_free(x) wb_object_free(WB_OBJECT_(x))
#define wb_show(x) wb_show_object(WB_OBJECT_(x))
#endif

#ifdef __cplusplus
}
#endif
#endif
