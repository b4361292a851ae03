/* The inner loops of the product of bf16 operands with AVX512-BF16; the functions are those of
 * wb__gemm_kernel (isa.h).  An instruction multiplies 16 pairs of bf16 numbers and adds each pair's
 * products to an f32 sum, so operands are packed in pairs of two inner indices, one in the low half
 * of 32 bits and the next in the high half; an odd last index is followed by 0.  Operands of f32
 * are rounded to bf16 as they are packed.
 *
 * The instruction rounds each of its two sums to nearest, and replaces subnormal numbers by 0. */
#include "backend/cpu/isa.h"
#include "backend/cpu/transpose.h"

#include <string.h>

enum { LANES = 16, MR = 8, NV = 3, NR = NV * LANES, KC = 640, NC = 10 * NR };

#define BF16_INLINE static inline __attribute__((always_inline))

BF16_INLINE __mmask16 first(int64_t n) { return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1); }

/* Rounds like to_bf16, also subnormal numbers; the results are in the low halves of 32 bits. */
BF16_INLINE __m512i round_16(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, high, _mm512_set1_epi32(0x40));
}

/* Loads the first elements, at most 16, of contiguous memory of f32 or bf16. */
BF16_INLINE __m512i load_low(const void *p, wb_dtype type, __mmask16 some)
{
    return type == WB_F32 ? round_16(_mm512_maskz_loadu_ps(some, p))
                          : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, p));
}
BF16_INLINE __m256i load_pairs(const void *p, wb_dtype type, __mmask16 some)
{
    return type == WB_F32 ? _mm512_cvtepi32_epi16(round_16(_mm512_maskz_loadu_ps(some, p)))
                          : _mm256_maskz_loadu_epi16(some, p);
}
BF16_INLINE __m512 load_f32(const void *p, wb_dtype type, __mmask16 some)
{
    if (type == WB_F32) return _mm512_maskz_loadu_ps(some, p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(load_low(p, type, some), 16));
}
BF16_INLINE void store_f32(void *p, wb_dtype type, __mmask16 some, __m512 v)
{
    if (type == WB_F32) _mm512_mask_storeu_ps(p, some, v);
    else _mm256_mask_storeu_epi16(p, some, _mm512_cvtepi32_epi16(round_16(v)));
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Stores 8 sequences of 8 pairs at 8 rows of `to`, `width` pairs apart. */
BF16_INLINE void transpose_pairs(const __m256i s[8], uint32_t *to, int64_t width)
{
    __m256 r[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_castsi256_ps(s[i]);
    wb__transpose_8(r);
    for (int i = 0; i < 8; i++) _mm256_storeu_ps((float *)to + i * width, r[i]);
}

/* Packs a matrix with stride 1 along the inner index. */
static void pack_along(const char *base, wb_dtype type, int64_t s_across, int64_t along,
                       int64_t across, int64_t width, uint32_t *to)
{
    const int64_t size = type == WB_F32 ? 4 : 2;
    for (int64_t j = 0; j < width; j += 8)
        for (int64_t p = 0; p < along; p += 16) {
            const __mmask16 some = first(along - p);
            __m256i s[8];
            for (int64_t i = 0; i < 8; i++)
                s[i] = j + i < across ? load_pairs(base + ((j + i) * s_across + p) * size, type,
                                                   some) : _mm256_setzero_si256();
            uint32_t *at = to + p / 2 * width + j, edge[8 * 8];
            const int64_t rows = (WB__MIN(along - p, 16) + 1) / 2;
            transpose_pairs(s, rows == 8 ? at : edge, rows == 8 ? width : 8);
            if (rows < 8)
                for (int64_t r = 0; r < rows; r++) memcpy(at + r * width, edge + r * 8, 32);
        }
}

/* Packs a matrix of f32 or bf16: pair q of sequence j is at to[q*width + j], for j < width; those
 * from `across` on are 0.  width is a multiple of 8. */
static void bf16_pack(const void *base_, wb_dtype type, int64_t s_along, int64_t s_across,
                      int64_t along, int64_t across, int64_t width, uint32_t *to)
{
    const char *base = base_;
    const int64_t size = type == WB_F32 ? 4 : 2;
    if (s_along == 1 && s_across != 1) {
        pack_along(base, type, s_across, along, across, width, to);
        return;
    }
    for (int64_t p = 0; p < along; p += 2, to += width) {
        const char *row = base + p * s_along * size, *next = row + s_along * size;
        if (s_across != 1) {
            for (int64_t j = 0; j < width; j++) {
                const __mmask16 low = j < across, high = low && p + 1 < along;
                const int64_t at = j * s_across * size;
                const __m512i x = load_low(low ? row + at : row, type, low),
                              y = load_low(high ? next + at : row, type, high);
                to[j] = (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(x))
                      | (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(y)) << 16;
            }
            continue;
        }
        for (int64_t j = 0; j < width; j += LANES) {
            const __mmask16 low = first(WB__MAX(across - j, 0)), high = p + 1 < along ? low : 0;
            const __m512i x = load_low(low ? row + j * size : row, type, low),
                          y = load_low(high ? next + j * size : row, type, high);
            _mm512_mask_storeu_epi32(to + j, first(width - j),
                                     _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
        }
    }
}

static void bf16_pack_b(const wb__gemm *g, int64_t p0, int64_t pk, int64_t j0, int64_t j1,
                        void *to_)
{
    const int64_t size = g->b_type == WB_F32 ? 4 : 2;
    uint32_t *to = to_;
    for (int64_t j = j0; j < j1; j += NR, to += (pk + 1) / 2 * NR)
        bf16_pack((const char *)g->b + (p0 * g->bs0 + j * g->bs1) * size, g->b_type, g->bs0, g->bs1,
                  pk, WB__MIN(j1 - j, NR), NR, to);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* C[i,j] = sum over pairs of A and B [+ C] [+ bias].  Pair q of row i of A is at a + i*as0 + q*as1,
 * in bytes.  If odd, the last pair of A is one number.  columns: of C, at most NR.  bs0: 0 if B is
 * packed, else the stride between its rows, in elements. */
typedef struct {
    int64_t pairs, as0, as1, bs0, cs0, columns;
    const char *a;
    const void *b;
    char *c;
    wb_dtype c_type;
    const char *bias;
    wb_dtype bias_type;
    bool odd, bias_rows, add, relu;
} bf16_tile;

BF16_INLINE void finish(const int mr, const int nv, __m512 acc[MR][NV], const bf16_tile *t)
{
    const int64_t size = t->c_type == WB_F32 ? 4 : 2, bias_size = t->bias_type == WB_F32 ? 4 : 2;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        __m512 row_bias = _mm512_setzero_ps();
        if (t->bias && t->bias_rows)
            row_bias = _mm512_broadcastss_ps(_mm512_castps512_ps128(
                load_f32(t->bias + i * bias_size, t->bias_type, 1)));
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) {
            const __mmask16 some = first(t->columns - j * LANES);
            char *at = t->c + (i * t->cs0 + j * LANES) * size;
            __m512 v = acc[i][j];
            if (t->add) v = _mm512_add_ps(v, load_f32(at, t->c_type, some));
            if (t->bias && t->bias_rows) v = _mm512_add_ps(v, row_bias);
            else if (t->bias)
                v = _mm512_add_ps(v, load_f32(t->bias + j * LANES * bias_size, t->bias_type, some));
            if (t->relu) v = _mm512_max_ps(_mm512_setzero_ps(), v);         /* keeps NaN */
            store_f32(at, t->c_type, some, v);
        }
    }
}

/* Adds the products of one pair of inner indices.  bytes: size of the pair in A; 2: one number. */
BF16_INLINE void step(const int mr, const int nv, const size_t bytes, __m512 acc[MR][NV],
                      const char *row[MR], const int64_t as1, const __m512bh bv[NV])
{
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        uint32_t pair = 0;
        memcpy(&pair, row[i], bytes);
        const __m512bh av = (__m512bh)_mm512_set1_epi32((int)pair);
        row[i] += as1;
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], av, bv[j]);
    }
}

BF16_INLINE void panel_row(const int nv, const uint32_t *b, __m512bh bv[NV])
{
#pragma GCC unroll 3
    for (int j = 0; j < nv; j++) bv[j] = (__m512bh)_mm512_loadu_si512(b + j * LANES);
}

/* Sets bv to the pairs of two rows of B; next: the second row, or NULL if there is none. */
BF16_INLINE void interleave(const int nv, const bf16_tile *t, const uint16_t *b,
                            const uint16_t *next, __m512bh bv[NV])
{
#pragma GCC unroll 3
    for (int j = 0; j < nv; j++) {
        const __mmask16 some = first(t->columns - j * LANES);
        __m512i v = load_low(b + j * LANES, WB_BF16, some);
        if (next)
            v = _mm512_or_si512(v, _mm512_slli_epi32(load_low(next + j * LANES, WB_BF16, some),
                                                     16));
        bv[j] = (__m512bh)v;
    }
}

BF16_INLINE void multiply(const int mr, const int nv, const int in_place, const int64_t as0,
                          const int64_t as1, const bf16_tile *t)
{
    __m512 acc[MR][NV];
    const char *row[MR];
    __m512bh bv[NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        row[i] = t->a + i * as0;
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) acc[i][j] = _mm512_setzero_ps();
    }
    if (in_place) {
        const uint16_t *b = t->b;
        for (int64_t q = t->pairs; q > 0; q--, b += 2 * t->bs0) {
            interleave(nv, t, b, b + t->bs0, bv);
            step(mr, nv, 4, acc, row, as1, bv);
        }
        if (t->odd) interleave(nv, t, b, NULL, bv);
    } else {
        const uint32_t *b = t->b;
        for (int64_t q = t->pairs; q > 0; q--, b += NR) {
            panel_row(nv, b, bv);
            step(mr, nv, 4, acc, row, as1, bv);
        }
        if (t->odd) panel_row(nv, b, bv);
    }
    if (t->odd) step(mr, nv, 2, acc, row, as1, bv);
    finish(mr, nv, acc, t);
}

enum { PACKED_ROW = 4, PACKED_PAIR = 4 * MR };  /* strides of a packed panel of A, in bytes */

#define TILE(mr, nv)                                                                               \
    static __attribute__((noinline)) void tile_##mr##_##nv(const bf16_tile *t)                     \
    {                                                                                              \
        if (t->bs0) multiply(mr, nv, 1, t->as0, t->as1, t);                                        \
        else if (t->as1 == PACKED_PAIR) multiply(mr, nv, 0, PACKED_ROW, PACKED_PAIR, t);           \
        else multiply(mr, nv, 0, t->as0, 4, t);                                                    \
    }
#define TILES(mr) TILE(mr, 1) TILE(mr, 2) TILE(mr, 3)
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) TILES(7) TILES(8)

#define BF16_ROW(mr) {tile_##mr##_1, tile_##mr##_2, tile_##mr##_3}
static void (*const bf16_tiles[MR][NV])(const bf16_tile *t) = {BF16_ROW(1), BF16_ROW(2),
                                                               BF16_ROW(3), BF16_ROW(4),
                                                               BF16_ROW(5), BF16_ROW(6),
                                                               BF16_ROW(7), BF16_ROW(8)};

/* Copies between a tile of C and `part`, an f32 tile of rows of NR elements that replaces it where
 * C has other strides than rows, or where an epilogue is applied to the f32 numbers. */
static void bf16_exchange(const wb__gemm *g, int64_t i0, int64_t j0, int mr, int nr, float *part,
                          bool store)
{
    const int64_t size = g->c_type == WB_F32 ? 4 : 2;
    for (int i = 0; i < mr; i++) {
        char *c = (char *)g->c + ((i0 + i) * g->cs0 + j0 * g->cs1) * size;
        const int n = g->cs1 == 1 ? LANES : 1;
        for (int j = 0; j < nr; j += n) {
            const __mmask16 some = first(WB__MIN(nr - j, n));
            if (store)
                store_f32(c + j * g->cs1 * size, g->c_type, some,
                          _mm512_maskz_loadu_ps(some, part + i * NR + j));
            else
                _mm512_mask_storeu_ps(part + i * NR + j, some,
                                      load_f32(c + j * g->cs1 * size, g->c_type, some));
        }
    }
}

static void bf16_block(const wb__gemm *g, int64_t p0, int64_t pk, int64_t i0, int64_t i1,
                       int64_t j0, int64_t j1, const void *packed, bool begin, bool last)
{
    _Alignas(64) uint32_t panel[MR * KC / 2];
    _Alignas(64) float part[MR * NR];
    const int64_t a_size = g->a_type == WB_F32 ? 4 : 2, c_size = g->c_type == WB_F32 ? 4 : 2,
                  bias_size = g->bias_type == WB_F32 ? 4 : 2;
    const bool copy = g->a_type != WB_BF16 || g->as1 != 1 || (packed && j1 - j0 > 2 * NR);
    const bool odd = pk % 2 && !(copy && packed);
    wb__elementwise_fn *row = last ? g->act.row : NULL;
    const bool direct = g->cs1 == 1 && !row;
    for (int64_t i = i0; i < i1; i += MR) {
        const int mr = (int)WB__MIN(i1 - i, MR);
        const char *a = (const char *)g->a + (i * g->as0 + p0 * g->as1) * a_size;
        if (copy) bf16_pack(a, g->a_type, g->as1, g->as0, pk, mr, MR, panel);
        for (int64_t j = j0; j < j1; j += NR) {
            const int nr = (int)WB__MIN(j1 - j, NR);
            bf16_tile t = {.pairs = odd ? pk / 2 : (pk + 1) / 2, .odd = odd,
                           .a = copy ? (const char *)panel : a,
                           .as0 = copy ? PACKED_ROW : g->as0 * a_size,
                           .as1 = copy ? PACKED_PAIR : 4, .bs0 = packed ? 0 : g->bs0, .columns = nr,
                           .c = direct ? (char *)g->c + (i * g->cs0 + j) * c_size : (char *)part,
                           .cs0 = direct ? g->cs0 : NR, .c_type = direct ? g->c_type : WB_F32,
                           .bias_rows = g->bias_rows, .bias_type = g->bias_type,
                           .add = !begin || g->add_to_c, .relu = last && g->act.relu};
            if (packed) t.b = (const uint32_t *)packed + (j - j0) * ((pk + 1) / 2);
            else t.b = (const uint16_t *)g->b + p0 * g->bs0 + j;
            if (last && g->bias)
                t.bias = (const char *)g->bias + (g->bias_rows ? i : j) * bias_size;
            if (!direct && t.add) bf16_exchange(g, i, j, mr, nr, part, false);
            bf16_tiles[mr - 1][(nr - 1) / LANES](&t);
            for (int r = 0; row && r < mr; r++) row(part + r * NR, part + r * NR, NULL, NULL, nr);
            if (!direct) bf16_exchange(g, i, j, mr, nr, part, true);
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

BF16_INLINE __m512 add_products(__m512 sum, const uint16_t *a, const uint16_t *b, __mmask32 some)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_maskz_loadu_epi16(some, a),
                            (__m512bh)_mm512_maskz_loadu_epi16(some, b));
}

/* Returns the product of n elements of a and b; see one_dot in gemm_kernel.h. */
BF16_INLINE float one_dot(const uint16_t *a, const uint16_t *b, int64_t n)
{
    enum { CHAINS = 4, PER = 2 * LANES };
    const __mmask32 all = 0xffffffff;
    __m512 acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_setzero_ps();
    int64_t p = 0;
    for (; p + CHAINS * PER <= n; p += CHAINS * PER)
#pragma GCC unroll 4
        for (int i = 0; i < CHAINS; i++)
            acc[i] = add_products(acc[i], a + p + i * PER, b + p + i * PER, all);
    for (; p < n; p += PER)
        acc[0] = add_products(acc[0], a + p, b + p, n - p >= PER ? all : (1u << (n - p)) - 1);
    return _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
}

/* Computes rows of C from bf16 operands.  B is read in place, once for each row of A. */
static void bf16_dots(const wb__gemm *g, int64_t i0, int64_t i1)
{
    enum { AT_ONCE = 64 };
    const int64_t c_size = g->c_type == WB_F32 ? 4 : 2, bias_size = g->bias_type == WB_F32 ? 4 : 2;
    float sum[AT_ONCE];
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < g->n; j += AT_ONCE) {
            const int n = (int)WB__MIN(g->n - j, AT_ONCE);
            char *c = (char *)g->c + (i * g->cs0 + j * g->cs1) * c_size;
            for (int at = 0; at < n; at++)
                sum[at] = one_dot((const uint16_t *)g->a + i * g->as0,
                                  (const uint16_t *)g->b + (j + at) * g->bs1, g->k);
            for (int at = 0; at < n; at++) {
                const char *bias = (const char *)g->bias + (g->bias_rows ? i : j + at) * bias_size,
                           *to = c + at * g->cs1 * c_size;
                __m512 v = _mm512_set1_ps(sum[at]);
                if (g->add_to_c) v = _mm512_add_ps(v, load_f32(to, g->c_type, 1));
                if (g->bias) v = _mm512_add_ps(v, load_f32(bias, g->bias_type, 1));
                if (g->act.relu) v = _mm512_max_ps(_mm512_setzero_ps(), v);
                sum[at] = _mm512_cvtss_f32(v);
            }
            if (g->act.row) g->act.row(sum, sum, NULL, NULL, n);
            for (int at = 0; at < n; at++)
                store_f32(c + at * g->cs1 * c_size, g->c_type, 1, _mm512_set1_ps(sum[at]));
        }
}

const wb__gemm_kernel wb__gemm_bf16_avx512 = {
    .mr = MR, .nr = NR, .lanes = LANES, .kc = KC, .nc = NC, .masked = true, .narrow = true,
    .pack_b = bf16_pack_b, .block = bf16_block, .dots = bf16_dots
};
