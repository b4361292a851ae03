/* Fills the gap of a concat, where launches are dear.
 *
 * The gradient of a slice is zero elsewhere, so it is a concat that its inputs do not cover.  Such
 * a concat would be filled with zeros first, and then each input copied into it.  If several inputs
 * leave one gap, zeros for the gap become one more input.  Then each input can be computed in its
 * place, and the zeros by the kernel of another input (groups.c).  A single input among zeros stays
 * as it is: the concat may become a view with a window (window.c). */
#include "engine/plan/stages.h"

#include <string.h>

enum { MOST_INPUTS = 64 };

/* Returns the only axis along which the inputs of the concat v are parts of it; -1: there are
 * several, or none. */
static int concat_axis(const wb__ir *ir, const wb__value *v)
{
    int axis = -1;
    for (int j = 0; j < v->n_in; j++)
        for (int i = 0; i < v->ndim; i++) {
            if (wb__ir_in(ir, v, j)->dims[i] == v->dims[i] || i == axis) continue;
            if (axis >= 0) return -1;
            axis = i;
        }
    return axis;
}

/* Returns where input j of the concat v begins along an axis. */
static int64_t gaps_start_of(const wb__ir *ir, const wb__value *v, int j, int axis)
{
    return ir->attrs[v->attr + j * v->ndim + axis];
}

/* Returns where the parts of v that follow one another from `at` on end. */
static int64_t gaps_end_from(const wb__ir *ir, const wb__value *v, int axis, int64_t at)
{
    for (bool more = true; more;) {
        more = false;
        for (int j = 0; j < v->n_in; j++) {
            const int64_t size = wb__ir_in(ir, v, j)->dims[axis];
            if (!size || gaps_start_of(ir, v, j, axis) != at) continue;
            at += size;
            more = true;
        }
    }
    return at;
}

/* Whether the parts of v leave one gap along an axis, from *at to *end. */
static bool find_gap(const wb__ir *ir, const wb__value *v, int axis, int64_t *at, int64_t *end)
{
    *at = gaps_end_from(ir, v, axis, 0);
    *end = v->dims[axis];
    for (int j = 0; j < v->n_in; j++) {
        const int64_t start = gaps_start_of(ir, v, j, axis);
        if (wb__ir_in(ir, v, j)->dims[axis] && start > *at) *end = WB__MIN(*end, start);
    }
    return *at < *end && gaps_end_from(ir, v, axis, *end) == v->dims[axis];
}

int wb__fill_gap(const wb__rewrite *w, int i)
{
    const wb__ir *from = w->from;
    const wb__value *v = &from->value[i];
    int in[MOST_INPUTS + 1];
    int64_t at, end, dims[WB_MAX_DIMS], attrs[(MOST_INPUTS + 1) * WB_MAX_DIMS];
    const bool several = v->n_in > 1 && v->n_in <= MOST_INPUTS;     /* one: see window.c */
    const int axis = v->size && several ? concat_axis(from, v) : -1, n = v->n_in;
    if (axis < 0 || !find_gap(from, v, axis, &at, &end)) return -1;
    for (int j = 0; j < n; j++) in[j] = w->of[from->inputs[v->in + j]].to;
    memcpy(attrs, from->attrs + v->attr, (size_t)v->n_attr * sizeof *attrs);
    memcpy(dims, v->dims, sizeof dims);
    dims[axis] = end - at;
    for (int k = 0; k < v->ndim; k++) attrs[n * v->ndim + k] = k == axis ? at : 0;
    in[n] = wb__ir_move(w->to, WB__OP_expand, wb__ir_literal(w->to, 0, (wb_dtype)v->dtype), v->ndim,
                        dims, 0, NULL);
    return wb__ir_make(w->to, *v, n + 1, in, (n + 1) * v->ndim, attrs);
}
