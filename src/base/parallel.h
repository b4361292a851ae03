/* One pool of threads for everything: OpenMP's where oneDNN (which uses it) is built in, ours
 * elsewhere. */
#ifndef WB__PARALLEL_H
#define WB__PARALLEL_H

#include <stdint.h>

/* Calls body(ctx, i) for i in [0, n), spread over at most wb__threads() threads, and returns when
 * all are done.  From inside a body, or with n = 1, or with one thread: serial. */
void wb__parallel(int64_t n, void (*body)(void *ctx, int64_t i), void *ctx);

/* Threads in use: WEBER_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may run on.
 */
int wb__threads(void);
int wb__set_threads(int n);      /* returns the count in force */

#endif
