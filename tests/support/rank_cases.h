/* Programs that several ranks run, of the folder dist/. */
#ifndef RANK_CASES_H
#define RANK_CASES_H

#include "test.h"

#include <weber.h>

extern int rank, size;                  /* of this process, when the ranks are connected */

/* Connects the ranks, and sets `rank` and `size`.  Returns 0 or an error code. */
int connect_by(const wb_distributed_backend *backend, const wb_distributed_backend *through,
               double timeout);

/* The same by MPI, by NCCL on its double, or by both, for which this program has been built. */
static inline int connect_ranks(double timeout)
{
#ifdef WB_TEST_THROUGH
    return connect_by(WB_NCCL, WB_MPI, timeout);
#elif defined WB_TEST_NCCL
    return connect_by(WB_NCCL, NULL, timeout);
#else
    return connect_by(WB_MPI, NULL, timeout);
#endif
}

/* For the result of connect_ranks: prints the error, if there is one; else only rank 0 prints to
 * standard output from now on.  Returns whether the ranks are connected. */
bool ranks_begin(int status);

/* Makes the GPU of this rank the default device: of the backend WEBER_BACKENDS, or of CUDA.  Prints
 * the error and returns false if there is none. */
bool use_own_gpu(void);

/* The loss wb_mse, for wb_train and wb_withgradient. */
wb_tensor *mse_loss(wb_layer *model, wb_batch b, void *ctx);

/* A step of training, for wb_compile, with the model and state of its context: takes x and y, and
 * returns the loss. */
typedef struct { wb_layer *model; wb_opt_state *state; } trained;
int train_step(wb_tensor *const *in, wb_tensor **out, void *ctx);

/* All parameters of the model, at most 16 of one floating dtype, have the same bits on all ranks.
 * Collective. */
void expect_alike(wb_layer *model);

#endif
