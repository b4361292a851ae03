/* Fused kernels as texts for GPUs, on the first OpenCL device, against the CPU backend and against
 * the interpreter of tests/fused_random.h.  Each program runs twice: as the device is, and made as
 * for a processor behind a GPU's interface if it is none, or the other way round.
 *
 *   gpu_fused [seed [count]]
 *
 * WEBER_DUMP_KERNELS=folder writes every text there: name.k, or name.f64.k where it uses double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fused_random.h"

#include "backend/host.h"
#include "base/philox.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

static uint64_t seed = 1;
static int count = 12;

static const wb__backend *gpu;              /* NULL: there is none */
static const wb_device *gpu_device;
static bool other_way;                      /* texts for the kind of device that this one is not */

/* ---- the device ------------------------------------------------------------------------------ */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static void dump(const wb__gpu_work *work)
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

static int watched_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = *t;
    target.is_cpu ^= other_way;
    const int e = wb__gpu_step(&target, step, work);
    if (!e) dump(*work);
    return e;
}

static int open_device(void **state)
{
    (void)state;
    static wb__host table;
    setenv("POCL_DEVICES", "pthread", 0);
    void *library = dlopen(WB_TEST_BACKENDS "/libweber-opencl.so", RTLD_NOW | RTLD_LOCAL);
    wb__backend_entry entry = NULL;
    if (library) *(void **)&entry = dlsym(library, WB__BACKEND_SYMBOL);
    table = wb__host_table;
    table.gpu_step = watched_step;
    const wb__backend *b = entry ? entry(&table) : NULL;
    if (!b) {
        printf("SKIP: %s\n", library ? "the OpenCL backend is another version" : dlerror());
    } else if (b->start() || b->count() < 1) {
        printf("SKIP: %s\n", wb_error());
    } else {
        gpu = b;
        gpu_device = b->device(0);
    }
    fflush(stdout);
    wb_clear_error();
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    if (gpu) gpu->stop();
    return 0;
}

static bool no_device(void)
{
    if (gpu) return false;
    printf("SKIP: no OpenCL device\n");
    fflush(stdout);
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { MOST_MEMORIES = 160 };

/* A program on a device; buffers are the host's, and come back. */
static void run_on(const wb__backend *b, const wb_device *d, const wb__fused *f, int n_buffers,
                   void *const *buffers, const size_t *bytes, const wb__number *numbers)
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
    /* a workspace full of rubbish, not at the beginning of its memory */
    const size_t room = k->workspace + 256;
    void *workspace = b->allocate(d, room), *rubbish = malloc(room);
    memset(rubbish, 0x7f, room);
    assert_int_equal(b->upload(d, workspace, 0, rubbish, room), 0);
    free(rubbish);
    if (b->launch(d, k, memory, workspace, 128, numbers)) fail_msg("%s: %s", b->name, wb_error());
    for (int i = 0; i < n_buffers; i++) {
        assert_int_equal(b->download(d, buffers[i], memory[i], 0, bytes[i]), 0);
        b->release(d, memory[i], bytes[i] + 64);
    }
    b->release(d, workspace, room);
    b->destroy(d, k);
}

/* Programs over one dimension, or two, made by hand: buffers of n elements, one each view. */
typedef struct {
    wb__fused f;
    wb__space space;
    wb__instr instr[160];
    wb__view views[MOST_MEMORIES];
    void *data[MOST_MEMORIES];
    size_t bytes[MOST_MEMORIES];
} hand;

static void begin(hand *h, int64_t rows, int64_t cols)
{
    memset(h, 0, sizeof *h);
    h->space = (wb__space){.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {rows, cols}};
    h->f = (wb__fused){.n_segments = 1, .instr = h->instr, .views = h->views,
                       .spaces = &h->space};
}

static int view_of(hand *h, wb_dtype t, int64_t row_stride, int64_t col_stride)
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

static int put(hand *h, wb__instr in)
{
    h->instr[h->f.n_instr] = in;
    return h->f.n_instr++;
}

static int load(hand *h, wb_dtype t, int64_t row_stride, int64_t col_stride)
{
    const int v = view_of(h, t, row_stride, col_stride);
    return put(h, (wb__instr){.kind = WB__LOAD, .reg = (uint8_t)reg_of(t), .dtype = (uint8_t)t,
                              .level = col_stride ? WB__LEVEL_FULL : WB__LEVEL_ROW, .a = -1,
                              .b = -1, .c = -1, .arg = v});
}

static int store(hand *h, int a, wb_dtype t, int64_t row_stride, int64_t col_stride)
{
    const int v = view_of(h, t, row_stride, col_stride);
    put(h, (wb__instr){.kind = WB__STORE, .reg = h->instr[a].reg, .dtype = (uint8_t)t,
                       .level = h->instr[a].level, .a = a, .b = -1, .c = -1, .arg = v});
    return v;
}

static int op_of(hand *h, wb__op op, int a, int b, int c)
{
    const wb__op_class class = wb__ops[op].class;
    const bool test = class == WB__COMPARE || class == WB__TEST;
    const wb__instr *like = &h->instr[op == WB__OP_where ? b : a];
    int level = h->instr[a].level;
    if (b >= 0) level = WB__MAX(level, h->instr[b].level);
    if (c >= 0) level = WB__MAX(level, h->instr[c].level);
    return put(h, (wb__instr){.kind = WB__ROW, .op = (uint16_t)op,
                              .reg = test ? WB__REG_I32 : like->reg, .level = (uint8_t)level,
                              .dtype = test ? WB_BOOL : like->dtype, .a = a, .b = b, .c = c,
                              .arg = -1});
}

static int fold_of(hand *h, wb__instr_kind kind, wb__op op, int a, int out, int view)
{
    return put(h, (wb__instr){.kind = (uint8_t)kind, .op = (uint16_t)op, .reg = (uint8_t)out,
                              .level = kind == WB__FOLD_COLS ? WB__LEVEL_ROW : WB__LEVEL_ONE,
                              .dtype = (uint8_t)whole_dtype(out), .a = a, .b = -1, .c = -1,
                              .arg = view});
}

static void finish(hand *h)
{
    for (int i = 0; i < h->f.n_views; i++) free(h->data[i]);
}

/* On the CPU and on the device, both ways; `check` sees what each made, element by element. */
typedef void checker(const hand *h, int view, int64_t i, const void *cpu, const void *gpu_said);

static void both(hand *h, const wb__number *numbers, checker *check)
{
    void *was[MOST_MEMORIES], *cpu[MOST_MEMORIES];
    for (int i = 0; i < h->f.n_views; i++) {
        was[i] = malloc(h->bytes[i]);
        cpu[i] = malloc(h->bytes[i]);
        memcpy(was[i], h->data[i], h->bytes[i]);
        memcpy(cpu[i], h->data[i], h->bytes[i]);
    }
    run_on(&wb__cpu_backend, &wb__cpu, &h->f, h->f.n_views, cpu, h->bytes, numbers);
    for (int turn = 0; turn < 2; turn++) {
        other_way = turn;
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

static void same_bits(const hand *h, int view, int64_t i, const void *cpu, const void *said)
{
    const wb_dtype t = h->views[view].dtype;
    if (!memcmp(cpu, said, wb__dtype_size(t))) return;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, said, t, 1);
    if (isnan(a) && isnan(b)) return;
    fail_msg("view %d (%s), element %lld: %.17g, not %.17g%s", view, wb_dtype_name(t),
             (long long)i, b, a, other_way ? ", the other way" : "");
}

static bool close_to(double got, double want, double relative, double least)
{
    if (got == want || (isnan(got) && isnan(want))) return true;
    return fabs(got - want) <= fmax(fabs(want), least) * relative;
}

/* ---- elementwise rows ------------------------------------------------------------------------ */

enum { MANY = 1111 };

static double hard_real(int i)
{
    static const double hard[] = {
        0, -0.0, 1, -1, 0.5, -0.5, 2, 10, -10, 100, -100, 88.5, -87.5, 1e-3, -1e-3, 1e-10, -1e-10,
        3e-39, 1e-30, 1e30, -1e30, 3.4e38, INFINITY, -INFINITY, NAN, 0.2, -0.29, 0.41, 3, -3, 5};
    if (i < (int)WB__COUNT(hard)) return hard[i];
    const double x = ldexp((double)(draw() >> 40) / (1 << 24) + 0.5, (int)(draw() % 10) - 5);
    return draw() & 1 ? x : -x;
}

static void fill_register(void *p, int reg, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = hard_real((int)i);
        int64_t w = (int64_t)(draw() % 41) - 20;
        if (i % 16 == 3) w = (reg == WB__REG_I32 ? INT32_MIN : INT64_MIN) + (int)(draw() % 2);
        if (i % 16 == 9) w = reg == WB__REG_I32 ? INT32_MAX : INT64_MAX;
        if (i % 16 == 12) w = (int64_t)draw();
        if (reg == WB__REG_F32) ((float *)p)[i] = (float)x;
        if (reg == WB__REG_F64) ((double *)p)[i] = x;
        if (reg == WB__REG_I32) ((int32_t *)p)[i] = (int32_t)w;
        if (reg == WB__REG_I64) ((int64_t *)p)[i] = w;
    }
}

static wb__op op_of_view[MOST_MEMORIES];

/* Real rows within some units in the last place of the CPU's, which tests/scalar.c holds to libm;
 * whole ones, and those without rounding, exactly. */
static void check_row(const hand *h, int view, int64_t i, const void *cpu, const void *said)
{
    const wb__op op = op_of_view[view];
    const wb_dtype t = h->views[view].dtype;
    if (t != WB_F32 && t != WB_F64) {
        same_bits(h, view, i, cpu, said);
        return;
    }
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, said, t, 1);
    const double ulp = t == WB_F32 ? 0x1p-23 : 0x1p-52;
    const double units = op == WB__OP_pow ? 16 : 6;
    /* what has a zero crossing of rounding errors is held to absolute ones */
    const bool crosses = (op >= WB__OP_gelu && op <= WB__OP_gelu_erf) || op == WB__OP_sin
        || op == WB__OP_cos;
    if (close_to(b, a, units * ulp, crosses ? 1 : t == WB_F32 ? 1.2e-38 : 2.3e-308)) return;
    double x, y;
    wb__convert(&x, WB_F64, (char *)h->data[0] + i * (int64_t)wb__dtype_size(h->views[0].dtype),
                h->views[0].dtype, 1);
    wb__convert(&y, WB_F64, (char *)h->data[1] + i * (int64_t)wb__dtype_size(h->views[1].dtype),
                h->views[1].dtype, 1);
    fail_msg("%s of %s (%.9g, %.9g): %.17g, not %.17g", wb__ops[op].name, wb_dtype_name(t), x, y,
             b, a);
}

static bool accepts(wb__op op, int reg)
{
    const int of = wb__ops[op].accepts;
    return reg <= WB__REG_F64 ? of & WB__FLOATS
         : reg == WB__REG_I32 ? of & (WB__INTEGERS | WB__BOOLS) : of & WB__INTEGERS;
}

static void rows(void **state)
{
    (void)state;
    if (no_device()) skip();
    int checked = 0;
    for (int reg = 0; reg < 4; reg++) {
        if (reg == WB__REG_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
        static hand h;
        begin(&h, 1, MANY);
        const int x = load(&h, whole_dtype(reg), 0, 1), y = load(&h, whole_dtype(reg), 0, 1);
        for (int op = 1; op < WB__OP_COUNT; op++) {
            const wb__op_class class = wb__ops[op].class;
            if (!wb__ops[op].expression || !accepts((wb__op)op, reg)) continue;
            const bool two = class == WB__BINARY || class == WB__COMPARE;
            const int v = op_of(&h, (wb__op)op, x, two ? y : -1, -1);
            op_of_view[store(&h, v, whole_dtype(h.instr[v].reg), 0, 1)] = (wb__op)op;
            checked++;
        }
        const int less = op_of(&h, WB__OP_lt, x, y, -1);
        const int either = op_of(&h, WB__OP_where, less, x, y);
        op_of_view[store(&h, either, whole_dtype(reg), 0, 1)] = WB__OP_where;
        fill_register(h.data[0], reg, MANY);
        fill_register(h.data[1], reg, MANY);
        for (int i = 0; i < 200 && reg <= WB__REG_F64; i++) {       /* pairs of the hard ones */
            const double a = hard_real(i * 7 % 31), b = hard_real(i / 7);
            if (reg == WB__REG_F32) ((float *)h.data[0])[i] = (float)a;
            if (reg == WB__REG_F32) ((float *)h.data[1])[i] = (float)b;
            if (reg == WB__REG_F64) ((double *)h.data[0])[i] = a;
            if (reg == WB__REG_F64) ((double *)h.data[1])[i] = b;
        }
        both(&h, NULL, check_row);
        finish(&h);
    }
    assert_true(checked > 90);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static double hard_number(int i)
{
    static const double hard[] = {
        0, -0.0, 0.5, -0.5, 1.5, 127, 127.5, 128, -128, -129, 255, 256, 300, -1, 65504, 65519.99,
        65520, 1e9, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 4e9, 9.2e18, 9.3e18,
        -9.3e18, 1e30, 1e300, 1e-40, 1e-300, 3e-8, 5.96e-8, 6.1e-5, 1.00048828125,
        1.000488281250001, 1.00048828124999, 1.00390625, 1.003906250001, NAN, INFINITY, -INFINITY,
        9007199254740993.0, 4503599627370497.5};
    if (i < (int)WB__COUNT(hard)) return hard[i];
    const double any = ldexp((double)(draw() >> 32), (int)(draw() % 60) - 50);
    return draw() & 1 ? any : -any;
}

static void casts(void **state)
{
    (void)state;
    if (no_device()) skip();
    for (int reg = 0; reg < 4; reg++) {
        if (reg == WB__REG_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
        static hand h;
        begin(&h, 1, MANY);
        const int x = load(&h, whole_dtype(reg), 0, 1);
        for (int t = WB_F32; t < WB_DTYPE_COUNT; t++) {
            if (t == WB_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
            const int c = put(&h, (wb__instr){.kind = WB__CAST, .reg = (uint8_t)reg_of(t),
                                              .level = WB__LEVEL_FULL, .dtype = (uint8_t)t,
                                              .a = x, .b = -1, .c = -1, .arg = -1});
            store(&h, c, whole_dtype(reg_of(t)), 0, 1);
            store(&h, c, (wb_dtype)t, 0, 1);
            store(&h, x, (wb_dtype)t, 0, 1);
        }
        for (int i = 0; i < MANY; i++) {
            const double real = hard_number(i);
            const int64_t whole = (int64_t)draw() >> (draw() % 64);
            char *to = (char *)h.data[0] + (size_t)i * wb__dtype_size(whole_dtype(reg));
            wb__convert(to, whole_dtype(reg), reg <= 1 ? (void *)&real : (void *)&whole,
                        reg <= 1 ? WB_F64 : WB_I64, 1);
        }
        both(&h, NULL, same_bits);
        finish(&h);
    }
}

/* All 16-bit floats loaded; floats of all sizes stored as such, f32 and f64; narrow sums. */
static void halves(void **state)
{
    (void)state;
    if (no_device()) skip();
    enum { N = 65536 };
    static hand h;
    begin(&h, 1, N);
    const int f = load(&h, WB_F16, 0, 1), b = load(&h, WB_BF16, 0, 1);
    const int x = load(&h, WB_F32, 0, 1), i8 = load(&h, WB_I8, 0, 1), u8 = load(&h, WB_U8, 0, 1);
    const int flag = load(&h, WB_BOOL, 0, 1);
    for (int i = 0; i < N; i++) {
        ((uint16_t *)h.data[0])[i] = ((uint16_t *)h.data[1])[i] = (uint16_t)i;
        uint32_t bits = (uint32_t)draw();
        if (i % 4 == 0) bits = (bits & 0x8fffffff) | 0x30000000;    /* near the least halves */
        memcpy((float *)h.data[2] + i, &bits, 4);
        ((uint8_t *)h.data[3])[i] = ((uint8_t *)h.data[4])[i] = (uint8_t)draw();
        ((uint8_t *)h.data[5])[i] = (uint8_t)(draw() % 2);
    }
    store(&h, f, WB_F32, 0, 1);
    store(&h, b, WB_F32, 0, 1);
    store(&h, f, WB_F16, 0, 1);
    store(&h, x, WB_F16, 0, 1);
    store(&h, x, WB_BF16, 0, 1);
    store(&h, op_of(&h, WB__OP_mul, i8, i8, -1), WB_I32, 0, 1);
    store(&h, op_of(&h, WB__OP_add, u8, u8, -1), WB_I32, 0, 1);
    store(&h, op_of(&h, WB__OP_not, flag, -1, -1), WB_BOOL, 0, 1);
    both(&h, NULL, same_bits);
    finish(&h);
}

/* ---- folds ----------------------------------------------------------------------------------- */

static int64_t folded;                      /* elements of each result */

/* Sums of reals within 2e-6 of the CPU's of the sum of their sizes, here all positive or small. */
static void check_fold(const hand *h, int view, int64_t i, const void *cpu, const void *said)
{
    const wb_dtype t = h->views[view].dtype;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, said, t, 1);
    if (t != WB_F32 && t != WB_F64) same_bits(h, view, i, cpu, said);
    else if (!close_to(b, a, t == WB_F32 ? 2e-6 : 1e-14, (double)folded * 0.1))
        fail_msg("view %d, element %lld of %lld folded: %.9g, not %.9g%s", view, (long long)i,
                 (long long)folded, b, a, other_way ? ", the other way" : "");
}

static void fill_fold(void *p, wb_dtype t, int64_t n, int what)
{
    for (int64_t i = 0; i < n; i++) {
        double x = what == 0 ? 0.1 + (double)(draw() % 1000) * 1e-3 : (double)(draw() % 7) - 3;
        if (what == 2 && draw() % 97 == 0) x = draw() & 1 ? NAN : INFINITY;
        if (what == 3) x = -INFINITY;
        if (!wb__dtype_float(t)) x = (double)((int64_t)(draw() % 200) - 100);
        wb__convert((char *)p + (size_t)i * wb__dtype_size(t), t, &x, WB_F64, 1);
    }
}

/* All folds of one kind, in some dtypes, over spaces of many shapes; `turned`: the columns lie
 * apart in memory. */
static void fold_kind(wb__instr_kind kind, int64_t r, int64_t c, bool turned, int what)
{
    static const wb__op ops[] = {WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
    static const wb_dtype types[] = {WB_F32, WB_I32, WB_F64, WB_I64};
    static hand h;
    begin(&h, r, c);
    folded = kind == WB__FOLD_COLS ? c : kind == WB__FOLD_ROWS ? r : r * c;
    const int64_t sr = kind == WB__FOLD_COLS ? 1 : 0, sc = kind == WB__FOLD_ROWS ? 1 : 0;
    for (int t = 0; t < 4; t++) {
        if (types[t] == WB_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
        const int x = load(&h, types[t], turned ? 1 : c, turned ? r : 1);
        fill_fold(h.data[h.instr[x].arg], types[t], r * c, what);
        for (int o = 0; o < 4; o++) {
            const bool place = ops[o] == WB__OP_argmax;
            const int wide = types[t] == WB_I32 ? WB__REG_I64 : reg_of(types[t]);
            const int out = place ? WB__REG_I32 : ops[o] == WB__OP_sum ? wide : reg_of(types[t]);
            if (kind == WB__FOLD_COLS)
                store(&h, fold_of(&h, kind, ops[o], x, out, -1), whole_dtype(out), sr, sc);
            else
                fold_of(&h, kind, ops[o], x, out, view_of(&h, whole_dtype(out), sr, sc));
        }
    }
    both(&h, NULL, check_fold);
    finish(&h);
}

static void folds(void **state)
{
    (void)state;
    if (no_device()) skip();
    static const wb__instr_kind kinds[] = {WB__FOLD_COLS, WB__FOLD_ROWS, WB__FOLD_ALL};
    static const int64_t shapes[][2] = {
        {1, 1}, {1, 5}, {3, 1}, {7, 3}, {5, 64}, {2, 100}, {300, 2}, {1000, 10}, {33, 257},
        {1, 5000}, {5000, 1}, {2000, 70}, {3, 100000}, {100000, 3}, {700, 700}};
    for (size_t s = 0; s < WB__COUNT(shapes); s++)
        for (int k = 0; k < 3; k++)
            fold_kind(kinds[k], shapes[s][0], shapes[s][1], s % 4 == 3, s % 2 ? 2 : 0);
    for (int k = 0; k < 3; k++) fold_kind(kinds[k], 130, 130, false, 3);
}

/* Of nothing: zero, the least and the greatest number, place 0. */
static void empty(void **state)
{
    (void)state;
    if (no_device()) skip();
    static const int64_t shapes[][2] = {{0, 3}, {3, 0}, {0, 0}};
    for (int s = 0; s < 3; s++)
        for (int way = 0; way < 2; way++) {
            static hand h;
            const int64_t r = shapes[s][0], c = shapes[s][1];
            other_way = way;
            begin(&h, r, c);
            const int x = load(&h, WB_F32, c, 1);
            static const wb__op ops[] = {WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
            static const double want[] = {0, -INFINITY, INFINITY, 0};
            int views[3][4];
            for (int o = 0; o < 4; o++) {
                const int out = o == 3 ? WB__REG_I32 : WB__REG_F32;
                views[0][o] = view_of(&h, WB_F32, 0, 0);
                fold_of(&h, WB__FOLD_ALL, ops[o], x, out, views[0][o]);
                views[1][o] = view_of(&h, WB_F32, 0, 1);
                fold_of(&h, WB__FOLD_ROWS, ops[o], x, out, views[1][o]);
                views[2][o] = store(&h, fold_of(&h, WB__FOLD_COLS, ops[o], x, out, -1), WB_F32,
                                    1, 0);
            }
            store(&h, x, WB_F32, c, 1);
            for (int i = 0; i < h.f.n_views; i++)
                for (size_t j = 0; j < h.bytes[i] / 4; j++) ((float *)h.data[i])[j] = 77;
            run_on(gpu, gpu_device, &h.f, h.f.n_views, h.data, h.bytes, NULL);
            for (int o = 0; o < 4; o++) {
                assert_true(((float *)h.data[views[0][o]])[0] == want[o]);
                for (int64_t i = 0; i < c; i++)
                    assert_true(((float *)h.data[views[1][o]])[i] == want[o]);
                for (int64_t i = 0; i < r; i++)
                    assert_true(((float *)h.data[views[2][o]])[i] == want[o]);
                if (!c) assert_true(((float *)h.data[views[1][o]])[0] == 77);
            }
            finish(&h);
        }
}

/* softmax in place and its row sums, the sum of all logarithms, column means of the results: folds
 * of all kinds that need each other, and stores over what is read. */
static void mixed(void **state)
{
    (void)state;
    if (no_device()) skip();
    static const int64_t shapes[][2] = {{1, 1}, {4, 10}, {64, 10}, {600, 33}, {3, 4000}};
    for (size_t s = 0; s < WB__COUNT(shapes); s++)
        for (int late = 0; late < 3; late++) {
            static hand h;
            const int64_t r = shapes[s][0], c = shapes[s][1];
            begin(&h, r, c);
            folded = 1;
            const int x = load(&h, WB_F32, c, 1), b = load(&h, WB_F32, 0, 1);
            const int w = load(&h, WB_F32, 1, 0);
            for (int i = 0; i < 3; i++)
                for (size_t j = 0; j < h.bytes[i] / 4; j++)
                    ((float *)h.data[i])[j] = (float)(draw() % 1000) * 0.01f - 5;
            const int y = op_of(&h, WB__OP_mul, op_of(&h, WB__OP_add, x, b, -1), w, -1);
            const int top = fold_of(&h, WB__FOLD_COLS, WB__OP_max, y, WB__REG_F32, -1);
            const int e = op_of(&h, WB__OP_exp, op_of(&h, WB__OP_sub, y, top, -1), -1, -1);
            const int sum = fold_of(&h, WB__FOLD_COLS, WB__OP_sum, e, WB__REG_F32, -1);
            const int p = op_of(&h, WB__OP_div, e, sum, -1);
            if (late) fold_of(&h, WB__FOLD_ROWS, WB__OP_sum, p, WB__REG_F32,
                              view_of(&h, WB_F32, 0, 1));
            if (late == 2) fold_of(&h, WB__FOLD_ALL, WB__OP_sum, y, WB__REG_F32,
                                   view_of(&h, WB_F32, 0, 0));
            const int l = op_of(&h, WB__OP_add, top, op_of(&h, WB__OP_log, sum, -1, -1), -1);
            put(&h, (wb__instr){.kind = WB__STORE, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                                .dtype = WB_F32, .a = p, .b = -1, .c = -1, .arg = 0});
            put(&h, (wb__instr){.kind = WB__STORE, .reg = WB__REG_F32, .level = WB__LEVEL_ROW,
                                .dtype = WB_F32, .a = l, .b = -1, .c = -1, .arg = 2});
            folded = 1000;
            both(&h, NULL, check_fold);
            finish(&h);
        }
}

/* ---- draws, numbers, indices ----------------------------------------------------------------- */

static void check_draw(const hand *h, int view, int64_t i, const void *cpu, const void *said)
{
    const wb_dtype t = h->views[view].dtype;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, said, t, 1);
    if (op_of_view[view] != WB__OP_gaussian) same_bits(h, view, i, cpu, said);
    else if (!close_to(b, a, t == WB_F32 ? 4 * 0x1p-23 : 1e-13, 1e-300))
        fail_msg("normal %lld: %.9g, not %.9g", (long long)i, b, a);
}

static void draw_numbers(bool far)
{
    enum { R = 370, C = 530 };
    static const wb__number numbers[8] = {{.u = 0x123456789abcdef}, {.u = 0xfffffffff0},
                                          {.f = 0.1}, {.f = -7}, {.f = 3e9}, {.f = -5e11}};
    static hand h;
    begin(&h, R, C);
    for (int turned = 0; turned < 2; turned++) {
        const int v = view_of(&h, WB_I64, turned ? 1 : C, turned ? R : 1);
        h.views[v].buffer = -1;
        h.views[v].offset = turned ? 3 : (int64_t)1 << 34;
        if (far) h.views[v].strides[turned] = (int64_t)5 << 31;     /* needs 64 bits */
        for (int reg = 0; reg < 2; reg++)
            for (int kind = WB__UNIFORM; kind <= WB__GAUSSIAN; kind++) {
                if (reg && !gpu->has_dtype(gpu_device, WB_F64)) continue;
                const int d = put(&h, (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)reg,
                                                  .level = WB__LEVEL_FULL, .a = -1, .b = -1,
                                                  .c = v, .arg = 0});
                op_of_view[store(&h, d, whole_dtype(reg), C, 1)] =
                    kind == WB__GAUSSIAN ? WB__OP_gaussian : WB__OP_uniform;
            }
    }
    for (int reg = 0; reg < 4; reg++) {
        if (reg == WB__REG_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
        const int n = put(&h, (wb__instr){.kind = WB__NUMBER, .reg = (uint8_t)reg, .a = -1,
                                          .b = -1, .c = -1, .arg = reg == WB__REG_I32 ? 3 : 2});
        op_of_view[store(&h, n, whole_dtype(reg), C, 1)] = WB__OP_literal;
        for (int d = 0; d < 2; d++) {
            const int i = put(&h, (wb__instr){.kind = WB__IOTA, .reg = (uint8_t)reg, .arg = d,
                                              .level = WB__LEVEL_FULL, .a = -1, .b = -1, .c = -1,
                                              .scale = d ? 3 : -2,
                                              .shift = d ? -5 : (int64_t)1 << 33});
            op_of_view[store(&h, i, whole_dtype(reg), C, 1)] = WB__OP_iota;
        }
    }
    const int big = put(&h, (wb__instr){.kind = WB__NUMBER, .reg = WB__REG_I64, .a = -1, .b = -1,
                                        .c = -1, .arg = 5});
    op_of_view[store(&h, big, WB_I64, C, 1)] = WB__OP_literal;
    both(&h, numbers, check_draw);
    finish(&h);
}

static void draws(void **state)
{
    (void)state;
    if (no_device()) skip();
    draw_numbers(false);
    draw_numbers(true);
}

/* ---- programs at random ---------------------------------------------------------------------- */

static void one_program(uint64_t number)
{
    static program p;
    drawn = number * 0x2545f4914f6cdd1du + 77;
    draw_program(&p);
    void *was[MOST_BUFFERS], *want[MOST_BUFFERS], *got[MOST_BUFFERS];
    size_t bytes[MOST_BUFFERS];
    fill(&p, was);
    for (int b = 0; b < p.n_buffers; b++) {
        bytes[b] = (size_t)p.bytes[b];
        want[b] = malloc(bytes[b]);
        got[b] = malloc(bytes[b]);
        memcpy(want[b], was[b], bytes[b]);
    }
    for (int s = 0; s < p.f.n_segments; s++) interpret(&p.f, s, want, p.numbers);
    for (int way = 0; way < 2; way++) {
        other_way = way;
        for (int b = 0; b < p.n_buffers; b++) memcpy(got[b], was[b], bytes[b]);
        run_on(gpu, gpu_device, &p.f, p.n_buffers, got, bytes, p.numbers);
        for (int i = 0; i < p.f.n_segments * p.f.n_views; i++) {
            const wb__view *v = &p.views[i];
            const int64_t size = (int64_t)wb__dtype_size(v->dtype);
            for (int64_t j = 0; j < p.bytes[v->buffer] / size; j++) {
                double a, b;
                wb__convert(&a, WB_F64, (char *)want[v->buffer] + j * size, v->dtype, 1);
                wb__convert(&b, WB_F64, (char *)got[v->buffer] + j * size, v->dtype, 1);
                if (a == b || (isnan(a) && isnan(b))) continue;
                print_message("program %llu, view %d, element %lld: %g, not %g%s\n",
                              (unsigned long long)number, i, (long long)j, b, a,
                              way ? ", the other way" : "");
                print_program(&p);
                fail();
            }
        }
    }
    for (int b = 0; b < p.n_buffers; b++) free(was[b]), free(want[b]), free(got[b]);
}

static void random_programs(void **state)
{
    (void)state;
    if (no_device()) skip();
    for (int i = 0; i < count; i++) one_program(seed + (uint64_t)i);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const wb__gpu_target any_gpu = {.f64 = true, .most_items = 1024, .local_bytes = 32768,
                                       .most_args = 1024};

static wb__gpu_work *made(const wb__gpu_target *t, const wb__fused *f)
{
    wb__gpu_work *work = NULL;
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = *f};
    if (wb__gpu_step(t, &step, &work)) fail_msg("%s", wb_error());
    dump(work);
    return work;
}

/* Sizes, offsets and strides other than 0 and 1 are arguments: one text for all. */
static void few_texts(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{10, 300, 300}, {77, 1000, 2000}, {5, 129, 130}};
    char *text = NULL;
    for (int i = 0; i < 3; i++) {
        static hand h;
        begin(&h, shapes[i][0], shapes[i][1]);
        const int x = load(&h, WB_F32, shapes[i][2] + 1, 1), b = load(&h, WB_F32, 0, 1);
        h.views[0].offset = i * 100;
        store(&h, op_of(&h, WB__OP_add, x, b, -1), WB_F32, shapes[i][1], 1);
        wb__gpu_work *work = made(&any_gpu, &h.f), *again = made(&any_gpu, &h.f);
        assert_int_equal(work->n, 1);
        assert_string_equal(work->launch[0].text, again->launch[0].text);
        assert_memory_equal(work->launch[0].args, again->launch[0].args,
                            work->launch[0].args_bytes);
        if (text) assert_string_equal(text, work->launch[0].text);
        else text = wb__strdup(work->launch[0].text);
        wb__gpu_work_free(work);
        wb__gpu_work_free(again);
        finish(&h);
    }
    wb__free(text);
    assert_non_null(strstr(wb__gpu_prelude, "KERNEL"));
}

static void refusals(void **state)
{
    (void)state;
    static hand h;
    wb__gpu_work *work = NULL;
    wb__gpu_target small = any_gpu;
    small.f64 = false;
    begin(&h, 3, 5);
    store(&h, load(&h, WB_F32, 5, 1), WB_F64, 5, 1);
    wb__step step = {.kind = WB__STEP_FUSED, .fused = h.f};
    assert_int_equal(wb__gpu_step(&small, &step, &work), WB_ERROR_UNSUPPORTED);
    assert_non_null(strstr(wb_error(), "f64"));
    finish(&h);
    begin(&h, 30, 500);
    for (int i = 0; i < 30; i++) store(&h, load(&h, WB_F32, 500 + i, 1), WB_F32, 700 + i, 1);
    step.fused = h.f;
    small.most_args = 256;
    assert_int_equal(wb__gpu_step(&small, &step, &work), WB_ERROR_UNSUPPORTED);
    assert_non_null(strstr(wb_error(), "256"));
    finish(&h);
    wb_clear_error();
}

/* Memory that runs out at any point is an error, and nothing is lost. */
static void no_memory(void **state)
{
    (void)state;
    static hand h;
    begin(&h, 700, 33);
    const int x = load(&h, WB_F32, 33, 1);
    const int sum = fold_of(&h, WB__FOLD_COLS, WB__OP_sum, x, WB__REG_F32, -1);
    const int d = op_of(&h, WB__OP_sub, x, sum, -1);
    fold_of(&h, WB__FOLD_ROWS, WB__OP_max, d, WB__REG_F32, view_of(&h, WB_F32, 0, 1));
    store(&h, d, WB_F32, 33, 1);
    store(&h, sum, WB_F32, 1, 0);
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = h.f};
    int n = 0, e = 1;
    while (e && ++n < 10000) {
        wb__gpu_work *work = NULL;
        wb__alloc_fail_at(n);
        e = wb__gpu_step(&any_gpu, &step, &work);
        wb__alloc_fail_at(0);
        if (e) assert_int_equal(e, WB_ERROR_MEMORY);
        else wb__gpu_work_free(work);
    }
    assert_int_equal(e, 0);
    assert_true(n > 20);
    wb_clear_error();
    finish(&h);
}

int main(int argc, char **argv)
{
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) count = atoi(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_texts), cmocka_unit_test(refusals), cmocka_unit_test(no_memory),
        cmocka_unit_test(rows), cmocka_unit_test(casts), cmocka_unit_test(halves),
        cmocka_unit_test(draws), cmocka_unit_test(folds), cmocka_unit_test(empty),
        cmocka_unit_test(mixed), cmocka_unit_test(random_programs),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
