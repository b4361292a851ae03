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
