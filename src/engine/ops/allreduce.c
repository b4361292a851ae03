/* The reduction of a tensor over the ranks of a communicator (backend/collective.h).  The inputs
 * are the allreduce that all ranks begin before, if any, and the operand.  The order of the inputs
 * matters: a walk of the graph reaches the earlier allreduce first. */
#include "backend/collective.h"
#include "engine/ops/op.h"

enum { KIND, COMMUNICATOR, ATTRS };             /* order of the attributes, as in ops.def */

wb_tensor *wb__allreduce(const wb__communicator *c, int op, wb_tensor *x, wb_tensor *before)
{
    wb_tensor *in[] = {before, x};
    const int64_t attr[ATTRS] = {[KIND] = op, [COMMUNICATOR] = (int64_t)(uintptr_t)c};
    return wb__node(WB__OP_allreduce, (wb_dtype)x->dtype, x->ndim, x->dims, before ? 2 : 1,
                    before ? in : in + 1, ATTRS, attr);
}

/* The result of each rank depends on the x of each rank: the gradient of a sum is the sum of the
 * gradients. */
GRADIENT(allreduce)
{
    const int64_t *attr = node->attr;
    const int x = (int)node->n_in - 1;
    if (!wanted[x]) return;
    if (attr[KIND] == WB__RANKS_SUM)
        out[x] = wb__allreduce((const wb__communicator *)(uintptr_t)attr[COMMUNICATOR],
                               WB__RANKS_SUM, g, NULL);
    else
        wb__fail(WB_ERROR_UNSUPPORTED, "allreduce: only the sum and the mean have a gradient");
}

FILL(ALLREDUCE)
{
    const int64_t *attr = wb__attrs_of(m, v);
    wb__add_dense(m, wb__operand_of(m, v, v->n_in - 1), false);
    wb__add_any(m, p->result);
    wb__step *s = &wb__last_step(m)->step;
    s->variant = (int)attr[KIND];
    s->communicator = (const wb__communicator *)(uintptr_t)attr[COMMUNICATOR];
}
