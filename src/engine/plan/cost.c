/* The cost of a step: the bytes of its operands and results, each element counted once, and the
 * floating-point operations of products, convolutions and attention. */
#include "engine/plan/stages.h"

#include <string.h>

/* The bytes of a view's elements, each counted once. */
static int64_t cost_bytes_of(const wb__view *v)
{
    int64_t n = (int64_t)wb__dtype_size(v->dtype);
    for (int i = 0; i < v->ndim; i++)
        if (v->strides[i] || !v->dims[i]) n *= v->dims[i];
    return n;
}

/* The bytes of a padded view's elements in memory, each counted once. */
static int64_t cost_bytes_inside(const wb__view *v, const wb__window *w)
{
    wb__view part = *v;
    memcpy(part.dims, w->size, sizeof part.dims);
    return cost_bytes_of(&part);
}

/* Adds the bytes and operations of a fused step to the cost. */
static void cost_add_fused(const wb__fused *f, wb__cost *c)
{
    for (int s = 0; s < f->n_segments; s++) {
        double points = 1;
        for (int i = 0; i < f->spaces[s].ndim; i++) points *= (double)f->spaces[s].dims[i];
        for (int i = 0; i < f->n_instr; i++)
            if (f->instr[i].kind == WB__PRODUCT) c->flops += 2 * points * (double)f->instr[i].scale;
        for (int v = 0; v < f->n_views; v++) {
            int64_t bytes = cost_bytes_of(&f->views[s * f->n_views + v]);
            bool loads = false, stores = false;
            for (int i = 0; i < f->n_instr; i++) {
                const wb__instr *in = &f->instr[i];
                const wb__instr_kind kind = (wb__instr_kind)in->kind;
                const bool product = kind == WB__PRODUCT;
                if (kind == WB__LOAD || product) loads |= in->arg == v;
                loads |= product && in->c == v;
                if (kind == WB__LOAD && in->arg == v && in->a >= 0)
                    bytes = cost_bytes_inside(&f->views[v], &f->windows[in->a]);
                if (wb__instr_writes((wb__instr_kind)f->instr[i].kind))
                    stores |= f->instr[i].arg == v;
            }
            c->read += loads ? bytes : 0;
            c->written += stores ? bytes : 0;
        }
    }
}

bool wb__step_writes(const wb__step *s, int i)
{
    switch (s->kind) {
    case WB__STEP_MATMUL: return i == 2;
    case WB__STEP_LINEAR_INT8: return i == 3;
    case WB__STEP_CONV:
        return i == (s->variant == WB__CONV_GRAD_INPUT    ? 0
                     : s->variant == WB__CONV_GRAD_WEIGHT ? 1
                                                          : 2);
    case WB__STEP_ATTENTION:
        return s->variant == WB__ATTENTION_GRAD      ? i >= 6
               : s->variant == WB__ATTENTION_FORWARD ? i == 3 || i == 4
                                                     : i == 3;
    default: return i == s->n_views - 1;
    }
}

/* Returns the product of the sizes of v's dimensions from dimension `from` on. */
static double cost_elements_from(const wb__view *v, int from)
{
    double n = 1;
    for (int i = from; i < v->ndim; i++) n *= (double)v->dims[i];
    return n;
}

static double cost_operations(const wb__step *s)
{
    const wb__view *v = s->views;
    switch (s->kind) {
    case WB__STEP_MATMUL:
        return 2 * cost_elements_from(&v[2], 0) * (double)v[0].dims[v[0].ndim - 1];
    case WB__STEP_CONV: return 2 * cost_elements_from(&v[2], 0) * cost_elements_from(&v[1], 1);
    case WB__STEP_LINEAR_INT8:
        return 2 * cost_elements_from(&v[0], 0) * cost_elements_from(&v[2], 0);
    case WB__STEP_ATTENTION:                /* two products forwards, five backwards */
        return (s->variant == WB__ATTENTION_GRAD ? 10 : 4) * cost_elements_from(&v[0], 0) *
               (double)v[1].dims[2] * (s->attention.causal ? 0.5 : 1);
    default: return 0;
    }
}

wb__cost wb__step_cost(const wb__step *s)
{
    wb__cost c = {.flops = cost_operations(s)};
    if (s->kind == WB__STEP_FUSED) {
        cost_add_fused(&s->fused, &c);
        return c;
    }
    const bool gathers = s->kind == WB__STEP_GATHER;
    const bool sets = s->kind == WB__STEP_SCATTER_ADD && s->variant == WB__ROWS_SET;
    for (int i = 0; i < s->n_views; i++) {
        /* only those rows of a table that an index names */
        const int64_t bytes = cost_bytes_of(&s->views[gathers && !i ? 2 : sets && i == 2 ? 1 : i]);
        *(wb__step_writes(s, i) ? &c.written : &c.read) += bytes;
    }
    const bool stores = s->aux_kind == WB__AUX_OPERAND || s->aux_kind == WB__AUX_SIGNS;
    if (s->aux_kind) *(stores ? &c.written : &c.read) += cost_bytes_of(&s->aux);
    if (s->sums_of) c.written += cost_bytes_of(&s->sums);
    return c;
}
