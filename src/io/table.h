/* A table of the tensors in a file of any format: names, dtypes, shapes and where the values are.
 * Readers fill it (safetensors/safetensors.c, numpy/npz.c, flux/table.c); loading values
 * (model/load_state.c), printing and conversion read it. */
#ifndef WB__TABLE_H
#define WB__TABLE_H

#include "base/base.h"

/* Whether a convolution flips its kernel. */
typedef enum { WB__FLIP_UNKNOWN, WB__FLIP_YES, WB__FLIP_NO } wb__flip;

typedef struct {
    char *name;
    wb_dtype dtype;                     /* 0: a dtype that Weber lacks; see `type` */
    char type[16];                      /* the dtype's name in the file: "F32", "<f4" */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major, whatever the order in the file is */
    int64_t begin, bytes;               /* both in bytes: offset in the file, if known; size */
    /* the values, maybe unaligned, row-major unless `transposed`; NULL: not read */
    const void *data;
    wb__flip flip;                      /* of a kernel; else WB__FLIP_UNKNOWN */
    /* the values are column-major, of 2 or 3 dimensions; wb__entry_values (model/load_state.h)
     * returns them row-major */
    bool transposed;
    /* `data` is a block of wb__alloc_aligned, which the entry owns */
    bool owned;
    uint32_t sum;                       /* CRC-32 of the values, if the table is `summed` */
} wb__entry;

typedef struct { char *key, *value; } wb__note;

typedef struct wb__mapping wb__mapping;
typedef struct {
    int n, capacity;
    /* sorted by name once the reader is done, unless the table is `nameless` */
    wb__entry *entries;
    bool summed;                        /* the file has checksums of all tensors */
    bool nameless;                      /* a list of values: names are indices, "0", "1", ... */
    int n_notes, note_capacity;
    wb__note *notes;
    wb__mapping *mapping;               /* the mapped file, which the table owns; or NULL */
} wb__table;

/* Adds an entry with a copy of the name; its other fields are zero. Returns the entry, which is
 * valid until the next call; NULL: out of memory. */
wb__entry *wb__table_add(wb__table *t, const char *name);
int wb__table_add_note(wb__table *t, const char *key, const char *value);
void wb__entry_drop(wb__entry *e);      /* frees the entry's memory */
void wb__table_sort(wb__table *t);
void wb__table_free(wb__table *t);

/* Finds an entry by name in a table that is sorted by name; NULL: none. */
wb__entry *wb__table_find(const wb__table *t, const char *name);
/* Checks that Weber has the dtypes of all entries. Returns 0 or an error code; the message lists
 * the first 50 entries whose dtypes Weber lacks. `path` is the file, for the message. */
int wb__table_check(const char *path, const wb__table *t);
int64_t wb__table_bytes(const wb__table *t);    /* sum of the entries' bytes */
const char *wb__table_note(const wb__table *t, const char *key);

#endif
