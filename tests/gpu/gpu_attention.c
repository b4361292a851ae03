/* The attention kernels compared with loops in double, on OpenCL's first device: forward and
 * gradients, in every layout and dtype that they support, at sizes around those of their tiles.  No
 * byte outside the results changes, and a second run gives the same bits.
 *
 * The tolerance is 2^-18 (f32) or two units of the stored dtype, times the sum of the largest
 * element and 0.01 (with one key the gradients of q and k are 0). */
#include "attention_reference.h"

#include "backend/gpu/gpu.h"

#include "test.h"

static const wb__backend *cl;
static const wb_device *device;
static size_t local_bytes = 48 << 10;   /* the shared memory of a group */
static int lanes, processors;           /* items of a wave that multiplies fragments, or 0 */

enum {
    Q = ATTENTION_Q, KEYS = ATTENTION_K, V = ATTENTION_V, O = ATTENTION_O, LSE = ATTENTION_LSE,
    DO = ATTENTION_DO, DQ = ATTENTION_DQ, DK = ATTENTION_DK, DV = ATTENTION_DV,
    OPERANDS = ATTENTION_VIEWS, GUARD = 16
};

static uint64_t state = 1;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) / (1u << 30) - 1;
}

typedef struct {
    wb__view view;
    int64_t n;
    size_t bytes;
    unsigned char *data;
    double *want;                       /* in the order of the view's dimensions */
} operand;

typedef struct {
    wb_dtype type;
    int64_t n, h, q, k, d, e;
    bool causal, inside;                /* inside: layout [N, T, H, D] instead of [N, H, T, D] */
    int gap;
} setting;

static int64_t size_of(const wb__view *v)
{
    return v->dims[0] * v->dims[1] * v->dims[2] * v->dims[3];
}

static int64_t place(const wb__view *v, int64_t i)
{
    int64_t at = v->offset;
    for (int d = 3; d >= 0; d--) {
        at += i % v->dims[d] * v->strides[d];
        i /= v->dims[d];
    }
    return at;
}

static double get(const operand *p, const unsigned char *data, int64_t at)
{
    double x;
    wb__convert(&x, WB_F64, data + (size_t)at * wb__dtype_size(p->view.dtype), p->view.dtype, 1);
    return x;
}

static void put(operand *p, int64_t at, double x)
{
    wb__convert(p->data + (size_t)at * wb__dtype_size(p->view.dtype), p->view.dtype, &x, WB_F64, 1);
}

static operand make(const setting *s, int which, int64_t t, int64_t width)
{
    const bool inside = s->inside && which != LSE;
    operand p = {.view = {.dtype = which == LSE ? WB_F32 : s->type, .buffer = which, .ndim = 4,
                          .offset = GUARD + which % 3, .dims = {s->n, s->h, t, width}}};
    int64_t *step = p.view.strides, row = width + (which == LSE ? 0 : s->gap);
    step[3] = 1;
    step[2] = inside ? s->h * row : row;
    step[1] = inside ? row : t * row;
    step[0] = s->h * t * row;
    p.n = p.view.offset + s->n * step[0] + GUARD;
    p.bytes = (size_t)p.n * wb__dtype_size(p.view.dtype);
    p.data = wb__alloc_aligned(p.bytes);
    p.want = malloc((size_t)size_of(&p.view) * sizeof *p.want);
    assert_true(p.data && p.want);
    for (int64_t i = 0; i < p.n; i++) put(&p, i, draw());
    for (int64_t i = 0; i < size_of(&p.view); i++) p.want[i] = get(&p, p.data, place(&p.view, i));
    return p;
}

static void reference_head(const setting *s, operand *p, int64_t z, double scale)
{
    const attention_shape shape = {s->q, s->k, s->d, s->e, scale, s->causal};
    double *view[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        view[i] = p[i].want + z * p[i].view.dims[2] * p[i].view.dims[3];
    attention_head(&shape, view);
}

/* Prepares and launches the step on copies of the operands, and reads them back. */
static void run(const wb__step *s, operand *p, unsigned char *got[])
{
    void *memory[OPERANDS];
    wb__kernel *kernel = NULL;
    if (cl->prepare(device, s, &kernel)) fail_msg("%s", wb_error());
    void *workspace = kernel->workspace ? cl->allocate(device, kernel->workspace + 64) : NULL;
    for (int i = 0; i < s->n_views; i++) {
        assert_non_null(memory[i] = cl->allocate(device, p[i].bytes));
        assert_int_equal(cl->upload(device, memory[i], 0, p[i].data, p[i].bytes), 0);
    }
    if (cl->launch(device, kernel, memory, NULL, workspace, workspace ? 64 : 0, NULL))
        fail_msg("%s", wb_error());
    for (int i = 0; i < s->n_views; i++) {
        assert_non_null(got[i] = wb__alloc_aligned(p[i].bytes));
        assert_int_equal(cl->download(device, got[i], memory[i], 0, p[i].bytes), 0);
        cl->release(device, memory[i], p[i].bytes);
    }
    if (workspace) cl->release(device, workspace, kernel->workspace + 64);
    cl->destroy(device, kernel);
}

/* Checks that a result is within the tolerance and that no other byte of its memory changed. */
static void compare(const setting *s, const operand *p, int which, unsigned char *got)
{
    const wb_dtype t = p->view.dtype;
    const double unit = t == WB_F16 ? 0x1p-9 : t == WB_BF16 ? 0x1p-6 : 0x1p-18;
    const size_t size = wb__dtype_size(t);
    double most = 0;
    for (int64_t i = 0; i < size_of(&p->view); i++) most = fmax(most, fabs(p->want[i]));
    for (int64_t i = 0; i < size_of(&p->view); i++) {
        const int64_t at = place(&p->view, i);
        const double x = get(p, got, at);
        if (!(fabs(x - p->want[i]) <= unit * (most + 0.01)))
            fail_msg("%s %lld,%lld,%lldx%lld,%lld,%lld causal %d: "
                     "element %lld of %d is %.9g, not %.9g",
                     wb_dtype_name(t), (long long)s->n, (long long)s->h, (long long)s->q,
                     (long long)s->k, (long long)s->d, (long long)s->e, s->causal, (long long)i,
                     which, x, p->want[i]);
        memcpy(got + (size_t)at * size, p->data + (size_t)at * size, size);
    }
    assert_memory_equal(got, p->data, p->bytes);
}

static void run_twice(const setting *s, wb__step *step, operand *p, int first_result, int results)
{
    unsigned char *got[2][OPERANDS];
    for (int turn = 0; turn < 2; turn++) run(step, p, got[turn]);
    for (int i = 0; i < step->n_views; i++) {
        assert_memory_equal(got[0][i], got[1][i], p[i].bytes);
        if (i >= first_result && i < first_result + results) compare(s, &p[i], i, got[0][i]);
        else assert_memory_equal(got[0][i], p[i].data, p[i].bytes);
        wb__free(got[0][i]);
        wb__free(got[1][i]);
    }
}

static void check(setting s)
{
    const double scale = 1 / sqrt((double)s.d);
    operand p[OPERANDS];
    wb__step step = {.kind = WB__STEP_ATTENTION, .variant = WB__ATTENTION_FORWARD, .n_views = 5,
                     .attention = {.scale = scale, .causal = s.causal}};
    for (int i = 0; i < OPERANDS; i++) {
        const bool of_key = i == KEYS || i == V || i == DK || i == DV;
        p[i] = make(&s, i, of_key ? s.k : s.q,
                    i == LSE ? 1 : i == V || i == O || i == DO || i == DV ? s.e : s.d);
        step.views[i] = p[i].view;
    }
    for (int64_t z = 0; z < s.n * s.h; z++) reference_head(&s, p, z, scale);
    run_twice(&s, &step, p, O, 2);
    for (int64_t i = 0; i < size_of(&p[O].view); i++)
        put(&p[O], place(&p[O].view, i), p[O].want[i]);
    for (int64_t i = 0; i < size_of(&p[LSE].view); i++)
        put(&p[LSE], place(&p[LSE].view, i), p[LSE].want[i]);
    step.variant = WB__ATTENTION_GRAD;
    step.n_views = OPERANDS;
    run_twice(&s, &step, p, DQ, 3);
    for (int i = 0; i < OPERANDS; i++) {
        wb__free(p[i].data);
        free(p[i].want);
    }
}

TEST(sizes)
{
    static const int64_t list[][6] = {      /* n, h, queries, keys, depth, width of v */
        {1, 1, 1, 1, 8, 5},      {2, 3, 5, 9, 8, 5},      {1, 2, 64, 64, 64, 64},
        {1, 1, 65, 130, 64, 64}, {2, 1, 200, 63, 16, 48}, {1, 2, 70, 70, 128, 128},
        {1, 1, 129, 129, 80, 100}};     /* each pair of depth and width is compiled */
    for (size_t i = 0; i < WB__COUNT(list); i++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t *l = list[i];
            if (causal && l[2] > l[3]) continue;
            check((setting){WB_F32, l[0], l[1], l[2], l[3], l[4], l[5], causal, i % 2,
                            i % 3 ? 0 : 4});
        }
}

TEST(dtypes)
{
    for (int i = 0; i < 2; i++) {
        const wb_dtype t = i ? WB_BF16 : WB_F16;
        check((setting){t, 1, 2, 70, 70, 64, 64, true, true, 0});
        check((setting){t, 2, 1, 33, 90, 64, 64, false, false, 4});
    }
    check((setting){WB_F16, 2, 1, 33, 90, 20, 12, false, false, 4});
}

/* Fragments in software, in waves of 32 and 64 items, with 16 or 32 queries a wave (which needs few
 * processors); at sizes around those of the tiles, aligned and not. */
TEST(fragments)
{
    static const int64_t list[][6] = {      /* n, h, queries, keys, depth, width of v */
        {1, 1, 1, 1, 8, 5},     {1, 2, 70, 70, 64, 64},   {2, 1, 33, 90, 64, 64},
        {1, 2, 129, 200, 64, 64}, {1, 1, 200, 63, 16, 48}, {1, 1, 70, 131, 128, 128},
        {1, 1, 66, 66, 72, 40}};
    for (size_t i = 0; i < WB__COUNT(list); i++) {
        const int64_t *l = list[i];
        for (int causal = 0; causal < 2; causal++) {
            if (causal && l[2] > l[3]) continue;
            lanes = i % 2 ? 64 : 32;
            processors = i == 1 ? 100 : 1;
            check((setting){i % 3 ? WB_BF16 : WB_F16, l[0], l[1], l[2], l[3], l[4], l[5], causal,
                            (i + (size_t)causal) % 2, i % 3 ? 0 : 4});
        }
    }
    local_bytes = 32 << 10;
    check((setting){WB_BF16, 1, 1, 66, 66, 128, 128, true, true, 0});
    local_bytes = 48 << 10;
    lanes = processors = 0;
}

/* With little shared memory the kernels process fewer indices of the depth at a time. */
TEST(little_shared_memory)
{
    local_bytes = 32 << 10;
    check((setting){WB_F32, 1, 2, 70, 70, 128, 128, true, false, 0});
    check((setting){WB_F32, 2, 1, 66, 130, 80, 40, false, true, 0});
    local_bytes = 48 << 10;
}

TEST(what_is_taken)
{
    wb__gpu_target t = {.max_items = 256, .local_bytes = 32 << 10, .max_args_bytes = 1024};
    setting s = {WB_F32, 1, 2, 70, 70, 64, 64, true, true, 0};
    wb__step step = {.kind = WB__STEP_ATTENTION, .n_views = 5, .attention = {0.125, true}};
    for (int i = 0; i < 5; i++) {
        operand p = make(&s, i, s.q, i == LSE ? 1 : s.d);
        step.views[i] = p.view;
        wb__free(p.data);
        free(p.want);
    }
    assert_true(wb__gpu_supports(&t, &step));
    wb__step other = step;
    for (int i = 0; i < 5; i++)
        if (i != LSE) other.views[i].dtype = WB_F64;
    assert_false(wb__gpu_supports(&t, &other));
    other = step;
    for (int i = 0; i < 4; i++) other.views[i].dims[3] = 129;
    assert_false(wb__gpu_supports(&t, &other));
    other = step;
    other.views[Q].strides[3] = 2;
    assert_false(wb__gpu_supports(&t, &other));
    other = step;
    other.views[Q].dims[2] = other.views[O].dims[2] = other.views[LSE].dims[2] = 71;
    assert_false(wb__gpu_supports(&t, &other));  /* a query that sees no key */
    other = step;
    other.kind = WB__STEP_MATMUL;
    assert_false(wb__gpu_supports(&t, &other));
    t.local_bytes = 16 << 10;
    assert_false(wb__gpu_supports(&t, &step));
    t.local_bytes = 32 << 10;
    t.composes = true;
    assert_false(wb__gpu_supports(&t, &step));
}

/* The linker wraps wb__gpu_step: the backend calls __wrap_wb__gpu_step in its place. */
int __real_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = *t;
    target.local_bytes = local_bytes;
    target.fragments_f16 = target.fragments_bf16 = lanes;
    target.processors = processors;
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
    return run_cases(begin, end);
}
