/* What the files of the losses share. */
#ifndef WB__NN_LOSSES_H
#define WB__NN_LOSSES_H

#include "nn/layer.h"

/* Whether `agg` is one of the values of wb_agg; if not, sets the error of the loss `what`. */
bool wb__read_agg(const char *what, wb_agg agg);
/* Whether the option `name`, whose tensor is *at, is right: not given, WB_NONE, or a tensor.  Sets
 * *at to NULL if there is no tensor. */
bool wb__read_tensor_option(const char *what, const char *name, const wb__given *given,
                            wb_tensor **at);
/* Whether yhat and y have one device and one dtype, where f16 and bf16 count as f32, and in
 * wb__loss_match also one shape.  Converts f16 and bf16 to f32. */
bool wb__loss_dtypes(const char *what, wb_tensor **yhat, wb_tensor **y);
bool wb__loss_match(const char *what, wb_tensor **yhat, wb_tensor **y);
/* Returns the sum or mean of x, or x itself, by `agg`. */
wb_tensor *wb__aggregated(wb_agg agg, wb_tensor *x);

/* Whether x is of an integer dtype, which bool is not. */
static inline bool wb__is_integer(const wb_tensor *x)
{
    return !wb__dtype_float((wb_dtype)x->dtype) && x->dtype != WB_BOOL;
}

/* Returns whether each element of x is at least 0 and below `bound`, as a bool tensor. */
static inline wb_tensor *wb__in_range(wb_tensor *x, int64_t bound)
{
    return wb_and(wb_ge(x, wb_scalar_int(0)), wb_lt(x, wb_scalar_int(bound)));
}

/* Replaces *all by (*all and more); a *all of NULL has no condition yet.  False: failed. */
static inline bool wb__also(wb_tensor **all, wb_tensor *more)
{
    *all = *all ? wb_and(*all, more) : more;
    return *all != NULL;
}

/* The options .sample_weight and .mask of a loss.  Both become NULL or tensors whose shape
 * broadcasts to the `ndim` sizes `dims` of the values. */
typedef struct {
    const char *what;                       /* the loss, for messages */
    int ndim;
    int64_t dims[WB_MAX_DIMS];
    wb_tensor *mask;                        /* bool */
    wb_tensor *weight;                      /* has the dtype of the values; 0 behind the mask */
} wb__loss_weights;

/* Reads the two options of a loss of yhat.  The values have the axes of yhat whose bits in
 * `dropped` are 0.  False: the error is set. */
bool wb__read_loss_weights(wb__loss_weights *w, const char *what, const wb__given *given,
                           wb_tensor *sample_weight, wb_tensor *mask, const wb_tensor *yhat,
                           unsigned dropped);
/* Returns x with v (or false) where the mask leaves a value out.  x has the shape of the values,
 * and in addition the axis `classes` if `classes` is not -1. */
wb_tensor *wb__loss_masked(const wb__loss_weights *w, wb_tensor *x, int classes, double v);
/* Returns the values times their weights, or, by `agg`, the sum or the mean of these products.  The
 * mean divides by the sum of the weights. */
wb_tensor *wb__weighted(const wb__loss_weights *w, wb_agg agg, wb_tensor *values);
/* Returns the mean of wb__weighted, for values that are already multiplied by `counts`, a tensor
 * that broadcasts to their shape. */
wb_tensor *wb__weighted_by(const wb__loss_weights *w, wb_tensor *values, wb_tensor *counts);

#endif
