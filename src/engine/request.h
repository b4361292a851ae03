/* What an evaluation asks for, written down: the key under which its plan is found, and the tensors
 * and numbers that the plan runs with. */
#ifndef WB__REQUEST_H
#define WB__REQUEST_H

#include "engine/plan.h"

/* Walks from n tensors (unevaluated; assigns among them are writes), then from the thread's pending
 * writes if `with_pending`, leaving out what is on another device, and fills r.  0, or an error
 * code. */
int wb__request_fill(wb__request *r, const wb_device *device, int n, wb_tensor *const *tensors,
                     bool with_pending);
void wb__request_free(wb__request *r);
int wb__gone(const wb_tensor *x);   /* fails: x cannot be had any more */

/* What is set now (numerics.c). */
typedef struct {
    uint8_t precision;              /* wb__precision */
    bool deterministic;
} wb__numerics_now;
wb__numerics_now wb__numerics(void);

uint64_t wb__request_hash(const wb__request *r);

/* The plan for a request, from the cache or new; counted as used until wb__plan_done. */
wb__plan *wb__plan_find(const wb__request *r);
void wb__plan_done(wb__plan *p);
void wb__cache_clear(void);

/* Before a plan's first run: 0, or the error that its device will not have the memory, as far as it
 * tells.  And what a plan needs, behind the message of an error that there was not enough. */
int wb__plan_room(const wb__plan *p);
void wb__plan_tell_need(const wb__plan *p);

/* A device's memory; where it has no more, arenas that no plan is using are given back first.
 * NULL: failed. */
void *wb__device_allocate(const wb_device *d, size_t bytes);

/* A number that must be finite before anything is written; none where the device is NULL. */
typedef struct {
    const wb_device *device;
    const void *memory;
    size_t at;
    wb_dtype dtype;
} wb__guard;
int wb__guard_check(const wb__guard *g);

/* Runs a plan on buffers, each at its place in its memory.  WB__PLAN_AGAIN: a library refused one of
 * its steps, and no variable was written; the plan has left the cache, and one that is looked for
 * again does the step in another way. */
enum { WB__PLAN_AGAIN = -1 };
int wb__plan_run(wb__plan *p, void **buffers, const size_t *places, const wb__number *numbers,
                 int n_numbers, const wb__guard *gate);

#endif
