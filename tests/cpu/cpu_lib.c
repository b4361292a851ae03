/* The CPU's convolutions and pools (backend/cpu/lib.h) against plain loops in double precision,
 * over random shapes: odd, empty, grouped, dilated, padded on one side, in four dtypes, with
 * oneDNN and without, on 1 to 8 threads; and products and convolutions whose parts any thread may
 * compute. bench/cpu_lib_bench.c measures their speed. */
#include "cpu_operations.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Shapes for which oneDNN 2.6 gives wrong gradients in bf16 (dnnl.c, computes_wrongly): with a
 * stride, where a column of the window meets padding only; windows of 1 by 1 with an odd number of
 * channels; groups with dilation. */
static void test_conv_bf16(void **unused)
{
    static const wb__conv_desc shapes[] = {
        { .n = 1, .c = 64, .k = 64, .h = 4, .w = 1, .oh = 2, .ow = 1, .kh = 3, .kw = 3, .groups = 1,
          .stride = { 2, 2 }, .dilation = { 1, 1 }, .pad = { 1, 1, 1, 1 } },
        { .n = 2, .c = 4, .k = 8, .h = 5, .w = 1, .oh = 4, .ow = 2, .kh = 2, .kw = 3, .groups = 1,
          .stride = { 1, 2 }, .dilation = { 1, 1 }, .pad = { 0, 0, 2, 2 } },
        { .n = 1, .c = 16, .k = 21, .h = 30, .w = 30, .oh = 30, .ow = 30, .kh = 1, .kw = 1,
          .groups = 1, .stride = { 1, 1 }, .dilation = { 1, 1 } },
        { .n = 1, .c = 16, .k = 16, .h = 30, .w = 32, .oh = 30, .ow = 32, .kh = 3, .kw = 3,
          .groups = 16, .stride = { 1, 1 }, .dilation = { 2, 2 }, .pad = { 2, 2, 2, 2 } } };
    for (int i = 0; i < 3 * (int)WB__COUNT(shapes); i++) {
        wb__conv_desc d = shapes[i / 3];
        d.dtype = WB_BF16;
        d.kind = (wb__conv_kind)(i % 3);
        state = (uint64_t)i;
        one_conv(d, false, false);
        one_conv(d, true, true);
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
    for (int i = 0; i < 28; i++) {
        const wb_dtype type = i < 16 && i / 4 % 2 ? WB_BF16 : WB_F32;
        const int64_t n = i < 8 ? 1 : 5, few = i < 16 ? 32 : i < 22 ? 1 : 3;
        wb__conv_desc d = { .dtype = type, .kind = (wb__conv_kind)(i % 3), .n = n, .c = few,
                            .h = 18, .w = 17, .k = few < 32 ? 7 : 48, .kh = 3, .kw = 3, .oh = 18,
                            .ow = 17,
                            .stride = { 1, 1 }, .dilation = { 1, 1 }, .pad = { 1, 1, 1, 1 },
                            .groups = 1 };
        wb__matmul_desc m = { .dtype = type, .batch = { n, 1 }, .m = 130, .n = 120, .k = 200,
                              .a_b = { 130 * 200 }, .b_b = { 200 * 120 }, .c_b = { 130 * 120 },
                              .a_s = { 200, 1 }, .b_s = { 120, 1 }, .c_s = { 120, 1 } };
        const bool product = i < 16 && i % 4 == 3;
        buffer a = make(type, product ? n * 130 * 200 : n * few * 18 * 17, true),
               b = make(type, product ? n * 200 * 120 : few * d.k * 9, true),
               c = make(type, product ? n * 130 * 120 : n * d.k * 18 * 17, true);
        wb__cpu_op *op;
        assert_int_equal(product ? wb__cpu_matmul(&m, &op) : wb__cpu_conv(&d, &op), 0);
        const int out = product || d.kind == WB__CONV_FORWARD ? 2
                      : d.kind == WB__CONV_GRAD_INPUT ? 0 : 1;
        same_bits(op, (buffer *[]){ &a, &b, &c, &c }, out);
        drop(&a), drop(&b), drop(&c);
    }
}

/* ---- little memory --------------------------------------------------------------------------- */

enum { OURS, CRASHES_OR_DIFFERS, WITHOUT_ONEDNN };
static int warnings;

static void count_warnings(wb_log_level level, const char *text, void *ctx)
{
    warnings += level == WB_LOG_WARN && strstr(text, "oneDNN is not used") != NULL;
}

/* Prepares a large product and a large convolution.  Returns whether oneDNN computes one of them;
 * -1: failed.  *reasons: how many have the reason that oneDNN has no memory. */
static int prepare_large(int *reasons)
{
    const wb__conv_desc d = { .dtype = WB_F32, .n = 2, .c = 64, .h = 28, .w = 28, .k = 64, .kh = 3,
                              .kw = 3, .oh = 26, .ow = 26, .stride = { 1, 1 },
                              .dilation = { 1, 1 }, .groups = 1 };
    const wb__matmul_desc m = { .dtype = WB_F32, .batch = { 1, 1 }, .m = 1024, .n = 1024,
                                .k = 1024, .a_s = { 1024, 1 }, .b_s = { 1024, 1 },
                                .c_s = { 1024, 1 } };
    int by_onednn = 0;
    *reasons = 0;
    for (int i = 0; i < 2; i++) {
        wb__cpu_op *op;
        if (i ? wb__cpu_conv(&d, &op) : wb__cpu_matmul(&m, &op)) return -1;
        by_onednn |= wb__begins(op->impl, "dnnl");
        *reasons += op->reason && strstr(op->reason, "gets no memory");
        op->destroy(op);
    }
    return by_onednn;
}

static int prepare_with_little_memory(void)
{
    long pages = 0;
    int reasons;
    set_up("1", 1);
    setenv("WEBER_WINOGRAD", "0", 1);
    if (prepare_large(&reasons) != 1) return WITHOUT_ONEDNN;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) return WITHOUT_ONEDNN;
    fclose(f);
    struct rlimit l;
    getrlimit(RLIMIT_AS, &l);
    l.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + (512 << 10));
    if (setrlimit(RLIMIT_AS, &l)) return WITHOUT_ONEDNN;
    wb_set_log(count_warnings, NULL);
    for (int i = 0; i < 2; i++)
        if (prepare_large(&reasons) || reasons != 2) return CRASHES_OR_DIFFERS;
    return warnings == 1 ? OURS : CRASHES_OR_DIFFERS;
}

/* oneDNN crashes where it gets no memory for its code: our own kernels compute. */
static void test_no_memory_for_code(void **unused)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__APPLE__)
    skip();                                     /* sanitizers take all addresses */
#endif
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (!child) _exit(prepare_with_little_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == WITHOUT_ONEDNN) {
        print_message("SKIP: oneDNN is not here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), OURS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAYS(test_conv_drawn), WAYS(test_conv_named), WAYS(test_conv_bf16),
        WAYS(test_pool_drawn), WAYS(test_same_bits),
        PIECES(test_conv_named) PIECES(test_same_bits)
        cmocka_unit_test(test_no_memory_for_code)
    };
    return cmocka_run_group_tests_name("cpu_lib", tests, NULL, NULL);
}
