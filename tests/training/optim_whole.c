/* Rules that look at whole parameters: four steps against PyTorch 2.15 in f64 (Adafactor; Muon with
 * its iteration in f64 instead of bf16) and against the formulas in numpy (LAMB, Muon of a
 * vector). */
#include "optim/optim.h"

#include "reference.h"

#include <unistd.h>

enum { STEPS = 4, MOST = 8 };

static const struct { int rows, columns; double x[MOST]; } starts[] = {
    {2, 4, {0.5, -1.25, 2, -0.75, 1.5, 0.25, -0.5, 1}},
    {3, 2, {0.5, -1.25, 2, -0.75, 1.5, 0.25}},
    {3, 0, {0.5, -1.25, 2}},                                        /* a vector */
};

typedef enum { MUON, ADAFACTOR, ADAFACTOR_DEFAULT, LAMB, LAMB_DEFAULT } kind;

static const struct { kind kind; int start; double want[MOST]; } rows[] = {
    {MUON, 0, {0.500348310450517, -1.25132072254856, 1.88147152670937, -0.817894953024755,
               1.44161027312795, 0.238095455640082, -0.592909168539944, 1.04567494535654}},
    {MUON, 1, {0.469294650209569, -1.23030544199855, 1.84726790323867, -0.858568971825845,
               1.51038551539494, 0.327021016007648}},
    {MUON, 2, {0.480665243809452, -1.26277319300438, 1.77262495268204}},
    {ADAFACTOR, 0, {0.41193554932162, -1.28618088298368, 1.82830066425272, -0.865631148971567,
                    1.41455061014958, 0.266863761272579, -0.607368317096906, 1.07456399300375}},
    {ADAFACTOR, 1, {0.401594808936702, -1.29921822019977, 1.83664910576382, -0.832694828769389,
                    1.41637659700511, 0.283015095031762}},
    {ADAFACTOR, 2, {0.415978543025787, -1.30746106546124, 1.81638428769528}},
    {ADAFACTOR_DEFAULT, 0, {0.484721595108255, -1.26269959413082, 1.9738910601988,
                            -0.77631441108511, 1.48867097371362, 0.254161220771139,
                            -0.524022658559365, 1.01908599824621}},
    {LAMB, 0, {0.556088721169759, -1.34213588391798, 1.71254069891436, -0.878754124940193,
               1.34961868431997, 0.217067750197428, -0.763171797340447, 1.09016765526922}},
    {LAMB, 1, {0.570908870485746, -1.3575814217952, 1.69582858263353, -0.889160839125945,
               1.34268851344881, 0.218343938405312}},
    {LAMB, 2, {0.576719606611092, -1.35316793320021, 1.64951783078742}},
    {LAMB_DEFAULT, 0, {0.501902731356321, -1.25299202148895, 1.99529150858203,
                       -0.753143140501558, 1.49773968326758, 0.249683436763545,
                       -0.506010595079765, 1.00285090560979}},
};

static wb_rule *made(kind k)
{
    switch (k) {
    case MUON: return wb_Muon(0.05, 0.8);
    case ADAFACTOR: return wb_Adafactor(0.05, 0.7, .delta = 1e-2, .lambda = 0.1);
    case ADAFACTOR_DEFAULT: return wb_Adafactor();
    case LAMB: return wb_LAMB(0.05, .beta = {0.8, 0.9}, .eps = 1e-3, .lambda = 0.1);
    default: return wb_LAMB();
    }
}

typedef struct { wb_dtype dtype, mixed; bool compiled, cube; double tolerance; } way;
typedef struct { wb_opt_state *state; wb_tree *model; } trained;

static int size_of(int start) { return starts[start].rows * WB__MAX(starts[start].columns, 1); }

static wb_tensor *shaped(int start, const float *x, const way *w, wb_dtype dtype)
{
    const int64_t r = starts[start].rows, c = starts[start].columns;
    const int64_t flat = r * WB__MAX(c, 1), cube[] = {r, c / 2, 2}, dims[] = {r, c};
    wb_tensor *y = wb_reshape_array(wb_from(x, WB_F32, 1, &flat), w->cube ? 3 : c ? 2 : 1,
                                    w->cube ? cube : dims);
    return wb_astype(y, dtype);
}

static wb_tensor *gradient(int start, int i, const way *w)
{
    float g[MOST];
    for (int k = 0; k < size_of(start); k++)
        g[k] = (float)((k * 7 + i * 5) % 16 - 6) / 8 * (w->mixed == WB_F16 ? 16384 : 1);
    return shaped(start, g, w, w->mixed ? w->mixed : w->dtype);
}

static trained begin(int row, const way *w)
{
    float x[MOST];
    for (int k = 0; k < MOST; k++) x[k] = (float)starts[rows[row].start].x[k];
    trained m = {.model = wb_tuple(wb_variable(shaped(rows[row].start, x, w, w->dtype)))};
    m.state = wb_setup(made(rows[row].kind), m.model, .mixed = w->mixed);
    MADE(m.state);
    if (w->mixed == WB_F16)                                 /* the scale of the gradients above */
        WORKS(wb_assign(m.state->scaling[WB__SCALE], wb_full_array(16384, WB_F32, 0, NULL)));
    return m;
}

static int update(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trained *m = ctx;
    out[0] = wb_sum(in[0]);
    return wb_update(m->state, m->model, wb_tuple(in[0])) ? -1 : 1;
}

static void one_step(trained *m, wb_compiled *c, int row, int i, const way *w)
{
    wb_scope *step = wb_scope_open();
    wb_tensor *out, *g = gradient(rows[row].start, i, w);
    if (w->mixed) MADE(wb_scale_loss(m->state, wb_astype(wb_ones(1), w->mixed)));
    if (c) WORKS(wb_call_compiled(c, 1, &g, 1, &out));
    else WORKS(wb_update(m->state, m->model, wb_tuple(g)));
    WORKS(wb_scope_close(step));
}

static void check_row(int row, way w)
{
    wb_scope *scope = wb_scope_open();
    trained m = begin(row, &w);
    wb_compiled *c = w.compiled ? wb_compile(update, &m) : NULL;
    int64_t built = 0;
    for (int i = 0; i < STEPS; i++) {
        one_step(&m, c, row, i, &w);
        if (i == 1) built = wb_stats().plans_built;         /* in step 1 numbers are 0 or 1 */
    }
    assert_int_equal(wb_stats().plans_built, built);
    wb_tensor *x = w.mixed ? m.state->slots[0].moments[m.state->n_moments - 1]
                           : wb_get(m.model, "0");
    for (int k = 0; k < size_of(rows[row].start); k++) {
        const double got = wb_at(wb_reshape(x, -1), k), want = rows[row].want[k];
        if (!(fabs(got - want) <= w.tolerance))
            fail_msg("row %d, %s, mixed %s, element %d: %.15g, not %.15g", row,
                     wb_dtype_name(w.dtype), wb_dtype_name(w.mixed), k, got, want);
    }
    wb_scope_close(scope);
}

TEST(against_pytorch_and_numpy)
{
    for (size_t r = 0; r < WB__COUNT(rows); r += fewer() > 1 ? 2 : 1) {
        check_row((int)r, (way){.dtype = WB_F32, .tolerance = 4e-6});
        check_row((int)r, (way){.dtype = WB_F32, .compiled = true, .tolerance = 4e-6});
        if (widest_float() == WB_F64) check_row((int)r, (way){.dtype = WB_F64, .tolerance = 1e-13});
    }
    for (size_t r = 0; r < WB__COUNT(rows); r += fewer() > 1 ? 3 : 1) {
        check_row((int)r, (way){.dtype = WB_F32, .mixed = WB_BF16, .tolerance = 4e-6});
        check_row((int)r, (way){.dtype = WB_F32, .mixed = WB_F16, .tolerance = 4e-6});
        check_row((int)r, (way){.dtype = WB_F16, .tolerance = STEPS * 0x1p-10});
    }
    /* of a parameter with three dimensions */
    check_row(0, (way){.dtype = WB_F32, .cube = true, .tolerance = 4e-6});
    check_row(7, (way){.dtype = WB_F32, .cube = true, .tolerance = 4e-6});
}

/* A parameter of zeros, which has no norm, and a gradient of zeros. */
TEST_IN_SCOPE(zeros)
{
    for (int k = 0; k < 2; k++) {
        wb_tree *model = wb_tuple(wb_variable(wb_full(k, 2, 2)));
        wb_opt_state *s = wb_setup(wb_LAMB(0.5, .lambda = 0), model);
        WORKS(wb_update(s, model, wb_tuple(wb_full(1 - k, 2, 2))));
        assert_true(fabs(wb_at(wb_get(model, "0"), 1, 1) - (k ? 1 : -0.5)) < 1e-5);
        s = wb_setup(wb_Muon(0.5, .lambda = 0), model);
        WORKS(wb_assign(wb_get(model, "0"), wb_ones(2, 2)));
        WORKS(wb_update(s, model, wb_tuple(wb_zeros(2, 2))));
        assert_true(wb_at(wb_get(model, "0"), 1, 1) == 1);
    }
}

/* Adafactor's averages are a row and a column, also in checkpoints. */
TEST_IN_SCOPE(shapes_and_checkpoints)
{
    const char *path = test_file("whole.safetensors");
    static const char *const shapes[][2] = {{"[2,1] f32", "[1,4] f32"}, {"[3] f32", "[] f32"}};
    for (int r = 3; r <= 5; r += 2) {
        const way w = {.dtype = WB_F32};
        trained a = begin(r, &w), b = begin(r, &w);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(wb_describe(a.state->slots[0].moments[k]), shapes[r > 3][k],
                                strlen(shapes[r > 3][k]));
        one_step(&a, NULL, r, 0, &w);
        WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = (wb_layer *)a.model,
                                                        .state = a.state}));
        WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.model = (wb_layer *)b.model,
                                                        .state = b.state}));
        one_step(&a, NULL, r, 1, &w);
        one_step(&b, NULL, r, 1, &w);
        wb_tensor *x = wb_reshape(wb_get(a.model, "0"), -1), *y = wb_get(b.model, "0");
        assert_true(wb_at(x, 1) == wb_at(wb_reshape(y, -1), 1));
    }
    unlink(path);
}

TEST_IN_SCOPE(texts)
{
    static const char *const texts[] = {
        "Muon(eta=0.001, rho=0.95, eps=1e-07, lambda=0.1)",
        "Adafactor(eta=0.01, rho=0.8, eps=1.19209e-07, lambda=0, delta=0.001, omega=1)",
        "LAMB(eta=0.001, beta=(0.9, 0.999), eps=1e-06, lambda=0.01)",
        ("OptimizerChain(AccumGrad(4), ClipGrad(delta=10), LAMB(eta=0.001, beta=(0.9, 0.999), "
         "eps=1e-06, lambda=0.01))"),
        "AccumGrad(4)",
    };
    wb_rule *const made[] = {wb_Muon(), wb_Adafactor(), wb_LAMB(),
                             wb_OptimizerChain(wb_AccumGrad(4), wb_ClipGrad(), wb_LAMB()),
                             wb_AccumGrad(4)};
    for (size_t i = 0; i < WB__COUNT(made); i++) {
        assert_shows(made[i], texts[i]);
    }
    REFUSED(wb_AccumGrad(0), WB_ERROR_ARGUMENT, "AccumGrad", "0", "1");
    REFUSED(wb_setup(wb_AccumGrad(4), wb_tuple(wb_variable(wb_ones(2)))), WB_ERROR_ARGUMENT,
            "AccumGrad", "4", "wb_OptimizerChain");
    REFUSED(wb_Muon(.beta = {0.9}), WB_ERROR_ARGUMENT, "Muon", "beta[0]", "0.9");
    REFUSED(wb_AdaGrad(NAN), WB_ERROR_ARGUMENT, "AdaGrad", "eta", "nan", "number");
}
