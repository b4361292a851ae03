/* Mixed precision: parameters of bf16 and f16, masters of f32, scaled gradients.  What the rule does
 * is compared with the rule on f32 parameters, what training does with training in f32. */
#include "far_device.h"
#include "plain_error.h"
#include "reference.h"

#include "optim/optim.h"

#include <stdio.h>
#include <unistd.h>

#define REFUSED(call, message)                          \
    do {                                                \
        wb_clear_error();                               \
        assert_false(call);                             \
        assert_string_equal(plain_error(), message);    \
    } while (0)
#define WORKS(call)                                     \
    do {                                                \
        if (!(call)) fail_msg("%s: %s", #call, wb_error()); \
    } while (0)

static const wb_dtype halves[2] = {WB_BF16, WB_F16};

/* ---- small problems -------------------------------------------------------------------------- */

enum { CLASSES = 4, ROWS = 64 };
typedef struct { wb_layer *model; wb_opt_state *state; wb_tensor *x, *y; double blow; } problem;

static wb_layer *mlp(void)
{
    return wb_Chain(wb_Dense(10, 24, wb_relu), wb_LayerNorm({24}), wb_Dense(24, 16, wb_gelu),
                    wb_Dense(16, CLASSES));
}

static wb_layer *convnet(void)
{
    return wb_Chain(wb_Conv(1, 6, {3, 3}, wb_relu, .same = true), wb_BatchNorm(6), wb_MaxPool({2, 2}),
                    wb_Conv(6, 8, {3, 3}, wb_relu), wb_Flatten(), wb_Dense(32, CLASSES));
}

/* Observations that a teacher has labelled. */
static void make(problem *p, bool conv)
{
    float x[ROWS * 64], y[ROWS * CLASSES] = {0};
    const int n = conv ? 64 : 10;
    draw_state = 7;
    for (int i = 0; i < ROWS; i++) {
        float sum[CLASSES] = {0};
        for (int j = 0; j < n; j++) {
            x[i * n + j] = (float)draw_real(-1, 1);
            sum[j % CLASSES] += x[i * n + j];
        }
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (sum[c] > sum[best]) best = c;
        y[i * CLASSES + best] = 1;
    }
    wb_seed(5);
    p->model = conv ? convnet() : mlp();
    p->x = conv ? wb_from(x, WB_F32, 4, (int64_t[]){ROWS, 1, 8, 8})
                : wb_from(x, WB_F32, 2, (int64_t[]){ROWS, 10});
    p->y = wb_from(y, WB_F32, 2, (int64_t[]){ROWS, CLASSES});
    p->blow = 1;
}

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(m, b.x), b.y);
}

/* The loss through wb_withgradient, scaled inside it, as an explicit loop would. */
static wb_tensor *scaled_loss(wb_layer *m, wb_batch b, void *ctx)
{
    problem *p = ctx;
    wb_tensor *loss = loss_of(m, b, NULL);
    return loss ? wb_scale_loss(p->state, wb_mul(loss, wb_scalar(p->blow))) : NULL;
}

static bool step(problem *p)
{
    wb_tree *g;
    wb_scope *s = wb_scope_open();
    wb_tensor *l = wb_withgradient(scaled_loss, p->model, ((wb_batch){.x = p->x, .y = p->y}), &g, p);
    bool good = l && !wb_update(p->state, p->model, g);
    return !wb_scope_close(s) && good;
}

static double loss_now(problem *p)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *l = loss_of(wb_testmode(p->model), (wb_batch){.x = p->x, .y = p->y}, NULL);
    WORKS(l && wb_dtype_of(l) == WB_F32);
    double v = wb_item(l);
    wb_automode(p->model);
    wb_scope_close(s);
    return v;
}

static double scale_of(const problem *p) { return wb_item(p->state->scaling[WB__SCALE]); }

static wb_tensor *master_of(const wb_opt_state *s, int slot)
{
    return s->slots[slot].moments[s->n_moments - 1];
}

static wb_tensor *parameter_of(const problem *p, int slot)
{
    return wb_get(p->model, p->state->slots[slot].path);
}

/* Is each parameter its master, rounded?  And how many elements of masters are no halves? */
static int64_t check_masters(const problem *p)
{
    int64_t between = 0;
    for (int i = 0; i < p->state->n; i++) {
        array master = values_of(master_of(p->state, i)), x = values_of(parameter_of(p, i));
        assert_int_equal(wb_dtype_of(master_of(p->state, i)), WB_F32);
        assert_int_equal(wb_dtype_of(parameter_of(p, i)), p->state->mixed);
        for (int64_t k = 0; k < x.size; k++) {
            float m = (float)master.at[k];
            float rounded = p->state->mixed == WB_F16 ? wb__f16_to_f32(wb__f32_to_f16(m))
                                                      : wb__bf16_to_f32(wb__f32_to_bf16(m));
            assert_true((float)x.at[k] == rounded);
            between += rounded != m;
        }
    }
    ref_forget();
    return between;
}

/* ---- training -------------------------------------------------------------------------------- */

enum { SEEN = 4 };
static const int looks[SEEN] = {0, 20, 60, 200};       /* after so many steps the loss is read */

static void train(bool conv, wb_dtype mixed, double *seen)
{
    wb_scope *s = wb_scope_open();
    problem p = {0};
    make(&p, conv);
    WORKS(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = mixed));
    for (int i = 0, at = 0; at < SEEN; i++) {
        if (i == looks[at]) seen[at++] = loss_now(&p);
        WORKS(step(&p));
    }
    if (mixed) assert_true(check_masters(&p) > 0);
    if (conv) assert_int_equal(wb_dtype_of(wb_get(p.model, "layers.1.mean")), WB_F32);
    wb_scope_close(s);
}

/* On the way and after 200 steps the losses are those of f32 within 10 %. */
static void losses_as_in_f32(void **state)
{
    (void)state;
    for (int conv = 0; conv < 2; conv++) {
        double want[SEEN], got[SEEN];
        train(conv, WB_DTYPE_DEFAULT, want);
        assert_true(want[SEEN - 1] < 0.02 * want[0]);
        for (int i = 0; i < 2; i++) {
            train(conv, halves[i], got);
            for (int k = 0; k < SEEN; k++) {
                print_message("%s %s after %d: %.5f, f32 %.5f\n", conv ? "convnet" : "mlp",
                              wb_dtype_name(halves[i]), looks[k], got[k], want[k]);
                assert_true(fabs(got[k] - want[k]) < 0.1 * want[k]);
            }
        }
    }
}

static wb_loader *loader_of(const problem *p)
{
    return wb_dataloader(wb_dataset_of(p->x, p->y), .batchsize = ROWS);
}

/* wb_train scales by itself: the bits of the explicit loop. */
static void train_scales_by_itself(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0}, q = {0};
        make(&p, true);
        make(&q, true);
        p.state = wb_setup(wb_AdamW(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_AdamW(.eta = 0.003), q.model, .mixed = halves[i]);
        for (int k = 0; k < 6; k++) WORKS(step(&p));
        if (wb_train(loss_of, q.model, loader_of(&q), q.state, .epochs = 6)) fail_msg("%s", wb_error());
        for (int k = 0; k < p.state->n; k++) {
            array a = values_of(master_of(p.state, k)), b = values_of(master_of(q.state, k));
            assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        }
        wb_scope_close(s);
        ref_forget();
    }
}

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
    case 4: return wb_Adam(.eta = 0.01, .beta = {WB_ZERO, 0.9});
    case 5: return wb_OptimiserChain(wb_ClipNorm(.omega = 0.5), wb_WeightDecay(.lambda = 0.1), wb_Momentum());
    case 6: return wb_OptimiserChain(wb_ClipGrad(.delta = 0.4), wb_Adam(.eta = 0.02));
    default: return NULL;
    }
}

static wb_tree *parameters(void)
{
    wb_tensor *x[SLOTS];
    for (int i = 0; i < SLOTS; i++) x[i] = wb_variable(wb_randn_of(WB_F32, 2, slot_dims[i]));
    return wb_tuple(x[0], x[1], x[2]);
}

/* What a master does is what a parameter of f32 does that is given the same gradients: exactly so
 * in bf16, and within 2e-6 where steps are counted on the device. */
static void check_rule(int number, wb_dtype t)
{
    wb_scope *s = wb_scope_open();
    wb_seed(3);
    wb_tree *wide = parameters();
    wb_seed(3);
    wb_tree *narrow = parameters();
    wb_opt_state *a = wb_setup(rule_number(number), wide);
    wb_opt_state *b = wb_setup(rule_number(number), narrow, .mixed = t);
    WORKS(a && b);
    for (int i = 0; i < 8; i++) {
        if (i == 5) assert_true(!wb_adjust(a, .eta = 0.005) && !wb_adjust(b, .eta = 0.005));
        if (i == 2) assert_true(!wb_freeze(a, "1") && !wb_freeze(b, "1"));
        if (i == 4) assert_true(!wb_thaw(a, "1") && !wb_thaw(b, "1"));
        wb_tensor *g[2][SLOTS];
        wb_tensor *scale = wb_scale_loss(b, wb_astype(wb_ones(1), t));
        WORKS(scale);
        for (int k = 0; k < SLOTS; k++) {
            wb_tensor *x = wb_astype(wb_randn_of(WB_F32, 2, slot_dims[k]), t);
            g[0][k] = wb_astype(x, WB_F32);
            g[1][k] = t == WB_F16 ? wb_astype(wb_mul(g[0][k], wb_mul(scale, wb_scalar(0x1p-10))), t) : x;
        }
        if (t == WB_F16)            /* 65536 times a normal number is more than f16 holds */
            for (int k = 0; k < SLOTS; k++) g[0][k] = wb_mul(g[0][k], wb_scalar(0x1p-10));
        assert_int_equal(wb_update(a, wide, wb_tuple(g[0][0], g[0][1], g[0][2])), 0);
        if (wb_update(b, narrow, wb_tuple(g[1][0], g[1][1], g[1][2]))) fail_msg("%s", wb_error());
        for (int k = 0; k < SLOTS; k++) {
            array want = values_of(wb_get(wide, a->slots[k].path)), got = values_of(master_of(b, k));
            for (int64_t j = 0; j < want.size; j++)
                if (t == WB_BF16 ? want.at[j] != got.at[j] : !(fabs(want.at[j] - got.at[j]) < 2e-6))
                    fail_msg("rule %d, %s, step %d: %.9g, f32 %.9g", number, wb_dtype_name(t), i,
                             got.at[j], want.at[j]);
        }
    }
    if (t == WB_F16) assert_true(wb_at(b->scaling[WB__MADE], 0) == 8 && wb_at(b->scaling[WB__MADE], 1) == 6);
    wb_scope_close(s);
    ref_forget();
}

static void rules_work_on_masters(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 2; k++) check_rule(i, halves[k]);
}

/* ---- the scale ------------------------------------------------------------------------------- */

/* Everything that a step may change, as bits. */
static array snapshot(const problem *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->state->n; i++) n += (p->state->n_moments + 1) * wb_size(parameter_of(p, i));
    array all = ref_new(1, &n);
    double *at = all.at;
    for (int i = 0; i < p->state->n; i++)
        for (int k = 0; k <= p->state->n_moments; k++) {
            array x = values_of(k ? p->state->slots[i].moments[k - 1] : parameter_of(p, i));
            memcpy(at, x.at, (size_t)x.size * sizeof(double));
            at += x.size;
        }
    return all;
}

static void overflow_skips_and_recovers(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    problem p = {0};
    make(&p, false);
    WORKS(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = WB_F16));
    assert_true(scale_of(&p) == 65536);
    for (int i = 0; i < 3; i++) WORKS(step(&p));
    const double made = wb_at(p.state->scaling[WB__MADE], 0), before = scale_of(&p);
    assert_true(made >= 1 && wb_item(p.state->scaling[WB__GOOD]) >= 1);
    array was = snapshot(&p);
    double scale = before;
    p.blow = 1e6;                                   /* 65536 million is more than f16 holds */
    for (int i = 0; i < 5; i++) {
        WORKS(step(&p));
        assert_true(scale_of(&p) == (scale /= 2));
        assert_true(wb_item(p.state->scaling[WB__GOOD]) == 0);
    }
    array is = snapshot(&p);
    assert_memory_equal(was.at, is.at, (size_t)was.size * sizeof(double));
    assert_true(wb_at(p.state->scaling[WB__MADE], 0) == made);
    p.blow = NAN;
    WORKS(step(&p));
    is = snapshot(&p);
    assert_memory_equal(was.at, is.at, (size_t)was.size * sizeof(double));
    p.blow = 1;
    double loss = loss_now(&p);
    for (int i = 0; i < 150; i++) WORKS(step(&p));
    assert_true(scale_of(&p) == scale / 2);
    assert_true(wb_at(p.state->scaling[WB__MADE], 0) == made + 150);
    assert_true(loss_now(&p) < 0.2 * loss);
    wb_scope_close(s);
    ref_forget();
}

/* 2000 good steps in a row double the scale, up to 2^24; it never falls below 2^-24. */
static void scale_grows(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_opt_state *st = wb_setup(wb_Descent(), model, .mixed = WB_F16);
    wb_tensor *zero = wb_zeros(2), *bad = wb_full_of(INFINITY, WB_F32, 1, (int64_t[]){2});
    assert_true(wb_item(wb_scale_loss(st, wb_scalar(2))) == 2 * 65536);
    static const struct { float good; bool bad; double scale, after; } rows[] = {
        {0, false, 65536, 1}, {1998, false, 65536, 1999}, {1999, false, 131072, 0},
        {1999, true, 65536, 0}, {5, true, 32768, 0}, {5, false, 32768, 6}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        assert_int_equal(wb_assign(st->scaling[WB__GOOD], wb_full_of(rows[i].good, WB_F32, 0, NULL)), 0);
        assert_int_equal(wb_update(st, model, wb_tuple(rows[i].bad ? bad : zero)), 0);
        assert_true(wb_item(st->scaling[WB__SCALE]) == rows[i].scale);
        assert_true(wb_item(st->scaling[WB__GOOD]) == rows[i].after);
    }
    for (int end = 0; end < 2; end++) {
        float at = end ? 0x1p-24f : 0x1p24f;
        assert_int_equal(wb_assign(st->scaling[WB__SCALE], wb_full_of(at, WB_F32, 0, NULL)), 0);
        assert_int_equal(wb_assign(st->scaling[WB__GOOD], wb_full_of(1999, WB_F32, 0, NULL)), 0);
        assert_int_equal(wb_update(st, model, wb_tuple(end ? bad : zero)), 0);
        assert_true(wb_item(st->scaling[WB__SCALE]) == at);
    }
    wb_scope_close(s);
}

/* Nobody but f16 is scaled. */
static void others_are_not_scaled(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_tree *model = wb_tuple(wb_variable(wb_ones(2)));
    wb_tensor *loss = wb_sum(wb_ones(3));
    assert_ptr_equal(wb_scale_loss(wb_setup(wb_Descent(), model), loss), loss);
    wb_opt_state *st = wb_setup(wb_Descent(), model, .mixed = WB_BF16);
    assert_ptr_equal(wb_scale_loss(st, loss), loss);
    assert_null(st->scaling[WB__SCALE]);
    wb_scope_close(s);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void ties_stay_ties(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Embedding(5, 4), wb_Dense(4, 5, .no_bias = true));
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
    assert_int_equal(wb_dtype_of(old), WB_F32);             /* made before, and still what it was */
    for (int64_t i = 0; i < was.size; i++) assert_true((float)plus.at[i] == (float)was.at[i] + 1);
    wb_tensor *g = wb_full_of(1, WB_BF16, 2, (int64_t[]){5, 4});
    wb_tree *grads = wb_gradient(wb_sum(wb_call(m, wb_arange(5, WB_I32))), m);
    assert_int_equal(wb_dtype_of(wb_get(grads, "layers.0.weight")), WB_BF16);
    wb_named_tuple(1, (const char *[]){"x"}, (void *[]){g});
    assert_int_equal(wb_update(st, m, grads), 0);
    problem p = {.model = m, .state = st};
    check_masters(&p);
    wb_scope_close(s);
    ref_forget();
}

/* f64 and what is half already; another setup of the same model; a model of a rule that keeps
 * nothing else. */
static void any_floating_dtype(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Chain(wb_Dense(3, 2, .dtype = WB_F64), wb_Dense(2, 2, .dtype = WB_BF16));
    for (int i = 0; i < 3; i++) {
        wb_opt_state *st = wb_setup(wb_Descent(), m, .mixed = halves[i % 2]);
        WORKS(st);
        problem p = {.model = m, .state = st};
        check_masters(&p);
        wb_tensor *l = wb_mean(wb_square(wb_call(m, wb_ones(2, 3))));
        assert_int_equal(wb_dtype_of(l), halves[i % 2]);
        WORKS(!wb_update(st, m, wb_gradient(wb_scale_loss(st, l), m)));
        check_masters(&p);
    }
    wb_scope_close(s);
}

static int warnings;
static void count_warnings(wb_log_level level, const char *text, void *context)
{
    (void)context;
    warnings += level == WB_LOG_WARN && strstr(text, "parameters got") != NULL;
}

/* Inputs of f32 are converted without a word; a model that is bf16 by itself warns. */
static void inputs_are_converted(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    warnings = 0;
    wb_layer *m = wb_Chain(wb_Conv(1, 2, {3, 3}), wb_BatchNorm(2, .no_affine = true), wb_Flatten(),
                           wb_Dense(8, 3), wb_LayerNorm({3}));
    wb_layer *lstm = wb_Chain(wb_LSTM(3, 4), wb_MultiHeadAttention(4, .heads = 2));
    WORKS(wb_setup(wb_Adam(), wb_tuple(m, lstm), .mixed = WB_BF16));
    assert_int_equal(wb_dtype_of(wb_call(m, wb_ones(2, 1, 4, 4))), WB_BF16);
    assert_int_equal(wb_dtype_of(wb_call(lstm, wb_ones(2, 3, 3))), WB_BF16);
    wb_layer *moved = wb_to(m, far_device());
    assert_int_equal(wb_dtype_of(wb_call(moved, wb_to(wb_ones(2, 1, 4, 4), far_device()))), WB_BF16);
    assert_int_equal(warnings, 0);
    wb_call(wb_Dense(3, 2, .dtype = WB_BF16), wb_ones(1, 3));
    assert_int_equal(warnings, 1);
    wb_scope_close(s);
}

static void refusals(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Dense(2, 1);
    REFUSED(wb_setup(wb_Adam(), m, .mixed = WB_F32), "setup: .mixed is f32; it must be bf16 or f16");
    REFUSED(wb_setup(wb_Adam(), m, .mixed = WB_I8), "setup: .mixed is i8; it must be bf16 or f16");
    assert_int_equal(wb_dtype_of(wb_get(m, "weight")), WB_F32);
    wb_opt_state *st = wb_setup(wb_Adam(), m, .mixed = WB_F16);
    wb_tree *g = wb_gradient(wb_sum(wb_call(m, wb_ones(1, 2))), m);
    REFUSED(!wb_update(st, m, g), "update: the loss was not scaled: in mixed f16, take the gradient "
                                  "of wb_scale_loss(state, loss)");
    REFUSED(wb_update_new(st, m, g), "update_new: the loss was not scaled: in mixed f16, take the "
                                     "gradient of wb_scale_loss(state, loss)");
    REFUSED(wb_scale_loss(st, wb_zeros(2)), "scale_loss: [2] f32 is not one number");
    REFUSED(wb_scale_loss((wb_opt_state *)m, wb_scalar(1)),
            "scale_loss: the first is a layer, not the state from wb_setup");
    REFUSED(wb_scale_loss(st, NULL), "");
    wb_clear_error();
    wb_scope_close(s);
}

/* All or nothing, whichever allocation fails. */
static void out_of_memory(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
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
    wb_scope_close(s);
}

/* ---- plans, recordings, files, devices ------------------------------------------------------- */

static int fused_updates, segments;
static void read_plan(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)context;
    const char *more = strstr(text, " and "), *word = strstr(text, " more:");
    if (!strstr(text, "fused") || !more || !word || more > word) return;
    fused_updates++;
    segments = atoi(more + 5) + 1;
}

/* All parameters are updated by one kernel with a segment each. */
static void one_kernel_updates_all(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0};
        make(&p, false);
        WORKS(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]));
        fused_updates = segments = 0;
        wb_set_log(read_plan, NULL);
        WORKS(step(&p));
        wb_set_log(count_warnings, NULL);
        assert_int_equal(fused_updates, 1);
        assert_int_equal(segments, p.state->n);
        wb_scope_close(s);
    }
}

static int recorded(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    problem *p = ctx;
    wb_tree *g;
    out[0] = wb_withgradient(scaled_loss, p->model, ((wb_batch){.x = in[0], .y = in[1]}), &g, p);
    return !out[0] || wb_update(p->state, p->model, g) ? -1 : 1;
}

static int forward(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_call(ctx, in[0]);
    return out[0] ? 1 : -1;
}

/* Recorded steps give the bits of plain ones; what was recorded before the parameters changed their
 * dtype is recorded again. */
static void recordings(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0}, q = {0};
        make(&p, false);
        make(&q, false);
        wb_compiled *f = wb_compile(forward, q.model);
        wb_tensor *y;
        WORKS(!wb_call_compiled(f, 1, &q.x, 1, &y));
        assert_int_equal(wb_dtype_of(y), WB_F32);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_Adam(.eta = 0.003), q.model, .mixed = halves[i]);
        WORKS(!wb_call_compiled(f, 1, &q.x, 1, &y));
        assert_int_equal(wb_dtype_of(y), halves[i]);
        array a = values_of(y), b = values_of(wb_call(q.model, q.x));
        assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        wb_compiled *c = wb_compile(recorded, &q);
        for (int k = 0; k < 6; k++) {
            if (k == 4) assert_true(!wb_adjust(p.state, .eta = 0.01) && !wb_adjust(q.state, .eta = 0.01));
            WORKS(step(&p));
            wb_tensor *loss;
            WORKS(!wb_call_compiled(c, 2, (wb_tensor *[]){q.x, q.y}, 1, &loss));
            a = snapshot(&p);
            b = snapshot(&q);
            assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        }
        wb_scope_close(s);
        ref_forget();
    }
}

/* Training on from a checkpoint gives the bits that never stopping gives. */
static void checkpoints(void **state)
{
    (void)state;
    const char *path = "optim_mixed.checkpoint";
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0}, q = {0}, other = {0};
        make(&p, true);
        make(&q, true);
        make(&other, true);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        p.blow = 1e6;                                       /* f16: the scale is not its first */
        WORKS(step(&p));
        p.blow = 1;
        for (int k = 0; k < 5; k++) WORKS(step(&p));
        WORKS(!wb_checkpoint_save(path, &(wb_checkpoint){p.model, p.state, NULL, 3}));
        for (int k = 0; k < 5; k++) WORKS(step(&p));
        q.state = wb_setup(wb_Adam(.eta = 1), q.model, .mixed = halves[i]);
        wb_checkpoint c = {q.model, q.state, NULL, 0};
        WORKS(!wb_checkpoint_load(path, &c));
        assert_int_equal(c.epoch, 3);
        for (int k = 0; k < 5; k++) WORKS(step(&q));
        array a = snapshot(&p), b = snapshot(&q);
        assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        if (halves[i] == WB_F16) assert_true(scale_of(&p) == scale_of(&q) && scale_of(&q) < 65536);
        other.state = wb_setup(wb_Adam(), other.model, .mixed = halves[!i]);
        char want[256];
        snprintf(want, sizeof want, "%s: the checkpoint's state was set up with .mixed %s, this one with %s",
                 path, wb_dtype_name(halves[i]), wb_dtype_name(halves[!i]));
        REFUSED(!wb_checkpoint_load(path, &(wb_checkpoint){NULL, other.state, NULL, 0}), want);
        wb_clear_error();
        remove(path);
        wb_scope_close(s);
        ref_forget();
    }
}

/* On another device the same bits, and back. */
static void devices(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0}, q = {0};
        make(&p, false);
        make(&q, false);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_Adam(.eta = 0.003), q.model, .mixed = halves[i]);
        for (int k = 0; k < 9; k++) {
            if (k % 3 == 0) {
                const wb_device *d = k == 3 ? far_device() : wb_cpu_device();
                q.model = wb_to(q.model, d);
                q.state = wb_to(q.state, d);
                q.x = wb_to(q.x, d);
                q.y = wb_to(q.y, d);
                WORKS(q.model && q.state && q.x && q.y);
            }
            WORKS(step(&p));
            WORKS(step(&q));
            array a = snapshot(&p), b = snapshot(&q);
            assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        }
        if (halves[i] == WB_F16) assert_true(scale_of(&p) == scale_of(&q));
        wb_scope_close(s);
        ref_forget();
    }
}

/* Out of place: a new model, the same numbers. */
static void out_of_place(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wb_scope *s = wb_scope_open();
        problem p = {0}, q = {0};
        make(&p, false);
        make(&q, false);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_Adam(.eta = 0.003), q.model, .mixed = halves[i]);
        for (int k = 0; k < 3; k++) {
            WORKS(step(&p));
            wb_tree *g;
            WORKS(wb_withgradient(scaled_loss, q.model, ((wb_batch){.x = q.x, .y = q.y}), &g, &q));
            WORKS(q.model = wb_update_new(q.state, q.model, g));
            array a = snapshot(&p), b = snapshot(&q);
            assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        }
        wb_scope_close(s);
        ref_forget();
    }
}

static void printed(void **state)
{
    (void)state;
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Dense(2, 1);
    wb_opt_state *st = wb_setup(wb_Momentum(), m, .mixed = WB_BF16);
    char *text = wb_format_object(st);
    assert_string_equal(text, "Momentum(eta=0.01, rho=0.9)\n"
                              "  weight  [1,2] bf16 of f32, 1 moment, 0 steps\n"
                              "  bias    [1] bf16 of f32, 1 moment, 0 steps");
    wb_free_text(text);
    wb_scope_close(s);
}

int main(int argc, char **argv)
{
    setenv("WEBER_DEBUG", "plan", 1);               /* for one_kernel_updates_all */
    wb_set_log(count_warnings, NULL);
    read_options(argc, argv);
    const struct CMUnitTest all[] = {
        cmocka_unit_test(losses_as_in_f32), cmocka_unit_test(train_scales_by_itself),
        cmocka_unit_test(rules_work_on_masters), cmocka_unit_test(overflow_skips_and_recovers),
        cmocka_unit_test(scale_grows), cmocka_unit_test(others_are_not_scaled),
        cmocka_unit_test(ties_stay_ties), cmocka_unit_test(any_floating_dtype),
        cmocka_unit_test(inputs_are_converted), cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(one_kernel_updates_all),
        cmocka_unit_test(recordings), cmocka_unit_test(checkpoints), cmocka_unit_test(devices),
        cmocka_unit_test(out_of_place), cmocka_unit_test(printed)};
    int failed = cmocka_run_group_tests(all, NULL, NULL);
    wb_shutdown();
    return failed;
}
