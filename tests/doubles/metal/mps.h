/* Declarations that the doubles of MPS and of MPSGraph share.
 *
 *   mps.c        MetalPerformanceShaders: matrices and their product, MPSNDArray, MPSCommandBuffer
 *   mpsgraph.c   MetalPerformanceShadersGraph: graphs of convolutions
 *
 * What they check is in Apple's headers (MPSMatrix.h, MPSMatrixMultiplication.h, MPSNDArray.h,
 * MPSCommandBuffer.h, MPSGraph*.h).  They compute in double, when the command buffer runs.
 *
 *   VGPU_MPS_SUPPORTS=0   MPSSupportsMTLDevice answers NO
 *   VGPU_MPS_COMMITS=n    each executable calls commitAndContinue: 1 before its command, 2 after, 3
 *                         both */
#ifndef VGPU_MPS_H
#define VGPU_MPS_H

#include "metal.h"

#include "../cuda/number.h"

enum { MPS_F16 = 0x10000000 | 16, MPS_F32 = 0x10000000 | 32 };
static inline bool mps_is_type(uint32_t t) { return t == MPS_F16 || t == MPS_F32; }
static inline size_t mps_bytes(uint32_t t) { return (t & 0xffff) / 8; }
static inline int mps_number(uint32_t t) { return t == MPS_F16 ? VGPU_F16 : VGPU_F32; }

enum { MPS_DIMS = 4 };

/* The sizes of a tensor, the outermost first. */
typedef struct { size_t n; int64_t size[MPS_DIMS]; } mps_shape;
/* Reads an NSArray of NSNumbers.  False: it is none, which is counted as a wrong use. */
VGPU_API bool mps_read_shape(const void *list, mps_shape *shape, const char *where);
static inline bool mps_same(const mps_shape *a, const mps_shape *b)
{
    return a->n == b->n && !memcmp(a->size, b->size, a->n * sizeof *a->size);
}
static inline int64_t mps_count(const mps_shape *s)
{
    int64_t n = 1;
    for (size_t i = 0; i < s->n; i++) n *= s->size[i];
    return n;
}

typedef struct {
    struct objc_object object;
    mps_shape shape;
    uint32_t type;
    bool packed;
} mps_array_descriptor;

/* An MPSNDArray with packed rows. */
typedef struct {
    struct objc_object object;
    metal_buffer *buffer;               /* NULL: not initialised */
    char *at;
    mps_shape shape;
    uint32_t type;
} mps_array;

typedef struct {
    struct objc_object object;
    id root;
} mps_commands;

VGPU_API extern objc_class mps_array_class, mps_commands_class;
VGPU_API void mps_commit_and_continue(mps_commands *c);

#endif
