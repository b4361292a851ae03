/* The CPU's library operations against plain loops in double precision, over drawn shapes: odd, empty, strided,
 * broadcast, grouped, dilated, padded on one side, in four dtypes, with oneDNN and without, on 1 and 2 threads.
 *
 * Tolerances: sums of f32 products within 8 * 2^-23 of the sum of their magnitudes (f64: 8 * 2^-52), then half
 * a unit of the dtype that is stored: 2^-11 for f16, 2^-8 for bf16.  Elements between strides must stay
 * as they were.
 *
 * Not here: speed (bench/cpu_lib_bench.c).  Next: backend/cpu/lib.h. */
#include "backend/cpu/lib.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Drawing. */

static uint64_t state;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int64_t between(int64_t low, int64_t high) { return low + draw() % (uint64_t)(high - low + 1); }
static bool chance(int one_in) { return draw() % (uint32_t)one_in == 0; }
static double value(void) { return (double)(draw() % 2001) / 1000 - 1; }

static const wb_dtype dtypes[] = { WB_F32, WB_F32, WB_F64, WB_F16, WB_BF16 };
static wb_dtype draw_dtype(void) { return dtypes[draw() % WB__COUNT(dtypes)]; }

/* Buffers: what the operation sees, and the same in double. */

typedef struct {
    wb_dtype type;
    int64_t n;
    void *data;                         /* 64 guard elements on either side */
    double *real;
} buffer;

enum { GUARD = 64 };
static const double MARK = 0.4375;      /* exact in every dtype; stands where nothing may be written */

static double element(const void *data, wb_dtype type, int64_t i)
{
    double v;
    if (type == WB_F64) return ((const double *)data)[i];
    wb__convert(&v, WB_F64, (const char *)data + (size_t)i * wb__dtype_size(type), type, 1);
    return v;
}

static buffer make(wb_dtype type, int64_t n, bool random)
{
    buffer b = { type, n, NULL, malloc((size_t)(n + 1) * sizeof(double)) };
    const size_t size = wb__dtype_size(type);
    char *all = wb__alloc_aligned((size_t)(n + 2 * GUARD) * size);
    assert_non_null(all);
    b.data = all + GUARD * size;
    for (int64_t i = -GUARD; i < n + GUARD; i++) {
        double v = random && i >= 0 && i < n ? value() : MARK;
        wb__convert((char *)b.data + i * (int64_t)size, type, &v, WB_F64, 1);
        if (i >= 0 && i < n) b.real[i] = element(b.data, type, i);
    }
    return b;
}

static void drop(buffer *b)
{
    wb__free((char *)b->data - GUARD * wb__dtype_size(b->type));
    free(b->real);
}

static void check_guards(const buffer *b)
{
    for (int64_t i = 1; i <= GUARD; i++) {
        assert_true(element(b->data, b->type, -i) == MARK);
        assert_true(element(b->data, b->type, b->n + i - 1) == MARK);
    }
}

static double unit(wb_dtype t) { return t == WB_F64 ? ldexp(1, -52) : ldexp(1, -23); }
static double stored(wb_dtype t) { return t == WB_F16 ? ldexp(1, -11) : t == WB_BF16 ? ldexp(1, -8) : 0; }

/* b[i] against want, where the terms summed have this total magnitude */
static void check(const buffer *b, int64_t i, double want, double magnitude, const char *what)
{
    const double got = element(b->data, b->type, i);
    const double allowed = 8 * unit(b->type) * (magnitude + 1) + stored(b->type) * fabs(want)
                         + (b->type == WB_F16 ? 3e-8 : 0);
    if (!(fabs(got - want) <= allowed) && !(isnan(got) && isnan(want))) {
        print_error("%s: element %lld is %.9g, wanted %.9g within %.3g\n", what, (long long)i, got, want,
                    allowed);
        fail();
    }
}

static double activate(double x, wb__epilogue act)
{
    return act == WB__EPI_RELU ? (x < 0 ? 0 : x) : act == WB__EPI_TANH ? tanh(x)
         : act == WB__EPI_SIGMOID ? 1 / (1 + exp(-x)) : x;
}

static void run(wb__cpu_op *op, void *const *buffers)
{
    char *workspace = wb__alloc_aligned(op->workspace + 64);
    assert_non_null(workspace);
    memset(workspace, 0xff, op->workspace + 64);                /* NaN: nothing may be taken for zero */
    for (int repeat = 0; repeat < 2; repeat++) op->run(op, buffers, workspace);
    for (int i = 0; i < 64; i++) assert_int_equal((unsigned char)workspace[op->workspace + i], 0xff);
    wb__free(workspace);
    assert_non_null(op->impl);
    op->destroy(op);
}

/* Matrix products. */

static int64_t draw_size(void)
{
    if (chance(25)) return 0;
    return chance(3) ? between(1, 4) : chance(6) ? between(60, 400) : between(1, 70);
}

/* Strides of a [b0, b1, rows, columns] operand; returns how many elements it spans. */
static int64_t draw_strides(const int64_t batch[2], int64_t rows, int64_t columns, bool may_broadcast,
                            int64_t b[2], int64_t s[2])
{
    const bool turned = chance(2);
    const int64_t inner = turned ? rows : columns, outer = turned ? columns : rows;
    const int64_t step = chance(8) ? 2 : 1, row = WB__MAX(inner, 1) * step + (chance(4) ? between(1, 9) : 0);
    s[turned] = row;
    s[!turned] = step;
    int64_t size = WB__MAX(outer, 1) * row;
    for (int i = 1; i >= 0; i--) {
        if (may_broadcast && chance(3)) b[i] = 0;
        else {
            b[i] = size + (chance(6) ? between(1, 5) : 0);
            size = b[i] * WB__MAX(batch[i], 1);
        }
    }
    return size;
}

static void one_matmul(wb__matmul_desc d)
{
    int64_t na = draw_strides(d.batch, d.m, d.k, true, d.a_b, d.a_s);
    int64_t nb = draw_strides(d.batch, d.k, d.n, true, d.b_b, d.b_s);
    int64_t nc = draw_strides(d.batch, d.m, d.n, false, d.c_b, d.c_s);
    buffer a = make(d.dtype, na, true), b = make(d.dtype, nb, true), c = make(d.dtype, nc, false);
    buffer bias = make(d.dtype, d.n, true);
    wb__cpu_op *op;
    assert_int_equal(wb__cpu_matmul(&d, &op), 0);
    char what[200];
    snprintf(what, sizeof what, "matmul %s %lldx%lld of %lldx%lldx%lld a %lld,%lld b %lld,%lld c %lld,%lld %s",
             wb_dtype_name(d.dtype), (long long)d.batch[0], (long long)d.batch[1], (long long)d.m,
             (long long)d.n, (long long)d.k, (long long)d.a_s[0], (long long)d.a_s[1], (long long)d.b_s[0],
             (long long)d.b_s[1], (long long)d.c_s[0], (long long)d.c_s[1], op->impl);
    run(op, (void *[]){ a.data, b.data, c.data, d.has_bias ? bias.data : NULL });
    char *written = calloc((size_t)nc + 1, 1);
    for (int64_t x = 0; x < d.batch[0]; x++) for (int64_t y = 0; y < d.batch[1]; y++)
        for (int64_t i = 0; i < d.m; i++) for (int64_t j = 0; j < d.n; j++) {
            double sum = d.has_bias ? bias.real[j] : 0, magnitude = fabs(sum);
            for (int64_t p = 0; p < d.k; p++) {
                double t = a.real[x * d.a_b[0] + y * d.a_b[1] + i * d.a_s[0] + p * d.a_s[1]]
                         * b.real[x * d.b_b[0] + y * d.b_b[1] + p * d.b_s[0] + j * d.b_s[1]];
                sum += t;
                magnitude += fabs(t);
            }
            int64_t at = x * d.c_b[0] + y * d.c_b[1] + i * d.c_s[0] + j * d.c_s[1];
            written[at] = 1;
            check(&c, at, activate(sum, d.act), magnitude, what);
        }
    for (int64_t i = 0; i < nc; i++) if (!written[i]) assert_true(element(c.data, c.type, i) == MARK);
    check_guards(&c);
    free(written);
    drop(&a), drop(&b), drop(&c), drop(&bias);
}

static void test_matmul_drawn(void **unused)
{
    (void)unused;
    for (int i = 0; i < 400; i++) {
        state = (uint64_t)i * 77 + 5;
        draw();
        wb__matmul_desc d = { .dtype = draw_dtype(), .has_bias = chance(2),
                              .act = (wb__epilogue)(chance(2) ? 0 : draw() % 4) };
        d.batch[0] = chance(4) ? between(0, 3) : 1;
        d.batch[1] = chance(3) ? between(1, 5) : 1;
        d.m = draw_size(), d.n = draw_size(), d.k = draw_size();
        one_matmul(d);
    }
}

static void test_matmul_large(void **unused)
{
    (void)unused;
    static const int64_t shapes[][4] = { { 1, 64, 256, 784 }, { 1, 256, 784, 64 }, { 1, 1, 256, 784 },
        { 1, 256, 1, 784 }, { 8, 128, 128, 32 }, { 1, 130, 1100, 33 }, { 1, 33, 17, 1500 }, { 1, 64, 10, 256 },
        { 1, 64, 2, 3 }, { 1, 1, 1, 5000 } };
    for (int i = 0; i < 5 * (int)WB__COUNT(shapes); i++) {
        state = (uint64_t)i * 31 + 1;
        draw();
        const int64_t *s = shapes[i / 5];
        one_matmul((wb__matmul_desc){ .dtype = dtypes[i % 5], .batch = { s[0], 1 }, .m = s[1], .n = s[2],
                                      .k = s[3], .has_bias = chance(2), .act = chance(2) ? WB__EPI_RELU : 0 });
    }
}

/*REST*/
/* Everything four ways. */

static void ways(const char *onednn, int threads)
{
    setenv("WEBER_ONEDNN", onednn, 1);
    wb__set_threads(threads);
}

static int own_1(void **unused) { (void)unused; ways("0", 1); return 0; }
static int own_2(void **unused) { (void)unused; ways("0", 2); return 0; }
static int library_1(void **unused) { (void)unused; ways("1", 1); return 0; }
static int library_2(void **unused) { (void)unused; ways("1", 2); return 0; }

#define FOUR_WAYS(f)                                                                            \
    { #f ", own kernels, 1 thread", f, own_1, NULL, NULL },                                     \
    { #f ", own kernels, 2 threads", f, own_2, NULL, NULL },                                    \
    { #f ", oneDNN where built in, 1 thread", f, library_1, NULL, NULL },                       \
    { #f ", oneDNN where built in, 2 threads", f, library_2, NULL, NULL }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUR_WAYS(test_matmul_drawn), FOUR_WAYS(test_matmul_large),
    };
    return cmocka_run_group_tests_name("cpu_lib", tests, NULL, NULL);
}
