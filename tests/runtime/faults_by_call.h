/* Every call of a driver fails once, from listing the devices to releasing everything.  The
 * result is an error or correct, never a crash; nothing leaks; and the next attempt succeeds. */
#ifndef FAULTS_BY_CALL_H
#define FAULTS_BY_CALL_H

#include "by_hand.h"

/* How calls of a backend are made to fail. */
typedef struct {
    const wb__backend *backend;
    const char *variable;               /* "n": the n-th call; "n+": also all later ones */
    int64_t (*failed)(char text[200]);  /* how many since the last query; text: the first */
    bool (*nothing_left)(void);         /* the driver holds nothing */
} calls_that_fail;

/* The first call fails, then only the second, and so on, until an attempt has fewer calls.  `all`:
 * all later calls fail too; `fresh`: the disk has no kernels.  There must be more than `least`
 * calls. */
void fail_each(const calls_that_fail *calls, bool all, bool fresh, int least);

extern int without_graph;               /* plans that ran without a graph */

#endif
