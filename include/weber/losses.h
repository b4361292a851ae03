/* Weber, chapter 4: losses.  nn.h includes this header. */
#ifndef WEBER_LOSSES_H
#define WEBER_LOSSES_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loss takes yhat, the output of a model, and the target y: wb_mse(yhat, y), wb_mse(yhat, y, .agg
 * = WB_SUM).  The name without a call, wb_mse, is a function of yhat and y.  yhat and y have the
 * same shape and the same floating dtype; wb_crossentropy and wb_logitcrossentropy also take class
 * numbers.  If yhat is f16 or bf16, the loss is computed in f32 and has the dtype f32; y may then
 * also be f32.  A loss has gradients with respect to yhat and to a floating y.
 *
 * Losses of elements have a formula for each element.  The losses of classes sum over the axis
 * .dims of the classes, whose vectors are called rows here, and have a value for each row.  Errors
 * of all losses: an option that the loss does not use; a number outside its range. */

/** What a loss returns: a tensor without dimensions, or all values. */
typedef enum {
    WB_MEAN,                                /* the mean over elements or rows; of none: NaN */
    WB_SUM,                                 /* the sum; of none: 0 */
    WB_UNREDUCED                            /* the values, in the shape of yhat or of its rows */
} wb_agg;

/** Options of losses.  The comment of a loss names the options that it uses besides .agg. */
typedef struct wb_loss_options {
    WB_OPTIONS_HEAD(wb_loss_options)
    wb_agg agg WB_IS(WB_MEAN);
    int dims WB_IS(-1);                     /* the axis of the classes; -1: the last */
    /* 0 or more; default: the machine epsilon of yhat's dtype (1.2e-7 for f32) */
    double eps WB_IS(WB_DEFAULT);
    double label_smoothing WB_IS(WB_DEFAULT);   /* from 0 to 1; default 0 */
    double gamma WB_IS(WB_DEFAULT);         /* 0 or more; default 2 */
    double smooth WB_IS(WB_DEFAULT);        /* 0 or more; default 1 */
    double beta WB_IS(WB_DEFAULT);          /* from 0 to 1; default 0.7 */
    double margin WB_IS(WB_DEFAULT);        /* 0 or more; default 1 */
    /* weights [classes] of the dtype of yhat, or f32 if yhat is f16 or bf16; WB_NONE: none */
    wb_tensor *weight WB_IS(NULL);
    int64_t ignore_index WB_IS(INT64_MIN);  /* the class number to ignore; default: none */
    WB_BY_PLACE
    WB_NO_MORE
} wb_loss_options;

/** (yhat - y)². */
WB_API wb_tensor *wb_mse_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_mse as a function value. */
WB_API wb_tensor *wb_mse(wb_tensor *yhat, wb_tensor *y);
/** |yhat - y|. */
WB_API wb_tensor *wb_mae_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_mae as a function value. */
WB_API wb_tensor *wb_mae(wb_tensor *yhat, wb_tensor *y);
/** log((yhat + eps) / (y + eps))², with .eps. */
WB_API wb_tensor *wb_msle_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_msle as a function value. */
WB_API wb_tensor *wb_msle(wb_tensor *yhat, wb_tensor *y);

/** Options of wb_huber. */
typedef struct wb_huber_options {
    WB_OPTIONS_HEAD(wb_huber_options)
    wb_agg agg WB_IS(WB_MEAN);
    WB_BY_PLACE
    double delta WB_IS(1);
    WB_NO_MORE
} wb_huber_options;
/** e²/2 where e < delta, else delta (e - delta/2), with e = |yhat - y|: wb_huber(yhat, y),
 * wb_huber(yhat, y, 0.5).  Error: delta is not positive. */
WB_API wb_tensor *wb_huber_with(wb_tensor *yhat, wb_tensor *y, const wb_huber_options *o);
/** wb_huber as a function value, with delta. */
WB_API wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, double delta);

/** -y log(yhat + eps) - (1 - y) log(1 - yhat + eps), for probabilities yhat, with .eps. */
WB_API wb_tensor *wb_binarycrossentropy_with(wb_tensor *yhat, wb_tensor *y,
                                             const wb_loss_options *o);
/** wb_binarycrossentropy as a function value. */
WB_API wb_tensor *wb_binarycrossentropy(wb_tensor *yhat, wb_tensor *y);
/** (1 - y) yhat - logsigmoid(yhat): wb_binarycrossentropy of sigmoid(yhat), without eps. */
WB_API wb_tensor *wb_logitbinarycrossentropy_with(wb_tensor *yhat, wb_tensor *y,
                                                  const wb_loss_options *o);
/** wb_logitbinarycrossentropy as a function value. */
WB_API wb_tensor *wb_logitbinarycrossentropy(wb_tensor *yhat, wb_tensor *y);
/** yhat - y log(yhat), where y log(yhat) is 0 if y is 0.  There the gradient of y log(yhat) is 0
 * too. */
WB_API wb_tensor *wb_poisson_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_poisson_loss as a function value. */
WB_API wb_tensor *wb_poisson_loss(wb_tensor *yhat, wb_tensor *y);
/** max(0, 1 - yhat y), for y -1 or 1. */
WB_API wb_tensor *wb_hinge_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_hinge_loss as a function value. */
WB_API wb_tensor *wb_hinge_loss(wb_tensor *yhat, wb_tensor *y);
/** max(0, 1 - yhat y)², for y -1 or 1. */
WB_API wb_tensor *wb_squared_hinge_loss_with(wb_tensor *yhat, wb_tensor *y,
                                             const wb_loss_options *o);
/** wb_squared_hinge_loss as a function value. */
WB_API wb_tensor *wb_squared_hinge_loss(wb_tensor *yhat, wb_tensor *y);
/** -max(0, 1 - q)^gamma log(q), with q = max(y p + (1 - y)(1 - p), eps) and p = yhat + eps, for
 * probabilities yhat, with .eps and .gamma.  (Lin et al. 2017) */
WB_API wb_tensor *wb_binary_focal_loss_with(wb_tensor *yhat, wb_tensor *y,
                                            const wb_loss_options *o);
/** wb_binary_focal_loss as a function value. */
WB_API wb_tensor *wb_binary_focal_loss(wb_tensor *yhat, wb_tensor *y);
/** (1 - y) yhat² + y max(0, margin - yhat)², for distances yhat, and y 1 where a pair differs, else
 * 0, with .margin.  (Hadsell, Chopra & LeCun 2006) */
WB_API wb_tensor *wb_siamese_contrastive_loss_with(wb_tensor *yhat, wb_tensor *y,
                                                   const wb_loss_options *o);
/** wb_siamese_contrastive_loss as a function value. */
WB_API wb_tensor *wb_siamese_contrastive_loss(wb_tensor *yhat, wb_tensor *y);

/** 1 - (2 sum(y yhat) + smooth) / (sum(y²) + sum(yhat²) + smooth), with .smooth, without .agg.  The
 * sums are over all elements.  (Milletari, Navab & Ahmadi 2016) */
WB_API wb_tensor *wb_dice_coeff_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_dice_coeff_loss as a function value. */
WB_API wb_tensor *wb_dice_coeff_loss(wb_tensor *yhat, wb_tensor *y);
/** 1 - (sum(y yhat) + 1) / (sum(y yhat + beta (1 - y) yhat + (1 - beta) y (1 - yhat)) + 1), with
 * .beta, without .agg.  The sums are over all elements.  (Salehi, Erdogmus & Gholipour 2017) */
WB_API wb_tensor *wb_tversky_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_tversky_loss as a function value. */
WB_API wb_tensor *wb_tversky_loss(wb_tensor *yhat, wb_tensor *y);

/** -sum(y log(yhat + eps)) over the classes, for probabilities yhat, with .dims, .eps,
 * .label_smoothing, .weight and .ignore_index.  Error of the losses of classes: no elements.
 *
 * y has probabilities, such as one-hot rows, in the shape of yhat.  Or y has class numbers, of an
 * integer dtype, in the shape of yhat without the axis of the classes; they count as one-hot rows.
 * .label_smoothing replaces y by wb_label_smoothing(y).  .weight multiplies the term of each class.
 * A row whose class number is .ignore_index has the loss 0.  With class numbers the mean is the sum
 * divided by the sum of the weights of the classes of the rows that are not ignored, or by their
 * number; if there is none, it is NaN.  With probabilities it is the sum divided by the number of
 * rows.  .ignore_index with probabilities is an error.
 *
 * A class number outside 0 .. classes-1 that is not ignored is an error with WEBER_DEBUG=check.  It
 * is one in wb_train and wb_withgradient too, if y is in memory that the host can read, and is
 * evaluated, or is a wb_reshape of such a tensor.  Otherwise the loss of the row and the mean are
 * NaN, at which wb_train stops with WB_ERROR_NUMBER.  One-hot rows are checked where wb_onehotbatch
 * makes them; a row of zeros has the loss 0. */
WB_API wb_tensor *wb_crossentropy_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_crossentropy as a function value. */
WB_API wb_tensor *wb_crossentropy(wb_tensor *yhat, wb_tensor *y);
/** -sum(y logsoftmax(yhat)) over the classes, for scores yhat of any size, with .dims,
 * .label_smoothing, .weight and .ignore_index.  y, the options and the errors are those of
 * wb_crossentropy. */
WB_API wb_tensor *wb_logitcrossentropy_with(wb_tensor *yhat, wb_tensor *y,
                                            const wb_loss_options *o);
/** wb_logitcrossentropy as a function value. */
WB_API wb_tensor *wb_logitcrossentropy(wb_tensor *yhat, wb_tensor *y);
/** sum(y log(y) - y log(yhat + eps)) over the classes, for probabilities, with .dims and .eps;
 * y log(y) and its gradient are 0 where y is 0. */
WB_API wb_tensor *wb_kldivergence_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_kldivergence as a function value. */
WB_API wb_tensor *wb_kldivergence(wb_tensor *yhat, wb_tensor *y);
/** -sum(y max(0, 1 - p)^gamma log(p)) over the classes, with p = yhat + eps, for probabilities
 * yhat, with .dims, .eps and .gamma.  (Lin et al. 2017) */
WB_API wb_tensor *wb_focal_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_loss_options *o);
/** wb_focal_loss as a function value. */
WB_API wb_tensor *wb_focal_loss(wb_tensor *yhat, wb_tensor *y);

/** Options of wb_ctc_loss. */
typedef struct wb_ctc_loss_options {
    WB_OPTIONS_HEAD(wb_ctc_loss_options)
    wb_agg agg WB_IS(WB_MEAN);
    int64_t blank WB_IS(0);                 /* the class of the blank; -1: the last */
    bool zero_infinity WB_IS(false);        /* 0 in place of an infinite loss */
    /* integers [N] from 0 to T and from 0 to L; default and WB_NONE: T and L for all sequences */
    wb_tensor *input_lengths WB_IS(NULL), *target_lengths WB_IS(NULL);
    WB_BY_PLACE
    WB_NO_MORE
} wb_ctc_loss_options;
/** Connectionist temporal classification: the negative logarithm of the probability of each label
 * sequence, wb_ctc_loss(yhat, y, .target_lengths = lengths).  (Graves et al. 2006)
 *   loss = -log(sum over paths of prod over t < input length of p[t, path[t]])
 *   p = softmax(yhat)   yhat [N, T, classes], scores of any size   y [N, L], class numbers
 * The paths are those that become the labels when equal neighbours are merged and then blanks are
 * removed.  Steps of yhat and labels of y behind a sequence's length do not count.  WB_UNREDUCED
 * gives the losses [N], WB_SUM their sum, and WB_MEAN, as in PyTorch, the mean of loss / max(1,
 * target length).  If no path exists, as with more labels than steps, the loss is infinite, or 0
 * with .zero_infinity, and its gradient is 0 (PyTorch: NaN without zero_infinity).
 *
 * Logarithms of probabilities are such scores too.  PyTorch's ctc_loss(log_probs, ...) with
 * log_probs [T, N, classes] is wb_ctc_loss(wb_permute(log_probs, 1, 0, 2), ...), with its gradient;
 * Flux's ctc_loss(yhat, y) with yhat [classes, T] in Julia's order is a sequence [1, T, classes]
 * with .blank = -1 and .agg = WB_SUM.
 *
 * Gradient with respect to yhat only.  Errors: other shapes or dtypes; a blank that is no class; a
 * class number of y or a length out of range, where wb_crossentropy has that error, except that
 * with .target_lengths a class number is an error with WEBER_DEBUG=check only.  Otherwise the loss
 * of that sequence is NaN, also if a label is the blank. */
WB_API wb_tensor *wb_ctc_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_ctc_loss_options *o);
/** wb_ctc_loss as a function value. */
WB_API wb_tensor *wb_ctc_loss(wb_tensor *yhat, wb_tensor *y);

/** Options of wb_label_smoothing. */
typedef struct wb_label_smoothing_options {
    WB_OPTIONS_HEAD(wb_label_smoothing_options)
    int dims WB_IS(-1);                     /* the axis of the classes */
    bool binary WB_IS(false);               /* y has probabilities of one of two classes */
    WB_BY_PLACE
    WB_NO_MORE
} wb_label_smoothing_options;
/** y (1 - alpha) + alpha / K, with K the size of the axis of the classes, or 2 with .binary:
 * wb_label_smoothing(y, 0.1).  y floating, such as one-hot rows.  Errors: alpha is not above 0 and
 * below 1; no such axis.  (Szegedy et al. 2016) */
WB_API wb_tensor *wb_label_smoothing_with(wb_tensor *y, double alpha,
                                          const wb_label_smoothing_options *o);
#ifndef __cplusplus
#define wb_mse(...) WB_LOSS_(wb_mse_with, __VA_ARGS__, )
#define wb_mae(...) WB_LOSS_(wb_mae_with, __VA_ARGS__, )
#define wb_msle(...) WB_LOSS_(wb_msle_with, __VA_ARGS__, )
#define wb_binarycrossentropy(...) WB_LOSS_(wb_binarycrossentropy_with, __VA_ARGS__, )
#define wb_logitbinarycrossentropy(...) WB_LOSS_(wb_logitbinarycrossentropy_with, __VA_ARGS__, )
#define wb_poisson_loss(...) WB_LOSS_(wb_poisson_loss_with, __VA_ARGS__, )
#define wb_hinge_loss(...) WB_LOSS_(wb_hinge_loss_with, __VA_ARGS__, )
#define wb_squared_hinge_loss(...) WB_LOSS_(wb_squared_hinge_loss_with, __VA_ARGS__, )
#define wb_binary_focal_loss(...) WB_LOSS_(wb_binary_focal_loss_with, __VA_ARGS__, )
#define wb_siamese_contrastive_loss(...) \
    WB_LOSS_(wb_siamese_contrastive_loss_with, __VA_ARGS__, )
#define wb_dice_coeff_loss(...) WB_LOSS_(wb_dice_coeff_loss_with, __VA_ARGS__, )
#define wb_tversky_loss(...) WB_LOSS_(wb_tversky_loss_with, __VA_ARGS__, )
#define wb_crossentropy(...) WB_LOSS_(wb_crossentropy_with, __VA_ARGS__, )
#define wb_logitcrossentropy(...) WB_LOSS_(wb_logitcrossentropy_with, __VA_ARGS__, )
#define wb_kldivergence(...) WB_LOSS_(wb_kldivergence_with, __VA_ARGS__, )
#define wb_focal_loss(...) WB_LOSS_(wb_focal_loss_with, __VA_ARGS__, )
#define WB_LOSS_(f, yhat, y, ...) f((yhat), (y), WB_GET_(wb_loss_options, __VA_ARGS__))
#define wb_huber(...) WB_HUBER_(__VA_ARGS__, )
#define WB_HUBER_(yhat, y, ...) wb_huber_with((yhat), (y), WB_GET_(wb_huber_options, __VA_ARGS__))
#define wb_ctc_loss(...) WB_CTC_LOSS_(__VA_ARGS__, )
#define WB_CTC_LOSS_(yhat, y, ...) \
    wb_ctc_loss_with((yhat), (y), WB_GET_(wb_ctc_loss_options, __VA_ARGS__))
#define wb_label_smoothing(...) WB_LABEL_SMOOTHING_(__VA_ARGS__, )
#define WB_LABEL_SMOOTHING_(y, alpha, ...) \
    wb_label_smoothing_with((y), (alpha), WB_GET_(wb_label_smoothing_options, __VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif
