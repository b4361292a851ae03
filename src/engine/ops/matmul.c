/* Matrix products: wb_matmul, and wb_linear, which adds a bias. */
#include "engine/ops/op.h"

#include <string.h>

/* Sets *ndim and dims to the leading axes, all but the last two, broadcast to each other. */
static bool broadcast_leading(const wb_tensor *a, const wb_tensor *b, int *ndim, int64_t *dims)
{
    wb_tensor x = {.ndim = (uint8_t)(a->ndim - 2), .dtype = a->dtype};
    wb_tensor y = {.ndim = (uint8_t)(b->ndim - 2), .dtype = b->dtype};
    memcpy(x.dims, a->dims, sizeof x.dims);
    memcpy(y.dims, b->dims, sizeof y.dims);
    return wb__broadcast("matmul", &x, &y, ndim, dims);
}

/* Returns the product of a, [..., m, k] ([..., k, m] if `ta`), and b, [..., k, n] ([..., n, k] if
 * `tb`).  Leading axes broadcast. */
wb_tensor *wb__matmul(wb_tensor *a, wb_tensor *b, bool ta, bool tb)
{
    if (!a || !b) return NULL;
    const int64_t *da = a->dims + a->ndim - 2, *db = b->dims + b->ndim - 2;
    int64_t m = da[ta], k = da[!ta], n = db[!tb], dims[WB_MAX_DIMS], size;
    int ndim = 0;
    if (a->dtype != b->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "matmul: dtypes differ: %s · %s", wb_describe(a),
                             wb_describe(b));
    if (k != db[tb])
        return wb__fail_null(WB_ERROR_SHAPE, "matmul: inner sizes differ: %s%s · %s%s",
                             wb_describe(a), ta ? " transposed" : "", wb_describe(b),
                             tb ? " transposed" : "");
    if ((a->ndim > 2 || b->ndim > 2) && !broadcast_leading(a, b, &ndim, dims)) return NULL;
    dims[ndim++] = m;
    dims[ndim++] = n;
    if (!wb__check_dims("matmul", ndim, dims, &size)) return NULL;
    return wb__node(WB__OP_matmul, (wb_dtype)a->dtype, ndim, dims, 2, (wb_tensor *[]){a, b}, 2,
                    (int64_t[]){ta, tb});
}

wb_tensor *wb_matmul(wb_tensor *x, wb_tensor *w)
{
    if (!wb__floating("matmul", x) || !wb__floating("matmul", w)) return NULL;
    if (!x->ndim || !w->ndim)
        return wb__fail_null(WB_ERROR_SHAPE, "matmul: of a scalar: %s · %s", wb_describe(x),
                             wb_describe(w));
    if (x->dtype != w->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "matmul: dtypes differ: %s · %s", wb_describe(x),
                             wb_describe(w));
    bool row = x->ndim == 1, column = w->ndim == 1;
    if (x->dims[x->ndim - 1] != w->dims[column ? 0 : w->ndim - 2])
        return wb__fail_null(WB_ERROR_SHAPE, "matmul: inner sizes differ: %s · %s", wb_describe(x),
                             wb_describe(w));
    if (row) x = wb_unsqueeze(x, 0);
    if (column) w = wb_unsqueeze(w, 1);
    if (x && w && x->ndim > 2 && w->ndim == 2) {    /* the rows of all batches make one matrix */
        int64_t dims[WB_MAX_DIMS];
        memcpy(dims, x->dims, sizeof dims);
        dims[x->ndim - 1] = w->dims[1];
        int ndim = x->ndim;
        wb_tensor *flat = wb_reshape_array(
            x, 2, (int64_t[]){x->size / WB__MAX(x->dims[ndim - 1], 1), x->dims[ndim - 1]});
        if (x->dims[ndim - 1])
            return wb_reshape_array(wb__matmul(flat, w, false, false), column ? ndim - 1 : ndim,
                                    dims);
    }
    wb_tensor *y = wb__matmul(x, w, false, false);
    if (row) y = wb_squeeze(y, -2);
    return column ? wb_squeeze(y, -1) : y;
}

wb_tensor *wb_linear(wb_tensor *x, wb_tensor *w, wb_tensor *b)
{
    if (!wb__floating("linear", x) || !wb__floating("linear", w) ||
        (!b && wb__null("linear", "b (WB_NONE for no bias)")))
        return NULL;
    if (w->ndim != 2 || x->ndim < 1 || x->dims[x->ndim - 1] != w->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "linear: %s · %s: want [..., in] · [out, in]",
                             wb_describe(x), wb_describe(w));
    if (x->dtype != w->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "linear: dtypes differ: %s · %s", wb_describe(x),
                             wb_describe(w));
    if (!wb__bias_fits("linear", b, w, w->dims[0])) return NULL;
    int64_t in = w->dims[1], dims[WB_MAX_DIMS], rows = 1;
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = w->dims[0];
    for (int i = 0; i < x->ndim - 1; i++) rows *= dims[i];
    wb_tensor *flat = x->ndim == 2 ? x : wb_reshape_array(x, 2, (int64_t[]){rows, in});
    wb_tensor *y = wb__matmul(flat, w, false, true);
    if (b != WB_NONE) y = wb_add(y, b);
    return x->ndim == 2 ? y : wb_reshape_array(y, x->ndim, dims);
}

static void contribute_matmul(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a,
                              wb_tensor *b, bool ta, bool tb, wb_tensor **out)
{
    wb_tensor *x = node->in[i];
    out[i] = WB_NONE;
    if (a->ndim == 2 && b->ndim == 2) wb__contribute_product(w, node, i, a, b, ta, tb);
    else out[i] = wb__sum_to(wb__matmul(a, b, ta, tb), x->ndim, x->dims);
}

/* Adds the products that are the gradients of a and b.  Let a' and b' be the operands after their
 * transpositions, and g the gradient of a'·b'.  Then g·b'ᵀ is the gradient of a', and a'ᵀ·g that of
 * b'.  The gradient of a transposed operand is transposed. */
GRADIENT(matmul)
{
    wb_tensor *a = node->in[0], *b = node->in[1];
    bool ta = node->attr[0], tb = node->attr[1];
    if (wanted[0] && !ta) contribute_matmul(w, node, 0, g, b, false, !tb, out);
    if (wanted[0] && ta) contribute_matmul(w, node, 0, b, g, tb, true, out);
    if (wanted[1] && !tb) contribute_matmul(w, node, 1, a, g, !ta, false, out);
    if (wanted[1] && tb) contribute_matmul(w, node, 1, g, a, true, ta, out);
}

FILL(MATMUL)
{
    const int64_t *t = wb__attrs_of(m, v);
    wb__add_matrix(m, wb__operand_of(m, v, 0), t[0], v);
    wb__add_matrix(m, wb__operand_of(m, v, 1), t[1], v);
    wb__add_any(m, p->result);
}
