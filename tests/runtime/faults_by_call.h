/* Every call of a driver fails once, from listing the devices to giving all back: there is an error
 * or the right result, never a crash; nothing is left behind; and the next try works. */
#ifndef FAULTS_BY_CALL_H
#define FAULTS_BY_CALL_H

#include "by_hand.h"

/* What makes calls of a backend fail. */
typedef struct {
    const wb__backend *backend;
    const char *variable;               /* which: "n", "n+" for all behind it */
    int64_t (*failed)(char text[200]);  /* how many since it was last asked, and the first */
    bool (*nothing_left)(void);         /* with the driver */
} calls_that_fail;

/* Every call in turn, until there is none left to fail; with `all`: and all after it; `fresh`: the
 * disk has no kernels.  There are more than `least` calls. */
void fail_each(const calls_that_fail *calls, bool all, bool fresh, int least);

extern int without_graph;               /* plans that ran without one */

#endif
