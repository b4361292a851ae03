/* Weber, chapter 9: training by several processes, on one machine or on many.
 *
 * The processes, called ranks, run the same program on different parts of the data and average
 * their gradients.  A program that trains alone needs these changes:
 *
 *     wb_distributed_initialize(WB_MPI);
 *     data = wb_distributed_dataset(data);                 each rank gets its share
 *     state = wb_setup(wb_DistributedOptimizer(wb_Adam()), model);
 *     wb_distributed_synchronize(model);                   rank 0's values; wb_train does this
 *
 * and is started by `mpirun -np 4 ./program`.  Without wb_distributed_initialize there is one rank,
 * 0 of 1, and the same program trains alone.
 *
 * All ranks must call the same *collective* functions in the same order.  If one rank does not call
 * one of them, the others wait for it, and end with an error after the time-out.  A collective
 * function first evaluates the updates of this rank that are not evaluated yet, so that ranks may
 * read losses at different times. */
#ifndef WEBER_DISTRIBUTED_H
#define WEBER_DISTRIBUTED_H

#include "weber/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks ----------------------------------------------------------------------------------- */

/** A library that connects the ranks. */
typedef struct wb_distributed_backend wb_distributed_backend;
/** MPI.  The function is in a library of its own, which was built with one MPI: link with
 * -lweber-mpi before -lweber, or with the target weber::mpi of CMake. */
WB_API const wb_distributed_backend *wb_distributed_mpi(void);
#define WB_MPI (wb_distributed_mpi())
/** NCCL, for ranks that have a CUDA device each, or RCCL, for ranks that have an AMDGPU device
 * each.  The GPU that wb_gpu uses decides which; if there is none yet, the preferred device
 * backend, then the first that has a device, CUDA before AMDGPU.  libweber opens it at run time.
 * The program is started by `weber launch`, srun or mpirun; started alone it is rank 0 of 1.
 * Allreduces, allgathers and reduce_scatters of tensors on the rank's device do not pass through
 * the host; all other operations do. */
WB_API const wb_distributed_backend *wb_distributed_nccl(void);
#define WB_NCCL (wb_distributed_nccl())

/** Options of wb_distributed_initialize. */
#define wb_distributed_initialize_options_(OPT, ARG)                                               \
    /* seconds that a rank waits in one operation; then it ends all ranks with an error */         \
    OPT(double, timeout, 300)                                                                      \
    /* WB_NCCL: the number of GPUs that this process uses; -1: all.  Each has a rank of its own,
     * which wb_distributed_run runs.  0: the process is one rank */                               \
    OPT(int, devices, 0)                                                                           \
    /* WB_NCCL: WB_MPI, which then numbers the ranks and performs the operations on the host's
     * memory.  NULL: the launcher numbers the ranks, which meet at WEBER_RENDEZVOUS and prove
     * that they have the same WEBER_RENDEZVOUS_TOKEN, which `weber launch` draws and a program
     * under srun or mpirun should be given; without it any process that reaches the port of rank 0
     * may take the place of a rank */                                                             \
    OPT(const wb_distributed_backend *, through, NULL)
WB_OPTIONS(wb_distributed_initialize_options);
/** Connects the ranks: wb_distributed_initialize(WB_MPI, .timeout = 60), or, for ranks that mpirun
 * starts, wb_distributed_initialize(WB_NCCL, .through = WB_MPI): MPI then performs the operations
 * on the host's memory, and NCCL those on the device's.  MPI is initialised if the program has not
 * done so; if it has, the thread level must be MPI_THREAD_SERIALIZED or higher.  Collective.  Once
 * in a process, but if the program has initialised MPI, also after wb_distributed_finalize.  From
 * then on wb_gpu and wb_get_device choose the GPU whose number is wb_distributed_local_rank, modulo
 * the number of GPUs.
 *
 * Returns 0 or an error code.  Errors: called a second time, or after MPI_Finalize; a time-out that
 * is not positive; the backend fails on any rank; WB_MPI in a process that MPI did not start and
 * another launcher did, such as `weber launch`, since it would train alone; WB_NCCL on ranks with
 * GPUs of two vendors.  .through: the backend is not WB_NCCL, or .through is.  .devices: the
 * backend is not WB_NCCL; together with .through; more devices than the process has; another number
 * than in the other processes. */
WB_API int wb_distributed_initialize_with(const wb_distributed_backend *backend,
                                          const wb_distributed_initialize_options *o);
/** Runs the ranks of this process: calls rank(ctx) once for each of its devices, each in a thread
 * of its own, and returns when all have returned.  Without .devices it calls rank(ctx) in this
 * thread, so that one program works both ways.
 *
 * Inside rank() the functions of this chapter, wb_gpu and wb_get_device work for the thread's rank;
 * outside, collective functions are errors.  If this thread has called wb_seed, each rank begins
 * with its random numbers.  Each rank makes its own model, state, loader and compiled functions;
 * ranks may read the same datasets and memory of the program.
 *
 * Returns 0, or the first result of a rank() that is not 0, with the error of that rank, whose
 * message begins with its number.  The other ranks may end by themselves.  If an operation still
 * waits a second later, it fails, and the process can no longer use the device that waits: its
 * memory may hold the result of an unfinished operation.  Errors: no function; with .devices also:
 * called by a rank, or after a rank has failed. */
WB_API int wb_distributed_run(int (*rank)(void *ctx), void *ctx);
/** Disconnects the ranks, after their last collective function.  Collective.  Calls MPI_Finalize if
 * wb_distributed_initialize initialised MPI.  A program need not call it: that happens when the
 * process ends by exit or by returning from main, with status 0.  Returns 0 or an error code. */
WB_API int wb_distributed_finalize(void);
/** Whether the ranks are connected. */
WB_API bool wb_distributed_initialized(void);
/** The number of this rank, from 0; 0 if the ranks are not connected.  With .devices, outside of
 * wb_distributed_run: the number of the process's first rank. */
WB_API int wb_distributed_rank(void);
/** The number of ranks; 1 if the ranks are not connected. */
WB_API int wb_distributed_size(void);
/** The number of this rank among the ranks of its machine, from 0; with .devices as
 * wb_distributed_rank. */
WB_API int wb_distributed_local_rank(void);
/** Waits until all ranks have called it.  Collective.  Returns 0 or an error code. */
WB_API int wb_distributed_barrier(void);

/* ---- tensors --------------------------------------------------------------------------------- */

/** How the tensors of several ranks are reduced to one tensor, element by element. */
typedef enum { WB_RANKS_SUM = 1, WB_RANKS_MEAN, WB_RANKS_MIN, WB_RANKS_MAX } wb_ranks_reduction;

/* The functions below are collective.  x has the same shape and dtype on all ranks.  Reductions
 * take any dtype but bool; halves are reduced in f32 and rounded once, a mean of integers is an
 * error, and a minimum or maximum is NaN where the x of any rank is NaN.  x is evaluated, and the
 * result is a new tensor on the device of x.  A function that wb_compile records may call
 * wb_distributed_allreduce, _allgather and _reduce_scatter, but not _reduce and _broadcast.
 * Without connected ranks the result is x.  NULL: an error. */

/** The reduction of x over all ranks, on all ranks; all ranks get the same bits.  Gradient: the
 * same reduction of the gradients; a minimum or maximum has none, and asking for it is an error. */
WB_API wb_tensor *wb_distributed_allreduce(wb_tensor *x, wb_ranks_reduction how);
/** The reduction of x on the rank `root`; WB_NONE on the other ranks.  No gradient. */
WB_API wb_tensor *wb_distributed_reduce(wb_tensor *x, wb_ranks_reduction how, int root);
/** The x of the rank `root`, on all ranks.  No gradient. */
WB_API wb_tensor *wb_distributed_broadcast(wb_tensor *x, int root);
/** The x of all ranks, one after the other along the first axis: [n, ...] becomes [size n, ...].
 * Gradient: the part of this rank of the sum of all ranks' gradients.  Error: x has no axis. */
WB_API wb_tensor *wb_distributed_allgather(wb_tensor *x);
/** Part `rank` of the reduction of x, which is cut into equal parts along its first axis:
 * [size n, ...] becomes [n, ...].  Gradient: the gradients of all ranks, one after the other, for a
 * mean divided by size; a minimum or maximum has none, and asking for it is an error.  Errors: x
 * has no axis, or its first axis is not a multiple of size. */
WB_API wb_tensor *wb_distributed_reduce_scatter(wb_tensor *x, wb_ranks_reduction how);

/* ---- training -------------------------------------------------------------------------------- */

/** Options of wb_distributed_synchronize. */
#define wb_distributed_synchronize_options_(OPT, ARG)                                              \
    OPT(int, root, 0)                       /* the rank whose values all ranks get */
WB_OPTIONS(wb_distributed_synchronize_options);
/** Gives all ranks the values of one rank: wb_distributed_synchronize(model).  `object` is a
 * variable, a layer, a tree of variables, or the state of a rule; its variables are overwritten.
 * For a state the ranks also get hyperparameters, step counts, and which parameters are frozen; if
 * it is divided (.shard), each rank keeps its own moments.  Collective.  Returns 0 or an error
 * code.  Errors: .root is not the number of a rank; a tensor is not a variable; the objects of two
 * ranks have different tensors; the ranks have different step counts of a divided state, for
 * instance because only one has loaded it; the state is in the middle of an accumulation. */
WB_API int wb_distributed_synchronize_with(void *object,
                                           const wb_distributed_synchronize_options *o);

/** The share of this rank of a dataset, which all ranks must have: observations rank, rank + size,
 * rank + 2 size, ...  All shares have the same length, n / size rounded up; the last ones begin
 * again at observation 0.  A loader of the share with .shuffle shuffles the whole dataset, with one
 * seed for all ranks: batch k of all ranks together has the observations of batch k of one process
 * whose batches are `size` times as long.  Collective.  Error: datasets of different lengths. */
WB_API wb_dataset *wb_distributed_dataset(wb_dataset *d);

/** Options of wb_DistributedOptimizer. */
#define wb_DistributedOptimizer_options_(OPT, ARG)                                                 \
    OPT(int64_t, bucket, 25000000)          /* the most bytes of a bucket */                       \
    OPT(int64_t, accumulate, 1)             /* number of batches for one update */                 \
    OPT(bool, shard, false)                 /* divides the state over the ranks */
WB_OPTIONS(wb_DistributedOptimizer_options);
/** A rule that replaces gradients by their mean over the ranks, before `rule`:
 * wb_DistributedOptimizer(wb_Adam()).  The losses are averaged with them: if the mean loss is not
 * finite, the update fails on all ranks.  Gradients travel in buckets of at most .bucket bytes, as
 * soon as the last gradient of a bucket is computed.  wb_update is collective, and an error if the
 * ranks have gradients of different parameters, as after wb_freeze on one of them, or different
 * options.  Without connected ranks `rule` gets the gradients of this process.
 *
 * .shard divides the state over the ranks that are connected when wb_setup is called: each rank has
 * moments, and masters of mixed precision, of its part of each parameter only.  Functions that save
 * and load checkpoints are then collective; the file is the same as without .shard.
 *
 * .accumulate = k makes one step of k batches, with one rank too.  The first k - 1 calls of
 * wb_update add the gradients and the loss to sums in the state, in f32 or f64, change nothing
 * else, and are not collective.  The k-th call gives `rule`
 *
 *     g = (sum over the ranks and the k batches of their gradients) / (size k),
 *
 * and sets the sums to zeros.  In the middle of an accumulation wb_save_checkpoint and
 * wb_distributed_synchronize are errors.  docs/distributed.md has more about both options, and
 * about wb_train.
 *
 * Errors: .bucket or .accumulate is below 1.  Error of wb_update: with .shard the ranks are not
 * those of wb_setup. */
WB_API wb_rule *wb_DistributedOptimizer_with(wb_rule *rule,
                                             const wb_DistributedOptimizer_options *o);

#ifndef __cplusplus
#define wb_distributed_initialize(...) WB_DISTRIBUTED_INITIALIZE_(__VA_ARGS__, )
#define WB_DISTRIBUTED_INITIALIZE_(backend, ...) \
    WB_CALL_WITH_(wb_distributed_initialize_with( \
        (backend), WB_GET_(wb_distributed_initialize_options, __VA_ARGS__)))
#define wb_distributed_synchronize(...) WB_DISTRIBUTED_SYNCHRONIZE_(__VA_ARGS__, )
#define WB_DISTRIBUTED_SYNCHRONIZE_(object, ...) \
    WB_CALL_WITH_(wb_distributed_synchronize_with(  \
        (object), WB_GET_(wb_distributed_synchronize_options, __VA_ARGS__)))
#define wb_DistributedOptimizer(...) WB_DISTRIBUTED_OPTIMIZER_(__VA_ARGS__, )
#define WB_DISTRIBUTED_OPTIMIZER_(rule, ...) \
    WB_CALL_WITH_(wb_DistributedOptimizer_with(     \
        (rule), WB_GET_(wb_DistributedOptimizer_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
