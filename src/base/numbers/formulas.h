/* Formulas written once for the CPU (base/numbers/dialect.h) and for GPUs (backend/gpu/prelude.k
 * includes this text), so that devices agree with the CPU within a few ulp.  This file includes
 * nothing: those two files define the types and macros that it uses. */
#ifndef WB__FORMULAS_H
#define WB__FORMULAS_H

#define U64(lo, hi) ((u64)(hi) << 32 | (u64)(lo))

/* ---- the functions of ops.def -----------------------------------------------------------------
 *
 * KIND is the type of the operands: f32, f64, i32 or i64.  If KIND is f32, EXP(x) is exp_f32(x). */

#define JOIN2_(a, b) a##b
#define JOIN_(a, b) JOIN2_(a, b)
#define K(number) ((KIND)(number))
#define ABS(x) JOIN_(abs_, KIND)(x)
#define SQRT(x) JOIN_(sqrt_, KIND)(x)
#define EXP(x) JOIN_(exp_, KIND)(x)
#define LOG(x) JOIN_(log_, KIND)(x)
#define LOG1P(x) JOIN_(log1p_, KIND)(x)
#define EXPM1(x) JOIN_(expm1_, KIND)(x)
#define TANH(x) JOIN_(tanh_, KIND)(x)
#define SIGMOID(x) JOIN_(sigmoid_, KIND)(x)
#define ERF(x) JOIN_(erf_, KIND)(x)
#define SIN(x) JOIN_(sin_, KIND)(x)
#define COS(x) JOIN_(cos_, KIND)(x)
#define FLOOR(x) JOIN_(floor_, KIND)(x)
#define POW(x, y) JOIN_(pow_, KIND)(x, y)
#define GELU(x) JOIN_(gelu_, KIND)(x)
#define GELU_SLOPE(x) JOIN_(gelu_slope_, KIND)(x)
#define QUOTIENT(x, y) JOIN_(quotient_, KIND)(x, y)

/* ---- f32 ---------------------------------------------------------------------------------------
 *
 * The functions have no branches and no calls, except pow_f32, so that gcc and clang vectorise a
 * plain loop over a function (-O3 -fno-math-errno -fno-trapping-math).  A comment "the error is at
 * most 2 ulp" gives the largest error, in units in the last place, over all exponents, with and
 * without fused multiply-add.  tests/base/scalar.c measures it.  Infinities, NaN and denormal
 * numbers are right in all functions, except where a comment names an exception. */

FN f32 abs_f32(f32 x) { return SIZE_(x); }
FN f32 sqrt_f32(f32 x) { return ROOT_(x); }
FN f32 floor_f32(f32 x) { return FLOOR_(x); }
FN f32 sin_f32(f32 x) { return SINE_(x); }
FN f32 cos_f32(f32 x) { return COSINE_(x); }
FN f32 pow_f32(f32 x, f32 y) { return POWER_(x, y); }
FN f32 quotient_f32(f32 x, f32 y) { return x / y; }

/* Returns 2^n for n in [-126, 127]. */
FN f32 pow2_f32(i32 n) { return U_AS_F(((u32)n + 127u) << 23); }

/* Returns q(r) in e^r - 1 = r + r^2 q(r), for |r| <= 0.35.  The relative error of r + r^2 q(r) is
 * 2e-8. */
FN f32 exp_q_f32(f32 r)
{
    f32 q = 1.394757527e-3f;
    q = FMA(q, r, 8.367234104e-3f);
    q = FMA(q, r, 4.166626698e-2f);
    q = FMA(q, r, 1.666653815e-1f);
    return FMA(q, r, 0.5f);
}

/* Returns 1.5*2^23 + n, a float whose low bits are n, the integer nearest to x / ln 2, for |x| <
 * 2^14. exp_n_f32 returns n for that float.  x = n ln 2 + r with |r| <= 0.35. */
FN f32 exp_whole_f32(f32 x) { return FMA(x, 1.44269504f, 12582912.0f); }
FN i32 exp_n_f32(f32 whole) { return F_AS_I(whole) - 0x4b400000; }

/* Returns r for x and the result `whole` of exp_whole_f32.  n ln 2 is subtracted in two parts.  In
 * the first part ln 2 has 15 bits, so that the product with n is exact. */
FN f32 exp_rest_f32(f32 x, f32 whole)
{
    f32 n = whole - 12582912.0f;
    f32 r = FMA(n, -0.693145751953125f, x);
    return FMA(n, -1.42860682e-6f, r);
}

/* Returns e^x; the error is at most 1.1 ulp. */
FN f32 exp_f32(f32 x)
{
    f32 c = 89.0f < x ? 89.0f : x;
    c = -104.0f > c ? -104.0f : c;
    f32 whole = exp_whole_f32(c), r = exp_rest_f32(c, whole);
    i32 n = exp_n_f32(whole), h = n >> 1;
    f32 p = FMA(r * r, exp_q_f32(r), r) + 1.0f;
    return p * pow2_f32(h) * pow2_f32(n - h);           /* two factors, for denormal results */
}

/* Returns e^x - 1; the error is at most 2 ulp. */
FN f32 expm1_f32(f32 x)
{
    f32 c = 89.0f < x ? 89.0f : x;
    c = -30.0f > c ? -30.0f : c;
    f32 whole = exp_whole_f32(c), r = exp_rest_f32(c, whole);
    i32 n = exp_n_f32(whole);
    f32 p = FMA(r * r, exp_q_f32(r), r);
    f32 s = pow2_f32(n - 1);                            /* 2^n overflows at n = 128 */
    f32 y = 2.0f * FMA(s, p, s - 0.5f);
    return abs_f32(x) < 1e-20f ? x : y;
}

/* Returns log(1 + f) + k ln 2 + low, for f in [-0.293, 0.4143]. */
FN f32 log_tail_f32(f32 f, f32 k, f32 low)
{
    f32 s = f / (2.0f + f);
    f32 z = s * s;
    f32 r = FMA(z, 0.2357911294f, 0.285374926f);
    r = FMA(z, r, 0.4000033172f);
    r = FMA(z, r, 0.6666666567f) * z;
    f32 h = 0.5f * f * f;
    f32 t = FMA(s, h + r, FMA(k, 1.42860682e-6f, low));
    return FMA(k, 0.693145751953125f, (t - h) + f);
}

/* Returns ln x; the error is at most 1 ulp. */
FN f32 log_f32(f32 x)
{
    i32 tiny = x < 1.17549435e-38f;
    f32 y = tiny ? x * 8388608.0f : x;
    i32 k = (i32)(F_AS_U(y) - 0x3f3504f3u) >> 23;       /* sqrt(1/2) */
    f32 m = U_AS_F(F_AS_U(y) - ((u32)k << 23));
    f32 r = log_tail_f32(m - 1.0f, (f32)(k - (tiny ? 23 : 0)), 0.0f);
    r = x == 0.0f ? -INFINITE : x < 0.0f ? NOT_A_NUMBER : r;
    return x < INFINITE ? r : x + x;
}

/* Returns ln(1 + x); the error is at most 1.5 ulp. */
FN f32 log1p_f32(f32 x)
{
    i32 near_0 = (x > -0.29289f) & (x < 0.41421f);
    f32 u = 1.0f + x;
    i32 k = (i32)(F_AS_U(u) - 0x3f3504f3u) >> 23;
    f32 m = U_AS_F(F_AS_U(u) - ((u32)k << 23));
    f32 lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    f32 low = lost / u;
    f32 r = log_tail_f32(near_0 ? x : m - 1.0f, near_0 ? 0.0f : (f32)k, near_0 ? 0.0f : low);
    r = x == -1.0f ? -INFINITE : x < -1.0f ? NOT_A_NUMBER : r;
    r = abs_f32(x) < 1e-20f ? x : r;
    return x < INFINITE ? r : x + x;
}

/* Returns tanh x; the error is at most 2.5 ulp. */
FN f32 tanh_f32(f32 x)
{
    f32 b = abs_f32(x);
    f32 t = expm1_f32(2.0f * (b > 10.0f ? 10.0f : b));
    return SIGNED_(t / (t + 2.0f), x);
}

/* Returns 1 / (1 + e^-x); the error is at most 2.1 ulp. */
FN f32 sigmoid_f32(f32 x)
{
    f32 e = exp_f32(-abs_f32(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* Computes x (1 + P(x^2)) for |x| < 1, else 1 - exp(-|x| Q(|x|)) with the sign of x; P and Q are
 * polynomials.  The error is at most 1.5 ulp. */
FN f32 erf_f32(f32 x)
{
    f32 b = abs_f32(x), z = x * x;
    f32 p = 7.853860784e-5f;
    p = FMA(p, z, -8.010193446e-4f);
    p = FMA(p, z, 5.188327665e-3f);
    p = FMA(p, z, -2.685381192e-2f);
    p = FMA(p, z, 1.128358515e-1f);
    p = FMA(p, z, -3.761262582e-1f);
    p = FMA(p, z, 1.283791657e-1f);
    p = FMA(p, x, x);
    f32 t = b > 4.0f ? 4.0f : b;
    f32 q = 1.233937904e-5f;
    q = FMA(q, t, -3.339595768e-4f);
    q = FMA(q, t, 3.688105626e-3f);
    q = FMA(q, t, -2.385926725e-2f);
    q = FMA(q, t, 1.063505604e-1f);
    q = FMA(q, t, 6.350820348e-1f);
    q = FMA(q, t, 1.128665693f);
    f32 y = SIGNED_(1.0f - exp_f32(-t * q), x);
    return b < 1.0f ? p : y;
}

/* Returns x/2 (1 + tanh u) = x sigmoid(2u), where u = sqrt(2/pi) (x + 0.044715 x^3). */
FN f32 gelu_f32(f32 x)
{
    return x * sigmoid_f32(x * FMA(x * x, 0.0713548163f, 1.59576912f));
}

/* Returns the derivative of gelu_f32, s + x s (1 - s) dv/dx, where s = sigmoid(v) and
 * v = 2 sqrt(2/pi) (x + 0.044715 x^3).  The error is at most 4 ulp for x > -0.5, and at most 1e-6
 * for smaller x. */
FN f32 gelu_slope_f32(f32 x)
{
    f32 c = 20.0f < x ? 20.0f : x;
    c = -20.0f > c ? -20.0f : c;
    f32 z = c * c;
    f32 v = c * FMA(z, 0.0713548163f, 1.59576912f), e = exp_f32(-abs_f32(v));
    f32 t = 1.0f / (1.0f + e);
    return FMA(c * e * t * t, FMA(z, 0.2140644488f, 1.59576912f), v < 0.0f ? e * t : t);
}

/* ---- integers and f64 --------------------------------------------------------------------------
 *
 * Integers wrap around.  A quotient is truncated; division by 0 gives 0. */

FN i32 abs_i32(i32 x) { return x < 0 ? (i32)(0u - (u32)x) : x; }
FN i64 abs_i64(i64 x) { return x < 0 ? (i64)((u64)0 - (u64)x) : x; }
FN i32 quotient_i32(i32 x, i32 y) { return y == 0 ? 0 : y == -1 ? (i32)(0u - (u32)x) : x / y; }
FN i64 quotient_i64(i64 x, i64 y) { return y == 0 ? 0 : y == -1 ? (i64)((u64)0 - (u64)x) : x / y; }

#ifdef HAS_F64
FN f64 abs_f64(f64 x) { return fabs(x); }
FN f64 sqrt_f64(f64 x) { return sqrt(x); }
FN f64 exp_f64(f64 x) { return exp(x); }
FN f64 log_f64(f64 x) { return log(x); }
FN f64 log1p_f64(f64 x) { return log1p(x); }
FN f64 expm1_f64(f64 x) { return expm1(x); }
FN f64 tanh_f64(f64 x) { return tanh(x); }
FN f64 erf_f64(f64 x) { return erf(x); }
FN f64 sin_f64(f64 x) { return sin(x); }
FN f64 cos_f64(f64 x) { return cos(x); }
FN f64 floor_f64(f64 x) { return floor(x); }
FN f64 pow_f64(f64 x, f64 y) { return pow(x, y); }
FN f64 quotient_f64(f64 x, f64 y) { return x / y; }
FN f64 sigmoid_f64(f64 x)
{
    f64 e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}
FN f64 gelu_f64(f64 x)
{
    return x * sigmoid_f64(x * (1.5957691216057307 + 0.07135481627260025 * x * x));
}
FN f64 gelu_slope_f64(f64 x)
{
    f64 c = x > 40 ? 40 : x < -40 ? -40 : x, z = c * c;
    f64 s = sigmoid_f64(c * (1.5957691216057307 + 0.07135481627260025 * z));
    return s + c * s * (1 - s) * (1.5957691216057307 + 0.21406444881780075 * z);
}
#endif

/* ---- conversions -------------------------------------------------------------------------------
 *
 * f16 and bf16 numbers are stored as bits in a u16.  to_f16 and to_bf16 round to nearest even, and
 * keep NaN. */

FN f32 of_bf16(u16 h) { return U_AS_F((u32)h << 16); }
FN u16 to_bf16(f32 f)
{
    u32 u = F_AS_U(f), r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (u16)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40 : r);
}
FN f32 of_f16(u16 h)
{
    u32 u = (u32)(h & 0x7fffu) << 13, sign = (u32)(h & 0x8000u) << 16;
    u32 finite = F_AS_U(TIMES_2_112_(u));               /* denormal numbers too */
    /* infinity, a quiet NaN */
    u32 special = u | 0x7f800000u | ((h & 0x3ffu) ? 0x400000u : 0);
    return U_AS_F(((h & 0x7c00u) == 0x7c00u ? special : finite) | sign);
}
FN u16 to_f16(f32 f)
{
    u32 u = F_AS_U(f), sign = (u >> 16) & 0x8000u, b = u & 0x7fffffffu;
    u32 normal = (b + 0xfffu + ((b >> 13) & 1) - (112u << 23)) >> 13;
    u32 tiny = F_AS_U(U_AS_F(b) + 0.5f) - 0x3f000000u;
    u32 h = b < 0x38800000u ? tiny : normal;
    h = b >= 0x477ff000u ? 0x7c00u : h;
    h = b > 0x7f800000u ? (0x7e00u | ((b >> 13) & 0x3ffu)) : h;
    return (u16)(h | sign);
}

/* AS_I32_ and AS_I64_ convert f32 to integers: they truncate and saturate, and NaN becomes 0.
 * INSIDE_ limits x to [low, high], and turns NaN into 0. */
#define INSIDE_(x, low, high) ((x) != (x) ? 0 : (x) < (low) ? (low) : (x) > (high) ? (high) : (x))
#define AS_I32_(x)                                                                             \
    ((x) >= 2147483648.0f ? 0x7fffffff : (x) >= -2147483648.0f ? (i32)(x)                      \
     : (x) != (x) ? 0 : -0x7fffffff - 1)
#define AS_I64_(x)                                                                             \
    ((x) >= 9223372036854775808.0f ? (i64)(~(u64)0 >> 1)                                       \
     : (x) >= -9223372036854775808.0f ? (i64)(x) : (x) != (x) ? 0 : -(i64)(~(u64)0 >> 1) - 1)

#ifdef HAS_F64
/* Rounds d to f32 by "round to odd": toward 0, and then the last bit is set unless d fits an f32
 * exactly.  Rounding the result to f16 or bf16 gives the same number as rounding d itself. */
FN f32 odd_of_f64(f64 d)
{
    f32 f = (f32)d;
    u32 u = F_AS_U(f), past = d < 0 ? f < d : f > d;
    u32 toward_0 = u - (past | ((u & 0x7fffffffu) == 0x7f800000u));
    return f == d || d != d ? f : U_AS_F(toward_0 | 1);
}
#endif

/* ---- Philox 4x32-10 (base/numbers/philox.h) -------------------------------------------------- */

/* The ten rounds of Philox 4x32 on the words b0 to b3; changes the key k0, k1 too. */
#define PHILOX_ROUNDS(b0, b1, b2, b3, k0, k1)                                                  \
    for (int round = 0; round < 10; round++) {                                                 \
        u32 h0 = MULHI(0xd2511f53u, b0), l0 = 0xd2511f53u * b0;                                \
        u32 h2 = MULHI(0xcd9e8d57u, b2), l2 = 0xcd9e8d57u * b2;                                \
        b0 = h2 ^ b1 ^ k0;                                                                     \
        b1 = l2;                                                                               \
        b2 = h0 ^ b3 ^ k1;                                                                     \
        b3 = l0;                                                                               \
        k0 += 0x9e3779b9u;                                                                     \
        k1 += 0xbb67ae85u;                                                                     \
    }

/* Returns the random words of the elements e & ~1 (in the low half) and e | 1 (in the high half).
 * Element e has word e mod 4 of block counter + e/4. */
FN u64 philox_pair(u64 key, u64 counter, u64 e)
{
    const u64 c = counter + (e >> 2);
    u32 b0 = (u32)c, b1 = (u32)(c >> 32), b2 = 0, b3 = 0;
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    PHILOX_ROUNDS(b0, b1, b2, b3, k0, k1)
    return e & 2 ? U64(b2, b3) : U64(b0, b1);
}

#endif
