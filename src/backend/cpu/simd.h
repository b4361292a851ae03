/* A vector type with the functions that the kernels need, for the instruction set WB__ISA (0
 * portable, 2 AVX2 with FMA and F16C, 5 AVX-512) and float or double (WB__DOUBLE 0 or 1).
 * cpu_kernels.h includes this file once per type, before the kernels.
 *
 * Defines T, TYPE, INT, NAME, V, VI, LANES, MR, NV, MASKED, and
 *
 *     load store spread load_some store_some multiply_add at_least_0 transpose_8 choose
 *     vector_tanh vector_sigmoid
 *     MASK blend same is_nan beats larger */

#undef T
#undef TYPE
#undef INT
#undef NAME
#undef SUFFIX
#if WB__DOUBLE
#define T double
#define TYPE WB_F64
#define INT int64_t
#define NAME(x) x##_f64
#define SUFFIX pd
#else
#define T float
#define TYPE WB_F32
#define INT int32_t
#define NAME(x) x##_f32
#define SUFFIX ps
#endif

/* These macros use NAME and T, so they need no new definition for the second type. */
#ifndef V
#define V NAME(vector)
#define VI NAME(ints)
#define LANES (BYTES / (int)sizeof(T))
#define transpose_8 NAME(transpose_8)
#define choose NAME(choose)
#define MASK NAME(truth)
#define blend NAME(blend)
#define same NAME(same)
#define is_nan NAME(is_nan)
#define beats NAME(beats)
#define larger NAME(larger)
#define vector_tanh NAME(vector_tanh)
#define vector_sigmoid NAME(vector_sigmoid)

#if WB__ISA
#define NV 3
#define MASKED 1
#define INTRINSIC__(prefix, name, suffix) prefix##name##_##suffix
#define INTRINSIC_(prefix, name, suffix) INTRINSIC__(prefix, name, suffix)
#define INTRINSIC(name) INTRINSIC_(PREFIX, name, SUFFIX)
#define COMPARE__(name, suffix) INTRINSIC_(PREFIX, name, suffix##_mask)
#define COMPARE_(name, suffix) COMPARE__(name, suffix)
#define COMPARE(name) COMPARE_(name, SUFFIX)
#define load(p) INTRINSIC(loadu)(p)
#define store(p, v) INTRINSIC(storeu)(p, v)
#define spread(x) INTRINSIC(set1)(x)
#define multiply_add(a, b, c) INTRINSIC(fmadd)(a, b, c)
#define at_least_0(v) INTRINSIC(max)(INTRINSIC(setzero)(), v)       /* keeps NaN */
#else
#define BYTES 16
#define MR 4
#define NV 2
#define MASKED 0
#define load NAME(load)
#define store NAME(store)
#define spread NAME(spread)
#define load_some NAME(load_some)
#define store_some NAME(store_some)
#define multiply_add(a, b, c) ((a) * (b) + (c))
#define at_least_0 NAME(at_least_0)
#endif

#if WB__ISA == 5
#define BYTES 64
#define MR 8
#define PREFIX _mm512_
#define FIRST(n) ((NAME(mask))((1u << (n)) - 1))
#define load_some(p, n) INTRINSIC(maskz_loadu)(FIRST(n), p)
#define store_some(p, v, n) INTRINSIC(mask_storeu)(p, FIRST(n), v)
typedef __mmask16 mask_f32;
typedef __mmask8 mask_f64;
#elif WB__ISA == 2
#define BYTES 32
#define MR 4
#define PREFIX _mm256_
#define FIRST(n) _mm256_loadu_si256((const __m256i *)(NAME(mask) + LANES - (n)))
#define load_some(p, n) INTRINSIC(maskload)(p, FIRST(n))
#define store_some(p, v, n) INTRINSIC(maskstore)(p, FIRST(n), v)
static const int32_t mask_f32[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
static const int64_t mask_f64[8] = {-1, -1, -1, -1};
#endif
#endif

#if WB__ISA
typedef __typeof__(INTRINSIC(setzero)()) V;
#else
typedef T V __attribute__((vector_size(BYTES)));
#endif
/* The result of comparing two vectors: each lane has all bits set, or none. */
typedef INT VI __attribute__((vector_size(BYTES)));

static inline V choose(VI where, V a, V b) { return (V)((where & (VI)a) | (~where & (VI)b)); }

/* MASK is a truth value for each lane, with the operators & | ~.  blend: a where m is true, else b.
 * larger: a if a > b, else b.  beats: a > b, or a is NaN and b is not. */
#if WB__ISA == 5
typedef NAME(mask) MASK;
static inline V blend(MASK m, V a, V b) { return INTRINSIC(mask_mov)(b, m, a); }
static inline MASK same(V a, V b) { return COMPARE(cmp)(a, b, _CMP_EQ_OQ); }
static inline MASK is_nan(V a) { return COMPARE(cmp)(a, a, _CMP_UNORD_Q); }
static inline MASK beats(V a, V b)
{
    return COMPARE(mask_cmp)(COMPARE(cmp)(b, b, _CMP_ORD_Q), a, b, _CMP_NLE_UQ);
}
#else
typedef VI MASK;
static inline V blend(MASK m, V a, V b) { return choose(m, a, b); }
static inline MASK same(V a, V b) { return (MASK)(a == b); }
static inline MASK is_nan(V a) { return (MASK)(a != a); }
static inline MASK beats(V a, V b) { return (MASK)(a > b) | ((MASK)(a != a) & (MASK)(b == b)); }
#endif
#if WB__ISA
static inline V larger(V a, V b) { return INTRINSIC(max)(a, b); }
#else
static inline V larger(V a, V b) { return choose((VI)(a > b), a, b); }
#endif

#if !WB__ISA
static inline V load(const T *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(T *p, V v) { memcpy(p, &v, sizeof v); }
static inline V spread(T x) { return x - (V){ 0 }; }
static inline V load_some(const T *p, int n)
{
    V v = { 0 };
    for (int i = 0; i < LANES; i++)
        if (i < n) v[i] = p[i];
    return v;
}
static inline void store_some(T *p, V v, int n)
{
    for (int i = 0; i < LANES; i++)
        if (i < n) p[i] = v[i];
}
static inline V at_least_0(V v)
{
    for (int i = 0; i < LANES; i++) v[i] = v[i] < 0 ? 0 : v[i];
    return v;
}
#endif

/* Transposes 8 by 8 elements: to[p*ts + i] = from[i*fs + p]. */
#if WB__ISA && !WB__DOUBLE
static inline void transpose_8(const float *from, int64_t fs, float *to, int64_t ts)
{
    __m256 r[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(from + i * fs);
    wb__transpose_8(r);
    for (int i = 0; i < 8; i++) _mm256_storeu_ps(to + i * ts, r[i]);
}
#else
static inline void transpose_8(const T *from, int64_t fs, T *to, int64_t ts)
{
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < 8; i++) to[p * ts + i] = from[i * fs + p];
}
#endif

/* tanh and sigmoid: of float after Cephes (S. Moshier), within 3 ulp; of double by libm. */
#if WB__DOUBLE
#define BY_LANE(name, expression)                                                                  \
    static inline V name(V v)                                                                      \
    {                                                                                              \
        for (int i = 0; i < LANES; i++) v[i] = expression;                                         \
        return v;                                                                                  \
    }
BY_LANE(vector_tanh, tanh(v[i]))
BY_LANE(vector_sigmoid, 1 / (1 + exp(-v[i])))
#else
static inline V vector_exp(V x)
{
    const V low = spread(-87.33f), high = spread(88.3f), magic = spread(12582912.f);
    x = choose((VI)(x < low), low, x);
    x = choose((VI)(x > high), high, x);
    V t = multiply_add(x, spread(1.44269504f), magic), n = t - magic;
    V r = multiply_add(n, spread(2.12194440e-4f), multiply_add(n, spread(-0.693359375f), x));
    V y = spread(1.9875691500e-4f);
    y = multiply_add(y, r, spread(1.3981999507e-3f));
    y = multiply_add(y, r, spread(8.3334519073e-3f));
    y = multiply_add(y, r, spread(4.1665795894e-2f));
    y = multiply_add(y, r, spread(1.6666665459e-1f));
    y = multiply_add(y, r, spread(5.0000001201e-1f));
    y = multiply_add(y, r * r, r + spread(1));
    VI power = (((VI)t - (VI)magic) + 127) << 23;
    return y * (V)power;
}

static inline V vector_sigmoid(V x) { return spread(1) / (spread(1) + vector_exp(-x)); }

static inline V vector_tanh(V x)
{
    V sign = (V)((VI)x & INT32_MIN), size = (V)((VI)x & INT32_MAX);
    V big = spread(1) - spread(2) / (vector_exp(size + size) + spread(1));
    V z = x * x, small = spread(-5.70498872745e-3f);
    small = multiply_add(small, z, spread(2.06390887954e-2f));
    small = multiply_add(small, z, spread(-5.37397155531e-2f));
    small = multiply_add(small, z, spread(1.33314422036e-1f));
    small = multiply_add(small, z, spread(-3.33332819422e-1f));
    small = multiply_add(small * z, x, x);
    return choose((VI)(size < spread(0.625f)), small, (V)((VI)big | (VI)sign));
}
#endif
