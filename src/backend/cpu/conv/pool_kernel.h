/* Pooling of one image (channels innermost) or one plane.  cpu_kernels.h includes this file once
 * per computed type, after simd.h.
 *
 * Channels innermost: the outer loop is over vectors of channels, the inner loops over the window.
 * Planes: the outer loops are over the window, the inner loop over a row of outputs, so that the
 * compiler can vectorise along the row.
 *
 * The maximum m is replaced by x if x > m, or if x is NaN and m is not.  NaN therefore wins, and of
 * equal elements the first. */

/* The window of one output position, clipped to the image: rows [r0, r1), columns [c0, c1) of x. */
typedef struct { int64_t r0, r1, c0, c1; } NAME(window);

static inline V NAME(get)(const T *p, int some) { return some ? load_some(p, some) : load(p); }
static inline void NAME(put)(T *p, V v, int some)
{
    if (some) store_some(p, v, some);
    else store(p, v);
}

/* The gradient of one window: dy (in_out) at the first maximum of x in the window, and 0 elsewhere
 * in the window.  It is added to dx if windows overlap, and written to dx otherwise. */
static inline __attribute__((always_inline)) void
NAME(max_grad)(const wb__pool_desc *d, NAME(window) w, const T *x, const T *in_out, T *dx,
               const bool overlap, const int some)
{
    const int64_t c = d->c, row = d->w * c;
    V m = spread(-(T)INFINITY), where = spread(0), count = where;
    const V one = spread(1);
    for (int64_t r = w.r0; r < w.r1; r++)
        for (int64_t q = w.c0; q < w.c1; q++, count += one) {
            const V e = NAME(get)(x + r * row + q * c, some);
            const MASK better = beats(e, m);
            m = blend(better, e, m);
            where = blend(better, count, where);
        }
    const V dy = NAME(get)(in_out, some);
    count = spread(0);
    for (int64_t r = w.r0; r < w.r1; r++)
        for (int64_t q = w.c0; q < w.c1; q++, count += one) {
            T *at = dx + r * row + q * c;
            V e = blend(same(where, count), dy, spread(0));
            if (overlap) e += NAME(get)(at, some);
            NAME(put)(at, e, some);
        }
}

/* Pools up to a vector of channels over window w.  Which of x, dy (in_out) and v are read, and
 * whether dx or y is written, depends on `kind` (lib.h). */
static inline __attribute__((always_inline)) void
NAME(pool_channels)(const wb__pool_desc *d, const wb__pool_kind kind, NAME(window) w, const T *x,
                    const T *in_out, const T *v, T *dx, T *y, const bool overlap, const int some)
{
    const int64_t c = d->c, row = d->w * c;
    if (kind == WB__POOL_MEAN) {
        V sum = spread(0);
        for (int64_t r = w.r0; r < w.r1; r++)
            for (int64_t q = w.c0; q < w.c1; q++) sum += NAME(get)(x + r * row + q * c, some);
        NAME(put)(y, sum * spread((T)1 / (T)(d->kh * d->kw)), some);
        return;
    }
    if (kind == WB__POOL_MEAN_GRAD) {
        const V share = NAME(get)(in_out, some) * spread((T)1 / (T)(d->kh * d->kw));
        for (int64_t r = w.r0; r < w.r1; r++)
            for (int64_t q = w.c0; q < w.c1; q++) {
                T *at = dx + r * row + q * c;
                V sum = share;
                if (overlap) sum += NAME(get)(at, some);
                NAME(put)(at, sum, some);
            }
        return;
    }
    V m = spread(-(T)INFINITY), taken = spread(0);
    if (kind == WB__POOL_MAX) {
        for (int64_t r = w.r0; r < w.r1; r++)
            for (int64_t q = w.c0; q < w.c1; q++) {
                const V e = NAME(get)(x + r * row + q * c, some);
                m = blend(is_nan(e), e, larger(e, m));
            }
        NAME(put)(y, m, some);
        return;
    }
    if (kind == WB__POOL_MAX_GATHER) {
        bool begun = false;
        for (int64_t r = w.r0; r < w.r1; r++)
            for (int64_t q = w.c0; q < w.c1; q++, begun = true) {
                const V e = NAME(get)(x + r * row + q * c, some),
                        t = NAME(get)(v + r * row + q * c, some);
                const MASK better = begun ? beats(e, m) : same(spread(0), spread(0));
                m = blend(better, e, m);
                taken = blend(better, t, taken);
            }
        NAME(put)(y, taken, some);
        return;
    }
    NAME(max_grad)(d, w, x, in_out, dx, overlap, some);
}

/* Pools all channels of one output position. */
static inline __attribute__((always_inline)) void
NAME(pool_pixel)(const wb__pool_desc *d, const wb__pool_kind kind, NAME(window) w, const T *x,
                 const T *dy, const T *v, T *dx, T *y, const bool overlap)
{
    int64_t c = 0;
    for (; c + LANES <= d->c; c += LANES)
        NAME(pool_channels)(d, kind, w, x + c, dy + c, v + c, dx + c, y + c, overlap, 0);
    if (c < d->c)
        NAME(pool_channels)(d, kind, w, x + c, dy + c, v + c, dx + c, y + c, overlap,
                            (int)(d->c - c));
}

/* The loops over a window of 2 by 2 are unrolled: otherwise they take four times as long as the
 * arithmetic inside them. */
static inline __attribute__((always_inline)) void
NAME(pool_image)(const wb__pool_desc *of, const wb__pool_kind kind, const T *x, const T *dy,
                 const T *v, T *dx, T *y, const bool overlap)
{
    const wb__pool_desc desc = *of, *d = &desc;     /* a copy that no store of T can change */
    int64_t out = 0;
    for (int64_t i = 0, top = -d->pad[0]; i < d->oh; i++, top += d->stride[0]) {
        const int64_t r0 = WB__MAX(top, 0), r1 = WB__MIN(top + d->kh, d->h);
        int64_t left = -d->pad[2];
        for (int64_t j = 0; j < d->ow; j++, left += d->stride[1], out += d->c) {
            const int64_t c0 = WB__MAX(left, 0), c1 = WB__MIN(left + d->kw, d->w);
            if (r1 - r0 == 2 && c1 - c0 == 2)
                NAME(pool_pixel)(d, kind, (NAME(window)){ r0, r0 + 2, c0, c0 + 2 }, x, dy + out, v,
                                 dx, y + out, overlap);
            else
                NAME(pool_pixel)(d, kind, (NAME(window)){ r0, r1, c0, c1 }, x, dy + out, v, dx,
                                 y + out, overlap);
        }
    }
}

/* Planes are pooled by chunks of at most ROW outputs of a row, because the arrays m, taken and
 * where are on the stack. */
enum { NAME(ROW) = 256 };

static inline __attribute__((always_inline)) void
NAME(pool_row)(const wb__pool_desc *d, const wb__pool_kind kind, int64_t i, int64_t j0, int64_t n,
               const int64_t stride, const T *x, const T *dy, const T *v, T *dx, T *y)
{
    T m[NAME(ROW)], taken[NAME(ROW)];
    int32_t where[NAME(ROW)];
    const T share = (T)1 / (T)(d->kh * d->kw);
    const bool mean = kind == WB__POOL_MEAN || kind == WB__POOL_MEAN_GRAD;
    const bool back = kind == WB__POOL_MAX_GRAD || kind == WB__POOL_MEAN_GRAD;
    for (int64_t o = 0; o < n; o++) {
        m[o] = mean ? 0 : -(T)INFINITY;
        where[o] = -1;
        taken[o] = 0;
    }
    for (int pass = kind == WB__POOL_MEAN_GRAD; pass < 1 + back; pass++)
        for (int64_t a = 0; a < d->kh; a++) {
            const int64_t r = i * d->stride[0] - d->pad[0] + a;
            if (r < 0 || r >= d->h) continue;
            for (int64_t b = 0; b < d->kw; b++) {
                /* [low, high): each o for which column (j0 + o)*stride - pad[2] + b is in x */
                const int64_t shift = j0 * stride - d->pad[2] + b;
                const int64_t low = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
                const int64_t high =
                    WB__MIN(d->w > shift ? (d->w - shift + stride - 1) / stride : 0, n);
                const int64_t base = r * d->w + shift;
                const int32_t place = (int32_t)(a * d->kw + b);
                for (int64_t o = low; o < high; o++) {
                    const int64_t at = base + o * stride;
                    if (pass) dx[at] += mean ? dy[o] * share : where[o] == place ? dy[o] : 0;
                    else if (mean) m[o] += x[at];
                    else {
                        const T e = x[at];
                        const bool better = e > m[o] || (e != e && m[o] == m[o])
                                         || (kind != WB__POOL_MAX && where[o] < 0);
                        m[o] = better ? e : m[o];
                        if (kind == WB__POOL_MAX_GATHER) taken[o] = better ? v[at] : taken[o];
                        if (kind != WB__POOL_MAX) where[o] = better ? place : where[o];
                    }
                }
            }
        }
    if (back) return;
    for (int64_t o = 0; o < n; o++)
        y[o] = mean ? m[o] * share : kind == WB__POOL_MAX_GATHER ? taken[o] : m[o];
}

static inline __attribute__((always_inline)) void NAME(pool_plane)(const wb__pool_desc *d,
                                                                   const wb__pool_kind kind,
                                                                   const T *x, const T *dy,
                                                                   const T *v, T *dx, T *y)
{
    for (int64_t i = 0; i < d->oh; i++)
        for (int64_t j = 0; j < d->ow; j += NAME(ROW)) {
            const int64_t n = WB__MIN(d->ow - j, NAME(ROW)), out = i * d->ow + j;
            if (d->stride[1] == 2) NAME(pool_row)(d, kind, i, j, n, 2, x, dy + out, v, dx, y + out);
            else
                NAME(pool_row)(d, kind, i, j, n, d->stride[1], x, dy + out, v, dx, y + out);
        }
}

#define POOL_FN(kind)                                                                          \
    static void NAME(pool_##kind)(const wb__pool_desc *d, const T *x, const T *dy, const T *v, \
                                  T *dx, T *y, bool overlap)                                   \
    {                                                                                          \
        if (!d->nhwc) NAME(pool_plane)(d, WB__POOL_##kind, x, dy, v, dx, y);                   \
        else if (overlap) NAME(pool_image)(d, WB__POOL_##kind, x, dy, v, dx, y, true);         \
        else NAME(pool_image)(d, WB__POOL_##kind, x, dy, v, dx, y, false);                     \
    }
POOL_FN(MAX)
POOL_FN(MAX_GRAD)
POOL_FN(MAX_GATHER)
POOL_FN(MEAN)
POOL_FN(MEAN_GRAD)
#undef POOL_FN

static void NAME(pool_one)(const wb__pool_desc *d, const void *const in[2], void *out)
{
    const T *a = in[0], *b = in[1];
    T *to = out;
    const bool overlap = d->stride[0] < d->kh || d->stride[1] < d->kw;
    const bool exact = d->stride[0] == d->kh && d->stride[1] == d->kw && !d->pad[0] && !d->pad[2]
                    && d->oh * d->kh >= d->h && d->ow * d->kw >= d->w;
    if ((d->kind == WB__POOL_MAX_GRAD || d->kind == WB__POOL_MEAN_GRAD) && !(exact && d->nhwc))
        memset(to, 0, (size_t)(d->h * d->w * (d->nhwc ? d->c : 1)) * sizeof(T));
    /* an operand that a kind does not have is replaced by another pointer that is safe to offset */
    switch (d->kind) {
    case WB__POOL_MAX: NAME(pool_MAX)(d, a, a, a, to, to, false); break;
    case WB__POOL_MAX_GRAD: NAME(pool_MAX_GRAD)(d, a, b, a, to, to, overlap); break;
    case WB__POOL_MAX_GATHER: NAME(pool_MAX_GATHER)(d, a, a, b, to, to, false); break;
    case WB__POOL_MEAN: NAME(pool_MEAN)(d, a, a, a, to, to, false); break;
    case WB__POOL_MEAN_GRAD: NAME(pool_MEAN_GRAD)(d, a, a, a, to, to, overlap); break;
    }
}
