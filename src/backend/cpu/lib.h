/* The CPU's library operations: matrix product, convolution and pooling.
 *
 * An operation is prepared once, when a plan is created, and runs at every step.  Preparation
 * chooses the implementation (oneDNN or our own kernel) and determines the workspace size; a run
 * gets pointers only.  A run allocates nothing, except that concurrent runs of one operation may
 * need more objects of oneDNN.  This layer does not depend on tensors, graphs or plans. */
#ifndef WB__CPU_LIB_H
#define WB__CPU_LIB_H

#include "base/parallel.h"
#include "base/table.h"
#include "backend/kinds.h"

#include <string.h>

/* The widest instruction set of this processor.  The environment variable WEBER_ISA=portable, avx2
 * or avx512 can lower it. */
typedef enum { WB__ISA_PORTABLE, WB__ISA_AVX2, WB__ISA_AVX512 } wb__isa_level;
wb__isa_level wb__isa_here(void);

/* C[b][m,n] = act(A[b][m,k] · B[b][k,n] + bias) for b in a grid of up to two batch dimensions.
 * Element (i,j) of A is at a + b0*a_b[0] + b1*a_b[1] + i*a_s[0] + j*a_s[1] (strides in elements, 0
 * for broadcast dimensions); likewise B and C.  C must not overlap A or B.  The bias has one
 * element per column n, or is absent.  f16 and bf16 products are summed in f32.  If `round` is set,
 * elements of f32 may be rounded to bf16 where that is faster.  Integers are not supported. */
typedef struct {
    wb_dtype dtype;
    int64_t batch[2], m, n, k;
    int64_t a_b[2], b_b[2], c_b[2];
    int64_t a_s[2], b_s[2], c_s[2];
    bool has_bias, round;
    bool packed;            /* B is in its packed form; the batch has one product */
    bool kept;              /* B may have a prepared form (wb__cpu_op): the product has form_bytes
                               if it is faster so */
    wb__op act;
} wb__matmul_desc;

/* Cross-correlation over two spatial dimensions (in one dimension: h = 1).
 *
 *   x [n, h, w, c]    y [n, oh, ow, k]    w [k, c/groups, kh, kw], all contiguous
 *   FORWARD       y  = act(x * w + bias)               buffers: x, w, y, bias
 *   GRAD_INPUT    dx = act((gradient for x) + bias)    buffers: dx, w, dy, bias
 *   GRAD_WEIGHT   dw = gradient for w                  buffers: x, dw, dy
 *
 * pad is top, bottom, left, right. */
typedef struct {
    wb_dtype dtype;
    wb__conv_kind kind;
    int64_t n, c, h, w, k, kh, kw, oh, ow;
    int64_t stride[2], dilation[2], pad[4], groups;
    bool has_bias;
    wb__op act;
} wb__conv_desc;

/* Whether the layouts NCHW and NHWC are identical in memory, both for x and for y. */
static inline bool wb__conv_is_plain(const wb__conv_desc *d)
{
    return (d->c == 1 || d->h * d->w == 1) && (d->k == 1 || d->oh * d->ow == 1);
}

/* Pooling, with windows as in wb__conv_desc and dilation 1.  Padding is never a maximum; NaN wins a
 * maximum.  All operands have the same layout.  Buffers: x, y; MAX_GRAD: x, dy, dx; MEAN_GRAD: dy,
 * dx; MAX_GATHER: x, v, y, where y is v at the position of the maximum of x. */
typedef struct {
    wb_dtype dtype;
    wb__pool_kind kind;
    int64_t n, c, h, w, kh, kw, oh, ow;
    int64_t stride[2], pad[4];
    bool nhwc;
} wb__pool_desc;

/* A prepared operation.  impl: the chosen implementation ("dnnl brgconv:avx512_core", "gemm
 * avx512").  reason: why no library was chosen, or NULL.  Both strings live as long as the
 * operation. */
typedef struct wb__cpu_op wb__cpu_op;
struct wb__cpu_op {
    void (*run)(const wb__cpu_op *op, void *const *buffers, void *workspace);   /* thread-safe */
    void (*destroy)(wb__cpu_op *op);
    size_t workspace;                       /* in bytes, may be 0; the caller aligns it to 64 */
    const char *impl, *reason;
    /* The prepared form of the second buffer, b or w: its values in the order in which the kernel
     * reads them.  form_bytes is its size; 0: the operation has none.  make_form writes the form;
     * run_form reads it in place of the second buffer, while `run` makes it in the workspace.  Both
     * compute the same bits.  Operations with the same form_key make the same form of the same
     * values. */
    size_t form_bytes;
    uint64_t form_key;
    int (*make_form)(const wb__cpu_op *op, const void *from, void *form);
    void (*run_form)(const wb__cpu_op *op, void *const *buffers, const void *form, void *workspace);
};
/* The `destroy` of operations that are one block of memory. */
static inline void wb__cpu_op_free(wb__cpu_op *op) { wb__free(op); }
/* Returns a form_key: a hash of the kind of form and of `bytes` bytes of data, which hold all other
 * facts that decide the values of the form. */
enum { WB__CPU_FORM_STEP, WB__CPU_FORM_PACKED, WB__CPU_FORM_WINOGRAD, WB__CPU_FORM_DNNL };
static inline uint64_t wb__cpu_form_key(int kind, size_t bytes, const void *data)
{
    return wb__hash((uint64_t)kind, data, bytes);
}

/* Prepare an operation.  Return 0, or an error code with the error set.  *d is copied. */
int wb__cpu_matmul(const wb__matmul_desc *d, wb__cpu_op **op);     /* buffers: a, b, c, bias */
/* Prepares the packing of b.  Buffers: b of the product, its packed form. */
int wb__cpu_matmul_pack(const wb__matmul_desc *d, wb__cpu_op **op);
/* Returns the bytes of the packed form of B, if the product is faster with that form; else 0. */
int64_t wb__cpu_matmul_packed(const wb__matmul_desc *d);
int wb__cpu_conv(const wb__conv_desc *d, wb__cpu_op **op);
int wb__cpu_pool(const wb__pool_desc *d, wb__cpu_op **op);

#endif
