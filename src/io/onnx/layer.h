/* The layer type "Onnx": a model of ONNX as a layer (layer.c). */
#ifndef WB__ONNX_LAYER_H
#define WB__ONNX_LAYER_H

#include "base/map.h"
#include "nn/layer.h"

/* Returns a file of ONNX as a layer, for wb_load.  NULL with the error set. */
wb_layer *wb__onnx_load(const wb__mapping *m, const wb_load_options *o);

#endif
