/* Defines for the CPU the types and macros that formulas.h and ops.def use.  The f64 functions are
 * those of libm.  A file that expands ops.def defines KIND as f32, f64, i32 or i64 and includes
 * this file. */
#ifndef WB__DIALECT_H
#define WB__DIALECT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define FN static inline
#define HAS_F64

/* Computes a*b + c, rounded once if the processor has an instruction for it. */
#if defined(__FMA__) || defined(__aarch64__)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif


FN f32 wb__f32_of_bits(u32 u) { f32 f; memcpy(&f, &u, 4); return f; }
FN u32 wb__bits_of_f32(f32 f) { u32 u; memcpy(&u, &f, 4); return u; }
#define U_AS_F(x) wb__f32_of_bits(x)
#define F_AS_U(x) wb__bits_of_f32(x)
#define F_AS_I(x) ((i32)wb__bits_of_f32(x))
#define MULHI(x, y) ((u32)((u64)(x) * (y) >> 32))
#define INFINITE INFINITY
#define NOT_A_NUMBER NAN

/* Returns the largest integer that is not above x, exactly; -0 and NaN stay. */
FN float wb__floor(float x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return __builtin_floorf(x);
#else
    float a = __builtin_fabsf(x);
    float c = a < 8388608.0f ? x : 0.0f;                /* larger numbers are integers already */
    float t = (float)(int32_t)c;
    t -= t > c ? 1.0f : 0.0f;
    t = __builtin_copysignf(t, x);                      /* keeps -0 */
    return a < 8388608.0f ? t : x;
#endif
}

/* The largest |x| of wb__sine and wb__cosine: above it they are NaN, and backend/cpu/tile/rows.h
 * calls libm instead. */
#define WB__TRIG_BOUND 1.0e6f

/* Returns sin(x + quarter*pi/2), computed in double.  |n| is below 2^20, so n times the first 33
 * bits of pi/2 is exact. */
FN float wb__trig(float x, int32_t quarter)
{
    float c = __builtin_fabsf(x) <= WB__TRIG_BOUND ? x : NAN;
    double t = (double)c * 0.63661977236758134308 + 6755399441055744.0;
    int64_t bits;
    memcpy(&bits, &t, 8);
    double n = t - 6755399441055744.0;
    double r = ((double)c - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    double z = r * r;
    int64_t k = bits + quarter;
    double s = 1.0 / 362880 - z * (1.0 / 39916800), o = 1.0 / 40320 - z * (1.0 / 3628800);
    s = -1.0 / 5040 + z * s;
    s = 1.0 / 120 + z * s;
    s = -1.0 / 6 + z * s;
    s = r + r * z * s;
    o = -1.0 / 720 + z * o;
    o = 1.0 / 24 + z * o;
    o = 1 + z * (-0.5 + z * o);
    double y = k & 1 ? o : s;
    return (float)(k & 2 ? -y : y);
}

/* Returns sin x.  The error here and of wb__cosine is at most 1 ulp for |x| up to
 * WB__TRIG_BOUND. */
FN float wb__sine(float x) { float y = wb__trig(x, 0); return x == 0.0f ? x : y; }
FN float wb__cosine(float x) { return wb__trig(x, 1); }

#define ROOT_(x) sqrtf(x)
#define SIZE_(x) __builtin_fabsf(x)
#define SIGNED_(x, y) __builtin_copysignf(x, y)
#define TIMES_2_112_(u) (U_AS_F(u) * 5.192296858534828e33f)
#define FLOOR_(x) wb__floor(x)
#define SINE_(x) wb__sine(x)
#define COSINE_(x) wb__cosine(x)
#define POWER_(x, y) powf(x, y)

#include "base/numbers/formulas.h"

FN f32 odd_of_f32(f32 f) { return f; }
FN f32 odd_of_i32(i32 i) { return odd_of_f64((f64)i); }
/* Returns i rounded to odd as f32.  An integer of 2^53 or more is first rounded to odd itself: its
 * last 11 bits are cleared, and if one was set, bit 11 is set. */
FN f32 odd_of_i64(i64 i)
{
    u64 m = i < 0 ? 0 - (u64)i : (u64)i;
    m = m >> 53 ? (m >> 11 | ((m & 2047) != 0)) << 11 : m;
    return odd_of_f64(i < 0 ? -(f64)m : (f64)m);
}

#endif
