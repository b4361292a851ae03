/* Products by cuBLASLt, on its double: all layouts of the operands, batches, dtypes, epilogues,
 * sums, and the products that cuBLASLt does not support.  Where the real cuBLASLt is installed, it
 * creates every descriptor too, for which it needs no GPU. */
#include "test.h"

#include "row_value.h"

#include "backend/cuda/lt.h"
#include "backend/gpu/gpu.h"
#include "base/base.h"

#include <dlfcn.h>

static const wb__backend *b;
static const wb_device *d;
static wb__lt_functions lt;             /* of the real cuBLASLt */
static bool has_lt;

/* ---- values ---------------------------------------------------------------------------------- */

static double get(const void *x, wb_dtype t, int64_t i)
{
    return t == WB_F64 ? ((const double *)x)[i] : t == WB_F32 ? (double)((const float *)x)[i]
         : t == WB_F16 ? (double)wb__f16_to_f32(((const uint16_t *)x)[i])
                       : (double)wb__bf16_to_f32(((const uint16_t *)x)[i]);
}

static void put(void *x, wb_dtype t, int64_t i, double value)
{
    if (t == WB_F64) ((double *)x)[i] = value;
    else if (t == WB_F32) ((float *)x)[i] = (float)value;
    else ((uint16_t *)x)[i] = t == WB_F16 ? wb__f32_to_f16((float)value)
                                          : wb__f32_to_bf16((float)value);
}

/* ---- one product ----------------------------------------------------------------------------- */

/* Batches of a (m x k) times b (k x n).  Operands begin at an offset and have gaps of `apart`
 * elements between their rows; turned: transposed in memory. */
typedef struct {
    wb_dtype dtype;
    int64_t batch, m, n, k, apart, offset;
    bool a_turned, b_turned, c_turned, b_shared, dense, bias;
    wb__op act;
    wb__aux aux;
    int sums, precision;
} product;

enum { A, B, C, BIAS, AUX, SUMS, BUFFERS };

static wb__view view_of(const product *p, int buffer, int64_t rows, int64_t cols, bool turned,
                        bool shared)
{
    const int64_t row = (turned ? rows : cols) + p->apart;
    const int64_t matrix = row * (turned ? cols : rows) + (p->dense ? 0 : p->apart);
    const wb__view v = {.dtype = p->dtype, .buffer = buffer, .ndim = 3, .offset = p->offset,
                        .dims = {p->batch, rows, cols},
                        .strides = {shared ? 0 : matrix, turned ? 1 : row, turned ? row : 1}};
    const wb__view flat = {.dtype = p->dtype, .buffer = buffer, .ndim = 2, .offset = p->offset,
                           .dims = {rows, cols}, .strides = {v.strides[1], v.strides[2]}};
    return p->batch ? v : flat;         /* 0: without batch dimensions */
}

static wb__view vector_of(const product *p, int buffer, int64_t n)
{
    return (wb__view){.dtype = p->dtype, .buffer = buffer, .ndim = 1, .offset = p->offset,
                      .dims = {n}, .strides = {1}};
}

static wb__step step_of(const product *p)
{
    const bool bits = p->aux == WB__AUX_SIGNS || p->aux == WB__AUX_MASK;
    wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 3 + p->bias, .epilogue = p->act,
                  .aux_kind = p->aux, .sums_of = p->sums, .precision = (uint8_t)p->precision,
                  .views = {view_of(p, A, p->m, p->k, p->a_turned, false),
                            view_of(p, B, p->k, p->n, p->b_turned, p->b_shared),
                            view_of(p, C, p->m, p->n, p->c_turned, false),
                            vector_of(p, BIAS, p->n)}};
    s.sums = vector_of(p, SUMS, p->sums == WB__SUMS_OF_A ? p->m : p->n);
    s.aux = view_of(p, AUX, p->m, p->n, false, false);
    if (bits) {
        const int64_t row = wb__relu_bytes(p->n);
        s.aux = (wb__view){.dtype = WB_U8, .buffer = AUX, .ndim = 2, .offset = 0,
                           .dims = {p->m, row}, .strides = {row, 1}};
    }
    return s;
}

static int64_t size_of(const wb__view *v)
{
    int64_t last = v->offset;
    for (int i = 0; i < v->ndim; i++) last += (v->dims[i] - 1) * v->strides[i];
    return last + 1;
}

static int64_t at(const wb__view *v, int64_t z, int64_t i, int64_t j)
{
    const int64_t *s = v->strides + v->ndim - 2;
    return v->offset + (v->ndim > 2 ? z * v->strides[0] : 0) + i * s[0] + j * s[1];
}

/* Arrays of a step on the host and on the device. */
typedef struct {
    wb__view views[BUFFERS];
    void *x[BUFFERS], *memory[BUFFERS];
    size_t bytes[BUFFERS];
} arrays;

static void fill(arrays *r, const wb__step *s)
{
    static unsigned seed = 1;
    memcpy(r->views, s->views, 4 * sizeof *r->views);
    r->views[AUX] = s->aux;
    r->views[SUMS] = s->sums;
    for (int i = 0; i < BUFFERS; i++) {
        const wb_dtype t = r->views[i].dtype;
        const int64_t n = size_of(&r->views[i]);
        r->bytes[i] = (size_t)n * wb__dtype_size(t);
        assert_non_null(r->x[i] = malloc(r->bytes[i]));
        for (int64_t j = 0; j < n; j++) {
            seed = seed * 1664525u + 1013904223u;
            const double value = i == C || i == SUMS ? -77 : (double)(seed >> 8) / (1 << 23) - 1;
            if (t == WB_U8) ((uint8_t *)r->x[i])[j] = 0xA5;
            else put(r->x[i], t, j, value);
        }
        assert_non_null(r->memory[i] = b->allocate(d, r->bytes[i]));
        assert_int_equal(b->upload(d, r->memory[i], 0, r->x[i], r->bytes[i]), 0);
    }
}

static void empty(arrays *r)
{
    for (int i = 0; i < BUFFERS; i++) {
        b->release(d, r->memory[i], r->bytes[i]);
        free(r->x[i]);
    }
}

static void fetch(arrays *r)
{
    for (int i = 0; i < BUFFERS; i++)
        if (b->download(d, r->x[i], r->memory[i], 0, r->bytes[i])) fail_msg("%s", wb_error());
}

/* ---- the reference --------------------------------------------------------------------------- */

static double epsilon(wb_dtype t)
{
    return t == WB_F64 ? 1e-13 : t == WB_F32 ? 2e-6 : t == WB_F16 ? 2e-3 : 1.2e-2;
}

static void expect(double got, double want, double scale, const char *what)
{
    if (!(fabs(got - want) <= scale)) fail_msg("%s: %.9g, not %.9g", what, got, want);
}

/* One element of a·b, and the sum of its terms' magnitudes. */
static double dot(const product *p, const arrays *r, int64_t z, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 1;
    for (int64_t q = 0; q < p->k; q++) {
        const double term = get(r->x[A], p->dtype, at(&r->views[A], z, i, q)) *
                            get(r->x[B], p->dtype, at(&r->views[B], z, q, j));
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* z = a·b + bias after the epilogue.  A mask is computed from the signs of the same z. */
static double after(const product *p, double z, double aux)
{
    return p->aux == WB__AUX_ADDEND   ? z + aux
           : p->aux == WB__AUX_FACTOR ? z * row_value(p->act, aux)
                                      : row_value(p->act, z);
}

static void compare_sums(const product *p, const arrays *r)
{
    const bool of_a = p->sums == WB__SUMS_OF_A, of_b = p->sums == WB__SUMS_OF_B;
    const int64_t n = of_a ? p->m : p->n, over = of_a || of_b ? p->k : p->m;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, size = 1;
        for (int64_t q = 0; q < over; q++) {
            const double x = of_a ? get(r->x[A], p->dtype, at(&r->views[A], 0, i, q))
                           : of_b ? get(r->x[B], p->dtype, at(&r->views[B], 0, q, i))
                                  : get(r->x[C], p->dtype, at(&r->views[C], 0, q, i));
            sum += x;
            size += fabs(x);
        }
        expect(get(r->x[SUMS], p->dtype, p->offset + i), sum, epsilon(p->dtype) * 2 * size, "sums");
    }
}

static void compare(const product *p, const arrays *r)
{
    int64_t inside = 0, untouched = 0;
    for (int64_t z = 0; z < WB__MAX(p->batch, 1); z++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++, inside++) {
                double size, sum = dot(p, r, z, i, j, &size), aux = 0;
                const double tolerance = epsilon(p->dtype) * 2 * size;
                if (p->bias) sum += get(r->x[BIAS], p->dtype, p->offset + j);
                if (p->aux == WB__AUX_OPERAND || p->aux == WB__AUX_FACTOR ||
                    p->aux == WB__AUX_ADDEND)
                    aux = get(r->x[AUX], p->dtype, at(&r->views[AUX], z, i, j));
                if (p->aux == WB__AUX_OPERAND) expect(aux, sum, tolerance, "aux");
                expect(get(r->x[C], p->dtype, at(&r->views[C], z, i, j)), after(p, sum, aux),
                       tolerance, "c");
            }
    const int64_t all = size_of(&r->views[C]);
    for (int64_t i = 0; i < all; i++) untouched += get(r->x[C], p->dtype, i) == -77;
    assert_int_equal(untouched, all - inside);
    if (p->sums) compare_sums(p, r);
}

/* The real library accepts every descriptor and all its attributes. */
static void real_takes(const wb__step *s)
{
    wb__lt_problem problem;
    wb__lt_operands places;
    wb__lt_descriptors of;
    cublasLtMatmulPreference_t preference;
    const char *call = "";
    if (!has_lt || wb__lt_problem_of(s, &problem, &places)) return;
    int status = wb__lt_describe(&lt, &problem, &of, &call);
    if (status) fail_msg("the real %s gives %d", call, status);
    status = wb__lt_preference(&lt, &problem, &preference, &call);
    if (status) fail_msg("the real %s gives %d", call, status);
    lt.MatmulPreferenceDestroy(preference);
    wb__lt_undescribe(&lt, &of);
}

static void launch(const wb__step *s, arrays *r, const char *impl)
{
    const wb__number none = {.f = 0};
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s", wb_error());
    if (k->reason) fail_msg("%s", k->reason);
    assert_string_equal(k->impl, impl);
    void *workspace = b->allocate(d, k->workspace);
    for (int turn = 0; turn < 2; turn++)
        if (b->launch(d, k, r->memory, NULL, workspace, 0, &none)) fail_msg("%s", wb_error());
    fetch(r);
    b->release(d, workspace, k->workspace);
    b->destroy(d, k);
}

/* Computes the product and checks it; `impl` must be the kernel's implementation. */
static void run(const product *p, const char *impl)
{
    wb__step s = step_of(p);
    arrays r;
    real_takes(&s);
    fill(&r, &s);
    if (p->aux == WB__AUX_MASK) {               /* a forward product computes the mask */
        wb__step forward = s;
        forward.aux_kind = WB__AUX_SIGNS;
        forward.sums_of = WB__SUMS_NONE;
        launch(&forward, &r, "cuBLASLt relu");
    }
    launch(&s, &r, impl);
    compare(p, &r);
    empty(&r);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static const wb_dtype dtypes[] = {WB_F32, WB_F64, WB_F16, WB_BF16};

TEST(test_operands)
{
    for (size_t t = 0; t < WB__COUNT(dtypes); t++)
        for (int i = 0; i < 16; i++)
            run(&(product){.dtype = dtypes[t], .batch = i & 1, .m = 37, .n = 19, .k = 23,
                           .a_turned = i & 1, .b_turned = i & 2, .c_turned = i & 4,
                           .apart = i & 8 ? 5 : 0, .offset = i & 8 ? 11 : 0}, "cuBLASLt");
    run(&(product){.dtype = WB_F32, .m = 4096, .n = 1, .k = 7}, "cuBLASLt");
    run(&(product){.dtype = WB_F32, .m = 1, .n = 1, .k = 4096}, "cuBLASLt");
    run(&(product){.dtype = WB_F32, .m = 1, .n = 600, .k = 7, .b_turned = true}, "cuBLASLt");
    run(&(product){.dtype = WB_F32, .m = 90, .n = 60, .k = 1, .a_turned = true}, "cuBLASLt");
}

TEST(test_batches)
{
    for (int i = 0; i < 16; i++)
        run(&(product){.dtype = dtypes[i % 4], .batch = 5, .m = 17, .n = 9, .k = 12, .apart = i % 3,
                       .offset = 2, .b_shared = i & 1, .a_turned = i & 2, .b_turned = i & 4,
                       .c_turned = i & 8}, "cuBLASLt");
}

/* Batches that share b and are contiguous are one product, with which also epilogues that store a
 * second result are possible. */
TEST(test_batches_as_rows)
{
    for (int i = 0; i < 2; i++) {
        run(&(product){.dtype = WB_BF16, .batch = 3, .m = i ? 1 : 20, .n = 24, .k = 70,
                       .b_shared = true, .dense = true, .bias = true, .act = WB__OP_gelu,
                       .aux = WB__AUX_OPERAND},
            "cuBLASLt bias gelu");
        run(&(product){.dtype = WB_F32, .batch = 3, .m = i ? 1 : 20, .n = 24, .k = 70, .apart = 8,
                       .b_shared = true, .dense = true, .act = WB__OP_gelu_slope,
                       .aux = WB__AUX_FACTOR},
            "cuBLASLt gelu-back");
    }
}

TEST(test_behind_a_product)
{
    static const struct { wb__op act; wb__aux aux; bool bias; const char *impl; } list[] = {
        {WB__OP_NONE, WB__AUX_NONE, true, "cuBLASLt bias"},
        {WB__OP_relu, WB__AUX_NONE, false, "cuBLASLt relu"},
        {WB__OP_relu, WB__AUX_NONE, true, "cuBLASLt bias relu"},
        {WB__OP_gelu, WB__AUX_NONE, false, "cuBLASLt gelu"},
        {WB__OP_gelu, WB__AUX_NONE, true, "cuBLASLt bias gelu"},
        {WB__OP_gelu, WB__AUX_OPERAND, false, "cuBLASLt gelu"},
        {WB__OP_gelu, WB__AUX_OPERAND, true, "cuBLASLt bias gelu"},
        {WB__OP_relu, WB__AUX_SIGNS, false, "cuBLASLt relu"},
        {WB__OP_relu, WB__AUX_SIGNS, true, "cuBLASLt bias relu"},
        {WB__OP_gelu_slope, WB__AUX_FACTOR, false, "cuBLASLt gelu-back"},
        {WB__OP_relu, WB__AUX_MASK, false, "cuBLASLt relu-back"},
        {WB__OP_NONE, WB__AUX_ADDEND, false, "cuBLASLt addend"},
        {WB__OP_NONE, WB__AUX_ADDEND, true, "cuBLASLt bias addend"}};
    for (size_t i = 0; i < WB__COUNT(list); i++)
        for (size_t t = 0; t < WB__COUNT(dtypes); t++)
            for (int turned = 0; turned < 4; turned++) {
                if (dtypes[t] == WB_F64 && list[i].act != WB__OP_NONE &&
                    (list[i].aux || list[i].act == WB__OP_gelu))
                    continue;
                run(&(product){.dtype = dtypes[t], .m = 21, .n = 40, .k = 33,
                               .a_turned = turned & 1, .b_turned = turned & 2,
                               .bias = list[i].bias, .act = list[i].act, .aux = list[i].aux},
                    list[i].impl);
            }
}

/* cuBLASLt has no epilogue for these: it computes the product, and Weber's kernel the function, in
 * place. */
TEST(test_functions_of_ours)
{
    static const wb__op acts[] = {WB__OP_sigmoid, WB__OP_tanh, WB__OP_swish, WB__OP_erf};
    for (int i = 0; i < 8; i++)
        run(&(product){.dtype = dtypes[i % 4], .batch = i % 3, .m = 21, .n = 40, .k = 33,
                       .apart = i & 1, .offset = 3, .c_turned = i & 4, .bias = !(i & 4),
                       .act = acts[(i + i / 4) % 4]},
            i & 4 ? "cuBLASLt" : "cuBLASLt bias");
    run(&(product){.dtype = WB_F32, .m = 21, .n = 40, .k = 33, .c_turned = true,
                   .act = WB__OP_relu}, "cuBLASLt");
    run(&(product){.dtype = WB_F32, .m = 21, .n = 40, .k = 33, .c_turned = true,
                   .act = WB__OP_gelu}, "cuBLASLt");
}

TEST(test_beside_a_product)
{
    for (size_t t = 0; t < WB__COUNT(dtypes); t++)
        for (int turned = 0; turned < 8; turned++) {
            product p = {.dtype = dtypes[t], .m = 24, .n = 40, .k = 33, .a_turned = turned & 1,
                         .b_turned = turned & 2, .c_turned = turned & 4};
            if (p.dtype == WB_F64) continue;
            for (p.sums = WB__SUMS_OF_A; p.sums <= WB__SUMS_OF_B; p.sums++)
                run(&p, "cuBLASLt sums");
            if (p.c_turned) continue;
            p.sums = WB__SUMS_OF_C;
            p.act = WB__OP_gelu_slope, p.aux = WB__AUX_FACTOR;
            run(&p, "cuBLASLt gelu-back sums");
            p.act = WB__OP_relu, p.aux = WB__AUX_MASK;
            run(&p, "cuBLASLt relu-back sums");
        }
}

TEST(test_precision)
{
    for (int precision = WB__PRECISION_HIGHEST; precision <= WB__PRECISION_MEDIUM; precision++) {
        static const int compute[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                                      CUBLAS_COMPUTE_32F_FAST_16BF};
        wb__lt_problem problem;
        wb__lt_operands places;
        wb__step s = step_of(&(product){.dtype = WB_F32, .m = 32, .n = 32, .k = 32,
                                        .precision = precision});
        assert_null(wb__lt_problem_of(&s, &problem, &places));
        assert_int_equal(problem.compute, compute[precision]);
        assert_int_equal(problem.reductions, CUBLASLT_REDUCTION_SCHEME_MASK);
        s.deterministic = true;
        assert_null(wb__lt_problem_of(&s, &problem, &places));
        assert_int_equal(problem.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
        real_takes(&s);
    }
}

static void declines(const product *p, const char *expected)
{
    wb__lt_problem problem;
    wb__lt_operands places;
    const wb__step s = step_of(p);
    const char *reason = wb__lt_problem_of(&s, &problem, &places);
    assert_non_null(reason);
    assert_string_equal(reason, expected);
    assert_false(b->supports(d, &s));
}

TEST(test_left_to_ours)
{
    product p = {.dtype = WB_F32, .m = 20, .n = 40, .k = 30};
    wb__step s = step_of(&p);
    wb__kernel *k = NULL;
    p.act = WB__OP_tanh;
    declines(&p, "cuBLASLt: no such epilogue");
    p.act = WB__OP_relu, p.c_turned = true;
    declines(&p, "cuBLASLt: an epilogue of a transposed result");
    p.act = WB__OP_NONE, p.sums = WB__SUMS_OF_C, p.c_turned = false;
    declines(&p, "cuBLASLt: such sums with such an epilogue");
    p.sums = WB__SUMS_NONE, p.act = WB__OP_gelu, p.aux = WB__AUX_OPERAND, p.n = 41;
    declines(&p, "cuBLASLt: rows of the epilogue");
    p.act = WB__OP_NONE, p.aux = WB__AUX_NONE, p.m = p.n = p.k = 12;
    declines(&p, "cuBLASLt: too small");
    p.k = 0;
    declines(&p, "cuBLASLt: nothing to multiply");
    /* A step that cannot be computed is declined, never computed in part. */
    wb__gpu_work *work = NULL;
    const wb__gpu_target target = {.f64 = true, .max_items = 1024, .local_bytes = 48 << 10,
                                   .max_args_bytes = 4096};
    const product special[] = {
        {.dtype = WB_F32, .m = 20, .n = 41, .k = 30, .act = WB__OP_gelu, .aux = WB__AUX_OPERAND},
        {.dtype = WB_F64, .m = 20, .n = 40, .k = 30, .act = WB__OP_gelu, .aux = WB__AUX_OPERAND,
         .c_turned = true},
        {.dtype = WB_F32, .batch = 2, .m = 20, .n = 40, .k = 30, .sums = WB__SUMS_OF_A}};
    for (size_t i = 0; i < WB__COUNT(special); i++) {
        const wb__step asked = step_of(&special[i]);
        assert_int_equal(b->prepare(d, &asked, &k), WB_ERROR_UNSUPPORTED);
        assert_null(k);
        assert_int_equal(wb__gpu_step(&target, &asked, &work), WB_ERROR_INTERNAL);
        wb_clear_error();
    }
    s.views[0].strides[1] = 2;
    assert_int_equal(b->prepare(d, &s, &k), 0);
    assert_string_equal(k->reason, "cuBLASLt: strides");
    b->destroy(d, k);
}

/* ---- setup ----------------------------------------------------------------------------------- */

static void open_real(void)
{
    static const char *const names[] = {"/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib/libcublasLt.so.13"};
    static const struct { const char *name; size_t at; } functions[] = {
#define NAME(type, name, parameters) {"cublasLt" #name, offsetof(wb__lt_functions, name)},
        WB__LT_FUNCTIONS(NAME)
    };
    void *library = NULL;
    for (size_t i = 0; i < WB__COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    has_lt = library;
    for (size_t i = 0; has_lt && i < WB__COUNT(functions); i++) {
        void *found = dlsym(library, functions[i].name);
        has_lt = found;
        memcpy((char *)&lt + functions[i].at, &found, sizeof found);
    }
    print_message("the real cuBLASLt: %s\n", has_lt ? "asked too" : "not here");
}

int main(void)
{
#ifndef WB_TEST_CUDA_DOUBLE
    printf("SKIP: the double of CUDA was not built\n");
    return 77;
#endif
    b = &wb__cu_backend;
    if (b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    d = b->device(0);
    open_real();
    const int failed = run_all_cases();
    b->stop();
    return failed;
}
