/* A folder of the test's own, and files in it. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include "process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"

#include <stdio.h>

static char folder[64];

/* Before all tests of a program, and behind them. */
static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", process_folder());
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
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

/* By the C library alone, whatever Weber's own functions were told to fail at. */
static inline void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(n ? fwrite(data, 1, n, f) : 0, n);
    assert_int_equal(fclose(f), 0);
}

#endif
