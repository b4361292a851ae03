/* Kernel texts of fused programs, compared with the CPU: the elementwise rows of ops.def, dtypes,
 * random draws. */
#include "test.h"

#include "gpu_fused.h"

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

/* Results in floats may differ by some units in the last place from the CPU's, which
 * tests/base/scalar.c compares with libm; other results are equal. */
static void check_row(const hand *h, int view, int64_t i, const void *cpu, const void *result)
{
    const wb__op op = op_of_view[view];
    const wb_dtype t = h->views[view].dtype;
    if (t != WB_F32 && t != WB_F64) {
        same_bits(h, view, i, cpu, result);
        return;
    }
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, result, t, 1);
    const double ulp = t == WB_F32 ? 0x1p-23 : 0x1p-52;
    const double units = op == WB__OP_pow ? 16 : 6;
    /* functions with inaccurate zeros have an absolute tolerance */
    const bool crosses = op == WB__OP_gelu || op == WB__OP_gelu_slope || op == WB__OP_gelu_erf ||
                         op == WB__OP_sin || op == WB__OP_cos;
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

TEST(rows)
{
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
        for (int i = 0; i < 200 && reg <= WB__REG_F64; i++) {       /* pairs of hard numbers */
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

TEST(casts)
{
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

/* Loads all 16-bit floats, stores f32 and f64 of all magnitudes as 16-bit floats, and sums 16-bit
 * floats. */
TEST(halves)
{
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
        if (i % 4 == 0) bits = (bits & 0x8fffffff) | 0x30000000;    /* near f16's least */
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

/* ---- draws, numbers, indices ----------------------------------------------------------------- */

static void check_draw(const hand *h, int view, int64_t i, const void *cpu, const void *result)
{
    const wb_dtype t = h->views[view].dtype;
    double a, b;
    wb__convert(&a, WB_F64, cpu, t, 1);
    wb__convert(&b, WB_F64, result, t, 1);
    if (op_of_view[view] != WB__OP_gaussian) same_bits(h, view, i, cpu, result);
    else if (!close_to(b, a, t == WB_F32 ? 4 * 0x1p-23 : 1e-13, 1e-300))
        fail_msg("normal %lld: %.9g, not %.9g", (long long)i, b, a);
}

static void draw_numbers(bool far, bool also_turned)
{
    enum { R = 370, C = 530 };
    static const wb__number numbers[8] = {{.u = 0x123456789abcdef}, {.u = 0xfffffffff0},
                                          {.f = 0.1}, {.f = -7}, {.f = 3e9}, {.f = -5e11}};
    static hand h;
    begin(&h, R, C);
    for (int turned = 0; turned <= also_turned; turned++) {
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

TEST(draws)
{
    if (no_device()) skip();
    draw_numbers(false, true);
    draw_numbers(true, true);
    draw_numbers(false, false);                 /* by vectors */
}

int main(void) { return run_cases(open_device, close_device); }
