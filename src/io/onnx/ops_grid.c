/* GridSample and AffineGrid of ONNX, over 1 to 3 axes of space.
 *
 * The last axis of a grid has a position for each axis of space of x, in the reverse order, from -1
 * to 1.  The elements around a position are taken by index from x as a table, [N S, C], where S is
 * the number of elements of space, and weighted along one axis after the other. */
#include "io/onnx/ops_common.h"
#include "io/onnx/ops_window.h"

#include <string.h>

typedef enum { ONNX_GRID_LINEAR, ONNX_GRID_NEAREST, ONNX_GRID_CUBIC } onnx_grid_interpolation;
typedef enum { ONNX_GRID_ZEROS, BORDER, REFLECTION } onnx_grid_outside;

typedef struct {
    int axes;
    int64_t batch, size[3];
    onnx_grid_interpolation mode;
    onnx_grid_outside padding;
    bool corners;                       /* -1 and 1 are the centres of the outermost elements */
    wb_dtype index;
    wb_tensor *rows;                    /* [N S, C] */
    wb_tensor *floor[3], *rest[3];      /* positions rounded down, and their rest */
} sampler;

static wb_tensor *onnx_grid_plus(wb_tensor *x, double v) { return wb_add(x, wb__number_of(v)); }
static wb_tensor *onnx_grid_times(wb_tensor *x, double v) { return wb_mul(x, wb__number_of(v)); }

/* Returns x reflected at the borders of an axis of n elements until it is between them: with a
 * period of twice their distance. */
static wb_tensor *onnx_grid_reflect(const sampler *s, wb_tensor *x, int64_t n)
{
    const double low = s->corners ? 0 : -0.5, width = (double)(s->corners ? n - 1 : n);
    if (width == 0) return onnx_grid_times(x, 0);
    wb_tensor *turns = wb_stop_gradient(
        wb_floor(onnx_grid_times(onnx_grid_plus(x, -low), 0.5 / width)));
    wb_tensor *rest = wb_sub(onnx_grid_plus(x, -low), onnx_grid_times(turns, 2 * width));
    return onnx_grid_plus(wb_minimum(rest, onnx_grid_plus(wb_neg(rest), 2 * width)), low);
}

static wb_tensor *onnx_grid_clamp(wb_tensor *x, int64_t n)
{
    return wb_minimum(wb_maximum(x, wb__number_of(0)), wb__number_of((double)(n - 1)));
}

/* Sets floor and rest of the positions along axis i of space; `grid` has them from -1 to 1.  Cubic
 * interpolation beyond a border reads the elements there, as in PyTorch. */
static bool onnx_grid_find_positions(sampler *s, wb_tensor *grid, int i)
{
    const int64_t n = s->size[i], at = s->axes - 1 - i;
    const double low = s->corners ? 0 : -0.5, high = (double)(n - 1) - low;
    wb_tensor *p = wb_squeeze(wb_slice(grid, -1, at, at + 1), -1);
    p = onnx_grid_plus(p, 1);
    p = s->corners ? onnx_grid_times(p, (double)(n - 1) / 2)
                   : onnx_grid_plus(onnx_grid_times(p, (double)n / 2), -0.5);
    if (s->mode == ONNX_GRID_NEAREST) p = wb__onnx_rounded(wb_stop_gradient(p));
    if (s->padding == REFLECTION || (s->padding == BORDER && s->mode != ONNX_GRID_CUBIC)) {
        wb_tensor *out = wb_or(wb_lt(p, wb__number_of(low)), wb_gt(p, wb__number_of(high)));
        p = wb_where(
            out, s->padding == BORDER ? onnx_grid_clamp(p, n) : onnx_grid_reflect(s, p, n), p);
    }
    s->floor[i] = p ? wb_stop_gradient(wb_floor(p)) : NULL;
    s->rest[i] = wb_sub(p, s->floor[i]);
    return s->rest[i];
}

/* Returns the weight of the element at floor + t, where the position is at floor + rest. */
static wb_tensor *onnx_grid_weight(const sampler *s, int i, int t)
{
    const double a = -0.75;
    wb_tensor *r = s->rest[i], *d = t > 0 ? onnx_grid_plus(wb_neg(r), t) : onnx_grid_plus(r, -t);
    if (s->mode == ONNX_GRID_LINEAR) return onnx_grid_plus(wb_neg(d), 1);
    if (t == 0 || t == 1)
        return onnx_grid_plus(
            wb_mul(onnx_grid_plus(onnx_grid_times(d, a + 2), -(a + 3)), wb_square(d)), 1);
    return onnx_grid_plus(
        wb_mul(onnx_grid_plus(wb_mul(onnx_grid_plus(onnx_grid_times(d, a), -5 * a), d), 8 * a), d),
        -4 * a);
}

/* Returns the rows of x at floor + t[i] along each axis, [N, ..., C]. */
static wb_tensor *onnx_grid_elements(const sampler *s, const int *t)
{
    wb_tensor *inside = NULL, *at = NULL;
    int64_t each = 1;
    for (int i = 0; i < s->axes; i++) {
        const int64_t n = s->size[i];
        wb_tensor *j = onnx_grid_plus(s->floor[i], t[i]);
        if (s->padding == REFLECTION) j = onnx_grid_reflect(s, j, n);
        if (s->padding != ONNX_GRID_ZEROS) j = onnx_grid_clamp(j, n);
        wb_tensor *in = wb_and(wb_ge(j, wb__number_of(0)), wb_lt(j, wb__number_of((double)n)));
        j = wb__as(wb_where(in, j, wb__number_of(0)), s->index);
        at = at ? wb_add(wb_mul(at, wb__literal((double)n, s->index)), j) : j;
        inside = inside ? wb_and(inside, in) : in;
        each *= n;
        if (!at) return NULL;
    }
    int64_t dims[WB_MAX_DIMS] = {s->batch};
    for (int i = 1; i < at->ndim; i++) dims[i] = 1;
    wb_tensor *first = wb_mul(wb_arange(s->batch, s->index), wb__literal((double)each, s->index));
    at = wb_add(at, first ? wb_reshape_array(first, at->ndim, dims) : NULL);
    return wb_take(s->rows, wb_where(inside, at, wb__literal(-1, s->index)));
}

/* Returns the weighted sum over the axes from i on; t has the elements along those before. */
static wb_tensor *onnx_grid_sample_from_axis(const sampler *s, int i, int *t)
{
    wb_tensor *sum = NULL;
    if (i == s->axes) return onnx_grid_elements(s, t);
    if (s->mode == ONNX_GRID_NEAREST) {
        t[i] = 0;
        return onnx_grid_sample_from_axis(s, i + 1, t);
    }
    const int first = s->mode == ONNX_GRID_LINEAR ? 0 : -1,
              last = s->mode == ONNX_GRID_LINEAR ? 1 : 2;
    for (int k = first; k <= last; k++) {
        t[i] = k;
        wb_tensor *w = onnx_grid_weight(s, i, k);
        wb_tensor *part = wb_mul(onnx_grid_sample_from_axis(s, i + 1, t),
                                 w ? wb_unsqueeze(w, -1) : NULL);
        sum = sum ? wb_add(sum, part) : part;
        if (!sum) return NULL;
    }
    return sum;
}

static bool onnx_grid_read_sampler(const wb__onnx_call *c, sampler *s)
{
    const wb_tensor *x = c->in[0], *grid = c->in[1];
    *s = (sampler){.axes = x->ndim - 2, .batch = x->ndim ? x->dims[0] : 0,
                   .mode = (onnx_grid_interpolation)wb__onnx_word_index(c, "mode"),
                   .padding = (onnx_grid_outside)wb__onnx_word_index(c, "padding_mode"),
                   .corners = wb__onnx_int(c, "align_corners")};
    if (s->axes < 1 || s->axes > 3 || grid->ndim != x->ndim || !x->size ||
        grid->dims[0] != x->dims[0] || grid->dims[grid->ndim - 1] != s->axes)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s, its grid %s", wb_describe(x),
                               wb_describe(grid));
    s->index = x->size > INT32_MAX ? WB_I64 : WB_I32;
    for (int i = 0; i < s->axes; i++) s->size[i] = x->dims[2 + i];
    return true;
}

bool wb__onnx_grid_sample(wb__onnx_call *c)
{
    sampler s;
    int t[3];
    if (!wb__onnx_floating(c, 0) || !wb__onnx_floating(c, 1) ||
        !onnx_grid_read_sampler(c, &s)) return false;
    wb_tensor *x = c->in[0], *wide = wb__wide(x);
    if (!wide) return false;
    const int n = x->ndim;
    int64_t order[WB_MAX_DIMS] = {0};
    for (int i = 1; i < n; i++) order[i] = i + 1 < n ? i + 1 : 1;
    s.rows = wb_permute_array(wide, n, order);
    if (s.rows)
        s.rows = wb_reshape_array(s.rows, 2, (int64_t[]){x->size / x->dims[1], x->dims[1]});
    wb_tensor *grid = wb__as(c->in[1], (wb_dtype)wide->dtype);
    for (int i = 0; i < s.axes; i++)
        if (!s.rows || !grid || !onnx_grid_find_positions(&s, grid, i)) return false;
    wb_tensor *y = onnx_grid_sample_from_axis(&s, 0, t);
    order[1] = n - 1;
    for (int i = 2; i < n; i++) order[i] = i - 1;
    y = y ? wb_permute_array(y, n, order) : NULL;
    return wb__onnx_give(c, wb__as(y, (wb_dtype)x->dtype));
}

/* ---- AffineGrid ------------------------------------------------------------------------------ */

/* Returns the positions of all elements of space and a 1 for each, [S, axes + 1], beside `like`. */
static wb_tensor *all_positions(const wb_tensor *like, const int64_t *size, int axes, bool corners,
                                int64_t elements_of_space)
{
    const int64_t dims[2] = {elements_of_space, axes + 1};
    double *v = wb__alloc((size_t)(dims[0] * dims[1]) * sizeof *v);
    for (int64_t k = 0; v && k < dims[0]; k++) {
        int64_t rest = k;
        for (int i = axes - 1; i >= 0; i--) {           /* the last axis of space comes first */
            const double at = (double)(rest % size[i]), n = (double)size[i];
            rest /= size[i];
            v[k * dims[1] + axes - 1 - i] = !corners ? (2 * at + 1) / n - 1
                                            : n > 1  ? 2 * at / (n - 1) - 1 : 0;
        }
        v[k * dims[1] + axes] = 1;
    }
    return wb__onnx_doubles(like, v, (wb_dtype)like->dtype, 2, dims);
}

bool wb__onnx_affine_grid(wb__onnx_call *c)
{
    const int64_t *size;
    int64_t dims[WB_MAX_DIMS], all = 1;
    if (!wb__onnx_floating(c, 0)) return false;
    wb_tensor *theta = c->in[0];
    const int n = wb__onnx_input_ints(c, 1, &size), axes = n - 2;
    if (n < -1) return false;
    bool fits = (axes == 2 || axes == 3) && theta->ndim == 3 && theta->dims[0] == size[0] &&
                theta->dims[1] == axes && theta->dims[2] == axes + 1;
    for (int i = 0; i < axes && fits; i++) {
        fits = size[2 + i] >= 1 && size[2 + i] <= 1 << 20;
        dims[1 + i] = size[2 + i];
        if (fits) all *= size[2 + i];
        fits &= all <= INT32_MAX;
    }
    if (!fits)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "theta is %s, and size has %d numbers; they are "
                               "[N,2,3] and N,C,H,W, or [N,3,4] and N,C,D,H,W",
                               wb_describe(theta), n);
    const bool corners = wb__onnx_int(c, "align_corners");
    wb_tensor *from = all_positions(theta, size + 2, axes, corners, all);
    wb_tensor *y = from ? wb__matmul(from, theta, false, true) : NULL;
    dims[0] = theta->dims[0];
    dims[1 + axes] = axes;
    return wb__onnx_give(c, y ? wb_reshape_array(y, axes + 2, dims) : NULL);
}
