/* Sound: windows, short-time Fourier transforms as products with a matrix, spectrograms, filters on
 * the mel scale. */
#include "nn/layer.h"

#include "engine/ops/op.h"
#include "weber/signal.h"

#include <math.h>

static const double signal_pi = 3.14159265358979323846;

/* ---- windows --------------------------------------------------------------------------------- */

static wb_tensor *signal_window_of(const char *what, int64_t n, wb_dtype dtype, bool symmetric,
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
        w[k] = alpha - beta * cos(2 * signal_pi * (double)k / (double)(symmetric ? n - 1 : n));
    if (w && n == 1) w[0] = 1;
    return wb__from_doubles(w, dtype, 1, &n);
}

wb_tensor *wb_hamming_window_with(int64_t n, wb_dtype dtype, const wb_window_options *given)
{
    wb_window_options o;
    if (!wb__read_options("hamming_window", wb_window_options, &o, given, NULL)) return NULL;
    return signal_window_of("hamming_window", n, dtype, o.symmetric, wb__or(o.alpha, 0.54),
                            wb__or(o.beta, 0.46));
}

wb_tensor *wb_hann_window_with(int64_t n, wb_dtype dtype, const wb_window_options *given)
{
    wb_window_options o;
    if (!wb__read_options("hann_window", wb_window_options, &o, given, NULL)) return NULL;
    if (o.alpha != WB_DEFAULT || o.beta != WB_DEFAULT)
        return wb__fail_null(WB_ERROR_ARGUMENT, "hann_window: .alpha and .beta are options of "
                             "wb_hamming_window");
    return signal_window_of("hann_window", n, dtype, o.symmetric, 0.5, 0.5);
}

/* ---- transforms ------------------------------------------------------------------------------ */

enum { SIGNAL_PARTS = 16 };             /* the most slices of which frames are concatenated */

typedef enum { STFT, ISTFT, SPECTROGRAM } transform_kind;

typedef struct {
    const char *what;                   /* the name of the function, for messages */
    wb_stft_options o;
    double power;
    int64_t n, hop, frequencies;  /* elements of a frame; elements from frame to frame; results */
    int64_t first, second;              /* n = first·second, for two steps; 0: one step */
    wb_tensor *window;                  /* [n] of `wide`, or NULL: ones */
    wb_dtype wide;                      /* the dtype in which the transform is computed */
} transform;

/* Makes n1 the first factor if that needs fewer products than *least, and lowers *least. */
static void signal_try_factor(transform *r, int64_t n1, double *least)
{
    const double n = (double)r->n, n2 = (double)(r->n / n1);
    const double products = (double)(n1 / 2 + 1) * (2 * n + 4 * n2 * n2);
    if (products > *least) return;
    *least = products;
    r->first = n1;
    r->second = r->n / n1;
}

/* Sets the two factors of n that need the fewest products.  A product with the whole matrix is
 * quicker for small n, and for n without such factors. */
static void signal_choose_factors(transform *r)
{
    double least = (double)r->n * (double)r->n / 4;
    for (int64_t d = 2; d * d <= r->n; d++)
        if (r->n % d == 0) {
            signal_try_factor(r, d, &least);
            signal_try_factor(r, r->n / d, &least);
        }
}

/* Sets the fields of r from the options for x, also the window if x is not NULL. */
static bool signal_read_options(transform *r, transform_kind kind, const wb_tensor *x,
                                const wb_stft_options *given)
{
    static const char *const names[] = {"stft", "istft", "spectrogram"};
    const char *what = names[kind];
    wb__given g;
    *r = (transform){.what = what};
    if (!wb__floating(what, x) ||
        !wb__read_options(what, wb_stft_options, &r->o, given, &g) ||
        wb__is_given_null(what, &g, "window", r->o.window))
        return false;
    const wb_stft_options *o = &r->o;
    r->power = wb__or(o->power, 2);
    if (o->n_fft < 1 || o->n_fft > INT32_MAX || o->hop_length < 0 || o->hop_length > INT32_MAX ||
        o->length < 0 || o->length > UINT32_MAX || o->pad < 0 || o->pad > UINT32_MAX ||
        !(r->power >= 0) || isinf(r->power))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .n_fft %lld, .hop_length %lld, .length %lld, .pad "
                         "%lld, .power %g: .n_fft is positive, and none is negative or above 2^32",
                         what, (long long)o->n_fft, (long long)o->hop_length, (long long)o->length,
                         (long long)o->pad, r->power);
    if ((o->length && kind != ISTFT) ||
        ((o->pad || o->power != WB_DEFAULT || o->window_normalized) && kind != SPECTROGRAM))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .length is an option of wb_istft; .pad, .power "
                         "and .window_normalized are options of wb_spectrogram", what);
    r->n = o->n_fft;
    r->hop = o->hop_length ? o->hop_length : WB__MAX(r->n / 4, 1);
    r->frequencies = r->n / 2 + 1;
    r->wide = wb__computed_in((wb_dtype)x->dtype);
    signal_choose_factors(r);
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

/* Returns cos and -sin of 2 pi f k / n for integers k and f, [..., 2], in the shape to which k and
 * f broadcast.  `t` is an integer dtype that holds all products f k. */
static wb_tensor *signal_unit_circle(const transform *r, wb_tensor *k, wb_tensor *f, wb_dtype t)
{
    const double half = (double)(r->n / 2), all = (double)r->n;
    /* angles from -pi to pi, since a float has more digits for them than for angles up to 2 pi */
    wb_tensor *i = wb_arange(r->n, r->wide);
    i = wb_where(wb_gt(i, wb_scalar(half)), wb_sub(i, wb_scalar(all)), i);
    wb_tensor *angle = wb_mul(i, wb_scalar(2 * signal_pi / all));
    wb_tensor *table = wb_stack(1, wb_cos(angle), wb_neg(wb_sin(angle)));
    wb_tensor *product = wb_mul(k, f);
    wb_tensor *whole = wb_mul(wb_div(product, wb__literal(all, t)), wb__literal(all, t));
    return wb_take(table, wb_sub(product, whole));
}

static wb_dtype signal_index_dtype(const transform *r) { return r->n > 40000 ? WB_I64 : WB_I32; }

/* Returns the matrix of the transform, [n, 2 F]: row k has cos and -sin of 2 pi f k / n. */
static wb_tensor *signal_matrix(const transform *r)
{
    const wb_dtype t = signal_index_dtype(r);
    wb_tensor *y = signal_unit_circle(r, wb_unsqueeze(wb_arange(r->n, t), 1),
                                      wb_arange(r->frequencies, t), t);
    return y ? wb_reshape_array(y, 2, (int64_t[]){r->n, 2 * r->frequencies}) : NULL;
}

/* ---- transforms in two steps -----------------------------------------------------------------
 *
 * With n = n1 n2, k = n2 k1 + k2 and f = f1 + n1 f2,
 *   y[f] = sum over k2 of exp(-2 pi i f2 k2 / n2) a[f1, k2],
 *   a[f1, k2] = sum over k1 of exp(-2 pi i f1 k / n) x[k].
 * Of a real x the f1 up to n1 / 2 are enough: y[n - f] is the conjugate of y[f].  F1 = n1 / 2 + 1.
 * The inverse takes the same steps backwards. */

/* Returns the matrices of the first step, [n2, 2 F1, n1]: rows with cos, then rows with -sin. */
static wb_tensor *signal_first_matrices(const transform *r)
{
    const wb_dtype t = signal_index_dtype(r);
    const int64_t count = r->first / 2 + 1;
    wb_tensor *k = wb_mul(wb_arange(r->first, t), wb__literal((double)r->second, t));
    k = wb_add(wb_unsqueeze(wb_unsqueeze(wb_arange(r->second, t), 1), 2), k);
    wb_tensor *y = signal_unit_circle(r, k, wb_unsqueeze(wb_arange(count, t), 1), t);
    y = y ? wb_permute(y, 0, 3, 1, 2) : NULL;
    return y ? wb_reshape_array(y, 3, (int64_t[]){r->second, 2 * count, r->first}) : NULL;
}

/* Returns the matrix of the second step, [2 n2, 2 n2], of rows (part, f2) and columns (k2, part)
 * with the real and the imaginary part: complex numbers times exp(...). */
static wb_tensor *signal_second_matrix(const transform *r)
{
    const wb_dtype t = signal_index_dtype(r);
    wb_tensor *k = wb_mul(wb_arange(r->second, t), wb__literal((double)r->first, t));
    wb_tensor *e = signal_unit_circle(r, k, wb_unsqueeze(wb_arange(r->second, t), 1), t);
    if (!e) return NULL;
    wb_tensor *c = wb_slice(e, 2, 0, 1), *s = wb_slice(e, 2, 1, 2);     /* cos and -sin */
    wb_tensor *y = wb_stack(0, wb_concat(2, c, wb_neg(s)), wb_concat(2, s, c));
    return y ? wb_reshape_array(y, 2, (int64_t[]){2 * r->second, 2 * r->second}) : NULL;
}

/* Returns y, [parts, n2, F1, all], with the F frequencies in their order, [parts, F, all].  Part 0
 * is real; part 1, if there is one, is imaginary. */
static wb_tensor *signal_order_frequencies(const transform *r, wb_tensor *y)
{
    const int64_t n1 = r->first, n2 = r->second, last = (n1 - 1) / 2, rows = n2 / 2 + 1;
    if (!y) return NULL;
    const int64_t parts = y->dims[0], all = y->dims[3];
    wb_tensor *turned = wb_slice(wb_slice(y, 2, 1, last + 1), 1, n2 - rows, n2);
    turned = wb_flip(wb_flip(turned, 1), 2);
    if (parts == 2)
        turned = wb_concat(0, wb_slice(turned, 0, 0, 1), wb_neg(wb_slice(turned, 0, 1, 2)));
    y = wb_concat(2, wb_slice(y, 1, 0, rows), turned);
    y = y ? wb_reshape_array(y, 3, (int64_t[]){parts, rows * n1, all}) : NULL;
    return wb_slice(y, 1, 0, r->frequencies);
}

static int64_t signal_divisor(int64_t a, int64_t b) { return b ? signal_divisor(b, a % b) : a; }

/* Returns the indices of the rows of each frame, [B, frames, n / each], where each of the B signals
 * has `rows` rows.  A signal is divided into rows of the greatest length, `each`, that divides both
 * n and the hop, so that frames are whole rows. */
static wb_tensor *signal_rows_of(const transform *r, int64_t batch, int64_t frames, int64_t rows)
{
    const int64_t each = signal_divisor(r->n, r->hop);
    wb_tensor *of = wb_mul(wb_arange(batch, WB_I64), wb__literal((double)rows, WB_I64));
    wb_tensor *at = wb_mul(wb_arange(frames, WB_I64), wb__literal((double)(r->hop / each), WB_I64));
    of = wb_unsqueeze(wb_add(wb_unsqueeze(of, 1), at), 2);
    return wb_add(of, wb_arange(r->n / each, WB_I64));
}

/* Returns the frames of x, [B, L] -> [B frames, n]. */
static wb_tensor *signal_frames_of(const transform *r, wb_tensor *x, int64_t frames)
{
    const int64_t each = signal_divisor(r->n, r->hop), batch = x->dims[0];
    const int64_t rows = (r->n + (frames - 1) * r->hop) / each;
    x = wb_slice(x, 1, 0, rows * each);
    x = x ? wb_reshape_array(x, 2, (int64_t[]){batch * rows, each}) : NULL;
    wb_tensor *y = wb_take(x, signal_rows_of(r, batch, frames, rows));
    return y ? wb_reshape_array(y, 2, (int64_t[]){batch * frames, r->n}) : NULL;
}

/* Returns the frames of x, [B, L], as columns, [n, B frames].  If a frame has few rows, each row of
 * all frames is one slice of the rows of x. */
static wb_tensor *signal_columns_of(const transform *r, wb_tensor *x, int64_t frames)
{
    const int64_t each = signal_divisor(r->n, r->hop), parts = r->n / each, step = r->hop / each;
    const int64_t batch = x->dims[0], rows = parts + (frames - 1) * step;
    wb_tensor *slices[SIGNAL_PARTS];
    if (parts > SIGNAL_PARTS) {
        x = signal_frames_of(r, x, frames);
        return x ? wb_transpose(x) : NULL;
    }
    x = wb_slice(x, 1, 0, rows * each);
    x = x ? wb_reshape_array(x, 2, (int64_t[]){batch * rows, each}) : NULL;
    x = x ? wb_reshape_array(wb_transpose(x), 3, (int64_t[]){each, batch, rows}) : NULL;
    for (int64_t i = 0; i < parts; i++)
        slices[i] = wb_slice(x, 2, i, i + (frames - 1) * step + 1, step);
    x = wb_concat_array(0, (int)parts, slices);
    return x ? wb_reshape_array(x, 2, (int64_t[]){r->n, batch * frames}) : NULL;
}

/* Returns the transforms of frames, [n, all], computed in two steps: [2, n2, F1, all], real,
 * imaginary. */
static wb_tensor *signal_transform_in_two(const transform *r, wb_tensor *x)
{
    const int64_t all = x->dims[1], n1 = r->first, n2 = r->second, count = n1 / 2 + 1;
    wb_tensor *m = signal_first_matrices(r);
    if (r->window) {
        wb_tensor *w = wb_reshape_array(r->window, 2, (int64_t[]){n1, n2});
        m = wb_mul(m, wb_unsqueeze(wb_transpose(w), 1));
    }
    if (r->o.normalized) m = wb_mul(m, wb_scalar(1 / sqrt((double)r->n)));
    x = wb_reshape_array(x, 3, (int64_t[]){n1, n2, all});
    wb_tensor *y = x ? wb_matmul(m, wb_permute(x, 1, 0, 2)) : NULL;
    y = y ? wb_reshape_array(y, 2, (int64_t[]){2 * n2, count * all}) : NULL;
    y = wb_matmul(signal_second_matrix(r), y);
    return y ? wb_reshape_array(y, 4, (int64_t[]){2, n2, count, all}) : NULL;
}

/* Returns the transform of x, [B, T, F, 2], or with `squares` squared magnitudes, [B, T, F]. */
static wb_tensor *signal_transform(const transform *r, wb_tensor *x, bool squares)
{
    if (r->o.center) x = wb_pad(x, 1, r->n / 2, r->n / 2, .mode = WB_PAD_REFLECT);
    if (!x) return NULL;
    const int64_t batch = x->dims[0], frames = (x->dims[1] - r->n) / r->hop + 1;
    wb_tensor *y = (r->first ? signal_columns_of : signal_frames_of)(r, x, frames);
    if (y && r->first) {
        y = signal_transform_in_two(r, y);
        if (squares) y = wb_sum(wb_square(y), .axes = {0}, .keep = true);
        y = signal_order_frequencies(r, y);
        y = y ? wb_permute(y, 2, 1, 0) : NULL;
    } else if (y) {
        wb_tensor *m = signal_matrix(r);
        if (r->window) m = wb_mul(m, wb_unsqueeze(r->window, 1));
        if (r->o.normalized) m = wb_mul(m, wb_scalar(1 / sqrt((double)r->n)));
        y = wb_matmul(y, m);
        y = y ? wb_reshape_array(y, 3, (int64_t[]){batch * frames, r->frequencies, 2}) : NULL;
        if (squares) y = wb_sum(wb_square(y), .axes = {-1});
    }
    const int64_t dims[] = {batch, frames, r->frequencies, 2};
    return y ? wb_reshape_array(y, squares ? 3 : 4, dims) : NULL;
}

/* Returns y, [B, ...], with the axes of x, but for its last `last` axes, in place of the axis B. */
static wb_tensor *signal_unpack_batch(wb_tensor *y, const wb_tensor *x, int last)
{
    int64_t dims[2 * WB_MAX_DIMS];
    if (!y) return NULL;
    const int front = x->ndim - last;
    for (int i = 0; i < front; i++) dims[i] = x->dims[i];
    for (int i = 1; i < y->ndim; i++) dims[front + i - 1] = y->dims[i];
    return wb_reshape_array(y, front + y->ndim - 1, dims);
}

/* Returns x, [..., L], as [B, L] in the dtype r->wide, with padding at both ends. */
static wb_tensor *signal_waves(const transform *r, wb_tensor *x)
{
    const int64_t length = x->ndim ? x->dims[x->ndim - 1] : 0;
    const int64_t padded = length + 2 * r->o.pad, centred = r->o.center ? r->n / 2 : 0;
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
    wb_tensor *flat = signal_read_options(&r, STFT, x, given) ? signal_waves(&r, x) : NULL;
    wb_tensor *y = flat ? signal_unpack_batch(signal_transform(&r, flat, false), x, 1) : NULL;
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}

wb_tensor *wb_spectrogram_with(wb_tensor *x, const wb_stft_options *given)
{
    transform r;
    const wb__frame f = wb__frame_begin();
    wb_tensor *flat = signal_read_options(&r, SPECTROGRAM, x, given) ? signal_waves(&r, x) : NULL;
    wb_tensor *y = flat ? signal_transform(&r, flat, r.power > 0) : NULL;
    if (y && r.o.window_normalized) {
        wb_tensor *norm = r.window ? wb_sum(wb_square(r.window)) : wb_scalar((double)r.n);
        y = wb_div(y, r.power > 0 ? norm : wb_sqrt(norm));
    }
    if (y && r.power > 0) {
        if (r.power != 2) y = wb__root_of(y);
        if (r.power != 2 && r.power != 1) y = wb_pow(y, wb_scalar(r.power));
    }
    y = signal_unpack_batch(y, x, 1);
    return wb__frame_end(f, y ? wb__as(y, (wb_dtype)x->dtype) : NULL);
}

/* Returns the sums of overlapping frames, [B, T, n] -> [B, L]. */
static wb_tensor *signal_overlap_add(const transform *r, wb_tensor *frames)
{
    if (!frames) return NULL;
    const int64_t batch = frames->dims[0], count = frames->dims[1];
    const int64_t each = signal_divisor(r->n, r->hop), length = r->n + (count - 1) * r->hop;
    const int64_t rows = length / each, dims[] = {batch, count, r->n / each, each};
    wb_tensor *y = wb_full_array(0, r->wide, 2, (int64_t[]){batch * rows, each});
    y = wb_scatter(y, signal_rows_of(r, batch, count, rows), wb_reshape_array(frames, 4, dims));
    return y ? wb_reshape_array(y, 2, (int64_t[]){batch, length}) : NULL;
}

/* Returns how often the integer frequencies f count in the sum of the inverse transform: once where
 * f is its own conjugate, else twice. */
static wb_tensor *signal_weight_of(const transform *r, wb_tensor *f)
{
    const double each = r->o.normalized ? 1 / sqrt((double)r->n) : 1 / (double)r->n;
    wb_tensor *alone = wb_eq(f, wb_scalar(0));
    if (r->n % 2 == 0) alone = wb_or(alone, wb_eq(f, wb_scalar((double)(r->n / 2))));
    return wb_where(alone, wb_full_array(each, r->wide, 0, NULL),
                    wb_full_array(2 * each, r->wide, 0, NULL));
}

/* Returns the frames of the inverse transform, [all, n], of the weighted y, [all, F, 2]: undoes
 * signal_order_frequencies and signal_transform_in_two. */
static wb_tensor *signal_invert_in_two(const transform *r, wb_tensor *y)
{
    const int64_t all = y->dims[0], n1 = r->first, n2 = r->second, count = n1 / 2 + 1;
    wb_tensor *f1 = wb_arange(count, WB_I64);
    wb_tensor *at = wb_mul(wb_arange(n2, WB_I64), wb__literal((double)n1, WB_I64));
    at = wb_add(wb_unsqueeze(at, 1), f1);
    wb_tensor *direct = wb_le(at, wb_scalar((double)(r->n / 2)));
    wb_tensor *turns = wb_and(wb_gt(f1, wb_scalar(0)),
                              wb_lt(wb_mul(f1, wb_scalar(2)), wb_scalar((double)n1)));
    wb_tensor *f = wb_where(direct, at, wb_sub(wb_scalar((double)r->n), at));
    wb_tensor *weight = signal_weight_of(r, f), *none = wb_full_array(0, r->wide, 0, NULL);
    wb_tensor *real = wb_where(wb_or(direct, turns), weight, none);
    wb_tensor *both = wb_stack(0, real, wb_where(direct, real, wb_neg(real)));
    y = wb_take(wb_permute(y, 2, 1, 0), f, 1);
    y = wb_mul(y, wb_unsqueeze(both, 3));
    y = y ? wb_reshape_array(y, 2, (int64_t[]){2 * n2, count * all}) : NULL;
    wb_tensor *m = signal_second_matrix(r);
    y = m ? wb_matmul(wb_transpose(m), y) : NULL;
    y = y ? wb_reshape_array(y, 3, (int64_t[]){n2, 2 * count, all}) : NULL;
    m = signal_first_matrices(r);
    y = m ? wb_matmul(wb_permute(m, 0, 2, 1), y) : NULL;
    y = y ? wb_permute(y, 2, 1, 0) : NULL;
    return y ? wb_reshape_array(y, 2, (int64_t[]){all, r->n}) : NULL;
}

/* Returns the signals, [B, L], whose frames have the transforms y, [B, T, 2 F], before any is
 * cut. */
static wb_tensor *signal_invert(const transform *r, wb_tensor *y)
{
    const int64_t batch = y->dims[0], frames = y->dims[1], all = batch * frames;
    wb_tensor *back;
    if (r->first) {
        y = wb_reshape_array(y, 3, (int64_t[]){all, r->frequencies, 2});
        back = y ? signal_invert_in_two(r, y) : NULL;
        back = back ? wb_reshape_array(back, 3, (int64_t[]){batch, frames, r->n}) : NULL;
    } else {
        wb_tensor *weight = signal_weight_of(r, wb_arange(r->frequencies, WB_I32));
        weight = wb_reshape_array(wb_expand(wb_unsqueeze(weight, 1), r->frequencies, 2), 1,
                                  (int64_t[]){2 * r->frequencies});
        back = wb_linear(y, wb_mul(signal_matrix(r), weight), WB_NONE);
    }
    wb_tensor *squares = r->window ? wb_square(r->window) : wb_full_array(1, r->wide, 1, &r->n);
    if (r->window) back = wb_mul(back, r->window);
    squares = squares ? wb_expand_array(squares, 3, (int64_t[]){1, frames, r->n}) : NULL;
    wb_tensor *sum = signal_overlap_add(r, squares);
    return wb_div(signal_overlap_add(r, back),
                  wb_where(wb_gt(sum, wb_scalar(1e-11)), sum, wb_scalar(1)));
}

static wb_tensor *signal_istft(wb_tensor *y, const wb_stft_options *given)
{
    transform r;
    if (!signal_read_options(&r, ISTFT, y, given)) return NULL;
    if (y->ndim < 3 || y->dims[y->ndim - 1] != 2 || y->dims[y->ndim - 2] != r.frequencies ||
        y->dims[y->ndim - 3] < 1)
        return wb__fail_null(WB_ERROR_SHAPE, "istft: .n_fft %lld expects [...,T,%lld,2], got %s",
                             (long long)r.n, (long long)r.frequencies, wb_describe(y));
    const int64_t frames = y->dims[y->ndim - 3], from = r.o.center ? r.n / 2 : 0;
    const int64_t all = r.n + (frames - 1) * r.hop, most = all - 2 * from;
    const int64_t to = r.o.length ? from + r.o.length : all - from;
    if (to > all || most < 0)
        return wb__fail_null(WB_ERROR_SHAPE, "istft: .length is %lld, and %s covers %lld elements",
                             (long long)r.o.length, wb_describe(y), (long long)(all - from));
    int64_t batch = 1;
    for (int i = 0; i < y->ndim - 3; i++) batch *= y->dims[i];
    wb_tensor *flat = wb__wide(y);
    flat = wb_reshape_array(flat, 3, (int64_t[]){batch, frames, 2 * r.frequencies});
    wb_tensor *x = flat ? signal_invert(&r, flat) : NULL;
    x = signal_unpack_batch(x ? wb_slice(x, 1, from, to) : NULL, y, 3);
    return x ? wb__as(x, (wb_dtype)y->dtype) : NULL;
}

wb_tensor *wb_istft_with(wb_tensor *y, const wb_stft_options *o)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, signal_istft(y, o));
}

/* ---- mel scale and decibels ------------------------------------------------------------------ */

static double signal_to_mel(double hertz) { return 2595 * log10(1 + hertz / 700); }
static double signal_to_hertz(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

wb_tensor *wb_melscale_filterbanks_with(int64_t n_freqs, int64_t n_mels, int64_t sample_rate,
                                        const wb_melscale_filterbanks_options *given)
{
    static const char what[] = "melscale_filterbanks";
    wb_melscale_filterbanks_options o;
    int64_t size;
    const int64_t dims[] = {n_mels, n_freqs};
    if (!wb__read_options(what, wb_melscale_filterbanks_options, &o, given, NULL) ||
        !wb__check_dims(what, 2, dims, &size))
        return NULL;
    const double top = (double)(sample_rate / 2);
    const double low = o.fmin, high = wb__or(o.fmax, top);
    if (n_freqs < 2 || n_mels < 1 || sample_rate < 2 || !(low >= 0 && low < high) || isinf(high))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %lld frequencies, %lld filters, sample rate "
                             "%lld, fmin %g, fmax %g: at least 2, 1 and 2, and 0 <= fmin < fmax",
                             what, (long long)n_freqs, (long long)n_mels, (long long)sample_rate,
                             low, high);
    const double mel = signal_to_mel(low),
                 step = (signal_to_mel(high) - mel) / (double)(n_mels + 1);
    double *v = wb__alloc((size_t)size * sizeof *v);
    for (int64_t i = 0; v && i < size; i++) {
        const double at = top * (double)(i % n_freqs) / (double)(n_freqs - 1);
        const double m = (double)(i / n_freqs);
        const double left = signal_to_hertz(mel + m * step),
                     centre = signal_to_hertz(mel + (m + 1) * step);
        const double right = signal_to_hertz(mel + (m + 2) * step);
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
