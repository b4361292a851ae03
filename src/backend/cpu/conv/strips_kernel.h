/* The sum of strips (strips.c).  cpu_kernels.h includes this file for f32, after simd.h. */

/* Sets row[p], for p < n, to the sum over the strips that cover element p of the row: strip i
 * covers the elements from i*apart - left on.  Before and behind each strip are LANES zeros, so a
 * vector that a strip covers in part is read whole. */
static void NAME(strips)(const wb__strips *s, const void *strips, void *row)
{
    const T *from = (const T *)strips + s->left;
    T *to = row;
    int64_t first = 0, last = 0;
    for (int64_t p = 0; p < s->n; p += LANES) {
        V sum = spread(0);
        while (first < s->count && first * s->apart - s->left + s->width <= p) first++;
        while (last < s->count && last * s->apart - s->left < p + LANES) last++;
        for (int64_t j = first; j < last; j++) sum += load(from + p + j * (s->stride - s->apart));
        if (s->n - p < LANES) store_some(to + p, sum, (int)(s->n - p));
        else store(to + p, sum);
    }
}
