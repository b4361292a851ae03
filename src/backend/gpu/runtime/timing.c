/* Choosing algorithms by timing.  A caller lists candidates for a problem, algorithms of a library
 * or tiles of our own kernels, the best by an estimate first.  For problems that take long, each of
 * a few is run on scratch memory between two events when the first plan that has the problem is
 * made; a fingerprint of the fastest is kept on disk, so that the next process times nothing.  All
 * timing of a device in a process ends after MOST_SECONDS; the problems that are left have the
 * first candidate, and are timed by a later process.
 *
 *   WEBER_GPU_TIMING   0: nothing is timed, and the first candidate is used; a number: a problem is
 *                      timed if it takes longer by an estimate, in microseconds (50)
 *
 * Another candidate may give other bits.  A step that must be deterministic is thus never timed,
 * nor is its choice read: it has the first candidate, whatever is on the disk. */
#include "backend/gpu/runtime/runtime.h"

#include "backend/kernel_cache.h"
#include "base/environment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 3 };
static const double MOST_SECONDS = 2;
static const float MOST_MS = 100;               /* longest run that is repeated, in milliseconds */
static const double BYTES_A_SECOND = 2e10;      /* bytes that one processor moves, by estimate */

/* The time in seconds from which on a problem is timed. */
static double timing_bound(void)
{
    const double us = wb__environment_number("WEBER_GPU_TIMING", 50);
    return us > 0 ? us * 1e-6 : INFINITY;
}

bool wb__gpu_worth_timing(const wb__gpu_device *d, size_t size, bool rounded, double flop,
                          double bytes)
{
    /* floating-point operations of one processor in a second, roughly */
    const double rate = size == 8 ? 2e11 : size == 2 ? 4e12 : rounded ? 2e12 : 4e11;
    const double processors = WB__MAX(d->target.processors, 1);
    const double seconds = WB__MAX(flop / rate, bytes / BYTES_A_SECOND) / processors;
    return d->driver->elapsed && seconds > timing_bound();
}

bool wb__gpu_may_time(const wb__gpu_device *d) { return d->timing_seconds < MOST_SECONDS; }

/* ---- choices on disk: the fingerprints of candidates ----------------------------------------- */

static const char timing_kind[] = "algorithm";

/* Returns all that a choice depends on.  The caller frees it; NULL: out of memory. */
static char *timing_key_of(const wb__gpu_device *d, const wb__gpu_candidates *c, size_t *bytes)
{
    struct { uint64_t version; char library[32], device[sizeof d->name]; } head;
    memset(&head, 0, sizeof head);
    head.version = c->version;
    snprintf(head.library, sizeof head.library, "%s", c->library);
    snprintf(head.device, sizeof head.device, "%s", d->name);
    *bytes = sizeof head + c->problem_bytes;
    char *key = wb__alloc(*bytes);
    if (!key) {
        wb_clear_error();
        return NULL;
    }
    memcpy(key, &head, sizeof head);
    memcpy(key + sizeof head, c->problem, c->problem_bytes);
    return key;
}

uint64_t wb__gpu_kept_fingerprint(const wb__gpu_device *d, const wb__gpu_candidates *c)
{
    size_t key_bytes = 0, bytes = 0;
    uint64_t fingerprint = 0;
    char *key = timing_key_of(d, c, &key_bytes);
    void *kept = key ? wb__kernel_cache_read(timing_kind, key, key_bytes, &bytes) : NULL;
    if (kept && bytes == sizeof fingerprint) memcpy(&fingerprint, kept, sizeof fingerprint);
    wb__free(kept);
    wb__free(key);
    return fingerprint;
}

static void timing_keep_choice(const wb__gpu_device *d, const wb__gpu_candidates *c,
                               uint64_t fingerprint)
{
    size_t bytes = 0;
    char *key = timing_key_of(d, c, &bytes);
    if (key) wb__kernel_cache_write(timing_kind, key, bytes, &fingerprint, sizeof fingerprint);
    wb__free(key);
}

/* ---- timing ---------------------------------------------------------------------------------- */

typedef struct { const wb__gpu_candidates *c; int i, repeats; } timed;

static int timing_run_candidate(void *ctx)
{
    const timed *t = ctx;
    int code = 0;
    for (int k = 0; k < t->repeats && !code; k++) code = t->c->run(t->c->ctx, t->i);
    return code;
}

/* Returns the time of candidate i, in milliseconds; infinity: it fails.  The first run also loads
 * its kernels, and counts only if it is so long that it is not repeated. */
static float time_of(wb__gpu_device *d, const wb__gpu_candidates *c, int i)
{
    timed t = {c, i, 1};
    float ms = 0;
    int code = d->driver->elapsed(d, timing_run_candidate, &t, &ms);
    if (!code && ms < MOST_MS) {
        t.repeats = REPEATS;
        code = d->driver->elapsed(d, timing_run_candidate, &t, &ms);
    }
    return code ? INFINITY : ms / (float)t.repeats;
}

/* Returns the index of the fastest of the candidates for which the time suffices, and keeps its
 * fingerprint on disk; 0 if the time suffices for one only, or none works. */
static int time_all(wb__gpu_device *d, const wb__gpu_candidates *c)
{
    float first = INFINITY, least = INFINITY;
    int best = 0, i = 0;
    for (; i < c->n && wb__gpu_may_time(d); i++) {
        const double begun = wb__now();
        const float ms = time_of(d, c, i);
        d->timing_seconds += wb__now() - begun;
        if (!i) first = ms;
        if (ms < least) least = ms, best = i;
    }
    if (i < 2 || isinf(least)) return 0;
    timing_keep_choice(d, c, c->fingerprint[best]);
    if (wb__debug("dispatch"))
        wb__log(WB_LOG_INFO, "%s:%d: %s: algorithm %d of %d takes %.1f us, the first %.1f us",
                d->driver->backend->tag, d->base.ordinal, c->library, best + 1, c->n, 1e3 * least,
                1e3 * first);
    return best;
}

/* Allocates the scratch memory and sets the addresses of the buffers in it, which are aligned like
 * the workspaces of plans and at least as far from each other.  0: there is not enough memory. */
static uint64_t timing_reserve(wb__gpu_device *d, wb__gpu_candidates *c)
{
    const wb__gpu_cache *cache = &d->cache;
    uint64_t scratch = 0;
    size_t all = 0;
    for (int i = 0; i < WB__GPU_SCRATCH; i++) {
        c->at[i] = all;
        all += (c->bytes[i] + 2 * WB__WORKSPACE_ALIGN - 1) / WB__WORKSPACE_ALIGN *
               WB__WORKSPACE_ALIGN;
    }
    if (cache->used + cache->cached + (int64_t)all > cache->limit ||
        d->driver->allocate(d, all, &scratch))
        return 0;
    for (int i = 0; i < WB__GPU_SCRATCH; i++) c->at[i] += scratch;
    return scratch;
}

int wb__gpu_fastest(wb__gpu_device *d, wb__gpu_candidates *c)
{
    const uint64_t kept = c->n > 1 ? wb__gpu_kept_fingerprint(d, c) : 0;
    for (int i = 0; i < c->n; i++)
        if (c->fingerprint[i] == kept) return i;
    const uint64_t scratch = c->n > 1 && wb__gpu_may_time(d) ? timing_reserve(d, c) : 0;
    if (!scratch) return 0;
    const int best = time_all(d, c);
    d->driver->release(d, scratch);
    return best;
}
