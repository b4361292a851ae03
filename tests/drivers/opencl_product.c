/* Products by CLBlast, which this test also asks for small products, that otherwise use Weber's
 * kernels: all layouts of the operands, batches, epilogues, and the products that CLBlast does not
 * support. */
#include "test.h"

#include "row_value.h"

#include "backend/backend.h"
#include "backend/kinds.h"

#include <dlfcn.h>

static const wb__backend *b;
static const wb_device *d;

static int begin(void **state)
{
    setenv("WEBER_OPENCL_CLBLAST", "1", 1);
    b = &wb__cl_backend;
    if (b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    d = b->device(0);
    return 0;
}

static int end(void **state)
{
    b->stop();
    return 0;
}

/* ---- one product ----------------------------------------------------------------------------- */

/* Batches of a (m x k) times b (k x n).  Operands begin at an offset and have gaps of `apart`
 * elements between their rows; turned: transposed in memory. */
typedef struct {
    wb_dtype dtype;
    int64_t batch, m, n, k, apart, offset;
    bool a_turned, b_turned, c_turned, b_shared, bias;
    wb__op act;
} product;

static wb__view view_of(const product *p, int buffer, int64_t rows, int64_t cols, bool turned,
                        bool shared)
{
    const int64_t row = (turned ? rows : cols) + p->apart;
    return (wb__view){.dtype = p->dtype, .buffer = buffer, .ndim = 3, .offset = p->offset,
                      .dims = {p->batch, rows, cols},
                      .strides = {shared ? 0 : row * (turned ? cols : rows) + p->apart,
                                  turned ? 1 : row, turned ? row : 1}};
}

static int64_t size_of(const wb__view *v)
{
    int64_t last = v->offset;
    for (int i = 0; i < v->ndim; i++) last += (v->dims[i] - 1) * v->strides[i];
    return last + 1;
}

static int64_t at(const wb__view *v, int64_t z, int64_t i, int64_t j)
{
    return v->offset + z * v->strides[0] + i * v->strides[1] + j * v->strides[2];
}

static double get(const void *x, wb_dtype t, int64_t i)
{
    return t == WB_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void compare(const product *p, const wb__step *s, void *const *x)
{
    const wb__view *v = s->views;
    const double tolerance = p->dtype == WB_F64 ? 1e-13 : 2e-6;
    int64_t inside = 0;
    for (int64_t z = 0; z < p->batch; z++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                double sum = 0, size = 1;
                for (int64_t q = 0; q < p->k; q++) {
                    const double term = get(x[0], p->dtype, at(&v[0], z, i, q)) *
                                        get(x[1], p->dtype, at(&v[1], z, q, j));
                    sum += term;
                    size += fabs(term);
                }
                if (p->bias) sum += get(x[3], p->dtype, p->offset + j);
                const double got = get(x[2], p->dtype, at(&v[2], z, i, j));
                if (!(fabs(got - row_value(p->act, sum)) <= tolerance * size))
                    fail_msg("[%d,%d,%d]: %.9g, not %.9g", (int)z, (int)i, (int)j, got,
                             row_value(p->act, sum));
                inside++;
            }
    int64_t untouched = 0;
    for (int64_t i = 0; i < size_of(&v[2]); i++) untouched += get(x[2], p->dtype, i) == -77;
    assert_int_equal(untouched, size_of(&v[2]) - inside);
}

/* Computes the product and checks it; `impl` must be the kernel's implementation (NULL: any),
 * `reason` the reason why no library computes it (NULL: there must be none). */
static void run(const product *p, const char *impl, const char *reason)
{
    const size_t element = wb__dtype_size(p->dtype);
    wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 3 + p->bias, .epilogue = p->act,
                  .views = {view_of(p, 0, p->m, p->k, p->a_turned, false),
                            view_of(p, 1, p->k, p->n, p->b_turned, p->b_shared),
                            view_of(p, 2, p->m, p->n, p->c_turned, false),
                            {.dtype = p->dtype, .buffer = 3, .ndim = 1, .offset = p->offset,
                             .dims = {p->n}, .strides = {1}}}};
    void *x[4], *memory[4];
    unsigned seed = 1;
    for (int i = 0; i < 4; i++) {
        const size_t n = (size_t)size_of(&s.views[i]);
        x[i] = malloc(n * element);
        for (size_t j = 0; j < n; j++) {
            seed = seed * 1664525u + 1013904223u;
            const double value = i == 2 ? -77 : (double)(seed >> 8) / (1 << 23) - 1;
            if (p->dtype == WB_F64) ((double *)x[i])[j] = value;
            else ((float *)x[i])[j] = (float)value;
        }
        assert_non_null(memory[i] = b->allocate(d, n * element));
        assert_int_equal(b->upload(d, memory[i], 0, x[i], n * element), 0);
    }
    wb__kernel *k = NULL;
    if (b->prepare(d, &s, &k)) fail_msg("%s", wb_error());
    if (impl) assert_string_equal(k->impl, impl);
    if (reason) assert_string_equal(k->reason, reason);
    else assert_null(k->reason);
    void *workspace = b->allocate(d, k->workspace);
    const wb__number none = {.f = 0};
    for (int turn = 0; turn < 2; turn++)
        if (b->launch(d, k, memory, NULL, workspace, 0, &none)) fail_msg("%s", wb_error());
    if (b->download(d, x[2], memory[2], 0, (size_t)size_of(&s.views[2]) * element))
        fail_msg("%s", wb_error());
    compare(p, &s, x);
    b->release(d, workspace, k->workspace);
    b->destroy(d, k);
    for (int i = 0; i < 4; i++) {
        b->release(d, memory[i], (size_t)size_of(&s.views[i]) * element);
        free(x[i]);
    }
}

static void need_clblast(void)
{
    if (b->part("CLBlast") == 1) return;
    print_message("SKIP: %s\n", wb_error());
    skip();
}

/* ---- the tests ------------------------------------------------------------------------------- */

TEST(test_operands)
{
    need_clblast();
    for (int i = 0; i < 9; i++)                 /* f64 once: each kind is compiled */
        run(&(product){.dtype = i & 8 ? WB_F64 : WB_F32, .batch = 1, .m = 37, .n = 19, .k = 23,
                       .a_turned = i & 1, .b_turned = i & 2, .apart = i & 4 ? 5 : 0,
                       .offset = i & 4 ? 11 : 0}, "CLBlast", NULL);
    run(&(product){.dtype = WB_F32, .batch = 1, .m = 1, .n = 1, .k = 1}, "CLBlast", NULL);
    run(&(product){.dtype = WB_F32, .batch = 1, .m = 40, .n = 1, .k = 7}, "CLBlast", NULL);
    run(&(product){.dtype = WB_F32, .batch = 1, .m = 1, .n = 40, .k = 7, .b_turned = true},
        "CLBlast", NULL);
}

TEST(test_batches)
{
    need_clblast();
    for (int i = 0; i < 2; i++)
        run(&(product){.dtype = WB_F32, .batch = 5, .m = 17, .n = 9, .k = 12, .apart = 3,
                       .offset = 2, .b_shared = i, .a_turned = i}, "CLBlast", NULL);
}

TEST(test_behind_a_product)
{
    need_clblast();
    static const wb__op acts[] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh, WB__OP_sigmoid,
                                  WB__OP_swish};
    for (int e = 0; e < (int)WB__COUNT(acts); e++)
        for (int bias = 0; bias < 2; bias++)
            run(&(product){.dtype = e == 2 && !bias ? WB_F64 : WB_F32, .batch = 1 + bias,
                           .m = 10, .n = 33, .k = 8, .apart = 1, .offset = 3, .bias = bias,
                           .act = acts[e]}, "CLBlast", NULL);
}

/* Sizes at which CLBlast pads its operands first. */
TEST(test_large)
{
    need_clblast();
    run(&(product){.dtype = WB_F32, .batch = 1, .m = 600, .n = 500, .k = 40, .b_turned = true},
        "CLBlast", NULL);
}

TEST(test_left_to_ours)
{
    product p = {.dtype = WB_F32, .batch = 1, .m = 20, .n = 30, .k = 10};
    if (b->part("CLBlast") == 1) {
        p.c_turned = true;
        run(&p, NULL, "CLBlast: the result is transposed");
        p.c_turned = false;
    }
    setenv("WEBER_OPENCL_CLBLAST", "0", 1);
    run(&p, NULL, "CLBlast: disabled");
    unsetenv("WEBER_OPENCL_CLBLAST");
    run(&p, NULL, "CLBlast: no faster on a CPU");
    setenv("WEBER_OPENCL_CLBLAST", "1", 1);
}

int main(void) { return run_cases(begin, end); }
