/* File formats.  Another format needs its row in formats.c, its reader and its test. */
#ifndef WB__FORMATS_H
#define WB__FORMATS_H

#include "base/map.h"
#include "base/packages.h"
#include "io/model/model_file.h"

/* The formats, in the order in which files are tested: the most certain one first. */
typedef enum {
    WB__FORMAT_UNKNOWN, WB__FORMAT_NPY, WB__FORMAT_PT, WB__FORMAT_JLD2, WB__FORMAT_NPZ,
    WB__FORMAT_BSON, WB__FORMAT_ONNX, WB__FORMAT_SAFETENSORS, WB__FORMAT_WAV,
    WB__FORMAT_IDX, WB__FORMATS
} wb__format;

/* What a format can hold besides tensors that are read: models, read and written; models, written
 * with example inputs; the tensors of a model or tree; a single tensor. */
enum { WB__HAS_MODELS = 1, WB__HAS_CALLS = 2, WB__WRITES_TENSORS = 4, WB__WRITES_ARRAYS = 8 };

/* A row of the table of formats. */
typedef struct {
    const char *name, *endings[2];      /* the name for messages; the endings of paths */
    int flags;
    wb__package_id package;             /* the package that reading needs; WB__PACKAGES: none */
    bool (*is)(const wb__mapping *m);   /* whether the contents show this format */
    /* Reads the table of tensors, as wb__table_of; a format of several variables has table_of. */
    int (*table)(wb__mapping *m, bool values, wb__table *out);
    int (*table_of)(wb__mapping *m, const char *key, bool values, wb__table *out);
    /* Loads a model; NULL: a model is made of the table and its notes. */
    wb_layer *(*load)(const wb__mapping *m, const wb_load_options *o);
    /* Saves the tensors of a model, under PyTorch's names if `torch`; NULL: model_file.c calls
     * another function, or the format takes no model. */
    int (*save)(const char *path, void *model, wb__saving *list, bool torch);
} wb__format_row;
extern const wb__format_row wb__formats[WB__FORMATS];

/* Returns the format that the contents of the file show; WB__FORMAT_UNKNOWN if they show none. */
wb__format wb__format_of(const wb__mapping *m);
/* Returns the format for the ending of the path; WB__FORMAT_UNKNOWN for another ending. */
wb__format wb__format_named(const char *path);
static inline const char *wb__format_name(wb__format f) { return wb__formats[f].name; }

/* Writes the endings of the formats with one of the flags to `text`, or, for 0, the names of all
 * formats: ".bson, .npz or .npy".  Returns the text. */
enum { WB__FORMAT_WORDS = 256 };
const char *wb__format_endings(int flags, char text[WB__FORMAT_WORDS]);
/* Sets the error that the file has no known format, and returns its code. */
int wb__format_fail(const char *path);

/* Returns the format of a mapped file by its contents.  If the contents show no format, returns the
 * format for the end of its path, whose reader then reports how the file is damaged. */
wb__format wb__format_in(const wb__mapping *m);

/* Sets *out to the table of a file of any format; the caller frees it with wb__table_free.  `key`
 * is the variable of a BSON or JLD2 file, NULL, or wb__all_variables for callers whose programs
 * cannot name one.  With `values` false only headers are read, but a BSON file is read whole.
 * Returns 0 or an error code; on failure *out is empty. */
int wb__table_load(const char *path, const char *key, bool values, wb__table *out);
/* As wb__table_load, for a mapped file.  On success the table owns the mapping, on failure the
 * caller. */
int wb__table_of(wb__mapping *m, const char *key, bool values, wb__table *out);

#endif
