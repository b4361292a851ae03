/* The safetensors format: a header length of eight bytes, little-endian; a header in JSON of this
 * length, with name, dtype, shape and offsets of each tensor; then the values, without gaps, in the
 * order of their offsets.
 *
 * The reader checks the header: wrong lengths, overlaps, gaps, overflow, repeated names and unknown
 * dtypes are errors with file, byte offset and reason.  Tensors that Weber cannot hold (F8, U64,
 * nine dimensions) are entries of dtype 0; I16, U16 and U32 are widened.  header.c reads the
 * header; models are in model/model_file.c, checkpoints in train/checkpoint.c. */
#ifndef WB__SAFETENSORS_H
#define WB__SAFETENSORS_H

#include "base/files/file.h"
#include "base/map.h"
#include "base/text.h"
#include "io/table.h"

/* Sets *out to the table of a file; the caller frees it with wb__table_free.  The values stay in
 * the mapped file.  With `values` false only the header is read and checked.  Returns 0 or an error
 * code; on failure *out is empty. */
int wb__st_load(const char *path, bool values, wb__table *out);
/* wb__st_load of a mapped file.  On success the table owns the mapping, on failure the caller. */
int wb__st_table(wb__mapping *m, bool values, wb__table *out);

enum { WB__ST_HEADER_BEGINS = 8 };      /* offset of the header in the file */
/* Sets *out to the entries of a header of n bytes, in the order of their offsets, without values.
 * Returns 0 or an error code; the caller frees *out in both cases. */
int wb__st_header(const wb__mapping *m, int64_t n, wb__table *out);

/* Returns how the integers of an entry are stored, by its type in the header. */
wb__narrow_int wb__st_narrow(const wb__entry *e);

/* Returns the name of a dtype in safetensors files, such as "F32"; "" for 0. */
const char *wb__st_dtype_name(wb_dtype dtype);

/* A function that writes all bytes of a tensor to w.  `data` is wb__st_out.data.  Returns 0 or an
 * error code. */
typedef int (*wb__st_put)(wb__writer *w, const void *data);
/* A tensor to be written. */
typedef struct {
    char *name;
    wb_dtype dtype;
    int ndim;
    const int64_t *dims;
    int64_t bytes;
    const void *data;                   /* the argument of `put` */
    wb__st_put put;                     /* writes this tensor; NULL: the function for all does */
} wb__st_out;
/* Sorts `tensors` and writes them to a file by calls of `put`.  If `put` is NULL, the `data` of
 * each tensor points to the bytes, row-major.  Returns 0 or an error code; on failure the file at
 * the path is unchanged. */
int wb__st_save(wb__st_put put, const char *path, int n, wb__st_out *tensors, int n_notes,
                const wb__note *notes);

#endif
