/* The inner loops of the product of quantised rows and i8 weights.  The file that includes this one
 * defines:
 *
 *     NAME        the name of the kernel, without wb__int8_
 *     Q           the type of an element of a quantised row: int8_t or int16_t
 *     STEP        elements that one instruction multiplies
 *     ROWS        rows of a tile, which has 4 columns
 *     V           a vector of sums, of i32
 *     W           the elements of a weight that one instruction multiplies
 *     OFFSET      what `load_weight` adds to each element; 0: nothing
 *
 * and zero, load_weight, add_products, add, and totals, which stores the sums of the elements of
 * four vectors.
 *
 * A tile keeps ROWS x 4 sums in registers: rows of q stay in L1, weights are read in place.  They
 * are the weights of a model, so that packing them would only pay with more rows than ROWS; and
 * with these the time is that of the multiplications. */
#include <math.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

enum { COLUMNS = 4, CHAINS = 4, BLOCK = 256 << 10 };    /* BLOCK: bytes of weights in L2 */

/* The bits of the greatest magnitude.  Those of infinity and NaN are greater than all others. */
static int32_t greatest(const float *x, int64_t k)
{
    int32_t most = 0;
    for (int64_t i = 0; i < k; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

static void quantise(const float *x, int64_t k, void *to, wb__int8_row *row)
{
    Q *q = to;
    const int32_t bits = greatest(x, k);
    const int64_t padded = (k + STEP - 1) / STEP * STEP;
    float most;
    memcpy(&most, &bits, sizeof most);
    *row = (wb__int8_row){.scale = NAN};
    memset(q + k, 0, (size_t)(padded - k) * sizeof *q);
    if (bits >= 0x7f800000) {
        memset(q, 0, (size_t)k * sizeof *q);
        return;
    }
    const float factor = most >= WB__INT8_LEAST ? 127 / most : 0;
    int32_t sum = 0;
    for (int64_t i = 0; i < k; i++) {           /* floor(x factor + 0.5), rounded twice */
        const float scaled = x[i] * factor;
        const float up = scaled + 0.5f;
        const int32_t towards_0 = (int32_t)up, n = towards_0 - (up < (float)towards_0);
        q[i] = (Q)n;
        sum += n;
    }
    *row = (wb__int8_row){.scale = most * (float)(1.0 / 127), .sum = sum};
}

/* Adds `steps` steps of the products to the sums. */
WB__INLINE void multiply(const int rows, const Q *const *q, const int8_t *const *w, int64_t steps,
                     V sum[ROWS][COLUMNS])
{
    for (int64_t p = 0; p < steps; p++) {
        W weight[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) weight[j] = load_weight(w[j] + p * STEP);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] = add_products(sum[i][j], weight[j], q[i] + p * STEP);
    }
}

/* The same for one row, column by column, so that the weights are read in the order of their
 * addresses: reading them takes most of the time. */
WB__INLINE void multiply_row(const Q *q, const int8_t *const *w, int64_t steps, V sum[COLUMNS])
{
    for (int j = 0; j < COLUMNS; j++) {
        V chain[CHAINS];
        int64_t p = 0;
        for (int c = 0; c < CHAINS; c++) chain[c] = zero();
        for (; p + CHAINS <= steps; p += CHAINS)
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; c++)
                chain[c] = add_products(chain[c], load_weight(w[j] + (p + c) * STEP),
                                        q + (p + c) * STEP);
        for (; p < steps; p++)
            chain[0] = add_products(chain[0], load_weight(w[j] + p * STEP), q + p * STEP);
        sum[j] = add(add(chain[0], chain[1]), add(chain[2], chain[3]));
    }
}

typedef float floats __attribute__((vector_size(4 * COLUMNS)));
typedef int32_t ints __attribute__((vector_size(4 * COLUMNS)));
typedef uint32_t words __attribute__((vector_size(4 * COLUMNS)));

/* Reads the elements of the columns from column j on; 0 for missing ones. */
WB__INLINE floats columns_of(const float *x, int64_t step, int64_t j, int columns)
{
    floats v = {0};
    x += j * step;
    if (step == 1 && columns == COLUMNS) memcpy(&v, x, sizeof v);
    else for (int c = 0; c < columns; c++) v[c] = x[c * step];
    return v;
}

/* Writes `columns` elements of row i, from column j on. */
WB__INLINE void finish(const wb__int8_product *p, int64_t i, int64_t j, int columns,
                       const int32_t *total, floats scale, floats bias)
{
    const wb__int8_row *row = &p->row[i];
    float *y = p->y + i * p->y_step[0] + j * p->y_step[1];
    words sum;
    memcpy(&sum, total, sizeof sum);
    sum -= OFFSET * (uint32_t)row->sum;
    const floats scaled = __builtin_convertvector((ints)sum, floats) * row->scale;
    floats v = scaled * scale;
    if (p->bias) v += bias;
    if (p->act.relu) v = (floats)((ints)v & ~(ints)(v < 0));
    if (p->y_step[1] == 1 && columns == COLUMNS) memcpy(y, &v, sizeof v);
    else for (int c = 0; c < columns; c++) y[c * p->y_step[1]] = v[c];
}

/* Computes rows i .. i+rows-1 and columns j .. j+columns-1.  The last column is computed in place
 * of missing ones. */
WB__INLINE void tile(const int rows, const wb__int8_product *p, int64_t i, int64_t j, int columns)
{
    const int64_t steps = p->k / STEP, rest = p->k % STEP;
    V sum[ROWS][COLUMNS];
    const Q *q[ROWS];
    const int8_t *w[COLUMNS];
    _Alignas(64) int8_t end[COLUMNS][STEP];
    for (int r = 0; r < rows; r++)
        q[r] = (const Q *)(const void *)(p->q + (i + r) * p->q_step);
    for (int c = 0; c < COLUMNS; c++) w[c] = p->w + (j + WB__MIN(c, columns - 1)) * p->w_step;
    if (rows == 1) {
        multiply_row(q[0], w, steps, sum[0]);
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = zero();
        multiply(rows, q, w, steps, sum);
    }
    if (rest) {                                 /* nothing behind a weight is read */
        memset(end, 0, sizeof end);
        for (int c = 0; c < COLUMNS; c++) {
            memcpy(end[c], w[c] + steps * STEP, (size_t)rest);
            w[c] = end[c];
        }
        for (int r = 0; r < rows; r++) q[r] += steps * STEP;
        multiply(rows, q, w, 1, sum);
    }
    const floats scale = columns_of(p->scale, p->scale_step, j, columns);
    const floats bias = p->bias ? columns_of(p->bias, 1, j, columns) : scale;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        int32_t total[COLUMNS];
        totals(sum[r], total);
        finish(p, i + r, j, columns, total, scale, bias);
    }
}

#define TILE(rows)                                                                                 \
    static __attribute__((noinline)) void tile_##rows(const wb__int8_product *p, int64_t i,        \
                                                      int64_t j, int columns)                      \
    {                                                                                              \
        tile(rows, p, i, j, columns);                                                              \
    }
TILE(1) TILE(2)
#if ROWS > 2
TILE(3)
#endif
#if ROWS > 3
TILE(4) TILE(5) TILE(6)
#endif
static void (*const tiles[])(const wb__int8_product *p, int64_t i, int64_t j, int columns) = {
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
static void activate(const wb__int8_product *p, float *y, int64_t n)
{
    if (p->y_step[1] == 1) p->act.row(y, y, NULL, NULL, n);
    else for (int64_t j = 0; j < n; j++)
        p->act.row(y + j * p->y_step[1], y + j * p->y_step[1], NULL, NULL, 1);
}

static void product(const wb__int8_product *p, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const int64_t wide = WB__MAX(BLOCK / WB__MAX(p->k, 1) / COLUMNS * COLUMNS, COLUMNS);
    for (int64_t j = j0; j < j1; j += wide) {
        const int64_t end = WB__MIN(j + wide, j1);
        for (int64_t i = i0, rows; i < i1; i += rows) {
            rows = WB__MIN(i1 - i, ROWS);
            for (int64_t c = j; c < end; c += COLUMNS)
                tiles[rows - 1](p, i, c, (int)WB__MIN(end - c, COLUMNS));
            for (int64_t r = i; p->act.row && r < i + rows; r++)
                activate(p, p->y + r * p->y_step[0] + j * p->y_step[1], end - j);
        }
    }
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const wb__int8_kernel JOIN(wb__int8_, NAME) = {.name = TEXT(NAME), .step = STEP,
                                               .element = sizeof(Q), .quantise = quantise,
                                               .product = product};
