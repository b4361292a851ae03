/* The transforms of Winograd's convolution F(4x4, 3x3); winograd.c has the formulas.
 * cpu_kernels.h includes this file for f32, after simd.h.
 *
 * The six points are 0, ±sqrt(2), ±1/sqrt(2) and infinity.  With them the rounding errors are about
 * twice those of a direct convolution; with the usual 0, ±1, ±2 they are 4 to 9 times as large.  A
 * vector has LANES neighbouring channels.  Each function transforms the columns of a tile, then its
 * rows.  The functions *_line transform the elements d[0], d[s], d[2*s], ... in place. */

#define ROOT_2 1.41421356237309505f
#define HALF_ROOT_2 0.70710678118654752f

typedef void NAME(line_fn)(V *d, int s);

/* Multiplies by B^T: 6 elements become 6. */
static inline __attribute__((always_inline)) void NAME(input_line)(V *d, int s)
{
    const V d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s];
    const V even = multiply_add(spread(-0.5f), d2, d4), odd = multiply_add(spread(-0.5f), d1, d3);
    const V even2 = multiply_add(spread(-2), d2, d4), odd2 = multiply_add(spread(-2), d1, d3);
    d[0] = multiply_add(spread(-2.5f), d2, d[0] + d4);
    d[s] = multiply_add(spread(ROOT_2), odd, even);
    d[2 * s] = multiply_add(spread(-ROOT_2), odd, even);
    d[3 * s] = multiply_add(spread(HALF_ROOT_2), odd2, even2);
    d[4 * s] = multiply_add(spread(-HALF_ROOT_2), odd2, even2);
    d[5 * s] = multiply_add(spread(-2.5f), d3, d1 + d[5 * s]);
}

/* Multiplies by A^T: 6 elements become 4. */
static inline __attribute__((always_inline)) void NAME(output_line)(V *d, int s)
{
    const V sum = d[s] + d[2 * s], difference = d[s] - d[2 * s];
    const V sum2 = d[3 * s] + d[4 * s], difference2 = d[3 * s] - d[4 * s];
    d[0] += sum + sum2;
    d[s] = multiply_add(spread(ROOT_2), difference, spread(HALF_ROOT_2) * difference2);
    d[2 * s] = multiply_add(spread(2), sum, spread(0.5f) * sum2);
    d[3 * s] = multiply_add(spread(2 * ROOT_2), difference,
                            multiply_add(spread(0.5f * HALF_ROOT_2), difference2, d[5 * s]));
}

/* Multiplies by A: 4 elements become 6. */
static inline __attribute__((always_inline)) void NAME(grad_line)(V *d, int s)
{
    const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
    const V even = multiply_add(spread(2), d2, d0), odd = multiply_add(spread(2), d3, d1);
    const V even2 = multiply_add(spread(0.5f), d2, d0), odd2 = multiply_add(spread(0.5f), d3, d1);
    d[s] = multiply_add(spread(ROOT_2), odd, even);
    d[2 * s] = multiply_add(spread(-ROOT_2), odd, even);
    d[3 * s] = multiply_add(spread(HALF_ROOT_2), odd2, even2);
    d[4 * s] = multiply_add(spread(-HALF_ROOT_2), odd2, even2);
    d[5 * s] = d3;
}

/* Multiplies by G: 3 elements become 6. */
static inline __attribute__((always_inline)) void NAME(weights_line)(V *d, int s)
{
    const V d0 = d[0], d2 = d[2 * s];
    const V even = spread(1 / 6.f) * multiply_add(spread(2), d2, d0);
    const V odd = spread(ROOT_2 / 6) * d[s];
    const V even2 = spread(-2 / 3.f) * multiply_add(spread(0.5f), d2, d0),
            odd2 = spread(-HALF_ROOT_2 / 1.5f) * d[s];
    d[s] = even + odd;
    d[2 * s] = even - odd;
    d[3 * s] = even2 + odd2;
    d[4 * s] = even2 - odd2;
    d[5 * s] = d2;
}

/* Multiplies by G^T: 6 elements become 3. */
static inline __attribute__((always_inline)) void NAME(sums_line)(V *d, int s)
{
    const V sum = spread(1 / 6.f) * (d[s] + d[2 * s]);
    const V sum2 = spread(-2 / 3.f) * (d[3 * s] + d[4 * s]);
    const V difference = d[s] - d[2 * s], difference2 = d[3 * s] - d[4 * s];
    d[0] += sum + sum2;
    d[s] = multiply_add(spread(ROOT_2 / 6), difference, spread(-HALF_ROOT_2 / 1.5f) * difference2);
    d[2 * s] = multiply_add(spread(2), sum, multiply_add(spread(0.5f), sum2, d[5 * s]));
}

/* Transforms `columns` columns of d[6][6], then `rows` rows. */
static inline __attribute__((always_inline)) void NAME(transform)(NAME(line_fn) *line, int columns,
                                                                  int rows, V *d)
{
#pragma GCC unroll 6
    for (int j = 0; j < columns; j++) line(d + j, 6);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) line(d + 6 * i, 1);
}

/* Loads a tile of `size` by `size` pixels at x.  whole: all pixels and lanes exist; else those
 * outside [top, bottom) and [left, right) and the lanes from `some` on (0: none) become 0. */
static inline __attribute__((always_inline)) void NAME(load_tile)(
    const bool whole, const int size, const wb__winograd_tile *t, int some, const T *x, V *d)
{
    if (whole) {
#pragma GCC unroll 6
        for (int i = 0; i < size; i++)
#pragma GCC unroll 6
            for (int j = 0; j < size; j++) d[6 * i + j] = load(x + i * t->line + j * t->channels);
        return;
    }
    for (int p = 0; p < 36; p++) d[p] = spread(0);
    for (int i = t->top; i < t->bottom; i++) {
        const T *at = x + i * t->line + t->left * t->channels;
        for (int j = t->left; j < t->right; j++, at += t->channels)
            d[6 * i + j] = some ? load_some(at, some) : load(at);
    }
}

static inline __attribute__((always_inline)) void NAME(forth)(
    NAME(line_fn) *line, const int size, const wb__winograd_tile *t, const T *x, T *v)
{
    const bool all = !t->top && !t->left && t->bottom == size && t->right == size;
    for (int64_t c = 0; c < t->channels; c += LANES, v += LANES) {
        const int some = t->channels - c < LANES ? (int)(t->channels - c) : 0;
        V d[36];
        if (all && !some) {
            NAME(load_tile)(true, size, t, 0, x + c, d);
            NAME(transform)(line, size, 6, d);
#pragma GCC unroll 36
            for (int p = 0; p < 36; p++) store(v + p * t->step, d[p]);
            continue;
        }
        NAME(load_tile)(false, size, t, some, x + c, d);
        NAME(transform)(line, size, 6, d);
        for (int p = 0; p < 36; p++) store(v + p * t->step, d[p]);
    }
}

static void NAME(winograd_input)(const wb__winograd_tile *t, const void *x, void *v)
{
    NAME(forth)(NAME(input_line), 6, t, x, v);
}

static void NAME(winograd_grad)(const wb__winograd_tile *t, const void *dy, void *v)
{
    NAME(forth)(NAME(grad_line), 4, t, dy, v);
}

static inline __attribute__((always_inline)) void NAME(store_tile)(
    const int rows, const int columns, const wb__winograd_tile *t, int some, const V *d, T *y)
{
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            T *at = y + i * t->line + j * t->channels;
            if (some) store_some(at, d[6 * i + j], some);
            else store(at, d[6 * i + j]);
        }
}

static void NAME(winograd_output)(const wb__winograd_tile *t, const void *m_, const void *bias_,
                                  bool relu, void *y_)
{
    const T *m = m_, *bias = bias_;
    T *y = y_;
    for (int64_t c = 0; c < t->channels; c += LANES, m += LANES, y += LANES) {
        const int some = t->channels - c < LANES ? (int)(t->channels - c) : 0;
        const V b = !bias ? spread(0) : some ? load_some(bias + c, some) : load(bias + c);
        V d[36];
#pragma GCC unroll 36
        for (int p = 0; p < 36; p++) d[p] = load(m + p * t->step);
        NAME(transform)(NAME(output_line), 6, 4, d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const V sum = d[6 * i + j] + b;
                d[6 * i + j] = relu ? at_least_0(sum) : sum;
            }
        if (!some && t->bottom == 4 && t->right == 4) NAME(store_tile)(4, 4, t, 0, d, y);
        else NAME(store_tile)(t->bottom, t->right, t, some, d, y);
    }
}

/* Transforms the weights from one input channel to n <= LANES output channels, which are `apart`
 * elements apart.  turned: the window is rotated by half a turn. */
static void NAME(winograd_weights)(const void *w_, int64_t apart, int n, bool turned, void *u,
                                   int64_t step)
{
    const T *w = w_;
    T taps[9 * LANES];
    V d[36];
    if (n < LANES) memset(taps, 0, sizeof taps);
    for (int i = 0; i < n; i++, w += apart)
        for (int t = 0; t < 9; t++) taps[t * LANES + i] = w[turned ? 8 - t : t];
    for (int t = 0; t < 9; t++) d[t / 3 * 6 + t % 3] = load(taps + t * LANES);
    NAME(transform)(NAME(weights_line), 3, 6, d);
    for (int p = 0; p < 36; p++) store((T *)u + p * step, d[p]);
}

/* Transforms sums back to the gradient of these weights. */
static void NAME(winograd_sums)(const void *s, int64_t step, int n, int64_t apart, void *dw_)
{
    T *dw = dw_, taps[9 * LANES];
    V d[36];
    for (int p = 0; p < 36; p++) d[p] = load((const T *)s + p * step);
    NAME(transform)(NAME(sums_line), 6, 3, d);
    for (int t = 0; t < 9; t++) store(taps + t * LANES, d[t / 3 * 6 + t % 3]);
    for (int i = 0; i < n; i++, dw += apart)
        for (int t = 0; t < 9; t++) dw[t] = taps[t * LANES + i];
}

static const wb__winograd_kernel NAME(winograd) = {
    .input = NAME(winograd_input), .output = NAME(winograd_output), .grad = NAME(winograd_grad),
    .weights = NAME(winograd_weights), .sums = NAME(winograd_sums)
};

#undef ROOT_2
#undef HALF_ROOT_2
