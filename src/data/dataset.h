/* Datasets as the loader uses them.  A dataset is a chain of objects linked by `below`.  The lowest
 * object is the root, which holds arrays, a function of the program (a source, or a stream of
 * unknown length), or datasets (its parts), which it joins or slides a window over.  Above the root
 * are views, which select or reorder observations, and maps, which change each batch or each
 * observation.
 *
 * Batches of arrays in host memory are copied into buffers (wb__dataset_fill, wb__dataset_wrap).
 * Batches of arrays on another device are gathered there (wb__dataset_gather).  Files: dataset.c
 * (creation, properties), fetch.c (from observation indices to batches), move.c (wb_to), loader.c
 * (epochs), prefetcher.c (batches ahead of their use), stream.c (reading of streams), buffers.c
 * (memory of batches), readers.c (files as datasets), parts.c (roots with parts), observations.c
 * and folds.c (views), groups.c (equal labels). */
#ifndef WB__DATASET_H
#define WB__DATASET_H

#include "engine/evaluate.h"

#include "weber/observations.h"

enum { WB__FIELDS = 2 + WB_BATCH_MORE };

/* One of the fields of an observation: x, y or a further one. */
typedef struct {
    bool present;
    wb_dtype dtype;
    int ndim;                           /* number of dimensions without the batch axis */
    int64_t dims[WB_MAX_DIMS];
    int64_t bytes;                      /* bytes of this field in one observation */
} wb__field;

typedef enum {
    WB__DATA_ARRAYS, WB__DATA_SOURCE, WB__DATA_STREAM, WB__DATA_JOIN, WB__DATA_WINDOW,
    WB__DATA_VIEW, WB__DATA_MAP, WB__DATA_SHARE
} wb__data_kind;

struct wb_dataset {
    wb__object object;
    wb__data_kind kind;
    int64_t n;                          /* number of observations; 0 for a stream */
    void *ctx;                          /* map, source, stream: the argument of the functions */
    /* views, shares and maps */
    wb_dataset *below;                  /* the dataset whose observations they change (reference) */
    /* view: observation i is observation order[i] of `below`, or start + i if `order` is NULL */
    int64_t start;
    uint32_t *order;
    /* share: observation i is observation rank + i * ranks of `below`, counted on from observation
     * 0 after the last one.  Loaders shuffle `below` with this seed by default. */
    int rank, ranks;
    uint64_t seed;
    /* map */
    wb_collate map;
    bool maps_single;                   /* `map` gets single observations, not batches */
    /* roots */
    int n_fields;                       /* 2 to WB__FIELDS */
    wb__field field[WB__FIELDS];        /* x, y and further fields */
    const char **names;                 /* names of the fields, in one block; NULL: x and y */
    const wb_device *device;            /* device of the arrays; the CPU for sources and streams */
    /* arrays */
    wb_tensor *tensor[WB__FIELDS];      /* (references) */
    const char *data[WB__FIELDS];       /* their elements, if they are in host memory */
    /* source: one of the two functions; stream: next and restart */
    int (*get)(int64_t i, void *x, void *y, void *ctx);
    int (*get_all)(int64_t i, void *const *fields, void *ctx);
    int (*next)(void *const *fields, void *ctx);
    int (*restart)(int64_t epoch, void *ctx);
    const void *reader;                 /* the wb__stream of the loader that reads the stream, or
                                           NULL; guarded by wb__data_lock */
    void (*free_ctx)(void *ctx);        /* frees ctx with the dataset, or NULL */
    /* join: the observations of parts[k] begin at observation first[k]; first[n_parts] is n.
     * window: observation i has `window` observations of parts[0], from observation i * stride.
     * Parts have no maps.  The references belong to this dataset. */
    int n_parts;
    wb_dataset **parts;
    int64_t *first;
    int64_t window, stride;
};

const wb_dataset *wb__dataset_root(const wb_dataset *d);
bool wb__dataset_mapped(const wb_dataset *d);
static inline bool wb__dataset_on_host(const wb_dataset *d)
{
    return wb__dataset_root(d)->device == &wb__cpu;
}

/* Returns the address of field k in a batch. */
static inline wb_tensor **wb__batch_at(wb_batch *batch, int k)
{
    return k == 0 ? &batch->x : k == 1 ? &batch->y : &batch->more[k - 2];
}
/* Returns the number of fields of a batch, at least 2. */
int wb__batch_fields(const wb_batch *batch);
/* Makes a dataset of n tensors, of which the second may be WB_NONE.  `names` is copied; NULL: x and
 * y.  `what` begins messages. */
wb_dataset *wb__dataset_of_arrays(const char *what, int n, wb_tensor *const *x,
                                  const char *const *names);

/* Whether d is a dataset.  Otherwise sets the error; if d is NULL, an earlier error is kept. */
bool wb__is_any_dataset(const wb_dataset *d, const char *what);
/* Whether d is a dataset whose observations can be fetched by index, which is no stream. */
bool wb__is_dataset(const wb_dataset *d, const char *what);
static inline bool wb__is_stream(const wb_dataset *d)
{
    return wb__dataset_root(d)->kind == WB__DATA_STREAM;
}
/* Makes a root with the fields, names and device of another root, and with memory for n_parts
 * parts, in the current scope.  NULL with the error set. */
wb_dataset *wb__dataset_like(const wb_dataset *root, wb__data_kind kind, int n_parts);
/* Sets .bytes of the fields of a root.  Returns 0 or an error code. */
int wb__dataset_measure(wb_dataset *root, const char *what);

/* Returns a new view or map over `below`, in the current scope.  The caller sets the fields that
 * only views or only maps have. */
wb_dataset *wb__dataset_over(wb_dataset *below, wb__data_kind kind, int64_t n);

/* Returns a view of the n observations in `order`, and takes over this block, also on failure.  If
 * `order` is NULL, returns NULL. */
wb_dataset *wb__dataset_ordered(wb_dataset *below, int64_t n, uint32_t *order);
/* Returns a block with a random permutation of 0 .. n-1, from the seed of wb_seed.  NULL with the
 * error set. */
uint32_t *wb__random_order(const char *what, int64_t n);
/* parts.c: Returns the index of the part of a joined dataset that has observation i: the last part
 * that is not empty and begins at i or before. */
int wb__part_of(const wb_dataset *root, int64_t i);
/* parts.c: Copies observations of a root with parts; arguments as of wb__dataset_fill. */
int wb__parts_fill(const wb_dataset *root, int64_t n, const int64_t *index, void *const *to,
                   bool parallel);
/* parts.c: Gathers windows of the observations on a device; arguments as of wb__dataset_gather. */
int wb__windows_gather(const wb_dataset *root, int64_t n, const int64_t *index, wb_batch *batch);
/* parts.c: wb_to of a root that slides a window. */
wb_dataset *wb__windows_to(wb_dataset *root, const wb_device *d, wb_dtype dtype);

/* Returns the share of a rank.  The shares of all ranks have the same length. */
wb_dataset *wb__dataset_share(wb_dataset *d, int rank, int ranks, uint64_t seed);
/* Returns the index, in the dataset below, of observation i of a share. */
static inline int64_t wb__share_at(const wb_dataset *share, int64_t i)
{
    return (share->rank + i * share->ranks) % share->below->n;
}

/* move.c: wb_to and wb_device_of of a dataset. */
void *wb__dataset_to(void *dataset, const wb_device *d, wb_dtype dtype);
const wb_device *wb__dataset_device(void *dataset);

/* Copies the n observations of d in `index` to to[k], for each field k that is present.  Replaces
 * the indices in `index` by indices of the root.  If `parallel` is set, the function of a source
 * may run on the threads of wb__parallel.  Returns 0 or an error code. */
int wb__dataset_fill(const wb_dataset *d, int64_t n, int64_t *index, void *const *to,
                     bool parallel);

/* Makes a batch of the n observations in `index`, in the current scope, on the device of the
 * arrays.  If the n rows are consecutive, copies them immediately.  Otherwise the rows are gathered
 * when the batch is evaluated.  Replaces the indices in `index` by indices of the root.  Returns 0
 * or an error code. */
int wb__dataset_gather(const wb_dataset *d, int64_t n, int64_t *index, wb_batch *batch);

/* Makes one evaluated batch of all observations, in the current scope.  Returns 0 or an error
 * code. */
int wb__dataset_all(const wb_dataset *d, wb_batch *batch);

/* Applies the maps of d to a batch of the n observations in `index`, the map next to the root
 * first.  Returns 0 or an error code. */
int wb__dataset_apply(const wb_dataset *d, int64_t n, const int64_t *index, wb_batch *batch);

/* Calls f(batch, ctx).  Returns 0, or an error code if f returns one or leaves the batch without x
 * or y.  Sets an error message if f has set none.  `what` names f in messages. */
int wb__collate_call(wb_collate f, void *ctx, wb_batch *batch, const char *what);

/* Makes the tensors of a batch, in the current scope, on the memory to[k] of field k of n
 * observations.  When a tensor is freed, release(its memory, context) is called.  Sets *made to the
 * number of tensors created, also on failure; they are those of the first fields that are present.
 * Returns 0 or an error code. */
int wb__dataset_wrap(const wb_dataset *root, int64_t n, void *const *to,
                     void (*release)(void *, void *), void *context, wb_batch *batch, int *made);

/* Evaluates the tensors of a batch and detaches them from their graph.  Replaces variables by
 * copies.  Returns 0 or an error code. */
int wb__batch_evaluate(wb_batch *batch);

/* Fills `order` with a permutation of 0 .. n-1 (Fisher & Yates with Philox) that depends only on n,
 * seed and epoch. */
void wb__shuffle(uint32_t *order, int64_t n, uint64_t seed, uint64_t epoch);

#endif
