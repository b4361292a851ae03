/* Every graph that the CUDA backend builds for cuDNN, planned by the real cuDNN for GPUs that are
 * not in this machine: it plans from a device's properties.  (Some engines compile at run time and
 * load the result with the driver; a substitute for the driver accepts it.)  No plan is run:
 * cuda_dnn.c tests results, on the double of cuDNN. */
#include "test.h"

#include "backend/cuda/dnn.h"
#include "base/base.h"

#include <dlfcn.h>

static wb__dnn_functions dnn;

/* ---- devices --------------------------------------------------------------------------------- */

/* Values of data sheets, under cuDNN's names. */
#define PROPERTIES(version, name, processors, shared, l2, memory)                                  \
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"                   \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":" #processors ",\"warpSize\":32,"              \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared ","              \
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"       \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"    \
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1410000,\"memClockRateKHz\":1593000,"              \
    "\"l2CacheSize\":" #l2 ",\"deviceName\":\"" name "\",\"deviceVer\":" #version ","              \
    "\"driverVer\":13000,\"runtimeVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":" #memory "}"
static const struct { const char *text; int64_t memory; } devices[] = {
    {PROPERTIES(900, "NVIDIA H200", 132, 232448, 52428800, 150000000000), 150000000000},
    {PROPERTIES(800, "NVIDIA A100", 108, 166912, 41943040, 80000000000), 80000000000},
};

static wb__dnn_target target_of(int which)
{
    const char *text = devices[which].text;
    wb__dnn_target t = {.f = &dnn, .memory = devices[which].memory};
    assert_int_equal(dnn.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                                 &t.properties), 0);
    const int json = CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
    assert_int_equal(dnn.BackendSetAttribute(t.properties, json, CUDNN_TYPE_CHAR,
                                             (int64_t)strlen(text), text), 0);
    assert_int_equal(dnn.BackendFinalize(t.properties), 0);
    return t;
}

/* The numerical notes of a plan's engine, as bits. */
static int notes_of(const wb__dnn_plan *plan)
{
    wb__dnn_desc config = NULL, engine = NULL;
    int notes[32], bits = 0;
    int64_t n = 0;
    assert_int_equal(dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config), 0);
    assert_int_equal(dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(dnn.BackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &config), 0);
    assert_int_equal(dnn.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine), 0);
    assert_int_equal(dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                             CUDNN_TYPE_NUMERICAL_NOTE, (int64_t)WB__COUNT(notes),
                                             &n, notes), 0);
    for (int i = 0; i < n; i++) bits |= 1 << notes[i];
    dnn.BackendDestroyDescriptor(engine);
    dnn.BackendDestroyDescriptor(config);
    return bits;
}

/* Notes that a convolution's engine may not have. */
static int imprecise(const wb__step *s)
{
    const bool f32 = s->views[0].dtype == WB_F32;
    int bits = 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
               1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (s->kind != WB__STEP_CONV) return 0;
    if (f32 && s->precision == WB__PRECISION_HIGHEST)
        bits |= 1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE |
                1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (!f32 || s->precision == WB__PRECISION_HIGHEST)
        bits |= 1 << CUDNN_NUMERICAL_NOTE_FFT | 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD |
                1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6;
    return bits;
}

/* cuDNN must find a plan, of an engine that is precise enough; returns the plan's workspace. */
static size_t must_plan(const wb__dnn_target *t, const wb__step *step, const char *what)
{
    wb__dnn_graph *g = wb__alloc(sizeof *g);
    wb__dnn_problem p;
    wb__dnn_plans plans;
    assert_non_null(g);
    const char *reason = wb__dnn_problem_of(step, &p);
    if (reason) fail_msg("%s: %s", what, reason);
    if (wb__dnn_plans_of(g, t, &p, 1, 0, &plans)) {
        char detail[512] = "";
        dnn.GetLastErrorString(detail, sizeof detail);
        fail_msg("%s: no plan: %s (%d) %s", what, g->call ? g->call : "no engine", g->status,
                 detail);
    }
    const wb__dnn_plan *plan = &plans.list[0];
    const size_t workspace = plan->workspace;
    assert_true(plans.n == 1 && plan->engine >= 0 && workspace <= wb__dnn_max_workspace(t, &p));
    const int notes = notes_of(plan);
    if (notes & imprecise(step)) fail_msg("%s: an engine with notes %#x", what, (unsigned)notes);
    wb__dnn_plans_free(&dnn, &plans);
    wb__free(g);
    return workspace;
}

/* cuDNN must find several plans, each of which it finds again by its fingerprint. */
static void must_plan_several(const wb__dnn_target *t, const wb__step *step, int least)
{
    wb__dnn_graph *g = wb__alloc(sizeof *g);
    wb__dnn_problem p;
    wb__dnn_plans plans, again;
    assert_non_null(g);
    assert_null(wb__dnn_problem_of(step, &p));
    assert_int_equal(wb__dnn_plans_of(g, t, &p, WB__DNN_PLANS, 0, &plans), 0);
    assert_true(plans.n >= least);
    for (int i = 0; i < plans.n; i++) {
        const wb__dnn_plan *plan = &plans.list[i];
        for (int j = 0; j < i; j++) assert_true(plans.list[j].fingerprint != plan->fingerprint);
        assert_false(notes_of(plan) & imprecise(step));
        assert_int_equal(wb__dnn_plans_of(g, t, &p, WB__DNN_PLANS, plan->fingerprint, &again), 0);
        assert_true(again.n == 1 && again.list[0].fingerprint == plan->fingerprint &&
                    again.list[0].engine == plan->engine &&
                    again.list[0].workspace == plan->workspace);
        wb__dnn_plans_free(&dnn, &again);
    }
    wb__dnn_plans_free(&dnn, &plans);
    wb__free(g);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

typedef struct { int n, c, size, k, window, stride, before, behind, dilation, groups; } shape;

static wb__view picture(wb_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w, bool nhwc)
{
    wb__view v = {.dtype = dtype, .ndim = 4, .dims = {n, c, h, w},
                  .strides = {c * h * w, h * w, w, 1}};
    if (nhwc) v.strides[1] = 1, v.strides[2] = w * c, v.strides[3] = c;
    return v;
}

static wb__step convolution(const shape *s, wb_dtype dtype, bool nhwc, int kind)
{
    const int64_t reach = (int64_t)(s->window - 1) * s->dilation + 1;
    const int64_t out = (s->size + s->before + s->behind - reach) / s->stride + 1;
    wb__step step = {
        .kind = WB__STEP_CONV, .n_views = 3, .variant = kind,
        .views = {picture(dtype, s->n, s->c, s->size, s->size, nhwc),
                  picture(dtype, s->k, s->c / s->groups, s->window, s->window, false),
                  picture(dtype, s->n, s->k, out, out, nhwc)},
        .conv = {.stride = {s->stride, s->stride}, .dilation = {s->dilation, s->dilation},
                 .pad = {s->before, s->behind, s->before, s->behind}, .groups = s->groups,
                 .size = {out, out}}};
    step.views[3] = (wb__view){.dtype = dtype, .ndim = 1, .dims = {s->k}, .strides = {1}};
    return step;
}

/* All kinds of convolutions, deterministic ones too; the forward one also with a bias and an
 * epilogue. */
static void all_kinds(const wb__dnn_target *t, const shape *s, wb_dtype dtype, int precision,
                      bool nhwc, int last)
{
    static const wb__op acts[] = {WB__OP_NONE, WB__OP_relu, WB__OP_tanh, WB__OP_sigmoid};
    for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
        for (int same = 0; same < 2; same++)
            for (int e = -1; e <= (same || kind != WB__CONV_FORWARD ? -1 : last); e++) {
                char what[200];
                wb__step step = convolution(s, dtype, nhwc, kind);
                step.precision = (uint8_t)precision;
                step.deterministic = same;
                step.n_views = e < 0 ? 3 : 4;
                step.epilogue = e < 0 ? WB__OP_NONE : acts[e];
                snprintf(what, sizeof what, "%dx%d %d->%d /%d dilation %d groups %d %s %s kind %d"
                         " precision %d epilogue %d%s", s->window, s->window, s->c, s->k, s->stride,
                         s->dilation, s->groups, wb_dtype_name(dtype), nhwc ? "nhwc" : "nchw",
                         kind, precision, e, same ? ", the same bits" : "");
                must_plan(t, &step, what);
            }
}

static const shape shapes[] = {
    {32, 3, 224, 64, 7, 2, 3, 3, 1, 1},     /* the first of a ResNet */
    {16, 64, 56, 64, 3, 1, 1, 1, 1, 1},     {16, 256, 56, 512, 1, 2, 0, 0, 1, 1},
    {64, 1, 28, 6, 5, 1, 0, 0, 1, 1},       /* LeNet's */
    {64, 6, 12, 16, 5, 1, 0, 0, 1, 1},      {8, 64, 28, 64, 3, 1, 2, 2, 2, 1},
    {8, 64, 28, 64, 3, 1, 1, 1, 1, 4},      {8, 32, 14, 32, 3, 1, 1, 1, 1, 32},
    {8, 64, 28, 64, 3, 1, 1, 2, 1, 1},      {2, 5, 9, 7, 3, 2, 1, 1, 1, 1},
};

static void convolutions(int which)
{
    const wb__dnn_target t = target_of(which);
    for (size_t i = 0; i < WB__COUNT(shapes); i++)
        for (int nhwc = 0; nhwc < 2; nhwc++) {
            const int last = i == 1 ? 3 : 1;        /* sigmoid, relu */
            all_kinds(&t, &shapes[i], WB_F32, WB__PRECISION_HIGHEST, nhwc, last);
            all_kinds(&t, &shapes[i], WB_F32, WB__PRECISION_HIGH, nhwc, last);
            all_kinds(&t, &shapes[i], WB_BF16, WB__PRECISION_HIGHEST, nhwc, last);
            if (i == 1) all_kinds(&t, &shapes[i], WB_F16, WB__PRECISION_HIGHEST, nhwc, last);
        }
    dnn.BackendDestroyDescriptor(t.properties);
}

/* Engines to time. */
static void several(int which)
{
    const wb__dnn_target t = target_of(which);
    for (int kind = WB__CONV_FORWARD; kind <= WB__CONV_GRAD_WEIGHT; kind++)
        for (int half = 0; half < 2; half++) {
            const wb__step step = convolution(&shapes[1], half ? WB_BF16 : WB_F32, half, kind);
            must_plan_several(&t, &step, 2);
        }
    dnn.BackendDestroyDescriptor(t.properties);
}

TEST(test_several_sm90) { several(0); }
TEST(test_several_sm80) { several(1); }

TEST(test_convolutions_sm90) { convolutions(0); }
TEST(test_convolutions_sm80) { convolutions(1); }

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct { int n, heads, length, width; bool packed; } heads;

static wb__step attention(const heads *h, wb_dtype dtype, int kind, bool causal)
{
    const int64_t t = h->length, d = h->width, n = h->heads;
    wb__step step = {.kind = WB__STEP_ATTENTION, .variant = kind,
                     .n_views = kind == WB__ATTENTION_FORWARD ? 5 : 9,
                     .attention = {.scale = 0.125, .causal = causal}};
    for (int i = 0; i < step.n_views; i++) {
        const bool lse = i == 4;
        wb__view v = {.dtype = lse ? WB_F32 : dtype, .ndim = 4, .dims = {h->n, n, t, lse ? 1 : d},
                      .strides = {n * t * d, t * d, d, 1}};
        if (lse) v.strides[0] = n * t, v.strides[1] = t, v.strides[2] = 1, v.strides[3] = 0;
        else if (h->packed)     /* [N, T, 3, H, D]: one product computed q, k and v side by side */
            v.strides[0] = t * 3 * n * d, v.strides[1] = d, v.strides[2] = 3 * n * d;
        step.views[i] = v;
    }
    return step;
}

static const heads list[] = {{8, 12, 1024, 64, true}, {4, 8, 128, 32, false}, {2, 6, 77, 40, true},
                             {1, 2, 2048, 128, false}, {16, 12, 1024, 64, true}};

static void attentions(int which)
{
    const wb__dnn_target t = target_of(which);
    for (size_t i = 0; i < WB__COUNT(list); i++)
        for (int kind = WB__ATTENTION_FORWARD; kind <= WB__ATTENTION_GRAD; kind++)
            for (int causal = 0; causal < 2; causal++) {
                if ((!causal && i != 1) || (which && i > 1 && i != 4)) continue;
                char what[120];
                const wb_dtype dtype = i % 2 ? WB_F16 : WB_BF16;
                wb__step step = attention(&list[i], dtype, kind, causal);
                snprintf(what, sizeof what, "attention [%d,%d,%d,%d] %s kind %d causal %d",
                         list[i].n, list[i].heads, list[i].length, list[i].width,
                         wb_dtype_name(dtype), kind, causal);
                const size_t bytes = must_plan(&t, &step, what);
                /* a few numbers per row: the workspace does not contain the scores */
                const size_t rows = (size_t)list[i].n * (size_t)list[i].heads *
                                    (size_t)(list[i].length + 127);
                assert_true(bytes <= 4096 + rows * (size_t)(list[i].width + 63) * 4);
                step.deterministic = true;
                if (i == 1 || i == 4) must_plan(&t, &step, what);
            }
    dnn.BackendDestroyDescriptor(t.properties);
}

TEST(test_attention_sm90) { attentions(0); }
TEST(test_attention_sm80) { attentions(1); }

/* ---- steps that cuDNN does not support ------------------------------------------------------- */

TEST(test_declined)
{
    wb__dnn_problem p;
    const heads h = {2, 2, 64, 32, false};
    wb__step s = convolution(&shapes[1], WB_F64, false, WB__CONV_FORWARD);
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: not of f32, f16 or bf16");
    s = convolution(&shapes[1], WB_F32, false, WB__CONV_FORWARD);
    s.views[0].strides[2]++;
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: strides");
    s = convolution(&shapes[1], WB_F32, false, WB__CONV_FORWARD);
    s.views[1].dtype = WB_BF16;
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: mixed dtypes");
    s.kind = WB__STEP_POOL;
    assert_non_null(wb__dnn_problem_of(&s, &p));
    s = attention(&h, WB_F32, WB__ATTENTION_FORWARD, true);
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: attention is of f16 or bf16");
    s = attention(&h, WB_BF16, WB__ATTENTION_FORWARD, true);
    assert_null(wb__dnn_problem_of(&s, &p));
    s.views[1].dims[2] = s.views[2].dims[2] = 65;
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: lengths differ");
    s = attention(&h, WB_BF16, WB__ATTENTION_FORWARD, true);
    s.views[0].offset = 4;
    assert_string_equal(wb__dnn_problem_of(&s, &p), "cuDNN: strides of attention");
}

/* ---- the real library ------------------------------------------------------------------------ */

static bool open_library(void)
{
    static const char *const names[] = {"/usr/local/cuda/lib64/libcudnn.so.9",
                                        "/usr/local/cuda/lib/libcudnn.so.9", "libcudnn.so.9"};
    static const struct { const char *name; size_t at; } functions[] = {
#define NAME(type, name, parameters) {"cudnn" #name, offsetof(wb__dnn_functions, name)},
        WB__DNN_FUNCTIONS(NAME)
    };
    void *library = NULL;
    for (size_t i = 0; i < WB__COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < WB__COUNT(functions); i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) return false;
        memcpy((char *)&dnn + functions[i].at, &found, sizeof found);
    }
    return library;
}

int main(void)
{
    /* cuDNN finds this library in place of libcuda.so.1, since it has that name */
    if (!dlopen(WB_TEST_LOADER, RTLD_NOW | RTLD_GLOBAL)) {
        print_error("%s\n", dlerror());
        return 1;
    }
    if (!open_library() || dnn.GetVersion() < 91600) {
        print_message("SKIP: cuDNN 9.16 or newer is not here\n");
        return 77;
    }
    return run_all_cases();
}
