/* Convolutions and attention by cuDNN, on its double: every kind, layout and dtype compared with
 * plain loops, their epilogues, and the steps that cuDNN does not support. */
#include "test.h"

#include "tests/runtime/conv_by_hand.h"

#include "backend/cuda/dnn_api.h"

#include <dlfcn.h>

/* ---- convolutions ---------------------------------------------------------------------------- */

TEST(test_convolutions)
{
    static const wb_dtype dtypes[] = {WB_F32, WB_BF16, WB_F16};
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (int t = 0; t < 3; t++)
            for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
                for (int nhwc = 0; nhwc < 2; nhwc++)
                    run(&shapes[i], convolution(&shapes[i], dtypes[t], nhwc, kind), "cuDNN");
}

TEST(test_behind_convolutions)
{
    static const struct { wb__op op; const char *impl; } list[] = {
        {WB__OP_NONE, "cuDNN bias"}, {WB__OP_relu, "cuDNN bias relu"},
        {WB__OP_tanh, "cuDNN bias tanh"}, {WB__OP_sigmoid, "cuDNN bias sigmoid"},
        {WB__OP_gelu, "cuDNN bias"}};           /* Weber's kernel computes gelu, in place */
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (size_t e = 0; e < WB__COUNT(list); e++) {
            wb__step s = convolution(&shapes[i], i & 1 ? WB_BF16 : WB_F32, i & 2, WB__CONV_FORWARD);
            s.n_views = 4;
            s.epilogue = list[e].op;
            run(&shapes[i], s, list[e].impl);
        }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void send(arrays *r, int v)
{
    assert_int_equal(b->upload(d, r->memory[v], 0, r->x[v], r->bytes[v]), 0);
}

enum { Q, K, V, O, LSE, DO, DQ, DK, DV };

static wb__step attention(wb_dtype dtype, int64_t n, int64_t h, int64_t t, int64_t width, int kind,
                          bool causal, bool packed)
{
    wb__step s = {.kind = WB__STEP_ATTENTION, .variant = kind,
                  .n_views = kind == WB__ATTENTION_FORWARD ? 5 : 9,
                  .attention = {.scale = 0.3, .causal = causal}};
    for (int i = 0; i < s.n_views; i++) {
        const int64_t last = i == LSE ? 1 : width;
        wb__view v = {.dtype = i == LSE ? WB_F32 : dtype, .buffer = i, .ndim = 4,
                      .dims = {n, h, t, last}, .strides = {h * t * last, t * last, last, 1}};
        if (packed && i != LSE)
            v.strides[0] = t * h * last, v.strides[1] = last, v.strides[2] = h * last;
        s.views[i] = v;
    }
    return s;
}

/* Computes the row of softmax of query i; returns the logarithm of the row's sum. */
static double weights(const arrays *r, int64_t n, int64_t h, int64_t i, double *p)
{
    const wb__step *s = r->s;
    const int64_t t = s->views[K].dims[2], keys = s->attention.causal ? i + 1 : t;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < t; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < s->views[Q].dims[3]; c++)
            p[j] += value(r, Q, n, h, i, c) * value(r, K, n, h, j, c);
        p[j] = j < keys ? p[j] * s->attention.scale : -INFINITY;
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < t; j++) sum += exp(p[j] - most);
    for (int64_t j = 0; j < t; j++) p[j] = exp(p[j] - most) / sum;
    return most + log(sum);
}

static void compare_forward(const arrays *r)
{
    const wb__view *q = &r->s->views[Q];
    double p[64];
    for (int64_t n = 0; n < q->dims[0]; n++)
        for (int64_t h = 0; h < q->dims[1]; h++)
            for (int64_t i = 0; i < q->dims[2]; i++) {
                expect(value(r, LSE, n, h, i, 0), weights(r, n, h, i, p), 1e-4, "lse");
                for (int64_t c = 0; c < q->dims[3]; c++) {
                    double o = 0;
                    for (int64_t j = 0; j < q->dims[2]; j++) o += p[j] * value(r, V, n, h, j, c);
                    expect(value(r, O, n, h, i, c), o, 2 * epsilon(q->dtype), "o");
                }
            }
}

/* The gradients of one head, accumulated row by row. */
static void compare_back(const arrays *r, int64_t n, int64_t h)
{
    const wb__view *q = &r->s->views[Q];
    const int64_t t = q->dims[2], w = q->dims[3];
    static double p[64], dk[64][64], dv[64][64];
    memset(dk, 0, sizeof dk);
    memset(dv, 0, sizeof dv);
    for (int64_t i = 0; i < t; i++) {
        double delta = 0, dq[64] = {0};
        weights(r, n, h, i, p);
        for (int64_t c = 0; c < w; c++) delta += value(r, DO, n, h, i, c) * value(r, O, n, h, i, c);
        for (int64_t j = 0; j < t; j++) {
            double dp = 0;
            for (int64_t c = 0; c < w; c++) {
                dp += value(r, DO, n, h, i, c) * value(r, V, n, h, j, c);
                dv[j][c] += p[j] * value(r, DO, n, h, i, c);
            }
            const double ds = p[j] * (dp - delta) * r->s->attention.scale;
            for (int64_t c = 0; c < w; c++) {
                dq[c] += ds * value(r, K, n, h, j, c);
                dk[j][c] += ds * value(r, Q, n, h, i, c);
            }
        }
        for (int64_t c = 0; c < w; c++)
            expect(value(r, DQ, n, h, i, c), dq[c], 8 * epsilon(q->dtype), "dq");
    }
    for (int64_t j = 0; j < t; j++)
        for (int64_t c = 0; c < w; c++) {
            expect(value(r, DK, n, h, j, c), dk[j][c], 8 * epsilon(q->dtype), "dk");
            expect(value(r, DV, n, h, j, c), dv[j][c], 8 * epsilon(q->dtype), "dv");
        }
}

static void one_attention(wb_dtype dtype, bool causal, bool packed, bool same)
{
    enum { N = 2, H = 3, T = 21, W = 16 };
    arrays r, back;
    wb__step s = attention(dtype, N, H, T, W, WB__ATTENTION_FORWARD, causal, packed);
    wb__step grad = attention(dtype, N, H, T, W, WB__ATTENTION_GRAD, causal, packed);
    s.deterministic = grad.deterministic = same;
    assert_true(b->supports(d, &s));
    assert_true(b->supports(d, &grad));
    fill(&r, &s, 1u << O | 1u << LSE);
    launch(&r, "cuDNN flash");
    compare_forward(&r);
    fill(&back, &grad, 1u << DQ | 1u << DK | 1u << DV);
    for (int v = Q; v <= LSE; v++) {
        memcpy(back.x[v], r.x[v], r.bytes[v]);
        send(&back, v);
    }
    launch(&back, "cuDNN flash");
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++) compare_back(&back, n, h);
    empty(&r);
    empty(&back);
}

TEST(test_attention)
{
    for (int i = 0; i < 16; i++) one_attention(i & 1 ? WB_BF16 : WB_F16, i & 2, i & 4, i & 8);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* A function of cuDNN's double. */
static void *in_double(const char *name)
{
    char file[600];
    snprintf(file, sizeof file, "%s/libcudnn.so.9", getenv("WEBER_CUDA_PATH"));
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *found = NULL;
    if (library) found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* cuDNN proposes two engines: the second is used if the first has a numerical note that the
 * precision forbids. */
TEST(test_precise_engines)
{
    enum { WINOGRAD = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD, FFT = 1 << CUDNN_NUMERICAL_NOTE_FFT,
           SMALL = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
           MIDDLE = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
           LARGE = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
           REDUCED = 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION };
    static const int notes[] = {WINOGRAD, FFT, SMALL, MIDDLE, LARGE, REDUCED};
    static const struct { wb_dtype dtype; int precision, allowed; } list[] = {
        {WB_F32, WB__PRECISION_HIGHEST, 0}, {WB_BF16, WB__PRECISION_HIGHEST, 0},
        {WB_F32, WB__PRECISION_HIGH, WINOGRAD | FFT | SMALL | MIDDLE}};
    char text[20];
    int64_t (*noted)(void) = NULL;
    *(void **)&noted = in_double("vgpu_dnn_noted");
    for (size_t i = 0; i < WB__COUNT(list); i++)
        for (size_t n = 0; n < WB__COUNT(notes); n++) {
            /* new sizes, so that a plan is built and not found */
            const shape p = {1, 4, 5 + (int)n, 6 + (int)i, 4, 3, 3, 1, 1, 1, 1, 1};
            wb__step s = convolution(&p, list[i].dtype, false, WB__CONV_FORWARD);
            s.precision = (uint8_t)list[i].precision;
            snprintf(text, sizeof text, "%d", notes[n]);
            setenv("VGPU_DNN_NOTES", text, 1);
            const int64_t before = noted();
            run(&p, s, "cuDNN");
            assert_int_equal(noted() > before, (notes[n] & list[i].allowed) != 0);
        }
    unsetenv("VGPU_DNN_NOTES");
}

/* ---- engines chosen by timing ---------------------------------------------------------------- */

/* Of the six engine configurations the third cannot be planned and the fifth cannot be launched;
 * the fourth is the fastest.  Each has another workspace. */
TEST(test_timed_engines)
{
    int64_t (*runs)(int) = NULL, before[6];
    *(void **)&runs = in_double("vgpu_dnn_runs");
    const char *cache = getenv("WEBER_CACHE_DIR");
    char *given = cache ? strdup(cache) : NULL;
    setenv("WEBER_CACHE_DIR", "", 1);
    setenv("WEBER_GPU_TIMING", "1e-9", 1);
    setenv("VGPU_DNN_TIMES", "30,20,-1,10,-2,40", 1);
    for (int i = 0; i < 6; i++) before[i] = runs(i);
    for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
        run(&shapes[1], convolution(&shapes[1], WB_F32, kind & 1, kind), "cuDNN");
    /* Of 3 problems: each engine that works is run once before it is timed and 3 times while it is,
     * and the fastest is launched twice. */
    static const int expected[6] = {3 * 4, 3 * 4, 0, 3 * (4 + 2), 0, 3 * 4};
    for (int i = 0; i < 6; i++) assert_int_equal(runs(i) - before[i], expected[i]);
    one_attention(WB_BF16, true, true, false);  /* it is not timed, and has the first */
    wb__step same = convolution(&shapes[1], WB_F32, false, WB__CONV_FORWARD);
    same.deterministic = true;
    run(&shapes[1], same, "cuDNN");
    assert_int_equal(runs(0) - before[0], expected[0] + 2 * 2 + 2); /* two passes and one, twice */
    unsetenv("VGPU_DNN_TIMES");
    unsetenv("WEBER_GPU_TIMING");
    if (given) setenv("WEBER_CACHE_DIR", given, 1);
    else unsetenv("WEBER_CACHE_DIR");
    free(given);
}

/* ---- workspaces ------------------------------------------------------------------------------ */

static void made_by(const wb__step *s, const char *impl)
{
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s", wb_error());
    assert_string_equal(k->impl, impl);
    b->destroy(d, k);
}

/* The workspace is at most a twentieth of the memory for attention, 256 MiB for convolutions. */
TEST(test_large_workspaces)
{
    const shape p = {1, 4, 11, 13, 4, 3, 3, 1, 1, 1, 1, 1};
    const wb__step conv = convolution(&p, WB_F32, false, WB__CONV_FORWARD);
    const wb__step s = attention(WB_BF16, 2, 3, 40, 16, WB__ATTENTION_GRAD, true, false);
    static const char *const memory[] = {"4000000000", "16000000000"};
    setenv("VGPU_DNN_WORKSPACE", "300000000", 1);
    for (int i = 0; i < 2; i++) {
        b->stop();
        setenv("VGPU_MEMORY", memory[i], 1);
        assert_int_equal(b->start(), 0);
        d = b->device(0);
        made_by(&s, i ? "cuDNN flash" : "attention, fragments");
        made_by(&conv, "product, an element an item");
    }
    unsetenv("VGPU_DNN_WORKSPACE");
    unsetenv("VGPU_MEMORY");
}

/* ---- steps that cuDNN does not support ------------------------------------------------------- */

TEST(test_left_to_ours)
{
    wb__kernel *k = NULL;
    wb__step s = convolution(&shapes[0], WB_F64, false, WB__CONV_FORWARD);
    assert_int_equal(b->prepare(d, &s, &k), 0);
    assert_string_equal(k->reason, "cuDNN: not of f32, f16 or bf16");
    b->destroy(d, k);
}

TEST(test_layouts)
{
    static const struct { int c, k; wb_dtype dtype; int precision; bool nhwc; } list[] = {
        {64, 64, WB_BF16, WB__PRECISION_HIGHEST, true},
        {3, 64, WB_F16, WB__PRECISION_HIGHEST, true},
        {20, 64, WB_BF16, WB__PRECISION_HIGHEST, false},
        {64, 12, WB_F16, WB__PRECISION_HIGHEST, false},
        {64, 64, WB_F32, WB__PRECISION_HIGHEST, false}, {64, 12, WB_F32, WB__PRECISION_HIGH, true},
        {64, 10, WB_F32, WB__PRECISION_HIGH, false}};
    for (size_t i = 0; i < WB__COUNT(list); i++) {
        const shape p = {1, list[i].c, 8, 8, list[i].k, 3, 3, 1, 1, 1, 1, 1};
        wb__step s = convolution(&p, list[i].dtype, false, WB__CONV_FORWARD);
        s.precision = (uint8_t)list[i].precision;
        assert_int_equal(b->prefers_channels_last(d, &s), list[i].nhwc);
    }
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
    const int failed = run_all_cases();
    b->stop();
    return failed;
}
