/* Mixed precision, one update at a time: rules on master weights, the loss scale of f16,
 * parameters that change their dtype.  Results are compared with the rule on f32 parameters. */
#include "optim_mixed.h"

/* ---- rules ----------------------------------------------------------------------------------- */

enum { SLOTS = 3 };
static const int64_t slot_dims[SLOTS][2] = {{3, 5}, {7, 1}, {1, 1}};

static wb_rule *rule_number(int i)
{
    switch (i) {
    case 0: return wb_Descent(.eta = 0.3);
    case 1: return wb_Momentum(.eta = 0.1);
    case 2: return wb_Adam(.eta = 0.01);
    case 3: return wb_AdamW(.eta = 0.02, .lambda = 0.1);
    case 4: return wb_Adam(.eta = 0.01, .beta = {0, 0.9});
    case 5:
        return wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_WeightDecay(.lambda = 0.1),
                                 wb_Momentum());
    case 6: return wb_OptimizerChain(wb_ClipGrad(.delta = 0.4), wb_Adam(.eta = 0.02));
    default: return NULL;
    }
}

static wb_tree *parameters(void)
{
    wb_tensor *x[SLOTS];
    for (int i = 0; i < SLOTS; i++) x[i] = wb_variable(wb_randn_array(WB_F32, 2, slot_dims[i]));
    return wb_tuple(x[0], x[1], x[2]);
}

/* Master weights equal f32 parameters that get the same gradients: exactly for bf16, within 2e-6
 * for f16, whose steps are counted on the device. */
static void check_rule(int number, wb_dtype t)
{
    wb_scope *s = wb_scope_open();
    wb_seed(3);
    wb_tree *wide = parameters();
    wb_seed(3);
    wb_tree *narrow = parameters();
    wb_opt_state *a = wb_setup(rule_number(number), wide);
    wb_opt_state *b = wb_setup(rule_number(number), narrow, .mixed = t);
    MADE(a && b);
    for (int i = 0; i < 8; i++) {
        if (i == 5) assert_true(!wb_adjust(a, .eta = 0.005) && !wb_adjust(b, .eta = 0.005));
        if (i == 2) assert_true(!wb_freeze(a, "1") && !wb_freeze(b, "1"));
        if (i == 4) assert_true(!wb_thaw(a, "1") && !wb_thaw(b, "1"));
        wb_tensor *g[2][SLOTS];
        wb_tensor *scale = wb_scale_loss(b, wb_astype(wb_ones(1), t));
        MADE(scale);
        for (int k = 0; k < SLOTS; k++) {
            wb_tensor *x = wb_astype(wb_randn_array(WB_F32, 2, slot_dims[k]), t);
            g[0][k] = wb_astype(x, WB_F32);
            g[1][k] = t == WB_F16 ? wb_astype(wb_mul(g[0][k], wb_mul(scale, wb_scalar(0x1p-10))), t)
                                  : x;
        }
        if (t == WB_F16)            /* 65536 times a normal number overflows f16 */
            for (int k = 0; k < SLOTS; k++) g[0][k] = wb_mul(g[0][k], wb_scalar(0x1p-10));
        assert_int_equal(wb_update(a, wide, wb_tuple(g[0][0], g[0][1], g[0][2])), 0);
        if (wb_update(b, narrow, wb_tuple(g[1][0], g[1][1], g[1][2]))) fail_msg("%s", wb_error());
        for (int k = 0; k < SLOTS; k++) {
            array want = values_of(wb_get(wide, a->slots[k].path)),
                  got = values_of(master_of(b, k));
            for (int64_t j = 0; j < want.size; j++)
                if (t == WB_BF16 ? want.at[j] != got.at[j] : !(fabs(want.at[j] - got.at[j]) < 2e-6))
                    fail_msg("rule %d, %s, step %d: %.9g, f32 %.9g", number, wb_dtype_name(t), i,
                             got.at[j], want.at[j]);
        }
    }
    if (t == WB_F16)
        assert_true(wb_at(b->scaling[WB__STEPS_MADE], 0) == 8 &&
                    wb_at(b->scaling[WB__STEPS_MADE], 1) == 6);
    wb_scope_close(s);
    ref_forget();
}

TEST(rules_work_on_masters)
{
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 2; k++)
            if (fewer() == 1 || k == i % 2) check_rule(i, halves[k]);
}

/* ---- the scale ------------------------------------------------------------------------------- */

TEST_IN_SCOPE(overflow_skips_and_recovers)
{
    problem p = {0};
    make(&p, false);
    MADE(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = WB_F16));
    assert_true(scale_of(&p) == 65536);
    for (int i = 0; i < 3; i++) MADE(step(&p));
    const double made = wb_at(p.state->scaling[WB__STEPS_MADE], 0), before = scale_of(&p);
    assert_true(made >= 1 && wb_item(p.state->scaling[WB__SINCE_CHANGE]) >= 1);
    array was = snapshot(&p);
    double scale = before;
    p.loss_factor = 1e6;                                   /* the scaled loss overflows f16 */
    for (int i = 0; i < 5; i++) {
        MADE(step(&p));
        assert_true(scale_of(&p) == (scale /= 2));
        assert_true(wb_item(p.state->scaling[WB__SINCE_CHANGE]) == 0);
    }
    array is = snapshot(&p);
    assert_memory_equal(was.at, is.at, (size_t)was.size * sizeof(double));
    assert_true(wb_at(p.state->scaling[WB__STEPS_MADE], 0) == made);
    p.loss_factor = NAN;
    MADE(step(&p));
    is = snapshot(&p);
    assert_memory_equal(was.at, is.at, (size_t)was.size * sizeof(double));
    p.loss_factor = 1;
    double loss = loss_now(&p);
    for (int i = 0; i < 150; i++) MADE(step(&p));
    assert_true(scale_of(&p) == scale / 2);
    assert_true(wb_at(p.state->scaling[WB__STEPS_MADE], 0) == made + 150);
    assert_true(loss_now(&p) < 0.2 * loss);
}

/* 2000 good steps in a row double the scale, up to 2^24; it never falls below 2^-24. */
TEST_IN_SCOPE(scale_grows)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *st = wb_setup(wb_Descent(), model, .mixed = WB_F16);
    wb_tensor *zero = wb_zeros(2), *bad = wb_full_array(INFINITY, WB_F32, 1, (int64_t[]){2});
    assert_true(wb_item(wb_scale_loss(st, wb_scalar(2))) == 2 * 65536);
    static const struct { float good; bool bad; double scale, after; } rows[] = {
        {0, false, 65536, 1}, {1998, false, 65536, 1999}, {1999, false, 131072, 0},
        {1999, true, 65536, 0}, {5, true, 32768, 0}, {5, false, 32768, 6}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        assert_int_equal(
            wb_assign(st->scaling[WB__SINCE_CHANGE], wb_full_array(rows[i].good, WB_F32, 0, NULL)),
            0);
        assert_int_equal(wb_update(st, model, wb_tuple(rows[i].bad ? bad : zero)), 0);
        assert_true(wb_item(st->scaling[WB__SCALE]) == rows[i].scale);
        assert_true(wb_item(st->scaling[WB__SINCE_CHANGE]) == rows[i].after);
    }
    for (int end = 0; end < 2; end++) {
        float at = end ? 0x1p-24f : 0x1p24f;
        assert_int_equal(wb_assign(st->scaling[WB__SCALE], wb_full_array(at, WB_F32, 0, NULL)), 0);
        assert_int_equal(
            wb_assign(st->scaling[WB__SINCE_CHANGE], wb_full_array(1999, WB_F32, 0, NULL)), 0);
        assert_int_equal(wb_update(st, model, wb_tuple(end ? bad : zero)), 0);
        assert_true(wb_item(st->scaling[WB__SCALE]) == at);
    }
}

/* Only losses for f16 are scaled. */
TEST_IN_SCOPE(others_are_not_scaled)
{
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_tensor *loss = wb_sum(wb_ones(3));
    assert_ptr_equal(wb_scale_loss(wb_setup(wb_Descent(), model), loss), loss);
    wb_opt_state *st = wb_setup(wb_Descent(), model, .mixed = WB_BF16);
    assert_ptr_equal(wb_scale_loss(st, loss), loss);
    assert_null(st->scaling[WB__SCALE]);
}

/* ---- parameters ------------------------------------------------------------------------------ */

TEST_IN_SCOPE(ties_stay_ties)
{
    wb_layer *m = wb_Chain(wb_Embedding(5, 4), wb_Dense(4, 5, .bias = false));
    assert_int_equal(wb_tie(m, "layers.1.weight", "layers.0.weight"), 0);
    wb_tensor *w = wb_get(m, "layers.0.weight"), *old = wb_add(w, wb_scalar(1));
    array was = values_of(w);
    wb_opt_state *st = wb_setup(wb_Descent(.eta = 1), m, .mixed = WB_BF16);
    assert_int_equal(st->n, 1);
    assert_ptr_equal(wb_get(m, "layers.0.weight"), w);
    assert_ptr_equal(wb_get(m, "layers.1.weight"), w);
    assert_int_equal(wb_dtype_of(w), WB_BF16);
    array master = values_of(master_of(st, 0)), plus = values_of(old);
    assert_memory_equal(was.at, master.at, (size_t)was.size * sizeof(double));
    assert_int_equal(wb_dtype_of(old), WB_F32);             /* of the dtype before the setup */
    for (int64_t i = 0; i < was.size; i++) assert_true((float)plus.at[i] == (float)was.at[i] + 1);
    wb_tensor *g = wb_full_array(1, WB_BF16, 2, (int64_t[]){5, 4});
    wb_tree *grads = wb_gradient(wb_sum(wb_call(m, wb_arange(5, WB_I32))), m);
    assert_int_equal(wb_dtype_of(wb_get(grads, "layers.0.weight")), WB_BF16);
    wb_named_tuple(1, (const char *[]){"x"}, (void *[]){g});
    assert_int_equal(wb_update(st, m, grads), 0);
    problem p = {.model = m, .state = st};
    check_masters(&p);
}

/* Parameters of f64 and bf16 are converted, and again by later setups of the same model.  The rule
 * has no moments but the masters. */
TEST_IN_SCOPE(any_floating_dtype)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 2, .dtype = widest_float()),
                           wb_Dense(2, 2, .dtype = WB_BF16));
    for (int i = 0; i < 3; i++) {
        wb_opt_state *st = wb_setup(wb_Descent(), m, .mixed = halves[i % 2]);
        MADE(st);
        problem p = {.model = m, .state = st};
        check_masters(&p);
        wb_tensor *l = wb_mean(wb_square(wb_call(m, wb_ones(2, 3))));
        assert_int_equal(wb_dtype_of(l), halves[i % 2]);
        MADE(!wb_update(st, m, wb_gradient(wb_scale_loss(st, l), m)));
        check_masters(&p);
    }
}

static int warnings;
static void count_warnings(wb_log_level level, const char *text, void *context)
{
    warnings += level == WB_LOG_WARN && has_line(text, FACTS("bf16", "f32"));
}

/* f32 inputs of a mixed-precision model are converted without a warning, those of a model that was
 * built in bf16 with a warning. */
TEST_IN_SCOPE(inputs_are_converted)
{
    wb_set_log(count_warnings, NULL);
    wb_layer *m = wb_Chain(wb_Conv(1, 2, {3, 3}), wb_BatchNorm(2, .affine = false), wb_Flatten(),
                           wb_Dense(8, 3), wb_LayerNorm({3}));
    wb_layer *lstm = wb_Chain(wb_LSTM(3, 4), wb_MultiHeadAttention(4, .heads = 2));
    MADE(wb_setup(wb_Adam(), wb_tuple(m, lstm), .mixed = WB_BF16));
    assert_int_equal(wb_dtype_of(wb_call(m, wb_ones(2, 1, 4, 4))), WB_BF16);
    assert_int_equal(wb_dtype_of(wb_call(lstm, wb_ones(2, 3, 3))), WB_BF16);
    wb_layer *moved = wb_to(m, far_device());
    assert_int_equal(wb_dtype_of(wb_call(moved, wb_to(wb_ones(2, 1, 4, 4), far_device()))),
                     WB_BF16);
    assert_int_equal(warnings, 0);
    wb_call(wb_Dense(3, 2, .dtype = WB_BF16), wb_ones(1, 3));
    assert_int_equal(warnings, 1);
    wb_set_log(NULL, NULL);
}

TEST_IN_SCOPE(refusals)
{
    wb_layer *m = wb_Dense(2, 1);
    REFUSED(wb_setup(wb_Adam(), m, .mixed = WB_F32), WB_ERROR_DTYPE, "setup", ".mixed", "f32",
            "bf16", "f16");
    REFUSED(wb_setup(wb_Adam(), m, .mixed = WB_I8), WB_ERROR_DTYPE, "setup", ".mixed", "i8", "bf16",
            "f16");
    assert_int_equal(wb_dtype_of(wb_get(m, "weight")), WB_F32);
    wb_opt_state *st = wb_setup(wb_Adam(), m, .mixed = WB_F16);
    wb_tree *g = wb_gradient(wb_sum(wb_call(m, wb_ones(1, 2))), m);
    REFUSED(!wb_update(st, m, g), WB_ERROR_ARGUMENT, "update", "loss", "f16", "gradient",
            "wb_scale_loss", "state");
    REFUSED(wb_update_new(st, m, g), WB_ERROR_ARGUMENT, "update_new", "loss", "f16", "gradient",
            "wb_scale_loss", "state");
    REFUSED(wb_scale_loss(st, wb_zeros(2)), WB_ERROR_SHAPE, "scale_loss", "[2] f32");
    REFUSED(wb_scale_loss((wb_opt_state *)m, wb_scalar(1)), WB_ERROR_ARGUMENT, "scale_loss",
            "layer", "state");
    REFUSED(wb_scale_loss(st, NULL), WB_ERROR_ARGUMENT, "scale_loss", "loss", "NULL");
    wb_clear_error();
}

/* Whichever allocation of wb_setup fails, the parameters keep their dtype. */
TEST_IN_SCOPE(out_of_memory)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 2), wb_Dense(2, 2));
    wb_tensor *x = wb_get(m, "layers.1.weight");
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        assert_true(n < 5000);
        wb_rule *r = wb_Adam();
        wb__alloc_fail_at(n);
        wb_opt_state *st = wb_setup(r, m, .mixed = WB_F16);
        wb__alloc_fail_at(0);
        if (!st) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        done = st != NULL;
        assert_int_equal(wb_dtype_of(x), done ? WB_F16 : WB_F32);
        wb_clear_error();
    }
}

TEST_IN_SCOPE(printed)
{
    wb_layer *m = wb_Dense(2, 1);
    wb_opt_state *st = wb_setup(wb_Momentum(), m, .mixed = WB_BF16);
    assert_shows(st,
                 "Momentum(eta=0.01, rho=0.9)\n"
                 "  weight  [1,2] bf16 of f32, 1 moment, 0 steps\n"
                 "  bias    [1] bf16 of f32, 1 moment, 0 steps");
}

/* The next update starts from the values that the program assigned to a parameter. */
TEST(values_put_in_later_count)
{
    for (int k = 0; k < 2; k++) IN_SCOPE {
        wb_layer *m = wb_Dense(3, 2, .bias = false);
        MADE(m);
        wb_opt_state *o = wb_setup(wb_Descent(.eta = 0.5), m, .mixed = halves[k]);
        MADE(o);
        wb_tensor *w = wb_get(m, "weight"), *x = wb_ones(1, 3);
        for (int i = 0; i < 2; i++) {           /* the gradient of each weight is 1 */
            wb_tensor *loss = wb_scale_loss(o, wb_sum(wb_call(m, x)));
            if (wb_update(o, m, wb_gradient(loss, m))) fail_msg("%s", wb_error());
            if (wb_eval(w)) fail_msg("%s", wb_error());
            if (i) break;
            if (wb_assign(w, wb_astype(wb_full_array(8, WB_F32, 2, (int64_t[]){2, 3}), halves[k])))
                fail_msg("%s", wb_error());
        }
        array is = values_of(w), master = values_of(o->slots[0].moments[0]);
        for (int64_t i = 0; i < is.size; i++) assert_true(is.at[i] == 7.5 && master.at[i] == 7.5);
        ref_forget();
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
