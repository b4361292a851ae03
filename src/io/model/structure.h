/* A model's structure as JSON: kinds of layers, options, names, modes and ties, without values.
 *
 *   {"version": 2, "ties": {"layers.1.weight": "layers.0.weight"},
 *    "model": {"layer": "Chain", "parts": [
 *        {"name": "0", "layer": "Dense", "options": {"in": 2, "out": 3}}, ...]}}
 *
 * A layer that makes its inner layers itself, such as MultiHeadAttention, has parts only for those
 * that wb_quantize or wb_add_lora has replaced. */
#ifndef WB__STRUCTURE_H
#define WB__STRUCTURE_H

#include "io/json.h"
#include "nn/layer.h"

/* Changes a structure of version 1 to one of version 2: the options of layers of the library. */
void wb__structure_update(wb__json *root);
/* Returns a model's structure as JSON; the caller frees it with wb__free.  NULL with the error
 * set. */
char *wb__structure_text(void *model);
/* Returns the layer, tree or tensor that `text` describes, including ties between tensors.  The
 * caller then loads the values.  `file` is the path, for messages.  `values` is the size, in bytes,
 * of the tensors in the file.  A model that needs many times as many bytes is an error.  NULL with
 * the error set. */
void *wb__structure_build(const char *file, const char *text, int64_t values);

#endif
