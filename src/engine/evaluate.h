/* What is above the graph of tensor.h: evaluation, pending writes, reads of values, copies and
 * variables.  The files of the graph do not include this header. */
#ifndef WB__EVALUATE_H
#define WB__EVALUATE_H

#include "engine/tensor.h"

/* ---- read.c ---------------------------------------------------------------------------------- */

/* Returns wb__bind_begin(what, x, r), evaluated.  NULL: failed, and wb__value_end is not called.
 * Messages begin with `what`. */
wb_tensor *wb__value_begin(const char *what, wb_tensor *x, wb__value_read *r);
/* Returns the element of x as wb_item does, for functions that must not throw. */
double wb__item(wb_tensor *x);
/* Evaluates x and passes its values in order to f(part, elements, ctx): all at once if the host can
 * read the device's memory, else in parts of at most 1 MiB.  Stops when f returns nonzero, and
 * returns this number.  Else returns 0 or an error code.  Keeps no copy of the values on the
 * host. */
int wb__read_in_parts(wb_tensor *x, int (*f)(const void *part, int64_t n, void *ctx), void *ctx);

/* ---- evaluate.c, guard.c, automatic.c -------------------------------------------------------- */

/* Evaluates n tensors and the pending writes.  `guard` is a tensor of one element, or NULL.  If it
 * is not finite, nothing is written, and the call returns WB_ERROR_NUMBER with the value in the
 * message. */
int wb__evaluate(int n, wb_tensor *const *tensors, wb_tensor *guard);
/* Guards the pending writes, and those added until the next evaluation, with a tensor of one
 * element.  An evaluation that is given no guard uses this one.  With an earlier guard, both must
 * be finite.  `what`, a string constant, names the guard in messages.  Returns 0 or an error
 * code. */
int wb__guard_pending(wb_tensor *guard, const char *what);
/* Sets the error that the guard is not finite. */
void wb__fail_guard(const wb_tensor *guard, const char *what);
/* Waits for the guard of the last optimiser step if the host has not read it.  Returns 0,
 * WB_ERROR_NUMBER if the guard is not finite, or another error code.  If it is not finite, the
 * pending writes are cancelled, unless they depend on an operation of the ranks or a function is
 * being recorded.  Functions that wait for the device call wb__guard_confirm. */
int wb__guard_confirm(void);
/* Calls wb__guard_confirm if the host, which is about to read s, must wait for the guard's
 * device. */
int wb__guard_confirm_for(wb__storage *s);
/* Whether the last WB_ERROR_NUMBER of this thread was that of an earlier optimiser step. */
bool wb__guard_was_late(void);
/* Evaluates those tensors of which slices are read (automatic.c); wb__evaluate calls it first. */
int wb__evaluate_sliced(int n, wb_tensor *const *tensors);
int wb__evaluate_pending(void);
/* Evaluates the pending writes of the previous optimiser step.  Called outside all scopes before
 * the program writes n values to n variables, if one of these variables already has a pending
 * write.  Tensors that the program holds and that the values depend on stay readable.  Returns 0 or
 * an error code. */
int wb__end_step(wb__thread *t, int n, wb_tensor *const *values);
/* Detaches recent tensors that the program holds and that can no longer be evaluated or
 * differentiated.  Called after an evaluation overwrote versions of variables. */
void wb__cut_stale(wb__thread *t);
/* Evaluates n tensors and the pending writes.  Versions that the writes replace stay readable. */
int wb__evaluate_keeping(int n, wb_tensor *const *tensors);
/* Evaluates all unconsumed results and the pending writes, and logs a warning the first time in a
 * process.  Called when a thread exceeds WB__MOST_UNEVALUATED.  Inside a scope does nothing.
 * Returns 0 or an error code. */
int wb__evaluate_overgrown(wb__thread *t);

/* Evaluates the first n_writes pending writes and n tensors.  Later writes stay pending.  Returns 0
 * or an error code. */
int wb__evaluate_first(wb__thread *t, int n_writes, int n, wb_tensor *const *tensors);
/* Gives the variable new memory with a copy, if anything besides the variable refers to the version
 * in its memory, so that this version stays readable.  Called before the variable is written.
 * Returns 0 or an error code. */
int wb__keep_version(wb_tensor *variable);

/* Adds a pending write of the value to the variable, without checks of shape.  Returns the new
 * version; NULL: failed. */
wb_tensor *wb__assign(wb_tensor *variable, wb_tensor *value);
/* Returns the number of this thread's pending writes. */
int wb__pending_count(void);
/* Cancels this thread's pending writes from index `first` on. */
void wb__forget_pending(int first);
/* Marks the variable's version WB__GONE and gives the variable a new one, if anything besides the
 * variable refers to that version.  Called after a replay wrote the variable's memory.  Returns 0
 * or an error code. */
int wb__new_version(wb_tensor *variable);
/* Writes host values to a variable at once.  If a write to it is pending, evaluates all pending
 * writes first.  `bytes` must be the size of the variable.  Returns 0 or an error code. */
int wb__overwrite(wb_tensor *variable, const void *values, size_t bytes);

/* ---- move.c, variable.c ---------------------------------------------------------------------- */

/* Returns a constant without inputs that shares the memory of x, an evaluated tensor. */
wb_tensor *wb__as_constant(const wb_tensor *x);
/* Returns such a constant for x, which may be a variable.  NULL: failed, or another thread writes
 * x. */
wb_tensor *wb__constant_of(const char *what, wb_tensor *x);
/* Returns a constant on d with a copy of the value of x. */
wb_tensor *wb__copied(wb_tensor *x, const wb_device *d);
/* Returns x with dtype t, for a copy to d.  The result is on x's device, or on d if x's device
 * lacks the dtype. */
wb_tensor *wb__converted(wb_tensor *x, wb_dtype t, const wb_device *d);
/* Returns a variable on d with a copy of the value of x, and with wb__kept_flags(x). */
wb_tensor *wb__variable_on(wb_tensor *x, const wb_device *d);
/* Returns a variable on the default device.  Its memory is uninitialised. */
wb_tensor *wb__variable_empty(wb_dtype dtype, int ndim, const int64_t *dims);
/* Returns wb_to(x, d, .dtype = dtype), which is x if nothing changes.  Gradients pass through. */
wb_tensor *wb__tensor_to(wb_tensor *x, const wb_device *d, wb_dtype dtype);
/* Returns the dtype that a tensor of dtype `from` has after wb_to moved it to d.  The third
 * parameter is the option .dtype of wb_to.  WB_DTYPE_DEFAULT, with the error set: the device does
 * not have this dtype. */
wb_dtype wb__dtype_on(const wb_device *d, wb_dtype from, wb_dtype wanted);
int wb__copy_bytes(const wb_device *to_device, void *to, size_t to_at, const wb_device *from_device,
                   const void *from, size_t from_at, size_t bytes);

#endif
