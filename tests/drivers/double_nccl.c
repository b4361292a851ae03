/* The test double of NCCL, by itself, with one rank or two: it must refuse and count the wrong uses
 * of its caller.  tests/dist tests what ranks do that use it well. */
#include "tests/doubles/cuda/driver.h"
#include "tests/doubles/cuda/vgpu.h"

#include "test.h"

/* The functions of the double. */
#include "backend/nccl/api.h"
#define DECLARED(type, name, parameters) extern type nccl##name parameters;
WB__NCCL_FUNCTIONS(DECLARED)

enum { N = 1000, BYTES = N * sizeof(float) };
enum { DEVICES = 4 };                   /* a case that fails on the last two ends their contexts */
static CUcontext context[DEVICES];
static CUstream stream[DEVICES];
static CUdeviceptr operand[DEVICES], result[DEVICES], x, y;
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

static wb__nccl_enum state_now(ncclComm_t c)
{
    wb__nccl_enum state;
    assert_int_equal(ncclCommGetAsyncError(c, &state), ncclSuccess);
    return state;
}

static wb__nccl_enum state_of(ncclComm_t c)
{
    wb__nccl_enum state = ncclInProgress;
    while (state == ncclInProgress) state = state_now(c);
    return state;
}

/* ---- communicators --------------------------------------------------------------------------- */

static ncclConfig_t config_of(int blocking)
{
    return (ncclConfig_t){.size = sizeof(ncclConfig_t), .magic = WB__NCCL_MAGIC,
                          .version = WB__NCCL_OLDEST, .blocking = blocking,
                          .cgaClusterSize = WB__NCCL_UNDEFINED, .minCTAs = WB__NCCL_UNDEFINED,
                          .maxCTAs = WB__NCCL_UNDEFINED};
}

/* Connects n ranks, which have the devices from `first` on. */
static void connect_ranks(int n, int first, ncclComm_t c[])
{
    ncclConfig_t config = config_of(0);
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < n; r++) {
        assert_int_equal(cuCtxPushCurrent_v2(context[first + r]), 0);
        assert_int_equal(ncclCommInitRankConfig(&c[r], n, id, r, &config), ncclInProgress);
        assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    }
    for (int r = 0; r < n; r++) assert_int_equal(state_of(c[r]), ncclSuccess);
}

static ncclComm_t connect_one(void)
{
    ncclComm_t c;
    connect_ranks(1, 0, &c);
    return c;
}

static wb__nccl_enum connect_with(ncclConfig_t *config)
{
    ncclComm_t c = NULL;
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    const wb__nccl_enum status = ncclCommInitRankConfig(&c, 1, id, 0, config);
    assert_int_equal(c != NULL, status == ncclSuccess || status == ncclInProgress);
    if (c) assert_int_equal(ncclCommAbort(c), ncclSuccess);
    return status;
}

/* The configuration of NCCL 2.27. */
typedef struct {
    ncclConfig_t old;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
} newer_config;

static wb__nccl_enum connect_newer(newer_config c)
{
    c.old.size = sizeof c;
    return connect_with(&c.old);
}

#define CONFIG_IS(status, ...)                                                                     \
    do {                                                                                           \
        ncclConfig_t config = config_of(1);                                                        \
        __VA_ARGS__;                                                                               \
        assert_int_equal(connect_with(&config), status);                                           \
        assert_int_equal(wrong_uses(), (status) != ncclSuccess);                                   \
    } while (0)

#define NEWER_IS(status, number, ...)                                                              \
    do {                                                                                           \
        newer_config config = {config_of(1), 1, 7, NULL, 1, 1, 1, 1};                              \
        config.old.version = number;                                                               \
        __VA_ARGS__;                                                                               \
        assert_int_equal(connect_newer(config), status);                                           \
        assert_int_equal(wrong_uses(), (status) != ncclSuccess);                                   \
    } while (0)

TEST(values_of_a_configuration)
{
    assert_int_equal(connect_with(NULL), ncclSuccess);
    CONFIG_IS(ncclSuccess, config.blocking = WB__NCCL_UNDEFINED);
    CONFIG_IS(ncclInvalidArgument, config.blocking = 2);
    CONFIG_IS(ncclInvalidArgument, config.magic = 0);
    CONFIG_IS(ncclInvalidArgument, config.size = 0);
    CONFIG_IS(ncclInvalidArgument, config.size = offsetof(ncclConfig_t, maxCTAs));
    CONFIG_IS(ncclSuccess, config.minCTAs = 4; config.maxCTAs = 4; config.cgaClusterSize = 8);
    CONFIG_IS(ncclSuccess, config.maxCTAs = 1; config.cgaClusterSize = 0);
    CONFIG_IS(ncclInvalidArgument, config.minCTAs = 0; config.maxCTAs = 4);
    CONFIG_IS(ncclInvalidArgument, config.maxCTAs = 0);
    CONFIG_IS(ncclInvalidArgument, config.minCTAs = 5; config.maxCTAs = 4);
    CONFIG_IS(ncclInvalidArgument, config.minCTAs = 1);         /* maxCTAs is the least number */
    CONFIG_IS(ncclInvalidArgument, config.cgaClusterSize = -1);
    CONFIG_IS(ncclInvalidArgument, config.cgaClusterSize = 9);
    CONFIG_IS(ncclSuccess, config.version = 21400; config.minCTAs = 0);     /* is not read */
    CONFIG_IS(ncclSuccess, config.version = 21300; config.blocking = 2);
    NEWER_IS(ncclSuccess, 22700, config.splitShare = 0);
    NEWER_IS(ncclInvalidArgument, 22700, config.splitShare = 2);
    NEWER_IS(ncclInvalidArgument, 22700, config.collnetEnable = 2);
    NEWER_IS(ncclInvalidArgument, 22700, config.CTAPolicy = 2);
    NEWER_IS(ncclInvalidArgument, 22700, config.shrinkShare = -1);
    NEWER_IS(ncclInvalidArgument, 22700, config.nvlsCTAs = 0);
    NEWER_IS(ncclSuccess, 21800, config.CTAPolicy = 2);
}

/* ---- operations ------------------------------------------------------------------------------ */

TEST(an_operation_runs_in_the_order_of_its_stream)
{
    float *values;
    assert_int_equal(cuMemHostAlloc((void **)&values, BYTES, 0), 0);
    for (int i = 0; i < N; i++) values[i] = (float)i;
    assert_int_equal(cuMemcpyHtoDAsync_v2(x, values, BYTES, stream[0]), 0);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInProgress);
    assert_int_equal(state_of(comm), ncclSuccess);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    memset(values, 0, BYTES);
    assert_int_equal(cuMemcpyDtoHAsync_v2(values, y, BYTES, stream[0]), 0);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    for (int i = 0; i < N; i++) assert_true(values[i] == (float)i);
    assert_int_equal(cuMemFreeHost(values), 0);
    assert_int_equal(wrong_uses(), 0);
}

/* Until CommGetAsyncError reports something else than ncclInProgress, the operation is not on its
 * stream, the communicator takes no other call, and nothing may be put on the stream. */
TEST(an_operation_in_progress)
{
    ncclComm_t c = connect_one();
    const CUstream s = stream[0];
    CUstream other;
    float *values;
    assert_int_equal(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cuMemHostAlloc((void **)&values, BYTES, 0), 0);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < N; k++) values[k] = i ? 3 : 1;
        assert_int_equal(cuMemcpyHtoDAsync_v2(i ? x : y, values, BYTES, s), 0);
        assert_int_equal(cuStreamSynchronize(s), 0);
    }
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, s), ncclInProgress);
    assert_int_equal(cuStreamSynchronize(s), 0);
    assert_int_equal(cuMemcpyDtoHAsync_v2(values, y, BYTES, other), 0);
    assert_int_equal(cuStreamSynchronize(other), 0);
    assert_true(values[0] == 1 && values[N - 1] == 1);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c, s), ncclInvalidArgument);
    REFUSES(ncclCommFinalize(c), ncclInvalidArgument);
    REFUSES(ncclCommDestroy(c), ncclInvalidArgument);
    assert_int_equal(state_of(c), ncclSuccess);
    assert_int_equal(cuMemcpyDtoHAsync_v2(values, y, BYTES, s), 0);
    assert_int_equal(cuStreamSynchronize(s), 0);
    assert_true(values[0] == 3 && values[N - 1] == 3);
    assert_int_equal(wrong_uses(), 0);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, s), ncclInProgress);
    assert_int_equal(cuMemcpyDtoHAsync_v2(values, y, BYTES, s), 0);
    REFUSES(state_of(c), ncclInvalidUsage);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    assert_int_equal(cuStreamSynchronize(s), 0);
    assert_int_equal(cuStreamDestroy_v2(other), 0);
    assert_int_equal(cuMemFreeHost(values), 0);
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
    /* an invalid argument has no effect */
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, s), ncclInProgress);
    assert_int_equal(state_of(comm), ncclSuccess);
    assert_int_equal(wrong_uses(), 0);
}

/* Operands may overlap only where an operation in place is documented.  Each has HALF elements on
 * each of two ranks. */
TEST(operands_that_overlap)
{
    enum { HALF = N / 4, EACH = HALF * sizeof(float) };
    ncclComm_t c[2];
    connect_ranks(2, 0, c);
    const CUstream s = stream[1];
    char *const at = (char *)(uintptr_t)operand[1];
    assert_int_equal(cuCtxPushCurrent_v2(context[1]), 0);
    REFUSES(ncclAllReduce(at, at + 4, HALF, ncclFloat32, ncclSum, c[1], s), ncclInvalidArgument);
    REFUSES(ncclBroadcast(at + 4, at, HALF, ncclFloat32, 1, c[1], s), ncclInvalidArgument);
    REFUSES(ncclReduce(at + 4, at, HALF, ncclFloat32, ncclSum, 1, c[1], s), ncclInvalidArgument);
    REFUSES(ncclAllGather(at, at, HALF, ncclFloat32, c[1], s), ncclInvalidArgument);
    REFUSES(ncclReduceScatter(at, at, HALF, ncclFloat32, ncclSum, c[1], s), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(at, at, HALF, ncclFloat32, ncclSum, c[1], s), ncclInProgress);
    assert_int_equal(state_of(c[1]), ncclSuccess);
    assert_int_equal(ncclAllGather(at + EACH, at, HALF, ncclFloat32, c[1], s), ncclInProgress);
    assert_int_equal(state_of(c[1]), ncclSuccess);
    assert_int_equal(ncclReduceScatter(at, at + EACH, HALF, ncclFloat32, ncclSum, c[1], s),
                     ncclInProgress);
    assert_int_equal(state_of(c[1]), ncclSuccess);
    /* only the root reads the operand of a broadcast, and writes the result of a reduction */
    assert_int_equal(ncclBroadcast(at + 4, at, HALF, ncclFloat32, 0, c[1], s), ncclInProgress);
    assert_int_equal(state_of(c[1]), ncclSuccess);
    assert_int_equal(ncclReduce(at + 4, at, HALF, ncclFloat32, ncclSum, 0, c[1], s),
                     ncclInProgress);
    for (int r = 0; r < 2; r++) assert_int_equal(ncclCommAbort(c[r]), ncclSuccess);
    assert_int_equal(cuStreamSynchronize(s), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    assert_int_equal(wrong_uses(), 0);
}

/* The current device and the stream must be those of the communicator; after such an error it can
 * only be aborted. */
TEST(another_device)
{
    ncclComm_t c = connect_one();
    assert_int_equal(cuCtxPushCurrent_v2(context[1]), 0);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c, stream[1]), ncclInvalidUsage);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInvalidUsage);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    c = connect_one();
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[1]), ncclInProgress);
    assert_int_equal(state_of(c), ncclUnhandledCudaError);
    assert_true(wrong_uses() > 0);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
}

TEST(groups)
{
    REFUSES(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInvalidUsage);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(wrong_uses(), 0);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* An operation of the rank c on device d, in a graph. */
static CUgraphExec capture(ncclComm_t c, int d)
{
    CUgraph graph;
    CUgraphExec exec;
    assert_int_equal(cuCtxPushCurrent_v2(context[d]), 0);
    assert_int_equal(cuStreamBeginCapture_v2(stream[d], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    assert_int_equal(reduce(operand[d], result[d], ncclFloat32, ncclSum, c, stream[d]),
                     ncclInProgress);
    assert_int_equal(state_of(c), ncclSuccess);
    assert_int_equal(cuStreamEndCapture(stream[d], &graph), 0);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    assert_int_equal(cuGraphDestroy(graph), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    return exec;
}

static void launch(CUgraphExec exec, int d)
{
    assert_int_equal(cuCtxPushCurrent_v2(context[d]), 0);
    assert_int_equal(cuGraphLaunch(exec, stream[d]), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
}

/* The operation must be captured on all ranks, or on none. */
TEST(one_rank_captures)
{
    ncclComm_t c[4];
    CUgraphExec exec[4];
    vgpu_books books;
    for (int first = 0; first < 4; first += 2) {
        connect_ranks(2, first, c + first);
        for (int d = first; d < first + 2; d++) launch(exec[d] = capture(c[d], d), d);
        assert_int_equal(cuStreamSynchronize(stream[first]), 0);
        assert_int_equal(cuStreamSynchronize(stream[first + 1]), 0);
    }
    assert_int_equal(wrong_uses(), 0);
    launch(exec[2], 2);
    assert_int_equal(cuCtxPushCurrent_v2(context[3]), 0);
    assert_int_equal(reduce(operand[3], result[3], ncclFloat32, ncclSum, c[3], stream[3]),
                     ncclInProgress);
    assert_int_equal(state_of(c[3]), ncclSuccess);
    assert_int_not_equal(cuStreamSynchronize(stream[3]), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    vgpu_read_books(&books);
    assert_string_equal(books.first_wrong, "nccl: the ranks perform different operations");
    assert_true(wrong_uses() > 0);
    for (int d = 0; d < 4; d++) {
        assert_int_equal(cuGraphExecDestroy(exec[d]), 0);
        assert_int_equal(ncclCommAbort(c[d]), ncclSuccess);
    }
}

/* The capture may not end while the operation is in progress. */
TEST(a_capture_that_ends_too_early)
{
    ncclComm_t c = connect_one();
    CUgraph graph;
    assert_int_equal(cuStreamBeginCapture_v2(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInProgress);
    assert_int_equal(cuStreamEndCapture(stream[0], &graph), 0);
    REFUSES(state_of(c), ncclInvalidUsage);
    assert_int_equal(cuGraphDestroy(graph), 0);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
}

/* ---- the end of a communicator --------------------------------------------------------------- */

/* A communicator ends only when no graph has its operations. */
TEST(a_graph_that_is_left)
{
    ncclComm_t c = connect_one();
    CUgraphExec exec = capture(c, 0);
    REFUSES(ncclCommDestroy(c), ncclInvalidUsage);
    assert_int_equal(ncclCommFinalize(c), ncclInProgress);
    for (int i = 0; i < 10; i++) assert_int_equal(state_now(c), ncclInProgress);
    REFUSES(ncclCommDestroy(c), ncclInvalidArgument);
    assert_int_equal(cuGraphExecDestroy(exec), 0);
    assert_int_equal(state_of(c), ncclSuccess);
    assert_int_equal(ncclCommDestroy(c), ncclSuccess);
    assert_int_equal(wrong_uses(), 0);
}

/* Its operations are complete, and all ranks have called it. */
TEST(ranks_that_finalise)
{
    ncclComm_t c[2];
    connect_ranks(2, 0, c);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(cuCtxPushCurrent_v2(context[r]), 0);
        assert_int_equal(reduce(operand[r], result[r], ncclFloat32, ncclSum, c[r], stream[r]),
                         ncclInProgress);
        assert_int_equal(state_of(c[r]), ncclSuccess);
        assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    }
    assert_int_equal(ncclCommFinalize(c[0]), ncclInProgress);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    assert_int_equal(cuStreamSynchronize(stream[1]), 0);
    for (int i = 0; i < 10; i++) assert_int_equal(state_now(c[0]), ncclInProgress);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c[0], stream[0]), ncclInvalidArgument);
    REFUSES(ncclCommDestroy(c[0]), ncclInvalidArgument);
    assert_int_equal(ncclCommFinalize(c[1]), ncclInProgress);
    assert_int_equal(state_of(c[0]), ncclSuccess);
    assert_int_equal(state_of(c[1]), ncclSuccess);
    REFUSES(ncclCommFinalize(c[0]), ncclInvalidArgument);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c[0], stream[0]), ncclInvalidUsage);
    assert_int_equal(ncclCommAbort(c[0]), ncclSuccess);
    assert_int_equal(ncclCommDestroy(c[1]), ncclSuccess);
    assert_int_equal(wrong_uses(), 0);
}

/* A communicator that blocks flushes its operations, and takes them at once. */
TEST(a_communicator_that_blocks)
{
    for (int finalises = 0; finalises < 2; finalises++) {
        ncclComm_t c;
        ncclUniqueId id;
        vgpu_books books;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&c, 1, id, 0), ncclSuccess);
        assert_int_equal(cuStreamSynchronize(stream[0]), 0);
        assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclSuccess);
        vgpu_read_books(&books);
        assert_int_equal(books.commands, 1);
        if (finalises) assert_int_equal(ncclCommFinalize(c), ncclSuccess);
        assert_int_equal(ncclCommDestroy(c), ncclSuccess);
        vgpu_read_books(&books);
        assert_int_equal(books.commands, 0);
    }
    assert_int_equal(wrong_uses(), 0);
}

/* CommAbort is allowed in each state. */
TEST(communicators_that_are_aborted)
{
    ncclComm_t c = NULL;
    ncclConfig_t config = config_of(0);
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(ncclCommInitRankConfig(&c, 2, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);            /* rank 1 has not come */
    c = connect_one();
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInProgress);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    c = connect_one();
    CUgraphExec exec = capture(c, 0);
    assert_int_equal(ncclCommFinalize(c), ncclInProgress);
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    assert_int_equal(cuGraphExecDestroy(exec), 0);
    assert_int_equal(wrong_uses(), 0);
}

TEST(a_communicator_that_has_ended)
{
    ncclComm_t c = connect_one();
    assert_int_equal(ncclCommDestroy(c), ncclSuccess);
    REFUSES(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclInvalidArgument);
    REFUSES(ncclCommDestroy(c), ncclInvalidArgument);
}

/* VGPU_NCCL_FAIL: a call fails once; a running operation does not end until it is aborted, and
 * CommGetAsyncError reports it. */
TEST(failures)
{
    ncclComm_t c = connect_one();
    setenv("VGPU_NCCL_FAIL", "AllReduce:1", 1);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, c, stream[0]), ncclSystemError);
    assert_non_null(strstr(ncclGetLastError(c), "AllReduce:1"));
    assert_int_equal(ncclCommAbort(c), ncclSuccess);
    assert_int_equal(reduce(x, y, ncclFloat32, ncclSum, comm, stream[0]), ncclInProgress);
    assert_int_equal(state_of(comm), ncclSuccess);
    assert_int_equal(cuStreamSynchronize(stream[0]), 0);
    setenv("VGPU_NCCL_FAIL", "Running:3", 1);           /* the count goes on */
    c = connect_one();
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
    setenv("VGPU_DEVICES", "4", 1);
    if (cuInit(0)) return 1;
    for (int d = DEVICES - 1; d >= 0; d--) {
        if (cuDevicePrimaryCtxRetain(&context[d], d) || cuCtxPushCurrent_v2(context[d]) ||
            cuStreamCreate(&stream[d], CU_STREAM_NON_BLOCKING) ||
            cuMemAlloc_v2(&operand[d], BYTES) || cuMemAlloc_v2(&result[d], BYTES))
            return 1;
        if (d) cuCtxPopCurrent_v2(NULL);
    }
    x = operand[0];
    y = result[0];
    comm = connect_one();
    return 0;
}

static int end(void **state)
{
    cuCtxSynchronize();
    vgpu_forget();
    return ncclCommDestroy(comm);
}

int main(void) { return run_cases(begin, end); }
