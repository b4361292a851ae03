/* Weber, chapter 3, second part: parts of tensors, rows by index, order.  ops.h has the rules that
 * hold for all operations: dtypes, broadcasting, gradients, errors, owners. */
#ifndef WEBER_INDEXING_H
#define WEBER_INDEXING_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- padding --------------------------------------------------------------------------------- */

/** What stands outside the bounds of an axis with the elements a b c d, with four before it and
 * behind it. */
typedef enum {
    WB_PAD_CONSTANT = 0,        /* v v v v | a b c d | v v v v   the option .value, by default 0 */
    WB_PAD_REFLECT,             /*   d c b | a b c d | c b a     at most n - 1 elements at an end */
    WB_PAD_REPLICATE,           /* a a a a | a b c d | d d d d   pad_repeat of Flux */
    WB_PAD_SYMMETRIC,           /* d c b a | a b c d | d c b a   at most n elements at an end */
    WB_PAD_CIRCULAR             /* a b c d | a b c d | a b c d   at most n elements at an end */
} wb_pad_mode;

/** Options of wb_pad. */
typedef struct wb_pad_options {
    WB_OPTIONS_HEAD(wb_pad_options)
    wb_pad_mode mode WB_IS(WB_PAD_CONSTANT);
    double value WB_IS(0);                  /* of WB_PAD_CONSTANT only */
    WB_BY_PLACE
    WB_NO_MORE
} wb_pad_options;
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
    wb_pad_with((x), (axis), (before), (after), WB_GET_(wb_pad_options, __VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif
