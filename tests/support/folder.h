/* A folder of the test's own, and files in it. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include "process.h"

#include "test.h"

#include "base/base.h"

#include <fcntl.h>
#include <unistd.h>

static char folder[64];

/* Before all tests of a program, and behind them. */
static inline int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "%s", process_folder());
    return 0;
}

static inline int remove_folder(void **state)
{
    process_remove(folder);
    wb_shutdown();
    return 0;
}

/* The path of a file there; the last four are kept. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ & 3];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* By the system alone, whatever Weber's own functions were told to fail at.  Cut at its end, not emptied first: then nobody
 * waits for the disk, and some tests write many thousands. */
static inline void put_file(const char *path, const void *data, size_t n)
{
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(file >= 0);
    assert_true(write(file, n ? data : "", n) == (ssize_t)n);
    assert_int_equal(ftruncate(file, (off_t)n), 0);
    assert_int_equal(close(file), 0);
}

#endif
