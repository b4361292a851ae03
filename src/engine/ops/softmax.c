/* Softmax and its logarithm over an axis. */
#include "engine/ops/op.h"

static wb_tensor *softmax_rows(wb__op op, wb_tensor *x)
{
    const char *what = wb__ops[op].name;
    if (!wb__floating(what, x)) return NULL;
    if (!x->ndim)
        return wb__fail_null(WB_ERROR_SHAPE,
                             "%s: of a scalar; it belongs to a whole row, outside a layer", what);
    return wb__node(op, (wb_dtype)x->dtype, x->ndim, x->dims, 1, &x, 0, NULL);
}

wb_tensor *wb_softmax(wb_tensor *x) { return softmax_rows(WB__OP_softmax, x); }
wb_tensor *wb_logsoftmax(wb_tensor *x) { return softmax_rows(WB__OP_logsoftmax, x); }

static wb_tensor *softmax_rows_over(wb__op op, wb_tensor *x, int axis)
{
    if (!wb__floating(wb__ops[op].name, x)) return NULL;
    int a = wb__axis(wb__ops[op].name, x, axis);
    if (a < 0) return NULL;
    if (a == x->ndim - 1) return softmax_rows(op, x);
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) order[i] = i;
    order[a] = x->ndim - 1;
    order[x->ndim - 1] = a;
    int ndim = x->ndim;
    return wb_permute_array(softmax_rows(op, wb_permute_array(x, ndim, order)), ndim, order);
}

wb_tensor *wb_softmax_over(wb_tensor *x, int axis) { return softmax_rows_over(WB__OP_softmax, x,
                                                                              axis); }
wb_tensor *wb_logsoftmax_over(wb_tensor *x, int axis)
{
    return softmax_rows_over(WB__OP_logsoftmax, x, axis);
}

/* Sets the gradient of x to y (g - sum(g y)), with y the result, g its gradient, and the sum over
 * the last axis. */
GRADIENT(softmax)
{
    unsigned last = 1u << (node->ndim - 1);
    out[0] = wb_mul(node, wb_sub(g, wb__reduce(WB__OP_sum, wb_mul(g, node), last, true)));
}

/* Sets the gradient of x to g - exp(y) sum(g), with y the result, g its gradient, and the sum over
 * the last axis. */
GRADIENT(logsoftmax)
{
    unsigned last = 1u << (node->ndim - 1);
    out[0] = wb_sub(g, wb_mul(wb_exp(node), wb__reduce(WB__OP_sum, g, last, true)));
}

/* Returns exp(x - max), with the maximum over the last axis.  If log_form, also sets *shifted to x
 * - max.  For an element that equals the maximum, x - max is taken as 0, even if both are infinite.
 * Several +Inf then share the result, and a row of only -Inf is uniform. */
static int softmax_exponentials(wb__ir *ir, int x, bool log_form, int *shifted)
{
    unsigned last = 1u << (ir->value[x].ndim - 1);
    wb_dtype t = (wb_dtype)ir->value[x].dtype;
    int top = wb__ir_reduce(ir, WB__OP_max, x, last);
    int is_top = wb__ir_elementwise(ir, WB__OP_eq, x, top),
        down = wb__ir_elementwise(ir, WB__OP_sub, x, top);
    if (log_form) {
        *shifted = down = wb__ir_where(ir, is_top, wb__ir_literal(ir, 0, t), down);
        return wb__ir_elementwise(ir, WB__OP_exp, down, -1);
    }
    return wb__ir_where(ir, is_top, wb__ir_literal(ir, 1, t),
                        wb__ir_elementwise(ir, WB__OP_exp, down, -1));
}

int wb__ir_softmax(wb__ir *ir, int x)
{
    int e = softmax_exponentials(ir, x, false, NULL);
    int sum = wb__ir_reduce(ir, WB__OP_sum, e, 1u << (ir->value[x].ndim - 1));
    return wb__ir_elementwise(ir, WB__OP_mul, e,
                              wb__ir_elementwise(ir, WB__OP_reciprocal, sum, -1));
}

static int logsoftmax(wb__ir *ir, int x)
{
    int shifted, e = softmax_exponentials(ir, x, true, &shifted);
    int sum = wb__ir_reduce(ir, WB__OP_sum, e, 1u << (ir->value[x].ndim - 1));
    return wb__ir_elementwise(ir, WB__OP_sub, shifted, wb__ir_elementwise(ir, WB__OP_log, sum, -1));
}

/* Applies `form` to value `in`, cast to f32 if it is f16 or bf16.  Returns the result in the dtype
 * of x. */
static int compose_in_f32(wb__ir *ir, const wb_tensor *x, int in, int (*form)(wb__ir *, int))
{
    const wb_dtype t = (wb_dtype)x->dtype;
    return wb__ir_as(ir, form(ir, wb__ir_as(ir, in, wb__computed_in(t))), t);
}

COMPOSED(softmax) { return compose_in_f32(&s->ir, x, in[0], wb__ir_softmax); }
COMPOSED(logsoftmax) { return compose_in_f32(&s->ir, x, in[0], logsoftmax); }
