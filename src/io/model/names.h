/* The name mapping between a model's tensors and a file's, for each way of naming.
 *
 * A row of the mapping connects one tensor of a file with one tensor of the model at one path. With
 * Weber's names each path has one row, and both names are the same. PyTorch's files differ: three
 * projections are one tensor (each is then one of `parts` blocks of rows of that tensor); a second
 * bias is added to the first (a row of kind ADDED, right behind the first); kernels are not
 * flipped; a counter of batches (num_batches_tracked) is a tensor. */
#ifndef WB__NAMES_H
#define WB__NAMES_H

#include "nn/layer.h"

typedef enum {
    WB__NAME_COPY,
    WB__NAME_FLIPPED,            /* its kernels are flipped along the last two axes */
    WB__NAME_ADDED,             /* its values are added to those of the row before; written as 0 */
    /* an i64 that the model lacks: x is NULL, it may be missing, and is written as 0 */
    WB__NAME_COUNT
} wb__name_kind;

typedef struct {
    char *name, *path;          /* in the file; in the model */
    wb_tensor *x;
    wb__name_kind kind;
    /* x is block `part` of the `parts` equal blocks of rows in the file's tensor */
    int part, parts;
    int64_t zeros;              /* kind ADDED: so many of the tensor's last elements must be 0 */
    bool other;                 /* a second name in files for an earlier row; only for reading */
} wb__name_row;

typedef struct { int n, capacity; wb__name_row *rows; } wb__name_map;

/* All rows of a model. Rows of one tensor of a file are consecutive, in the order of their parts.
 * In PyTorch's Sequential activations are layers with numbers; with `numbered` they are not
 * counted, for files whose layers have the same numbers as in Weber. Returns 0 or an error code;
 * the caller frees *out with wb__name_map_free. */
int wb__name_map_weber(void *model, wb__name_map *out);
int wb__name_map_torch(void *model, bool numbered, wb__name_map *out);
void wb__name_map_free(wb__name_map *l);

/* PyTorch's name for a path in the model, as far as the path exists; the rest is kept
 * ("layers.2.running_mean" -> "2.running_mean"). The caller frees it; NULL: out of memory. */
char *wb__torch_name(void *model, const char *path, bool numbered);

#endif
