/* The table of dtypes, the two 16-bit floats, and conversions between all pairs of dtypes, as plain
 * loops.  The backends have fast conversions of their own. */
#include "base/base.h"

#include "base/numbers/dialect.h"

static const struct {
    const char *name;
    uint8_t bytes, floating;
} dtype_table[WB_DTYPE_COUNT] = {
    {"default", 0, 0},
#define ROW(NAME, type, bytes, floating, text) {text, bytes, floating},
    WB_DTYPES(ROW)
#undef ROW
};

static bool dtype_known(wb_dtype t) { return (unsigned)t < WB_DTYPE_COUNT; }

const char *wb_dtype_name(wb_dtype t) { return dtype_known(t) ? dtype_table[t].name : "no dtype"; }
size_t wb__dtype_size(wb_dtype t) { return dtype_known(t) ? dtype_table[t].bytes : 0; }
size_t wb_dtype_bytes(wb_dtype t) { return wb__dtype_size(t); }
bool wb__dtype_float(wb_dtype t) { return dtype_known(t) && dtype_table[t].floating; }

float wb__f16_to_f32(uint16_t h) { return of_f16(h); }
uint16_t wb__f32_to_f16(float f) { return to_f16(f); }
float wb__bf16_to_f32(uint16_t h) { return of_bf16(h); }
uint16_t wb__f32_to_bf16(float f) { return to_bf16(f); }
float wb__f64_to_odd(double d) { return odd_of_f64(d); }

static inline int64_t to_integer(double d, int64_t least, int64_t most)
{
    if (d != d) return 0;
    if (d <= (double)least) return least;
    if (d >= (double)most) return most;                     /* (double)INT64_MAX is 2^63 */
    return (int64_t)d;
}

/* GET_ macros read an element as a double or an integer.  D_ macros convert a double to a dtype.
 * I_ macros convert an integer to a dtype. */
#define GET_F32(x) ((double)(x))
#define GET_F64(x) (x)
#define GET_F16(x) ((double)of_f16(x))
#define GET_BF16(x) ((double)of_bf16(x))
#define GET_BOOL(x) ((x) != 0)
#define GET_I(x) (x)

#define D_F32(d) ((float)(d))
#define D_F64(d) (d)
#define D_F16(d) to_f16(odd_of_f64(d))
#define D_BF16(d) to_bf16(odd_of_f64(d))
#define D_I8(d) ((int8_t)to_integer(d, INT8_MIN, INT8_MAX))
#define D_U8(d) ((uint8_t)to_integer(d, 0, UINT8_MAX))
#define D_I32(d) ((int32_t)to_integer(d, INT32_MIN, INT32_MAX))
#define D_I64(d) to_integer(d, INT64_MIN, INT64_MAX)
#define D_BOOL(d) ((d) != 0)

#define I_F32(i) ((float)(i))
#define I_F64(i) ((double)(i))
#define I_F16(i) to_f16(odd_of_i64(i))
#define I_BF16(i) to_bf16(odd_of_i64(i))
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
#define TO_ALL(KIND, from_c, GET)                                                                  \
    switch (to_type) {                                                                             \
    LOOP(F32, float, KIND##_F32, from_c, GET) LOOP(F64, double, KIND##_F64, from_c, GET)           \
    LOOP(F16, uint16_t, KIND##_F16, from_c, GET) LOOP(BF16, uint16_t, KIND##_BF16, from_c, GET)    \
    LOOP(I8, int8_t, KIND##_I8, from_c, GET) LOOP(U8, uint8_t, KIND##_U8, from_c, GET)             \
    LOOP(I32, int32_t, KIND##_I32, from_c, GET) LOOP(I64, int64_t, KIND##_I64, from_c, GET)        \
    LOOP(BOOL, uint8_t, KIND##_BOOL, from_c, GET)                                                  \
    default: return;                                                                               \
    }

#define CONVERT_FROM(NAME, KIND, from_c, GET)                                                      \
    static void from_##NAME(void *to, wb_dtype to_type, const void *from, int64_t n)               \
    {                                                                                              \
        TO_ALL(KIND, from_c, GET)                                                                  \
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
    if (n <= 0 || !dtype_known(to_type) || !dtype_known(from_type)) return;
    if (to_type == from_type && to_type != WB_BOOL) {
        memmove(to, from, (size_t)n * wb__dtype_size(to_type));
        return;
    }
    switch (from_type) {
#define CASE(NAME, type, bytes, floating, text) \
    case WB_##NAME: from_##NAME(to, to_type, from, n); return;
    WB_DTYPES(CASE)
#undef CASE
    default: return;
    }
}
