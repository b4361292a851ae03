/* One vector type under the matrix product's text, for the instruction set WB__ISA (0 portable, 2
 * AVX2 with FMA and F16C, 5 AVX-512) and float or double (WB__DOUBLE 0 or 1).  Included once per
 * type by cpu_*.c, before the texts that use it.
 *
 * Gives T, TYPE, NAME, V, LANES, MR, NV, MASKED, and
 *     load store spread load_some store_some multiply_add at_least_0 transpose_8 VI choose
 *     vector_tanh vector_sigmoid */

#undef T
#undef TYPE
#undef NAME
#undef V
#undef LANES
#undef MR
#undef NV
#undef MASKED
#undef VI
#undef choose
#undef load
#undef store
#undef spread
#undef load_some
#undef store_some
#undef multiply_add
#undef at_least_0
#undef transpose_8
#undef vector_tanh
#undef vector_sigmoid

#if WB__DOUBLE
#define T double
#define TYPE WB_F64
#define NAME(x) x##_f64
#else
#define T float
#define TYPE WB_F32
#define NAME(x) x##_f32
#endif

#if WB__ISA == 5
#define MR 8
#define NV 3
#define MASKED 1
#if WB__DOUBLE
#define V __m512d
#define LANES 8
#define load(p) _mm512_loadu_pd(p)
#define store(p, v) _mm512_storeu_pd(p, v)
#define spread(x) _mm512_set1_pd(x)
#define load_some(p, n) _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define store_some(p, v, n) _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), v)
#define multiply_add(a, b, c) _mm512_fmadd_pd(a, b, c)
#define at_least_0(v) _mm512_max_pd(_mm512_setzero_pd(), v)      /* NaN stays */
#else
#define V __m512
#define LANES 16
#define load(p) _mm512_loadu_ps(p)
#define store(p, v) _mm512_storeu_ps(p, v)
#define spread(x) _mm512_set1_ps(x)
#define load_some(p, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define store_some(p, v, n) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), v)
#define multiply_add(a, b, c) _mm512_fmadd_ps(a, b, c)
#define at_least_0(v) _mm512_max_ps(_mm512_setzero_ps(), v)      /* NaN stays */
#endif

#elif WB__ISA == 2
#define MR 4
#define NV 3
#define MASKED 1
#if WB__DOUBLE
#define V __m256d
#define LANES 4
#define load(p) _mm256_loadu_pd(p)
#define store(p, v) _mm256_storeu_pd(p, v)
#define spread(x) _mm256_set1_pd(x)
#define load_some(p, n) \
    _mm256_maskload_pd(p, _mm256_loadu_si256((const __m256i *)(wb__mask_4 + 4 - (n))))
#define store_some(p, v, n) \
    _mm256_maskstore_pd(p, _mm256_loadu_si256((const __m256i *)(wb__mask_4 + 4 - (n))), v)
#define multiply_add(a, b, c) _mm256_fmadd_pd(a, b, c)
#define at_least_0(v) _mm256_max_pd(_mm256_setzero_pd(), v)      /* NaN stays */
#else
#define V __m256
#define LANES 8
#define load(p) _mm256_loadu_ps(p)
#define store(p, v) _mm256_storeu_ps(p, v)
#define spread(x) _mm256_set1_ps(x)
#define load_some(p, n) \
    _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(wb__mask_8 + 8 - (n))))
#define store_some(p, v, n) \
    _mm256_maskstore_ps(p, _mm256_loadu_si256((const __m256i *)(wb__mask_8 + 8 - (n))), v)
#define multiply_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define at_least_0(v) _mm256_max_ps(_mm256_setzero_ps(), v)      /* NaN stays */
#endif

#else
#define MR 4
#define NV 2
#define MASKED 0
#define LANES (16 / (int)sizeof(T))
typedef T NAME(vector) __attribute__((vector_size(16)));
#define V NAME(vector)
static inline V NAME(load)(const T *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void NAME(store)(T *p, V v) { memcpy(p, &v, sizeof v); }
static inline V NAME(spread)(T x) { return x - (V){ 0 }; }
static inline V NAME(load_some)(const T *p, int n)
{
    V v = { 0 };
    for (int i = 0; i < LANES; i++)
        if (i < n) v[i] = p[i];
    return v;
}
static inline void NAME(store_some)(T *p, V v, int n)
{
    for (int i = 0; i < LANES; i++)
        if (i < n) p[i] = v[i];
}
#define load(p) NAME(load)(p)
#define store(p, v) NAME(store)(p, v)
#define spread(x) NAME(spread)(x)
#define load_some(p, n) NAME(load_some)(p, n)
#define store_some(p, v, n) NAME(store_some)(p, v, n)
#define multiply_add(a, b, c) ((a) * (b) + (c))
static inline V NAME(at_least_0)(V v)
{
    for (int i = 0; i < LANES; i++) v[i] = v[i] < 0 ? 0 : v[i];
    return v;
}
#define at_least_0(v) NAME(at_least_0)(v)
#endif

/* to[p*ts + i] = from[i*fs + p], 8 by 8 */
#if WB__ISA && !WB__DOUBLE
static inline void transpose_8(const float *from, int64_t fs, float *to, int64_t ts)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(from + i * fs);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * ts, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * ts, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
#else
static inline void NAME(transpose)(const T *from, int64_t fs, T *to, int64_t ts)
{
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < 8; i++) to[p * ts + i] = from[i * fs + p];
}
#define transpose_8(from, fs, to, ts) NAME(transpose)(from, fs, to, ts)
#endif

/* What comparing two vectors gives: all bits or none, per lane. */
#if WB__DOUBLE
typedef int64_t NAME(ints) __attribute__((vector_size(8 * LANES)));
#else
typedef int32_t NAME(ints) __attribute__((vector_size(4 * LANES)));
#endif
#define VI NAME(ints)
static inline V NAME(choose)(VI where, V a, V b) { return (V)((where & (VI)a) | (~where & (VI)b)); }
#define choose(where, a, b) NAME(choose)(where, a, b)

/* The curved activations: for float after Cephes (S. Moshier), within 3 ulp; for double libm's,
 * lane by lane. */
#if WB__DOUBLE
static inline V NAME(each)(V v, bool is_tanh)
{
    T lane[LANES];
    store(lane, v);
    for (int i = 0; i < LANES; i++) lane[i] = is_tanh ? tanh(lane[i]) : 1 / (1 + exp(-lane[i]));
    return load(lane);
}
#define vector_tanh(v) NAME(each)(v, true)
#define vector_sigmoid(v) NAME(each)(v, false)
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
