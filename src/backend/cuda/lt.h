/* Matrix products in the terms of cuBLASLt, which computes D = op(A)·op(B) in column-major order.
 * A row-major c = a·b is the column-major cᵀ = bᵀ·aᵀ, so A is b and B is a. */
#ifndef WB__CU_LT_H
#define WB__CU_LT_H

#include "backend/cuda/lt_api.h"
#include "backend/gpu/runtime/runtime.h"

/* A problem: a product without its addresses, under which its algorithms are cached.  It is
 * initialised with zeros, since problems are compared byte by byte. */
typedef struct {
    int64_t rows, cols, k;              /* op(A) is [rows, k], op(B) [k, cols], D [rows, cols] */
    int64_t ld[3], step[3];  /* elements between columns, and between batches, of A, B and D */
    int64_t aux_ld;         /* distance between columns of aux: elements, or bits of a bit mask */
    int32_t batch;                          /* number of products */
    int32_t type, compute, scale, op[2], epilogue;  /* cuBLASLt's codes; op: of A and of B */
    int32_t align[3], vector_align, aux_align;      /* alignments in bytes, at most 16 */
    int32_t addend_align;   /* alignment of a matrix to add, with D's layout; 0: none is added */
    int32_t reductions;             /* bit set of CUBLASLT_REDUCTION_SCHEME_* that may be used */
    int32_t by_timing;                      /* 1: the algorithm is chosen by timing */
    int32_t unused;                         /* 0; without it the struct would have a hole */
} wb__lt_problem;

/* Where an operand is: the index of its buffer in the plan (-1: none), and the offset in bytes. */
typedef struct { int buffer; size_t at; } wb__lt_operand;
typedef struct {
    wb__lt_operand operand[3];          /* A, B, D */
    wb__lt_operand vector, aux;         /* `vector`: bias, or sums (wb__sums) that the step
                                           computes; `aux`: the aux tensor of the step */
    wb__lt_operand addend;              /* the matrix that is added */
} wb__lt_operands;

typedef struct {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3];
} wb__lt_descriptors;

/* Sets *p and *operands from a step.  Returns NULL, or a short reason not to use cuBLASLt. */
const char *wb__lt_problem_of(const wb__step *step, wb__lt_problem *p, wb__lt_operands *operands);

/* Creates the descriptors of a problem, which wb__lt_undescribe frees.  The pointers to bias and
 * aux in the descriptors are placeholders of the right alignment.  Returns 0 or the status of
 * cuBLASLt.  On failure *call is the name of the call that failed, and there is nothing to free. */
int wb__lt_describe(const wb__lt_functions *f, const wb__lt_problem *p, wb__lt_descriptors *d,
                    const char **call);
void wb__lt_undescribe(const wb__lt_functions *f, wb__lt_descriptors *d);
int wb__lt_preference(const wb__lt_functions *f, const wb__lt_problem *p,
                      cublasLtMatmulPreference_t *preference, const char **call);

/* Returns the name of the problem in printed plans, such as "cuBLASLt bias relu". */
const char *wb__lt_name(const wb__lt_problem *p);

enum { WB__LT_WORKSPACE = 32 << 20 };

#endif
