/* From a library group to its step: operands as the backend wants them, by way of copies where they
 * stand otherwise. */
#include "engine/ops/op.h"

#include <string.h>

static const wb__value *value(const wb__emitter *m, int x) { return wb__value_at(m->values, x); }

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
static void add_dense_view(wb__emitter *m, wb__view v, int owner, wb__value like)
{
    wb__plan_step *d = wb__last_step(m);
    wb__view to;
    if (dense(&v, like.nhwc)) {
        wb__emit_view(m, d, v, owner);
        return;
    }
    wb__contiguous(&like, &to);
    to.buffer = m->placement->arena_buffer;
    int memory = wb__emit_memory(m, wb__value_bytes(&like));
    wb__plan_step held = *d;                        /* the copy goes before it */
    m->out->n--;
    wb__emit_copy(m, v, owner, to, memory, "brought into order");
    wb__plan_step *again = wb__emit_step(m, held.step.kind);
    if (!again) {
        wb__step_free(&held);
        return;
    }
    *again = held;
    wb__emit_view(m, again, to, memory);
}

void wb__add_dense(wb__emitter *m, int x, bool nhwc)
{
    wb__view v;
    int owner;
    if (m->failed || !wb__place_of(m, x, &v, &owner)) return;
    wb__value like = *value(m, x);
    like.heads_first = false;
    like.nhwc = nhwc && like.ndim == 4;
    add_dense_view(m, v, owner, like);
}

void wb__add_any(wb__emitter *m, int x)
{
    wb__view v;
    int owner;
    if (!m->failed && wb__place_of(m, x, &v, &owner)) wb__emit_view(m, wb__last_step(m), v, owner);
}

void wb__add_matrix(wb__emitter *m, int x, bool transposed, const wb__value *product)
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
        wb__plan_step *d = wb__last_step(m);
        v = d->step.views[d->step.n_views - 1];
        owner = d->owners[--d->n_owners];
        d->step.n_views--;
    }
    wb__emit_view(m, wb__last_step(m), wb__matrix_view(v, transposed, product), owner);
}

/* The n elements of v along the dimension that is `from_end` before its end. */
static wb__view vector(const wb__view *v, int64_t n, int from_end)
{
    return (wb__view){.dtype = v->dtype, .buffer = v->buffer, .granule = v->granule,
                      .offset = v->offset, .ndim = 1, .dims = {n},
                      .strides = {v->strides[v->ndim - from_end]}};
}

static void add_bits(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    wb__plan_step *d = wb__last_step(m);
    const wb__value bits = {.dtype = WB_U8, .ndim = 2,
                            .dims = {v->dims[0], wb__relu_bytes(v->dims[1])}};
    int *memory = &m->bits_of[p->bits];
    wb__contiguous(&bits, &d->step.aux);
    d->step.aux.buffer = m->placement->arena_buffer;
    if (*memory < 0) *memory = wb__emit_memory(m, bits.dims[0] * bits.dims[1]);
    d->aux_owner = *memory;
}

static void add_sums(wb__emitter *m, const wb__product *p)
{
    wb__plan_step *d = wb__last_step(m);
    wb__view *s = &d->step.sums;
    const int64_t size = value(m, p->sums)->size;
    if (!wb__place_of(m, p->sums, s, &d->sums_owner)) return;
    d->step.sums_of = p->sums_of;
    if (!dense(s, false)) {
        wb__fail(WB_ERROR_INTERNAL, "plan: sums beside a product need memory of their own");
        m->failed = true;
    }
    *s = (wb__view){.dtype = s->dtype, .buffer = s->buffer, .granule = s->granule,
                    .offset = s->offset, .ndim = 1, .dims = {size}, .strides = {1}};
}

/* What the epilogue has beside the product, and sums of rows. */
static void add_epilogue(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    wb__plan_step *d = wb__last_step(m);
    d->step.epilogue = p->epilogue;
    d->step.aux_kind = p->aux_kind;
    if (p->aux >= 0 && !m->failed) wb__place_of(m, p->aux, &d->step.aux, &d->aux_owner);
    if (p->bits >= 0 && !m->failed) add_bits(m, p, v);
    if (p->sums >= 0 && !m->failed) add_sums(m, p);
}

static void add_bias(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    wb__view view;
    int owner;
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const wb__value like = {.dtype = v->dtype, .ndim = 1, .size = v->dims[channel],
                            .dims = {v->dims[channel]}};
    if (m->failed || !wb__place_of(m, p->bias, &view, &owner)) return;
    add_dense_view(m, vector(&view, like.size, v->ndim - channel), owner, like);
}

/* An operand whose rows are runs of memory, each element by itself; by way of a copy where it is not. */
void wb__add_rows(wb__emitter *m, int x)
{
    wb__view v;
    int owner;
    bool runs = true;
    if (m->failed || !wb__place_of(m, x, &v, &owner)) return;
    for (int i = 0; i < v.ndim; i++)
        runs &= v.dims[i] == 1 || (i == v.ndim - 1 ? v.strides[i] == 1 : v.strides[i] > 0);
    if (runs) wb__emit_view(m, wb__last_step(m), v, owner);
    else wb__add_dense(m, x, false);
}

/* One of a step's results; where nobody wants it, memory that is free again behind the step. */
void wb__add_result(wb__emitter *m, const wb__group *g, wb__op op, const wb__value *like)
{
    for (int x = g->first; x >= 0; x = m->groups->of[x].next)
        if (value(m, x)->op == op) {
            wb__add_any(m, x);
            return;
        }
    wb__view v;
    wb__contiguous(like, &v);
    v.buffer = m->placement->arena_buffer;
    int memory = wb__emit_memory(m, wb__value_bytes(like));
    if (!m->failed) wb__emit_view(m, wb__last_step(m), v, memory);
}

void wb__emit_library(wb__emitter *m, int group)
{
    const wb__group *g = &m->groups->group[group];
    const wb__product *p = &m->patterns->product[g->product];
    const wb__value *v = value(m, p->value);
    const wb__step_kind kind = wb__ops[v->op].step;
    wb__plan_step *d = wb__emit_step(m, kind);
    if (!d) return;
    d->step.variant = wb__ops[v->op].variant;
    wb__fill[v->op](m, g, p, v);
    if (p->bias >= 0) add_bias(m, p, v);
    if (!m->failed) add_epilogue(m, p, v);
}
