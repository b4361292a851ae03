/* Makes the step of a library group (stages.h): one operation for which the backend has a kernel.
 * If the kernel does not accept the strides of an operand, a step before it copies the operand. */
#include "engine/ops/op.h"

#include <string.h>

/* Whether a view is dense, row-major or channels last. */
static bool is_dense_view(const wb__view *v, bool channels_last)
{
    wb__value like = {.ndim = (uint8_t)v->ndim, .dtype = (uint8_t)v->dtype,
                      .layout = channels_last && v->ndim == 4 ? WB__CHANNELS_LAST : WB__ROW_MAJOR};
    wb__view want;
    memcpy(like.dims, v->dims, sizeof like.dims);
    wb__contiguous(&like, &want);
    for (int i = 0; i < v->ndim; i++)
        if (v->dims[i] != 1 && v->strides[i] != want.strides[i]) return false;
    return true;
}

/* Adds the operand `at` if it is dense in the layout of `like`; else adds a dense copy. */
static void add_dense_operand(wb__emitter *m, const wb__step_operand *at, const wb__value *like)
{
    wb__step_operand to = *at;
    if (!is_dense_view(&at->view, like->layout == WB__CHANNELS_LAST)) {
        to = wb__emit_allocation(m, like);
        wb__emit_copy(m, at, &to, "made contiguous");
    }
    wb__add_operand(m, m->step, &to);
}

/* Returns the struct of value x with the layout channels last, if `channels_last` is true and x has
 * four dimensions, else with the layout row-major. */
static wb__value value_in_layout(const wb__emitter *m, int x, bool channels_last)
{
    wb__value like = *wb__value_at(m->values, x);
    like.layout = channels_last && like.ndim == 4 ? WB__CHANNELS_LAST : WB__ROW_MAJOR;
    return like;
}

void wb__add_dense(wb__emitter *m, int x, bool channels_last)
{
    wb__step_operand at;
    const wb__value like = value_in_layout(m, x, channels_last);
    if (wb__step_operand_of(m, x, &at)) add_dense_operand(m, &at, &like);
}

void wb__add_any(wb__emitter *m, int x)
{
    wb__step_operand at;
    if (wb__step_operand_of(m, x, &at)) wb__add_operand(m, m->step, &at);
}

void wb__add_matrix(wb__emitter *m, int x, bool transposed, const wb__value *product)
{
    wb__step_operand at;
    if (!wb__step_operand_of(m, x, &at)) return;
    const wb__view *v = &at.view;
    const int last = v->ndim - 1;
    if (v->dims[last] > 1 && v->dims[last - 1] > 1 && v->strides[last] != 1 &&
        v->strides[last - 1] != 1) {
        const wb__value like = value_in_layout(m, x, false);
        const wb__step_operand to = wb__emit_allocation(m, &like);
        wb__emit_copy(m, &at, &to, "made contiguous");
        at = to;
    }
    at.view = wb__matrix_view(at.view, transposed, product);
    wb__add_operand(m, m->step, &at);
}

/* Returns a view of n elements of v along one dimension, the one with index v->ndim - from_end. */
static wb__view vector_view(const wb__view *v, int64_t n, int from_end)
{
    return (wb__view){.dtype = v->dtype, .buffer = v->buffer, .granule = v->granule,
                      .offset = v->offset, .ndim = 1, .dims = {n},
                      .strides = {v->strides[v->ndim - from_end]}};
}

/* Makes the sign bits that product p->bits writes the step's aux. */
static void add_sign_bits(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    const int64_t bytes = wb__relu_bytes(v->dims[1]);
    const wb__value bits = {.dtype = WB_U8, .ndim = 2, .dims = {v->dims[0], bytes},
                            .size = v->dims[0] * bytes};
    wb__step_operand *at = &m->bits_of[p->bits];
    if (at->allocation < 0) *at = wb__emit_allocation(m, &bits);
    m->step->aux = *at;
}

/* Sets the step's sums, which its kernel writes beside the result. */
static void add_step_sums(wb__emitter *m, const wb__product *p)
{
    wb__step_operand *at = &m->step->sums;
    if (!wb__step_operand_of(m, p->sums, at)) return;
    m->step->step.sums_of = p->sums_of;
    if (!is_dense_view(&at->view, false)) {
        wb__fail(WB_ERROR_INTERNAL, "plan: sums beside a product need memory of their own");
        m->failed = true;
    }
    at->view.ndim = 1;
    at->view.dims[0] = wb__value_at(m->values, p->sums)->size;
    at->view.strides[0] = 1;
}

/* Sets the step's epilogue, aux and sums. */
static void add_epilogue(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    m->step->step.epilogue = p->epilogue;
    m->step->step.aux_kind = p->aux_kind;
    if (p->aux >= 0) wb__step_operand_of(m, p->aux, &m->step->aux);
    if (p->bits >= 0) add_sign_bits(m, p, v);
    if (p->sums >= 0) add_step_sums(m, p);
}

/* Adds the bias of product p as an operand, a dense vector. */
static void add_step_bias(wb__emitter *m, const wb__product *p, const wb__value *v)
{
    wb__step_operand at;
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const wb__value like = {.dtype = v->dtype, .ndim = 1, .size = v->dims[channel],
                            .dims = {v->dims[channel]}};
    if (!wb__step_operand_of(m, p->bias, &at)) return;
    at.view = vector_view(&at.view, like.size, v->ndim - channel);
    add_dense_operand(m, &at, &like);
}

/* Adds x as an operand if its last stride is 1 and its other strides are positive; else adds a
 * dense copy of x.  The strides of dimensions of size 1 do not matter. */
void wb__add_rows(wb__emitter *m, int x)
{
    wb__step_operand at;
    bool runs = true;
    if (!wb__step_operand_of(m, x, &at)) return;
    const wb__view *v = &at.view;
    for (int i = 0; i < v->ndim; i++)
        runs &= v->dims[i] == 1 || (i == v->ndim - 1 ? v->strides[i] == 1 : v->strides[i] > 0);
    if (runs) wb__add_operand(m, m->step, &at);
    else wb__add_dense(m, x, false);
}

/* Adds the result `op` of the step as an operand.  If no value of the group is this result, adds an
 * arena allocation for it. */
void wb__add_result(wb__emitter *m, const wb__group *g, wb__op op, const wb__value *like)
{
    for (int x = g->first; x >= 0; x = m->groups->of[x].next)
        if (wb__value_at(m->values, x)->op == op) {
            wb__add_any(m, x);
            return;
        }
    const wb__step_operand at = wb__emit_allocation(m, like);
    wb__add_operand(m, m->step, &at);
}

void wb__emit_library(wb__emitter *m, int group)
{
    const wb__group *g = &m->groups->group[group];
    const wb__product *p = &m->patterns->product[g->product];
    const wb__value *v = wb__value_at(m->values, p->value);
    wb__plan_step d;
    wb__step_begin(m, wb__ops[v->op].step, &d);
    d.step.variant = wb__ops[v->op].variant;
    m->step = &d;
    wb__fill[v->op](m, g, p, v);
    if (p->bias >= 0) add_step_bias(m, p, v);
    add_epilogue(m, p, v);
    m->step = NULL;
    wb__emit_step(m, &d);
}
