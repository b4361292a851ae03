/* Pools over the last two axes, and their gradients. */
#include "base/options.h"
#include "engine/ops/op.h"
#include "engine/ops/sliding.h"

#include <string.h>

static wb_tensor *op_pool(const char *what, wb__op op, wb_tensor *x, const wb_pool_options *o)
{
    if (!wb__floating(what, x)) return NULL;
    if (wb__in_space(x))
        return wb__pool_in_space(what, op == WB__OP_maxpool ? wb_maxpool_with : wb_meanpool_with, x,
                                 o);
    wb_pool_options s;
    wb__given g;
    if (!wb__read_options(what, wb_pool_options, &s, o, &g)) return NULL;
    wb__pool_attr a = {{0}, {0}, {0}, {0}};
    const int64_t *window = (s.window + 1);
    if (!wb__sliding_pair(what, &g, "window", -1, s.window, 0, 0) ||
        !wb__sliding_pair(what, &g, "stride", -1, s.stride, window[0], window[1]) ||
        !wb__sliding_pad(what, &g, s.pad, 2))
        return NULL;
    memcpy(a.window, window, sizeof a.window);
    memcpy(a.stride, s.stride + 1, sizeof a.stride);
    memcpy(a.pad, s.pad + 1, sizeof a.pad);
    if (x->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s: wants [N,C,L], [N,C,H,W] or [N,C,D,H,W]",
                             what, wb_describe(x));
    if (!wb__sliding_size(what, x, a.window, a.stride, a.pad, NULL, a.size)) return NULL;
    for (int i = 0; i < 4; i++)
        if (a.pad[i] >= a.window[i / 2])
            return wb__fail_null(
                WB_ERROR_ARGUMENT, "%s: padding %lld is not smaller than the window %lldx%lld",
                what, (long long)a.pad[i], (long long)a.window[0], (long long)a.window[1]);
    int64_t dims[4] = {x->dims[0], x->dims[1], a.size[0], a.size[1]}, size;
    if (!wb__check_dims(what, 4, dims, &size)) return NULL;
    return wb__node(op, (wb_dtype)x->dtype, 4, dims, 1, &x, sizeof a / 8, (int64_t *)&a);
}

wb_tensor *wb_maxpool_with(wb_tensor *x, const wb_pool_options *s)
{
    return op_pool("maxpool", WB__OP_maxpool, x, s);
}
wb_tensor *wb_meanpool_with(wb_tensor *x, const wb_pool_options *s)
{
    return op_pool("meanpool", WB__OP_meanpool, x, s);
}

GRADIENT(maxpool) { out[0] = wb__like(WB__OP_maxpool_grad, node->in[0], node->in[0], g, node); }

/* maxpool_grad is linear in its second operand, which alone has a gradient.  The first operand only
 * determines the positions of the maxima. */
GRADIENT(maxpool_grad)
{
    if (wanted[0]) out[0] = WB_NONE;
    if (wanted[1]) out[1] = wb__like(WB__OP_maxpool_gather, node->in[1], node->in[0], g, node);
}

GRADIENT(maxpool_gather)
{
    if (wanted[0]) out[0] = WB_NONE;
    if (wanted[1]) out[1] = wb__like(WB__OP_maxpool_grad, node->in[1], node->in[0], g, node);
}

GRADIENT(meanpool)
{
    wb_tensor *x = node->in[0];
    out[0] = wb__like(WB__OP_meanpool_grad, x, g, NULL, node);
}

GRADIENT(meanpool_grad)
{
    wb_tensor *dy = node->in[0];
    out[0] = wb__like(WB__OP_meanpool, dy, g, NULL, node);
}

FILL(POOL)
{
    wb__plan_step *d = wb__last_step(m);
    memcpy(&d->step.pool, wb__attrs_of(m, v), sizeof d->step.pool);
    for (int i = 0; i < v->n_in; i++)
        wb__add_dense(m, wb__operand_of(m, v, i), v->layout == WB__CHANNELS_LAST);
    wb__add_any(m, p->result);
}
