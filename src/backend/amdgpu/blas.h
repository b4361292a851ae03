/* Declarations of rocBLAS, as far as this backend uses it.  Names and values are AMD's. */
#ifndef WB__HIP_BLAS_H
#define WB__HIP_BLAS_H

#include "backend/amdgpu/hip.h"

typedef struct _rocblas_handle *rocblas_handle;

#define WB__BLAS_CONSTANTS(X)                                                                      \
    X(rocblas_operation_none, 111) X(rocblas_operation_transpose, 112)                             \
    X(rocblas_datatype_f16_r, 150) X(rocblas_datatype_f32_r, 151) X(rocblas_datatype_f64_r, 152)   \
    X(rocblas_datatype_bf16_r, 168) X(rocblas_status_memory_error, 5)                              \
    X(rocblas_status_perf_degraded, 7)                                                             \
    X(rocblas_atomics_not_allowed, 0) X(rocblas_gemm_algo_standard, 0)

#define WB__BLAS_CONSTANT(name, value) name = value,
enum { WB__BLAS_CONSTANTS(WB__BLAS_CONSTANT) };
#undef WB__BLAS_CONSTANT

/* X(name, parameters): each returns a status, 0 for success. */
#define WB__BLAS_FUNCTIONS(X)                                                                      \
    X(create_handle, (rocblas_handle *made))                                                       \
    X(destroy_handle, (rocblas_handle handle))                                                     \
    X(set_stream, (rocblas_handle handle, hipStream_t stream))                                     \
    X(set_atomics_mode, (rocblas_handle handle, HIPenum mode))                                     \
    X(set_workspace, (rocblas_handle handle, void *at, size_t bytes))                              \
    X(gemm_strided_batched_ex,                                                                     \
      (rocblas_handle handle, HIPenum op_a, HIPenum op_b, int32_t m, int32_t n, int32_t k,         \
       const void *alpha, const void *a, HIPenum a_type, int32_t a_ld, int64_t a_step,             \
       const void *b, HIPenum b_type, int32_t b_ld, int64_t b_step, const void *beta,              \
       const void *c, HIPenum c_type, int32_t c_ld, int64_t c_step, void *d, HIPenum d_type,       \
       int32_t d_ld, int64_t d_step, int32_t batch, HIPenum compute, HIPenum algorithm,            \
       int32_t solution, uint32_t flags))

#define WB__BLAS_FIELD(name, parameters) HIPenum (*name) parameters;
typedef struct {
    WB__BLAS_FUNCTIONS(WB__BLAS_FIELD)
    const char *(*status_to_string)(HIPenum status);
} wb__blas_functions;
#undef WB__BLAS_FIELD

#endif
