/* Products by MPS and convolutions by MPSGraph, on their doubles: results compared with plain
 * loops, the steps that they do not compute, missing libraries, calls that fail. */
#include "tests/runtime/conv_by_hand.h"

#include "tests/doubles/cuda_double.h"
#include "tests/doubles/metal/vgpu_metal.h"
#include "weber.h"

#include <sys/wait.h>
#include <unistd.h>

static void begin(void)
{
    if (b->start()) fail_msg("%s", wb_error());
    d = b->device(0);
}

static void made_by(const wb__step *s, const char *impl, const char *reason)
{
    wb__kernel *k = NULL;
    if (b->prepare(d, s, &k)) fail_msg("%s", wb_error());
    if (impl) assert_string_equal(k->impl, impl);
    if (!reason && k->reason) fail_msg("%s", k->reason);
    if (reason && !k->reason) fail_msg("%s computes it, which \"%s\" forbids", k->impl, reason);
    if (reason) assert_string_equal(k->reason, reason);
    b->destroy(d, k);
}
#define DECLINED(step, reason) made_by(step, NULL, reason)

/* ---- libraries that are missing -------------------------------------------------------------- */

/* These cases run first, each in a child process: a process opens a library once. */
typedef struct {
    const char *variable, *value;
    bool mps, graph;                    /* wb_functional */
    int warnings;
    const char *fact;                   /* in the error of a library that does not work */
} library_case;

static int warnings;

static void listen(wb_log_level level, const char *text, void *context)
{
    warnings += level >= WB_LOG_WARN;
}

/* Trains a model, and returns its loss; NAN after an error. */
static double train(const wb_device *on)
{
    enum { N = 2, C = 4, SIDE = 8 };
    static float x[N * C * SIDE * SIDE];
    double loss = NAN;
    for (int i = 0; i < N * C * SIDE * SIDE; i++) x[i] = (float)((i * 37 + 11) % 64) / 32 - 1;
    wb_seed(3);
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_to(wb_Chain(wb_Conv(C, 6, {3}, wb_relu, .pad = {1}), wb_Conv(6, 4, {3}),
                                 wb_Flatten(), wb_Dense(4 * 36, 3)), on);
    wb_tensor *in = wb_to(wb_from(x, WB_F32, 4, (int64_t[]){N, C, SIDE, SIDE}), on);
    wb_opt_state *rule = wb_setup(wb_Descent(0.01), m);
    for (int i = 0; i < 4 && rule; i++) {
        wb_scope *inner = wb_scope_open();
        wb_tensor *y = wb_mean(wb_square(wb_call(m, in)));
        if (wb_update(rule, m, wb_gradient(y, m))) break;
        loss = wb_item(y);
        if (wb_scope_close(inner)) loss = NAN;
    }
    return wb_scope_close(scope) ? NAN : loss;
}

static bool part_is(const char *name, bool works, const char *fact)
{
    wb_clear_error();
    if (wb_functional("Metal", name) == works && (works || strstr(wb_error(), fact))) return true;
    print_error("%s: not %d: %s\n", name, works, wb_error());
    return false;
}

static int execute(const library_case *c)
{
    setenv(c->variable, c->value, 1);
    wb_set_log(listen, NULL);
    const double want = train(wb_device_at("CPU", 0));
    if (wb_using("Metal") || !wb_device_at("Metal", 0)) return 1;
    for (int turn = 0; turn < 2; turn++) {
        const double got = train(wb_device_at("Metal", 0));
        if (fabs(got - want) <= 1e-5 * fabs(want)) continue;
        print_error("the loss is %.9g, not %.9g: %s\n", got, want, wb_error());
        return 2;
    }
    if (!part_is("MPS", c->mps, c->fact) || !part_is("MPSGraph", c->graph, c->fact)) return 3;
    if (warnings != c->warnings) print_error("%d warnings, not %d\n", warnings, c->warnings);
    wb_shutdown();
    return warnings != c->warnings ? 4 : tell_left();
}

TEST(test_missing)
{
    static const library_case cases[] = {
        {"VGPU_MACOS", "15", true, true, 0, ""},
        {"VGPU_MACOS", "14", true, false, 1, "macOS 15"},
        {"WEBER_METAL_PATH", WB_TEST_NOWHERE, false, false, 2, "/System/Library/Frameworks"},
        {"WEBER_METAL_MPS", "0", false, true, 0, "WEBER_METAL_MPS=0 disables it"},
        {"WEBER_METAL_MPSGRAPH", "0", true, false, 0, "WEBER_METAL_MPSGRAPH=0 disables it"}};
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        int status = -1;
        const pid_t process = fork();
        if (!process) _exit(execute(&cases[i]));
        assert_int_equal(waitpid(process, &status, 0), process);
        if (status) fail_msg("%s=%s: %x", cases[i].variable, cases[i].value, (unsigned)status);
    }
    begin();
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct {
    wb_dtype dtype;
    int64_t batch, m, n, k, apart;      /* apart: elements between rows */
    bool a_turned, b_turned;
} product;

static wb__view matrix(const product *p, int buffer, int64_t rows, int64_t columns, bool turned)
{
    const int64_t row = (turned ? rows : columns) + p->apart;
    const int64_t all = row * ((turned ? columns : rows) + p->apart);
    return (wb__view){.dtype = p->dtype, .buffer = buffer, .ndim = 4, .offset = 16 + 3 * buffer,
                      .dims = {1, p->batch, rows, columns},
                      .strides = {0, all, turned ? 1 : row, turned ? row : 1}};
}

static wb__step step_of(const product *p)
{
    return (wb__step){.kind = WB__STEP_MATMUL, .n_views = 3, .precision = WB__PRECISION_HIGH,
                      .views = {matrix(p, 0, p->m, p->k, p->a_turned),
                                matrix(p, 1, p->k, p->n, p->b_turned),
                                matrix(p, 2, p->m, p->n, false),
                                {.dtype = p->dtype, .buffer = 3, .ndim = 1, .dims = {p->n},
                                 .strides = {1}}}};
}

static void multiply(const product *p, const wb__step *s)
{
    arrays r;
    fill(&r, s, 1u << 2);
    launch(&r, "MPS");
    for (int64_t z = 0; z < p->batch; z++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                double sum = s->n_views > 3 ? get(r.x[3], p->dtype, j) : 0, size = fabs(sum);
                for (int64_t l = 0; l < p->k; l++) {
                    const double term = value(&r, 0, 0, z, i, l) * value(&r, 1, 0, z, l, j);
                    sum += term;
                    size += fabs(term);
                }
                expect(value(&r, 2, 0, z, i, j), row_value(s->epilogue, sum),
                       epsilon(p->dtype) * (1 + size), "a product");
            }
    empty(&r);
}

TEST(test_products)
{
    for (int i = 0; i < 32; i++) {
        const product p = {i & 1 ? WB_F16 : WB_F32, i & 2 ? 3 : 1, 5, 7, 9, i & 4 ? 2 : 0,
                           i & 8, i & 16};
        const wb__step s = step_of(&p);
        multiply(&p, &s);
    }
}

/* Buffers of a plan begin at offsets in their memory. */
TEST(test_offsets)
{
    enum { MOVED = 64 };
    const product p = {WB_F32, 1, 5, 7, 9, 0, false, false};
    const size_t offsets[3] = {MOVED * sizeof(float), MOVED * sizeof(float), MOVED * sizeof(float)};
    const wb__number none = {.f = 0};
    const wb__step s = step_of(&p);
    wb__step moved = s;
    wb__kernel *k = NULL;
    arrays r;
    for (int v = 0; v < 3; v++) moved.views[v].offset += MOVED;
    fill(&r, &moved, 1u << 2);
    assert_int_equal(b->prepare(d, &s, &k), 0);
    assert_string_equal(k->impl, "MPS");
    assert_int_equal(b->launch(d, k, r.memory, offsets, NULL, 0, &none), 0);
    assert_int_equal(b->download(d, r.x[2], r.memory[2], 0, r.bytes[2]), 0);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < p.k; l++)
                sum += value(&r, 0, 0, 0, i, l) * value(&r, 1, 0, 0, l, j);
            expect(value(&r, 2, 0, 0, i, j), sum, 1e-4, "a product");
        }
    b->destroy(d, k);
    empty(&r);
}

/* MPS adds no bias and no epilogue: a kernel of ours does, in place. */
TEST(test_behind_products)
{
    static const wb__op list[] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh, WB__OP_gelu};
    const product p = {WB_F32, 1, 6, 5, 8, 0, false, true};
    for (size_t e = 0; e < WB__COUNT(list); e++) {
        wb__step s = step_of(&p);
        s.n_views = 4;
        s.epilogue = list[e];
        multiply(&p, &s);
    }
}

TEST(test_products_left_to_ours)
{
    product p = {WB_F32, 2, 6, 5, 8, 0, false, false};
    wb__step s = step_of(&p);
    s.deterministic = true;
    DECLINED(&s, "MPS: not known to be deterministic");
    s = step_of(&p);
    s.views[1].strides[1] = 0;          /* all products have the same b */
    DECLINED(&s, "MPS: strides of the batch");
    s.views[1].strides[1] = 44;         /* not whole rows of 5 */
    DECLINED(&s, "MPS: strides of the batch");
    s = step_of(&p);
    s.views[0].strides[3] = 2;
    s.views[0].strides[2] = 16;
    DECLINED(&s, "MPS: strides");
    s = step_of(&p);
    s.views[2] = matrix(&p, 2, p.m, p.n, true);
    DECLINED(&s, "MPS: the result is transposed");
    p.dtype = WB_BF16;
    s = step_of(&p);
    DECLINED(&s, "MPS: dtype");
    p.dtype = WB_F16;
    s = step_of(&p);
    s.precision = WB__PRECISION_HIGHEST;
    DECLINED(&s, "MPS: f16, at the highest precision");
    p = (product){WB_F32, 1, 4, 4, 32767, 0, false, false};
    s = step_of(&p);
    DECLINED(&s, "MPS: too large");
    p.k--;
    s = step_of(&p);
    made_by(&s, "MPS", NULL);
    /* (m + 2 k) n: 15 / 16 of 2^29 elements of 4 bytes, and one row less */
    p = (product){WB_F32, 1, 30592, 1 << 14, 64, 0, false, false};
    s = step_of(&p);
    DECLINED(&s, "MPS: too large");
    p.m--;
    s = step_of(&p);
    made_by(&s, "MPS", NULL);
    setenv("VGPU_MPS_SUPPORTS", "0", 1);
    DECLINED(&s, "MPS: not for this GPU");
    unsetenv("VGPU_MPS_SUPPORTS");
}

TEST(test_small_steps)
{
    product p = {WB_F32, 1, 128, 128, 127, 0, false, false};
    const shape picture_of = {1, 128, 1, 127, 128, 1, 1, 1, 0, 0, 1, 1};
    unsetenv("WEBER_METAL_MPS");
    unsetenv("WEBER_METAL_MPSGRAPH");
    wb__step s = step_of(&p);
    DECLINED(&s, "MPS: too small");
    p.k++;
    s = step_of(&p);
    made_by(&s, "MPS", NULL);
    s = convolution(&picture_of, WB_F32, false, WB__CONV_FORWARD);
    DECLINED(&s, "MPSGraph: too small");
    s = convolution(&(shape){1, 128, 1, 128, 128, 1, 1, 1, 0, 0, 1, 1}, WB_F32, false,
                    WB__CONV_GRAD_WEIGHT);
    made_by(&s, "MPSGraph", NULL);
    setenv("WEBER_METAL_MPS", "1", 1);
    setenv("WEBER_METAL_MPSGRAPH", "1", 1);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* A step of the precision that allows all algorithms; hwio: the layout of the weights. */
static wb__step conv_step(const shape *p, wb_dtype t, bool nhwc, bool hwio, int kind)
{
    const int64_t c = p->c / p->groups;
    wb__step s = convolution(p, t, nhwc, kind);
    s.precision = WB__PRECISION_HIGH;
    if (!hwio) return s;
    const int64_t strides[4] = {1, p->k, p->s * c * p->k, c * p->k};
    memcpy(s.views[1].strides, strides, sizeof strides);
    return s;
}

static void all_convolutions(void)
{
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (int bits = 0; bits < 8; bits++)
            for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
                run(&shapes[i], conv_step(&shapes[i], bits & 1 ? WB_F16 : WB_F32, bits & 2,
                                          bits & 4, kind), "MPSGraph");
}

TEST(test_convolutions) { all_convolutions(); }

/* MPSGraph may commit the command buffer that it is given, and continue with another. */
TEST(test_committing)
{
    setenv("VGPU_MPS_COMMITS", "3", 1);
    all_convolutions();
    unsetenv("VGPU_MPS_COMMITS");
}

TEST(test_behind_convolutions)
{
    static const wb__op list[] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh, WB__OP_gelu};
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (size_t e = 0; e < WB__COUNT(list); e++) {
            wb__step s = conv_step(&shapes[i], WB_F32, i & 1, i & 2, WB__CONV_FORWARD);
            s.n_views = 4;
            s.epilogue = list[e];
            run(&shapes[i], s, "MPSGraph");
        }
}

TEST(test_highest_precision)
{
    static const struct { shape p; bool used; } list[] = {
        {{1, 4, 6, 6, 4, 3, 3, 1, 1, 1, 1, 1}, false},
        {{1, 4, 6, 6, 4, 1, 2, 1, 0, 0, 1, 1}, false},
        {{1, 4, 6, 6, 4, 1, 1, 1, 0, 0, 1, 1}, true}, {{1, 4, 6, 6, 4, 3, 3, 2, 1, 1, 1, 1}, true},
        {{1, 4, 6, 6, 4, 3, 3, 1, 1, 1, 2, 1}, true}};
    for (size_t i = 0; i < WB__COUNT(list); i++)
        for (int half = 0; half < 2; half++) {
            wb__step s = conv_step(&list[i].p, half ? WB_F16 : WB_F32, false, false,
                                   WB__CONV_FORWARD);
            s.precision = WB__PRECISION_HIGHEST;
            if (half) DECLINED(&s, "MPSGraph: f16, at the highest precision");
            else if (list[i].used) made_by(&s, "MPSGraph", NULL);
            else DECLINED(&s, "MPSGraph: maybe Winograd, at the highest precision");
        }
}

static void decline_large(shape p, bool used)
{
    const wb__step s = conv_step(&p, WB_F32, false, false, WB__CONV_GRAD_WEIGHT);
    if (used) made_by(&s, "MPSGraph", NULL);
    else DECLINED(&s, "MPSGraph: too large");
}

TEST(test_convolutions_left_to_ours)
{
    const shape *p = &shapes[0];
    wb__step s = conv_step(p, WB_BF16, false, false, WB__CONV_FORWARD);
    DECLINED(&s, "MPSGraph: neither f32 nor f16");
    s = conv_step(p, WB_F32, false, false, WB__CONV_FORWARD);
    s.deterministic = true;
    DECLINED(&s, "MPSGraph: not known to be deterministic");
    s = conv_step(p, WB_F32, false, false, WB__CONV_FORWARD);
    s.views[2] = picture(WB_F32, 2, s.views[2].dims[0], s.views[2].dims[1], s.views[2].dims[2],
                         s.views[2].dims[3], true);
    DECLINED(&s, "MPSGraph: layouts");
    s = conv_step(p, WB_F32, false, false, WB__CONV_GRAD_INPUT);
    s.views[0].dims[2] += 1;            /* another row of padding behind */
    s.views[0].strides[1] += p->w;
    s.views[0].strides[0] += p->w * p->c;
    DECLINED(&s, "MPSGraph: the size of the result");
    s = conv_step(p, WB_F32, false, false, WB__CONV_FORWARD);
    s.conv.pad[1] = -1;
    DECLINED(&s, "MPSGraph: negative padding");
    decline_large((shape){65536, 1, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1}, false);
    decline_large((shape){65535, 1, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1}, true);
    decline_large((shape){1, 1, 300, 2, 1, 256, 1, 1, 0, 0, 1, 1}, false);
    decline_large((shape){1, 1, 300, 2, 1, 255, 1, 1, 0, 0, 1, 1}, true);
    decline_large((shape){256, 64, 512, 256, 1, 1, 1, 1, 0, 0, 1, 1}, false);      /* 2^31 */
}

/* The libraries' objects belong to a device. */
TEST(test_second_device)
{
    const product p = {WB_F32, 1, 5, 7, 9, 0, false, false};
    const wb__step s = step_of(&p);
    d = b->device(1);
    multiply(&p, &s);
    run(&shapes[0], conv_step(&shapes[0], WB_F32, false, false, WB__CONV_FORWARD), "MPSGraph");
    d = b->device(0);
}

/* ---- calls that fail ------------------------------------------------------------------------- */

/* Prepares and launches a step, again if a library refuses it, and downloads the result, view m.
 * Returns 0 or an error code. */
static int execute_step(arrays *r, int m)
{
    const wb__number none = {.f = 0};
    int status = b->start();
    if (status) return status;
    d = b->device(0);
    for (int v = 0; v < 3 && !status; v++) {
        r->memory[v] = b->allocate(d, r->bytes[v]);
        status = r->memory[v] ? b->upload(d, r->memory[v], 0, r->x[v], r->bytes[v])
                              : (int)wb_error_code();
    }
    for (int turn = 0; turn < 4 && !status; turn++) {
        wb__kernel *k = NULL;
        void *workspace = NULL;
        status = b->prepare(d, r->s, &k);
        if (!status && !(workspace = b->allocate(d, k->workspace + 1)))
            status = (int)wb_error_code();
        if (!status) status = b->launch(d, k, r->memory, NULL, workspace, 0, &none);
        const bool refused = status == WB_ERROR_UNSUPPORTED;
        if (refused) status = 0;
        if (!status && !refused) {
            status = b->download(d, r->x[m], r->memory[m], 0, r->bytes[m]);
            turn = 4;
        }
        if (workspace) b->release(d, workspace, k->workspace + 1);
        if (k) b->destroy(d, k);
    }
    for (int v = 0; v < 3; v++) {
        if (r->memory[v]) b->release(d, r->memory[v], r->bytes[v]);
        r->memory[v] = NULL;
    }
    b->stop();
    return status;
}

/* The first call fails, then only the second, and so on.  The result is an error or correct, and
 * nothing leaks. */
static void fail_each(const wb__step *s, int m)
{
    arrays r;
    char text[200], value[20];
    int errors = 0, of_library = 0;
    fill(&r, s, 1u << m);
    for (int v = 0; v < 3; v++) b->release(d, r.memory[v], r.bytes[v]);
    memset(r.memory, 0, sizeof r.memory);
    b->stop();
    void *want = malloc(r.bytes[m]), *before = malloc(r.bytes[m]);
    assert_true(want && before);
    memcpy(before, r.x[m], r.bytes[m]);
    assert_int_equal(execute_step(&r, m), 0);
    memcpy(want, r.x[m], r.bytes[m]);
    bool failed = true;
    for (int n = 1; failed; n++) {
        memcpy(r.x[m], before, r.bytes[m]);
        snprintf(value, sizeof value, "%d", n);
        setenv(FAIL, value, 1);
        wb_clear_error();
        const int status = execute_step(&r, m);
        if (status && !*wb_error()) fail_msg("call %d: an error without a message", n);
        failed = calls_failed(text) > 0;
        errors += status != 0;
        for (int64_t i = 0; i < size_of(&s->views[m]) && !status; i++)
            expect(get(r.x[m], WB_F32, i), get(want, WB_F32, i), 1e-4, "after a failure");
        of_library += failed && !status;
        if (failed && tell_left()) fail_msg("call %d: %s", n, text);
    }
    unsetenv(FAIL);
    if (errors < 3 || of_library < 3) fail_msg("%d errors, %d without", errors, of_library);
    for (int v = 0; v < 3; v++) free(r.x[v]);
    free(want);
    free(before);
    begin();
}

TEST(test_each_call_of_products_fails)
{
    const wb__step s = step_of(&(product){WB_F32, 1, 5, 7, 9, 0, false, false});
    fail_each(&s, 2);
}

TEST(test_each_call_of_convolutions_fails)
{
    const wb__step s = conv_step(&shapes[0], WB_F32, false, false, WB__CONV_GRAD_WEIGHT);
    fail_each(&s, 1);
    setenv("VGPU_MPS_COMMITS", "1", 1);
    fail_each(&s, 1);
    setenv("VGPU_MPS_COMMITS", "2", 1);
    fail_each(&s, 1);
    unsetenv("VGPU_MPS_COMMITS");
}

TEST(nothing_is_left)
{
    void (*read_metal)(vgpu_metal_books *found) = NULL;
    void *library = dlopen(getenv("WEBER_METAL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (library) *(void **)&read_metal = dlsym(library, "vgpu_read_metal_books");
    assert_non_null(read_metal);
    b->stop();
    assert_int_equal(tell_left(), 0);
    vgpu_metal_books left;
    read_metal(&left);
    assert_int_equal(left.objects, 0);
}

int main(void)
{
    setenv("WEBER_METAL_MPS", "1", 1);
    setenv("WEBER_METAL_MPSGRAPH", "1", 1);
    setenv("WEBER_MATMUL_PRECISION", "high", 1);
    setenv("VGPU_MACOS", "15", 1);
    open_double();
    b = &wb__mtl_backend;
    return run_all_cases();
}
