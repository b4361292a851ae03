/* A device that takes products with all that kinds.h has beside c and with sums, and attention, for
 * tests on machines without a library that has them: the CPU's kernels, but for those steps, which
 * are plain loops in double. */
#ifndef NEAR_DEVICE_H
#define NEAR_DEVICE_H

#include "backend/backend.h"

const wb_device *near_device(void);

/* Which of these it takes from now on: bit 1 << NEAR_...; 0: sums of what is made. */
enum {
    NEAR_RELU = 1, NEAR_TANH, NEAR_SIGMOID, NEAR_GELU,  /* rows that every device does */
    NEAR_GELU_AUX, NEAR_RELU_AUX, NEAR_GELU_GRAD, NEAR_RELU_GRAD,
    NEAR_SUMS_OF_A = 16, NEAR_SUMS_OF_B, NEAR_ATTENTION, NEAR_KINDS
};
void near_allow(unsigned kinds);
/* Whether it is asked at all. */
void near_ask(bool asked);
/* From now on it declines to prepare one of `one_in` problems of those that it took, and refuses
 * one of `refused` problems when they are launched first (then also to prepare them, if they are
 * its own); which, depends on `seed`; 0: none. */
void near_decline(int one_in, int refused, unsigned seed);
/* How many times it declined, and refused, since then. */
int near_declined(void);
int near_refused(void);
/* The step that it was asked about last. */
const wb__step *near_asked(void);
/* How many products of a kind (0, NEAR_SUMS_...: with sums), or steps of attention, were launched
 * since near_forget. */
int near_count(int kind);
/* The steps prepared since near_forget, a letter or two each; what does not fit is left out. */
const char *near_steps(void);
void near_forget(void);

#endif
