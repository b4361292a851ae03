/* Part of rows.h: sums and extremes.  A sum along a row of a tile has four vectors of partial sums,
 * which are added pairwise after at most 16 elements for each lane (SUM_BLOCK), so the rounding
 * error of long rows is small for vectors of 4 lanes too.  Sums of f32 over tiles are added to
 * doubles at intervals (plan.h). */

#if defined(__AVX512F__)
enum { VECTOR = 64 };
#elif defined(__AVX2__)
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif

typedef float v_f32 __attribute__((vector_size(VECTOR), aligned(4), may_alias));
typedef double v_f64 __attribute__((vector_size(VECTOR), aligned(8), may_alias));
typedef int32_t v_i32 __attribute__((vector_size(VECTOR), aligned(4), may_alias));
typedef int64_t v_i64 __attribute__((vector_size(VECTOR), aligned(8), may_alias));

/* ---- macros that differ between instruction sets, for f32 ----
 *
 * READ loads n elements, fewer than a vector has, and sets the other lanes to `other`.  LESS and
 * MORE are minimum and maximum; if the first operand is NaN, the result is the second. */
#if defined(__AVX512F__)
#define READ_f32(p, n, other) \
    ((v_f32)_mm512_mask_loadu_ps(_mm512_set1_ps(other), (__mmask16)((1u << (n)) - 1), p))
#define LESS_f32(x, a) ((v_f32)_mm512_min_ps((__m512)(x), (__m512)(a)))
#define MORE_f32(x, a) ((v_f32)_mm512_max_ps((__m512)(x), (__m512)(a)))
#elif defined(__AVX2__)
/* Reads n elements with a masked load; the other lanes are `other`. */
static inline v_f32 read_some(const float *p, int64_t n, float other)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
    return (v_f32)_mm256_blendv_ps(_mm256_set1_ps(other), _mm256_maskload_ps(p, some),
                                   _mm256_castsi256_ps(some));
}
#define READ_f32(p, n, other) read_some(p, n, other)
#define LESS_f32(x, a) ((v_f32)_mm256_min_ps((__m256)(x), (__m256)(a)))
#define MORE_f32(x, a) ((v_f32)_mm256_max_ps((__m256)(x), (__m256)(a)))
#elif defined(__SSE2__)
#define LESS_f32(x, a) ((v_f32)_mm_min_ps((__m128)(x), (__m128)(a)))
#define MORE_f32(x, a) ((v_f32)_mm_max_ps((__m128)(x), (__m128)(a)))
#else
#define LESS_f32(x, a) SELECT(x < a, x, a, v_f32, v_i32)
#define MORE_f32(x, a) SELECT(x > a, x, a, v_f32, v_i32)
#endif
#define SELECT(m, x, a, vector, mask) ((vector)(((mask)(m) & (mask)(x)) | (~(mask)(m) & (mask)(a))))
#define LESS_f64(x, a) SELECT(x < a, x, a, v_f64, v_i64)
#define MORE_f64(x, a) SELECT(x > a, x, a, v_f64, v_i64)
#define LESS_i32(x, a) SELECT(x < a, x, a, v_i32, v_i32)
#define MORE_i32(x, a) SELECT(x > a, x, a, v_i32, v_i32)
#define LESS_i64(x, a) SELECT(x < a, x, a, v_i64, v_i64)
#define MORE_i64(x, a) SELECT(x > a, x, a, v_i64, v_i64)

/* Reads n elements, at most a vector; the other lanes are `other`. */
#define READ_BY_ELEMENT(kind, type, vector)                                                        \
    static inline vector read_##kind(const type *p, int64_t n, type other)                         \
    {                                                                                              \
        enum { L = VECTOR / sizeof(type) };                                                        \
        type lane[L];                                                                              \
        vector v;                                                                                  \
        for (int i = 0; i < L; i++) lane[i] = i < n ? p[i] : other;                                \
        memcpy(&v, lane, sizeof v);                                                                \
        return v;                                                                                  \
    }
#ifdef READ_f32
#define read_f32(p, n, other) READ_f32(p, n, other)
#else
READ_BY_ELEMENT(f32, float, v_f32)
#endif
READ_BY_ELEMENT(f64, double, v_f64)
READ_BY_ELEMENT(i32, int32_t, v_i32)
READ_BY_ELEMENT(i64, int64_t, v_i64)

/* SWAP exchanges lanes i and i ^ w.  X16 to X2 list the lanes for vectors of 16 to 2 lanes.  TREE16
 * to TREE2 combine all lanes of a vector with STEP; lane 0 then has the result. */
#define X16(w) 0 ^ w, 1 ^ w, 2 ^ w, 3 ^ w, 4 ^ w, 5 ^ w, 6 ^ w, 7 ^ w, 8 ^ w, 9 ^ w, 10 ^ w, \
        11 ^ w, 12 ^ w, 13 ^ w, 14 ^ w, 15 ^ w
#define X8(w) 0 ^ w, 1 ^ w, 2 ^ w, 3 ^ w, 4 ^ w, 5 ^ w, 6 ^ w, 7 ^ w
#define X4(w) 0 ^ w, 1 ^ w, 2 ^ w, 3 ^ w
#define X2(w) 0 ^ w, 1 ^ w
#define SWAP(v, X, w) __builtin_shufflevector(v, v, X(w))
#define TREE2(v, STEP) (v = STEP(v, SWAP(v, X2, 1)))
#define TREE4(v, STEP) (v = STEP(v, SWAP(v, X4, 2)), v = STEP(v, SWAP(v, X4, 1)))
#define TREE8(v, STEP) \
    (v = STEP(v, SWAP(v, X8, 4)), v = STEP(v, SWAP(v, X8, 2)), v = STEP(v, SWAP(v, X8, 1)))
#define TREE16(v, STEP)                                             \
    (v = STEP(v, SWAP(v, X16, 8)), v = STEP(v, SWAP(v, X16, 4)),    \
     v = STEP(v, SWAP(v, X16, 2)), v = STEP(v, SWAP(v, X16, 1)))
#if defined(__AVX512F__)
#define TREE_4 TREE16
#define TREE_8 TREE8
#elif defined(__AVX2__)
#define TREE_4 TREE8
#define TREE_8 TREE4
#else
#define TREE_4 TREE4
#define TREE_8 TREE2
#endif
#define PLUS(x, a) (x + a)

enum { SUM_BLOCK = 16 };

#define SUM_ROWS(kind, type, vector, TREE)                                                         \
    static void reduce_sum_##kind(void *d_, const void *s_, int64_t rows, int64_t cols)            \
    {                                                                                              \
        enum { L = VECTOR / sizeof(type) };                                                        \
        type *d = d_;                                                                              \
        const type *s = s_;                                                                        \
        for (int64_t r = 0; r < rows; r++, s += cols) {                                            \
            vector a = {0};                                                                        \
            int64_t i = 0;                                                                         \
            while (i + 4 * L <= cols) {                                                            \
                const int64_t end = WB__MIN(i + SUM_BLOCK * 4 * L, cols);                          \
                vector f = {0}, b = {0}, c = {0}, e = {0};                                         \
                for (; i + 4 * L <= end; i += 4 * L) {                                             \
                    f += *(const vector *)(s + i);                                                 \
                    b += *(const vector *)(s + i + L);                                             \
                    c += *(const vector *)(s + i + 2 * L);                                         \
                    e += *(const vector *)(s + i + 3 * L);                                         \
                }                                                                                  \
                a += (f + b) + (c + e);                                                            \
            }                                                                                      \
            for (; i + L <= cols; i += L) a += *(const vector *)(s + i);                           \
            if (i < cols) a += read_##kind(s + i, cols - i, 0);                                    \
            TREE(a, PLUS);                                                                         \
            d[r] = a[0];                                                                           \
        }                                                                                          \
    }
SUM_ROWS(f32, float, v_f32, TREE_4)
SUM_ROWS(f64, double, v_f64, TREE_8)
SUM_ROWS(i32, int32_t, v_i32, TREE_4)
SUM_ROWS(i64, int64_t, v_i64, TREE_8)

/* Computes the maximum or minimum of each row.  `a` has the best element of each lane, and `odd`
 * marks lanes that had a NaN.  The last vector of a row may overlap the vector before it. */
#define OR(x, a) (x | a)
#define EXTREME(name, kind, type, vector, mask, PICK, TREE, nan)                                   \
    static void reduce_##name##_##kind(void *d_, const void *s_, int64_t rows, int64_t cols)       \
    {                                                                                              \
        enum { L = VECTOR / sizeof(type) };                                                        \
        type *d = d_;                                                                              \
        const type *s = s_;                                                                        \
        for (int64_t r = 0; r < rows; r++, s += cols) {                                            \
            vector a = cols < L ? read_##kind(s, cols, s[0]) : *(const vector *)s;                 \
            mask odd = (mask)(a != a);                                                             \
            for (int64_t i = L; i < cols; i += L) {                                                \
                const vector x = *(const vector *)(s + (i + L <= cols ? i : cols - L));            \
                a = PICK(x, a);                                                                    \
                odd |= (mask)(x != x);                                                             \
            }                                                                                      \
            TREE(a, PICK);                                                                         \
            TREE(odd, OR);                                                                         \
            d[r] = odd[0] ? nan : a[0];                                                            \
        }                                                                                          \
    }
EXTREME(max, f32, float, v_f32, v_i32, MORE_f32, TREE_4, NAN)
EXTREME(max, f64, double, v_f64, v_i64, MORE_f64, TREE_8, NAN)
EXTREME(max, i32, int32_t, v_i32, v_i32, MORE_i32, TREE_4, 0)
EXTREME(max, i64, int64_t, v_i64, v_i64, MORE_i64, TREE_8, 0)
EXTREME(min, f32, float, v_f32, v_i32, LESS_f32, TREE_4, NAN)
EXTREME(min, f64, double, v_f64, v_i64, LESS_f64, TREE_8, NAN)
EXTREME(min, i32, int32_t, v_i32, v_i32, LESS_i32, TREE_4, 0)
EXTREME(min, i64, int64_t, v_i64, v_i64, LESS_i64, TREE_8, 0)

/* ---- sums over tiles, element by element ----------------------------------------------------- */

#define GATHER_SUM(kind, acc_type, type)                                                           \
    static void gather_sum_##kind(void *acc_, int64_t *at, const void *v_, int64_t n, int64_t now) \
    {                                                                                              \
        acc_type *acc = acc_;                                                                      \
        const type *v = v_;                                                                        \
        (void)at, (void)now;                                                                       \
        LOOP for (int64_t i = 0; i < n; i++) acc[i] += v[i];                                       \
    }
GATHER_SUM(f32, float, float)
GATHER_SUM(f64, double, double)
GATHER_SUM(i32, int64_t, int32_t)
GATHER_SUM(i64, int64_t, int64_t)

static void flush_f32(double *to, float *acc, int64_t n)
{
    LOOP for (int64_t i = 0; i < n; i++) to[i] += acc[i];
    LOOP for (int64_t i = 0; i < n; i++) acc[i] = 0;
}
