/* Matrix products in the terms of cuBLASLt.  It uses column-major order, in which a row-major
 * product is the transposed one: cᵀ = bᵀ·aᵀ, so our b is its A and our a is its B. */
#ifndef WB__CU_LT_H
#define WB__CU_LT_H

#include "backend/cuda/lt_api.h"
#include "backend/gpu/runtime/runtime.h"

/* A product without its addresses: the key under which an algorithm is cached.  Initialised with
 * zeros, since its bytes are compared. */
typedef struct {
    int64_t rows, cols, k;              /* D = op(A)·op(B), [rows, cols] column-major */
    int64_t ld[3], step[3];  /* elements between columns, and between batches, of A, B and D */
    int64_t aux_ld;                     /* elements, or bits, between columns of aux */
    int32_t batch, type, compute, scale, op[2], epilogue;
    int32_t align[3], vector_align, aux_align;      /* alignments in bytes, at most 16 */
    int32_t reductions;                 /* the schemes that cuBLASLt may use to reduce a split k */
} wb__lt_problem;

/* The buffer and offset of an operand; buffer -1: none. */
typedef struct { int buffer; size_t at; } wb__lt_operand;
typedef struct {
    wb__lt_operand operand[3];          /* A, B, D */
    wb__lt_operand vector, aux;         /* bias or sums; the epilogue's further tensor */
} wb__lt_operands;

typedef struct {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3];
} wb__lt_descriptors;

/* Sets *p and *operands from a step.  Returns NULL, or a short reason why cuBLASLt cannot execute
 * the step. */
const char *wb__lt_problem_of(const wb__step *step, wb__lt_problem *p, wb__lt_operands *operands);

/* Creates the descriptors of a problem; undescribe frees them.  Returns 0, or cuBLASLt's status
 * (then there is nothing to free), and in *call the name of the call that failed.  The pointers of
 * epilogues are placeholders of the right alignment. */
int wb__lt_describe(const wb__lt_functions *f, const wb__lt_problem *p, wb__lt_descriptors *d,
                    const char **call);
void wb__lt_undescribe(const wb__lt_functions *f, wb__lt_descriptors *d);
int wb__lt_preference(const wb__lt_functions *f, const wb__lt_problem *p,
                      cublasLtMatmulPreference_t *preference, const char **call);

/* The name in printed plans, such as "cuBLASLt bias relu". */
const char *wb__lt_name(const wb__lt_problem *p);

enum { WB__LT_WORKSPACE = 32 << 20 };

#endif
