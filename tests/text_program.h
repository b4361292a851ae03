/* What the test programs of backends that compile text share: two devices, and calls that must
 * succeed. */
#ifndef WB_TEST_TEXT_PROGRAM_H
#define WB_TEST_TEXT_PROGRAM_H

#include "text_device.h"

static const wb__backend *b;
static const wb_device *dev[2];
static int64_t memory_before;

enum { N = 1000, BYTES = N * sizeof(float) };

static inline void check(int status)
{
    if (status) print_error("%s\n", wb_error());
    assert_int_equal(status, 0);
}

static inline void expect_error(int status, int code, const char *part)
{
    assert_int_equal(status, code);
    assert_int_equal(wb_error_code(), code);
    if (!strstr(wb_error(), part)) fail_msg("\"%s\" does not tell \"%s\"", wb_error(), part);
    wb_clear_error();
}

static inline void expect_none(void *memory, const char *part)
{
    assert_null(memory);
    expect_error(wb_error_code(), WB_ERROR_MEMORY, part);
}

static inline void *take(const wb_device *d, size_t bytes)
{
    void *memory = b->allocate(d, bytes);
    if (!memory) print_error("%s\n", wb_error());
    assert_non_null(memory);
    return memory;
}

static inline wb_device_memory memory_of(const wb_device *d)
{
    wb_device_memory m;
    check(b->memory(d, &m));
    return m;
}

static inline wb__kernel *prepared(const wb_device *d, test_step which, int64_t n)
{
    wb__kernel *k = NULL;
    const wb__step step = test_step_of(which, n);
    check(b->prepare(d, &step, &k));
    assert_non_null(k);
    return k;
}

static inline void launch(const wb_device *d, const wb__kernel *k, void *from, void *to,
                          void *workspace, size_t workspace_at, double number)
{
    const wb__number numbers = {.f = number};
    void *buffers[] = {from, to};
    check(b->launch(d, k, buffers, NULL, workspace, workspace_at, &numbers));
}

static inline void fill(float *x, size_t n, float first)
{
    for (size_t i = 0; i < n; i++) x[i] = first + (float)(i % 1000);
}

/* Starts anew with a variable of the environment set, or without it. */
static inline int restart(const char *name, const char *value)
{
    b->stop();
    if (value) setenv(name, value, 1);
    else unsetenv(name);
    const int status = b->start();
    for (int i = 0; i < 2; i++) dev[i] = status ? NULL : b->device(i);
    return status;
}

/* The devices, before a group of tests. */
static inline int begin(void **state)
{
    (void)state;
    b = &TEST_BACKEND;
    memory_before = wb_memory_used();
    if (b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) dev[i] = b->device(i);
    return b->count() == 2 ? 0 : 1;
}

/* The last test of each group, since cmocka forgives a teardown that fails. */
static inline void test_nothing_left(void **state)
{
    (void)state;
    b->stop();
    b->stop();
    test_disk_empty();
    assert_int_equal(wb_memory_used() - memory_before, 0);
}

#endif
