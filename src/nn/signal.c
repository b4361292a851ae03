/* Sound: windows, short-time Fourier transforms as products with a matrix, spectrograms, filters on
 * the mel scale. */
#include "nn/layer.h"

#include "engine/ops/op.h"
#include "weber/signal.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* ---- windows --------------------------------------------------------------------------------- */

static wb_tensor *window_of(const char *what, int64_t n, wb_dtype dtype, bool symmetric,
                            double alpha, double beta)
{
    int64_t size;
    if (!wb__is_dtype(what, dtype) || !wb__check_dims(what, 1, &n, &size)) return NULL;
    if (n < 1 || !wb__dtype_float(dtype))
        return wb__fail_null(n < 1 ? WB_ERROR_ARGUMENT : WB_ERROR_DTYPE, "%s: a window of %lld "
                             "numbers of %s; it has at least one, of a floating dtype", what,
                             (long long)n, wb_dtype_name(dtype));
    double *w = wb__alloc((size_t)n * sizeof *w);
    for (int64_t k = 0; w && k < n; k++)
        w[k] = alpha - beta * cos(2 * pi * (double)k / (double)(symmetric ? n - 1 : n));
    if (w && n == 1) w[0] = 1;
    return wb__from_doubles(w, dtype, 1, &n);
}

wb_tensor *wb_hamming_window_with(int64_t n, wb_dtype dtype, const wb_window_options *given)
{
    wb_window_options o;
    wb__given g;
    if (!wb__read_options("hamming_window", &o, sizeof o, given, "alpha beta", &g)) return NULL;
    return window_of("hamming_window", n, dtype, o.symmetric,
                     wb__real(wb__real_option(&g, "alpha", -1, o.alpha), 0.54),
                     wb__real(wb__real_option(&g, "beta", -1, o.beta), 0.46));
}

wb_tensor *wb_hann_window_with(int64_t n, wb_dtype dtype, const wb_window_options *given)
{
    wb_window_options o;
    wb__given g;
    if (!wb__read_options("hann_window", &o, sizeof o, given, "alpha beta", &g)) return NULL;
    if (wb__real_option(&g, "alpha", -1, o.alpha) != 0 ||
        wb__real_option(&g, "beta", -1, o.beta) != 0)
        return wb__fail_null(WB_ERROR_ARGUMENT, "hann_window: .alpha and .beta are options of "
                             "wb_hamming_window");
    return window_of("hann_window", n, dtype, o.symmetric, 0.5, 0.5);
}

/* ---- transforms ------------------------------------------------------------------------------ */

typedef enum { STFT, ISTFT, SPECTROGRAM } transform_kind;

typedef struct {
    const char *what;
    wb_stft_options o;
    double power;
    int64_t n, hop, frequencies;
    wb_tensor *window;                  /* [n] of `wide`, or NULL: ones */
    wb_dtype wide;                      /* the dtype of the computation for x */
} transform;

/* Reads the options for x, and the window unless `x` is NULL. */
static bool read_transform(transform *r, transform_kind kind, const wb_tensor *x,
                           const wb_stft_options *given)
{
    static const char *const names[] = {"stft", "istft", "spectrogram"};
    const char *what = names[kind];
    wb__given g;
    *r = (transform){.what = what};
    if (!wb__floating(what, x) ||
        !wb__read_options(what, &r->o, sizeof r->o, given, "power", &g) ||
        wb__is_given_null(what, &g, "window", r->o.window))
        return false;
    const double power = wb__real_option(&g, "power", -1, r->o.power);
    const wb_stft_options *o = &r->o;
    r->power = wb__real(power, 2);
    if (o->n_fft < 1 || o->n_fft > INT32_MAX || o->hop_length < 0 || o->hop_length > INT32_MAX ||
        o->length < 0 || o->length > UINT32_MAX || o->pad < 0 || o->pad > UINT32_MAX ||
        !(r->power >= 0) || isinf(r->power))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .n_fft %lld, .hop_length %lld, .length %lld, .pad "
                         "%lld, .power %g: .n_fft is positive, and none is negative or above "
                         "2^32", what,
                         (long long)o->n_fft, (long long)o->hop_length, (long long)o->length,
                         (long long)o->pad, r->power);
    if ((o->length && kind != ISTFT) ||
        ((o->pad || power != 0 || o->window_normalized) && kind != SPECTROGRAM))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .length is an option of wb_istft; .pad, .power "
                         "and .window_normalized are options of wb_spectrogram", what);
    r->n = o->n_fft;
    r->hop = o->hop_length ? o->hop_length : WB__MAX(r->n / 4, 1);
    r->frequencies = r->n / 2 + 1;
    r->wide = wb__computed_in((wb_dtype)x->dtype);
    wb_tensor *w = o->window;
    if (!w || wb_is_none(w)) return true;
    if (!wb__operand(what, w) || !wb__one_device(what, x, w)) return false;
    if (w->ndim != 1 || w->dims[0] < 1 || w->dims[0] > r->n || w->dtype != x->dtype)
        return !wb__fail(WB_ERROR_SHAPE, "%s: the window is %s; it has 1 to .n_fft %lld "
                         "elements of the dtype of %s", what, wb_describe(w), (long long)r->n,
                         wb_describe(x));
    const int64_t before = (r->n - w->dims[0]) / 2;
    r->window = wb_pad(wb__wide(w), 0, before, r->n - w->dims[0] - before);
    return r->window;
}

/* Returns the matrix of the transform, [n, 2 F]: row k has cos and -sin of 2 pi f k / n. */
static wb_tensor *matrix(const transform *r)
{
    const int64_t n = r->n;
    const wb_dtype t = n > 40000 ? WB_I64 : WB_I32;     /* holds f k */
    const double half = (double)(n / 2), all = (double)n;
    /* angles from -pi to pi, of which a float has more digits than of those up to 2 pi */
    wb_tensor *k = wb_arange(n, r->wide);
    k = wb_where(wb_gt(k, wb_scalar(half)), wb_sub(k, wb_scalar(all)), k);
    wb_tensor *angle = wb_mul(k, wb_scalar(2 * pi / all));
    wb_tensor *table = wb_stack(1, wb_cos(angle), wb_neg(wb_sin(angle)));
    wb_tensor *product = wb_mul(wb_unsqueeze(wb_arange(n, t), 1), wb_arange(r->frequencies, t));
    wb_tensor *turns = wb_mul(wb_div(product, wb__literal(all, t)), wb__literal(all, t));
    wb_tensor *y = wb_take(table, wb_sub(product, turns));
    return y ? wb_reshape_array(y, 2, (int64_t[]){n, 2 * r->frequencies}) : NULL;
}

/* Returns the indices of the elements of `frames` frames, [frames, n]. */
static wb_tensor *frame_index(const transform *r, int64_t frames)
{
    wb_tensor *first = wb_mul(wb_arange(frames, WB_I64), wb__literal((double)r->hop, WB_I64));
    return wb_add(wb_unsqueeze(first, 1), wb_arange(r->n, WB_I64));
}

/* Returns [B, L] as [B, T, F, 2]. */
static wb_tensor *transformed(const transform *r, wb_tensor *x)
{
    if (!r->o.no_center) x = wb_pad(x, 1, r->n / 2, r->n / 2, .mode = WB_PAD_REFLECT);
    if (!x) return NULL;
    const int64_t batch = x->dims[0], frames = (x->dims[1] - r->n) / r->hop + 1;
    wb_tensor *m = matrix(r);
    if (r->window) m = wb_mul(m, wb_unsqueeze(r->window, 1));
    if (r->o.normalized) m = wb_mul(m, wb_scalar(1 / sqrt((double)r->n)));
    wb_tensor *y = wb_matmul(wb_take_axis(x, frame_index(r, frames), 1), m);
    return y ? wb_reshape_array(y, 4, (int64_t[]){batch, frames, r->frequencies, 2}) : NULL;
}

/* Returns y, [B, ...], with the axes of x before its last `last` in place of the first. */
static wb_tensor *unpacked(wb_tensor *y, const wb_tensor *x, int last)
{
    int64_t dims[2 * WB_MAX_DIMS];
    const int front = x->ndim - last;
    if (!y) return NULL;
    for (int i = 0; i < front; i++) dims[i] = x->dims[i];
    for (int i = 1; i < y->ndim; i++) dims[front + i - 1] = y->dims[i];
    return wb_reshape_array(y, front + y->ndim - 1, dims);
}

/* Returns x, [..., L], as [B, L] of the dtype of the computation, with zeros on both sides. */
static wb_tensor *waves(const transform *r, wb_tensor *x)
{
    const int64_t length = x->ndim ? x->dims[x->ndim - 1] : 0;
    const int64_t padded = length + 2 * r->o.pad, centred = r->o.no_center ? 0 : r->n / 2;
    if (!x->ndim || padded <= centred || padded + 2 * centred < r->n)
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s has too few elements for frames of %lld",
                             r->what, wb_describe(x), (long long)r->n);
    int64_t batch = 1;
    for (int i = 0; i < x->ndim - 1; i++) batch *= x->dims[i];
    wb_tensor *flat = wb_reshape_array(wb__wide(x), 2, (int64_t[]){batch, length});
    return r->o.pad && flat ? wb_pad(flat, 1, r->o.pad, r->o.pad) : flat;
}

wb_tensor *wb_stft_with(wb_tensor *x, const wb_stft_options *given)
{
    transform r;
    const wb__frame f = wb__frame_begin();
    wb_tensor *flat = read_transform(&r, STFT, x, given) ? waves(&r, x) : NULL;
    wb_tensor *y = flat ? unpacked(transformed(&r, flat), x, 1) : NULL;
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}

wb_tensor *wb_spectrogram_with(wb_tensor *x, const wb_stft_options *given)
{
    transform r;
    const wb__frame f = wb__frame_begin();
    wb_tensor *flat = read_transform(&r, SPECTROGRAM, x, given) ? waves(&r, x) : NULL;
    wb_tensor *y = flat ? transformed(&r, flat) : NULL;
    if (y && r.o.window_normalized)
        y = wb_div(y, r.window ? wb_sqrt(wb_sum(wb_square(r.window)))
                               : wb_scalar(sqrt((double)r.n)));
    if (y && r.power > 0) {
        y = wb_sum(wb_square(y), .axes = {-1});
        if (r.power != 2) y = wb__root_of(y);
        if (r.power != 2 && r.power != 1) y = wb_pow(y, wb_scalar(r.power));
    }
    y = unpacked(y, x, 1);
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}

/* Returns the sums of overlapping frames, [B, T, n] -> [B, L]. */
static wb_tensor *overlapped(const transform *r, wb_tensor *frames)
{
    if (!frames) return NULL;
    const int64_t batch = frames->dims[0], count = frames->dims[1];
    const int64_t length = r->n + (count - 1) * r->hop;
    wb_tensor *index = wb_reshape_array(frame_index(r, count), 2, (int64_t[]){1, count * r->n});
    wb_tensor *values = wb_reshape_array(frames, 2, (int64_t[]){batch, count * r->n});
    return wb_scatter_along(wb_full_array(0, r->wide, 2, (int64_t[]){batch, length}), index, values,
                            1);
}

/* Returns y, [B, T, 2 F], as signals of all elements that frames cover, [B, L]. */
static wb_tensor *inverted(const transform *r, wb_tensor *y)
{
    const int64_t frames = y->dims[1];
    wb_tensor *f = wb_arange(r->frequencies, WB_I32);
    wb_tensor *alone = wb_eq(f, wb_scalar(0));      /* frequencies without a conjugate */
    if (r->n % 2 == 0) alone = wb_or(alone, wb_eq(f, wb_scalar((double)(r->n / 2))));
    const double each = r->o.normalized ? 1 / sqrt((double)r->n) : 1 / (double)r->n;
    wb_tensor *weight = wb_where(alone, wb_full_array(each, r->wide, 0, NULL),
                                 wb_full_array(2 * each, r->wide, 0, NULL));
    weight = wb_reshape_array(wb_expand(wb_unsqueeze(weight, 1), r->frequencies, 2), 1,
                              (int64_t[]){2 * r->frequencies});
    wb_tensor *back = wb_linear(y, wb_mul(matrix(r), weight), WB_NONE);
    wb_tensor *squares = r->window ? wb_square(r->window) : wb_full_array(1, r->wide, 1, &r->n);
    if (r->window) back = wb_mul(back, r->window);
    squares = squares ? wb_expand_array(squares, 3, (int64_t[]){1, frames, r->n}) : NULL;
    wb_tensor *sum = overlapped(r, squares);
    return wb_div(overlapped(r, back),
                  wb_where(wb_gt(sum, wb_scalar(1e-11)), sum, wb_scalar(1)));
}

static wb_tensor *istft(wb_tensor *y, const wb_stft_options *given)
{
    transform r;
    if (!read_transform(&r, ISTFT, y, given)) return NULL;
    if (y->ndim < 3 || y->dims[y->ndim - 1] != 2 || y->dims[y->ndim - 2] != r.frequencies ||
        y->dims[y->ndim - 3] < 1)
        return wb__fail_null(WB_ERROR_SHAPE, "istft: .n_fft %lld expects [...,T,%lld,2], got %s",
                             (long long)r.n, (long long)r.frequencies, wb_describe(y));
    const int64_t frames = y->dims[y->ndim - 3], from = r.o.no_center ? 0 : r.n / 2;
    const int64_t all = r.n + (frames - 1) * r.hop, most = all - 2 * from;
    const int64_t to = r.o.length ? from + r.o.length : all - from;
    if (to > all || most < 0)
        return wb__fail_null(WB_ERROR_SHAPE, "istft: .length is %lld, and %s covers %lld elements",
                             (long long)r.o.length, wb_describe(y), (long long)(all - from));
    int64_t batch = 1;
    for (int i = 0; i < y->ndim - 3; i++) batch *= y->dims[i];
    wb_tensor *flat = wb__wide(y);
    flat = wb_reshape_array(flat, 3, (int64_t[]){batch, frames, 2 * r.frequencies});
    wb_tensor *x = flat ? inverted(&r, flat) : NULL;
    x = unpacked(x ? wb_slice(x, 1, from, to) : NULL, y, 3);
    return x ? wb__as(x, (wb_dtype)y->dtype) : NULL;
}

wb_tensor *wb_istft_with(wb_tensor *y, const wb_stft_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, istft(y, o));
}

/* ---- mel scale and decibels ------------------------------------------------------------------ */

static double to_mel(double hertz) { return 2595 * log10(1 + hertz / 700); }
static double to_hertz(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

wb_tensor *wb_melscale_filterbanks_with(int64_t n_freqs, int64_t n_mels, int64_t sample_rate,
                                        const wb_mel_options *given)
{
    static const char what[] = "melscale_filterbanks";
    wb_mel_options o;
    wb__given g;
    int64_t size;
    const int64_t dims[] = {n_mels, n_freqs};
    if (!wb__read_options(what, &o, sizeof o, given, "fmax", &g) ||
        !wb__check_dims(what, 2, dims, &size))
        return NULL;
    const double top = (double)(sample_rate / 2);
    const double low = wb__real(wb__real_option(&g, "fmin", -1, o.fmin), 0);
    const double high = wb__real(wb__real_option(&g, "fmax", -1, o.fmax), top);
    if (n_freqs < 2 || n_mels < 1 || sample_rate < 2 || !(low >= 0 && low < high) || isinf(high))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %lld frequencies, %lld filters, sample rate "
                             "%lld, fmin %g, fmax %g: at least 2, 1 and 2, and 0 <= fmin < fmax",
                             what, (long long)n_freqs, (long long)n_mels, (long long)sample_rate,
                             low, high);
    const double mel = to_mel(low), step = (to_mel(high) - mel) / (double)(n_mels + 1);
    double *v = wb__alloc((size_t)size * sizeof *v);
    for (int64_t i = 0; v && i < size; i++) {
        const double at = top * (double)(i % n_freqs) / (double)(n_freqs - 1);
        const double m = (double)(i / n_freqs);
        const double left = to_hertz(mel + m * step), centre = to_hertz(mel + (m + 1) * step);
        const double right = to_hertz(mel + (m + 2) * step);
        v[i] = fmax(0, fmin((at - left) / (centre - left), (right - at) / (right - centre)));
    }
    return wb__from_doubles(v, WB_F32, 2, dims);
}

static bool is_reference(const char *what, double ref)
{
    if (ref > 0 && !isinf(ref)) return true;
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: ref is %g; it is positive", what, ref);
}

wb_tensor *wb_power_to_db(wb_tensor *x, double ref, double top_db)
{
    if (!wb__floating("power_to_db", x) || !is_reference("power_to_db", ref)) return NULL;
    const wb__frame f = wb__frame_begin();
    const double amin = 1e-10, scale = 10 / log(10.0);
    wb_tensor *y = wb_maximum(wb__wide(x), wb_scalar(amin));
    y = wb_mul(wb_sub(wb_log(y), wb_scalar(log(fmax(amin, ref)))), wb_scalar(scale));
    y = wb_maximum(y, wb_sub(wb_max(y), wb_scalar(top_db)));
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}

wb_tensor *wb_db_to_power(wb_tensor *x, double ref)
{
    if (!wb__floating("db_to_power", x) || !is_reference("db_to_power", ref)) return NULL;
    const wb__frame f = wb__frame_begin();
    wb_tensor *y = wb_mul(wb_exp(wb_mul(wb__wide(x), wb_scalar(log(10.0) / 10))), wb_scalar(ref));
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}
