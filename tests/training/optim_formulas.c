/* The rules beside descent, momentum and Adam: ten steps on given gradients against the formulas of
 * Optimisers.jl, computed here in double precision, and against PyTorch where it has the same
 * formula; in every dtype, in mixed precision, chained, adjusted, accumulated, compiled, saved. */
#include "optim/optim.h"

#include "reference.h"

#include <unistd.h>

enum { STEPS = 10, N = 4 };

/* Multiples of 1/16, which all dtypes have exactly. */
static const double start[N] = {0.5, -1.25, 2, -0.75};
static const double gradients[STEPS][N] = {
    {1.4375, -1.875, -2.625, -0.6875}, {-1.5, 1.0, 2.1875, 2.3125},
    {-0.0625, -1.6875, 0.75, 0.6875},  {-0.5625, 0.0, -0.0625, 0.875},
    {-0.6875, -1.1875, 0.8125, 0.75},  {-1.5625, 0.125, 1.6875, -0.625},
    {0.3125, 1.25, 0.0, 0.3125},       {0.0, 1.9375, 0.75, 1.9375},
    {0.0, 0.125, 1.625, -2.25},        {1.5, 2.375, -1.8125, -2.875},
};

/* ---- the formulas ---------------------------------------------------------------------------- */

enum { NESTEROV, RMSPROP, CENTRED, RADAM, ADAMAX, OADAM, ADAGRAD, ADADELTA, AMSGRAD, NADAM,
       ADABELIEF, LION, RPROP, SIGNDECAY, RULES };

typedef struct { double eta, rho, b1, b2, eps, ell[2], gamma[2], lambda; } numbers;

#define ADAM_LIKE(eta_, b1_, b2_, eps_) {.eta = eta_, .b1 = b1_, .b2 = b2_, .eps = eps_}
/* SignDecay is chained before Descent, with its eta of 0.1. */
static const struct {
    const char *text;
    wb_rule *(*make)(const wb_Rule_options *);
    numbers defaults, others;
} rules[RULES] = {
    [NESTEROV] = {"Nesterov(eta=0.001, rho=0.9)", wb_Nesterov_with,
                  {.eta = 0.001, .rho = 0.9}, {.eta = 0.05, .rho = 0.8}},
    [RMSPROP] = {"RMSProp(eta=0.001, rho=0.9, eps=1e-08)", wb_RMSProp_with,
                 {.eta = 0.001, .rho = 0.9, .eps = 1e-8}, {.eta = 0.05, .rho = 0.8, .eps = 1e-3}},
    [CENTRED] = {"CenteredRMSProp(eta=0.001, rho=0.9, eps=1e-08)", wb_RMSProp_with,
                 {.eta = 0.001, .rho = 0.9, .eps = 1e-8}, {.eta = 0.05, .rho = 0.8, .eps = 1e-3}},
    [RADAM] = {"RAdam(eta=0.001, beta=(0.9, 0.999), eps=1e-08)", wb_RAdam_with,
               ADAM_LIKE(0.001, 0.9, 0.999, 1e-8), ADAM_LIKE(0.05, 0.8, 0.9, 1e-3)},
    [ADAMAX] = {"AdaMax(eta=0.001, beta=(0.9, 0.999), eps=1e-08)", wb_AdaMax_with,
                ADAM_LIKE(0.001, 0.9, 0.999, 1e-8), ADAM_LIKE(0.05, 0.8, 0.9, 1e-3)},
    [OADAM] = {"OAdam(eta=0.001, beta=(0.5, 0.9), eps=1e-08)", wb_OAdam_with,
               ADAM_LIKE(0.001, 0.5, 0.9, 1e-8), ADAM_LIKE(0.05, 0.8, 0.99, 1e-3)},
    [ADAGRAD] = {"AdaGrad(eta=0.1, eps=1e-08)", wb_AdaGrad_with,
                 {.eta = 0.1, .eps = 1e-8}, {.eta = 0.05, .eps = 1e-3}},
    [ADADELTA] = {"AdaDelta(rho=0.9, eps=1e-08)", wb_AdaDelta_with,
                  {.rho = 0.9, .eps = 1e-8}, {.rho = 0.8, .eps = 1e-3}},
    [AMSGRAD] = {"AMSGrad(eta=0.001, beta=(0.9, 0.999), eps=1e-08)", wb_AMSGrad_with,
                 ADAM_LIKE(0.001, 0.9, 0.999, 1e-8), ADAM_LIKE(0.05, 0.8, 0.9, 0.5)},
    [NADAM] = {"NAdam(eta=0.001, beta=(0.9, 0.999), eps=1e-08)", wb_NAdam_with,
               ADAM_LIKE(0.001, 0.9, 0.999, 1e-8), ADAM_LIKE(0.05, 0.8, 0.9, 1e-3)},
    [ADABELIEF] = {"AdaBelief(eta=0.001, beta=(0.9, 0.999), eps=1e-16)", wb_AdaBelief_with,
                   ADAM_LIKE(0.001, 0.9, 0.999, 1e-16), ADAM_LIKE(0.05, 0.8, 0.9, 1e-3)},
    [LION] = {"Lion(eta=0.001, beta=(0.9, 0.999))", wb_Lion_with,
              {.eta = 0.001, .b1 = 0.9, .b2 = 0.999}, {.eta = 0.05, .b1 = 0.7, .b2 = 0.3}},
    [RPROP] = {"Rprop(eta=0.001, ell=(0.5, 1.2), gamma=(1e-06, 50))", wb_Rprop_with,
               {.eta = 0.001, .ell = {0.5, 1.2}, .gamma = {1e-6, 50}},
               {.eta = 0.05, .ell = {0.4, 1.3}, .gamma = {0.03, 0.08}}},
    [SIGNDECAY] = {"OptimizerChain(SignDecay(lambda=0.001), Descent(eta=0.1))", wb_SignDecay_with,
                   {.lambda = 1e-3}, {.lambda = 0.25}},
};

#define GIVEN(number) ((number) == 0 ? WB_DEFAULT : (number))
static wb_Rule_options options_of(int rule, const numbers *k)
{
    return WB_OPTIONS_OF(wb_Rule_options, GIVEN(k->eta), GIVEN(k->rho), .eps = GIVEN(k->eps),
                         .beta = {GIVEN(k->b1), GIVEN(k->b2)}, .lambda = GIVEN(k->lambda),
                         .ell = {GIVEN(k->ell[0]), GIVEN(k->ell[1])}, .centered = rule == CENTRED,
                         .gamma = {GIVEN(k->gamma[0]), GIVEN(k->gamma[1])});
}

/* k == NULL: without options, except .centered. */
static wb_rule *made(int rule, const numbers *k)
{
    wb_Rule_options o = options_of(rule, k ? k : &(numbers){0});
    wb_rule *r = rules[rule].make(k || rule == CENTRED ? &o : NULL);
    MADE(r);
    return rule == SIGNDECAY ? wb_OptimizerChain(r, wb_Descent()) : r;
}

static double sign(double x) { return (x > 0) - (x < 0); }

static void start_of(int rule, const numbers *k, double s[3])
{
    const bool eps = rule == ADAGRAD || rule == AMSGRAD;
    for (int i = 0; i < 3; i++) s[i] = eps ? k->eps : rule == RPROP && i == 1 ? k->eta : 0;
}

static double rectified(const numbers *k, int t, double adam, double plain)
{
    const double power = pow(k->b2, t), limit = 2 / (1 - k->b2) - 1;
    const double rho = limit - 2 * t * power / (1 - power);
    if (rho <= 4) return plain;
    return adam * sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
}

/* What step t of a rule with the averages m and v, which are s[0] and s[1], subtracts. */
static double adaptive_step(int rule, const numbers *k, int t, double g, double s[3])
{
    const double c1 = 1 - pow(k->b1, t), c2 = 1 - pow(k->b2, t), before = s[2];
    s[0] = k->b1 * s[0] + (1 - k->b1) * g;
    if (rule == ADAMAX) {
        s[1] = fmax(k->b2 * s[1], fabs(g));
        return k->eta / c1 * s[0] / (s[1] + k->eps);
    }
    if (rule == ADABELIEF) s[1] = k->b2 * s[1] + (1 - k->b2) * pow(g - s[0], 2) + k->eps;
    else s[1] = k->b2 * s[1] + (1 - k->b2) * g * g;
    const double adam = k->eta * (s[0] / c1) / (sqrt(s[1] / c2) + k->eps);
    switch (rule) {
    case RADAM: return rectified(k, t, adam, k->eta * s[0] / c1);
    case OADAM: return 2 * (s[2] = adam) - before;
    case AMSGRAD: return k->eta * s[0] / (sqrt(s[2] = fmax(before, s[1])) + k->eps);
    case NADAM:
        return k->eta * (k->b1 * s[0] / (1 - k->b1 * pow(k->b1, t)) + (1 - k->b1) * g / c1) /
               (sqrt(s[1] * k->b2 / c2) + k->eps);
    default: return adam;
    }
}

static double step_of(int rule, const numbers *k, int t, double x, double g, double s[3])
{
    const double was = s[0], product = s[0] * g;
    double step;
    switch (rule) {
    case NESTEROV:
        s[0] = k->rho * was - k->eta * g;
        return -k->rho * k->rho * was + (1 + k->rho) * k->eta * g;
    case RMSPROP:
    case CENTRED:
        s[0] = k->rho * was + (1 - k->rho) * g * g;
        s[1] = rule == CENTRED ? k->rho * s[1] + (1 - k->rho) * g : 0;
        return k->eta * g / (sqrt(s[0] - s[1] * s[1]) + k->eps);
    case ADAGRAD:
        s[0] += g * g;
        return k->eta * g / (sqrt(s[0]) + k->eps);
    case ADADELTA:
        s[0] = k->rho * was + (1 - k->rho) * g * g;
        step = g * sqrt(s[1] + k->eps) / sqrt(s[0] + k->eps);
        s[1] = k->rho * s[1] + (1 - k->rho) * step * step;
        return step;
    case LION:                                          /* as Optimisers.jl writes it */
        s[0] = k->b2 * g + (1 - k->b2) * was;
        return k->eta * sign((k->b2 - k->b1) * g + k->b1 * s[0]);
    case RPROP:
        if (product > 0) s[1] = fmin(s[1] * k->ell[1], k->gamma[1]);
        if (product < 0) s[1] = fmax(s[1] * k->ell[0], k->gamma[0]);
        s[0] = product < 0 ? 0 : g;
        return s[1] * sign(s[0]);
    case SIGNDECAY: return 0.1 * (g + k->lambda * sign(x));
    default: return adaptive_step(rule, k, t, g, s);
    }
}

/* ---- training in several ways ---------------------------------------------------------------- */

typedef struct {
    wb_dtype dtype, mixed;
    double clip;                        /* ClipGrad before the rule; 0: none */
    bool adjust, compiled;
    int accumulate;                     /* each gradient is given so many times */
    double tolerance;
    double relative;                    /* not 0: also at most this part of the longest way so far
                                           from the start */
} way;

typedef struct { wb_opt_state *state; wb_tree *model; } trained;

static int update(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    trained *m = ctx;
    out[0] = wb_sum(in[0]);
    return wb_update(m->state, m->model, wb_tuple(in[0])) ? -1 : 1;
}

/* With f16 the gradients are this part of the rows, and the parameters start at this part. */
static double unit_of(const way *w) { return w->mixed == WB_F16 ? 0x1p-10 : 1; }

/* Returns a gradient of the scaled loss, if the state has a scale. Its true value is `unit` times
 * row i, since 65536 times the row overflows f16. */
static wb_tensor *gradient(int i, const way *w, double unit)
{
    double row[N];
    for (int j = 0; j < N; j++)
        row[j] = gradients[i][j] * (w->mixed == WB_F16 ? unit * 65536 : 1);
    float narrow[N];
    for (int j = 0; j < N; j++) narrow[j] = (float)row[j];
    return wb_astype(wb_from(narrow, WB_F32, 1, (int64_t[]){N}), w->mixed ? w->mixed : w->dtype);
}

static void adjust(int rule, wb_opt_state *s, numbers *k)
{
    if (rule == ADADELTA) WORKS(wb_adjust(s, .rho = k->rho = 0.7));
    else if (rule == SIGNDECAY) WORKS(wb_adjust(s, .lambda = k->lambda = 0.125));
    else if (rule == RPROP) {
        WORKS(wb_adjust(s, .ell = {0.5}, .gamma = {0.01, 0.07}));
        k->ell[0] = 0.5;
        k->gamma[0] = 0.01;
        k->gamma[1] = 0.07;
    } else WORKS(wb_adjust(s, .eta = k->eta = k->eta / 2));
}

static wb_tensor *value_of(const trained *m, const way *w)
{
    wb_tensor *x = w->mixed ? m->state->slots[0].moments[m->state->n_moments - 1]
                            : wb_get(m->model, "0");
    return w->mixed || w->dtype == WB_F64 ? x : wb_astype(x, WB_F32);
}

static trained begin(int rule, const numbers *k, const way *w)
{
    wb_rule *r = made(rule, k);
    if (w->clip != 0) r = wb_OptimizerChain(wb_ClipGrad(.delta = w->clip), r);
    if (w->accumulate) r = wb_DistributedOptimizer(r, .accumulate = w->accumulate);
    float x[N];
    for (int j = 0; j < N; j++) x[j] = (float)(start[j] * unit_of(w));
    wb_tensor *v = wb_variable(wb_astype(wb_from(x, WB_F32, 1, (int64_t[]){N}), w->dtype));
    trained m = {.model = wb_tuple(v)};
    m.state = wb_setup(r, m.model, .mixed = w->mixed);
    MADE(m.state);
    return m;
}

static void one_step(trained *m, wb_compiled *c, int i, const way *w, double unit)
{
    wb_scope *step = wb_scope_open();
    wb_tensor *out, *g;
    for (int b = 0; b < (w->accumulate ? w->accumulate : 1); b++) {
        if (w->mixed) MADE(wb_scale_loss(m->state, wb_astype(wb_ones(1), w->mixed)));
        g = gradient(i, w, unit);
        if (c) WORKS(wb_call_compiled(c, 1, &g, 1, &out));
        else WORKS(wb_update(m->state, m->model, wb_tuple(g)));
    }
    WORKS(wb_scope_close(step));
}

/* Where fewer cases are asked for, every fifth is run: all rules, in one way or another. */
static void check_rule(int rule, const numbers *given, way w)
{
    static int turn;
    if (fewer() > 1 && turn++ % 5) return;
    wb_scope *scope = wb_scope_open();
    numbers k = given ? *given : rules[rule].defaults;
    const double unit = unit_of(&w);
    double x[N], s[N][3], moved[N] = {0};
    for (int j = 0; j < N; j++) {
        x[j] = start[j] * unit;
        start_of(rule, &k, s[j]);
    }
    trained m = begin(rule, given, &w);
    wb_compiled *c = NULL;
    if (w.compiled) MADE(c = wb_compile(update, &m));
    for (int i = 0; i < STEPS; i++) IN_SCOPE {
        if (w.adjust && i == 5) adjust(rule, m.state, &k);
        one_step(&m, c, i, &w, unit);
        for (int j = 0; j < N; j++) {
            double g = gradients[i][j] * unit;
            if (w.clip != 0) g = fmin(fmax(g, -w.clip), w.clip);
            x[j] -= step_of(rule, &k, i + 1, x[j], g, s[j]);
            moved[j] = fmax(moved[j], fabs(x[j] - start[j] * unit));
            const double got = wb_at(value_of(&m, &w), j);
            const double limit = w.relative * moved[j];
            if (!(fabs(got - x[j]) <= (w.relative ? fmin(limit, w.tolerance) : w.tolerance)))
                fail_msg("%s, %s, mixed %s, step %d, element %d: %.9g, not %.9g", rules[rule].text,
                         wb_dtype_name(w.dtype), wb_dtype_name(w.mixed), i, j, got, x[j]);
        }
    }
    wb_scope_close(scope);
}

/* The step number and all that depends on it are arguments of one plan. RAdam has a second one,
 * since a number that is 0 or 1 is part of the plan. As the first test, this finds no plan of
 * another. */
TEST(one_plan_for_all_steps)
{
    for (int r = 0; r < RULES; r++) IN_SCOPE {
        const way w = {.dtype = WB_F32};
        trained m = begin(r, &rules[r].others, &w);
        one_step(&m, NULL, 0, &w, 1);
        const int64_t built = wb_stats().plans_built + (r == RADAM);
        for (int i = 1; i < STEPS; i++) one_step(&m, NULL, i, &w, 1);
        if (wb_stats().plans_built != built)
            fail_msg("%s: %lld further plans", rules[r].text,
                     (long long)(wb_stats().plans_built - built));
    }
}

TEST(formulas)
{
    for (int r = 0; r < RULES; r++) {
        check_rule(r, NULL, (way){.dtype = WB_F32, .tolerance = 2e-6});
        check_rule(r, &rules[r].others, (way){.dtype = WB_F32, .tolerance = 2e-6});
        check_rule(r, &rules[r].others, (way){.dtype = WB_F32, .clip = 1, .adjust = true,
                                              .tolerance = 2e-6});
    }
}

TEST(double_precision)
{
    if (widest_float() != WB_F64) return;
    for (int r = 0; r < RULES; r++) {
        check_rule(r, NULL, (way){.dtype = WB_F64, .tolerance = 1e-13});
        check_rule(r, &rules[r].others, (way){.dtype = WB_F64, .adjust = true, .tolerance = 1e-13});
    }
}

/* Parameters are rounded to the dtype after each step, by at most half of 2^-10 or 2^-7 of 2. */
TEST(halves)
{
    for (int r = 0; r < RULES; r++) {
        check_rule(r, &rules[r].others, (way){.dtype = WB_F16, .tolerance = STEPS * 0x1p-10});
        check_rule(r, &rules[r].others, (way){.dtype = WB_BF16, .tolerance = STEPS * 0x1p-7});
    }
}

/* With f16 the device counts the steps.  The movements are small: their relative error counts. */
TEST(masters)
{
    for (int r = 0; r < RULES; r++) {
        check_rule(r, NULL, (way){.dtype = WB_F32, .mixed = WB_BF16, .tolerance = 2e-6});
        check_rule(r, NULL, (way){.dtype = WB_F32, .mixed = WB_F16, .tolerance = 2e-6,
                                 .relative = 1e-4});
        check_rule(r, &rules[r].others, (way){.dtype = WB_F32, .mixed = WB_F16, .adjust = true,
                                              .tolerance = 2e-6, .relative = 1e-4});
    }
}

TEST(accumulated_and_compiled)
{
    for (int r = 0; r < RULES; r++) {
        check_rule(r, &rules[r].others, (way){.dtype = WB_F32, .accumulate = 2, .tolerance = 2e-6});
        check_rule(r, &rules[r].others,
              (way){.dtype = WB_F32, .compiled = true, .adjust = true, .tolerance = 2e-6});
        check_rule(r, NULL, (way){.dtype = WB_F32, .mixed = WB_F16, .compiled = true,
                                  .tolerance = 2e-6, .relative = 1e-4});
    }
}

/* ---- numbers of PyTorch ---------------------------------------------------------------------- */

/* The parameters after ten steps of PyTorch 2.15 in f64:
 * SGD(lr=0.05, momentum=0.8, nesterov=True), RMSprop(lr=0.05, alpha=0.8, eps=1e-3), the same with
 * centered=True, Rprop(lr=0.05, etas=(0.4, 1.3), step_sizes=(0.03, 0.08)),
 * Adamax(lr=0.05, betas=(0.8, 0.9), eps=0),
 * Adagrad(lr=0.05, initial_accumulator_value=1e-3, eps=1e-3), Adadelta(lr=1, rho=0.8, eps=1e-3). */
TEST(pytorch)
{
    static const struct { int rule; double want[N]; } rows[] = {
        {NESTEROV, {0.87331984704, -1.1929370768, 1.34475859424, -1.27793281888}},
        {RMSPROP, {0.542458287029018, -1.29505622808837, 1.87079925700029, -0.776870382632948}},
        {CENTRED, {0.547678683943513, -1.28337995662509, 1.8541901947823, -0.805208056920286}},
        {RPROP, {0.60561, -1.32561, 1.8613, -0.8587}},
        {ADAMAX, {0.552147915834309, -1.134345274989, 1.93049850740911, -0.830161515330811}},
        {ADAGRAD, {0.514822281903359, -1.2481124841378, 1.96686753937349, -0.758356028029238}},
        {ADADELTA, {0.574925855705486, -1.36442632725577, 1.85045623403346, -0.766720703504734}},
    };
    for (size_t r = 0; r < WB__COUNT(rows); r++) IN_SCOPE {
        const way w = {.dtype = widest_float()};
        numbers k = rules[rows[r].rule].others;
        if (rows[r].rule == ADAMAX) k.eps = 0x1p-1000;          /* as good as 0 */
        trained m = begin(rows[r].rule, &k, &w);
        for (int i = 0; i < STEPS; i++) one_step(&m, NULL, i, &w, 1);
        for (int j = 0; j < N; j++) {
            const double got = wb_at(wb_get(m.model, "0"), j);
            if (!(fabs(got - rows[r].want[j]) < (w.dtype == WB_F64 ? 1e-13 : 1e-6)))
                fail_msg("%s, element %d: %.15g, not %.15g", rules[rows[r].rule].text, j, got,
                         rows[r].want[j]);
        }
    }
}

/* ---- single rules ---------------------------------------------------------------------------- */

/* The paper's Lion: x <- x - eta sign(c1 m + (1 - c1) g);  m <- c2 m + (1 - c2) g. */
TEST_IN_SCOPE(lion_of_the_paper)
{
    const double c1 = 0.9, c2 = 0.8;
    const way w = {.dtype = WB_F32};
    trained m = begin(LION, &(numbers){.eta = 0.125, .b1 = c1 * (1 - c2) / c2, .b2 = 1 - c2}, &w);
    double x[N], mean[N] = {0};
    memcpy(x, start, sizeof x);
    for (int i = 0; i < STEPS; i++) {
        one_step(&m, NULL, i, &w, 1);
        for (int j = 0; j < N; j++) {
            const double g = gradients[i][j];
            x[j] -= 0.125 * sign(c1 * mean[j] + (1 - c1) * g);
            mean[j] = c2 * mean[j] + (1 - c2) * g;
            assert_true(wb_at(wb_get(m.model, "0"), j) == x[j]);
        }
    }
}

/* The corrections of step t, which the device computes from its count in f32, are accurate from the
 * first step to the millionth. The moments are 0 before the step, so that m = (1 - b1) g and
 * v = (1 - b2) g^2. */
TEST(late_steps_in_f16)
{
    static const int counted[] = {RADAM, ADAMAX, OADAM, NADAM, ADABELIEF};
    static const int steps[] = {1, 4, 5, 6, 40, 599, 602, 2500, 40000, 1000000};
    for (size_t r = 0; r < WB__COUNT(counted); r++)
        for (size_t i = 0; i < WB__COUNT(steps); i++) {
            const way w = {.dtype = WB_F32, .mixed = WB_F16};
            const double unit = unit_of(&w);
            numbers one = rules[counted[r]].defaults;
            one.eta = 1;
            wb_scope *scope = wb_scope_open();
            trained m = begin(counted[r], &one, &w);
            wb_tensor *made = m.state->scaling[WB__STEPS_MADE];
            WORKS(wb_assign(made, wb_full_array(steps[i] - 1, WB_F32, 1, (int64_t[]){1})));
            one_step(&m, NULL, 0, &w, unit);
            for (int j = 0; j < N; j++) {
                const double g = gradients[0][j] * unit;
                const double got = start[j] * unit - wb_at(value_of(&m, &w), j);
                const double want = step_of(counted[r], &one, steps[i], 0, g, (double[3]){0});
                if (!(fabs(got - want) < 1e-5 * fabs(want)))
                    fail_msg("%s, step %d: %.9g, not %.9g", rules[counted[r]].text, steps[i], got,
                             want);
            }
            wb_scope_close(scope);
        }
}

/* With equal gradients the variance is 0 but for rounding, and never NaN. */
TEST(variance_without_variance)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(64)));
    wb_opt_state *s = wb_setup(wb_RMSProp(.eta = 0, .centered = true), model);
    wb_tensor *g = wb_add(wb_mul(wb_reshape(wb_arange(64, WB_F32), 64), 0.37), 0.1);
    wb_keep(g);
    for (int i = 0; i < 300; i++) IN_SCOPE {
        WORKS(wb_update(s, model, wb_tuple(g)));
    }
    assert_true(wb_item(wb_sum(wb_get(model, "0"))) == 64);
}

/* Moments are counted over all rules of a chain. */
TEST(starts_of_moments)
{
    static const double want[] = {0, 0.5, 0.5, 0.5, 0, 0.25};
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_rule *rule = wb_OptimizerChain(wb_Momentum(), wb_SignDecay(), wb_AMSGrad(.eps = 0.5),
                                      wb_Rprop(0.25));
    wb_opt_state *s = wb_setup(rule, model);
    assert_int_equal(s->n_moments, WB__COUNT(want));
    for (int k = 0; k < s->n_moments; k++)
        assert_true(wb_at(s->slots[0].moments[k], 1) == want[k]);
}

TEST(texts)
{
    for (int r = 0; r < RULES; r++) {
        assert_shows(made(r, NULL), rules[r].text);
    }
}

/* A training that goes on from a checkpoint has the bits of one that was not stopped. */
TEST(checkpoints)
{
    const char *path = test_file("formulas.safetensors");
    for (int r = 0; r < RULES; r++) IN_SCOPE {
        const way w = {.dtype = WB_F32};
        trained a = begin(r, &rules[r].others, &w), b = begin(r, NULL, &w);
        for (int i = 0; i < STEPS; i++) {
            one_step(&a, NULL, i, &w, 1);
            if (i >= 5) one_step(&b, NULL, i, &w, 1);
            if (i != 4) continue;
            WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.state = a.state}));
            WORKS(wb_load_checkpoint(path, &(wb_checkpoint){.state = b.state}));
            WORKS(wb_assign(wb_get(b.model, "0"), wb_get(a.model, "0")));
        }
        for (int j = 0; j < N; j++)
            assert_true(wb_at(wb_get(a.model, "0"), j) == wb_at(wb_get(b.model, "0"), j));
    }
    const way w = {.dtype = WB_F32};
    trained plain = begin(RMSPROP, NULL, &w), centred = begin(CENTRED, NULL, &w);
    WORKS(wb_save_checkpoint(path, &(wb_checkpoint){.state = centred.state}));
    FAILS(wb_load_checkpoint(path, &(wb_checkpoint){.state = plain.state}), WB_ERROR_FORMAT,
          "CenteredRMSProp");
    unlink(path);
}

TEST(refusals)
{
    REFUSED(wb_AdaDelta(.eta = 0.1), WB_ERROR_ARGUMENT, "AdaDelta", "eta", "0.1");
    REFUSED(wb_Adam(.centered = true), WB_ERROR_ARGUMENT, "Adam", "centered");
    REFUSED(wb_RMSProp(.centered = true, .lambda = 1), WB_ERROR_ARGUMENT,
            "CenteredRMSProp", "lambda", "1");
    REFUSED(wb_Nesterov(.eta = -1), WB_ERROR_ARGUMENT, "Nesterov", "eta", "-1");
    REFUSED(wb_RMSProp(.rho = 1.5), WB_ERROR_ARGUMENT, "RMSProp", "rho", "1.5", "1");
    REFUSED(wb_AdaBelief(.eps = -1), WB_ERROR_ARGUMENT, "AdaBelief", "eps", "-1");
    REFUSED(wb_Rprop(.ell = {-1, 2}), WB_ERROR_ARGUMENT, "Rprop", "ell[0]", "-1");
    REFUSED(wb_Rprop(.ell = {1.2, 1.3}), WB_ERROR_ARGUMENT, "Rprop", "ell[0]", "1.2", "exceed 1");
    REFUSED(wb_Rprop(.ell = {0.5, 0.9}), WB_ERROR_ARGUMENT, "Rprop", "ell[1]", "0.9", "1 or more");
    REFUSED(wb_Rprop(.gamma = {100}), WB_ERROR_ARGUMENT, "Rprop", "gamma[0]", "100", "gamma[1]");
    REFUSED(wb_Lion(.ell = {0.5}), WB_ERROR_ARGUMENT, "Lion", "ell[0]", "0.5");
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *s = wb_setup(wb_OptimizerChain(wb_SignDecay(), wb_Rprop()), model);
    REFUSED(!wb_adjust(s, .eta = 0.1), WB_ERROR_ARGUMENT, "adjust", "eta", "Rprop", "gamma");
    REFUSED(!wb_adjust(s, .gamma = {0.1, 0.01}), WB_ERROR_ARGUMENT, "Rprop", "gamma[0]", "0.1");
    REFUSED(!wb_adjust(s, .gamma = {60}), WB_ERROR_ARGUMENT, "Rprop", "gamma[0]", "60");
    assert_int_equal(wb_adjust(s, .lambda = 2, .gamma = {0.1, 60}), 0);
    s = wb_setup(wb_RMSProp(), model);
    REFUSED(!wb_adjust(s, .centered = true), WB_ERROR_ARGUMENT, "adjust", "centered", "wb_setup");
}
