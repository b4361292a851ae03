/* What several files of operations use. */
#include "io/onnx/ops_common.h"

#include "base/text.h"
#include "io/onnx/frame.h"

#include <math.h>
#include <string.h>

bool wb__onnx_is_fixed(const wb__onnx_call *c, int i)
{
    return wb__onnx_known_of(c, i) != WB__ONNX_VARIES;
}

int wb__onnx_axes(const wb__onnx_call *c, int i, int ndim, int list[WB_MAX_DIMS])
{
    const int64_t *given;
    const int n = wb__onnx_list(c, "axes", i, &given);
    unsigned seen = 0;
    for (int k = 0; k < n; k++) {
        const int axis = wb__onnx_axis(c, given[k], ndim);
        if (axis < 0) return -2;
        if (seen >> axis & 1)
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "axis %d is named twice", axis), -2;
        seen |= 1u << axis;
        list[k] = axis;
    }
    return n;
}

wb_tensor *wb__onnx_number(const wb__onnx_call *c, int i)
{
    double value = 0;
    if (!wb__onnx_alike(c, i)) return NULL;
    wb_tensor *x = c->in[i];
    if (x->size != 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input %d is %s; it must be one number", i,
                               wb_describe(x)), NULL;
    if (wb__onnx_is_fixed(c, i)) {
        if (!wb__onnx_input_real(c, i, &value)) return NULL;
        if (wb__dtype_float((wb_dtype)x->dtype) || fabs(value) < 0x1p53)
            return wb__literal(value, (wb_dtype)x->dtype);
    }
    return wb_reshape_array(x, 0, NULL);
}

wb_dtype wb__onnx_dtype_in(const wb__onnx_call *c, const char *name, wb_dtype otherwise)
{
    const int64_t type = wb__onnx_int(c, name);
    if (!wb__onnx_attribute(c, name) && otherwise) return otherwise;
    const bool is_type = type > 0 && type <= UINT8_MAX;
    const wb_dtype dtype = is_type ? wb__onnx_dtype((wb__onnx_type)type) : 0;
    if (!is_type)
        wb__onnx_refuse(c, WB_ERROR_FORMAT, "its attribute '%s' is %lld, which is no dtype of ONNX",
                        name, (long long)type);
    else if (!dtype)
        wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its attribute '%s' is %s, which Weber lacks",
                        name, wb__onnx_type_name((wb__onnx_type)type));
    return dtype;
}

wb_tensor *wb__onnx_from(const wb_tensor *like, const void *values, wb_dtype dtype, int ndim,
                         const int64_t *dims)
{
    const wb_device *was = wb__use_device(wb__device_of(like));
    wb_tensor *x = wb_from(values, dtype, ndim, dims);
    wb__use_device(was);
    return x;
}

wb_tensor *wb__onnx_place(wb_tensor *x, const int64_t *start, const int64_t *dims)
{
    int64_t from[WB_MAX_DIMS], n[WB_MAX_DIMS], to[WB_MAX_DIMS];
    bool cut = false, padded = false;
    for (int i = 0; x && i < x->ndim; i++) {
        from[i] = WB__MAX(-start[i], 0);
        to[i] = WB__MAX(start[i], 0);
        n[i] = WB__MIN(x->dims[i] - from[i], dims[i] - to[i]);
        if (n[i] < 0) n[i] = from[i] = to[i] = 0;
        cut |= n[i] != x->dims[i];
        padded |= n[i] != dims[i];
    }
    if (!x || (!cut && !padded)) return x ? wb__unchanged(x) : NULL;
    const int ndim = x->ndim;
    if (cut) x = wb__slice_at(x, from, n, NULL);
    return padded && x ? wb__concat_at(ndim, dims, 1, &x, to) : x;
}

/* Returns x rounded.  x - floor(x) is exact, except for -0.5 < x < 0, where it may be rounded to
 * 0.5, and the even neighbour, 0, is right too.  The product with 0 keeps the sign of a result
 * 0. */
wb_tensor *wb__onnx_rounded(wb_tensor *x)
{
    wb_tensor *below = wb_floor(x), *rest = wb_sub(x, below);
    wb_tensor *half = wb__number_of(0.5), *halved = wb_mul(below, half);
    wb_tensor *odd = wb_ne(halved, wb_floor(halved));
    wb_tensor *up = wb_or(wb_gt(rest, half), wb_and(wb_eq(rest, half), odd));
    wb_tensor *y = wb_where(up, wb_add(below, wb__number_of(1)), below);
    return wb_where(wb_eq(y, wb__number_of(0)), wb_mul(x, wb__number_of(0)), y);
}
