/* The parameters of a file of ONNX, and the bytes of the file that a layer keeps (parameters.c). */
#ifndef WB__ONNX_PARAMETERS_H
#define WB__ONNX_PARAMETERS_H

#include "io/onnx/model.h"
#include "io/protobuf.h"

/* How a layer uses an initializer.  WB__ONNX_UNUSED: no node reads it. */
typedef enum { WB__ONNX_UNUSED, WB__ONNX_CONSTANT, WB__ONNX_PARAMETER } wb__onnx_part;

/* Sets `parts` to the use of each of m->tensors.  Returns 0 or an error code. */
int wb__onnx_find_parameters(const wb__onnx_model *m, wb__onnx_part *parts);
/* Writes the model, whose bytes are `data`, without the values of its parameters and of unused
 * initializers.  Values in other files are copied into the model.  Returns 0 or an error code; the
 * caller frees *out with wb__wire_free in both cases. */
int wb__onnx_put_without_parameters(wb__onnx_model *m, const wb__onnx_part *parts, const void *data,
                                    size_t bytes, wb__wire_out *out);

#endif
