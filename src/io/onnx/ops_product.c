/* Matrix products of ONNX. */
#include "io/onnx/run.h"

/* Returns the product of integers, [..., m, k] · [..., k, n], which wraps around in their dtype:
 * the sum of products that broadcast. */
static wb_tensor *onnx_product_of_integers(wb_tensor *a, wb_tensor *b)
{
    const bool row = a->ndim == 1, column = b->ndim == 1;
    if (row) a = wb_unsqueeze(a, 0);
    if (column) b = wb_unsqueeze(b, 1);
    wb_tensor *y = wb_mul(wb_unsqueeze(a, -1), wb_unsqueeze(b, -3));
    y = y ? wb__reduce(WB__OP_sum, y, 1u << (y->ndim - 2), false) : NULL;
    if (row) y = wb_squeeze(y, -2);
    return column ? wb_squeeze(y, -1) : y;
}

static bool onnx_product_sizes_fit(const wb__onnx_call *c, const wb_tensor *a, const wb_tensor *b)
{
    if (a->ndim && b->ndim && a->dims[a->ndim - 1] == b->dims[b->ndim > 1 ? b->ndim - 2 : 0])
        return true;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s · %s", wb_describe(a), wb_describe(b));
}

static wb_tensor *onnx_product(const wb__onnx_call *c, wb_tensor *a, wb_tensor *b)
{
    if (!a || !b) return NULL;
    if (wb__dtype_float((wb_dtype)a->dtype)) return wb_matmul(a, b);
    return onnx_product_sizes_fit(c, a, b) ? onnx_product_of_integers(a, b) : NULL;
}

bool wb__onnx_mat_mul(wb__onnx_call *c)
{
    return wb__onnx_give(c, onnx_product(c, c->in[0], c->in[1]));
}

/* Returns x times a number, which is rounded to x's dtype if that is of integers. */
static wb_tensor *onnx_product_times(const wb__onnx_call *c, wb_tensor *x, double factor)
{
    if (!x || factor == 1) return x;
    const wb_dtype t = (wb_dtype)x->dtype;
    if (wb__dtype_float(t) || wb__holds(t, factor)) return wb_mul(x, wb__literal(factor, t));
    wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "alpha or beta is %g, of %s", factor, wb_describe(x));
    return NULL;
}

/* Computes Gemm, alpha a'·b' + beta c.  Before opset 7 `broadcast` is 1 if c has another shape. */
bool wb__onnx_gemm(wb__onnx_call *c)
{
    wb_tensor *a = c->in[0], *b = c->in[1], *sum = wb__onnx_in(c, 2);
    const double alpha = wb__onnx_real(c, "alpha"), beta = wb__onnx_real(c, "beta");
    const bool ta = wb__onnx_int(c, "transA"), tb = wb__onnx_int(c, "transB");
    if (a->ndim != 2 || b->ndim != 2)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s · %s; matrices have two axes", wb_describe(a),
                               wb_describe(b));
    const bool is_dense = !ta && tb && alpha == 1 && beta == 1 && sum && sum->ndim == 1 &&
                          sum->dims[0] == b->dims[0];
    if (is_dense && wb__dtype_float((wb_dtype)a->dtype))
        return wb__onnx_give(c, wb_linear(a, b, sum));
    wb_tensor *y = wb__dtype_float((wb_dtype)a->dtype)
                       ? wb__matmul(a, b, ta, tb)
                       : onnx_product(c, ta ? wb_transpose(a) : a, tb ? wb_transpose(b) : b);
    y = onnx_product_times(c, y, alpha);
    if (!y || !sum || beta == 0) return wb__onnx_give(c, y);
    const int64_t dims[2] = {y->dims[0], y->dims[1]};
    y = wb_add(y, onnx_product_times(c, sum, beta));
    if (y && (y->ndim != 2 || y->dims[0] != dims[0] || y->dims[1] != dims[1]))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "%s does not broadcast to [%lld,%lld]",
                               wb_describe(sum), (long long)dims[0], (long long)dims[1]);
    return wb__onnx_give(c, y);
}
