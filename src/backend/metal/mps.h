/* Products and convolutions by Apple's libraries Metal Performance Shaders (MPS) and MPSGraph.
 *
 *   mps.c        products by MPSMatrixMultiplication
 *   mpsgraph.c   convolutions by MPSGraph
 *
 * The methods are declared as in objc.h, and tests/drivers/metal_mps_methods.c compares them with a
 * list of Apple's declarations. */
#ifndef WB__MPS_H
#define WB__MPS_H

#include "backend/metal/metal.h"

enum {
    MPSDataTypeFloat16 = 0x10000000 | 16, MPSDataTypeFloat32 = 0x10000000 | 32,
    MPSGraphOptionsNone = 0, MPSGraphPaddingStyleExplicit = 0,
    MPSGraphTensorNamedDataLayoutNCHW = 0, MPSGraphTensorNamedDataLayoutNHWC = 1,
    MPSGraphTensorNamedDataLayoutOIHW = 2, MPSGraphTensorNamedDataLayoutHWIO = 3
};
typedef struct { NSInteger major, minor, patch; } NSOperatingSystemVersion;

#define WB__MPS_METHODS(X)                                                                         \
    X(id, 0, alloc, "alloc", void)                                                                 \
    X(BOOL, 1, isAtLeast, "isOperatingSystemAtLeastVersion:", NSOperatingSystemVersion)            \
    X(id, 1, number, "numberWithUnsignedInteger:", NSUInteger)                                     \
    X(id, 3, dictionary, "dictionaryWithObjects:forKeys:count:", const id *, const id *,           \
      NSUInteger)                                                                                  \
    /* MPSMatrixDescriptor, MPSMatrix, MPSMatrixMultiplication */                                  \
    X(id, 6, matrices, "matrixDescriptorWithRows:columns:matrices:rowBytes:matrixBytes:dataType:", \
      NSUInteger, NSUInteger, NSUInteger, NSUInteger, NSUInteger, uint32_t)                        \
    X(id, 3, newWithBuffer, "initWithBuffer:offset:descriptor:", id, NSUInteger, id)               \
    X(id, 8, newProduct,                                                                           \
      "initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:"      \
      "alpha:beta:", id, BOOL, BOOL, NSUInteger, NSUInteger, NSUInteger, double, double)           \
    X(void, V4, encodeProduct, "encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:", id,   \
      id, id, id)                                                                                  \
    /* MPSNDArrayDescriptor, MPSGraphTensorData, MPSCommandBuffer */                               \
    X(id, 2, arrayOf, "descriptorWithDataType:shape:", uint32_t, id)                               \
    X(void, V1, setPreferPackedRows, "setPreferPackedRows:", BOOL)                                 \
    X(id, 1, newTensorData, "initWithMPSNDArray:", id)                                             \
    X(id, 1, wrap, "commandBufferWithCommandBuffer:", id)                                          \
    X(id, 0, root, "rootCommandBuffer", void)                                                      \
    /* MPSGraphDevice, MPSGraphShapedType, MPSGraph, MPSGraphExecutable */                         \
    X(id, 1, graphDevice, "deviceWithMTLDevice:", id)                                              \
    X(id, 2, newShapedType, "initWithShape:dataType:", id, uint32_t)                               \
    X(void, V1, setOptions, "setOptions:", uint64_t)                                               \
    X(id, 3, placeholder, "placeholderWithShape:dataType:name:", id, uint32_t, id)                 \
    X(id, 12, convolution,                                                                         \
      "descriptorWithStrideInX:strideInY:dilationRateInX:dilationRateInY:groups:paddingLeft:"      \
      "paddingRight:paddingTop:paddingBottom:paddingStyle:dataLayout:weightsLayout:",              \
      NSUInteger, NSUInteger, NSUInteger, NSUInteger, NSUInteger, NSUInteger, NSUInteger,          \
      NSUInteger, NSUInteger, NSUInteger, NSUInteger, NSUInteger)                                  \
    X(id, 4, convolve, "convolution2DWithSourceTensor:weightsTensor:descriptor:name:", id, id, id, \
      id)                                                                                          \
    X(id, 5, dataGradient,                                                                         \
      "convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:"             \
      "forwardConvolutionDescriptor:name:", id, id, id, id, id)                                    \
    X(id, 5, weightsGradient,                                                                      \
      "convolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:"           \
      "forwardConvolutionDescriptor:name:", id, id, id, id, id)                                    \
    X(id, 5, compile,                                                                              \
      "compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:", id, id, id, \
      id, id)                                                                                      \
    X(id, 0, feedTensors, "feedTensors", void)                                                     \
    X(id, 4, encodeGraph, "encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:",   \
      id, id, id, id)

#define WB__MPS_FIELD(result, n, name, selector, ...) SEL name;
typedef struct { WB__MPS_METHODS(WB__MPS_FIELD) } wb__mps_selectors;
#undef WB__MPS_FIELD
extern wb__mps_selectors wb__mps_selector;

#define WB__SELECTORS wb__mps_selector
#define WB__METHOD_5(result, name, A, B, C, D, E)                                                  \
    static inline result mtl_##name(id o, A a, B b, C c, D d, E e)                                 \
    { return WB__SEND(result, name, A, B, C, D, E), a, b, c, d, e); }
#define WB__METHOD_6(result, name, A, B, C, D, E, F)                                               \
    static inline result mtl_##name(id o, A a, B b, C c, D d, E e, F f)                            \
    { return WB__SEND(result, name, A, B, C, D, E, F), a, b, c, d, e, f); }
#define WB__METHOD_8(result, name, A, B, C, D, E, F, G, H)                                         \
    static inline result mtl_##name(id o, A a, B b, C c, D d, E e, F f, G g, H h)                  \
    { return WB__SEND(result, name, A, B, C, D, E, F, G, H), a, b, c, d, e, f, g, h); }
#define WB__METHOD_12(result, name, A, B, C, D, E, F, G, H, I, J, K, L)                            \
    static inline result mtl_##name(id o, A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k,   \
                                    L l)                                                           \
    {                                                                                              \
        return WB__SEND(result, name, A, B, C, D, E, F, G, H, I, J, K, L), a, b, c, d, e, f, g, h, \
                        i, j, k, l);                                                               \
    }
#define WB__METHOD_V4(result, name, A, B, C, D)                                                    \
    static inline void mtl_##name(id o, A a, B b, C c, D d)                                        \
    { WB__SEND(void, name, A, B, C, D), a, b, c, d); }
#define WB__METHOD(result, n, name, selector, ...) WB__METHOD_##n(result, name, __VA_ARGS__)
WB__MPS_METHODS(WB__METHOD)
#undef WB__METHOD
#undef WB__SELECTORS

/* ---- what both libraries share (mps.c) ------------------------------------------------------- */

/* Below this number of multiplications our own kernels are used: for each launch the libraries
 * create objects on the host and begin command encoders of their own, which takes longer than a
 * small step. */
enum { WB__MPS_MIN_WORK = 1 << 21 };

/* The value of a library's environment variable: whether it is used for small steps too. */
bool wb__mps_always(const char *variable);
/* MPS's name of a dtype; 0: the libraries are not used for this dtype. */
uint32_t wb__mps_type(wb_dtype t);
/* Whether the step is f16, which the libraries do not get: Apple does not promise sums in f32. */
static inline bool wb__mps_maybe_f16(const wb__step *step)
{
    return step->views[0].dtype == WB_F16 && step->precision == WB__PRECISION_HIGHEST;
}
/* Registers the selectors of this header.  Returns false, and writes `reason`, if Objective-C has
 * no class of one of these names. */
bool wb__mps_classes(const char *const *names, size_t n, char *reason, size_t capacity);
const char *wb__mps_status_name(int status);
bool wb__mps_is_memory_error(int status);

/* The memory of operand `buffer` at a launch, and the offset in it of byte `at` of the buffer. */
typedef struct { id buffer; size_t at; } wb__mps_place;
wb__mps_place wb__mps_place_of(const wb__gpu_addresses *a, int buffer, size_t at);

#endif
