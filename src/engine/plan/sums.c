/* Sums beside products: the gradient of a layer's bias is dy summed over its rows, which the product
 * that makes the gradient of its weight, dyᵀ·x, walks over anyway.  Where the backend takes it, such
 * a sum leaves its fused kernel and becomes part of the product. */
#include "engine/plan/stages.h"

#include <string.h>

/* ---- a sum over rows, and the matrix it is of ------------------------------------------------- */

/* Dimensions [from, to) as one: its size and stride; false where they are not one run. */
static bool as_one(const wb__view *v, int from, int to, int64_t *dim, int64_t *stride)
{
    *dim = *stride = 1;
    bool any = false;
    for (int i = to - 1; i >= from; i--) {
        if (v->dims[i] == 1) continue;
        if (!any) *stride = v->strides[i];
        else if (v->strides[i] != *stride * *dim) return false;
        any = true;
        *dim *= v->dims[i];
    }
    return true;
}

/* [k, n] elements in memory, and where their sums over k go. */
typedef struct {
    wb__view of, to;
    int of_owner, to_owner;
    bool loaded;
    int64_t k, n, k_stride, n_stride;
} row_sum;

/* The view by which the value of instruction `a` stands in memory: it was loaded, or is stored. */
static int view_of(const wb__draft *d, int a)
{
    if (d->instr[a].kind == WB__LOAD) return d->instr[a].arg;
    for (int i = a + 1; i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind == WB__STORE && d->instr[i].a == a) return d->instr[i].arg;
    return -1;
}

static bool is_row_sum(const wb__draft *d, int instr, row_sum *s)
{
    const wb__instr *fold = &d->instr[instr];
    const wb__space *space = &d->spaces[0];
    int64_t dim, stride;
    if (fold->kind != WB__FOLD_ROWS || fold->op != WB__OP_sum) return false;
    if (space->row_dims + space->col_dims != space->ndim) return false;
    const int of = view_of(d, fold->a);
    if (of < 0) return false;
    *s = (row_sum){.of = d->views[of], .of_owner = d->owners[of], .to = d->views[fold->arg],
                   .to_owner = d->owners[fold->arg],
                   .loaded = d->instr[fold->a].kind == WB__LOAD};
    return as_one(&s->of, 0, space->row_dims, &s->k, &s->k_stride) &&
           as_one(&s->of, space->row_dims, space->ndim, &s->n, &s->n_stride) &&
           as_one(&s->to, space->row_dims, space->ndim, &dim, &stride) && dim == s->n &&
           stride == 1;
}

/* ---- the product beside which it can be made --------------------------------------------------- */

static bool same_matrix(const row_sum *s, const wb__view *v, int owner, int64_t k, int64_t n,
                        int64_t k_stride, int64_t n_stride)
{
    return v->buffer == s->of.buffer && owner == s->of_owner && v->offset == s->of.offset &&
           v->dtype == s->of.dtype && k == s->k && n == s->n && (k == 1 || k_stride == s->k_stride) &&
           (n == 1 || n_stride == s->n_stride);
}

/* Whether the product's a or b is the matrix that is summed. */
static wb__sums operand(const row_sum *s, const wb__draft *p)
{
    const wb__view *a = &p->step.views[0], *b = &p->step.views[1], *c = &p->step.views[2];
    const int i = c->ndim - 2, j = c->ndim - 1;
    for (int batch = 0; batch < i; batch++)
        if (c->dims[batch] != 1) return WB__SUMS_NONE;
    if (same_matrix(s, a, p->owners[0], a->dims[j], a->dims[i], a->strides[j], a->strides[i]))
        return WB__SUMS_OF_A;
    if (same_matrix(s, b, p->owners[1], b->dims[i], b->dims[j], b->strides[i], b->strides[j]))
        return WB__SUMS_OF_B;
    return WB__SUMS_NONE;
}

static bool touches(const wb__draft *d, const row_sum *s)
{
    const wb__view *views = d->step.kind == WB__STEP_FUSED ? d->views : d->step.views;
    for (int i = 0; i < d->n_owners; i++)
        if (views[i].buffer == s->to.buffer && d->owners[i] == s->to_owner) return true;
    return d->step.sums_of && d->step.sums.buffer == s->to.buffer && d->sums_owner == s->to_owner;
}

static bool takes(wb__making *m, wb__draft *p, const row_sum *s, wb__sums of)
{
    wb__step step = p->step;
    step.sums_of = of;
    step.sums = s->to;
    step.sums.ndim = 1;
    step.sums.dims[0] = s->n;
    step.sums.strides[0] = 1;
    if (!wb__taken(m, &step)) return false;
    p->step = step;
    p->sums_owner = s->to_owner;
    return true;
}

static bool beside(wb__making *m, wb__draft *p, const row_sum *s)
{
    if (p->step.kind != WB__STEP_MATMUL || p->step.sums_of) return false;
    const wb__sums of = operand(s, p);
    return of && takes(m, p, s, of);
}

/* A product after the kernel that makes the sum now, and not after the first that reads it; or, where
 * the matrix was in memory already, one before. */
static bool place_sum(wb__making *m, int at, const row_sum *s)
{
    for (int i = at + 1; i < m->n_compute; i++) {
        if (beside(m, &m->draft[i], s)) return true;
        if (touches(&m->draft[i], s)) break;
    }
    for (int i = at - 1; s->loaded && i >= 0; i--)
        if (beside(m, &m->draft[i], s)) return true;
    return false;
}

/* ---- out of its program ------------------------------------------------------------------------ */

static void without_view(wb__draft *d, int view)
{
    wb__fused *f = &d->step.fused;
    const size_t behind = (size_t)(f->n_views - view - 1);
    memmove(d->views + view, d->views + view + 1, behind * sizeof *d->views);
    memmove(d->owners + view, d->owners + view + 1, behind * sizeof *d->owners);
    f->n_views--;
    d->n_owners--;
    for (int i = 0; i < f->n_instr; i++) {
        wb__instr *in = &d->instr[i];
        const bool draws = in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN;
        if (draws && in->c > view) in->c--;
        if ((in->kind == WB__LOAD || wb__instr_writes(in->kind)) && in->arg > view) in->arg--;
    }
}

static void without_instr(wb__draft *d, int instr)
{
    wb__fused *f = &d->step.fused;
    memmove(d->instr + instr, d->instr + instr + 1,
            (size_t)(f->n_instr - instr - 1) * sizeof *d->instr);
    f->n_instr--;
    for (int i = instr; i < f->n_instr; i++) {
        wb__instr *in = &d->instr[i];
        const bool draws = in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN;
        if (in->a > instr) in->a--;
        if (in->b > instr) in->b--;
        if (in->c > instr && !draws) in->c--;
    }
}

/* Whether nothing is left that a kernel would write. */
static bool idle(const wb__draft *d)
{
    for (int i = 0; i < d->step.fused.n_instr; i++)
        if (wb__instr_writes(d->instr[i].kind)) return false;
    return true;
}

static void drop_empty(wb__making *m)
{
    bool *gone = wb__alloc_zero((size_t)m->n_drafts + 1, sizeof *gone);
    int n = 0;
    if (!gone) {
        m->failed = true;
        return;
    }
    for (int i = 0; i < m->n_compute; i++) {
        const wb__draft *d = &m->draft[i];
        n += gone[i] = d->step.kind == WB__STEP_FUSED && !d->step.fused.n_instr;
    }
    wb__drafts_drop(m, 0, gone);
    m->n_compute -= n;
    wb__free(gone);
}

void wb__sums_beside_products(wb__making *m)
{
    if (!m->device->backend->takes) return;
    for (int at = 0; at < m->n_compute; at++) {
        wb__draft *d = &m->draft[at];
        for (int i = 0; d->step.kind == WB__STEP_FUSED && i < d->step.fused.n_instr; i++) {
            row_sum s;
            if (!is_row_sum(d, i, &s) || !place_sum(m, at, &s)) continue;
            without_view(d, d->instr[i].arg);
            without_instr(d, i--);
        }
        if (d->step.kind == WB__STEP_FUSED && idle(d))
            d->step.fused.n_instr = d->step.fused.n_views = d->n_owners = 0;
    }
    drop_empty(m);
}
