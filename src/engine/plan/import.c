/* From the graph to values: each tensor of the walk becomes one, composites become what they are
 * made of. */
#include "engine/plan/stages.h"

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

/* What rules are made of: one tensor each in place of four, since updates have them for every
 * parameter. */
static int average(wb__ir *ir, const int *in, bool squared)
{
    int old = wb__ir_elementwise(ir, WB__OP_mul, in[0], in[1]);
    int y = squared ? wb__ir_elementwise(ir, WB__OP_square, in[2], -1) : in[2];
    return wb__ir_elementwise(ir, WB__OP_add, old, wb__ir_elementwise(ir, WB__OP_mul, y, in[3]));
}

static int adam_step(wb__ir *ir, const int *in)
{
    int m = wb__ir_elementwise(ir, WB__OP_mul, in[0], in[2]);
    int root = wb__ir_elementwise(ir, WB__OP_sqrt, in[1], -1);
    return wb__ir_elementwise(ir, WB__OP_div, m, wb__ir_elementwise(ir, WB__OP_add, root, in[3]));
}

/* ---- attention ------------------------------------------------------------------------------- */

static bool is_gradient(int op)
{
    return wb__is_step((wb__op)op, WB__STEP_ATTENTION) && wb__ops[op].variant == WB__ATTENTION_BACK;
}

/* [N, H, T, D] as it will stand, most likely: what was projected has its heads within the places. */
static wb__view likely(const wb__ir *ir, int x, int64_t width, bool heads_inside)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
    wb__value v = ir->value[x];
    wb__view view;
    v.dims[3] = width;
    v.heads_first = heads_inside ||
                    (v.op == WB__OP_permute && !memcmp(ir->attrs + v.attr, swap, sizeof swap));
    wb__contiguous(&v, &view);
    return view;
}

/* Does the backend take it, and its gradients where the plan has them? */
static bool taken(const wb__attempt *a, const wb__values *m, const int *in, const int64_t *attr)
{
    const wb__ir *ir = &m->ir;
    if (!a->device->backend->takes) return false;
    wb__step s = wb__step_blank(a, WB__STEP_ATTENTION);
    s.variant = WB__ATTENTION_FORWARD;
    s.n_views = 5;
    s.attention.causal = attr[1];
    memcpy(&s.attention.scale, attr, sizeof s.attention.scale);
    for (int i = 0; i < 3; i++) s.views[i] = likely(ir, in[i], ir->value[in[i]].dims[3], false);
    const bool inside = s.views[0].strides[1] < s.views[0].strides[2];
    s.views[3] = likely(ir, in[0], s.views[2].dims[3], inside);
    wb__value lse = ir->value[in[0]];           /* this one never has its heads inside */
    lse.dims[3] = 1;
    lse.heads_first = false;
    wb__contiguous(&lse, &s.views[4]);
    s.views[4].dtype = WB_F32;
    if (!wb__taken(a, &s)) return false;
    if (!m->attention_back) return true;
    s.variant = WB__ATTENTION_BACK;
    s.n_views = 9;
    s.views[5] = s.views[3];
    for (int i = 0; i < 3; i++)
        s.views[6 + i] = likely(ir, in[i], s.views[i].dims[3], s.views[i].strides[1] < s.views[i].strides[2]);
    return wb__taken(a, &s);
}

static int step_of(wb__ir *ir, wb__op op, wb_dtype dtype, const wb__value *shape, int64_t width,
                   int n_in, const int *in, const int64_t *attr)
{
    wb__value v = {.op = (uint16_t)op, .dtype = (uint8_t)dtype, .ndim = 4, .number = -1, .leaf = -1};
    memcpy(v.dims, shape->dims, sizeof v.dims);
    v.dims[3] = width;
    return wb__ir_make(ir, v, n_in, in, attr ? 2 : 0, attr);
}

/* One step for o and log-sum-exp, one for dq, dk and dv. */
static int attention_steps(wb__ir *ir, const wb_tensor *x, const int *in)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    wb__value q = ir->value[in[0]], v = ir->value[in[2]];
    int o = step_of(ir, WB__OP_attention, t, &q, v.dims[3], 3, in, x->attr);
    if (x->op == WB__OP_attention) return o;
    int lse = step_of(ir, WB__OP_attention_lse, WB_F32, &q, 1, 1, &o, NULL);
    int dq = step_of(ir, WB__OP_attention_dq, t, &q, q.dims[3], 6,
                     (int[]){in[0], in[1], in[2], o, lse, in[3]}, x->attr);
    if (x->op == WB__OP_attention_dq) return dq;
    const wb__value *of = &ir->value[in[x->op == WB__OP_attention_dk ? 1 : 2]];
    return step_of(ir, (wb__op)x->op, t, of, x->dims[3], 1, &dq, NULL);
}

static int product(wb__ir *ir, int a, int b, bool ta, bool tb)
{
    const wb__value *p = &ir->value[a], *q = &ir->value[b];
    wb__value v = {.op = WB__OP_matmul, .dtype = p->dtype, .ndim = 4, .number = -1, .leaf = -1,
                   .dims = {p->dims[0], p->dims[1], p->dims[2 + ta], q->dims[3 - tb]}};
    return wb__ir_make(ir, v, 2, (int[]){a, b}, 2, (int64_t[]){ta, tb});
}

static int masked(wb__ir *ir, int mask, int x, double otherwise)
{
    if (mask < 0) return x;
    return wb__ir_where(ir, mask, x, wb__ir_literal(ir, otherwise, (wb_dtype)ir->value[x].dtype));
}

/* Attention and its gradients made of other operations (gradient_attention.c has the formulas). */
static int attention(wb__ir *ir, const wb_tensor *x, const int *in)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    const bool forward = x->op == WB__OP_attention;
    const int n = forward ? 3 : 4, mask = (int)x->n_in > n ? in[n] : -1;
    double factor;
    memcpy(&factor, x->attr, sizeof factor);
    int scale = wb__ir_literal(ir, factor, t);
    int s = wb__ir_elementwise(ir, WB__OP_mul, product(ir, in[0], in[1], false, true), scale);
    s = as(ir, masked(ir, mask, s, wb__masked(t)), wb__computed_in(t));
    int p = as(ir, softmax(ir, s), t), kept = masked(ir, mask, p, 0);
    if (forward) return product(ir, kept, in[2], false, false);
    if (x->op == WB__OP_attention_dv) return product(ir, kept, in[3], true, false);
    int a = masked(ir, mask, product(ir, in[3], in[2], false, true), 0);
    int sum = wb__ir_reduce(ir, WB__OP_sum, wb__ir_elementwise(ir, WB__OP_mul, a, p), 1u << 3);
    int ds = wb__ir_elementwise(ir, WB__OP_mul, p, wb__ir_elementwise(ir, WB__OP_sub, a, sum));
    ds = wb__ir_elementwise(ir, WB__OP_mul, masked(ir, mask, ds, 0), scale);
    return x->op == WB__OP_attention_dq ? product(ir, ds, in[1], false, false)
                                        : product(ir, ds, in[0], true, false);
}

/* ---- all tensors ----------------------------------------------------------------------------- */

/* Does a literal's value belong to the structure?  Then the key holds it. */
bool wb__literal_fixed(const wb_tensor *x)
{
    double v = x->number[0].f;
    return !(x->flags & WB__RENEWED) && (x->flags & WB__FIXED || v == 0 || v == 1 || v == -1);
}

/* A window: the chain of views down to its base, which stands for a buffer of the window's own. */
static int window(wb__values *m, wb_tensor *x, int leaf)
{
    wb__window w;
    wb__window_of(x, &w);
    wb__value v = value_like(w.base);
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

static int import_one(const wb__attempt *a, wb__values *m, wb_tensor *x, const int *in, int *number,
                      int leaf)
{
    wb__ir *ir = &m->ir;
    wb__value v = value_like(x);
    if (wb__known(x)) {
        v.op = WB__OP_constant;
        v.leaf = leaf;
        return wb__ir_make(ir, v, 0, NULL, 0, NULL);
    }
    if (leaf >= 0) return window(m, x, leaf);
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
    case WB__OP_average: return average(ir, in, x->attr[0]);
    case WB__OP_adam_step: return adam_step(ir, in);
    case WB__OP_attention: case WB__OP_attention_dq: case WB__OP_attention_dk:
    case WB__OP_attention_dv:
        return taken(a, m, in, x->attr) ? attention_steps(ir, x, in) : attention(ir, x, in);
    case WB__OP_stop: case WB__OP_automatic: case WB__OP_assign: return in[0];
    case WB__OP_sum: case WB__OP_max: case WB__OP_min: case WB__OP_argmax: {
        int r = wb__ir_reduce(ir, (wb__op)x->op, in[0], (unsigned)x->attr[0]);
        return wb__ir_move(ir, WB__OP_reshape, r, x->ndim, x->dims, 0, NULL);
    }
    default: return wb__ir_make(ir, v, (int)x->n_in, in, x->n_attr, x->attr);
    }
}

bool wb__import(const wb__attempt *a, wb__values *m)
{
    const wb__order *o = &a->request->order;
    int number = 0, room = 16, *in = wb__alloc((size_t)room * sizeof *in);
    bool good = in && (m->of = wb__alloc((size_t)(o->n + 1) * sizeof *m->of));
    for (int i = 0; i < o->n; i++)
        m->attention_back |= is_gradient(o->node[i]->op) && !wb__known(o->node[i]);
    for (int i = 0; good && i < o->n; i++) {
        wb_tensor *x = o->node[i];
        if (!wb__known(x) && (int)x->n_in > room) {
            room = 2 * (int)x->n_in;
            wb__free(in);
            good = (in = wb__alloc((size_t)room * sizeof *in)) != NULL;
            if (!good) break;
        }
        for (uint32_t j = 0; !wb__known(x) && j < x->n_in; j++) {
            const wb_tensor *y = x->in[j];
            in[j] = m->of[wb__known(y) ? wb__pointer_map_get(&o->leaves, y) : (int)y->index];
        }
        m->of[i] = import_one(a, m, x, in, &number, a->request->leaf_of[i]);
        good = !m->ir.failed;
    }
    wb__free(in);
    return good;
}
