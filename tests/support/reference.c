/* References of elementwise operations, reductions and shapes.  Products are in
 * reference_product.c. */
#include "reference.h"

/* ---- arrays ---------------------------------------------------------------------------------- */

static double **held;
static int n_held, capacity;

array ref_new(int ndim, const int64_t *dims)
{
    array a = {.ndim = ndim, .size = 1};
    after_each_test = ref_forget;
    for (int i = 0; i < ndim; i++) a.size *= a.dims[i] = dims[i];
    a.at = calloc((size_t)a.size + 1, sizeof *a.at);
    if (n_held == capacity)
        held = realloc(held, (size_t)(capacity = 2 * capacity + 64) * sizeof *held);
    return held[n_held++] = a.at, a;
}

void ref_forget(void)
{
    while (n_held) free(held[--n_held]);
    free(held);
    held = NULL;
    capacity = 0;
}

array ref_number(double v)
{
    array a = ref_new(0, NULL);
    a.at[0] = v;
    return a;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static double neg(double x) { return -x; }
static double sign(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }
static double square(double x) { return x * x; }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double reciprocal(double x) { return 1 / x; }
static double relu(double x) { return isnan(x) ? x : x > 0 ? x : 0; }
static double leakyrelu(double x) { return x > 0 ? x : 0.01 * x; }
static double elu(double x) { return x > 0 ? x : expm1(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double selu(double x)
{
    return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x));
}
static double softplus(double x) { return x > 30 ? x + exp(-x) : log1p(exp(x)); }
static double logsigmoid(double x) { return -softplus(-x); }
static double swish(double x) { return x * sigmoid(x); }
static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double mish(double x) { return x * tanh(softplus(x)); }
static double hardswish(double x) { return x * fmin(fmax(x + 3, 0), 6) / 6; }
static double hardshrink(double x) { return fabs(x) <= 0.5 ? 0 : x; }
static double gelu_erf(double x) { return x / 2 * (1 + erf(x / sqrt(2))); }
static double gelu_slope(double x)
{
    double c = sqrt(2 / M_PI), u = c * (x + 0.044715 * x * x * x), t = tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}
static double is_finite(double x) { return isfinite(x) ? 1 : 0; }
static double is_nan(double x) { return isnan(x) ? 1 : 0; }
static double is_zero(double x) { return x == 0; }

static double add(double x, double y) { return x + y; }
static double sub(double x, double y) { return x - y; }
static double mul(double x, double y) { return x * y; }
static double divide(double x, double y) { return x / y; }
static double maximum(double x, double y) { return isnan(x) ? x : isnan(y) ? y : x > y ? x : y; }
static double minimum(double x, double y) { return isnan(x) ? x : isnan(y) ? y : x < y ? x : y; }
static double eq(double x, double y) { return x == y; }
static double ne(double x, double y) { return x != y; }
static double lt(double x, double y) { return x < y; }
static double le(double x, double y) { return x <= y; }
static double gt(double x, double y) { return x > y; }
static double ge(double x, double y) { return x >= y; }
static double and(double x, double y) { return x != 0 && y != 0; }
static double or(double x, double y) { return x != 0 || y != 0; }

static const struct { const char *name; ref_f1 f;
} unaries[] =
    {
        {"neg", neg},
        {"abs", fabs},
        {"sign", sign},
        {"square", square},
        {"sqrt", sqrt},
        {"rsqrt", rsqrt},
        {"reciprocal", reciprocal},
        {"exp", exp},
        {"log", log},
        {"log1p", log1p},
        {"sin", sin},
        {"cos", cos},
        {"erf", erf},
        {"floor", floor},
        {"relu", relu},
        {"leakyrelu", leakyrelu},
        {"elu", elu},
        {"selu", selu},
        {"sigmoid", sigmoid},
        {"logsigmoid", logsigmoid},
        {"tanh", tanh},
        {"softplus", softplus},
        {"swish", swish},
        {"gelu", gelu},
        {"gelu_slope", gelu_slope},
        {"gelu_erf", gelu_erf},
        {"mish", mish},
        {"hardswish", hardswish},
        {"hardshrink", hardshrink},
},
  tests[] = {{"not", is_zero}, {"isfinite", is_finite}, {"isnan", is_nan}};
static const struct { const char *name; ref_f2 f;
} binaries[] =
    {
        {"add", add}, {"sub", sub},         {"mul", mul},         {"div", divide},
        {"pow", pow}, {"maximum", maximum}, {"minimum", minimum},
},
  compares[] = {
      {"eq", eq}, {"ne", ne}, {"lt", lt},   {"le", le},
      {"gt", gt}, {"ge", ge}, {"and", and}, {"or", or },
};

#define FIND(list) \
    for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++) \
        if (!strcmp((list)[i].name, name)) return (list)[i].f; \
    return NULL
ref_f1 ref_unary(const char *name) { FIND(unaries); }
ref_f1 ref_test(const char *name) { FIND(tests); }
ref_f2 ref_binary(const char *name) { FIND(binaries); }
ref_f2 ref_compare(const char *name) { FIND(compares); }

array ref_map(ref_f1 f, array x)
{
    array y = ref_new(x.ndim, x.dims);
    for (int64_t i = 0; i < x.size; i++) y.at[i] = f(x.at[i]);
    return y;
}

bool ref_broadcast(const array *x, const array *y, int *ndim, int64_t *dims)
{
    int n = *ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    for (int i = 1; i <= n; i++) {
        int64_t a = i > x->ndim ? 1 : x->dims[x->ndim - i],
                b = i > y->ndim ? 1 : y->dims[y->ndim - i];
        if (a != b && a != 1 && b != 1) return false;
        dims[n - i] = a == 1 ? b : a;
    }
    return true;
}

/* The indices of element i of a shape. */
static void unravel(int64_t i, int ndim, const int64_t *dims, int64_t *index)
{
    for (int d = ndim - 1; d >= 0; d--) {
        index[d] = dims[d] ? i % dims[d] : 0;
        i = dims[d] ? i / dims[d] : 0;
    }
}

static int64_t ravel(int ndim, const int64_t *dims, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < ndim; d++) at = at * dims[d] + index[d];
    return at;
}

array ref_expand(array x, int ndim, const int64_t *dims)
{
    array y = ref_new(ndim, dims);
    int64_t to[WB_MAX_DIMS] = {0}, from[WB_MAX_DIMS] = {0};
    for (int64_t i = 0; i < y.size; i++) {
        unravel(i, ndim, dims, to);
        for (int d = 0; d < x.ndim; d++) from[d] = x.dims[d] == 1 ? 0 : to[ndim - x.ndim + d];
        y.at[i] = x.at[ravel(x.ndim, x.dims, from)];
    }
    return y;
}

array ref_map2(ref_f2 f, array x, array y)
{
    int ndim;
    int64_t dims[WB_MAX_DIMS] = {0};
    if (!ref_broadcast(&x, &y, &ndim, dims)) fail_msg("the test's operands do not broadcast");
    x = ref_expand(x, ndim, dims);
    y = ref_expand(y, ndim, dims);
    array z = ref_new(ndim, dims);
    for (int64_t i = 0; i < z.size; i++) z.at[i] = f(x.at[i], y.at[i]);
    return z;
}

array ref_where(array c, array x, array y)
{
    array both = ref_map2(add, x, y), all = ref_map2(add, c, both);
    c = ref_expand(c, all.ndim, all.dims);
    x = ref_expand(x, all.ndim, all.dims);
    y = ref_expand(y, all.ndim, all.dims);
    for (int64_t i = 0; i < all.size; i++) all.at[i] = c.at[i] != 0 ? x.at[i] : y.at[i];
    return all;
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Reduces the axes of mask: f computes an element of the result from a list of n elements. */
static array reduce(array x, unsigned mask, bool keep, double (*f)(int64_t n, const double *v))
{
    int64_t kept[WB_MAX_DIMS] = {0}, index[WB_MAX_DIMS] = {0};
    for (int d = 0; d < x.ndim; d++) kept[d] = mask >> d & 1 ? 1 : x.dims[d];
    array y = ref_new(x.ndim, kept);
    int64_t n = 1;
    for (int d = 0; d < x.ndim; d++)
        if (mask >> d & 1) n *= x.dims[d];
    double *list = calloc((size_t)(y.size * n + 1), sizeof *list);
    int64_t *filled = calloc((size_t)y.size + 1, sizeof *filled);
    for (int64_t i = 0; i < x.size; i++) {
        unravel(i, x.ndim, x.dims, index);
        for (int d = 0; d < x.ndim; d++)
            if (mask >> d & 1) index[d] = 0;
        int64_t at = ravel(x.ndim, kept, index);
        list[at * n + filled[at]++] = x.at[i];
    }
    for (int64_t i = 0; i < y.size; i++) y.at[i] = f(n, list + i * n);
    free(list);
    free(filled);
    if (keep) return y;
    int m = 0;
    for (int d = 0; d < x.ndim; d++)
        if (!(mask >> d & 1)) y.dims[m++] = x.dims[d];
    y.ndim = m;
    return y;
}

static double sum_of(int64_t n, const double *v)
{
    long double s = 0;
    for (int64_t i = 0; i < n; i++) s += v[i];
    return (double)s;
}
static double mean_of(int64_t n, const double *v) { return sum_of(n, v) / (double)n; }
static double max_of(int64_t n, const double *v)
{
    double m = -INFINITY;
    for (int64_t i = 0; i < n; i++) m = maximum(m, v[i]);
    return m;
}
static double min_of(int64_t n, const double *v)
{
    double m = INFINITY;
    for (int64_t i = 0; i < n; i++) m = minimum(m, v[i]);
    return m;
}
static double variance_of(int64_t n, const double *v)
{
    double mean = mean_of(n, v);
    long double s = 0;
    for (int64_t i = 0; i < n; i++) s += (long double)((v[i] - mean) * (v[i] - mean));
    return (double)(s / (long double)n);
}
static double logsumexp_of(int64_t n, const double *v)
{
    double m = max_of(n, v);
    long double s = 0;
    if (isinf(m)) return m;
    for (int64_t i = 0; i < n; i++) s += expl((long double)(v[i] - m));
    return m + (double)logl(s);
}

array ref_sum(array x, unsigned mask, bool keep) { return reduce(x, mask, keep, sum_of); }
array ref_mean(array x, unsigned mask, bool keep) { return reduce(x, mask, keep, mean_of); }
array ref_max(array x, unsigned mask, bool keep) { return reduce(x, mask, keep, max_of); }
array ref_min(array x, unsigned mask, bool keep) { return reduce(x, mask, keep, min_of); }
array ref_variance(array x, unsigned mask, bool keep) { return reduce(x, mask, keep, variance_of); }
array ref_logsumexp(array x, unsigned mask, bool keep)
{
    return reduce(x, mask, keep, logsumexp_of);
}

static double first_largest(int64_t n, const double *v)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (!isnan(v[best]) && (isnan(v[i]) || v[i] > v[best])) best = i;
    return (double)best;
}
array ref_argmax(array x, int axis) { return reduce(x, 1u << axis, false, first_largest); }

/* ---- shape ----------------------------------------------------------------------------------- */

array ref_reshape(array x, int ndim, const int64_t *dims)
{
    array y = ref_new(ndim, dims);
    if (y.size != x.size)
        fail_msg("the test reshapes %lld elements to %lld", (long long)x.size, (long long)y.size);
    memcpy(y.at, x.at, (size_t)x.size * sizeof *x.at);
    return y;
}

array ref_permute(array x, const int64_t *order)
{
    int64_t dims[WB_MAX_DIMS] = {0}, to[WB_MAX_DIMS] = {0}, from[WB_MAX_DIMS] = {0};
    for (int d = 0; d < x.ndim; d++) dims[d] = x.dims[order[d]];
    array y = ref_new(x.ndim, dims);
    for (int64_t i = 0; i < y.size; i++) {
        unravel(i, x.ndim, dims, to);
        for (int d = 0; d < x.ndim; d++) from[order[d]] = to[d];
        y.at[i] = x.at[ravel(x.ndim, x.dims, from)];
    }
    return y;
}

array ref_slice(array x, int axis, int64_t start, int64_t stop)
{
    int64_t dims[WB_MAX_DIMS] = {0}, index[WB_MAX_DIMS] = {0};
    memcpy(dims, x.dims, sizeof dims);
    dims[axis] = stop - start;
    array y = ref_new(x.ndim, dims);
    for (int64_t i = 0; i < y.size; i++) {
        unravel(i, x.ndim, dims, index);
        index[axis] += start;
        y.at[i] = x.at[ravel(x.ndim, x.dims, index)];
    }
    return y;
}

array ref_flip(array x, int axis)
{
    array y = ref_new(x.ndim, x.dims);
    int64_t index[WB_MAX_DIMS] = {0};
    for (int64_t i = 0; i < y.size; i++) {
        unravel(i, x.ndim, x.dims, index);
        index[axis] = x.dims[axis] - 1 - index[axis];
        y.at[i] = x.at[ravel(x.ndim, x.dims, index)];
    }
    return y;
}

array ref_concat(int n, const array *x, int axis)
{
    int64_t dims[WB_MAX_DIMS] = {0}, index[WB_MAX_DIMS] = {0}, start = 0;
    memcpy(dims, x[0].dims, sizeof dims);
    dims[axis] = 0;
    for (int k = 0; k < n; k++) dims[axis] += x[k].dims[axis];
    array y = ref_new(x[0].ndim, dims);
    for (int k = 0; k < n; start += x[k++].dims[axis])
        for (int64_t i = 0; i < x[k].size; i++) {
            unravel(i, x[k].ndim, x[k].dims, index);
            index[axis] += start;
            y.at[ravel(y.ndim, y.dims, index)] = x[k].at[i];
        }
    return y;
}

array ref_pad(array x, int axis, int64_t before, int64_t after)
{
    int64_t dims[WB_MAX_DIMS] = {0};
    memcpy(dims, x.dims, sizeof dims);
    dims[axis] = before;
    array left = ref_new(x.ndim, dims);
    dims[axis] = after;
    array right = ref_new(x.ndim, dims);
    return ref_concat(3, (array[]){left, x, right}, axis);
}

array ref_take(array x, array index)
{
    int64_t dims[WB_MAX_DIMS] = {0}, row = x.dims[0] ? x.size / x.dims[0] : 0;
    if (!x.dims[0]) row = 1;
    for (int d = 0; d < index.ndim; d++) dims[d] = index.dims[d];
    for (int d = 1; d < x.ndim; d++) {
        dims[index.ndim + d - 1] = x.dims[d];
        if (!x.dims[0]) row *= x.dims[d];
    }
    array y = ref_new(index.ndim + x.ndim - 1, dims);
    for (int64_t i = 0; i < index.size; i++)
        for (int64_t j = 0; j < row; j++)
            if (index.at[i] >= 0 && index.at[i] < (double)x.dims[0])
                y.at[i * row + j] = x.at[(int64_t)index.at[i] * row + j];
    return y;
}
