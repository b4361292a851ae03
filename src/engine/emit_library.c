/* From a library group to its step: operands as the backend wants them, by way of copies where they
 * stand otherwise. */
#include "engine/ops/op.h"

#include <string.h>

static wb__value *value(const wb__making *m, int x) { return &m->ir.value[x]; }

/* ---- operands -------------------------------------------------------------------------------- */

static bool dense(const wb__view *v, bool nhwc)
{
    wb__value like = {
        .ndim = (uint8_t)v->ndim, .dtype = (uint8_t)v->dtype, .nhwc = nhwc && v->ndim == 4};
    wb__view want;
    memcpy(like.dims, v->dims, sizeof like.dims);
    wb__contiguous(&like, &want);
    for (int i = 0; i < v->ndim; i++)
        if (v->dims[i] != 1 && v->strides[i] != want.strides[i]) return false;
    return true;
}

/* A view of value `like`'s elements as an operand, dense in the value's layout: by way of a copy
 * where it is not. */
static void add_dense_view(wb__making *m, wb__view v, int owner, wb__value like)
{
    wb__draft *d = wb__last_draft(m);
    wb__view to;
    if (dense(&v, like.nhwc)) {
        wb__draft_view(m, d, v, owner);
        return;
    }
    wb__contiguous(&like, &to);
    to.buffer = wb__arena_buffer(m);
    int tenant = wb__tenant_new(m, wb__value_bytes(&like));
    wb__draft held = *d;                        /* the copy goes before it */
    m->n_drafts--;
    wb__draft_copy(m, v, owner, to, tenant, "brought into order");
    wb__draft *again = wb__draft_new(m, held.step.kind);
    if (!again) return;
    *again = held;
    wb__draft_view(m, again, to, tenant);
}

void wb__add_dense(wb__making *m, int x, bool nhwc)
{
    wb__view v;
    int owner;
    if (m->failed || !wb__place_of(m, x, &v, &owner)) return;
    wb__value like = *value(m, x);
    like.heads_first = false;
    like.nhwc = nhwc && like.ndim == 4;
    add_dense_view(m, v, owner, like);
}

void wb__add_any(wb__making *m, int x)
{
    wb__view v;
    int owner;
    if (!m->failed && wb__place_of(m, x, &v, &owner)) wb__draft_view(m, wb__last_draft(m), v, owner);
}

void wb__add_matrix(wb__making *m, int x, bool transposed, const wb__value *product)
{
    wb__view v;
    int owner;
    if (m->failed || !wb__place_of(m, x, &v, &owner)) return;
    int last = v.ndim - 1;
    bool awkward = v.dims[last] > 1 && v.dims[last - 1] > 1 && v.strides[last] != 1 &&
                   v.strides[last - 1] != 1;
    if (awkward) {
        wb__add_dense(m, x, false);
        if (m->failed) return;
        wb__draft *d = wb__last_draft(m);
        v = d->step.views[d->step.n_views - 1];
        owner = d->owners[--d->n_owners];
        d->step.n_views--;
    }
    wb__draft_view(m, wb__last_draft(m), wb__matrix_view(v, transposed, product), owner);
}

/* The n elements of v along the dimension that is `from_end` before its end. */
static wb__view vector(const wb__view *v, int64_t n, int from_end)
{
    return (wb__view){.dtype = v->dtype, .buffer = v->buffer, .granule = v->granule,
                      .offset = v->offset, .ndim = 1, .dims = {n},
                      .strides = {v->strides[v->ndim - from_end]}};
}

/* What the epilogue has beside the product, and the sums of its rows. */
static void add_epilogue(wb__making *m, const wb__group *g, const wb__value *v)
{
    wb__draft *d = wb__last_draft(m);
    d->step.epilogue = g->epilogue;
    d->step.aux_kind = g->aux_kind;
    if (g->aux >= 0 && !m->failed) wb__place_of(m, g->aux, &d->step.aux, &d->aux_owner);
    if (g->bits >= 0) {
        const wb__value bits = {.dtype = WB_U8, .ndim = 2,
                                .dims = {v->dims[0], wb__relu_bytes(v->dims[1])}};
        wb__contiguous(&bits, &d->step.aux);
        d->step.aux.buffer = wb__arena_buffer(m);
        d->aux_owner = g->bits;
    }
    if (g->sums < 0 || m->failed || !wb__place_of(m, g->sums, &d->step.sums, &d->sums_owner)) return;
    wb__view *s = &d->step.sums;
    d->step.sums_of = WB__SUMS_OF_C;
    *s = vector(s, v->dims[1], 1);
    if (dense(s, false)) return;
    wb__fail(WB_ERROR_INTERNAL, "plan: sums beside a product need memory of their own");
    m->failed = true;
}

static void add_bias(wb__making *m, const wb__group *g, const wb__value *v)
{
    wb__view view;
    int owner;
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const wb__value like = {.dtype = v->dtype, .ndim = 1, .size = v->dims[channel],
                            .dims = {v->dims[channel]}};
    if (m->failed || !wb__place_of(m, g->bias, &view, &owner)) return;
    add_dense_view(m, vector(&view, like.size, v->ndim - channel), owner, like);
}

/* An operand whose rows are runs of memory, each element by itself; by way of a copy where it is not. */
void wb__add_rows(wb__making *m, int x)
{
    wb__view v;
    int owner;
    bool runs = true;
    if (m->failed || !wb__place_of(m, x, &v, &owner)) return;
    for (int i = 0; i < v.ndim; i++)
        runs &= v.dims[i] == 1 || (i == v.ndim - 1 ? v.strides[i] == 1 : v.strides[i] > 0);
    if (runs) wb__draft_view(m, wb__last_draft(m), v, owner);
    else wb__add_dense(m, x, false);
}

/* One of a step's results; where nobody wants it, memory that is free again behind the step. */
void wb__add_result(wb__making *m, const wb__group *g, wb__op op, const wb__value *like)
{
    for (int x = g->first; x >= 0; x = m->next[x])
        if (value(m, x)->op == op) {
            wb__add_any(m, x);
            return;
        }
    wb__view v;
    wb__contiguous(like, &v);
    v.buffer = wb__arena_buffer(m);
    int tenant = wb__tenant_new(m, wb__value_bytes(like));
    if (!m->failed) wb__draft_view(m, wb__last_draft(m), v, tenant);
}

void wb__draft_library(wb__making *m, const wb__group *g)
{
    const wb__value *v = value(m, g->first);
    const wb__step_kind kind = wb__ops[v->op].step;
    wb__draft *d = wb__draft_new(m, kind);
    if (!d) return;
    d->step.variant = wb__ops[v->op].variant;
    wb__fill[v->op](m, g, v);
    if (g->bias >= 0) add_bias(m, g, v);
    if (!m->failed) add_epilogue(m, g, v);
}
