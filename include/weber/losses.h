/* Weber, chapter 4: losses and metrics.  nn.h includes this header. */
#ifndef WEBER_LOSSES_H
#define WEBER_LOSSES_H

#include "weber/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loss takes yhat, the output of a model, and the target y: wb_mse(yhat, y), wb_mse(yhat, y, .agg
 * = WB_AGG_SUM).  The name without a call, wb_mse, is a function of yhat and y.  yhat and y have
 * the same shape and the same floating dtype; wb_crossentropy and wb_logitcrossentropy also take
 * class numbers.  If yhat is f16 or bf16, the loss is computed in f32 and has the dtype f32; y may
 * then also be f32.  A loss has gradients with respect to yhat and to a floating y.
 *
 * Losses of elements have a formula for each element.  The losses of classes sum over the axis
 * .dims of the classes, whose vectors are called rows here, and have a value for each row.  Without
 * elements or rows, as for a batch of 0 rows, the mean is NaN and the sum 0, in all losses.
 *
 * .sample_weight and .mask belong to the values of a loss: those of its elements, of its rows, or
 * of its sequences (wb_ctc_loss).  Their axes are the first axes of the values, each of the same
 * size or 1: [N] has a number for each of the N observations, [N,T] one for each step of each.
 * .sample_weight (w) multiplies a value l, and .mask, of dtype bool, leaves out a value where it is
 * false (w is 0 there):
 *   WB_AGG_MEAN  sum(w l) / sum(w)      WB_AGG_SUM  sum(w l)      WB_AGG_UNREDUCED  w l
 * The mean is that of PyTorch's mse_loss with weight and of scikit-learn's sample_weight; Keras
 * divides by the number of values instead.  It is NaN where sum(w) is 0, as where the mask leaves
 * nothing.  What is in yhat and y behind the mask, such as NaN or a label that is no class, has no
 * effect on the value nor on a gradient, which is 0 there.  A weight of 0 alone lets NaN through.
 * With wb_dice_coeff_loss and wb_tversky_loss the weights multiply the terms of the sums.
 *
 * Errors of all losses: an option that the loss does not use; a number outside its range; a weight
 * or mask whose shape does not fit. */

/** What a loss returns: a tensor without dimensions, or all values. */
typedef enum {
    WB_AGG_MEAN,                            /* the mean over elements or rows; NaN without any */
    WB_AGG_SUM,                             /* the sum; 0 without any */
    WB_AGG_UNREDUCED                        /* the values, in the shape of yhat or of its rows */
} wb_agg;

/** Options of losses.  The comment of a loss names the options that it uses besides .agg. */
#define wb_loss_options_(OPT, ARG)                                                                 \
    OPT(wb_agg, agg, WB_AGG_MEAN)                                                                  \
    OPT(int, dims, INT32_MIN)               /* the axis of the classes; default: the last */       \
    /* 0 or more; default: the machine epsilon of yhat's dtype (1.2e-7 for f32) */                 \
    OPT(double, eps, WB_DEFAULT)                                                                   \
    OPT(double, label_smoothing, WB_DEFAULT) /* from 0 to 1; default 0 */                          \
    OPT(double, gamma, WB_DEFAULT)          /* 0 or more; default 2 */                             \
    OPT(double, smooth, WB_DEFAULT)         /* 0 or more; default 1 */                             \
    OPT(double, beta, WB_DEFAULT)           /* from 0 to 1; default 0.7 */                         \
    OPT(double, margin, WB_DEFAULT)         /* 0 or more; default 1 */                             \
    /* weights [classes] of the dtype of yhat, or f32 if yhat is f16 or bf16; WB_NONE: none */     \
    OPT(wb_tensor *, weight, NULL)                                                                 \
    OPT(int64_t, ignore_index, INT64_MIN)   /* the class number to ignore; default: none */        \
    OPT(wb_tensor *, sample_weight, NULL)   /* of a dtype that .weight may have; WB_NONE: none */  \
    OPT(wb_tensor *, mask, NULL)            /* bool, true where values count; WB_NONE: none */
WB_OPTIONS(wb_loss_options);

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
#define wb_huber_options_(OPT, ARG)                                                                \
    OPT(wb_agg, agg, WB_AGG_MEAN)                                                                  \
    OPT(wb_tensor *, sample_weight, NULL) OPT(wb_tensor *, mask, NULL)                             \
    ARG(double, delta, 1)
WB_OPTIONS(wb_huber_options);
/** e²/2 where e < delta, else delta (e - delta/2), with e = |yhat - y|: wb_huber(yhat, y),
 * wb_huber(yhat, y, 0.5).  Error: delta is not positive. */
WB_API wb_tensor *wb_huber_with(wb_tensor *yhat, wb_tensor *y, const wb_huber_options *o);
/** wb_huber as a function value, with delta. */
WB_API wb_tensor *wb_huber(wb_tensor *yhat, wb_tensor *y, double delta);

/** Options of wb_quantile_loss. */
#define wb_quantile_loss_options_(OPT, ARG)                                                        \
    OPT(wb_agg, agg, WB_AGG_MEAN)                                                                  \
    OPT(wb_tensor *, sample_weight, NULL) OPT(wb_tensor *, mask, NULL)                             \
    /* several quantiles [Q], of the dtypes of .sample_weight, for yhat [..., Q] and y [...] */    \
    OPT(wb_tensor *, quantiles, NULL)                                                              \
    ARG(double, quantile, WB_DEFAULT)       /* above 0 and below 1; default: 0.5 */
WB_OPTIONS(wb_quantile_loss_options);
/** The pinball loss max(q e, (q - 1) e), with e = y - yhat and the quantile q:
 * wb_quantile_loss(yhat, y, 0.9), wb_quantile_loss(yhat, y, .quantiles = q).  Its mean is least
 * where a share q of y is below yhat.  Where e is 0, the gradient with respect to yhat is -q.  With
 * .quantiles, column k of yhat has the estimate of the quantile q[k], and the values have the shape
 * of yhat.  (Koenker & Bassett 1978; mean_pinball_loss of scikit-learn)  Errors: a quantile that is
 * not above 0 and below 1 (NaN where the host cannot read it); .quantile together with .quantiles;
 * shapes that do not fit. */
WB_API wb_tensor *wb_quantile_loss_with(wb_tensor *yhat, wb_tensor *y,
                                        const wb_quantile_loss_options *o);
/** wb_quantile_loss as a function value, with the quantile. */
WB_API wb_tensor *wb_quantile_loss(wb_tensor *yhat, wb_tensor *y, double quantile);

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
 * .label_smoothing, .weight and .ignore_index.  Error of the losses of classes: no axis of classes,
 * or one of size 0.
 *
 * y has probabilities, such as one-hot rows, in the shape of yhat.  Or y has class numbers, of an
 * integer dtype, in the shape of yhat without the axis of the classes; they count as one-hot rows.
 * .label_smoothing replaces y by wb_label_smoothing(y).  .weight multiplies the term of each class.
 * A row whose class number is .ignore_index has the loss 0.  With class numbers the mean is the sum
 * divided by the sum of the weights of the classes of the rows that are not ignored, or by their
 * number; if there is none, it is NaN.  With probabilities it is the sum divided by the number of
 * rows.  .ignore_index with probabilities is an error.  With class numbers, .weight and
 * .sample_weight, a row counts with the product of its two weights.
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
#define wb_ctc_loss_options_(OPT, ARG)                                                             \
    OPT(wb_agg, agg, WB_AGG_MEAN)                                                                  \
    OPT(int64_t, blank, 0)                  /* the class of the blank; -1: the last */             \
    OPT(bool, zero_infinity, false)         /* 0 in place of an infinite loss */                   \
    /* integers [N] from 0 to T and from 0 to L; default and WB_NONE: T and L for all sequences */ \
    OPT(wb_tensor *, input_lengths, NULL) OPT(wb_tensor *, target_lengths, NULL)                   \
    OPT(wb_tensor *, sample_weight, NULL) OPT(wb_tensor *, mask, NULL) /* [N] */
WB_OPTIONS(wb_ctc_loss_options);
/** Connectionist temporal classification: the negative logarithm of the probability of each label
 * sequence, wb_ctc_loss(yhat, y, .target_lengths = lengths).  (Graves et al. 2006)
 *   loss = -log(sum over paths of prod over t < input length of p[t, path[t]])
 *   p = softmax(yhat)   yhat [N, T, classes], scores of any size   y [N, L], class numbers
 * The paths are those that become the labels when equal neighbours are merged and then blanks are
 * removed.  Steps of yhat and labels of y behind a sequence's length do not count.
 * WB_AGG_UNREDUCED gives the losses [N], WB_AGG_SUM their sum, and WB_AGG_MEAN, as in PyTorch, the
 * mean of loss / max(1, target length), with .sample_weight and .mask.  If no path exists, as with
 * more labels than steps, the loss is infinite, or 0 with .zero_infinity, and its gradient is 0
 * (PyTorch: NaN without zero_infinity).
 *
 * Logarithms of probabilities are such scores too.  PyTorch's ctc_loss(log_probs, ...) with
 * log_probs [T, N, classes] is wb_ctc_loss(wb_permute(log_probs, 1, 0, 2), ...), with its gradient;
 * Flux's ctc_loss(yhat, y) with yhat [classes, T] in Julia's order is a sequence [1, T, classes]
 * with .blank = -1 and .agg = WB_AGG_SUM.
 *
 * Gradient with respect to yhat only.  Errors: other shapes or dtypes; a blank that is no class; a
 * class number of y or a length out of range, where wb_crossentropy has that error, except that
 * with .target_lengths a class number is an error with WEBER_DEBUG=check only.  Otherwise the loss
 * of that sequence is NaN, also if a label is the blank. */
WB_API wb_tensor *wb_ctc_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_ctc_loss_options *o);
/** wb_ctc_loss as a function value. */
WB_API wb_tensor *wb_ctc_loss(wb_tensor *yhat, wb_tensor *y);

/** Options of wb_label_smoothing. */
#define wb_label_smoothing_options_(OPT, ARG)                                                      \
    OPT(int, dims, -1)                      /* the axis of the classes */                          \
    OPT(bool, binary, false)                /* y has probabilities of one of two classes */
WB_OPTIONS(wb_label_smoothing_options);
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
#define WB_LOSS_(f, yhat, y, ...) \
    WB_CALL_WITH_(f((yhat), (y), WB_GET_(wb_loss_options, __VA_ARGS__)))
#define wb_huber(...) WB_HUBER_(__VA_ARGS__, )
#define WB_HUBER_(yhat, y, ...) \
    WB_CALL_WITH_(wb_huber_with((yhat), (y), WB_GET_(wb_huber_options, __VA_ARGS__)))
#define wb_quantile_loss(...) WB_QUANTILE_LOSS_(__VA_ARGS__, )
#define WB_QUANTILE_LOSS_(yhat, y, ...) \
    WB_CALL_WITH_(wb_quantile_loss_with((yhat), (y), \
                                        WB_GET_(wb_quantile_loss_options, __VA_ARGS__)))
#define wb_ctc_loss(...) WB_CTC_LOSS_(__VA_ARGS__, )
#define WB_CTC_LOSS_(yhat, y, ...) \
    WB_CALL_WITH_(wb_ctc_loss_with((yhat), (y), WB_GET_(wb_ctc_loss_options, __VA_ARGS__)))
#define wb_label_smoothing(...) WB_LABEL_SMOOTHING_(__VA_ARGS__, )
#define WB_LABEL_SMOOTHING_(y, alpha, ...) \
    WB_CALL_WITH_(wb_label_smoothing_with((y), (alpha), \
                                          WB_GET_(wb_label_smoothing_options, __VA_ARGS__)))
#endif

/* ---- metrics --------------------------------------------------------------------------------- */

/* A metric compares the output of a model with the target y, which has true classes.  It has no
 * gradient; wb_item reads it, as in a function that is .metric of wb_train:
 *
 *     static double held_out(wb_layer *model, int epoch, void *ctx)
 *     {
 *         wb_batch *b = ctx;
 *         return wb_item(wb_f1(wb_call(model, b->x), b->y));
 *     }
 *
 * yhat is one of these:
 *   scores, floating, with the classes in the axis .dims: the class with the highest score counts;
 *     y has class numbers, of an integer dtype, in the shape of yhat without that axis
 *   class numbers, of an integer dtype, in the shape of y, with .classes
 *   bool, as wb_gt(p, 0.5), in the shape of y, which is bool or has numbers of which those that are
 *     not 0 are true: two classes, false (0) and true (1)
 * Elements whose class in y is .ignore_index, or where .mask is false, are left out.  So are those
 * with a class outside 0 .. classes-1, which is an error where wb_crossentropy has that error. */

/** Options of wb_confusion, wb_f1 and wb_iou. */
#define wb_metric_options_(OPT, ARG)                                                               \
    OPT(wb_agg, agg, WB_AGG_MEAN)           /* aggregation in wb_f1 and wb_iou */                  \
    OPT(int, dims, -1)                      /* the axis of the scores of the classes */            \
    OPT(int64_t, classes, 0)                /* number of classes, if yhat has class numbers */     \
    OPT(int64_t, ignore_index, INT64_MIN)   /* the class number to ignore; default: none */        \
    OPT(wb_tensor *, mask, NULL)            /* bool, as the option .mask of losses */
WB_OPTIONS(wb_metric_options);
/** The confusion table: how many elements of class i of y have class j in yhat, i32
 * [classes, classes], with i in the rows: wb_confusion(scores, y).  (confusion_matrix of
 * scikit-learn)  Elements of which a score is NaN have no class, and are left out.  Errors: shapes
 * or dtypes that do not fit; class numbers without .classes; more than 46340 classes; .agg. */
WB_API wb_tensor *wb_confusion_with(wb_tensor *yhat, wb_tensor *y, const wb_metric_options *o);
/** wb_confusion as a function value. */
WB_API wb_tensor *wb_confusion(wb_tensor *yhat, wb_tensor *y);
/** F1 of each class, 2 tp / (2 tp + fp + fn), the harmonic mean of precision and recall, with the
 * elements tp that have the class in yhat and y, fp only in yhat, fn only in y: wb_f1(scores, y),
 * wb_f1(wb_gt(p, 0.5), y).  f32.
 *
 * WB_AGG_MEAN is the mean over the classes that yhat or y have (average="macro" of scikit-learn's
 * f1_score), or, where yhat is bool, the value of the class true (average="binary").
 * WB_AGG_UNREDUCED gives the values [classes], NaN for a class that neither has.  Of no elements
 * the mean is NaN.  All values are NaN if a score is, other than of elements that do not count.
 * Errors: those of wb_confusion; .agg = WB_AGG_SUM. */
WB_API wb_tensor *wb_f1_with(wb_tensor *yhat, wb_tensor *y, const wb_metric_options *o);
/** wb_f1 as a function value. */
WB_API wb_tensor *wb_f1(wb_tensor *yhat, wb_tensor *y);
/** The intersection over union of each class, tp / (tp + fp + fn), otherwise as wb_f1: the mean IoU
 * of a segmentation is wb_iou(scores, y, .dims = 1).  (jaccard_score of scikit-learn) */
WB_API wb_tensor *wb_iou_with(wb_tensor *yhat, wb_tensor *y, const wb_metric_options *o);
/** wb_iou as a function value. */
WB_API wb_tensor *wb_iou(wb_tensor *yhat, wb_tensor *y);
/** Options of wb_roc_auc. */
#define wb_roc_auc_options_(OPT, ARG)                                                              \
    OPT(int, dims, -1)                      /* the axis of the scores of the classes */            \
    OPT(wb_tensor *, mask, NULL)            /* bool, in the shape of y or of its first axes */
WB_OPTIONS(wb_roc_auc_options);
/** The area under the curve of the true positive rate over the false positive rate: the share of
 * the pairs of a true and a false element in which the true one has the higher score, where an
 * equal score counts 1/2: wb_roc_auc(scores, y).  f32; the cost is that of sorting.
 *
 * yhat has floating scores, y in its shape is bool or has numbers of which those that are not 0 are
 * true.  Or y has class numbers in the shape of yhat without the axis .dims: the result is the mean
 * over the classes, each against the rest, that have true and false elements (multi_class="ovr" of
 * scikit-learn's roc_auc_score).  NaN if there is no true or no false element, or if a score is
 * NaN.  Errors: shapes or dtypes that do not fit; more than 2^31 elements. */
WB_API wb_tensor *wb_roc_auc_with(wb_tensor *yhat, wb_tensor *y, const wb_roc_auc_options *o);
/** wb_roc_auc as a function value. */
WB_API wb_tensor *wb_roc_auc(wb_tensor *yhat, wb_tensor *y);
#ifndef __cplusplus
#define wb_confusion(...) WB_METRIC_(wb_confusion_with, __VA_ARGS__, )
#define wb_f1(...) WB_METRIC_(wb_f1_with, __VA_ARGS__, )
#define wb_iou(...) WB_METRIC_(wb_iou_with, __VA_ARGS__, )
#define WB_METRIC_(f, yhat, y, ...) \
    WB_CALL_WITH_(f((yhat), (y), WB_GET_(wb_metric_options, __VA_ARGS__)))
#define wb_roc_auc(...) WB_ROC_AUC_(__VA_ARGS__, )
#define WB_ROC_AUC_(yhat, y, ...) \
    WB_CALL_WITH_(wb_roc_auc_with((yhat), (y), WB_GET_(wb_roc_auc_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
