/* What cpu_lib.c and cpu_products.c share: operands with the same values in double, comparisons,
 * and the ways to run a test.
 *
 * Tolerances: sums of f32 products within 8 * 2^-23 of the sum of their magnitudes (f64: 8 *
 * 2^-52), then the rounding of the stored dtype: 2^-11 for f16, 2^-8 for bf16.  Elements between
 * strides must not change. */
#include "backend/cpu/cpu.h"

#include "reference.h"

#include "row_value.h"

/* Random numbers. */

static uint64_t state;

static inline uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static inline int64_t between(int64_t low, int64_t high)
{
    return low + draw() % (uint64_t)(high - low + 1);
}
static inline bool chance(int one_in) { return draw() % (uint32_t)one_in == 0; }
static inline double value(void) { return (double)(draw() % 2001) / 1000 - 1; }

static const wb_dtype dtypes[] = { WB_F32, WB_F32, WB_F64, WB_F16, WB_BF16 };
static inline wb_dtype draw_dtype(void) { return dtypes[draw() % WB__COUNT(dtypes)]; }

/* Buffers: the operands of the operation, and the same values in double. */

typedef struct {
    wb_dtype type;
    int64_t n;
    void *data;                         /* 64 guard elements on either side */
    double *real;
} buffer;

enum { GUARD = 64 };
static const double MARK = 0.4375;      /* of elements that must not change; exact in all dtypes */

static inline double element(const void *data, wb_dtype type, int64_t i)
{
    double v;
    if (type == WB_F64) return ((const double *)data)[i];
    wb__convert(&v, WB_F64, (const char *)data + i * (int64_t)wb__dtype_size(type), type, 1);
    return v;
}

static inline buffer make(wb_dtype type, int64_t n, bool random)
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

static inline void drop(buffer *b)
{
    wb__free((char *)b->data - GUARD * wb__dtype_size(b->type));
    free(b->real);
}

static inline void check_guards(const buffer *b)
{
    for (int64_t i = 1; i <= GUARD; i++) {
        assert_true(element(b->data, b->type, -i) == MARK);
        assert_true(element(b->data, b->type, b->n + i - 1) == MARK);
    }
}

static inline double unit(wb_dtype t) { return t == WB_F64 ? ldexp(1, -52) : ldexp(1, -23); }
static inline double stored(wb_dtype t)
{
    return t == WB_F16 ? ldexp(1, -11) : t == WB_BF16 ? ldexp(1, -8) : 0;
}

/* Compares b[i] with the expected value.  magnitude: the sum of the terms' magnitudes.  rounded: a
 * value that was rounded to the dtype before the epilogue, or 0. */
static inline void check_rounded(const buffer *b, int64_t i, double want, double magnitude,
                                 double rounded, const char *what)
{
    const double got = element(b->data, b->type, i);
    const double allowed = 8 * unit(b->type) * (magnitude + 1)
                         + stored(b->type) * (fabs(want) + 1.2 * fabs(rounded))
                         + (b->type == WB_F16 ? 3e-8 : 0);
    if (!(fabs(got - want) <= allowed) && !(isnan(got) && isnan(want))) {
        print_error("%s: element %lld is %.9g, not %.9g within %.3g\n", what, (long long)i, got,
                    want, allowed);
        fail();
    }
}

static inline void check_element(const buffer *b, int64_t i, double want, double magnitude,
                                 const char *what)
{
    check_rounded(b, i, want, magnitude, 0, what);
}

/* An epilogue or none.  relu, tanh and sigmoid have code of their own in the kernels; the others
 * use the expressions of ops.def. */
static inline wb__op draw_epilogue(void)
{
    static const wb__op all[] = { WB__OP_relu, WB__OP_tanh, WB__OP_sigmoid, WB__OP_gelu,
                                  WB__OP_swish, WB__OP_softplus, WB__OP_elu, WB__OP_erf,
                                  WB__OP_sin, WB__OP_neg };
    return chance(2) ? WB__OP_NONE : all[draw() % WB__COUNT(all)];
}

/* The value that is rounded to the dtype before the epilogue: oneDNN's sum, where a second pass
 * computes the epilogue; else 0. */
static inline double rounded_before(wb__op act, double sum, const char *what)
{
    /* relu and neg are exact: the order of rounding does not matter */
    const bool at_once = act == WB__OP_NONE || act == WB__OP_tanh || act == WB__OP_sigmoid ||
                         act == WB__OP_relu || act == WB__OP_neg;
    return at_once || !strstr(what, "dnnl") ? 0 : sum;
}

static inline void run(wb__cpu_op *op, void *const *buffers)
{
    char *workspace = wb__alloc_aligned(op->workspace + 64);
    assert_non_null(workspace);
    memset(workspace, 0xff, op->workspace + 64); /* NaN: the workspace is not initialised */
    for (int repeat = 0; repeat < 2; repeat++) op->run(op, buffers, workspace);
    for (int i = 0; i < 64; i++)
        assert_int_equal((unsigned char)workspace[op->workspace + i], 0xff);
    wb__free(workspace);
    assert_non_null(op->impl);
    op->destroy(op);
}

/* Each test with our own kernels and, if it is built in, with oneDNN; with 1 and 2 threads. */

static inline void set_up(const char *onednn, int threads)
{
    setenv("WEBER_ONEDNN", onednn, 1);
    setenv("WEBER_WINOGRAD", "0", 1);   /* cpu_winograd.c tests it */
    wb__set_threads(threads);
}

static inline int own_1(void **unused) { (void)unused; set_up("0", 1); return 0; }
static inline int own_2(void **unused) { (void)unused; set_up("0", 2); return 0; }
#ifdef WB_HAVE_DNNL
static inline int library_1(void **unused) { (void)unused; set_up("1", 1); return 0; }
static inline int library_2(void **unused) { (void)unused; set_up("1", 2); return 0; }
static inline int library_3(void **unused) { (void)unused; set_up("1", 3); return 0; }
static inline int library_8(void **unused) { (void)unused; set_up("1", 8); return 0; }
#endif

#define OWN_WAYS(f)                                                                             \
    { #f ", own kernels, 1 thread", f, own_1, NULL, NULL },                                     \
    { #f ", own kernels, 2 threads", f, own_2, NULL, NULL }
#ifdef WB_HAVE_DNNL
#define WAYS(f)                                                                                 \
    { #f ", own kernels, 1 thread", f, own_1, NULL, NULL },                                     \
    { #f ", own kernels, 2 threads", f, own_2, NULL, NULL },                                    \
    { #f ", oneDNN, 1 thread", f, library_1, NULL, NULL },                                      \
    { #f ", oneDNN, 2 threads", f, library_2, NULL, NULL }
/* The pieces of oneDNN's operations. */
#define PIECES(f)                                                                               \
    { #f ", oneDNN, 3 threads", f, library_3, NULL, NULL },                                     \
    { #f ", oneDNN, 8 threads", f, library_8, NULL, NULL },
#else
#define PIECES(f)
#define WAYS(f)                                                                                 \
    { #f ", own kernels, 1 thread", f, own_1, NULL, NULL },                                     \
    { #f ", own kernels, 2 threads", f, own_2, NULL, NULL }
#endif
