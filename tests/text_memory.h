/* Tests of memory and copies that hold for every backend that compiles text. */
#ifndef WB_TEST_TEXT_MEMORY_H
#define WB_TEST_TEXT_MEMORY_H

#include "text_program.h"

#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own, with this variable set: starting fails and says so; the status is 0. */
static inline int child(const char *name, const char *value, const char *part)
{
    const pid_t process = fork();
    if (!process) {
        setenv(name, value, 1);
        b = &TEST_BACKEND;
        const int status = b->start();
        const bool right = status && strstr(wb_error(), part) && b->count() == 0;
        if (!right) fprintf(stderr, "%s=%s: %d, %s\n", name, value, status, wb_error());
        if (status) b->stop();                  /* harmless */
        _exit(right ? 0 : 1);
    }
    int status = -1;
    waitpid(process, &status, 0);
    return status;
}

static void test_no_bytes(void **state)
{
    (void)state;
    void *none = take(dev[0], 0);
    check(b->upload(dev[0], none, 0, NULL, 0));
    check(b->download(dev[0], NULL, none, 0, 0));
    check(b->copy(dev[0], none, 0, dev[0], none, 0, 0));
    b->release(dev[0], none, 0);
}

/* Every size around the borders of classes can be written from end to end. */
static void test_sizes(void **state)
{
    (void)state;
    unsigned char *x = malloc(80000), *y = malloc(80000);
    for (size_t i = 0; i < 80000; i++) x[i] = (unsigned char)(i * 31 >> 3);
    for (size_t power = 1; power <= 65536; power *= 2) {
        for (size_t part = 0; part < 3; part++) {
            const size_t size = power + part - 1 + (part == 2 ? power / 8 : 0);
            void *memory = take(dev[0], size);
            check(b->upload(dev[0], memory, 0, x, size));
            memset(y, 0, size);
            check(b->download(dev[0], y, memory, 0, size));
            assert_memory_equal(x, y, size);
            b->release(dev[0], memory, size);
        }
    }
    free(x);
    free(y);
}

static void test_limit(void **state)
{
    (void)state;
    void *held[32];
    int n = 0;
    check(restart("WEBER_MEMORY_LIMIT", "1M"));
    while (n < 32 && (held[n] = b->allocate(dev[0], 100000))) {
        n++;
        assert_true(memory_of(dev[0]).used + memory_of(dev[0]).cached <= 1 << 20);
    }
    assert_true(n == 9 || n == 10);             /* sizes are rounded up by an eighth at most */
    expect_error(wb_error_code(), WB_ERROR_MEMORY, TEST_TAG ":0: out of memory: 97.7 KiB wanted; "
                 "1.0 MiB allowed by WEBER_MEMORY_LIMIT, ");
    void *other = take(dev[1], 1000000);        /* the limit is each device's */
    b->release(dev[1], other, 1000000);
    b->release(dev[0], held[--n], 100000);      /* and the program goes on */
    assert_non_null(held[n] = b->allocate(dev[0], 100000));
    n++;
    while (n) b->release(dev[0], held[--n], 100000);
    assert_true(memory_of(dev[0]).cached >= 900000);
    void *large = take(dev[0], 1000000);        /* in other sizes: it is given back */
    assert_int_equal(memory_of(dev[0]).cached, 0);
    assert_true(memory_of(dev[0]).used <= 1 << 20);
    b->release(dev[0], large, 1000000);
    large = take(dev[0], 1 << 20);              /* all there is */
    expect_none(b->allocate(dev[0], 1), "1 bytes wanted");
    b->release(dev[0], large, 1 << 20);
    expect_none(b->allocate(dev[0], (1 << 20) + 1), "out of memory");
    check(restart("WEBER_MEMORY_LIMIT", "1.5KiB"));
    b->release(dev[0], take(dev[0], 1536), 1536);
    expect_none(b->allocate(dev[0], 1537), "1.5 KiB allowed");
    check(restart("WEBER_MEMORY_LIMIT", "2000"));
    expect_none(b->allocate(dev[0], 2001), "2.0 KiB allowed");
    check(restart("WEBER_MEMORY_LIMIT", "50%"));
    const wb_device_memory m = memory_of(dev[0]);
    assert_true(m.free == m.total / 2);
    check(restart("WEBER_MEMORY_LIMIT", "2GB"));
    assert_true(memory_of(dev[0]).free == 2000000000);
    static const char *const wrong[] = {"much", "-1", "5X", "1.5 GiB", "50%%", "M", "3Mb/s"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++)
        expect_error(restart("WEBER_MEMORY_LIMIT", wrong[i]), WB_ERROR_ARGUMENT, wrong[i]);
    check(restart("WEBER_MEMORY_LIMIT", NULL));
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void transfers(void)
{
    enum { SIZE = 9 << 20 };                    /* three pieces of staging */
    unsigned char *x = malloc(SIZE), *y = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) x[i] = (unsigned char)(i * 2654435761u >> 13);
    void *memory = take(dev[0], SIZE);
    check(b->upload(dev[0], memory, 0, x, SIZE));
    check(b->download(dev[0], y, memory, 0, SIZE));
    assert_memory_equal(x, y, SIZE);
    static const struct { size_t at, n; } parts[] = {
        {0, 1}, {1, 1}, {3, 1000}, {SIZE - 1, 1}, {4093, 5000000}, {SIZE / 2, SIZE / 2}};
    for (size_t i = 0; i < WB__COUNT(parts); i++) {
        memset(y, 0xaa, SIZE);
        check(b->download(dev[0], y, memory, parts[i].at, parts[i].n));
        assert_memory_equal(x + parts[i].at, y, parts[i].n);
        assert_true(parts[i].n == SIZE || y[parts[i].n] == 0xaa);
        memset(y, (int)i, parts[i].n);
        memcpy(x + parts[i].at, y, parts[i].n);
        check(b->upload(dev[0], memory, parts[i].at, y, parts[i].n));
        check(b->download(dev[0], y, memory, 0, SIZE));
        assert_memory_equal(x, y, SIZE);
    }
    b->release(dev[0], memory, SIZE);
    memory = take(dev[0], 100);
    expect_error(b->upload(dev[0], memory, 5000, x, 1), WB_ERROR_INTERNAL, "1 bytes at 5000 of");
    expect_error(b->download(dev[0], y, memory, 0, 999), WB_ERROR_INTERNAL, "999 bytes at 0 of");
    b->release(dev[0], memory, 100);
    free(x);
    free(y);
}

static void test_transfers(void **state)
{
    (void)state;
    transfers();
}

static void test_copies(void **state)
{
    (void)state;
    float x[N], y[N];
    fill(x, N, 1);
    for (int source = 0; source < 2; source++) {
        for (int target = 0; target < 2; target++) {
            const wb_device *from_device = dev[source], *to_device = dev[target];
            void *from = take(from_device, BYTES), *to = take(to_device, BYTES);
            wb__kernel *k = prepared(from_device, STEP_SCALE, N);
            check(b->upload(from_device, from, 0, x, BYTES));
            launch(from_device, k, from, from, NULL, 0, 3);     /* the copy waits for it */
            memset(y, 0, BYTES);
            check(b->upload(to_device, to, 0, y, BYTES));
            check(b->copy(to_device, to, 40, from_device, from, 80, 400));
            launch(from_device, k, from, from, NULL, 0, 0);     /* and has ended before this */
            check(b->download(to_device, y, to, 0, BYTES));
            for (int i = 0; i < N; i++)
                assert_true(y[i] == (i >= 10 && i < 110 ? 3 * x[i + 10] : 0));
            check(b->download(from_device, y, from, 0, BYTES));
            for (int i = 0; i < N; i++) assert_true(y[i] == 0);
            b->destroy(from_device, k);
            b->release(from_device, from, BYTES);
            b->release(to_device, to, BYTES);
        }
    }
}

#endif
