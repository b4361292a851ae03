/* Schedules: their values against numbers that Python computed from the formulas of
 * ParameterSchedulers.jl, and the learning rates of updates. */
#include "optim/optim.h"

#include "reference.h"

#include <unistd.h>

static double halves(double t, void *ctx) { return *(double *)ctx / t; }

static wb_schedule *made(int i)
{
    wb_schedule *e = wb_ScheduleExp(0.8, 0.9);
    switch (i) {
    case 0: return wb_ScheduleConstant(0.5);
    case 1: return wb_ScheduleStep(0.8, 0.5, 3);
    case 2: return wb_ScheduleStep(0.8, 0.5, 2, 4);
    case 3: return e;
    case 4: return wb_SchedulePoly(0.8, 3, 20);
    case 5: return wb_ScheduleInv(0.8, 0.25, 2);
    case 6: return wb_ScheduleTriangle(0.9, 0.1, 5);
    case 7: return wb_ScheduleTriangleDecay2(0.9, 0.1, 5);
    case 8: return wb_ScheduleTriangleExp(0.9, 0.1, 5, 0.9);
    case 9: return wb_ScheduleSin(0.1, 0.9, 5);
    case 10: return wb_ScheduleSinDecay2(0.1, 0.9, 5);
    case 11: return wb_ScheduleSinExp(0.1, 0.9, 5, 0.9);
    case 12: return wb_ScheduleCosAnneal(0.9, 0.1, 5);
    case 13: return wb_ScheduleCosAnneal(0.9, 0.1, 5, .restart = false);
    case 14: return wb_ScheduleOneCycle(15, 0.5);
    case 15: return wb_ScheduleOneCycle(15, 0.5, .startval = 0.1, .endval = 0.01,
                                        .percent_start = 0.4);
    case 16: return wb_ScheduleWarmup(0.1, 0.5, 4);
    case 17: return wb_ScheduleSequence({wb_ScheduleWarmup(0.1, 0.5, 4), 4}, {e, 3},
                                        {wb_ScheduleSin(0.1, 0.9, 5), 2});
    case 18: return wb_ScheduleLoop(e, 4);
    case 19: return wb_ScheduleInterpolator(e, 3);
    case 20: return wb_ScheduleShifted(e, 5);
    case 21: return wb_ScheduleShortened(e, 14);
    case 22:
        return wb_ScheduleComposed(wb_ScheduleTriangle(0, 1, 10), wb_ScheduleConstant(0),
                                   wb_ScheduleExp(1, 0.9), wb_ScheduleConstant(5));
    default: return NULL;
    }
}

TEST(values)
{
    static const int steps[] = {1, 2, 5, 6, 10, 14};
    static const struct { const char *text; double want[6]; } rows[] = {
        {"ScheduleConstant(0.5)", {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}},
        {"ScheduleStep(0.8, 0.5, 3)", {0.8, 0.8, 0.4, 0.4, 0.1, 0.05}},
        {"ScheduleStep(0.8, 0.5, 2, 4)", {0.8, 0.8, 0.4, 0.4, 0.2, 0.2}},
        {"ScheduleExp(0.8, 0.9)",
         {0.8, 0.72, 0.52488, 0.472392, 0.3099363912, 0.20334926626632008}},
        {"SchedulePoly(0.8, 3, 20)", {0.8, 0.6859, 0.4096, 0.3375, 0.1331, 0.0343}},
        {"ScheduleInv(0.8, 0.25, 2)",
         {0.8, 0.512, 0.2, 0.1580246913580247, 0.0757396449704142, 0.04429065743944637}},
        {"ScheduleTriangle(0.9, 0.1, 5)", {0.1, 0.42, 0.42, 0.1, 0.42, 0.74}},
        {"ScheduleTriangleDecay2(0.9, 0.1, 5)", {0.1, 0.42, 0.42, 0.1, 0.26, 0.26}},
        {"ScheduleTriangleExp(0.9, 0.1, 5, 0.9)",
         {0.1, 0.388, 0.309952, 0.1, 0.22397455648, 0.2626794130130561}},
        {"ScheduleSin(0.1, 0.9, 5)", {0.1, 0.5702282018339785, 0.5702282018339786, 0.1,
                              0.5702282018339787, 0.8608452130361229}},
        {"ScheduleSinDecay2(0.1, 0.9, 5)", {0.1, 0.5702282018339785, 0.5702282018339786, 0.1,
                                    0.33511410091698934, 0.2902113032590308}},
        {"ScheduleSinExp(0.1, 0.9, 5, 0.9)", {0.1, 0.5232053816505807, 0.40851672322327337, 0.1,
                                      0.28217603989611073, 0.29339664476642197}},
        {"ScheduleCosAnneal(0.9, 0.1, 5)", {0.9, 0.823606797749979, 0.17639320225002109, 0.9,
                                    0.17639320225002109, 0.37639320225002104}},
        {"ScheduleCosAnneal(0.9, 0.1, 5, restart=false)",
         {0.9, 0.823606797749979, 0.17639320225002109, 0.1, 0.823606797749979,
          0.37639320225002115}},
        {"ScheduleOneCycle(15, 0.5, 0.02, 5e-06, 0.25)",
         {0.02, 0.09029437251522855, 0.5, 0.4898733446711903, 0.28558085378122555,
          0.0396912199260368}},
        {"ScheduleOneCycle(15, 0.5, 0.1, 0.01, 0.4)",
         {0.1, 0.12679491924311226, 0.4, 0.4732050807568877, 0.3775, 0.06731911143585041}},
        {"ScheduleWarmup(0.1, 0.5, 4)", {0.1, 0.2, 0.5, 0.5, 0.5, 0.5}},
        {"ScheduleSequence(ScheduleWarmup(0.1, 0.5, 4) => 4, ScheduleExp(0.8, 0.9) => 3, "
         "ScheduleSin(0.1, 0.9, 5) => 2)",
         {0.1, 0.2, 0.8, 0.72, 0.8608452130361228, 0.5702282018339785}},
        {"ScheduleLoop(ScheduleExp(0.8, 0.9), 4)", {0.8, 0.72, 0.8, 0.72, 0.72, 0.72}},
        {"ScheduleInterpolator(ScheduleExp(0.8, 0.9), 3)", {0.8, 0.8, 0.72, 0.72, 0.5832, 0.52488}},
        {"ScheduleShifted(ScheduleExp(0.8, 0.9), 5)", {0.52488, 0.472392, 0.344373768, 0.3099363912,
                                       0.20334926626632008, 0.13341745359733262}},
        {"ScheduleShortened(ScheduleExp(0.8, 0.9), 14)",
         {0.8, 0.72, 0.52488, 0.472392, 0.3099363912, 0.20334926626632008}},
        {"ScheduleComposed(ScheduleTriangle(0, 1, 10), ScheduleConstant(0), ScheduleExp(1, 0.9), "
         "ScheduleConstant(5))",
         {0, 0.36, 0.26244, 0, 0.1549681956, 0.2033492662663201}},
    };
    for (size_t r = 0; r < WB__COUNT(rows); r++) IN_SCOPE {
        wb_schedule *s = made((int)r);
        if (!s) fail_msg("%s: %s", rows[r].text, wb_error());
        assert_shows(s, rows[r].text);
        for (size_t i = 0; i < WB__COUNT(steps); i++) {
            const double got = wb_schedule_at(s, steps[i]);
            if (!(fabs(got - rows[r].want[i]) < 1e-14))
                fail_msg("%s, step %d: %.17g, not %.17g", rows[r].text, steps[i], got,
                         rows[r].want[i]);
        }
    }
    assert_true(wb_schedule_at(made(19), 3.5) == 0.8 * 0.9);
    double three = 3;
    assert_true(wb_schedule_at(wb_schedule_from_function(halves, &three), 4) == 0.75);
}

static double wrong(double t, void *ctx) { return (void)ctx, t > 2 ? INFINITY : 0.5; }

#define IS_NAN(s, t, code, ...)                    \
    do {                                           \
        wb_clear_error();                          \
        assert_true(isnan(wb_schedule_at(s, t)));  \
        FAILED(code, __VA_ARGS__);                 \
    } while (0)

TEST(refusals)
{
    REFUSED(wb_ScheduleExp(NAN, 1), WB_ERROR_ARGUMENT, "ScheduleExp", "1", "nan", "finite");
    REFUSED(wb_ScheduleShifted(made(0), 0), WB_ERROR_ARGUMENT, "ScheduleShifted", "0", "1");
    REFUSED(wb_ScheduleSin(0, 1, 0), WB_ERROR_ARGUMENT, "ScheduleSin", "3", "0", "positive");
    REFUSED(wb_ScheduleStep(0.1, 0.5, 10, 0), WB_ERROR_ARGUMENT, "ScheduleStep", "0", "1");
    REFUSED(wb_ScheduleStep_array(0.1, 0.5, 0, NULL), WB_ERROR_ARGUMENT, "ScheduleStep");
    REFUSED(wb_ScheduleSequence({NULL, 4}), WB_ERROR_ARGUMENT, "ScheduleSequence", "NULL");
    REFUSED(wb_ScheduleSequence({made(0), -4}), WB_ERROR_ARGUMENT, "ScheduleSequence", "-4");
    REFUSED(wb_ScheduleLoop((wb_schedule *)wb_Adam(), 4), WB_ERROR_ARGUMENT, "ScheduleLoop", "rule",
            "schedule");
    REFUSED(wb_ScheduleOneCycle(10, 1, .percent_start = 0.95), WB_ERROR_ARGUMENT,
            "ScheduleOneCycle", "percent_start", "0.95");
    REFUSED(wb_ScheduleOneCycle(0, 1), WB_ERROR_ARGUMENT, "ScheduleOneCycle", "0");
    REFUSED(wb_ScheduleComposed(made(18), made(0)), WB_ERROR_ARGUMENT, "ScheduleComposed",
            "ScheduleLoop");
    REFUSED(wb_ScheduleComposed(made(3), made(0)), WB_ERROR_ARGUMENT, "ScheduleComposed", "1",
            "ScheduleExp", "2");
    REFUSED(wb_schedule_from_function(NULL, NULL), WB_ERROR_ARGUMENT, "function");
    IS_NAN(made(0), 0.5, WB_ERROR_ARGUMENT, "step", "0.5", "1");
    IS_NAN(made(4), 21, WB_ERROR_ARGUMENT, "SchedulePoly", "21", "20");
    IS_NAN(made(14), 16, WB_ERROR_ARGUMENT, "ScheduleOneCycle", "16", "15");
    IS_NAN(made(21), 15, WB_ERROR_ARGUMENT, "ScheduleShortened", "15", "14");
    IS_NAN(wb_schedule_from_function(wrong, NULL), 3, WB_ERROR_NUMBER, "inf", "3");
    IS_NAN(wb_ScheduleInv(0.1, -0.5, 0.5), 10, WB_ERROR_NUMBER, "ScheduleInv", "10", "nan");
    IS_NAN(wb_ScheduleExp(1, 1e300), 9, WB_ERROR_NUMBER, "ScheduleExp", "9");
    IS_NAN(wb_ScheduleComposed(wb_ScheduleSin(0, 1, 1), made(0), made(0), wb_ScheduleConstant(-1)),
           1, WB_ERROR_ARGUMENT, "ScheduleSin", "-1", "positive");
    wb_schedule *deep = made(0);
    for (int i = 0; deep && i < 70; i++) deep = wb_ScheduleShifted(deep, 1);
    assert_null(deep);
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    REFUSED(wb_setup(wb_AdaDelta(), model, .schedule = made(0)), WB_ERROR_ARGUMENT, "AdaDelta",
            "eta");
    REFUSED(wb_setup(wb_Rprop(), model, .schedule = made(0)), WB_ERROR_ARGUMENT, "Rprop", "eta");
    wb_opt_state *s = wb_setup(wb_Descent(), model);
    REFUSED(!wb_set_schedule(s, "1", made(0)), WB_ERROR_ARGUMENT, "set_schedule", "1");
    REFUSED(!wb_set_schedule(s, "", NULL), WB_ERROR_ARGUMENT, "set_schedule", "schedule", "NULL");
}

/* ---- updates --------------------------------------------------------------------------------- */

typedef struct { wb_opt_state *state; wb_tree *model; } trained;

static trained begin(wb_rule *rule, wb_schedule *schedule, wb_dtype mixed)
{
    trained m = {.model = wb_tuple(wb_variable(wb_zeros(2)))};
    m.state = wb_setup(rule, m.model, .mixed = mixed, .schedule = schedule);
    MADE(m.state);
    return m;
}

static int update(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trained *m = ctx;
    out[0] = wb_sum(in[0]);
    return wb_update(m->state, m->model, wb_tuple(in[0])) ? -1 : 1;
}

static void one_step(trained *m, wb_compiled *c)
{
    wb_scope *step = wb_scope_open();
    wb_tensor *out, *g = wb_ones(2);
    if (m->state->mixed == WB_F16) {
        MADE(wb_scale_loss(m->state, wb_astype(wb_ones(1), WB_F16)));
        g = wb_astype(wb_full(32768, 2), WB_F16);
    }
    if (c) WORKS(wb_call_compiled(c, 1, &g, 1, &out));
    else WORKS(wb_update(m->state, m->model, wb_tuple(g)));
    WORKS(wb_scope_close(step));
}

static double value_of(const trained *m) { return wb_at(wb_get(m->model, "0"), 1); }

/* Each update has the learning rate of its step; all have one plan, also in a compiled function. */
TEST_IN_SCOPE(updates)
{
    for (int way = 0; way < 4; way++) IN_SCOPE {
        wb_schedule *s = made(17);
        trained m = begin(wb_Descent(9), s, way == 3 ? WB_F16 : way == 2 ? WB_BF16 : 0);
        wb_compiled *c = way == 1 ? wb_compile(update, &m) : NULL;
        double want = 0;
        int64_t built = 0;
        for (int i = 1; i <= 12; i++) {
            one_step(&m, c);
            want -= wb_schedule_at(s, i) * (way == 3 ? 0.5 : 1);
            const double tolerance = way < 2 ? 1e-6 : 0x1p-7 * fabs(want);
            if (!(fabs(value_of(&m) - want) <= tolerance))
                fail_msg("way %d, step %d: %g, not %g", way, i, value_of(&m), want);
            if (i == 2) built = wb_stats().plans_built;
            double eta;
            WORKS(wb_rule_number(m.state, "", "eta", &eta));
            assert_true(eta == wb_schedule_at(s, i + 1));
        }
        assert_int_equal(wb_stats().plans_built, built);
    }
}

/* A recorded update follows a schedule that is given later, and ends with its error. */
TEST_IN_SCOPE(schedules_of_compiled_functions)
{
    trained m = begin(wb_Descent(2), NULL, 0);
    wb_compiled *c = wb_compile(update, &m);
    one_step(&m, c);
    WORKS(wb_set_schedule(m.state, "", wb_SchedulePoly(0.5, 1, 2)));
    one_step(&m, c);
    assert_true(value_of(&m) == -2.25);
    wb_tensor *g = wb_ones(2), *out;
    REFUSED(!wb_call_compiled(c, 1, &g, 1, &out), WB_ERROR_ARGUMENT, "SchedulePoly", "3", "2");
    REFUSED(!wb_update(m.state, m.model, wb_tuple(g)), WB_ERROR_ARGUMENT, "SchedulePoly", "3", "2");
    assert_true(value_of(&m) == -2.25);
    WORKS(wb_adjust(m.state, .eta = 0.5));
    one_step(&m, c);
    assert_true(value_of(&m) == -2.75);
}

/* With accumulation only the updates of parameters count, and a failed update does not. */
TEST_IN_SCOPE(what_counts)
{
    trained m = begin(wb_OptimizerChain(wb_AccumGrad(2), wb_Descent()), wb_ScheduleExp(1, 0.5), 0);
    for (int i = 0; i < 6; i++) one_step(&m, NULL);
    assert_true(value_of(&m) == -1.75);
    trained n = begin(wb_Descent(), wb_ScheduleExp(1, 0.5), 0);
    one_step(&n, NULL);
    wb_scope *step = wb_scope_open();
    wb_tensor *loss = wb_mul(wb_sum(wb_get(n.model, "0")), wb_scalar(INFINITY));
    const int failed = wb_update(n.state, n.model, wb_gradient(loss, n.model));     /* if eager */
    const int closed = wb_scope_close(step);
    assert_int_equal(failed ? failed : closed, WB_ERROR_NUMBER);
    one_step(&n, NULL);
    assert_true(value_of(&n) == -1.5);
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return (void)ctx, wb_mse(wb_call(m, b.x), b.y);
}

/* A training that goes on from a checkpoint has the bits of one that was not stopped. */
TEST_IN_SCOPE(training)
{
    const char *path = test_file("schedules.safetensors");
    float got[3][4];
    for (int way = 0; way < 3; way++) IN_SCOPE {
        wb_seed(3);
        wb_layer *m = wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 1));
        wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(12, 3), wb_randn(12, 1)), 4,
                                     .shuffle = true);
        wb_schedule *s = wb_ScheduleCosAnneal(0.5, 0.01, 12);
        wb_opt_state *state = wb_setup(wb_Momentum(), m);
        unlink(path);
        if (way == 1) {
            WORKS(wb_train(loss, m, l, state, .epochs = 2, .schedule = s, .checkpoint = path));
            m = wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 1));
            state = wb_setup(wb_Momentum(), m);
            wb_seed(3);
            MADE(wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 1)));
            l = wb_dataloader(wb_dataset_of(wb_randn(12, 3), wb_randn(12, 1)), 4,
                              .shuffle = true);
        }
        WORKS(wb_train(loss, m, l, state, .epochs = 4, .schedule = way == 2 ? NULL : s,
                       .checkpoint = path, .resume = way == 1));
        assert_int_equal(state->counts->updates, 12);
        for (int i = 0; i < 4; i++) got[way][i] = (float)wb_at(wb_get(m, "layers.1.weight"), 0, i);
    }
    unlink(path);
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_memory_not_equal(got[0], got[2], sizeof got[0]);
}
