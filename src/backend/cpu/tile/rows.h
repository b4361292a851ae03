/* The functions of tile programs, compiled once for each instruction set: portable.c, avx2.c and
 * avx512.c define WB__ISA (portable, avx2, avx512) and include this file.  Most are plain loops
 * that the compiler vectorises.  Reductions along a row, which the compiler must not reorder, and
 * f16 conversions are written with vectors.  Integers wrap around (-fwrapv). */
#ifdef __clang__
/* clang would warn that LOOP (below) cannot vectorise a loop that calls libm */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#include "backend/cpu/tile/tile.h"
#include "base/numbers/philox.h"
#include "base/numbers/dialect.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifdef __clang__
#define LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOP _Pragma("GCC ivdep")
#endif

#define OWN2_(a, b) a##_##b
#define OWN2(a, b) OWN2_(a, b)
#define OWN3_(a, b, c) a##_##b##_##c
#define OWN3(a, b, c) OWN3_(a, b, c)

#define KIND f32
#define FLOATS_HERE 1
#define BOOLS_HERE 0
#include "backend/cpu/tile/kind.h"
#define KIND f64
#define FLOATS_HERE 1
#define BOOLS_HERE 0
#include "backend/cpu/tile/kind.h"
#define KIND i32
#define FLOATS_HERE 0
#define BOOLS_HERE 1
#include "backend/cpu/tile/kind.h"
#define KIND i64
#define FLOATS_HERE 0
#define BOOLS_HERE 0
#include "backend/cpu/tile/kind.h"

#include "backend/cpu/tile/memory.h"
#include "backend/cpu/tile/reduce.h"

/* Whether any argument is too large for our sin and cos; libm then computes all n. */
static int beyond_bound(const float *a, int64_t n)
{
    int far = 0;
    for (int64_t i = 0; i < n; i++) far |= __builtin_fabsf(a[i]) > WB__TRIG_BOUND;
    return far;
}

#define ANY_ARGUMENT(name)                                                                         \
    static void row_##name##_any(void *d, const void *a, const void *b, const void *c, int64_t n)  \
    {                                                                                              \
        if (!beyond_bound(a, n)) row_##name##_vvv_f32(d, a, b, c, n);                              \
        else for (int64_t i = 0; i < n; i++) ((float *)d)[i] = name##f(((const float *)a)[i]);     \
    }
ANY_ARGUMENT(sin)
ANY_ARGUMENT(cos)

#include "backend/cpu/tile/draw.h"

/* ---- pairs of operations --------------------------------------------------------------------- */

#define PAIR_FORM(first, second, form, y_is, z_is)                                                 \
    static void pair_##first##_##second##_##form(void *d_, const void *a_, const void *b_,         \
                                                 const void *c_, int64_t n)                        \
    {                                                                                              \
        float *d = d_;                                                                             \
        const float *a = a_, *b = b_, *c = c_, b0 = *b, c0 = *c;                                   \
        (void)b0, (void)c0;                                                                        \
        LOOP for (int64_t i = 0; i < n; i++) {                                                     \
            const float x = a[i], y = y_is, z = z_is;                                              \
            const float w = FIRST_##first;                                                         \
            d[i] = SECOND_##second;                                                                \
        }                                                                                          \
    }
#define PAIR(first, second)                                                                        \
    PAIR_FORM(first, second, 0, b[i], c[i])                                                        \
    PAIR_FORM(first, second, 1, b0, c[i])                                                          \
    PAIR_FORM(first, second, 2, b[i], c0)                                                          \
    PAIR_FORM(first, second, 3, b0, c0)
#define PAIRS(first) PAIR(first, ADD) PAIR(first, SUB) PAIR(first, MUL) PAIR(first, RSUB)
#define FIRST_ADD x + y
#define FIRST_SUB x - y
#define FIRST_MUL x * y
#define SECOND_ADD w + z
#define SECOND_SUB w - z
#define SECOND_MUL w * z
#define SECOND_RSUB z - w
PAIRS(ADD)
PAIRS(SUB)
PAIRS(MUL)

/* ---- the table ------------------------------------------------------------------------------- */

#define AT1(name, kind) {row_##name##_vvv_##kind}
#define AT2(name, kind) {row_##name##_vvv_##kind, row_##name##_vsv_##kind, row_##name##_svv_##kind}
#define FLOATS(at, name) [WB__REG_F32] = at(name, f32), [WB__REG_F64] = at(name, f64)
#define NUMBERS(at, name) \
    FLOATS(at, name), [WB__REG_I32] = at(name, i32), [WB__REG_I64] = at(name, i64)
#define ANY(at, name) NUMBERS(at, name)
#define BOOLS(at, name) [WB__REG_I32] = at(name, i32)
#define KINDS(what) {what##_f32, what##_f64, what##_i32, what##_i64}
#define WHERES(kind) {where_vv_##kind, where_sv_##kind, where_vs_##kind}
#define CASTS(kind)                                                                                \
    {[WB_F32] = cast_##kind##_F32, [WB_F64] = cast_##kind##_F64, [WB_F16] = cast_##kind##_F16,     \
     [WB_BF16] = cast_##kind##_BF16, [WB_I8] = cast_##kind##_I8, [WB_U8] = cast_##kind##_U8,       \
     [WB_I32] = cast_##kind##_I32, [WB_I64] = cast_##kind##_I64, [WB_BOOL] = cast_##kind##_BOOL}
#define OF_DTYPE(NAME, type, bytes, floating, text) [WB_##NAME] = load_##NAME,
#define TO_DTYPE(NAME, type, bytes, floating, text) [WB_##NAME] = store_##NAME,
#define PAIR_AT(first, second)                                                                     \
    [WB__PAIR_##second] = {pair_##first##_##second##_0, pair_##first##_##second##_1,               \
                           pair_##first##_##second##_2, pair_##first##_##second##_3}
#define PAIR_ROW(first)                                                                            \
    [WB__PAIR_##first] = {PAIR_AT(first, ADD), PAIR_AT(first, SUB), PAIR_AT(first, MUL),           \
                          PAIR_AT(first, RSUB)}
#define QUOTED_(x) #x
#define QUOTED(x) QUOTED_(x)

const wb__tile_table OWN2(wb__tile, WB__ISA) = {
    .isa = QUOTED(WB__ISA),
    .row = {
#define WB_UNARY(name, accepts, expression, gradient) [WB__OP_##name] = {accepts(AT1, name)},
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) \
        [WB__OP_##name] = {accepts(AT2, name)},
#define WB_COMPARE(name, accepts, expression) [WB__OP_##name] = {accepts(AT2, name)},
#define WB_TEST(name, accepts, expression) [WB__OP_##name] = {accepts(AT1, name)},
#include "ops/ops.def"
        [WB__OP_where] = {WHERES(f32), WHERES(f64), WHERES(i32), WHERES(i64)},
    },
    .far = {row_sin_any, row_cos_any},
    .where_ss = KINDS(where_ss),
    .pair = {PAIR_ROW(ADD), PAIR_ROW(SUB), PAIR_ROW(MUL)},
    .cast = {CASTS(f32), CASTS(f64), CASTS(i32), CASTS(i64)},
    .load = {WB_DTYPES(OF_DTYPE)},
    .store = {WB_DTYPES(TO_DTYPE)},
    .iota = KINDS(iota),
    .uniform = {uniform_f32, uniform_f64},
    .gaussian = {gaussian_f32, gaussian_f64},
    .splat = KINDS(splat),
    .reduction = {KINDS(reduce_sum), KINDS(reduce_max), KINDS(reduce_min), KINDS(reduce_argmax)},
    .gather = {KINDS(gather_sum), KINDS(gather_max), KINDS(gather_min), KINDS(gather_argmax)},
    .flush = flush_f32,
};
