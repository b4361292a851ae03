/* The CPU's matrix products (backend/cpu/lib.h) against plain loops in double precision, over
 * random shapes: odd, empty, strided, in batches, in four dtypes, packed, with oneDNN and without,
 * on 1 to 8 threads. */
#include "cpu_operations.h"

#include <sys/mman.h>
#include <unistd.h>

static int64_t draw_size(void)
{
    if (chance(25)) return 0;
    return chance(3) ? between(1, 4) : chance(6) ? between(60, 400) : between(1, 70);
}

/* Strides of a [b0, b1, rows, columns] operand; returns how many elements it spans. */
static int64_t draw_strides(const int64_t batch[2], int64_t rows, int64_t columns,
                            bool may_broadcast, int64_t b[2], int64_t s[2])
{
    const bool transposed = chance(2);
    const int64_t inner = transposed ? rows : columns, outer = transposed ? columns : rows;
    const int64_t step = chance(8) ? 2 : 1,
                  row = WB__MAX(inner, 1) * step + (chance(4) ? between(1, 9) : 0);
    s[transposed] = row;
    s[!transposed] = step;
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

static void check_matmul(const wb__matmul_desc *d, const buffer *a, const buffer *b,
                         const buffer *c, const buffer *bias, const char *impl)
{
    char what[200];
    snprintf(what, sizeof what,
             "matmul %s %lldx%lld of %lldx%lldx%lld a %lld,%lld b %lld,%lld c %lld,%lld %s",
             wb_dtype_name(d->dtype), (long long)d->batch[0], (long long)d->batch[1],
             (long long)d->m, (long long)d->n, (long long)d->k, (long long)d->a_s[0],
             (long long)d->a_s[1], (long long)d->b_s[0], (long long)d->b_s[1],
             (long long)d->c_s[0], (long long)d->c_s[1], impl);
    char *written = calloc((size_t)c->n + 1, 1);
    /* operands that are rounded to bf16: an error of 2^-8 of each term instead of 8 units */
    const double coarse = d->dtype == WB_F32 && strstr(impl, " bf16") ? 0x1p12 : 1;
    for (int64_t x = 0; x < d->batch[0]; x++) for (int64_t y = 0; y < d->batch[1]; y++)
        for (int64_t i = 0; i < d->m; i++) for (int64_t j = 0; j < d->n; j++) {
            double sum = d->has_bias ? bias->real[j] : 0, magnitude = fabs(sum);
            for (int64_t p = 0; p < d->k; p++) {
                double t = a->real[x * d->a_b[0] + y * d->a_b[1] + i * d->a_s[0] + p * d->a_s[1]]
                         * b->real[x * d->b_b[0] + y * d->b_b[1] + p * d->b_s[0] + j * d->b_s[1]];
                sum += t;
                magnitude += fabs(t);
            }
            int64_t at = x * d->c_b[0] + y * d->c_b[1] + i * d->c_s[0] + j * d->c_s[1];
            written[at] = 1;
            check_rounded(c, at, row_value(d->act, sum), magnitude * coarse,
                          rounded_before(d->act, sum, what), what);
        }
    for (int64_t i = 0; i < c->n; i++)
        if (!written[i]) assert_true(element(c->data, c->type, i) == MARK);
    check_guards(c);
    free(written);
}

/* The same product with the packed form of B. */
static int packed_products;
static void packed_matmul(wb__matmul_desc d, const buffer *a, const buffer *b, const buffer *bias)
{
    const int64_t bytes = d.batch[0] * d.batch[1] == 1 ? wb__cpu_matmul_packed(&d) : 0;
    if (!bytes) return;
    buffer form = make(WB_F64, (bytes + 7) / 8, false), c = make(d.dtype, d.m * d.n, false);
    wb__cpu_op *op;
    assert_int_equal(wb__cpu_matmul_pack(&d, &op), 0);
    run(op, (void *[]){ b->data, form.data });
    check_guards(&form);
    d.packed = true;
    d.c_s[0] = d.n, d.c_s[1] = 1;
    assert_int_equal(wb__cpu_matmul(&d, &op), 0);
    run(op, (void *[]){ a->data, form.data, c.data, d.has_bias ? bias->data : NULL });
    check_matmul(&d, a, b, &c, bias, "packed");
    packed_products++;
    drop(&form), drop(&c);
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
    char impl[80];
    snprintf(impl, sizeof impl, "%s", op->impl);
    run(op, (void *[]){ a.data, b.data, c.data, d.has_bias ? bias.data : NULL });
    check_matmul(&d, &a, &b, &c, &bias, impl);
    packed_matmul(d, &a, &b, &bias);
    drop(&a), drop(&b), drop(&c), drop(&bias);
}

static void test_matmul_drawn(void **unused)
{
    for (int i = 0; i < 400; i += fewer()) {
        state = (uint64_t)i * 77 + 5;
        draw();
        wb__matmul_desc d = { .dtype = draw_dtype(), .has_bias = chance(2),
                              .act = draw_epilogue(), .round = chance(3) };
        d.batch[0] = chance(4) ? between(0, 3) : 1;
        d.batch[1] = chance(3) ? between(1, 5) : 1;
        d.m = draw_size(), d.n = draw_size(), d.k = draw_size();
        one_matmul(d);
    }
}

static void test_matmul_large(void **unused)
{
    static const int64_t shapes[][4] = { { 1, 64, 256, 784 }, { 1, 256, 784, 64 },
                                         { 1, 1, 256, 784 },  { 1, 256, 1, 784 },
                                         { 8, 128, 128, 32 }, { 1, 130, 1100, 33 },
                                         { 1, 33, 17, 1500 }, { 1, 64, 10, 256 },
                                         { 1, 64, 2, 3 },     { 1, 1, 1, 5000 },
                                         { 1, 9, 2100, 700 }, { 1, 2, 1008, 321 },
                                         { 1, 64, 49, 640 },   { 9, 65, 130, 66 },
                                         { 5, 120, 100, 90 }, { 3, 200, 64, 64 },
                                         { 1, 1, 400, 785 },   { 1, 128, 1030, 130 } };
    for (int i = 0; i < 5 * (int)WB__COUNT(shapes); i += fewer()) {
        state = (uint64_t)i * 31 + 1;
        draw();
        const int64_t *s = shapes[i / 5];
        one_matmul((wb__matmul_desc){ .dtype = dtypes[i % 5],
                                      .batch = { s[0], 1 },
                                      .m = s[1],
                                      .n = s[2],
                                      .k = s[3],
                                      .has_bias = chance(2),
                                      .round = i % 5 == 1,
                                      .act = draw_epilogue() });
    }
    assert_true(packed_products > 0);
}

/* A product of our own gives the same bits for each number of threads: in each dtype, alone and in
 * a batch with one B, with each operand by rows and by columns, and with B packed. */
static void test_matmul_threads(void **unused)
{
    static const int64_t shapes[][3] = {{70, 1100, 33}, {64, 65, 700}, {1, 300, 777},
                                        {300, 1, 64}, {129, 500, 1281}, {64, 256, 784},
                                        {256, 784, 64}, {2, 400, 300}, {33, 1, 4000}};
    static const int threads[] = {1, 2, 3, 40};
    const int before = wb__threads();
    for (int i = 0; i < 20 * (int)WB__COUNT(shapes); i += 3 * fewer()) {
        const int64_t *s = shapes[i / 20], m = s[0], n = s[1], k = s[2];
        const int kind = i % 5;                 /* f32, f32 rounded to bf16, bf16, f16, f64 */
        const wb_dtype type = kind < 2 ? WB_F32 : kind == 2 ? WB_BF16 : kind == 3 ? WB_F16 : WB_F64;
        const bool a_rows = i / 5 % 2, b_rows = i / 10 % 2, c_rows = (i / 5 + kind) % 3;
        wb__matmul_desc d = {.dtype = type, .round = kind == 1, .batch = {1, 1 + i % 2}, .m = m,
                             .n = n, .k = k, .a_b = {0, m * k}, .c_b = {0, m * n},
                             .has_bias = i / 3 % 2, .act = i % 4 == 3 ? WB__OP_tanh : WB__OP_relu};
        d.a_s[0] = a_rows ? k : 1, d.a_s[1] = a_rows ? 1 : m;
        d.b_s[0] = b_rows ? n : 1, d.b_s[1] = b_rows ? 1 : k;
        d.c_s[0] = c_rows ? n : 1, d.c_s[1] = c_rows ? 1 : m;
        buffer a = make(type, 2 * m * k, true), b = make(type, n * k, true),
               bias = make(type, n, true), c[2][WB__COUNT(threads)];
        for (size_t t = 0; t < WB__COUNT(threads); t++)
            for (int packed = 0; packed < 2; packed++) {
                wb__set_threads(threads[t]);
                buffer *to = &c[packed][t];
                *to = make(type, 2 * m * n, false);
                const int64_t bytes = packed && d.batch[1] == 1 ? wb__cpu_matmul_packed(&d) : 0;
                if (packed && !bytes) continue;
                buffer form = make(WB_F64, (bytes + 7) / 8, false);
                wb__cpu_op *op;
                if (packed) {
                    assert_int_equal(wb__cpu_matmul_pack(&d, &op), 0);
                    run(op, (void *[]){b.data, form.data});
                }
                d.packed = packed;
                assert_int_equal(wb__cpu_matmul(&d, &op), 0);
                d.packed = false;
                run(op, (void *[]){a.data, packed ? form.data : b.data, to->data, bias.data});
                check_guards(to);
                assert_memory_equal(to->data, c[packed][0].data,
                                    (size_t)to->n * wb__dtype_size(type));
                drop(&form);
            }
        drop(&a), drop(&b), drop(&bias);
        for (size_t t = 0; t < 2 * WB__COUNT(threads); t++) drop(&c[0][0] + t);
    }
    wb__set_threads(before);
}

/* Nothing behind B is read, which here ends at the end of a page that can be read; several threads
 * have columns of it, and those of the last one are not whole vectors. */
static void test_end_of_b(void **unused)
{
    enum { M = 32, N = 1030, K = 64 };
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = sizeof(float) * N * K;
    const size_t pages = (bytes + page - 1) / page * page;
    const int before = wb__threads();
    char *all =
        mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED && !mprotect(all + pages, page, PROT_NONE));
    float *b = (float *)(void *)(all + pages - bytes);
    buffer a = make(WB_F32, M * K, true);
    for (int i = 0; i < N * K; i++) b[i] = (float)(i % 17 - 8);
    for (size_t i = 0; i < WB__COUNT(isas); i++)
        for (int threads = 1; threads < 9; threads++) {
            setenv("WEBER_ISA", isas[i], 1);
            wb__set_threads(threads);
            buffer c = make(WB_F32, M * N, false);
            wb__matmul_desc d = {.dtype = WB_F32, .batch = {1, 1}, .m = M, .n = N, .k = K,
                                 .a_s = {K, 1}, .b_s = {N, 1}, .c_s = {N, 1}};
            wb__cpu_op *op;
            assert_int_equal(wb__cpu_matmul(&d, &op), 0);
            run(op, (void *[]){a.data, b, c.data, NULL});
            for (int e = 0; e < M * N; e++) {
                double sum = 0, magnitude = 0;
                for (int k = 0; k < K; k++) {
                    const double term = a.real[e / N * K + k] * (double)b[k * N + e % N];
                    sum += term;
                    magnitude += fabs(term);
                }
                assert_true(fabs(element(c.data, WB_F32, e) - sum) <= 0x1p-20 * magnitude);
            }
            check_guards(&c);
            drop(&c);
        }
    unsetenv("WEBER_ISA");
    wb__set_threads(before);
    munmap(all, pages + page);
    drop(&a);
}

/* Where the rows of an operand, or of a piece for a thread, are not adjacent, oneDNN has only
 * "gemm:jit", whose first run takes 30 ms: small products of f32 do not use it. */
static void test_matmul_soon(void **unused)
{
    static const int64_t shapes[][4] = {{64, 256, 784, 0}, {256, 784, 64, 0}, {120, 256, 64, 0},
                                        {64, 256, 120, 0}, {512, 130, 200, 0}, {64, 256, 784, 3}};
    for (int i = 0; i < 4 * (int)WB__COUNT(shapes); i++) {
        const int64_t *s = shapes[i / 4], m = s[0], n = s[1], k = s[2], apart = s[3];
        wb__matmul_desc d = {.dtype = WB_F32, .batch = {1, 1}, .m = m, .n = n, .k = k,
                             .a_s = {k + apart, 1}, .b_s = {n, 1}, .c_s = {n + apart, 1}};
        if (i % 2) d.a_s[0] = 1, d.a_s[1] = m + apart;
        if (i / 2 % 2) d.b_s[0] = 1, d.b_s[1] = k;
        wb__cpu_op *op;
        assert_int_equal(wb__cpu_matmul(&d, &op), 0);
        assert_null(strstr(op->impl, "gemm:jit"));
        op->destroy(op);
    }
}

/* A number from a normal distribution, about: the sum of 12 uniform ones. */
static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += draw() / 0x1p31;
    return sum;
}

/* The errors that device.h and backend/cpu/README.md state: relative to the root of the mean square
 * of the result, of products of numbers from a normal distribution.  stored: the largest error of
 * storing a result, relative to that result, which comes on top of largest. */
static void test_accuracy(void **state_)
{
    static const struct {
        const char *name;
        wb_dtype type;
        bool round;
        double rms, largest, stored;
    } kinds[] = {{"f32", WB_F32, false, 8e-7, 4e-6, 0},
                 {"medium", WB_F32, true, 2.6e-3, 0.013, 0},
                 {"bf16", WB_BF16, false, 1.9e-3, 4e-6, 0x1p-8}};
    const bool print = state_ && *state_;
    state = 1;
    if (print) puts("| precision | k | rms | largest |\n| --- | --- | --- | --- |");
    for (size_t i = 0; i < WB__COUNT(kinds); i++)
        for (int64_t k = 64; k <= 16384; k *= 16) {
            const int64_t m = 64, n = 48;
            wb__matmul_desc d = {.dtype = kinds[i].type, .round = kinds[i].round, .batch = {1, 1},
                                 .m = m, .n = n, .k = k, .a_s = {k, 1}, .b_s = {n, 1},
                                 .c_s = {n, 1}};
            buffer a = make(d.dtype, m * k, false), b = make(d.dtype, k * n, false),
                   c = make(d.dtype, m * n, false), *const in[] = {&a, &b};
            for (int v = 0; v < 2; v++)
                for (int64_t e = 0; e < in[v]->n; e++) {
                    const double x = normal();
                    const size_t size = wb__dtype_size(d.dtype);
                    wb__convert((char *)in[v]->data + (size_t)e * size, d.dtype, &x, WB_F64, 1);
                    in[v]->real[e] = element(in[v]->data, d.dtype, e);
                }
            wb__cpu_op *op;
            assert_int_equal(wb__cpu_matmul(&d, &op), 0);
            run(op, (void *[]){a.data, b.data, c.data, NULL});
            double square = 0, off = 0, worst = 0, beyond = 0;
            for (int64_t e = 0; e < m * n; e++) {
                double sum = 0;
                for (int64_t p = 0; p < k; p++)
                    sum += a.real[e / n * k + p] * b.real[p * n + e % n];
                const double error = element(c.data, d.dtype, e) - sum;
                square += sum * sum, off += error * error, worst = fmax(worst, fabs(error));
                beyond = fmax(beyond, fabs(error) - kinds[i].stored * fabs(sum));
            }
            const double size = sqrt(square / (double)(m * n)), rms = sqrt(off / square);
            if (print)
                printf("| %s | %lld | %.1e | %.1e |\n", kinds[i].name, (long long)k, rms,
                       worst / size);
            if (!(rms <= kinds[i].rms && beyond <= kinds[i].largest * size))
                fail_msg("%s, k %lld: %g, largest %g, %g beyond the rounding of what is stored",
                         kinds[i].name, (long long)k, rms, worst / size, beyond / size);
            drop(&a), drop(&b), drop(&c);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WAYS(test_matmul_drawn), WAYS(test_matmul_large), OWN_WAYS(test_matmul_threads),
        OWN_WAYS(test_end_of_b),
        WAYS(test_matmul_soon), PIECES(test_matmul_large) WAYS(test_accuracy)
    };
    if (argc > 1 && !strcmp(argv[1], "--table")) {
        void *print = &print;
        test_accuracy(&print);
        return 0;
    }
    return cmocka_run_group_tests_name("cpu_products", tests, NULL, NULL);
}
