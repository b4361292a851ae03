/* Attention of one query in each head to a cache (backend/cpu/cpu_attention.c) against plain loops
 * in double precision, for each dtype and instruction set.  Keys and values that a position must
 * not read are NaN, and so are the workspace and the result before the first of two launches: the
 * second finds what the first left. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"

#include "reference.h"

enum { Q, KEYS, V, O, K_NOW, V_NOW, POSITION, TENSORS, GUARD = 64 };

typedef struct { int64_t n, heads, group, length, depth, width; } shape;

typedef struct {
    shape s;
    wb__step step;
    void *at[TENSORS];
    int64_t size[TENSORS];
} problem;

static uint64_t state;

static float value(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 33) / 0x1p30 - 1);
}

static int64_t size_of(const problem *p, int v)
{
    return (int64_t)wb__dtype_size(p->step.views[v].dtype);
}

static void set(const problem *p, int v, int64_t i, float x)
{
    wb__narrow((char *)p->at[v] + i * size_of(p, v), p->step.views[v].dtype, &x, 1);
}

static double get(const problem *p, int v, int64_t i)
{
    float x;
    wb__widen(&x, (char *)p->at[v] + i * size_of(p, v), p->step.views[v].dtype, 1);
    return (double)x;
}

/* The element i of row t of a head of a sample. */
static int64_t index_of(const problem *p, int v, int64_t n, int64_t head, int64_t t, int64_t i)
{
    const int64_t *strides = p->step.views[v].strides;
    return n * strides[0] + head * strides[1] + t * strides[2] + i;
}

/* Samples are `apart` elements further apart than their rows need: q, k_now and v_now are often
 * parts of one tensor.  The stride of a dimension of size 1 means nothing. */
static void place(problem *p, int v, wb_dtype dtype, int64_t heads, int64_t rows, int64_t depth,
                  int64_t apart)
{
    const int64_t sample = heads * rows * depth + apart;
    p->step.views[v] = (wb__view){.dtype = dtype, .buffer = v, .ndim = 4,
                                  .dims = {p->s.n, heads, rows, depth},
                                  .strides = {sample, rows * depth, rows > 1 ? depth : 16, 1}};
    p->size[v] = p->s.n * sample;
    p->at[v] = wb__alloc_aligned((size_t)(p->size[v] * size_of(p, v)) + GUARD);
    assert_non_null(p->at[v]);
    for (int64_t i = 0; i < p->size[v]; i++) set(p, v, i, value());
}

static problem pose(shape s, wb_dtype dtype)
{
    problem p = {.s = s, .step = {.kind = WB__STEP_ATTENTION, .variant = WB__ATTENTION_CACHED,
                                  .n_views = TENSORS}};
    state = (uint64_t)(s.length * 7 + s.depth);
    p.step.attention.scale = 1 / sqrt((double)s.depth);
    place(&p, Q, dtype, s.heads * s.group, 1, s.depth, 24);
    place(&p, KEYS, dtype, s.heads, s.length, s.depth, 0);
    place(&p, V, dtype, s.heads, s.length, s.width, 0);
    place(&p, O, dtype, s.heads * s.group, 1, s.width, 0);
    place(&p, K_NOW, dtype, s.heads, 1, s.depth, 8);
    place(&p, V_NOW, dtype, s.heads, 1, s.width, 0);
    p.step.views[POSITION] = (wb__view){.dtype = WB_I32, .buffer = POSITION, .ndim = 1, .dims = {1},
                                        .strides = {1}};
    p.at[POSITION] = wb__alloc(sizeof(int32_t));
    assert_non_null(p.at[POSITION]);
    return p;
}

static void forget(problem *p)
{
    for (int v = 0; v < TENSORS; v++) wb__free(p->at[v]);
}

/* Sets the position, and what it must not read. */
static void go_to(problem *p, int32_t position)
{
    const int64_t n = WB__MIN(WB__MAX(position, 0), p->s.length);
    memcpy(p->at[POSITION], &position, sizeof position);
    for (int v = KEYS; v <= V; v++)
        for (int64_t s = 0; s < p->s.n; s++)
            for (int64_t h = 0; h < p->s.heads; h++)
                for (int64_t t = 0; t < p->s.length; t++)
                    for (int64_t i = 0; i < p->step.views[v].dims[3]; i++) {
                        const float x = value();
                        set(p, v, index_of(p, v, s, h, t, i), t < n ? x : NAN);
                    }
}

static void compute(problem *p, int threads)
{
    wb__cpu_kernel *k;
    wb__set_threads(threads);
    assert_true(wb__cpu_supports(NULL, &p->step));
    assert_int_equal(wb__cpu_attention(&p->step, &k), 0);
    unsigned char *workspace = wb__alloc_aligned(k->base.workspace + GUARD);
    assert_non_null(workspace);
    memset(workspace, 0xff, k->base.workspace + GUARD);
    const size_t bytes = (size_t)(p->size[O] * size_of(p, O));
    memset(p->at[O], 0xff, bytes + GUARD);
    for (int i = 0; i < 2; i++) assert_int_equal(k->launch(k, p->at, workspace, NULL), 0);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(workspace[k->base.workspace + i], 0xff);
        assert_int_equal(((unsigned char *)p->at[O])[bytes + i], 0xff);
    }
    k->destroy(k);
    wb__free(workspace);
}

/* Key or value t of a head: the last one is that of the position. */
static double element(const problem *p, int v, int64_t s, int64_t head, int64_t t, int64_t n,
                      int64_t i)
{
    return t < n ? get(p, v, index_of(p, v, s, head, t, i))
                 : get(p, v == KEYS ? K_NOW : V_NOW,
                       index_of(p, v == KEYS ? K_NOW : V_NOW, s, head, 0, i));
}

/* Returns the root mean square of the errors. */
static double compare(const problem *p, int32_t position, double tolerance, const char *name)
{
    const shape *c = &p->s;
    double squares = 0;
    const int64_t n = WB__MIN(WB__MAX(position, 0), c->length);
    const int64_t total = n + (position >= 0 && position < c->length);
    double *w = calloc((size_t)c->length + 1, sizeof *w);
    assert_non_null(w);
    for (int64_t s = 0; s < c->n; s++) for (int64_t h = 0; h < c->heads * c->group; h++) {
        double most = -INFINITY, sum = 0;
        for (int64_t t = 0; t < total; t++) {
            w[t] = 0;
            for (int64_t i = 0; i < c->depth; i++)
                w[t] += get(p, Q, index_of(p, Q, s, h, 0, i)) *
                        element(p, KEYS, s, h / c->group, t, n, i) * p->step.attention.scale;
            most = fmax(most, w[t]);
        }
        for (int64_t t = 0; t < total; t++) sum += w[t] = exp(w[t] - most);
        for (int64_t i = 0; i < c->width; i++) {
            double want = 0;
            for (int64_t t = 0; t < total; t++)
                want += w[t] / sum * element(p, V, s, h / c->group, t, n, i);
            const double got = get(p, O, index_of(p, O, s, h, 0, i));
            squares += (got - want) * (got - want);
            if (!(fabs(got - want) <= tolerance))
                fail_msg("%s, %s, %d x %d x %d heads, length %d, depths %d, %d, position %d: "
                         "%.9g for %.9g", name, wb_dtype_name(p->step.views[Q].dtype), (int)c->n,
                         (int)c->heads, (int)c->group, (int)c->length, (int)c->depth,
                         (int)c->width, position, got, want);
        }
    }
    free(w);
    return sqrt(squares / (double)(c->n * c->heads * c->group * c->width));
}

static void test_positions(void **isa)
{
    setenv("WEBER_ISA", *isa, 1);       /* a wider one than the processor has changes nothing */
    static const shape shapes[] = {
        {1, 4, 1, 80, 64, 64}, {2, 2, 3, 130, 24, 40}, {1, 1, 1, 1, 8, 8}, {2, 3, 2, 70, 7, 5},
        {1, 1, 5, 3, 1, 1},
    };
    static const struct { wb_dtype dtype; double tolerance; } dtypes[] = {
        {WB_F32, 2e-6}, {WB_F16, 6e-4}, {WB_BF16, 5e-3}};   /* of 1, above half a unit in the
                                                               last place of f16 and bf16 */
    for (size_t i = 0; i < WB__COUNT(shapes); i++) for (size_t d = 0; d < WB__COUNT(dtypes); d++) {
        problem p = pose(shapes[i], dtypes[d].dtype);
        const int32_t length = (int32_t)shapes[i].length;
        const int32_t positions[] = {-1, 0, 1, 63, 64, 65, length - 1, length, length + 3};
        for (size_t at = 0; at < WB__COUNT(positions); at++) {
            go_to(&p, positions[at]);
            compute(&p, 1);
            compare(&p, positions[at], dtypes[d].tolerance, *isa);
            const size_t bytes = (size_t)(p.size[O] * size_of(&p, O));
            void *first = malloc(bytes);
            assert_non_null(first);
            memcpy(first, p.at[O], bytes);
            compute(&p, 3);
            assert_memory_equal(first, p.at[O], bytes);     /* by any number of threads */
            free(first);
        }
        forget(&p);
    }
    unsetenv("WEBER_ISA");
}

/* Sums over many positions round as those of a product: the root mean square of the errors. */
static void test_long(void **unused)
{
    enum { LENGTH = 4096, DEPTH = 64 };
    (void)unused;
    problem p = pose((shape){1, 2, 1, LENGTH, DEPTH, DEPTH}, WB_F32);
    go_to(&p, LENGTH - 1);
    for (int64_t i = 0; i < p.size[V]; i++) set(&p, V, i, 1 + value());
    compute(&p, 1);
    const double error = compare(&p, LENGTH - 1, 1e-6, "long");
    if (!(error < 2e-7)) fail_msg("error %g", error);
    forget(&p);
}

/* Other attention to a cache is composed. */
static void test_choice(void **unused)
{
    (void)unused;
    problem p = pose((shape){1, 4, 1, 20, 16, 16}, WB_F32);
    assert_true(wb_cpu_device()->backend->supports(wb_cpu_device(), &p.step));
    for (int i = 0; i < 5; i++) {
        wb__step s = p.step;
        wb__cpu_kernel *k;
        if (i == 0) for (int v = 0; v < POSITION; v++) s.views[v].dtype = WB_F64;
        else if (i == 1) s.views[KEYS].dtype = WB_BF16;
        else if (i == 2) s.views[V].strides[3] = 2;
        else if (i == 3) s.views[Q].dims[2] = 2;
        else s.views[POSITION].dtype = WB_I64;
        assert_false(wb__cpu_supports(NULL, &s));
        assert_int_equal(wb__cpu_attention(&s, &k), WB_ERROR_UNSUPPORTED);
        wb_clear_error();
    }
    forget(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_positions, "avx512"),
        cmocka_unit_test_prestate(test_positions, "avx2"),
        cmocka_unit_test_prestate(test_positions, "portable"),
        cmocka_unit_test(test_long), cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests_name("cpu_attention_cached", tests, NULL, NULL);
}
