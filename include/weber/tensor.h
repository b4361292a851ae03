/* Weber, chapter 2: tensors: creating and reading them, evaluation, gradients, trees. */
#ifndef WEBER_TENSOR_H
#define WEBER_TENSOR_H

#include "weber/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- creating tensors ------------------------------------------------------------------------ */

/** A tensor with a copy of `data`: prod(dims) elements of `dtype`, row-major, on the default device
 * (device.h).  With `ndim` 0 the tensor is one number.  A dimension may be 0; `data` may then be
 * NULL.
 *
 * The C type of `data` must be that of `dtype` (WB_DTYPES): with an array of double and WB_F32 the
 * call does not compile, and fails if `dtype` is a variable.  Pointers to void and to char of any
 * kind, and to structs, are taken as they are; uint16_t holds the bits of f16 and bf16, _Float16
 * f16, bool bool and u8.  Other types need a cast to void *.  In C, where `data` begins with a
 * parenthesis, the arguments name no other dtype: put an expression that does into a variable.
 *
 * Errors: data of another type; more than WB_MAX_DIMS dimensions, a negative dimension or one of
 * 2^32 or more, 2^40 elements or more. */
WB_API wb_tensor *wb_from(const void *data, wb_dtype dtype, int ndim, const int64_t *dims);

/** A tensor of the caller's memory, without a copy, on the CPU.  `data` has the alignment of the C
 * type of `dtype`.  The caller must not write to it until the library calls release(data, context),
 * once, on the thread where the last tensor that needs the memory is freed; `release` may be NULL.
 * `release` must not evaluate or assign tensors, because an evaluation may be running.
 * Errors as wb_from, also for the C type of `data`; then `release` is not called. */
WB_API wb_tensor *wb_borrow(void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                            void (*release)(void *data, void *context), void *context);

/** wb_from of data of a C type: a number of WB_C_TYPES_, or -1.  The macro and C++ call it. */
WB_API wb_tensor *wb_from_typed_(const void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                           int type);
/** wb_borrow of data of a C type, like wb_from_typed_. */
WB_API wb_tensor *wb_borrow_typed_(void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                             void (*release)(void *data, void *context), void *context, int type);
#ifndef __cplusplus
#define wb_from(...) WB_DATA_(wb_from_typed_, __VA_ARGS__)
#define wb_borrow(...) WB_DATA_(wb_borrow_typed_, __VA_ARGS__)
/* f(arguments of the call, number of the data's type).  The first argument is whole if it does not
 * begin with a parenthesis; then so is the second, the dtype, and a constant is compared with the
 * data.  Else, as in (double[]){1, 2}, the arguments are not known: in the block each dtype that
 * the data cannot have is hidden by an object of the same name that is a struct, no argument for a
 * dtype. */
#define WB_DATA_(f, ...)                                                                    \
    WB_PASTE_(WB_DATA_, WB_IS_PAREN_(WB_FIRST_(__VA_ARGS__, )))(f, __VA_ARGS__)
#define WB_DATA_0(f, data, dtype, ...)                                                      \
    __extension__({                                                                         \
        WB_C_OF_(WB_DATA_TYPE_0(data))                                                      \
        (void)sizeof(struct { int wb_data_has_another_type : WB_FITS_(dtype); });           \
        f(data, dtype, __VA_ARGS__, wb_c_);                                                 \
    })
#define WB_FITS_(dtype)                                                                     \
    __builtin_choose_expr(__builtin_constant_p(dtype),                                      \
                          (unsigned)(dtype) < 31u && !(wb_c_ >> ((dtype) & 31) & 1) ? -1 : 1, 1)
#define WB_DATA_1(f, ...)                                                                   \
    __extension__({                                                                         \
        WB_C_OF_(WB_DATA_TYPE_1(WB_FIRST_(__VA_ARGS__, )))                                  \
        WB_QUIET_(WB_DTYPES(WB_DTYPE_OF_DATA_)) f(__VA_ARGS__, wb_c_);                      \
    })
/* Declares wb_c_, the number of the type of the pointer or array x. */
#define WB_C_OF_(x)                                                                         \
    WB_QUIET_(typedef __typeof__(WB_DECAY_(x)) wb_p_;                                       \
              typedef __typeof__(WB_ELEMENT_(wb_p_)) wb_q_;                                 \
              enum { wb_c_ = _Generic(WB_ELEMENT_(wb_q_), WB_C_TYPES_(WB_C_CASE_) default: -1) };)
#define WB_QUIET_(...)                                                                      \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wshadow\"")           \
    __VA_ARGS__ _Pragma("GCC diagnostic pop")
#define WB_DTYPE_OF_DATA_(NAME, ...)                                                        \
    __attribute__((unused)) const __typeof__(__builtin_choose_expr(                         \
        wb_c_ >> WB_DTYPE_##NAME##_ & 1, wb_fits_, wb_fits_not_)) WB_##NAME = {             \
        (wb_dtype)WB_DTYPE_##NAME##_};
extern const wb_dtype wb_fits_;             /* these two are not defined: only their types count */
extern const struct wb_data_has_another_type { int none; } wb_fits_not_;
#define WB_C_CASE_(name, type, dtypes) type *: WB_C_##name##_, const type *: WB_C_##name##_,
/* A pointer of type T; if T points to arrays or pointers, a pointer to their elements. */
#define WB_ELEMENT_(T)                                                                      \
    WB_DECAY_(__builtin_choose_expr(__builtin_classify_type(WB_AT_(T)) == 5, WB_AT_(T), *(T *)0))
#define WB_DECAY_(x) (1 ? x : x)            /* an array as a pointer */
#define WB_AT_(T) (*_Generic(*(T *)0, void *: "", const void *: "",                         \
                             default: __builtin_choose_expr(                                \
                                 __builtin_classify_type(*(T *)0) == 5, *(T *)0, "")))
/* An expression, not to be evaluated, of the type of the first argument.  The commas of a compound
 * literal separate arguments: of (double[]){1, 2} the first is (double[]){1, and what is in
 * the parentheses is the type.  Of a cast it is the type, of (p) the pointer. */
#define WB_DATA_TYPE_0(first) (*(__typeof__(first) *)0)
#define WB_DATA_TYPE_1(first) WB_FIRST_(WB_TYPE_IN_ first, )
#define WB_TYPE_IN_(...) (*(__typeof__(__VA_ARGS__) *)0),
#define WB_FIRST_(...) WB_FIRST_2_(__VA_ARGS__)
#define WB_FIRST_2_(first, ...) first
/* 1 if the argument begins with a parenthesis, else 0. */
#define WB_IS_PAREN_(x) WB_SECOND_(WB_EAT_ x, 0, )
#define WB_EAT_(...) 0, 1,
#define WB_SECOND_(...) WB_SECOND_2_(__VA_ARGS__)
#define WB_SECOND_2_(a, b, ...) b
#endif

/** A number as a tensor of no dimensions, which takes the dtype of the other operand (f32 if there
 * is none).  Its value is a run-time argument of plans (weber.h): another value needs no new plan.
 * In a function that wb_compile records the value is a constant; as an input of wb_call_compiled it
 * may change.  Operations with two operands also take a C number directly: wb_mul(x, 0.5). */
WB_API wb_tensor *wb_scalar(double value);
/** wb_scalar for an integer.  Error: a double cannot hold `value` exactly; then use wb_from. */
WB_API wb_tensor *wb_scalar_int(int64_t value);

/** A variable is a tensor that can be assigned to.  The result has a copy of x's values, on x's
 * device.  The call evaluates x.  Gradients do not reach x through the variable.  Parameters of
 * layers are variables. */
WB_API wb_tensor *wb_variable(wb_tensor *x);

/** Assigns `value` to the variable x, of the same shape and dtype.  The assignment is recorded and
 * executed at the next evaluation, or when the scope closes.  Tensors that were built from x before
 * the call use the old value, tensors built after the call use the new value.  In the root scope a
 * second assignment to x executes the first (wb_scope_close).
 *
 * The old value is lost when the assignment is executed.  Evaluating or assigning a tensor that
 * still needs the old value then fails with WB_ERROR_VERSION, and no pending assignment is
 * executed.  Returns 0 or an error code.  Other errors: x is no variable; `value` has another shape
 * or dtype, or is on another device.
 *
 * A `value` of f16 or bf16 that is read later, and was not evaluated with x, may differ from x in
 * its last bit (base.h): it is computed again. */
WB_API int wb_assign(wb_tensor *x, wb_tensor *value);

/** A tensor whose elements are all `value`, of any dtype.  For an integer dtype `value` is rounded
 * towards 0; then i8 and u8 wrap around, i32 and i64 take the nearest value; NaN becomes 0.  For
 * bool the elements are true if `value` is neither 0 nor NaN.  With `ndim` 0 the tensor is one
 * number.  Errors as wb_from. */
WB_API wb_tensor *wb_full_array(double value, wb_dtype dtype, int ndim, const int64_t *dims);
/** Random numbers of the uniform distribution on [0, 1), from the seed of wb_seed.  `dtype` is
 * floating.  Errors as wb_from. */
WB_API wb_tensor *wb_rand_array(wb_dtype dtype, int ndim, const int64_t *dims);
/** Random numbers of the standard normal distribution, from the seed of wb_seed.  `dtype` is
 * floating.  Errors as wb_from. */
WB_API wb_tensor *wb_randn_array(wb_dtype dtype, int ndim, const int64_t *dims);
/** Random integers of low .. high-1, all equally probable (to 2^-16 of the probability, or better),
 * from the seed of wb_seed.  Errors as wb_from; `dtype` does not hold low and high - 1; low is not
 * below high, or more than 2^32 below it; the numbers are not from -2^53 to 2^53. */
WB_API wb_tensor *wb_randint_array(int64_t low, int64_t high, wb_dtype dtype, int ndim,
                                   const int64_t *dims);
/** 0, 1, ..., n-1 in a random order, i32, from the seed of wb_seed.  Errors: n is negative, or
 * above 2^31. */
WB_API wb_tensor *wb_permutation(int64_t n);
/** Random numbers of the normal distribution of this mean and standard deviation between two
 * bounds, from the seed of wb_seed, by the inverse of the distribution, to about 6 digits.
 * `dtype` is floating.  (truncated_normal of Flux, whose defaults are 0, 1, -2, 2)  Errors as
 * wb_from; std is not positive; low is not below high; less than 5e-6 of the
 * distribution is between the bounds. */
WB_API wb_tensor *wb_truncated_normal_array(double mean, double std, double low, double high,
                                            wb_dtype dtype, int ndim, const int64_t *dims);
/** 0, 1, ..., n-1, of any dtype, shape [n].  The numbers wrap around in i8 and u8, are rounded in
 * f16, bf16 and f32, and are false, true, true, ... in bool.  Errors: n negative, or 2^32 or
 * more. */
WB_API wb_tensor *wb_arange(int64_t n, wb_dtype dtype);
/** n numbers from `first` to `last` with equal steps, both included, of a floating dtype, shape
 * [n]: wb_linspace(0, 1, 5, WB_F32) is 0, 0.25, 0.5, 0.75, 1.  They are computed in double and
 * rounded once.  n = 1 gives `first`; `last` may be below it.  Errors: n negative; another dtype;
 * last - first is not finite; out of memory. */
WB_API wb_tensor *wb_linspace(double first, double last, int64_t n, wb_dtype dtype);
/** The identity matrix, [n,n], of any dtype.  Errors as wb_from. */
WB_API wb_tensor *wb_eye(int64_t n, wb_dtype dtype);

/* The next three functions return tensors with the shape, dtype and device of x.  They do not read
 * its values. */

/** All elements are `value`, converted to x's dtype as by wb_full_array: wb_full_like(x, 0). */
WB_API wb_tensor *wb_full_like(wb_tensor *x, double value);
/** Random numbers like those of wb_rand_array.  Error: x is not floating. */
WB_API wb_tensor *wb_rand_like(wb_tensor *x);
/** Random numbers like those of wb_randn_array.  Error: x is not floating. */
WB_API wb_tensor *wb_randn_like(wb_tensor *x);

#ifndef __cplusplus
#define WB_DIMS_(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
/** Macros that make f32 tensors and take the dimensions as arguments: wb_zeros(2, 5) and
 * wb_full(0.5, 2, 5) have shape [2,5].  wb_full_array, wb_rand_array and wb_randn_array make other
 * dtypes. */
#define wb_zeros(...) wb_full_array(0, WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_ones(...) wb_full_array(1, WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_full(value, ...) wb_full_array((value), WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_rand(...) wb_rand_array(WB_F32, WB_DIMS_(__VA_ARGS__))
#define wb_randn(...) wb_randn_array(WB_F32, WB_DIMS_(__VA_ARGS__))
/** wb_randint(0, 10, 2, 5): i32. */
#define wb_randint(low, high, ...) \
    wb_randint_array((low), (high), WB_I32, WB_DIMS_(__VA_ARGS__))
#define wb_truncated_normal(mean, std, low, high, ...) \
    wb_truncated_normal_array((mean), (std), (low), (high), WB_F32, WB_DIMS_(__VA_ARGS__))
#endif

/* ---- properties ------------------------------------------------------------------------------ */

/** The number of dimensions; -1 for NULL and WB_NONE. */
WB_API int wb_ndim(const wb_tensor *x);
/** The dimensions, an array of wb_ndim(x) numbers that is valid as long as x.  NULL for NULL; for
 * WB_NONE a pointer that must not be read. */
WB_API const int64_t *wb_dims(const wb_tensor *x);
/** The size of an axis; a negative axis counts from the end.  -1 for WB_NONE, and with the error
 * set for NULL and if there is no such axis. */
WB_API int64_t wb_dim(const wb_tensor *x, int axis);
/** The number of elements; 0 for WB_NONE, -1 for NULL. */
WB_API int64_t wb_size(const wb_tensor *x);
/** The dtype; WB_DTYPE_DEFAULT for NULL and WB_NONE. */
WB_API wb_dtype wb_dtype_of(const wb_tensor *x);
/** Whether the object is WB_NONE. */
WB_API bool wb_is_none(const void *object);
/** Shape and dtype, "[32,784] f32", and the device if that is not the CPU; "none" for WB_NONE,
 * "NULL" for NULL.  The text belongs to the library, and is valid until this thread has made 8 more
 * such texts, also in error messages. */
WB_API const char *wb_describe(const wb_tensor *x);

/* ---- reading: these functions evaluate ------------------------------------------------------- */

/** The elements, row-major, read-only, in host memory (a copy, if x is on a device with its own
 * memory).  The library owns them.  Valid until x is freed, its scope closes, or x is assigned to.
 * NULL: the evaluation failed, or x is WB_NONE. */
WB_API const void *wb_data(wb_tensor *x);

/** The value of a tensor with one element, of any dtype, as double.  NaN with the error set: the
 * evaluation failed, or x has another number of elements. */
WB_API double wb_item(wb_tensor *x);

/** Copies the elements, row-major, to `buffer`.  Returns 0 or an error code.  Error: `bytes` is not
 * wb_size(x) times the size of an element. */
WB_API int wb_copy_out(wb_tensor *x, void *buffer, size_t bytes);

/** The element at an index of n = wb_ndim(x) numbers, as double.  NaN with the error set: an index
 * is negative or outside the shape, n is not wb_ndim(x), the evaluation failed, or x is on a GPU
 * and wb_allow_scalar (device.h) forbids it. */
WB_API double wb_at_array(wb_tensor *x, int n, const int64_t *index);
#ifndef __cplusplus
/** wb_at(x, 3, 7): the element at row 3, column 7. */
#define wb_at(x, ...) wb_at_array((x), WB_DIMS_(__VA_ARGS__))
#endif

/* ---- evaluation ------------------------------------------------------------------------------ */

/** Evaluates n tensors and all pending assignments (wb_assign, wb_update), with one plan (weber.h)
 * for each device.  If an assignment overwrites a variable, the results that were built from the
 * old value and are not operands of other operations are evaluated too, so they can still be read.
 * With n = 0 the call evaluates only the assignments and these results.  Returns 0 or an error
 * code.  Errors: a tensor is WB_NONE; out of memory; a loss or norm that guards an update is not
 * finite (WB_ERROR_NUMBER, also that of the step before: see wb_setup); a tensor needs an
 * overwritten value of a variable (WB_ERROR_VERSION). */
WB_API int wb_eval_array(int n, wb_tensor *const *tensors);
#ifndef __cplusplus
/* Expands to two arguments of a call: the number of tensors, at most 32, and an array of them.
 * Without tensors these are 1 and an array with one NULL. */
#define WB_TENSORS_(...) \
    WB_NARGS_(__VA_ARGS__), (wb_tensor *[WB_NARGS_(__VA_ARGS__)]){__VA_ARGS__}
/** wb_eval(loss, accuracy) evaluates both tensors together. */
#define wb_eval(...) wb_eval_array(WB_TENSORS_(__VA_ARGS__))
#endif

/** Memory of an evaluation, in bytes.  `arena`: intermediate values; `outputs`: results; `inputs`:
 * parameters and other inputs; `peak`: the sum of these three.  `kernels` is the number of kernels
 * that run.  Prepared weights (wb_set_prepared_weights) are not counted: evaluations share them. */
typedef struct {
    int64_t arena, outputs, inputs, peak, kernels;
    int64_t reserved_[11];          /* 0: for numbers of later versions */
} wb_memory;

/** Computes the memory that wb_eval_array of these n tensors would need now, without evaluating
 * anything.  The result is for the device of tensors[0]; tensors on other devices are not counted.
 * Returns 0 or an error code. */
WB_API int wb_estimate_memory(int n, wb_tensor *const *tensors, wb_memory *out);

/** Counts of this process since its start.  `plans_built`: plans made; `plan_hits`: evaluations
 * that reused a plan; `steps`: runs of plans.  `arena_bytes` is the memory of all arenas now,
 * `prepared_bytes` that of prepared weights (wb_set_prepared_weights). */
typedef struct {
    int64_t plans_built, plan_hits, arena_bytes, steps, prepared_bytes;
    int64_t reserved_[11];          /* 0: for counts of later versions */
} wb_engine_stats;

/** The counts of this process. */
WB_API wb_engine_stats wb_stats(void);
/** Sets how many plans the process keeps, at least 1, for later evaluations of the same structure;
 * with wb_distributed_run it keeps this number for each rank.  Before the first call it is 64.  The
 * least recently used plan is freed first. */
WB_API void wb_set_plan_cache(int plans);
/** Sets how many bytes the process spends on prepared weights; 0 or less: none.  Before the first
 * call there is no limit.
 *
 * On the CPU, products with 2 to 512 rows and convolutions read their weights in another order than
 * the tensor has, and reorder them in each evaluation.  When an evaluation reads weights that have
 * not been written since two others read them, as in inference or with frozen layers, the library
 * keeps them reordered: about the bytes of the weights again, and four times these for convolutions
 * by Winograd's algorithm.  The library frees this memory when the weights are written or freed.
 * Results have the same bits with and without it.  Weights above the limit are not prepared; a
 * lower limit frees nothing at once.  Never prepared are weights of wb_borrow, those on other
 * devices, those that wb_to_dlpack gave out, until they are written, and those of products in bf16,
 * of more than 32 MiB, or of "medium" precision where the processor multiplies bf16. */
WB_API void wb_set_prepared_weights(int64_t bytes);

/* ---- compiled functions ---------------------------------------------------------------------- */

/** A function that wb_compile can record: fills in at most 8 outputs and returns their number, or a
 * negative number on failure.  In the array `inputs`, 16 NULLs follow the inputs of the call.
 * `ctx` is the argument of wb_compile. */
typedef int (*wb_recordable)(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx);

/** A compiled function: the first call records what `f` does; later calls replay it with new inputs
 * and build no graph.
 *
 *     wb_compiled *step = wb_compile(f, ctx);
 *     wb_call_compiled(step, 2, (wb_tensor *[]){x, y}, 1, &loss);
 *
 * Variables are read and assigned at each call; random numbers, step counts and learning rates
 * advance.  A tensor that f uses and did not create is read at each call if it is a variable;
 * otherwise it is a constant.
 *
 * Every C value that f reads is a constant of the recording: the number in wb_scalar(rate), the
 * array in wb_from(table, ...), a branch on a C variable, a pointer in ctx, a field of the
 * program's own struct.  A value that changes from call to call must be an input, for instance
 * wb_scalar(rate).
 *
 * f is recorded again for other shapes or dtypes of the inputs, and after a call that changes what
 * f used: wb_freeze, wb_thaw, wb_set, wb_tie, wb_trainmode, wb_testmode, wb_automode, wb_setup
 * (.mixed), wb_load_checkpoint, wb_set_threads, wb_set_default_device; and when a call from inside
 * wb_withgradient follows one from outside.  The last 16 recordings are kept.
 *
 * `ctx` must live as long as the compiled function.  wb_compile itself records nothing.  NULL: f is
 * NULL, or out of memory. */
WB_API wb_compiled *wb_compile(wb_recordable f, void *ctx);

/** Calls a compiled function with n_in inputs, and sets the n_out outputs to the first results of
 * f.  They belong to the current scope.  Threads may share a compiled function; their calls run one
 * after the other.  Returns 0 or an error code, and then the outputs are not valid:
 *   - WB_ERROR_ARGUMENT: f reads a value (wb_item, wb_at, wb_data, wb_eval, wb_show, wb_save, ...)
 *     or calls a function that cannot be recorded (wb_variable, wb_set, wb_setup, wb_train,
 *     wb_load, wb_loader_next, ...); a tensor that f made, other than a result, outlives f
 *     (wb_retain); f uses several devices, fails, or returns fewer than n_out results.  The message
 *     names the call and the cure
 *   - WB_ERROR_VERSION: a constant that f uses has been overwritten
 *   - the errors of wb_eval.
 *
 * A recording that failed is dropped.  If an input is a number of wb_scalar, another value needs
 * another recording only if other integer dtypes can hold it: 0.5 (none), 3 (all) and 300 (i32 and
 * i64) need three recordings.  For a number of wb_full_array one recording serves all values. */
WB_API int wb_call_compiled(wb_compiled *c, int n_in, wb_tensor *const *inputs, int n_out,
                            wb_tensor **outputs);

/* ---- gradients ------------------------------------------------------------------------------- */

/** d(loss)/d(wrt), as a tensor of wrt's shape and dtype; zeros if `loss` does not depend on `wrt`.
 * The gradient is made of ordinary operations, so it has gradients itself.  `loss` is floating and
 * has one element; `wrt` is floating, and need not be a variable.  Errors: `loss` depends on an
 * overwritten value of a variable; `loss` depends on a BatchNorm, or on a layer with dropout, that
 * was called outside wb_withgradient and has neither train mode nor test mode set.  Use
 * wb_withgradient, or call wb_trainmode or wb_testmode on the layer first. */
WB_API wb_tensor *wb_gradient_tensor(wb_tensor *loss, wb_tensor *wrt);

/** d(loss)/d(p) for each parameter p of a layer, as a tree with the same names.  The tree has
 * WB_NONE for a parameter on which `loss` does not depend, for a tensor that is not floating or not
 * trainable, and for a tree of wb_opaque.  Errors as wb_gradient_tensor. */
WB_API wb_tree *wb_gradient_layer(wb_tensor *loss, wb_layer *wrt);
/** wb_gradient_layer for a tree.  A floating tensor directly in the tree, not in a layer, need not
 * be a variable. */
WB_API wb_tree *wb_gradient_tree(wb_tensor *loss, wb_tree *wrt);
#ifndef __cplusplus
/** wb_gradient_tensor, wb_gradient_layer or wb_gradient_tree, by the type of wrt. */
#define wb_gradient(loss, wrt) WB_ONCE_(WB_GRADIENT_, wrt, (loss))
#define WB_GRADIENT_(wrt, loss)                                                             \
    _Generic(wrt, wb_tensor *: wb_gradient_tensor, wb_layer *: wb_gradient_layer,           \
        wb_tree *: wb_gradient_tree,                                                        \
        default: wb_gradient_takes_a_tensor_layer_or_tree)(loss, wrt)
/* _Generic chooses this function for an argument of another type.  The struct is never passed, so
 * the call does not compile, and the compiler's error names the function. */
typedef struct { int none; } wb_tensor_layer_or_tree_expected;
wb_tree *wb_gradient_takes_a_tensor_layer_or_tree(wb_tensor *, wb_tensor_layer_or_tree_expected);
#endif

/** The Jacobian J[i,j] = dy_i/dx_j over the elements in row-major order, [size(y), size(x)], in x's
 * dtype.  x and y are floating.  It costs size(y) gradients.  Errors as wb_gradient_tensor. */
WB_API wb_tensor *wb_jacobian(wb_tensor *y, wb_tensor *x);
/** The Hessian H[i,j] = d²(loss)/dx_i dx_j, [size(x), size(x)], in x's dtype.  x and `loss` are
 * floating, `loss` has one element.  It costs size(x) gradients.  Errors as wb_gradient_tensor. */
WB_API wb_tensor *wb_hessian(wb_tensor *loss, wb_tensor *x);

/** The derivative of y in the direction dx, J·dx in y's shape and dtype, with the Jacobian J of y
 * with respect to x.  dx has the shape and dtype of x.  It costs two gradients, whatever the sizes
 * (the forward mode of other libraries): y is linear in u in wb_sum(wb_mul(y, u)), and so is its
 * gradient with respect to x; the result is the gradient of that one, times dx, with respect to u.
 * Errors: another shape or dtype of dx; those of wb_gradient_tensor. */
WB_API wb_tensor *wb_pushforward(wb_tensor *y, wb_tensor *x, wb_tensor *dx);

/** x, of any dtype, as a constant for differentiation: gradients do not pass through the result to
 * x. */
WB_API wb_tensor *wb_stop_gradient(wb_tensor *x);

/** Computes the gradients of wb_custom_gradient: sets dx[i], for each x[i], to the gradient with
 * respect to x[i], of x[i]'s shape and dtype, given the gradient g of y.  Before the
 * call dx[i] is NULL, or WB_NONE if that gradient is not needed.  A dx[i] that stays so counts as
 * 0, unless an operation failed in f.  The gradients are made of operations, which may use g, y and
 * x.  Returns 0; another value is failure. */
typedef int (*wb_gradient_function)(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x,
                                    wb_tensor **dx, void *ctx);
/** y, with a gradient of the program's own: wb_custom_gradient(y, f, ctx, a, b).  Gradients pass
 * from the result to each x (here a and b), as f computes them, and nowhere else: not through the
 * operations that y was made of.  Rounding with the gradient of the identity:
 *
 *     static int pass(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
 *                     void *ctx) { dx[0] = g; return 0; }
 *     wb_tensor *rounded = wb_custom_gradient(wb_floor(wb_add(x, 0.5)), pass, NULL, x);
 *
 * f is called when a gradient is taken; `ctx` must live until then.  A gradient of the gradient
 * passes through the operations that f used.  Errors: y or an x is not floating; no x.  A gradient
 * fails if f fails, or gives another shape or dtype. */
WB_API wb_tensor *wb_custom_gradient_array(wb_tensor *y, wb_gradient_function f, void *ctx, int n,
                                           wb_tensor *const *x);

/** An array in host memory: dense, row-major. */
typedef struct {
    void *data;
    wb_dtype dtype;
    int ndim;
    const int64_t *dims;
} wb_host_array;
/** Computes the output of wb_host_operation: fills output->data, which has the output's dtype and
 * shape, from the inputs, which it must not change.  It may be
 * called by any thread that evaluates, and must not call functions of the library that create or
 * evaluate tensors.  Returns 0; another value makes the evaluation fail. */
typedef int (*wb_host_function)(int n, const wb_host_array *inputs, const wb_host_array *output,
                                void *ctx);
/** An operation that a C function of the program computes on the CPU, as a step of the plan: it
 * runs whenever the result is evaluated, also when wb_compile replays it.  The result has the given
 * dtype and shape.  `ctx` must live as long as the result, plans with it and compiled functions.  f
 * must give the same result for the same inputs.  Each pair of f and ctx has a plan of its own.
 *
 * It has no gradient; wb_custom_gradient gives it one.  If f fails (wb_fail), so does the
 * evaluation, with that code; WB_ERROR_NUMBER and WB_ERROR_UNSUPPORTED, by which a plan knows a
 * loss that is not finite and a step that is declined, count as WB_ERROR_ARGUMENT.  Errors: no
 * input, or more than 8; an input on another device than the CPU (wb_cpu moves it). */
WB_API wb_tensor *wb_host_operation(wb_host_function f, void *ctx, wb_dtype dtype, int ndim,
                                    const int64_t *dims, int n, wb_tensor *const *inputs);
#ifndef __cplusplus
#define wb_custom_gradient(y, f, ctx, ...) \
    wb_custom_gradient_array((y), (f), (ctx), WB_TENSORS_(__VA_ARGS__))
#endif

/* ---- trees ----------------------------------------------------------------------------------- */

/** A tuple of n tensors, layers and trees.  The tuple holds references to them; its children are
 * named "0", "1", ...  An object may be WB_NONE.  Error: an object of another kind. */
WB_API wb_tree *wb_tuple_array(int n, void *const *objects);
#ifndef __cplusplus
/** wb_tuple(encoder, decoder): each argument is a wb_tensor *, wb_layer * or wb_tree *. */
#define wb_tuple(...) \
    wb_tuple_array(WB_NARGS_(__VA_ARGS__), (void *[]){WB_EACH_(WB_BRANCH_, __VA_ARGS__)})
#define WB_BRANCH_(x) WB_ONCE_(WB_BRANCH_OF_, x, ),
#define WB_BRANCH_OF_(x, _)                                                                 \
    _Generic(x, wb_tensor *: wb_any_, wb_layer *: wb_any_, wb_tree *: wb_any_,              \
        void *: wb_any_, default: wb_this_takes_tensors_layers_and_trees)(x)
static inline void *wb_any_(void *x) { return x; }
void *wb_this_takes_tensors_layers_and_trees(wb_tensor_layer_or_tree_expected);
#endif
/** A tuple whose children have names, such as "actor" and "critic"; the names are copied.  Errors:
 * an empty name, one with a dot, or one that occurs twice; an object of another kind. */
WB_API wb_tree *wb_named_tuple(int n, const char *const *names, void *const *objects);

/** The tensor at a path such as "layers.1.weight" in a layer or tree: the tensor itself, not a
 * copy; WB_NONE if the tree has WB_NONE there.  The path "" is the object itself.  NULL: no such
 * path, or not a tensor. */
WB_API wb_tensor *wb_get(void *object, const char *path);
/** The layer or tree at a path (see wb_get), as a tree with the same children.  NULL: no such path,
 * or a tensor. */
WB_API wb_tree *wb_child(void *object, const char *path);
/** The number of children of a layer or tree; 0 for a tensor and a tree of wb_opaque; -1: another
 * object. */
WB_API int wb_child_count(void *object);
/** The name of child i of a layer or tree, from 0, such as "weight": with wb_get or wb_child, a
 * step of a walk.  It belongs to the library, and is valid as long as the object.  NULL: no such
 * child. */
WB_API const char *wb_child_name(void *object, int i);
/** The layer at a path (see wb_get): the layer itself, not a copy.  NULL: no such path, or not a
 * layer. */
WB_API wb_layer *wb_layer_at(void *object, const char *path);

/* ---- functions of every kind of object ------------------------------------------------------- */

/** Prints an object to standard output; a tensor is evaluated.  On failure it prints nothing, and
 * wb_error has the reason.  wb_show(object) is the typed form. */
WB_API void wb_object_show(void *object);
/** The text that wb_show prints.  The caller frees it with wb_free_text.  NULL: the evaluation
 * failed, or `object` is NULL or was freed. */
WB_API char *wb_object_format(void *object);
/** Frees a text of wb_object_format or wb_decode.  NULL is ignored. */
WB_API void wb_free_text(char *text);

#ifndef __cplusplus
/** wb_keep(x), wb_free(x) and wb_show(x): wb_object_keep, wb_object_free and wb_object_show of an
 * object of any kind; wb_keep returns x. */
#define wb_keep(x) WB_ONCE_(WB_KEEP_, x, )
#define wb_free(x) WB_ONCE_(WB_FREE_, x, )
#define wb_show(x) WB_ONCE_(WB_SHOW_, x, )
#define WB_KEEP_(x, _) (__typeof__(x))wb_object_keep(WB_OBJECT_(x))
#define WB_FREE_(x, _) wb_object_free(WB_OBJECT_(x))
#define WB_SHOW_(x, _) wb_object_show(WB_OBJECT_(x))
#define WB_OBJECT_(x)                                                                       \
    _Generic(x, wb_tensor *: wb_any_, wb_layer *: wb_any_, wb_tree *: wb_any_,              \
        wb_rule *: wb_any_, wb_opt_state *: wb_any_, wb_dataset *: wb_any_,                 \
        wb_loader *: wb_any_, wb_progress *: wb_any_, wb_compiled *: wb_any_,               \
        wb_schedule *: wb_any_, wb_tokenizer *: wb_any_, wb_decoder *: wb_any_,             \
        wb_logger *: wb_any_, wb_columns *: wb_any_,                                        \
        default: wb_this_takes_an_object_of_the_library)(x)
typedef struct { int none; } wb_object_expected;
void *wb_this_takes_an_object_of_the_library(wb_object_expected);
#endif

#ifdef __cplusplus
}
#endif
#endif
