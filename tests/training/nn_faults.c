/* The n-th allocation fails, for every n, while models are built, trained, mapped, printed,
 * saved and loaded: each failure is an error, no change is partial, and (with a leak checker)
 * nothing leaks. */
#include "golden.h"

#include "engine/request.h"
#include "optim/optim.h"

#include <unistd.h>

static long countdown;                  /* allocations until the one that fails; 0: none does */
static bool failed;

static void *reallocate(void *context, void *block, size_t bytes)
{
    if (!bytes) return free(block), NULL;
    if (countdown && !--countdown) {
        failed = true;
        return NULL;
    }
    return realloc(block, bytes);
}

static const char *file_name(void) { return test_file("faults"); }

static wb_layer *model(void)
{
    return wb_Chain(wb_Dense(3, 4, wb_tanh), wb_named("n", wb_BatchNorm(4)), wb_Dropout(0.5),
                    wb_SkipConnection(wb_Dense(4, 4), wb_add),
                    wb_Parallel(wb_mul, wb_Dense(4, 1), wb_Dense(4, 1)));
}

/* Scenarios: each returns whether it succeeded. */
static bool make(void)
{
    return model() && wb_LSTM(2, 3) && wb_LSTM(2, 3, .layers = 2, .bidirectional = true) &&
           wb_MultiHeadAttention(4, 2) && wb_Conv(1, 2, {2}) && wb_LayerNorm({3});
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static wb_tensor *same(wb_tensor *x, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_variable(x);
}

/* A failed update leaves the step counts of all slots as they were. */
static bool step(void)
{
    wb_layer *m = model();
    wb_opt_state *s = m ? wb_setup(wb_OptimizerChain(wb_ClipNorm(), wb_Adam()), m) : NULL;
    wb_batch b = {.x = wb_ones(4, 3), .y = wb_ones(4, 1)};
    wb_tree *g = NULL;
    if (!s || !b.x || !b.y || !wb_withgradient(loss, m, b, &g)) return false;
    bool ok = !wb_update(s, m, g);
    for (int i = 0; i < s->n; i++) assert_int_equal(s->counts->slot[i].steps, ok);
    return ok && !wb__evaluate_pending();
}

/* The rules whose numbers the device computes, and the rules with moments that are not averages. */
static bool many_rules(void)
{
    wb_tree *m = wb_tuple(wb_variable(wb_ones(3)));
    wb_rule *rule =
        m ? wb_OptimizerChain(wb_SignDecay(), wb_Nesterov(), wb_RMSProp(.centered = true),
                              wb_RAdam(), wb_AdaMax(), wb_OAdam(), wb_AdaGrad(), wb_AdaDelta(),
                              wb_AMSGrad(), wb_NAdam(), wb_AdaBelief(), wb_Lion(), wb_Rprop())
          : NULL;
    wb_opt_state *s = rule ? wb_setup(rule, m, .mixed = WB_F16) : NULL;
    wb_tensor *scaled = s ? wb_scale_loss(s, wb_sum(wb_get(m, "0"))) : NULL;
    wb_tree *g = scaled ? wb_gradient(scaled, m) : NULL;
    if (!g) return false;
    const bool ok = !wb_update(s, m, g);
    assert_int_equal(s->counts->slot[0].steps, ok);
    return ok && !wb__evaluate_pending();
}

static wb_tensor *halve(wb_rule_step *s, void *ctx)
{
    (void)ctx;
    s->next[0] = wb_add(s->state[0], s->t);
    return wb_mul(s->g, s->rho);
}
static const wb_rule_type halving = {.name = "Halving", .apply = halve, .states = 1, .rho = 0.5};

/* Numbers, schedules and the average of parts of a model. */
static bool parts_of_models(void)
{
    wb_layer *m = wb_Dense(3, 1), *average = m ? wb_average_of(m) : NULL;
    wb_schedule *a = average ? wb_ScheduleStep(0.5, 0.5, 2, 3) : NULL;
    wb_schedule *c = a ? wb_ScheduleComposed(wb_ScheduleExp(1, 1), a, a) : NULL;
    wb_schedule *b = c ? wb_ScheduleSequence({a, 2}, {c, 3}) : NULL;
    wb_opt_state *s =
        b ? wb_setup(wb_OptimizerChain(wb_AccumGrad(1), wb_Adafactor(), wb_LAMB()), m,
                     .schedule = b)
          : NULL;
    if (!s || wb_adjust_at(s, "*bias", .lambda = 0)) return false;
    char *text = wb_object_format(s);
    wb_free_text(text);
    wb_tree *g = text ? wb_gradient(wb_sum(wb_call(m, wb_ones(2, 3))), m) : NULL;
    if (!g || wb_update(s, m, g)) return false;
    assert_int_equal(s->counts->updates, 1);
    return !wb_average(average, m, 0.5) && !wb__evaluate_pending();
}

static bool step_out_of_place(void)
{
    wb_layer *m = wb_Dense(3, 1);
    wb_opt_state *s =
        m ? wb_setup(wb_OptimizerChain(wb_Nesterov(), wb_CustomRule(&halving), wb_Adam()),
                     m) : NULL;
    wb_tree *g = s ? wb_gradient(wb_sum(wb_call(m, wb_ones(2, 3))), m) : NULL;
    wb_layer *made = g ? wb_update_new(s, m, g) : NULL;
    for (int i = 0; s && i < s->n; i++) assert_int_equal(s->counts->slot[i].steps, made != NULL);
    return made;
}

static bool sequence(void)
{
    wb_layer *m = wb_GRU(2, 3);
    wb_tensor *x = wb_ones(2, 3, 2), *l = wb_sum(wb_call(m, x));
    wb_tree *g = wb_gradient(l, m);
    return g && !wb_eval(wb_get(g, "weight_hidden"), l);
}

static bool sequence_of_lengths(void)
{
    wb_layer *m = wb_GRU(2, 3, .bidirectional = true, .last = true);
    wb_tensor *n = wb_full_array(2, WB_I32, 1, (int64_t[]){2});
    wb_tensor *x = wb_ones(2, 2, 2), *l = wb_sum(wb_call(m, x, n));
    wb_tree *g = wb_gradient(l, m);
    return g && !wb_eval(wb_get(g, "weight_hidden"), l);
}

/* The plan is built anew each time, and the planner moves slices of the gates before elementwise
 * operations. */
static bool plan_of_gates(void)
{
    wb__cache_clear();
    wb_layer *m = wb_LSTM(5, 5, .initial_state = true);
    wb_tensor *y = wb_call(m, wb_ones(2, 3, 5));
    wb_tensor *g = y ? wb_gradient(wb_mean(wb_square(y)), wb_get(m, "weight_input")) : NULL;
    return g && !wb_eval(g);
}

static bool map_and_show(void)
{
    wb_layer *m = model(), *n = m ? wb_fmap(same, m, NULL) : NULL;
    char *text = n ? wb_object_format(n) : NULL,
         *tensor = n ? wb_object_format(wb_get(n, "layers.0.weight")) : NULL;
    char *tree = n ? wb_object_format(wb_tuple(n, WB_NONE)) : NULL;
    bool ok = text && tensor && tree;
    wb_free_text(text);
    wb_free_text(tensor);
    wb_free_text(tree);
    return ok && !wb_tie(n, "layers.4.layers.0.weight", "layers.4.layers.1.weight") &&
           wb_parameter_count(n) > 0;
}

static bool save_and_load(void)
{
    wb_layer *m = model();
    if (!m || wb_save(file_name(), m)) return false;
    wb_layer *n = wb_load(file_name());
    return n && !wb_load_state(file_name(), m);
}

static bool save_and_load_by_other_names(void)
{
    wb_layer *m = wb_Chain(wb_named("mha", wb_MultiHeadAttention(4, 2, .bias = true)),
                           wb_LSTM(4, 2, .last = true), wb_BatchNorm(2),
                           wb_Conv(1, 1, {2}, .flip = true));
    const wb_rename row = {"mha.*", "layers.mha.*"};
    if (!m || wb_save(file_name(), m, .names = WB_NAMES_TORCH)) return false;
    return wb_load(file_name()) && !wb_load_state(file_name(), m, .n_rename = 1, .rename = &row) &&
           !wb_load_state(file_name(), m);
}

static bool checkpoint(void)
{
    wb_layer *m = model();
    wb_opt_state *s = m ? wb_setup(wb_Momentum(), m) : NULL;
    wb_checkpoint c = {.model = m, .state = s};
    return s && !wb_save_checkpoint(file_name(), &c) && !wb_load_checkpoint(file_name(), &c);
}

static void every_allocation(bool (*scenario)(void), long limit)
{
    wb_scope *scope = wb_scope_open();                  /* once to fill the caches */
    if (!scenario()) fail_msg("%s", wb_error());
    wb_scope_close(scope);
    long n = 1;
    for (;; n++) {
        assert_true(n < limit);
        wb_clear_error();
        failed = false;
        scope = wb_scope_open();
        countdown = n;
        bool ok = scenario();
        countdown = 0;
        if (!ok && !failed) fail_msg("allocation %ld: %s", n, wb_error());
        if (!ok && !wb_error_code()) fail_msg("allocation %ld failed without a message", n);
        wb_clear_error();
        wb_scope_close(scope);
        if (!failed) break;
    }
    assert_true(n > 1);
    unlink(file_name());
}

#define SCENARIOS(X) \
    X(make) X(step) X(many_rules) X(parts_of_models) X(step_out_of_place) X(sequence) \
    X(sequence_of_lengths) X(plan_of_gates) X(map_and_show) X(save_and_load) \
    X(save_and_load_by_other_names) X(checkpoint)
#define SCENARIO(name) TEST(test_##name) { every_allocation(name, 20000); }
SCENARIOS(SCENARIO)

int main(void)
{
    wb_set_allocator(&(wb_allocator){reallocate, NULL});
    return run_cases(NULL, golden_close);
}
