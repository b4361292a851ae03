/* What the words of the kernel dialect (ops.def) mean in C: EXP, LOG, TANH ... for the four kinds
 * of register.
 *
 * The f32 functions are free of branches and calls, so that a plain loop over one of them becomes
 * vector code with gcc and with clang (-O3 -fno-math-errno -fno-trapping-math).  The bound beside
 * each is its largest error in units in the last place (ulp) over all exponents, with and without
 * fused multiply-add; tests/scalar.c measures it.  Infinities, NaN and denormal numbers are right
 * in all of them unless the comment says otherwise.  The f64 functions are libm's.
 *
 * A file that expands ops.def says `#define WB__KIND f32` (f64, i32, i64) and includes this. */
#ifndef WB__SCALAR_H
#define WB__SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WB__OF2(word, kind) wb__##word##_##kind
#define WB__OF1(word, kind) WB__OF2(word, kind)
#define WB__OF(word) WB__OF1(word, WB__KIND)

#define K(number) ((WB__OF(type))(number))
#define ABS(x) WB__OF(abs)(x)
#define SQRT(x) WB__OF(sqrt)(x)
#define EXP(x) WB__OF(exp)(x)
#define LOG(x) WB__OF(log)(x)
#define LOG1P(x) WB__OF(log1p)(x)
#define EXPM1(x) WB__OF(expm1)(x)
#define TANH(x) WB__OF(tanh)(x)
#define SIGMOID(x) WB__OF(sigmoid)(x)
#define ERF(x) WB__OF(erf)(x)
#define SIN(x) WB__OF(sin)(x)
#define COS(x) WB__OF(cos)(x)
#define FLOOR(x) WB__OF(floor)(x)
#define POW(x, y) WB__OF(pow)(x, y)
#define GELU(x) WB__OF(gelu)(x)
#define GELU_SLOPE(x) WB__OF(gelu_slope)(x)
#define QUOTIENT(x, y) WB__OF(quotient)(x, y)

typedef float wb__type_f32;
typedef double wb__type_f64;
typedef int32_t wb__type_i32;
typedef int64_t wb__type_i64;

/* a*b + c, fused where the machine does it in one instruction */
#if defined(__FMA__) || defined(__aarch64__)
#define wb__fma(a, b, c) __builtin_fmaf(a, b, c)
#else
#define wb__fma(a, b, c) ((a) * (b) + (c))
#endif

static inline float wb__f32_of_bits(int32_t i) { float f; memcpy(&f, &i, 4); return f; }
static inline int32_t wb__bits_of_f32(float f) { int32_t i; memcpy(&i, &f, 4); return i; }

/* 2^n for n in [-126, 127] */
static inline float wb__pow2_f32(int32_t n)
{
    return wb__f32_of_bits((int32_t)(((uint32_t)n + 127u) << 23));
}

/* x*y to the nearest integer, as a float and (in *n) as an int: |x*y| < 2^22. */
static inline float wb__nearest_f32(float x, float y, int32_t *n)
{
    /* 1.5 * 2^23: the integer stands in the low bits */
    float t = wb__fma(x, y, 12582912.0f);
    *n = wb__bits_of_f32(t) - 0x4b400000;
    return t - 12582912.0f;
}

static inline float wb__abs_f32(float x) { return __builtin_fabsf(x); }
static inline float wb__sqrt_f32(float x) { return __builtin_sqrtf(x); }
static inline float wb__quotient_f32(float x, float y) { return x / y; }

/* Exact. */
static inline float wb__floor_f32(float x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return __builtin_floorf(x);
#else
    float a = __builtin_fabsf(x);
    float c = a < 8388608.0f ? x : 0.0f;                /* larger numbers are integers */
    float t = (float)(int32_t)c;
    t -= t > c ? 1.0f : 0.0f;
    t = __builtin_copysignf(t, x);                      /* -0 stays */
    return a < 8388608.0f ? t : x;
#endif
}

/* e^r - 1 = r + r^2 q(r) for |r| <= 0.35; relative error 3e-9 */
static inline float wb__exp_q_f32(float r)
{
    float q = 1.394757527e-3f;
    q = wb__fma(q, r, 8.367234104e-3f);
    q = wb__fma(q, r, 4.166626698e-2f);
    q = wb__fma(q, r, 1.666653815e-1f);
    return wb__fma(q, r, 0.5f);
}

/* x = n ln 2 + r, |r| <= 0.35, for |x| < 2^14 */
static inline float wb__exp_reduce_f32(float x, int32_t *n)
{
    float t = wb__nearest_f32(x, 1.44269504f, n);
    float r = wb__fma(t, -0.693145751953125f, x);       /* 15 bits: the product is exact */
    return wb__fma(t, -1.42860682e-6f, r);
}

/* 1.1 ulp */
static inline float wb__exp_f32(float x)
{
    int32_t n;
    float c = 89.0f < x ? 89.0f : x;
    c = -104.0f > c ? -104.0f : c;
    float r = wb__exp_reduce_f32(c, &n);
    float p = wb__fma(r * r, wb__exp_q_f32(r), r) + 1.0f;
    /* in two factors, so that denormal results come out */
    int32_t half = n >> 1;
    return p * wb__pow2_f32(half) * wb__pow2_f32(n - half);
}

/* 2 ulp */
static inline float wb__expm1_f32(float x)
{
    int32_t n;
    float c = 89.0f < x ? 89.0f : x;
    c = -30.0f > c ? -30.0f : c;
    float r = wb__exp_reduce_f32(c, &n);
    float p = wb__fma(r * r, wb__exp_q_f32(r), r);
    float s = wb__pow2_f32(n - 1);                      /* 2^n overflows at n = 128 */
    float y = 2.0f * wb__fma(s, p, s - 0.5f);
    return __builtin_fabsf(x) < 1e-20f ? x : y;
}

/* log(1 + f) + k ln 2 + low, for f in [-0.293, 0.4143] */
static inline float wb__log_tail_f32(float f, float k, float low)
{
    float s = f / (2.0f + f);
    float z = s * s;
    float R = wb__fma(z, 0.2357911294f, 0.285374926f);
    R = wb__fma(z, R, 0.4000033172f);
    R = wb__fma(z, R, 0.6666666567f) * z;
    float h = 0.5f * f * f;
    float t = wb__fma(s, h + R, wb__fma(k, 1.42860682e-6f, low));
    return wb__fma(k, 0.693145751953125f, (t - h) + f);
}

/* 1 ulp */
static inline float wb__log_f32(float x)
{
    int32_t tiny = x < 1.17549435e-38f;
    float y = tiny ? x * 8388608.0f : x;
    int32_t i = (int32_t)((uint32_t)wb__bits_of_f32(y) - 0x3f3504f3u);        /* sqrt(1/2) */
    int32_t k = i >> 23;
    float m = wb__f32_of_bits((int32_t)((uint32_t)wb__bits_of_f32(y) - ((uint32_t)k << 23)));
    float r = wb__log_tail_f32(m - 1.0f, (float)(k - (tiny ? 23 : 0)), 0.0f);
    r = x == 0.0f ? -INFINITY : x < 0.0f ? NAN : r;
    return x < INFINITY ? r : x + x;                    /* infinity, NaN */
}

/* 1.5 ulp */
static inline float wb__log1p_f32(float x)
{
    int32_t small = (x > -0.29289f) & (x < 0.41421f);
    float u = 1.0f + x;
    int32_t k = (int32_t)((uint32_t)wb__bits_of_f32(u) - 0x3f3504f3u) >> 23;
    float m = wb__f32_of_bits((int32_t)((uint32_t)wb__bits_of_f32(u) - ((uint32_t)k << 23)));
    float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float low = lost / u;
    float r = wb__log_tail_f32(small ? x : m - 1.0f, small ? 0.0f : (float)k, small ? 0.0f : low);
    r = x == -1.0f ? -INFINITY : x < -1.0f ? NAN : r;
    r = __builtin_fabsf(x) < 1e-20f ? x : r;
    return x < INFINITY ? r : x + x;
}

/* 2.5 ulp */
static inline float wb__tanh_f32(float x)
{
    float a = __builtin_fabsf(x);
    float t = wb__expm1_f32(2.0f * (a > 10.0f ? 10.0f : a));
    return __builtin_copysignf(t / (t + 2.0f), x);
}

/* 2.1 ulp */
static inline float wb__sigmoid_f32(float x)
{
    float e = wb__exp_f32(-__builtin_fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* 1.5 ulp.  x (1 + P(x^2)) up to 1, and 1 - exp(-x Q(x)) above. */
static inline float wb__erf_f32(float x)
{
    float a = __builtin_fabsf(x), z = x * x;
    float p = 7.853860784e-5f;
    p = wb__fma(p, z, -8.010193446e-4f);
    p = wb__fma(p, z, 5.188327665e-3f);
    p = wb__fma(p, z, -2.685381192e-2f);
    p = wb__fma(p, z, 1.128358515e-1f);
    p = wb__fma(p, z, -3.761262582e-1f);
    p = wb__fma(p, z, 1.283791657e-1f);
    p = wb__fma(p, x, x);
    float t = a > 4.0f ? 4.0f : a;
    float q = 1.233937904e-5f;
    q = wb__fma(q, t, -3.339595768e-4f);
    q = wb__fma(q, t, 3.688105626e-3f);
    q = wb__fma(q, t, -2.385926725e-2f);
    q = wb__fma(q, t, 1.063505604e-1f);
    q = wb__fma(q, t, 6.350820348e-1f);
    q = wb__fma(q, t, 1.128665693f);
    float y = __builtin_copysignf(1.0f - wb__exp_f32(-t * q), x);
    return a < 1.0f ? p : y;
}

/* Beyond this sin and cos are NaN here, and the caller's business (libm). */
#define WB__TRIG_BOUND 1.0e6f

/* sin(x + quarter*pi/2) in double.  The quadrant n is below 2^20, so n times the first 33 bits of
 * pi/2 is exact. */
static inline float wb__trig_f32(float x, int32_t quarter)
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

/* 1 ulp up to WB__TRIG_BOUND */
static inline float wb__sin_f32(float x) { float y = wb__trig_f32(x, 0); return x == 0.0f ? x : y; }
static inline float wb__cos_f32(float x) { return wb__trig_f32(x, 1); }

static inline float wb__pow_f32(float x, float y) { return powf(x, y); }

/* x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
static inline float wb__gelu_f32(float x)
{
    return x * wb__sigmoid_f32(x * wb__fma(x * x, 0.0713548163f, 1.59576912f));
}

/* s + x s (1 - s) (2u)', s = sigmoid(2u); 4 ulp above -0.5, 1e-6 below, where it crosses 0 */
static inline float wb__gelu_slope_f32(float x)
{
    float c = 20.0f < x ? 20.0f : x;
    c = -20.0f > c ? -20.0f : c;
    float z = c * c;
    float v = c * wb__fma(z, 0.0713548163f, 1.59576912f), e = wb__exp_f32(-__builtin_fabsf(v));
    float t = 1.0f / (1.0f + e);
    return wb__fma(c * e * t * t, wb__fma(z, 0.2140644488f, 1.59576912f), v < 0.0f ? e * t : t);
}

static inline double wb__abs_f64(double x) { return __builtin_fabs(x); }
static inline double wb__sqrt_f64(double x) { return sqrt(x); }
static inline double wb__exp_f64(double x) { return exp(x); }
static inline double wb__log_f64(double x) { return log(x); }
static inline double wb__log1p_f64(double x) { return log1p(x); }
static inline double wb__expm1_f64(double x) { return expm1(x); }
static inline double wb__tanh_f64(double x) { return tanh(x); }
static inline double wb__erf_f64(double x) { return erf(x); }
static inline double wb__sin_f64(double x) { return sin(x); }
static inline double wb__cos_f64(double x) { return cos(x); }
static inline double wb__floor_f64(double x) { return floor(x); }
static inline double wb__pow_f64(double x, double y) { return pow(x, y); }
static inline double wb__quotient_f64(double x, double y) { return x / y; }

static inline double wb__sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

static inline double wb__gelu_f64(double x)
{
    return x * wb__sigmoid_f64(x * (1.5957691216057307 + 0.07135481627260025 * x * x));
}

static inline double wb__gelu_slope_f64(double x)
{
    double c = x > 40 ? 40 : x < -40 ? -40 : x, z = c * c;
    double s = wb__sigmoid_f64(c * (1.5957691216057307 + 0.07135481627260025 * z));
    return s + c * s * (1 - s) * (1.5957691216057307 + 0.21406444881780075 * z);
}

/* Integers wrap around; a quotient is truncated, and by 0 it is 0. */
static inline int32_t wb__abs_i32(int32_t x) { return x < 0 ? (int32_t)(0u - (uint32_t)x) : x; }
static inline int64_t wb__abs_i64(int64_t x)
{
    return x < 0 ? (int64_t)(UINT64_C(0) - (uint64_t)x) : x;
}

static inline int32_t wb__quotient_i32(int32_t x, int32_t y)
{
    return y == 0 ? 0 : y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

static inline int64_t wb__quotient_i64(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(UINT64_C(0) - (uint64_t)x) : x / y;
}

#endif
