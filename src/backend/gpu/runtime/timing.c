/* Choosing algorithms by timing.  A library lists candidates for a problem, the best by its own
 * estimate first.  For problems that take long, each of a few is run on scratch memory between two
 * events when the first plan that has the problem is made; the choice is kept on disk, so that the
 * next process times nothing.  All timing of a device in a process ends after MOST_SECONDS; the
 * problems that are left have the library's first candidate, and are timed by a later process.
 *
 *   WEBER_GPU_TIMING   0: nothing is timed, and the library's first candidate is used; a number: a
 *                      problem is timed if it takes longer by an estimate, in microseconds (50)
 *
 * Another candidate may give other bits.  A step that must be deterministic is thus never timed,
 * nor is its choice read: it has the first candidate, whatever is on the disk. */
#include "backend/gpu/runtime/runtime.h"

#include "backend/kernel_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 3 };
static const double MOST_SECONDS = 2;
static const double BYTES_A_SECOND = 2e10;              /* of one processor */

/* The time in seconds from which on a problem is timed. */
static double bound(void)
{
    const char *given = getenv("WEBER_GPU_TIMING");
    char *end = NULL;
    const double us = given && *given ? strtod(given, &end) : 50;
    if (end && (*end || !(us >= 0))) return 50e-6;
    return us > 0 ? us * 1e-6 : INFINITY;
}

bool wb__gpu_worth_timing(const wb__gpu_device *d, double flop, double rate, double bytes)
{
    const double processors = WB__MAX(d->target.processors, 1);
    const double seconds = WB__MAX(flop / rate, bytes / BYTES_A_SECOND) / processors;
    return d->driver->elapsed && seconds > bound();
}

/* A choice on disk. */
typedef struct { uint64_t index, mark; } choice;
static const char kind[] = "algorithm";

static int read_choice(const wb__gpu_candidates *c)
{
    size_t bytes = 0;
    int found = -1;
    choice *kept = wb__kernel_cache_get(kind, c->key, c->key_bytes, &bytes);
    if (kept && bytes == sizeof *kept && kept->index < (uint64_t)c->n &&
        kept->mark == c->mark(c->ctx, (int)kept->index))
        found = (int)kept->index;
    wb__free(kept);
    return found;
}

typedef struct { const wb__gpu_candidates *c; int i, repeats; } timed;

static int run(void *ctx)
{
    const timed *t = ctx;
    int code = 0;
    for (int k = 0; k < t->repeats && !code; k++) code = t->c->run(t->c->ctx, t->i);
    return code;
}

/* Returns the time of candidate i, in milliseconds; infinity: it fails. */
static float time_of(wb__gpu_device *d, const wb__gpu_candidates *c, int i)
{
    timed t = {c, i, 1};
    float ms = 0;
    int code = d->driver->elapsed(d, run, &t, &ms);     /* loads its kernels */
    t.repeats = REPEATS;
    if (!code) code = d->driver->elapsed(d, run, &t, &ms);
    return code ? INFINITY : ms / REPEATS;
}

int wb__gpu_fastest(wb__gpu_device *d, const wb__gpu_candidates *c)
{
    float first = INFINITY, least = INFINITY;
    const int kept = c->n > 1 ? read_choice(c) : 0;
    if (kept >= 0) return kept;
    int best = 0, i = 0;
    for (; i < c->n && d->timed < MOST_SECONDS; i++) {
        const double begun = wb__now();
        const float ms = time_of(d, c, i);
        d->timed += wb__now() - begun;
        if (!i) first = ms;
        if (ms < least) least = ms, best = i;
    }
    if (i < c->n || isinf(least)) return 0;
    const choice made = {(uint64_t)best, c->mark(c->ctx, best)};
    wb__kernel_cache_put(kind, c->key, c->key_bytes, &made, sizeof made);
    if (wb__debug("dispatch"))
        wb__log(WB_LOG_INFO, "%s:%d: %s: algorithm %d of %d takes %.1f us, the first %.1f us",
                d->driver->backend->tag, d->base.ordinal, c->library, best + 1, c->n, 1e3 * least,
                1e3 * first);
    return best;
}
