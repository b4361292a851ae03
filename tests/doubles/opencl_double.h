/* For tests in which calls of OpenCL fail: opens doubles/opencl.c. */
#ifndef WB_TEST_OPENCL_DOUBLE_H
#define WB_TEST_OPENCL_DOUBLE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FAIL "OPENCL_FAIL"

static int64_t (*calls_failed)(char text[200]);
static int64_t (*objects_left)(void);

static inline void open_double(void)
{
    void *library = dlopen(WB_TEST_OPENCL, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        *(void **)&calls_failed = dlsym(library, "opencl_failed");
        *(void **)&objects_left = dlsym(library, "opencl_left");
        setenv("WEBER_OPENCL_LIBRARY", WB_TEST_OPENCL, 1);
    }
    if (calls_failed && objects_left) return;
    fprintf(stderr, "%s: not opened\n", WB_TEST_OPENCL);
    exit(1);
}

static inline bool nothing_left(void) { return !objects_left(); }

#endif
