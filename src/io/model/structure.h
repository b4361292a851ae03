/* A model's structure as JSON: kinds of layers, options, names, modes and ties, without values.
 *
 *   {"version": 1, "ties": {"layers.1.weight": "layers.0.weight"},
 *    "model": {"layer": "Chain", "parts": [
 *        {"name": "0", "layer": "Dense", "options": {"in": 2, "out": 3}}, ...]}} */
#ifndef WB__STRUCTURE_H
#define WB__STRUCTURE_H

#include "nn/layer.h"

/* The text; the caller frees it. NULL with the error set. */
char *wb__structure_text(void *model);
/* Builds the model with zeros as values and with its ties. `values`: the bytes of tensors in the
 * file; a description that needs much more is an error. */
wb_layer *wb__structure_build(const char *file, const char *text, int64_t values);

#endif
