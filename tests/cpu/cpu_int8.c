/* The kernels of the product of quantised rows and i8 weights (backend/cpu/product/int8.h): each
 * form that this processor runs, against loops over 64-bit integers.  Every form gives the same
 * bits. */
#include "backend/cpu/product/int8.h"

#include "test.h"
#include "vnni_avx2.h"

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

/* The integers of a row, computed as linear_int8.c documents. */
static double quantised(const problem *p, int64_t i, int64_t *q)
{
    float most = 0;
    for (int64_t k = 0; k < p->k; k++) most = fmaxf(most, fabsf(p->x[i * p->x_step + k]));
    const float factor = most >= 0x1p-100f ? 127 / most : 0;
    for (int64_t k = 0; k < p->k; k++) {
        const volatile float scaled = p->x[i * p->x_step + k] * factor, up = scaled + 0.5f;
        q[k] = (int64_t)floorf(up);
        assert_true(q[k] >= -127 && q[k] <= 127);
    }
    return (double)(most * (float)(1.0 / 127));
}

/* Checks y of `f` against loops, bit by bit. */
static void check(const wb__int8_kernel *f, const problem *p, bool has_bias, bool relu,
                  int64_t rows, int64_t columns)
{
    wb__int8_row *row = malloc((size_t)(p->m + 1) * sizeof *row);
    float *all = run(f, p, has_bias, (wb__act){.relu = relu}, rows, columns, row), *y = all + GUARD;
    int64_t *q = malloc((size_t)(p->k + 1) * sizeof *q);
    for (int64_t i = 0; i < p->m; i++) {
        const float scale = (float)quantised(p, i, q);
        assert_true(row[i].scale == scale);
        for (int64_t j = 0; j < p->n; j++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < p->k; k++) sum += q[k] * p->w[j * p->w_step + k];
            assert_true(sum >= INT32_MIN && sum <= INT32_MAX);
            const volatile float scaled = (float)(int32_t)sum * scale;
            const volatile float product = scaled * p->scale[j];
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
    static const float special[] = {0, -0.0f, 1e-45f, 0x1p-101f, 0x1p-100f, 3e38f, -3e38f, NAN,
                                    -NAN, INFINITY, -INFINITY};
    find_forms();
    for (int form = 0; form < n_forms; form++)
        for (size_t s = 0; s < WB__COUNT(special); s++)
            for (int at = 0; at < K; at += K - 1) {
                problem p = make(1, 6, K, 0);
                for (int k = 0; k < K; k++)
                    if (s < 7) p.x[k] = 0;      /* the special number is the greatest one */
                p.x[at] = special[s];
                if (s < 7) {
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
