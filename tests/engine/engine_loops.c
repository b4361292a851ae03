/* Training loops without a scope for each step, or with scopes inside their steps: every result
 * equals that of a loop with a scope for each step, in bounded time and memory. */
#include "engine/graph.h"
#include "reference.h"

#include "weber/nn.h"
#include "weber/train.h"

enum { IN = 8, OUT = 3, ROWS = 4, SETTLED = 3000 };

static wb_layer *net(void)
{
    wb_seed(3);
    return wb_Chain(wb_Dense(IN, 6, wb_tanh), wb_Dense(6, OUT));
}

/* ---- loops without a scope ------------------------------------------------------------------- */

typedef struct {
    wb_layer *m, *other;
    wb_opt_state *s, *of_other;
    wb_tensor *x, *y, *v, *w, *h, *old, *seen, *mean;
} program;

static program begin(void)
{
    program p = {.m = net(), .other = net()};
    p.s = wb_setup(wb_Adam(.eta = 1e-2), p.m);
    p.of_other = wb_setup(wb_Descent(.eta = 1e-2), p.other);
    p.x = wb_randn(ROWS, IN);
    p.y = wb_randn(ROWS, OUT);
    p.v = wb_variable(wb_ones(5));
    p.w = wb_variable(wb_zeros(5));
    p.h = wb_retain(wb_zeros(ROWS, 6));
    p.mean = wb_retain(wb_zeros(IN));
    wb_eval(p.x, p.y);
    return p;
}

static void plain_step(program *p)
{
    wb_tensor *l = wb_mse(wb_call(p->m, p->x), p->y);
    assert_int_equal(wb_update(p->s, p->m, wb_gradient(l, p->m)), 0);
}

static void read_step(program *p)
{
    wb_tensor *l = wb_mse(wb_call(p->m, p->x), p->y);
    assert_true(isfinite(wb_item(l)));
    assert_int_equal(wb_update(p->s, p->m, wb_gradient(l, p->m)), 0);
}

static void assigning_step(program *p)
{
    wb_tensor *l = wb_sum(wb_square(wb_sub(wb_mul(p->v, wb_scalar(2)), wb_exp(p->w))));
    wb_tensor *gv = wb_gradient(l, p->v), *gw = wb_gradient(l, p->w);
    assert_int_equal(wb_assign(p->v, wb_sub(p->v, wb_mul(gv, wb_scalar(1e-3)))), 0);
    assert_int_equal(wb_assign(p->w, wb_sub(p->w, wb_mul(gw, wb_scalar(1e-3)))), 0);
}

/* Both losses are built before either state is stepped. */
static void two_states_step(program *p)
{
    wb_tensor *a = wb_call(p->m, p->x), *b = wb_call(p->other, p->x);
    wb_tensor *first = wb_mse(wb_mul(a, b), p->y), *second = wb_mse(b, wb_tanh(a));
    assert_int_equal(wb_update(p->s, p->m, wb_gradient(first, p->m)), 0);
    assert_int_equal(wb_update(p->of_other, p->other, wb_gradient(second, p->other)), 0);
}

/* The hidden state of one step is an operand of the next. */
static void recurrent_step(program *p)
{
    wb_layer *first = wb_layer_at(p->m, "layers.0");
    wb_tensor *h = wb_add(wb_call(first, p->x), wb_mul(wb_stop_gradient(p->h), wb_scalar(0.5)));
    wb_tensor *l = wb_mean(wb_square(wb_sub(h, wb_scalar(0.25))));
    assert_int_equal(wb_update(p->s, p->m, wb_gradient(wb_add(l, wb_mul(wb_sum(wb_square(
        wb_get(p->m, "layers.1.weight"))), wb_scalar(1e-3))), p->m)), 0);
    wb_retain(h);
    wb_release(p->h);
    p->h = h;
}

/* The loss contains a result from before up to four updates, which was not read. */
static void reference_step(program *p)
{
    static int step;
    if (step++ % 4 == 0) {
        if (p->old) wb_release(p->old);
        p->old = wb_retain(wb_call(p->m, p->x));
    }
    wb_tensor *old = wb_mul(wb_stop_gradient(p->old), wb_scalar(0.1));
    wb_tensor *l = wb_mse(wb_add(wb_call(p->m, p->x), old), p->y);
    assert_int_equal(wb_update(p->s, p->m, wb_gradient(l, p->m)), 0);
    if (step == 4) step = 0;
}

/* A moving average of the weights is updated in each step. */
static void averaging_step(program *p)
{
    plain_step(p);
    wb_tensor *bias = wb_get(p->m, "layers.1.bias"), *mean = wb_get(p->other, "layers.1.bias");
    assert_int_equal(
        wb_assign(mean, wb_add(wb_mul(mean, wb_scalar(0.9)), wb_mul(bias, wb_scalar(0.1)))), 0);
}

/* Each step creates a result that depends on no variable and is never read. */
static void idle_step(program *p)
{
    plain_step(p);
    wb_tanh(p->x);
}

/* A running statistic of the data depends on no parameter, and is read only at the end. */
static void statistic_step(program *p)
{
    wb_tensor *now = wb_mul(wb_mean(p->x, .axes = WB_INTS(0)), wb_scalar(0.1));
    wb_tensor *mean = wb_retain(wb_add(wb_mul(p->mean, wb_scalar(0.9)), now));
    wb_release(p->mean);
    p->mean = mean;
    plain_step(p);
}

typedef struct {
    const char *name;
    void (*step)(program *p);
    int64_t most;       /* the bytes that each step may add to the memory in use */
} loop;
static const loop loops[] = {
    {"plain", plain_step, 3500},         {"read", read_step, 3500},
    {"assigning", assigning_step, 6500}, {"two states", two_states_step, 7500},
    {"recurrent", recurrent_step, 12000}, {"reference", reference_step, 6000},
    {"averaging", averaging_step, 5500}, {"idle", idle_step, 4000},
    {"statistic", statistic_step, 6500},
};

static double fingerprint(const program *p)
{
    double sum =
        wb_at(p->v, 0) + 3 * wb_at(p->w, 1) + 5 * wb_at(p->h, 0, 0) + 7 * wb_at(p->mean, 3);
    for (int i = 0; i < 3; i++)
        sum += wb_at(wb_get(p->m, "layers.1.weight"), i, 2) * (i + 1) +
               wb_at(wb_get(p->other, "layers.1.bias"), i) * (i + 7);
    assert_true(isfinite(sum));
    return sum;
}

/* Runs steps with or without scopes, and returns the values of the program's variables. */
static double run(const loop *l, int steps, bool scoped)
{
    program p = begin();
    for (int i = 0; i < steps; i++) {
        wb_scope *s = scoped ? wb_scope_open() : NULL;
        l->step(&p);
        if (s) assert_int_equal(wb_scope_close(s), 0);
    }
    double result = fingerprint(&p);
    wb_release(p.h);
    wb_release(p.mean);
    if (p.old) wb_release(p.old);
    wb_shutdown();
    return result;
}

TEST(loops_need_no_scope)
{
    for (size_t i = 0; i < WB__COUNT(loops); i++) {
        double want = run(&loops[i], 40, true), got = run(&loops[i], 40, false);
        if (want != got)
            fail_msg("%s: %.17g without a scope, %.17g with one", loops[i].name, got, want);
    }
}

static int unconsumed_outputs(void)
{
    const wb_tensor *first = wb__this_thread()->unconsumed, *x = first;
    int n = 0;
    for (; x && (!n || x != first); x = x->next_unconsumed) n++;
    return n;
}

static bool is_known(const wb_tensor *x) { return wb__known(x); }

/* The number of tensors that x depends on, including x. */
static int depth(wb_tensor *x)
{
    wb__order o = {0};
    wb__order_begin(&o);
    assert_true(wb__order_add(&o, x, is_known));
    const int n = o.n;
    wb__order_free(&o);
    return n;
}

TEST(loops_without_a_scope_stay_small)
{
    for (size_t i = 0; i < WB__COUNT(loops); i++) {
        program p = begin();
        int64_t held = 0, plans = 0;
        for (int k = 0; k < 2 * SETTLED; k++) {
            if (k == SETTLED) held = wb_memory_used(), plans = wb_stats().plans_built;
            loops[i].step(&p);
        }
        int64_t each = (wb_memory_used() - held) / SETTLED;
        if (each > loops[i].most)
            fail_msg("%s: %lld bytes a step", loops[i].name, (long long)each);
        if (wb_stats().plans_built != plans)
            fail_msg("%s: %lld new plans", loops[i].name,
                     (long long)(wb_stats().plans_built - plans));
        if (unconsumed_outputs() > 40 || depth(p.mean) > 4000)
            fail_msg("%s: each step visits %d outputs and %d tensors", loops[i].name,
                     unconsumed_outputs(), depth(p.mean));
        wb_release(p.h);
        wb_release(p.mean);
        if (p.old) wb_release(p.old);
        wb_shutdown();
    }
}

/* The same gradients can be passed to several updates: by another state of the same parameters, or,
 * if they do not depend on parameters, in every step. */
TEST(gradients_are_used_again)
{
    wb_tensor *v = wb_variable(wb_full_array(1, WB_F32, 1, (int64_t[]){1}));
    wb_tree *m = wb_tuple(v);
    wb_opt_state *s = wb_setup(wb_Descent(.eta = 0.125), m),
                 *r = wb_setup(wb_Descent(.eta = 0.0625), m);
    assert_int_equal(wb_update(s, m, wb_gradient(wb_sum(wb_square(v)), m)), 0);
    wb_tree *g = wb_gradient(wb_sum(wb_square(v)), m);
    assert_int_equal(wb_update(r, m, g), 0);
    assert_int_equal(wb_update(s, m, g), 0);
    assert_true(wb_at(v, 0) == 0.75 - 1.5 * 0.0625 - 1.5 * 0.125);
    v = wb_variable(wb_full_array(1, WB_F32, 1, (int64_t[]){1}));
    assert_int_equal(wb_assign(v, wb_mul(v, wb_scalar(2))), 0);
    wb_tensor *half = wb_mul(v, wb_scalar(0.5));        /* depends on the variable alone */
    assert_int_equal(wb_assign(v, wb_sub(v, half)), 0);
    assert_int_equal(wb_assign(v, wb_sub(v, half)), 0);
    assert_true(wb_at(v, 0) == 0);
    wb_tree *always = wb_retain(wb_tuple(wb_mul(wb_ones(1), wb_scalar(3))));
    for (int i = 0; i < 20; i++) {
        const double before = wb_at(wb_get(m, "0"), 0);
        assert_int_equal(wb_update(s, m, always), 0);
        assert_true(wb_at(wb_get(m, "0"), 0) == before - 0.375);
    }
    wb_release(always);
    wb_shutdown();
}

/* A hidden state is passed from step to step, and the loss is read between the update and the end
 * of the step.  how: the state is retained ('r'), kept ('k') or kept in a tree ('t'); '-': without
 * scopes. */
static double carried(char how)
{
    wb_seed(1);
    wb_layer *cell = wb_Dense(4, 4, wb_tanh), *head = wb_Dense(4, 1);
    wb_tree *m = wb_tuple(cell, head);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    wb_tensor *x = wb_randn(2, 4), *h = wb_zeros(2, 4), *retained = NULL;
    double sum = 0;
    wb_eval(x, h);
    for (int i = 0; i < 5; i++) {
        wb_scope *scope = how == '-' ? NULL : wb_scope_open();
        wb_tensor *next = wb_call(cell, wb_add(x, wb_stop_gradient(h)));
        wb_tensor *l = wb_mean(wb_square(wb_call(head, next)));
        if (how == 'k') wb_keep(next);
        else if (how == 't') wb_get(wb_keep(wb_tuple(next)), "0");
        else wb_retain(next);
        h = next;
        assert_int_equal(wb_update(s, m, wb_gradient(l, m)), 0);
        sum += (i + 1) * wb_item(l);
        if (scope) assert_int_equal(wb_scope_close(scope), 0);
        wb_release(retained);
        retained = how == 'r' || how == '-' ? next : NULL;
    }
    wb_release(retained);
    assert_true(isfinite(sum));
    return sum;
}

TEST(what_is_kept_is_not_lost_when_a_loss_is_read)
{
    const double want = carried('r');
    assert_true(carried('k') == want && carried('t') == want && carried('-') == want);
}

/* Scopes around the reading of the loss, or also around the update, but not around the step. */
TEST(scopes_inside_a_step)
{
    for (int k = 0; k < 2; k++) {
        program p = begin();
        wb_tensor *x = wb_randn(500, IN), *y = wb_randn(500, OUT);
        wb_eval(x, y);
        int64_t held = 0;
        for (int i = 0; i < 400; i++) {
            if (i == 200) held = wb_memory_used();
            wb_tensor *batch = wb_add(x, wb_scalar(i)), *l = wb_mse(wb_call(p.m, batch), y);
            assert_int_equal(wb_eval(batch), 0);
            wb_scope *update = k ? wb_scope_open() : NULL;
            assert_int_equal(wb_update(p.s, p.m, wb_gradient(l, p.m)), 0);
            if (k) assert_int_equal(wb_scope_close(update), 0);
            wb_scope *reading = wb_scope_open();
            assert_true(isfinite(wb_item(l)));
            assert_int_equal(wb_scope_close(reading), 0);
            wb_free(batch);
        }
        const int64_t each = (wb_memory_used() - held) / 200;
        if (each > 4000) fail_msg("%d: %lld bytes a step", k, (long long)each);
        wb_release(p.h);
        wb_release(p.mean);
        wb_shutdown();
    }
}

/* 100,000 other tensors are created between the forward pass and its gradient. */
TEST(half_built_work_survives)
{
    wb_tensor *v = wb_variable(wb_full_array(3, WB_F32, 1, (int64_t[]){4}));
    wb_tensor *square = wb_square(v), *l = wb_sum(square);
    assert_int_equal(wb_assign(v, wb_zeros(4)), 0);
    const int64_t evaluations = wb_stats().steps;
    wb_tensor *one = wb_scalar(1);
    for (int i = 0; i < 100100; i++) wb_free(wb_neg(one));
    assert_true(wb_stats().steps > evaluations);        /* the engine evaluated in between */
    assert_true(wb_at(v, 1) == 0);
    wb_tensor *g = wb_gradient(l, v);
    assert_true(wb_at(g, 2) == 6 && wb_at(square, 0) == 9 && wb_item(l) == 36);
    assert_int_equal(wb_assign(v, wb_ones(4)), 0);      /* no tensor reads the old version now */
    assert_true(wb_at(v, 0) == 1 && wb_at(square, 1) == 9);
    wb_shutdown();
}

/* After later steps, an unconsumed result of a step can be read; a consumed one is an error, and so
 * is a gradient of the old loss (not zeros). */
TEST(results_of_old_steps_are_values_or_errors)
{
    program p = begin();
    wb_tensor *yhat = wb_call(p.m, p.x), *l = wb_mse(yhat, p.y);
    wb_tree *g = wb_gradient(l, p.m);
    assert_int_equal(wb_update(p.s, p.m, g), 0);
    for (int i = 0; i < 3; i++) plain_step(&p);
    assert_true(isfinite(wb_item(l)));
    wb_clear_error();
    assert_null(wb_gradient(l, p.m));
    assert_int_equal(wb_error_code(), WB_ERROR_VERSION);
    REFUSED(wb_data(yhat), WB_ERROR_VERSION, "[4,3] f32");
    wb_clear_error();
    assert_null(wb_data(wb_get(g, "layers.0.weight")));
    assert_int_equal(wb_error_code(), WB_ERROR_VERSION);
    wb_release(p.h);
    wb_release(p.mean);
    wb_shutdown();
}
