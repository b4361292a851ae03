/* libweber-mpi: ranks connected by MPI.  It is compiled with one MPI, and a program that links with
 * it uses that MPI.  All calls of MPI come from one thread at a time, except MPI_Abort, which the
 * thread of the time-out calls during another call. */
#include "dist/dist.h"

#include "base/os.h"
#include "weber/distributed.h"

#include <locale.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>        /* MPIX_Query_cuda_support */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>            /* newlocale */
#endif

static const wb__dist_services *mpi_services;
static MPI_Comm mpi_comm = MPI_COMM_NULL;
static bool owns_mpi;                   /* this library has called MPI_Init_thread */
static const wb__communicator *mpi_self;

static int fail_if_mpi_failed(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return 0;
    int class = code;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &class);
    return mpi_services->fail(
        WB_ERROR_DEVICE, "MPI: rank %d of %d: %s: %s%s", mpi_self ? mpi_self->rank : 0,
        mpi_self ? mpi_self->size : 1, call, text,
        class != MPI_ERR_TRUNCATE
            ? ""
            : ": the ranks do not call the same"
              " functions in the same order, or with other shapes, gradients or frozen"
              " parameters");
}

/* ---- the time-out ---------------------------------------------------------------------------- */

/* A thread that ends all ranks if an operation takes too long: a rank that has ended, or waits for
 * something else, never takes part, and MPI would wait for that rank for ever. */
static struct {
    wb__os_mutex lock;
    wb__os_cond changed;
    wb__os_thread thread;
    bool running, stop, idle;           /* idle: the thread sleeps until an operation begins */
    const char *what;                   /* name of the operation in progress; NULL: none */
    int64_t bytes;                      /* size of its operand, for the message */
    double until;                   /* when the operation's time is over, in seconds of mpi_now */
} mpi_watch = {.lock = WB__OS_MUTEX_INIT, .changed = WB__OS_COND_INIT};

static double mpi_now(void) { return 1e-9 * (double)wb__os_clock(WB__OS_STEADY); }

/* Calls MPI_Abort after a pause.  The launcher of MPICH drops output of the ranks that it has not
 * read when one of them calls MPI_Abort: in the pause it reads the messages. */
static void abort_ranks(MPI_Comm of)
{
    fflush(stderr);
    wb__os_sleep(300 * 1000 * 1000);
    MPI_Abort(of, 1);
}

/* Ends all ranks.  In MPI_Finalize the communicator has been freed, and MPI_Abort of MPICH waits
 * for MPI_Finalize: then a signal ends the process, and the launcher ends the others. */
static void end_late_ranks(void)
{
    const bool ends = mpi_comm == MPI_COMM_NULL;
    uselocale(newlocale(LC_NUMERIC_MASK, "C", (locale_t)0));     /* so that numbers have a point */
    if (ends)
        fprintf(stderr, "weber: MPI: rank %d of %d has waited %g s in %s, after the last operation"
                " of all ranks, and ends\n", mpi_self->rank, mpi_self->size, mpi_services->timeout,
                mpi_watch.what);
    else
        fprintf(stderr, "weber: MPI: rank %d of %d has waited %g s for the other ranks in %s of"
                " %lld bytes: a rank has ended, or does not call the same functions in the same"
                " order. All ranks are ended.\n", mpi_self->rank, mpi_self->size,
                mpi_services->timeout, mpi_watch.what, (long long)mpi_watch.bytes);
    if (ends) wb__os_end_after(3);
    abort_ranks(ends ? MPI_COMM_WORLD : mpi_comm);
}

static void *watch_operations(void *unused)
{
    (void)unused;
    wb__os_mutex_lock(&mpi_watch.lock);
    while (!mpi_watch.stop) {
        if (!mpi_watch.what) {
            mpi_watch.idle = true;
            wb__os_cond_wait(&mpi_watch.changed, &mpi_watch.lock);
            mpi_watch.idle = false;
        } else if (!wb__os_cond_wait_for(&mpi_watch.changed, &mpi_watch.lock,
                                         mpi_watch.until - mpi_now()) &&
                   mpi_watch.what && mpi_now() >= mpi_watch.until) {
            end_late_ranks();
        }
    }
    wb__os_mutex_unlock(&mpi_watch.lock);
    return NULL;
}

/* Begins the time of an operation.  Wakes the thread only if it sleeps without an operation.
 * Otherwise the thread wakes by itself when the time of an earlier operation is over, and then
 * waits until the time of the present one is over: waking costs more than a small allreduce. */
static void begin_watch(const char *what, int64_t bytes)
{
    wb__os_mutex_lock(&mpi_watch.lock);
    mpi_watch.until = mpi_now() + mpi_services->timeout;
    mpi_watch.what = what;
    mpi_watch.bytes = bytes;
    if (mpi_watch.idle) wb__os_cond_wake_one(&mpi_watch.changed);
    wb__os_mutex_unlock(&mpi_watch.lock);
}

static void end_watch(void)
{
    wb__os_mutex_lock(&mpi_watch.lock);
    mpi_watch.what = NULL;
    wb__os_mutex_unlock(&mpi_watch.lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

static MPI_Datatype mpi_type_of(wb_dtype t)
{
    switch (t) {
    case WB_F32: return MPI_FLOAT;
    case WB_F64: return MPI_DOUBLE;
    case WB_I8: return MPI_INT8_T;
    case WB_U8: return MPI_UINT8_T;
    case WB_I32: return MPI_INT32_T;
    case WB_I64: return MPI_INT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

/* Returns the type of MPI for an element of this many bytes, with which large arrays have fewer
 * elements than an int can count.  Its values are only copied. */
static MPI_Datatype mpi_type_of_bytes(size_t bytes)
{
    return bytes == 8 ? MPI_INT64_T : bytes == 4 ? MPI_INT32_T : bytes == 2 ? MPI_INT16_T
                                                                            : MPI_BYTE;
}

static MPI_Op mpi_op_of(wb__ranks_op op)
{
    return op == WB__RANKS_SUM ? MPI_SUM : op == WB__RANKS_MIN ? MPI_MIN : MPI_MAX;
}

static size_t mpi_bytes_of(wb_dtype t)
{
    return t == WB_F64 || t == WB_I64 ? 8 : t == WB_F32 || t == WB_I32 ? 4
         : t == WB_F16 || t == WB_BF16 ? 2 : 1;
}

/* Counts of MPI are ints, so an operation is cut into parts of at most this many elements. */
enum { MPI_MOST = 1 << 30 };

/* Performs the operation on elements at to at + n - 1 of each rank's part. */
static int perform_part(const wb__collective *c, int64_t at, int n)
{
    const size_t size = mpi_bytes_of(c->dtype);
    const char *from = (const char *)c->from + (size_t)at * size;
    char *to = (char *)c->to + (size_t)at * size;
    const bool root = mpi_self->rank == c->root;
    switch (c->kind) {
    case WB__COLLECT_ALLREDUCE:
        return fail_if_mpi_failed(MPI_Allreduce(c->from == c->to ? MPI_IN_PLACE : from, to, n,
                                                mpi_type_of(c->dtype), mpi_op_of(c->op), mpi_comm),
                                  "MPI_Allreduce");
    case WB__COLLECT_REDUCE:
        return fail_if_mpi_failed(MPI_Reduce(from, root ? to : NULL, n, mpi_type_of(c->dtype),
                                             mpi_op_of(c->op), c->root, mpi_comm), "MPI_Reduce");
    case WB__COLLECT_BROADCAST:
        return fail_if_mpi_failed(MPI_Bcast(to, n * (int)size, MPI_BYTE, c->root, mpi_comm),
                                  "MPI_Bcast");
    case WB__COLLECT_BARRIER: return fail_if_mpi_failed(MPI_Barrier(mpi_comm), "MPI_Barrier");
    default: return 0;
    }
}

/* Performs an operation whose memory has a part for each rank, which cannot be cut by position. */
static int perform_parts(const wb__collective *c)
{
    if (c->n > MPI_MOST / (int64_t)mpi_self->size)
        return mpi_services->fail(WB_ERROR_UNSUPPORTED,
                                  "MPI: %lld elements for each of %d ranks are"
                                  " too many for one operation",
                                  (long long)c->n, mpi_self->size);
    if (c->kind == WB__COLLECT_ALLGATHER) {
        const MPI_Datatype t = mpi_type_of_bytes(mpi_bytes_of(c->dtype));
        return fail_if_mpi_failed(
            MPI_Allgather(c->from, (int)c->n, t, c->to, (int)c->n, t, mpi_comm), "MPI_Allgather");
    }
    return fail_if_mpi_failed(MPI_Reduce_scatter_block(c->from, c->to, (int)c->n,
                                                       mpi_type_of(c->dtype), mpi_op_of(c->op),
                                                       mpi_comm),
                              "MPI_Reduce_scatter_block");
}

/* Whether the program has called MPI_Finalize. */
static bool is_finalised(void)
{
    int finalised = 0;
    MPI_Finalized(&finalised);
    return finalised;
}

static int mpi_perform(const wb__collective *c)
{
    static const char *const names[] = {"an allreduce", "a reduce", "a reduce_scatter",
                                        "an allgather", "a broadcast", "a barrier"};
    const int64_t most = c->kind == WB__COLLECT_BROADCAST ? MPI_MOST / 8 : MPI_MOST;
    int status = 0;
    if (is_finalised())
        return mpi_services->fail(WB_ERROR_ARGUMENT,
                                  "MPI: rank %d of %d begins %s, and the program has"
                                  " called MPI_Finalize: call wb_distributed_finalize before it",
                                  mpi_self->rank, mpi_self->size, names[c->kind]);
    begin_watch(names[c->kind], c->n * (int64_t)mpi_bytes_of(c->dtype));
    if (c->kind == WB__COLLECT_ALLGATHER || c->kind == WB__COLLECT_REDUCE_SCATTER)
        status = perform_parts(c);
    else
        for (int64_t at = 0; !status && (at < c->n || !at); at += most)
            status = perform_part(c, at, (int)(c->n - at < most ? c->n - at : most));
    end_watch();
    return status;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static int find_ranks(wb__communicator *c)
{
    MPI_Comm local = MPI_COMM_NULL;
    int status = fail_if_mpi_failed(MPI_Comm_dup(MPI_COMM_WORLD, &mpi_comm), "MPI_Comm_dup");
    if (status) return status;
    MPI_Comm_set_errhandler(mpi_comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(mpi_comm, &c->rank);
    MPI_Comm_size(mpi_comm, &c->size);
    status = fail_if_mpi_failed(
        MPI_Comm_split_type(mpi_comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
        "MPI_Comm_split_type");
    if (status) return status;
    MPI_Comm_rank(local, &c->local_rank);
    MPI_Comm_size(local, &c->local_size);
    MPI_Comm_free(&local);
    return 0;
}

static bool takes_cuda, takes_rocm; /* MPI accepts addresses of memory of these GPUs */

/* Whether MPI accepts addresses of memory of the device. */
static bool mpi_takes_addresses_of(const wb_device *d)
{
    const char *name = d->backend->name;
    return !strcmp(name, "CUDA") ? takes_cuda : !strcmp(name, "AMDGPU") ? takes_rocm : false;
}

/* Sets takes_cuda and takes_rocm by what MPI answers or, if there is one, by a preference. */
static int ask_for_gpu_support(void)
{
#ifdef MPIX_GPU_SUPPORT_CUDA                        /* MPICH 4 */
    int cuda = 0, rocm = 0;
    MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &cuda);
    MPIX_GPU_query_support(MPIX_GPU_SUPPORT_HIP, &rocm);
    takes_cuda = cuda;
    takes_rocm = rocm;
#endif
#ifdef MPIX_CUDA_AWARE_SUPPORT                      /* Open MPI 2 */
    takes_cuda = MPIX_Query_cuda_support();
#endif
#ifdef MPIX_ROCM_AWARE_SUPPORT                      /* Open MPI 5 */
    takes_rocm = MPIX_Query_rocm_support();
#endif
    const int status = mpi_services->preference("FluxDistributedMPICUDAAware", &takes_cuda);
    return status ? status : mpi_services->preference("FluxDistributedMPIROCMAware", &takes_rocm);
}

/* Fails if another launcher has started this process: `weber launch`, the mpirun of another MPI, or
 * srun without MPI's plug-in.  The process is alone in the world of MPI, and would train alone. */
static int check_launcher(const wb__communicator *c)
{
    static const char *const sizes[] = {"WEBER_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    const char *name = "";
    long n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *size = getenv(sizes[i]);
        const long m = size ? strtol(size, NULL, 10) : 0;
        if (m > n) n = m, name = sizes[i];
    }
    if (c->size > 1 || n <= 1) return 0;
    MPI_Comm_free(&mpi_comm);
    if (owns_mpi) MPI_Finalize();
    return mpi_services->fail(WB_ERROR_DEVICE,
                              "MPI: this process is one of %ld by %s, but the only one"
                              " that MPI knows, and each would train alone: start the program by"
                              " `mpirun -np %ld` of the MPI that it is linked with, or by srun with"
                              " --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH); or unset %s",
                              n, name, n, name);
}

static int mpi_start(const wb__dist_services *given, wb__communicator *c)
{
    int initialised = 0, level = MPI_THREAD_SINGLE;
    mpi_services = given;
    MPI_Initialized(&initialised);
    if (is_finalised())
        return mpi_services->fail(WB_ERROR_ARGUMENT,
                                  "distributed_initialize: MPI has been finalised,"
                                  " and cannot be initialised again in this process: call"
                                  " wb_distributed_finalize at the end of the program");
    int status = 0;
    if (initialised) MPI_Query_thread(&level);
    else status = fail_if_mpi_failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level),
                                     "MPI_Init_thread");
    owns_mpi = !initialised;
    if (!status && level < MPI_THREAD_SERIALIZED)
        status = mpi_services->fail(WB_ERROR_DEVICE, "MPI: its thread level is below"
                                    " MPI_THREAD_SERIALIZED: ask MPI_Init_thread for it");
    if (!status) status = find_ranks(c);
    if (!status) status = check_launcher(c);
    if (!status) status = ask_for_gpu_support();
    if (status) return status;
    c->name = "MPI";
    c->perform = mpi_perform;
    c->takes = mpi_takes_addresses_of;
    mpi_self = c;
    mpi_watch.stop = false;
    if (!wb__os_thread_start(&mpi_watch.thread, watch_operations, NULL, false))
        return mpi_services->fail(WB_ERROR_MEMORY, "MPI: a thread cannot be created");
    mpi_watch.running = true;
    return 0;
}

static void stop_watch(void)
{
    wb__os_mutex_lock(&mpi_watch.lock);
    mpi_watch.stop = true;
    wb__os_cond_wake_one(&mpi_watch.changed);
    wb__os_mutex_unlock(&mpi_watch.lock);
    if (mpi_watch.running) wb__os_thread_join(mpi_watch.thread);
    mpi_watch.running = false;
}

static int mpi_stop(void)
{
    if (is_finalised()) {               /* the program has finalised MPI, whose barrier it used */
        stop_watch();
        return 0;
    }
    begin_watch("wb_distributed_finalize", 0);
    int status = fail_if_mpi_failed(MPI_Barrier(mpi_comm), "MPI_Barrier");
    if (!status) status = fail_if_mpi_failed(MPI_Comm_free(&mpi_comm), "MPI_Comm_free");
    if (!status && owns_mpi) {
        begin_watch("MPI_Finalize", 0);
        status = fail_if_mpi_failed(MPI_Finalize(), "MPI_Finalize");
    }
    end_watch();
    stop_watch();
    return status;
}

static void mpi_abort_all(void) { abort_ranks(mpi_comm); }

/* Returns the beginning of the library's version, "Open MPI v5.0.7", without package and date. */
static const char *mpi_library(int i)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int length = 0;
    if (i) return NULL;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = 0;
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' ';
    return text;
}

const wb_distributed_backend *wb_distributed_mpi(void)
{
    static const wb_distributed_backend backend = {
        .version = WB__DIST_VERSION, .name = "MPI", .start = mpi_start, .stop = mpi_stop,
        .abort = mpi_abort_all, .library = mpi_library};
    return &backend;
}
