/* Losses. crossentropy and logitcrossentropy are means over all rows, the other losses are means
 * over all elements. Losses of f16 and bf16 are computed in f32 and returned as f32. */
#include "nn/layer.h"

/* Checks that yhat and y have the same shape, device and dtype, where f16 and bf16 count as f32.
 * Converts f16 and bf16 to f32. */
static bool match(const char *what, wb_tensor **yhat_at, wb_tensor **y_at)
{
    wb_tensor *yhat = *yhat_at, *y = *y_at;
    if (!wb__floating(what, yhat) || !wb__operand(what, y)) return false;
    if (!wb__same_dims(yhat, y))
        return wb__fail(WB_ERROR_SHAPE, "%s: shapes differ: %s · %s", what, wb_describe(yhat),
                        wb_describe(y)),
               false;
    if (!wb__one_device(what, yhat, y)) return false;
    if (wb__computed_in((wb_dtype)yhat->dtype) == wb__computed_in((wb_dtype)y->dtype)) {
        *yhat_at = wb__wide(yhat);
        *y_at = wb__wide(y);
        return *yhat_at && *y_at;
    }
    return wb__fail(WB_ERROR_DTYPE, "%s: dtypes differ: %s · %s", what, wb_describe(yhat),
                    wb_describe(y)),
           false;
}

static wb_tensor *mean_of_all(wb_tensor *x)
{
    return x ? wb__mean(x, (1u << x->ndim) - 1, false) : NULL;
}

/* Returns -sum(x) / rows, where rows is the product of all dimensions except the last. */
static wb_tensor *minus_mean_of_rows(wb_tensor *x)
{
    if (!x) return NULL;
    double rows = 1;
    for (int i = 0; i + 1 < x->ndim; i++) rows *= (double)x->dims[i];
    return wb_mul(wb__reduce(WB__OP_sum, x, (1u << x->ndim) - 1, false), wb_scalar(-1 / rows));
}

/* Returns the machine epsilon of x's dtype: the distance from 1 to the next number. */
static wb_tensor *epsilon(const wb_tensor *x)
{
    switch (x->dtype) {
    case WB_F64: return wb_scalar(2.220446049250313e-16);
    case WB_F16: return wb_scalar(9.765625e-4);
    case WB_BF16: return wb_scalar(7.8125e-3);
    default: return wb_scalar(1.1920928955078125e-7);
    }
}

static wb_tensor *mse(wb_tensor *yhat, wb_tensor *y)
{
    if (WB__NULL(yhat) || WB__NULL(y) || !match("mse", &yhat, &y)) return NULL;
    return mean_of_all(wb_square(wb_sub(yhat, y)));
}

static wb_tensor *mae(wb_tensor *yhat, wb_tensor *y)
{
    if (WB__NULL(yhat) || WB__NULL(y) || !match("mae", &yhat, &y)) return NULL;
    return mean_of_all(wb_abs(wb_sub(yhat, y)));
}

/* The Huber loss of one element is q (e - q/2), where e = |yhat - y| and q = min(e, delta). This is
 * e²/2 for e up to delta, and delta (e - delta/2) beyond. */
static wb_tensor *huber(wb_tensor *yhat, wb_tensor *y, double delta)
{
    if (WB__NULL(yhat) || WB__NULL(y) || !match("huber", &yhat, &y)) return NULL;
    if (!(delta > 0))
        return wb__fail_null(WB_ERROR_ARGUMENT, "huber: delta is %g; it must be positive", delta);
    wb_tensor *e = wb_abs(wb_sub(yhat, y)), *q = wb_minimum(e, wb_scalar(delta));
    return mean_of_all(wb_mul(q, wb_sub(e, wb_mul(q, wb_scalar(0.5)))));
}

static bool has_rows(const char *what, const wb_tensor *x)
{
    if (x->ndim >= 1 && x->size) return true;
    return wb__fail(WB_ERROR_SHAPE, "%s: no classes in %s", what, wb_describe(x)), false;
}

static wb_tensor *crossentropy(wb_tensor *yhat, wb_tensor *y)
{
    const wb_tensor *given = yhat;
    if (WB__NULL(yhat) || WB__NULL(y) || !match("crossentropy", &yhat, &y) ||
        !has_rows("crossentropy", yhat))
        return NULL;
    return minus_mean_of_rows(wb_mul(y, wb_log(wb_add(yhat, epsilon(given)))));
}

static wb_tensor *logitcrossentropy(wb_tensor *logits, wb_tensor *y)
{
    if (WB__NULL(logits) || WB__NULL(y) || !match("logitcrossentropy", &logits, &y) ||
        !has_rows("logitcrossentropy", logits))
        return NULL;
    return minus_mean_of_rows(wb_mul(y, wb_logsoftmax(logits)));
}

static wb_tensor *binarycrossentropy(wb_tensor *yhat, wb_tensor *y)
{
    if (WB__NULL(yhat) || WB__NULL(y)) return NULL;
    wb_tensor *eps = epsilon(yhat);
    if (!eps || !match("binarycrossentropy", &yhat, &y)) return NULL;
    wb_tensor *one = wb_scalar(1);
    wb_tensor *yes = wb_mul(y, wb_log(wb_add(yhat, eps)));
    wb_tensor *no = wb_mul(wb_sub(one, y), wb_log(wb_add(wb_sub(one, yhat), eps)));
    return mean_of_all(wb_neg(wb_add(yes, no)));
}

static wb_tensor *logitbinarycrossentropy(wb_tensor *logits, wb_tensor *y)
{
    if (WB__NULL(logits) || WB__NULL(y) || !match("logitbinarycrossentropy", &logits, &y))
        return NULL;
    return mean_of_all(wb_sub(wb_mul(wb_sub(wb_scalar(1), y), logits), wb_logsigmoid(logits)));
}

/* ---- public functions ------------------------------------------------------------------------ */

#define LOSS(name)                                          \
    wb_tensor *wb_##name(wb_tensor *yhat, wb_tensor *y)     \
    {                                                       \
        const wb__frame f = wb__frame_begin();              \
        return wb__frame_end(f, name(yhat, y));             \
    }
LOSS(mse)
LOSS(mae)
LOSS(crossentropy)
LOSS(logitcrossentropy)
LOSS(binarycrossentropy)
LOSS(logitbinarycrossentropy)

wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, double delta)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, huber(yhat, y, delta));
}
