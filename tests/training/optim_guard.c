/* Steps whose loss is not finite: the parameters, the state and its counts are those before the
 * step, whatever the program does next.  On a GPU the host reads the loss late (engine/guard.c), so
 * the error comes with the next step, or when the program waits for the device. */
#include "test.h"

#include "optim/optim.h"

/* Of two parameters the values, second moments and sums of accumulated gradients; the sum of
 * losses. */
enum { WIDTH = 4, VALUES = 6 * WIDTH + 1 };

typedef struct {
    wb_tree *model;
    wb_opt_state *state;
    int accumulate;             /* batches of an update */
    wb_compiled *step;          /* NULL: steps are not compiled */
} training;

/* The bad step of bad_step, the sixth one: it is an update; it applies the sums of 2 batches; it
 * adds to them; it is the first to add after an update. */
static const int accumulates[] = {1, 2, 4, 5};

static wb_tensor *input(double value)
{
    float x[WIDTH] = {0.5f, -1, 2, (float)value};
    return wb_from(x, WB_F32, 1, (int64_t[]){WIDTH});
}

static wb_tensor *take(const training *t, wb_tensor *x)
{
    wb_tensor *loss = wb_mean(wb_square(wb_add(wb_mul(wb_get(t->model, "0"), x),
                                               wb_get(t->model, "1"))));
    if (!loss || wb_update(t->state, t->model, wb_gradient(loss, t->model))) return NULL;
    return loss;
}

static int recorded(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = take(ctx, in[0]);
    return out[0] ? 1 : -1;
}

/* Makes a step on an input, whose last value is given; returns its status. */
static int step(const training *t, double value)
{
    wb_tensor *x = input(value), *loss = NULL;
    wb_clear_error();
    if (t->step) return wb_call_compiled(t->step, 1, &x, 1, &loss);
    loss = take(t, x);
    return loss ? wb_eval(loss) : (int)wb_error_code();
}

static void begin(bool compiled, int accumulate, training *t)
{
    wb_seed(3);
    wb_rule *rule = wb_Adam(.eta = 0.01);
    if (accumulate > 1) rule = wb_OptimizerChain(wb_AccumGrad(accumulate), rule);
    t->model = wb_tuple(wb_variable(wb_randn(WIDTH)), wb_variable(wb_zeros(WIDTH)));
    t->state = wb_setup(rule, t->model, .schedule = wb_ScheduleCosAnneal(0.1, 0.01, 20));
    t->accumulate = accumulate;
    t->step = NULL;
    if (compiled) t->step = wb_compile(recorded, t);
}

static void values_of(const training *t, float *out)
{
    memset(out, 0, VALUES * sizeof *out);
    for (int i = 0; i < 2; i++) {
        const wb__slot *slot = &t->state->slots[i];
        wb_tensor *all[] = {wb_get(t->model, i ? "1" : "0"), slot->moments[1], slot->sum};
        for (int k = 0; k < (t->accumulate > 1 ? 3 : 2); k++)
            assert_int_equal(wb_copy_out(all[k], out + (2 * k + i) * WIDTH,
                                         WIDTH * sizeof *out), 0);
    }
    if (t->accumulate > 1)
        assert_int_equal(wb_copy_out(t->state->loss_sum, out + VALUES - 1, sizeof *out), 0);
}

/* The counts are those after n batches. */
static void assert_counts(const training *t, int64_t n)
{
    const int64_t steps = n / t->accumulate;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t->state->counts->slot[i].steps, steps);
        assert_int_equal(t->state->counts->slot[i].summed, n % t->accumulate > 0);
    }
    assert_int_equal(t->state->counts->updates, steps);
    assert_int_equal(t->state->counts->accumulated, n % t->accumulate);
}

/* ---- what the program does after the step ---------------------------------------------------- */

static const training *now;

static int next_step(void) { return step(now, 1); }
static int next_steps(void)
{
    const int status = step(now, NAN);          /* the second one is bad too */
    return status ? status : step(now, 1);
}
static int other_shape(void)            /* another plan */
{
    wb_tensor *loss = wb_mean(wb_square(wb_get(now->model, "0")));
    int status = wb_update(now->state, now->model, wb_gradient(loss, now->model));
    return status ? status : wb_eval(loss);
}
static int synchronise(void) { return wb_synchronize(wb_default_device()); }
static int read_values(void)
{
    return wb_data(wb_get(now->model, "0")) ? 0 : (int)wb_error_code();
}
static int move(void)
{
    float x[WIDTH];
    wb_tensor *y = wb_cpu(wb_get(now->model, "0"));
    return y ? wb_copy_out(y, x, sizeof x) : (int)wb_error_code();
}
static int write_another(void)
{
    wb_tensor *v = wb_variable(wb_ones(3));
    int status = wb_assign(v, wb_mul(v, 2));
    return status ? status : wb_eval(v);
}
static int write_parameter(void)        /* decay, without a guard */
{
    wb_tensor *w = wb_get(now->model, "0");
    int status = wb_assign(w, wb_mul(w, 0.5));
    return status ? status : wb_eval(w);
}
static int save(void)
{
    return wb_save_checkpoint(test_file("guard"),
                              &(wb_checkpoint){.model = (wb_layer *)now->model,
                                               .state = now->state});
}

static const struct { const char *name; int (*act)(void); } nexts[] = {
    {"next step", next_step}, {"next steps", next_steps}, {"another plan", other_shape},
    {"wb_synchronize", synchronise}, {"wb_data", read_values}, {"wb_cpu", move},
    {"another write", write_another}, {"a write of a parameter", write_parameter},
    {"wb_save_checkpoint", save}};

/* ---- tests ----------------------------------------------------------------------------------- */

/* The error comes at once or with the next thing that the program does; nothing has changed; later
 * steps are those of a training without the bad step. */
static void bad_step(bool compiled, int accumulate, int which, double bad)
{
    enum { GOOD = 4 };
    wb_scope *scope = wb_scope_open();
    float before[VALUES], after[VALUES], expected[VALUES];
    training t, reference;
    begin(compiled, accumulate, &t);
    begin(compiled, accumulate, &reference);
    for (int i = 0; i < GOOD; i++) {
        assert_int_equal(step(&t, 1 + i), 0);
        assert_int_equal(step(&reference, 1 + i), 0);
    }
    values_of(&t, before);
    assert_counts(&t, GOOD);
    now = &t;
    assert_int_equal(step(&t, 7), 0);           /* its guard is read by the bad step */
    assert_int_equal(step(&reference, 7), 0);
    values_of(&reference, before);
    int status = step(&t, bad);
    if (!status) status = nexts[which].act();
    if (status != WB_ERROR_NUMBER) fail_msg("%s: %d %s", nexts[which].name, status, wb_error());
    FAILED(WB_ERROR_NUMBER, "loss", isnan(bad) ? "NaN" : "Inf", "unguarded");
    wb_clear_error();
    values_of(&t, after);
    assert_memory_equal(after, before, sizeof after);
    assert_counts(&t, GOOD + 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(step(&t, 2 + i), 0);
        assert_int_equal(step(&reference, 2 + i), 0);
    }
    values_of(&t, after);
    values_of(&reference, expected);
    assert_memory_equal(after, expected, sizeof after);
    assert_counts(&t, GOOD + 4);
    assert_int_equal(wb_scope_close(scope), 0);
}

TEST(steps_that_are_not_finite)
{
    for (int which = 0; which < (int)WB__COUNT(nexts); which++)
        for (int compiled = 0; compiled < 2; compiled++)
            for (size_t i = 0; i < WB__COUNT(accumulates); i++)
                bad_step(compiled, accumulates[i], which, which % 2 ? INFINITY : NAN);
}

/* A step is recorded behind a bad one, and a value is read before it is evaluated: it is not made
 * either, as if the error had come at once. */
TEST(a_step_recorded_behind)
{
    for (size_t i = 0; i < WB__COUNT(accumulates); i++) IN_SCOPE {
        float before[VALUES], after[VALUES], expected[VALUES];
        training t, reference;
        wb_tensor *other = wb_mul(wb_ones(3), 2);
        assert_int_equal(wb_eval(other), 0);
        begin(false, accumulates[i], &t);
        begin(false, accumulates[i], &reference);
        for (int k = 0; k < 5; k++)
            assert_int_equal(step(&t, k) + step(&reference, k), 0);
        values_of(&t, before);
        int status = step(&t, NAN);
        if (!status) {
            assert_non_null(take(&t, input(1)));
            if (!wb_data(other)) status = (int)wb_error_code();
        }
        assert_int_equal(status, WB_ERROR_NUMBER);
        wb_clear_error();
        values_of(&t, after);
        assert_memory_equal(after, before, sizeof after);
        assert_counts(&t, 5);
        for (int k = 0; k < 4; k++)
            assert_int_equal(step(&t, k) + step(&reference, k), 0);
        values_of(&t, after);
        values_of(&reference, expected);
        assert_memory_equal(after, expected, sizeof after);
        assert_counts(&t, 9);
    }
}

/* The first step of all is bad; then a good one, and a bad one again. */
TEST(first_step)
{
    for (int kind = 0; kind < 4; kind++) IN_SCOPE {
        float before[VALUES], after[VALUES];
        training t;
        begin(kind % 2, 1 + kind / 2, &t);
        values_of(&t, before);
        for (int i = 0; i < 3; i++) {
            int status = step(&t, i == 1 ? 1 : NAN);
            if (!status) status = wb_synchronize(wb_default_device());
            assert_int_equal(status, i == 1 ? 0 : WB_ERROR_NUMBER);
            wb_clear_error();
            values_of(&t, after);
            assert_int_equal(memcmp(before, after, sizeof after) != 0, i == 1);
            if (i == 1) memcpy(before, after, sizeof after);
            assert_counts(&t, i >= 1);
        }
    }
}

/* A loss that is not finite can be read after the error. */
TEST_IN_SCOPE(the_loss_is_read)
{
    training t;
    begin(false, 1, &t);
    wb_tensor *loss = take(&t, input(INFINITY));
    assert_non_null(loss);
    wb_clear_error();
    assert_true(isnan(wb_item(loss)) && wb_error_code() == WB_ERROR_NUMBER);
    wb_clear_error();
    assert_true(!isfinite(wb_item(loss)) && !wb_error_code());
}

/* Two optimisers, whose steps alternate: a bad step of one of them stops the next one of the
 * other, which can be made again. */
TEST(two_models)
{
    for (int kind = 0; kind < 4; kind++) IN_SCOPE {
        float before[2][VALUES], after[VALUES];
        training t[2];
        for (int i = 0; i < 2; i++) begin(kind % 2, 1 + kind / 2, &t[i]);
        for (int i = 0; i < 6; i++) assert_int_equal(step(&t[i % 2], i), 0);
        for (int i = 0; i < 2; i++) values_of(&t[i], before[i]);
        int status = step(&t[0], NAN);
        if (status) wb_clear_error();
        const int later = status ? 0 : step(&t[1], 1);
        assert_true((status == WB_ERROR_NUMBER && !later) || later == WB_ERROR_NUMBER);
        wb_clear_error();
        for (int i = 0; i < 2; i++) {
            values_of(&t[i], after);
            assert_memory_equal(after, before[i], sizeof after);
            assert_counts(&t[i], 3);
            assert_int_equal(step(&t[i], 1), 0);
            assert_counts(&t[i], 4);
        }
    }
}

/* What is accumulated is dropped also if the guard of the last step, here of another model, turns
 * out not to be finite. */
TEST_IN_SCOPE(sums_are_dropped)
{
    training kept, bad;
    begin(false, 4, &kept);
    begin(false, 1, &bad);
    assert_int_equal(step(&kept, 1), 0);
    assert_int_equal(kept.state->counts->accumulated, 1);
    int status = step(&bad, NAN);
    wb_clear_error();
    const int late = wb__sums_drop(kept.state);
    assert_true(status == WB_ERROR_NUMBER ? !late : late == WB_ERROR_NUMBER);
    wb_clear_error();
    assert_counts(&kept, 0);
    assert_counts(&bad, 0);
}

/* ---- every rule, and updates behind updates -------------------------------------------------- */

static wb_rule *rule_at(int i)
{
    int k = 0;
#define MAKE(Name, number) if (k++ == i) return wb_##Name(0.25);
    WB_RULES_(MAKE)
#undef MAKE
    return NULL;
}

/* Evaluates n updates at once; that of batch `bad` is not finite (n: none is). */
static int updates(const training *t, int n, int bad)
{
    wb_tensor *loss = NULL;
    for (int i = 0; i < n; i++)
        if (!(loss = take(t, input(i == bad ? NAN : 1 + i)))) return (int)wb_error_code();
    const int status = wb_eval(loss);
    return status ? status : wb__guard_confirm();
}

/* Behind a step that is sure, or whose guard is read late, are `depth` updates that are evaluated
 * together, of which one may be bad: all of them are made, or none is. */
static void updates_behind(int rule, int accumulate, bool late, int depth, int bad)
{
    wb_scope *scope = wb_scope_open();
    training t[2];
    float values[2][WIDTH];
    for (int i = 0; i < 2; i++) {
        wb_rule *r = rule_at(rule);
        if (accumulate > 1) r = wb_OptimizerChain(wb_AccumGrad(accumulate), r);
        wb_seed(3);
        t[i] = (training){.accumulate = accumulate};
        t[i].model = wb_tuple(wb_variable(wb_randn(WIDTH)), wb_variable(wb_zeros(WIDTH)));
        t[i].state = wb_setup(r, t[i].model);
        if (!t[i].state) fail_msg("rule %d: %s", rule, wb_error());
        assert_int_equal(step(&t[i], 1), 0);
    }
    if (!late) assert_int_equal(wb__guard_confirm(), 0);
    const int status = updates(&t[0], depth, bad);
    const bool made = bad == depth;
    if (status != (made ? 0 : WB_ERROR_NUMBER)) fail_msg("rule %d: %s", rule, wb_error());
    wb_clear_error();
    assert_counts(&t[0], 1 + made * depth);
    if (made) assert_int_equal(updates(&t[1], depth, depth), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(step(&t[i], 2) + wb__guard_confirm(), 0);
        assert_int_equal(wb_copy_out(wb_get(t[i].model, "0"), values[i], sizeof values[i]), 0);
    }
    assert_counts(&t[0], 2 + made * depth);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_int_equal(wb_scope_close(scope), 0);
}

TEST(each_rule_at_each_depth)
{
    /* GPU backends compile many kernels for each case: one in 7, in which all rules are. */
    const int every = wb_default_device()->backend->host_visible ? 1 : 7;
    int n = 0, cases = 0;
    while (rule_at(n)) n++;
    assert_true(n > 20);
    if (wb__this_thread()->eager) skip();       /* each update is evaluated alone */
    for (int rule = 0; rule < n; rule++)
        for (int accumulate = 1; accumulate < 4; accumulate += 2)
            for (int depth = 1; depth < 4; depth++)
                for (int bad = 0; bad <= depth; bad++)
                    if (cases++ % every == 0)
                        updates_behind(rule, accumulate, bad % 2, depth, bad);
}
