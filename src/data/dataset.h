/* Datasets from inside: what the loader needs of them.  A dataset is a root (arrays or a function
 * of the program) under any number of views (other numbers for the same observations) and maps (a
 * change of each batch).
 *
 * Batches of arrays on the host are copied into buffers (wb__dataset_fill, wb__dataset_wrap); those
 * of arrays on another device are gathered there (wb__dataset_gather).  Files: dataset.c (making,
 * asking), fetch.c (from numbers of observations to batches), move.c (wb_to), loader.c and prefetcher.c
 * (epochs, and batches ahead of their use), slots.c (their buffers), readers.c (files as
 * datasets). */
#ifndef WB__DATASET_H
#define WB__DATASET_H

#include "engine/tensor.h"

/* One of an observation's two parts, x and y. */
typedef struct {
    bool present;
    wb_dtype dtype;
    int ndim;                           /* without the batch axis */
    int64_t dims[WB_MAX_DIMS];
    int64_t bytes;                      /* of one observation */
} wb__field;

typedef enum { WB__DATA_ARRAYS, WB__DATA_SOURCE, WB__DATA_VIEW, WB__DATA_MAP } wb__data_kind;

struct wb_dataset {
    wb__object object;
    wb__data_kind kind;
    int64_t n;
    wb_dataset *under;                  /* view, map: counted */
    int64_t start;                      /* view: observation i is start + i of the one under it, */
    uint32_t *order;                    /* or order[i] where there is one */
    wb_collate map;
    void *ctx;                          /* of map or get */
    wb__field field[2];                 /* roots */
    const wb_device *device;            /* roots: where batches begin; a source's is the CPU */
    wb_tensor *tensor[2];               /* arrays: counted */
    const char *data[2];                /* of arrays on the host */
    int (*get)(int64_t i, void *x, void *y, void *ctx);
};

const wb_dataset *wb__dataset_root(const wb_dataset *d);
bool wb__dataset_mapped(const wb_dataset *d);
static inline bool wb__dataset_on_host(const wb_dataset *d)
{
    return wb__dataset_root(d)->device == &wb__cpu;
}

/* A view or map over another, in the current scope; all but its kind and length still to be set. */
wb_dataset *wb__dataset_over(wb_dataset *under, wb__data_kind kind, int64_t n);

/* move.c: behind wb_to and wb_device_of. */
void *wb__dataset_to(void *dataset, const wb_device *d, wb_dtype dtype);
const wb_device *wb__dataset_device(void *dataset);

/* Copies n observations to to[0] and to[1] (unused where the field is absent).  `index` is
 * translated to the root's numbers in place.  `parallel`: a source's function may be called on the
 * threads of wb__parallel. */
int wb__dataset_fill(const wb_dataset *d, int64_t n, int64_t *index, void *const to[2],
                     bool parallel);

/* The same where the arrays are: a batch of tensors in the current scope, rows that follow each
 * other copied, others to be taken when it is evaluated.  `index` is translated in place. */
int wb__dataset_gather(const wb_dataset *d, int64_t n, int64_t *index, wb_batch *batch);

/* All observations as one batch in the current scope, evaluated. */
int wb__dataset_all(const wb_dataset *d, wb_batch *batch);

/* The maps, those next to the root first. */
int wb__dataset_apply(const wb_dataset *d, wb_batch *batch);

/* f(batch, ctx), with its failure told: a nonzero code that set no error gets a message.  `what`
 * names f. */
int wb__collate_call(wb_collate f, void *ctx, wb_batch *batch, const char *what);

/* Tensors in the current scope around n observations at `to`; release(data, context) is called once
 * for each that was made, *made of them also where the second one failed. */
int wb__dataset_wrap(const wb_dataset *root, int64_t n, void *const to[2],
                     void (*release)(void *, void *), void *context, wb_batch *batch, int *made);

/* Computes a batch's tensors, and cuts them from what they are made of. */
int wb__batch_evaluate(wb_batch *batch);

/* A permutation of 0 .. n-1 (Fisher & Yates by Philox) that depends on its arguments alone. */
void wb__shuffle(uint32_t *order, int64_t n, uint64_t seed, uint64_t epoch);

#endif
