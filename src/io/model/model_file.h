/* Saves lists of tensors, such as models and checkpoints, in safetensors files, and builds a model
 * from a file. */
#ifndef WB__MODEL_FILE_H
#define WB__MODEL_FILE_H

#include "io/model/load_state.h"
#include "io/safetensors/safetensors.h"
#include "tree/tree.h"

/* Tensors to be saved.  They are evaluated when they are added, remain owned by the caller, and are
 * read from their devices when the file is written. */
typedef struct { wb__st_out *tensors; int n, capacity; } wb__saving;
int wb__saving_add(wb__saving *l, const char *prefix, const char *name, wb_tensor *x);
/* Adds each tensor of a model once.  The name of a tensor in the file is the prefix followed by the
 * first path of the tensor in the model. */
int wb__saving_add_model(wb__saving *l, const char *prefix, void *model);
int wb__saving_write(wb__saving *l, const char *path, int n_notes, const wb__note *notes);
void wb__saving_free(wb__saving *l);
/* Writes the list, which has the tensors of the model, and the model's structure. */
int wb__saving_write_model(const char *path, void *model, wb__saving *list, bool torch);

/* Builds a model from the text `structure` (structure.h) and loads the model's values from the
 * table.  The names in the table are PyTorch's if the table's note "weber_names" is "torch", else
 * Weber's.  `path` is the file, for messages.  Returns a tree if `tree` is set, else a layer; NULL
 * with the error set. */
void *wb__model_from(const char *path, const char *structure, wb__table *file, bool tree);

#endif
