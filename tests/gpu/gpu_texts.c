/* The launches of steps, without a device, for several kinds of devices: launches stay within the
 * limits of every device, and a step always has the same texts.  Library steps of every kind, dtype
 * and size, and random fused programs.
 *
 * WEBER_DUMP_KERNELS=folder writes the texts there for ./run kernels: entry-hash.k of library
 * steps, hash.k of fused ones, with .f64 before the .k where double is used. */
#include "fused_random.h"

#include "backend/gpu/gpu.h"

#include <inttypes.h>

static const wb__gpu_target targets[] = {
    {.f64 = true, .max_items = 1024, .local_bytes = 48 << 10, .max_args_bytes = 4096,
     .fragments_f16 = 32, .fragments_bf16 = 32},
    {.f64 = false, .max_items = 256, .local_bytes = 32 << 10, .max_args_bytes = 1024,
     .fragments_f16 = 32},
    {.f64 = true, .max_items = 1024, .local_bytes = 64 << 10, .max_args_bytes = 4096,
     .fragments_bf16 = 64},
    {.f64 = true,
     .in_turn = true, .composes = true,
     .max_items = 4096,
     .local_bytes = 1 << 20,
     .max_args_bytes = 1024},
    {.f64 = true,
     .tickets = true,
     .max_items = 1024,
     .local_bytes = 48 << 10,
     .launch_bytes = 227 << 10,
     .processor_bytes = 228 << 10,
     .max_args_bytes = 4096,
     .processors = 132},
    {.max_items = 512, .local_bytes = 64 << 10, .max_args_bytes = 2048, .fragments_f16 = 8,
     .fragments_bf16 = 8},
    {.f64 = true, .max_items = 1024, .local_bytes = 128 << 10, .max_args_bytes = 2048,
     .fragments_f16 = 16, .fragments_bf16 = 16},
};

static void dump(const wb__gpu_launch *l, bool fused)
{
    const char *folder = getenv("WEBER_DUMP_KERNELS");
    if (!folder) return;
    uint64_t hash = 14695981039346656037u;
    for (const char *c = l->text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    char *path = wb__printf("%s/%s%s%016" PRIx64 "%s.k", folder, fused ? "" : l->entry,
                            fused ? "" : "-", hash, l->f64 ? ".f64" : "");
    assert_non_null(path);
    FILE *f = fopen(path, "w");
    if (!f || fputs(l->text, f) < 0 || fclose(f)) fail_msg("cannot write %s", path);
    wb__free(path);
}

static void check_launch(const wb__gpu_target *t, const wb__gpu_work *w, const wb__gpu_launch *l)
{
    uint64_t items = 1;
    for (int d = 0; d < 3; d++) {
        assert_in_range(l->groups[d], 1, d ? 65535 : INT32_MAX);
        items *= l->items[d];
    }
    assert_in_range(items, 1, (uint64_t)t->max_items);
    assert_in_range(l->args_bytes, 4, t->max_args_bytes);
    assert_int_equal(l->args_bytes % 4, 0);
    assert_true(t->f64 || !l->f64);
    assert_true(l->local <= t->launch_bytes);
    assert_int_equal(l->local != 0, strstr(l->text, "LAUNCH_LOCAL(") != NULL);
    assert_non_null(strstr(l->text, l->entry));
    for (int i = 0; i < l->n_buffers; i++) {
        assert_true(l->buffer[i] >= WB__GPU_WORKSPACE);
        if (l->buffer[i] == WB__GPU_WORKSPACE) {
            assert_true(w->workspace > 0);
            assert_in_range(l->workspace_at, 0, l->args_bytes - 8);
        }
    }
    for (int i = 0; i < l->n_numbers; i++) assert_in_range(l->numbers[i].at, 0, l->args_bytes - 4);
}

/* Checks the step for every target; returns the number of launches for the first one. */
static int check(const wb__step *s, bool f64)
{
    int launches = 0;
    for (size_t i = 0; i < WB__COUNT(targets); i++) {
        wb__gpu_work *w = NULL, *again = NULL;
        const int e = wb__gpu_step(&targets[i], s, &w);
        if (f64 && !targets[i].f64) {
            assert_int_equal(e, WB_ERROR_UNSUPPORTED);
            continue;
        }
        if (e) fail_msg("%s", wb_error());
        assert_non_null(w->impl);
        assert_int_equal(wb__gpu_step(&targets[i], s, &again), 0);
        assert_int_equal(w->n, again->n);
        for (int j = 0; j < w->n; j++) {
            check_launch(&targets[i], w, &w->launch[j]);
            assert_string_equal(w->launch[j].text, again->launch[j].text);
            assert_memory_equal(w->launch[j].args, again->launch[j].args, w->launch[j].args_bytes);
            dump(&w->launch[j], s->kind == WB__STEP_FUSED);
        }
        if (!i) launches = w->n;
        wb__gpu_work_free(w);
        wb__gpu_work_free(again);
    }
    return launches;
}

/* ---- library steps --------------------------------------------------------------------------- */

static wb__view view(wb_dtype t, int buffer, int ndim, const int64_t *dims)
{
    wb__view v = {.dtype = t, .buffer = buffer, .ndim = ndim};
    int64_t size = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        v.dims[i] = dims[i];
        v.strides[i] = size;
        size *= dims[i];
    }
    return v;
}
#define VIEW(t, buffer, ...)                                                                       \
    view((t), (buffer), (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)),                   \
         (const int64_t[]){__VA_ARGS__})

static const wb_dtype floats[] = {WB_F32, WB_F16, WB_BF16, WB_F64};

TEST(products)
{
    static const int64_t sizes[][3] = {         /* m, n, k; the last needs 64-bit indices */
        {3, 5, 7}, {64, 6, 100}, {64, 12, 100}, {2000, 2100, 64}, {30, 40, 90000},
        {5, 2, 100000}, {40000, 40000, 70}};
    static const wb__op acts[WB__COUNT(sizes)] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh,
                                                  WB__OP_sigmoid, WB__OP_gelu_erf, WB__OP_selu,
                                                  WB__OP_logsigmoid};
    for (size_t t = 0; t < WB__COUNT(floats); t++)
        for (size_t i = 0; i < WB__COUNT(sizes); i++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            const wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 4, .epilogue = acts[i],
                                .views = {VIEW(floats[t], 0, m, k), VIEW(floats[t], 1, k, n),
                                          VIEW(floats[t], 2, m, n), VIEW(floats[t], 3, n)}};
            assert_in_range(check(&s, floats[t] == WB_F64), 1, 3);
        }
}

static void make_channels_last(wb__view *v)
{
    v->strides[1] = 1;
    v->strides[3] = v->dims[1];
    v->strides[2] = v->dims[3] * v->strides[3];
}

TEST(convolutions)
{
    static const int64_t channels[][3] = {      /* the fifth: channels are last */
        {1, 1, 1}, {3, 6, 1}, {16, 12, 1}, {32, 64, 1}, {32, 40, 1}, {24, 24, 24}};
    for (size_t t = 0; t < WB__COUNT(floats); t++)
        for (size_t i = 0; i < WB__COUNT(channels); i++)
            for (int kind = 0; kind < 3; kind++) {
                const int64_t c = channels[i][0], k = channels[i][1], groups = channels[i][2];
                const wb_dtype f = floats[t];
                wb__step s = {
                    .kind = WB__STEP_CONV, .variant = kind, .n_views = 3,
                    .conv = {.stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1},
                             .groups = groups},
                    .views = {VIEW(f, 0, 8, c, 20, 20), VIEW(f, 1, k, c / groups, 3, 3),
                              VIEW(f, 2, 8, k, 20, 20)}};
                if (i == 4) make_channels_last(&s.views[0]), make_channels_last(&s.views[2]);
                assert_in_range(check(&s, f == WB_F64), 1, 3);
            }
}

TEST(pools)
{
    for (size_t t = 0; t < WB__COUNT(floats); t++)
        for (int kind = 0; kind < 5; kind++) {
            const wb_dtype f = floats[t];
            const wb__view x = VIEW(f, 0, 2, 3, 8, 8), y = VIEW(f, 1, 2, 3, 4, 4);
            const wb__view views[5][3] = {{x, y}, {x, y, x}, {x, x, y}, {x, y}, {y, x}};
            wb__step s = {.kind = WB__STEP_POOL, .variant = kind, .n_views = kind == 1 || kind == 2
                          ? 3 : 2, .pool = {.window = {2, 2}, .stride = {2, 2}}};
            memcpy(s.views, views[kind], sizeof views[kind]);
            assert_int_equal(check(&s, f == WB_F64), 1);
        }
}

TEST(rows_and_copies)
{
    static const wb_dtype index[] = {WB_I8, WB_U8, WB_I32, WB_I64};
    for (int t = WB_F32; t < WB_DTYPE_COUNT; t++) {
        const wb_dtype d = (wb_dtype)t, of = index[t % 4];
        wb__step s = {.kind = WB__STEP_GATHER, .n_views = 3,
                      .views = {VIEW(d, 0, 9, 5), VIEW(of, 1, 30), VIEW(d, 2, 30, 5)}};
        assert_int_equal(check(&s, false), 1);
        s = (wb__step){.kind = WB__STEP_SCATTER_ADD, .n_views = 3,
                       .views = {VIEW(of, 1, 30), VIEW(d, 2, 30, 5), VIEW(d, 0, 9, 5)}};
        for (s.variant = WB__ROWS_ADD; s.variant < WB__ROWS_SET; s.variant++)
            assert_int_equal(check(&s, d == WB_F64), 3);
        assert_int_equal(check(&s, false), 1);          /* a few rows are set by one launch */
        s.views[0].dims[0] = s.views[1].dims[0] = 3000;
        assert_int_equal(check(&s, d == WB_F64), 3);
        for (int ndim = 0; ndim <= WB_MAX_DIMS; ndim++) {
            static const int64_t dims[WB_MAX_DIMS] = {2, 3, 2, 3, 2, 3, 2, 3};
            s = (wb__step){.kind = WB__STEP_COPY, .n_views = 2,
                           .views = {view(d, 0, ndim, dims), view(d, 1, ndim, dims)}};
            for (int i = 0; i < ndim; i++) s.views[0].strides[i] *= 2 + i;
            assert_int_equal(check(&s, false), 1);
        }
    }
    /* the largest copy of bytes that one launch can make, and one that is too large */
    wb__step s = {.kind = WB__STEP_COPY, .n_views = 2,
                  .views = {VIEW(WB_U8, 0, (int64_t)INT32_MAX * 256),
                            VIEW(WB_U8, 1, (int64_t)INT32_MAX * 256)}};
    assert_int_equal(check(&s, false), 1);
    wb__gpu_work *w = NULL;
    s.views[0].dims[0]++, s.views[1].dims[0]++;
    FAILS(wb__gpu_step(&targets[0], &s, &w), WB_ERROR_UNSUPPORTED, "copy", "2147483648", "groups");
}

TEST(running_sums)
{
    static const int64_t sizes[][3] = {     /* the last needs 64-bit indices */
        {7, 3, 5}, {1000, 3, 1}, {20, 1 << 13, 2}, {100000, 1 << 13, 2}};
    for (int t = WB_F32; t < WB_BOOL; t++)
        for (int i = 0; i < 16; i++) {
            const int64_t *n = sizes[i / 4];
            const wb_dtype d = (wb_dtype)t;
            wb__step s = {.kind = WB__STEP_CUMSUM, .n_views = 2, .variant = i % 2,
                          .views = {VIEW(d, 0, n[0], n[1], n[2]), VIEW(d, 1, n[0], n[1], n[2])}};
            if (i & 2) s.views[0].strides[1] *= 2;
            assert_int_equal(check(&s, d == WB_F64), 1);
        }
}

TEST(sorts)
{
    static const int64_t sizes[][2] = {{20, 3}, {1000, 7}, {100000, 1 << 14}};  /* 64-bit indices */
    for (int t = WB_F32; t < WB_BOOL; t++)
        for (int i = 0; i < 6; i++) {
            const int64_t *n = sizes[i / 2];
            const wb_dtype d = (wb_dtype)t;
            wb__step s = {.kind = WB__STEP_SORT, .n_views = 2, .variant = i % 2,
                          .views = {VIEW(d, 0, n[0], n[1]), VIEW(WB_I32, 1, n[0], n[1])}};
            assert_int_equal(check(&s, d == WB_F64), i < 2 ? 2 : i < 4 ? 7 : 14);
        }
}

TEST(attention)
{
    static const int64_t sizes[][4] = { /* heads, length, depth, width of v; the last: 64 bits */
        {3, 100, 64, 64}, {2, 64, 80, 17}, {64, 1024, 64, 64}, {64, 1 << 18, 128, 128}};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < WB__COUNT(sizes); i++) {
            const wb_dtype f = floats[t];
            const int64_t h = sizes[i][0], n = sizes[i][1], d = sizes[i][2], e = sizes[i][3];
            wb__step s = {
                .kind = WB__STEP_ATTENTION, .variant = WB__ATTENTION_FORWARD, .n_views = 5,
                .attention = {.scale = 0.125, .causal = i % 2},
                .views = {VIEW(f, 0, 2, h, n, d), VIEW(f, 1, 2, h, n, d), VIEW(f, 2, 2, h, n, e),
                          VIEW(f, 3, 2, h, n, e), VIEW(WB_F32, 4, 2, h, n, 1),
                          VIEW(f, 5, 2, h, n, e), VIEW(f, 6, 2, h, n, d), VIEW(f, 7, 2, h, n, d),
                          VIEW(f, 8, 2, h, n, e)}};
            assert_int_equal(check(&s, false), 1);
            s.variant = WB__ATTENTION_GRAD;
            s.n_views = 9;
            assert_int_equal(check(&s, false), 2);
        }
}

/* ---- fused steps ----------------------------------------------------------------------------- */

TEST(fused)
{
    static program p;
    for (int i = 0; i < 20; i++) {
        draw_program(&p);
        const wb__step s = {.kind = WB__STEP_FUSED, .fused = p.f};
        wb__gpu_work *w = NULL;
        bool f64 = false;
        if (wb__gpu_step(&targets[0], &s, &w)) fail_msg("%s", wb_error());
        for (int j = 0; j < w->n; j++) f64 |= w->launch[j].f64;
        wb__gpu_work_free(w);
        check(&s, f64);
    }
}

/* The gates of a recurrent layer (n gates), or its state's gradient (n 1); a load and a store for
 * each. */
static void check_recurrent_step(wb_dtype t, int n, int64_t rows, int64_t columns, int64_t k)
{
    enum { FIRST = 2, EACH = 4, VIEWS = 3 };
    wb__space space = {.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {rows, columns}};
    wb__instr instr[4 * EACH];
    wb__view views[1 + 4 * VIEWS];
    const uint8_t reg = (uint8_t)wb__reg_of(t);
    views[0] = VIEW(t, 0, rows, columns, k);
    views[0].strides[0] = k, views[0].strides[1] = 0, views[0].strides[2] = 1;
    for (int i = 0; i < n; i++) {
        wb__view *v = views + 1 + i * VIEWS;
        wb__instr *in = instr + i * EACH;
        v[0] = VIEW(t, 1, rows, columns, k);
        v[0].offset = i * columns * k;
        v[0].strides[0] = 0;
        v[0].strides[1] = n > 1 ? k : 1;
        v[0].strides[2] = n > 1 ? 1 : columns;
        v[1] = VIEW(t, FIRST, rows, columns);
        v[1].offset = i * rows * columns;
        v[2] = VIEW(t, FIRST + 1, rows, columns);
        v[2].offset = v[1].offset;
        for (int j = 0; j < EACH; j++)
            in[j] = (wb__instr){.kind = (uint8_t)(j == 3 ? WB__STORE : WB__ELEMENTWISE_OP),
                                .op = WB__OP_add, .reg = reg, .dtype = (uint8_t)t,
                                .level = WB__LEVEL_FULL, .a = i * EACH + (j == 3 ? 2 : 0),
                                .b = j == 3 ? -1 : i * EACH + 1, .c = -1};
        in[0].kind = WB__PRODUCT, in[0].arg = 0, in[0].c = 1 + i * VIEWS, in[0].scale = k;
        in[0].a = in[0].b = in[1].a = in[1].b = -1;
        in[1].kind = WB__LOAD, in[1].arg = 2 + i * VIEWS;
        in[3].arg = 3 + i * VIEWS;
    }
    const wb__step s = {.kind = WB__STEP_FUSED,
                        .fused = {.n_segments = 1, .n_instr = n * EACH, .n_views = 1 + n * VIEWS,
                                  .instr = instr, .views = views, .spaces = &space}};
    assert_int_equal(check(&s, t == WB_F64), 1);
}

TEST(recurrent_steps)
{
    for (size_t t = 0; t < WB__COUNT(floats); t++) {
        check_recurrent_step(floats[t], 4, 32, 128, 128);
        check_recurrent_step(floats[t], 1, 32, 128, 512);
        check_recurrent_step(floats[t], 3, 1, 33, 33);
    }
}

/* Which products a fused kernel computes: on a GPU, those that take less time than starting a
 * kernel. */
TEST(small_products)
{
    const wb__gpu_target *h100 = &targets[4], *cpu = &targets[3];
    const struct { int64_t m, n, k; bool taken; } of[] = {
        {32, 512, 128, true}, {32, 128, 512, true}, {8, 64, 16, true},
        {1, 768, 768, true}, {32, 4096, 128, false}, {512, 512, 512, false},
        {4, 4, 2048, false}, {0, 4, 4, false}, {4, 4, 0, false}};
    for (size_t i = 0; i < WB__COUNT(of); i++) {
        const wb__step s = {.kind = WB__STEP_FUSED, .n_views = 3,
                            .views = {VIEW(WB_F32, 0, of[i].m, of[i].k),
                                      VIEW(WB_F32, 1, of[i].k, of[i].n),
                                      VIEW(WB_F32, 2, of[i].m, of[i].n)}};
        assert_int_equal(wb__gpu_supports(h100, &s), of[i].taken);
        assert_false(wb__gpu_supports(cpu, &s));
    }
}

/* The launches of a sum and a largest element over 30,000 rows of 40 columns. */
static int launches_of(const wb__gpu_target *t, bool all)
{
    const wb__instr_kind kind = all ? WB__REDUCE_ALL : WB__REDUCE_ROWS;
    wb__space space = {.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {30000, 40}};
    wb__instr instr[] = {
        {.kind = WB__LOAD, .reg = WB__REG_F32, .level = WB__LEVEL_FULL, .dtype = WB_F32, .a = -1,
         .b = -1, .c = -1},
        {.kind = (uint8_t)kind, .op = WB__OP_sum, .reg = WB__REG_F32, .dtype = WB_F32, .b = -1,
         .c = -1, .arg = 1},
        {.kind = (uint8_t)kind, .op = WB__OP_argmax, .reg = WB__REG_I32, .dtype = WB_I32, .b = -1,
         .c = -1, .arg = 2}};
    wb__view views[3] = {VIEW(WB_F32, 0, 30000, 40), VIEW(WB_F32, 1, 30000, 40),
                         VIEW(WB_I32, 2, 30000, 40)};
    for (int i = 1; i < 3; i++) views[i].strides[0] = 0, views[i].strides[1] = !all;
    const wb__step s = {.kind = WB__STEP_FUSED,
                        .fused = {.n_segments = 1, .n_instr = 3, .n_views = 3, .instr = instr,
                                  .views = views, .spaces = &space}};
    wb__gpu_work *w = NULL;
    check(&s, false);
    if (wb__gpu_step(t, &s, &w)) fail_msg("%s", wb_error());
    const int n = w->n;
    wb__gpu_work_free(w);
    return n;
}

/* One launch where the device has tickets, two elsewhere. */
TEST(reductions_in_chunks)
{
    for (int all = 0; all < 2; all++)
        for (size_t i = 0; i < WB__COUNT(targets); i++)
            assert_int_equal(launches_of(&targets[i], all), targets[i].tickets ? 1 : 2);
}

/* The length of vectors in the text of y = x, with x a matrix in memory; 1: there are none. */
typedef struct {
    wb_dtype dtype;
    int64_t rows, cols, row_stride, offset;
    int granule, expected;
} moved;

static int vector_of(const wb__gpu_target *t, const moved *m)
{
    wb__space space = {.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {m->rows, m->cols}};
    const wb__reg reg = m->dtype == WB_F64 ? WB__REG_F64 : m->dtype == WB_U8 ? WB__REG_I32
                                                                             : WB__REG_F32;
    wb__instr instr[] = {
        {.kind = WB__LOAD, .reg = (uint8_t)reg, .level = WB__LEVEL_FULL,
         .dtype = (uint8_t)m->dtype, .a = -1, .b = -1, .c = -1},
        {.kind = WB__STORE, .reg = (uint8_t)reg, .level = WB__LEVEL_FULL,
         .dtype = (uint8_t)m->dtype, .b = -1, .c = -1, .arg = 1}};
    wb__view views[2] = {VIEW(m->dtype, 0, m->rows, m->cols), VIEW(m->dtype, 1, m->rows, m->cols)};
    views[0].strides[0] = m->row_stride;
    views[0].offset = m->offset;
    views[0].granule = m->granule;
    const wb__step s = {.kind = WB__STEP_FUSED,
                        .fused = {.n_segments = 1, .n_instr = 2, .n_views = 2, .instr = instr,
                                  .views = views, .spaces = &space}};
    wb__gpu_work *w = NULL;
    int n = 1;
    if (wb__gpu_step(t, &s, &w)) fail_msg("%s", wb_error());
    assert_int_equal(w->n, 1);
    const char *vector = strstr(w->launch[0].text, "VECTOR(");
    if (vector) assert_int_equal(sscanf(strchr(vector, ','), ", %d", &n), 1);
    const int64_t items = (int64_t)w->launch[0].groups[0] * w->launch[0].groups[1] * 256;
    assert_true(items * n >= m->rows * m->cols);
    assert_true(m->rows < 1000 || items * n < 2 * m->rows * m->cols);
    assert_int_equal(w->launch[0].n_origins, m->granule != 0);
    if (m->granule)
        assert_int_equal(w->launch[0].origins[0].size, (size_t)n * wb__dtype_size(m->dtype));
    wb__gpu_work_free(w);
    return n;
}

/* Vectors have at most 16 bytes and 8 elements, and are aligned. */
TEST(vectors)
{
    static const moved all[] = {
        {WB_BF16, 1000, 256, 256, 0, 0, 8}, {WB_F32, 1000, 256, 256, 0, 0, 4},
        {WB_F64, 1000, 256, 256, 0, 0, 2}, {WB_U8, 1000, 256, 256, 0, 0, 8},
        {WB_F16, 999, 3, 3, 0, 0, 8},           /* one line, whose last vector is cut off */
        {WB_F16, 999, 3, 4, 0, 0, 1}, {WB_F16, 1000, 256, 260, 0, 0, 4},
        {WB_F16, 1000, 254, 256, 0, 0, 2}, {WB_F16, 1000, 256, 257, 0, 0, 1},
        {WB_F16, 1000, 256, 256, 4, 0, 4}, {WB_F16, 1000, 256, 256, 3, 0, 1},
        {WB_F16, 1000, 256, 256, 0, 8, 4}, {WB_F16, 1000, 256, 256, 0, 2, 1},
        {WB_F32, 1000, 256, 256, 0, 16, 4}, {WB_F16, 1, 7, 7, 0, 0, 4}, {WB_F16, 1, 1, 1, 0, 0, 1}};
    wb__gpu_target t = targets[0];
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        const int found = vector_of(&t, &all[i]);
        if (found != all[i].expected)
            fail_msg("case %zu: vectors of %d, not %d", i, found, all[i].expected);
    }
    t.processors = 132;                         /* an item for each thread of the device */
    assert_int_equal(vector_of(&t, &all[0]), 4);
    t.in_turn = true;
    assert_int_equal(vector_of(&t, &all[0]), 1);
}

/* ---- rows that are kept ---------------------------------------------------------------------- */

/* Softmax, but for the loop that finds the largest element: three loops load x. */
static wb__gpu_work *long_rows(const wb__gpu_target *t, int64_t cols, wb_dtype dtype)
{
    enum { ROWS = 300 };
    wb__view views[] = {VIEW(dtype, 0, ROWS, cols), VIEW(dtype, 1, ROWS, cols)};
    wb__space space = {.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {ROWS, cols}};
    wb__instr instr[] = {
        {.kind = WB__LOAD, .reg = WB__REG_F32, .level = WB__LEVEL_FULL, .a = -1, .b = -1, .c = -1},
        {.kind = WB__REDUCE_COLUMNS, .op = WB__OP_max, .reg = WB__REG_F32,
         .level = WB__LEVEL_PER_ROW, .a = 0, .b = -1, .c = -1, .arg = -1},
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_sub, .reg = WB__REG_F32,
         .level = WB__LEVEL_FULL, .a = 0, .b = 1, .c = -1, .arg = -1},
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_exp, .reg = WB__REG_F32,
         .level = WB__LEVEL_FULL, .a = 2, .b = -1, .c = -1, .arg = -1},
        {.kind = WB__REDUCE_COLUMNS, .op = WB__OP_sum, .reg = WB__REG_F32,
         .level = WB__LEVEL_PER_ROW, .a = 3, .b = -1, .c = -1, .arg = -1},
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_div, .reg = WB__REG_F32,
         .level = WB__LEVEL_FULL, .a = 3, .b = 4, .c = -1, .arg = -1},
        {.kind = WB__STORE, .reg = WB__REG_F32, .level = WB__LEVEL_FULL, .dtype = (uint8_t)dtype,
         .a = 5, .b = -1, .c = -1, .arg = 1}};
    instr[0].dtype = (uint8_t)dtype;
    const wb__step s = {.kind = WB__STEP_FUSED,
                        .fused = {.n_segments = 1, .n_instr = (int)WB__COUNT(instr),
                                  .instr = instr, .n_views = 2, .views = views, .spaces = &space}};
    wb__gpu_work *w = NULL;
    if (wb__gpu_step(t, &s, &w)) fail_msg("%s", wb_error());
    assert_int_equal(w->n, 1);
    check_launch(t, w, &w->launch[0]);
    dump(&w->launch[0], true);
    return w;
}

/* A processor has about 1,024 items: with two rows of 100 KB 512 each, with one 1,024.  Without
 * enough local memory a row is loaded three times, if it is long. */
TEST(rows_that_are_kept)
{
    enum { K = 1 << 10 };
    static const struct {
        size_t launch, processor;
        int64_t cols;
        wb_dtype t;
        size_t local;
        uint32_t items;
        int64_t reloaded;
    } all[] = {
        {227 * K, 228 * K, 50304, WB_BF16, 100608, 512, 0},
        {163 * K, 164 * K, 50304, WB_BF16, 100608, 1024, 0},
        {227 * K, 228 * K, 50304, WB_F32, 201216, 1024, 0},
        {163 * K, 164 * K, 50304, WB_F32, 0, 256, 2ll * 300 * 201216},
        {99 * K, 100 * K, 50257, WB_F16, 0, 256, 2ll * 300 * 100514},
        {99 * K, 100 * K, 49152, WB_F16, 98304, 512, 0},    /* 1,024 items would need too much */
        {64 * K, 0, 50304, WB_BF16, 0, 256, 2ll * 300 * 100608},
        {64 * K, 0, 30001, WB_BF16, 60016, 1024, 0},
        {64 * K, 0, 8192, WB_BF16, 16384, 512, 0},
        {227 * K, 228 * K, 8192, WB_BF16, 16384, 256, 0},
        {227 * K, 228 * K, 8184, WB_BF16, 0, 256, 0},
        {0, 0, 8184, WB_BF16, 0, 256, 0},
        {0, 0, 8192, WB_BF16, 0, 256, 2ll * 300 * 16384}};
    for (size_t i = 0; i < WB__COUNT(all); i++) {
        wb__gpu_target t = targets[0];
        t.launch_bytes = all[i].launch;
        t.processor_bytes = all[i].processor;
        wb__gpu_work *w = long_rows(&t, all[i].cols, all[i].t);
        if (w->launch[0].local != all[i].local || w->reloaded != all[i].reloaded ||
            w->launch[0].items[0] != all[i].items)
            fail_msg("case %zu: %zu bytes for %u items, %lld bytes again", i, w->launch[0].local,
                     w->launch[0].items[0], (long long)w->reloaded);
        wb__gpu_work_free(w);
    }
}
