/* Kernel texts of fused programs: reductions and random programs compared with the CPU, and the
 * texts themselves.
 *
 *   gpu_fused [seed [count]] */
#include "test.h"

#include "gpu_fused.h"

static uint64_t seed = 1;
static int count = 12;

/* ---- reductions ------------------------------------------------------------------------------ */

static int64_t reduced;                     /* the elements that each result reduces */

/* Sums of floats may differ from the CPU's by 2e-6 (f64: 1e-14) of the sum of their terms'
 * magnitudes, which is at least a tenth of their number; other results are equal. */
static void check_reduction(const hand *h, int view, int64_t i, const void *cpu, const void *result)
{
    const wb_dtype t = h->views[view].dtype;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, result, t, 1);
    if (t != WB_F32 && t != WB_F64) same_bits(h, view, i, cpu, result);
    else if (!close_to(b, a, t == WB_F32 ? 2e-6 : 1e-14, (double)reduced * 0.1))
        fail_msg("view %d, element %lld, %lld reduced: %.9g, not %.9g%s", view, (long long)i,
                 (long long)reduced, b, a, way_name());
}

static void fill_reduction(void *p, wb_dtype t, int64_t n, int what)
{
    for (int64_t i = 0; i < n; i++) {
        double x = what == 0 ? 0.1 + (double)(draw() % 1000) * 1e-3 : (double)(draw() % 7) - 3;
        if (what == 2 && draw() % 97 == 0) x = draw() & 1 ? NAN : INFINITY;
        if (what == 3) x = -INFINITY;
        if (!wb__dtype_float(t)) x = (double)((int64_t)(draw() % 200) - 100);
        wb__convert((char *)p + (size_t)i * wb__dtype_size(t), t, &x, WB_F64, 1);
    }
}

/* All reductions of one kind, in four dtypes, of r rows and c columns; `turned`: the columns are
 * not contiguous in memory. */
static void reduction_kind(wb__instr_kind kind, int64_t r, int64_t c, bool turned, int what)
{
    static const wb__op ops[] = {WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
    static const wb_dtype types[] = {WB_F32, WB_I32, WB_F64, WB_I64};
    static hand h;
    begin(&h, r, c);
    reduced = kind == WB__REDUCE_COLUMNS ? c : kind == WB__REDUCE_ROWS ? r : r * c;
    const int64_t sr = kind == WB__REDUCE_COLUMNS ? 1 : 0, sc = kind == WB__REDUCE_ROWS ? 1 : 0;
    for (int t = 0; t < 4; t++) {
        if (types[t] == WB_F64 && !gpu->has_dtype(gpu_device, WB_F64)) continue;
        const int x = load(&h, types[t], turned ? 1 : c, turned ? r : 1);
        fill_reduction(h.data[h.instr[x].arg], types[t], r * c, what);
        for (int o = 0; o < 4; o++) {
            const bool place = ops[o] == WB__OP_argmax;
            const int wide = types[t] == WB_I32 ? WB__REG_I64 : reg_of(types[t]);
            const int out = place ? WB__REG_I32 : ops[o] == WB__OP_sum ? wide : reg_of(types[t]);
            if (kind == WB__REDUCE_COLUMNS)
                store(&h, reduction_of(&h, kind, ops[o], x, out, -1), whole_dtype(out), sr, sc);
            else
                reduction_of(&h, kind, ops[o], x, out, view_of(&h, whole_dtype(out), sr, sc));
        }
    }
    both(&h, NULL, check_reduction);
    finish(&h);
}

TEST(reductions)
{
    if (no_device()) skip();
    static const wb__instr_kind kinds[] = {WB__REDUCE_COLUMNS, WB__REDUCE_ROWS, WB__REDUCE_ALL};
    static const int64_t shapes[][2] = {
        {1, 1}, {1, 5}, {3, 1}, {7, 3}, {5, 64}, {2, 100}, {300, 2}, {1000, 10}, {33, 257},
        {1, 5000}, {5000, 1}, {2000, 70}, {3, 100000}, {100000, 3}, {700, 700}};
    for (size_t s = 0; s < WB__COUNT(shapes); s++)
        for (int k = 0; k < 3; k++)
            reduction_kind(kinds[k], shapes[s][0], shapes[s][1], s % 4 == 3, s % 2 ? 2 : 0);
    for (int k = 0; k < 3; k++) reduction_kind(kinds[k], 130, 130, false, 3);
}

/* Vectors of columns: a value for each element, of a row, of a column and of its indices, whose
 * reductions over the rows are exact in every order, and which is stored beside them. */
static void columns_of(int64_t r, int64_t c, wb_dtype t, int reductions, int64_t offset)
{
    static const wb__op ops[] = {WB__OP_sum, WB__OP_argmax, WB__OP_max, WB__OP_min, WB__OP_sum};
    static hand h;
    begin(&h, r, c);
    const int x = load(&h, t, c + offset, 1), k = load(&h, WB_F32, 0, 1);
    const int w = load(&h, WB_F32, 1, 0);
    for (int i = 0; i < 3; i++)
        fill_reduction(h.data[i], h.views[i].dtype, (int64_t)(h.bytes[i] / wb__dtype_size(
                       h.views[i].dtype)), 1);
    const int place = put(&h, (wb__instr){.kind = WB__IOTA, .reg = WB__REG_F32, .dtype = WB_F32,
                                          .level = WB__LEVEL_FULL, .a = -1, .b = -1, .c = -1,
                                          .arg = 1, .scale = 1});
    int y = op_of(&h, WB__OP_mul, op_of(&h, WB__OP_sub, x, k, -1), w, -1);
    y = op_of(&h, WB__OP_add, y, place, -1);
    for (int i = 0; i < reductions; i++) {
        const bool index = ops[i % 5] == WB__OP_argmax;
        reduction_of(&h, WB__REDUCE_ROWS, ops[i % 5], y, index ? WB__REG_I32 : WB__REG_F32,
                     view_of(&h, index ? WB_I32 : WB_F32, 0, 1));
    }
    store(&h, y, t, c + offset, 1);
    both(&h, NULL, same_bits);
    finish(&h);
}

TEST(vectors_of_columns)
{
    if (no_device()) skip();
    static const int64_t shapes[][2] = {{1, 8}, {3, 24}, {2, 1}, {40, 64}, {300, 16}, {33, 100},
                                        {500, 66}, {1000, 7}, {20, 200}, {4096, 40}};
    static const wb_dtype types[] = {WB_F32, WB_BF16, WB_F16};
    for (size_t s = 0; s < WB__COUNT(shapes); s++)
        for (int t = 0; t < 3; t++)
            columns_of(shapes[s][0], shapes[s][1], types[t], 1 + (int)(s % 3) * 2, s % 4 == 3);
}

/* Reductions of no elements: the sum is 0, the maximum the least number, the minimum the greatest,
 * argmax 0. */
TEST(empty)
{
    if (no_device()) skip();
    static const int64_t shapes[][2] = {{0, 3}, {3, 0}, {0, 0}};
    for (int s = 0; s < 3; s++)
        for (int way = 0; way < WAYS; way++) {
            static hand h;
            const int64_t r = shapes[s][0], c = shapes[s][1];
            go_way(way, 1);
            begin(&h, r, c);
            const int x = load(&h, WB_F32, c, 1);
            static const wb__op ops[] = {WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
            static const double want[] = {0, -INFINITY, INFINITY, 0};
            int views[3][4];
            for (int o = 0; o < 4; o++) {
                const int out = o == 3 ? WB__REG_I32 : WB__REG_F32;
                views[0][o] = view_of(&h, WB_F32, 0, 0);
                reduction_of(&h, WB__REDUCE_ALL, ops[o], x, out, views[0][o]);
                views[1][o] = view_of(&h, WB_F32, 0, 1);
                reduction_of(&h, WB__REDUCE_ROWS, ops[o], x, out, views[1][o]);
                views[2][o] = store(&h, reduction_of(&h, WB__REDUCE_COLUMNS, ops[o], x, out, -1),
                                    WB_F32, 1, 0);
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

/* softmax in place and its row sums, the sum of all logarithms, column means of the results:
 * reductions of all kinds that depend on each other, and stores into views that are loaded. */
TEST(mixed)
{
    if (no_device()) skip();
    static const int64_t shapes[][2] = {{1, 1}, {4, 10}, {64, 10}, {600, 33}, {3, 4000}};
    for (size_t s = 0; s < WB__COUNT(shapes); s++)
        for (int late = 0; late < 3; late++) {
            static hand h;
            const int64_t r = shapes[s][0], c = shapes[s][1];
            begin(&h, r, c);
            reduced = 1;
            const int x = load(&h, WB_F32, c, 1), b = load(&h, WB_F32, 0, 1);
            const int w = load(&h, WB_F32, 1, 0);
            for (int i = 0; i < 3; i++)
                for (size_t j = 0; j < h.bytes[i] / 4; j++)
                    ((float *)h.data[i])[j] = (float)(draw() % 1000) * 0.01f - 5;
            const int y = op_of(&h, WB__OP_mul, op_of(&h, WB__OP_add, x, b, -1), w, -1);
            const int top = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_max, y, WB__REG_F32, -1);
            const int e = op_of(&h, WB__OP_exp, op_of(&h, WB__OP_sub, y, top, -1), -1, -1);
            const int sum = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_sum, e, WB__REG_F32, -1);
            const int p = op_of(&h, WB__OP_div, e, sum, -1);
            if (late) reduction_of(&h, WB__REDUCE_ROWS, WB__OP_sum, p, WB__REG_F32,
                              view_of(&h, WB_F32, 0, 1));
            if (late == 2) reduction_of(&h, WB__REDUCE_ALL, WB__OP_sum, y, WB__REG_F32,
                                   view_of(&h, WB_F32, 0, 0));
            const int l = op_of(&h, WB__OP_add, top, op_of(&h, WB__OP_log, sum, -1, -1), -1);
            put(&h, (wb__instr){.kind = WB__STORE, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                                .dtype = WB_F32, .a = p, .b = -1, .c = -1, .arg = 0});
            put(&h, (wb__instr){.kind = WB__STORE, .reg = WB__REG_F32, .level = WB__LEVEL_PER_ROW,
                                .dtype = WB_F32, .a = l, .b = -1, .c = -1, .arg = 2});
            reduced = 1000;
            both(&h, NULL, check_reduction);
            finish(&h);
        }
}

/* Long rows of two operands that several loops load, which a GPU keeps; beside them a row of
 * weights for all rows, and the place of each row's largest element. */
static void long_rows(int64_t r, int64_t c, wb_dtype t, size_t kept)
{
    static hand h;
    begin(&h, r, c);
    const int x = load(&h, t, c, 1), g = load(&h, WB_F32, c, 1), w = load(&h, WB_F32, 0, 1);
    fill_reduction(h.data[0], t, r * c, 0);
    fill_reduction(h.data[1], WB_F32, r * c, 0);
    fill_reduction(h.data[2], WB_F32, c, 0);
    const int top = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_max, x, h.instr[x].reg, -1);
    const int place = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_argmax, x, WB__REG_I32, -1);
    int e = op_of(&h, WB__OP_exp, op_of(&h, WB__OP_sub, x, top, -1), -1, -1);
    if (t == WB_F64)
        e = put(&h, (wb__instr){.kind = WB__CAST, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                                .dtype = WB_F32, .a = e, .b = -1, .c = -1, .arg = -1});
    const int sum = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_sum, e, WB__REG_F32, -1);
    const int dot = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_sum,
                                 op_of(&h, WB__OP_mul, e, g, -1), WB__REG_F32, -1);
    const int p = op_of(&h, WB__OP_div, e, sum, -1);
    const int y = op_of(&h, WB__OP_mul, p, op_of(&h, WB__OP_sub, g, dot, -1), -1);
    store(&h, op_of(&h, WB__OP_mul, y, w, -1), WB_F32, c, 1);
    store(&h, place, WB_I32, 1, 0);
    reduced = 1;
    most_local = 0;
    both(&h, NULL, check_reduction);
    if (launch_bytes >= 64 << 10) assert_int_equal(most_local, kept);
    else print_message("not checked what is kept: a launch can have %zu bytes of local memory\n",
                       launch_bytes);
    finish(&h);
}

TEST(rows_that_are_kept)
{
    if (no_device()) skip();
    long_rows(5, 4096, WB_F32, 2 * 16384);
    long_rows(3, 4095, WB_F32, 0);                      /* 16 KiB are a long row */
    long_rows(3, 4101, WB_F32, 2 * 16416);              /* rounded up to 16 bytes */
    long_rows(4, 8192, WB_BF16, 16384 + 32768);
    long_rows(3, 8191, WB_BF16, 32768);                 /* the other operand alone */
    long_rows(2, 9001, WB_F16, 18016 + 36016);
    long_rows(2, 4098, WB_BF16, 16400);
    if (gpu->has_dtype(gpu_device, WB_F64)) long_rows(3, 2100, WB_F64, 16800);
}

/* ---- programs at random ---------------------------------------------------------------------- */

static void one_program(uint64_t number)
{
    static program p;
    drawn = number * 0x2545f4914f6cdd1du + 77;
    draw_program(&p);
    draw_for_gpu(&p);
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
    for (int way = 0; way < WAYS; way++) {
        go_way(way, 1 + (uint32_t)(number % 64));
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
                              (unsigned long long)number, i, (long long)j, b, a, way_name());
                print_program(&p);
                fail();
            }
        }
    }
    for (int b = 0; b < p.n_buffers; b++) free(was[b]), free(want[b]), free(got[b]);
}

TEST(random_programs)
{
    if (no_device()) skip();
    for (int i = 0; i < count; i++) one_program(seed + (uint64_t)i);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const wb__gpu_target any_gpu = {.f64 = true, .max_items = 1024, .local_bytes = 32768,
                                       .max_args_bytes = 1024};

static wb__gpu_work *made(const wb__gpu_target *t, const wb__fused *f)
{
    wb__gpu_work *work = NULL;
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = *f};
    if (__real_wb__gpu_step(t, &step, &work)) fail_msg("%s", wb_error());
    dump(work);
    return work;
}

/* Sizes, offsets and strides other than 0 and 1 are arguments: programs that differ only in these
 * have one text. */
TEST(few_texts)
{
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

/* A number for each row is stored by the kernel of the elements, unless that kernel loads it. */
TEST(stores_of_rows)
{
    for (int apart = 0; apart < 2; apart++) {
        static hand h;
        begin(&h, 300, 500);
        const int x = load(&h, WB_F32, 500, 1), w = load(&h, WB_F32, 1, 0);
        store(&h, op_of(&h, WB__OP_mul, x, w, -1), WB_F32, 500, 1);
        store(&h, op_of(&h, WB__OP_square, w, -1, -1), WB_F32, 1, 0);
        if (apart) h.instr[h.f.n_instr - 1].arg = h.instr[w].arg;
        wb__gpu_work *work = made(&any_gpu, &h.f);
        assert_int_equal(work->n, apart ? 2 : 1);
        wb__gpu_work_free(work);
        finish(&h);
    }
}

/* Vectors lie inside or outside of a window. */
TEST(windows_of_vectors)
{
    for (int from = 3; from <= 8; from += 5) {
        static hand h;
        wb__window w = {.begin = {0, from}, .step = {1, 1}, .size = {300, 256}};
        begin(&h, 300, 512);
        const int x = load(&h, WB_F32, 256, 1);
        h.instr[x].a = 0;
        h.f.windows = &w;
        store(&h, x, WB_F32, 512, 1);
        wb__gpu_work *work = made(&any_gpu, &h.f);
        assert_int_equal(strstr(work->launch[0].text, "VECTOR") != NULL, from == 8);
        wb__gpu_work_free(work);
        finish(&h);
    }
}

/* Vectors of columns are as long as 16 bytes, the alignment and local memory allow. */
TEST(length_of_vectors)
{
    static const struct {
        wb_dtype t;
        int64_t cols;
        int offset, reductions;
        const char *want;
    } cases[] = {
        {WB_F32, 64, 0, 2, "f32x4 l0"}, {WB_BF16, 64, 0, 2, "u16x8 l0"},
        {WB_BF16, 64, 0, 4, "u16x4 l0"}, {WB_BF16, 36, 0, 2, "u16x4 l0"},
        {WB_BF16, 64, 2, 2, "u16x2 l0"}, {WB_BF16, 63, 0, 2, "OF_BF16(p0["}};
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        static hand h;
        begin(&h, 3000, cases[i].cols);
        const int x = load(&h, cases[i].t, cases[i].cols, 1);
        h.views[0].offset = cases[i].offset;
        const int y = op_of(&h, WB__OP_mul, x, load(&h, WB_F32, 0, 1), -1);
        for (int n = 0; n < cases[i].reductions; n++)
            reduction_of(&h, WB__REDUCE_ROWS, WB__OP_sum, y, WB__REG_F32,
                         view_of(&h, WB_F32, 0, 1));
        wb__gpu_work *work = made(&any_gpu, &h.f);
        if (!strstr(work->launch[0].text, cases[i].want))
            fail_msg("no %s in:\n%s", cases[i].want, work->launch[0].text);
        wb__gpu_work_free(work);
        finish(&h);
    }
}

TEST(refusals)
{
    static hand h;
    wb__gpu_work *work = NULL;
    wb__gpu_target small = any_gpu;
    small.f64 = false;
    begin(&h, 3, 5);
    store(&h, load(&h, WB_F32, 5, 1), WB_F64, 5, 1);
    wb__step step = {.kind = WB__STEP_FUSED, .fused = h.f};
    FAILS(__real_wb__gpu_step(&small, &step, &work), WB_ERROR_UNSUPPORTED, "f64");
    finish(&h);
    begin(&h, 30, 500);
    for (int i = 0; i < 30; i++) store(&h, load(&h, WB_F32, 500 + i, 1), WB_F32, 700 + i, 1);
    step.fused = h.f;
    small.max_args_bytes = 256;
    FAILS(__real_wb__gpu_step(&small, &step, &work), WB_ERROR_UNSUPPORTED, "256");
    finish(&h);
    wb_clear_error();
}

/* Buffers count as arguments: a program is refused only if they exceed max_args_bytes together. */
TEST(many_buffers)
{
    static hand h;
    wb__gpu_target t = any_gpu;
    t.max_args_bytes = 1024;
    t.buffer_bytes = 8;
    bool refused = false, taken = false;
    for (int n = 20; n < 70; n++) {
        wb__gpu_work *work = NULL;
        begin(&h, 30, 500);
        int sum = load(&h, WB_F32, 500, 1);
        for (int i = 1; i < n; i++)
            sum = op_of(&h, WB__OP_add, sum, load(&h, WB_F32, 500 + i % 7, 1), -1);
        store(&h, sum, WB_F32, 700, 1);
        const wb__step step = {.kind = WB__STEP_FUSED, .fused = h.f};
        if (__real_wb__gpu_step(&t, &step, &work)) {
            assert_int_equal(wb_error_code(), WB_ERROR_UNSUPPORTED);
            refused = true;
        } else {
            assert_false(refused);
            taken |= work->launch[0].n_buffers > 32;
            assert_true(work->launch[0].args_bytes + 8 * (size_t)(n + 1) <= 1024);
            wb__gpu_work_free(work);
        }
        wb_clear_error();
        finish(&h);
    }
    assert_true(refused && taken);
}

/* A space of more than 2^32 points is split into several launches.  They are not run, since the
 * views have 9 GB and more. */
TEST(too_many_points)
{
    enum { LAST = 50304 };
    static wb__instr in[4];
    const int64_t rows = 96 * 1024;
    const wb__space space = {.ndim = 2, .row_dims = 1, .col_dims = 1, .dims = {rows, LAST}};
    const wb__view views[2] = {
        {.dtype = WB_BF16, .buffer = 0, .ndim = 2, .dims = {rows, LAST}, .strides = {LAST, 1}},
        {.dtype = WB_F32, .buffer = 1, .ndim = 2, .dims = {rows, LAST}, .strides = {0, 1}}};
    const wb__step step = {.kind = WB__STEP_FUSED,
                           .fused = {.n_instr = 3, .n_views = 2, .n_segments = 1, .instr = in,
                                     .spaces = &space, .views = views}};
    static const struct { int kind; int launches; } cases[] = {
        {WB__STORE, 2}, {WB__REDUCE_ROWS, 3}, {WB__REDUCE_ALL, 3}};
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        wb__gpu_work *work = NULL;
        in[0] = (wb__instr){.kind = WB__LOAD, .level = WB__LEVEL_FULL, .dtype = WB_BF16, .a = -1,
                            .b = -1, .c = -1};
        in[1] = (wb__instr){.kind = WB__ELEMENTWISE_OP, .op = WB__OP_exp, .level = WB__LEVEL_FULL,
                            .dtype = WB_F32, .b = -1, .c = -1};
        in[2] = (wb__instr){.kind = (uint8_t)cases[i].kind, .op = WB__OP_sum, .a = 1, .b = -1,
                            .c = -1, .level = WB__LEVEL_FULL, .dtype = WB_F32,
                            .arg = cases[i].kind == WB__STORE ? 0 : 1};
        if (__real_wb__gpu_step(&any_gpu, &step, &work)) fail_msg("%s", wb_error());
        assert_int_equal(work->n, cases[i].launches);
        for (int l = 0; l < work->n; l++) {
            const uint32_t *g = work->launch[l].groups;
            assert_true(g[0] <= INT32_MAX && g[1] <= UINT16_MAX && g[2] <= UINT16_MAX);
        }
        wb__gpu_work_free(work);
    }
}

/* The n-th allocation fails, for each n: this is an error, and nothing leaks. */
TEST(no_memory)
{
    static hand h;
    begin(&h, 700, 33);
    const int x = load(&h, WB_F32, 33, 1);
    const int sum = reduction_of(&h, WB__REDUCE_COLUMNS, WB__OP_sum, x, WB__REG_F32, -1);
    const int d = op_of(&h, WB__OP_sub, x, sum, -1);
    reduction_of(&h, WB__REDUCE_ROWS, WB__OP_max, d, WB__REG_F32, view_of(&h, WB_F32, 0, 1));
    store(&h, d, WB_F32, 33, 1);
    store(&h, sum, WB_F32, 1, 0);
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = h.f};
    int n = 0, e = 1;
    while (e && ++n < 10000) {
        wb__gpu_work *work = NULL;
        wb__alloc_fail_at(n);
        e = __real_wb__gpu_step(&any_gpu, &step, &work);
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
    return run_cases(open_device, close_device);
}
