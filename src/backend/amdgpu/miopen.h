/* Declarations of MIOpen, as far as this backend uses it.  Names and values are AMD's.
 * tests/drivers/amdgpu_library_headers.c compares them with a list read from its header. */
#ifndef WB__HIP_MIOPEN_H
#define WB__HIP_MIOPEN_H

#include "backend/amdgpu/hip.h"

typedef struct miopenHandle *miopenHandle_t;
typedef struct miopenTensorDescriptor *miopenTensorDescriptor_t;
typedef struct miopenConvolutionDescriptor *miopenConvolutionDescriptor_t;

#define WB__MIOPEN_CONSTANTS(X)                                                                    \
    X(miopenStatusAllocFailed, 4) X(miopenHalf, 0) X(miopenFloat, 1) X(miopenBFloat16, 5)          \
    X(miopenTensorNCHW, 0) X(miopenTensorNHWC, 1) X(miopenConvolution, 0)                          \
    X(MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC, 1) X(miopenConvolutionAlgoGEMM, 0)                  \
    X(miopenConvolutionAlgoDirect, 1) X(miopenConvolutionAlgoFFT, 2)                               \
    X(miopenConvolutionAlgoWinograd, 3) X(miopenConvolutionAlgoImplicitGEMM, 5)

#define WB__MIOPEN_CONSTANT(name, value) name = value,
enum { WB__MIOPEN_CONSTANTS(WB__MIOPEN_CONSTANT) };
#undef WB__MIOPEN_CONSTANT

/* miopenConvSolution_t.  time: in milliseconds, measured or estimated. */
typedef struct {
    float time;
    size_t workspace_size;
    uint64_t solution_id;
    HIPenum algorithm;
} wb__miopen_solution;

/* X(name, parameters): each returns a status, 0 for success. */
#define WB__MIOPEN_FUNCTIONS(X)                                                                    \
    X(Create, (miopenHandle_t *made))                                                              \
    X(Destroy, (miopenHandle_t handle))                                                            \
    X(SetStream, (miopenHandle_t handle, hipStream_t stream))                                      \
    X(CreateTensorDescriptor, (miopenTensorDescriptor_t *made))                                    \
    X(DestroyTensorDescriptor, (miopenTensorDescriptor_t d))                                       \
    X(SetNdTensorDescriptorWithLayout,                                                             \
      (miopenTensorDescriptor_t d, HIPenum type, HIPenum layout, const int *dims, int n))          \
    X(CreateConvolutionDescriptor, (miopenConvolutionDescriptor_t *made))                          \
    X(DestroyConvolutionDescriptor, (miopenConvolutionDescriptor_t d))                             \
    X(InitConvolutionNdDescriptor,                                                                 \
      (miopenConvolutionDescriptor_t d, int n, const int *pad, const int *stride,                  \
       const int *dilation, HIPenum mode))                                                         \
    X(SetConvolutionGroupCount, (miopenConvolutionDescriptor_t d, int groups))                     \
    X(SetConvolutionAttribute, (miopenConvolutionDescriptor_t d, HIPenum what, int value))

/* X(name, parameters) of functions with a variant for each direction, of which
 * WB__MIOPEN_DIRECTIONS lists X(wb__conv_kind, name): miopenConvolutionForwardImmediate.  a and b
 * are the operands, c is the result: w, x and y (Forward); dy, w and dx (BackwardData); dy, x and
 * dw (BackwardWeights). */
#define WB__MIOPEN_DIRECTIONS(X)                                                                   \
    X(WB__CONV_FORWARD, Forward) X(WB__CONV_GRAD_INPUT, BackwardData)                              \
    X(WB__CONV_GRAD_WEIGHT, BackwardWeights)
#define WB__MIOPEN_PROBLEM                                                                         \
    miopenHandle_t handle, miopenTensorDescriptor_t a, miopenTensorDescriptor_t b,                 \
        miopenConvolutionDescriptor_t how, miopenTensorDescriptor_t c
#define WB__MIOPEN_DIRECTION_FUNCTIONS(X)                                                          \
    X(GetSolutionCount, (WB__MIOPEN_PROBLEM, size_t *n))                                           \
    X(GetSolution,                                                                                 \
      (WB__MIOPEN_PROBLEM, size_t capacity, size_t *n, wb__miopen_solution *solutions))            \
    X(GetSolutionWorkspaceSize, (WB__MIOPEN_PROBLEM, uint64_t solution, size_t *bytes))            \
    X(CompileSolution, (WB__MIOPEN_PROBLEM, uint64_t solution))                                    \
    X(Immediate,                                                                                   \
      (miopenHandle_t handle, miopenTensorDescriptor_t a, const void *a_at,                        \
       miopenTensorDescriptor_t b, const void *b_at, miopenConvolutionDescriptor_t how,            \
       miopenTensorDescriptor_t c, void *c_at, void *workspace, size_t bytes, uint64_t solution))

/* The function table, which consists of function pointers alone. */
#define WB__MIOPEN_FIELD(name, parameters) HIPenum (*name) parameters;
typedef struct { WB__MIOPEN_DIRECTION_FUNCTIONS(WB__MIOPEN_FIELD) } wb__miopen_direction;
typedef struct {
    WB__MIOPEN_FUNCTIONS(WB__MIOPEN_FIELD)
    wb__miopen_direction direction[3];  /* indexed by wb__conv_kind */
    const char *(*GetErrorString)(HIPenum status);
} wb__miopen_functions;
#undef WB__MIOPEN_FIELD

#endif
