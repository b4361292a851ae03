/* The part of the CUDA language that kernels use, for a C++ compiler.  It includes no standard
 * headers: their compilation would take longer than that of any kernel.  See vgpu.h.
 *
 * A compiled kernel is a function, a table of its arguments, and the variable vgpu_here, which the
 * engine sets to the indices of the running item: one item at a time in the whole process. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunknown-cuda-version"
#endif
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ VGPU_CUDA_ARCH
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
/* One group runs at a time, so that its shared memory can be static objects.  They are in a section
 * of their own, whose start and end the linker defines. */
#define __shared__ static __attribute__((section("vgpu_group"), aligned(16)))
#define threadIdx (vgpu_here.item)
#define blockIdx (vgpu_here.group)
#define blockDim (vgpu_here.items)
#define gridDim (vgpu_here.groups)
#define __syncthreads() (vgpu_here.barrier(__LINE__))

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
struct int2 { int x, y; };
struct uint2 { unsigned x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
#define warpSize 32

typedef decltype(sizeof 0) size_t;

struct vgpu_position {
    uint3 item, group, items, groups;
    void (*barrier)(int line);
    void (*fence)();
    unsigned (*ticket)(unsigned *counter, unsigned most);
    char *launch_local;                 /* the shared memory that the launch asked for */
};
extern "C" __attribute__((visibility("default"))) vgpu_position vgpu_here;
vgpu_position vgpu_here;
#define vgpu_launch_local() ((void *)vgpu_here.launch_local)

/* ---- functions ------------------------------------------------------------------------------- */

extern "C" {
#define VGPU_MATH1(name) double name(double) noexcept; float name##f(float) noexcept;
VGPU_MATH1(fabs) VGPU_MATH1(sqrt) VGPU_MATH1(exp) VGPU_MATH1(exp2) VGPU_MATH1(expm1) VGPU_MATH1(log)
VGPU_MATH1(log2) VGPU_MATH1(log10) VGPU_MATH1(log1p) VGPU_MATH1(sin) VGPU_MATH1(cos) VGPU_MATH1(tan)
VGPU_MATH1(tanh) VGPU_MATH1(sinh) VGPU_MATH1(cosh) VGPU_MATH1(asin) VGPU_MATH1(acos)
VGPU_MATH1(atan) VGPU_MATH1(erf) VGPU_MATH1(erfc) VGPU_MATH1(floor) VGPU_MATH1(ceil)
VGPU_MATH1(trunc) VGPU_MATH1(rint) VGPU_MATH1(nearbyint) VGPU_MATH1(round) VGPU_MATH1(cbrt)
#define VGPU_MATH2(name) double name(double, double) noexcept; float name##f(float, float) noexcept;
VGPU_MATH2(pow) VGPU_MATH2(fmod) VGPU_MATH2(fmax) VGPU_MATH2(fmin) VGPU_MATH2(atan2)
VGPU_MATH2(copysign) VGPU_MATH2(hypot)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
void *memcpy(void *, const void *, size_t) noexcept;
void *memset(void *, int, size_t) noexcept;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __expf expf
#define __logf logf
#define __fdividef(x, y) ((x) / (y))

template <class To, class From> static inline To vgpu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
#define __float_as_uint(x) (vgpu_bits<unsigned, float>(x))
#define __float_as_int(x) (vgpu_bits<int, float>(x))
#define __uint_as_float(x) (vgpu_bits<float, unsigned>(x))
#define __int_as_float(x) (vgpu_bits<float, int>(x))
#define __double_as_longlong(x) (vgpu_bits<long long, double>(x))
#define __longlong_as_double(x) (vgpu_bits<double, long long>(x))
static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((unsigned long long)x * y >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
#define __clz(x) ((x) ? __builtin_clz((unsigned)(x)) : 32)
#define __ffs(x) __builtin_ffs((int)(x))
#define __popc(x) __builtin_popcount((unsigned)(x))
#define __ldg(p) (*(p))

/* One item runs at a time: ordinary accesses are atomic. */
template <class T> static inline T atomicAdd(T *p, T v) { T was = *p; *p = was + v; return was; }
template <class T> static inline T atomicExch(T *p, T v) { T was = *p; *p = v; return was; }
template <class T> static inline T atomicMax(T *p, T v)
{
    T was = *p;
    if (v > was) *p = v;
    return was;
}
template <class T> static inline T atomicMin(T *p, T v)
{
    T was = *p;
    if (v < was) *p = v;
    return was;
}
template <class T> static inline T atomicOr(T *p, T v) { T was = *p; *p = was | v; return was; }
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    T was = *p;
    if (was == expected) *p = v;
    return was;
}
#define atomicInc(p, most) (vgpu_here.ticket((p), (most)))
#define __threadfence() (vgpu_here.fence())
#define __threadfence_block() ((void)0)

/* ---- how a kernel is called ------------------------------------------------------------------ */

/* The vgpu_kernel of inside.h. */
struct vgpu_kernel {
    void (*call)(void **arguments);
    int n;
    const unsigned *sizes;              /* of each argument, in bytes */
    const unsigned char *pointers;      /* 1 for each argument that is a pointer */
};
template <class T> struct vgpu_bare { typedef T type; enum { pointer = 0 }; };
template <class T> struct vgpu_bare<T *> { typedef T *type; enum { pointer = 1 }; };
template <class T> struct vgpu_bare<T &> : vgpu_bare<T> {};
template <class T> struct vgpu_bare<const T> : vgpu_bare<T> {};
template <size_t... I> struct vgpu_indices {};
template <class F, F *f> struct vgpu_entry;
template <class... A, void (*f)(A...)> struct vgpu_entry<void(A...), f> {
    static constexpr unsigned sizes[] = {sizeof(typename vgpu_bare<A>::type)..., 0};
    static constexpr unsigned char pointers[] = {vgpu_bare<A>::pointer..., 0};
    template <class T, T... I> struct indices {
        static void call(void **p) { f(*(typename vgpu_bare<A>::type *)p[I]...); }
    };
#ifdef __clang__
    typedef __make_integer_seq<indices, int, sizeof...(A)> all;
#else
    typedef indices<int, __integer_pack((int)sizeof...(A))...> all;
#endif
};
template <class... A, void (*f)(A...)> constexpr unsigned vgpu_entry<void(A...), f>::sizes[];
template <class... A, void (*f)(A...)>
constexpr unsigned char vgpu_entry<void(A...), f>::pointers[];
#define VGPU_KERNEL(name)                                                                        \
    extern "C" __attribute__((visibility("default"))) const vgpu_kernel vgpu_kernel_##name = {   \
        vgpu_entry<decltype(name), name>::all::call,                                             \
        (int)sizeof(vgpu_entry<decltype(name), name>::pointers) - 1,                             \
        vgpu_entry<decltype(name), name>::sizes, vgpu_entry<decltype(name), name>::pointers};

/* The start and end of shared memory.  The first object makes the section exist. */
static __attribute__((section("vgpu_group"), aligned(16), used)) char vgpu_shared_first[16];
extern "C" {
extern char __start_vgpu_group[] __attribute__((visibility("hidden")));
extern char __stop_vgpu_group[] __attribute__((visibility("hidden")));
extern __attribute__((visibility("default"))) char *const vgpu_shared[2];
char *const vgpu_shared[2] = {__start_vgpu_group, __stop_vgpu_group};
}
