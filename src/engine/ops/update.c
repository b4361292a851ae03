/* Operations of optimiser rules.  Each replaces three or four elementwise operations, so an update
 * creates fewer tensors. */
#include "engine/ops/op.h"

static wb_tensor *node_like_first(wb__op op, wb_tensor *const *in, int n_attr, const int64_t *attr)
{
    if (!in[0] || !in[1] || !in[2] || !in[3]) return NULL;
    return wb__node(op, (wb_dtype)in[0]->dtype, in[0]->ndim, in[0]->dims, 4, in, n_attr, attr);
}

wb_tensor *wb__average(wb_tensor *x, wb_tensor *a, wb_tensor *y, wb_tensor *b, bool squared)
{
    return node_like_first(WB__OP_average, (wb_tensor *[]){x, a, y, b}, 1, (int64_t[]){squared});
}

wb_tensor *wb__adam_step(wb_tensor *m, wb_tensor *v, wb_tensor *eta, wb_tensor *eps)
{
    return node_like_first(WB__OP_adam_step, (wb_tensor *[]){m, v, eta, eps}, 0, NULL);
}

COMPOSED(average)
{
    wb__ir *ir = &s->ir;
    int old = wb__ir_elementwise(ir, WB__OP_mul, in[0], in[1]);
    int y = x->attr[0] ? wb__ir_elementwise(ir, WB__OP_square, in[2], -1) : in[2];
    return wb__ir_elementwise(ir, WB__OP_add, old, wb__ir_elementwise(ir, WB__OP_mul, y, in[3]));
}

COMPOSED(adam_step)
{
    wb__ir *ir = &s->ir;
    int moment = wb__ir_elementwise(ir, WB__OP_mul, in[0], in[2]);
    int root = wb__ir_elementwise(ir, WB__OP_sqrt, in[1], -1);
    int by = wb__ir_elementwise(ir, WB__OP_add, root, in[3]);
    return wb__ir_elementwise(ir, WB__OP_div, moment, by);
}
