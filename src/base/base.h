/* The lowest layer: errors, the allocator, dtypes, the log.  Every file may include it. */
#ifndef WB__BASE_H
#define WB__BASE_H

/* Checks for NaN, the order of sums and the tables of kernels need IEEE 754. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "-ffast-math, -Ofast: Weber would not find NaN or infinity: add -fno-fast-math for its files"
#endif

#ifndef WB_NO_MORE                  /* see weber/base.h; empty here, so that a struct of options can
                                       be a member of another struct */
#define WB_NO_MORE
#endif
#include "weber.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WB__PRINTF WB_PRINTF_
#if defined(__GNUC__)
#define wb__likely(x) __builtin_expect(!!(x), 1)
#define wb__unlikely(x) __builtin_expect(!!(x), 0)
#else
#define wb__likely(x) (x)
#define wb__unlikely(x) (x)
#endif

#define WB__COUNT(a) (sizeof(a) / sizeof *(a))
#define WB__MIN(a, b) ((a) < (b) ? (a) : (b))
#define WB__MAX(a, b) ((a) > (b) ? (a) : (b))
/* n / d, rounded up; and the size of an array that another one follows in a workspace. */
static inline int64_t wb__quotient_up(int64_t n, int64_t d) { return (n + d - 1) / d; }
static inline size_t wb__aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* Errors.  wb__fail sets the message and the code of this thread, and returns the code.  It needs
 * no memory of the allocator, and the new message may quote wb_error().  In a chain of calls the
 * first message stays: a call that receives NULL keeps the error that is set (WB__NULL). */
int wb__fail(int code, const char *format, ...) WB__PRINTF(2, 3);
void *wb__fail_null(int code, const char *format, ...) WB__PRINTF(2, 3);
/* Returns the code of this thread's error, or `code` if none is set. */
int wb__error_or(int code);
/* Whether the argument x of this public function is NULL.  Sets an error, unless an error is set
 * already (then x is NULL because of that error).  Other functions call wb__null with the name of
 * the public function. */
#define WB__NULL(x) (!(x) && wb__null(__func__, #x))
bool wb__null(const char *function, const char *argument);      /* returns true */
/* Returns the number of this thread's errors.  wb__failed_in prepends the position folder.part of a
 * child layer to the error message, and is called for the innermost child first.  For "layers" and
 * "3", the message "Dense: ..." becomes "layers.3: Dense: ...".  A message that already has a
 * position, such as "layers.0: Dense: ...", becomes "layers.3.layers.0: Dense: ...". */
unsigned wb__failures(void);
void wb__failed_in(const char *folder, const char *part);

/* Whether the text begins with `with`. */
static inline bool wb__begins(const char *text, const char *with)
{
    while (*with && *text == *with) text++, with++;
    return !*with;
}

/* Adds a word to a hash value. */
static inline uint64_t wb__mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

/* Thread-local buffers for texts that public functions return; zero at first. */
enum { WB__THREAD_TEXT_BYTES = 2048, WB__ERROR_BYTES = 8192 };
typedef enum {
    WB__TEXT_TENSORS, WB__TEXT_DEVICES, WB__TEXT_REASON, WB__TEXT_DRIVER, WB__TEXT_ENTRY,
    WB__TEXT_ERROR
} wb__thread_text_kind;
char *wb__thread_text(wb__thread_text_kind which);

/* Save and restore this thread's error around calls that must not change it. */
typedef struct { int code; char text[WB__ERROR_BYTES]; } wb__error_kept;
void wb__error_keep(wb__error_kept *k);
void wb__error_restore(const wb__error_kept *k);

/* Memory on the host.  A function that fails to allocate returns NULL with the error set
 * (WB_ERROR_MEMORY).  Blocks of wb__alloc_aligned are aligned to 64 bytes, others to 16.  wb__free
 * accepts both, and NULL. */
void *wb__alloc(size_t bytes);
void *wb__alloc_zero(size_t count, size_t size);          /* fails if count * size overflows */
void *wb__alloc_aligned(size_t bytes);
void *wb__realloc(void *block, size_t bytes);  /* for blocks of wb__alloc and wb__alloc_zero only */
void wb__free(void *block);
/* Makes room for at least `n` elements of `each` bytes in an array, as wb__reserve does.  `list` is
 * the address of the pointer to the array, and *capacity the number of elements that fit.  False:
 * out of memory, and the array is unchanged. */
bool wb__grow(void *list, int *capacity, int n, size_t each);
static inline bool wb__reserve(void *list, int *capacity, int n, size_t each)
{
    return wb__likely(n <= *capacity) || wb__grow(list, capacity, n, each);
}
char *wb__strdup(const char *s);
char *wb__printf(const char *format, ...) WB__PRINTF(1, 2);   /* allocated text */

/* snprintf, vsnprintf and strtod with a decimal point, whatever the program's locale is.  All texts
 * with numbers that are not whole are made and read with these. */
int wb__plain(char *to, size_t bytes, const char *format, ...) WB__PRINTF(3, 4);
int wb__plain_list(char *to, size_t bytes, const char *format, va_list arguments) WB__PRINTF(3, 0);
double wb__plain_number(const char *text, char **stop);

/* Returns memory for a small object.  wb__pool_put keeps a block on a list of the calling thread,
 * from which wb__pool_get takes blocks.  `bytes` must be the same in both calls.  The contents of a
 * block from wb__pool_get are undefined.  wb__pool_trim frees the blocks on the lists of the
 * calling thread. */
static inline void *wb__pool_get(size_t bytes);
static inline void wb__pool_put(void *block, size_t bytes);
void wb__pool_trim(void);

/* Makes the n-th allocation from now on fail, once, for tests; wb__alloc_fail_at(0) ends the count.
 * While allocations are counted (wb__alloc_watched), the pool keeps no blocks, so that each
 * wb__pool_get counts.  WEBER_FAIL_ALLOC=n does the same from the start of the process.
 * wb__alloc_count returns the count since the last wb__alloc_fail_at, or since the start. */
void wb__alloc_fail_at(int64_t n);
int64_t wb__alloc_count(void);
extern _Atomic bool wb__alloc_watched;
static inline bool wb__alloc_is_watched(void)
{
    return atomic_load_explicit(&wb__alloc_watched, memory_order_relaxed);
}

/* WB__FAST_TLS makes access to a thread-local variable fast.  The variable must be small, since
 * glibc reserves only a few hundred bytes for such variables of libraries that are loaded late. */
#if defined(__GLIBC__)
#define WB__FAST_TLS __attribute__((tls_model("initial-exec")))
#else
#define WB__FAST_TLS
#endif

/* The lists of the pool (pool.c).  The pool does not write to `first`, the first word of a free
 * block.  In a freed object this word is wb__freed_class, by which a later use of the object is
 * detected. */
enum { WB__POOL_STEP = 64, WB__POOL_CLASSES = 16 };
typedef struct wb__pool_block { void *first; struct wb__pool_block *next; } wb__pool_block;
typedef struct {
    wb__pool_block *first[WB__POOL_CLASSES];    /* first block of the list for each size class */
    uint16_t room[WB__POOL_CLASSES];        /* number of further blocks that each list takes */
    bool noted;                             /* pool_thread_end will run when the thread ends */
} wb__pool;
extern _Thread_local WB__FAST_TLS wb__pool wb__pool_mine;
void *wb__pool_miss(size_t bytes);      /* wb__pool_get of a block from the allocator */
void wb__pool_full(void *block, size_t bytes);      /* wb__pool_put for a list without room */

static inline void *wb__pool_get(size_t bytes)
{
    const size_t c = (bytes - 1) / WB__POOL_STEP;
    wb__pool *p = &wb__pool_mine;
    if (wb__unlikely(c >= WB__POOL_CLASSES || !p->first[c] || wb__alloc_is_watched()))
        return wb__pool_miss(bytes);
    wb__pool_block *block = p->first[c];
    p->first[c] = block->next;
    p->room[c]++;
    return block;
}

static inline void wb__pool_put(void *block, size_t bytes)
{
    const size_t c = (bytes - 1) / WB__POOL_STEP;
    wb__pool *p = &wb__pool_mine;
    if (wb__unlikely(c >= WB__POOL_CLASSES || !block || !p->room[c] || wb__alloc_is_watched())) {
        wb__pool_full(block, bytes);
        return;
    }
    ((wb__pool_block *)block)->next = p->first[c];
    p->first[c] = block;
    p->room[c]--;
}

/* An exception of C++, which a thread keeps until it throws the exception again (catch.c). */
typedef struct {
    void *what;                         /* the exception; NULL: none */
    void (*again)(void *what), (*drop)(void *what);  /* throws it; frees it */
} wb__thrown;
/* Runs run(arg), which calls a function of the program.  False, with the error set: the function
 * has thrown an exception, which is kept.  Where tensors are known, wb__call_program is used. */
bool wb__call_caught(void (*run)(void *arg), void *arg);
/* Calls wb__call_program (engine/object.h), for the backends; the engine's first thread sets it. */
extern bool (*wb__backend_calls)(void (*run)(void *arg), void *arg);
bool wb__has_thrown(void);
/* Returns this thread's exception, which the thread no longer has.  wb__thrown_give gives it to the
 * calling thread, which has waited for the first one. */
wb__thrown wb__thrown_take(void);
void wb__thrown_give(wb__thrown thrown);
void wb__thrown_drop(void);
void wb__throw_again(void);             /* throws the kept exception through the caller's frame */
/* Defines `arguments`, a struct of the `fields` and of the result of `call`, which is an expression
 * with `c`, a pointer to the struct; and `run`, a function for wb__call_program. */
#define WB__PROGRAM_CALL(arguments, run, type, fields, call) \
    typedef struct { fields type result; } arguments;       \
    static void run(void *arg)                              \
    {                                                       \
        arguments *c = arg;                                 \
        c->result = call;                                   \
    }

/* dtypes */
size_t wb__dtype_size(wb_dtype t);
bool wb__dtype_float(wb_dtype t);
static inline bool wb__is_half(int t) { return t == WB_F16 || t == WB_BF16; }
float wb__f16_to_f32(uint16_t h);
uint16_t wb__f32_to_f16(float f);                         /* rounds to nearest even */
float wb__bf16_to_f32(uint16_t h);
uint16_t wb__f32_to_bf16(float f);
/* Rounds d to f32 towards zero, and sets the last bit if that is not d: rounded to f16 or bf16, the
 * result gives the same number as d. */
float wb__f64_to_odd(double d);
/* Converts n elements from one dtype to another, rounding once, to nearest even.  Floats to
 * integers truncate and saturate, and NaN becomes 0.  Integers to narrower integers wrap around.
 * To bool: whether the value is not 0; NaN is true.  `to` and `from` may be equal if both dtypes
 * have the same size; else the arrays must not overlap. */
void wb__convert(void *to, wb_dtype to_type, const void *from, wb_dtype from_type, int64_t n);

/* Writes to the log: to standard error in the format of Julia's logging, or to the handler of
 * wb_set_log. */
void wb__log(wb_log_level level, const char *format, ...) WB__PRINTF(2, 3);
/* Sets whether messages of WB_LOG_INFO, which each rank would repeat, are dropped.  Where ranks are
 * threads, all but the first rank of the process drop them in any case. */
void wb__log_without_info(bool without);
/* The rank for which this thread works, if the ranks of a process are threads: its number among
 * them, from 1.  0: the thread works for the process.  Threads that the library makes have the
 * number of the thread for which they work. */
extern _Thread_local int wb__thread_rank;
/* Whether the environment variable WEBER_DEBUG has this topic.  The variable is read once, and is
 * "all" or, separated by commas, any of load, stages, plan, dispatch, kernel, check, sync, dist. */
bool wb__debug(const char *topic);
double wb__now(void);                                     /* seconds, monotonic */

#endif
