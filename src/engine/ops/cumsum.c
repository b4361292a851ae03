/* Cumulative sums along an axis.  The gradient is a cumulative sum in the other direction. */
#include "base/options.h"
#include "engine/ops/op.h"

enum { CUMSUM_AXIS, EXCLUSIVE, REVERSE, CUMSUM_ATTRS }; /* order of the attributes, as in ops.def */

wb_tensor *wb_cumsum_with(wb_tensor *x, int axis, const wb_cumsum_options *options)
{
    if (!wb__operand("cumsum", x)) return NULL;
    wb_cumsum_options o;
    if (!wb__read_options("cumsum", wb_cumsum_options, &o, options, NULL)) return NULL;
    if (x->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE,
                             "cumsum: does not take %s: make integers of it with wb_astype",
                             wb_describe(x));
    const int a = wb__axis("cumsum", x, axis);
    if (a < 0) return NULL;
    const int64_t attr[CUMSUM_ATTRS] = {[CUMSUM_AXIS] = a, [EXCLUSIVE] = o.exclusive,
                                        [REVERSE] = o.reverse};
    return wb__node(WB__OP_cumsum, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, CUMSUM_ATTRS, attr);
}

GRADIENT(cumsum)
{
    const int64_t *attr = node->attr;
    out[0] = wb_cumsum(g, (int)attr[CUMSUM_AXIS], .exclusive = attr[EXCLUSIVE] != 0,
                       .reverse = attr[REVERSE] == 0);
}

void wb__bring_in_front(wb__view *v, int axis, bool reverse)
{
    const int64_t n = v->dims[axis], step = v->strides[axis];
    for (int i = axis; i > 0; i--) {
        v->dims[i] = v->dims[i - 1];
        v->strides[i] = v->strides[i - 1];
    }
    v->dims[0] = n;
    v->strides[0] = reverse ? -step : step;
    if (reverse && n) v->offset += (n - 1) * step;
}

FILL(CUMSUM)
{
    const int64_t *attr = wb__attrs_of(m, v);
    wb__add_any(m, wb__operand_of(m, v, 0));
    wb__add_any(m, p->result);
    wb__plan_step *d = wb__last_step(m);
    d->step.variant = attr[EXCLUSIVE] != 0;
    for (int i = 0; i < d->n_operands; i++)
        wb__bring_in_front(&d->operand[i].view, (int)attr[CUMSUM_AXIS], attr[REVERSE] != 0);
}
