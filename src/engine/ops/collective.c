/* An operation of all ranks of a communicator on a tensor (backend/collective.h).  The inputs are
 * the operation that all ranks begin before this one, if any, and the operand.  The order of the
 * inputs matters: a walk of the graph reaches the earlier operation first. */
#include "backend/collective.h"
#include "engine/ops/op.h"

#include <string.h>

/* Order of the attributes, as in ops.def. */
enum { OP_COLLECTIVE_KIND, REDUCTION, COMMUNICATOR, OP_COLLECTIVE_ATTRS };

wb_tensor *wb__collect(const wb__communicator *c, int kind, int op, wb_tensor *x, wb_tensor *before)
{
    wb_tensor *in[] = {before, x};
    const int64_t attr[OP_COLLECTIVE_ATTRS] = {[OP_COLLECTIVE_KIND] = kind, [REDUCTION] = op,
                                               [COMMUNICATOR] = (int64_t)(uintptr_t)c};
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    if (kind == WB__COLLECT_ALLGATHER) dims[0] *= c->size;
    if (kind == WB__COLLECT_REDUCE_SCATTER) dims[0] /= c->size;
    return wb__node(WB__OP_collective, (wb_dtype)x->dtype, x->ndim, dims, before ? 2 : 1,
                    before ? in : in + 1, OP_COLLECTIVE_ATTRS, attr);
}

/* The result on each rank depends on the x of all ranks: the gradient is the sum of the ranks'
 * gradients, of which each rank takes that of its own x. */
GRADIENT(collective)
{
    static const int of[] = {[WB__COLLECT_ALLREDUCE] = WB__COLLECT_ALLREDUCE,
                             [WB__COLLECT_REDUCE_SCATTER] = WB__COLLECT_ALLGATHER,
                             [WB__COLLECT_ALLGATHER] = WB__COLLECT_REDUCE_SCATTER};
    const int64_t *attr = node->attr;
    const int x = (int)node->n_in - 1;
    if (!wanted[x]) return;
    if (attr[OP_COLLECTIVE_KIND] == WB__COLLECT_ALLGATHER || attr[REDUCTION] == WB__RANKS_SUM)
        out[x] = wb__collect((const wb__communicator *)(uintptr_t)attr[COMMUNICATOR],
                             of[attr[OP_COLLECTIVE_KIND]], WB__RANKS_SUM, g, NULL);
    else
        wb__fail(WB_ERROR_UNSUPPORTED, "%s: only the sum and the mean have a gradient",
                 attr[OP_COLLECTIVE_KIND] == WB__COLLECT_ALLREDUCE ? "allreduce"
                                                                   : "reduce_scatter");
}

FILL(COLLECTIVE)
{
    const int64_t *attr = wb__attrs_of(m, v);
    wb__add_dense(m, wb__operand_of(m, v, v->n_in - 1), false);
    wb__add_any(m, p->result);
    wb__step *s = &wb__last_step(m)->step;
    s->collective = (int)attr[OP_COLLECTIVE_KIND];
    s->variant = (int)attr[REDUCTION];
    s->communicator = (const wb__communicator *)(uintptr_t)attr[COMMUNICATOR];
}
