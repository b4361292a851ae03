/* The journal: numbers of the host that change with a write which may still be cancelled. */
#ifndef WB__JOURNAL_H
#define WB__JOURNAL_H

#include "engine/tensor.h"

/* Keeps the value of a number of `bytes` bytes, at most 8, before it changes with `write`: a
 * pending write, or the guard of an optimiser step that the host has not read yet (late.guard), or
 * NULL.  If `write` is cancelled, the number gets back the old value.  If it is sure or NULL,
 * nothing is kept.  `block` is the object that has the number.  Returns 0, or an error code: then
 * the number must not change. */
int wb__journal(wb_tensor *write, void *block, void *number, size_t bytes);
/* Restores the numbers of cancelled writes, and drops the entries of writes that are sure. */
void wb__journal_settle(wb__thread *t);
/* Whether a write is pending that changes a number of `block`. */
bool wb__journal_waits(const wb__thread *t, const void *block);
void wb__journal_forget(wb__thread *t);         /* when a thread ends */

#endif
