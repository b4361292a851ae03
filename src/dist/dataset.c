/* wb_distributed_dataset: the share of a rank. */
#include "base/numbers/philox.h"
#include "backend/collective.h"
#include "data/dataset.h"

/* Sets *n to the least and most length of the ranks' datasets, and *seed to the seed of rank 0. */
static int agree(int64_t n, int64_t *least, int64_t *most, uint64_t *seed)
{
    uint64_t key, counter;
    wb__rng_take(1, &key, &counter);
    *seed = wb__philox_at(key, counter, 0) | (uint64_t)wb__philox_at(key, counter, 1) << 31;
    wb__collective c = {.communicator = wb__world(), .kind = WB__COLLECT_ALLREDUCE,
                        .op = WB__RANKS_MIN, .dtype = WB_I64, .n = 1, .from = &n, .to = least};
    wb__collective_begin(&c);
    wb__collective max = c;
    max.op = WB__RANKS_MAX;
    max.to = most;
    wb__collective_begin(&max);
    const wb__collective from_first = {.communicator = wb__world(), .kind = WB__COLLECT_BROADCAST,
                                       .dtype = WB_I64, .n = 1, .to = seed};
    return wb__collective_end(wb__collective_begin(&from_first));
}

wb_dataset *wb_distributed_dataset(wb_dataset *d)
{
    int64_t least, most;
    uint64_t seed;
    if (WB__NULL(d)) return NULL;
    if (!wb__is(d, &wb__dataset_class))
        return wb__fail_null(WB_ERROR_ARGUMENT, "distributed_dataset: a %s is not a dataset",
                             wb__kind(d));
    if (!wb__world()) return d;
    if (agree(d->n, &least, &most, &seed)) return NULL;
    if (least != most)
        return wb__fail_null(WB_ERROR_SHAPE, "distributed_dataset: rank %d has %lld observations,"
                             " and others %lld to %lld: all ranks must have the same dataset",
                             wb__world()->rank, (long long)d->n, (long long)least,
                             (long long)most);
    return wb__dataset_share(d, wb__world()->rank, wb__world()->size, seed);
}
