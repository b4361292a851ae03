/* Part of tile_rows.h: sums and extremes.  Along a row they are made in four vectors side by side, which are then added
 * pairwise: the error of a sum over n elements grows with n/64 (16 lanes) of a tile, and tiles are added in double. */

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

/* One row's sum. */
#define SUM_ROW(kind, type, vector)                                                                 \
    static inline type sum_row_##kind(const type *s, int64_t n)                                     \
    {                                                                                               \
        enum { L = VECTOR / sizeof(type) };                                                         \
        type lane[L] = {0}, tail = 0;                                                               \
        int64_t i = 0;                                                                              \
        if (n >= L) {                                                                               \
            vector a = *(const vector *)s, b = {0}, c = {0}, d = {0};                               \
            for (i = L; i + 4 * L <= n; i += 4 * L) {                                               \
                a += *(const vector *)(s + i);                                                      \
                b += *(const vector *)(s + i + L);                                                  \
                c += *(const vector *)(s + i + 2 * L);                                              \
                d += *(const vector *)(s + i + 3 * L);                                              \
            }                                                                                       \
            for (; i + L <= n; i += L) a += *(const vector *)(s + i);                               \
            *(vector *)lane = (a + b) + (c + d);                                                    \
        }                                                                                           \
        for (; i < n; i++) tail += s[i];                                                            \
        for (int w = L / 2; w; w /= 2)                                                              \
            for (int j = 0; j < w; j++) lane[j] += lane[j + w];                                     \
        return lane[0] + tail;                                                                      \
    }                                                                                               \
    static void fold_sum_##kind(void *d_, const void *s_, int64_t rows, int64_t cols)               \
    {                                                                                               \
        type *d = d_;                                                                               \
        const type *s = s_;                                                                         \
        for (int64_t r = 0; r < rows; r++) d[r] = sum_row_##kind(s + r * cols, cols);               \
    }
SUM_ROW(f32, float, v_f32)
SUM_ROW(f64, double, v_f64)
SUM_ROW(i32, int32_t, v_i32)
SUM_ROW(i64, int64_t, v_i64)

/* The extreme of a row: a vector of bests, and one that remembers whether NaN was met.  The last vector overlaps. */
#define EXTREME(name, kind, type, vector, mask, before, nan)                                        \
    static void fold_##name##_##kind(void *d_, const void *s_, int64_t rows, int64_t cols)          \
    {                                                                                               \
        enum { L = VECTOR / sizeof(type) };                                                         \
        type *d = d_;                                                                               \
        const type *s = s_;                                                                         \
        for (int64_t r = 0; r < rows; r++, s += cols) {                                             \
            type lane[L] = {0};                                                                     \
            mask odd = {0}, odds[1];                                                                \
            int64_t n = cols < L ? cols : L;                                                        \
            if (cols >= L) {                                                                        \
                vector a = *(const vector *)s;                                                      \
                odd |= a != a;                                                                      \
                for (int64_t i = L; i < cols; i += L) {                                             \
                    const vector x = *(const vector *)(s + (i + L <= cols ? i : cols - L));         \
                    const mask m = x before a;                                                      \
                    a = (vector)((m & (mask)x) | (~m & (mask)a));                                   \
                    odd |= x != x;                                                                  \
                }                                                                                   \
                memcpy(lane, &a, sizeof a);                                                         \
            } else {                                                                                \
                for (int64_t i = 0; i < n; i++) lane[i] = s[i];                                     \
            }                                                                                       \
            int any = 0;                                                                            \
            odds[0] = odd;                                                                          \
            type best = lane[0];                                                                    \
            for (int64_t i = 0; i < n; i++) {                                                       \
                any |= (odds[0][i] != 0) | (lane[i] != lane[i]);                                    \
                best = lane[i] before best ? lane[i] : best;                                        \
            }                                                                                       \
            d[r] = any ? nan : best;                                                                \
        }                                                                                           \
    }
EXTREME(max, f32, float, v_f32, v_i32, >, NAN)
EXTREME(max, f64, double, v_f64, v_i64, >, NAN)
EXTREME(max, i32, int32_t, v_i32, v_i32, >, 0)
EXTREME(max, i64, int64_t, v_i64, v_i64, >, 0)
EXTREME(min, f32, float, v_f32, v_i32, <, NAN)
EXTREME(min, f64, double, v_f64, v_i64, <, NAN)
EXTREME(min, i32, int32_t, v_i32, v_i32, <, 0)
EXTREME(min, i64, int64_t, v_i64, v_i64, <, 0)

/* ---- sums over tiles, element by element ---- */

#define GATHER_SUM(kind, acc_type, type)                                                            \
    static void gather_sum_##kind(void *acc_, int64_t *at, const void *v_, int64_t n, int64_t now)  \
    {                                                                                               \
        acc_type *acc = acc_;                                                                       \
        const type *v = v_;                                                                         \
        (void)at, (void)now;                                                                        \
        LOOP for (int64_t i = 0; i < n; i++) acc[i] += v[i];                                        \
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
