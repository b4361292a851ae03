/* Weber, chapter 1: dtypes, options, errors, scopes, the log, memory, threads. */
#ifndef WEBER_BASE_H
#define WEBER_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <initializer_list>
#endif

#if defined(_WIN32)
#define WB_API
#else
#define WB_API __attribute__((visibility("default")))
#endif

#if defined(__GNUC__)
#define WB_PRINTF_(f, a) __attribute__((format(printf, f, a)))
#else
#define WB_PRINTF_(f, a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define WB_VERSION_MAJOR 0
#define WB_VERSION_MINOR 6
#define WB_VERSION_PATCH 0

/** The version of the library that is linked, such as "0.6.0".  The library owns the text. */
WB_API const char *wb_version(void);

/* ---- kinds of object ------------------------------------------------------------------------- */

/** An array, evaluated or still to be evaluated. */
typedef struct wb_tensor wb_tensor;
/** A model or a part of one: a tree of tensors and layers that can be called. */
typedef struct wb_layer wb_layer;
/** A tree that cannot be called: gradients, tuples, structs of the program. */
typedef struct wb_tree wb_tree;
/** An optimiser rule, such as Adam. */
typedef struct wb_rule wb_rule;
/** A learning rate as a function of the step. */
typedef struct wb_schedule wb_schedule;
/** A rule with its state for each parameter of a model. */
typedef struct wb_opt_state wb_opt_state;
/** A sequence of observations, each a tensor x, usually with a label y. */
typedef struct wb_dataset wb_dataset;
/** The columns of a CSV file: their names, and the words and replacements of missing values. */
typedef struct wb_columns wb_columns;
/** Reads a dataset in batches, epoch after epoch. */
typedef struct wb_loader wb_loader;
/** Turns texts into the numbers of a model's vocabulary, and back. */
typedef struct wb_tokenizer wb_tokenizer;
/** Turns the tokens that a model generates into text, one after the other. */
typedef struct wb_decoder wb_decoder;
/** A progress bar. */
typedef struct wb_progress wb_progress;
/** A log of numbers by step, for TensorBoard and as CSV. */
typedef struct wb_logger wb_logger;
/** A function of the program that is recorded once and then replayed (wb_compile). */
typedef struct wb_compiled wb_compiled;
/** A processor with its memory: the CPU or a GPU.  Owned by the library, never freed. */
typedef struct wb_device wb_device;

/** The object that means "none": no bias, no mask, no gradient.  It is not NULL: NULL means that a
 * call failed. */
WB_API extern wb_tensor *const WB_NONE;

/* ---- dtypes ---------------------------------------------------------------------------------- */

/** All dtypes: name, C type of an element in memory, bytes of an element, whether it is floating,
 * text.
 *
 * f16 and bf16 are computed in f32 and rounded when a value is stored or cast (wb_astype).
 * Operations that run in one kernel (a product, its bias and its activation; an update of a
 * parameter) may keep intermediate values in f32, so the last bit of an f16 or bf16 result may
 * depend on which other tensors are evaluated with it; more than that bit where a difference
 * cancels, or where an intermediate value is too large or too small for the dtype, as in y - y or
 * the slope of relu(y - 1) of a y in the same kernel.  Not so for operations that ask which number
 * a value is: comparisons, wb_isfinite, wb_isnan, wb_argmax, wb_floor, wb_sign, wb_pow and
 * wb_astype see the rounded number, the one that the program reads, and a number beside it as that
 * dtype has it, but for the exponent of wb_pow.
 * With the environment variable WEBER_EAGER=1 each operation rounds its result.
 *
 * i8, u8, i32 and i64 wrap around after each operation.  bool is 0 or 1. */
#define WB_DTYPES(X)                \
    X(F32,  float,    4, 1, "f32")  \
    X(F64,  double,   8, 1, "f64")  \
    X(F16,  uint16_t, 2, 1, "f16")  \
    X(BF16, uint16_t, 2, 1, "bf16") \
    X(I8,   int8_t,   1, 0, "i8")   \
    X(U8,   uint8_t,  1, 0, "u8")   \
    X(I32,  int32_t,  4, 0, "i32")  \
    X(I64,  int64_t,  8, 0, "i64")  \
    X(BOOL, uint8_t,  1, 0, "bool")

/** The dtypes are WB_F32, WB_F64, WB_F16, WB_BF16, WB_I8, WB_U8, WB_I32, WB_I64, WB_BOOL. */
typedef enum {
    WB_DTYPE_DEFAULT = 0,           /* as an option: the option's default dtype */
#define WB_DTYPE_ENUM(NAME, type, bytes, floating, text) WB_##NAME,
    WB_DTYPES(WB_DTYPE_ENUM)
#undef WB_DTYPE_ENUM
    WB_DTYPE_COUNT,
    WB_DTYPE_KEEP = 255             /* option of wb_to and wb_gpu: dtypes do not change */
} wb_dtype;

/* The numbers of the dtypes once more, as WB_DTYPE_F32_, ...: where a macro hides WB_F32. */
enum {
#define WB_DTYPE_NUMBER_(NAME, ...) WB_DTYPE_##NAME##_ = WB_##NAME,
    WB_DTYPES(WB_DTYPE_NUMBER_)
#undef WB_DTYPE_NUMBER_
};
/* The C types of numbers in memory, as X(name, type, dtypes): a bit 1 << dtype for each dtype that
 * they may have.  Bytes (char) may have any, and are not listed.  New rows are the last. */
#define WB_C_TYPES_(X)                                                                      \
    X(FLOAT, float, 1 << WB_DTYPE_F32_) X(DOUBLE, double, 1 << WB_DTYPE_F64_)               \
    X(INT, int, 1 << WB_DTYPE_I32_) X(LLONG, long long, 1 << WB_DTYPE_I64_)                 \
    X(LONG, long, 1 << (sizeof(long) == 4 ? WB_DTYPE_I32_ : WB_DTYPE_I64_))                 \
    X(BOOL, bool, 1 << WB_DTYPE_BOOL_ | 1 << WB_DTYPE_U8_)                                  \
    X(USHORT, unsigned short, 1 << WB_DTYPE_F16_ | 1 << WB_DTYPE_BF16_)                     \
    X(SHORT, short, 0) X(UINT, unsigned, 0) X(ULONG, unsigned long, 0)                      \
    X(ULLONG, unsigned long long, 0) X(LDOUBLE, long double, 0) WB_C_HALF_(X)
#ifdef __FLT16_MAX__
#define WB_C_HALF_(X) X(HALF, _Float16, 1 << WB_DTYPE_F16_)
#else
#define WB_C_HALF_(X)
#endif
/* g++ before version 13 has _Float16 on x86 only, but defines __FLT16_MAX__ wherever gcc does. */
#if defined(__GNUG__) && !defined(__clang__) && !defined(__x86_64__) && __GNUC__ < 13
#undef WB_C_HALF_
#define WB_C_HALF_(X)
#endif
enum {
#define WB_C_ROW_OF_(name, type, dtypes) WB_C_ROW_##name##_,
    WB_C_TYPES_(WB_C_ROW_OF_)
#undef WB_C_ROW_OF_
    WB_C_ROWS_
};
/* A row and its dtypes in one number; -1 for any other type, which may have any dtype. */
enum {
#define WB_C_TYPE_OF_(name, type, dtypes) WB_C_##name##_ = WB_C_ROW_##name##_ << 16 | (dtypes),
    WB_C_TYPES_(WB_C_TYPE_OF_)
#undef WB_C_TYPE_OF_
};

/** The largest number of dimensions of a tensor. */
enum { WB_MAX_DIMS = 8 };

/** The name of a dtype, such as "f32"; "no dtype" for a number that is none. */
WB_API const char *wb_dtype_name(wb_dtype t);
/** The size of one element, in bytes; 0 for a number that is no dtype. */
WB_API size_t wb_dtype_bytes(wb_dtype t);

/* ---- options --------------------------------------------------------------------------------- */

/** Options are fields of a struct: wb_Dense(784, 256, wb_relu, .bias = false).  An option that is
 * not given has its default, and one given as 0 is 0.  Each option is a row of a list, such as
 * wb_Dense_options_: OPT(type, name, default) for an option that is given by name only,
 * ARG(type, name, default) for one that may also be given by place.  One argument by place too many
 * is a compile error, and so is one behind an option with a name; gcc lets 0 and NULL pass there,
 * and then the call fails.  WB_DEFAULT, NULL and an empty list mean a default that the row's
 * comment names; WB_REQUIRED(v) marks an option that must be given.
 *
 * A C program that makes a struct of options itself begins with WB_OPTIONS_OF, which sets all
 * fields to their defaults:
 *
 *     wb_conv_options o = WB_OPTIONS_OF(wb_conv_options, .groups = 2);
 *     wb_ints_set(o.pad, n, pad);
 *     y = wb_conv_with(x, w, b, &o);
 *
 * In C++ a new struct has the defaults.  The first two fields are not options: .size is the size of
 * the struct, and .given is how it was made; the macros set both.
 *
 * Later versions append options.  A program that is compiled with this header works with their
 * libraries: by .size they know that it gives none of these.  docs/abi.md has the rules, also for
 * other languages. */
#include "weber/each.h"
#define WB_REQUIRED(missing) missing
#define WB_DEFAULT (-2.0e-300)      /* an option that is a number has its default */
/* The mark: the value of a guard (below) that no argument has overwritten.  The first number of a
 * list (wb_ints) is the mark plus the list's length. */
#define WB_MARK_ 0x57420000
/* The compiler that made a struct of options: the first character of .given. */
#define WB_GCC_MADE_ "="
#define WB_CLANG_MADE_ "~"
#define WB_CXX_MADE_ "*"
#define WB_NO_ROW_(type, name, ...)
#define WB_ARG_VALUE_(type, name, ...) .name = __VA_ARGS__,
/** Declares the struct of options T, whose rows are the list T_. */
#define WB_OPTIONS(T) WB_OPTIONS_WITH_(T, )
#ifndef __cplusplus
/* The guard behind each OPT is a hidden member, which catches an argument by place after one by
 * name: that argument would initialise the guard.  For clang the guard's type accepts no value.
 * For gcc the guard is a pointer initialised to WB_MARK_: an argument 0 or NULL overwrites the
 * mark, which the library checks at run time. */
#ifdef __clang__
#define WB_MADE_ WB_CLANG_MADE_
typedef _Atomic(struct { const void *an_option_by_place_follows_one_by_name; }) wb_guard_;
#define WB_OPT_VALUE_ WB_ARG_VALUE_
#else
#define WB_MADE_ WB_GCC_MADE_
typedef const struct wb_an_option_by_place_follows_one_by_name *wb_guard_;
#define WB_OPT_VALUE_(type, name, ...) \
    .name = __VA_ARGS__, .name##_guard_ = (wb_guard_)WB_MARK_,
#endif
#define WB_OPT_MEMBER_(type, name, ...) type name; wb_guard_ name##_guard_;
#define WB_ARG_MEMBER_(type, name, ...) type name;
/* The last member of a struct of options is a flexible array, which no argument can initialise: one
 * argument too many does not compile.  A struct with this member cannot be a member of another
 * struct; a program that needs that defines WB_NO_MORE as nothing. */
#ifndef WB_NO_MORE
#define WB_NO_MORE char too_many_arguments_[];
#endif
#define WB_OPTIONS_WITH_(T, ...)                                                            \
    typedef struct T {                                                                      \
        size_t size;                                                                        \
        const char *given;                                                                  \
        T##_(WB_OPT_MEMBER_, WB_NO_ROW_)                                                    \
        union { void *by_place_; __VA_ARGS__ };                                             \
        T##_(WB_NO_ROW_, WB_ARG_MEMBER_)                                                    \
        WB_NO_MORE                                                                          \
    } T
/* An argument initialises its field once more, which WB_CALL_WITH_ keeps from being a warning.  The
 * library counts the numbers of a list in braces in .given, the text of the arguments. */
#define WB_DEFAULTS_(T) .size = sizeof(T), T##_(WB_OPT_VALUE_, WB_ARG_VALUE_)  \
    .by_place_ = (void *)WB_MARK_
#define WB_TEXT_(...) WB_MADE_ #__VA_ARGS__
#define WB_GET_(T, ...) WB_GET_WITH_(T, WB_TEXT_(__VA_ARGS__), __VA_ARGS__)
#define WB_GET_WITH_(T, text, ...) &(T){.given = (text), WB_DEFAULTS_(T), __VA_ARGS__}
/** A struct of options with its defaults, and the options that are given. */
#define WB_OPTIONS_OF(...) WB_OPTIONS_OF_(__VA_ARGS__, )
#define WB_OPTIONS_OF_(T, ...) WB_CALL_WITH_(*WB_GET_(T, __VA_ARGS__))
#else
/* The type of .size.  No number converts to it implicitly, so an argument {0} is a list of
 * integers, not a struct of options. */
struct wb_size_ {
    size_t value;
    constexpr explicit wb_size_(size_t size) : value(size) {}
};
#define WB_OPT_MEMBER_(type, name, ...) \
    WB_ARG_MEMBER_(type, name, __VA_ARGS__) const void *name##_guard_ = nullptr;
#define WB_ARG_MEMBER_(type, name, ...) type name = __VA_ARGS__;
#define WB_OPTIONS_WITH_(T, ...)                                                            \
    struct T {                                                                              \
        wb_size_ size = wb_size_(sizeof(T));                                                \
        const char *given = WB_CXX_MADE_;                                                   \
        T##_(WB_OPT_MEMBER_, WB_NO_ROW_)                                                    \
        void *by_place_ = nullptr;                                                          \
        T##_(WB_NO_ROW_, WB_ARG_MEMBER_)                                                    \
    }
#endif

/** A list of at most 8 integers in an option: .axes = {0, -1}, .pad = {1, 0}.  A list that is
 * initialised elsewhere is WB_INTS(1, 0), or is set with wb_ints_set.  C++ assigns:
 * o.pad = {1, 0}. */
#ifndef __cplusplus
typedef int64_t wb_ints[WB_MAX_DIMS + 1];
/** The default of a list in an option: no numbers. */
#define WB_EMPTY {WB_MARK_}
#define WB_INTS(...) \
    {WB_MARK_ + (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), __VA_ARGS__}
#else
struct wb_ints {
    int64_t list[WB_MAX_DIMS + 1];
    wb_ints() : wb_ints(std::initializer_list<int64_t>{}) {}
    wb_ints(std::initializer_list<int64_t> values) : list()
    {
        int64_t *at = list;
        *at++ = WB_MARK_ + int64_t(values.size());
        for (int64_t value : values)
            if (at <= list + WB_MAX_DIMS) *at++ = value;
    }
};
#define WB_EMPTY {}
#define WB_INTS(...) {__VA_ARGS__}
#endif
/** Sets a list in a struct of options to n values: wb_ints_set(o.axes, n, axes).  With n = 0 the
 * option counts as not given.  With n above 8 the function that takes the options fails.  Errors: n
 * is negative; `list` is NULL, or `values` with n above 0: then that function fails too. */
WB_API void wb_ints_set(int64_t *list, int n, const int64_t *values);

/* ---- errors ---------------------------------------------------------------------------------- */

/** All error codes, with their meaning. */
#define WB_ERRORS(X)                                                                   \
    X(MEMORY,      "out of memory")                                                    \
    X(SHAPE,       "shapes do not fit")                                                \
    X(DTYPE,       "dtypes do not fit")                                                \
    X(ARGUMENT,    "an argument is wrong")                                             \
    X(FILE,        "a file cannot be read or written")                                 \
    X(FORMAT,      "a file's contents are wrong")                                      \
    X(NUMBER,      "a number is not finite")                                           \
    X(VERSION,     "a value that was overwritten was asked for")                       \
    X(DEVICE,      "devices do not fit, or one failed")                                \
    X(UNSUPPORTED, "not supported here")                                               \
    X(INTERNAL,    "a defect of the library")

/** WB_OK, which is 0, WB_ERROR_MEMORY, WB_ERROR_SHAPE, ...: the codes in "0 or an error code". */
typedef enum {
    WB_OK = 0,
#define WB_ERROR_ENUM(NAME, text) WB_ERROR_##NAME,
    WB_ERRORS(WB_ERROR_ENUM)
#undef WB_ERROR_ENUM
    WB_ERROR_COUNT
} wb_status;

/** The message of this thread's latest failure, which names what was found and the cure; "" if
 * there is none.  A message of the library ends in the name of a page of docs/errors.md, such as
 * " (W0201)", which has the usual causes, an example and the cure; the command
 * `weber explain W0201` prints it.  A call that receives NULL fails and keeps the message that is
 * there, so the message is that of the first failure in a chain of calls.  A call that succeeds
 * does not clear it.  Valid until the next failure or wb_clear_error. */
WB_API const char *wb_error(void);
/** The code of this thread's latest failure; WB_OK if there is none, or wb_clear_error was called
 * after it. */
WB_API wb_status wb_error_code(void);
/** A failure of the program's own, in a function that the library calls: a layer of WB_LAYER, a
 * loss, a rule, a C function of wb_host_operation, a function of a dataset.  Sets the code and the
 * message, printf's `format` with the arguments after it, for this thread as the library does, and
 * returns `code`.
 *
 *     if (wb_ndim(x) != 3)
 *         return wb_fail(WB_ERROR_SHAPE, "blend: expects [N,T,F], got %s", wb_describe(x)), NULL;
 *
 * The library puts the layer's path in the model or the observation's number before the message:
 * "layers.1.inner: blend: ...".  The message may quote wb_error(), and then ends in the name of the
 * quoted message's page; one above 8191 bytes is cut off.  A function of the program whose other
 * results are positive numbers, such as a layer with several outputs or .next of a stream, returns
 * `wb_fail(...), -1`.  A code that is no error counts as WB_ERROR_ARGUMENT. */
WB_API int wb_fail(wb_status code, const char *format, ...) WB_PRINTF_(2, 3);
/** Forgets this thread's latest failure. */
WB_API void wb_clear_error(void);

/* ---- scopes ---------------------------------------------------------------------------------- */

/** A scope owns the objects that calls return while it is the innermost scope of its thread.
 *
 *     wb_scope *scope = wb_scope_open();
 *     ... = wb_matmul(a, b) ...
 *     wb_scope_close(scope);
 *
 * Objects are reference-counted.  A scope holds a reference to each object that it owns, and an
 * object holds references to the objects that it is made of.  Each thread has a root scope, which
 * lasts until the thread ends or calls wb_shutdown. */
typedef struct wb_scope wb_scope;

/** Opens a scope inside the innermost scope of this thread.  The caller closes it with
 * wb_scope_close; closing an enclosing scope closes it too.  NULL: out of memory. */
WB_API wb_scope *wb_scope_open(void);

/** Closes a scope and all scopes inside it, and drops their references.  It also evaluates all
 * pending assignments (wb_assign, wb_update) and all tensors that outlive the scope (wb_keep,
 * wb_retain).  These tensors drop their operands, so a graph never extends beyond its scope.
 * Returns 0 or the error code of the evaluation; the scope is closed in both cases.  A scope that
 * is not an open scope of this thread gives WB_ERROR_ARGUMENT.
 *
 * A training loop needs no scope of its own.  In the root scope the second wb_update (or wb_assign)
 * of the same variables first evaluates the previous one.  It also evaluates those results of the
 * previous step that are not operands of another operation, so the loss can still be read.
 * Gradients and other intermediate values of the previous step cannot be read any more
 * (WB_ERROR_VERSION), unless they were evaluated before.
 *
 * The root scope keeps its objects until wb_shutdown.  A loop in the root scope thus keeps about
 * 300 bytes, and the values, of each tensor that a call returned (3 KB a step for a Chain of two
 * Dense layers).  A scope for each step, or wb_free, frees them. */
WB_API int wb_scope_close(wb_scope *scope);

/** Moves the innermost scope's reference to `object` to the enclosing scope, and returns `object`.
 * If the innermost scope has no reference to `object`, the enclosing scope gets a new one, unless
 * it has one already.  In the root scope the call changes nothing.  WB_NONE is returned as it is.
 * NULL: `object` is NULL or was freed, or out of memory.  wb_keep(object) is the typed form. */
WB_API void *wb_object_keep(void *object);

/** Drops one reference to `object`: that of the innermost scope of this thread that has one.  The
 * object is freed when nothing refers to it any more.  Does nothing for NULL, for WB_NONE, and if
 * no scope of this thread has a reference.  wb_free(object) is the typed form. */
WB_API void wb_object_free(void *object);

/** Adds a reference that belongs to the caller, and returns `object`.  The caller drops it with
 * wb_release.  NULL: `object` is NULL or was freed. */
WB_API void *wb_retain(void *object);

/** Drops a reference that wb_retain added.  NULL is ignored.
 *
 * A call that receives a freed object fails with WB_ERROR_ARGUMENT, as long as the memory of the
 * object has not been reused.  With the environment variable WEBER_DEBUG=check memory is reused
 * later, and the message describes the object and what freed it. */
WB_API void wb_release(void *object);

/** Closes all scopes of this thread, also the root scope, frees all plans and caches, also on
 * devices, and ends the library's threads.  Programs that check for leaks need it, and plugins
 * before they are unloaded, for objects that refer to their functions.  No other thread may be in a
 * call of the library.  Devices stay valid, and the library can be used again.
 *
 * After dlclose the library stays in the process, also inside of a plugin that contains it.  A
 * child of fork can use it, whatever other threads of its parent did.  docs/embedding.md has more
 * about both. */
WB_API void wb_shutdown(void);

/* ---- the log --------------------------------------------------------------------------------- */

/** How important a message of the log is. */
typedef enum { WB_LOG_DEBUG, WB_LOG_INFO, WB_LOG_WARN, WB_LOG_ERROR } wb_log_level;

/** Receives a message of the library, on the thread that causes it.  `text` may have several lines,
 * has escapes such as \x1b in place of control characters, and is valid during the call.  `context`
 * is that of wb_set_log.  The handler must not call functions of the library that create or
 * evaluate tensors: an evaluation may be under way. */
typedef void (*wb_log_handler)(wb_log_level level, const char *text, void *context);

/** Sets the receiver of all messages of the process.  `context` must live as long as `handler` is
 * the receiver.  Without a receiver (`handler` NULL, or before the first call) messages go to
 * standard error: one line as "[ Info: text", several lines in a frame. */
WB_API void wb_set_log(wb_log_handler handler, void *context);

/* ---- memory and threads ---------------------------------------------------------------------- */

/** The allocator of all host memory of the library but a small block for each thread.
 *   reallocate(context, NULL, n)    allocates n bytes at an address that is a multiple of 16
 *   reallocate(context, block, n)   changes the size as realloc does, with the same alignment
 *   reallocate(context, block, 0)   frees
 * `reallocate` returns NULL if there is no memory; `block` then stays valid. */
typedef struct {
    void *(*reallocate)(void *context, void *block, size_t bytes);
    void *context;
} wb_allocator;

/** Sets the allocator; the struct is copied.  NULL: the C library's allocator.  This call must be
 * the first call of the library: once the library holds memory, the call changes nothing, and
 * wb_error has the reason.  Any thread may call `reallocate`. */
WB_API void wb_set_allocator(const wb_allocator *allocator);
/** The host memory that the library holds now, in bytes. */
WB_API int64_t wb_memory_used(void);
/** The most host memory that the library held so far, in bytes. */
WB_API int64_t wb_memory_peak(void);

/** Sets how many threads of the CPU an evaluation may use, in the whole process, and returns the
 * number in force: n, but at least 1 and at most 256.  Before the first call the number is the
 * environment variable WEBER_NUM_THREADS, else OMP_NUM_THREADS, else the number of processors that
 * the process may use.  All threads of an evaluation round, and flush small numbers to zero, as the
 * calling thread does at that moment. */
WB_API int wb_set_threads(int n);
/** The number of CPU threads that an evaluation may use. */
WB_API int wb_threads(void);

/** Seeds the random numbers of this thread: wb_rand, wb_randn, initial values of layers, dropout,
 * shuffling.  A thread that does not call it uses a random seed from the operating system. */
WB_API void wb_seed(uint64_t seed);

/* ---- exceptions of C++ ----------------------------------------------------------------------- */

/** How the library calls functions of a C++ program.  `call` runs f(arg), and returns NULL, or the
 * exception that f has thrown, with its text.  `again` throws it once more; `drop` frees it. */
typedef struct wb_catcher_ {
    void *(*call)(void (*f)(void *arg), void *arg, char *text, size_t bytes);
    void (*again)(void *thrown);
    void (*drop)(void *thrown);
    struct wb_catcher_ *next;
} wb_catcher_;
/** Adds a catcher, which the caller goes on owning, or removes it.  cxx.h calls it for each file of
 * a program. */
WB_API void wb_catch_(wb_catcher_ *catcher, bool adds);

#ifdef __cplusplus
}
#endif
#endif
