/* Convolutions by MIOpen, on its double: every direction, layout and dtype compared with plain
 * loops; which solution is chosen; the steps that MIOpen does not compute; calls that fail. */
#include "tests/runtime/conv_by_hand.h"

#include "tests/doubles/cuda_double.h"

/* Restarts the backend, which forgets all solutions, with an environment variable set, or unset
 * (NULL). */
static void restart(const char *name, const char *value)
{
    b->stop();
    if (value) setenv(name, value, 1);
    else unsetenv(name);
    assert_int_equal(b->start(), 0);
    d = b->device(0);
}

/* ---- what MIOpen computes -------------------------------------------------------------------- */

static const shape fitting[] = {
    {2, 4, 9, 7, 6, 3, 2, 1, 0, 0, 1, 1}, {1, 6, 8, 9, 4, 3, 3, 2, 1, 1, 1, 2},
    {2, 8, 7, 7, 8, 3, 3, 1, 1, 1, 1, 8}, {2, 4, 9, 8, 6, 3, 3, 1, 2, 2, 2, 1},
    {3, 1, 6, 6, 5, 1, 1, 1, 0, 0, 1, 1}, {1, 16, 5, 5, 1, 5, 5, 1, 0, 0, 1, 1}};

/* A step whose operands all have one layout. */
static wb__step in_layout(const shape *p, wb_dtype t, bool nhwc, int kind)
{
    wb__step s = convolution(p, t, nhwc, kind);
    s.views[1] = picture(t, 1, p->k, p->c / p->groups, p->r, p->s, nhwc);
    return s;
}

TEST(test_convolutions)
{
    static const wb_dtype dtypes[] = {WB_F32, WB_BF16, WB_F16};
    static const struct { const char *letter, *impl; bool nhwc; } solutions[] = {
        {"i", "MIOpen implicit GEMM", true}, {"g", "MIOpen GEMM", false},
        {"d", "MIOpen direct", false}};
    for (size_t k = 0; k < WB__COUNT(solutions); k++) {
        restart("VGPU_MIOPEN_SOLUTIONS", solutions[k].letter);
        for (size_t i = 0; i < WB__COUNT(fitting); i++)
            for (int t = 0; t < 3; t++)
                for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
                    for (int nhwc = 0; nhwc <= solutions[k].nhwc; nhwc++)
                        run(&fitting[i], in_layout(&fitting[i], dtypes[t], nhwc, kind),
                            solutions[k].impl);
    }
    restart("VGPU_MIOPEN_SOLUTIONS", NULL);
}

/* MIOpen adds no bias and no epilogue: a kernel of ours does, in place. */
TEST(test_behind_convolutions)
{
    static const wb__op list[] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh, WB__OP_gelu};
    for (size_t i = 0; i < WB__COUNT(fitting); i++)
        for (size_t e = 0; e < WB__COUNT(list); e++) {
            wb__step s = in_layout(&fitting[i], i & 1 ? WB_BF16 : WB_F32, i & 2, WB__CONV_FORWARD);
            s.n_views = 4;
            s.epilogue = list[e];
            run(&fitting[i], s, "MIOpen implicit GEMM");
        }
}

/* ---- which solution is chosen ---------------------------------------------------------------- */

static void made_by(const wb__step *s, const char *impl)
{
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s", wb_error());
    assert_string_equal(k->impl, impl);
    b->destroy(d, k);
}

static void declined(const wb__step *s, const char *reason)
{
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s", wb_error());
    if (!k->reason) fail_msg("%s computes it, which \"%s\" forbids", k->impl, reason);
    assert_string_equal(k->reason, reason);
    b->destroy(d, k);
}

/* The fastest solution is Winograd, which only f32 of less than the highest precision allows. */
TEST(test_precision)
{
    static const struct { wb_dtype dtype; int precision; const char *impl; } list[] = {
        {WB_F32, WB__PRECISION_HIGHEST, "MIOpen implicit GEMM"},
        {WB_F32, WB__PRECISION_HIGH, "MIOpen Winograd"},
        {WB_F32, WB__PRECISION_MEDIUM, "MIOpen Winograd"},
        {WB_BF16, WB__PRECISION_HIGH, "MIOpen implicit GEMM"},
        {WB_F16, WB__PRECISION_MEDIUM, "MIOpen implicit GEMM"}};
    const shape p = {1, 4, 6, 6, 4, 3, 3, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < WB__COUNT(list); i++) {
        wb__step s = in_layout(&p, list[i].dtype, false, WB__CONV_FORWARD);
        s.precision = (uint8_t)list[i].precision;
        run(&p, s, list[i].impl);
    }
}

/* The double has no deterministic implicit GEMM for the gradient of the weights. */
TEST(test_deterministic)
{
    for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
        for (int same = 0; same < 2; same++) {
            wb__step s = in_layout(&fitting[0], WB_F32, false, kind);
            s.deterministic = same;
            run(&fitting[0], s, same && kind == WB__CONV_GRAD_WEIGHT ? "MIOpen GEMM"
                                                                     : "MIOpen implicit GEMM");
        }
}

TEST(test_workspaces)
{
    const wb__step s = in_layout(&fitting[0], WB_F32, false, WB__CONV_FORWARD);
    restart("VGPU_MIOPEN_WORKSPACE", "268435456");
    made_by(&s, "MIOpen implicit GEMM");
    restart("VGPU_MIOPEN_WORKSPACE", "268435457");
    declined(&s, "MIOpen: it has no solution");
    restart("VGPU_MIOPEN_WORKSPACE", NULL);
}

/* Where rocBLAS has no kernels for the GPU, or is disabled, no solution that calls it is used. */
TEST(test_without_blas)
{
    const wb__step s = in_layout(&fitting[0], WB_F32, false, WB__CONV_FORWARD);
    static const char *const cases[][2] = {{"VGPU_GFX", "gfx1030"}, {"WEBER_AMDGPU_ROCBLAS", "0"}};
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        const char *before = getenv(cases[i][0]);
        char kept[100] = "";
        if (before) snprintf(kept, sizeof kept, "%s", before);
        setenv("VGPU_MIOPEN_SOLUTIONS", "gd", 1);
        restart(cases[i][0], cases[i][1]);
        run(&fitting[0], s, "MIOpen direct");
        restart("VGPU_MIOPEN_SOLUTIONS", "g");
        declined(&s, "MIOpen: it has no solution");
        restart(cases[i][0], *kept ? kept : NULL);
        run(&fitting[0], s, "MIOpen GEMM");
        restart("VGPU_MIOPEN_SOLUTIONS", NULL);
    }
}

/* A solution that cannot be compiled is followed by the next one. */
TEST(test_not_compiled)
{
    restart("VGPU_MIOPEN_DECLINES", "2");
    int others = 0;
    for (int i = 0; i < 6; i++) {
        wb__kernel *k = NULL;
        const shape p = {1, 4, 5 + i, 6, 4, 3, 2, 1, 1, 1, 1, 1};
        const wb__step s = in_layout(&p, WB_F32, false, WB__CONV_FORWARD);
        assert_int_equal(b->prepare(d, &s, &k), 0);
        others += !strcmp(k->impl, "MIOpen GEMM");
        assert_null(k->reason);
        b->destroy(d, k);
    }
    assert_true(others >= 2);
    restart("VGPU_MIOPEN_DECLINES", "1");
    const wb__step s = in_layout(&fitting[0], WB_F32, false, WB__CONV_FORWARD);
    declined(&s, "MIOpen: it has no solution");
    restart("VGPU_MIOPEN_DECLINES", NULL);
}

/* ---- steps that MIOpen does not compute ------------------------------------------------------ */

TEST(test_left_to_ours)
{
    wb__step s = in_layout(&fitting[0], WB_F64, false, WB__CONV_FORWARD);
    declined(&s, "MIOpen: not of f32, f16 or bf16");
    s = in_layout(&shapes[1], WB_F32, false, WB__CONV_FORWARD);
    declined(&s, "MIOpen: asymmetrical padding");
    s.n_views = 4;                      /* with a bias: the reason is that of the convolution */
    declined(&s, "MIOpen: asymmetrical padding");
    s = in_layout(&shapes[2], WB_F32, false, WB__CONV_GRAD_INPUT);
    declined(&s, "MIOpen: groups with dilation");
    s = convolution(&fitting[0], WB_F32, true, WB__CONV_FORWARD);
    declined(&s, "MIOpen: layouts");
    s = in_layout(&fitting[0], WB_F32, false, WB__CONV_FORWARD);
    s.views[0].strides[3] = 2;
    declined(&s, "MIOpen: layouts");
    s = in_layout(&fitting[0], WB_F32, false, WB__CONV_GRAD_INPUT);
    s.views[0].dims[2] += 1;            /* another row of padding behind */
    s.views[0].strides[1] += 7;
    s.views[0].strides[0] += 28;
    declined(&s, "MIOpen: the size of the result");
    s = in_layout(&(shape){70000, 1, 200, 200, 1, 1, 1, 1, 0, 0, 1, 1}, WB_F32, false,
                  WB__CONV_GRAD_WEIGHT);
    declined(&s, "MIOpen: too large");
}

/* The matrix units of gfx90a replace small numbers of f16 by 0. */
TEST(test_half_on_gfx90a)
{
    const wb__step s = in_layout(&fitting[0], WB_F16, false, WB__CONV_FORWARD);
    restart("VGPU_GFX", "gfx90a:sramecc+:xnack-");
    declined(&s, "MIOpen: f16 on gfx90a");
    restart("VGPU_GFX", "gfx942:xnack-");
    made_by(&s, "MIOpen implicit GEMM");
}

/* ---- calls that fail ------------------------------------------------------------------------- */

/* A kernel and its workspace. */
typedef struct { wb__kernel *k; void *workspace; size_t bytes; } made;

static int make(made *m, const wb__step *s)
{
    const int status = b->prepare(d, s, &m->k);
    if (status) return status;
    m->bytes = m->k->workspace + 1;
    m->workspace = b->allocate(d, m->bytes);
    return m->workspace ? 0 : (int)wb_error_code();
}

static void unmake(made *m)
{
    if (m->workspace) b->release(d, m->workspace, m->bytes);
    if (m->k) b->destroy(d, m->k);
    *m = (made){.k = NULL};
}

/* A gradient of weights with workspace, from the search for devices to its result, which is
 * compared.  Returns 0 or an error code. */
static int attempt(arrays *r, const double *want, const double *size)
{
    const wb__number none = {.f = 0};
    const wb__step *s = r->s;
    made m = {.k = NULL};
    int status = b->start();
    if (status) return status;
    d = b->device(0);
    for (int v = 0; v < 3 && !status; v++) {
        r->memory[v] = b->allocate(d, r->bytes[v]);
        status = r->memory[v] ? b->upload(d, r->memory[v], 0, r->x[v], r->bytes[v])
                              : (int)wb_error_code();
    }
    if (!status) status = make(&m, s);
    for (int turn = 0; turn < 2 && !status; turn++) {
        status = b->launch(d, m.k, r->memory, NULL, m.workspace, 0, &none);
        if (status != WB_ERROR_UNSUPPORTED) continue;
        unmake(&m);                     /* the library refused it: another kernel, from the start */
        status = make(&m, s);
        turn = -1;
    }
    if (!status) status = b->download(d, r->x[1], r->memory[1], 0, r->bytes[1]);
    for (int64_t i = s->views[1].offset; i < size_of(&s->views[1]) && !status; i++)
        expect(get(r->x[1], WB_F32, i), want[i], epsilon(WB_F32) * (1 + size[i]), "a gradient");
    for (int v = 0; v < 3; v++) {
        if (r->memory[v]) b->release(d, r->memory[v], r->bytes[v]);
        r->memory[v] = NULL;
    }
    unmake(&m);
    b->stop();
    return status;
}

/* The first call of HIP, hiprtc or MIOpen fails, then only the second, and so on. */
TEST(test_each_call_fails)
{
    const shape *p = &fitting[0];
    wb__step s = in_layout(p, WB_F32, false, WB__CONV_GRAD_WEIGHT);
    arrays r;
    char text[200];
    int errors = 0, of_library = 0, n = 1;
    s.deterministic = true;             /* GEMM, which needs a workspace */
    fill(&r, &s, 1u << 1);
    const size_t all = (size_t)size_of(&s.views[1]);
    double *want = calloc(all, sizeof *want), *size = calloc(all, sizeof *size);
    assert_true(want && size);
    by_loops(p, &r, want, size);
    for (int v = 0; v < 3; v++) b->release(d, r.memory[v], r.bytes[v]);
    memset(r.memory, 0, sizeof r.memory);
    b->stop();
    for (bool failed = true; failed; n++) {
        char value[20];
        snprintf(value, sizeof value, "%d", n);
        setenv(FAIL, value, 1);
        wb_clear_error();
        const int status = attempt(&r, want, size);
        if (status && !*wb_error()) fail_msg("call %d: an error without a message", n);
        failed = calls_failed(text) > 0;
        errors += status != 0;
        of_library += failed && strstr(text, "miopen") != NULL;
        if (failed && tell_left()) fail_msg("call %d: %s", n, text);
    }
    unsetenv(FAIL);
    assert_true(errors > 10 && of_library >= 10);
    assert_int_equal(attempt(&r, want, size), 0);
    for (int v = 0; v < 3; v++) free(r.x[v]);
    free(want);
    free(size);
    assert_int_equal(b->start(), 0);
    d = b->device(0);
}

TEST(nothing_is_left)
{
    b->stop();
    assert_int_equal(tell_left(), 0);
}

int main(void)
{
    open_double();
    setenv("VGPU_GFX", "gfx942:xnack-", 1);     /* f16 by MIOpen */
    b = &wb__amd_backend;
    if (b->start()) {
        print_error("%s\n", wb_error());
        return 1;
    }
    d = b->device(0);
    return run_all_cases();
}
