/* References of products, convolutions, pools, softmax, normalise and attention; random arrays;
 * comparing. */
#include "reference.h"

#include "backend/backend.h"

/* ---- products -------------------------------------------------------------------------------- */

array ref_matmul(array a, array b)
{
    array la = {.ndim = a.ndim - 2}, lb = {.ndim = b.ndim - 2};
    memcpy(la.dims, a.dims, sizeof la.dims);
    memcpy(lb.dims, b.dims, sizeof lb.dims);
    int n;
    int64_t dims[WB_MAX_DIMS] = {0}, m = a.dims[a.ndim - 2], k = a.dims[a.ndim - 1],
            p = b.dims[b.ndim - 1], batches = 1;
    if (!ref_broadcast(&la, &lb, &n, dims)) fail_msg("the test's operands do not broadcast");
    for (int i = 0; i < n; i++) batches *= dims[i];
    dims[n] = m;
    dims[n + 1] = k;
    a = ref_expand(a, n + 2, dims);
    dims[n] = k;
    dims[n + 1] = p;
    b = ref_expand(b, n + 2, dims);
    dims[n] = m;
    array y = ref_new(n + 2, dims);
    for (int64_t i = 0; i < batches; i++)
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < p; c++) {
                long double s = 0;
                for (int64_t j = 0; j < k; j++)
                    s += (long double)a.at[(i * m + r) * k + j] * b.at[(i * k + j) * p + c];
                y.at[(i * m + r) * p + c] = (double)s;
            }
    return y;
}

static double at4(array x, int64_t n, int64_t c, int64_t h, int64_t w)
{
    if (h < 0 || w < 0 || h >= x.dims[2] || w >= x.dims[3]) return 0;
    return x.at[((n * x.dims[1] + c) * x.dims[2] + h) * x.dims[3] + w];
}

array ref_conv(array x, array w, const int64_t *stride, const int64_t *pad, const int64_t *dilation,
               int64_t groups)
{
    int64_t dims[4] = {
        x.dims[0], w.dims[0],
        (x.dims[2] + pad[0] + pad[1] - (w.dims[2] - 1) * dilation[0] - 1) / stride[0] + 1,
        (x.dims[3] + pad[2] + pad[3] - (w.dims[3] - 1) * dilation[1] - 1) / stride[1] + 1};
    int64_t per = w.dims[0] / groups;
    array y = ref_new(4, dims);
    for (int64_t i = 0; i < y.size; i++) {
        int64_t q = i % dims[3], p = i / dims[3] % dims[2], k = i / (dims[3] * dims[2]) % dims[1],
                n = i / (dims[3] * dims[2] * dims[1]);
        double s = 0;
        for (int64_t c = 0; c < w.dims[1]; c++)
            for (int64_t u = 0; u < w.dims[2]; u++)
                for (int64_t v = 0; v < w.dims[3]; v++)
                    s += at4(w, k, c, u, v) * at4(x, n, k / per * w.dims[1] + c,
                                                  p * stride[0] + u * dilation[0] - pad[0],
                                                  q * stride[1] + v * dilation[1] - pad[2]);
        y.at[i] = s;
    }
    return y;
}

array ref_pool(array x, bool max, const int64_t *window, const int64_t *stride, const int64_t *pad)
{
    int64_t dims[4] = {x.dims[0], x.dims[1],
                       (x.dims[2] + pad[0] + pad[1] - window[0]) / stride[0] + 1,
                       (x.dims[3] + pad[2] + pad[3] - window[1]) / stride[1] + 1};
    array y = ref_new(4, dims);
    for (int64_t i = 0; i < y.size; i++) {
        int64_t q = i % dims[3], p = i / dims[3] % dims[2], c = i / (dims[3] * dims[2]) % dims[1],
                n = i / (dims[3] * dims[2] * dims[1]);
        double sum = 0, most = -INFINITY;
        for (int64_t u = 0; u < window[0]; u++)
            for (int64_t v = 0; v < window[1]; v++) {
                int64_t h = p * stride[0] + u - pad[0], w = q * stride[1] + v - pad[2];
                if (h < 0 || w < 0 || h >= x.dims[2] || w >= x.dims[3]) continue;
                double one = at4(x, n, c, h, w);
                sum += one;
                if (isnan(one) || one > most) most = isnan(most) ? most : one;
            }
        y.at[i] = max ? most : sum / (double)(window[0] * window[1]);
    }
    return y;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void row_softmax(int64_t n, const double *x, double *y, bool log_form)
{
    double most = -INFINITY, tops = 0;
    long double sum = 0;
    for (int64_t i = 0; i < n; i++) most = isnan(x[i]) || x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) tops += x[i] == most;
    for (int64_t i = 0; i < n && isfinite(most); i++) sum += expl((long double)(x[i] - most));
    for (int64_t i = 0; i < n; i++) {
        double p = isinf(most) ? (x[i] == most  ? 1 / tops
                                  : isnan(x[i]) ? NAN
                                                : 0)
                               : (double)(expl((long double)(x[i] - most)) / sum);
        y[i] = !log_form ? p : isinf(most) ? log(p) : x[i] - most - (double)logl(sum);
    }
}

static array rows(array x, bool log_form)
{
    array y = ref_new(x.ndim, x.dims);
    int64_t n = x.dims[x.ndim - 1];
    for (int64_t i = 0; n && i < x.size / n; i++)
        row_softmax(n, x.at + i * n, y.at + i * n, log_form);
    return y;
}

array ref_softmax(array x) { return rows(x, false); }
array ref_logsoftmax(array x) { return rows(x, true); }

array ref_normalise(array x, int n_axes, double eps)
{
    unsigned mask = 0;
    for (int i = x.ndim - n_axes; i < x.ndim; i++) mask |= 1u << i;
    array mean = ref_expand(ref_mean(x, mask, true), x.ndim, x.dims);
    array variance = ref_expand(ref_variance(x, mask, true), x.ndim, x.dims);
    array y = ref_new(x.ndim, x.dims);
    for (int64_t i = 0; i < x.size; i++)
        y.at[i] = (x.at[i] - mean.at[i]) / sqrt(variance.at[i] + eps);
    return y;
}

array ref_attention(array q, array k, array v, const array *mask)
{
    int64_t order[WB_MAX_DIMS] = {0};
    for (int i = 0; i < k.ndim; i++) order[i] = i;
    order[k.ndim - 1] = k.ndim - 2;
    order[k.ndim - 2] = k.ndim - 1;
    array s = ref_matmul(q, ref_permute(k, order));
    for (int64_t i = 0; i < s.size; i++) s.at[i] /= sqrt((double)q.dims[q.ndim - 1]);
    array m = mask ? ref_expand(*mask, s.ndim, s.dims) : s;
    int64_t n = s.dims[s.ndim - 1];
    for (int64_t i = 0; mask && i < s.size; i++)
        if (!m.at[i]) s.at[i] = -INFINITY;
    array p = ref_softmax(s);
    for (int64_t r = 0; mask && n && r < s.size / n; r++) {
        bool any = false;
        for (int64_t i = 0; i < n; i++) any |= m.at[r * n + i] != 0;
        for (int64_t i = 0; i < n && !any; i++) p.at[r * n + i] = 0;
    }
    return ref_matmul(p, v);
}

/* ---- drawing --------------------------------------------------------------------------------- */

uint64_t draw_state = 1;

uint64_t draw_bits(void)            /* splitmix64 */
{
    uint64_t z = draw_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

int64_t draw_int(int64_t low, int64_t high)
{
    return low + (int64_t)(draw_bits() % (uint64_t)(high - low + 1));
}
double draw_real(double low, double high)
{
    return low + (high - low) * (double)(draw_bits() >> 11) * 0x1p-53;
}

array draw_array(int ndim, const int64_t *dims, double low, double high)
{
    array a = ref_new(ndim, dims);
    for (int64_t i = 0; i < a.size; i++) a.at[i] = draw_real(low, high);
    return a;
}

void draw_shape(int kind, int *ndim, int64_t *dims)
{
    switch (kind % 8) {
    case 0: *ndim = 0; return;
    case 1: *ndim = 2; dims[0] = draw_int(0, 1) * 3; dims[1] = dims[0] ? 0 : 4; return;
    case 2: *ndim = 3; dims[0] = dims[1] = dims[2] = 1; return;
    case 3: *ndim = 1; dims[0] = draw_int(2, 40) * 2 + 1; return;
    case 4: *ndim = 2; dims[0] = draw_int(900, 1100); dims[1] = draw_int(1, 40); return;
    case 5: *ndim = 4; for (int i = 0; i < 4; i++) dims[i] = draw_int(1, 6); return;
    case 6: *ndim = 2; dims[0] = draw_int(1, 9); dims[1] = draw_int(1000, 3000); return;
    default:
        *ndim = (int)draw_int(1, 5);
        for (int i = 0; i < *ndim; i++) dims[i] = draw_int(1, 7);
        return;
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* x rounded to nearest even, with this many bits of significand and `least` as the least exponent
 * of frexp; infinite from `beyond` on. */
static double rounded(double x, int bits, int least, double beyond)
{
    int e;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    const double step = ldexp(1, (e < least ? least : e) - bits), r = nearbyint(x / step) * step;
    return fabs(r) >= beyond ? copysign(INFINITY, x) : r;
}

double ref_cast(double x, wb_dtype to)
{
    static const struct { double low, high;
    } range[WB_DTYPE_COUNT] = {
        [WB_I8] = {-128, 127},
        [WB_U8] = {0, 255},
        [WB_I32] = {-2147483648.0, 2147483647.0},
        [WB_I64] = {-0x1p63, 0x1p63},
    };
    switch (to) {
    case WB_F64: return x;
    case WB_F32: return (float)x;
    case WB_F16: return rounded(x, 11, -13, 65536);
    case WB_BF16: return rounded(x, 8, -125, 0x1p128);
    case WB_BOOL: return x != 0;
    default:
        return isnan(x)             ? 0
               : x < range[to].low  ? range[to].low
               : x > range[to].high ? range[to].high
                                    : trunc(x);
    }
}

void round_to(array x, wb_dtype dtype)
{
    for (int64_t i = 0; i < x.size; i++) x.at[i] = ref_cast(x.at[i], dtype);
}

bool has_dtype(wb_dtype dtype)
{
    const char *name = getenv("WEBER_TEST_DEVICE");
    const wb_device *d = name && *name ? wb_device_at(name, 0) : wb_cpu_device();
    return d->backend->has_dtype(d, dtype);
}

void need_dtype(wb_dtype dtype)
{
    if (has_dtype(dtype)) return;
    print_message("SKIP: %s has no %s\n", getenv("WEBER_TEST_DEVICE"), wb_dtype_name(dtype));
    skip();
}

wb_dtype widest_float(void) { return has_dtype(WB_F64) ? WB_F64 : WB_F32; }

static wb_tensor *dense(array x, wb_dtype dtype)
{
    const wb_device *d = wb_default_device();
    void *bytes = malloc((size_t)x.size * 8 + 8);
    wb__convert(bytes, dtype, x.at, WB_F64, x.size);
    if (!has_dtype(dtype)) wb_set_default_device(wb_cpu_device());
    wb_tensor *t = wb_from(bytes, dtype, x.ndim, x.dims);
    wb_set_default_device(d);
    free(bytes);
    return t;
}

wb_tensor *tensor_of(array x, wb_dtype dtype, int view)
{
    int64_t order[WB_MAX_DIMS] = {0}, back[WB_MAX_DIMS] = {0};
    if (!x.ndim) view = 0;
    int axis = x.ndim ? (int)(x.size % x.ndim) : 0;
    switch (view) {
    case 1: return wb_slice(dense(ref_pad(x, axis, 2, 1), dtype), axis, 2, -1);
    case 2:
        for (int i = 0; i < x.ndim; i++) {
            order[i] = (i + 1) % x.ndim;
            back[order[i]] = i;
        }
        return wb_permute_array(dense(ref_permute(x, order), dtype), x.ndim, back);
    case 3: return wb_flip(dense(ref_flip(x, axis), dtype), axis);
    case 4:
        return wb_flip(wb_slice(dense(ref_pad(ref_flip(x, 0), 0, 0, 3), dtype), 0, 0, x.dims[0]),
                       0);
    case 5: {
        int64_t dims[WB_MAX_DIMS], flat[1] = {x.size};
        memcpy(dims, x.dims, sizeof dims);
        return wb_reshape_array(dense(ref_reshape(x, 1, flat), dtype), x.ndim, dims);
    }
    default: return dense(x, dtype);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

double tolerance(wb_dtype dtype)
{
    switch (dtype) {
    case WB_F64: return 0x1p-52;
    case WB_F32: return 0x1p-23;
    case WB_F16: return 0x1p-10;
    case WB_BF16: return 0x1p-7;
    default: return 0;
    }
}

array values_of(wb_tensor *x)
{
    if (!x) fail_msg("%s", wb_error());
    const void *data = wb_data(x);
    if (!data) fail_msg("%s: %s", wb_describe(x), wb_error());
    array a = ref_new(wb_ndim(x), wb_dims(x));
    wb__convert(a.at, WB_F64, data, wb_dtype_of(x), a.size);
    return a;
}

void check(wb_tensor *got, array expected, double relative, double absolute, const char *what, ...)
{
    static char text[8192];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    if (!got) fail_msg("%s: %s", text, wb_error());
    const size_t dims_bytes = (size_t)expected.ndim * sizeof *expected.dims;
    if (wb_ndim(got) != expected.ndim ||
        (expected.ndim && memcmp(wb_dims(got), expected.dims, dims_bytes)))
        fail_msg("%s: the result is %s; its first dimension should be %lld of %d", text,
                 wb_describe(got), (long long)(expected.ndim ? expected.dims[0] : 0),
                 expected.ndim);
    array a = values_of(got);
    for (int64_t i = 0; i < a.size; i++) {
        double w = expected.at[i], g = a.at[i];
        bool good = isnan(w)   ? isnan(g)
                    : isinf(w) ? g == w
                               : fabs(g - w) <= relative * fabs(w) + absolute;
        if (!good)
            fail_msg("%s: element %lld of %s is %.17g, should be %.17g", text, (long long)i,
                     wb_describe(got), g, w);
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

int64_t option_seed = 1, option_count;
bool option_perf;

void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--perf")) option_perf = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            option_seed = strtoll(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--count") && i + 1 < argc)
            option_count = strtoll(argv[++i], NULL, 10);
    }
    draw_state = (uint64_t)option_seed * 0x1234567;
}

int run_with_options(int argc, char **argv)
{
    read_options(argc, argv);
    return run_all_cases();
}
