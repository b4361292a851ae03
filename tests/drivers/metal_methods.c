/* The Metal backend has its own declarations of the methods that it calls, in
 * src/backend/metal/objc.h.  Each is compared with Apple's types of the result and the arguments,
 * from the documentation of Foundation and Metal (developer.apple.com, macOS 14).  No Apple header
 * is needed. */
#include "test.h"

#include "backend/metal/objc.h"

static const struct { const char *selector, *types; } apple[] = {
    {"new", "instancetype"}, {"retain", "instancetype"}, {"release", "void"},
    {"respondsToSelector:", "BOOL; SEL"},
    {"stringWithUTF8String:", "instancetype; const char *"}, {"UTF8String", "const char *"},
    {"count", "NSUInteger"}, {"objectAtIndex:", "ObjectType; NSUInteger"},
    {"arrayWithObjects:count:", "instancetype; const ObjectType *; NSUInteger"},
    {"fileURLWithPath:", "NSURL *; NSString *"},
    {"code", "NSInteger"}, {"localizedDescription", "NSString *"},
    {"processInfo", "NSProcessInfo *"}, {"operatingSystemVersionString", "NSString *"},
    /* MTLDevice */
    {"name", "NSString *"}, {"registryID", "uint64_t"}, {"hasUnifiedMemory", "BOOL"},
    {"supportsFamily:", "BOOL; MTLGPUFamily"}, {"maxBufferLength", "NSUInteger"},
    {"maxThreadgroupMemoryLength", "NSUInteger"}, {"recommendedMaxWorkingSetSize", "uint64_t"},
    {"currentAllocatedSize", "NSUInteger"}, {"newCommandQueue", "id<MTLCommandQueue>"},
    {"newEvent", "id<MTLEvent>"},
    {"newBufferWithLength:options:", "id<MTLBuffer>; NSUInteger; MTLResourceOptions"},
    {"newLibraryWithSource:options:error:",
     "id<MTLLibrary>; NSString *; MTLCompileOptions *; NSError **"},
    {"newBinaryArchiveWithDescriptor:error:",
     "id<MTLBinaryArchive>; MTLBinaryArchiveDescriptor *; NSError **"},
    {"newComputePipelineStateWithDescriptor:options:reflection:error:",
     "id<MTLComputePipelineState>; MTLComputePipelineDescriptor *; MTLPipelineOption; "
     "MTLAutoreleasedComputePipelineReflection *; NSError **"},
    /* MTLCompileOptions, MTLLibrary, descriptors, MTLBinaryArchive, MTLComputePipelineState */
    {"setMathMode:", "void; MTLMathMode"}, {"setFastMathEnabled:", "void; BOOL"},
    {"setLanguageVersion:", "void; MTLLanguageVersion"}, {"functionNames", "NSArray<NSString *> *"},
    {"newFunctionWithName:", "id<MTLFunction>; NSString *"}, {"setUrl:", "void; NSURL *"},
    {"setComputeFunction:", "void; id<MTLFunction>"},
    {"setBinaryArchives:", "void; NSArray<id<MTLBinaryArchive>> *"},
    {"setMaxTotalThreadsPerThreadgroup:", "void; NSUInteger"},
    {"addComputePipelineFunctionsWithDescriptor:error:",
     "BOOL; MTLComputePipelineDescriptor *; NSError **"},
    {"serializeToURL:error:", "BOOL; NSURL *; NSError **"},
    {"maxTotalThreadsPerThreadgroup", "NSUInteger"},
    /* MTLBuffer, MTLCommandQueue, MTLCommandBuffer */
    {"contents", "void *"}, {"commandBuffer", "id<MTLCommandBuffer>"},
    {"computeCommandEncoder", "id<MTLComputeCommandEncoder>"},
    {"blitCommandEncoder", "id<MTLBlitCommandEncoder>"},
    {"encodeSignalEvent:value:", "void; id<MTLEvent>; uint64_t"},
    {"encodeWaitForEvent:value:", "void; id<MTLEvent>; uint64_t"}, {"commit", "void"},
    {"waitUntilCompleted", "void"}, {"status", "MTLCommandBufferStatus"}, {"error", "NSError *"},
    /* MTLComputeCommandEncoder, MTLBlitCommandEncoder */
    {"setComputePipelineState:", "void; id<MTLComputePipelineState>"},
    {"setBuffer:offset:atIndex:", "void; id<MTLBuffer>; NSUInteger; NSUInteger"},
    {"setBytes:length:atIndex:", "void; const void *; NSUInteger; NSUInteger"},
    {"dispatchThreadgroups:threadsPerThreadgroup:", "void; MTLSize; MTLSize"},
    {"copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:",
     "void; id<MTLBuffer>; NSUInteger; id<MTLBuffer>; NSUInteger; NSUInteger"},
    {"endEncoding", "void"},
};

/* The C type of one of Apple's types: enumerations are NSUInteger or NSInteger, and pointers to
 * objects are id. */
static const char *type_in_c(const char *type)
{
    static const char *const same[] = {"void", "BOOL", "SEL", "const char *", "NSUInteger",
                                       "NSInteger", "uint64_t", "void *", "const void *",
                                       "MTLSize"};
    static const char *const unsigned_enums[] = {"MTLResourceOptions", "MTLPipelineOption",
                                                 "MTLLanguageVersion", "MTLCommandBufferStatus"};
    static const char *const signed_enums[] = {"MTLGPUFamily", "MTLMathMode"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!strcmp(type, same[i])) return same[i];
    for (size_t i = 0; i < sizeof unsigned_enums / sizeof *unsigned_enums; i++)
        if (!strcmp(type, unsigned_enums[i])) return "NSUInteger";
    for (size_t i = 0; i < sizeof signed_enums / sizeof *signed_enums; i++)
        if (!strcmp(type, signed_enums[i])) return "NSInteger";
    if (!strcmp(type, "const ObjectType *")) return "const id *";
    if (!strcmp(type, "NSError **") ||
        !strcmp(type, "MTLAutoreleasedComputePipelineReflection *"))
        return "id *";
    return "id";
}

#define METHODS WB__OBJC_METHODS
#include "apple_methods.h"

int main(void) { return run_all_cases(); }
