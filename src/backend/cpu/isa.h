/* The kernels of one instruction set, and the choice among the sets.  cpu_portable.c, cpu_avx2.c
 * and cpu_avx512.c compile the same texts (cpu_kernels.h), each for its set. */
#ifndef WB__ISA_H
#define WB__ISA_H

#include "backend/cpu/lib.h"
#include "backend/cpu/tile/tile.h"

/* How finished elements go through an epilogue: relu in registers, any other row of ops.def by its
 * function, in place, over what was just computed. */
typedef struct {
    bool relu;
    wb__row_fn *row;                    /* or NULL */
} wb__act;

/* C = act(A·B + bias [+ C]).  Element (i,p) of A stands at a + i*as0 + p*as1, and so on; strides in
 * elements. The bias runs along the columns of C, or along its rows where bias_rows is set.  The
 * type of A, B, C and bias each may be narrower than the type computed in: f16 and bf16 are f32
 * there, f64 is f64. */
typedef struct {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    const void *bias;                   /* or NULL */
    int64_t as0, as1, bs0, bs1, cs0, cs1;
    wb_dtype a_type, b_type, c_type, bias_type;
    bool bias_rows, add_to_c;
    wb__act act;
} wb__gemm;

/* One tile: C[i,j] = act(sum over o < outer, p < k of A[i,o,p] * B[o,p,j] + bias [+ C]), where
 * A[i,o,p] stands at a + i*as0 + o*a_outer + p*as1, B[o,p,j] at b + o*b_outer + p*bs0 + j, C[i,j]
 * at c + i*cs0 + j.  A product has outer = 1; a convolution's rows of taps, or of pixels, are the
 * outer sum. */
typedef struct {
    int64_t outer, k, as0, as1, a_outer, bs0, b_outer, cs0;
    const void *bias;                   /* NULL, or of the tile's columns, or of its rows */
    bool bias_rows, add, relu;
} wb__tile;

/* One instruction set's products of one computed type.  A panel is `k` rows of `mr` (A) or `nr` (B)
 * elements. */
typedef struct {
    int mr, nr, lanes;
    bool masked;                        /* can read a ragged edge of B where it stands */
    /* B[p0..p0+pk, j0..j1) as panels of nr columns, each panel pk*nr elements, the last one padded
     * with 0 */
    void (*pack_b)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t j0, int64_t j1, void *to);
    /* C[i0..i1, j0..j1) from inner indices [p0, p0+pk).  packed holds the panels from column j0 on,
     * or is NULL where B is read in place.  first and last: whether this is the first and last
     * piece of k. */
    void (*block)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t i0, int64_t i1, int64_t j0,
                  int64_t j1, const void *packed, bool first, bool last);
    /* C[i0..i1, all] of a product whose operands both run along k with stride 1 */
    void (*dots)(const wb__gemm *g, int64_t i0, int64_t i1);
    /* mr rows by nr columns, at most the sizes above; packed B is padded to whole vectors where not
     * masked */
    void (*tile)(int mr, int nr, const void *a, const void *b, void *c, const wb__tile *t);
    wb__row_fn *tanh, *sigmoid;         /* faster than the rows' own, with other last bits */
} wb__gemm_kernel;

enum { WB__GEMM_KC = 320 };             /* most inner indices between two visits of C */

/* One unit of pooling: an image [h, w, c] where d->nhwc, else a plane [h, w].  The operands as in
 * lib.h. */
typedef void wb__pool_kernel(const wb__pool_desc *d, const void *const in[2], void *out);

/* dx of one image, d->c channels a pixel of which `channels` are written, from patches
 * [oh,ow,kh,kw,channels]; kh and kw at most 64 */
typedef void wb__gather_kernel(const wb__conv_desc *d, int64_t channels, const void *patches,
                               void *image);

/* One row of outputs from a one-channel image, stride 1: kh x kw taps, rows of x `line` apart, k <=
 * 8 output channels innermost in y; w is [kh*kw, 8] with 0 beyond k, and so is the bias (or NULL)
 */
typedef struct {
    int64_t kh, kw, line, k;
    bool relu;
} wb__line;
typedef void wb__line_kernel(const wb__line *l, int64_t n, const void *x, const void *w,
                             const void *bias, void *y);

typedef struct {
    const char *name;
    const wb__gemm_kernel *gemm_f32, *gemm_f64;
    wb__pool_kernel *pool_f32, *pool_f64;
    wb__gather_kernel *gather_f32, *gather_f64;
    wb__line_kernel *line;              /* of f32 */
} wb__isa;

extern const wb__isa wb__isa_portable, wb__isa_avx2, wb__isa_avx512;
const wb__isa *wb__isa_best(void);      /* the functions for wb__isa_here() */

/* Of products and convolutions computed in F32 or F64. */
wb__act wb__act_of(wb__op op, wb_dtype computed);

/* n contiguous elements between f32/f16/bf16 and f32, or f64 and f64 */
void wb__widen(void *to, const void *from, wb_dtype from_type, int64_t n);
void wb__narrow(void *to, wb_dtype to_type, const void *from, int64_t n);

#endif
