/* Numbers and schedules of parts of a model, and rules of the program's own. */
#include "optim/optim.h"

#include "reference.h"

#include <unistd.h>

/* ---- parts of a model ------------------------------------------------------------------------ */

static wb_layer *net(void)
{
    wb_seed(5);
    return wb_Chain(wb_Dense(2, 3, wb_tanh), wb_Dense(3, 2));
}

static wb_tensor *ones_like(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_variable(wb_add(wb_mul(x, 0), 1));
}

static wb_tensor *gradient_like(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_add(wb_mul(x, 0), 0.5);
}

typedef struct { wb_opt_state *state; wb_layer *model; } trained;

static trained begin(wb_rule *rule)
{
    trained m = {.model = wb_fmap(ones_like, net(), NULL)};
    m.state = wb_setup(rule, m.model);
    MADE(m.state);
    return m;
}

/* All gradients are 0.5. */
static void step(trained *m)
{
    wb_scope *scope = wb_scope_open();
    wb_layer *g = wb_fmap(gradient_like, m->model, NULL);
    WORKS(wb_update(m->state, m->model, (wb_tree *)g));
    WORKS(wb_scope_close(scope));
}

static double value(const trained *m, const char *path)
{
    return wb_at_array(wb_reshape(wb_get(m->model, path), -1), 1, (int64_t[]){0});
}

static void assert_values(const trained *m, double w0, double b0, double w1, double b1)
{
    static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.1.bias"};
    const double want[] = {w0, b0, w1, b1};
    for (int i = 0; i < 4; i++)
        if (!(fabs(value(m, paths[i]) - want[i]) < 1e-6))
            fail_msg("%s: %g, not %g", paths[i], value(m, paths[i]), want[i]);
}

static double number(const trained *m, const char *path, const char *name)
{
    double x = NAN;
    WORKS(wb_rule_number(m->state, path, name, &x));
    return x;
}

TEST_IN_SCOPE(parts)
{
    trained m = begin(wb_OptimizerChain(wb_WeightDecay(.lambda = 0.5), wb_Descent(1)));
    step(&m);
    assert_values(&m, 0, 0, 0, 0);
    m = begin(wb_OptimizerChain(wb_WeightDecay(.lambda = 0.5), wb_Descent(1)));
    WORKS(wb_adjust_at(m.state, "*.bias", .lambda = 0));
    WORKS(wb_adjust_at(m.state, "layers.1", .eta = 0.25));
    step(&m);
    assert_values(&m, 0, 0.5, 0.75, 0.875);
    assert_true(number(&m, "", "eta") == 1);
    assert_true(number(&m, "layers.1", "eta") == 0.25);
    assert_true(number(&m, "*.bias", "lambda") == 0);
    assert_true(number(&m, "layers.1.weight", "lambda") == 0.5);
    WORKS(wb_adjust(m.state, .eta = 0.5));
    assert_true(number(&m, "layers.1", "eta") == 0.5);
    assert_true(number(&m, "layers.0.bias", "lambda") == 0);
    WORKS(wb_freeze(m.state, "*weight"));
    step(&m);
    assert_values(&m, 0, 0.25, 0.75, 0.625);
    char *text = wb_object_format(m.state);
    assert_true(HAS_LINE(text, "layers.1.bias", "lambda=0"));
    assert_false(HAS_LINE(text, "layers.1.weight", "lambda=0"));
    wb_free_text(text);
}

/* wb_adjust_at changes what a recorded update does, and a moved state keeps its numbers. */
static int update(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.1.bias"};
    trained *m = ctx;
    out[0] = in[0];
    for (int i = 0; i < 4; i++)
        out[0] = wb_add(out[0], wb_mul(wb_sum(wb_get(m->model, paths[i])), 0.5));
    return wb_update(m->state, m->model, wb_gradient(out[0], m->model)) ? -1 : 1;
}

TEST_IN_SCOPE(parts_of_compiled_functions)
{
    trained m = begin(wb_Descent(1));
    wb_compiled *c = wb_compile(update, &m);
    wb_tensor *x = wb_scalar(1), *out;
    WORKS(wb_call_compiled(c, 1, &x, 1, &out));
    assert_values(&m, 0.5, 0.5, 0.5, 0.5);
    WORKS(wb_adjust_at(m.state, "layers.0.bias", .eta = 2));
    WORKS(wb_call_compiled(c, 1, &x, 1, &out));
    assert_values(&m, 0, -0.5, 0, 0);
    WORKS(wb_set_schedule(m.state, "layers.1", wb_ScheduleExp(4, 0.5)));
    WORKS(wb_call_compiled(c, 1, &x, 1, &out));             /* the third update: 4 / 4 */
    assert_values(&m, -0.5, -1.5, -0.5, -0.5);
    WORKS(wb_call_compiled(c, 1, &x, 1, &out));
    assert_values(&m, -1, -2.5, -0.75, -0.75);
    if (widest_float() != WB_F64) return;
    wb_opt_state *moved = wb_to(m.state, wb_device_of(m.model), .dtype = WB_F64);
    MADE(moved);
    double eta;
    WORKS(wb_rule_number(moved, "layers.0.bias", "eta", &eta));
    assert_true(eta == 2);
    WORKS(wb_rule_number(moved, "layers.1.bias", "eta", &eta));
    assert_true(eta == 0.25);
}

TEST_IN_SCOPE(parts_of_checkpoints)
{
    const char *path = test_file("groups.safetensors");
    trained m = begin(wb_AdamW()), n = begin(wb_AdamW());
    WORKS(wb_adjust_at(m.state, "*.bias", .lambda = 0, .eta = 0.5));
    WORKS(wb_adjust_at(n.state, "*.weight", .eta = 0.25));
    step(&m);
    WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = m.model, .state = m.state}));
    WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.model = n.model, .state = n.state}));
    assert_true(number(&n, "layers.1.bias", "lambda") == 0);
    assert_true(number(&n, "layers.1.bias", "eta") == 0.5);
    assert_true(number(&n, "layers.0.weight", "eta") == 0.001);
    assert_true(number(&n, "layers.0.weight", "beta[1]") == 0.999);
    step(&m);
    step(&n);
    assert_values(&n, value(&m, "layers.0.weight"), value(&m, "layers.0.bias"),
                  value(&m, "layers.1.weight"), value(&m, "layers.1.bias"));
    assert_int_equal(n.state->counts->updates, 2);
    unlink(path);
}

TEST_IN_SCOPE(refusals_of_parts)
{
    trained m = begin(wb_OptimizerChain(wb_ClipNorm(), wb_Adam()));
    double x;
    REFUSED(!wb_adjust_at(m.state, "layers.7", .eta = 1), WB_ERROR_ARGUMENT, "adjust_at",
            "layers.7");
    REFUSED(!wb_adjust_at(m.state, "*.scale", .eta = 1), WB_ERROR_ARGUMENT, "*.scale");
    REFUSED(!wb_adjust_at(m.state, "layer", .eta = 1), WB_ERROR_ARGUMENT, "layer");
    REFUSED(!wb_adjust_at(m.state, "", .omega = 1), WB_ERROR_ARGUMENT, "ClipNorm", "omega",
            "wb_adjust");
    REFUSED(!wb_adjust_at(m.state, "", .rho = 1), WB_ERROR_ARGUMENT, "adjust_at", "rho");
    REFUSED(!wb_adjust_at(m.state, "", .eta = -1), WB_ERROR_ARGUMENT, "eta", "-1");
    REFUSED(!wb_adjust_at(m.state, NULL, .eta = 1), WB_ERROR_ARGUMENT, "path");
    REFUSED(!wb_adjust_at_with(m.state, "", NULL), WB_ERROR_ARGUMENT, "adjust_at", "number");
    REFUSED(!wb_adjust_at((wb_opt_state *)m.model, "", .eta = 1), WB_ERROR_ARGUMENT, "layer",
            "state");
    REFUSED(!wb_rule_number(m.state, "", "rho", &x), WB_ERROR_ARGUMENT, "rule_number", "rho");
    REFUSED(!wb_rule_number(m.state, "x", "eta", &x), WB_ERROR_ARGUMENT, "x");
    REFUSED(!wb_rule_number(m.state, "", NULL, &x), WB_ERROR_ARGUMENT, "name");
    REFUSED(!wb_freeze(m.state, "*x*"), WB_ERROR_ARGUMENT, "freeze", "*x*");
    assert_true(number(&m, "", "omega") == 10);
}

/* ---- rules of the program's own -------------------------------------------------------------- */

/* A momentum that grows: v <- rho v + g;  the step is eta v t, plus lambda x. */
static wb_tensor *apply(wb_rule_step *s, void *ctx)
{
    *(int *)ctx += 1;
    s->next[0] = wb_add(wb_mul(s->state[0], s->rho), s->g);
    s->next[1] = s->state[1];
    wb_tensor *v = wb_mul(wb_mul(s->next[0], s->t), s->eta);
    return wb_add(v, wb_mul(s->x, s->beta[1]));
}

static int calls;
static const wb_rule_type growing = {"Growing", apply, .states = 2, .start = {0.25, 3},
                                     .ctx = &calls, .eta = 0.1, .rho = 0.5, .beta = {0.9, 0.25}};

typedef struct { wb_dtype dtype, mixed; bool compiled, accumulate; double tolerance; } way;

static int own_update(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    void **m = ctx;
    out[0] = wb_sum(in[0]);
    return wb_update(m[0], m[1], wb_tuple(in[0])) ? -1 : 1;
}

static void check_own(way w)
{
    wb_scope *scope = wb_scope_open();
    wb_tree *model = wb_tuple(wb_variable(wb_full_array(2, w.dtype, 1, (int64_t[]){2})));
    wb_rule *rule = wb_OptimizerChain(wb_ClipGrad(.delta = 1),
                                      wb_CustomRule(&growing, .eta = 0.125));
    if (w.accumulate) rule = wb_OptimizerChain(wb_AccumGrad(2), rule);
    wb_opt_state *s = wb_setup(rule, model, .mixed = w.mixed);
    MADE(s);
    void *both[] = {s, model};
    wb_compiled *c = w.compiled ? wb_compile(own_update, both) : NULL;
    double x = 2, v = 0.25;
    for (int i = 1; i <= 4; i++) {
        for (int b = 0; b <= w.accumulate; b++) IN_SCOPE {
            const wb_dtype dtype = w.mixed ? w.mixed : w.dtype;
            wb_tensor *out, *g = wb_full_array(w.mixed == WB_F16 ? 32768 : 0.5, dtype, 1,
                                               (int64_t[]){2});
            if (w.mixed) MADE(wb_scale_loss(s, wb_astype(wb_ones(1), w.mixed)));
            if (c) WORKS(wb_call_compiled(c, 1, &g, 1, &out));
            else WORKS(wb_update(s, model, wb_tuple(g)));
        }
        v = 0.5 * v + 0.5;
        x -= 0.125 * v * i + 0.25 * x;
        const double got = wb_at(wb_get(model, "0"), 1);
        if (!(fabs(got - x) <= w.tolerance))
            fail_msg("%s, mixed %s, step %d: %g, not %g", wb_dtype_name(w.dtype),
                     wb_dtype_name(w.mixed), i, got, x);
    }
    wb_scope_close(scope);
}

TEST(rules_of_ones_own)
{
    calls = 0;
    check_own((way){.dtype = WB_F32, .tolerance = 1e-6});
    assert_int_equal(calls, 4);
    check_own((way){.dtype = WB_F32, .compiled = true, .tolerance = 1e-6});
    assert_int_equal(calls, 5);
    if (widest_float() == WB_F64) check_own((way){.dtype = WB_F64, .tolerance = 1e-14});
    check_own((way){.dtype = WB_F32, .accumulate = true, .tolerance = 1e-6});
    check_own((way){.dtype = WB_F32, .mixed = WB_F16, .tolerance = 0.01});
    check_own((way){.dtype = WB_F32, .mixed = WB_BF16, .tolerance = 0.05});
    check_own((way){.dtype = WB_F16, .tolerance = 0.02});
}

static wb_tensor *keep(wb_rule_step *s, void *ctx) { return (void)ctx, s->g; }

/* Printed, adjusted, saved and loaded as the rules of the library. */
TEST_IN_SCOPE(own_rules_in_states)
{
    const char *path = test_file("own.safetensors");
    assert_shows(wb_CustomRule(&growing, .rho = 0.25),
                 "Growing(eta=0.1, rho=0.25, beta=(0.9, 0.25))");
    /* types with one number of a pair */
    static const wb_rule_type first = {"First", keep, .gamma = {0.5}},
                              second = {"Second", keep, .gamma = {0, 0.5}};
    assert_shows(wb_CustomRule(&first), "First(gamma=(0.5, 0))");
    assert_shows(wb_CustomRule(&second), "Second(gamma[1]=0.5)");
    trained m = begin(wb_CustomRule(&growing)), n = begin(wb_CustomRule(&growing));
    assert_true(wb_at(m.state->slots[1].moments[1], 1) == 3);
    WORKS(wb_adjust(m.state, .eta = 0.5));
    step(&m);
    WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.model = m.model, .state = m.state}));
    WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.model = n.model, .state = n.state}));
    assert_true(number(&n, "", "eta") == 0.5);
    step(&m);
    step(&n);
    assert_true(value(&m, "layers.0.weight") == value(&n, "layers.0.weight"));
    FAILS(wb_load_checkpoint(path, &(wb_checkpoint){.state = begin(wb_Momentum()).state}),
          WB_ERROR_FORMAT, "Growing", "Momentum");
    unlink(path);
}

static wb_tensor *wrong(wb_rule_step *s, void *ctx)
{
    switch (*(int *)ctx) {
    case 0: return NULL;
    case 1: return wb_sum(s->g);
    case 2: return s->g;                                    /* next[0] is missing */
    default: return s->next[0] = wb_matmul(s->g, s->g);
    }
}

TEST_IN_SCOPE(refusals_of_own_rules)
{
    static int how;
    static const wb_rule_type bad = {"Bad", wrong, .states = 1, .ctx = &how, .eta = 1};
    static const wb_rule_type nameless = {.name = "", .apply = wrong}, idle = {.name = "Idle"},
                              many = {.name = "Many", .apply = wrong, .states = 4},
                              adam = {.name = "Adam", .apply = wrong},
                              twin = {.name = "Growing", .apply = wrong};
    MADE(wb_CustomRule(&growing));
    REFUSED(wb_CustomRule(NULL), WB_ERROR_ARGUMENT, "Rule", "type");
    REFUSED(wb_CustomRule(&nameless), WB_ERROR_ARGUMENT, "name");
    REFUSED(wb_CustomRule(&idle), WB_ERROR_ARGUMENT, "apply");
    REFUSED(wb_CustomRule(&many), WB_ERROR_ARGUMENT, "Many", "4", "3");
    REFUSED(wb_CustomRule(&adam), WB_ERROR_ARGUMENT, "Adam");
    REFUSED(wb_CustomRule(&twin), WB_ERROR_ARGUMENT, "Growing");
    REFUSED(wb_CustomRule(&growing, .lambda = 1), WB_ERROR_ARGUMENT, "Growing", "lambda");
    REFUSED(wb_CustomRule(&growing, .rho = 2), WB_ERROR_ARGUMENT, "Growing", "rho", "2");
    trained m = begin(wb_CustomRule(&bad));
    wb_layer *g = wb_fmap(gradient_like, m.model, NULL);
    for (how = 0; how < 4; how++) {
        wb_clear_error();
        assert_true(wb_update(m.state, m.model, (wb_tree *)g) != 0);
        if (how == 0) FAILED(WB_ERROR_ARGUMENT, "Bad", "result");
        if (how == 1) FAILED(WB_ERROR_SHAPE, "Bad", "result", "[] f32");
        if (how == 2) FAILED(WB_ERROR_ARGUMENT, "Bad", "next", "0");
        if (how == 3) FAILED(WB_ERROR_SHAPE, "matmul");
    }
    assert_int_equal(m.state->counts->updates, 0);
}
