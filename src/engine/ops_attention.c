/* Attention.  What backends have kernels for, [N, H, T, D] without a mask or with the causal one, is
 * an operation of its own, which a plan writes out where the backend declines it (import.c); all else
 * is made of others here. */
#include "engine/tensor.h"

#include <math.h>
#include <string.h>

/* Is it wb_causal_mask(n, n)? */
static bool is_causal(const wb_tensor *mask, int64_t n)
{
    const wb_tensor *m = wb__bind((wb_tensor *)mask);
    return m->op == WB__OP_le && m->ndim == 2 && m->dims[0] == n && m->dims[1] == n &&
           m->n_in == 2 && m->in[0]->op == WB__OP_iota && m->in[1]->op == WB__OP_iota &&
           m->in[0]->attr[0] == 1 && m->in[1]->attr[0] == 0;
}

/* Every head by itself, and nothing broadcast. */
static bool is_plain(const wb_tensor *q, const wb_tensor *k, const wb_tensor *v,
                     const wb_tensor *mask)
{
    if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4) return false;
    if (q->dtype != k->dtype || q->dtype != v->dtype || !q->size || !k->size || !v->size)
        return false;
    for (int i = 0; i < 2; i++)
        if (q->dims[i] != k->dims[i] || q->dims[i] != v->dims[i]) return false;
    return mask == WB_NONE || (q->dims[2] == k->dims[2] && is_causal(mask, q->dims[2]));
}

static wb_tensor *composed(wb_tensor *q, wb_tensor *k, wb_tensor *v, wb_tensor *mask, double scale)
{
    wb_dtype t = (wb_dtype)q->dtype;
    wb_tensor *scores = wb_mul(wb__matmul(q, k, false, true), wb__literal(scale, t));
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
    if (mask != WB_NONE && (!wb__operand("attention", mask) || mask->dtype != WB_BOOL))
        return wb__fail_null(WB_ERROR_DTYPE, "attention: the mask is %s, not bool (true: keep)",
                             wb_describe(mask));
    double scale = 1 / sqrt((double)WB__MAX(q->dims[q->ndim - 1], 1));
    if (!is_plain(q, k, v, mask)) return composed(q, k, v, mask, scale);
    int64_t dims[4] = {q->dims[0], q->dims[1], q->dims[2], v->dims[3]}, attr[2] = {0}, size;
    if (!wb__check_dims("attention", 4, dims, &size)) return NULL;
    memcpy(&attr[0], &scale, sizeof scale);
    attr[1] = mask != WB_NONE;
    return wb__node(WB__OP_attention, (wb_dtype)q->dtype, 4, dims, mask == WB_NONE ? 3 : 4,
                    (wb_tensor *[]){q, k, v, mask}, 2, attr);
}
