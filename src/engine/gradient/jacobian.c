/* Jacobians and Hessians, by one gradient walk for each row; derivatives in a direction, by two. */
#include "engine/tensor.h"

static wb_tensor *jacobian(wb_tensor *y, wb_tensor *x)
{
    if (!wb__floating("jacobian", y) || !wb__floating("jacobian", x)) return NULL;
    int64_t n = y->size, width = x->size;
    if (!n) return wb_full_array(0, (wb_dtype)x->dtype, 2, (int64_t[]){0, width});
    if (n > INT32_MAX)
        return wb__fail_null(WB_ERROR_SHAPE, "jacobian: %s has too many rows", wb_describe(y));
    wb_tensor **row = wb__alloc((size_t)n * sizeof *row), *flat = wb_reshape_array(y, 1, &n),
              *all = NULL;
    int64_t i = 0;
    for (; row && flat && i < n; i++) {
        wb_tensor *g = NULL, *one = wb_reshape_array(wb_slice(flat, 0, i, i + 1), 0, NULL);
        if (!one || wb__gradients(one, 1, &x, &g)) break;
        row[i] = wb_reshape_array(g ? g : wb__zeros_like(x), 1, &width);
        if (!row[i]) break;
    }
    if (row && i == n) all = wb_stack_array(0, (int)n, row);
    wb__free(row);
    return all;
}

wb_tensor *wb_jacobian(wb_tensor *y, wb_tensor *x)
{
    WB__EDGE;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, jacobian(y, x));
}

static wb_tensor *hessian(wb_tensor *loss, wb_tensor *x)
{
    wb_tensor *g = NULL;
    if (WB__NULL(loss) || !wb__floating("hessian", x) || wb__gradients(loss, 1, &x, &g))
        return NULL;
    return jacobian(g ? g : wb__zeros_like(x), x);
}

wb_tensor *wb_hessian(wb_tensor *loss, wb_tensor *x)
{
    WB__EDGE;
    if (!wb__operand("hessian", loss)) return NULL;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, hessian(loss, x));
}

static wb_tensor *pushforward(wb_tensor *y, wb_tensor *x, wb_tensor *dx)
{
    if (!wb__floating("pushforward", y) || !wb__floating("pushforward", x) ||
        !wb__operand("pushforward", dx))
        return NULL;
    if (!wb__same_dims(x, dx) || x->dtype != dx->dtype)
        return wb__fail_null(x->dtype == dx->dtype ? WB_ERROR_SHAPE : WB_ERROR_DTYPE,
                             "pushforward: dx is %s, and x is %s", wb_describe(dx), wb_describe(x));
    wb_tensor *g = NULL, *result = NULL, *u = wb__zeros_like(y);
    wb_tensor *sum = u ? wb_sum(wb_mul(y, u)) : NULL;
    if (!sum || wb__gradients(sum, 1, &x, &g)) return NULL;
    if (g && (!(sum = wb_sum(wb_mul(g, dx))) || wb__gradients(sum, 1, &u, &result))) return NULL;
    return result ? result : wb__zeros_like(y);
}

wb_tensor *wb_pushforward(wb_tensor *y, wb_tensor *x, wb_tensor *dx)
{
    WB__EDGE;
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, pushforward(y, x, dx));
}
