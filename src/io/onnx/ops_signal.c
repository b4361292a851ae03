/* Fourier transforms and windows of ONNX, by Weber's wb_stft and wb_istft, which take real signals:
 * the transform of a complex one is that of its real part, plus i times that of its imaginary
 * part. */
#include "io/onnx/ops_common.h"
#include "io/onnx/ops_window.h"
#include "weber/signal.h"

#include <math.h>
#include <string.h>

static const double onnx_signal_pi = 3.14159265358979323846;

/* ---- transforms ------------------------------------------------------------------------------ */

static wb_stft_options onnx_signal_frames_of(int64_t length, int64_t step, wb_tensor *window)
{
    return WB__OPTIONS(wb_stft_options, .n_fft = length, .hop_length = step, .window = window,
                       .center = false);
}

/* Returns the real (0) or the imaginary (1) part of y, [..., 2], as [..., 1]. */
static wb_tensor *onnx_signal_half(wb_tensor *y, int i) { return y ? wb_slice(y, -1, i,
                                                                              i + 1) : NULL; }

static wb_tensor *onnx_signal_conjugate(wb_tensor *y)
{
    return y ? wb_concat(-1, onnx_signal_half(y, 0), wb_neg(onnx_signal_half(y, 1))) : NULL;
}

/* Returns y, the first n / 2 + 1 of n frequencies of a real signal, [..., 2], so that the last one
 * of an even n is real: wb_stft has the sine of pi as f32 there, which is not 0. */
static wb_tensor *onnx_signal_with_real_end(wb_tensor *y, int64_t n)
{
    if (!y || n % 2) return y;
    wb_tensor *end = wb_eq(wb_arange(n / 2 + 1, WB_I64), wb__literal((double)(n / 2), WB_I64));
    wb_tensor *imaginary = wb_eq(wb_arange(2, WB_I64), wb__literal(1, WB_I64));
    return wb_where(wb_and(wb_unsqueeze(end, 1), imaginary), wb__number_of(0), y);
}

/* Returns all n frequencies of a real signal, [..., n, 2], of which y has the first n / 2 + 1:
 * y[n - f] is the conjugate of y[f]. */
static wb_tensor *onnx_signal_all_frequencies(wb_tensor *y, int64_t n)
{
    if (!y || n < 3) return y;
    wb_tensor *turned = wb_flip(wb_slice(y, -2, 1, (n + 1) / 2), -2);
    return wb_concat(-2, y, onnx_signal_conjugate(turned));
}

/* Returns the transforms of frames of x, [..., L, 1 or 2]: [..., T, F, 2]. */
static wb_tensor *onnx_signal_transform_frames(wb_tensor *x, const wb_stft_options *o,
                                               bool onesided)
{
    wb_tensor *part[2] = {NULL, NULL};
    const int64_t parts = x->dims[x->ndim - 1];
    for (int i = 0; i < parts; i++) {
        part[i] = onnx_signal_with_real_end(wb_stft_with(wb_squeeze(onnx_signal_half(x, i), -1), o),
                                            o->n_fft);
        if (!onesided) part[i] = onnx_signal_all_frequencies(part[i], o->n_fft);
        if (!part[i]) return NULL;
    }
    if (parts == 1) return part[0];
    return wb_concat(-1, wb_sub(onnx_signal_half(part[0], 0), onnx_signal_half(part[1], 1)),
                     wb_add(onnx_signal_half(part[0], 1), onnx_signal_half(part[1], 0)));
}

/* Returns the least count of numbers in the matrices of wb_stft for n elements. */
static double onnx_signal_matrix_size(int64_t n)
{
    double least = (double)n * (double)n;
    for (int64_t d = 2; d * d <= n; d++)
        for (int k = 0; n % d == 0 && k < 2; k++) {
            const double n1 = (double)(k ? d : n / d), n2 = (double)n / n1;
            least = fmin(least, (double)n * n1 + 4 * n2 * n2);
        }
    return least;
}

/* Returns the transform of one frame of n elements, [..., 1, F, 2]; x, [..., L, 1 or 2], has the
 * first L elements.  The others are 0, and need no rows of a matrix, which is [L, 2 F]: a file of
 * 200 bytes may name any n. */
static wb_tensor *onnx_signal_transform_rows(wb_tensor *x, int64_t n, bool onesided)
{
    const int64_t rows = x->dims[x->ndim - 2], f = onesided ? n / 2 + 1 : n;
    const int64_t parts = x->dims[x->ndim - 1], dims[2] = {rows, 2 * f};
    wb_tensor *part[2] = {NULL, NULL};
    double *m = wb__alloc((size_t)(2 * rows * f) * sizeof *m + 1);
    for (int64_t i = 0; m && i < rows * f; i++) {
        const double angle = 2 * onnx_signal_pi / (double)n * (double)(i / f * (i % f) % n);
        m[2 * i] = cos(angle);
        m[2 * i + 1] = -sin(angle);
    }
    wb_tensor *wide = wb__wide(x);
    wb_tensor *w = wb__onnx_doubles(x, m, wide ? (wb_dtype)wide->dtype : WB_F32, 2, dims);
    for (int64_t i = 0; i < parts; i++) {
        wb_tensor *y = wb_unsqueeze(wb_squeeze(onnx_signal_half(wide, (int)i), -1), -2);
        y = wb_unsqueeze(wb_matmul(y, w), -1);
        if (!y) return NULL;
        int64_t shape[WB_MAX_DIMS];
        memcpy(shape, y->dims, sizeof shape);
        shape[y->ndim - 2] = f;
        shape[y->ndim - 1] = 2;
        part[i] = wb_reshape_array(y, y->ndim, shape);
    }
    if (parts == 2)
        part[0] = wb_concat(-1, wb_sub(onnx_signal_half(part[0], 0), onnx_signal_half(part[1], 1)),
                            wb_add(onnx_signal_half(part[0], 1), onnx_signal_half(part[1], 0)));
    return wb__as(part[0], (wb_dtype)x->dtype);
}

/* Returns x with n elements along axis -2: cut off, or with zeros behind it. */
static wb_tensor *onnx_signal_resized(wb_tensor *x, int64_t n)
{
    const int64_t has = x ? x->dims[x->ndim - 2] : 0;
    if (!x || has == n) return x;
    return has > n ? wb_slice(x, -2, 0, n) : wb_pad(x, x->ndim - 2, 0, n - has);
}

/* Returns x with the axis exchanged with the one before the last. */
static wb_tensor *onnx_signal_exchanged(wb_tensor *x, int axis)
{
    int64_t order[WB_MAX_DIMS];
    if (!x || axis == x->ndim - 2) return x;
    for (int i = 0; i < x->ndim; i++) order[i] = i;
    order[axis] = x->ndim - 2;
    order[x->ndim - 2] = axis;
    return wb_permute_array(x, x->ndim, order);
}

static bool onnx_signal_is_signal(const wb__onnx_call *c, const wb_tensor *x)
{
    if (!x) return false;
    if (wb__dtype_float((wb_dtype)x->dtype) && x->ndim >= 2 &&
        (x->dims[x->ndim - 1] == 1 || x->dims[x->ndim - 1] == 2))
        return true;
    return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s; the last axis is that of real and "
                           "imaginary parts, 1 or 2", wb_describe(x));
}

/* Sets *length to a positive length: input i, or else `otherwise`. */
static bool onnx_signal_read_length(const wb__onnx_call *c, int i, int64_t otherwise,
                                    int64_t *length)
{
    *length = otherwise;
    if (!wb__onnx_input_int(c, i, length)) return false;
    if (*length >= 1 && *length <= INT32_MAX) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "a length is %lld; lengths from 1 to "
                           "%d are done", (long long)*length, INT32_MAX);
}

/* Sets *axis to the axis of a DFT: an attribute before opset 20, input 2 since then. */
static bool onnx_signal_read_axis(wb__onnx_call *c, int *axis)
{
    const bool is_input = c->node->opset >= 20;
    int64_t given = is_input ? -2 : wb__onnx_int(c, "axis");
    const wb_tensor *x = c->in[0];
    if (is_input && !wb__onnx_input_int(c, 2, &given)) return false;
    *axis = wb__onnx_axis(c, given, x->ndim);
    if (*axis >= 0 && *axis == x->ndim - 1)
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "axis %d of %s, which is that of real and "
                               "imaginary parts", *axis, wb_describe(x));
    return *axis >= 0;
}

/* Returns the transform of x with n elements along axis -2: [..., 1, F, 2]. */
static wb_tensor *onnx_signal_transform_to(wb_tensor *x, int64_t n, bool onesided)
{
    const int64_t has = x ? x->dims[x->ndim - 2] : 0;
    const double f = (double)(onesided ? n / 2 + 1 : n);
    if (!x) return NULL;
    if (has && has < n && 2 * (double)has * f < onnx_signal_matrix_size(n))
        return onnx_signal_transform_rows(x, n, onesided);
    const wb_stft_options o = onnx_signal_frames_of(n, n, NULL);
    x = onnx_signal_resized(x, n);
    return x ? onnx_signal_transform_frames(x, &o, onesided) : NULL;
}

/* Returns the inverse transform of n elements, conj(F(conj(x))) / n. */
static wb_tensor *onnx_signal_inverse(wb_tensor *x, int64_t n)
{
    wb_tensor *y = x && x->dims[x->ndim - 1] == 2 ? onnx_signal_conjugate(x) : x;
    y = onnx_signal_conjugate(onnx_signal_transform_to(y, n, false));
    return wb_mul(y, wb__number_of(1 / (double)n));
}

bool wb__onnx_dft(wb__onnx_call *c)
{
    int axis;
    int64_t n;
    if (!onnx_signal_is_signal(c, c->in[0]) || !onnx_signal_read_axis(c, &axis)) return false;
    const bool back = wb__onnx_int(c, "inverse"), onesided = wb__onnx_int(c, "onesided");
    wb_tensor *x = c->in[0], *y;
    const int64_t has = x->dims[axis], parts = x->dims[x->ndim - 1];
    if (!onnx_signal_read_length(c, 1, back && onesided ? 2 * (has - 1) : has, &n)) return false;
    if (onesided && parts != (back ? 2 : 1))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "onesided: its input is %s; it takes a real "
                               "signal, or with inverse a complex one", wb_describe(x));
    x = onnx_signal_exchanged(x, axis);
    if (back && onesided) {
        const wb_stft_options o = onnx_signal_frames_of(n, n, NULL);
        x = onnx_signal_resized(x, n / 2 + 1);
        y = x ? wb_istft_with(wb_unsqueeze(x, -3), &o) : NULL;
        return wb__onnx_give(c, onnx_signal_exchanged(y ? wb_unsqueeze(y, -1) : NULL, axis));
    }
    y = back ? onnx_signal_inverse(x, n) : onnx_signal_transform_to(x, n, onesided);
    return wb__onnx_give(c, onnx_signal_exchanged(y ? wb_squeeze(y, -3) : NULL, axis));
}

/* Computes STFT.  PyTorch exports real signals as [N, L]. */
bool wb__onnx_stft(wb__onnx_call *c)
{
    int64_t length, step;
    wb_tensor *x = c->in[0], *window = wb__onnx_in(c, 2);
    if (x->ndim == 2) x = wb_unsqueeze(x, -1);
    if (!onnx_signal_is_signal(c, x)) return false;
    const bool onesided = wb__onnx_int(c, "onesided");
    const int64_t otherwise = window && window->ndim == 1 ? window->dims[0] : x->dims[x->ndim - 2];
    if (!onnx_signal_read_length(c, 1, 0, &step) ||
        !onnx_signal_read_length(c, 3, otherwise, &length)) return false;
    if (x->ndim != 3 || (onesided && x->dims[2] != 1))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its signal is %s; it is [N,L,1], or without "
                               "onesided [N,L,2]", wb_describe(x));
    if (window && (window->ndim != 1 || window->dims[0] != length))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its window is %s, and its frames have %lld "
                               "elements", wb_describe(window), (long long)length);
    const wb_stft_options o = onnx_signal_frames_of(length, step, window);
    return wb__onnx_give(c, onnx_signal_transform_frames(x, &o, onesided));
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Sets *t to the attribute output_datatype, which is floating. */
static bool onnx_signal_read_type(const wb__onnx_call *c, wb_dtype *t)
{
    const wb__onnx_type type = (wb__onnx_type)wb__onnx_int(c, "output_datatype");
    *t = wb__onnx_dtype(type);
    if (*t && wb__dtype_float(*t)) return true;
    return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "output_datatype is %s",
                           wb__onnx_type_name(type));
}

wb_tensor *wb__onnx_window(const wb__onnx_call *c, double a, double b, double d)
{
    int64_t n;
    wb_dtype t;
    if (!onnx_signal_read_length(c, 0, 0, &n) || !onnx_signal_read_type(c, &t)) return NULL;
    const int64_t m = wb__onnx_int(c, "periodic") ? n : n - 1;
    double *w = wb__alloc((size_t)n * sizeof *w);
    for (int64_t k = 0; w && k < n; k++) {
        const double angle = m ? 2 * onnx_signal_pi * (double)k / (double)m : onnx_signal_pi;
        w[k] = a - b * cos(angle) + d * cos(2 * angle);
    }
    return wb__onnx_doubles(c->in[0], w, t, 1, &n);
}

/* ---- the mel scale --------------------------------------------------------------------------- */

static double onnx_signal_to_mel(double hertz) { return 2595 * log10(1 + hertz / 700); }
static double onnx_signal_to_hertz(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

/* Adds filter i, a triangle over three numbers of frequencies, to m, [rows, filters]. */
static void onnx_signal_add_filter(double *m, int64_t rows, int64_t filters, int64_t i,
                                   const int64_t *corner)
{
    const int64_t left = corner[0], centre = corner[1], right = corner[2];
    if (left == centre && centre < rows) m[centre * filters + i] = 1;
    for (int64_t j = left; left < centre && j <= centre && j < rows; j++)
        m[j * filters + i] = (double)(j - left) / (double)(centre - left);
    for (int64_t j = centre; j < right && j < rows; j++)
        m[j * filters + i] = (double)(right - j) / (double)(right - centre);
}

bool wb__onnx_mel_weight_matrix(wb__onnx_call *c)
{
    int64_t filters, length, rate;
    double low = 0, high = 0;
    wb_dtype t;
    if (!onnx_signal_read_length(c, 0, 0, &filters) || !onnx_signal_read_length(c, 1, 0, &length) ||
        !onnx_signal_read_length(c, 2, 0, &rate) || !wb__onnx_input_real(c, 3, &low) ||
        !wb__onnx_input_real(c, 4, &high) || !onnx_signal_read_type(c, &t))
        return false;
    if (!(low >= 0 && low <= high && high <= rate))
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "filters from %g to %g hertz of a rate %lld",
                               low, high, (long long)rate);
    const int64_t rows = length / 2 + 1, dims[2] = {rows, filters};
    int64_t size;
    if (!wb__check_dims("result", 2, dims, &size)) return false;
    const double step = (onnx_signal_to_mel(high) - onnx_signal_to_mel(low)) /
                        (double)(filters + 2);
    double *m = wb__alloc_zero((size_t)size, sizeof *m);
    for (int64_t i = 0; m && i < filters; i++) {
        int64_t corner[3];
        for (int k = 0; k < 3; k++) {
            const double hertz = onnx_signal_to_hertz(onnx_signal_to_mel(low) +
                                                      (double)(i + k) * step);
            corner[k] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
        }
        onnx_signal_add_filter(m, rows, filters, i, corner);
    }
    return wb__onnx_give(c, wb__onnx_doubles(c->in[0], m, t, 2, dims));
}
