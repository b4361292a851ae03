/* Tensors that a model has at several paths, as JSON: {"layers.1.weight": "layers.0.weight"}. */
#ifndef WB__TIES_H
#define WB__TIES_H

#include "io/json.h"
#include "tree/tree.h"

/* The first path of each tensor, and the ties so far; initialise it with {0}. */
typedef struct { wb__pointer_map first; wb__json_out out; } wb__ties;
/* Adds a leaf of a walk that visits all paths.  Sets *is_first to whether the tensor had no path
 * before.  Returns 0 or an error code. */
int wb__ties_add(wb__ties *t, const wb__leaf *leaf, bool *is_first);
/* Returns the ties as members of an object, `"second path":"first path",...`, in a text that the
 * caller frees, and frees *t.  NULL with the error set. */
char *wb__ties_take(wb__ties *t);

/* Ties tensors of the model as in the object `ties` of a file; NULL: no ties.  `file` is the path
 * of the file, for messages.  Returns 0 or an error code. */
int wb__ties_make(const char *file, void *model, const wb__json *ties);

#endif
