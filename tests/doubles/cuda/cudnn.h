/* Declarations that the files of cuDNN's double share: a graph as a list of operations on tensors.
 * See vgpu.h. */
#ifndef VGPU_CUDNN_H
#define VGPU_CUDNN_H

#include "backend/cuda/dnn_api.h"
#include "vgpu.h"

enum { CUDNN_MOST_TENSORS = 64, CUDNN_MOST_OPS = 40 };

typedef struct {
    int64_t id, dims[4], strides[4], align;
    int32_t type;                   /* cuDNN's */
    uint8_t is_virtual;             /* an intermediate result, which is not in memory */
    uint8_t by_value;
    double value;                   /* if by_value: read at the launch */
    uint64_t address;
} cudnn_tensor;

typedef struct {
    int32_t kind;                   /* of its descriptor */
    int32_t mode, axis;             /* of pointwise operations and reductions */
    int32_t x, b, t, y;             /* tensors (-1: none); in all convolutions x, b (w) and y */
    int64_t before[2], behind[2], dilation[2], stride[2];   /* before, behind: the padding */
} cudnn_op;

typedef struct {
    int n_tensors, n_ops;
    cudnn_tensor tensor[CUDNN_MOST_TENSORS];
    cudnn_op op[CUDNN_MOST_OPS];
    void *workspace;
    size_t workspace_bytes;
} cudnn_program;

/* Executes a cudnn_program: a vgpu_task. */
int cudnn_run(void *program);

#endif
