/* Tensors without operands: literals (filled with one number), counts (iota) and random numbers.  A
 * plan generates their elements where they are read, and stores them only if a reader needs an
 * array. */
#include "base/numbers/philox.h"
#include "engine/tensor.h"

#include <math.h>

static wb_tensor *add_source(const char *what, wb__op op, wb_dtype dtype, int ndim,
                             const int64_t *dims, int n_attr, const int64_t *attr, int n_numbers,
                             const wb__number *numbers)
{
    int64_t size;
    if (!wb__check_dims(what, ndim, dims, &size) || !wb__is_dtype(what, dtype)) return NULL;
    return wb__made(
        wb__node_with(op, dtype, ndim, dims, 0, NULL, n_attr, attr, n_numbers, numbers));
}

wb_tensor *wb_full_array(double value, wb_dtype dtype, int ndim, const int64_t *dims)
{
    return add_source("full", WB__OP_literal, dtype, ndim, dims, 0, NULL, 1,
                      &(wb__number){.f = value});
}

static wb_tensor *source_iota(wb_dtype dtype, int ndim, const int64_t *dims, int64_t axis)
{
    return add_source("arange", WB__OP_iota, dtype, ndim, dims, 1, &axis, 0, NULL);
}

wb_tensor *wb_arange(int64_t n, wb_dtype dtype) { return source_iota(dtype, 1, &n, 0); }

wb_tensor *wb_linspace(double first, double last, int64_t n, wb_dtype dtype)
{
    int64_t size;
    if (!wb__check_dims("linspace", 1, &n, &size) || !wb__is_dtype("linspace", dtype)) return NULL;
    if (!wb__dtype_float(dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "linspace: %s numbers; it gives floating ones: "
                             "wb_arange counts", wb_dtype_name(dtype));
    if (!isfinite(last - first))
        return wb__fail_null(WB_ERROR_ARGUMENT, "linspace: from %g to %g; both are finite, and so "
                             "is their distance", first, last);
    double *v = wb__alloc((size_t)WB__MAX(n, 1) * sizeof *v);
    const double step = (last - first) / (double)WB__MAX(n - 1, 1);
    for (int64_t i = 0; v && i < n; i++)        /* from both ends, so that both are exact */
        v[i] = 2 * i < n ? first + (double)i * step : last - (double)(n - 1 - i) * step;
    return wb__from_doubles(v, dtype, 1, &n);
}

wb_tensor *wb_eye(int64_t n, wb_dtype dtype)
{
    int64_t dims[2] = {n, n};
    return wb_astype(wb_eq(source_iota(WB_I32, 2, dims, 0), source_iota(WB_I32, 2, dims, 1)),
                     dtype);
}

wb_tensor *wb_causal_mask(int64_t queries, int64_t keys)
{
    int64_t dims[2] = {queries, keys};
    return wb_le(source_iota(WB_I32, 2, dims, 1), source_iota(WB_I32, 2, dims, 0));
}

/* Returns a tensor of random numbers.  The counters of the generator are reserved here, not at the
 * evaluation, so that the numbers do not depend on which tensors are evaluated.  One counter gives
 * four elements. */
static wb_tensor *reserve_random(const char *what, wb__op op, wb_dtype dtype, int ndim,
                                 const int64_t *dims)
{
    int64_t size;
    if (!wb__check_dims(what, ndim, dims, &size)) return NULL;
    if (!wb__dtype_float(dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "%s: floating dtypes only", what);
    uint64_t key, counter;
    wb__rng_take((uint64_t)(size + 3) / 4, &key, &counter);
    return add_source(what, op, dtype, ndim, dims, 0, NULL, 2,
                      (wb__number[]){{.u = key}, {.u = counter}});
}

wb_tensor *wb_rand_array(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return reserve_random("rand", WB__OP_uniform, dtype, ndim, dims);
}

wb_tensor *wb__uniform_beside(const wb_tensor *x, wb_dtype dtype, int ndim, const int64_t *dims)
{
    const wb_device *was = wb__use_device(wb__device_of(x));
    wb_tensor *u = wb_rand_array(dtype, ndim, dims);
    wb__use_device(was);
    return u;
}

wb_tensor *wb_randn_array(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return reserve_random("randn", WB__OP_gaussian, dtype, ndim, dims);
}

wb_tensor *wb__zeros_like(wb_tensor *x) { return x ? wb_full_like(x, 0) : NULL; }

wb_tensor *wb_full_like(wb_tensor *x, double value)
{
    if (!wb__operand("full_like", x)) return NULL;
    return wb__with_device(wb_full_array(value, (wb_dtype)x->dtype, x->ndim, x->dims), x->device);
}

wb_tensor *wb_rand_like(wb_tensor *x)
{
    if (!wb__operand("rand_like", x)) return NULL;
    return wb__uniform_beside(x, (wb_dtype)x->dtype, x->ndim, x->dims);
}

wb_tensor *wb_randn_like(wb_tensor *x)
{
    if (!wb__operand("randn_like", x)) return NULL;
    const wb_device *was = wb__use_device(wb__device_of(x));
    wb_tensor *y = wb_randn_array((wb_dtype)x->dtype, x->ndim, x->dims);
    wb__use_device(was);
    return y;
}

static wb_tensor *source_onehotbatch(wb_tensor *labels, int64_t classes)
{
    if (!wb__operand("onehotbatch", labels)) return NULL;
    if (wb__dtype_float((wb_dtype)labels->dtype) || labels->dtype == WB_BOOL)
        return wb__fail_null(WB_ERROR_DTYPE, "onehotbatch: labels are %s, not integers",
                             wb_describe(labels));
    if (classes < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "onehotbatch: %lld classes", (long long)classes);
    if (labels->ndim == WB_MAX_DIMS)
        return wb__fail_null(WB_ERROR_SHAPE, "onehotbatch: labels %s have no room for an axis",
                             wb_describe(labels));
    if (!wb__labels_below("onehotbatch", labels, classes, NULL)) return NULL;
    if (labels->dtype != WB_I64) labels = wb_astype(labels, classes > INT32_MAX ? WB_I64 : WB_I32);
    if (!labels) return NULL;
    wb_tensor *number = source_iota((wb_dtype)labels->dtype, 1, &classes, 0);
    return wb_astype(wb_eq(wb_unsqueeze(labels, -1), number), WB_F32);
}

wb_tensor *wb_onehotbatch(wb_tensor *labels, int64_t classes)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, source_onehotbatch(labels, classes));
}

static wb_tensor *source_dropout(wb_tensor *x, double p)
{
    if (!wb__floating("dropout", x)) return NULL;
    if (!(p >= 0 && p <= 1))
        return wb__fail_null(WB_ERROR_ARGUMENT, "dropout: p is %g; it must be in [0, 1]", p);
    if (p == 0) return wb__unchanged(x);
    wb_dtype draws = x->dtype == WB_F64 ? WB_F64 : WB_F32;
    wb_tensor *keep = wb_gt(wb__uniform_beside(x, draws, x->ndim, x->dims), wb__argument(p, draws));
    wb_tensor *scale = wb__argument(p < 1 ? 1 / (1 - p) : 0, (wb_dtype)x->dtype);
    return wb_where(keep, wb_mul(x, scale), wb__literal(0, (wb_dtype)x->dtype));
}

wb_tensor *wb_dropout(wb_tensor *x, double p)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, source_dropout(x, p));
}

wb_tensor *wb__from_doubles(double *values, wb_dtype dtype, int ndim, const int64_t *dims)
{
    int64_t size = 0;
    wb_tensor *x = NULL;
    if (values && wb__is_dtype("from", dtype) && wb__check_dims("from", ndim, dims, &size)) {
        void *rounded = wb__alloc((size_t)WB__MAX(size, 1) * wb__dtype_size(dtype));
        if (rounded) wb__convert(rounded, dtype, values, WB_F64, size);
        if (rounded) x = wb_from(rounded, dtype, ndim, dims);
        wb__free(rounded);
    }
    wb__free(values);
    return x;
}
