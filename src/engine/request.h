/* What an evaluation asks for, written down: the key under which its plan is found, and the tensors
 * and numbers that the plan runs with. */
#ifndef WB__REQUEST_H
#define WB__REQUEST_H

#include "engine/plan.h"

/* Walks from n tensors (unevaluated; assigns among them are writes), then from the thread's pending
 * writes if `with_pending`, and fills r.  0, or an error code. */
int wb__request_fill(wb__request *r, int n, wb_tensor *const *tensors, bool with_pending);
void wb__request_free(wb__request *r);
uint64_t wb__request_hash(const wb__request *r);

/* The plan for a request, from the cache or new; counted as used until wb__plan_done. */
wb__plan *wb__plan_find(const wb__request *r);
void wb__plan_done(wb__plan *p);
void wb__cache_clear(void);

/* Memory of an arena of at least so many bytes, the caller's until given back. */
void *wb__arena_take(int64_t bytes, int64_t *got);
void wb__arena_give(void *memory, int64_t bytes);

/* Runs a plan on buffers; the gate, where there is one, is a result that must be finite before
 * anything is written. */
int wb__plan_run(const wb__plan *p, void **buffers, const wb__number *numbers, int n_numbers,
                 const void *gate, wb_dtype gate_dtype);

#endif
