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
     .is_cpu = true,
     .max_items = 4096,
     .local_bytes = 1 << 20,
     .max_args_bytes = 1024},
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

TEST(convolutions)
{
    static const int64_t channels[][3] = {
        {1, 1, 1}, {3, 6, 1}, {16, 12, 1}, {32, 40, 1}, {24, 24, 24}};
    for (size_t t = 0; t < WB__COUNT(floats); t++)
        for (size_t i = 0; i < WB__COUNT(channels); i++)
            for (int kind = 0; kind < 3; kind++) {
                const int64_t c = channels[i][0], k = channels[i][1], groups = channels[i][2];
                const wb_dtype f = floats[t];
                const wb__step s = {
                    .kind = WB__STEP_CONV, .variant = kind, .n_views = 3,
                    .conv = {.stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1},
                             .groups = groups},
                    .views = {VIEW(f, 0, 8, c, 20, 20), VIEW(f, 1, k, c / groups, 3, 3),
                              VIEW(f, 2, 8, k, 20, 20)}};
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
    assert_int_equal(wb__gpu_step(&targets[0], &s, &w), WB_ERROR_UNSUPPORTED);
    FAILED(WB_ERROR_UNSUPPORTED, "copy", "2147483648", "groups");
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
        {3, 100, 64, 64}, {2, 64, 80, 17}, {64, 1 << 18, 128, 128}};
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

int main(void) { return run_all_cases(); }
