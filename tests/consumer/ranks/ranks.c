/* Uses libweber-mpi of an installation. */
#include <weber.h>

int main(void)
{
    if (wb_distributed_initialize(WB_MPI, .timeout = 20)) return 1;
    wb_tensor *sum = wb_distributed_allreduce(wb_scalar(wb_distributed_rank() + 1), WB_RANKS_SUM);
    const int n = wb_distributed_size();
    return wb_item(sum) == n * (n + 1) / 2.0 ? 0 : 2;
}
