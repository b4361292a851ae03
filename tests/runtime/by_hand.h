/* For the tests of the GPU runtime and of its drivers, each by itself, with hand-written kernels in
 * place of the engine's, and the disk's place for compiled kernels in memory: the linker puts both
 * there (CMakeLists.txt). */
#ifndef BY_HAND_H
#define BY_HAND_H

#include "test.h"

#include "backend/gpu/gpu.h"

/* Steps, chosen by wb__step.variant.  Buffers are 0 and 1, in f32; dims[0] of view 0 is how many
 * elements there are; number 0 is a factor. */
typedef enum {
    STEP_SCALE,         /* y = factor x */
    STEP_TWICE,         /* workspace = x + 1, then y = factor workspace: two launches */
    STEP_SLOW,          /* y = x + 1, after many turns of a loop */
    STEP_F64,           /* y = (float)(1 + 2^-40 - 1), which needs double */
    STEP_WRONG,         /* does not compile */
    STEP_WIDE,          /* more items in a group than any device has */
    STEP_NAMELESS,      /* its entry is not in the text */
    STEP_PARTS,         /* y = factor x in TEST_PARTS pieces: as many segments of one launch */
    STEPS_BY_HAND
} test_step;
enum { TEST_PARTS = 3 };

extern const char *const test_texts[STEPS_BY_HAND];
typedef struct { uint32_t n; float factor; uint32_t at[2]; } test_args;     /* of each text */

wb__step test_step_of(test_step which, int64_t n);

/* The disk: how many kernels it holds, how often one was found; what is found while it is spoiled is
 * no binary. */
extern int test_kept, test_hits;
extern bool test_spoiled;
void test_disk_empty(void);

/* ---- a backend with two devices -------------------------------------------------------------- */

enum { N = 1000, BYTES = N * sizeof(float) };
extern const wb__backend *b;
extern const wb_device *dev[2];

/* A setup of run_cases for this backend, and its last test: nothing is left when it has stopped. */
int test_begin(const wb__backend *backend);
void test_end(void);
/* Starts anew with a variable of the environment set, or without it. */
int restart(const char *name, const char *value);
/* In a process of its own, with this variable set: starting fails and says so; the status is 0. */
int child(const wb__backend *backend, const char *name, const char *value,
          const char *const *facts);
#define CHILD(backend, name, value, ...) child(backend, name, value, FACTS(__VA_ARGS__))
/* The status of what a process of its own returns, which has a minute. */
int in_child(int (*run)(void));

/* Calls that must fail so, or succeed. */
void expect_error(int status, int code, const char *const *facts);
void expect_none(void *memory, const char *const *facts);
#define EXPECT_ERROR(status, code, ...) expect_error(status, code, FACTS(__VA_ARGS__))
#define EXPECT_NONE(memory, ...) expect_none(memory, FACTS(__VA_ARGS__))
void *take(const wb_device *d, size_t bytes);
wb_device_memory memory_of(const wb_device *d);
wb__kernel *prepared(const wb_device *d, test_step which, int64_t n);
void launch(const wb_device *d, const wb__kernel *k, void *from, void *to, void *workspace,
            size_t workspace_at, double number);
void fill(float *x, size_t n, float first);

/* What holds for every driver.  keep_programs: a program is compiled once, then read from disk; a
 * damaged one is compiled again; the backend starts anew with this variable set, at last to
 * `after`.  cannot_be: a step is refused as it is prepared. */
void two_devices(const char *name, const char *tag);
void cached_sizes_go_back(void);        /* where the driver has no more */
void transfers(void);
void copies(void);
void order(void);
void launches(void);
void f64_kernels(void);
void keep_programs(const char *name, const char *value, const char *after);
void cannot_be(test_step step, const char *const *facts);
#define CANNOT_BE(step, ...) cannot_be(step, FACTS(__VA_ARGS__))

/* ---- a plan: variable = n·in, in pieces; then out = n·(variable + 1), by way of the workspace -- */

enum { IN, VARIABLE, OUT, ARENA, BUFFERS };
extern const wb__buffer kinds[BUFFERS];
typedef struct {
    const wb_device *d;
    wb__kernel *parts, *twice;
    const wb__kernel *kernels[2];
    wb__sequence s;
    wb__graph *graph;
} model;

wb__step step_between(test_step which, int from, int to);
void make(model *m, const wb_device *d);
void unmake(model *m);
void run(model *m, void *const *buffers, double number);
/* Runs with an input that begins so, and looks at what comes out. */
void run_right(model *m, void *const *buffers, float first, double number);
void take_all(const wb_device *d, void **buffers);
void release_all(const wb_device *d, void **buffers);

#endif
