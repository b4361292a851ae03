/* The gradient of the patch copy (col2im).  cpu_kernels.h includes this file once per computed
 * type, after simd.h.
 *
 * Each element of the image is the sum of the patch elements that were copied from it.  Gathering
 * these elements, instead of adding patches into the image, writes every element once and never
 * waits for an earlier store.  Channels are innermost in the image and in the patches. */

enum { NAME(MAX_TAPS) = 64 };           /* limit of taps along one side, which conv.c checks */

/* Finds the pairs of a tap t and an output o along one side that read position `at`, so that
 * o*stride - pad + t*dilation = at.  Writes their offsets in the patches to `offset`, and returns
 * their number. */
static inline int NAME(readers)(int64_t at, int64_t pad, int64_t taps, int64_t stride,
                                int64_t dilation, int64_t outputs, int64_t per_output,
                                int64_t per_tap, int64_t *offset)
{
    int n = 0;
    for (int64_t t = 0; t < taps; t++) {
        int64_t o = at + pad - t * dilation;
        if (o < 0) break;
        if (stride != 1) {
            if (o % stride) continue;
            o /= stride;
        }
        if (o < outputs) offset[n++] = o * per_output + t * per_tap;
    }
    return n;
}

/* Sets each pixel of the image [h, w, d->c] to the sum of its copies in the patches [oh, ow, kh,
 * kw, channels].  Only the first `channels` channels of a pixel are written. */
static void NAME(gather_one)(const wb__conv_desc *d, int64_t channels, const void *patches,
                             void *image)
{
    int64_t rows[NAME(MAX_TAPS)], columns[NAME(MAX_TAPS)];
    const int64_t pixel = d->kh * d->kw * channels;
    for (int64_t r = 0; r < d->h; r++) {
        const int nr = NAME(readers)(r, d->pad[0], d->kh, d->stride[0], d->dilation[0], d->oh,
                                     d->ow * pixel, d->kw * channels, rows);
        for (int64_t q = 0; q < d->w; q++) {
            const int nc = NAME(readers)(q, d->pad[2], d->kw, d->stride[1], d->dilation[1], d->ow,
                                         pixel, channels, columns);
            T *to = (T *)image + (r * d->w + q) * d->c;
            for (int64_t c = 0; c < channels; c += LANES) {
                const int some = channels - c < LANES ? (int)(channels - c) : 0;
                V sum = spread(0), other = spread(0);
                const T *from = (const T *)patches + c;
                int a = 0;
                for (; a + 2 <= nr; a += 2) { /* two sums hide half the latency of an addition */
                    const T *line = from + rows[a], *next = from + rows[a + 1];
                    if (some) for (int b = 0; b < nc; b++) {
                        sum += load_some(line + columns[b], some);
                        other += load_some(next + columns[b], some);
                    } else for (int b = 0; b < nc; b++) {
                        sum += load(line + columns[b]);
                        other += load(next + columns[b]);
                    }
                }
                if (a < nr) {
                    const T *line = from + rows[a];
                    if (some)
                        for (int b = 0; b < nc; b++) sum += load_some(line + columns[b], some);
                    else for (int b = 0; b < nc; b++) sum += load(line + columns[b]);
                }
                sum += other;
                if (some) store_some(to + c, sum, some);
                else store(to + c, sum);
            }
        }
    }
}
