/* The guard of an optimiser step: a number that must be finite, or else no variable is written.
 *
 * The host can check the number between the kernels that compute and those that write; then it must
 * wait for the device.  So on a GPU the kernels that write look at the guard themselves: each
 * stores where(finite, new, old).  The host reads the number late, when the next step is enqueued,
 * so the device always has work.  That next step must not write either if the number is not finite;
 * therefore each step also looks at the guard of the step before.  The host is never more than one
 * step ahead: it enqueues step k + 1, then reads the guard of step k.
 *
 * If the guard of step k is not finite, no variable has been written since.  The evaluation of step
 * k + 1 fails and its writes are cancelled; those of step k become WB__CANCELLED, with which the
 * journal takes back an optimiser's counts.  Functions that wait for the device anyway (reading
 * values, other writes, moving, saving) read the guard first; if it is not finite, the writes that
 * are pending then are cancelled too, since they were recorded as if step k had been made. */
#include "engine/evaluate.h"
#include "engine/journal.h"
#include "engine/request.h"

#include <math.h>
#include <string.h>

static int guard_check_number(const void *bytes, wb_dtype dtype)
{
    double v = 0;
    wb__convert(&v, WB_F64, bytes, dtype, 1);
    return isfinite(v) ? 0 : wb__fail(WB_ERROR_NUMBER, "the loss is %g", v);
}

int wb__guard_check(const wb__guard *g)
{
    char bytes[8];
    if (!g->device) return 0;
    const int status = g->device->backend->download(g->device, bytes, g->memory, g->at,
                                                    wb__dtype_size(g->dtype));
    return status ? status : guard_check_number(bytes, g->dtype);
}

wb__guard wb__guard_of(const wb_tensor *guard)
{
    if (!guard || !guard->storage) return (wb__guard){0};
    return (wb__guard){guard->storage->device, guard->storage->data, (size_t)guard->offset,
                       (wb_dtype)guard->dtype};
}

static void guard_set_error(const wb_tensor *guard, const char *what, const char *when)
{
    double v = NAN;
    const void *bytes = guard->storage ? wb__storage_read(guard->storage) : NULL;
    if (bytes)
        wb__convert(&v, WB_F64, (const char *)bytes + guard->offset, (wb_dtype)guard->dtype, 1);
    wb__fail(WB_ERROR_NUMBER, "update: %s is %s%s: nothing is written, and the parameters and the "
             "state are what they were (wb_setup(rule, model, .unguarded = true) updates all the "
             "same)", what, isnan(v) ? "NaN" : v > 0 ? "Inf" : "-Inf", when);
}

void wb__fail_guard(const wb_tensor *guard, const char *what) { guard_set_error(guard, what, ""); }

/* Returns a tensor that is finite if x and y both are.  If x or y was an unconsumed result it stays
 * one, since the program may read it after the update.  NULL: failed. */
static wb_tensor *guard_both_finite(wb__thread *t, wb_tensor *x, wb_tensor *y)
{
    const bool x_waits = x->flags & WB__IS_UNCONSUMED, y_waits = y->flags & WB__IS_UNCONSUMED;
    wb_tensor *other = x->dtype == y->dtype ? x : wb_scalar(NAN);
    wb_tensor *both = wb_where(wb_isfinite(x), y, other);
    if (x_waits) wb__unconsumed_add(t, x);
    if (y_waits) wb__unconsumed_add(t, y);
    return both;
}

int wb__guard_pending(wb_tensor *guard, const char *what)
{
    wb__thread *t = wb__this_thread();
    if (!(guard = wb__version("update", guard))) return (int)wb_error_code();
    if (t->guard == guard) return 0;
    if (t->guard && wb__device_of(t->guard) != wb__device_of(guard)) {
        const int status = wb__evaluate_keeping(0, NULL);       /* two are not combined */
        if (status) return status;
    }
    if (t->guard) {
        guard = guard_both_finite(t, t->guard, guard);
        what = "a loss or a norm of gradients";
        if (!guard) return WB_ERROR_MEMORY;
    }
    wb__ref(guard);
    wb__unref(t->guard);
    t->guard = guard;
    t->guarded_by = what;
    return 0;
}

/* Whether a pending write stores some rows of a variable only.  where(finite, new, old) would store
 * all of them. */
static bool writes_rows(const wb__thread *t)
{
    for (int i = 0; i < t->n_pending; i++) {
        const wb_tensor *a = t->pending[i];
        if (a->n_in && a->in[0]->op == WB__OP_scatter_set) return true;
    }
    return false;
}

bool wb__guard_may_be_late(const wb_tensor *guard, const wb_device *d)
{
    const wb__thread *t = wb__this_thread();
    return d && guard && guard == t->guard && !t->guard_at_once && !t->eager && !guard->storage &&
           wb__device_of(guard) == d && d->backend->begin_read && !writes_rows(t);
}

/* Whether x is evaluated on d, with the dtype and dimensions of `like`. */
static bool guard_has_type_of(const wb_tensor *x, const wb_device *d, const wb_tensor *like)
{
    return x && x->storage && x->storage->device == d && x->dtype == like->dtype &&
           wb__same_dims(x, like);
}

wb_tensor *wb__guard_finite(const wb_device *d, const wb_tensor *like)
{
    static const char zeros[8];
    wb__thread *t = wb__this_thread();
    if (guard_has_type_of(t->finite, d, like)) return t->finite;
    wb_tensor *x = wb__empty_on(d, (wb_dtype)like->dtype, like->ndim, like->dims);
    if (!x) return NULL;
    wb__unref(t->finite);
    t->finite = wb__ref(x);
    wb_object_free(x);
    if (!d->backend->upload(d, x->storage->data, 0, zeros, wb__dtype_size((wb_dtype)like->dtype)))
        return x;
    wb__unref(x);
    return t->finite = NULL;
}

int wb__guard_before(const wb_device *d, const wb_tensor *guard, bool estimated, wb_tensor **before)
{
    const wb__thread *t = wb__this_thread();
    *before = t->late.guard;
    if (guard_has_type_of(t->late.guard, d, guard)) return 0;
    const int status = estimated ? 0 : wb__guard_confirm();
    if (status) return status;
    *before = wb__guard_finite(d, guard);
    return *before ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

void wb__guard_begin_late(wb_tensor *guard, const char *by)
{
    wb__thread *t = wb__this_thread();
    const wb__guard g = wb__guard_of(guard);
    t->late.guard = wb__ref(guard);
    t->late.by = by;
    guard->flags |= WB__UNCONFIRMED;
    for (int i = 0; i < t->late.n; i++) t->late.writes[i]->flags |= WB__UNCONFIRMED;
    const int status = g.device->backend->begin_read(g.device, g.memory, g.at,
                                                     wb__dtype_size(g.dtype), &t->late.read);
    if (status) t->late.read = NULL;            /* the number is read when it is needed */
    if (status && status != WB_ERROR_UNSUPPORTED) wb_clear_error();
}

void wb__guard_take_writes(wb__thread *t)
{
    wb_tensor **writes = t->late.writes;
    const int capacity = t->late.capacity;
    t->late.writes = t->pending;
    t->late.n = t->n_pending;
    t->late.capacity = t->pending_capacity;
    t->pending = writes;
    t->n_pending = 0;
    t->pending_capacity = capacity;
}

/* Reads the guard of the last step, and keeps the value with the guard.  Returns 0, WB_ERROR_NUMBER
 * if it is not finite, or another error code. */
static int guard_read(wb__thread *t)
{
    wb_tensor *guard = t->late.guard;
    const wb__guard g = wb__guard_of(guard);
    const wb__backend *b = g.device->backend;
    const size_t bytes = wb__dtype_size(g.dtype);
    char value[8];
    const int status = t->late.read ? b->end_read(g.device, t->late.read, value)
                                    : b->download(g.device, value, g.memory, g.at, bytes);
    t->late.read = NULL;
    if (status) return status;
    if (!g.at && guard->storage->bytes == bytes) wb__storage_set_read(guard->storage, value);
    return guard_check_number(value, g.dtype);
}

/* Makes the writes of the last step sure or, if it failed, WB__CANCELLED. */
static void guard_finish_step(wb__thread *t, bool failed)
{
    wb_tensor *guard = t->late.guard;
    const unsigned becomes = failed ? WB__CANCELLED : 0;
    guard->flags = (uint16_t)((guard->flags & ~WB__UNCONFIRMED) | becomes);
    for (int i = 0; i < t->late.n; i++) {
        wb_tensor *a = t->late.writes[i];
        a->flags = (uint16_t)((a->flags & ~WB__UNCONFIRMED) | becomes);
        wb__unref(a);
    }
    t->late.n = 0;
    t->late.guard = NULL;
    wb__journal_settle(t);
    wb__unref(guard);
}

/* Reads the guard of the last step, if the host has not; `when` ends the message. */
static int guard_confirm_step(const char *when)
{
    wb__thread *t = wb__this_thread();
    if (wb__likely(!t->late.guard)) return 0;
    const int status = guard_read(t);
    if (status && status != WB_ERROR_NUMBER) {
        const wb_device *d = t->late.guard->storage->device;
        /* a lost device has lost the guard and the variables too */
        if (d->backend->is_lost && d->backend->is_lost(d)) guard_finish_step(t, true);
        return status;
    }
    if (status) guard_set_error(t->late.guard, t->late.by, when);
    if (status) t->failed_late = true;
    guard_finish_step(t, status != 0);
    return status;
}

int wb__guard_confirm(void)
{
    const wb__thread *t = wb__this_thread();
    const int status = guard_confirm_step(" in the last step");
    /* Pending writes that depend on an operation of the ranks (t->exchanged) stay: in that
     * operation the other ranks wait for this one. */
    if (status == WB_ERROR_NUMBER && !t->recording && !t->exchanged) wb__forget_pending(0);
    return status;
}

int wb__guard_confirm_for(wb__storage *s)
{
    const wb_tensor *guard = wb__this_thread()->late.guard;
    if (wb__likely(!guard) || guard->storage->device != s->device || wb__storage_is_read(s))
        return 0;
    return wb__guard_confirm();
}

int wb__guard_confirm_before(void)
{
    return guard_confirm_step(" in the step before, without which this step is not made either");
}

bool wb__guard_was_late(void) { return wb__this_thread()->failed_late; }

void wb__guard_forget(void)
{
    wb__thread *t = wb__thread_now;
    if (!t) return;
    if (t->late.read) {
        const wb__guard g = wb__guard_of(t->late.guard);
        if (g.device->backend->end_read(g.device, t->late.read, NULL)) wb_clear_error();
        t->late.read = NULL;
    }
    if (t->late.guard) guard_finish_step(t, false);
    wb__journal_forget(t);
    wb__unref(t->finite);
    t->finite = NULL;
    wb__free(t->late.writes);
    t->late.writes = NULL;
    t->late.capacity = 0;
}
