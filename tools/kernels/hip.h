/* What hiprtc declares by itself, as far as the kernels use it: clang compiles them as HIP without
 * AMD's headers and libraries (machine.py). */
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
/* HIP counts the waves of a SIMD that shall be resident, not groups. */
#define __launch_bounds__(items, waves)                                                            \
    __attribute__((amdgpu_flat_work_group_size(1, items), amdgpu_waves_per_eu(waves)))
#define FN_ static __device__ inline __attribute__((always_inline))

typedef __SIZE_TYPE__ size_t;
#define VECTORS_(type, name)                                                                       \
    typedef type name##2 __attribute__((ext_vector_type(2)));                                      \
    typedef type name##4 __attribute__((ext_vector_type(4)));                                      \
    FN_ name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                           \
    FN_ name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }
VECTORS_(float, float)
VECTORS_(int, int)
VECTORS_(unsigned, uint)
VECTORS_(unsigned short, ushort)
VECTORS_(unsigned char, uchar)

struct wb_place { unsigned x, y, z; };
#define PLACE_(name, at)                                                                           \
    FN_ wb_place name() { return wb_place{(unsigned)at##_x(), (unsigned)at##_y(),                  \
                                          (unsigned)at##_z()}; }
PLACE_(wb_thread, __builtin_amdgcn_workitem_id)
PLACE_(wb_block, __builtin_amdgcn_workgroup_id)
PLACE_(wb_size, __builtin_amdgcn_workgroup_size)
#define threadIdx wb_thread()
#define blockIdx wb_block()
#define blockDim wb_size()

FN_ void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    __builtin_amdgcn_s_barrier();
}
FN_ unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
FN_ unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
FN_ int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
FN_ float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
FN_ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
FN_ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
FN_ float sqrtf(float x) { return __builtin_sqrtf(x); }
FN_ float fabsf(float x) { return __builtin_fabsf(x); }
FN_ float floorf(float x) { return __builtin_floorf(x); }
__device__ float sinf(float), cosf(float), powf(float, float);      /* the kernels call none */
