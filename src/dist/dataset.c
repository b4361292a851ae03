/* wb_distributed_dataset: the share of a rank. */
#include "base/numbers/philox.h"
#include "data/dataset.h"
#include "dist/dist.h"

/* Sets *seed to a seed that rank 0 draws for all ranks.  Returns 0 or an error code. */
static int agree_on_seed(uint64_t *seed)
{
    uint64_t key, counter;
    wb__rng_take(1, &key, &counter);
    *seed = wb__philox_at(key, counter, 0) | (uint64_t)wb__philox_at(key, counter, 1) << 31;
    return wb__from_rank(seed, WB_I64, 1, 0);
}

wb_dataset *wb_distributed_dataset(wb_dataset *d)
{
    WB__FIRST(wb_distributed_dataset, NULL);
    int64_t least, most;
    uint64_t seed;
    if (!wb__is_dataset(d, "distributed_dataset")) return NULL;
    if (!wb__world()) return d;
    if (wb__end_pending_exchange()) return NULL;
    if (wb__extremes(1, &d->n, &least, &most) || agree_on_seed(&seed)) return NULL;
    if (least != most)
        return wb__fail_null(WB_ERROR_SHAPE, "distributed_dataset: rank %d has %lld observations,"
                             " and others %lld to %lld: all ranks must have the same dataset",
                             wb__world()->rank, (long long)d->n, (long long)least,
                             (long long)most);
    return wb__dataset_share(d, wb__world()->rank, wb__world()->size, seed);
}
