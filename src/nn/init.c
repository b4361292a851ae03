/* Initialisers of parameters. Random numbers come from the generator that wb_seed seeds. */
#include "nn/layer.h"

#include <math.h>

/* Sets *in to fan_in and *out to fan_out. They are 1 and n for a vector [n], in and out for a
 * matrix [out, in], and in·k and out·k for a kernel [out, in, ...] whose further dimensions have
 * the product k. Each is at least 1. False, with the error set: invalid dims. */
static bool fans(const char *what, int ndim, const int64_t *dims, double *in, double *out)
{
    double kernel = 1;
    int64_t size;
    if (!wb__check_dims(what, ndim, dims, &size)) return false;
    for (int i = 2; i < ndim; i++) kernel *= (double)dims[i];
    *out = ndim ? (double)dims[0] * kernel : 1;
    *in = ndim > 1 ? (double)dims[1] * kernel : 1;
    if (*in < 1) *in = 1;
    if (*out < 1) *out = 1;
    return true;
}

static wb_tensor *uniform(wb_dtype dtype, int ndim, const int64_t *dims, double bound)
{
    return wb_mul(wb_sub(wb_rand_array(dtype, ndim, dims), wb_scalar(0.5)), wb_scalar(2 * bound));
}

static wb_tensor *normal(wb_dtype dtype, int ndim, const int64_t *dims, double sigma)
{
    return wb_mul(wb_randn_array(dtype, ndim, dims), wb_scalar(sigma));
}

#define INITIALISER(name, draw, width)                                              \
    wb_tensor *wb_##name(wb_dtype dtype, int ndim, const int64_t *dims)             \
    {                                                                               \
        double in, out;                                                             \
        return fans(#name, ndim, dims, &in, &out) ? draw(dtype, ndim, dims, width) : NULL; \
    }
INITIALISER(glorot_uniform, uniform, sqrt(6 / (in + out)))
INITIALISER(glorot_normal, normal, sqrt(2 / (in + out)))
INITIALISER(kaiming_uniform, uniform, sqrt(2) * sqrt(3 / in))
INITIALISER(kaiming_normal, normal, sqrt(2) / sqrt(in))

/* The quantile function of the standard normal distribution, by Acklam's rational functions, whose
 * relative error is below 1.2e-9, and one step of Halley's method. */
static double quantile(double u)
{
    static const double a[6] = {-39.69683028665376, 220.9460984245205, -275.9285104469687,
                                138.3577518672690, -30.66479806614716, 2.506628277459239},
                        b[5] = {-54.47609879822406, 161.5858368580409, -155.6989798598866,
                                66.80131188771972, -13.28068155288572};
    /* u of the truncated distribution is in [0.0227, 0.9773], where these rows and the step are
     * enough */
    const double q = u - 0.5, r = q * q;
    const double x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
                     (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
    const double e = 0.5 * erfc(-x / sqrt(2)) - u, w = e * sqrt(2 * 3.14159265358979323846) *
                                                       exp(x * x / 2);
    return x - w / (1 + x * w / 2);
}

/* Returns a tensor of `dtype` with n values in double precision, which it frees. */
static wb_tensor *from_doubles(double *values, wb_dtype dtype, int ndim, const int64_t *dims)
{
    wb_tensor *x = values ? wb_from(values, WB_F64, ndim, dims) : NULL;
    wb__free(values);
    return x ? wb__as(x, dtype) : NULL;
}

static wb_tensor *truncated(wb_dtype dtype, int ndim, const int64_t *dims, double sigma)
{
    wb_tensor *u = wb_rand_array(WB_F64, ndim, dims);
    const double *drawn = u ? wb_data(u) : NULL;
    if (!u || (!drawn && u->size)) return NULL;
    const double low = 0.5 * erfc(2 / sqrt(2)), width = 1 - 2 * low;
    double *values = wb__alloc(WB__MAX((size_t)u->size, 1) * sizeof *values);
    for (int64_t i = 0; values && i < u->size; i++)
        values[i] = sigma * fmin(fmax(quantile(low + width * drawn[i]), -2), 2);
    return from_doubles(values, dtype, ndim, dims);
}
INITIALISER(truncated_normal, truncated, 1)
INITIALISER(lecun_normal, truncated, 1 / sqrt(in))

wb_tensor *wb_identity_init(wb_dtype dtype, int ndim, const int64_t *dims)
{
    int64_t size, kernel = 1, centre = 0;
    if (!wb__check_dims("identity_init", ndim, dims, &size)) return NULL;
    if (ndim < 2) return wb_init_zeros(dtype, ndim, dims);
    for (int i = 2; i < ndim; i++) {
        centre = centre * dims[i] + dims[i] / 2;
        kernel *= dims[i];
    }
    double *values = wb__alloc_zero(WB__MAX((size_t)size, 1), sizeof *values);
    for (int64_t i = 0; values && kernel && i < dims[0] && i < dims[1]; i++)
        values[(i * dims[1] + i) * kernel + centre] = 1;
    return from_doubles(values, dtype, ndim, dims);
}

wb_tensor *wb_init_zeros(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_full_array(0, dtype, ndim, dims);
}
wb_tensor *wb_init_ones(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_full_array(1, dtype, ndim, dims);
}
wb_tensor *wb_init_normal(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_randn_array(dtype, ndim, dims);
}
wb_tensor *wb_init_uniform(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_rand_array(dtype, ndim, dims);
}
