/* For the tests of backends that compile text, each by itself, with hand-written kernels in place of
 * the engine's (the linker puts them there).  Before it is included, TEST_OPENCL or TEST_CUDA says
 * which. */
#ifndef WB_TEST_TEXT_DEVICE_H
#define WB_TEST_TEXT_DEVICE_H

#include "backend/gpu/gpu.h"
#include "backend/kernel_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hand-written steps, chosen by wb__step.variant.  Buffers are 0 and 1, in f32; dims[0] of view 0
 * is how many elements there are; number 0 is a factor. */
typedef enum {
    STEP_SCALE,         /* y = factor x */
    STEP_TWICE,         /* workspace = x + 1, then y = factor workspace: two launches */
    STEP_SLOW,          /* y = x + 1, after many turns of a loop */
    STEP_F64,           /* y = (float)(1 + 2^-40 - 1), which needs double */
    STEP_WRONG,         /* does not compile */
    STEP_WIDE,          /* more items in a group than any device has */
    STEP_NAMELESS,      /* its entry is not in the text */
    STEP_PARTS          /* y = factor x in TEST_PARTS pieces: as many segments of one launch */
} test_step;
enum { TEST_PARTS = 3 };

#define FLOATS "GLOBAL float *x = PTR(float, b0, 0, 0), *y = PTR(float, b1, 0, 0);"
#define ARGUMENTS                                                                                  \
    "typedef struct { uint n; float factor; uint at[2]; } test_args;\n"
static const char *const test_texts[] = {
    [STEP_SCALE] = ARGUMENTS
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[i] = a.factor * x[i]; }\n",
    [STEP_TWICE] = ARGUMENTS
        "KERNEL add(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[a.at[0] / 4 + i] = x[i] + 1; }\n"
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0); if (i < a.n) y[i] = a.factor * x[a.at[0] / 4 + i]; }\n",
    [STEP_SLOW] = ARGUMENTS
        "KERNEL slow(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2))\n"
        "{ uint i = GID(0), k; float v = x[i];\n"
        "  for (k = 0; k < 60000; k++) { v = v * 1.0001f + 0.001f; if (v > 2) v -= 1; }\n"
        "  if (i < a.n) y[i] = v > -1 ? x[i] + 1 : v; }\n",
    [STEP_F64] = ARGUMENTS
        "KERNEL wide(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2))\n"
        "{ double d = 1.0 + 9.094947017729282e-13; uint i = GID(0);\n"
        "  if (i < a.n) y[i] = (float)(d - x[i]); }\n",
    [STEP_WRONG] = "KERNEL wrong(IN(float, x, 0) { there is no such_word; }\n",
    [STEP_WIDE] = ARGUMENTS
        "KERNEL scale(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2)) { y[0] = x[0]; }\n",
    [STEP_NAMELESS] = ARGUMENTS
        "KERNEL other(IN(float, x, 0), OUT(float, y, 1), ARGS(test_args, 2)) { y[0] = x[0]; }\n",
    [STEP_PARTS] = ARGUMENTS
        "KERNEL scale(BUF(b0, 0), BUF(b1, 1), ARGS(test_args, 2))\n"
        "{ " FLOATS " uint i = GID(0) + a.at[0];\n"
        "  if (GID(0) < a.n) y[i] = a.factor * x[i]; }\n",
};
#undef FLOATS
#undef ARGUMENTS

static inline wb__gpu_launch *test_add(wb__gpu_work *work, const wb__step *step, const char *entry,
                                       int from, int to)
{
    const struct { uint32_t n; float factor; uint32_t at[2]; } args = {
        (uint32_t)step->views[0].dims[0], 0, {0, 0}};
    wb__gpu_launch *l = wb__gpu_add(work, wb__strdup(test_texts[step->variant]), entry, 2,
                                    sizeof args, 1);
    if (!l) return NULL;
    memcpy(l->args, &args, sizeof args);
    l->numbers[0] = (wb__gpu_number){.number = 0, .at = 4, .put = WB__PUT_F32};
    l->buffer[0] = from;
    l->buffer[1] = to;
    l->items[0] = step->variant == STEP_WIDE ? 1 << 24 : 64;
    l->groups[0] = (args.n + 63) / 64;
    l->f64 = step->variant == STEP_F64;
    if (step->variant == STEP_SCALE || step->variant == STEP_TWICE || step->variant == STEP_PARTS)
        l->args_type = "test_args";
    return l;
}

/* Piece i of a step in pieces, which are not all of one size. */
static inline wb__gpu_launch *test_add_piece(wb__gpu_work *work, const wb__step *step, uint32_t i)
{
    const uint32_t n = (uint32_t)step->views[0].dims[0], a_piece = n / TEST_PARTS;
    const struct { uint32_t n; float factor; uint32_t at[2]; } args = {
        i + 1 < TEST_PARTS ? a_piece : n - i * a_piece, 0, {i * a_piece, 0}};
    wb__gpu_launch *l = test_add(work, step, "scale", step->views[0].buffer,
                                 step->views[1].buffer);
    if (!l) return NULL;
    memcpy(l->args, &args, sizeof args);
    l->groups[0] = (args.n + 63) / 64;
    l->segment = (int)i;
    return l;
}

int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    static const char *const entries[] = {"scale", "add", "slow", "wide", "wrong", "scale",
                                          "nothing", "scale"};
    if (step->variant == STEP_F64 && !t->f64)
        return wb__fail(WB_ERROR_UNSUPPORTED, "the device has no double");
    wb__gpu_work *w = wb__alloc_zero(1, sizeof *w);
    if (!w) return WB_ERROR_MEMORY;
    const bool twice = step->variant == STEP_TWICE;
    const bool parts = step->variant == STEP_PARTS;
    const int from = step->views[0].buffer, to = step->views[1].buffer;
    wb__gpu_launch *l = parts ? test_add_piece(w, step, 0)
                              : test_add(w, step, entries[step->variant], from,
                                         twice ? WB__GPU_WORKSPACE : to);
    for (uint32_t i = 1; i < TEST_PARTS && l && parts; i++) l = test_add_piece(w, step, i);
    if (l && twice) {
        l->workspace_at = 8;
        l = test_add(w, step, "scale", WB__GPU_WORKSPACE, to);
        if (l) l->workspace_at = 8;
        w->workspace = 4 * (size_t)step->views[0].dims[0];
    }
    w->impl = "test";
    if (l) *work = w;
    else wb__gpu_work_free(w);
    return l ? 0 : WB_ERROR_MEMORY;
}

static inline wb__step test_step_of(test_step which, int64_t n)
{
    return (wb__step){.kind = WB__STEP_COPY, .variant = (int)which, .n_views = 2,
                      .views = {{.dtype = WB_F32, .ndim = 1, .dims = {n}, .strides = {1}},
                                {.dtype = WB_F32, .buffer = 1, .ndim = 1, .dims = {n},
                                 .strides = {1}}}};
}

/* The disk's place for compiled kernels, kept in memory: one of each kind of kernel.  What is got
 * while `spoiled` is no binary. */
enum { TEST_CACHE = 32 };
static struct {
    char *key;
    void *data;
    size_t key_bytes, bytes;
} test_disk[TEST_CACHE];
static int test_kept, test_hits;
static bool test_spoiled;

void *__wrap_wb__kernel_cache_get(const char *kind, const char *key, size_t key_bytes,
                                  size_t *bytes);
void *__wrap_wb__kernel_cache_get(const char *kind, const char *key, size_t key_bytes,
                                  size_t *bytes)
{
    (void)kind;
    for (int i = 0; i < test_kept; i++) {
        if (test_disk[i].key_bytes != key_bytes || memcmp(test_disk[i].key, key, key_bytes))
            continue;
        void *data = wb__alloc(test_disk[i].bytes);
        if (!data) {
            wb_clear_error();
            return NULL;
        }
        *bytes = test_disk[i].bytes;
        memcpy(data, test_disk[i].data, *bytes);
        if (test_spoiled) memset(data, 'x', *bytes);
        test_hits++;
        return data;
    }
    return NULL;
}

void __wrap_wb__kernel_cache_put(const char *kind, const char *key, size_t key_bytes,
                                 const void *data, size_t bytes);
void __wrap_wb__kernel_cache_put(const char *kind, const char *key, size_t key_bytes,
                                 const void *data, size_t bytes)
{
    (void)kind;
    if (test_kept == TEST_CACHE) return;
    char *k = malloc(key_bytes), *d = malloc(bytes);
    memcpy(k, key, key_bytes);
    memcpy(d, data, bytes);
    test_disk[test_kept].key = k;
    test_disk[test_kept].key_bytes = key_bytes;
    test_disk[test_kept].data = d;
    test_disk[test_kept++].bytes = bytes;
}

static inline void test_disk_empty(void)
{
    while (test_kept) {
        free(test_disk[--test_kept].key);
        free(test_disk[test_kept].data);
    }
}

#if defined(TEST_CUDA)
#define TEST_BACKEND wb__cu_backend
#define TEST_TAG "cuda"
#else
#define TEST_BACKEND wb__cl_backend
#define TEST_TAG "opencl"
#endif

#endif
