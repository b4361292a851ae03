/* Fused steps as kernels.  The kernels of a segment run in this order:
 *
 *   0. on GPUs, reductions along columns of few long rows, each row by several groups; the results
 *      are stored in the workspace or where they belong, and the kernels that follow load them
 *   1. all reductions along columns, if a reduction of rows (or an argmax of everything) depends on
 *      one; the results are stored in the workspace, and the kernels that follow load them
 *   2. reductions of rows, then reductions of everything, except those of step 4; if nothing else
 *      is left to do, the kernel that reduces rows also stores the elements
 *   3. stores; without step 1, the same kernels compute the reductions along columns that stores
 *      depend on.  Stores are behind all that they may overwrite.
 *   4. reductions of everything of which one depends on a reduction along columns: the kernels of
 *      step 3 have reduced each row for them, and stored the results in the workspace */
#include "backend/gpu/fused.h"

#include <string.h>

static int64_t fused_points_of(const wb__space *s, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= s->dims[d];
    return n;
}

/* Sets the dimensions of a loop (outer, rows or columns) without points to 1, except for the loop's
 * last dimension of size 0. */
static void normalise_empty(wb__space *s)
{
    const int outer = s->ndim - s->row_dims - s->col_dims;
    const int ends[4] = {0, outer, outer + s->row_dims, s->ndim};
    for (int g = 0; g < 3; g++) {
        if (fused_points_of(s, ends[g], ends[g + 1])) continue;
        int empty = ends[g];
        for (int d = ends[g]; d < ends[g + 1]; d++) {
            if (!s->dims[d]) empty = d;
            s->dims[d] = 1;
        }
        s->dims[empty] = 0;
    }
}

static void fused_program_free(wb__fuse_program *p)
{
    wb__free(p->instr);
    wb__free(p->views);
    wb__free(p->windows);
}

/* Returns the number of windows that n instructions have. */
static int count_windows(const wb__instr *instr, int n)
{
    int windows = 0;
    for (int i = 0; i < n; i++)
        if (instr[i].kind == WB__LOAD) windows = WB__MAX(windows, instr[i].a + 1);
    return windows;
}

/* Copies a segment, with space for n_instr further instructions and n_instr further views. */
static int copy_segment(const wb__fused *f, int segment, wb__fuse_program *p)
{
    const size_t capacity = (size_t)(2 * f->n_instr), views = (size_t)(f->n_views + f->n_instr);
    *p = (wb__fuse_program){.n_instr = f->n_instr, .n_views = f->n_views,
                            .n_windows = count_windows(f->instr, f->n_instr),
                            .space = f->spaces[segment]};
    p->instr = wb__alloc(capacity * sizeof *p->instr);
    p->views = wb__alloc(views * sizeof *p->views);
    p->windows = wb__alloc(((size_t)p->n_windows + 1) * sizeof *p->windows);
    if (!p->instr || !p->views || !p->windows) {
        fused_program_free(p);
        return WB_ERROR_MEMORY;
    }
    memcpy(p->instr, f->instr, (size_t)f->n_instr * sizeof *p->instr);
    if (f->n_views)
        memcpy(p->views, f->views + (size_t)segment * (size_t)f->n_views,
               (size_t)f->n_views * sizeof *p->views);
    for (int i = 0; i < f->n_instr && f->args; i++)
        p->instr[i].arg = f->args[segment * f->n_instr + i];
    if (p->n_windows) memcpy(p->windows, f->windows, (size_t)p->n_windows * sizeof *p->windows);
    for (int i = 0; i < f->n_instr; i++)
        if (f->instr[i].kind == WB__UNIFORM || f->instr[i].kind == WB__GAUSSIAN)
            p->views[f->instr[i].c].buffer = WB__NO_BUFFER;
    normalise_empty(&p->space);
    for (int i = 0; i < f->n_segments; i++)
        p->points += fused_points_of(&f->spaces[i], 0, f->spaces[i].ndim);
    return 0;
}

/* ---- splitting large spaces ------------------------------------------------------------------ */

/* Copies a program, restricted to the indices start to start + n - 1 of dimension d. */
static int fused_copy_piece(const wb__fuse_program *p, int d, int64_t start, int64_t n,
                            wb__fuse_program *piece)
{
    *piece = *p;
    piece->space.dims[d] = n;
    piece->instr = wb__alloc((size_t)(p->n_instr + 1) * sizeof *piece->instr);
    piece->views = wb__alloc((size_t)(p->n_views + 1) * sizeof *piece->views);
    piece->windows = wb__alloc(((size_t)p->n_windows + 1) * sizeof *piece->windows);
    if (!piece->instr || !piece->views || !piece->windows) {
        fused_program_free(piece);
        return WB_ERROR_MEMORY;
    }
    for (int i = 0; i < p->n_instr; i++) {
        wb__instr *in = &piece->instr[i];
        *in = p->instr[i];
        if (in->kind == WB__IOTA && in->arg == d) in->shift += in->scale * start;
    }
    for (int i = 0; i < p->n_views; i++) {
        piece->views[i] = p->views[i];
        piece->views[i].dims[d] = n;
        piece->views[i].offset += start * p->views[i].strides[d];
    }
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        if (in->kind != WB__LOAD || in->a < 0) continue;
        wb__window *w = &piece->windows[in->a];
        *w = p->windows[in->a];
        w->begin[d] -= start;
        const wb__view *v = &p->views[in->arg];
        piece->views[in->arg].offset = v->offset + wb__window_clip(w, d, n) * v->strides[d];
    }
    return 0;
}

static int fused_split_from(const wb__gpu_target *t, const wb__fuse_program *p, unsigned dims,
                            int64_t first, wb__piece_function *make, void *context)
{
    const int64_t all = fused_points_of(&p->space, 0, p->space.ndim);
    const int64_t most = t->max_points ? t->max_points : UINT32_MAX;
    int d = 0, e = 0;
    while (d < p->space.ndim && !(dims >> d & 1 && p->space.dims[d] > 1)) d++;
    if (all <= most || (d == p->space.ndim && all <= UINT32_MAX)) return make(t, p, first, context);
    if (d == p->space.ndim)
        return wb__fail(WB_ERROR_UNSUPPORTED, "a fused kernel over %lld elements that are one row,"
                        " or are reduced to one element; at most %u are supported", (long long)all,
                        UINT32_MAX);
    const int64_t size = p->space.dims[d], each = all / size, step = WB__MAX(most / each, 1);
    for (int64_t start = 0; start < size && !e; start += step) {
        wb__fuse_program piece;
        e = fused_copy_piece(p, d, start, WB__MIN(step, size - start), &piece);
        if (e) break;
        e = fused_split_from(t, &piece, dims,
                             first + start * fused_points_of(&p->space, d + 1, p->space.ndim), make,
                             context);
        fused_program_free(&piece);
    }
    return e;
}

int wb__fused_pieces(const wb__gpu_target *t, const wb__fuse_program *p, unsigned dims,
                     wb__piece_function *make, void *context)
{
    return fused_split_from(t, p, dims, 0, make, context);
}

/* ---- 0, 1: reductions along columns, into the workspace -------------------------------------- */

static wb__view fused_row_view(const wb__space *s, wb__reg reg, size_t at)
{
    wb__view v = {.dtype = wb__fuse_whole[reg], .buffer = WB__GPU_WORKSPACE, .ndim = s->ndim};
    v.offset = (int64_t)(at / wb__dtype_size(v.dtype));
    int64_t step = 1;
    for (int d = s->ndim - 1; d >= 0; d--) {
        v.dims[d] = s->dims[d];
        if (d >= s->ndim - s->col_dims) continue;
        v.strides[d] = step;
        step *= s->dims[d];
    }
    return v;
}

/* Replaces reduction i, along columns, by a load of its results from the view. */
static void load_results(wb__fuse_program *p, int i, int view)
{
    p->instr[i].kind = WB__LOAD;
    p->instr[i].arg = view;
    p->instr[i].a = -1;
}

/* Adds a view of the workspace, from byte *end on, for reduction i's results; returns its index. */
static int add_results(wb__fuse_program *p, int i, size_t *end)
{
    const int64_t rows = fused_points_of(&p->space, 0, p->space.ndim - p->space.col_dims);
    p->views[p->n_views] = fused_row_view(&p->space, (wb__reg)p->instr[i].reg, *end);
    *end = wb__aligned(*end + (size_t)WB__MAX(rows, 1) *
                              wb__dtype_size(p->views[p->n_views].dtype));
    return p->n_views++;
}

/* Adds an instruction that stores the results of reduction i in the workspace. */
static void fused_store_results(wb__fuse_program *p, int i, size_t *end)
{
    const int view = add_results(p, i, end);
    p->instr[p->n_instr++] = (wb__instr){.kind = WB__STORE, .reg = p->instr[i].reg,
                                         .level = WB__LEVEL_PER_ROW, .a = i, .b = -1, .c = -1,
                                         .dtype = (uint8_t)p->views[view].dtype, .arg = view};
}

/* Adds kernels that store the needed reductions along columns in the workspace, and turns the
 * instructions of these reductions into loads.  *end: bytes of workspace in use, before and
 * after. */
static int reduce_to_workspace(const wb__gpu_target *t, wb__fuse_program *p, const bool *needed,
                               bool *stores, wb__gpu_work *work, size_t *end)
{
    const int n = p->n_instr;
    const int64_t rows = fused_points_of(&p->space, 0, p->space.ndim - p->space.col_dims);
    for (int i = 0; i < n; i++) {
        if (p->instr[i].kind != WB__REDUCE_COLUMNS || !needed[i]) continue;
        stores[p->n_instr] = true;
        fused_store_results(p, i, end);
    }
    work->workspace = WB__MAX(work->workspace, *end);
    const int e = rows ? wb__fused_rows(t, p, stores, work) : 0;
    for (int i = n; i < p->n_instr; i++) {
        load_results(p, p->instr[i].a, p->instr[i].arg);
        stores[i] = false;
    }
    p->n_instr = n;
    return e;
}

/* Whether the rows are long, and so few that a group for each would leave most of a GPU idle. */
static bool has_few_long_rows(const wb__gpu_target *t, const wb__space *s)
{
    enum { LONG = 16384, SOME_PROCESSORS = 64 };
    const int64_t rows = fused_points_of(s, 0, s->ndim - s->col_dims);
    const int processors = t->processors ? t->processors : SOME_PROCESSORS;
    return !t->in_turn && rows && rows <= 2 * processors
        && fused_points_of(s, s->ndim - s->col_dims, s->ndim) >= LONG;
}

/* Whether an operand of instruction i depends on a reduction along columns.  depends[j]: whether
 * an instruction before i is such a reduction, or depends on one. */
static bool depends_on(const wb__fuse_program *p, const bool *depends, int i)
{
    const wb__instr *in = &p->instr[i];
    if (wb__instr_is_source((wb__instr_kind)in->kind)) return false;
    return (in->a >= 0 && depends[in->a]) || (in->b >= 0 && depends[in->b])
        || (in->c >= 0 && depends[in->c]);
}

/* Sets the first byte of a view in its buffer, and the byte behind its last one. */
static void fused_span(const wb__view *v, int64_t *from, int64_t *to)
{
    const int64_t size = (int64_t)wb__dtype_size(v->dtype);
    *from = *to = v->offset;
    for (int d = 0; d < v->ndim; d++)
        *(v->strides[d] < 0 ? from : to) += v->strides[d] * (v->dims[d] - 1);
    *from *= size;
    *to = (*to + 1) * size;
}

static bool may_overlap(const wb__view *a, const wb__view *b)
{
    int64_t from[2], to[2];
    fused_span(a, &from[0], &to[0]);
    fused_span(b, &from[1], &to[1]);
    return a->buffer == b->buffer && from[0] < to[1] && from[1] < to[0];
}

/* Finds a store of reduction i in whose view the reduction may store its results itself: one value
 * for each row, of the register's dtype, in memory that nothing else of p accesses.  The store
 * becomes a load that nothing needs.  Returns the index of the view; -1: there is no such store. */
static int fused_find_direct_store(wb__fuse_program *p, int i)
{
    for (int j = i + 1; j < p->n_instr; j++) {
        const wb__instr *in = &p->instr[j];
        if (in->kind != WB__STORE || in->a != i) continue;
        const int found = in->arg;
        const wb__view *v = &p->views[found];
        bool alone = !wb__fuse_varies(p, v) && v->dtype == wb__fuse_whole[p->instr[i].reg];
        for (int k = 0; k < p->n_views; k++) alone &= k == found || !may_overlap(&p->views[k], v);
        if (!alone) continue;
        load_results(p, j, found);
        return found;
    }
    return -1;
}

/* Adds the kernels of those reductions along columns in p that depend on no other such reductions,
 * as reductions of rows: the columns of p are the rows of `turned`, which has space for a copy of
 * p.  In p these reductions become loads of their results; *end as in reduce_to_workspace.  *n: the
 * number of these reductions. */
static int reduce_by_groups(const wb__gpu_target *t, wb__fuse_program *p, wb__fuse_program *turned,
                            bool *depends, wb__gpu_work *work, size_t *end, int *n)
{
    wb__instr *copy = turned->instr;
    *n = 0;
    for (int i = 0; i < p->n_instr; i++) {
        const bool columns = p->instr[i].kind == WB__REDUCE_COLUMNS;
        const bool waits = depends_on(p, depends, i);
        depends[i] = waits || columns;
        copy[i] = p->instr[i];
        if (copy[i].kind == WB__REDUCE_ROWS) copy[i].kind = WB__STORE;      /* not here */
        if (!columns || waits) continue;
        const int stored = fused_find_direct_store(p, i);
        copy[i].kind = WB__REDUCE_ROWS;
        copy[i].arg = stored >= 0 ? stored : add_results(p, i, end);
        ++*n;
    }
    *turned = *p;
    turned->instr = copy;
    turned->space.row_dims = p->space.col_dims;
    turned->space.col_dims = 0;
    work->workspace = WB__MAX(work->workspace, *end);
    const int e = *n ? wb__fused_reductions(t, turned, WB__REDUCE_ROWS, *end, NULL, work) : 0;
    for (int i = 0; i < p->n_instr && *n; i++)
        if (p->instr[i].kind == WB__REDUCE_COLUMNS && copy[i].kind == WB__REDUCE_ROWS)
            load_results(p, i, copy[i].arg);
    return e;
}

static int reduce_long_rows(const wb__gpu_target *t, wb__fuse_program *p, wb__gpu_work *work,
                            size_t *end)
{
    const size_t size = (size_t)p->n_instr + 1;
    wb__fuse_program turned = {.instr = wb__alloc(size * sizeof *turned.instr)};
    bool *depends = wb__alloc_zero(size, sizeof *depends);
    int e = turned.instr && depends ? 0 : WB_ERROR_MEMORY, n = 1;
    while (!e && n) e = reduce_by_groups(t, p, &turned, depends, work, end, &n);
    wb__free(turned.instr);
    wb__free(depends);
    return e;
}

/* ---- 3: stores ------------------------------------------------------------------------------- */

/* Whether instruction i, a store, stores one value per row of several columns. */
static bool stores_row(const wb__fuse_program *p, int i)
{
    const wb__space *s = &p->space;
    return fused_points_of(s, s->ndim - s->col_dims, s->ndim) != 1 &&
           !wb__fuse_varies(p, &p->views[p->instr[i].arg]);
}

/* Whether no load reads memory that a store of one value per row writes.  An item of the row may
 * then store that value while others still load. */
static bool rows_are_alone(const wb__fuse_program *p, const bool *stores)
{
    for (int i = 0; i < p->n_instr; i++)
        for (int j = 0; j < p->n_instr && stores[i] && stores_row(p, i); j++)
            if (p->instr[j].kind == WB__LOAD &&
                may_overlap(&p->views[p->instr[j].arg], &p->views[p->instr[i].arg]))
                return false;
    return true;
}

/* Adds kernels for stores that depend on no reductions.  Stores of one value per row are done by
 * the first item of the row, or have a kernel of their own, with one item per row. */
static int fused_store_each(const wb__gpu_target *t, const wb__fuse_program *p, bool *stores,
                            wb__gpu_work *work)
{
    const int64_t cols = fused_points_of(&p->space, p->space.ndim - p->space.col_dims,
                                         p->space.ndim);
    wb__fuse_program line = *p;
    bool full = false, row = false;
    int e = 0;
    for (int i = 0; i < p->n_instr; i++) {
        if (!stores[i]) continue;
        if (stores_row(p, i)) row = true;
        else full = true;
    }
    if (full && row && cols && rows_are_alone(p, stores)) return wb__fused_each(t, p, stores, work);
    line.space.ndim -= line.space.col_dims;
    line.space.col_dims = 0;
    for (int turn = 0; turn < 2 && !e; turn++) {
        if (!(turn ? row : full) || (!turn && !cols)) continue;
        bool *some = wb__alloc_zero((size_t)p->n_instr, sizeof *some);
        if (!some) return WB_ERROR_MEMORY;
        for (int i = 0; i < p->n_instr; i++) some[i] = stores[i] && turn == stores_row(p, i);
        e = wb__fused_each(t, turn ? &line : p, some, work);
        wb__free(some);
    }
    return e;
}

/* ---- segments -------------------------------------------------------------------------------- */

static bool fused_has_kind(const wb__fuse_program *p, const bool *among, wb__instr_kind kind)
{
    for (int i = 0; i < p->n_instr; i++)
        if ((!among || among[i]) && p->instr[i].kind == kind) return true;
    return false;
}

/* Sets the marks in `needed`: the stores if by_stores is true, else the reductions that write, and
 * all instructions on which these depend. */
static void mark_written(const wb__fuse_program *p, bool *needed, bool by_stores)
{
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr_kind kind = (wb__instr_kind)p->instr[i].kind;
        needed[i] = wb__instr_writes(kind) && (kind == WB__STORE) == by_stores;
    }
    wb__fuse_mark_needed(p, needed, true);
}

/* ---- 4: reductions of everything, first of rows ---------------------------------------------- */

static bool fused_is_float(uint8_t reg) { return reg == WB__REG_F32 || reg == WB__REG_F64; }

/* Whether some reduction of everything depends on a reduction along columns, all of them can be
 * computed from reductions of rows, and no reduction of rows depends on one along columns. */
static bool can_reduce_first(const wb__fuse_program *p, bool *needed)
{
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        if (in->kind == WB__REDUCE_ALL &&
            (in->op == WB__OP_argmax ||
             fused_is_float(in->reg) != fused_is_float(p->instr[in->a].reg)))
            return false;
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < p->n_instr; i++)
            needed[i] = p->instr[i].kind == (turn ? WB__REDUCE_ALL : WB__REDUCE_ROWS);
        wb__fuse_mark_needed(p, needed, true);
        if (fused_has_kind(p, needed, WB__REDUCE_COLUMNS) != turn) return false;
    }
    return true;
}

/* Turns the reductions of everything into reductions along columns, and adds instructions that
 * store their results in the workspace.  Returns their number; *end as in reduce_to_workspace. */
static int fused_reduce_first(wb__fuse_program *p, wb__gpu_work *work, size_t *end)
{
    const int n = p->n_instr;
    for (int i = 0; i < n; i++) {
        if (p->instr[i].kind != WB__REDUCE_ALL) continue;
        p->instr[i].kind = WB__REDUCE_COLUMNS;          /* does not use `arg`, the view */
        p->instr[i].level = WB__LEVEL_PER_ROW;
        fused_store_results(p, i, end);
    }
    work->workspace = WB__MAX(work->workspace, *end);
    return p->n_instr - n;
}

/* Adds the kernels that reduce the rows' results, which the last n instructions of p store. */
static int reduce_row_results(const wb__gpu_target *t, wb__fuse_program *p, int n, size_t end,
                              wb__gpu_work *work)
{
    const wb__space *s = &p->space;
    wb__fuse_program line = *p;
    line.points /= WB__MAX(fused_points_of(s, s->ndim - s->col_dims, s->ndim), 1);
    line.space.ndim -= s->col_dims;
    line.space.col_dims = 0;
    for (int i = p->n_instr - n; i < p->n_instr; i++) {
        const int row = p->instr[i].a, view = p->instr[i].arg;
        p->instr[i] = p->instr[row];
        p->instr[i].kind = WB__REDUCE_ALL;
        p->instr[i].a = row;
        load_results(p, row, view);
    }
    return wb__fused_reductions(t, &line, WB__REDUCE_ALL, end, NULL, work);
}

/* Marks in `stores` all stores of p.  False: one of them stores no number for each element, or p
 * has more left to do than stores, reductions of rows and reductions along columns. */
static bool mark_stores_of_elements(const wb__fuse_program *p, bool *stores)
{
    bool good = !fused_has_kind(p, NULL, WB__REDUCE_ALL) &&
                !fused_has_kind(p, NULL, WB__REDUCE_COLUMNS);
    for (int i = 0; i < p->n_instr && good; i++) {
        if (p->instr[i].kind != WB__STORE) continue;
        const wb__view *v = &p->views[p->instr[i].arg];
        for (int d = 0; d < v->ndim; d++) good &= v->strides[d] || p->space.dims[d] == 1;
    }
    for (int i = 0; i < p->n_instr; i++) stores[i] = good && p->instr[i].kind == WB__STORE;
    return good;
}

static int fused_segment(const wb__gpu_target *t, wb__fuse_program *p, bool *needed, bool *stores,
                         wb__gpu_work *work)
{
    const wb__space *s = &p->space;
    const int64_t rows = fused_points_of(s, 0, s->ndim - s->col_dims);
    const int64_t groups = fused_points_of(s, 0, s->ndim - s->row_dims - s->col_dims)
        * fused_points_of(s, s->ndim - s->col_dims, s->ndim);
    size_t end = 0;
    int e = 0;
    if (wb__fuse_has_products(p, NULL) &&
        (fused_has_kind(p, NULL, WB__REDUCE_COLUMNS) || fused_has_kind(p, NULL, WB__REDUCE_ROWS) ||
         fused_has_kind(p, NULL, WB__REDUCE_ALL)))
        return wb__fail(WB_ERROR_UNSUPPORTED, "a fused kernel with products and reductions");
    if (has_few_long_rows(t, s) && fused_has_kind(p, NULL, WB__REDUCE_COLUMNS))
        e = reduce_long_rows(t, p, work, &end);
    if (e) return e;
    const int firsts = can_reduce_first(p, needed) ? fused_reduce_first(p, work, &end) : 0;
    mark_written(p, needed, false);
    memset(stores, 0, (size_t)p->n_instr * sizeof *stores);
    if (fused_has_kind(p, needed, WB__REDUCE_COLUMNS)) {
        bool *kept = wb__alloc_zero((size_t)(2 * p->n_instr), sizeof *kept);
        if (!kept) return WB_ERROR_MEMORY;
        for (int i = 0; i < p->n_instr; i++) needed[i] |= p->instr[i].kind == WB__REDUCE_COLUMNS;
        e = reduce_to_workspace(t, p, needed, kept, work, &end);
        wb__free(kept);
    }
    if (!e && groups && fused_has_kind(p, NULL, WB__REDUCE_ROWS)) {
        const bool beside = rows && mark_stores_of_elements(p, stores);
        e = wb__fused_reductions(t, p, WB__REDUCE_ROWS, end, beside ? stores : NULL, work);
    }
    if (!e && fused_has_kind(p, NULL, WB__REDUCE_ALL))
        e = wb__fused_reductions(t, p, WB__REDUCE_ALL, end, NULL, work);
    mark_written(p, needed, true);
    bool left = false;
    for (int i = 0; i < p->n_instr; i++) {
        stores[i] = p->instr[i].kind == WB__STORE && !stores[i];
        left |= stores[i];
    }
    if (!e && rows && left)
        e = fused_has_kind(p, needed, WB__REDUCE_COLUMNS) ? wb__fused_rows(t, p, stores, work)
                                                          : fused_store_each(t, p, stores, work);
    return e || !firsts ? e : reduce_row_results(t, p, firsts, end, work);
}

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work)
{
    const size_t n = (size_t)(2 * fused->n_instr + 1);
    bool *needed = wb__alloc_zero(2 * n, sizeof *needed);
    int e = needed ? 0 : WB_ERROR_MEMORY;
    work->impl = "nothing to do";
    for (int s = 0; s < fused->n_segments && !e; s++) {
        wb__fuse_program p;
        if ((e = copy_segment(fused, s, &p))) break;
        const int before = work->n;
        e = fused_segment(t, &p, needed, needed + n, work);
        for (int i = before; i < work->n; i++) work->launch[i].segment = s;
        fused_program_free(&p);
    }
    wb__free(needed);
    return e;
}
