/* Attention on the CPU (backend/cpu/cpu_attention.c) against plain loops in double precision: o,
 * lse and the gradients, in both layouts, for each instruction set; workspaces and results start as
 * NaN.  The numbers of queries and keys do not divide into blocks, the depths not into vectors. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"

#include "reference.h"

enum { Q, KEYS, V, O, LSE, DO, DQ, DK, DV, TENSORS, GUARD = 64 };

typedef struct {
    int64_t n, heads, queries, keys, depth, width;
    bool causal, time_first;            /* the layout: [N, T, H, D], else [N, H, T, D] */
    float gain;                         /* of q */
} shape;

typedef struct {
    shape s;
    wb__step step;
    float *at[TENSORS];
    double *want[TENSORS];
    int64_t size[TENSORS];
} problem;

static uint64_t state;

static double value(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) / 0x1p30 - 1;
}

static bool is_result(const problem *p, int view)
{
    return p->step.variant == WB__ATTENTION_FORWARD ? view == O || view == LSE : view >= DQ;
}

static int64_t at(const problem *p, int view, int64_t head, int64_t t, int64_t i)
{
    const wb__view *v = &p->step.views[view];
    return head / p->s.heads * v->strides[0] + head % p->s.heads * v->strides[1] +
           t * v->strides[2] + i;
}

static void place(problem *p, int view, int64_t rows, int64_t depth)
{
    const shape *s = &p->s;
    const bool first = s->time_first && view != LSE;
    p->step.views[view] = (wb__view){
        .dtype = WB_F32, .buffer = view, .ndim = 4, .dims = {s->n, s->heads, rows, depth},
        .strides = {s->heads * rows * depth, first ? depth : rows * depth,
                    first ? s->heads * depth : depth, 1}};
    p->size[view] = s->n * s->heads * rows * depth;
    p->at[view] = wb__alloc_aligned((size_t)p->size[view] * sizeof(float) + GUARD);
    p->want[view] = calloc((size_t)p->size[view], sizeof(double));
    assert_true(p->at[view] && p->want[view]);
    for (int64_t i = 0; i < p->size[view]; i++)
        p->at[view][i] = (float)((view == Q ? (double)s->gain : 1) * value());
}

/* The scores of a query, their softmax in w, and lse. */
static double weights(const problem *p, int64_t head, int64_t i, double *w)
{
    const shape *s = &p->s;
    const int64_t seen = s->causal ? i + 1 + s->keys - s->queries : s->keys;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        w[j] = 0;
        for (int64_t c = 0; c < s->depth; c++)
            w[j] += (double)p->at[Q][at(p, Q, head, i, c)] * p->at[KEYS][at(p, KEYS, head, j, c)];
        w[j] = j < seen ? w[j] * p->step.attention.scale : -INFINITY;
        most = fmax(most, w[j]);
    }
    for (int64_t j = 0; j < s->keys; j++) sum += w[j] = exp(w[j] - most);
    for (int64_t j = 0; j < s->keys; j++) w[j] /= sum;
    return most + log(sum);
}

static void solve(problem *p)
{
    const shape *s = &p->s;
    const double scale = p->step.attention.scale;
    double *w = calloc((size_t)(2 * s->keys), sizeof *w), *a = w + s->keys;
    assert_non_null(w);
    for (int64_t h = 0; h < s->n * s->heads; h++) for (int64_t i = 0; i < s->queries; i++) {
        double sum = 0;
        p->want[LSE][at(p, LSE, h, i, 0)] = weights(p, h, i, w);
        for (int64_t j = 0; j < s->keys; j++) {
            a[j] = 0;
            for (int64_t c = 0; c < s->width; c++) {
                const double v = p->at[V][at(p, V, h, j, c)], g = p->at[DO][at(p, DO, h, i, c)];
                p->want[O][at(p, O, h, i, c)] += w[j] * v;
                p->want[DV][at(p, DV, h, j, c)] += w[j] * g;
                a[j] += g * v;
            }
            sum += w[j] * a[j];
        }
        for (int64_t j = 0; j < s->keys; j++) for (int64_t c = 0; c < s->depth; c++) {
            const double ds = scale * w[j] * (a[j] - sum);
            p->want[DQ][at(p, DQ, h, i, c)] += ds * p->at[KEYS][at(p, KEYS, h, j, c)];
            p->want[DK][at(p, DK, h, j, c)] += ds * p->at[Q][at(p, Q, h, i, c)];
        }
    }
    free(w);
}

static problem pose(shape s)
{
    problem p = {.s = s, .step = {.kind = WB__STEP_ATTENTION, .precision = WB__PRECISION_HIGHEST}};
    p.step.attention = (wb__attention_attr){1 / sqrt((double)s.depth), s.causal};
    state = (uint64_t)(s.queries * 7 + s.depth);
    const int64_t m = s.queries, n = s.keys, d = s.depth, e = s.width;
    const int64_t rows[TENSORS] = {m, n, n, m, m, m, m, n, n};
    const int64_t depth[TENSORS] = {d, d, e, e, 1, e, d, d, e};
    for (int v = 0; v < TENSORS; v++) place(&p, v, rows[v], depth[v]);
    solve(&p);
    return p;
}

static void forget(problem *p)
{
    for (int v = 0; v < TENSORS; v++) {
        wb__free(p->at[v]);
        free(p->want[v]);
    }
}

/* Runs the forward step or that of the gradients twice. */
static void compute(problem *p, wb__attention_kind kind, int threads)
{
    wb__cpu_kernel *k;
    wb__set_threads(threads);
    p->step.variant = (int)kind;
    p->step.n_views = kind == WB__ATTENTION_FORWARD ? 5 : TENSORS;
    assert_true(wb__cpu_supports(NULL, &p->step));
    assert_int_equal(wb__cpu_attention(&p->step, &k), 0);
    unsigned char *workspace = wb__alloc_aligned(k->base.workspace + GUARD);
    assert_non_null(workspace);
    memset(workspace, 0xff, k->base.workspace + GUARD);
    for (int v = 0; v < TENSORS; v++)
        if (is_result(p, v)) memset(p->at[v], 0xff, (size_t)p->size[v] * sizeof(float) + GUARD);
    for (int i = 0; i < 2; i++)
        assert_int_equal(k->launch(k, (void **)p->at, workspace, NULL), 0);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(workspace[k->base.workspace + (size_t)i], 0xff);
        for (int v = 0; v < TENSORS; v++)
            if (is_result(p, v))
                assert_int_equal(((unsigned char *)(p->at[v] + p->size[v]))[i], 0xff);
    }
    k->destroy(k);
    wb__free(workspace);
}

static void compare(const problem *p, const char *name)
{
    static const char *const names[TENSORS] = {"q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"};
    const shape *s = &p->s;
    for (int v = 0; v < TENSORS; v++) {
        if (!is_result(p, v)) continue;
        double largest = 1, most = 0;
        for (int64_t i = 0; i < p->size[v]; i++) largest = fmax(largest, fabs(p->want[v][i]));
        for (int64_t i = 0; i < p->size[v] && !isnan(most); i++) {
            const double e = fabs(p->at[v][i] - p->want[v][i]);
            if (!(e <= most)) most = e;
        }
        if (!(most <= 4e-6 * (double)s->gain * largest))
            fail_msg("%s: %s of %d x %d heads, %d queries, %d keys, depths %d, %d%s: error %g of "
                     "%g", name, names[v], (int)s->n, (int)s->heads, (int)s->queries, (int)s->keys,
                     (int)s->depth, (int)s->width, s->causal ? ", causal" : "", most, largest);
    }
}

static void one_shape(shape s, const char *name)
{
    problem p = pose(s);
    for (int kind = 0; kind < 2; kind++) {
        compute(&p, (wb__attention_kind)kind, 1);
        compare(&p, name);
        float *first[TENSORS] = {NULL};
        for (int v = 0; v < TENSORS; v++) {
            if (!is_result(&p, v)) continue;
            first[v] = malloc((size_t)p.size[v] * sizeof(float));
            assert_non_null(first[v]);
            memcpy(first[v], p.at[v], (size_t)p.size[v] * sizeof(float));
        }
        compute(&p, (wb__attention_kind)kind, 3);       /* the same bits */
        for (int v = 0; v < TENSORS; v++)
            if (first[v])
                assert_memory_equal(first[v], p.at[v], (size_t)p.size[v] * sizeof(float));
        for (int v = 0; v < TENSORS; v++) free(first[v]);
    }
    forget(&p);
}

static void test_shapes(void **isa)
{
    setenv("WEBER_ISA", *isa, 1);       /* a wider one than the processor has changes nothing */
    static const shape shapes[] = {
        {1, 4, 32, 32, 16, 16, true, false, 1},    {2, 3, 33, 33, 8, 8, true, true, 1},
        {1, 5, 70, 70, 64, 48, true, true, 1},     {2, 2, 128, 128, 32, 32, true, false, 1},
        {1, 4, 64, 64, 256, 256, false, true, 1},  {1, 4, 47, 101, 24, 40, false, false, 1},
        {3, 2, 40, 95, 32, 72, true, true, 1},     {1, 4, 100, 32, 8, 32, false, true, 1},
        {1, 4, 350, 350, 16, 8, true, false, 1},   {1, 4, 65, 65, 32, 32, true, true, 30},
        {1, 4, 37, 37, 7, 5, true, true, 1},       {2, 4, 39, 64, 1, 1, false, false, 1},
    };
    for (size_t i = 0; i < WB__COUNT(shapes); i++) {
        const int lanes = wb__isa_best()->gemm_f32->masked ? 1 : wb__isa_best()->gemm_f32->lanes;
        if (shapes[i].depth % lanes || shapes[i].width % lanes) continue;
        one_shape(shapes[i], *isa);
    }
    unsetenv("WEBER_ISA");
}

/* Other attention is composed. */
static void test_choice(void **unused)
{
    (void)unused;
    problem p = pose((shape){1, 4, 40, 40, 16, 16, true, false, 1});
    wb__cpu_kernel *k;
    p.step.n_views = 5;
    assert_true(wb_cpu_device()->backend->supports(wb_cpu_device(), &p.step));
    for (int i = 0; i < 9; i++) {
        wb__step s = p.step;
        wb__view *q = &s.views[Q], *keys = &s.views[KEYS];
        const int threads = wb__threads();
        if (i == 0) {
            s.precision = WB__PRECISION_MEDIUM;
            if (!wb__isa_gemm_bf16()) continue;         /* nothing is rounded */
        }
        else if (i == 1) for (int v = 0; v < 4; v++) s.views[v].dtype = WB_F64;
        else if (i == 2) for (int v = 0; v < 4; v++) s.views[v].dtype = WB_BF16;
        else if (i == 3) q->strides[3] = 2;
        else if (i == 4) q->dims[1] = 3;
        else if (i == 5) q->dims[2] = 16;
        else if (i == 6) keys->dims[2] = 39;            /* some queries would see no key */
        else if (i == 7) q->dims[3] = keys->dims[3] = 257;
        else wb__set_threads(9);                        /* for 4 heads */
        assert_false(wb__cpu_supports(NULL, &s));
        assert_int_equal(wb__cpu_attention(&s, &k), WB_ERROR_UNSUPPORTED);
        wb_clear_error();
        wb__set_threads(threads);
    }
    forget(&p);
}

/* A NaN of k spoils the queries that see it, and no other. */
static void test_nan(void **unused)
{
    (void)unused;
    problem p = pose((shape){1, 4, 70, 70, 16, 16, true, false, 1});
    p.at[KEYS][at(&p, KEYS, 2, 40, 3)] = NAN;
    compute(&p, WB__ATTENTION_FORWARD, 2);
    for (int64_t h = 0; h < 4; h++)
        for (int64_t i = 0; i < 70; i++)
            assert_int_equal(isnan(p.at[O][at(&p, O, h, i, 5)]) != 0, h == 2 && i >= 40);
    forget(&p);
}

/* Infinite scores: the keys with +Inf share the weight of a query; if all scores are -Inf, all keys
 * that it sees do. */
static void test_infinite(void **unused)
{
    enum { T = 40, D = 16, KEY = 7 };
    (void)unused;
    for (int i = 0; i < 4; i++) {
        const bool none = i & 1, causal = i & 2;
        problem p = pose((shape){1, 4, T, T, D, D, causal, false, 1});
        for (int64_t e = 0; e < p.size[Q]; e++) p.at[Q][e] = 1;
        for (int64_t e = 0; e < p.size[KEYS]; e++)
            p.at[KEYS][e] = none ? -INFINITY : e / D % T == KEY ? INFINITY : 1;
        compute(&p, WB__ATTENTION_FORWARD, 1);
        compute(&p, WB__ATTENTION_GRAD, 1);
        for (int64_t h = 0; h < 4; h++) for (int64_t c = 0; c < D; c++) {
            double gradient[T] = {0};
            for (int64_t q = 0; q < T; q++) {
                const int64_t seen = causal ? q + 1 : T;
                const bool all = none || KEY >= seen;           /* of equal weight */
                double mean = 0;
                for (int64_t j = 0; j < seen; j++) {
                    const double w = all ? 1.0 / (double)seen : j == KEY;
                    mean += w * (double)p.at[V][at(&p, V, h, j, c)];
                    gradient[j] += w * (double)p.at[DO][at(&p, DO, h, q, c)];
                }
                assert_true(fabs((double)p.at[O][at(&p, O, h, q, c)] - mean) < 1e-5);
            }
            for (int64_t j = 0; j < T; j++)
                assert_true(fabs((double)p.at[DV][at(&p, DV, h, j, c)] - gradient[j]) < 1e-4);
        }
        forget(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_shapes, "avx512"),
        cmocka_unit_test_prestate(test_shapes, "avx2"),
        cmocka_unit_test_prestate(test_shapes, "portable"),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_infinite),
    };
    return cmocka_run_group_tests_name("cpu_attention", tests, NULL, NULL);
}
