/* The product of quantised rows and i8 weights, for each instruction set.  int8_portable.c,
 * int8_avx2.c, int8_vnni_avx2.c and int8_vnni_avx512.c each compile the same source
 * (int8_kernel.h).  The sums are those of integers, so that all give the same bits. */
#ifndef WB__INT8_H
#define WB__INT8_H

#include "backend/cpu/isa.h"

#define WB__INLINE static inline __attribute__((always_inline))

/* A row of f32 as integers from 0 to 255: element k is about (q[k] - zero) scale / WB__INT8_DOWN.
 * If an element is NaN or infinite, the scale is NaN. */
typedef struct {
    float scale;
    int32_t zero;
} wb__int8_row;

/* y[i,j] = act((sum over p of (q[i,p] - row[i].zero) w[j,p]) · row[i].scale · scale[j] ·
 * WB__INT8_UP + bias[j]), for the rows and columns of a product.  w[j,p] is at w + j*w_step + p;
 * y[i,j] is at y + i*y_step[0] + j*y_step[1]. */
typedef struct {
    int64_t m, n, k;
    const int8_t *w;
    int64_t w_step;
    const char *q;              /* row i is at q + i*q_step bytes */
    int64_t q_step;
    const wb__int8_row *row;
    const float *scale;         /* scale[j*scale_step] belongs to column j */
    int64_t scale_step;
    const float *bias;          /* or NULL */
    float *y;
    int64_t y_step[2];
    wb__act act;
} wb__int8_product;

typedef struct {
    const char *name;
    int step;                   /* elements; zeros pad each row of q to a multiple of this number */
    int element;                /* bytes of an element of q */
    /* Quantises a contiguous row of k elements; writes the padding too.  q is aligned to 64 and has
     * wb__int8_row_bytes. */
    void (*quantise)(const float *x, int64_t k, void *q, wb__int8_row *row);
    /* Computes the rows [i0, i1) and the columns [j0, j1). */
    void (*product)(const wb__int8_product *p, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
} wb__int8_kernel;

/* The bytes of a quantised row, a multiple of 64. */
static inline int64_t wb__int8_row_bytes(const wb__int8_kernel *f, int64_t k)
{
    return ((k + f->step - 1) / f->step * f->step * f->element + 63) / 64 * 64;
}

extern const wb__int8_kernel wb__int8_portable, wb__int8_avx2, wb__int8_vnni_avx2,
    wb__int8_vnni_avx512;
/* The kernels that this processor runs, from the slowest; NULL: there are no more. */
const wb__int8_kernel *wb__int8_kernel_at(int i);
/* The fastest kernel of wb__isa_here(). */
const wb__int8_kernel *wb__int8_best(void);

#endif
