/* What several files of operations use (ops_elementwise.c, ops_shape.c, ops_reduce.c, ...). */
#ifndef WB__ONNX_OPS_COMMON_H
#define WB__ONNX_OPS_COMMON_H

#include "io/onnx/run.h"

/* Whether input i is floating; else sets the error. */
static inline bool wb__onnx_floating(const wb__onnx_call *c, int i)
{
    if (wb__dtype_float((wb_dtype)c->in[i]->dtype)) return true;
    return wb__onnx_refuse(c, WB_ERROR_DTYPE, "input %d is %s; it must be floating", i,
                           wb_describe(c->in[i]));
}

/* Whether inputs 0 and i have one dtype; else sets the error. */
static inline bool wb__onnx_alike(const wb__onnx_call *c, int i)
{
    if (c->in[0]->dtype == c->in[i]->dtype) return true;
    return wb__onnx_refuse(c, WB_ERROR_DTYPE, "inputs 0 and %d have different dtypes: %s, %s", i,
                           wb_describe(c->in[0]), wb_describe(c->in[i]));
}

/* Sets list[] to the axes of an operator for a tensor of `ndim` axes, 0 to ndim - 1, in the order
 * of the file: the attribute "axes" or input i.  Returns their count, -1 if none are given, or -2
 * with the error set: an axis that does not exist, or that is named twice. */
int wb__onnx_axes(const wb__onnx_call *c, int i, int ndim, int list[WB_MAX_DIMS]);

/* Whether the elements of input i are fixed: known from the file and the sizes of the inputs, so
 * that to read them evaluates nothing that depends on the values of the inputs. */
bool wb__onnx_is_fixed(const wb__onnx_call *c, int i);

/* Returns input i, which has one element and the dtype of input 0, as a tensor without axes: a
 * literal, so that the plan need not read it, if the input is fixed and a double has its value.
 * NULL with the error set. */
wb_tensor *wb__onnx_number(const wb__onnx_call *c, int i);

/* Returns Weber's dtype for the type in an attribute, or `otherwise` without the attribute (0: it
 * is needed); 0 with the error set. */
wb_dtype wb__onnx_dtype_in(const wb__onnx_call *c, const char *name, wb_dtype otherwise);

/* Returns x rounded to the nearest integer; of two, to the even one. */
wb_tensor *wb__onnx_rounded(wb_tensor *x);

/* Returns x over its 1-norm or 2-norm along an axis; x where that is 0.  NULL gives NULL.
 * (ops_norm.c) */
wb_tensor *wb__onnx_over_norm(wb_tensor *x, int p, int axis);

/* The functions that rows of ops.def call return the result; NULL with the error set. */
/* Returns f applied along the attribute's axis.  Before opset 13 x counts as a matrix, whose
 * columns are the elements of this axis and of all behind it (ops_loss.c). */
wb_tensor *wb__onnx_over_axis(const wb__onnx_call *c, wb_tensor *(*f)(wb_tensor *x, int axis));
wb_tensor *wb__onnx_hardmax(wb_tensor *x, int axis);    /* 1 at the first greatest, else 0 */
/* Returns the window w[k] = a - b cos(2 pi k / m) + d cos(4 pi k / m); m is n, or n - 1 if it is
 * not periodic (ops_signal.c). */
wb_tensor *wb__onnx_window(const wb__onnx_call *c, double a, double b, double d);
/* The reductions of ONNX over axes (ops_reduce.c). */
typedef enum {
    WB__ONNX_REDUCE_SUM, WB__ONNX_REDUCE_MEAN, WB__ONNX_REDUCE_MAX, WB__ONNX_REDUCE_MIN,
    WB__ONNX_REDUCE_PROD, WB__ONNX_REDUCE_L1, WB__ONNX_REDUCE_L2, WB__ONNX_REDUCE_LOG_SUM,
    WB__ONNX_REDUCE_LOG_SUM_EXP, WB__ONNX_REDUCE_SUM_SQUARE
} wb__onnx_reduction;
wb_tensor *wb__onnx_reduced(const wb__onnx_call *c, wb__onnx_reduction kind);
wb_tensor *wb__onnx_extreme_place(const wb__onnx_call *c, wb_tensor *(*place)(wb_tensor *, int));

/* Computes Pow of two integer tensors (ops_bits.c). */
bool wb__onnx_integer_power(wb__onnx_call *c);

/* Returns a new tensor with these values on the device of `like`. */
wb_tensor *wb__onnx_from(const wb_tensor *like, const void *values, wb_dtype dtype, int ndim,
                         const int64_t *dims);

/* Returns x moved into a tensor of zeros with the sizes `dims`, in which the first element of x is
 * at `start`, which may be negative; elements that are outside are cut off.  NULL gives NULL. */
wb_tensor *wb__onnx_place(wb_tensor *x, const int64_t *start, const int64_t *dims);

#endif
