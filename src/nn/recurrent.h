/* Sequences of steps, which recurrent layers (recurrent.c) and Recurrence (recurrence.c) share. */
#ifndef WB__RECURRENT_H
#define WB__RECURRENT_H

#include "nn/layer.h"

/* The function that computes a time step of a cell, or of one direction of a recurrent layer.
 * `step` gets the inputs x of one time step, replaces the *n states by the new ones, and sets *y.
 * Without states *n is 0, and `step` sets it.  False, with the error set, on failure. */
typedef struct wb__steps {
    bool (*step)(const struct wb__steps *s, wb_tensor *x, int *n, wb_tensor **states,
                 wb_tensor **y);
    const void *ctx;
} wb__steps;

/* Computes all time steps of x [T, N, ...], backwards if `reverse`.  Replaces the states by the
 * last ones, and sets outputs[t].  A NULL state counts as 0.  `lengths` is i64 [N, 1] or NULL. */
bool wb__unroll(const wb__steps *s, wb_tensor *x, wb_tensor *lengths, bool reverse, int *n,
                wb_tensor **states, wb_tensor **outputs);
/* Returns x [N, T, ...] as [T, N, ...], or [T, N, ...] as [N, T, ...].  In the order [T, N, ...]
 * each time step is contiguous. */
wb_tensor *wb__steps_first(wb_tensor *x);
/* Returns the outputs of n time steps, each [N, ...], as [N, n, ...]. */
wb_tensor *wb__stack_steps(int64_t n, wb_tensor *const *outputs);
/* Returns x where `valid`, bool [N, 1], is true, elsewhere `before`; a NULL `before` counts as
 * zero. */
wb_tensor *wb__where_valid(wb_tensor *valid, wb_tensor *x, wb_tensor *before);
/* If the last input has integers, sets *lengths to it, as i64 [N, 1], and subtracts 1 from *n.
 * `what` is the name of the layer, x its input [N, T, ...]. */
bool wb__read_lengths(const char *what, const wb_tensor *x, int *n, wb_tensor *const *inputs,
                      wb_tensor **lengths);

/* How a layer or cell of the library runs over sequences. */
typedef struct { bool last, reverse, return_state; } wb__over_steps;
/* Calls a recurrent layer, or a cell of the library as a recurrent layer with one pass.  Sets the
 * results and returns how many; a negative number with the error set on failure. */
int wb__call_sequence(wb_layer *l, wb__over_steps how, int n, wb_tensor *const *inputs,
                      wb_tensor **results);
/* Whether the layer is a cell of the library, or (wb__is_recurrent) runs over sequences. */
bool wb__is_cell(const wb_layer *l);
bool wb__is_recurrent(const wb_layer *l);
/* Sets the states with which a cell or recurrent layer of the library begins `batch` sequences.
 * False, with the error set: it has another number of states, or a call failed. */
bool wb__first_states(wb_layer *l, int64_t batch, int n_states, wb_tensor **states);

#endif
