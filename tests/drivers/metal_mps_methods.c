/* The Metal backend has its own declarations of the methods of MPS and MPSGraph that it calls, in
 * src/backend/metal/mps.h.  Each is compared with Apple's types of the result and the arguments,
 * from the headers MPSMatrix.h, MPSMatrixMultiplication.h, MPSNDArray.h, MPSCommandBuffer.h,
 * MPSGraph.h, MPSGraphCore.h, MPSGraphDevice.h, MPSGraphMemoryOps.h, MPSGraphConvolutionOps.h,
 * MPSGraphTensorData.h and MPSGraphExecutable.h, and from the documentation of Foundation
 * (developer.apple.com, macOS 15).  No Apple header is needed. */
#include "test.h"

#include "backend/metal/mps.h"

static const struct { const char *selector, *types; } apple[] = {
    {"alloc", "instancetype"}, {"numberWithUnsignedInteger:", "NSNumber *; NSUInteger"},
    {"isOperatingSystemAtLeastVersion:", "BOOL; NSOperatingSystemVersion"},
    {"dictionaryWithObjects:forKeys:count:",
     "instancetype; const ObjectType *; const KeyType *; NSUInteger"},
    /* MPSMatrixDescriptor, MPSMatrix, MPSMatrixMultiplication */
    {"matrixDescriptorWithRows:columns:matrices:rowBytes:matrixBytes:dataType:",
     "instancetype; NSUInteger; NSUInteger; NSUInteger; NSUInteger; NSUInteger; MPSDataType"},
    /* MPSNDArray has a method of this name with an MPSNDArrayDescriptor, since macOS 15 */
    {"initWithBuffer:offset:descriptor:",
     "instancetype; id<MTLBuffer>; NSUInteger; MPSMatrixDescriptor *"},
    {"initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:alpha:"
     "beta:", "instancetype; id<MTLDevice>; BOOL; BOOL; NSUInteger; NSUInteger; NSUInteger; double;"
     " double"},
    {"encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:",
     "void; id<MTLCommandBuffer>; MPSMatrix *; MPSMatrix *; MPSMatrix *"},
    /* MPSNDArrayDescriptor, MPSGraphTensorData, MPSCommandBuffer */
    {"descriptorWithDataType:shape:", "instancetype; MPSDataType; NSArray<NSNumber *> *"},
    {"setPreferPackedRows:", "void; BOOL"}, {"initWithMPSNDArray:", "instancetype; MPSNDArray *"},
    {"commandBufferWithCommandBuffer:", "instancetype; id<MTLCommandBuffer>"},
    {"rootCommandBuffer", "id<MTLCommandBuffer>"},
    /* MPSGraphDevice, MPSGraphShapedType, MPSGraph, MPSGraphExecutable */
    {"deviceWithMTLDevice:", "instancetype; id<MTLDevice>"},
    {"initWithShape:dataType:", "instancetype; MPSShape *; MPSDataType"},
    {"setOptions:", "void; MPSGraphOptions"},
    {"placeholderWithShape:dataType:name:",
     "MPSGraphTensor *; MPSShape *; MPSDataType; NSString *"},
    {"descriptorWithStrideInX:strideInY:dilationRateInX:dilationRateInY:groups:paddingLeft:"
     "paddingRight:paddingTop:paddingBottom:paddingStyle:dataLayout:weightsLayout:",
     "instancetype; NSUInteger; NSUInteger; NSUInteger; NSUInteger; NSUInteger; NSUInteger;"
     " NSUInteger; NSUInteger; NSUInteger; MPSGraphPaddingStyle; MPSGraphTensorNamedDataLayout;"
     " MPSGraphTensorNamedDataLayout"},
    {"convolution2DWithSourceTensor:weightsTensor:descriptor:name:",
     "MPSGraphTensor *; MPSGraphTensor *; MPSGraphTensor *; MPSGraphConvolution2DOpDescriptor *;"
     " NSString *"},
    {"convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:"
     "forwardConvolutionDescriptor:name:",
     "MPSGraphTensor *; MPSGraphTensor *; MPSGraphTensor *; MPSShape *;"
     " MPSGraphConvolution2DOpDescriptor *; NSString *"},
    {"convolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:"
     "forwardConvolutionDescriptor:name:",
     "MPSGraphTensor *; MPSGraphTensor *; MPSGraphTensor *; MPSShape *;"
     " MPSGraphConvolution2DOpDescriptor *; NSString *"},
    {"compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:",
     "MPSGraphExecutable *; MPSGraphDevice *; MPSGraphTensorShapedTypeDictionary *;"
     " NSArray<MPSGraphTensor *> *; NSArray<MPSGraphOperation *> *;"
     " MPSGraphCompilationDescriptor *"},
    {"feedTensors", "NSArray<MPSGraphTensor *> *"},
    {"encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:",
     "NSArray<MPSGraphTensorData *> *; MPSCommandBuffer *; NSArray<MPSGraphTensorData *> *;"
     " NSArray<MPSGraphTensorData *> *; MPSGraphExecutableExecutionDescriptor *"},
};

/* The C type of one of Apple's types.  Names without a star that are not listed are no objects. */
static const char *type_in_c(const char *type)
{
    static const char *const all[][2] = {
        {"void", "void"}, {"BOOL", "BOOL"}, {"NSUInteger", "NSUInteger"}, {"double", "double"},
        {"NSOperatingSystemVersion", "NSOperatingSystemVersion"}, {"MPSDataType", "uint32_t"},
        {"MPSGraphOptions", "uint64_t"}, {"MPSGraphPaddingStyle", "NSUInteger"},
        {"MPSGraphTensorNamedDataLayout", "NSUInteger"}, {"instancetype", "id"},
        {"const ObjectType *", "const id *"}, {"const KeyType *", "const id *"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(type, all[i][0])) return all[i][1];
    if (!strchr(type, '*') && strncmp(type, "id<", 3)) fail_msg("%s is not known", type);
    return "id";
}

#define METHODS WB__MPS_METHODS
#include "apple_methods.h"

/* The values in MPSCoreTypes.h, MPSGraph.h, MPSGraphCore.h and MPSGraphTensor.h. */
TEST(constants)
{
    assert_int_equal(MPSDataTypeFloat32, 0x10000000 | 32);
    assert_int_equal(MPSDataTypeFloat16, 0x10000000 | 16);
    assert_int_equal(MPSGraphOptionsNone, 0);
    assert_int_equal(MPSGraphPaddingStyleExplicit, 0);
    assert_int_equal(MPSGraphTensorNamedDataLayoutNCHW, 0);
    assert_int_equal(MPSGraphTensorNamedDataLayoutNHWC, 1);
    assert_int_equal(MPSGraphTensorNamedDataLayoutOIHW, 2);
    assert_int_equal(MPSGraphTensorNamedDataLayoutHWIO, 3);
    assert_int_equal(sizeof(NSOperatingSystemVersion), 24);
}
