/* Rows by index, and the gradient, scatter_add. */
#include "engine/ops/op.h"

wb_tensor *wb__take_rows(wb_tensor *x, wb_tensor *index)
{
    if (!wb__operand("take", x) || !wb__operand("take", index)) return NULL;
    if (wb__dtype_float((wb_dtype)index->dtype) || index->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "take: the index is %s, not of integers",
                             wb_describe(index));
    if (!x->ndim || index->ndim + x->ndim - 1 > WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE, "take: rows of %s by %s", wb_describe(x),
                             wb_describe(index));
    int64_t dims[WB_MAX_DIMS], size;
    for (int i = 0; i < index->ndim; i++) dims[i] = index->dims[i];
    for (int i = 1; i < x->ndim; i++) dims[index->ndim + i - 1] = x->dims[i];
    int ndim = index->ndim + x->ndim - 1;
    if (!wb__check_dims("take", ndim, dims, &size)) return NULL;
    if (wb__unlikely(wb__checks) && !wb__indices_below("take", index, x->dims[0])) return NULL;
    return wb__node(WB__OP_take, (wb_dtype)x->dtype, ndim, dims, 2, (wb_tensor *[]){x, index}, 0,
                    NULL);
}

GRADIENT(take)
{
    wb_tensor *x = node->in[0], *index = node->in[1];
    if (wanted[0])
        out[0] = wb__node(WB__OP_scatter_add, (wb_dtype)x->dtype, x->ndim, x->dims, 2,
                          (wb_tensor *[]){index, g}, 0, NULL);
}

GRADIENT(scatter_add)
{
    if (wanted[1]) out[1] = wb_take(g, node->in[0]);
}

FILL(GATHER)
{
    for (int i = 0; i < 2; i++) wb__add_dense(m, wb__operand_of(m, v, i), false);
    wb__add_any(m, p->result);
}

/* The result of scatter_set is in the memory of its third operand (placement.c), or begins as a
 * copy of that operand. */
FILL(SCATTER_ADD)
{
    wb__step_operand from, to;
    for (int i = 0; i < 2; i++) wb__add_dense(m, wb__operand_of(m, v, i), false);
    if (v->n_in > 2 && wb__step_operand_of(m, wb__operand_of(m, v, 2), &from) &&
        wb__step_operand_of(m, p->result, &to) &&
        (from.allocation != to.allocation || from.view.buffer != to.view.buffer ||
         from.view.offset != to.view.offset))
        wb__emit_copy(m, &from, &to, "rows to be set");
    wb__add_any(m, p->result);
}
