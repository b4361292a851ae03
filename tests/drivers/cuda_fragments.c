/* The fragments of Intel's GPUs (kernels/fragments.k) on CUDA's double, with Intel's functions in
 * software: which item has which element is as cl_intel_subgroup_matrix_multiply_accumulate
 * (revision 1.1.0) states.
 *
 *   a     8 rows: element i of an item's vector is row i; inner index `item`, or, in sub-groups of
 *         8, inner indices 2 item (in the low half) and 2 item + 1
 *   b     column `item`: element j is inner indices 2 j (in the low half) and 2 j + 1
 *   acc   column `item`: element i is row i
 *
 * Products and convolutions of small integers are exact, and compared with loops and the CPU's;
 * attention is compared with its kernels without fragments. */
#include "test.h"

#include "backend/gpu/gpu.h"
#include "base/base.h"

static const wb__backend *b;
static const wb_device *device;
static int lanes;                       /* items of a sub-group; 0: no fragments */
static int texts;                       /* with fragments, so far */

/* ---- Intel's functions ----------------------------------------------------------------------- */

static const char functions[] =
    "#define cl_intel_subgroup_matrix_multiply_accumulate 1\n"
    "#define SUB_GROUP_ %d\n"
    "typedef short short8 __attribute__((vector_size(16)));\n"
    "typedef int int8 __attribute__((vector_size(32)));\n"
    "typedef float float8 __attribute__((vector_size(32)));\n"
    "FN f32 native_exp2(f32 x) { return exp2f(x); }\n"
    "FN f32 intel_sub_group_shuffle_xor(f32 x, uint mask)\n"
    "{\n"
    "    LOCAL f32 all[64];\n"
    "    const uint item = LID(0);\n"
    "    BARRIER;\n"
    "    all[item] = x;\n"
    "    BARRIER;\n"
    "    return all[item ^ mask];\n"
    "}\n"
    "#define MAD_(name, OF)\\\n"
    "FN float8 intel_sub_group_##name##_matrix_mad_k16(%s a, int8 b, float8 acc)\\\n"
    "{\\\n"
    "    LOCAL int all[64][8];\\\n"
    "    const uint item = LID(0), first = item / SUB_GROUP_ * SUB_GROUP_;\\\n"
    "    BARRIER;\\\n"
    "    for (int i = 0; i < 8; i++) all[item][i] = a[i];\\\n"
    "    BARRIER;\\\n"
    "    for (int i = 0; i < 8; i++)\\\n"
    "        for (int k = 0; k < 16; k++) {\\\n"
    "            const uint x = all[first + k * SUB_GROUP_ / 16][i];\\\n"
    "            const uint high = SUB_GROUP_ == 8 && k %% 2;\\\n"
    "            const uint y = (uint)b[k / 2] >> k %% 2 * 16;\\\n"
    "            acc[i] = fmaf(OF((u16)(x >> high * 16)), OF((u16)y), acc[i]);\\\n"
    "        }\\\n"
    "    return acc;\\\n"
    "}\n"
    "MAD_(f16_f16, OF_F16)\n"
    "MAD_(bf16_bf16, OF_BF16)\n";

/* The linker wraps wb__gpu_step: the backend calls __wrap_wb__gpu_step in its place. */
int __real_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = *t;
    target.fragments_f16 = target.fragments_bf16 = lanes;
    const int status = __real_wb__gpu_step(&target, step, work);
    for (int i = 0; lanes && !status && i < (*work)->n; i++) {
        wb__gpu_launch *l = &(*work)->launch[i];
        if (!strstr(l->text, "#define FRAGMENTS ")) continue;
        char *head = wb__printf(functions, lanes, lanes == 8 ? "int8" : "short8");
        char *text = wb__printf("%s%s", head, l->text);
        assert_non_null(text);
        wb__free(head);
        wb__free(l->text);
        l->text = text;
        texts++;
    }
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

enum { MOST = 9 };

static uint32_t draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void run_on(const wb_device *d, const wb__step *s, void *const *memory)
{
    const wb__backend *of = d->backend;
    wb__kernel *k = NULL;
    if (of->prepare(d, s, &k)) fail_msg("%s: %s", of->name, wb_error());
    void *workspace = k->workspace ? of->allocate(d, k->workspace) : NULL;
    if (of->launch(d, k, memory, NULL, workspace, 0, NULL)) fail_msg("%s", wb_error());
    assert_int_equal(of->wait(d), 0);
    if (workspace) of->release(d, workspace, k->workspace);
    of->destroy(d, k);
}

static size_t bytes_of(const wb__view *v)
{
    int64_t reach = v->offset + 1;
    for (int i = 0; i < v->ndim; i++) reach += (v->dims[i] - 1) * v->strides[i];
    return (size_t)reach * wb__dtype_size(v->dtype);
}

/* Runs the step on the double; host[i] is the memory of view i before and after. */
static void run(const wb__step *s, void *const *host)
{
    void *memory[MOST];
    for (int i = 0; i < s->n_views; i++) {
        const size_t n = bytes_of(&s->views[i]);
        assert_non_null(memory[i] = b->allocate(device, n));
        assert_int_equal(b->upload(device, memory[i], 0, host[i], n), 0);
    }
    run_on(device, s, memory);
    for (int i = 0; i < s->n_views; i++) {
        const size_t n = bytes_of(&s->views[i]);
        assert_int_equal(b->download(device, host[i], memory[i], 0, n), 0);
        b->release(device, memory[i], n);
    }
}

/* Memory of a view, with integers from -3 to 3; of real numbers from -1 to 1. */
static void *filled(const wb__view *v, bool integers)
{
    const size_t n = bytes_of(v), each = wb__dtype_size(v->dtype);
    char *x = wb__alloc_aligned(n);
    assert_non_null(x);
    for (size_t i = 0; i < n / each; i++) {
        const double value = integers ? (double)(draw() % 7) - 3
                                      : (double)(draw() % 2001) / 1000 - 1;
        wb__convert(x + i * each, v->dtype, &value, WB_F64, 1);
    }
    return x;
}

static double number(const void *x, wb_dtype t, int64_t i)
{
    double v;
    wb__convert(&v, WB_F64, (const char *)x + (size_t)i * wb__dtype_size(t), t, 1);
    return v;
}

/* ---- products -------------------------------------------------------------------------------- */

static wb__view matrix(wb_dtype t, int buffer, int64_t rows, int64_t columns, bool turned,
                       int64_t offset)
{
    return (wb__view){.dtype = t, .buffer = buffer, .ndim = 2, .offset = offset,
                      .dims = {rows, columns},
                      .strides = {turned ? 1 : columns, turned ? rows : 1}};
}

/* Bit i of `how`: matrix i is transposed in memory; bit 3: no vector is aligned. */
static void product(wb_dtype t, int64_t m, int64_t n, int64_t k, int how)
{
    const int64_t at = how >> 3 & 1;
    const wb__step s = {.kind = WB__STEP_MATMUL, .n_views = 3,
                        .views = {matrix(t, 0, m, k, how & 1, at),
                                  matrix(t, 1, k, n, how >> 1 & 1, at),
                                  matrix(t, 2, m, n, how >> 2 & 1, at)}};
    const wb__view *v = s.views;
    void *x[3];
    for (int i = 0; i < 3; i++) x[i] = filled(&v[i], true);
    run(&s, x);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, rounded;
            uint16_t stored;
            for (int64_t p = 0; p < k; p++)
                sum += number(x[0], t, at + i * v[0].strides[0] + p * v[0].strides[1]) *
                       number(x[1], t, at + p * v[1].strides[0] + j * v[1].strides[1]);
            wb__convert(&stored, t, &sum, WB_F64, 1);
            rounded = number(&stored, t, 0);
            const double y = number(x[2], t, at + i * v[2].strides[0] + j * v[2].strides[1]);
            if (y != rounded)
                fail_msg("%d lanes, %s, %lld x %lld x %lld, how %d: (%lld, %lld) is %g, not %g",
                         lanes, wb_dtype_name(t), (long long)m, (long long)n, (long long)k, how,
                         (long long)i, (long long)j, y, rounded);
        }
    for (int i = 0; i < 3; i++) wb__free(x[i]);
}

TEST(products)
{
    static const int64_t shapes[][3] = {        /* m, n, k */
        {16, 16, 16}, {64, 64, 32}, {70, 67, 33}, {5, 130, 100}, {129, 20, 48}, {72, 72, 200},
        {8, 8, 1500}};
    for (lanes = 8; lanes <= 16; lanes += 8)
        for (size_t i = 0; i < WB__COUNT(shapes); i++)
            for (int how = 0; how < 16; how += i == 2 ? 1 : 5) {
                const int before = texts;
                product(how % 2 ? WB_F16 : WB_BF16, shapes[i][0], shapes[i][1], shapes[i][2], how);
                product(how % 2 ? WB_BF16 : WB_F16, shapes[i][0], shapes[i][1], shapes[i][2], how);
                assert_true(texts > before);
            }
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static wb__view image(wb_dtype t, int buffer, int64_t n, int64_t c, int64_t h, int64_t w, bool last)
{
    return (wb__view){.dtype = t, .buffer = buffer, .ndim = 4, .dims = {n, c, h, w},
                      .strides = {c * h * w, last ? 1 : h * w, last ? w * c : w, last ? c : 1}};
}

/* Convolutions of images with c channels on a side of `side` pixels, of which 32 are read for each
 * pixel if the channels are not last, and whose weights are packed if there are many pixels. */
static void convolution(int variant, wb_dtype t, int64_t c, int64_t side, bool last)
{
    const int before = texts;
    const wb__step s = {
        .kind = WB__STEP_CONV, .variant = variant, .n_views = 3,
        .conv = {.stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1},
        .views = {image(t, 0, 2, c, side, side, last), image(t, 1, 24, c, 3, 3, false),
                  image(t, 2, 2, 24, side, side, last)}};
    void *x[3], *same[3];
    for (int k = 0; k < 3; k++) {
        const size_t n = bytes_of(&s.views[k]);
        x[k] = filled(&s.views[k], true);
        assert_non_null(same[k] = wb__alloc_aligned(n));
        memcpy(same[k], x[k], n);
    }
    run(&s, x);
    run_on(&wb__cpu, &s, same);
    assert_true(texts > before);
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(x[k], same[k], bytes_of(&s.views[k]));
        wb__free(x[k]);
        wb__free(same[k]);
    }
}

TEST(convolutions)
{
    for (lanes = 8; lanes <= 16; lanes += 8)
        for (int i = 0; i < 6; i++) {
            convolution(i % 3, i % 2 ? WB_F16 : WB_BF16, 16, 9, i / 3);
            convolution(i % 3, i % 2 ? WB_BF16 : WB_F16, 32, 17, i / 3);
        }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attention(wb_dtype t, int64_t n, int64_t depth, int64_t width, bool causal)
{
    enum { LSE = 4 };
    wb__step s = {.kind = WB__STEP_ATTENTION, .attention = {.scale = 0.125, .causal = causal}};
    void *x[2][MOST];
    for (int i = 0; i < MOST; i++) {
        const int64_t columns = i == LSE ? 1 : i == 2 || i == 3 || i == 5 || i == 8 ? width : depth;
        s.views[i] = (wb__view){.dtype = i == LSE ? WB_F32 : t, .buffer = i, .ndim = 4,
                                .dims = {1, 2, n, columns},
                                .strides = {2 * n * columns, n * columns, columns, 1}};
        x[0][i] = filled(&s.views[i], false);
        assert_non_null(x[1][i] = wb__alloc_aligned(bytes_of(&s.views[i])));
        memcpy(x[1][i], x[0][i], bytes_of(&s.views[i]));
    }
    for (int turn = 0; turn < 2; turn++) {
        const int before = texts;
        lanes = turn ? 16 : 0;
        s.variant = WB__ATTENTION_FORWARD;
        s.n_views = 5;
        run(&s, x[turn]);
        s.variant = WB__ATTENTION_GRAD;
        s.n_views = 9;
        run(&s, x[turn]);
        assert_int_equal(texts > before, turn);
    }
    for (int i = 3; i < MOST; i++) {
        const wb_dtype f = s.views[i].dtype;
        const int64_t count = (int64_t)(bytes_of(&s.views[i]) / wb__dtype_size(f));
        double most = 0.01;
        for (int64_t e = 0; e < count; e++) most = fmax(most, fabs(number(x[0][i], f, e)));
        for (int64_t e = 0; e < count; e++) {
            const double y = number(x[0][i], f, e), z = number(x[1][i], f, e);
            if (!(fabs(y - z) <= (t == WB_F16 ? 0x1p-8 : 0x1p-5) * most))
                fail_msg("%s, operand %d, element %lld of %lld: %g, without fragments %g",
                         wb_dtype_name(t), i, (long long)e, (long long)count, z, y);
        }
        wb__free(x[0][i]);
        wb__free(x[1][i]);
    }
    for (int i = 0; i < 3; i++) wb__free(x[0][i]), wb__free(x[1][i]);
}

TEST(attentions)
{
    attention(WB_BF16, 70, 64, 64, true);
    attention(WB_F16, 33, 20, 12, false);
}

/* Sub-groups of 8 items have too few registers for attention. */
TEST(attention_in_small_groups)
{
    const int before = texts;
    wb__step s = {.kind = WB__STEP_ATTENTION, .variant = WB__ATTENTION_FORWARD, .n_views = 5,
                  .attention = {.scale = 0.125}};
    void *x[5];
    for (int i = 0; i < 5; i++) {
        s.views[i] = (wb__view){.dtype = i == 4 ? WB_F32 : WB_BF16, .buffer = i, .ndim = 4,
                                .dims = {1, 1, 20, i == 4 ? 1 : 16},
                                .strides = {20 * 16, 20 * 16, i == 4 ? 1 : 16, 1}};
        x[i] = filled(&s.views[i], false);
    }
    lanes = 8;
    run(&s, x);
    assert_int_equal(texts, before);
    for (int i = 0; i < 5; i++) wb__free(x[i]);
}

static int begin(void **unused)
{
    setenv("WEBER_CUDA_CUBLASLT", "0", 1);
    setenv("WEBER_CUDA_CUDNN", "0", 1);
    b = &wb__cu_backend;
    if (b->start()) {
        fprintf(stderr, "%s\n", wb_error());
        return 1;
    }
    device = b->device(0);
    return 0;
}

static int end(void **unused)
{
    b->stop();
    return 0;
}

int main(void) { return run_cases(begin, end); }
