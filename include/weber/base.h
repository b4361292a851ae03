/* Weber, chapter 1: dtypes, errors, scopes, the log, memory, threads. */
#ifndef WEBER_BASE_H
#define WEBER_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define WB_API
#else
#define WB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define WB_VERSION_MAJOR 0
#define WB_VERSION_MINOR 5
#define WB_VERSION_PATCH 0
WB_API const char *wb_version(void);                /* "0.5.0" */

/* ---- the kinds of object --------------------------------------------------------------------- */

typedef struct wb_tensor wb_tensor;         /* an array, known or still to be computed */
typedef struct wb_layer wb_layer;           /* a model or a part of one: a tree that can be called */
typedef struct wb_tree wb_tree;             /* named children: gradients, tuples, structs of the program */
typedef struct wb_rule wb_rule;             /* an optimiser rule: Adam and its like */
typedef struct wb_opt_state wb_opt_state;   /* a rule with its state for each parameter of a model */
typedef struct wb_dataset wb_dataset;       /* observations, by number */
typedef struct wb_loader wb_loader;         /* a dataset in batches */
typedef struct wb_progress wb_progress;     /* a progress bar */
typedef struct wb_compiled wb_compiled;     /* a function recorded once */
typedef struct wb_device wb_device;         /* where tensors live */

/* The object that means "none": no bias, no gradient.  Never NULL, which means failed. */
WB_API extern wb_tensor *const WB_NONE;

/* ---- dtypes ----------------------------------------------------------------------------------- */

/* One list, many tables: name, C type in memory, bytes, whether floating.
 * f16 and bf16 are storage: they are computed and summed in f32, and rounded when a value is put
 * into memory or cast (wb_astype).  Between operations that one kernel computes (a product, its
 * bias and its activation; the steps of an optimiser's rule) values may stay f32.  So the last
 * bit of f16 and bf16 results may depend on what is evaluated with them; WEBER_EAGER=1 rounds
 * after every operation.  Integers and bools do not depend on it: i8, u8, i32 and i64 wrap around
 * after every operation, bool is 0 or 1. */
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

typedef enum {
    WB_DTYPE_DEFAULT = 0,           /* in options: f32, or that of the other operand */
#define WB_DTYPE_ENUM(NAME, type, bytes, floating, text) WB_##NAME,
    WB_DTYPES(WB_DTYPE_ENUM)
#undef WB_DTYPE_ENUM
    WB_DTYPE_COUNT,
    WB_KEEP = 255                   /* in options of moves: whatever it is */
} wb_dtype;

enum { WB_MAX_DIMS = 8 };

WB_API const char *wb_dtype_name(wb_dtype t);       /* "f32" */
WB_API size_t wb_dtype_bytes(wb_dtype t);           /* of one element */

/* ---- options ---------------------------------------------------------------------------------- */

/* wb_Dense(784, 256, wb_relu, .no_bias = true): options are fields of a struct.  What is not given
 * has its default.  Fields before WB_BY_PLACE are given by name only; those after it also by their
 * place, and one too many is a compile error.  A field x with WB_HAS(x) or WB_NUMBER(x) may be
 * given as 0 and then is 0: the macros set has_x.  A C program that fills such a struct itself
 * sets has_x where x is 0; in C++ a number is WB_DEFAULT until it is set.  `size` is sizeof the
 * struct. */
#ifndef __cplusplus
#include "weber/each.h"
#define WB_BY_PLACE char by_place_;
/* It takes no initialiser.  A program that has such a struct inside one of its own, where C
 * allows no array without a size, may define it as nothing. */
#ifndef WB_NO_MORE
#define WB_NO_MORE char no_more_[];
#endif
#define WB_NUMBER(option) double option; bool has_##option;
#define WB_GET_(T, ...) &(T){.size = sizeof(T), .by_place_ = 0, __VA_ARGS__}
#else
#define WB_BY_PLACE char by_place_;
#define WB_NO_MORE
#define WB_NUMBER(option) double option = WB_DEFAULT; bool has_##option = true;
#endif
#define WB_HAS(option) bool has_##option;
#define WB_DEFAULT (-2.0e-300)      /* a number that is not given */
#define WB_ZERO (-1.0e-300)         /* the same as 0 in an option; older programs need it */

/* ---- errors ----------------------------------------------------------------------------------- */

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

typedef enum {
    WB_OK = 0,
#define WB_ERROR_ENUM(NAME, text) WB_ERROR_##NAME,
    WB_ERRORS(WB_ERROR_ENUM)
#undef WB_ERROR_ENUM
    WB_ERROR_COUNT
} wb_status;

/* The message of this thread's latest failure, a sentence that names what was found; "" if none.  A
 * call that is given NULL fails; it keeps the message that is there, and has one of its own only if
 * there is none.  Valid until the next call that fails, or wb_clear_error. */
WB_API const char *wb_error(void);
WB_API wb_status wb_error_code(void);               /* WB_OK if none */
WB_API void wb_clear_error(void);

/* ---- scopes ----------------------------------------------------------------------------------- */

/* Every object is counted.  A scope holds one reference to each thing that was returned while it was the
 * innermost of its thread, and drops them when it closes.  Objects hold what they are made of.
 *
 *   wb_scope *s = wb_scope_open();
 *   ... = wb_matmul(a, b) ...
 *   wb_scope_close(s);
 *
 * Closing computes all pending writes (parameter updates) and everything unevaluated that outlives
 * the scope (kept or retained).  What outlives it forgets what it was made of, so a graph never
 * outgrows one scope.  Closing an outer scope closes those inside it.
 * wb_scope_close: 0, or an error code; the scope is closed in any case.
 *
 * Each thread has a root scope, which lives until wb_shutdown (or the thread's end).  A loop that
 * opens no scope runs as fast as one that does.  In it the second wb_update (or wb_assign) to the
 * same variables computes the first, and with it the results of that step that are operands of
 * nothing: its loss can still be read.  Operands of other results, and the gradients that were
 * given to wb_update, can be read no more, unless they were evaluated before or the next step
 * uses them; nor has the old loss gradients any more (WB_ERROR_VERSION).  The memory of tensors
 * that the program was handed stays until wb_shutdown or wb_free: about 300 bytes for each, and
 * its values if it has any (3 KB a step for a Chain of two Dense layers).  A scope for each step
 * returns it. */
typedef struct wb_scope wb_scope;
WB_API wb_scope *wb_scope_open(void);
WB_API int wb_scope_close(wb_scope *scope);

/* Moves the scope's reference to the enclosing scope; drops it early; or makes it the caller's own,
 * to be given back with wb_release.  `object` is any of the kinds above; they return it.
 * Error: the object was freed.  Every function that is handed an object notices that, until the
 * memory is used again; with WEBER_DEBUG=check, for longer, and the message names the object.
 * (Behind the generic verbs wb_keep and wb_free of tensor.h.) */
WB_API void *wb_object_keep(void *object);
WB_API void wb_object_free(void *object);
WB_API void *wb_retain(void *object);
WB_API void wb_release(void *object);

/* Frees what this thread's root scope holds, plans and caches, those of devices too; devices keep their addresses, and
 * whatever is used again starts again.  For leak checkers; optional. */
WB_API void wb_shutdown(void);

/* ---- the log ---------------------------------------------------------------------------------- */

typedef enum { WB_LOG_DEBUG, WB_LOG_INFO, WB_LOG_WARN, WB_LOG_ERROR } wb_log_level;

/* Where messages go: `text` may have several lines.  NULL brings back standard error, where one line
 * prints as "[ Info: text" and several as a box. */
typedef void (*wb_log_handler)(wb_log_level level, const char *text, void *context);
WB_API void wb_set_log(wb_log_handler handler, void *context);

/* ---- memory and threads ----------------------------------------------------------------------- */

/* The allocator behind all host memory of the library: `reallocate(context, NULL, n)` allocates, with n = 0
 * it frees.  To be set before anything else is called.  Blocks must be aligned to 16 bytes. */
typedef struct {
    void *(*reallocate)(void *context, void *block, size_t bytes);
    void *context;
} wb_allocator;
WB_API void wb_set_allocator(const wb_allocator *allocator);
WB_API int64_t wb_memory_used(void);                /* bytes that the library holds now */
WB_API int64_t wb_memory_peak(void);                /* the most it ever held */

/* Threads that one evaluation may use.  At first: WEBER_NUM_THREADS, else OMP_NUM_THREADS, else the
 * processors this process may run on. */
WB_API int wb_set_threads(int n);                   /* returns the number in force */
WB_API int wb_threads(void);

/* Seeds the random numbers of this thread: layers' initial values, dropout, shuffling. */
WB_API void wb_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
