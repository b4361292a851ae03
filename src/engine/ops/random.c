/* Random numbers that are composed of uniform ones, so that they are the same on every device. */
#include "engine/ops/op.h"

#include <math.h>

/* Returns random integers of 48 bits, i64, on the default device. */
static wb_tensor *random_bits(int ndim, const int64_t *dims)
{
    wb_tensor *part[2];
    for (int i = 0; i < 2; i++) {
        wb_tensor *u = wb_rand_array(WB_F32, ndim, dims);       /* multiples of 2^-24 */
        u = u ? wb_astype(wb_mul(u, wb__literal(0x1p24, WB_F32)), WB_I64) : NULL;
        if (!(part[i] = u)) return NULL;
    }
    return wb_add(wb_mul(part[0], wb__literal(0x1p24, WB_I64)), part[1]);
}

static wb_tensor *random_randint(int64_t low, int64_t high, wb_dtype dtype, int ndim,
                                 const int64_t *dims)
{
    int64_t size;
    if (!wb__is_dtype("randint", dtype) || !wb__check_dims("randint", ndim, dims, &size))
        return NULL;
    const int64_t most = (int64_t)1 << 53;      /* f64 has all integers up to this one */
    if (low >= high || (uint64_t)high - (uint64_t)low > (uint64_t)1 << 32 || low < -most ||
        high > most)
        return wb__fail_null(WB_ERROR_ARGUMENT, "randint: from %lld to below %lld; there must be 1 "
                             "to 2^32 numbers, from -2^53 to 2^53", (long long)low,
                             (long long)high);
    if (!wb__holds(dtype, (double)low) || !wb__holds(dtype, (double)(high - 1)))
        return wb__fail_null(WB_ERROR_DTYPE, "randint: %s does not hold %lld and %lld",
                             wb_dtype_name(dtype), (long long)low, (long long)(high - 1));
    wb_tensor *w = random_bits(ndim, dims), *n = wb__argument((double)(high - low), WB_I64);
    if (!w || !n) return NULL;
    w = wb_sub(w, wb_mul(wb_div(w, n), n));                     /* w mod n */
    w = wb_add(w, wb__argument((double)low, WB_I64));
    return wb__as(w, dtype);
}

wb_tensor *wb_randint_array(int64_t low, int64_t high, wb_dtype dtype, int ndim,
                            const int64_t *dims)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, random_randint(low, high, dtype, ndim, dims));
}

static wb_tensor *random_permutation(int64_t n)
{
    if (n < 0 || n - 1 > INT32_MAX)
        return wb__fail_null(WB_ERROR_ARGUMENT, "permutation: of %lld numbers; i32 holds 0 to 2^31",
                             (long long)n);
    wb_tensor *keys = random_bits(1, &n);
    return keys ? wb_argsort(keys, 0) : NULL;
}

wb_tensor *wb_permutation(int64_t n)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, random_permutation(n));
}

static wb_tensor *random_polynomial(wb_tensor *w, int n, const double *c)
{
    wb_tensor *y = wb__literal(c[0], (wb_dtype)w->dtype);
    for (int i = 1; i < n; i++)
        y = wb_add(wb_mul(y, w), wb__literal(c[i], (wb_dtype)w->dtype));
    return y;
}

/* Returns the inverse error function of x, f32 (Giles 2011, "Approximating the erfinv
 * function"). */
static wb_tensor *random_erfinv(wb_tensor *x)
{
    static const double centre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                                    0.00021858087, -0.00125372503, -0.00417768164, 0.246640727,
                                    1.50140941};
    static const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
                                  0.00573950773, -0.0076224613, 0.00943887047, 1.00167406,
                                  2.83297682};
    const wb_dtype t = (wb_dtype)x->dtype;
    wb_tensor *w = wb_neg(wb_log(wb_mul(wb_sub(wb__literal(1, t), x),
                                        wb_add(wb__literal(1, t), x))));
    if (!w) return NULL;
    wb_tensor *inner = random_polynomial(wb_sub(w, wb__literal(2.5, t)), 9, centre);
    wb_tensor *outer = random_polynomial(wb_sub(wb_sqrt(w), wb__literal(3, t)), 9, tail);
    return wb_mul(wb_where(wb_lt(w, wb__literal(5, t)), inner, outer), x);
}

static wb_tensor *truncated_normal(double mean, double std, double low, double high,
                                   wb_dtype dtype, int ndim, const int64_t *dims)
{
    if (!wb__is_dtype("truncated_normal", dtype)) return NULL;
    if (!wb__dtype_float(dtype))
        return wb__fail_null(WB_ERROR_DTYPE, "truncated_normal: floating dtypes only, not %s",
                             wb_dtype_name(dtype));
    const double root2 = 1.4142135623730951;
    const double from = erf((low - mean) / std / root2), to = erf((high - mean) / std / root2);
    if (!(std > 0 && low < high && to - from > 1e-5))
        return wb__fail_null(WB_ERROR_ARGUMENT, "truncated_normal: mean %g, std %g, from %g to %g: "
                             "fewer than 5 of a million normal numbers are there", mean, std, low,
                             high);
    wb_tensor *u = wb_rand_array(WB_F32, ndim, dims);
    if (!u) return NULL;
    /* between the bounds, and below 1 in size, so that erfinv is finite */
    u = wb_add(wb_mul(u, wb__literal(to - from, WB_F32)), wb__literal(from, WB_F32));
    u = wb_clamp(u, wb__literal(-1 + 0x1p-24, WB_F32), wb__literal(1 - 0x1p-24, WB_F32));
    u = u ? random_erfinv(u) : NULL;
    if (!u) return NULL;
    u = wb_add(wb_mul(u, wb__literal(std * root2, WB_F32)), wb__literal(mean, WB_F32));
    return wb__as(wb_clamp(u, wb__literal(low, WB_F32), wb__literal(high, WB_F32)), dtype);
}

wb_tensor *wb_truncated_normal_array(double mean, double std, double low, double high,
                                     wb_dtype dtype, int ndim, const int64_t *dims)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, truncated_normal(mean, std, low, high, dtype, ndim, dims));
}

static wb_tensor *random_bernoulli(wb_tensor *p)
{
    if (!wb__floating("bernoulli", p)) return NULL;
    const wb_dtype t = (wb_dtype)p->dtype;
    wb_tensor *wide = wb__wide(p);
    wb_tensor *u = wide ? wb__uniform_beside(p, (wb_dtype)wide->dtype, p->ndim, p->dims) : NULL;
    return u ? wb__as(wb_lt(u, wide), t) : NULL;
}

wb_tensor *wb_bernoulli(wb_tensor *p)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, random_bernoulli(p));
}

/* Returns uniform numbers of f32 above 0 and below 1, which are fine near 0: a first number has
 * steps of 2^-24, and a second one draws a place between the steps. */
static wb_tensor *fine_uniform_beside(const wb_tensor *x, int ndim, const int64_t *dims)
{
    wb_tensor *u = wb__uniform_beside(x, WB_F32, ndim, dims);
    wb_tensor *within = wb__uniform_beside(x, WB_F32, ndim, dims);
    if (!u || !within) return NULL;
    within = wb_mul(wb_add(within, wb__literal(0x1p-25, WB_F32)), wb__literal(0x1p-24, WB_F32));
    return wb_minimum(wb_add(u, within), wb__literal(1 - 0x1p-24, WB_F32));
}

/* Returns n classes drawn by weight.  Each class has an exponential time, with its weight as the
 * rate.  The class with the first time is drawn with the probability asked for, and the first n are
 * n draws without replacement (Efraimidis & Spirakis 2006). */
static wb_tensor *random_multinomial(wb_tensor *weights, int64_t n, bool replacement)
{
    if (!wb__floating("multinomial", weights)) return NULL;
    const int last = weights->ndim - 1;
    if (last < 0 || !weights->dims[last])
        return wb__fail_null(WB_ERROR_SHAPE, "multinomial: no classes in %s", wb_describe(weights));
    if (n < 0 || (!replacement && n > weights->dims[last]))
        return wb__fail_null(WB_ERROR_ARGUMENT, "multinomial: %lld of the %lld classes of %s",
                             (long long)n, (long long)weights->dims[last], wb_describe(weights));
    wb_tensor *w = wb__as(weights, WB_F32);
    int64_t dims[WB_MAX_DIMS + 1];
    for (int i = 0; i <= last; i++) dims[i] = weights->dims[i];
    if (replacement) {
        dims[last] = n;
        dims[last + 1] = weights->dims[last];
        w = w ? wb_unsqueeze(w, -2) : NULL;
    }
    wb_tensor *u = w ? fine_uniform_beside(w, last + 1 + replacement, dims) : NULL;
    if (!u) return NULL;
    wb_tensor *time = wb_div(wb_neg(wb_log1p(wb_neg(u))), w);
    time = wb_where(wb_gt(w, wb__literal(0, WB_F32)), time, wb__literal(INFINITY, WB_F32));
    if (!time) return NULL;
    if (replacement) return wb_argmin(time, -1);
    wb_tensor *index = NULL;
    return wb_topk(time, n, -1, &index, .smallest = true) ? index : NULL;
}

wb_tensor *wb_multinomial(wb_tensor *weights, int64_t n, bool replacement)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, random_multinomial(weights, n, replacement));
}
