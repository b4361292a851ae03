/* Products, convolutions, pools and rows by number: what a backend has kernels of its own for. */
#include "engine/tensor.h"

#include <string.h>

/* ---- matrix products ------------------------------------------------------------------------- */

/* a [..., m, k] (or [..., k, m] transposed) times b; leading axes broadcast. */
wb_tensor *wb__matmul(wb_tensor *a, wb_tensor *b, bool ta, bool tb)
{
    if (!a || !b) return NULL;
    wb_tensor lead_a = {.ndim = (uint8_t)(a->ndim - 2), .dtype = a->dtype};
    wb_tensor lead_b = {.ndim = (uint8_t)(b->ndim - 2), .dtype = b->dtype};
    memcpy(lead_a.dims, a->dims, sizeof a->dims);
    memcpy(lead_b.dims, b->dims, sizeof b->dims);
    const int64_t *da = a->dims + a->ndim - 2, *db = b->dims + b->ndim - 2;
    int64_t m = da[ta], k = da[!ta], n = db[!tb], dims[WB_MAX_DIMS], size;
    int ndim;
    if (a->dtype != b->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "matmul: dtypes differ: %s · %s", wb_describe(a),
                             wb_describe(b));
    if (k != db[tb])
        return wb__fail_null(WB_ERROR_SHAPE, "matmul: inner sizes differ: %s%s · %s%s",
                             wb_describe(a), ta ? " transposed" : "", wb_describe(b),
                             tb ? " transposed" : "");
    if (!wb__broadcast("matmul", &lead_a, &lead_b, &ndim, dims)) return NULL;
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
    if (x && w && x->ndim > 2 && w->ndim == 2) {        /* rows of all batches at once */
        int64_t dims[WB_MAX_DIMS];
        memcpy(dims, x->dims, sizeof dims);
        dims[x->ndim - 1] = w->dims[1];
        int ndim = x->ndim;
        wb_tensor *flat = wb_reshape_to(
            x, 2, (int64_t[]){x->size / WB__MAX(x->dims[ndim - 1], 1), x->dims[ndim - 1]});
        if (x->dims[ndim - 1])
            return wb_reshape_to(wb__matmul(flat, w, false, false), column ? ndim - 1 : ndim, dims);
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
    if (b != WB_NONE && (b->ndim != 1 || b->dims[0] != w->dims[0]))
        return wb__fail_null(WB_ERROR_SHAPE, "linear: the bias is %s; the weight %s wants [%lld]",
                             wb_describe(b), wb_describe(w), (long long)w->dims[0]);
    int64_t in = w->dims[1], dims[WB_MAX_DIMS], rows = 1;
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = w->dims[0];
    for (int i = 0; i < x->ndim - 1; i++) rows *= dims[i];
    wb_tensor *flat = x->ndim == 2 ? x : wb_reshape_to(x, 2, (int64_t[]){rows, in});
    wb_tensor *y = wb__matmul(flat, w, false, true);
    if (b != WB_NONE) y = wb_add(y, b);
    return x->ndim == 2 ? y : wb_reshape_to(y, x->ndim, dims);
}

/* ---- convolutions and pools ------------------------------------------------------------------ */

static bool window_size(const char *what, const wb_tensor *x, const int64_t *k,
                        const int64_t *stride, const int64_t *pad, const int64_t *dilation,
                        int64_t *size)
{
    for (int i = 0; i < 2; i++) {
        int64_t most = WB__MAX(WB__MAX(k[i], stride[i]), WB__MAX(pad[2 * i], pad[2 * i + 1]));
        if (dilation) most = WB__MAX(most, dilation[i]);
        if (most > INT32_MAX) {             /* what follows cannot overflow */
            wb__fail(WB_ERROR_ARGUMENT, "%s: %lld as a size of window, stride, dilation or padding",
                     what, (long long)most);
            return false;
        }
        int64_t padded = x->dims[2 + i] + pad[2 * i] + pad[2 * i + 1],
                reach = (k[i] - 1) * (dilation ? dilation[i] : 1) + 1;
        if (k[i] < 1 || stride[i] < 1 || pad[2 * i] < 0 || pad[2 * i + 1] < 0 ||
            (dilation && dilation[i] < 1)) {
            wb__fail(WB_ERROR_ARGUMENT,
                     "%s: window %lldx%lld, stride %lldx%lld, padding %lld,%lld,%lld,%lld: "
                     "window, stride and dilation are at least 1, padding at least 0",
                     what, (long long)k[0], (long long)k[1], (long long)stride[0],
                     (long long)stride[1], (long long)pad[0], (long long)pad[1], (long long)pad[2],
                     (long long)pad[3]);
            return false;
        }
        if (padded < reach) {
            wb__fail(
                WB_ERROR_SHAPE,
                "%s: a window of %lldx%lld does not fit into %s with padding %lld,%lld,%lld,%lld",
                what, (long long)k[0], (long long)k[1], wb_describe(x), (long long)pad[0],
                (long long)pad[1], (long long)pad[2], (long long)pad[3]);
            return false;
        }
        size[i] = (padded - reach) / stride[i] + 1;
    }
    return true;
}

/* {0, 0} is the default, {s} is {s, s}. */
static void default_pair(int64_t *v, int64_t first, int64_t second)
{
    if (!v[1]) v[1] = v[0] ? v[0] : second;
    if (!v[0]) v[0] = first;
}

wb_tensor *wb_conv_with(wb_tensor *x, wb_tensor *w, wb_tensor *b, const wb_conv_settings *settings)
{
    if (!wb__floating("conv", x) || !wb__floating("conv", w) ||
        (!b && wb__null("conv", "b (WB_NONE for no bias)")))
        return NULL;
    wb_conv_settings s = {0};
    if (settings) memcpy(&s, settings, WB__MIN(settings->size, sizeof s));
    wb__conv_attr a = {.groups = s.groups ? s.groups : 1};
    memcpy(a.stride, s.stride, sizeof a.stride);
    memcpy(a.dilation, s.dilation, sizeof a.dilation);
    memcpy(a.pad, s.pad, sizeof a.pad);
    default_pair(a.stride, 1, 1);
    default_pair(a.dilation, 1, 1);
    if (x->dtype != w->dtype)
        return wb__fail_null(WB_ERROR_DTYPE, "conv: dtypes differ: %s · %s", wb_describe(x),
                             wb_describe(w));
    if (x->ndim != 4 || w->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "conv: %s · %s: want [N,C,H,W] · [K,C/groups,kh,kw]",
                             wb_describe(x), wb_describe(w));
    if (!w->dims[1])
        return wb__fail_null(WB_ERROR_SHAPE, "conv: no channels: %s · %s", wb_describe(x),
                             wb_describe(w));
    if (a.groups < 1 || x->dims[1] != w->dims[1] * a.groups || w->dims[0] % a.groups)
        return wb__fail_null(WB_ERROR_SHAPE, "conv: channels do not fit: %s · %s in %lld group%s",
                             wb_describe(x), wb_describe(w), (long long)a.groups,
                             a.groups == 1 ? "" : "s");
    if (b != WB_NONE && (b->ndim != 1 || b->dims[0] != w->dims[0]))
        return wb__fail_null(WB_ERROR_SHAPE, "conv: the bias is %s; the weight %s wants [%lld]",
                             wb_describe(b), wb_describe(w), (long long)w->dims[0]);
    if (!window_size("conv", x, w->dims + 2, a.stride, a.pad, a.dilation, a.size)) return NULL;
    int64_t dims[4] = {x->dims[0], w->dims[0], a.size[0], a.size[1]}, size;
    if (!wb__check_dims("conv", 4, dims, &size)) return NULL;
    wb_tensor *y = wb__node(WB__OP_conv, (wb_dtype)x->dtype, 4, dims, 2, (wb_tensor *[]){x, w},
                            sizeof a / 8, (int64_t *)&a);
    return b == WB_NONE ? y : wb_add(y, wb_reshape_to(b, 3, (int64_t[]){b->dims[0], 1, 1}));
}

static wb_tensor *pool(const char *what, wb__op op, wb_tensor *x, const wb_pool_settings *settings)
{
    if (!wb__floating(what, x)) return NULL;
    wb_pool_settings s = {0};
    if (settings) memcpy(&s, settings, WB__MIN(settings->size, sizeof s));
    wb__pool_attr a = {{0}, {0}, {0}, {0}};
    memcpy(a.window, s.window, sizeof a.window);
    memcpy(a.stride, s.stride, sizeof a.stride);
    memcpy(a.pad, s.pad, sizeof a.pad);
    if (!a.window[1]) a.window[1] = a.window[0];
    default_pair(a.stride, a.window[0], a.window[1]);
    if (x->ndim != 4)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s: wants [N,C,H,W]", what, wb_describe(x));
    if (!window_size(what, x, a.window, a.stride, a.pad, NULL, a.size)) return NULL;
    for (int i = 0; i < 4; i++)
        if (a.pad[i] >= a.window[i / 2])
            return wb__fail_null(
                WB_ERROR_ARGUMENT, "%s: padding %lld is not smaller than the window %lldx%lld",
                what, (long long)a.pad[i], (long long)a.window[0], (long long)a.window[1]);
    int64_t dims[4] = {x->dims[0], x->dims[1], a.size[0], a.size[1]}, size;
    if (!wb__check_dims(what, 4, dims, &size)) return NULL;
    return wb__node(op, (wb_dtype)x->dtype, 4, dims, 1, &x, sizeof a / 8, (int64_t *)&a);
}

wb_tensor *wb_maxpool_with(wb_tensor *x, const wb_pool_settings *s)
{
    return pool("maxpool", WB__OP_maxpool, x, s);
}
wb_tensor *wb_meanpool_with(wb_tensor *x, const wb_pool_settings *s)
{
    return pool("meanpool", WB__OP_meanpool, x, s);
}

/* ---- rows by number -------------------------------------------------------------------------- */

wb_tensor *wb_take(wb_tensor *x, wb_tensor *index)
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
