/* NPY, NumPy's format for one array, in a mapped file or as a member of an archive. */
#ifndef WB__NPY_H
#define WB__NPY_H

#include "base/map.h"
#include "io/table.h"

typedef struct {
    /* 0: elements that Weber lacks, or an array that is too large */
    wb_dtype dtype;
    char type[16];                      /* NumPy's name: "<f4" */
    uint8_t width;                      /* bytes of an element in the file; set if dtype is not 0 */
    bool wider, is_signed;              /* wider: elements are widened to dtype */
    bool fortran;                       /* column-major */
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
} wb__npy;

/* A source of bytes. `read` reads n bytes, fewer only at the end; -1 with the error set. `fail`
 * sets an error at a byte offset and returns its code. */
typedef struct {
    int64_t (*read)(void *ctx, void *to, int64_t n);
    int (*fail)(void *ctx, int64_t offset, const char *reason);
    void *ctx;
    const char *what;                   /* "the file" */
    int64_t offset, left;               /* position of the next byte; bytes that should follow */
    /* memory to allocate at once, before that many bytes were read */
    int64_t trusted;
} wb__npy_source;

/* Reads the header. Arrays that Weber lacks are an error, or with `any` have dtype 0. */
int wb__npy_header(wb__npy_source *s, bool any, wb__npy *h);
/* Reads the elements after the header, row-major, in the header's dtype, into a new block of
 * wb__alloc_aligned. The block grows as bytes arrive, so that a wrong length in the header does not
 * allocate much more than the source has. */
void *wb__npy_values(wb__npy_source *s, const wb__npy *h);
/* Bytes of the elements in the file. */
static inline int64_t wb__npy_bytes(const wb__npy *h) { return h->size * h->width; }
void wb__npy_describe(const wb__npy *h, wb__entry *e);

/* The table of a mapped NPY file, whose array is named "0"; like wb__npz_table. */
int wb__npy_table(wb__mapping *m, bool values, wb__table *out);

/* Writes x, which is evaluated, as an NPY file; `put` gets the bytes in parts. bf16, which NumPy
 * lacks, is written as f32. */
typedef int (*wb__npy_put)(void *ctx, const void *data, int64_t bytes);
int wb__npy_write(wb_tensor *x, wb__npy_put put, void *ctx);

#endif
