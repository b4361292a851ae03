/* The safetensors format, to the letter: eight bytes of length, little-endian; a header in JSON of
 * that length, with name, dtype, shape and place of each tensor; then the tensors, without gaps, in
 * the order of their places.
 *
 * A reader trusts nothing: lengths, overlaps, holes, overflow, doubled names and unknown dtypes are
 * errors that name file, offset and reason.  What the format has and Weber has not (F8, U16, tensors of
 * nine dimensions) is an entry of dtype 0.  This is the format alone (the header in header.c);
 * models are in model/model_file.c, checkpoints in train/checkpoint.c. */
#ifndef WB__SAFETENSORS_H
#define WB__SAFETENSORS_H

#include "base/files/file.h"
#include "base/map.h"
#include "base/text.h"
#include "io/table.h"

/* All of a file, in place; `values` false reads the header alone, whatever follows it.  On failure
 * nothing is held. */
int wb__st_load(const char *path, bool values, wb__table *out);
/* The same of a file that is mapped already: on success the mapping is the table's. */
int wb__st_table(wb__mapping *m, bool values, wb__table *out);

/* The header of n bytes, checked and in the order of places; values have no place yet. */
enum { WB__ST_HEADER_BEGINS = 8 };
int wb__st_header(const wb__mapping *m, int64_t n, wb__table *out);

const char *wb__st_dtype_name(wb_dtype dtype);

typedef struct {
    char *name;
    wb_dtype dtype;
    int ndim;
    const int64_t *dims;
    int64_t bytes;
    const void *data;
} wb__st_out;
/* Writes a file, whole or not at all.  `put` writes a tensor's bytes, no more and no less; NULL: they
 * are its data, in memory and row-major. */
typedef int (*wb__st_put)(wb__writer *w, const void *data);
int wb__st_save(wb__st_put put, const char *path, int n, wb__st_out *tensors, int n_notes,
                const wb__note *notes);

#endif
