/* The library's kernels compared with the CPU: each step is prepared and launched on the CPU and on
 * an OpenCL device, and every byte of every buffer is compared, so that only the result may change.
 * The device is treated as a processor and as a GPU in turn, since they have different kernels.
 *
 * Tolerances: 16 * 2^-23 (f64: 16 * 2^-52) of the sum of the terms' magnitudes for products and
 * sums, and one unit of the stored dtype (2^-10 of f16, 2^-7 of bf16); none for copies, maxima and
 * rows that are added in order. */
#include "backend/gpu/gpu.h"

#include "test.h"

static const wb__backend *cl;
static const wb_device *device;
static bool as_gpu;                     /* the device is treated as a GPU */
static int lanes;                       /* items of a wave that computes fragments, or 0 */
static bool vectors;                    /* operands begin at multiples of 16 bytes */

/* ---- drawing --------------------------------------------------------------------------------- */

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}
static int64_t between(int64_t low, int64_t high)
{
    return low + draw() % (uint64_t)(high - low + 1);
}

static const wb_dtype floats[] = {WB_F32, WB_F16, WB_BF16, WB_F64};

/* ---- buffers --------------------------------------------------------------------------------- */

enum { GUARD = 16 };                    /* elements before and after a view */

typedef struct {
    wb_dtype type;
    int64_t n;
    size_t bytes;
    unsigned char *host[2];             /* the CPU's, the device's */
    void *memory;
} buffer;

static buffer make(const wb__view *v)
{
    int64_t reach = v->offset;
    for (int i = 0; i < v->ndim; i++) reach += WB__MAX(v->dims[i] - 1, 0) * v->strides[i];
    buffer b = {.type = v->dtype, .n = reach + 1 + GUARD};
    b.bytes = (size_t)b.n * wb__dtype_size(b.type);
    for (int i = 0; i < 2; i++) assert_non_null(b.host[i] = wb__alloc_aligned(b.bytes));
    for (int64_t i = 0; i < b.n; i++) {
        const double f = (double)(draw() % 2001) / 1000 - 1;
        const int64_t whole = (int64_t)draw() - (1 << 30);
        unsigned char *to = b.host[0] + (size_t)i * wb__dtype_size(b.type);
        if (wb__dtype_float(b.type)) wb__convert(to, b.type, &f, WB_F64, 1);
        else if (b.type == WB_BOOL) *to = draw() & 1;
        else memcpy(to, &whole, wb__dtype_size(b.type));
    }
    memcpy(b.host[1], b.host[0], b.bytes);
    return b;
}

static double element(const buffer *b, const unsigned char *data, int64_t i)
{
    double v;
    if (b->type == WB_F64) memcpy(&v, data + 8 * i, sizeof v);
    else wb__convert(&v, WB_F64, data + (size_t)i * wb__dtype_size(b->type), b->type, 1);
    return v;
}

/* ---- a step on both devices ------------------------------------------------------------------ */

/* Describes a step, for messages; valid until the next call. */
static const char *text_of_step(const wb__step *s)
{
    static char text[600];
    static const char *const kinds[] = {"fused", "matmul", "conv", "pool", "take", "scatter_add",
                                        "copy"};
    size_t at = (size_t)snprintf(text, sizeof text, "%s %d", kinds[s->kind], s->variant);
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        for (int d = -1; d < v->ndim && at < sizeof text - 60; d++)
            at += d < 0 ? (size_t)snprintf(text + at, sizeof text - at, " %s",
                                           wb_dtype_name(v->dtype))
                        : (size_t)snprintf(text + at, sizeof text - at, "%s%lld/%lld",
                                           d ? "," : " ",
                                           (long long)v->dims[d], (long long)v->strides[d]);
    }
    return text;
}

static void run_on(const wb_device *d, const wb__step *s, void *const *memory, const size_t *places)
{
    const wb__backend *b = d->backend;
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s: %s", b->name, wb_error());
    void *workspace = k->workspace ? b->allocate(d, k->workspace + 64) : NULL;
    assert_true(!k->workspace || workspace);
    if (b->launch(d, k, memory, places, workspace, k->workspace ? 64 : 0, NULL))
        fail_msg("%s: %s", b->name, wb_error());
    assert_int_equal(b->wait(d), 0);
    if (workspace) b->release(d, workspace, k->workspace + 64);
    b->destroy(d, k);
}

/* The sums of the terms' magnitudes, for the tolerance: the step's result on the CPU for operands
 * without their signs, without its epilogue. */
static unsigned char *magnitudes(const wb__step *s, const buffer *b, int result)
{
    wb__step plain = *s;
    void *memory[4];
    plain.epilogue = WB__OP_NONE;
    for (int i = 0; i < s->n_views; i++) {
        unsigned char *data = wb__alloc_aligned(b[i].bytes);
        memcpy(data, b[i].host[1], b[i].bytes);
        for (int64_t j = 0; j < b[i].n; j++) {
            const double v = fabs(element(&b[i], data, j));
            wb__convert(data + (size_t)j * wb__dtype_size(b[i].type), b[i].type, &v, WB_F64, 1);
        }
        memory[i] = data;
    }
    run_on(&wb__cpu, &plain, memory, NULL);
    for (int i = 0; i < s->n_views; i++)
        if (i != result) wb__free(memory[i]);
    return memory[result];
}

static void compare(const wb__step *s, const buffer *b, int at, bool exact,
                    const unsigned char *size)
{
    const bool f64 = b->type == WB_F64;
    const double sum = f64 ? 16 * 0x1p-52 : 16 * 0x1p-23;
    const double unit = b->type == WB_F16 ? 0x1p-10 : b->type == WB_BF16 ? 0x1p-7 : sum;
    if (exact) {
        for (size_t i = 0; i < b->bytes; i++)
            if (b->host[0][i] != b->host[1][i])
                fail_msg("%s: byte %zu of buffer %d of %zu differs: %02x, %02x", text_of_step(s), i,
                         at, b->bytes, b->host[0][i], b->host[1][i]);
        return;
    }
    for (int64_t i = 0; i < b->n; i++) {
        const double x = element(b, b->host[0], i), y = element(b, b->host[1], i);
        const double most = sum * element(b, size, i) + unit * fabs(x) + (f64 ? 1e-300 : 1e-7);
        if (isnan(x) ? !isnan(y) : !(fabs(x - y) <= most) && x != y)
            fail_msg("%s: element %lld of %lld: %.9g on the CPU, %.9g on the device (allowed %.3g)",
                     text_of_step(s), (long long)i, (long long)b->n, x, y, most);
    }
}

static bool has_fragments(const wb__step *s)
{
    return (s->kind == WB__STEP_MATMUL || s->kind == WB__STEP_CONV) &&
           (s->views[0].dtype == WB_F16 || s->views[0].dtype == WB_BF16);
}

/* Runs the step with the device as a processor, as a GPU and as a GPU with fragments, and compares.
 * View i has buffer i, which on a GPU begins at a random place of its memory.  `prepare` may set
 * values of the inputs. */
static void check_with(wb__step *s, int result, bool exact, void (*prepare)(buffer *, const void *),
                       const void *context)
{
    buffer b[4];
    void *host[4], *memory[4];
    size_t place[4] = {0};
    unsigned char *size = NULL;
    for (int i = 0; i < s->n_views; i++) {
        s->views[i].buffer = i;
        b[i] = make(&s->views[i]);
        host[i] = b[i].host[0];
    }
    if (prepare) prepare(b, context);
    for (int i = 0; i < s->n_views; i++) memcpy(b[i].host[1], b[i].host[0], b[i].bytes);
    if (!exact) size = magnitudes(s, b, result);
    run_on(&wb__cpu, s, host, NULL);
    for (int turn = 0; turn < 3; turn++) {
        as_gpu = turn > 0;
        lanes = turn == 2 ? draw() % 2 ? 32 : 64 : 0;
        if (lanes && !has_fragments(s)) continue;
        for (int i = 0; i < s->n_views; i++) {
            s->views[i].granule = turn ? (int)wb__dtype_size(b[i].type) : 0;
            place[i] = (size_t)s->views[i].granule * (draw() % 9) * (vectors ? 8 : 1);
            memory[i] = cl->allocate(device, place[i] + b[i].bytes);
            assert_non_null(memory[i]);
            assert_int_equal(cl->upload(device, memory[i], place[i], b[i].host[1], b[i].bytes), 0);
        }
        run_on(device, s, memory, place);
        for (int i = 0; i < s->n_views; i++) {
            buffer got = b[i];
            got.host[1] = wb__alloc_aligned(got.bytes);
            assert_int_equal(cl->download(device, got.host[1], memory[i], place[i], got.bytes), 0);
            compare(s, &got, i, exact || i != result, size);
            wb__free(got.host[1]);
            cl->release(device, memory[i], place[i] + b[i].bytes);
        }
    }
    wb__free(size);
    for (int i = 0; i < s->n_views; i++) {
        wb__free(b[i].host[0]);
        wb__free(b[i].host[1]);
    }
}

static void check(wb__step *s, int result, bool exact) { check_with(s, result, exact, NULL, NULL); }

/* ---- views ----------------------------------------------------------------------------------- */

/* Row-major in the order of `axes` (outermost first), with `gap` elements between runs. */
static wb__view view_of(wb_dtype t, int ndim, const int64_t *dims, const int *axes, int64_t gap)
{
    wb__view v = {.dtype = t, .ndim = ndim, .offset = GUARD};
    int64_t size = 1;
    if (!vectors) v.offset += draw() % 5;
    for (int i = ndim - 1; i >= 0; i--) {
        const int axis = axes ? axes[i] : i;
        v.dims[axis] = dims[axis];
        v.strides[axis] = size;
        size = size * WB__MAX(dims[axis], 1) + (i ? gap : 0);
    }
    return v;
}

static wb__view image(wb_dtype t, int64_t n, int64_t c, int64_t h, int64_t w, bool nhwc)
{
    static const int last[4] = {0, 2, 3, 1};
    return view_of(t, 4, (const int64_t[]){n, c, h, w}, nhwc ? last : NULL, 0);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { A_TURNED = 1, B_TURNED = 2, C_TURNED = 4, GAPS = 8 };
enum { A_SHARED = 16, B_SHARED = 32, BIAS = 64 };

static void product(wb_dtype t, int64_t outer, int64_t batch, int64_t m, int64_t n, int64_t k,
                    int how, wb__op act)
{
    static const int turned[4] = {0, 1, 3, 2};
    const int64_t dims[3][4] = {{outer, batch, m, k}, {outer, batch, k, n}, {outer, batch, m, n}};
    wb__step s = {.kind = WB__STEP_MATMUL, .n_views = how & BIAS ? 4 : 3, .epilogue = act};
    for (int i = 0; i < 3; i++) {
        s.views[i] = view_of(t, 4, dims[i], how >> i & 1 ? turned : NULL, how & GAPS ? 3 : 0);
        if ((i == 0 && how & A_SHARED) || (i == 1 && how & B_SHARED))
            s.views[i].strides[0] = s.views[i].strides[1] = 0;
    }
    s.views[3] = view_of(t, 1, &n, NULL, 0);
    check(&s, 2, false);
}

static void test_products(void **unused)
{
    static const int64_t shapes[][5] = {        /* outer, batch, m, n, k */
        {1, 1, 1, 1, 1}, {1, 1, 1, 10, 84}, {1, 1, 7, 1, 300}, {1, 1, 3, 5, 0}, {1, 1, 64, 64, 16},
        {1, 1, 65, 67, 33}, {1, 1, 17, 130, 129}, {1, 1, 6, 32, 2000}, {1, 1, 20, 24, 5000},
        {1, 3, 18, 19, 20}, {2, 3, 33, 8, 12}, {1, 1, 0, 5, 3}, {1, 0, 4, 4, 4},
        {1, 1, 130, 40, 70}, {2, 2, 1, 9, 40}, {1, 1, 5, 3, 4000}, {1, 1, 200, 6, 25},
    };
    for (size_t i = 0; i < WB__COUNT(shapes); i++) {
        const int64_t *s = shapes[i];
        for (int how = 0; how < 8; how++)
            if ((i + (size_t)how) % (size_t)fewer() == 0)
                product(WB_F32, s[0], s[1], s[2], s[3], s[4], how | (how & 1 ? GAPS : BIAS),
                        (int)(i + (size_t)how / 2) % 4);
    }
    product(WB_F32, 2, 3, 20, 30, 40, A_SHARED, WB__OP_NONE);
    product(WB_F32, 2, 3, 20, 30, 40, B_SHARED | BIAS, WB__OP_relu);
    product(WB_F32, 3, 2, 20, 30, 40, B_SHARED | B_TURNED | GAPS, WB__OP_NONE);
    product(WB_F32, 1, 1, 384, 1408, 40, BIAS, WB__OP_tanh);       /* large tiles */
    product(WB_F32, 1, 1, 1500, 1300, 20, A_TURNED | B_TURNED, WB__OP_NONE);
}

static void test_product_dtypes(void **unused)
{
    for (size_t t = 1; t < WB__COUNT(floats); t++) {
        if (!cl->has_dtype(device, floats[t])) {
            printf("SKIP: %s has no %s\n", device->name, wb_dtype_name(floats[t]));
            continue;
        }
        for (int how = (int)t % WB__MIN(fewer(), 4); how < 4; how += fewer()) {
            product(floats[t], 1, 2, 33, 35, 70, how | BIAS, how);
            product(floats[t], 1, 1, 3, 9, 1200, how | GAPS, 0);
        }
        product(floats[t], 1, 1, 24, 20, 3000, BIAS, WB__OP_sigmoid);
    }
}

/* Operands whose elements are loaded as vectors: sizes and addresses are multiples of 16 bytes. */
static void test_product_vectors(void **unused)
{
    vectors = true;
    for (size_t t = 0; t < WB__COUNT(floats); t++) {
        if (!cl->has_dtype(device, floats[t])) continue;
        for (int how = (int)t % WB__MIN(fewer(), 4); how < 4; how += fewer()) {
            product(floats[t], 1, 2, 72, 88, 104, how | BIAS, how);
            product(floats[t], 1, 1, 32, 40, 3000, how | (how ? C_TURNED : 0), WB__OP_NONE);
        }
    }
    product(WB_BF16, 1, 1, 1408, 1536, 40, BIAS, WB__OP_relu);     /* large tiles */
    product(WB_F32, 1, 1, 1408, 1536, 16, A_TURNED, WB__OP_NONE);
    vectors = false;
}

/* Batch dimensions that cannot be merged into one. */
static void test_product_batches(void **unused)
{
    wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 3};
    const int64_t dims[3][6] = {{2, 3, 2, 4, 9, 21}, {2, 3, 2, 4, 21, 18}, {2, 3, 2, 4, 9, 18}};
    static const int orders[3][6] = {{1, 0, 3, 2, 4, 5}, {3, 2, 1, 0, 5, 4}, {0, 2, 4, 1, 3, 5}};
    for (int i = 0; i < 3; i++) s.views[i] = view_of(WB_F32, 6, dims[i], orders[i], 0);
    check(&s, 2, false);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

typedef struct {
    int64_t n, c, h, w, k, kh, kw, stride[2], dilation[2], pad[4], groups;
} shape;

static void convolution(wb_dtype t, const shape *c, wb__conv_kind kind, int layouts, bool bias,
                        int act)
{
    wb__step s = {.kind = WB__STEP_CONV, .variant = kind, .n_views = bias ? 4 : 3, .epilogue = act};
    const int64_t size[2] = {
        (c->h + c->pad[0] + c->pad[1] - c->dilation[0] * (c->kh - 1) - 1) / c->stride[0] + 1,
        (c->w + c->pad[2] + c->pad[3] - c->dilation[1] * (c->kw - 1) - 1) / c->stride[1] + 1};
    memcpy(s.conv.stride, c->stride, sizeof s.conv.stride);
    memcpy(s.conv.dilation, c->dilation, sizeof s.conv.dilation);
    memcpy(s.conv.pad, c->pad, sizeof s.conv.pad);
    memcpy(s.conv.size, size, sizeof s.conv.size);
    s.conv.groups = c->groups;
    s.views[0] = image(t, c->n, c->c, c->h, c->w, layouts & 1);
    s.views[1] = image(t, c->k, c->c / c->groups, c->kh, c->kw, false);
    s.views[2] = image(t, c->n, c->k, size[0], size[1], layouts & 2);
    s.views[3] = view_of(t, 1, kind == WB__CONV_GRAD_INPUT ? &c->c : &c->k, NULL, 0);
    static const int result[] = {
        [WB__CONV_FORWARD] = 2, [WB__CONV_GRAD_INPUT] = 0, [WB__CONV_GRAD_WEIGHT] = 1};
    check(&s, result[kind], false);
}

static const shape shapes[] = {
    {2, 1, 12, 12, 6, 5, 5, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
    {3, 6, 11, 9, 16, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
    {2, 3, 13, 17, 5, 3, 4, {2, 3}, {1, 1}, {1, 0, 2, 1}, 1},
    {1, 4, 14, 10, 8, 3, 2, {1, 2}, {2, 3}, {2, 1, 0, 3}, 2},
    {2, 6, 9, 9, 6, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 6},
    {2, 4, 7, 5, 12, 2, 3, {3, 1}, {1, 2}, {0, 3, 2, 2}, 4},
    {1, 20, 20, 20, 33, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
    {4, 17, 8, 8, 70, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
    {1, 40, 9, 9, 6, 3, 3, {2, 1}, {1, 1}, {1, 1, 1, 1}, 1},
    {2, 5, 1, 40, 7, 1, 5, {1, 2}, {1, 1}, {0, 0, 2, 2}, 1},
    {1, 2, 3, 3, 3, 3, 3, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
    {1, 3, 4, 4, 2, 2, 2, {4, 4}, {1, 1}, {3, 3, 3, 3}, 1},     /* some windows are only padding */
    {0, 3, 8, 8, 4, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
};

static void test_convolutions(void **unused)
{
    static const wb__op behind[] = {WB__OP_NONE, WB__OP_neg, WB__OP_abs, WB__OP_tanh};
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (int kind = 0; kind < 3; kind++)
            for (int layouts = 0; layouts < 4; layouts += 3)
                if ((i + (size_t)(kind + layouts)) % (size_t)fewer() == 0)
                    convolution(WB_F32, &shapes[i], (wb__conv_kind)kind, layouts,
                                kind != WB__CONV_GRAD_WEIGHT && i % 2,
                                kind != WB__CONV_GRAD_WEIGHT ? behind[i % 4] : WB__OP_NONE);
    convolution(WB_F32, &shapes[6], WB__CONV_FORWARD, 1, true, WB__OP_relu);
    convolution(WB_F32, &shapes[6], WB__CONV_FORWARD, 2, true, WB__OP_relu);
    convolution(WB_F32, &shapes[6], WB__CONV_GRAD_INPUT, 1, false, 0);
    convolution(WB_F32, &shapes[6], WB__CONV_GRAD_WEIGHT, 2, false, 0);
}

static void test_convolution_dtypes(void **unused)
{
    for (size_t t = 1; t < WB__COUNT(floats); t++) {
        if (!cl->has_dtype(device, floats[t])) {
            printf("SKIP: %s has no %s\n", device->name, wb_dtype_name(floats[t]));
            continue;
        }
        for (int kind = 0; kind < 3; kind++) {
            convolution(floats[t], &shapes[3], (wb__conv_kind)kind, 0, false, 0);
            convolution(floats[t], &shapes[6], (wb__conv_kind)kind, 3, kind == 0, 0);
        }
    }
}

/* As test_product_vectors: channels are multiples of 16 bytes, and also a window of 1. */
static void test_convolution_vectors(void **unused)
{
    static const shape wide[] = {
        {2, 32, 10, 9, 48, 3, 3, {2, 1}, {1, 2}, {1, 1, 2, 2}, 2},
        {2, 24, 8, 8, 40, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
        /* several tiles read the weights, and a step of 32 inner indices has one tap */
        {2, 64, 25, 11, 64, 3, 3, {2, 1}, {1, 1}, {1, 1, 1, 1}, 2},
        /* the same, with steps of several taps; with few tiles; with a window of 1 */
        {2, 24, 17, 13, 40, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
        {2, 16, 17, 13, 48, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
        {1, 32, 9, 8, 32, 3, 3, {1, 2}, {2, 1}, {2, 1, 1, 0}, 1},
        {2, 96, 9, 7, 32, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
    };
    vectors = true;
    for (size_t t = 0; t < 2; t++) {                            /* f32 and f16 */
        if (!cl->has_dtype(device, floats[t])) continue;
        for (size_t i = 0; i < WB__COUNT(wide); i++)
            for (int kind = 0; kind < 3; kind++) {
                if ((i + t + (size_t)kind) % (size_t)fewer()) continue;
                convolution(floats[t], &wide[i], (wb__conv_kind)kind, 3, kind == 0, 0);
                if (i) convolution(floats[t], &wide[i], (wb__conv_kind)kind, 0, false, 0);
            }
    }
    vectors = false;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* Few distinct values, so that a window has several equal maxima, of which the first must be found;
 * and some NaN. */
static void coarse(buffer *b, const void *context)
{
    const wb__step *s = context;
    for (int i = 0; i < s->n_views - 1; i++) {
        if (s->variant == WB__POOL_MEAN_GRAD || (i && s->variant == WB__POOL_MAX_GRAD)) continue;
        for (int64_t j = 0; j < b[i].n; j++) {
            const uint32_t u = draw();
            const double v = u % 97 == 0 ? NAN : u % 89 == 0 ? -INFINITY : (double)(u % 4);
            const double w = (double)(u % 1000) / 500;
            wb__convert(b[i].host[0] + (size_t)j * wb__dtype_size(b[i].type), b[i].type,
                        i || s->variant == WB__POOL_MEAN ? &w : &v, WB_F64, 1);
        }
    }
}

static void test_pools(void **unused)
{
    static const int64_t pools[][12] = {    /* n c h w, window, stride, pad */
        {2, 3, 12, 12, 2, 2, 2, 2, 0, 0, 0, 0}, {2, 17, 9, 11, 3, 3, 2, 2, 1, 1, 1, 1},
        {1, 4, 7, 8, 3, 2, 1, 3, 1, 0, 0, 1}, {3, 1, 6, 5, 6, 5, 1, 1, 0, 0, 0, 0},
        {1, 2, 10, 10, 2, 3, 4, 4, 0, 0, 1, 1}, {0, 2, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0}};
    for (size_t t = 0; t < WB__COUNT(floats); t++) {
        if (!cl->has_dtype(device, floats[t])) {
            printf("SKIP: %s has no %s\n", device->name, wb_dtype_name(floats[t]));
            continue;
        }
        for (size_t i = 0; i < (t ? 2 : WB__COUNT(pools)); i++)
            for (int kind = 0; kind < 5; kind += t ? 2 : 1)     /* each dtype is compiled */
                for (int nhwc = 0; nhwc < 2; nhwc++) {
                    const int64_t *p = pools[i];
                    wb__step s = {.kind = WB__STEP_POOL, .variant = kind};
                    const int64_t oh = (p[2] + p[8] + p[9] - p[4]) / p[6] + 1;
                    const int64_t ow = (p[3] + p[10] + p[11] - p[5]) / p[7] + 1;
                    const wb__view x = image(floats[t], p[0], p[1], p[2], p[3], nhwc);
                    const wb__view y = image(floats[t], p[0], p[1], oh, ow, nhwc);
                    const wb__view views[5][3] = {{x, y}, {x, y, x}, {x, x, y}, {x, y}, {y, x}};
                    s.n_views = kind == WB__POOL_MAX_GRAD || kind == WB__POOL_MAX_GATHER ? 3 : 2;
                    memcpy(s.views, views[kind], sizeof views[kind]);
                    memcpy(s.pool.window, p + 4, 2 * sizeof *p);
                    memcpy(s.pool.stride, p + 6, 2 * sizeof *p);
                    memcpy(s.pool.pad, p + 8, 4 * sizeof *p);
                    check_with(&s, s.n_views - 1,
                               kind == WB__POOL_MAX || kind == WB__POOL_MAX_GATHER, coarse, &s);
                }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct { int64_t rows; int index; } draw_rows;

/* Indices of which a few repeat often and a few are out of range. */
static void indices(buffer *b, const void *context)
{
    const draw_rows *d = context;
    buffer *index = &b[d->index];
    for (int64_t i = 0; i < index->n; i++) {
        int64_t v = draw() % 3 ? between(0, d->rows - 1) : d->rows / 2;
        if (draw() % 11 == 0) v = draw() % 2 ? -1 : d->rows;
        memcpy(index->host[0] + (size_t)i * wb__dtype_size(index->type), &v,
               wb__dtype_size(index->type));
    }
}

static void rows(wb_dtype t, wb_dtype of_index, int64_t n, int64_t count, int64_t inner)
{
    const int64_t matrix[2] = {n, inner}, taken[2] = {count, inner};
    wb__step s = {.kind = WB__STEP_GATHER, .n_views = 3};
    s.views[0] = view_of(t, 2, matrix, NULL, 0);
    s.views[1] = view_of(of_index, 1, &count, NULL, 0);
    s.views[2] = view_of(t, 2, taken, NULL, 0);
    check_with(&s, 2, true, indices, &(draw_rows){n, 1});
    s.views[0].strides[0] += 5;                 /* gaps between rows */
    check_with(&s, 2, true, indices, &(draw_rows){n, 1});
    s.kind = WB__STEP_SCATTER_ADD;
    s.views[0] = view_of(of_index, 1, &count, NULL, 0);
    s.views[1] = view_of(t, 2, taken, NULL, 0);
    s.views[2] = view_of(t, 2, matrix, NULL, 0);
    check_with(&s, 2, true, indices, &(draw_rows){n, 0});
}

static void test_rows(void **unused)
{
    static const wb_dtype types[] = {WB_F32, WB_F16, WB_BF16, WB_F64, WB_I8, WB_U8, WB_I32, WB_I64};
    for (size_t t = 0; t < WB__COUNT(types); t++) {
        if (!cl->has_dtype(device, types[t])) {
            printf("SKIP: %s has no %s\n", device->name, wb_dtype_name(types[t]));
            continue;
        }
        rows(types[t], t % 2 ? WB_I64 : WB_I32, 19, 700, 13);
        rows(types[t], t % 2 ? WB_I8 : WB_U8, 100, 64, 1);
    }
    rows(WB_F32, WB_I64, 1, 5, 3);
    rows(WB_F32, WB_I32, 2000, 3, 64);
    rows(WB_F32, WB_I32, 7, 0, 4);
    rows(WB_F32, WB_I32, 300, 5000, 2);
    rows(WB_I32, WB_I32, 300, (1 << 16) + 700, 1);      /* more than the kernel ranks */
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void test_copies(void **unused)
{
    static const wb_dtype types[] = {WB_F32, WB_F16, WB_BF16, WB_F64, WB_I8, WB_U8, WB_I32, WB_I64,
                                     WB_BOOL};
    for (size_t t = 0; t < WB__COUNT(types); t++)
        for (int ndim = 0; ndim <= WB_MAX_DIMS; ndim += t ? 2 : 1)
            for (int turn = 0; turn < (t ? 1 : 6); turn++) {
                wb__step s = {.kind = WB__STEP_COPY, .n_views = 2};
                int64_t dims[WB_MAX_DIMS];
                for (int i = 0; i < ndim; i++) dims[i] = between(1, ndim > 4 ? 3 : 40 / (ndim + 1));
                if (turn == 5 && ndim) dims[0] = 0;
                for (int side = 0; side < 2; side++) {
                    int axes[WB_MAX_DIMS];
                    for (int i = 0; i < ndim; i++) axes[i] = i;
                    for (int i = ndim - 1; i > 0 && turn; i--) {
                        const int j = (int)between(0, i), held = axes[i];
                        axes[i] = axes[j];
                        axes[j] = held;
                    }
                    s.views[side] = view_of(types[t], ndim, dims, axes, turn > 2 ? 2 : 0);
                }
                if (turn == 4 && ndim) s.views[0].strides[between(0, ndim - 1)] = 0;
                check(&s, 1, true);
            }
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* The linker wraps wb__gpu_step: the backend calls __wrap_wb__gpu_step in its place. */
int __real_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = *t;
    target.in_turn = !as_gpu;
    target.fragments_f16 = target.fragments_bf16 = lanes;
    return __real_wb__gpu_step(&target, step, work);
}

static int begin(void **unused)
{
    cl = &wb__cl_backend;
    if (cl->start()) {
        fprintf(stderr, "%s\n", wb_error());
        return 1;
    }
    device = cl->device(0);
    return 0;
}

static int end(void **unused)
{
    cl->stop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_product_dtypes),
        cmocka_unit_test(test_product_vectors), cmocka_unit_test(test_product_batches),
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_convolution_dtypes),
        cmocka_unit_test(test_convolution_vectors), cmocka_unit_test(test_pools),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
