/* Which tensors of a file make which of a model's, in each way of naming them.
 *
 * A link is one tensor of a file and one of the model, at one of its places.  With Weber's own names
 * there is one link a place, and the two are the same.  PyTorch puts three projections into one tensor
 * (a link is then one of `parts` blocks of rows), has two biases for one of ours (the second is a link of
 * kind ADDED right behind the first), turns no kernels over, and counts batches. */
#ifndef WB__NAMES_H
#define WB__NAMES_H

#include "nn/layer.h"

typedef enum {
    WB__LINK_COPY,
    WB__LINK_TURNED,            /* both last axes run the other way */
    WB__LINK_ADDED,             /* added to the link before; written as zeros */
    WB__LINK_COUNT              /* an i64 that the model has not: x is NULL; never missing, written as 0 */
} wb__link_kind;

typedef struct {
    char *name, *path;          /* in the file; in the model */
    wb_tensor *x;
    wb__link_kind kind;
    int part, parts;            /* parts: 1 but for links that share a tensor of the file */
    int64_t zeros;              /* of an ADDED one: so many of its last rows must be zero */
    bool other;                 /* another name for what a link before has: for reading alone */
} wb__link;

typedef struct { int n, room; wb__link *links; } wb__links;

/* All links of a model; those of one tensor of a file stand together, the first part first.
 * PyTorch's Sequential has activations as layers of their own: `numbered` leaves them out of the counting, so that
 * layers have the numbers that they have here. */
int wb__links_weber(void *model, wb__links *out);
int wb__links_torch(void *model, bool numbered, wb__links *out);
void wb__links_free(wb__links *l);

/* A path in the model as PyTorch names it, as far as there is such a part; the rest as it is ("layers.2.running_mean"
 * -> "2.running_mean").  For wb__free; NULL without memory. */
char *wb__torch_name(void *model, const char *path, bool numbered);

#endif
