/* From the graph to values.  Each tensor that the evaluation needs becomes a value.  Composites,
 * such as softmax, become the operations that they are composed of. */
#include "engine/ops/op.h"

#include <string.h>

/* Returns a value with the operation, dtype and dimensions of x, without inputs. */
static wb__value value_of_tensor(const wb_tensor *x)
{
    wb__value v = {.op = x->op, .dtype = x->dtype, .ndim = x->ndim, .number = -1, .leaf = -1};
    memcpy(v.dims, x->dims, sizeof v.dims);
    return v;
}

static bool is_attention_gradient(int op)
{
    return wb__is_step((wb__op)op, WB__STEP_ATTENTION) && wb__ops[op].variant == WB__ATTENTION_GRAD;
}

bool wb__literal_fixed(const wb_tensor *x)
{
    double v = x->number[0].f;
    return !(x->flags & WB__RENEWED) && (x->flags & WB__FIXED || v == 0 || v == 1 || v == -1);
}

/* Imports a slice that is read in place: makes a leaf for the bytes of the base that are read, and
 * the chain of views from the leaf to the slice. */
static int import_slice(wb__values *m, wb_tensor *x, int leaf)
{
    wb__leaf_slice w;
    wb__leaf_slice_of(x, &w);
    wb__value v = value_of_tensor(w.base);
    v.op = WB__OP_constant;
    v.leaf = leaf;
    int at = wb__ir_make(&m->ir, v, 0, NULL, 0, NULL);
    for (int i = w.n - 1; i >= 0; i--) {
        const wb_tensor *y = w.link[i].x;
        at = wb__ir_move(&m->ir, (wb__op)y->op, at, y->ndim, y->dims, y->n_attr,
                         y->op == WB__OP_slice ? w.link[i].attr : y->attr);
    }
    return at;
}

/* Adds the value of tensor x, whose operands are the values `in`, and returns its index. */
static int import_tensor(const wb__attempt *a, wb__values *m, wb_tensor *x, const int *in,
                         int *number, int leaf)
{
    wb__ir *ir = &m->ir;
    wb__value v = value_of_tensor(x);
    if (wb__known(x)) {
        v.op = WB__OP_constant;
        v.leaf = leaf;
        return wb__ir_make(ir, v, 0, NULL, 0, NULL);
    }
    if (leaf >= 0) return import_slice(m, x, leaf);
    if (wb__composed[x->op]) return wb__composed[x->op](a, m, x, in);
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
    case WB__OP_stop: case WB__OP_custom: case WB__OP_automatic: case WB__OP_assign: return in[0];
    case WB__OP_sum: case WB__OP_max: case WB__OP_min: case WB__OP_argmax: {
        int r = wb__ir_reduce(ir, (wb__op)x->op, in[0], (unsigned)x->attr[0]);
        return wb__ir_move(ir, WB__OP_reshape, r, x->ndim, x->dims, 0, NULL);
    }
    default: return wb__ir_make(ir, v, (int)x->n_in, in, x->n_attr, x->attr);
    }
}

/* Returns the value of an evaluated tensor. */
static int import_evaluated(const wb__attempt *a, const wb__values *m, const wb_tensor *x)
{
    return m->of[wb__pointer_map_get(&a->request->order.leaves, x)];
}

/* Returns a value, one bool: true if the request's guard and that of the optimiser step before are
 * both finite.  This value is made as soon as the guard is, so that kernels which compute new
 * values can also write them. */
static int import_both_finite(const wb__attempt *a, wb__values *m)
{
    wb__ir *ir = &m->ir;
    int guard = m->of[a->request->guard->index];
    while (ir->value[guard].op == WB__OP_reshape)       /* its kernel also makes this value */
        guard = ir->inputs[ir->value[guard].in];
    const wb__value like = ir->value[guard];
    const int before = wb__ir_move(ir, WB__OP_reshape, import_evaluated(a, m, a->request->before),
                                   like.ndim, like.dims, 0, NULL);
    const int both =
        wb__ir_where(ir, wb__ir_elementwise(ir, WB__OP_isfinite, before, -1), guard, before);
    const int ok = wb__ir_elementwise(ir, WB__OP_isfinite, both, -1);
    return wb__ir_move(ir, WB__OP_reshape, ok, 0, NULL, 0, NULL);
}

/* Makes each write keep the version that it replaces unless `ok`. */
static bool guard_writes(const wb__attempt *a, wb__values *m, int ok)
{
    const wb__request *r = a->request;
    wb__ir *ir = &m->ir;
    for (int i = 0; i < r->n_writes; i++) {
        const wb_tensor *write = r->writes[i];
        if (r->targets[i] < 0) continue;
        int *x = &m->of[write->index];
        *x = wb__ir_where(ir, ok, *x, import_evaluated(a, m, write->variable->live));
    }
    return !ir->failed;
}

bool wb__import(const wb__attempt *a, wb__values *m)
{
    const wb__order *o = &a->request->order;
    int number = 0, ok = -1, capacity = 16, *in = wb__alloc((size_t)capacity * sizeof *in);
    bool good = in && (m->of = wb__alloc((size_t)(o->n + 1) * sizeof *m->of));
    for (int i = 0; i < o->n; i++)
        m->attention_grad |= is_attention_gradient(o->node[i]->op) && !wb__known(o->node[i]);
    for (int i = 0; good && i < o->n; i++) {
        wb_tensor *x = o->node[i];
        if (!wb__known(x) && (int)x->n_in > capacity) {
            capacity = 2 * (int)x->n_in;
            wb__free(in);
            good = (in = wb__alloc((size_t)capacity * sizeof *in)) != NULL;
            if (!good) break;
        }
        for (uint32_t j = 0; !wb__known(x) && j < x->n_in; j++) {
            const wb_tensor *y = x->in[j];
            in[j] = m->of[wb__known(y) ? wb__pointer_map_get(&o->leaves, y) : (int)y->index];
        }
        m->of[i] = import_tensor(a, m, x, in, &number, a->request->leaf_of[i]);
        if (x == a->request->guard) ok = import_both_finite(a, m);
        good = !m->ir.failed;
    }
    wb__free(in);
    return good && (ok < 0 || guard_writes(a, m, ok));
}
