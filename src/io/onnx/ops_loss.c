/* Softmax and the losses of classes of ONNX. */
#include "io/onnx/ops_common.h"

#include <string.h>

/* ---- Softmax --------------------------------------------------------------------------------- */

wb_tensor *wb__onnx_over_axis(const wb__onnx_call *c, wb_tensor *(*f)(wb_tensor *x, int axis))
{
    wb_tensor *x = c->in[0];
    const bool flat = c->node->opset < 13;
    const int axis = wb__onnx_axis(c, wb__onnx_int(c, "axis"), x->ndim);
    int64_t two[2] = {1, 1};
    if (axis < 0) return NULL;
    if (!flat || axis == x->ndim - 1) return f(x, axis);
    for (int i = 0; i < x->ndim; i++) two[i >= axis] *= x->dims[i];
    wb_tensor *y = wb_reshape_array(x, 2, two);
    y = y ? f(y, 1) : NULL;
    return y ? wb_reshape_array(y, x->ndim, x->dims) : NULL;
}

wb_tensor *wb__onnx_hardmax(wb_tensor *x, int axis)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == axis ? x->dims[i] : 1;
    wb_tensor *at = wb_reshape_array(wb_arange(x->dims[axis], WB_I32), x->ndim, dims);
    at = wb_eq(at, wb_unsqueeze(wb_argmax(x, axis), axis));
    return at ? wb_astype(at, (wb_dtype)x->dtype) : NULL;
}

/* ---- losses ---------------------------------------------------------------------------------- */

typedef enum { ONNX_LOSS_MEAN, ONNX_LOSS_NONE, ONNX_LOSS_SUM } onnx_loss_reduction;

/* Whether `target` has an integer for each row of x, [N, C, ...], and `weight` a number for each
 * class. */
static bool onnx_loss_fits(const wb__onnx_call *c, const wb_tensor *x, const wb_tensor *target,
                           const wb_tensor *weight)
{
    const wb_dtype t = (wb_dtype)target->dtype;
    bool fits = wb__dtype_float((wb_dtype)x->dtype) && !wb__dtype_float(t) && t != WB_BOOL &&
                x->ndim >= 2 && target->ndim == x->ndim - 1 && x->dims[0] == target->dims[0];
    for (int i = 2; i < x->ndim && fits; i++) fits = x->dims[i] == target->dims[i - 1];
    if (fits && weight) fits = weight->ndim == 1 && weight->dims[0] == x->dims[1];
    return fits || wb__onnx_refuse(c, WB_ERROR_SHAPE, "scores %s, classes %s, weights %s",
                                   wb_describe(x), wb_describe(target),
                                   weight ? wb_describe(weight) : "none");
}

static wb_tensor *onnx_loss_sum_of(wb_tensor *x)
{
    return x ? wb__reduce(WB__OP_sum, x, (1u << x->ndim) - 1, false) : NULL;
}

/* Gives the node the negative logarithms of probabilities, x [N, C, ...], of the classes `target`
 * [N, ...], times their weights.  The mean is weighted too.  Elements of ignore_index have the
 * weight 0. */
static bool onnx_loss_give(wb__onnx_call *c, wb_tensor *x, wb_tensor *target, wb_tensor *weight)
{
    const onnx_loss_reduction r = (onnx_loss_reduction)wb__onnx_word_index(c, "reduction");
    if (!x || !onnx_loss_fits(c, x, target, weight)) return false;
    const wb_dtype t = (wb_dtype)x->dtype, index = (wb_dtype)target->dtype;
    const double ignore = (double)wb__onnx_int(c, "ignore_index");
    wb_tensor *ignored = NULL, *factor = NULL, *zero = wb__literal(0, t);
    if (wb__onnx_attribute(c, "ignore_index") && wb__holds(index, ignore)) {
        ignored = wb_eq(target, wb__literal(ignore, index));
        target = wb_where(ignored, wb__literal(0, index), target);
        if (!target) return false;
    }
    wb_tensor *loss = wb_take_along(x, wb_unsqueeze(target, 1), 1);
    loss = wb_neg(wb_squeeze(loss, 1));
    if (weight) factor = wb_take(weight, target);
    if (ignored) factor = wb_where(ignored, zero, factor ? factor : wb__literal(1, t));
    if (factor) loss = wb_mul(loss, factor);
    if (ignored) loss = wb_where(ignored, zero, loss);
    if (!loss || r == ONNX_LOSS_NONE) return wb__onnx_give(c, loss);
    if (r == ONNX_LOSS_SUM) return wb__onnx_give(c, onnx_loss_sum_of(loss));
    if (!factor) return wb__onnx_give(c, wb__mean(loss, (1u << loss->ndim) - 1, false));
    return wb__onnx_give(c, wb_div(onnx_loss_sum_of(loss), onnx_loss_sum_of(factor)));
}

bool wb__onnx_negative_log_likelihood_loss(wb__onnx_call *c)
{
    return onnx_loss_give(c, c->in[0], c->in[1], wb__onnx_in(c, 2));
}

bool wb__onnx_softmax_cross_entropy_loss(wb__onnx_call *c)
{
    wb_tensor *x = c->in[0];
    if (x->ndim < 2) return wb__onnx_refuse(c, WB_ERROR_SHAPE, "scores %s", wb_describe(x));
    wb_tensor *y = wb_logsoftmax_over(x, 1);
    if (y && wb__onnx_wants(c, 1)) c->out[1] = y;
    return onnx_loss_give(c, y, c->in[1], wb__onnx_in(c, 2));
}
