/* Functions that the files of several operations use. */
#include "engine/ops/op.h"

wb_tensor *wb__like(wb__op op, const wb_tensor *like, wb_tensor *p, wb_tensor *q,
                    const wb_tensor *node)
{
    return wb__node(op, (wb_dtype)like->dtype, like->ndim, like->dims, q ? 2 : 1,
                    (wb_tensor *[]){p, q}, node->n_attr, node->attr);
}

bool wb__bias_fits(const char *what, const wb_tensor *b, const wb_tensor *w, int64_t n)
{
    if (b == WB_NONE) return true;
    if (!wb__operand(what, b)) return false;
    const bool shape = b->ndim == 1 && b->dims[0] == n;
    if (shape && b->dtype == w->dtype) return true;
    wb__fail(shape ? WB_ERROR_DTYPE : WB_ERROR_SHAPE,
             "%s: the bias is %s; the weight %s wants [%lld]%s", what, wb_describe(b),
             wb_describe(w), (long long)n, shape ? " of its dtype" : "");
    return false;
}

int wb__ir_as(wb__ir *ir, int x, wb_dtype dtype)
{
    wb__value v = ir->value[x];
    if (v.dtype == dtype) return x;
    v.op = WB__OP_cast;
    v.dtype = (uint8_t)dtype;
    v.number = v.leaf = -1;
    return wb__ir_make(ir, v, 1, &x, 0, NULL);
}
