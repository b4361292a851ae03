/* Winograd's convolution (backend/cpu/conv/winograd.c) against plain loops in double precision.
 *
 *     cpu_winograd [--table]
 *
 * Images have odd sides, padding that differs on all sides, and channels that do not fill vectors;
 * workspaces start as NaN.  An element is a sum of n products per position: n input channels, or,
 * for the weight gradient, n tiles.  For random operands in [-1, 1] its largest error may be the
 * gain of the transforms (40, weight gradient 18) times sqrt(n (n + 16)) 2^-24.
 * The root of the mean square error must be less than 4 times that of a direct convolution.
 * --table prints these errors for common shapes; backend/cpu/conv/README.md has them. */
#include "backend/cpu/lib.h"

#include "reference.h"

enum { GUARD = 64 };
static const float MARK = 0.4375f;
static uint64_t state;

static double value(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) / 0x1p30 - 1;
}

static float *make(int64_t n, bool positive)
{
    float *p = wb__alloc_aligned((size_t)(n + 2 * GUARD) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n + 2 * GUARD; i++) {
        const double v = i < GUARD || i >= n + GUARD ? MARK : value();
        p[i] = (float)(positive ? fmax(v, 0) : v);
    }
    return p + GUARD;
}

static void drop(float *p) { wb__free(p - GUARD); }

typedef struct {
    wb__conv_desc d;
    int64_t sizes[3];                   /* elements of x, w, y */
    float *at[4];                       /* x, w, y, bias */
    int written;                        /* the operand that is computed */
    double *want;
} problem;

/* Computes the result in double precision. */
static void solve(problem *p)
{
    const wb__conv_desc *d = &p->d;
    const float *x = p->at[0], *w = p->at[1], *y = p->at[2];
    for (int64_t n = 0; n < d->n; n++) for (int64_t i = 0; i < d->oh; i++)
        for (int64_t j = 0; j < d->ow; j++) for (int64_t t = 0; t < 9; t++) {
            const int64_t r = i - d->pad[0] + t / 3, q = j - d->pad[2] + t % 3;
            if (r < 0 || r >= d->h || q < 0 || q >= d->w) continue;
            const int64_t xi = ((n * d->h + r) * d->w + q) * d->c,
                          yi = ((n * d->oh + i) * d->ow + j) * d->k;
            for (int64_t k = 0; k < d->k; k++) for (int64_t c = 0; c < d->c; c++) {
                const int64_t wi = (k * d->c + c) * 9 + t;
                if (p->written == 2) p->want[yi + k] += (double)x[xi + c] * w[wi];
                else if (p->written == 0) p->want[xi + c] += (double)y[yi + k] * w[wi];
                else p->want[wi] += (double)x[xi + c] * y[yi + k];
            }
        }
    const int64_t channels = p->written ? d->k : d->c;
    for (int64_t i = 0; p->written != 1 && i < p->sizes[p->written]; i++) {
        if (d->has_bias) p->want[i] += p->at[3][i % channels];
        if (d->act == WB__OP_relu) p->want[i] = fmax(p->want[i], 0);
        else if (d->act == WB__OP_tanh) p->want[i] = tanh(p->want[i]);
    }
}

static problem pose(wb__conv_kind kind, const int64_t s[5], const int64_t pad[4], wb__op act,
                    bool positive)
{
    problem p = { .d = { .dtype = WB_F32, .kind = kind, .n = s[0], .c = s[1], .k = s[2], .h = s[3],
                         .w = s[4], .kh = 3, .kw = 3, .oh = s[3] + pad[0] + pad[1] - 2,
                         .ow = s[4] + pad[2] + pad[3] - 2, .stride = { 1, 1 },
                         .dilation = { 1, 1 }, .groups = 1, .act = act, .has_bias = act != 0 } };
    memcpy(p.d.pad, pad, sizeof p.d.pad);
    const wb__conv_desc *d = &p.d;
    const int64_t sizes[3] = { d->n * d->h * d->w * d->c, d->k * d->c * 9,
                               d->n * d->oh * d->ow * d->k };
    memcpy(p.sizes, sizes, sizeof sizes);
    state = (uint64_t)(s[0] * 7 + s[1] * 5 + s[3]);
    for (int i = 0; i < 3; i++) p.at[i] = make(p.sizes[i], positive && i == 0);
    p.at[3] = make(d->c + d->k, false);
    p.written = kind == WB__CONV_FORWARD ? 2 : kind == WB__CONV_GRAD_INPUT ? 0 : 1;
    p.want = calloc((size_t)p.sizes[p.written], sizeof *p.want);
    assert_non_null(p.want);
    solve(&p);
    return p;
}

static void forget(problem *p)
{
    for (int i = 0; i < 4; i++) drop(p->at[i]);
    free(p->want);
}

/* Computes *p with or without Winograd's algorithm into new memory, which the caller drops. */
static float *compute(const problem *p, const char *winograd, int threads)
{
    setenv("WEBER_WINOGRAD", winograd, 1);
    wb__set_threads(threads);
    wb__cpu_op *op;
    assert_int_equal(wb__cpu_conv(&p->d, &op), 0);
    if (!strncmp(op->impl, "winograd", 8) != !strcmp(winograd, "1"))
        fail_msg("WEBER_WINOGRAD=%s has chosen %s", winograd, op->impl);
    unsigned char *workspace = wb__alloc_aligned(op->workspace + GUARD);
    float *to = make(p->sizes[p->written], false);
    assert_non_null(workspace);
    memset(workspace, 0xff, op->workspace + GUARD);
    void *buffers[4] = { p->at[0], p->at[1], p->at[2], p->at[3] };
    buffers[p->written] = to;
    for (int i = 0; i < 2; i++) op->run(op, buffers, workspace);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(workspace[op->workspace + (size_t)i], 0xff);
        assert_true(to[-1 - i] == MARK && to[p->sizes[p->written] + i] == MARK);
    }
    op->destroy(op);
    wb__free(workspace);
    return to;
}

/* Returns the root of the mean square error. */
static double error_of(const problem *p, const float *got, double *most)
{
    double sum = 0;
    *most = 0;
    for (int64_t i = 0; i < p->sizes[p->written]; i++) {
        const double e = fabs(got[i] - p->want[i]);
        if (!isnan(*most) && !(e <= *most)) *most = e;
        sum += e * e;
    }
    return sqrt(sum / (double)p->sizes[p->written]);
}

/* The largest error of an element that is allowed. */
static double bound_of(const problem *p)
{
    const wb__conv_desc *d = &p->d;
    const double tiles = (double)(d->n * ((d->oh + 3) / 4) * ((d->ow + 3) / 4));
    const bool weights = d->kind == WB__CONV_GRAD_WEIGHT;
    const double n = weights ? tiles : (double)(d->kind == WB__CONV_FORWARD ? d->c : d->k);
    return (weights ? 18 : 40) * sqrt(n * (n + 16)) * 0x1p-24;
}

/* Checks a convolution, and that `threads` threads compute the same bits as one. */
static void one_conv(wb__conv_kind kind, const int64_t s[5], const int64_t pad[4], wb__op act,
                     int threads)
{
    problem p = pose(kind, s, pad, act, false);
    float *first = compute(&p, "1", 1);
    double most;
    error_of(&p, first, &most);
    if (!(most <= bound_of(&p)))
        fail_msg("kind %d of %d x %d>%d x %dx%d pad %d,%d,%d,%d: error %g, allowed %g", (int)kind,
                 (int)s[0], (int)s[1], (int)s[2], (int)s[3], (int)s[4], (int)pad[0], (int)pad[1],
                 (int)pad[2], (int)pad[3], most, bound_of(&p));
    float *again = threads > 1 ? compute(&p, "1", threads) : NULL;
    if (again) assert_memory_equal(first, again, (size_t)p.sizes[p.written] * sizeof *again);
    if (again) drop(again);
    drop(first);
    forget(&p);
}

static void test_shapes(void **isa)
{
    setenv("WEBER_ISA", *isa, 1);       /* a wider one than the processor has changes nothing */
    static const int64_t shapes[][9] = {        /* n, c, k, h, w, pad */
        { 1, 33, 35, 13, 13, 1, 1, 1, 1 },  { 16, 32, 40, 7, 7, 0, 0, 0, 0 },
        { 17, 35, 33, 7, 5, 2, 2, 2, 2 },   { 64, 32, 32, 3, 1, 2, 0, 1, 2 },
        { 5, 50, 49, 6, 9, 0, 2, 2, 0 },    { 5, 33, 97, 13, 14, 1, 2, 0, 1 },
        { 8, 32, 32, 9, 12, 5, 4, 0, 3 },   { 67, 33, 34, 4, 4, 1, 1, 1, 1 },
        { 17, 64, 17, 8, 7, 1, 1, 1, 1 },   { 2, 97, 48, 25, 27, 1, 1, 1, 1 },
    };
    int computed[3] = { 0 };
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (int kind = 0; kind < 3; kind++) {
            const int64_t *s = shapes[i], *pad = s + 5;
            const bool data = kind == WB__CONV_GRAD_INPUT;
            const int64_t h = data ? s[3] : s[3] + pad[0] + pad[1] - 2,
                          w = data ? s[4] : s[4] + pad[2] + pad[3] - 2;
            const int64_t tiles = s[0] * ((h + 3) / 4) * ((w + 3) / 4);
            const int64_t thin = WB__MIN(s[1], s[2]);
            if (tiles < (kind == WB__CONV_GRAD_WEIGHT ? 64 : 16) || tiles * thin < 512) continue;
            static const wb__op acts[] = { WB__OP_NONE, WB__OP_relu, WB__OP_tanh };
            one_conv((wb__conv_kind)kind, s, pad,
                     kind == WB__CONV_GRAD_WEIGHT ? WB__OP_NONE : acts[i % 3],
                     !strcmp(*isa, "avx512") ? 3 : 1);
            computed[kind]++;
        }
    for (int kind = 0; kind < 3; kind++) assert_true(computed[kind] >= 6);
    unsetenv("WEBER_ISA");
}

/* Other convolutions are computed directly. */
static void test_choice(void **unused)
{
    (void)unused;
    static const wb__conv_desc usual = {
        .dtype = WB_F32, .n = 4, .c = 32, .k = 32, .h = 16, .w = 16, .kh = 3, .kw = 3, .oh = 16,
        .ow = 16, .stride = { 1, 1 }, .dilation = { 1, 1 }, .pad = { 1, 1, 1, 1 }, .groups = 1 };
    wb__conv_desc d[8];
    for (int i = 0; i < 8; i++) d[i] = usual;
    d[1].dtype = WB_F64, d[2].dtype = WB_BF16, d[3].groups = 2;
    d[4].stride[1] = 2, d[4].ow = 8;
    d[5].dilation[0] = 2, d[5].pad[0] = d[5].pad[1] = 2;
    d[6].kw = 1, d[6].pad[2] = d[6].pad[3] = 0;
    d[7].c = 15;
    setenv("WEBER_WINOGRAD", "1", 1);
    for (int i = 0; i < 8; i++) {
        wb__cpu_op *op;
        assert_int_equal(wb__cpu_conv(&d[i], &op), 0);
        assert_int_equal(!strncmp(op->impl, "winograd", 8), i == 0);
        op->destroy(op);
    }
}

/* A NaN of x is not hidden by relu, and other images are not affected. */
static void test_nan(void **unused)
{
    (void)unused;
    problem p = pose(WB__CONV_FORWARD, (int64_t[]){ 4, 32, 32, 8, 8 }, (int64_t[]){ 1, 1, 1, 1 },
                     WB__OP_relu, false);
    p.at[0][(2 * 64 + 3 * 8 + 5) * 32 + 7] = NAN;
    float *y = compute(&p, "1", 2);
    for (int64_t i = 0; i < 4 * 64 * 32; i++) {
        const int64_t n = i / (64 * 32), row = i / (8 * 32) % 8, column = i / 32 % 8;
        if (n != 2) assert_false(isnan(y[i]));
        else if (row >= 2 && row <= 4 && column >= 4 && column <= 6) assert_true(isnan(y[i]));
        else if (column < 4) assert_false(isnan(y[i]));     /* of another tile */
    }
    drop(y);
    forget(&p);
}

/* The shapes of the networks that bench/workloads.c trains, with smaller batches. */
static const int64_t common[][5] = {
    { 8, 16, 16, 32, 32 },  { 4, 32, 32, 32, 32 }, { 8, 64, 64, 16, 16 }, { 32, 128, 128, 8, 8 },
    { 2, 64, 64, 56, 56 },  { 4, 128, 128, 14, 14 },  { 32, 64, 64, 7, 7 },
};

static void test_accuracy(void **state_)
{
    const bool print = state_ && *state_;
    static const char *const kinds[] = { "y", "dx", "dw" };
    static const int64_t pad[4] = { 1, 1, 1, 1 };
    if (print)
        puts("| n, channels, side |  | rms, direct | rms, Winograd | ratio | ratio of largest |\n"
             "| --- | --- | --- | --- | --- | --- |");
    for (size_t i = 0; i < WB__COUNT(common); i += (size_t)fewer())
        for (int kind = 0; kind < 3; kind++) {
            const int64_t *s = common[i];
            problem p = pose((wb__conv_kind)kind, s, pad, WB__OP_NONE, true);
            double most[2], rms[2], size = 0;
            for (int way = 0; way < 2; way++) {
                float *got = compute(&p, way ? "1" : "0", 1);
                rms[way] = error_of(&p, got, &most[way]);
                drop(got);
            }
            for (int64_t e = 0; e < p.sizes[p.written]; e++) size += p.want[e] * p.want[e];
            size = sqrt(size / (double)p.sizes[p.written]);
            const double ratio = rms[1] / rms[0];
            if (print)
                printf("| %d x %d>%d x %d | %s | %.1e | %.1e | %.1f | %.1f |\n", (int)s[0],
                       (int)s[1], (int)s[2], (int)s[3], kinds[kind], rms[0] / size, rms[1] / size,
                       ratio, most[1] / most[0]);
            else if (!(ratio < 4)) fail_msg("%s of shape %d: %g times", kinds[kind], (int)i, ratio);
            forget(&p);
        }
}

/* Errors are compared with those of Weber's own kernels: oneDNN's depend on the processor. */
int main(int argc, char **argv)
{
    setenv("WEBER_ONEDNN", "0", 1);
    if (argc > 1 && !strcmp(argv[1], "--table")) {
        test_accuracy((void *[]){ argv[1] });
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_shapes, "avx512"),
        cmocka_unit_test_prestate(test_shapes, "avx2"),
        cmocka_unit_test_prestate(test_shapes, "portable"),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_nan), cmocka_unit_test(test_accuracy),
    };
    return cmocka_run_group_tests_name("cpu_winograd", tests, NULL, NULL);
}
