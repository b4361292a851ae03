/* Declarations of the Objective-C runtime, Foundation and Metal: the types, constants and methods
 * that the Metal backend uses.  Weber calls them from C, so that no Objective-C compiler is needed.
 *
 * Names and types are Apple's.  A method is called through a C function with a short name, which
 * the list below gives beside the selector: mtl_newBuffer(device, length, options) sends
 * newBufferWithLength:options:.  Each function calls objc_msgSend as a function with the method's
 * types, as the runtime requires.  tests/drivers/metal_methods.c compares this file with a list of
 * Apple's declarations.
 *
 * Ownership: functions named mtl_new..., and mtl_retain, return an object that the caller releases.
 * All other objects belong to the autorelease pool of the call (wb__mtl_enter).
 */
#ifndef WB__OBJC_H
#define WB__OBJC_H

#include <stddef.h>
#include <stdint.h>

typedef struct objc_object *id;
typedef struct objc_selector *SEL;
typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef signed char BOOL;               /* `bool` on Apple's processors; both types have one byte */
typedef struct { NSUInteger width, height, depth; } MTLSize;

enum {
    MTLGPUFamilyApple7 = 1007, MTLGPUFamilyMetal3 = 5001,
    MTLResourceStorageModeShared = 0, MTLResourceStorageModePrivate = 2 << 4,
    MTLMathModeSafe = 0, MTLLanguageVersion3_0 = 3 << 16,
    MTLCommandBufferStatusCompleted = 4, MTLCommandBufferStatusError = 5,
    MTLCommandBufferErrorInternal = 1, MTLCommandBufferErrorTimeout = 2,
    MTLCommandBufferErrorPageFault = 3, MTLCommandBufferErrorAccessRevoked = 4,
    MTLCommandBufferErrorNotPermitted = 7, MTLCommandBufferErrorOutOfMemory = 8,
    MTLCommandBufferErrorInvalidResource = 9, MTLCommandBufferErrorMemoryless = 10,
    MTLCommandBufferErrorDeviceRemoved = 11, MTLCommandBufferErrorStackOverflow = 12
};
enum { MTL_MAX_BUFFERS = 31, MTL_MAX_BYTES = 4096 };  /* buffers of a kernel; limit of setBytes */

/* The methods: X(result, number of arguments, name, selector, types of the arguments).  V before
 * the number: the method returns nothing. */
#define WB__OBJC_METHODS(X)                                                                        \
    X(id, 0, newObject, "new", void)                                                               \
    X(id, 0, retain, "retain", void)                                                               \
    X(void, V0, release, "release", void)                                                          \
    X(BOOL, 1, respondsToSelector, "respondsToSelector:", SEL)                                     \
    X(id, 1, stringWithUTF8String, "stringWithUTF8String:", const char *)                          \
    X(const char *, 0, UTF8String, "UTF8String", void)                                             \
    X(NSUInteger, 0, count, "count", void)                                                         \
    X(id, 1, objectAtIndex, "objectAtIndex:", NSUInteger)                                          \
    X(id, 2, arrayWithObjects, "arrayWithObjects:count:", const id *, NSUInteger)                  \
    X(id, 1, fileURLWithPath, "fileURLWithPath:", id)                                              \
    X(NSInteger, 0, code, "code", void)                                                            \
    X(id, 0, localizedDescription, "localizedDescription", void)                                   \
    X(id, 0, processInfo, "processInfo", void)                                                     \
    X(id, 0, operatingSystemVersionString, "operatingSystemVersionString", void)                   \
    /* MTLDevice */                                                                                \
    X(id, 0, name, "name", void)                                                                   \
    X(uint64_t, 0, registryID, "registryID", void)                                                 \
    X(BOOL, 0, hasUnifiedMemory, "hasUnifiedMemory", void)                                         \
    X(BOOL, 1, supportsFamily, "supportsFamily:", NSInteger)                                       \
    X(NSUInteger, 0, maxBufferLength, "maxBufferLength", void)                                     \
    X(NSUInteger, 0, maxThreadgroupMemoryLength, "maxThreadgroupMemoryLength", void)               \
    X(uint64_t, 0, recommendedMaxWorkingSetSize, "recommendedMaxWorkingSetSize", void)             \
    X(NSUInteger, 0, currentAllocatedSize, "currentAllocatedSize", void)                           \
    X(id, 0, newCommandQueue, "newCommandQueue", void)                                             \
    X(id, 0, newEvent, "newEvent", void)                                                           \
    X(id, 2, newBuffer, "newBufferWithLength:options:", NSUInteger, NSUInteger)                    \
    X(id, 3, newLibrary, "newLibraryWithSource:options:error:", id, id, id *)                      \
    X(id, 2, newBinaryArchive, "newBinaryArchiveWithDescriptor:error:", id, id *)                  \
    X(id, 4, newPipeline, "newComputePipelineStateWithDescriptor:options:reflection:error:", id,   \
      NSUInteger, id *, id *)                                                                      \
    /* MTLCompileOptions, MTLLibrary, descriptors, MTLBinaryArchive, MTLComputePipelineState */    \
    X(void, V1, setMathMode, "setMathMode:", NSInteger)                                            \
    X(void, V1, setFastMathEnabled, "setFastMathEnabled:", BOOL)                                   \
    X(void, V1, setLanguageVersion, "setLanguageVersion:", NSUInteger)                             \
    X(id, 0, functionNames, "functionNames", void)                                                 \
    X(id, 1, newFunction, "newFunctionWithName:", id)                                              \
    X(void, V1, setUrl, "setUrl:", id)                                                             \
    X(void, V1, setComputeFunction, "setComputeFunction:", id)                                     \
    X(void, V1, setBinaryArchives, "setBinaryArchives:", id)                                       \
    X(void, V1, setMaxTotalThreads, "setMaxTotalThreadsPerThreadgroup:", NSUInteger)               \
    X(BOOL, 2, addPipeline, "addComputePipelineFunctionsWithDescriptor:error:", id, id *)          \
    X(BOOL, 2, serialize, "serializeToURL:error:", id, id *)                                       \
    X(NSUInteger, 0, maxTotalThreads, "maxTotalThreadsPerThreadgroup", void)                       \
    /* MTLBuffer, MTLCommandQueue, MTLCommandBuffer */                                             \
    X(void *, 0, contents, "contents", void)                                                       \
    X(id, 0, commandBuffer, "commandBuffer", void)                                                 \
    X(id, 0, computeCommandEncoder, "computeCommandEncoder", void)                                 \
    X(id, 0, blitCommandEncoder, "blitCommandEncoder", void)                                       \
    X(void, V2, encodeSignalEvent, "encodeSignalEvent:value:", id, uint64_t)                       \
    X(void, V2, encodeWaitForEvent, "encodeWaitForEvent:value:", id, uint64_t)                     \
    X(void, V0, commit, "commit", void)                                                            \
    X(void, V0, waitUntilCompleted, "waitUntilCompleted", void)                                    \
    X(NSUInteger, 0, status, "status", void)                                                       \
    X(id, 0, error, "error", void)                                                                 \
    /* MTLComputeCommandEncoder, MTLBlitCommandEncoder */                                          \
    X(void, V1, setPipeline, "setComputePipelineState:", id)                                       \
    X(void, V3, setBuffer, "setBuffer:offset:atIndex:", id, NSUInteger, NSUInteger)                \
    X(void, V3, setBytes, "setBytes:length:atIndex:", const void *, NSUInteger, NSUInteger)        \
    X(void, V2, dispatch, "dispatchThreadgroups:threadsPerThreadgroup:", MTLSize, MTLSize)         \
    X(void, V5, copyFromBuffer,                                                                    \
      "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", id, NSUInteger, id,          \
      NSUInteger, NSUInteger)                                                                      \
    X(void, V0, endEncoding, "endEncoding", void)

/* The runtime's functions.  send: objc_msgSend. */
typedef struct {
    void (*send)(void);
    SEL (*registerName)(const char *name);
    id (*getClass)(const char *name);
    void *(*pushPool)(void);
    void (*popPool)(void *pool);
} wb__objc_functions;
extern wb__objc_functions wb__objc;

#define WB__OBJC_FIELD(result, n, name, selector, ...) SEL name;
typedef struct { WB__OBJC_METHODS(WB__OBJC_FIELD) } wb__objc_selectors;
#undef WB__OBJC_FIELD
extern wb__objc_selectors wb__selector;

/* The methods as functions; mps.h has another list of methods, with selectors of its own. */
#define WB__SELECTORS wb__selector
#define WB__SEND(result, name, ...) \
    ((result (*)(id, SEL, __VA_ARGS__))wb__objc.send)(o, WB__SELECTORS.name
#define WB__METHOD_0(result, name, none)                                                           \
    static inline result mtl_##name(id o)                                                          \
    { return ((result (*)(id, SEL))wb__objc.send)(o, WB__SELECTORS.name); }
#define WB__METHOD_1(result, name, A)                                                              \
    static inline result mtl_##name(id o, A a) { return WB__SEND(result, name, A), a); }
#define WB__METHOD_2(result, name, A, B)                                                           \
    static inline result mtl_##name(id o, A a, B b)                                                \
    { return WB__SEND(result, name, A, B), a, b); }
#define WB__METHOD_3(result, name, A, B, C)                                                        \
    static inline result mtl_##name(id o, A a, B b, C c)                                           \
    { return WB__SEND(result, name, A, B, C), a, b, c); }
#define WB__METHOD_4(result, name, A, B, C, D)                                                     \
    static inline result mtl_##name(id o, A a, B b, C c, D d)                                      \
    { return WB__SEND(result, name, A, B, C, D), a, b, c, d); }
#define WB__METHOD_V0(result, name, none)                                                          \
    static inline void mtl_##name(id o)                                                            \
    { ((void (*)(id, SEL))wb__objc.send)(o, WB__SELECTORS.name); }
#define WB__METHOD_V1(result, name, A)                                                             \
    static inline void mtl_##name(id o, A a) { WB__SEND(void, name, A), a); }
#define WB__METHOD_V2(result, name, A, B)                                                          \
    static inline void mtl_##name(id o, A a, B b) { WB__SEND(void, name, A, B), a, b); }
#define WB__METHOD_V3(result, name, A, B, C)                                                       \
    static inline void mtl_##name(id o, A a, B b, C c)                                             \
    { WB__SEND(void, name, A, B, C), a, b, c); }
#define WB__METHOD_V5(result, name, A, B, C, D, E)                                                 \
    static inline void mtl_##name(id o, A a, B b, C c, D d, E e)                                   \
    { WB__SEND(void, name, A, B, C, D, E), a, b, c, d, e); }
#define WB__METHOD(result, n, name, selector, ...) WB__METHOD_##n(result, name, __VA_ARGS__)
WB__OBJC_METHODS(WB__METHOD)
#undef WB__METHOD
#undef WB__SELECTORS

#endif
