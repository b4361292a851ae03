/* File formats, and the functions that load and save files of each format. A - means that there is
 * no function.
 *
 *                loading a model    loading tensors    saving a model or a tree of tensors
 *   safetensors  wb__model_from     wb__st_table       wb__saving_write
 *   BSON         wb__flux_load      wb__flux_table     wb__flux_save
 *   NPZ          -                  wb__npz_table      wb__npz_save
 *   NPY          -                  wb__npz_table      - (wb_save_npy saves one tensor)
 *   IDX          -                  wb__idx_table      -
 *   PT           -                  wb__pt_table       -
 *   JLD2         -                  wb__jld2_table     -
 *   ONNX         wb__onnx_load      wb__onnx_table     wb__onnx_save (a layer) */
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
    WB__FORMAT_PT,
    WB__FORMAT_JLD2,
    WB__FORMAT_ONNX,
    WB__FORMATS
} wb__format;

/* Returns the format that the contents of the file show; WB__FORMAT_UNKNOWN: none of these. */
wb__format wb__format_of(const wb__mapping *m);
/* Returns the format for the end of the path: .safetensors, .bson, .npz, .npy, .idx,
 * .pt, .pth, .jld2 or .onnx; WB__FORMAT_UNKNOWN: another end. */
wb__format wb__format_named(const char *path);
/* The name for messages, such as "safetensors". */
const char *wb__format_name(wb__format f);

/* Returns the format of a mapped file by its contents. If the contents show no format, returns the
 * format for the end of its path, whose reader then reports how the file is damaged. */
wb__format wb__format_in(const wb__mapping *m);

/* Loads the table of a file of any format; the caller frees it with wb__table_free. `key` is the
 * variable of a BSON or JLD2 file, NULL, or wb__all_variables for callers whose programs cannot
 * name one. With `values` false only headers are read, but a BSON file is read whole. Returns 0 or
 * an error code; on failure *out is empty. */
int wb__table_load(const char *path, const char *key, bool values, wb__table *out);
/* As wb__table_load, for a mapped file. On success the table owns the mapping, on failure the
 * caller. */
int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out);

#endif
