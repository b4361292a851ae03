/* What a file holds of tensors, whatever its format: names, dtypes, shapes and where the values lie.
 * Readers fill one (safetensors/safetensors.c, numpy/npz.c, flux/table.c), and what is done with
 * tensors from files is done with it: values into a model (model/model_file.c), tables for people,
 * conversions. */
#ifndef WB__TABLE_H
#define WB__TABLE_H

#include "base/base.h"

/* Kernels whose convolution is known to turn them over, or not to. */
typedef enum { WB__FLIP_UNKNOWN, WB__FLIP_YES, WB__FLIP_NO } wb__flip;

typedef struct {
    char *name;
    wb_dtype dtype;                     /* 0: one that Weber has not; `type` tells which */
    char type[16];                      /* the file's own word for it: "F32", "<f4", "Float32" */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major, whatever the file's order is */
    int64_t begin, bytes;               /* the values' place in the file, where they have one */
    const void *data;                   /* the values, row-major, of any alignment; NULL: not read */
    wb__flip flip;                      /* of kernels */
    bool transposed;                    /* a matrix whose values lie by columns: see wb__entry_values */
    bool owned;                         /* data is a block of wb__alloc_aligned */
    bool used;                          /* for readers of models */
    uint32_t sum;                       /* CRC-32 of its bytes, where the table is summed */
} wb__entry;

typedef struct { char *key, *value; } wb__note;

typedef struct wb__mapping wb__mapping;
typedef struct {
    int n, room;
    wb__entry *entries;                 /* once it is complete, in the order of their names */
    bool summed;                        /* the file tells checksums of all that is in it */
    bool nameless;                      /* a list of values: names are positions, "0", "1", ... */
    int n_notes, room_notes;
    wb__note *notes;
    wb__mapping *mapping;               /* the file, where values are read from it in place */
} wb__table;

/* A new entry at the end, all zero but for a copy of the name; NULL without memory.  It stays where it is
 * until the next call. */
wb__entry *wb__table_add(wb__table *t, const char *name);
int wb__table_add_note(wb__table *t, const char *key, const char *value);
void wb__entry_drop(wb__entry *e);      /* gives back what it holds */
void wb__table_sort(wb__table *t);
void wb__table_free(wb__table *t);

/* Of a complete table; NULL: there is none. */
wb__entry *wb__table_find(const wb__table *t, const char *name);
/* 0, or the error that lists all entries of which Weber has not the dtype. */
int wb__table_check(const char *path, const wb__table *t);
int64_t wb__table_bytes(const wb__table *t);     /* of all values, as they stand in the file */
const char *wb__table_note(const wb__table *t, const char *key);

#endif
