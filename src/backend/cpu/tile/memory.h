/* Part of rows.h: loads and stores of registers, and conversions between register kinds. */

/* ---- f16 in vectors -------------------------------------------------------------------------- */

static void line_of_F16(float *restrict d, const uint16_t *restrict p, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(d + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + i))));
#endif
    for (; i < n; i++) d[i] = of_f16(p[i]);
}

static void line_to_F16(uint16_t *restrict p, const float *restrict s, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(p + i), _mm512_cvtps_ph(_mm512_loadu_ps(s + i), 0));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(p + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), 0));
#endif
    for (; i < n; i++) p[i] = to_f16(s[i]);
}

/* ---- loads and stores ----
 *
 * There are four cases: memory that is contiguous along the columns, one element for all columns
 * (loads only), memory that is contiguous along the rows (transposed, copied in squares), and any
 * other strides. */

enum { SQUARE = 16 };

#define AS_IT_IS(x) (x)
#define IS_TRUE(x) ((x) != 0)

#define LOAD_(NAME, from, to, convert, line)                                                       \
    static void load_##NAME(void *d_, int64_t pitch, const void *p_, int64_t rows, int64_t cols,   \
                            int64_t sr, int64_t sc)                                                \
    {                                                                                              \
        to *restrict d = d_;                                                                       \
        const from *restrict p = p_;                                                               \
        if (sc == 1) {                                                                             \
            for (int64_t r = 0; r < rows; r++, d += pitch, p += sr) line(d, p, cols);              \
        } else if (sc == 0) {                                                                      \
            for (int64_t r = 0; r < rows; r++, d += pitch, p += sr) {                              \
                const to v = (to)convert(*p);                                                      \
                for (int64_t c = 0; c < cols; c++) d[c] = v;                                       \
            }                                                                                      \
        } else if (sr == 1 && rows > 3) {                                                          \
            for (int64_t c0 = 0; c0 < cols; c0 += SQUARE) {                                        \
                const int64_t c1 = WB__MIN(c0 + SQUARE, cols);                                     \
                for (int64_t r = 0; r < rows; r++)                                                 \
                    for (int64_t c = c0; c < c1; c++)                                              \
                        d[r * pitch + c] = (to)convert(p[r + c * sc]);                             \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t r = 0; r < rows; r++, d += pitch, p += sr)                                \
                for (int64_t c = 0; c < cols; c++) d[c] = (to)convert(p[c * sc]);                  \
        }                                                                                          \
    }
#define LINE(name, d_type, s_type, convert)                                                        \
    static inline void name(d_type *restrict d, const s_type *restrict s, int64_t n)               \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) d[i] = (d_type)convert(s[i]);                              \
    }
#define STORE_(NAME, to, from, convert, line)                                                      \
    static void store_##NAME(const void *s_, int64_t pitch, void *p_, int64_t rows, int64_t cols,  \
                             int64_t sr, int64_t sc)                                               \
    {                                                                                              \
        const from *restrict s = s_;                                                               \
        to *restrict p = p_;                                                                       \
        if (sc == 1) {                                                                             \
            for (int64_t r = 0; r < rows; r++, s += pitch, p += sr) line(p, s, cols);              \
        } else if (sr == 1 && rows > 3) {                                                          \
            for (int64_t r0 = 0; r0 < rows; r0 += SQUARE) {                                        \
                const int64_t r1 = WB__MIN(r0 + SQUARE, rows);                                     \
                for (int64_t c = 0; c < cols; c++)                                                 \
                    for (int64_t r = r0; r < r1; r++)                                              \
                        p[r + c * sc] = (to)convert(s[r * pitch + c]);                             \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t r = 0; r < rows; r++, s += pitch, p += sr)                                \
                for (int64_t c = 0; c < cols; c++) p[c * sc] = (to)convert(s[c]);                  \
        }                                                                                          \
    }
#define LINES(NAME, stored, held, of, to)                                                          \
    LINE(line_of_##NAME, held, stored, of)                                                         \
    LINE(line_to_##NAME, stored, held, to)
#define MEMORY(NAME, stored, held, of, to)                                                         \
    LOAD_(NAME, stored, held, of, line_of_##NAME)                                                  \
    STORE_(NAME, stored, held, to, line_to_##NAME)

/* For each dtype: the type in memory, the type in a register, and the conversions. */
#define PLAIN(EACH)                                                                                \
    EACH(F32, float, float, AS_IT_IS, AS_IT_IS)                                                    \
    EACH(F64, double, double, AS_IT_IS, AS_IT_IS)                                                  \
    EACH(BF16, uint16_t, float, of_bf16, to_bf16)                                                  \
    EACH(I8, int8_t, int32_t, AS_IT_IS, AS_IT_IS)                                                  \
    EACH(U8, uint8_t, int32_t, AS_IT_IS, AS_IT_IS)                                                 \
    EACH(I32, int32_t, int32_t, AS_IT_IS, AS_IT_IS)                                                \
    EACH(I64, int64_t, int64_t, AS_IT_IS, AS_IT_IS)                                                \
    EACH(BOOL, uint8_t, int32_t, IS_TRUE, IS_TRUE)
PLAIN(LINES)
PLAIN(MEMORY)
MEMORY(F16, uint16_t, float, of_f16, to_f16)

/* ---- casts: as if stored in the dtype and loaded again --------------------------------------- */

#define CAST_(kind, from, NAME, to, expression)                                                    \
    static void cast_##kind##_##NAME(void *d_, const void *a_, const void *b_, const void *c_,     \
                                     int64_t n)                                                    \
    {                                                                                              \
        to *d = d_;                                                                                \
        const from *a = a_;                                                                        \
        (void)b_, (void)c_;                                                                        \
        LOOP for (int64_t i = 0; i < n; i++) { const from x = a[i]; d[i] = (to)(expression); }     \
    }

#define CASTS_OF(kind, from, i8, u8, i32, i64)                                                     \
    CAST_(kind, from, F32, float, x)                                                               \
    CAST_(kind, from, F64, double, x)                                                              \
    CAST_(kind, from, F16, float, of_f16(to_f16(odd_of_##kind(x))))                                \
    CAST_(kind, from, BF16, float, of_bf16(to_bf16(odd_of_##kind(x))))                             \
    CAST_(kind, from, I8, int32_t, i8)                                                             \
    CAST_(kind, from, U8, int32_t, u8)                                                             \
    CAST_(kind, from, I32, int32_t, i32)                                                           \
    CAST_(kind, from, I64, int64_t, i64)                                                           \
    CAST_(kind, from, BOOL, int32_t, x != 0)
#define CASTS_OF_FLOATS(kind, from)                                                                \
    CASTS_OF(kind, from, (int32_t)INSIDE_(x, -128, 127), (int32_t)INSIDE_(x, 0, 255), AS_I32_(x),  \
             AS_I64_(x))
#define CASTS_OF_INTEGERS(kind, from) CASTS_OF(kind, from, (int8_t)x, (uint8_t)x, x, x)
CASTS_OF_FLOATS(f32, float)
CASTS_OF_FLOATS(f64, double)
CASTS_OF_INTEGERS(i32, int32_t)
CASTS_OF_INTEGERS(i64, int64_t)
