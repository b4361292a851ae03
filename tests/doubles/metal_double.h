/* For tests of the Metal backend on the double of Metal: the double's counts of live objects, calls
 * and wrong uses (vgpu_books, vgpu_metal_books). */
#ifndef WB_TEST_METAL_DOUBLE_H
#define WB_TEST_METAL_DOUBLE_H

#include "tests/doubles/metal/vgpu_metal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void (*read_books)(vgpu_books *);
static void (*read_metal_books)(vgpu_metal_books *);
static int64_t (*count_calls)(const char *);
static void (*forget_calls)(void);
static int64_t (*calls_failed)(char text[200]);
static void (*fail_from_here)(void);    /* reads VGPU_FAIL again, and counts from 0 */

#define FAIL "VGPU_FAIL"

/* Opens the double.  Without a double the program is skipped (exit status 77). */
static inline void open_double(void)
{
    const char *file = getenv("WEBER_METAL_LIBRARY");
    void *library = file && *file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) {
        *(void **)&read_books = dlsym(library, "vgpu_read_books");
        *(void **)&read_metal_books = dlsym(library, "vgpu_read_metal_books");
        *(void **)&count_calls = dlsym(library, "vgpu_calls");
        *(void **)&forget_calls = dlsym(library, "vgpu_forget");
        *(void **)&calls_failed = dlsym(library, "vgpu_failed");
        *(void **)&fail_from_here = dlsym(library, "vgpu_fail_from_here");
    }
    if (read_books && read_metal_books && count_calls && forget_calls && calls_failed &&
        fail_from_here)
        return;
    printf("SKIP: no test double of Metal: it needs a C++ compiler to be built, and"
           " WEBER_METAL_LIBRARY must name its file\n");
    exit(getenv("WEBER_TEST_MUST") ? 1 : 77);
}

/* Prints the objects that were not released, and the first wrong use.  Returns 1 if there are any,
 * else 0. */
static inline int tell_left(void)
{
    vgpu_metal_books m;
    vgpu_books left;
    read_metal_books(&m);
    read_books(&left);
    const struct { const char *name; int64_t n; } all[] = {
        {"objects", m.objects}, {"buffers", m.buffers}, {"queues", m.queues},
        {"command buffers", m.command_buffers}, {"encoders", m.encoders},
        {"libraries", m.libraries}, {"functions", m.functions}, {"pipelines", m.pipelines},
        {"events", m.events}, {"archives", m.archives}, {"strings", m.strings},
        {"errors", m.errors}, {"commands", m.commands}, {"bytes", left.bytes},
        {"wrong uses", left.wrong}};
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
