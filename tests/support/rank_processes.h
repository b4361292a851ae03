/* For tests of ranks that are threads, and of processes that find each other as those of `weber
 * launch` do. */
#ifndef RANK_PROCESSES_H
#define RANK_PROCESSES_H

#include "base/base.h"

#include <math.h>
#include <time.h>

/* Checks of a rank, which is a thread: it returns an error, which wb_distributed_run returns. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return wb__fail(WB_ERROR_ARGUMENT, "line %d: %s does not hold: %s", __LINE__,          \
                            #condition, wb_error());                                               \
    } while (0)

static inline void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))}, NULL);
}

/* Runs this program `processes` times with the arguments "child", how, devices, and waits for all.
 * Their output becomes `text`, one after the other.  Returns the number of those that fail. */
int run_processes(int processes, const char *how, const char *devices, char text[8192]);

#endif
