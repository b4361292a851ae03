/* A training by ranks of several machines; for check_hosts.py.  Each rank prints its place, rank 0
 * the mean of the losses of each step, and at the end each rank that it is done. */
#include "rank_cases.h"

#include "backend/collective.h"

#include <unistd.h>

enum { BATCH = 48, STEPS = 12 };

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    const double mean = wb_item(loss);
    if (!rank) printf("step %d: %.9g\n", (int)batch, mean);
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
    if (connect_ranks(5)) return complain();
    const wb__communicator *c = wb__world();
    gethostname(host, sizeof host - 1);
    printf("rank %d of %d: local %d of %d on %s\n", c->rank, c->size, wb_distributed_local_rank(),
           c->local_size, host);
    wb_seed(7);
    wb_layer *m = wb_Chain(wb_Dense(16, 300, wb_relu), wb_Dense(300, 2));
    wb_tensor *x = wb_randn(BATCH * STEPS, 16);
    wb_dataset *d = wb_distributed_dataset(wb_dataset_of(x, wb_slice(x, 1, 0, 2)));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Momentum(0.02), .bucket = 4000), m);
    wb_loader *l = wb_dataloader(d, BATCH / c->size, true);
    if (wb_train(mse_loss, m, l, s, .each = each) || wb_distributed_barrier()) return complain();
    printf("rank %d is done\n", c->rank);
    fflush(stdout);             /* the process may be ended in MPI_Finalize, see check_hosts.py */
    return 0;
}
