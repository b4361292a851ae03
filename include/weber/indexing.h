/* Weber, chapter 3, second part: parts of tensors, rows by index, order.  ops.h has the rules that
 * hold for all operations: dtypes, broadcasting, gradients, errors, owners. */
#ifndef WEBER_INDEXING_H
#define WEBER_INDEXING_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- padding --------------------------------------------------------------------------------- */

/** The elements outside the bounds of an axis with the elements a b c d, up to four on each
 * side. */
typedef enum {
    WB_PAD_CONSTANT = 0,        /* v v v v | a b c d | v v v v   the option .value, by default 0 */
    WB_PAD_REFLECT,             /*   d c b | a b c d | c b a     at most n - 1 elements at an end */
    WB_PAD_REPLICATE,           /* a a a a | a b c d | d d d d   pad_repeat of Flux */
    WB_PAD_SYMMETRIC,           /* d c b a | a b c d | d c b a   at most n elements at an end */
    WB_PAD_CIRCULAR             /* a b c d | a b c d | a b c d   at most n elements at an end */
} wb_pad_mode;

/** Options of wb_pad. */
#define wb_pad_options_(OPT, ARG)                                                                  \
    OPT(wb_pad_mode, mode, WB_PAD_CONSTANT)                                                        \
    OPT(double, value, 0)                   /* of WB_PAD_CONSTANT only */
WB_OPTIONS(wb_pad_options);
/** x with `before` elements in front of it and `after` elements behind it, along one axis:
 * wb_pad(x, -1, 2, 2, .mode = WB_PAD_REFLECT).  Any dtype.  A gradient is the sum over the places
 * of an element.  The modes are those of PyTorch's pad and of NNlib's pad_constant, pad_reflect,
 * pad_repeat, pad_symmetric and pad_circular.  Errors: `before` or `after` is negative, or more
 * than the mode allows (n is the size of the axis); WB_PAD_REPLICATE of an axis of size 0; .value
 * with another mode than WB_PAD_CONSTANT, or one that an integer dtype does not hold. */
WB_API wb_tensor *wb_pad_with(wb_tensor *x, int axis, int64_t before, int64_t after,
                              const wb_pad_options *o);
#ifndef __cplusplus
#define wb_pad(...) WB_PAD_(__VA_ARGS__, )
#define WB_PAD_(x, axis, before, after, ...) \
    WB_CALL_WITH_(wb_pad_with((x), (axis), (before), (after), WB_GET_(wb_pad_options, __VA_ARGS__)))
#endif

/* ---- slices and copies: any dtype ------------------------------------------------------------ */

/** x with the elements start .. stop-1 along an axis replaced by `values`, which broadcasts to the
 * shape of wb_slice(x, axis, start, stop); x itself does not change.  A wb_scalar takes x's dtype.
 * If `values` has size 1 along the axis, or no such axis, one plan serves all values of start and
 * stop, as for a table that is filled row by row; otherwise each start has a plan of its own.
 * Errors: those of wb_slice; other shapes or dtypes. */
WB_API wb_tensor *wb_set_slice(wb_tensor *x, int axis, int64_t start, int64_t stop,
                               wb_tensor *values);

/** Options of wb_split. */
#define wb_split_options_(OPT, ARG)                                                                \
    OPT(const int64_t *, sizes, NULL)       /* sizes of the n slices; default: equal ones */
WB_OPTIONS(wb_split_options);
/** Sets parts[0 .. n-1] to n slices along an axis, in order: wb_split(x, 1, 3, parts),
 * wb_split(x, 1, 2, parts, .sizes = (int64_t[]){1, 3}).  Returns 0 or an error code; then all parts
 * are NULL.  (wb_chunk makes at most n slices, of which the last may be shorter, wb_unstack one of
 * each index, without the axis.)  Errors: n does not divide the size of the axis; the sum of .sizes
 * is not that size. */
WB_API int wb_split_with(wb_tensor *x, int axis, int n, wb_tensor **parts,
                         const wb_split_options *o);

/** x with its elements moved by `shift` places along an axis; those that leave it at an end enter
 * at the other: y[i] = x[(i - shift) mod n]. */
WB_API wb_tensor *wb_roll(wb_tensor *x, int axis, int64_t shift);
/** x with each element n times along an axis: a b becomes a a b b.  (repeat_interleave of PyTorch,
 * repeat with `inner` of Julia)  Error: n is negative. */
WB_API wb_tensor *wb_repeat(wb_tensor *x, int axis, int64_t n);
/** Copies of x side by side: wb_tile(x, 2, 3) has two along the axis before the last, and three
 * along the last; a b becomes a b a b.  Missing counts, and missing axes of x, are 1 in front.
 * Error: a count is negative. */
WB_API wb_tensor *wb_tile_array(wb_tensor *x, int n, const int64_t *counts);

/** x with zeros above a diagonal of its last two axes: element [..., i, j] stays where
 * j <= i + diagonal.  Diagonal 0 begins at [..., 0, 0].  Error: x has fewer than two axes. */
WB_API wb_tensor *wb_tril(wb_tensor *x, int64_t diagonal);
/** x with zeros below a diagonal: element [..., i, j] stays where j >= i + diagonal. */
WB_API wb_tensor *wb_triu(wb_tensor *x, int64_t diagonal);
#ifndef __cplusplus
#define wb_split(...) WB_SPLIT_(__VA_ARGS__, )
#define WB_SPLIT_(x, axis, n, parts, ...) \
    WB_CALL_WITH_(wb_split_with((x), (axis), (n), (parts), WB_GET_(wb_split_options, __VA_ARGS__)))
#define wb_tile(x, ...) wb_tile_array((x), WB_DIMS_(__VA_ARGS__))
#endif

/* ---- elements by index ----------------------------------------------------------------------- */

/* An index is of integers.  An index outside 0 .. n-1, also a negative one, gives zeros, adds
 * nothing and has no gradient; with WEBER_DEBUG=check it is an error. */

/** Options of wb_take. */
#define wb_take_options_(OPT, ARG)                                                                 \
    ARG(int, axis, 0)
WB_OPTIONS(wb_take_options);
/** Elements of x by index along an axis: wb_take(x, index) takes rows, y[i..., :] = x[index[i...],
 * :], and wb_take(x, index, axis) replaces an axis of x by the axes of `index`.  Any dtype.
 * (index_select of PyTorch, also for an index with several axes) */
WB_API wb_tensor *wb_take_with(wb_tensor *x, wb_tensor *index, const wb_take_options *o);
/** Elements by an index of their own along an axis: y[.., i, ..] = x[.., index[.., i, ..], ..].  x
 * and `index` have the same number of axes; along all but `axis` their sizes broadcast.  Any
 * dtype.  (gather and take_along_dim of PyTorch; unlike in gather, sizes along other axes are
 * equal or 1)  Error: sizes that do not fit. */
WB_API wb_tensor *wb_take_along(wb_tensor *x, wb_tensor *index, int axis);

/** How wb_scatter combines the elements with one index. */
typedef enum {
    WB_SCATTER_ADD = 0, WB_SCATTER_MUL, WB_SCATTER_MAX, WB_SCATTER_MIN,
    WB_SCATTER_MEAN,                        /* floating only */
    WB_SCATTER_SET                          /* the last one replaces the element of x */
} wb_scatter_reduce;
/** Options of wb_scatter and wb_scatter_along. */
#define wb_scatter_options_(OPT, ARG)                                                              \
    OPT(wb_scatter_reduce, reduce, WB_SCATTER_ADD)                                                 \
    OPT(bool, exclude_self, false)          /* elements of x that an index names do not count */
WB_OPTIONS(wb_scatter_options);
/** x with rows combined into it: y[k, ...] combines x[k, ...] and all rows[i..., ...] with
 * index[i...] = k, in the order of i: wb_scatter(x, index, rows, .reduce = WB_SCATTER_MAX).
 *   x [n, ...]   index [...]   rows [index..., ...]   y as x
 * x and rows have the same dtype, bool only with WB_SCATTER_SET.  Rows of x that no index names do
 * not change.  f16 and bf16 are combined in f32.  With MAX and MIN the result is NaN where an
 * element is NaN.
 *
 * The scatter! of NNlib, whose mean is x plus the mean of the rows: wb_add(x, wb_scatter(zeros,
 * index, rows, .reduce = WB_SCATTER_MEAN, .exclude_self = true)); it subtracts with wb_neg(rows),
 * and divides with wb_reciprocal(rows).  The mean here is that of PyTorch, which counts x.
 *
 * Gradient of WB_SCATTER_MUL: right also with zeros.  Of MAX and MIN: x, if it is the extreme, has
 * all of it, otherwise the rows that equal the extreme share it; PyTorch shares it with x.  Of SET:
 * the last row has it, and x that of the rows that no index names.
 *
 * wb_assign(v, wb_scatter(v, index, rows, .reduce = WB_SCATTER_SET)) writes only these rows of the
 * variable v, unless the same evaluation reads v otherwise.  Errors: shapes or dtypes that do not
 * fit. */
WB_API wb_tensor *wb_scatter_with(wb_tensor *x, wb_tensor *index, wb_tensor *rows,
                                  const wb_scatter_options *o);
/** x with values combined into it along an axis, each by an index of its own: y[.., index[.., i,
 * ..], ..] combines x there and values[.., i, ..].  Along all but `axis`, `values` has the sizes
 * of x, and `index` these or 1; along the axis both have one size.  Options and gradients are
 * those of wb_scatter.  (scatter_reduce of PyTorch; index_add with an index of one axis that has
 * size > 1) */
WB_API wb_tensor *wb_scatter_along_with(wb_tensor *x, wb_tensor *index, wb_tensor *values, int axis,
                                        const wb_scatter_options *o);
#ifndef __cplusplus
#define wb_take(...) WB_TAKE_(__VA_ARGS__, )
#define WB_TAKE_(x, index, ...) \
    WB_CALL_WITH_(wb_take_with((x), (index), WB_GET_(wb_take_options, __VA_ARGS__)))
#define wb_scatter(...) WB_SCATTER_(__VA_ARGS__, )
#define WB_SCATTER_(x, index, rows, ...) \
    WB_CALL_WITH_(wb_scatter_with((x), (index), (rows), WB_GET_(wb_scatter_options, __VA_ARGS__)))
#define wb_scatter_along(...) WB_SCATTER_ALONG_(__VA_ARGS__, )
#define WB_SCATTER_ALONG_(x, index, values, axis, ...) \
    WB_CALL_WITH_(wb_scatter_along_with((x), (index), (values), (axis), \
                                        WB_GET_(wb_scatter_options, __VA_ARGS__)))
#endif

/* ---- numbers in place of NaN ----------------------------------------------------------------- */

/** Options of wb_nan_to_num. */
#define wb_nan_to_num_options_(OPT, ARG)                                                           \
    ARG(double, nan, 0)                                                                            \
    ARG(double, posinf, WB_DEFAULT)         /* default: the greatest finite number of the dtype */ \
    ARG(double, neginf, WB_DEFAULT)         /* default: the least */
WB_OPTIONS(wb_nan_to_num_options);
/** x with numbers in place of NaN, of infinity and of -infinity: wb_nan_to_num(x),
 * wb_nan_to_num(x, 1, .posinf = 100).  x floating.  The gradient is 0 where x is not finite. */
WB_API wb_tensor *wb_nan_to_num_with(wb_tensor *x, const wb_nan_to_num_options *o);
#ifndef __cplusplus
#define wb_nan_to_num(...) WB_NAN_TO_NUM_(__VA_ARGS__, )
#define WB_NAN_TO_NUM_(x, ...) \
    WB_CALL_WITH_(wb_nan_to_num_with((x), WB_GET_(wb_nan_to_num_options, __VA_ARGS__)))
#endif

/* ---- order: any dtype but bool --------------------------------------------------------------- */

/* In this order NaN is the greatest, and 0 and -0 are equal.  Sorting is stable in both directions:
 * equal elements keep their order. */

/** Options of wb_sort and wb_argsort. */
#define wb_sort_options_(OPT, ARG)                                                                 \
    OPT(bool, descending, false)            /* the greatest element comes first */
WB_OPTIONS(wb_sort_options);
/** The indices that sort x along an axis, i32, in x's shape: wb_take_along(x, wb_argsort(x, axis),
 * axis) is sorted.  No gradient.  Error: an axis of more than 2^31 elements. */
WB_API wb_tensor *wb_argsort_with(wb_tensor *x, int axis, const wb_sort_options *o);
/** x sorted along an axis: wb_sort(x, -1, .descending = true). */
WB_API wb_tensor *wb_sort_with(wb_tensor *x, int axis, const wb_sort_options *o);

/** Options of wb_topk. */
#define wb_topk_options_(OPT, ARG)                                                                 \
    OPT(bool, smallest, false)              /* the k least elements, the least one first */
WB_OPTIONS(wb_topk_options);
/** The k greatest elements along an axis, the greatest first: wb_topk(x, k, axis, &index).  Sets
 * *index to their indices, i32, unless `index` is NULL.  x has any dtype but bool; the result has
 * size k along the axis, and the gradient reaches the chosen elements.  The cost is that of sorting
 * the whole axis.  Error: k is negative or above the size of the axis; *index is then NULL. */
WB_API wb_tensor *wb_topk_with(wb_tensor *x, int64_t k, int axis, wb_tensor **index,
                               const wb_topk_options *o);
/** Options of wb_searchsorted. */
#define wb_searchsorted_options_(OPT, ARG)                                                         \
    OPT(bool, right, false)                 /* places are behind equal elements, not before them */
WB_OPTIONS(wb_searchsorted_options);
/** The places at which elements of x would be put into ascending numbers, i32, in x's shape:
 * wb_searchsorted(sorted, x).  The place is the number of elements of `sorted` that are less than
 * the element of x, with .right less or equal: 0 to n.
 *   sorted [n], x [...]   or sorted [..., n], x [..., m], whose axes before the last are equal
 * One dtype, any but bool.  No gradient.  Each element is compared with all n.  (searchsorted of
 * PyTorch; in MLUtils.jl batched_searchsortedfirst and, with .right, batched_searchsortedlast count
 * from 1 and from 0)  Errors: shapes or dtypes that do not fit. */
WB_API wb_tensor *wb_searchsorted_with(wb_tensor *sorted, wb_tensor *x,
                                       const wb_searchsorted_options *o);
#ifndef __cplusplus
#define wb_searchsorted(...) WB_SEARCHSORTED_(__VA_ARGS__, )
#define WB_SEARCHSORTED_(sorted, x, ...) \
    WB_CALL_WITH_(wb_searchsorted_with((sorted), (x), \
                                       WB_GET_(wb_searchsorted_options, __VA_ARGS__)))
#define wb_argsort(...) WB_SORT_(wb_argsort_with, __VA_ARGS__, )
#define wb_sort(...) WB_SORT_(wb_sort_with, __VA_ARGS__, )
#define WB_SORT_(f, x, axis, ...) \
    WB_CALL_WITH_(f((x), (axis), WB_GET_(wb_sort_options, __VA_ARGS__)))
#define wb_topk(...) WB_TOPK_(__VA_ARGS__, )
#define WB_TOPK_(x, k, axis, index, ...) \
    WB_CALL_WITH_(wb_topk_with((x), (k), (axis), (index), WB_GET_(wb_topk_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
