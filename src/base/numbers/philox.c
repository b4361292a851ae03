/* Computes random words and normal numbers, and keeps the generator of each thread.  See
 * philox.h. */
#include "base/numbers/philox.h"

#include "base/numbers/dialect.h"
#include "base/os.h"

void wb__philox(uint32_t block[4], uint32_t k0, uint32_t k1)
{
    PHILOX_ROUNDS(block[0], block[1], block[2], block[3], k0, k1)
}

void wb__philox_block(uint64_t key, uint64_t c, uint32_t words[4])
{
    memcpy(words, (uint32_t[4]){(uint32_t)c, (uint32_t)(c >> 32)}, 4 * sizeof *words);
    wb__philox(words, (uint32_t)key, (uint32_t)(key >> 32));
}

uint32_t wb__philox_at(uint64_t key, uint64_t counter, uint64_t i)
{
    const uint64_t pair = philox_pair(key, counter, i);
    return (uint32_t)(i & 1 ? pair >> 32 : pair);
}

void wb__normal_pair(uint32_t w0, uint32_t w1, double z[2])
{
    double radius = sqrt(-2 * log(((double)w0 + 1) * 0x1p-32));
    double angle = 6.283185307179586476925 * ((double)w1 * 0x1p-32);
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

static _Thread_local struct {
    wb__rng_state state;
    uint64_t seedings;
} philox_mine;

/* Returns a seed from /dev/urandom or, without that file, from the clock and an address. */
static uint64_t seed_from_system(void)
{
    uint64_t seed = 0;
    if (wb__os_random(&seed, sizeof seed)) return seed;
    return (uint64_t)wb__os_clock(WB__OS_WALL) * 0x9e3779b97f4a7c15u ^
           (uint64_t)(uintptr_t)&philox_mine;
}

void wb__rng_set_state(wb__rng_state state)
{
    philox_mine.state = state;
    philox_mine.seedings++;
}

wb__rng_state wb__rng_exchange(wb__rng_state state)
{
    const wb__rng_state old = wb__rng_get_state();
    philox_mine.state = state;
    return old;
}

uint64_t wb__rng_seedings(void) { return philox_mine.seedings; }

wb__rng_state wb__rng_get_state(void)
{
    if (!philox_mine.seedings) wb_seed(seed_from_system());
    return philox_mine.state;
}

void wb_seed(uint64_t seed) { wb__rng_set_state((wb__rng_state){.key = seed}); }

void wb__rng_take(uint64_t n, uint64_t *key, uint64_t *counter)
{
    wb__rng_state now = wb__rng_get_state();
    *key = now.key;
    *counter = now.counter;
    philox_mine.state.counter += n;
}
