/* Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel random
 * numbers: as easy as 1, 2, 3").  Creating a random tensor reserves a range of counters.  Then the
 * word of an element is a function of key, counter and element index only: the same on every device
 * and in any order. */
#ifndef WB__PHILOX_H
#define WB__PHILOX_H

#include "base/base.h"

/* Applies the ten rounds of Philox with the key k0, k1 to `block`, in place. */
void wb__philox(uint32_t block[4], uint32_t k0, uint32_t k1);

/* Sets `words` to the four random words of block number c.  They are the result of the ten rounds
 * on {low half of c, high half of c, 0, 0}. */
void wb__philox_block(uint64_t key, uint64_t c, uint32_t words[4]);

/* Returns the word of element i of a random tensor whose counters begin at `counter`: word i mod 4
 * of block counter + i/4. */
uint32_t wb__philox_at(uint64_t key, uint64_t counter, uint64_t i);

/* Converts a word to a number in [0, 1), exactly representable in the type. */
static inline float wb__uniform_f32(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; }
static inline double wb__uniform_f64(uint32_t w) { return (double)w * 0x1p-32; }

/* Sets z to two standard normal numbers (Box & Muller 1958, the reference for all devices).
 * Elements 2j and 2j+1 share two words:
 *   u = (w0 + 1) 2^-32 in (0, 1]    v = w1 2^-32
 *   z0 = sqrt(-2 ln u) cos(2 pi v)    z1 = sqrt(-2 ln u) sin(2 pi v) */
void wb__normal_pair(uint32_t w0, uint32_t w1, double z[2]);

/* The random generator of the calling thread.  wb__rng_take reserves n blocks of four words each.
 * A generator that is used before it was seeded is seeded from /dev/urandom or, without that file,
 * from the clock. */
typedef struct { uint64_t key, counter; } wb__rng_state;
void wb__rng_take(uint64_t n, uint64_t *key, uint64_t *counter);
wb__rng_state wb__rng_get_state(void);
void wb__rng_set_state(wb__rng_state state);
/* Sets the state and returns the one before, for a part of the thread's work; not counted as
 * seeding. */
wb__rng_state wb__rng_exchange(wb__rng_state state);
uint64_t wb__rng_seedings(void);    /* how often this thread's generator was seeded or set */

#endif
