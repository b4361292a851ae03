/* Our matrix product from within: what gemm.c offers conv.c, and what each instruction set offers gemm.c.
 *
 * Next: gemm.c (orientation, blocks, threads), gemm_kernel.h (the loops, compiled once per set). */
#ifndef WB__GEMM_H
#define WB__GEMM_H

#include "backend/cpu/lib.h"

/* C = act(A·B + bias [+ C]).  Element (i,p) of A stands at a + i*as0 + p*as1, and so on; strides in elements.
 * The bias runs along the columns of C, or along its rows where bias_rows is set.  The type of A, B, C
 * and bias each may be narrower than the type computed in: f16 and bf16 are f32 there, f64 is f64. */
typedef struct {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    const void *bias;                   /* or NULL */
    int64_t as0, as1, bs0, bs1, cs0, cs1;
    wb_dtype a_type, b_type, c_type, bias_type;
    bool bias_rows, add_to_c;
    wb__epilogue act;
} wb__gemm;

/* One instruction set's kernels for one computed type.  A panel is `k` rows of `mr` (A) or `nr` (B) elements. */
typedef struct {
    int mr, nr, lanes;
    bool masked;                        /* can read a ragged edge of B where it stands */
    /* B[p0..p0+pk, j0..j1) as panels of nr columns, each panel pk*nr elements, the last one padded with 0 */
    void (*pack_b)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t j0, int64_t j1, void *to);
    /* C[i0..i1, j0..j1) from inner indices [p0, p0+pk).  packed holds the panels from column j0 on, or is NULL
     * where B is read in place.  first and last: whether this is the first and last piece of k. */
    void (*block)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                  const void *packed, bool first, bool last);
    /* C[i0..i1, all] of a product whose operands both run along k with stride 1 */
    void (*dots)(const wb__gemm *g, int64_t i0, int64_t i1);
    void (*activate)(void *x, int64_t n, wb__epilogue act);
} wb__gemm_kernel;

typedef struct {
    const char *name;
    const wb__gemm_kernel *f32, *f64;
} wb__gemm_isa;

extern const wb__gemm_isa wb__gemm_portable, wb__gemm_avx2, wb__gemm_avx512;
const wb__gemm_isa *wb__gemm_best(void);        /* what this processor runs; WEBER_CPU_ISA lowers it */

enum { WB__GEMM_KC = 320 };             /* most inner indices between two visits of C */

/* The whole product on the calling thread; the types as in wb__gemm.  scratch: wb__gemm_scratch bytes,
 * 64-byte aligned.  Used inside parallel bodies. */
size_t wb__gemm_scratch(const wb__gemm *g);
void wb__gemm_run(const wb__gemm *g, void *scratch);

/* n elements between f32/f16/bf16 and f32, or f64 and f64, both contiguous */
void wb__widen(void *to, const void *from, wb_dtype from_type, int64_t n);
void wb__narrow(void *to, wb_dtype to_type, const void *from, int64_t n);

#endif
