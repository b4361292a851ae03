/* A device that accepts products with every epilogue of kinds.h and with sums, and attention, for
 * tests on machines without a library for them.  These steps are plain loops in double; all others
 * are the CPU's kernels. */
#ifndef NEAR_DEVICE_H
#define NEAR_DEVICE_H

#include "backend/backend.h"

const wb_device *near_device(void);

/* Which epilogues it accepts from now on: bit 1 << NEAR_...; bit 0: sums of the result. */
enum {
    NEAR_RELU = 1, NEAR_TANH, NEAR_SIGMOID, NEAR_GELU,  /* epilogues that every device has */
    NEAR_GELU_AUX, NEAR_RELU_AUX, NEAR_GELU_GRAD, NEAR_RELU_GRAD,
    NEAR_SUMS_OF_A = 16, NEAR_SUMS_OF_B, NEAR_ATTENTION, NEAR_KINDS
};
void near_allow(unsigned kinds);
/* Whether the engine asks it about such steps. */
void near_ask(bool asked);
/* From now on it fails to prepare one of `one_in` accepted problems, and fails the first launch
 * of one of `refused` problems (and then also fails to prepare them, if they are its own
 * steps).  `seed` selects the problems; 0: none. */
void near_decline(int one_in, int refused, unsigned seed);
/* How many preparations and launches failed since then. */
int near_declined(void);
int near_refused(void);
/* The step that the engine asked about last. */
const wb__step *near_asked(void);
/* How many products of a kind (0, NEAR_SUMS_...: with sums), or steps of attention, were launched
 * since near_forget. */
int near_count(int kind);
/* The steps prepared since near_forget, one or two letters each, cut at the buffer's end. */
const char *near_steps(void);
void near_forget(void);

#endif
