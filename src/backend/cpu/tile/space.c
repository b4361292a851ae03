/* The outer, row and column loops of a tile program, and the views along these loops.  Dimensions
 * of size 1 are dropped.  In each view, adjacent dimensions are merged if the strides allow it.
 * Dimensions move from one loop to another if the program allows it. */
#include "backend/cpu/tile/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int n;                              /* number of dimensions */
    int64_t dim[WB_MAX_DIMS];
    int index[WB_MAX_DIMS];             /* index in the engine's space */
} tile_space_loop;

static void tile_space_append(tile_space_loop *to, const tile_space_loop *from)
{
    for (int i = 0; i < from->n; i++) {
        to->dim[to->n] = from->dim[i];
        to->index[to->n++] = from->index[i];
    }
}

/* Sorts the dimensions by the guide's strides, largest outermost: its order in memory. */
static void tile_space_sort(tile_space_loop *l, const wb__view *guide)
{
    for (int i = 1; i < l->n; i++) {
        for (int j = i; j > 0; j--) {
            const int64_t inner = llabs(guide->strides[l->index[j]]);
            const int64_t outer = llabs(guide->strides[l->index[j - 1]]);
            if (!inner || inner <= outer) break;
            const int64_t dim = l->dim[j];
            const int index = l->index[j];
            l->dim[j] = l->dim[j - 1], l->index[j] = l->index[j - 1];
            l->dim[j - 1] = dim, l->index[j - 1] = index;
        }
    }
}

/* Sets dim and stride of a view along a loop; merges adjacent dimensions if their strides allow. */
static void tile_space_walk(tile_view *v, int group, const tile_space_loop *l, const wb__view *from)
{
    const int at = group ? v->at[group - 1] + v->n[group - 1] : 0;
    int n = 0;
    v->varies[group] = false;
    for (int i = 0; i < l->n; i++) {
        const int64_t dim = l->dim[i], stride = from->strides[l->index[i]];
        if (stride) v->varies[group] = true;
        if (n && v->stride[at + n - 1] == stride * dim) {
            v->dim[at + n - 1] *= dim;
            v->stride[at + n - 1] = stride;
        } else {
            v->dim[at + n] = dim;
            v->stride[at + n++] = stride;
        }
    }
    if (!n) v->dim[at] = 1, v->stride[at] = 0, n = 1;
    v->at[group] = at;
    v->n[group] = n;
}

/* Returns how many innermost dimensions of the loop all views can merge into one. */
static int tile_space_mergeable(const tile_space_loop *l, const wb__view *const *views, int count)
{
    int n = l->n ? 1 : 0;
    for (int i = l->n - 1; i > 0; i--, n++) {
        for (int k = 0; k < count; k++) {
            const int64_t *s = views[k]->strides;
            if (s[l->index[i - 1]] != s[l->index[i]] * l->dim[i]) return n;
        }
    }
    return n;
}

void tile_make_space(tile_segment *s, const wb__space *space, const wb__view *const *views,
                     int count, const bool *is_target, tile_needs needs)
{
    tile_space_loop loops[GROUPS] = {{0}, {0}, {0}};
    const int outer_dims = space->ndim - space->row_dims - space->col_dims;
    for (int i = 0; i < space->ndim; i++) {
        tile_space_loop *l = &loops[i < outer_dims                     ? OUTER
                                    : i < outer_dims + space->row_dims ? ROWS : COLS];
        if (space->dims[i] == 1) continue;
        l->dim[l->n] = space->dims[i];
        l->index[l->n++] = i;
    }
    if (!needs.reduces_rows) {
        tile_space_loop all = loops[OUTER];
        tile_space_append(&all, &loops[ROWS]);
        loops[ROWS] = all;
        loops[OUTER].n = 0;
    }
    const bool free_loops = !needs.reduces_rows && !needs.reduces_columns && !needs.stores_rows;
    if (free_loops) {
        tile_space_append(&loops[ROWS], &loops[COLS]);
        loops[COLS] = loops[ROWS];
        loops[ROWS].n = 0;
    }
    /* The dimensions of a loop are sorted by the strides of one view, the guide.  The guide is the
     * last view that is written.  If no view is written, or if rows are reduced, the guide is the
     * first view with a buffer. */
    const wb__view *guide = NULL;
    for (int k = 0; k < count; k++)
        if (views[k]->buffer >= 0 && (!guide || (is_target[k] && !needs.reduces_rows)))
            guide = views[k];
    if (guide && !needs.ordered_rows) tile_space_sort(&loops[ROWS], guide);
    if (guide && !needs.ordered_cols && !(free_loops && needs.ordered_rows))
        tile_space_sort(&loops[COLS], guide);
    const int inner = tile_space_mergeable(&loops[COLS], views, count);
    if (free_loops) {  /* columns are the innermost dimensions that all views can merge */
        loops[ROWS] = loops[COLS];
        loops[ROWS].n -= inner;
        tile_space_loop cols = {0};
        for (int i = loops[COLS].n - inner; i < loops[COLS].n; i++) {
            cols.dim[cols.n] = loops[COLS].dim[i];
            cols.index[cols.n++] = loops[COLS].index[i];
        }
        loops[COLS] = cols;
    }
    for (int g = 0; g < GROUPS; g++) {
        s->n[g] = 1;
        for (int i = 0; i < loops[g].n; i++) s->n[g] *= loops[g].dim[i];
    }
    s->run = 1;
    for (int i = loops[COLS].n - inner; i < loops[COLS].n; i++) s->run *= loops[COLS].dim[i];
    for (int k = 0; k < count; k++) {
        tile_view *v = &s->views[k];
        v->buffer = views[k]->buffer;
        v->dtype = views[k]->dtype;
        v->size = (int)wb__dtype_size(v->dtype);
        v->offset = views[k]->offset;
        for (int g = 0; g < GROUPS; g++) tile_space_walk(v, g, &loops[g], views[k]);
    }
}
