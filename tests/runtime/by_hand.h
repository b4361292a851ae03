/* For tests of the GPU runtime and of its drivers without the engine.  Hand-written kernels
 * replace the engine's, and memory replaces the kernel cache on disk; the linker wraps these
 * functions (CMakeLists.txt). */
#ifndef BY_HAND_H
#define BY_HAND_H

#include "test.h"

#include "backend/gpu/gpu.h"

/* Steps, selected by wb__step.variant: x is buffer 0 and y buffer 1, in f32; dims[0] of view 0 is
 * the number of elements; run-time number 0 is the factor. */
typedef enum {
    STEP_SCALE,         /* y = factor x */
    STEP_TWICE,         /* workspace = x + 1, then y = factor workspace: two launches */
    STEP_SLOW,          /* y = x + 1, after a long loop */
    STEP_F64,           /* y = (float)(1 + 2^-40 - 1), which needs double */
    STEP_WRONG,         /* does not compile */
    STEP_WIDE,          /* more items in a group than any device has */
    STEP_NAMELESS,      /* its entry is not in the text */
    STEP_PARTS,         /* y = factor x in TEST_PARTS segments of one launch */
    STEPS_BY_HAND
} test_step;
enum { TEST_PARTS = 3 };

extern const char *const test_texts[STEPS_BY_HAND];
typedef struct { uint32_t n; float factor; uint32_t at[2]; } test_args;     /* of each text */

wb__step test_step_of(test_step which, int64_t n);

/* The cache on disk: how many kernels it has, and how often a kernel was found.  While
 * test_spoiled is set, the contents that are found are damaged. */
extern int test_kept, test_hits;
extern bool test_spoiled;
void test_disk_empty(void);

/* ---- a backend with two devices -------------------------------------------------------------- */

enum { N = 1000, BYTES = N * sizeof(float) };
extern const wb__backend *b;
extern const wb_device *dev[2];

/* A setup of run_cases for this backend, and its last test: after stop() the driver holds
 * nothing. */
int test_begin(const wb__backend *backend);
void test_end(void);
/* Restarts the backend with an environment variable set, or unset (NULL). */
int restart(const char *name, const char *value);
/* Starts the backend in a child process with this variable set.  Returns 0 if that fails with these
 * facts. */
int child(const wb__backend *backend, const char *name, const char *value,
          const char *const *facts);
#define CHILD(backend, name, value, ...) child(backend, name, value, FACTS(__VA_ARGS__))
/* Runs a function in a child process for at most a minute, and returns its result. */
int in_child(int (*run)(void));

/* Calls that must fail with these facts, or succeed. */
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
/* b->copy, or through the host if the backend cannot copy between these devices. */
int copy_or_stage(const wb_device *to_device, void *to, size_t to_at, const wb_device *from_device,
                  const void *from, size_t from_at, size_t bytes);

/* Checks for every driver.  keep_programs: a program is compiled once, then read from disk, and
 * a damaged program is compiled again; the backend restarts with this variable set, and at the
 * end with the value `after`.  cannot_be: a step fails when it is prepared. */
void two_devices(const char *name, const char *tag);
void cached_sizes_go_back(void);        /* after the driver has run out of memory */
void transfers(void);
void copies(void);
void order(void);
void launches(void);
void f64_kernels(void);
void keep_programs(const char *name, const char *value, const char *after);
void cannot_be(test_step step, const char *const *facts);
#define CANNOT_BE(step, ...) cannot_be(step, FACTS(__VA_ARGS__))

/* ---- a plan: variable = n·in, in parts; then out = n·(variable + 1), through the workspace --- */

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
/* Runs the plan with an input that begins with this value, and checks the results. */
void run_right(model *m, void *const *buffers, float first, double number);
void take_all(const wb_device *d, void **buffers);
void release_all(const wb_device *d, void **buffers);

#endif
