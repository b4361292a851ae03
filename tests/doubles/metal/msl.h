/* The part of Metal's language that is not C++, and the tables of kernels, for a C++ compiler.  The
 * functions of Metal's library are in metal_stdlib, which a text must include.  See translate.c.
 *
 * A compiled kernel is a function, a table of its arguments, and the variable vgpu_here, which the
 * engine sets to the indices of the running item: one item at a time in the whole process. */
typedef decltype(sizeof 0) size_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

/* Vectors are aligned to their size; three elements take the memory of four.  The
 * constructors without arguments are constexpr: otherwise g++ would initialize arrays in a group's
 * memory at run time. */
template <class T> struct alignas(2 * sizeof(T)) vgpu_2 {
    typedef T type;
    enum { size = 2 };
    T x, y;
    constexpr vgpu_2() : x(), y() {}
    constexpr vgpu_2(T s) : x(s), y(s) {}
    constexpr vgpu_2(T a, T b) : x(a), y(b) {}
    T &operator[](int i) { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vgpu_3 {
    typedef T type;
    enum { size = 3 };
    T x, y, z;
    constexpr vgpu_3() : x(), y(), z() {}
    constexpr vgpu_3(T s) : x(s), y(s), z(s) {}
    constexpr vgpu_3(T a, T b, T c) : x(a), y(b), z(c) {}
    T &operator[](int i) { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vgpu_4 {
    typedef T type;
    enum { size = 4 };
    T x, y, z, w;
    constexpr vgpu_4() : x(), y(), z(), w() {}
    constexpr vgpu_4(T s) : x(s), y(s), z(s), w(s) {}
    constexpr vgpu_4(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    T &operator[](int i) { return (&x)[i]; }
};
#define VGPU_OPERATOR(op)                                                                          \
    template <template <class> class V, class T, int n = V<T>::size>                               \
    inline V<T> operator op(V<T> a, V<T> b)                                                        \
    {                                                                                              \
        for (int i = 0; i < n; i++) a[i] = a[i] op b[i];                                           \
        return a;                                                                                  \
    }                                                                                              \
    template <template <class> class V, class T, int n = V<T>::size>                               \
    inline V<T> operator op(V<T> a, typename V<T>::type s) { return a op V<T>(s); }                \
    template <template <class> class V, class T, int n = V<T>::size>                               \
    inline V<T> operator op(typename V<T>::type s, V<T> b) { return V<T>(s) op b; }                \
    template <template <class> class V, class T, int n = V<T>::size>                               \
    inline V<T> &operator op##=(V<T> &a, V<T> b) { return a = a op b; }
VGPU_OPERATOR(+) VGPU_OPERATOR(-) VGPU_OPERATOR(*) VGPU_OPERATOR(/)
#define VGPU_VECTORS(T)                                                                            \
    typedef vgpu_2<T> T##2;                                                                        \
    typedef vgpu_3<T> T##3;                                                                        \
    typedef vgpu_4<T> T##4;
VGPU_VECTORS(float) VGPU_VECTORS(int) VGPU_VECTORS(uint) VGPU_VECTORS(short)
VGPU_VECTORS(ushort) VGPU_VECTORS(char) VGPU_VECTORS(uchar)

/* ---- the running item ------------------------------------------------------------------------ */

struct vgpu_three { uint x, y, z; };
struct vgpu_position {
    vgpu_three item, group, items, groups;
    void (*barrier)(int line);
    void (*fence)();                    /* as in shim.h; not used */
    unsigned (*ticket)(unsigned *counter, unsigned most);
    char *launch_local;                         /* not used */
};
extern "C" __attribute__((visibility("default"))) vgpu_position vgpu_here;
vgpu_position vgpu_here;

inline vgpu_three vgpu_thread_position_in_threadgroup() { return vgpu_here.item; }
inline vgpu_three vgpu_threadgroup_position_in_grid() { return vgpu_here.group; }
inline vgpu_three vgpu_threads_per_threadgroup() { return vgpu_here.items; }
inline vgpu_three vgpu_threadgroups_per_grid() { return vgpu_here.groups; }
inline vgpu_three vgpu_threads_per_grid()
{
    const vgpu_three i = vgpu_here.items, g = vgpu_here.groups;
    return {g.x * i.x, g.y * i.y, g.z * i.z};
}
inline vgpu_three vgpu_thread_position_in_grid()
{
    const vgpu_three i = vgpu_here.items, g = vgpu_here.group, p = vgpu_here.item;
    return {g.x * i.x + p.x, g.y * i.y + p.y, g.z * i.z + p.z};
}
inline uint vgpu_thread_index_in_threadgroup()
{
    const vgpu_three i = vgpu_here.items, p = vgpu_here.item;
    return (p.z * i.y + p.y) * i.x + p.x;
}

/* A position as a parameter of type T. */
template <class T> struct vgpu_at;
template <> struct vgpu_at<uint> {
    static uint of(vgpu_three p) { return p.x; }
    static uint of(uint p) { return p; }
};
template <> struct vgpu_at<ushort> {
    static ushort of(vgpu_three p) { return (ushort)p.x; }
    static ushort of(uint p) { return (ushort)p; }
};
template <> struct vgpu_at<uint2> { static uint2 of(vgpu_three p) { return {p.x, p.y}; } };
template <> struct vgpu_at<uint3> { static uint3 of(vgpu_three p) { return {p.x, p.y, p.z}; } };
template <> struct vgpu_at<ushort2> {
    static ushort2 of(vgpu_three p) { return {(ushort)p.x, (ushort)p.y}; }
};
template <> struct vgpu_at<ushort3> {
    static ushort3 of(vgpu_three p) { return {(ushort)p.x, (ushort)p.y, (ushort)p.z}; }
};
template <class T> struct vgpu_at<const T> : vgpu_at<T> {};

/* ---- tables of kernels: as in metal.h -------------------------------------------------------- */

struct vgpu_argument {
    unsigned char index, is_group, is_reference;
    unsigned bytes, alignment;
};
struct vgpu_kernel {
    void (*call)(void **arguments);
    int n;
    const unsigned *sizes;
    const unsigned char *pointers;
    const char *name;
    const vgpu_argument *arguments;
    char *group, *group_end, *dynamic;
};

/* The type of parameter i of a function. */
template <class F, int i> struct vgpu_nth;
template <class A, class... B> struct vgpu_nth<void(A, B...), 0> { typedef A type; };
template <class A, class... B, int i> struct vgpu_nth<void(A, B...), i>
    : vgpu_nth<void(B...), i - 1> {};
template <class F, int i> using vgpu_type = typename vgpu_nth<F, i>::type;

/* An argument, by its address, as a parameter of type T: a pointer or a reference. */
template <class T> struct vgpu_from;
template <class T> struct vgpu_from<T *> {
    enum { reference = 0, bytes = sizeof(T), alignment = alignof(T) };
    static T *of(void *p) { return (T *)p; }
};
template <class T> struct vgpu_from<T &> {
    enum { reference = 1, bytes = sizeof(T), alignment = alignof(T) };
    static T &of(void *p) { return *(T *)p; }
};
#define VGPU_ARGUMENT(index, is_group, name, i)                                                    \
    {index, is_group, vgpu_from<vgpu_type<decltype(name), i>>::reference,                          \
     vgpu_from<vgpu_type<decltype(name), i>>::bytes,                                               \
     vgpu_from<vgpu_type<decltype(name), i>>::alignment}
#define VGPU_GROUP_PARTS(section)                                                                  \
    extern "C" {                                                                                   \
    extern char __start_##section[] __attribute__((visibility("hidden")));                        \
    extern char __stop_##section[] __attribute__((visibility("hidden")));                         \
    }
#define VGPU_KERNELS                                                                               \
    extern "C" __attribute__((visibility("default"))) const vgpu_kernel *const vgpu_kernels[];     \
    const vgpu_kernel *const vgpu_kernels[] = {
