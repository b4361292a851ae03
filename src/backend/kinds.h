/* Variants of library operations, as a step tells them (backend.h). */
#ifndef WB__KINDS_H
#define WB__KINDS_H

/* What a unary epilogue may be: applied to the finished product, after the bias. */
typedef enum { WB__EPI_NONE, WB__EPI_RELU, WB__EPI_TANH, WB__EPI_SIGMOID } wb__epilogue;

typedef enum { WB__CONV_FORWARD, WB__CONV_DATA, WB__CONV_WEIGHTS } wb__conv_kind;

typedef enum {
    WB__POOL_MAX,           /* y = max over the window            buffers: x, y      */
    WB__POOL_MAX_BACK,      /* dx: dy at the first maximum        buffers: x, dy, dx */
    WB__POOL_MAX_TAKE,      /* y = v at the first maximum of x    buffers: x, v, y   */
    WB__POOL_MEAN,          /* mean, padding counted              buffers: x, y      */
    WB__POOL_MEAN_BACK      /* its adjoint                        buffers: dy, dx    */
} wb__pool_kind;

#endif
