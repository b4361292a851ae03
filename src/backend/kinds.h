/* What a step tells of a library operation beside its kind and variant (ops/ops.h). */
#ifndef WB__KINDS_H
#define WB__KINDS_H

#include "ops/ops.h"

/* An epilogue is a row of ops.def: f of the finished product z = a·b + bias, element by element
 * (wb__is_epilogue; WB__OP_NONE: c = z).  What training wants of it is in the step's view `aux`, of
 * matrix products only, and only where the backend takes it (wb__backend's `takes`): */
typedef enum {
    WB__AUX_NONE,           /* c = f(z)                                                */
    WB__AUX_OPERAND,        /* c = f(z), aux = z, of c's shape and dtype               */
    WB__AUX_SIGNS,          /* c = f(z), aux = where z > 0, as bits                    */
    WB__AUX_FACTOR,         /* c = z * f(aux), as gelu's gradient is with gelu_slope   */
    WB__AUX_MASK            /* c = where(aux, z, 0): f is relu, which left its bits    */
} wb__aux;

/* These bits are u8 [rows of c, wb__relu_bytes(columns of c)]: a row is padded to 128 bits; which
 * bit is whose is the backend's own business. */
static inline int64_t wb__relu_bytes(int64_t columns) { return (columns + 127) / 128 * 16; }

/* Whether a row can be an epilogue: every backend evaluates it behind its products and
 * convolutions, by the row's expression where it knows nothing better. */
static inline bool wb__is_epilogue(const wb__op_info *row)
{
    return row->class == WB__UNARY && row->accepts & WB__FLOATS;
}

/* The rows behind whose result a bias and an epilogue may follow in the same step. */
static inline bool wb__has_epilogue(const wb__op_info *row)
{
    return row->step == WB__STEP_MATMUL ||
           (row->step == WB__STEP_CONV && row->variant != WB__CONV_GRAD_WEIGHT);
}

/* What is summed beside a product, as a bias's gradient is: c after the epilogue, over its rows; a or
 * b, over what the product sums over. */
typedef enum {
    WB__SUMS_NONE,
    WB__SUMS_OF_C,          /* sums[n] = sum over m of c[m, n] */
    WB__SUMS_OF_A,          /* sums[m] = sum over k of a[m, k] */
    WB__SUMS_OF_B           /* sums[n] = sum over k of b[k, n] */
} wb__sums;

/* How products of f32 may be made: PyTorch's names. */
typedef enum {
    WB__PRECISION_HIGHEST,  /* f32 throughout                                          */
    WB__PRECISION_HIGH,     /* operands rounded to TF32 where the device has it        */
    WB__PRECISION_MEDIUM    /* operands rounded to bf16 where that is faster           */
} wb__precision;

#endif
