/* For tests of the CUDA backend on the double of NVIDIA's driver: the double's counts of live
 * objects, calls and wrong uses (vgpu_books). */
#ifndef WB_TEST_CUDA_DOUBLE_H
#define WB_TEST_CUDA_DOUBLE_H

#include "tests/doubles/cuda/vgpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void (*read_books)(vgpu_books *);
static int64_t (*count_calls)(const char *);
static void (*forget_calls)(void);
static void (*fail_from_here)(void);    /* counts the calls of FAIL from now on */

#define FAIL "VGPU_FAIL"
static int64_t (*calls_failed)(char text[200]);

/* Opens the double.  Without a double the program is skipped (exit status 77). */
static inline void open_double(void)
{
    const char *file = getenv("VGPU_LIBRARY");
    if (!file) file = getenv("WEBER_CUDA_LIBRARY");
    void *library = file && *file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) {
        *(void **)&read_books = dlsym(library, "vgpu_read_books");
        *(void **)&count_calls = dlsym(library, "vgpu_calls");
        *(void **)&forget_calls = dlsym(library, "vgpu_forget");
        *(void **)&calls_failed = dlsym(library, "vgpu_failed");
        *(void **)&fail_from_here = dlsym(library, "vgpu_fail_from_here");
    }
    if (read_books && count_calls && forget_calls && calls_failed && fail_from_here) return;
    printf("SKIP: no test double of the CUDA driver: it needs a C++ compiler to be built, and"
           " WEBER_CUDA_LIBRARY must name its file\n");
    exit(77);
}

static inline vgpu_books books(void)
{
    vgpu_books found;
    read_books(&found);
    return found;
}

/* Prints the objects that were not released, and the first wrong use of the driver.  Returns 1 if
 * there are any, else 0. */
static inline int tell_left(void)
{
    const vgpu_books left = books();
    const struct { const char *name; int64_t n; } all[] = {
        {"contexts", left.contexts}, {"streams", left.streams}, {"events", left.events},
        {"modules", left.modules}, {"pools", left.pools}, {"graphs", left.graphs},
        {"graphs to run", left.execs}, {"blocks", left.blocks}, {"host blocks", left.host_blocks},
        {"objects of libraries", left.held}, {"wrong uses", left.wrong}};
    int found = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].n) continue;
        print_error("left: %lld %s\n", (long long)all[i].n, all[i].name);
        found = 1;
    }
    if (left.wrong) print_error("the first of them: %s\n", left.first_wrong);
    return found;
}

static inline bool nothing_left(void) { return !tell_left(); }

/* The last test of a program, after the backend's stop(). */
static inline void test_books(void **state)
{
    (void)state;
    assert_int_equal(tell_left(), 0);
}

#endif
