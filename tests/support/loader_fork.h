/* A loader whose program forks in the middle of an epoch. */
#ifndef WB__LOADER_FORK_H
#define WB__LOADER_FORK_H

#include "test.h"

#include "weber.h"

#include <sys/wait.h>
#include <unistd.h>

/* Reads 5 batches of l, which has 15 of 4 observations whose label is their number, and then forks:
 * both processes read the rest.  Closes the scope s, in which l was made. */
static inline void reads_on_after_fork(wb_loader *l, wb_scope *s)
{
    wb_batch b;
    int next = 0;
    while (next < 5 && wb_loader_next(l, &b)) next++;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int good = 1;
        for (; wb_loader_next(l, &b); next++)
            good &= b.index == next && wb_at(b.y, 3) == 4 * next + 3;
        good &= next == 15 && wb_loader_status(l) == 0;
        wb_scope_close(s);
        wb_shutdown();
        _exit(good ? 0 : 1);
    }
    for (; wb_loader_next(l, &b); next++) assert_int_equal(b.index, next);
    assert_int_equal(next, 15);
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    wb_scope_close(s);
}

#endif
