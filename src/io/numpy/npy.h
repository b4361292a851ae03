/* NPY, NumPy's format for one array: a mapped file, or a member of an archive. */
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

/* Where the bytes come from: at most n of them, fewer at the end, -1 with the error set; and the error
 * of a place, which is returned. */
typedef struct {
    int64_t (*read)(void *ctx, void *to, int64_t n);
    int (*fail)(void *ctx, int64_t offset, const char *reason);
    void *ctx;
    const char *what;                   /* "the file" */
    int64_t offset, left;               /* of the next byte; bytes promised from there on */
    int64_t trusted;                    /* so much memory may be taken at once on that promise */
} wb__npy_source;

/* The header.  Where it is one but tells of what Weber has not, that is an error, or with `any` a dtype
 * of 0. */
int wb__npy_header(wb__npy_source *s, bool any, wb__npy *h);
/* The elements behind it, row-major, of the header's dtype: a new block of wb__alloc_aligned, which
 * grows as the bytes arrive, so that a source that lies about its length costs no more than its
 * length. */
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
