/* Steps of convolution, prepared by hand on a device whose library computes them, and compared with
 * plain loops.  The program sets b and d. */
#ifndef WB_TEST_CONV_BY_HAND_H
#define WB_TEST_CONV_BY_HAND_H

#include "test.h"

#include "row_value.h"

#include "backend/backend.h"
#include "base/base.h"

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

#endif
