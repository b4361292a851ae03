/* Runs kernel texts of fused programs on the first OpenCL device, for comparison with the CPU
 * backend.  Each program runs there three times: with a text for the device's kind, with a text for
 * the other kind (processor or GPU), and split into several launches, as programs are that are too
 * large for one.
 *
 * WEBER_DUMP_KERNELS=folder writes every text there: name.k, or name.f64.k where it uses double. */
#ifndef WB_TEST_GPU_FUSED_H
#define WB_TEST_GPU_FUSED_H

#include "fused_random.h"

#include "backend/gpu/gpu.h"

static const wb__backend *gpu;              /* NULL: there is none */
static const wb_device *gpu_device;
static bool other_way;                      /* texts are for the other kind of device */
static uint32_t max_points;                 /* the most points of a launch; 0: no limit */
static size_t most_local;                   /* bytes of local memory that a launch asked for, */
static size_t launch_bytes;                 /* and that one may ask for */

enum { WAYS = 3 };
static inline void go_way(int way, uint32_t points)
{
    other_way = way == 1;
    max_points = way == 2 ? points : 0;
}
static inline const char *way_name(void)
{
    return other_way ? ", the other way" : max_points ? ", in pieces" : "";
}

/* ---- the device ------------------------------------------------------------------------------ */

static inline uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static inline void dump(const wb__gpu_work *work)
{
    const char *folder = getenv("WEBER_DUMP_KERNELS");
    for (int i = 0; folder && i < work->n; i++) {
        char path[4096];
        const wb__gpu_launch *l = &work->launch[i];
        snprintf(path, sizeof path, "%s/%016llx%s.k", folder,
                 (unsigned long long)hash_of(l->text), l->f64 ? ".f64" : "");
        FILE *f = fopen(path, "w");
        if (!f || fputs(l->text, f) < 0) fail_msg("cannot write %s", path);
        fclose(f);
    }
}

/* The linker wraps wb__gpu_step: the backend calls __wrap_wb__gpu_step in its place. */
int __real_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = *t;
    target.in_turn ^= other_way;
    target.max_points = max_points;
    const int e = __real_wb__gpu_step(&target, step, work);
    if (!e) dump(*work);
    launch_bytes = target.launch_bytes;
    for (int i = 0; i < (e ? 0 : (*work)->n); i++)
        most_local = WB__MAX(most_local, (*work)->launch[i].local);
    return e;
}

static inline int open_device(void **state)
{
    setenv("POCL_DEVICES", "pthread", 0);
    const wb__backend *b = &wb__cl_backend;
    if (b->start() || b->count() < 1) {
        printf("SKIP: %s\n", wb_error());
    } else {
        gpu = b;
        gpu_device = b->device(0);
    }
    fflush(stdout);
    wb_clear_error();
    return 0;
}

static inline int close_device(void **state)
{
    if (gpu) gpu->stop();
    return 0;
}

static inline bool no_device(void)
{
    if (gpu) return false;
    printf("SKIP: no OpenCL device\n");
    fflush(stdout);
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { MOST_MEMORIES = 160 };

/* Runs a program on a device: copies the host's buffers to it, and the results back. */
static inline void run_on(const wb__backend *b, const wb_device *d, const wb__fused *f,
                          int n_buffers, void *const *buffers, const size_t *bytes,
                          const wb__number *numbers)
{
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = *f};
    void *memory[MOST_MEMORIES];
    wb__kernel *k = NULL;
    if (b->prepare(d, &step, &k)) fail_msg("%s: %s", b->name, wb_error());
    for (int i = 0; i < n_buffers; i++) {
        memory[i] = b->allocate(d, bytes[i] + 64);
        assert_non_null(memory[i]);
        assert_int_equal(b->upload(d, memory[i], 0, buffers[i], bytes[i]), 0);
    }
    /* the workspace has arbitrary contents and is not at the beginning of its memory */
    const size_t workspace_bytes = k->workspace + 256;
    void *workspace = b->allocate(d, workspace_bytes), *rubbish = malloc(workspace_bytes);
    memset(rubbish, 0x7f, workspace_bytes);
    assert_int_equal(b->upload(d, workspace, 0, rubbish, workspace_bytes), 0);
    free(rubbish);
    if (b->launch(d, k, memory, NULL, workspace, 128, numbers))
        fail_msg("%s: %s", b->name, wb_error());
    for (int i = 0; i < n_buffers; i++) {
        assert_int_equal(b->download(d, buffers[i], memory[i], 0, bytes[i]), 0);
        b->release(d, memory[i], bytes[i] + 64);
    }
    b->release(d, workspace, workspace_bytes);
    b->destroy(d, k);
}

/* A hand-written program over one or two dimensions, in which each view has its own buffer. */
typedef struct {
    wb__fused f;
    wb__space space;
    wb__instr instr[160];
    wb__view views[MOST_MEMORIES];
    void *data[MOST_MEMORIES];
    size_t bytes[MOST_MEMORIES];
} hand;

static inline void begin(hand *h, int64_t rows, int64_t cols)
{
    memset(h, 0, sizeof *h);
    h->space = (wb__space){.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {rows, cols}};
    h->f = (wb__fused){.n_segments = 1, .instr = h->instr, .views = h->views,
                       .spaces = &h->space};
}

static inline int view_of(hand *h, wb_dtype t, int64_t row_stride, int64_t col_stride)
{
    const int v = h->f.n_views++;
    const int64_t rows = h->space.dims[0], cols = h->space.dims[1];
    const int64_t last = WB__MAX((rows - 1) * row_stride + (cols - 1) * col_stride, 0);
    h->views[v] = (wb__view){.dtype = t, .buffer = v, .ndim = 2, .dims = {rows, cols},
                             .strides = {row_stride, col_stride}};
    h->bytes[v] = (size_t)(last + 1) * wb__dtype_size(t);
    h->data[v] = calloc(h->bytes[v], 1);
    return v;
}

static inline int put(hand *h, wb__instr in)
{
    h->instr[h->f.n_instr] = in;
    return h->f.n_instr++;
}

static inline int load(hand *h, wb_dtype t, int64_t row_stride, int64_t col_stride)
{
    const int v = view_of(h, t, row_stride, col_stride);
    return put(h, (wb__instr){.kind = WB__LOAD, .reg = (uint8_t)reg_of(t), .dtype = (uint8_t)t,
                              .level = col_stride ? WB__LEVEL_FULL : WB__LEVEL_PER_ROW, .a = -1,
                              .b = -1, .c = -1, .arg = v});
}

static inline int store(hand *h, int a, wb_dtype t, int64_t row_stride, int64_t col_stride)
{
    const int v = view_of(h, t, row_stride, col_stride);
    put(h, (wb__instr){.kind = WB__STORE, .reg = h->instr[a].reg, .dtype = (uint8_t)t,
                       .level = h->instr[a].level, .a = a, .b = -1, .c = -1, .arg = v});
    return v;
}

static inline int op_of(hand *h, wb__op op, int a, int b, int c)
{
    const wb__op_class class = wb__ops[op].class;
    const bool test = class == WB__COMPARE || class == WB__TEST;
    const wb__instr *like = &h->instr[op == WB__OP_where ? b : a];
    int level = h->instr[a].level;
    if (b >= 0) level = WB__MAX(level, h->instr[b].level);
    if (c >= 0) level = WB__MAX(level, h->instr[c].level);
    return put(h, (wb__instr){.kind = WB__ELEMENTWISE_OP, .op = (uint16_t)op,
                              .reg = test ? WB__REG_I32 : like->reg, .level = (uint8_t)level,
                              .dtype = test ? WB_BOOL : like->dtype, .a = a, .b = b, .c = c,
                              .arg = -1});
}

static inline int reduction_of(hand *h, wb__instr_kind kind, wb__op op, int a, int out, int view)
{
    return put(h, (wb__instr){.kind = (uint8_t)kind, .op = (uint16_t)op, .reg = (uint8_t)out,
                              .level = kind == WB__REDUCE_COLUMNS ? WB__LEVEL_PER_ROW
                                                                  : WB__LEVEL_ONE,
                              .dtype = (uint8_t)whole_dtype(out), .a = a, .b = -1, .c = -1,
                              .arg = view});
}

static inline void finish(hand *h)
{
    for (int i = 0; i < h->f.n_views; i++) free(h->data[i]);
}

/* Runs the program on the CPU and on the device in all ways; `check` compares their elements. */
typedef void checker(const hand *h, int view, int64_t i, const void *cpu, const void *result);

static inline void both(hand *h, const wb__number *numbers, checker *check)
{
    void *was[MOST_MEMORIES], *cpu[MOST_MEMORIES];
    for (int i = 0; i < h->f.n_views; i++) {
        was[i] = malloc(h->bytes[i]);
        cpu[i] = malloc(h->bytes[i]);
        memcpy(was[i], h->data[i], h->bytes[i]);
        memcpy(cpu[i], h->data[i], h->bytes[i]);
    }
    run_on(&wb__cpu_backend, &wb__cpu, &h->f, h->f.n_views, cpu, h->bytes, numbers);
    for (int turn = 0; turn < WAYS; turn++) {
        go_way(turn, 4099);
        for (int i = 0; i < h->f.n_views; i++) memcpy(h->data[i], was[i], h->bytes[i]);
        run_on(gpu, gpu_device, &h->f, h->f.n_views, h->data, h->bytes, numbers);
        for (int i = 0; i < h->f.n_views; i++) {
            const size_t size = wb__dtype_size(h->views[i].dtype);
            for (size_t j = 0; j < h->bytes[i] / size; j++)
                check(h, i, (int64_t)j, (char *)cpu[i] + j * size, (char *)h->data[i] + j * size);
        }
    }
    for (int i = 0; i < h->f.n_views; i++) free(was[i]), free(cpu[i]);
}

static inline void same_bits(const hand *h, int view, int64_t i, const void *cpu,
                             const void *result)
{
    const wb_dtype t = h->views[view].dtype;
    if (!memcmp(cpu, result, wb__dtype_size(t))) return;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, result, t, 1);
    if (isnan(a) && isnan(b)) return;
    fail_msg("view %d (%s), element %lld: %.17g, not %.17g%s", view, wb_dtype_name(t),
             (long long)i, b, a, way_name());
}

static inline bool close_to(double got, double want, double relative, double least)
{
    if (got == want || (isnan(got) && isnan(want))) return true;
    return fabs(got - want) <= fmax(fabs(want), least) * relative;
}

#endif
