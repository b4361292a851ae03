/* A device that accepts products with every epilogue and with sums, and attention, for tests on
 * machines without a library for them.  It computes these steps in plain loops in double; all other
 * steps use the CPU's kernels. */
#ifndef NEAR_DEVICE_H
#define NEAR_DEVICE_H

#include "backend/backend.h"

const wb_device *near_device(void);

/* The kinds of steps that it may accept: near_allow sets a mask of 1 << NEAR_...; bit 0 is sums of
 * the result. */
enum {
    NEAR_RELU = 1, NEAR_TANH, NEAR_SIGMOID, NEAR_GELU,  /* epilogues that every device has */
    NEAR_GELU_AUX, NEAR_RELU_AUX, NEAR_GELU_GRAD, NEAR_RELU_GRAD, NEAR_ADDEND,
    NEAR_SUMS_OF_A = 16, NEAR_SUMS_OF_B, NEAR_ATTENTION, NEAR_KINDS
};
void near_allow(unsigned kinds);
/* false: the backend has no function `supports`, so that the engine never asks it. */
void near_ask(bool asked);
/* From now on it fails to prepare one of `one_in` accepted problems, and fails the first launch
 * of one of `refused` problems (and then also fails to prepare them, if they are its own
 * steps).  `seed` selects the problems; 0: none. */
void near_decline(int one_in, int refused, unsigned seed);
/* How many preparations and launches failed since near_decline. */
int near_declined(void);
int near_refused(void);
/* The step that the engine asked about last. */
const wb__step *near_asked(void);
/* How many steps of a kind were launched since near_forget; kind 0: with sums of the result. */
int near_count(int kind);
/* The steps prepared since near_forget, one or two letters each, cut at the buffer's end. */
const char *near_steps(void);
void near_forget(void);

#endif
