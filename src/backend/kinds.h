/* Epilogues, sums and f32 precision of library steps.  The step kinds are in ops/ops.h. */
#ifndef WB__KINDS_H
#define WB__KINDS_H

#include "ops/ops.h"

/* An epilogue is an operation f of ops.def, applied element by element to the product z = a·b +
 * bias.  The result is c.  WB__OP_NONE means no epilogue: f(z) = z.  A matrix product may have a
 * further tensor for training, the step's view `aux`, if the backend's `supports` accepts the
 * step. */
typedef enum {
    WB__AUX_NONE,           /* c = f(z)                                                */
    WB__AUX_OPERAND,        /* c = f(z), aux = z, of c's shape and dtype               */
    WB__AUX_SIGNS,          /* c = f(z), aux = (z > 0), as bits */
    WB__AUX_FACTOR,         /* c = z * f(aux): the gradient of gelu, with f = gelu_slope */
    WB__AUX_MASK,           /* c = where(aux, z, 0): the gradient of relu, aux from SIGNS */
    WB__AUX_ADDEND          /* c = z + aux, of c's shape and dtype; without an epilogue */
} wb__aux;

/* With SIGNS and MASK, aux is u8 [rows of c, wb__relu_bytes(columns of c)] and has a bit per
 * element of c.  Each row is padded to 128 bits.  The order of the bits within a row is private to
 * the backend. */
static inline int64_t wb__relu_bytes(int64_t columns) { return (columns + 127) / 128 * 16; }

/* Whether an operation can be an epilogue.  A backend that has no faster code for the operation
 * evaluates its expression in ops.def. */
static inline bool wb__is_epilogue(const wb__op_info *row)
{
    return row->class == WB__UNARY && row->accepts & WB__FLOATS;
}

/* Whether a bias and an epilogue may follow the operation in the same step. */
static inline bool wb__has_epilogue(const wb__op_info *row)
{
    return row->step == WB__STEP_MATMUL || row->step == WB__STEP_LINEAR_INT8 ||
           (row->step == WB__STEP_CONV && row->variant != WB__CONV_GRAD_WEIGHT);
}

/* Sums that a matrix product also computes, for example as the gradient of a bias.  c is summed
 * after the epilogue. */
typedef enum {
    WB__SUMS_NONE,
    WB__SUMS_OF_C,          /* sums[n] = sum over m of c[m, n] */
    WB__SUMS_OF_A,          /* sums[m] = sum over k of a[m, k] */
    WB__SUMS_OF_B           /* sums[n] = sum over k of b[k, n] */
} wb__sums;

/* A row of LINEAR_INT8 whose scale would be less than WB__INT8_LEAST is zeros once it is quantised,
 * so that the inverse of the scale is finite.  A sum of integers is multiplied by the row's scale
 * times WB__INT8_DOWN, then by the weight's scale, then by WB__INT8_UP: the first product does not
 * overflow before a small scale of the weight can make it smaller. */
#define WB__INT8_LEAST 0x1p-100f
#define WB__INT8_DOWN 0x1p-25f
#define WB__INT8_UP 0x1p25f

/* How products of f32 may be computed; the names are PyTorch's. */
typedef enum {
    WB__PRECISION_HIGHEST,  /* f32 throughout                                          */
    WB__PRECISION_HIGH,     /* operands rounded to TF32 where the device has it        */
    WB__PRECISION_MEDIUM    /* operands rounded to bf16 where that is faster           */
} wb__precision;

#endif
