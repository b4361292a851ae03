/* The functions that tile programs are made of, one by one, for each instruction set: elementwise
 * functions against formulas in double, casts, loads and stores against wb__convert, reductions
 * with NaN and of many small numbers, random numbers, empty spaces; and gather and scatter_add. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile/tile.h"
#include "base/numbers/philox.h"

typedef double (*ref_f1)(double);
ref_f1 ref_unary(const char *name); /* reference.c */

#include <float.h>

enum { MANY = 1000 };

static uint64_t drawn = 7;
static uint32_t draw(void)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(drawn >> 32);
}

static const wb__tile_table *tables[3];
static int n_tables;

static int find_tables(void **state)
{
    static const char *names[] = {"portable", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        setenv("WEBER_ISA", names[i], 1);
        const wb__tile_table *t = wb__tile_table_here();
        if (!strcmp(t->isa, names[i])) tables[n_tables++] = t;
    }
    unsetenv("WEBER_ISA");
    return 0;
}

/* ---- references ------------------------------------------------------------------------------ */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double gelu_u(double x) { return sqrt(8 / acos(-1)) * (x + 0.044715 * x * x * x); }

static double real_row(wb__op op, double x, double y)
{
    switch (op) {
    case WB__OP_neg: return -x;
    case WB__OP_abs: return fabs(x);
    case WB__OP_sign: return (x > 0) - (x < 0);
    case WB__OP_square: return x * x;
    case WB__OP_sqrt: return sqrt(x);
    case WB__OP_rsqrt: return 1 / sqrt(x);
    case WB__OP_reciprocal: return 1 / x;
    case WB__OP_exp: return exp(x);
    case WB__OP_log: return log(x);
    case WB__OP_log1p: return log1p(x);
    case WB__OP_sin: return sin(x);
    case WB__OP_cos: return cos(x);
    case WB__OP_erf: return erf(x);
    case WB__OP_floor: return floor(x);
    case WB__OP_relu: return x > 0 ? x : 0;
    case WB__OP_leakyrelu: return x > 0 ? x : 0.01 * x;
    case WB__OP_elu: return x > 0 ? x : expm1(x);
    case WB__OP_sigmoid: return sigmoid(x);
    case WB__OP_logsigmoid: return -(x < 0 ? -x + log1p(exp(x)) : log1p(exp(-x)));
    case WB__OP_tanh: return tanh(x);
    case WB__OP_softplus: return x < 0 ? log1p(exp(x)) : x + log1p(exp(-x));
    case WB__OP_swish: return x * sigmoid(x);
    case WB__OP_gelu: return x * sigmoid(gelu_u(x));
    case WB__OP_gelu_slope: {
        const double s = sigmoid(gelu_u(x)), t = sigmoid(-gelu_u(x));
        return s + x * s * t * sqrt(8 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
    }
    case WB__OP_gelu_erf: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case WB__OP_add: return x + y;
    case WB__OP_sub: return x - y;
    case WB__OP_mul: return x * y;
    case WB__OP_div: return x / y;
    case WB__OP_pow: return pow(x, y);
    case WB__OP_maximum: return x > y ? x : y;
    case WB__OP_minimum: return x < y ? x : y;
    case WB__OP_eq: return x == y;
    case WB__OP_ne: return x != y;
    case WB__OP_lt: return x < y;
    case WB__OP_le: return x <= y;
    case WB__OP_gt: return x > y;
    case WB__OP_ge: return x >= y;
    case WB__OP_isfinite: return isfinite(x) != 0;
    case WB__OP_isnan: return isnan(x) != 0;
    default: {
        ref_f1 f = ref_unary(wb__ops[op].name);
        if (!f) fail_msg("no reference for %s", wb__ops[op].name);
        return f ? f(x) : 0;
    }
    }
}

/* The result modulo 2^64.  Its low bits are the result for narrower integers. */
static int64_t whole_row(wb__op op, int64_t x, int64_t y)
{
    switch (op) {
    case WB__OP_neg: return (int64_t)-(uint64_t)x;
    case WB__OP_abs: return x < 0 ? (int64_t)-(uint64_t)x : x;
    case WB__OP_sign: return (x > 0) - (x < 0);
    case WB__OP_square: return (int64_t)((uint64_t)x * (uint64_t)x);
    case WB__OP_add: return (int64_t)((uint64_t)x + (uint64_t)y);
    case WB__OP_sub: return (int64_t)((uint64_t)x - (uint64_t)y);
    case WB__OP_mul: return (int64_t)((uint64_t)x * (uint64_t)y);
    case WB__OP_div: return !y ? 0 : y == -1 ? (int64_t)-(uint64_t)x : x / y;
    case WB__OP_maximum: return x > y ? x : y;
    case WB__OP_minimum: return x < y ? x : y;
    case WB__OP_eq: return x == y;
    case WB__OP_ne: return x != y;
    case WB__OP_lt: return x < y;
    case WB__OP_le: return x <= y;
    case WB__OP_gt: return x > y;
    case WB__OP_ge: return x >= y;
    case WB__OP_and: return x && y;
    case WB__OP_or: return x || y;
    case WB__OP_not: return !x;
    default: fail_msg("no reference for %s", wb__ops[op].name); return 0;
    }
}

static const wb_dtype reg_dtype[WB__REGS] = {WB_F32, WB_F64, WB_I32, WB_I64};

static double get(const void *p, int64_t i, int reg)
{
    double d;
    wb__convert(&d, WB_F64, (const char *)p + i * wb__reg_size(reg), reg_dtype[reg], 1);
    return d;
}

static int64_t get_whole(const void *p, int64_t i, int reg)
{
    int64_t d;
    wb__convert(&d, WB_I64, (const char *)p + i * wb__reg_size(reg), reg_dtype[reg], 1);
    return d;
}

/* Random elements: magnitudes from 2^-5 to 2^4; integers from -20 to 20, some at the limits of the
 * type. */
static void fill(void *p, int reg, int64_t n, bool positive)
{
    for (int64_t i = 0; i < n; i++) {
        double x = ldexp((double)(draw() >> 8) / (1 << 24) + 0.5, (int)(draw() % 8) - 4);
        if (!positive && draw() & 1) x = -x;
        if (draw() % 8 == 0) x = rint(x);
        if (positive && x == 0) x = 1;
        int64_t w = (int64_t)(draw() % 41) - 20;
        if (draw() % 16 == 0)
            w = (reg == WB__REG_I32 ? INT32_MIN : INT64_MIN) + (int)(draw() % 2);
        if (draw() % 16 == 0) w = reg == WB__REG_I32 ? INT32_MAX : INT64_MAX;
        if (reg == WB__REG_F32) ((float *)p)[i] = (float)x;
        if (reg == WB__REG_F64) ((double *)p)[i] = x;
        if (reg == WB__REG_I32) ((int32_t *)p)[i] = (int32_t)w;
        if (reg == WB__REG_I64) ((int64_t *)p)[i] = w;
    }
}

static void check_row(const wb__tile_table *t, wb__op op, int reg, int shape, int64_t n)
{
    double x[MANY], y[MANY], d[MANY];
    const bool test = wb__ops[op].class == WB__COMPARE || wb__ops[op].class == WB__TEST;
    const bool real = reg <= WB__REG_F64;
    const bool positive = op == WB__OP_sqrt || op == WB__OP_rsqrt || op == WB__OP_log
        || op == WB__OP_log1p || op == WB__OP_pow;
    const int out = test ? WB__REG_I32 : reg;
    wb__elementwise_fn *f = t->row[op][reg][shape];
    fill(x, reg, n, positive);
    fill(y, reg, n, false);
    double x_was[MANY];
    memcpy(x_was, x, sizeof x);
    const bool in_place = shape != WB__SVV && wb__reg_size(out) == wb__reg_size(reg) && draw() & 1;
    void *to = in_place ? x : d;
    f(to, x, y, NULL, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t ix = shape == WB__SVV ? 0 : i, iy = shape == WB__VSV ? 0 : i;
        if (real) {
            const double want = real_row(op, get(x_was, ix, reg), get(y, iy, reg));
            const double got = get(to, i, out), bound = reg == WB__REG_F32 ? 4e-7 : 1e-14;
            const bool gelu = op == WB__OP_gelu || op == WB__OP_gelu_slope || op == WB__OP_gelu_erf;
            const double least = gelu ? 1 : 1e-30;
            if (want == got || (isnan(want) && isnan(got))) continue;
            if (!test && fabs(got - want) <= fmax(fabs(want), least) * bound) continue;
            fail_msg("%s %s f%d (%.9g, %.9g): %.9g, not %.9g", t->isa, wb__ops[op].name,
                     reg ? 64 : 32, get(x_was, ix, reg),
                     get(y, iy, reg), got, want);
        } else {
            int64_t want = whole_row(op, get_whole(x_was, ix, reg), get_whole(y, iy, reg));
            if (out == WB__REG_I32) want = (int32_t)want;
            if (want != get_whole(to, i, out))
                fail_msg("%s %s i%d (%lld, %lld)", t->isa, wb__ops[op].name,
                         reg == WB__REG_I32 ? 32 : 64,
                         (long long)get_whole(x_was, ix, reg), (long long)get_whole(y, iy, reg));
        }
    }
}

TEST(rows)
{
    static const int64_t lengths[] = {1, 2, 7, 16, 33, 100, MANY};
    int checked = 0;
    for (int i = 0; i < n_tables; i++)
        for (int op = 0; op < WB__OP_COUNT; op++)
            for (int reg = 0; reg < WB__REGS; reg++)
                for (int shape = 0; shape < WB__SHAPES; shape++)
                    for (size_t l = 0; l < WB__COUNT(lengths); l++) {
                        if (!tables[i]->row[op][reg][shape] || op == WB__OP_where) continue;
                        check_row(tables[i], (wb__op)op, reg, shape, lengths[l]);
                        checked++;
                    }
    for (int op = 0; op < WB__OP_COUNT; op++)
        if (wb__is_elementwise((wb__op)op) && op != WB__OP_NONE && op != WB__OP_cast
            && !tables[0]->row[op][WB__REG_I32][0])
            assert_int_equal(wb__ops[op].accepts, WB__FLOATS);
    assert_true(checked > 1000);
    for (int i = 0; i < n_tables; i++) {                    /* sin and cos of large arguments */
        float x[4] = {1e8f, -3e20f, 12345.678f, 1.5f}, s[4], c[4];
        tables[i]->far[0](s, x, NULL, NULL, 4);
        tables[i]->far[1](c, x, NULL, NULL, 4);
        for (int j = 0; j < 4; j++)
            assert_true(fabs(s[j] - sin(x[j])) < 1e-6 && fabs(c[j] - cos(x[j])) < 1e-6);
        float nan[2] = {NAN, 1}, one[2] = {1, NAN}, d[2];
        for (int k = 0; k < 2; k++) {
            const wb__op op = k ? WB__OP_maximum : WB__OP_minimum;
            tables[i]->row[op][WB__REG_F32][0](d, nan, one, NULL, 2);
            assert_true(isnan(d[0]) && isnan(d[1]));
        }
        static const wb__op keeps_nan[] = {
            WB__OP_relu, WB__OP_leakyrelu, WB__OP_elu, WB__OP_sigmoid, WB__OP_tanh, WB__OP_swish,
            WB__OP_gelu, WB__OP_gelu_slope, WB__OP_softplus, WB__OP_logsigmoid, WB__OP_exp,
            WB__OP_erf, WB__OP_sign, WB__OP_floor,
        };
        for (size_t k = 0; k < WB__COUNT(keeps_nan); k++) {
            tables[i]->row[keeps_nan[k]][WB__REG_F32][0](d, nan, NULL, NULL, 1);
            assert_true(isnan(d[0]));
        }
    }
}

/* A pair gives the bits of its two operations, in each form and in place of any operand. */
TEST(pairs)
{
    static const wb__op op[] = {WB__OP_add, WB__OP_sub, WB__OP_mul};
    float in[3][70], w[70], want[70], got[3][70];
    const int n_pairs = WB__PAIR_FIRST * WB__PAIR_SECOND * WB__PAIR_FORMS;
    for (int test = 0; test < n_tables * n_pairs; test++) {
        const int form = test % WB__PAIR_FORMS, second = test / WB__PAIR_FORMS % WB__PAIR_SECOND;
        const int first = test / (WB__PAIR_FORMS * WB__PAIR_SECOND) % WB__PAIR_FIRST;
        const wb__tile_table *t = tables[test / n_pairs];
        const int64_t n = 1 + draw() % 70;
        const bool b_is_one = form & 1, c_is_one = form & 2, reversed = second == WB__PAIR_RSUB;
        for (int k = 0; k < 3; k++) fill(in[k], WB__REG_F32, 70, false);
        t->row[op[first]][WB__REG_F32][b_is_one ? WB__VSV : WB__VVV](w, in[0], in[1], NULL, n);
        t->row[reversed ? WB__OP_sub : op[second]][WB__REG_F32]
              [!c_is_one ? WB__VVV : reversed ? WB__SVV : WB__VSV](
            want, reversed ? in[2] : w, reversed ? w : in[2], NULL, n);
        for (int place = 0; place < 3; place++) {
            if ((place == 1 && b_is_one) || (place == 2 && c_is_one)) continue;
            memcpy(got, in, sizeof got);
            t->pair[first][second][form](got[place], got[0], got[1], got[2], n);
            if (memcmp(got[place], want, (size_t)n * sizeof *want))
                fail_msg("%s: pair %d, %d, form %d, in place of operand %d", t->isa, first, second,
                         form, place);
        }
    }
}

/* ---- conversion ------------------------------------------------------------------------------ */

TEST(casts)
{
    static const double hard[] = {
        0, -0.0, 0.5, -0.5, 1.5, 127, 127.5, 128, -128, -129, 255, 256, 300, -1, 65504, 65519.99,
        65520, 1e9, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 4e9, 9.2e18, 9.3e18,
        -9.3e18, 1e30, 1e300, 1e-40, 1e-300, 3e-8, 5.96e-8, 6.1e-5, 1.00048828125,
        1.000488281250001, 1.00048828124999, 1.00390625, 1.003906250001, NAN, INFINITY,
        9007199254740993.0, 4503599627370497.5, 7e-46, 1.4e-45, 1e-50, 0x1p-1074,
    };                                          /* each is tested with both signs */
    enum { HARD = WB__COUNT(hard), N = 2 * HARD + 400 };
    for (int i = 0; i < n_tables; i++)
        for (int from = 0; from < WB__REGS; from++)
            for (int to = WB_F32; to < WB_DTYPE_COUNT; to++) {
                double real[N], a[N], d[N], want[N];
                int64_t integer[N];
                const int reg = (int)wb__reg_of((wb_dtype)to);
                for (int j = 0; j < N; j++) {
                    const double any = ldexp((double)draw(), (int)(draw() % 60) - 50);
                    const double size = j < 2 * HARD ? hard[j % HARD] : any;
                    const bool negative = j < 2 * HARD ? j >= HARD : draw() & 1;
                    real[j] = negative ? -size : size;
                    integer[j] = (int64_t)((uint64_t)draw() << 32 | draw()) >> (draw() % 64);
                }
                const bool floats = from <= WB__REG_F64;
                wb__convert(a, reg_dtype[from], floats ? (void *)real : (void *)integer,
                            floats ? WB_F64 : WB_I64, N);
                tables[i]->cast[from][to](d, a, NULL, NULL, N);
                char memory[N * 8];
                wb__convert(memory, (wb_dtype)to, a, reg_dtype[from], N);
                wb__convert(want, reg_dtype[reg], memory, (wb_dtype)to, N);
                for (int j = 0; j < N; j++) {
                    const double got = get(d, j, reg), must = get(want, j, reg);
                    const bool same = got == must && !signbit(got) == !signbit(must);
                    if (same || (isnan(got) && isnan(must))) continue;
                    fail_msg("%s: %.17g from %s to %s: %.17g, not %.17g", tables[i]->isa,
                             get(a, j, from), wb_dtype_name(reg_dtype[from]),
                             wb_dtype_name((wb_dtype)to), got, must);
                }
            }
}

TEST(halves)
{
    for (int i = 0; i < n_tables; i++) {
        static uint16_t h[65536], back[65536];
        static float f[65536];
        for (int j = 0; j < 65536; j++) h[j] = (uint16_t)j;
        for (int k = 0; k < 2; k++) {
            const wb_dtype t = k ? WB_BF16 : WB_F16;
            for (int round = 0; round < 20; round++) {
                if (!round) tables[i]->load[t](f, 65536, h, 1, 65536, 0, 1);
                else for (int j = 0; j < 65536; j++) { uint32_t u = draw(); memcpy(&f[j], &u, 4); }
                tables[i]->store[t](f, 65536, back, 1, 65536, 0, 1);
                for (int j = 0; j < 65536; j++) {
                    const float want = k ? wb__bf16_to_f32(h[j]) : wb__f16_to_f32(h[j]);
                    const uint16_t must = k ? wb__f32_to_bf16(f[j]) : wb__f32_to_f16(f[j]);
                    if (!round && !(want == f[j] || (isnan(want) && isnan(f[j]))))
                        fail_msg("%s: load of %x", wb_dtype_name(t), j);
                    if (back[j] != must && !isnan(f[j]))
                        fail_msg("%s: store of %.9g", wb_dtype_name(t), f[j]);
                }
            }
        }
    }
}

/* ---- whole kernels --------------------------------------------------------------------------- */

static void run(const wb__fused *f, void *const *buffers, const wb__number *numbers)
{
    wb__cpu_kernel *k;
    assert_int_equal(wb__cpu_fused(f, &k), 0);
    void *workspace = NULL;
    assert_int_equal(posix_memalign(&workspace, 64, k->base.workspace + 64), 0);
    assert_int_equal(k->launch(k, buffers, workspace, numbers), 0);
    k->destroy(k);
    free(workspace);
}

/* The reduction op (sum, min, max or argmax) of n elements, by the instruction `kind`: a reduction
 * of columns, of rows or of all elements. */
static double reduction_of(wb__instr_kind kind, wb__op op, int64_t n, const float *x)
{
    float result = -1;
    const bool cols = kind == WB__REDUCE_COLUMNS;
    const wb__space space = {.ndim = 1, .row_dims = !cols, .col_dims = cols, .dims = {n}};
    const wb__view views[2] = {{.dtype = WB_F32, .ndim = 1, .dims = {n}, .strides = {1}},
                               {.dtype = WB_F32, .buffer = 1, .ndim = 1, .dims = {n}}};
    const uint8_t reg = op == WB__OP_argmax ? WB__REG_I32 : WB__REG_F32;
    const wb__instr instr[3] = {
        {.kind = WB__LOAD, .reg = WB__REG_F32, .dtype = WB_F32, .a = -1, .b = -1, .c = -1},
        {.kind = (uint8_t)kind, .op = (uint16_t)op, .reg = reg, .b = -1, .c = -1, .arg = 1},
        {.kind = WB__STORE, .reg = reg, .dtype = WB_F32, .a = 1, .b = -1, .c = -1, .arg = 1},
    };
    void *buffers[2] = {(void *)x, &result};
    run(&(wb__fused){.n_instr = cols ? 3 : 2, .n_views = 2, .n_segments = 1, .instr = instr,
                     .spaces = &space, .views = views},
        buffers, NULL);
    return result;
}

TEST(reductions)
{
    static const wb__instr_kind kinds[] = {WB__REDUCE_COLUMNS, WB__REDUCE_ROWS, WB__REDUCE_ALL};
    static float x[3000000];
    for (int k = 0; k < 3; k++)
        for (int threads = 1; threads <= 3; threads++) {
            wb__set_threads(threads);
            for (int64_t n = 1; n < 3000000; n = n * 3 + 5) {
                for (int64_t i = 0; i < n; i++) x[i] = 0.1f;
                for (int isa = 0; isa < n_tables; isa++) {
                    setenv("WEBER_ISA", tables[isa]->isa, 1);
                    const double sum = reduction_of(kinds[k], WB__OP_sum, n, x);
                    if (fabs(sum / (0.1f * (double)n) - 1) > 6e-7)
                        fail_msg("%s: reduction %d of %lld: %.9g", tables[isa]->isa, k,
                                 (long long)n, sum);
                }
                unsetenv("WEBER_ISA");
                const int64_t at = n * 2 / 3, last = n - 1;
                x[at] = x[last] = 7;
                assert_true(reduction_of(kinds[k], WB__OP_max, n, x) == 7
                            && reduction_of(kinds[k], WB__OP_argmax, n, x) == (float)at);
                x[at] = -7;
                assert_true(reduction_of(kinds[k], WB__OP_min, n, x) == -7);
                x[at] = NAN;
                assert_true(isnan(reduction_of(kinds[k], WB__OP_max, n, x))
                            && isnan(reduction_of(kinds[k], WB__OP_min, n, x)));
                assert_true(reduction_of(kinds[k], WB__OP_argmax, n, x) == (float)at
                            && isnan(reduction_of(kinds[k], WB__OP_sum, n, x)));
                for (int64_t i = 0; i < n; i++) x[i] = -INFINITY;
                assert_true(reduction_of(kinds[k], WB__OP_max, n, x) == -INFINITY
                            && reduction_of(kinds[k], WB__OP_argmax, n, x) == 0);
            }
            assert_true(reduction_of(kinds[k], WB__OP_sum, 0, x) == 0
                        && reduction_of(kinds[k], WB__OP_max, 0, x) == -INFINITY);
            assert_true(reduction_of(kinds[k], WB__OP_argmax, 0, x) == 0);
        }
}

/* x <- exp(x) is stored between the two operations of the pair 2 x - w, which read the old x. */
TEST(a_store_within_a_pair)
{
    enum { N = 3000 };
    static float x[N], w[N], y[N];
    const wb__space space = {.ndim = 1, .col_dims = 1, .dims = {N}};
    wb__view views[3];
    for (int i = 0; i < 3; i++)
        views[i] = (wb__view){.dtype = WB_F32, .buffer = i, .ndim = 1, .dims = {N}, .strides = {1}};
    wb__instr instr[] = {
        {.kind = WB__LOAD, .arg = 0},                               /* 0: x */
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_add, .a = 0, .b = 0},  /* 1: 2 x */
        {.kind = WB__LOAD, .arg = 1},                               /* 2: w */
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_exp, .a = 0},     /* 3 */
        {.kind = WB__STORE, .a = 3, .arg = 0},
        {.kind = WB__ELEMENTWISE_OP, .op = WB__OP_sub, .a = 1, .b = 2},  /* 5: 2 x - w */
        {.kind = WB__STORE, .a = 5, .arg = 2},
    };
    for (size_t i = 0; i < WB__COUNT(instr); i++) {
        wb__instr *in = &instr[i];
        in->reg = WB__REG_F32, in->dtype = WB_F32, in->level = WB__LEVEL_FULL, in->c = -1;
        if (in->kind == WB__LOAD) in->a = -1;
        if (!in->b && i != 1) in->b = -1;
    }
    for (int i = 0; i < N; i++) x[i] = (float)(i % 7), w[i] = (float)(i % 5);
    run(&(wb__fused){.n_instr = WB__COUNT(instr), .n_views = 3, .n_segments = 1, .instr = instr,
                     .spaces = &space, .views = views},
        (void *[]){x, w, y}, NULL);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == (float)(2 * (i % 7) - i % 5));
        assert_true(fabs(x[i] / exp(i % 7) - 1) < 1e-6);
    }
}

TEST(draws)
{
    enum { R = 37, C = 53 };
    static float got[2][R * C];
    const wb__number numbers[2] = {{.u = 0x123456789abcdef}, {.u = 0xfffffffff0}};
    for (int transposed = 0; transposed < 2; transposed++) {
        const int64_t sr = transposed ? 1 : C, sc = transposed ? R : 1;
        const wb__space space = {.ndim = 2, .row_dims = 2, .dims = {R, C}};
        const wb__view views[3] = {
            {.dtype = WB_I64, .buffer = -1, .offset = 3, .ndim = 2, .dims = {R, C},
             .strides = {sr, sc}},
            {.dtype = WB_F32, .ndim = 2, .dims = {R, C}, .strides = {C, 1}},
            {.dtype = WB_F32, .buffer = 1, .ndim = 2, .dims = {R, C}, .strides = {C, 1}},
        };
        const wb__instr instr[4] = {
            {.kind = WB__UNIFORM, .reg = WB__REG_F32, .a = -1, .b = -1, .c = 0},
            {.kind = WB__GAUSSIAN, .reg = WB__REG_F32, .a = -1, .b = -1, .c = 0},
            {.kind = WB__STORE, .reg = WB__REG_F32, .a = 0, .b = -1, .c = -1, .arg = 1},
            {.kind = WB__STORE, .reg = WB__REG_F32, .a = 1, .b = -1, .c = -1, .arg = 2},
        };
        const uint64_t key = numbers[0].u, counter = numbers[1].u;
        void *buffers[2] = {got[0], got[1]};
        for (int isa = 0; isa < n_tables; isa++) {
            setenv("WEBER_ISA", tables[isa]->isa, 1);
            run(&(wb__fused){.n_instr = 4, .n_views = 3, .n_segments = 1, .instr = instr,
                             .spaces = &space, .views = views}, buffers,
                numbers);
            for (int r = 0; r < R; r++)
                for (int c = 0; c < C; c++) {
                    const uint64_t e = (uint64_t)(3 + r * sr + c * sc);
                    double z[2];
                    const uint32_t w = wb__philox_at(key, counter, e);
                    wb__normal_pair(wb__philox_at(key, counter, e & ~UINT64_C(1)),
                                    wb__philox_at(key, counter, e | 1), z);
                    assert_true(got[0][r * C + c] == wb__uniform_f32(w));
                    assert_true(fabs(got[1][r * C + c] - z[e & 1]) <= fabs(z[e & 1]) * 1.2e-7);
                }
        }
        unsetenv("WEBER_ISA");
    }
}

TEST(by_index)
{
    enum { N = 50, INNER = 300, COUNT = 400 };
    static float table[N * INNER * 2], rows_[COUNT * INNER];
    static float want[COUNT * INNER], got[COUNT * INNER];
    int32_t index[COUNT];
    for (int i = 0; i < COUNT; i++) index[i] = (int32_t)(draw() % (N + 4)) - 2;
    for (int i = 0; i < N * INNER * 2; i++) table[i] = (float)(draw() % 100);
    for (int i = 0; i < COUNT * INNER; i++) rows_[i] = (float)(draw() % 100);
    wb__step gather = {.kind = WB__STEP_GATHER, .n_views = 3,
                       .views = {{.dtype = WB_F32, .ndim = 2, .dims = {N, INNER},
                                  .strides = {2 * INNER, 1}},
                                 {.dtype = WB_I32, .buffer = 1, .ndim = 1, .dims = {COUNT},
                                  .strides = {1}},
                                 {.dtype = WB_F32, .buffer = 2, .ndim = 2, .dims = {COUNT, INNER},
                                  .strides = {INNER, 1}}}};
    wb__step scatter = {.kind = WB__STEP_SCATTER_ADD, .n_views = 3,
                        .views = {{.dtype = WB_I32, .ndim = 1, .dims = {COUNT}, .strides = {1}},
                                  {.dtype = WB_F32, .buffer = 1, .ndim = 2,
                                   .dims = {COUNT, INNER}, .strides = {INNER, 1}},
                                  {.dtype = WB_F32, .buffer = 2, .ndim = 2, .dims = {N, INNER},
                                   .strides = {INNER, 1}}}};
    for (int threads = 1; threads <= 3; threads++) {
        wb__cpu_kernel *k;
        wb__set_threads(threads);
        assert_int_equal(wb__cpu_rows(&gather, &k), 0);
        k->launch(k, (void *[]){table, index, got}, NULL, NULL);
        k->destroy(k);
        for (int i = 0; i < COUNT; i++)
            for (int j = 0; j < INNER; j++) {
                const bool inside = index[i] >= 0 && index[i] < N;
                const float must = inside ? table[index[i] * 2 * INNER + j] : 0;
                assert_true(got[i * INNER + j] == must);
            }
        assert_int_equal(wb__cpu_rows(&scatter, &k), 0);
        k->launch(k, (void *[]){index, rows_, got}, NULL, NULL);
        k->destroy(k);
        memset(want, 0, sizeof want);
        for (int i = 0; i < COUNT; i++)
            for (int j = 0; j < INNER && index[i] >= 0 && index[i] < N; j++)
                want[index[i] * INNER + j] += rows_[i * INNER + j];
        assert_memory_equal(got, want, N * INNER * sizeof(float));
    }
}

int main(void) { return run_cases(find_tables, NULL); }
