/* NPY, NumPy's format for one array, in a mapped file or as a member of an archive. */
#ifndef WB__NPY_H
#define WB__NPY_H

#include "base/map.h"
#include "io/table.h"

/* The array that a header describes.  */
typedef struct {
    wb_dtype dtype;                     /* 0: Weber lacks the dtype, or the array is too large */
    char type[16];                      /* NumPy's name: "<f4" */
    uint8_t width;                      /* bytes of an element in the file; set if dtype is not 0 */
    wb__narrow_int narrow;              /* how integers that dtype widens are stored */
    bool fortran;                       /* column-major */
    int axes;                           /* number of axes, if it is above WB_MAX_DIMS */
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
} wb__npy;

/* A source of bytes.  `read` reads up to n bytes and returns the number of bytes read, which is
 * less than n only at the end; -1 with the error set.  `fail` sets an error at a byte offset and
 * returns its code. */
typedef struct {
    int64_t (*read)(void *ctx, void *to, int64_t n);
    int (*fail)(void *ctx, int64_t offset, const char *reason);
    void *ctx;
    const char *what;                   /* "the file" */
    int64_t offset, left;               /* position of the next byte; number of bytes left */
    /* size in bytes of the first block for the elements, which doubles each time it is full */
    int64_t trusted;
} wb__npy_source;

/* Sets *h to the header.  Returns 0 or an error code.  If Weber cannot hold the array, the result
 * is an error code, or, with `any` true, 0 with h->dtype = 0. */
int wb__npy_header(wb__npy_source *s, bool any, wb__npy *h);
/* Returns the elements in a new block of wb__alloc_aligned, which the caller frees; NULL with the
 * error set.  They are row-major and have the dtype h->dtype.  The block grows as bytes arrive, so
 * a wrong shape in the header allocates little more than the source has. */
void *wb__npy_values(wb__npy_source *s, const wb__npy *h);
/* Returns the number of bytes that the elements take in the file. */
static inline int64_t wb__npy_bytes(const wb__npy *h) { return h->size * h->width; }
void wb__npy_describe(const wb__npy *h, wb__entry *e);

/* Sets *out to the table of a mapped NPY file, whose array is named "0".  `values` and the owner of
 * the mapping are as in wb__npz_table (npz.h). */
int wb__npy_table(wb__mapping *m, bool values, wb__table *out);

/* A function that writes the next bytes of an NPY file.  Returns 0 or an error code. */
typedef int (*wb__npy_put)(void *ctx, const void *data, int64_t bytes);
/* Writes x, which must be evaluated, as an NPY file by calls of `put`.  Returns 0 or an error code.
 * bf16, which NumPy lacks, is written as f32. */
int wb__npy_write(wb_tensor *x, wb__npy_put put, void *ctx);

#endif
