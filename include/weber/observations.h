/* Weber, chapter 5, second part: observations of a dataset by index, folds, samples, windows.
 *
 * Datasets that these functions make of other datasets hold references to them and copy no
 * observation, unless the comment of the function names a copy.  All objects that a function
 * returns, or sets through a pointer, belong to the current scope.  Random numbers are drawn from
 * the seed of wb_seed. */
#ifndef WEBER_OBSERVATIONS_H
#define WEBER_OBSERVATIONS_H

#include "weber/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- by index -------------------------------------------------------------------------------- */

/** Observation i of the result is observation indices[i] of d.  An index may occur several times.
 * The indices are copied.  Errors: an index outside 0 .. n-1; a dataset of 2^32 observations or
 * more. */
WB_API wb_dataset *wb_obsview(wb_dataset *d, int64_t n, const int64_t *indices);
/** All observations in random order. */
WB_API wb_dataset *wb_shuffleobs(wb_dataset *d);
/** n observations, each drawn at random from all: an observation may occur several times. */
WB_API wb_dataset *wb_randobs(wb_dataset *d, int64_t n);
/** The observations of d[0], then those of d[1], ...: wb_joinobs(a, b, c).  All have the same
 * names, dtypes and shapes, and are on one device; on a device other than the CPU the observations
 * are copied.  Errors: other fields; a dataset of wb_mapobs (join first, and map the result). */
WB_API wb_dataset *wb_joinobs_array(int n, wb_dataset *const *d);
#ifndef __cplusplus
#define wb_joinobs(...)                                                              \
    wb_joinobs_array((int)(sizeof((wb_dataset *[]){__VA_ARGS__}) / sizeof(wb_dataset *)), \
                     (wb_dataset *[]){__VA_ARGS__})
#endif

/** Looks at one observation: a batch with n = 1, whose tensors are on the CPU, [1, ...], and valid
 * during the call; `index` is the number of the observation.  Returns 1 to keep it, 0 to leave it
 * out, and a negative number on failure. */
typedef int (*wb_obs_test)(wb_batch observation, void *ctx);
/** The observations that f keeps: wb_filterobs(d, f, NULL).  f is called once for each observation,
 * in order, in this call.  Error: f fails. */
WB_API wb_dataset *wb_filterobs(wb_dataset *d, wb_obs_test f, void *ctx);

/** Sets *label to the group of one observation, which it gets as a wb_obs_test does.  Returns 0 or
 * an error code. */
typedef int (*wb_obs_group)(wb_batch observation, int64_t *label, void *ctx);
/** Divides the observations into groups with equal labels: f makes the label; without f (NULL) the
 * integer y is the label.  The groups are in ascending order of their labels, the observations of a
 * group in the order of d.
 *
 * Sets parts[k] to group k and labels[k] to its label, and returns the number of groups; `labels`
 * may be NULL.  -1 with the error set: there are more than `most` groups; f fails; y is not one
 * integer for each observation. */
WB_API int64_t wb_groupobs(wb_dataset *d, wb_obs_group f, void *ctx, int64_t most, int64_t *labels,
                           wb_dataset **parts);
/** How often each label occurs, i64 [groups], in ascending order of the labels.  Sets *values to
 * the labels, [groups] with the dtype of `labels`, unless `values` is NULL.  `labels` is [n] or
 * [n,1].  Errors: another shape; NaN. */
WB_API wb_tensor *wb_group_counts(wb_tensor *labels, wb_tensor **values);
/** The indices of the elements of `labels`, [n] or [n,1], that are equal to `label`, i64, in
 * ascending order.  Errors: as wb_group_counts. */
WB_API wb_tensor *wb_group_indices(wb_tensor *labels, double label);

/* ---- splits and folds ------------------------------------------------------------------------ */

/** wb_splitobs into n + 1 parts, n at most 15: part k gets the fraction at[k] of the observations,
 * the last part the rest:
 *
 *     wb_dataset *part[3];
 *     wb_splitobs_array(d, 2, ((double[]){0.5, 0.3}), part, .shuffle = true);
 *
 * Of N observations part k gets at[k] · N, rounded half to even, but not more than are left.  With
 * .stratified the observations of each label are split by themselves, and parts have the order of d
 * unless .shuffle is given.  Labels are one number for each observation, [n] or [n,1]: wb_onecold
 * makes them from one-hot rows.  Returns 0 or an error code, and then all parts are NULL.  Errors:
 * fractions that are negative or add up to more than 1; with .counts, numbers that are not whole;
 * labels of another shape, or NaN. */
WB_API int wb_splitobs_array_with(wb_dataset *d, int n, const double *at, wb_dataset **parts,
                                  const wb_splitobs_options *o);

/** Options of wb_kfolds. */
#define wb_kfolds_options_(OPT, ARG)                                                               \
    OPT(bool, stratified, false)            /* each label has the same share in all folds */       \
    OPT(wb_tensor *, labels, NULL)          /* labels for .stratified, then true; default: y */
WB_OPTIONS(wb_kfolds_options);
/** Fold i of k for cross-validation, i from 0: wb_kfolds(d, 5, i, &train, &validation).  The
 * observations are divided into k consecutive folds; the first n mod k of them have one observation
 * more.  `validation` is fold i, `train` all others, both in the order of d.  For random folds pass
 * one wb_shuffleobs(d) to all calls.
 *
 * With .stratified the observations of each label are divided by themselves; each label occurs at
 * least k times.  Returns 0 or an error code, and then both are NULL.  Errors: k below 2 or above
 * n; i outside 0 .. k-1; labels as for wb_splitobs_array. */
WB_API int wb_kfolds_with(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                          wb_dataset **validation, const wb_kfolds_options *o);
/** Fold i of floor(n / p) folds, so that each leaves out p observations or a few more: wb_kfolds
 * with k = floor(n / p).  Error: p below 1 or above n / 2. */
WB_API int wb_leavepout(wb_dataset *d, int64_t p, int64_t i, wb_dataset **train,
                        wb_dataset **validation);

/** Options of wb_timeseries_kfolds. */
#define wb_timeseries_kfolds_options_(OPT, ARG)                                                    \
    OPT(int64_t, gap, 0)                    /* observations left out before validation */          \
    OPT(int64_t, max_train_size, 0)         /* train has at most its last so many; 0: all */
WB_OPTIONS(wb_timeseries_kfolds_options);
/** Fold i of k of a series in the order of time, i from 0.  The last k · floor(n / (k+1))
 * observations are k consecutive folds of the same size; `validation` is fold i, and `train` the
 * observations before it, without the last .gap of them.  Returns 0 or an error code, and then both
 * are NULL.  Errors: k below 2 or not below n; nothing is left to train on. */
WB_API int wb_timeseries_kfolds_with(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                                     wb_dataset **validation,
                                     const wb_timeseries_kfolds_options *o);

/* ---- samples with equal classes -------------------------------------------------------------- */

/** Options of wb_oversample and wb_undersample. */
#define wb_resample_options_(OPT, ARG)                                                             \
    OPT(wb_tensor *, labels, NULL)          /* one number for each observation; default: y */      \
    OPT(double, fraction, 1)                /* of wb_oversample: see there */                      \
    /* false: the observations stay in the order of d; those that are repeated follow, by label */ \
    OPT(bool, shuffle, true)
WB_OPTIONS(wb_resample_options);
/** All observations, and repeated ones of the labels that occur too rarely, so that each label
 * occurs at least fraction · m times, rounded half to even; m is the count of the most frequent
 * label.  If a label with c observations needs k, each is taken floor(k / c) times,
 * and k mod c different ones, drawn at random, once more.  The result is in random order.  Errors:
 * labels as for wb_splitobs_array; a negative fraction. */
WB_API wb_dataset *wb_oversample_with(wb_dataset *d, const wb_resample_options *o);
/** Observations drawn at random without repetition, so that each label occurs as often as the
 * rarest label of d.  The result is in random order.  Errors: as wb_oversample. */
WB_API wb_dataset *wb_undersample_with(wb_dataset *d, const wb_resample_options *o);

/* ---- windows --------------------------------------------------------------------------------- */

/** Windows over a series: observation i of the result is observations i·stride .. i·stride+size-1
 * of d, so a field [...] becomes [size, ...], and there are floor((n - size) / stride) + 1 windows.
 * Errors: size below 1 or above n; stride below 1; a dataset of wb_mapobs (map the result). */
WB_API wb_dataset *wb_slidingwindow(wb_dataset *d, int64_t size, int64_t stride);

/* ---- sequences and labels -------------------------------------------------------------------- */

/** n sequences [L_i, ...] of different lengths as one batch [n, L, ...]; L is the greatest length,
 * and shorter sequences have `pad` at their ends: wb_batch_sequence(n, x, 0, &lengths).  Sets
 * *lengths to the lengths, i32 [n], unless `lengths` is NULL.  Any dtype; a gradient is that of the
 * elements.  Errors: n below 1; sequences without an axis, or with other sizes or dtypes; a `pad`
 * that the dtype does not hold. */
WB_API wb_tensor *wb_batch_sequence(int n, wb_tensor *const *x, double pad, wb_tensor **lengths);
/** x with `value` behind it along an axis, until the axis has n elements; x itself if it has n or
 * more.  Errors: as wb_pad. */
WB_API wb_tensor *wb_rpad_constant(wb_tensor *x, int axis, int64_t n, double value);
/** (x - min) / (max - min + eps) along an axis, in [0, 1].  MLUtils.jl has eps = 1e-5.  Floating
 * dtypes.  Errors: no such axis; eps is negative. */
WB_API wb_tensor *wb_rescale(wb_tensor *x, int axis, double eps);
/** Sets parts[0], ... to at most n slices along an axis of size s: slices of ceil(s / n) elements,
 * of which the last may have fewer.  Returns the number of slices, which is below n if fewer
 * suffice: 10 elements in 6 parts are 5 slices of 2.  -1 with the error set: n below 1; an axis of
 * size 0. */
WB_API int wb_chunk(wb_tensor *x, int axis, int n, wb_tensor **parts);
/** Sets parts[0 .. s-1] to the slices of x along an axis of size s, without this axis.  Returns s;
 * -1 with the error set: s is above `most`. */
WB_API int wb_unstack(wb_tensor *x, int axis, int most, wb_tensor **parts);

/** The class of each of n words, i32 [n]: its place in the list of labels.  Integers are the
 * compact form of one-hot rows: wb_onehotbatch(classes, n_labels) makes the rows; their product
 * with w is wb_take(w, classes).  Words that are no label have the class of the label `other`;
 * without it (NULL) they are an error.  Errors: a word or label that is NULL; `other` is none. */
WB_API wb_tensor *wb_word_classes(int64_t n, const char *const *words, int64_t n_labels,
                                  const char *const *labels, const char *other);
/** The class of each element of x: its place in the list of numbers; i32 with the shape of x.
 * `other` is the class of elements that are no label, from 0; -1: these are an error.  The values
 * of x are read in this call.  wb_take(labels, wb_onecold(scores)) leads back to labels.  Errors:
 * `other` outside -1 .. n_labels-1. */
WB_API wb_tensor *wb_number_classes(wb_tensor *x, int64_t n_labels, const double *labels,
                                    int64_t other);

/** A dataset of the images and labels in n files of CIFAR-10's binary format, plain or gzip: x f32
 * [N,3,32,32] in [0, 1], y i32 [N], in the order of the files, on the CPU.  An image is 3073 bytes:
 * its label, 0 to 9, and its red, green and blue rows.  Errors: a file that cannot be read, or is
 * no whole number of images; a label above 9. */
WB_API wb_dataset *wb_load_cifar10(int n, const char *const *paths);

/* ---- files larger than memory ---------------------------------------------------------------- */

/** One field of the observations in a file without a header: `ndim` dimensions of one observation,
 * row-major, in the byte order of this machine; the first one begins at byte `offset`, a multiple
 * of the size of an element. */
typedef struct {
    size_t size;                            /* sizeof(wb_raw_file) */
    const char *path;
    int64_t offset;
    wb_dtype dtype;                         /* 0 means f32 */
    int ndim;
    int64_t dims[WB_MAX_DIMS];
} wb_raw_file;
/** A dataset of the observations in a file, or in two files (y may be NULL), on the CPU.  The files
 * are mapped: a batch reads the pages of its observations, and a file may be larger than memory and
 * larger than a tensor.  The files must not change while the dataset exists.  Errors: .size is 0; a
 * file that is missing or cannot be mapped; bytes behind the last whole observation; numbers of
 * observations that differ. */
WB_API wb_dataset *wb_dataset_map(const wb_raw_file *x, const wb_raw_file *y);

#ifndef __cplusplus
#define wb_splitobs_array(...) WB_SPLITOBS_ARRAY_(__VA_ARGS__, )
#define WB_SPLITOBS_ARRAY_(d, n, at, parts, ...) \
    WB_CALL_WITH_(wb_splitobs_array_with((d), (n), (at), (parts), \
                                         WB_GET_(wb_splitobs_options, __VA_ARGS__)))
#define wb_kfolds(...) WB_FOLDS_(wb_kfolds, __VA_ARGS__, )
#define wb_timeseries_kfolds(...) WB_FOLDS_(wb_timeseries_kfolds, __VA_ARGS__, )
#define WB_FOLDS_(f, d, k, i, train, validation, ...) \
    WB_CALL_WITH_(f##_with((d), (k), (i), (train), (validation), WB_GET_(f##_options, __VA_ARGS__)))
#define wb_oversample(...) WB_RESAMPLE_(wb_oversample_with, __VA_ARGS__, )
#define wb_undersample(...) WB_RESAMPLE_(wb_undersample_with, __VA_ARGS__, )
#define WB_RESAMPLE_(f, d, ...) WB_CALL_WITH_(f((d), WB_GET_(wb_resample_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
