/* Weber, chapter 5: datasets and loaders. */
#ifndef WEBER_DATA_H
#define WEBER_DATA_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets --------------------------------------------------------------------------------- */

/* Observations along the first axis: x [N, ...] and y [N, ...] (y may be WB_NONE), both on one device, where they
 * stay: batches are made there. */
WB_API wb_dataset *wb_dataset_of(wb_tensor *x, wb_tensor *y);

/* Observations by a function of the program's: fills the i-th x and y, of the given shapes and dtypes (without
 * the batch axis).  x_dtype 0 is f32; with y_dtype and y_ndim 0 there is no y, and `y` is NULL.  May be called from
 * several threads at once.  Returns 0, or a nonzero code that ends the epoch. */
typedef struct {
    size_t size;
    int64_t n;
    wb_dtype x_dtype, y_dtype;
    int x_ndim, y_ndim;
    int64_t x_dims[WB_MAX_DIMS], y_dims[WB_MAX_DIMS];
    int (*get)(int64_t i, void *x, void *y, void *ctx);
    void *ctx;
} wb_dataset_source;
WB_API wb_dataset *wb_dataset_from(const wb_dataset_source *source);

/* The IDX format of MNIST, plain or gzip.  wb_load_idx: images u8 [N,H,W] become x f32 [N,1,H,W] in 0..1, labels y i32 [N].
 * wb_read_idx: one file as it is.  Errors name file, offset and reason. */
WB_API wb_dataset *wb_load_idx(const char *images, const char *labels);
WB_API wb_tensor *wb_read_idx(const char *path);

/* Comma-separated numbers, plain or gzip: [rows, columns] f32.  .header skips the first line.  With
 * .has_label = true the column .label (from 0; -1 the last) becomes y: an integer class, or a
 * class by name in order of appearance. */
typedef struct {
    size_t size;
    bool has_label; WB_HAS(has_label)
    int label; bool label_given_;
    char separator; WB_HAS(separator)
    WB_BY_PLACE
    bool header; WB_HAS(header)
    WB_NO_MORE
} wb_load_csv_options;
WB_API wb_dataset *wb_load_csv_with(const char *path, const wb_load_csv_options *o);
#ifndef __cplusplus
#define wb_load_csv(...) WB_PASTE_(WB_LOAD_CSV_, WB_ONE_OR_MORE_(__VA_ARGS__))(__VA_ARGS__)
#define WB_LOAD_CSV_one(path) wb_load_csv_with((path), NULL)
#define WB_LOAD_CSV_more(path, ...) wb_load_csv_with((path), WB_GET_(wb_load_csv_options, WB_GIVE_(__VA_ARGS__)))
#endif

WB_API int64_t wb_dataset_length(const wb_dataset *d);      /* observations */
WB_API wb_tensor *wb_dataset_x(wb_dataset *d);      /* everything, as a tensor, where it is; mapped sets are computed */
WB_API wb_tensor *wb_dataset_y(wb_dataset *d);

/* Views: the first part holds round-half-to-even(n * at) observations, the second the rest.  at in [0, 1].
 * wb_subset: observations start .. stop-1.  wb_mapobs: f applied to each batch as it is made, on the loader's thread
 * and the dataset's device. */
WB_API int wb_splitobs(wb_dataset *d, double at, bool shuffle, wb_dataset **first, wb_dataset **second);
WB_API wb_dataset *wb_subset(wb_dataset *d, int64_t start, int64_t stop);

/* ---- loaders ---------------------------------------------------------------------------------- */

/* One batch: x and y as the dataset has them, with a batch axis in front; n observations; number in the epoch from 0. */
typedef struct {
    wb_tensor *x, *y;
    int64_t n, index;
} wb_batch;

/* Changes a batch as it is made: in place, returning 0, or a nonzero code that ends the epoch. */
typedef int (*wb_collate)(wb_batch *batch, void *ctx);
WB_API wb_dataset *wb_mapobs(wb_dataset *d, wb_collate f, void *ctx);

/* .batchsize 1; .shuffle anew each epoch; .drop_last leaves out a short last batch (a dataset
 * shorter than one batch then has none: a warning, and wb_train refuses such a loader); .seed 0
 * draws one from wb_seed; .ahead batches are prepared in the background (2; 0 for
 * none).  The order depends on the seed alone.
 * A loader that was moved (wb_to, wb_gpu) is a new one at the same place of the same epochs, whose batches are uploaded
 * in the background too, after maps and .collate.  A batch may be kept (wb_keep): it is never written to.  Of two loaders
 * that take turns, one's batch lies in the scope of the other's: there, keep with wb_retain. */
typedef struct {
    size_t size;
    bool drop_last; WB_HAS(drop_last)
    uint64_t seed; WB_HAS(seed)
    int ahead; WB_HAS(ahead)
    wb_collate collate; WB_HAS(collate)
    void *collate_ctx; WB_HAS(collate_ctx)
    WB_BY_PLACE
    int64_t batchsize; WB_HAS(batchsize)
    bool shuffle; WB_HAS(shuffle)
    WB_NO_MORE
} wb_dataloader_options;
WB_API wb_loader *wb_dataloader_with(wb_dataset *d, const wb_dataloader_options *o);
#ifndef __cplusplus
#define wb_dataloader(...) WB_PASTE_(WB_DATALOADER_, WB_ONE_OR_MORE_(__VA_ARGS__))(__VA_ARGS__)
#define WB_DATALOADER_one(d) wb_dataloader_with((d), NULL)
#define WB_DATALOADER_more(d, ...) wb_dataloader_with((d), WB_GET_(wb_dataloader_options, WB_GIVE_(__VA_ARGS__)))
#endif
WB_API int64_t wb_loader_length(const wb_loader *l);        /* batches in an epoch */
WB_API int64_t wb_loader_epoch(const wb_loader *l);         /* epochs ended, early or not */

/* The next batch, in a scope of its own, which the next call closes; false at the end of the epoch (the call after
 * that begins the next one) or on an error, which wb_loader_status tells.
 * WB_EACH_BATCH(b, loader) { ... b.x ... }: break and return are safe; `loader`, a variable, is evaluated for each batch. */
WB_API bool wb_loader_next(wb_loader *l, wb_batch *batch);
WB_API int wb_loader_status(const wb_loader *l);            /* 0, or the error code of the last epoch */
/* Ends the epoch now and closes its last batch; the next wb_loader_next begins the next epoch, so a
 * loop of the program's own must also break.  In .each of wb_train it ends that epoch of the
 * training.  0, or an error code. */
WB_API int wb_loader_stop(wb_loader *l);
WB_API wb_batch wb_loader_begin(wb_loader *l);              /* behind WB_EACH_BATCH: ends an epoch left by break */
#ifndef __cplusplus
#define WB_EACH_BATCH(b, loader) for (wb_batch b = wb_loader_begin(loader); wb_loader_next((loader), &b);)
#endif

#ifdef __cplusplus
}
#endif
#endif
