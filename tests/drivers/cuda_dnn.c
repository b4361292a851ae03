/* Convolutions and attention by cuDNN, on its double: every kind, layout and dtype compared with
 * plain loops, their epilogues, and the steps that cuDNN does not support. */
#include "test.h"

#include "row_value.h"

#include "backend/cuda/dnn_api.h"
#include "backend/backend.h"
#include "base/base.h"

#include <dlfcn.h>

static const wb__backend *b;
static const wb_device *d;

/* ---- arrays ---------------------------------------------------------------------------------- */

static double get(const void *x, wb_dtype t, int64_t i)
{
    return t == WB_F32 ? (double)((const float *)x)[i]
         : t == WB_F16 ? (double)wb__f16_to_f32(((const uint16_t *)x)[i])
                       : (double)wb__bf16_to_f32(((const uint16_t *)x)[i]);
}

static void put(void *x, wb_dtype t, int64_t i, double value)
{
    if (t == WB_F32) ((float *)x)[i] = (float)value;
    else ((uint16_t *)x)[i] = t == WB_F16 ? wb__f32_to_f16((float)value)
                                          : wb__f32_to_bf16((float)value);
}

static int64_t size_of(const wb__view *v)
{
    int64_t last = v->offset;
    for (int i = 0; i < v->ndim; i++) last += (v->dims[i] - 1) * v->strides[i];
    return last + 1;
}

static int64_t at(const wb__view *v, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return v->offset + i * v->strides[0] + j * v->strides[1] + k * v->strides[2] +
           l * v->strides[3];
}

/* A step and its arrays on the host (x) and on the device. */
typedef struct {
    const wb__step *s;
    void *x[9], *memory[9];
    size_t bytes[9];
} arrays;

static double value(const arrays *r, int v, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const wb__view *view = &r->s->views[v];
    return get(r->x[v], view->dtype, at(view, i, j, k, l));
}

static void fill(arrays *r, const wb__step *s, unsigned made)
{
    static unsigned seed = 1;
    r->s = s;
    for (int v = 0; v < s->n_views; v++) {
        const wb_dtype t = s->views[v].dtype;
        const int64_t n = size_of(&s->views[v]);
        r->bytes[v] = (size_t)n * wb__dtype_size(t);
        assert_non_null(r->x[v] = malloc(r->bytes[v]));
        for (int64_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            put(r->x[v], t, i, made >> v & 1 ? -77 : (double)(seed >> 8) / (1 << 23) - 1);
        }
        assert_non_null(r->memory[v] = b->allocate(d, r->bytes[v]));
        assert_int_equal(b->upload(d, r->memory[v], 0, r->x[v], r->bytes[v]), 0);
    }
}

static void send(arrays *r, int v)
{
    assert_int_equal(b->upload(d, r->memory[v], 0, r->x[v], r->bytes[v]), 0);
}

static void empty(arrays *r)
{
    for (int v = 0; v < r->s->n_views; v++) {
        b->release(d, r->memory[v], r->bytes[v]);
        free(r->x[v]);
    }
}

static void launch(arrays *r, const char *impl)
{
    const wb__number none = {.f = 0};
    wb__kernel *k = NULL;
    if (b->prepare(d, r->s, &k)) fail_msg("%s", wb_error());
    if (k->reason) fail_msg("%s", k->reason);
    assert_string_equal(k->impl, impl);
    void *workspace = b->allocate(d, k->workspace);
    for (int turn = 0; turn < 2; turn++)
        if (b->launch(d, k, r->memory, NULL, workspace, 0, &none)) fail_msg("%s", wb_error());
    for (int v = 0; v < r->s->n_views; v++)
        if (b->download(d, r->x[v], r->memory[v], 0, r->bytes[v])) fail_msg("%s", wb_error());
    b->release(d, workspace, k->workspace);
    b->destroy(d, k);
}

static void expect(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.9g, not %.9g", what, got, want);
}

static double epsilon(wb_dtype t) { return t == WB_F32 ? 4e-6 : t == WB_F16 ? 2e-3 : 1.6e-2; }

/* ---- convolutions ---------------------------------------------------------------------------- */

typedef struct { int n, c, h, w, k, r, s, stride, before, behind, dilation, groups; } shape;

static const shape shapes[] = {
    {2, 4, 9, 7, 6, 3, 2, 1, 0, 0, 1, 1}, {1, 6, 8, 9, 4, 3, 3, 2, 1, 2, 1, 2},
    {2, 8, 7, 7, 8, 3, 3, 1, 2, 2, 2, 8}, {3, 1, 6, 6, 5, 1, 1, 1, 0, 0, 1, 1},
    {1, 16, 5, 5, 1, 5, 5, 1, 0, 0, 1, 1}};

static wb__view picture(wb_dtype t, int buffer, int64_t n, int64_t c, int64_t h, int64_t w,
                        bool nhwc)
{
    wb__view v = {.dtype = t, .buffer = buffer, .ndim = 4, .offset = 16, .dims = {n, c, h, w},
                  .strides = {c * h * w, h * w, w, 1}};
    if (nhwc) v.strides[1] = 1, v.strides[2] = w * c, v.strides[3] = c;
    return v;
}

static wb__step convolution(const shape *p, wb_dtype t, bool nhwc, int kind)
{
    const int64_t h = (p->h + p->before + p->behind - (p->r - 1) * p->dilation - 1) / p->stride + 1;
    const int64_t w = (p->w + p->before + p->behind - (p->s - 1) * p->dilation - 1) / p->stride + 1;
    wb__step s = {
        .kind = WB__STEP_CONV, .n_views = 3, .variant = kind,
        .views = {picture(t, 0, p->n, p->c, p->h, p->w, nhwc),
                  picture(t, 1, p->k, p->c / p->groups, p->r, p->s, false),
                  picture(t, 2, p->n, p->k, h, w, nhwc)},
        .conv = {.stride = {p->stride, p->stride}, .dilation = {p->dilation, p->dilation},
                 .pad = {p->before, p->behind, p->before, p->behind}, .groups = p->groups,
                 .size = {h, w}}};
    s.views[3] = (wb__view){.dtype = t, .buffer = 3, .ndim = 1, .dims = {p->k}, .strides = {1}};
    return s;
}

/* Computes the result (made) and the sum of its terms' magnitudes (size) with plain loops. */
static void by_loops(const shape *p, const arrays *r, double *made, double *size)
{
    const wb__view *x = &r->s->views[0], *w = &r->s->views[1], *y = &r->s->views[2];
    const int kind = r->s->variant;
    const int64_t cg = p->c / p->groups, kg = p->k / p->groups;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t k = 0; k < p->k; k++)
            for (int64_t i = 0; i < y->dims[2] * y->dims[3]; i++)
                for (int64_t j = 0; j < cg * p->r * p->s; j++) {
                    const int64_t oh = i / y->dims[3], ow = i % y->dims[3];
                    const int64_t c = j / (p->r * p->s), u = j / p->s % p->r, v = j % p->s;
                    const int64_t h = oh * p->stride + u * p->dilation - p->before;
                    const int64_t q = ow * p->stride + v * p->dilation - p->before;
                    if (h < 0 || q < 0 || h >= p->h || q >= p->w) continue;
                    const int64_t g = k / kg * cg + c;
                    const double vx = kind == WB__CONV_GRAD_INPUT ? 1 : value(r, 0, n, g, h, q);
                    const double vw = kind == WB__CONV_GRAD_WEIGHT ? 1 : value(r, 1, k, c, u, v);
                    const double vy = kind == WB__CONV_FORWARD ? 1 : value(r, 2, n, k, oh, ow);
                    const int64_t to = kind == WB__CONV_FORWARD ? at(y, n, k, oh, ow)
                                     : kind == WB__CONV_GRAD_INPUT ? at(x, n, g, h, q)
                                                                   : at(w, k, c, u, v);
                    made[to] += vx * vw * vy;
                    size[to] += fabs(vx * vw * vy);
                }
}

static void run(const shape *p, wb__step s, const char *impl)
{
    static const int makes[] = {2, 0, 1};
    const int m = makes[s.variant];
    const wb__view *v = &s.views[m];
    arrays r;
    fill(&r, &s, 1u << m);
    const size_t n = (size_t)size_of(v);
    double *made = calloc(n, sizeof *made), *size = calloc(n, sizeof *size);
    assert_true(made && size);
    by_loops(p, &r, made, size);
    launch(&r, impl);
    for (int64_t i = 0; i < v->dims[0]; i++)
        for (int64_t j = 0; j < v->dims[1]; j++)
            for (int64_t k = 0; k < v->dims[2]; k++)
                for (int64_t l = 0; l < v->dims[3]; l++) {
                    const int64_t to = at(v, i, j, k, l);
                    const double z = made[to] + (s.n_views > 3 ? get(r.x[3], v->dtype, j) : 0);
                    expect(value(&r, m, i, j, k, l), row_value(s.epilogue, z),
                           epsilon(v->dtype) * (1 + size[to]), "a convolution");
                }
    free(made);
    free(size);
    empty(&r);
}

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
    char file[600], text[20];
    int64_t (*noted)(void) = NULL;
    snprintf(file, sizeof file, "%s/libcudnn.so.9", getenv("WEBER_CUDA_PATH"));
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) *(void **)&noted = dlsym(library, "vgpu_dnn_noted");
    assert_non_null(noted);
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
        made_by(&s, i ? "cuDNN flash" : "attention, tiles of 64");
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
    printf("skipped: the double of CUDA was not built\n");
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
