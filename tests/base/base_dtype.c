/* Dtypes against separate plain code: every 16-bit float, rounding by search, conversion between
 * all pairs. */
#include "test.h"

#include "base/base.h"

/* The value of a small float with e bits of exponent and m of fraction, from its definition. */
static double value_of(unsigned h, int e, int m)
{
    int bias = (1 << (e - 1)) - 1, exponent = (int)(h >> m) & ((1 << e) - 1);
    double fraction = h & ((1u << m) - 1), sign = h >> (e + m) & 1 ? -1 : 1;
    if (exponent == (1 << e) - 1) return fraction != 0 ? (double)NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(fraction, 1 - bias - m);
    return sign * ldexp(fraction + (1 << m), exponent - bias - m);
}

/* The bits of d, rounded to nearest even by a search over all finite values.  Infinity counts as
 * the value after the largest finite one. */
static unsigned nearest(double d, int e, int m)
{
    unsigned sign = signbit(d) ? 1u << (e + m) : 0, inf = ((1u << e) - 1) << m, low = 0, high = inf;
    d = fabs(d);
    double past = ldexp(1, 1 << (e - 1));
    if (d >= past) return sign | inf;
    while (high - low > 1) {                    /* value(low) <= d < value(high) */
        unsigned middle = (low + high) / 2;
        *(value_of(middle, e, m) <= d ? &low : &high) = middle;
    }
    double below = d - value_of(low, e, m), above = (high == inf ? past : value_of(high, e, m)) - d;
    return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}

static bool same(double a, double b)
{
    return a == b ? signbit(a) == signbit(b) : a != a && b != b;
}

TEST(all_16_bit_floats)
{
    for (unsigned h = 0; h < 65536; h++) {
        float f = wb__f16_to_f32((uint16_t)h), b = wb__bf16_to_f32((uint16_t)h);
        assert_true(same(f, value_of(h, 5, 10)));
        assert_true(same(b, value_of(h, 8, 7)));
        if (f == f) assert_int_equal(wb__f32_to_f16(f), h);
        else
            assert_true((wb__f32_to_f16(f) & 0x7fff) > 0x7c00 &&
                        wb__f32_to_f16(f) >> 15 == h >> 15);
        if (b == b) assert_int_equal(wb__f32_to_bf16(b), h);
        else assert_true((wb__f32_to_bf16(b) & 0x7fff) > 0x7f80);
    }
}

TEST(rounding_is_to_nearest_even)
{
    uint32_t u = 0;
    for (int i = 0; i < 300000; i++) {
        u = u * 1664525u + 1013904223u;
        float f;
        uint32_t bits = i % 3 ? u : (u & 0x8fffffff) | 0x30000000 | (i % 2 ? 0 : u << 20);
        memcpy(&f, &bits, 4);
        if (f != f) continue;
        assert_int_equal(wb__f32_to_f16(f), nearest(f, 5, 10));
        assert_int_equal(wb__f32_to_bf16(f), nearest(f, 8, 7));
    }
    for (unsigned h = 0; h < 0x7c00; h++) {     /* every midpoint and its neighbours */
        float middle =
            (float)((value_of(h, 5, 10) + (h == 0x7bff ? 65536 : value_of(h + 1, 5, 10))) / 2);
        for (int k = -1; k <= 1; k++) {
            float f = k ? nextafterf(middle, k * INFINITY) : middle;
            assert_int_equal(wb__f32_to_f16(f), nearest(f, 5, 10));
        }
    }
    assert_int_equal(wb__f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(wb__f32_to_f16(65520), 0x7c00);
    assert_int_equal(wb__f32_to_f16(0x1p-25f), 0);
    assert_int_equal(wb__f32_to_f16(0x1.000002p-25f), 1);
}

TEST(doubles_round_once)
{
    /* d[0] is just above the midpoint of 1 and the next f16.  Rounded to f32 first, it would be the
     * midpoint and then become 1, which is even. */
    double d[] = {1 + 0x1p-11 + 0x1p-40,
                  -(1 + 0x1p-11 + 0x1p-40),
                  1 + 3 * 0x1p-11 - 0x1p-40,
                  1e300,
                  -1e-300,
                  0x1p-25 + 0x1p-70,
                  INFINITY,
                  -0.0};
    for (size_t i = 0; i < WB__COUNT(d); i++) {
        uint16_t h, b;
        wb__convert(&h, WB_F16, &d[i], WB_F64, 1);
        wb__convert(&b, WB_BF16, &d[i], WB_F64, 1);
        assert_int_equal(h, nearest(d[i], 5, 10));
        assert_int_equal(b, nearest(d[i], 8, 7));
    }
    int64_t i = (1ll << 62) + (1ll << 54) + 1;
    uint16_t b;
    wb__convert(&b, WB_BF16, &i, WB_I64, 1);
    assert_int_equal(b, nearest(ldexp(1, 62) + ldexp(1, 54) + ldexp(1, 20), 8, 7));
}

/* x converted to dtype t, in plain code. */
static double expected(double x, wb_dtype t)
{
    double least = t == WB_I8 ? -128 : t == WB_I32 ? -2147483648.0 : t == WB_I64 ? -0x1p63 : 0;
    double most = t == WB_I8 ? 127 : t == WB_U8 ? 255 : t == WB_I32 ? 2147483647.0 : 0x1p63;
    switch (t) {
    case WB_F32: return (float)x;
    case WB_F64: return x;
    case WB_F16: return x != x ? x : value_of(nearest(x, 5, 10), 5, 10);
    case WB_BF16: return x != x ? x : value_of(nearest(x, 8, 7), 8, 7);
    case WB_BOOL: return x != 0;
    default: return x != x ? 0 : x <= least ? least : x >= most ? most : trunc(x) + 0.0;
    }
}

static double read_one(const void *p, wb_dtype t)
{
    switch (t) {
    case WB_F32: return *(const float *)p;
    case WB_F64: return *(const double *)p;
    case WB_F16: return value_of(*(const uint16_t *)p, 5, 10);
    case WB_BF16: return value_of(*(const uint16_t *)p, 8, 7);
    case WB_I8: return *(const int8_t *)p;
    case WB_U8: case WB_BOOL: return *(const uint8_t *)p;
    case WB_I32: return *(const int32_t *)p;
    default: return (double)*(const int64_t *)p;
    }
}

TEST(all_pairs)
{
    const double x[] = {0,     1,      -1,         0.5,          -0.5,          1.999,
                        100.7, -100.7, 127,        128,          -129,          255,
                        256,   1e5,    2147483647, 2147483648.0, -2147483649.0, 1e10,
                        9e18,  9.3e18, -1e19,      3.14159,      65504,         65520,
                        1e-7,  1e-40,  NAN,        INFINITY,     -INFINITY};
    for (wb_dtype from = WB_F32; from < WB_DTYPE_COUNT; from++)
        for (wb_dtype to = WB_F32; to < WB_DTYPE_COUNT; to++)
            for (size_t i = 0; i < WB__COUNT(x); i++) {
                _Alignas(8) char a[8], b[8];
                wb__convert(a, from, &x[i], WB_F64, 1);
                double held = read_one(a, from);
                assert_true(same(held, expected(x[i], from)) ||
                            (held == 0 && !wb__dtype_float(from)));
                wb__convert(b, to, a, from, 1);
                bool wraps = !wb__dtype_float(from) && !wb__dtype_float(to) && to != WB_BOOL;
                int64_t whole =
                    wraps && to != WB_I64 ? (from == WB_I64 ? *(int64_t *)a : (int64_t)held) : 0;
                double want = !wraps || to == WB_I64 ? expected(held, to)
                    : to == WB_I8 ? (int8_t)whole : to == WB_U8 ? (uint8_t)whole : (int32_t)whole;
                if (from == WB_I64 && to == WB_I64) want = held;
                double got = read_one(b, to);
                if (!same(got, want) && got != want)
                    fail_msg("%g as %s to %s: %g, expected %g", x[i], wb_dtype_name(from),
                             wb_dtype_name(to), got, want);
            }
}

TEST(the_table)
{
    assert_string_equal(wb_dtype_name(WB_BF16), "bf16");
    assert_int_equal(wb_dtype_bytes(WB_I64), 8);
    assert_true(wb__dtype_float(WB_F16) && !wb__dtype_float(WB_BOOL));
    assert_int_equal(wb_dtype_bytes((wb_dtype)99), 0);
    assert_string_equal(wb_dtype_name((wb_dtype)-1), "no dtype");
    uint8_t truth[3] = {0, 1, 7}, out[3];
    wb__convert(out, WB_BOOL, truth, WB_BOOL, 3);
    assert_memory_equal(out, ((uint8_t[]){0, 1, 1}), 3);
}
