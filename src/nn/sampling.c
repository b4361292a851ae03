/* Pictures at positions between their elements: grids of positions and rotations. */
#include "nn/space.h"

#include <math.h>

/* A picture x, [N, C, H, W], whose elements are the rows of a table, [N H W, C]. */
typedef struct {
    wb_tensor *rows;
    int64_t n, height, width;           /* number of pictures; their size */
    wb_dtype index;                     /* the dtype of indices into the table */
} picture;

static bool sampling_read_picture(picture *p, wb_tensor *x)
{
    *p = (picture){NULL, x->dims[0], x->dims[2], x->dims[3], WB_I32};
    const int64_t rows = p->n * p->height * p->width;
    if (rows > INT32_MAX) p->index = WB_I64;
    wb_tensor *last = wb_permute_array(x, 4, (int64_t[]){0, 2, 3, 1});
    if (last) p->rows = wb_reshape_array(last, 2, (int64_t[]){rows, x->dims[1]});
    return p->rows;
}

/* Returns the elements at positions that are whole numbers, [N, H', W', C].  `row` and `column` are
 * [N or 1, H', W'], of a floating dtype.  Elements outside of the picture are 0. */
static wb_tensor *sampling_elements(const picture *p, wb_tensor *row, wb_tensor *column)
{
    wb_tensor *in_rows = wb_and(wb_ge(row, wb_scalar(0)),
                                wb_lt(row, wb_scalar((double)p->height)));
    wb_tensor *in_columns = wb_and(wb_ge(column, wb_scalar(0)),
                                   wb_lt(column, wb_scalar((double)p->width)));
    wb_tensor *inside = wb_and(in_rows, in_columns);
    row = wb_where(inside, row, wb_scalar(0));
    column = wb_where(inside, column, wb_scalar(0));
    if (!row || !column) return NULL;
    wb_tensor *first = wb_mul(wb_arange(p->n, p->index),
                              wb__literal((double)(p->height * p->width), p->index));
    wb_tensor *at = wb_mul(wb__as(row, p->index), wb__literal((double)p->width, p->index));
    at = wb_add(wb_add(at, wb__as(column, p->index)), wb_unsqueeze(wb_unsqueeze(first, 1), 2));
    return wb_take(p->rows, wb_where(inside, at, wb__literal(-1, p->index)));
}

/* Returns x rounded, halves to even. */
static wb_tensor *sampling_rounded(wb_tensor *x)
{
    wb_tensor *up = wb_floor(wb_add(x, wb_scalar(0.5)));
    wb_tensor *odd = wb_sub(up, wb_mul(wb_floor(wb_mul(up, wb_scalar(0.5))), wb_scalar(2)));
    return wb_sub(up, wb_where(wb_eq(wb_sub(up, x), wb_scalar(0.5)), odd, wb_scalar(0)));
}

static wb_tensor *sampling_interpolated(const picture *p, wb_tensor *row, wb_tensor *column)
{
    wb_tensor *above = wb_stop_gradient(wb_floor(row)), *left = wb_stop_gradient(wb_floor(column));
    wb_tensor *of_row[2], *of_column[2], *y = NULL;
    of_row[1] = wb_sub(row, above);
    of_column[1] = wb_sub(column, left);
    of_row[0] = wb_sub(wb_scalar(1), of_row[1]);
    of_column[0] = wb_sub(wb_scalar(1), of_column[1]);
    for (int i = 0; i < 4; i++) {
        wb_tensor *v = sampling_elements(p, i / 2 ? wb_add(above, wb_scalar(1)) : above,
                                         i % 2 ? wb_add(left, wb_scalar(1)) : left);
        v = wb_mul(v, wb_unsqueeze(wb_mul(of_row[i / 2], of_column[i % 2]), -1));
        y = i ? wb_add(y, v) : v;
    }
    return y;
}

/* Returns x at positions between its elements, [N or 1, H', W'], or with `nearest` at the nearest
 * elements.  All are of the dtype in which sums are computed. */
static wb_tensor *sampling_at(wb_tensor *x, wb_tensor *row, wb_tensor *column, bool nearest)
{
    picture p;
    if (!row || !column || !sampling_read_picture(&p, x)) return NULL;
    wb_tensor *y = nearest ? sampling_elements(&p, sampling_rounded(wb_stop_gradient(row)),
                                               sampling_rounded(wb_stop_gradient(column)))
                           : sampling_interpolated(&p, row, column);
    return y ? wb_permute_array(y, 4, (int64_t[]){0, 3, 1, 2}) : NULL;
}

static bool is_picture(const char *what, const wb_tensor *x)
{
    if (!wb__floating(what, x)) return false;
    if (x->ndim == 4 && x->dims[2] && x->dims[3]) return true;
    return !wb__fail(WB_ERROR_SHAPE, "%s: expects [N,C,H,W] with elements, got %s", what,
                     wb_describe(x));
}

/* ---- grids ----------------------------------------------------------------------------------- */

/* Returns coordinate `at` of the grid, 0 or 1, as positions among n elements. */
static wb_tensor *sampling_positions(wb_tensor *grid, int at, int64_t n, const wb_sample_options *o)
{
    wb_tensor *p = wb_squeeze(wb_slice(grid, -1, at, at + 1), -1);
    const double last = (double)(n - 1);
    p = wb_add(p, wb_scalar(1));
    if (!o->align_corners)
        p = wb_sub(wb_mul(p, wb_scalar((double)n / 2)), wb_scalar(0.5));
    else p = wb_mul(p, wb_scalar(last / 2));
    return o->border ? wb_clamp(p, wb_scalar(0), wb_scalar(last)) : p;
}

wb_tensor *wb_grid_sample_with(wb_tensor *x, wb_tensor *grid, const wb_sample_options *given)
{
    static const char what[] = "grid_sample";
    wb_sample_options o;
    if (!is_picture(what, x) || !wb__floating(what, grid) || !wb__one_device(what, x, grid) ||
        !wb__read_options(what, wb_sample_options, &o, given, NULL))
        return NULL;
    if (o.row != WB_DEFAULT || o.column != WB_DEFAULT)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .row and .column are options of wb_imrotate",
                             what);
    if (grid->ndim != 4 || grid->dims[3] != 2 || grid->dims[0] != x->dims[0])
        return wb__fail_null(WB_ERROR_SHAPE, "%s: the grid of %s is %s; expects [%lld,H',W',2]",
                             what, wb_describe(x), wb_describe(grid), (long long)x->dims[0]);
    if (grid->dtype != x->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(x),
                             wb_describe(grid));
    const wb_dtype t = (wb_dtype)x->dtype;
    const wb__frame f = wb__frame_begin();
    wb_tensor *wide = wb__wide(x), *at = wb__wide(grid);
    wb_tensor *row = sampling_positions(at, 1, x->dims[2], &o),
              *column = sampling_positions(at, 0, x->dims[3], &o);
    wb_tensor *y = wide ? sampling_at(wide, row, column, o.nearest) : NULL;
    return wb__frame_end(f, y ? wb__as(y, t) : NULL);
}

/* ---- rotations ------------------------------------------------------------------------------- */

/* Sets *s to the sine and *c to the cosine, which are whole numbers for quarter turns. */
static void sampling_sine_cosine(double angle, double *s, double *c)
{
    const double near = 1e-7;           /* pi / 2 as a float is 4e-8 away from pi / 2 */
    *s = sin(angle);
    *c = cos(angle);
    if (fabs(*s) < near) *s = 0, *c = *c < 0 ? -1 : 1;
    else if (fabs(*c) < near) *c = 0, *s = *s < 0 ? -1 : 1;
}

wb_tensor *wb_imrotate_with(wb_tensor *x, double angle, const wb_sample_options *given)
{
    static const char what[] = "imrotate";
    wb_sample_options o;
    double s, c;
    if (!is_picture(what, x) || !wb__read_options(what, wb_sample_options, &o, given, NULL))
        return NULL;
    if (o.border || !o.align_corners)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: .border and .align_corners are options of "
                             "wb_grid_sample", what);
    const double height = (double)x->dims[2], width = (double)x->dims[3];
    const double middle = wb__or(o.row, floor(height / 2));
    const double centre = wb__or(o.column, floor(width / 2));
    if (!isfinite(angle) || !isfinite(middle) || !isfinite(centre))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: angle %g around row %g, column %g: they are "
                             "finite", what, angle, middle, centre);
    const wb_dtype t = (wb_dtype)x->dtype, wide = wb__computed_in(t);
    const wb__frame f = wb__frame_begin();
    sampling_sine_cosine(angle, &s, &c);
    wb_tensor *i = wb_sub(wb_arange(x->dims[2], wide), wb_scalar(middle));
    wb_tensor *j = wb_sub(wb_arange(x->dims[3], wide), wb_scalar(centre));
    i = i ? wb_reshape_array(i, 3, (int64_t[]){1, x->dims[2], 1}) : NULL;
    wb_tensor *row = wb_add(wb_mul(j, wb_scalar(s)), wb_mul(i, wb_scalar(c)));
    wb_tensor *column = wb_sub(wb_mul(j, wb_scalar(c)), wb_mul(i, wb_scalar(s)));
    row = wb_add(row, wb_scalar(middle));
    column = wb_add(column, wb_scalar(centre));
    if (!o.nearest) {                   /* positions outside have no neighbour inside */
        wb_tensor *in_rows = wb_and(wb_ge(row, wb_scalar(0)), wb_le(row, wb_scalar(height - 1)));
        row = wb_where(in_rows, row, wb_scalar(-2));
        wb_tensor *in_columns = wb_and(wb_ge(column, wb_scalar(0)),
                                       wb_le(column, wb_scalar(width - 1)));
        column = wb_where(in_columns, column, wb_scalar(-2));
    }
    wb_tensor *all = wb__wide(x), *y = all ? sampling_at(all, row, column, o.nearest) : NULL;
    return wb__frame_end(f, y ? wb__as(y, t) : NULL);
}
