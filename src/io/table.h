/* A table of the tensors in a file of any format: names, dtypes, shapes and where the values are.
 * Readers fill it (safetensors/safetensors.c, numpy/npz.c, flux/table.c); loading values
 * (model/load_state.c), printing and conversion read it. */
#ifndef WB__TABLE_H
#define WB__TABLE_H

#include "base/base.h"

/* Whether the convolution that a kernel belongs to flips it. */
typedef enum { WB__FLIP_UNKNOWN, WB__FLIP_YES, WB__FLIP_NO } wb__flip;

typedef struct {
    char *name;
    wb_dtype dtype;                     /* 0: a dtype that Weber lacks; see `type` */
    char type[16];                      /* the dtype's name in the file: "F32", "<f4" */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major, whatever the order in the file is */
    int64_t begin, bytes;               /* in bytes: offset in the file, if known; size */
    const void *data;                   /* values, row-major, maybe unaligned; NULL: not read */
    wb__flip flip;                      /* of a kernel; WB__FLIP_UNKNOWN for other tensors */
    /* the values are a matrix in column-major order; wb__entry_values (model/load_state.h) returns
     * them row-major */
    bool transposed;
    /* data is a block of wb__alloc_aligned that the entry owns */
    bool owned;
    uint32_t sum;                       /* CRC-32 of the values, if the table is `summed` */
} wb__entry;

typedef struct { char *key, *value; } wb__note;

typedef struct wb__mapping wb__mapping;
typedef struct {
    int n, capacity;
    wb__entry *entries;                 /* of a complete table with names: sorted by name */
    bool summed;                        /* the file has checksums of all tensors */
    bool nameless;                      /* a list of values: names are indices, "0", "1", ... */
    int n_notes, note_capacity;
    wb__note *notes;
    wb__mapping *mapping;               /* the mapped file, which the table owns; or NULL */
} wb__table;

/* Adds an entry that has a copy of the name and is zero otherwise. Returns it, valid until the next
 * call; NULL: out of memory. */
wb__entry *wb__table_add(wb__table *t, const char *name);
int wb__table_add_note(wb__table *t, const char *key, const char *value);
void wb__entry_drop(wb__entry *e);      /* frees the entry's memory */
void wb__table_sort(wb__table *t);
void wb__table_free(wb__table *t);

/* Finds an entry of a complete table; NULL: none. */
wb__entry *wb__table_find(const wb__table *t, const char *name);
/* Returns 0 or an error code; the message lists the entries (the first 50) whose dtypes Weber
 * lacks. `path` is the file, for the message. */
int wb__table_check(const char *path, const wb__table *t);
int64_t wb__table_bytes(const wb__table *t);    /* sum of the entries' bytes */
const char *wb__table_note(const wb__table *t, const char *key);

#endif
