/* A temporary folder of the test program, and files in it. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include "process.h"

#include "test.h"

#include "base/base.h"

#include <fcntl.h>
#include <unistd.h>

static char folder[64];

/* Fixtures of run_cases: create and remove the folder. */
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

/* The path of a file in the folder.  The last four paths stay valid. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ & 3];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Writes a file by system calls alone, so that failures injected into Weber's own functions do
 * not matter.  The file is truncated after the write, not before it: some file systems flush a
 * file that was truncated to zero, and some tests write thousands of files. */
static inline void put_file(const char *path, const void *data, size_t n)
{
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(file >= 0);
    assert_true(write(file, n ? data : "", n) == (ssize_t)n);
    assert_int_equal(ftruncate(file, (off_t)n), 0);
    assert_int_equal(close(file), 0);
}

#endif
