/* A piece of an operation that oneDNN computes on one thread.  The functions are those of dnnl.h;
 * dnnl_split.c divides the operations. */
#ifndef WB__DNNL_PIECE_H
#define WB__DNNL_PIECE_H

#include "backend/cpu/lib.h"

int wb__dnnl_matmul_piece(const wb__matmul_desc *d, wb__cpu_op **op, const char **reason);

/* wide_weights: the gradient of the weights is f32, also if x and dy are bf16. */
int wb__dnnl_conv_piece(const wb__conv_desc *d, bool wide_weights, wb__cpu_op **op,
                        const char **reason);

/* dnnl_memory.c: whether the system has as much memory for data and code of oneDNN as a piece may
 * need.  If not, sets *reason, and reports it once in the process. */
bool wb__dnnl_has_memory(const char **reason);

/* Makes what n concurrent runs of a piece need, so that they allocate nothing.  0, or an error code
 * with the message. */
int wb__dnnl_piece_reserve(wb__cpu_op *op, int n);

#endif
