/* The test double of NCCL, by itself, with one rank: it must refuse and count the wrong uses of its
 * caller.  tests/dist tests what several ranks do. */
#include "tests/doubles/cuda/driver.h"
#include "tests/doubles/cuda/vgpu.h"

#include "test.h"

/* The functions of the double. */
#include "backend/nccl/api.h"
#define DECLARED(type, name, parameters) extern type nccl##name parameters;
WB__NCCL_FUNCTIONS(DECLARED)

enum { N = 1000, BYTES = N * sizeof(float) };
static CUcontext context[2];
static CUstream stream[2];
static CUdeviceptr x, y;
static ncclComm_t comm;

/* The double refuses the call and counts it. */
#define REFUSES(call, code)                                                                        \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        assert_int_equal(wrong_uses(), 1);                                                         \
    } while (0)

static int64_t wrong_uses(void)
{
    vgpu_books b;
    vgpu_read_books(&b);
    vgpu_forget();
    return b.wrong;
}

static wb__nccl_enum reduce(CUdeviceptr from, CUdeviceptr to, unsigned type, unsigned op,
                            ncclComm_t c, CUstream s)
{
    return ncclAllReduce((void *)(uintptr_t)from, (void *)(uintptr_t)to, N, type, op, c, s);
}

static wb__nccl_enum state_of(ncclComm_t c)
{
    wb__nccl_enum state = ncclInProgress;
    while (state == ncclInProgress)
        assert_int_equal(ncclCommGetAsyncError(c, &state), ncclSuccess);
    return state;
}

TEST(an_operation_runs_in_the_order_of_its_stream)
{
    float *values;
    assert_int_equal(cuMemHostAlloc((void **)&values, BYTES, 0), 0);
    for (int i = 0; i < N; i++) values[i] = (float)i;
    assert_int_equal(cuMemcpyHtoDAsync_v2(x, values, BYTES, stream[0]), 0);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInProgress);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    assert_int_equal(state_of(comm), ncclSuccess);
    memset(values, 0, BYTES);
    assert_int_equal(cuMemcpyDtoHAsync_v2(values, y, BYTES, stream[0]), 0);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    for (int i = 0; i < N; i++) assert_true(values[i] == (float)i);
    assert_int_equal(cuMemFreeHost(values), 0);
    assert_int_equal(wrong_uses(), 0);
}

TEST(wrong_arguments)
{
    static int other;
    const CUstream s = stream[0];
    REFUSES(reduce(x, y, 99, ncclSum, comm, s), ncclInvalidArgument);
    REFUSES(reduce(x, y, ncclFloat32, 99, comm, s), ncclInvalidArgument);
    REFUSES(reduce(x, (CUdeviceptr)(uintptr_t)&other, ncclFloat32, ncclSum, comm, s),
            ncclInvalidArgument);
    REFUSES(reduce(x + BYTES / 2, y, ncclFloat64, ncclSum, comm, s), ncclInvalidArgument);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, NULL, s), ncclInvalidArgument);
    REFUSES(ncclBroadcast((void *)(uintptr_t)x, (void *)(uintptr_t)x, N, ncclUint8, 1, comm, s),
            ncclInvalidArgument);
    assert_int_equal(ncclGetVersion(NULL), ncclInvalidArgument);
}

/* The current device and the stream must be those of the communicator. */
TEST(another_device)
{
    assert_int_equal(cuCtxPushCurrent_v2(context[1]), 0);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, comm, stream[1]), ncclInvalidUsage);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[1]), ncclUnhandledCudaError);
    assert_true(wrong_uses() > 0);
}

TEST(groups)
{
    REFUSES(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInvalidUsage);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(wrong_uses(), 0);
}

static ncclComm_t connect_one(const char *version)
{
    ncclConfig_t config = {.size = sizeof config, .magic = version ? 0 : WB__NCCL_MAGIC,
                           .version = WB__NCCL_OLDEST, .blocking = 0};
    ncclUniqueId id;
    ncclComm_t c = NULL;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    const wb__nccl_enum result = ncclCommInitRankConfig(&c, 1, id, 0, &config);
    assert_int_equal(result, version ? ncclInvalidArgument : ncclInProgress);
    if (c) assert_int_equal(state_of(c), ncclSuccess);
    return c;
}

TEST(a_communicator_that_has_ended)
{
    assert_null(connect_one("without a magic number"));
    assert_int_equal(wrong_uses(), 1);
    ncclComm_t c = connect_one(NULL);
    assert_int_equal(ncclCommDestroy(c), ncclSuccess);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInvalidArgument);
    REFUSES(ncclCommDestroy(c), ncclInvalidArgument);
}

/* VGPU_NCCL_FAIL: a call fails once; a running operation does not end until it is aborted, and
 * CommGetAsyncError reports it. */
TEST(failures)
{
    setenv("VGPU_NCCL_FAIL", "AllReduce:1", 1);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclSystemError);
    assert_non_null(strstr(ncclGetLastError(comm), "AllReduce:1"));
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInProgress);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    setenv("VGPU_NCCL_FAIL", "Running:3", 1);           /* the count goes on */
    ncclComm_t c = connect_one(NULL);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInProgress);
    wb__nccl_enum state = ncclSuccess;
    for (int i = 0; i < 1000 && state != ncclSystemError; i++) state = state_of(c);
    assert_int_equal(state, ncclSystemError);
    unsetenv("VGPU_NCCL_FAIL");
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    assert_int_equal(wrong_uses(), 0);
}

static int begin(void **state)
{
    unsetenv("VGPU_STRICT");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("VGPU_DEVICES", "2", 1);
    if (cuInit(0)) return 1;
    for (int d = 1; d >= 0; d--) {
        if (cuDevicePrimaryCtxRetain(&context[d], d) || cuCtxPushCurrent_v2(context[d]) ||
            cuStreamCreate(&stream[d], CU_STREAM_NON_BLOCKING))
            return 1;
        if (d) cuCtxPopCurrent_v2(NULL);
    }
    if (cuMemAlloc_v2(&x, BYTES) || cuMemAlloc_v2(&y, BYTES)) return 1;
    comm = connect_one(NULL);
    return 0;
}

static int end(void **state)
{
    cuCtxSynchronize();
    vgpu_forget();
    return ncclCommDestroy(comm);
}

int main(void) { return run_cases(begin, end); }
