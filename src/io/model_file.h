/* Models in safetensors files, for checkpoints: many tensors into one file, and back into a
 * model. */
#ifndef WB__MODEL_FILE_H
#define WB__MODEL_FILE_H

#include "io/safetensors.h"
#include "tree/tree.h"

/* What is to be saved: tensors, evaluated when they are added, which stay the caller's and are read
 * from where they are when the file is written. */
typedef struct { wb__st_out *tensors; int n, room; } wb__st_list;
int wb__st_list_add(wb__st_list *l, const char *prefix, const char *name, wb_tensor *x);
/* its distinct tensors, by path */
int wb__st_list_model(wb__st_list *l, const char *prefix, void *model);
int wb__st_list_save(wb__st_list *l, const char *path, int n_notes, const wb__st_note *notes);
void wb__st_list_free(wb__st_list *l);

/* The file's tensors whose names begin with `prefix` into the model's variables; strict unless
 * lenient.  Nothing is written if anything does not fit. */
int wb__st_pour(wb__st *file, const char *path, const char *prefix, void *model, bool lenient,
                bool check_only);

#endif
