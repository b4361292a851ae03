/* Attention.  If the operands are [N, H, T, D], nothing is broadcast, and the mask is none or the
 * causal mask, attention is an operation of its own.  A plan computes this operation as a step of
 * the backend, or composes it from other operations if the backend declines the step.  All other
 * attention is composed from other operations when wb_attention is called.  Attention to a cache
 * is an operation too, one of whose operands is its composed form.
 *
 * The gradients, with s = scale q·kᵀ (masked), p = softmax(s), o = p·v and g the gradient of o:
 *   a = g·vᵀ   ds = p (a - sum p a)   dq = scale ds·k   dk = scale dsᵀ·q   dv = pᵀ·g */
#include "engine/ops/op.h"

#include <math.h>
#include <string.h>

/* Whether the mask is wb_causal_mask(n, n). */
static bool is_causal(const wb_tensor *m, int64_t n)
{
    return m->op == WB__OP_le && m->ndim == 2 && m->dims[0] == n && m->dims[1] == n &&
           m->n_in == 2 && m->in[0]->op == WB__OP_iota && m->in[1]->op == WB__OP_iota &&
           m->in[0]->attr[0] == 1 && m->in[1]->attr[0] == 0;
}

/* Whether attention can be an operation of its own: q, k and v are [N, H, T, D] with the same N and
 * H, of one dtype and not empty, and the mask is none or the causal mask. */
static bool is_attention_node(const wb_tensor *q, const wb_tensor *k, const wb_tensor *v,
                              const wb_tensor *mask)
{
    if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4) return false;
    if (q->dtype != k->dtype || q->dtype != v->dtype || !q->size || !k->size || !v->size)
        return false;
    for (int i = 0; i < 2; i++)
        if (q->dims[i] != k->dims[i] || q->dims[i] != v->dims[i]) return false;
    return mask == WB_NONE || (q->dims[2] == k->dims[2] && is_causal(mask, q->dims[2]));
}

double wb__power_within(double *scale, wb_dtype t)
{
    int exponent;
    if (t != WB_F16 || !(*scale > 0 && *scale < 1)) return 1;
    *scale = 2 * frexp(*scale, &exponent);
    return ldexp(1, exponent - 1);
}

static wb_tensor *scaled_product(wb_tensor *a, wb_tensor *b, bool ta, bool tb, double scale)
{
    const wb_dtype t = (wb_dtype)(a ? a->dtype : WB_F32);
    const double power = wb__power_within(&scale, t);
    wb_tensor *y = wb__matmul(power == 1 ? a : wb_mul(a, wb__literal(power, t)), b, ta, tb);
    return scale == 1 ? y : wb_mul(y, wb__literal(scale, t));
}

static wb_tensor *compose_attention_now(wb_tensor *q, wb_tensor *k, wb_tensor *v, wb_tensor *mask,
                                        double scale)
{
    wb_dtype t = (wb_dtype)q->dtype;
    wb_tensor *scores = scaled_product(q, k, false, true, scale);
    if (mask == WB_NONE) return wb__matmul(wb_softmax(scores), v, false, false);
    wb_tensor *weights = wb_softmax(wb_where(mask, scores, wb__literal(wb__masked(t), t)));
    return wb__matmul(wb_where(mask, weights, wb__literal(0, t)), v, false, false);
}

wb_tensor *wb_attention(wb_tensor *q, wb_tensor *k, wb_tensor *v, wb_tensor *mask)
{
    if (!wb__floating("attention", q) || !wb__floating("attention", k) ||
        !wb__floating("attention", v) ||
        (!mask && wb__null("attention", "mask (WB_NONE for no mask)")))
        return NULL;
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2 || q->dims[q->ndim - 1] != k->dims[k->ndim - 1] ||
        k->dims[k->ndim - 2] != v->dims[v->ndim - 2])
        return wb__fail_null(WB_ERROR_SHAPE,
                             "attention: q %s, k %s, v %s: want [...,Tq,d], [...,Tk,d], [...,Tk,e]",
                             wb_describe(q), wb_describe(k), wb_describe(v));
    if (mask != WB_NONE && !wb__operand("attention", mask)) return NULL;
    if (mask != WB_NONE && mask->dtype != WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "attention: the mask is %s, not bool (true: keep)",
                             wb_describe(mask));
    double scale = 1 / sqrt((double)WB__MAX(q->dims[q->ndim - 1], 1));
    if (!is_attention_node(q, k, v, mask)) return compose_attention_now(q, k, v, mask, scale);
    int64_t dims[4] = {q->dims[0], q->dims[1], q->dims[2], v->dims[3]}, attr[2] = {0}, size;
    if (!wb__check_dims("attention", 4, dims, &size)) return NULL;
    memcpy(&attr[0], &scale, sizeof scale);
    attr[1] = mask != WB_NONE;
    return wb__node(WB__OP_attention, (wb_dtype)q->dtype, 4, dims, mask == WB_NONE ? 3 : 4,
                    (wb_tensor *[]){q, k, v, mask}, 2, attr);
}

wb_tensor *wb__attention_cached(wb_tensor *y, wb_tensor *const operands[6], double scale)
{
    if (!y) return NULL;
    wb_tensor *in[7] = {y};
    int64_t attr[2] = {0};
    for (int i = 0; i < 6; i++)
        if (!(in[1 + i] = operands[i])) return NULL;
    memcpy(&attr[0], &scale, sizeof scale);
    return wb__node(WB__OP_attention_cached, (wb_dtype)y->dtype, y->ndim, y->dims, 7, in, 2, attr);
}

/* Gives the gradient to y alone; the other operands get none. */
GRADIENT(attention_cached)
{
    for (int i = 0; i < (int)node->n_in; i++)
        if (wanted[i]) out[i] = i ? WB_NONE : g;
}

/* Sets the gradients to dq, dk and dv, which are separate operations.  A plan computes them in one
 * step, or composes each from other operations. */
GRADIENT(attention)
{
    static const wb__op of[3] = {WB__OP_attention_dq, WB__OP_attention_dk, WB__OP_attention_dv};
    wb_tensor *in[5] = {node->in[0], node->in[1], node->in[2], g, NULL};
    if (node->n_in == 4) in[4] = node->in[3];
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            out[i] = wb__node(of[i], (wb_dtype)node->dtype, 4, in[i]->dims, (int)node->n_in + 1, in,
                              2, node->attr);
}

static wb_tensor *sum_over_row(wb_tensor *x)
{
    return x ? wb__reduce(WB__OP_sum, x, 1u << 3, true) : NULL;
}

/* Returns p (x - sum(p x)), with the sum over the last axis.  If p is a softmax and x the gradient
 * of p, this is the gradient of the operand of the softmax. */
static wb_tensor *softmax_backward(wb_tensor *p, wb_tensor *x)
{
    return wb_mul(p, wb_sub(x, sum_over_row(wb_mul(p, x))));
}

/* The gradients of a node that is dq, dk or dv, with respect to q, k, v and the gradient of o (DO).
 * The names are those at the top of this file, except that dy is the gradient of o, g is the
 * gradient of the node, and x, da, dp and z are the gradients of ds, a, p and s. */
GRADIENT(attention_grad)
{
    enum { Q, K, V, DO };
    wb_tensor *q = node->in[Q], *k = node->in[K], *v = node->in[V], *dy = node->in[DO];
    wb_dtype t = (wb_dtype)node->dtype;
    double scale;
    memcpy(&scale, node->attr, sizeof scale);
    wb_tensor *s = scaled_product(q, k, false, true, scale);
    if (node->n_in == 5) s = wb_where(node->in[4], s, wb__literal(wb__masked(t), t));
    wb_tensor *p = wb_softmax(s), *dp, *part[4] = {NULL};
    if (node->op == WB__OP_attention_dv) {
        dp = scaled_product(dy, g, false, true, 1);
        if (wanted[V]) out[V] = WB_NONE;
        if (wanted[DO]) out[DO] = scaled_product(p, g, false, false, 1);
    } else {
        bool of_q = node->op == WB__OP_attention_dq;
        wb_tensor *a = scaled_product(dy, v, false, true, 1), *ds = softmax_backward(p, a);
        wb_tensor *x = of_q ? scaled_product(g, k, false, true, scale)
                            : scaled_product(q, g, false, true, scale);
        wb_tensor *da = softmax_backward(p, x);
        dp = wb_sub(wb_mul(x, wb_sub(a, sum_over_row(wb_mul(p, a)))),
                    wb_mul(a, sum_over_row(wb_mul(p, x))));
        part[of_q ? K : Q] = scaled_product(ds, g, of_q, false, scale);
        if (wanted[V]) out[V] = scaled_product(da, dy, true, false, 1);
        if (wanted[DO]) out[DO] = scaled_product(da, v, false, false, 1);
    }
    wb_tensor *z = softmax_backward(p, dp);
    if (wanted[Q]) out[Q] = scaled_product(z, k, false, false, scale);
    if (wanted[K]) out[K] = scaled_product(z, q, true, false, scale);
    for (int i = Q; i <= K; i++)
        if (wanted[i] && part[i]) out[i] = wb_add(out[i], part[i]);
}

/* Returns the view that value x, [N, H, T, D], most likely has in the plan, with its last size
 * replaced by `width`.  The layout is BTHD if `bthd`, or if x is a permutation of [N, T, H, D]. */
static wb__view likely_view_of(const wb__ir *ir, int x, int64_t width, bool bthd)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
    wb__value v = ir->value[x];
    wb__view view;
    v.dims[3] = width;
    if (bthd || (v.op == WB__OP_permute && !memcmp(ir->attrs + v.attr, swap, sizeof swap)))
        v.layout = WB__BTHD;
    wb__contiguous(&v, &view);
    return view;
}

/* Whether the backend accepts the step of attention and, if the plan has gradients of attention,
 * their step too. */
static bool attention_supported(const wb__attempt *a, const wb__values *values, const int *in,
                  const int64_t *attr)
{
    const wb__ir *ir = &values->ir;
    wb__step s = wb__step_blank(a, WB__STEP_ATTENTION);
    s.variant = WB__ATTENTION_FORWARD;
    s.n_views = 5;
    s.attention.causal = attr[1];
    memcpy(&s.attention.scale, attr, sizeof s.attention.scale);
    for (int i = 0; i < 3; i++)
        s.views[i] = likely_view_of(ir, in[i], ir->value[in[i]].dims[3], false);
    const bool bthd = s.views[0].strides[1] < s.views[0].strides[2];
    s.views[3] = likely_view_of(ir, in[0], s.views[2].dims[3], bthd);
    wb__value lse = ir->value[in[0]];           /* lse is always row-major */
    lse.dims[3] = 1;
    lse.layout = WB__ROW_MAJOR;
    wb__contiguous(&lse, &s.views[4]);
    s.views[4].dtype = WB_F32;
    if (!wb__supported(a, &s)) return false;
    if (!values->attention_grad) return true;
    s.variant = WB__ATTENTION_GRAD;
    s.n_views = 9;
    s.views[5] = s.views[3];
    for (int i = 0; i < 3; i++)
        s.views[6 + i] = likely_view_of(ir, in[i], s.views[i].dims[3],
                                        s.views[i].strides[1] < s.views[i].strides[2]);
    return wb__supported(a, &s);
}

static int add_attention_value(wb__ir *ir, wb__op op, wb_dtype dtype, const wb__value *shape,
                               int64_t width, int n_in, const int *in, const int64_t *attr)
{
    wb__value v = {.op = (uint16_t)op, .dtype = (uint8_t)dtype, .ndim = 4, .number = -1,
                   .leaf = -1};
    memcpy(v.dims, shape->dims, sizeof v.dims);
    v.dims[3] = width;
    return wb__ir_make(ir, v, n_in, in, attr ? 2 : 0, attr);
}

/* Returns the value of tensor x, computed by the backend's steps.  One step computes o and lse, the
 * logsumexp of each row of s.  Another step computes dq, dk and dv. */
static int values_of_attention_step(wb__ir *ir, const wb_tensor *x, const int *in)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    wb__value q = ir->value[in[0]], v = ir->value[in[2]];
    int o = add_attention_value(ir, WB__OP_attention, t, &q, v.dims[3], 3, in, x->attr);
    if (x->op == WB__OP_attention) return o;
    int lse = add_attention_value(ir, WB__OP_attention_lse, WB_F32, &q, 1, 1, &o, NULL);
    int dq = add_attention_value(ir, WB__OP_attention_dq, t, &q, q.dims[3], 6,
                                 (int[]){in[0], in[1], in[2], o, lse, in[3]}, x->attr);
    if (x->op == WB__OP_attention_dq) return dq;
    const wb__value *of = &ir->value[in[x->op == WB__OP_attention_dk ? 1 : 2]];
    return add_attention_value(ir, (wb__op)x->op, t, of, x->dims[3], 1, &dq, NULL);
}

static int attention_product(wb__ir *ir, int a, int b, bool ta, bool tb)
{
    const wb__value *p = &ir->value[a], *q = &ir->value[b];
    wb__value v = {.op = WB__OP_matmul, .dtype = p->dtype, .ndim = 4, .number = -1, .leaf = -1,
                   .dims = {p->dims[0], p->dims[1], p->dims[2 + ta], q->dims[3 - tb]}};
    return wb__ir_make(ir, v, 2, (int[]){a, b}, 2, (int64_t[]){ta, tb});
}

static int attention_masked(wb__ir *ir, int mask, int x, double otherwise)
{
    if (mask < 0) return x;
    return wb__ir_where(ir, mask, x, wb__ir_literal(ir, otherwise, (wb_dtype)ir->value[x].dtype));
}

/* Returns the value of tensor x, which is attention or one of its gradients, composed of other
 * operations. */
static int values_of_attention_parts(wb__ir *ir, const wb_tensor *x, const int *in)
{
    const wb_dtype t = (wb_dtype)x->dtype;
    const bool forward = x->op == WB__OP_attention;
    const int n = forward ? 3 : 4, mask = (int)x->n_in > n ? in[n] : -1;
    double factor;
    memcpy(&factor, x->attr, sizeof factor);
    const int scale = wb__ir_literal(ir, factor, t);
    const double power = wb__power_within(&factor, t);
    const int q = power == 1 ? in[0] : wb__ir_elementwise(ir, WB__OP_mul, in[0],
                                                          wb__ir_literal(ir, power, t));
    int s = wb__ir_elementwise(ir, WB__OP_mul, attention_product(ir, q, in[1], false, true),
                               wb__ir_literal(ir, factor, t));
    s = wb__ir_as(ir, attention_masked(ir, mask, s, wb__masked(t)), wb__computed_in(t));
    int p = wb__ir_as(ir, wb__ir_softmax(ir, s), t), kept = attention_masked(ir, mask, p, 0);
    if (forward) return attention_product(ir, kept, in[2], false, false);
    if (x->op == WB__OP_attention_dv) return attention_product(ir, kept, in[3], true, false);
    int a = attention_masked(ir, mask, attention_product(ir, in[3], in[2], false, true), 0);
    int sum = wb__ir_reduce(ir, WB__OP_sum, wb__ir_elementwise(ir, WB__OP_mul, a, p), 1u << 3);
    int ds = wb__ir_elementwise(ir, WB__OP_mul, p, wb__ir_elementwise(ir, WB__OP_sub, a, sum));
    ds = wb__ir_elementwise(ir, WB__OP_mul, attention_masked(ir, mask, ds, 0), scale);
    return x->op == WB__OP_attention_dq ? attention_product(ir, ds, in[1], false, false)
                                        : attention_product(ir, ds, in[0], true, false);
}

COMPOSED(attention)
{
    return attention_supported(a, s, in, x->attr) ? values_of_attention_step(&s->ir, x, in)
                                                  : values_of_attention_parts(&s->ir, x, in);
}

/* Returns the value of the backend's step, or y if the backend declines the step. */
COMPOSED(attention_cached)
{
    wb__ir *ir = &s->ir;
    wb__step step = wb__step_blank(a, WB__STEP_ATTENTION);
    wb__value like = ir->value[in[0]];
    const int *operands = in + 1, order[7] = {operands[0], operands[1], operands[2], in[0],
                                              operands[3], operands[4], operands[5]};
    step.variant = WB__ATTENTION_CACHED;
    step.n_views = 7;
    memcpy(&step.attention.scale, x->attr, sizeof step.attention.scale);
    for (int i = 0; i < 7; i++) {
        wb__value v = ir->value[order[i]];
        v.layout = WB__ROW_MAJOR;
        wb__contiguous(&v, &step.views[i]);
    }
    if (!wb__supported(a, &step)) return in[0];
    return add_attention_value(ir, WB__OP_attention_cached, (wb_dtype)x->dtype, &like, like.dims[3],
                               6, operands, x->attr);
}

FILL(ATTENTION)
{
    const bool back = wb__ops[v->op].variant == WB__ATTENTION_GRAD;
    const bool cached = wb__ops[v->op].variant == WB__ATTENTION_CACHED;
    const int64_t *attr = wb__attrs_of(m, v);
    for (int i = 0; i < v->n_in; i++) {
        if (cached && i == 3) wb__add_result(m, g, WB__OP_attention_cached, v);     /* view 3 */
        wb__add_rows(m, wb__operand_of(m, v, i));
    }
    if (back) {
        wb__add_result(m, g, WB__OP_attention_dq, v);
        wb__add_result(m, g, WB__OP_attention_dk, wb__ir_in(&m->values->ir, v, 1));
        wb__add_result(m, g, WB__OP_attention_dv, wb__ir_in(&m->values->ir, v, 2));
    } else if (!cached) {
        wb__value lse = *v;
        lse.dims[3] = 1;
        lse.size = v->size / v->dims[3];
        lse.dtype = WB_F32;
        lse.layout = WB__ROW_MAJOR;
        wb__add_result(m, g, WB__OP_attention, v);
        wb__add_result(m, g, WB__OP_attention_lse, &lse);
    }
    wb__plan_step *d = wb__last_step(m);
    memcpy(&d->step.attention.scale, attr, sizeof d->step.attention.scale);
    d->step.attention.causal = attr[1];
    static const char *const texts[2][2] = {{"", "gradients"}, {"causal", "causal, gradients"}};
    d->text = wb__strdup(cached ? "cached" : texts[attr[1] != 0][back]);
}
