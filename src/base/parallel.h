/* The pool of threads. */
#ifndef WB__PARALLEL_H
#define WB__PARALLEL_H

#include <stdint.h>

/* Calls body(ctx, i) for each i in [0, n) on at most wb__threads() threads, and returns when all
 * calls have returned.  Inside a body, with n = 1, with one thread, and where other programs keep
 * the processors busy, the calls are serial.  So a body must not wait for another one. */
void wb__parallel(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx);

/* Does what wb__parallel does, for bodies that may block, in reads or callbacks of the program. */
void wb__parallel_waiting(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx);

/* Ends the threads of the pool, and returns when they have ended.  A later call starts new ones.  A
 * body must not call it. */
void wb__parallel_stop(void);

/* Makes the pool crowded for `crowded` nanoseconds, and the caller compute alone for `alone`:
 * tests. */
void wb__parallel_crowd(int64_t crowded, int64_t alone);

/* Returns the number of threads to use: WEBER_NUM_THREADS, else OMP_NUM_THREADS, else the number of
 * processors that this process may use. */
int wb__threads(void);
int wb__set_threads(int n);      /* returns the number in force */

#endif
