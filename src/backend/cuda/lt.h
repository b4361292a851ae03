/* Matrix products in cuBLASLt's words.  Column-major, as cuBLASLt sees memory, a row-major product
 * is the transposed one: cᵀ = bᵀ·aᵀ, so our b is its A and our a is its B. */
#ifndef WB__CU_LT_H
#define WB__CU_LT_H

#include "backend/cuda/lt_api.h"
#include "backend/gpu/runtime/runtime.h"

/* A product without its places: what an algorithm is chosen by, and kept under.  Filled from zeros,
 * so that its bytes are a key. */
typedef struct {
    int64_t rows, cols, k;              /* D = op(A)·op(B), [rows, cols] column-major */
    int64_t ld[3], step[3];             /* of A, B and D: elements between columns, and batches */
    int64_t aux_ld;                     /* elements, or bits */
    int32_t batch, type, compute, scale, op[2], epilogue;
    int32_t align[3], vector_align, aux_align;      /* bytes; 16 at most */
    int32_t reductions;                 /* ways of adding up the parts of a split k */
} wb__lt_problem;

/* Where its operands lie; buffer -1: there is no such operand. */
typedef struct { int buffer; size_t at; } wb__lt_place;
typedef struct {
    wb__lt_place operand[3];            /* A, B, D */
    wb__lt_place vector, aux;           /* bias or sums; what epilogues store or want */
} wb__lt_places;

typedef struct {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3];
} wb__lt_descriptors;

/* NULL, or in a few words why cuBLASLt cannot do the step. */
const char *wb__lt_problem_of(const wb__step *step, wb__lt_problem *p, wb__lt_places *places);

/* The descriptors of a problem, or cuBLASLt's status and the name of the call that gave it.  The
 * pointers of epilogues are set to stand-ins of the right alignment. */
int wb__lt_describe(const wb__lt_functions *f, const wb__lt_problem *p, wb__lt_descriptors *d,
                    const char **call);
void wb__lt_undescribe(const wb__lt_functions *f, wb__lt_descriptors *d);
int wb__lt_preference(const wb__lt_functions *f, const wb__lt_problem *p,
                      cublasLtMatmulPreference_t *preference, const char **call);

/* "cuBLASLt bias relu" */
const char *wb__lt_name(const wb__lt_problem *p);

enum { WB__LT_WORKSPACE = 32 << 20 };

#endif
