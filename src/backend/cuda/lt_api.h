/* Declarations of cuBLASLt 12 and 13: the types, constants and functions that the CUDA backend
 * uses, so that it compiles without NVIDIA's headers.  Names that do not begin with wb__ or WB__
 * are NVIDIA's. */
#ifndef WB__CU_LT_API_H
#define WB__CU_LT_API_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

typedef unsigned int wb__lt_enum;       /* as C passes enumerations */

typedef struct { uint64_t data[8]; } wb__lt_algo;
typedef struct {
    wb__lt_algo algo;
    size_t workspaceSize;
    wb__lt_enum state;
    float wavesCount;
    int reserved[4];
} wb__lt_result;

#ifndef WB__LT_NO_TYPES  /* defined by a test that includes NVIDIA's headers */
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct wb__lt_its_desc *cublasLtMatmulDesc_t;
typedef struct wb__lt_its_layout *cublasLtMatrixLayout_t;
typedef struct wb__lt_its_preference *cublasLtMatmulPreference_t;
typedef wb__lt_algo cublasLtMatmulAlgo_t;
typedef wb__lt_result cublasLtMatmulHeuristicResult_t;
#endif

#define WB__LT_CONSTANTS(X)                                                                        \
    X(CUDA_R_32F, 0) X(CUDA_R_64F, 1) X(CUDA_R_16F, 2) X(CUDA_R_16BF, 14)                          \
    X(CUBLAS_STATUS_SUCCESS, 0) X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3) X(CUBLAS_STATUS_INVALID_VALUE, 7)                             \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8) X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                        \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14) X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                         \
    X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1)                                                            \
    X(CUBLAS_COMPUTE_32F, 68) X(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                  \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77) X(CUBLAS_COMPUTE_64F, 70)                                  \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5) X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)     \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3) X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                            \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7) X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                    \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11) X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)   \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1) X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)\
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                               \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2) X(CUBLASLT_REDUCTION_SCHEME_MASK, 7)              \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1) X(CUBLASLT_EPILOGUE_RELU, 2) X(CUBLASLT_EPILOGUE_BIAS, 4)      \
    X(CUBLASLT_EPILOGUE_RELU_BIAS, 6) X(CUBLASLT_EPILOGUE_GELU, 32)                                \
    X(CUBLASLT_EPILOGUE_GELU_BIAS, 36) X(CUBLASLT_EPILOGUE_RELU_AUX, 130)                          \
    X(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, 134) X(CUBLASLT_EPILOGUE_GELU_AUX, 160)                     \
    X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164) X(CUBLASLT_EPILOGUE_DRELU, 136)                        \
    X(CUBLASLT_EPILOGUE_DRELU_BGRAD, 152) X(CUBLASLT_EPILOGUE_DGELU, 192)                          \
    X(CUBLASLT_EPILOGUE_DGELU_BGRAD, 208) X(CUBLASLT_EPILOGUE_BGRADA, 256)                         \
    X(CUBLASLT_EPILOGUE_BGRADB, 512)

#define WB__LT_ENUM(name, number) name = number,
#ifndef WB__LT_NO_TYPES
enum { WB__LT_CONSTANTS(WB__LT_ENUM) WB__LT_CONSTANTS_END };
#endif
#undef WB__LT_ENUM

/* X(result, name without cublasLt, parameters) */
#define WB__LT_FUNCTIONS(X)                                                                        \
    X(size_t, GetVersion, (void))                                                                  \
    X(const char *, GetStatusName, (wb__lt_enum status))                                           \
    X(wb__lt_enum, Create, (cublasLtHandle_t *handle))                                             \
    X(wb__lt_enum, Destroy, (cublasLtHandle_t handle))                                             \
    X(wb__lt_enum, MatrixLayoutCreate,                                                             \
      (cublasLtMatrixLayout_t *layout, wb__lt_enum type, uint64_t rows, uint64_t cols, int64_t ld))\
    X(wb__lt_enum, MatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                           \
    X(wb__lt_enum, MatrixLayoutSetAttribute,                                                       \
      (cublasLtMatrixLayout_t layout, wb__lt_enum attribute, const void *value, size_t bytes))     \
    X(wb__lt_enum, MatmulDescCreate,                                                               \
      (cublasLtMatmulDesc_t *desc, wb__lt_enum compute, wb__lt_enum scale))                        \
    X(wb__lt_enum, MatmulDescDestroy, (cublasLtMatmulDesc_t desc))                                 \
    X(wb__lt_enum, MatmulDescSetAttribute,                                                         \
      (cublasLtMatmulDesc_t desc, wb__lt_enum attribute, const void *value, size_t bytes))         \
    X(wb__lt_enum, MatmulPreferenceCreate, (cublasLtMatmulPreference_t *preference))               \
    X(wb__lt_enum, MatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))               \
    X(wb__lt_enum, MatmulPreferenceSetAttribute,                                                   \
      (cublasLtMatmulPreference_t preference, wb__lt_enum attribute, const void *value,            \
       size_t bytes))                                                                              \
    X(wb__lt_enum, MatmulAlgoGetHeuristic,                                                         \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,               \
       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,               \
       cublasLtMatmulPreference_t preference, int capacity,                                        \
       cublasLtMatmulHeuristicResult_t *results,                                                   \
       int *n))                                                                                    \
    X(wb__lt_enum, Matmul,                                                                         \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,       \
       cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,            \
       const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,                  \
       cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,         \
       size_t workspace_bytes, struct CUstream_st *stream))

/* The function table: lt.Matmul is cublasLtMatmul. */
#define WB__LT_FIELD(type, name, parameters) type (*name) parameters;
typedef struct { WB__LT_FUNCTIONS(WB__LT_FIELD) } wb__lt_functions;
#undef WB__LT_FIELD

#endif
