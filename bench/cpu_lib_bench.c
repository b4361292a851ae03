/* Times the CPU's library operations at shapes that are common in training: microseconds, GFLOP/s
 * and the chosen implementation, with oneDNN (if built in) and without, on 1 thread and more.
 *
 *     cpu_lib_bench [threads] [part of a name]
 *
 * Each figure is the best of several short runs.  tests/cpu/cpu_lib.c checks the results. */
#include "backend/cpu/lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *only;

static float *filled(int64_t n)
{
    float *p = wb__alloc_aligned((size_t)(n + 64) * sizeof *p);
    if (!p) exit(1);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(i % 17) * 0.01f - 0.05f;
    return p;
}

static double best_of(wb__cpu_op *op, void *const *buffers, void *workspace)
{
    double best = 1e9;
    int repeats = 1;
    op->run(op, buffers, workspace);
    for (int round = 0; round < 7; round++) {
        double start = wb__now();
        for (int i = 0; i < repeats; i++) op->run(op, buffers, workspace);
        double took = wb__now() - start;
        if (took / repeats < best) best = took / repeats;
        if (took < 3e-3) repeats = (int)(repeats * WB__MIN(3e-3 / (took + 1e-9), 1000)) + 1;
    }
    return best;
}

static void report(const char *name, wb__cpu_op *op, void *const *buffers, double flop)
{
    void *workspace = wb__alloc_aligned(op->workspace + 64);
    if (!workspace) exit(1);
    double t = best_of(op, buffers, workspace);
    printf("%-34s %9.2f us %7.1f GFLOP/s  %s\n", name, t * 1e6, flop / t * 1e-9, op->impl);
    wb__free(workspace);
    op->destroy(op);
}

/* layout: 'n' row-major, 't' transposed, for each operand: x·W' is "nt", dy'·x is "tn" */
static void matmul(int64_t batch, int64_t m, int64_t n, int64_t k, const char *layout)
{
    char name[64];
    snprintf(name, sizeof name, "matmul %s %dx[%dx%dx%d]", layout, (int)batch, (int)m, (int)n,
             (int)k);
    if (only && !strstr(name, only)) return;
    wb__matmul_desc d = { .dtype = WB_F32,
                          .batch = { batch, 1 },
                          .m = m,
                          .n = n,
                          .k = k,
                          .a_b = { m * k, 0 },
                          .b_b = { k * n, 0 },
                          .c_b = { m * n, 0 },
                          .c_s = { n, 1 } };
    d.a_s[0] = layout[0] == 'n' ? k : 1, d.a_s[1] = layout[0] == 'n' ? 1 : m;
    d.b_s[0] = layout[1] == 'n' ? n : 1, d.b_s[1] = layout[1] == 'n' ? 1 : k;
    float *a = filled(batch * m * k), *b = filled(batch * k * n), *c = filled(batch * m * n);
    wb__cpu_op *op;
    if (!wb__cpu_matmul(&d, &op))
        report(name, op, (void *[]){ a, b, c, NULL },
               2.0 * (double)batch * (double)m * (double)n * (double)k);
    wb__free(a), wb__free(b), wb__free(c);
}

static void conv(int n, int c, int k, int side, int taps, int stride, int pad)
{
    static const char *const kinds[] = { "forward", "data", "weights" };
    const int out = (side + 2 * pad - taps) / stride + 1;
    float *x = filled((int64_t)n * c * side * side), *w = filled((int64_t)k * c * taps * taps);
    float *y = filled((int64_t)n * k * out * out), *bias = filled(k);
    for (int kind = 0; kind < 3; kind++) {
        char name[64];
        snprintf(name, sizeof name, "conv %s %d %d>%d %d %dx%d/%d", kinds[kind], n, c, k, side,
                 taps, taps, stride);
        if ((kind == 1 && c <= 3) || (only && !strstr(name, only))) continue;
        wb__conv_desc d = { .dtype = WB_F32,
                            .kind = (wb__conv_kind)kind,
                            .n = n,
                            .c = c,
                            .h = side,
                            .w = side,
                            .k = k,
                            .kh = taps,
                            .kw = taps,
                            .oh = out,
                            .ow = out,
                            .stride = { stride, stride },
                            .dilation = { 1, 1 },
                            .pad = { pad, pad, pad, pad },
                            .groups = 1,
                            .has_bias = kind == 0,
                            .act = kind == 0 ? WB__OP_relu : WB__OP_NONE };
        wb__cpu_op *op;
        if (!wb__cpu_conv(&d, &op))
            report(name, op, (void *[]){ x, w, y, bias },
                   2.0 * n * k * out * out * c * taps * taps);
    }
    wb__free(x), wb__free(w), wb__free(y), wb__free(bias);
}

static void pool(int n, int c, int side, bool nhwc)
{
    static const char *const kinds[] = { "max", "max back", "max take", "mean", "mean back" };
    float *a = filled((int64_t)n * c * side * side), *b = filled((int64_t)n * c * side * side);
    float *to = filled((int64_t)n * c * side * side);
    for (int kind = 0; kind < 5; kind++) {
        char name[64];
        snprintf(name, sizeof name, "pool %s %s %d %d %d", nhwc ? "nhwc" : "nchw", kinds[kind], n,
                 c, side);
        if (only && !strstr(name, only)) continue;
        wb__pool_desc d = { .dtype = WB_F32,
                            .kind = (wb__pool_kind)kind,
                            .n = n,
                            .c = c,
                            .h = side,
                            .w = side,
                            .kh = 2,
                            .kw = 2,
                            .oh = side / 2,
                            .ow = side / 2,
                            .stride = { 2, 2 },
                            .nhwc = nhwc };
        const bool three = kind == WB__POOL_MAX_GRAD || kind == WB__POOL_MAX_GATHER;
        wb__cpu_op *op;
        if (!wb__cpu_pool(&d, &op))
            report(name, op, (void *[]){ a, three ? b : to, to }, (double)n * c * side * side);
    }
    wb__free(a), wb__free(b), wb__free(to);
}

static void everything(void)
{
    static const int products[][4] = {
        { 1, 64, 256, 784 },   { 1, 64, 10, 256 },    { 1, 1024, 384, 128 }, { 1, 1024, 128, 128 },
        { 1, 1024, 512, 128 }, { 1, 1024, 128, 512 }, { 1, 1024, 65, 128 },  { 1, 1600, 512, 64 },
        { 1, 32, 512, 128 },   { 1, 1, 256, 784 },    { 32, 128, 128, 32 },  { 1, 64, 120, 256 },
        { 1, 64, 3, 2 },
    };
    for (size_t i = 0; i < WB__COUNT(products); i++) {
        const int *s = products[i];
        matmul(s[0], s[1], s[2], s[3], "nt");                   /* y = x·W' */
        matmul(s[0], s[1], s[3], s[2], "nn");                   /* dx = dy·W */
        matmul(s[0], s[2], s[3], s[1], "tn");                   /* dW = dy'·x */
    }
    static const int convs[][7] = {
        { 64, 1, 6, 28, 5, 1, 0 },    { 64, 6, 16, 12, 5, 1, 0 },  { 1, 1, 6, 28, 5, 1, 0 },
        { 1, 6, 16, 12, 5, 1, 0 },    { 32, 3, 32, 32, 3, 1, 1 },  { 32, 32, 32, 32, 3, 1, 1 },
        { 32, 32, 64, 16, 3, 1, 1 },  { 32, 64, 64, 16, 3, 1, 1 }, { 32, 64, 128, 8, 3, 1, 1 },
        { 32, 128, 128, 8, 3, 1, 1 }, { 32, 3, 16, 32, 3, 1, 1 },  { 32, 16, 16, 32, 3, 1, 1 },
        { 32, 16, 32, 32, 3, 2, 1 },  { 32, 32, 32, 16, 3, 1, 1 }, { 32, 32, 64, 16, 3, 2, 1 },
        { 32, 64, 64, 8, 3, 1, 1 },   { 4, 64, 64, 56, 3, 1, 1 },  { 4, 128, 128, 28, 3, 1, 1 },
        { 4, 256, 256, 14, 3, 1, 1 }, { 4, 512, 512, 7, 3, 1, 1 }, { 32, 512, 512, 7, 3, 1, 1 },
    };
    for (size_t i = 0; i < WB__COUNT(convs); i++) {
        const int *s = convs[i];
        conv(s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
    }
    for (int nhwc = 1; nhwc >= 0; nhwc--) {
        pool(64, 6, 24, nhwc);
        pool(64, 16, 8, nhwc);
        pool(32, 32, 32, nhwc);
        pool(32, 128, 8, nhwc);
    }
}

int main(int argc, char **argv)
{
    wb__set_threads(argc > 1 ? atoi(argv[1]) : 1);
    only = argc > 2 ? argv[2] : NULL;
#ifdef WB_HAVE_DNNL
    printf("with oneDNN, %d threads\n", wb__threads());
    everything();
    setenv("WEBER_ONEDNN", "0", 1);
#endif
    printf("without oneDNN, %d threads\n", wb__threads());
    everything();
    return 0;
}
