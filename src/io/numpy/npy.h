/* NPY, NumPy's format for one array, from wherever its bytes come: a file's stream, a mapping, a
 * member of an archive. */
#ifndef WB__NPY_H
#define WB__NPY_H

#include "base/map.h"
#include "io/table.h"

typedef struct {
    wb_dtype dtype;                     /* 0: elements that Weber has not, or an array too large */
    char type[16];                      /* NumPy's word: "<f4" */
    uint8_t width;                      /* bytes of an element in the file; of those that Weber has */
    bool wider, is_signed;              /* dtype is the next wider one */
    bool fortran;                       /* column-major */
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;
} wb__npy;

/* Exactly n bytes of `what`, or an error; the same in a new block of wb__alloc_aligned; and an error
 * about the byte at an offset, which is returned. */
typedef struct {
    int (*exact)(void *ctx, void *to, int64_t n, const char *what);
    void *(*block)(void *ctx, int64_t n, const char *what);
    int (*fail)(void *ctx, int64_t offset, const char *reason);
    void *ctx;
    int64_t offset;                     /* of what comes next */
} wb__npy_source;

/* The header.  Where it is one but tells of what Weber has not, that is an error, or with `any` a dtype
 * of 0. */
int wb__npy_header(wb__npy_source *s, bool any, wb__npy *h);
/* The elements behind it, row-major, of the header's dtype: a new block of wb__alloc_aligned. */
void *wb__npy_values(wb__npy_source *s, const wb__npy *h);
/* Of the array alone as it is in the file. */
static inline int64_t wb__npy_bytes(const wb__npy *h) { return h->size * h->width; }
void wb__npy_describe(const wb__npy *h, wb__entry *e);

/* A mapped NPY file, whose one array has the name "0"; as wb__npz_table. */
int wb__npy_table(wb__mapping *m, bool values, wb__table *out);

/* x, evaluated, as an NPY file; `put` takes it in parts.  bf16, which NumPy does not have, as f32. */
typedef int (*wb__npy_put)(void *ctx, const void *data, int64_t bytes);
int wb__npy_write(wb_tensor *x, wb__npy_put put, void *ctx);

#endif
