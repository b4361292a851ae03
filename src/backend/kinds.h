/* What a step tells of a library operation beside its kind and variant (ops/ops.h). */
#ifndef WB__KINDS_H
#define WB__KINDS_H

#include "ops/ops.h"

/* What a unary epilogue may be: applied to the finished product, after the bias. */
typedef enum {
    WB__EPI_NONE, WB__EPI_RELU, WB__EPI_TANH, WB__EPI_SIGMOID,
    /* Of matrix products only, and only where the backend takes them (wb__backend's `takes`).
     * z = a·b + bias; `aux` is the step's view of that name: */
    WB__EPI_GELU,           /* c = gelu(z), the tanh form                              */
    WB__EPI_GELU_AUX,       /* c = gelu(z), aux = z, of c's shape and dtype            */
    WB__EPI_RELU_AUX,       /* c = relu(z), aux = where z > 0, as bits                 */
    WB__EPI_GELU_BACK,      /* c = a·b * gelu'(aux)                                    */
    WB__EPI_RELU_BACK       /* c = where(aux, a·b, 0)                                  */
} wb__epilogue;

/* The bits of RELU_AUX and RELU_BACK are u8 [rows of c, wb__relu_bytes(columns of c)]: a row is
 * padded to 128 bits; which bit is whose is the backend's own business. */
static inline int64_t wb__relu_bytes(int64_t columns) { return (columns + 127) / 128 * 16; }

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
