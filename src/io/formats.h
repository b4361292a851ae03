/* Which format a file is of, and what is done with each.
 *
 *             a model from it       its tensors             a model into it     tensors into it
 *   safetensors  wb__model_from      wb__st_table            wb__saving_write, with the structure or without
 *   BSON         wb__flux_load       wb__flux_table          wb__flux_save
 *   NPZ          -                   wb__npz_table           wb__npz_save
 *   NPY          -                   wb__npz_table           wb_save_npy
 *   IDX          -                   wb__idx_table           - */
#ifndef WB__FORMATS_H
#define WB__FORMATS_H

#include "base/map.h"
#include "io/model/model_file.h"

typedef enum {
    WB__FORMAT_UNKNOWN,
    WB__FORMAT_SAFETENSORS,
    WB__FORMAT_BSON,
    WB__FORMAT_NPZ,
    WB__FORMAT_NPY,
    WB__FORMAT_IDX,
    WB__FORMATS
} wb__format;

/* By what it begins with. */
wb__format wb__format_of(const wb__mapping *m);
/* By the path's ending: .safetensors, .bson, .npz, .npy, .idx. */
wb__format wb__format_named(const char *path);
const char *wb__format_name(wb__format f);      /* "safetensors" */

/* The same of a mapped file, and where its beginning tells nothing, by its ending: then it is a damaged one. */
wb__format wb__format_in(const wb__mapping *m);

/* All tensors of a file of any of these formats, by name; `key`: the variable of a BSON file, or NULL.  Without
 * `values`, what the headers say alone.  On failure nothing is held. */
int wb__table_load(const char *path, const char *key, bool values, wb__table *out);
/* The same of a mapped file: the mapping is the table's from here on, but stays the caller's on failure. */
int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out);

#endif
