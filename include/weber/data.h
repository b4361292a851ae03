/* Weber, chapter 5: datasets and loaders. */
#ifndef WEBER_DATA_H
#define WEBER_DATA_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets -------------------------------------------------------------------------------- */

/** A dataset of tensors of any dtype: observation i is x[i, ...] with label y[i, ...].  y may be
 * WB_NONE.  x and y are on the same device; batches are made there.  The call evaluates x and y.
 * The dataset holds references to x and y; of a variable it holds a copy.  Errors: no axis; first
 * axes of different sizes. */
WB_API wb_dataset *wb_dataset_of(wb_tensor *x, wb_tensor *y);
/** A dataset of up to 8 tensors by name or place: wb_dataset_of_tree(wb_tuple(ids, lengths,
 * labels)), or a tree of wb_named_tuple, or a tree of these, whose tensors are named by their
 * paths, "a.mask".  Observation i is row i of every tensor.  The first tensor is x of a batch, the
 * second y (WB_NONE if there is one tensor); wb_batch_get finds all by name.  Errors: as
 * wb_dataset_of; a tree with no tensor, with more than 8, or with a layer. */
WB_API wb_dataset *wb_dataset_of_tree(wb_tree *arrays);

enum { WB_BATCH_MORE = 6 };             /* the most tensors of a batch besides x and y */
/** Describes a dataset whose observations a function of the program fills in.  Observations with
 * numbers 0 .. n-1 have .get or .get_all.  A stream gives one observation after the other and has
 * no known length; it has .next and .restart in place of these, and no .n. */
typedef struct {
    size_t size;                    /* sizeof(wb_dataset_source) */
    int64_t n;                      /* number of observations */
    wb_dtype x_dtype, y_dtype;      /* 0 means f32; if y_dtype and y_ndim are 0, there is no y */
    int x_ndim, y_ndim;             /* dimensions of one observation, without the batch axis */
    int64_t x_dims[WB_MAX_DIMS], y_dims[WB_MAX_DIMS];
    /* Writes observation i to x and y (NULL if there is no y), row-major.  Returns 0; another value
     * ends the epoch with an error.  Several threads may call it at the same time. */
    int (*get)(int64_t i, void *x, void *y, void *ctx);
    void *ctx;
    /* Further fields: `n_more` tensors of more_ndim[k] dimensions and dtype more_dtype[k].  `names`
     * has the names of all fields, x and y included; NULL: "x", "y", "2", "3", ...  A source with
     * further fields has get_all in place of `get`: fields[0] is x, fields[1] is y. */
    int n_more;
    wb_dtype more_dtype[WB_BATCH_MORE];
    int more_ndim[WB_BATCH_MORE];
    int64_t more_dims[WB_BATCH_MORE][WB_MAX_DIMS];
    const char *const *names;
    int (*get_all)(int64_t i, void *const *fields, void *ctx);
    /* A stream.  `next` writes the next observation to the fields and returns 1; 0 ends the epoch,
     * another value ends it with an error.  `restart` is called before the first observation of
     * each epoch, with the epoch's number, from 0, and returns 0.  One thread at a time calls
     * them. */
    int (*next)(void *const *fields, void *ctx);
    int (*restart)(int64_t epoch, void *ctx);
} wb_dataset_source;
/** A dataset whose observations a function of `source` fills in, on the CPU.  The struct is copied;
 * `ctx` must live as long as the dataset and the loaders of it.  Errors: .size is 0, not one
 * function, a negative n, a shape or dtype that no tensor has; further fields without get_all or
 * next, or a name that is NULL.
 *
 * A stream is read by loaders: wb_mapobs and wb_mapobs_each take it; functions that need the number
 * of observations, or one of them by its number, are an error. */
WB_API wb_dataset *wb_dataset_from(const wb_dataset_source *source);

/** A dataset of images and labels in two IDX files, the format of MNIST, FashionMNIST, KMNIST and
 * EMNIST, plain or gzip.  Images u8 [N,H,W] become x f32 [N,1,H,W] in [0, 1]; integer labels [N]
 * become y i32 [N].  The dataset is on the CPU.  Errors, which name the file, the position and the
 * reason: a file that cannot be read, is damaged or too short, or has other shapes or dtypes;
 * numbers of images and labels that differ. */
WB_API wb_dataset *wb_load_idx(const char *images, const char *labels);
/** The array in an IDX file, plain or gzip, in its dtype and shape, on the CPU; 16-bit integers
 * become i32.  Errors: a file that cannot be read, is damaged, too short or too long; more than 8
 * axes. */
WB_API wb_tensor *wb_load_idx_tensor(const char *path);

/** What wb_load_csv does where a value is missing.  WB_MISSING_MEAN and WB_MISSING_MEDIAN put the
 * mean or median of the column there, and in columns of words the most frequent word. */
typedef enum {
    WB_MISSING_ERROR,                       /* fails, and names the cell */
    WB_MISSING_NAN,                         /* NaN; one-hot columns are all 0 */
    WB_MISSING_MEAN,
    WB_MISSING_MEDIAN,
    WB_MISSING_DROP                         /* leaves the row out */
} wb_missing;
/** The texts of cells that have no value, as empty cells have none.  If a text is a number, each
 * cell with that number has none: with "-999" also -999.0. */
#define WB_MISSING_TEXTS "NA,N/A,NaN,nan,NAN,NULL,null,None,?"

/** Options of wb_load_csv.  Columns are named as in the first line, and names separated by commas:
 * "price" or "id,name"; a name with a comma is in quotation marks.  An option that names columns
 * implies .header. */
#define wb_load_csv_options_(OPT, ARG)                                                             \
    /* index of the column that becomes y, from 0; -1: the last; default: none */                  \
    OPT(int, label, INT32_MIN)                                                                     \
    OPT(const char *, label_name, NULL)     /* the columns that become y, in place of .label */    \
    /* WB_I32, the default: classes; WB_F32: numbers, for regression */                            \
    OPT(wb_dtype, label_dtype, WB_DTYPE_DEFAULT)                                                   \
    OPT(const char *, skip, NULL)           /* columns that are left out */                        \
    OPT(const char *, one_hot, NULL)        /* columns of words that become columns of 0 and 1 */  \
    OPT(const char *, numbered, NULL)       /* columns of words that become their numbers */       \
    OPT(wb_missing, missing, WB_MISSING_ERROR)                                                     \
    OPT(const char *, missing_texts, NULL)  /* default: WB_MISSING_TEXTS */                        \
    /* set to the columns of the file; on failure to NULL, but with .like it is not changed */     \
    OPT(wb_columns **, columns, NULL)                                                              \
    OPT(wb_columns *, like, NULL)           /* reads a file as another one was read */             \
    OPT(char, separator, ',')                                                                      \
    /* true: the first line has names; false: it has none; default: false, if it is no heading */  \
    ARG(int, header, -1)
WB_OPTIONS(wb_load_csv_options);
/** A dataset of the numbers in a text file, plain or gzip, on the CPU:
 *
 *     wb_columns *columns;
 *     wb_dataset *d = wb_load_csv("houses.csv", .label_name = "price", .label_dtype = WB_F32,
 *                                 .one_hot = "*", .missing = WB_MISSING_MEAN,
 *                                 .columns = &columns);
 *     wb_dataset *more = wb_load_csv("more.csv", .like = columns);
 *
 *   x f32 [rows, columns]   without the label, in the order of the file
 *   y i32 [rows]            classes; [rows, k] of k label columns, in the order of the file, not
 *                           that of .label_name; WB_NONE without a label
 *   y f32 [rows, k]         with .label_dtype = WB_F32
 *
 * Labels that are whole numbers are classes as they are; other labels are words.  Words have the
 * numbers 0, 1, ... in the order of their bytes.  .one_hot = "*" and .numbered = "*" mean each
 * column with a word.  With .like a file has the words, the replacements of missing values and the
 * options of another, and only .separator and .columns may be beside it.  docs/site/guide/table.md
 * has the rules.
 *
 * Errors: a cell that is not a number, is infinite ("inf") or is too large for f32 ("1e39"); a
 * missing value, unless .missing has a cure for it; a missing label, unless it is WB_MISSING_DROP;
 * a class that is a fraction or above 2^31 - 1; a column that has only missing values, where their
 * mean is needed; lines of different lengths; another separator; no lines; no column of x; a name
 * that is no column, or two; a .label that is no column; UTF-32, or damaged UTF-16; a file that
 * cannot be read. */
WB_API wb_dataset *wb_load_csv_with(const char *path, const wb_load_csv_options *o);
#ifndef __cplusplus
#define wb_load_csv(...) WB_LOAD_CSV_(__VA_ARGS__, )
#define WB_LOAD_CSV_(path, ...) \
    WB_CALL_WITH_(wb_load_csv_with((path), WB_GET_(wb_load_csv_options, __VA_ARGS__)))
#endif

/** The number of columns of x; -1 on failure. */
WB_API int64_t wb_columns_count(const wb_columns *c);
/** The name of the column of the file that column k of x is from, "" without a line of names.  The
 * columns of 0 and 1 of one column of words have the same name and follow each other.  Owned by
 * `c`.  NULL: no such column. */
WB_API const char *wb_columns_name(const wb_columns *c, int64_t k);
/** The number of words of a column of the file, 0 if it has numbers: wb_columns_words(c, "colour").
 * Without a name (NULL) the column is the first label: the number of classes.  -1 on failure. */
WB_API int64_t wb_columns_words(const wb_columns *c, const char *name);
/** The word with number i of a column of the file; without a name (NULL) the name of class i.
 * Owned by `c`.  NULL: no such column or word. */
WB_API const char *wb_columns_word(const wb_columns *c, const char *name, int64_t i);
/** Writes columns to a file, of text, for wb_load_columns in another program, beside the model that
 * was trained on them.  Returns 0 or an error code. */
WB_API int wb_save_columns(const char *path, const wb_columns *c);
/** The columns that wb_save_columns wrote, for .like of wb_load_csv.  NULL: the file cannot be read
 * or has other contents. */
WB_API wb_columns *wb_load_columns(const char *path);

/** The number of observations; -1 on failure, and for a stream. */
WB_API int64_t wb_dataset_length(const wb_dataset *d);
/** x of all observations as one tensor, on the dataset's device.  The functions of wb_mapobs are
 * applied to all observations as one batch.  NULL: such a function failed, or out of memory. */
WB_API wb_tensor *wb_dataset_x(wb_dataset *d);
/** y of all observations, like wb_dataset_x; WB_NONE if there is none. */
WB_API wb_tensor *wb_dataset_y(wb_dataset *d);
/** The tensor of this name of all observations, like wb_dataset_x.  The names are those of
 * wb_batch_get.  NULL: no such name. */
WB_API wb_tensor *wb_dataset_get(wb_dataset *d, const char *name);

enum { WB_SPLIT_PARTS = 16 };
/** Options of wb_splitobs and wb_splitobs_array. */
#define wb_splitobs_options_(OPT, ARG)                                                             \
    OPT(bool, counts, false)                /* a size is a number of observations */               \
    OPT(bool, shuffle, false)               /* observations are drawn at random (wb_seed) */       \
    OPT(bool, stratified, false)            /* each label has the same share in all parts */       \
    OPT(wb_tensor *, labels, NULL)          /* labels for .stratified, then true; default: y */
WB_OPTIONS(wb_splitobs_options);
/** Splits a dataset of n observations, wb_splitobs(d, 0.8, &train, &test, .shuffle = true): `first`
 * gets n · at, rounded half to even, `second` the rest.  The parts share the dataset's memory.
 * Returns 0 or an error code, and then both are NULL.  wb_splitobs_array (observations.h) has the
 * rules of .stratified.  Errors: `at` outside [0, 1], or with .counts no whole number from 0 to n;
 * a shuffle of 2^32 observations or more. */
WB_API int wb_splitobs_with(wb_dataset *d, double at, wb_dataset **first, wb_dataset **second,
                            const wb_splitobs_options *o);
#ifndef __cplusplus
#define wb_splitobs(...) WB_SPLITOBS_(__VA_ARGS__, )
#define WB_SPLITOBS_(d, at, first, second, ...) \
    WB_CALL_WITH_(wb_splitobs_with((d), (at), (first), (second), \
                                   WB_GET_(wb_splitobs_options, __VA_ARGS__)))
#endif
/** Observations start .. stop-1, without a copy.  Errors: start is negative or above stop; stop is
 * above the number of observations. */
WB_API wb_dataset *wb_subset(wb_dataset *d, int64_t start, int64_t stop);

/* ---- loaders --------------------------------------------------------------------------------- */

/** A batch: x and y of n observations, with the batch axis in front; y is WB_NONE if there is none.
 * `index` is the batch's number in its epoch, from 0.  A copy of the struct does not keep its
 * tensors alive: they belong to the scope that wb_loader_next opens.
 *
 * `more` has the third and further tensors of the dataset in their order, with the same batch axis,
 * then NULLs: wb_dataset_of_tree(wb_tuple(ids, labels, mask)) gives the mask as batch.more[0], and
 * so do the further fields of a wb_dataset_source.  A function of wb_mapobs may change them and add
 * others; moves take them along; batches of wb_dataset_of and wb_batch_of have none, until the
 * program sets them, as in batch.more[0] = mask.  `names` has the names of all tensors of the
 * dataset, x and y included, and is NULL for a dataset without names; it lives as long as the
 * dataset. */
typedef struct {
    wb_tensor *x, *y;
    int64_t n, index;
    wb_tensor *more[WB_BATCH_MORE];
    const char *const *names;
} wb_batch;
/** A batch of x and y (WB_NONE: no y), whose n is the size of x's first axis, for
 * wb_withgradient(loss, model, wb_batch_of(x, y), &grads).  If x is NULL, x of the result is NULL.
 * */
WB_API wb_batch wb_batch_of(wb_tensor *x, wb_tensor *y);
/** The tensor of a batch by its name in the tree of wb_dataset_of_tree, such as "mask" or "2".  "x"
 * and "y" are the first and the second, unless other tensors have these names; a tensor of `more`
 * that has no name is "2", "3", ....  NULL, with the error set: no such name. */
WB_API wb_tensor *wb_batch_get(wb_batch batch, const char *name);

/** Changes a batch in place: sets x, y and elements of `more` to other tensors (not NULL), also an
 * element of `more` that was NULL, if those before it are not.  Returns 0; another value is the
 * error code that ends the epoch. */
typedef int (*wb_collate)(wb_batch *batch, void *ctx);
/** A dataset that calls f on each batch before a loader returns it.  A loader usually calls f on
 * its background threads, with .workers for several batches at the same time.  Tensors that f
 * creates are on the dataset's device.  Random numbers that f draws depend only on the seed of the
 * loader, the epoch and the number of the batch.  `ctx` must live as long as the dataset and the
 * loaders of it. */
WB_API wb_dataset *wb_mapobs(wb_dataset *d, wb_collate f, void *ctx);
/** A dataset like that of wb_mapobs, but f gets one observation: a batch with n = 1, whose tensors
 * are [1, ...] and whose `index` is the number of the observation in d (of a stream: its place in
 * the epoch).  f may change shapes and dtypes, also to those with another number of elements; each
 * observation has the same ones:
 *
 *     static int prepare(wb_batch *b, void *ctx)       // [1,3,64,64] -> [1,3,32,32]
 *     {
 *         b->x = wb_upsample(b->x, .sizes = {32}, .mode = WB_UPSAMPLE_LINEAR);
 *         return wb_error_code();
 *     }
 *     loader = wb_dataloader(wb_mapobs_each(d, prepare, NULL), 32, .workers = 4);
 *
 * Errors of f name the observation. */
WB_API wb_dataset *wb_mapobs_each(wb_dataset *d, wb_collate f, void *ctx);

/** Options of wb_dataloader. */
#define wb_dataloader_options_(OPT, ARG)                                                           \
    OPT(bool, drop_last, false)             /* leaves out a last batch that is too short */        \
    /* seed of .shuffle and of random numbers in maps; default: drawn at random (wb_seed) */       \
    OPT(uint64_t, seed, UINT64_MAX)                                                                \
    OPT(int, ahead, 2)                      /* batches prepared in the background, 0 to 1024 */    \
    OPT(int, workers, 1)                    /* threads that prepare them, 1 to 64 */               \
    OPT(int64_t, buffer, 0)                 /* a stream's .shuffle: observations in memory */      \
    OPT(wb_collate, collate, NULL)          /* changes each batch, after wb_mapobs */              \
    /* passed to .collate; must live as long as the loader and the loaders wb_to makes of it */    \
    OPT(void *, collate_ctx, NULL)                                                                 \
    ARG(int64_t, batchsize, 1)              /* -1: all observations */                             \
    ARG(bool, shuffle, false)               /* another order in each epoch */
WB_OPTIONS(wb_dataloader_options);
/** A loader of the batches of a dataset: wb_dataloader(d, 32, .shuffle = true).  It holds a
 * reference to the dataset.  The last batch may be shorter.  The order depends only on the seed and
 * the number of the epoch.  A dataset shorter than one batch gives one batch of all observations,
 * which the log reports once, or none with .drop_last; this logs a warning, and wb_train fails.
 * Errors: a batchsize of 0 or below -1; .ahead outside 0 .. 1024; a shuffle of 2^32 observations or
 * more; .workers outside 1 .. 64, or above 1 with .ahead = 0.
 *
 * With .workers = k, k threads prepare one batch each, and at least k batches are prepared ahead.
 * They call the functions of the dataset and .collate at the same time.  Order and values of the
 * batches do not depend on k or .ahead, unless these functions have a state of their own.  An error
 * ends the epoch at its batch, after all batches before it.
 *
 * Of a stream (wb_dataset_from) .shuffle = true with .buffer = k draws each observation at random
 * from the next k ones; it is an error without .buffer.
 *
 * wb_to and wb_gpu return a new loader that continues at the same batch of the same epoch; its
 * batches are uploaded in the background, after wb_mapobs and .collate. */
WB_API wb_loader *wb_dataloader_with(wb_dataset *d, const wb_dataloader_options *o);
#ifndef __cplusplus
#define wb_dataloader(...) WB_DATALOADER_(__VA_ARGS__, )
#define WB_DATALOADER_(d, ...) \
    WB_CALL_WITH_(wb_dataloader_with((d), WB_GET_(wb_dataloader_options, __VA_ARGS__)))
#endif
/** The number of batches in an epoch; -1 on failure, and, without an error, for a stream. */
WB_API int64_t wb_loader_length(const wb_loader *l);
/** The number of epochs that ended, completely or early; -1 on failure. */
WB_API int64_t wb_loader_epoch(const wb_loader *l);

/** Gets the next batch, in a scope of its own, which the next call closes.  Returns false at the
 * end of the epoch and on an error (wb_loader_status), with x and y NULL; the call after that
 * begins the next epoch.  All calls for one loader must come from the same thread.
 *
 * wb_keep keeps a batch's tensors beyond the scope of the batch; the library never writes to a
 * batch that it returned.  If two loaders are used in turn, the scope of one loader's batch is
 * inside the scope of the other loader's batch; then keep tensors with wb_retain. */
WB_API bool wb_loader_next(wb_loader *l, wb_batch *batch);
/** 0, or the error code that ended the last epoch; 0 again when the next epoch begins. */
WB_API int wb_loader_status(const wb_loader *l);
/** Ends the epoch early and closes the scope of the current batch.  The next wb_loader_next begins
 * the next epoch, so a loop over the batches must also `break`.  A call in .each of wb_train ends
 * the current epoch of the training.  Returns 0 or an error code. */
WB_API int wb_loader_stop(wb_loader *l);
/** Prepares a loop over the batches: ends an epoch that a `break` left unfinished, and returns a
 * wb_batch whose fields are all 0.  WB_EACH_BATCH calls it.  If it fails, the next wb_loader_next
 * returns false. */
WB_API wb_batch wb_loader_begin(wb_loader *l);
/** WB_EACH_BATCH(b, loader) { ... b.x ... b.y ... } loops over the batches of one epoch.  break and
 * return are allowed; the batch then stays open until the next loop or wb_loader_stop, which frees
 * it and what the program made after it.  The argument `loader` is evaluated once.  Loops over one
 * loader do not nest.  After the loop wb_loader_status returns 0, or the error that ended the
 * epoch. */
#define WB_EACH_BATCH(b, loader)                                                            \
    for (wb_each_batch_ b##_wb = {(loader), false}; !b##_wb.done; b##_wb.done = true)       \
        for (wb_batch b = wb_loader_begin(b##_wb.from); wb_loader_next(b##_wb.from, &b);)
typedef struct { wb_loader *from; bool done; } wb_each_batch_;

#ifdef __cplusplus
}
#endif
#endif
