/* Convolutions and pools with 1 or 3 axes of space, composed of those with 2.
 *
 * A single axis gets an axis of size 1 before it.  With three axes the pool of the last two
 * precedes the pool of the first.  In a convolution the elements of the kernel along the first
 * axis, the depth, become channels. */
#include "base/options.h"
#include "engine/ops/op.h"
#include "engine/ops/sliding.h"

#include <string.h>

/* The numbers of a sliding window along 1 or 3 axes. */
typedef struct { int64_t stride[3], dilation[3], outpad[3], pad[6], groups; } sliding;

static bool space_read_conv(const char *what, const wb_tensor *x, const wb_tensor *w,
                            const wb_conv_options *given, sliding *s)
{
    wb_conv_options o;
    wb__given g;
    const int axes = x->ndim - 2;
    if (!wb__floating(what, x) || !wb__floating(what, w)) return false;
    if (w->ndim != x->ndim)
        return wb__fail(WB_ERROR_SHAPE, "%s: the kernel of %s has %d axes, not %s", what,
                        wb_describe(x), x->ndim, wb_describe(w)),
               false;
    if (!wb__read_options(what, wb_conv_options, &o, given, &g) ||
        !wb__sliding_axes(what, &g, "stride", -1, o.stride, axes, 1) ||
        !wb__sliding_axes(what, &g, "dilation", -1, o.dilation, axes, 1) ||
        !wb__sliding_axes(what, &g, "outpad", -1, o.outpad, axes, 0) ||
        !wb__sliding_pad(what, &g, o.pad, axes))
        return false;
    memcpy(s->stride, o.stride + 1, sizeof s->stride);
    memcpy(s->dilation, o.dilation + 1, sizeof s->dilation);
    memcpy(s->outpad, o.outpad + 1, sizeof s->outpad);
    memcpy(s->pad, o.pad + 1, sizeof s->pad);
    s->groups = o.groups;
    return true;
}

/* Returns the options of the convolution along the last two axes.  A single axis has an axis of
 * size 1 before it. */
static wb_conv_options options_of_last_two(const sliding *s, int axes)
{
    wb_conv_options o = WB__OPTIONS(wb_conv_options, .groups = s->groups);
    const int at = axes - 2;
    const bool one = axes == 1;
    wb_ints_set(o.stride, 2, one ? (int64_t[]){1, s->stride[0]} : s->stride + at);
    wb_ints_set(o.dilation, 2, one ? (int64_t[]){1, s->dilation[0]} : s->dilation + at);
    wb_ints_set(o.outpad, 2, one ? (int64_t[]){0, s->outpad[0]} : s->outpad + at);
    wb_ints_set(o.pad, 4, one ? (int64_t[]){0, 0, s->pad[0], s->pad[1]} : s->pad + 2 * at);
    return o;
}

/* Whether the numbers along the depth are in their bounds.  The convolution with 2 axes checks the
 * other numbers. */
static bool depth_is_valid(const char *what, const wb_tensor *x, const wb_tensor *w,
                           const sliding *s)
{
    const int64_t k = w->dims[2], most = INT16_MAX;
    if (s->stride[0] >= 1 && s->dilation[0] >= 1 && s->pad[0] >= 0 && s->pad[1] >= 0 && k >= 1 &&
        k <= most && s->stride[0] <= most && s->dilation[0] <= most && s->pad[0] <= INT32_MAX &&
        s->pad[1] <= INT32_MAX && x->dims[2] <= INT32_MAX)
        return true;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: kernel %lld, stride %lld, dilation %lld, padding "
                    "%lld,%lld along the depth: kernel, stride and dilation are 1 to 32767, "
                    "padding is at least 0", what, (long long)k, (long long)s->stride[0],
                    (long long)s->dilation[0], (long long)s->pad[0], (long long)s->pad[1]),
           false;
}

static bool space_groups_fit(const char *what, const wb_tensor *x, const wb_tensor *w,
                             int64_t groups, bool fit)
{
    if (fit) return true;
    return wb__fail(WB_ERROR_SHAPE, "%s: channels do not fit: %s · %s in %lld group%s", what,
                    wb_describe(x), wb_describe(w), (long long)groups, groups == 1 ? "" : "s"),
           false;
}

static wb_tensor *reshape_or_null(wb_tensor *x, int n, const int64_t *dims)
{
    return x ? wb_reshape_array(x, n, dims) : NULL;
}
static wb_tensor *permute_or_null(wb_tensor *x, int n, const int64_t *order)
{
    return x ? wb_permute_array(x, n, order) : NULL;
}

static const int64_t space_exchange[5] = {0, 2, 1, 3, 4};   /* the second and third axis */

/* Returns [N, D', kd, C, H, W]: for each position along the depth the elements that the kernel
 * covers.  x is [N, D, C, H, W], already padded so that D >= (kd - 1) dilation + D' stride. */
static wb_tensor *unfold_depth(wb_tensor *x, int64_t kd, int64_t out, const sliding *s)
{
    const int64_t *d = x->dims, stride = s->stride[0];
    wb_tensor **parts = wb__alloc((size_t)kd * sizeof *parts);
    bool ok = parts != NULL;
    for (int64_t p = 0; ok && p < kd; p++) {
        const int64_t start = p * s->dilation[0];
        const int64_t steps[6] = {d[0], out, stride, d[2], d[3], d[4]};
        wb_tensor *y = wb_slice(x, 1, start, start + out * stride);
        y = reshape_or_null(y, 6, steps);
        ok = y && (parts[p] = wb_slice(y, 2, 0, 1));
    }
    wb_tensor *y = ok ? wb_concat_array(2, (int)kd, parts) : NULL;
    wb__free(parts);
    return y;
}

/* Convolves x [N, C, D, H, W], w [K, C/groups, kd, kh, kw] as one over [N D', kd C, H, W]. */
static wb_tensor *conv_3d(wb_tensor *x, wb_tensor *w, wb_tensor *b, const sliding *s)
{
    const int64_t *d = x->dims, *k = w->dims, g = s->groups;
    if (!space_groups_fit("conv", x, w, g,
                          g >= 1 && k[1] >= 1 && d[1] == k[1] * g && k[0] % g == 0) ||
        !depth_is_valid("conv", x, w, s))
        return NULL;
    const int64_t reach = (k[2] - 1) * s->dilation[0] + 1;
    const int64_t over = d[2] + s->pad[0] + s->pad[1] - reach;
    if (over < 0)
        return wb__fail_null(WB_ERROR_SHAPE, "conv: a kernel of depth %lld does not fit into %s "
                             "with padding %lld,%lld", (long long)k[2], wb_describe(x),
                             (long long)s->pad[0], (long long)s->pad[1]);
    const int64_t out = over / s->stride[0] + 1;
    /* slices with a stride end behind the last element */
    wb_tensor *y = wb__pad_zeros(permute_or_null(x, 5, space_exchange), 1, s->pad[0],
                                 s->pad[1] + s->stride[0] - 1);
    y = y ? unfold_depth(y, k[2], out, s) : NULL;
    const int64_t apart[7] = {d[0], out, k[2], g, k[1], d[3], d[4]};
    y = permute_or_null(reshape_or_null(y, 7, apart), 7, (int64_t[]){0, 1, 3, 2, 4, 5, 6});
    y = reshape_or_null(y, 4, (int64_t[]){d[0] * out, k[2] * d[1], d[3], d[4]});
    wb_tensor *flat = reshape_or_null(permute_or_null(w, 5, space_exchange), 4,
                                      (int64_t[]){k[0], k[2] * k[1], k[3], k[4]});
    const wb_conv_options o = options_of_last_two(s, 3);
    y = y && flat ? wb_conv_with(y, flat, b, &o) : NULL;
    if (!y) return NULL;
    const int64_t dims[5] = {d[0], out, k[0], y->dims[2], y->dims[3]};
    return permute_or_null(reshape_or_null(y, 5, dims), 5, space_exchange);
}

/* A transposed convolution of x [N, C, D, H, W] with w [C, K/groups, kd, kh, kw]: one over
 * [N D, C, H, W] with kd K channels, whose results are added at their places along the depth. */
static wb_tensor *transpose_3d(wb_tensor *x, wb_tensor *w, wb_tensor *b, const sliding *s)
{
    const char *what = "conv_transpose";
    const int64_t *d = x->dims, *k = w->dims, g = s->groups, stride = s->stride[0];
    if (!space_groups_fit(what, x, w, g, g >= 1 && k[1] >= 1 && d[1] == k[0] && k[0] % g == 0) ||
        !depth_is_valid(what, x, w, s) || !wb__bias_fits(what, b, w, k[1] * g))
        return NULL;
    const int64_t full = (d[2] - 1) * stride + (k[2] - 1) * s->dilation[0] + 1 + s->outpad[0];
    const int64_t out = full - s->pad[0] - s->pad[1], deep[2] = {d[0] * d[2], k[1] * g};
    if (s->outpad[0] < 0 || s->outpad[0] >= stride || out < 1 || d[2] < 1)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: along the depth of %s %lld elements are left, "
                             "with .outpad %lld below the stride %lld", what, wb_describe(x),
                             (long long)out, (long long)s->outpad[0], (long long)stride);
    wb_tensor *y = reshape_or_null(permute_or_null(x, 5, space_exchange), 4, (int64_t[]){deep[0],
                                                                                         d[1], d[3],
                                                                                         d[4]});
    wb_tensor *flat = reshape_or_null(w, 4, (int64_t[]){k[0], k[1] * k[2], k[3], k[4]}),
    *sum = NULL;
    const wb_conv_options o = options_of_last_two(s, 3);
    y = y && flat ? wb_conv_transpose_with(y, flat, WB_NONE, &o) : NULL;
    if (!y) return NULL;
    const int64_t h = y->dims[2], across = y->dims[3];
    y = reshape_or_null(y, 6, (int64_t[]){d[0], d[2], deep[1], k[2], h, across});
    for (int64_t p = 0; y && p < k[2]; p++) {
        const int64_t end = (d[2] - 1) * stride + 1;
        wb_tensor *part = wb_slice(y, 3, p, p + 1);         /* [N, D, K, 1, H', W'] */
        part = permute_or_null(part, 6, (int64_t[]){0, 2, 1, 3, 4, 5});
        part = part ? wb__pad_zeros(part, 3, 0, stride - 1) : NULL;
        part = reshape_or_null(part, 5, (int64_t[]){d[0], deep[1], d[2] * stride, h, across});
        part = part ? wb_slice(part, 2, 0, end) : NULL;
        const int64_t before = p * s->dilation[0];
        part = part ? wb__pad_zeros(part, 2, before, full - end - before) : NULL;
        sum = !part ? NULL : sum ? wb_add(sum, part) : part;
        if (!sum) return NULL;
    }
    sum = sum ? wb_slice(sum, 2, s->pad[0], s->pad[0] + out) : NULL;
    if (!sum || b == WB_NONE) return sum;
    return wb_add(sum, wb_reshape_array(b, 4, (int64_t[]){b->dims[0], 1, 1, 1}));
}

static wb_tensor *convolve_in_space(const char *what, wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                    const wb_conv_options *given, bool transpose)
{
    sliding s = {{0}, {0}, {0}, {0}, 0};
    if (!space_read_conv(what, x, w, given, &s) ||
        (!b && wb__null(what, "b (WB_NONE for no bias)")))
        return NULL;
    if (!transpose && (s.outpad[0] || s.outpad[1] || s.outpad[2]))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .outpad is wb_conv_transpose's", what);
    if (x->ndim == 5) return (transpose ? transpose_3d : conv_3d)(x, w, b, &s);
    const wb_conv_options o = options_of_last_two(&s, 1);
    x = wb_unsqueeze(x, 2), w = wb_unsqueeze(w, 2);
    wb_tensor *y = (transpose ? wb_conv_transpose_with : wb_conv_with)(x, w, b, &o);
    return y ? wb_squeeze(y, 2) : NULL;
}

wb_tensor *wb__conv_in_space(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, convolve_in_space("conv", x, w, b, o, false));
}

wb_tensor *wb__conv_transpose_in_space(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                       const wb_conv_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, convolve_in_space("conv_transpose", x, w, b, o, true));
}

typedef wb_tensor *pool_function(wb_tensor *, const wb_pool_options *);

/* Pools [N, C, H, W] with the numbers that begin at `at`; the last axis has a window of 1 if `one`
 * is 1, the first one if it is 0. */
static wb_tensor *space_pool_axes(pool_function *pool, wb_tensor *x, const wb_pool_options *s,
                                  int at, int one)
{
    wb_pool_options o = WB__OPTIONS(wb_pool_options);
    int64_t window[2], stride[2], pad[4];
    for (int i = 0; i < 2; i++) {
        const int from = one < 0 ? at + i : at;
        window[i] = i == one ? 1 : s->window[1 + from];
        stride[i] = i == one ? 1 : s->stride[1 + from];
        for (int side = 0; side < 2; side++)
            pad[2 * i + side] = i == one ? 0 : s->pad[1 + 2 * from + side];
    }
    wb_ints_set(o.window, 2, window);
    wb_ints_set(o.stride, 2, stride);
    wb_ints_set(o.pad, 4, pad);
    return x ? pool(x, &o) : NULL;
}

static wb_tensor *pool_in_space(const char *what, pool_function *pool, wb_tensor *x,
                                const wb_pool_options *given)
{
    wb_pool_options s;
    wb__given g;
    const int axes = x->ndim - 2;
    const int64_t *d = x->dims;
    if (!wb__read_options(what, wb_pool_options, &s, given, &g) ||
        !wb__sliding_axes(what, &g, "window", -1, s.window, axes, 0) ||
        !wb__sliding_axes(what, &g, "stride", -1, s.stride, axes, INT64_MIN) ||
        !wb__sliding_pad(what, &g, s.pad, axes))
        return NULL;
    for (int i = 1; i <= axes; i++)
        if (s.stride[i] == INT64_MIN) s.stride[i] = s.window[i];
    if (axes == 1) {
        wb_tensor *y = space_pool_axes(pool, wb_unsqueeze(x, 2), &s, 0, 0);
        return y ? wb_squeeze(y, 2) : NULL;
    }
    wb_tensor *y = reshape_or_null(x, 4, (int64_t[]){d[0], d[1] * d[2], d[3], d[4]});
    y = space_pool_axes(pool, y, &s, 1, -1);
    if (!y) return NULL;
    const int64_t h = y->dims[2], w = y->dims[3];
    y = space_pool_axes(pool, reshape_or_null(y, 4, (int64_t[]){d[0], d[1], d[2], h * w}), &s, 0,
                        1);
    return y ? reshape_or_null(y, 5, (int64_t[]){d[0], d[1], y->dims[2], h, w}) : NULL;
}

wb_tensor *wb__pool_in_space(const char *what, pool_function *pool, wb_tensor *x,
                             const wb_pool_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, pool_in_space(what, pool, x, o));
}
