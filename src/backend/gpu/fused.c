/* Fused programs as kernels: each segment is taken apart into parts of one shape.
 *
 *   1. folds along columns that folds of rows or of everything need: numbers of rows, kept in the
 *      workspace and loaded by what follows
 *   2. folds of rows, folds of everything
 *   3. stores, last, since they may overwrite what the others read; those that need folds along
 *      columns make them */
#include "backend/gpu/fused.h"

#include <string.h>

static int64_t product(const wb__space *s, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= s->dims[d];
    return n;
}

/* Where a loop is empty, its last empty dimension says so (what is empty steps along it) and the
 * others are 1. */
static void calm_empty(wb__space *s)
{
    const int outer = s->ndim - s->row_dims - s->col_dims;
    const int ends[4] = {0, outer, outer + s->row_dims, s->ndim};
    for (int g = 0; g < 3; g++) {
        if (product(s, ends[g], ends[g + 1])) continue;
        int empty = ends[g];
        for (int d = ends[g]; d < ends[g + 1]; d++) {
            if (!s->dims[d]) empty = d;
            s->dims[d] = 1;
        }
        s->dims[empty] = 0;
    }
}

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

static void part_free(wb__part *p)
{
    wb__free(p->instr);
    wb__free(p->views);
}

/* A segment, with room for as many further instructions and views as it has folds. */
static int part_of(const wb__fused *f, int segment, wb__part *p)
{
    const size_t room = (size_t)(2 * f->n_instr), views = (size_t)(f->n_views + f->n_instr);
    *p = (wb__part){.n_instr = f->n_instr, .n_views = f->n_views, .space = f->spaces[segment]};
    p->instr = wb__alloc(room * sizeof *p->instr);
    p->views = wb__alloc(views * sizeof *p->views);
    if (!p->instr || !p->views) {
        part_free(p);
        return WB_ERROR_MEMORY;
    }
    memcpy(p->instr, f->instr, (size_t)f->n_instr * sizeof *p->instr);
    if (f->n_views)
        memcpy(p->views, f->views + (size_t)segment * (size_t)f->n_views,
               (size_t)f->n_views * sizeof *p->views);
    for (int i = 0; i < f->n_instr; i++)
        if (f->instr[i].kind == WB__UNIFORM || f->instr[i].kind == WB__GAUSSIAN)
            p->views[f->instr[i].c].buffer = WB__NO_BUFFER;
    calm_empty(&p->space);
    return 0;
}

/* ---- 1: numbers of rows in the workspace ----------------------------------------------------- */

static wb__view row_view(const wb__space *s, wb__reg reg, size_t at)
{
    static const wb_dtype whole[] = {WB_F32, WB_F64, WB_I32, WB_I64};
    wb__view v = {.dtype = whole[reg], .buffer = WB__GPU_WORKSPACE, .ndim = s->ndim};
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

/* Makes the wanted folds along columns and turns them into loads, which where there are no rows nobody
 * runs.  *end: of what they take. */
static int keep_rows(const wb__gpu_target *t, wb__part *p, const bool *want, bool *stores,
                     wb__gpu_work *work, size_t *end)
{
    const int n = p->n_instr;
    const int64_t rows = product(&p->space, 0, p->space.ndim - p->space.col_dims);
    for (int i = 0; i < n; i++) {
        if (p->instr[i].kind != WB__FOLD_COLS || !want[i]) continue;
        const wb__view v = row_view(&p->space, (wb__reg)p->instr[i].reg, *end);
        *end = aligned(*end + (size_t)WB__MAX(rows, 1) * wb__dtype_size(v.dtype));
        p->views[p->n_views] = v;
        stores[p->n_instr] = true;
        p->instr[p->n_instr++] = (wb__instr){.kind = WB__STORE, .reg = p->instr[i].reg,
                                             .level = WB__LEVEL_ROW, .dtype = (uint8_t)v.dtype,
                                             .a = i, .b = -1, .c = -1, .arg = p->n_views++};
    }
    work->workspace = WB__MAX(work->workspace, *end);
    const int e = rows ? wb__fused_rows(t, p, stores, work) : 0;
    for (int i = n; i < p->n_instr; i++) {
        wb__instr *fold = &p->instr[p->instr[i].a];
        fold->kind = WB__LOAD;
        fold->arg = p->instr[i].arg;
        fold->a = -1;
        stores[i] = false;
    }
    p->n_instr = n;
    return e;
}

/* ---- 3: stores ------------------------------------------------------------------------------- */

/* Without folds: numbers of rows by a kernel of their own, one item a row, for no item may read
 * what another one writes. */
static int store_each(const wb__gpu_target *t, const wb__part *p, bool *stores, wb__gpu_work *work)
{
    const int64_t cols = product(&p->space, p->space.ndim - p->space.col_dims, p->space.ndim);
    wb__part line = *p;
    bool full = false, row = false;
    int e = 0;
    for (int i = 0; i < p->n_instr; i++) {
        if (!stores[i]) continue;
        if (cols != 1 && !wb__part_varies(p, &p->views[p->instr[i].arg])) row = true;
        else full = true;
    }
    line.space.ndim -= line.space.col_dims;
    line.space.col_dims = 0;
    for (int turn = 0; turn < 2 && !e; turn++) {
        if (!(turn ? row : full) || (!turn && !cols)) continue;
        bool *some = wb__alloc_zero((size_t)p->n_instr, sizeof *some);
        if (!some) return WB_ERROR_MEMORY;
        for (int i = 0; i < p->n_instr; i++)
            some[i] = stores[i]
                && turn == (cols != 1 && !wb__part_varies(p, &p->views[p->instr[i].arg]));
        e = wb__fused_each(t, turn ? &line : p, some, work);
        wb__free(some);
    }
    return e;
}

/* ---- segments -------------------------------------------------------------------------------- */

static bool has_kind(const wb__part *p, const bool *among, wb__instr_kind kind)
{
    for (int i = 0; i < p->n_instr; i++)
        if ((!among || among[i]) && p->instr[i].kind == kind) return true;
    return false;
}

/* What instructions of some kinds need, and they. */
static void want_kinds(const wb__part *p, bool *want, wb__instr_kind from, wb__instr_kind to)
{
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr_kind kind = (wb__instr_kind)p->instr[i].kind;
        want[i] = kind >= from && kind <= to;
    }
    wb__part_want(p, want, true);
}

static int segment(const wb__gpu_target *t, wb__part *p, bool *want, bool *stores,
                   wb__gpu_work *work)
{
    const wb__space *s = &p->space;
    const int64_t rows = product(s, 0, s->ndim - s->col_dims);
    const int64_t groups = product(s, 0, s->ndim - s->row_dims - s->col_dims)
        * product(s, s->ndim - s->col_dims, s->ndim);
    size_t end = 0;
    int e = 0;
    want_kinds(p, want, WB__FOLD_ROWS, WB__FOLD_ALL);
    if (has_kind(p, want, WB__FOLD_COLS)) {
        bool *kept = wb__alloc_zero((size_t)(2 * p->n_instr), sizeof *kept);
        if (!kept) return WB_ERROR_MEMORY;
        for (int i = 0; i < p->n_instr; i++) want[i] |= p->instr[i].kind == WB__FOLD_COLS;
        e = keep_rows(t, p, want, kept, work, &end);
        wb__free(kept);
    }
    if (!e && groups && has_kind(p, NULL, WB__FOLD_ROWS))
        e = wb__fused_folds(t, p, WB__FOLD_ROWS, end, work);
    if (!e && has_kind(p, NULL, WB__FOLD_ALL)) e = wb__fused_folds(t, p, WB__FOLD_ALL, end, work);
    want_kinds(p, want, WB__STORE, WB__STORE);
    for (int i = 0; i < p->n_instr; i++) stores[i] = p->instr[i].kind == WB__STORE;
    if (e || !rows || !has_kind(p, NULL, WB__STORE)) return e;
    return has_kind(p, want, WB__FOLD_COLS) ? wb__fused_rows(t, p, stores, work)
                                            : store_each(t, p, stores, work);
}

int wb__gpu_fused(const wb__gpu_target *t, const wb__fused *fused, wb__gpu_work *work)
{
    const size_t n = (size_t)(2 * fused->n_instr + 1);
    bool *want = wb__alloc_zero(2 * n, sizeof *want);
    int e = want ? 0 : WB_ERROR_MEMORY;
    work->impl = "nothing to do";
    for (int s = 0; s < fused->n_segments && !e; s++) {
        wb__part p;
        if (product(&fused->spaces[s], 0, fused->spaces[s].ndim) > UINT32_MAX)
            e = wb__fail(WB_ERROR_UNSUPPORTED,
                         "a fused kernel over %lld elements; here at most %u are possible",
                         (long long)product(&fused->spaces[s], 0, fused->spaces[s].ndim),
                         UINT32_MAX);
        if (!e) e = part_of(fused, s, &p);
        if (e) break;
        const int before = work->n;
        e = segment(t, &p, want, want + n, work);
        for (int i = before; i < work->n; i++) work->launch[i].segment = s;
        part_free(&p);
    }
    wb__free(want);
    return e;
}
