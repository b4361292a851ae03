/* dtypes: their table, the two 16-bit floats, and conversion between all pairs.  Plain loops: the
 * fast paths of evaluation are the backends'. */
#include "base/base.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes, floating;
} table[WB_DTYPE_COUNT] = {
    {"default", 0, 0},
#define ROW(NAME, type, bytes, floating, text) {text, bytes, floating},
    WB_DTYPES(ROW)
#undef ROW
};

static bool known(wb_dtype t) { return (unsigned)t < WB_DTYPE_COUNT; }

const char *wb_dtype_name(wb_dtype t) { return known(t) ? table[t].name : "no dtype"; }
size_t wb__dtype_size(wb_dtype t) { return known(t) ? table[t].bytes : 0; }
size_t wb_dtype_bytes(wb_dtype t) { return wb__dtype_size(t); }
bool wb__dtype_float(wb_dtype t) { return known(t) && table[t].floating; }

/* ---- 16-bit floats --------------------------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* binary16: sign, 5 bits of exponent (bias 15), 10 of fraction */
float wb__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f;                /* zero or subnormal: exact */
    return sign ? -tiny : tiny;
}

uint16_t wb__f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  /* from 65520 on, infinity */
    if (a >= 0x38800000) /* normal: rounding may carry into the exponent */
        return (uint16_t)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
    if (a <= 0x33000000) return (uint16_t)sign; /* up to half the least subnormal, to zero */
    unsigned shift = 126 - (a >> 23);                       /* 14 .. 24 */
    uint32_t m = (a & 0x7fffff) | 0x800000, h = m >> shift, rest = m & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (h + (rest > half || (rest == half && (h & 1)))));
}

/* bfloat16: the upper half of a float */
float wb__bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t wb__f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- conversion ------------------------------------------------------------------------------ */

/* A double as a float whose last bit also says "there was more", so that rounding it again, to 16
 * bits, rounds as rounding once would (round to odd). */
static float narrow_odd(double d)
{
    float f = (float)d;
    if (!((double)f != d) || d != d) return f;
    uint32_t u = bits_of(f);
    if (fabs((double)f) > fabs(d)) u--;     /* toward zero; from infinity to the largest */
    return float_of(u | 1);
}

/* The same for integers that a double cannot hold. */
static double double_odd(int64_t i)
{
    uint64_t m = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (m >> 53) m = (m >> 11 | ((m & 2047) != 0)) << 11;
    return i < 0 ? -(double)m : (double)m;
}

static inline int64_t to_integer(double d, int64_t least, int64_t most)
{
    if (d != d) return 0;
    if (d <= (double)least) return least;
    if (d >= (double)most) return most;                     /* (double)INT64_MAX is 2^63 */
    return (int64_t)d;
}

/* How each dtype is read (as a double or an integer) and written (from either). */
#define GET_F32(x) ((double)(x))
#define GET_F64(x) (x)
#define GET_F16(x) ((double)wb__f16_to_f32(x))
#define GET_BF16(x) ((double)wb__bf16_to_f32(x))
#define GET_BOOL(x) ((x) != 0)
#define GET_I(x) (x)

#define D_F32(d) ((float)(d))
#define D_F64(d) (d)
#define D_F16(d) wb__f32_to_f16(narrow_odd(d))
#define D_BF16(d) wb__f32_to_bf16(narrow_odd(d))
#define D_I8(d) ((int8_t)to_integer(d, INT8_MIN, INT8_MAX))
#define D_U8(d) ((uint8_t)to_integer(d, 0, UINT8_MAX))
#define D_I32(d) ((int32_t)to_integer(d, INT32_MIN, INT32_MAX))
#define D_I64(d) to_integer(d, INT64_MIN, INT64_MAX)
#define D_BOOL(d) ((d) != 0)

#define I_F32(i) ((float)(i))
#define I_F64(i) ((double)(i))
#define I_F16(i) wb__f32_to_f16(narrow_odd(double_odd(i)))
#define I_BF16(i) wb__f32_to_bf16(narrow_odd(double_odd(i)))
#define I_I8(i) ((int8_t)(uint8_t)(i))
#define I_U8(i) ((uint8_t)(i))
#define I_I32(i) ((int32_t)(uint32_t)(i))
#define I_I64(i) ((int64_t)(i))
#define I_BOOL(i) ((i) != 0)

#define LOOP(TO, to_c, PUT, from_c, GET)                                    \
    case WB_##TO: {                                                         \
        to_c *y = to;                                                       \
        const from_c *x = from;                                             \
        for (int64_t k = 0; k < n; k++) y[k] = (to_c)PUT(GET(x[k]));        \
        return;                                                             \
    }
#define TO_ALL(KIND, from_c, GET)                                                                       \
    switch (to_type) {                                                                                  \
    LOOP(F32, float, KIND##_F32, from_c, GET) LOOP(F64, double, KIND##_F64, from_c, GET)                \
    LOOP(F16, uint16_t, KIND##_F16, from_c, GET) LOOP(BF16, uint16_t, KIND##_BF16, from_c, GET)         \
    LOOP(I8, int8_t, KIND##_I8, from_c, GET) LOOP(U8, uint8_t, KIND##_U8, from_c, GET)                  \
    LOOP(I32, int32_t, KIND##_I32, from_c, GET) LOOP(I64, int64_t, KIND##_I64, from_c, GET)             \
    LOOP(BOOL, uint8_t, KIND##_BOOL, from_c, GET)                                                       \
    default: return;                                                                                    \
    }

#define CONVERT_FROM(NAME, KIND, from_c, GET)                                                           \
    static void from_##NAME(void *to, wb_dtype to_type, const void *from, int64_t n)                    \
    {                                                                                                   \
        TO_ALL(KIND, from_c, GET)                                                                       \
    }
CONVERT_FROM(F32, D, float, GET_F32)
CONVERT_FROM(F64, D, double, GET_F64)
CONVERT_FROM(F16, D, uint16_t, GET_F16)
CONVERT_FROM(BF16, D, uint16_t, GET_BF16)
CONVERT_FROM(I8, I, int8_t, GET_I)
CONVERT_FROM(U8, I, uint8_t, GET_I)
CONVERT_FROM(I32, I, int32_t, GET_I)
CONVERT_FROM(I64, I, int64_t, GET_I)
CONVERT_FROM(BOOL, I, uint8_t, GET_BOOL)

void wb__convert(void *to, wb_dtype to_type, const void *from, wb_dtype from_type, int64_t n)
{
    if (n <= 0 || !known(to_type) || !known(from_type)) return;
    if (to_type == from_type && to_type != WB_BOOL) {
        memmove(to, from, (size_t)n * wb__dtype_size(to_type));
        return;
    }
    switch (from_type) {
#define CASE(NAME, type, bytes, floating, text) case WB_##NAME: from_##NAME(to, to_type, from, n); return;
    WB_DTYPES(CASE)
#undef CASE
    default: return;
    }
}
