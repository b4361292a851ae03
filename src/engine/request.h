/* A request: the tensors and numbers of one evaluation, and the key under which its plan is
 * cached. */
#ifndef WB__REQUEST_H
#define WB__REQUEST_H

#include "engine/plan.h"

/* Fills r with the work of one device.  Walks the graph from those of the n tensors that belong to
 * the device and are not evaluated.  If `with_pending`, also walks from this thread's pending
 * writes on the device.  An assign among the n tensors is a write, not a result.  Returns 0 or an
 * error code. */
int wb__request_fill(wb__request *r, const wb_device *device, int n, wb_tensor *const *tensors,
                     bool with_pending);
void wb__request_free(wb__request *r);

/* The present numeric settings of the process (numerics.c). */
typedef struct {
    uint8_t precision;              /* wb__precision */
    bool deterministic;
} wb__numerics_now;
wb__numerics_now wb__numerics(void);

/* Begins to read the variables whose versions the request reads (claims.c).  Returns 0 or an error
 * code.  In both cases wb__leaves_end ends the reading. */
int wb__leaves_begin(wb__request *r);
void wb__leaves_end(wb__request *r);

uint64_t wb__request_hash(const wb__request *r);

/* Returns the plan of a request, from the cache or new.  The caller holds a reference until it
 * calls wb__plan_done.  NULL: failed. */
wb__plan *wb__plan_find(const wb__request *r);
void wb__plan_done(wb__plan *p);
void wb__cache_clear(void);

/* Returns an error code if the plan is to run on a GPU for the first time and the GPU reports too
 * little free memory for it, or if asking the GPU fails.  Else returns 0. */
int wb__plan_check_memory(const wb__plan *p);
/* Appends the bytes that the plan needs to the error of a GPU that is out of memory. */
void wb__plan_report_memory(const wb__plan *p);

/* Allocates memory of a device.  If the device is out of memory, arenas that no plan uses are freed
 * first.  NULL: failed. */
void *wb__device_allocate(const wb_device *d, size_t bytes);

/* A number in memory that must be finite before variables are written.  A NULL device means no
 * guard. */
typedef struct {
    const wb_device *device;
    const void *memory;
    size_t at;                          /* byte offset of the number */
    wb_dtype dtype;
} wb__guard;
/* Returns 0, WB_ERROR_NUMBER if the number is not finite, or another error code. */
int wb__guard_check(const wb__guard *g);
wb__guard wb__guard_of(const wb_tensor *guard);     /* evaluated; NULL: no guard */

/* Whether the host may read late (guard.c) the guard of an evaluation on d, whose writes depend on
 * `guard`. */
bool wb__guard_may_be_late(const wb_tensor *guard, const wb_device *d);
/* Sets *before to the guard of the optimiser step before, or to a finite number, with the dtype and
 * shape of `guard`.  If the evaluation is only `estimated`, waits for nothing.  Returns 0, or an
 * error code, also that of the step before. */
int wb__guard_before(const wb_device *d, const wb_tensor *guard, bool estimated,
                     wb_tensor **before);
/* Returns a finite number on d, with the dtype and shape of `like`.  NULL: failed. */
wb_tensor *wb__guard_finite(const wb_device *d, const wb_tensor *like);
/* Does what wb__guard_confirm does for the step before.  Called when an optimiser step is
 * enqueued. */
int wb__guard_confirm_before(void);
/* Makes the pending writes those of the step whose guard is not read yet (late.writes).  Called
 * after wb__guard_begin_late. */
void wb__guard_take_writes(wb__thread *t);
void wb__guard_begin_late(wb_tensor *guard, const char *by);
void wb__guard_forget(void);            /* when a thread ends */

/* Prepared forms (forms.c).  Returns a number for wb__form_of that no earlier run of a plan has. */
uint64_t wb__form_run(void);
/* Returns form i of the plan, which the storage of `leaf` owns, for a run that reads `leaf`.  The
 * form is made if the values were read often enough.  NULL: there is none, and no error is set. */
void *wb__form_of(const wb__plan *p, int i, const wb_tensor *leaf, uint64_t run);
int64_t wb__forms_bytes(void);          /* bytes of all forms of the process */

/* Runs a plan.  Buffer i begins at byte offsets[i] of buffers[i].
 *
 * WB__PLAN_AGAIN: a library declined one of the steps, and no variable was written.  The plan has
 * left the cache; in the next plan for the request another implementation computes that step. */
enum { WB__PLAN_AGAIN = -1 };
int wb__plan_run(wb__plan *p, void **buffers, const size_t *offsets, const wb__number *numbers,
                 int n_numbers, const wb__guard *guard);

#endif
