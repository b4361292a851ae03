/* The test double of NVIDIA's driver, by itself: it must reveal errors of its caller.  A missing
 * event or barrier leads to wrong numbers; a use of freed memory is a fault that all later calls
 * return; objects that were not freed are counted. */
#include "tests/doubles/cuda/driver.h"
#include "tests/doubles/cuda/vgpu.h"

#include "test.h"

enum { N = 256, BYTES = N * sizeof(float) };
static CUcontext context[2];
static CUstream home;                   /* a stream of the first device, for all tests */

static void expect(CUresult r, CUresult wanted, const char *call)
{
    const char *name = "?", *wanted_name = "?";
    if (r == wanted) return;
    cuGetErrorName(r, &name);
    cuGetErrorName(wanted, &wanted_name);
    fail_msg("%s is %s (%d), not %s", call, name, (int)r, wanted_name);
}
#define OK(call) expect(call, CUDA_SUCCESS, #call)
#define IS(call, code) expect(call, CUDA_ERROR_##code, #call)

static vgpu_books books(void)
{
    vgpu_books b;
    vgpu_read_books(&b);
    return b;
}

/* The double must have counted n wrong uses, which are then cleared. */
static void expect_wrong(int64_t n, const char *part)
{
    const vgpu_books b = books();
    if (b.wrong != n || !strstr(b.first_wrong, part))
        fail_msg("%lld wrong uses, not %lld; the first: %s", (long long)b.wrong, (long long)n,
                 b.first_wrong);
    vgpu_forget();
}

/* ---- kernels --------------------------------------------------------------------------------- */

static const char text[] =
    "#define KERNEL extern \"C\" __global__ void\n"
    "struct args { unsigned n; float a; };\n"
    "static __device__ float twice(float x) { return 2 * x; }\n"
    "KERNEL add(const float *x, float *y, const args a)\n"
    "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < a.n) y[i] = x[i] + a.a; }\n"
    "KERNEL set(float *x, const args a)\n"
    "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < a.n) x[i] = a.a; }\n"
    "KERNEL turn(float *x, const args a)\n"
    "{ __shared__ float s[64]; unsigned i = threadIdx.x;\n"
    "  s[i] = x[i]; __syncthreads(); x[i] = twice(s[63 - i]); }\n"
    "KERNEL turn_badly(float *x, const args a)\n"
    "{ __shared__ float s[64]; unsigned i = threadIdx.x;\n"
    "  s[i] = x[i]; x[i] = twice(s[63 - i]); }\n"
    "KERNEL diverge(float *x, const args a)\n"
    "{ if (threadIdx.x < 32) __syncthreads(); x[threadIdx.x] = 1; }\n"
    "KERNEL two(float *x, const args a)\n"
    "{ if (threadIdx.x < 32) __syncthreads();\n"
    "  else __syncthreads();\n"
    "  x[threadIdx.x] = 1; }\n"
    "KERNEL wild(float *x, const args a) { x[a.n] = 1; }\n"
    "KERNEL places(unsigned *x, const args a)\n"
    "{ unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
    "  unsigned j = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;\n"
    "  x[i * blockDim.x * blockDim.y * blockDim.z + j] = i * 1000 + j; }\n";

static char *image;
static CUmodule module[2];
typedef struct { unsigned n; float a; } args;

static CUfunction kernel(int d, const char *name)
{
    CUfunction f;
    OK(cuModuleGetFunction(&f, module[d], name));
    return f;
}

static CUresult launch(const char *name, int d, CUstream s, unsigned groups, unsigned items,
                       CUdeviceptr x, CUdeviceptr y, args a)
{
    void *two[] = {&x, &y, &a}, *one[] = {&x, &a};
    return cuLaunchKernel(kernel(d, name), groups, 1, 1, items, 1, 1, 0, s,
                          strcmp(name, "add") ? one : two, NULL);
}
static void add(CUstream s, CUdeviceptr x, CUdeviceptr y, float a)
{
    OK(launch("add", 0, s, N / 64, 64, x, y, (args){N, a}));
}

static void zero(CUstream s, CUdeviceptr x)
{
    OK(launch("set", 0, s, N / 64, 64, x, 0, (args){N, 0}));
}

static CUdeviceptr block(size_t bytes)
{
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

static CUstream stream(void)
{
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    return s;
}

static CUevent event(void)
{
    CUevent e;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    return e;
}

static float first(CUdeviceptr x)
{
    float v;
    OK(cuMemcpyDtoHAsync_v2(&v, x, sizeof v, home));
    return v;
}

static char *compile(const char *kernels, const char *option, nvrtcResult wanted)
{
    nvrtcProgram p;
    size_t bytes;
    char *data = NULL;
    assert_int_equal(nvrtcCreateProgram(&p, kernels, "k.cu", 0, NULL, NULL), NVRTC_SUCCESS);
    assert_int_equal(nvrtcCompileProgram(p, 2, (const char *[]){option, "--fmad=false"}), wanted);
    if (!wanted && !nvrtcGetCUBINSize(p, &bytes) && bytes) {
        data = malloc(bytes);
        nvrtcGetCUBIN(p, data);
    }
    assert_int_equal(nvrtcGetProgramLogSize(p, &bytes), NVRTC_SUCCESS);
    assert_true(wanted ? bytes > 10 : true);
    nvrtcDestroyProgram(&p);
    return data;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Commands on one stream, and on another stream one that needs their result; `waits`: it waits for
 * an event. */
static float chained(bool waits)
{
    CUstream a = stream(), b = stream();
    CUevent e = event();
    CUdeviceptr x = block(BYTES), y = block(BYTES);
    zero(a, x);
    for (int i = 0; i < 8; i++) add(a, x, x, 1);
    OK(cuEventRecord(e, a));
    if (waits) OK(cuStreamWaitEvent(b, e, 0));
    add(b, x, y, 100);
    OK(cuStreamSynchronize(b));
    const float v = first(y);
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    OK(cuEventDestroy_v2(e));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    return v;
}

TEST(a_missing_event_shows)
{
    static const char *const schedules[] = {"round", "latest", "lazy", "random:1", "random:2"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        setenv("VGPU_SCHEDULE", schedules[i], 1);
        assert_true(chained(true) == 108);
        assert_false(chained(false) == 108);
    }
    unsetenv("VGPU_SCHEDULE");
}

/* A copy reads pinned memory when it runs, and other host memory during the call. */
TEST(copies_read_the_host_when_the_driver_would)
{
    float pageable[N] = {1}, *pinned, back = 0;
    CUstream s = stream();
    CUdeviceptr x = block(BYTES);
    OK(cuMemHostAlloc((void **)&pinned, BYTES, 0));
    OK(cuMemcpyHtoDAsync_v2(x, pageable, BYTES, s));
    pageable[0] = 2;
    OK(cuMemcpyDtoHAsync_v2(&back, x, 4, s));
    assert_true(back == 1);
    pinned[0] = 3;
    OK(cuMemcpyHtoDAsync_v2(x, pinned, BYTES, s));
    pinned[0] = 4;                      /* before the copy has run */
    OK(cuMemcpyDtoHAsync_v2(&back, x, 4, s));
    assert_true(back == 4);
    OK(cuMemcpyDtoHAsync_v2(pinned + 1, x, 4, s));
    assert_false(pinned[1] == 4);       /* the copy has not run */
    OK(cuStreamSynchronize(s));
    assert_true(pinned[1] == 4);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree_v2(x));
    OK(cuStreamDestroy_v2(s));
}

TEST(events_are_done_when_their_stream_came_to_them)
{
    CUstream s = stream();
    CUevent e = event();
    CUdeviceptr x = block(BYTES);
    OK(cuEventSynchronize(e));          /* never recorded */
    zero(s, x);
    for (int i = 0; i < 3; i++) add(s, x, x, 1);
    OK(cuEventRecord(e, s));
    assert_int_equal(books().commands, 5);
    OK(cuEventSynchronize(e));
    assert_int_equal(books().commands, 0);
    assert_true(first(x) == 3);
    OK(cuEventDestroy_v2(e));
    OK(cuMemFree_v2(x));
    OK(cuStreamDestroy_v2(s));
    IS(cuStreamSynchronize(s), INVALID_HANDLE);
    IS(cuEventRecord(e, NULL), INVALID_HANDLE);     /* the double has no default stream */
    expect_wrong(2, "cuStreamSynchronize");
}

/* ---- kernels --------------------------------------------------------------------------------- */

TEST(items_know_their_places)
{
    CUdeviceptr x = block(4 * 3 * 2 * 2 * 24);
    args a = {0, 0};
    unsigned got[3 * 2 * 2 * 24];
    for (int backward = 0; backward < 2; backward++) {
        setenv("VGPU_ORDER", backward ? "backward" : "forward", 1);
        OK(cuLaunchKernel(kernel(0, "places"), 3, 2, 2, 4, 3, 2, 0, home, (void *[]){&x, &a},
                          NULL));
        OK(cuMemcpyDtoHAsync_v2(got, x, sizeof got, home));
        for (unsigned i = 0; i < 12; i++)
            for (unsigned j = 0; j < 24; j++) assert_int_equal(got[i * 24 + j], i * 1000 + j);
    }
    unsetenv("VGPU_ORDER");
    OK(cuMemFree_v2(x));
}

static bool turned(const char *name)
{
    CUdeviceptr x = block(64 * 4);
    float v[64];
    bool good = true;
    for (int i = 0; i < 64; i++) v[i] = (float)i;
    OK(cuMemcpyHtoDAsync_v2(x, v, sizeof v, home));
    OK(launch(name, 0, home, 1, 64, x, 0, (args){0}));
    OK(cuMemcpyDtoHAsync_v2(v, x, sizeof v, home));
    for (int i = 0; i < 64; i++) good &= v[i] == 2 * (float)(63 - i);
    OK(cuMemFree_v2(x));
    return good;
}

TEST(a_missing_barrier_shows)
{
    assert_true(turned("turn"));
    assert_false(turned("turn_badly"));
    setenv("VGPU_ORDER", "backward", 1);
    assert_true(turned("turn"));
    assert_false(turned("turn_badly"));
    unsetenv("VGPU_ORDER");
}

/* Creates a device's context with its kernels anew and makes it current. */
static void make_context(int d)
{
    OK(cuDevicePrimaryCtxRetain(&context[d], d));
    OK(cuCtxPushCurrent_v2(context[d]));
    OK(cuModuleLoadData(&module[d], image));
    if (!d) home = stream();
}

/* After a fault every call fails, until the context is created again. */
static void expect_fault(CUresult fault, const char *part)
{
    CUdeviceptr x;
    expect(cuCtxSynchronize(), fault, "cuCtxSynchronize");
    expect(cuMemAlloc_v2(&x, 4), fault, "cuMemAlloc");
    expect_wrong(1, part);
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    vgpu_forget();                      /* the objects of the old context count as leaks */
    make_context(0);
}

TEST(items_that_part_at_a_barrier_are_found)
{
    OK(launch("diverge", 0, stream(), 1, 64, block(BYTES), 0, (args){0}));
    expect_fault(CUDA_ERROR_LAUNCH_FAILED, "32 wait at the barrier");
    OK(launch("two", 0, stream(), 1, 64, block(BYTES), 0, (args){0}));
    expect_fault(CUDA_ERROR_LAUNCH_FAILED, "different barriers");
}

TEST(a_wrong_address_is_a_fault_that_stays)
{
    float v;
    CUdeviceptr x = block(BYTES);
    OK(launch("wild", 0, home, 1, 1, x, 0, (args){4096, 0}));      /* the fault follows */
    expect_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "wild");
    CUstream s = stream();
    OK(launch("add", 0, s, 1, 64, block(BYTES), (CUdeviceptr)(uintptr_t)&v, (args){64, 1}));
    expect_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "argument 1");
    x = block(BYTES);                   /* memory that device 1 cannot access */
    s = stream();
    OK(cuCtxPushCurrent_v2(context[1]));
    CUstream there;
    OK(cuStreamCreate(&there, 1));
    OK(launch("turn", 1, there, 1, 64, x, 0, (args){0}));
    IS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuCtxSynchronize());             /* only device 1 has the fault */
    expect_wrong(1, "nothing that device 1 reaches");
    OK(cuDevicePrimaryCtxRelease_v2(1));
    make_context(1);
    OK(cuCtxEnablePeerAccess(context[0], 0));
    OK(cuStreamCreate(&there, 1));
    OK(launch("turn", 1, there, 1, 64, x, 0, (args){0}));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(there));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(x));
    vgpu_forget();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static CUmemoryPool new_pool(void)
{
    CUmemoryPool pool;
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

TEST(memory_is_there_in_the_order_of_streams)
{
    CUstream a = stream(), b = stream();
    CUmemoryPool pool = new_pool();
    CUdeviceptr x;
    OK(cuMemAllocFromPoolAsync(&x, BYTES, pool, a));
    zero(a, x);
    add(a, x, x, 1);
    OK(cuMemFreeAsync(x, a));
    IS(cuMemFreeAsync(x, a), INVALID_VALUE);
    OK(cuCtxSynchronize());
    expect_wrong(1, "cuMemFreeAsync");
    setenv("VGPU_SCHEDULE", "lazy", 1);
    OK(cuMemAllocFromPoolAsync(&x, BYTES, pool, a));
    add(b, x, x, 1);                    /* before the allocation has run */
    OK(cuMemFreeAsync(x, a));
    IS(cuStreamSynchronize(b), ILLEGAL_ADDRESS);
    unsetenv("VGPU_SCHEDULE");
    expect_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "add");
    a = stream();
    x = block(BYTES);
    CUdeviceptr y = block(BYTES);
    OK(cuMemFree_v2(x));
    add(a, x, y, 1);                    /* after it was freed */
    expect_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "add");
}

TEST(memory_ends)
{
    size_t left, total, left_then;
    CUdeviceptr x, y;
    CUmemoryPool pool = new_pool();
    setenv("VGPU_MEMORY", "1000000", 1);
    OK(cuMemGetInfo_v2(&left, &total));
    assert_int_equal(total, 1000000);
    OK(cuMemAlloc_v2(&x, 600000));
    IS(cuMemAlloc_v2(&y, 600000), OUT_OF_MEMORY);
    IS(cuMemAllocFromPoolAsync(&y, 600000, pool, home), OUT_OF_MEMORY);
    OK(cuMemFree_v2(x));
    OK(cuMemAllocFromPoolAsync(&y, 600000, pool, home));
    OK(cuMemFreeAsync(y, home));
    OK(cuCtxSynchronize());
    OK(cuMemGetInfo_v2(&left_then, &total));
    assert_int_equal(left, left_then);
    OK(cuMemPoolDestroy(pool));
    unsetenv("VGPU_MEMORY");
}

TEST(what_is_left_is_counted)
{
    const vgpu_books before = books();
    CUstream s = stream();
    CUevent e = event();
    CUdeviceptr x = block(100);
    vgpu_books b = books();
    assert_int_equal(b.streams, before.streams + 1);
    assert_int_equal(b.events, before.events + 1);
    assert_int_equal(b.blocks, before.blocks + 1);
    assert_int_equal(b.bytes, before.bytes + 100);
    OK(cuStreamDestroy_v2(s));
    OK(cuEventDestroy_v2(e));
    OK(cuMemFree_v2(x));
    IS(cuEventDestroy_v2(e), INVALID_HANDLE);
    IS(cuMemFree_v2(x), INVALID_VALUE);
    IS(cuStreamDestroy_v2((CUstream)&b), INVALID_HANDLE);
    b = books();
    assert_int_equal(b.streams, before.streams);
    assert_int_equal(b.events, before.events);
    assert_int_equal(b.blocks, before.blocks);
    expect_wrong(3, "cuEventDestroy");
    assert_int_equal(vgpu_calls("cuEventDestroy_v2"), 0);
}

/* ---- contexts -------------------------------------------------------------------------------- */

TEST(calls_need_their_context)
{
    CUstream s = stream();
    CUdeviceptr x = block(BYTES);
    CUcontext c;
    OK(cuCtxPopCurrent_v2(&c));
    assert_ptr_equal(c, context[0]);
    IS(cuCtxSynchronize(), INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(context[1]));
    IS(launch("add", 1, s, 1, 64, x, x, (args){64, 1}), INVALID_HANDLE);
    CUevent e = event();
    IS(cuEventRecord(e, s), INVALID_HANDLE);
    OK(cuEventDestroy_v2(e));
    float v = 5;
    OK(cuMemcpyHtoDAsync_v2(x, &v, 4, s));          /* but copies may */
    OK(cuCtxPopCurrent_v2(NULL));
    IS(cuCtxPopCurrent_v2(NULL), INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(context[0]));
    OK(cuStreamSynchronize(s));
    assert_true(first(x) == 5);
    OK(cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(x));
    expect_wrong(4, "cuCtxSynchronize");
}

TEST(images_must_fit)
{
    CUmodule m;
    CUfunction f;
    IS(cuModuleLoadData(&m, "not an image at all"), INVALID_IMAGE);
    char *other = compile(text, "--gpu-architecture=sm_80", NVRTC_SUCCESS);
    IS(cuModuleLoadData(&m, other), NO_BINARY_FOR_GPU);
    free(other);
    assert_null(compile(text, "--gpu-architecture=compute_80", NVRTC_SUCCESS));     /* PTX only */
    compile(text, "--gpu-architecture=sm_30", NVRTC_ERROR_INVALID_OPTION);
    compile("no such words\n", "-arch=sm_90", NVRTC_ERROR_COMPILATION);
    IS(cuModuleGetFunction(&f, module[0], "nothing"), NOT_FOUND);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void end_streams(CUstream a, CUstream b)
{
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
}

TEST(graphs_run_what_was_captured)
{
    CUstream a = stream(), b = stream();
    CUdeviceptr x = block(BYTES), y = block(BYTES);
    CUgraph g;
    CUgraphExec run;
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    zero(a, x);
    add(a, x, x, 1);
    add(a, x, y, 2);
    add(a, y, y, 3);
    OK(cuStreamEndCapture(a, &g));
    zero(b, y);
    OK(cuStreamSynchronize(b));
    OK(cuStreamSynchronize(a));
    assert_true(first(y) == 0);         /* recorded commands have not run */
    OK(cuGraphInstantiateWithFlags(&run, g, 0));
    OK(cuGraphDestroy(g));
    OK(cuGraphLaunch(run, a));
    add(a, y, x, 10);
    OK(cuStreamSynchronize(a));
    assert_true(first(y) == 6 && first(x) == 16);
    OK(cuGraphLaunch(run, a));
    OK(cuGraphExecDestroy(run));        /* the launched graph still runs */
    OK(cuStreamSynchronize(a));
    assert_true(first(y) == 6 && first(x) == 1);
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    end_streams(a, b);
    assert_int_equal(books().graphs, 0);
    assert_int_equal(books().execs, 0);
}

/* x[0] is 5 by stream b, while a computes x[1]; then x[2] is x[0] + 1 by a, if it waits for b. */
TEST(graphs_have_branches)
{
    CUstream a = stream(), b = stream();
    const CUevent e = event();
    const CUdeviceptr x[] = {block(BYTES), block(BYTES), block(BYTES)};
    CUgraph g;
    CUgraphExec run;
    zero(a, x[2]);
    for (int joins = 0; joins < 2; joins++) {
        OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        zero(a, x[0]);
        OK(cuEventRecord(e, a));
        OK(cuStreamWaitEvent(b, e, 0));
        add(b, x[0], x[0], 5);
        add(a, x[2], x[1], 7);
        OK(cuEventRecord(e, b));
        if (joins) OK(cuStreamWaitEvent(a, e, 0));
        add(a, x[0], x[2], 1);
        if (joins) OK(cuStreamEndCapture(a, &g));
        else IS(cuStreamEndCapture(a, &g), STREAM_CAPTURE_UNJOINED);
    }
    OK(cuGraphInstantiateWithFlags(&run, g, 0));
    OK(cuGraphDestroy(g));
    setenv("VGPU_SCHEDULE", "random:3", 1);
    for (int i = 0; i < 20; i++) {
        OK(cuGraphLaunch(run, a));
        OK(cuStreamSynchronize(a));
        assert_true(first(x[0]) == 5 && first(x[1]) == (i ? 13 : 7) && first(x[2]) == 6);
    }
    unsetenv("VGPU_SCHEDULE");
    IS(cuStreamWaitEvent(b, e, 0), INVALID_VALUE);  /* it was recorded in a capture */
    vgpu_forget();
    OK(cuGraphExecDestroy(run));
    OK(cuEventDestroy_v2(e));
    for (int i = 0; i < 3; i++) OK(cuMemFree_v2(x[i]));
    end_streams(a, b);
}

TEST(captures_are_spoilt_by_what_they_cannot_hold)
{
    CUstream a = stream(), b = stream();
    CUevent e = event();
    CUdeviceptr x = block(BYTES), y;
    CUgraph g;
    float v = 1;
    const CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(cuStreamBeginCapture_v2(a, mode));
    IS(cuStreamSynchronize(a), STREAM_CAPTURE_UNSUPPORTED);
    IS(launch("add", 0, a, 1, 64, x, x, (args){64, 1}), STREAM_CAPTURE_INVALIDATED);
    IS(cuStreamEndCapture(a, &g), STREAM_CAPTURE_INVALIDATED);
    assert_null(g);
    OK(cuStreamBeginCapture_v2(a, mode));
    IS(cuMemAlloc_v2(&y, 4), STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(a, &g), STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(a, mode));
    IS(cuMemcpyHtoDAsync_v2(x, &v, 4, a), STREAM_CAPTURE_UNSUPPORTED);      /* pageable memory */
    IS(cuStreamEndCapture(a, &g), STREAM_CAPTURE_INVALIDATED);
    OK(cuEventRecord(e, b));
    OK(cuStreamBeginCapture_v2(a, mode));
    IS(cuStreamWaitEvent(a, e, 0), STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(a, &g), STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(books().graphs, 0);
    vgpu_forget();
    OK(cuStreamSynchronize(a));
    OK(cuMemFree_v2(x));
    OK(cuEventDestroy_v2(e));
    end_streams(a, b);
}

static int begin(void **state)
{
    int n;
    unsetenv("VGPU_STRICT");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("VGPU_DEVICES", "2", 1);
    if (cuInit(0) || cuDeviceGetCount(&n) || n != 2) return 1;
    image = compile(text, "--gpu-architecture=sm_90", NVRTC_SUCCESS);
    make_context(1);
    cuCtxPopCurrent_v2(NULL);
    make_context(0);
    return 0;
}

static int end(void **state)
{
    free(image);
    cuStreamDestroy_v2(home);
    cuModuleUnload(module[0]);
    cuCtxPopCurrent_v2(NULL);
    cuCtxPushCurrent_v2(context[1]);
    cuModuleUnload(module[1]);
    cuCtxPopCurrent_v2(NULL);
    cuDevicePrimaryCtxRelease_v2(0);
    cuDevicePrimaryCtxRelease_v2(1);
    const vgpu_books b = books();
    if (!b.wrong && !b.contexts && !b.streams && !b.events && !b.modules && !b.blocks
        && !b.host_blocks && !b.commands) return 0;
    print_error("%lld wrong uses, %s; left: %lld contexts, %lld streams, %lld blocks\n",
                (long long)b.wrong, b.first_wrong, (long long)b.contexts, (long long)b.streams,
                (long long)b.blocks);
    return 1;
}

int main(void) { return run_cases(begin, end); }
