/* Convolutions of one-channel images with few output channels, and the gradient of their weights.
 * cpu_kernels.h includes this file for f32, after simd.h.
 *
 * With one channel, a vector holds pixels instead of channels.  The pixels of a row of outputs are
 * cut into units of UNIT; a vector has one unit, or two that need not be of the same row, so that
 * few lanes are empty.  Outputs have channels innermost: 8 pixels are transposed at a time. */

#define UNIT (LANES < 8 ? LANES : 8)
#define BLOCKS (LANES == 16 ? 3 : 1)    /* vectors that are computed together for each channel */

/* A unit: its first pixel among the outputs, the place of its first tap in x, and the number of its
 * pixels (`some`), at most UNIT. */
typedef struct { int64_t pixel, at; int some; } NAME(unit);

/* Finds units u to u + count - 1.  Those beyond the last have no pixels. */
static inline void NAME(find_units)(const wb__line *l, int64_t u, int count, NAME(unit) *unit)
{
    const int64_t a_row = (l->n + UNIT - 1) / UNIT;
    int64_t row = u / a_row, q = u % a_row * UNIT;
    for (int i = 0; i < count; i++) {
        const bool there = row < l->rows;
        unit[i].pixel = there ? row * l->n + q : 0;
        unit[i].at = there ? row * l->step + q : 0;
        unit[i].some = there ? (int)WB__MIN(l->n - q, UNIT) : 0;
        if ((q += UNIT) >= l->n) q = 0, row++;
    }
}

/* Loads the units of vector v; x is the address of one tap.  Pixels that do not exist are 0. */
static inline V NAME(load_units)(const T *x, const NAME(unit) *unit, int v)
{
#if WB__ISA == 5 && !WB__DOUBLE
    const NAME(unit) *a = unit + 2 * v, *b = a + 1;
    const __m256 low = _mm256_maskz_loadu_ps((__mmask8)((1u << a->some) - 1), x + a->at),
                 high = _mm256_maskz_loadu_ps((__mmask8)((1u << b->some) - 1), x + b->at);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
#else
    return load_some(x + unit[v].at, unit[v].some);
#endif
}

/* Writes the pixels of a unit from [channel][LANES].  May overwrite up to 8 pixels behind them, of
 * units that are written later. */
static inline void NAME(put_unit)(const wb__line *l, const NAME(unit) *u, const T *from, T *y)
{
    T *to = y + u->pixel * l->k;
    if (UNIT == 8 && (u->pixel + 7) * l->k + 8 <= l->rows * l->n * l->k) {
        transpose_8(from, LANES, to, l->k);
        return;
    }
    for (int i = 0; i < u->some; i++)
        for (int o = 0; o < l->k; o++) *to++ = from[o * LANES + i];
}

static inline __attribute__((always_inline)) void NAME(line_of)(
    const int k, const wb__line *l, const T *x, const T *w, const T *bias, T *y)
{
    enum { UNITS = BLOCKS * LANES / UNIT };
    const int64_t units = (l->n + UNIT - 1) / UNIT * l->rows;
    T by_channel[BLOCKS][8 * LANES];
    memset(by_channel, 0, sizeof by_channel);
    for (int64_t u = 0; u < units; u += UNITS) {
        NAME(unit) unit[UNITS];
        V acc[BLOCKS][8];
        NAME(find_units)(l, u, UNITS, unit);
#pragma GCC unroll 3
        for (int v = 0; v < BLOCKS; v++)
#pragma GCC unroll 8
            for (int o = 0; o < k; o++) acc[v][o] = bias ? spread(bias[o]) : spread(0);
        const T *tap = w;
        for (int64_t a = 0; a < l->kh; a++)
            for (int64_t b = 0; b < l->kw; b++, tap += 8) {
#pragma GCC unroll 3
                for (int v = 0; v < BLOCKS; v++) {
                    const V e = NAME(load_units)(x + a * l->line + b, unit, v);
#pragma GCC unroll 8
                    for (int o = 0; o < k; o++)
                        acc[v][o] = multiply_add(e, spread(tap[o]), acc[v][o]);
                }
            }
#pragma GCC unroll 3
        for (int v = 0; v < BLOCKS; v++)
#pragma GCC unroll 8
            for (int o = 0; o < k; o++)
                store(by_channel[v] + o * LANES, l->relu ? at_least_0(acc[v][o]) : acc[v][o]);
        for (int i = 0; i < WB__MIN(units - u, UNITS); i++)
            NAME(put_unit)(l, unit + i, by_channel[i * UNIT / LANES] + i * UNIT % LANES, y);
    }
}

/* Computes y[i, q, o] = act(bias[o] + sum over a, b of x[i*step + a*line + q + b] * w[a*kw + b, o])
 * for i < rows, q < n and o < k.  act is relu or nothing. */
static void NAME(line)(const wb__line *l, const void *x, const void *w, const void *bias, void *y)
{
    if (l->k <= 4) NAME(line_of)(4, l, x, w, bias, y);
    else if (l->k <= 6) NAME(line_of)(6, l, x, w, bias, y);
    else NAME(line_of)(8, l, x, w, bias, y);
}

/* ---- the gradient of the weights ------------------------------------------------------------- */

enum { NAME(AT_A_TIME) = 36,            /* vectors whose dy is transposed before they are used */
       NAME(UNITS) = NAME(AT_A_TIME) * LANES / UNIT,
       NAME(TAPS) = 5 };                /* taps of a block, which has at most CHANNELS channels */
#define CHANNELS (LANES == 16 ? 4 : 2)

/* Transposes n units of dy to `to`, AT_A_TIME vectors a channel; missing pixels are 0. */
static inline void NAME(turn)(const wb__line *l, int n, const NAME(unit) *unit, const T *dy, T *to)
{
    for (int i = 0; i < n; i++, to += UNIT) {
        const T *from = dy + unit[i].pixel * l->k;
        if (UNIT == 8 && unit[i].some == 8 &&
            (unit[i].pixel + 7) * l->k + 8 <= l->rows * l->n * l->k) {
            transpose_8(from, l->k, to, NAME(AT_A_TIME) * LANES);
            continue;
        }
        for (int o = 0; o < l->k; o++)
            for (int p = 0; p < UNIT; p++)
                to[o * NAME(AT_A_TIME) * LANES + p] = p < unit[i].some ? from[p * l->k + o] : 0;
    }
}

/* Adds to sums[tap][channel][LANES] for TAPS taps from tap t on and k channels, over n vectors. */
static inline __attribute__((always_inline)) void
NAME(add_taps)(const int k, const wb__line *l, int64_t t, int n, const NAME(unit) *unit, const T *x,
               const T *dy, T *sums)
{
    const int64_t taps = WB__MIN(l->kh * l->kw - t, NAME(TAPS));
    const T *from[NAME(TAPS)];
    V acc[NAME(TAPS)][CHANNELS];
#pragma GCC unroll 5
    for (int i = 0; i < NAME(TAPS); i++) {
        const int64_t tap = t + WB__MIN(i, taps - 1);
        from[i] = x + tap / l->kw * l->line + tap % l->kw;
#pragma GCC unroll 4
        for (int o = 0; o < k; o++) acc[i][o] = spread(0);
    }
    for (int v = 0; v < n; v++) {
        V d[CHANNELS];
#pragma GCC unroll 4
        for (int o = 0; o < k; o++) d[o] = load(dy + (o * NAME(AT_A_TIME) + v) * LANES);
#pragma GCC unroll 5
        for (int i = 0; i < NAME(TAPS); i++) {
            const V e = NAME(load_units)(from[i], unit, v);
#pragma GCC unroll 4
            for (int o = 0; o < k; o++) acc[i][o] = multiply_add(e, d[o], acc[i][o]);
        }
    }
#pragma GCC unroll 5
    for (int i = 0; i < NAME(TAPS); i++) {
        if (i >= taps) return;
        T *to = sums + i * l->k * LANES;
#pragma GCC unroll 4
        for (int o = 0; o < k; o++) store(to + o * LANES, load(to + o * LANES) + acc[i][o]);
    }
}

/* Adds to sums[a*kw + b, o, LANES], whose sum over the lanes is the gradient of w[a*kw + b, o], the
 * products of x[i*step + a*line + q + b] and dy[i, q, o]. */
static void NAME(line_weights)(const wb__line *l, const void *x, const void *dy, void *sums)
{
    const int64_t units = (l->n + UNIT - 1) / UNIT * l->rows;
    T planes[8 * NAME(AT_A_TIME) * LANES];
    for (int64_t u = 0; u < units; u += NAME(UNITS)) {
        NAME(unit) unit[NAME(UNITS)];
        const int n = (int)((WB__MIN(units - u, NAME(UNITS)) * UNIT + LANES - 1) / LANES);
        NAME(find_units)(l, u, NAME(UNITS), unit);
        NAME(turn)(l, n * LANES / UNIT, unit, dy, planes);
        const int64_t blocks = (l->k + CHANNELS - 1) / CHANNELS;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t o = l->k * b / blocks, k = l->k * (b + 1) / blocks - o;
            const T *d = planes + o * NAME(AT_A_TIME) * LANES;
            for (int64_t t = 0; t < l->kh * l->kw; t += NAME(TAPS)) {
                T *to = (T *)sums + (t * l->k + o) * LANES;
                if (k == 1) NAME(add_taps)(1, l, t, n, unit, x, d, to);
                else if (k == 2) NAME(add_taps)(2, l, t, n, unit, x, d, to);
#if WB__ISA == 5
                else if (k == 3) NAME(add_taps)(3, l, t, n, unit, x, d, to);
                else NAME(add_taps)(4, l, t, n, unit, x, d, to);
#endif
            }
        }
    }
}

#undef UNIT
#undef BLOCKS
#undef CHANNELS
