/* The mapping between the tensors of a model and the tensors of a file, for each way of naming.
 *
 * A row of the mapping connects one tensor of a file with one tensor of the model at one path.
 * With Weber's names each path has one row, and the name in the file is the path.  PyTorch's files
 * differ in these ways:
 *
 *   - Three projections of an attention are blocks, along axis 0, of one tensor in the file.
 *   - A recurrent layer has a second bias, which is added to the first (WB__NAME_ADDED).
 *   - Kernels are not flipped (WB__NAME_FLIPPED).
 *   - A BatchNorm has a counter of batches, num_batches_tracked (WB__NAME_COUNT). */
#ifndef WB__NAMES_H
#define WB__NAMES_H

#include "nn/layer.h"

typedef enum {
    WB__NAME_COPY,
    WB__NAME_FLIPPED,            /* kernels, which the file has flipped along the axes of space */
    /* a second bias, in the row behind the first: loading adds it to the first, saving writes 0 */
    WB__NAME_ADDED,
    /* an i64 counter that the model lacks: x is NULL, loading does not need it, saving writes 0 */
    WB__NAME_COUNT
} wb__name_kind;

typedef struct {
    char *name, *path;          /* the name in the file, and the path in the model */
    wb_tensor *x;
    wb__name_kind kind;
    /* `part` is the index of the block of the file's tensor that x is; it has `parts` equal blocks
     * along axis 0 */
    int part, parts;
    /* kind WB__NAME_ADDED: number of last elements of the file's tensor that must be 0 */
    int64_t zeros;
    /* another name of the tensor of an earlier row, which is used only for loading */
    bool other;
} wb__name_row;

typedef struct { int n, capacity; wb__name_row *rows; } wb__name_map;

/* wb__name_map_weber and wb__name_map_torch make all rows of a model.  Rows of one tensor of a file
 * are consecutive, in the order of `part`.  In PyTorch's Sequential, the activation behind a layer
 * has a number, like a layer.  If `numbered` is true, only layers have numbers, as in Weber.  Both
 * functions return 0 or an error code; the caller frees *out with wb__name_map_free. */
int wb__name_map_weber(void *model, wb__name_map *out);
int wb__name_map_torch(void *model, bool numbered, wb__name_map *out);
void wb__name_map_free(wb__name_map *l);

/* Returns PyTorch's name for a path in the model: "layers.2.running_mean" gives "2.running_mean".
 * If the model has only the beginning of the path, the rest is kept.  `numbered` is as in
 * wb__name_map_torch.  The caller frees the name; NULL: out of memory. */
char *wb__torch_name(void *model, const char *path, bool numbered);

#endif
