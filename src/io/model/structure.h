/* A model's structure as JSON text: kinds of layers, their options, names, modes and ties.  The
 * values are elsewhere.
 *
 *   {"version": 1, "ties": {"layers.1.weight": "layers.0.weight"},
 *    "model": {"layer": "Chain", "parts": [
 *        {"name": "0", "layer": "Dense", "options": {"in": 2, "out": 3}}, ...]}} */
#ifndef WB__STRUCTURE_H
#define WB__STRUCTURE_H

#include "nn/layer.h"

char *wb__structure_text(void *model);     /* for wb__free; NULL with the error set */
/* Fresh values (zeros and ones), ties made.  `values`: bytes of tensors in the file; a description that would take more than
 * a small multiple of them is refused. */
wb_layer *wb__structure_build(const char *file, const char *text, int64_t values);

#endif
