/* File formats, and the functions for each:
 *
 *              loading a model     loading tensors    saving a model     saving tensors
 *   safetensors  wb__model_from     wb__st_table       wb__saving_write   wb__saving_write
 *   BSON         wb__flux_load      wb__flux_table     wb__flux_save
 *   NPZ          -                  wb__npz_table      wb__npz_save
 *   NPY          -                  wb__npz_table      wb_save_npy
 *   IDX          -                  wb__idx_table      - */
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

/* By the first bytes of the file. */
wb__format wb__format_of(const wb__mapping *m);
/* By the end of the path: .safetensors, .bson, .npz, .npy, .idx. */
wb__format wb__format_named(const char *path);
/* "safetensors" */
const char *wb__format_name(wb__format f);

/* The format of a mapped file by its first bytes; if they match no format, by its path: then the
 * file is damaged. */
wb__format wb__format_in(const wb__mapping *m);

/* Loads all tensors of a file of any format, by name. `key`: the variable of a BSON file, or NULL.
 * `values` false: only from headers. On failure *out is empty. */
int wb__table_load(const char *path, const char *key, bool values, wb__table *out);
/* The same for a mapped file. On success the table owns the mapping, on failure the caller. */
int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out);

#endif
