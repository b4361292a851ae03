/* The kernels of each instruction set, and the choice of a set.  cpu_portable.c, cpu_avx2.c and
 * cpu_avx512.c each compile the same source (cpu_kernels.h). */
#ifndef WB__ISA_H
#define WB__ISA_H

#include "backend/cpu/lib.h"
#include "backend/cpu/tile/tile.h"

/* An epilogue, the elementwise operation that a product applies to its results.  relu is applied in
 * registers; any other has a function, `row`, which runs in place on elements just computed. */
typedef struct {
    bool relu;
    wb__elementwise_fn *row;            /* NULL: relu or no epilogue */
} wb__act;

/* C = act(A·B + bias [+ C]).  Element (i,p) of A is at a + i*as0 + p*as1, and likewise for B and
 * C; strides are in elements.  The bias has one element per column of C, or per row if bias_rows
 * is set.  The product is computed in f64 if A, B and C are f64.  Otherwise it is computed in
 * f32, and A, B, C and bias may each be f32, f16 or bf16.  If `round` is set, none is f16, and
 * elements of A and B may be rounded to bf16. */
typedef struct {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    const void *bias;                   /* or NULL */
    int64_t as0, as1, bs0, bs1, cs0, cs1;
    wb_dtype a_type, b_type, c_type, bias_type;  /* stored dtypes */
    bool bias_rows, add_to_c, round;    /* add_to_c: C is added to its old value */
    bool streams;                       /* for `dots`: B is too large for a cache */
    wb__act act;
} wb__gemm;

/* A tile: C[i,j] = act(sum over o < outer, p < k of A[i,o,p] * B[o,p,j] + bias [+ C]).  A[i,o,p] is
 * at a + i*as0 + o*a_outer + p*as1, B[o,p,j] at b + o*b_outer + p*bs0 + j, C[i,j] at c + i*cs0 + j.
 * A matrix product has outer = 1; in a convolution, o is a row of the window or of the image. */
typedef struct {
    int64_t outer, k, as0, as1, a_outer, bs0, b_outer, cs0;
    const void *bias;  /* per column of the tile, or per row if bias_rows; NULL: no bias */
    bool bias_rows, add, relu;          /* add: to C; relu: act is relu, else nothing */
} wb__tile;

/* The product functions of one instruction set and computed dtype. */
typedef struct {
    int mr, nr, lanes;                  /* a tile: at most mr rows, nr columns; lanes of a vector */
    int kc, nc;                         /* a piece of B: at most kc inner indices, nc columns; C
                                           is updated after each piece */
    bool masked;                        /* can read a partial vector of B in place */
    bool narrow;                        /* multiplies bf16 numbers, packed in pairs along k */
    /* Copies rows [p0, p0+pk) and columns [j0, j1) of B into panels.  A panel has nr columns and is
     * stored row by row.  The last panel is padded with 0.  If `narrow`, a row has two inner
     * indices: 4 bytes a column. */
    void (*pack_b)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t j0, int64_t j1, void *to);
    /* Computes rows [i0, i1) and columns [j0, j1) of C for the inner indices [p0, p0+pk).  The
     * first range of k (`first`) overwrites C, unless add_to_c is set; the others add to it.  The
     * last range (`last`) also applies bias and epilogue.  packed: the panels from column j0 on, or
     * NULL to read B in place. */
    void (*block)(const wb__gemm *g, int64_t p0, int64_t pk, int64_t i0, int64_t i1, int64_t j0,
                  int64_t j1, const void *packed, bool first, bool last);
    /* Computes rows [i0, i1) of C by dot products; A and B must have stride 1 along k. */
    void (*dots)(const wb__gemm *g, int64_t i0, int64_t i1);
    /* Computes a tile of mr rows and nr columns, at most `mr` and `nr` of this struct.  If `masked`
     * is false, the caller pads B to whole vectors. */
    void (*tile)(int mr, int nr, const void *a, const void *b, void *c, const wb__tile *t);
    wb__elementwise_fn *tanh, *sigmoid; /* faster than those of ops.def; the last bits differ */
} wb__gemm_kernel;

enum {
    WB__GEMM_KC = 320,  /* kc of the kernels of f32 and f64 */
    WB__GEMM_NC = 1008  /* nc of the same kernels: a multiple of the nr of each */
};

/* Pools one image [h, w, c] if d->nhwc, else one plane [h, w].  `in` and `out` are the buffers that
 * wb__pool_desc (lib.h) lists; `out` is the last one. */
typedef void wb__pool_kernel(const wb__pool_desc *d, const void *const in[2], void *out);

/* Computes dx of one image from the gradients of its patches [oh,ow,kh,kw,channels].  A pixel has
 * d->c channels, of which `channels` are written.  kh and kw are at most 64. */
typedef void wb__gather_kernel(const wb__conv_desc *d, int64_t channels, const void *patches,
                               void *image);

/* A convolution of a one-channel image x with kh x kw taps and k <= 8 output channels: `rows` rows
 * of n outputs.  The stride along a row is 1.  Rows of x are `line` elements apart; the first taps
 * of two neighbouring rows of outputs are `step` elements of x apart. */
typedef struct {
    int64_t kh, kw, line, step, rows, n, k;
    bool relu;
} wb__line;
/* Computes the outputs y [rows, n, k].  The weights w are [kh*kw, 8], and the bias has 8 elements
 * or is NULL; both are 0 from channel k on. */
typedef void wb__line_kernel(const wb__line *l, const void *x, const void *w, const void *bias,
                             void *y);
/* Adds products to sums [kh*kw, k, lanes]; summed over lanes these are the weights' gradient. */
typedef void wb__line_weights_kernel(const wb__line *l, const void *x, const void *dy, void *sums);

/* The sum of strips, which overlap, to a row of n elements.  There are `count` strips of `width`
 * elements, `stride` elements apart in memory, with a vector of zeros before and behind each.
 * Strip i covers the elements of the row from i*apart - left on.  The kernel sets the row. */
typedef struct {
    int64_t count, width, stride, apart, left, n;
} wb__strips;
typedef void wb__strips_kernel(const wb__strips *s, const void *strips, void *row);

/* A tile of an image of Winograd's convolution (winograd.c).  Its pixel (i,j) is at i*line +
 * j*channels and exists for i in [top, bottom) and j in [left, right).  Position p of the
 * transformed tile is at p*step, with the channels rounded up to whole vectors. */
typedef struct {
    int64_t channels, line, step;
    int top, bottom, left, right;
} wb__winograd_tile;

/* The transforms of Winograd's convolution, for f32 only; winograd_kernel.h describes them. */
typedef struct {
    void (*input)(const wb__winograd_tile *t, const void *x, void *v);
    void (*output)(const wb__winograd_tile *t, const void *m, const void *bias, bool relu, void *y);
    void (*grad)(const wb__winograd_tile *t, const void *dy, void *v);
    void (*weights)(const void *w, int64_t apart, int n, bool turned, void *u, int64_t step);
    void (*sums)(const void *s, int64_t step, int n, int64_t apart, void *dw);
} wb__winograd_kernel;

typedef struct {
    const char *name;
    const wb__gemm_kernel *gemm_f32, *gemm_f64;
    wb__pool_kernel *pool_f32, *pool_f64;
    wb__gather_kernel *gather_f32, *gather_f64;
    wb__line_kernel *line;              /* f32 only, as all fields below */
    wb__line_weights_kernel *line_weights;
    wb__strips_kernel *strips;
    const wb__winograd_kernel *winograd;
} wb__isa;

extern const wb__isa wb__isa_portable, wb__isa_avx2, wb__isa_avx512;
const wb__isa *wb__isa_best(void);      /* the functions for the set of wb__isa_here() */
/* The product of bf16 operands by the processor's instructions for them; NULL: it has none, or
 * WEBER_ISA is less than avx512. */
const wb__gemm_kernel *wb__isa_gemm_bf16(void);
extern const wb__gemm_kernel wb__gemm_bf16_avx512;

/* Returns the epilogue `op` for products and convolutions computed in `computed`, F32 or F64. */
wb__act wb__act_of(wb__op op, wb_dtype computed);

/* Convert n contiguous elements between a stored and a computed dtype, which is f64 for f64, and
 * f32 for f32, f16 and bf16. */
void wb__widen(void *to, const void *from, wb_dtype from_type, int64_t n);
void wb__narrow(void *to, wb_dtype to_type, const void *from, int64_t n);

#endif
