/* The speed of tile programs: a fused chain in each cache, softmax, layer norm, Adam, small
 * kernels, reductions.
 *
 *   cpu_tile_bench [part of a name]        reads WEBER_NUM_THREADS and WEBER_ISA */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

typedef struct {
    wb__fused f;
    wb__instr instr[MOST];
    wb__view views[MOST];
    wb__space space;
    void *buffers[MOST];
    wb__number numbers[MOST];
    int n_buffers, n_numbers;
    double bytes;
} program;

static void start(program *p, int ndim, int row_dims, int col_dims, const int64_t *dims)
{
    memset(p, 0, sizeof *p);
    p->space = (wb__space){.ndim = ndim, .row_dims = row_dims, .col_dims = col_dims};
    memcpy(p->space.dims, dims, (size_t)ndim * sizeof *dims);
    p->f = (wb__fused){.n_segments = 1, .instr = p->instr, .spaces = &p->space, .views = p->views};
}

static int add(program *p, wb__instr i)
{
    p->instr[p->f.n_instr] = i;
    return p->f.n_instr++;
}

/* A dense view that does not vary along the dimensions of the bit set `flat`. */
static int view(program *p, unsigned flat, int same_buffer)
{
    wb__view *v = &p->views[p->f.n_views];
    int64_t step = 1;
    *v = (wb__view){.dtype = WB_F32, .ndim = p->space.ndim};
    for (int i = p->space.ndim - 1; i >= 0; i--) {
        v->dims[i] = p->space.dims[i];
        if (flat >> i & 1) continue;
        v->strides[i] = step;
        step *= v->dims[i];
    }
    if (same_buffer >= 0) {
        v->buffer = same_buffer;
    } else {
        v->buffer = p->n_buffers++;
        float *m = aligned_alloc(64, ((size_t)step * 4 + 127) / 64 * 64);
        for (int64_t i = 0; i < step; i++) m[i] = (float)((i * 7919) % 1000) / 1000 + 0.01f;
        p->buffers[v->buffer] = m;
    }
    p->bytes += (double)step * 4;
    return p->f.n_views++;
}

static int load(program *p, unsigned flat)
{
    return add(p,
               (wb__instr){.kind = WB__LOAD, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                           .dtype = WB_F32, .a = -1, .b = -1,
                              .c = -1, .arg = view(p, flat, -1)});
}

static int number(program *p, double f)
{
    p->numbers[p->n_numbers].f = f;
    return add(p,
               (wb__instr){.kind = WB__NUMBER, .reg = WB__REG_F32, .level = WB__LEVEL_ONE,
                           .dtype = WB_F32, .a = -1, .b = -1,
                              .c = -1, .arg = p->n_numbers++});
}

static int row(program *p, wb__op op, int a, int b)
{
    int level = p->instr[a].level;
    if (b >= 0) level = WB__MAX(level, p->instr[b].level);
    return add(p,
               (wb__instr){.kind = WB__ELEMENTWISE_OP, .op = (uint16_t)op, .reg = WB__REG_F32,
                           .level = (uint8_t)level,
                              .dtype = WB_F32, .a = a, .b = b, .c = -1});
}

static int fold(program *p, wb__op op, int a)
{
    return add(p,
               (wb__instr){.kind = WB__REDUCE_COLUMNS, .op = (uint16_t)op, .reg = WB__REG_F32,
                           .level = WB__LEVEL_PER_ROW,
                              .dtype = WB_F32, .a = a, .b = -1, .c = -1});
}

static void end(program *p, wb__instr_kind kind, int a, unsigned flat, int buffer)
{
    add(p, (wb__instr){.kind = kind, .op = WB__OP_sum, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                       .dtype = WB_F32, .a = a, .b = -1,
                       .c = -1, .arg = view(p, flat, buffer)});
}

static const char *wanted;

static void measure(program *p, const char *name)
{
    wb__cpu_kernel *k;
    if (wanted && !strstr(name, wanted)) goto done;
    if (wb__cpu_fused(&p->f, &k)) {
        printf("%s: %s\n", name, wb_error());
        return;
    }
    void *workspace = aligned_alloc(64, (k->base.workspace + 127) / 64 * 64);
    double best = 1e9;
    int64_t n = 1;
    k->launch(k, p->buffers, workspace, p->numbers);
    for (int tries = 0; tries < 12; tries++) {
        const double from = wb__now();
        for (int64_t i = 0; i < n; i++) k->launch(k, p->buffers, workspace, p->numbers);
        const double t = wb__now() - from;
        best = WB__MIN(best, t / (double)n);
        if (t < 0.01) n *= 2, tries -= n < (1 << 22);
    }
    printf("%-28s %10.2f us %8.1f GB/s   %s\n", name, best * 1e6, p->bytes / best / 1e9,
           k->base.impl);
    fflush(stdout);
    free(workspace);
    k->destroy(k);
done:
    for (int i = 0; i < p->n_buffers; i++) free(p->buffers[i]);
}

#define DIMS(...) (int64_t[]){__VA_ARGS__}
#define SPACE(rows, cols, ...) \
    start(&p, (int)WB__COUNT((DIMS(__VA_ARGS__))), rows, cols, DIMS(__VA_ARGS__))

static void chain(const char *name, int64_t n)
{
    static program p;
    SPACE(0, 1, n);
    int a = load(&p, 0), b = load(&p, 0);
    int t = row(&p, WB__OP_mul, a, b);
    t = row(&p, WB__OP_add, t, a);
    t = row(&p, WB__OP_relu, t, -1);
    t = row(&p, WB__OP_mul, t, number(&p, 0.5));
    end(&p, WB__STORE, t, 0, -1);
    measure(&p, name);
}

static void unary(const char *name, wb__op op)
{
    static program p;
    SPACE(0, 1, 1 << 13);
    end(&p, WB__STORE, row(&p, op, load(&p, 0), -1), 0, -1);
    measure(&p, name);
}

static void softmax(const char *name, int64_t rows, int64_t cols, bool logarithm)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int x = load(&p, 0);
    int e = row(&p, WB__OP_sub, x, fold(&p, WB__OP_max, x)), f = row(&p, WB__OP_exp, e, -1);
    int s = fold(&p, WB__OP_sum, f);
    if (logarithm) end(&p, WB__STORE, row(&p, WB__OP_sub, e, row(&p, WB__OP_log, s, -1)), 0, -1);
    else end(&p, WB__STORE, row(&p, WB__OP_div, f, s), 0, -1);
    measure(&p, name);
}

static void layer_norm(const char *name, int64_t rows, int64_t cols)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int x = load(&p, 0), scale = load(&p, 1), bias = load(&p, 1);
    int per = number(&p, 1.0 / (double)cols), eps = number(&p, 1e-5);
    int mean = row(&p, WB__OP_mul, fold(&p, WB__OP_sum, x), per), d = row(&p, WB__OP_sub, x, mean);
    int var = row(&p, WB__OP_mul, fold(&p, WB__OP_sum, row(&p, WB__OP_square, d, -1)), per);
    int y = row(&p, WB__OP_mul, d, row(&p, WB__OP_rsqrt, row(&p, WB__OP_add, var, eps), -1));
    end(&p, WB__STORE, row(&p, WB__OP_add, row(&p, WB__OP_mul, y, scale), bias), 0, -1);
    measure(&p, name);
}

static void adam(const char *name, int64_t n)
{
    static program p;
    SPACE(0, 1, n);
    int w = load(&p, 0), g = load(&p, 0), m = load(&p, 0), v = load(&p, 0);
    int b1 = number(&p, 0.9), c1 = number(&p, 0.1), b2 = number(&p, 0.999), c2 = number(&p, 0.001);
    int s = number(&p, 0.01), t = number(&p, 0.9), eps = number(&p, 1e-8);
    int m2 = row(&p, WB__OP_add, row(&p, WB__OP_mul, m, b1), row(&p, WB__OP_mul, g, c1));
    int v2 = row(&p, WB__OP_add, row(&p, WB__OP_mul, v, b2),
                 row(&p, WB__OP_mul, row(&p, WB__OP_square, g, -1), c2));
    int down = row(&p, WB__OP_add, row(&p, WB__OP_sqrt, row(&p, WB__OP_mul, v2, t), -1), eps);
    int step = row(&p, WB__OP_div, row(&p, WB__OP_mul, m2, s), down);
    end(&p, WB__STORE, m2, 0, 2);
    end(&p, WB__STORE, v2, 0, 3);
    end(&p, WB__STORE, row(&p, WB__OP_sub, w, step), 0, 0);
    measure(&p, name);
}

/* From dy and x, the sums over rows of dy and of dy x. */
static void row_sums(const char *name, int64_t rows, int64_t cols)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int g = load(&p, 0), x = load(&p, 0);
    end(&p, WB__REDUCE_ROWS, g, 1, -1);
    end(&p, WB__REDUCE_ROWS, row(&p, WB__OP_mul, g, x), 1, -1);
    measure(&p, name);
}

static void loss(const char *name, int64_t rows, int64_t cols)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int g = load(&p, 0), x = load(&p, 0);
    int d = row(&p, WB__OP_sub, g, x);
    end(&p, WB__REDUCE_ALL, row(&p, WB__OP_square, d, -1), 3, -1);
    measure(&p, name);
}

static void bias_relu(const char *name, int64_t rows, int64_t cols)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int x = load(&p, 0), b = load(&p, 1);
    end(&p, WB__STORE, row(&p, WB__OP_relu, row(&p, WB__OP_add, x, b), -1), 0, -1);
    measure(&p, name);
}

/* The mean and inverse standard deviation of each channel of [n, c, h*w], and the normalised
 * values. */
static void batch_norm(const char *name, int64_t n, int64_t c, int64_t hw)
{
    static program p;
    SPACE(1, 2, c, n, hw);
    int x = load(&p, 0);
    p.views[0].strides[0] = hw;
    p.views[0].strides[1] = c * hw;
    int per = number(&p, 1.0 / (double)(n * hw)), eps = number(&p, 1e-5);
    int mean = row(&p, WB__OP_mul, fold(&p, WB__OP_sum, x), per), d = row(&p, WB__OP_sub, x, mean);
    int var = row(&p, WB__OP_mul, fold(&p, WB__OP_sum, row(&p, WB__OP_square, d, -1)), per);
    int y = row(&p, WB__OP_mul, d, row(&p, WB__OP_rsqrt, row(&p, WB__OP_add, var, eps), -1));
    end(&p, WB__STORE, y, 0, -1);
    p.views[p.f.n_views - 1].strides[0] = hw;
    p.views[p.f.n_views - 1].strides[1] = c * hw;
    measure(&p, name);
}

static void transpose(const char *name, int64_t rows, int64_t cols)
{
    static program p;
    SPACE(1, 1, rows, cols);
    int x = load(&p, 0), b = load(&p, 0);
    p.views[0].strides[0] = 1;
    p.views[0].strides[1] = rows;
    end(&p, WB__STORE, row(&p, WB__OP_add, x, b), 0, -1);
    measure(&p, name);
}

static void dropout(const char *name, int64_t n, wb__instr_kind kind)
{
    static program p;
    SPACE(0, 1, n);
    int u = add(&p,
                (wb__instr){.kind = kind, .reg = WB__REG_F32, .level = WB__LEVEL_FULL,
                            .dtype = WB_F32, .a = -1, .b = -1,
                                .c = view(&p, 0, 0)});
    p.n_buffers = 0;
    p.n_numbers = 2;
    end(&p, WB__STORE, row(&p, WB__OP_mul, u, number(&p, 2)), 0, -1);
    measure(&p, name);
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? argv[1] : NULL;
    chain("chain 64x3", 192);
    chain("chain L1 2K", 1 << 11);
    chain("chain L2 64K", 1 << 16);
    chain("chain DRAM 16M", 1 << 24);
    static const struct { const char *name; wb__op op; } rows[] = {
        {"exp 8K", WB__OP_exp}, {"log 8K", WB__OP_log}, {"log1p 8K", WB__OP_log1p},
        {"tanh 8K", WB__OP_tanh}, {"sigmoid 8K", WB__OP_sigmoid}, {"erf 8K", WB__OP_erf},
        {"gelu 8K", WB__OP_gelu}, {"gelu_slope 8K", WB__OP_gelu_slope}, {"sin 8K", WB__OP_sin},
        {"sqrt 8K", WB__OP_sqrt}, {"neg 8K", WB__OP_neg}, {"softplus 8K", WB__OP_softplus},
    };
    for (size_t i = 0; i < WB__COUNT(rows); i++) unary(rows[i].name, rows[i].op);
    softmax("softmax 64x10", 64, 10, false);
    softmax("logsoftmax 64x10", 64, 10, true);
    softmax("softmax 1024x65", 1024, 65, false);
    softmax("softmax 128x128", 128, 128, false);
    softmax("softmax 4096x128", 4096, 128, false);
    softmax("softmax 64x50000", 64, 50000, false);
    layer_norm("layer norm 1024x128", 1024, 128);
    layer_norm("layer norm 1024x768", 1024, 768);
    adam("adam 200k", 200000);
    adam("adam 800k", 800000);
    row_sums("row sums 64x10", 64, 10);
    row_sums("row sums 1024x128", 1024, 128);
    row_sums("row sums 2x1M", 2, 1000000);
    row_sums("row sums 1Mx10", 1000000, 10);
    loss("loss 64x10", 64, 10);
    loss("loss 1024x128", 1024, 128);
    bias_relu("bias relu 64x10", 64, 10);
    bias_relu("bias relu 1024x128", 1024, 128);
    bias_relu("bias relu 1024x2048", 1024, 2048);
    batch_norm("batch norm 32x64x256", 32, 64, 256);
    batch_norm("batch norm 32x64x49", 32, 64, 49);
    transpose("transpose 1000x1000", 1000, 1000);
    dropout("uniform 64K", 1 << 16, WB__UNIFORM);
    dropout("gaussian 64K", 1 << 16, WB__GAUSSIAN);
    return 0;
}
