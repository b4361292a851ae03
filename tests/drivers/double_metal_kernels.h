/* Kernels for the tests of the test double of Metal, and a queue. */
#ifndef WB_TEST_DOUBLE_METAL_KERNELS_H
#define WB_TEST_DOUBLE_METAL_KERNELS_H

#include "double_metal.h"

static id device[2], library, queue;
static struct { id add, set, turn, turn_badly, diverge, two, wild, places, dynamic, wide; } kernels;

/* ---- kernels --------------------------------------------------------------------------------- */

static const char source[] =
    "#include <metal_stdlib>\n"
    "#pragma METAL fp contract(off)\n"
    "using namespace metal;\n"
    "struct args { uint n; float a; };\n"
    "constant float twos[2] = {2, 2};\n"
    "#define AT uint i [[thread_position_in_grid]]\n"
    "static inline float twice(thread float *x) { return twos[1] * *x; }\n"
    "kernel void add(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],\n"
    "                constant args &a [[buffer(2)]], AT)\n"
    "{ if (i < a.n) y[i] = x[i] + a.a; }\n"
    "kernel void set(device float *x [[buffer(0)]], constant args &a [[buffer(2)]], AT)\n"
    "{ if (i < a.n) x[i] = a.a; }\n"
    "kernel void turn(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]])\n"
    "{ threadgroup float s[64]; threadgroup float *p = s; p[i] = x[i];\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  float v = s[63 - i]; x[i] = twice(&v); }\n"
    "kernel void turn_badly(device float *x [[buffer(0)]], ushort i [[thread_position_in_grid]])\n"
    "{ threadgroup float s[64]; s[i] = x[i]; x[i] = 2 * s[63 - i]; }\n"
    "kernel void diverge(device float *x [[buffer(0)]], AT)\n"
    "{ if (i < 32) threadgroup_barrier(mem_flags::mem_device); x[i] = 1; }\n"
    "kernel void two(device float *x [[buffer(0)]], AT)\n"
    "{ if (i < 32) threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  else threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  x[i] = 1; }\n"
    "kernel void wild(device float *x [[buffer(0)]], constant args &a [[buffer(2)]])\n"
    "{ x[a.n] = 1; }\n"
    "kernel void places(device uint4 *x [[buffer(0)]], uint3 p [[thread_position_in_grid]],\n"
    "                   uint3 all [[threads_per_grid]], uint3 n [[threads_per_threadgroup]],\n"
    "                   uint3 g [[threadgroup_position_in_grid]],\n"
    "                   uint3 gs [[threadgroups_per_grid]],\n"
    "                   uint j [[thread_index_in_threadgroup]],\n"
    "                   ushort3 l [[thread_position_in_threadgroup]])\n"
    "{ uint group = (g.z * gs.y + g.y) * gs.x + g.x;\n"
    "  uint item = (l.z * n.y + l.y) * n.x + l.x;\n"
    "  x[(p.z * all.y + p.y) * all.x + p.x] = uint4(group, item, j, 7) + uint4(1, 0, 0, 0); }\n"
    "kernel void dynamic(device uint *x [[buffer(0)]], threadgroup uint *s [[threadgroup(0)]],\n"
    "                    threadgroup uint *t [[threadgroup(1)]], AT)\n"
    "{ s[i] = i; t[i] = i * 10; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  x[i] = s[7 - i] + t[7 - i]; }\n"
    "kernel void wide(device float4 *x [[buffer(1)]]) { x[0] *= 2.0f * x[0] + x[0]; }\n";

typedef struct { unsigned n; float a; } args;
enum { N = 256, BYTES = N * sizeof(float) };

static inline id floats(void) { return new_buffer(device[0], BYTES, 0); }
static inline float first(id buffer) { return *(float *)contents(buffer); }

static inline id commands(void) { return get(queue, "commandBuffer"); }
static inline id compute(id c) { return get(c, "computeCommandEncoder"); }

static inline void encode(id e, id pipeline, id x, id y, args a)
{
    tell1(e, "setComputePipelineState:", pipeline);
    bind(e, x, 0, 0);
    bind(e, y, 0, 1);
    bind_bytes(e, &a, sizeof a, 2);
}

/* A command buffer of the queue with one launch, committed. */
static inline id launch_on(id q, id pipeline, id x, id y, args a, word groups, word items)
{
    id c = get(q, "commandBuffer"), e = compute(c);
    encode(e, pipeline, x, y, a);
    dispatch(e, groups, items);
    tell(e, "endEncoding");
    tell(c, "commit");
    return c;
}
static inline id launch(id pipeline, id x, id y, args a, word groups, word items)
{
    return launch_on(queue, pipeline, x, y, a, groups, items);
}

static inline void wait_for(id c) { tell(c, "waitUntilCompleted"); }
static inline void zero(id x) { wait_for(launch(kernels.set, x, NULL, (args){N, 0}, 4, 64)); }

/* ---- fixtures -------------------------------------------------------------------------------- */

static inline int begin(void **state)
{
    id *const all = &kernels.add;
    static const char *const names[] = {"add", "set", "turn", "turn_badly", "diverge", "two",
                                        "wild", "places", "dynamic", "wide"};
    unsetenv("VGPU_STRICT");
    setenv("VGPU_DEVICES", "2", 1);
    void *pool = objc_autoreleasePoolPush();
    id error = NULL, list = MTLCopyAllDevices();
    for (word i = 0; i < 2; i++) device[i] = SEND(id, (, word), list, SEL("objectAtIndex:"), i);
    objc_release(list);
    library = new_library(device[0], source, &error);
    if (!library) fail_msg("%s", reason(error));
    for (int i = 0; i < 10; i++) all[i] = new_pipeline(device[0], library, names[i]);
    queue = get(device[0], "newCommandQueue");
    objc_autoreleasePoolPop(pool);
    kept_objects = metal_books().objects;
    return 0;
}

static inline int end(void **state)
{
    id *const all = &kernels.add;
    for (int i = 0; i < 10; i++) objc_release(all[i]);
    objc_release(library);
    objc_release(queue);
    return metal_books().objects != 0;
}

#endif
