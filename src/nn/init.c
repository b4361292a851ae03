/* Initialisers of parameters.  Random numbers come from the generator that wb_seed seeds. */
#include "nn/layer.h"
#include "base/options.h"

#include <math.h>

/* Sets *in to fan_in and *out to fan_out.  They are 1 and n for a vector [n], in and out for a
 * matrix [out, in], and in·k and out·k for a kernel [out, in, ...] whose further dimensions have
 * the product k.  Each is at least 1.  False, with the error set: invalid dims. */
static bool init_fans(const char *what, int ndim, const int64_t *dims, double *in, double *out)
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

static wb_tensor *init_uniform(wb_dtype dtype, int ndim, const int64_t *dims, double bound)
{
    return wb_mul(wb_sub(wb_rand_array(dtype, ndim, dims), wb_scalar(0.5)), wb_scalar(2 * bound));
}

static wb_tensor *init_normal(wb_dtype dtype, int ndim, const int64_t *dims, double sigma)
{
    return wb_mul(wb_randn_array(dtype, ndim, dims), wb_scalar(sigma));
}

/* Defines an initialiser with a gain that draws random numbers. */
#define DRAWN(name, draw, width)                                                               \
    static wb_tensor *gained_##name(wb_dtype dtype, int ndim, const int64_t *dims, double gain) \
    {                                                                                           \
        double in, out;                                                                         \
        if (!init_fans(#name, ndim, dims, &in, &out)) return NULL;                              \
        return draw(dtype, ndim, dims, width);                                                  \
    }
DRAWN(glorot_uniform, init_uniform, gain * sqrt(6 / (in + out)))
DRAWN(glorot_normal, init_normal, gain * sqrt(2 / (in + out)))
DRAWN(kaiming_uniform, init_uniform, gain * sqrt(3 / in))
DRAWN(kaiming_normal, init_normal, gain / sqrt(in))

static wb_tensor *init_truncated(wb_dtype dtype, int ndim, const int64_t *dims, double sigma)
{
    if (sigma == 0) return wb_full_array(0, dtype, ndim, dims);
    return wb_truncated_normal_array(0, fabs(sigma), -2, 2, dtype, ndim, dims);
}
DRAWN(lecun_normal, init_truncated, gain / sqrt(in))

wb_tensor *wb_init_truncated_normal(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return init_truncated(dtype, ndim, dims, 1);
}

static wb_tensor *gained_identity_init(wb_dtype dtype, int ndim, const int64_t *dims, double gain)
{
    int64_t size, kernel = 1, centre = 0;
    if (!wb__check_dims("identity_init", ndim, dims, &size)) return NULL;
    if (ndim < 2) return wb_init_zeros(dtype, ndim, dims);
    for (int i = 2; i < ndim; i++) {
        centre = centre * dims[i] + WB__MAX(dims[i] - 1, 0) / 2;
        kernel *= dims[i];
    }
    double *values = wb__alloc_zero(WB__MAX((size_t)size, 1), sizeof *values);
    for (int64_t i = 0; values && kernel && i < dims[0] && i < dims[1]; i++)
        values[(i * dims[1] + i) * kernel + centre] = gain;
    return wb__from_doubles(values, dtype, ndim, dims);
}

static double init_dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Makes n rows orthonormal: subtracts from each its parts along the rows before, `turns` times. */
static void orthonormalise_rows(double *rows, int64_t n, int64_t length, int turns)
{
    for (int64_t i = 0; i < n; i++) {
        double *x = rows + i * length;
        for (int turn = 0; turn < turns; turn++)
            for (int64_t j = 0; j < i; j++) {
                const double *y = rows + j * length, along = init_dot(x, y, length);
                for (int64_t k = 0; k < length; k++) x[k] -= along * y[k];
            }
        const double norm = sqrt(init_dot(x, x, length));
        for (int64_t k = 0; k < length; k++) x[k] /= norm;
    }
}

/* Subtracts from m rows b, which follow n orthonormal rows q, their parts along q: b - (b·qᵀ)·q. */
static bool init_subtract_projection(double *rows, int64_t n, int64_t m, int64_t length)
{
    wb_scope *s = wb_scope_open();
    if (!s) return false;
    double *block = rows + n * length;
    wb_tensor *q = wb_borrow(rows, WB_F64, 2, (int64_t[]){n, length}, NULL, NULL);
    wb_tensor *b = wb_borrow(block, WB_F64, 2, (int64_t[]){m, length}, NULL, NULL);
    wb_tensor *along = q && b ? wb__matmul(b, q, false, true) : NULL;
    wb_tensor *rest = along ? wb_sub(b, wb_matmul(along, q)) : NULL;
    const bool ok = rest && !wb_copy_out(rest, block, (size_t)(m * length) * sizeof *block);
    return !wb_scope_close(s) && ok;
}

/* Makes n rows orthonormal, block by block, so that most of the work is products of matrices.  Does
 * so twice, since a row that is nearly a sum of multiples of the rows before has large errors. */
static bool init_orthonormalise(double *rows, int64_t n, int64_t length)
{
    enum { BLOCK = 32, ALONE = 64 };
    if (n <= ALONE) return orthonormalise_rows(rows, n, length, 2), true;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i += BLOCK)
        for (int turn = 0; ok && turn < 2; turn++) {
            const int64_t m = WB__MIN(BLOCK, n - i);
            ok = !i || init_subtract_projection(rows, i, m, length);
            if (ok) orthonormalise_rows(rows + i * length, m, length, 1);
        }
    return ok;
}

static wb_tensor *gained_orthogonal(wb_dtype dtype, int ndim, const int64_t *dims, double gain)
{
    int64_t size;
    if (!wb__check_dims("orthogonal", ndim, dims, &size)) return NULL;
    if (ndim < 2)
        return wb__fail_null(WB_ERROR_SHAPE, "orthogonal: %d dimensions; it has at least 2", ndim);
    if (!wb__dtype_float(dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "orthogonal: %s is not floating",
                             wb_dtype_name(dtype));
    const int64_t out = dims[0], in = out ? size / out : 0, n = WB__MIN(out, in);
    const int64_t length = WB__MAX(out, in);
    const wb__frame f = wb__frame_begin();
    wb_tensor *drawn = wb_randn_array(WB_F32, 1, &size);
    float *numbers = wb__alloc((size_t)(size + 1) * sizeof *numbers);
    double *rows = wb__alloc((size_t)(size + 1) * sizeof *rows);
    wb_tensor *x = NULL;
    bool ok = drawn && numbers && rows &&
              !wb_copy_out(drawn, numbers, (size_t)size * sizeof *numbers);
    for (int64_t i = 0; ok && i < size; i++) rows[i] = (double)numbers[i];
    if (ok && init_orthonormalise(rows, n, length)) {
        for (int64_t i = 0; i < size; i++) rows[i] *= gain;
        x = wb__from_doubles(rows, dtype, 2, (int64_t[]){n, length});
        rows = NULL;                    /* the tensor has taken over the memory */
        if (x && out > in) x = wb_transpose(x);
        if (x) x = wb_reshape_array(x, ndim, dims);
    }
    wb__free(numbers);
    wb__free(rows);
    return wb__frame_end(f, x);
}

/* The initialisers with a gain, and the default of the gain. */
#define GAINED(X)                                                                           \
    X(glorot_uniform, 1) X(glorot_normal, 1) X(kaiming_uniform, 1.4142135623730951)         \
    X(kaiming_normal, 1.4142135623730951) X(lecun_normal, 1) X(identity_init, 1) X(orthogonal, 1)
#define DEFAULT_GAIN(name, gain)                                                            \
    wb_tensor *wb_##name(wb_dtype dtype, int ndim, const int64_t *dims)                     \
    {                                                                                       \
        WB__EDGE;                                                                           \
        return gained_##name(dtype, ndim, dims, gain);                                      \
    }
GAINED(DEFAULT_GAIN)

wb_tensor *wb_init_gain(wb_initializer of, double gain, wb_dtype dtype, int ndim,
                        const int64_t *dims)
{
    WB__EDGE;
    if (!isfinite(gain))
        return wb__fail_null(WB_ERROR_ARGUMENT, "init_gain: the gain is %g; it is finite", gain);
#define GIVEN_GAIN(name, by_default) \
    if (of == wb_##name) return gained_##name(dtype, ndim, dims, gain);
#define GAINED_NAME(name, by_default) " wb_" #name
    GAINED(GIVEN_GAIN)
    return wb__fail_null(WB_ERROR_ARGUMENT, "init_gain: an initializer without a gain; these have "
                         "one:" GAINED(GAINED_NAME));
}

wb_tensor *wb_sparse_init(double sparsity, double std, wb_dtype dtype, int ndim,
                          const int64_t *dims)
{
    int64_t size;
    if (!wb__check_dims("sparse_init", ndim, dims, &size)) return NULL;
    if (ndim != 2 || !(sparsity >= 0 && sparsity <= 1))
        return wb__fail_null(ndim == 2 ? WB_ERROR_ARGUMENT : WB_ERROR_SHAPE, "sparse_init: %d "
                             "dimensions, sparsity %g; it has 2, and from 0 to 1", ndim, sparsity);
    const wb__frame f = wb__frame_begin();
    const double zeros = ceil(sparsity * (double)dims[0]);
    wb_tensor *place = wb_argsort(wb_argsort(wb_rand_array(WB_F32, 2, dims), 0), 0);
    wb_tensor *x = init_normal(dtype, ndim, dims, std);
    return wb__frame_end(f, wb_where(wb_lt(place, wb_scalar(zeros)), wb_scalar(0), x));
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
