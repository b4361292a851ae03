/* Writes a layer as a model file of ONNX, for wb_save (write.c). */
#ifndef WB__ONNX_WRITE_H
#define WB__ONNX_WRITE_H

#include "nn/layer.h"
#include "weber/files.h"

/* Returns the name of an option in *o that only models of ONNX have, or NULL if none is given. */
const char *wb__onnx_option(const wb_save_options *o, const wb__given *given);
/* Writes the layer to the path.  Returns 0 or an error code. */
int wb__onnx_save(const char *path, void *model, const wb_save_options *o,
                  const wb__given *given);

#endif
