/* From a library group to its step: operands in the strides that the backend takes, by way of copies,
 * which are steps before it, where their places have others. */
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

/* A place with value `like`'s elements as an operand, dense in the value's layout: by way of a copy
 * where it is not. */
static void add_dense_place(wb__emitter *m, const wb__place *at, const wb__value *like)
{
    wb__place to = *at;
    if (!dense(&at->view, like->nhwc)) {
        to = wb__emit_memory(m, like);
        wb__emit_copy(m, at, &to, "brought into order");
    }
    wb__add_place(m, m->step, &to);
}

/* The value as it is where it is dense in this layout. */
static wb__value in_layout(const wb__emitter *m, int x, bool nhwc)
{
    wb__value like = *value(m, x);
    like.heads_first = false;
    like.nhwc = nhwc && like.ndim == 4;
    return like;
}

void wb__add_dense(wb__emitter *m, int x, bool nhwc)
{
    wb__place at;
    const wb__value like = in_layout(m, x, nhwc);
    if (wb__place_of(m, x, &at)) add_dense_place(m, &at, &like);
}

void wb__add_any(wb__emitter *m, int x)
{
    wb__place at;
    if (wb__place_of(m, x, &at)) wb__add_place(m, m->step, &at);
}

void wb__add_matrix(wb__emitter *m, int x, bool transposed, const wb__value *product)
{
    wb__place at;
    if (!wb__place_of(m, x, &at)) return;
    const wb__view *v = &at.view;
    const int last = v->ndim - 1;
    if (v->dims[last] > 1 && v->dims[last - 1] > 1 && v->strides[last] != 1 &&
        v->strides[last - 1] != 1) {
        const wb__value like = in_layout(m, x, false);
        const wb__place to = wb__emit_memory(m, &like);
        wb__emit_copy(m, &at, &to, "brought into order");
        at = to;
    }
    at.view = wb__matrix_view(at.view, transposed, product);
    wb__add_place(m, m->step, &at);
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
    const int64_t bytes = wb__relu_bytes(v->dims[1]);
    const wb__value bits = {.dtype = WB_U8, .ndim = 2, .dims = {v->dims[0], bytes},
                            .size = v->dims[0] * bytes};
    wb__place *at = &m->bits_of[p->bits];
    if (at->memory < 0) *at = wb__emit_memory(m, &bits);
    m->step->aux = *at;
}

static void add_sums(wb__emitter *m, const wb__product *p)
{
    wb__place *at = &m->step->sums;
    if (!wb__place_of(m, p->sums, at)) return;
    m->step->step.sums_of = p->sums_of;
    if (!dense(&at->view, false)) {
        wb__fail(WB_ERROR_INTERNAL, "plan: sums beside a product need memory of their own");
        m->failed = true;
    }
    at->view.ndim = 1;
    at->view.dims[0] = value(m, p->sums)->size;
    at->view.strides[0] = 1;
}

/* What the epilogue has beside the product, and sums of rows. */
static void add_epilogue(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    m->step->step.epilogue = p->epilogue;
    m->step->step.aux_kind = p->aux_kind;
    if (p->aux >= 0) wb__place_of(m, p->aux, &m->step->aux);
    if (p->bits >= 0) add_bits(m, p, v);
    if (p->sums >= 0) add_sums(m, p);
}

static void add_bias(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    wb__place at;
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const wb__value like = {.dtype = v->dtype, .ndim = 1, .size = v->dims[channel],
                            .dims = {v->dims[channel]}};
    if (!wb__place_of(m, p->bias, &at)) return;
    at.view = vector(&at.view, like.size, v->ndim - channel);
    add_dense_place(m, &at, &like);
}

/* An operand whose rows are runs of memory, each element by itself; by way of a copy where it is not. */
void wb__add_rows(wb__emitter *m, int x)
{
    wb__place at;
    bool runs = true;
    if (!wb__place_of(m, x, &at)) return;
    const wb__view *v = &at.view;
    for (int i = 0; i < v->ndim; i++)
        runs &= v->dims[i] == 1 || (i == v->ndim - 1 ? v->strides[i] == 1 : v->strides[i] > 0);
    if (runs) wb__add_place(m, m->step, &at);
    else wb__add_dense(m, x, false);
}

/* One of a step's results; where nobody reads it, memory that is free again behind the step. */
void wb__add_result(wb__emitter *m, const wb__group *g, wb__op op, const wb__value *like)
{
    for (int x = g->first; x >= 0; x = m->groups->of[x].next)
        if (value(m, x)->op == op) {
            wb__add_any(m, x);
            return;
        }
    const wb__place at = wb__emit_memory(m, like);
    wb__add_place(m, m->step, &at);
}

void wb__emit_library(wb__emitter *m, int group)
{
    const wb__group *g = &m->groups->group[group];
    const wb__product *p = &m->patterns->product[g->product];
    const wb__value *v = value(m, p->value);
    wb__plan_step d = wb__step_new(m, wb__ops[v->op].step);
    d.step.variant = wb__ops[v->op].variant;
    m->step = &d;
    wb__fill[v->op](m, g, p, v);
    if (p->bias >= 0) add_bias(m, p, v);
    add_epilogue(m, p, v);
    m->step = NULL;
    wb__emit_step(m, &d);
}
