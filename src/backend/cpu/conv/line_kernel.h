/* A convolution of one-channel images, one row of outputs at a time.  cpu_kernels.h includes this
 * file for f32, after simd.h.
 *
 * With one channel, a vector holds neighbouring pixels instead of channels.  Each of up to 8 output
 * channels has BLOCKS vectors of outputs.  The outputs are transposed at the end, because y has
 * channels innermost. */

#define BLOCKS \
    (LANES == 16 ? 2 : 1) /* vectors of outputs that are computed at a time for each channel */

static inline __attribute__((always_inline)) void NAME(line_of)(
    const int k, const wb__line *l, int64_t n, const T *x, const T *w, const T *bias, T *y)
{
    for (int64_t q = 0; q < n; q += BLOCKS * LANES) {
        V acc[BLOCKS][8];
        int some[BLOCKS];
#pragma GCC unroll 2
        for (int v = 0; v < BLOCKS; v++) {
            some[v] = (int)WB__MAX(WB__MIN(n - q - v * LANES, LANES), 0);
#pragma GCC unroll 8
            for (int o = 0; o < k; o++) acc[v][o] = bias ? spread(bias[o]) : spread(0);
        }
        const T *tap = w;
        for (int64_t a = 0; a < l->kh; a++) {
            const T *from = x + a * l->line + q;
            for (int64_t b = 0; b < l->kw; b++, tap += 8) {
#pragma GCC unroll 2
                for (int v = 0; v < BLOCKS; v++) {
                    const V e = load_some(from + b + v * LANES, some[v]);
#pragma GCC unroll 8
                    for (int o = 0; o < k; o++)
                        acc[v][o] = multiply_add(e, spread(tap[o]), acc[v][o]);
                }
            }
        }
        T by_channel[BLOCKS][8 * LANES], by_pixel[8 * 8];
#pragma GCC unroll 2
        for (int v = 0; v < BLOCKS; v++) {
#pragma GCC unroll 8
            for (int o = 0; o < 8; o++) {
                V e = o < k ? acc[v][o] : spread(0);
                store(by_channel[v] + o * LANES, l->relu ? at_least_0(e) : e);
            }
        }
        for (int v = 0; v < BLOCKS; v++)
            for (int p = 0; p < some[v]; p += 8) {
                T *to = y + (q + v * LANES + p) * l->k;
                const int pixels = (int)WB__MIN(some[v] - p, 8);
                if (LANES >= 8) transpose_8(by_channel[v] + p, LANES, by_pixel, 8);
                for (int i = 0; i < pixels; i++, to += l->k) {
                    if (LANES >= 8
                        && (pixels - i) * l->k >= 8) /* the next pixel overwrites the excess */
                        memcpy(to, by_pixel + i * 8, 8 * sizeof *to);
                    else
                        for (int o = 0; o < l->k; o++)
                            to[o] =
                                LANES >= 8 ? by_pixel[i * 8 + o] : by_channel[v][o * LANES + p + i];
                }
            }
    }
}

/* Computes y[q, o] = act(bias[o] + sum over a, b of x[a*line + q + b] * w[a*kw + b, o]) for q < n
 * and o < k.  act is relu or nothing. */
static void NAME(line)(const wb__line *l, int64_t n, const void *x, const void *w, const void *bias,
                       void *y)
{
    if (l->k <= 4) NAME(line_of)(4, l, n, x, w, bias, y);
    else if (l->k <= 6) NAME(line_of)(6, l, n, x, w, bias, y);
    else NAME(line_of)(8, l, n, x, w, bias, y);
}

#undef BLOCKS
