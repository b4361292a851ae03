/* The kernels of the product of quantised rows and i8 weights (backend/cpu/product/int8.h): each
 * form that this processor runs, against loops over 64-bit integers.  Every form gives the same
 * bits. */
#include "backend/cpu/product/int8.h"

#include "test.h"
#include "vnni_avx2.h"

#include <float.h>

enum { GUARD = 32 };
static const float MARK = 0.4375f;

static uint64_t state;
static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* All forms; each is tested by all tests. */
static int n_forms;
static const wb__int8_kernel *forms[8];
static void find_forms(void)
{
    n_forms = 0;
    for (int i = 0; wb__int8_kernel_at(i); i++) forms[n_forms++] = wb__int8_kernel_at(i);
    if (n_forms > 1 && emulated_vnni_avx2) forms[n_forms++] = emulated_vnni_avx2;
}

static char *aligned(size_t bytes)
{
    char *p = wb__alloc_aligned(bytes + 64);
    assert_non_null(p);
    memset(p, 0x55, bytes + 64);
    return p;
}

/* Frees such memory; nothing was written behind it. */
static void release(char *p, size_t bytes)
{
    for (int i = 0; i < 64; i++) assert_int_equal(p[bytes + (size_t)i], 0x55);
    wb__free(p);
}

typedef struct {
    int64_t m, n, k, x_step, w_step, y_step[2];
    float *x, *scale, *bias;
    int8_t *w;
} problem;

static problem make(int64_t m, int64_t n, int64_t k, int apart)
{
    problem p = {m, n, k, k + apart, k + apart, {n + apart, 1}, NULL, NULL, NULL, NULL};
    p.x = malloc((size_t)(m * p.x_step) * sizeof *p.x);
    p.scale = malloc((size_t)n * sizeof *p.scale);
    p.bias = malloc((size_t)n * sizeof *p.bias);
    p.w = malloc((size_t)(n * p.w_step - apart));       /* nothing behind the last row */
    for (int64_t i = 0; i < m * p.x_step; i++) p.x[i] = (float)(draw() % 20001) / 10000 - 1;
    for (int64_t i = 0; i < n * p.w_step - apart; i++) p.w[i] = (int8_t)draw();
    for (int64_t i = 0; i < n; i++) p.scale[i] = (float)(1 + draw() % 100) / 64;
    for (int64_t i = 0; i < n; i++) p.bias[i] = (float)(draw() % 101) - 50;
    return p;
}

static void drop(problem *p)
{
    free(p->x);
    free(p->scale);
    free(p->bias);
    free(p->w);
}

/* Quantises the rows, the last one first, and multiplies in parts of `rows` x `columns`; returns y,
 * with guards, which the caller frees, and the rows. */
static float *run(const wb__int8_kernel *f, const problem *p, bool has_bias, wb__act act,
                  int64_t rows, int64_t columns, wb__int8_row *row)
{
    const int64_t step = wb__int8_row_bytes(f, p->k), size = p->m * p->y_step[0];
    char *q = aligned((size_t)(p->m * step));
    float *all = malloc((size_t)(size + 2 * GUARD) * sizeof *all);
    for (int64_t i = 0; i < size + 2 * GUARD; i++) all[i] = MARK;
    for (int64_t i = p->m - 1; i >= 0; i--)
        f->quantise(p->x + i * p->x_step, p->k, q + i * step, &row[i]);
    const wb__int8_product of = {
        .m = p->m, .n = p->n, .k = p->k, .w = p->w, .w_step = p->w_step, .q = q, .q_step = step,
        .row = row, .scale = p->scale, .scale_step = 1, .bias = has_bias ? p->bias : NULL,
        .y = all + GUARD, .y_step = {p->y_step[0], p->y_step[1]}, .act = act};
    for (int64_t i = 0; i < p->m; i += rows)
        for (int64_t j = 0; j < p->n; j += columns)
            f->product(&of, i, WB__MIN(i + rows, p->m), j, WB__MIN(j + columns, p->n));
    release(q, (size_t)(p->m * step));
    return all;
}

/* The integers of a row less that of 0, computed as linear_int8.c documents. Returns the scale, and
 * checks that it times each integer is at most half a step from the element. */
static float quantised(const problem *p, int64_t i, int64_t *q)
{
    const float *x = p->x + i * p->x_step;
    float low = 0, high = 0;
    for (int64_t k = 0; k < p->k; k++) {
        low = fminf(low, x[k]);
        high = fmaxf(high, x[k]);
    }
    const volatile float l = low * (float)(1.0 / 255), h = high * (float)(1.0 / 255), s = h - l;
    const float factor = s >= 0x1p-100f ? 1 / s : 0;
    const volatile float below = low * factor;
    const float zero = floorf(0.5f - below);
    assert_true(zero >= 0 && zero <= 255);
    for (int64_t k = 0; k < p->k; k++) {
        const volatile float scaled = x[k] * factor, up = scaled + (zero + 0.5f);
        q[k] = (int64_t)(fminf(fmaxf(floorf(up), 0), 255) - zero);
        if (x[k] == 0) assert_int_equal(q[k], 0);
        const double off = fabs((double)s * (double)q[k] - (double)x[k]);
        assert_true(off <= 0.5001 * (double)s || !factor);
    }
    return s;
}

/* Checks y of `f` against loops, bit by bit. */
static void check(const wb__int8_kernel *f, const problem *p, bool has_bias, bool relu,
                  int64_t rows, int64_t columns)
{
    wb__int8_row *row = malloc((size_t)(p->m + 1) * sizeof *row);
    float *all = run(f, p, has_bias, (wb__act){.relu = relu}, rows, columns, row), *y = all + GUARD;
    int64_t *q = malloc((size_t)(p->k + 1) * sizeof *q);
    for (int64_t i = 0; i < p->m; i++) {
        const float scale = quantised(p, i, q) * 0x1p-25f;
        assert_true(row[i].scale == scale);
        for (int64_t j = 0; j < p->n; j++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < p->k; k++) sum += q[k] * p->w[j * p->w_step + k];
            assert_true(sum >= INT32_MIN && sum <= INT32_MAX);
            const volatile float scaled = (float)(int32_t)sum * scale;
            const volatile float down = scaled * p->scale[j], product = down * 0x1p25f;
            float want = has_bias ? product + p->bias[j] : product;
            if (relu && want < 0) want = 0;
            if (y[i * p->y_step[0] + j] != want)
                fail_msg("%s: %lldx%lldx%lld [%lld,%lld]: %.9g, want %.9g", f->name,
                         (long long)p->m, (long long)p->n, (long long)p->k, (long long)i,
                         (long long)j, (double)y[i * p->y_step[0] + j], (double)want);
        }
        for (int64_t j = p->n; j < p->y_step[0]; j++)
            assert_true(y[i * p->y_step[0] + j] == MARK);
    }
    for (int i = 0; i < GUARD; i++) assert_true(all[i] == MARK);
    for (int i = 0; i < GUARD; i++) assert_true(y[p->m * p->y_step[0] + i] == MARK);
    free(q);
    free(all);
    free(row);
}

TEST(odd_sizes)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 4, 64}, {2, 3, 63}, {3, 5, 65}, {4, 7, 127},
                                       {5, 8, 16}, {6, 9, 33}, {7, 2, 130}, {13, 11, 100},
                                       {1, 33, 768}, {25, 30, 257}, {1, 2, 3}, {8, 1, 31}};
    find_forms();
    for (size_t s = 0; s < WB__COUNT(sizes); s++)
        for (int form = 0; form < n_forms; form++)
            for (int kind = 0; kind < 4; kind++) {
                state = s * 7 + 1;
                problem p = make(sizes[s][0], sizes[s][1], sizes[s][2], kind == 3 ? 5 : 0);
                check(forms[form], &p, kind & 1, kind & 2, kind == 1 ? 2 : 64,
                      kind == 2 ? 4 : 64);
                drop(&p);
            }
}

/* The greatest magnitudes, of one sign and of both: a sum of two products of bytes exceeds 16
 * bits, and the sums of weights plus 128 are far greater than those of the weights. */
TEST(extreme_values)
{
    static const int8_t weights[] = {-128, 127, -1, 0, -127};
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (int kind = 0; kind < 3; kind++) {
            problem p = make(7, 5, 1000 + 13 * kind, 0);
            for (int64_t i = 0; i < p.m * p.k; i++)
                p.x[i] = kind == 0 ? 3 : kind == 1 ? -3 : i % 2 ? 3 : -3;
            for (int64_t j = 0; j < p.n; j++) memset(p.w + j * p.k, weights[j], (size_t)p.k);
            check(forms[form], &p, false, false, 64, 64);
            drop(&p);
        }
}

/* Rows of many zeros, on one side of 0, constant, and with one far number: the sums are those of
 * the integers, and y is near the product of the numbers. */
TEST(kinds_of_rows)
{
    enum { M = 7, N = 6, K = 131, KINDS = 8 };
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (int kind = 0; kind < KINDS; kind++) {
            state = (uint64_t)kind + 1;
            problem p = make(M, N, K, 0);
            for (int i = 0; i < M * K; i++) {
                float *x = &p.x[i];
                if (kind == 0) *x = fmaxf(*x, 0);           /* as of relu */
                if (kind == 1) *x = i % 9 ? 0 : *x - 0.1f;
                if (kind == 2) *x = fabsf(*x) + 5;
                if (kind == 3) *x = -fabsf(*x) - 5;
                if (kind == 4) *x = 3.7f;
                if (kind == 5) *x = -3.7f;
                if (kind == 6) *x = i % K == 40 ? 300 : *x;
                if (kind == 7) *x = i % K == 40 ? -300 : i % 2 ? 0 : *x;
            }
            check(forms[form], &p, kind % 2, false, 64, 64);
            wb__int8_row row[M];
            float *all = run(forms[form], &p, false, (wb__act){0}, 64, 64, row);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    double sum = 0, weights = 0;
                    for (int k = 0; k < K; k++) {
                        sum += (double)p.x[i * K + k] * p.w[j * K + k];
                        weights += p.x[i * K + k] != 0 ? abs(p.w[j * K + k]) : 0;
                    }
                    const double scale = (double)p.scale[j], unit = (double)row[i].scale * 0x1p25;
                    const double off = (double)all[GUARD + i * N + j] - sum * scale;
                    assert_true(fabs(off) <= 0.5001 * unit * weights * scale +
                                                 1e-5 * fabs(sum * scale));
                }
            free(all);
            drop(&p);
        }
}

/* Numbers near the greatest ones of f32, of x or of the scales of w: what is in between does not
 * overflow if y does not, and a sum of 0 is 0. */
TEST(greatest_numbers)
{
    enum { K = 300 };
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (int kind = 0; kind < 4; kind++) {
            problem p = make(2, 3, K, 0);
            for (int i = 0; i < 2 * K; i++)
                p.x[i] *= kind == 0 ? 3.4e38f : kind == 1 ? 1e-27f : 1;
            p.x[0] = kind == 0 ? FLT_MAX : p.x[0];
            p.x[K] = kind == 0 ? -FLT_MAX : p.x[K];
            for (int j = 0; j < 3; j++)
                p.scale[j] = kind == 0 ? 1e-6f : kind == 1 ? 1e32f : kind == 2 ? 2.6e36f : 1e-30f;
            memset(p.w + (kind == 2 ? 0 : 2 * K), 0, (size_t)(kind == 2 ? 3 * K : K));
            if (kind == 2) p.w[K + 1] = 1;
            check(forms[form], &p, false, false, 64, 64);
            wb__int8_row row[2];
            float *all = run(forms[form], &p, false, (wb__act){0}, 64, 64, row);
            for (int i = 0; i < 6; i++) {
                assert_true(isfinite(all[GUARD + i]));
                assert_true(all[GUARD + i] != 0 || i % 3 != 1);
            }
            free(all);
            drop(&p);
        }
}

/* The longest row: the sums just fit into 32 bits. */
TEST(longest_row)
{
    find_forms();
    for (int form = 0; form < n_forms; form++) {
        problem p = make(2, 3, WB__INT8_MOST, 0);
        for (int64_t i = 0; i < p.m * p.k; i++) p.x[i] = i < p.k ? -0.5f : 0.5f;
        memset(p.w, -128, (size_t)(p.n * p.k));
        memset(p.w + p.k, 127, (size_t)p.k);
        check(forms[form], &p, true, false, 64, 64);
        drop(&p);
    }
}

/* Zeros, the smallest numbers, and rows with NaN or infinity. */
TEST(special_rows)
{
    enum { K = 70 };
    enum { FINITE = 10 };
    static const float special[] = {0, -0.0f, 1e-45f, -1e-45f, 0x1p-101f, 255 * 0x1p-100f, 0x1p-92f,
                                    -0x1p-92f, 3e38f, -3e38f, NAN, -NAN, INFINITY, -INFINITY};
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (size_t s = 0; s < WB__COUNT(special); s++)
            for (int at = 0; at < K; at += K - 1) {
                problem p = make(1, 6, K, 0);
                for (int k = 0; k < K; k++)
                    if (s < FINITE) p.x[k] = 0;      /* the special number is the greatest one */
                p.x[at] = special[s];
                if (s < FINITE) {
                    check(forms[form], &p, false, false, 64, 64);
                } else {
                    wb__int8_row row;
                    float *all = run(forms[form], &p, true, (wb__act){.relu = true}, 64, 64, &row);
                    for (int j = 0; j < 6; j++) assert_true(isnan(all[GUARD + j]));
                    free(all);
                }
                drop(&p);
            }
}

/* A weight that is zero in each place but one finds a byte at a wrong place. */
TEST(each_place)
{
    enum { K = 150 };
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (int place = 0; place < K; place++) {
            problem p = make(2, 5, K, 0);
            memset(p.w, 0, (size_t)(p.n * p.k));
            for (int j = 0; j < 5; j++) p.w[j * K + (place + j) % K] = (int8_t)(j - 128);
            check(forms[form], &p, false, false, 1, 4);
            drop(&p);
        }
}

/* An epilogue with a function is applied once to each element, also to those that are apart. */
TEST(epilogue)
{
    find_forms();
    const wb__act act = wb__act_of(WB__OP_tanh, WB_F32);
    for (int form = 0; form < n_forms; form++) {
        problem p = make(3, 10, 40, 0);
        wb__int8_row row[3];
        float *plain = run(forms[form], &p, true, (wb__act){0}, 64, 64, row);
        float *made = run(forms[form], &p, true, act, 64, 64, row);
        for (int i = 0; i < 30; i++)
            assert_true(fabsf(made[GUARD + i] - tanhf(plain[GUARD + i])) < 1e-6f);
        free(made);
        p.y_step[0] = 1;
        p.y_step[1] = 3;
        float *turned = malloc((30 + 2 * GUARD) * sizeof *turned);
        const int64_t step = wb__int8_row_bytes(forms[form], p.k);
        char *q = aligned((size_t)(3 * step));
        for (int i = 0; i < 3; i++)
            forms[form]->quantise(p.x + i * p.x_step, p.k, q + i * step, &row[i]);
        forms[form]->product(&(wb__int8_product){.m = 3, .n = 10, .k = 40, .w = p.w,
                                                 .w_step = p.w_step, .q = q, .q_step = step,
                                                 .row = row, .scale = p.scale, .scale_step = 1,
                                                 .bias = p.bias, .y = turned, .y_step = {1, 3},
                                                 .act = act}, 0, 3, 0, 10);
        for (int i = 0; i < 30; i++)
            assert_true(fabsf(turned[i % 10 * 3 + i / 10] - tanhf(plain[GUARD + i])) < 1e-6f);
        release(q, (size_t)(3 * step));
        free(turned);
        free(plain);
        drop(&p);
    }
}

int main(void)
{
    find_forms();
    printf("forms:");
    for (int i = 0; i < n_forms; i++)
        printf(" %s%s", forms[i]->name, forms[i] == emulated_vnni_avx2 ? " (emulated)" : "");
    printf("\n");
    return run_all_cases();
}
