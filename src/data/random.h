/* Random numbers of data tools, from the seed of wb_seed. */
#ifndef WB__DATA_RANDOM_H
#define WB__DATA_RANDOM_H

#include "base/numbers/philox.h"

/* Random numbers that wb__draws_begin has reserved; `drawn` is how many of them have been used. */
typedef struct { uint64_t key, counter, drawn; } wb__draws;

static inline wb__draws wb__draws_begin(int64_t n)
{
    wb__draws d = {0};
    wb__rng_take((uint64_t)n / 2 + 1, &d.key, &d.counter);
    return d;
}
/* Returns (64 random bits · range) >> 64, nearly uniform in [0, range); range is below 2^32. */
static inline int64_t wb__draw_below(wb__draws *d, int64_t range)
{
    uint32_t w[4];
    wb__philox_block(d->key, d->counter + d->drawn / 2, w);
    const uint32_t *at = w + 2 * (d->drawn++ % 2);
    const uint64_t r = (uint64_t)range;
    return (int64_t)(((uint64_t)at[0] * r + ((uint64_t)at[1] * r >> 32)) >> 32);
}

#endif
