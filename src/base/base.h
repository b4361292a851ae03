/* The ground floor: errors that travel, one allocator, dtypes, the log.  Everything may include
 * this. */
#ifndef WB__BASE_H
#define WB__BASE_H

#ifndef WB_NO_MORE                  /* structs of ours hold structs of options */
#define WB_NO_MORE
#endif
#include "weber.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WB__PRINTF(f, a) __attribute__((format(printf, f, a)))
#define wb__likely(x) __builtin_expect(!!(x), 1)
#define wb__unlikely(x) __builtin_expect(!!(x), 0)
#else
#define WB__PRINTF(f, a)
#define wb__likely(x) (x)
#define wb__unlikely(x) (x)
#endif

#define WB__COUNT(a) (sizeof(a) / sizeof *(a))
#define WB__MIN(a, b) ((a) < (b) ? (a) : (b))
#define WB__MAX(a, b) ((a) > (b) ? (a) : (b))

/* Errors.  wb__fail sets this thread's message and returns the code; it never allocates, and the
 * new message may quote wb_error().  The first message of a chain stays: a call that is given NULL
 * keeps the error that is there (WB__NULL). */
int wb__fail(int code, const char *format, ...) WB__PRINTF(2, 3);
void *wb__fail_null(int code, const char *format, ...) WB__PRINTF(2, 3);
/* The code of this thread's error, or `code` where none is set. */
int wb__error_or(int code);
/* Is the argument x of this public function NULL?  Then that is an error, unless there is one
 * already: x is NULL because of that.  In a function that is not public: wb__null with the public
 * one's name. */
#define WB__NULL(x) (!(x) && wb__null(__func__, #x))
bool wb__null(const char *function, const char *argument);      /* true */
/* How many errors this thread has had; and the place of the latest in a model, part by part from within: "layers.3",
 * which makes "Dense: ..." "layers.3: Dense: ...", and "0: Dense: ..." "layers.3.0: Dense: ...". */
unsigned wb__failures(void);
void wb__failed_in(const char *folder, const char *part);

/* This thread's room for a text that a call gives back; zero at first. */
enum { WB__THREAD_TEXT_BYTES = 2048, WB__ERROR_BYTES = 8192 };
typedef enum { WB__TEXT_TENSORS, WB__TEXT_DEVICES, WB__TEXT_REASON, WB__TEXT_ERROR } wb__thread_text_kind;
char *wb__thread_text(wb__thread_text_kind which);

/* Memory.  All host memory of the library comes from here; a test can make the n-th call fail.
 * NULL means the error is set (WB_ERROR_MEMORY).  Blocks are 64-byte aligned when asked for by
 * wb__alloc_aligned, 16 otherwise; wb__free takes either kind, and NULL. */
void *wb__alloc(size_t bytes);
void *wb__alloc_zero(size_t count, size_t size);          /* checks count * size */
void *wb__alloc_aligned(size_t bytes);
void *wb__realloc(void *block, size_t bytes);             /* blocks of wb__alloc only */
void wb__free(void *block);
/* Growing arrays.  `list` is the address of a pointer to elements of `each` bytes: the array gets
 * room for `want` of them, and *capacity is how many it has room for.  False: no memory, and nothing
 * changed. */
bool wb__grow(void *list, int *capacity, int want, size_t each);
static inline bool wb__reserve(void *list, int *capacity, int want, size_t each)
{
    return wb__likely(want <= *capacity) || wb__grow(list, capacity, want, each);
}
char *wb__strdup(const char *s);
char *wb__printf(const char *format, ...) WB__PRINTF(1, 2);   /* allocated text */

/* Small objects of one size come and go at every step: they are kept on a list of their thread.
 * `bytes` must be the same in both calls; the contents are not kept.  wb__pool_trim gives back what
 * this thread's lists hold. */
void *wb__pool_get(size_t bytes);
void wb__pool_put(void *block, size_t bytes);
void wb__pool_trim(void);

/* For tests: the n-th allocation from now on fails, once; 0 stops watching.  While watched, nothing
 * is taken from the pool's lists, so each wb__pool_get counts.  WEBER_FAIL_ALLOC=n does the same
 * from the process's start. wb__alloc_count: allocations since the last wb__alloc_fail_at (else
 * since the start). */
void wb__alloc_fail_at(int64_t n);
int64_t wb__alloc_count(void);
extern _Atomic bool wb__alloc_watched;

/* dtypes */
size_t wb__dtype_size(wb_dtype t);
bool wb__dtype_float(wb_dtype t);
float wb__f16_to_f32(uint16_t h);
uint16_t wb__f32_to_f16(float f);                         /* to nearest even */
float wb__bf16_to_f32(uint16_t h);
uint16_t wb__f32_to_bf16(float f);
/* n elements from one dtype to another, rounding once, to nearest even.  Floats to integers
 * truncate and saturate, NaN is 0; integers to narrower ones wrap, as in C; to bool: whether it is
 * not 0 (NaN is not).  The arrays may be the same one where the sizes of the elements are equal,
 * else they must not overlap. */
void wb__convert(void *to, wb_dtype to_type, const void *from, wb_dtype from_type, int64_t n);

/* The log: to standard error in Julia's shape, or to the handler of wb_set_log. */
void wb__log(wb_log_level level, const char *format, ...) WB__PRINTF(2, 3);
/* Whether WEBER_DEBUG (read once; topics with commas between, or "all") names this topic: load,
 * plan, dispatch, kernel, check, sync. */
bool wb__debug(const char *topic);
double wb__now(void);                                     /* seconds, monotonic */

#endif
