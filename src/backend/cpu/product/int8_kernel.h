/* The inner loops of the product of quantised rows and i8 weights.  The file that includes this one
 * defines:
 *
 *     NAME        the name of the kernel, without wb__int8_
 *     Q           the type of an element of a quantised row: uint8_t, or int16_t
 *     STEP        elements that one instruction multiplies
 *     ROWS        rows of a tile, which has 4 columns
 *     V           a vector of sums, of i32
 *     W           the elements of a weight that one instruction multiplies
 *     APART       1: the elements of a quantised row are q, and the zero times the sum of the
 *                 weights is subtracted at the end; 0: the elements are q - zero
 *
 * and the functions int8_zero, int8_load_weight, int8_add_products, int8_add, and int8_totals,
 * which stores the sums of the elements of four vectors; also LOAD_END and int8_load_end, if an
 * instruction loads fewer elements than STEP.
 *
 * A tile keeps ROWS x 4 sums in registers: rows of q stay in L1, and weights are read in place.
 * Packed weights would be faster only with more rows than ROWS, and with so many rows the
 * multiplications take most of the time. */
#include <math.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

enum {
    COLUMNS = 4, CHAINS = 4,
    BLOCK = 256 << 10,                  /* the bytes of weights that stay in L2 */
    WIDEST = 256                        /* the most columns of such a block */
};

/* The bits of a float as an integer of the same order, and back.  NaN is beyond the infinities. */
WB__INLINE int32_t int8_ordered(int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }
WB__INLINE float int8_number(int32_t order)
{
    const int32_t bits = int8_ordered(order);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void int8_quantise(const float *x, int64_t k, void *to, wb__int8_row *row)
{
    Q *q = to;
    const int64_t padded = (k + STEP - 1) / STEP * STEP;
    int32_t least = 0, most = 0;
    for (int64_t i = 0; i < k; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        const int32_t order = int8_ordered(bits);
        least = order < least ? order : least;
        most = order > most ? order : most;
    }
    *row = (wb__int8_row){.scale = NAN};
    memset(q + k, 0, (size_t)(padded - k) * sizeof *q);
    if (!isfinite(int8_number(least)) || !isfinite(int8_number(most))) {
        memset(q, 0, (size_t)k * sizeof *q);
        return;
    }
    const float low = int8_number(least) * (float)(1.0 / 255),
                high = int8_number(most) * (float)(1.0 / 255);
    const float scale = high - low, factor = scale >= WB__INT8_LEAST ? 1 / scale : 0;
    const float below = int8_number(least) * factor;
    const int32_t zero = (int32_t)(0.5f - below), taken = APART ? 0 : zero;
    const float up = (float)zero + 0.5f;
    for (int64_t i = 0; i < k; i++) {   /* the product and the sum are rounded, without FMA */
        const float scaled = x[i] * factor;
        const int32_t n = (int32_t)(scaled + up);
        q[i] = (Q)((n < 255 ? n : 255) - taken);
    }
    *row = (wb__int8_row){.scale = scale * WB__INT8_DOWN, .zero = zero};
}

/* Whether a tile also sums the weights.  Tiles with fewer rows than ROWS have registers left for
 * these sums, and the first tile of a product is such a tile. */
#define SUMS(rows) (APART && (rows) < ROWS)
#define ONES_8 1, 1, 1, 1, 1, 1, 1, 1
static const _Alignas(64) Q ones[64] = {ONES_8, ONES_8, ONES_8, ONES_8,
                                        ONES_8, ONES_8, ONES_8, ONES_8};

/* Adds products of STEP inner indices to `sum`, and with SUMS(rows) the weights to sum[rows]. */
WB__INLINE void int8_step(const int rows, const Q *const *q, int64_t at, const W weight[COLUMNS],
                          V sum[ROWS + 1][COLUMNS])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < COLUMNS; j++)
            sum[i][j] = int8_add_products(sum[i][j], weight[j], q[i] + at);
    for (int j = 0; SUMS(rows) && j < COLUMNS; j++)
        sum[rows][j] = int8_add_products(sum[rows][j], weight[j], ones);
}

/* Adds the products of `steps` times STEP inner indices. */
WB__INLINE void int8_multiply(const int rows, const Q *const *q, const int8_t *const *w,
                              int64_t steps, V sum[ROWS + 1][COLUMNS])
{
    for (int64_t p = 0; p < steps; p++) {
        W weight[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) weight[j] = int8_load_weight(w[j] + p * STEP);
        int8_step(rows, q, p * STEP, weight, sum);
    }
}

/* Adds the products of the last `rest` inner indices, fewer than STEP, from `at` on.  Nothing
 * behind a weight is read. */
WB__INLINE void int8_multiply_rest(const int rows, const Q *const *q, const int8_t *const *w,
                                   int64_t at, int64_t rest, V sum[ROWS + 1][COLUMNS])
{
    W weight[COLUMNS];
#ifdef LOAD_END
    for (int j = 0; j < COLUMNS; j++) weight[j] = int8_load_end(w[j] + at, rest);
#else
    _Alignas(64) int8_t end[COLUMNS][STEP] = {{0}};
    for (int j = 0; j < COLUMNS; j++) {
        memcpy(end[j], w[j] + at, (size_t)rest);
        weight[j] = int8_load_weight(end[j]);
    }
#endif
    int8_step(rows, q, at, weight, sum);
}

/* Adds the products of one row, column by column, so that the weights, whose reading takes most of
 * the time, are read in the order of their addresses. */
WB__INLINE void int8_multiply_row(const Q *q, const int8_t *const *w, int64_t steps,
                                  V sum[ROWS + 1][COLUMNS])
{
    for (int j = 0; j < COLUMNS; j++) {
        V chain[CHAINS], total[CHAINS];
        int64_t p = 0;
        for (int c = 0; c < CHAINS; c++) chain[c] = total[c] = int8_zero();
        for (; p + CHAINS <= steps; p += CHAINS)
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; c++) {
                const W weight = int8_load_weight(w[j] + (p + c) * STEP);
                chain[c] = int8_add_products(chain[c], weight, q + (p + c) * STEP);
                if (SUMS(1)) total[c] = int8_add_products(total[c], weight, ones);
            }
        for (; p < steps; p++) {
            const W weight = int8_load_weight(w[j] + p * STEP);
            chain[0] = int8_add_products(chain[0], weight, q + p * STEP);
            if (SUMS(1)) total[0] = int8_add_products(total[0], weight, ones);
        }
        sum[0][j] = int8_add(int8_add(chain[0], chain[1]), int8_add(chain[2], chain[3]));
        sum[1][j] = int8_add(int8_add(total[0], total[1]), int8_add(total[2], total[3]));
    }
}

typedef float floats __attribute__((vector_size(4 * COLUMNS)));
typedef int32_t ints __attribute__((vector_size(4 * COLUMNS)));
typedef uint32_t words __attribute__((vector_size(4 * COLUMNS)));

/* Reads the elements of the columns from column j on; 0 for missing ones. */
WB__INLINE floats int8_columns_of(const float *x, int64_t step, int64_t j, int columns)
{
    floats v = {0};
    x += j * step;
    if (step == 1 && columns == COLUMNS) memcpy(&v, x, sizeof v);
    else for (int c = 0; c < columns; c++) v[c] = x[c * step];
    return v;
}

/* Writes fewer than four elements, or elements that are not contiguous. */
static __attribute__((noinline)) void put_columns(float *y, int64_t step, int columns,
                                                  const float *v)
{
    for (int c = 0; c < columns; c++) y[c * step] = v[c];
}

/* Writes `columns` elements of row i, from column j on. */
WB__INLINE void int8_finish(const wb__int8_product *p, int64_t i, int64_t j, int columns,
                            const int32_t *total, const int32_t *sums, floats scale, floats bias)
{
    const wb__int8_row *row = &p->row[i];
    float *y = p->y + i * p->y_step[0] + j * p->y_step[1];
    words sum, weights;
    memcpy(&sum, total, sizeof sum);
    memcpy(&weights, sums, sizeof weights);
    if (APART) sum -= (uint32_t)row->zero * weights;
    const floats scaled = __builtin_convertvector((ints)sum, floats) * row->scale;
    const floats down = scaled * scale;
    floats v = down * WB__INT8_UP;
    if (p->bias) v += bias;
    if (p->act.relu) v = (floats)((ints)v & ~(ints)(v < 0));
    if (p->y_step[1] == 1 && columns == COLUMNS) {
        memcpy(y, &v, sizeof v);
    } else {
        float copy[COLUMNS];
        memcpy(copy, &v, sizeof v);
        put_columns(y, p->y_step[1], columns, copy);
    }
}

/* Computes rows i to i+rows-1 and columns j to j+columns-1.  If fewer than COLUMNS columns are
 * left, the last one is computed again in place of the missing ones.  sums, [COLUMNS], has the sum
 * of the weights of each column: with SUMS(rows) the tile sets it, else it reads it. */
WB__INLINE void int8_tile(const int rows, const wb__int8_product *p, int64_t i, int64_t j,
                          int columns, int32_t *sums)
{
    const int64_t steps = p->k / STEP, rest = p->k % STEP;
    V sum[ROWS + 1][COLUMNS];
    const Q *q[ROWS];
    const int8_t *w[COLUMNS];
    w[0] = p->w + j * p->w_step;
    for (int c = 1; c < COLUMNS; c++) w[c] = w[c - 1] + (c < columns ? p->w_step : 0);
    q[0] = (const Q *)(const void *)(p->q + i * p->q_step);
    for (int r = 1; r < rows; r++) q[r] = q[r - 1] + p->q_step / (int64_t)sizeof(Q);
    if (rows == 1) {
        int8_multiply_row(q[0], w, steps, sum);
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < rows + SUMS(rows); r++)
#pragma GCC unroll 4
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = int8_zero();
        int8_multiply(rows, q, w, steps, sum);
    }
    if (rest) int8_multiply_rest(rows, q, w, steps * STEP, rest, sum);
    if (SUMS(rows)) int8_totals(sum[rows], sums);
    const floats scale = int8_columns_of(p->scale, p->scale_step, j, columns);
    const floats bias = p->bias ? int8_columns_of(p->bias, 1, j, columns) : scale;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        int32_t total[COLUMNS];
        int8_totals(sum[r], total);
        int8_finish(p, i + r, j, columns, total, sums, scale, bias);
    }
}

#define TILE(rows)                                                                                 \
    static __attribute__((noinline)) void tile_##rows(const wb__int8_product *p, int64_t i,        \
                                                      int64_t j, int columns, int32_t *sums)       \
    {                                                                                              \
        int8_tile(rows, p, i, j, columns, sums);                                                   \
    }
TILE(1) TILE(2)
#if ROWS > 2
TILE(3)
#endif
#if ROWS > 3
TILE(4) TILE(5) TILE(6)
#endif
static void (*const tiles[])(const wb__int8_product *p, int64_t i, int64_t j, int columns,
                             int32_t *sums) = {
    tile_1, tile_2,
#if ROWS > 2
    tile_3,
#endif
#if ROWS > 3
    tile_4, tile_5, tile_6,
#endif
};
_Static_assert(ROWS == sizeof tiles / sizeof *tiles, "a tile for each number of rows");

/* Applies the epilogue to n elements of a row. */
static void int8_activate(const wb__int8_product *p, float *y, int64_t n)
{
    if (p->y_step[1] == 1) p->act.row(y, y, NULL, NULL, n);
    else for (int64_t j = 0; j < n; j++)
        p->act.row(y + j * p->y_step[1], y + j * p->y_step[1], NULL, NULL, 1);
}

static void int8_product(const wb__int8_product *p, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    int32_t sums[WIDEST] = {0};
    const int64_t wide = WB__MIN(WB__MAX(BLOCK / WB__MAX(p->k, 1) / COLUMNS * COLUMNS, COLUMNS),
                                 WIDEST);
    for (int64_t j = j0; j < j1; j += wide) {
        const int64_t end = WB__MIN(j + wide, j1);
        for (int64_t i = i0, rows; i < i1; i += rows) {
            rows = (i1 - i) % ROWS;             /* the first tile sums the weights */
            if (!rows) rows = APART && i == i0 ? ROWS / 2 : ROWS;
            for (int64_t c = j; c < end; c += COLUMNS)
                tiles[rows - 1](p, i, c, (int)WB__MIN(end - c, COLUMNS), sums + (c - j));
            for (int64_t r = i; p->act.row && r < i + rows; r++)
                int8_activate(p, p->y + r * p->y_step[0] + j * p->y_step[1], end - j);
        }
    }
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const wb__int8_kernel JOIN(wb__int8_, NAME) = {.name = TEXT(NAME), .step = STEP,
                                               .element = sizeof(Q), .quantise = int8_quantise,
                                               .product = int8_product};
