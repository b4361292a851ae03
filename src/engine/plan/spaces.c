/* Chooses the space of a fused group, [outer][rows][columns], and finds the values that fit into
 * it. */
#include "engine/plan/stages.h"

#include <string.h>

/* Whether v has one number for each row: size 1 along the columns, and the size of the space along
 * all other dimensions. */
static bool is_per_row(const wb__group *g, const wb__value *v)
{
    if (v->ndim != g->ndim || g->col_dims < 0) return false;
    for (int i = 0; i < g->ndim; i++)
        if (v->dims[g->axis[i]] != (i < g->ndim - g->col_dims ? g->dims[g->axis[i]] : 1))
            return false;
    return true;
}

void wb__space_of(wb__group *g, const wb__value *v)
{
    g->ndim = v->ndim;
    g->layout = (wb__layout)v->layout;
    memcpy(g->dims, v->dims, sizeof v->dims);
    for (int i = 0; i < v->ndim; i++) g->axis[i] = wb__layout_axis(g->layout, i);
}

/* Returns which dimensions of a space with `cols` column dimensions a reduction reduces.  `mask`
 * has a bit for each reduced axis of the operand x. */
static wb__reduction spaces_reduced_part(const wb__group *g, const wb__value *x, unsigned mask,
                                         int cols)
{
    bool in_cols = true, all_cols = true, in_rows = true, all_rows = true;
    int outer = g->outer_dims;
    for (int i = 0; i < g->ndim; i++) {
        int axis = g->axis[i];
        if (x->dims[axis] == 1) continue;
        bool reduced = mask >> axis & 1;
        if (i < g->ndim - cols) {
            in_cols &= !reduced;
            all_rows &= reduced || i < outer;
            in_rows &= !(reduced && i < outer);
        } else {
            all_cols &= reduced;
            in_rows &= !reduced;
        }
    }
    if (in_cols && all_cols) return WB__REDUCES_COLUMNS;
    if (in_rows && all_rows) return WB__REDUCES_ROWS;
    return WB__NO_REDUCTION;
}

wb__reduction wb__space_reduction(const wb__group *g, const wb__values *s, const wb__value *v,
                                  int *cols)
{
    const wb__value *x = wb__value_at(s, wb__input(s, v, 0));
    const unsigned mask = (unsigned)s->ir.attrs[v->attr];
    const bool is_argmax = v->op == WB__OP_argmax;
    bool everything = true;
    for (int i = 0; i < x->ndim; i++) everything &= x->dims[i] == 1 || mask >> i & 1;
    *cols = g->col_dims;
    if (everything && !is_argmax && !g->outer_dims) return WB__REDUCES_ALL;
    const bool free = g->col_dims < 0;
    for (int n = free ? 0 : g->col_dims; n <= (free ? g->ndim : g->col_dims); n++) {
        const wb__reduction f = spaces_reduced_part(g, x, mask, n);
        if (f == WB__NO_REDUCTION || (is_argmax && f != WB__REDUCES_COLUMNS)) continue;
        *cols = n;
        return f;
    }
    return WB__NO_REDUCTION;
}

bool wb__reduces_columns(const wb__values *s, const wb__value *v)
{
    const wb__value *x = wb__value_at(s, wb__input(s, v, 0));
    const unsigned mask = (unsigned)s->ir.attrs[v->attr];
    bool rest = false, seen = false;
    for (int i = 0; i < x->ndim; i++) {
        if (x->dims[i] == 1) continue;
        const bool reduced = mask >> i & 1;
        if (seen && !reduced) return false;
        seen |= reduced;
        rest |= !reduced;
    }
    return rest && x->layout != WB__CHANNELS_LAST;
}

static bool has_elements(const wb__group *g)
{
    for (int i = 0; i < g->ndim; i++)
        if (!g->dims[i]) return false;
    return true;
}

/* Whether the reduction v fits into g's space; sets *cols as wb__space_reduction does. */
static bool spaces_fits_reduction(const wb__group *g, const wb__values *s, const wb__value *v,
                                  int *cols)
{
    const wb__value *x = wb__value_at(s, wb__input(s, v, 0));
    const wb__reduction reduction = wb__space_reduction(g, s, v, cols);
    if (wb__space_is(g, x)) return reduction != WB__NO_REDUCTION;
    /* x has one number for each row.  A reduction over the whole space reads it once for each
     * column, which changes no maximum or minimum unless the space is empty. */
    return (v->op == WB__OP_max || v->op == WB__OP_min) && is_per_row(g, x) && has_elements(g) &&
           reduction == WB__REDUCES_ALL;
}

/* Moves the axes in `mask` to the end of the space, where they become the columns. */
static void spaces_make_columns(wb__group *g, unsigned mask)
{
    int n = 0, axis[WB_MAX_DIMS];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->ndim; i++)
            if ((mask >> g->axis[i] & 1) == (unsigned)pass) axis[n++] = g->axis[i];
    memcpy(g->axis, axis, sizeof axis);
    for (g->col_dims = 0; mask; mask &= mask - 1) g->col_dims++;
}

void wb__space_turn(wb__group *g, const wb__values *s, const wb__value *v)
{
    const unsigned mask = (unsigned)s->ir.attrs[v->attr];
    int last = g->ndim - 1, cols = 0;
    while (last > 0 && g->dims[g->axis[last]] == 1) last--;
    if (g->turns && g->col_dims < 0 && !g->outer_dims && v->op != WB__OP_argmax && last > 0 &&
        mask >> g->axis[last] & 1 && wb__space_is(g, wb__value_at(s, wb__input(s, v, 0))) &&
        wb__space_reduction(g, s, v, &cols) == WB__NO_REDUCTION)
        spaces_make_columns(g, mask);
}

bool wb__space_admit(wb__group *g, const wb__values *s, const wb__value *v)
{
    const wb__op_class class = wb__ops[v->op].class;
    if (class == WB__REDUCE && !g->products) wb__space_turn(g, s, v);
    int cols = g->col_dims;
    bool fits = wb__space_is(g, v) || is_per_row(g, v);
    switch (class) {
    case WB__REDUCE: fits = !g->products && spaces_fits_reduction(g, s, v, &cols); break;
    case WB__LIBRARY:                       /* a product joins if it has the shape of the space */
        fits = wb__space_is(g, v) && !g->reduces && g->products++ < WB__MOST_PRODUCTS;
        break;
    default: break;
    }
    if (fits) g->col_dims = cols;
    return fits;
}

/* Sets the space of group g for the reduction v, the first value of the group.  If the reduced axes
 * are adjacent and in the middle, they become the rows, and the axes before them outer dimensions.
 * Scattered reduced axes, and those of an argmax, are moved to the end and become the columns. */
void wb__space_of_reduction(wb__group *g, const wb__values *s, const wb__value *v)
{
    const wb__value *x = wb__value_at(s, wb__input(s, v, 0));
    const unsigned mask = (unsigned)s->ir.attrs[v->attr];
    wb__space_of(g, x);
    if (wb__space_reduction(g, s, v, &g->col_dims) != WB__NO_REDUCTION) return;
    int first = g->ndim, last = -1;
    for (int i = 0; i < g->ndim; i++)
        if (mask >> g->axis[i] & 1) {
            first = WB__MIN(first, i);
            last = i;
        }
    bool together = v->op != WB__OP_argmax;
    for (int i = first; i <= last; i++)
        together &= mask >> g->axis[i] & 1 || x->dims[g->axis[i]] == 1;
    if (together) {
        g->outer_dims = first;
        g->col_dims = g->ndim - 1 - last;
        return;
    }
    spaces_make_columns(g, mask);
}
