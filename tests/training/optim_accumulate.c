/* Accumulation of gradients by one process: .accumulate = k. The references are updates by the mean
 * of k gradients, and training with batches that are k times as long. */
#include "folder.h"
#include "optim_mixed.h"

/* ---- one update at a time -------------------------------------------------------------------- */

enum { SLOTS = 3 };
static const int64_t slot_dims[SLOTS][2] = {{3, 5}, {7, 1}, {1, 1}};

static wb_rule *rule_number(int i)
{
    switch (i) {
    case 0: return wb_Descent(.eta = 0.3);
    case 1: return wb_Momentum(.eta = 0.1);
    case 2: return wb_Adam(.eta = 0.01);
    case 3: return wb_AdamW(.eta = 0.02, .lambda = 0.1);
    case 4: return wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Momentum());
    default: return NULL;
    }
}

static wb_tree *parameters(void)
{
    wb_tensor *x[SLOTS];
    wb_seed(3);
    for (int i = 0; i < SLOTS; i++) x[i] = wb_variable(wb_randn_array(WB_F32, 2, slot_dims[i]));
    return wb_tuple(x[0], x[1], x[2]);
}

/* All bytes of the parameters, moments and step counts. */
typedef struct { float x[256]; int64_t steps[SLOTS]; int n; } contents;
static contents contents_of(wb_tree *p, const wb_opt_state *s)
{
    contents c = {.n = 0};
    for (int i = 0; i < s->n; i++) {
        for (int k = -1; k < s->n_moments; k++) {
            wb_tensor *x = k < 0 ? wb_get(p, s->slots[i].path) : s->slots[i].moments[k];
            wb_tensor *wide = wb_astype(x, WB_F32);
            memcpy(c.x + c.n, wb_data(wide), (size_t)wb_size(x) * sizeof(float));
            c.n += (int)wb_size(x);
        }
        c.steps[i] = s->counts->slot[i].steps;
    }
    return c;
}

static void expect_near(const contents *a, const contents *b, double tolerance, const char *where)
{
    for (int i = 0; i < SLOTS; i++) assert_int_equal(a->steps[i], b->steps[i]);
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (!(fabs((double)a->x[i] - (double)b->x[i]) <= tolerance))
            fail_msg("%s: element %d is %.9g, not %.9g", where, i, (double)a->x[i],
                     (double)b->x[i]);
}

static void expect_same(const contents *a, const contents *b)
{
    expect_near(a, b, 0, "nothing may change");
}

/* Whether slot j has a gradient in batch i of round r. Slot 1 has none in some batches, slot 2 none
 * in round 1. */
static bool has(int r, int i, int j) { return j == 0 || (j == 1 ? i % 2 == 1 : r != 1); }

/* Batches of `k` gradients with the mean of each in `reference`.  In round 2 slot 0 is frozen. */
static void accumulate(int number, int k, wb_dtype mixed, double tolerance)
{
    wb_scope *scope = wb_scope_open();
    wb_tree *p = parameters(), *q = parameters();
    wb_opt_state *a = wb_setup(wb_DistributedOptimizer(rule_number(number), .accumulate = k), p,
                               .mixed = mixed);
    wb_opt_state *b = wb_setup(rule_number(number), q, .mixed = mixed);
    MADE(a && b);
    for (int r = 0; r < 4; r++) {
        wb_tensor *mean[SLOTS] = {NULL};
        if (r == 2) assert_true(!wb_freeze(a, "0") && !wb_freeze(b, "0"));
        if (r == 3) assert_true(!wb_thaw(a, "0") && !wb_thaw(b, "0"));
        const contents before = contents_of(p, a);
        for (int i = 0; i < k; i++) {
            wb_tensor *g[SLOTS];
            for (int j = 0; j < SLOTS; j++) {
                g[j] = WB_NONE;
                if (!has(r, i, j)) continue;
                g[j] = wb_randn_array(WB_F32, 2, slot_dims[j]);
                if (mixed) g[j] = wb_astype(wb_astype(g[j], mixed), WB_F32);
                mean[j] = mean[j] ? wb_add(mean[j], g[j]) : g[j];
                if (mixed == WB_F16) g[j] = wb_mul(g[j], wb_scalar(0x1p-8));
                if (mixed) g[j] = wb_astype(g[j], mixed);
            }
            if (mixed == WB_F16)
                MADE(wb_scale_loss(a, wb_ones(1)) && wb_scale_loss(b, wb_ones(1)));
            const contents between = contents_of(p, a);
            expect_same(&between, &before);
            WORKS(wb_update(a, p, wb_tuple(g[0], g[1], g[2])));
            assert_int_equal(a->counts->accumulated, (i + 1) % k);
        }
        for (int j = 0; j < SLOTS; j++) {
            mean[j] = mean[j] ? wb_mul(mean[j], wb_scalar(1.0 / k)) : WB_NONE;
            if (mixed == WB_F16 && !wb_is_none(mean[j]))
                mean[j] = wb_mul(mean[j], wb_scalar(0x1p-8));
        }
        WORKS(wb_update(b, q, wb_tuple(mean[0], mean[1], mean[2])));
        const contents is = contents_of(p, a), wanted = contents_of(q, b);
        expect_near(&is, &wanted, tolerance, wb_dtype_name(mixed ? mixed : WB_F32));
        for (int j = 0; j < SLOTS; j++)
            assert_true(k == 1 || wb_item(wb_sum(wb_abs(a->slots[j].sum))) == 0);
    }
    WORKS(wb_scope_close(scope));
    ref_forget();
}

TEST(updates_by_means)
{
    for (int number = 0; number < 5; number++)
        for (int k = 2; k <= 4; k++) accumulate(number, k, WB_DTYPE_DEFAULT, 2e-6);
    accumulate(0, 1, WB_DTYPE_DEFAULT, 0);
    accumulate(2, 4, WB_BF16, 0.02);
    accumulate(2, 4, WB_F16, 0.005);
    accumulate(4, 3, WB_F16, 0.005);
}

/* One batch of three overflows in f16: nothing is updated and the scale halves. */
TEST_IN_SCOPE(overflow_in_one_batch)
{
    wb_tree *p = wb_tuple(wb_variable(wb_ones(2, 2)));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Descent(1), .accumulate = 3), p,
                               .mixed = WB_F16);
    MADE(s);
    for (int i = 0; i < 6; i++) {
        wb_tensor *g = wb_full(i == 1 ? INFINITY : 3, 2, 2);
        MADE(wb_scale_loss(s, wb_ones(1)));
        if (i >= 3) g = wb_full(0x1p15, 2, 2);          /* 1 after division by the scale */
        WORKS(wb_update(s, p, wb_tuple(wb_astype(g, WB_F16))));
        assert_true(wb_item(s->scaling[WB__SCALE]) == (i < 2 ? 65536 : 32768));
        assert_true(wb_at(s->scaling[WB__STEPS_MADE], 0) == (i == 5));
        assert_true(wb_item(wb_max(wb_astype(wb_get(p, "0"), WB_F32))) == (i == 5 ? 0 : 1));
    }
    s->scaled = false;
    REFUSED(!wb_update(s, p, wb_tuple(wb_astype(wb_ones(2, 2), WB_F16))), WB_ERROR_ARGUMENT,
            "update", "wb_scale_loss");
}

/* wb_update_new does the same with new models. */
TEST_IN_SCOPE(new_models)
{
    wb_layer *m = wb_Chain(wb_Dense(3, 2));
    wb_tensor *x = wb_ones(4, 3);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Descent(0.5), .accumulate = 2), m);
    wb_layer *now = m;
    for (int i = 0; i < 4; i++) {
        wb_tensor *l = wb_sum(wb_square(wb_call(now, x)));
        wb_layer *next = wb_update_new(s, now, wb_gradient(l, now));
        MADE(next);
        const double apart = wb_item(wb_max(wb_abs(wb_sub(wb_get(next, "layers.0.weight"),
                                                          wb_get(now, "layers.0.weight")))));
        assert_true((apart > 0) == (i % 2 == 1));
        assert_int_equal(s->counts->slot[0].steps, (i + 1) / 2);
        now = next;
    }
}

TEST_IN_SCOPE(what_it_needs)
{
    REFUSED(wb_DistributedOptimizer(wb_Adam(), .accumulate = 0), WB_ERROR_ARGUMENT,
            "DistributedOptimizer", ".accumulate", "0");
    wb_tree *p = parameters();
    wb_rule *four = wb_DistributedOptimizer(wb_Descent(0.5), .accumulate = 4);
    char *text = wb_object_format(wb_setup(four, p));
    assert_non_null(strstr(text, "DistributedOptimizer(Descent(eta=0.5), accumulate=4)"));
    assert_null(strstr(text, "accumulated"));
    wb_free_text(text);
    wb_opt_state *with[2];
    wb_memory need[2];
    for (int i = 0; i < 2; i++) {           /* i = 1: the sums are read and written */
        wb_rule *rule = wb_DistributedOptimizer(wb_Descent(0.5), .accumulate = 1 + 3 * i);
        with[i] = wb_setup(rule, p);
        wb_scope *s = wb_scope_open();
        wb_tensor *g = wb_full(2, 3, 5);
        WORKS(wb_eval(g));
        WORKS(wb_update(with[i], p, wb_tuple(g, WB_NONE, WB_NONE)));
        WORKS(wb_estimate_memory(0, NULL, &need[i]));
        WORKS(wb_scope_close(s));
    }
    assert_null(with[0]->slots[0].sum);
    assert_int_equal(need[0].inputs, 2 * 60);           /* parameter and gradient */
    assert_int_equal(need[1].inputs, 2 * 60 + 4);       /* sum and gradient, sum of losses */
}

/* ---- states in the middle of an accumulation ------------------------------------------------- */

static wb_opt_state *state_with(wb_tree *p, int n)
{
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Momentum(0.1), .accumulate = 4), p);
    for (int i = 0; i < n; i++)
        WORKS(wb_update(s, p, wb_tuple(wb_full(i + 1, 3, 5), WB_NONE, wb_full(2, 1, 1))));
    return s;
}

TEST_IN_SCOPE(a_state_in_the_middle)
{
    wb_tree *p = parameters();
    wb_opt_state *s = state_with(p, 3);
    char *text = wb_object_format(s);
    assert_true(HAS_LINE(text, "3 of 4 batches accumulated"));
    wb_free_text(text);
    wb_checkpoint c = {.state = s};
    const char *path = in_folder("middle");
    REFUSED(!wb_save_checkpoint(path, &c), WB_ERROR_ARGUMENT, "save_checkpoint", "3", "of 4",
            "wb_update for 1 more");
    assert_int_equal(access(path, F_OK), -1);
    /* A moved state goes on. */
    wb_tree *there = wb_to(p, far_device());
    wb_opt_state *moved = wb_to(s, far_device());
    MADE(moved);
    assert_ptr_equal(wb_device_of(moved), far_device());
    wb_tensor *g = wb_to(wb_full(4, 3, 5), far_device());
    WORKS(wb_update(moved, there, wb_tuple(g, WB_NONE, WB_NONE)));
    WORKS(wb_update(s, p, wb_tuple(wb_full(4, 3, 5), WB_NONE, WB_NONE)));
    const contents a = contents_of(p, s), b = contents_of(there, moved);
    expect_same(&a, &b);
    assert_true(a.steps[0] == 1 && a.steps[1] == 0 && a.steps[2] == 1);
    /* Loading drops what is accumulated. */
    WORKS(wb_save_checkpoint(path, &c));
    for (int i = 0; i < 3; i++)
        WORKS(wb_update(s, p, wb_tuple(wb_full(99, 3, 5), wb_full(9, 7, 1), WB_NONE)));
    WORKS(wb_load_checkpoint(path, &c));
    assert_int_equal(s->counts->accumulated, 0);
    for (int i = 0; i < 4; i++) {
        WORKS(wb_update(s, p, wb_tuple(wb_full(1, 3, 5), WB_NONE, WB_NONE)));
        g = wb_to(wb_full(1, 3, 5), far_device());
        WORKS(wb_update(moved, there, wb_tuple(g, WB_NONE, WB_NONE)));
    }
    const contents x = contents_of(p, s), y = contents_of(there, moved);
    expect_same(&x, &y);
}

/* ---- training -------------------------------------------------------------------------------- */

enum { N = 640, IN = 6 };

static wb_dataset *data(int n)
{
    wb_seed(2);
    return wb_dataset_of(wb_randn(n, IN), wb_randn(n, 2));
}

static wb_layer *net(void)
{
    wb_seed(1);
    return wb_Chain(wb_Dense(IN, 20, wb_tanh), wb_Dense(20, 20, wb_tanh), wb_Dense(20, 2));
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static double apart(wb_layer *a, wb_layer *b)
{
    double most = 0;
    for (int i = 0; i < 3; i++) {
        char path[40];
        snprintf(path, sizeof path, "layers.%d.weight", i);
        wb_tensor *d = wb_sub(wb_astype(wb_get(a, path), WB_F32),
                              wb_astype(wb_get(b, path), WB_F32));
        most = fmax(most, wb_item(wb_max(wb_abs(d))));
    }
    return most;
}

static wb_opt_state *adam(wb_layer *m, int k)
{
    return wb_setup(wb_DistributedOptimizer(wb_Adam(0.01), .accumulate = k), m);
}

/* The losses that .each has seen. */
static double seen[64];
static int n_seen;
static int see(int epoch, int64_t batch, wb_tensor *l, void *ctx)
{
    seen[n_seen++ % 64] = wb_item(l);
    return ctx && n_seen == *(int *)ctx;
}

TEST_IN_SCOPE(batches_of_16_and_of_64)
{
    wb_layer *a = net(), *b = net();
    wb_opt_state *s = adam(a, 4), *t = wb_setup(wb_Adam(0.01), b);
    wb_loader *small = wb_dataloader(data(N), 16, true, .seed = 4);
    wb_loader *large = wb_dataloader(data(N), 64, true, .seed = 4);
    n_seen = 0;
    WORKS(wb_train(loss, a, small, s, .epochs = 3, .each = see));
    assert_int_equal(n_seen, 120);
    const double mean = seen[119 % 64];
    n_seen = 0;
    WORKS(wb_train(loss, b, large, t, .epochs = 3, .each = see));
    assert_true(fabs(mean - seen[29]) < 1e-6);
    assert_int_equal(s->counts->slot[0].steps, 30);
    if (!(apart(a, b) < 1e-6)) fail_msg("%g apart", apart(a, b));
}

/* 10 batches an epoch with k = 4: steps of 4, 4 and 2 batches. .each stops after 3 of 4. */
TEST_IN_SCOPE(the_end_of_an_epoch)
{
    wb_layer *a = net(), *b = net();
    wb_opt_state *s = adam(a, 4), *t = wb_setup(wb_Adam(0.01), b);
    wb_loader *l = wb_dataloader(data(160), 16);
    WORKS(wb_train(loss, a, l, s, .epochs = 2));
    assert_int_equal(s->counts->slot[0].steps, 6);
    assert_int_equal(s->counts->accumulated, 0);
    WORKS(wb_train(loss, b, wb_dataloader(data(160), 64), t, .epochs = 2));
    assert_int_equal(t->counts->slot[0].steps, 6);
    if (!(apart(a, b) < 1e-6)) fail_msg("%g apart", apart(a, b));
    int stop = 7;
    n_seen = 0;
    WORKS(wb_train(loss, a, l, s, .epochs = 2, .each = see, .ctx = &stop));
    assert_int_equal(s->counts->slot[0].steps, 8);
    assert_int_equal(s->counts->accumulated, 0);
}

/* The metric of the checkpoint is the mean loss of all batches. */
TEST_IN_SCOPE(a_training_that_goes_on)
{
    const char *path = in_folder("goes-on");
    wb_layer *a = net(), *b = net();
    wb_opt_state *s = adam(a, 4), *t = adam(b, 4);
    wb_loader *one = wb_dataloader(data(160), 16, true, .seed = 4);
    wb_loader *two = wb_dataloader(data(160), 16, true, .seed = 4);
    WORKS(wb_train(loss, a, one, s, .epochs = 4));
    WORKS(wb_train(loss, b, two, t, .epochs = 2, .checkpoint = path));
    wb_layer *c = net();
    wb_opt_state *u = adam(c, 4);
    wb_loader *three = wb_dataloader(data(160), 16, true, .seed = 99);
    WORKS(wb_train(loss, c, three, u, .epochs = 4, .checkpoint = path, .resume = true));
    assert_true(apart(a, c) == 0);
    assert_int_equal(u->counts->slot[0].steps, 12);
    wb_layer *still = net();
    wb_rule *none = wb_DistributedOptimizer(wb_Descent(.eta = 0), .accumulate = 4);
    WORKS(wb_train(loss, still, wb_dataloader(data(160), 16), wb_setup(none, still),
                   .checkpoint = path));
    wb_checkpoint at = {.model = still};
    WORKS(wb_load_checkpoint(path, &at));
    const double all = wb_item(loss(still, (wb_batch){.x = wb_dataset_x(data(160)),
                                                       .y = wb_dataset_y(data(160)), .n = 160},
                                     NULL));
    if (!(fabs(at.metric - all) < 1e-6)) fail_msg("%.9g, not %.9g", at.metric, all);
}

/* ---- losses that are not finite -------------------------------------------------------------- */

static wb_tensor *bad_loss(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *l = loss(m, b, NULL);
    return b.index == *(int *)ctx ? wb_mul(l, wb_scalar(NAN)) : l;
}

/* Whichever batch is bad, the model has the good steps before it, and training can go on with the
 * batches accumulated before it. */
TEST(a_loss_that_is_not_finite)
{
    for (int bad = 4; bad < 8; bad++) IN_SCOPE {
        wb_layer *a = net(), *b = net();
        wb_opt_state *s = adam(a, 4), *t = adam(b, 4);
        wb_loader *l = wb_dataloader(data(160), 16);
        char number[16];
        snprintf(number, sizeof number, "%d", bad + 1);
        FAILS(wb_train(bad_loss, a, l, s, .ctx = &bad), WB_ERROR_NUMBER, "loss", "NaN", number);
        assert_int_equal(s->counts->accumulated, bad - 4);
        assert_int_equal(s->counts->slot[0].steps, 1);
        for (int round = 0; round < 2; round++)     /* b never sees the bad batch */
            WB_EACH_BATCH(batch, l) {
                wb_tree *grads;
                if (round == 0 && batch.index >= bad) continue;
                MADE(wb_withgradient(loss, b, batch, &grads));
                WORKS(wb_update(t, b, grads));
            }
        WB_EACH_BATCH(batch, l) {
            wb_tree *grads;
            MADE(wb_withgradient(loss, a, batch, &grads));
            WORKS(wb_update(s, a, grads));
        }
        assert_true(apart(a, b) == 0);
    }
}

/* With ClipNorm a batch whose gradient is not finite is refused, though its loss is. */
TEST_IN_SCOPE(a_norm_that_is_not_finite)
{
    wb_tree *p = parameters();
    wb_rule *rule = wb_OptimizerChain(wb_ClipNorm(), wb_Descent(0.1));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(rule, .accumulate = 3), p);
    for (int i = 0; i < 4; i++) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *g = wb_full(i == 1 ? INFINITY : 1, 3, 5);
        WORKS(wb_update(s, p, wb_tuple(g, WB_NONE, WB_NONE)));
        wb_clear_error();
        assert_int_equal(wb_scope_close(scope), i == 1 ? WB_ERROR_NUMBER : 0);
        if (i == 1) FAILED(WB_ERROR_NUMBER, "norm", "gradients", "Inf");
    }
    assert_int_equal(s->counts->slot[0].steps, 1);
    assert_true(isfinite(wb_item(wb_sum(wb_get(p, "0")))));
}

/* ---- compiled steps -------------------------------------------------------------------------- */

typedef struct { wb_layer *model; wb_opt_state *state; int calls, updates; } recorded;

static int recorded_step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    recorded *r = ctx;
    r->calls++;
    for (int i = 0; i < r->updates; i++) {
        wb_tree *grads;
        const wb_batch b = {.x = in[0], .y = in[1], .n = wb_dim(in[0], 0)};
        out[0] = wb_withgradient(loss, r->model, b, &grads);
        if (!out[0] || wb_update(r->state, r->model, grads)) return -1;
    }
    return 1;
}

/* Two recordings serve all calls, and failed calls count as none. */
TEST_IN_SCOPE(compiled_steps)
{
    recorded r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = (recorded){.model = net(), .updates = 1};
        r[i].state = adam(r[i].model, 3);
    }
    wb_compiled *c = wb_compile(recorded_step, &r[0]);
    wb_tensor *in[2], *a, *b;
    for (int i = 0; i < 14; i++) {
        wb_seed((uint64_t)i);
        in[0] = wb_randn(16, IN);
        in[1] = wb_randn(16, 2);
        if (i == 4) {
            wb_tensor *bad[] = {wb_full(NAN, 16, IN), in[1]};
            FAILS(wb_call_compiled(c, 2, bad, 1, &a), WB_ERROR_NUMBER, "loss", "NaN");
            assert_int_equal(r[0].state->counts->accumulated, 1);
        }
        WORKS(wb_call_compiled(c, 2, in, 1, &a));
        assert_int_equal(recorded_step(in, &b, &r[1]), 1);
        assert_true(wb_item(a) == wb_item(b));
        assert_true(apart(r[0].model, r[1].model) == 0);
        assert_int_equal(r[0].state->counts->slot[0].steps, (i + 1) / 3);
    }
    assert_int_equal(r[0].calls, 2);
    r[0].updates = 2;
    wb_compiled *twice = wb_compile(recorded_step, &r[0]);
    REFUSED(!wb_call_compiled(twice, 2, in, 1, &a), WB_ERROR_ARGUMENT, "update", ".accumulate",
            "wb_compile", "once");
}

typedef struct { wb_tree *p; wb_opt_state *s; int calls; } pair;

/* The gradient of the first parameter only. */
static int one_gradient(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    pair *t = ctx;
    t->calls++;
    out[0] = wb_sum(in[0]);
    return wb_update(t->s, t->p, wb_tuple(in[0], WB_NONE, WB_NONE)) ? -1 : 1;
}

/* A recording that applies the sums depends on which slots had gradients before. */
TEST_IN_SCOPE(compiled_steps_without_some_gradients)
{
    pair t = {.p = parameters()}, u = {.p = parameters()};
    t.s = state_with(t.p, 0);
    u.s = state_with(u.p, 0);
    wb_compiled *c = wb_compile(one_gradient, &t);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 4; i++) {
            wb_tensor *in[] = {wb_full(i + round, 3, 5)}, *out;
            if (i == 1 && round % 2) {                  /* not compiled, with all gradients */
                for (int k = 0; k < 2; k++) {
                    pair *one = k ? &u : &t;
                    WORKS(wb_update(one->s, one->p,
                                    wb_tuple(in[0], wb_ones(7, 1), wb_ones(1, 1))));
                }
                continue;
            }
            WORKS(wb_call_compiled(c, 1, in, 1, &out));
            assert_int_equal(one_gradient(in, &out, &u), 1);
            const contents a = contents_of(t.p, t.s), b = contents_of(u.p, u.s);
            expect_same(&a, &b);
            assert_int_equal(a.steps[1], round / 2 + (round % 2 && i == 3));
        }
    assert_int_equal(t.calls, 3);           /* one that adds, and two that apply */
}

int main(void) { return run_cases(make_folder, remove_folder); }
