/* A training by ranks of several machines; for check_hosts.py.  Each rank prints its place, rank 0
 * the mean of the losses of each step, and at the end each rank that it is done. */
#include "backend/collective.h"

#include <weber.h>

#include <stdio.h>
#include <unistd.h>

enum { BATCH = 48, STEPS = 12 };

static wb_tensor *loss_of(wb_layer *model, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, b.x), b.y);
}

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    (void)epoch, (void)ctx;
    const double mean = wb_item(loss);
    if (wb_distributed_rank() == 0) printf("step %d: %.9g\n", (int)batch, mean);
    return wb_error_code();
}

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

int main(void)
{
    char host[256] = "";
    if (wb_distributed_initialise(WB_MPI, .timeout = 20)) return complain();
    const wb__communicator *c = wb__world();
    gethostname(host, sizeof host - 1);
    printf("rank %d of %d: local %d of %d on %s\n", c->rank, c->size, wb_distributed_local_rank(),
           c->local_size, host);
    wb_seed(7);
    wb_layer *m = wb_Chain(wb_Dense(16, 300, wb_relu), wb_Dense(300, 2));
    wb_tensor *x = wb_randn(BATCH * STEPS, 16);
    wb_dataset *d = wb_distributed_dataset(wb_dataset_of(x, wb_slice(x, 1, 0, 2)));
    wb_opt_state *s = wb_setup(wb_DistributedOptimiser(wb_Momentum(0.02), .bucket = 4000), m);
    wb_loader *l = wb_dataloader(d, BATCH / c->size, true);
    if (wb_train(loss_of, m, l, s, .each = each) || wb_distributed_barrier()) return complain();
    printf("rank %d is done\n", c->rank);
    fflush(stdout);             /* the process may be ended in MPI_Finalize, see check_hosts.py */
    return 0;
}
