/* Weber, chapter 3, fifth part: sound and other signals in time.  nn.h includes this header.
 *
 * Names and formulas are those of NNlib.  x is [..., L]: the last axis is time.  Complex numbers
 * are pairs (real, imaginary) along a last axis of size 2.  Dtypes, gradients, errors and owners
 * are those of ops.h. */
#ifndef WEBER_SIGNAL_H
#define WEBER_SIGNAL_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The sound in a WAV file, f32 [channels, samples], on the CPU; sets *rate to the samples in a
 * second, unless `rate` is NULL.  PCM of up to 32 bits becomes numbers of -1 to 1; floats of 32
 * bits stay as they are, and those of 64 are rounded.  wb_load_tensors gives the same as "samples"
 * and "rate".
 * Owner: the current scope.  Errors: compressed sound; a damaged file; one whose program ended
 * before it wrote the length. */
WB_API wb_tensor *wb_load_wav(const char *path, int *rate);

/** Options of wb_hann_window and wb_hamming_window. */
#define wb_window_options_(OPT, ARG)                                                               \
    OPT(bool, symmetric, false)             /* m is n - 1 instead of n: not periodic */            \
    OPT(double, alpha, WB_DEFAULT)          /* of wb_hamming_window; default 0.54 */               \
    OPT(double, beta, WB_DEFAULT)           /* of wb_hamming_window; default 0.46 */
WB_OPTIONS(wb_window_options);
/** The Hann window, [n], of a floating dtype: w[k] = (1 - cos(2 pi k / m)) / 2.  m is n, or with
 * .symmetric n - 1; a window of one element is 1.  Errors: n is below 1; .alpha or .beta is
 * given. */
WB_API wb_tensor *wb_hann_window_with(int64_t n, wb_dtype dtype, const wb_window_options *o);
/** The Hamming window: w[k] = alpha - beta cos(2 pi k / m), as wb_hann_window otherwise. */
WB_API wb_tensor *wb_hamming_window_with(int64_t n, wb_dtype dtype, const wb_window_options *o);

/** Options of wb_stft, wb_istft and wb_spectrogram: wb_stft(x, .n_fft = 512, .window = w). */
#define wb_stft_options_(OPT, ARG)                                                                 \
    OPT(int64_t, n_fft, WB_REQUIRED(0))     /* number of elements of a frame, 1 or more */         \
    OPT(int64_t, hop_length, 0)             /* from frame to frame; default: n_fft / 4, min.  1 */ \
    /* [n], n <= n_fft, of x's dtype, with zeros on both sides if n < n_fft; default: ones */      \
    OPT(wb_tensor *, window, NULL)                                                                 \
    OPT(bool, center, true)                 /* x is padded on both sides */                        \
    OPT(bool, normalized, false)            /* the transform is multiplied with n_fft^-1/2 */      \
    OPT(int64_t, length, 0)                 /* of wb_istft: L; default: all that frames cover */   \
    OPT(int64_t, pad, 0)                    /* of wb_spectrogram: zeros on both sides of x */      \
    OPT(double, power, WB_DEFAULT)          /* of wb_spectrogram; default 2 */                     \
    /* of wb_spectrogram: divides by the norm of .window */                                        \
    OPT(bool, window_normalized, false)
WB_OPTIONS(wb_stft_options);
/** The short-time Fourier transform, [..., L] -> [..., T, F, 2] with F = n_fft / 2 + 1:
 *   y[t, f] = sum over k of window[k] x[t hop_length + k] exp(-2 pi i f k / n_fft)
 * x is padded with n_fft / 2 elements on both sides by WB_PAD_REFLECT, so that frame t is centred
 * at t hop_length, unless .center is false.  T = (L - n_fft) / hop_length + 1, of the padded L.
 * Floating.  It is a product with a matrix, [n_fft, 2 F], or, if n_fft is above some 200 and has
 * factors n1 n2 that make this quicker, two products with matrices of n1 and n2 rows: numbers such
 * as 400, 512 and 1024 are quick, primes are not.  (NNlib has the same axes in the other
 * order; PyTorch has [..., F, T])  Errors: fewer elements than a frame; a window that does not fit;
 * options of the other functions. */
WB_API wb_tensor *wb_stft_with(wb_tensor *x, const wb_stft_options *o);
/** The signal whose transform is nearest to y, [..., T, F, 2] -> [..., L]: windowed inverse
 * transforms of the frames, added, and divided by the sum of the squared windows where that is
 * above 1e-11.  It undoes wb_stft with the same options.  L is n_fft + (T - 1) hop_length without
 * the padding, or .length, the length of the signal.  Errors: y has another shape; .length is
 * greater than what the frames cover. */
WB_API wb_tensor *wb_istft_with(wb_tensor *y, const wb_stft_options *o);
/** The magnitude of wb_stft to the power .power, [..., L] -> [..., T, F]; .power = 0 gives the
 * transform itself, [..., T, F, 2].  Error: .power is negative; those of wb_stft. */
WB_API wb_tensor *wb_spectrogram_with(wb_tensor *x, const wb_stft_options *o);

/** Options of wb_melscale_filterbanks, in hertz. */
#define wb_melscale_filterbanks_options_(OPT, ARG)                                                 \
    OPT(double, fmin, 0)                                                                          \
    OPT(double, fmax, WB_DEFAULT)           /* default: sample_rate / 2, rounded down */
WB_OPTIONS(wb_melscale_filterbanks_options);
/** Triangular filters on the mel scale, [n_mels, n_freqs] f32, the weight of a wb_linear:
 * wb_linear(wb_spectrogram(x, ...), banks, WB_NONE) is [..., T, n_mels].
 *   mel = 2595 log10(1 + hertz / 700)
 * The corners of filter m are points m, m+1 and m+2 of n_mels + 2 points that are evenly spaced in
 * mel from fmin to fmax; frequency f is that at f of n_freqs points from 0 to sample_rate / 2,
 * rounded down.  (NNlib has the axes in the other order, which is the same memory)  Errors: a
 * number below 1, n_freqs or the sample rate below 2; fmin not from 0 to below fmax. */
WB_API wb_tensor *wb_melscale_filterbanks_with(int64_t n_freqs, int64_t n_mels,
                                               int64_t sample_rate,
                                               const wb_melscale_filterbanks_options *o);

/** Decibels: 10 log10(max(x, 1e-10) / ref), at least the greatest of all minus top_db (80 in
 * NNlib).  ref is positive. */
WB_API wb_tensor *wb_power_to_db(wb_tensor *x, double ref, double top_db);
/** ref 10^(x / 10). */
WB_API wb_tensor *wb_db_to_power(wb_tensor *x, double ref);
#ifndef __cplusplus
#define wb_hann_window(...) WB_WINDOW_(wb_hann_window_with, __VA_ARGS__, )
#define wb_hamming_window(...) WB_WINDOW_(wb_hamming_window_with, __VA_ARGS__, )
#define WB_WINDOW_(f, n, dtype, ...) \
    WB_CALL_WITH_(f((n), (dtype), WB_GET_(wb_window_options, __VA_ARGS__)))
#define wb_stft(x, ...) WB_CALL_WITH_(wb_stft_with((x), WB_GET_(wb_stft_options, __VA_ARGS__)))
#define wb_istft(y, ...) WB_CALL_WITH_(wb_istft_with((y), WB_GET_(wb_stft_options, __VA_ARGS__)))
#define wb_spectrogram(x, ...) \
    WB_CALL_WITH_(wb_spectrogram_with((x), WB_GET_(wb_stft_options, __VA_ARGS__)))
#define wb_melscale_filterbanks(...) WB_MEL_(__VA_ARGS__, )
#define WB_MEL_(n_freqs, n_mels, sample_rate, ...) \
    WB_CALL_WITH_(wb_melscale_filterbanks_with( \
        (n_freqs), (n_mels), (sample_rate), WB_GET_(wb_melscale_filterbanks_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
