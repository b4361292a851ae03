/* Declarations of cuDNN 9's graph interface: the types, constants and functions that the CUDA
 * backend uses, so that it compiles without NVIDIA's headers.  Names that do not begin with wb__ or
 * WB__ are NVIDIA's. */
#ifndef WB__CU_DNN_API_H
#define WB__CU_DNN_API_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
typedef unsigned int wb__dnn_enum;      /* as C passes enumerations */

#ifndef WB__DNN_NO_TYPES  /* defined by a test that includes NVIDIA's headers */
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
#endif

#define WB__DNN_CONSTANTS(X)                                                                       \
    X(CUDNN_STATUS_SUCCESS, 0) X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                               \
    X(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 1002)                                              \
    X(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, 1008) X(CUDNN_STATUS_BAD_PARAM, 2000)                \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000) X(CUDNN_STATUS_INTERNAL_ERROR, 4000)                       \
    X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                    \
    X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)                                  \
    X(CUDNN_STATUS_EXECUTION_FAILED, 5000) X(CUDNN_DATA_FLOAT, 0) X(CUDNN_DATA_DOUBLE, 1)          \
    X(CUDNN_DATA_HALF, 2) X(CUDNN_DATA_INT32, 4) X(CUDNN_DATA_BFLOAT16, 9)                         \
    X(CUDNN_DATA_BOOLEAN, 11) X(CUDNN_REDUCE_TENSOR_ADD, 0) X(CUDNN_REDUCE_TENSOR_MAX, 3)          \
    X(CUDNN_CROSS_CORRELATION, 1) X(CUDNN_POINTWISE_ADD, 0) X(CUDNN_POINTWISE_MUL, 1)              \
    X(CUDNN_POINTWISE_SUB, 9) X(CUDNN_POINTWISE_DIV, 6) X(CUDNN_POINTWISE_EXP, 13)                 \
    X(CUDNN_POINTWISE_LOG, 15) X(CUDNN_POINTWISE_RELU_FWD, 100) X(CUDNN_POINTWISE_TANH_FWD, 101)   \
    X(CUDNN_POINTWISE_SIGMOID_FWD, 102) X(CUDNN_POINTWISE_CMP_GE, 303)                             \
    X(CUDNN_POINTWISE_GEN_INDEX, 501) X(CUDNN_POINTWISE_BINARY_SELECT, 601)                        \
    X(CUDNN_POINTWISE_IDENTITY, 21) X(CUDNN_ATTR_POINTWISE_MODE, 0)                                \
    X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1) X(CUDNN_ATTR_POINTWISE_AXIS, 9)                           \
    X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100) X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)              \
    X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102) X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)         \
    X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104) X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)       \
    X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106) X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                 \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201) X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)            \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204) X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                   \
    X(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 302)                                                      \
    X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400) X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)       \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402) X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)  \
    X(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 600) X(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 601)             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                                         \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                                          \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                                     \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                                             \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                                        \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                                         \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)                                    \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                                            \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                                           \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                                           \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)                                      \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)                                       \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)                                  \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                                         \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                                          \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                                         \
    X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                           \
    X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751) X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)      \
    X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753) X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)      \
    X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800) X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                 \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900) X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                   \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902) X(CUDNN_ATTR_TENSOR_STRIDES, 903)                         \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906) X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                       \
    X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908) X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)              \
    X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001) X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)      \
    X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303) X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)              \
    X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500) X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                \
    X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521) X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)          \
    X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523) X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)               \
    X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601) X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)          \
    X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611) X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)     \
    X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200) X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)        \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702) X(CUDNN_TYPE_HANDLE, 0)                     \
    X(CUDNN_TYPE_DATA_TYPE, 1) X(CUDNN_TYPE_BOOLEAN, 2) X(CUDNN_TYPE_INT64, 3)                     \
    X(CUDNN_TYPE_FLOAT, 4) X(CUDNN_TYPE_VOID_PTR, 6) X(CUDNN_TYPE_CONVOLUTION_MODE, 7)             \
    X(CUDNN_TYPE_HEUR_MODE, 8) X(CUDNN_TYPE_NUMERICAL_NOTE, 11) X(CUDNN_TYPE_POINTWISE_MODE, 14)   \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15) X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                 \
    X(CUDNN_TYPE_CHAR, 24) X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                \
    X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1) X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)               \
    X(CUDNN_TYPE_KNOB_TYPE, 9) X(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 7)                          \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3) X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)             \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                  \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                                  \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)                          \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)                            \
    X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                            \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15) X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)    \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17) X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                  \
    X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19) X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)     \
    X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                            \
    X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31) X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)   \
    X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0) X(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)          \
    X(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2) X(CUDNN_NUMERICAL_NOTE_FFT, 3)          \
    X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4) X(CUDNN_NUMERICAL_NOTE_WINOGRAD, 5)                \
    X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, 6) X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, 7)      \
    X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8) X(CUDNN_HEUR_MODE_FALLBACK, 2)                  \
    X(CUDNN_HEUR_MODE_A, 3)

#define WB__DNN_ENUM(name, number) name = number,
#ifndef WB__DNN_NO_TYPES
enum { WB__DNN_CONSTANTS(WB__DNN_ENUM) WB__DNN_CONSTANTS_END };
#endif
#undef WB__DNN_ENUM

/* X(result, name without cudnn, parameters) */
#define WB__DNN_FUNCTIONS(X)                                                                       \
    X(size_t, GetVersion, (void))                                                                  \
    X(size_t, GetCudartVersion, (void))                                                            \
    X(const char *, GetErrorString, (wb__dnn_enum status))                                         \
    X(void, GetLastErrorString, (char *message, size_t capacity))                                  \
    X(wb__dnn_enum, Create, (cudnnHandle_t *handle))                                               \
    X(wb__dnn_enum, Destroy, (cudnnHandle_t handle))                                               \
    X(wb__dnn_enum, SetStream, (cudnnHandle_t handle, struct CUstream_st *stream))                 \
    X(wb__dnn_enum, BackendCreateDescriptor,                                                       \
      (wb__dnn_enum type, cudnnBackendDescriptor_t *descriptor))                                   \
    X(wb__dnn_enum, BackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor))               \
    X(wb__dnn_enum, BackendFinalize, (cudnnBackendDescriptor_t descriptor))                        \
    X(wb__dnn_enum, BackendSetAttribute,                                                           \
      (cudnnBackendDescriptor_t descriptor, wb__dnn_enum name, wb__dnn_enum type, int64_t n,       \
       const void *values))                                                                        \
    X(wb__dnn_enum, BackendGetAttribute,                                                           \
      (cudnnBackendDescriptor_t descriptor, wb__dnn_enum name, wb__dnn_enum type,                  \
       int64_t capacity, int64_t *n,                                                               \
       void *values))                                                                              \
    X(wb__dnn_enum, BackendExecute,                                                                \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack))

/* The function table: dnn.Create is cudnnCreate. */
#define WB__DNN_FIELD(type, name, parameters) type (*name) parameters;
typedef struct { WB__DNN_FUNCTIONS(WB__DNN_FIELD) } wb__dnn_functions;
#undef WB__DNN_FIELD

#endif
