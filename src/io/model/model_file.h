/* Models in safetensors files, for checkpoints: many tensors into one file, and back into a
 * model. */
#ifndef WB__MODEL_FILE_H
#define WB__MODEL_FILE_H

#include "io/model/load_state.h"
#include "io/safetensors/safetensors.h"
#include "tree/tree.h"

/* What is to be saved: tensors, evaluated when they are added, which stay the caller's and are read
 * from where they are when the file is written. */
typedef struct { wb__st_out *tensors; int n, room; } wb__saving;
int wb__saving_add(wb__saving *l, const char *prefix, const char *name, wb_tensor *x);
/* its distinct tensors, by path */
int wb__saving_add_model(wb__saving *l, const char *prefix, void *model);
int wb__saving_write(wb__saving *l, const char *path, int n_notes, const wb__note *notes);
void wb__saving_free(wb__saving *l);

/* A model from its structure's text and its values, by the names that the table's notes tell; NULL with the
 * error set. */
wb_layer *wb__model_from(const char *path, const char *structure, wb__table *file);

#endif
