/* Weber for C++17: the forms of weber/ops.h, weber/indexing.h, weber/vision.h and
 * weber/signal.h.  cxx.h includes this header. */
#ifndef WEBER_CXX_OPS_H
#define WEBER_CXX_OPS_H

#include "weber/indexing.h"
#include "weber/signal.h"
#include "weber/vision.h"

#include <type_traits>

/* Calls f(n, array) with the n arguments in an array of int64_t. */
template <class F, class... I> inline auto wb_with_dims_(F f, I... dims)
{
    static_assert((std::is_integral<I>::value && ...), "dimensions and indices are integers");
    const int64_t d[] = {int64_t(dims)..., 0};
    return f(int(sizeof...(dims)), d);
}

/* ---- operations ------------------------------------------------------------------------------ */

/** Sets an option that is a list, if the length is known only at run time.  A list of known length
 * is assigned: o.axes = {0, -1}. */
inline void wb_ints_set(wb_ints &list, int n, const int64_t *values)
{
    wb_ints_set(list.list, n, values);
}

/* Overloads for operands that are numbers: wb_mul(x, 0.5), wb_sub(1, x).  They are templates, so
 * that 0 is a number and not a null pointer. */
template <class N, class R> using wb_if_number_ =
    typename std::enable_if<std::is_arithmetic<N>::value, R>::type;
template <class N, class R> using wb_if_integer_ =
    typename std::enable_if<std::is_integral<N>::value, R>::type;
template <class N> inline wb_if_number_<N, wb_tensor *> wb_number_(N x)
{
    if constexpr (std::is_floating_point<N>::value) return wb_scalar(double(x));
    else if constexpr (std::is_signed<N>::value) return wb_scalar_int(int64_t(x));
    else return wb_scalar_int(x > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(x));
}
#define WB_NUMBERS_(name)                                                                       \
    template <class N> inline wb_if_number_<N, wb_tensor *> name(wb_tensor *x, N y)             \
    {                                                                                           \
        return name(x, wb_number_(y));                                                          \
    }                                                                                           \
    template <class N> inline wb_if_number_<N, wb_tensor *> name(N x, wb_tensor *y)             \
    {                                                                                           \
        return name(wb_number_(x), y);                                                          \
    }
WB_NUMBERS_(wb_add)
WB_NUMBERS_(wb_sub)
WB_NUMBERS_(wb_mul)
WB_NUMBERS_(wb_div)
WB_NUMBERS_(wb_pow)
WB_NUMBERS_(wb_maximum)
WB_NUMBERS_(wb_minimum)
WB_NUMBERS_(wb_eq)
WB_NUMBERS_(wb_ne)
WB_NUMBERS_(wb_lt)
WB_NUMBERS_(wb_le)
WB_NUMBERS_(wb_gt)
WB_NUMBERS_(wb_ge)
#undef WB_NUMBERS_
template <class N> inline wb_if_number_<N, wb_tensor *> wb_where(wb_tensor *c, wb_tensor *x, N y)
{
    return wb_where(c, x, wb_number_(y));
}
template <class N> inline wb_if_number_<N, wb_tensor *> wb_where(wb_tensor *c, N x, wb_tensor *y)
{
    return wb_where(c, wb_number_(x), y);
}
template <class N, class M>
inline wb_if_number_<N, wb_if_number_<M, wb_tensor *>> wb_where(wb_tensor *c, N x, M y)
{
    return wb_where(c, wb_number_(x), wb_number_(y));
}

template <class N, class M>
inline wb_if_number_<N, wb_if_number_<M, wb_tensor *>> wb_clamp(wb_tensor *x, N low, M high)
{
    return wb_clamp(x, wb_number_(low), wb_number_(high));
}

inline wb_tensor *wb_operand_(wb_tensor *x) { return x; }
template <class N> inline wb_if_number_<N, wb_tensor *> wb_operand_(N x) { return wb_number_(x); }
template <class X, class Y, class T> inline wb_tensor *wb_lerp(X x, Y y, T t)
{
    return wb_lerp(wb_operand_(x), wb_operand_(y), wb_operand_(t));
}

/* A list of axes, made of an argument such as {0, -1}.  An argument {.axes = {0, -1}} makes
 * wb_reduce_options instead. */
struct wb_axes_ {
    wb_ints list;
    template <class I, class... J, class = wb_if_integer_<I, void>>
    wb_axes_(I first, J... more) : list{int64_t(first), int64_t(more)...}
    {
    }
};
/* The forms of a reduction: wb_sum(x), wb_sum(x, 1), wb_sum(x, {0, -1}), wb_sum(x, options). */
#define WB_REDUCTION_(name)                                                 \
    inline wb_tensor *name(wb_tensor *x, wb_reduce_options o)               \
    {                                                                       \
        return name##_with(x, &o);                                \
    }                                                                       \
    inline wb_tensor *name(wb_tensor *x)                                    \
    {                                                                       \
        return name##_with(x, nullptr);                                     \
    }                                                                       \
    inline wb_tensor *name(wb_tensor *x, wb_axes_ axes)                     \
    {                                                                       \
        wb_reduce_options o;                                                \
        o.axes = axes.list;                                                 \
        return name##_with(x, &o);                                          \
    }
WB_REDUCTION_(wb_sum)
WB_REDUCTION_(wb_mean)
WB_REDUCTION_(wb_nansum)
WB_REDUCTION_(wb_nanmean)
WB_REDUCTION_(wb_max)
WB_REDUCTION_(wb_min)
WB_REDUCTION_(wb_variance)
WB_REDUCTION_(wb_logsumexp)
WB_REDUCTION_(wb_std)
WB_REDUCTION_(wb_prod)
WB_REDUCTION_(wb_any)
WB_REDUCTION_(wb_all)
#undef WB_REDUCTION_
inline wb_tensor *wb_nan_to_num(wb_tensor *x, wb_nan_to_num_options o = {})
{
    return wb_nan_to_num_with(x, &o);
}
inline wb_tensor *wb_norm(wb_tensor *x, double p, wb_reduce_options o = {})
{
    return wb_norm_with(x, p, &o);
}
inline wb_tensor *wb_norm(wb_tensor *x, double p, wb_axes_ axes)
{
    wb_reduce_options o;
    o.axes = axes.list;
    return wb_norm_with(x, p, &o);
}
inline wb_tensor *wb_cumsum(wb_tensor *x, int axis, wb_cumsum_options o = {})
{
    return wb_cumsum_with(x, axis, &o);
}

template <class... I> inline wb_tensor *wb_reshape(wb_tensor *x, I... dims)
{
    return wb_with_dims_([=](int n, const int64_t *d) { return wb_reshape_array(x, n, d); },
                         dims...);
}
template <class... I> inline wb_tensor *wb_permute(wb_tensor *x, I... order)
{
    return wb_with_dims_([=](int n, const int64_t *o) { return wb_permute_array(x, n, o); },
                         order...);
}
template <class... I> inline wb_tensor *wb_expand(wb_tensor *x, I... dims)
{
    return wb_with_dims_([=](int n, const int64_t *d) { return wb_expand_array(x, n, d); },
                         dims...);
}
inline wb_tensor *wb_slice(wb_tensor *x, int axis, int64_t start, int64_t stop, int64_t step = 1)
{
    wb_slice_options o;
    o.step = step;
    return wb_slice_with(x, axis, start, stop, &o);
}
inline wb_tensor *wb_take(wb_tensor *x, wb_tensor *index, int axis = 0)
{
    wb_take_options o;
    o.axis = axis;
    return wb_take_with(x, index, &o);
}
inline int wb_split(wb_tensor *x, int axis, int n, wb_tensor **parts, wb_split_options o = {})
{
    return wb_split_with(x, axis, n, parts, &o);
}
template <class... T> inline wb_tensor *wb_concat(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_concat_array(axis, int(sizeof...(tensors)), all);
}
template <class... T> inline wb_tensor *wb_stack(int axis, T *...tensors)
{
    wb_tensor *const all[] = {tensors...};
    return wb_stack_array(axis, int(sizeof...(tensors)), all);
}

inline wb_tensor *wb_conv(wb_tensor *x, wb_tensor *w, wb_tensor *b, wb_conv_options o = {})
{
    return wb_conv_with(x, w, b, &o);
}
inline wb_tensor *wb_conv_transpose(wb_tensor *x, wb_tensor *w, wb_tensor *b,
                                    wb_conv_options o = {})
{
    return wb_conv_transpose_with(x, w, b, &o);
}
inline wb_tensor *wb_maxpool(wb_tensor *x, wb_pool_options o)
{
    return wb_maxpool_with(x, &o);
}
inline wb_tensor *wb_meanpool(wb_tensor *x, wb_pool_options o)
{
    return wb_meanpool_with(x, &o);
}

inline wb_tensor *wb_pad(wb_tensor *x, int axis, int64_t before, int64_t after,
                         wb_pad_options o = {})
{
    return wb_pad_with(x, axis, before, after, &o);
}

template <class... T> inline wb_tensor *wb_einsum(const char *text, T *...operands)
{
    wb_tensor *const all[] = {operands...};
    return wb_einsum_array(text, int(sizeof...(operands)), all);
}

template <class... I> inline wb_tensor *wb_tile(wb_tensor *x, I... counts)
{
    return wb_with_dims_([=](int n, const int64_t *c) { return wb_tile_array(x, n, c); },
                         counts...);
}

inline wb_tensor *wb_rotary(wb_tensor *x, wb_tensor *positions, wb_rotary_options o = {})
{
    return wb_rotary_with(x, positions, &o);
}
inline wb_tensor *wb_scatter(wb_tensor *x, wb_tensor *index, wb_tensor *rows,
                             wb_scatter_options o = {})
{
    return wb_scatter_with(x, index, rows, &o);
}
inline wb_tensor *wb_scatter_along(wb_tensor *x, wb_tensor *index, wb_tensor *values, int axis,
                                   wb_scatter_options o = {})
{
    return wb_scatter_along_with(x, index, values, axis, &o);
}
inline wb_tensor *wb_sort(wb_tensor *x, int axis, wb_sort_options o = {})
{
    return wb_sort_with(x, axis, &o);
}
inline wb_tensor *wb_argsort(wb_tensor *x, int axis, wb_sort_options o = {})
{
    return wb_argsort_with(x, axis, &o);
}
inline wb_tensor *wb_topk(wb_tensor *x, int64_t k, int axis, wb_tensor **index,
                          wb_topk_options o = {})
{
    return wb_topk_with(x, k, axis, index, &o);
}
inline wb_tensor *wb_searchsorted(wb_tensor *sorted, wb_tensor *x, wb_searchsorted_options o = {})
{
    return wb_searchsorted_with(sorted, x, &o);
}
inline wb_tensor *wb_unfold(wb_tensor *x, wb_unfold_options o) { return wb_unfold_with(x, &o); }
inline wb_tensor *wb_fold(wb_tensor *x, wb_unfold_options o) { return wb_fold_with(x, &o); }
inline wb_tensor *wb_lpnormpool(wb_tensor *x, double p, wb_pool_options o)
{
    return wb_lpnormpool_with(x, p, &o);
}
inline wb_tensor *wb_upsample(wb_tensor *x, wb_upsample_options o)
{
    return wb_upsample_with(x, &o);
}
inline wb_tensor *wb_grid_sample(wb_tensor *x, wb_tensor *grid, wb_sample_options o = {})
{
    return wb_grid_sample_with(x, grid, &o);
}
inline wb_tensor *wb_imrotate(wb_tensor *x, double angle, wb_sample_options o = {})
{
    return wb_imrotate_with(x, angle, &o);
}
inline wb_tensor *wb_hann_window(int64_t n, wb_dtype dtype, wb_window_options o = {})
{
    return wb_hann_window_with(n, dtype, &o);
}
inline wb_tensor *wb_hamming_window(int64_t n, wb_dtype dtype, wb_window_options o = {})
{
    return wb_hamming_window_with(n, dtype, &o);
}
inline wb_tensor *wb_stft(wb_tensor *x, wb_stft_options o) { return wb_stft_with(x, &o); }
inline wb_tensor *wb_istft(wb_tensor *y, wb_stft_options o) { return wb_istft_with(y, &o); }
inline wb_tensor *wb_spectrogram(wb_tensor *x, wb_stft_options o)
{
    return wb_spectrogram_with(x, &o);
}
inline wb_tensor *wb_melscale_filterbanks(int64_t n_freqs, int64_t n_mels, int64_t sample_rate,
                                          wb_melscale_filterbanks_options o = {})
{
    return wb_melscale_filterbanks_with(n_freqs, n_mels, sample_rate, &o);
}

#endif
