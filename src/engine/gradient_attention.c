/* The gradients of attention, and theirs.  With s = scale q·kᵀ (masked), p = softmax(s), o = p·v and
 * g the gradient of o:
 *   a = g·vᵀ   ds = p (a - sum p a)   dq = scale ds·k   dk = scale dsᵀ·q   dv = pᵀ·g */
#include "engine/gradient.h"

#include <string.h>

#define RULE(name)                                                                                 \
    void wb__grad_##name(wb__gradient_walk *w, wb_tensor *node, wb_tensor *g, const bool *wanted,  \
                         wb_tensor **out)

/* dq, dk and dv are operations of their own, which a plan makes in one step, or writes out. */
RULE(attention)
{
    static const wb__op of[3] = {WB__OP_attention_dq, WB__OP_attention_dk, WB__OP_attention_dv};
    (void)w;
    wb_tensor *in[5] = {node->in[0], node->in[1], node->in[2], g, NULL};
    if (node->n_in == 4) in[4] = node->in[3];
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            out[i] = wb__node(of[i], (wb_dtype)node->dtype, 4, in[i]->dims, (int)node->n_in + 1, in,
                              2, node->attr);
}

/* ---- second gradients, from the formulas above ----------------------------------------------- */

static wb_tensor *row_sum(wb_tensor *x) { return x ? wb__reduce(WB__OP_sum, x, 1u << 3, true) : NULL; }

/* p (x - sum p x) */
static wb_tensor *through_softmax(wb_tensor *p, wb_tensor *x)
{
    return wb_mul(p, wb_sub(x, row_sum(wb_mul(p, x))));
}

static wb_tensor *times(wb_tensor *a, wb_tensor *b, bool ta, bool tb, wb_tensor *scale)
{
    wb_tensor *y = wb__matmul(a, b, ta, tb);
    return scale ? wb_mul(y, scale) : y;
}

/* The gradient x of ds (or dp, that of p, for dv) is what all three have in common. */
RULE(attention_back)
{
    (void)w;
    enum { Q, K, V, DO };
    wb_tensor *q = node->in[Q], *k = node->in[K], *v = node->in[V], *dy = node->in[DO];
    wb_dtype t = (wb_dtype)node->dtype;
    double factor;
    memcpy(&factor, node->attr, sizeof factor);
    wb_tensor *scale = wb__literal(factor, t), *s = times(q, k, false, true, scale);
    if (node->n_in == 5) s = wb_where(node->in[4], s, wb__literal(wb__masked(t), t));
    wb_tensor *p = wb_softmax(s), *dp, *part[4] = {NULL};
    if (node->op == WB__OP_attention_dv) {
        dp = times(dy, g, false, true, NULL);
        if (wanted[V]) out[V] = WB_NONE;
        if (wanted[DO]) out[DO] = times(p, g, false, false, NULL);
    } else {
        bool of_q = node->op == WB__OP_attention_dq;
        wb_tensor *a = times(dy, v, false, true, NULL), *ds = through_softmax(p, a);
        wb_tensor *x = of_q ? times(g, k, false, true, scale) : times(q, g, false, true, scale);
        wb_tensor *da = through_softmax(p, x);
        dp = wb_sub(wb_mul(x, wb_sub(a, row_sum(wb_mul(p, a)))),
                    wb_mul(a, row_sum(wb_mul(p, x))));
        part[of_q ? K : Q] = times(ds, g, of_q, false, scale);
        if (wanted[V]) out[V] = times(da, dy, true, false, NULL);
        if (wanted[DO]) out[DO] = times(da, v, false, false, NULL);
    }
    wb_tensor *z = through_softmax(p, dp);
    if (wanted[Q]) out[Q] = times(z, k, false, false, scale);
    if (wanted[K]) out[K] = times(z, q, true, false, scale);
    for (int i = Q; i <= K; i++)
        if (wanted[i] && part[i]) out[i] = wb_add(out[i], part[i]);
}
