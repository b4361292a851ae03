/* A table of the tensors in a file of any format: names, dtypes, shapes and where the values are.
 * Readers fill it (safetensors/safetensors.c, numpy/npz.c, flux/table.c); loading values
 * (model/load_state.c), printing and conversion read it. */
#ifndef WB__TABLE_H
#define WB__TABLE_H

#include "base/base.h"

/* Whether a convolution flips its kernel. */
typedef enum { WB__FLIP_UNKNOWN, WB__FLIP_YES, WB__FLIP_NO } wb__flip;

/* How integers of a dtype that Weber lacks are stored.  Readers widen them, i16 and u16 to i32 and
 * u32 to i64, so an entry has the values and the bytes of the wider dtype. */
typedef enum { WB__NOT_NARROW, WB__NARROW_I16, WB__NARROW_U16, WB__NARROW_U32 } wb__narrow_int;
/* wb__narrow_bytes returns the bytes of one such integer in the file, wb__narrow_dtype the wider
 * dtype; 0 for WB__NOT_NARROW. */
int wb__narrow_bytes(wb__narrow_int narrow);
wb_dtype wb__narrow_dtype(wb__narrow_int narrow);
/* Writes n integers of `from`, which may be unaligned, to `to`, widened. */
void wb__widen_ints(void *to, const void *from, int64_t n, wb__narrow_int narrow);

typedef struct {
    char *name;
    wb_dtype dtype;                     /* 0: Weber cannot hold the tensor; see `type`, `axes` */
    char type[16];                      /* the dtype's name in the file: "F32", "<f4" */
    int axes;                           /* number of axes, if above WB_MAX_DIMS; then ndim is 0;
                                           -1: too many elements */
    int ndim;
    int64_t dims[WB_MAX_DIMS];          /* row-major, whatever the order in the file is */
    int64_t begin, bytes;               /* offset of the values in the file, if known; their size */
    /* the values, maybe unaligned, row-major unless `transposed`; NULL: not read */
    const void *data;
    wb__flip flip;                      /* for a convolution's kernel; else WB__FLIP_UNKNOWN */
    bool transposed;                    /* the values are column-major, in 2 or 3 dimensions;
                                           wb__entry_values (load_state.h) makes them row-major */
    bool owned;                         /* the entry owns `data`, a block of wb__alloc_aligned */
    uint32_t sum;                       /* CRC-32 of the values, if the table is `summed` */
} wb__entry;

/* A file may name a tensor many times, and names of parts are in the names of tensors, so tables
 * are limited: each tensor counts WB__TENSOR_TAKES bytes in a tree, and its name; what all of them
 * take beyond WB__TENSORS_TIMES the bytes that describe them counts against wb_set_unpack_limit. */
enum { WB__TENSOR_TAKES = 1 << 10, WB__TENSORS_TIMES = 64 };

typedef struct { char *key, *value; } wb__note;

/* A key that means: the variable that is preferred without a key, or else all variables. */
extern const char wb__all_variables[];

typedef struct wb__mapping wb__mapping;
typedef struct {
    int n, capacity;
    wb__entry *entries;                 /* sorted by name once read, unless `nameless` */
    bool summed;                        /* the file has checksums of all tensors */
    bool nameless;                      /* a list of values: names are indices, "0", "1", ... */
    int n_notes, note_capacity;
    wb__note *notes;
    wb__mapping *mapping;               /* the mapped file, which the table owns; or NULL */
} wb__table;

/* Adds an entry with a copy of the name; its other fields are zero.  Returns the entry, which is
 * valid until the next call; NULL: out of memory. */
wb__entry *wb__table_add(wb__table *t, const char *name);
int wb__table_add_note(wb__table *t, const char *key, const char *value);
void wb__entry_drop(wb__entry *e);      /* frees the entry's memory */
void wb__table_sort(wb__table *t);
void wb__table_free(wb__table *t);

/* Returns an entry by name in a table that is sorted by name; NULL: there is none. */
wb__entry *wb__table_find(const wb__table *t, const char *name);
/* Returns 0 if Weber can hold all entries, else an error code; the message lists the first 50
 * entries whose dtypes Weber lacks, or that have too many axes or elements.  `path` is the file,
 * for the message. */
int wb__table_check(const char *path, const wb__table *t);
int64_t wb__table_bytes(const wb__table *t);    /* sum of the entries' bytes */
const char *wb__table_note(const wb__table *t, const char *key);

#endif
