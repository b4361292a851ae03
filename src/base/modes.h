/* The floating-point modes of a thread: the direction of rounding, and whether numbers below the
 * normal ones are computed as 0.  A program may set them at any time, and a thread has its own.
 * Threads of the library take over those of the thread that they work for (wb__modes_take), so that
 * one result is not rounded in two directions, or flushed in part.
 *
 * The flags and masks of exceptions stay the thread's own. */
#ifndef WB__MODES_H
#define WB__MODES_H

#include <stdint.h>

/* Each part below defines WB__MODES_KNOWN if flushing is among the modes that it reads. */
#if defined(__SSE2_MATH__)
#define WB__MODES_KNOWN 1
#include <xmmintrin.h>

/* MXCSR: rounding, flush-to-zero, denormals-are-zero.  The x87 unit, which only C numbers of type
 * long double use here, is left alone.  Where the x87 unit computes all floating numbers (32-bit
 * code without -mfpmath=sse), <fenv.h> below sets the rounding of both. */
enum { WB__MODES_MASK = 0x6000 | 0x8000 | 0x0040 };
typedef unsigned wb__modes;

static inline wb__modes wb__modes_register(void) { return _mm_getcsr(); }
static inline void wb__modes_write(wb__modes m) { _mm_setcsr(m); }

#elif defined(__aarch64__)
#define WB__MODES_KNOWN 1

/* FPCR: FIZ, AH and NEP; FZ16, the rounding, FZ, DN (one NaN for all NaN). */
enum { WB__MODES_MASK = 0x7 | 1 << 19 | 3 << 22 | 1 << 24 | 1 << 25 };
typedef uint64_t wb__modes;

static inline wb__modes wb__modes_register(void)
{
    wb__modes m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m));
    return m;
}

static inline void wb__modes_write(wb__modes m) { __asm__ volatile("msr fpcr, %0" : : "r"(m)); }

#else
#define WB__MODES_KNOWN 0
#include <fenv.h>

enum { WB__MODES_MASK = -1 };
typedef int wb__modes;

static inline wb__modes wb__modes_register(void) { return fegetround(); }
static inline void wb__modes_write(wb__modes m) { fesetround(m); }
#endif

/* Returns the modes of this thread. */
static inline wb__modes wb__modes_now(void)
{
    return wb__modes_register() & (wb__modes)WB__MODES_MASK;
}

/* Sets the modes of this thread to `m`, those of another one.  Equal modes are not written. */
static inline void wb__modes_take(wb__modes m)
{
    const wb__modes now = wb__modes_register(), mask = (wb__modes)WB__MODES_MASK;
    if (__builtin_expect((now & mask) != m, 0)) wb__modes_write((now & ~mask) | m);
}

#endif
