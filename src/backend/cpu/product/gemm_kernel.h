/* The inner loops of the matrix product.  cpu_kernels.h includes this file once per computed type,
 * after simd.h, which defines:
 *
 *     T           float or double            NAME(x)   the name of x for this type
 *     LANES       elements of a vector       MR, NV    a tile: MR rows by NV vectors
 *     MASKED      1 if load_some and store_some of simd.h need no copy
 *
 * A tile keeps MR x NV vectors of C in registers.  Each inner index costs NV loads of B, MR
 * broadcasts of A and MR*NV multiply-adds.  A panel of MR rows of A stays in L1; B streams from
 * L2. */

#define NR (NV * LANES)

/* Stores a tile's sums in C, with the bias, the old C and relu of t. */
static inline __attribute__((always_inline)) void NAME(finish)(
    const int mr, const int nv, const int some, V acc[MR][NV], T *c, const wb__tile *t)
{
    const T *bias = t->bias;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) {
            const int ragged = some && j == nv - 1;
            T *at = c + i * t->cs0 + j * LANES;
            V v = acc[i][j];
            if (t->add) v += ragged ? load_some(at, some) : load(at);
            if (bias) {
                if (t->bias_rows) v += spread(bias[i]);
                else v += ragged ? load_some(bias + j * LANES, some) : load(bias + j * LANES);
            }
            if (t->relu) v = at_least_0(v);
            if (ragged) store_some(at, v, some);
            else store(at, v);
        }
    }
}

/* Computes a tile of `mr` rows and `nv` vectors.  some: number of valid lanes in the last vector of
 * a row; 0: all.  read_some: 1 if only the valid lanes of B are read, 0 if B is padded to whole
 * vectors. */
static inline __attribute__((always_inline)) void NAME(tile)(
    const int mr, const int nv, const int some, const int read_some, const T *a, const T *b, T *c,
    const wb__tile *t)
{
    V acc[MR][NV];
    const int64_t as1 = t->as1, bs0 = t->bs0, k = t->k;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) acc[i][j] = spread(0);
    for (int64_t o = 0; o < t->outer; o++, a += t->a_outer, b += t->b_outer) {
        const T *row[MR], *line = b;
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) row[i] = a + i * t->as0;
        for (int64_t p = 0; p < k; p++) {
            V bv[NV];
#pragma GCC unroll 3
            for (int j = 0; j < nv; j++)
                bv[j] = read_some && j == nv - 1 ? load_some(line + j * LANES, some)
                                                 : load(line + j * LANES);
            line += bs0;
#pragma GCC unroll 8
            for (int i = 0; i < mr; i++) {
                V av = spread(*row[i]);
                row[i] += as1;
#pragma GCC unroll 3
                for (int j = 0; j < nv; j++) acc[i][j] = multiply_add(av, bv[j], acc[i][j]);
            }
        }
    }
    NAME(finish)(mr, nv, some, acc, c, t);
}

/* Computes a tile as `tile` does, from a packed panel of A: MR elements for each inner index. */
static inline __attribute__((always_inline)) void NAME(tile_packed)(
    const int mr, const int nv, const int some, const int read_some, const T *a, const T *b, T *c,
    const wb__tile *t)
{
    V acc[MR][NV];
    const int64_t bs0 = t->bs0, k = t->k;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++) acc[i][j] = spread(0);
    for (int64_t p = 0; p < k; p++) {
        V bv[NV];
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            bv[j] = read_some && j == nv - 1 ? load_some(b + j * LANES, some) : load(b + j * LANES);
        b += bs0;
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            V av = spread(a[i]);
#pragma GCC unroll 3
            for (int j = 0; j < nv; j++) acc[i][j] = multiply_add(av, bv[j], acc[i][j]);
        }
        a += MR;
    }
    NAME(finish)(mr, nv, some, acc, c, t);
}

typedef void NAME(tile_fn)(int some, const T *a, const T *b, T *c, const wb__tile *t);

#define TILE_FN(mr, nv)                                                                            \
    static __attribute__((noinline)) void NAME(tile_##mr##_##nv)(int some, const T *a, const T *b, \
                                                                 T *c, const wb__tile *t)          \
    {                                                                                              \
        if (t->as1 == MR && t->as0 == 1 && t->outer == 1) {                                        \
            if (!some) NAME(tile_packed)(mr, nv, 0, 0, a, b, c, t);                                \
            else NAME(tile_packed)(mr, nv, some, MASKED, a, b, c, t);                              \
        } else if (!some) NAME(tile)(mr, nv, 0, 0, a, b, c, t);                                    \
        else NAME(tile)(mr, nv, some, MASKED, a, b, c, t);                                         \
    }
#define TILE_FNS(mr) TILE_FN(mr, 1) TILE_FN(mr, 2) IF_3(TILE_FN(mr, 3))
#if NV == 3
#define IF_3(x) x
#define TILE_ROW(mr) { NAME(tile_##mr##_1), NAME(tile_##mr##_2), NAME(tile_##mr##_3) }
#else
#define IF_3(x)
#define TILE_ROW(mr) { NAME(tile_##mr##_1), NAME(tile_##mr##_2) }
#endif

TILE_FNS(1) TILE_FNS(2) TILE_FNS(3) TILE_FNS(4)
#if MR == 8
TILE_FNS(5) TILE_FNS(6) TILE_FNS(7) TILE_FNS(8)
#endif

static NAME(tile_fn) *const NAME(tiles)[MR][NV] = {
    TILE_ROW(1), TILE_ROW(2), TILE_ROW(3), TILE_ROW(4),
#if MR == 8
    TILE_ROW(5), TILE_ROW(6), TILE_ROW(7), TILE_ROW(8),
#endif
};

static void NAME(one_tile)(int mr, int nr, const void *a, const void *b, void *c, const wb__tile *t)
{
    NAME(tiles)[mr - 1][(nr + LANES - 1) / LANES - 1](nr % LANES, a, b, c, t);
}

/* Defines a function that applies vector_##name of simd.h to n elements. */
#define CURVE(name)                                                                                \
    static void NAME(row_##name)(void *d_, const void *a_, const void *b, const void *c,           \
                                 int64_t n)                                                        \
    {                                                                                              \
        T *d = d_;                                                                                 \
        const T *a = a_;                                                                           \
        (void)b, (void)c;                                                                          \
        for (int64_t i = 0; i < n; i += LANES) {                                                   \
            const int some = n - i < LANES ? (int)(n - i) : 0;                                     \
            if (some) store_some(d + i, vector_##name(load_some(a + i, some)), some);              \
            else store(d + i, vector_##name(load(a + i)));                                         \
        }                                                                                          \
    }
CURVE(tanh)
CURVE(sigmoid)
#undef CURVE

/* Packs `across` sequences of `along` elements into a panel: element p of sequence j becomes
 * to[p*width + j].  The elements with j from `across` to `width` are 0. */
static void NAME(pack)(const void *from, wb_dtype type, int64_t s_along, int64_t s_across,
                       int64_t along, int64_t across, int width, T *to)
{
    const bool same = type == TYPE;
    const size_t size = same ? sizeof(T) : 2;
    const char *base = from;
    if (s_across == 1) {
        for (int64_t p = 0; p < along; p++, to += width) {
            const char *row = base + (size_t)(p * s_along) * size;
            if (!same) wb__widen(to, row, type, across);
            else if (across == width && width == NR) memcpy(to, row, NR * sizeof(T));
            else if (across == width && width == MR) memcpy(to, row, MR * sizeof(T));
            else for (int64_t j = 0; j < across; j++) to[j] = ((const T *)row)[j];
            for (int64_t j = across; j < width; j++) to[j] = 0;
        }
        return;
    }
    enum { STEP = 64 };
    T wide[8][STEP];
    for (int64_t j = 0; j < width; j += 8) {
        const int w = (int)WB__MIN(width - j, 8), real = (int)WB__MAX(WB__MIN(across - j, w), 0);
        if (!real) {
            for (int64_t p = 0; p < along; p++)
                for (int i = 0; i < w; i++) to[p * width + j + i] = 0;
            continue;
        }
        for (int64_t p0 = 0; p0 < along; p0 += STEP) {
            const int64_t np = WB__MIN(along - p0, STEP);
            const char *at = base + (size_t)(j * s_across + p0 * s_along) * size;
            const T *src = (const T *)at;
            int64_t ss = s_across;
            if (!same || s_along != 1 || real < w) {            /* convert to `wide` first */
                for (int i = 0; i < real; i++) {
                    const char *seq = at + (size_t)(i * s_across) * size;
                    if (s_along == 1) wb__widen(wide[i], seq, type, np);
                    else for (int64_t p = 0; p < np; p++)
                        wb__widen(&wide[i][p], seq + (size_t)(p * s_along) * size, type, 1);
                }
                for (int i = real; i < w; i++) memset(wide[i], 0, sizeof wide[i]);
                src = wide[0];
                ss = STEP;
            }
            T *d = to + p0 * width + j;
            int64_t p = 0;
            if (w == 8) for (; p + 8 <= np; p += 8) transpose_8(src + p, ss, d + p * width, width);
            for (; p < np; p++)
                for (int i = 0; i < w; i++) d[p * width + i] = src[i * ss + p];
        }
    }
}

static void NAME(pack_b)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t j0, int64_t j1,
                         void *to)
{
    const size_t size = g->b_type == TYPE ? sizeof(T) : 2;
    for (int64_t j = j0; j < j1; j += NR, to = (T *)to + pk * NR)
        NAME(pack)((const char *)g->b + (size_t)(p0 * g->bs0 + j * g->bs1) * size, g->b_type,
                   g->bs0, g->bs1, pk, WB__MIN(j1 - j, NR), NR, to);
}

/* Copies C to `tile`, which replaces a tile of C that cannot be written in place (transposed, or of
 * a narrower dtype). */
static void NAME(tile_from_c)(const wb__gemm *g, int64_t i0, int64_t j0, int mr, int nr, T *tile)
{
    if (g->c_type == TYPE) {
        const T *c = (const T *)g->c + i0 * g->cs0 + j0 * g->cs1;
        int j = 0;
        if (MR == 8 && mr == 8 && g->cs0 == 1)
            for (; j + 8 <= nr; j += 8) transpose_8(c + j * g->cs1, g->cs1, tile + j, NR);
        for (; j < nr; j++)
            for (int i = 0; i < mr; i++) tile[i * NR + j] = c[i * g->cs0 + j * g->cs1];
        return;
    }
    const uint16_t *c = (const uint16_t *)g->c + i0 * g->cs0 + j0 * g->cs1;
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nr; j++)
            wb__widen(tile + i * NR + j, c + i * g->cs0 + j * g->cs1, g->c_type, 1);
}

static void NAME(tile_to_c)(const wb__gemm *g, int64_t i0, int64_t j0, int mr, int nr,
                            const T *tile)
{
    if (g->c_type == TYPE) {
        T *c = (T *)g->c + i0 * g->cs0 + j0 * g->cs1;
        int j = 0;
        if (MR == 8 && mr == 8 && g->cs0 == 1)
            for (; j + 8 <= nr; j += 8) transpose_8(tile + j, NR, c + j * g->cs1, g->cs1);
        for (; j < nr; j++)
            for (int i = 0; i < mr; i++) c[i * g->cs0 + j * g->cs1] = tile[i * NR + j];
        return;
    }
    uint16_t *c = (uint16_t *)g->c + i0 * g->cs0 + j0 * g->cs1;
    for (int i = 0; i < mr; i++) {
        if (g->cs1 == 1) wb__narrow(c + i * g->cs0, g->c_type, tile + i * NR, nr);
        else for (int j = 0; j < nr; j++)
            wb__narrow(c + i * g->cs0 + j * g->cs1, g->c_type, tile + i * NR + j, 1);
    }
}

static void NAME(block)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t i0, int64_t i1,
                        int64_t j0, int64_t j1, const void *packed, bool first, bool last)
{
    _Alignas(64) T panel[MR * WB__GEMM_KC], tile[MR * NR], bias[MR > NR ? MR : NR];
    const bool narrow = g->a_type != TYPE, in_place = g->cs1 == 1 && g->c_type == TYPE;
    /* A is copied if its dtype is narrow, or if it is not contiguous along k and is read often */
    const bool copy = narrow || (g->as1 != 1 && j1 - j0 > 4 * NR && pk >= 8);
    wb__elementwise_fn *row = last ? g->act.row : NULL;
    for (int64_t i = i0; i < i1; i += MR) {
        const int mr = (int)WB__MIN(i1 - i, MR);
        const T *a = (const T *)((const char *)g->a
                                 + (size_t)(i * g->as0 + p0 * g->as1) * (narrow ? 2 : sizeof(T)));
        int64_t as0 = g->as0, as1 = g->as1;
        if (copy) {
            NAME(pack)(a, g->a_type, as1, as0, pk, mr, MR, panel);
            a = panel, as0 = 1, as1 = MR;
        }
        for (int64_t j = j0; j < j1; j += NR) {
            const int nr = (int)WB__MIN(j1 - j, NR), nv = (nr + LANES - 1) / LANES;
            const T *b =
                packed ? (const T *)packed + (j - j0) * pk : (const T *)g->b + p0 * g->bs0 + j;
            T *c = in_place ? (T *)g->c + i * g->cs0 + j : tile;
            wb__tile t = { .outer = 1, .k = pk, .as0 = as0, .as1 = as1, .bs0 = packed ? NR : g->bs0,
                           .cs0 = in_place ? g->cs0 : NR, .bias_rows = g->bias_rows,
                           .add = !first || g->add_to_c, .relu = last && g->act.relu };
            if (last && g->bias) {
                const int64_t at = g->bias_rows ? i : j;
                t.bias = (const T *)g->bias + at;
                if (g->bias_type != TYPE) {
                    wb__widen(bias, (const uint16_t *)g->bias + at, g->bias_type,
                              g->bias_rows ? mr : nr);
                    t.bias = bias;
                }
            }
            if (!in_place && t.add) NAME(tile_from_c)(g, i, j, mr, nr, tile);
            NAME(tiles)[mr - 1][nv - 1](nr % LANES, a, b, c, &t);
            if (wb__unlikely(row))
                for (int r = 0; r < mr; r++) row(c + r * t.cs0, c + r * t.cs0, NULL, NULL, nr);
            if (!in_place) NAME(tile_to_c)(g, i, j, mr, nr, tile);
        }
    }
}

/* The sum of a vector's elements, pairwise. */
static inline T NAME(total)(V v)
{
#if WB__ISA == 5 && WB__DOUBLE
    return _mm512_reduce_add_pd((__m512d)v);
#elif WB__ISA == 5
    return _mm512_reduce_add_ps((__m512)v);
#elif WB__ISA == 2 && WB__DOUBLE
    const __m128d half = _mm256_castpd256_pd128(v) + _mm256_extractf128_pd(v, 1);
    return half[0] + half[1];
#elif WB__ISA == 2
    __m128 half = _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);
    half += _mm_movehl_ps(half, half);
    return half[0] + half[1];
#else
    T lane[LANES], sum = 0;
    store(lane, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    sum += lane[0];
    return sum;
#endif
}

/* Sets sum[c] to the product of a and column j + c of B, c < n <= 4, both contiguous along k. */
static inline void NAME(four_dots)(const wb__gemm *g, const T *a, int64_t j, int n, T *sum)
{
    enum { COLUMNS = 4 };
    const T *b[COLUMNS];
    V acc[COLUMNS], more[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        b[c] = (const T *)g->b + (j + (c < n ? c : 0)) * g->bs1;
        acc[c] = more[c] = spread(0);
    }
    int64_t p = 0;
    for (; p + 2 * LANES <= g->k; p += 2 * LANES) {
        V x = load(a + p), y = load(a + p + LANES);
#pragma GCC unroll 4
        for (int c = 0; c < COLUMNS; c++) {
            acc[c] = multiply_add(x, load(b[c] + p), acc[c]);
            more[c] = multiply_add(y, load(b[c] + p + LANES), more[c]);
        }
    }
    for (; p < g->k; p += LANES) {
        const int some = (int)WB__MIN(g->k - p, LANES);
        V x = load_some(a + p, some);
        for (int c = 0; c < COLUMNS; c++)
            acc[c] = multiply_add(x, load_some(b[c] + p, some), acc[c]);
    }
    for (int c = 0; c < n; c++) sum[c] = NAME(total)(acc[c] + more[c]);
}

/* Returns the product of n elements of a and b.  Reads b from first to last, which processors
 * recognise and read ahead: from memory, reading several columns at once is slower. */
static inline T NAME(one_dot)(const T *a, const T *b, int64_t n)
{
    enum { CHAINS = 4 };
    V acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = spread(0);
    int64_t p = 0;
    for (; p + CHAINS * LANES <= n; p += CHAINS * LANES)
#pragma GCC unroll 4
        for (int i = 0; i < CHAINS; i++)
            acc[i] = multiply_add(load(a + p + i * LANES), load(b + p + i * LANES), acc[i]);
    for (; p < n; p += LANES) {
        const int some = (int)WB__MIN(n - p, LANES);
        acc[0] = multiply_add(load_some(a + p, some), load_some(b + p, some), acc[0]);
    }
    return NAME(total)((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* Computes products of rows of A and columns of B, both contiguous along k.  B is read in place,
 * once for each row of A, at the speed of memory, so this suits one or two rows. */
static void NAME(dots)(const wb__gemm *g, int64_t i0, int64_t i1)
{
    enum { AT_ONCE = 64 };              /* columns at a time; an activation costs less for many */
    T sum[AT_ONCE];
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < g->n; j += AT_ONCE) {
            const int n = (int)WB__MIN(g->n - j, AT_ONCE);
            T *to = (T *)g->c + i * g->cs0 + j * g->cs1;
            const T *a = (const T *)g->a + i * g->as0;
            for (int c = 0; c < n && g->streams; c++)
                sum[c] = NAME(one_dot)(a, (const T *)g->b + (j + c) * g->bs1, g->k);
            for (int c = 0; c < n && !g->streams; c += 4)
                NAME(four_dots)(g, a, j + c, WB__MIN(n - c, 4), sum + c);
            for (int c = 0; c < n; c++) {
                if (g->add_to_c) sum[c] += to[c * g->cs1];
                if (g->bias) sum[c] += ((const T *)g->bias)[g->bias_rows ? i : j + c];
                if (g->act.relu) sum[c] = sum[c] < 0 ? 0 : sum[c];
            }
            if (g->act.row) g->act.row(sum, sum, NULL, NULL, n);
            for (int c = 0; c < n; c++) to[c * g->cs1] = sum[c];
        }
}

static const wb__gemm_kernel NAME(kernel) = {
    .mr = MR, .nr = NR, .lanes = LANES, .kc = WB__GEMM_KC, .nc = WB__GEMM_NC,
    .masked = MASKED, .pack_b = NAME(pack_b),
    .block = NAME(block), .dots = NAME(dots), .tile = NAME(one_tile),
    .tanh = NAME(row_tanh), .sigmoid = NAME(row_sigmoid)
};

#undef TILE_FN
#undef TILE_FNS
#undef TILE_ROW
#undef IF_3
#undef NR
