/* The CPU's library operations (backend/cpu/lib.h) against plain loops in double precision, over
 * random shapes: odd, empty, strided, broadcast, grouped, dilated, padded on one side, in four
 * dtypes, with oneDNN and without, on 1 and 2 threads.  bench/cpu_lib_bench.c measures their speed.
 *
 * Tolerances: sums of f32 products within 8 * 2^-23 of the sum of their magnitudes (f64: 8 *
 * 2^-52), then the rounding of the stored dtype: 2^-11 for f16, 2^-8 for bf16.  Elements between
 * strides must not change. */
#include "backend/cpu/cpu.h"

#include "reference.h"

#include "row_value.h"

/* Random numbers. */

static uint64_t state;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int64_t between(int64_t low, int64_t high)
{
    return low + draw() % (uint64_t)(high - low + 1);
}
static bool chance(int one_in) { return draw() % (uint32_t)one_in == 0; }
static double value(void) { return (double)(draw() % 2001) / 1000 - 1; }

static const wb_dtype dtypes[] = { WB_F32, WB_F32, WB_F64, WB_F16, WB_BF16 };
static wb_dtype draw_dtype(void) { return dtypes[draw() % WB__COUNT(dtypes)]; }

/* Buffers: the operands of the operation, and the same values in double. */

typedef struct {
    wb_dtype type;
    int64_t n;
    void *data;                         /* 64 guard elements on either side */
    double *real;
} buffer;

enum { GUARD = 64 };
static const double MARK = 0.4375;      /* of elements that must not change; exact in all dtypes */

static double element(const void *data, wb_dtype type, int64_t i)
{
    double v;
    if (type == WB_F64) return ((const double *)data)[i];
    wb__convert(&v, WB_F64, (const char *)data + i * (int64_t)wb__dtype_size(type), type, 1);
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
static double stored(wb_dtype t)
{
    return t == WB_F16 ? ldexp(1, -11) : t == WB_BF16 ? ldexp(1, -8) : 0;
}

/* Compares b[i] with the expected value.  magnitude: the sum of the terms' magnitudes.  rounded: a
 * value that was rounded to the dtype before the epilogue, or 0. */
static void check_rounded(const buffer *b, int64_t i, double want, double magnitude, double rounded,
                          const char *what)
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

static void check_element(const buffer *b, int64_t i, double want, double magnitude,
                          const char *what)
{
    check_rounded(b, i, want, magnitude, 0, what);
}

/* An epilogue or none.  relu, tanh and sigmoid have code of their own in the kernels; the others
 * use the expressions of ops.def. */
static wb__op draw_epilogue(void)
{
    static const wb__op all[] = { WB__OP_relu, WB__OP_tanh, WB__OP_sigmoid, WB__OP_gelu,
                                  WB__OP_swish, WB__OP_softplus, WB__OP_elu, WB__OP_erf,
                                  WB__OP_sin, WB__OP_neg };
    return chance(2) ? WB__OP_NONE : all[draw() % WB__COUNT(all)];
}

/* The value that is rounded to the dtype before the epilogue: oneDNN's sum, where a second pass
 * computes the epilogue; else 0. */
static double rounded_before(wb__op act, double sum, const char *what)
{
    /* relu and neg are exact: the order of rounding does not matter */
    const bool at_once = act == WB__OP_NONE || act == WB__OP_tanh || act == WB__OP_sigmoid ||
                         act == WB__OP_relu || act == WB__OP_neg;
    return at_once || !strstr(what, "dnnl") ? 0 : sum;
}

static void run(wb__cpu_op *op, void *const *buffers)
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

/* Matrix products. */

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
    const double coarse = d->round && d->dtype == WB_F32 ? 0x1p12 : 1;
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
                                         { 5, 120, 100, 90 }, { 3, 200, 64, 64 } };
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

/* A product of f32 or bf16 gives the same bits for each number of threads. */
static void test_matmul_threads(void **unused)
{
    static const int64_t shapes[][3] = {{70, 1100, 33}, {64, 65, 700}, {1, 300, 777},
                                        {300, 1, 64}, {129, 500, 1281}};
    const int before = wb__threads();
    for (int i = 0; i < 3 * (int)WB__COUNT(shapes); i++) {
        const int64_t *s = shapes[i / 3];
        const wb_dtype type = i % 3 == 0 ? WB_BF16 : WB_F32;
        wb__matmul_desc d = {.dtype = type, .round = i % 3 == 1, .batch = {1, 2}, .m = s[0],
                             .n = s[1], .k = s[2], .a_b = {0, s[0] * s[2]}, .a_s = {s[2], 1},
                             .b_s = {1, s[2]}, .c_b = {0, s[0] * s[1]}, .c_s = {s[1], 1}};
        buffer a = make(type, 2 * s[0] * s[2], true), b = make(type, s[1] * s[2], true), c[3];
        for (int t = 0; t < 3; t++) {
            wb__cpu_op *op;
            c[t] = make(type, 2 * s[0] * s[1], false);
            wb__set_threads(t + 1);
            assert_int_equal(wb__cpu_matmul(&d, &op), 0);
            run(op, (void *[]){a.data, b.data, c[t].data, NULL});
            assert_memory_equal(c[t].data, c[0].data, (size_t)c[0].n * wb__dtype_size(type));
        }
        drop(&a), drop(&b), drop(&c[0]), drop(&c[1]), drop(&c[2]);
    }
    wb__set_threads(before);
}

/* Convolution. */

static int64_t at_nhwc(bool nhwc, int64_t n, int64_t c, int64_t h, int64_t w, int64_t C, int64_t H,
                       int64_t W)
{
    return nhwc ? ((n * H + h) * W + w) * C + c : ((n * C + c) * H + h) * W + w;
}

/* A view of shape [n, c, h, w] on contiguous memory in the layout NHWC or NCHW. */
static wb__view image_view(wb_dtype dtype, int buffer, int64_t n, int64_t c, int64_t h, int64_t w,
                           bool nhwc)
{
    wb__view v = {.dtype = dtype, .buffer = buffer, .ndim = 4, .dims = {n, c, h, w}};
    c = WB__MAX(c, 1), h = WB__MAX(h, 1), w = WB__MAX(w, 1);
    v.strides[0] = c * h * w, v.strides[1] = h * w, v.strides[2] = w, v.strides[3] = 1;
    if (nhwc) v.strides[1] = 1, v.strides[2] = w * c, v.strides[3] = c;
    return v;
}

/* The kernel of a convolution whose x and y are NHWC or NCHW. */
static wb__cpu_kernel *prepared(const wb__conv_desc *d, bool x_nhwc, bool y_nhwc)
{
    const int64_t biased = d->kind == WB__CONV_GRAD_INPUT ? d->c : d->k;
    wb__step s = {
        .kind = WB__STEP_CONV, .variant = d->kind, .n_views = 3 + d->has_bias, .epilogue = d->act,
        .views = {image_view(d->dtype, 0, d->n, d->c, d->h, d->w, x_nhwc),
                  image_view(d->dtype, 1, d->k, d->c / d->groups, d->kh, d->kw, false),
                  image_view(d->dtype, 2, d->n, d->k, d->oh, d->ow, y_nhwc),
                  {.dtype = d->dtype, .buffer = 3, .ndim = 1, .dims = {biased}, .strides = {1}}},
        .conv = {.groups = d->groups}};
    memcpy(s.conv.stride, d->stride, sizeof d->stride);
    memcpy(s.conv.dilation, d->dilation, sizeof d->dilation);
    memcpy(s.conv.pad, d->pad, sizeof d->pad);
    wb__cpu_kernel *k;
    assert_int_equal(wb__cpu_library(&s, &k), 0);
    return k;
}

static void run_kernel(wb__cpu_kernel *k, void *const *buffers)
{
    const size_t size = k->base.workspace;
    char *workspace = wb__alloc_aligned(size + 64);
    assert_non_null(workspace);
    memset(workspace, 0xff, size + 64);         /* NaN: the workspace is not initialised */
    for (int repeat = 0; repeat < 2; repeat++)
        assert_int_equal(k->launch(k, buffers, workspace, NULL), 0);
    for (int i = 0; i < 64; i++) assert_int_equal((unsigned char)workspace[size + i], 0xff);
    wb__free(workspace);
    assert_non_null(k->base.impl);
    k->destroy(k);
}

static void one_conv(wb__conv_desc d, bool x_nhwc, bool y_nhwc)
{
    const int64_t cg = d.c / d.groups, kg = d.k / d.groups;
    const int64_t nx = d.n * d.c * d.h * d.w, nw = d.k * cg * d.kh * d.kw,
                  ny = d.n * d.k * d.oh * d.ow;
    buffer x = make(d.dtype, nx, d.kind != WB__CONV_GRAD_INPUT),
           w = make(d.dtype, nw, d.kind != WB__CONV_GRAD_WEIGHT);
    buffer y = make(d.dtype, ny, d.kind != WB__CONV_FORWARD);
    buffer bias = make(d.dtype, d.kind == WB__CONV_GRAD_INPUT ? d.c : d.k, true);
    wb__cpu_kernel *kernel = prepared(&d, x_nhwc, y_nhwc);
    char what[300];
    snprintf(what, sizeof what,
             "conv kind %d %s n%d c%d %dx%d k%d %dx%d of %dx%d stride %d,%d dilation %d,%d "
             "pad %d,%d,%d,%d groups %d nhwc %d%d bias %d act %d %s",
             (int)d.kind, wb_dtype_name(d.dtype), (int)d.n, (int)d.c, (int)d.h, (int)d.w, (int)d.k,
             (int)d.kh, (int)d.kw, (int)d.oh, (int)d.ow, (int)d.stride[0], (int)d.stride[1],
             (int)d.dilation[0], (int)d.dilation[1], (int)d.pad[0], (int)d.pad[1], (int)d.pad[2],
             (int)d.pad[3], (int)d.groups, x_nhwc, y_nhwc, d.has_bias, (int)d.act,
             kernel->base.impl);
    run_kernel(kernel, (void *[]){ x.data, w.data, y.data, d.has_bias ? bias.data : NULL });
    buffer *out = d.kind == WB__CONV_FORWARD ? &y : d.kind == WB__CONV_GRAD_INPUT ? &x : &w;
    double *sum = calloc((size_t)out->n + 1, sizeof *sum),
           *magnitude = calloc((size_t)out->n + 1, sizeof *sum);
    const bool adjoint = d.kind == WB__CONV_GRAD_INPUT && (d.has_bias || d.act);
    for (int64_t n = 0; adjoint && d.has_bias && n < d.n; n++) for (int64_t c = 0; c < d.c; c++)
        for (int64_t i = 0; i < d.h; i++) for (int64_t j = 0; j < d.w; j++) {
            const int64_t xi = at_nhwc(x_nhwc, n, c, i, j, d.c, d.h, d.w);
            sum[xi] = bias.real[c], magnitude[xi] = fabs(bias.real[c]);
        }
    for (int64_t n = 0; n < d.n; n++) for (int64_t k = 0; k < d.k; k++)
        for (int64_t i = 0; i < d.oh; i++) for (int64_t j = 0; j < d.ow; j++) {
            const int64_t yi = at_nhwc(y_nhwc, n, k, i, j, d.k, d.oh, d.ow);
            if (d.kind == WB__CONV_FORWARD && d.has_bias)
                sum[yi] = bias.real[k], magnitude[yi] = fabs(bias.real[k]);
            for (int64_t c = 0; c < cg; c++)
                for (int64_t a = 0; a < d.kh; a++)
                    for (int64_t b = 0; b < d.kw; b++) {
                        int64_t r = i * d.stride[0] - d.pad[0] + a * d.dilation[0];
                        int64_t q = j * d.stride[1] - d.pad[2] + b * d.dilation[1];
                        if (r < 0 || r >= d.h || q < 0 || q >= d.w) continue;
                        int64_t xi = at_nhwc(x_nhwc, n, k / kg * cg + c, r, q, d.c, d.h, d.w);
                        int64_t wi = ((k * cg + c) * d.kh + a) * d.kw + b;
                        double t = d.kind == WB__CONV_FORWARD ? x.real[xi] * w.real[wi]
                                   : d.kind == WB__CONV_GRAD_INPUT  ? w.real[wi] * y.real[yi]
                                                              : x.real[xi] * y.real[yi];
                        int64_t o = d.kind == WB__CONV_FORWARD ? yi
                                    : d.kind == WB__CONV_GRAD_INPUT  ? xi
                                                               : wi;
                        sum[o] += t;
                        magnitude[o] += fabs(t);
                    }
        }
    for (int64_t i = 0; i < out->n; i++)
        check_rounded(out, i, row_value(d.act, sum[i]), magnitude[i],
                      adjoint ? magnitude[i] : rounded_before(d.act, sum[i], what), what);
    check_guards(out);
    free(sum), free(magnitude);
    drop(&x), drop(&w), drop(&y), drop(&bias);
}

/* Random padding, which may differ at the two ends, for a window of `size` elements along a side of
 * `length`.  Returns the number of windows. */
static int64_t draw_window(int64_t length, int64_t size, int64_t stride, int64_t dilation,
                           int64_t most_pad, int64_t pad[2])
{
    pad[0] = between(0, most_pad), pad[1] = chance(2) ? pad[0] : between(0, most_pad);
    int64_t free_steps = length + pad[0] + pad[1] - ((size - 1) * dilation + 1);
    return free_steps < 0 ? 0 : free_steps / stride + 1;
}

static void test_conv_drawn(void **unused)
{
    for (int i = 0; i < 450; i += fewer()) {
        state = (uint64_t)i * 91 + 3;
        draw();
        wb__conv_desc d = { .dtype = draw_dtype(), .kind = (wb__conv_kind)(i % 3), .groups = 1 };
        if (chance(4)) d.groups = between(1, 4);
        int64_t cg = chance(4) ? between(8, 20) : between(1, 5),
                kg = chance(4) ? between(8, 36) : between(1, 6);
        if (chance(8)) cg = kg = 1;
        d.n = chance(25) ? 0 : between(1, 4);
        d.c = cg * d.groups, d.k = kg * d.groups;
        d.h = chance(6) ? 1 : between(1, 14), d.w = chance(40) ? 0 : between(1, 15);
        d.kh = d.h == 1 && chance(2) ? 1 : between(1, 5), d.kw = between(1, 5);
        for (int s = 0; s < 2; s++) {
            d.stride[s] = chance(3) ? between(1, 3) : 1;
            d.dilation[s] = chance(4) ? between(1, 3) : 1;
        }
        d.oh = draw_window(d.h, d.kh, d.stride[0], d.dilation[0], d.kh, d.pad);
        d.ow = draw_window(d.w, d.kw, d.stride[1], d.dilation[1], d.kw, d.pad + 2);
        const bool x_nhwc = chance(2), y_nhwc = chance(5) ? !x_nhwc : x_nhwc;
        if (d.kind == WB__CONV_FORWARD || (d.kind == WB__CONV_GRAD_INPUT && chance(3)))
            d.has_bias = chance(2), d.act = draw_epilogue();
        one_conv(d, x_nhwc, y_nhwc);
    }
}

static void test_conv_named(void **unused)
{
    static const int shapes[][8] = {    /* n, c, k, side of x, side of y, kernel, stride, pad */
        { 3, 1, 6, 28, 24, 5, 1, 0 }, { 5, 6, 16, 12, 8, 5, 1, 0 }, { 2, 3, 32, 32, 32, 3, 1, 1 },
        { 2, 16, 32, 32, 16, 3, 2, 1 }, { 2, 64, 64, 8, 8, 3, 1, 1 }, { 1, 20, 17, 9, 9, 1, 1, 0 },
    };
    for (int i = 0; i < 12 * (int)WB__COUNT(shapes); i += fewer()) {
        const int *s = shapes[i / 12];
        state = (uint64_t)i;
        wb__conv_desc d = { .dtype = i % 12 < 6   ? WB_F32
                                     : i % 12 < 9 ? WB_BF16
                                                  : WB_F64,
                            .kind = (wb__conv_kind)(i % 3),
                            .n = s[0],
                            .c = s[1],
                            .k = s[2],
                            .h = s[3],
                            .w = s[3],
                            .oh = s[4],
                            .ow = s[4],
                            .kh = s[5],
                            .kw = s[5],
                            .stride = { s[6], s[6] },
                            .dilation = { 1, 1 },
                            .groups = 1,
                            .pad = { s[7], s[7], s[7], s[7] } };
        d.has_bias = d.kind == WB__CONV_FORWARD;
        d.act = d.has_bias ? WB__OP_relu : WB__OP_NONE;
        one_conv(d, i % 6 < 3, i % 6 < 3);
    }
}

/* Pooling. */

static void one_pool(wb__pool_desc d, bool ties, bool nans)
{
    const int64_t nx = d.n * d.c * d.h * d.w, ny = d.n * d.c * d.oh * d.ow;
    buffer x = make(d.dtype, nx, true), v = make(d.dtype, nx, true), y = make(d.dtype, ny, true);
    buffer out_y = make(d.dtype, ny, false), out_x = make(d.dtype, nx, false);
    for (int64_t i = 0; i < nx; i++) {
        double e = nans && chance(9) ? NAN : ties ? (double)between(0, 2) : x.real[i];
        wb__convert((char *)x.data + (size_t)i * wb__dtype_size(d.dtype), d.dtype, &e, WB_F64, 1);
        x.real[i] = e;
    }
    wb__cpu_op *op;
    assert_int_equal(wb__cpu_pool(&d, &op), 0);
    const wb__pool_kind kind = d.kind;
    char what[200];
    snprintf(what, sizeof what, "pool kind %d %s n%d c%d %dx%d window %dx%d out %dx%d nhwc %d %s",
             (int)kind, wb_dtype_name(d.dtype), (int)d.n, (int)d.c, (int)d.h, (int)d.w, (int)d.kh,
             (int)d.kw, (int)d.oh, (int)d.ow, d.nhwc, op->impl);
    buffer *out = kind == WB__POOL_MAX_GRAD || kind == WB__POOL_MEAN_GRAD ? &out_x : &out_y;
    run(op, kind == WB__POOL_MAX_GRAD    ? (void *[]){ x.data, y.data, out_x.data }
            : kind == WB__POOL_MAX_GATHER  ? (void *[]){ x.data, v.data, out_y.data }
            : kind == WB__POOL_MEAN_GRAD ? (void *[]){ y.data, out_x.data }
                                         : (void *[]){ x.data, out_y.data });
    double *want = calloc((size_t)out->n + 1, sizeof *want);
    for (int64_t n = 0; n < d.n; n++) for (int64_t c = 0; c < d.c; c++)
        for (int64_t i = 0; i < d.oh; i++) for (int64_t j = 0; j < d.ow; j++) {
            const int64_t yi = at_nhwc(d.nhwc, n, c, i, j, d.c, d.oh, d.ow);
            int64_t best = -1;
            for (int64_t a = 0; a < d.kh; a++) for (int64_t b = 0; b < d.kw; b++) {
                int64_t r = i * d.stride[0] - d.pad[0] + a, q = j * d.stride[1] - d.pad[2] + b;
                if (r < 0 || r >= d.h || q < 0 || q >= d.w) continue;
                int64_t xi = at_nhwc(d.nhwc, n, c, r, q, d.c, d.h, d.w);
                if (kind == WB__POOL_MEAN) want[yi] += x.real[xi] / (double)(d.kh * d.kw);
                if (kind == WB__POOL_MEAN_GRAD) want[xi] += y.real[yi] / (double)(d.kh * d.kw);
                if (best < 0 || x.real[xi] > x.real[best]
                    || (isnan(x.real[xi]) && !isnan(x.real[best])))
                    best = xi;
            }
            if (kind == WB__POOL_MAX) want[yi] = best < 0 ? -INFINITY : x.real[best];
            if (kind == WB__POOL_MAX_GATHER) want[yi] = best < 0 ? 0 : v.real[best];
            if (kind == WB__POOL_MAX_GRAD && best >= 0) want[best] += y.real[yi];
        }
    for (int64_t i = 0; i < out->n; i++) {
        if (isinf(want[i])) assert_true(element(out->data, d.dtype, i) == want[i]);
        else check_element(out, i, want[i], 4, what);
    }
    check_guards(out);
    free(want);
    drop(&x), drop(&v), drop(&y), drop(&out_x), drop(&out_y);
}

static void test_pool_drawn(void **unused)
{
    for (int i = 0; i < 500; i += fewer()) {
        state = (uint64_t)i * 13 + 7;
        draw();
        wb__pool_desc d = { .dtype = draw_dtype(),
                            .kind = (wb__pool_kind)(i % 5),
                            .nhwc = chance(2) };
        d.n = chance(25) ? 0 : between(1, 3), d.c = chance(30) ? 0 : between(1, 40);
        d.h = between(1, 13), d.w = chance(12) ? between(250, 600) : between(1, 13);
        d.kh = between(1, 4), d.kw = between(1, 4);
        d.stride[0] = chance(2) ? d.kh : between(1, 4),
        d.stride[1] = chance(2) ? d.kw : between(1, 4);
        d.oh = draw_window(d.h, d.kh, d.stride[0], 1, d.kh - 1, d.pad);
        d.ow = draw_window(d.w, d.kw, d.stride[1], 1, d.kw - 1, d.pad + 2);
        one_pool(d, chance(2), d.kind != WB__POOL_MEAN && chance(4));
    }
}

/* The same bits whoever computes a part: inside a body of wb__parallel one thread does all. */

typedef struct { wb__cpu_op *op; void *buffers[4]; char *workspace; } one_run;

static void run_once(void *ctx, int64_t i)
{
    const one_run *r = ctx;
    if (!i) r->op->run(r->op, r->buffers, r->workspace);
}

static void same_bits(wb__cpu_op *op, buffer *const from[4], int out)
{
    assert_non_null(op);
    one_run r = { op, { from[0]->data, from[1]->data, from[2]->data, from[3]->data },
                  wb__alloc_aligned(op->workspace + 64) };
    assert_non_null(r.workspace);
    run_once(&r, 0);
    const size_t bytes = (size_t)from[out]->n * wb__dtype_size(from[out]->type);
    void *want = malloc(bytes);
    assert_non_null(want);
    memcpy(want, from[out]->data, bytes);
    memset(from[out]->data, 0xff, bytes);
    wb__parallel(2, run_once, &r);
    assert_memory_equal(from[out]->data, want, bytes);
    free(want);
    wb__free(r.workspace);
    op->destroy(op);
}

static void test_same_bits(void **unused)
{
    for (int i = 0; i < 16; i++) {
        const wb_dtype type = i / 4 % 2 ? WB_BF16 : WB_F32;
        const int64_t n = i < 8 ? 1 : 5;
        wb__conv_desc d = { .dtype = type, .kind = (wb__conv_kind)(i % 3), .n = n, .c = 32, .h = 18,
                            .w = 17, .k = 48, .kh = 3, .kw = 3, .oh = 18, .ow = 17,
                            .stride = { 1, 1 }, .dilation = { 1, 1 }, .pad = { 1, 1, 1, 1 },
                            .groups = 1 };
        wb__matmul_desc m = { .dtype = type, .batch = { n, 1 }, .m = 130, .n = 120, .k = 200,
                              .a_b = { 130 * 200 }, .b_b = { 200 * 120 }, .c_b = { 130 * 120 },
                              .a_s = { 200, 1 }, .b_s = { 120, 1 }, .c_s = { 120, 1 } };
        const bool product = i % 4 == 3;
        buffer a = make(type, product ? n * 130 * 200 : n * 32 * 18 * 17, true),
               b = make(type, product ? n * 200 * 120 : 32 * 48 * 9, true),
               c = make(type, product ? n * 130 * 120 : n * 48 * 18 * 17, true);
        wb__cpu_op *op;
        assert_int_equal(product ? wb__cpu_matmul(&m, &op) : wb__cpu_conv(&d, &op), 0);
        const int out = product || d.kind == WB__CONV_FORWARD ? 2
                      : d.kind == WB__CONV_GRAD_INPUT ? 0 : 1;
        same_bits(op, (buffer *[]){ &a, &b, &c, &c }, out);
        drop(&a), drop(&b), drop(&c);
    }
}

/* Each test with our own kernels and, if it is built in, with oneDNN; with 1 and 2 threads. */

static void set_up(const char *onednn, int threads)
{
    setenv("WEBER_ONEDNN", onednn, 1);
    wb__set_threads(threads);
}

static int own_1(void **unused) { (void)unused; set_up("0", 1); return 0; }
static int own_2(void **unused) { (void)unused; set_up("0", 2); return 0; }
#ifdef WB_HAVE_DNNL
static int library_1(void **unused) { (void)unused; set_up("1", 1); return 0; }
static int library_2(void **unused) { (void)unused; set_up("1", 2); return 0; }
static int library_3(void **unused) { (void)unused; set_up("1", 3); return 0; }
static int library_8(void **unused) { (void)unused; set_up("1", 8); return 0; }
#endif

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAYS(test_matmul_drawn), WAYS(test_matmul_large), WAYS(test_matmul_threads),
        WAYS(test_conv_drawn), WAYS(test_conv_named), WAYS(test_pool_drawn), WAYS(test_same_bits),
        PIECES(test_matmul_large) PIECES(test_conv_named) PIECES(test_same_bits)
    };
    return cmocka_run_group_tests_name("cpu_lib", tests, NULL, NULL);
}
