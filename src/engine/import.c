/* From the graph to values: each tensor of the walk becomes one, composites become what they are
 * made of. */
#include "engine/plan.h"

#include <string.h>

static wb__value value_like(const wb_tensor *x)
{
    wb__value v = {.op = x->op, .dtype = x->dtype, .ndim = x->ndim, .number = -1, .leaf = -1};
    memcpy(v.dims, x->dims, sizeof v.dims);
    return v;
}

/* exp(x - max) and the maximum's row; entries equal to the maximum count 1, so +Inf shares and -Inf
 * alone is uniform */
static int exponentials(wb__ir *ir, int x, bool log_form, int *shifted)
{
    unsigned last = 1u << (ir->value[x].ndim - 1);
    wb_dtype t = (wb_dtype)ir->value[x].dtype;
    int top = wb__ir_reduce(ir, WB__OP_max, x, last);
    int is_top = wb__ir_elementwise(ir, WB__OP_eq, x, top),
        down = wb__ir_elementwise(ir, WB__OP_sub, x, top);
    if (log_form) {
        *shifted = down = wb__ir_where(ir, is_top, wb__ir_literal(ir, 0, t), down);
        return wb__ir_elementwise(ir, WB__OP_exp, down, -1);
    }
    return wb__ir_where(ir, is_top, wb__ir_literal(ir, 1, t),
                        wb__ir_elementwise(ir, WB__OP_exp, down, -1));
}

static int as(wb__ir *ir, int x, wb_dtype dtype)
{
    wb__value v = ir->value[x];
    if (v.dtype == dtype) return x;
    v.op = WB__OP_cast;
    v.dtype = (uint8_t)dtype;
    v.number = v.leaf = -1;
    return wb__ir_make(ir, v, 1, &x, 0, NULL);
}

static int softmax(wb__ir *ir, int x)
{
    int e = exponentials(ir, x, false, NULL);
    int sum = wb__ir_reduce(ir, WB__OP_sum, e, 1u << (ir->value[x].ndim - 1));
    return wb__ir_elementwise(ir, WB__OP_mul, e,
                              wb__ir_elementwise(ir, WB__OP_reciprocal, sum, -1));
}

static int logsoftmax(wb__ir *ir, int x)
{
    int shifted, e = exponentials(ir, x, true, &shifted);
    int sum = wb__ir_reduce(ir, WB__OP_sum, e, 1u << (ir->value[x].ndim - 1));
    return wb__ir_elementwise(ir, WB__OP_sub, shifted, wb__ir_elementwise(ir, WB__OP_log, sum, -1));
}

static int mean(wb__ir *ir, int x, unsigned mask)
{
    const wb__value *v = &ir->value[x];
    double n = 1;
    for (int i = 0; i < v->ndim; i++)
        if (mask >> i & 1) n *= (double)v->dims[i];
    int factor = wb__ir_literal(ir, 1 / n, (wb_dtype)v->dtype);
    return wb__ir_elementwise(ir, WB__OP_mul, wb__ir_reduce(ir, WB__OP_sum, x, mask), factor);
}

static int normalise(wb__ir *ir, int x, unsigned mask, double eps)
{
    int centred = wb__ir_elementwise(ir, WB__OP_sub, x, mean(ir, x, mask));
    int variance = mean(ir, wb__ir_elementwise(ir, WB__OP_square, centred, -1), mask);
    int padded = wb__ir_elementwise(ir, WB__OP_add, variance,
                                    wb__ir_literal(ir, eps, (wb_dtype)ir->value[x].dtype));
    return wb__ir_elementwise(ir, WB__OP_mul, centred,
                              wb__ir_elementwise(ir, WB__OP_rsqrt, padded, -1));
}


/* Does a literal's value belong to the structure?  Then the key holds it. */
bool wb__literal_fixed(const wb_tensor *x)
{
    double v = x->number[0].f;
    return !(x->flags & WB__RENEWED) && (x->flags & WB__FIXED || v == 0 || v == 1 || v == -1);
}

static int import_one(wb__making *m, const wb_tensor *x, const int *in, int *number, int *leaf)
{
    wb__ir *ir = &m->ir;
    wb__value v = value_like(x);
    if (wb__known(x)) {
        v.op = WB__OP_constant;
        v.leaf = (*leaf)++;
        return wb__ir_make(ir, v, 0, NULL, 0, NULL);
    }
    switch (x->op) {
    case WB__OP_literal:
        v.fixed = wb__literal_fixed(x);
        if (v.fixed) v.value = x->number[0].f;
        else v.number = (*number)++;
        return wb__ir_make(ir, v, 0, NULL, 0, NULL);
    case WB__OP_uniform: case WB__OP_gaussian:
        v.number = *number;
        *number += 2;
        return wb__ir_make(ir, v, 0, NULL, 0, NULL);
    case WB__OP_softmax:
        return as(ir, softmax(ir, as(ir, in[0], wb__computed_in((wb_dtype)x->dtype))), (wb_dtype)x->dtype);
    case WB__OP_logsoftmax:
        return as(ir, logsoftmax(ir, as(ir, in[0], wb__computed_in((wb_dtype)x->dtype))), (wb_dtype)x->dtype);
    case WB__OP_normalise:
        return as(ir,
                  normalise(ir, as(ir, in[0], wb__computed_in((wb_dtype)x->dtype)), (unsigned)x->attr[0],
                            x->number[0].f),
                  (wb_dtype)x->dtype);
    case WB__OP_stop: case WB__OP_automatic: case WB__OP_assign: return in[0];
    case WB__OP_sum: case WB__OP_max: case WB__OP_min: case WB__OP_argmax: {
        int r = wb__ir_reduce(ir, (wb__op)x->op, in[0], (unsigned)x->attr[0]);
        return wb__ir_move(ir, WB__OP_reshape, r, x->ndim, x->dims, 0, NULL);
    }
    default: return wb__ir_make(ir, v, (int)x->n_in, in, x->n_attr, x->attr);
    }
}

bool wb__import(wb__making *m)
{
    const wb__order *o = &m->request->order;
    int number = 0, leaf = 0, room = 16, *in = wb__alloc((size_t)room * sizeof *in);
    bool good = in && (m->value_of = wb__alloc((size_t)(o->n + 1) * sizeof *m->value_of));
    for (int i = 0; good && i < o->n; i++) {
        const wb_tensor *x = o->node[i];
        if (!wb__known(x) && (int)x->n_in > room) {
            room = 2 * (int)x->n_in;
            wb__free(in);
            good = (in = wb__alloc((size_t)room * sizeof *in)) != NULL;
            if (!good) break;
        }
        for (uint32_t j = 0; !wb__known(x) && j < x->n_in; j++) {
            const wb_tensor *y = x->in[j];
            in[j] = m->value_of[wb__known(y) ? wb__map_get(&o->leaves, y) : (int)y->index];
        }
        m->value_of[i] = import_one(m, x, in, &number, &leaf);
        good = !m->ir.failed;
    }
    wb__free(in);
    return good;
}
