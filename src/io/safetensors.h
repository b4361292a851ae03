/* The safetensors format, to the letter: eight bytes of length, little-endian; a header in JSON of
 * that length, with name, dtype, shape and place of each tensor; then the tensors, without gaps, in
 * the order of their places.
 *
 * A reader trusts nothing: lengths, overlaps, holes, overflow, doubled names and unknown dtypes are
 * errors that name file, offset and reason.  This is the format alone; models are in model_file.c,
 * checkpoints in train/checkpoint.c. */
#ifndef WB__SAFETENSORS_H
#define WB__SAFETENSORS_H

#include "base/file.h"

typedef struct {
    char *name;
    wb_dtype dtype;
    int ndim;
    int64_t dims[WB_MAX_DIMS];
    int64_t begin, end;                 /* in bytes, from the header's end */
    void *data;                         /* where they were read */
    bool used;                          /* for readers of models */
} wb__st_tensor;

typedef struct { char *key, *value; } wb__st_note;

typedef struct {
    int n;
    wb__st_tensor *tensors;             /* in the order of their names */
    int n_notes;
    wb__st_note *notes;                 /* __metadata__ */
} wb__st;

/* All of a file; `values` false reads the header alone.  On failure nothing is held. */
int wb__st_load(const char *path, bool values, wb__st *out);
void wb__st_free(wb__st *st);
wb__st_tensor *wb__st_find(const wb__st *st, const char *name);     /* NULL: there is none */
const char *wb__st_note_of(const wb__st *st, const char *key);

/* Writes a file, whole or not at all.  The data of each tensor is in memory, row-major. */
typedef struct {
    char *name;
    wb_dtype dtype;
    int ndim;
    const int64_t *dims;
    int64_t bytes;
    const void *data;
} wb__st_out;
int wb__st_save(const char *path, int n, wb__st_out *tensors, int n_notes,
                const wb__st_note *notes);

/* The same where data is what `put` knows how to write: that tensor's bytes, no more and no less. */
typedef int (*wb__st_put)(wb__writer *w, const void *data);
int wb__st_save_by(wb__st_put put, const char *path, int n, wb__st_out *tensors, int n_notes,
                   const wb__st_note *notes);

#endif
