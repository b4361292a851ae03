/* Rules against PyTorch, five steps each; ties, freezing, adjusting, skipping, updates out of
 * place. */
#include "golden.h"
#include "reference.h"

#include "optim/optim.h"

static wb_tree *parameters(void)
{
    return wb_tuple(wb_variable(golden_want("rules.start.0")),
                    wb_variable(golden_want("rules.start.1")));
}

static wb_tree *gradient_of_step(int i)
{
    return wb_tuple(golden_want(NAME("rules.gradient%d.0", i)),
                    golden_want(NAME("rules.gradient%d.1", i)));
}

static void check_rule(const char *name, wb_rule *rule)
{
    wb_scope *scope = wb_scope_open();
    wb_tree *model = parameters();
    wb_opt_state *s = wb_setup(rule, model);
    if (!s) fail_msg("%s: %s", name, wb_error());
    for (int i = 0; i < 5; i++) {
        wb_scope *step = wb_scope_open();
        if (wb_update(s, model, gradient_of_step(i))) fail_msg("%s: %s", name, wb_error());
        assert_int_equal(wb_scope_close(step), 0);
        for (int k = 0; k < 2; k++)
            assert_golden(wb_get(model, NAME("%d", k)), NAME("rules.%s.%d.%d", name, i, k), 1e-6);
    }
    wb_scope_close(scope);
}

TEST(rules)
{
    check_rule("Descent", wb_Descent());
    check_rule("Momentum", wb_Momentum());
    check_rule("Adam", wb_Adam());
    check_rule("AdamEps", wb_Adam(.eta = 0.01, .beta = {0.8, 0.9}, .eps = 0.3));
    check_rule("AdamW", wb_AdamW());
    check_rule("WeightDecay", wb_OptimizerChain(wb_WeightDecay(), wb_Descent()));
    check_rule("ClipGrad", wb_OptimizerChain(wb_ClipGrad(.delta = 2), wb_Descent()));
    check_rule("ClipNorm", wb_OptimizerChain(wb_ClipNorm(.omega = 5), wb_Adam(.eta = 0.01)));
}

/* Step numbers, learning rates and bias corrections are arguments of one plan. */
TEST(one_plan_for_all_steps)
{
    wb_tree *model = parameters();
    wb_opt_state *s = wb_setup(wb_Adam(), model);
    int64_t built = 0;
    for (int i = 0; i < 5; i++) {
        wb_scope *step = wb_scope_open();
        if (i == 3) wb_adjust(s, .eta = 0.5);
        assert_int_equal(wb_update(s, model, gradient_of_step(i)), 0);
        assert_int_equal(wb_scope_close(step), 0);
        if (i == 0) built = wb_stats().plans_built;
    }
    assert_int_equal(wb_stats().plans_built, built);
}

/* The norm of the gradients is 0: clipping does not divide by it. */
TEST(clipping_nothing)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *s = wb_setup(wb_OptimizerChain(wb_ClipNorm(), wb_Descent()), model);
    assert_int_equal(wb_update(s, model, wb_tuple(wb_zeros(2))), 0);
    assert_true(wb_at(wb_get(model, "0"), 1) == 1);
}

/* The squares of these gradients overflow f32, and their norm does not: it clips. */
TEST(clipping_what_is_large)
{
    static const double sizes[] = {1e20, 1e25, 1e30, 3e37, 1e-3};
    for (size_t i = 0; i < WB__COUNT(sizes); i++) IN_SCOPE {
        wb_tree *model = wb_tuple(wb_variable(wb_ones(50)), wb_variable(wb_ones(2, 25)));
        wb_rule *rule = wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Descent(.eta = 1));
        wb_opt_state *s = wb_setup(rule, model);
        const double g = sizes[i], norm = sqrt(100) * g, step = norm > 0.5 ? g * 0.5 / norm : g;
        wb_tensor *first = wb_full_array(g, WB_F32, 1, (int64_t[]){50});
        wb_tensor *second = wb_full_array(g, WB_F32, 2, (int64_t[]){2, 25});
        WORKS(wb_update(s, model, wb_tuple(first, second)));
        const double got[] = {1 - wb_at(wb_get(model, "0"), 49),
                              1 - wb_at(wb_get(model, "1"), 1, 3)};
        if (!(fabs(got[0] - step) < 1e-6) || !(fabs(got[1] - step) < 1e-6))
            fail_msg("gradients of %g: steps of %g and %g, not %g", g, got[0], got[1], step);
    }
}

/* The same in f64, also with a parameter of f32 beside it. */
TEST(clipping_what_is_large_in_f64)
{
    static const double sizes[] = {1e100, 1e155, 1e200, 3e306};
    if (!has_dtype(WB_F64)) return;
    for (size_t i = 0; i < 2 * WB__COUNT(sizes); i++) IN_SCOPE {
        const double g = sizes[i / 2], first = i % 2 ? 3e37 : 0;
        const int64_t n = 16;
        wb_tree *model = wb_tuple(wb_variable(wb_ones(4)),
                                  wb_variable(wb_full_array(1, WB_F64, 1, &n)));
        wb_rule *rule = wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Descent(.eta = 1));
        wb_opt_state *s = wb_setup(rule, model);
        WORKS(wb_update(s, model, wb_tuple(wb_full_array(first, WB_F32, 1, (int64_t[]){4}),
                                           wb_full_array(g, WB_F64, 1, &n))));
        const double step = 1 - wb_at(wb_get(model, "1"), 15);
        if (!(fabs(step - 0.125) < 1e-12)) fail_msg("gradients of %g: a step of %g", g, step);
    }
}

/* Beside an f32 gradient whose square overflows, an f64 one that is small counts as little. */
TEST(clipping_what_is_large_in_f32_beside_f64)
{
    if (!has_dtype(WB_F64)) return;
    wb_tree *model = wb_tuple(wb_variable(wb_ones(4)), wb_variable(wb_astype(wb_ones(2), WB_F64)));
    wb_rule *rule = wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Descent(.eta = 1));
    wb_opt_state *s = wb_setup(rule, model);
    WORKS(wb_update(s, model, wb_tuple(wb_full_array(1e30, WB_F32, 1, (int64_t[]){4}),
                                       wb_astype(wb_ones(2), WB_F64))));
    assert_true(fabs(1 - wb_at(wb_get(model, "0"), 0) - 0.25) < 1e-6);
}

static wb_tensor *halved(wb_tensor *g, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_mul(g, wb_scalar(0.5));
}

/* wb_fmap creates its tree before the tensors in it.  The step's scope closes without an error. */
TEST(mapped_gradients)
{
    wb_layer *m = wb_Dense(2, 2, .init = wb_init_ones);
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 1), m);
    wb_scope *step = wb_scope_open();
    wb_tensor *loss = wb_sum(wb_call(m, wb_ones(3, 2)));
    assert_int_equal(wb_update(s, m, wb_fmap(halved, wb_gradient(loss, m), NULL)), 0);
    assert_true(wb_item(loss) == 12);
    if (wb_scope_close(step)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(m, "bias"), 1) == -1.5);
}

/* On a GPU the host finds a number that is not finite when it waits. */
static int waited(int status) { return status ? status : wb_synchronize(wb_default_device()); }

/* After an update with a gradient that is not finite, all parameters are unchanged.  The next
 * finite update is applied. */
TEST(updates_that_are_not_finite)
{
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) IN_SCOPE {
        wb_tree *model = wb_tuple(wb_variable(wb_ones(2)), wb_variable(wb_ones(2)));
        wb_tree *g = wb_tuple(wb_from((float[]){1, (float)bad[k]}, WB_F32, 1, (int64_t[]){2}),
                              wb_ones(2));
        wb_opt_state *s = wb_setup(wb_OptimizerChain(wb_ClipNorm(), wb_Momentum()), model);
        wb_clear_error();
        int status = wb_update(s, model, g);
        if (!status) status = wb_eval(wb_get(model, "0"));
        if (!status) status = wb_eval_array(0, NULL);
        assert_int_equal(waited(status), WB_ERROR_NUMBER);
        FAILED(WB_ERROR_NUMBER, "norm", "gradients", "unguarded");
        for (int i = 0; i < 2; i++)
            assert_true(wb_at(wb_get(model, "0"), i) == 1 && wb_at(wb_get(model, "1"), i) == 1);
        wb_clear_error();
        assert_int_equal(wb_update(s, model, wb_tuple(wb_ones(2), wb_ones(2))), 0);
        assert_int_equal(wb_eval_array(0, NULL), 0);
        assert_true(wb_at(wb_get(model, "1"), 0) < 1 && s->counts->slot[0].steps == 1);
        assert_null(wb_update_new(s, (wb_layer *)model, g));
        wb_opt_state *all_the_same = wb_setup(wb_OptimizerChain(wb_ClipNorm(), wb_Descent()), model,
                                              .unguarded = true);
        assert_int_equal(wb_update(all_the_same, model, g), 0);
        assert_true(isnan(wb_at(wb_get(model, "0"), 1)));
        wb_clear_error();
    }
}

static int guarded_step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    void **all = ctx;
    out[0] = wb_sum(wb_mul(wb_get(all[0], "0"), in[0]));
    return wb_update(all[1], all[0], wb_gradient(out[0], (wb_tree *)all[0])) ? -1 : 1;
}

/* The loss guards updates with gradients that the program has mapped, for instance to clip them. */
TEST_IN_SCOPE(mapped_gradients_are_guarded)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 1), model);
    wb_tensor *bad = wb_from((float[]){1, NAN}, WB_F32, 1, (int64_t[]){2});
    wb_tensor *loss = wb_sum(wb_mul(wb_get(model, "0"), bad));
    assert_int_equal(wb_update(s, model, wb_fmap(halved, wb_gradient(loss, model), NULL)), 0);
    assert_true(isnan(wb_at(wb_get(model, "0"), 0)) || wb_error_code() == WB_ERROR_NUMBER);
    wb_clear_error();
    assert_true(wb_at(wb_get(model, "0"), 0) == 1);
}

/* The loss guards updates of rules without a norm: plain steps, compiled steps, and two updates in
 * one evaluation. */
TEST(losses_guard_updates)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2))), *other = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 1), model),
                 *o = wb_setup(wb_Descent(.eta = 1), other);
    wb_tensor *good = wb_ones(2), *bad = wb_from((float[]){1, NAN}, WB_F32, 1, (int64_t[]){2}), *l;
    wb_compiled *c = wb_compile(guarded_step, (void *[]){model, s});
    for (int round = 0; round < 3; round++) IN_SCOPE {
        wb_tensor *x = round == 1 ? bad : good;
        wb_clear_error();
        assert_int_equal(waited(wb_call_compiled(c, 1, &x, 1, &l)),
                         round == 1 ? WB_ERROR_NUMBER : 0);
        if (round == 1) FAILED(WB_ERROR_NUMBER, "loss", "NaN");
        assert_true(wb_at(wb_get(model, "0"), 0) == (round < 2 ? 0 : -1));
        assert_int_equal(s->counts->slot[0].steps, round < 2 ? 1 : 2);
        wb_clear_error();
    }
    for (int which = 0; which < 3; which++) {               /* of two losses, one or none is bad */
        const double before = wb_at(wb_get(model, "0"), 0), then = wb_at(wb_get(other, "0"), 0);
        wb_scope *scope = wb_scope_open();
        int status = 0;
        for (int i = 0; i < 2 && !status; i++) {
            wb_tree *m = i ? other : model;
            wb_tensor *loss = wb_sum(wb_mul(wb_get(m, "0"), i == which ? bad : good));
            status = wb_update(i ? o : s, m, wb_gradient(loss, m));
        }
        const int closed = wb_scope_close(scope);
        if (!status) status = closed;
        assert_int_equal(waited(status), which < 2 ? WB_ERROR_NUMBER : 0);
        if (which < 2 && !wb__this_thread()->eager)
            assert_true(wb_at(wb_get(model, "0"), 0) == before &&
                        wb_at(wb_get(other, "0"), 0) == then);
        wb_clear_error();
    }
    assert_true(wb_at(wb_get(other, "0"), 1) == 0);
}

/* Two guarded updates in one evaluation: either loss can be read first, and large losses count as
 * finite though their sum overflows. */
TEST(losses_of_two_updates_are_read)
{
    for (int k = 0; k < 4; k++) IN_SCOPE {
        const bool wide = k & 1;                    /* the losses' sum overflows f16 */
        wb_tensor *x[2], *loss[2];
        wb_tree *model[2];
        wb_opt_state *s[2];
        for (int i = 0; i < 2; i++) {
            x[i] = wb_variable(wb_astype(wb_ones(2), i || !(k & 2) ? WB_F16 : WB_F32));
            model[i] = wb_tuple(x[i]);
            s[i] = wb_setup(wb_Descent(.eta = 0.5 / (wide ? 20000 : 1)), model[i]);
        }
        for (int i = 0; i < 2; i++) {
            loss[i] = wb_mul(wb_sum(x[i]), wb_scalar(wide ? 20000 : 1));
            assert_int_equal(wb_update(s[i], model[i], wb_gradient(loss[i], model[i])), 0);
        }
        wb_clear_error();
        assert_true(wb_item(loss[1]) == (wide ? 40000 : 2));
        assert_true(wb_item(loss[0]) == (wide ? 40000 : 2));
        assert_true(fabs(wb_at(x[0], 0) - 0.5) < 1e-3 && fabs(wb_at(x[1], 1) - 0.5) < 1e-3);
        assert_string_equal(wb_error(), "");
    }
}

TEST(skipping_and_freezing)
{
    wb_layer *m =
        wb_Chain(wb_Dense(2, 2, .init = wb_init_ones), wb_Dense(2, 2, .init = wb_init_ones));
    wb_opt_state *s = wb_setup(wb_Momentum(.eta = 1), m);
    assert_int_equal(s->n, 4);
    wb_tree *g = wb_gradient(wb_sum(wb_call(m, wb_ones(1, 2))), m);
    assert_int_equal(wb_freeze(s, "layers.1"), 0);
    assert_int_equal(wb_update(s, m, g), 0);
    assert_true(wb_at(wb_get(m, "layers.0.bias"), 0) == -2);
    assert_true(wb_at(wb_get(m, "layers.1.bias"), 0) == 0 &&
                wb_at(wb_get(m, "layers.1.weight"), 0, 0) == 1);
    assert_int_equal(s->counts->slot[0].steps, 1);
    assert_int_equal(s->counts->slot[3].steps, 0);
    assert_int_equal(wb_thaw(s, ""), 0);
    wb_tree *some = wb_named_tuple(
        1, (const char *[]){"layers"},
        (void *[]){wb_named_tuple(2, (const char *[]){"1", "0"},
                                  (void *[]){wb_named_tuple(2, (const char *[]){"weight", "bias"},
                                                            (void *[]){WB_NONE, wb_ones(2)}),
                                             WB_NONE})});
    assert_int_equal(wb_update(s, m, some), 0);
    assert_true(wb_at(wb_get(m, "layers.1.bias"), 1) == -1);
    assert_true(wb_at(wb_get(m, "layers.0.bias"), 0) == -2); /* nor does its momentum move it */
    REFUSED(!wb_freeze(s, "layers.7"), WB_ERROR_ARGUMENT, "freeze", "parameter", "\"layers.7\"");
    REFUSED(!wb_freeze(s, "layers.1.bia"), WB_ERROR_ARGUMENT, "freeze", "parameter",
            "\"layers.1.bia\"");
    REFUSED(!wb_freeze((wb_opt_state *)m, ""), WB_ERROR_ARGUMENT, "freeze", "layer", "state");
}

/* A tied parameter has one state.  Different gradients of its two names are added; one gradient
 * under both names counts once. */
TEST(ties)
{
    wb_tensor *w = wb_variable(wb_zeros(2));
    wb_tree *model = wb_tuple(w, w);
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 1), model);
    assert_int_equal(s->n, 1);
    for (int place = 0; place < 2; place++) {           /* either name freezes the parameter */
        assert_int_equal(wb_freeze(s, place ? "1" : "0"), 0);
        assert_int_equal(wb_update(s, model, wb_tuple(wb_ones(2), wb_ones(2))), 0);
        assert_true(wb_at(w, 0) == 0);
        wb_opt_state *moved = wb_to(s, wb_device_at("CPU", 1));
        if (moved) assert_int_equal(wb_thaw(moved, "1") | wb_freeze(moved, "1"), 0);
        assert_int_equal(wb_thaw(s, place ? "0" : "1"), 0);
    }
    wb_tensor *g = wb_ones(2);
    assert_int_equal(wb_update(s, model, wb_tuple(g, g)), 0);
    assert_true(wb_at(w, 0) == -1);
    assert_int_equal(wb_update(s, model, wb_tuple(g, wb_mul(g, wb_scalar(3)))), 0);
    assert_true(wb_at(w, 0) == -5);
    REFUSED(!wb_update(s, wb_tuple(wb_variable(wb_zeros(2)), w), wb_tuple(g, g)), WB_ERROR_ARGUMENT,
            "update", "state", "model", "\"1\"", "[2] f32");
}

static void shows(wb_rule *rule, const char *text)
{
    char *shown = wb_object_format(rule);
    assert_non_null(shown);
    shown[strcspn(shown, "\n")] = 0;
    assert_string_equal(shown, text);
    wb_free_text(shown);
}

/* A number by place is the rule's own, as in C++. */
TEST(numbers_by_place)
{
    shows(wb_ClipNorm(1), "ClipNorm(omega=1)");
    shows(wb_ClipGrad(0.5), "ClipGrad(delta=0.5)");
    shows(wb_WeightDecay(1e-4), "WeightDecay(lambda=0.0001)");
    shows(wb_WeightDecay(0), "WeightDecay(lambda=0)");
    shows(wb_SignDecay(1e-2), "SignDecay(lambda=0.01)");
    shows(wb_AdaDelta(0.8), "AdaDelta(rho=0.8, eps=1e-08)");
    shows(wb_AdaDelta(0.8, .eps = 1e-6), "AdaDelta(rho=0.8, eps=1e-06)");
    shows(wb_AdaDelta(.rho = 0.7), "AdaDelta(rho=0.7, eps=1e-08)");
    shows(wb_Momentum(0.5, 0.8), "Momentum(eta=0.5, rho=0.8)");
    shows(wb_Muon(0.5), "Muon(eta=0.5, rho=0.95, eps=1e-07, lambda=0.1)");
#define FIRST(Name, number) assert_non_null(wb_##Name(0.25));
    WB_RULES_(FIRST)
#undef FIRST
}

TEST(refusals)
{
    wb_layer *m = wb_Dense(2, 1), *n = wb_Dense(3, 1);
    REFUSED(wb_Adam(.eta = -0.001), WB_ERROR_ARGUMENT, "Adam", "eta", "-0.001");
    REFUSED(wb_Descent(.eta = NAN), WB_ERROR_ARGUMENT, "Descent", "eta", "nan");
    REFUSED(wb_ClipNorm(.eta = 0.5), WB_ERROR_ARGUMENT, "ClipNorm", "no eta", "0.5",
            "it has .omega");
    REFUSED(wb_ClipNorm(1, .omega = 2), WB_ERROR_ARGUMENT, "ClipNorm", "by place is .omega");
    REFUSED(wb_ClipNorm(1, 2), WB_ERROR_ARGUMENT, "ClipNorm", "no rho", "2", ".omega");
    REFUSED(wb_AdaDelta(0.9, 0.5), WB_ERROR_ARGUMENT, "AdaDelta", "by place is .rho");
    REFUSED(wb_Adam(.lr = 0), WB_ERROR_ARGUMENT, "Adam", ".lr", "called .eta");
    REFUSED(wb_AdamW(.weight_decay = 0), WB_ERROR_ARGUMENT, ".weight_decay is .lambda");
    REFUSED(wb_Momentum(.omega = 2), WB_ERROR_ARGUMENT, "no omega", "it has .eta, .rho");
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    REFUSED(!wb_adjust(s, .eta = -1), WB_ERROR_ARGUMENT, "Adam", "eta", "-1");
    REFUSED(!wb_adjust(s, .rho = 0.5), WB_ERROR_ARGUMENT, "adjust", "Adam", "eta", "0.001", "0.9",
            "0.999", "eps", "1e-08");
    REFUSED(!wb_adjust(s, .eta = WB_DEFAULT), WB_ERROR_ARGUMENT, "adjust", "no number");
    REFUSED(wb_setup(wb_Adam(), wb_tuple(wb_zeros(2))), WB_ERROR_ARGUMENT, "setup", "\"0\"",
            "[2] f32", "variable", "wb_variable");
    REFUSED(wb_setup(wb_Adam(), wb_Chain(wb_relu)), WB_ERROR_ARGUMENT, "setup", "model");
    REFUSED(wb_setup(NULL, m), WB_ERROR_ARGUMENT, "setup", "rule", "NULL");
    wb_tree *g = wb_gradient(wb_sum(wb_call(n, wb_ones(1, 3))), n);
    REFUSED(!wb_update(s, n, g), WB_ERROR_ARGUMENT, "update", "state", "model", "\"weight\"",
            "[1,3] f32");
    REFUSED(!wb_update(s, m, g), WB_ERROR_SHAPE, "update", "gradient", "\"weight\"", "[1,2] f32",
            "[1,3] f32");
    REFUSED(!wb_update(s, m, wb_tuple(wb_ones(1, 2))), WB_ERROR_ARGUMENT, "update", "trees",
            "\"weight\"");
    assert_int_equal(s->counts->slot[0].steps, 0);
    assert_int_equal(wb_adjust(s, .eta = 0, .beta = {0.5}), 0);
    assert_true(s->rule->parts[0].o.eta == 0 && s->rule->parts[0].o.beta[0] == 0.5 &&
                s->rule->parts[0].o.beta[1] == 0.999);
}

TEST(out_of_place)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 2), wb_BatchNorm(2));
    wb_opt_state *s = wb_setup(wb_Adam(.eta = 0.1), m), *t = wb_setup(wb_Adam(.eta = 0.1), m);
    wb_tensor *x = wb_from((float[]){1, 2, 3, 5}, WB_F32, 2, (int64_t[]){2, 2});
    float before = (float)wb_at(wb_get(m, "layers.0.weight"), 0, 0);
    wb_testmode(m);
    wb_tree *g = wb_gradient(wb_sum(wb_square(wb_call(m, x))), m);
    wb_layer *new1 = wb_update_new(s, m, g);
    if (!new1) fail_msg("%s", wb_error());
    assert_true((float)wb_at(wb_get(m, "layers.0.weight"), 0, 0) == before);
    wb_tree *g1 = wb_gradient(wb_sum(wb_square(wb_call(new1, x))), new1);
    wb_layer *new2 = wb_update_new(s, new1, g1);
    /* The same two steps in place */
    assert_int_equal(wb_update(t, m, g), 0);
    assert_true(wb_at(wb_get(m, "layers.0.weight"), 0, 0) ==
                wb_at(wb_get(new1, "layers.0.weight"), 0, 0));
    wb_tree *h = wb_gradient(wb_sum(wb_square(wb_call(m, x))), m);
    assert_int_equal(wb_update(t, m, h), 0);
    wb_tensor *difference = wb_sub(wb_get(m, "layers.0.weight"), wb_get(new2, "layers.0.weight"));
    assert_true(wb_item(wb_max(wb_abs(difference))) < 1e-6);
    assert_int_equal(s->counts->slot[0].steps, 2);
    assert_ptr_not_equal(wb_get(new1, "layers.1.mean"), wb_get(m, "layers.1.mean"));
    assert_int_equal(wb_parameter_count(new2), wb_parameter_count(m));
}

/* The moments of f16 and bf16 parameters are f32, so that small gradients are not lost. */
TEST(halves)
{
    for (wb_dtype d = WB_F16; d <= WB_BF16; d++) {
        wb_tree *model = wb_tuple(wb_variable(wb_astype(wb_ones(3), d)));
        wb_opt_state *s = wb_setup(wb_AdamW(.eta = 0.125), model);
        wb_tensor *g = wb_astype(wb_full_array(1e-4, WB_F32, 1, (int64_t[]){3}), d);
        assert_int_equal(wb_update(s, model, wb_tuple(g)), 0);
        wb_tensor *x = wb_astype(wb_get(model, "0"), WB_F32);
        assert_true(fabs(wb_at(x, 0) - 0.875) < 0.01);
        assert_int_equal(wb_dtype_of(s->slots[0].moments[0]), WB_F32);
    }
}

/* A compiled step uses the current learning rate and step number, for f32 and f64 parameters. */
typedef struct { wb_opt_state *state; wb_tree *model; } recorded;

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    recorded *r = ctx;
    wb_tensor *wide = wb_mul(wb_sum(wb_get(r->model, "1")),
                             wb_astype(wb_sum(in[0]), widest_float()));
    wb_tensor *l = wb_sum(wb_square(wb_sub(wb_get(r->model, "0"), in[0])));
    out[0] = wb_add(l, wb_astype(wide, WB_F32));
    return wb_update(r->state, r->model, wb_gradient(out[0], r->model)) ? -1 : 1;
}

static recorded begin(void)
{
    recorded r = {.model = wb_tuple(wb_variable(wb_ones(3)),
                                    wb_variable(wb_full_array(2, widest_float(), 1,
                                                              (int64_t[]){2})))};
    r.state = wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 3), wb_Adam(.eta = 0.1)), r.model);
    return r;
}

TEST(compiled_steps)
{
    recorded a = begin(), b = begin();
    wb_compiled *c = wb_compile(step, &a);
    for (int i = 0; i < 6; i++) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *x = wb_full_array(i, WB_F32, 1, (int64_t[]){3}), *la, *lb;
        if (i == 3) {
            wb_adjust(a.state, .eta = 0.01, .omega = 1);
            wb_adjust(b.state, .eta = 0.01, .omega = 1);
        }
        if (wb_call_compiled(c, 1, &x, 1, &la)) fail_msg("%s", wb_error());
        assert_int_equal(step(&x, &lb, &b), 1);
        assert_true(fabs(wb_item(la) - wb_item(lb)) < 1e-5);
        wb_scope_close(scope);
        assert_int_equal(a.state->counts->slot[1].steps, i + 1);
        assert_true(fabs(wb_at(wb_get(a.model, "0"), 0) - wb_at(wb_get(b.model, "0"), 0)) < 1e-6);
        assert_true(fabs(wb_at(wb_get(a.model, "1"), 0) - wb_at(wb_get(b.model, "1"), 0)) < 1e-6);
    }
}

int main(void) { return run_cases(golden_open, golden_close); }
