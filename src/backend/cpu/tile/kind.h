/* The operations of ops.def for one kind of register: KIND (f32, f64, i32 or i64).  FLOATS_HERE and
 * BOOLS_HERE select the operations that KIND accepts.  rows.h defines LOOP, the pragma before these
 * loops, and includes this file four times. */
#define T KIND

#define EACH(name, shape, d_type, before, inside, expression)                                      \
    static void OWN3(row_##name, shape, KIND)(void *d_, const void *a_, const void *b_,            \
                                                  const void *c_, int64_t n)                       \
    {                                                                                              \
        d_type *d = d_;                                                                            \
        const T *a = a_, *b = b_;                                                                  \
        (void)a, (void)b, (void)c_;                                                                \
        before;                                                                                    \
        LOOP for (int64_t i = 0; i < n; i++) { inside; d[i] = (d_type)(expression); }              \
    }
#define ONE_OPERAND(d_type, name, expression) \
    EACH(name, vvv, d_type, , const T x = a[i], expression)
#define TWO_OPERANDS(d_type, name, expression)                                                     \
    EACH(name, vvv, d_type, , const T x = a[i]; const T y = b[i], expression)                      \
    EACH(name, vsv, d_type, const T y = *b, const T x = a[i], expression)                          \
    EACH(name, svv, d_type, const T x = *a, const T y = b[i], expression)

#if FLOATS_HERE
#define FLOATS(generate, d_type, name, expression) generate(d_type, name, expression)
#else
#define FLOATS(generate, d_type, name, expression)
#endif
#if BOOLS_HERE
#define BOOLS(generate, d_type, name, expression) generate(d_type, name, expression)
#else
#define BOOLS(generate, d_type, name, expression)
#endif
#define NUMBERS(generate, d_type, name, expression) generate(d_type, name, expression)
#define ANY(generate, d_type, name, expression) generate(d_type, name, expression)

#define WB_UNARY(name, accepts, expression, gradient) accepts(ONE_OPERAND, T, name, expression)
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) \
    accepts(TWO_OPERANDS, T, name, expression)
#define WB_COMPARE(name, accepts, expression) accepts(TWO_OPERANDS, int32_t, name, expression)
#define WB_TEST(name, accepts, expression) accepts(ONE_OPERAND, int32_t, name, expression)
#include "ops/ops.def"

#define WHERE(shape, before, inside, x, y)                                                         \
    static void OWN2(where_##shape, KIND)(void *d_, const void *a_, const void *b_,                \
                                              const void *c_, int64_t n)                           \
    {                                                                                              \
        T *d = d_;                                                                                 \
        const int32_t *a = a_;                                                                     \
        const T *b = b_, *c = c_;                                                                  \
        (void)b, (void)c;                                                                          \
        before;                                                                                    \
        LOOP for (int64_t i = 0; i < n; i++) { inside; d[i] = a[i] ? x : y; }                      \
    }
WHERE(vv, , const T x = b[i]; const T y = c[i], x, y)
WHERE(sv, const T x = *b, const T y = c[i], x, y)
WHERE(vs, const T y = *c, const T x = b[i], x, y)
WHERE(ss, const T x = *b; const T y = *c, , x, y)
#undef WHERE

static void OWN2(iota, KIND)(void *d_, int64_t n, int64_t first, int64_t step)
{
    T *d = d_;
    LOOP for (int64_t i = 0; i < n; i++) d[i] = (T)(first + i * step);
}

static void OWN2(splat, KIND)(void *d_, const void *s_, int64_t rows, int64_t cols)
{
    T *restrict d = d_;
    const T *restrict s = s_;
    for (int64_t r = 0; r < rows; r++, d += cols) {
        const T v = s[r];
        for (int64_t c = 0; c < cols; c++) d[c] = v;
    }
}

/* Maxima and minima: NaN wins; of equal elements, argmax keeps the first. */
#if FLOATS_HERE
#define IS_NAN(x) ((x) != (x))
#else
#define IS_NAN(x) 0
#endif

#define EXTREME(name, beats)                                                                       \
    static void OWN2(name, KIND)(void *acc_, int64_t *at, const void *v_, int64_t n, int64_t now)  \
    {                                                                                              \
        T *acc = acc_;                                                                             \
        const T *v = v_;                                                                           \
        (void)at, (void)now;                                                                       \
        LOOP for (int64_t i = 0; i < n; i++)                                                       \
            acc[i] = ((v[i] beats acc[i]) | IS_NAN(v[i])) ? v[i] : acc[i];                         \
    }
EXTREME(gather_max, >)
EXTREME(gather_min, <)
#undef EXTREME

static void OWN2(gather_argmax, KIND)(void *acc_, int64_t *at, const void *v_, int64_t n,
                                          int64_t now)
{
    T *acc = acc_;
    const T *v = v_;
    LOOP for (int64_t i = 0; i < n; i++) {
        int wins = (v[i] > acc[i]) | (IS_NAN(v[i]) & !IS_NAN(acc[i])) | (at[i] < 0);
        acc[i] = wins ? v[i] : acc[i];
        at[i] = wins ? now : at[i];
    }
}

static void OWN2(reduce_argmax, KIND)(void *d_, const void *s_, int64_t rows, int64_t cols)
{
    int32_t *d = d_;
    const T *s = s_;
    for (int64_t r = 0; r < rows; r++, s += cols) {
        T best = s[0];
        int32_t at = 0;
        for (int64_t c = 1; c < cols; c++)
            if (s[c] > best || (IS_NAN(s[c]) && !IS_NAN(best))) best = s[c], at = (int32_t)c;
        d[r] = at;
    }
}
#undef IS_NAN

#undef EACH
#undef ONE_OPERAND
#undef TWO_OPERANDS
#undef FLOATS
#undef BOOLS
#undef NUMBERS
#undef ANY
#undef T
#undef KIND
#undef FLOATS_HERE
#undef BOOLS_HERE
